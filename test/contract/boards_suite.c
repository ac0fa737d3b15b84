#include "boards_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "board_ops.h"
#include "splitmix.h"

/* That set_up makes known. */
#define EVENTS 4
#define CAPACITY 10

static const struct boards_adapter *adapter;

struct fixture {
    void *of;
    struct boards *b;
    int64_t now_ms;
    uint32_t epoch;
    int64_t lease;
    struct sale told[4096]; /* all sales that were counted, in order */
    size_t count;
};

static int64_t at(const char *text) {
    int64_t ms = 0;
    assert_true(clock_parse(str_of(text), &ms));
    return ms;
}

/* ---- operations, each waited for ---- */

#define WAIT_FOR(f, op)                                                                            \
    while ((op).done != NULL) adapter->run_callbacks((f)->of)

static void know(struct fixture *f, int64_t event_key, int64_t capacity, int64_t opened_ms) {
    struct board_event event = {event_key, capacity, opened_ms};
    struct board_events_op op = {.epoch = f->epoch,
                                 .lease = f->lease,
                                 .now_ms = f->now_ms,
                                 .events = &event,
                                 .count = 1,
                                 .done = board_events_op_done};
    boards_set_events(f->b, &op);
    WAIT_FOR(f, op);
    assert_int_equal(op.result, ERR_OK);
}

static struct sale_mark begin(struct fixture *f) {
    struct board_begin_op op = {.now_ms = f->now_ms, .done = board_begin_op_done};
    boards_begin(f->b, &op);
    WAIT_FOR(f, op);
    assert_int_equal(op.result, ERR_OK);
    assert_true(op.lease > 0);
    f->epoch = op.epoch;
    f->lease = op.lease;
    return op.mark;
}

static enum err try_to_count(struct fixture *f, const struct sale *sales, size_t n) {
    struct board_count_op op = {.epoch = f->epoch,
                                .now_ms = f->now_ms,
                                .sales = sales,
                                .count = n,
                                .done = board_count_op_done};
    boards_count(f->b, &op);
    WAIT_FOR(f, op);
    return op.result;
}

static void count(struct fixture *f, const struct sale *sales, size_t n) {
    assert_int_equal(try_to_count(f, sales, n), ERR_OK);
}

static struct sale *next(struct fixture *f, struct sale s) {
    assert_true(f->count < sizeof f->told / sizeof f->told[0]);
    s.mark = (struct sale_mark){.transaction = f->count / 5, .id = (int64_t)f->count + 1};
    f->told[f->count] = s;
    return &f->told[f->count++];
}

/* Taken now. */
static void take(struct fixture *f, int64_t event_key, int64_t seats) {
    count(f,
          next(f, (struct sale){.kind = SALE_TAKEN,
                                .event_key = event_key,
                                .seats = seats,
                                .at_ms = f->now_ms,
                                .taken_ms = f->now_ms}),
          1);
}

/* Now; that was taken then. */
static void give_back(struct fixture *f, int64_t event_key, int64_t seats, const char *taken) {
    count(f,
          next(f, (struct sale){.kind = SALE_GIVEN_BACK,
                                .event_key = event_key,
                                .seats = seats,
                                .at_ms = f->now_ms,
                                .taken_ms = at(taken)}),
          1);
}

static void sell_out(struct fixture *f, int64_t event_key) {
    count(f,
          next(f, (struct sale){.kind = SALE_SOLD_OUT, .event_key = event_key, .at_ms = f->now_ms}),
          1);
}

static size_t top(struct fixture *f, struct board_name board, struct board_row *rows, size_t max) {
    struct board_top_op op = {
        .board = board, .now_ms = f->now_ms, .rows = rows, .max = max, .done = board_top_op_done};
    boards_top(f->b, &op);
    WAIT_FOR(f, op);
    assert_int_equal(op.result, ERR_OK);
    return op.count;
}

static struct board_row find(struct fixture *f, struct board_name board, int64_t event_key) {
    struct board_find_op op = {
        .board = board, .event_key = event_key, .now_ms = f->now_ms, .done = board_find_op_done};
    boards_find(f->b, &op);
    WAIT_FOR(f, op);
    assert_int_equal(op.result, ERR_OK);
    return op.row;
}

/* ---- what a board shows ---- */

static struct board_name popular(const char *period, const char *when) {
    return (struct board_name){
        .kind = BOARD_POPULAR, .period = period_find(str_of(period)), .at_ms = at(when)};
}

static struct board_name soldout_on(const char *when) {
    return (struct board_name){
        .kind = BOARD_SOLDOUT, .period = period_find(STR("daily")), .at_ms = at(when)};
}

