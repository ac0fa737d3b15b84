/* Words and partitions of asynchronous requests, and how the result of a hold becomes a status. */
#include "core/request.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"

const str request_status_words[] = {
#define REQUEST_STATUS_WORD(symbol) STR_INIT(#symbol),
    REQUEST_STATUS_MAP(REQUEST_STATUS_WORD)
#undef REQUEST_STATUS_WORD
        {NULL, 0},
};

enum request_status request_status_of(enum err result) {
    switch (result) {
    case ERR_OK:
        return REQUEST_SUCCESS;
    case ERR_SOLD_OUT:
        return REQUEST_FAIL_SOLD_OUT;
    case ERR_SEAT_TAKEN:
        return REQUEST_FAIL_ALREADY_RESERVED;
    case ERR_CONFLICT:
    case ERR_LOCK_TIMEOUT:
    case ERR_LOCK_LOST:
        return REQUEST_FAIL_CONFLICT;
    case ERR_NOT_ACTIVE:
        return REQUEST_FAIL_NOT_ACTIVE;
    case ERR_EVENT_NOT_FOUND:
    case ERR_SECTION_NOT_FOUND:
    case ERR_SEAT_NOT_FOUND:
        return REQUEST_FAIL_NOT_FOUND;
    default:
        return REQUEST_FAIL;
    }
}

struct request *request_new(uint32_t named) {
    struct request *r = mem_new(sizeof *r + named * sizeof *r->seats);
    r->seats = named > 0 ? (uint32_t *)(r + 1) : NULL;
    r->quantity = named;
    r->strategy = STRATEGY_QUEUE;
    r->finished_ms = CLOCK_NONE_MS;
    r->hold_expires_ms = CLOCK_NONE_MS;
    return r;
}

struct request *request_copy(const struct request *r) {
    struct request *copy = request_new(r->seats == NULL ? 0 : r->quantity);
    uint32_t *seats = copy->seats;
    *copy = *r;
    copy->seats = seats;
    if (seats != NULL) memcpy(seats, r->seats, r->quantity * sizeof *seats);
    return copy;
}

/* The finalizer of MurmurHash3: neighbouring numbers go to different partitions. */
static uint64_t request_mix(uint64_t n) {
    n ^= n >> 33;
    n *= UINT64_C(0xff51afd7ed558ccd);
    n ^= n >> 33;
    n *= UINT64_C(0xc4ceb9fe1a85ec53);
    return n ^ n >> 33;
}

int request_partition(int64_t section_key, const uint32_t *seats, uint32_t quantity) {
    assert(quantity > 0);
    uint64_t key = request_mix((uint64_t)section_key);
    if (seats != NULL && quantity == 1) key = request_mix(key ^ seats[0]);
    return (int)(key % REQUEST_PARTITIONS);
}
