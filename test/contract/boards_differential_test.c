/* Compares the two implementations of the boards: the same seeded random histories of sales in
 * memory and in a real Redis, and every board, row by row. Times grow with every sale, because the
 * order of sales in one millisecond is not defined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "board_ops.h"
#include "history.h"
#include "hot/memory_boards.h"
#include "redis_adapter.h"
#include "redis_probe.h"

#define SEEDS 1
#define STEPS 1000
#define EVENTS 40
#define BATCH_MOST 60
#define SALES_MOST (STEPS * BATCH_MOST)
#define DAY_MS INT64_C(86400000)
#define T0 INT64_C(1798459000000) /* 2026-12-28, some minutes before noon */

enum { MEMORY, REDIS, STORES };

static struct boards *boards[STORES];
static void *redis;
static redisContext *probe;
static struct memory_boards *memory;
static uint32_t epochs[STORES];
static int64_t leases[STORES];
static int64_t now_ms;

/* All sales so far, and the reservations that were not given back. */
static struct sale told[SALES_MOST];
static size_t told_count;
static size_t live[SALES_MOST];
static size_t live_count;
static struct board_event events[EVENTS];

/* ---- operations, each waited for ---- */

#define DO(function, store, op)                                                                    \
    do {                                                                                           \
        function(boards[store], &(op));                                                            \
        while ((op).done != NULL) redis_run_callbacks(redis);                                      \
        CHECK((op).result == ERR_OK);                                                              \
    } while (0)

static struct sale_mark begin(int store) {
    struct board_begin_op op = {.now_ms = now_ms, .done = board_begin_op_done};
    DO(boards_begin, store, op);
    CHECK(op.lease > 0);
    epochs[store] = op.epoch;
    leases[store] = op.lease;
    return op.mark;
}

static void count_in(int store, const struct sale *sales, size_t n) {
    struct board_count_op op = {.epoch = epochs[store],
                                .now_ms = now_ms,
                                .sales = sales,
                                .count = n,
                                .done = board_count_op_done};
    DO(boards_count, store, op);
}

static void count(const struct sale *sales, size_t n) {
    for (int s = 0; s < STORES; s++) count_in(s, sales, n);
}

/* ---- comparing ---- */

static void same_row(const struct board_row *a, const struct board_row *b) {
    CHECK(a->rank == b->rank);
    CHECK(a->is_sold_out == b->is_sold_out);
    CHECK(a->sales.event_key == b->sales.event_key);
    CHECK(a->sales.capacity == b->sales.capacity);
    CHECK(a->sales.opened_ms == b->sales.opened_ms);
    CHECK(a->sales.reservations == b->sales.reservations);
    CHECK(a->sales.seats == b->sales.seats);
    CHECK(a->sales.since_ms == b->sales.since_ms);
    CHECK(a->sales.sold_out_ms == b->sales.sold_out_ms);
    CHECK(a->sales.pace == b->sales.pace);
}

static void same_top(struct board_name board) {
    static struct board_row rows[STORES][TOP_MAX];
    size_t counts[STORES];
    size_t max = one_in(2) ? TOP_MAX : (size_t)between(1, 20);
    for (int s = 0; s < STORES; s++) {
        struct board_top_op op = {.board = board,
                                  .now_ms = now_ms,
                                  .rows = rows[s],
                                  .max = max,
                                  .done = board_top_op_done};
        DO(boards_top, s, op);
        counts[s] = op.count;
    }
    CHECK(counts[MEMORY] == counts[REDIS]);
    for (size_t i = 0; i < counts[MEMORY]; i++) same_row(&rows[MEMORY][i], &rows[REDIS][i]);
}

static void same_one(struct board_name board) {
    struct board_row found[STORES];
    int64_t key = between(1, EVENTS + 1);
    for (int s = 0; s < STORES; s++) {
        struct board_find_op op = {
            .board = board, .event_key = key, .now_ms = now_ms, .done = board_find_op_done};
        DO(boards_find, s, op);
        found[s] = op.row;
    }
    same_row(&found[MEMORY], &found[REDIS]);
}

static void look(void) {
    int64_t at_ms = now_ms - between(0, 40) * between(0, 2) * DAY_MS;
    same_top((struct board_name){.kind = BOARD_SOLDOUT});
    same_one((struct board_name){.kind = BOARD_SOLDOUT});
    same_top((struct board_name){
        .kind = BOARD_SOLDOUT, .period = &periods[0], .at_ms = now_ms - between(0, 2) * DAY_MS});
    for (size_t i = 0; i < period_count; i++) {
        struct board_name of = {.kind = BOARD_POPULAR, .period = &periods[i], .at_ms = at_ms};
        same_top(of);
        same_one(of);
    }
    struct sale_mark a = begin(MEMORY);
    struct sale_mark b = begin(REDIS);
    CHECK(a.transaction == b.transaction && a.id == b.id);
}

/* ---- the steps ---- */

static void add(struct sale s) {
    s.mark = (struct sale_mark){.transaction = told_count / 3, .id = (int64_t)told_count + 1};
    told[told_count++] = s;
}

static void take(void) {
    struct sale s = {.kind = SALE_TAKEN,
                     .event_key = between(1, one_in(3) ? EVENTS : 5),
                     .seats = between(1, 4),
                     .at_ms = now_ms,
                     .taken_ms = now_ms};
    if (one_in(10)) s.taken_ms += between(0, 20000); /* clocks differ */
    /* No two events in one millisecond: of these any may be in front. */
    s.taken_ms += s.event_key - s.taken_ms % (EVENTS + 1);
    live[live_count++] = told_count;
    add(s);
}

