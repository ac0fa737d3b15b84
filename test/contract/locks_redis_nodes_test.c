/* Named locks that several nodes share, by the clock of Redis. A node here is a store of its own;
 * its workers are threads with loops, which do what the test tells them and tick meanwhile. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "redis_stage.h"
#include "run/mailbox.h"
#include "run/ticker.h"
#include "services.h"

#define EPOCH 5
#define TICK_MS 20
#define NEVER_MS 600000 /* no tick while a test lasts */
#define LEASE_MS 30000
#define SHORT_LEASE_MS 400
#define WAIT_MS 20000
#define HASTY_MS 300
#define SILENT_MS 1000 /* as lua/locks.lua has it */
#define DEADLINE_NS INT64_C(30000000000)
#define SEAT "T/1/A/17"
#define SEAT_KEY "lock:{T:1}:A/17"
/* By hand, as a worker that is none; the epoch follows, and what the function wants. */
#define FCALL(function)                                                                            \
    "FCALL " REDIS_LIBRARY "_lock_" function " 7 queue:{T:1}:meta lock:{T:1}:workers "             \
    "lock:{T:1}:fence " SEAT_KEY ":holder " SEAT_KEY ":line " SEAT_KEY ":ends " SEAT_KEY           \
    ":waiters %d 0 test:0"
#define COUNT_OF(fence) ((fence) & ((UINT64_C(1) << EPOCH_COUNT_BITS) - 1))

/* ---- workers ---- */

struct worker {
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
    void (*ticked)(struct worker *w); /* may be NULL */
};

/* What a worker is told to do. */
struct job {
    struct task task;
    struct worker *worker;
    void (*run)(struct worker *w, void *arg);
    void *arg;
    sem_t done;
};

static void on_job(struct task *task) {
    struct job *j = CONTAINER_OF(task, struct job, task);
    j->run(j->worker, j->arg);
    sem_post(&j->done);
}

static void tell(struct worker *w, void (*run)(struct worker *w, void *arg), void *arg) {
    struct job j = {.task.run = on_job, .worker = w, .run = run, .arg = arg};
    sem_init(&j.done, 0, 0);
    mailbox_post(&w->mailbox, &j.task);
    sem_wait(&j.done);
    sem_destroy(&j.done);
}

static void on_tick(void *to) {
    struct worker *w = to;
    if (w->attached) locks_tick(w->locks, clock_steady_ms());
    if (w->attached && w->ticked != NULL) w->ticked(w);
}

static void *run_worker(void *arg) {
    struct worker *w = arg;
    if (uv_loop_init(&w->loop) != 0) abort();
    stage_attach(w->store, &w->loop);
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

static void worker_begin(struct worker *w, struct redis_store *s, int64_t tick_ms) {
    *w = (struct worker){.store = s, .locks = redis_store_locks(s), .tick_ms = tick_ms};
    sem_init(&w->ready, 0, 0);
    assert_int_equal(pthread_create(&w->thread, NULL, run_worker, w), 0);
    sem_wait(&w->ready);
}

/* It is gone, without a word to anybody. */
static void vanish(struct worker *w, void *arg) {
    (void)arg;
    redis_store_detach(w->store);
    w->attached = false;
}

static void end(struct worker *w, void *arg) {
    if (w->attached) vanish(w, arg);
    w->ends = true;
}

static void worker_end(struct worker *w) {
    tell(w, end, NULL);
    pthread_join(w->thread, NULL);
    sem_destroy(&w->ready);
}

/* ---- the stage: two nodes, with a worker each ---- */

struct wish {
    struct lock_op op;
    _Atomic bool done;
};

struct stage {
    struct redis_store *stores[2];
    struct worker a;
    struct worker b;
    struct wish wishes[6]; /* the test's; one that fails may leave some of them waiting */
};

static int set_up(void **state) {
    struct stage *s = calloc(1, sizeof *s);
    for (int i = 0; i < 2; i++) s->stores[i] = stage_store(true);
    stage_begin_life(s->stores[0], EPOCH);
    stage_join_life(s->stores[1]);
    stage_await_listeners(2);
    worker_begin(&s->a, s->stores[0], TICK_MS);
    worker_begin(&s->b, s->stores[1], TICK_MS);
    *state = s;
    return 0;
}

static int tear_down(void **state) {
    struct stage *s = *state;
    worker_end(&s->a);
    worker_end(&s->b);
    for (int i = 0; i < 2; i++) redis_store_free(s->stores[i]);
    free(s);
    return 0;
}

/* ---- operations ---- */

static void on_done(struct lock_op *op) {
    struct wish *w = CONTAINER_OF(op, struct wish, op);
    if (w->done) abort(); /* twice */
    w->done = true;
}

static void acquire(struct worker *w, void *arg) {
    struct wish *wish = arg;
    locks_acquire(w->locks, &wish->op);
}

static struct wish a_wish(int64_t wait_ms, int64_t lease_ms) {
    return (struct wish){.op = {.name = STR(SEAT),
                                .now_ms = 1, /* not what counts */
                                .wait_ms_max = wait_ms,
                                .lease_ms = lease_ms,
                                .done = on_done}};
}

static void ask(struct worker *w, struct wish *wish, int64_t wait_ms, int64_t lease_ms) {
    *wish = a_wish(wait_ms, lease_ms);
    tell(w, acquire, wish);
}

static void await(const struct wish *w) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    while (!w->done) {
        if (clock_steady_ns() > deadline_ns) abort();
        usleep(100);
    }
}

