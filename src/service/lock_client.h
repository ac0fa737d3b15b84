/*
 * lock_client: what one worker has for reservations: the locks that its requests hold or wait for,
 * and requests that rest before they try again. Only its own worker uses it.
 *
 * The watchdog is here: a lock that is held is renewed again and again until it is given back. A
 * process that stands still renews nothing, and its locks go to others; what it then still writes
 * the ledger refuses, by the locks' fences.
 *
 * Leases are a matter of time that passes (clock_steady_ms), not of what a wall says. It ticks only
 * while there is something to look after.
 */
#ifndef ADMITONE_SERVICE_LOCK_CLIENT_H
#define ADMITONE_SERVICE_LOCK_CLIENT_H

#include "base/list.h"
#include "port/locks.h"
#include "run/ticker.h"

struct lock_client {
    struct locks *locks;
    int64_t lease_ms;

    /* Below: its own. */
    struct list choosing; /* struct holding, of the service: whose seats are only suggested */
    struct ticker ticker;
    int64_t pace_ms;     /* of its ticks; 0: none */
    struct list held;    /* struct held_lock */
    struct list resting; /* struct retry_delay */
    size_t waiting;      /* for locks */
    uint64_t random;
    bool stopping;
};

/* `locks` and `lease_ms` are filled in. Before the worker starts, or on its thread. */
void lock_client_init(struct lock_client *d, uv_loop_t *loop);
/* On its thread: nobody waits for a lock any longer, now or later. */
void lock_client_drain(struct lock_client *d);
/* On its thread, when nothing is under way. */
void lock_client_close(struct lock_client *d);

/* One lock, from the wish for it until it is given back. Stays until then. */
struct held_lock {
    struct lock_op acquire; /* name and wait_ms_max are the caller's */
    void (*done)(struct held_lock *k);
    void *caller_data; /* the caller's */

    /* Below: the lock_client's own. */
    struct lock_client *lock_client;
    struct list link;
    struct lock_hold_op renewal;
    struct lock_hold_op release;
    int64_t renewed_ms;
    int64_t asked_ns;
    int64_t acquired_ns;
    bool renewing;
    bool released;
};

/* `done` hears acquire.result and acquire.outcome. */
void lock_client_acquire(struct lock_client *d, struct held_lock *k);
/* Gives back what was acquired; `done` hears of that, too. */
void lock_client_release(struct held_lock *k);
/* From the wish until it was acquired, and from then until now. */
int64_t held_lock_waited_us(const struct held_lock *k);
int64_t held_lock_held_us(const struct held_lock *k);

struct retry_delay {
    void (*done)(struct retry_delay *r);

    /* Below: the lock_client's own. */
    struct list link;
    int64_t until_ns;
};

/* Calls done after some time up to ms_max, at random: whoever got in each other's way comes back
 * one after the other. */
void lock_client_delay(struct lock_client *d, struct retry_delay *r, int64_t ms_max);
uint64_t lock_client_random(struct lock_client *d);

#endif
