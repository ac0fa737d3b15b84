#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "splitmix.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* 0000-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z */
#define FIRST_MS INT64_C(-62167219200000)
#define LAST_MS INT64_C(253402300799999)

static uint64_t random_state;

static int64_t random_ms(void) {
    return FIRST_MS + (int64_t)(next_random(&random_state) % (uint64_t)(LAST_MS - FIRST_MS + 1));
}

/* The result of the C library. */
static void format_by_libc(int64_t ms, char out[CLOCK_TEXT_BYTES]) {
    int64_t fraction = ((ms % 1000) + 1000) % 1000;
    time_t seconds = (time_t)((ms - fraction) / 1000);
    struct tm tm;
    assert_non_null(gmtime_r(&seconds, &tm));
    char text[64];
    snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)fraction);
    assert_true(str_copy(str_of(text), out, CLOCK_TEXT_BYTES));
}

static void assert_same_as_libc(int64_t ms) {
    char ours[CLOCK_TEXT_BYTES];
    char theirs[CLOCK_TEXT_BYTES];
    clock_format(ms, ours);
    format_by_libc(ms, theirs);
    assert_string_equal(ours, theirs);
    int64_t back = 42;
    if (!clock_parse(STR(ours), &back)) fail_msg("%s was refused", ours);
    if (back != ms) fail_msg("%s read as %lld, not %lld", ours, (long long)back, (long long)ms);
}

static void days_over_ten_thousand_years_are_the_c_librarys(void **state) {
    (void)state;
    /* Every other day: the calendar repeats after 146,097 of them, an odd number, so the next 400
     * years see the days that these leave out. */
    for (int64_t day_ms = FIRST_MS; day_ms < LAST_MS; day_ms += INT64_C(2) * 86400000)
        assert_same_as_libc(day_ms % 7 == 0 ? day_ms : day_ms + 86399999);
}

static void random_times_format_as_libc_and_read_back(void **state) {
    (void)state;
    random_state = 20261225;
    for (int i = 0; i < 200000; i++) assert_same_as_libc(random_ms());
}

