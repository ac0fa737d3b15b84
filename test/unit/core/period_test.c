#include "core/period.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"

static int64_t at(const char *text) {
    int64_t ms = 0;
    assert_true(clock_parse(str_of(text), &ms));
    return ms;
}

static void assert_span(const char *word, const char *when, const char *name, const char *begins,
                        const char *ends) {
    const struct period *p = period_find(str_of(word));
    assert_non_null(p);
    struct span s = period_span(p, at(when));
    assert_string_equal(s.name, name);
    char text[CLOCK_TEXT_BYTES];
    clock_format(s.begins_ms, text);
    assert_string_equal(text, begins);
    clock_format(s.ends_ms, text);
    assert_string_equal(text, ends);
}

static int in_utc(void **state) {
    (void)state;
    clock_zone_set("UTC");
    return 0;
}

static void a_day_goes_from_midnight_to_midnight(void **state) {
    (void)state;
    const char *begins = "2026-12-25T00:00:00.000Z";
    const char *ends = "2026-12-26T00:00:00.000Z";
    assert_span("daily", "2026-12-25T00:00:00.000Z", "20261225", begins, ends);
    assert_span("daily", "2026-12-25T23:59:59.999Z", "20261225", begins, ends);
    assert_span("daily", "2026-12-26T00:00:00.000Z", "20261226", ends, "2026-12-27T00:00:00.000Z");
}

/* Pitfall 38: the year of a week is not the year of its days. */
static void a_week_belongs_to_the_year_of_its_thursday(void **state) {
    (void)state;
    const char *begins = "2026-12-28T00:00:00.000Z";
    const char *ends = "2027-01-04T00:00:00.000Z";
    assert_span("weekly", "2026-12-28T00:00:00.000Z", "2026-W53", begins, ends);
    assert_span("weekly", "2026-12-31T23:59:59.999Z", "2026-W53", begins, ends);
    assert_span("weekly", "2027-01-01T00:00:00.000Z", "2026-W53", begins, ends);
    assert_span("weekly", "2027-01-03T23:59:59.999Z", "2026-W53", begins, ends);
    assert_span("weekly", "2027-01-04T00:00:00.000Z", "2027-W01", ends, "2027-01-11T00:00:00.000Z");
    assert_span("weekly", "2024-12-30T12:00:00.000Z", "2025-W01", "2024-12-30T00:00:00.000Z",
                "2025-01-06T00:00:00.000Z");
}

static void a_month_is_as_long_as_it_is(void **state) {
    (void)state;
    assert_span("monthly", "2028-02-29T23:59:59.999Z", "202802", "2028-02-01T00:00:00.000Z",
                "2028-03-01T00:00:00.000Z");
    assert_span("monthly", "2026-12-31T23:59:59.999Z", "202612", "2026-12-01T00:00:00.000Z",
                "2027-01-01T00:00:00.000Z");
    assert_span("monthly", "2027-01-01T00:00:00.000Z", "202701", "2027-01-01T00:00:00.000Z",
                "2027-02-01T00:00:00.000Z");
}

static void a_year_would_be_one_row(void **state) {
    (void)state;
    const struct period yearly = {.word = STR("yearly"), .months = 12, .format = "%Y"};
    struct span s = period_span(&yearly, at("2026-11-16T10:00:00Z"));
    assert_string_equal(s.name, "2026");
    assert_true(s.begins_ms == at("2026-01-01T00:00:00Z"));
    assert_true(s.ends_ms == at("2027-01-01T00:00:00Z"));
}

static void what_is_no_period_is_not_found(void **state) {
    (void)state;
    assert_null(period_find(STR("hourly")));
    assert_null(period_find(STR("")));
    assert_null(period_find(STR("Daily")));
    assert_null(period_find(STR("dailyx")));
}

static void days_begin_where_the_zone_says(void **state) {
    (void)state;
    clock_zone_set("Asia/Seoul");
    assert_span("daily", "2026-12-24T15:00:00.000Z", "20261225", "2026-12-24T15:00:00.000Z",
                "2026-12-25T15:00:00.000Z");
    assert_span("weekly", "2027-01-03T14:59:59.999Z", "2026-W53", "2026-12-27T15:00:00.000Z",
                "2027-01-03T15:00:00.000Z");
    assert_span("monthly", "2026-11-30T15:00:00.000Z", "202612", "2026-11-30T15:00:00.000Z",
                "2026-12-31T15:00:00.000Z");
}

