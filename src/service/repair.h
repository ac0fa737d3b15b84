/*
 * repair: reads the state of one entry or one reservation from the ledger, and corrects the hot
 * store by compare-and-set. Every path that corrects the hot store goes through here: several nodes
 * may do it at once, and it does no harm when the two stores differed only for a moment. The ledger
 * decides, with one exception: the hot store decides that an entry has expired, by its time or by
 * silence; if the ledger has missed that, the ledger is corrected.
 *
 * A repair is one struct in the caller's memory, which stays until `done` is called, on the same
 * worker; perhaps before the function returns. When the ledger does not accept the question, the
 * functions return its error, and `done` is not called.
 */
#ifndef ADMITONE_SERVICE_REPAIR_H
#define ADMITONE_SERVICE_REPAIR_H

#include <pthread.h>
#include <stdatomic.h>

#include "port/queue.h"
#include "port/seats.h"

/* The hot store did not execute an operation, or it is not known whether it did. */
static inline bool hot_is_lost(enum err result) {
    return result == ERR_HOT_UNAVAILABLE || result == ERR_HOT_FULL || result == ERR_HOT_UNKNOWN ||
           result == ERR_RECOVERING;
}

/* ---- one entry ---- */

/* An entry that has ended in the ledger is ended in the hot store. With `puts_back`, an entry that
 * is live in the ledger also gets the ledger's state in the hot store, if the hot store still has
 * it in the state `seen`; then the ledger is asked once more, because the entry may have ended in
 * the meantime. */
struct entry_repair {
    int64_t event_key;
    uint64_t seq;
    bool puts_back;
    enum entry_status seen; /* NONE: not live */
    int64_t late_ms;        /* with puts_back: past its time by this, it is ended in the ledger */
    void (*done)(struct entry_repair *r);

    /* Out. */
    enum err result;          /* of the last operation; EVENT_NOT_FOUND: the event was deleted */
    enum entry_status status; /* in the ledger; EXPIRED if the ledger does not know it; NONE: the
                                 ledger could not be asked */
    bool changed;             /* a store was corrected */

    /* Private. */
    struct ledger *ledger;
    struct queues *queues;
    struct ledger_entry_get get;
    struct end_op hot_end;
    struct ledger_entry entry;
    struct entry_sync_op sync;
    struct ledger_end ledger_end;
    bool ended;
};
enum err repair_entry(struct ledger *l, struct queues *q, struct entry_repair *r);

/* ---- one reservation ---- */

/* A reservation, as one of the two stores has it. */
struct held_seats {
    uint32_t seat_count; /* 0: it is not live there */
    enum reservation_status status;
};

/* A reservation that is live in the ledger gets its seats in the hot store; one that is not live
 * loses them there. After seats were given, the ledger is asked once more, because the reservation
 * may have ended in the meantime. */
struct reservation_repair {
    struct uuid id;
    int64_t event_key;
    int64_t section_key;
    /* NULL; or the state in which the caller saw it in the hot store: if that has changed, a live
     * reservation is not corrected. */
    const struct held_seats *seen;
    /* Only a live reservation is corrected, and the ledger is asked only once: the caller itself
     * sends the end of a reservation to the hot store. */
    bool live_only;
    void (*done)(struct reservation_repair *r);

    /* Out. */
    enum err result; /* as above; SEAT_NOT_FOUND: it has no section or no seat any more */
    const struct reservation *found; /* in the ledger, valid in `done`; NULL: unknown there */
    bool changed;

    /* Private. */
    struct ledger *ledger;
    struct seats *seats;
    struct ledger_reservation_get get;
    struct claim_info *holds_found;
    struct holds_op holds;
    struct live_reservation live;
    struct seat_sync_op sync;
    struct reservation_change change;
    struct follow_op follow;
    bool goes_back; /* CONFIRMED in the hot store, HELD in the ledger: removed and added again */
};
enum err repair_reservation(struct ledger *l, struct seats *s, struct reservation_repair *r);

/* ---- entries that are repaired in the background ---- */

/* The ends of entries that the hot store could not be notified of are kept here, in memory, and
 * sent again by the next ticks. From any worker's thread. */
struct repair_queue {
    struct ledger *ledger;
    struct queues *queues;
    /* As struct waiting_room has it. */
    void (*changed)(void *to, int64_t event_key, const uint64_t *seqs, size_t count);
    void *to;

    /* Private. */
    _Atomic int64_t under_way;
    pthread_mutex_t lock;
    struct task_list unsent; /* under lock */
};

void repair_queue_init(struct repair_queue *q);
/* When it is not busy. */
void repair_queue_deinit(struct repair_queue *q);
bool repair_queue_is_busy(struct repair_queue *q);

/* A caller that waits until the entry has been repaired. */
struct repair_waiter {
    int64_t event_key;
    uint64_t seq;
    void (*done)(struct repair_waiter *w);
    enum entry_status status; /* out: as in struct entry_repair */
};

/* Repairs one entry that may have ended in the ledger. `announces`: streams are notified of its end
 * also if the hot store had ended it before. */
void repair_queue_add(struct repair_queue *q, int64_t event_key, uint64_t seq, bool announces);
void repair_queue_add_then(struct repair_queue *q, struct repair_waiter *w);
/* The ledger has ended the entry, and the hot store could not be notified of it. */
void repair_queue_add_unsent(struct repair_queue *q, int64_t event_key, uint64_t seq,
                             enum entry_status final);
/* Sends a few of those again. At every tick. */
void repair_queue_retry(struct repair_queue *q);

#endif
