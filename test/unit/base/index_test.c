#include "base/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include "splitmix.h"

#define MANY 20000

static bool has(const struct index *i, uint32_t hash, uint32_t number) {
    size_t at = 0;
    uint32_t found;
    while ((found = index_next(i, hash, &at)) != INDEX_NONE)
        if (found == number) return true;
    return false;
}

static void an_empty_index_has_nothing(void **state) {
    (void)state;
    struct index i = {0};
    size_t at = 0;
    assert_int_equal(index_next(&i, 0, &at), INDEX_NONE);
    index_deinit(&i);
}

static void numbers_of_one_hash_are_all_found_and_others_are_not(void **state) {
    (void)state;
    struct index i = {0};
    for (uint32_t n = 1; n <= 100; n++) index_add(&i, 7, n);
    index_add(&i, 8, 1000); /* probes past them */
    bool seen[101] = {false};
    size_t at = 0;
    uint32_t found;
    int count = 0;
    while ((found = index_next(&i, 7, &at)) != INDEX_NONE) {
        assert_true(found <= 100 && !seen[found]);
        seen[found] = true;
        count++;
    }
    assert_int_equal(count, 100);
    for (uint32_t n = 1; n <= 100; n += 2) index_remove(&i, 7, n);
    for (uint32_t n = 1; n <= 100; n++) assert_int_equal(has(&i, 7, n), n % 2 == 0);
    assert_true(has(&i, 8, 1000));
    index_deinit(&i);
}

/* Few and many hashes: members are found and others are not, whatever was added and removed before.
 */
static void random_histories_keep_what_is_in(void **state) {
    (void)state;
    static const uint32_t masks[] = {UINT32_MAX, 0xfc000003, 0x3ff};
    static bool in[MANY];
    uint64_t random = 1;
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        struct index i = {0};
        uint32_t range = m == 0 ? MANY : 200;
        for (uint32_t n = 1; n < range; n++) in[n] = false;
        for (int step = 0; step < 200000; step++) {
            uint32_t n = (uint32_t)(next_random(&random) % (range - 1)) + 1;
            uint64_t seed = n;
            uint32_t hash = (uint32_t)next_random(&seed) & masks[m];
            assert_int_equal(has(&i, hash, n), in[n]);
            if (in[n])
                index_remove(&i, hash, n);
            else
                index_add(&i, hash, n);
            in[n] = !in[n];
        }
        index_deinit(&i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_index_has_nothing),
        cmocka_unit_test(numbers_of_one_hash_are_all_found_and_others_are_not),
        cmocka_unit_test(random_histories_keep_what_is_in),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
