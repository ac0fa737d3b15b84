/*
 * hot: what the operations on an event's hot state have in common, for its queue and its seats (the
 * contracts are in port/queue.h and port/seats.h); and the store as a whole, when several nodes
 * share one.
 *
 * A shared store can come back empty, or with an older state. So it has *incarnations*: an
 * incarnation is one run of the store that was rebuilt from the ledger, under an epoch that the
 * ledger gave out for it. Operations are executed in the incarnation that this node has opened, and
 * in no other: they are refused with RECOVERING while none is open, and when the store is in
 * another one. If the connection breaks during an operation, the adapter repeats it where that does
 * no harm; HOT_UNKNOWN: it could not find out in time whether the operation was executed;
 * HOT_UNAVAILABLE: the operation was not sent, or was refused; HOT_FULL: it was refused for lack of
 * memory.
 */
#ifndef ADMITONE_PORT_HOT_H
#define ADMITONE_PORT_HOT_H

#include "base/err.h"
#include "core/event_contents.h"
#include "core/uuid.h"

struct hot_op {
    int64_t event_key;
    int64_t now_ms;
    enum err result; /* out */
    uint32_t epoch;  /* out: the incarnation in which this was done; 0 where there is only one */
};

#define HOT_IDENTITY_BYTES 128
#define HOT_REBUILD_BYTES 64
#define HOT_LEDGER_BYTES 64

struct hot_incarnation {
    uint32_t epoch;                    /* 0: the store was never rebuilt, or has lost the epoch */
    char identity[HOT_IDENTITY_BYTES]; /* of this run of the store; changes at a restart */
    char last_rebuild[HOT_REBUILD_BYTES]; /* the name of the last rebuild, as hot_incarnation_read
                                             found it */
    char ledger[HOT_LEDGER_BYTES]; /* the name of the ledger it was rebuilt from; empty: none */
};

/* Notified of changes by other nodes. Called on a thread of the store; must not block. */
struct hot_listener {
    /* Another node has made these entries ACTIVE or has ended them, durably. With a count of 0, all
     * entries are concerned: the event has become sold out, by any node, or is not any more. */
    void (*changed)(void *to, int64_t event_key, const uint64_t *seqs, size_t count);
    /* Another node has changed an event. */
    void (*event_changed)(void *to);
    /* Another node has accepted asynchronous requests in these partitions, by number. */
    void (*requests_accepted)(void *to, const int64_t *partitions, size_t count);
    /* Another node has decided these asynchronous requests. */
    void (*requests_decided)(void *to, const struct uuid *ids, size_t count);
    /* The connection to the store was lost or made again, or the store may be in another
     * incarnation: hot_incarnation_read finds out. */
    void (*suspect)(void *to);
    void *to;
};

/* Whether a shared store accepts new data. In the other states it can still be reached and read,
 * and at OOM operations that end or finish something are accepted. */
#define HOT_STATE_MAP(X)                                                                           \
    X(OK, "ok", "it accepts new data")                                                             \
    X(OOM, "oom",                                                                                  \
      "it is at its maxmemory: enters and new holds are refused; leaving, confirming, cancelling " \
      "and admission go on")                                                                       \
    X(MISCONF, "misconf",                                                                          \
      "it cannot save its snapshots and refuses every write: confirming and cancelling go on in "  \
      "the ledger")                                                                                \
    X(NOREPLICAS, "noreplicas",                                                                    \
      "it has too few replicas and refuses every write: confirming and cancelling go on in the "   \
      "ledger")                                                                                    \
    X(READONLY, "readonly",                                                                        \
      "it is a replica and refuses every write: confirming and cancelling go on in the ledger")

enum hot_state {
#define HOT_STATE_ENUM(symbol, word, meaning) HOT_STATE_##symbol,
    HOT_STATE_MAP(HOT_STATE_ENUM)
#undef HOT_STATE_ENUM
        HOT_STATES
};

/* The store's counts of one event. */
struct event_counts {
    int64_t event_key;
    struct queue_counts queue;
    const struct section_counts *sections;
    size_t section_count;
};

/* Counts of the events that may have changed since a time of the store's clock. A change shows up
 * within a tick. */
struct event_counts_op {
    int64_t since_ms; /* 0: of all events; else `until_ms` of the last call, in the same epoch */
    int64_t now_ms;
    void (*event)(struct event_counts_op *c, const struct event_counts *e); /* for each */
    void (*done)(struct event_counts_op *c);
    enum err result;  /* out */
    int64_t until_ms; /* out */
    uint32_t epoch;   /* out */
};

