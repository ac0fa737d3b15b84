#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static void a_null_str_is_an_empty_one(void **state) {
    (void)state;
    str none = {NULL, 0};
    assert_true(str_eq(str_of(NULL), none));
    assert_true(str_eq(none, STR("")));
    assert_true(str_starts(none, none));
    assert_true(str_eq_nocase(none, STR("")));
    assert_int_equal(str_skip(none, 3).len, 0);
    assert_int_equal(str_trim(none).len, 0);
    assert_true(str_is_text(none));
}

static void equality_looks_at_length_and_every_byte(void **state) {
    (void)state;
    assert_true(str_eq(STR("abc"), STR("abc")));
    assert_false(str_eq(STR("abc"), STR("abcd")));
    assert_false(str_eq(STR("abc"), STR("abd")));
    assert_true(str_eq(STR("a\0b"), STR("a\0b")));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
    assert_true(str_starts(STR("abc"), STR("ab")));
    assert_true(str_starts(STR("abc"), STR("")));
    assert_false(str_starts(STR("ab"), STR("abc")));
    assert_false(str_starts(STR("abc"), STR("ac")));
}

static void skip_stops_at_the_end(void **state) {
    (void)state;
    assert_true(str_eq(str_skip(STR("abc"), 0), STR("abc")));
    assert_true(str_eq(str_skip(STR("abc"), 2), STR("c")));
    str s = STR("abc");
    assert_ptr_equal(str_skip(s, 3).at, s.at + 3);
    assert_ptr_equal(str_skip(s, 99).at, s.at + 3);
    assert_int_equal(str_skip(s, 99).len, 0);
}

static void case_is_ignored_for_ascii_letters_only(void **state) {
    (void)state;
    assert_true(str_eq_nocase(STR("Content-LENGTH"), STR("content-length")));
    assert_true(str_eq_nocase(STR("AZaz"), STR("azAZ")));
    assert_false(str_eq_nocase(STR("abc"), STR("abcd")));
    assert_false(str_eq_nocase(STR("abc"), STR("abd")));
    /* The neighbours of the letters, which differ by the same bit. */
    assert_false(str_eq_nocase(STR("@"), STR("`")));
    assert_false(str_eq_nocase(STR("["), STR("{")));
    assert_false(str_eq_nocase(STR("\xc3\x84"), STR("\xc3\xa4")));
}

static void secrets_are_equal_only_in_all_their_bytes(void **state) {
    (void)state;
    assert_true(str_eq_secret(STR("s3cret"), STR("s3cret")));
    assert_true(str_eq_secret(STR(""), (str){NULL, 0}));
    assert_false(str_eq_secret(STR("s3cret"), STR("s3cre")));
    assert_false(str_eq_secret(STR("s3cre"), STR("s3cret")));
    /* One bit in any place, also where a later byte differs back. */
    for (size_t i = 0; i < 6; i++)
        for (int bit = 0; bit < 8; bit++) {
            char other[] = "s3cret";
            other[i] = (char)(other[i] ^ 1 << bit);
            assert_false(str_eq_secret(STR("s3cret"), (str){other, 6}));
            other[(i + 1) % 6] = (char)(other[(i + 1) % 6] ^ 1 << bit);
            assert_false(str_eq_secret(STR("s3cret"), (str){other, 6}));
        }
}

/* Joins the parts with '|', so that a case is one line. */
static void assert_split(str text, char separator, const char *expected) {
    char joined[64];
    size_t len = 0;
    str part;
    while (str_split(&text, separator, &part)) {
        assert_true(len + part.len + 2 < sizeof joined);
        if (part.len > 0) memcpy(joined + len, part.at, part.len);
        len += part.len;
        joined[len++] = '|';
    }
    joined[len] = '\0';
    assert_string_equal(joined, expected);
    assert_null(text.at);
    assert_false(str_split(&text, separator, &part));
}

static void split_gives_every_part_once_the_empty_ones_too(void **state) {
    (void)state;
    assert_split(STR("a,b,c"), ',', "a|b|c|");
    assert_split(STR("abc"), ',', "abc|");
    assert_split(STR(""), ',', "|");
    assert_split(STR(","), ',', "||");
    assert_split(STR("a,"), ',', "a||");
    assert_split(STR(",a"), ',', "|a|");
    assert_split(STR("a,,b"), ',', "a||b|");
    assert_split((str){NULL, 0}, ',', "");
    /* Bytes behind the end are not looked at. */
    assert_split((str){"ab,c", 2}, ',', "ab|");
}

static void trim_takes_blanks_at_both_ends_and_nothing_else(void **state) {
    (void)state;
    assert_true(str_eq(str_trim(STR(" \t a b\t ")), STR("a b")));
    assert_true(str_eq(str_trim(STR("a")), STR("a")));
    assert_true(str_eq(str_trim(STR("\r\n")), STR("\r\n")));
    assert_int_equal(str_trim(STR(" \t ")).len, 0);
    assert_int_equal(str_trim(STR("")).len, 0);
}

