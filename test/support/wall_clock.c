#include "wall_clock.h"

#include <assert.h>
#include <stdatomic.h>

#define RUNS 0

static _Atomic int64_t stands_at_ms = RUNS;

/* With --wrap the linker calls the first of these for clock_wall_ms; the second is the original. */
int64_t __real_clock_wall_ms(void);
int64_t __wrap_clock_wall_ms(void);

int64_t __wrap_clock_wall_ms(void) {
    int64_t ms = atomic_load(&stands_at_ms);
    return ms == RUNS ? __real_clock_wall_ms() : ms;
}

void wall_clock_set(int64_t ms) {
    assert(ms != RUNS);
    atomic_store(&stands_at_ms, ms);
}

void wall_clock_advance(int64_t ms) {
    assert(atomic_load(&stands_at_ms) != RUNS);
    atomic_fetch_add(&stands_at_ms, ms);
}

void wall_clock_release(void) {
    atomic_store(&stands_at_ms, RUNS);
}
