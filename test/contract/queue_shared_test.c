/* The waiting rooms in Redis, as several nodes share them: overdue operations, announcements to
 * other nodes, keys that remain of a removed event, and the number of calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "redis_adapter.h"
#include "seats_steps.h"

#define OLDER_MS 5000

struct fixture {
    struct store s;
    struct event e; /* KEY, with one section: FLOOR */
    struct section section;
    redisContext *raw; /* as an operator with redis-cli, or another node */
    struct entry_change admitted[ADMIT_MAX];
    struct heard heard[4096];
    struct overdue_op overdue;
    bool done;
};

static redisContext *raw_new(void) {
    redisContext *raw = redisConnect("127.0.0.1", services_start(SERVICE_REDIS)->redis_port);
    assert_non_null(raw);
    assert_int_equal(raw->err, 0);
    return raw;
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    store_open(&f->s, &redis_adapter);
    f->raw = raw_new();
    f->e = steps_event(KEY);
    f->section = (struct section){.key = FLOOR, .id = "A", .capacity = 100};
    f->e.sections = &f->section;
    f->e.section_count = 1;
    f->e.hold_s = 300;
    f->e.max_per_user = 4;
    f->e.queue.max_active = 1;
    store_configure(&f->s, &f->e);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    redisFree(f->raw);
    store_close(&f->s);
    mem_free(f);
    return 0;
}

/* The answer as a number; -1: none. */
static int64_t ask(struct fixture *f, const char *command) {
    redisReply *r = redisCommand(f->raw, command);
    assert_non_null(r);
    assert_int_not_equal(r->type, REDIS_REPLY_ERROR);
    int64_t number = r->type == REDIS_REPLY_NIL ? -1 : reply_i64(r);
    freeReplyObject(r);
    return number;
}

/* ---- overdue operations ---- */

static void on_overdue(struct overdue_op *o) {
    CONTAINER_OF(o, struct fixture, overdue)->done = true;
}

static void ask_overdue(struct fixture *f, int64_t now_ms) {
    f->done = false;
    f->overdue.op = (struct hot_op){.event_key = KEY, .now_ms = now_ms};
    f->overdue.older_ms = OLDER_MS;
    f->overdue.done = on_overdue;
    queues_overdue(f->s.queues, &f->overdue);
    store_wait(&f->s, &f->done);
    assert_int_equal(f->overdue.op.result, ERR_OK);
}

static void assert_overdue(struct fixture *f, size_t enters, size_t admissions, size_t claims) {
    assert_int_equal(f->overdue.enter_count, enters);
    assert_int_equal(f->overdue.admission_count, admissions);
    assert_int_equal(f->overdue.claim_count, claims);
}

static void
a_pending_enter_of_a_dead_node_is_reported_again_after_the_same_time_pitfall_13(void **state) {
    struct fixture *f = *state;
    uint64_t ann = step_take(&f->s, KEY, "ann", T0); /* ACTIVE */
    uint64_t bob = step_take(&f->s, KEY, "bob", T0 + 1);
    uint64_t cat = step_take_kept(&f->s, KEY, "cat", T0);
    ask_overdue(f, T0 + OLDER_MS);
    assert_overdue(f, 0, 0, 0);
    ask_overdue(f, T0 + OLDER_MS + 1);
    assert_overdue(f, 1, 0, 0);
    assert_int_equal(f->overdue.enters[0], ann);
    ask_overdue(f, T0 + OLDER_MS + 2); /* ann was reported already */
    assert_overdue(f, 1, 0, 0);
    assert_int_equal(f->overdue.enters[0], bob);
    ask_overdue(f, T0 + 2 * OLDER_MS + 1);
    assert_overdue(f, 0, 0, 0);
    /* The caller has found out that the ledger has bob, and not ann. */
    step_settle_enter(&f->s, KEY, bob, true);
    ask_overdue(f, T0 + 2 * OLDER_MS + 2);
    assert_overdue(f, 1, 0, 0);
    assert_int_equal(f->overdue.enters[0], ann);
    step_settle_enter(&f->s, KEY, ann, false);
    ask_overdue(f, T0 + 100 * OLDER_MS);
    assert_overdue(f, 0, 0, 0);
    assert_int_equal(step_look(&f->s, KEY, ann, T0).status, ENTRY_NONE);
    assert_int_equal(step_look(&f->s, KEY, bob, T0).position, 1);
    assert_int_equal(step_look(&f->s, KEY, cat, T0).position, 2);
}

