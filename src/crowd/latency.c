/* The buckets of a histogram of latencies. */
#include "crowd/latency.h"

#include <assert.h>
#include <string.h>

#define PARTS (1U << LATENCY_PART_BITS)

/* The first 2 * PARTS values have a bucket each. From there on, `shift` is by how many bits a value
 * must be cut to have LATENCY_PART_BITS bits behind its first one. */
static size_t bucket_of(uint64_t us) {
    if (us < PARTS) return (size_t)us;
    unsigned shift = 63 - (unsigned)__builtin_clzll(us) - LATENCY_PART_BITS;
    return (size_t)shift * PARTS + (size_t)(us >> shift);
}

/* The largest value of the bucket. */
static uint64_t bucket_end(size_t bucket) {
    if (bucket < PARTS) return bucket;
    size_t shift = bucket / PARTS - 1;
    uint64_t first = bucket - shift * PARTS;
    return ((first + 1) << shift) - 1;
}

void latency_clear(struct latency *l) {
    memset(l, 0, sizeof *l);
}

void latency_add(struct latency *l, int64_t us) {
    const uint64_t largest = (UINT64_C(1) << LATENCY_VALUE_BITS) - 1;
    uint64_t value = us < 0 ? 0 : (uint64_t)us;
    if (value > largest) value = largest;
    size_t bucket = bucket_of(value);
    assert(bucket < LATENCY_BUCKETS);
    l->buckets[bucket]++;
    l->count++;
    l->sum_us += value;
    if (value > l->max_us) l->max_us = value;
}

void latency_merge(struct latency *l, const struct latency *from) {
    l->count += from->count;
    l->sum_us += from->sum_us;
    if (from->max_us > l->max_us) l->max_us = from->max_us;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) l->buckets[i] += from->buckets[i];
}

uint64_t latency_at(const struct latency *l, double percent) {
    assert(percent > 0 && percent <= 100);
    double wanted = percent / 100 * (double)l->count;
    uint64_t seen = 0;
    for (size_t i = 0; i < LATENCY_BUCKETS && seen < l->count; i++) {
        seen += l->buckets[i];
        /* A sliver less, so that 90 % of 10 values are 9, whatever the rounding of the product. */
        if ((double)seen >= wanted - 1e-9 * (double)l->count && l->buckets[i] > 0)
            return bucket_end(i) < l->max_us ? bucket_end(i) : l->max_us;
    }
    return l->max_us;
}
