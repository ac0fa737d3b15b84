#include "core/adaptive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct adaptive_rules rules = {
    .calm_below = 4, .hot_above = 8, .wait_ms = 50, .rest_ms = 500};

/* Any time but 0, at which `heated_ms` of a new section lies. */
#define BEGAN_MS 1000000

static bool begin_many(struct adaptive *a, int count, int64_t now_ms) {
    bool hot = a->hot;
    for (int i = 0; i < count; i++) hot = adaptive_begin(a, &rules, 0, now_ms);
    return hot;
}

static void end_many(struct adaptive *a, int count) {
    for (int i = 0; i < count; i++) adaptive_end(a);
}

/* Hot since BEGAN_MS, with no request under way. */
static struct adaptive hot_one(void) {
    struct adaptive a = {0};
    assert_true(begin_many(&a, 9, BEGAN_MS));
    end_many(&a, 9);
    return a;
}

static void it_is_calm_at_first_and_up_to_hot_above(void **state) {
    (void)state;
    struct adaptive a = {0};
    assert_false(adaptive_look(&a, &rules, BEGAN_MS));
    assert_false(begin_many(&a, 8, BEGAN_MS));
    assert_false(adaptive_look(&a, &rules, BEGAN_MS));
    assert_int_equal(a.under_way, 8);
}

static void the_first_above_hot_above_makes_it_hot_and_knows_it(void **state) {
    (void)state;
    struct adaptive a = {0};
    begin_many(&a, 8, BEGAN_MS);
    assert_true(adaptive_begin(&a, &rules, 0, BEGAN_MS));
    assert_true(adaptive_look(&a, &rules, BEGAN_MS));
}

/* A constant eight under way count as eight, whichever requests they are. */
static void ended_entries_do_not_count(void **state) {
    (void)state;
    struct adaptive a = {0};
    begin_many(&a, 8, BEGAN_MS);
    for (int i = 0; i < 100; i++) {
        adaptive_end(&a);
        assert_false(adaptive_begin(&a, &rules, 0, BEGAN_MS));
    }
}

static void between_the_two_numbers_it_stays_hot_however_long(void **state) {
    (void)state;
    struct adaptive a = {0};
    begin_many(&a, 9, BEGAN_MS);
    end_many(&a, 5); /* calm_below are left, not fewer */
    assert_true(adaptive_look(&a, &rules, BEGAN_MS + 100 * rules.rest_ms));
    adaptive_end(&a);
    assert_false(adaptive_look(&a, &rules, BEGAN_MS + 100 * rules.rest_ms));
}

static void between_the_two_numbers_it_stays_calm(void **state) {
    (void)state;
    struct adaptive a = hot_one();
    assert_false(adaptive_look(&a, &rules, BEGAN_MS + rules.rest_ms));
    assert_false(begin_many(&a, 8, BEGAN_MS + rules.rest_ms));
    assert_false(adaptive_look(&a, &rules, BEGAN_MS + rules.rest_ms));
}

static void it_rests_before_it_is_calm_to_the_millisecond(void **state) {
    (void)state;
    struct adaptive a = hot_one();
    assert_true(adaptive_look(&a, &rules, BEGAN_MS + rules.rest_ms - 1));
    assert_false(adaptive_look(&a, &rules, BEGAN_MS + rules.rest_ms));
}

/* A request that begins after the rest is the first that sees a calm section. */
static void a_request_sees_that_a_section_has_cooled_down(void **state) {
    (void)state;
    struct adaptive a = hot_one();
    assert_true(adaptive_begin(&a, &rules, 0, BEGAN_MS + rules.rest_ms - 1));
    assert_false(adaptive_begin(&a, &rules, 0, BEGAN_MS + rules.rest_ms));
}

/* It counts itself: with three others under way it is the fourth, which is not fewer than four. */
static void a_request_counts_itself(void **state) {
    (void)state;
    struct adaptive a = hot_one();
    begin_many(&a, 3, BEGAN_MS);
    assert_true(adaptive_begin(&a, &rules, 0, BEGAN_MS + rules.rest_ms));
    adaptive_end(&a);
    assert_false(adaptive_look(&a, &rules, BEGAN_MS + rules.rest_ms));
}

