/*
 * admission: the tick of the events: it admits users, and expires places and holds. Every worker
 * ticks its share of the events that need it; an event with nothing to do costs nothing. A step
 * checks the clock itself: when two workers or two nodes tick the same event, no user is admitted
 * twice or early.
 */
#ifndef ADMITONE_SERVICE_ADMISSION_H
#define ADMITONE_SERVICE_ADMISSION_H

#include "run/ticker.h"
#include "run/worker.h"
#include "service/catalogue.h"
#include "service/finish_pending.h"
#include "service/reservations.h"

struct admission_share {
    struct waiting_room *room;
    struct reservations *reservations; /* whose holds end by the same tick */
    struct catalogue *catalogue;
    struct finish_pending *finish_pending; /* NULL: no other node shares the hot store */
    size_t index;                          /* of `count` shares */
    size_t count;

    /* Private. */
    struct ticker ticker;
    struct ticks_op ticks;
    bool asks; /* it waits for the list of events */
    bool stopped;
    int64_t *keys; /* of the events of this tick */
    size_t event_count;
    size_t event_cap;
    int64_t pending_checked_ms; /* steady: of the last finish_pending_check */
};

/* The fields above are filled in. Before the worker starts. */
void admission_start(struct admission_share *s, struct worker *w, int64_t tick_ms);
/* On the worker's thread. Operations under way go on. */
void admission_stop(struct admission_share *s);
/* When the worker has ended. */
void admission_deinit(struct admission_share *s);

#endif
