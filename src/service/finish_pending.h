/*
 * finish_pending: finishes what a node that shares the hot store has begun and does not end: it may
 * be dead, or only stalled. What was pending for longer than the ledger's deadline is taken up by
 * whichever node looks next. An admission is finished. An enter or a claim is undone, in the ledger
 * first, where a row takes its id, so that the stalled node's own write comes too late; unless it
 * is there already: then it counts. An expiry that the ledger was not told of is written.
 */
#ifndef ADMITONE_SERVICE_FINISH_PENDING_H
#define ADMITONE_SERVICE_FINISH_PENDING_H

#include "port/seats.h"
#include "service/catalogue.h"
#include "service/waiting_room.h"

struct finish_pending {
    struct waiting_room *room;
    struct seats *seats;
    struct catalogue *catalogue; /* for the names of events in the log */
    int64_t deadline_ms;

    /* Below: its own. */
    _Atomic int64_t under_way;
};

/* Looks for such in one event. On a worker's thread. */
void finish_pending_check(struct finish_pending *t, int64_t event_key);
/* From any thread. */
bool finish_pending_is_busy(struct finish_pending *t);

#endif
