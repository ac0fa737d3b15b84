#include "base/metrics_reservation.h"

#include <assert.h>

#include "base/metrics.h"

enum {
#define STRATEGY_NUMBER(X, symbol, word) NUMBER_##symbol,
    METERED_STRATEGY_MAP(STRATEGY_NUMBER, )
#undef STRATEGY_NUMBER
        STRATEGIES
};
static_assert(NUMBER_SLOT == 0 && RESERVATION_OUTCOME_HELD == 0, "rows are counted from these");

/* `first` is the row of the first strategy, of those that have one each. */
static void count_for(int strategy, enum counter first) {
    assert(strategy >= 0 && strategy < STRATEGIES);
    count((enum counter)((int)first + strategy), 1);
}

void count_reservation_attempt(int strategy) {
    count_for(strategy, COUNT_RESERVATION_ATTEMPTS_SLOT);
}

void count_reservation_outcome(int strategy, enum reservation_outcome o) {
    assert(strategy >= 0 && strategy < STRATEGIES && o < RESERVATION_OUTCOMES);
    int row = strategy * RESERVATION_OUTCOMES + (int)o;
    count((enum counter)(COUNT_RESERVATION_OUTCOMES_SLOT_HELD + row), 1);
}

void count_reservation_conflict(int strategy) {
    count_for(strategy, COUNT_RESERVATION_CONFLICTS_SLOT);
}

void count_reservation_retry(int strategy) {
    count_for(strategy, COUNT_RESERVATION_RETRIES_SLOT);
}

/* `first` is the row of the first strategy that locks. */
static void observe_for(int strategy, enum histogram first, uint64_t value) {
    static const int locking[] = {
#define LOCKING_NUMBER(X, symbol, word) NUMBER_##symbol,
        LOCKING_STRATEGY_MAP(LOCKING_NUMBER, )
#undef LOCKING_NUMBER
    };
    size_t i = 0;
    while (i < sizeof locking / sizeof locking[0] && locking[i] != strategy) i++;
    assert(i < sizeof locking / sizeof locking[0]);
    observe((enum histogram)((size_t)first + i), value);
}

void observe_lock_wait(int strategy, uint64_t us) {
    observe_for(strategy, HISTOGRAM_LOCK_WAIT_LOCK, us);
}

void observe_lock_hold(int strategy, uint64_t us) {
    observe_for(strategy, HISTOGRAM_LOCK_HOLD_LOCK, us);
}
