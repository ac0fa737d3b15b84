/* Cursors of facts: the text of a mark, and which texts are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/fact.h"

static void a_cursor_is_read_as_the_mark_that_it_was_made_of(void **state) {
    (void)state;
    const struct sale_mark marks[] = {{0},
                                      {.id = 1},
                                      {.transaction = 731, .id = 42},
                                      {.transaction = INT64_MAX, .id = INT64_MAX}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char text[FACT_CURSOR_BYTES];
        struct sale_mark again;
        assert_true(fact_cursor_parse(fact_cursor_format(&marks[i], text), &again));
        assert_memory_equal(&again, &marks[i], sizeof again);
    }
}

static void another_text_is_no_cursor(void **state) {
    (void)state;
    const char *const texts[] = {
        "",    "-",   "1",    "1-",   "-1",   "--1",  "1--1", "1-2-3",
        "a-1", "1-a", " 1-1", "1-1 ", "+1-1", "01-1", "1-01", "1-9223372036854775808"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sale_mark mark;
        if (fact_cursor_parse(str_of(texts[i]), &mark)) fail_msg("\"%s\" is accepted", texts[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cursor_is_read_as_the_mark_that_it_was_made_of),
        cmocka_unit_test(another_text_is_no_cursor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
