#include "base/base64url.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* RFC 4648, section 10, and the two characters that base64 writes otherwise. */
static const struct {
    str bytes;
    str text;
} pairs[] = {
    {STR_INIT(""), STR_INIT("")},
    {STR_INIT("f"), STR_INIT("Zg")},
    {STR_INIT("fo"), STR_INIT("Zm8")},
    {STR_INIT("foo"), STR_INIT("Zm9v")},
    {STR_INIT("foob"), STR_INIT("Zm9vYg")},
    {STR_INIT("fooba"), STR_INIT("Zm9vYmE")},
    {STR_INIT("foobar"), STR_INIT("Zm9vYmFy")},
    {STR_INIT("\xfb\xff\xfe"), STR_INIT("-__-")},
};

static void bytes_and_text_are_one_to_one(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char text[16];
        char bytes[16];
        assert_int_equal(BASE64URL_CHARS(pairs[i].bytes.len), pairs[i].text.len);
        assert_int_equal(BASE64URL_BYTES(pairs[i].text.len), pairs[i].bytes.len);
        base64url_encode(pairs[i].bytes.at, pairs[i].bytes.len, text);
        assert_true(str_eq((str){text, pairs[i].text.len}, pairs[i].text));
        assert_true(base64url_decode(pairs[i].text, bytes));
        assert_true(str_eq((str){bytes, pairs[i].bytes.len}, pairs[i].bytes));
    }
}

static void what_no_bytes_are_written_as_is_not_read(void **state) {
    (void)state;
    static const str bad[] = {
        STR_INIT("Zg=="),  STR_INIT("Zm8="), STR_INIT("Zh"),     STR_INIT("Zm9"),
        STR_INIT("Z"),     STR_INIT("A"),    STR_INIT("AAAAA"),  STR_INIT("+//+"),
        STR_INIT("Zm 9v"), STR_INIT("\0A"),  STR_INIT("Zm9v\n"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char bytes[16];
        assert_false(base64url_decode(bad[i], bytes));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_text_are_one_to_one),
        cmocka_unit_test(what_no_bytes_are_written_as_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
