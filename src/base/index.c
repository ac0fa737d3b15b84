/* The open-addressing table of base/index.h. */
#include "base/index.h"

#include <assert.h>

#include "base/mem.h"

void index_deinit(struct index *i) {
    mem_free(i->slots);
    *i = (struct index){0};
}

static void index_put(struct index *i, struct index_slot slot) {
    uint32_t at = slot.hash & (i->cap - 1);
    while (i->slots[at].number != INDEX_NONE) at = (at + 1) & (i->cap - 1);
    i->slots[at] = slot;
}

static void index_grow(struct index *i) {
    struct index old = *i;
    i->cap = old.cap == 0 ? 8 : old.cap * 2;
    i->slots = mem_new(i->cap * sizeof *i->slots);
    for (uint32_t at = 0; at < old.cap; at++)
        if (old.slots[at].number != INDEX_NONE) index_put(i, old.slots[at]);
    mem_free(old.slots);
}

void index_add(struct index *i, uint32_t hash, uint32_t number) {
    assert(number != INDEX_NONE);
    if (i->count >= i->cap / 4 * 3) index_grow(i);
    index_put(i, (struct index_slot){hash, number});
    i->count++;
}

void index_remove(struct index *i, uint32_t hash, uint32_t number) {
    assert(i->count > 0);
    uint32_t mask = i->cap - 1;
    uint32_t hole = hash & mask;
    for (; i->slots[hole].number != number || i->slots[hole].hash != hash; hole = (hole + 1) & mask)
        assert(i->slots[hole].number != INDEX_NONE);
    i->slots[hole] = (struct index_slot){0};
    i->count--;
    /* A later slot whose probing passed the hole moves into it. */
    for (uint32_t at = (hole + 1) & mask; i->slots[at].number != INDEX_NONE; at = (at + 1) & mask) {
        if (((at - i->slots[at].hash) & mask) < ((at - hole) & mask)) continue;
        i->slots[hole] = i->slots[at];
        i->slots[at] = (struct index_slot){0};
        hole = at;
    }
}

uint32_t index_next(const struct index *i, uint32_t hash, size_t *at) {
    for (; *at < i->cap; (*at)++) {
        const struct index_slot *slot = &i->slots[(hash + *at) & (i->cap - 1)];
        if (slot->number == INDEX_NONE) return INDEX_NONE;
        if (slot->hash != hash) continue;
        (*at)++;
        return slot->number;
    }
    return INDEX_NONE;
}
