/*
 * memory_internal: what the files of the memory adapter share: the rooms and their locks. Private
 * to them.
 */
#ifndef ADMITONE_HOT_MEMORY_INTERNAL_H
#define ADMITONE_HOT_MEMORY_INTERNAL_H

#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "hot/memory.h"

/* The hot state of one event. */
struct room {
    pthread_mutex_t lock;
    int64_t event_key;
    int64_t version;
    int64_t opens_at_ms; /* of that version */
    struct queue *queue; /* under lock, as the rest; NULL: the event was removed */
    struct claims *claims;
};

struct memory {
    struct queues queues;
    struct seats seats;
    struct queue_listener listener;
    pthread_rwlock_t lock; /* of the map; whoever works in a room has it for reading */
    struct map rooms;      /* an event's key, in bytes → room */
};

extern const struct queue_ops memory_queue_ops;
extern const struct seats_ops memory_seats_ops;

/* The event's room, locked; NULL when there is none. */
struct room *room_enter(struct memory *m, int64_t event_key);
void room_leave(struct memory *m, struct room *r);
/* As room_enter, for an operation, which is refused when there is no such event. */
struct room *room_begin(struct memory *m, struct hot_op *op);
/* Ends actives whose time is over, and tells the listener. In the room. */
void room_purge(const struct memory *m, struct room *r, int64_t now_ms);

/* The event is there with these rules, or it is gone, unless something newer was said. */
void memory_configure(struct memory *m, const struct event *e);
void memory_remove(struct memory *m, int64_t event_key, int64_t version);

#endif
