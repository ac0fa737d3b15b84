/*
 * locks_suite: the contract of port/locks.h as tests, for every adapter. A test program defines how
 * its store is opened and how pending callbacks are run, and calls the suite. The tests do not
 * depend on the inside of an adapter.
 */
#ifndef ADMITONE_TEST_CONTRACT_LOCKS_SUITE_H
#define ADMITONE_TEST_CONTRACT_LOCKS_SUITE_H

#include "port/locks.h"

/* The first time of the suites. No operation has an earlier time. */
#define LOCKS_SUITE_T0 INT64_C(1700002800000)

struct locks_adapter {
    /* A store with no lock taken, in that epoch; *fixture is the adapter's own. */
    struct locks *(*open)(void **fixture, uint32_t epoch);
    void (*close)(void *fixture);
    /* Around the operations of every thread, the test's own too. */
    void (*thread_begins)(void);
    void (*thread_ends)(void);
    /* Lets callbacks of the calling thread run, for a short while. */
    void (*run_callbacks)(void);
};

/* Each runs its tests, and returns how many failed: steps and threads; seeded random histories
 * against a model (LOCKS_PORT_SEED in the environment replays one). */
int locks_suite_run(const struct locks_adapter *adapter);
int locks_model_suite_run(const struct locks_adapter *adapter);

#endif
