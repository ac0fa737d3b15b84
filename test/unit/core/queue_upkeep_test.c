#include "core/queue.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "queue_fixture.h"

/* ---- configuration and states ---- */

static void lowering_the_limits_evicts_no_user(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 20);
    assert_int_equal(queue_admit(r.q, T0, changes, 10), 10);
    for (uint64_t seq = 1; seq <= 10; seq++) queue_settle_admit(r.q, seq, true);
    r.config.rules.max_active = 5;
    r.config.rules.max_waiting = 5;
    queue_fixture_configure(&r);
    struct place p;
    assert_counts(&r, 10, 10);
    assert_int_equal(queue_enter(r.q, STR("x"), 8, T0, &p), ENTER_FULL);
    assert_int_equal(admit(&r, T0 + SECOND), 0);
    assert_counts(&r, 10, 10);
    for (uint64_t seq = 1; seq <= 6; seq++) assert_true(queue_end(r.q, seq, ENTRY_COMPLETED));
    assert_int_equal(admit(&r, T0 + SECOND), 1);
    assert_counts(&r, 9, 5);
    queue_fixture_close(&r);
}

/* ---- estimates ---- */

/* Ticks for that many seconds; one ACTIVE entry completes every `every_s`. */
static int64_t tick(struct queue_fixture *r, int64_t from_ms, int seconds, int every_s) {
    static uint64_t first_active;
    if (from_ms == T0) first_active = 1;
    for (int i = 0; i < seconds; i++, from_ms += SECOND) {
        admit(r, from_ms);
        if (every_s > 0 && i % every_s == 0) queue_end(r->q, first_active++, ENTRY_COMPLETED);
    }
    return from_ms;
}

static void an_estimate_follows_the_observed_rate_when_that_is_slower(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.max_active = 1;
    enter_waiting(&r, 1000);
    assert_true(queue_counts(r.q).rate == 0);
    /* One completes per second, so one per second is admitted, though the batch would be 50. */
    tick(&r, T0, 120, 1);
    assert_true(queue_counts(r.q).rate > 0.95 && queue_counts(r.q).rate < 1.05);
    uint64_t last = 1000;
    int64_t position = (int64_t)look(&r, last, T0).position;
    int64_t estimate = look(&r, last, T0).estimate_s;
    assert_true(estimate >= position * 95 / 100 && estimate <= position * 105 / 100);
    queue_fixture_close(&r);
}

static void the_rate_is_steady_when_intervals_are_longer_than_ticks(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.entry_interval_s = 10;
    r.config.rules.max_active = 100000;
    enter_waiting(&r, 2000);
    for (int64_t now = T0; now < T0 + 100 * SECOND; now += SECOND) {
        admit(&r, now);
        if (now >= T0 + 20 * SECOND)
            assert_true(queue_counts(r.q).rate > 4.9 && queue_counts(r.q).rate < 5.1);
    }
    queue_fixture_close(&r);
}

static void an_estimate_stays_sane_when_admission_stalls_or_pauses(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.max_active = 60;
    r.config.rules.active_ttl_s = 86400;
    enter_waiting(&r, 1000);
    int64_t now = tick(&r, T0, 3, 0);
    double before = queue_counts(r.q).rate;
    assert_true(before > 0);
    /* A pause says nothing about the rate. */
    queue_fixture_set_state(&r, EVENT_PAUSED);
    now = tick(&r, now, 100, 0);
    assert_true(queue_counts(r.q).rate == before);
    queue_fixture_set_state(&r, EVENT_OPEN);
    /* A full fixture does, until the estimate is as good as for ever. */
    int64_t last = 0;
    for (int i = 0; i < 50; i++) {
        now = tick(&r, now, 100, 0);
        int64_t estimate = look(&r, 1000, now).estimate_s;
        assert_true(estimate >= last && estimate <= 30 * 86400);
        last = estimate;
    }
    assert_int_equal(last, 30 * 86400);
    queue_fixture_close(&r);
}

/* ---- grace ---- */

static void a_reconcile_run_continues_where_the_last_one_stopped(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 10000);
    int64_t later = T0 + 301 * SECOND;
    tick_until(&r, later);
    assert_int_equal(queue_sweep(r.q, later, 0, changes, 10), 0);
    size_t ended = 0;
    for (int i = 0; i < 1000; i++) {
        size_t now = queue_sweep(r.q, later, 20, changes, 15);
        assert_true(now <= 15);
        if (now > 0) assert_int_equal(changes[0].seq, ended + 1);
        ended += now;
    }
    assert_int_equal(ended, 10000);
    assert_counts(&r, 0, 0);
    queue_fixture_close(&r);
}

