#include "base/map.h"

#include <assert.h>
#include <sys/random.h>

#include "base/mem.h"

struct map_slot {
    char *key; /* NULL: free */
    size_t key_len;
    uint64_t hash;
    void *value;
};

void map_init(struct map *m) {
    *m = (struct map){0};
    ssize_t got = getrandom(&m->seed, sizeof m->seed, 0);
    assert(got == sizeof m->seed);
}

void map_deinit(struct map *m) {
    for (size_t i = 0; i < m->cap; i++) mem_free(m->slots[i].key);
    mem_free(m->slots);
    *m = (struct map){0};
}

/* The slot that holds the key, or the free one where it would go. */
static size_t find(const struct map *m, str key, uint64_t hash) {
    assert(m->cap > m->count);
    size_t i = hash & (m->cap - 1);
    while (m->slots[i].key != NULL &&
           (m->slots[i].hash != hash || !str_eq((str){m->slots[i].key, m->slots[i].key_len}, key)))
        i = (i + 1) & (m->cap - 1);
    return i;
}

static void grow(struct map *m) {
    struct map_slot *old = m->slots;
    size_t old_cap = m->cap;
    m->cap = old_cap == 0 ? 16 : old_cap * 2;
    m->slots = mem_new(m->cap * sizeof *m->slots);
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i].key == NULL) continue;
        m->slots[find(m, (str){old[i].key, old[i].key_len}, old[i].hash)] = old[i];
    }
    mem_free(old);
}

void *map_get(const struct map *m, str key) {
    if (m->count == 0) return NULL;
    return m->slots[find(m, key, str_hash(key, m->seed))].value;
}

void *map_put(struct map *m, str key, void *value) {
    assert(value != NULL);
    if ((m->count + 1) * 4 > m->cap * 3) grow(m);
    uint64_t hash = str_hash(key, m->seed);
    struct map_slot *slot = &m->slots[find(m, key, hash)];
    void *before = slot->value;
    if (slot->key == NULL) {
        *slot = (struct map_slot){.key = mem_copy_str(key), .key_len = key.len, .hash = hash};
        m->count++;
    }
    slot->value = value;
    return before;
}

void *map_remove(struct map *m, str key) {
    if (m->count == 0) return NULL;
    size_t mask = m->cap - 1;
    size_t hole = find(m, key, str_hash(key, m->seed));
    if (m->slots[hole].key == NULL) return NULL;
    void *before = m->slots[hole].value;
    mem_free(m->slots[hole].key);
    m->slots[hole] = (struct map_slot){0};
    m->count--;
    /* Whoever probed past the hole moves into it. */
    for (size_t i = (hole + 1) & mask; m->slots[i].key != NULL; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        m->slots[hole] = m->slots[i];
        m->slots[i] = (struct map_slot){0};
        hole = i;
    }
    return before;
}

void *map_next(const struct map *m, size_t *at) {
    while (*at < m->cap) {
        struct map_slot *slot = &m->slots[(*at)++];
        if (slot->key != NULL) return slot->value;
    }
    return NULL;
}
