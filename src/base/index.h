/*
 * index: the hash table of the program. It finds a number by the hash of the item that the number
 * stands for; the items belong to the caller, who compares them (base/map.h does, for byte
 * strings). Open addressing with linear probing; removal moves later slots back, so there are no
 * tombstones.
 *
 *   size_t at = 0;
 *   while ((number = index_next(&i, hash, &at)) != INDEX_NONE && !is_it(number)) {}
 *
 * Growth copies the whole table. A caller with millions of items keeps INDEX_SHARDS indexes, each
 * of which grows at its own time, so that no growth takes long; index_shard chooses one by the
 * hash.
 *
 * Owns its memory, 11 to 21 bytes per number; zeroed is empty. One thread at a time.
 */
#ifndef ADMITONE_BASE_INDEX_H
#define ADMITONE_BASE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define INDEX_NONE 0
#define INDEX_SHARDS 64

struct index_slot {
    uint32_t hash;
    uint32_t number; /* INDEX_NONE: the slot is free */
};

struct index {
    struct index_slot *slots;
    uint32_t cap; /* a power of two, or 0 */
    uint32_t count;
};

void index_deinit(struct index *i);
/* `number` is not INDEX_NONE. */
void index_add(struct index *i, uint32_t hash, uint32_t number);
/* The index has the number under this hash. */
void index_remove(struct index *i, uint32_t hash, uint32_t number);
/* Steps through the numbers with that hash: *at starts at 0; INDEX_NONE at the end. The index must
 * not change between the steps. */
uint32_t index_next(const struct index *i, uint32_t hash, size_t *at);

/* By the upper six bits; the lower ones choose the slot. */
static inline size_t index_shard(uint32_t hash) {
    return hash >> 26;
}

#endif
