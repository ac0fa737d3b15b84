/*
 * queue: the contract of the waiting rooms' hot state: the waiting entries in their order, and the
 * active ones. An adapter promises:
 *
 *  - Each operation is one atomic step on one event, by the rules of core/queue.h.
 *  - An operation's `done` is called on the caller's thread: before the function returns, or later.
 *    Its struct belongs to the caller and stays valid until then. `result` is OK, or why nothing
 *    was done: EVENT_NOT_FOUND, or a failure of the store.
 *  - The effect of enter and admit is pending until it is settled. Their `submit` is called as part
 *    of the step, so the records of one event reach the ledger in the order of the steps. If it
 *    returns an error, the step is undone at once, and the error is the result. `submit` only
 *    submits records.
 *  - Entries whose time is over are ended before any are counted, and reported to `expired` in the
 *    same step.
 */
#ifndef ADMITONE_PORT_QUEUE_H
#define ADMITONE_PORT_QUEUE_H

#include "core/claims.h"
#include "port/hot.h"
#include "port/ledger.h"

/* Creates an entry for the user, or finds the existing one. */
struct enter_op {
    struct hot_op op;
    str user;
    unsigned lane;
    /* 0, or the section that the place is for: when all its seats are CONFIRMED, the outcome is
     * SOLD and nothing is changed, whether or not the user has a place. */
    int64_t section_key;
    /* Only finds the place that the user has: without one the outcome is NONE, and nothing is
     * changed. */
    bool only_there;
    /* Called when the entry is new, or is not durable yet: see place.pending. Submits its record,
     * the same one in both cases. */
    enum err (*submit)(struct enter_op *e);
    void (*done)(struct enter_op *e);
    enum enter_outcome outcome; /* out */
    struct place place;         /* out, when there is one */
    /* Out: an older entry of the user, ended by this step because its time is over; 0: none. */
    uint64_t closes;
    int64_t opens_at_ms;      /* out */
    struct seat_counts seats; /* out: of all sections */
    bool has_stock;           /* out, with a place: queue_has_stock */
    uint64_t stays_ended;     /* out: queue_stays_ended */
    bool reserving;           /* out: the place is ACTIVE, and has a live hold */
};

/* The ledger has decided about entries that were pending: kept, or undone. */
struct settle_op {
    struct hot_op op;
    bool admissions; /* settles admissions */
    bool expiries;   /* settles expiries by the store that the ledger has now; neither: enters */
    const uint64_t *seqs;
    const bool *kept;
    size_t count;
    struct place *places; /* NULL, or out, one for each: its state now, NONE when there is none */
    void (*done)(struct settle_op *s);
};

/* Ends entries whose time is over, and admits as many as the rules allow. No further admission is
 * made until this one is settled. */
struct admit_op {
    struct hot_op op;
    struct entry_change *entries;           /* room for ADMIT_MAX; out */
    size_t count;                           /* out */
    enum err (*submit)(struct admit_op *a); /* when count > 0 */
    void (*done)(struct admit_op *a);
};

struct look_item {
    uint64_t seq;
    bool seen; /* record that the user is there */
    /* Out. The status is NONE when the entry is not known. Of a waiting entry only status,
     * position, waiting and estimate are set. */
    struct place place;
    bool reserving; /* out: ACTIVE, and has a live hold */
};

/* Reads any number of places, also none. */
struct look_op {
    struct hot_op op;
    struct look_item *items;
    size_t count;
    char *user;      /* NULL, or room for USER_ID_BYTES_MAX: out, the first one's user */
    size_t user_len; /* out */
    void (*done)(struct look_op *l);
    struct queue_counts counts; /* out */
    enum event_state state;     /* out: the effective state of the event */
    struct seat_counts seats;   /* out: of all sections */
    bool has_stock;             /* out: queue_has_stock */
};

/* Ends an entry that the ledger has ended. */
struct end_op {
    struct hot_op op;
    uint64_t seq;
    enum entry_status final;
    void (*done)(struct end_op *e);
    bool ended; /* out: it was live */
};

enum entry_sync_outcome {
    ENTRY_SYNC_DONE,
    ENTRY_SYNC_THERE,   /* it was in that state already */
    ENTRY_SYNC_OTHER,   /* it is not in the state `seen` any more: nothing was done */
    ENTRY_SYNC_EXPIRED, /* the store has ended it, or its user has a newer one */
};

/* Repairs a live entry that differs from the ledger, in its old place. Only for stores that nodes
 * share: a single process does not miss its own changes. */
struct entry_sync_op {
    struct hot_op op;
    const struct ledger_entry *entry;
    enum entry_status seen; /* as the caller saw it: NONE (not live), WAITING or ACTIVE, settled */
    void (*done)(struct entry_sync_op *s);
    enum entry_sync_outcome outcome; /* out */
};

/* Adds the event, or sets its rules, unless the store has a newer version or its removal. */
struct configure_op {
    struct hot_op op;
    const struct event *event;
    void (*done)(struct configure_op *c);
};

/* Removes the event, its queue and its seats, unless the store has a newer version. The event need
 * not be registered. */
struct remove_op {
    struct hot_op op;
    str type;
    str id;
    int64_t version; /* of the removal */
    void (*done)(struct remove_op *r);
};

#define OVERDUE_MAX 256

