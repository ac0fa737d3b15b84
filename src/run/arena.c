/* The blocks of a request arena. */
#include "run/arena.h"

#include <assert.h>
#include <stdalign.h>

#include "base/mem.h"

struct arena_chunk {
    struct arena_chunk *older;
    size_t used;
    size_t size;
    alignas(max_align_t) char bytes[];
};

void *arena_new(struct arena *a, size_t size) {
    size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    struct arena_chunk *chunk = a->newest;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = size > ARENA_CHUNK_BYTES ? size : ARENA_CHUNK_BYTES;
        chunk = mem_grow(NULL, sizeof *chunk + room);
        chunk->used = 0;
        chunk->size = room;
        chunk->older = a->newest;
        a->newest = chunk;
    }
    void *p = chunk->bytes + chunk->used;
    chunk->used += size;
    assert(chunk->used <= chunk->size);
    memset(p, 0, size);
    return p;
}

str arena_copy(struct arena *a, str s) {
    char *copy = arena_new(a, s.len + 1);
    if (s.len > 0) memcpy(copy, s.at, s.len);
    return (str){copy, s.len};
}

static void free_newest(struct arena *a) {
    struct arena_chunk *older = a->newest->older;
    mem_free(a->newest);
    a->newest = older;
}

void arena_reset(struct arena *a) {
    while (a->newest != NULL) free_newest(a);
}

void arena_rewind(struct arena *a) {
    while (a->newest != NULL && (a->newest->older != NULL || a->newest->size > ARENA_CHUNK_BYTES))
        free_newest(a);
    if (a->newest != NULL) a->newest->used = 0;
}
