/*
 * event_views: events as an answer shows them: copied out of the catalogue, with their seats and
 * queues counted by the hot store, or as a snapshot of it has them. In the request's arena, on the
 * request's worker.
 */
#ifndef ADMITONE_SERVICE_EVENT_VIEWS_H
#define ADMITONE_SERVICE_EVENT_VIEWS_H

#include "run/arena.h"
#include "service/events.h"
#include "service/snapshot.h"

struct event_view {
    struct event_view *next;
    struct event *event; /* a copy; `held` and `confirmed` of its sections are counted now */
    /* With `queues`: op.result is OK if the queue could be counted; then its counts, seats and
     * state. From a snapshot: no state; unless the result is OK, the counts are the last known. */
    struct look_op queue;

    /* Below: private. */
    struct event_views *of;
    struct seat_count_op seats;
};

struct event_views {
    bool seats; /* what is to be counted */
    bool queues;
    bool texts;               /* the copies have the texts of the events */
    struct event_view *first; /* in the order in which they were added */
    size_t count;
    /* When all are counted, without those that were deleted in the meantime. Unless the result is
     * OK, the hot store could not count all the seats. */
    void (*done)(struct event_views *v, enum err result);

    /* Below: private. */
    struct event_view *last;
    size_t left; /* answers to wait for, and one until all questions have been asked */
    enum err failed;
    struct snapshot *snapshot;
    struct snapshot_read read;
};

/* The seats of all sections, as the event has them. */
struct seat_counts event_seats(const struct event *e);

/* While the catalogue is locked. */
void event_views_add(struct event_views *v, struct arena *a, const struct event *e);
/* When it is unlocked. Calls `done`, before it returns or later. `snapshot`: for an answer that
 * shows many events; NULL: counts them now. */
void event_views_count(struct event_views *v, struct events *ev, struct snapshot *snapshot);

#endif
