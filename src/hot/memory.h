/*
 * memory: the hot state in this process: the rules of core/ under one mutex per event. Rebuilt from
 * the ledger at every start. Safe from any thread.
 */
#ifndef ADMITONE_HOT_MEMORY_H
#define ADMITONE_HOT_MEMORY_H

#include "port/queue.h"
#include "port/seats.h"

struct memory;

struct memory *memory_new(void);
void memory_free(struct memory *m);

struct queues *memory_queues(struct memory *m);
struct seats *memory_seats(struct memory *m);

#endif
