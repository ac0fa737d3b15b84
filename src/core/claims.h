/*
 * claims: the rules of one event's seats: the maps of its sections, and the live reservations by
 * id, by user and by the time when they end. Pure: no I/O, the clock is an argument. One thread at
 * a time: the owner has a lock.
 *
 * A reservation is here while it is live: HELD, then perhaps CONFIRMED; then it is gone, and its
 * seats are free. The effect of claim is *pending* until the ledger has it: no other user gets the
 * seats and they count for the user's limit, but it never expires; settle keeps it, or undoes it.
 * Everything else follows what the ledger has decided. The steps go one way only (pending, HELD,
 * CONFIRMED, gone) and ids are never used again, so a change that arrives late, twice or out of
 * order undoes no later one.
 *
 * A seat that a map has as taken belongs to exactly one reservation, which lists it.
 *
 * Memory: that of the maps; per live reservation 88 bytes, 11 to 21 for finding it by its id and 16
 * to 32 for its expiry; per user with live reservations 43 to 53 bytes, and the name if it is
 * longer than 16 bytes.
 */
#ifndef ADMITONE_CORE_CLAIMS_H
#define ADMITONE_CORE_CLAIMS_H

#include "core/event.h"
#include "core/reservation.h"
#include "core/seat_map.h"

/* claims_due reports an expired hold again after this time, unless it is gone by then. */
#define DUE_AGAIN_MS 5000

enum claim_outcome {
    CLAIM_DONE,           /* pending */
    CLAIM_THERE,          /* the user has a live reservation with that id or key; perhaps pending */
    CLAIM_KEY_REUSED,     /* the same, but it was made by a different request */
    CLAIM_NOT_ACTIVE,     /* the user's entry is not ACTIVE */
    CLAIM_EVENT_CLOSED,   /* CLOSED or not open yet: nothing is sold */
    CLAIM_NO_SECTION,     /* there is no such section */
    CLAIM_SECTION_CLOSED, /* by its status */
    CLAIM_SECTION_MAINTENANCE, /* by its status */
    CLAIM_LIMIT,               /* more than the user may have */
    CLAIM_LEDGER_DECIDES,      /* the section's mode is `seat`: the seats are only suggested */
    CLAIM_SOLD_OUT,            /* no seat is free */
    CLAIM_NOT_ENOUGH,          /* some are free, but fewer than were asked for */
    CLAIM_TAKEN,               /* a named seat is not free */
    CLAIM_SEATS_TWICE,         /* a seat is named twice */
    CLAIM_NO_SUCH_SEAT,        /* a named seat does not exist */
};

/* Digests of an idempotency key, 0 when there is none, and of the request that came with it. They
 * are compared only among one user's live reservations, so 64 bits are enough. */
struct claim_key {
    uint64_t key;
    uint64_t request;
};

struct claim_request {
    struct uuid id; /* of the reservation that it becomes */
    str user;
    uint64_t entry_seq;
    bool is_active; /* the entry is ACTIVE, settled and the user's own */
    int64_t section_key;
    uint32_t count;        /* at least 1 */
    const uint32_t *named; /* `count` seats, or NULL: any */
    struct claim_key key;
    /* 0: seats are suggested by the rule; else at a place that depends on this number, so that
     * concurrent requests do not get the same ones (seat_map_suggest). */
    uint64_t spread;
};

/* One live reservation. */
struct claim_info {
    struct uuid id;
    uint64_t entry_seq;
    int64_t section_key;
    uint32_t seat_count;
    enum reservation_status status; /* HELD, CONFIRMED */
    bool pending;                   /* the ledger does not have it yet: not to be shown */
    int64_t expires_ms;
};

/* A reservation and its section. */
struct claim_ref {
    struct uuid id;
    int64_t section_key;
};

struct section_counts {
    int64_t section_key;
    uint32_t capacity;
    struct seat_counts seats;
};

struct claims;

/* The event's sections with all seats free. */
struct claims *claims_new(const struct event *e);
void claims_free(struct claims *c);

