/*
 * reconcile: compares a hot store that nodes share with the ledger. They differ for moments all the
 * time, for each change reaches one of them first; whatever is pending is none of its business
 * (service/finish_pending.h). But what has differed for longer than twice the ledger's deadline was
 * lost on its way, and is repaired (service/repair.h).
 *
 * What is younger than that, and what has begun since the ledger was read, is not compared.
 */
#ifndef ADMITONE_SERVICE_RECONCILE_H
#define ADMITONE_SERVICE_RECONCILE_H

#include "service/repair.h"

/* So many are looked into at a time: the rest is found the next time. */
#define DIFFERENCES_MAX 10000

enum difference_kind {
    DIFFERENCE_ENTRY_OVER,    /* live in the hot store; has ended in the ledger, or is not known */
    DIFFERENCE_ENTRY_MISSING, /* live in the ledger only */
    DIFFERENCE_ENTRY_STATUS,  /* WAITING here, ACTIVE there */
    DIFFERENCE_ENTRY_LATE,    /* ACTIVE in the ledger only, and long past its time */
    DIFFERENCE_RESERVATION_OVER,
    DIFFERENCE_RESERVATION_MISSING,
    DIFFERENCE_RESERVATION_STATUS, /* HELD here, CONFIRMED there; or not the same seats */
};

enum difference_end {
    DIFFERENCE_OPEN,     /* not looked into yet */
    DIFFERENCE_GONE,     /* it was only for a moment */
    DIFFERENCE_REPAIRED, /* the hot store has what the ledger has; or the ledger, of what is LATE or
                            what the hot store ended by itself */
    DIFFERENCE_FAILED,   /* `error` says why */
};

struct difference {
    enum difference_kind kind;
    enum difference_end end;
    enum err error;
    int64_t event_key;
    uint64_t seq;                   /* an entry's; 0: it is about a reservation */
    enum entry_status entry_in_hot; /* NONE: not live there */
    enum entry_status entry_in_ledger;
    struct uuid id; /* a reservation's */
    int64_t section_key;
    struct held_seats seats_in_hot;
    struct held_seats seats_in_ledger;
};

/* How many live ones there are, and how many differ. */
struct compared_event {
    int64_t key;
    char name[EVENT_PATH_BYTES]; /* "TYPE/ID" */
    bool is_missing;             /* the hot store does not have it */
    size_t ledger_entries;
    size_t hot_entries;
    size_t ledger_reservations;
    size_t hot_reservations;
    size_t differences;
};

struct reconcile {
    struct ledger *ledger;
    struct hot *hot;
    struct queues *queues;
    struct seats *seats;
    int64_t wait_ms; /* twice the ledger's deadline */

    /* What was found. */
    struct compared_event *events;
    size_t event_count;
    struct difference *differences;
    size_t difference_count;
    size_t left_out; /* beyond DIFFERENCES_MAX */
};

/* Looks at both, and notes what differs. Blocks. Fails when one of them can't be read, or the hot
 * store is in no incarnation. */
enum err reconcile_compare(struct reconcile *r);
/* Forgets what was found. */
void reconcile_clear(struct reconcile *r);

/* Repairs what was found, one difference after the other, and notes how each ended. On a worker's
 * thread, which is attached to the hot store. */
struct reconcile_repair {
    struct reconcile *reconcile;
    void (*done)(struct reconcile_repair *m);
    _Atomic bool stopping; /* from any thread: the one under way is the last; the rest stays OPEN */

    /* Private. */
    size_t at;
    struct entry_repair entry;
    struct reservation_repair reservation;
};
/* `reconcile` and `done` are filled in, the rest is zeroed. May call `done` before it returns. */
void reconcile_repair(struct reconcile_repair *m);

/* For people: "CONCERT/1, entry 17: WAITING in the ledger, not live in the hot store". */
void difference_describe(const struct reconcile *r, const struct difference *d, struct buf *out);

#endif
