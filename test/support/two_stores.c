#include "two_stores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "redis_fixture.h"
#include "service/recovery.h"

#define HOUR_MS 3600000

static bool is_set(void *flag) {
    return *(bool *)flag;
}

static void wait_for(struct two_stores *t, bool *flag) {
    harness_wait(&t->h, is_set, flag);
}

struct uuid two_stores_id(const struct two_stores *t, unsigned char number) {
    struct uuid id = {.bytes = {[6] = 0x70, [8] = 0x80, [15] = number}};
    int64_t made_ms = t->began_ms - HOUR_MS;
    for (size_t i = 0; i < 6; i++) id.bytes[i] = (unsigned char)(made_ms >> (40 - 8 * i));
    return id;
}

/* ---- the ledger ---- */

static enum err submit(struct two_stores *t, struct test_record *r) {
    return harness_submit(&t->h, t->ledger, r);
}

void ledger_takes(struct two_stores *t, uint64_t seq, const char *user, enum entry_status status,
                  int64_t expires_ms) {
    struct test_record r;
    test_enter(&r, t->event_key, seq, user, status);
    r.enter.lane = LANE_DEFAULT;
    r.enter.joined_ms = t->began_ms - HOUR_MS;
    r.enter.expires_ms = expires_ms;
    assert_int_equal(submit(t, &r), ERR_OK);
}

void ledger_admits(struct two_stores *t, uint64_t seq) {
    struct test_record r;
    struct entry_change change = {.seq = seq, .expires_ms = t->began_ms + TWO_STORES_STAY_MS};
    bool kept = false;
    test_admit(&r, t->event_key, &change, 1, &kept);
    assert_int_equal(submit(t, &r), ERR_OK);
    assert_true(kept);
}

void ledger_ends(struct two_stores *t, uint64_t seq, enum entry_status final) {
    struct test_record r;
    bool ended = false;
    test_end(&r, t->event_key, final, &seq, 1, &ended);
    assert_int_equal(submit(t, &r), ERR_OK);
    assert_true(ended);
}

void ledger_holds(struct two_stores *t, struct uuid id, const char *user, uint64_t seq,
                  uint32_t first, uint32_t count) {
    struct reservation *wanted = reservation_new(count);
    wanted->id = id;
    wanted->event_key = t->event_key;
    wanted->section_key = t->section_key;
    str_copy(str_of(user), wanted->user, sizeof wanted->user);
    wanted->entry_seq = seq;
    wanted->created_ms = t->began_ms;
    wanted->expires_ms = t->began_ms + TWO_STORES_STAY_MS;
    memcpy(wanted->currency, "KRW", sizeof wanted->currency);
    for (uint32_t i = 0; i < count; i++) wanted->seats[i] = first + i;
    struct test_record r;
    test_hold(&r, wanted);
    assert_int_equal(submit(t, &r), ERR_OK);
    mem_free(wanted);
}

void ledger_confirms(struct two_stores *t, struct uuid id, const char *user) {
    struct test_record r;
    test_confirm(&r, &id, user, t->began_ms + 1);
    assert_int_equal(submit(t, &r), ERR_OK);
    test_record_deinit(&r);
}

void ledger_cancels(struct two_stores *t, struct uuid id, const char *user) {
    struct test_record r;
    test_cancel(&r, &id, user, t->began_ms + 1);
    assert_int_equal(submit(t, &r), ERR_OK);
    test_record_deinit(&r);
}

enum entry_status ledger_status(struct two_stores *t, uint64_t seq) {
    struct test_record r;
    test_get(&r, t->event_key, seq);
    assert_int_equal(harness_ask(&t->h, t->ledger, &r), ERR_OK);
    return r.get.status;
}

/* ---- the hot store ---- */

static struct hot_op hot_op(struct two_stores *t) {
    return (struct hot_op){.event_key = t->event_key, .now_ms = clock_wall_ms()};
}

/* An operation and whether it is done. */
#define ASKED(kind)                                                                                \
    struct kind##_asked {                                                                          \
        struct kind op;                                                                            \
        bool done;                                                                                 \
    };                                                                                             \
    static void on_##kind(struct kind *op) {                                                       \
        CONTAINER_OF(op, struct kind##_asked, op)->done = true;                                    \
    }

ASKED(look_op)
ASKED(end_op)
ASKED(admit_op)
ASKED(follow_op)
ASKED(seat_sync_op)
ASKED(claim_op)
ASKED(render_op)

