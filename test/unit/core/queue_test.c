#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "queue_room.h"

/* ---- entering ---- */

static void entering_again_keeps_the_place_trap_1(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 3);
    struct place p;
    assert_int_equal(queue_enter(r.q, STR("user2"), 0, T0 + 5000, &p), ENTER_THERE);
    assert_int_equal(p.seq, 2);
    assert_int_equal(p.position, 2);
    assert_int_equal(p.lane, LANE_DEFAULT);
    assert_int_equal(p.joined_ms, T0);
    assert_false(p.pending);
    assert_counts(&r, 3, 0);
    room_close(&r);
}

static void places_follow_numbers_not_names_or_clocks_trap_2(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    room_set_state(&r, EVENT_PAUSED);
    /* The same millisecond, names that sort otherwise, then a clock that steps back. */
    uint64_t nine = enter(&r, "user9", 8, T0);
    uint64_t ten = enter(&r, "user10", 8, T0);
    uint64_t late = enter(&r, "user0", 8, T0 - 60 * SECOND);
    assert_int_equal(look(&r, nine, T0).position, 1);
    assert_int_equal(look(&r, ten, T0).position, 2);
    assert_int_equal(look(&r, late, T0).position, 3);
    room_set_state(&r, EVENT_OPEN);
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 3);
    assert_int_equal(changes[0].seq, nine);
    assert_int_equal(changes[1].seq, ten);
    assert_int_equal(changes[2].seq, late);
    room_close(&r);
}

static void one_user_has_one_live_entry_trap_7(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    uint64_t first = enter_pending(&r, "ann", 8, T0);
    struct place p;
    assert_int_equal(queue_enter(r.q, STR("ann"), 8, T0, &p), ENTER_THERE);
    assert_int_equal(p.seq, first);
    assert_true(p.pending);
    assert_int_equal(queue_find(r.q, STR("ann")), first);
    assert_true(str_eq(queue_user(r.q, first), STR("ann")));
    assert_int_equal(queue_find(r.q, STR("an")), 0);
    queue_settle_enter(r.q, first, true);
    assert_true(queue_end(r.q, first, ENTRY_LEFT));
    assert_int_equal(queue_find(r.q, STR("ann")), 0);
    assert_true(str_eq(queue_user(r.q, first), STR("ann"))); /* while it is known */
    uint64_t second = enter(&r, "ann", 8, T0);
    assert_true(second > first);
    assert_int_equal(queue_find(r.q, STR("ann")), second);
    assert_int_equal(status_of(&r, first, T0), ENTRY_LEFT);
    room_close(&r);
}

static void who_finds_nobody_waiting_is_active_with_its_expiry_at_once_trap_5(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    struct place p;
    assert_int_equal(queue_enter(r.q, STR("ann"), 8, T0 + 7, &p), ENTER_TAKEN);
    assert_int_equal(p.status, ENTRY_ACTIVE);
    assert_int_equal(p.expires_ms, T0 + 7 + 600 * SECOND);
    assert_int_equal(p.position, 0);
    queue_settle_enter(r.q, p.seq, true);
    p = look(&r, p.seq, T0 + 7 + 600 * SECOND - 1);
    assert_int_equal(p.status, ENTRY_ACTIVE);
    assert_int_equal(p.expires_ms, T0 + 7 + 600 * SECOND);
    assert_int_equal(status_of(&r, p.seq, T0 + 7 + 600 * SECOND), ENTRY_EXPIRED);
    room_close(&r);
}

static void nobody_is_active_at_once_while_somebody_waits(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 1);
    uint64_t first_lane = enter(&r, "ann", 0, T0);
    assert_int_equal(status_of(&r, first_lane, T0), ENTRY_WAITING);
    /* Nor while those who wait are on their way out. */
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 2);
    assert_int_equal(status_of(&r, enter(&r, "bob", 0, T0), T0), ENTRY_WAITING);
    room_close(&r);
}

