#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "queue_fixture.h"

/* ---- entering ---- */

static void no_user_is_active_at_once_while_others_wait(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 1);
    uint64_t first_lane = enter(&r, "ann", 0, T0);
    assert_int_equal(status_of(&r, first_lane, T0), ENTRY_WAITING);
    /* Also not while waiting entries are being admitted. */
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 2);
    assert_int_equal(status_of(&r, enter(&r, "bob", 0, T0), T0), ENTRY_WAITING);
    queue_fixture_close(&r);
}

static void with_no_waiting_places_one_is_active_at_once_or_refused(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.max_waiting = 0;
    r.config.rules.max_active = 1;
    queue_fixture_configure(&r);
    struct place p;
    uint64_t ann = enter(&r, "ann", 8, T0);
    assert_int_equal(status_of(&r, ann, T0), ENTRY_ACTIVE);
    assert_int_equal(queue_enter(r.q, STR("bob"), 8, T0, &p), ENTER_FULL);
    assert_int_equal(queue_enter(r.q, STR("ann"), 8, T0, &p), ENTER_THERE);
    assert_true(queue_end(r.q, ann, ENTRY_COMPLETED));
    assert_int_equal(status_of(&r, enter(&r, "bob", 8, T0), T0), ENTRY_ACTIVE);
    queue_fixture_close(&r);
}

static void users_are_found_whose_numbers_have_more_than_32_bits(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    uint64_t ann = enter(&r, "ann", 8, T0);
    /* In small steps: a large one would be a gap, and its numbers would not count. */
    for (uint64_t seq = ann; seq < ann + UINT32_MAX; seq += 1 << 19) queue_skip_to(r.q, seq);
    queue_skip_to(r.q, ann + UINT32_MAX);
    uint64_t bob = enter(&r, "bob", 8, T0);
    assert_true(bob == ann + UINT32_MAX && queue_find(r.q, STR("bob")) == bob);
    assert_int_equal(queue_find(r.q, STR("ann")), ann);
    assert_true(queue_end(r.q, ann, ENTRY_LEFT));
    assert_true(queue_find(r.q, STR("ann")) == 0 && queue_find(r.q, STR("bob")) == bob);
    assert_true(queue_end(r.q, bob, ENTRY_LEFT));
    assert_int_equal(queue_find(r.q, STR("bob")), 0);
    queue_fixture_close(&r);
}

/* As after two restores of the ledger. Without gaps, memory would span from the lowest number on.
 */
static void numbers_go_on_far_above_the_ones_before(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 5000);
    const uint64_t far[] = {UINT64_C(1) << 45, (UINT64_C(1) << 46) + 12345};
    queue_restore(r.q, far[0] + 1, STR("restored"), 8, ENTRY_WAITING, T0, 0);
    queue_skip_to(r.q, far[1]);
    uint64_t bob = enter(&r, "bob", 8, T0);
    assert_true(bob == far[1]);
    assert_int_equal(enter(&r, "cid", 0, T0), far[1] + 1);
    assert_true(queue_find(r.q, STR("bob")) == bob);
    assert_true(queue_find(r.q, STR("restored")) == far[0] + 1);
    assert_int_equal(queue_find(r.q, STR("user5000")), 5000);
    assert_int_equal(queue_position(r.q, far[1] + 1), 1);
    assert_int_equal(look(&r, 5000, T0).position, 5001);
    assert_int_equal(look(&r, far[0] + 1, T0).position, 5002);
    assert_int_equal(look(&r, bob, T0).position, 5003);
    /* Numbers that were never given out are no places. */
    struct place p;
    for (uint64_t seq = 5001; seq < far[1]; seq = seq * 2 + 1)
        assert_true(seq == far[0] + 1 ||
                    (!queue_look(r.q, seq, T0, &p) && queue_position(r.q, seq) == 0 &&
                     !queue_end(r.q, seq, ENTRY_LEFT)));
    assert_false(queue_look(r.q, far[1] - 1, T0, &p));

    /* In order, over all of them. */
    assert_int_equal(admit_some(&r, T0, 1), 1);
    assert_true(changes[0].seq == far[1] + 1);
    for (uint64_t seq = 1; seq <= 5000; seq++) assert_true(queue_end(r.q, seq, ENTRY_LEFT));
    assert_int_equal(look(&r, bob, T0).position, 2);
    assert_int_equal(admit_some(&r, T0, 2), 2);
    assert_true(changes[0].seq == far[0] + 1 && changes[1].seq == bob);
    assert_counts(&r, 0, 3);
    queue_fixture_close(&r);
}

static void silent_users_are_found_on_both_sides_of_a_gap(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.max_active = 1;
    enter_waiting(&r, 3);
    assert_int_equal(admit_some(&r, T0, 1), 1);
    queue_skip_to(r.q, UINT64_C(1) << 46);
    uint64_t bob = enter(&r, "bob", 8, T0);
    assert_int_equal(sweep(&r, T0 + 301 * SECOND), 3);
    assert_true(changes[0].seq == 2 && changes[1].seq == 3 && changes[2].seq == bob);
    queue_fixture_close(&r);
}

