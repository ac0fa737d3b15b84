#include "base/metrics.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Everything below reads the text that a scrape gets, as a scraper would. */

struct scrape {
    struct buf text;
};

static void scrape_now(struct scrape *s) {
    s->text = (struct buf){0};
    metrics_render(&s->text);
}

static void scrape_free(struct scrape *s) {
    buf_deinit(&s->text);
}

/* The value of the series `name` or `name{labels}`, which stands in the text exactly once. */
static double value_of(const struct scrape *s, const char *series) {
    str rest = buf_str(&s->text);
    str line;
    int found = 0;
    double value = 0;
    while (str_split(&rest, '\n', &line)) {
        size_t len = strlen(series);
        if (!str_starts(line, str_of(series)) || line.len <= len || line.at[len] != ' ') continue;
        found++;
        value = strtod(line.at + len + 1, NULL);
    }
    if (found != 1) fail_msg("%s stands there %d times", series, found);
    return value;
}

enum { THREADS = 8, ROUNDS = 20000 };

static _Atomic bool stop;

static void *count_a_lot(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        count(COUNT_HTTP_2XX, 1);
        count(COUNT_HTTP_4XX, 3);
        observe(HISTOGRAM_LEDGER_BATCH_RECORDS, (uint64_t)(i % 5));
    }
    return NULL;
}

static void *scrape_a_lot(void *arg) {
    (void)arg;
    uint64_t last = 0;
    while (!atomic_load(&stop)) {
        struct scrape s;
        scrape_now(&s);
        scrape_free(&s);
        uint64_t now = counter_total(COUNT_HTTP_2XX);
        if (now < last) return "a counter went back";
        last = now;
    }
    return NULL;
}

static void counts_of_several_threads_add_up_exactly_also_after_they_ended(void **state) {
    (void)state;
    uint64_t before = counter_total(COUNT_HTTP_2XX);
    uint64_t before_4xx = counter_total(COUNT_HTTP_4XX);
    pthread_t threads[THREADS];
    pthread_t scraper;
    assert_int_equal(pthread_create(&scraper, NULL, scrape_a_lot, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_a_lot, NULL), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    void *complaint;
    pthread_join(scraper, &complaint);
    assert_null(complaint);

    assert_int_equal(counter_total(COUNT_HTTP_2XX) - before, THREADS * ROUNDS);
    assert_int_equal(counter_total(COUNT_HTTP_4XX) - before_4xx, THREADS * ROUNDS * 3);
    assert_int_equal(counter_total(COUNT_HTTP_3XX), 0);
    struct scrape s;
    scrape_now(&s);
    assert_true(value_of(&s, "admitone_http_responses_total{class=\"2xx\"}") == THREADS * ROUNDS);
    assert_true(value_of(&s, "admitone_ledger_batch_records_count") == THREADS * ROUNDS);
    assert_true(value_of(&s, "admitone_ledger_batch_records_sum") == THREADS * ROUNDS * 2);
    assert_true(value_of(&s, "admitone_ledger_batch_records_bucket{le=\"0\"}") ==
                THREADS * ROUNDS / 5);
    assert_true(value_of(&s, "admitone_ledger_batch_records_bucket{le=\"3\"}") ==
                THREADS * ROUNDS / 5 * 4);
    scrape_free(&s);
}

static void each_counter_has_a_place_of_its_own(void **state) {
    (void)state;
    uint64_t before[COUNTERS];
    for (size_t c = 0; c < COUNTERS; c++) before[c] = counter_total((enum counter)c);
    for (size_t c = 0; c < COUNTERS; c++) count((enum counter)c, c + 1);
    for (size_t c = 0; c < COUNTERS; c++)
        assert_int_equal(counter_total((enum counter)c) - before[c], c + 1);
}

/* Every value lies in the first bucket whose bound is not below it. */
static void an_observation_is_counted_from_the_bucket_that_bounds_it(void **state) {
    (void)state;
    static const uint64_t observed[] = {0,
                                        1,
                                        2,
                                        3,
                                        4,
                                        7,
                                        8,
                                        1000,
                                        1023,
                                        1024,
                                        (UINT64_C(1) << 24) - 1,
                                        UINT64_C(1) << 24,
                                        UINT64_C(1) << 25,
                                        UINT64_C(1) << 40};
    struct scrape before;
    struct scrape after;
    for (size_t i = 0; i < sizeof observed / sizeof observed[0]; i++) {
        scrape_now(&before);
        observe(HISTOGRAM_LEDGER_BATCH_RECORDS, observed[i]);
        scrape_now(&after);
        for (int bit = 0; bit <= 24; bit++) {
            uint64_t bound = (UINT64_C(1) << bit) - 1;
            char series[96];
            snprintf(series, sizeof series, "admitone_ledger_batch_records_bucket{le=\"%llu\"}",
                     (unsigned long long)bound);
            double more = value_of(&after, series) - value_of(&before, series);
            assert_true(more == (observed[i] <= bound ? 1 : 0));
        }
        const char *infinite = "admitone_ledger_batch_records_bucket{le=\"+Inf\"}";
        assert_true(value_of(&after, infinite) - value_of(&before, infinite) == 1);
        scrape_free(&before);
        scrape_free(&after);
    }
}

static void bounds_and_sums_of_durations_are_in_seconds(void **state) {
    (void)state;
    struct scrape before;
    struct scrape after;
    scrape_now(&before);
    observe(HISTOGRAM_LEDGER_COMMIT_SECONDS, 1500000);
    scrape_now(&after);
    const char *sum = "admitone_ledger_commit_seconds_sum";
    double more = value_of(&after, sum) - value_of(&before, sum);
    assert_true(more > 1.4999 && more < 1.5001);
    const char *below = "admitone_ledger_commit_seconds_bucket{le=\"1.048575\"}";
    const char *above = "admitone_ledger_commit_seconds_bucket{le=\"2.097151\"}";
    assert_true(value_of(&after, below) - value_of(&before, below) == 0);
    assert_true(value_of(&after, above) - value_of(&before, above) == 1);
    scrape_free(&before);
    scrape_free(&after);
}

/* On a server that runs for months, a sum must keep growing. */
static void a_large_sum_keeps_its_last_digits(void **state) {
    (void)state;
    struct scrape before;
    struct scrape after;
    observe(HISTOGRAM_LEDGER_BATCH_RECORDS, UINT64_C(1000000000000));
    scrape_now(&before);
    observe(HISTOGRAM_LEDGER_BATCH_RECORDS, 7);
    scrape_now(&after);
    const char *sum = "admitone_ledger_batch_records_sum";
    assert_true(value_of(&after, sum) - value_of(&before, sum) == 7);
    scrape_free(&before);
    scrape_free(&after);
}

/* The base name of a sample of a histogram: without _bucket, _sum or _count. */
static str family_of(str name, bool histogram) {
    static const str endings[] = {STR_INIT("_bucket"), STR_INIT("_sum"), STR_INIT("_count")};
    for (size_t i = 0; histogram && i < 3; i++) {
        if (name.len <= endings[i].len) continue;
        size_t cut = name.len - endings[i].len;
        if (str_eq(str_skip(name, cut), endings[i])) return (str){name.at, cut};
    }
    return name;
}

static bool is_name(str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.at[i];
        if (!((c >= 'a' && c <= 'z') || c == '_' || (i > 0 && c >= '0' && c <= '9'))) return false;
    }
    return name.len > 0;
}

