/* Which seats a claim gets, and the changes of their states. */
#include "core/seat_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/free_runs.h"

/* Set in a state only while a list of seats is being checked. */
#define NAMED 0x80
/* Expected of a seat that may be in any state. */
#define ANY_STATE ((enum seat_state)0)
/* A suggestion looks at runs of this many lengths. */
#define SUGGEST_LENGTHS_MAX 64

struct seat_map {
    uint32_t capacity;
    struct seat_counts counts;
    uint8_t *states;   /* enum seat_state, by seat; [0] is none */
    uint64_t *holders; /* 0 while AVAILABLE */
    struct free_runs runs;
};

struct seat_map *seat_map_new(uint32_t capacity) {
    assert(capacity >= 1 && capacity <= SECTION_CAPACITY_MAX);
    struct seat_map *m = mem_new(sizeof *m);
    m->capacity = capacity;
    m->counts.available = capacity;
    m->states = mem_new((size_t)capacity + 1);
    memset(m->states + 1, SEAT_AVAILABLE, capacity);
    m->holders = mem_new(((size_t)capacity + 1) * sizeof *m->holders);
    free_runs_init(&m->runs, capacity);
    return m;
}

void seat_map_free(struct seat_map *m) {
    if (m == NULL) return;
    free_runs_deinit(&m->runs);
    mem_free(m->states);
    mem_free(m->holders);
    mem_free(m);
}

static bool exists(const struct seat_map *m, uint32_t seat) {
    return seat >= 1 && seat <= m->capacity;
}

static uint32_t *seat_map_count_of(struct seat_map *m, enum seat_state state) {
    switch (state) {
    case SEAT_AVAILABLE:
        return &m->counts.available;
    case SEAT_HELD:
        return &m->counts.held;
    case SEAT_CONFIRMED:
        return &m->counts.confirmed;
    }
    abort();
}

/* The one place where seats change. Adjacent ones, all of them in the same state. */
static void seat_map_put(struct seat_map *m, struct run run, enum seat_state state,
                         uint64_t holder) {
    enum seat_state old = m->states[run.first];
    assert((state == SEAT_AVAILABLE) == (holder == 0));
    if (old == SEAT_AVAILABLE && state != SEAT_AVAILABLE)
        free_runs_take(&m->runs, run.first, run.length);
    if (old != SEAT_AVAILABLE && state == SEAT_AVAILABLE)
        free_runs_give(&m->runs, run.first, run.length);
    assert(*seat_map_count_of(m, old) >= run.length);
    *seat_map_count_of(m, old) -= run.length;
    *seat_map_count_of(m, state) += run.length;
    for (uint32_t i = 0; i < run.length; i++) {
        assert(m->states[run.first + i] == old);
        m->states[run.first + i] = (uint8_t)state;
        m->holders[run.first + i] = holder;
    }
}

/* Distinct seats, all of them in the same state. */
static void put_all(struct seat_map *m, const uint32_t *seats, size_t count, enum seat_state state,
                    uint64_t holder) {
    for (size_t i = 0; i < count;) {
        struct run run = {seats[i], 1};
        while (++i < count && seats[i] == run.first + run.length) run.length++;
        seat_map_put(m, run, state, holder);
    }
}

/* ---- any seats ---- */

/* The rule chooses before anything is taken. `last` says what is left, the run that it chose
 * last by 3: not the longer ones, nor those of equal length up to it. At first it is all zero. */

static bool shortest_left(const struct seat_map *m, uint32_t n, struct run last, struct run *out) {
    if (!free_runs_shortest(&m->runs, n, out)) return false;
    if (last.length == 0 || out->length < last.length) return true;
    return n <= last.length && free_runs_next(&m->runs, last, out);
}

static bool longest_left(const struct seat_map *m, struct run last, struct run *out) {
    if (last.length == 0) return free_runs_longest(&m->runs, m->capacity, out);
    return free_runs_next(&m->runs, last, out) || free_runs_longest(&m->runs, last.length - 1, out);
}

/* Rules 1 and 2. */
static bool choose_run(const struct seat_map *m, uint32_t n, struct run last, struct run *out) {
    if (!shortest_left(m, n, last, out)) return false;
    struct run longer;
    if (out->length == n + 1 && shortest_left(m, n + 2, last, &longer)) *out = longer;
    return true;
}

static int seat_map_by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static enum seats_outcome enough(const struct seat_map *m, uint32_t n) {
    assert(n >= 1 && n <= SEATS_PER_CALL_MAX);
    if (m->counts.available == 0) return SEATS_SOLD_OUT;
    return m->counts.available < n ? SEATS_NOT_ENOUGH : SEATS_DONE;
}

