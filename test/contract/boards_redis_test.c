/* The boards' contract, on Redis; and the keys that operators can read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "board_ops.h"
#include "boards_suite.h"
#include "redis_adapter.h"
#include "redis_probe.h"

static void fill_with_nothing(struct redis_store *store) {
    redis_rebuild_begins(store);
    boards_restored(redis_store_boards(store), &(struct sale_mark){0}, clock_wall_ms());
    redis_rebuild_ends(store);
}

static struct boards *open_boards(void **fixture) {
    open_redis(fixture);
    fill_with_nothing(*fixture);
    return redis_store_boards(*fixture);
}

/* ---- what an operator sees, and other nodes ---- */

struct fixture {
    void *store;
    struct boards *boards;
    redisContext *probe;
    uint32_t epoch;
};

#define NOW_MS INT64_C(1796731200000) /* 2026-12-08T12:00:00Z */
#define SOLDOUT                                                                                    \
    "ranking:{soldout} performance:{soldout}:info performance:{soldout}:pace"                      \
    " performance:{soldout}:paced"

static int set_up(void **state) {
    static struct fixture h;
    clock_zone_set("UTC");
    h.boards = open_boards(&h.store);
    struct redis_address address = probe_address(services_start(SERVICE_REDIS)->redis_url);
    h.probe = probe_connect(&address);
    *state = &h;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *h = *state;
    probe_end(h->probe);
    close_redis(h->store);
    return 0;
}

static struct board_begin_op begin(struct fixture *h, int64_t now_ms) {
    struct board_begin_op op = {.now_ms = now_ms, .done = board_begin_op_done};
    boards_begin(h->boards, &op);
    while (op.done != NULL) redis_run_callbacks(h->store);
    h->epoch = op.epoch;
    return op;
}

static enum err count_one(struct fixture *h, int64_t id, int64_t now_ms) {
    struct sale s = {.mark = {.transaction = 3, .id = id},
                     .kind = SALE_TAKEN,
                     .event_key = 42,
                     .seats = 2,
                     .at_ms = now_ms,
                     .taken_ms = now_ms};
    struct board_count_op op = {
        .epoch = h->epoch, .now_ms = now_ms, .sales = &s, .count = 1, .done = board_count_op_done};
    boards_count(h->boards, &op);
    while (op.done != NULL) redis_run_callbacks(h->store);
    return op.result;
}

/* Each sale is of another event. */
static void count_events(struct fixture *h, size_t count, int64_t now_ms) {
    struct sale sales[600];
    assert_true(count <= sizeof sales / sizeof *sales);
    for (size_t i = 0; i < count; i++)
        sales[i] = (struct sale){.mark = {.transaction = 3, .id = (int64_t)i + 1},
                                 .event_key = (int64_t)i + 1,
                                 .seats = 1,
                                 .at_ms = now_ms,
                                 .taken_ms = now_ms};
    struct board_count_op op = {.epoch = h->epoch,
                                .now_ms = now_ms,
                                .sales = sales,
                                .count = count,
                                .done = board_count_op_done};
    boards_count(h->boards, &op);
    while (op.done != NULL) redis_run_callbacks(h->store);
    assert_int_equal(op.result, ERR_OK);
}

static enum err know(struct fixture *h, int64_t lease, int64_t capacity) {
    struct board_event event = {.event_key = 42, .capacity = capacity, .opened_ms = NOW_MS};
    struct board_events_op op = {.epoch = h->epoch,
                                 .lease = lease,
                                 .now_ms = NOW_MS,
                                 .events = &event,
                                 .count = 1,
                                 .done = board_events_op_done};
    boards_set_events(h->boards, &op);
    while (op.done != NULL) redis_run_callbacks(h->store);
    return op.result;
}

static int64_t capacity_of(struct fixture *h, int64_t event_key) {
    struct board_find_op op = {.board.kind = BOARD_SOLDOUT,
                               .event_key = event_key,
                               .now_ms = NOW_MS,
                               .done = board_find_op_done};
    boards_find(h->boards, &op);
    while (op.done != NULL) redis_run_callbacks(h->store);
    return op.row.sales.capacity;
}

/* A node that was silent and lost the lease must not send events: its data may be older. */
static void one_node_counts_until_it_is_silent(void **state) {
    struct fixture *h = *state;
    int64_t lease = begin(h, NOW_MS).lease;
    assert_true(lease > 0);
    assert_int_equal(begin(h, NOW_MS).lease, lease);
    assert_int_equal(count_one(h, 1, NOW_MS), ERR_OK);
    assert_int_equal(know(h, lease, 10), ERR_OK);
#define BEGIN "FCALL " REDIS_LIBRARY "_soldout_begin 4 " SOLDOUT " %u %lld other"
    const redisReply *r = probe_do(h->probe, BEGIN, h->epoch, (long long)NOW_MS + 1999);
    assert_int_equal(r->element[0]->integer, 0);
    r = probe_do(h->probe, BEGIN, h->epoch, (long long)NOW_MS + 2000);
    assert_int_equal(r->element[0]->integer, lease + 1);
#undef BEGIN
    assert_int_equal(know(h, lease, 20), ERR_RECOVERING);
    assert_int_equal(capacity_of(h, 42), 10);
    assert_int_equal(begin(h, NOW_MS + 2500).lease, 0);
    assert_int_equal(begin(h, NOW_MS + 4000).lease, lease + 2);
    assert_int_equal(know(h, lease + 2, 20), ERR_OK);
    assert_int_equal(capacity_of(h, 42), 20);
}

