#include "base/index.h"

#include <assert.h>

#include "base/mem.h"

/* The upper bits choose the table, the lower ones the slot. */
static size_t table_of(uint32_t hash) {
    return hash >> 26;
}
static_assert(INDEX_TABLES == 64, "six bits choose a table");

void index_deinit(struct index *i) {
    for (size_t t = 0; t < INDEX_TABLES; t++) mem_free(i->tables[t].slots);
    *i = (struct index){0};
}

static void put(struct index_table *t, struct index_slot slot) {
    uint32_t at = slot.hash & (t->cap - 1);
    while (t->slots[at].number != 0) at = (at + 1) & (t->cap - 1);
    t->slots[at] = slot;
}

static void grow(struct index_table *t) {
    struct index_table old = *t;
    t->cap = old.cap == 0 ? 8 : old.cap * 2;
    t->slots = mem_new(t->cap * sizeof *t->slots);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.slots[i].number != 0) put(t, old.slots[i]);
    mem_free(old.slots);
}

void index_add(struct index *i, uint32_t hash, uint32_t number) {
    struct index_table *t = &i->tables[table_of(hash)];
    assert(number != INDEX_NONE);
    if ((t->count + 1) * 4 > t->cap * 3) grow(t);
    put(t, (struct index_slot){hash, number});
    t->count++;
}

void index_remove(struct index *i, uint32_t hash, uint32_t number) {
    struct index_table *t = &i->tables[table_of(hash)];
    assert(t->count > 0);
    uint32_t mask = t->cap - 1;
    uint32_t hole = hash & mask;
    for (; t->slots[hole].number != number; hole = (hole + 1) & mask)
        assert(t->slots[hole].number != 0);
    t->slots[hole] = (struct index_slot){0};
    t->count--;
    /* Whoever probed past the hole moves into it. */
    for (uint32_t at = (hole + 1) & mask; t->slots[at].number != 0; at = (at + 1) & mask) {
        if (((at - t->slots[at].hash) & mask) < ((at - hole) & mask)) continue;
        t->slots[hole] = t->slots[at];
        t->slots[at] = (struct index_slot){0};
        hole = at;
    }
}

uint32_t index_next(const struct index *i, uint32_t hash, size_t *at) {
    const struct index_table *t = &i->tables[table_of(hash)];
    if (t->count == 0) return INDEX_NONE;
    for (; *at < t->cap; (*at)++) {
        const struct index_slot *slot = &t->slots[(hash + *at) & (t->cap - 1)];
        if (slot->number == 0) return INDEX_NONE;
        if (slot->hash != hash) continue;
        (*at)++;
        return slot->number;
    }
    return INDEX_NONE;
}
