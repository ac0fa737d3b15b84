/*
 * memory_internal: what the files of the memory adapter share: its events and their locks. Private
 * to them.
 */
#ifndef ADMITONE_HOT_MEMORY_INTERNAL_H
#define ADMITONE_HOT_MEMORY_INTERNAL_H

#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "hot/memory.h"

/* The hot state of one event. */
struct memory_event {
    pthread_mutex_t lock;
    int64_t event_key;
    int64_t version;
    int64_t opens_at_ms; /* of that version */
    bool sold_out;       /* as the listener knows it */
    struct queue *queue; /* under lock, as the rest; NULL: the event was removed */
    struct claims *claims;
};

struct memory {
    struct queues queues;
    struct seats seats;
    struct queue_listener listener;
    pthread_rwlock_t lock; /* of the map; held for reading while an event is locked */
    struct map events;     /* an event's key, in bytes → struct memory_event */
};

extern const struct queue_ops memory_queue_ops;
extern const struct seats_ops memory_seats_ops;

/* Locks the event; NULL when there is none, or it was removed. */
struct memory_event *memory_event_lock(struct memory *m, int64_t event_key);
/* Notifies the listener when the event has become sold out, or is not any more. */
void memory_event_unlock(struct memory *m, struct memory_event *r);
/* As memory_event_lock; sets the result of the operation: OK or EVENT_NOT_FOUND. */
struct memory_event *memory_event_begin(struct memory *m, struct hot_op *op);
/* Ends ACTIVE entries whose time is over, and notifies the listener. The event is locked. */
void memory_event_purge(const struct memory *m, struct memory_event *r, int64_t now_ms);

/* Sets the rules of the event, or removes it, unless a newer version is known. */
void memory_configure(struct memory *m, const struct event *e);
void memory_remove(struct memory *m, int64_t event_key, int64_t version);

#endif
