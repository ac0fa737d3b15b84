/* The contract of the events' seats: claiming, one step at a time. */
#include "seats_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "seats_steps.h"
#include "splitmix.h"

static const struct queue_adapter *adapter;

static int set_up(void **state) {
    return seats_test_set_up(state, adapter);
}

static void set_limit(struct seats_test *h, int64_t max_per_user) {
    h->e.max_per_user = max_per_user;
    seats_test_configure(h);
}

/* ---- seats ---- */

static void any_seats_are_adjacent_pending_and_counted(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    struct claimed c = claim_any(&h->s, 1, "ann", ann, FLOOR, 3);
    assert_int_equal(c.result, ERR_OK);
    assert_int_equal(c.outcome, CLAIM_DONE);
    assert_int_equal(c.count, 3);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(c.seats[i], i + 1);
    assert_int_equal(number_of(&c.r.id), 1);
    assert_int_equal(c.r.entry_seq, ann);
    assert_int_equal(c.r.section_key, FLOOR);
    assert_int_equal(c.r.seat_count, 3);
    assert_int_equal(c.r.status, RESERVATION_HELD);
    assert_true(c.r.pending);
    assert_seats(&h->s, FLOOR, 97, 3, 0);
    assert_seats(&h->s, BALCONY, 100, 0, 0);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 1);
    assert_int_equal(h->heard[0].kind, HEARD_CLAIM);
    assert_int_equal(h->heard[0].entry.seq, 1);
    assert_true(step_settle_claim(&h->s, KEY, 1, true));
    assert_seats(&h->s, FLOOR, 97, 3, 0);
}

static void a_hold_lasts_for_seconds_not_milliseconds_pitfall_22(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t due[4];
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).r.expires_ms, T0 + 300000);
    step_settle_claim(&h->s, KEY, 1, true);
    assert_int_equal(step_due(&h->s, KEY, T0 + 299999, due, 4), 0);
    assert_int_equal(step_due(&h->s, KEY, T0 + 300000, due, 4), 1);
    assert_int_equal(due[0], 1);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 1);
    assert_int_equal(h->heard[0].entry.expires_ms, T0 + 300000); /* the ledger gets the same time */
}

static void
named_seats_are_taken_all_or_none_and_the_refusal_names_the_taken_ones_pitfall_24(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    static const uint32_t first[] = {20, 5};
    static const uint32_t second[] = {6, 20, 21, 5};
    struct claimed c = claim_named(&h->s, 1, "ann", ann, FLOOR, first, 2);
    assert_int_equal(c.outcome, CLAIM_DONE);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.seats[0], 20);
    assert_int_equal(c.seats[1], 5);
    store_heard(&h->s, h->heard, 16);
    c = claim_named(&h->s, 2, "bob", bob, FLOOR, second, 4);
    assert_int_equal(c.outcome, CLAIM_TAKEN);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.seats[0], 20);
    assert_int_equal(c.seats[1], 5);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 0);
    assert_seats(&h->s, FLOOR, 98, 2, 0);
    char map[16];
    size_t count;
    assert_int_equal(step_render(&h->s, KEY, FLOOR, 4, map, 15, &count), ERR_OK);
    assert_int_equal(count, 15);
    assert_string_equal(map, "AHAAAAAAAAAAAAA");
}

static void groups_get_all_their_seats_or_none_pitfall_24(void **state) {
    struct seats_test *h = *state;
    set_limit(h, 1000);
    for (uint64_t i = 1; i <= 5; i++) {
        char user[2] = {(char)('a' + i), '\0'};
        struct claimed c = claim_any(&h->s, i, user, seats_test_admit(h, user), FLOOR, 30);
        assert_int_equal(c.outcome, i <= 3 ? CLAIM_DONE : CLAIM_NOT_ENOUGH);
        assert_int_equal(c.count, i <= 3 ? 30 : 0);
    }
    assert_seats(&h->s, FLOOR, 10, 90, 0);
}

