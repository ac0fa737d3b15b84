/*
 * admission: the tick of the events: it admits, and ends what is over. Every worker has one and
 * sees to its share of the events that need it, so no worker has to do it all, and an event with
 * nothing to do costs nothing. A step checks the clock itself:
 * should two of them tick the same event, or two nodes, nobody is admitted twice or early.
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
    struct finish_pending *finish_pending; /* NULL: nobody else shares the hot store */
    size_t index;                          /* of `count` shares */
    size_t count;

    /* Below: its own. */
    struct ticker ticker;
    struct ticks_op ticks;
    bool asks; /* which events need it */
    bool stopped;
    int64_t *keys; /* of the events of this tick */
    size_t event_count;
    size_t event_cap;
    int64_t pending_checked_ms; /* steady: when it was last looked for what others left undone */
};

/* What is above is filled in. Before the worker starts. */
void admission_start(struct admission_share *s, struct worker *w, int64_t tick_ms);
/* On the worker's thread. What is under way goes on. */
void admission_stop(struct admission_share *s);
/* When the worker has ended. */
void admission_deinit(struct admission_share *s);

#endif