static void a_pending_admission_of_a_dead_node_is_reported_with_its_time_pitfall_13(void **state) {
    struct fixture *f = *state;
    f->e.queue.max_active = 2;
    f->e.state = EVENT_PAUSED;
    store_configure(&f->s, &f->e);
    for (int i = 0; i < 12; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        step_take_kept(&f->s, KEY, user, T0);
    }
    f->e.state = EVENT_OPEN;
    store_configure(&f->s, &f->e);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 2);
    ask_overdue(f, T0 + OLDER_MS + 1);
    assert_overdue(f, 0, 2, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(f->overdue.admissions[i].seq, i + 1);
        assert_int_equal(f->overdue.admissions[i].expires_ms, T0 + 600 * SECOND);
    }
    ask_overdue(f, T0 + 2 * OLDER_MS);
    assert_overdue(f, 0, 0, 0);
    /* They stay reserved even past their time: the ledger may have them. */
    int64_t late_ms = T0 + 700 * SECOND;
    assert_int_equal(step_admit(&f->s, KEY, late_ms, f->admitted), 0);
    assert_step_counts(&f->s, KEY, 12, 2);
    /* The caller finishes them. */
    step_settle_admit(&f->s, KEY, 1, true);
    step_settle_admit(&f->s, KEY, 2, false);
    ask_overdue(f, T0 + 100 * OLDER_MS);
    assert_overdue(f, 0, 0, 0);
}

static void a_pending_claim_of_a_dead_node_is_reported_with_its_section(void **state) {
    struct fixture *f = *state;
    uint64_t ann = step_take_kept(&f->s, KEY, "ann", T0);
    assert_int_equal(claim_any(&f->s, 5, "ann", ann, FLOOR, 2).outcome, CLAIM_DONE);
    ask_overdue(f, T0 + OLDER_MS + 1);
    assert_overdue(f, 0, 0, 1);
    assert_int_equal(number_of(&f->overdue.claims[0].id), 5);
    assert_int_equal(f->overdue.claims[0].section_key, FLOOR);
    ask_overdue(f, T0 + OLDER_MS + 2);
    assert_overdue(f, 0, 0, 0);
    step_settle_claim(&f->s, KEY, 5, true);
    ask_overdue(f, T0 + 100 * OLDER_MS);
    assert_overdue(f, 0, 0, 0);
}

/* More than fit into one answer. */
static void all_overdue_holds_are_reported_however_many_there_are(void **state) {
    struct fixture *f = *state;
    enum { MANY = OVERDUE_MAX + 40 };
    bool told[MANY + 1] = {0};
    for (int i = 0; i < MANY; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        step_take(&f->s, KEY, user, T0);
    }
    for (int round = 0; round < 2; round++) {
        ask_overdue(f, T0 + OLDER_MS + 1);
        assert_overdue(f, round == 0 ? OVERDUE_MAX : MANY - OVERDUE_MAX, 0, 0);
        for (size_t i = 0; i < f->overdue.enter_count; i++) {
            assert_false(told[f->overdue.enters[i]]);
            told[f->overdue.enters[i]] = true;
        }
    }
    ask_overdue(f, T0 + OLDER_MS + 1);
    assert_overdue(f, 0, 0, 0);
}

/* ---- announcements to other nodes ---- */

static redisContext *subscriber_new(void) {
    redisContext *to = raw_new();
    freeReplyObject(redisCommand(to, "SUBSCRIBE " ENTRIES_CHANNEL));
    struct timeval patience = {.tv_sec = 20};
    redisSetTimeout(to, patience);
    return to;
}

static void assert_news(struct fixture *f, redisContext *to, const char *seqs) {
    struct redis_store *store = f->s.fixture;
    void *reply = NULL;
    char expected[256];
    snprintf(expected, sizeof expected, "%s TEST:%d %s", store->node, KEY, seqs);
    assert_int_equal(redisGetReply(to, &reply), REDIS_OK);
    assert_string_equal(reply_str(reply_at(reply, 2)).at, expected);
    freeReplyObject(reply);
}

