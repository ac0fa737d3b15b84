/* Reservations when something fails: the ledger, the update of the hot store, a row in the file;
 * and reservations that expire. After every test both stores agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "seats_fixture.h"
#include "service/hold_expiry.h"
#include "service/leave.h"
#include "sync_recorder.h"
#include "wall_clock.h"

static void disk_fails(bool fails) {
    sync_fail_syncs(fails ? SQLITE_IOERR_FSYNC : 0);
}

/* The fixture's lock_client has nothing to look after: no lock was kept. */
static void assert_idle(struct seats_fixture *s) {
    assert_false(ticker_runs(&s->fixture.lock_client.ticker));
}

/* ---- the ledger fails ---- */

static void assert_nothing_held(struct seats_fixture *s, enum strategy strategy, int64_t trace) {
    assert_string_equal(fixture_map(&s->fixture, seats_fixture_section_of(strategy)), FIXTURE_FREE);
    assert_int_equal(fixture_holds(&s->fixture, "ann", NULL, 0), 0);
    assert_int_equal(seats_fixture_trace(s), trace);
    assert_idle(s);
}

static void a_hold_that_the_disk_did_not_take_is_undone(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy) {
        int64_t trace = seats_fixture_trace(s);
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, FIXTURE_PER_USER);
        disk_fails(true);
        assert_int_equal(seats_fixture_hold(s, w), ERR_LEDGER_FAILED);
        assert_nothing_held(s, strategy, trace);
        disk_fails(false);
        struct uuid id = seats_fixture_held(s, w); /* nothing of it counts for the limit */
        fixture_assert_agreement(&s->fixture);
        assert_int_equal(fixture_cancel(&s->fixture, &id, "ann", NULL), ERR_OK);
    }
}

static void a_hold_is_undone_whichever_record_or_question_fails(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    seats_fixture_make_faulty(s);
    FOR_EACH_STRATEGY(strategy) {
        int64_t trace = seats_fixture_trace(s);
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 2);
        s->faulty.fails = 1;
        assert_int_equal(seats_fixture_hold(s, w), ERR_LEDGER_FAILED);
        assert_nothing_held(s, strategy, trace);
        s->faulty.is_full = true;
        assert_int_equal(seats_fixture_hold(s, w), ERR_OVERLOADED);
        s->faulty.is_full = false;
        assert_nothing_held(s, strategy, trace);
    }
    int64_t trace = seats_fixture_trace(s);
    s->faulty.asks_fail = 1; /* the read of the versions */
    assert_int_equal(seats_fixture_hold(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 2)),
                     ERR_LEDGER_FAILED);
    assert_nothing_held(s, STRATEGY_OPTIMISTIC, trace);
}

static void synced(struct seat_sync_op *y) {
    assert_int_equal(y->changed, 1);
}

/* Bob's seat 1 is free for the hot store: to put that right two questions are asked. */
static void a_claim_is_undone_when_the_stores_can_not_be_brought_together(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    seats_fixture_held(s, seats_fixture_named(STRATEGY_SLOT, "bob", bob, SEATS(1)));
    struct event *e = fixture_event(&s->fixture);
    struct seat_sync_op y = {.op.event_key = s->fixture.key,
                             .section_key = e->sections[FIXTURE_SLOT].key,
                             .available = SEATS(1),
                             .available_count = 1,
                             .done = synced};
    seats_sync(memory_seats(s->fixture.hot), &y);
    mem_free(e);
    seats_fixture_make_faulty(s);
    struct hold_spec w = seats_fixture_named(STRATEGY_SLOT, "ann", ann, SEATS(1));
    s->faulty.asks_fail = 1;
    assert_int_equal(seats_fixture_hold(s, w), ERR_LEDGER_FAILED);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), FIXTURE_FREE);
    assert_int_equal(seats_fixture_hold(s, w), ERR_SEAT_TAKEN); /* the next one puts it right */
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), "HAAAAA");
}

