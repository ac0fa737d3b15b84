/*
 * internal: what the files of the Redis adapter share. Private to them.
 *
 *   address.c   where Redis is
 *   call.c      commands, replies, and the gate
 *   handshake.c  what is said first on a connection
 *   wire.c      one connection, as long as it lasts
 *   link.c      a worker's connection that lasts, over wires
 *   store.c     opens and closes it all; which events are known, and their keys
 *   blocking.c  a connection for threads that may wait
 *   rebuild.c      port/hot.h: lives of the store, filling it
 *   event_contents.c    port/hot.h: all that the store has of an event
 *   announcements.c      what other nodes announce
 *   queue.c     port/queue.h      lua/queue.lua
 *   seats.c     port/seats.h      lua/seat_map.lua, lua/seats.lua
 *   locks.c     port/locks.h      lua/locks.lua
 *   overview.c  of port/queue.h, port/seats.h and port/hot.h what is about all events together
 *                                 lua/common.lua
 *   boards.c    port/boards.h     lua/boards.lua
 *   boards_rebuild.c              what boards have when the store is being filled
 */
#ifndef ADMITONE_HOT_REDIS_INTERNAL_H
#define ADMITONE_HOT_REDIS_INTERNAL_H

#include <stdatomic.h>

#include "base/map.h"
#include "core/period.h"
#include "hot/redis/link.h"
#include "hot/redis/store.h"

/* Different sections, few. Zeroed before its first use; the keys are to be freed. */
struct section_set {
    int64_t *keys;
    size_t count;
};

/* An event that this node knows: until the store has heard that it was removed, and while anybody
 * holds it. */
struct redis_event {
    _Atomic int64_t holds; /* the store's own among them */
    int64_t key;
    char tag[EVENT_PATH_BYTES];  /* "TYPE:ID" */
    struct section_set sections; /* under the store's lock: see store_copy_sections */
    _Atomic bool there;          /* the store has been told of it, as far as this node knows */
};

struct redis_store {
    struct hot hot;
    struct queues queues;
    struct seats seats;
    struct locks locks;
    struct boards boards;
    struct redis_options options;
    struct redis_status status;
    struct hot_listener listener; /* under lock */
    struct queue_listener expired;
    char node[17]; /* this process, among all that share the store: 16 random hex digits */
    pthread_rwlock_t lock;
    struct map by_key;       /* under lock: an event's key, in bytes → struct redis_event */
    struct map by_tag;       /* under lock */
    struct rebuild *rebuild; /* of rebuild.c: while the store is being filled */
    struct memory_boards *gathered;      /* of boards_rebuild.c: meanwhile */
    struct announcements *announcements; /* of announcements.c */
    size_t lock_worker_count;            /* of locks.c, under lock: that there ever were */
    struct locks_worker *lock_workers;   /* of locks.c, under lock: those that are attached */
};

extern const struct hot_ops redis_hot_ops;
extern const struct queue_ops redis_queue_ops;
extern const struct seats_ops redis_seats_ops;
extern const struct locks_ops redis_locks_ops;
extern const struct boards_ops redis_boards_ops;

/* What one attached worker has. Of the calling thread; NULL: it is not attached. */
struct redis_worker {
    struct redis_store *store;
    struct link *link;
    struct queue_worker *queue; /* of queue_look.c: looks that are gathered in this turn */
    struct locks_worker *locks; /* of locks.c: who waits */
};
struct redis_worker *redis_worker_mine(void);

/* From now on the event is known: of queues_register_event, queues_configure, queues_restore_event.
 */
void store_register_event(struct redis_store *s, const struct event *event);
/* And the store must have it: if it is missing there, something was lost. */
void store_set_in_redis(struct redis_store *s, int64_t event_key);
/* NULL: not known. Else it is held until redis_event_release. */
struct redis_event *store_find_event(struct redis_store *s, int64_t event_key);
void redis_event_hold(struct redis_event *e);
void redis_event_release(struct redis_event *e);
/* The store has heard of its removal: it is not known any more. */
void store_remove_event(struct redis_store *s, int64_t event_key);
/* By its tag; 0: not known. */
int64_t store_find_event_key(struct redis_store *s, str tag);
/* The sections that the event has, or had while this node knew it: those that vanish, too. */
struct section_set store_copy_sections(struct redis_store *s, const struct redis_event *e);
void section_set_add(struct section_set *s, int64_t key);

/* "queue:{T:ID}:waiting" and the like, as the next key of a call; "limit:{T:ID}" when `part` is
 * NULL. */
void call_add_key(struct call *c, const char *family, const struct redis_event *e,
                  const char *part);
/* "section:{T:ID}:KEY:slots" and the like; KEY is the section's number in the ledger. */
void call_add_section_key(struct call *c, const struct redis_event *e, int64_t section_key,
                          const char *part);
