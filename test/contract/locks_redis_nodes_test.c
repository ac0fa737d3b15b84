/* Named locks that several nodes share, by the clock of Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "locks_fixture.h"
#include "services.h"

#define NEVER_MS 600000 /* no tick while a test lasts */
#define SILENT_MS 1000  /* as lua/locks.lua has it */
/* By hand, as a worker that is none; the epoch follows, and what the function wants. */
#define FCALL(function)                                                                            \
    "FCALL " REDIS_LIBRARY "_lock_" function " 7 queue:{T:1}:meta lock:{T:1}:workers "             \
    "lock:{T:1}:fence " SEAT_KEY ":holder " SEAT_KEY ":line " SEAT_KEY ":ends " SEAT_KEY           \
    ":waiters %d 0 test:0"
#define COUNT_OF(fence) ((fence) & ((UINT64_C(1) << EPOCH_COUNT_BITS) - 1))

/* ---- one at a time, in order ---- */

static void nodes_come_in_by_order_of_arrival(void **state) {
    struct locks_fixture *s = *state;
    struct lock_worker *of[] = {&s->a, &s->b, &s->a, &s->a, &s->b, &s->b};
    struct lock_request *w = s->requests;
    lock_have(of[0], &w[0], LEASE_MS);
    for (int i = 1; i < 6; i++) lock_wait_behind(of[i], &w[i], i);
    for (int i = 0; i < 6; i++) {
        lock_assert_acquired(&w[i]);
        if (i > 0) assert_true(w[i].op.fence > w[i - 1].op.fence);
        for (int j = i + 1; j < 6; j++) assert_false(w[j].done);
        assert_int_equal(lock_release(of[i], &w[i]), LOCK_RELEASED);
    }
    assert_int_equal(redis_fixture_number("EXISTS " SEAT_KEY ":holder " SEAT_KEY ":line"), 0);
}

/* Nobody polls here. */
static void a_wait_ends_by_an_announcement(void **state) {
    struct locks_fixture *s = *state;
    struct lock_worker quiet;
    struct lock_request *first = &s->requests[0];
    struct lock_request *second = &s->requests[1];
    lock_worker_begin(&quiet, s->stores[1], NEVER_MS);
    lock_have(&s->a, first, LEASE_MS);
    lock_wait_behind(&quiet, second, 1);
    assert_int_equal(lock_release(&s->a, first), LOCK_RELEASED);
    lock_assert_acquired(second);
    lock_worker_end(&quiet);
}

/* Its node loses the connection on which it gets notices in the step in which it acquires the lock.
 */
static void a_tick_finds_changes_that_were_not_announced(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *first = &s->requests[0];
    struct lock_request *second = &s->requests[1];
    lock_have(&s->a, first, LEASE_MS);
    lock_wait_behind(&s->b, second, 1);
    freeReplyObject(redis_fixture_command("MULTI"));
    freeReplyObject(redis_fixture_command("CLIENT KILL TYPE pubsub"));
    freeReplyObject(redis_fixture_command(FCALL("release") " %d %llu", EPOCH, EPOCH,
                                          (unsigned long long)COUNT_OF(first->op.fence)));
    freeReplyObject(redis_fixture_command("EXEC"));
    lock_assert_acquired(second);
}

/* ---- dead workers ---- */

static void a_holder_that_vanishes_blocks_for_one_lease(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *dead = &s->requests[0];
    struct lock_request *next = &s->requests[1];
    lock_have(&s->a, dead, SHORT_LEASE_MS);
    lock_wait_behind(&s->b, next, 1);
    lock_worker_tell(&s->a, lock_worker_vanish, NULL);
    lock_assert_acquired(next);
    assert_true(next->op.fence > dead->op.fence);
    /* Not before the end of the lease. How soon after it depends on the machine. */
    assert_true(next->op.until_ms - LEASE_MS >= dead->op.until_ms);
}

static void await_silence_of(const char *worker) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    int64_t silent_ms;
    do {
        redisReply *now = redis_fixture_command("TIME");
        int64_t now_ms = strtoll(now->element[0]->str, NULL, 10) * 1000 +
                         strtoll(now->element[1]->str, NULL, 10) / 1000;
        freeReplyObject(now);
        silent_ms = now_ms - redis_fixture_number("ZSCORE lock:{T:1}:workers %s", worker);
        if (clock_steady_ns() > deadline_ns) abort();
    } while (silent_ms < SILENT_MS);
}

/* The worker of the first request in the line. */
static void first_in_line(char out[64]) {
    redisReply *r = redis_fixture_command("ZRANGE " SEAT_KEY ":line 0 0");
    str waiter = {r->element[0]->str, r->element[0]->len};
    while (waiter.at[waiter.len - 1] != ':') waiter.len--;
    assert_true(str_copy((str){waiter.at, waiter.len - 1}, out, 64));
    freeReplyObject(r);
}

