/*
 * relay: sends facts of the ledger to a hot store that nodes share. A change that the ledger
 * decides first (confirmed, cancelled, expired, held in a `seat` section) is sent to the hot store
 * at once by the node that submitted it. If this update is lost, because the node died or the store
 * could not be reached, the relay sends it again a little later, together with the end of the entry
 * that a confirmation completed. Receiving a fact twice does no harm, so every node relays, on one
 * worker.
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

    /* Private. */
    struct ticker ticker;
    _Atomic bool busy;
    bool stopping;
    struct ledger_facts_read read;
    struct ledger_facts_relayed written;
    struct follow_op follow;
    struct reservation_repair repair;
    struct look_op look;
    struct reservation_change news[FACTS_READ_MAX];
    struct look_item places[FACTS_READ_MAX]; /* of confirmed reservations */
    size_t changed;                          /* reservations that the hot store lacked */
    size_t done;                             /* facts that have arrived */
    size_t taken;                            /* facts in the call under way */
    int64_t ids[FACTS_READ_MAX];
};

/* `events` and `room` are filled in. Before the worker starts. */
void relay_init(struct relay *r, uv_loop_t *loop);
/* On its worker's thread. */
void relay_stop(struct relay *r);
/* From any thread. */
bool relay_is_busy(struct relay *r);

#endif