static void the_last_seat_is_sold_and_then_it_is_sold_out_pitfall_30(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    set_limit(h, 1000);
    for (uint64_t i = 1; i <= 100; i++) {
        struct claimed c = claim_any(&h->s, i, "ann", ann, FLOOR, 1);
        assert_int_equal(c.outcome, CLAIM_DONE);
        assert_int_equal(c.seats[0], i);
        if (i == 99)
            assert_int_equal(claim_any(&h->s, 0, "ann", ann, FLOOR, 2).outcome, CLAIM_NOT_ENOUGH);
    }
    assert_int_equal(claim_any(&h->s, 101, "ann", ann, FLOOR, 1).outcome, CLAIM_SOLD_OUT);
    assert_int_equal(claim_any(&h->s, 102, "ann", ann, FLOOR, 3).outcome, CLAIM_SOLD_OUT);
    assert_seats(&h->s, FLOOR, 0, 100, 0);
    assert_true(step_settle_claim(&h->s, KEY, 50, true));
    assert_false(step_settle_claim(&h->s, KEY, 60, false));
    struct claimed c = claim_any(&h->s, 103, "ann", ann, FLOOR, 1);
    assert_int_equal(c.outcome, CLAIM_DONE);
    assert_int_equal(c.seats[0], 60);
}

static void enters_for(struct seats_test *h, const char *user, int64_t section,
                       enum enter_outcome outcome) {
    struct entered e = step_enter_for(&h->s, KEY, str_of(user), section);
    assert_int_equal(e.result, ERR_OK);
    assert_int_equal(e.outcome, outcome);
}

static void no_request_queues_for_a_section_whose_seats_are_all_confirmed(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    set_limit(h, 1000);
    for (uint64_t id = 1; id <= 25; id++) {
        assert_int_equal(claim_any(&h->s, id, "ann", ann, FLOOR, 4).outcome, CLAIM_DONE);
        assert_true(step_settle_claim(&h->s, KEY, id, true));
    }
    for (uint64_t id = 1; id < 25; id++)
        assert_true(step_follow(&h->s, KEY, id, RESERVATION_CONFIRMED));
    assert_seats(&h->s, FLOOR, 0, 4, 96);
    enters_for(h, "ben", FLOOR, ENTER_TAKEN); /* HELD seats may become free */
    assert_true(step_follow(&h->s, KEY, 25, RESERVATION_CONFIRMED));
    struct queue_counts before = step_counts(&h->s, KEY);
    enters_for(h, "cid", FLOOR, ENTER_SOLD);
    enters_for(h, "ann", FLOOR, ENTER_SOLD); /* a user with a place is not sent on to be refused */
    struct queue_counts after = step_counts(&h->s, KEY);
    assert_memory_equal(&before, &after, sizeof before);
    enters_for(h, "dan", BALCONY, ENTER_TAKEN);
    enters_for(h, "eve", 0, ENTER_TAKEN);
    struct section floor = h->sections[0];
    h->sections[0] = h->sections[--h->e.section_count]; /* the floor is taken out */
    seats_test_configure(h);
    enters_for(h, "fay", FLOOR,
               ENTER_TAKEN); /* so that the user learns that there is no such section */
    h->sections[h->e.section_count++] = floor;
    seats_test_configure(h);
    enters_for(h, "cid", FLOOR, ENTER_SOLD);
    assert_true(step_follow(&h->s, KEY, 7, RESERVATION_CANCELLED));
    enters_for(h, "cid", FLOOR, ENTER_TAKEN);
}

static void seats_named_twice_or_that_do_not_exist_are_refused_by_name(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t twice[] = {7, 8, 7};
    static const uint32_t none[] = {0, 100, 101};
    struct claimed c = claim_named(&h->s, 1, "ann", ann, FLOOR, twice, 3);
    assert_int_equal(c.outcome, CLAIM_SEATS_TWICE);
    assert_int_equal(c.count, 1);
    assert_int_equal(c.seats[0], 7);
    c = claim_named(&h->s, 1, "ann", ann, FLOOR, none, 3);
    assert_int_equal(c.outcome, CLAIM_NO_SUCH_SEAT);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.seats[0], 0);
    assert_int_equal(c.seats[1], 101);
    assert_seats(&h->s, FLOOR, 100, 0, 0);
}

static void each_section_states_why_it_sells_nothing(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    h->sections[0].status = SECTION_CLOSED;
    h->sections[1].status = SECTION_MAINTENANCE;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).outcome, CLAIM_SECTION_CLOSED);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, BALCONY, 1).outcome,
                     CLAIM_SECTION_MAINTENANCE);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, BOXES, 1).outcome, CLAIM_LEDGER_DECIDES);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, 99, 1).outcome, CLAIM_NO_SECTION);
    h->sections[0].status = SECTION_OPEN;
    h->sections[0].mode = SECTION_MODE_LOCK;
    h->sections[1].status = SECTION_OPEN;
    h->sections[1].mode = SECTION_MODE_ADAPTIVE;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, BALCONY, 1).outcome, CLAIM_DONE);
}

/* ---- where the ledger decides ---- */

