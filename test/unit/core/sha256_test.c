#include "core/sha256.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/mem.h"

static void expect_digest(str text, const char hex[2 * SHA256_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char made[SHA256_BYTES];
    char shown[2 * SHA256_BYTES + 1] = "";
    sha256_of(text, made);
    for (size_t i = 0; i < sizeof made; i++) {
        shown[2 * i] = digits[made[i] >> 4];
        shown[2 * i + 1] = digits[made[i] & 15];
    }
    assert_string_equal(shown, hex);
}

/* FIPS 180-4's examples: less than a block, two blocks, many blocks. */
static void digests_are_those_of_the_standard(void **state) {
    (void)state;
    expect_digest(STR("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_digest(STR("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    const size_t million = 1000000;
    char *letters = mem_new(million);
    memset(letters, 'a', million);
    expect_digest((str){letters, million},
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    mem_free(letters);
}

/* A request without a body has a text that points nowhere. */
static void an_empty_text_has_a_digest_wherever_it_points(void **state) {
    (void)state;
    const char *expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    expect_digest(STR(""), expected);
    expect_digest((str){NULL, 0}, expected);
}

/* Texts are not cut at a zero: two that differ only behind one are two. */
static void every_byte_counts(void **state) {
    (void)state;
    unsigned char one[SHA256_BYTES];
    unsigned char other[SHA256_BYTES];
    sha256_of((str){"a\0b", 3}, one);
    sha256_of((str){"a\0c", 3}, other);
    assert_memory_not_equal(one, other, sizeof one);
    sha256_of((str){"a\0b", 1}, other);
    assert_memory_not_equal(one, other, sizeof one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_those_of_the_standard),
        cmocka_unit_test(an_empty_text_has_a_digest_wherever_it_points),
        cmocka_unit_test(every_byte_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
