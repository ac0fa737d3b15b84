/* The contract of queue and seats together: who is admitted when the seats run out. */
#include "seats_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "seats_steps.h"

static const struct queue_adapter *adapter;
static struct entry_change admitted[ADMIT_MAX];

/* One section of three seats. */
static int set_up(void **state) {
    seats_test_set_up(state, adapter);
    struct seats_test *h = *state;
    h->sections[0].capacity = 3;
    h->e.section_count = 1;
    seats_test_configure(h);
    return 0;
}

static void set_state(struct seats_test *h, enum event_state state) {
    h->e.state = state;
    seats_test_configure(h);
}

/* These users wait, one behind the other: they have entered while the event was paused. */
static void wait_in_line(struct seats_test *h, const char *const *users, uint64_t *seqs,
                         size_t count) {
    set_state(h, EVENT_PAUSED);
    for (size_t i = 0; i < count; i++) seqs[i] = step_take_kept(&h->s, KEY, users[i], T0);
    set_state(h, EVENT_OPEN);
    store_heard(&h->s, h->heard, 4096);
}

/* Ann holds seats by one reservation for each; then all are hers. */
static uint64_t hold_all(struct seats_test *h, uint64_t first_id, uint32_t count) {
    uint64_t ann = seats_test_admit(h, "ann");
    for (uint64_t id = first_id; id < first_id + count; id++) {
        assert_int_equal(claim_any(&h->s, id, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
        assert_true(step_settle_claim(&h->s, KEY, id, true));
    }
    assert_seats(&h->s, FLOOR, 0, count, 0);
    return ann;
}

static void admits(struct seats_test *h, int64_t now_ms, const uint64_t *seqs, size_t count) {
    assert_int_equal(step_admit_kept(&h->s, KEY, now_ms, admitted), count);
    for (size_t i = 0; i < count; i++) assert_int_equal(admitted[i].seq, seqs[i]);
    store_heard(&h->s, h->heard, 4096);
}

static const char *const line[] = {"bob", "cid", "dan", "eve"};
#define LINE (sizeof line / sizeof *line)

static void no_user_is_admitted_while_no_seat_is_available(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    hold_all(h, 1, 3);
    uint64_t late = step_take_kept(&h->s, KEY, "zoe", T0);
    assert_int_equal(step_look(&h->s, KEY, late, T0).status, ENTRY_WAITING);
    wait_in_line(h, line, seqs, LINE);
    admits(h, T0 + SECOND, NULL, 0);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    admits(h, T0 + 2 * SECOND, NULL, 0);
}

static void
before_the_seats_have_run_out_more_users_are_admitted_than_seats_are_left(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    uint64_t ann = seats_test_admit(h, "ann");
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 2).outcome, CLAIM_DONE);
    wait_in_line(h, line, seqs, LINE);
    admits(h, T0 + SECOND, seqs, LINE);
}

static void returned_seats_admit_in_order_one_user_for_each_seat(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    hold_all(h, 1, 3);
    wait_in_line(h, line, seqs, LINE);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED));
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_CANCELLED));
    admits(h, T0 + SECOND, seqs, 2);
    admits(h, T0 + 2 * SECOND, NULL, 0);
    /* Bob takes his, which changes nothing for those behind him; Cid leaves, so the next may come.
     */
    assert_int_equal(claim_any(&h->s, 4, "bob", seqs[0], FLOOR, 1).outcome, CLAIM_DONE);
    admits(h, T0 + 3 * SECOND, NULL, 0);
    assert_true(step_end(&h->s, KEY, seqs[1], ENTRY_LEFT));
    admits(h, T0 + 4 * SECOND, seqs + 2, 1);
    /* What a user claimed and gave back is offered to the next. */
    assert_false(step_settle_claim(&h->s, KEY, 4, false));
    admits(h, T0 + 5 * SECOND, seqs + 3, 1);
}

static void an_admission_that_the_ledger_refuses_leaves_its_seat_to_the_same_user(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    hold_all(h, 1, 3);
    wait_in_line(h, line, seqs, LINE);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED));
    assert_int_equal(step_admit(&h->s, KEY, T0 + SECOND, admitted), 1);
    step_settle_admit(&h->s, KEY, admitted[0].seq, false);
    admits(h, T0 + 2 * SECOND, seqs, 1);
    admits(h, T0 + 3 * SECOND, NULL, 0);
}

static void a_stay_that_ends_by_time_leaves_its_seat_to_the_next(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    hold_all(h, 1, 3);
    h->e.queue.active_ttl_s = 10;
    wait_in_line(h, line, seqs, LINE);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED));
    admits(h, T0 + SECOND, seqs, 1);
    admits(h, T0 + 10 * SECOND, NULL, 0);
    admits(h, T0 + 11 * SECOND, seqs + 1, 1);
}