static void times_around_1970_are_right_to_the_millisecond(void **state) {
    (void)state;
    for (int64_t ms = -100000; ms <= 100000; ms++) assert_same_as_libc(ms);
    char text[CLOCK_TEXT_BYTES];
    clock_format(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    clock_format(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    clock_format(FIRST_MS, text);
    assert_string_equal(text, "0000-01-01T00:00:00.000Z");
    clock_format(LAST_MS, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
}

/* All dates that could be written, the impossible ones included, against timegm, which moves an
 * impossible date to another day. */
static void exactly_the_days_of_the_calendar_are_accepted(void **state) {
    (void)state;
    static const int years[] = {0,    1,    4,    100,  400,  1582, 1600, 1700, 1899,
                                1900, 1904, 1969, 1970, 1999, 2000, 2001, 2023, 2024,
                                2026, 2100, 2200, 2300, 2400, 4000, 9996, 9999};
    for (size_t y = 0; y < COUNT_OF(years); y++)
        for (int month = 0; month <= 13; month++)
            for (int day = 0; day <= 32; day++) {
                struct tm tm = {.tm_year = years[y] - 1900, .tm_mon = month - 1, .tm_mday = day};
                int64_t expected = (int64_t)timegm(&tm) * 1000;
                bool exists =
                    tm.tm_year == years[y] - 1900 && tm.tm_mon == month - 1 && tm.tm_mday == day;
                char text[64];
                snprintf(text, sizeof text, "%04d-%02d-%02dT00:00:00Z", years[y], month, day);
                int64_t ms = 42;
                bool taken = clock_parse(str_of(text), &ms);
                if (taken != exists) fail_msg("%s: taken %d, exists %d", text, taken, exists);
                assert_int_equal(ms, exists ? expected : 42);
            }
}

static void random_times_with_offsets_read_as_timegm_says(void **state) {
    (void)state;
    random_state = 4711;
    for (int i = 0; i < 200000; i++) {
        /* A day inside both ends, so that no offset leads out. */
        int64_t ms = random_ms();
        if (ms < FIRST_MS + 86400000 || ms > LAST_MS - 86400000) continue;
        char local[CLOCK_TEXT_BYTES];
        format_by_libc(ms, local);
        int hours = (int)(next_random(&random_state) % 24);
        int minutes = (int)(next_random(&random_state) % 60);
        bool west = next_random(&random_state) % 2 == 0;
        char text[64];
        snprintf(text, sizeof text, "%.23s%c%02d:%02d", local, west ? '-' : '+', hours, minutes);
        int64_t offset_ms = (hours * 60 + minutes) * INT64_C(60000);
        int64_t back = 0;
        if (!clock_parse(str_of(text), &back)) fail_msg("%s was refused", text);
        if (back != (west ? ms + offset_ms : ms - offset_ms))
            fail_msg("%s read as %lld", text, (long long)back);
    }
}

static void the_same_instant_reads_the_same_however_it_is_written(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"2026-12-25T10:00:00Z", INT64_C(1798192800000)},
        {"2026-12-25T10:00:00.000Z", INT64_C(1798192800000)},
        {"2026-12-25T10:00:00.000000000Z", INT64_C(1798192800000)},
        {"2026-12-25T19:00:00+09:00", INT64_C(1798192800000)},
        {"2026-12-25T05:30:00-04:30", INT64_C(1798192800000)},
        {"2026-12-25T10:00:00+00:00", INT64_C(1798192800000)},
        {"2026-12-25T10:00:00-00:00", INT64_C(1798192800000)},
        {"2026-12-26T00:00:00+14:00", INT64_C(1798192800000)},
        {"2026-12-25T10:00:00.5Z", INT64_C(1798192800500)},
        {"2026-12-25T10:00:00.05Z", INT64_C(1798192800050)},
        {"2026-12-25T10:00:00.123Z", INT64_C(1798192800123)},
        {"2026-12-25T10:00:00.1239Z", INT64_C(1798192800123)},
        {"2026-12-25T10:00:00.123999999Z", INT64_C(1798192800123)},
        {"2026-12-25T19:00:00.25+09:00", INT64_C(1798192800250)},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000)},
        {"2000-02-29T23:59:59.999Z", INT64_C(951868799999)},
        {"1969-12-31T23:59:59.999Z", -1},
        {"1969-12-31T23:59:59.5Z", -500},
        {"1970-01-01T00:00:00+00:01", -60000},
        {"0000-01-01T00:00:00Z", FIRST_MS},
        {"9999-12-31T23:59:59.999Z", LAST_MS},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t ms = 42;
        if (!clock_parse(str_of(rows[i].text), &ms)) fail_msg("%s was refused", rows[i].text);
        if (ms != rows[i].ms) fail_msg("%s read as %lld", rows[i].text, (long long)ms);
    }
}

