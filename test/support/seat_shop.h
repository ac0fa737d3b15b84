/*
 * seat_shop: a house whose event has one section of six seats for each mode, and a wall clock that
 * stands still: what tests of reservations begin with. Users may have four seats; a hold lasts
 * SHOP_HOLD_MS.
 */
#ifndef ADMITONE_TEST_SEAT_SHOP_H
#define ADMITONE_TEST_SEAT_SHOP_H

#include "faulty_ledger.h"
#include "house_seats.h"

enum shop_section { SHOP_SLOT, SHOP_LOCK, SHOP_ADAPTIVE, SHOP_SEAT, SHOP_SECTIONS };
extern const enum section_mode shop_modes[SHOP_SECTIONS];

#define SHOP_SEATS 6
#define SHOP_PER_USER 4
#define SHOP_HOLD_MS 300000
#define SHOP_FREE "AAAAAA"

struct shop {
    struct house house;
    struct faulty_ledger faulty;
};

/* For cmocka: *state is the shop. tear_down fails the test unless both stores agree. */
int shop_set_up(void **state);
int shop_tear_down(void **state);

/* From now on its reservations and queue write and ask through shop->faulty. */
void shop_make_faulty(struct shop *s);

/* The strategies that decide synchronously, and the section that has each. */
#define SHOP_STRATEGIES STRATEGY_QUEUE
#define FOR_EACH_STRATEGY(s) for (enum strategy s = STRATEGY_SLOT; s < SHOP_STRATEGIES; s++)
size_t shop_section_of(enum strategy s);

/* A number that changes with whatever is written about seats. */
int64_t shop_trace(struct shop *s);
int64_t shop_rows(struct shop *s, const char *status);

/* A wish of the user for these seats, or for so many. */
struct wish shop_named(enum strategy s, const char *user, uint64_t seq, const uint32_t *seats);
struct wish shop_any(enum strategy s, const char *user, uint64_t seq, uint32_t quantity);
enum err shop_hold(struct shop *s, struct wish w);
struct uuid shop_held(struct shop *s, struct wish w);

#endif