static bool labels_are_well_formed(str labels) {
    str pair;
    while (str_split(&labels, ',', &pair)) {
        str name;
        if (!str_split(&pair, '=', &name) || !is_name(name) || pair.len < 2) return false;
        if (pair.at[0] != '"' || pair.at[pair.len - 1] != '"') return false;
        str inside = {pair.at + 1, pair.len - 2};
        if (memchr(inside.at, '"', inside.len) || memchr(inside.at, '\\', inside.len)) return false;
    }
    return true;
}

/* The state of the family whose lines are being read. */
struct family {
    str name;
    bool histogram;
    size_t samples;
    /* For a histogram: the label set whose lines are being read, up to its count. */
    bool in_set;
    str set;
    double last_bound;
    double last_bucket;
};

/* "# HELP name text", in `line`; # TYPE is the very next line of `rest`. */
static struct family read_head(str line, str *rest) {
    struct family f = {0};
    str help = str_skip(line, 7);
    assert_true(str_split(&help, ' ', &f.name));
    assert_true(is_name(f.name) && str_starts(f.name, STR("admitone_")));
    assert_true(help.len > 1 && str_is_text(help));
    assert_true(str_split(rest, '\n', &line));
    char type[128];
    snprintf(type, sizeof type, "# TYPE %.*s counter", (int)f.name.len, f.name.at);
    f.histogram = !str_eq(line, str_of(type));
    snprintf(type, sizeof type, "# TYPE %.*s histogram", (int)f.name.len, f.name.at);
    assert_true(!f.histogram || str_eq(line, str_of(type)));
    return f;
}

