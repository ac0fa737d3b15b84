/*
 * mem: allocation that never fails. When the system is out of memory, the process writes a message
 * and ends. The ledger has everything that was acknowledged, so this is no worse than a crash, and
 * no caller needs an error path that could not be tested (docs/decisions/0002).
 */
#ifndef ADMITONE_BASE_MEM_H
#define ADMITONE_BASE_MEM_H

#include <stddef.h>

#include "base/str.h"

/* Zeroed. */
void *mem_new(size_t size);
void *mem_grow(void *old, size_t size);
/* For an array to which items are added one by one: makes room for the next one. `room` is the
 * number of items that fit; 0 and NULL: it is empty. */
void *mem_make_room(void *array, size_t count, size_t *room, size_t item_size);
/* A zero-terminated copy. */
char *mem_copy_str(str s);
void mem_free(void *p);

#endif
