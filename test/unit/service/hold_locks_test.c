/* Reservations under named locks: a stalled holder loses its lock, a working one keeps it, and no
 * request waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/mem.h"
#include "seats_fixture.h"
#include "sync_recorder.h"
#include "timed_locks.h"

static const enum strategy locking[] = {STRATEGY_LOCK, STRATEGY_ADAPTIVE,
                                        STRATEGY_DISTRIBUTED_LOCK};
#define LOCKING_COUNT (sizeof locking / sizeof *locking)

/* ---- another holder of the locks ---- */

struct holder {
    struct lock_op op;
    char name[64];
    bool back;
};

static void on_acquired(struct lock_op *op) {
    CONTAINER_OF(op, struct holder, op)->back = true;
}

/* Takes the lock of a seat, or of a section (seat 0), without a lock_client. False: it is held. */
static bool grab(struct locks *l, struct holder *x, enum strategy s, uint32_t seat) {
    *x = (struct holder){.op = {.lease_ms = 600000, .done = on_acquired}};
    char section = (char)('A' + (int)seats_fixture_section_of(s));
    if (s != STRATEGY_DISTRIBUTED_LOCK)
        snprintf(x->name, sizeof x->name, "CONCERT/1/%c", section);
    else
        snprintf(x->name, sizeof x->name, "CONCERT/1/%c/%u", section, seat);
    x->op.name = str_of(x->name);
    locks_acquire(l, &x->op);
    assert_true(x->back);
    return x->op.outcome == LOCK_ACQUIRED;
}

static void on_released(struct lock_hold_op *op) {
    assert_int_equal(op->outcome, LOCK_RELEASED);
}

static void let_go(struct locks *l, struct holder *x) {
    struct lock_hold_op op = {.name = x->op.name, .fence = x->op.fence, .done = on_released};
    locks_release(l, &op);
}

/* ---- a fixture whose locks' time is set by the test ---- */

struct test_state {
    struct seats_fixture *seats;
    struct fixture *service;
    struct timed_locks locks;
    struct lock_client other; /* of another process, so to speak */
};

static int set_up(void **state) {
    struct test_state *f = mem_new(sizeof *f);
    void *seats;
    seats_fixture_set_up(&seats);
    f->seats = seats;
    f->service = &f->seats->fixture;
    timed_locks_init(&f->locks, f->service->lock_client.locks);
    f->service->lock_client.locks = &f->locks.locks;
    f->other = (struct lock_client){.locks = &f->locks.locks,
                                    .lease_ms = f->service->lock_client.lease_ms};
    lock_client_init(&f->other, &f->service->h.loop);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct test_state *f = *state;
    void *seats = f->seats;
    lock_client_close(&f->other);
    f->service->lock_client.locks = f->locks.real;
    seats_fixture_tear_down(&seats);
    mem_free(f);
    return 0;
}

static void begin(struct test_state *f, struct lock_client *d, struct fixture_hold *x,
                  struct hold_spec w) {
    fixture_hold_prepare(f->service, x, &w);
    fixture_hold_start(f->service, d, x);
}

static enum err finish(struct test_state *f, struct fixture_hold *x) {
    harness_wait(&f->service->h, fixture_hold_is_back, x);
    fixture_hold_end(x);
    return x->result;
}

static void assert_free(struct test_state *f, enum strategy s, uint32_t seat) {
    struct holder probe;
    assert_true(grab(&f->locks.locks, &probe, s, seat));
    let_go(&f->locks.locks, &probe);
}

/* ---- stalled holders ---- */

/* Bob, on another worker: holds, and gives back. */
struct rival {
    struct worker_job job; /* first, so that an job is its rival */
    struct fixture_hold x;
    struct reservation_action cancel;
    enum err cancelled;
    _Atomic bool is_done;
};

static enum err judge_none(struct reservation_action *d, const struct reservation *r) {
    (void)d;
    (void)r;
    return ERR_OK;
}

