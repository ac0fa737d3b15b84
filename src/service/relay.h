/*
 * relay: brings facts of the ledger to a hot store that nodes share. What the ledger decides first
 * (confirmed, cancelled, expired, held in a `seat` section) reaches the hot store at once, by
 * whoever asked for it; should that get lost, because a node died or the store could not be
 * reached, it comes once more by this way, a little later. Hearing it twice does no harm. So does
 * the end of the place that a confirmation completed. Every node relays, on one worker.
 */
#ifndef ADMITONE_SERVICE_RELAY_H
#define ADMITONE_SERVICE_RELAY_H

#include <stdatomic.h>

#include "run/ticker.h"
#include "service/events.h"
#include "service/waiting_room.h"

struct relay {
    struct events *events;
    struct waiting_room *room;

    /* Below: its own. */
    struct ticker ticker;
    _Atomic bool busy;
    bool stopping;
    struct ledger_facts_read read;
    struct ledger_facts_relayed written;
    struct follow_op follow;
    struct reservation_repair repair;
    struct look_op look;
    struct reservation_change news[FACTS_READ_MAX];
    struct look_item places[FACTS_READ_MAX]; /* of what was confirmed */
    size_t changed;                          /* reservations that the hot store had missed */
    size_t done;                             /* of the facts */
    size_t taken;                            /* of those, in the step under way */
    int64_t ids[FACTS_READ_MAX];
};

/* `events` and `room` are filled in. Before the worker starts. */
void relay_init(struct relay *r, uv_loop_t *loop);
/* On its worker's thread. */
void relay_stop(struct relay *r);
/* From any thread. */
bool relay_is_busy(struct relay *r);

#endif