static void keys_are_named_and_end_by_themselves(void **state) {
    struct fixture *h = *state;
    begin(h, NOW_MS);
    assert_int_equal(count_one(h, 1, NOW_MS), ERR_OK);
    static const struct {
        const char *name;
        int64_t left_s; /* until the end of the period, and then as long as it is kept */
    } boards[] = {
        {"daily:20261208", 12 * 3600 + 86400},
        {"weekly:2026-W50", (5 * 24 + 12) * 3600 + 604800},
        {"monthly:202612", (23 * 24 + 12) * 3600 + 2592000},
    };
    for (size_t i = 0; i < 3; i++) {
        const char *name = boards[i].name;
        const redisReply *r =
            probe_do(h->probe, "ZRANGE popularity:ranking:{%s} 0 -1 WITHSCORES", name);
        assert_int_equal(r->elements, 2);
        assert_string_equal(r->element[0]->str, "8203268799999:42");
        assert_string_equal(r->element[1]->str, "1");
        r = probe_do(h->probe, "HGET performance:{%s}:info 42", name);
        assert_string_equal(r->str, "1 2 1796731200000");
        int64_t left_ms = boards[i].left_s * 1000;
        int64_t order_ms = probe_number(h->probe, "PTTL popularity:ranking:{%s}", name);
        int64_t info_ms = probe_number(h->probe, "PTTL performance:{%s}:info", name);
        assert_true(order_ms <= left_ms && order_ms > left_ms - 60000);
        assert_true(info_ms <= left_ms && info_ms > left_ms - 60000);
    }
    assert_int_equal(probe_number(h->probe, "TTL ranking:{soldout}"), -2); /* event 42 is unknown */
    assert_int_equal(probe_number(h->probe, "TTL performance:{soldout}:info"), -1);
}

static void boards_of_an_older_incarnation_are_ignored(void **state) {
    struct fixture *h = *state;
    begin(h, NOW_MS);
    assert_int_equal(count_one(h, 1, NOW_MS), ERR_OK);
    probe_do(h->probe, "HSET performance:{daily:20261208}:info epoch %u", h->epoch - 1);
    assert_int_equal(count_one(h, 2, NOW_MS), ERR_OK);
    const redisReply *r = probe_do(h->probe, "HGET performance:{daily:20261208}:info 42");
    assert_string_equal(r->str, "1 2 1796731200000");
    r = probe_do(h->probe, "HGET performance:{monthly:202612}:info 42");
    assert_string_equal(r->str, "2 4 1796731200000");
    probe_do(h->probe, "HSET performance:{daily:20261208}:info epoch %u", h->epoch + 1);
    assert_int_equal(count_one(h, 3, NOW_MS), ERR_RECOVERING);
    assert_int_equal(begin(h, NOW_MS).mark.id, 2);
}

/* Everybody waits for what Redis does in one call. */
static void the_pace_of_many_is_forgotten_some_at_a_time(void **state) {
    struct fixture *h = *state;
    static const int64_t left[] = {600, 344, 88, 0};
    int64_t now_ms = NOW_MS;
    begin(h, now_ms);
    count_events(h, 600, now_ms);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(probe_number(h->probe, "ZCARD performance:{soldout}:paced"), left[i]);
        assert_int_equal(probe_number(h->probe, "HLEN performance:{soldout}:pace"), left[i]);
        begin(h, now_ms += 300000);
    }
    const redisReply *r = probe_do(h->probe, "HVALS performance:{soldout}:info");
    for (size_t i = 0; i < r->elements; i++)
        assert_null(strstr(r->element[i]->str, "0 0 0 1 1 1796731200000 0 1"));
}

static void a_lost_board_ends_the_incarnation(void **state) {
    struct fixture *h = *state;
    begin(h, NOW_MS);
    probe_do(h->probe, "DEL performance:{soldout}:info");
    assert_int_equal(begin(h, NOW_MS).result, ERR_RECOVERING);
    struct hot_incarnation incarnation;
    for (int i = 0; i < 1000; i++) {
        uv_run(&redis_loop, UV_RUN_NOWAIT);
        assert_int_equal(hot_incarnation_read(redis_store_hot(h->store), &incarnation), ERR_OK);
        if (incarnation.epoch == 0) break;
    }
    assert_int_equal(incarnation.epoch, 0);
}

int main(void) {
    static const struct boards_adapter redis = {.open = open_boards,
                                                .close = close_redis,
                                                .rebuild_begins = redis_rebuild_begins,
                                                .rebuild_ends = redis_rebuild_ends,
                                                .run_callbacks = redis_run_callbacks};
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_node_counts_until_it_is_silent),
        TEST(keys_are_named_and_end_by_themselves),
        TEST(boards_of_an_older_incarnation_are_ignored),
        TEST(the_pace_of_many_is_forgotten_some_at_a_time),
        TEST(a_lost_board_ends_the_incarnation),
    };
#undef TEST
    return boards_suite_run(&redis) +
           cmocka_run_group_tests_name("boards in Redis", tests, NULL, NULL);
}
