/*
 * arena: memory that is freed all at once, usually at the end of a request. Allocation moves a
 * pointer. An arena that is not used takes only the memory of its struct. One thread at a time.
 */
#ifndef ADMITONE_RUN_ARENA_H
#define ADMITONE_RUN_ARENA_H

#include "base/str.h"

/* The usual size of a chunk. An allocation that fits into the newest chunk needs no malloc. */
#define ARENA_CHUNK_BYTES 4400

struct arena_chunk;

struct arena {
    struct arena_chunk *newest;
};

/* Zeroed, aligned for anything. */
void *arena_new(struct arena *a, size_t size);
str arena_copy(struct arena *a, str s);
/* Frees everything; the arena can be used again. */
void arena_reset(struct arena *a);
/* The same, but keeps a chunk of the usual size for the next allocations. */
void arena_rewind(struct arena *a);

#endif
