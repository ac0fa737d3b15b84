/*
 * limits: the contract of the limits on arrival (core/rate_limit.h): how many units of each kind a
 * client address, and its block, may take in a time. An adapter promises:
 *
 *  - Taking is decided at once, from what this process knows, and costs neither I/O nor memory. Any
 *    thread may take and give back.
 *  - If several nodes share the counts, `share` tells the others what was taken here, and learns
 *    what they have taken. A bucket from which at least one part in LIMIT_SHARE_PART of its
 *    capacity was taken since the last time is shared; less is not worth a message. While the store
 *    can't be reached, each node goes on with its own counts.
 */
#ifndef ADMITONE_PORT_LIMITS_H
#define ADMITONE_PORT_LIMITS_H

#include "base/err.h"
#include "core/rate_limit.h"

/* One at a time, on the same worker's thread. Valid until `done`, which is called there. */
struct limits_share_op {
    int64_t now_ns; /* steady, as for the other functions */
    void (*done)(struct limits_share_op *s);
    enum err result; /* out; on an error some of what was taken remains unknown to other nodes */
    size_t count;    /* out: buckets that were shared */
};

struct limits;

struct limits_ops {
    struct limit_verdict (*take)(struct limits *l, const struct limit_client *c,
                                 enum limit_kind kind, int64_t units, int64_t now_ns);
    void (*give_back)(struct limits *l, const struct limit_client *c, enum limit_kind kind,
                      int64_t units, int64_t now_ns);
    void (*share)(struct limits *l, struct limits_share_op *s);
};

struct limits {
    const struct limits_ops *ops;
};

static inline struct limit_verdict limits_take(struct limits *l, const struct limit_client *c,
                                               enum limit_kind kind, int64_t units,
                                               int64_t now_ns) {
    return l->ops->take(l, c, kind, units, now_ns);
}

static inline void limits_give_back(struct limits *l, const struct limit_client *c,
                                    enum limit_kind kind, int64_t units, int64_t now_ns) {
    l->ops->give_back(l, c, kind, units, now_ns);
}

static inline void limits_share(struct limits *l, struct limits_share_op *s) {
    l->ops->share(l, s);
}

#endif