static void the_cool_down_restarts_while_too_many_requests_are_under_way(void **state) {
    (void)state;
    struct adaptive a = {0};
    begin_many(&a, 9, BEGAN_MS);
    const int64_t seen_ms = BEGAN_MS + 400;
    assert_true(adaptive_look(&a, &rules, seen_ms));
    end_many(&a, 9);
    assert_true(adaptive_look(&a, &rules, seen_ms + rules.rest_ms - 1));
    assert_false(adaptive_look(&a, &rules, seen_ms + rules.rest_ms));
}

static void a_wait_of_wait_ms_makes_it_hot_and_a_shorter_one_does_not(void **state) {
    (void)state;
    struct adaptive a = {0};
    adaptive_begin(&a, &rules, 0, BEGAN_MS);
    adaptive_waited(&a, &rules, rules.wait_ms - 1, BEGAN_MS);
    assert_false(adaptive_look(&a, &rules, BEGAN_MS));
    adaptive_waited(&a, &rules, rules.wait_ms, BEGAN_MS);
    assert_true(adaptive_look(&a, &rules, BEGAN_MS));
}

/* Requests that waited for the lock when the section became hot end later. */
static void a_wait_while_a_section_is_hot_restarts_the_cool_down(void **state) {
    (void)state;
    struct adaptive a = hot_one();
    const int64_t waited_at_ms = BEGAN_MS + 400;
    adaptive_waited(&a, &rules, rules.wait_ms, waited_at_ms);
    assert_true(adaptive_look(&a, &rules, waited_at_ms + rules.rest_ms - 1));
    assert_false(adaptive_look(&a, &rules, waited_at_ms + rules.rest_ms));
    adaptive_waited(&a, &rules, rules.wait_ms - 1, BEGAN_MS + 2000);
    assert_false(adaptive_look(&a, &rules, BEGAN_MS + 2000));
}

static void many_queued_requests_make_a_section_hot_and_keep_it_hot(void **state) {
    (void)state;
    struct adaptive a = {0};
    assert_false(adaptive_begin(&a, &rules, rules.hot_above, BEGAN_MS));
    adaptive_end(&a);
    assert_true(adaptive_begin(&a, &rules, rules.hot_above + 1, BEGAN_MS));
    adaptive_end(&a);
    const int64_t again_ms = BEGAN_MS + 10 * rules.rest_ms;
    assert_true(adaptive_begin(&a, &rules, rules.hot_above + 1, again_ms));
    adaptive_end(&a);
    assert_true(adaptive_look(&a, &rules, again_ms + rules.rest_ms - 1));
    assert_false(adaptive_look(&a, &rules, again_ms + rules.rest_ms));
}

static void without_a_rest_only_the_numbers_count(void **state) {
    (void)state;
    const struct adaptive_rules restless = {.calm_below = 8, .hot_above = 8, .wait_ms = 50};
    struct adaptive a = {0};
    for (int i = 0; i < 9; i++) adaptive_begin(&a, &restless, 0, BEGAN_MS);
    adaptive_end(&a);
    assert_true(adaptive_look(&a, &restless, BEGAN_MS));
    adaptive_end(&a);
    assert_false(adaptive_look(&a, &restless, BEGAN_MS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_calm_at_first_and_up_to_hot_above),
        cmocka_unit_test(the_first_above_hot_above_makes_it_hot_and_knows_it),
        cmocka_unit_test(ended_entries_do_not_count),
        cmocka_unit_test(between_the_two_numbers_it_stays_hot_however_long),
        cmocka_unit_test(between_the_two_numbers_it_stays_calm),
        cmocka_unit_test(it_rests_before_it_is_calm_to_the_millisecond),
        cmocka_unit_test(a_request_sees_that_a_section_has_cooled_down),
        cmocka_unit_test(a_request_counts_itself),
        cmocka_unit_test(the_cool_down_restarts_while_too_many_requests_are_under_way),
        cmocka_unit_test(a_wait_of_wait_ms_makes_it_hot_and_a_shorter_one_does_not),
        cmocka_unit_test(a_wait_while_a_section_is_hot_restarts_the_cool_down),
        cmocka_unit_test(many_queued_requests_make_a_section_hot_and_keep_it_hot),
        cmocka_unit_test(without_a_rest_only_the_numbers_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
