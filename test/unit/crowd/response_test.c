#include "crowd/response.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "splitmix.h"

#define OK "HTTP/1.1 200 OK\r\n"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"

/* Feeds the text in pieces that end at `first`, and then every `step` bytes. */
static enum response_step feed(struct response *r, str text, size_t first, size_t step) {
    enum response_step result = RESPONSE_MORE;
    response_reset(r);
    for (size_t at = 0, end = first; result == RESPONSE_MORE && at < text.len; end += step) {
        if (end > text.len) end = text.len;
        /* A copy, so that a read beyond it is found. */
        char *copy = malloc(end - at + 1);
        assert_non_null(copy);
        memcpy(copy, text.at + at, end - at);
        str in = {copy, end - at};
        result = response_feed(r, &in);
        at = end - in.len;
        free(copy);
        if (result == RESPONSE_DONE) assert_int_equal(at, text.len);
    }
    return result;
}

/* However the bytes are split. */
static void check_all_splits(str text, enum response_step expected, str body) {
    struct response r = {0};
    for (size_t first = 1; first <= text.len; first++) {
        assert_int_equal(feed(&r, text, first, text.len), expected);
        if (expected != RESPONSE_DONE) continue;
        assert_int_equal(r.body.len, body.len);
        assert_true(body.len == 0 || memcmp(r.body.bytes, body.at, body.len) == 0);
    }
    assert_int_equal(feed(&r, text, 1, 1), expected);
    if (expected == RESPONSE_DONE) assert_true(str_eq(buf_str(&r.body), body));
    response_deinit(&r);
}

#define GOOD(text, body) check_all_splits(STR(text), RESPONSE_DONE, STR(body))
#define BAD(text) check_all_splits(STR(text), RESPONSE_FAIL, STR(""))
#define UNFINISHED(text) check_all_splits(STR(text), RESPONSE_MORE, STR(""))

static void whole_responses_are_read_however_they_are_split(void **state) {
    (void)state;
    GOOD(OK "Content-Length: 5\r\n\r\nhello", "hello");
    GOOD(OK "content-length:5\r\nContent-Length: 5\r\n\r\nhello", "hello");
    GOOD(OK "Content-Length: 0\r\n\r\n", "");
    GOOD("HTTP/1.1 204 No Content\r\n\r\n", "");
    GOOD("HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n", "");
    GOOD("HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", "x");
    GOOD("HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 2\r\n\r\nok", "ok");
    GOOD(CHUNKED "5\r\nhello\r\n1;name=\"x\"\r\n!\r\n0\r\n\r\n", "hello!");
    GOOD(CHUNKED "A\r\n0123456789\r\n0\r\nA-Trailer: x\r\n\r\n", "0123456789");
    GOOD(CHUNKED "0\r\n\r\n", "");
}