static void on_rival_cancelled(struct reservation_action *d, enum err result) {
    struct rival *v = CONTAINER_OF(d, struct rival, cancel);
    v->cancelled = result;
    mem_free(d->reservation);
    v->is_done = true;
}

static void on_rival_held(struct fixture_hold *x) {
    struct rival *v = CONTAINER_OF(x, struct rival, x);
    v->cancel = (struct reservation_action){
        .id = x->hold.reservation.id, .judge = judge_none, .done = on_rival_cancelled};
    reservations_cancel(&v->job.fixture->reservations, &v->cancel);
}

static void act_as_rival(struct worker_job *e) {
    fixture_hold_start(e->fixture, &e->fixture->desks[0], &((struct rival *)e)->x);
}

/* While the test's own thread is stalled. */
static void let_rival_act(struct test_state *f, struct hold_spec w) {
    struct rival v = {.job.work = act_as_rival};
    fixture_hold_prepare(f->service, &v.x, &w);
    v.x.done = on_rival_held;
    fixture_send(f->service, 0, &v.job);
    while (!v.is_done) usleep(200);
    assert_int_equal(v.x.result, ERR_OK);
    assert_int_equal(v.cancelled, ERR_OK);
    fixture_hold_end(&v.x);
}

/* Ann waits for the lock and gets it, but her process is stalled before it gets the notice. Her
 * lease ends; Bob gets the lock, writes, and gives the seat back. Then Ann's process continues and
 * writes to a seat that is free again: only the fence refuses her. */
static void a_request_that_stalls_past_its_lease_writes_nothing_pitfall_20(void **state) {
    struct test_state *f = *state;
    uint64_t ann = fixture_admit(f->service, "ann");
    uint64_t bob = fixture_admit(f->service, "bob");
    fixture_start_workers(f->service);
    for (size_t i = 0; i < LOCKING_COUNT; i++) {
        enum strategy s = locking[i];
        struct holder before;
        struct fixture_hold late;
        assert_true(grab(&f->locks.locks, &before, s, 3));
        begin(f, &f->service->lock_client, &late, seats_fixture_named(s, "ann", ann, SEATS(3)));
        let_go(&f->locks.locks, &before); /* it is Ann's; the notice is in her mailbox */
        f->locks.now_ms += f->service->lock_client.lease_ms;
        let_rival_act(f, seats_fixture_named(s, "bob", bob, SEATS(3)));
        int64_t trace = seats_fixture_trace(f->seats);
        assert_false(late.back);
        assert_int_equal(finish(f, &late), ERR_LOCK_LOST);
        assert_int_equal(seats_fixture_trace(f->seats), trace);
        assert_int_equal(fixture_holds(f->service, "ann", NULL, 0), 0);
        assert_string_equal(fixture_map(f->service, seats_fixture_section_of(s)), FIXTURE_FREE);
        assert_free(f, s, 3);
    }
    fixture_stop_workers(f->service);
}

/* ---- holders that work ---- */

/* Three leases long. */
static void
a_lock_is_kept_while_the_ledger_is_slow_and_given_back_after_the_commit_pitfall_19(void **state) {
    struct test_state *f = *state;
    f->service->lock_client.lease_ms = 30;
    uint64_t ann = fixture_admit(f->service, "ann");
    uint64_t bob = fixture_admit(f->service, "bob");
    for (size_t i = 0; i < LOCKING_COUNT; i++) {
        enum strategy s = locking[i];
        struct fixture_hold first;
        struct fixture_hold second;
        struct holder probe;
        sync_gate_close();
        begin(f, &f->service->lock_client, &first, seats_fixture_named(s, "ann", ann, SEATS(1)));
        raw_wait_for_sync(&f->service->h);
        begin(f, &f->other, &second, seats_fixture_named(s, "bob", bob, SEATS(1)));
        for (int turn = 0; turn < 6; turn++) {
            f->locks.now_ms += f->service->lock_client.lease_ms / 2;
            timed_locks_wait_for_renewals(&f->locks, &f->service->h, 1);
        }
        assert_false(first.back || second.back);
        assert_int_equal(second.hold.locking.count, 0);
        assert_false(grab(&f->locks.locks, &probe, s, 1));
        sync_gate_open();
        assert_int_equal(finish(f, &first), ERR_OK);
        assert_int_equal(finish(f, &second), ERR_SEAT_TAKEN); /* it saw the committed hold */
        assert_free(f, s, 1);
        assert_int_equal(fixture_leave(f->service, ann), ERR_OK);
        ann = fixture_admit(f->service, "ann");
    }
}

