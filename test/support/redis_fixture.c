#include "redis_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "services.h"

#define DEADLINE_NS INT64_C(60000000000)
#define PROBE_LEASE_MS 1000
/* The deadline of a call: longer than in production, because other tests keep the machine busy. */
#define CALL_MS 10000

static redisContext *admin;

static const struct services *services(void) {
    return services_get(SERVICE_REDIS);
}

static struct redis_address address(void) {
    struct redis_address a;
    struct buf why = {0};
    if (!redis_address_parse(str_of(services()->redis_url), &a, &why)) fail();
    buf_deinit(&why);
    return a;
}

static void no_news(void *to) {
    (void)to;
}

static void no_change(void *to, int64_t event_key, const uint64_t *seqs, size_t count) {
    (void)to;
    (void)event_key;
    (void)seqs;
    (void)count;
}

static struct redis_store *store_new(const struct redis_options *options) {
    struct redis_store *s = redis_store_new(options);
    hot_listen(
        redis_store_hot(s),
        (struct hot_listener){.changed = no_change, .event_changed = no_news, .suspect = no_news});
    return s;
}

struct redis_store *redis_fixture_store(bool redis_clock) {
    return store_new(&(struct redis_options){
        .address = address(), .deadline_ms = CALL_MS, .redis_clock = redis_clock});
}

struct redis_store *redis_fixture_limited_store(const struct limit_rules *rules) {
    return store_new(
        &(struct redis_options){.address = address(), .deadline_ms = CALL_MS, .limits = *rules});
}

void redis_fixture_begin(struct redis_store *s, uint32_t epoch) {
    struct hot *h = redis_store_hot(s);
    struct hot_incarnation incarnation;
    assert_int_equal(hot_incarnation_read(h, &incarnation), ERR_OK);
    incarnation.epoch = epoch;
    assert_int_equal(hot_rebuild_begin(h, &incarnation), ERR_OK);
    freeReplyObject(redis_fixture_command("HSET queue:{T:1}:meta epoch %u", epoch));
    assert_int_equal(hot_rebuild_end(h), ERR_OK);
    hot_open(h, &incarnation);
}

void redis_fixture_join(struct redis_store *s) {
    struct hot_incarnation incarnation;
    assert_int_equal(hot_incarnation_read(redis_store_hot(s), &incarnation), ERR_OK);
    assert_int_not_equal(incarnation.epoch, 0);
    hot_open(redis_store_hot(s), &incarnation);
}

/* ---- a worker ---- */

struct probe {
    struct lock_hold_op op;
    bool done;
};

static void on_probed(struct lock_hold_op *op) {
    CONTAINER_OF(op, struct probe, op)->done = true;
}

static bool is_through(struct locks *l, uv_loop_t *loop) {
    struct probe p = {.op = {.name = STR("T/1/probe"),
                             .fence = 1,
                             .now_ms = 1,
                             .lease_ms = PROBE_LEASE_MS,
                             .done = on_probed}};
    locks_renew(l, &p.op);
    while (!p.done) uv_run(loop, UV_RUN_NOWAIT);
    return p.op.result == ERR_OK;
}

void redis_fixture_attach(struct redis_store *s, uv_loop_t *loop) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    redis_store_attach(s, loop);
    while (!is_through(redis_store_locks(s), loop)) {
        if (clock_steady_ns() > deadline_ns) abort();
        uv_run(loop, UV_RUN_NOWAIT);
    }
}

void redis_fixture_await_listeners(size_t count) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    size_t found;
    do {
        redisReply *r = redis_fixture_command("PUBSUB CHANNELS admitone:locks:*");
        found = r->elements;
        freeReplyObject(r);
        if (clock_steady_ns() > deadline_ns) abort();
    } while (found < count);
}

/* ---- commands ---- */

/* The server may have been another one when this was last used. */
static redisReply *try_command(const char *format, va_list arguments) {
    if (admin == NULL) admin = redisConnect("127.0.0.1", services()->redis_port);
    assert_non_null(admin);
    redisReply *r = redisvCommand(admin, format, arguments);
    if (r != NULL) return r;
    redisFree(admin);
    admin = NULL;
    return NULL;
}

static redisReply *command(const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    redisReply *r = try_command(format, arguments);
    if (r == NULL) r = try_command(format, again);
    va_end(again);
    assert_non_null(r);
    assert_int_not_equal(r->type, REDIS_REPLY_ERROR);
    return r;
}

redisReply *redis_fixture_command(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *r = command(format, arguments);
    va_end(arguments);
    return r;
}

int64_t redis_fixture_number(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *r = command(format, arguments);
    va_end(arguments);
    int64_t number = r->type == REDIS_REPLY_INTEGER ? r->integer : strtoll(r->str, NULL, 10);
    freeReplyObject(r);
    return number;
}

void redis_fixture_await_number(int64_t wanted, const char *command) {
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    while (redis_fixture_number(command) != wanted)
        if (clock_steady_ns() > deadline_ns) abort();
}
