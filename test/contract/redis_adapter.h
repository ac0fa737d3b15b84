/*
 * redis_adapter: the hot store in a real Redis, private to the test program, for the contract
 * suites of queues and seats. Every thread has its own loop and link; a store that is opened is in
 * its first incarnation.
 */
#ifndef ADMITONE_TEST_CONTRACT_REDIS_ADAPTER_H
#define ADMITONE_TEST_CONTRACT_REDIS_ADAPTER_H

#include <assert.h>

#include "base/clock.h"
#include "hot/redis/internal.h"
#include "queue_suite.h"
#include "services.h"

#define REDIS_LINK_MS 10000
/* However busy the machine is. */
#define REDIS_CALL_MS 30000

static _Thread_local uv_loop_t redis_loop;

static inline void redis_run_callbacks(void *fixture) {
    (void)fixture;
    uv_run(&redis_loop, UV_RUN_ONCE);
}

/* Returns when it is connected. */
static inline void redis_thread_begins(void *fixture) {
    int failed = uv_loop_init(&redis_loop);
    assert(failed == 0);
    redis_store_attach(fixture, &redis_loop);
    int64_t deadline_ns = clock_steady_ns() + (int64_t)REDIS_LINK_MS * 1000000;
    while (!link_is_up(redis_worker_mine()->link)) {
        assert(clock_steady_ns() < deadline_ns);
        redis_run_callbacks(fixture);
    }
}

static inline void redis_thread_ends(void *fixture) {
    redis_store_detach(fixture);
    uv_run(&redis_loop, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&redis_loop);
    assert(busy == 0);
}

static inline void redis_rebuild_begins(void *fixture) {
    struct hot *hot = redis_store_hot(fixture);
    struct hot_incarnation incarnation;
    enum err failed = hot_incarnation_read(hot, &incarnation);
    assert(failed == ERR_OK);
    incarnation.epoch++;
    hot_close(hot);
    failed = hot_rebuild_begin(hot, &incarnation);
    assert(failed == ERR_OK);
}

static inline void redis_rebuild_ends(void *fixture) {
    struct hot *hot = redis_store_hot(fixture);
    enum err failed = hot_rebuild_end(hot);
    assert(failed == ERR_OK);
    struct hot_incarnation incarnation;
    failed = hot_incarnation_read(hot, &incarnation);
    assert(failed == ERR_OK && incarnation.epoch > 0);
    hot_open(hot, &incarnation);
}

static inline struct queues *open_redis(void **fixture) {
    const struct services *s = services_start(SERVICE_REDIS);
    struct redis_options options = {.deadline_ms = REDIS_CALL_MS};
    struct buf why = {0};
    bool understood = redis_address_parse(str_of(s->redis_url), &options.address, &why);
    assert(understood);
    buf_deinit(&why);
    struct redis_store *store = redis_store_new(&options);
    *fixture = store;
    redis_rebuild_begins(store);
    redis_rebuild_ends(store);
    redis_thread_begins(store);
    return redis_store_queues(store);
}

static inline struct seats *seats_of_redis(void *fixture) {
    return redis_store_seats(fixture);
}

static inline void close_redis(void *fixture) {
    redis_thread_ends(fixture);
    redis_store_free(fixture);
}

static const struct queue_adapter redis_adapter = {.remote = true,
                                                   .open = open_redis,
                                                   .seats = seats_of_redis,
                                                   .close = close_redis,
                                                   .run_callbacks = redis_run_callbacks,
                                                   .rebuild_begins = redis_rebuild_begins,
                                                   .rebuild_ends = redis_rebuild_ends,
                                                   .thread_begins = redis_thread_begins,
                                                   .thread_ends = redis_thread_ends};

#endif