static void locks_are_given_back_however_it_ends_pitfall_19(void **state) {
    struct test_state *f = *state;
    uint64_t ann = fixture_admit(f->service, "ann");
    uint64_t bob = fixture_admit(f->service, "bob");
    seats_fixture_make_faulty(f->seats);
    for (size_t i = 0; i < LOCKING_COUNT; i++) {
        enum strategy s = locking[i];
        struct hold_spec w = seats_fixture_named(s, "ann", ann, SEATS(1, 2));
        struct hold_spec taken = seats_fixture_named(s, "bob", bob, SEATS(2, 3));
        f->seats->faulty.fails = 1;
        assert_int_equal(fixture_hold(f->service, &w, NULL), ERR_LEDGER_FAILED);
        for (uint32_t seat = 1; seat <= 3; seat++) assert_free(f, s, seat);
        f->seats->faulty.is_full = true;
        assert_int_equal(fixture_hold(f->service, &w, NULL), ERR_OVERLOADED);
        f->seats->faulty.is_full = false;
        for (uint32_t seat = 1; seat <= 3; seat++) assert_free(f, s, seat);
        assert_int_equal(fixture_hold(f->service, &w, NULL), ERR_OK);
        assert_int_equal(fixture_hold(f->service, &taken, NULL), ERR_SEAT_TAKEN);
        for (uint32_t seat = 1; seat <= 3; seat++) assert_free(f, s, seat);
        assert_int_equal(fixture_leave(f->service, ann), ERR_OK);
        ann = fixture_admit(f->service, "ann");
    }
    assert_false(ticker_runs(&f->service->lock_client.ticker));
}

/* ---- waiting requests ---- */

static void a_wait_is_bounded_and_ends_as_a_refusal_pitfall_21(void **state) {
    struct test_state *f = *state;
    uint64_t ann = fixture_admit(f->service, "ann");
    for (size_t i = 0; i < LOCKING_COUNT; i++) {
        enum strategy s = locking[i];
        struct holder other;
        struct fixture_hold x;
        assert_true(grab(&f->locks.locks, &other, s, 2));
        begin(f, &f->service->lock_client, &x, seats_fixture_named(s, "ann", ann, SEATS(1, 2)));
        harness_run_for(&f->service->h, 30);
        assert_false(x.back);
        f->locks.now_ms += f->service->reservations.lock_wait_ms;
        assert_int_equal(finish(f, &x), ERR_LOCK_TIMEOUT);
        assert_free(f, STRATEGY_DISTRIBUTED_LOCK, 1); /* it has released its part of them */
        let_go(&f->locks.locks, &other);
        assert_string_equal(fixture_map(f->service, seats_fixture_section_of(s)), FIXTURE_FREE);
    }
    assert_int_equal(seats_fixture_trace(f->seats), 0);
}

struct stuck {
    struct fixture_hold *x;
    size_t locks;
};

static bool is_stuck(void *arg) {
    struct stuck *s = arg;
    return s->x->hold.locking.count == s->locks;
}

