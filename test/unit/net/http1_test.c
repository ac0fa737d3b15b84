#include "net/http1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "http1_feeding.h"

#define HOST "Host: a\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST
#define GET10 "GET / HTTP/1.0\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

#define REFUSED(e, literal) feeding_refused(e, STR(literal))
/* A header line among good ones. */
#define REFUSED_HEADER(e, line)                                                                    \
    do {                                                                                           \
        REFUSED(e, GET line "\r\nAccept: b\r\n\r\n");                                              \
        REFUSED(e, "GET / HTTP/1.1\r\n" line "\r\n" HOST "\r\n");                                  \
    } while (0)

/* Each of the strings, between the two, makes a malformed request. */
#define EACH_BAD(before, behind, ...)                                                              \
    each_bad(before, behind, (const char *const[]){__VA_ARGS__, NULL})
#define BAD_HEADERS(...)                                                                           \
    do {                                                                                           \
        EACH_BAD(GET, "\r\nAccept: b\r\n\r\n", __VA_ARGS__);                                       \
        EACH_BAD("GET / HTTP/1.1\r\n", "\r\n" HOST "\r\n", __VA_ARGS__);                           \
    } while (0)

#define ACCEPTED(literal)                                                                          \
    do {                                                                                           \
        struct feeding accepted_f;                                                                 \
        feeding_accepted(&accepted_f, STR(literal), 0);                                            \
        mem_free(accepted_f.block);                                                                \
    } while (0)

#define assert_str(actual, expected)                                                               \
    do {                                                                                           \
        str actual_str = (actual);                                                                 \
        str expected_str = (expected);                                                             \
        assert_int_equal(actual_str.len, expected_str.len);                                        \
        assert_memory_equal(actual_str.at, expected_str.at, expected_str.len);                     \
    } while (0)

static void each_bad(const char *before, const char *behind, const char *const *middles) {
    for (; *middles != NULL; middles++) {
        struct buf b = {0};
        buf_addf(&b, "%s%s%s", before, *middles, behind);
        feeding_refused(ERR_BAD_REQUEST, buf_str(&b));
        buf_deinit(&b);
    }
}

static void fill(struct buf *b, char c, size_t count) {
    memset(buf_reserve(b, count), c, count);
    b->len += count;
}

static void request_is_taken_apart(void **state) {
    (void)state;
    struct feeding f;
    str input = STR("PUT /a/b%20c?d=e&f?g HTTP/1.1\r\nHost: x.example:8080\r\nX-One:\t two  \r\n"
                    "empty:\r\nContent-Length: 5\r\nx-one: second\r\n\r\nhello");
    struct http_request r = feeding_accepted(&f, input, 0);
    assert_int_equal(r.method, HTTP_PUT);
    assert_true(r.keep_alive);
    assert_str(r.path, STR("/a/b%20c"));
    assert_str(r.query, STR("d=e&f?g"));
    assert_str(r.body, STR("hello"));
    assert_str(http_header(&r, STR("HOST")), STR("x.example:8080"));
    assert_str(http_header(&r, STR("x-one")), STR("two"));
    assert_str(http_header_from_end(&r, STR("X-One"), 0), STR("second"));
    assert_str(http_header_from_end(&r, STR("X-One"), 1), STR("two"));
    assert_null(http_header_from_end(&r, STR("X-One"), 2).at);
    assert_non_null(http_header(&r, STR("Empty")).at);
    assert_int_equal(http_header(&r, STR("Empty")).len, 0);
    assert_null(http_header(&r, STR("X-On")).at);
    mem_free(f.block);
}

