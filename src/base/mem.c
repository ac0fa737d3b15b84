/* Allocation that ends the process when there is no memory. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static _Noreturn void out_of_memory(size_t size) {
    fprintf(stderr, "level=error msg=\"out of memory\" wanted_bytes=%zu\n", size);
    abort();
}

void *mem_new(size_t size) {
    void *p = calloc(1, size > 0 ? size : 1);
    if (p == NULL) out_of_memory(size);
    return p;
}

void *mem_grow(void *old, size_t size) {
    void *p = realloc(old, size > 0 ? size : 1);
    if (p == NULL) out_of_memory(size);
    return p;
}

void *mem_make_room(void *array, size_t count, size_t *room, size_t item_size) {
    if (count < *room) return array;
    *room = *room == 0 ? 4 : *room * 2;
    return mem_grow(array, *room * item_size);
}

char *mem_copy_str(str s) {
    char *copy = mem_new(s.len + 1);
    if (s.len > 0) memcpy(copy, s.at, s.len);
    return copy;
}

void mem_free(void *p) {
    free(p);
}