/* Operations that have been pending for too long: their node may be dead, or only stalled. The
 * caller finishes them; if it does not, they are returned again after the same time. Only for
 * stores that nodes share: a single process settles its own operations. */
struct overdue_op {
    struct hot_op op;
    int64_t older_ms;             /* pending for longer than this */
    uint64_t enters[OVERDUE_MAX]; /* out */
    size_t enter_count;
    struct entry_change admissions[ADMIT_MAX]; /* out: with the end of their ACTIVE time */
    size_t admission_count;
    struct claim_ref claims[OVERDUE_MAX]; /* out */
    size_t claim_count;
    struct entry_change expiries[OVERDUE_MAX]; /* out: ended by the store, and not settled yet */
    size_t expiry_count;
    void (*done)(struct overdue_op *o);
};

/* Finds the events that need queues_admit, seats_due or queues_overdue now. Others need none of
 * them before they change. */
struct ticks_op {
    int64_t now_ms;
    void (*event)(struct ticks_op *t, int64_t event_key); /* for each; may only note the key */
    void (*done)(struct ticks_op *t);
    enum err result; /* out */
};

struct queue_listener {
    /* The store has ended entries because their time is over. */
    void (*expired)(void *to, int64_t event_key, int64_t now_ms, const struct entry_change *entries,
                    size_t count);
    /* The event has become sold out, or is not any more (seat_counts_sold_out). From a store that
     * nodes share, this comes to all nodes as hot_listener.changed. May be NULL. */
    void (*stock_changed)(void *to, int64_t event_key);
    void *to;
};

struct queues;

struct queue_ops {
    void (*enter)(struct queues *q, struct enter_op *e);
    void (*settle)(struct queues *q, struct settle_op *s);
    void (*admit)(struct queues *q, struct admit_op *a);
    void (*look)(struct queues *q, struct look_op *l);
    void (*end)(struct queues *q, struct end_op *e);
    void (*sync)(struct queues *q, struct entry_sync_op *s);
    void (*configure)(struct queues *q, struct configure_op *c);
    void (*remove)(struct queues *q, struct remove_op *r);
    void (*overdue)(struct queues *q, struct overdue_op *o);
    void (*ticks)(struct queues *q, struct ticks_op *t);
    void (*register_event)(struct queues *q, const struct event *e);
    void (*restore_event)(struct queues *q, const struct event *e);
    void (*restore_totals)(struct queues *q, int64_t event_key, const struct queue_counts *totals);
    void (*restore)(struct queues *q, const struct ledger_entry *e);
    void (*recovered)(struct queues *q, int64_t event_key, uint64_t next_seq, int64_t now_ms);
    void (*listen)(struct queues *q, struct queue_listener listener);
};

struct queues {
    const struct queue_ops *ops;
};

static inline void queues_enter(struct queues *q, struct enter_op *e) {
    q->ops->enter(q, e);
}

static inline void queues_settle(struct queues *q, struct settle_op *s) {
    q->ops->settle(q, s);
}

static inline void queues_admit(struct queues *q, struct admit_op *a) {
    q->ops->admit(q, a);
}

static inline void queues_look(struct queues *q, struct look_op *l) {
    q->ops->look(q, l);
}

static inline void queues_end(struct queues *q, struct end_op *e) {
    q->ops->end(q, e);
}

static inline void queues_sync(struct queues *q, struct entry_sync_op *s) {
    q->ops->sync(q, s);
}

static inline void queues_configure(struct queues *q, struct configure_op *c) {
    q->ops->configure(q, c);
}

static inline void queues_remove(struct queues *q, struct remove_op *r) {
    q->ops->remove(q, r);
}

static inline void queues_overdue(struct queues *q, struct overdue_op *o) {
    q->ops->overdue(q, o);
}

static inline void queues_ticks(struct queues *q, struct ticks_op *t) {
    q->ops->ticks(q, t);
}

/* Registers the event with its key and sections on this node: before any operation on it, when
 * nodes share the store. From any thread. */
static inline void queues_register_event(struct queues *q, const struct event *e) {
    q->ops->register_event(q, e);
}

/* For recovery, first: an event with its rules, with an empty queue and all seats free. */
static inline void queues_restore_event(struct queues *q, const struct event *e) {
    q->ops->restore_event(q, e);
}

/* For recovery, after the event and before its entries: the totals of all entries so far, including
 * the live ones. Sets the counts that begin with the creation of the event. */
static inline void queues_restore_totals(struct queues *q, int64_t event_key,
                                         const struct queue_counts *totals) {
    q->ops->restore_totals(q, event_key, totals);
}

/* For recovery, after the event and in order of the numbers: a live entry. An older entry of the
 * same user expires. */
static inline void queues_restore(struct queues *q, const struct ledger_entry *e) {
    q->ops->restore(q, e);
}

/* For recovery, after the last entry: the next one gets at least this number, and all entries count
 * as seen now. */
static inline void queues_recovered(struct queues *q, int64_t event_key, uint64_t next_seq,
                                    int64_t now_ms) {
    q->ops->recovered(q, event_key, next_seq, now_ms);
}

/* Called once, before any other function. */
static inline void queues_listen(struct queues *q, struct queue_listener listener) {
    q->ops->listen(q, listener);
}

#endif
