/*
 * wall_clock: the wall clock of test programs, which link clock_wall_ms to this one: the machine's
 * own until a test sets it, and then it stands still but for what the test says. The steady clock
 * is left alone. Safe from any thread.
 */
#ifndef ADMITONE_TEST_WALL_CLOCK_H
#define ADMITONE_TEST_WALL_CLOCK_H

#include <stdint.h>

/* It stands still at that time from now on. */
void wall_clock_set(int64_t ms);
/* Ahead from where it stands. */
void wall_clock_advance(int64_t ms);
/* The machine's own again. */
void wall_clock_release(void);

#endif
