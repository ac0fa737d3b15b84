/* The contract of named locks, step by step and with several threads at once. */
#include "locks_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

#define T0 LOCKS_SUITE_T0
#define LEASE_MS 3000
#define WAIT_MS 10000
#define EPOCH 7
#define DEADLINE_MS 60000
/* This many runs complete all operations that are under way. */
#define RUNS 20
#define MANY 500

static const struct locks_adapter *adapter;

struct fixture {
    void *own;
    struct locks *locks;
};

static void open_epoch(struct fixture *f, uint32_t epoch) {
    f->locks = adapter->open(&f->own, epoch);
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    adapter->thread_begins();
    open_epoch(f, EPOCH);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    adapter->close(f->own);
    adapter->thread_ends();
    mem_free(f);
    return 0;
}

/* ---- the operations, waited for ---- */

struct waiter {
    struct lock_op op;
    bool done;
    size_t order; /* how many were done before it */
};
static _Thread_local size_t done_count;

static void on_done(struct lock_op *op) {
    struct waiter *w = CONTAINER_OF(op, struct waiter, op);
    if (w->done) abort(); /* twice */
    w->done = true;
    w->order = done_count++;
}

static void run_callbacks(void) {
    for (int i = 0; i < RUNS; i++) adapter->run_callbacks();
}

static void wait_for(const bool *done) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)DEADLINE_MS * 1000000;
    while (!*done) {
        if (clock_steady_ns() > deadline_ns) abort();
        adapter->run_callbacks();
    }
}

static void ask(struct fixture *f, struct waiter *w, const char *name, int64_t now_ms,
                int64_t wait_ms_max) {
    *w = (struct waiter){.op = {.name = str_of(name),
                                .now_ms = now_ms,
                                .wait_ms_max = wait_ms_max,
                                .lease_ms = LEASE_MS,
                                .done = on_done}};
    locks_acquire(f->locks, &w->op);
}

static void assert_acquired(const struct waiter *w) {
    wait_for(&w->done);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_ACQUIRED);
}

/* At once; its fence. */
static uint64_t take(struct fixture *f, const char *name, int64_t now_ms) {
    struct waiter w;
    ask(f, &w, name, now_ms, 0);
    assert_acquired(&w);
    assert_int_equal(w.op.until_ms, now_ms + LEASE_MS);
    assert_int_equal(w.op.waited_ms, 0);
    return w.op.fence;
}

struct keeping {
    struct lock_hold_op op;
    bool done;
};

static void on_kept(struct lock_hold_op *op) {
    CONTAINER_OF(op, struct keeping, op)->done = true;
}

static enum lock_outcome keep_once(struct fixture *f, bool releases, const char *name,
                                   uint64_t fence, int64_t now_ms, enum err *result) {
    struct keeping k = {.op = {.name = str_of(name),
                               .fence = fence,
                               .now_ms = now_ms,
                               .lease_ms = LEASE_MS,
                               .done = on_kept}};
    if (releases)
        locks_release(f->locks, &k.op);
    else
        locks_renew(f->locks, &k.op);
    wait_for(&k.done);
    *result = k.op.result;
    return k.op.outcome;
}

static enum lock_outcome keep(struct fixture *f, bool releases, const char *name, uint64_t fence,
                              int64_t now_ms) {
    enum err result;
    return keep_once(f, releases, name, fence, now_ms, &result);
}

static enum lock_outcome renew(struct fixture *f, const char *name, uint64_t fence,
                               int64_t now_ms) {
    return keep(f, false, name, fence, now_ms);
}

static enum lock_outcome release(struct fixture *f, const char *name, uint64_t fence,
                                 int64_t now_ms) {
    return keep(f, true, name, fence, now_ms);
}

/* ---- one after the other ---- */

