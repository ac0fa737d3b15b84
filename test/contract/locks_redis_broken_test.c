/* Named locks that several nodes share, when their connections break: a waiter loses its place only
 * if it was told so, and keeps it only if it was not. */
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

#define HASTY_MS 300

/* Connections of the nodes, without the test's own. */
static void break_connections(const char *type) {
    freeReplyObject(redis_fixture_command("CLIENT KILL TYPE %s", type));
}

/* When the connection may have to be opened again first. */
static void release_at_last(struct lock_worker *w, const struct lock_request *request) {
    while (lock_keep(w, true, request->op.fence).result != ERR_OK) usleep(1000);
}

static void a_broken_connection_loses_no_place(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *first = &s->requests[1];
    struct lock_request *second = &s->requests[2];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, first, 1);
    lock_wait_behind(&s->a, second, 2);
    for (int i = 0; i < 5; i++) {
        break_connections("normal");
        usleep(TICK_MS * 1000);
    }
    release_at_last(&s->a, holder);
    lock_assert_acquired(first);
    assert_false(second->done);
    release_at_last(&s->b, first);
    lock_assert_acquired(second);
}

/* No node gets a connection until they are let in. */
static void lock_out(void) {
    freeReplyObject(redis_fixture_command("CONFIG SET port 0"));
    break_connections("normal");
}

static void accept_connections(void) {
    freeReplyObject(
        redis_fixture_command("CONFIG SET port %d", services_start(SERVICE_REDIS)->redis_port));
}

static void a_request_that_fails_does_not_stay_in_the_line(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *waits = &s->requests[1];
    struct lock_request *hasty = &s->requests[2];
    struct lock_request *next = &s->requests[3];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, waits, 1);
    lock_ask(&s->b, hasty, HASTY_MS, LEASE_MS);
    redis_fixture_await_number(2, "ZCARD " SEAT_KEY ":line");
    lock_out();
    lock_await(hasty);
    assert_false(waits->done);
    lock_await(waits);
    assert_true(waits->op.result == ERR_HOT_UNAVAILABLE || waits->op.result == ERR_HOT_UNKNOWN);
    assert_int_equal(redis_fixture_number("ZCARD " SEAT_KEY ":line"), 2);
    accept_connections();
    redis_fixture_await_number(0, "ZCARD " SEAT_KEY ":line");
    release_at_last(&s->a, holder);
    lock_have(&s->b, next, LEASE_MS);
}

/* A worker without locks to renew. */
static void tick_no_more(struct lock_worker *w, void *arg) {
    (void)arg;
    ticker_stop(&w->ticker);
}

/* It calls all the time, but none of its requests waits, so nothing makes it tick. */
static void a_worker_that_stops_ticking_drops_its_abandoned_waiters(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *waits = &s->requests[1];
    struct lock_request *other = &s->requests[2];
    struct lock_request *next = &s->requests[3];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, waits, 1);
    lock_out();
    lock_await(waits);
    lock_worker_tell(&s->b, tick_no_more, NULL);
    accept_connections();
    do {
        *other = lock_request_for(0, LEASE_MS);
        other->op.name = STR("T/1/A/18");
        lock_worker_tell(&s->b, lock_acquire, other);
        lock_await(other);
        usleep(1000);
    } while (other->op.result != ERR_OK);
    release_at_last(&s->a, holder);
    lock_ask(&s->a, next, 5000, LEASE_MS);
    lock_assert_acquired(next);
    assert_int_equal(redis_fixture_number("ZCARD " SEAT_KEY ":line"), 0);
}

static void a_worker_may_end_before_its_abandoned_waiters(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *waits = &s->requests[1];
    struct lock_request *next = &s->requests[2];
    struct lock_worker ends;
    lock_worker_begin(&ends, s->stores[1], TICK_MS);
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&ends, waits, 1);
    lock_out();
    lock_await(waits);
    lock_worker_end(&ends);
    accept_connections();
    release_at_last(&s->a, holder);
    lock_ask(&s->a, next, WAIT_MS, LEASE_MS);
    lock_assert_acquired(next);
}

static void waiting_for_a_lock_of_a_removed_event_ends_when_the_event_is_recreated(void **state) {
    struct locks_fixture *s = *state;
    struct lock_request *holder = &s->requests[0];
    struct lock_request *waits = &s->requests[1];
    struct lock_request *next = &s->requests[2];
    lock_have(&s->a, holder, LEASE_MS);
    lock_wait_behind(&s->b, waits, 1);
    freeReplyObject(redis_fixture_command("HSET queue:{T:1}:meta deleted 1"));
    lock_await(waits);
    assert_int_equal(waits->op.result, ERR_EVENT_NOT_FOUND);
    freeReplyObject(redis_fixture_command("HDEL queue:{T:1}:meta deleted"));
    redis_fixture_await_number(0, "ZCARD " SEAT_KEY ":line");
    assert_int_equal(lock_release(&s->a, holder), LOCK_RELEASED);
    lock_have(&s->b, next, LEASE_MS);
}

