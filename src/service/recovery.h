/*
 * recovery: loads the hot store from the ledger: every event with its rules, every live entry in
 * order, every live reservation with its seats, and the sales for the boards. It reads the ledger
 * with ledger_load (port/ledger.h), as reconciling does.
 */
#ifndef ADMITONE_SERVICE_RECOVERY_H
#define ADMITONE_SERVICE_RECOVERY_H

#include "service/events.h"

/* Loads the hot store, which is empty, and the catalogue. The queues' next numbers are `skip`
 * beyond those that the ledger has, and not below the first one of a restored ledger. Blocks: for
 * the start, before requests are served, and for the rebuilder. */
enum err recovery_run(struct events *ev, int64_t now_ms, uint64_t skip);
/* Adds up the seats of all events, without loading them. Blocks. */
enum err recovery_count_seats(struct events *ev, int64_t *seats);
/* Loads only the events, where the hot store has its state already. Blocks. */
enum err recovery_load_events(struct events *ev);

#endif