static void the_caps_hold_with_what_is_pending_traps_4_and_11(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.max_waiting = 3;
    r.config.rules.max_active = 2;
    room_configure(&r);
    struct place p;
    enter_pending(&r, "a1", 8, T0);
    enter_pending(&r, "a2", 8, T0);
    enter_pending(&r, "w1", 8, T0);
    enter_pending(&r, "w2", 8, T0);
    enter_pending(&r, "w3", 8, T0);
    assert_counts(&r, 3, 2);
    assert_int_equal(queue_enter(r.q, STR("x"), 0, T0, &p), ENTER_FULL);
    assert_int_equal(queue_find(r.q, STR("x")), 0);
    for (uint64_t seq = 1; seq <= 5; seq++) queue_settle_enter(r.q, seq, true);
    assert_int_equal(queue_enter(r.q, STR("x"), 0, T0, &p), ENTER_FULL);
    assert_int_equal(queue_admit(r.q, T0 + SECOND, changes, ADMIT_MAX), 0);
    /* A pending admission has taken its place, and has not left the other one. */
    assert_true(queue_end(r.q, 1, ENTRY_COMPLETED));
    assert_int_equal(queue_admit(r.q, T0 + SECOND, changes, ADMIT_MAX), 1);
    assert_counts(&r, 3, 2);
    assert_int_equal(queue_admit(r.q, T0 + 2 * SECOND, changes, ADMIT_MAX), 0);
    assert_int_equal(queue_enter(r.q, STR("x"), 0, T0, &p), ENTER_FULL);
    queue_settle_admit(r.q, 3, true);
    assert_counts(&r, 2, 2);
    enter(&r, "x", 8, T0);
    assert_counts(&r, 3, 2);
    room_close(&r);
}

static void with_no_waiting_places_one_is_active_at_once_or_refused(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.max_waiting = 0;
    r.config.rules.max_active = 1;
    room_configure(&r);
    struct place p;
    uint64_t ann = enter(&r, "ann", 8, T0);
    assert_int_equal(status_of(&r, ann, T0), ENTRY_ACTIVE);
    assert_int_equal(queue_enter(r.q, STR("bob"), 8, T0, &p), ENTER_FULL);
    assert_int_equal(queue_enter(r.q, STR("ann"), 8, T0, &p), ENTER_THERE);
    assert_true(queue_end(r.q, ann, ENTRY_COMPLETED));
    assert_int_equal(status_of(&r, enter(&r, "bob", 8, T0), T0), ENTRY_ACTIVE);
    room_close(&r);
}

/* ---- the end of an entry ---- */

static void completion_leave_and_expiry_free_the_place_at_once_traps_11_and_12(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.max_waiting = 1;
    r.config.rules.max_active = 1;
    r.config.rules.active_ttl_s = 60;
    room_configure(&r);
    const enum entry_status ends[] = {ENTRY_COMPLETED, ENTRY_LEFT, ENTRY_EXPIRED};
    for (int i = 0; i < 30; i++) {
        uint64_t active = enter(&r, "active", 8, T0 + i * SECOND);
        uint64_t waiting = enter(&r, "waiting", 8, T0 + i * SECOND);
        assert_counts(&r, 1, 1);
        assert_true(queue_end(r.q, active, ends[i % 3]));
        assert_counts(&r, 1, 0);
        assert_true(queue_end(r.q, waiting, ENTRY_LEFT));
        assert_counts(&r, 0, 0);
    }
    room_close(&r);
}

static void expired_actives_are_purged_and_make_room_trap_6(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.max_active = 3;
    r.config.rules.active_ttl_s = 10;
    room_configure(&r);
    for (int i = 0; i < 3; i++) enter(&r, (const char *[]){"a", "b", "c"}[i], 8, T0 + i * SECOND);
    uint64_t waiting = enter(&r, "d", 8, T0 + 3 * SECOND);
    assert_true(queue_end(r.q, 2, ENTRY_COMPLETED)); /* whose expiry must then mean nothing */
    assert_int_equal(admit(&r, T0 + 4 * SECOND), 1);
    assert_int_equal(status_of(&r, waiting, T0 + 4 * SECOND), ENTRY_ACTIVE);
    assert_int_equal(queue_purge(r.q, T0 + 10 * SECOND - 1, changes, ADMIT_MAX), 0);
    assert_int_equal(queue_purge(r.q, T0 + 12 * SECOND, changes, ADMIT_MAX), 2);
    assert_int_equal(changes[0].seq, 1);
    assert_int_equal(changes[0].expires_ms, T0 + 10 * SECOND);
    assert_int_equal(changes[1].seq, 3);
    assert_counts(&r, 0, 1);
    assert_int_equal(status_of(&r, 1, T0), ENTRY_EXPIRED);
    assert_int_equal(status_of(&r, 2, T0), ENTRY_COMPLETED);
    assert_int_equal(queue_purge(r.q, T0 + 14 * SECOND, changes, ADMIT_MAX), 1);
    assert_int_equal(changes[0].seq, waiting);
    assert_counts(&r, 0, 0);
    room_close(&r);
}

