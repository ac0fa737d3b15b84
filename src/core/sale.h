/*
 * sale: what boards count. Sales are read from the ledger in order, each once; a watermark says how
 * far the reader has come: every sale up to it was read, and every later one is after it.
 */
#ifndef ADMITONE_CORE_SALE_H
#define ADMITONE_CORE_SALE_H

#include <stdbool.h>
#include <stdint.h>

enum sale_kind {
    SALE_TAKEN,      /* a reservation was made */
    SALE_GIVEN_BACK, /* it was cancelled, or its time was over */
    SALE_SOLD_OUT,   /* the event had no seat left then */
};

/* Zeroed: before all. */
struct sale_mark {
    uint64_t transaction; /* 0 where there is one writer */
    int64_t id;
};

static inline bool sale_is_after(const struct sale_mark *a, const struct sale_mark *b) {
    return a->transaction > b->transaction || (a->transaction == b->transaction && a->id > b->id);
}

struct sale {
    struct sale_mark mark;
    enum sale_kind kind;
    int64_t event_key;
    int64_t seats;    /* of the reservation */
    int64_t at_ms;    /* when it happened */
    int64_t taken_ms; /* when the reservation was made: it is taken back where it was counted */
};

#endif
