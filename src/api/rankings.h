/*
 * rankings: what a board and its stream share: reading the period, and rendering the board.
 */
#ifndef ADMITONE_API_RANKINGS_H
#define ADMITONE_API_RANKINGS_H

#include "api/api.h"
#include "service/ranking_reads.h"

/* Rows of an answer, unless the request asks for another number. */
#define TOP_DEFAULT 10

/* False: the problem has been answered. */
bool rankings_are_kept(const struct api *api, struct exchange *x);

/* NULL: the problem has been answered. */
const struct period *ranking_period(struct exchange *x, str word);

/* The board as a JSON object. Returns the length of `to` without the time at its end: up to there
 * it stays the same as long as the board does. */
size_t ranking_render(struct api *api, struct buf *to, const struct board_top_op *top);

#endif
