/*
 * seats: the contract of the events' seats in the hot store: which are free, which reservations
 * have the others, and until when. An adapter promises, besides the rules of port/queue.h for every
 * operation:
 *
 *  - Each operation is one atomic step on one event, by the rules of core/claims.h. Events are
 *    added, changed and removed by queues_configure and queues_remove, seats and queue together.
 *  - The effect of claim is pending until it is settled. Its `submit` is called as part of the
 *    step, so the records of one event reach the ledger in the order of the steps. If it returns an
 *    error, the claim is undone at once, and the error is the result. `submit` only submits
 *    records.
 *  - claim checks the user's entry in the same step: unless it is ACTIVE (settled, the user's own,
 *    and in time) no seats are taken. Active entries whose time is over are ended first, as in
 *    enter.
 *  - The store never ends a hold itself: a due hold stays until seats_follow reports the decision
 *    of the ledger.
 */
#ifndef ADMITONE_PORT_SEATS_H
#define ADMITONE_PORT_SEATS_H

#include "core/claims.h"
#include "port/hot.h"

/* Takes seats, or finds the reservation with the same key; in sections where the ledger decides, it
 * only suggests seats. */
struct claim_op {
    struct hot_op op;
    struct claim_request request; /* is_active is set by the step */
    uint32_t *seats; /* room for request.count; out, seat_count of them: as claims_claim */
    /* Called when the reservation is new, or is not durable yet: see reservation.pending. Submits
     * the record of `reservation` and `seats`, the same one in both cases. */
    enum err (*submit)(struct claim_op *c);
    void (*done)(struct claim_op *c);
    enum claim_outcome outcome;    /* out */
    struct claim_info reservation; /* out, when DONE or THERE */
    size_t seat_count;             /* out */
};

/* The ledger has decided about claims that were pending: kept, or undone. */
struct claim_settle_op {
    struct hot_op op;
    int64_t section_key; /* of them all */
    const struct uuid *ids;
    const bool *kept;
    size_t count;
    bool *live; /* NULL, or out, one for each: it is live afterwards */
    void (*done)(struct claim_settle_op *s);
};

struct reservation_change {
    struct uuid id;
    int64_t section_key;
    enum reservation_status status; /* CONFIRMED, CANCELLED, EXPIRED */
    bool changed;                   /* out: it did not have this status already */
};

/* Applies decisions of the ledger. */
struct follow_op {
    struct hot_op op;
    struct reservation_change *changes;
    size_t count;
    void (*done)(struct follow_op *f);
};

/* Sets seats to their state in the ledger: those of live reservations (holds of a `seat` section
 * after their commit, and seats whose claim the ledger refused), and free ones. */
struct seat_sync_op {
    struct hot_op op;
    const struct live_reservation *reservations;
    size_t count;
    int64_t section_key; /* of `available` */
    const uint32_t *available;
    size_t available_count;
    void (*done)(struct seat_sync_op *s);
    size_t changed; /* out: reservations that were applied, and seats that were freed */
};

/* Settled holds whose time is over, to be ended in the ledger: as claims_due. */
struct due_op {
    struct hot_op op;
    struct claim_ref *refs; /* room for max; out */
    size_t max;
    size_t count; /* out */
    void (*done)(struct due_op *d);
};

/* The live reservations of a user, newest first. */
struct holds_op {
    struct hot_op op;
    str user;
    uint64_t entry_seq; /* only of this entry; 0: all */
    struct claim_info *reservations;
    size_t max;
    size_t count; /* out: how many there are, perhaps more than max */
    void (*done)(struct holds_op *h);
};

/* The events in which a user has live reservations, in any order. */
struct buyer_op {
    str user;
    int64_t now_ms;
    void (*event)(struct buyer_op *b, int64_t event_key); /* for each; may only note the key */
    void (*done)(struct buyer_op *b);
    enum err result; /* out */
};

/* Seats by state: of every section, and of all together. */
struct seat_count_op {
    struct hot_op op;
    struct section_counts *sections;
    size_t max;
    size_t count;              /* out: how many there are, perhaps more than max */
    struct seat_counts totals; /* out */
    void (*done)(struct seat_count_op *c);
};

/* A part of a section's map, one letter for each seat from `first` on; or SECTION_NOT_FOUND. */
struct render_op {
    struct hot_op op;
    int64_t section_key;
    uint32_t first;
    char *letters; /* room for max; out */
    size_t max;
    size_t count;                 /* out */
    struct section_counts counts; /* out: of the section, at that moment */
    void (*done)(struct render_op *r);
};

struct seats;

struct seats_ops {
    void (*claim)(struct seats *s, struct claim_op *c);
    void (*settle)(struct seats *s, struct claim_settle_op *t);
    void (*follow)(struct seats *s, struct follow_op *f);
    void (*sync)(struct seats *s, struct seat_sync_op *y);
    void (*due)(struct seats *s, struct due_op *d);
    void (*holds)(struct seats *s, struct holds_op *h);
    void (*buyer)(struct seats *s, struct buyer_op *b);
    void (*count)(struct seats *s, struct seat_count_op *c);
    void (*render)(struct seats *s, struct render_op *r);
    void (*restore)(struct seats *s, int64_t event_key, const struct live_reservation *r);
    void (*restore_ran_out)(struct seats *s, int64_t event_key);
};

struct seats {
    const struct seats_ops *ops;
};

static inline void seats_claim(struct seats *s, struct claim_op *c) {
    s->ops->claim(s, c);
}

static inline void seats_settle(struct seats *s, struct claim_settle_op *t) {
    s->ops->settle(s, t);
}

static inline void seats_follow(struct seats *s, struct follow_op *f) {
    s->ops->follow(s, f);
}

static inline void seats_sync(struct seats *s, struct seat_sync_op *y) {
    s->ops->sync(s, y);
}

static inline void seats_due(struct seats *s, struct due_op *d) {
    s->ops->due(s, d);
}

static inline void seats_holds(struct seats *s, struct holds_op *h) {
    s->ops->holds(s, h);
}

static inline void seats_buyer(struct seats *s, struct buyer_op *b) {
    s->ops->buyer(s, b);
}

static inline void seats_count(struct seats *s, struct seat_count_op *c) {
    s->ops->count(s, c);
}

static inline void seats_render(struct seats *s, struct render_op *r) {
    s->ops->render(s, r);
}

/* For recovery, after the event: a live reservation. */
static inline void seats_restore(struct seats *s, int64_t event_key,
                                 const struct live_reservation *r) {
    s->ops->restore(s, event_key, r);
}

/* For recovery, after the event: its seats had run out once, though some may be available now. */
static inline void seats_restore_ran_out(struct seats *s, int64_t event_key) {
    s->ops->restore_ran_out(s, event_key);
}

#endif
