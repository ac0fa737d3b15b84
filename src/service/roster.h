/*
 * roster: this node's knowledge of the events, where several nodes change them: the catalogue and
 * the hot store get what the ledger has, as soon as another node announces a change, and at the
 * latest at the next tick, for announcements may be lost, and nodes may die between their commit
 * and the announcement. On one worker.
 */
#ifndef ADMITONE_SERVICE_ROSTER_H
#define ADMITONE_SERVICE_ROSTER_H

#include <stdatomic.h>

#include "run/mailbox.h"
#include "run/ticker.h"
#include "service/events.h"

struct roster {
    struct events *events;

    /* Below: its own. */
    struct ticker ticker;
    struct mailbox *home;
    struct task nudge;
    _Atomic bool nudged; /* its task is under way */
    _Atomic bool busy;
    bool again; /* something changed while it was busy */
    bool stopping;
    struct ledger_events_read read;
    bool pushes_all; /* the hot store is told of every event, newer or not */
    size_t events_done;
    size_t removed_done;
    struct configure_op configure;
    struct remove_op remove;
};

/* `events` is filled in. Before the worker starts. */
void roster_init(struct roster *r, uv_loop_t *loop, struct mailbox *home);
/* On its worker's thread. */
void roster_stop(struct roster *r);
/* From any thread. */
bool roster_is_busy(struct roster *r);
/* An event has changed. From any thread, while the worker runs. For struct hot_listener. */
void roster_nudge(void *roster);

#endif
