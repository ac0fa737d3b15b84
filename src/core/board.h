/*
 * board: how many live reservations each event has, of those that were made in one period, and the
 * events in that order. A reservation that is given back is subtracted again. The caller decides
 * which sales belong to the period. Pure: no I/O, no clock; one thread at a time.
 *
 * The caller makes sure that each sale is added once (core/sale.h). One may be given back before it
 * is taken: then an event has a negative count for a moment, and is not shown.
 */
#ifndef ADMITONE_CORE_BOARD_H
#define ADMITONE_CORE_BOARD_H

#include "base/map.h"
#include "core/limits.h"
#include "core/ranking.h"
#include "core/sale.h"

/* The sales of one event on one board. */
struct board_sales {
    int64_t event_key;
    int64_t reservations;
    int64_t seats;
    /* When the latest reservation was made, even if it has been given back since. Of events with
     * equal counts, the one with the earlier time is first. A board that is rebuilt counts only
     * live reservations. */
    int64_t since_ms;
};

struct board {
    struct map sales; /* an event's key → struct board_sales: those that ever had anything */
    struct ranking order;
};

void board_init(struct board *b);
void board_deinit(struct board *b);

void board_add(struct board *b, const struct sale *s);

/* Its rank, from 1 on, and what it has; 0: it is not on the board. */
size_t board_find(const struct board *b, int64_t event_key, struct board_sales *out);
/* The first `max`, TOP_MAX at the most. Returns how many. */
size_t board_top(const struct board *b, struct board_sales *out, size_t max);

#endif
