#include "core/free_runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/limits.h"

static void assert_run(struct run run, uint32_t first, uint32_t length) {
    assert_int_equal(run.first, first);
    assert_int_equal(run.length, length);
}

static void a_new_section_is_one_run(void **state) {
    (void)state;
    const uint32_t capacities[] = {1, 2, 3, 100, 65535, 65536, SECTION_CAPACITY_MAX};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        struct free_runs r;
        struct run run;
        free_runs_init(&r, capacities[i]);
        assert_true(free_runs_shortest(&r, 1, &run));
        assert_run(run, 1, capacities[i]);
        assert_true(free_runs_shortest(&r, capacities[i], &run));
        assert_run(run, 1, capacities[i]);
        assert_false(free_runs_shortest(&r, capacities[i] + 1, &run));
        assert_int_equal(free_runs_last_taken(&r), 0);
        free_runs_take(&r, 1, capacities[i]);
        assert_false(free_runs_shortest(&r, 1, &run));
        assert_false(free_runs_longest(&r, r.capacity, &run));
        assert_int_equal(free_runs_last_taken(&r), capacities[i]);
        free_runs_give(&r, 1, capacities[i]);
        assert_true(free_runs_longest(&r, r.capacity, &run));
        assert_run(run, 1, capacities[i]);
        free_runs_deinit(&r);
    }
}

static void what_is_given_back_joins_what_is_free_on_both_sides(void **state) {
    (void)state;
    struct free_runs r;
    struct run run;
    free_runs_init(&r, 10);
    free_runs_take(&r, 1, 10);
    free_runs_give(&r, 2, 2);
    free_runs_give(&r, 6, 3);
    assert_true(free_runs_shortest(&r, 1, &run));
    assert_run(run, 2, 2);
    assert_true(free_runs_shortest(&r, 3, &run));
    assert_run(run, 6, 3);
    free_runs_give(&r, 4, 2);
    assert_true(free_runs_shortest(&r, 1, &run));
    assert_run(run, 2, 7);
    free_runs_give(&r, 1, 1);
    free_runs_give(&r, 9, 1);
    assert_true(free_runs_longest(&r, r.capacity, &run));
    assert_run(run, 1, 9);
    assert_int_equal(free_runs_last_taken(&r), 10);
    free_runs_deinit(&r);
}

/* How many seats are free from one on. Seat s is free when bit s - 1 is set. */
static uint32_t ahead(uint32_t pattern, uint32_t capacity, uint32_t seat) {
    uint32_t length = 0;
    while (seat + length <= capacity && (pattern >> (seat + length - 1) & 1) != 0) length++;
    return length;
}

/* The shortest run, or the longest, of those from one length to another that begin at `seat` or
 * behind it: by a walk. */
static struct run walk(uint32_t pattern, uint32_t capacity, uint32_t seat, uint32_t length_min,
                       uint32_t length_max, bool longest) {
    struct run best = {0};
    for (uint32_t first = 1; first <= capacity; first++) {
        uint32_t length = ahead(pattern, capacity, first);
        bool fits = first >= seat && length >= length_min && length <= length_max;
        bool better = best.length == 0 || (longest ? length > best.length : length < best.length);
        if (fits && better) best = (struct run){first, length};
        first += length;
    }
    return best;
}

/* The runs that begin at a seat, and the free seats after it. */
static void assert_seat_as_walked(const struct free_runs *r, uint32_t pattern, uint32_t capacity,
                                  uint32_t seat) {
    assert_int_equal(free_runs_ahead(r, seat), ahead(pattern, capacity, seat));
    for (uint32_t n = 1; n <= capacity; n++) {
        struct run found = {0};
        struct run expected = walk(pattern, capacity, 1, n, capacity, false);
        uint32_t length = expected.length;
        struct run behind = walk(pattern, capacity, seat, length, length, false);
        if (length > 0 && behind.length > 0) expected = behind;
        assert_int_equal(free_runs_from(r, n, seat, &found), length > 0);
        assert_run(found, expected.first, expected.length);
        if (length == 0 || found.first != seat) continue;
        struct run next = {0};
        expected = walk(pattern, capacity, seat + 1, length, length, false);
        assert_int_equal(free_runs_next(r, found, &next), expected.length > 0);
        assert_run(next, expected.first, expected.length);
    }
}

static void assert_as_walked(const struct free_runs *r, uint32_t pattern, uint32_t capacity) {
    for (uint32_t n = 1; n <= capacity + 1; n++) {
        struct run found = {0};
        struct run expected = walk(pattern, capacity, 1, n, capacity, false);
        assert_int_equal(free_runs_shortest(r, n, &found), expected.length > 0);
        assert_run(found, expected.first, expected.length);
        found = (struct run){0};
        expected = walk(pattern, capacity, 1, 1, n - 1, true);
        assert_int_equal(free_runs_longest(r, n - 1, &found), expected.length > 0);
        assert_run(found, expected.first, expected.length);
    }
    for (uint32_t seat = 1; seat <= capacity; seat++)
        assert_seat_as_walked(r, pattern, capacity, seat);
}

static uint32_t change_seat(struct free_runs *r, uint32_t pattern, uint32_t seat) {
    uint32_t bit = UINT32_C(1) << (seat - 1);
    if ((pattern & bit) != 0)
        free_runs_take(r, seat, 1);
    else
        free_runs_give(r, seat, 1);
    return pattern ^ bit;
}

/* Every pattern, in the order of a Gray code, and from each every seat is changed and back. */
static void every_change_of_every_small_section_is_indexed(void **state) {
    (void)state;
    for (uint32_t capacity = 1; capacity <= 10; capacity++) {
        struct free_runs r;
        free_runs_init(&r, capacity);
        uint32_t pattern = (UINT32_C(1) << capacity) - 1;
        for (uint32_t i = 1; i < UINT32_C(1) << capacity; i++) {
            pattern = change_seat(&r, pattern, (uint32_t)__builtin_ctz(i) + 1);
            for (uint32_t seat = 1; seat <= capacity; seat++) {
                pattern = change_seat(&r, pattern, seat);
                assert_as_walked(&r, pattern, capacity);
                pattern = change_seat(&r, pattern, seat);
            }
            assert_as_walked(&r, pattern, capacity);
        }
        free_runs_deinit(&r);
    }
}

static void runs_of_every_length_lie_wherever_they_fit(void **state) {
    (void)state;
    enum { CAPACITY = 300 };
    struct free_runs r;
    struct run run;
    free_runs_init(&r, CAPACITY);
    free_runs_take(&r, 1, CAPACITY);
    for (uint32_t length = 1; length <= CAPACITY; length++)
        for (uint32_t first = 1; first + length - 1 <= CAPACITY; first++) {
            free_runs_give(&r, first, length);
            assert_true(free_runs_shortest(&r, 1, &run));
            assert_run(run, first, length);
            assert_true(free_runs_longest(&r, r.capacity, &run));
            assert_run(run, first, length);
            free_runs_take(&r, first, length);
        }
    assert_false(free_runs_longest(&r, r.capacity, &run));
    free_runs_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_section_is_one_run),
        cmocka_unit_test(what_is_given_back_joins_what_is_free_on_both_sides),
        cmocka_unit_test(every_change_of_every_small_section_is_indexed),
        cmocka_unit_test(runs_of_every_length_lie_wherever_they_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
