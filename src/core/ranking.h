/*
 * ranking: the members of a board in the order of their scores. The highest score is first; of
 * equal ones the member that has it since the earliest time, then the lowest: no two share a rank.
 * A member is named by a number that is not 0, as an event by its key.
 *
 * The order is a B+tree that counts what is below each branch: to place, to move, to remove and to
 * rank a member looks at a few nodes, whatever the board, and so do the first members. A move
 * that stays below one branch changes nothing above it. Two neighbours below a branch have half of
 * a node's keys at least.
 *
 * The caller keeps, for each member, a `struct ranked` with the place at which the member stands
 * (zeroed: it is not in the ranking), and hands it to each call about the member.
 *
 * Memory: per member 36 bytes when scores change at random, 50 when all come in order. Owns it.
 * Pure: no I/O, no clock; one thread at a time.
 */
#ifndef ADMITONE_CORE_RANKING_H
#define ADMITONE_CORE_RANKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ranked {
    int64_t member;
    int64_t score;
    int64_t since; /* of equal scores the lower is in front */
};

struct ranking_node;

struct ranking {
    struct ranking_node *root;
    size_t count; /* of members */
};

void ranking_init(struct ranking *r);
void ranking_deinit(struct ranking *r);

/* Adds the member or moves it; `at` is its place before and afterwards. */
void ranking_set(struct ranking *r, struct ranked *at, struct ranked to);
/* Zeroes `at`; does nothing when the member is not in the ranking. */
void ranking_remove(struct ranking *r, struct ranked *at);
/* From 1 on; 0: the member is not in the ranking. */
size_t ranking_rank(const struct ranking *r, const struct ranked *at);
/* The first of all, `max` at the most. Returns how many. */
size_t ranking_top(const struct ranking *r, struct ranked *out, size_t max);

#endif
