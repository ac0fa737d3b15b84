/* Invalid replies, as from a Redis whose library was changed: every operation is answered, and a
 * reply that makes no sense is never submitted to the ledger. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "hot/redis/internal.h"
#include "redis_fixture.h"

#define ID "'0190163d-8694-739b-aea5-966c26f8ad91'"

enum { WANTED = 3, LETTERS = 4 };

/* All functions return this. The first have wrong types, the others look like answers. */
static const char *const replies[] = {
    "nil",
    "7",
    "-1",
    "''",
    "'DONE'",
    "{}",
    "{0}",
    "{{}}",
    "{'', '', '', '', '', '', '', '', {}}",
    "{{{{1}}}, {{{2}}}, {{{3}}}}",
    "{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}",
    "{1, 'x', {'DONE'}}",
    "{1, {1}, {'DONE', '1-3'}}",
    "{1, {}, {'DONE', '1-3', {}}}",
    "{1, {}, {'DONE', '1-2', {" ID ", '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', '1-4', {" ID ", '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', '1-99999999999999', {" ID ", '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', '3-1', {" ID ", '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', '0-2', {" ID ", '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', 'a,b,c', {" ID ", '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', '1-3', {'nobody', '1', 'P', '1', '9', 3}}}",
    "{1, {}, {'DONE', '1-3', {" ID ", '1', 'Q', '1', '9', 3}}}",
    "{1, {}, {'DONE', '1-3', {" ID ", '1', 'P', '1', '9', 4000000000}}}",
    "{1, {}, {'LEDGER_DECIDES', '1', {}}}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, 1, {'LEFT', 1, 1, 1, 1, 1, 1, 1}}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, 0, {'WAITING', 1, 1, 1, 1, 1, 1, 1}}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, '281474976710656', {'WAITING', 1, 1, 1, 1, 1, 1, 1}}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, 1, {'WAITING', 1, 1, 16, 1, 1, 1, 1}}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, 1}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, 1, {'WAITING', 1, 1, 1, -5, 1, 1, 1}}",
    "{'TAKEN', 1, 0, '', {}, {}, 0, 1, {'WAITING', 1, 1, 1, '281474976710656', 1, 1, 1}}",
    "{1000000, {}, {}}",
    "{2, {" ID ", '1', 'H', '1', '9', 1}}",
    "{'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', -1, 'x', {}}",
};

static uv_loop_t loop;
static bool is_done;

#define ON_DONE(name, type)                                                                        \
    static void name(struct type *op) {                                                            \
        (void)op;                                                                                  \
        is_done = true;                                                                            \
    }
ON_DONE(on_claimed, claim_op)
ON_DONE(on_claim_settled, claim_settle_op)
ON_DONE(on_followed, follow_op)
ON_DONE(on_synced, seat_sync_op)
ON_DONE(on_due, due_op)
ON_DONE(on_holds, holds_op)
ON_DONE(on_counted, seat_count_op)
ON_DONE(on_rendered, render_op)
ON_DONE(on_entered, enter_op)
ON_DONE(on_settled, settle_op)
ON_DONE(on_admitted, admit_op)
ON_DONE(on_looked, look_op)
ON_DONE(on_ended, end_op)
ON_DONE(on_overdue, overdue_op)
ON_DONE(on_acquired, lock_op)

static void wait_for_it(void) {
    while (!is_done) uv_run(&loop, UV_RUN_ONCE);
    is_done = false;
}

static enum err submit_claim(struct claim_op *c) {
    (void)c;
    fail_msg("nonsense was to be written");
    return ERR_OK;
}

static enum err submit_enter(struct enter_op *e) {
    (void)e;
    fail_msg("nonsense was to be written");
    return ERR_OK;
}

static enum err submit_admit(struct admit_op *a) {
    assert_in_range(a->count, 1, ADMIT_MAX);
    return ERR_LEDGER_FAILED;
}

static void expired(void *to, int64_t event_key, int64_t now_ms, const struct entry_change *e,
                    size_t count) {
    (void)to;
    (void)event_key;
    (void)now_ms;
    (void)e;
    (void)count;
}

#define OP ((struct hot_op){.event_key = 1, .now_ms = 1})

static void ask_seats(struct seats *s) {
    uint32_t seats[WANTED];
    struct uuid id = {{1}};
    bool yes = true;
    char letters[LETTERS];
    struct claim_info held[2];
    struct claim_ref refs[2];
    struct section_counts sections[2];
    struct reservation_change change = {
        .id = id, .section_key = 1, .status = RESERVATION_CANCELLED};
    struct live_reservation live = {.id = id,
                                    .user = STR("a"),
                                    .entry_seq = 1,
                                    .section_key = 1,
                                    .seats = seats,
                                    .seat_count = 1};
    seats[0] = 1;
    struct claim_op claim = {
        .op = OP,
        .request = {.id = id, .user = STR("a"), .entry_seq = 1, .section_key = 1, .count = WANTED},
        .seats = seats,
        .submit = submit_claim,
        .done = on_claimed};
    seats_claim(s, &claim);
    wait_for_it();
    assert_int_not_equal(claim.op.result, ERR_OK);
    struct claim_settle_op settle = {.op = OP,
                                     .section_key = 1,
                                     .ids = &id,
                                     .kept = &yes,
                                     .count = 1,
                                     .live = &yes,
                                     .done = on_claim_settled};
    seats_settle(s, &settle);
    wait_for_it();
    struct follow_op follow = {.op = OP, .changes = &change, .count = 1, .done = on_followed};
    seats_follow(s, &follow);
    wait_for_it();
    seats[0] = 1;
    struct seat_sync_op sync = {.op = OP, .reservations = &live, .count = 1, .done = on_synced};
    seats_sync(s, &sync);
    wait_for_it();
    struct due_op due = {.op = OP, .refs = refs, .max = 2, .done = on_due};
    seats_due(s, &due);
    wait_for_it();
    assert_in_range(due.count, 0, 2);
    struct holds_op holds = {
        .op = OP, .user = STR("a"), .reservations = held, .max = 2, .done = on_holds};
    seats_holds(s, &holds);
    wait_for_it();
    struct seat_count_op count = {.op = OP, .sections = sections, .max = 2, .done = on_counted};
    seats_count(s, &count);
    wait_for_it();
    struct render_op render = {.op = OP,
                               .section_key = 1,
                               .first = 1,
                               .letters = letters,
                               .max = LETTERS,
                               .done = on_rendered};
    seats_render(s, &render);
    wait_for_it();
    assert_in_range(render.count, 0, LETTERS);
}

