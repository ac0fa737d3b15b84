/*
 * heap: numbers in order of their keys, the lowest key first, and of equal keys the lowest number;
 * for items that end at a time. Owns its memory; zeroed is empty. Nothing is removed from the
 * middle: the caller checks each item that it takes, and skips it when it no longer applies.
 */
#ifndef ADMITONE_BASE_HEAP_H
#define ADMITONE_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_item {
    int64_t key;
    uint64_t value;
};

struct heap {
    struct heap_item *items;
    size_t count;
    size_t cap;
};

void heap_deinit(struct heap *h);
void heap_push(struct heap *h, int64_t key, uint64_t value);
/* The item with the lowest key, which stays; NULL when there is none. */
const struct heap_item *heap_first(const struct heap *h);
/* Removes the item with the lowest key. The heap must not be empty. */
void heap_pop(struct heap *h);

#endif