static void grace_starts_again_after_a_recovery_or_a_closed_gate(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 2);
    queue_restart_grace(r.q, T0 + 200 * SECOND);
    assert_int_equal(sweep(&r, T0 + 500 * SECOND), 0);
    /* Waiting entries are kept while none is admitted. */
    const enum event_state closed[] = {EVENT_PAUSED, EVENT_CLOSED, EVENT_DRAFT};
    int64_t now = T0 + 500 * SECOND;
    for (int i = 0; i < 3; i++) {
        queue_fixture_set_state(&r, closed[i]);
        now += 1000 * SECOND;
        assert_int_equal(sweep(&r, now), 0);
        queue_fixture_set_state(&r, EVENT_OPEN);
        assert_int_equal(sweep(&r, now + 300 * SECOND), 0);
    }
    queue_fixture_set_state(&r, EVENT_DRAINING);
    assert_int_equal(sweep(&r, now + 301 * SECOND), 2);
    queue_fixture_close(&r);
}

/* ---- recovery and memory ---- */

/* Allocated bytes; ASan replaces the allocator. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void) {
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void ended_entries_are_known_until_those_around_have_ended_too(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 20000);
    struct place p;
    for (uint64_t seq = 1; seq <= 20000; seq++)
        if (seq != 6000) assert_true(queue_end(r.q, seq, ENTRY_LEFT));
    assert_int_equal(status_of(&r, 5999, T0), ENTRY_LEFT);
    assert_int_equal(status_of(&r, 6001, T0), ENTRY_LEFT);
    assert_int_equal(status_of(&r, 20000, T0), ENTRY_LEFT); /* the newest are always known */
    assert_false(queue_look(r.q, 1, T0, &p));
    assert_false(queue_look(r.q, 15000, T0, &p));
    assert_int_equal(look(&r, 6000, T0).position, 1);
    assert_true(queue_end(r.q, 6000, ENTRY_LEFT));
    assert_false(queue_look(r.q, 6000, T0, &p));
    queue_fixture_close(&r);
}

static void a_long_lived_queue_uses_memory_for_its_current_users_only(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.entry_batch_size = 100000;
    r.config.rules.active_ttl_s = 86400;
    queue_fixture_configure(&r);
    size_t before = 0;
    for (int i = 1; i <= 500000; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        uint64_t seq = enter(&r, user, 8, T0 + i);
        assert_true(queue_end(r.q, seq, ENTRY_COMPLETED));
        if (i == 20000) before = allocated();
    }
    assert_true(allocated() < before + 300000);
    /* Numbers that are skipped leave nothing behind either. */
    for (uint64_t n = 1; n <= 1000; n++) {
        assert_true(queue_end(r.q, enter(&r, "ann", 8, T0 + 500000), ENTRY_COMPLETED));
        queue_skip_to(r.q, 1000000 + n * 10000);
    }
    assert_true(allocated() < before + 300000);
    queue_fixture_close(&r);
}

static void users_are_distinguished_whatever_their_names(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enum { MANY = 60000 };
    enter_waiting(&r, MANY);
    char longest[64];
    memset(longest, 'x', sizeof longest);
    struct place p;
    assert_int_equal(queue_enter(r.q, (str){longest, 64}, 8, T0, &p), ENTER_TAKEN);
    assert_int_equal(queue_enter(r.q, (str){longest, 63}, 8, T0, &p), ENTER_TAKEN);
    assert_true(str_eq(queue_user(r.q, MANY + 1), (str){longest, 64}));
    for (int i = 1; i <= MANY; i += 2) assert_true(queue_end(r.q, (uint64_t)i, ENTRY_LEFT));
    for (int i = 1; i <= MANY; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        assert_int_equal(queue_find(r.q, str_of(user)), i % 2 == 0 ? i : 0);
    }
    assert_int_equal(queue_find(r.q, (str){longest, 64}), MANY + 1);
    queue_fixture_close(&r);
}

static void when_grace_becomes_shorter_silence_is_measured_again(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 2);
    assert_int_equal(sweep(&r, T0 + 200 * SECOND), 0);
    r.config.rules.grace_s = 10;
    queue_fixture_configure(&r);
    assert_int_equal(sweep(&r, T0 + 201 * SECOND), 0);
    assert_int_equal(sweep(&r, T0 + 210 * SECOND), 0);
    assert_int_equal(sweep(&r, T0 + 210 * SECOND + 1), 2);
    queue_fixture_close(&r);
}