/* There are enough. */
static void seat_map_choose(const struct seat_map *m, uint32_t n, uint32_t *out) {
    uint32_t got = 0;
    bool ascending = true;
    struct run last = {0};
    while (got < n) {
        struct run run = {0};
        if (choose_run(m, n - got, last, &run)) {
            run.length = n - got;
        } else {
            bool found = longest_left(m, last, &run);
            assert(found);
            last = run;
        }
        if (got > 0 && run.first < out[got - 1]) ascending = false;
        for (uint32_t i = 0; i < run.length; i++) out[got++] = run.first + i;
    }
    if (!ascending) qsort(out, n, sizeof *out, seat_map_by_number);
}

enum seats_outcome seat_map_claim_any(struct seat_map *m, uint32_t n, uint64_t holder,
                                      uint32_t *out) {
    assert(holder != 0);
    enum seats_outcome outcome = enough(m, n);
    if (outcome != SEATS_DONE) return outcome;
    seat_map_choose(m, n, out);
    put_all(m, out, n, SEAT_HELD, holder);
    return SEATS_DONE;
}

/* The first of n adjacent free seats, from the seat that `spread` chooses on; 0: there are none.
 * When they can't begin at that seat, of the runs of each length that is long enough (a bounded
 * number of lengths) the next one is looked at, the nearest of them is it, and they begin anywhere
 * in it: else all requests for taken seats would meet at the beginning of the run behind those. */
static uint32_t choose_apart(const struct seat_map *m, uint32_t n, uint64_t spread) {
    uint32_t start = 1 + (uint32_t)(spread % m->capacity);
    if (free_runs_ahead(&m->runs, start) >= n) return start;
    struct run nearest = {0};
    uint32_t nearest_distance = m->capacity;
    struct run run = {.length = n - 1};
    for (int i = 0; i < SUGGEST_LENGTHS_MAX; i++) {
        if (!free_runs_from(&m->runs, run.length + 1, start, &run)) break;
        uint32_t distance = (run.first + m->capacity - start) % m->capacity;
        if (distance >= nearest_distance) continue;
        nearest = run;
        nearest_distance = distance;
    }
    if (nearest.length == 0) return 0;
    return nearest.first + (uint32_t)(spread / m->capacity % (nearest.length - n + 1));
}

enum seats_outcome seat_map_suggest(const struct seat_map *m, uint32_t n, uint64_t spread,
                                    uint32_t *out) {
    enum seats_outcome outcome = enough(m, n);
    if (outcome != SEATS_DONE) return outcome;
    uint32_t first = spread == 0 ? 0 : choose_apart(m, n, spread);
    if (first == 0) {
        seat_map_choose(m, n, out);
        return SEATS_DONE;
    }
    for (uint32_t i = 0; i < n; i++) out[i] = first + i;
    return SEATS_DONE;
}

/* ---- named seats ---- */

/* Checks one seat of a list; all seats before it are marked as NAMED. */
static enum seats_outcome check_seat(const struct seat_map *m, uint32_t seat,
                                     enum seat_state expected, uint64_t holder) {
    if (!exists(m, seat)) return SEATS_OUT_OF_RANGE;
    if ((m->states[seat] & NAMED) != 0) return SEATS_TWICE;
    if (expected == ANY_STATE) return SEATS_DONE;
    if (expected == SEAT_AVAILABLE)
        return m->states[seat] == SEAT_AVAILABLE ? SEATS_DONE : SEATS_TAKEN;
    if (m->holders[seat] != holder) return SEATS_NOT_THEIRS;
    return m->states[seat] == expected ? SEATS_DONE : SEATS_OTHER_STATE;
}

static enum seats_outcome seat_map_check_seats(struct seat_map *m, const uint32_t *seats,
                                               size_t count, enum seat_state expected,
                                               uint64_t holder, uint32_t *refused,
                                               size_t *refused_count) {
    enum seats_outcome worst = SEATS_DONE;
    *refused_count = 0;
    for (size_t i = 0; i < count; i++) {
        enum seats_outcome here = check_seat(m, seats[i], expected, holder);
        if (here > worst) {
            worst = here;
            *refused_count = 0;
        }
        if (here == worst && here != SEATS_DONE) refused[(*refused_count)++] = seats[i];
        if (exists(m, seats[i])) m->states[seats[i]] |= NAMED;
    }
    for (size_t i = 0; i < count; i++)
        if (exists(m, seats[i])) m->states[seats[i]] &= (uint8_t)~NAMED;
    return worst;
}

