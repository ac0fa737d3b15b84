#include "core/jwt.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/base64url.h"
#include "core/hmac.h"

/* RFC 7515, appendix A.1. */
static const str rfc_key_text = STR_INIT(
    "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow");
#define RFC_HEADER "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
#define RFC_PAYLOAD                                                                                \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl" \
    "fQ"
#define RFC_SIGNATURE "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
static const str rfc_token = STR_INIT(RFC_HEADER "." RFC_PAYLOAD "." RFC_SIGNATURE);

struct fixture {
    struct jwt_box *box;
    struct buf header;
    struct buf payload;
};

static int set_up(void **state) {
    static struct fixture f;
    char key[64];
    f = (struct fixture){0};
    assert_true(base64url_decode(rfc_key_text, key));
    f.box = jwt_box_new((str){key, sizeof key});
    assert_non_null(f.box);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    jwt_box_free(f->box);
    buf_deinit(&f->header);
    buf_deinit(&f->payload);
    return 0;
}

static bool verifies(struct fixture *f, str text) {
    bool ok = jwt_verify(f->box, text, &f->header, &f->payload);
    if (!ok) assert_int_equal(f->header.len + f->payload.len, 0);
    return ok;
}

static void the_standards_own_token_is_read(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        assert_true(verifies(f, rfc_token));
        assert_true(str_eq(buf_str(&f->header), STR("{\"typ\":\"JWT\",\r\n \"alg\":\"HS256\"}")));
        assert_true(
            str_eq(buf_str(&f->payload), STR("{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n "
                                             "\"http://example.com/is_root\":true}")));
    }
}

static void what_is_signed_is_read_again(void **state) {
    struct fixture *f = *state;
    struct buf token = {0};
    str payload = STR("{\"sub\":\"user-1\",\"evt\":\"CONCERT/1\"}");
    buf_add(&token, STR("before "));
    jwt_sign(f->box, payload, &token);
    str text = str_skip(buf_str(&token), 7);
    assert_true(str_starts(text, STR("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.")));
    assert_true(verifies(f, text));
    assert_true(str_eq(buf_str(&f->header), STR("{\"alg\":\"HS256\",\"typ\":\"JWT\"}")));
    assert_true(str_eq(buf_str(&f->payload), payload));
    struct jwt_box *other = jwt_box_new(STR("another key"));
    assert_false(jwt_verify(other, text, &f->header, &f->payload));
    jwt_box_free(other);
    buf_deinit(&token);
}

/* Every character changed to every other, at every place; left out; and put in twice. */
static void an_altered_token_is_refused(void **state) {
    struct fixture *f = *state;
    static const char tried[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= .";
    char text[256];
    for (size_t i = 0; i < rfc_token.len; i++) {
        assert_true(str_copy(rfc_token, text, sizeof text));
        for (size_t c = 0; c < sizeof tried; c++) {
            text[i] = tried[c];
            assert_int_equal(verifies(f, (str){text, rfc_token.len}), tried[c] == rfc_token.at[i]);
        }
        memcpy(text, rfc_token.at, i);
        memcpy(text + i, rfc_token.at + i + 1, rfc_token.len - i - 1);
        assert_false(verifies(f, (str){text, rfc_token.len - 1}));
        memcpy(text + i, rfc_token.at + i, rfc_token.len - i);
        memmove(text + i + 1, text + i, rfc_token.len - i);
        assert_false(verifies(f, (str){text, rfc_token.len + 1}));
    }
    for (size_t len = 0; len < rfc_token.len; len++)
        assert_false(verifies(f, (str){rfc_token.at, len}));
}

static void what_has_not_three_parts_is_refused(void **state) {
    struct fixture *f = *state;
    static const str bad[] = {
        {NULL, 0},
        STR_INIT(""),
        STR_INIT("."),
        STR_INIT(".."),
        STR_INIT("..."),
        STR_INIT(RFC_HEADER "." RFC_PAYLOAD),
        STR_INIT(RFC_HEADER "." RFC_PAYLOAD "."),
        STR_INIT("." RFC_PAYLOAD "." RFC_SIGNATURE),
        STR_INIT(RFC_HEADER ".." RFC_SIGNATURE),
        STR_INIT(RFC_HEADER "." RFC_PAYLOAD "." RFC_SIGNATURE "."),
        STR_INIT(RFC_HEADER "." RFC_PAYLOAD "." RFC_SIGNATURE "." RFC_SIGNATURE),
        STR_INIT(RFC_HEADER "." RFC_PAYLOAD "." RFC_SIGNATURE "="),
        STR_INIT(RFC_HEADER "." RFC_PAYLOAD "==." RFC_SIGNATURE),
        STR_INIT(" " RFC_HEADER "." RFC_PAYLOAD "." RFC_SIGNATURE),
        /* {"alg":"none"}, as RFC 7519 has it: without a signature, and with that of another. */
        STR_INIT("eyJhbGciOiJub25lIn0." RFC_PAYLOAD "."),
        STR_INIT("eyJhbGciOiJub25lIn0." RFC_PAYLOAD "." RFC_SIGNATURE),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(verifies(f, bad[i]));
}

/* With the right signature of whatever stands before it. */
static bool verifies_signed(struct fixture *f, struct hmac *h, str signed_part) {
    unsigned char mac[HMAC_BYTES];
    struct buf text = {0};
    hmac_of(h, STR(""), signed_part, mac);
    buf_add(&text, signed_part);
    buf_add_char(&text, '.');
    base64url_encode(mac, sizeof mac, buf_reserve(&text, BASE64URL_CHARS(HMAC_BYTES)));
    text.len += BASE64URL_CHARS(HMAC_BYTES);
    bool ok = verifies(f, buf_str(&text));
    buf_deinit(&text);
    return ok;
}

static void a_right_signature_does_not_excuse_a_wrong_coding(void **state) {
    struct fixture *f = *state;
    char key[64];
    assert_true(base64url_decode(rfc_key_text, key));
    struct hmac *h = hmac_new((str){key, sizeof key});
    assert_true(verifies_signed(f, h, STR("e30.e30")));
    assert_true(verifies_signed(f, h, STR("."))); /* two empty texts, which are no JSON */
    assert_int_equal(f->header.len + f->payload.len, 0);
    static const str bad[] = {STR_INIT("e30=.e30"), STR_INIT("e30.e30="),   STR_INIT("e31.e30"),
                              STR_INIT("e30.e31"),  STR_INIT("e30.e"),      STR_INIT("e30.e3 0"),
                              STR_INIT("e30"),      STR_INIT("e30.e30.e30")};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(verifies_signed(f, h, bad[i]));
    hmac_free(h);
}

static void the_longest_token_is_read_and_one_longer_is_not(void **state) {
    struct fixture *f = *state;
    char payload[4096];
    memset(payload, ' ', sizeof payload);
    size_t longest = 0;
    for (size_t len = 2900; len < 3100; len++) {
        struct buf token = {0};
        jwt_sign(f->box, (str){payload, len}, &token);
        assert_int_equal(verifies(f, buf_str(&token)), token.len <= JWT_TEXT_BYTES_MAX);
        if (token.len <= JWT_TEXT_BYTES_MAX) longest = token.len;
        buf_deinit(&token);
    }
    assert_in_range(longest, JWT_TEXT_BYTES_MAX - 2, JWT_TEXT_BYTES_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_standards_own_token_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_signed_is_read_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_altered_token_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_not_three_parts_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_right_signature_does_not_excuse_a_wrong_coding, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_longest_token_is_read_and_one_longer_is_not, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