static void a_purge_ends_no_more_than_it_can_report(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    for (int i = 0; i < 5; i++) enter(&r, (const char *[]){"a", "b", "c", "d", "e"}[i], 8, T0);
    int64_t later = T0 + 600 * SECOND;
    assert_int_equal(queue_purge(r.q, later, changes, 0), 0);
    assert_int_equal(queue_purge(r.q, later, changes, 2), 2);
    assert_counts(&r, 0, 3);
    assert_int_equal(queue_purge(r.q, later, changes, 10), 3);
    assert_int_equal(changes[2].seq, 5);
    room_close(&r);
}

static void an_expired_user_may_enter_before_any_purge(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.max_active = 1;
    room_configure(&r);
    uint64_t first = enter(&r, "ann", 8, T0);
    int64_t later = T0 + 600 * SECOND;
    uint64_t second = enter(&r, "ann", 8, later);
    assert_int_equal(second, first + 1);
    assert_int_equal(status_of(&r, first, later), ENTRY_EXPIRED);
    assert_int_equal(status_of(&r, second, later), ENTRY_ACTIVE);
    assert_counts(&r, 0, 1);
    assert_int_equal(queue_purge(r.q, later, changes, ADMIT_MAX), 0);
    room_close(&r);
}

static void what_has_ended_stays_as_it_ended_trap_15(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    uint64_t seq = enter(&r, "ann", 8, T0);
    assert_true(queue_end(r.q, seq, ENTRY_COMPLETED));
    assert_false(queue_end(r.q, seq, ENTRY_LEFT));
    assert_false(queue_end(r.q, seq, ENTRY_EXPIRED));
    assert_int_equal(queue_purge(r.q, T0 + 900 * SECOND, changes, ADMIT_MAX), 0);
    queue_settle_enter(r.q, seq, false);
    queue_settle_admit(r.q, seq, true);
    assert_int_equal(status_of(&r, seq, T0), ENTRY_COMPLETED);
    assert_counts(&r, 0, 0);
    assert_false(queue_end(r.q, 0, ENTRY_LEFT));
    assert_false(queue_end(r.q, 999, ENTRY_LEFT));
    room_close(&r);
}

static void only_who_was_admitted_completes(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 2);
    room_set_state(&r, EVENT_PAUSED);
    uint64_t entering = enter_pending(&r, "entering", 8, T0);
    assert_false(queue_end(r.q, 1, ENTRY_COMPLETED));
    assert_false(queue_end(r.q, entering, ENTRY_COMPLETED));
    assert_true(look(&r, entering, T0).pending);
    assert_counts(&r, 3, 0);
    room_set_state(&r, EVENT_OPEN);
    assert_int_equal(admit(&r, T0), 2);
    assert_true(queue_end(r.q, 1, ENTRY_COMPLETED));
    assert_counts(&r, 1, 1);
    room_close(&r);
}

/* The ledger had the admission, then the completion, and the latter's news came first. */
static void who_completes_before_the_admission_is_settled_stays_completed(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
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
    room_close(&r);
}

static void totals_tell_what_was_settled(void **state) {
    (void)state;
    struct room r;
    struct place p;
    room_open(&r);
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
    room_close(&r);
}

static void an_admission_tells_what_its_entry_was_promised(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
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
    room_set_state(&r, EVENT_PAUSED);
    uint64_t seq = enter(&r, "ann", 0, T0 + 60 * SECOND);
    room_set_state(&r, EVENT_OPEN);
    assert_int_equal(admit_some(&r, T0 + 12 * SECOND, 1), 1);
    assert_int_equal(changes[0].seq, seq);
    assert_int_equal(changes[0].waited_ms, 0);
    queue_restore(r.q, 100, STR("restored"), 0, ENTRY_WAITING, T0, 0);
    assert_int_equal(queue_admit(r.q, T0 + 13 * SECOND, changes, 1), 1);
    assert_int_equal(changes[0].promised_s, -1);
    room_close(&r);
}

static void an_unknown_entry_has_no_position_trap_18(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 5);
    struct place p;
    const uint64_t unknown[] = {0, 6, 4096, UINT64_C(1) << 47, UINT64_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_false(queue_look(r.q, unknown[i], T0, &p));
        assert_int_equal(queue_position(r.q, unknown[i]), 0);
        assert_int_equal(queue_user(r.q, unknown[i]).len, 0);
        queue_seen(r.q, unknown[i], T0);
        queue_settle_enter(r.q, unknown[i], true);
        queue_settle_admit(r.q, unknown[i], true);
    }
    /* And the line is one of first in, first out. */
    r.config.rules.entry_batch_size = 1;
    room_configure(&r);
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(admit(&r, T0 + (int64_t)i * SECOND), 1);
        assert_int_equal(changes[0].seq, i);
    }
    room_close(&r);
}

