#include "core/soldout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"

#define OPENED_MS 1000000
#define MINUTE_MS 60000

static int set_up(void **state) {
    static struct soldout s;
    clock_zone_set("UTC");
    soldout_init(&s);
    for (int64_t key = 1; key <= 4; key++) soldout_set_event(&s, key, 10, OPENED_MS);
    *state = &s;
    return 0;
}

static int tear_down(void **state) {
    soldout_deinit(*state);
    return 0;
}

static void tell(struct soldout *s, enum sale_kind kind, int64_t event_key, int64_t seats,
                 int64_t at_ms, int64_t taken_ms) {
    soldout_advance(s, at_ms);
    soldout_add(s, &(struct sale){.kind = kind,
                                  .event_key = event_key,
                                  .seats = seats,
                                  .at_ms = at_ms,
                                  .taken_ms = taken_ms});
}

static void take(struct soldout *s, int64_t event_key, int64_t seats, int64_t after_ms) {
    tell(s, SALE_TAKEN, event_key, seats, OPENED_MS + after_ms, OPENED_MS + after_ms);
}

static void sell_out(struct soldout *s, int64_t event_key, int64_t after_ms) {
    take(s, event_key, 10, after_ms);
    tell(s, SALE_SOLD_OUT, event_key, 0, OPENED_MS + after_ms, 0);
}

static void give_back(struct soldout *s, int64_t event_key, int64_t seats, int64_t taken_after_ms,
                      int64_t after_ms) {
    tell(s, SALE_GIVEN_BACK, event_key, seats, OPENED_MS + after_ms, OPENED_MS + taken_after_ms);
}