static const struct board_name soldout = {.kind = BOARD_SOLDOUT};

struct line {
    int64_t event_key;
    int64_t reservations;
    int64_t seats;
};

/* The lines end with one of event 0. */
static void assert_board(struct fixture *f, struct board_name board, const struct line *lines) {
    struct board_row rows[TOP_MAX];
    size_t n = top(f, board, rows, TOP_MAX);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(rows[i].rank, i + 1);
        assert_int_equal(rows[i].sales.event_key, lines[i].event_key);
        assert_int_equal(rows[i].sales.reservations, lines[i].reservations);
        assert_int_equal(rows[i].sales.seats, lines[i].seats);
        if (board.kind == BOARD_SOLDOUT && board.period != NULL) continue;
        struct board_row found = find(f, board, lines[i].event_key);
        assert_int_equal(found.rank, rows[i].rank);
        assert_int_equal(found.is_sold_out, rows[i].is_sold_out);
        assert_memory_equal(&found.sales, &rows[i].sales, sizeof found.sales);
    }
    assert_int_equal(lines[n].event_key, 0);
}
#define ASSERT_BOARD(f, board, ...) assert_board(f, board, (const struct line[]){__VA_ARGS__, {0}})
#define ASSERT_EMPTY(f, board) assert_board(f, board, &(const struct line){0})

/* ---- the tests ---- */

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    clock_zone_set("UTC");
    f->b = adapter->open(&f->of);
    f->now_ms = at("2026-12-10T12:00:00Z");
    begin(f);
    for (int64_t key = 1; key <= EVENTS; key++) know(f, key, CAPACITY, at("2026-12-10T12:00:00Z"));
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    adapter->close(f->of);
    mem_free(f);
    return 0;
}

static void an_empty_board_is_empty(void **state) {
    struct fixture *f = *state;
    ASSERT_EMPTY(f, popular("daily", "2026-12-10T00:00:00Z"));
    ASSERT_EMPTY(f, soldout);
    ASSERT_EMPTY(f, soldout_on("2026-12-10T00:00:00Z"));
    assert_int_equal(find(f, soldout, 1).rank, 0);
    assert_int_equal(find(f, popular("weekly", "2026-12-10T00:00:00Z"), 1).rank, 0);
    struct sale_mark mark = begin(f);
    assert_true(mark.transaction == 0 && mark.id == 0);
}

static void a_reservation_counts_in_its_day_week_and_month(void **state) {
    struct fixture *f = *state;
    take(f, 1, 2);
    take(f, 2, 1);
    take(f, 2, 1);
    f->now_ms = at("2026-12-11T00:00:00Z");
    take(f, 1, 3);
    take(f, 1, 1);
    ASSERT_BOARD(f, popular("daily", "2026-12-10T23:59:59Z"), {2, 2, 2}, {1, 1, 2});
    ASSERT_BOARD(f, popular("daily", "2026-12-11T00:00:00Z"), {1, 2, 4});
    ASSERT_BOARD(f, popular("weekly", "2026-12-07T00:00:00Z"), {1, 3, 6}, {2, 2, 2});
    ASSERT_BOARD(f, popular("monthly", "2026-12-31T00:00:00Z"), {1, 3, 6}, {2, 2, 2});
    ASSERT_EMPTY(f, popular("weekly", "2026-12-14T00:00:00Z"));
    ASSERT_EMPTY(f, popular("monthly", "2027-01-01T00:00:00Z"));
}

/* Pitfall 38: 2026-12-28 to 2027-01-03 are one week, of 2026. */
static void a_week_goes_over_the_year_and_a_month_does_not(void **state) {
    struct fixture *f = *state;
    const char *days[] = {"2026-12-27T23:59:59.999Z", "2026-12-28T00:00:00Z",
                          "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z",
                          "2027-01-03T23:59:59.999Z", "2027-01-04T00:00:00Z"};
    for (size_t i = 0; i < 6; i++) {
        f->now_ms = at(days[i]);
        if (i == 5) ASSERT_EMPTY(f, popular("weekly", "2026-12-27T00:00:00Z"));
        take(f, 1, 1);
        if (i < 5) ASSERT_BOARD(f, popular("weekly", "2026-12-27T00:00:00Z"), {1, 1, 1});
    }
    ASSERT_BOARD(f, popular("weekly", "2027-01-01T00:00:00Z"), {1, 4, 4});
    ASSERT_BOARD(f, popular("weekly", "2027-01-04T00:00:00Z"), {1, 1, 1});
    ASSERT_BOARD(f, popular("monthly", "2026-12-01T00:00:00Z"), {1, 3, 3});
    ASSERT_BOARD(f, popular("monthly", "2027-01-01T00:00:00Z"), {1, 3, 3});
    ASSERT_BOARD(f, popular("daily", "2027-01-04T00:00:00Z"), {1, 1, 1});
}