/* Havana sets its clocks from 01:00 back to 00:00, Beirut from 00:00 forward to 01:00. */
static void midnight_may_come_twice_or_never(void **state) {
    (void)state;
    clock_zone_set("America/Havana");
    const char *begins = "2026-11-01T04:00:00.000Z";
    const char *ends = "2026-11-02T05:00:00.000Z";
    assert_span("daily", "2026-11-01T04:30:00.000Z", "20261101", begins, ends);
    assert_span("daily", "2026-11-01T05:30:00.000Z", "20261101", begins, ends);
    assert_span("daily", "2026-11-01T03:59:59.999Z", "20261031", "2026-10-31T04:00:00.000Z",
                begins);
    clock_zone_set("Asia/Beirut");
    assert_span("daily", "2026-03-28T22:00:00.000Z", "20260329", "2026-03-28T22:00:00.000Z",
                "2026-03-29T21:00:00.000Z");
    assert_span("daily", "2026-03-28T21:59:59.999Z", "20260328", "2026-03-27T22:00:00.000Z",
                "2026-03-28T22:00:00.000Z");
}

/* Whatever the zone: what ends is followed by what begins then, and names differ. */
static void periods_follow_each_other_without_a_gap(void **state) {
    (void)state;
    const char *zones[] = {"UTC", "Asia/Seoul", "America/Havana", "Australia/Lord_Howe",
                           "Asia/Kathmandu"};
    for (size_t z = 0; z < sizeof zones / sizeof zones[0]; z++) {
        clock_zone_set(zones[z]);
        for (size_t p = 0; p < period_count; p++) {
            struct span s = period_span(&periods[p], at("2026-01-01T00:00:00Z"));
            while (s.ends_ms < at("2029-01-01T00:00:00Z")) {
                struct span last = period_span(&periods[p], s.ends_ms - 1);
                struct span next = period_span(&periods[p], s.ends_ms);
                assert_string_equal(last.name, s.name);
                assert_true(next.begins_ms == s.ends_ms);
                assert_string_not_equal(next.name, s.name);
                s = next;
            }
        }
    }
}

static void what_is_no_zone_is_refused(void **state) {
    (void)state;
    const char *none[] = {"", "Asia/Soul", "/etc/passwd", "../../etc/passwd", ":UTC", "KST-9"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) assert_false(clock_zone_ok(none[i]));
}

static void a_day_is_read_and_written(void **state) {
    (void)state;
    int64_t ms = 0;
    char text[PERIOD_DAY_BYTES];
    assert_true(period_day_parse(STR("2028-02-29"), &ms));
    assert_true(ms == at("2028-02-29T00:00:00Z"));
    period_day_format(ms + 86399999, text);
    assert_string_equal(text, "2028-02-29");
    clock_zone_set("Asia/Seoul");
    assert_true(period_day_parse(STR("2026-12-25"), &ms));
    assert_true(ms == at("2026-12-24T15:00:00Z"));
}

static void what_is_no_day_is_refused(void **state) {
    (void)state;
    int64_t ms = 0;
    const char *none[] = {"",           "2026-02-29",  "2026-13-01", "2026-00-10", "2026-01-00",
                          "2026-01-32", "2026-1-1",    "20260101",   "2026-01-1x", "1969-12-31",
                          "2026/01/01", "2026-01-011", "+026-01-01", " 2026-01-0", "9999-01-01"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (period_day_parse(str_of(none[i]), &ms)) fail_msg("%s is no day", none[i]);
}

/* "9999-12-31" ends when no year of four digits is left. */
static void every_stretch_of_the_last_day_can_be_written(void **state) {
    (void)state;
    const char *zones[] = {"UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"};
    const char *days[] = {"1970-01-01", "9998-12-31"};
    char text[CLOCK_TEXT_BYTES];
    for (size_t i = 0; i < 3 * 2 * period_count; i++) {
        int64_t ms = 0;
        clock_zone_set(zones[i % 3]);
        assert_true(period_day_parse(str_of(days[i / 3 % 2]), &ms));
        struct span s = period_span(&periods[i / 6], ms);
        clock_format(s.begins_ms, text);
        clock_format(s.ends_ms, text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_day_goes_from_midnight_to_midnight, in_utc),
        cmocka_unit_test_setup(a_week_belongs_to_the_year_of_its_thursday, in_utc),
        cmocka_unit_test_setup(a_month_is_as_long_as_it_is, in_utc),
        cmocka_unit_test_setup(a_year_would_be_one_row, in_utc),
        cmocka_unit_test_setup(what_is_no_period_is_not_found, in_utc),
        cmocka_unit_test_setup(days_begin_where_the_zone_says, in_utc),
        cmocka_unit_test_setup(midnight_may_come_twice_or_never, in_utc),
        cmocka_unit_test_setup(periods_follow_each_other_without_a_gap, in_utc),
        cmocka_unit_test_setup(what_is_no_zone_is_refused, in_utc),
        cmocka_unit_test_setup(a_day_is_read_and_written, in_utc),
        cmocka_unit_test_setup(what_is_no_day_is_refused, in_utc),
        cmocka_unit_test_setup(every_stretch_of_the_last_day_can_be_written, in_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
