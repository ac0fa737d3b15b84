/*
 * generation: makes the random number that tells a ledger from its restored copy (port/ledger.h),
 * and the first sequence number that a restored one gives out.
 */
#ifndef ADMITONE_LEDGER_GENERATION_H
#define ADMITONE_LEDGER_GENERATION_H

#include "port/ledger.h"

/* Other than `before`, and not 0. */
uint32_t generation_random(uint32_t before);

/* Higher than any number that a queue can have given out by now, whatever ledger it worked on: the
 * time in milliseconds, times 32. A queue would have to give out as many numbers in each
 * millisecond of a generation to get there. Below 2^48 for more than two centuries. */
uint64_t generation_first_seq(int64_t now_ms);

/* Whether the table can have these values: 0 where it has none yet. */
bool generation_makes_sense(int64_t number, int64_t first_seq);

/* The warning of a ledger that begins a new generation. `reason`: how the restore was recognised.
 */
void generation_warn(const char *ledger, const char *reason);

#endif
