/*
 * queue_steps: a store of waiting rooms under test, and the operations of port/queue.h as plain
 * functions that wait for their answer. Submitted records and reported expiries are recorded in
 * order.
 */
#ifndef ADMITONE_TEST_QUEUE_STEPS_H
#define ADMITONE_TEST_QUEUE_STEPS_H

#include <pthread.h>

#include "base/map.h"
#include "queue_suite.h"

/* The beginning of an interval, whether it is one of seconds or of hours. */
#define T0 INT64_C(1700002800000)
#define SECOND 1000

enum heard_kind { HEARD_ENTER, HEARD_ADMIT, HEARD_EXPIRED, HEARD_CLAIM };

/* One for each entry; of a claim entry.seq is its id's number (seats_steps.h). */
struct heard {
    enum heard_kind kind;
    int64_t event_key;
    int64_t now_ms;
    struct entry_change entry;
};

struct store {
    const struct queue_adapter *adapter;
    void *fixture;
    struct queues *queues;
    struct seats *seats;
    _Atomic int verdict; /* what submit answers: an enum err */
    pthread_mutex_t lock;
    struct heard *heard; /* under lock, as the rest */
    size_t heard_count;
    size_t heard_cap;
    struct map sections; /* under lock: a reservation's id → the key of its section */
};

void store_open(struct store *s, const struct queue_adapter *adapter);
void store_close(struct store *s);
/* Notes what the store submitted. From any thread. */
void store_note(struct store *s, struct heard h);
/* Until *done, with the adapter's help; aborts after a minute. */
void store_wait(struct store *s, const bool *done);
/* The section of a reservation, for callers that only have its id; 0: unknown. */
void store_note_section(struct store *s, const struct uuid *id, int64_t section_key);
int64_t store_section(struct store *s, const struct uuid *id);
/* The reports since the last call; returns how many. */
size_t store_heard(struct store *s, struct heard *out, size_t max);

/* OPEN, 1,000 may wait and 100 be active, 50 per second, for 600 s; 300 s of grace. */
struct event steps_event(int64_t key);
/* With the next version. */
void store_configure(struct store *s, struct event *e);
/* Unchanged. An event without a name gets its key as its name. From any thread, like the next one.
 */
void step_configure(struct store *s, const struct event *e);
void step_remove(struct store *s, int64_t key, int64_t version);
/* Between the two the store is filled: step_restore_event first. */
void store_rebuild_begins(struct store *s);
void store_rebuild_ends(struct store *s);
void step_restore_event(struct store *s, const struct event *e);

struct entered {
    enum err result;
    enum enter_outcome outcome;
    struct place place;
    uint64_t closes;
    int64_t opens_at_ms;
    struct seat_counts seats;
    bool has_stock;
    uint64_t stays_ended;
    bool reserving;
};
struct entered step_enter(struct store *s, int64_t key, str user, unsigned lane, int64_t now_ms);
/* The same at T0, of the default lane, for seats of that section. */
struct entered step_enter_for(struct store *s, int64_t key, str user, int64_t section);
/* The same at a time; it finds the place that is there, and takes none. */
struct entered step_enter_only_there(struct store *s, int64_t key, str user, int64_t now_ms);
/* A new place, of the default lane; pending. */
uint64_t step_take(struct store *s, int64_t key, const char *user, int64_t now_ms);
/* The same, and the ledger has it. */
uint64_t step_take_kept(struct store *s, int64_t key, const char *user, int64_t now_ms);

enum err step_settle(struct store *s, int64_t key, bool admissions, const uint64_t *seqs,
                     const bool *kept, size_t count, int64_t now_ms, struct place *places);
/* One of them; as it is then. */
struct place step_settle_enter(struct store *s, int64_t key, uint64_t seq, bool kept);
struct place step_settle_admit(struct store *s, int64_t key, uint64_t seq, bool kept);

/* Admits entries; the admissions are pending. `out` has room for ADMIT_MAX. */
size_t step_admit(struct store *s, int64_t key, int64_t now_ms, struct entry_change *out);
enum err step_admit_result(struct store *s, int64_t key, int64_t now_ms, struct entry_change *out,
                           size_t *count);
/* The same, and the ledger has it. */
size_t step_admit_kept(struct store *s, int64_t key, int64_t now_ms, struct entry_change *out);

struct place step_look(struct store *s, int64_t key, uint64_t seq, int64_t now_ms);
/* Looks at `count` places; counts and state may be NULL. */
enum err step_look_at(struct store *s, int64_t key, struct look_item *items, size_t count,
                      int64_t now_ms, struct queue_counts *counts, enum event_state *state);
/* The user's name into `out`; its length, 0 when it is not known. */
size_t step_look_user(struct store *s, int64_t key, uint64_t seq, int64_t now_ms,
                      char out[USER_ID_BYTES_MAX]);
struct queue_counts step_counts(struct store *s, int64_t key);
bool step_has_stock(struct store *s, int64_t key);
bool step_end(struct store *s, int64_t key, uint64_t seq, enum entry_status final);

void assert_step_counts(struct store *s, int64_t key, uint64_t waiting, uint64_t active);

#endif
