/*
 * finish_pending: finishes operations that another node began on the shared hot store and did not
 * end: it may be dead, or only stalled. An operation that is pending for longer than the ledger's
 * deadline is finished by the node that finds it. An admission is completed. An enter or a claim is
 * undone, in the ledger first, where a row takes its id, so that the write of a stalled node comes
 * too late; unless it is in the ledger already: then it is kept. An expiry that the ledger does not
 * have yet is written.
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

    /* Private. */
    _Atomic int64_t under_way;
};

/* Looks for such operations in one event. On a worker's thread. */
void finish_pending_check(struct finish_pending *t, int64_t event_key);
/* From any thread. */
bool finish_pending_is_busy(struct finish_pending *t);

#endif