static void assert_acquired(const struct wish *w) {
    await(w);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_ACQUIRED);
    assert_int_equal(w->op.fence >> EPOCH_COUNT_BITS, EPOCH);
}

static void take(struct worker *w, struct wish *wish, int64_t lease_ms) {
    ask(w, wish, 0, lease_ms);
    assert_acquired(wish);
}

static void await_number(int64_t wanted, const char *command) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    while (stage_number(command) != wanted)
        if (clock_steady_ns() > deadline_ns) abort();
}

/* And is the last of so many in the line. */
static void wait_behind(struct worker *w, struct wish *wish, int64_t in_line) {
    ask(w, wish, WAIT_MS, LEASE_MS);
    await_number(in_line, "ZCARD " SEAT_KEY ":line");
}

struct keeping {
    struct lock_hold_op op;
    bool releases;
    _Atomic bool done;
};

static void on_kept(struct lock_hold_op *op) {
    CONTAINER_OF(op, struct keeping, op)->done = true;
}

static void keep(struct worker *w, void *arg) {
    struct keeping *k = arg;
    (k->releases ? locks_release : locks_renew)(w->locks, &k->op);
}

static struct lock_hold_op kept(struct worker *w, bool releases, uint64_t fence) {
    struct keeping k = {.op = {.name = STR(SEAT),
                               .fence = fence,
                               .now_ms = 1,
                               .lease_ms = LEASE_MS,
                               .done = on_kept},
                        .releases = releases};
    tell(w, keep, &k);
    while (!k.done) usleep(100);
    return k.op;
}

static enum lock_outcome release(struct worker *w, const struct wish *wish) {
    struct lock_hold_op op = kept(w, true, wish->op.fence);
    assert_int_equal(op.result, ERR_OK);
    return op.outcome;
}

static enum lock_outcome renew(struct worker *w, const struct wish *wish) {
    struct lock_hold_op op = kept(w, false, wish->op.fence);
    assert_int_equal(op.result, ERR_OK);
    return op.outcome;
}

/* ---- one at a time, in order ---- */

static void nodes_come_in_by_order_of_arrival(void **state) {
    struct stage *s = *state;
    struct worker *of[] = {&s->a, &s->b, &s->a, &s->a, &s->b, &s->b};
    struct wish *w = s->wishes;
    take(of[0], &w[0], LEASE_MS);
    for (int i = 1; i < 6; i++) wait_behind(of[i], &w[i], i);
    for (int i = 0; i < 6; i++) {
        assert_acquired(&w[i]);
        if (i > 0) assert_true(w[i].op.fence > w[i - 1].op.fence);
        for (int j = i + 1; j < 6; j++) assert_false(w[j].done);
        assert_int_equal(release(of[i], &w[i]), LOCK_RELEASED);
    }
    assert_int_equal(stage_number("EXISTS " SEAT_KEY ":holder " SEAT_KEY ":line"), 0);
}