struct hot;

struct hot_ops {
    void (*listen)(struct hot *h, struct hot_listener listener);
    enum err (*read_incarnation)(struct hot *h, struct hot_incarnation *out);
    enum hot_state (*state)(struct hot *h);
    enum err (*rebuild)(struct hot *h, const struct hot_incarnation *incarnation);
    enum err (*rebuilt)(struct hot *h);
    void (*open)(struct hot *h, const struct hot_incarnation *incarnation);
    void (*shut)(struct hot *h);
    void (*announce)(struct hot *h);
    void (*announce_accepted)(struct hot *h, const int64_t *partitions, size_t count);
    void (*announce_decided)(struct hot *h, const struct uuid *ids, size_t count);
    void (*counts)(struct hot *h, struct event_counts_op *c);
    enum err (*contents)(struct hot *h, int64_t event_key, struct event_contents *out);
    enum err (*lease)(struct hot *h, const char *what, int64_t for_ms, bool *is_ours);
};

struct hot {
    const struct hot_ops *ops;
};

/* Called once, before any other function. */
static inline void hot_listen(struct hot *h, struct hot_listener listener) {
    h->ops->listen(h, listener);
}

/* Which incarnation the store is in. Blocks, like hot_rebuild_begin and hot_rebuild_end; only one
 * thread at a time may call those two. */
static inline enum err hot_incarnation_read(struct hot *h, struct hot_incarnation *out) {
    return h->ops->read_incarnation(h, out);
}

/* The state at the last refusal or the last hot_incarnation_read. From any thread. */
static inline enum hot_state hot_state(struct hot *h) {
    return h->ops->state(h);
}

/* Deletes everything in the store. Then the restoring functions of queues, seats and boards write
 * to it, for the incarnation that begins with hot_rebuild_end. Fails if the store is not the run
 * that `incarnation` names any more, or if another rebuild has begun since hot_incarnation_read
 * returned `incarnation.last_rebuild`. */
static inline enum err hot_rebuild_begin(struct hot *h, const struct hot_incarnation *incarnation) {
    return h->ops->rebuild(h, incarnation);
}

/* Ends the rebuild and begins the incarnation. Fails if any write of the rebuild failed; then the
 * store is in no incarnation. */
static inline enum err hot_rebuild_end(struct hot *h) {
    return h->ops->rebuilt(h);
}

/* From now on this node's operations are executed in that incarnation, or refused. From any thread.
 */
static inline void hot_open(struct hot *h, const struct hot_incarnation *incarnation) {
    h->ops->open(h, incarnation);
}

static inline void hot_close(struct hot *h) {
    h->ops->shut(h);
}

/* Announces to the other nodes that an event has changed. On a worker's thread. The announcement
 * may be lost. */
static inline void hot_announce(struct hot *h) {
    h->ops->announce(h);
}

/* The same for asynchronous requests: partitions in which some were accepted; and decided ones. */
static inline void hot_announce_accepted(struct hot *h, const int64_t *partitions, size_t count) {
    h->ops->announce_accepted(h, partitions, count);
}

static inline void hot_announce_decided(struct hot *h, const struct uuid *ids, size_t count) {
    h->ops->announce_decided(h, ids, count);
}

/* On a worker's thread; `done` is called there. */
static inline void hot_count_events(struct hot *h, struct event_counts_op *c) {
    h->ops->counts(h, c);
}

/* Reads a registered event, to compare it with the ledger, in the open incarnation (else
 * RECOVERING): all entries and reservations that were live during the whole read, each once.
 * EVENT_NOT_FOUND: it was removed, or the store does not have it. Blocks, as hot_lease; from any
 * thread. Whatever was in `out` is overwritten; the caller clears it. */
static inline enum err hot_read_event(struct hot *h, int64_t event_key,
                                      struct event_contents *out) {
    return h->ops->contents(h, event_key, out);
}

/* For work that only one node at a time does: *is_ours says whether this node got the lease. If so,
 * no other node gets it for `for_ms`. */
static inline enum err hot_lease(struct hot *h, const char *what, int64_t for_ms, bool *is_ours) {
    return h->ops->lease(h, what, for_ms, is_ours);
}

#endif