/* Pitfall 39. */
static void what_is_given_back_is_taken_away_where_it_was_counted(void **state) {
    struct fixture *f = *state;
    take(f, 1, 2);
    take(f, 1, 1);
    f->now_ms = at("2026-12-11T09:00:00Z");
    take(f, 1, 4);
    give_back(f, 1, 2, "2026-12-10T12:00:00Z");
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {1, 1, 1});
    ASSERT_BOARD(f, popular("daily", "2026-12-11T00:00:00Z"), {1, 1, 4});
    ASSERT_BOARD(f, popular("monthly", "2026-12-11T00:00:00Z"), {1, 2, 5});
    ASSERT_BOARD(f, soldout, {1, 2, 5});
}

static void a_board_ends_and_nothing_brings_it_back(void **state) {
    struct fixture *f = *state;
    take(f, 1, 1);
    take(f, 1, 1);
    f->now_ms = at("2026-12-11T23:59:59Z"); /* a day's board is kept for a day */
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {1, 2, 2});
    f->now_ms = at("2026-12-12T00:00:00Z");
    ASSERT_EMPTY(f, popular("daily", "2026-12-10T00:00:00Z"));
    give_back(f, 1, 1, "2026-12-10T12:00:00Z");
    ASSERT_EMPTY(f, popular("daily", "2026-12-10T00:00:00Z"));
    ASSERT_BOARD(f, popular("weekly", "2026-12-10T00:00:00Z"), {1, 1, 1});
    f->now_ms = at("2026-12-21T00:00:00Z");
    ASSERT_EMPTY(f, popular("weekly", "2026-12-10T00:00:00Z"));
    ASSERT_BOARD(f, popular("monthly", "2026-12-10T00:00:00Z"), {1, 1, 1});
    f->now_ms = at("2027-01-31T00:00:00Z");
    ASSERT_EMPTY(f, popular("monthly", "2026-12-10T00:00:00Z"));
    ASSERT_BOARD(f, soldout, {1, 1, 1});
}

static void of_equal_events_the_earlier_one_is_first(void **state) {
    struct fixture *f = *state;
    take(f, 3, 1);
    f->now_ms += 1000;
    take(f, 1, 1);
    f->now_ms += 1000;
    take(f, 2, 1);
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {3, 1, 1}, {1, 1, 1}, {2, 1, 1});
}

static void the_fastest_to_sell_out_is_first_and_then_events_that_still_sell(void **state) {
    struct fixture *f = *state;
    f->now_ms += 60000;
    take(f, 2, 10);
    sell_out(f, 2);
    take(f, 3, 1);
    f->now_ms += 60000;
    know(f, 1, 10, f->now_ms - 1000);
    take(f, 1, 10);
    sell_out(f, 1);
    take(f, 4, 2);
    ASSERT_BOARD(f, soldout, {1, 1, 10}, {2, 1, 10}, {4, 1, 2}, {3, 1, 1});
    struct board_row first = find(f, soldout, 1);
    assert_true(first.is_sold_out);
    assert_int_equal(first.sales.sold_out_ms - first.sales.opened_ms, 1000);
    struct board_row third = find(f, soldout, 4);
    assert_false(third.is_sold_out);
    assert_int_equal(third.sales.pace, 2);
    f->now_ms += 600000;
    assert_int_equal(find(f, soldout, 4).sales.pace, 0);
}

static void a_day_shows_events_sold_out_on_it_and_then_popular_ones(void **state) {
    struct fixture *f = *state;
    take(f, 1, 4);
    take(f, 3, 1);
    take(f, 3, 1);
    f->now_ms++;
    take(f, 4, 1);
    f->now_ms = at("2026-12-11T10:00:00Z");
    take(f, 1, 6);
    sell_out(f, 1);
    take(f, 2, 1);
    ASSERT_BOARD(f, soldout_on("2026-12-10T00:00:00Z"), {3, 2, 2}, {1, 1, 4}, {4, 1, 1});
    ASSERT_BOARD(f, soldout_on("2026-12-11T00:00:00Z"), {1, 1, 6}, {2, 1, 1});
    struct board_row rows[2];
    assert_int_equal(top(f, soldout_on("2026-12-11T00:00:00Z"), rows, 2), 2);
    assert_true(rows[0].is_sold_out && !rows[1].is_sold_out);
    assert_int_equal(rows[0].sales.sold_out_ms, at("2026-12-11T10:00:00Z"));
    f->now_ms = at("2026-12-11T11:00:00Z");
    give_back(f, 1, 6, "2026-12-11T10:00:00Z");
    ASSERT_BOARD(f, soldout_on("2026-12-11T00:00:00Z"), {2, 1, 1});
}

