/* The contract of the events' seats: updates from the ledger, and changes by administrators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "seats_steps.h"

static const struct queue_adapter *adapter;

static int set_up(void **state) {
    return seats_test_set_up(state, adapter);
}

static void held(struct seats_test *h, uint64_t id, const char *user, uint64_t seq, uint32_t seat) {
    assert_int_equal(claim_named(&h->s, id, user, seq, FLOOR, &seat, 1).outcome, CLAIM_DONE);
    assert_true(step_settle_claim(&h->s, KEY, id, true));
}

static struct live_reservation row(uint64_t id, const char *user, int64_t section,
                                   const uint32_t *seats, size_t count,
                                   enum reservation_status status) {
    return (struct live_reservation){.id = id_of(id),
                                     .user = str_of(user),
                                     .section_key = section,
                                     .seats = seats,
                                     .seat_count = count,
                                     .status = status,
                                     .expires_ms = T0 + HOLD_MS};
}

/* ---- confirm, cancel, expire ---- */

static void a_reservation_is_confirmed_cancelled_or_expired_once(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    held(h, 1, "ann", ann, 10);
    held(h, 2, "ann", ann, 20);
    held(h, 3, "ann", ann, 30);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    assert_false(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    assert_seats(&h->s, FLOOR, 97, 2, 1);
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_CANCELLED));
    assert_false(step_follow(&h->s, KEY, 2, RESERVATION_CONFIRMED));
    assert_true(step_follow(&h->s, KEY, 3, RESERVATION_EXPIRED));
    assert_seats(&h->s, FLOOR, 99, 0, 1);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_seats(&h->s, FLOOR, 100, 0, 0);
}

static void an_expired_hold_leaves_its_seat_for_the_next_pitfall_23(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    for (uint64_t i = 1; i <= 50; i++) {
        held(h, i, "ann", ann, 10);
        uint64_t due[2];
        assert_int_equal(step_due(&h->s, KEY, T0 + HOLD_MS, due, 2), 1);
        assert_int_equal(due[0], i);
        assert_seats(&h->s, FLOOR, 99, 1, 0); /* until the ledger has ended it */
        assert_true(step_follow(&h->s, KEY, i, RESERVATION_EXPIRED));
        assert_seats(&h->s, FLOOR, 100, 0, 0);
    }
}

static void a_change_of_one_reservation_never_touches_another_pitfall_25(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    static const enum reservation_status all[] = {RESERVATION_CONFIRMED, RESERVATION_CANCELLED,
                                                  RESERVATION_EXPIRED};
    held(h, 1, "ann", ann, 10);
    step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED);
    held(h, 2, "bob", bob, 10);
    for (int i = 0; i < 3; i++) {
        assert_false(step_follow(&h->s, KEY, 1, all[i]));
        assert_false(step_follow(&h->s, KEY, 99, all[i]));
        assert_false(step_follow(&h->s, OTHER, 2, all[i]));
        assert_seats(&h->s, FLOOR, 99, 1, 0);
    }
    step_follow(&h->s, KEY, 2, RESERVATION_CONFIRMED);
    for (int i = 0; i < 3; i++) assert_false(step_follow(&h->s, KEY, 1, all[i]));
    assert_seats(&h->s, FLOOR, 99, 0, 1);
}

static void seats_return_once_whatever_ends_it_twice_pitfalls_27_and_29(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    static const enum reservation_status ends[][2] = {
        {RESERVATION_EXPIRED, RESERVATION_CANCELLED},
        {RESERVATION_CANCELLED, RESERVATION_EXPIRED},
        {RESERVATION_CANCELLED, RESERVATION_CANCELLED},
        {RESERVATION_EXPIRED, RESERVATION_EXPIRED},
    };
    for (uint64_t i = 0; i < 4; i++) {
        held(h, 10 + i, "ann", ann, 10);
        assert_true(step_follow(&h->s, KEY, 10 + i, ends[i][0]));
        held(h, 20 + i, "bob", bob, 10); /* the next holder, of the very same seat */
        assert_false(step_follow(&h->s, KEY, 10 + i, ends[i][1]));
        assert_seats(&h->s, FLOOR, 99, 1, 0);
        struct claim_info out;
        assert_int_equal(step_holds(&h->s, KEY, "bob", 0, &out, 1), 1);
        assert_true(step_follow(&h->s, KEY, 20 + i, RESERVATION_EXPIRED));
    }
}

