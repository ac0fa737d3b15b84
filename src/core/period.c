/* In which day, week or month a time lies. */
#include "core/period.h"

#include <assert.h>
#include <time.h>

const struct period periods[] = {
    {.word = STR_INIT("daily"), .days = 1, .format = "%Y%m%d", .kept_s = 86400},
    {.word = STR_INIT("weekly"), .days = 7, .format = "%G-W%V", .kept_s = 604800},
    {.word = STR_INIT("monthly"), .months = 1, .format = "%Y%m", .kept_s = 2592000},
};
const size_t period_count = sizeof periods / sizeof periods[0];

/* Of days that can be named: so the end of each stretch that one lies in can be written too. */
#define YEAR_MIN 1970
#define YEAR_MAX 9998

const struct period *period_find(str word) {
    for (size_t i = 0; i < period_count; i++)
        if (str_eq(periods[i].word, word)) return &periods[i];
    return NULL;
}

static struct tm local(int64_t at_ms) {
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm day;
    localtime_r(&seconds, &day);
    return day;
}

/* Clocks are set forward or back by multiples of this. */
#define STEP_MS 900000

/* When that day begins, whose numbers may be out of range. Where clocks are set forward or back
 * over midnight, there is none, or there are two: it begins with the first moment that is called by
 * its date. At noon a day is itself everywhere. */
static int64_t day_begins_ms(struct tm day) {
    day.tm_hour = 12;
    day.tm_min = day.tm_sec = 0;
    day.tm_isdst = -1;
    mktime(&day);
    struct tm midnight = day;
    midnight.tm_hour = 0;
    midnight.tm_isdst = -1;
    int64_t ms = (int64_t)mktime(&midnight) * 1000;
    while (local(ms).tm_mday != day.tm_mday) ms += STEP_MS;
    while (local(ms - STEP_MS).tm_mday == day.tm_mday) ms -= STEP_MS;
    return ms;
}

struct span period_span(const struct period *p, int64_t at_ms) {
    struct span s;
    struct tm day = local(at_ms);
    if (p->months > 0) {
        day.tm_mon -= day.tm_mon % p->months;
        day.tm_mday = 1;
    } else if (p->days == 7) {
        day.tm_mday -= (day.tm_wday + 6) % 7;
    }
    s.begins_ms = day_begins_ms(day);
    day.tm_mon += p->months;
    day.tm_mday += p->days;
    s.ends_ms = day_begins_ms(day);
    assert(s.begins_ms <= at_ms && at_ms < s.ends_ms);
    day = local(s.begins_ms);
    strftime(s.name, sizeof s.name, p->format, &day);
    return s;
}

bool period_day_parse(str text, int64_t *begins_ms) {
    int numbers[3] = {0};
    if (text.len != PERIOD_DAY_BYTES - 1) return false;
    for (size_t i = 0, part = 0; i < text.len; i++) {
        char c = text.at[i];
        if (i == 4 || i == 7) {
            if (c != '-') return false;
            part++;
        } else if (c < '0' || c > '9') {
            return false;
        } else {
            numbers[part] = numbers[part] * 10 + (c - '0');
        }
    }
    if (numbers[0] < YEAR_MIN || numbers[0] > YEAR_MAX) return false;
    struct tm day = {.tm_year = numbers[0] - 1900, .tm_mon = numbers[1] - 1, .tm_mday = numbers[2]};
    *begins_ms = day_begins_ms(day);
    char again[PERIOD_DAY_BYTES];
    period_day_format(*begins_ms, again);
    return str_eq(str_of(again), text); /* the 30th of February is another day */
}

void period_day_format(int64_t at_ms, char out[PERIOD_DAY_BYTES]) {
    struct tm day = local(at_ms);
    strftime(out, PERIOD_DAY_BYTES, "%Y-%m-%d", &day);
}