static void waiting_users_are_admitted_in_order_of_arrival(void **state) {
    struct fixture *f = *state;
    struct waiter w[5];
    uint64_t fence = take(f, "T/1/seat", T0);
    for (int i = 0; i < 5; i++) ask(f, &w[i], "T/1/seat", T0 + 5 - i, WAIT_MS); /* clocks differ */
    for (int i = 0; i < 5; i++) {
        run_callbacks();
        assert_false(w[i].done);
        assert_int_equal(release(f, "T/1/seat", fence, T0 + 100), LOCK_RELEASED);
        assert_acquired(&w[i]);
        assert_true(w[i].op.fence > fence);
        assert_int_equal(w[i].op.until_ms, T0 + 100 + LEASE_MS);
        assert_int_equal(w[i].op.waited_ms, 95 + i);
        fence = w[i].op.fence;
    }
    assert_int_equal(release(f, "T/1/seat", fence, T0 + 100), LOCK_RELEASED);
    take(f, "T/1/seat", T0 + 100);
}

static void fences_grow_over_all_names_and_restarts_pitfall_20(void **state) {
    struct fixture *f = *state;
    uint64_t last = (uint64_t)EPOCH << EPOCH_COUNT_BITS;
    for (int i = 0; i < 100; i++) {
        uint64_t fence = take(f, "T/1/seat", T0);
        assert_true(fence > last);
        assert_int_equal(fence >> EPOCH_COUNT_BITS, EPOCH);
        last = fence;
        assert_int_equal(release(f, "T/1/seat", fence, T0), LOCK_RELEASED);
        if (i % 10 != 0) continue;
        uint64_t other = take(f, i % 20 == 0 ? "T/1/other" : "T/1/and another", T0 + i * LEASE_MS);
        assert_true(other > last);
        last = other;
    }
    adapter->close(f->own);
    open_epoch(f, EPOCH + 1);
    uint64_t fence = take(f, "T/1/seat", T0);
    assert_true(fence > last);
    assert_int_equal(fence >> EPOCH_COUNT_BITS, EPOCH + 1);
}

/* ---- time ---- */

static void a_wait_that_is_over_is_an_outcome_not_an_error_pitfall_21(void **state) {
    struct fixture *f = *state;
    struct waiter w;
    struct waiter never;
    uint64_t fence = take(f, "T/1/seat", T0);
    ask(f, &never, "T/1/seat", T0, 0);
    wait_for(&never.done);
    assert_int_equal(never.op.result, ERR_OK);
    assert_int_equal(never.op.outcome, LOCK_TIMED_OUT);
    ask(f, &w, "T/1/seat", T0, 1000);
    locks_tick(f->locks, T0 + 999);
    run_callbacks();
    assert_false(w.done);
    locks_tick(f->locks, T0 + 1000);
    wait_for(&w.done);
    assert_int_equal(w.op.result, ERR_OK);
    assert_int_equal(w.op.outcome, LOCK_TIMED_OUT);
    assert_int_equal(w.op.waited_ms, 1000);
    assert_int_equal(renew(f, "T/1/seat", fence, T0 + 1000), LOCK_KEPT);
}

static void a_request_that_gives_up_keeps_the_order_of_the_others(void **state) {
    struct fixture *f = *state;
    static const int64_t waits_ms[] = {2000, 1000, 2000, 1000, 1000, 2000};
    struct waiter w[7];
    uint64_t fence = take(f, "T/1/seat", T0);
    for (int i = 0; i < 6; i++) ask(f, &w[i], "T/1/seat", T0, waits_ms[i]);
    locks_tick(f->locks, T0 + 1500);
    run_callbacks();
    for (int i = 0; i < 6; i++) assert_int_equal(w[i].done, waits_ms[i] == 1000);
    ask(f, &w[6], "T/1/seat", T0 + 1500, 500);
    static const int order[] = {0, 2, 5, 6};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(release(f, "T/1/seat", fence, T0 + 1600), LOCK_RELEASED);
        assert_acquired(&w[order[i]]);
        fence = w[order[i]].op.fence;
    }
    /* Without a tick, too, a request that has waited for too long does not get it. */
    ask(f, &w[0], "T/1/seat", T0 + 1600, 100);
    ask(f, &w[1], "T/1/seat", T0 + 1600, 1000);
    assert_int_equal(release(f, "T/1/seat", fence, T0 + 1700), LOCK_RELEASED);
    wait_for(&w[0].done);
    assert_int_equal(w[0].op.outcome, LOCK_TIMED_OUT);
    assert_acquired(&w[1]);
}