static void what_the_ledger_did_not_decide_is_not_changed(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct uuid id = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid other =
        seats_fixture_held(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 1));
    int64_t trace = seats_fixture_trace(s);
    disk_fails(true);
    assert_int_equal(fixture_confirm(&s->fixture, &id, "ann", NULL), ERR_LEDGER_FAILED);
    assert_int_equal(fixture_cancel(&s->fixture, &id, "ann", NULL), ERR_LEDGER_FAILED);
    assert_int_equal(fixture_leave(&s->fixture, ann), ERR_LEDGER_FAILED);
    disk_fails(false);
    fixture_wait_writable(&s->fixture);
    seats_fixture_make_faulty(s);
    s->faulty.asks_fail = 2;
    assert_int_equal(fixture_confirm(&s->fixture, &id, "ann", NULL), ERR_LEDGER_FAILED);
    assert_int_equal(fixture_cancel(&s->fixture, &id, "ann", NULL), ERR_LEDGER_FAILED);
    s->faulty.is_full = true;
    assert_int_equal(fixture_confirm(&s->fixture, &id, "ann", NULL), ERR_OVERLOADED);
    assert_int_equal(fixture_cancel(&s->fixture, &id, "ann", NULL), ERR_OVERLOADED);
    assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OVERLOADED);
    s->faulty.is_full = false;
    assert_int_equal(seats_fixture_trace(s), trace);
    fixture_assert_agreement(&s->fixture);
    assert_int_equal(fixture_place(&s->fixture, ann, clock_wall_ms()).status, ENTRY_ACTIVE);
    assert_int_equal(fixture_confirm(&s->fixture, &id, "ann", NULL), ERR_OK);
    assert_int_equal(fixture_cancel(&s->fixture, &other, "ann", NULL), ERR_OK);
}

/* ---- requests with one key, of which the first fails ---- */

static void the_twin_of_a_request_that_failed_gets_the_seats(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    seats_fixture_make_faulty(s);
    FOR_EACH_STRATEGY(strategy) {
        char key[16];
        snprintf(key, sizeof key, "key %d", (int)strategy);
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 2);
        w.key = key;
        struct fixture_hold twins[2];
        s->faulty.fails = 1;
        for (int i = 0; i < 2; i++) {
            fixture_hold_prepare(&s->fixture, &twins[i], &w);
            fixture_hold_start(&s->fixture, &s->fixture.lock_client, &twins[i]);
        }
        int failed = 0;
        for (int i = 0; i < 2; i++) {
            harness_wait(&s->fixture.h, fixture_hold_is_back, &twins[i]);
            failed += twins[i].result == ERR_LEDGER_FAILED;
        }
        assert_int_equal(failed, 1);
        fixture_wait_idle(&s->fixture);
        fixture_assert_agreement(&s->fixture);
        fixture_assert_seats(&s->fixture, w.section, 2, 0);
        for (int i = 0; i < 2; i++) {
            if (twins[i].result == ERR_OK)
                assert_int_equal(
                    fixture_cancel(&s->fixture, &twins[i].hold.reservation.id, "ann", NULL),
                    ERR_OK);
            fixture_hold_end(&twins[i]);
        }
    }
}

/* The first is undone, the second's record is on its way, and a third claims the same seats under
 * another id. */
static void of_three_requests_with_one_key_the_second_is_everybodys_answer(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    seats_fixture_make_faulty(s);
    for (enum strategy strategy = STRATEGY_SLOT; strategy <= STRATEGY_LOCK; strategy++) {
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 2);
        struct fixture_hold x[3];
        w.key = strategy == STRATEGY_SLOT ? "slot" : "lock";
        s->faulty.fails = 1;
        sync_gate_close();
        for (int i = 0; i < 3; i++) {
            fixture_hold_prepare(&s->fixture, &x[i], &w);
            fixture_hold_start(&s->fixture, &s->fixture.lock_client, &x[i]);
            if (i == 1) harness_wait(&s->fixture.h, fixture_hold_is_back, &x[0]);
        }
        assert_int_equal(x[0].result, ERR_LEDGER_FAILED);
        sync_gate_open();
        for (int i = 1; i < 3; i++) harness_wait(&s->fixture.h, fixture_hold_is_back, &x[i]);
        assert_int_equal(x[1].result, ERR_OK);
        assert_false(x[1].idempotency.replayed);
        assert_true(fixture_hold_replays(&x[2], &x[1].hold.reservation.id));
        fixture_assert_seats(&s->fixture, w.section, 2, 0);
        fixture_assert_agreement(&s->fixture);
        for (int i = 0; i < 3; i++) fixture_hold_end(&x[i]);
    }
}