static void users_who_become_active_or_end_are_announced_in_the_same_step_pitfall_17(void **state) {
    struct fixture *f = *state;
    redisContext *to = subscriber_new();
    uint64_t seqs[] = {0, 0, 0};
    static const bool kept[] = {true, false, true};
    f->e.queue.max_active = 3;
    f->e.state = EVENT_PAUSED;
    store_configure(&f->s, &f->e);
    seqs[0] = step_take_kept(&f->s, KEY, "ann", T0);
    seqs[1] = step_take_kept(&f->s, KEY, "bob", T0);
    seqs[2] = step_take_kept(&f->s, KEY, "cat", T0);
    f->e.state = EVENT_OPEN;
    store_configure(&f->s, &f->e);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 3); /* not announced yet */
    step_settle(&f->s, KEY, true, seqs, kept, 3, T0, NULL);
    assert_news(f, to, "1 3");
    assert_true(step_end(&f->s, KEY, 1, ENTRY_COMPLETED));
    assert_news(f, to, "1");
    assert_false(step_end(&f->s, KEY, 1, ENTRY_LEFT));
    /* An end that overtakes the announcement of the admission is announced once. */
    assert_int_equal(step_admit(&f->s, KEY, T0 + SECOND, f->admitted), 1);
    assert_true(step_end(&f->s, KEY, 2, ENTRY_COMPLETED));
    assert_news(f, to, "2");
    step_take_kept(&f->s, KEY, "dan", T0);
    assert_true(step_end(&f->s, KEY, 4, ENTRY_LEFT));
    assert_news(f, to, "4");
    /* An entry whose time is over. */
    step_enter(&f->s, KEY, STR("eve"), 8, T0 + 600 * SECOND);
    assert_news(f, to, "3");
    redisFree(to);
}

/* ---- looking ---- */

struct looker {
    struct look_op op;
    struct look_item item;
    char user[USER_ID_BYTES_MAX];
    size_t *open;
};

static void on_looked(struct look_op *op) {
    --*CONTAINER_OF(op, struct looker, op)->open;
}

static int64_t calls_so_far(struct fixture *f) {
    redisReply *r = redisCommand(f->raw, "INFO commandstats");
    const char *at = strstr(r->str, "cmdstat_fcall:calls=");
    int64_t calls = at == NULL ? 0 : strtoll(at + strlen("cmdstat_fcall:calls="), NULL, 10);
    freeReplyObject(r);
    return calls;
}

static void polls_of_one_loop_iteration_share_one_call(void **state) {
    struct fixture *f = *state;
    enum { LOOKERS = 40 };
    static struct looker lookers[LOOKERS];
    size_t open = LOOKERS;
    for (uint64_t i = 1; i < LOOKERS; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", (int)i);
        assert_int_equal(step_take_kept(&f->s, KEY, user, T0), i);
    }
    int64_t before = calls_so_far(f);
    for (uint64_t i = 0; i < LOOKERS; i++) {
        struct looker *l = &lookers[i];
        *l = (struct looker){.item.seq = i, .open = &open};
        l->op = (struct look_op){.op = {.event_key = KEY, .now_ms = T0},
                                 .items = &l->item,
                                 .count = 1,
                                 .user = l->user,
                                 .done = on_looked};
        queues_look(f->s.queues, &l->op);
    }
    assert_int_equal(open, LOOKERS);
    while (open > 0) redis_run_callbacks(f->s.fixture);
    assert_int_equal(calls_so_far(f) - before, 1);
    assert_int_equal(lookers[0].item.place.status, ENTRY_NONE);
    assert_int_equal(lookers[1].item.place.status, ENTRY_ACTIVE);
    for (uint64_t i = 0; i < LOOKERS; i++) {
        struct looker *l = &lookers[i];
        char user[16];
        snprintf(user, sizeof user, "user%d", (int)i);
        assert_int_equal(l->op.op.result, ERR_OK);
        assert_int_not_equal(l->op.op.epoch, 0);
        assert_int_equal(l->item.place.seq, i);
        assert_int_equal(l->item.place.position, i < 2 ? 0 : i - 1);
        assert_int_equal(l->op.counts.waiting, LOOKERS - 2);
        assert_int_equal(l->op.seats.available, 100);
        if (i > 0) assert_true(str_eq((str){l->user, l->op.user_len}, str_of(user)));
    }
}