/* ---- the end of an entry ---- */

static void a_purge_ends_no_more_than_it_can_report(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    for (int i = 0; i < 5; i++) enter(&r, (const char *[]){"a", "b", "c", "d", "e"}[i], 8, T0);
    int64_t later = T0 + 600 * SECOND;
    assert_int_equal(queue_purge(r.q, later, changes, 0), 0);
    assert_int_equal(queue_purge(r.q, later, changes, 2), 2);
    assert_counts(&r, 0, 3);
    assert_int_equal(queue_purge(r.q, later, changes, 10), 3);
    assert_int_equal(changes[2].seq, 5);
    queue_fixture_close(&r);
}

static void an_expired_user_may_enter_before_any_purge(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.max_active = 1;
    queue_fixture_configure(&r);
    uint64_t first = enter(&r, "ann", 8, T0);
    int64_t later = T0 + 600 * SECOND;
    uint64_t second = enter(&r, "ann", 8, later);
    assert_int_equal(second, first + 1);
    assert_int_equal(status_of(&r, first, later), ENTRY_EXPIRED);
    assert_int_equal(status_of(&r, second, later), ENTRY_ACTIVE);
    assert_counts(&r, 0, 1);
    assert_int_equal(queue_purge(r.q, later, changes, ADMIT_MAX), 0);
    queue_fixture_close(&r);
}

/* The ledger had the admission, then the completion, and the update of the latter came first. */
static void a_user_who_completes_before_the_admission_is_settled_stays_completed(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 1);
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 1);
    assert_true(queue_end(r.q, 1, ENTRY_COMPLETED));
    assert_counts(&r, 0, 0);
    queue_settle_admit(r.q, 1, true);
    assert_int_equal(status_of(&r, 1, T0), ENTRY_COMPLETED);
    uint64_t at_once = enter_pending(&r, "ann", 8, T0);
    assert_true(queue_end(r.q, at_once, ENTRY_COMPLETED));
    queue_settle_enter(r.q, at_once, true);
    assert_int_equal(status_of(&r, at_once, T0), ENTRY_COMPLETED);
    assert_counts(&r, 0, 0);
    assert_int_equal(queue_purge(r.q, T0 + 900 * SECOND, changes, ADMIT_MAX), 0);
    struct queue_counts c = queue_counts(r.q);
    assert_int_equal(c.entered, 2);
    assert_int_equal(c.admitted, 2);
    assert_int_equal(c.completed, 2);
    queue_fixture_close(&r);
}

static void totals_count_settled_entries(void **state) {
    (void)state;
    struct queue_fixture r;
    struct place p;
    queue_fixture_open(&r);
    r.config.rules.max_waiting = 4;
    r.config.rules.max_active = 3;
    enter_waiting(&r, 4);
    assert_int_equal(queue_enter(r.q, STR("late"), 8, T0, &p), ENTER_FULL);
    assert_int_equal(queue_enter(r.q, STR("user1"), 8, T0, &p), ENTER_THERE);
    assert_true(queue_end(r.q, 4, ENTRY_LEFT));
    queue_settle_enter(r.q, enter_pending(&r, "undone", 8, T0), false);
    assert_int_equal(queue_admit(r.q, T0 + 3 * SECOND, changes, 2), 2);
    assert_int_equal(queue_counts(r.q).admitted, 0);
    queue_settle_admit(r.q, 1, true);
    queue_settle_admit(r.q, 2, false);
    assert_true(queue_end(r.q, 1, ENTRY_COMPLETED));
    assert_int_equal(admit(&r, T0 + 5 * SECOND), 2);
    assert_int_equal(queue_purge(r.q, T0 + 605 * SECOND, changes, ADMIT_MAX), 2);
    enter(&r, "at once", 8, T0 + 605 * SECOND);
    struct queue_counts c = queue_counts(r.q);
    assert_int_equal(c.entered, 5);
    assert_int_equal(c.rejected, 1);
    assert_int_equal(c.admitted, 4);
    assert_int_equal(c.completed, 1);
    assert_int_equal(c.left, 1);
    assert_int_equal(c.expired, 2);
    assert_int_equal(c.waited_ms, (3 + 3 + 5 + 5) * SECOND);
    assert_int_equal(c.waited_ms_max, 5 * SECOND);
    assert_counts(&r, 0, 1);
    queue_fixture_close(&r);
}