static void have(struct seats_test *h, uint64_t id, const uint32_t *seats, size_t count) {
    struct live_reservation r = {.id = id_of(id),
                                 .user = STR("somebody"),
                                 .section_key = BOXES,
                                 .seats = seats,
                                 .seat_count = count,
                                 .status = RESERVATION_CONFIRMED,
                                 .expires_ms = T0 + HOLD_MS};
    assert_int_equal(step_sync(&h->s, KEY, &r, 0, NULL, 0), 1);
}

static void where_the_ledger_decides_seats_are_suggested_and_nothing_changes(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t taken[] = {1, 2, 6};
    have(h, 50, taken, 3);
    for (uint64_t i = 1; i <= 3; i++) { /* the same for all */
        struct claimed c = claim_any(&h->s, i, "ann", ann, BOXES, 3);
        assert_int_equal(c.result, ERR_OK);
        assert_int_equal(c.outcome, CLAIM_LEDGER_DECIDES);
        assert_int_equal(c.count, 3);
        for (uint32_t s = 0; s < 3; s++) assert_int_equal(c.seats[s], 3 + s); /* by the rule */
        assert_false(step_settle_claim(&h->s, KEY, i, true));
        assert_false(step_follow(&h->s, KEY, i, RESERVATION_CONFIRMED));
    }
    struct claim_info out;
    assert_int_equal(store_heard(&h->s, h->heard, 16), 0);
    assert_int_equal(step_holds(&h->s, KEY, "ann", 0, &out, 1), 0);
    assert_seats(&h->s, BOXES, 97, 0, 3);
    assert_int_equal(claim_any(&h->s, 4, "ann", ann, FLOOR, 4).outcome, CLAIM_DONE);
}

static void named_seats_are_the_ledgers_to_refuse_unless_they_are_none(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t taken[] = {7};
    static const uint32_t named[] = {20, 7, 3};
    static const uint32_t twice[] = {7, 8, 7};
    static const uint32_t none[] = {0, 100, 101};
    have(h, 50, taken, 1);
    struct claimed c = claim_named(&h->s, 1, "ann", ann, BOXES, named, 3);
    assert_int_equal(c.outcome, CLAIM_LEDGER_DECIDES);
    assert_int_equal(c.count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(c.seats[i], named[i]);
    c = claim_named(&h->s, 1, "ann", ann, BOXES, twice, 3);
    assert_int_equal(c.outcome, CLAIM_SEATS_TWICE);
    assert_int_equal(c.count, 1);
    assert_int_equal(c.seats[0], 7);
    c = claim_named(&h->s, 1, "ann", ann, BOXES, none, 3);
    assert_int_equal(c.outcome, CLAIM_NO_SUCH_SEAT);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.seats[0], 0);
    assert_int_equal(c.seats[1], 101);
    assert_seats(&h->s, BOXES, 99, 0, 1);
}

/* Also the last seat, and then none: it is not the ledger that has to say so. */
static void taken_seats_are_not_suggested_pitfall_30(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint32_t seats[100];
    for (uint32_t i = 0; i < 100; i++) seats[i] = i + 1;
    have(h, 50, seats, 99);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, BOXES, 2).outcome, CLAIM_NOT_ENOUGH);
    struct claimed c = claim_any(&h->s, 1, "ann", ann, BOXES, 1);
    assert_int_equal(c.outcome, CLAIM_LEDGER_DECIDES);
    assert_int_equal(c.seats[0], 100);
    have(h, 51, seats + 99, 1);
    c = claim_any(&h->s, 1, "ann", ann, BOXES, 1);
    assert_int_equal(c.outcome, CLAIM_SOLD_OUT);
    assert_int_equal(c.count, 0);
}

static void the_users_own_case_is_looked_at_before_anything_is_suggested(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    struct claim_request w = {.id = id_of(1),
                              .user = STR("ann"),
                              .entry_seq = ann,
                              .section_key = FLOOR,
                              .count = 2,
                              .key = {77, 1}};
    assert_int_equal(claim_any(&h->s, 1, "ann", ann + 1, BOXES, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, BOXES, 5).outcome, CLAIM_LIMIT);
    assert_int_equal(step_claim(&h->s, KEY, &w, T0).outcome, CLAIM_DONE);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, BOXES, 3).outcome, CLAIM_LIMIT);
    w.id = id_of(2);
    w.section_key = BOXES;
    struct claimed c = step_claim(&h->s, KEY, &w, T0); /* the same key */
    assert_int_equal(c.outcome, CLAIM_THERE);
    assert_int_equal(c.r.section_key, FLOOR);
    w.key.request = 2;
    assert_int_equal(step_claim(&h->s, KEY, &w, T0).outcome, CLAIM_KEY_REUSED);
    h->sections[2].status = SECTION_MAINTENANCE;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, BOXES, 1).outcome, CLAIM_SECTION_MAINTENANCE);
}

