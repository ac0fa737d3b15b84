#include "base/url.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct {
    const char *url;
    const char *redacted;
    const char *place;
} rows[] = {
    {"", "", ""},
    {"memory", "memory", "memory"},
    {"sqlite:/var/a@b.db", "sqlite:/var/a@b.db", "***"},
    {"redis://cache:6379/2", "redis://cache:6379/2", "cache:6379/2"},
    {"redis://:secret@cache", "redis://:***@cache", "cache"},
    {"redis://ann:secret@cache", "redis://ann:***@cache", "cache"},
    {"redis+sentinel://:secret@s1:1,s2:2/main", "redis+sentinel://:***@s1:1,s2:2/main",
     "s1:1,s2:2/main"},
    {"postgres://ann@db/shop", "postgres://ann@db/shop", "db/shop"},
    {"postgres://ann:se:cret@db/shop?sslmode=require", "postgres://ann:***@db/shop?sslmode=require",
     "db/shop"},
    {"postgres://db?password=secret&port=1&sslpassword=secret&%70assword=secret",
     "postgres://db?password=***&port=1&sslpassword=***&%70assword=***", "db"},
    {"postgres://db/shop?flag&a=", "postgres://db/shop?flag&a=", "db/shop"},
    /* An "@", "/" or "?" in a password that should have been percent-encoded. */
    {"postgres://ann:se@cret@db/shop", "postgres://***", "***"},
    {"postgres://ann:se/cret@db/shop", "postgres://***", "***"},
    {"postgres://ann:se?cret@db/shop", "postgres://***", "***"},
    {"postgres://db:5432/shop?password=se@cret", "postgres://***", "***"},
};

static void passwords_are_hidden_wherever_they_stand(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        url_redact(str_of(rows[i].url), &out);
        assert_string_equal(buf_cstr(&out), rows[i].redacted);
        buf_clear(&out);
        url_add_place(str_of(rows[i].url), &out);
        assert_string_equal(buf_cstr(&out), rows[i].place);
        buf_deinit(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passwords_are_hidden_wherever_they_stand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
