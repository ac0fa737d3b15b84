/*
 * arrivals: the limits on arrival, as the other services and api/ use them (port/limits.h), and the
 * timer by which a node of a cluster shares its counts with the others.
 */
#ifndef ADMITONE_SERVICE_ARRIVALS_H
#define ADMITONE_SERVICE_ARRIVALS_H

#include "port/limits.h"
#include "run/ticker.h"

/* How often a node shares what was taken from its buckets. */
#define ARRIVALS_SHARE_MS 200

struct arrivals {
    struct limits *limits; /* NULL: nothing is limited */

    /* Private. */
    struct ticker ticker;
    struct limits_share_op share;
    bool is_sharing;
};

/* Takes so many units from the client's buckets, or nothing. From any thread. */
struct limit_verdict arrivals_take(const struct arrivals *a, const struct limit_client *c,
                                   enum limit_kind kind, int64_t units);
void arrivals_give_back(const struct arrivals *a, const struct limit_client *c,
                        enum limit_kind kind, int64_t units);

/* Shares the counts from now on, on that loop. Before its worker starts. */
void arrivals_start(struct arrivals *a, uv_loop_t *loop);
/* On the worker's thread. The struct must stay until the worker has ended. */
void arrivals_stop(struct arrivals *a);

#endif
