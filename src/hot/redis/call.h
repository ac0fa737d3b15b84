/*
 * call: one command to Redis and its reply: the only wrapper of an asynchronous call. An operation
 * of a port becomes a call like this:
 *
 *   struct call *c = call_new_for_event(store, &op->op);  holds the event
 *   call_begin(c, "function", keys);                      then call_add for each key and argument
 *   call_send(c, redis_on_answer);                        on a worker's thread
 *
 *   static void redis_on_answer(struct call *c, enum err result, const redisReply *reply) {
 *       struct some_op *op = call_end(c, result);         notes the result, releases and frees
 *       …                                                 reads the reply, which is still valid
 *       op->done(op);
 *   }
 *
 * Before call_end the callback may begin and send the same call once more (to undo the step). An
 * operation that needs more state embeds the call in its own struct, zeroed before its first use.
 * The results are those of link.h.
 */
#ifndef ADMITONE_HOT_REDIS_CALL_H
#define ADMITONE_HOT_REDIS_CALL_H

#include <hiredis/hiredis.h>

#include "base/buf.h"
#include "base/list.h"
#include "port/hot.h"

struct call;
struct redis_event;
struct redis_store;

/* The reply is valid during the call of this function; it is NULL unless `result` is OK. */
typedef void call_done(struct call *c, enum err result, const redisReply *reply);

struct call {
    call_done *done;
    struct redis_store *store;
    struct redis_event *event; /* held; NULL: the call is not about one event */
    void *op;     /* the port's operation; if there is an event, it begins with a struct hot_op */
    bool repeats; /* may be sent again when its answer was lost */
    bool requires_event; /* if Redis does not have the event, the incarnation has lost data */
    uint32_t epoch;      /* the incarnation in which it was sent, for hot_op.epoch; 0: it was not */

    /* Below: private to call.c and link.c. */
    struct buf command; /* freed before `done` */
    size_t arguments;
    size_t keys_left;  /* still to be added */
    size_t epoch_at;   /* where in the command the epoch goes; 0: it has none */
    struct list place; /* in its link */
    uint64_t deadline_ms;
    bool unsure; /* a connection broke while it was under way: Redis may have executed it */
    bool loaded; /* the library was loaded for it */
    bool late;   /* its deadline has passed, and was extended for a moment */
};

struct call *call_new(struct redis_store *s, void *op);
/* Holds the event of the operation. If this node does not know the event, the call can be built
 * like any other; call_send does not send it, and calls `done` with EVENT_NOT_FOUND. */
struct call *call_new_for_event(struct redis_store *s, struct hot_op *op);
/* The same for an embedded call. */
void call_set_event(struct call *c, struct redis_store *s, int64_t event_key);
bool call_event_is_unknown(const struct call *c);

/* FCALL of a function of the library, by its name without the version, with this number of keys.
 * The first argument after the keys is always the epoch, which the link fills in when it sends. */
void call_begin(struct call *c, const char *function, size_t keys);
/* Any other command: it has no epoch and is sent whatever incarnation is open. `done` gets the
 * reply also when it is an error, with INTERNAL. */
void call_begin_command(struct call *c);
/* A key, then an argument, in order. */
void call_add(struct call *c, str text);
void call_add_i64(struct call *c, int64_t number);
void call_add_u64(struct call *c, uint64_t number);
/* "queue:{T:ID}:waiting" and the like, as the next key; "limit:{T:ID}" when `part` is NULL. */
void call_add_key(struct call *c, const char *family, const struct redis_event *e,
                  const char *part);
/* "section:{T:ID}:KEY:slots" and the like; KEY is the section's number in the ledger. */
void call_add_section_key(struct call *c, int64_t section_key, const char *part);
/* The key of the call's event: the first argument of all functions but those of locks. */
void call_add_event(struct call *c);
/* The time for the function: 0 (it uses the clock of Redis), or the operation's. */
void call_add_now(struct call *c, int64_t now_ms);
/* Appends the command as it is sent in that incarnation. */
void call_write(const struct call *c, uint32_t epoch, struct buf *out);

/* Sends over the link of this thread's worker. Repeated if its answer is lost; or sent once. */
void call_send(struct call *c, call_done *done);
void call_send_once(struct call *c, call_done *done);

/* For a call about an event: notes the result and the epoch in the operation, and frees the call.
 * Returns the operation. */
void *call_end(struct call *c, enum err result);
/* The two halves of call_end. */
void call_note_result(struct call *c, enum err result);
void *call_free(struct call *c);
/* For calls whose outcome does not matter. */
call_done call_ignore;

/* The numbers in replies: integers, or text where they don't fit a double. 0 when it is neither. */
int64_t reply_i64(const redisReply *r);
uint64_t reply_u64(const redisReply *r);
str reply_str(const redisReply *r);
/* The next number of a text that has them with blanks in between; 0 when it is none. */
int64_t text_next_i64(str *rest);
/* NULL when there is none. */
const redisReply *reply_at(const redisReply *r, size_t i);

#endif
