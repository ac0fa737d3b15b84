/*
 * board_rows: the rows that boards are shown with, as every adapter of port/boards.h makes them.
 */
#ifndef ADMITONE_HOT_BOARD_ROWS_H
#define ADMITONE_HOT_BOARD_ROWS_H

#include "core/board.h"
#include "port/boards.h"

struct board_row board_row_of_tally(size_t rank, const struct tally *t);
struct board_row board_row_of_selling(size_t rank, const struct selling *s);
/* One that was sold out on a day, with what was sold of it on that day. */
struct board_row board_row_of_day(size_t rank, const struct selling *s, const struct tally *t);

/* Behind the first `count` rows come those of the others that are not among them, up to `max`.
 * Returns how many there are then. */
size_t board_rows_append(struct board_row *rows, size_t count, size_t max,
                         const struct board_row *others, size_t other_count);

#endif
