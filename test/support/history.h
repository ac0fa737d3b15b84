/*
 * history: seeded random histories against a model. A history begins, executes `steps` random
 * operations, each of which compares its answer with the model, and ends; CHECK prints the seed and
 * the step that failed. TEST_SEED=N in the environment runs only the history of that seed:
 *
 *   TEST_SEED=3 build/asan/test/contract_queue_memory
 *
 * One history at a time, on one thread.
 */
#ifndef ADMITONE_TEST_HISTORY_H
#define ADMITONE_TEST_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct history_act {
    int weight; /* how often, in relation to the sum of all weights */
    void (*run)(void);
};

struct history {
    const char *name; /* where there are several in a program; or NULL */
    /* Seed 1 is run, or with TEST_FULL=1 all up to 4 × `seeds`; and one that is new each time.
     * Under TSan only the new one: one thread does the steps, so there are few races to find. */
    uint64_t seeds;
    int steps;
    const struct history_act *acts; /* the last one has the weight 0 */
    void (*begin)(void);
    void (*check)(void); /* every `check_every` steps; or NULL */
    int check_every;
    void (*end)(void);
    /* Whether the histories so far have shown all that they must; or NULL. While they have not,
     * more new seeds are run, up to 20. Not asked under TSan or with TEST_SEED. */
    bool (*is_covered)(void);
};

/* Runs the histories of all seeds, or of TEST_SEED. */
void history_run(const struct history *h);

/* The step that is being done, from 0 on. */
int history_step(void);

/* The next random number of this history. */
uint64_t history_random(void);

/* From `low` to `high`, both included. */
int64_t between(int64_t low, int64_t high);

bool one_in(int64_t n);

/* Fails the test with the seed, the step and this condition. */
_Noreturn void history_fail(const char *condition, const char *file, int line);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) history_fail(#condition, __FILE__, __LINE__);                            \
    } while (0)

#endif
