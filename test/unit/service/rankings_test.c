/* Counting of sales on the boards, when new sales arrive all the time. */
#include "service/rankings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "board_ops.h"
#include "hot/memory_boards.h"

#define DEADLINE_NS INT64_C(60000000000)

/* A ledger that always has one more sale, of an event that is unknown at first. */
static enum err ask(struct ledger *l, struct ledger_record *r) {
    (void)l;
    struct ledger_sales_read *read = CONTAINER_OF(r, struct ledger_sales_read, record);
    int64_t now_ms = clock_wall_ms();
    for (size_t i = 0; i < read->max; i++)
        read->sales[i] = (struct sale){.mark.id = read->mark.id + 1 + (int64_t)i,
                                       .kind = SALE_TAKEN,
                                       .event_key = 7,
                                       .seats = 1,
                                       .at_ms = now_ms,
                                       .taken_ms = now_ms};
    read->count = read->max;
    r->result = ERR_OK;
    r->task.run(&r->task);
    return ERR_OK;
}

static size_t rank_of(struct boards *boards, int64_t event_key) {
    struct board_find_op op = {.board.kind = BOARD_SOLDOUT,
                               .event_key = event_key,
                               .now_ms = clock_wall_ms(),
                               .done = board_find_op_done};
    boards_find(boards, &op);
    assert_null(op.done);
    return op.row.rank;
}

static void run_until_counted(uv_loop_t *loop, const struct rankings *r, int64_t id) {
    while (r->begin.mark.id < id) uv_run(loop, UV_RUN_ONCE);
}

static void events_are_reported_though_there_is_always_more_to_count(void **state) {
    (void)state;
    static const struct ledger_ops ops = {.ask = ask};
    struct ledger ledger = {.ops = &ops};
    struct memory_boards *memory = memory_boards_new();
    struct rankings *r = mem_new(sizeof *r);
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    *r = (struct rankings){
        .ledger = &ledger, .boards = memory_boards_port(memory), .catalogue = catalogue_new()};
    boards_restored(r->boards, &(struct sale_mark){0}, clock_wall_ms());
    rankings_init(r, &loop);
    run_until_counted(&loop, r, 3 * RANKINGS_BATCH_MAX);
    assert_int_equal(rank_of(r->boards, 7), 0);

    struct event *e = event_new(1);
    str_copy(STR("CONCERT"), e->type, sizeof e->type);
    str_copy(STR("1"), e->id, sizeof e->id);
    e->version = 1;
    e->key = 7;
    catalogue_install(r->catalogue, e);
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    while (rank_of(r->boards, 7) == 0) {
        assert_true(clock_steady_ns() < deadline_ns);
        uv_run(&loop, UV_RUN_ONCE);
    }

    rankings_stop(r);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_false(rankings_is_busy(r));
    rankings_deinit(r);
    assert_int_equal(uv_loop_close(&loop), 0);
    catalogue_free(r->catalogue);
    memory_boards_free(memory);
    mem_free(r);
}

int main(void) {
    clock_zone_set("UTC");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_reported_though_there_is_always_more_to_count),
    };
    return cmocka_run_group_tests_name("rankings", tests, NULL, NULL);
}