static void anything_else_is_refused_untouched(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",
        "2026",
        "2026-12-25",
        "2026-12-25T10:00:00",
        "2026-12-25T10:00Z",
        "2026-12-25 10:00:00Z",
        "2026-12-25t10:00:00z",
        "2026-12-25T10:00:00z",
        "2026-12-25T10:00:00ZZ",
        "2026-12-25T10:00:00Z ",
        " 2026-12-25T10:00:00Z",
        "2026-12-25T10:00:00.Z",
        "2026-12-25T10:00:00.1234567890Z",
        "2026-12-25T10:00:00,5Z",
        "2026-12-25T10:00:00.5",
        "2026-12-25T10:00:00.-5Z",
        "2026-12-25T24:00:00Z",
        "2026-12-25T23:60:00Z",
        "2026-12-25T23:59:60Z",
        "2026-12-25T1:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "20261225T100000Z",
        "-2026-12-25T10:00:00Z",
        "+2026-12-25T10:00:00Z",
        "12026-12-25T10:00:00Z",
        "2026-12-2/T10:00:00Z",
        "2026-12-2:T10:00:00Z",
        "2026-12-25T10:00:00+09",
        "2026-12-25T10:00:00+0900",
        "2026-12-25T10:00:00+9:00",
        "2026-12-25T10:00:00+24:00",
        "2026-12-25T10:00:00+09:60",
        "2026-12-25T10:00:00*09:00",
        "2026-12-25T10:00:00+09:00Z",
        "2026-12-25T10:00:00+-9:00",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t ms = 42;
        if (clock_parse(str_of(rows[i]), &ms)) fail_msg("\"%s\" was taken", rows[i]);
        assert_int_equal(ms, 42);
    }
    int64_t ms = 42;
    assert_false(clock_parse((str){NULL, 0}, &ms));
    assert_false(clock_parse(STR("2026-12-25T10:00:00Z\0"), &ms));
}

static void every_prefix_of_a_time_is_refused(void **state) {
    (void)state;
    str whole = STR("2026-12-25T10:00:00.123+09:00");
    int64_t ms = 42;
    for (size_t len = 0; len < whole.len; len++) {
        /* A block of exactly this size, so that a read behind its end is detected. */
        char *copy = test_malloc(len + 1);
        memcpy(copy, whole.at, len);
        assert_false(clock_parse((str){copy, len}, &ms));
        test_free(copy);
    }
    assert_true(clock_parse(whole, &ms));
}

/* clock_format asserts its range: a time that is accepted must be one that can be shown. */
static void an_offset_that_leads_out_of_the_years_0000_to_9999_is_refused(void **state) {
    (void)state;
    int64_t ms = 42;
    assert_false(clock_parse(STR("0000-01-01T00:00:00+00:01"), &ms));
    assert_false(clock_parse(STR("0000-01-01T22:58:59.999+22:59"), &ms));
    assert_false(clock_parse(STR("9999-12-31T23:59:59-00:01"), &ms));
    assert_false(clock_parse(STR("9999-12-31T12:00:00-12:00"), &ms));
    assert_int_equal(ms, 42);
    assert_true(clock_parse(STR("0000-01-01T00:01:00+00:01"), &ms));
    assert_int_equal(ms, FIRST_MS);
    assert_true(clock_parse(STR("9999-12-31T23:58:59.999-00:01"), &ms));
    assert_int_equal(ms, LAST_MS);
}

static void the_wall_clock_is_time_and_the_steady_one_never_goes_back(void **state) {
    (void)state;
    int64_t before_s = (int64_t)time(NULL);
    int64_t now_ms = clock_wall_ms();
    assert_true(now_ms >= (before_s - 1) * 1000 && now_ms <= (before_s + 60) * 1000);
    int64_t last = clock_steady_ns();
    for (int i = 0; i < 10000; i++) {
        int64_t now = clock_steady_ns();
        assert_true(now >= last);
        last = now;
    }
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t apart = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - last;
    assert_true(apart >= 0 && apart < INT64_C(60000000000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(days_over_ten_thousand_years_are_the_c_librarys),
        cmocka_unit_test(random_times_format_as_libc_and_read_back),
        cmocka_unit_test(times_around_1970_are_right_to_the_millisecond),
        cmocka_unit_test(exactly_the_days_of_the_calendar_are_accepted),
        cmocka_unit_test(random_times_with_offsets_read_as_timegm_says),
        cmocka_unit_test(the_same_instant_reads_the_same_however_it_is_written),
        cmocka_unit_test(anything_else_is_refused_untouched),
        cmocka_unit_test(every_prefix_of_a_time_is_refused),
        cmocka_unit_test(an_offset_that_leads_out_of_the_years_0000_to_9999_is_refused),
        cmocka_unit_test(the_wall_clock_is_time_and_the_steady_one_never_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
