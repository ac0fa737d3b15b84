/*
 * two_stores: a hot store in a real Redis and a ledger in SQLite that agree, with the event
 * CONCERT/1 in both, for tests of reconciliation and repair. Each can be changed without the other,
 * as when a node dies between the two changes. The test's own thread is a worker.
 *
 *   entries       1 ann ACTIVE, 2 bob WAITING, 3 cat WAITING, 4 dan ACTIVE, 5 eve WAITING
 *   reservations  1 of ann, HELD, seats 1 and 2; 2 of dan, CONFIRMED, seats 5 and 6
 */
#ifndef ADMITONE_TEST_TWO_STORES_H
#define ADMITONE_TEST_TWO_STORES_H

#include "hot/redis/store.h"
#include "ledger_raw.h"
#include "service/reconcile.h"

#define TWO_STORES_WAIT_MS 200
/* How far away the end of stays and holds is. */
#define TWO_STORES_STAY_MS 600000

struct two_stores {
    struct harness h;
    struct ledger *ledger;
    struct redis_store *redis;
    struct queues *queues;
    struct seats *seats;
    int64_t event_key;
    int64_t section_key;
    int64_t began_ms;
    struct reconcile reconcile;
};

void two_stores_open(struct two_stores *t);
void two_stores_close(struct two_stores *t);
/* For cmocka, with a new struct two_stores as the state. */
int two_stores_set_up(void **state);
int two_stores_tear_down(void **state);

/* Made an hour before, so that it is not too young. */
struct uuid two_stores_id(const struct two_stores *t, unsigned char number);

/* In the ledger alone. */
void ledger_takes(struct two_stores *t, uint64_t seq, const char *user, enum entry_status status,
                  int64_t expires_ms);
void ledger_admits(struct two_stores *t, uint64_t seq);
void ledger_ends(struct two_stores *t, uint64_t seq, enum entry_status final);
void ledger_holds(struct two_stores *t, struct uuid id, const char *user, uint64_t seq,
                  uint32_t first, uint32_t count);
void ledger_confirms(struct two_stores *t, struct uuid id, const char *user);
void ledger_cancels(struct two_stores *t, struct uuid id, const char *user);
enum entry_status ledger_status(struct two_stores *t, uint64_t seq);

/* In the hot store alone. */
struct place hot_place(struct two_stores *t, uint64_t seq);
bool hot_ends(struct two_stores *t, uint64_t seq, enum entry_status final);
/* Adds an entry to the hot store that the ledger does not have. */
void hot_gets_entry(struct two_stores *t, uint64_t seq, const char *user, const char *step);
/* One that entered then; the one above did long ago. */
void hot_gets_entry_of(struct two_stores *t, uint64_t seq, const char *user, const char *step,
                       int64_t joined_ms);
bool hot_follows(struct two_stores *t, struct uuid id, enum reservation_status status);
/* HELD or CONFIRMED, of that user. */
void hot_gets_seats(struct two_stores *t, struct uuid id, const char *user, uint64_t seq,
                    uint32_t first, uint32_t count, enum reservation_status status);
void hot_frees_seat(struct two_stores *t, uint32_t seat);
enum claim_outcome hot_claims(struct two_stores *t, struct uuid id, const char *user, uint64_t seq,
                              uint32_t seat);
size_t hot_admits(struct two_stores *t);
/* The first ten seats, a letter each. */
void assert_first_seats(struct two_stores *t, const char *letters);

/* Compares the stores and checks the number of differences. */
void assert_differences(struct two_stores *t, size_t count);
/* Repairs the differences that were found. */
void repair_found(struct two_stores *t);
/* One difference is found, of that kind; repairing ends so; then nothing differs. */
void assert_mended(struct two_stores *t, enum difference_kind kind);

#endif