static void seats_that_the_ledger_gave_use_the_offer_too(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    hold_all(h, 1, 3);
    wait_in_line(h, line, seqs, LINE);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED));
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_EXPIRED));
    admits(h, T0 + SECOND, seqs, 2);
    static const uint32_t seat = 1;
    struct live_reservation bobs = {.id = id_of(9),
                                    .section_key = FLOOR,
                                    .entry_seq = seqs[0],
                                    .status = RESERVATION_HELD,
                                    .expires_ms = T0 + HOLD_MS,
                                    .user = STR("bob"),
                                    .seats = &seat,
                                    .seat_count = 1};
    assert_int_equal(step_sync(&h->s, KEY, &bobs, FLOOR, NULL, 0), 1);
    assert_true(step_follow(&h->s, KEY, 3, RESERVATION_EXPIRED));
    admits(h, T0 + 2 * SECOND, seqs + 2, 1); /* two seats, and Cid has the offer of one */
}

static void more_seats_admit_as_far_as_they_reach(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    hold_all(h, 1, 3);
    wait_in_line(h, line, seqs, LINE);
    h->sections[1].capacity = 2;
    h->e.section_count = 2;
    seats_test_configure(h);
    admits(h, T0 + SECOND, seqs, 2);
    /* In one change: no moment without seats counts. */
    h->sections[0] = (struct section){.key = 41, .id = "X", .capacity = 90};
    h->e.section_count = 1;
    seats_test_configure(h);
    admits(h, T0 + 2 * SECOND, seqs + 2, 2);
}

static void a_change_of_all_sections_is_no_time_without_seats(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    h->sections[0] = (struct section){.key = 41, .id = "X", .capacity = 1};
    seats_test_configure(h);
    wait_in_line(h, line, seqs, LINE);
    admits(h, T0 + SECOND, seqs, LINE);
}

static void an_event_without_sections_admits_without_limit(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    h->e.section_count = 0;
    seats_test_configure(h);
    seats_test_admit(h, "ann");
    wait_in_line(h, line, seqs, LINE);
    admits(h, T0 + SECOND, seqs, LINE);
}

static void a_user_with_all_seats_that_one_may_have_takes_no_place(void **state) {
    struct seats_test *h = *state;
    h->e.max_per_user = 3;
    seats_test_configure(h);
    uint64_t ann = hold_all(h, 1, 3);
    struct entered again = step_enter(&h->s, KEY, STR("ann"), LANE_DEFAULT, T0);
    assert_int_equal(again.outcome, ENTER_THERE);
    assert_true(step_end(&h->s, KEY, ann, ENTRY_COMPLETED));
    again = step_enter(&h->s, KEY, STR("ann"), LANE_DEFAULT, T0);
    assert_int_equal(again.result, ERR_OK);
    assert_int_equal(again.outcome, ENTER_LIMIT);
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_EXPIRED));
    assert_int_equal(step_enter(&h->s, KEY, STR("ann"), LANE_DEFAULT, T0).outcome, ENTER_TAKEN);
}

static void an_enter_knows_how_many_stays_have_ended(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    seats_test_admit(h, "bob");
    assert_int_equal(step_enter(&h->s, KEY, STR("ann"), LANE_DEFAULT, T0).stays_ended, 0);
    assert_true(step_end(&h->s, KEY, ann, ENTRY_LEFT));
    assert_int_equal(step_enter(&h->s, KEY, STR("bob"), LANE_DEFAULT, T0).stays_ended, 1);
}

static void those_who_wait_lose_their_places_when_the_event_closes_by_itself(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    uint64_t ann = hold_all(h, 1, 3);
    wait_in_line(h, line, seqs, LINE);
    h->e.closes_at_ms = T0 + 5 * SECOND;
    seats_test_configure(h);
    admits(h, T0 + 5 * SECOND - 1, NULL, 0);
    assert_int_equal(step_look(&h->s, KEY, seqs[0], T0 + 5 * SECOND - 1).status, ENTRY_WAITING);
    assert_int_equal(step_enter(&h->s, KEY, STR("zoe"), LANE_DEFAULT, T0 + 5 * SECOND).outcome,
                     ENTER_CLOSED);
    assert_int_equal(step_admit(&h->s, KEY, T0 + 5 * SECOND, admitted), 0);
    size_t count = store_heard(&h->s, h->heard, 4096);
    assert_int_equal(count, LINE);
    for (size_t i = 0; i < LINE; i++) {
        assert_int_equal(h->heard[i].kind, HEARD_EXPIRED);
        assert_int_equal(step_look(&h->s, KEY, seqs[i], T0 + 5 * SECOND).status, ENTRY_EXPIRED);
    }
    /* Ann stays, and her holds can still be confirmed; she cannot hold more. */
    assert_int_equal(step_look(&h->s, KEY, ann, T0 + 5 * SECOND).status, ENTRY_ACTIVE);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
}

