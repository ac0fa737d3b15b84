/* The levels of words in which base/bitset.h finds the next member. */
#include "base/bitset.h"

#include <assert.h>

#include "base/mem.h"

static size_t words_for(size_t bits) {
    return (bits + 63) / 64;
}

static uint64_t bit_of(size_t number) {
    return UINT64_C(1) << (number % 64);
}

void bitset_init(struct bitset *b, size_t size) {
    assert(size > 0);
    *b = (struct bitset){.size = size};
    size_t at[BITSET_LEVELS_MAX];
    size_t words = 0;
    size_t bits = size;
    do {
        assert(b->depth < BITSET_LEVELS_MAX);
        at[b->depth++] = words;
        bits = words_for(bits);
        words += bits;
    } while (bits > 1);
    b->levels[0] = mem_new(words * sizeof *b->levels[0]);
    for (unsigned i = 1; i < b->depth; i++) b->levels[i] = b->levels[0] + at[i];
}

void bitset_deinit(struct bitset *b) {
    mem_free(b->levels[0]);
    *b = (struct bitset){0};
}

void bitset_add(struct bitset *b, size_t number) {
    assert(!bitset_has(b, number));
    for (unsigned i = 0; i < b->depth; i++, number /= 64) {
        uint64_t *word = &b->levels[i][number / 64];
        bool known_above = *word != 0;
        *word |= bit_of(number);
        if (known_above) return;
    }
}

void bitset_remove(struct bitset *b, size_t number) {
    assert(bitset_has(b, number));
    for (unsigned i = 0; i < b->depth; i++, number /= 64) {
        uint64_t *word = &b->levels[i][number / 64];
        *word &= ~bit_of(number);
        if (*word != 0) return;
    }
}

bool bitset_has(const struct bitset *b, size_t number) {
    assert(number < b->size);
    return (b->levels[0][number / 64] & bit_of(number)) != 0;
}

size_t bitset_next(const struct bitset *b, size_t from) {
    assert(from < b->size);
    uint64_t found = b->levels[0][from / 64] & ~(bit_of(from) - 1);
    unsigned i = 0;
    /* Up, while the rest of the word is empty; then down along the lowest bits. */
    while (found == 0) {
        if (++i == b->depth) return BITSET_NONE;
        from /= 64;
        found = b->levels[i][from / 64] & ~(bit_of(from) - 1) & ~bit_of(from);
    }
    size_t number = from / 64 * 64 + (size_t)__builtin_ctzll(found);
    while (i-- > 0) number = number * 64 + (size_t)__builtin_ctzll(b->levels[i][number]);
    return number;
}

static size_t highest_bit(uint64_t word) {
    return 63 - (size_t)__builtin_clzll(word);
}

size_t bitset_previous(const struct bitset *b, size_t from) {
    assert(from < b->size);
    uint64_t found = b->levels[0][from / 64] & (bit_of(from) | (bit_of(from) - 1));
    unsigned i = 0;
    while (found == 0) {
        if (++i == b->depth) return BITSET_NONE;
        from /= 64;
        found = b->levels[i][from / 64] & (bit_of(from) - 1);
    }
    size_t number = from / 64 * 64 + highest_bit(found);
    while (i-- > 0) number = number * 64 + highest_bit(b->levels[i][number]);
    return number;
}
