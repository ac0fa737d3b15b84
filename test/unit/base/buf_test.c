#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void an_untouched_buf_is_empty_and_owns_nothing(void **state) {
    (void)state;
    struct buf b = {0};
    assert_null(buf_str(&b).at);
    assert_int_equal(buf_str(&b).len, 0);
    buf_append(&b, NULL, 0);
    buf_add(&b, (str){NULL, 0});
    buf_consume(&b, 0);
    assert_null(b.bytes);
    buf_deinit(&b);
    buf_deinit(&b);
}

static void bytes_come_back_in_order_across_growth(void **state) {
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 10000; i++) {
        if (i % 3 == 0)
            buf_add_char(&b, (char)i);
        else
            buf_append(&b, &(char){(char)i}, 1);
        assert_true(b.len <= b.cap);
    }
    assert_int_equal(b.len, 10000);
    for (int i = 0; i < 10000; i++) assert_int_equal(b.bytes[i], (char)i);
    buf_deinit(&b);
    assert_null(b.bytes);
    assert_int_equal(b.len + b.cap, 0);
}

static void reserve_makes_room_behind_the_bytes_and_keeps_them(void **state) {
    (void)state;
    struct buf b = {0};
    buf_add(&b, STR("head"));
    char *room = buf_reserve(&b, 100000);
    assert_ptr_equal(room, b.bytes + 4);
    assert_true(b.cap - b.len >= 100000);
    memset(room, 'x', 100000);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.bytes, "headxxxx", 8);
    buf_deinit(&b);
}

static void growth_doubles_so_that_appending_stays_cheap(void **state) {
    (void)state;
    struct buf b = {0};
    int growths = 0;
    for (int i = 0; i < 1 << 20; i++) {
        size_t cap = b.cap;
        buf_add_char(&b, 'x');
        growths += b.cap != cap;
    }
    assert_true(growths <= 20);
    buf_deinit(&b);
}

static void numbers_are_written_as_printf_would(void **state) {
    (void)state;
    static const int64_t values[] = {0,   1,    -1,        9,         10,           99,
                                     100, -100, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct buf b = {0};
        buf_add_i64(&b, values[i]);
        char expected[32];
        snprintf(expected, sizeof expected, "%lld", (long long)values[i]);
        assert_string_equal(buf_cstr(&b), expected);
        buf_deinit(&b);
    }
}

static void formatted_text_of_any_length_is_appended_without_its_terminator(void **state) {
    (void)state;
    struct buf b = {0};
    size_t len = 0;
    for (int width = 0; width < 300; width++) {
        buf_addf(&b, "%*d|%s", width, 7, "");
        len += (size_t)(width < 1 ? 1 : width) + 1;
        assert_int_equal(b.len, len);
        assert_int_equal(b.bytes[b.len - 1], '|');
        assert_int_equal(b.bytes[b.len - 2], '7');
    }
    buf_addf(&b, "%s", "");
    assert_int_equal(b.len, len);
    buf_deinit(&b);
}

static void a_c_string_ends_where_the_bytes_end(void **state) {
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_cstr(&b), "");
    /* Also when the terminator needs new room. */
    for (size_t i = 1; i < 200; i++) {
        buf_add_char(&b, 'x');
        assert_int_equal(strlen(buf_cstr(&b)), i);
        assert_int_equal(b.len, i);
    }
    buf_clear(&b);
    assert_string_equal(buf_cstr(&b), "");
    buf_deinit(&b);
}

static void consuming_drops_the_front_and_keeps_the_rest(void **state) {
    (void)state;
    struct buf b = {0};
    buf_add(&b, STR("abcdef"));
    buf_consume(&b, 0);
    assert_true(str_eq(buf_str(&b), STR("abcdef")));
    buf_consume(&b, 2);
    assert_true(str_eq(buf_str(&b), STR("cdef")));
    buf_add(&b, STR("gh"));
    buf_consume(&b, 1);
    assert_true(str_eq(buf_str(&b), STR("defgh")));
    buf_consume(&b, 5);
    assert_int_equal(b.len, 0);
    buf_add(&b, STR("again"));
    assert_true(str_eq(buf_str(&b), STR("again")));
    buf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_untouched_buf_is_empty_and_owns_nothing),
        cmocka_unit_test(bytes_come_back_in_order_across_growth),
        cmocka_unit_test(reserve_makes_room_behind_the_bytes_and_keeps_them),
        cmocka_unit_test(growth_doubles_so_that_appending_stays_cheap),
        cmocka_unit_test(numbers_are_written_as_printf_would),
        cmocka_unit_test(formatted_text_of_any_length_is_appended_without_its_terminator),
        cmocka_unit_test(a_c_string_ends_where_the_bytes_end),
        cmocka_unit_test(consuming_drops_the_front_and_keeps_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
