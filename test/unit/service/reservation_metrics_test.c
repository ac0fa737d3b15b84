#include "service/reservation_metrics.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The tests read the text that a scrape gets. */

static const char *const outcome_words[] = {
    "held",     "replayed",     "seat_taken", "sold_out", "limit_exceeded", "not_active",
    "conflict", "lock_timeout", "lock_lost",  "refused",  "failed"};

static const enum strategy locking[] = {STRATEGY_LOCK, STRATEGY_ADAPTIVE,
                                        STRATEGY_DISTRIBUTED_LOCK};
#define LOCKING (sizeof locking / sizeof locking[0])

/* The value of the series, which stands in the text exactly once. */
static double value_of(const char *series) {
    struct buf text = {0};
    reservation_metrics_render(&text);
    char wanted[160];
    snprintf(wanted, sizeof wanted, "\n%s ", series);
    const char *at = strstr(buf_cstr(&text), wanted);
    if (at == NULL) fail_msg("there is no %s", series);
    assert_null(strstr(at + 1, wanted));
    double value = strtod(at + strlen(wanted), NULL);
    buf_deinit(&text);
    return value;
}

static double value_for(const char *name, enum strategy s) {
    char series[128];
    snprintf(series, sizeof series, "%s{strategy=\"%s\"}", name, strategy_words[s].at);
    return value_of(series);
}

static double outcomes_for(enum strategy s, size_t outcome) {
    char series[128];
    snprintf(series, sizeof series,
             "admitone_reservation_outcomes_total{strategy=\"%s\",outcome=\"%s\"}",
             strategy_words[s].at, outcome_words[outcome]);
    return value_of(series);
}

static uint64_t total_of_all_counters(void) {
    uint64_t total = 0;
    for (unsigned c = 0; c < COUNTERS_MAX; c++) total += counter_total(c);
    return total;
}

/* Each strategy is counted so often that no two counts are alike. */
static void each_strategy_is_counted_under_the_word_that_core_has_for_it(void **state) {
    (void)state;
    static const struct {
        const char *name;
        void (*count)(int strategy);
    } rows[] = {
        {"admitone_reservation_attempts_total", count_reservation_attempt},
        {"admitone_reservation_conflicts_total", count_reservation_conflict},
        {"admitone_reservation_retries_total", count_reservation_retry},
    };
    uint64_t counted = 0;
    uint64_t before = total_of_all_counters();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int s = 0; s < STRATEGY_QUEUE; s++)
            for (size_t n = 0; n < 10 * (i + 1) + (size_t)s; n++, counted++) rows[i].count(s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int s = 0; s < STRATEGY_QUEUE; s++)
            assert_true(value_for(rows[i].name, (enum strategy)s) ==
                        (double)(10 * (i + 1) + (size_t)s));
    assert_int_equal(total_of_all_counters() - before, counted);
}

static void each_outcome_of_each_strategy_is_a_series_of_its_own(void **state) {
    (void)state;
    assert_int_equal(RESERVATION_OUTCOMES, sizeof outcome_words / sizeof outcome_words[0]);
    for (int s = 0; s < STRATEGY_QUEUE; s++)
        for (size_t o = 0; o < RESERVATION_OUTCOMES; o++)
            for (size_t n = 0; n <= (size_t)s * RESERVATION_OUTCOMES + o; n++)
                count_reservation_outcome(s, (enum reservation_outcome)o);
    for (int s = 0; s < STRATEGY_QUEUE; s++)
        for (size_t o = 0; o < RESERVATION_OUTCOMES; o++)
            assert_true(outcomes_for((enum strategy)s, o) ==
                        (double)((size_t)s * RESERVATION_OUTCOMES + o + 1));
    /* The symbols mean what the words say, at both ends and in between. */
    double lost = outcomes_for(STRATEGY_LOCK, 8);
    count_reservation_outcome(STRATEGY_LOCK, RESERVATION_OUTCOME_LOCK_LOST);
    assert_true(outcomes_for(STRATEGY_LOCK, 8) == lost + 1);
    double failed = outcomes_for(STRATEGY_DISTRIBUTED_LOCK, 10);
    count_reservation_outcome(STRATEGY_DISTRIBUTED_LOCK, RESERVATION_OUTCOME_FAILED);
    assert_true(outcomes_for(STRATEGY_DISTRIBUTED_LOCK, 10) == failed + 1);
}

static void waits_and_holds_of_locks_are_apart_and_in_microseconds(void **state) {
    (void)state;
    for (size_t i = 0; i < LOCKING; i++) {
        observe_lock_wait((int)locking[i], (i + 1) * 1000000);
        observe_lock_hold((int)locking[i], (i + 1) * 10000000);
    }
    for (size_t i = 0; i < LOCKING; i++) {
        assert_true(value_for("admitone_lock_wait_seconds_count", locking[i]) == 1);
        assert_true(value_for("admitone_lock_hold_seconds_count", locking[i]) == 1);
        double wait_s = value_for("admitone_lock_wait_seconds_sum", locking[i]);
        double hold_s = value_for("admitone_lock_hold_seconds_sum", locking[i]);
        assert_float_equal(wait_s, (double)(i + 1), 1e-6);
        assert_float_equal(hold_s, (double)(10 * (i + 1)), 1e-6);
    }
    const char *below = "admitone_lock_wait_seconds_bucket{strategy=\"lock\",le=\"0.524287\"}";
    const char *above = "admitone_lock_wait_seconds_bucket{strategy=\"lock\",le=\"1.048575\"}";
    assert_true(value_of(below) == 0);
    assert_true(value_of(above) == 1);
}

static void outcome_held(int strategy) {
    count_reservation_outcome(strategy, RESERVATION_OUTCOME_HELD);
}

static void outcome_too_high(int strategy) {
    count_reservation_outcome(strategy, RESERVATION_OUTCOMES);
}

static void wait_for_lock(int strategy) {
    observe_lock_wait(strategy, 1);
}

static void hold_lock(int strategy) {
    observe_lock_hold(strategy, 1);
}

static bool aborts(void (*use)(int strategy), int strategy) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO); /* the message of assert is expected here */
        use(strategy);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* It would be counted as something else. */
static void a_code_without_a_row_is_a_bug(void **state) {
    (void)state;
    void (*const all[])(int) = {count_reservation_attempt, count_reservation_conflict,
                                count_reservation_retry, outcome_held};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_true(aborts(all[i], -1));
        assert_true(aborts(all[i], STRATEGY_QUEUE));
        assert_false(aborts(all[i], STRATEGY_DISTRIBUTED_LOCK));
    }
    assert_true(aborts(outcome_too_high, STRATEGY_SLOT));
    for (int s = -1; s <= STRATEGY_QUEUE; s++) {
        bool locks = false;
        for (size_t i = 0; i < LOCKING; i++) locks |= s == (int)locking[i];
        assert_int_equal(aborts(wait_for_lock, s), !locks);
        assert_int_equal(aborts(hold_lock, s), !locks);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_strategy_is_counted_under_the_word_that_core_has_for_it),
        cmocka_unit_test(each_outcome_of_each_strategy_is_a_series_of_its_own),
        cmocka_unit_test(waits_and_holds_of_locks_are_apart_and_in_microseconds),
        cmocka_unit_test(a_code_without_a_row_is_a_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
