#include "history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "splitmix.h"

static const struct history *history;
static uint64_t seed;
static int step;
static uint64_t random_state;

int history_step(void) {
    return step;
}

uint64_t history_random(void) {
    return next_random(&random_state);
}

int64_t between(int64_t low, int64_t high) {
    return low + (int64_t)(history_random() % (uint64_t)(high - low + 1));
}

bool one_in(int64_t n) {
    return between(1, n) == 1;
}

void history_fail(const char *condition, const char *file, int line) {
    const char *name = history == NULL || history->name == NULL ? "history" : history->name;
    print_error("%s:%d: %s, step %d: %s (replay with TEST_SEED=%llu)\n", file, line, name, step,
                condition, (unsigned long long)seed);
    _fail(file, line);
    abort();
}

static void act(const struct history_act *acts) {
    int sum = 0;
    for (const struct history_act *a = acts; a->weight > 0; a++) sum += a->weight;
    int64_t dice = between(0, sum - 1);
    while (dice >= acts->weight) {
        dice -= acts->weight;
        acts++;
    }
    acts->run();
}

static void run_seed(const struct history *h, uint64_t the_seed) {
    history = h;
    seed = the_seed;
    random_state = the_seed;
    step = 0;
    h->begin();
    for (step = 0; step < h->steps; step++) {
        act(h->acts);
        if (h->check != NULL && step % h->check_every == h->check_every - 1) h->check();
    }
    h->end();
    history = NULL;
}

void history_run(const struct history *h) {
    const char *wanted = getenv("TEST_SEED");
    if (wanted != NULL) {
        run_seed(h, strtoull(wanted, NULL, 10));
        return;
    }
    uint64_t new_seed = (uint64_t)clock_wall_ms();
#ifndef __SANITIZE_THREAD__
    uint64_t seeds = getenv("TEST_FULL") == NULL ? 1 : 4 * h->seeds;
    for (uint64_t s = 1; s <= seeds; s++) run_seed(h, s);
    run_seed(h, new_seed++);
    for (int more = 20; h->is_covered != NULL && !h->is_covered(); more--) {
        assert_true(more > 0);
        run_seed(h, new_seed++);
    }
#else
    run_seed(h, new_seed);
#endif
}