/* After a restart or a rebuild: two of the three seats are sold, and the third had been, too. */
static void after_a_recovery_returned_seats_still_admit_only_as_far_as_they_reach(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    h->e.version++;
    store_rebuild_begins(&h->s);
    step_restore_event(&h->s, &h->e);
    for (size_t i = 0; i < LINE; i++) {
        seqs[i] = i + 1;
        queues_restore(h->s.queues, &(struct ledger_entry){.event_key = KEY,
                                                           .seq = seqs[i],
                                                           .user = str_of(line[i]),
                                                           .lane = LANE_DEFAULT,
                                                           .status = ENTRY_WAITING,
                                                           .joined_ms = T0});
    }
    queues_recovered(h->s.queues, KEY, LINE + 1, T0);
    static const uint32_t sold[] = {1, 2};
    step_restore_reservation(&h->s, KEY,
                             &(struct live_reservation){.id = id_of(1),
                                                        .section_key = FLOOR,
                                                        .entry_seq = 99,
                                                        .status = RESERVATION_CONFIRMED,
                                                        .user = STR("ann"),
                                                        .seats = sold,
                                                        .seat_count = 2});
    seats_restore_ran_out(h->s.seats, KEY);
    seats_restore_ran_out(h->s.seats, OTHER); /* it was deleted */
    store_rebuild_ends(&h->s);
    assert_seats(&h->s, FLOOR, 1, 0, 2);
    admits(h, T0 + SECOND, seqs, 1);
    admits(h, T0 + 2 * SECOND, NULL, 0);
    h->sections[0].capacity = 5;
    seats_test_configure(h);
    admits(h, T0 + 3 * SECOND, seqs + 1, 2);
}

/* What those who wait are told of it, by a look and by an enter. */
static void has_stock(struct seats_test *h, bool expected) {
    assert_int_equal(step_has_stock(&h->s, KEY), expected);
    struct entered e = step_enter(&h->s, KEY, STR("eve"), LANE_DEFAULT, T0);
    assert_int_equal(e.outcome, ENTER_THERE);
    assert_int_equal(e.has_stock, expected);
}

static void a_seat_that_is_offered_is_no_stock_for_those_who_wait(void **state) {
    struct seats_test *h = *state;
    uint64_t seqs[LINE];
    uint64_t ann = seats_test_admit(h, "ann");
    assert_true(step_has_stock(&h->s, KEY));
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 2).outcome, CLAIM_DONE);
    assert_true(step_settle_claim(&h->s, KEY, 1, true));
    seats_test_admit(h, "zoe"); /* before the seats run out there are no offers */
    assert_true(step_has_stock(&h->s, KEY));
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
    assert_true(step_settle_claim(&h->s, KEY, 2, true));
    wait_in_line(h, line, seqs, LINE);
    has_stock(h, false);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED)); /* two seats */
    has_stock(h, true);
    admits(h, T0 + SECOND, seqs, 2);
    has_stock(h, false);
    assert_true(step_end(&h->s, KEY, seqs[1], ENTRY_LEFT));
    has_stock(h, true);
    admits(h, T0 + 2 * SECOND, seqs + 2, 1);
    has_stock(h, false);
    assert_true(step_follow(&h->s, KEY, 2, RESERVATION_EXPIRED));
    has_stock(h, true);
}

static void an_event_without_sections_has_stock(void **state) {
    struct seats_test *h = *state;
    h->e.section_count = 0;
    seats_test_configure(h);
    assert_true(step_has_stock(&h->s, KEY));
}

int seats_stock_suite_run(const struct queue_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, seats_test_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(no_user_is_admitted_while_no_seat_is_available),
        TEST(before_the_seats_have_run_out_more_users_are_admitted_than_seats_are_left),
        TEST(returned_seats_admit_in_order_one_user_for_each_seat),
        TEST(an_admission_that_the_ledger_refuses_leaves_its_seat_to_the_same_user),
        TEST(a_stay_that_ends_by_time_leaves_its_seat_to_the_next),
        TEST(seats_that_the_ledger_gave_use_the_offer_too),
        TEST(more_seats_admit_as_far_as_they_reach),
        TEST(a_change_of_all_sections_is_no_time_without_seats),
        TEST(after_a_recovery_returned_seats_still_admit_only_as_far_as_they_reach),
        TEST(an_event_without_sections_admits_without_limit),
        TEST(a_user_with_all_seats_that_one_may_have_takes_no_place),
        TEST(a_seat_that_is_offered_is_no_stock_for_those_who_wait),
        TEST(an_event_without_sections_has_stock),
        TEST(an_enter_knows_how_many_stays_have_ended),
        TEST(those_who_wait_lose_their_places_when_the_event_closes_by_itself),
    };
#undef TEST
    return cmocka_run_group_tests_name("seats and queue contract", tests, NULL, NULL);
}
