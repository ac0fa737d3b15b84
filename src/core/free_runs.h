/*
 * free_runs: which seats of a section are free, as runs: stretches of adjacent free seats that are
 * as long as they can be. Finds the shortest run of at least a length, and the longest of at most
 * one; of equals the one with the lowest numbers. No scan: every step looks at a few words,
 * whatever the section.
 *
 * The runs are kept as one set of numbers in order of (length, first seat). Between two runs of
 * length L is a taken seat, so their first seats are more than L apart, and first / (L + 1) is
 * different for each and grows with it: runs of length L need capacity / (L + 1) bits, and all
 * lengths together about 2.4 bytes per seat. (The lengths from 2^k to 2^(k+1) - 1, an octave, get
 * as many bits each as 2^k needs: that spares a table of a million offsets.) The first seat itself
 * is not kept: it is behind the last taken seat before the run, which a second set knows.
 *
 * Pure: no I/O, no clock; one thread at a time. Owns its memory, all of it from the start.
 */
#ifndef ADMITONE_CORE_FREE_RUNS_H
#define ADMITONE_CORE_FREE_RUNS_H

#include "base/bitset.h"

/* The lengths up to SECTION_CAPACITY_MAX are in this many octaves. */
#define RUN_OCTAVES 20

struct run {
    uint32_t first;
    uint32_t length;
};

struct free_runs {
    uint32_t capacity;
    struct bitset taken;           /* seats; 0 and capacity + 1, which are none, are always taken */
    struct bitset index;           /* the runs, by length and first seat */
    size_t octave_at[RUN_OCTAVES]; /* where the index of an octave begins */
    uint32_t length_bits[RUN_OCTAVES]; /* bits for each length of an octave */
};

/* All seats, 1 to capacity, are free. */
void free_runs_init(struct free_runs *r, uint32_t capacity);
void free_runs_deinit(struct free_runs *r);

/* Takes free seats, gives taken ones back: `count` adjacent ones from `first` on. */
void free_runs_take(struct free_runs *r, uint32_t first, uint32_t count);
void free_runs_give(struct free_runs *r, uint32_t first, uint32_t count);

/* False: no run is as long. */
bool free_runs_shortest(const struct free_runs *r, uint32_t length_min, struct run *out);
/* Of those that are not longer than length_max. False: there is none. */
bool free_runs_longest(const struct free_runs *r, uint32_t length_max, struct run *out);
/* The one of the same length with the next higher numbers. False: there is none. */
bool free_runs_next(const struct free_runs *r, struct run run, struct run *out);
/* As shortest, but of equals the first that begins at the seat or behind it; else the first of all.
 */
bool free_runs_from(const struct free_runs *r, uint32_t length_min, uint32_t seat, struct run *out);
/* How many seats are free from this one on, up to the next that is taken. */
uint32_t free_runs_ahead(const struct free_runs *r, uint32_t seat);
/* The taken seat with the highest number; 0: none is taken. */
uint32_t free_runs_last_taken(const struct free_runs *r);

#endif
