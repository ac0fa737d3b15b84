/*
 * event_view: events as they are now, for an answer that shows one or many: copied out of the
 * catalogue, which is not kept open for it, with the seats of their sections as the hot store
 * counts them. In the request's arena.
 */
#ifndef ADMITONE_API_EVENT_VIEW_H
#define ADMITONE_API_EVENT_VIEW_H

#include "port/seats.h"
#include "run/arena.h"

struct event_view {
    struct event_view *next;
    struct event *event; /* a copy; `held` and `confirmed` of its sections are counted now */

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
};

/* While the catalogue is open. */
void event_views_add(struct event_views *v, struct arena *a, const struct event *e);
/* When it is shut. Calls `done`, before it returns or later. */
void event_views_count(struct event_views *v, struct seats *seats);

#endif
