/*
 * map: from byte strings to pointers. Open addressing with linear probing; removal shifts back,
 * so there are no tombstones. Keys are copied and owned by the map, values are the caller's.
 * Not shared between threads.
 */
#ifndef ADMITONE_BASE_MAP_H
#define ADMITONE_BASE_MAP_H

#include "base/str.h"

struct map_slot;

struct map {
    struct map_slot *slots;
    size_t cap; /* a power of two, or 0 */
    size_t count;
    uint64_t seed; /* random, so that nobody can choose keys that collide */
};

/* A number as a key: its bytes. */
static inline str map_key(const int64_t *number) {
    return (str){(const char *)number, sizeof *number};
}

void map_init(struct map *m);
void map_deinit(struct map *m);
void *map_get(const struct map *m, str key);
/* Returns what was there before, or NULL; `value` is not NULL. */
void *map_put(struct map *m, str key, void *value);
/* Returns what was there, or NULL. */
void *map_remove(struct map *m, str key);
/* Steps through all values in no order: *at starts at 0; NULL at the end. No changes meanwhile. */
void *map_next(const struct map *m, size_t *at);

#endif
