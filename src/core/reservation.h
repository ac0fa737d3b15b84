/*
 * reservation: seats of one section that a user holds, then owns. Pure data; no I/O, no clock.
 *
 * A reservation is one block of memory (reservation_new): the struct, then its seats. HELD becomes
 * CONFIRMED, CANCELLED or EXPIRED, CONFIRMED becomes CANCELLED; the ledger decides which, once.
 */
#ifndef ADMITONE_CORE_RESERVATION_H
#define ADMITONE_CORE_RESERVATION_H

#include "core/limits.h"
#include "core/uuid.h"

/* X(symbol): the words of JSON, SQL and the docs. */
#define RESERVATION_STATUS_MAP(X) X(HELD) X(CONFIRMED) X(CANCELLED) X(EXPIRED)
/* X(symbol, word) */
#define STRATEGY_MAP(X)                                                                            \
    X(SLOT, "slot")                                                                                \
    X(LOCK, "lock")                                                                                \
    X(ADAPTIVE, "adaptive")                                                                        \
    X(OPTIMISTIC, "optimistic")                                                                    \
    X(PESSIMISTIC, "pessimistic")                                                                  \
    X(DISTRIBUTED_LOCK, "distributed-lock")                                                        \
    X(QUEUE, "queue")

enum reservation_status {
#define STATUS_ENUM(symbol) RESERVATION_##symbol,
    RESERVATION_STATUS_MAP(STATUS_ENUM)
#undef STATUS_ENUM
};
enum strategy {
#define STRATEGY_ENUM(symbol, word) STRATEGY_##symbol,
    STRATEGY_MAP(STRATEGY_ENUM)
#undef STRATEGY_ENUM
};

/* Each word list ends with an entry whose `at` is NULL (word_index of core/event.h). */
extern const str reservation_status_words[];
extern const str strategy_words[];
/* Whether a hold by that strategy may be written in a section of mode `seat`, where the ledger
 * decides; without `ledger_decides`, in a section of the other modes, where the hot store decides.
 * QUEUE suits all. */
bool strategy_suits(enum strategy s, bool ledger_decides);

#define RESERVATION_SEATS_MAX PER_USER_MAX
#define CONFIRMATION_CODE_CHARS 10

struct reservation {
    struct uuid id;
    int64_t event_key;
    int64_t section_key;
    char user[USER_ID_BYTES_MAX + 1];
    uint64_t entry_seq; /* of the user's place in the event's queue, ACTIVE when it was held */
    enum strategy strategy;
    enum reservation_status status;
    uint32_t seat_count;
    uint32_t *seats; /* ascending; behind the struct, in its own block */
    int64_t price;   /* of all its seats, in the currency's minor unit */
    char currency[4];
    int64_t expires_ms; /* when it ends, if it is still HELD then */
    int64_t created_ms;
    int64_t confirmed_ms;                                /* CLOCK_NONE_MS: never was */
    int64_t ended_ms;                                    /* CLOCK_NONE_MS: it is live */
    char confirmation_code[CONFIRMATION_CODE_CHARS + 1]; /* empty: never confirmed */
};

/* HELD, without times, with room for that many seats; mem_free frees it. */
struct reservation *reservation_new(uint32_t seat_count);

/* Whether its times can be written as text: for rows that are read from a database. */
bool reservation_times_ok(const struct reservation *r);

/* Whether it is HELD past its time, so that nothing but EXPIRED can become of it. */
static inline bool reservation_is_over(const struct reservation *r, int64_t now_ms) {
    return r->status == RESERVATION_HELD && r->expires_ms <= now_ms;
}

/* HELD or CONFIRMED. */
static inline bool reservation_is_live(enum reservation_status s) {
    return s == RESERVATION_HELD || s == RESERVATION_CONFIRMED;
}

/* Random, of capital letters and digits without those that look alike (0 and O, 1 and I). It is for
 * people to read out; it is neither a proof nor a key to look anything up by. */
void confirmation_code_new(char out[CONFIRMATION_CODE_CHARS + 1]);

/* A live one, as the hot store knows it: a view. */
struct live_reservation {
    struct uuid id;
    str user;
    uint64_t entry_seq; /* the user's place in the queue when it was made */
    int64_t section_key;
    const uint32_t *seats;
    size_t seat_count;
    enum reservation_status status;
    int64_t expires_ms; /* when a HELD one ends */
};

/* Valid as long as *r is. */
struct live_reservation reservation_live(const struct reservation *r);

#endif
