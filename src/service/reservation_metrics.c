/* Counting and rendering of the metrics that have one series per strategy. */
#include "service/reservation_metrics.h"

#include <assert.h>
#include <stdio.h>

/* The strategies that take named locks. */
static const enum strategy locking[] = {STRATEGY_LOCK, STRATEGY_ADAPTIVE,
                                        STRATEGY_DISTRIBUTED_LOCK};
#define LOCKING (sizeof locking / sizeof locking[0])

enum {
    HISTOGRAM_LOCK_WAIT = HISTOGRAMS,
    HISTOGRAM_LOCK_HOLD = HISTOGRAM_LOCK_WAIT + LOCKING,
    HISTOGRAM_LOCK_END = HISTOGRAM_LOCK_HOLD + LOCKING
};
static_assert(COUNT_RESERVATION_END <= COUNTERS_MAX, "base/metrics has room for the counters");
static_assert(HISTOGRAM_LOCK_END <= HISTOGRAMS_MAX, "base/metrics has room for the histograms");

static void count_by_strategy(unsigned first, int strategy) {
    assert(strategy >= 0 && strategy < STRATEGY_QUEUE);
    count(first + (unsigned)strategy, 1);
}

void count_reservation_attempt(int strategy) {
    count_by_strategy(COUNT_RESERVATION_ATTEMPTS, strategy);
}

void count_reservation_outcome(int strategy, enum reservation_outcome o) {
    assert(strategy >= 0 && strategy < STRATEGY_QUEUE && o < RESERVATION_OUTCOMES);
    count(COUNT_RESERVATION_OUTCOMES + (unsigned)strategy * RESERVATION_OUTCOMES + o, 1);
}

void count_reservation_conflict(int strategy) {
    count_by_strategy(COUNT_RESERVATION_CONFLICTS, strategy);
}

void count_reservation_retry(int strategy) {
    count_by_strategy(COUNT_RESERVATION_RETRIES, strategy);
}

static void observe_by_strategy(unsigned first, int strategy, uint64_t value) {
    unsigned i = 0;
    while (i < LOCKING && (int)locking[i] != strategy) i++;
    assert(i < LOCKING);
    observe(first + i, value);
}

void observe_lock_wait(int strategy, uint64_t us) {
    observe_by_strategy(HISTOGRAM_LOCK_WAIT, strategy, us);
}

void observe_lock_hold(int strategy, uint64_t us) {
    observe_by_strategy(HISTOGRAM_LOCK_HOLD, strategy, us);
}

/* `strategy="slot"`, and the outcome too where `outcome` is not NULL. */
static const char *render_labels(char out[80], unsigned strategy, const char *outcome) {
    snprintf(out, 80, "strategy=\"%s\"%s%s%s", strategy_words[strategy].at,
             outcome == NULL ? "" : ",outcome=\"", outcome == NULL ? "" : outcome,
             outcome == NULL ? "" : "\"");
    return out;
}

static void render_counters(struct buf *out, const char *name, const char *help, unsigned first) {
    char labels[80];
    metrics_head(out, name, "counter", help);
    for (unsigned s = 0; s < STRATEGY_QUEUE; s++)
        metrics_value(out, name, render_labels(labels, s, NULL), (int64_t)counter_total(first + s));
}

static void render_outcomes(struct buf *out) {
    static const char *const words[] = {
#define OUTCOME_WORD(symbol, word) word,
        RESERVATION_OUTCOME_MAP(OUTCOME_WORD)
#undef OUTCOME_WORD
    };
    static const char name[] = "admitone_reservation_outcomes_total";
    char labels[80];
    metrics_head(out, name, "counter", "How requests to hold seats ended");
    for (unsigned i = 0; i < STRATEGY_QUEUE * RESERVATION_OUTCOMES; i++) {
        render_labels(labels, i / RESERVATION_OUTCOMES, words[i % RESERVATION_OUTCOMES]);
        metrics_value(out, name, labels, (int64_t)counter_total(COUNT_RESERVATION_OUTCOMES + i));
    }
}

static void render_histograms(struct buf *out, const char *name, const char *help, unsigned first) {
    char labels[80];
    metrics_head(out, name, "histogram", help);
    for (unsigned i = 0; i < LOCKING; i++)
        metrics_histogram(out, name, render_labels(labels, locking[i], NULL), 1e-6, first + i);
}

void reservation_metrics_render(struct buf *out) {
    render_counters(out, "admitone_reservation_attempts_total", "Requests to hold seats",
                    COUNT_RESERVATION_ATTEMPTS);
    render_outcomes(out);
    render_counters(out, "admitone_reservation_conflicts_total",
                    "Seats changed or taken by another request between read and write",
                    COUNT_RESERVATION_CONFLICTS);
    render_counters(out, "admitone_reservation_retries_total", "Retries of requests to hold seats",
                    COUNT_RESERVATION_RETRIES);
    render_histograms(out, "admitone_lock_wait_seconds",
                      "Time until a lock was acquired or its wait timed out", HISTOGRAM_LOCK_WAIT);
    render_histograms(out, "admitone_lock_hold_seconds", "Time a lock was held",
                      HISTOGRAM_LOCK_HOLD);
}