static void expiry_never_ends_a_confirmed_reservation_pitfall_28(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t due[2];
    held(h, 1, "ann", ann, 10);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    assert_int_equal(step_due(&h->s, KEY, T0 + 10 * HOLD_MS, due, 2), 0);
    assert_false(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED));
    assert_seats(&h->s, FLOOR, 99, 0, 1);
}

/* The ledger decided in one order; the updates came in another. */
static void a_late_change_does_not_undo_a_newer_one(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    claim_any(&h->s, 1, "ann", ann, FLOOR, 1);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    assert_true(step_settle_claim(&h->s, KEY, 1, true));
    assert_seats(&h->s, FLOOR, 99, 0, 1);
    assert_true(step_settle_claim(&h->s, KEY, 1, false)); /* of the ledger's no: too late for it */
    assert_seats(&h->s, FLOOR, 99, 0, 1);
    claim_any(&h->s, 2, "ann", ann, FLOOR, 1);
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_CANCELLED));
    assert_false(step_settle_claim(&h->s, KEY, 2, true));
    held(h, 3, "ann", ann, 50);
    assert_true(step_follow(&h->s, KEY, 3, RESERVATION_CANCELLED)); /* before its confirmation */
    assert_false(step_follow(&h->s, KEY, 3, RESERVATION_CONFIRMED));
    assert_seats(&h->s, FLOOR, 99, 0, 1);
}

/* ---- due ---- */

static void holds_are_due_in_the_order_in_which_they_end_and_not_twice_at_once(void **state) {
    struct seats_test *h = *state;
    uint64_t due[8];
    h->e.max_per_user = 100;
    seats_test_configure(h);
    uint64_t ann = seats_test_admit(h, "ann");
    for (uint64_t i = 1; i <= 5; i++) {
        struct claim_request w = {
            .id = id_of(i), .user = STR("ann"), .entry_seq = ann, .section_key = FLOOR, .count = 1};
        step_claim(&h->s, KEY, &w, T0 + 10 - (int64_t)i);
        if (i != 3) step_settle_claim(&h->s, KEY, i, true);
    }
    int64_t over_ms = T0 + HOLD_MS + 10;
    assert_int_equal(step_due(&h->s, KEY, over_ms - 5, due, 8), 1);
    assert_int_equal(due[0], 5);
    assert_int_equal(step_due(&h->s, KEY, over_ms, due, 2), 2);
    assert_int_equal(due[0], 4); /* not 3: it is pending */
    assert_int_equal(due[1], 2);
    assert_int_equal(step_due(&h->s, KEY, over_ms, due, 8), 1);
    assert_int_equal(due[0], 1);
    assert_int_equal(step_due(&h->s, KEY, over_ms, due, 8), 0);
    /* Once the ledger has it, it is over all the same. */
    step_settle_claim(&h->s, KEY, 3, true);
    assert_int_equal(step_due(&h->s, KEY, over_ms, due, 8), 1);
    assert_int_equal(due[0], 3);
    /* The caller did nothing: the hold is reported again after a while. */
    assert_int_equal(step_due(&h->s, KEY, over_ms + DUE_AGAIN_MS - 6, due, 8), 0);
    assert_int_equal(step_due(&h->s, KEY, over_ms + DUE_AGAIN_MS - 5, due, 8), 1);
    assert_int_equal(due[0], 5);
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_EXPIRED));
    assert_int_equal(step_due(&h->s, KEY, over_ms + DUE_AGAIN_MS, due, 8), 3);
    unsigned told = 0; /* at the same time: in any order */
    for (size_t i = 0; i < 3; i++) told |= 1U << due[i];
    assert_int_equal(told, 1U << 1 | 1U << 3 | 1U << 4);
}

/* Most holds end long before their time; they must not delay the others. */
static void however_many_holds_end_early_the_others_are_due_in_time(void **state) {
    struct seats_test *h = *state;
    enum { MANY = 2000 };
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    uint64_t due[4];
    held(h, 1, "bob", bob, 99);
    for (uint64_t i = 2; i < MANY; i++) {
        held(h, i, "ann", ann, 10);
        assert_true(
            step_follow(&h->s, KEY, i, i % 2 == 0 ? RESERVATION_CANCELLED : RESERVATION_CONFIRMED));
        if (i % 2 == 1) assert_true(step_follow(&h->s, KEY, i, RESERVATION_CANCELLED));
    }
    assert_int_equal(step_due(&h->s, KEY, T0 + HOLD_MS, due, 4), 1);
    assert_int_equal(due[0], 1);
}

/* ---- as the ledger has it ---- */