static void a_holder_that_renews_keeps_it_and_one_that_is_dead_does_not(void **state) {
    struct fixture *f = *state;
    struct waiter w;
    uint64_t fence = take(f, "T/1/seat", T0);
    ask(f, &w, "T/1/seat", T0, INT64_C(100) * LEASE_MS);
    for (int64_t i = 1; i <= 10; i++) {
        int64_t now_ms = T0 + i * (LEASE_MS - 1);
        locks_tick(f->locks, now_ms);
        assert_int_equal(renew(f, "T/1/seat", fence, now_ms), LOCK_KEPT);
    }
    int64_t over_ms = T0 + 10 * (LEASE_MS - 1) + LEASE_MS;
    locks_tick(f->locks, over_ms - 1);
    run_callbacks();
    assert_false(w.done);
    locks_tick(f->locks, over_ms);
    assert_acquired(&w);
    assert_true(w.op.fence > fence);
    assert_int_equal(w.op.until_ms, over_ms + LEASE_MS);
}

/* The first holder was paused past its lease. It is told so, and the second one keeps the lock. */
static void a_holder_past_its_lease_has_lost_the_lock_and_harms_no_other_pitfall_20(void **state) {
    struct fixture *f = *state;
    struct waiter second;
    uint64_t first = take(f, "T/1/seat", T0);
    ask(f, &second, "T/1/seat", T0, WAIT_MS);
    assert_int_equal(renew(f, "T/1/seat", first, T0 + LEASE_MS), LOCK_LOST);
    assert_acquired(&second); /* that very operation passed it on */
    assert_int_equal(release(f, "T/1/seat", first, T0 + LEASE_MS), LOCK_LOST);
    assert_int_equal(renew(f, "T/1/seat", second.op.fence, T0 + LEASE_MS), LOCK_KEPT);
    struct waiter third;
    ask(f, &third, "T/1/seat", T0 + LEASE_MS, 0);
    wait_for(&third.done);
    assert_int_equal(third.op.outcome, LOCK_TIMED_OUT);
    assert_int_equal(release(f, "T/1/seat", second.op.fence, T0 + LEASE_MS), LOCK_RELEASED);
    assert_int_equal(release(f, "T/1/seat", second.op.fence, T0 + LEASE_MS), LOCK_LOST);
}

static void an_ended_lease_is_lost_though_no_other_client_wants_the_lock(void **state) {
    struct fixture *f = *state;
    uint64_t fence = take(f, "T/1/seat", T0);
    assert_int_equal(renew(f, "T/1/seat", fence, T0 + LEASE_MS), LOCK_LOST);
    fence = take(f, "T/1/seat", T0);
    assert_int_equal(release(f, "T/1/seat", fence, T0 + LEASE_MS), LOCK_LOST);
    assert_int_equal(renew(f, "T/1/never", fence, T0), LOCK_LOST);
    fence = take(f, "T/1/seat", T0);
    locks_tick(f->locks, T0 + LEASE_MS);
    assert_int_equal(renew(f, "T/1/seat", fence, T0), LOCK_LOST);
}

static void a_request_after_the_lease_comes_behind_the_waiters(void **state) {
    struct fixture *f = *state;
    struct waiter first;
    struct waiter late;
    take(f, "T/1/seat", T0);
    ask(f, &first, "T/1/seat", T0, WAIT_MS);
    ask(f, &late, "T/1/seat", T0 + LEASE_MS, WAIT_MS);
    assert_acquired(&first);
    run_callbacks();
    assert_false(late.done);
    assert_int_equal(release(f, "T/1/seat", first.op.fence, T0 + LEASE_MS), LOCK_RELEASED);
    assert_acquired(&late);
    assert_true(late.op.fence > first.op.fence);
}

