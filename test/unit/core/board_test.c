#include "core/board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "splitmix.h"

static int set_up(void **state) {
    static struct board b;
    board_init(&b);
    *state = &b;
    return 0;
}

static int tear_down(void **state) {
    board_deinit(*state);
    return 0;
}

static void sell(struct board *b, enum sale_kind kind, int64_t event_key, int64_t seats,
                 int64_t taken_ms) {
    board_add(b, &(struct sale){
                     .kind = kind, .event_key = event_key, .seats = seats, .taken_ms = taken_ms});
}

static void assert_top(const struct board *b, const int64_t *keys, size_t count) {
    struct board_sales top[16];
    assert_int_equal(board_top(b, top, 16), count);
    for (size_t i = 0; i < count; i++) {
        struct board_sales found;
        assert_int_equal(top[i].event_key, keys[i]);
        assert_int_equal(board_find(b, keys[i], &found), i + 1);
        assert_memory_equal(&found, &top[i], sizeof found);
    }
}
#define ASSERT_TOP(b, ...)                                                                         \
    assert_top(b, (const int64_t[]){__VA_ARGS__},                                                  \
               sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void an_empty_board_has_no_rows(void **state) {
    struct board *b = *state;
    struct board_sales t;
    assert_int_equal(board_top(b, &t, 1), 0);
    assert_int_equal(board_find(b, 1, &t), 0);
}

static void the_event_with_more_reservations_is_first(void **state) {
    struct board *b = *state;
    struct board_sales t;
    sell(b, SALE_TAKEN, 1, 4, 100);
    sell(b, SALE_TAKEN, 2, 1, 200);
    sell(b, SALE_TAKEN, 2, 1, 300);
    sell(b, SALE_SOLD_OUT, 1, 0, 0);
    ASSERT_TOP(b, 2, 1);
    assert_int_equal(board_find(b, 1, &t), 2);
    assert_int_equal(t.reservations, 1);
    assert_int_equal(t.seats, 4);
    assert_int_equal(board_top(b, &t, 1), 1);
    assert_int_equal(t.event_key, 2);
}

static void of_equal_elements_the_earlier_one_is_first(void **state) {
    struct board *b = *state;
    sell(b, SALE_TAKEN, 7, 1, 100);
    sell(b, SALE_TAKEN, 5, 1, 200);
    sell(b, SALE_TAKEN, 6, 1, 150);
    ASSERT_TOP(b, 7, 6, 5);
    sell(b, SALE_TAKEN, 5, 1, 300);
    sell(b, SALE_TAKEN, 7, 1, 400);
    ASSERT_TOP(b, 5, 7, 6);
}

/* Pitfall 39. */
static void a_cancelled_sale_does_not_count(void **state) {
    struct board *b = *state;
    struct board_sales t;
    sell(b, SALE_TAKEN, 1, 2, 100);
    sell(b, SALE_TAKEN, 1, 3, 110);
    sell(b, SALE_TAKEN, 2, 1, 120);
    sell(b, SALE_GIVEN_BACK, 1, 3, 110);
    ASSERT_TOP(b, 1, 2);
    assert_int_equal(board_find(b, 1, &t), 1);
    assert_int_equal(t.seats, 2);
    sell(b, SALE_GIVEN_BACK, 1, 2, 100);
    ASSERT_TOP(b, 2);
}

static void what_is_given_back_before_it_is_taken_is_waited_for(void **state) {
    struct board *b = *state;
    sell(b, SALE_GIVEN_BACK, 1, 2, 100);
    sell(b, SALE_TAKEN, 2, 1, 90);
    ASSERT_TOP(b, 2);
    sell(b, SALE_TAKEN, 1, 2, 100);
    ASSERT_TOP(b, 2);
    sell(b, SALE_TAKEN, 1, 1, 110);
    ASSERT_TOP(b, 2, 1);
}

#define EVENTS 40

static int by_order(const void *a, const void *b) {
    const struct board_sales *x = a;
    const struct board_sales *y = b;
    if (x->reservations != y->reservations) return x->reservations > y->reservations ? -1 : 1;
    if (x->since_ms != y->since_ms) return x->since_ms < y->since_ms ? -1 : 1;
    return x->event_key < y->event_key ? -1 : 1;
}

/* A history of sales is what a recount says: of those that are left, whatever way they went. */
static void any_history_equals_a_recount(void **state) {
    struct board *b = *state;
    enum { SALES = 4000 };
    static struct sale sales[SALES];
    static struct board_sales model[EVENTS];
    uint64_t random = 20261116;
    size_t open[SALES];
    size_t open_count = 0;
    memset(model, 0, sizeof model);
    for (size_t i = 0; i < EVENTS; i++) model[i].event_key = (int64_t)i + 1;
    for (size_t i = 0; i < SALES; i++) {
        bool gives_back = open_count > 0 && next_random(&random) % 5 < 2;
        if (gives_back) {
            size_t at = next_random(&random) % open_count;
            sales[i] = sales[open[at]];
            sales[i].kind = SALE_GIVEN_BACK;
            open[at] = open[--open_count];
        } else {
            sales[i] = (struct sale){.kind = SALE_TAKEN,
                                     .event_key = (int64_t)(next_random(&random) % EVENTS) + 1,
                                     .seats = (int64_t)(next_random(&random) % 4) + 1,
                                     .taken_ms = (int64_t)(i / 10)};
            open[open_count++] = i;
        }
        board_add(b, &sales[i]);
        struct board_sales *t = &model[sales[i].event_key - 1];
        t->reservations += gives_back ? -1 : 1;
        t->seats += gives_back ? -sales[i].seats : sales[i].seats;
        if (!gives_back && sales[i].taken_ms > t->since_ms) t->since_ms = sales[i].taken_ms;
        if (t->reservations == 0) t->since_ms = 0;
    }
    struct board_sales top[EVENTS];
    size_t count = board_top(b, top, EVENTS);
    size_t live = 0;
    qsort(model, EVENTS, sizeof model[0], by_order);
    while (live < EVENTS && model[live].reservations > 0) live++;
    assert_int_equal(count, live);
    assert_memory_equal(top, model, live * sizeof top[0]);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_board_has_no_rows),
        TEST(the_event_with_more_reservations_is_first),
        TEST(of_equal_elements_the_earlier_one_is_first),
        TEST(a_cancelled_sale_does_not_count),
        TEST(what_is_given_back_before_it_is_taken_is_waited_for),
        TEST(any_history_equals_a_recount),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
