/*
 * pool: items of one size under small numbers, which are used again when an item is given back.
 * Items never move, and neither taking nor giving back takes long, however many there are. Owns
 * its memory, which it keeps until pool_deinit. One thread at a time.
 */
#ifndef ADMITONE_BASE_POOL_H
#define ADMITONE_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#define POOL_CHUNK 1024

struct pool {
    char **chunks;
    size_t chunk_count;
    size_t item_bytes; /* at least 4 */
    uint32_t free;     /* given back last; a free item begins with the number of the next */
    uint32_t end;      /* the lowest number that was never taken */
};

void pool_init(struct pool *p, size_t item_bytes);
void pool_deinit(struct pool *p);
/* The number of an item, never 0. It is zeroed when it is taken for the first time; else all but
 * its first 4 bytes are as they were given back. */
uint32_t pool_take(struct pool *p);
void pool_give(struct pool *p, uint32_t number);

/* The item with a number that was taken at some time. */
static inline void *pool_at(const struct pool *p, uint32_t number) {
    return p->chunks[number / POOL_CHUNK] + number % POOL_CHUNK * p->item_bytes;
}

#endif