static void with_a_spread_suggestions_differ_and_are_free(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    char map[101];
    size_t count;
    uint32_t taken[40];
    uint64_t random_state = 1;
    int places = 0;
    for (uint32_t i = 0; i < 40; i++) taken[i] = 2 * i + 1;
    have(h, 50, taken, 40);
    assert_int_equal(step_render(&h->s, KEY, BOXES, 1, map, 100, &count), ERR_OK);
    struct claim_request w = {
        .id = id_of(1), .user = STR("ann"), .entry_seq = ann, .section_key = BOXES};
    for (uint64_t i = 1; i <= 400; i++) {
        w.count = (uint32_t)(i % 4) + 1;
        w.spread = next_random(&random_state);
        struct claimed c = step_claim(&h->s, KEY, &w, T0);
        assert_int_equal(c.outcome, CLAIM_LEDGER_DECIDES);
        assert_int_equal(c.count, w.count);
        for (size_t s = 0; s < c.count; s++) {
            assert_true(s == 0 || c.seats[s] > c.seats[s - 1]);
            assert_true(c.seats[s] >= 1 && c.seats[s] <= 100);
            assert_int_not_equal(map[c.seats[s] - 1], 'C');
        }
        if (map[c.seats[0] - 1] == 'A') places++;
        map[c.seats[0] - 1] = 'T'; /* T: was returned */
    }
    assert_true(places > 30);
    assert_seats(&h->s, BOXES, 60, 0, 40);
}

/* ---- only ACTIVE users may claim ---- */

