/*
 * queue_suite: the contract of port/queue.h as tests, for every adapter. A test program defines how
 * its store is opened and how pending callbacks are run, and calls the three suites. The tests do
 * not depend on the inside of an adapter.
 */
#ifndef ADMITONE_TEST_CONTRACT_QUEUE_SUITE_H
#define ADMITONE_TEST_CONTRACT_QUEUE_SUITE_H

#include "port/queue.h"
#include "port/seats.h"

struct queue_adapter {
    /* The steps run in another process: the order of those of several threads is unknown, and each
     * takes longer, so histories are shorter. */
    bool remote;
    /* A store with nothing in it; *fixture is the adapter's own. */
    struct queues *(*open)(void **fixture);
    /* The seats of the same store. */
    struct seats *(*seats)(void *fixture);
    void (*close)(void *fixture);
    /* Lets callbacks of the calling thread run, for a short while; called until the one that is
     * waited for came. NULL: they always come before the operation returns. */
    void (*run_callbacks)(void *fixture);
    /* Called around the restoring functions, which need an empty store; NULL: they do not. */
    void (*rebuild_begins)(void *fixture);
    void (*rebuild_ends)(void *fixture);
    /* Around the operations of a thread that is not the test's own; may be NULL. */
    void (*thread_begins)(void *fixture);
    void (*thread_ends)(void *fixture);
};

/* Each runs its tests, and returns how many failed: the steps one by one; many threads at once;
 * seeded random histories against a model (QUEUE_PORT_SEED in the environment replays one). */
int queue_suite_run(const struct queue_adapter *adapter);
int queue_threads_suite_run(const struct queue_adapter *adapter);
int queue_model_suite_run(const struct queue_adapter *adapter);

#endif
