/*
 * reservations: the use cases of seats: hold, confirm, cancel, expire, look up, leave.
 *
 * A hold goes to the hot store and then to the ledger, or to the ledger alone, as its strategy says
 * (service/strategies.c); it is answered when it is durable. Everything that comes after goes to
 * the ledger first, which decides once, and then the hot store follows.
 *
 * Each use case is one struct in the caller's memory (the request's arena), which stays until
 * `done` is called, on the caller's worker: later, or before the function returns.
 */
#ifndef ADMITONE_SERVICE_RESERVATIONS_H
#define ADMITONE_SERVICE_RESERVATIONS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "core/adaptive.h"
#include "port/queue.h"
#include "port/seats.h"
#include "run/arena.h"
#include "service/lock_client.h"
#include "service/waiting_room.h"

struct reservations {
    struct ledger *ledger;
    struct seats *seats;
    struct waiting_room *room;
    int64_t lock_wait_ms; /* the longest wait for all locks of a request together */
    struct adaptive_rules adaptive;

    /* Below: its own. */
    _Atomic int64_t under_way; /* expiries: records of no request */
    pthread_mutex_t lock;
    struct map loads; /* under lock: an adaptive section's key → struct load */
    size_t loads_max; /* under lock: when there are more, those that have cooled down go */
};

void reservations_init(struct reservations *r);
/* When nothing is under way. */
void reservations_deinit(struct reservations *r);
/* Whether records are under way that belong to no request. From any thread. */
bool reservations_is_busy(struct reservations *r);

/* ---- hold ---- */

/* What the section sells, and on what terms, when the request came. */
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

struct holding;
typedef void hold_step(struct holding *h);

struct holding {
    /* The caller's. */
    struct hold_terms terms;
    str user;
    uint64_t entry_seq;
    uint32_t count;                  /* 1 to RESERVATION_SEATS_MAX */
    const uint32_t *named;           /* `count` seats, ascending, each once; or NULL: any */
    enum strategy strategy;          /* one that the section's mode has: strategy_fits */
    struct idempotency *idempotency; /* NULL: no key was sent */
    struct claim_key key;            /* of the same */
    struct arena *arena;
    void (*done)(struct holding *h, enum err result);

    /* Out. */
    struct reservation reservation; /* on OK, unless idempotency->replayed */
    uint32_t *refused;              /* the seats that stood in the way */
    size_t refused_count;

    /* Below: its own. */
    struct reservations *service;
    struct lock_client *lock_client;
    enum strategy chosen_strategy; /* the strategy; of an adaptive section, its choice */
    hold_step *const *next;
    hold_step *unlocked;
    int tries;
    struct list choosing; /* in its lock_client's list, or in none */
    uint64_t spread;
    enum err result;
    int64_t began_ns;
    struct claim_op claim;
    struct claim_settle_op settle;
    bool kept;
    bool live;
    struct ledger_hold record;
    struct seat_sync_op sync;
    struct live_reservation applied;
    struct ledger_seats_read read; /* its arrays have room for count; NULL: never needed */
    struct ledger_reservation_get get;
    size_t healed; /* of the seats that are being synchronised */
    struct ledger_idempotency_get ask;
    struct room_looking look;
    struct ledger_cancel cancel;
    struct reservation_change news;
    struct follow_op follow;
    struct retry_delay rest;
    struct held_lock *locks; /* room for as many as it takes; NULL: none */
    size_t lock_wanted;
    size_t lock_count; /* those that are held */
    int64_t *fences;   /* of each seat; NULL: no lock was taken */
};

/* Whether a section of that mode has the strategy. */
bool strategy_fits(enum section_mode mode, enum strategy s);
/* What a request gets that names none. */
enum strategy strategy_default(enum section_mode mode);
/* What that amounts to now: an adaptive section's choice, lock or slot. From any thread. */
enum strategy reservations_strategy(struct reservations *r, enum section_mode mode,
                                    int64_t section_key);

