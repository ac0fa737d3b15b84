/*
 * locks: the contract of named locks: who waits comes in by order of arrival, whoever dies does not
 * stop the others, and what is written under a lock carries a number by which the ledger knows who
 * is late. What an adapter promises:
 *
 *  - At any time at most one holds a name, for a *lease*: until the lease is over, or given back.
 *    Whoever works for longer renews it in time. Over is over: who comes late has LOST it, whether
 *    somebody else has it by then or not.
 *  - A name begins with its event's: "TYPE/ID/…".
 *  - Every acquisition has a *fence*: epoch × 2^EPOCH_COUNT_BITS + a count. Fences only grow, of
 *    all names of one event together: whoever acquires later has the higher one, also after a
 *    release, and over restarts, for the epoch does. So writes to one row, which is always one
 *    event's, may be made under locks of different names. The lease alone can't keep out a holder
 *    that was paused; what refuses its late write is the ledger, by the fence.
 *  - A wait is bounded. A waiter is leased, too: it is in the line no longer than it said it would
 *    wait, and from the moment the lock is its own the lease runs, heard of or not. Where nodes
 *    share the store, one whose worker has been silent for a second is passed over meanwhile, and
 *    keeps its place.
 *  - Time is what callers say it is: `now_ms` of each operation, and of locks_tick, without which a
 *    lock that nobody asks for stays with whoever died, and those who wait are not sent away. A
 *    store that nodes share may go by a clock of its own instead, and answers in its times.
 *  - `done` is called on the caller's thread, once: before the function returns, or later, as a
 *    task of its worker. An operation's struct and name are the caller's and stay until then.
 *    `result` is OK, or a failure of the store (port/hot.h).
 *  - Operations never wait for each other, whoever waits for which lock.
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
    LOCK_TIMED_OUT, /* somebody else had it for the whole wait, or until locks_give_up */
    LOCK_KEPT,      /* renewed */
    LOCK_RELEASED,
    LOCK_LOST, /* the lease was over, or never was */
};

/* Acquires a name. */
struct lock_op {
    struct task task; /* the adapter's own */
    str name;
    int64_t now_ms;
    int64_t wait_ms_max; /* 0: now or never */
    int64_t lease_ms;    /* from the moment when it is acquired */
    void (*done)(struct lock_op *l);
    enum err result;           /* out */
    enum lock_outcome outcome; /* out: ACQUIRED, TIMED_OUT */
    uint64_t fence;            /* out, when ACQUIRED */
    int64_t until_ms;          /* out, when ACQUIRED: when the lease is over */
    int64_t waited_ms;         /* out; 0 after locks_give_up, which has no clock */

    /* Below: the adapter's own. */
    struct lock_op *next;
};

/* Renews or releases what was acquired with this fence. */
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

/* Ends leases and waits whose time is over, at least of the names that the worker's own wait for.
 * On a worker's thread, every now and then: how often decides how late they end. */
static inline void locks_tick(struct locks *l, int64_t now_ms) {
    l->ops->tick(l, now_ms);
}

/* On a worker's thread, when it stops: those of its own who wait are sent away (TIMED_OUT), through
 * their tasks as usual; those who hold stay. */
static inline void locks_give_up(struct locks *l) {
    l->ops->give_up(l);
}

#endif
