/*
 * feed: the contract of the stream of asynchronous requests, from their acceptance to their
 * decision. An adapter promises:
 *
 *  - A request is accepted when it is durable, and only then `done` says OK. FEED_UNKNOWN: it may
 *    have been accepted. Any other result: it was not, and never will be.
 *  - An accepted request is delivered to the consumer at least once, until it is acknowledged, also
 *    after a crash. A message that cannot be decided is set aside instead (a dead letter).
 *  - Requests of one partition are delivered in the order of their acceptance, all on the same
 *    worker; one node at a time works on a partition. When another node takes it over, undecided
 *    requests are delivered there, perhaps while the first node still works on them.
 *  - Of one partition no more than FEED_WINDOW requests are delivered and not acknowledged. The
 *    others wait in the feed, not in memory.
 */
#ifndef ADMITONE_PORT_FEED_H
#define ADMITONE_PORT_FEED_H

#include "base/list.h"
#include "core/event.h"
#include "port/ledger.h"

#define FEED_WINDOW 64

struct feed_publish {
    const struct request *request;     /* belongs to the caller until `done` */
    const struct section_names *names; /* likewise: what it asks for */
    bool may_rename;                   /* no client knows its id yet: it may get another */
    /* On the caller's worker: later, or before feed_publish returns. */
    void (*done)(struct feed_publish *p);
    enum err result; /* out; also IDEMPOTENCY_MISMATCH */
    struct uuid id;  /* out, on OK and FEED_UNKNOWN: under which it was accepted */
    bool is_new;     /* out, on OK: it was not accepted before */
    int64_t
        ahead; /* out, on OK: undecided requests of the partition before it, at its acceptance */
    enum request_status status; /* out, on OK */

    /* Private to the adapter. */
    struct feed *feed;
    union {
        struct ledger_request_put put;
        struct feed_sent {
            void (*sent)(struct feed_sent *s);
            struct task task;
            enum err result;
            int partition;
            int64_t offset;
        } sent;
    };
};

/* A request that was delivered. It belongs to the adapter, and stays until it is acknowledged. */
struct feed_message {
    struct request *request;
    int64_t fence; /* of the lease of its partition, for ledger_request_decide; 0: there is none */
    /* Set when another program has produced it, which does not know our keys: then the request's
     * event_key, section_key and entry_seq are 0. */
    const struct section_names *names;
    bool is_dropped; /* an operator has dropped it: it fails */
};

/* For metrics and /ready. */
#define FEED_LAGS_MAX 256
struct feed_stats {
    bool is_available; /* requests can be accepted */
    int64_t in_flight; /* delivered on this node, and not acknowledged */
    /* Undecided requests by partition, as far as this node knows. */
    struct feed_lag {
        int partition;
        int64_t lag;
    } lags[FEED_LAGS_MAX];
    size_t lag_count;
};

/* How a delivered message ended. */
enum feed_outcome {
    FEED_DECIDED,   /* its result is durable */
    FEED_UNDECIDED, /* it stays in the feed, and is delivered after a restart or to another node */
    FEED_SET_ASIDE, /* it becomes a dead letter; only where the feed's `sets_aside` is true */
};

/* Looks for undecided requests. `found` has what the ledger knows: NULL, a decided request or an
 * undecided one. The struct stays until `done`: later, or before feed_look returns. */
struct feed_look {
    const struct uuid *ids;
    size_t count;
    struct request **found; /* in, out: undecided ones that only the feed has are added */
    int64_t asked_ns;       /* steady: before the ledger was asked */
    /* Out, one for each: undecided requests before an undecided one, else 0. On one feed it only
     * falls from one look to the next, whichever workers ask. */
    int64_t *ahead;
    void (*done)(struct feed_look *l, enum err result);

    /* Private to the adapter. */
    struct feed *feed;
    struct list link;
    struct task task;
    int64_t began_ns;
    enum err result;
};

/* Called on the worker that attached it. */
struct feed_consumer {
    void (*deliver)(struct feed_consumer *c, struct feed_message *m);
};

struct feed {
    const struct feed_ops *ops;
    bool keeps_requests; /* undecided requests are in the feed, not in the ledger */
    bool sets_aside;     /* it has a place for dead letters */
};

struct feed_ops {
    void (*publish)(struct feed *f, struct feed_publish *p);
    void (*attach)(struct feed *f, size_t worker, struct feed_consumer *consumer);
    void (*tick)(struct feed *f, size_t worker);
    void (*acknowledge)(struct feed *f, struct feed_message *m, enum feed_outcome outcome,
                        enum err reason);
    void (*look)(struct feed *f, struct feed_look *l);
    void (*nudge)(struct feed *f, int partition); /* NULL: nodes need no announcements */
    void (*drain)(struct feed *f, size_t worker);
    void (*stats)(struct feed *f, struct feed_stats *out);
    bool (*is_busy)(struct feed *f);
    void (*close)(struct feed *f);
};

/* On a worker's thread. */
static inline void feed_publish(struct feed *f, struct feed_publish *p) {
    p->feed = f;
    f->ops->publish(f, p);
}

/* Delivers to the consumer from now on. On the worker's thread; workers are numbered from 0. */
static inline void feed_attach(struct feed *f, size_t worker, struct feed_consumer *consumer) {
    f->ops->attach(f, worker, consumer);
}

/* Called on the worker's thread every FEED_TICK_MS: tries again what has failed. */
#define FEED_TICK_MS 250
static inline void feed_tick(struct feed *f, size_t worker) {
    f->ops->tick(f, worker);
}

/* The message is gone. `reason`: why it was set aside; otherwise OK. On the worker to which it was
 * delivered. */
static inline void feed_acknowledge(struct feed *f, struct feed_message *m,
                                    enum feed_outcome outcome, enum err reason) {
    f->ops->acknowledge(f, m, outcome, reason);
}

/* On a worker's thread. */
static inline void feed_look(struct feed *f, struct feed_look *l) {
    l->feed = f;
    f->ops->look(f, l);
}

/* Another node has accepted requests of the partition. From any thread. */
static inline void feed_nudge(struct feed *f, int partition) {
    if (f->ops->nudge != NULL) f->ops->nudge(f, partition);
}

/* Delivers nothing more. On the worker's thread. */
static inline void feed_drain(struct feed *f, size_t worker) {
    f->ops->drain(f, worker);
}

/* From memory: nothing is asked. From any thread. */
static inline void feed_stats(struct feed *f, struct feed_stats *out) {
    f->ops->stats(f, out);
}

/* Whether calls of it are under way that belong to no request. From any thread. */
static inline bool feed_is_busy(struct feed *f) {
    return f->ops->is_busy(f);
}

/* When all workers have ended. */
static inline void feed_close(struct feed *f) {
    f->ops->close(f);
}

#endif