/* Nobody polls here. */
static void a_wait_ends_by_an_announcement(void **state) {
    struct stage *s = *state;
    struct worker quiet;
    struct wish *first = &s->wishes[0];
    struct wish *second = &s->wishes[1];
    worker_begin(&quiet, s->stores[1], NEVER_MS);
    take(&s->a, first, LEASE_MS);
    wait_behind(&quiet, second, 1);
    int64_t since_ns = clock_steady_ns();
    assert_int_equal(release(&s->a, first), LOCK_RELEASED);
    assert_acquired(second);
    assert_in_range(clock_steady_ns() - since_ns, 0, INT64_C(500000000));
    worker_end(&quiet);
}

/* Its node loses the connection over which it hears, in the same step in which the lock becomes
 * its own. */
static void a_tick_finds_what_no_announcement_told(void **state) {
    struct stage *s = *state;
    struct wish *first = &s->wishes[0];
    struct wish *second = &s->wishes[1];
    take(&s->a, first, LEASE_MS);
    wait_behind(&s->b, second, 1);
    freeReplyObject(stage_command("MULTI"));
    freeReplyObject(stage_command("CLIENT KILL TYPE pubsub"));
    freeReplyObject(stage_command(FCALL("release") " %d %llu", EPOCH, EPOCH,
                                  (unsigned long long)COUNT_OF(first->op.fence)));
    freeReplyObject(stage_command("EXEC"));
    assert_acquired(second);
}

/* ---- those who die ---- */

static void a_holder_that_vanishes_blocks_for_one_lease(void **state) {
    struct stage *s = *state;
    struct wish *dead = &s->wishes[0];
    struct wish *next = &s->wishes[1];
    take(&s->a, dead, SHORT_LEASE_MS);
    wait_behind(&s->b, next, 1);
    tell(&s->a, vanish, NULL);
    assert_acquired(next);
    assert_true(next->op.fence > dead->op.fence);
    int64_t after_ms = next->op.until_ms - LEASE_MS - dead->op.until_ms;
    assert_in_range(after_ms, 0, 20 * TICK_MS);
}

static void await_silence_of(const char *worker) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    int64_t silent_ms;
    do {
        redisReply *now = stage_command("TIME");
        int64_t now_ms = strtoll(now->element[0]->str, NULL, 10) * 1000 +
                         strtoll(now->element[1]->str, NULL, 10) / 1000;
        freeReplyObject(now);
        silent_ms = now_ms - stage_number("ZSCORE lock:{T:1}:workers %s", worker);
        if (clock_steady_ns() > deadline_ns) abort();
    } while (silent_ms < SILENT_MS);
}

/* The worker of whoever is first in the line. */
static void first_in_line(char out[64]) {
    redisReply *r = stage_command("ZRANGE " SEAT_KEY ":line 0 0");
    str waiter = {r->element[0]->str, r->element[0]->len};
    while (waiter.at[waiter.len - 1] != ':') waiter.len--;
    assert_true(str_copy((str){waiter.at, waiter.len - 1}, out, 64));
    freeReplyObject(r);
}

static void a_waiter_that_vanishes_does_not_block_the_line(void **state) {
    struct stage *s = *state;
    struct worker dying;
    struct wish *holder = &s->wishes[0];
    struct wish *dead = &s->wishes[1];
    struct wish *next = &s->wishes[2];
    char name[64];
    worker_begin(&dying, s->stores[1], TICK_MS);
    take(&s->a, holder, LEASE_MS);
    wait_behind(&dying, dead, 1);
    wait_behind(&s->b, next, 2);
    first_in_line(name);
    tell(&dying, vanish, NULL);
    await(dead);
    assert_int_equal(dead->op.result, ERR_HOT_UNKNOWN);
    await_silence_of(name);
    int64_t since_ns = clock_steady_ns();
    assert_int_equal(release(&s->a, holder), LOCK_RELEASED);
    assert_acquired(next);
    assert_in_range(clock_steady_ns() - since_ns, 0, INT64_C(1000000) * LEASE_MS / 10);
    worker_end(&dying);
}

/* A lock that has only silent ones in its line is free to whoever comes. */
static void a_line_of_the_dead_is_no_line(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *dead = &s->wishes[1];
    struct wish *next = &s->wishes[2];
    char name[64];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, dead, 1);
    first_in_line(name);
    tell(&s->b, vanish, NULL);
    await_silence_of(name);
    assert_int_equal(release(&s->a, holder), LOCK_RELEASED);
    take(&s->a, next, LEASE_MS);
}