static void ask_queue(struct queues *q) {
    uint64_t seq = 1;
    bool yes = true;
    struct place place;
    char user[USER_ID_BYTES_MAX];
    struct look_item items[2] = {{.seq = 1}, {.seq = 2}};
    struct entry_change *entries = mem_new(ADMIT_MAX * sizeof *entries);
    struct overdue_op *overdue = mem_new(sizeof *overdue);
    struct enter_op enter = {
        .op = OP, .user = STR("a"), .submit = submit_enter, .done = on_entered};
    queues_enter(q, &enter);
    wait_for_it();
    assert_int_not_equal(enter.op.result, ERR_OK);
    struct settle_op settle = {
        .op = OP, .seqs = &seq, .kept = &yes, .count = 1, .places = &place, .done = on_settled};
    queues_settle(q, &settle);
    wait_for_it();
    struct admit_op admit = {
        .op = OP, .entries = entries, .submit = submit_admit, .done = on_admitted};
    queues_admit(q, &admit);
    wait_for_it();
    struct look_op look = {.op = OP, .items = items, .count = 2, .user = user, .done = on_looked};
    queues_look(q, &look);
    wait_for_it();
    assert_in_range(look.user_len, 0, sizeof user);
    struct end_op end = {.op = OP, .seq = 1, .final = ENTRY_LEFT, .done = on_ended};
    queues_end(q, &end);
    wait_for_it();
    *overdue = (struct overdue_op){.op = OP, .older_ms = 1, .done = on_overdue};
    queues_overdue(q, overdue);
    wait_for_it();
    mem_free(overdue);
    mem_free(entries);
}

/* A request that gets no answer about its lock waits until its store is closed. */
static struct lock_op *ask_lock(struct locks *l) {
    struct lock_op *op = mem_new(sizeof *op);
    *op = (struct lock_op){
        .name = STR("T/1/A"), .now_ms = 1, .wait_ms_max = 1, .lease_ms = 1000, .done = on_acquired};
    locks_acquire(l, op);
    return op;
}

static void load(const char *reply) {
    static const char *const names[] = {"claim",     "claim_settle", "follow",     "sync",
                                        "due",       "holds",        "count",      "render",
                                        "enter",     "settle",       "admit",      "look",
                                        "end",       "overdue",      "sync_entry", "lock_acquire",
                                        "lock_tick", "lock_leave",   "lock_renew", "lock_release"};
    struct buf code = {0};
    buf_addf(&code, "#!lua name=" REDIS_LIBRARY "\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        buf_addf(&code,
                 "redis.register_function('" REDIS_LIBRARY "_%s', function() return %s end)\n",
                 names[i], reply);
    freeReplyObject(redis_fixture_command("FUNCTION LOAD REPLACE %s", buf_cstr(&code)));
    buf_deinit(&code);
}

static void whatever_redis_replies_no_operation_takes_the_process_down(void **state) {
    (void)state;
    struct redis_store *s = redis_fixture_store(true);
    redis_fixture_begin(s, 1);
    uv_loop_init(&loop);
    redis_fixture_attach(s, &loop);
    struct queues *queues = redis_store_queues(s);
    struct event *event = event_new(1);
    event->key = 1;
    event->version = 1;
    memcpy(event->type, "T", 2);
    memcpy(event->id, "1", 2);
    event->sections[0].key = 1;
    queues_register_event(queues, event);
    queues_listen(queues, (struct queue_listener){.expired = expired});
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        load(replies[i]);
        ask_seats(redis_store_seats(s));
        ask_queue(queues);
    }
    static const char *const fates[] = {"A",          "A 1 0 1 1", "A 0 1 1 1", "A 99999999 1 1 1",
                                        "A 1 -5 1 1", "A x y z w", "B",         "T",
                                        "G x",        ""};
    struct lock_op *waits[sizeof fates / sizeof *fates];
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        char reply[96];
        snprintf(reply, sizeof reply, "{'%s:0:%zu %s'}", s->node, i + 1, fates[i]);
        load(reply);
        waits[i] = ask_lock(redis_store_locks(s));
        locks_tick(redis_store_locks(s), 1);
        for (int turns = 0; turns < 20; turns++) uv_run(&loop, UV_RUN_NOWAIT);
    }
    redis_store_detach(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        assert_false(waits[i]->result == ERR_OK && waits[i]->outcome == LOCK_ACQUIRED);
        mem_free(waits[i]);
    }
    uv_loop_close(&loop);
    redis_store_free(s);
    mem_free(event);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_redis_replies_no_operation_takes_the_process_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