/* The time that the first lock took is not available for the others. */
static void the_wait_is_for_all_seats_together(void **state) {
    struct test_state *f = *state;
    uint64_t ann = fixture_admit(f->service, "ann");
    enum strategy s = STRATEGY_DISTRIBUTED_LOCK;
    struct holder first;
    struct holder third;
    struct fixture_hold x;
    struct stuck two = {&x, 2};
    assert_true(grab(&f->locks.locks, &first, s, 1));
    assert_true(grab(&f->locks.locks, &third, s, 3));
    begin(f, &f->service->lock_client, &x, seats_fixture_named(s, "ann", ann, SEATS(1, 2, 3)));
    int64_t first_ms = x.hold.locking.held[0].acquire.wait_ms_max;
    assert_in_range(first_ms, 1, f->service->reservations.lock_wait_ms);
    harness_run_for(&f->service->h, 150);
    let_go(&f->locks.locks, &first);
    harness_wait(&f->service->h, is_stuck, &two);
    int64_t left_ms = x.hold.locking.held[2].acquire.wait_ms_max;
    /* Times in whole milliseconds: one that began between two of them may be shorter by one. */
    assert_true(left_ms <= first_ms - 149);
    f->locks.now_ms += left_ms;
    assert_int_equal(finish(f, &x), ERR_LOCK_TIMEOUT);
    assert_free(f, s, 1);
    assert_free(f, s, 2);
    let_go(&f->locks.locks, &third);
}

/* No time is left: the lock is requested all the same, without waiting. */
static void a_request_without_time_left_gets_free_locks_and_does_not_wait(void **state) {
    struct test_state *f = *state;
    uint64_t ann = fixture_admit(f->service, "ann");
    f->service->reservations.lock_wait_ms = 0;
    struct holder other;
    struct hold_spec w = seats_fixture_named(STRATEGY_DISTRIBUTED_LOCK, "ann", ann, SEATS(1, 2));
    assert_true(grab(&f->locks.locks, &other, w.strategy, 2));
    assert_int_equal(fixture_hold(f->service, &w, NULL), ERR_LOCK_TIMEOUT);
    let_go(&f->locks.locks, &other);
    assert_int_equal(fixture_hold(f->service, &w, NULL), ERR_OK);
}

#define CIRCLE 60

/* However they overlap, and at two desks. */
static void requests_for_many_seats_never_deadlock_pitfall_24(void **state) {
    struct test_state *f = *state;
    static const uint32_t lists[][5] = {{1, 2, 3, 0}, {2, 3, 4, 5, 0}, {3, 4, 6, 0},
                                        {1, 6, 0},    {4, 5, 6, 0},    {1, 3, 5, 0}};
    struct fixture_hold *holds = mem_new(CIRCLE * sizeof *holds);
    char users[CIRCLE][16];
    for (int i = 0; i < CIRCLE; i++) {
        snprintf(users[i], sizeof users[i], "user%d", i);
        uint64_t seq = fixture_admit(f->service, users[i]);
        begin(f, i % 2 == 0 ? &f->service->lock_client : &f->other, &holds[i],
              seats_fixture_named(STRATEGY_DISTRIBUTED_LOCK, users[i], seq, lists[i % 6]));
    }
    int won = 0;
    for (int i = 0; i < CIRCLE; i++) {
        enum err result = finish(f, &holds[i]);
        assert_true(result == ERR_OK || result == ERR_SEAT_TAKEN);
        won += result == ERR_OK;
    }
    assert_true(won >= 1 && won <= 3);
    for (uint32_t seat = 1; seat <= FIXTURE_SEATS; seat++)
        assert_free(f, STRATEGY_DISTRIBUTED_LOCK, seat);
    mem_free(holds);
}

static void a_lock_client_that_stops_refuses_its_waiters(void **state) {
    struct test_state *f = *state;
    uint64_t ann = fixture_admit(f->service, "ann");
    for (size_t i = 0; i < LOCKING_COUNT; i++) {
        struct holder other;
        struct fixture_hold x;
        assert_true(grab(&f->locks.locks, &other, locking[i], 1));
        begin(f, &f->other, &x, seats_fixture_named(locking[i], "ann", ann, SEATS(1)));
        lock_client_drain(&f->other);
        assert_int_equal(finish(f, &x), ERR_STOPPING);
        let_go(&f->locks.locks, &other);
    }
    assert_int_equal(seats_fixture_trace(f->seats), 0);
}

/* ---- adaptive ---- */