static void a_hold_that_the_ledger_decided_counts_like_any_other(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t seats[] = {7, 8, 9};
    struct live_reservation r = row(1, "ann", BOXES, seats, 3, RESERVATION_HELD);
    uint64_t due[2];
    r.entry_seq = ann;
    assert_int_equal(step_sync(&h->s, KEY, &r, 0, NULL, 0), 1);
    assert_seats(&h->s, BOXES, 97, 3, 0);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, FLOOR, 2).outcome, CLAIM_LIMIT);
    step_sync(&h->s, KEY, &r, 0, NULL, 0); /* the same once more */
    assert_seats(&h->s, BOXES, 97, 3, 0);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, FLOOR, 2).outcome, CLAIM_LIMIT);
    struct claim_info out;
    assert_int_equal(step_holds(&h->s, KEY, "ann", ann, &out, 1), 1);
    assert_false(out.pending);
    assert_int_equal(out.seat_count, 3);
    assert_int_equal(step_due(&h->s, KEY, T0 + HOLD_MS, due, 2), 1);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    step_sync(&h->s, KEY, &r, 0, NULL, 0); /* late: it does not go back */
    assert_seats(&h->s, BOXES, 97, 0, 3);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_seats(&h->s, BOXES, 100, 0, 0);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, FLOOR, 4).outcome, CLAIM_DONE);
}

/* Divergence: in the ledger seat 10 belongs to dan, whom this store does not know. */
static void
the_holder_in_the_ledger_gets_the_seat_and_the_holder_in_the_hot_store_loses_it(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t both[] = {10, 11};
    claim_named(&h->s, 1, "ann", ann, FLOOR, both, 2);
    struct live_reservation r = row(2, "dan", FLOOR, both, 1, RESERVATION_CONFIRMED);
    assert_int_equal(step_sync(&h->s, KEY, &r, 0, NULL, 0), 1);
    assert_seats(&h->s, FLOOR, 98, 1, 1);
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, FLOOR, 3).outcome, CLAIM_DONE); /* 1 of 4 */
    assert_false(step_settle_claim(&h->s, KEY, 1, false)); /* as the ledger said */
    assert_seats(&h->s, FLOOR, 96, 3, 1);
    assert_int_equal(claim_named(&h->s, 4, "ann", ann, FLOOR, both, 1).outcome, CLAIM_TAKEN);
    /* A whole reservation may go that way. */
    r = row(5, "eve", FLOOR, both, 1, RESERVATION_HELD);
    step_sync(&h->s, KEY, &r, 0, NULL, 0);
    assert_false(step_follow(&h->s, KEY, 2, RESERVATION_CANCELLED));
    assert_seats(&h->s, FLOOR, 96, 4, 0);
}

static void a_seat_that_the_ledger_has_as_free_is_freed_but_not_what_is_pending(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t seats[] = {10, 11, 12, 13};
    held(h, 1, "ann", ann, 10);
    claim_named(&h->s, 2, "ann", ann, FLOOR, seats + 1, 1);
    assert_int_equal(step_sync(&h->s, KEY, NULL, FLOOR, seats, 4), 1);
    assert_seats(&h->s, FLOOR, 99, 1, 0);
    assert_false(step_follow(&h->s, KEY, 1,
                             RESERVATION_CONFIRMED)); /* a reservation without seats is removed */
    assert_true(step_settle_claim(&h->s, KEY, 2, true));
    /* The other seats of a reservation stay. */
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, FLOOR, 3).outcome, CLAIM_DONE);
    step_settle_claim(&h->s, KEY, 3, true);
    static const uint32_t one = 2;
    assert_int_equal(step_sync(&h->s, KEY, NULL, FLOOR, &one, 1), 1);
    assert_seats(&h->s, FLOOR, 97, 3, 0);
    assert_true(step_follow(&h->s, KEY, 3, RESERVATION_CANCELLED));
    assert_seats(&h->s, FLOOR, 99, 1, 0);
    assert_int_equal(step_sync(&h->s, KEY, NULL, FLOOR, &one, 1), 0);
    assert_int_equal(step_sync(&h->s, KEY, NULL, 99, &one, 1), 0);
}

/* ---- configurations ---- */

static void
a_new_configuration_keeps_taken_seats_and_an_older_one_is_ignored_pitfall_31(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    held(h, 1, "ann", ann, 10);
    claim_any(&h->s, 2, "ann", ann, FLOOR, 1);
    seats_test_configure(h);
    assert_seats(&h->s, FLOOR, 98, 2, 0);
    struct event stale = h->e;
    struct section other = {.key = 50, .capacity = 5};
    stale.sections = &other;
    stale.section_count = 1;
    stale.max_per_user = 1;
    step_configure(&h->s, &stale); /* the same version */
    assert_seats(&h->s, FLOOR, 98, 2, 0);
    assert_int_equal(step_section(&h->s, KEY, 50).capacity, 0);
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, FLOOR, 2).outcome, CLAIM_DONE);
}

