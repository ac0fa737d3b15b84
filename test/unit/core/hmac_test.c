#include "core/hmac.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* RFC 4231, section 4.3, as many times as a context may be used, and however it is cut. */
static void the_sum_is_that_of_the_standard_every_time(void **state) {
    (void)state;
    static const unsigned char expected[HMAC_BYTES] = {
        0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
        0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
        0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    str text = STR("what do ya want for nothing?");
    struct hmac *h = hmac_new(STR("Jefe"));
    assert_non_null(h);
    for (size_t cut = 0; cut <= text.len; cut++) {
        unsigned char made[HMAC_BYTES];
        hmac_of(h, (str){text.at, cut}, str_skip(text, cut), made);
        assert_memory_equal(made, expected, sizeof made);
    }
    hmac_free(h);
    hmac_free(NULL);
}

/* RFC 4231, section 4.7. */
static void a_key_that_is_longer_than_a_block_is_hashed_first(void **state) {
    (void)state;
    static const unsigned char expected[HMAC_BYTES] = {
        0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26,
        0xaa, 0xcb, 0xf5, 0xb7, 0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28,
        0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3, 0x7f, 0x54};
    char key[131];
    unsigned char made[HMAC_BYTES];
    memset(key, 0xaa, sizeof key);
    struct hmac *h = hmac_new((str){key, sizeof key});
    assert_non_null(h);
    hmac_of(h, STR(""), STR("Test Using Larger Than Block-Size Key - Hash Key First"), made);
    assert_memory_equal(made, expected, sizeof made);
    hmac_free(h);
}

static void two_sums_are_equal_only_in_every_byte(void **state) {
    (void)state;
    unsigned char a[HMAC_BYTES] = {0};
    unsigned char b[HMAC_BYTES] = {0};
    assert_true(hmac_eq(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        b[i] = 1;
        assert_false(hmac_eq(a, b, sizeof a));
        assert_true(hmac_eq(a, b, i));
        b[i] = 0;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_is_that_of_the_standard_every_time),
        cmocka_unit_test(a_key_that_is_longer_than_a_block_is_hashed_first),
        cmocka_unit_test(two_sums_are_equal_only_in_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
