#include "core/seat_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void a_number_is_made_and_taken_apart(void **state) {
    (void)state;
    static const int64_t keys[] = {1, 2, 1000, SEAT_ID_SECTION_KEY_MAX};
    static const uint32_t seats[] = {1, 2, 65536, SECTION_CAPACITY_MAX};
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            int64_t id = seat_id(keys[i], seats[k]);
            int64_t key;
            uint32_t seat;
            assert_true(id > 0);
            assert_int_equal(id, keys[i] * 1048576 + seats[k]);
            assert_true(seat_id_split(id, &key, &seat));
            assert_int_equal(key, keys[i]);
            assert_int_equal(seat, seats[k]);
        }
    }
}

static void what_no_seat_can_have_is_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {INT64_MIN,
                                    -1048577,
                                    -1,
                                    0,
                                    1, /* of section 0 */
                                    SECTION_CAPACITY_MAX,
                                    1048575,
                                    1048576, /* seat 0 */
                                    1048576 + SECTION_CAPACITY_MAX + 1,
                                    2 * 1048576 - 1,
                                    2 * 1048576,
                                    INT64_MAX};
    int64_t key;
    uint32_t seat;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(seat_id_split(wrong[i], &key, &seat));
    assert_true(seat_id_split(1048577, &key, &seat));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_made_and_taken_apart),
        cmocka_unit_test(what_no_seat_can_have_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
