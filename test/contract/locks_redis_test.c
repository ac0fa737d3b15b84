/* The named locks' contract, on Redis. Every thread is a worker of one node, with a loop. */
#include <assert.h>
#include <poll.h>

#include "base/clock.h"
#include "locks_suite.h"
#include "redis_fixture.h"

#define TICK_MS 200

static struct redis_store *store;
static _Thread_local uv_loop_t loop;
static _Thread_local bool attached;

static struct locks *open_redis(void **fixture, uint32_t epoch) {
    store = redis_fixture_store(false);
    *fixture = store;
    redis_fixture_begin(store, epoch);
    redis_fixture_attach(store, &loop);
    attached = true;
    redis_fixture_await_listeners(1);
    return redis_store_locks(store);
}

static void detach(void) {
    redis_store_detach(store);
    attached = false;
    uv_run(&loop, UV_RUN_DEFAULT);
}

static void close_redis(void *fixture) {
    assert(fixture == store);
    detach();
    redis_store_free(store);
    store = NULL;
}

static void thread_begins(void) {
    int failed = uv_loop_init(&loop);
    assert(failed == 0);
    if (store == NULL) return; /* it is about to be opened */
    redis_fixture_attach(store, &loop);
    attached = true;
}

static void thread_ends(void) {
    if (attached) detach();
    int busy = uv_loop_close(&loop);
    assert(busy == 0);
}

/* Workers with waiting requests stay alive, however slow the machine is. At this time nothing is
 * over. */
static void tick_now_and_then(void) {
    static _Thread_local int64_t ticked_ms;
    int64_t now_ms = clock_steady_ms();
    if (now_ms - ticked_ms < TICK_MS) return;
    ticked_ms = now_ms;
    locks_tick(redis_store_locks(store), LOCKS_SUITE_T0);
}

/* Answers take their time here: waits for one, though not for long. */
static void run_callbacks(void) {
    tick_now_and_then();
    uv_run(&loop, UV_RUN_NOWAIT);
    struct pollfd something = {.fd = uv_backend_fd(&loop), .events = POLLIN};
    ppoll(&something, 1, &(struct timespec){.tv_nsec = 100000}, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

int main(void) {
    static const struct locks_adapter redis = {.open = open_redis,
                                               .close = close_redis,
                                               .thread_begins = thread_begins,
                                               .thread_ends = thread_ends,
                                               .run_callbacks = run_callbacks};
    return locks_suite_run(&redis) + locks_model_suite_run(&redis);
}
