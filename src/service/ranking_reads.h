/*
 * ranking_reads: what answers show of the ranking boards (port/boards.h): the first rows of one, or
 * where one event stands. Each read is a struct in the caller's memory until `done` is called, on
 * the caller's worker: later, or before the function returns.
 */
#ifndef ADMITONE_SERVICE_RANKING_READS_H
#define ADMITONE_SERVICE_RANKING_READS_H

#include "core/limits.h"
#include "port/boards.h"

/* The first rows. The caller fills in board, rows, max and done; with board.at_ms CLOCK_NONE_MS it
 * is the current period. */
void ranking_read_top(struct boards *b, struct board_top_op *top);

/* Where one event stands. */
struct ranking_event {
    struct board_name board;
    int64_t event_key;
    void (*done)(struct ranking_event *r, enum err result);
    int64_t now_ms;       /* out */
    struct board_row row; /* out; its rank is 0 when it is not on the board */
    int64_t seats_sold;   /* out: since the sale began, whatever the board's period */

    /* Below: private. */
    struct boards *boards;
    struct board_top_op top;
    struct board_find_op find;
    struct board_row rows[TOP_MAX];
};
void ranking_read_event(struct boards *b, struct ranking_event *r);

#endif
