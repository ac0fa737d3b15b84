/*
 * ledger_check_suite: tests of a ledger's check, for every adapter: the query of each invariant
 * finds violations of that invariant, and no others. A test program defines how its ledger is
 * created and damaged, and the violations that only its adapter can have.
 */
#ifndef ADMITONE_TEST_CONTRACT_LEDGER_CHECK_SUITE_H
#define ADMITONE_TEST_CONTRACT_LEDGER_CHECK_SUITE_H

#include "ledger_harness.h"
#include "ledger_tables.h"

/* A change that violates an invariant, and one of the examples that the check reports. Those of one
 * invariant follow each other. */
struct violation {
    const char *invariant;
    const char *sql;
    const char *example;
};

struct check_adapter {
    /* An empty ledger, for one test. */
    void (*open)(void);
    void (*shut)(void);
    struct event *(*store)(const struct event *wanted);
    struct tables (*tables)(void);
    /* Allows changes that the constraints of the tables forbid. */
    struct tables (*unruly)(void);
    /* Undoes these changes. NULL: only a new ledger does. */
    void (*repair)(void);
    bool (*check)(bool server_runs, void (*on_finding)(void *, const struct ledger_finding *),
                  void *to);
    const char *seed; /* SQL for rows that are valid in this ledger only; or NULL */
    const struct violation *violations;
    size_t violation_count;
};

/* How many tests failed. */
int ledger_check_suite_run(const struct check_adapter *adapter);

#endif