static void only_an_active_entry_and_its_own_user_claims(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t left = seats_test_admit(h, "left");
    uint64_t pending = step_take(&h->s, KEY, "pending", T0);
    step_end(&h->s, KEY, left, ENTRY_LEFT);
    h->e.state = EVENT_PAUSED;
    seats_test_configure(h);
    uint64_t waiting = step_take_kept(&h->s, KEY, "waiting", T0);
    assert_int_equal(claim_any(&h->s, 1, "bob", ann, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(claim_any(&h->s, 1, "ann", 0, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(claim_any(&h->s, 1, "ann", waiting + 9, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(claim_any(&h->s, 1, "left", left, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(claim_any(&h->s, 1, "pending", pending, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(claim_any(&h->s, 1, "waiting", waiting, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    assert_seats(&h->s, FLOOR, 100, 0, 0);
    /* ACTIVE users may continue while the event is paused. */
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
    step_settle_enter(&h->s, KEY, pending, true);
    assert_int_equal(claim_any(&h->s, 2, "pending", pending, FLOOR, 1).outcome, CLAIM_DONE);
    /* An admission that is pending is none yet. */
    h->e.state = EVENT_OPEN;
    seats_test_configure(h);
    struct entry_change admitted[ADMIT_MAX];
    assert_int_equal(step_admit(&h->s, KEY, T0, admitted), 1);
    assert_int_equal(claim_any(&h->s, 3, "waiting", waiting, FLOOR, 1).outcome, CLAIM_NOT_ACTIVE);
    step_settle_admit(&h->s, KEY, waiting, true);
    assert_int_equal(claim_any(&h->s, 3, "waiting", waiting, FLOOR, 1).outcome, CLAIM_DONE);
}

/* An ACTIVE entry whose time is over is ended first, and reported first, as in enter. */
static void no_user_claims_after_the_active_time_has_ended_pitfall_6(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    struct claim_request w = {
        .id = id_of(1), .user = STR("ann"), .entry_seq = ann, .section_key = FLOOR, .count = 1};
    int64_t over_ms = T0 + INT64_C(86400) * SECOND;
    assert_int_equal(step_claim(&h->s, KEY, &w, over_ms - 1).outcome, CLAIM_DONE);
    store_heard(&h->s, h->heard, 16);
    w.id = id_of(2);
    assert_int_equal(step_claim(&h->s, KEY, &w, over_ms).outcome, CLAIM_NOT_ACTIVE);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 1);
    assert_int_equal(h->heard[0].kind, HEARD_EXPIRED);
    assert_int_equal(h->heard[0].entry.seq, ann);
    assert_seats(&h->s, FLOOR, 99, 1, 0); /* a hold outlives the stay */
}

static void a_closed_event_and_one_that_has_not_opened_sell_nothing(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    h->e.state = EVENT_CLOSED;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).outcome, CLAIM_EVENT_CLOSED);
    h->e.state = EVENT_OPEN;
    h->e.opens_at_ms = T0 + 1;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).outcome, CLAIM_EVENT_CLOSED);
    h->e.opens_at_ms = T0;
    h->e.state = EVENT_DRAINING;
    seats_test_configure(h);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
}

/* ---- limits ---- */

static void a_user_has_no_more_than_the_limit_over_all_sections(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 5).outcome, CLAIM_LIMIT);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 100000).outcome, CLAIM_LIMIT);
    assert_int_equal(claim_any(&h->s, 1, "ann", ann, FLOOR, 3).outcome, CLAIM_DONE);
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, BALCONY, 2).outcome,
                     CLAIM_LIMIT); /* pending */
    assert_int_equal(claim_any(&h->s, 2, "ann", ann, BALCONY, 1).outcome, CLAIM_DONE);
    assert_int_equal(claim_any(&h->s, 3, "ann", ann, FLOOR, 1).outcome, CLAIM_LIMIT);
    assert_int_equal(claim_any(&h->s, 3, "bob", bob, FLOOR, 4).outcome, CLAIM_DONE);
    step_settle_claim(&h->s, KEY, 1, true);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    assert_int_equal(claim_any(&h->s, 4, "ann", ann, FLOOR, 1).outcome, CLAIM_LIMIT);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    step_settle_claim(&h->s, KEY, 2, false);
    assert_int_equal(claim_any(&h->s, 5, "ann", ann, FLOOR, 4).outcome, CLAIM_DONE);
    set_limit(h, 2); /* takes nothing away */
    assert_seats(&h->s, FLOOR, 92, 8, 0);
    assert_int_equal(claim_any(&h->s, 6, "ann", ann, FLOOR, 1).outcome, CLAIM_LIMIT);
}

/* ---- pending ---- */

static void
a_claim_that_submit_refuses_is_undone_and_its_change_frees_nothing_pitfall_26(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    static const uint32_t seat[] = {50};
    h->s.verdict = ERR_OVERLOADED;
    struct claimed c = claim_named(&h->s, 1, "ann", ann, FLOOR, seat, 1);
    h->s.verdict = ERR_OK;
    assert_int_equal(c.result, ERR_OVERLOADED);
    assert_seats(&h->s, FLOOR, 100, 0, 0);
    assert_int_equal(claim_any(&h->s, 9, "ann", ann, FLOOR, 4).outcome,
                     CLAIM_DONE); /* of the limit */
    assert_int_equal(claim_named(&h->s, 2, "bob", bob, FLOOR, seat, 1).outcome, CLAIM_DONE);
    assert_false(step_settle_claim(&h->s, KEY, 1, false));
    assert_false(step_settle_claim(&h->s, KEY, 1, true));
    assert_false(step_follow(&h->s, KEY, 1, RESERVATION_EXPIRED));
    assert_false(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_seats(&h->s, FLOOR, 95, 5, 0);
    assert_true(step_settle_claim(&h->s, KEY, 2, true));
}

static void an_undone_claim_gives_its_seats_back_once(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    claim_any(&h->s, 1, "ann", ann, FLOOR, 2);
    assert_false(step_settle_claim(&h->s, KEY, 1, false));
    assert_seats(&h->s, FLOOR, 100, 0, 0);
    assert_int_equal(claim_any(&h->s, 2, "bob", bob, FLOOR, 2).seats[0], 1);
    assert_false(step_settle_claim(&h->s, KEY, 1, false));
    assert_seats(&h->s, FLOOR, 98, 2, 0);
    /* A settled claim stays, whatever is settled about it later. */
    assert_true(step_settle_claim(&h->s, KEY, 2, true));
    assert_true(step_settle_claim(&h->s, KEY, 2, false));
    assert_seats(&h->s, FLOOR, 98, 2, 0);
}

/* ---- the same key ---- */

static struct claimed claim_with_key(struct seats_test *h, uint64_t id, const char *user,
                                     uint64_t seq, uint32_t count, struct claim_key key) {
    struct claim_request w = {.id = id_of(id),
                              .user = str_of(user),
                              .entry_seq = seq,
                              .section_key = FLOOR,
                              .count = count,
                              .key = key};
    return step_claim(&h->s, KEY, &w, T0);
}

static void the_same_key_gives_the_same_reservation(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    struct claim_key key = {77, 1};
    assert_int_equal(claim_with_key(h, 1, "ann", ann, 2, key).outcome, CLAIM_DONE);
    /* Pending: from another worker, say, which submits the same record. */
    struct claimed c = claim_with_key(h, 2, "ann", ann, 2, key);
    assert_int_equal(c.outcome, CLAIM_THERE);
    assert_true(c.r.pending);
    assert_int_equal(number_of(&c.r.id), 1);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.seats[1], 2);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 2);
    assert_int_equal(h->heard[0].entry.seq, 1);
    assert_int_equal(h->heard[1].entry.seq, 1);
    /* Its refusal does not undo what the first one's record may still keep. */
    h->s.verdict = ERR_OVERLOADED;
    assert_int_equal(claim_with_key(h, 3, "ann", ann, 2, key).result, ERR_OVERLOADED);
    h->s.verdict = ERR_OK;
    assert_seats(&h->s, FLOOR, 98, 2, 0);
    assert_true(step_settle_claim(&h->s, KEY, 1, true));
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED));
    assert_true(step_end(&h->s, KEY, ann, ENTRY_COMPLETED));
    store_heard(&h->s, h->heard, 16);
    c = claim_with_key(h, 4, "ann", ann, 2, key); /* its time is over, but it was answered before */
    assert_int_equal(c.outcome, CLAIM_THERE);
    assert_false(c.r.pending);
    assert_int_equal(c.r.status, RESERVATION_CONFIRMED);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 0); /* the ledger has it long since */
    assert_seats(&h->s, FLOOR, 98, 0, 2);
}

