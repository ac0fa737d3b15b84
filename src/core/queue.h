/*
 * queue: the rules of one event's waiting room. A user who enters gets a place; places are admitted
 * in order, lane first, then sequence number, as the event's settings allow. Pure: no I/O, the
 * clock is an argument. One thread at a time: the owner has a lock.
 *
 * An entry is WAITING or ACTIVE, and then ends: COMPLETED, LEFT or EXPIRED. The effect of enter and
 * admit is *pending* until the ledger has it: it counts towards the caps and no other user gets the
 * place, but it is not shown; settle makes it visible, or undoes it. Only settled entries are
 * admitted. A pending enter blocks its lane, and a pending admission blocks all lanes, so that
 * entries are admitted in order.
 *
 * No entry is admitted while no seat is available. Once the seats have run out, entries are
 * admitted only for seats that were returned: each admission is an *offer* of one seat, which is
 * open until the entry has claimed its first seats, or has ended; and there are never more open
 * offers than available seats.
 *
 * Memory: 32 bytes per entry, 11 to 21 for finding it by its user, a few bits for its position, and
 * the user's name. An ended entry stays in memory, with its final status, until the few thousand
 * entries around it have ended too.
 */
#ifndef ADMITONE_CORE_QUEUE_H
#define ADMITONE_CORE_QUEUE_H

#include "core/event.h"

#define LANES 16
/* Sequence numbers have 48 bits. */
#define ENTRY_SEQ_MAX ((UINT64_C(1) << 48) - 1)
/* Times of entries are in [0, that): as many bits as a token has for them. */
#define ENTRY_TIME_MS_END (INT64_C(1) << 48)
#define LANE_DEFAULT 8
/* How many one admit moves at the most. */
#define ADMIT_MAX 1000

/* X(symbol): the words of JSON, SQL and the docs. */
#define ENTRY_STATUS_MAP(X) X(NONE) X(WAITING) X(ACTIVE) X(COMPLETED) X(LEFT) X(EXPIRED)

enum entry_status {
#define ENTRY_ENUM(symbol) ENTRY_##symbol,
    ENTRY_STATUS_MAP(ENTRY_ENUM)
#undef ENTRY_ENUM
};
extern const str entry_status_words[];

enum enter_outcome {
    ENTER_TAKEN,    /* a new place; pending */
    ENTER_THERE,    /* the user has a place already; perhaps still pending */
    ENTER_FULL,     /* maxWaiting entries wait already */
    ENTER_NOT_OPEN, /* not yet */
    ENTER_CLOSED,   /* no longer */
    /* The next three are decided in port/queue.h, not here. */
    ENTER_SOLD,  /* every seat that it is for is CONFIRMED */
    ENTER_LIMIT, /* a new place is of no use: the user has as many seats as one user may have */
    ENTER_NONE,  /* the user has no place, and none was to be taken */
};

/* The seats that the queue leads to, in all sections. */
struct queue_stock {
    uint64_t seats; /* in any state; 0: the event sells none, so they do not limit admission */
    uint64_t available;
    bool ran_out; /* there was a time when none was available */
};

/* The configuration of the event that the queue uses. */
struct queue_config {
    int64_t version;
    struct event_hours hours;
    struct queue_rules rules;
};

/* One entry, as it may be shown: without changes that are pending. */
struct place {
    enum entry_status status;
    uint64_t seq;
    unsigned lane;
    uint64_t position; /* 1-based while WAITING, 0 else */
    uint64_t waiting;  /* how many wait in all */
    int64_t estimate_s;
    int64_t joined_ms;
    int64_t expires_ms; /* while ACTIVE: when it ends */
    bool pending;       /* its enter is not durable yet: not to be shown at all */
};

struct queue_counts {
    uint64_t waiting; /* settled or pending */
    uint64_t active;
    /* Since the queue was made, of what is settled. */
    uint64_t entered;
    uint64_t rejected; /* found the queue full; since the store was filled from the ledger */
    uint64_t admitted; /* at once or after a wait */
    uint64_t completed;
    uint64_t left;
    uint64_t expired;
    uint64_t waited_ms; /* sum over the admitted entries, pending ones too */
    uint64_t waited_ms_max;
    double rate; /* admissions per second, an exponentially weighted mean; 0 before the first */
};

/* A change of an entry: it was admitted, or expired by a purge (ACTIVE) or a sweep (WAITING). */
struct entry_change {
    uint64_t seq;
    int64_t expires_ms; /* admitted or purged: when its ACTIVE time ends */
    int64_t waited_ms;  /* admitted or swept: since it joined */
    int64_t promised_s; /* admitted: the estimate that it was given when it joined; -1: none */
};

/* How many were ACTIVE and are not any more. */
static inline uint64_t queue_stays_ended(const struct queue_counts *c) {
    return c->admitted > c->active ? c->admitted - c->active : 0;
}

struct queue;