static void a_waiter_that_vanishes_does_not_block_the_line(void **state) {
    struct locks_fixture *s = *state;
    struct lock_worker dying;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *dead = &s->requests[1];
    struct lock_request *next = &s->requests[2];
    char name[64];
    lock_worker_begin(&dying, s->stores[1], TICK_MS);
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&dying, dead, 1);
    lock_wait_behind(&s->b, next, 2);
    first_in_line(name);
    lock_worker_tell(&dying, lock_worker_vanish, NULL);
    lock_await(dead);
    assert_int_equal(dead->op.result, ERR_HOT_UNKNOWN);
    await_silence_of(name);
    int64_t since_ns = clock_steady_ns();
    assert_int_equal(lock_release(&s->a, holder), LOCK_RELEASED);
    lock_assert_acquired(next);
    assert_in_range(clock_steady_ns() - since_ns, 0, INT64_C(1000000) * LEASE_MS / 2);
    lock_worker_end(&dying);
}

/* A lock whose line has only silent waiters can be acquired by a new request. */
static void a_line_of_the_dead_is_no_line(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *dead = &s->requests[1];
    struct lock_request *next = &s->requests[2];
    char name[64];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, dead, 1);
    first_in_line(name);
    lock_worker_tell(&s->b, lock_worker_vanish, NULL);
    await_silence_of(name);
    assert_int_equal(lock_release(&s->a, holder), LOCK_RELEASED);
    lock_have(&s->a, next, LEASE_MS);
}

/* A worker that is stalled until the test continues it. */
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

static void a_holder_that_stood_still_past_its_lease_has_lost_the_lock_pitfall_20(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *late = &s->requests[0];
    struct lock_request *next = &s->requests[1];
    struct pause p = {.task.run = on_pause};
    sem_init(&p.until, 0, 0);
    sem_init(&p.over, 0, 0);
    lock_have(&s->a, late, SHORT_LEASE_MS);
    mailbox_post(&s->a.mailbox, &p.task);
    lock_wait_behind(&s->b, next, 1);
    lock_assert_acquired(next);
    assert_true(next->op.fence > late->op.fence);
    sem_post(&p.until);
    sem_wait(&p.over);
    assert_int_equal(lock_renew(&s->a, late), LOCK_LOST);
    assert_int_equal(lock_release(&s->a, late), LOCK_LOST);
    assert_int_equal(lock_renew(&s->b, next), LOCK_KEPT);
    assert_int_equal(lock_release(&s->b, next), LOCK_RELEASED);
    sem_destroy(&p.until);
    sem_destroy(&p.over);
}

/* ---- time, by the clock of Redis ---- */

static void a_wait_that_is_over_ends_at_its_time(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *w = &s->requests[1];
    lock_have(&s->a, holder, LEASE_MS);
    int64_t since_ns = clock_steady_ns();
    lock_ask(&s->b, w, 300, LEASE_MS);
    lock_await(w);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_TIMED_OUT);
    assert_in_range(w->op.waited_ms, 300, LEASE_MS);
    assert_in_range(clock_steady_ns() - since_ns, INT64_C(299000000), INT64_MAX);
    assert_int_equal(lock_renew(&s->a, holder), LOCK_KEPT);
}

static void give_up(struct lock_worker *w, void *arg) {
    (void)arg;
    locks_give_up(w->locks);
}

static void a_request_that_gives_up_leaves_the_line(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *w = s->requests + 1;
    lock_have(&s->a, holder, LEASE_MS);
    for (int i = 0; i < 2; i++) lock_wait_behind(&s->b, &w[i], i + 1);
    lock_worker_tell(&s->b, give_up, NULL);
    for (int i = 0; i < 2; i++) {
        lock_await(&w[i]);
        assert_int_equal(w[i].op.result, ERR_OK);
        assert_int_equal(w[i].op.outcome, LOCK_TIMED_OUT);
    }
    assert_int_equal(redis_fixture_number("ZCARD " SEAT_KEY ":line"), 0);
    assert_int_equal(redis_fixture_number("EXISTS " SEAT_KEY ":ends " SEAT_KEY ":waiters"), 0);
}

static void ask_and_give_up(struct lock_worker *w, void *arg) {
    lock_acquire(w, arg);
    locks_give_up(w->locks);
}