static void a_look_at_very_many_is_divided_and_answered_whole(void **state) {
    struct fixture *f = *state;
    enum { MANY = 700 };
    struct look_item *items = mem_new(MANY * sizeof *items);
    f->e.state = EVENT_PAUSED;
    store_configure(&f->s, &f->e);
    for (int i = 1; i <= 5; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        step_take_kept(&f->s, KEY, user, T0);
    }
    for (uint64_t i = 0; i < MANY; i++) items[i].seq = i % 7;
    int64_t before = calls_so_far(f);
    struct queue_counts counts;
    assert_int_equal(step_look_at(&f->s, KEY, items, MANY, T0, &counts, NULL), ERR_OK);
    assert_int_equal(calls_so_far(f) - before, 3);
    assert_int_equal(counts.waiting, 5);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t seq = i % 7;
        assert_int_equal(items[i].place.position, seq <= 5 ? seq : 0);
        bool known = seq >= 1 && seq <= 5;
        assert_int_equal(items[i].place.status, known ? ENTRY_WAITING : ENTRY_NONE);
    }
    mem_free(items);
}

static void a_look_that_was_not_sent_ends_with_its_worker(void **state) {
    struct fixture *f = *state;
    static struct looker looker;
    size_t open = 1;
    looker = (struct looker){.item.seq = 1, .open = &open};
    looker.op =
        (struct look_op){.op = {.event_key = KEY, .now_ms = T0}, .items = &looker.item, .count = 1};
    looker.op.done = on_looked;
    queues_look(f->s.queues, &looker.op);
    redis_thread_ends(f->s.fixture);
    assert_int_equal(open, 0);
    assert_int_equal(looker.op.op.result, ERR_HOT_UNAVAILABLE);
    redis_thread_begins(f->s.fixture);
}

/* ---- crowds ---- */

#define END_MOST 2048
#define CROWD (END_MOST + 10)

/* One after the other, a millisecond apart, with the numbers from 1 on. */
static void crowd_enters(struct fixture *f) {
    f->e.queue.max_active = CROWD;
    f->e.queue.max_waiting = CROWD;
    f->e.queue.entry_batch_size = 2 * CROWD;
    f->e.queue.entry_interval_s = 3600;
    store_configure(&f->s, &f->e);
    for (int i = 1; i <= CROWD; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        assert_int_equal(step_take_kept(&f->s, KEY, user, T0 + i), i);
    }
    store_heard(&f->s, f->heard, 4096);
}

static void assert_told_expired(struct fixture *f, size_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(f->heard[first + i].kind, HEARD_EXPIRED);
        assert_int_equal(f->heard[first + i].entry.seq, first + i + 1);
    }
}

static void one_call_ends_a_part_of_many_expired_entries_pitfall_6(void **state) {
    struct fixture *f = *state;
    crowd_enters(f);
    /* The last one is not of that part, but its own time is over all the same. */
    int64_t over_ms = T0 + 601 * SECOND + CROWD;
    struct entered e = step_enter(&f->s, KEY, STR("user2058"), LANE_DEFAULT, over_ms);
    assert_int_equal(e.outcome, ENTER_TAKEN);
    assert_int_equal(e.closes, CROWD);
    assert_int_equal(store_heard(&f->s, f->heard, 4096), END_MOST + 1);
    assert_told_expired(f, 0, END_MOST);
    assert_int_equal(f->heard[END_MOST].entry.seq, CROWD + 1);
    assert_step_counts(&f->s, KEY, 0, CROWD - END_MOST);
    step_enter(&f->s, KEY, STR("ann"), LANE_DEFAULT, over_ms);
    assert_int_equal(store_heard(&f->s, f->heard, 4096), CROWD - END_MOST);
    assert_step_counts(&f->s, KEY, 0, 2);
}

static void one_tick_ends_a_part_of_many_silent_users(void **state) {
    struct fixture *f = *state;
    f->e.state = EVENT_PAUSED;
    f->e.queue.grace_s = 1;
    crowd_enters(f);
    f->e.state = EVENT_OPEN;
    f->e.queue.max_active = 0;
    store_configure(&f->s, &f->e);
    for (int i = 10; i <= 11; i++)
        assert_int_equal(step_admit(&f->s, KEY, T0 + i * SECOND, f->admitted), 0);
    assert_int_equal(store_heard(&f->s, f->heard, 4096), 0);
    step_admit(&f->s, KEY, T0 + 11 * SECOND + 1, f->admitted);
    assert_int_equal(store_heard(&f->s, f->heard, 4096), END_MOST);
    step_admit(&f->s, KEY, T0 + 11 * SECOND + 2, f->admitted);
    assert_int_equal(store_heard(&f->s, f->heard, 4096), CROWD - END_MOST);
    assert_step_counts(&f->s, KEY, 0, 0);
}

