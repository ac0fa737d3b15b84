/*
 * feed_suite: the contract of port/feed.h as tests, for every adapter alike.
 */
#ifndef ADMITONE_TEST_CONTRACT_FEED_SUITE_H
#define ADMITONE_TEST_CONTRACT_FEED_SUITE_H

#include "ledger_suite.h"
#include "port/feed.h"

struct feed_adapter {
    struct ledger *(*open_ledger)(struct harness *h, int64_t queue_max);
    /* Again after a close: the same requests are in it. */
    struct feed *(*open)(struct ledger *l, size_t workers);
    /* Before the first open of each test; NULL: the feed is new when the ledger is. */
    void (*begin)(void);
    /* The names of a section whose requests come into that partition, 0 to 7. NULL:
     * request.partition says it. */
    void (*name)(int partition, struct section_names *out);
    /* A request that is there already is not accepted again. */
    bool knows_ids;
    /* After a restart, only undecided requests are delivered; otherwise all from the first
     * undecided one of the partition on. */
    bool knows_results;
    bool sets_aside;
};

/* Runs its tests, and returns how many failed. */
int feed_suite_run(const struct feed_adapter *adapter);

#endif
