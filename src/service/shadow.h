/*
 * shadow: places as the ledger knows them, for as long as a hot store that nodes share can't be
 * asked. Who waits, and in which order, is read once a second at the most for each event, whoever
 * asks; so an answer may be a second old, and says that it is degraded. Safe from any thread.
 */
#ifndef ADMITONE_SERVICE_SHADOW_H
#define ADMITONE_SERVICE_SHADOW_H

#include <pthread.h>

#include "base/map.h"
#include "port/queue.h"
#include "service/catalogue.h"

struct shadow {
    struct ledger *ledger;
    struct catalogue *catalogue; /* for the rules by which a wait is estimated */

    /* Below: its own. */
    pthread_mutex_t lock;
    struct map queues; /* under lock: an event's key → struct shadow_queue */
};

/* `ledger` and `catalogue` are filled in. */
void shadow_init(struct shadow *s);
/* When no look is under way. */
void shadow_deinit(struct shadow *s);

/* Makes sure that what is known of who waits for one event is fresh. Part of the looks below. */
struct shadow_read {
    int64_t event_key;
    void (*done)(struct shadow_read *r, enum err result);

    /* Below: its own. */
    struct shadow *shadow;
    struct shadow_queue *queue;
    union {
        struct ledger_waiting_read read;
        struct task woken; /* when another request has read */
    };
};

/* One place. The caller's memory, until `done`, on the caller's worker. */
struct shadow_look {
    int64_t event_key;
    uint64_t seq;
    int64_t now_ms;
    void (*done)(struct shadow_look *l, enum err result);
    struct place place; /* out: NONE when the ledger does not know it */
    char *user;         /* room for USER_ID_BYTES_MAX; out */
    size_t user_len;

    /* Below: its own. */
    struct shadow *shadow;
    union { /* one after the other */
        struct ledger_entry_get get;
        struct shadow_read read;
    };
};
void shadow_look(struct shadow *s, struct shadow_look *l);

/* Many places of one event, for which only the list of who waits is read: out is each item's place,
 * NONE when it is not WAITING. As above otherwise. */
struct shadow_scan {
    int64_t event_key;
    struct look_item *items;
    const uint8_t *lanes; /* one for each */
    size_t count;
    uint64_t waiting; /* out: how many wait in all */
    void (*done)(struct shadow_scan *c, enum err result);

    /* Below: its own. */
    struct shadow *shadow;
    struct shadow_read read;
};
void shadow_scan(struct shadow *s, struct shadow_scan *c);

#endif
