/*
 * memory_locks: port/locks.h in this process. Names are spread over tables with a short mutex each;
 * a name takes memory while somebody holds it or waits for it. Who waited hears of it as a task in
 * the mailbox of its worker. No thread of its own. Safe from any thread.
 */
#ifndef ADMITONE_HOT_MEMORY_LOCKS_H
#define ADMITONE_HOT_MEMORY_LOCKS_H

#include "port/locks.h"

struct memory_locks;

/* `epoch` is higher than at every start before, and at most EPOCH_MAX. */
struct memory_locks *memory_locks_new(uint32_t epoch);
/* Nobody waits any more. */
void memory_locks_free(struct memory_locks *m);

struct locks *memory_locks_port(struct memory_locks *m);

#endif
