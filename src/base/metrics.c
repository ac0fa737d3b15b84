/* The blocks of the threads, and the text of a scrape. */
#include "base/metrics.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"

struct block {
    struct block *next;
    _Atomic uint64_t counters[COUNTERS_MAX];
    struct {
        _Atomic uint64_t buckets[HISTOGRAM_BUCKETS];
        _Atomic uint64_t sum;
    } histograms[HISTOGRAMS_MAX];
};

/* Blocks are never freed: threads are few and live long, and their counts outlive them. */
static _Atomic(struct block *) blocks;
static _Thread_local struct block *mine;

static struct block *my_block(void) {
    if (mine == NULL) {
        mine = mem_new(sizeof *mine);
        mine->next = atomic_load(&blocks);
        while (!atomic_compare_exchange_weak(&blocks, &mine->next, mine)) continue;
    }
    return mine;
}

/* One writer per block, so a plain read and write would do; atomic only for the scraper. */
static void metrics_add(_Atomic uint64_t *slot, uint64_t by) {
    atomic_store_explicit(slot, atomic_load_explicit(slot, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

void count(unsigned counter, uint64_t by) {
    assert(counter < COUNTERS_MAX);
    metrics_add(&my_block()->counters[counter], by);
}

void observe(unsigned histogram, uint64_t value) {
    assert(histogram < HISTOGRAMS_MAX);
    int bucket = value == 0 ? 0 : 64 - __builtin_clzll(value);
    if (bucket >= HISTOGRAM_BUCKETS) bucket = HISTOGRAM_BUCKETS - 1;
    metrics_add(&my_block()->histograms[histogram].buckets[bucket], 1);
    metrics_add(&my_block()->histograms[histogram].sum, value);
}

uint64_t counter_total(unsigned counter) {
    assert(counter < COUNTERS_MAX);
    uint64_t total = 0;
    for (struct block *b = atomic_load(&blocks); b != NULL; b = b->next)
        total += atomic_load_explicit(&b->counters[counter], memory_order_relaxed);
    return total;
}

void histogram_add_total(unsigned histogram, struct histogram_total *to) {
    assert(histogram < HISTOGRAMS_MAX);
    for (struct block *b = atomic_load(&blocks); b != NULL; b = b->next) {
        for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
            to->buckets[i] +=
                atomic_load_explicit(&b->histograms[histogram].buckets[i], memory_order_relaxed);
        to->sum += atomic_load_explicit(&b->histograms[histogram].sum, memory_order_relaxed);
    }
}

uint64_t histogram_count(const struct histogram_total *t) {
    uint64_t values = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) values += t->buckets[i];
    return values;
}

double histogram_quantile(const struct histogram_total *t, double share) {
    uint64_t values = histogram_count(t);
    double left = share * (double)values;
    double from = 0;
    if (values == 0) return 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        double to = (double)(UINT64_C(1) << i);
        double here = (double)t->buckets[i];
        if (here > 0 && here >= left) return from + (to - from) * left / here;
        left -= here;
        from = to;
    }
    return from;
}

void metrics_head(struct buf *out, const char *name, const char *type, const char *help) {
    buf_addf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, type);
}

/* `name` with its ending, and its labels between braces if it has any. */
static void add_series(struct buf *out, const char *name, const char *ending, const char *labels) {
    if (labels[0] == '\0')
        buf_addf(out, "%s%s", name, ending);
    else
        buf_addf(out, "%s%s{%s}", name, ending, labels);
}

void metrics_value(struct buf *out, const char *name, const char *labels, int64_t value) {
    add_series(out, name, "", labels);
    buf_addf(out, " %lld\n", (long long)value);
}

void metrics_ratio(struct buf *out, const char *name, const char *labels, double value) {
    add_series(out, name, "", labels);
    buf_addf(out, " %.4f\n", value);
}

void metrics_histogram(struct buf *out, const char *name, const char *labels, double unit,
                       unsigned histogram) {
    struct histogram_total total = {0};
    histogram_add_total(histogram, &total);
    const uint64_t *buckets = total.buckets;
    const char *comma = labels[0] == '\0' ? "" : ",";
    uint64_t so_far = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        so_far += buckets[i];
        /* Bucket i holds values up to 2^i - 1. */
        buf_addf(out, "%s_bucket{%s%sle=\"%.9g\"} %llu\n", name, labels, comma,
                 unit * (double)((UINT64_C(1) << i) - 1), (unsigned long long)so_far);
    }
    so_far += buckets[HISTOGRAM_BUCKETS - 1];
    buf_addf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
             (unsigned long long)so_far);
    add_series(out, name, "_sum", labels);
    buf_addf(out, " %.15g\n", unit * (double)total.sum);
    add_series(out, name, "_count", labels);
    buf_addf(out, " %llu\n", (unsigned long long)so_far);
}

struct row {
    const char *name;
    const char *labels;
    double unit; /* of a histogram: what one of its counts is in the text */
    const char *help;
};

/* Rows of one name stand together, and are described once: by the first. */
static void describe(struct buf *out, const struct row *rows, size_t i, const char *type) {
    if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0)
        metrics_head(out, rows[i].name, type, rows[i].help);
}

void metrics_render(struct buf *out) {
    static const struct row counters[] = {
#define COUNTER_ROW(symbol, name, labels, help) {name, labels, 1, help},
        COUNTER_MAP(COUNTER_ROW)
#undef COUNTER_ROW
    };
    static const struct row histograms[] = {
#define HISTOGRAM_ROW(symbol, name, labels, unit, help) {name, labels, unit, help},
        HISTOGRAM_MAP(HISTOGRAM_ROW)
#undef HISTOGRAM_ROW
    };
    for (unsigned c = 0; c < COUNTERS; c++) {
        describe(out, counters, c, "counter");
        metrics_value(out, counters[c].name, counters[c].labels, (int64_t)counter_total(c));
    }
    for (unsigned h = 0; h < HISTOGRAMS; h++) {
        describe(out, histograms, h, "histogram");
        const struct row *row = &histograms[h];
        metrics_histogram(out, row->name, row->labels, row->unit, h);
    }
}