static void a_section_grows_shrinks_when_it_can_comes_and_goes(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t last = 100;
    h->sections[0].capacity = 120;
    seats_test_configure(h);
    assert_seats(&h->s, FLOOR, 120, 0, 0);
    claim_named(&h->s, 1, "ann", ann, FLOOR, &last, 1);
    h->sections[0].capacity = 90; /* seat 100 is pending: the ledger will refuse it */
    h->sections[3] = (struct section){.key = 34, .id = "D", .capacity = 3};
    h->e.section_count = 4;
    seats_test_configure(h);
    assert_seats(&h->s, 34, 3, 0, 0);
    assert_int_equal(step_section(&h->s, KEY, FLOOR).seats.held, 1);
    step_settle_claim(&h->s, KEY, 1, false);
    assert_seats(&h->s, FLOOR, 90, 0, 0);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, 34, 1).outcome, CLAIM_DONE);
    assert_int_equal(step_totals(&h->s, KEY).available, 90 + 100 + 100 + 2);
    h->e.section_count = 3; /* D is removed with its pending claims */
    seats_test_configure(h);
    assert_int_equal(step_section(&h->s, KEY, 34).capacity, 0);
    assert_int_equal(step_totals(&h->s, KEY).available, 290);
    assert_int_equal(step_totals(&h->s, KEY).held, 0);
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, 34, 1).outcome, CLAIM_NO_SECTION);
    assert_false(step_settle_claim(&h->s, KEY, 2, false));
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, FLOOR, 4).outcome, CLAIM_DONE);
    assert_int_equal(step_totals(&h->s, KEY).available, 286);
}

static void a_section_that_comes_back_has_what_was_taken_in_it(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    held(h, 1, "ann", ann, 10);
    h->e.section_count = 0;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, FLOOR, 1).outcome, CLAIM_NO_SECTION);
    assert_int_equal(step_totals(&h->s, KEY).held, 0);
    h->e.section_count = 3;
    h->sections[0].capacity = 50;
    seats_test_configure(h);
    assert_seats(&h->s, FLOOR, 49, 1, 0);
    assert_seats(&h->s, BALCONY, 100, 0, 0);
    assert_int_equal(step_totals(&h->s, KEY).available, 249);
    static const uint32_t seat = 10;
    assert_int_equal(claim_named(&h->s, 2, "ann", ann, FLOOR, &seat, 1).outcome, CLAIM_TAKEN);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_seats(&h->s, FLOOR, 50, 0, 0);
}

static void events_have_their_own_seats_and_limits(void **state) {
    struct seats_test *h = *state;
    struct event other = h->e;
    other.key = OTHER;
    step_configure(&h->s, &other);
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t there = step_take_kept(&h->s, OTHER, "ann", T0);
    struct claim_request w = {
        .id = id_of(1), .user = STR("ann"), .entry_seq = there, .section_key = FLOOR, .count = 4};
    assert_int_equal(step_claim(&h->s, OTHER, &w, T0).outcome, CLAIM_DONE);
    assert_seats(&h->s, FLOOR, 100, 0, 0);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 4).outcome, CLAIM_DONE);
    step_remove(&h->s, OTHER, other.version + 1);
    assert_seats(&h->s, FLOOR, 96, 4, 0);
    step_configure(&h->s, &other); /* an older version */
    assert_int_equal(step_section(&h->s, OTHER, FLOOR).seats.available, 0);
    other.version += 2;
    step_configure(&h->s, &other);
    assert_int_equal(step_section(&h->s, OTHER, FLOOR).seats.available, 100);
}

static void on_holds(struct holds_op *op) {
    op->max = 1;
}

static void on_rendered(struct render_op *op) {
    op->max = 1;
}

