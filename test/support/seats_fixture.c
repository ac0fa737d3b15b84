#include "seats_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sync_recorder.h"
#include "wall_clock.h"

const enum section_mode seats_fixture_modes[FIXTURE_SECTIONS] = {
    [FIXTURE_SLOT] = SECTION_MODE_SLOT,
    [FIXTURE_LOCK] = SECTION_MODE_LOCK,
    [FIXTURE_ADAPTIVE] = SECTION_MODE_ADAPTIVE,
    [FIXTURE_SEAT] = SECTION_MODE_SEAT};

int seats_fixture_set_up(void **state) {
    struct seats_fixture *s = mem_new(sizeof *s);
    wall_clock_set(clock_wall_ms());
    struct event *e = test_event("1", FIXTURE_SECTIONS);
    e->queue = (struct queue_rules){.max_waiting = 100,
                                    .max_active = 1000,
                                    .entry_batch_size = 100000,
                                    .entry_interval_s = 1,
                                    .active_ttl_s = 86400,
                                    .grace_s = 300};
    e->hold_s = FIXTURE_HOLD_MS / 1000;
    e->max_per_user = FIXTURE_PER_USER;
    for (size_t i = 0; i < FIXTURE_SECTIONS; i++) {
        e->sections[i].capacity = FIXTURE_SEATS;
        e->sections[i].mode = seats_fixture_modes[i];
    }
    fixture_build_event(&s->fixture, e);
    mem_free(e);
    *state = s;
    return 0;
}

int seats_fixture_tear_down(void **state) {
    struct seats_fixture *s = *state;
    sync_gate_open();
    sync_fail_syncs(0);
    fixture_wait_idle(&s->fixture);
    fixture_assert_agreement(&s->fixture);
    fixture_tear_down(&s->fixture);
    wall_clock_release();
    mem_free(s);
    return 0;
}

void seats_fixture_make_faulty(struct seats_fixture *s) {
    faulty_ledger_init(&s->faulty, s->fixture.ledger, 0);
    s->fixture.reservations.ledger = &s->faulty.ledger;
    s->fixture.room.ledger = &s->faulty.ledger;
}

size_t seats_fixture_section_of(enum strategy s) {
    for (size_t i = 0; i < FIXTURE_SECTIONS; i++)
        if (strategy_fits(seats_fixture_modes[i], s)) return i;
    fail_msg("no section has the strategy");
    return 0;
}

int64_t seats_fixture_trace(struct seats_fixture *s) {
    return raw_number(&s->fixture.h,
                      "SELECT (SELECT count(*) FROM reservations) * 1000000"
                      " + (SELECT count(*) FROM facts) * 10000"
                      " + (SELECT coalesce(sum(version), 0) FROM seats) * 100"
                      " + (SELECT coalesce(sum(seat_count * iif(status = 'HELD', 2, 1)), 0)"
                      "    FROM reservations WHERE status IN ('HELD', 'CONFIRMED'))"
                      " + (SELECT sum(held + confirmed) FROM sections)"
                      " + (SELECT count(*) FROM idempotency)");
}

int64_t seats_fixture_rows(struct seats_fixture *s, const char *status) {
    return raw_number(&s->fixture.h, "SELECT count(*) FROM reservations WHERE status = '%s'",
                      status);
}

struct hold_spec seats_fixture_named(enum strategy s, const char *user, uint64_t seq,
                                     const uint32_t *seats) {
    return (struct hold_spec){.user = user,
                              .seq = seq,
                              .section = seats_fixture_section_of(s),
                              .strategy = s,
                              .seats = seats};
}

struct hold_spec seats_fixture_any(enum strategy s, const char *user, uint64_t seq,
                                   uint32_t quantity) {
    return (struct hold_spec){.user = user,
                              .seq = seq,
                              .section = seats_fixture_section_of(s),
                              .strategy = s,
                              .quantity = quantity};
}

enum err seats_fixture_hold(struct seats_fixture *s, struct hold_spec w) {
    return fixture_hold(&s->fixture, &w, NULL);
}

struct uuid seats_fixture_held(struct seats_fixture *s, struct hold_spec w) {
    return fixture_held(&s->fixture, &w);
}
