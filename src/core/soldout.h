/*
 * soldout: how fast events sell. In front are those that are sold out, by the time from the opening
 * of the sale until no seat was left; then those that still sell, by pace (seats of the last five
 * minutes), and of equal ones by the share that is sold. Pure: no I/O; one thread at a time.
 *
 * An event counts as sold out while all its seats are taken; its time is the last moment at which
 * that began. When a seat is given back, the event counts as selling again, so users who hold all
 * seats and do not buy them do not keep an event in front.
 *
 * A sold-out event is also on the board of the day on which it sold out, which is kept for some
 * time after that day (core/period.h).
 *
 * The caller makes sure that each sale is added once (core/sale.h). Sums and the latest time do not
 * depend on the order of the sales.
 */
#ifndef ADMITONE_CORE_SOLDOUT_H
#define ADMITONE_CORE_SOLDOUT_H

#include "base/map.h"
#include "core/limits.h"
#include "core/ranking.h"
#include "core/sale.h"

/* The pace is the sum over the last PACE_STEPS steps of this length. */
#define PACE_STEP_MS 10000
#define PACE_STEPS 30
#define PACE_MINUTES ((double)PACE_STEP_MS * PACE_STEPS / 60000)

/* The sales of one event on the board of the fastest-selling events. */
struct soldout_sales {
    int64_t event_key;
    int64_t capacity;
    int64_t opened_ms;
    int64_t reservations;
    int64_t seats;
    int64_t since_ms;    /* when the latest reservation was made, as in core/board.h */
    int64_t sold_out_ms; /* when no seat was left, the last time; 0: never */
    int64_t pace;        /* seats of the last PACE_STEPS steps */
};

struct soldout {
    struct map events; /* an event's key → its row */
    struct map days;   /* when a day begins → the events that were sold out on it */
    struct ranking order;
    int64_t step; /* the last that counts for the pace */
    int64_t now_ms;
};

void soldout_init(struct soldout *s);
void soldout_deinit(struct soldout *s);

/* Sets the capacity and the opening time of an event, as it is configured now. */
void soldout_set_event(struct soldout *s, int64_t event_key, int64_t capacity, int64_t opened_ms);
/* Also for an event that is not known yet: it is shown after soldout_set_event. */
void soldout_add(struct soldout *s, const struct sale *sale);
/* Advances the time: removes old steps from the pace, and boards of days that are kept no longer.
 */
void soldout_advance(struct soldout *s, int64_t now_ms);

/* Seats that were sold in one step of the pace. */
struct pace_step {
    int64_t step; /* PACE_STEP_MS each, since 1970 */
    int64_t seats;
};

struct soldout_row {
    struct soldout_sales sales;
    bool is_known;
    struct pace_step steps[PACE_STEPS];
    size_t step_count; /* of those that have any */
};

/* Iterates over all rows, shown or not; *at starts at 0. False: there are no more. */
bool soldout_next(const struct soldout *s, size_t *at, struct soldout_row *out);

bool soldout_is_sold_out(const struct soldout_sales *s);
/* Its rank, from 1 on, and its row; 0: it is not on the board, for nothing of it is sold. */
size_t soldout_find(const struct soldout *s, int64_t event_key, struct soldout_sales *out);
/* The first `max`, TOP_MAX at the most. Returns how many. */
size_t soldout_top(const struct soldout *s, struct soldout_sales *out, size_t max);
/* The same of those that were sold out on that day. */
size_t soldout_day_top(const struct soldout *s, int64_t at_ms, struct soldout_sales *out,
                       size_t max);

#endif