/* ---- lives, and the end of events ---- */

static void an_event_of_another_incarnation_or_none_is_not_touched(void **state) {
    struct fixture *f = *state;
    step_take_kept(&f->s, KEY, "ann", T0);
    ask(f, "HINCRBY queue:{TEST:7}:meta epoch 1");
    assert_int_equal(step_enter(&f->s, KEY, STR("bob"), 8, T0).result, ERR_RECOVERING);
    size_t count;
    assert_int_equal(step_admit_result(&f->s, KEY, T0, f->admitted, &count), ERR_RECOVERING);
    f->e.queue.max_active = 50;
    store_configure(&f->s, &f->e);
    ask(f, "HINCRBY queue:{TEST:7}:meta epoch -1");
    assert_int_equal(ask(f, "HGET queue:{TEST:7}:meta version"), f->e.version - 1);
    assert_step_counts(&f->s, KEY, 0, 1);
    ask(f, "DEL queue:{TEST:7}:meta");
    assert_int_equal(step_enter(&f->s, KEY, STR("bob"), 8, T0).result, ERR_RECOVERING);
    assert_int_equal(ask(f, "EXISTS queue:{TEST:7}:meta"), 0);
}

static void
a_store_that_has_lost_an_event_accepts_none_before_it_is_rebuilt_pitfall_31(void **state) {
    struct fixture *f = *state;
    step_take_kept(&f->s, KEY, "ann", T0);
    ask(f, "FLUSHALL");
    store_configure(&f->s, &f->e);
    assert_int_equal(ask(f, "EXISTS queue:{TEST:7}:meta"), 0);
    /* A part of it is lost: the rest is not trusted either. */
    store_rebuild_begins(&f->s);
    step_restore_event(&f->s, &f->e);
    store_rebuild_ends(&f->s);
    assert_int_equal(ask(f, "EXISTS admitone:{hot}:incarnation"), 1);
    ask(f, "DEL queue:{TEST:7}:meta");
    assert_int_equal(step_enter(&f->s, KEY, STR("bob"), 8, T0).result, ERR_RECOVERING);
    struct event other = steps_event(OTHER);
    store_configure(&f->s, &other);
    assert_int_equal(ask(f, "EXISTS admitone:{hot}:incarnation"), 0);
    assert_int_equal(ask(f, "EXISTS queue:{TEST:8}:meta"), 0);
}

static void state_of_an_event_from_an_earlier_incarnation_is_ignored(void **state) {
    struct fixture *f = *state;
    step_take_kept(&f->s, KEY, "ann", T0);
    ask(f, "HINCRBY queue:{TEST:7}:meta epoch -1");
    store_configure(&f->s, &f->e);
    assert_step_counts(&f->s, KEY, 0, 0);
    assert_int_equal(step_take(&f->s, KEY, "bob", T0), 1);
}

static void of_a_removed_event_a_mark_is_left_for_a_day(void **state) {
    struct fixture *f = *state;
    step_take_kept(&f->s, KEY, "ann", T0);
    step_take(&f->s, KEY, "bob", T0);
    step_remove(&f->s, KEY, f->e.version - 1); /* that was before */
    assert_step_counts(&f->s, KEY, 1, 1);
    step_remove(&f->s, KEY, f->e.version + 5);
    redisReply *keys = redisCommand(f->raw, "KEYS *{TEST:7}*");
    assert_int_equal(keys->elements, 1);
    freeReplyObject(keys);
    int64_t seconds = ask(f, "TTL queue:{TEST:7}:meta");
    assert_true(seconds > 86000 && seconds <= 86400);
    f->e.version += 4;
    store_configure(&f->s, &f->e); /* as new as its end */
    assert_int_equal(step_enter(&f->s, KEY, STR("ann"), 8, T0).result, ERR_EVENT_NOT_FOUND);
    /* Another event of that name: announcements about the old one's entries do not apply to it. */
    store_configure(&f->s, &f->e);
    assert_int_equal(ask(f, "TTL queue:{TEST:7}:meta"), -1);
    assert_step_counts(&f->s, KEY, 0, 0);
    assert_int_equal(step_take(&f->s, KEY, "cat", T0), 3);
    assert_int_equal(step_settle_enter(&f->s, KEY, 2, true).status, ENTRY_NONE);
}

