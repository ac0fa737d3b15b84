/* The entries of base/map.h: how keys are kept and compared. The hash table itself is base/index.
 */
#include "base/map.h"

#include <assert.h>
#include <sys/random.h>

#include "base/mem.h"

/* Keys of up to this many bytes are stored in the entry itself, as numbers and most names are. */
#define KEY_SHORT 16

struct map_entry {
    void *value;
    uint32_t hash;
    uint32_t key_len;
    union {
        char key_short[KEY_SHORT];
        char *key_long;
    };
};

void map_init(struct map *m) {
    *m = (struct map){0};
    ssize_t got = getrandom(&m->seed, sizeof m->seed, 0);
    assert(got == sizeof m->seed);
}

static void map_key_free(struct map_entry *e) {
    if (e->key_len > KEY_SHORT) mem_free(e->key_long);
}

void map_deinit(struct map *m) {
    for (uint32_t i = 0; i < m->count; i++) map_key_free(&m->entries[i]);
    mem_free(m->entries);
    index_deinit(&m->index);
    *m = (struct map){0};
}

static uint32_t map_hash(const struct map *m, str key) {
    return (uint32_t)str_hash(key, m->seed);
}

/* NULL: the key is not there. */
static struct map_entry *map_find(const struct map *m, str key, uint32_t hash) {
    size_t at = 0;
    uint32_t number;
    while ((number = index_next(&m->index, hash, &at)) != INDEX_NONE) {
        struct map_entry *e = &m->entries[number - 1];
        const char *bytes = e->key_len <= KEY_SHORT ? e->key_short : e->key_long;
        if (str_eq((str){bytes, e->key_len}, key)) return e;
    }
    return NULL;
}

void *map_get(const struct map *m, str key) {
    const struct map_entry *e = map_find(m, key, map_hash(m, key));
    return e == NULL ? NULL : e->value;
}

static void map_add(struct map *m, str key, uint32_t hash, void *value) {
    assert(key.len <= UINT32_MAX && m->count < UINT32_MAX);
    if (m->count == m->cap) {
        m->cap = m->cap == 0 ? 4 : m->cap * 2;
        m->entries = mem_grow(m->entries, m->cap * sizeof *m->entries);
    }
    struct map_entry *e = &m->entries[m->count++];
    *e = (struct map_entry){.value = value, .hash = hash, .key_len = (uint32_t)key.len};
    if (key.len > KEY_SHORT)
        e->key_long = mem_copy_str(key);
    else if (key.len > 0)
        memcpy(e->key_short, key.at, key.len);
    index_add(&m->index, hash, m->count);
}

void *map_put(struct map *m, str key, void *value) {
    assert(value != NULL);
    uint32_t hash = map_hash(m, key);
    struct map_entry *e = map_find(m, key, hash);
    if (e == NULL) {
        map_add(m, key, hash, value);
        return NULL;
    }
    void *before = e->value;
    e->value = value;
    return before;
}

void *map_remove(struct map *m, str key) {
    struct map_entry *e = map_find(m, key, map_hash(m, key));
    if (e == NULL) return NULL;
    void *before = e->value;
    uint32_t number = (uint32_t)(e - m->entries) + 1;
    index_remove(&m->index, e->hash, number);
    map_key_free(e);
    const struct map_entry *last = &m->entries[m->count - 1];
    if (e != last) {
        /* The last entry takes the place that is free now. */
        index_remove(&m->index, last->hash, m->count);
        index_add(&m->index, last->hash, number);
        *e = *last;
    }
    m->count--;
    return before;
}

void *map_next(const struct map *m, size_t *at) {
    return *at < m->count ? m->entries[(*at)++].value : NULL;
}