/* A worker that stands still until it is told otherwise. */
struct pause {
    struct task task;
    sem_t until;
    sem_t over;
};

static void on_pause(struct task *task) {
    struct pause *p = CONTAINER_OF(task, struct pause, task);
    sem_wait(&p->until);
    sem_post(&p->over);
}

static void who_stood_still_past_its_lease_has_lost_it_trap_20(void **state) {
    struct stage *s = *state;
    struct wish *late = &s->wishes[0];
    struct wish *next = &s->wishes[1];
    struct pause p = {.task.run = on_pause};
    sem_init(&p.until, 0, 0);
    sem_init(&p.over, 0, 0);
    take(&s->a, late, SHORT_LEASE_MS);
    mailbox_post(&s->a.mailbox, &p.task);
    wait_behind(&s->b, next, 1);
    assert_acquired(next);
    assert_true(next->op.fence > late->op.fence);
    sem_post(&p.until);
    sem_wait(&p.over);
    assert_int_equal(renew(&s->a, late), LOCK_LOST);
    assert_int_equal(release(&s->a, late), LOCK_LOST);
    assert_int_equal(renew(&s->b, next), LOCK_KEPT);
    assert_int_equal(release(&s->b, next), LOCK_RELEASED);
    sem_destroy(&p.until);
    sem_destroy(&p.over);
}

/* ---- time, by the clock of Redis ---- */

static void a_wait_that_is_over_ends_at_its_time(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *w = &s->wishes[1];
    take(&s->a, holder, LEASE_MS);
    int64_t since_ns = clock_steady_ns();
    ask(&s->b, w, 300, LEASE_MS);
    await(w);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_TIMED_OUT);
    assert_in_range(w->op.waited_ms, 300, 300 + 20 * TICK_MS);
    assert_in_range(clock_steady_ns() - since_ns, INT64_C(299000000), INT64_C(2000000000));
    assert_int_equal(renew(&s->a, holder), LOCK_KEPT);
}

static void give_up(struct worker *w, void *arg) {
    (void)arg;
    locks_give_up(w->locks);
}

static void who_gives_up_is_out_of_the_line(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *w = s->wishes + 1;
    take(&s->a, holder, LEASE_MS);
    for (int i = 0; i < 2; i++) wait_behind(&s->b, &w[i], i + 1);
    tell(&s->b, give_up, NULL);
    for (int i = 0; i < 2; i++) {
        await(&w[i]);
        assert_int_equal(w[i].op.result, ERR_OK);
        assert_int_equal(w[i].op.outcome, LOCK_TIMED_OUT);
    }
    assert_int_equal(stage_number("ZCARD " SEAT_KEY ":line"), 0);
    assert_int_equal(stage_number("EXISTS " SEAT_KEY ":ends " SEAT_KEY ":waiters"), 0);
}

static void ask_and_give_up(struct worker *w, void *arg) {
    acquire(w, arg);
    locks_give_up(w->locks);
}

/* It is not known yet whether it waits, or holds. */
static void who_gives_up_at_once_leaves_nothing_behind(void **state) {
    struct stage *s = *state;
    struct wish *w = &s->wishes[0];
    struct wish *next = &s->wishes[1];
    *w = a_wish(WAIT_MS, LEASE_MS);
    tell(&s->b, ask_and_give_up, w);
    await(w);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_TIMED_OUT);
    take(&s->a, next, LEASE_MS);
    assert_int_equal(COUNT_OF(next->op.fence), 2); /* it had been its own for a moment */
}

/* Neither in the line nor holding, and nothing was ever heard of it. */
static void whoever_is_in_no_line_is_sent_away(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *lost = &s->wishes[1];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, lost, 1);
    freeReplyObject(stage_command("DEL " SEAT_KEY ":line " SEAT_KEY ":ends " SEAT_KEY ":waiters"));
    await(lost);
    assert_int_equal(lost->op.result, ERR_OK);
    assert_int_equal(lost->op.outcome, LOCK_TIMED_OUT);
    assert_int_equal(renew(&s->a, holder), LOCK_KEPT);
}

