#include "core/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "splitmix.h"

static uint64_t random_state;

static void an_empty_order_has_no_elements(void **state) {
    (void)state;
    struct order o = {0};
    uint64_t next;
    assert_false(order_has(&o, 0));
    assert_false(order_has(&o, 77));
    assert_int_equal(order_rank(&o, 0), 0);
    assert_int_equal(order_rank(&o, UINT64_MAX), 0);
    assert_false(order_next(&o, 0, &next));
    order_add(&o, 77);
    order_remove(&o, 77);
    assert_false(order_has(&o, 77));
    assert_int_equal(order_rank(&o, UINT64_MAX), 0);
    assert_false(order_next(&o, 0, &next));
    order_deinit(&o);
    assert_false(order_has(&o, 77));
}

static void a_rank_counts_the_others_and_not_the_element_itself(void **state) {
    (void)state;
    struct order o = {0};
    for (uint64_t n = 10; n <= 50; n += 10) order_add(&o, n);
    assert_int_equal(order_rank(&o, 0), 0);
    assert_int_equal(order_rank(&o, 10), 0);
    assert_int_equal(order_rank(&o, 11), 1);
    assert_int_equal(order_rank(&o, 30), 2);
    assert_int_equal(order_rank(&o, 51), 5);
    assert_int_equal(order_rank(&o, UINT64_MAX), 5);
    order_remove(&o, 20);
    assert_int_equal(order_rank(&o, 30), 1);
    assert_int_equal(o.count, 4);
    order_deinit(&o);
}

static void next_is_the_lowest_from_there_on(void **state) {
    (void)state;
    struct order o = {0};
    uint64_t next = 0;
    order_add(&o, 63);
    order_add(&o, 64);
    order_add(&o, 511);
    order_add(&o, 512);
    order_add(&o, 5000);
    const uint64_t members[] = {63, 64, 511, 512, 5000};
    uint64_t from = 0;
    for (size_t i = 0; i < 5; i++, from = next + 1) {
        assert_true(order_next(&o, from, &next));
        assert_int_equal(next, members[i]);
        assert_true(order_next(&o, next, &next));
        assert_int_equal(next, members[i]);
    }
    assert_false(order_next(&o, from, &next));
    assert_false(order_next(&o, UINT64_MAX, &next));
    order_deinit(&o);
}

static void the_bitmap_follows_the_numbers_and_stays_small(void **state) {
    (void)state;
    struct order o = {0};
    uint64_t most = 0;
    /* A thousand wait at a time, among numbers that never end. */
    for (uint64_t n = 1; n <= 3000000; n++) {
        order_add(&o, n);
        if (n > 1000) order_remove(&o, n - 1000);
        if (o.blocks > most) most = o.blocks;
    }
    assert_int_equal(o.count, 1000);
    assert_true(o.base > 2900000);
    assert_int_equal(order_rank(&o, 3000000), 999);
    assert_true(most <= 16);
    order_deinit(&o);
}

static void an_emptied_order_starts_where_the_next_number_is(void **state) {
    (void)state;
    struct order o = {0};
    order_add(&o, 5);
    order_remove(&o, 5);
    order_add(&o, UINT64_C(1) << 47);
    assert_true(order_has(&o, UINT64_C(1) << 47));
    assert_false(order_has(&o, 5));
    assert_int_equal(order_rank(&o, UINT64_C(1) << 47), 0);
    assert_true(o.blocks <= 16);
    order_deinit(&o);
}

static void numbers_may_come_from_above_without_growing_the_bitmap_beyond_them(void **state) {
    (void)state;
    struct order o = {0};
    enum { MOST = 200000 };
    for (uint64_t n = MOST; n > 0; n--) order_add(&o, n);
    assert_int_equal(o.count, MOST);
    assert_int_equal(order_rank(&o, MOST), MOST - 1);
    assert_int_equal(order_rank(&o, 1), 0);
    assert_true(o.blocks * 512 <= (size_t)MOST * 8);
    order_deinit(&o);
}

