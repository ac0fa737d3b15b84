/*
 * queue_fixture: a queue with the rules that most tests use, and the steps that most of them take.
 * Every step asserts its result.
 */
#ifndef ADMITONE_TEST_QUEUE_FIXTURE_H
#define ADMITONE_TEST_QUEUE_FIXTURE_H

#include "core/queue.h"

/* The beginning of an interval, whether it is one of seconds or of hours. */
#define T0 INT64_C(1700002800000)
#define SECOND 1000

struct queue_fixture {
    struct queue *q;
    struct queue_config config;
    int64_t swept_ms; /* by sweep */
};

/* The results of admit, purge and sweep. */
extern struct entry_change changes[ADMIT_MAX];

/* OPEN, 100,000 may wait and 100 be active, 50 per second, for 600 s; 300 s of grace. */
void queue_fixture_open(struct queue_fixture *r);
void queue_fixture_close(struct queue_fixture *r);
/* Applies the test's changes of r->config. */
void queue_fixture_configure(struct queue_fixture *r);
void queue_fixture_set_state(struct queue_fixture *r, enum event_state state);

/* A new place; its number. */
uint64_t enter_pending(struct queue_fixture *r, const char *user, unsigned lane, int64_t now_ms);
/* The same, and the ledger has it at once. */
uint64_t enter(struct queue_fixture *r, const char *user, unsigned lane, int64_t now_ms);
/* Adds entries that wait since T0: user1 and so on, in the default lane. Opens the event. */
void enter_waiting(struct queue_fixture *r, int count);

/* The entry is known. */
struct place look(const struct queue_fixture *r, uint64_t seq, int64_t now_ms);
enum entry_status status_of(const struct queue_fixture *r, uint64_t seq, int64_t now_ms);
/* How many were admitted, of at most `max`; the ledger has it at once. */
size_t admit_some(struct queue_fixture *r, int64_t now_ms, size_t max);
size_t admit(struct queue_fixture *r, int64_t now_ms);
/* Ticks every second since the last tick; no entry may end. */
void tick_until(struct queue_fixture *r, int64_t now_ms);
/* The same, and then returns how many entries were ended. */
size_t sweep(struct queue_fixture *r, int64_t now_ms);
void assert_counts(const struct queue_fixture *r, uint64_t waiting, uint64_t active);

#endif
