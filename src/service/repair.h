/*
 * repair: repairs what differs between hot store and ledger (service/reconcile.h), in favour of the
 * ledger, one after the other: asks it how it is by now, sets the hot store right by
 * compare-and-set, and asks once more, for the ledger may have gone on meanwhile. So it does no
 * harm when several nodes do it at once, or when it was only for a moment that the two differed.
 *
 * But that a place is over, by its time or by silence, is decided in the hot store: where that was
 * lost on its way to the ledger, the ledger is told.
 *
 * On a worker's thread, which is attached to the hot store.
 */
#ifndef ADMITONE_SERVICE_REPAIR_H
#define ADMITONE_SERVICE_REPAIR_H

#include <stdatomic.h>

#include "service/reconcile.h"

struct repair {
    struct reconcile *reconcile; /* what is found in it gets its ends */
    void (*done)(struct repair *m);
    _Atomic bool stopping; /* from any thread: the one under way is the last; the rest stays OPEN */

    /* Below: its own. */
    size_t at;
    bool is_set_right; /* the one under way */
    bool goes_back;    /* it is taken away first, for here it had gone further than in the ledger */
    struct ledger_entry_get entry_get;
    struct ledger_entry entry;
    struct entry_sync_op entry_sync;
    struct ledger_end ledger_end;
    bool ended;
    struct end_op hot_end;
    struct ledger_reservation_get get;
    struct holds_op holds;
    struct live_reservation live;
    struct seat_sync_op seat_sync;
    struct reservation_change news;
    struct follow_op follow;
    struct claim_info found[PER_USER_MAX]; /* each has a seat at least */
};

/* `reconcile` and `done` are filled in, the rest is zeroed. May call `done` before it returns. */
void repair_all(struct repair *m);

#endif
