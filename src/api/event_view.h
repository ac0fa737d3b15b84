/*
 * event_view: events as they are now, for an answer that shows one or many: copied out of the
 * catalogue, which is not kept open for it, with the seats of their sections as the hot store
 * counts them, or a snapshot of it. In the request's arena.
 */
#ifndef ADMITONE_API_EVENT_VIEW_H
#define ADMITONE_API_EVENT_VIEW_H

#include "port/seats.h"
#include "run/arena.h"
#include "service/snapshot.h"

struct event_view {
    struct event_view *next;
    struct event *event; /* a copy; `held` and `confirmed` of its sections are counted now */
    uint64_t waiting;    /* from a snapshot only, as the next */
    uint64_t active;

    /* Below: its own. */
    struct event_views *of;
    struct seat_count_op counting;
};

struct event_views {
    struct event_view *first; /* in the order in which they were added */
    size_t count;
    /* When all are counted. Those that were deleted meanwhile are gone by then. Unless the result
     * is OK, the hot store could not tell. */
    void (*done)(struct event_views *v, enum err result);

    /* Below: its own. */
    struct event_view *last;
    size_t left; /* to be answered, and one for whoever asks */
    enum err failed;
    struct snapshot *snapshot;
    struct snapshot_read read;
};

/* While the catalogue is open. */
void event_views_add(struct event_views *v, struct arena *a, const struct event *e);
/* When it is shut. Calls `done`, before it returns or later. */
void event_views_count(struct event_views *v, struct seats *seats);
/* Likewise, for an answer that shows many: from the snapshot, or where there is none (NULL) as
 * event_views_count does. */
void event_views_count_many(struct event_views *v, struct snapshot *s, struct seats *seats);

#endif
