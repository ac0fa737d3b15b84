/*
 * arena: memory that dies together, usually with a request. Allocation moves a pointer; nothing
 * is freed singly. An unused arena costs its struct. One thread at a time.
 */
#ifndef ADMITONE_RUN_ARENA_H
#define ADMITONE_RUN_ARENA_H

#include "base/str.h"

/* What fits is had without asking the system, once an arena is in use. */
#define ARENA_CHUNK_BYTES 4000

struct arena_chunk;

struct arena {
    struct arena_chunk *newest;
};

/* Zeroed, aligned for anything. */
void *arena_new(struct arena *a, size_t size);
str arena_copy(struct arena *a, str s);
/* Frees everything; the arena can be used again. */
void arena_reset(struct arena *a);
/* The same, but keeps a chunk of the usual size for what comes next. */
void arena_rewind(struct arena *a);

#endif
