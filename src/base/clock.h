/*
 * clock: the two clocks of the machine, and times as text. Wall time is for what is stored or
 * shown; steady time is for measuring and deadlines.
 */
#ifndef ADMITONE_BASE_CLOCK_H
#define ADMITONE_BASE_CLOCK_H

#include <time.h>

#include "base/str.h"

/* No time: JSON null. */
#define CLOCK_NONE_MS INT64_MIN

/* "2026-12-25T10:00:00.000Z" and its terminator. */
#define CLOCK_TEXT_BYTES 25

/* Milliseconds since 1970-01-01T00:00:00Z. */
int64_t clock_wall_ms(void);
/* Nanoseconds of a clock that never jumps. */
int64_t clock_steady_ns(void);
static inline int64_t clock_steady_ms(void) {
    return clock_steady_ns() / 1000000;
}

/* The time in `ms` milliseconds, for pthread_cond_timedwait on CLOCK_MONOTONIC. */
struct timespec clock_steady_in(int64_t ms);

/* Whether clock_format can write it: in the years 0000 to 9999, or no time at all. */
bool clock_writable(int64_t ms);
/* Whether a machine's clock can show it while this program is in use: from 2000 to 2199. */
bool clock_plausible(int64_t ms);
/* RFC 3339 in UTC with milliseconds; `ms` lies in the years 0000 to 9999. */
void clock_format(int64_t ms, char out[CLOCK_TEXT_BYTES]);

/* RFC 3339 with any offset and up to nine decimals; false on anything else. */
bool clock_parse(str text, int64_t *ms);

/* Whether there is such a zone in the time zone database: "Asia/Seoul", "UTC". */
bool clock_zone_ok(const char *zone);
/* Sets the zone of the process's local time, which only decides when days begin. The zone exists.
 * Before other threads start. */
void clock_zone_set(const char *zone);

#endif
