#include "base/bitset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "splitmix.h"

static void an_empty_set_has_no_next_and_no_previous(void **state) {
    (void)state;
    const size_t sizes[] = {1, 63, 64, 65, 4096, 4097, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bitset b;
        bitset_init(&b, sizes[i]);
        assert_true(bitset_next(&b, 0) == BITSET_NONE);
        assert_true(bitset_previous(&b, sizes[i] - 1) == BITSET_NONE);
        assert_false(bitset_has(&b, sizes[i] - 1));
        bitset_deinit(&b);
    }
}

static void a_member_is_found_from_both_sides_and_by_itself(void **state) {
    (void)state;
    enum { SIZE = 20000000 };
    const size_t members[] = {0, 1, 63, 64, 4095, 4096, 262143, 262144, 16777216, SIZE - 1};
    struct bitset b;
    bitset_init(&b, SIZE);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        size_t n = members[i];
        bitset_add(&b, n);
        assert_true(bitset_has(&b, n));
        assert_int_equal(bitset_next(&b, 0), n);
        assert_int_equal(bitset_next(&b, n), n);
        assert_int_equal(bitset_previous(&b, n), n);
        assert_int_equal(bitset_previous(&b, SIZE - 1), n);
        if (n > 0) assert_true(bitset_previous(&b, n - 1) == BITSET_NONE);
        if (n < SIZE - 1) assert_true(bitset_next(&b, n + 1) == BITSET_NONE);
        bitset_remove(&b, n);
        assert_false(bitset_has(&b, n));
        assert_true(bitset_next(&b, 0) == BITSET_NONE);
    }
    bitset_deinit(&b);
}

static void the_highest_size_of_a_level_has_all_its_numbers(void **state) {
    (void)state;
    struct bitset b;
    bitset_init(&b, 64 * 64);
    for (size_t n = 0; n < 64 * 64; n++) bitset_add(&b, n);
    for (size_t n = 0; n < 64 * 64; n++) {
        assert_int_equal(bitset_next(&b, n), n);
        assert_int_equal(bitset_previous(&b, n), n);
    }
    for (size_t n = 0; n < 64 * 64 - 1; n++) bitset_remove(&b, n);
    assert_int_equal(bitset_next(&b, 0), 64 * 64 - 1);
    bitset_deinit(&b);
}

/* Against one flag per number; `one_in` says how sparse the set is about to be. */
static void run_history(uint64_t seed, size_t size, uint64_t one_in) {
    uint64_t random_state = seed;
    bool *member = mem_new(size * sizeof *member);
    struct bitset b;
    bitset_init(&b, size);
    for (int step = 0; step < 20000; step++) {
        size_t n = next_random(&random_state) % size;
        bool wanted = next_random(&random_state) % one_in == 0;
        if (wanted && !member[n]) bitset_add(&b, n);
        if (!wanted && member[n]) bitset_remove(&b, n);
        member[n] = wanted;
        if (step % 8 != 0) continue;
        size_t next = n;
        size_t previous = n;
        while (next < size && !member[next]) next++;
        while (previous != BITSET_NONE && !member[previous]) previous--;
        if (bitset_next(&b, n) != (next < size ? next : BITSET_NONE) ||
            bitset_previous(&b, n) != previous)
            fail_msg("seed %llu, size %zu, step %d, number %zu", (unsigned long long)seed, size,
                     step, n);
    }
    bitset_deinit(&b);
    mem_free(member);
}

static void a_random_history_gives_what_a_simple_model_gives(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_history(seed, 1, 2);
        run_history(seed, 130, 20);
        run_history(seed, 5000, 2);
        run_history(seed, 5000, 1000);
        run_history(seed, 300000, 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_set_has_no_next_and_no_previous),
        cmocka_unit_test(a_member_is_found_from_both_sides_and_by_itself),
        cmocka_unit_test(the_highest_size_of_a_level_has_all_its_numbers),
        cmocka_unit_test(a_random_history_gives_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
