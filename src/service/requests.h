/*
 * requests: asynchronous requests for seats: accepting, deciding and looking them up.
 *
 * A request is accepted when it is durable in the feed, and decided later, in the order of its
 * partition, by the same use case as any other request (service/hold.h). The hold for a request has
 * the request's id as its idempotency key, and the result is written to the ledger once; so a
 * request that is delivered again, by a restart or by another node, keeps its result.
 *
 * A refusal is a result. A failure (disk, network, Redis) is none: the request is tried again until
 * it can be decided.
 */
#ifndef ADMITONE_SERVICE_REQUESTS_H
#define ADMITONE_SERVICE_REQUESTS_H

#include <stdatomic.h>

#include "base/map.h"
#include "port/feed.h"
#include "service/events.h"
#include "service/hold.h"

struct requests {
    struct feed *feed;
    struct ledger *ledger;
    struct hot *hot; /* announces to other nodes; NULL: there are none */
    struct events *events;
    struct reservations *reservations;
    bool decides; /* false: this node accepts requests and decides none */
    /* Requests were decided on this node: it is called on the worker that did it. */
    void (*decided)(void *to, const struct uuid *ids, size_t count);
    void *to;

    /* Private. */
    _Atomic int64_t in_flight; /* decisions and lookups under way */
};

/* Decided requests in one announcement. Those above are found by the streams' ticks. */
#define ANNOUNCED_MAX 256

/* Of one worker. */
struct requests_worker {
    struct requests *service;
    struct lock_client *lock_client;
    size_t number; /* of the worker */

    /* Private. */
    struct feed_consumer consumer;
    struct ticker ticker;
    struct list decisions[REQUEST_PARTITIONS]; /* struct decision, in the order of the partition */
    struct map by_id;                          /* id → the newest struct decision with it */
    struct {
        struct requests_check *next; /* that is not sent yet; NULL: nothing is gathered */
        struct task task;
        bool is_posted;
    } check;
    bool is_starting[REQUEST_PARTITIONS]; /* its decisions are being started */
    struct {                              /* announced to other nodes after this batch */
        struct task task;
        bool is_posted;
        bool accepted[REQUEST_PARTITIONS];
        struct uuid decided[ANNOUNCED_MAX];
        size_t decided_count;
    } news;
    bool is_draining;
};

/* Before the worker starts, or on its thread. The first three fields are filled in. */
void requests_worker_init(struct requests_worker *w, uv_loop_t *loop);
/* On the worker's thread: begins to decide. */
void requests_worker_start(struct requests_worker *w);
/* On its thread: takes no more from the feed, and tries nothing again. */
void requests_worker_drain(struct requests_worker *w);
/* On its thread, when nothing is under way. */
void requests_worker_close(struct requests_worker *w);
/* Whether decisions or lookups are under way. From any thread. */
bool requests_is_busy(struct requests *r);

/* The state of the feed, for /ready and the metrics. From memory; any thread. */
void requests_stats(struct requests *r, struct feed_stats *out);
/* How many requests are not decided yet, as far as the feed and the ledger know. */
int64_t requests_undecided(const struct feed_stats *feed, const struct ledger_health *ledger);

/* Accepts a request: publish.request is the caller's, and the outputs are those of port/feed.h. The
 * struct stays until `done` is called, on the same worker: later, or before the function returns.
 */
struct request_acceptance {
    struct feed_publish publish;
    void (*done)(struct request_acceptance *a);

    /* Private. */
    struct requests_worker *worker;
};
void requests_accept(struct requests_worker *w, struct request_acceptance *a);

/* Other nodes have accepted requests in these partitions. From any thread. */
void requests_nudge(struct requests *r, const int64_t *partitions, size_t count);

/* The id of a request with an Idempotency-Key: the same for the same user, route and key. */
struct uuid requests_id_of_key(str user, str route, str key);

/* Looks requests up. The struct stays until `done` is called, on the same worker: later, or before
 * the function returns. On an error, only decided requests are found, or none. */
struct requests_look {
    const struct uuid *ids;
    size_t count;
    struct request **found; /* out: room for `count`; NULL: there is none. mem_free each. */
    int64_t *ahead;         /* out: room for `count`; undecided requests before an undecided one */
    /* Only the ledger is asked: positions are 0, and undecided requests that the feed keeps are not
     * found. */
    bool skips_feed;
    void (*done)(struct requests_look *l, enum err result);

    /* Private. */
    struct requests_worker *worker;
    int64_t asked_ns;
    struct ledger_requests_get get;
    struct feed_look in_feed;
    struct { /* those that neither the ledger nor the feed had, asked for once more */
        struct uuid *ids;
        struct request **found;
        size_t count;
    } missing;
};
void requests_look(struct requests_worker *w, struct requests_look *l);

#endif