static void operations_on_an_unknown_event_report_it(void **state) {
    struct seats_test *h = *state;
    struct claim_request w = {
        .id = id_of(1), .user = STR("ann"), .entry_seq = 1, .section_key = FLOOR, .count = 1};
    uint64_t due[1];
    char map[2];
    size_t count;
    assert_int_equal(step_claim(&h->s, OTHER, &w, T0).result, ERR_EVENT_NOT_FOUND);
    assert_false(step_settle_claim(&h->s, OTHER, 1, true));
    assert_false(step_follow(&h->s, OTHER, 1, RESERVATION_CANCELLED));
    assert_int_equal(step_due(&h->s, OTHER, T0, due, 1), 0);
    assert_int_equal(step_render(&h->s, OTHER, FLOOR, 1, map, 1, &count), ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_section(&h->s, OTHER, FLOOR).capacity, 0);
    static const uint32_t seat = 1;
    struct live_reservation r = row(1, "ann", FLOOR, &seat, 1, RESERVATION_HELD);
    assert_int_equal(step_sync(&h->s, OTHER, &r, FLOOR, &seat, 1), 0);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 0);
    /* `done` is called all the same, once. */
    struct holds_op holds = {.op = {.event_key = OTHER}, .user = STR("ann"), .done = on_holds};
    struct render_op render = {.op = {.event_key = OTHER}, .done = on_rendered};
    if (adapter->run_callbacks != NULL) return;
    seats_holds(h->s.seats, &holds);
    seats_render(h->s.seats, &render);
    assert_true(holds.max == 1 && render.max == 1);
    assert_int_equal(holds.op.result, ERR_EVENT_NOT_FOUND);
}

/* ---- recovery ---- */

static void a_start_loads_the_state_of_the_ledger_pitfall_31(void **state) {
    struct seats_test *h = *state;
    static const uint32_t seats[] = {1, 2, 3, 99, 100};
    struct live_reservation big = row(1, "ann", FLOOR, seats, 5, RESERVATION_CONFIRMED);
    struct live_reservation hold = row(2, "bob", BALCONY, seats, 2, RESERVATION_HELD);
    uint64_t due[2];
    h->e.max_per_user = 6;
    seats_test_configure(h);
    store_rebuild_begins(&h->s);
    step_restore_event(&h->s, &h->e);
    step_restore_reservation(&h->s, KEY, &big);
    step_restore_reservation(&h->s, KEY, &hold);
    step_restore_reservation(&h->s, OTHER, &hold); /* of an event that was deleted */
    store_rebuild_ends(&h->s);
    assert_seats(&h->s, FLOOR, 95, 0, 5);
    assert_seats(&h->s, BALCONY, 98, 2, 0);
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, FLOOR, 2).outcome, CLAIM_LIMIT);
    assert_int_equal(claim_any(&h->s, 3, "bob", bob, FLOOR, 5).outcome, CLAIM_LIMIT);
    struct claimed c = claim_any(&h->s, 3, "bob", bob, FLOOR, 3);
    assert_int_equal(c.outcome, CLAIM_DONE);
    assert_int_equal(c.seats[0], 4); /* the first that is free */
    assert_int_equal(step_due(&h->s, KEY, T0 + HOLD_MS, due, 2), 1);
    assert_int_equal(due[0], 2);
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_EXPIRED));
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_seats(&h->s, FLOOR, 97, 3, 0);
    assert_seats(&h->s, BALCONY, 100, 0, 0);
}

int seats_ledger_suite_run(const struct queue_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, seats_test_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_reservation_is_confirmed_cancelled_or_expired_once),
        TEST(an_expired_hold_leaves_its_seat_for_the_next_pitfall_23),
        TEST(a_change_of_one_reservation_never_touches_another_pitfall_25),
        TEST(seats_return_once_whatever_ends_it_twice_pitfalls_27_and_29),
        TEST(expiry_never_ends_a_confirmed_reservation_pitfall_28),
        TEST(a_late_change_does_not_undo_a_newer_one),
        TEST(holds_are_due_in_the_order_in_which_they_end_and_not_twice_at_once),
        TEST(however_many_holds_end_early_the_others_are_due_in_time),
        TEST(a_hold_that_the_ledger_decided_counts_like_any_other),
        TEST(the_holder_in_the_ledger_gets_the_seat_and_the_holder_in_the_hot_store_loses_it),
        TEST(a_seat_that_the_ledger_has_as_free_is_freed_but_not_what_is_pending),
        TEST(a_new_configuration_keeps_taken_seats_and_an_older_one_is_ignored_pitfall_31),
        TEST(a_section_grows_shrinks_when_it_can_comes_and_goes),
        TEST(a_section_that_comes_back_has_what_was_taken_in_it),
        TEST(events_have_their_own_seats_and_limits),
        TEST(operations_on_an_unknown_event_report_it),
        TEST(a_start_loads_the_state_of_the_ledger_pitfall_31),
    };
#undef TEST
    return cmocka_run_group_tests_name("seats contract: the ledger", tests, NULL, NULL);
}
