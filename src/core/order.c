/* The bitmap and the Fenwick tree of core/order.h: adding, removing, ranking. */
#include "core/order.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK_BITS 512
#define BLOCK_WORDS (BLOCK_BITS / 64)
#define BLOCKS_MIN 16

void order_deinit(struct order *o) {
    mem_free(o->words);
    mem_free(o->tree);
    *o = (struct order){0};
}

static uint32_t bits_of(const uint64_t *words, size_t count) {
    uint32_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += (uint32_t)__builtin_popcountll(words[i]);
    return sum;
}

static void tree_add(struct order *o, size_t block, uint32_t by) {
    for (size_t i = block + 1; i <= o->blocks; i += i & -i) o->tree[i] += by;
}

/* Members in the blocks before this one. */
static uint64_t tree_sum(const struct order *o, size_t block) {
    uint64_t sum = 0;
    for (size_t i = block; i > 0; i -= i & -i) sum += o->tree[i];
    return sum;
}

/* The block that holds the member with `rank` members below it; *rank becomes its rank there. */
static size_t tree_find(const struct order *o, uint64_t *rank) {
    size_t at = 0;
    for (size_t step = o->blocks; step > 0; step /= 2)
        if (at + step <= o->blocks && o->tree[at + step] <= *rank) {
            at += step;
            *rank -= o->tree[at];
        }
    return at;
}

/* A bitmap of `blocks` from `base` on, with the members that there are. */
static void rebuild(struct order *o, uint64_t base, size_t blocks) {
    uint64_t *words = mem_new(blocks * BLOCK_WORDS * sizeof *words);
    uint32_t *tree = mem_new((blocks + 1) * sizeof *tree);
    if (o->count > 0) {
        /* Members are only in the part that both bitmaps share. */
        uint64_t from = base > o->base ? base : o->base;
        size_t old_at = (size_t)(from - o->base) / 64;
        size_t new_at = (size_t)(from - base) / 64;
        size_t old_left = o->blocks * BLOCK_WORDS - old_at;
        size_t new_left = blocks * BLOCK_WORDS - new_at;
        memcpy(words + new_at, o->words + old_at,
               (old_left < new_left ? old_left : new_left) * sizeof *words);
    }
    for (size_t b = 0; b < blocks; b++) tree[b + 1] = bits_of(words + b * BLOCK_WORDS, BLOCK_WORDS);
    for (size_t i = 1; i <= blocks; i++) {
        size_t parent = i + (i & -i);
        if (parent <= blocks) tree[parent] += tree[i];
    }
    mem_free(o->words);
    mem_free(o->tree);
    o->words = words;
    o->tree = tree;
    o->base = base;
    o->blocks = blocks;
}

/* The member with `rank` members below it; there is one. */
static uint64_t member_at(const struct order *o, uint64_t rank) {
    assert(rank < o->count);
    size_t word = tree_find(o, &rank) * BLOCK_WORDS;
    for (;; word++) {
        uint32_t here = (uint32_t)__builtin_popcountll(o->words[word]);
        if (rank < here) break;
        rank -= here;
    }
    uint64_t left = o->words[word];
    while (rank-- > 0) left &= left - 1;
    return o->base + word * 64 + (uint64_t)__builtin_ctzll(left);
}

/* Moves the bitmap so that the number and all members fit, in half of it at the most: the next
 * move is far away. */
static void make_room(struct order *o, uint64_t number) {
    uint64_t low = number;
    uint64_t high = number;
    if (o->count > 0) {
        uint64_t first = member_at(o, 0);
        uint64_t last = member_at(o, o->count - 1);
        if (first < low) low = first;
        if (last > high) high = last;
    }
    uint64_t low_block = low / BLOCK_BITS;
    uint64_t needed = high / BLOCK_BITS - low_block + 1;
    size_t blocks = BLOCKS_MIN;
    while (blocks < needed * 2) blocks *= 2;
    /* Numbers below the base are likely followed by even lower ones: leave room for them. */
    if (low < o->base && o->count > 0) low_block -= low_block < needed ? low_block : needed;
    rebuild(o, low_block * BLOCK_BITS, blocks);
}

void order_add(struct order *o, uint64_t number) {
    if (number < o->base || number - o->base >= o->blocks * BLOCK_BITS) make_room(o, number);
    uint64_t at = number - o->base;
    uint64_t bit = UINT64_C(1) << (at % 64);
    assert((o->words[at / 64] & bit) == 0);
    o->words[at / 64] |= bit;
    tree_add(o, (size_t)(at / BLOCK_BITS), 1);
    o->count++;
}

void order_remove(struct order *o, uint64_t number) {
    assert(order_has(o, number));
    uint64_t at = number - o->base;
    o->words[at / 64] &= ~(UINT64_C(1) << (at % 64));
    tree_add(o, (size_t)(at / BLOCK_BITS), (uint32_t)-1);
    o->count--;
}

bool order_has(const struct order *o, uint64_t number) {
    if (number < o->base || number - o->base >= o->blocks * BLOCK_BITS) return false;
    uint64_t at = number - o->base;
    return (o->words[at / 64] >> (at % 64) & 1) != 0;
}

uint64_t order_rank(const struct order *o, uint64_t number) {
    if (number <= o->base) return 0;
    uint64_t at = number - o->base;
    if (at >= o->blocks * BLOCK_BITS) return o->count;
    size_t block = (size_t)(at / BLOCK_BITS);
    size_t word = (size_t)(at / 64);
    uint64_t below = (UINT64_C(1) << (at % 64)) - 1;
    return tree_sum(o, block) +
           bits_of(o->words + block * BLOCK_WORDS, word - block * BLOCK_WORDS) +
           (uint32_t)__builtin_popcountll(o->words[word] & below);
}

bool order_next(const struct order *o, uint64_t from, uint64_t *number) {
    uint64_t rank = order_rank(o, from);
    if (rank >= o->count) return false;
    *number = member_at(o, rank);
    return true;
}