static void unfinished_request_waits_in_the_phase_it_is_in(void **state) {
    (void)state;
    static const struct {
        str input;
        enum http1_phase phase;
    } cases[] = {
        {STR_INIT(""), HTTP1_REQUEST_LINE},
        {STR_INIT("\r\n"), HTTP1_REQUEST_LINE},
        {STR_INIT("GET / HTTP/1.1\r"), HTTP1_REQUEST_LINE},
        {STR_INIT("GET / HTTP/1.1\r\n"), HTTP1_HEADERS},
        {STR_INIT(GET "\r"), HTTP1_HEADERS},
        {STR_INIT(POST "Content-Length: 2\r\n\r\n1"), HTTP1_BODY},
        {STR_INIT(CHUNKED), HTTP1_CHUNK_SIZE},
        {STR_INIT(CHUNKED "2\r\n1"), HTTP1_CHUNK_DATA},
        {STR_INIT(CHUNKED "2\r\n12\r"), HTTP1_CHUNK_END},
        {STR_INIT(CHUNKED "2\r\n12\r\n0\r\nA: b\r\n\r"), HTTP1_TRAILERS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct feeding f;
        feeding_parse(&f, cases[i].input);
        assert_int_equal(f.step, HTTP1_MORE);
        assert_int_equal(f.p.phase, cases[i].phase);
        mem_free(f.block);
    }
}

static void pipelined_bytes_are_left_alone(void **state) {
    (void)state;
    struct feeding f;
    str next = STR("\0\r\nnot looked at");
    feeding_accepted(&f, STR(GET "\r\n\0\r\nnot looked at"), next.len);
    assert_memory_equal(f.block + f.p.used, next.at, next.len);
    mem_free(f.block);
    struct http_request r =
        feeding_accepted(&f, STR(POST "Content-Length: 3\r\n\r\nabc\0\r\nnot looked at"), next.len);
    assert_str(r.body, STR("abc"));
    assert_memory_equal(f.block + f.p.used, next.at, next.len);
    mem_free(f.block);
    r = feeding_accepted(&f, STR(CHUNKED "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n\0\r\nnot looked at"),
                         next.len);
    assert_str(r.body, STR("abc"));
    assert_memory_equal(f.block + f.p.used, next.at, next.len);
    mem_free(f.block);
}

static void one_empty_line_before_the_request_is_skipped(void **state) {
    (void)state;
    ACCEPTED("\r\n" GET "\r\n");
    REFUSED(ERR_BAD_REQUEST, "\r\n\r\n" GET "\r\n");
    REFUSED(ERR_BAD_REQUEST, "\n" GET "\r\n");
    REFUSED(ERR_BAD_REQUEST, "\r" GET "\r\n");
    REFUSED(ERR_BAD_REQUEST, " \r\n" GET "\r\n");
}

static void request_line_has_three_parts_and_two_spaces(void **state) {
    (void)state;
    EACH_BAD("", "\r\n", "GET", "GET ", "GET /", "GET HTTP/1.1", "GET  HTTP/1.1", "GET  / HTTP/1.1",
             "GET /  HTTP/1.1", "GET / a HTTP/1.1", "GET\t/\tHTTP/1.1", "GET /\tHTTP/1.1",
             "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET / HTTP/1.1\r", "GET /\r HTTP/1.1",
             "GET /\n HTTP/1.1");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\n");
}

static void every_known_method_is_accepted_and_others_are_501(void **state) {
    (void)state;
    for (int m = 0; m < HTTP_METHODS; m++) {
        struct buf b = {0};
        buf_add(&b, http_method_name((enum http_method)m));
        buf_add(&b, STR(" /x HTTP/1.1\r\n" HOST "\r\n"));
        struct feeding f;
        assert_int_equal(feeding_accepted(&f, buf_str(&b), 0).method, m);
        mem_free(f.block);
        buf_deinit(&b);
    }
    assert_str(http_method_name(HTTP_DELETE), STR("DELETE"));
    REFUSED(ERR_NOT_IMPLEMENTED, "TRACE / HTTP/1.1\r\n");
    REFUSED(ERR_NOT_IMPLEMENTED, "get / HTTP/1.1\r\n");
    REFUSED(ERR_NOT_IMPLEMENTED, "GETS / HTTP/1.1\r\n");
    REFUSED(ERR_NOT_IMPLEMENTED, "GE / HTTP/1.1\r\n");
    REFUSED(ERR_NOT_IMPLEMENTED, "CONNECT a.example:443 HTTP/1.1\r\n");
}

static void only_versions_1_0_and_1_1_are_spoken(void **state) {
    (void)state;
    ACCEPTED(GET "\r\n");
    ACCEPTED(GET10 "\r\n");
    REFUSED(ERR_VERSION_NOT_SUPPORTED, "GET / HTTP/1.2\r\n");
    REFUSED(ERR_VERSION_NOT_SUPPORTED, "GET / HTTP/0.9\r\n");
    REFUSED(ERR_VERSION_NOT_SUPPORTED, "GET / HTTP/2.0\r\n");
    REFUSED(ERR_VERSION_NOT_SUPPORTED, "GET / HTTP/2.1\r\n");
    REFUSED(ERR_VERSION_NOT_SUPPORTED, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    EACH_BAD("GET / ", "\r\n", "http/1.1", "HTTP/11", "HTTP/1.10", "HTTP/01.1", "HTTP/1,1",
             "HTTP/x.1", "HTTP/1.x", "HTTQ/1.1");
}

static void target_becomes(const char *method, const char *target, const char *path,
                           const char *query) {
    struct buf b = {0};
    buf_addf(&b, "%s %s HTTP/1.1\r\n" HOST "\r\n", method, target);
    struct feeding f;
    struct http_request r = feeding_accepted(&f, buf_str(&b), 0);
    assert_str(r.path, str_of(path));
    assert_str(r.query, str_of(query));
    assert_true(r.path.at >= f.block && r.path.at < f.block + f.len);
    mem_free(f.block);
    buf_deinit(&b);
}

static void target_is_reduced_to_path_and_query(void **state) {
    (void)state;
    target_becomes("GET", "/", "/", "");
    target_becomes("GET", "/?", "/", "");
    target_becomes("GET", "//a//?b", "//a//", "b");
    target_becomes("GET", "/a?b/c", "/a", "b/c");
    target_becomes("GET", "/*", "/*", "");
    target_becomes("OPTIONS", "*", "*", "");
    target_becomes("GET", "http://h/p/q?r", "/p/q", "r");
    target_becomes("GET", "HttpS://[::1]:80/p", "/p", "");
    target_becomes("GET", "http://h", "/", "");
    target_becomes("GET", "https://h?r", "/", "r");
    target_becomes("GET", "http://h?r/s", "/", "r/s");
}

static void target_of_another_form_is_refused(void **state) {
    (void)state;
    EACH_BAD("GET ", " HTTP/1.1\r\n", "*", "a", "?a", "a/b", "host:80", "http:", "http:/",
             "http:/a", "http://", "http:///a", "http://?a", "http://user@host/", "ftp://host/",
             "httpx://host/");
    EACH_BAD("OPTIONS ", " HTTP/1.1\r\n", "**", "*?a");
}

static void escapes_in_the_target_are_whole_and_not_zero(void **state) {
    (void)state;
    target_becomes("GET", "/%41%fF?%0a%01", "/%41%fF", "%0a%01");
    EACH_BAD("GET ", " HTTP/1.1\r\n", "/%", "/%4", "/%4g", "/%g4", "/%%41", "/%00", "/a?b=%00");
}

static bool visible(int c) {
    return c > 0x20 && c < 0x7f;
}

static bool alnum(int c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Puts every byte between `before` and `behind`: accepted are those of `good`. The bytes of
 * `other` mean something else there and are tested elsewhere. */
static void only_bytes(str before, str behind, bool (*good)(int), const char *other) {
    for (int c = 0; c < 256; c++) {
        if (c != 0 && strchr(other, c) != NULL) continue;
        struct buf b = {0};
        buf_add(&b, before);
        buf_add_char(&b, (char)c);
        buf_add(&b, behind);
        if (good(c)) {
            struct feeding f;
            feeding_accepted(&f, buf_str(&b), 0);
            mem_free(f.block);
        } else {
            feeding_refused(ERR_BAD_REQUEST, buf_str(&b));
        }
        buf_deinit(&b);
    }
}

static bool good_in_target(int c) {
    return visible(c) && strchr("\"<>#\\", c) == NULL;
}

static bool good_in_name(int c) {
    return alnum(c) || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool good_in_value(int c) {
    return visible(c) || c == ' ' || c == '\t' || c >= 0x80;
}

static bool good_in_host(int c) {
    return alnum(c) || (c != 0 && strchr("-._~!$&'()*+,;=:[]%", c) != NULL);
}

static bool good_in_extension(int c) {
    return visible(c) || c == ' ' || c >= 0x80;
}

static void each_place_takes_only_its_bytes(void **state) {
    (void)state;
    only_bytes(STR("GET /a"), STR("b HTTP/1.1\r\n" HOST "\r\n"), good_in_target, "%");
    only_bytes(STR("GET /?"), STR("b HTTP/1.1\r\n" HOST "\r\n"), good_in_target, "%");
    only_bytes(STR(GET "a"), STR("b: c\r\n\r\n"), good_in_name, ":");
    only_bytes(STR(GET), STR(": c\r\n\r\n"), good_in_name, "");
    only_bytes(STR(GET "a: b"), STR("c\r\n\r\n"), good_in_value, "");
    only_bytes(STR(GET "a:"), STR("\r\n\r\n"), good_in_value, "");
    only_bytes(STR("GET / HTTP/1.1\r\nHost: a"), STR("b\r\n\r\n"), good_in_host, "");
    only_bytes(STR("GET http://a"), STR("b/ HTTP/1.1\r\n" HOST "\r\n"), good_in_host, "%/?");
    only_bytes(STR(CHUNKED "1;a"), STR("b\r\nx\r\n0\r\n\r\n"), good_in_extension, "");
    only_bytes(STR(CHUNKED "0\r\na"), STR("b: c\r\n\r\n"), good_in_name, ":");
    only_bytes(STR(CHUNKED "0\r\na: b"), STR("c\r\n\r\n"), good_in_value, "");
}

static void method_is_a_token(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        if (c == ' ') continue;
        char line[] = "XY / HTTP/1.1\r\n";
        line[1] = (char)c;
        feeding_refused(good_in_name(c) ? ERR_NOT_IMPLEMENTED : ERR_BAD_REQUEST,
                        (str){line, sizeof line - 1});
    }
    REFUSED(ERR_BAD_REQUEST, " / HTTP/1.1\r\n");
}

/* A request whose request line, line end included, has `bytes` bytes. */
static void add_long_line(struct buf *b, size_t bytes) {
    size_t rest = sizeof "GET / HTTP/1.1\r\n" - 1;
    buf_add(b, STR("GET /"));
    fill(b, 'a', bytes - rest);
    buf_add(b, STR(" HTTP/1.1\r\n"));
}

static void request_line_has_a_limit(void **state) {
    (void)state;
    static const str before[] = {STR_INIT(""), STR_INIT("\r\n")};
    for (size_t i = 0; i < 2; i++) {
        struct buf b = {0};
        struct feeding f;
        buf_add(&b, before[i]);
        add_long_line(&b, REQUEST_LINE_BYTES_MAX);
        buf_add(&b, STR(HOST "\r\n"));
        feeding_accepted(&f, buf_str(&b), 0);
        mem_free(f.block);

        buf_clear(&b);
        buf_add(&b, before[i]);
        add_long_line(&b, REQUEST_LINE_BYTES_MAX + 1);
        feeding_refused(ERR_URI_TOO_LONG, buf_str(&b));
        /* Without an end in sight, and one byte earlier not yet. */
        b.len -= 1;
        feeding_refused(ERR_URI_TOO_LONG, buf_str(&b));
        b.len -= 1;
        feeding_parse(&f, buf_str(&b));
        assert_int_equal(f.step, HTTP1_MORE);
        mem_free(f.block);
        buf_deinit(&b);
    }
}

/* POST head, its header lines and the empty line `bytes` long. */
static void add_long_headers(struct buf *b, str more, size_t bytes) {
    size_t rest = sizeof HOST - 1 + more.len + sizeof "a: \r\n\r\n" - 1;
    buf_add(b, STR(POST));
    buf_add(b, more);
    buf_add(b, STR("a: "));
    fill(b, 'b', bytes - rest);
    buf_add(b, STR("\r\n\r\n"));
}

static void headers_have_a_limit_in_bytes(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    add_long_headers(&b, STR(""), HEADERS_BYTES_MAX);
    feeding_accepted(&f, buf_str(&b), 0);
    mem_free(f.block);
    for (size_t over = 1; over < 5; over++) {
        buf_clear(&b);
        add_long_headers(&b, STR(""), HEADERS_BYTES_MAX + over);
        feeding_refused(ERR_HEADERS_TOO_LARGE, buf_str(&b));
    }
    b.len = sizeof "POST / HTTP/1.1\r\n" - 1 + HEADERS_BYTES_MAX;
    feeding_refused(ERR_HEADERS_TOO_LARGE, buf_str(&b));
    b.len -= 1;
    feeding_parse(&f, buf_str(&b));
    assert_int_equal(f.step, HTTP1_MORE);
    mem_free(f.block);
    buf_deinit(&b);
}

static void headers_have_a_limit_in_number(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    buf_add(&b, STR(GET));
    for (int i = 1; i < HTTP1_HEADERS_MAX; i++) buf_add(&b, STR("a: b\r\n"));
    size_t len = b.len;
    buf_add(&b, STR("\r\n"));
    feeding_accepted(&f, buf_str(&b), 0);
    mem_free(f.block);
    b.len = len;
    buf_add(&b, STR("a: b\r\n\r\n"));
    feeding_refused(ERR_HEADERS_TOO_LARGE, buf_str(&b));
    buf_deinit(&b);
}

static void trailers_count_in_the_limits_of_headers(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    str chunked = STR("Transfer-Encoding: chunked\r\n");
    str trailer = STR("t: u\r\n");
    for (size_t over = 0; over < 2; over++) {
        buf_clear(&b);
        add_long_headers(&b, chunked, HEADERS_BYTES_MAX + over - trailer.len - 2);
        buf_add(&b, STR("1\r\nx\r\n0\r\n"));
        buf_add(&b, trailer);
        buf_add(&b, STR("\r\n"));
        if (over > 0) {
            feeding_refused(ERR_HEADERS_TOO_LARGE, buf_str(&b));
        } else {
            feeding_accepted(&f, buf_str(&b), 0);
            mem_free(f.block);
        }
    }
    for (int over = 0; over < 2; over++) {
        buf_clear(&b);
        buf_add(&b, STR(CHUNKED "0\r\n"));
        for (int i = 2; i < HTTP1_HEADERS_MAX + over; i++) buf_add(&b, trailer);
        buf_add(&b, STR("\r\n"));
        if (over > 0) {
            feeding_refused(ERR_HEADERS_TOO_LARGE, buf_str(&b));
        } else {
            feeding_accepted(&f, buf_str(&b), 0);
            mem_free(f.block);
        }
    }
    buf_deinit(&b);
}

static void header_lines_are_strict(void **state) {
    (void)state;
    BAD_HEADERS("a : b", "a\t: b", " a: b", "\ta: b", "a: b\r\n c", "a: b\r\n\tc", "a: b\r\n ",
                ": b", "a", "a b: c", "a: b\rc", "a: b\r", "a: \rb", "a: b\nc: d", "a: b\n");
    REFUSED_HEADER(ERR_BAD_REQUEST, "a: b\0c");
    REFUSED(ERR_BAD_REQUEST, GET "\n");
    REFUSED(ERR_BAD_REQUEST, GET "\r\r\n");
    REFUSED(ERR_BAD_REQUEST, GET "\n\r\n");
}

static void host_is_there_once_and_well_formed(void **state) {
    (void)state;
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\nHos: a\r\nXost: a\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, GET HOST "\r\n");
    REFUSED(ERR_BAD_REQUEST, GET "hOST: a\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, GET10 HOST HOST "\r\n");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\nHost:\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\nHost: \t \r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, GET10 "Host:\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n");
    ACCEPTED("GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n");
    ACCEPTED(GET10 HOST "\r\n");
}

static void content_length_is_one_plain_number(void **state) {
    (void)state;
    BAD_HEADERS("Content-Length: 5\r\nContent-Length: 5",
                "Content-Length: 0\r\nAccept: a\r\ncontent-LENGTH: 0", "Content-Length: 5, 5",
                "Content-Length: 5,", "Content-Length:", "Content-Length: +5", "Content-Length: -5",
                "Content-Length: -0", "Content-Length: -", "Content-Length: 5 5",
                "Content-Length: 0x5", "Content-Length: 5a", "Content-Length: 5.0",
                "Content-Length: \"5\"", "Content-Length: 9223372036854775808",
                "Content-Length: 18446744073709551621",
                "Content-Length: 99999999999999999999999999999");
    ACCEPTED(POST "Content-Length: 0\r\n\r\n");
    ACCEPTED(POST "Content-Length:\t 007 \r\n\r\n1234567");
}

static void transfer_encoding_is_chunked_once_and_alone(void **state) {
    (void)state;
    REFUSED_HEADER(ERR_BAD_REQUEST, "Transfer-Encoding: chunked\r\nContent-Length: 5");
    REFUSED_HEADER(ERR_BAD_REQUEST, "Content-Length: 5\r\nTransfer-Encoding: chunked");
    REFUSED_HEADER(ERR_BAD_REQUEST, "Content-Length: 0\r\nTransfer-Encoding: identity");
    REFUSED_HEADER(ERR_BAD_REQUEST, "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding: gzip");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding: gzip, chunked");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding: chunked, chunked");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding: chunked;a=b");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding: identity");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding: xchunked");
    REFUSED_HEADER(ERR_NOT_IMPLEMENTED, "Transfer-Encoding:");
    REFUSED(ERR_BAD_REQUEST, GET10 "Transfer-Encoding: chunked\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, GET10 "Transfer-Encoding: gzip\r\n\r\n");
    ACCEPTED(POST "transfer-ENCODING: \tCHUNKed \r\n\r\n0\r\n\r\n");
}

static void chunks_are_joined(void **state) {
    (void)state;
    struct feeding f;
    str input = STR(CHUNKED "5\r\nhello\r\n001;a=b\r\n,\r\nA\r\n\r\n0\r\n\r\n1\r\n\r\n1;\r\n!\r\n"
                            "000\r\nTrailer: dropped\r\nAnother:\r\n\r\n");
    struct http_request r = feeding_accepted(&f, input, 0);
    assert_str(r.body, STR("hello,\r\n0\r\n\r\n1\r\n!"));
    assert_str(http_header(&r, STR("Host")), STR("a"));
    assert_null(http_header(&r, STR("Trailer")).at);
    mem_free(f.block);
    r = feeding_accepted(&f, STR(CHUNKED "0\r\n\r\n"), 0);
    assert_int_equal(r.body.len, 0);
    mem_free(f.block);
}

static void chunk_framing_is_strict(void **state) {
    (void)state;
    EACH_BAD(CHUNKED, "", "\r\n", "0x1\r\nx\r\n", "+1\r\nx\r\n", "-1\r\nx\r\n", " 1\r\nx\r\n",
             "1 \r\nx\r\n", "1 ;a\r\nx\r\n", "1\t;a\r\nx\r\n", "g\r\nx\r\n", "1g\r\nx\r\n",
             ";a\r\nx\r\n", "1,1\r\nx\r\n", "1\nx\r\n", "1\r\r\nx\r\n", "1;a\nx\r\n",
             "1;a\rb\r\nx\r\n", "1;a\tb\r\nx\r\n", "1\r\nx\n", "1\r\nx\r\r\n", "1\r\nxy\r\n",
             "1\r\nx1\r\n", "1\r\nx\rx", "1\r\nx\r\n\r\n", "0\n", "0\r\n\n", "0\r\n\r\r\n", "\n",
             "1\r\nx\r\n-0\r\n", "1\r\n\r\n0\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, CHUNKED "1;a\0b\r\nx\r\n");
}

static void trailers_are_as_strict_as_headers(void **state) {
    (void)state;
    EACH_BAD(CHUNKED "0\r\n", "\r\n\r\n", "a : b", " a: b", "a: b\r\n c", "a: b\nc: d", ": b", "a",
             "GET / HTTP/1.1");
    REFUSED(ERR_BAD_REQUEST, CHUNKED "0\r\na: b\0\r\n\r\n");
}

static void trailers_that_would_change_framing_are_refused(void **state) {
    (void)state;
    EACH_BAD(CHUNKED "0\r\n", "\r\n\r\n", "Content-Length: 5", "transfer-encoding: chunked",
             "Host: b", "Connection: close", "Expect: 100-continue");
}

static void content_length_has_a_limit_judged_at_the_end_of_the_head(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    buf_addf(&b, POST "Content-Length: %d\r\n\r\n", BODY_BYTES_MAX);
    fill(&b, 'x', BODY_BYTES_MAX);
    assert_int_equal(feeding_accepted(&f, buf_str(&b), 0).body.len, BODY_BYTES_MAX);
    mem_free(f.block);
    buf_clear(&b);
    buf_addf(&b, POST "Content-Length: %d\r\n\r\n", BODY_BYTES_MAX + 1);
    feeding_refused(ERR_CONTENT_TOO_LARGE, buf_str(&b));
    buf_deinit(&b);
    REFUSED(ERR_CONTENT_TOO_LARGE, POST "Content-Length: 4294967297\r\n\r\n");
    REFUSED(ERR_CONTENT_TOO_LARGE, POST "Content-Length: 9223372036854775807\r\n\r\n");
    REFUSED(ERR_BAD_REQUEST, POST "Content-Length: 65537\r\nbad\r\n\r\n");
}

static void chunked_body_has_a_limit_on_its_sum(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    buf_add(&b, STR(CHUNKED "8000\r\n"));
    fill(&b, 'x', 0x8000);
    buf_add(&b, STR("\r\n7fff\r\n"));
    fill(&b, 'y', 0x7fff);
    buf_add(&b, STR("\r\n"));
    size_t len = b.len;
    buf_add(&b, STR("1\r\nz\r\n0\r\n\r\n"));
    struct http_request r = feeding_accepted(&f, buf_str(&b), 0);
    assert_int_equal(r.body.len, BODY_BYTES_MAX);
    assert_int_equal(r.body.at[0x7fff], 'x');
    assert_int_equal(r.body.at[0x8000], 'y');
    assert_int_equal(r.body.at[0xffff], 'z');
    mem_free(f.block);
    /* Refused at the line that exceeds it, before the data. */
    b.len = len;
    buf_add(&b, STR("2\r\n"));
    feeding_refused(ERR_CONTENT_TOO_LARGE, buf_str(&b));
    b.len = len;
    buf_add(&b, STR("1\r\nz\r\n1\r\n"));
    feeding_refused(ERR_CONTENT_TOO_LARGE, buf_str(&b));
    buf_deinit(&b);
    REFUSED(ERR_CONTENT_TOO_LARGE, CHUNKED "10001\r\n");
    REFUSED(ERR_CONTENT_TOO_LARGE, CHUNKED "100000000\r\n");
    REFUSED(ERR_CONTENT_TOO_LARGE, CHUNKED "10000000000000001\r\n");
    REFUSED(ERR_CONTENT_TOO_LARGE, CHUNKED "ffffffffffffffffffffffffffffffffffff;a\r\n");
    REFUSED(ERR_BAD_REQUEST, CHUNKED "ffffffffffffffffffffffffffffffffffffg\r\n");
}

static void chunk_line_has_a_limit(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    buf_add(&b, STR(CHUNKED "1;"));
    fill(&b, 'e', CHUNK_LINE_BYTES_MAX - 4);
    size_t len = b.len;
    buf_add(&b, STR("\r\nx\r\n0\r\n\r\n"));
    feeding_accepted(&f, buf_str(&b), 0);
    mem_free(f.block);
    b.len = len;
    buf_add(&b, STR("e\r\nx\r\n0\r\n\r\n"));
    feeding_refused(ERR_BAD_REQUEST, buf_str(&b));
    b.len = len + 2;
    feeding_refused(ERR_BAD_REQUEST, buf_str(&b));
    b.len = len + 1;
    feeding_parse(&f, buf_str(&b));
    assert_int_equal(f.step, HTTP1_MORE);
    mem_free(f.block);
    buf_deinit(&b);
}

/* A body of single bytes whose lines take `bytes` together, including the last one of 3 bytes and
 * its reserve. */
static void add_thin_chunks(struct buf *b, size_t bytes) {
    buf_add(b, STR(CHUNKED));
    bytes -= sizeof "0\r\n" - 1 + 2;
    for (; bytes >= 10; bytes -= 5) buf_add(b, STR("1\r\nx\r\n"));
    buf_add(b, STR("1"));
    for (; bytes > 5; bytes--) buf_add(b, STR(";"));
    buf_add(b, STR("\r\nx\r\n"));
}

static void chunk_lines_together_have_a_limit(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    add_thin_chunks(&b, CHUNK_LINES_BYTES_MAX);
    buf_add(&b, STR("0\r\n\r\n"));
    feeding_accepted(&f, buf_str(&b), 0);
    mem_free(f.block);
    for (size_t over = 1; over < 8; over++) {
        buf_clear(&b);
        add_thin_chunks(&b, CHUNK_LINES_BYTES_MAX + over);
        buf_add(&b, STR("0\r\n\r\n"));
        feeding_refused(ERR_CONTENT_TOO_LARGE, buf_str(&b));
    }
    buf_deinit(&b);
}

static void longest_request_fits_the_documented_block(void **state) {
    (void)state;
    struct buf b = {0};
    struct feeding f;
    buf_add(&b, STR("\r\n"));
    add_long_line(&b, REQUEST_LINE_BYTES_MAX);
    size_t head = b.len;
    buf_add(&b, STR(HOST "Transfer-Encoding: chunked\r\n\r\n"));
    size_t headers = b.len - head;
    /* Lines of 254 + 2 bytes with a line end behind their data, then one that fills up. */
    size_t lines = CHUNK_LINES_BYTES_MAX;
    size_t body = BODY_BYTES_MAX;
    for (; lines >= 258 + 5 + 6; lines -= 258, body--) {
        buf_add(&b, STR("1;"));
        fill(&b, 'e', 252);
        buf_add(&b, STR("\r\nx\r\n"));
    }
    char size[16];
    int digits = snprintf(size, sizeof size, "%zx;", body);
    lines -= 5 + (size_t)digits + 4;
    buf_add(&b, str_of(size));
    fill(&b, 'e', lines);
    buf_add(&b, STR("\r\n"));
    fill(&b, 'y', body);
    buf_add(&b, STR("\r\n0\r\nt: "));
    fill(&b, 'u', HEADERS_BYTES_MAX - headers - 7);
    buf_add(&b, STR("\r\n\r\n"));
    /* The last chunk has no data, so nothing uses the 2 bytes set aside behind it. */
    assert_int_equal(b.len, HTTP1_BLOCK_BYTES_MAX - 2);
    assert_int_equal(feeding_accepted(&f, buf_str(&b), 0).body.len, BODY_BYTES_MAX);
    mem_free(f.block);
    buf_deinit(&b);
}

static void keeps_alive(bool expected, str input) {
    struct feeding f;
    assert_int_equal(feeding_accepted(&f, input, 0).keep_alive, expected);
    mem_free(f.block);
}

static void connection_header_decides_about_keep_alive(void **state) {
    (void)state;
    keeps_alive(true, STR(GET "\r\n"));
    keeps_alive(false, STR(GET "Connection: close\r\n\r\n"));
    keeps_alive(false, STR(GET "connection: \tCLOSE \r\n\r\n"));
    keeps_alive(false, STR(GET "Connection: upgrade , Close,x\r\n\r\n"));
    keeps_alive(false, STR(GET "Connection: close\r\nConnection: keep-alive\r\n\r\n"));
    keeps_alive(false, STR(GET "Connection: keep-alive, close\r\n\r\n"));
    keeps_alive(true, STR(GET "Connection: closed, xclose, clos\r\n\r\n"));
    keeps_alive(true, STR(GET "Connection:\r\n\r\n"));
    keeps_alive(true, STR(GET "Connection: ,,\r\n\r\n"));
    keeps_alive(false, STR(GET10 "\r\n"));
    keeps_alive(true, STR(GET10 "Connection: Keep-Alive\r\n\r\n"));
    keeps_alive(true, STR(GET10 "Connection: te,keep-alive\r\n\r\n"));
    keeps_alive(false, STR(GET10 "Connection: keep-alive\r\nConnection: close\r\n\r\n"));
    keeps_alive(false, STR(GET10 "Connection: alive\r\n\r\n"));
}

/* CONTINUE is said this often when the head arrives first, and the body a while later. */
static void continues(int expected, str head, str body) {
    struct feeding f;
    feeding_init(&f);
    feeding_add(&f, (str){head.at, head.len - 1});
    assert_int_equal(f.continues, 0);
    feeding_add(&f, str_skip(head, head.len - 1));
    assert_int_equal(f.continues, expected);
    feeding_add(&f, STR(""));
    feeding_add(&f, body);
    assert_int_equal(f.step, HTTP1_DONE);
    assert_int_equal(f.continues, expected);
    mem_free(f.block);
}

static void client_that_waits_gets_100_continue_once(void **state) {
    (void)state;
    str five = STR("12345");
    continues(1, STR(POST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"), five);
    continues(1, STR(POST "expect: 100-Continue\r\nContent-Length: 5\r\n\r\n"), five);
    continues(1, STR(POST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"),
              STR("0\r\n\r\n"));
    continues(0, STR(POST "Content-Length: 5\r\n\r\n"), five);
    continues(0, STR(POST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n"), STR(""));
    continues(0, STR(POST "Expect: 100-continue\r\n\r\n"), STR(""));
    continues(0, STR("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), five);
}

static void client_that_did_not_wait_gets_no_100_continue(void **state) {
    (void)state;
    struct feeding f;
    str input = STR(POST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n12345");
    for (size_t body = 1; body <= 5; body++) {
        feeding_init(&f);
        feeding_add(&f, (str){input.at, input.len - 5 + body});
        feeding_add(&f, str_skip(input, input.len - 5 + body));
        assert_int_equal(f.step, HTTP1_DONE);
        assert_int_equal(f.continues, 0);
        mem_free(f.block);
    }
}

static void other_expectations_fail(void **state) {
    (void)state;
    REFUSED_HEADER(ERR_EXPECTATION_FAILED, "Expect: 200-ok");
    REFUSED_HEADER(ERR_EXPECTATION_FAILED, "Expect: 100-continue, x");
    REFUSED_HEADER(ERR_EXPECTATION_FAILED, "Expect: 100-continue;q=1");
    REFUSED_HEADER(ERR_EXPECTATION_FAILED, "Expect:");
    REFUSED(ERR_CONTENT_TOO_LARGE, POST "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n");
}

static void decodes_to(str text, bool plus, str expected) {
    char *out = mem_new(text.len + (text.len == 0));
    assert_int_equal(http_percent_decode(text, out, plus), expected.len);
    assert_memory_equal(out, expected.at, expected.len);
    mem_free(out);
}

static void percent_decoding_refuses_bad_escapes_and_control_bytes(void **state) {
    (void)state;
    decodes_to(STR(""), false, STR(""));
    decodes_to(STR("a+b%20c%2B%25"), false, STR("a+b c+%"));
    decodes_to(STR("a+b%20c%2B%25"), true, STR("a b c+%"));
    decodes_to(STR("%c3%A9%ff"), false, STR("\xc3\xa9\xff"));
    static const str bad[] = {STR_INIT("%"),   STR_INIT("a%2"),  STR_INIT("%2"),  STR_INIT("%zz"),
                              STR_INIT("%2z"), STR_INIT("%z2"),  STR_INIT("%00"), STR_INIT("%1f"),
                              STR_INIT("%7F"), STR_INIT("a\tb"), STR_INIT("%0a"), STR_INIT("\x7f"),
                              STR_INIT("\0"),  STR_INIT("%+1"),  STR_INIT("%%41")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char out[8];
        assert_int_equal(http_percent_decode(bad[i], out, true), -1);
    }
    /* The digit behind the end of the text is not its own. */
    char out[8];
    assert_int_equal(http_percent_decode((str){"%41", 2}, out, true), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_is_taken_apart),
        cmocka_unit_test(unfinished_request_waits_in_the_phase_it_is_in),
        cmocka_unit_test(pipelined_bytes_are_left_alone),
        cmocka_unit_test(one_empty_line_before_the_request_is_skipped),
        cmocka_unit_test(request_line_has_three_parts_and_two_spaces),
        cmocka_unit_test(every_known_method_is_accepted_and_others_are_501),
        cmocka_unit_test(only_versions_1_0_and_1_1_are_spoken),
        cmocka_unit_test(target_is_reduced_to_path_and_query),
        cmocka_unit_test(target_of_another_form_is_refused),
        cmocka_unit_test(escapes_in_the_target_are_whole_and_not_zero),
        cmocka_unit_test(each_place_takes_only_its_bytes),
        cmocka_unit_test(method_is_a_token),
        cmocka_unit_test(request_line_has_a_limit),
        cmocka_unit_test(headers_have_a_limit_in_bytes),
        cmocka_unit_test(headers_have_a_limit_in_number),
        cmocka_unit_test(trailers_count_in_the_limits_of_headers),
        cmocka_unit_test(header_lines_are_strict),
        cmocka_unit_test(host_is_there_once_and_well_formed),
        cmocka_unit_test(content_length_is_one_plain_number),
        cmocka_unit_test(transfer_encoding_is_chunked_once_and_alone),
        cmocka_unit_test(chunks_are_joined),
        cmocka_unit_test(chunk_framing_is_strict),
        cmocka_unit_test(trailers_are_as_strict_as_headers),
        cmocka_unit_test(trailers_that_would_change_framing_are_refused),
        cmocka_unit_test(content_length_has_a_limit_judged_at_the_end_of_the_head),
        cmocka_unit_test(chunked_body_has_a_limit_on_its_sum),
        cmocka_unit_test(chunk_line_has_a_limit),
        cmocka_unit_test(chunk_lines_together_have_a_limit),
        cmocka_unit_test(longest_request_fits_the_documented_block),
        cmocka_unit_test(connection_header_decides_about_keep_alive),
        cmocka_unit_test(client_that_waits_gets_100_continue_once),
        cmocka_unit_test(client_that_did_not_wait_gets_no_100_continue),
        cmocka_unit_test(other_expectations_fail),
        cmocka_unit_test(percent_decoding_refuses_bad_escapes_and_control_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
