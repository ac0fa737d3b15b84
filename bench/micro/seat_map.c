/*
 * Measures claims and releases in a section of a million seats; prints JSON. `make bench` shows the
 * claims; for the rest:
 *   cmake --build build/release --target bench_seat_map && build/release/bench_seat_map
 *
 * In each round a thousand claims are made and then as many older ones, chosen at random, are
 * released, so the section stays equally full and the free seats stay scattered. Every call is
 * timed alone; `clock_ns` is the time of an empty measurement, and is not subtracted.
 */
#include "core/seat_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "splitmix.h"

#define SEATS 1000000
#define CALLS 1000
#define SAMPLES (200 * CALLS)

/* Adjacent claims of the same number of seats each. */
struct claims {
    uint32_t *seats;
    size_t count;
    uint32_t each;
};

static uint64_t random_state = 1;
static int64_t samples[3][SAMPLES]; /* claims, releases, suggestions */
static size_t sample_count;
static uint32_t refused[SEATS_PER_CALL_MAX];
static size_t refused_count;

static void must(enum seats_outcome outcome) {
    if (outcome == SEATS_DONE) return;
    fprintf(stderr, "seat_map: outcome %d\n", (int)outcome);
    exit(1);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *section, const char *call, uint32_t seats, int64_t *ns,
                      const char *end) {
    double sum = 0;
    for (size_t i = 0; i < sample_count; i++) sum += (double)ns[i];
    qsort(ns, sample_count, sizeof *ns, by_value);
    printf("    { \"section\": \"%s\", \"call\": \"%s\", \"seats\": %u, \"mean_ns\": %.0f, "
           "\"p50_ns\": %lld, \"p99_ns\": %lld, \"max_ns\": %lld }%s\n",
           section, call, seats, sum / (double)sample_count, (long long)ns[sample_count / 2],
           (long long)ns[sample_count * 99 / 100], (long long)ns[sample_count - 1], end);
}

static int64_t claim(struct seat_map *m, struct claims *c) {
    int64_t start_ns = clock_steady_ns();
    must(seat_map_claim_any(m, c->each, 1, c->seats + c->count++ * c->each));
    return clock_steady_ns() - start_ns;
}

static int64_t release_any(struct seat_map *m, struct claims *c) {
    uint32_t seats[SEATS_PER_CALL_MAX];
    uint32_t *chosen = c->seats + next_random(&random_state) % c->count * c->each;
    memcpy(seats, chosen, c->each * sizeof *seats);
    memcpy(chosen, c->seats + --c->count * c->each, c->each * sizeof *seats);
    int64_t start_ns = clock_steady_ns();
    must(seat_map_release(m, seats, c->each, 1, refused, &refused_count));
    return clock_steady_ns() - start_ns;
}

static int64_t suggest(const struct seat_map *m, uint32_t each) {
    uint32_t seats[SEATS_PER_CALL_MAX];
    uint64_t spread = next_random(&random_state) | 1;
    int64_t start_ns = clock_steady_ns();
    must(seat_map_suggest(m, each, spread, seats));
    return clock_steady_ns() - start_ns;
}

static void measure(struct seat_map *m, struct claims *c, const char *section) {
    for (sample_count = 0; sample_count < SAMPLES; sample_count += CALLS) {
        for (size_t i = 0; i < CALLS; i++) samples[0][sample_count + i] = claim(m, c);
        for (size_t i = 0; i < CALLS; i++) samples[1][sample_count + i] = release_any(m, c);
    }
    for (size_t i = 0; i < SAMPLES; i++) samples[2][i] = suggest(m, c->each);
    print_row(section, "claim_any", c->each, samples[0], ",");
    print_row(section, "release", c->each, samples[1], ",");
    print_row(section, "suggest", c->each, samples[2], ",");
}

/* Sold out by claims of `each`, of which some are given back. */
static void full(uint32_t each, uint32_t percent, const char *section) {
    struct seat_map *m = seat_map_new(SEATS);
    size_t most = SEATS / each;
    struct claims c = {.seats = mem_new((most + CALLS) * each * sizeof *c.seats), .each = each};
    while (c.count < most) claim(m, &c);
    while (c.count > most * percent / 100) release_any(m, &c);
    measure(m, &c, section);
    mem_free(c.seats);
    seat_map_free(m);
}

/* Each seat is free or not by the toss of a coin. */
static void scattered(uint32_t each) {
    struct seat_map *m = seat_map_new(SEATS);
    struct claims c = {.seats = mem_new((size_t)SEATS * sizeof *c.seats), .each = each};
    for (uint32_t seat = 1; seat <= SEATS; seat++)
        if (next_random(&random_state) % 2 == 0) seat_map_sync(m, seat, SEAT_CONFIRMED, 2);
    /* Older claims, to be released: one in eight of the free seats. */
    while (c.count < SEATS / 16 / each) claim(m, &c);
    measure(m, &c, "half, at random");
    mem_free(c.seats);
    seat_map_free(m);
}

/* The longest calls that there are. */
static void worst(void) {
    struct seat_map *m = seat_map_new(SEATS);
    for (uint32_t seat = 2; seat < SEATS; seat += 2) seat_map_sync(m, seat, SEAT_HELD, 2);
    for (sample_count = 0; sample_count < 10; sample_count++) {
        int64_t start_ns = clock_steady_ns();
        seat_map_resize(m, SEATS - 1 + (uint32_t)sample_count % 2);
        samples[0][sample_count] = clock_steady_ns() - start_ns;
    }
    print_row("every other seat", "resize", 0, samples[0], ",");
    struct claims c = {.seats = mem_new((size_t)SEATS * sizeof *c.seats),
                       .each = SEATS_PER_CALL_MAX};
    for (sample_count = 0; sample_count < 400; sample_count++)
        samples[0][sample_count] = claim(m, &c);
    print_row("every other seat", "claim_any", c.each, samples[0], "");
    mem_free(c.seats);
    seat_map_free(m);
}

int main(void) {
    int64_t start_ns = clock_steady_ns();
    for (int i = 0; i < SAMPLES; i++) clock_steady_ns();
    printf("{\n  \"seats\": %d,\n  \"clock_ns\": %.0f,\n  \"rows\": [\n", SEATS,
           (double)(clock_steady_ns() - start_ns) / SAMPLES);
    full(1, 99, "99 % full");
    full(4, 99, "99 % full");
    full(4, 50, "half full, by fours");
    scattered(1);
    scattered(4);
    scattered(20);
    worst();
    printf("  ]\n}\n");
    return 0;
}