static void everything_but_the_count_of_fences_ends_by_itself(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *next = &s->wishes[1];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, next, 1);
    redisReply *keys = stage_command("KEYS lock:{T:1}:*");
    assert_int_equal(keys->elements, 6);
    for (size_t i = 0; i < keys->elements; i++) {
        int64_t left_ms = stage_number("PTTL %s", keys->element[i]->str);
        bool stays = strcmp(keys->element[i]->str, "lock:{T:1}:fence") == 0;
        if (stays)
            assert_int_equal(left_ms, -1);
        else
            assert_in_range(left_ms, WAIT_MS, LEASE_MS + 60000);
    }
    freeReplyObject(keys);
}

/* ---- asked twice ---- */

static str asked_by_hand(char *out, size_t size, int number) {
    redisReply *r = stage_command(FCALL("acquire") " %d %d %d", EPOCH, number, WAIT_MS, LEASE_MS);
    str told = r->elements == 0 ? (str){"", 0} : (str){r->element[0]->str, r->element[0]->len};
    assert_true(str_copy(told, out, size));
    freeReplyObject(r);
    return str_of(out);
}

static void whoever_asks_again_holds_or_waits_as_before(void **state) {
    (void)state;
    char first[128];
    char again[128];
    assert_true(str_starts(asked_by_hand(first, sizeof first, 1), STR("test:0:1 A 5 1 ")));
    assert_true(str_eq(asked_by_hand(again, sizeof again, 1), str_of(first)));
    static const int numbers[] = {2, 3, 2, 2};
    for (int i = 0; i < 4; i++)
        assert_int_equal(asked_by_hand(again, sizeof again, numbers[i]).len, 0);
    assert_int_equal(stage_number("ZCARD " SEAT_KEY ":line"), 2);
    assert_int_equal(stage_number("ZRANK " SEAT_KEY ":line test:0:3"), 1);
}

/* ---- a store that is lost ---- */

static void a_store_that_forgot_everything_is_recovering(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *waits = &s->wishes[1];
    struct wish *late = &s->wishes[2];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, waits, 1);
    freeReplyObject(stage_command("FLUSHALL"));
    assert_int_equal(kept(&s->a, false, holder->op.fence).result, ERR_RECOVERING);
    assert_int_equal(kept(&s->a, true, holder->op.fence).result, ERR_RECOVERING);
    await(waits);
    assert_int_equal(waits->op.result, ERR_RECOVERING);
    ask(&s->b, late, WAIT_MS, LEASE_MS);
    await(late);
    assert_int_equal(late->op.result, ERR_RECOVERING);
}

/* The first fence of each life has the same count. */
static void a_fence_of_another_life_is_lost_trap_20(void **state) {
    struct stage *s = *state;
    struct wish *old = &s->wishes[0];
    struct wish *new = &s->wishes[1];
    take(&s->a, old, LEASE_MS);
    stage_begin_life(s->stores[0], EPOCH + 1);
    stage_join_life(s->stores[1]);
    ask(&s->b, new, 0, LEASE_MS);
    await(new);
    assert_int_equal(new->op.outcome, LOCK_ACQUIRED);
    assert_int_equal(COUNT_OF(new->op.fence), COUNT_OF(old->op.fence));
    assert_true(new->op.fence > old->op.fence);
    assert_int_equal(renew(&s->a, old), LOCK_LOST);
    assert_int_equal(release(&s->a, old), LOCK_LOST);
    assert_int_equal(renew(&s->b, new), LOCK_KEPT);
}

static void a_store_that_is_not_there_is_an_error_not_a_wait(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *waits = &s->wishes[1];
    struct wish *late = &s->wishes[2];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, waits, 1);
    services_stop(SERVICE_REDIS);
    await(waits);
    assert_true(waits->op.result == ERR_HOT_UNAVAILABLE || waits->op.result == ERR_HOT_UNKNOWN);
    ask(&s->b, late, WAIT_MS, LEASE_MS);
    await(late);
    assert_int_equal(late->op.result, ERR_HOT_UNAVAILABLE);
    assert_int_equal(kept(&s->a, true, holder->op.fence).result, ERR_HOT_UNAVAILABLE);
    services_start(SERVICE_REDIS);
}

/* ---- connections that break ---- */