#define NEXT_KEY 9

/* An event that another node created under the name of one that it removed. */
static struct event made_again(struct fixture *f) {
    struct event again = f->e;
    snprintf(again.type, sizeof again.type, "TEST");
    snprintf(again.id, sizeof again.id, "%d", KEY);
    again.key = NEXT_KEY;
    again.version = f->e.version + 2;
    return again;
}

/* All that the store has, as one number. */
static int64_t everything(struct fixture *f) {
    redisReply *r = redisCommand(f->raw, "EVAL %s 0",
                                 "local keys, all = redis.call('KEYS', '*'), ''"
                                 " table.sort(keys)"
                                 " for _, key in ipairs(keys) do"
                                 "  local has = redis.call('DUMP', key)"
                                 "  if redis.call('TYPE', key).ok == 'hash' then" /* in any order */
                                 "   local fields = redis.call('HKEYS', key)"
                                 "   table.sort(fields)"
                                 "   has = table.concat(fields, ' ') .. ' ' .. table.concat("
                                 "    redis.call('HMGET', key, unpack(fields)), ' ')"
                                 "  end"
                                 "  all = redis.sha1hex(all .. key .. has)"
                                 " end"
                                 " return tonumber(string.sub(all, 1, 13), 16)");
    assert_int_equal(r->type, REDIS_REPLY_INTEGER);
    int64_t digest = r->integer;
    freeReplyObject(r);
    return digest;
}

static void a_request_for_an_event_that_was_recreated_changes_nothing(void **state) {
    struct fixture *f = *state;
    step_take_kept(&f->s, KEY, "ann", T0);
    step_take_kept(&f->s, KEY, "bob", T0);
    step_remove(&f->s, KEY, f->e.version + 1);
    struct event again = made_again(f);
    step_configure(&f->s, &again);
    uint64_t cat = step_take_kept(&f->s, NEXT_KEY, "cat", T0);
    int64_t before = everything(f);
    /* A call of a node that does not know the removal. */
    size_t count;
    struct queue_counts counts;
    assert_int_equal(step_enter(&f->s, KEY, STR("dan"), 8, T0).result, ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_enter(&f->s, KEY, STR("cat"), 8, T0).result, ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_admit_result(&f->s, KEY, T0 + 900 * SECOND, f->admitted, &count),
                     ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_look_at(&f->s, KEY, NULL, 0, T0, &counts, NULL), ERR_EVENT_NOT_FOUND);
    assert_false(step_end(&f->s, KEY, cat, ENTRY_LEFT));
    assert_int_equal(everything(f), before);
    assert_step_counts(&f->s, NEXT_KEY, 0, 1);
}

/* Created in the ledger; the store is updated later. */
static void an_event_that_is_newer_than_the_store_knows_is_to_be_asked_for_again(void **state) {
    struct fixture *f = *state;
    struct event again = made_again(f);
    store_register_event(f->s.fixture, &again);
    step_take_kept(&f->s, KEY, "ann", T0);
    assert_int_equal(step_enter(&f->s, NEXT_KEY, STR("bob"), 8, T0).result, ERR_RECOVERING);
    step_remove(&f->s, KEY, f->e.version + 1);
    assert_int_equal(step_enter(&f->s, NEXT_KEY, STR("bob"), 8, T0).result, ERR_RECOVERING);
    assert_int_equal(ask(f, "EXISTS admitone:{hot}:incarnation"), 1); /* nothing was lost */
    step_configure(&f->s, &again);
    assert_int_equal(step_enter(&f->s, NEXT_KEY, STR("bob"), 8, T0).result, ERR_OK);
}

