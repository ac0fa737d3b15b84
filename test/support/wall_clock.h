/*
 * wall_clock: the wall clock of test programs, which replaces clock_wall_ms when they are linked:
 * the machine's clock until a test sets it; from then on it changes only when the test changes it.
 * The steady clock is not affected. Safe from any thread.
 */
#ifndef ADMITONE_TEST_WALL_CLOCK_H
#define ADMITONE_TEST_WALL_CLOCK_H

#include <stdint.h>

/* From now on the clock stands still at that time. */
void wall_clock_set(int64_t ms);
/* Ahead from where it stands. */
void wall_clock_advance(int64_t ms);
/* The machine's own again. */
void wall_clock_release(void);

#endif