/* Waiters that die: they acquire the lock, do not use it, and the lease ends. */
static void a_dead_waiter_does_not_block_the_line(void **state) {
    struct fixture *f = *state;
    struct waiter w[4];
    uint64_t fence = take(f, "T/1/seat", T0);
    for (int i = 0; i < 4; i++) ask(f, &w[i], "T/1/seat", T0, INT64_C(10) * LEASE_MS);
    assert_int_equal(release(f, "T/1/seat", fence, T0), LOCK_RELEASED);
    for (int64_t i = 1; i <= 3; i++) locks_tick(f->locks, T0 + i * LEASE_MS);
    for (int i = 0; i < 4; i++) assert_acquired(&w[i]);
    for (int i = 0; i < 3; i++) {
        assert_true(w[i].order < w[i + 1].order && w[i].op.fence < w[i + 1].op.fence);
        assert_int_equal(release(f, "T/1/seat", w[i].op.fence, T0 + 3 * LEASE_MS), LOCK_LOST);
    }
    assert_int_equal(release(f, "T/1/seat", w[3].op.fence, T0 + 3 * LEASE_MS), LOCK_RELEASED);
}

static void a_lock_that_many_wait_for_is_nothing_to_other_names(void **state) {
    struct fixture *f = *state;
    struct waiter *w = mem_new(MANY * sizeof *w);
    uint64_t fence = take(f, "T/1/popular", T0);
    for (int i = 0; i < MANY; i++) ask(f, &w[i], "T/1/popular", T0, WAIT_MS);
    char name[] = "T/1/other 000";
    for (int i = 0; i < MANY; i++) {
        name[10] = (char)('0' + i / 100);
        name[11] = (char)('0' + i / 10 % 10);
        name[12] = (char)('0' + i % 10);
        uint64_t other = take(f, name, T0);
        assert_int_equal(release(f, "T/1/popular", fence + 1, T0), LOCK_LOST);
        if (i % 2 == 0) assert_int_equal(release(f, name, other, T0), LOCK_RELEASED);
    }
    assert_int_equal(renew(f, "T/1/popular", fence, T0), LOCK_KEPT);
    locks_tick(f->locks, T0 + WAIT_MS);
    for (int i = 0; i < MANY; i++) {
        wait_for(&w[i].done);
        assert_int_equal(w[i].op.outcome, LOCK_TIMED_OUT);
    }
    mem_free(w);
}

/* ---- a worker that stops ---- */

/* A worker that executes one command after the other. */
struct worker {
    struct fixture *f;
    pthread_barrier_t told;
    pthread_barrier_t did;
    pthread_t thread;
    struct waiter waiters[4];
    uint64_t fence;
};

static void its_first_waits(struct worker *w) {
    w->fence = take(w->f, "T/1/its own", T0);
    ask(w->f, &w->waiters[0], "T/1/seat", T0, WAIT_MS);
    ask(w->f, &w->waiters[1], "T/1/other", T0, WAIT_MS);
    ask(w->f, &w->waiters[2], "T/1/seat", T0, WAIT_MS);
}

static void its_last_wait(struct worker *w) {
    ask(w->f, &w->waiters[3], "T/1/seat", T0, WAIT_MS);
}

static void its_end(struct worker *w) {
    run_callbacks();
    for (int i = 0; i < 4; i++)
        if (w->waiters[i].done) abort(); /* nothing has happened yet */
    locks_give_up(w->f->locks);
    for (int i = 0; i < 4; i++) wait_for(&w->waiters[i].done);
}

static void (*const parts[])(struct worker *w) = {its_first_waits, its_last_wait, its_end};

static void *run_worker(void *arg) {
    struct worker *w = arg;
    adapter->thread_begins();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        pthread_barrier_wait(&w->told);
        parts[i](w);
        pthread_barrier_wait(&w->did);
    }
    adapter->thread_ends();
    return NULL;
}

static void worker_begin(struct worker *w, struct fixture *f) {
    w->f = f;
    pthread_barrier_init(&w->told, NULL, 2);
    pthread_barrier_init(&w->did, NULL, 2);
    assert_int_equal(pthread_create(&w->thread, NULL, run_worker, w), 0);
}

/* The next part. */
static void worker_go_on(struct worker *w) {
    pthread_barrier_wait(&w->told);
    pthread_barrier_wait(&w->did);
}

static void worker_end(struct worker *w) {
    pthread_join(w->thread, NULL);
    pthread_barrier_destroy(&w->told);
    pthread_barrier_destroy(&w->did);
}

