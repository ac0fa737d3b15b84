/*
 * link: one connection to the Redis server that is the master now, on one libuv loop, used on that
 * loop's thread only. It finds the master (by its address, or by asking Sentinels), connects, and
 * connects again with backoff and jitter when the connection is lost; names are resolved without
 * blocking.
 *
 * All calls of one iteration of the loop are sent in one write, and are answered in order. If the
 * server does not know a call's function, the library is loaded first.
 *
 * A call's `done` is called once, on the loop's thread: at once when there is no connection, else
 * when the answer has arrived. Its result is OK, and then the reply is not an error; or
 *   HOT_UNAVAILABLE  the call was not sent, or the server refuses all calls (it is loading, or is a
 *                    replica)
 *   HOT_FULL         the server is at its maxmemory
 *   HOT_UNKNOWN      the connection broke, or the deadline passed, while the call was under way. A
 *                    call that may be repeated is first sent again over the next connection to the
 *                    same run of the server, until its deadline.
 *   RECOVERING       no incarnation is open, the server is not the run of the open one, or the
 *                    function found another epoch, or an event missing that should be there
 *   EVENT_NOT_FOUND  the event was removed
 */
#ifndef ADMITONE_HOT_REDIS_LINK_H
#define ADMITONE_HOT_REDIS_LINK_H

#include <uv.h>

#include "hot/redis/address.h"
#include "hot/redis/call.h"
#include "hot/redis/status.h"

/* The library of functions: lua/, embedded by CMake, which also defines its name, REDIS_LIBRARY. */
extern const char admitone_lua[];

/* A hash: the epoch and the identity of the incarnation that Redis was rebuilt for. A version that
 * stores data in another format must use another name here: then its nodes find no incarnation and
 * rebuild Redis. A new version of the library alone causes no rebuild; it is loaded beside the old
 * one. */
#define INCARNATION_KEY "admitone:{hot}:incarnation"

struct link;

/* `deadline_ms`: of each call. Starts to connect. */
struct link *link_new(uv_loop_t *loop, const struct redis_address *address,
                      struct redis_status *status, int64_t deadline_ms);
/* Calls that are under way end with HOT_UNKNOWN. The loop must run until the link is freed. */
void link_close(struct link *l);

void link_send(struct link *l, struct call *c);
/* Whether there is a connection. Calls may be refused all the same: see redis_status. */
bool link_is_up(const struct link *l);

#endif
