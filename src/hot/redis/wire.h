/*
 * wire: one connection of hiredis' asynchronous client on a libuv loop, from connecting to its end;
 * it never connects again. Used on the loop's thread only.
 *
 * hiredis has an adapter for libuv. This is another one, for three reasons: that one is deaf to a
 * connection that is refused; hiredis must not be told to free a connection from everywhere it
 * calls back from; and what is sent in one turn of the loop goes out right after the turn, in one
 * write, without asking the system first whether the socket takes it.
 */
#ifndef ADMITONE_HOT_REDIS_WIRE_H
#define ADMITONE_HOT_REDIS_WIRE_H

#include <hiredis/hiredis.h>
#include <uv.h>

#include "base/buf.h"

struct wire_listener {
    void (*connected)(void *to);
    /* To the commands, in order. Valid during the call. */
    void (*replied)(void *to, const redisReply *reply);
    /* It is over, by itself; `why` for people. The last that is heard of it. */
    void (*lost)(void *to, const char *why);
    void *to;
};

struct wire;

/* `ip` is a number, not a name. NULL: `why` says why not. */
struct wire *wire_open(uv_loop_t *loop, const char *ip, uint16_t port,
                       struct wire_listener listener, struct buf *why);
/* Nothing is heard of it any more. Not after `lost`. The loop must turn until it is freed. */
void wire_close(struct wire *w);

/* One command in the protocol of Redis. It is copied. Somewhere behind it there is a '\0', for
 * hiredis looks into it with strchr. */
void wire_send(struct wire *w, str command);

#endif