static void leave_with_a_twin_undone(struct seats_fixture *s, bool is_late) {
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    seats_fixture_make_faulty(s);
    s->faulty.is_late = is_late;
    struct hold_spec w = seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1);
    w.key = "key";
    struct fixture_hold twins[2];
    s->faulty.fails = 1;
    for (int i = 0; i < 2; i++) {
        fixture_hold_prepare(&s->fixture, &twins[i], &w);
        fixture_hold_start(&s->fixture, &s->fixture.lock_client, &twins[i]);
    }
    assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OK); /* behind the second's record */
    for (int i = 0; i < 2; i++) {
        harness_wait(&s->fixture.h, fixture_hold_is_back, &twins[i]);
        fixture_hold_end(&twins[i]);
    }
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 0, 0);
}

static void a_request_whose_twin_was_undone_has_left_nothing_when_its_user_leaves(void **state) {
    leave_with_a_twin_undone(*state, false);
}

/* The ledger had it as HELD when it was asked, and as CANCELLED when the answer came. */
static void nor_if_its_user_left_while_the_ledger_was_asked(void **state) {
    leave_with_a_twin_undone(*state, true);
}

/* ---- leaving ---- */

static void leaving_releases_holds_and_keeps_purchases(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct uuid bought = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    seats_fixture_held(s, seats_fixture_any(STRATEGY_LOCK, "ann", ann, 1));
    seats_fixture_held(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 1));
    assert_int_equal(fixture_confirm(&s->fixture, &bought, "ann", NULL), ERR_OK);
    assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OK);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 0, 1);
    fixture_assert_seats(&s->fixture, FIXTURE_LOCK, 0, 0);
    fixture_assert_seats(&s->fixture, FIXTURE_SEAT, 0, 0);
    assert_int_equal(seats_fixture_rows(s, "CANCELLED"), 2);
    int64_t trace = seats_fixture_trace(s);
    assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OK);
    assert_int_equal(fixture_leave(&s->fixture, 99), ERR_OK); /* an unknown place */
    assert_int_equal(seats_fixture_trace(s), trace);
}

/* More than a first look has room for. */
static void leaving_releases_any_number_of_holds(void **state) {
    struct seats_fixture *s = *state;
    struct event *e = fixture_event(&s->fixture);
    e->max_per_user = 60;
    e->sections[FIXTURE_SLOT].capacity = 60;
    assert_int_equal(fixture_put(&s->fixture, e), ERR_OK);
    mem_free(e);
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    for (int i = 0; i < 60; i++)
        seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OK);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 0, 0);
}

struct departure {
    struct place_leave l;
    struct arena arena;
    enum err result;
    bool back;
};

static void on_left(struct place_leave *l, enum err result) {
    struct departure *d = CONTAINER_OF(l, struct departure, l);
    d->result = result;
    d->back = true;
}

static bool has_left(void *departure) {
    return ((struct departure *)departure)->back;
}

/* The hold is on its way to the disk when its user leaves: whatever it is answered, nothing of it
 * is left. */
static void leaving_during_a_hold_releases_that_hold_too(void **state) {
    struct seats_fixture *s = *state;
    FOR_EACH_STRATEGY(strategy) {
        if (strategy == STRATEGY_OPTIMISTIC) continue; /* reads first: its write comes too late */
        uint64_t ann = fixture_admit(&s->fixture, "ann");
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 2);
        struct fixture_hold x;
        struct departure d = {.l = {.event_key = s->fixture.key, .seq = ann, .done = on_left}};
        d.l.arena = &d.arena;
        sync_gate_close();
        fixture_hold_prepare(&s->fixture, &x, &w);
        fixture_hold_start(&s->fixture, &s->fixture.lock_client, &x);
        raw_wait_for_sync(&s->fixture.h);
        leave_place(&s->fixture.reservations, &d.l);
        sync_gate_open();
        harness_wait(&s->fixture.h, fixture_hold_is_back, &x);
        harness_wait(&s->fixture.h, has_left, &d);
        assert_int_equal(d.result, ERR_OK);
        fixture_assert_seats(&s->fixture, w.section, 0, 0);
        fixture_assert_agreement(&s->fixture);
        fixture_hold_end(&x);
        arena_reset(&d.arena);
    }
}

/* ---- expiry ---- */

#define MANY 70 /* more than one record expires */