/* ---- admission ---- */

static void lower_lanes_go_first_and_each_is_in_order(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    room_set_state(&r, EVENT_PAUSED);
    uint64_t d = enter(&r, "d", 15, T0);
    uint64_t b = enter(&r, "b", 8, T0);
    uint64_t a = enter(&r, "a", 0, T0);
    uint64_t c = enter(&r, "c", 8, T0);
    const uint64_t expected[] = {a, b, c, d};
    for (size_t i = 0; i < 4; i++) assert_int_equal(look(&r, expected[i], T0).position, i + 1);
    room_set_state(&r, EVENT_OPEN);
    assert_int_equal(admit_some(&r, T0, 3), 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(changes[i].seq, expected[i]);
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 1);
    assert_int_equal(changes[0].seq, d);
    room_close(&r);
}

static void a_pending_enter_is_not_admitted_and_holds_up_its_own_lane_only(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    room_set_state(&r, EVENT_PAUSED);
    uint64_t held = enter_pending(&r, "a", 4, T0);
    uint64_t behind = enter(&r, "b", 4, T0);
    uint64_t other = enter(&r, "c", 8, T0);
    room_set_state(&r, EVENT_OPEN);
    assert_int_equal(look(&r, behind, T0).position, 2);
    assert_int_equal(admit(&r, T0), 1);
    assert_int_equal(changes[0].seq, other);
    queue_settle_enter(r.q, held, true);
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 2);
    assert_int_equal(changes[0].seq, held);
    assert_int_equal(changes[1].seq, behind);
    room_close(&r);
}

static void an_undone_enter_frees_the_user_and_the_place(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.max_active = 1;
    r.config.rules.max_waiting = 1;
    room_configure(&r);
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
    /* The expiry of who never was ends nobody. */
    assert_int_equal(queue_purge(r.q, T0 + 600 * SECOND, changes, ADMIT_MAX), 1);
    assert_int_equal(changes[0].seq, again);
    room_close(&r);
}

static void a_pending_admission_is_not_seen_and_undone_has_its_old_place(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 4);
    assert_int_equal(queue_admit(r.q, T0 + 500, changes, 3), 3);
    assert_int_equal(changes[0].waited_ms, 500);
    assert_int_equal(changes[0].expires_ms, T0 + 500 + 600 * SECOND);
    for (uint64_t seq = 1; seq <= 4; seq++) {
        assert_int_equal(status_of(&r, seq, T0), ENTRY_WAITING);
        assert_int_equal(look(&r, seq, T0).position, seq);
        assert_int_equal(look(&r, seq, T0).expires_ms, 0);
        assert_false(look(&r, seq, T0).pending);
    }
    assert_counts(&r, 4, 3);
    queue_settle_admit(r.q, 2, false);
    queue_settle_admit(r.q, 3, true);
    assert_counts(&r, 3, 2);
    assert_int_equal(look(&r, 2, T0).position, 2);
    assert_int_equal(status_of(&r, 3, T0), ENTRY_ACTIVE);
    assert_int_equal(look(&r, 4, T0).position, 3);
    /* The first is still on its way: were somebody else let in, and it refused, that would be an
     * inversion. */
    assert_int_equal(queue_admit(r.q, T0 + SECOND, changes, ADMIT_MAX), 0);
    queue_settle_admit(r.q, 1, false);
    assert_int_equal(queue_admit(r.q, T0 + SECOND, changes, ADMIT_MAX), 3);
    assert_int_equal(changes[0].seq, 1);
    assert_int_equal(changes[1].seq, 2);
    assert_int_equal(changes[2].seq, 4);
    room_close(&r);
}

static void who_leaves_while_being_admitted_gives_both_places_back(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 2);
    assert_int_equal(queue_admit(r.q, T0, changes, 1), 1);
    assert_true(queue_end(r.q, 1, ENTRY_LEFT));
    assert_counts(&r, 1, 0);
    queue_settle_admit(r.q, 1, true);
    assert_int_equal(status_of(&r, 1, T0), ENTRY_LEFT);
    assert_counts(&r, 1, 0);
    assert_int_equal(look(&r, 2, T0).position, 1);
    room_close(&r);
}