static void an_admission_reports_what_its_entry_was_promised(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.entry_batch_size = 2;
    enter_waiting(&r, 5); /* estimates of 1, 1, 2, 2, 3 s */
    assert_int_equal(queue_admit(r.q, T0 + 9 * SECOND, changes, ADMIT_MAX), 2);
    assert_int_equal(changes[0].promised_s, 1);
    assert_int_equal(changes[0].waited_ms, 9 * SECOND);
    queue_settle_admit(r.q, 1, true);
    queue_settle_admit(r.q, 2, false); /* its old promise means nothing now */
    assert_int_equal(admit(&r, T0 + 10 * SECOND), 2);
    assert_int_equal(changes[0].seq, 2);
    assert_int_equal(changes[0].promised_s, -1);
    assert_int_equal(changes[1].promised_s, 2);
    /* A clock that was set back is no negative wait. */
    assert_int_equal(admit_some(&r, T0 + 11 * SECOND, 1), 1);
    queue_fixture_set_state(&r, EVENT_PAUSED);
    uint64_t seq = enter(&r, "ann", 0, T0 + 60 * SECOND);
    queue_fixture_set_state(&r, EVENT_OPEN);
    assert_int_equal(admit_some(&r, T0 + 12 * SECOND, 1), 1);
    assert_int_equal(changes[0].seq, seq);
    assert_int_equal(changes[0].waited_ms, 0);
    queue_restore(r.q, 100, STR("restored"), 0, ENTRY_WAITING, T0, 0);
    assert_int_equal(queue_admit(r.q, T0 + 13 * SECOND, changes, 1), 1);
    assert_int_equal(changes[0].promised_s, -1);
    queue_fixture_close(&r);
}

/* ---- admission ---- */

static void an_undone_enter_frees_the_user_and_the_place(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.max_active = 1;
    r.config.rules.max_waiting = 1;
    queue_fixture_configure(&r);
    struct place p;
    uint64_t active = enter_pending(&r, "ann", 8, T0);
    uint64_t waiting = enter_pending(&r, "bob", 8, T0);
    queue_settle_enter(r.q, waiting, false);
    assert_counts(&r, 0, 1);
    assert_false(queue_look(r.q, waiting, T0, &p));
    assert_int_equal(queue_find(r.q, STR("bob")), 0);
    queue_settle_enter(r.q, waiting, true); /* too late */
    assert_counts(&r, 0, 1);
    queue_settle_enter(r.q, active, false);
    assert_counts(&r, 0, 0);
    uint64_t again = enter(&r, "bob", 8, T0);
    assert_int_equal(again, waiting + 1);
    assert_int_equal(status_of(&r, again, T0), ENTRY_ACTIVE);
    /* The expiry of an unknown entry ends nothing. */
    assert_int_equal(queue_purge(r.q, T0 + 600 * SECOND, changes, ADMIT_MAX), 1);
    assert_int_equal(changes[0].seq, again);
    queue_fixture_close(&r);
}

static void leaving_during_admission_frees_both_places(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 2);
    assert_int_equal(queue_admit(r.q, T0, changes, 1), 1);
    assert_true(queue_end(r.q, 1, ENTRY_LEFT));
    assert_counts(&r, 1, 0);
    queue_settle_admit(r.q, 1, true);
    assert_int_equal(status_of(&r, 1, T0), ENTRY_LEFT);
    assert_counts(&r, 1, 0);
    assert_int_equal(look(&r, 2, T0).position, 1);
    queue_fixture_close(&r);
}

static void a_longer_interval_gives_no_second_batch_within_it(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 100);
    r.config.rules.entry_batch_size = 10;
    queue_fixture_configure(&r);
    assert_int_equal(admit(&r, T0 + 5 * SECOND), 10);
    r.config.rules.entry_interval_s = 10;
    queue_fixture_configure(&r);
    assert_int_equal(admit(&r, T0 + 5 * SECOND), 0);
    assert_int_equal(admit(&r, T0 + 9 * SECOND), 0);
    assert_int_equal(admit(&r, T0 + 10 * SECOND), 10);
    queue_fixture_close(&r);
}

static void one_admit_moves_a_thousand_at_the_most(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.entry_batch_size = 5000;
    r.config.rules.max_active = 2500;
    enter_waiting(&r, 3000);
    assert_int_equal(admit_some(&r, T0, 3000), 1000);
    assert_int_equal(admit_some(&r, T0, 3000), 1000);
    assert_int_equal(changes[0].seq, 1001);
    assert_int_equal(admit_some(&r, T0, 3000), 500);
    assert_int_equal(admit_some(&r, T0, 3000), 0);
    queue_fixture_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_user_is_active_at_once_while_others_wait),
        cmocka_unit_test(with_no_waiting_places_one_is_active_at_once_or_refused),
        cmocka_unit_test(users_are_found_whose_numbers_have_more_than_32_bits),
        cmocka_unit_test(numbers_go_on_far_above_the_ones_before),
        cmocka_unit_test(silent_users_are_found_on_both_sides_of_a_gap),
        cmocka_unit_test(a_purge_ends_no_more_than_it_can_report),
        cmocka_unit_test(an_expired_user_may_enter_before_any_purge),
        cmocka_unit_test(a_user_who_completes_before_the_admission_is_settled_stays_completed),
        cmocka_unit_test(totals_count_settled_entries),
        cmocka_unit_test(an_admission_reports_what_its_entry_was_promised),
        cmocka_unit_test(an_undone_enter_frees_the_user_and_the_place),
        cmocka_unit_test(leaving_during_admission_frees_both_places),
        cmocka_unit_test(a_longer_interval_gives_no_second_batch_within_it),
        cmocka_unit_test(one_admit_moves_a_thousand_at_the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