/* Of the nodes, not the test's own. */
static void break_connections(const char *type) {
    freeReplyObject(stage_command("CLIENT KILL TYPE %s", type));
}

/* Where the connection may have to be made anew first. */
static void release_at_last(struct worker *w, const struct wish *wish) {
    while (kept(w, true, wish->op.fence).result != ERR_OK) usleep(1000);
}

static void a_connection_that_breaks_costs_nobody_its_place(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *first = &s->wishes[1];
    struct wish *second = &s->wishes[2];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, first, 1);
    wait_behind(&s->a, second, 2);
    for (int i = 0; i < 5; i++) {
        break_connections("normal");
        usleep(TICK_MS * 1000);
    }
    release_at_last(&s->a, holder);
    assert_acquired(first);
    assert_false(second->done);
    release_at_last(&s->b, first);
    assert_acquired(second);
}

/* No node gets a connection until they are let in. */
static void lock_out(void) {
    freeReplyObject(stage_command("CONFIG SET port 0"));
    break_connections("normal");
}

static void let_in(void) {
    freeReplyObject(stage_command("CONFIG SET port %d", services_start(SERVICE_REDIS)->redis_port));
}

static void whoever_hears_of_an_error_does_not_stay_in_the_line(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *waits = &s->wishes[1];
    struct wish *hasty = &s->wishes[2];
    struct wish *next = &s->wishes[3];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, waits, 1);
    ask(&s->b, hasty, HASTY_MS, LEASE_MS);
    await_number(2, "ZCARD " SEAT_KEY ":line");
    lock_out();
    await(hasty);
    assert_false(waits->done);
    await(waits);
    assert_true(waits->op.result == ERR_HOT_UNAVAILABLE || waits->op.result == ERR_HOT_UNKNOWN);
    assert_int_equal(stage_number("ZCARD " SEAT_KEY ":line"), 2);
    let_in();
    await_number(0, "ZCARD " SEAT_KEY ":line");
    release_at_last(&s->a, holder);
    take(&s->b, next, LEASE_MS);
}

/* As a worker that has nothing to look after. */
static void tick_no_more(struct worker *w, void *arg) {
    (void)arg;
    ticker_stop(&w->ticker);
}

/* It is heard of all the time; but nobody of its own waits, so nobody makes it tick. */
static void a_worker_that_ticks_no_more_sends_its_ghosts_away(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *waits = &s->wishes[1];
    struct wish *other = &s->wishes[2];
    struct wish *next = &s->wishes[3];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, waits, 1);
    lock_out();
    await(waits);
    tell(&s->b, tick_no_more, NULL);
    let_in();
    do {
        *other = a_wish(0, LEASE_MS);
        other->op.name = STR("T/1/A/18");
        tell(&s->b, acquire, other);
        await(other);
        usleep(1000);
    } while (other->op.result != ERR_OK);
    release_at_last(&s->a, holder);
    ask(&s->a, next, 5000, LEASE_MS);
    assert_acquired(next);
    assert_int_equal(stage_number("ZCARD " SEAT_KEY ":line"), 0);
}

static void a_worker_may_end_before_its_ghosts_do(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *waits = &s->wishes[1];
    struct wish *next = &s->wishes[2];
    struct worker ends;
    worker_begin(&ends, s->stores[1], TICK_MS);
    take(&s->a, holder, LEASE_MS);
    wait_behind(&ends, waits, 1);
    lock_out();
    await(waits);
    worker_end(&ends);
    let_in();
    release_at_last(&s->a, holder);
    ask(&s->a, next, WAIT_MS, LEASE_MS);
    assert_acquired(next);
}

static void who_waits_for_a_lock_of_a_removed_event_is_out_when_it_is_made_again(void **state) {
    struct stage *s = *state;
    struct wish *holder = &s->wishes[0];
    struct wish *waits = &s->wishes[1];
    struct wish *next = &s->wishes[2];
    take(&s->a, holder, LEASE_MS);
    wait_behind(&s->b, waits, 1);
    freeReplyObject(stage_command("HSET queue:{T:1}:meta deleted 1"));
    await(waits);
    assert_int_equal(waits->op.result, ERR_EVENT_NOT_FOUND);
    freeReplyObject(stage_command("HDEL queue:{T:1}:meta deleted"));
    await_number(0, "ZCARD " SEAT_KEY ":line");
    assert_int_equal(release(&s->a, holder), LOCK_RELEASED);
    take(&s->b, next, LEASE_MS);
}

