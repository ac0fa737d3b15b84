/*
 * latency: a histogram of latencies with a bounded relative error, in the manner of HdrHistogram.
 * Values are microseconds. Those below 128 are counted exactly; above, a value is counted in a
 * bucket that is at most 1/64 of it wide. A pure struct of fixed size: zeroed is empty, and two can
 * be added. One thread at a time.
 */
#ifndef ADMITONE_CROWD_LATENCY_H
#define ADMITONE_CROWD_LATENCY_H

#include <stdint.h>

/* Each power of two is divided into 64 buckets. */
#define LATENCY_PART_BITS 6
/* Values of 2^36 µs (19 hours) and more are counted as the largest one that is below. */
#define LATENCY_VALUE_BITS 36
#define LATENCY_BUCKETS ((LATENCY_VALUE_BITS - LATENCY_PART_BITS + 1) << LATENCY_PART_BITS)

struct latency {
    uint64_t count;
    uint64_t sum_us;
    uint64_t max_us; /* exact */
    uint64_t buckets[LATENCY_BUCKETS];
};

void latency_clear(struct latency *l);
/* A negative value counts as 0. */
void latency_add(struct latency *l, int64_t us);
/* Adds all values of `from`. */
void latency_merge(struct latency *l, const struct latency *from);
/* The value that `percent` of all values do not exceed, rounded up to the end of its bucket, but
 * not above the largest value; 0 when it is empty. 0 < percent <= 100. */
uint64_t latency_at(const struct latency *l, double percent);

#endif
