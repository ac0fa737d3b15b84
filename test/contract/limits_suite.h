/*
 * limits_suite: the contract of port/limits.h as tests, for every adapter: as one node sees it. A
 * test program defines how the limits are opened and how pending callbacks are run.
 */
#ifndef ADMITONE_TEST_CONTRACT_LIMITS_SUITE_H
#define ADMITONE_TEST_CONTRACT_LIMITS_SUITE_H

#include "port/limits.h"

/* The first time of the suite. */
#define LIMITS_SUITE_T0 INT64_C(1700002800000000000)

struct limits_adapter {
    /* With nothing taken; *fixture is the adapter's own. */
    struct limits *(*open)(void **fixture, const struct limit_rules *rules);
    void (*close)(void *fixture);
    /* Lets callbacks run, for a short while. */
    void (*run_callbacks)(void *fixture);
};

/* Returns how many tests failed. */
int limits_suite_run(const struct limits_adapter *adapter);

#endif
