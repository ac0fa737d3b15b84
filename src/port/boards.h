/*
 * boards: the contract of the rankings: the most popular events by period (core/board.h), and those
 * that sell out fastest (core/soldout.h). The boards follow the sales of the ledger; buyers never
 * wait for them. An adapter promises:
 *
 *  - A sale counts once on every board that it belongs to, no matter which node sends it and how
 *    often. A sale that is given back is subtracted where it was counted. A board is kept for some
 *    time after its period has ended (core/period.h); then it is deleted for good.
 *  - Of rows with equal scores, the one that has had its score for longer is first; rows of the
 *    same millisecond may be in any order.
 *  - boards_begin gives one node at a time a lease to count, and the watermark after which sales
 *    are to be sent. Sending a sale twice does no harm; sales that were not counted must be sent
 *    again. Event updates carry no sequence number, so only the lease holder may send them.
 *  - `done` is called on the caller's thread, once: before the function returns, or later. An
 *    operation's struct and what it points to belong to the caller and stay valid until then.
 *    `result` is OK, or a failure of the store (port/hot.h).
 */
#ifndef ADMITONE_PORT_BOARDS_H
#define ADMITONE_PORT_BOARDS_H

#include "base/err.h"
#include "core/period.h"
#include "core/sale.h"
#include "core/soldout.h"

enum board_kind {
    BOARD_POPULAR, /* of a period: by reservations */
    BOARD_SOLDOUT, /* of all time; or of a day: those sold out on it, then the popular ones */
};

struct board_name {
    enum board_kind kind;
    const struct period *period; /* NULL: of all time. SOLDOUT: NULL, or the daily one */
    int64_t at_ms;               /* a time in the span of the period */
};

struct board_row {
    size_t rank; /* from 1 on */
    bool is_sold_out;
    /* On the board of a period event_key, reservations, seats and since_ms are those of the sales
     * in it; the rest is 0 unless the event is sold out. */
    struct soldout_sales sales;
};

struct board_begin_op {
    int64_t now_ms;
    void (*done)(struct board_begin_op *b);
    enum err result;       /* out */
    int64_t lease;         /* out: number of this node's lease to count; 0: another node has it */
    struct sale_mark mark; /* out, with a lease: the watermark */
    uint32_t epoch; /* out, with a lease: the incarnation; for boards_count and boards_set_events */
};

/* All sales after the watermark, in order. RECOVERING: that incarnation has ended. */
struct board_count_op {
    uint32_t epoch;
    int64_t now_ms;
    const struct sale *sales;
    size_t count;
    void (*done)(struct board_count_op *c);
    enum err result; /* out */
};

struct board_top_op {
    struct board_name board;
    int64_t now_ms;
    struct board_row *rows; /* out: room for `max` */
    size_t max;             /* TOP_MAX at the most */
    void (*done)(struct board_top_op *t);
    enum err result; /* out */
    size_t count;    /* out */
};

struct board_find_op {
    struct board_name board; /* no day of SOLDOUT */
    int64_t event_key;
    int64_t now_ms;
    void (*done)(struct board_find_op *f);
    enum err result;       /* out */
    struct board_row row;  /* out; rank 0: the event is not on the board */
    struct sale_mark mark; /* out: at least the sales up to it are counted */
};

/* The capacity of an event, and when it opened. A deleted event has no live reservations, and so is
 * on no board. */
struct board_event {
    int64_t event_key;
    int64_t capacity;
    int64_t opened_ms;
};

/* RECOVERING: that incarnation or that lease has ended. */
struct board_events_op {
    uint32_t epoch;
    int64_t lease;
    int64_t now_ms;
    const struct board_event *events;
    size_t count;
    void (*done)(struct board_events_op *k);
    enum err result; /* out */
};

struct boards;

struct boards_ops {
    void (*begin)(struct boards *b, struct board_begin_op *op);
    void (*count)(struct boards *b, struct board_count_op *op);
    void (*set_events)(struct boards *b, struct board_events_op *op);
    void (*top)(struct boards *b, struct board_top_op *op);
    void (*find)(struct boards *b, struct board_find_op *op);
    void (*restore_event)(struct boards *b, const struct board_event *e);
    void (*restore)(struct boards *b, const struct sale *s, int64_t now_ms);
    void (*restored)(struct boards *b, const struct sale_mark *mark, int64_t now_ms);
};

struct boards {
    const struct boards_ops *ops;
};

static inline void boards_begin(struct boards *b, struct board_begin_op *op) {
    b->ops->begin(b, op);
}

static inline void boards_count(struct boards *b, struct board_count_op *op) {
    b->ops->count(b, op);
}

static inline void boards_set_events(struct boards *b, struct board_events_op *op) {
    b->ops->set_events(b, op);
}

static inline void boards_top(struct boards *b, struct board_top_op *op) {
    b->ops->top(b, op);
}

static inline void boards_find(struct boards *b, struct board_find_op *op) {
    b->ops->find(b, op);
}

/* For a rebuild (port/hot.h) and at the start: the events and sales of the ledger. They block. */
static inline void boards_restore_event(struct boards *b, const struct board_event *e) {
    b->ops->restore_event(b, e);
}

static inline void boards_restore(struct boards *b, const struct sale *s, int64_t now_ms) {
    b->ops->restore(b, s, now_ms);
}

/* All sales up to the watermark were restored. */
static inline void boards_restored(struct boards *b, const struct sale_mark *mark, int64_t now_ms) {
    b->ops->restored(b, mark, now_ms);
}

#endif
