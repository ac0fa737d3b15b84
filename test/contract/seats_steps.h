/*
 * seats_steps: the operations of port/seats.h as plain functions that wait for their answer, on a
 * store of queue_steps.h; and an event with sections, whose users are admitted at once.
 */
#ifndef ADMITONE_TEST_CONTRACT_SEATS_STEPS_H
#define ADMITONE_TEST_CONTRACT_SEATS_STEPS_H

#include "queue_steps.h"
#include "seats_suite.h"

#define KEY 7
#define OTHER 8
/* The sections' keys: 100 seats each, mode slot but for the boxes, which the ledger decides about.
 */
#define FLOOR 31
#define BALCONY 32
#define BOXES 33
#define HOLD_MS (300 * SECOND)

/* An event with its sections, and users who enter one after the other. */
struct seats_test {
    struct store s;
    struct event e; /* KEY */
    struct section sections[4];
    struct heard heard[4096];
};
/* 300 s per hold, 4 seats per user. Every user who enters is ACTIVE at once. */
void seats_test_open(struct seats_test *h, const struct queue_adapter *adapter);
void seats_test_close(struct seats_test *h);
/* A separate fixture for each test, for cmocka. */
int seats_test_set_up(void **state, const struct queue_adapter *adapter);
int seats_test_tear_down(void **state);
/* With the next version. */
void seats_test_configure(struct seats_test *h);
/* The user is ACTIVE since T0, for a day; the entry's number. */
uint64_t seats_test_admit(struct seats_test *h, const char *user);

/* Ids with a number. */
struct uuid id_of(uint64_t number);
uint64_t number_of(const struct uuid *id);

struct claimed {
    enum err result;
    enum claim_outcome outcome;
    struct claim_info r;
    size_t count;
    uint32_t seats[SEATS_PER_CALL_MAX];
};
struct claimed step_claim(struct store *s, int64_t key, const struct claim_request *w,
                          int64_t now_ms);
/* At T0, in KEY: that many seats of a section, or the named ones, for the entry's user. */
struct claimed claim_any(struct store *s, uint64_t id, const char *user, uint64_t seq,
                         int64_t section, uint32_t count);
struct claimed claim_named(struct store *s, uint64_t id, const char *user, uint64_t seq,
                           int64_t section, const uint32_t *seats, uint32_t count);

/* Whether it is live then. */
bool step_settle_claim(struct store *s, int64_t key, uint64_t id, bool kept);
/* Whether that changed anything. */
bool step_follow(struct store *s, int64_t key, uint64_t id, enum reservation_status status);
/* How much changed. */
/* For restoring a store. */
void step_restore_reservation(struct store *s, int64_t key, const struct live_reservation *r);
size_t step_sync(struct store *s, int64_t key, const struct live_reservation *r, int64_t section,
                 const uint32_t *available, size_t available_count);
/* Numbers of ids into `out`. */
size_t step_due(struct store *s, int64_t key, int64_t now_ms, uint64_t *out, size_t max);
size_t step_holds(struct store *s, int64_t key, const char *user, uint64_t entry_seq,
                  struct claim_info *out, size_t max);
/* The counts of one section; zeros if there is no such section. */
struct section_counts step_section(struct store *s, int64_t key, int64_t section);
struct seat_counts step_totals(struct store *s, int64_t key);
/* Zero-terminated. */
enum err step_render(struct store *s, int64_t key, int64_t section, uint32_t first, char *out,
                     size_t max, size_t *count);

/* Whether the event needs a tick then; and whether the user has live reservations in it. */
bool step_needs_tick(struct store *s, int64_t key, int64_t now_ms);
bool step_is_buyer(struct store *s, int64_t key, const char *user);

void assert_seats(struct store *s, int64_t section, uint32_t available, uint32_t held,
                  uint32_t confirmed);

#endif