/* It is not known yet whether it waits, or holds. */
static void a_request_that_gives_up_at_once_leaves_nothing_behind(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *w = &s->requests[0];
    struct lock_request *next = &s->requests[1];
    *w = lock_request_for(WAIT_MS, LEASE_MS);
    lock_worker_tell(&s->b, ask_and_give_up, w);
    lock_await(w);
    assert_int_equal(w->op.result, ERR_OK);
    assert_int_equal(w->op.outcome, LOCK_TIMED_OUT);
    lock_have(&s->a, next, LEASE_MS);
    assert_int_equal(COUNT_OF(next->op.fence), 2); /* it had been its own for a moment */
}

/* The request is neither in the line nor holding, and has got no notice. */
static void a_waiter_whose_line_was_lost_is_refused(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *lost = &s->requests[1];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, lost, 1);
    freeReplyObject(
        redis_fixture_command("DEL " SEAT_KEY ":line " SEAT_KEY ":ends " SEAT_KEY ":waiters"));
    lock_await(lost);
    assert_int_equal(lost->op.result, ERR_OK);
    assert_int_equal(lost->op.outcome, LOCK_TIMED_OUT);
    assert_int_equal(lock_renew(&s->a, holder), LOCK_KEPT);
}

static void everything_but_the_count_of_fences_ends_by_itself(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *next = &s->requests[1];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, next, 1);
    redisReply *keys = redis_fixture_command("KEYS lock:{T:1}:*");
    assert_int_equal(keys->elements, 6);
    for (size_t i = 0; i < keys->elements; i++) {
        int64_t left_ms = redis_fixture_number("PTTL %s", keys->element[i]->str);
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
    redisReply *r =
        redis_fixture_command(FCALL("acquire") " %d %d %d", EPOCH, number, WAIT_MS, LEASE_MS);
    str told = r->elements == 0 ? (str){"", 0} : (str){r->element[0]->str, r->element[0]->len};
    assert_true(str_copy(told, out, size));
    freeReplyObject(r);
    return str_of(out);
}

static void a_repeated_request_holds_or_waits_as_before(void **state) {
    (void)state;
    char first[128];
    char again[128];
    assert_true(str_starts(asked_by_hand(first, sizeof first, 1), STR("test:0:1 A 5 1 ")));
    assert_true(str_eq(asked_by_hand(again, sizeof again, 1), str_of(first)));
    static const int numbers[] = {2, 3, 2, 2};
    for (int i = 0; i < 4; i++)
        assert_int_equal(asked_by_hand(again, sizeof again, numbers[i]).len, 0);
    assert_int_equal(redis_fixture_number("ZCARD " SEAT_KEY ":line"), 2);
    assert_int_equal(redis_fixture_number("ZRANK " SEAT_KEY ":line test:0:3"), 1);
}

/* ---- a store that is lost ---- */

static void a_store_that_forgot_everything_is_recovering(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *waits = &s->requests[1];
    struct lock_request *late = &s->requests[2];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, waits, 1);
    freeReplyObject(redis_fixture_command("FLUSHALL"));
    assert_int_equal(lock_keep(&s->a, false, holder->op.fence).result, ERR_RECOVERING);
    assert_int_equal(lock_keep(&s->a, true, holder->op.fence).result, ERR_RECOVERING);
    lock_await(waits);
    assert_int_equal(waits->op.result, ERR_RECOVERING);
    lock_ask(&s->b, late, WAIT_MS, LEASE_MS);
    lock_await(late);
    assert_int_equal(late->op.result, ERR_RECOVERING);
}

/* The first fence of each incarnation has the same count. */
static void a_fence_of_another_incarnation_is_refused_pitfall_20(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *old = &s->requests[0];
    struct lock_request *new = &s->requests[1];
    lock_have(&s->a, old, LEASE_MS);
    redis_fixture_begin(s->stores[0], EPOCH + 1);
    redis_fixture_join(s->stores[1]);
    lock_ask(&s->b, new, 0, LEASE_MS);
    lock_await(new);
    assert_int_equal(new->op.outcome, LOCK_ACQUIRED);
    assert_int_equal(COUNT_OF(new->op.fence), COUNT_OF(old->op.fence));
    assert_true(new->op.fence > old->op.fence);
    assert_int_equal(lock_renew(&s->a, old), LOCK_LOST);
    assert_int_equal(lock_release(&s->a, old), LOCK_LOST);
    assert_int_equal(lock_renew(&s->b, new), LOCK_KEPT);
}

static void a_store_that_is_not_there_is_an_error_not_a_wait(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *waits = &s->requests[1];
    struct lock_request *late = &s->requests[2];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, waits, 1);
    services_stop(SERVICE_REDIS);
    lock_await(waits);
    assert_true(waits->op.result == ERR_HOT_UNAVAILABLE || waits->op.result == ERR_HOT_UNKNOWN);
    lock_ask(&s->b, late, WAIT_MS, LEASE_MS);
    lock_await(late);
    assert_int_equal(late->op.result, ERR_HOT_UNAVAILABLE);
    assert_int_equal(lock_keep(&s->a, true, holder->op.fence).result, ERR_HOT_UNAVAILABLE);
    services_start(SERVICE_REDIS);
}

