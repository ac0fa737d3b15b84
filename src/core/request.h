/*
 * request: an asynchronous request for seats: accepted now, decided later. Pure data; no I/O, no
 * clock.
 *
 * A request is PENDING until it is decided, once: it succeeds, and names the reservation that was
 * made for it, or it fails, and names the reason. While it is the first undecided one of its
 * partition it is shown as PROCESSING.
 *
 * Requests are spread over partitions by what they ask for: one named seat, or a section. In a
 * partition they are decided in the order in which they were accepted (`seq`).
 */
#ifndef ADMITONE_CORE_REQUEST_H
#define ADMITONE_CORE_REQUEST_H

#include "base/err.h"
#include "core/reservation.h"

/* X(symbol): the words of JSON, SQL and the docs. */
#define REQUEST_STATUS_MAP(X)                                                                      \
    X(PENDING)                                                                                     \
    X(PROCESSING)                                                                                  \
    X(SUCCESS)                                                                                     \
    X(FAIL_SOLD_OUT)                                                                               \
    X(FAIL_ALREADY_RESERVED)                                                                       \
    X(FAIL_CONFLICT)                                                                               \
    X(FAIL_NOT_ACTIVE)                                                                             \
    X(FAIL_NOT_FOUND)                                                                              \
    X(FAIL)

enum request_status {
#define REQUEST_STATUS_ENUM(symbol) REQUEST_##symbol,
    REQUEST_STATUS_MAP(REQUEST_STATUS_ENUM)
#undef REQUEST_STATUS_ENUM
};

/* Ends with an entry whose `at` is NULL (word_index of core/event.h). */
extern const str request_status_words[];

static inline bool request_is_decided(enum request_status s) {
    return s >= REQUEST_SUCCESS;
}

/* The status of a request whose hold ended with that result: OK, or a refusal. */
enum request_status request_status_of(enum err result);

#define REQUEST_PARTITIONS 16
/* The longest code of the error table (base/err.h) is shorter. */
#define REQUEST_REASON_BYTES 32
#define REQUEST_DIGEST_BYTES 32

struct request {
    struct uuid id;
    int partition;
    int64_t seq; /* grows within its partition; 0: not accepted yet */
    int64_t event_key;
    int64_t section_key;
    char user[USER_ID_BYTES_MAX + 1];
    uint64_t entry_seq;     /* of the user's place in the event's queue */
    enum strategy strategy; /* QUEUE: the one that the section's mode has when it is decided */
    uint32_t quantity;      /* of seats, 1 to RESERVATION_SEATS_MAX; 0: its row is not valid */
    uint32_t *seats;        /* so many, ascending, behind the struct; NULL: any */
    /* Of the request's body, to tell a repeated request from another one with the same id. */
    unsigned char digest[REQUEST_DIGEST_BYTES];
    int64_t ahead; /* undecided requests of the partition before it, when it was accepted */
    enum request_status status;
    char reason[REQUEST_REASON_BYTES]; /* of a failure: the code of the error table; else empty */
    struct uuid reservation;           /* on SUCCESS */
    int64_t hold_expires_ms;           /* of that reservation; CLOCK_NONE_MS: not known */
    int64_t created_ms;
    int64_t finished_ms; /* CLOCK_NONE_MS: undecided */
};

/* PENDING, with room for that many named seats (0: none are named); mem_free frees it. */
struct request *request_new(uint32_t named);
struct request *request_copy(const struct request *r);

/* Of a request for these seats, or for any of the section when `seats` is NULL. */
int request_partition(int64_t section_key, const uint32_t *seats, uint32_t quantity);

#endif