/* `labels` of a bucket are those of its set, then le. */
static void read_bucket(struct family *f, str labels, double number) {
    size_t le = labels.len;
    while (le > 0 && !str_starts(str_skip(labels, le), STR("le=\""))) le--;
    assert_true(str_starts(str_skip(labels, le), STR("le=\"")));
    assert_true(le == 0 || labels.at[le - 1] == ',');
    str set = {labels.at, le == 0 ? 0 : le - 1};
    if (!f->in_set) {
        f->in_set = true;
        f->set = set;
        f->last_bound = -1;
        f->last_bucket = 0;
    }
    assert_true(str_eq(set, f->set));
    double bound = strtod(labels.at + le + 4, NULL); /* "+Inf" too */
    assert_true(bound > f->last_bound);
    assert_true(number >= f->last_bucket);
    f->last_bound = bound;
    f->last_bucket = number;
}

static void read_sample_of_histogram(struct family *f, str name, str labels, double number) {
    if (str_eq(str_skip(name, f->name.len), STR("_bucket"))) {
        read_bucket(f, labels, number);
        return;
    }
    /* The sum and the count follow the buckets of their label set. */
    assert_true(f->in_set && str_eq(labels, f->set));
    assert_true(f->last_bound > 1e300);
    if (!str_eq(str_skip(name, f->name.len), STR("_count"))) return;
    assert_true(number == f->last_bucket);
    f->in_set = false;
}

static void read_sample(struct family *f, str line) {
    f->samples++;
    str value = line;
    str series;
    assert_true(str_split(&value, ' ', &series));
    char *end;
    double number = strtod(value.at, &end);
    assert_ptr_equal(end, value.at + value.len);
    str labels = series;
    str name;
    assert_true(str_split(&labels, '{', &name));
    assert_true(str_eq(family_of(name, f->histogram), f->name));
    if (labels.at != NULL) {
        assert_true(labels.len > 1 && labels.at[labels.len - 1] == '}');
        labels.len--;
        assert_true(labels_are_well_formed(labels));
    }
    str total = STR("_total");
    if (f->histogram)
        read_sample_of_histogram(f, name, labels, number);
    else
        assert_true(str_eq(str_skip(name, name.len - total.len), total));
}

/* The lines of one family stand together: HELP, TYPE, then its samples. */
static void the_text_is_valid_prometheus_with_each_name_described_once(void **state) {
    (void)state;
    observe(HISTOGRAM_REQUEST_SECONDS, 3);
    observe(HISTOGRAM_REQUEST_SECONDS, 30000);
    struct scrape s;
    scrape_now(&s);
    assert_int_equal(s.text.bytes[s.text.len - 1], '\n');
    struct buf described = {0}; /* "\nname\nname…\n" */
    buf_add_char(&described, '\n');
    struct family f = {.samples = 1};
    str rest = {s.text.bytes, s.text.len - 1};
    str line;
    while (str_split(&rest, '\n', &line)) {
        if (!str_starts(line, STR("# HELP "))) {
            read_sample(&f, line);
            continue;
        }
        assert_true(f.samples > 0 && !f.in_set);
        f = read_head(line, &rest);
        char wanted[128];
        snprintf(wanted, sizeof wanted, "\n%.*s\n", (int)f.name.len, f.name.at);
        if (strstr(buf_cstr(&described), wanted) != NULL) fail_msg("twice: %s", wanted);
        buf_add(&described, str_skip(str_of(wanted), 1));
    }
    assert_true(f.samples > 0 && !f.in_set);
    /* All rows of the tables are shown. */
    static const char *const names[] = {
#define COUNTER_NAME(symbol, name, labels, help) name,
        COUNTER_MAP(COUNTER_NAME)
#undef COUNTER_NAME
#define HISTOGRAM_NAME(symbol, name, labels, unit, help) name,
            HISTOGRAM_MAP(HISTOGRAM_NAME)
#undef HISTOGRAM_NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, "\n%s\n", names[i]);
        assert_non_null(strstr(buf_cstr(&described), wanted));
    }
    buf_deinit(&described);
    scrape_free(&s);
}

/* How much `name` + `ending`, with these labels, grew between the two. */
static double growth_of(const struct scrape *before, const struct scrape *after, const char *name,
                        const char *ending, const char *labels) {
    char series[128];
    const char *open = labels[0] == '\0' ? "" : "{";
    const char *close = labels[0] == '\0' ? "" : "}";
    snprintf(series, sizeof series, "%s%s%s%s%s", name, ending, open, labels, close);
    return value_of(after, series) - value_of(before, series);
}

