/*
 * service_fixture: waiting rooms and seats as in the server, without its network: an SQLite ledger
 * in a temporary folder, the hot store in memory, real workers, and the services. The test's own
 * thread is a worker too (ledger_harness.h).
 */
#ifndef ADMITONE_TEST_SERVICE_FIXTURE_H
#define ADMITONE_TEST_SERVICE_FIXTURE_H

#include "hot/memory.h"
#include "hot/memory_locks.h"
#include "ledger_raw.h"
#include "service/admission.h"
#include "service/hold.h"
#include "service/recovery.h"

#define FIXTURE_WORKERS 4

struct fixture {
    struct harness h;
    struct ledger *ledger;
    struct memory *hot;
    struct catalogue *catalogue;
    struct events events;
    struct memory_locks *locks;
    struct waiting_room room;
    struct reservations reservations;
    struct lock_client lock_client; /* of the test's own thread */
    struct worker workers[FIXTURE_WORKERS];
    struct lock_client desks[FIXTURE_WORKERS]; /* of the workers */
    struct admission_share shares[FIXTURE_WORKERS];
    bool working;
    bool ticking;
    int64_t key; /* of CONCERT/1 */
};

/* An empty ledger with the event CONCERT/1, OPEN, by these rules. Nobody works yet. */
void fixture_build(struct fixture *h, const struct queue_rules *rules);
/* The same with any event CONCERT/1. */
void fixture_build_event(struct fixture *h, const struct event *wanted);
/* Starts the services from the ledger, like the server. Stops them first if they run. */
void fixture_recover(struct fixture *h);
void fixture_tear_down(struct fixture *h);

void fixture_start_workers(struct fixture *h);
/* The same, and each of them ticks the one event. */
void fixture_start_ticking_workers(struct fixture *h, int64_t tick_ms);
/* When none of their operations is under way. */
void fixture_stop_workers(struct fixture *h);

/* Work for a worker's thread. */
struct worker_job {
    struct task task; /* first, so that a task is its job */
    void (*work)(struct worker_job *e);
    struct fixture *fixture;
    _Atomic bool done;
};
void fixture_send(struct fixture *h, int worker, struct worker_job *e);

/* The event's rules or state change, in the hot store alone. */
void fixture_configure(struct fixture *h, enum event_state state, const struct queue_rules *rules);

/* The use cases on the test's own thread; each waits for its answer. */
enum err fixture_enter(struct fixture *h, const char *user, unsigned lane, struct place_enter *out);
enum err fixture_end(struct fixture *h, uint64_t seq, enum entry_status final);
enum err fixture_look(struct fixture *h, uint64_t seq, struct place_look *out);
enum err fixture_tick(struct fixture *h, size_t *admitted);
void fixture_wait_idle(struct fixture *h);
void fixture_wait_writable(struct fixture *h);

/* The hot store as it is, at some time. From any thread. */
struct place fixture_place(struct fixture *h, uint64_t seq, int64_t now_ms);
struct queue_counts fixture_counts(struct fixture *h);

/* Fails the test unless ledger and hot store have the same entries and seats, and the ledger is
 * sound. */
void fixture_assert_agreement(struct fixture *h);

#endif
