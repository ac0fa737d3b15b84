/*
 * event_contents: the live entries and reservations of one event, as one store has them. The hot
 * store and the ledger are read into the same struct, so that they can be compared.
 *
 * Owns both arrays. A zeroed one is empty. One thread at a time.
 */
#ifndef ADMITONE_CORE_EVENT_CONTENTS_H
#define ADMITONE_CORE_EVENT_CONTENTS_H

#include "core/claims.h"
#include "core/queue.h"

struct contents_entry {
    uint64_t seq;
    int64_t joined_ms;
    int64_t expires_ms;       /* only in the ledger: the end of the time of an ACTIVE one */
    enum entry_status status; /* WAITING or ACTIVE; of a pending one, as it is shown */
    bool pending;             /* its enter or its admission; only in the hot store */
};

struct event_contents {
    struct contents_entry *entries; /* in order of their numbers */
    size_t entry_count;
    size_t entry_room;
    struct claim_info *reservations; /* in order of their ids */
    size_t reservation_count;
    size_t reservation_room;
};

/* At the end: the caller adds them in their order, or sorts them afterwards. */
void event_contents_add_entry(struct event_contents *c, struct contents_entry e);
void event_contents_add_reservation(struct event_contents *c, struct claim_info r);
/* Frees both arrays; it is empty afterwards. */
void event_contents_clear(struct event_contents *c);

#endif