/* ---- a crowd ---- */

#define HANDS 4
#define ROUNDS 250

struct crowd {
    _Atomic int inside;
    _Atomic int left; /* to work */
    _Atomic uint64_t wrong;
    uint64_t fence; /* no atomics: the lock keeps them */
    uint64_t count;
};

struct hand {
    struct crowd *crowd;
    struct worker worker;
    struct wish wish;
    struct keeping keeping;
    int rounds;
};

static void hand_asks(struct hand *h);

static void on_hand_released(struct lock_hold_op *op) {
    struct hand *h = CONTAINER_OF(op, struct hand, keeping.op);
    if (op->result != ERR_OK || op->outcome != LOCK_RELEASED) h->crowd->wrong++;
    if (++h->rounds < ROUNDS)
        hand_asks(h);
    else
        h->crowd->left--;
}

static void on_hand_acquired(struct lock_op *op) {
    struct hand *h = CONTAINER_OF(op, struct hand, wish.op);
    struct crowd *c = h->crowd;
    if (op->result != ERR_OK || op->outcome != LOCK_ACQUIRED || op->fence <= c->fence) c->wrong++;
    if (c->inside++ != 0) c->wrong++;
    c->fence = op->fence;
    c->count++;
    c->inside--;
    h->keeping.op = (struct lock_hold_op){
        .name = op->name, .fence = op->fence, .now_ms = 1, .done = on_hand_released};
    locks_release(h->worker.locks, &h->keeping.op);
}

static void hand_asks(struct hand *h) {
    h->wish.op = (struct lock_op){.name = STR(SEAT),
                                  .now_ms = 1,
                                  .wait_ms_max = WAIT_MS,
                                  .lease_ms = LEASE_MS,
                                  .done = on_hand_acquired};
    locks_acquire(h->worker.locks, &h->wish.op);
}

static void hand_begins(struct worker *w, void *arg) {
    (void)w;
    hand_asks(arg);
}

static void a_thousand_acquisitions_over_two_nodes_never_overlap(void **state) {
    struct stage *s = *state;
    struct crowd c = {.left = HANDS};
    struct hand *hands = calloc(HANDS, sizeof *hands);
    for (int i = 0; i < HANDS; i++) {
        hands[i].crowd = &c;
        worker_begin(&hands[i].worker, s->stores[i % 2], TICK_MS);
    }
    for (int i = 0; i < HANDS; i++) tell(&hands[i].worker, hand_begins, &hands[i]);
    int64_t deadline_ns = clock_steady_ns() + 2 * DEADLINE_NS;
    while (c.left > 0 && clock_steady_ns() < deadline_ns) usleep(1000);
    assert_int_equal(c.left, 0);
    for (int i = 0; i < HANDS; i++) worker_end(&hands[i].worker);
    assert_int_equal(c.wrong, 0);
    assert_int_equal(c.count, HANDS * ROUNDS);
    assert_int_equal(COUNT_OF(c.fence), HANDS * ROUNDS);
    free(hands);
}

/* ---- a crowd whose connections break ---- */

#define BREAKS 100
#define BREAK_US 20000

/* One who asks again and again, whatever is answered. */
struct stubborn {
    struct crowd *crowd;
    struct worker worker;
    struct wish wish;
    struct keeping keeping;
    bool rests; /* until the next tick: without a connection an answer comes at once */
    _Atomic bool stops;
    _Atomic bool stopped;
};

static void on_stubborn_released(struct lock_hold_op *op) {
    struct stubborn *b = CONTAINER_OF(op, struct stubborn, keeping.op);
    b->rests = true;
}

/* The ledger's part: a late fence is refused. */
static void on_stubborn_acquired(struct lock_op *op) {
    struct stubborn *b = CONTAINER_OF(op, struct stubborn, wish.op);
    struct crowd *c = b->crowd;
    b->rests = true;
    if (op->result != ERR_OK || op->outcome != LOCK_ACQUIRED) return;
    if (c->inside++ == 0 && op->fence > c->fence) {
        c->fence = op->fence;
        c->count++;
    }
    c->inside--;
    b->rests = false;
    b->keeping.op = (struct lock_hold_op){
        .name = op->name, .fence = op->fence, .now_ms = 1, .done = on_stubborn_released};
    locks_release(b->worker.locks, &b->keeping.op);
}

