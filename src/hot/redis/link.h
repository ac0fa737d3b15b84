/*
 * link: one connection to the Redis server that is the master now, on one libuv loop, used on that
 * loop's thread only. It finds the master (by its address, or by asking Sentinels), connects, and
 * connects again with backoff and jitter when it is lost; names are resolved without blocking.
 *
 * All calls of one turn of the loop go out in one write, and are answered in order. A call whose
 * function the server does not know has the library loaded first.
 *
 * `done` is called once, on the loop's thread: at once when there is no connection, and
 * else when the answer is there. Its result is OK and the reply is not an error; or
 *   HOT_UNAVAILABLE  it was not sent, or the server refused it as a whole (it loads, is a replica)
 *   HOT_FULL         the server is at its maxmemory
 *   HOT_UNKNOWN      the connection broke, or the deadline passed, while it was under way. A call
 *                    that may be repeated is sent again over the next connection to the same run of
 *                    the server, until its deadline.
 *   RECOVERING       the server is not the run whose incarnation is open (gate), or the function
 * found another epoch, or an event missing that should be there EVENT_NOT_FOUND  the event was
 * removed A reply is valid during `done`.
 */
#ifndef ADMITONE_HOT_REDIS_LINK_H
#define ADMITONE_HOT_REDIS_LINK_H

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/outage.h"
#include "hot/redis/address.h"
#include "port/hot.h"

/* What all links of a store share: which incarnation is open, and whom to tell when one looks
 * wrong. Safe from any thread. */
struct redis_status {
    pthread_mutex_t lock;
    struct hot_incarnation incarnation; /* epoch 0: none is open */
    _Atomic uint64_t version;           /* grows with every change of it */
    _Atomic int state;                  /* enum hot_state */
    _Atomic bool refused; /* something was, since the store was last asked for its state */
    struct outage outage; /* whether there is a connection at all, for the log */
    void (*suspect)(void *to);
    void *to;
};

void redis_status_init(struct redis_status *g);
void redis_status_deinit(struct redis_status *g);
void redis_status_open(struct redis_status *g,
                       const struct hot_incarnation *incarnation); /* NULL: shut */
struct hot_incarnation redis_status_incarnation(struct redis_status *g);
/* That server can't be reached, for the log. */
void redis_host_lost(struct outage *o, const struct redis_host *host, const char *why);
/* What an error says about the state of the whole server is noted, and logged when it is a change.
 * Returns the state that it speaks of; OK: of none. */
enum hot_state redis_status_refused(struct redis_status *g, str error);
/* The server was asked for its state, and takes something new. It is OK when nothing was refused
 * since it was last asked: at the edge of its memory the state must not change with every call. */
void redis_status_accepted(struct redis_status *g);
/* Whether what is allowed at OOM is accepted: else only reads are. */
bool redis_status_allows_updates(struct redis_status *g);
/* The server can't be reached: nothing is known of its state. */
void redis_status_lost(struct redis_status *g);

/* The functions, as one library: lua/, embedded by CMake, which also defines REDIS_LIBRARY, its
 * name. */
extern const char admitone_lua[];

/* A hash: the epoch and the identity of the incarnation that the store was filled for. */
#define INCARNATION_KEY "admitone:{hot}:life"

struct link;

/* One command on its way. The caller's memory, until `done`; zeroed before its first use. */
struct call {
    void (*done)(struct call *c, enum err result, const redisReply *reply);
    bool repeats; /* asking twice does no harm */
    bool expects; /* the event must be there: if it is not, the incarnation has lost something */
    /* The incarnation in which it was sent, for hot_op.epoch; 0: it never was. */
    uint32_t epoch;

    /* Below: the link's own. */
    struct buf command; /* what call_begin and call_add have gathered; freed before `done` */
    size_t arguments;
    size_t keys_left;  /* still to be added */
    size_t epoch_at;   /* where in the command the epoch goes; 0: it has none */
    struct list place; /* in its link */
    uint64_t deadline_ms;
    bool unsure; /* a connection broke with it: who knows whether it was done */
    bool loaded; /* the library was loaded for it */
    bool late;   /* its deadline has passed; it has a last moment */
};

/* FCALL of a function of the library, by its name without the version, with so many keys. The first
 * argument behind the keys is always the epoch, which the link fills in when it sends. */
void call_begin(struct call *c, const char *function, size_t keys);
/* Any other command: it has no epoch and goes out whatever incarnation is open. `done` gets the
 * reply also when it is an error, with INTERNAL. */
void call_begin_command(struct call *c);
/* A key, then an argument, in order. */
void call_add(struct call *c, str text);
void call_add_i64(struct call *c, int64_t number);
void call_add_u64(struct call *c, uint64_t number);
/* As it goes over the wire, in that incarnation, behind what is in `out`. */
void call_write(const struct call *c, uint32_t epoch, struct buf *out);

/* `deadline_ms`: of each call. Starts to connect. */
struct link *link_new(uv_loop_t *loop, const struct redis_address *address,
                      struct redis_status *status, int64_t deadline_ms);
/* What is under way ends with HOT_UNKNOWN. The loop must turn until it is freed. */
void link_close(struct link *l);

void link_send(struct link *l, struct call *c);
/* There is a connection; whether calls may pass is the gate's say. */
bool link_is_up(const struct link *l);

/* The numbers in replies: integers, or text where they don't fit a double. 0 when it is neither. */
int64_t reply_i64(const redisReply *r);
uint64_t reply_u64(const redisReply *r);
str reply_str(const redisReply *r);
/* The next number of a text that has them with blanks in between; 0 when it is none. */
int64_t text_next_i64(str *rest);
/* NULL when there is none. */
const redisReply *reply_at(const redisReply *r, size_t i);

#endif