/* Two nodes, or one that starts again: sales that are sent twice count once. */
static void a_sale_counts_once_however_often_it_is_reported(void **state) {
    struct fixture *f = *state;
    uint64_t random = 11;
    enum { SALES = 2000 };
    struct line lines[5] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 0, 0}};
    size_t open[SALES];
    size_t open_count = 0;
    know(f, 1, 1000000, 0);
    for (size_t i = 0; i < SALES; i++) {
        struct sale s = {.kind = SALE_TAKEN,
                         .event_key = (int64_t)(next_random(&random) % 4) + 1,
                         .seats = (int64_t)(next_random(&random) % 4) + 1,
                         .at_ms = f->now_ms,
                         .taken_ms = f->now_ms};
        if (open_count > 0 && next_random(&random) % 3 == 0) {
            size_t which = next_random(&random) % open_count;
            s = f->told[open[which]];
            s.kind = SALE_GIVEN_BACK;
            open[which] = open[--open_count];
        } else {
            open[open_count++] = i;
        }
        next(f, s);
        struct line *l = &lines[s.event_key - 1];
        l->reservations += s.kind == SALE_TAKEN ? 1 : -1;
        l->seats += s.kind == SALE_TAKEN ? s.seats : -s.seats;
    }
    for (size_t told = 0; told < SALES;) {
        size_t back = next_random(&random) % 30;
        size_t from = back > told ? 0 : told - back;
        told += next_random(&random) % 100 + 1;
        if (told > SALES) told = SALES;
        count(f, f->told + from, told - from);
        struct sale_mark mark = begin(f);
        assert_memory_equal(&mark, &f->told[told - 1].mark, sizeof mark);
    }
    for (size_t i = 0; i < 4; i++) {
        struct board_row row =
            find(f, popular("daily", "2026-12-10T00:00:00Z"), lines[i].event_key);
        assert_int_equal(row.sales.reservations, lines[i].reservations);
        assert_int_equal(row.sales.seats, lines[i].seats);
        row = find(f, soldout, lines[i].event_key);
        assert_int_equal(row.sales.reservations, lines[i].reservations);
        assert_int_equal(row.sales.seats, lines[i].seats);
    }
}

/* As many events as set_up has configured. */
static void restore(struct fixture *f, const struct sale *live, size_t n,
                    const struct sale_mark *mark) {
    if (adapter->rebuild_begins != NULL) adapter->rebuild_begins(f->of);
    for (int64_t key = 1; key <= EVENTS; key++)
        boards_restore_event(f->b,
                             &(struct board_event){key, CAPACITY, at("2026-12-10T12:00:00Z")});
    for (size_t i = 0; i < n; i++) boards_restore(f->b, &live[i], f->now_ms);
    boards_restored(f->b, mark, f->now_ms);
    if (adapter->rebuild_ends != NULL) adapter->rebuild_ends(f->of);
}

/* After a restart: what the ledger has, and then on from there. */
static void a_restored_board_continues_from_its_watermark(void **state) {
    struct fixture *f = *state;
    f->now_ms = at("2026-12-11T10:00:00Z");
    const struct sale live[] = {
        {.kind = SALE_TAKEN, .event_key = 1, .seats = 4, .taken_ms = at("2026-12-10T10:00:00Z")},
        {.kind = SALE_TAKEN, .event_key = 1, .seats = 6, .taken_ms = at("2026-12-11T09:59:00Z")},
        {.kind = SALE_TAKEN, .event_key = 2, .seats = 1, .taken_ms = at("2026-10-01T00:00:00Z")},
        {.kind = SALE_SOLD_OUT, .event_key = 1, .at_ms = at("2026-12-11T09:59:00Z")},
    };
    const struct sale_mark mark = {.transaction = 7, .id = 40};
    restore(f, live, 4, &mark);
    struct sale_mark now = begin(f);
    assert_memory_equal(&now, &mark, sizeof now);
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {1, 1, 4});
    ASSERT_BOARD(f, popular("daily", "2026-12-11T00:00:00Z"), {1, 1, 6});
    ASSERT_EMPTY(f, popular("monthly", "2026-10-01T00:00:00Z"));
    ASSERT_BOARD(f, soldout, {1, 2, 10}, {2, 1, 1});
    ASSERT_BOARD(f, soldout_on("2026-12-11T00:00:00Z"), {1, 1, 6});
    assert_int_equal(find(f, soldout, 1).sales.pace, 6);
    struct sale again = {
        .mark = mark, .kind = SALE_TAKEN, .event_key = 2, .seats = 1, .taken_ms = f->now_ms};
    count(f, &again, 1);
    ASSERT_BOARD(f, popular("daily", "2026-12-11T00:00:00Z"), {1, 1, 6});
    again.mark.id++;
    count(f, &again, 1);
    ASSERT_BOARD(f, popular("daily", "2026-12-11T00:00:00Z"), {1, 1, 6}, {2, 1, 1});
}

