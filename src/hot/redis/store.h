/*
 * store: the hot state in Redis 7, shared by any number of nodes: the law of core/ once more, as
 * functions inside Redis (lua/), each an atomic step. The ports' structs are filled from their
 * replies.
 *
 * Every worker attaches its loop and works over a link of its own, on its own thread. Blocking work
 * (looking at the store's incarnation, filling it) has a connection of its own, on whichever thread
 * does it; news from other nodes come to a thread of the store's own.
 *
 * An event's keys have {TYPE:ID} in them. Operations name events by the ledger's key, so an event
 * must be met (queues_register_event, queues_configure) before anything is done to it.
 */
#ifndef ADMITONE_HOT_REDIS_STORE_H
#define ADMITONE_HOT_REDIS_STORE_H

#include <uv.h>

#include "hot/redis/address.h"
#include "port/boards.h"
#include "port/locks.h"
#include "port/queue.h"
#include "port/seats.h"

struct redis_options {
    struct redis_address address;
    int64_t deadline_ms; /* of a call; 0: 2,000 */
    /* Operations count by the clock of Redis, whatever now_ms says: so all nodes have one. Tests
     * that have a clock of their own leave it out. */
    bool own_clock;
};

struct redis_store;

/* Does not wait for Redis to be there. */
struct redis_store *redis_store_new(const struct redis_options *o);
/* When no worker is attached. */
void redis_store_free(struct redis_store *s);

/* On the worker's thread. Detaching ends what is under way with HOT_UNKNOWN; the loop must turn
 * afterwards until it is empty. */
void redis_store_attach(struct redis_store *s, uv_loop_t *loop);
void redis_store_detach(struct redis_store *s);

struct hot *redis_store_hot(struct redis_store *s);
struct queues *redis_store_queues(struct redis_store *s);
struct seats *redis_store_seats(struct redis_store *s);
struct locks *redis_store_locks(struct redis_store *s);
struct boards *redis_store_boards(struct redis_store *s);

#endif
