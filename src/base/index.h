/*
 * index: finds numbers by the hash of what they stand for; the things themselves are the owner's,
 * who compares them. Open addressing in 64 tables, each of which grows on its own: no growth takes
 * long. Owns its memory, 11 to 21 bytes per number; zeroed is empty. One thread at a time.
 *
 *   size_t at = 0;
 *   while ((number = index_next(&i, hash, &at)) != INDEX_NONE && !is_it(number)) {}
 */
#ifndef ADMITONE_BASE_INDEX_H
#define ADMITONE_BASE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define INDEX_TABLES 64
#define INDEX_NONE 0

struct index_slot {
    uint32_t hash;
    uint32_t number; /* 0: the slot is free */
};

struct index_table {
    struct index_slot *slots;
    uint32_t cap; /* a power of two, or 0 */
    uint32_t count;
};

struct index {
    struct index_table tables[INDEX_TABLES];
};

void index_deinit(struct index *i);
/* Not 0, and not there under this hash. */
void index_add(struct index *i, uint32_t hash, uint32_t number);
/* There under this hash. */
void index_remove(struct index *i, uint32_t hash, uint32_t number);
/* Steps through the numbers with that hash: *at starts at 0; INDEX_NONE at the end. No changes
 * meanwhile. */
uint32_t index_next(const struct index *i, uint32_t hash, size_t *at);

#endif
