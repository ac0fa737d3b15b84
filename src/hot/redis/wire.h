/*
 * wire: one connection of hiredis' asynchronous client on a libuv loop, from connecting until it
 * breaks; it never connects again. Used on the loop's thread only.
 *
 * hiredis has an adapter for libuv. This one differs in three ways: it reports a connection that is
 * refused; it frees a connection only when hiredis is not inside one of its callbacks; and it sends
 * all commands of one iteration of the loop right after the iteration, in one write, without
 * polling the socket first.
 */
#ifndef ADMITONE_HOT_REDIS_WIRE_H
#define ADMITONE_HOT_REDIS_WIRE_H

#include <hiredis/hiredis.h>
#include <uv.h>

#include "base/buf.h"

struct wire_listener {
    void (*connected)(void *to);
    /* The replies to the commands, in order. Valid during the call. */
    void (*replied)(void *to, const redisReply *reply);
    /* The connection broke; `why` is for people. No function is called after it. */
    void (*lost)(void *to, const char *why);
    void *to;
};

struct wire;

/* `ip` is a number, not a name. NULL: `why` says why not. */
struct wire *wire_open(uv_loop_t *loop, const char *ip, uint16_t port,
                       struct wire_listener listener, struct buf *why);
/* The listener is not called any more. Not to be called after `lost`. The loop must run until the
 * wire is freed. */
void wire_close(struct wire *w);

/* One command in the protocol of Redis. It is copied. There must be a '\0' somewhere behind it,
 * because hiredis reads it with strchr. */
void wire_send(struct wire *w, str command);

#endif