/* A request that is repeated after a lost answer gets the same answer, whatever happened since. */
static void the_same_id_gives_the_same_reservation(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    static const uint32_t seats[] = {20, 5, 6, 7};
    claim_named(&h->s, 1, "ann", ann, FLOOR, seats, 4);
    struct claimed c = claim_named(&h->s, 1, "ann", ann, FLOOR, seats, 4); /* at the limit */
    assert_int_equal(c.outcome, CLAIM_THERE);
    assert_true(c.r.pending);
    assert_int_equal(c.count, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(c.seats[i], seats[i]);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 2); /* the same record once more */
    assert_int_equal(h->heard[1].entry.seq, 1);
    assert_true(step_settle_claim(&h->s, KEY, 1, true));
    assert_true(step_end(&h->s, KEY, ann, ENTRY_LEFT));
    c = claim_named(&h->s, 1, "ann", ann, FLOOR, seats, 4);
    assert_int_equal(c.outcome, CLAIM_THERE);
    assert_false(c.r.pending);
    assert_int_equal(store_heard(&h->s, h->heard, 16), 0);
    assert_int_equal(claim_named(&h->s, 1, "bob", bob, FLOOR, seats, 4).outcome, CLAIM_KEY_REUSED);
    assert_seats(&h->s, FLOOR, 96, 4, 0);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_int_equal(claim_named(&h->s, 1, "ann", ann, FLOOR, seats, 4).outcome, CLAIM_NOT_ACTIVE);
}