static void stubborn_asks(struct worker *w) {
    struct stubborn *b = CONTAINER_OF(w, struct stubborn, worker);
    if (!b->rests) return;
    b->rests = false;
    b->stopped = b->stops;
    if (b->stopped) return;
    b->wish.op = a_wish(WAIT_MS, SHORT_LEASE_MS).op;
    b->wish.op.done = on_stubborn_acquired;
    locks_acquire(b->worker.locks, &b->wish.op);
}

static void stubborn_stops(struct stubborn *b) {
    int64_t deadline_ns = clock_steady_ns() + 2 * DEADLINE_NS;
    b->stops = true;
    while (!b->stopped) {
        if (clock_steady_ns() > deadline_ns) abort(); /* it was never answered */
        usleep(1000);
    }
    worker_end(&b->worker);
}

static void stubborn_begins(struct worker *w, void *arg) {
    CONTAINER_OF(w, struct stubborn, worker)->rests = true;
    w->ticked = stubborn_asks;
    (void)arg;
}

static void connections_that_break_leave_nobody_without_an_answer(void **state) {
    struct stage *s = *state;
    struct crowd c = {0};
    struct stubborn *all = calloc(HANDS, sizeof *all);
    for (int i = 0; i < HANDS; i++) {
        all[i].crowd = &c;
        worker_begin(&all[i].worker, s->stores[i % 2], TICK_MS / 10);
        tell(&all[i].worker, stubborn_begins, NULL);
    }
    for (int i = 0; i < BREAKS; i++) {
        usleep(BREAK_US);
        break_connections(i % 8 == 0 ? "pubsub" : "normal");
    }
    for (int i = 0; i < HANDS; i++) stubborn_stops(&all[i]);
    assert_true(c.count > BREAKS / 20); /* each may cost a lease */
    free(all);
    struct worker last; /* whose connection is whole; whatever was left behind ends in time */
    worker_begin(&last, s->stores[0], TICK_MS);
    ask(&last, &s->wishes[0], WAIT_MS, LEASE_MS);
    assert_acquired(&s->wishes[0]);
    assert_in_range(s->wishes[0].op.waited_ms, 0, 5 * SHORT_LEASE_MS);
    worker_end(&last);
}

int main(void) {
    log_setup(LOG_ERROR, LOG_LOGFMT); /* that connections break is no news here */
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nodes_come_in_by_order_of_arrival),
        TEST(a_wait_ends_by_an_announcement),
        TEST(a_tick_finds_what_no_announcement_told),
        TEST(a_holder_that_vanishes_blocks_for_one_lease),
        TEST(a_waiter_that_vanishes_does_not_block_the_line),
        TEST(a_line_of_the_dead_is_no_line),
        TEST(who_stood_still_past_its_lease_has_lost_it_trap_20),
        TEST(a_wait_that_is_over_ends_at_its_time),
        TEST(who_gives_up_is_out_of_the_line),
        TEST(who_gives_up_at_once_leaves_nothing_behind),
        TEST(whoever_is_in_no_line_is_sent_away),
        TEST(everything_but_the_count_of_fences_ends_by_itself),
        TEST(whoever_asks_again_holds_or_waits_as_before),
        TEST(a_store_that_forgot_everything_is_recovering),
        TEST(a_fence_of_another_life_is_lost_trap_20),
        TEST(a_store_that_is_not_there_is_an_error_not_a_wait),
        TEST(a_connection_that_breaks_costs_nobody_its_place),
        TEST(whoever_hears_of_an_error_does_not_stay_in_the_line),
        TEST(a_worker_that_ticks_no_more_sends_its_ghosts_away),
        TEST(a_worker_may_end_before_its_ghosts_do),
        TEST(who_waits_for_a_lock_of_a_removed_event_is_out_when_it_is_made_again),
        TEST(a_thousand_acquisitions_over_two_nodes_never_overlap),
        TEST(connections_that_break_leave_nobody_without_an_answer),
    };
#undef TEST
    return cmocka_run_group_tests_name("locks over nodes", tests, NULL, NULL);
}
