/*
 * status: what all connections of a store know about the Redis server: which incarnation is open on
 * this node, whether the server accepts writes, and whether it can be reached at all (for the log).
 * Safe from any thread.
 */
#ifndef ADMITONE_HOT_REDIS_STATUS_H
#define ADMITONE_HOT_REDIS_STATUS_H

#include <pthread.h>

#include "base/outage.h"
#include "hot/redis/address.h"
#include "port/hot.h"

struct redis_status {
    pthread_mutex_t lock;
    struct hot_incarnation incarnation; /* under lock; epoch 0: none is open */
    _Atomic uint64_t version;           /* grows with every change of the incarnation */
    _Atomic int state;                  /* enum hot_state */
    _Atomic bool refused; /* a call was refused since redis_status_accepted was last called */
    struct outage outage; /* of the connection */
    char address[REDIS_ADDRESS_TEXT_BYTES];
    /* Called when the open incarnation may not be the server's any more. */
    void (*suspect)(void *to);
    void *to;
};

void redis_status_init(struct redis_status *s, const struct redis_address *address);
void redis_status_deinit(struct redis_status *s);
/* NULL: no incarnation is open from now on. */
void redis_status_open(struct redis_status *s, const struct hot_incarnation *incarnation);
struct hot_incarnation redis_status_incarnation(struct redis_status *s);

/* Logs that this server, or this Sentinel, cannot be reached. */
void redis_status_unreachable(struct redis_status *s, const struct redis_host *host,
                              const char *why);
/* Reads the server's state from an error reply, and logs it if it has changed. Returns that state;
 * HOT_STATE_OK: the error says nothing about it. */
enum hot_state redis_status_refused(struct redis_status *s, str error);
/* A probe was accepted. The state is OK again if no call was refused since the last probe: at the
 * limit of its memory Redis accepts some calls and refuses others, and the state must not flap. */
void redis_status_accepted(struct redis_status *s);
/* Whether functions that need no more memory are accepted (OK, OOM); else only reads are. */
bool redis_status_allows_updates(struct redis_status *s);
/* The server cannot be reached: its state is not known. */
void redis_status_lost(struct redis_status *s);

#endif