/* Pitfall 37: reading removes nothing, and the mark moves with the counted sales. */
static void a_sale_that_was_read_and_not_counted_is_read_again(void **state) {
    struct fixture *f = *state;
    struct sale_mark none = begin(f);
    take(f, 1, 1);
    struct sale_mark first = begin(f);
    struct sale_mark again = begin(f);
    assert_true(none.id == 0 && first.id == 1 && again.id == 1);
    struct sale *unseen = next(f, (struct sale){.kind = SALE_TAKEN,
                                                .event_key = 1,
                                                .seats = 1,
                                                .at_ms = f->now_ms,
                                                .taken_ms = f->now_ms});
    assert_true(begin(f).id == 1);
    count(f, unseen, 1);
    assert_true(begin(f).id == 2);
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {1, 2, 2});
}

/* A node that began in another incarnation of the store has a mark of that one. */
static void a_call_of_another_incarnation_is_not_counted(void **state) {
    struct fixture *f = *state;
    if (adapter->rebuild_begins == NULL) return;
    take(f, 1, 1);
    uint32_t before = f->epoch;
    const struct sale_mark mark = {.id = 1};
    restore(f, f->told, 1, &mark);
    struct sale *late = next(f, (struct sale){.kind = SALE_TAKEN,
                                              .event_key = 1,
                                              .seats = 1,
                                              .at_ms = f->now_ms,
                                              .taken_ms = f->now_ms});
    assert_int_equal(try_to_count(f, late, 1), ERR_RECOVERING);
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {1, 1, 1});
    ASSERT_BOARD(f, soldout, {1, 1, 1});
    begin(f);
    assert_true(f->epoch > before);
    count(f, late, 1);
    ASSERT_BOARD(f, popular("daily", "2026-12-10T00:00:00Z"), {1, 2, 2});
}

static void a_row_says_up_to_where_it_has_counted(void **state) {
    struct fixture *f = *state;
    take(f, 1, 1);
    take(f, 2, 1);
    const struct board_name boards[] = {soldout, popular("daily", "2026-12-10T00:00:00Z")};
    for (size_t i = 0; i < 2; i++) {
        struct board_find_op op = {
            .board = boards[i], .event_key = 1, .now_ms = f->now_ms, .done = board_find_op_done};
        boards_find(f->b, &op);
        WAIT_FOR(f, op);
        assert_int_equal(op.mark.id, 2);
    }
}

static void a_top_is_as_long_as_is_asked(void **state) {
    struct fixture *f = *state;
    struct board_row rows[TOP_MAX];
    for (int64_t key = 1; key <= 4; key++) take(f, key, 1);
    assert_int_equal(top(f, soldout, rows, 3), 3);
    assert_int_equal(top(f, popular("daily", "2026-12-10T00:00:00Z"), rows, 1), 1);
    assert_int_equal(top(f, soldout_on("2026-12-10T00:00:00Z"), rows, 2), 2);
}

int boards_suite_run(const struct boards_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_board_is_empty),
        TEST(a_reservation_counts_in_its_day_week_and_month),
        TEST(a_week_goes_over_the_year_and_a_month_does_not),
        TEST(what_is_given_back_is_taken_away_where_it_was_counted),
        TEST(a_board_ends_and_nothing_brings_it_back),
        TEST(of_equal_events_the_earlier_one_is_first),
        TEST(the_fastest_to_sell_out_is_first_and_then_events_that_still_sell),
        TEST(a_day_shows_events_sold_out_on_it_and_then_popular_ones),
        TEST(a_sale_counts_once_however_often_it_is_reported),
        TEST(a_restored_board_continues_from_its_watermark),
        TEST(a_sale_that_was_read_and_not_counted_is_read_again),
        TEST(a_call_of_another_incarnation_is_not_counted),
        TEST(a_row_says_up_to_where_it_has_counted),
        TEST(a_top_is_as_long_as_is_asked),
    };
#undef TEST
    return cmocka_run_group_tests_name("boards contract", tests, NULL, NULL);
}
