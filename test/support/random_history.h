/*
 * random_history: what the tests share that compare random histories with a model: the seed and the
 * step, chance, and CHECK, whose failure says how to replay it. One history at a time, so they are
 * variables of the file that includes this; REPLAY names the environment variable with the seed.
 */
#ifndef ADMITONE_TEST_RANDOM_HISTORY_H
#define ADMITONE_TEST_RANDOM_HISTORY_H

#ifndef REPLAY
#error "REPLAY is the name of the variable that replays a seed"
#endif

#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "splitmix.h"

static uint64_t seed;
static int step;
static uint64_t random_state;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, step %d: %s (replay: " REPLAY "=%llu)", (unsigned long long)seed, \
                     step, #condition, (unsigned long long)seed);                                  \
    } while (0)

/* From `low` to `high`, both included. */
static inline int64_t between(int64_t low, int64_t high) {
    return low + (int64_t)(next_random(&random_state) % (uint64_t)(high - low + 1));
}

static inline bool one_in(int64_t n) {
    return between(1, n) == 1;
}

/* The history that is to be replayed; or those of the first seeds, and one that is always new. */
static inline void run_histories(uint64_t seeds, void (*run)(uint64_t seed)) {
    const char *wanted = getenv(REPLAY);
    if (wanted != NULL) {
        run(strtoull(wanted, NULL, 10));
        return;
    }
    for (uint64_t s = 1; s <= seeds; s++) run(s);
    run((uint64_t)clock_wall_ms());
}

#endif