/* In the line for "T/1/seat": mine, two of the other's, mine, mine, the other's. */
static void a_client_that_stops_removes_only_its_own_waiters(void **state) {
    struct fixture *f = *state;
    struct worker other = {0};
    struct waiter mine[5];
    uint64_t fence = take(f, "T/1/seat", T0);
    uint64_t other_fence = take(f, "T/1/other", T0);
    ask(f, &mine[0], "T/1/seat", T0, WAIT_MS);
    worker_begin(&other, f);
    worker_go_on(&other);
    ask(f, &mine[1], "T/1/seat", T0, WAIT_MS);
    ask(f, &mine[2], "T/1/seat", T0, WAIT_MS);
    ask(f, &mine[4], "T/1/its own", T0, WAIT_MS);
    worker_go_on(&other);
    worker_go_on(&other); /* it gives up */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(other.waiters[i].op.result, ERR_OK);
        assert_int_equal(other.waiters[i].op.outcome, LOCK_TIMED_OUT);
    }
    ask(f, &mine[3], "T/1/seat", T0, WAIT_MS); /* behind them, although the last one has left */
    run_callbacks();
    for (int i = 0; i < 5; i++) assert_false(mine[i].done);
    assert_int_equal(renew(f, "T/1/its own", other.fence, T0), LOCK_KEPT);
    assert_int_equal(renew(f, "T/1/other", other_fence, T0), LOCK_KEPT);
    assert_int_equal(renew(f, "T/1/seat", fence, T0), LOCK_KEPT);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(release(f, "T/1/seat", fence, T0), LOCK_RELEASED);
        assert_acquired(&mine[i]);
        fence = mine[i].op.fence;
    }
    assert_int_equal(release(f, "T/1/its own", other.fence, T0), LOCK_RELEASED);
    assert_acquired(&mine[4]);
    assert_int_equal(release(f, "T/1/other", other_fence, T0), LOCK_RELEASED);
    take(f, "T/1/other", T0);
    worker_end(&other);
}

/* ---- threads ---- */

#define THREADS 6
#define NAMES 3
#define ROUNDS 400

struct crew {
    struct fixture *f;
    pthread_barrier_t all_begun;
    uint64_t fences[NAMES]; /* no atomics: the locks keep them */
    uint64_t count[NAMES];
    _Atomic int working;
    _Atomic uint64_t wrong;
    _Atomic uint64_t contended;
};

struct thread_arg {
    struct crew *crew;
    int index;
    pthread_t thread;
};

static const char *const names[NAMES] = {"T/1/section A", "T/1/section B", "T/1/seat 17"};

/* On a busy machine the store may not answer in time: then a caller asks again. A call over a lost
 * connection fails at once, so the loop must run between two calls, for the connection to be made
 * again. Whether the caller had to wait for others. */
static bool acquire(struct fixture *f, struct waiter *w, const char *name) {
    bool waited = false;
    for (;;) {
        ask(f, w, name, T0, WAIT_MS);
        waited = waited || !w->done;
        wait_for(&w->done);
        if (w->op.result == ERR_OK) return waited;
        adapter->run_callbacks();
    }
}

/* Whether it was still held. A release that had no answer may have been done. */
static bool give_back(struct fixture *f, const char *name, uint64_t fence) {
    bool is_repeated = false;
    enum err result;
    enum lock_outcome outcome = keep_once(f, true, name, fence, T0, &result);
    for (; result != ERR_OK; is_repeated = true) {
        adapter->run_callbacks();
        outcome = keep_once(f, true, name, fence, T0, &result);
    }
    return outcome == LOCK_RELEASED || is_repeated;
}

static void work_once(struct crew *c, int name, bool slowly) {
    struct waiter w;
    if (acquire(c->f, &w, names[name])) c->contended++;
    if (w.op.outcome != LOCK_ACQUIRED) {
        c->wrong++;
        return;
    }
    if (w.op.fence <= c->fences[name]) c->wrong++;
    c->fences[name] = w.op.fence;
    c->count[name]++;
    adapter->run_callbacks(); /* some work, while others come */
    if (slowly) usleep(100);
    if (!give_back(c->f, names[name], w.op.fence)) c->wrong++;
}

