/* Asks the hot store for one part of the map after the other. */
#include "service/seat_map_read.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"

/* Seats that are read in one step, while other requests of the event wait. The largest section
 * takes 16 steps; where they are answered at once, they nest that deep, which is fine. */
#define LETTERS_PER_STEP 65536

static void seat_map_on_step(struct render_op *r);

static void seat_map_step(struct seat_map_read *m) {
    size_t left = m->wanted - m->count;
    m->render = (struct render_op){.op = {.event_key = m->event_key, .now_ms = clock_wall_ms()},
                                   .section_key = m->section_key,
                                   .first = (uint32_t)(m->from + m->count),
                                   .letters = m->letters + m->count,
                                   .max = left < LETTERS_PER_STEP ? left : LETTERS_PER_STEP,
                                   .done = seat_map_on_step};
    seats_render(m->seats, &m->render);
}

/* Keeps as many of the letters that were read as there may be runs. True: all of them. */
static bool seat_map_keep(struct seat_map_read *m, size_t count) {
    size_t end = m->count + count;
    if (m->runs_max == 0) m->count = end;
    for (; m->count < end; m->count++) {
        bool begins = m->count == 0 || m->letters[m->count] != m->letters[m->count - 1];
        if (begins && m->run_count == m->runs_max) return false;
        m->run_count += begins;
    }
    return true;
}

static void seat_map_on_step(struct render_op *r) {
    struct seat_map_read *m = CONTAINER_OF(r, struct seat_map_read, render);
    if (r->op.result != ERR_OK) {
        m->done(m, r->op.result);
        return;
    }
    bool has_shrunk = r->count == 0;
    bool has_room = seat_map_keep(m, r->count);
    if (has_shrunk) m->capacity = m->from + m->count - 1;
    if (has_shrunk || !has_room || m->count == m->wanted)
        m->done(m, ERR_OK);
    else
        seat_map_step(m);
}

void seat_map_read(struct seats *seats, struct seat_map_read *m) {
    assert(m->from > 0 && m->wanted > 0 && m->done != NULL);
    m->seats = seats;
    seat_map_step(m);
}
