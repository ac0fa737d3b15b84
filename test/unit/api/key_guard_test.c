#include "api/key_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct address at(const char *text) {
    struct address a;
    assert_true(address_parse(str_of(text), &a));
    return a;
}

static int64_t wait_of(struct key_guard *g, const char *text, int64_t now_ms) {
    struct address a = at(text);
    return key_guard_wait_ms(g, &a, now_ms);
}

static int64_t wrong_from(struct key_guard *g, const char *text, int64_t now_ms) {
    struct address a = at(text);
    return key_guard_wrong(g, &a, now_ms);
}

static int begin(void **state) {
    *state = key_guard_new();
    return 0;
}

static int end(void **state) {
    key_guard_free(*state);
    return 0;
}

static void the_wait_doubles_up_to_its_limit(void **state) {
    struct key_guard *g = *state;
    int64_t now_ms = 5;
    for (int i = 0; i < KEY_GUARD_FREE; i++) {
        wrong_from(g, "192.0.2.1", now_ms);
        assert_int_equal(wait_of(g, "192.0.2.1", now_ms), 0);
    }
    for (int64_t wait_ms = 1000; wait_ms <= KEY_GUARD_WAIT_MS_MAX; wait_ms *= 2) {
        wrong_from(g, "192.0.2.1", now_ms);
        assert_int_equal(wait_of(g, "192.0.2.1", now_ms), wait_ms);
        assert_int_equal(wait_of(g, "192.0.2.1", now_ms + wait_ms - 1), 1);
        now_ms += wait_ms;
        assert_int_equal(wait_of(g, "192.0.2.1", now_ms), 0);
    }
    for (int i = 0; i < 100; i++) wrong_from(g, "192.0.2.1", now_ms);
    assert_int_equal(wait_of(g, "192.0.2.1", now_ms), KEY_GUARD_WAIT_MS_MAX);
    assert_int_equal(wait_of(g, "192.0.2.2", now_ms), 0);
}

static void an_address_is_forgotten(void **state) {
    struct key_guard *g = *state;
    for (int i = 0; i < 50; i++) wrong_from(g, "192.0.2.1", 0);
    wrong_from(g, "192.0.2.1", KEY_GUARD_MEMORY_MS);
    assert_int_equal(wait_of(g, "192.0.2.1", KEY_GUARD_MEMORY_MS), 0);
}

static void ipv6_addresses_of_one_network_count_together(void **state) {
    struct key_guard *g = *state;
    char text[ADDRESS_TEXT_BYTES];
    for (int i = 0; i <= KEY_GUARD_FREE; i++) {
        snprintf(text, sizeof text, "2001:db8::%d", i + 1);
        wrong_from(g, text, 0);
        snprintf(text, sizeof text, "192.0.2.%d", i + 1);
        wrong_from(g, text, 0);
    }
    assert_int_equal(wait_of(g, "2001:db8::ffff:1", 0), 1000);
    assert_int_equal(wait_of(g, "2001:db8:0:1::1", 0), 0);
    assert_int_equal(wait_of(g, "192.0.2.1", 0), 0);
}

static void a_line_is_due_once_a_minute(void **state) {
    struct key_guard *g = *state;
    assert_int_equal(wrong_from(g, "192.0.2.1", 0), 1);
    for (int i = 0; i < 9; i++) assert_int_equal(wrong_from(g, "192.0.2.1", i), 0);
    assert_int_equal(wrong_from(g, "192.0.2.2", 9), 1);
    assert_int_equal(wrong_from(g, "192.0.2.1", KEY_GUARD_WARN_EVERY_MS - 1), 0);
    assert_int_equal(wrong_from(g, "192.0.2.1", KEY_GUARD_WARN_EVERY_MS), 11);
}

/* The table is full: addresses whose last wrong key is the oldest are forgotten first. */
static void a_flood_of_addresses_leaves_the_newest(void **state) {
    struct key_guard *g = *state;
    char text[ADDRESS_TEXT_BYTES];
    for (int i = 0; i < 65536; i++) {
        snprintf(text, sizeof text, "10.1.%d.%d", i / 256, i % 256);
        for (int k = 0; k <= KEY_GUARD_FREE; k++) wrong_from(g, text, i);
        assert_int_equal(wait_of(g, text, i), 1000);
    }
    assert_int_equal(wait_of(g, "10.1.0.0", 100), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_wait_doubles_up_to_its_limit, begin, end),
        cmocka_unit_test_setup_teardown(an_address_is_forgotten, begin, end),
        cmocka_unit_test_setup_teardown(ipv6_addresses_of_one_network_count_together, begin, end),
        cmocka_unit_test_setup_teardown(a_line_is_due_once_a_minute, begin, end),
        cmocka_unit_test_setup_teardown(a_flood_of_addresses_leaves_the_newest, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
