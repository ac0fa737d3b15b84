/*
 * boards_suite: the contract of port/boards.h as tests, for every adapter.
 */
#ifndef ADMITONE_TEST_CONTRACT_BOARDS_SUITE_H
#define ADMITONE_TEST_CONTRACT_BOARDS_SUITE_H

#include "port/boards.h"

struct boards_adapter {
    struct boards *(*open)(void **fixture); /* empty */
    void (*close)(void *fixture);
    /* The store is rebuilt between these, for another incarnation. NULL: it has one
     * incarnation. */
    void (*rebuild_begins)(void *fixture);
    void (*rebuild_ends)(void *fixture);
    /* Lets answers come that are on their way. NULL: they come before a function returns. */
    void (*run_callbacks)(void *fixture);
};

/* Runs its tests, and returns how many failed. */
int boards_suite_run(const struct boards_adapter *of);

#endif