/* All of them, or none, from one state to another. */
static enum seats_outcome change(struct seat_map *m, const uint32_t *seats, size_t count,
                                 uint64_t holder, enum seat_state from, enum seat_state to,
                                 uint32_t *refused, size_t *refused_count) {
    assert(count >= 1 && count <= SEATS_PER_CALL_MAX && holder != 0);
    enum seats_outcome outcome =
        seat_map_check_seats(m, seats, count, from, holder, refused, refused_count);
    if (outcome != SEATS_DONE) return outcome;
    put_all(m, seats, count, to, to == SEAT_AVAILABLE ? 0 : holder);
    return SEATS_DONE;
}

enum seats_outcome seat_map_claim(struct seat_map *m, const uint32_t *seats, size_t count,
                                  uint64_t holder, uint32_t *refused, size_t *refused_count) {
    return change(m, seats, count, holder, SEAT_AVAILABLE, SEAT_HELD, refused, refused_count);
}

enum seats_outcome seat_map_confirm(struct seat_map *m, const uint32_t *seats, size_t count,
                                    uint64_t holder, uint32_t *refused, size_t *refused_count) {
    return change(m, seats, count, holder, SEAT_HELD, SEAT_CONFIRMED, refused, refused_count);
}

enum seats_outcome seat_map_release(struct seat_map *m, const uint32_t *seats, size_t count,
                                    uint64_t holder, uint32_t *refused, size_t *refused_count) {
    return change(m, seats, count, holder, SEAT_HELD, SEAT_AVAILABLE, refused, refused_count);
}

enum seats_outcome seat_map_cancel(struct seat_map *m, const uint32_t *seats, size_t count,
                                   uint64_t holder, uint32_t *refused, size_t *refused_count) {
    return change(m, seats, count, holder, SEAT_CONFIRMED, SEAT_AVAILABLE, refused, refused_count);
}

enum seats_outcome seat_map_check(struct seat_map *m, const uint32_t *seats, size_t count,
                                  uint32_t *refused, size_t *refused_count) {
    assert(count >= 1 && count <= SEATS_PER_CALL_MAX);
    return seat_map_check_seats(m, seats, count, ANY_STATE, 0, refused, refused_count);
}

/* ---- from the ledger ---- */

bool seat_map_sync(struct seat_map *m, uint32_t seat, enum seat_state state, uint64_t holder) {
    assert((state == SEAT_AVAILABLE) == (holder == 0));
    if (!exists(m, seat)) return false;
    if (m->states[seat] == state && m->holders[seat] == holder) return false;
    seat_map_put(m, (struct run){seat, 1}, state, holder);
    return true;
}

bool seat_map_resize(struct seat_map *m, uint32_t capacity) {
    assert(capacity >= 1 && capacity <= SECTION_CAPACITY_MAX);
    uint32_t last_taken = free_runs_last_taken(&m->runs);
    if (last_taken > capacity) return false;
    uint32_t old = m->capacity;
    m->states = mem_grow(m->states, (size_t)capacity + 1);
    m->holders = mem_grow(m->holders, ((size_t)capacity + 1) * sizeof *m->holders);
    if (capacity > old) {
        memset(m->states + old + 1, SEAT_AVAILABLE, capacity - old);
        memset(m->holders + old + 1, 0, (capacity - old) * sizeof *m->holders);
    }
    m->capacity = capacity;
    m->counts.available = capacity - m->counts.held - m->counts.confirmed;
    free_runs_deinit(&m->runs);
    free_runs_init(&m->runs, capacity);
    for (uint32_t seat = 1; seat <= last_taken; seat++) {
        uint32_t first = seat;
        while (seat <= last_taken && m->states[seat] != SEAT_AVAILABLE) seat++;
        if (seat > first) free_runs_take(&m->runs, first, seat - first);
    }
    return true;
}

/* ---- looks ---- */

uint32_t seat_map_capacity(const struct seat_map *m) {
    return m->capacity;
}

struct seat_counts seat_map_counts(const struct seat_map *m) {
    assert(m->counts.available + m->counts.held + m->counts.confirmed == m->capacity);
    return m->counts;
}

bool seat_map_look(const struct seat_map *m, uint32_t seat, enum seat_state *state,
                   uint64_t *holder) {
    if (!exists(m, seat)) return false;
    *state = (enum seat_state)m->states[seat];
    *holder = m->holders[seat];
    return true;
}

size_t seat_map_render(const struct seat_map *m, uint32_t first, char *out, size_t max) {
    if (!exists(m, first)) return 0;
    size_t count = m->capacity - first + 1;
    if (count > max) count = max;
    memcpy(out, m->states + first, count);
    return count;
}
