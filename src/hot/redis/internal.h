/*
 * internal: what the files of the Redis adapter share. Private to them.
 *
 *   address.c           where Redis is
 *   call.c              one asynchronous call: its command, its reply, the operation it belongs to
 *   status.c            which incarnation is open, and whether the server accepts writes
 *   handshake.c         the first commands on a connection
 *   wire.c              one connection, until it breaks
 *   link.c              a worker's connection, which is opened again when it breaks
 *   store.c             opens and closes the adapter; the events that this node knows
 *   blocking.c          a connection for threads that may wait
 *   rebuild.c           port/hot.h: incarnations, and rebuilding Redis from the ledger
 *   event_contents.c    port/hot.h: reads all entries and reservations of an event
 *   announcements.c     messages from other nodes
 *   queue.c             port/queue.h      lua/queue.lua
 *   queue_look.c        port/queue.h      lua/queue.lua: looks at places
 *   seats.c             port/seats.h      lua/seat_map.lua, lua/seats.lua
 *   locks.c             port/locks.h      lua/locks.lua
 *   overview.c          the operations of port/queue.h, port/seats.h and port/hot.h that are about
 *                       all events        lua/common.lua
 *   boards.c            port/boards.h     lua/boards.lua
 *   boards_rebuild.c    rebuilding the boards
 *   limits.c            port/limits.h     lua/limits.lua
 */
#ifndef ADMITONE_HOT_REDIS_INTERNAL_H
#define ADMITONE_HOT_REDIS_INTERNAL_H

#include <stdatomic.h>

#include "base/map.h"
#include "core/period.h"
#include "hot/redis/link.h"
#include "hot/redis/store.h"

/* A small set of section keys. Zeroed before its first use; the owner frees the keys. */
struct section_set {
    int64_t *keys;
    size_t count;
};

/* An event that this node knows. It exists until it is removed from the store and from Redis, and
 * while a call holds it. */
struct redis_event {
    _Atomic int64_t holds; /* the store's included */
    int64_t key;
    char tag[EVENT_PATH_BYTES];  /* "TYPE:ID" */
    struct section_set sections; /* under the store's lock: see store_copy_sections */
    _Atomic bool in_redis;       /* Redis has been given it, as far as this node knows */
};

struct redis_store {
    struct hot hot;
    struct queues queues;
    struct seats seats;
    struct locks locks;
    struct boards boards;
    struct limits limits;
    struct memory_limits *local_limits; /* of limits.c; NULL: nothing is limited */
    struct redis_options options;
    struct redis_status status;
    struct hot_listener listener; /* under lock */
    struct queue_listener expired;
    char node[17]; /* the name of this process among all nodes: 16 random hex digits */
    pthread_rwlock_t lock;
    struct map by_key;                   /* under lock: an event's key, in bytes → redis_event */
    struct map by_tag;                   /* under lock */
    struct rebuild *rebuild;             /* of rebuild.c: while Redis is being rebuilt */
    struct memory_boards *board_rebuild; /* of boards_rebuild.c: in that time */
    struct announcements *announcements; /* of announcements.c */
    size_t lock_worker_count;            /* of locks.c, under lock: that were ever attached */
    struct locks_worker *lock_workers;   /* of locks.c, under lock: those that are attached */
};

extern const struct hot_ops redis_hot_ops;
extern const struct queue_ops redis_queue_ops;
extern const struct seats_ops redis_seats_ops;
extern const struct locks_ops redis_locks_ops;
extern const struct boards_ops redis_boards_ops;
extern const struct limits_ops redis_limits_ops;

/* The state of one attached worker. */
struct redis_worker {
    struct redis_store *store;
    struct link *link;
    struct queue_worker *queue; /* of queue_look.c: looks gathered in this iteration of the loop */
    struct locks_worker *locks; /* of locks.c: requests that wait for locks */
};
/* That of the calling thread; NULL: the thread is not attached. */
struct redis_worker *redis_worker_mine(void);

/* Registers the event and its sections on this node. */
void store_register_event(struct redis_store *s, const struct event *event);
/* Redis has the event from now on: if a function does not find it, Redis has lost data. */
void store_set_in_redis(struct redis_store *s, int64_t event_key);
/* NULL: not known. Else it is held until redis_event_release. */
struct redis_event *store_find_event(struct redis_store *s, int64_t event_key);
void redis_event_hold(struct redis_event *e);
void redis_event_release(struct redis_event *e);
/* The event was removed from Redis: this node does not know it any more. */
void store_remove_event(struct redis_store *s, int64_t event_key);
/* By its tag; 0: not known. */
int64_t store_find_event_key(struct redis_store *s, str tag);
/* The sections that the event has or had since this node knows it: removed ones, too. */
struct section_set store_copy_sections(struct redis_store *s, const struct redis_event *e);
void section_set_add(struct section_set *s, int64_t key);

