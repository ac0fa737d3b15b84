#include "base/json_out.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"

/* The text as parsed by another library; the caller drops the reference. */
static json_t *parsed(const struct buf *b) {
    json_error_t error;
    json_t *json = json_loadb(b->bytes, b->len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (json == NULL) fail_msg("%.*s: %s", (int)b->len, b->bytes, error.text);
    return json;
}

static void assert_value_survives(str value) {
    struct buf b = {0};
    struct json_out j;
    json_out_init(&j, &b);
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("value"), value);
    json_out_object_end(&j);
    json_out_done(&j);
    json_t *root = parsed(&b);
    json_t *got = json_object_get(root, "value");
    assert_int_equal(json_string_length(got), value.len);
    if (value.len > 0) assert_memory_equal(json_string_value(got), value.at, value.len);
    json_decref(root);
    buf_deinit(&b);
}

static void every_ascii_byte_in_every_place_survives_a_round_trip(void **state) {
    (void)state;
    for (int c = 0; c < 0x80; c++) {
        char text[] = {(char)c, 'a', (char)c, (char)c, 'b', (char)c};
        assert_value_survives((str){text, sizeof text});
        assert_value_survives((str){text, 1});
    }
}

static void text_of_all_planes_survives_as_it_is(void **state) {
    (void)state;
    str text = STR("Z\xc3\xbcrich \xec\x98\xa4\xed\x94\x88 \xf0\x9f\x8e\xab \xe2\x80\xa8 \x7f");
    assert_value_survives(text);
    struct buf b = {0};
    json_out_escape(&b, text);
    assert_true(str_eq(buf_str(&b), text));
    buf_deinit(&b);
}

static void an_empty_or_null_value_is_an_empty_string(void **state) {
    (void)state;
    assert_value_survives(STR(""));
    assert_value_survives((str){NULL, 0});
}

static void escapes_are_the_ones_of_the_rfc_and_leave_no_control(void **state) {
    (void)state;
    struct buf b = {0};
    json_out_escape(&b, STR("a\"b\\c\n\r\t\x01/\x1f"));
    assert_string_equal(buf_cstr(&b), "a\\\"b\\\\c\\n\\u000d\\u0009\\u0001/\\u001f");
    buf_deinit(&b);
}

static void nested_values_have_commas_exactly_between_them(void **state) {
    (void)state;
    struct buf b = {0};
    struct json_out j;
    json_out_init(&j, &b);
    json_out_object(&j, STR(""));
    json_out_i64(&j, STR("least"), INT64_MIN);
    json_out_array(&j, STR("list"));
    json_out_array(&j, STR(""));
    json_out_array_end(&j);
    json_out_object(&j, STR(""));
    json_out_object_end(&j);
    json_out_i64(&j, STR(""), 1);
    json_out_str(&j, STR(""), STR("two"));
    json_out_array_end(&j);
    json_out_object(&j, STR("none"));
    json_out_object_end(&j);
    json_out_bool(&j, STR("yes"), true);
    json_out_bool(&j, STR("no"), false);
    json_out_null(&j, STR("null"));
    json_out_raw(&j, STR("raw"), STR("{\"x\":[1]}"));
    json_out_i64(&j, STR("most"), INT64_MAX);
    json_out_object_end(&j);
    json_out_done(&j);
    assert_string_equal(buf_cstr(&b),
                        "{\"least\":-9223372036854775808,\"list\":[[],{},1,\"two\"],\"none\":{},"
                        "\"yes\":true,\"no\":false,\"null\":null,\"raw\":{\"x\":[1]},"
                        "\"most\":9223372036854775807}");
    json_t *root = parsed(&b);
    assert_int_equal(json_integer_value(json_object_get(root, "least")), INT64_MIN);
    assert_int_equal(json_array_size(json_object_get(root, "list")), 4);
    assert_true(json_is_true(json_object_get(root, "yes")));
    json_decref(root);
    buf_deinit(&b);
}

static void a_time_is_rfc_3339_and_no_time_is_null(void **state) {
    (void)state;
    struct buf b = {0};
    struct json_out j;
    json_out_init(&j, &b);
    json_out_array(&j, STR(""));
    json_out_time(&j, STR(""), INT64_C(1798192800123));
    json_out_time(&j, STR(""), CLOCK_NONE_MS);
    json_out_time(&j, STR(""), 0);
    json_out_array_end(&j);
    json_out_done(&j);
    assert_string_equal(buf_cstr(&b),
                        "[\"2026-12-25T10:00:00.123Z\",null,\"1970-01-01T00:00:00.000Z\"]");
    buf_deinit(&b);
}

static void writing_goes_behind_what_the_buf_holds(void **state) {
    (void)state;
    struct buf b = {0};
    buf_add(&b, STR("data: "));
    struct json_out j;
    json_out_init(&j, &b);
    json_out_object(&j, STR(""));
    json_out_object_end(&j);
    json_out_done(&j);
    assert_string_equal(buf_cstr(&b), "data: {}");
    buf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ascii_byte_in_every_place_survives_a_round_trip),
        cmocka_unit_test(text_of_all_planes_survives_as_it_is),
        cmocka_unit_test(an_empty_or_null_value_is_an_empty_string),
        cmocka_unit_test(escapes_are_the_ones_of_the_rfc_and_leave_no_control),
        cmocka_unit_test(nested_values_have_commas_exactly_between_them),
        cmocka_unit_test(a_time_is_rfc_3339_and_no_time_is_null),
        cmocka_unit_test(writing_goes_behind_what_the_buf_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