struct queue *queue_new(const struct queue_config *config);
void queue_free(struct queue *q);

/* An older version than is in force changes nothing. Lowering a cap ends no entry. */
void queue_configure(struct queue *q, const struct queue_config *config);
/* The seats that are left. Before queue_enter and queue_admit; until the first call there is no
 * limit. */
void queue_set_stock(struct queue *q, const struct queue_stock *stock);
/* Whether the seats allow another admission: one is available that is not offered to an ACTIVE
 * entry, or they have not run out yet. */
bool queue_has_stock(const struct queue *q);
/* The entry has claimed seats: it has used its offer, if it had one. */
void queue_use_offer(struct queue *q, uint64_t seq);

/* The effective state: event_state_at. */
enum event_state queue_state(const struct queue *q, int64_t now_ms);

/* The user's place: the one that is there, or a new one, at the end or ACTIVE at once. Expired
 * actives take up room until they are purged, so purge first. *out is set when there is a place. */
enum enter_outcome queue_enter(struct queue *q, str user, unsigned lane, int64_t now_ms,
                               struct place *out);
/* The ledger has stored the entry; or, if not `kept`, has refused it: then the entry is removed. */
void queue_settle_enter(struct queue *q, uint64_t seq, bool kept);

/* Admits as many as the rules allow, in order; pending. None while an earlier admission is pending.
 * Expired actives must have been purged. Returns how many; at most `max`, at most ADMIT_MAX. */
size_t queue_admit(struct queue *q, int64_t now_ms, struct entry_change *out, size_t max);
/* The ledger has stored the admission; or, if not `kept`, has refused it: then the entry waits in
 * its old place. */
void queue_settle_admit(struct queue *q, uint64_t seq, bool kept);

/* Ends actives whose time is over. Returns how many; call again when it is `max`. */
size_t queue_purge(struct queue *q, int64_t now_ms, struct entry_change *out, size_t max);
/* Whether there is anything to purge, to sweep or to admit: a user waits, or an active's time is
 * over. An event for which this is false needs no tick. */
bool queue_needs_tick(const struct queue *q, int64_t now_ms);
/* Looks at the next `budget` entries, and ends those that wait and whose user has not been seen for
 * longer than the grace period. While the state of the event admits no user, no entry ends; from
 * closesAt on, every waiting entry does. The grace period starts again for all when admission
 * starts, when it becomes shorter, and when no sweep came for seconds: so call it at every tick
 * while a user waits. */
size_t queue_sweep(struct queue *q, int64_t now_ms, size_t budget, struct entry_change *out,
                   size_t max);
/* Starts the grace period again for all entries: after a recovery. */
void queue_restart_grace(struct queue *q, int64_t now_ms);
/* The entry's user was seen: polled, or has a stream. */
void queue_seen(struct queue *q, uint64_t seq, int64_t now_ms);

/* Ends an entry as decided elsewhere: COMPLETED (only an ACTIVE one, also when its admission is
 * pending), LEFT or EXPIRED. False: the entry is not live. An ended entry keeps its status, except
 * that EXPIRED, which the queue may have set by itself, is replaced by COMPLETED or LEFT. */
bool queue_end(struct queue *q, uint64_t seq, enum entry_status final);

/* False: no such entry is known. */
bool queue_look(const struct queue *q, uint64_t seq, int64_t now_ms, struct place *out);
/* Position and estimate as in queue_look, for callers that need those of many entries: they do not
 * read the entry itself, which costs a cache miss in a large queue. The position is 1-based while
 * it is WAITING, 0 else. */
uint64_t queue_position(const struct queue *q, uint64_t seq);
int64_t queue_estimate_s(const struct queue *q, uint64_t position);
/* How many seats the entries ahead will take, if they take as many as those whose stay has ended: a
 * mean of `confirmed` seats divided by `stays_ended`, rounded up in all. -1: too few stays have
 * ended to tell. */
int64_t queue_seats_ahead(uint64_t ahead, uint64_t confirmed, uint64_t stays_ended);
/* The live entry of the user; 0: none. */
uint64_t queue_find(const struct queue *q, str user);
/* The entry's user, while it is known; empty else. Good until the queue changes. */
str queue_user(const struct queue *q, uint64_t seq);
struct queue_counts queue_counts(const struct queue *q);

/* For recovery, in order of seq: a live entry as the ledger has it, one per user. Afterwards call
 * queue_skip_to and queue_restart_grace. */
void queue_restore(struct queue *q, uint64_t seq, str user, unsigned lane, enum entry_status status,
                   int64_t joined_ms, int64_t expires_ms);
/* Sets the counts since the queue was made, from the totals of all entries so far. Before
 * queue_restore. */
void queue_restore_totals(struct queue *q, const struct queue_counts *totals);
/* The next entry gets at least this number. */
void queue_skip_to(struct queue *q, uint64_t seq);

#endif