static void numbers_are_read_up_to_the_limits_of_64_bits(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {
        {"0", 0},
        {"-0", 0},
        {"7", 7},
        {"-7", -7},
        {"007", 7},
        {"1234567890", 1234567890},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807", -INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"00000000000000000000000000009", 9},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t value = 42;
        assert_true(str_to_i64(str_of(rows[i].text), &value));
        assert_int_equal(value, rows[i].value);
    }
}

static void what_is_no_number_or_too_large_is_refused_untouched(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",
        "-",
        "--1",
        "+1",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x10",
        "1-",
        "a",
        "/",
        ":",
        "9223372036854775808",
        "-9223372036854775809",
        "92233720368547758070",
        "-92233720368547758080",
        "18446744073709551616",
        "99999999999999999999999999",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t value = 42;
        if (str_to_i64(str_of(rows[i]), &value)) fail_msg("\"%s\" was taken", rows[i]);
        assert_int_equal(value, 42);
    }
    int64_t value = 42;
    assert_false(str_to_i64(STR("1\0"), &value));
    assert_false(str_to_i64((str){NULL, 0}, &value));
}

static void every_64_bit_number_near_a_power_of_ten_reads_back(void **state) {
    (void)state;
    int64_t power = 1;
    for (int digits = 1; digits <= 18; digits++, power *= 10)
        for (int64_t near = -2; near <= 2; near++)
            for (int64_t sign = -1; sign <= 1; sign += 2) {
                int64_t wanted = sign * (power + near);
                char text[32];
                snprintf(text, sizeof text, "%lld", (long long)wanted);
                int64_t value = 0;
                assert_true(str_to_i64(str_of(text), &value));
                assert_int_equal(value, wanted);
            }
}

static void a_copy_fits_with_its_terminator_or_is_empty(void **state) {
    (void)state;
    char out[4];
    memset(out, 'x', sizeof out);
    assert_true(str_copy(STR("abc"), out, sizeof out));
    assert_string_equal(out, "abc");
    assert_false(str_copy(STR("abcd"), out, sizeof out));
    assert_string_equal(out, "");
    memset(out, 'x', sizeof out);
    assert_true(str_copy((str){NULL, 0}, out, 1));
    assert_string_equal(out, "");
    assert_int_equal(out[1], 'x');
    assert_false(str_copy(STR(""), out + 1, 0));
    assert_int_equal(out[1], 'x');
}

static void text_is_printable_ascii_and_well_formed_utf8(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",
        "plain ~",
        "Z\xc3\xbcrich",
        "\xc2\xa0",         /* the first behind the C1 controls */
        "\xdf\xbf",         /* U+07FF */
        "\xe0\xa0\x80",     /* U+0800 */
        "\xed\x9f\xbf",     /* U+D7FF, last before the surrogates */
        "\xee\x80\x80",     /* U+E000, first behind them */
        "\xef\xbf\xbf",     /* U+FFFF */
        "\xf0\x90\x80\x80", /* U+10000 */
        "\xf4\x8f\xbf\xbf", /* U+10FFFF */
        "\xec\x98\xa4\xed\x94\x88",
        "\xf0\x9f\x8e\xab ticket",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!str_is_text(str_of(rows[i]))) fail_msg("row %zu was refused", i);
}

