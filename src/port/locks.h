/*
 * locks: the contract of named locks. Requests wait in order of arrival, a holder that dies does
 * not block the others, and every write under a lock carries a number by which the ledger
 * recognizes a late holder. An adapter promises:
 *
 *  - At any time at most one request holds a name, for a *lease*: until the lease ends, or is
 *    released. A holder that needs longer renews it in time. After its end the lease is LOST, even
 *    if no other request has the lock by then.
 *  - A name begins with the name of its event: "TYPE/ID/…".
 *  - Every acquisition has a *fence*: epoch × 2^EPOCH_COUNT_BITS + a count. Fences only grow, over
 *    all names of one event: a later acquisition has the higher one, also after a release, and
 *    after a restart, because the epoch grows. So writes to one row, which always belongs to one
 *    event, may be made under locks of different names. The lease alone cannot stop a holder that
 *    was paused; the ledger refuses its late write by the fence.
 *  - A wait is bounded. A request is in the line no longer than its wait_ms_max, and its lease
 *    begins when it gets the lock, whether or not it has been notified. When nodes share the store,
 *    requests of a worker that has been silent for a second are skipped until it is alive again,
 *    and keep their places.
 *  - The time is `now_ms` of each operation and of locks_tick. Without ticks a lock that no request
 *    asks for stays with a dead holder, and waits do not end. A shared store may use its own clock
 *    instead; its answers are in that time.
 *  - `done` is called on the caller's thread, once: before the function returns, or later, as a
 *    task of its worker. An operation's struct and name belong to the caller and stay valid until
 *    then. `result` is OK, or a failure of the store (port/hot.h).
 *  - No operation waits for another one, whatever locks requests wait for.
 */
#ifndef ADMITONE_PORT_LOCKS_H
#define ADMITONE_PORT_LOCKS_H

#include "base/err.h"
#include "base/str.h"
#include "base/task.h"
#include "core/limits.h"

#define LOCK_NAME_BYTES_MAX 255

enum lock_outcome {
    LOCK_ACQUIRED,
    LOCK_TIMED_OUT, /* it was held for the whole wait, or until locks_give_up */
    LOCK_KEPT,      /* renewed */
    LOCK_RELEASED,
    LOCK_LOST, /* the lease has ended, or there was none */
};

/* Acquires a name. */
struct lock_op {
    struct task task; /* private to the adapter */
    str name;
    int64_t now_ms;
    int64_t wait_ms_max; /* 0: it does not wait */
    int64_t lease_ms;    /* from the moment when it is acquired */
    void (*done)(struct lock_op *l);
    enum err result;           /* out */
    enum lock_outcome outcome; /* out: ACQUIRED, TIMED_OUT */
    uint64_t fence;            /* out, when ACQUIRED */
    int64_t until_ms;          /* out, when ACQUIRED: when the lease is over */
    int64_t waited_ms;         /* out; 0 after locks_give_up, which has no clock */

    /* Below: private to the adapter. */
    struct lock_op *next;
};

/* Renews or releases the lock that was acquired with this fence. */
struct lock_hold_op {
    str name;
    uint64_t fence;
    int64_t now_ms;
    int64_t lease_ms; /* of a renewal: from now on */
    void (*done)(struct lock_hold_op *h);
    enum err result;           /* out */
    enum lock_outcome outcome; /* out: KEPT or RELEASED, LOST */
};

struct locks;

struct locks_ops {
    void (*acquire)(struct locks *l, struct lock_op *op);
    void (*renew)(struct locks *l, struct lock_hold_op *op);
    void (*release)(struct locks *l, struct lock_hold_op *op);
    void (*tick)(struct locks *l, int64_t now_ms);
    void (*give_up)(struct locks *l);
};

struct locks {
    const struct locks_ops *ops;
};

/* On a worker's thread. */
static inline void locks_acquire(struct locks *l, struct lock_op *op) {
    l->ops->acquire(l, op);
}

static inline void locks_renew(struct locks *l, struct lock_hold_op *op) {
    l->ops->renew(l, op);
}

static inline void locks_release(struct locks *l, struct lock_hold_op *op) {
    l->ops->release(l, op);
}

/* Ends leases and waits whose time is over, at least for the names that requests of this worker
 * wait for. On a worker's thread, regularly: the interval decides how late they end. */
static inline void locks_tick(struct locks *l, int64_t now_ms) {
    l->ops->tick(l, now_ms);
}

/* On a worker's thread, when it stops: the waits of its requests end with TIMED_OUT, through their
 * tasks as usual; locks that are held stay held. */
static inline void locks_give_up(struct locks *l) {
    l->ops->give_up(l);
}

#endif
