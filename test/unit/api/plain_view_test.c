#include "api/plain_view.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/clock.h"

static int64_t reload_before_opening(int64_t opens_ms, int64_t now_ms) {
    struct event e = {.opens_at_ms = opens_ms};
    struct plain_view v = {.event = &e, .state = EVENT_DRAFT, .now_ms = now_ms};
    return plain_view_reload_s(&v);
}

static void before_the_opening_the_page_is_loaded_when_that_is(void **state) {
    (void)state;
    assert_int_equal(reload_before_opening(1000000, 1000000 - 3600000), 60);
    assert_int_equal(reload_before_opening(1000000, 1000000 - 59000), 60);
    assert_int_equal(reload_before_opening(1000000, 1000000 - 5000), 6);
    assert_int_equal(reload_before_opening(1000000, 1000000 + 5000), 1);
}

/* A user whose token is of an event that has become a draft again. */
static void an_event_without_a_time_of_opening_is_looked_at_every_minute(void **state) {
    (void)state;
    assert_int_equal(reload_before_opening(CLOCK_NONE_MS, 1800000000000), 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_the_opening_the_page_is_loaded_when_that_is),
        cmocka_unit_test(an_event_without_a_time_of_opening_is_looked_at_every_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