#define CROWD 8

static enum strategy adaptive_now(struct test_state *f) {
    struct event *e = fixture_event(f->service);
    int64_t key = e->sections[FIXTURE_ADAPTIVE].key;
    mem_free(e);
    return strategy_now(&f->service->reservations, SECTION_MODE_ADAPTIVE, key);
}

static bool is_calm(void *arg) {
    return adaptive_now(arg) == STRATEGY_LOCK;
}

static void an_adaptive_section_locks_while_it_is_calm_and_claims_when_it_is_hot(void **state) {
    struct test_state *f = *state;
    f->service->reservations.load.rules =
        (struct adaptive_rules){.calm_below = 2, .hot_above = 4, .wait_ms = 60000, .rest_ms = 1};
    struct holder lock;
    struct fixture_hold holds[CROWD];
    char users[CROWD][16];
    assert_int_equal(adaptive_now(f), STRATEGY_LOCK);
    assert_true(grab(&f->locks.locks, &lock, STRATEGY_ADAPTIVE, 0));
    int back = 0;
    for (int i = 0; i < CROWD; i++) {
        snprintf(users[i], sizeof users[i], "user%d", i);
        uint64_t seq = fixture_admit(f->service, users[i]);
        begin(f, &f->service->lock_client, &holds[i],
              seats_fixture_any(STRATEGY_ADAPTIVE, users[i], seq, 1));
    }
    assert_int_equal(adaptive_now(f), STRATEGY_SLOT);
    for (int i = CROWD / 2; i < CROWD; i++) /* requests for other locks do not wait */
        if (holds[i].hold.plan.chosen_strategy == STRATEGY_SLOT) {
            harness_wait(&f->service->h, fixture_hold_is_back, &holds[i]);
            back++;
        }
    assert_true(back > 0);
    assert_false(holds[0].back);
    let_go(&f->locks.locks, &lock);
    int won = 0;
    for (int i = 0; i < CROWD; i++) won += finish(f, &holds[i]) == ERR_OK;
    assert_int_equal(won,
                     FIXTURE_SEATS); /* both decide in the hot store: no seat twice, none lost */
    harness_wait(&f->service->h, is_calm, f);
}

/* No request of it ends any more that could drop its load. */
static void the_load_of_a_section_that_has_cooled_down_is_dropped(void **state) {
    struct test_state *f = *state;
    struct reservations *r = &f->service->reservations;
    an_adaptive_section_locks_while_it_is_calm_and_claims_when_it_is_hot(state);
    assert_int_equal(r->load.sections.count, 1);
    r->load.sections_max = 0;
    struct fixture_hold other;
    uint64_t seq = fixture_admit(f->service, "zoe");
    struct hold_spec w = seats_fixture_any(STRATEGY_ADAPTIVE, "zoe", seq, 1);
    fixture_hold_prepare(f->service, &other, &w);
    other.hold.terms.section_key += 1000000; /* of a removed section */
    fixture_hold_start(f->service, &f->service->lock_client, &other);
    assert_int_not_equal(finish(f, &other), ERR_OK);
    assert_int_equal(r->load.sections.count, 0);
}

int main(void) {
    sync_recorder_register();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_request_that_stalls_past_its_lease_writes_nothing_pitfall_20),
        TEST(a_lock_is_kept_while_the_ledger_is_slow_and_given_back_after_the_commit_pitfall_19),
        TEST(locks_are_given_back_however_it_ends_pitfall_19),
        TEST(a_wait_is_bounded_and_ends_as_a_refusal_pitfall_21),
        TEST(the_wait_is_for_all_seats_together),
        TEST(a_request_without_time_left_gets_free_locks_and_does_not_wait),
        TEST(requests_for_many_seats_never_deadlock_pitfall_24),
        TEST(a_lock_client_that_stops_refuses_its_waiters),
        TEST(an_adaptive_section_locks_while_it_is_calm_and_claims_when_it_is_hot),
        TEST(the_load_of_a_section_that_has_cooled_down_is_dropped),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
