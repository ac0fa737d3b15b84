/*
 * snapshot: the counts of the queue and of the seats of every event, where several nodes
 * share the hot store: for lists and metrics, which would otherwise ask the store event by event.
 * It is at most SNAPSHOT_MS old when it is shown. One refresh serves all requests until then, and
 * asks only for events that may have changed since the last one. An event without a row has just
 * been created.
 *
 * The functions may be called on any worker's thread, unless stated otherwise.
 */
#ifndef ADMITONE_SERVICE_SNAPSHOT_H
#define ADMITONE_SERVICE_SNAPSHOT_H

#include <pthread.h>

#include "base/map.h"
#include "base/task.h"
#include "port/hot.h"
#include "service/catalogue.h"

#define SNAPSHOT_MS 1000

struct snapshot_row {
    int64_t event_key;
    struct queue_counts queue;
    size_t section_count;
    struct section_counts sections[];
};

struct snapshot {
    struct hot *hot;
    struct catalogue *catalogue;

    /* Private. */
    pthread_mutex_t lock;
    struct map rows;      /* under lock, as the rest: an event's key, in bytes → snapshot_row */
    int64_t refreshed_ms; /* steady, when the refresh began; 0: never */
    bool refreshing;
    struct task_list readers;      /* requests that wait for the refresh */
    struct event_counts_op counts; /* of the refresh; not under lock */
    uint32_t epoch;
    int64_t until_ms;
};

/* A request for it. */
struct snapshot_read {
    /* On the caller's thread, before the function returns or later; HOT_UNAVAILABLE, RECOVERING:
     * the hot store can't be asked. */
    void (*done)(struct snapshot_read *r, enum err result);

    /* Private. */
    struct task task;
    enum err result;
};

/* `hot` and `catalogue` are filled in. */
void snapshot_init(struct snapshot *s);
void snapshot_deinit(struct snapshot *s);
void snapshot_read(struct snapshot *s, struct snapshot_read *r);

/* Rows do not change between these two calls. */
void snapshot_lock(struct snapshot *s);
void snapshot_unlock(struct snapshot *s);
/* NULL: nothing is known of the event yet. */
const struct snapshot_row *snapshot_find(struct snapshot *s, int64_t event_key);

#endif
