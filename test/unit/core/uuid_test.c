#include "core/uuid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void what_is_written_is_read_back(void **state) {
    (void)state;
    for (int i = 0; i < 1000; i++) {
        char text[UUID_TEXT_BYTES];
        struct uuid read;
        struct uuid made = uuid_new(1700000000000 + i);
        uuid_format(&made, text);
        assert_true(uuid_parse((str){text, sizeof text}, &read));
        assert_true(uuid_eq(&made, &read));
    }
}

static void they_grow_with_time_and_are_never_the_same(void **state) {
    (void)state;
    struct uuid before = uuid_new(1700000000000);
    for (int i = 1; i < 1000; i++) {
        struct uuid next = uuid_new(1700000000000 + i);
        assert_true(memcmp(before.bytes, next.bytes, sizeof next.bytes) < 0);
        struct uuid twin = uuid_new(1700000000000 + i);
        assert_false(uuid_eq(&next, &twin));
        before = next;
    }
}

static void the_form_is_that_of_the_standard(void **state) {
    (void)state;
    struct uuid u = uuid_new(0x0123456789ab);
    char text[UUID_TEXT_BYTES];
    uuid_format(&u, text);
    assert_memory_equal(text, "01234567-89ab-7", 15);
    assert_non_null(memchr("89ab", text[19], 4));
}

static void anything_else_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "01234567-89ab-7000-8000-00000000000",
        "01234567-89ab-7000-8000-0000000000000",
        "01234567_89ab-7000-8000-000000000000",
        "0123456789-ab-7000-8000-000000000000",
        "01234567-89ab-7000-8000-00000000000g",
        "01234567-89ab-4000-8000-000000000000",
        "01234567-89ab-7000-c000-000000000000",
        "{1234567-89ab-7000-8000-000000000000",
    };
    struct uuid u;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(uuid_parse(str_of(bad[i]), &u));
    assert_true(uuid_parse(STR("01234567-89AB-7000-8000-000000000000"), &u));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(they_grow_with_time_and_are_never_the_same),
        cmocka_unit_test(the_form_is_that_of_the_standard),
        cmocka_unit_test(anything_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
