/*
 * seat_map: the seats of one section: which are free, and which reservation has the others. Pure:
 * no I/O, no clock; one thread at a time: the owner has a lock.
 *
 * Seats are 1 to capacity. A seat is AVAILABLE, or HELD or CONFIRMED for its holder, the handle of
 * a reservation, never 0. A call names one or more seats, and changes all of them or none. A
 * confirm, release or cancel also names the holder, and changes only seats that this holder has in
 * the expected state, so a call that comes late or twice never changes a seat of the next holder.
 *
 * The rule for `quantity` (the same words, and the same seats, as in the Redis functions). A *run*
 * is a stretch of adjacent free seats that is as long as it can be. To claim n seats:
 *
 *   0. Fewer than n seats are free: refuse. Nothing changes.
 *   1. Of the runs of length n, or n + 2 and longer, choose the shortest. (A run of n + 1 would
 *      leave a single orphan seat.)
 *   2. If there is none: choose a run of length n + 1.
 *   3. If there is none either, no run is long enough: choose the longest, take all of it, reduce
 *      n by its length, and go on at 1 with what is free now.
 *
 *   Among runs of equal length the one with the lowest numbers is chosen. In 1 and 2 the n seats
 *   are the first of the run. The answer lists all seats in ascending order.
 *
 * So the n seats come from as few runs as possible.
 *
 * Memory: 12 bytes per seat, however many are taken; only seat_map_new and seat_map_resize
 * allocate.
 */
#ifndef ADMITONE_CORE_SEAT_MAP_H
#define ADMITONE_CORE_SEAT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"

/* How many seats one call may name or claim. */
#define SEATS_PER_CALL_MAX PER_USER_MAX

/* The values are the letters of a rendered map. */
enum seat_state {
    SEAT_AVAILABLE = 'A',
    SEAT_HELD = 'H',
    SEAT_CONFIRMED = 'C',
};

/* From good to bad: the outcome of a list of seats is that of its worst seat. */
enum seats_outcome {
    SEATS_DONE,
    SEATS_SOLD_OUT,     /* no seat is free */
    SEATS_NOT_ENOUGH,   /* some are free, but fewer than were asked for */
    SEATS_TAKEN,        /* a named seat is not free */
    SEATS_OTHER_STATE,  /* the holder's, but not in the state that this changes */
    SEATS_NOT_THEIRS,   /* free, or another reservation's */
    SEATS_TWICE,        /* the list names a seat twice */
    SEATS_OUT_OF_RANGE, /* there is no such seat */
};

struct seat_counts {
    uint32_t available;
    uint32_t held;
    uint32_t confirmed;
};

/* In any state. */
static inline uint64_t seat_counts_sum(const struct seat_counts *c) {
    return (uint64_t)c->available + c->held + c->confirmed;
}
/* Every seat is CONFIRMED, so none becomes free by expiry. False if there are no seats. */
static inline bool seat_counts_sold_out(const struct seat_counts *c) {
    return c->confirmed > 0 && c->available == 0 && c->held == 0;
}

struct seat_map;

/* All seats are AVAILABLE. */
struct seat_map *seat_map_new(uint32_t capacity);
void seat_map_free(struct seat_map *m);

/* `n` seats by the rule become HELD; they are in out[], which has room for n, if DONE. Else
 * SOLD_OUT or NOT_ENOUGH. */
enum seats_outcome seat_map_claim_any(struct seat_map *m, uint32_t n, uint64_t holder,
                                      uint32_t *out);

/*
 * As claim_any, but nothing changes: seats that are free now, for a caller that asks the ledger for
 * them. With a `spread` other than 0 they are not chosen by the rule, so that concurrent requests
 * do not all get the same ones: they are adjacent, at or near the seat that `spread` selects, if
 * any run is long enough; else by the rule. The caller passes random numbers.
 */
enum seats_outcome seat_map_suggest(const struct seat_map *m, uint32_t n, uint64_t spread,
                                    uint32_t *out);

/*
 * These change the `count` seats named, in any order, if all of them are as they must be. If not,
 * refused[], another array with room for `count`, gets the seats that have the outcome,
 * *refused_count of them, in the order in which they were named (TWICE: each time but the first).
 *   claim    AVAILABLE → HELD           else TAKEN
 *   confirm  HELD → CONFIRMED           else OTHER_STATE, NOT_THEIRS
 *   release  HELD → AVAILABLE           likewise; a hold's cancelling, expiry or undoing
 *   cancel   CONFIRMED → AVAILABLE      likewise
 * and any of them: TWICE, OUT_OF_RANGE.
 */
enum seats_outcome seat_map_claim(struct seat_map *m, const uint32_t *seats, size_t count,
                                  uint64_t holder, uint32_t *refused, size_t *refused_count);
enum seats_outcome seat_map_confirm(struct seat_map *m, const uint32_t *seats, size_t count,
                                    uint64_t holder, uint32_t *refused, size_t *refused_count);
enum seats_outcome seat_map_release(struct seat_map *m, const uint32_t *seats, size_t count,
                                    uint64_t holder, uint32_t *refused, size_t *refused_count);
enum seats_outcome seat_map_cancel(struct seat_map *m, const uint32_t *seats, size_t count,
                                   uint64_t holder, uint32_t *refused, size_t *refused_count);

/* Checks such a list without changing anything; seats may be taken. DONE, TWICE or OUT_OF_RANGE. */
enum seats_outcome seat_map_check(struct seat_map *m, const uint32_t *seats, size_t count,
                                  uint32_t *refused, size_t *refused_count);

/* Sets the seat to its state in the ledger, whatever it was; the holder is 0 when AVAILABLE. False:
 * it was in that state already, or there is no such seat. */
bool seat_map_sync(struct seat_map *m, uint32_t seat, enum seat_state state, uint64_t holder);
/* Adds free seats at the end, or takes them away. False, and nothing changes: a seat that would go
 * is taken. It takes as long as making a new map: tens of milliseconds for a million seats. */
bool seat_map_resize(struct seat_map *m, uint32_t capacity);

uint32_t seat_map_capacity(const struct seat_map *m);
struct seat_counts seat_map_counts(const struct seat_map *m);
/* False: there is no such seat. The holder is 0 when AVAILABLE. */
bool seat_map_look(const struct seat_map *m, uint32_t seat, enum seat_state *state,
                   uint64_t *holder);
/* One letter per seat from `first` on, at most `max`, no zero at the end. Returns how many. */
size_t seat_map_render(const struct seat_map *m, uint32_t first, char *out, size_t max);

#endif
