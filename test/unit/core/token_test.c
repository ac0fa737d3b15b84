#include "core/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base64url.h"

static const struct token sample = {.generation = 0xa1b2c3d4U,
                                    .event_key = 7,
                                    .seq = 123456789,
                                    .lane = 8,
                                    .user_hash = 0xfedcba9876543210U,
                                    .issued_ms = 1790000000123,
                                    .ttl_s = 86400};

static struct token_box *box_of(const char *current, const char *previous) {
    struct token_box *box = token_box_new(str_of(current), str_of(previous));
    assert_non_null(box);
    return box;
}

static void assert_same(const struct token *a, const struct token *b) {
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->event_key, b->event_key);
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->lane, b->lane);
    assert_int_equal(a->user_hash, b->user_hash);
    assert_int_equal(a->issued_ms, b->issued_ms);
    assert_int_equal(a->ttl_s, b->ttl_s);
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
    struct token most = {.generation = UINT32_MAX,
                         .event_key = INT64_MAX,
                         .seq = (UINT64_C(1) << 48) - 1,
                         .lane = 15,
                         .user_hash = UINT64_MAX,
                         .issued_ms = (INT64_C(1) << 48) - 1,
                         .ttl_s = UINT32_MAX};
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
static void a_token_of_the_second_version_is_still_read(void **state) {
    (void)state;
    struct token_box *box = box_of("0123456789abcdef0123456789abcdef", "");
    char text[TOKEN_TEXT_BYTES + 1] = "";
    token_sign(box, &sample, text);
    assert_string_equal(
        text, "AgmhssPUAAAAAAAAAAcIAAAHW80V_ty6mHZUMhABoMRQbHsAAVGA7iBGDd1nze7g01g0PEs6JA");
    /* The first version had no generation. */
    str first = STR("AYwAAAAAAAAABwgAAAdbzRX-3LqYdlQyEAGgxFBse_gyahw2UY5JKxlmrqGD6U0");
    struct token read;
    assert_false(token_verify(box, first, &read));
    assert_int_equal(token_user_hash(box, STR("user-1")), UINT64_C(0x456f39b4c91e972c));
    /* Under another hash these two were the same. */
    assert_int_not_equal(token_user_hash(box, STR("LYZQTllhCOfr{fT{")),
                         token_user_hash(box, STR("customer-0000001")));
    token_box_free(box);
}

/* ---- the credential of an anonymous user ---- */

static const unsigned char somebody[ANONYMOUS_BYTES] = "0123456789abcde";

static void a_credential_names_its_user_and_is_not_the_name(void **state) {
    (void)state;
    struct token_box *box = box_of("the current key", "");
    char text[CREDENTIAL_TEXT_BYTES];
    char name[BASE64URL_CHARS(ANONYMOUS_BYTES)];
    unsigned char user[ANONYMOUS_BYTES];
    bool is_old = true;
    credential_sign(box, somebody, text);
    assert_true(credential_verify(box, (str){text, sizeof text}, user, &is_old));
    assert_memory_equal(user, somebody, sizeof user);
    assert_false(is_old);
    base64url_encode(somebody, sizeof somebody, name);
    assert_false(credential_verify(box, (str){name, sizeof name}, user, &is_old));
    token_box_free(box);
}

/* Also those of the name alone, and a token of the same length. */
static void an_altered_credential_is_refused(void **state) {
    (void)state;
    struct token_box *box = box_of("the current key", "the previous key");
    struct token_box *other = box_of("another key", "");
    char text[CREDENTIAL_TEXT_BYTES];
    char token[TOKEN_TEXT_BYTES];
    unsigned char user[ANONYMOUS_BYTES];
    bool is_old;
    credential_sign(box, somebody, text);
    for (size_t i = 0; i < sizeof text; i++) {
        char was = text[i];
        text[i] = was == 'A' ? 'B' : 'A';
        assert_false(credential_verify(box, (str){text, sizeof text}, user, &is_old));
        text[i] = was;
    }
    for (size_t len = 0; len < sizeof text; len++)
        assert_false(credential_verify(box, (str){text, len}, user, &is_old));
    assert_false(credential_verify(other, (str){text, sizeof text}, user, &is_old));
    token_sign(box, &sample, token);
    assert_false(credential_verify(box, (str){token, sizeof token}, user, &is_old));
    assert_false(credential_verify(box, (str){token, sizeof text}, user, &is_old));
    token_box_free(box);
    token_box_free(other);
}

static void a_credential_of_the_previous_key_is_known_as_such(void **state) {
    (void)state;
    struct token_box *first = box_of("key one", "");
    struct token_box *second = box_of("key two", "key one");
    struct token_box *third = box_of("key three", "key two");
    char text[CREDENTIAL_TEXT_BYTES];
    unsigned char user[ANONYMOUS_BYTES];
    bool is_old = false;
    credential_sign(first, somebody, text);
    assert_true(credential_verify(second, (str){text, sizeof text}, user, &is_old));
    assert_true(is_old);
    assert_memory_equal(user, somebody, sizeof user);
    assert_false(credential_verify(third, (str){text, sizeof text}, user, &is_old));
    token_box_free(first);
    token_box_free(second);
    token_box_free(third);
}

static void the_user_of_an_idempotency_key_depends_on_the_key_and_the_secret(void **state) {
    (void)state;
    struct token_box *box = box_of("key one", "");
    struct token_box *other = box_of("key two", "key one");
    unsigned char a[ANONYMOUS_BYTES];
    unsigned char b[ANONYMOUS_BYTES];
    credential_user_of_key(box, STR("0f8fad5b-d9cb-469f-a165-70867728950e"), a);
    credential_user_of_key(box, STR("0f8fad5b-d9cb-469f-a165-70867728950e"), b);
    assert_memory_equal(a, b, sizeof a);
    credential_user_of_key(box, STR("0f8fad5b-d9cb-469f-a165-70867728950f"), b);
    assert_memory_not_equal(a, b, sizeof a);
    credential_user_of_key(other, STR("0f8fad5b-d9cb-469f-a165-70867728950e"), b);
    assert_memory_not_equal(a, b, sizeof a);
    token_box_free(box);
    token_box_free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_says_what_was_signed),
        cmocka_unit_test(the_largest_values_fit),
        cmocka_unit_test(an_altered_token_is_refused),
        cmocka_unit_test(the_previous_key_verifies_and_the_one_before_does_not),
        cmocka_unit_test(a_token_of_the_second_version_is_still_read),
        cmocka_unit_test(a_credential_names_its_user_and_is_not_the_name),
        cmocka_unit_test(an_altered_credential_is_refused),
        cmocka_unit_test(a_credential_of_the_previous_key_is_known_as_such),
        cmocka_unit_test(the_user_of_an_idempotency_key_depends_on_the_key_and_the_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
