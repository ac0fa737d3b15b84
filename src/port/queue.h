/*
 * queue: the contract of the waiting rooms' hot state: who waits, in which order, who is active.
 * What an adapter promises:
 *
 *  - Each operation is one atomic step on one event, by the law of core/queue.h.
 *  - An operation's `done` is called on the caller's thread: before the function returns, or later.
 *    Its struct is the caller's and stays until then. `result` is OK, or says why nothing was done:
 *    EVENT_NOT_FOUND, or a failure of the store.
 *  - What enter and admit do is pending until it is settled. Their `submit` is called as part of
 *    the step, so the records of one event reach the ledger in the order of the steps; what it
 *    refuses is undone at once, and its answer is the result. It only submits.
 *  - Whoever's time is over is ended before anybody is counted, and told to `expired` in the same
 *    way.
 */
#ifndef ADMITONE_PORT_QUEUE_H
#define ADMITONE_PORT_QUEUE_H

#include "core/claims.h"
#include "port/hot.h"
#include "port/ledger.h"

/* Takes a place, or finds the user's. */
struct enter_op {
    struct hot_op op;
    str user;
    unsigned lane;
    /* 0, or the section that the place is for: when all its seats are CONFIRMED, the outcome is
     * SOLD and nothing is changed, whether or not the user has a place. */
    int64_t section_key;
    /* The place is new, or there and not durable yet: see place.pending. Submits its record, the
     * same one in both cases. */
    enum err (*submit)(struct enter_op *e);
    void (*done)(struct enter_op *e);
    enum enter_outcome outcome; /* out */
    struct place place;         /* out, when there is one */
    uint64_t closes;            /* out: an entry of the user whose time was over; 0: none */
    int64_t opens_at_ms;        /* out */
    struct seat_counts seats;   /* out: of all sections */
    bool reserving;             /* out: the place is ACTIVE, and has a live hold */
};

/* The ledger has decided about entries that were pending: kept, or undone. */
struct settle_op {
    struct hot_op op;
    bool admissions; /* else enters */
    bool expiries;   /* or else entries that the store has ended by itself: the ledger has them */
    const uint64_t *seqs;
    const bool *kept;
    size_t count;
    struct place *places; /* NULL, or out, one for each: as it is now, NONE when it is gone */
    void (*done)(struct settle_op *s);
};

/* Ends whose time is over, and admits whom the rules allow; one step at a time. */
struct admit_op {
    struct hot_op op;
    struct entry_change *entries;           /* room for ADMIT_MAX; out */
    size_t count;                           /* out */
    enum err (*submit)(struct admit_op *a); /* when count > 0 */
    void (*done)(struct admit_op *a);
};

struct look_item {
    uint64_t seq;
    bool seen; /* note that the user is there */
    /* Out; NONE when it is not known, or no longer. Of one that waits only status, position,
     * waiting and estimate. */
    struct place place;
    bool reserving; /* out: ACTIVE, and has a live hold */
};

/* Looks at any number of places, also none. */
struct look_op {
    struct hot_op op;
    struct look_item *items;
    size_t count;
    char *user;      /* NULL, or room for USER_ID_BYTES_MAX: out, the first one's user */
    size_t user_len; /* out */
    void (*done)(struct look_op *l);
    struct queue_counts counts; /* out */
    enum event_state state;     /* out: what it amounts to now */
    struct seat_counts seats;   /* out: of all sections */
};

/* Ends one that the ledger has ended. */
struct end_op {
    struct hot_op op;
    uint64_t seq;
    enum entry_status final;
    void (*done)(struct end_op *e);
    bool ended; /* out: it was live */
};

enum entry_sync_outcome {
    ENTRY_SYNC_DONE,
    ENTRY_SYNC_THERE,   /* it was so already */
    ENTRY_SYNC_OTHER,   /* it is not as it was seen any more: nothing was done */
    ENTRY_SYNC_EXPIRED, /* the store has ended it by itself, or its user has a newer one */
};

/* A live entry that the store was seen to have otherwise is as the ledger has it, in its old place.
 * Only where several nodes share the store: what this process did itself it has not missed. */
struct entry_sync_op {
    struct hot_op op;
    const struct ledger_entry *entry;
    enum entry_status seen; /* NONE: not live; WAITING, ACTIVE: settled so */
    void (*done)(struct entry_sync_op *s);
    enum entry_sync_outcome outcome; /* out */
};

/* The event is there with these rules, unless newer ones are or it has been removed. */
struct configure_op {
    struct hot_op op;
    const struct event *event;
    void (*done)(struct configure_op *c);
};

/* The event, its queue and its seats are gone, unless it is newer than that. It need not have been
 * met. */
struct remove_op {
    struct hot_op op;
    str type;
    str id;
    int64_t version; /* of the removal */
    void (*done)(struct remove_op *r);
};

#define OVERDUE_MAX 256

/* What has been pending for too long: the node that did it may be dead, or only stalled. Whoever is
 * told sees to it; it is told again after as long. Only where several nodes share the store: what
 * this process does itself is never forgotten. */
struct overdue_op {
    struct hot_op op;
    int64_t older_ms;             /* pending for longer than this */
    uint64_t enters[OVERDUE_MAX]; /* out */
    size_t enter_count;
    struct entry_change admissions[ADMIT_MAX]; /* out: with the time until which they are ACTIVE */
    size_t admission_count;
    struct claim_ref claims[OVERDUE_MAX]; /* out */
    size_t claim_count;
    struct entry_change expiries[OVERDUE_MAX]; /* out: ended by the store, and not settled since */
    size_t expiry_count;
    void (*done)(struct overdue_op *o);
};

/* Which events need queues_admit, seats_due or queues_overdue now. The others have nothing to do
 * before they change. */
struct ticks_op {
    int64_t now_ms;
    void (*event)(struct ticks_op *t, int64_t event_key); /* for each; it only notes the key */
    void (*done)(struct ticks_op *t);
    enum err result; /* out */
};

/* Who hears what the store ends by itself. */
struct queue_listener {
    void (*expired)(void *to, int64_t event_key, int64_t now_ms, const struct entry_change *entries,
                    size_t count);
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

/* This node knows of the event, as of its key and sections: before any operation on it, where
 * several nodes share the store. From any thread. */
static inline void queues_register_event(struct queues *q, const struct event *e) {
    q->ops->register_event(q, e);
}

/* For recovery, the first: an event with its rules, with nobody in its queue and all seats free. */
static inline void queues_restore_event(struct queues *q, const struct event *e) {
    q->ops->restore_event(q, e);
}

/* For recovery, after the event and before its entries: what has become of all entries so far, the
 * live ones included. Of the counts those since the event was made are set. */
static inline void queues_restore_totals(struct queues *q, int64_t event_key,
                                         const struct queue_counts *totals) {
    q->ops->restore_totals(q, event_key, totals);
}

/* For recovery, after the event and in order of its numbers: a live entry. Should
 * the user have an older one, that has expired. */
static inline void queues_restore(struct queues *q, const struct ledger_entry *e) {
    q->ops->restore(q, e);
}

/* For recovery, after the last entry: the next one gets at least this number, and the clock of
 * silence starts anew for everybody. */
static inline void queues_recovered(struct queues *q, int64_t event_key, uint64_t next_seq,
                                    int64_t now_ms) {
    q->ops->recovered(q, event_key, next_seq, now_ms);
}

/* Before anything else, once. */
static inline void queues_listen(struct queues *q, struct queue_listener listener) {
    q->ops->listen(q, listener);
}

#endif
