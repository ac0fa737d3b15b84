/*
 * feed: the contract of the stream of asynchronous requests, from their acceptance to their
 * decision. An adapter promises:
 *
 *  - A request is accepted when it is durable, and only then `done` says OK. FEED_UNKNOWN: it may
 *    have been accepted. Any other result: it was not, and never will be.
 *  - An accepted request is delivered to the consumer at least once, until it is acknowledged, also
 *    after a crash. Requests of one partition are delivered in the order of their acceptance, all
 *    on the same worker; one node at a time works on a partition. When another node takes it over,
 *    undecided requests are delivered there, perhaps while the first node still works on them.
 *  - Of one partition no more than FEED_WINDOW requests are delivered and not acknowledged. The
 *    others wait in the feed, not in memory.
 */
#ifndef ADMITONE_PORT_FEED_H
#define ADMITONE_PORT_FEED_H

#include "port/ledger.h"

#define FEED_WINDOW 64

struct feed_publish {
    const struct request *request; /* belongs to the caller until `done` */
    /* On the caller's worker: later, or before feed_publish returns. */
    void (*done)(struct feed_publish *p);
    enum err result; /* out; also IDEMPOTENCY_MISMATCH */
    bool is_new;     /* out, on OK: it was not accepted before */
    int64_t
        ahead; /* out, on OK: undecided requests of the partition before it, at its acceptance */
    enum request_status status; /* out, on OK */

    /* Private to the adapter. */
    struct feed *feed;
    struct ledger_request_put put;
};

/* A request that was delivered. It belongs to the adapter, and stays until it is acknowledged. */
struct feed_message {
    struct request *request;
    int64_t fence; /* of the lease of its partition, for ledger_request_decide; 0: there is none */
};

/* Called on the worker that attached it. */
struct feed_consumer {
    void (*deliver)(struct feed_consumer *c, struct feed_message *m);
};

struct feed {
    const struct feed_ops *ops;
};

struct feed_ops {
    void (*publish)(struct feed *f, struct feed_publish *p);
    void (*attach)(struct feed *f, size_t worker, struct feed_consumer *consumer);
    void (*tick)(struct feed *f, size_t worker);
    void (*acknowledge)(struct feed *f, struct feed_message *m, bool is_decided);
    void (*nudge)(struct feed *f, int partition);
    void (*drain)(struct feed *f, size_t worker);
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

/* The message is gone. Not decided: it stays in the feed, and is delivered again after a restart or
 * to another node. On the worker to which it was delivered. */
static inline void feed_acknowledge(struct feed *f, struct feed_message *m, bool is_decided) {
    f->ops->acknowledge(f, m, is_decided);
}

/* Another node has accepted requests of the partition. From any thread. */
static inline void feed_nudge(struct feed *f, int partition) {
    f->ops->nudge(f, partition);
}

/* Delivers nothing more. On the worker's thread. */
static inline void feed_drain(struct feed *f, size_t worker) {
    f->ops->drain(f, worker);
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
