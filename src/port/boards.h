/*
 * boards: the contract of the rankings: what is popular, by period (core/board.h), and what sells
 * out fastest (core/soldout.h). They follow the sales of the ledger; nobody who buys waits for
 * them. What an adapter promises:
 *
 *  - A sale counts once on every board that it belongs to, whoever tells it and however often. What
 *    is given back is taken away where it was counted. A board is kept for a while when its period
 *    has ended (core/period.h); then it is gone, and nothing brings it back.
 *  - Of equal rows the one that has been so for longer is in front; of those of one millisecond,
 *    any.
 *  - boards_begin says from where on sales are to be told, to one node at a time. Should two tell
 *    the same, it does no harm; what was not counted is to be told again. Of events there
 *    is no order to go by, so only whose turn it is may tell of them.
 *  - `done` is called on the caller's thread, once: before the function returns, or later. An
 *    operation's struct and what it points to are the caller's and stay until then. `result` is
 *    OK, or a failure of the store (port/hot.h).
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
    int64_t at_ms;               /* which: a time in it */
};

struct board_row {
    size_t rank; /* from 1 on */
    bool is_sold_out;
    /* Of a period: event_key, reservations, seats and since_ms are of what was sold in it; the rest
     * is 0 but of what is sold out. */
    struct selling selling;
};

struct board_begin_op {
    int64_t now_ms;
    void (*done)(struct board_begin_op *b);
    enum err result;       /* out */
    int64_t lease;         /* out: this node counts next; a new one when another did. 0: not it */
    struct sale_mark mark; /* out, then: behind which */
    uint32_t epoch;        /* out, then: in which incarnation of the store; of know and count */
};

/* All that there is behind the mark, up to the last one; in order. RECOVERING: that incarnation is
 * over.
 */
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
    struct board_row row;  /* out; its rank is 0 when it is not on the board */
    struct sale_mark mark; /* out: all up to it, at the least, is counted there */
};

/* What an event sells, and since when. One that is deleted has nothing live, and so is on no board.
 */
struct board_event {
    int64_t event_key;
    int64_t capacity;
    int64_t opened_ms;
};

/* RECOVERING: that incarnation is over, or that turn. */
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

/* What the ledger has, before anything is counted: while a store that is shared is being filled
 * (port/hot.h). They block. */
static inline void boards_restore_event(struct boards *b, const struct board_event *e) {
    b->ops->restore_event(b, e);
}

static inline void boards_restore(struct boards *b, const struct sale *s, int64_t now_ms) {
    b->ops->restore(b, s, now_ms);
}

/* That was all up to the mark. */
static inline void boards_restored(struct boards *b, const struct sale_mark *mark, int64_t now_ms) {
    b->ops->restored(b, mark, now_ms);
}

#endif
