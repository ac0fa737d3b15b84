/* Reading of the clocks, time zones, and conversion between times and text. */
#include "base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ZONES "/usr/share/zoneinfo/"

int64_t clock_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_steady_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct timespec clock_steady_in(int64_t ms) {
    int64_t ns = clock_steady_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* Days since 1970-01-01 in the Gregorian calendar, and back. A year is counted from March here,
 * so that the leap day is its last; eras are 400 years, of 146,097 days each. Done by hand because
 * gmtime_r takes a lock of the whole process, and times stand in most answers. */
static int64_t days_of_date(int year, int month, int day) {
    int64_t y = month > 2 ? year : year - 1;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

static void date_of_days(int64_t days, int *year, int *month, int *day) {
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month_from_march = (5 * day_of_year + 2) / 153;
    *day = (int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
    *month = (int)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
    *year = (int)(year_of_era + era * 400 + (*month <= 2));
}

bool clock_writable(int64_t ms) {
    return ms == CLOCK_NONE_MS ||
           (ms >= days_of_date(0, 1, 1) * 86400000 && ms < days_of_date(10000, 1, 1) * 86400000);
}

bool clock_plausible(int64_t ms) {
    return ms >= days_of_date(2000, 1, 1) * 86400000 && ms < days_of_date(2200, 1, 1) * 86400000;
}

/* 32 bits and a count of digits that is known where it is inlined: no division is left. */
static inline char *put_digits(char *out, uint32_t value, int digits, char behind) {
    for (int i = digits - 1; i >= 0; i--, value /= 10) out[i] = (char)('0' + value % 10);
    out[digits] = behind;
    return out + digits + 1;
}

void clock_format(int64_t ms, char out[CLOCK_TEXT_BYTES]) {
    int64_t days = ms / 86400000;
    int64_t left = ms % 86400000;
    if (left < 0) {
        left += 86400000;
        days--;
    }
    int year;
    int month;
    int day;
    date_of_days(days, &year, &month, &day);
    assert(year >= 0 && year <= 9999);
    uint32_t ms_of_day = (uint32_t)left;
    char *at = put_digits(out, (uint32_t)year, 4, '-');
    at = put_digits(at, (uint32_t)month, 2, '-');
    at = put_digits(at, (uint32_t)day, 2, 'T');
    at = put_digits(at, ms_of_day / 3600000, 2, ':');
    at = put_digits(at, ms_of_day / 60000 % 60, 2, ':');
    at = put_digits(at, ms_of_day / 1000 % 60, 2, '.');
    at = put_digits(at, ms_of_day % 1000, 3, 'Z');
    *at = '\0';
    assert(at == out + CLOCK_TEXT_BYTES - 1);
}

/* Takes exactly `digits` digits, then `behind` unless that is 0. */
static bool take_number(str *s, size_t digits, char behind, int *out) {
    size_t need = digits + (behind != 0);
    if (s->len < need) return false;
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        if (s->at[i] < '0' || s->at[i] > '9') return false;
        *out = *out * 10 + (s->at[i] - '0');
    }
    if (behind != 0 && s->at[digits] != behind) return false;
    *s = str_skip(*s, need);
    return true;
}

static int days_in_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

bool clock_parse(str text, int64_t *ms) {
    int year;
    int month;
    int day;
    int hour;
    int minute;
    int second;
    if (!take_number(&text, 4, '-', &year) || !take_number(&text, 2, '-', &month) ||
        !take_number(&text, 2, 'T', &day) || !take_number(&text, 2, ':', &hour) ||
        !take_number(&text, 2, ':', &minute) || !take_number(&text, 2, 0, &second))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) || hour > 23 ||
        minute > 59 || second > 59)
        return false;

    int64_t fraction_ms = 0;
    if (text.len > 0 && text.at[0] == '.') {
        size_t digits = 1;
        for (int64_t unit = 100;
             digits < text.len && text.at[digits] >= '0' && text.at[digits] <= '9';
             digits++, unit /= 10)
            fraction_ms += unit * (text.at[digits] - '0');
        if (digits == 1 || digits > 10) return false;
        text = str_skip(text, digits);
    }

    int64_t offset_s = 0;
    if (text.len == 6 && (text.at[0] == '+' || text.at[0] == '-')) {
        int sign = text.at[0] == '-' ? -1 : 1;
        int offset_hour;
        int offset_minute;
        text = str_skip(text, 1);
        if (!take_number(&text, 2, ':', &offset_hour) ||
            !take_number(&text, 2, 0, &offset_minute) || offset_hour > 23 || offset_minute > 59)
            return false;
        offset_s = sign * (offset_hour * 3600 + offset_minute * 60);
    } else if (!str_eq(text, STR("Z"))) {
        return false;
    }

    int64_t seconds = days_of_date(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    int64_t time_ms = (seconds - offset_s) * 1000 + fraction_ms;
    /* An offset may lead out of the years that can be written again. */
    if (!clock_writable(time_ms)) return false;
    *ms = time_ms;
    return true;
}

bool clock_zone_ok(const char *zone) {
    char path[256];
    bool is_name =
        zone[0] != '\0' && zone[0] != '/' && zone[0] != ':' && strstr(zone, "..") == NULL;
    int length = snprintf(path, sizeof path, ZONES "%s", zone);
    if (!is_name || length >= (int)sizeof path) return false;
    /* UTC needs no database. Of any other, libc would make UTC if it did not find it. */
    return strcmp(zone, "UTC") == 0 || access(path, R_OK) == 0;
}

void clock_zone_set(const char *zone) {
    assert(clock_zone_ok(zone));
    setenv("TZ", zone, 1);
    tzset();
}
