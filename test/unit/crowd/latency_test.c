#include "crowd/latency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "splitmix.h"

static struct latency one;
static struct latency other;
static struct latency both;

static void an_empty_one_has_no_values(void **state) {
    (void)state;
    latency_clear(&one);
    assert_int_equal(latency_at(&one, 50), 0);
    assert_int_equal(latency_at(&one, 100), 0);
}

static void small_values_are_exact(void **state) {
    (void)state;
    latency_clear(&one);
    for (int64_t us = 1; us <= 100; us++) latency_add(&one, us);
    for (int percent = 1; percent <= 100; percent++)
        assert_int_equal(latency_at(&one, percent), percent);
    assert_int_equal(latency_at(&one, 0.5), 1);
    assert_int_equal(latency_at(&one, 99.5), 100);
    assert_int_equal(one.sum_us, 5050);
}

/* A value alone is reported exactly, as it is the largest; so another, larger one is there, too. */
static void the_error_of_a_value_is_bounded(void **state) {
    (void)state;
    const int64_t end = INT64_C(1) << LATENCY_VALUE_BITS;
    for (int64_t us = 1; us < end; us = us * 9 / 8 + 1) {
        latency_clear(&one);
        latency_add(&one, us);
        latency_add(&one, end);
        uint64_t reported = latency_at(&one, 50);
        assert_true(reported >= (uint64_t)us);
        assert_true((reported - (uint64_t)us) * 64 <= (uint64_t)us);
    }
}

static void values_out_of_range_count_at_the_ends(void **state) {
    (void)state;
    latency_clear(&one);
    latency_add(&one, -5);
    assert_int_equal(latency_at(&one, 100), 0);
    latency_add(&one, INT64_MAX);
    assert_int_equal(latency_at(&one, 100), (INT64_C(1) << LATENCY_VALUE_BITS) - 1);
    assert_int_equal(one.count, 2);
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Against the sorted values. */
static void percentiles_are_those_of_the_values(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static int64_t values[COUNT];
    static const double percents[] = {0.01, 1, 10, 50, 90, 99, 99.9, 99.99, 100};
    uint64_t seed = 16;
    latency_clear(&one);
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = (int64_t)(next_random(&seed) >> (28 + next_random(&seed) % 34));
        latency_add(&one, values[i]);
    }
    qsort(values, COUNT, sizeof values[0], compare);
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        size_t rank = (size_t)(percents[i] / 100 * COUNT + 0.5);
        uint64_t exact = (uint64_t)values[rank - 1];
        uint64_t reported = latency_at(&one, percents[i]);
        assert_true(reported >= exact);
        assert_true(reported - exact <= exact / 64);
    }
    assert_int_equal(latency_at(&one, 100), values[COUNT - 1]);
}

static void two_add_up_to_one_of_all_values(void **state) {
    (void)state;
    uint64_t seed = 17;
    latency_clear(&one);
    latency_clear(&other);
    latency_clear(&both);
    for (int i = 0; i < 5000; i++) {
        int64_t us = (int64_t)(next_random(&seed) % 3000000);
        latency_add(i % 3 == 0 ? &one : &other, us);
        latency_add(&both, us);
    }
    latency_merge(&one, &other);
    assert_memory_equal(&one, &both, sizeof both);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_has_no_values),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(the_error_of_a_value_is_bounded),
        cmocka_unit_test(values_out_of_range_count_at_the_ends),
        cmocka_unit_test(percentiles_are_those_of_the_values),
        cmocka_unit_test(two_add_up_to_one_of_all_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
