/*
 * seats_suite: the contract of port/seats.h as tests, for every adapter. The adapter is described
 * in queue_suite.h, and has `seats`. The tests do not depend on the inside of an adapter.
 */
#ifndef ADMITONE_TEST_CONTRACT_SEATS_SUITE_H
#define ADMITONE_TEST_CONTRACT_SEATS_SUITE_H

#include "queue_suite.h"

/* Each runs its tests, and returns how many failed: claiming, one step at a time; what the ledger
 * decides and the administrator changes; who is admitted when the seats run out; many threads at
 * once; seeded random histories against a model (SEATS_PORT_SEED in the environment replays one).
 */
int seats_suite_run(const struct queue_adapter *adapter);
int seats_stock_suite_run(const struct queue_adapter *adapter);
int seats_ledger_suite_run(const struct queue_adapter *adapter);
int seats_threads_suite_run(const struct queue_adapter *adapter);
int seats_model_suite_run(const struct queue_adapter *adapter);

#endif