static void every_row_of_the_tables_is_a_series_of_its_own(void **state) {
    (void)state;
    static const struct {
        const char *name;
        const char *labels;
        double unit;
    } counters[] =
        {
#define COUNTER_SERIES(symbol, name, labels, help) {name, labels, 1},
            COUNTER_MAP(COUNTER_SERIES)
#undef COUNTER_SERIES
        },
      histograms[] = {
#define HISTOGRAM_SERIES(symbol, name, labels, unit, help) {name, labels, unit},
          HISTOGRAM_MAP(HISTOGRAM_SERIES)
#undef HISTOGRAM_SERIES
      };
    struct scrape before;
    struct scrape after;
    scrape_now(&before);
    for (size_t c = 0; c < COUNTERS; c++) count((enum counter)c, c + 1);
    for (size_t h = 0; h < HISTOGRAMS; h++) observe((enum histogram)h, (h + 1) * 1000000);
    scrape_now(&after);
    for (size_t c = 0; c < COUNTERS; c++)
        assert_true(growth_of(&before, &after, counters[c].name, "", counters[c].labels) ==
                    (double)(c + 1));
    for (size_t h = 0; h < HISTOGRAMS; h++) {
        const char *name = histograms[h].name;
        const char *labels = histograms[h].labels;
        assert_true(growth_of(&before, &after, name, "_count", labels) == 1);
        double sum = growth_of(&before, &after, name, "_sum", labels) / histograms[h].unit;
        assert_int_equal((long)(sum / 1000000 + 0.5), h + 1);
    }
    scrape_free(&before);
    scrape_free(&after);
}

static void a_gauge_is_written_with_and_without_labels(void **state) {
    (void)state;
    struct buf b = {0};
    metrics_head(&b, "admitone_waiting", "gauge", "People who wait");
    metrics_value(&b, "admitone_waiting", "", -1);
    metrics_value(&b, "admitone_waiting", "event=\"C/1\"", INT64_MAX);
    assert_string_equal(buf_cstr(&b), "# HELP admitone_waiting People who wait.\n"
                                      "# TYPE admitone_waiting gauge\n"
                                      "admitone_waiting -1\n"
                                      "admitone_waiting{event=\"C/1\"} 9223372036854775807\n");
    buf_clear(&b);
    metrics_ratio(&b, "admitone_use", "", 0);
    metrics_ratio(&b, "admitone_use", "event=\"C/1\"", 2.0 / 3);
    assert_string_equal(buf_cstr(&b), "admitone_use 0.0000\n"
                                      "admitone_use{event=\"C/1\"} 0.6667\n");
    buf_deinit(&b);
}

static void a_quantile_lies_in_the_bucket_that_has_it(void **state) {
    (void)state;
    struct histogram_total before = {0};
    struct histogram_total t = {0};
    histogram_add_total(HISTOGRAM_LEDGER_BATCH_RECORDS, &before);
    assert_true(histogram_quantile(&t, 0.99) == 0);
    for (int i = 0; i < 98; i++) observe(HISTOGRAM_LEDGER_BATCH_RECORDS, 5);
    for (int i = 0; i < 2; i++) observe(HISTOGRAM_LEDGER_BATCH_RECORDS, 1000);
    histogram_add_total(HISTOGRAM_LEDGER_BATCH_RECORDS, &t);
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) t.buckets[i] -= before.buckets[i];
    assert_int_equal(histogram_count(&t), 100);
    assert_int_equal(t.sum - before.sum, 98 * 5 + 2 * 1000);
    double half = histogram_quantile(&t, 0.5);
    double most = histogram_quantile(&t, 0.99);
    assert_true(half > 4 && half < 8);
    assert_true(most > 512 && most < 1024);
    assert_true(histogram_quantile(&t, 0) <= half && half <= most);
    assert_true(histogram_quantile(&t, 1) == 1024);
}

static void a_quantile_of_values_without_a_bound_is_the_last_bound(void **state) {
    (void)state;
    struct histogram_total t = {0};
    t.buckets[HISTOGRAM_BUCKETS - 1] = 3;
    assert_true(histogram_quantile(&t, 0.5) == (double)(UINT64_C(1) << (HISTOGRAM_BUCKETS - 2)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_several_threads_add_up_exactly_also_after_they_ended),
        cmocka_unit_test(each_counter_has_a_place_of_its_own),
        cmocka_unit_test(an_observation_is_counted_from_the_bucket_that_bounds_it),
        cmocka_unit_test(bounds_and_sums_of_durations_are_in_seconds),
        cmocka_unit_test(a_large_sum_keeps_its_last_digits),
        cmocka_unit_test(the_text_is_valid_prometheus_with_each_name_described_once),
        cmocka_unit_test(every_row_of_the_tables_is_a_series_of_its_own),
        cmocka_unit_test(a_gauge_is_written_with_and_without_labels),
        cmocka_unit_test(a_quantile_lies_in_the_bucket_that_has_it),
        cmocka_unit_test(a_quantile_of_values_without_a_bound_is_the_last_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