static void text_has_no_control_overlong_surrogate_or_broken_sequence(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        const char *why;
    } rows[] = {
        {"a\nb", "line feed"},
        {"\x01", "C0"},
        {"\x1f", "C0"},
        {"\x7f", "DEL"},
        {"\xc2\x80", "C1, first"},
        {"\xc2\x9b", "C1, CSI"},
        {"\xc2\x9f", "C1, last"},
        {"\x80", "a lone continuation"},
        {"\xbf", "a lone continuation"},
        {"\xc0\x80", "overlong NUL"},
        {"\xc1\xbf", "overlong 2"},
        {"\xe0\x80\xaf", "overlong 3"},
        {"\xe0\x9f\xbf", "overlong 3, last"},
        {"\xf0\x80\x80\xaf", "overlong 4"},
        {"\xf0\x8f\xbf\xbf", "overlong 4, last"},
        {"\xed\xa0\x80", "surrogate, first"},
        {"\xed\xbf\xbf", "surrogate, last"},
        {"\xf4\x90\x80\x80", "above U+10FFFF"},
        {"\xf5\x80\x80\x80", "lead above f4"},
        {"\xff", "no lead at all"},
        {"\xc3", "cut after 1 of 2"},
        {"a\xe2\x82", "cut after 2 of 3"},
        {"\xe2", "cut after 1 of 3"},
        {"\xf0\x9f\x8e", "cut after 3 of 4"},
        {"\xf0\x9f", "cut after 2 of 4"},
        {"\xf0", "cut after 1 of 4"},
        {"\xc3(", "second is none"},
        {"\xe2\x82(", "third is none"},
        {"\xf0\x9f\x8e(", "fourth is none"},
        {"\xe2(\x82", "second is none, third is"},
        {"\xc3\xc3", "lead behind lead"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (str_is_text(str_of(rows[i].bytes))) fail_msg("taken: %s", rows[i].why);
    assert_false(str_is_text(STR("a\0b")));
}

static void text_ends_where_its_length_says_though_more_bytes_follow(void **state) {
    (void)state;
    static const str whole[] = {STR_INIT("\xc3\xbc"), STR_INIT("\xe2\x82\xac"),
                                STR_INIT("\xf0\x9f\x8e\xab")};
    for (size_t i = 0; i < COUNT_OF(whole); i++) {
        assert_true(str_is_text(whole[i]));
        for (size_t len = 1; len < whole[i].len; len++)
            assert_false(str_is_text((str){whole[i].at, len}));
    }
}

/* The other way round: a decoder that computes the code point judges all short byte strings. */
static bool is_text_by_decoding(const unsigned char *p, size_t len) {
    for (size_t i = 0; i < len;) {
        uint32_t lead = p[i];
        size_t size = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : 4;
        if (size == 4 && lead >> 3 != 30) return false;
        if (len - i < size) return false;
        uint32_t point = size == 1 ? lead : lead & (0x7fU >> size);
        for (size_t k = 1; k < size; k++) {
            if (p[i + k] >> 6 != 2) return false;
            point = point << 6 | (p[i + k] & 0x3f);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (point < least[size] || point > 0x10ffff) return false;
        if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false;
        if (point >= 0xd800 && point < 0xe000) return false;
        i += size;
    }
    return true;
}

static void text_agrees_with_a_decoder_on_all_strings_up_to_three_bytes(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 1U << 24; bits++) {
        /* The fourth byte completes sequences whose lead wants three more. */
        unsigned char bytes[4] = {(unsigned char)(bits >> 16), (unsigned char)(bits >> 8),
                                  (unsigned char)bits, 0xa5};
        size_t len = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
        if (len == 2 && (bits & 0xff) != 0) continue;
        if (str_is_text((str){(char *)bytes, len}) != is_text_by_decoding(bytes, len))
            fail_msg("they differ on %02x %02x %02x %02x, %zu bytes", bytes[0], bytes[1], bytes[2],
                     bytes[3], len);
    }
}

static void a_text_is_cut_between_characters(void **state) {
    (void)state;
    /* One, two, three and four bytes. */
    str text = STR("aé한🎫");
    static const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (size_t max = 0; max < sizeof expected / sizeof expected[0]; max++)
        assert_int_equal(str_cut(text, max).len, expected[max]);
}

static void a_name_needs_no_escaping_anywhere(void **state) {
    (void)state;
    assert_true(str_is_name(STR("aZ09_-."), 7));
    assert_false(str_is_name(STR("aZ09_-."), 6));
    assert_false(str_is_name(STR(""), 6));
    for (int c = 0; c < 256; c++) {
        char one[1] = {(char)c};
        bool plain = c < 128 && (strchr("_-.", c) != NULL || (c >= '0' && c <= '9') ||
                                 (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
        assert_int_equal(str_is_name((str){one, 1}, 1), c != 0 && plain);
    }
}

static void secrets_and_order_compare_every_byte(void **state) {
    (void)state;
    assert_true(str_eq_secret(STR("abc"), STR("abc")));
    assert_false(str_eq_secret(STR("abc"), STR("abd")));
    assert_false(str_eq_secret(STR("abc"), STR("bbc")));
    assert_false(str_eq_secret(STR("abc"), STR("ab")));
    assert_true(str_compare(STR("ab"), STR("abc")) < 0);
    assert_true(str_compare(STR("b"), STR("abc")) > 0);
    assert_int_equal(str_compare(STR(""), (str){NULL, 0}), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_null_str_is_an_empty_one),
        cmocka_unit_test(equality_looks_at_length_and_every_byte),
        cmocka_unit_test(skip_stops_at_the_end),
        cmocka_unit_test(case_is_ignored_for_ascii_letters_only),
        cmocka_unit_test(secrets_are_equal_only_in_all_their_bytes),
        cmocka_unit_test(split_gives_every_part_once_the_empty_ones_too),
        cmocka_unit_test(trim_takes_blanks_at_both_ends_and_nothing_else),
        cmocka_unit_test(numbers_are_read_up_to_the_limits_of_64_bits),
        cmocka_unit_test(what_is_no_number_or_too_large_is_refused_untouched),
        cmocka_unit_test(every_64_bit_number_near_a_power_of_ten_reads_back),
        cmocka_unit_test(a_copy_fits_with_its_terminator_or_is_empty),
        cmocka_unit_test(text_is_printable_ascii_and_well_formed_utf8),
        cmocka_unit_test(text_has_no_control_overlong_surrogate_or_broken_sequence),
        cmocka_unit_test(text_ends_where_its_length_says_though_more_bytes_follow),
        cmocka_unit_test(text_agrees_with_a_decoder_on_all_strings_up_to_three_bytes),
        cmocka_unit_test(a_text_is_cut_between_characters),
        cmocka_unit_test(a_name_needs_no_escaping_anywhere),
        cmocka_unit_test(secrets_and_order_compare_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
