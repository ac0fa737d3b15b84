/*
 * ranking: the members of a board in the order of their scores. The highest score is first; of
 * equal ones who has it since the earliest time, and then the lowest member: no two share a rank. A
 * member is named by a number that is not 0, as an event by its key.
 *
 * The order is a B+tree that counts what is below each branch: to place, to move, to remove and to
 * rank a member looks at a few nodes, whatever the board, and so does the first of a page. A move
 * that stays below one branch changes nothing above it. Two neighbours below a branch have half of
 * a node's keys at least. A hash table beside it finds the members: nearly full, so that it is
 * small, because most of the time goes into waiting for memory.
 *
 * Memory: 28 to 55 bytes per member in the table; in the tree 36 when scores change at random, 50
 * when all come in order. Owns it. Pure: no I/O, no clock; one thread at a time.
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
    struct ranked *slots; /* the members as they stand in the tree; member 0: free */
    size_t cap;           /* a power of two */
    size_t count;
};

void ranking_init(struct ranking *r);
void ranking_deinit(struct ranking *r);

/* A new member, or another place for one that is there. */
void ranking_set(struct ranking *r, int64_t member, int64_t score, int64_t since);
/* False: it is not there. */
bool ranking_remove(struct ranking *r, int64_t member);
bool ranking_get(const struct ranking *r, int64_t member, struct ranked *out);
size_t ranking_count(const struct ranking *r);
/* From 1 on; 0: it is not there. */
size_t ranking_rank(const struct ranking *r, int64_t member);
/* The first of all, `max` at the most. Returns how many. */
size_t ranking_top(const struct ranking *r, struct ranked *out, size_t max);
/* The same from a rank on, which is 1 at least and may be behind the last. */
size_t ranking_from(const struct ranking *r, size_t rank, struct ranked *out, size_t max);

#endif
