/*
 * reservation: seats of one section that are held for, then owned by, a user. A value; the view
 * that the ledger and the hot store share.
 */
#ifndef ADMITONE_CORE_RESERVATION_H
#define ADMITONE_CORE_RESERVATION_H

#include "core/uuid.h"

/* X(symbol): the words of JSON, SQL and the docs. The first two are live. */
#define RESERVATION_STATUS_MAP(X) X(HELD) X(CONFIRMED) X(CANCELLED) X(EXPIRED)

enum reservation_status {
#define RESERVATION_ENUM(symbol) RESERVATION_##symbol,
    RESERVATION_STATUS_MAP(RESERVATION_ENUM)
#undef RESERVATION_ENUM
};
/* Ends with an entry whose `at` is NULL. */
extern const str reservation_status_words[];

struct reservation {
    struct uuid id;
    str user;
    uint64_t entry_seq; /* the user's place in the queue when it was made */
    int64_t section_key;
    const uint32_t *seats;
    size_t seat_count;
    enum reservation_status status;
    int64_t expires_ms; /* when a HELD one ends */
};

#endif