/* As blocking_connect, and a line in the log when it fails. */
redisContext *store_connect(struct redis_store *s, int64_t step_ms,
                            char identity[HOT_IDENTITY_BYTES]);
/* The reply; NULL, and a line in the log: there was no answer, or it was an error. */
redisReply *store_check_reply(const struct redis_store *s, redisContext *c, redisReply *reply);
enum err redis_read_event(struct hot *h, int64_t event_key, struct event_contents *out);

/* Adds a command to the rebuild that is under way (rebuild.c), and frees the command and its hold
 * on the event, but not the call. Commands are executed in order and not waited for; the first that
 * fails fails the rebuild. Does nothing if Redis is not being rebuilt, or the event is not known.
 */
void rebuild_add(struct call *c);
void rebuild_free(struct rebuild *r); /* NULL, too */

/* Keys about all events together, of lua/common.lua. */
#define TICKS_KEY "admitone:{hot}:ticks"
#define TICKED_KEY "admitone:{hot}:ticked"
#define BUYERS_KEY "admitone:{hot}:buyers"
void redis_ticks(struct queues *q, struct ticks_op *t);
void redis_buyer(struct seats *s, struct buyer_op *b);
void redis_count_events(struct hot *h, struct event_counts_op *c);

/* The keys and the arguments that every function of lua/queue.lua begins with; and both. */
#define QUEUE_KEYS 17
void queue_add_keys(struct call *c);
void queue_add_arguments(struct call *c, int64_t now_ms);
void queue_begin(struct call *c, const char *function, int64_t now_ms);
void queue_read_place(const redisReply *r, uint64_t seq, struct place *out);
/* Reports the entries that a function has ended because their time is over to the listener: three
 * numbers for each. `op` has the time of the function. */
void queue_report_expired(const struct redis_store *s, const struct hot_op *op,
                          const redisReply *ended);
void redis_look(struct queues *q, struct look_op *op);

/* The keys of lua/seats.lua that the queue's functions do not have: those of the event, then those
 * of each section. */
#define SEATS_KEYS 5
#define SECTION_KEYS 5
void seats_add_keys(struct call *c, const struct section_set *sections);
/* Waiting, active, the counts of lua/common.lua and the rate: the first values of the array. */
struct queue_counts redis_read_queue_counts(const redisReply *r);
/* Available, held and confirmed seats: three numbers of the array, from there on. */
struct seat_counts redis_read_seat_counts(const redisReply *r, size_t at);
/* "KEY:reservation", as in claim:{T:ID}:pending. */
bool claim_ref_read(str text, struct claim_ref *out);

/* A call of a function of lua/boards.lua: about the board of a span of a period, about the board of
 * all time, or about the events that were sold out on a day. */
void board_begin(struct call *c, const char *function, const struct period *p,
                 const struct span *span, int64_t now_ms);
void soldout_begin(struct call *c, const char *function, int64_t now_ms);
void soldout_day_begin(struct call *c, const char *function, const struct span *day,
                       int64_t now_ms);
void board_add_mark(struct call *c, const struct sale_mark *mark);
void board_add_steps(struct call *c, const struct pace_step *steps, size_t count);
/* The restoring functions of port/boards.h. */
void redis_restore_board_event(struct boards *b, const struct board_event *e);
void redis_restore_sale(struct boards *b, const struct sale *s, int64_t now_ms);
void redis_boards_restored(struct boards *b, const struct sale_mark *mark, int64_t now_ms);

/* Channels of Redis. A node publishes its name on the first when it has changed an event; and
 * "NODE TYPE:ID seq seq …" on the second when entries have become ACTIVE or have ended, durably. On
 * the third, which is followed by a node's name, locks are passed on to requests that wait on that
 * node. "NODE partition partition …" on the fourth: asynchronous requests were accepted there; and
 * "NODE id id …" on the fifth: these were decided. */
#define EVENTS_CHANNEL "admitone:events"
#define ENTRIES_CHANNEL "admitone:entries"
#define LOCKS_CHANNEL "admitone:locks:"
#define ACCEPTED_CHANNEL "admitone:requests:accepted"
#define DECIDED_CHANNEL "admitone:requests:decided"

/* A thread, from new to free, that calls the store's listener and locks_on_announcement. */
struct announcements *announcements_new(struct redis_store *s);
void announcements_free(struct announcements *n);
/* The store has got a listener. */
void announcements_wake(struct announcements *n);

/* Made and ended with the worker. */
struct queue_worker *queue_worker_new(struct redis_worker *w, uv_loop_t *loop);
void queue_worker_close(struct queue_worker *q);
struct locks_worker *locks_worker_new(struct redis_worker *w, uv_loop_t *loop);
void locks_worker_close(struct locks_worker *l);
/* The outcome for a request on this node that waits for a lock, as lua/locks.lua announces it on
 * the channel admitone:locks:NODE. Any thread. */
void locks_on_announcement(struct redis_store *s, str announcement);

#endif