static void holds_end_at_their_time_once_pitfalls_22_23(void **state) {
    struct seats_fixture *s = *state;
    struct event *e = fixture_event(&s->fixture);
    e->sections[FIXTURE_SLOT].capacity = MANY;
    e->max_per_user = MANY;
    assert_int_equal(fixture_put(&s->fixture, e), ERR_OK);
    mem_free(e);
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    for (int i = 0; i < MANY; i++)
        seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    uint64_t expiries = counter_total(COUNT_RESERVATION_EXPIRIES);
    wall_clock_advance(FIXTURE_HOLD_MS - 1);
    fixture_expire(&s->fixture);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, MANY, 0);
    wall_clock_advance(1);
    fixture_expire(&s->fixture);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 0, 0);
    assert_int_equal(seats_fixture_rows(s, "EXPIRED"), MANY);
    assert_int_equal(counter_total(COUNT_RESERVATION_EXPIRIES), expiries + MANY);
    int64_t trace = seats_fixture_trace(s);
    wall_clock_advance(FIXTURE_HOLD_MS);
    fixture_expire(&s->fixture);
    assert_int_equal(seats_fixture_trace(s), trace);
}

static void
a_confirmed_hold_does_not_expire_and_an_ended_one_is_not_confirmed_pitfalls_28_33(void **state) {
    struct seats_fixture *s = *state;
    FOR_EACH_STRATEGY(strategy) {
        uint64_t ann = fixture_admit(&s->fixture, "ann");
        uint64_t bob = fixture_admit(&s->fixture, "bob");
        struct uuid kept = seats_fixture_held(s, seats_fixture_any(strategy, "ann", ann, 1));
        struct uuid late = seats_fixture_held(s, seats_fixture_any(strategy, "bob", bob, 1));
        assert_int_equal(fixture_confirm(&s->fixture, &kept, "ann", NULL), ERR_OK);
        wall_clock_advance(FIXTURE_HOLD_MS);
        struct reservation *r;
        assert_int_equal(fixture_confirm(&s->fixture, &late, "bob", &r), ERR_HOLD_EXPIRED);
        assert_int_equal(r->status, RESERVATION_EXPIRED);
        mem_free(r);
        fixture_assert_seats(&s->fixture, seats_fixture_section_of(strategy), 0, 1);
        int64_t trace = seats_fixture_trace(s);
        assert_int_equal(fixture_confirm(&s->fixture, &late, "bob", NULL), ERR_HOLD_EXPIRED);
        assert_int_equal(fixture_cancel(&s->fixture, &late, "bob", NULL), ERR_HOLD_EXPIRED);
        fixture_expire(&s->fixture);
        assert_int_equal(seats_fixture_trace(s), trace);
        assert_int_equal(fixture_cancel(&s->fixture, &kept, "ann", NULL), ERR_OK);
    }
}

/* The seats of the next holder are not affected either. */
static void a_late_expiry_does_not_free_the_seats_of_the_next_holder_pitfall_29(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    struct uuid anns =
        seats_fixture_held(s, seats_fixture_named(STRATEGY_SLOT, "ann", ann, SEATS(1)));
    wall_clock_advance(FIXTURE_HOLD_MS);
    sync_gate_close();
    hold_expiry_tick(&s->fixture.reservations, s->fixture.key);
    raw_wait_for_sync(&s->fixture.h);
    sync_gate_open();
    assert_int_equal(fixture_cancel(&s->fixture, &anns, "ann", NULL), ERR_HOLD_EXPIRED);
    fixture_wait_idle(&s->fixture);
    seats_fixture_held(s, seats_fixture_named(STRATEGY_SLOT, "bob", bob, SEATS(1)));
    fixture_expire(&s->fixture);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 1, 0);
}

static void holds_that_the_ledger_could_not_end_end_when_it_can(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 2));
    seats_fixture_held(s, seats_fixture_any(STRATEGY_PESSIMISTIC, "ann", ann, 2));
    wall_clock_advance(FIXTURE_HOLD_MS);
    disk_fails(true);
    fixture_expire(&s->fixture);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 2, 0);
    fixture_assert_seats(&s->fixture, FIXTURE_SEAT, 2, 0);
    disk_fails(false);
    fixture_wait_writable(&s->fixture);
    wall_clock_advance(DUE_AGAIN_MS);
    fixture_expire(&s->fixture);
    fixture_assert_seats(&s->fixture, FIXTURE_SLOT, 0, 0);
    fixture_assert_seats(&s->fixture, FIXTURE_SEAT, 0, 0);
    assert_int_equal(seats_fixture_rows(s, "EXPIRED"), 2);
}

