/*
 * map: from byte strings to pointers, on base/index. The entries are in an array, so that iterating
 * over them is fast. Keys are copied and owned by the map, values belong to the caller. One thread
 * at a time. Zeroed is an empty map too, for keys that no client chooses.
 */
#ifndef ADMITONE_BASE_MAP_H
#define ADMITONE_BASE_MAP_H

#include "base/index.h"
#include "base/str.h"

struct map_entry;

struct map {
    struct map_entry *entries;
    uint32_t count;
    uint32_t cap;
    struct index index; /* the number of an entry is its place in the array, plus 1 */
    uint64_t seed;      /* random, so that no client can choose keys that collide */
};

/* A number as a key: its bytes. */
static inline str map_key(const int64_t *number) {
    return (str){(const char *)number, sizeof *number};
}

void map_init(struct map *m);
void map_deinit(struct map *m);
void *map_get(const struct map *m, str key);
/* Returns the value that it replaces, or NULL; `value` is not NULL. */
void *map_put(struct map *m, str key, void *value);
/* Returns the value that was there, or NULL. */
void *map_remove(struct map *m, str key);
/* Steps through all values in no order: *at starts at 0; NULL at the end. The map must not change
 * between the steps. */
void *map_next(const struct map *m, size_t *at);

#endif
