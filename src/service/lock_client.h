/*
 * lock_client: the locks that the requests of one worker hold or wait for, and the delays of
 * requests that try again. Only that worker uses it.
 *
 * It is also the watchdog: it renews every lock that is held until the lock is given back. A
 * process that is stalled renews nothing, so its locks go to other requests; the ledger refuses
 * what it writes afterwards, by the locks' fences.
 *
 * Leases are measured by the steady clock. Its timer runs only while there is something to do.
 */
#ifndef ADMITONE_SERVICE_LOCK_CLIENT_H
#define ADMITONE_SERVICE_LOCK_CLIENT_H

#include "base/list.h"
#include "port/locks.h"
#include "run/ticker.h"

struct lock_client {
    struct locks *locks;
    int64_t lease_ms;

    struct list choosing; /* of service/hold.c: struct hold, those that choose seats */

    /* Private. */
    struct ticker ticker;
    int64_t pace_ms;     /* of its ticks; 0: none */
    struct list held;    /* struct held_lock */
    struct list delayed; /* struct retry_delay */
    size_t waiting;      /* for locks */
    uint64_t random;
    bool stopping;
};

/* `locks` and `lease_ms` are filled in. Before the worker starts, or on its thread. */
void lock_client_init(struct lock_client *c, uv_loop_t *loop);
/* On its thread: every wait for a lock ends, and no later request waits. */
void lock_client_drain(struct lock_client *c);
/* On its thread, when nothing is under way. */
void lock_client_close(struct lock_client *c);

/* One lock, from the request for it until it is given back. Stays until then. */
struct held_lock {
    struct lock_op acquire; /* the caller fills in name and wait_ms_max */
    void (*done)(struct held_lock *k);
    void *caller_data;

    /* Private. */
    struct lock_client *client;
    struct list link;
    struct lock_hold_op renewal;
    struct lock_hold_op release;
    int64_t renewed_ms;
    int64_t asked_ns;
    int64_t acquired_ns;
    bool renewing;
    bool released;
};

/* When `done` is called, acquire.result and acquire.outcome say whether it was acquired. */
void lock_client_acquire(struct lock_client *c, struct held_lock *k);
/* Gives back a lock that was acquired; `done` is called after that, too. */
void lock_client_release(struct held_lock *k);
/* From the request until it was acquired, and from then until now. */
int64_t held_lock_waited_us(const struct held_lock *k);
int64_t held_lock_held_us(const struct held_lock *k);

struct retry_delay {
    void (*done)(struct retry_delay *r);

    /* Private. */
    struct list link;
    int64_t until_ns;
};

/* Calls `done` after a random time of up to ms_max, so that requests that were in each other's way
 * come back one after the other. */
void lock_client_delay(struct lock_client *c, struct retry_delay *r, int64_t ms_max);
uint64_t lock_client_random(struct lock_client *c);

#endif
