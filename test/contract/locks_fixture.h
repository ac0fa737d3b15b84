/*
 * locks_fixture: two nodes that share the named locks of a real Redis (redis_fixture.h), by its
 * clock. A node is a separate store here; its workers are threads with loops, which execute the
 * test's commands and tick in between. All functions use one lock, SEAT, unless they name another.
 */
#ifndef ADMITONE_TEST_CONTRACT_LOCKS_FIXTURE_H
#define ADMITONE_TEST_CONTRACT_LOCKS_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "port/locks.h"
#include "redis_fixture.h"
#include "run/mailbox.h"
#include "run/ticker.h"

#define EPOCH 5
#define TICK_MS 20
#define LEASE_MS 30000
#define SHORT_LEASE_MS 400
#define WAIT_MS 20000
/* A limit for operations that must be much faster. */
#define DEADLINE_NS INT64_C(60000000000)
#define SEAT "T/1/A/17"
#define SEAT_KEY "lock:{T:1}:A/17"

struct lock_worker {
    struct redis_store *store;
    struct locks *locks;
    int64_t tick_ms;
    pthread_t thread;
    uv_loop_t loop;
    struct mailbox mailbox;
    struct ticker ticker;
    sem_t ready;
    bool attached;
    bool ends;
    void (*ticked)(struct lock_worker *w); /* may be NULL */
};

void lock_worker_begin(struct lock_worker *w, struct redis_store *s, int64_t tick_ms);
/* Runs it on the worker's thread, and waits until it has. */
void lock_worker_tell(struct lock_worker *w, void (*run)(struct lock_worker *w, void *arg),
                      void *arg);
/* A command: the worker disappears without releasing anything. */
void lock_worker_vanish(struct lock_worker *w, void *arg);
void lock_worker_end(struct lock_worker *w);

struct lock_request {
    struct lock_op op;
    _Atomic bool done;
};

/* With a worker each. */
struct locks_fixture {
    struct redis_store *stores[2];
    struct lock_worker a;
    struct lock_worker b;
    struct lock_request requests[6]; /* the test's; one that fails may leave some of them waiting */
};

int locks_fixture_set_up(void **state);
int locks_fixture_tear_down(void **state);

struct lock_request lock_request_for(int64_t wait_ms, int64_t lease_ms);
/* A command with a request. */
void lock_acquire(struct lock_worker *w, void *request);
void lock_ask(struct lock_worker *w, struct lock_request *request, int64_t wait_ms,
              int64_t lease_ms);
/* Until it is answered. */
void lock_await(const struct lock_request *w);
void lock_assert_acquired(const struct lock_request *w);
/* Acquires it at once. */
void lock_have(struct lock_worker *w, struct lock_request *request, int64_t lease_ms);
/* The same, and the request is then the last of `in_line` in the line. */
void lock_wait_behind(struct lock_worker *w, struct lock_request *request, int64_t in_line);

/* Releases or renews the lock; the second function also checks that the result is OK. */
struct lock_hold_op lock_keep(struct lock_worker *w, bool releases, uint64_t fence);
enum lock_outcome lock_release(struct lock_worker *w, const struct lock_request *request);
enum lock_outcome lock_renew(struct lock_worker *w, const struct lock_request *request);

#endif
