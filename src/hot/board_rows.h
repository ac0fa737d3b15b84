/*
 * board_rows: the rows of boards as they are shown; shared by the adapters of port/boards.h.
 */
#ifndef ADMITONE_HOT_BOARD_ROWS_H
#define ADMITONE_HOT_BOARD_ROWS_H

#include "core/board.h"
#include "port/boards.h"

struct board_row board_row_of_sales(size_t rank, const struct board_sales *t);
struct board_row board_row_of_soldout(size_t rank, const struct soldout_sales *s);
/* An event that was sold out on a day, with its sales of that day. */
struct board_row board_row_of_day(size_t rank, const struct soldout_sales *s,
                                  const struct board_sales *t);

/* Appends to the first `count` rows those of the others that are not among them, up to `max`.
 * Returns how many rows there are then. */
size_t board_rows_append(struct board_row *rows, size_t count, size_t max,
                         const struct board_row *others, size_t other_count);

#endif
