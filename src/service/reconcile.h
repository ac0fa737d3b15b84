/*
 * reconcile: compares a hot store that nodes share with the ledger. The two differ for moments all
 * the time, because each change reaches one of them first. A difference that lasts for longer than
 * twice the ledger's deadline is a change that was lost on its way; it is repaired
 * (service/repair.h).
 *
 * Not compared are entries and reservations that are younger than that, that began after the ledger
 * was read, or that are pending (service/finish_pending.h).
 */
#ifndef ADMITONE_SERVICE_RECONCILE_H
#define ADMITONE_SERVICE_RECONCILE_H

#include "service/repair.h"

/* At most this many differences are noted; the next comparison finds the rest. */
#define DIFFERENCES_MAX 10000

enum difference_kind {
    DIFFERENCE_ENTRY_OVER,    /* live in the hot store only; ended or unknown in the ledger */
    DIFFERENCE_ENTRY_MISSING, /* live in the ledger only */
    DIFFERENCE_ENTRY_STATUS,  /* WAITING in one store, ACTIVE in the other */
    DIFFERENCE_ENTRY_LATE,    /* ACTIVE in the ledger only, and long past its time */
    DIFFERENCE_RESERVATION_OVER,
    DIFFERENCE_RESERVATION_MISSING,
    DIFFERENCE_RESERVATION_STATUS, /* HELD in one store, CONFIRMED in the other; or not the same
                                      seats */
};

enum difference_end {
    DIFFERENCE_OPEN,     /* not repaired yet */
    DIFFERENCE_GONE,     /* the stores agreed again by themselves */
    DIFFERENCE_REPAIRED, /* the hot store was corrected; the ledger, if LATE or expired in the hot
                            store */
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

/* How many are live in each store, and how many differ. */
struct compared_event {
    int64_t key;
    char name[EVENT_PATH_BYTES]; /* "TYPE/ID" */
    bool is_missing;             /* the hot store does not have it */
    size_t ledger_entries;
    size_t hot_entries;
    size_t ledger_reservations;
    size_t hot_reservations;
    size_t differences;
    struct event_contents in_ledger; /* private: cleared when it was compared */
};

struct reconcile {
    struct ledger *ledger;
    struct hot *hot;
    struct queues *queues;
    struct seats *seats;
    int64_t wait_ms; /* twice the ledger's deadline */

    /* Out. */
    struct compared_event *events;
    size_t event_count;
    struct difference *differences;
    size_t difference_count;
    size_t left_out; /* beyond DIFFERENCES_MAX */
};

/* Reads both stores and notes what differs. Blocks. Fails when one of them can't be read, or the
 * hot store is in no incarnation. */
enum err reconcile_compare(struct reconcile *r);
/* Frees what was found. */
void reconcile_clear(struct reconcile *r);

/* Repairs what was found, one difference after the other, and notes how each ended. On a worker's
 * thread, which is attached to the hot store. */
struct reconcile_repair {
    struct reconcile *reconcile;
    void (*done)(struct reconcile_repair *repair);
    _Atomic bool stopping; /* from any thread: the one under way is the last; the rest stays OPEN */

    /* Private. */
    size_t at;
    struct entry_repair entry;
    struct reservation_repair reservation;
};
/* `reconcile` and `done` are filled in, the rest is zeroed. May call `done` before it returns. */
void reconcile_repair(struct reconcile_repair *repair);

/* For logs: "CONCERT/1, entry 17: WAITING in the ledger, not live in the hot store". */
void difference_describe(const struct reconcile *r, const struct difference *d, struct buf *out);

#endif
