/*
 * hold: the use case of POST /reservations: from a request for seats to "held" or "refused".
 *
 * A hold goes to the hot store and then to the ledger, or to the ledger alone: each strategy has a
 * plan (hold.c). It is answered when it is durable. It is one struct in the caller's memory, which
 * stays until `done` is called, on the caller's worker: later, or before the function returns. It
 * allocates from the caller's arena.
 */
#ifndef ADMITONE_SERVICE_HOLD_H
#define ADMITONE_SERVICE_HOLD_H

#include "service/lock_client.h"
#include "service/reservations.h"

/* The section and its terms of sale at the time of the request. */
struct hold_terms {
    int64_t event_key;
    int64_t section_key;
    char event[EVENT_PATH_BYTES];
    char section[SECTION_ID_BYTES_MAX + 1];
    enum section_mode mode;
    int64_t price; /* per seat */
    char currency[4];
    int64_t hold_ms;
};

void hold_terms_copy(struct hold_terms *t, const struct event *e, const struct section *s);

struct hold;
typedef void hold_step(struct hold *h);

struct hold {
    /* The request; the caller fills it in and zeroes the rest. */
    struct hold_terms terms;
    str user;
    uint64_t entry_seq;
    uint32_t count;                  /* 1 to RESERVATION_SEATS_MAX */
    const uint32_t *named;           /* `count` seats, ascending, each once; or NULL: any */
    enum strategy strategy;          /* one that the section's mode has: strategy_fits */
    struct idempotency *idempotency; /* NULL: no key was sent */
    struct claim_key key;            /* of the same */
    bool always;                     /* submitted also when the ledger's queue is full */
    struct arena *arena;
    void (*done)(struct hold *h, enum err result);

    /* Out. */
    struct reservation reservation; /* on OK, unless idempotency->replayed */
    uint32_t *refused;              /* the seats that were the reason of a refusal */
    size_t refused_count;
    int64_t free_at_ms; /* with SEAT_GIVEN_UP: when the user may name these seats again */

    /* Private from here on, by step. */
    struct reservations *service;
    struct lock_client *lock_client;
    struct ledger_idempotency_get key_lookup;
    struct {                           /* the plan, and how far it is */
        enum strategy chosen_strategy; /* `strategy`; of an adaptive section, lock or slot */
        hold_step *const *next;
        int tries;
        struct retry_delay delay;
        int64_t began_ns;
        enum err result;
    } plan;
    struct { /* the locks that it takes; `held` has room for `wanted` */
        struct held_lock *held;
        size_t wanted;
        size_t count;         /* of those, it has the first so many */
        int64_t *fences;      /* of each seat; NULL: no lock was taken */
        hold_step *when_free; /* the step after they are given back */
    } locking;
    struct {              /* seats that the hot store suggests, where the ledger decides */
        struct list link; /* in the list of its lock_client, or in none */
        uint64_t spread;  /* 0, or which of the free seats to suggest */
        struct ledger_seats_read read;
    } choosing;
    struct { /* seats that the hot store gives */
        struct claim_op op;
        int64_t began_ns;
        struct claim_settle_op settle;
        bool kept;
        bool live;
        struct ledger_reservation_get get; /* when it was settled and is not there */
    } claiming;
    struct { /* the ledger's record; where the ledger decides, also the update of the hot store */
        struct ledger_hold record;
        struct live_reservation live;
        struct seat_sync_op sync;
    } writing;
    struct { /* where the ledger decides: whether the user has left the queue in the meantime */
        struct place_look look; /* of an adaptive section, earlier: how many users wait */
        struct ledger_cancel cancel;
        struct reservation_change change;
        struct follow_op follow;
    } leaving;
};

/* Whether a section of that mode has the strategy. */
bool strategy_fits(enum section_mode mode, enum strategy s);
/* The strategy of a request that names none. */
enum strategy strategy_default(enum section_mode mode);
/* The same, but of an adaptive section its choice at this moment: lock or slot. From any thread. */
enum strategy strategy_now(struct reservations *r, enum section_mode mode, int64_t section_key);

/* OK: the seats are held, or the key was used before and this is the answer of the first request.
 * Else nothing was changed, as far as is known (err_effect): NOT_ACTIVE, CLOSED, SECTION_NOT_FOUND,
 * SECTION_CLOSED, LIMIT_EXCEEDED, SOLD_OUT, SEAT_TAKEN (see refused), SEAT_NOT_FOUND (likewise),
 * SEAT_GIVEN_UP (likewise), HOLD_LIMIT,
 * HOLD_EXPIRED (the write took longer than a hold lasts), CONFLICT, LOCK_TIMEOUT, LOCK_LOST,
 * STRATEGY_NOT_ALLOWED, IDEMPOTENCY_MISMATCH, EVENT_NOT_FOUND, or a failure. */
void hold_seats(struct reservations *r, struct lock_client *c, struct hold *h);

/* Refuses a hold before its user takes a place in the queue, because the seats can't be had:
 * SOLD_OUT, SEAT_TAKEN or LIMIT_EXCEEDED. Counted and answered like a refusal by hold_seats. */
void hold_refuse(struct reservations *r, struct hold *h, enum err why);

/* Whether the key of a request was used: OK and replayed, OK, or IDEMPOTENCY_MISMATCH. Only
 * `idempotency`, `strategy` and `done` are looked at; the rest may be filled in later. */
void hold_replay(struct reservations *r, struct hold *h);

#endif
