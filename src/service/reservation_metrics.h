/*
 * reservation_metrics: the metrics of reservations that have one series per strategy. Counters and
 * histograms are kept by base/metrics.h, in the numbers that it leaves free; this module gives them
 * their names and labels. The strategy `queue` decides nothing itself and has no series.
 * From any thread.
 */
#ifndef ADMITONE_SERVICE_RESERVATION_METRICS_H
#define ADMITONE_SERVICE_RESERVATION_METRICS_H

#include "base/metrics.h"
#include "core/reservation.h"

/* X(symbol, word): how a request to hold seats ended. */
#define RESERVATION_OUTCOME_MAP(X)                                                                 \
    X(HELD, "held")                                                                                \
    X(REPLAYED, "replayed")                                                                        \
    X(SEAT_TAKEN, "seat_taken")                                                                    \
    X(SOLD_OUT, "sold_out")                                                                        \
    X(LIMIT_EXCEEDED, "limit_exceeded")                                                            \
    X(NOT_ACTIVE, "not_active")                                                                    \
    X(CONFLICT, "conflict")                                                                        \
    X(LOCK_TIMEOUT, "lock_timeout")                                                                \
    X(LOCK_LOST, "lock_lost")                                                                      \
    X(REFUSED, "refused") /* by anything else in the request or the section */                     \
    X(FAILED, "failed")   /* 5xx */

enum reservation_outcome {
#define OUTCOME_ENUM(symbol, word) RESERVATION_OUTCOME_##symbol,
    RESERVATION_OUTCOME_MAP(OUTCOME_ENUM)
#undef OUTCOME_ENUM
        RESERVATION_OUTCOMES
};

/* Numbers for counter_total: each family begins with its first strategy. */
enum {
    COUNT_RESERVATION_ATTEMPTS = COUNTERS,
    COUNT_RESERVATION_OUTCOMES = COUNT_RESERVATION_ATTEMPTS + STRATEGY_QUEUE, /* by strategy */
    COUNT_RESERVATION_CONFLICTS =
        COUNT_RESERVATION_OUTCOMES + STRATEGY_QUEUE * RESERVATION_OUTCOMES,
    COUNT_RESERVATION_RETRIES = COUNT_RESERVATION_CONFLICTS + STRATEGY_QUEUE,
    COUNT_RESERVATION_END = COUNT_RESERVATION_RETRIES + STRATEGY_QUEUE
};

/* `strategy` is below STRATEGY_QUEUE. */
void count_reservation_attempt(int strategy);
void count_reservation_outcome(int strategy, enum reservation_outcome o);
void count_reservation_conflict(int strategy);
void count_reservation_retry(int strategy);
/* `strategy` is one that locks. */
void observe_lock_wait(int strategy, uint64_t us);
void observe_lock_hold(int strategy, uint64_t us);

/* Adds these metrics in the Prometheus text format. */
void reservation_metrics_render(struct buf *out);

#endif
