/*
 * period: the days, weeks and months by which rankings count. A day begins at midnight, local time
 * (clock_zone_set), a week on Monday, and bears the name of ISO 8601: the last days of December may
 * lie in week 1 of the next year, and the first of January in week 53 of the last. To add a period,
 * add a row to `periods`.
 */
#ifndef ADMITONE_CORE_PERIOD_H
#define ADMITONE_CORE_PERIOD_H

#include "base/str.h"

#define PERIOD_NAME_BYTES 16

struct period {
    str word;           /* in paths, keys and the docs */
    int months;         /* its length in months, counted from January; or else */
    int days;           /* in days: 1, or 7 from Monday */
    const char *format; /* of the name of one of them, as strftime has it */
    int64_t kept_s;     /* how long its board is kept after its end */
};

extern const struct period periods[];
extern const size_t period_count;

/* NULL: there is none of that name. */
const struct period *period_find(str word);

/* One day, week or month: from begins_ms up to, but not including, ends_ms. */
struct span {
    int64_t begins_ms;
    int64_t ends_ms;
    char name[PERIOD_NAME_BYTES]; /* "20261225", "2026-W52", "202612" */
};

/* The span that contains the time, which is in the years 1970 to 9999. */
struct span period_span(const struct period *p, int64_t at_ms);

/* "2026-12-25": when that day begins. False: it is no day, or none of the years 1970 to 9998. */
bool period_day_parse(str text, int64_t *begins_ms);

/* The day that contains the time, as "2026-12-25" and a terminator. */
#define PERIOD_DAY_BYTES 11
void period_day_format(int64_t at_ms, char out[PERIOD_DAY_BYTES]);

#endif
