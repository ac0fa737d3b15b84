/*
 * ledger_client: a ledger with one event of a few sections, and short functions for changes of its
 * reservations. Each waits for its answer. Sections and seats are given by number, users by name,
 * reservations by a number that becomes their id.
 */
#ifndef ADMITONE_TEST_LEDGER_CLIENT_H
#define ADMITONE_TEST_LEDGER_CLIENT_H

#include "ledger_suite.h"

#define TEST_HELD_MS 2000    /* when holds begin */
#define TEST_EXPIRES_MS 3000 /* and when they end */

struct ledger_client {
    struct harness h;
    struct ledger *l;
    struct ledger *(*open)(struct harness *h, int64_t queue_max);
    struct event *event; /* as it was stored: max_per_user is 4 */
};

void ledger_client_open(struct ledger_client *d,
                        struct ledger *(*open)(struct harness *h, int64_t queue_max),
                        size_t sections, int64_t capacity);
void ledger_client_shut(struct ledger_client *d);
/* For cmocka, with a new client as the state: two sections; the users "a", "b", … are ACTIVE as
 * entries 1, 2, … . Whatever a test has done, the ledger is sound after it. */
int ledger_client_set_up(void **state, const struct ledger_adapter *adapter, int64_t capacity,
                         uint64_t users);
int ledger_client_tear_down(void **state);
/* Closes the ledger and opens it again. */
void ledger_client_restart(struct ledger_client *d);

struct uuid ledger_client_id(uint64_t number);
/* HELD, by the user's entry `seq`, in section 0, 1, …; mem_free frees it. The seats end with a 0.
 */
struct reservation *ledger_client_wanted(const struct ledger_client *d, uint64_t number,
                                         const char *user, uint64_t seq, size_t section,
                                         const uint32_t *seats);
#define SEATS(...) ((const uint32_t[]){__VA_ARGS__, 0})

/* An ACTIVE entry until the time 100,000. */
void ledger_client_enter(struct ledger_client *d, uint64_t seq, const char *user);
enum entry_status ledger_client_entry(struct ledger_client *d, uint64_t seq);

/* From TEST_HELD_MS to TEST_EXPIRES_MS. */
enum err ledger_client_hold(struct ledger_client *d, uint64_t number, const char *user,
                            uint64_t seq, size_t section, const uint32_t *seats);
enum err ledger_client_confirm(struct ledger_client *d, uint64_t number, const char *user,
                               int64_t now_ms);
enum err ledger_client_cancel(struct ledger_client *d, uint64_t number, const char *user);
bool ledger_client_expire(struct ledger_client *d, uint64_t number, int64_t now_ms);

/* The reservation in the ledger; NULL: there is none. mem_free frees it. */
struct reservation *ledger_client_get(struct ledger_client *d, uint64_t number);
/* The status alone; fails the test when there is none. */
enum reservation_status ledger_client_status(struct ledger_client *d, uint64_t number);
enum seat_state ledger_client_seat(struct ledger_client *d, size_t section, uint32_t seat,
                                   int64_t *version);

/* The results of load. */
struct ledger_client_loaded {
    struct event *event; /* the first: the client's own */
    struct reservation *reservations[512];
    size_t count;
    size_t entries;
};
void ledger_client_load(struct ledger_client *d, struct ledger_client_loaded *out);
void ledger_client_loaded_free(struct ledger_client_loaded *l);

void ledger_client_assert_equal(const struct reservation *a, const struct reservation *b);
/* The section has as many seats of each state, by its counts and by its seats. */
void ledger_client_assert_counts(struct ledger_client *d, size_t section, int64_t held,
                                 int64_t confirmed);
void ledger_client_assert_sound(struct ledger_client *d);

#endif
