/*
 * service_house: waiting rooms and seats as the server has them, without its network: the SQLite
 * ledger in a folder of its own, the hot store in memory, real workers, and the use cases on top.
 * The test's own thread is a worker too (ledger_harness.h).
 */
#ifndef ADMITONE_TEST_SERVICE_HOUSE_H
#define ADMITONE_TEST_SERVICE_HOUSE_H

#include "hot/memory.h"
#include "hot/memory_locks.h"
#include "ledger_raw.h"
#include "service/admission.h"
#include "service/recovery.h"
#include "service/reservations.h"

#define HOUSE_WORKERS 4

struct house {
    struct harness h;
    struct ledger *ledger;
    struct memory *hot;
    struct catalogue *catalogue;
    struct events events;
    struct memory_locks *locks;
    struct waiting_room room;
    struct reservations reservations;
    struct desk desk; /* of the test's own thread */
    struct worker workers[HOUSE_WORKERS];
    struct desk desks[HOUSE_WORKERS]; /* of the workers */
    struct admission_share shares[HOUSE_WORKERS];
    bool working;
    bool ticking;
    int64_t key; /* of CONCERT/1 */
};

/* An empty ledger with the event CONCERT/1, OPEN, by these rules. Nobody works yet. */
void house_build(struct house *h, const struct queue_rules *rules);
/* The same with any event CONCERT/1. */
void house_build_event(struct house *h, const struct event *wanted);
/* From the ledger, as a start does it, and back. What was open is closed first. */
void house_recover(struct house *h);
void house_tear_down(struct house *h);

void house_start_workers(struct house *h);
/* The same, and each of them ticks the one event. */
void house_start_ticking_workers(struct house *h, int64_t tick_ms);
/* When nothing of theirs is under way. */
void house_stop_workers(struct house *h);

/* Work for a worker's thread. */
struct errand {
    struct task task; /* first, so that a task is its errand */
    void (*work)(struct errand *e);
    struct house *house;
    _Atomic bool done;
};
void house_send(struct house *h, int worker, struct errand *e);

/* The event's rules or state change, in the hot store alone. */
void house_configure(struct house *h, enum event_state state, const struct queue_rules *rules);

/* The use cases on the test's own thread; each waits for its answer. */
enum err house_enter(struct house *h, const char *user, unsigned lane, struct room_entering *out);
enum err house_end(struct house *h, uint64_t seq, enum entry_status final);
enum err house_look(struct house *h, uint64_t seq, struct room_looking *out);
enum err house_tick(struct house *h, size_t *admitted);
void house_wait_idle(struct house *h);
void house_wait_writable(struct house *h);

/* The hot store as it is, at some time. From any thread. */
struct place house_place(struct house *h, uint64_t seq, int64_t now_ms);
struct queue_counts house_counts(struct house *h);

/* Fails the test unless ledger and hot store have the same entries and seats, and the ledger is
 * sound. */
void house_assert_agreement(struct house *h);

#endif
