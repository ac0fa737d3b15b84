/*
 * seats_fixture: the fixture of reservation tests: an event with one section of six seats for each
 * mode, and a wall clock that stands still. Users may have four seats; a hold lasts
 * FIXTURE_HOLD_MS.
 */
#ifndef ADMITONE_TEST_SEATS_FIXTURE_H
#define ADMITONE_TEST_SEATS_FIXTURE_H

#include "faulty_ledger.h"
#include "service_seats.h"

enum fixture_section {
    FIXTURE_SLOT,
    FIXTURE_LOCK,
    FIXTURE_ADAPTIVE,
    FIXTURE_SEAT,
    FIXTURE_SECTIONS
};
extern const enum section_mode seats_fixture_modes[FIXTURE_SECTIONS];

#define FIXTURE_SEATS 6
#define FIXTURE_PER_USER 4
#define FIXTURE_HOLD_MS 300000
#define FIXTURE_FREE "AAAAAA"

struct seats_fixture {
    struct fixture fixture;
    struct faulty_ledger faulty;
};

/* For cmocka: *state is the fixture. tear_down fails the test unless both stores agree. */
int seats_fixture_set_up(void **state);
int seats_fixture_tear_down(void **state);

/* From now on its reservations and queue write and ask through fixture->faulty. */
void seats_fixture_make_faulty(struct seats_fixture *s);

/* The strategies that decide synchronously, and the section that has each. */
#define FIXTURE_STRATEGIES STRATEGY_QUEUE
#define FOR_EACH_STRATEGY(s) for (enum strategy s = STRATEGY_SLOT; s < FIXTURE_STRATEGIES; s++)
size_t seats_fixture_section_of(enum strategy s);

/* A number that changes with whatever is written about seats. */
int64_t seats_fixture_trace(struct seats_fixture *s);
int64_t seats_fixture_rows(struct seats_fixture *s, const char *status);

/* A hold of the user for these seats, or for `quantity` seats. */
struct hold_spec seats_fixture_named(enum strategy s, const char *user, uint64_t seq,
                                     const uint32_t *seats);
struct hold_spec seats_fixture_any(enum strategy s, const char *user, uint64_t seq,
                                   uint32_t quantity);
enum err seats_fixture_hold(struct seats_fixture *s, struct hold_spec w);
struct uuid seats_fixture_held(struct seats_fixture *s, struct hold_spec w);

#endif