/* ---- a shared ---- */

#define CLIENTS 4
#define ROUNDS 250

struct shared {
    _Atomic int inside;
    _Atomic int left; /* to work */
    _Atomic uint64_t wrong;
    uint64_t fence; /* no atomics: the lock keeps them */
    uint64_t count;
};

struct client {
    struct shared *shared;
    struct lock_worker worker;
    struct lock_request request;
    struct lock_hold_op release;
    int rounds;
};

static void client_asks(struct client *h);

static void on_client_released(struct lock_hold_op *op) {
    struct client *h = CONTAINER_OF(op, struct client, release);
    if (op->result != ERR_OK || op->outcome != LOCK_RELEASED) h->shared->wrong++;
    if (++h->rounds < ROUNDS)
        client_asks(h);
    else
        h->shared->left--;
}

static void on_client_acquired(struct lock_op *op) {
    struct client *h = CONTAINER_OF(op, struct client, request.op);
    struct shared *c = h->shared;
    if (op->result != ERR_OK || op->outcome != LOCK_ACQUIRED || op->fence <= c->fence) c->wrong++;
    if (c->inside++ != 0) c->wrong++;
    c->fence = op->fence;
    c->count++;
    c->inside--;
    h->release = (struct lock_hold_op){
        .name = op->name, .fence = op->fence, .now_ms = 1, .done = on_client_released};
    locks_release(h->worker.locks, &h->release);
}

static void client_asks(struct client *h) {
    h->request.op = (struct lock_op){.name = STR(SEAT),
                                     .now_ms = 1,
                                     .wait_ms_max = WAIT_MS,
                                     .lease_ms = LEASE_MS,
                                     .done = on_client_acquired};
    locks_acquire(h->worker.locks, &h->request.op);
}

static void hand_begins(struct lock_worker *w, void *arg) {
    (void)w;
    client_asks(arg);
}

static void a_thousand_acquisitions_over_two_nodes_never_overlap(void **state) {
    struct locks_fixture *s = *state;
    struct shared c = {.left = CLIENTS};
    struct client *clients = calloc(CLIENTS, sizeof *clients);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].shared = &c;
        lock_worker_begin(&clients[i].worker, s->stores[i % 2], TICK_MS);
    }
    for (int i = 0; i < CLIENTS; i++)
        lock_worker_tell(&clients[i].worker, hand_begins, &clients[i]);
    int64_t deadline_ns = clock_steady_ns() + 2 * DEADLINE_NS;
    while (c.left > 0 && clock_steady_ns() < deadline_ns) usleep(1000);
    assert_int_equal(c.left, 0);
    for (int i = 0; i < CLIENTS; i++) lock_worker_end(&clients[i].worker);
    assert_int_equal(c.wrong, 0);
    assert_int_equal(c.count, CLIENTS * ROUNDS);
    assert_int_equal(COUNT_OF(c.fence), CLIENTS * ROUNDS);
    free(clients);
}

int main(void) {
    log_setup(LOG_ERROR, LOG_LOGFMT); /* broken connections are expected here */
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, locks_fixture_set_up, locks_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nodes_come_in_by_order_of_arrival),
        TEST(a_wait_ends_by_an_announcement),
        TEST(a_tick_finds_changes_that_were_not_announced),
        TEST(a_holder_that_vanishes_blocks_for_one_lease),
        TEST(a_waiter_that_vanishes_does_not_block_the_line),
        TEST(a_line_of_the_dead_is_no_line),
        TEST(a_holder_that_stood_still_past_its_lease_has_lost_the_lock_pitfall_20),
        TEST(a_wait_that_is_over_ends_at_its_time),
        TEST(a_request_that_gives_up_leaves_the_line),
        TEST(a_request_that_gives_up_at_once_leaves_nothing_behind),
        TEST(a_waiter_whose_line_was_lost_is_refused),
        TEST(everything_but_the_count_of_fences_ends_by_itself),
        TEST(a_repeated_request_holds_or_waits_as_before),
        TEST(a_store_that_forgot_everything_is_recovering),
        TEST(a_fence_of_another_incarnation_is_refused_pitfall_20),
        TEST(a_store_that_is_not_there_is_an_error_not_a_wait),
        TEST(a_thousand_acquisitions_over_two_nodes_never_overlap),
    };
#undef TEST
    return cmocka_run_group_tests_name("locks over nodes", tests, NULL, NULL);
}