static void a_key_is_the_users_own_and_of_one_request_while_it_is_live(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    struct claim_key key = {77, 1};
    assert_int_equal(claim_with_key(h, 1, "ann", ann, 1, key).outcome, CLAIM_DONE);
    assert_int_equal(claim_with_key(h, 2, "bob", bob, 1, key).outcome, CLAIM_DONE);
    struct claim_key other = {77, 2};
    assert_int_equal(claim_with_key(h, 3, "ann", ann, 1, other).outcome, CLAIM_KEY_REUSED);
    assert_int_equal(claim_with_key(h, 3, "ann", ann, 2, key).outcome, CLAIM_KEY_REUSED);
    /* Without a key every request is a new one. */
    assert_int_equal(claim_any(&h->s, 4, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
    assert_int_equal(claim_any(&h->s, 5, "ann", ann, FLOOR, 1).outcome, CLAIM_DONE);
    assert_true(step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED));
    assert_int_equal(claim_with_key(h, 6, "ann", ann, 1, other).outcome, CLAIM_DONE);
    assert_seats(&h->s, FLOOR, 96, 4, 0);
}

/* ---- looking ---- */

static void the_reservations_of_a_user_and_of_an_entry_are_listed(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    struct claim_info out[4];
    assert_int_equal(step_holds(&h->s, KEY, "ann", 0, out, 4), 0);
    claim_any(&h->s, 1, "ann", ann, FLOOR, 1);
    claim_any(&h->s, 2, "bob", bob, FLOOR, 1);
    claim_any(&h->s, 3, "ann", ann, BALCONY, 2);
    step_settle_claim(&h->s, KEY, 3, true);
    step_end(&h->s, KEY, ann, ENTRY_LEFT);
    uint64_t again = seats_test_admit(h, "ann");
    claim_any(&h->s, 4, "ann", again, FLOOR, 1);
    assert_int_equal(step_holds(&h->s, KEY, "ann", 0, out, 4), 3);
    assert_int_equal(number_of(&out[0].id), 4);
    assert_int_equal(number_of(&out[1].id), 3);
    assert_int_equal(number_of(&out[2].id), 1);
    assert_false(out[1].pending);
    assert_true(out[2].pending);
    assert_int_equal(out[1].section_key, BALCONY);
    assert_int_equal(out[1].seat_count, 2);
    assert_int_equal(step_holds(&h->s, KEY, "ann", ann, out, 1), 2);
    assert_int_equal(number_of(&out[0].id), 3);
    assert_int_equal(step_holds(&h->s, KEY, "ann", again, out, 4), 1);
    assert_int_equal(step_holds(&h->s, KEY, "cat", 0, out, 4), 0);
}

static bool is_reserving(struct seats_test *h, uint64_t seq) {
    struct look_item item = {.seq = seq};
    assert_int_equal(step_look_at(&h->s, KEY, &item, 1, T0, NULL, NULL), ERR_OK);
    return item.reserving;
}

static void an_active_entry_is_reserving_while_it_has_a_settled_hold(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    uint64_t bob = seats_test_admit(h, "bob");
    assert_false(is_reserving(h, ann));
    claim_any(&h->s, 1, "ann", ann, FLOOR, 1);
    assert_false(is_reserving(h, ann)); /* pending */
    step_settle_claim(&h->s, KEY, 1, true);
    assert_true(is_reserving(h, ann));
    assert_false(is_reserving(h, bob));
    step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED);
    assert_false(is_reserving(h, ann));
    claim_any(&h->s, 2, "bob", bob, FLOOR, 1);
    step_settle_claim(&h->s, KEY, 2, true);
    assert_true(is_reserving(h, bob));
    step_end(&h->s, KEY, bob, ENTRY_LEFT);
    assert_false(is_reserving(h, bob)); /* its hold lives, the entry does not */
}

/* A tick, after which the store knows when the next one is needed. */
static bool needs_tick_after_one(struct seats_test *h, int64_t at_ms) {
    static struct entry_change admitted[ADMIT_MAX];
    step_admit(&h->s, KEY, T0, admitted);
    return step_needs_tick(&h->s, KEY, at_ms);
}

static void an_event_needs_a_tick_only_when_it_has_something_to_do(void **state) {
    struct seats_test *h = *state;
    assert_false(needs_tick_after_one(h, T0 + 3600000));
    uint64_t ann = seats_test_admit(h, "ann");
    assert_false(needs_tick_after_one(h, T0 + 301000));
    claim_any(&h->s, 1, "ann", ann, FLOOR, 1);
    step_settle_claim(&h->s, KEY, 1, true);
    assert_false(needs_tick_after_one(h, T0 + 299999));
    assert_true(step_needs_tick(&h->s, KEY, T0 + 300000)); /* the hold is due */
    step_follow(&h->s, KEY, 1, RESERVATION_CONFIRMED);
    step_end(&h->s, KEY, ann, ENTRY_COMPLETED);
    uint64_t due[1];
    assert_int_equal(step_due(&h->s, KEY, T0 + 3600000, due, 1), 0);
    assert_false(needs_tick_after_one(h, T0 + 3600000));
    h->e.state = EVENT_PAUSED;
    seats_test_configure(h);
    step_take_kept(&h->s, KEY, "bob", T0);
    assert_true(needs_tick_after_one(h, T0)); /* an entry waits */
    assert_true(step_needs_tick(&h->s, KEY, T0));
}

static void an_event_needs_a_tick_when_a_stay_is_over(void **state) {
    struct seats_test *h = *state;
    seats_test_admit(h, "ann");
    int64_t ends_ms = T0 + INT64_C(86400) * 1000;
    assert_false(needs_tick_after_one(h, ends_ms - 1));
    assert_true(step_needs_tick(&h->s, KEY, ends_ms));
}

