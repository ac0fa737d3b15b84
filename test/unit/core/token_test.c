#include "core/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct token sample = {.event_key = 7,
                                    .seq = 123456789,
                                    .lane = 8,
                                    .user_hash = 0xfedcba9876543210U,
                                    .issued_ms = 1790000000123};

static struct token_box *box_of(const char *current, const char *previous) {
    struct token_box *box = token_box_new(str_of(current), str_of(previous));
    assert_non_null(box);
    return box;
}

static void assert_same(const struct token *a, const struct token *b) {
    assert_int_equal(a->event_key, b->event_key);
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->lane, b->lane);
    assert_int_equal(a->user_hash, b->user_hash);
    assert_int_equal(a->issued_ms, b->issued_ms);
}

static void a_token_says_what_was_signed(void **state) {
    (void)state;
    struct token_box *box = box_of("the current key", "");
    char text[TOKEN_TEXT_BYTES];
    struct token read;
    token_sign(box, &sample, text);
    assert_true(token_verify(box, (str){text, sizeof text}, &read));
    assert_same(&read, &sample);
    token_box_free(box);
}

static void the_largest_values_fit(void **state) {
    (void)state;
    struct token_box *box = box_of("key", "");
    struct token most = {.event_key = INT64_MAX,
                         .seq = (UINT64_C(1) << 48) - 1,
                         .lane = 15,
                         .user_hash = UINT64_MAX,
                         .issued_ms = (INT64_C(1) << 48) - 1};
    char text[TOKEN_TEXT_BYTES];
    struct token read;
    token_sign(box, &most, text);
    assert_true(token_verify(box, (str){text, sizeof text}, &read));
    assert_same(&read, &most);
    token_box_free(box);
}

/* Every character, changed to every other, at every place; and every other length. */
static void an_altered_token_is_refused(void **state) {
    (void)state;
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= .";
    struct token_box *box = box_of("the current key", "the previous key");
    char text[TOKEN_TEXT_BYTES + 2];
    struct token read;
    token_sign(box, &sample, text);
    for (size_t i = 0; i < TOKEN_TEXT_BYTES; i++) {
        char was = text[i];
        for (size_t c = 0; c < sizeof alphabet; c++) {
            text[i] = alphabet[c];
            bool same = alphabet[c] == was;
            assert_int_equal(token_verify(box, (str){text, TOKEN_TEXT_BYTES}, &read), same);
        }
        text[i] = was;
    }
    text[TOKEN_TEXT_BYTES] = 'A';
    text[TOKEN_TEXT_BYTES + 1] = 'A';
    for (size_t len = 0; len <= sizeof text; len++)
        assert_int_equal(token_verify(box, (str){text, len}, &read), len == TOKEN_TEXT_BYTES);
    token_box_free(box);
}

static void the_previous_key_verifies_and_the_one_before_does_not(void **state) {
    (void)state;
    struct token_box *first = box_of("key one", "");
    struct token_box *second = box_of("key two", "key one");
    struct token_box *third = box_of("key three", "key two");
    char old[TOKEN_TEXT_BYTES];
    char new[TOKEN_TEXT_BYTES];
    struct token read;
    token_sign(first, &sample, old);
    token_sign(second, &sample, new);
    assert_true(token_verify(second, (str){old, sizeof old}, &read));
    assert_true(token_verify(second, (str){new, sizeof new}, &read));
    assert_false(token_verify(third, (str){old, sizeof old}, &read));
    assert_true(token_verify(third, (str){new, sizeof new}, &read));
    assert_false(token_verify(first, (str){new, sizeof new}, &read));
    token_box_free(first);
    token_box_free(second);
    token_box_free(third);
}

/* The token format must not change between versions: a restart would invalidate every place. */
static void a_token_of_the_first_version_is_still_read(void **state) {
    (void)state;
    struct token_box *box = box_of("0123456789abcdef0123456789abcdef", "");
    char text[TOKEN_TEXT_BYTES + 1] = "";
    token_sign(box, &sample, text);
    assert_string_equal(text, "AYwAAAAAAAAABwgAAAdbzRX-3LqYdlQyEAGgxFBse_gyahw2UY5JKxlmrqGD6U0");
    assert_int_equal(token_user_hash(box, STR("user-1")), UINT64_C(0x456f39b4c91e972c));
    /* Under another hash these two were the same. */
    assert_int_not_equal(token_user_hash(box, STR("LYZQTllhCOfr{fT{")),
                         token_user_hash(box, STR("customer-0000001")));
    token_box_free(box);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_says_what_was_signed),
        cmocka_unit_test(the_largest_values_fit),
        cmocka_unit_test(an_altered_token_is_refused),
        cmocka_unit_test(the_previous_key_verifies_and_the_one_before_does_not),
        cmocka_unit_test(a_token_of_the_first_version_is_still_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
