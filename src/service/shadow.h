/*
 * shadow: places as the ledger knows them, for as long as a hot store that nodes share can't be
 * asked. Who waits, and in which order, is read once a second at the most for each event, whoever
 * asks; so an answer may be a second old, and says that it is degraded. Safe from any thread.
 */
#ifndef ADMITONE_SERVICE_SHADOW_H
#define ADMITONE_SERVICE_SHADOW_H

#include <pthread.h>

#include "base/map.h"
#include "port/ledger.h"
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
    struct shadow_queue *queue;
    union { /* one after the other */
        struct ledger_entry_get get;
        struct ledger_waiting_read read;
        struct task woken; /* when somebody else has read */
    };
};
void shadow_look(struct shadow *s, struct shadow_look *l);

#endif
