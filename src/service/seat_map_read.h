/*
 * seat_map_read: reads the states of a section's seats from the hot store, step by step, so that
 * other requests of the event wait for one step at the most.
 */
#ifndef ADMITONE_SERVICE_SEAT_MAP_READ_H
#define ADMITONE_SERVICE_SEAT_MAP_READ_H

#include "port/seats.h"

/* One letter for each seat: SEAT_AVAILABLE and so on (core/seat_map.h). In the caller's memory
 * until `done` is called, on the caller's worker: later, or before the function returns. */
struct seat_map_read {
    int64_t event_key;
    int64_t section_key;
    size_t capacity; /* of the section; out: smaller if it has shrunk in the meantime */
    size_t from;     /* the first seat that is read, from 1 on, and how many at the most */
    size_t wanted;
    size_t runs_max; /* ends before a further run of equal letters; 0: any number */
    char *letters;   /* room for `wanted`; out */
    void (*done)(struct seat_map_read *m, enum err result);
    size_t count; /* out: seats that were read */

    /* Below: private. */
    struct seats *seats;
    struct render_op render;
    size_t run_count;
};

/* OK, EVENT_NOT_FOUND, SECTION_NOT_FOUND, or a failure of the hot store. */
void seat_map_read(struct seats *seats, struct seat_map_read *m);

#endif
