#include "crowd/events.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char stream[] = "retry: 4436\n"
                             "event: queue-status\n"
                             "id: 2-1\n"
                             "data: {\"position\":1}\n"
                             "\n"
                             ": hb\n\n"
                             "data:two\r\ndata\r\n\r\n"
                             "data: a\nevent: late\ndata: bcd efg hij\nother: x\n\n"
                             "event: empty\n\n"
                             "event: a-name-that-is-longer-than-any-that-is-expected\ndata: z\n\n"
                             "data: not whole\n";

static const struct {
    const char *name;
    const char *data;
} expected[] = {
    {"queue-status", "{\"position\":1}"},
    {"", "two\n"},
    {"late", "a\nbcd efg hij"},
    {"", "z"},
};

#define EXPECTED (sizeof expected / sizeof expected[0])

static size_t take_all(struct buf *in, size_t seen) {
    struct stream_event e;
    size_t at = 0;
    for (; events_take(in, &at, &e); seen++) {
        assert_true(seen < EXPECTED);
        assert_string_equal(e.name, expected[seen].name);
        assert_true(str_eq(e.data, str_of(expected[seen].data)));
    }
    buf_consume(in, at);
    return seen;
}

static void events_are_read_however_they_are_split(void **state) {
    (void)state;
    for (size_t first = 1; first < sizeof stream; first++) {
        struct buf in = {0};
        buf_append(&in, stream, first);
        size_t seen = take_all(&in, 0);
        buf_append(&in, stream + first, sizeof stream - 1 - first);
        assert_int_equal(take_all(&in, seen), EXPECTED);
        assert_true(str_eq(buf_str(&in), STR("data: not whole\n")));
        buf_deinit(&in);
    }
}

static void bytes_that_are_read_one_by_one_are_not_kept(void **state) {
    (void)state;
    struct buf in = {0};
    size_t seen = 0;
    for (size_t i = 0; i < sizeof stream - 1; i++) {
        buf_add_char(&in, stream[i]);
        seen = take_all(&in, seen);
        assert_true(in.len < 128);
    }
    assert_int_equal(seen, EXPECTED);
    buf_deinit(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_read_however_they_are_split),
        cmocka_unit_test(bytes_that_are_read_one_by_one_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