static void ten_million_are_ranked_exactly(void **state) {
    (void)state;
    enum { MANY = 10000000 };
    struct order o = {0};
    for (uint64_t n = 1; n <= MANY; n++) order_add(&o, n);
    assert_int_equal(o.count, MANY);
    random_state = 1;
    for (int i = 0; i < 200000; i++) {
        uint64_t n = 1 + next_random(&random_state) % MANY;
        assert_int_equal(order_rank(&o, n), n - 1);
    }
    /* Every third leaves. */
    for (uint64_t n = 3; n <= MANY; n += 3) order_remove(&o, n);
    for (int i = 0; i < 200000; i++) {
        uint64_t n = 1 + next_random(&random_state) % MANY;
        uint64_t next;
        assert_int_equal(order_rank(&o, n), (n - 1) - (n - 1) / 3);
        assert_true(order_next(&o, n, &next));
        assert_int_equal(next, n % 3 == 0 ? n + 1 : n);
    }
    order_deinit(&o);
}

/* The model: one flag per number. */
#define NUMBERS 60000

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, window %llu, operation %d, number %llu: %s",                      \
                     (unsigned long long)seed, (unsigned long long)window, operation,              \
                     (unsigned long long)n, #condition);                                           \
    } while (0)

/* Numbers from a window that moves up, as those of a queue do; `offset` moves all of them. */
static void run_history(uint64_t seed, uint64_t window, uint64_t offset, int operations) {
    static bool member[NUMBERS];
    for (size_t i = 0; i < NUMBERS; i++) member[i] = false;
    random_state = seed;
    struct order o = {0};
    uint64_t count = 0;
    for (int operation = 0; operation < operations; operation++) {
        uint64_t from = (NUMBERS - window) * (uint64_t)operation / (uint64_t)operations;
        uint64_t n = from + next_random(&random_state) % window;
        /* Most members before the window are removed. */
        if (from > 0 && member[from - 1] && next_random(&random_state) % 8 != 0) {
            order_remove(&o, offset + from - 1);
            member[from - 1] = false;
            count--;
        }
        CHECK(order_has(&o, offset + n) == member[n]);
        if (member[n])
            order_remove(&o, offset + n);
        else
            order_add(&o, offset + n);
        member[n] = !member[n];
        count += member[n] ? 1 : UINT64_MAX;
        CHECK(order_has(&o, offset + n) == member[n]);
        CHECK(o.count == count);
        if (operation % 100 != 0) continue;
        n = next_random(&random_state) % NUMBERS;
        uint64_t rank = 0;
        uint64_t next;
        uint64_t expected = n;
        for (uint64_t i = 0; i < n; i++) rank += member[i];
        while (expected < NUMBERS && !member[expected]) expected++;
        CHECK(order_rank(&o, offset + n) == rank);
        CHECK(order_next(&o, offset + n, &next) == (expected < NUMBERS));
        CHECK(expected == NUMBERS || next == offset + expected);
    }
    uint64_t walked = 0;
    uint64_t at = 0;
    int operation = operations;
    for (uint64_t n = 0; n < NUMBERS; n++) {
        CHECK(order_rank(&o, offset + n) == walked);
        if (!member[n]) continue;
        CHECK(order_next(&o, at, &at) && at == offset + n);
        at++;
        walked++;
    }
    order_deinit(&o);
}

static void a_random_history_gives_what_a_simple_model_gives(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_history(seed, 100, 0, 20000);
        run_history(seed, 5000, UINT64_C(1) << 40, 20000);
        run_history(seed, NUMBERS, 12345678, 20000);
    }
    run_history((uint64_t)clock_wall_ms(), 20000, 1, 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_order_has_no_elements),
        cmocka_unit_test(a_rank_counts_the_others_and_not_the_element_itself),
        cmocka_unit_test(next_is_the_lowest_from_there_on),
        cmocka_unit_test(the_bitmap_follows_the_numbers_and_stays_small),
        cmocka_unit_test(an_emptied_order_starts_where_the_next_number_is),
        cmocka_unit_test(numbers_may_come_from_above_without_growing_the_bitmap_beyond_them),
        cmocka_unit_test(ten_million_are_ranked_exactly),
        cmocka_unit_test(a_random_history_gives_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
