/*
 * memory_locks: port/locks.h in this process. Names are spread over tables, each with a mutex that
 * is held briefly; a name takes memory only while it is held or waited for. A request that waited
 * is notified by a task in the mailbox of its worker. It has no thread. Safe from any thread.
 */
#ifndef ADMITONE_HOT_MEMORY_LOCKS_H
#define ADMITONE_HOT_MEMORY_LOCKS_H

#include "port/locks.h"

struct memory_locks;

/* `epoch` is higher than at every start before, and at most EPOCH_MAX. */
struct memory_locks *memory_locks_new(uint32_t epoch);
/* No request may be waiting. */
void memory_locks_free(struct memory_locks *m);

struct locks *memory_locks_port(struct memory_locks *m);

#endif