static void assert_top(const struct soldout *s, const int64_t *keys, size_t count) {
    struct soldout_sales top[16];
    assert_int_equal(soldout_top(s, top, 16), count);
    for (size_t i = 0; i < count; i++) {
        struct soldout_sales found;
        assert_int_equal(top[i].event_key, keys[i]);
        assert_int_equal(soldout_find(s, keys[i], &found), i + 1);
        assert_memory_equal(&found, &top[i], sizeof found);
    }
}
#define ASSERT_TOP(s, ...)                                                                         \
    assert_top(s, (const int64_t[]){__VA_ARGS__},                                                  \
               sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static struct soldout_sales row(const struct soldout *s, int64_t event_key) {
    struct soldout_sales found;
    assert_true(soldout_find(s, event_key, &found) > 0);
    return found;
}

static void what_sells_nothing_is_not_on_the_board(void **state) {
    struct soldout *s = *state;
    struct soldout_sales found;
    assert_int_equal(soldout_top(s, &found, 1), 0);
    assert_int_equal(soldout_find(s, 1, &found), 0);
    assert_int_equal(soldout_find(s, 99, &found), 0);
}

/* Pitfall 38: neither by how much was sold nor from the show's start. */
static void the_fastest_to_sell_out_is_first(void **state) {
    struct soldout *s = *state;
    soldout_set_event(s, 3, 100, OPENED_MS + 8 * MINUTE_MS); /* opened later, so it was faster */
    sell_out(s, 1, 5 * MINUTE_MS);
    sell_out(s, 2, 7 * MINUTE_MS);
    take(s, 3, 90, 9 * MINUTE_MS);
    sell_out(s, 3, 9 * MINUTE_MS);
    ASSERT_TOP(s, 3, 1, 2);
    assert_true(
        soldout_is_sold_out(&(struct soldout_sales){.capacity = 1, .seats = 1, .sold_out_ms = 1}));
    struct soldout_sales third = row(s, 3);
    assert_int_equal(third.sold_out_ms - third.opened_ms, MINUTE_MS);
}

static void what_is_sold_out_is_in_front_of_what_sells(void **state) {
    struct soldout *s = *state;
    soldout_set_event(s, 2, 1000000, OPENED_MS);
    sell_out(s, 1, 60 * MINUTE_MS);
    take(s, 2, 999999, 60 * MINUTE_MS);
    ASSERT_TOP(s, 1, 2);
}

static void what_sells_is_ranked_by_pace_and_then_by_share(void **state) {
    struct soldout *s = *state;
    soldout_set_event(s, 3, 100, OPENED_MS);
    take(s, 1, 4, 0);
    take(s, 2, 5, 0);
    take(s, 3, 4, 0);
    ASSERT_TOP(s, 2, 1, 3);
    assert_int_equal(row(s, 2).pace, 5);
    take(s, 3, 2, MINUTE_MS);
    ASSERT_TOP(s, 3, 2, 1);
}

static void a_pace_is_forgotten_after_five_minutes(void **state) {
    struct soldout *s = *state;
    take(s, 1, 3, 0);
    take(s, 2, 1, 4 * MINUTE_MS);
    take(s, 1, 1, 4 * MINUTE_MS);
    ASSERT_TOP(s, 1, 2);
    assert_int_equal(row(s, 1).pace, 4);
    soldout_advance(s, OPENED_MS + 5 * MINUTE_MS - PACE_STEP_MS);
    assert_int_equal(row(s, 1).pace, 4);
    soldout_advance(s, OPENED_MS + 5 * MINUTE_MS);
    assert_int_equal(row(s, 1).pace, 1);
    take(s, 2, 1, 5 * MINUTE_MS);
    ASSERT_TOP(s, 2, 1);
    soldout_advance(s, OPENED_MS + 60 * MINUTE_MS);
    assert_int_equal(row(s, 1).pace, 0);
    ASSERT_TOP(s, 1, 2); /* by share */
    take(s, 2, 1, 60 * MINUTE_MS);
    ASSERT_TOP(s, 2, 1);
    /* Time does not go back. */
    soldout_advance(s, OPENED_MS);
    ASSERT_TOP(s, 2, 1);
}

/* Pitfall 39. */
static void a_seat_that_is_given_back_ends_being_sold_out(void **state) {
    struct soldout *s = *state;
    sell_out(s, 1, 1 * MINUTE_MS);
    sell_out(s, 2, 2 * MINUTE_MS);
    ASSERT_TOP(s, 1, 2);
    give_back(s, 1, 10, 1 * MINUTE_MS, 3 * MINUTE_MS);
    ASSERT_TOP(s, 2);
    take(s, 1, 4, 3 * MINUTE_MS);
    ASSERT_TOP(s, 2, 1);
    struct soldout_sales first = row(s, 1);
    assert_false(soldout_is_sold_out(&first));
    assert_int_equal(first.pace, 4);
    /* The time of the last selling out counts. */
    take(s, 1, 6, 4 * MINUTE_MS);
    tell(s, SALE_SOLD_OUT, 1, 0, OPENED_MS + 4 * MINUTE_MS, 0);
    ASSERT_TOP(s, 2, 1);
    assert_int_equal(row(s, 1).sold_out_ms, OPENED_MS + 4 * MINUTE_MS);
}

static void assert_day(const struct soldout *s, int64_t after_ms, const int64_t *keys) {
    struct soldout_sales top[16];
    size_t count = 0;
    while (keys[count] != 0) count++;
    assert_int_equal(soldout_day_top(s, OPENED_MS + after_ms, top, 16), count);
    for (size_t i = 0; i < count; i++) assert_int_equal(top[i].event_key, keys[i]);
}
#define KEYS(...) ((const int64_t[]){__VA_ARGS__})

static void what_was_sold_out_stands_on_the_board_of_that_day(void **state) {
    struct soldout *s = *state;
    const int64_t day_ms = 24 * 60 * MINUTE_MS;
    assert_day(s, 0, KEYS(0));
    sell_out(s, 1, 5 * MINUTE_MS);
    sell_out(s, 2, 2 * MINUTE_MS);
    take(s, 3, 1, 2 * MINUTE_MS);
    sell_out(s, 4, day_ms);
    assert_day(s, 0, KEYS(2, 1, 0));
    assert_day(s, day_ms, KEYS(4, 0));
    assert_day(s, 2 * day_ms, KEYS(0));
    /* The next day it is sold out again: then it belongs to that day. */
    give_back(s, 2, 10, 2 * MINUTE_MS, day_ms + MINUTE_MS);
    assert_day(s, 0, KEYS(1, 0));
    sell_out(s, 2, day_ms + 2 * MINUTE_MS);
    assert_day(s, 0, KEYS(1, 0));
    assert_day(s, day_ms, KEYS(4, 2, 0));
    give_back(s, 4, 10, day_ms, day_ms + 3 * MINUTE_MS);
    assert_day(s, day_ms, KEYS(2, 0));
    /* A board is removed a day after its end, and does not come back. */
    soldout_advance(s, 2 * day_ms - PACE_STEP_MS);
    assert_day(s, 0, KEYS(1, 0));
    soldout_advance(s, 2 * day_ms);
    assert_day(s, 0, KEYS(0));
    assert_day(s, day_ms, KEYS(2, 0));
    sell_out(s, 3, 3 * MINUTE_MS);
    soldout_set_event(s, 1, 10, OPENED_MS - 1);
    assert_day(s, 0, KEYS(0));
    assert_int_equal(s->days.count, 1);
}

/* They may come in another order than they were. */
static void the_order_of_sales_makes_no_difference(void **state) {
    struct soldout *s = *state;
    tell(s, SALE_SOLD_OUT, 1, 0, OPENED_MS + MINUTE_MS, 0);
    give_back(s, 1, 2, MINUTE_MS, 2 * MINUTE_MS);
    struct soldout_sales found;
    assert_int_equal(soldout_find(s, 1, &found), 0);
    take(s, 1, 2, MINUTE_MS);
    take(s, 1, 8, MINUTE_MS);
    found = row(s, 1);
    assert_false(soldout_is_sold_out(&found));
    assert_int_equal(found.seats, 8);
    assert_int_equal(found.pace, 8);
    take(s, 1, 2, MINUTE_MS);
    found = row(s, 1);
    assert_true(soldout_is_sold_out(&found));
}

static void more_room_ends_being_sold_out(void **state) {
    struct soldout *s = *state;
    sell_out(s, 1, MINUTE_MS);
    sell_out(s, 2, 2 * MINUTE_MS);
    soldout_set_event(s, 1, 20, OPENED_MS);
    ASSERT_TOP(s, 2, 1);
    soldout_set_event(s, 1, 10, OPENED_MS);
    ASSERT_TOP(s, 1, 2);
}

static void an_event_is_shown_when_it_is_known(void **state) {
    struct soldout *s = *state;
    struct soldout_sales found;
    take(s, 9, 1, 0);
    assert_int_equal(soldout_find(s, 9, &found), 0);
    soldout_set_event(s, 9, 10, OPENED_MS);
    ASSERT_TOP(s, 9);
}

/* A clock that is ahead of ours: its sales count now, and can be taken back. */
static void clocks_may_differ_a_little(void **state) {
    struct soldout *s = *state;
    soldout_advance(s, OPENED_MS);
    soldout_add(s, &(struct sale){.kind = SALE_TAKEN,
                                  .event_key = 1,
                                  .seats = 3,
                                  .taken_ms = OPENED_MS + 2 * PACE_STEP_MS});
    assert_int_equal(row(s, 1).pace, 3);
    take(s, 1, 1, 3 * PACE_STEP_MS);
    give_back(s, 1, 3, 2 * PACE_STEP_MS, 3 * PACE_STEP_MS);
    assert_int_equal(row(s, 1).pace, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_sells_nothing_is_not_on_the_board),
        TEST(the_fastest_to_sell_out_is_first),
        TEST(what_is_sold_out_is_in_front_of_what_sells),
        TEST(what_sells_is_ranked_by_pace_and_then_by_share),
        TEST(a_pace_is_forgotten_after_five_minutes),
        TEST(a_seat_that_is_given_back_ends_being_sold_out),
        TEST(what_was_sold_out_stands_on_the_board_of_that_day),
        TEST(the_order_of_sales_makes_no_difference),
        TEST(more_room_ends_being_sold_out),
        TEST(an_event_is_shown_when_it_is_known),
        TEST(clocks_may_differ_a_little),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