/* ---- a shared ---- */

#define CLIENTS 4
#define BREAKS 100
#define BREAK_US 20000

struct shared {
    _Atomic int inside;
    uint64_t fence; /* no atomics: the lock keeps them */
    uint64_t count;
};

/* A client that repeats its request, whatever the answer is. */
struct busy_client {
    struct shared *shared;
    struct lock_worker worker;
    struct lock_request request;
    struct lock_hold_op release;
    bool rests; /* until the next tick: without a connection an answer comes at once */
    _Atomic bool stops;
    _Atomic bool stopped;
};

static void on_busy_client_released(struct lock_hold_op *op) {
    struct busy_client *b = CONTAINER_OF(op, struct busy_client, release);
    b->rests = true;
}

/* The ledger's part: a late fence is refused. */
static void on_busy_client_acquired(struct lock_op *op) {
    struct busy_client *b = CONTAINER_OF(op, struct busy_client, request.op);
    struct shared *c = b->shared;
    b->rests = true;
    if (op->result != ERR_OK || op->outcome != LOCK_ACQUIRED) return;
    if (c->inside++ == 0 && op->fence > c->fence) {
        c->fence = op->fence;
        c->count++;
    }
    c->inside--;
    b->rests = false;
    b->release = (struct lock_hold_op){
        .name = op->name, .fence = op->fence, .now_ms = 1, .done = on_busy_client_released};
    locks_release(b->worker.locks, &b->release);
}

static void busy_client_asks(struct lock_worker *w) {
    struct busy_client *b = CONTAINER_OF(w, struct busy_client, worker);
    if (!b->rests) return;
    b->rests = false;
    b->stopped = b->stops;
    if (b->stopped) return;
    b->request.op = lock_request_for(WAIT_MS, SHORT_LEASE_MS).op;
    b->request.op.done = on_busy_client_acquired;
    locks_acquire(b->worker.locks, &b->request.op);
}

static void busy_client_stops(struct busy_client *b) {
    int64_t deadline_ns = clock_steady_ns() + 2 * DEADLINE_NS;
    b->stops = true;
    while (!b->stopped) {
        if (clock_steady_ns() > deadline_ns) abort(); /* it was never answered */
        usleep(1000);
    }
    lock_worker_end(&b->worker);
}

static void busy_client_begins(struct lock_worker *w, void *arg) {
    CONTAINER_OF(w, struct busy_client, worker)->rests = true;
    w->ticked = busy_client_asks;
    (void)arg;
}

static void every_request_is_answered_though_connections_break(void **state) {
    struct locks_fixture *s = *state;
    struct shared c = {0};
    struct busy_client *all = calloc(CLIENTS, sizeof *all);
    for (int i = 0; i < CLIENTS; i++) {
        all[i].shared = &c;
        lock_worker_begin(&all[i].worker, s->stores[i % 2], TICK_MS / 10);
        lock_worker_tell(&all[i].worker, busy_client_begins, NULL);
    }
    for (int i = 0; i < BREAKS; i++) {
        usleep(BREAK_US);
        break_connections(i % 8 == 0 ? "pubsub" : "normal");
    }
    for (int i = 0; i < CLIENTS; i++) busy_client_stops(&all[i]);
    assert_true(c.count > BREAKS / 20); /* each may cost a lease */
    free(all);
    struct lock_worker last; /* its connection works; leftovers of the others end in time */
    lock_worker_begin(&last, s->stores[0], TICK_MS);
    lock_ask(&last, &s->requests[0], WAIT_MS, LEASE_MS);
    lock_assert_acquired(&s->requests[0]);
    assert_in_range(s->requests[0].op.waited_ms, 0, WAIT_MS / 2);
    lock_worker_end(&last);
}

int main(void) {
    log_setup(LOG_ERROR, LOG_LOGFMT); /* broken connections are expected here */
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, locks_fixture_set_up, locks_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_broken_connection_loses_no_place),
        TEST(a_request_that_fails_does_not_stay_in_the_line),
        TEST(a_worker_that_stops_ticking_drops_its_abandoned_waiters),
        TEST(a_worker_may_end_before_its_abandoned_waiters),
        TEST(waiting_for_a_lock_of_a_removed_event_ends_when_the_event_is_recreated),
        TEST(every_request_is_answered_though_connections_break),
    };
#undef TEST
    return cmocka_run_group_tests_name("locks over connections that break", tests, NULL, NULL);
}
