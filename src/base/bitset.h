/*
 * bitset: a set of numbers below a fixed size, which finds the next and the previous member by
 * reading a few words, however far away they are: one bit per number, and above them levels of one
 * bit per word that has any, up to a single word. Memory: 1.02 bits per possible number. Owns its
 * memory; one thread at a time.
 */
#ifndef ADMITONE_BASE_BITSET_H
#define ADMITONE_BASE_BITSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITSET_LEVELS_MAX 6
#define BITSET_NONE SIZE_MAX

struct bitset {
    uint64_t *levels[BITSET_LEVELS_MAX]; /* levels[0] has the numbers, and owns the memory */
    unsigned depth;
    size_t size;
};

/* Empty, for the numbers 0 to size - 1. */
void bitset_init(struct bitset *b, size_t size);
void bitset_deinit(struct bitset *b);

/* `number` is not a member yet. */
void bitset_add(struct bitset *b, size_t number);
/* `number` is a member. */
void bitset_remove(struct bitset *b, size_t number);
bool bitset_has(const struct bitset *b, size_t number);
/* The lowest member from `from` on, the highest up to it; BITSET_NONE: there is none. */
size_t bitset_next(const struct bitset *b, size_t from);
size_t bitset_previous(const struct bitset *b, size_t from);

#endif
