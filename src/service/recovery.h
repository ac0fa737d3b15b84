/*
 * recovery: what is read back from the ledger when the hot store has lost it: every event with its
 * rules, every place in every queue, in order, and every live reservation with its seats; and what
 * boards count of these.
 */
#ifndef ADMITONE_SERVICE_RECOVERY_H
#define ADMITONE_SERVICE_RECOVERY_H

#include "service/events.h"

/* Fills the hot store, which is empty, and the catalogue. The queues' next numbers are `skip`
 * beyond those that the ledger has. Blocks: for the start, before anybody is served, and for the
 * rebuilder. */
enum err recovery_run(struct events *ev, int64_t now_ms, uint64_t skip);
/* The events alone, where the hot store is filled already. Blocks. */
enum err recovery_meet(struct events *ev);

#endif