/* The entries of an event that was removed while the ledger was read. */
static void what_is_restored_of_a_removed_event_is_not_its_successors(void **state) {
    struct fixture *f = *state;
    struct event again = made_again(f);
    store_rebuild_begins(&f->s);
    step_restore_event(&f->s, &again);
    struct ledger_entry entry = {.event_key = KEY,
                                 .seq = 3,
                                 .user = STR("ann"),
                                 .lane = LANE_DEFAULT,
                                 .status = ENTRY_WAITING,
                                 .joined_ms = T0};
    uint32_t seat = 1;
    struct live_reservation held = {.id = id_of(1),
                                    .user = STR("ann"),
                                    .entry_seq = 3,
                                    .section_key = FLOOR,
                                    .seats = &seat,
                                    .seat_count = 1,
                                    .status = RESERVATION_CONFIRMED};
    queues_restore(f->s.queues, &entry);
    seats_restore(f->s.seats, KEY, &held);
    queues_recovered(f->s.queues, KEY, 1000, T0);
    store_rebuild_ends(&f->s);
    assert_step_counts(&f->s, NEXT_KEY, 0, 0);
    assert_int_equal(step_take(&f->s, NEXT_KEY, "bob", T0), 1);
    assert_int_equal(ask(f, "EXISTS claim:{TEST:7}"), 0);
}

/* A node that knows the removal of the event, but not its creation. */
static void a_removal_that_comes_first_is_remembered(void **state) {
    struct fixture *f = *state;
    struct event other = steps_event(OTHER);
    snprintf(other.type, sizeof other.type, "TEST");
    snprintf(other.id, sizeof other.id, "8");
    queues_register_event(f->s.queues, &other);
    step_remove(&f->s, OTHER, 9);
    other.version = 8;
    step_configure(&f->s, &other);
    assert_int_equal(step_enter(&f->s, OTHER, STR("ann"), 8, T0).result, ERR_EVENT_NOT_FOUND);
}

static void of_ended_entries_only_the_latest_are_kept_pitfall_7(void **state) {
    struct fixture *f = *state;
    enum { MANY = 4096 + 300 };
    f->e.queue.max_active = 10;
    f->e.queue.entry_batch_size = MANY;
    store_configure(&f->s, &f->e);
    for (uint64_t i = 1; i <= MANY; i++) {
        assert_int_equal(step_take(&f->s, KEY, "ann", T0), i);
        assert_true(step_end(&f->s, KEY, i, ENTRY_LEFT));
    }
    assert_int_equal(ask(f, "HLEN queue:{TEST:7}:entry"), 4096);
    assert_int_equal(ask(f, "ZCARD queue:{TEST:7}:ended"), 4096);
    assert_int_equal(step_look(&f->s, KEY, MANY, T0).status, ENTRY_LEFT);
    /* After a day no node needs it any more. */
    for (int i = 0; i < 17; i++) step_admit(&f->s, KEY, T0 + 86400 * SECOND + i, f->admitted);
    assert_int_equal(step_look(&f->s, KEY, MANY, T0).status, ENTRY_NONE);
    assert_int_equal(ask(f, "EXISTS queue:{TEST:7}:entry queue:{TEST:7}:ended "
                            "queue:{TEST:7}:user queue:{TEST:7}:active queue:{TEST:7}:pending"),
                     0);
}

/* ---- the clock ---- */

static void nodes_may_go_by_the_clock_of_the_store(void **state) {
    struct fixture *f = *state;
    struct redis_store *store = f->s.fixture;
    store->options.redis_clock = true;
    int64_t before_ms = clock_wall_ms();
    struct entered e = step_enter(&f->s, KEY, STR("ann"), 8, T0);
    int64_t after_ms = clock_wall_ms();
    assert_in_range(e.place.joined_ms, before_ms, after_ms);
    assert_int_equal(e.place.expires_ms, e.place.joined_ms + 600 * SECOND);
    assert_int_equal(store_heard(&f->s, f->heard, 4096), 1);
    assert_int_equal(f->heard[0].now_ms, e.place.joined_ms);
    assert_int_equal(step_settle_enter(&f->s, KEY, 1, true).status, ENTRY_ACTIVE);
    assert_int_equal(step_look(&f->s, KEY, 1, T0 + 9000 * SECOND).status, ENTRY_ACTIVE);
}

/* ---- a connection that breaks ---- */

struct enter_call {
    struct enter_op op;
    bool done;
};

static enum err submit_enter(struct enter_op *op) {
    (void)op;
    return ERR_OK;
}

static void on_entered(struct enter_op *op) {
    CONTAINER_OF(op, struct enter_call, op)->done = true;
}