/* Which event of that name is meant: its key. The first argument of all but the locks' functions.
 */
void call_add_event(struct call *c, const struct redis_event *e);
/* The time that a function goes by: 0, its own, or the operation's. */
void call_add_now(struct call *c, const struct redis_store *s, int64_t now_ms);

/* As blocking_connect, and a line in the log when it fails. */
redisContext *store_reach(struct redis_store *s, int64_t step_ms,
                          char identity[HOT_IDENTITY_BYTES]);
/* The reply; NULL, and a line in the log: there was no answer, or it was an error. */
redisReply *reply_checked(redisContext *c, redisReply *reply);
enum err redis_read_event(struct hot *h, int64_t event_key, struct event_contents *out);

/* A command of the filling (rebuild.c), sent in order with many others; it is not waited for, and
 * the first that fails fails the filling. `c` is freed of its command. Outside of a filling nothing
 * happens. */
void rebuild_add(struct redis_store *s, struct call *c);

/* Keys about all events together, of lua/common.lua. */
#define TICKS_KEY "admitone:{hot}:ticks"
#define TICKED_KEY "admitone:{hot}:ticked"
#define BUYERS_KEY "admitone:{hot}:buyers"
void redis_ticks(struct queues *q, struct ticks_op *t);
void redis_buyer(struct seats *s, struct buyer_op *b);
void redis_count_events(struct hot *h, struct event_counts_op *c);

/* The keys that every function of lua/queue.lua begins with. */
#define QUEUE_KEYS 15
void queue_add_keys(struct call *c, const struct redis_event *e);

/* A call of a function about this event: its name, its keys, and the arguments that all have. */
void queue_begin(struct call *c, const struct redis_store *store, const struct redis_event *e,
                 const char *function, int64_t now_ms);

void queue_read_place(const redisReply *r, uint64_t seq, struct place *out);
struct seat_counts queue_read_seats(const redisReply *r);
/* Tells whom the step has ended by itself: of its reply, three numbers for each. The operation has
 * the time that the step went by. */
void queue_tell_ended(const struct redis_store *s, const struct hot_op *op,
                      const redisReply *ended);
/* The keys of lua/seats.lua, but those that are the queue's too: the event's, then those of each of
 * the sections. */
#define SEATS_KEYS 4
#define SECTION_KEYS 5
void seats_add_keys(struct call *c, const struct redis_event *e,
                    const struct section_set *sections);
/* "KEY:reservation", as in claim:{T:ID}:pending. */
bool claim_ref_read(str text, struct claim_ref *out);

void rebuild_free(struct rebuild *f); /* NULL, too */

/* A call of a function of lua/boards.lua: about the board of a stretch of a period, about the one
 * of all time, or about who was sold out on a day. */
void board_begin(struct call *c, const struct redis_store *s, const char *function,
                 const struct period *p, const struct span *span, int64_t now_ms);
void soldout_begin(struct call *c, const struct redis_store *s, const char *function,
                   int64_t now_ms);
void soldout_day_begin(struct call *c, const struct redis_store *s, const char *function,
                       const struct span *day, int64_t now_ms);
void call_add_mark(struct call *c, const struct sale_mark *mark);
void call_add_steps(struct call *c, const struct pace_step *steps, size_t count);
/* The restoring functions of port/boards.h. */
void boards_gather_event(struct boards *b, const struct board_event *e);
void boards_gather(struct boards *b, const struct sale *s, int64_t now_ms);
void boards_gathered(struct boards *b, const struct sale_mark *mark, int64_t now_ms);

/* Channels of Redis. On the first a node says its name when it has changed an event; on the second
 * "NODE TYPE:ID seq seq …" when entries have become ACTIVE or have ended, durably; on the third,
 * which is followed by a node's name, a lock is passed on to one who waits on that node. */
#define EVENTS_CHANNEL "admitone:events"
#define ENTRIES_CHANNEL "admitone:entries"
#define LOCKS_CHANNEL "admitone:locks:"

/* A thread, from new to free, that calls the store's listener and locks_heard. */
struct announcements *announcements_new(struct redis_store *s);
void announcements_free(struct announcements *n);
/* There is a listener now. */
void announcements_wake(struct announcements *n);

/* Made and ended with the worker. */
/* The port's operation (queue_look.c). */
void redis_queue_look(struct queues *q, struct look_op *op);

struct queue_worker *queue_worker_new(struct redis_worker *w, uv_loop_t *loop);
void queue_worker_close(struct queue_worker *q);
struct locks_worker *locks_worker_new(struct redis_worker *w, uv_loop_t *loop);
void locks_worker_close(struct locks_worker *l);
/* What has become of one who waits for a lock on this node, as lua/locks.lua has announced it on
 * the channel admitone:locks:NODE. Any thread. */
void locks_heard(struct redis_store *s, str news);

#endif
