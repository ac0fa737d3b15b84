/*
 * degraded_reads: places as the ledger has them, while a hot store that nodes share can't be
 * asked. The ordered list of WAITING entries is read at most once a second for each event, and
 * serves all requests; so an answer may be a second old, and says that it is degraded. Safe from
 * any thread.
 */
#ifndef ADMITONE_SERVICE_DEGRADED_READS_H
#define ADMITONE_SERVICE_DEGRADED_READS_H

#include <pthread.h>

#include "base/map.h"
#include "port/queue.h"
#include "service/catalogue.h"

struct degraded_reads {
    struct ledger *ledger;
    struct catalogue *catalogue; /* for the rules by which a wait is estimated */

    /* Private. */
    pthread_mutex_t lock;
    struct map queues; /* under lock: an event's key → struct degraded_queue */
};

/* `ledger` and `catalogue` are filled in. */
void degraded_init(struct degraded_reads *s);
/* When no look is under way. */
void degraded_deinit(struct degraded_reads *s);

/* Makes sure that the list of one event is fresh. Part of the looks below. */
struct degraded_read {
    int64_t event_key;
    void (*done)(struct degraded_read *r, enum err result);

    /* Private. */
    struct degraded_reads *degraded_reads;
    struct degraded_queue *queue;
    union {
        struct ledger_waiting_read read;
        struct task woken; /* when another request has read */
    };
};

/* One place. The caller's memory, until `done`, on the caller's worker. */
struct degraded_look {
    int64_t event_key;
    uint64_t seq;
    int64_t now_ms;
    void (*done)(struct degraded_look *l, enum err result);
    struct place place; /* out: NONE when the ledger does not know it */
    char *user;         /* room for USER_ID_BYTES_MAX; out */
    size_t user_len;

    /* Private. */
    struct degraded_reads *degraded_reads;
    union { /* one after the other */
        struct ledger_entry_get get;
        struct degraded_read read;
    };
};
void degraded_look(struct degraded_reads *s, struct degraded_look *l);

/* Many places of one event, for which only the list is read: out is each item's place, NONE when it
 * is not WAITING. As above otherwise. */
struct degraded_scan {
    int64_t event_key;
    struct look_item *items;
    const uint8_t *lanes; /* one for each */
    size_t count;
    uint64_t waiting; /* out: how many wait in all */
    void (*done)(struct degraded_scan *c, enum err result);

    /* Private. */
    struct degraded_reads *degraded_reads;
    struct degraded_read read;
};
void degraded_scan(struct degraded_reads *s, struct degraded_scan *c);

#endif
