/* The chunks of items and the list of free ones. */
#include "base/pool.h"

#include <assert.h>

#include "base/mem.h"

void pool_init(struct pool *p, size_t item_bytes) {
    assert(item_bytes >= sizeof(uint32_t));
    *p = (struct pool){.item_bytes = item_bytes, .end = 1};
}

void pool_deinit(struct pool *p) {
    for (size_t i = 0; i < p->chunk_count; i++) mem_free(p->chunks[i]);
    mem_free(p->chunks);
    *p = (struct pool){0};
}

static void add_chunk(struct pool *p) {
    p->chunks = mem_grow(p->chunks, (p->chunk_count + 1) * sizeof *p->chunks);
    p->chunks[p->chunk_count++] = mem_new(POOL_CHUNK * p->item_bytes);
}

uint32_t pool_take(struct pool *p) {
    uint32_t number = p->free;
    if (number != 0) {
        memcpy(&p->free, pool_at(p, number), sizeof p->free);
        return number;
    }
    assert(p->end < UINT32_MAX);
    if (p->end / POOL_CHUNK >= p->chunk_count) add_chunk(p);
    return p->end++;
}

void pool_give(struct pool *p, uint32_t number) {
    assert(number > 0 && number < p->end);
    memcpy(pool_at(p, number), &p->free, sizeof p->free);
    p->free = number;
}
