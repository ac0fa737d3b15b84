/* The binary heap of base/heap.h. */
#include "base/heap.h"

#include <assert.h>

#include "base/mem.h"

void heap_deinit(struct heap *h) {
    mem_free(h->items);
    *h = (struct heap){0};
}

static bool is_before(const struct heap_item *a, const struct heap_item *b) {
    return a->key != b->key ? a->key < b->key : a->value < b->value;
}

void heap_push(struct heap *h, int64_t key, uint64_t value) {
    h->items = mem_make_room(h->items, h->count, &h->cap, sizeof *h->items);
    struct heap_item item = {key, value};
    size_t at = h->count++;
    while (at > 0 && is_before(&item, &h->items[(at - 1) / 2])) {
        h->items[at] = h->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->items[at] = item;
}

const struct heap_item *heap_first(const struct heap *h) {
    return h->count == 0 ? NULL : &h->items[0];
}

void heap_pop(struct heap *h) {
    assert(h->count > 0);
    struct heap_item last = h->items[--h->count];
    size_t at = 0;
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && is_before(&h->items[child + 1], &h->items[child])) child++;
        if (!is_before(&h->items[child], &last)) break;
        h->items[at] = h->items[child];
        at = child;
    }
    if (h->count > 0) h->items[at] = last;
}
