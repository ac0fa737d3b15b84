/*
 * ledger_check_suite: tests of a ledger's check, for every adapter: the query of each invariant
 * finds violations of that invariant, and no others. A test program defines how its ledger is
 * created and damaged, and the violations that only its adapter can have.
 */
#ifndef ADMITONE_TEST_CONTRACT_LEDGER_CHECK_SUITE_H
#define ADMITONE_TEST_CONTRACT_LEDGER_CHECK_SUITE_H

#include "ledger_harness.h"
#include "ledger_tables.h"

/* What breaks an invariant, and one of the examples that are then named. Those of one invariant
 * follow each other. */
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
    /* For what the rules of the tables forbid. */
    struct tables (*unruly)(void);
    /* Takes back what was done there. NULL: only a new ledger does. */
    void (*repair)(void);
    bool (*check)(bool server_runs, void (*on_finding)(void *, const struct ledger_finding *),
                  void *to);
    const char *seed; /* SQL: what is right in this ledger alone; or NULL */
    const struct violation *violations;
    size_t violation_count;
};

/* How many tests failed. */
int ledger_check_suite_run(const struct check_adapter *adapter);

#endif