struct place hot_place(struct two_stores *t, uint64_t seq) {
    struct look_item item = {.seq = seq};
    struct look_op_asked a = {
        .op = {.op = hot_op(t), .items = &item, .count = 1, .done = on_look_op}};
    queues_look(t->queues, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    return item.place;
}

bool hot_ends(struct two_stores *t, uint64_t seq, enum entry_status final) {
    struct end_op_asked a = {
        .op = {.op = hot_op(t), .seq = seq, .final = final, .done = on_end_op}};
    queues_end(t->queues, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    return a.op.ended;
}

void hot_gets_entry(struct two_stores *t, uint64_t seq, const char *user, const char *step) {
    hot_gets_entry_of(t, seq, user, step, t->began_ms - HOUR_MS);
}

void hot_gets_entry_of(struct two_stores *t, uint64_t seq, const char *user, const char *step,
                       int64_t joined_ms) {
    unsigned long long number = seq;
    long long until_ms = t->began_ms + TWO_STORES_STAY_MS;
    bool is_waiting = strcmp(step, "WAITING") == 0 || strcmp(step, "ENTERING") == 0;
    struct buf packed = {0};
    buf_addf(&packed, "%s %d %lld %lld %s", step, LANE_DEFAULT, (long long)joined_ms,
             is_waiting ? -1 : until_ms, user);
    redis_fixture_number("HSET queue:{CONCERT:1}:entry %llu %b", number, packed.bytes, packed.len);
    buf_deinit(&packed);
    redis_fixture_number("HSET queue:{CONCERT:1}:user %s %llu", user, number);
    redis_fixture_number("ZREM queue:{CONCERT:1}:waiting %llu", number);
    redis_fixture_number("ZREM queue:{CONCERT:1}:active %llu", number);
    if (is_waiting) {
        uint64_t place = ((uint64_t)LANE_DEFAULT << 48) + seq;
        redis_fixture_number("ZADD queue:{CONCERT:1}:waiting %llu %llu", (unsigned long long)place,
                             number);
        redis_fixture_number("ZADD queue:{CONCERT:1}:seen %lld %llu", (long long)t->began_ms / 1000,
                             number);
    } else {
        redis_fixture_number("ZADD queue:{CONCERT:1}:active %lld %llu", until_ms, number);
    }
}

bool hot_follows(struct two_stores *t, struct uuid id, enum reservation_status status) {
    struct reservation_change change = {.id = id, .section_key = t->section_key, .status = status};
    struct follow_op_asked a = {
        .op = {.op = hot_op(t), .changes = &change, .count = 1, .done = on_follow_op}};
    seats_follow(t->seats, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    return change.changed;
}

static size_t hot_syncs(struct two_stores *t, struct seat_sync_op op) {
    struct seat_sync_op_asked a = {.op = op};
    a.op.op = hot_op(t);
    a.op.done = on_seat_sync_op;
    seats_sync(t->seats, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    return a.op.changed;
}

void hot_gets_seats(struct two_stores *t, struct uuid id, const char *user, uint64_t seq,
                    uint32_t first, uint32_t count, enum reservation_status status) {
    uint32_t seats[TEST_SEATS_MAX];
    for (uint32_t i = 0; i < count; i++) seats[i] = first + i;
    struct live_reservation live = {.id = id,
                                    .user = str_of(user),
                                    .entry_seq = seq,
                                    .section_key = t->section_key,
                                    .seats = seats,
                                    .seat_count = count,
                                    .status = status,
                                    .expires_ms = t->began_ms + TWO_STORES_STAY_MS};
    assert_int_equal(hot_syncs(t, (struct seat_sync_op){.reservations = &live, .count = 1}), 1);
}

void hot_frees_seat(struct two_stores *t, uint32_t seat) {
    struct seat_sync_op op = {
        .section_key = t->section_key, .available = &seat, .available_count = 1};
    assert_int_equal(hot_syncs(t, op), 1);
}

static enum err submit_nothing(struct claim_op *c) {
    (void)c;
    return ERR_OK;
}

enum claim_outcome hot_claims(struct two_stores *t, struct uuid id, const char *user, uint64_t seq,
                              uint32_t seat) {
    uint32_t got[1];
    struct claim_op_asked a = {.op = {.op = hot_op(t),
                                      .request = {.id = id,
                                                  .user = str_of(user),
                                                  .entry_seq = seq,
                                                  .section_key = t->section_key,
                                                  .count = 1,
                                                  .named = &seat},
                                      .seats = got,
                                      .submit = submit_nothing,
                                      .done = on_claim_op}};
    seats_claim(t->seats, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    return a.op.outcome;
}

static enum err submit_no_admission(struct admit_op *a) {
    (void)a;
    return ERR_OK;
}

size_t hot_admits(struct two_stores *t) {
    static struct entry_change entries[ADMIT_MAX];
    struct admit_op_asked a = {.op = {.op = hot_op(t),
                                      .entries = entries,
                                      .submit = submit_no_admission,
                                      .done = on_admit_op}};
    queues_admit(t->queues, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    return a.op.count;
}

void assert_first_seats(struct two_stores *t, const char *letters) {
    char got[10];
    struct render_op_asked a = {.op = {.op = hot_op(t),
                                       .section_key = t->section_key,
                                       .first = 1,
                                       .letters = got,
                                       .max = sizeof got,
                                       .done = on_render_op}};
    seats_render(t->seats, &a.op);
    wait_for(t, &a.done);
    assert_int_equal(a.op.op.result, ERR_OK);
    assert_memory_equal(got, letters, sizeof got);
}

/* ---- start and stop ---- */

static void on_expired(void *to, int64_t event_key, int64_t now_ms,
                       const struct entry_change *entries, size_t count) {
    (void)to;
    (void)event_key;
    (void)now_ms;
    (void)entries;
    (void)count;
}

static void fill_ledger(struct two_stores *t) {
    struct event *wanted = test_event("1", 1);
    struct event *stored = harness_store(&t->h, t->ledger, wanted);
    t->event_key = stored->key;
    t->section_key = stored->sections[0].key;
    mem_free(stored);
    mem_free(wanted);
    int64_t until_ms = t->began_ms + TWO_STORES_STAY_MS;
    ledger_takes(t, 1, "ann", ENTRY_ACTIVE, until_ms);
    ledger_takes(t, 2, "bob", ENTRY_WAITING, 0);
    ledger_takes(t, 3, "cat", ENTRY_WAITING, 0);
    ledger_takes(t, 4, "dan", ENTRY_ACTIVE, until_ms);
    ledger_takes(t, 5, "eve", ENTRY_WAITING, 0);
    ledger_holds(t, two_stores_id(t, 1), "ann", 1, 1, 2);
    ledger_holds(t, two_stores_id(t, 2), "dan", 4, 5, 2);
    ledger_holds(t, two_stores_id(t, 3), "dan", 4, 9, 1); /* so that dan stays ACTIVE */
    ledger_confirms(t, two_stores_id(t, 2), "dan");
    ledger_cancels(t, two_stores_id(t, 3), "dan");
}

static void fill_hot(struct two_stores *t) {
    struct catalogue *catalogue = catalogue_new();
    struct events events = {.ledger = t->ledger,
                            .hot = redis_store_hot(t->redis),
                            .catalogue = catalogue,
                            .queues = t->queues,
                            .seats = t->seats};
    struct hot_incarnation incarnation;
    assert_int_equal(hot_incarnation_read(events.hot, &incarnation), ERR_OK);
    incarnation.epoch++;
    assert_int_equal(hot_rebuild_begin(events.hot, &incarnation), ERR_OK);
    assert_int_equal(recovery_run(&events, t->began_ms, 0), ERR_OK);
    assert_int_equal(hot_rebuild_end(events.hot), ERR_OK);
    hot_open(events.hot, &incarnation);
    catalogue_free(catalogue);
}

/* Until calls pass. */
static void attach(struct two_stores *t) {
    redis_store_attach(t->redis, &t->h.loop);
    enum err result;
    do {
        struct look_op_asked a = {.op = {.op = hot_op(t), .done = on_look_op}};
        queues_look(t->queues, &a.op);
        wait_for(t, &a.done);
        result = a.op.op.result;
    } while (result == ERR_HOT_UNAVAILABLE);
    assert_int_equal(result, ERR_OK);
}

void two_stores_open(struct two_stores *t) {
    *t = (struct two_stores){.began_ms = clock_wall_ms()};
    harness_init(&t->h);
    t->ledger = raw_ledger_open(&(struct sqlite_ledger_options){.path = t->h.path});
    t->redis = redis_fixture_store(true);
    t->queues = redis_store_queues(t->redis);
    t->seats = redis_store_seats(t->redis);
    queues_listen(t->queues, (struct queue_listener){.expired = on_expired});
    fill_ledger(t);
    fill_hot(t);
    attach(t);
    t->reconcile = (struct reconcile){.ledger = t->ledger,
                                      .hot = redis_store_hot(t->redis),
                                      .queues = t->queues,
                                      .seats = t->seats,
                                      .wait_ms = TWO_STORES_WAIT_MS};
}

void two_stores_close(struct two_stores *t) {
    reconcile_clear(&t->reconcile);
    redis_store_detach(t->redis);
    ledger_close(t->ledger);
    harness_deinit(&t->h);
    redis_store_free(t->redis);
}

int two_stores_set_up(void **state) {
    struct two_stores *t = mem_new(sizeof *t);
    two_stores_open(t);
    *state = t;
    return 0;
}

int two_stores_tear_down(void **state) {
    two_stores_close(*state);
    mem_free(*state);
    return 0;
}

/* ---- bringing them together ---- */

void assert_differences(struct two_stores *t, size_t count) {
    assert_int_equal(reconcile_compare(&t->reconcile), ERR_OK);
    assert_int_equal(t->reconcile.event_count, 1);
    assert_false(t->reconcile.events[0].is_missing);
    assert_int_equal(t->reconcile.events[0].differences, count);
    assert_int_equal(t->reconcile.difference_count, count);
}

struct repairing {
    struct reconcile_repair repair;
    bool done;
};

static void on_repaired(struct reconcile_repair *m) {
    CONTAINER_OF(m, struct repairing, repair)->done = true;
}

void repair_found(struct two_stores *t) {
    struct repairing *m = mem_new(sizeof *m);
    m->repair.reconcile = &t->reconcile;
    m->repair.done = on_repaired;
    reconcile_repair(&m->repair);
    wait_for(t, &m->done);
    mem_free(m);
}

void assert_mended(struct two_stores *t, enum difference_kind kind) {
    assert_differences(t, 1);
    assert_int_equal(t->reconcile.differences[0].kind, kind);
    repair_found(t);
    assert_int_equal(t->reconcile.differences[0].end, DIFFERENCE_REPAIRED);
    assert_differences(t, 0);
}