static void malformed_responses_are_refused_however_they_are_split(void **state) {
    (void)state;
    BAD("HTTP/2.0 200 OK\r\n\r\n");
    BAD("HTTP/1.2 200 OK\r\n\r\n");
    BAD("HTTP/1.1 2000 OK\r\n\r\n");
    BAD("HTTP/1.1 20x OK\r\n\r\n");
    BAD("HTTP/1.1 099 OK\r\n\r\n");
    BAD("HTTP/1.1 101 Switching Protocols\r\n\r\n");
    BAD("ICY 200 OK\r\n\r\n");
    BAD("\r\n" OK "\r\n");
    BAD("HTTP/1.1 200 OK\n\r\n");
    BAD(OK "Content-Length: 5\n\r\nhello");
    BAD(OK "Content-Length : 5\r\n\r\nhello");
    BAD(OK " Content-Length: 5\r\n\r\nhello");
    BAD(OK "Content-Length: 5\r\n folded\r\n\r\nhello");
    BAD(OK ": 5\r\n\r\n");
    BAD(OK "no colon\r\n\r\n");
    BAD(OK "X: a\rb\r\n\r\n");
    BAD(OK "X: a\0b\r\n\r\n");
    BAD(OK "Content-Length: +5\r\n\r\nhello");
    BAD(OK "Content-Length: -5\r\n\r\nhello");
    BAD(OK "Content-Length: 0x5\r\n\r\nhello");
    BAD(OK "Content-Length: 5, 5\r\n\r\nhello");
    BAD(OK "Content-Length: \r\n\r\n");
    BAD(OK "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello");
    BAD(OK "Content-Length: 99999999999999999999\r\n\r\n");
    BAD(OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n");
    BAD(OK "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n");
    BAD(OK "Transfer-Encoding: gzip, chunked\r\n\r\n");
    BAD(OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n");
    BAD("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    BAD(CHUNKED "x\r\n");
    BAD(CHUNKED "\r\n");
    BAD(CHUNKED "-1\r\n");
    BAD(CHUNKED "5 \r\nhello\r\n");
    BAD(CHUNKED "5\nhello\r\n");
    BAD(CHUNKED "5\r\nhelloX\r\n");
    BAD(CHUNKED "fffffffffffffffff\r\n");
    BAD(CHUNKED "0\r\nbad trailer\r\n\r\n");
}

static void the_end_of_the_connection_ends_only_some(void **state) {
    (void)state;
    struct response r = {0};
    UNFINISHED(OK "Content-Length: 5\r\n\r\nhell");
    assert_int_equal(feed(&r, STR(OK "Content-Length: 5\r\n\r\nhell"), 9, 9), RESPONSE_MORE);
    assert_int_equal(response_close(&r), RESPONSE_FAIL);
    assert_int_equal(feed(&r, STR(CHUNKED "5\r\nhello\r\n"), 9, 9), RESPONSE_MORE);
    assert_int_equal(response_close(&r), RESPONSE_FAIL);
    assert_int_equal(feed(&r, STR(OK "X: y\r\n"), 9, 9), RESPONSE_MORE);
    assert_int_equal(response_close(&r), RESPONSE_FAIL);
    assert_int_equal(feed(&r, STR(OK "\r\nall that comes"), 9, 9), RESPONSE_MORE);
    assert_int_equal(response_close(&r), RESPONSE_DONE);
    assert_true(str_eq(buf_str(&r.body), STR("all that comes")));
    assert_false(r.keep_alive);
    response_deinit(&r);
}

static bool keeps_alive(const char *text) {
    struct response r = {0};
    assert_int_equal(feed(&r, str_of(text), 7, 7), RESPONSE_DONE);
    bool keep_alive = r.keep_alive;
    response_deinit(&r);
    return keep_alive;
}

static void connections_are_kept_when_both_sides_want_it(void **state) {
    (void)state;
    assert_true(keeps_alive(OK "Content-Length: 0\r\n\r\n"));
    assert_true(keeps_alive(OK "Content-Length: 0\r\nConnection: keep-alive\r\n\r\n"));
    assert_false(keeps_alive(OK "Content-Length: 0\r\nConnection: close\r\n\r\n"));
    assert_false(keeps_alive(OK "Content-Length: 0\r\nconnection: x, Close\r\n\r\n"));
    assert_false(keeps_alive("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
}

static void status_cookies_and_retry_after_are_kept(void **state) {
    (void)state;
    struct response r = {0};
    str text = STR("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 17\r\n"
                   "Set-Cookie: a=1; Path=/; HttpOnly\r\nset-cookie: b=2\r\n"
                   "Content-Type: text/event-stream; charset=utf-8\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(feed(&r, text, 30, 30), RESPONSE_DONE);
    assert_int_equal(r.status, 429);
    assert_int_equal(r.retry_after_s, 17);
    assert_true(r.is_events);
    assert_true(str_eq(buf_str(&r.cookies), STR("a=1; b=2")));
    /* Nothing of it is left in the next one. */
    text = STR("HTTP/1.1 503 X\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n"
               "Content-Length: 0\r\n\r\n");
    assert_int_equal(feed(&r, text, 30, 30), RESPONSE_DONE);
    assert_int_equal(r.retry_after_s, 0);
    assert_false(r.is_events);
    assert_int_equal(r.cookies.len, 0);
    text = STR(OK "Retry-After: 999999999\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(feed(&r, text, 30, 30), RESPONSE_DONE);
    assert_int_equal(r.retry_after_s, RESPONSE_RETRY_S_MAX);
    response_deinit(&r);
}

/* Feeds `unit` again and again, and returns after how many bytes it was refused. */
static size_t bytes_until_refused(const char *before, const char *unit) {
    struct response r = {0};
    response_reset(&r);
    str in = str_of(before);
    size_t fed = 0;
    assert_int_equal(response_feed(&r, &in), RESPONSE_MORE);
    enum response_step step = RESPONSE_MORE;
    for (; step == RESPONSE_MORE; fed += strlen(unit)) {
        in = str_of(unit);
        step = response_feed(&r, &in);
        assert_true(fed < 16 * RESPONSE_BODY_BYTES_MAX);
        assert_true(r.body.len <= RESPONSE_BODY_BYTES_MAX);
        assert_true(r.line.len <= RESPONSE_HEAD_BYTES_MAX);
        assert_true(r.cookies.len <= 4096);
    }
    assert_int_equal(step, RESPONSE_FAIL);
    response_deinit(&r);
    return fed;
}

static void everything_has_a_limit(void **state) {
    (void)state;
    assert_true(bytes_until_refused("HTTP/1.1 200 ", "OK") <= RESPONSE_HEAD_BYTES_MAX + 2);
    assert_true(bytes_until_refused(OK, "X: y\r\n") <= RESPONSE_HEAD_BYTES_MAX + 6);
    assert_true(bytes_until_refused(OK, "Set-Cookie: name=value\r\n") <=
                RESPONSE_HEAD_BYTES_MAX + 24);
    assert_true(bytes_until_refused(OK "X: ", "y") <= RESPONSE_HEAD_BYTES_MAX + 1);
    assert_true(bytes_until_refused(OK "\r\n", "some data") <= RESPONSE_BODY_BYTES_MAX + 9);
    assert_true(bytes_until_refused(CHUNKED, "4\r\ndata\r\n") <= 4 * RESPONSE_BODY_BYTES_MAX);
    assert_true(bytes_until_refused(CHUNKED "4;", "x") <= RESPONSE_CHUNK_LINE_BYTES_MAX);
    assert_true(bytes_until_refused(CHUNKED "0\r\n", "X: y\r\n") <= RESPONSE_HEAD_BYTES_MAX + 6);
}

static void bytes_behind_a_response_are_left(void **state) {
    (void)state;
    struct response r = {0};
    response_reset(&r);
    str in = STR(OK "Content-Length: 2\r\n\r\nokHTTP/1.1");
    assert_int_equal(response_feed(&r, &in), RESPONSE_DONE);
    assert_true(str_eq(in, STR("HTTP/1.1")));
    response_deinit(&r);
}

/* Responses of which some bytes were changed: in pieces or whole, the result is the same. */
static void broken_responses_have_one_result(void **state) {
    (void)state;
    static const char *const seeds[] = {
        OK "Content-Length: 5\r\nConnection: close\r\n\r\nhello",
        CHUNKED "5\r\nhello\r\n0\r\nA: b\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n" OK "\r\nrest",
    };
    static const char odd[] = "\r\n\0 :;0fG\x7f\xff/";
    uint64_t seed = 18;
    for (int round = 0; round < 20000; round++) {
        char text[128];
        size_t len = strlen(seeds[round % 3]);
        memcpy(text, seeds[round % 3], len);
        for (uint64_t n = 1 + next_random(&seed) % 3; n > 0; n--)
            text[next_random(&seed) % len] = odd[next_random(&seed) % (sizeof odd - 1)];
        struct response whole = {0};
        struct response pieces = {0};
        response_reset(&whole);
        response_reset(&pieces);
        str in = {text, len};
        enum response_step first = response_feed(&whole, &in);
        size_t used = len - in.len;
        enum response_step second = RESPONSE_MORE;
        size_t at = 0;
        while (second == RESPONSE_MORE && at < len) {
            size_t size = 1 + next_random(&seed) % 9;
            str piece = {text + at, at + size > len ? len - at : size};
            size_t left = piece.len;
            second = response_feed(&pieces, &piece);
            at += left - piece.len;
        }
        assert_int_equal(first, second);
        if (first == RESPONSE_DONE) assert_int_equal(used, at);
        if (first != RESPONSE_FAIL) {
            assert_int_equal(whole.status, pieces.status);
            assert_true(str_eq(buf_str(&whole.body), buf_str(&pieces.body)));
        }
        response_deinit(&whole);
        response_deinit(&pieces);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_responses_are_read_however_they_are_split),
        cmocka_unit_test(malformed_responses_are_refused_however_they_are_split),
        cmocka_unit_test(the_end_of_the_connection_ends_only_some),
        cmocka_unit_test(connections_are_kept_when_both_sides_want_it),
        cmocka_unit_test(status_cookies_and_retry_after_are_kept),
        cmocka_unit_test(everything_has_a_limit),
        cmocka_unit_test(bytes_behind_a_response_are_left),
        cmocka_unit_test(broken_responses_have_one_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
