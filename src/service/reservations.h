/*
 * reservations: the use cases of reservations that exist: confirm, cancel, look up, list. And the
 * service that hold.h, leave.h and hold_expiry.h work on.
 *
 * Confirm and cancel are decided by the ledger; then the hot store is updated.
 *
 * Each use case is one struct in the caller's memory (the request's arena), which stays until
 * `done` is called, on the caller's worker: later, or before the function returns.
 */
#ifndef ADMITONE_SERVICE_RESERVATIONS_H
#define ADMITONE_SERVICE_RESERVATIONS_H

#include <stdatomic.h>

#include "port/seats.h"
#include "run/arena.h"
#include "service/adaptive_load.h"
#include "service/waiting_room.h"

struct reservations {
    struct ledger *ledger;
    struct seats *seats;
    struct waiting_room *room;
    int64_t lock_wait_ms;      /* the longest wait for all locks of a request together */
    struct adaptive_load load; /* of adaptive sections; the caller fills in its rules */

    /* Private. */
    _Atomic int64_t under_way; /* expiries: records that belong to no request */
};

void reservations_init(struct reservations *r);
/* When nothing is under way. */
void reservations_deinit(struct reservations *r);
/* Whether records are under way that belong to no request. From any thread. */
bool reservations_is_busy(struct reservations *r);

/* ---- confirm, cancel, look up ---- */

/* One of these three, on one reservation. */
struct reservation_action {
    struct uuid id;
    /* OK, or why this request may not do this: NOT_YOURS or another refusal. Before a cancel it may
     * set may_end_confirmed. */
    enum err (*judge)(struct reservation_action *a, const struct reservation *r);
    bool may_end_confirmed;
    void (*done)(struct reservation_action *a, enum err result);
    /* Goes to the audit trail if this confirms or cancels it; NULL: its user acts. */
    const struct audit_note *note;
    /* Out: as it is now, unless there is none or it was refused by `judge`. The caller frees it
     * (mem_free). */
    struct reservation *reservation;

    /* Private. */
    struct reservations *service;
    struct ledger_reservation_get get;
    void (*when_found)(struct reservation_action *a); /* NULL: it is only looked up */
    union {
        struct ledger_confirm confirm;
        struct ledger_cancel cancel;
    };
    enum err result;
    bool completed; /* its place in the queue, by the confirmation */
    struct reservation_change change;
    struct follow_op follow;
    struct place_end end;
};

/* OK, or RESERVATION_NOT_FOUND, or what `judge` returned; to confirm also RESERVATION_ENDED,
 * HOLD_EXPIRED; to cancel also HOLD_EXPIRED, and CANCEL_BY_SHOP without may_end_confirmed. A
 * reservation that was confirmed, or cancelled, already: OK. */
void reservations_confirm(struct reservations *r, struct reservation_action *a);
void reservations_cancel(struct reservations *r, struct reservation_action *a);
void reservations_find(struct reservations *r, struct reservation_action *a);

/* ---- list ---- */

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

    /* Private. */
    struct reservations *service;
    size_t event_at;
    bool asks;  /* inside the loop over the events */
    bool waits; /* for the answer about an event */
    enum err failed;
    struct holds_op holds;
    struct claim_info *live; /* room for max */
    size_t live_count;
    size_t live_at;
    struct ledger_reservation_get get;
};
void reservations_list(struct reservations *r, struct listing *l);

#endif
