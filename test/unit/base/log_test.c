#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/clock.h"

/* Stderr goes into a pipe, which a thread empties, until capture_end. */
struct capture {
    int stderr_before;
    int from;
    pthread_t reader;
    struct buf text;
};

static void *read_all(void *arg) {
    struct capture *c = arg;
    for (;;) {
        ssize_t n = read(c->from, buf_reserve(&c->text, 65536), 65536);
        if (n <= 0) return NULL;
        c->text.len += (size_t)n;
    }
}

static void capture_begin(struct capture *c) {
    *c = (struct capture){0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    c->from = ends[0];
    c->stderr_before = dup(STDERR_FILENO);
    assert_true(c->stderr_before >= 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    assert_int_equal(pthread_create(&c->reader, NULL, read_all, c), 0);
}

/* The text, terminated; capture_free frees it. */
static const char *capture_end(struct capture *c) {
    dup2(c->stderr_before, STDERR_FILENO);
    close(c->stderr_before);
    pthread_join(c->reader, NULL);
    close(c->from);
    return buf_cstr(&c->text);
}

static void capture_free(struct capture *c) {
    buf_deinit(&c->text);
}

/* The text behind "time=… level=" of the one line that was written. */
static const char *after_level(const char *line) {
    str s = str_of(line);
    assert_true(str_starts(s, STR("time=")));
    s = str_skip(s, 5);
    int64_t ms = 0;
    assert_true(s.len > CLOCK_TEXT_BYTES);
    assert_true(clock_parse((str){s.at, CLOCK_TEXT_BYTES - 1}, &ms));
    assert_true(llabs(clock_wall_ms() - ms) < 60000);
    s = str_skip(s, CLOCK_TEXT_BYTES - 1);
    assert_true(str_starts(s, STR(" level=")));
    return s.at + 7;
}

static void a_logfmt_line_has_time_level_and_fields_in_order(void **state) {
    (void)state;
    log_setup(LOG_INFO, LOG_LOGFMT);
    struct capture c;
    capture_begin(&c);
    log_info(msg("listening"), kv("addr", "127.0.0.1:8080"), kv_i64("workers", -3),
             kv_str("id", (str){"abcdef", 3}));
    const char *text = capture_end(&c);
    assert_string_equal(after_level(text),
                        "info msg=listening addr=127.0.0.1:8080 workers=-3 id=abc\n");
    capture_free(&c);
}

static void logfmt_quotes_what_a_reader_could_split_wrongly(void **state) {
    (void)state;
    log_setup(LOG_INFO, LOG_LOGFMT);
    static const struct {
        str value;
        const char *expected;
    } rows[] = {
        {STR_INIT("two words"), "\"two words\""},
        {STR_INIT(""), "\"\""},
        {{NULL, 0}, "\"\""},
        {STR_INIT("a=b"), "\"a=b\""},
        {STR_INIT("say \"hi\""), "\"say \\\"hi\\\"\""},
        {STR_INIT("back\\slash"), "\"back\\\\slash\""},
        {STR_INIT("line\nlevel=error"), "\"line\\nlevel=error\""},
        {STR_INIT("nul\0here"), "\"nul\\u0000here\""},
        {STR_INIT("\x1b[31m"), "\"\\u001b[31m\""},
        {STR_INIT("\x7f"), "\"\x7f\""},
        {STR_INIT("Z\xc3\xbcrich"), "Z\xc3\xbcrich"},
        {STR_INIT("a/b?c&d"), "a/b?c&d"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct capture c;
        capture_begin(&c);
        log_info(kv_str("v", rows[i].value));
        const char *text = capture_end(&c);
        struct buf expected = {0};
        buf_addf(&expected, "info v=%s\n", rows[i].expected);
        assert_string_equal(after_level(text), buf_cstr(&expected));
        buf_deinit(&expected);
        capture_free(&c);
    }
}

static void a_json_line_is_one_object_that_a_parser_reads_back(void **state) {
    (void)state;
    log_setup(LOG_INFO, LOG_JSON);
    struct capture c;
    capture_begin(&c);
    log_warn(msg("a \"b\"\n\\c"), kv_i64("n", INT64_MIN), kv("none", NULL),
             kv_path("path", STR("/queue/CONCERT/1/subscribe/abc?x=1")));
    const char *text = capture_end(&c);
    assert_ptr_equal(strchr(text, '\n'), text + c.text.len - 1);
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_int_equal(json_object_size(line), 6);
    int64_t ms = 0;
    assert_true(clock_parse(str_of(json_string_value(json_object_get(line, "time"))), &ms));
    assert_string_equal(json_string_value(json_object_get(line, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(line, "msg")), "a \"b\"\n\\c");
    assert_int_equal(json_integer_value(json_object_get(line, "n")), INT64_MIN);
    assert_string_equal(json_string_value(json_object_get(line, "none")), "");
    assert_string_equal(json_string_value(json_object_get(line, "path")),
                        "/queue/CONCERT/1/subscribe/***?x=1");
    json_decref(line);
    capture_free(&c);
}

static void a_path_shows_no_entry_token(void **state) {
    (void)state;
    log_setup(LOG_INFO, LOG_JSON);
    static const struct {
        str path;
        const char *expected;
    } rows[] = {
        {STR_INIT("/queue/CONCERT/1/subscribe/abc"), "/queue/CONCERT/1/subscribe/***"},
        {STR_INIT("/queue/CONCERT/1/subscribe/abc?x=1"), "/queue/CONCERT/1/subscribe/***?x=1"},
        {STR_INIT("/queue/CONCERT/1/subscribe/abc/more"), "/queue/CONCERT/1/subscribe/***/more"},
        {STR_INIT("/queue/CONCERT/1/subscribe/ab&c"), "/queue/CONCERT/1/subscribe/***"},
        {STR_INIT("/queue/CONCERT/1/subscribe/"), "/queue/CONCERT/1/subscribe/***"},
        {STR_INIT("/queue/CONCERT/1/subscribe/a\0b"), "/queue/CONCERT/1/subscribe/***"},
        {STR_INIT("/x?token=abc"), "/x?token=***"},
        {STR_INIT("/x?token=abc&y=2"), "/x?token=***&y=2"},
        {STR_INIT("/x?y=2&token=abc#f"), "/x?y=2&token=***#f"},
        {STR_INIT("/x?token=a/b?c"), "/x?token=***"},
        {STR_INIT("/x?token=a\0b"), "/x?token=***"},
        {STR_INIT("/x?token=&y=2"), "/x?token=***&y=2"},
        {STR_INIT("/x?token=abc&token=def"), "/x?token=***&token=***"},
        {STR_INIT("/q/subscribe/abc?token=def&y"), "/q/subscribe/***?token=***&y"},
        {STR_INIT("/q/%73ubscribe/abc"), "/q/***"},
        {STR_INIT("/x?%74oken=abc"), "/x?***"},
        {STR_INIT("/queue/token"), "/queue/token"},
        {STR_INIT("/subscribe"), "/subscribe"},
        {STR_INIT("/events?section=A"), "/events?section=A"},
        {STR_INIT(""), ""},
        {{NULL, 0}, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct capture c;
        capture_begin(&c);
        log_info(kv_path("path", rows[i].path));
        json_t *line = json_loads(capture_end(&c), 0, NULL);
        assert_non_null(line);
        assert_string_equal(json_string_value(json_object_get(line, "path")), rows[i].expected);
        json_decref(line);
        capture_free(&c);
    }
}

static void only_levels_from_the_configured_one_up_are_written(void **state) {
    (void)state;
    static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR};
    static const char *const expected[] = {"debug|info|warn|error|", "info|warn|error|",
                                           "warn|error|", "error|"};
    for (size_t i = 0; i < 4; i++) {
        log_setup(levels[i], LOG_LOGFMT);
        for (size_t k = 0; k < 4; k++) assert_int_equal(log_enabled(levels[k]), k >= i);
        struct capture c;
        capture_begin(&c);
        log_debug(msg("x"));
        log_info(msg("x"));
        log_warn(msg("x"));
        log_error(msg("x"));
        str rest = str_of(capture_end(&c));
        struct buf seen = {0};
        str line;
        while (str_split(&rest, '\n', &line) && line.len > 0) {
            const char *level = after_level(line.at);
            buf_append(&seen, level, strcspn(level, " "));
            buf_add_char(&seen, '|');
        }
        assert_string_equal(buf_cstr(&seen), expected[i]);
        buf_deinit(&seen);
        capture_free(&c);
    }
}

static void a_debug_line_that_is_off_does_not_evaluate_its_fields(void **state) {
    (void)state;
    log_setup(LOG_INFO, LOG_LOGFMT);
    int evaluated = 0;
    log_debug(kv_i64("n", ++evaluated));
    assert_int_equal(evaluated, 0);
}

static void a_lost_stderr_is_no_reason_to_fail(void **state) {
    (void)state;
    log_setup(LOG_INFO, LOG_LOGFMT);
    int before = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    log_error(msg("nobody hears this"));
    dup2(before, STDERR_FILENO);
    close(before);
}

enum { WRITERS = 4, LINES = 500, LONG_BYTES = 20000 };

struct writer {
    pthread_t thread;
    int id;
    int64_t length; /* of the field that makes lines longer than a pipe writes in one piece */
};

static void *write_lines(void *arg) {
    struct writer *w = arg;
    char *filler = malloc((size_t)w->length);
    memset(filler, 'a' + w->id, (size_t)w->length);
    for (int i = 0; i < LINES; i++)
        log_info(kv_i64("writer", w->id), kv_i64("i", i),
                 kv_str("filler", (str){filler, (size_t)w->length}));
    free(filler);
    return NULL;
}

static void assert_lines_do_not_mix(int64_t length) {
    log_setup(LOG_INFO, LOG_JSON);
    struct capture c;
    capture_begin(&c);
    struct writer writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.id = i, .length = length};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_lines, &writers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(writers[i].thread, NULL);
    str rest = str_of(capture_end(&c));
    int64_t next[WRITERS] = {0};
    int lines = 0;
    str text;
    while (str_split(&rest, '\n', &text) && rest.at != NULL) {
        json_t *line = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES, NULL);
        if (line == NULL) fail_msg("not a line: %.*s", (int)(text.len % 300), text.at);
        int64_t writer = json_integer_value(json_object_get(line, "writer"));
        assert_in_range(writer, 0, WRITERS - 1);
        assert_int_equal(json_integer_value(json_object_get(line, "i")), next[writer]++);
        json_t *filler = json_object_get(line, "filler");
        assert_int_equal(json_string_length(filler), length);
        for (int64_t k = 0; k < length; k++)
            assert_int_equal(json_string_value(filler)[k], 'a' + writer);
        json_decref(line);
        lines++;
    }
    assert_int_equal(lines, WRITERS * LINES);
    capture_free(&c);
}

static void short_lines_of_several_threads_do_not_mix(void **state) {
    (void)state;
    assert_lines_do_not_mix(20);
}

static void lines_beyond_a_pipes_atomic_size_do_not_mix_either(void **state) {
    (void)state;
    assert_lines_do_not_mix(LONG_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_logfmt_line_has_time_level_and_fields_in_order),
        cmocka_unit_test(logfmt_quotes_what_a_reader_could_split_wrongly),
        cmocka_unit_test(a_json_line_is_one_object_that_a_parser_reads_back),
        cmocka_unit_test(a_path_shows_no_entry_token),
        cmocka_unit_test(only_levels_from_the_configured_one_up_are_written),
        cmocka_unit_test(a_debug_line_that_is_off_does_not_evaluate_its_fields),
        cmocka_unit_test(a_lost_stderr_is_no_reason_to_fail),
        cmocka_unit_test(short_lines_of_several_threads_do_not_mix),
        cmocka_unit_test(lines_beyond_a_pipes_atomic_size_do_not_mix_either),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
