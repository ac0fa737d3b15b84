#include "api/accept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"

static void gzip_is_sent_when_the_client_wants_it(void **state) {
    (void)state;
    static const struct {
        const char *header;
        bool gzip;
    } rows[] = {
        {"gzip, deflate, br, zstd", true},
        {"gzip", true},
        {"GZip", true},
        {"x-gzip", true},
        {"br;q=1.0, gzip;q=0.8, *;q=0.1", true},
        {"*", true},
        {"gzip;q=0.001", true},
        {"gzip; q=1", true},
        {"deflate ,\tgzip;q=0.5", true},
        {"", false},
        {"identity", false},
        {"br", false},
        {"gzip;q=0", false},
        {"gzip;q=0.000", false},
        {"gzip;q=0, *", false},
        {"*;q=0", false},
        {"gzip;q=0.5, identity;q=0.8", false},
        {"gzip;q=0.5, identity", false},
        {"gzip;q=0.8, identity;q=0.8", true},
        {"gzip;q=0.2, *;q=0.5", false},
        /* A weight that is none. */
        {"gzip;q=2", false},
        {"gzip;q=1.1", false},
        {"gzip;q=x", false},
        {"gzip;q=", false},
        {"gzip;q=0.5555", false},
        {"gzipped", false},
        {",;,;q=1,", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (accept_gzip(str_of(rows[i].header)) != rows[i].gzip) fail_msg("%s", rows[i].header);
    assert_false(accept_gzip((str){NULL, 0}));
}

static void the_language_is_the_one_that_the_client_likes_best(void **state) {
    (void)state;
    static const str codes[] = {STR_INIT("en"), STR_INIT("ko"), STR_INIT("pt-BR")};
    static const struct {
        const char *header;
        size_t found;
        size_t otherwise;
    } rows[] = {
        {"ko", 1, 0},
        {"ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", 1, 0},
        {"KO-kr", 1, 0},
        {"en-GB, ko;q=0.8", 0, 1},
        {"de, ko;q=0.5, en;q=0.6", 0, 1},
        {"fr;q=1, ko;q=0.001", 1, 0},
        {"pt", 2, 0},
        {"pt-br", 2, 0},
        {"pt-PT", 0, 0},
        {"zh-Hant-TW", 0, 0},
        {"de", 1, 1},
        {"", 1, 1},
        {"*", 1, 1},
        {"de, *;q=0.5", 1, 1},
        {"ko;q=0, *", 0, 1},
        {"ko;q=0, en;q=0, *;q=0.1", 2, 1},
        {"ko;q=0", 0, 0},
        {"ko;q=1.5, en;q=0.1", 0, 1},
        {"k, kok, -, ko-", 1, 0},
        /* The first of two that are liked equally. */
        {"en, ko", 0, 1},
        {"ko, en", 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t found = accept_language(str_of(rows[i].header), codes, 3, rows[i].otherwise);
        if (found != rows[i].found) fail_msg("%s: %zu", rows[i].header, found);
    }
    assert_int_equal(accept_language((str){NULL, 0}, codes, 3, 1), 1);
}

/* How long one header takes that has that language a thousand times, each time liked better. */
static clock_t ticks_of(const char *language) {
    static const str codes[] = {STR_INIT("ko"), STR_INIT("en")};
    struct buf header = {0};
    for (int q = 1; q < 1000; q++) buf_addf(&header, "%s;q=0.%03d,", language, q);
    clock_t began = clock();
    for (int i = 0; i < 20; i++) accept_language(buf_str(&header), codes, 2, 0);
    clock_t ticks = clock() - began;
    buf_deinit(&header);
    return ticks;
}

/* The header is walked through to find out what "*" stands for: not for each of a thousand, which
 * took 500 times as long. */
static void any_language_is_no_slower_than_one(void **state) {
    (void)state;
    clock_t one = ticks_of("k");
    assert_true(ticks_of("*") < 50 * (one + CLOCKS_PER_SEC / 1000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_is_sent_when_the_client_wants_it),
        cmocka_unit_test(the_language_is_the_one_that_the_client_likes_best),
        cmocka_unit_test(any_language_is_no_slower_than_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
