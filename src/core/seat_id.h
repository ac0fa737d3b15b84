/*
 * seat_id: one number for a seat of whatever event: its section's key and its number there. Pure.
 */
#ifndef ADMITONE_CORE_SEAT_ID_H
#define ADMITONE_CORE_SEAT_ID_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"

#define SEAT_ID_SEAT_BITS 20
#define SEAT_ID_SECTION_KEY_MAX (INT64_MAX >> SEAT_ID_SEAT_BITS)

static_assert(SECTION_CAPACITY_MAX < 1 << SEAT_ID_SEAT_BITS, "the seats of a section fit");

static inline int64_t seat_id(int64_t section_key, uint32_t seat) {
    assert(section_key > 0 && section_key <= SEAT_ID_SECTION_KEY_MAX);
    assert(seat > 0 && seat <= SECTION_CAPACITY_MAX);
    return section_key << SEAT_ID_SEAT_BITS | seat;
}

/* False: no seat can have that number. */
static inline bool seat_id_split(int64_t id, int64_t *section_key, uint32_t *seat) {
    if (id <= 0) return false;
    *section_key = id >> SEAT_ID_SEAT_BITS;
    *seat = (uint32_t)(id & ((1 << SEAT_ID_SEAT_BITS) - 1));
    return *section_key > 0 && *seat > 0 && *seat <= SECTION_CAPACITY_MAX;
}

#endif