static void a_user_is_found_in_an_event_while_a_reservation_is_live(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann of two words");
    assert_false(step_is_buyer(&h->s, KEY, "ann of two words"));
    claim_any(&h->s, 1, "ann of two words", ann, FLOOR, 1);
    claim_any(&h->s, 2, "ann of two words", ann, FLOOR, 1);
    for (uint64_t id = 1; id <= 2; id++) step_settle_claim(&h->s, KEY, id, true);
    assert_true(step_is_buyer(&h->s, KEY, "ann of two words"));
    assert_false(step_is_buyer(&h->s, KEY, "ann"));
    step_follow(&h->s, KEY, 1, RESERVATION_CANCELLED);
    assert_true(step_is_buyer(&h->s, KEY, "ann of two words"));
    step_follow(&h->s, KEY, 2, RESERVATION_EXPIRED);
    assert_false(step_is_buyer(&h->s, KEY, "ann of two words"));
}

static void a_map_is_rendered_in_parts(void **state) {
    struct seats_test *h = *state;
    uint64_t ann = seats_test_admit(h, "ann");
    static const uint32_t seats[] = {2, 100};
    char map[128];
    size_t count;
    claim_named(&h->s, 1, "ann", ann, FLOOR, seats, 1);
    claim_named(&h->s, 2, "ann", ann, FLOOR, seats + 1, 1);
    step_follow(&h->s, KEY, 2, RESERVATION_CONFIRMED);
    assert_int_equal(step_render(&h->s, KEY, FLOOR, 1, map, 3, &count), ERR_OK);
    assert_string_equal(map, "AHA");
    assert_int_equal(step_render(&h->s, KEY, FLOOR, 98, map, 127, &count), ERR_OK);
    assert_int_equal(count, 3);
    assert_string_equal(map, "AAC");
    assert_int_equal(step_render(&h->s, KEY, FLOOR, 101, map, 127, &count), ERR_OK);
    assert_int_equal(count, 0);
    assert_int_equal(step_render(&h->s, KEY, 99, 1, map, 127, &count), ERR_SECTION_NOT_FOUND);
    struct seat_counts totals = step_totals(&h->s, KEY);
    assert_int_equal(totals.available, 298);
    assert_int_equal(totals.held, 1);
    assert_int_equal(totals.confirmed, 1);
}

int seats_suite_run(const struct queue_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, seats_test_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(any_seats_are_adjacent_pending_and_counted),
        TEST(a_hold_lasts_for_seconds_not_milliseconds_pitfall_22),
        TEST(named_seats_are_taken_all_or_none_and_the_refusal_names_the_taken_ones_pitfall_24),
        TEST(groups_get_all_their_seats_or_none_pitfall_24),
        TEST(the_last_seat_is_sold_and_then_it_is_sold_out_pitfall_30),
        TEST(no_request_queues_for_a_section_whose_seats_are_all_confirmed),
        TEST(seats_named_twice_or_that_do_not_exist_are_refused_by_name),
        TEST(each_section_states_why_it_sells_nothing),
        TEST(where_the_ledger_decides_seats_are_suggested_and_nothing_changes),
        TEST(named_seats_are_the_ledgers_to_refuse_unless_they_are_none),
        TEST(taken_seats_are_not_suggested_pitfall_30),
        TEST(the_users_own_case_is_looked_at_before_anything_is_suggested),
        TEST(with_a_spread_suggestions_differ_and_are_free),
        TEST(only_an_active_entry_and_its_own_user_claims),
        TEST(no_user_claims_after_the_active_time_has_ended_pitfall_6),
        TEST(a_closed_event_and_one_that_has_not_opened_sell_nothing),
        TEST(a_user_has_no_more_than_the_limit_over_all_sections),
        TEST(a_claim_that_submit_refuses_is_undone_and_its_change_frees_nothing_pitfall_26),
        TEST(an_undone_claim_gives_its_seats_back_once),
        TEST(the_same_key_gives_the_same_reservation),
        TEST(the_same_id_gives_the_same_reservation),
        TEST(a_key_is_the_users_own_and_of_one_request_while_it_is_live),
        TEST(the_reservations_of_a_user_and_of_an_entry_are_listed),
        TEST(an_active_entry_is_reserving_while_it_has_a_settled_hold),
        TEST(an_event_needs_a_tick_only_when_it_has_something_to_do),
        TEST(an_event_needs_a_tick_when_a_stay_is_over),
        TEST(a_user_is_found_in_an_event_while_a_reservation_is_live),
        TEST(a_map_is_rendered_in_parts),
    };
#undef TEST
    return cmocka_run_group_tests_name("seats contract", tests, NULL, NULL);
}