static void *run_hand(void *arg) {
    struct thread_arg *h = arg;
    adapter->thread_begins();
    /* None ends before: TSan takes the loop of a later thread, which gets the same descriptor, for
     * that of the earlier one, since it does not see libuv close it. */
    pthread_barrier_wait(&h->crew->all_begun);
    if (h->index == 0) {
        while (h->crew->working > 0) locks_tick(h->crew->f->locks, T0 + 1);
    } else {
        for (int i = 0; i < ROUNDS; i++) work_once(h->crew, (i + h->index) % NAMES, i % 8 == 0);
        h->crew->working--;
    }
    adapter->thread_ends();
    return NULL;
}

static void threads_hold_a_name_one_at_a_time_with_growing_fences(void **state) {
    struct crew c = {.f = *state, .working = THREADS - 1};
    struct thread_arg thread_args[THREADS];
    pthread_barrier_init(&c.all_begun, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        thread_args[i] = (struct thread_arg){.crew = &c, .index = i};
        assert_int_equal(pthread_create(&thread_args[i].thread, NULL, run_hand, &thread_args[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread_args[i].thread, NULL);
    pthread_barrier_destroy(&c.all_begun);
    assert_int_equal(c.wrong, 0);
    assert_int_equal(c.count[0] + c.count[1] + c.count[2], (THREADS - 1) * ROUNDS);
    assert_true(c.contended > 0);
    for (int i = 0; i < NAMES; i++) assert_true(take(c.f, names[i], T0) > c.fences[i]);
}

#define PLACES 200

/* Threads that take one of many names after the other. */
struct travellers {
    struct fixture *f;
    pthread_barrier_t all_here;
    _Atomic uint64_t ended; /* the highest fence of those whose hold was over */
    _Atomic uint64_t wrong;
    _Atomic uint64_t next_place;
};

static void visit(struct travellers *t) {
    char name[] = "T/1/place 000";
    uint64_t place = t->next_place++ % PLACES;
    for (int i = 12; place > 0; i--, place /= 10) name[i] = (char)('0' + place % 10);
    struct waiter w;
    uint64_t ended = t->ended;
    acquire(t->f, &w, name);
    if (w.op.outcome != LOCK_ACQUIRED || w.op.fence <= ended) t->wrong++;
    if (!give_back(t->f, name, w.op.fence)) t->wrong++;
    ended = t->ended;
    while (ended < w.op.fence && !atomic_compare_exchange_weak(&t->ended, &ended, w.op.fence)) {
    }
}

static void *run_traveller(void *arg) {
    struct travellers *t = arg;
    adapter->thread_begins();
    pthread_barrier_wait(&t->all_here);
    for (int i = 0; i < 5 * PLACES; i++) visit(t);
    adapter->thread_ends();
    return NULL;
}

static void a_later_lock_of_any_name_has_a_higher_fence_pitfall_20(void **state) {
    struct travellers t = {.f = *state};
    pthread_t threads[THREADS];
    pthread_barrier_init(&t.all_here, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_traveller, &t), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&t.all_here);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.ended >> EPOCH_COUNT_BITS, EPOCH);
}

int locks_suite_run(const struct locks_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(waiting_users_are_admitted_in_order_of_arrival),
        TEST(fences_grow_over_all_names_and_restarts_pitfall_20),
        TEST(a_wait_that_is_over_is_an_outcome_not_an_error_pitfall_21),
        TEST(a_request_that_gives_up_keeps_the_order_of_the_others),
        TEST(a_holder_that_renews_keeps_it_and_one_that_is_dead_does_not),
        TEST(a_holder_past_its_lease_has_lost_the_lock_and_harms_no_other_pitfall_20),
        TEST(an_ended_lease_is_lost_though_no_other_client_wants_the_lock),
        TEST(a_request_after_the_lease_comes_behind_the_waiters),
        TEST(a_dead_waiter_does_not_block_the_line),
        TEST(a_lock_that_many_wait_for_is_nothing_to_other_names),
        TEST(a_client_that_stops_removes_only_its_own_waiters),
        TEST(threads_hold_a_name_one_at_a_time_with_growing_fences),
        TEST(a_later_lock_of_any_name_has_a_higher_fence_pitfall_20),
    };
#undef TEST
    return cmocka_run_group_tests_name("locks contract", tests, NULL, NULL);
}