static void a_user_whose_requests_could_not_be_served_does_not_count_as_silent(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    enter_waiting(&r, 2);
    assert_int_equal(sweep(&r, T0 + 100 * SECOND), 0);
    /* The process stood still, or the clock was set forward. */
    int64_t later = T0 + 1000 * SECOND;
    assert_int_equal(queue_sweep(r.q, later, 100000, changes, ADMIT_MAX), 0);
    r.swept_ms = later;
    assert_int_equal(sweep(&r, later + 300 * SECOND), 0);
    assert_int_equal(sweep(&r, later + 300 * SECOND + 1), 2);
    queue_fixture_close(&r);
}

static void a_user_who_is_not_admitted_leaves_the_share_of_the_batch(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.entry_batch_size = 3;
    r.config.rules.entry_interval_s = 3600;
    enter_waiting(&r, 9);
    assert_int_equal(queue_admit(r.q, T0, changes, ADMIT_MAX), 3);
    queue_settle_admit(r.q, 1, false); /* the disk was full */
    queue_settle_admit(r.q, 2, true);
    assert_true(queue_end(r.q, 3, ENTRY_LEFT)); /* before the admission is settled */
    assert_int_equal(queue_admit(r.q, T0 + SECOND, changes, ADMIT_MAX), 2);
    assert_int_equal(changes[0].seq, 1);
    /* Not into the next interval. */
    queue_admit(r.q, T0 + 3600 * SECOND, changes, ADMIT_MAX);
    queue_settle_admit(r.q, 1, true);
    queue_settle_admit(r.q, 4, true);
    assert_int_equal(admit_some(&r, T0 + 3600 * SECOND, 2), 2);
    assert_int_equal(admit(&r, T0 + 3600 * SECOND), 1);
    assert_int_equal(admit(&r, T0 + 3600 * SECOND), 0);
    queue_fixture_close(&r);

    queue_fixture_open(&r);
    r.config.rules.entry_batch_size = 1;
    queue_fixture_configure(&r);
    queue_settle_enter(r.q, enter_pending(&r, "ann", 8, T0), false);
    assert_int_equal(status_of(&r, enter(&r, "bob", 8, T0), T0), ENTRY_ACTIVE);
    assert_int_equal(status_of(&r, enter(&r, "cy", 8, T0), T0), ENTRY_WAITING);
    queue_fixture_close(&r);
}

static void a_clock_that_is_set_back_does_not_stop_admission(void **state) {
    (void)state;
    struct queue_fixture r;
    queue_fixture_open(&r);
    r.config.rules.entry_batch_size = 2;
    enter_waiting(&r, 10);
    assert_int_equal(admit(&r, T0 + 600 * SECOND), 2);
    /* A thread whose clock was read a moment before: that interval is over. */
    assert_int_equal(admit(&r, T0 + 599 * SECOND), 0);
    assert_int_equal(admit(&r, T0), 2);
    assert_int_equal(admit(&r, T0), 0);
    assert_int_equal(admit(&r, T0 + SECOND), 2);
    assert_int_equal(admit(&r, T0 + 2 * SECOND), 2);
    /* The rate is measured again. */
    assert_true(queue_counts(r.q).rate > 1.9);
    queue_fixture_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_whose_requests_could_not_be_served_does_not_count_as_silent),
        cmocka_unit_test(a_user_who_is_not_admitted_leaves_the_share_of_the_batch),
        cmocka_unit_test(when_grace_becomes_shorter_silence_is_measured_again),
        cmocka_unit_test(a_clock_that_is_set_back_does_not_stop_admission),
        cmocka_unit_test(lowering_the_limits_evicts_no_user),
        cmocka_unit_test(an_estimate_follows_the_observed_rate_when_that_is_slower),
        cmocka_unit_test(the_rate_is_steady_when_intervals_are_longer_than_ticks),
        cmocka_unit_test(an_estimate_stays_sane_when_admission_stalls_or_pauses),
        cmocka_unit_test(a_reconcile_run_continues_where_the_last_one_stopped),
        cmocka_unit_test(grace_starts_again_after_a_recovery_or_a_closed_gate),
        cmocka_unit_test(ended_entries_are_known_until_those_around_have_ended_too),
        cmocka_unit_test(a_long_lived_queue_uses_memory_for_its_current_users_only),
        cmocka_unit_test(users_are_distinguished_whatever_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
