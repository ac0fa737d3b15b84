/*
 * measured: code to measure and print that the programs of bench/micro share.
 */
#ifndef ADMITONE_BENCH_MICRO_MEASURED_H
#define ADMITONE_BENCH_MICRO_MEASURED_H

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

static inline size_t resident_bytes(void) {
    unsigned long pages;
    unsigned long resident;
    FILE *f = fopen("/proc/self/statm", "r");
    int got = f == NULL ? 0 : fscanf(f, "%lu %lu", &pages, &resident);
    assert(got == 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* One more field of a JSON object. */
static inline void print_list(const char *name, const double *values, int count_of) {
    printf(", \"%s\": [", name);
    for (int i = 0; i < count_of; i++) printf("%s%.2f", i == 0 ? "" : ", ", values[i]);
    printf("]");
}

#endif
