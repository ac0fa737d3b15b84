/*
 * feed_suite: the contract of port/feed.h as tests, for every adapter alike.
 */
#ifndef ADMITONE_TEST_CONTRACT_FEED_SUITE_H
#define ADMITONE_TEST_CONTRACT_FEED_SUITE_H

#include "ledger_suite.h"
#include "port/feed.h"

struct feed_adapter {
    struct ledger *(*open_ledger)(struct harness *h, int64_t queue_max);
    struct feed *(*open)(struct ledger *l, size_t workers);
};

/* Runs its tests, and returns how many failed. */
int feed_suite_run(const struct feed_adapter *adapter);

#endif