/* OK: held, or the answer of the first request with the same key. Else nothing was changed,
 * as far as is known (err_effect): NOT_ACTIVE, CLOSED, SECTION_NOT_FOUND, SECTION_CLOSED,
 * LIMIT_EXCEEDED, SOLD_OUT, SEAT_TAKEN (see refused), SEAT_NOT_FOUND (likewise), HOLD_EXPIRED (the
 * disk took longer than it lasts), CONFLICT, LOCK_TIMEOUT, LOCK_LOST, STRATEGY_NOT_ALLOWED,
 * IDEMPOTENCY_MISMATCH, EVENT_NOT_FOUND, or a failure. */
void reservations_hold(struct reservations *r, struct lock_client *d, struct holding *h);

/* Refuses a hold for which no place was taken, because it can't be had: SOLD_OUT or SEAT_TAKEN.
 * Counted and answered as if reservations_hold had found that out. */
void reservations_refuse(struct reservations *r, struct holding *h, enum err why);

/* Whether the key of a request was used: OK and replayed, OK, or IDEMPOTENCY_MISMATCH. Only
 * `idempotency`, `strategy` and `done` are looked at; the rest may be filled in later. */
void reservations_replay(struct reservations *r, struct holding *h);

/* ---- confirm, cancel, look up ---- */

struct deciding {
    struct uuid id;
    /* Whether whoever asks may: is it theirs? */
    bool (*is_theirs)(struct deciding *d, const struct reservation *r);
    void (*done)(struct deciding *d, enum err result);
    /* Out: as it is now, unless it is not there or not theirs. The caller's to mem_free. */
    struct reservation *reservation;

    /* Below: its own. */
    struct reservations *service;
    void (*go_on)(struct deciding *d);
    struct ledger_reservation_get get;
    union {
        struct ledger_confirm confirm;
        struct ledger_cancel cancel;
    };
    bool confirms;
    struct reservation_change news;
    struct follow_op follow;
    struct room_ending end;
};

/* OK, or RESERVATION_NOT_FOUND, NOT_YOURS; to confirm also RESERVATION_ENDED, HOLD_EXPIRED; to
 * cancel also HOLD_EXPIRED. What was so already is OK. */
void reservations_confirm(struct reservations *r, struct deciding *d);
void reservations_cancel(struct reservations *r, struct deciding *d);
void reservations_find(struct reservations *r, struct deciding *d);

/* The live reservations of a user in some events; of one event the newest first. */
struct listing {
    const int64_t *event_keys;
    size_t event_count;
    str user;
    size_t max;
    struct arena *arena;
    void (*done)(struct listing *l, enum err result);
    /* Out. The caller's to mem_free, each. */
    struct reservation **found;
    size_t count;

    /* Below: its own. */
    struct reservations *service;
    size_t event_at;
    bool asks;  /* in a loop */
    bool waits; /* for the answer about an event */
    enum err failed;
    struct holds_op holds;
    struct claim_info *live; /* room for max */
    size_t live_count;
    size_t live_at;
    struct ledger_reservation_get get;
};
void reservations_list(struct reservations *r, struct listing *l);

/* ---- leave ---- */

/* Gives the place back, and with it what its user holds. */
struct leaving {
    int64_t event_key;
    uint64_t seq;
    struct arena *arena;
    void (*done)(struct leaving *l, enum err result);

    /* Below: its own. When it is done, `look` says whose place it is. */
    struct reservations *service;
    struct room_looking look;
    struct holds_op holds;
    struct room_ending end;
    struct uuid *ids; /* as the rest, room for holds.max */
    int64_t *sections;
    bool *cancelled;
    struct reservation_change *news;
    struct follow_op follow;
    int rounds;
};
void reservations_leave(struct reservations *r, struct leaving *l);

/* ---- expire ---- */

/* Ends the holds of one event whose time is over. At every tick. */
void reservations_tick(struct reservations *r, int64_t event_key);

#endif