static void give_back(void) {
    if (live_count == 0) return;
    size_t which = (size_t)between(0, (int64_t)live_count - 1);
    struct sale s = told[live[which]];
    live[which] = live[--live_count];
    s.kind = SALE_GIVEN_BACK;
    s.at_ms = now_ms;
    add(s);
}

static void sell_out(void) {
    add((struct sale){.kind = SALE_SOLD_OUT, .event_key = between(1, EVENTS), .at_ms = now_ms});
}

/* ---- a batch that only some boards have counted ---- */

/* A board that loses its last sales is set back to its saved state. */
#define SAVE                                                                                       \
    "for _, k in ipairs(redis.call('KEYS', 'p*')) do "                                             \
    "redis.call('COPY', k, 'saved:' .. k, 'REPLACE') end "                                         \
    "return redis.call('COPY', 'ranking:{soldout}', 'saved:ranking:{soldout}', 'REPLACE')"
#define LOSE                                                                                       \
    "local function loses(k) local name = k:match('{(.*)}') return name == 'soldout' or "          \
    "tonumber(redis.sha1hex(ARGV[1] .. name):sub(1, 1), 16) < 8 end "                              \
    "redis.call('DEL', 'ranking:{soldout}') "                                                      \
    "for _, k in ipairs(redis.call('KEYS', 'p*')) do "                                             \
    "if loses(k) then redis.call('DEL', k) end end "                                               \
    "for _, k in ipairs(redis.call('KEYS', 'saved:*')) do "                                        \
    "if loses(k) then redis.call('COPY', k, k:sub(7)) end redis.call('DEL', k) end return 1"

/* The node stopped before it reached the board of all time, and some of the others. */
static void tell_some_boards(const struct sale *sales, size_t n) {
    probe_do(probe, "EVAL %s 0", SAVE);
    count_in(REDIS, sales, n);
    probe_do(probe, "EVAL %s 0 %lld", LOSE, (long long)between(0, 1000000));
}

/* A batch; some of its sales may have been counted before, on all or on some boards. */
static void tell(void) {
    size_t from = told_count;
    size_t again = (size_t)between(0, 20);
    for (int64_t n = between(1, BATCH_MOST); n > 0 && told_count < SALES_MOST; n--) {
        now_ms += between(1, 300);
        int64_t dice = between(1, 10);
        if (dice <= 6)
            take();
        else if (dice <= 9)
            give_back();
        else
            sell_out();
    }
    if (!one_in(3)) from = again > from ? 0 : from - again;
    if (told_count == from) return;
    size_t n = told_count - from;
    if (one_in(3)) tell_some_boards(told + from, (size_t)between(1, (int64_t)n));
    count(told + from, n);
}

static void know(void) {
    size_t which = (size_t)between(0, EVENTS - 1);
    events[which] = (struct board_event){.event_key = (int64_t)which + 1,
                                         .capacity = between(0, 30),
                                         .opened_ms = now_ms - between(-1000, 5000000)};
    for (int s = 0; s < STORES; s++) {
        struct board_events_op op = {.epoch = epochs[s],
                                     .lease = leases[s],
                                     .now_ms = now_ms,
                                     .events = &events[which],
                                     .count = 1,
                                     .done = board_events_op_done};
        DO(boards_set_events, s, op);
    }
}

/* The ledger gives the live reservations and the times of selling out; both stores are rebuilt from
 * it. */
static void restart(void) {
    memory_boards_free(memory);
    memory = memory_boards_new();
    boards[MEMORY] = memory_boards_port(memory);
    redis_rebuild_begins(redis);
    struct sale_mark mark = told_count == 0 ? (struct sale_mark){0} : told[told_count - 1].mark;
    for (int s = 0; s < STORES; s++) {
        for (size_t i = 0; i < EVENTS; i++)
            if (events[i].event_key != 0) boards_restore_event(boards[s], &events[i]);
        for (size_t i = 0; i < live_count; i++) boards_restore(boards[s], &told[live[i]], now_ms);
        for (size_t i = 0; i < told_count; i++)
            if (told[i].kind == SALE_SOLD_OUT) boards_restore(boards[s], &told[i], now_ms);
        boards_restored(boards[s], &mark, now_ms);
    }
    redis_rebuild_ends(redis);
    for (int s = 0; s < STORES; s++) begin(s);
}

static void pass_time(void) {
    if (one_in(20))
        now_ms += between(1, 10) * DAY_MS;
    else if (one_in(4))
        now_ms += between(0, 12) * 3600000;
    else
        now_ms += between(0, 120000);
}

static void begin_history(void) {
    now_ms = T0 + between(0, 10) * DAY_MS;
    told_count = live_count = 0;
    memset(events, 0, sizeof events);
    memory = memory_boards_new();
    boards[MEMORY] = memory_boards_port(memory);
    open_redis(&redis);
    boards[REDIS] = redis_store_boards(redis);
    struct redis_address address = probe_address(services_start(SERVICE_REDIS)->redis_url);
    probe = probe_connect(&address);
    restart();
}

static void end_history(void) {
    probe_end(probe);
    close_redis(redis);
    memory_boards_free(memory);
}

static void memory_and_redis_show_the_same_boards(void **state) {
    (void)state;
    clock_zone_set("UTC");
    static const struct history_act acts[] = {
        {40, tell}, {10, know}, {15, pass_time}, {1, restart}, {34, look}, {0},
    };
    history_run(&(struct history){
        .seeds = SEEDS, .steps = STEPS, .acts = acts, .begin = begin_history, .end = end_history});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_redis_show_the_same_boards),
    };
    return cmocka_run_group_tests_name("boards: memory and Redis", tests, NULL, NULL);
}
