#include "locks_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"

/* ---- workers ---- */

/* The commands of a worker. */
struct job {
    struct task task;
    struct lock_worker *worker;
    void (*run)(struct lock_worker *w, void *arg);
    void *arg;
    sem_t done;
};

static void on_job(struct task *task) {
    struct job *j = CONTAINER_OF(task, struct job, task);
    j->run(j->worker, j->arg);
    sem_post(&j->done);
}

void lock_worker_tell(struct lock_worker *w, void (*run)(struct lock_worker *w, void *arg),
                      void *arg) {
    struct job j = {.task.run = on_job, .worker = w, .run = run, .arg = arg};
    sem_init(&j.done, 0, 0);
    mailbox_post(&w->mailbox, &j.task);
    sem_wait(&j.done);
    sem_destroy(&j.done);
}

static void on_tick(void *to) {
    struct lock_worker *w = to;
    if (w->attached) locks_tick(w->locks, clock_steady_ms());
    if (w->attached && w->ticked != NULL) w->ticked(w);
}

static void *run_worker(void *arg) {
    struct lock_worker *w = arg;
    if (uv_loop_init(&w->loop) != 0) abort();
    redis_fixture_attach(w->store, &w->loop);
    w->attached = true;
    mailbox_init(&w->mailbox, &w->loop);
    ticker_init(&w->ticker, &w->loop, on_tick, w);
    ticker_start(&w->ticker, w->tick_ms);
    sem_post(&w->ready);
    while (!w->ends) uv_run(&w->loop, UV_RUN_ONCE);
    mailbox_close(&w->mailbox);
    ticker_close(&w->ticker);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&w->loop) != 0) abort();
    mailbox_deinit(&w->mailbox);
    return NULL;
}

void lock_worker_begin(struct lock_worker *w, struct redis_store *s, int64_t tick_ms) {
    *w = (struct lock_worker){.store = s, .locks = redis_store_locks(s), .tick_ms = tick_ms};
    sem_init(&w->ready, 0, 0);
    assert_int_equal(pthread_create(&w->thread, NULL, run_worker, w), 0);
    sem_wait(&w->ready);
}

void lock_worker_vanish(struct lock_worker *w, void *arg) {
    (void)arg;
    redis_store_detach(w->store);
    w->attached = false;
}

static void end(struct lock_worker *w, void *arg) {
    if (w->attached) lock_worker_vanish(w, arg);
    w->ends = true;
}

void lock_worker_end(struct lock_worker *w) {
    lock_worker_tell(w, end, NULL);
    pthread_join(w->thread, NULL);
    sem_destroy(&w->ready);
}

/* ---- the fixture ---- */

int locks_fixture_set_up(void **state) {
    struct locks_fixture *s = calloc(1, sizeof *s);
    for (int i = 0; i < 2; i++) s->stores[i] = redis_fixture_store(true);
    redis_fixture_begin(s->stores[0], EPOCH);
    redis_fixture_join(s->stores[1]);
    redis_fixture_await_listeners(2);
    lock_worker_begin(&s->a, s->stores[0], TICK_MS);
    lock_worker_begin(&s->b, s->stores[1], TICK_MS);
    *state = s;
    return 0;
}

int locks_fixture_tear_down(void **state) {
    struct locks_fixture *s = *state;
    lock_worker_end(&s->a);
    lock_worker_end(&s->b);
    for (int i = 0; i < 2; i++) redis_store_free(s->stores[i]);
    free(s);
    return 0;
}

/* ---- operations ---- */

static void on_done(struct lock_op *op) {
    struct lock_request *w = CONTAINER_OF(op, struct lock_request, op);
    if (w->done) abort(); /* twice */
    w->done = true;
}

void lock_acquire(struct lock_worker *w, void *request) {
    locks_acquire(w->locks, &((struct lock_request *)request)->op);
}

struct lock_request lock_request_for(int64_t wait_ms, int64_t lease_ms) {
    return (struct lock_request){.op = {.name = STR(SEAT),
                                        .now_ms = 1, /* not what counts */
                                        .wait_ms_max = wait_ms,
                                        .lease_ms = lease_ms,
                                        .done = on_done}};
}

void lock_ask(struct lock_worker *w, struct lock_request *request, int64_t wait_ms,
              int64_t lease_ms) {
    *request = lock_request_for(wait_ms, lease_ms);
    lock_worker_tell(w, lock_acquire, request);
}

void lock_await(const struct lock_request *w) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    while (!w->done) {
        if (clock_steady_ns() > deadline_ns) abort();
        usleep(100);
    }
}

void lock_assert_acquired(const struct lock_request *w) {
    lock_await(w);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_ACQUIRED);
    assert_int_equal(w->op.fence >> EPOCH_COUNT_BITS, EPOCH);
}

void lock_have(struct lock_worker *w, struct lock_request *request, int64_t lease_ms) {
    lock_ask(w, request, 0, lease_ms);
    lock_assert_acquired(request);
}

void lock_wait_behind(struct lock_worker *w, struct lock_request *request, int64_t in_line) {
    lock_ask(w, request, WAIT_MS, LEASE_MS);
    redis_fixture_await_number(in_line, "ZCARD " SEAT_KEY ":line");
}

struct keeping {
    struct lock_hold_op op;
    bool releases;
    _Atomic bool done;
};

static void on_kept(struct lock_hold_op *op) {
    CONTAINER_OF(op, struct keeping, op)->done = true;
}

static void keep(struct lock_worker *w, void *arg) {
    struct keeping *k = arg;
    (k->releases ? locks_release : locks_renew)(w->locks, &k->op);
}

struct lock_hold_op lock_keep(struct lock_worker *w, bool releases, uint64_t fence) {
    struct keeping k = {.op = {.name = STR(SEAT),
                               .fence = fence,
                               .now_ms = 1,
                               .lease_ms = LEASE_MS,
                               .done = on_kept},
                        .releases = releases};
    lock_worker_tell(w, keep, &k);
    while (!k.done) usleep(100);
    return k.op;
}

enum lock_outcome lock_release(struct lock_worker *w, const struct lock_request *request) {
    struct lock_hold_op op = lock_keep(w, true, request->op.fence);
    assert_int_equal(op.result, ERR_OK);
    return op.outcome;
}

enum lock_outcome lock_renew(struct lock_worker *w, const struct lock_request *request) {
    struct lock_hold_op op = lock_keep(w, false, request->op.fence);
    assert_int_equal(op.result, ERR_OK);
    return op.outcome;
}