struct admitting {
    struct admit_op op;
    bool done;
};

static enum err submit_admit(struct admit_op *op) {
    (void)op;
    return ERR_OK;
}

static void on_admitted(struct admit_op *op) {
    CONTAINER_OF(op, struct admitting, op)->done = true;
}

/* The server does not execute the calls before the connection is cut, so the sender does not know
 * their results. */
static void a_lost_answer_is_asked_again_where_that_does_no_harm(void **state) {
    struct fixture *f = *state;
    struct enter_call e = {.op = {.op = {.event_key = KEY, .now_ms = T0},
                                  .user = STR("ann"),
                                  .lane = 8,
                                  .submit = submit_enter,
                                  .done = on_entered}};
    struct admitting a = {.op = {.op = {.event_key = KEY, .now_ms = T0},
                                 .entries = f->admitted,
                                 .submit = submit_admit,
                                 .done = on_admitted}};
    ask(f, "CLIENT PAUSE 60000 WRITE");
    queues_enter(f->s.queues, &e.op);
    queues_admit(f->s.queues, &a.op);
    for (int i = 0; i < 3; i++) uv_run(&redis_loop, UV_RUN_NOWAIT);
    assert_false(e.done || a.done);
    ask(f, "CLIENT KILL TYPE normal SKIPME yes");
    ask(f, "CLIENT UNPAUSE");
    store_wait(&f->s, &a.done);
    store_wait(&f->s, &e.done);
    assert_int_equal(a.op.op.result, ERR_HOT_UNKNOWN);
    assert_int_equal(a.op.count, 0);
    assert_int_equal(e.op.op.result, ERR_OK);
    assert_int_equal(e.op.outcome, ENTER_TAKEN);
    assert_int_equal(e.op.place.seq, 1);
}

/* ---- what a node remembers ---- */

static void an_event_is_forgotten_when_the_store_has_heard_of_its_removal(void **state) {
    struct fixture *f = *state;
    struct redis_store *store = f->s.fixture;
    size_t known = store->by_key.count;
    for (int64_t key = KEY + 1; key <= KEY + 50; key++) {
        struct event e = steps_event(key);
        e.version = 1;
        step_configure(&f->s, &e);
        assert_int_equal(store->by_key.count, known + 1);
        step_remove(&f->s, key, 2);
        assert_int_equal(store->by_key.count, known);
        assert_int_equal(store->by_tag.count, known);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_event_is_forgotten_when_the_store_has_heard_of_its_removal),
        TEST(a_pending_enter_of_a_dead_node_is_reported_again_after_the_same_time_pitfall_13),
        TEST(a_pending_admission_of_a_dead_node_is_reported_with_its_time_pitfall_13),
        TEST(a_pending_claim_of_a_dead_node_is_reported_with_its_section),
        TEST(all_overdue_holds_are_reported_however_many_there_are),
        TEST(users_who_become_active_or_end_are_announced_in_the_same_step_pitfall_17),
        TEST(polls_of_one_loop_iteration_share_one_call),
        TEST(a_look_at_very_many_is_divided_and_answered_whole),
        TEST(a_look_that_was_not_sent_ends_with_its_worker),
        TEST(one_call_ends_a_part_of_many_expired_entries_pitfall_6),
        TEST(one_tick_ends_a_part_of_many_silent_users),
        TEST(an_event_of_another_incarnation_or_none_is_not_touched),
        TEST(a_store_that_has_lost_an_event_accepts_none_before_it_is_rebuilt_pitfall_31),
        TEST(state_of_an_event_from_an_earlier_incarnation_is_ignored),
        TEST(of_a_removed_event_a_mark_is_left_for_a_day),
        TEST(a_request_for_an_event_that_was_recreated_changes_nothing),
        TEST(an_event_that_is_newer_than_the_store_knows_is_to_be_asked_for_again),
        TEST(what_is_restored_of_a_removed_event_is_not_its_successors),
        TEST(a_removal_that_comes_first_is_remembered),
        TEST(of_ended_entries_only_the_latest_are_kept_pitfall_7),
        TEST(nodes_may_go_by_the_clock_of_the_store),
        TEST(a_lost_answer_is_asked_again_where_that_does_no_harm),
    };
#undef TEST
    return cmocka_run_group_tests_name("queue in Redis, shared", tests, NULL, NULL);
}
