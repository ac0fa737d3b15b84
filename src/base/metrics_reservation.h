/*
 * metrics_reservation: the rows of base/metrics.h that tell how reservations go, most of them once
 * per strategy, and how to count in those. A strategy is the number it has in enum strategy of
 * core/reservation.h, which base may not include; `queue` decides nothing itself and has no rows.
 * What has one row only is counted with count() and observe().
 */
#ifndef ADMITONE_BASE_METRICS_RESERVATION_H
#define ADMITONE_BASE_METRICS_RESERVATION_H

#include <stdint.h>

/* ROW(X, symbol, word), in the order of enum strategy. */
#define METERED_STRATEGY_MAP(ROW, X)                                                               \
    ROW(X, SLOT, "slot")                                                                           \
    ROW(X, LOCK, "lock")                                                                           \
    ROW(X, ADAPTIVE, "adaptive")                                                                   \
    ROW(X, OPTIMISTIC, "optimistic")                                                               \
    ROW(X, PESSIMISTIC, "pessimistic")                                                             \
    ROW(X, DISTRIBUTED_LOCK, "distributed-lock")

/* Those of them that take named locks. */
#define LOCKING_STRATEGY_MAP(ROW, X)                                                               \
    ROW(X, LOCK, "lock")                                                                           \
    ROW(X, ADAPTIVE, "adaptive")                                                                   \
    ROW(X, DISTRIBUTED_LOCK, "distributed-lock")

/* ROW(symbol, word, whatever else was given): how a request to hold seats ended. */
#define RESERVATION_OUTCOME_MAP(ROW, ...)                                                          \
    ROW(HELD, "held", __VA_ARGS__)                                                                 \
    ROW(REPLAYED, "replayed", __VA_ARGS__)                                                         \
    ROW(SEAT_TAKEN, "seat_taken", __VA_ARGS__)                                                     \
    ROW(SOLD_OUT, "sold_out", __VA_ARGS__)                                                         \
    ROW(LIMIT_EXCEEDED, "limit_exceeded", __VA_ARGS__)                                             \
    ROW(NOT_ACTIVE, "not_active", __VA_ARGS__)                                                     \
    ROW(CONFLICT, "conflict", __VA_ARGS__)                                                         \
    ROW(LOCK_TIMEOUT, "lock_timeout", __VA_ARGS__)                                                 \
    ROW(LOCK_LOST, "lock_lost", __VA_ARGS__)                                                       \
    ROW(REFUSED, "refused", __VA_ARGS__) /* by anything else in the request or the section */      \
    ROW(FAILED, "failed", __VA_ARGS__)   /* 5xx */

enum reservation_outcome {
#define OUTCOME_ENUM(symbol, ...) RESERVATION_OUTCOME_##symbol,
    RESERVATION_OUTCOME_MAP(OUTCOME_ENUM, )
#undef OUTCOME_ENUM
        RESERVATION_OUTCOMES
};

/* `strategy` is below STRATEGY_QUEUE. */
void count_reservation_attempt(int strategy);
void count_reservation_outcome(int strategy, enum reservation_outcome o);
void count_reservation_conflict(int strategy);
void count_reservation_retry(int strategy);
/* `strategy` is one that locks. */
void observe_lock_wait(int strategy, uint64_t us);
void observe_lock_hold(int strategy, uint64_t us);

/* The rows, as base/metrics.h has them. Each strategy's stand where its number says, and its
 * outcomes together: metrics_reservation.c counts on it. */
#define ATTEMPTS_ROW(X, symbol, word)                                                              \
    X(RESERVATION_ATTEMPTS_##symbol, "admitone_reservation_attempts_total",                        \
      "strategy=\"" word "\"", "Requests to hold seats")
#define OUTCOME_ROW(outcome, outcome_word, X, symbol, word)                                        \
    X(RESERVATION_OUTCOMES_##symbol##_##outcome, "admitone_reservation_outcomes_total",            \
      "strategy=\"" word "\",outcome=\"" outcome_word "\"", "How requests to hold seats ended")
#define OUTCOME_ROWS(X, symbol, word) RESERVATION_OUTCOME_MAP(OUTCOME_ROW, X, symbol, word)
#define CONFLICTS_ROW(X, symbol, word)                                                             \
    X(RESERVATION_CONFLICTS_##symbol, "admitone_reservation_conflicts_total",                      \
      "strategy=\"" word "\"", "Seats changed or taken by another request between read and write")
#define RETRIES_ROW(X, symbol, word)                                                               \
    X(RESERVATION_RETRIES_##symbol, "admitone_reservation_retries_total", "strategy=\"" word "\"", \
      "Retries of requests to hold seats")
#define LOCK_WAIT_ROW(X, symbol, word)                                                             \
    X(LOCK_WAIT_##symbol, "admitone_lock_wait_seconds", "strategy=\"" word "\"", 1e-6,             \
      "Time until a lock was acquired or its wait timed out")
#define LOCK_HOLD_ROW(X, symbol, word)                                                             \
    X(LOCK_HOLD_##symbol, "admitone_lock_hold_seconds", "strategy=\"" word "\"", 1e-6,             \
      "Time a lock was held")

#define RESERVATION_COUNTER_MAP(X)                                                                 \
    METERED_STRATEGY_MAP(ATTEMPTS_ROW, X)                                                          \
    METERED_STRATEGY_MAP(OUTCOME_ROWS, X)                                                          \
    METERED_STRATEGY_MAP(CONFLICTS_ROW, X)                                                         \
    METERED_STRATEGY_MAP(RETRIES_ROW, X)                                                           \
    X(RESERVATION_GUARD_REFUSALS, "admitone_reservation_guard_refusals_total", "",                 \
      "Seats offered by the hot store that were taken in the ledger")                              \
    X(RESERVATION_SOLD_OUT_ANSWERS, "admitone_reservation_sold_out_answers_total", "",             \
      "Requests answered with sold_out")                                                           \
    X(RESERVATION_CONFIRMS, "admitone_reservation_confirms_total", "", "Holds confirmed")          \
    X(RESERVATION_CANCELS, "admitone_reservation_cancels_total", "",                               \
      "Reservations cancelled, confirmed ones included")                                           \
    X(RESERVATION_EXPIRIES, "admitone_reservation_expiries_total", "", "Holds that expired")       \
    X(ADAPTIVE_SWITCHES_SLOT, "admitone_adaptive_switches_total", "to=\"slot\"",                   \
      "Changes of an adaptive section between lock and slot")                                      \
    X(ADAPTIVE_SWITCHES_LOCK, "admitone_adaptive_switches_total", "to=\"lock\"", "")

#define RESERVATION_HISTOGRAM_MAP(X)                                                               \
    LOCKING_STRATEGY_MAP(LOCK_WAIT_ROW, X)                                                         \
    LOCKING_STRATEGY_MAP(LOCK_HOLD_ROW, X)                                                         \
    X(SLOT_CLAIM_SECONDS, "admitone_slot_claim_seconds", "", 1e-9,                                 \
      "Duration of a claim of seats in the hot store")

#endif