/* An older version than the one in force changes nothing. A section that the event no longer has
 * accepts no more claims, and is removed with its last reservation, unless the event has it again
 * before that. A section shrinks as soon as none of the seats to remove is taken. (A claim that is
 * pending while the ledger changes the event may have such a seat; the ledger will refuse it.) */
void claims_configure(struct claims *c, const struct event *e);

/*
 * Claims all seats or none, in one step. The reasons to refuse are checked in the order of enum
 * claim_outcome, up to LEDGER_DECIDES; if several of the outcomes below that apply, which are about
 * seats, the last one is returned. `seats` has room for w->count: *seat_count of them are the
 * reservation's (DONE, THERE), are suggested (LEDGER_DECIDES), or are the reason of the refusal
 * (TAKEN, SEATS_TWICE, NO_SUCH_SEAT). *out is set when DONE or THERE. The same request again, by
 * its id, is THERE, so a caller that lost the answer may ask again; an id of another user is
 * KEY_REUSED.
 *
 * In a section where the ledger decides, nothing changes. The named seats are suggested, whether or
 * not they are taken here; if none are named, as many free ones (seat_map_suggest). All other
 * outcomes about seats are returned as usual.
 */
enum claim_outcome claims_claim(struct claims *c, const struct claim_request *w, int64_t now_ms,
                                struct claim_info *out, uint32_t *seats, size_t *seat_count);
/* The ledger has stored the reservation; or, if not `kept`, has refused it: then it is removed. A
 * reservation that is not pending does not change. Returns whether it is live afterwards. */
bool claims_settle(struct claims *c, const struct uuid *id, bool kept);

/* Applies the ledger's decision: CONFIRMED, CANCELLED or EXPIRED. EXPIRED never ends a confirmed
 * reservation. False: it had that status already, or is gone. */
bool claims_follow(struct claims *c, const struct uuid *id, enum reservation_status status);
/* A live reservation as the ledger has it: a hold that was decided there, one that the hot store
 * lacked, or any at a recovery. It gets its seats, even if another reservation had them here.
 * False: there is no such section or seat any more. */
bool claims_apply(struct claims *c, const struct live_reservation *r);
/* Frees a seat that is AVAILABLE in the ledger, unless its reservation is pending: the ledger does
 * not know that one yet. False: nothing changed. */
bool claims_free_seat(struct claims *c, int64_t section_key, uint32_t seat);

/* Settled holds whose time is over, first those that ended first. They stay until the ledger has
 * decided, and are not reported again for DUE_AGAIN_MS. Returns how many. */
size_t claims_due(struct claims *c, int64_t now_ms, struct claim_ref *out, size_t max);
/* Whether claims_due may have anything to report. */
bool claims_needs_tick(const struct claims *c, int64_t now_ms);

/* The user's live reservations, oldest last; with an entry_seq that is not 0 only those of that
 * entry. Returns how many there are, and writes `max` of them at the most. */
size_t claims_of(const struct claims *c, str user, uint64_t entry_seq, struct claim_info *out,
                 size_t max);
/* Whether the entry has a reservation that is HELD and settled. */
bool claims_is_reserving(const struct claims *c, str user, uint64_t entry_seq);

/* How many sections there are; writes `max` of them at the most. */
size_t claims_sections(const struct claims *c, struct section_counts *out, size_t max);
struct seat_counts claims_totals(const struct claims *c);
/* Whether there was a time when the last available seat was taken: since these claims exist, or
 * before, as claims_restore_ran_out says. */
bool claims_ran_out(const struct claims *c);
void claims_restore_ran_out(struct claims *c);
/* Whether the user has as many seats as one user may have. */
bool claims_has_all(const struct claims *c, str user);
/* Whether every seat of the section is CONFIRMED, so that none becomes free by expiry. False if
 * there is no such section. */
bool claims_is_sold(const struct claims *c, int64_t section_key);
/* As seat_map_render. NULL `counts` is not set. False: there is no such section. */
bool claims_render(const struct claims *c, int64_t section_key, uint32_t first, char *out,
                   size_t max, size_t *count, struct section_counts *counts);

#endif
