/*
 * ledger_desk: a ledger that sells: one event with a few sections, and short words for what is
 * done to its reservations. Each waits for its answer. Sections and seats are told by number, users
 * by name, reservations by a number that becomes their id.
 */
#ifndef ADMITONE_TEST_LEDGER_DESK_H
#define ADMITONE_TEST_LEDGER_DESK_H

#include "ledger_suite.h"

#define DESK_HELD_MS 2000    /* when holds begin */
#define DESK_EXPIRES_MS 3000 /* and when they end */

struct desk {
    struct harness h;
    struct ledger *l;
    struct ledger *(*open)(struct harness *h, int64_t queue_max);
    struct event *event; /* as it was stored: max_per_user is 4 */
};

void desk_open(struct desk *d, struct ledger *(*open)(struct harness *h, int64_t queue_max),
               size_t sections, int64_t capacity);
void desk_shut(struct desk *d);
/* Closes the ledger and opens it again. */
void desk_restart(struct desk *d);

struct uuid desk_id(uint64_t number);
/* HELD, by the user's entry `seq`, in section 0, 1, …; mem_free frees it. The seats end with a 0.
 */
struct reservation *desk_wanted(const struct desk *d, uint64_t number, const char *user,
                                uint64_t seq, size_t section, const uint32_t *seats);
#define SEATS(...) ((const uint32_t[]){__VA_ARGS__, 0})

/* An ACTIVE entry until the time 100,000. */
void desk_enter(struct desk *d, uint64_t seq, const char *user);
enum entry_status desk_entry(struct desk *d, uint64_t seq);

/* From DESK_HELD_MS to DESK_EXPIRES_MS. */
enum err desk_hold(struct desk *d, uint64_t number, const char *user, uint64_t seq, size_t section,
                   const uint32_t *seats);
enum err desk_confirm(struct desk *d, uint64_t number, const char *user, int64_t now_ms);
enum err desk_cancel(struct desk *d, uint64_t number, const char *user);
bool desk_expire(struct desk *d, uint64_t number, int64_t now_ms);

/* As the ledger has it; NULL: there is none. mem_free frees it. */
struct reservation *desk_get(struct desk *d, uint64_t number);
/* The status alone; fails the test when there is none. */
enum reservation_status desk_status(struct desk *d, uint64_t number);
enum seat_state desk_seat(struct desk *d, size_t section, uint32_t seat, int64_t *version);

/* What load tells. */
struct desk_loaded {
    struct event *event; /* the first: the desk's own */
    struct reservation *reservations[512];
    size_t count;
    size_t entries;
};
void desk_load(struct desk *d, struct desk_loaded *out);
void desk_loaded_free(struct desk_loaded *l);

void desk_assert_equal(const struct reservation *a, const struct reservation *b);
/* The section has as many seats of each state, by its counts and by its seats. */
void desk_assert_counts(struct desk *d, size_t section, int64_t held, int64_t confirmed);
void desk_assert_sound(struct desk *d);

#endif
