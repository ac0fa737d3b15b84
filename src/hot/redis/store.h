/*
 * store: the hot state in Redis 7, shared by any number of nodes: the rules of core/ implemented
 * again as functions inside Redis (lua/), each an atomic step. The ports' operations are filled
 * from their replies.
 *
 * Every worker attaches its loop and has its own link, used on its thread. Blocking work (reading
 * the incarnation, rebuilding Redis) opens a separate connection on the calling thread;
 * announcements of other nodes are received on a thread of the store.
 *
 * An event's keys contain {TYPE:ID}. Operations name events by their key in the ledger, so an event
 * must be registered (queues_register_event, queues_configure) before any operation on it.
 */
#ifndef ADMITONE_HOT_REDIS_STORE_H
#define ADMITONE_HOT_REDIS_STORE_H

#include <uv.h>

#include "hot/redis/address.h"
#include "port/boards.h"
#include "port/limits.h"
#include "port/locks.h"
#include "port/queue.h"
#include "port/seats.h"

struct redis_options {
    struct redis_address address;
    int64_t deadline_ms; /* of a call; 0: 2,000 */
    /* Functions use the clock of Redis and ignore now_ms, so that all nodes share one clock. Tests
     * that set the time leave it out. */
    bool redis_clock;
    struct limit_rules limits;
};

struct redis_store;

/* Does not wait for a connection. */
struct redis_store *redis_store_new(const struct redis_options *o);
/* No worker may be attached. */
void redis_store_free(struct redis_store *s);

/* On the worker's thread. Detaching ends calls that are under way with HOT_UNKNOWN; the loop must
 * run afterwards until it is empty. */
void redis_store_attach(struct redis_store *s, uv_loop_t *loop);
void redis_store_detach(struct redis_store *s);

struct hot *redis_store_hot(struct redis_store *s);
struct queues *redis_store_queues(struct redis_store *s);
struct seats *redis_store_seats(struct redis_store *s);
struct locks *redis_store_locks(struct redis_store *s);
struct boards *redis_store_boards(struct redis_store *s);
/* NULL: the rules limit nothing. */
struct limits *redis_store_limits(struct redis_store *s);

#endif