static void an_expiry_of_which_a_record_or_question_fails_is_tried_again(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct uuid id = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    seats_fixture_held(s, seats_fixture_any(STRATEGY_LOCK, "ann", ann, 1));
    struct test_record r;
    test_cancel(&r, &id, "ann", clock_wall_ms()); /* behind the service's back */
    assert_int_equal(harness_submit(&s->fixture.h, s->fixture.ledger, &r), ERR_OK);
    test_record_deinit(&r);
    seats_fixture_make_faulty(s);
    wall_clock_advance(FIXTURE_HOLD_MS);
    s->faulty.is_full = true;
    fixture_expire(&s->fixture);
    s->faulty.is_full = false;
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_LOCK), "HAAAAA");
    wall_clock_advance(DUE_AGAIN_MS);
    s->faulty.asks_fail = 1;
    fixture_expire(&s->fixture);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_LOCK), FIXTURE_FREE);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT),
                        "HAAAAA"); /* it did not get that update */
    wall_clock_advance(DUE_AGAIN_MS);
    fixture_expire(&s->fixture);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), FIXTURE_FREE);
}

/* Decisions of the ledger whose update of the hot store was lost. */
static void a_hold_whose_change_was_lost_becomes_what_the_ledger_has(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct uuid ids[3];
    for (int i = 0; i < 3; i++)
        ids[i] = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    struct test_record records[3];
    bool expired = false;
    test_cancel(&records[0], &ids[0], "ann", clock_wall_ms());
    test_confirm(&records[1], &ids[1], "ann", clock_wall_ms());
    wall_clock_advance(FIXTURE_HOLD_MS);
    test_expire(&records[2], &ids[2], 1, &expired, clock_wall_ms());
    for (int i = 0; i < 3; i++) {
        assert_int_equal(harness_submit(&s->fixture.h, s->fixture.ledger, &records[i]), ERR_OK);
        test_record_deinit(&records[i]);
    }
    assert_true(expired);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), "HHHAAA");
    int64_t trace = seats_fixture_trace(s);
    fixture_expire(&s->fixture);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), "ACAAAA");
    assert_int_equal(seats_fixture_trace(s), trace);
}

static void a_row_that_is_spoilt_does_not_keep_the_others_from_expiring(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    for (int i = 0; i < 3; i++)
        seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    raw_sql_unruly(&s->fixture.h, "UPDATE reservations SET seats = '2,x' WHERE seats = '2'");
    wall_clock_advance(FIXTURE_HOLD_MS);
    fixture_expire(&s->fixture);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), "AHAAAA");
    assert_int_equal(seats_fixture_rows(s, "EXPIRED"), 2);
    raw_sql_unruly(&s->fixture.h, "UPDATE reservations SET seats = '2' WHERE seats = '2,x'");
    wall_clock_advance(DUE_AGAIN_MS);
    fixture_expire(&s->fixture);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), FIXTURE_FREE);
    assert_int_equal(seats_fixture_rows(s, "EXPIRED"), 3);
}

int main(void) {
    sync_recorder_register();
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, seats_fixture_set_up, seats_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_hold_that_the_disk_did_not_take_is_undone),
        TEST(a_hold_is_undone_whichever_record_or_question_fails),
        TEST(a_claim_is_undone_when_the_stores_can_not_be_brought_together),
        TEST(what_the_ledger_did_not_decide_is_not_changed),
        TEST(the_twin_of_a_request_that_failed_gets_the_seats),
        TEST(of_three_requests_with_one_key_the_second_is_everybodys_answer),
        TEST(a_request_whose_twin_was_undone_has_left_nothing_when_its_user_leaves),
        TEST(nor_if_its_user_left_while_the_ledger_was_asked),
        TEST(leaving_releases_holds_and_keeps_purchases),
        TEST(leaving_releases_any_number_of_holds),
        TEST(leaving_during_a_hold_releases_that_hold_too),
        TEST(holds_end_at_their_time_once_pitfalls_22_23),
        TEST(a_confirmed_hold_does_not_expire_and_an_ended_one_is_not_confirmed_pitfalls_28_33),
        TEST(a_late_expiry_does_not_free_the_seats_of_the_next_holder_pitfall_29),
        TEST(holds_that_the_ledger_could_not_end_end_when_it_can),
        TEST(an_expiry_of_which_a_record_or_question_fails_is_tried_again),
        TEST(a_hold_whose_change_was_lost_becomes_what_the_ledger_has),
        TEST(a_row_that_is_spoilt_does_not_keep_the_others_from_expiring),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
