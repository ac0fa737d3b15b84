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
/* A zero-terminated copy. */
char *mem_copy_str(str s);
void mem_free(void *p);

#endif
