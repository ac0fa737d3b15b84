/*
 * ledger_suite: the contract of port/ledger.h as tests, for every adapter. A test program defines
 * how its ledger is opened and where its tables are, and runs the suites.
 */
#ifndef ADMITONE_TEST_CONTRACT_LEDGER_SUITE_H
#define ADMITONE_TEST_CONTRACT_LEDGER_SUITE_H

#include "ledger_harness.h"
#include "ledger_tables.h"

struct ledger_adapter {
    /* Opens the ledger that belongs to the harness's folder; the same one again after a close.
     * queue_max 0: the default. */
    struct ledger *(*open)(struct harness *h, int64_t queue_max);
    /* The tables of the ledger that was opened for the harness. */
    struct tables (*tables)(const struct harness *h);
    /* Acts on events, and holds of which the ledger itself decides, are written beside the rest,
     * in no order with it. */
    bool writes_beside;
};

/* Each runs its tests, and returns how many failed: events and the ledger itself; queues; holds;
 * changes of reservations; several nodes; facts; asynchronous requests; and concurrent records
 * against a model. */
int ledger_suite_run(const struct ledger_adapter *adapter);
int ledger_queue_suite_run(const struct ledger_adapter *adapter);
int ledger_hold_suite_run(const struct ledger_adapter *adapter);
int ledger_reservation_suite_run(const struct ledger_adapter *adapter);
int ledger_nodes_suite_run(const struct ledger_adapter *adapter);
int ledger_facts_suite_run(const struct ledger_adapter *adapter);
int ledger_requests_suite_run(const struct ledger_adapter *adapter);
int ledger_reservation_model_suite_run(const struct ledger_adapter *adapter);

#endif
