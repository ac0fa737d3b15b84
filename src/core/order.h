/*
 * order: a set of sequence numbers, in which it is cheap to ask how many are below a given one.
 * The queue keeps the waiting entries in one per lane; a position is a rank.
 *
 * Numbers grow with time and leave mostly at the low end, so the set is a bitmap from a moving
 * base: one bit per number, in blocks of 512 (a cache line), with a Fenwick tree over the blocks'
 * counts. A rank sums O(log blocks) tree cells and the bits of one block: tens of nanoseconds with
 * ten million members. Memory: about 1.1 bits per number between the lowest and the highest
 * member. Pure: no I/O, no clock; one thread at a time.
 */
#ifndef ADMITONE_CORE_ORDER_H
#define ADMITONE_CORE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct order {
    uint64_t *words; /* bit i: base + i is a member */
    uint32_t *tree;  /* Fenwick, 1-based: members per block */
    uint64_t base;   /* a multiple of the block size */
    size_t blocks;   /* a power of two, or 0 */
    uint64_t count;
};

void order_deinit(struct order *o);

/* `number` is not a member yet. Numbers may come in any order, but memory spans from the lowest on.
 */
void order_add(struct order *o, uint64_t number);
/* `number` is a member. */
void order_remove(struct order *o, uint64_t number);
bool order_has(const struct order *o, uint64_t number);
/* How many members are below `number`, which need not be one. */
uint64_t order_rank(const struct order *o, uint64_t number);
/* The lowest member that is at least `from`; false when there is none. */
bool order_next(const struct order *o, uint64_t from, uint64_t *number);

#endif
