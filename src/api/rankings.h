/*
 * rankings: what the answers about a board and its stream have in common.
 */
#ifndef ADMITONE_API_RANKINGS_H
#define ADMITONE_API_RANKINGS_H

#include "api/api.h"
#include "service/ranking_reads.h"

/* So many rows, where the request does not say how many. */
#define TOP_DEFAULT 10

/* False: the problem has been answered. */
bool rankings_are_kept(const struct api *api, struct exchange *x);

/* NULL: the problem has been answered. */
const struct period *ranking_period(struct exchange *x, str word);

/* The board as a JSON object. Returns how long `to` is without what only tells the time: up to
 * there it is the same for as long as the board is. */
size_t ranking_render(struct api *api, struct buf *to, const struct board_top_op *top);

#endif