static void at_most_a_batch_per_interval_and_immediate_ones_count(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.entry_batch_size = 3;
    r.config.rules.entry_interval_s = 10;
    room_configure(&r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(status_of(&r, enter(&r, (const char *[]){"a", "b", "c"}[i], 8, T0), T0),
                         ENTRY_ACTIVE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            status_of(&r, enter(&r, (const char *[]){"d", "e", "f", "g"}[i], 8, T0), T0),
            ENTRY_WAITING);
    assert_int_equal(admit(&r, T0), 0);
    assert_int_equal(admit(&r, T0 + 10 * SECOND - 1), 0);
    assert_int_equal(admit(&r, T0 + 10 * SECOND), 3);
    assert_int_equal(admit(&r, T0 + 10 * SECOND), 0);
    assert_int_equal(admit(&r, T0 + 5 * SECOND), 0); /* a clock that steps back gives nothing */
    assert_int_equal(admit(&r, T0 + 19 * SECOND), 0);
    assert_int_equal(admit(&r, T0 + 20 * SECOND), 1);
    assert_int_equal(status_of(&r, enter(&r, "h", 8, T0 + 20 * SECOND), T0), ENTRY_ACTIVE);
    assert_int_equal(status_of(&r, enter(&r, "i", 8, T0 + 20 * SECOND), T0), ENTRY_ACTIVE);
    assert_int_equal(status_of(&r, enter(&r, "j", 8, T0 + 20 * SECOND), T0), ENTRY_WAITING);
    room_close(&r);
}

static void a_longer_interval_gives_no_second_batch_within_it(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    enter_waiting(&r, 100);
    r.config.rules.entry_batch_size = 10;
    room_configure(&r);
    assert_int_equal(admit(&r, T0 + 5 * SECOND), 10);
    r.config.rules.entry_interval_s = 10;
    room_configure(&r);
    assert_int_equal(admit(&r, T0 + 5 * SECOND), 0);
    assert_int_equal(admit(&r, T0 + 9 * SECOND), 0);
    assert_int_equal(admit(&r, T0 + 10 * SECOND), 10);
    room_close(&r);
}

static void one_admit_moves_a_thousand_at_the_most(void **state) {
    (void)state;
    struct room r;
    room_open(&r);
    r.config.rules.entry_batch_size = 5000;
    r.config.rules.max_active = 2500;
    enter_waiting(&r, 3000);
    assert_int_equal(admit_some(&r, T0, 3000), 1000);
    assert_int_equal(admit_some(&r, T0, 3000), 1000);
    assert_int_equal(changes[0].seq, 1001);
    assert_int_equal(admit_some(&r, T0, 3000), 500);
    assert_int_equal(admit_some(&r, T0, 3000), 0);
    room_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entering_again_keeps_the_place_trap_1),
        cmocka_unit_test(places_follow_numbers_not_names_or_clocks_trap_2),
        cmocka_unit_test(one_user_has_one_live_entry_trap_7),
        cmocka_unit_test(who_finds_nobody_waiting_is_active_with_its_expiry_at_once_trap_5),
        cmocka_unit_test(nobody_is_active_at_once_while_somebody_waits),
        cmocka_unit_test(the_caps_hold_with_what_is_pending_traps_4_and_11),
        cmocka_unit_test(with_no_waiting_places_one_is_active_at_once_or_refused),
        cmocka_unit_test(completion_leave_and_expiry_free_the_place_at_once_traps_11_and_12),
        cmocka_unit_test(expired_actives_are_purged_and_make_room_trap_6),
        cmocka_unit_test(a_purge_ends_no_more_than_it_can_report),
        cmocka_unit_test(an_expired_user_may_enter_before_any_purge),
        cmocka_unit_test(what_has_ended_stays_as_it_ended_trap_15),
        cmocka_unit_test(only_who_was_admitted_completes),
        cmocka_unit_test(who_completes_before_the_admission_is_settled_stays_completed),
        cmocka_unit_test(totals_tell_what_was_settled),
        cmocka_unit_test(an_admission_tells_what_its_entry_was_promised),
        cmocka_unit_test(an_unknown_entry_has_no_position_trap_18),
        cmocka_unit_test(lower_lanes_go_first_and_each_is_in_order),
        cmocka_unit_test(a_pending_enter_is_not_admitted_and_holds_up_its_own_lane_only),
        cmocka_unit_test(an_undone_enter_frees_the_user_and_the_place),
        cmocka_unit_test(a_pending_admission_is_not_seen_and_undone_has_its_old_place),
        cmocka_unit_test(who_leaves_while_being_admitted_gives_both_places_back),
        cmocka_unit_test(at_most_a_batch_per_interval_and_immediate_ones_count),
        cmocka_unit_test(a_longer_interval_gives_no_second_batch_within_it),
        cmocka_unit_test(one_admit_moves_a_thousand_at_the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
