/* The index of runs of free seats, by length and place. */
#include "core/free_runs.h"

#include <assert.h>

#include "core/limits.h"

static_assert(SECTION_CAPACITY_MAX < 1 << RUN_OCTAVES, "every length is of an octave");

static unsigned octave_of(uint32_t length) {
    return 31 - (unsigned)__builtin_clz(length);
}

/* Where the index of the runs of this length begins. */
static size_t length_at(const struct free_runs *r, uint32_t length) {
    assert(length >= 1 && length <= r->capacity);
    unsigned k = octave_of(length);
    return r->octave_at[k] + (size_t)(length - (UINT32_C(1) << k)) * r->length_bits[k];
}

static size_t index_of(const struct free_runs *r, struct run run) {
    return length_at(r, run.length) + run.first / (run.length + 1);
}

/* The run that is at this place of the index. */
static struct run run_at(const struct free_runs *r, size_t at) {
    unsigned k = 0;
    while (k < octave_of(r->capacity) && r->octave_at[k + 1] <= at) k++;
    size_t rest = at - r->octave_at[k];
    uint32_t length = (UINT32_C(1) << k) + (uint32_t)(rest / r->length_bits[k]);
    /* The first seat is the quotient times length + 1, or up to `length` behind that. So this seat
     * is in the run, or else it is the taken one before it. */
    size_t near = rest % r->length_bits[k] * (length + 1) + length - 1;
    uint32_t first = (uint32_t)bitset_previous(&r->taken, near) + 1;
    assert(bitset_next(&r->taken, first) == (size_t)first + length);
    return (struct run){first, length};
}

/* The free seats between two taken ones, of which there may be none, as a run. */
static void run_add(struct free_runs *r, uint32_t before, uint32_t after) {
    struct run run = {before + 1, after - before - 1};
    if (run.length > 0) bitset_add(&r->index, index_of(r, run));
}

static void run_remove(struct free_runs *r, uint32_t before, uint32_t after) {
    struct run run = {before + 1, after - before - 1};
    if (run.length > 0) bitset_remove(&r->index, index_of(r, run));
}

void free_runs_init(struct free_runs *r, uint32_t capacity) {
    assert(capacity >= 1 && capacity <= SECTION_CAPACITY_MAX);
    *r = (struct free_runs){.capacity = capacity};
    size_t bits = 0;
    for (unsigned k = 0; k <= octave_of(capacity); k++) {
        uint32_t shortest = UINT32_C(1) << k;
        uint32_t longest = 2 * shortest - 1 < capacity ? 2 * shortest - 1 : capacity;
        r->octave_at[k] = bits;
        r->length_bits[k] = capacity / (shortest + 1) + 1;
        bits += (size_t)(longest - shortest + 1) * r->length_bits[k];
    }
    bitset_init(&r->index, bits);
    bitset_init(&r->taken, (size_t)capacity + 2);
    bitset_add(&r->taken, 0);
    bitset_add(&r->taken, (size_t)capacity + 1);
    run_add(r, 0, capacity + 1);
}

void free_runs_deinit(struct free_runs *r) {
    bitset_deinit(&r->taken);
    bitset_deinit(&r->index);
    *r = (struct free_runs){0};
}

void free_runs_take(struct free_runs *r, uint32_t first, uint32_t count) {
    assert(count >= 1 && first >= 1 && count <= r->capacity && first <= r->capacity + 1 - count);
    uint32_t before = (uint32_t)bitset_previous(&r->taken, first);
    uint32_t after = (uint32_t)bitset_next(&r->taken, first);
    assert(before < first && first + count <= after);
    run_remove(r, before, after);
    run_add(r, before, first);
    run_add(r, first + count - 1, after);
    for (uint32_t i = 0; i < count; i++) bitset_add(&r->taken, first + i);
}

void free_runs_give(struct free_runs *r, uint32_t first, uint32_t count) {
    assert(count >= 1 && first >= 1 && count <= r->capacity && first <= r->capacity + 1 - count);
    uint32_t before = (uint32_t)bitset_previous(&r->taken, first - 1);
    uint32_t after = (uint32_t)bitset_next(&r->taken, first + count);
    run_remove(r, before, first);
    run_remove(r, first + count - 1, after);
    run_add(r, before, after);
    for (uint32_t i = 0; i < count; i++) bitset_remove(&r->taken, first + i);
}

bool free_runs_shortest(const struct free_runs *r, uint32_t length_min, struct run *out) {
    assert(length_min >= 1);
    if (length_min > r->capacity) return false;
    size_t at = bitset_next(&r->index, length_at(r, length_min));
    if (at == BITSET_NONE) return false;
    *out = run_at(r, at);
    return true;
}

bool free_runs_longest(const struct free_runs *r, uint32_t length_max, struct run *out) {
    if (length_max == 0) return false;
    size_t end = length_max < r->capacity ? length_at(r, length_max + 1) : r->index.size;
    size_t last = bitset_previous(&r->index, end - 1);
    if (last == BITSET_NONE) return false;
    return free_runs_shortest(r, run_at(r, last).length, out);
}

/* The first one of that length from a place of the index on. */
static bool equal_from(const struct free_runs *r, size_t at, uint32_t length, struct run *out) {
    at = bitset_next(&r->index, at);
    if (at == BITSET_NONE) return false;
    struct run run = run_at(r, at);
    if (run.length != length) return false;
    *out = run;
    return true;
}

bool free_runs_next(const struct free_runs *r, struct run run, struct run *out) {
    size_t at = index_of(r, run) + 1;
    return at < r->index.size && equal_from(r, at, run.length, out);
}

bool free_runs_from(const struct free_runs *r, uint32_t length_min, uint32_t seat,
                    struct run *out) {
    assert(seat >= 1 && seat <= r->capacity);
    if (!free_runs_shortest(r, length_min, out)) return false;
    /* At the seat's place of the index may be one that begins before it. */
    size_t at = index_of(r, (struct run){seat, out->length});
    struct run run;
    bool found = equal_from(r, at, out->length, &run);
    if (found && run.first < seat) found = free_runs_next(r, run, &run);
    if (found) *out = run;
    return true;
}

uint32_t free_runs_ahead(const struct free_runs *r, uint32_t seat) {
    assert(seat >= 1 && seat <= r->capacity);
    return (uint32_t)bitset_next(&r->taken, seat) - seat;
}

uint32_t free_runs_last_taken(const struct free_runs *r) {
    return (uint32_t)bitset_previous(&r->taken, r->capacity);
}
