/* The feed's contract on a real Kafka broker; and without one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "feed/kafka.h"
#include "feed_suite.h"
#include "ledger_raw.h"
#include "services.h"

#define PARTITIONS 8

/* Each test has topics and a group of its own. */
static char prefix[32];

static void begin(void) {
    static int number;
    services_start(SERVICE_KAFKA);
    snprintf(prefix, sizeof prefix, "test-%d.", ++number);
}

static struct ledger *open_sqlite(struct harness *h, int64_t queue_max) {
    return raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .queue_max = queue_max});
}

static struct feed *open_at(const char *brokers, size_t workers) {
    static const struct config_pair settings[] = {{"session.timeout.ms", "6000"}, {NULL, NULL}};
    struct kafka_options options = {
        .brokers = brokers, .settings = settings, .partitions = PARTITIONS, .prefix = prefix};
    struct buf why = {0};
    struct feed *f = kafka_feed_new(&options, workers, true, &why);
    if (f == NULL) fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
    return f;
}

static struct feed *open_feed(struct ledger *l, size_t workers) {
    (void)l;
    return open_at(services_start(SERVICE_KAFKA)->kafka_url + strlen("kafka://"), workers);
}

/* The partition follows from the key, which is the names. */
static void name_section(int partition, struct section_names *out) {
    assert_in_range(partition, 0, PARTITIONS - 1);
    for (int i = 0;; i++) {
        char key[128];
        snprintf(out->section, sizeof out->section, "S%d", i);
        int len = snprintf(key, sizeof key, "%s/%s/%s", out->type, out->id, out->section);
        if (rd_kafka_msg_partitioner_murmur2(NULL, key, (size_t)len, PARTITIONS, NULL, NULL) ==
            partition)
            return;
    }
}

/* ---- without a broker ---- */

struct answer {
    struct feed_publish publish;
    struct feed_look look;
    enum err looked;
    bool is_published;
    bool is_looked;
};

static void on_published(struct feed_publish *p) {
    CONTAINER_OF(p, struct answer, publish)->is_published = true;
}

static void on_looked(struct feed_look *l, enum err result) {
    struct answer *a = CONTAINER_OF(l, struct answer, look);
    a->looked = result;
    a->is_looked = true;
}

static bool is_answered(void *arg) {
    const struct answer *a = arg;
    return a->is_published && a->is_looked;
}

static void without_a_broker_nothing_is_accepted_and_nothing_said_to_be_missing(void **state) {
    (void)state;
    struct harness h;
    struct request request = {.user = "a", .quantity = 1, .finished_ms = CLOCK_NONE_MS};
    struct section_names names = {"CONCERT", "1", "A"};
    struct request *found = NULL;
    int64_t ahead = 0;
    harness_init(&h);
    struct feed *f = open_at("127.0.0.1:1", 2);
    struct answer a = {
        .publish = {.request = &request, .names = &names, .done = on_published},
        .look = {
            .ids = &request.id, .count = 1, .found = &found, .ahead = &ahead, .done = on_looked}};
    feed_publish(f, &a.publish);
    feed_look(f, 0, &a.look);
    harness_wait(&h, is_answered, &a);
    assert_int_equal(a.publish.result, ERR_FEED_UNAVAILABLE);
    assert_int_equal(a.looked, ERR_FEED_UNAVAILABLE);
    assert_null(found);
    struct feed_stats stats;
    feed_stats(f, &stats);
    assert_false(stats.is_available);
    feed_close(f);
    harness_deinit(&h);
}

int main(void) {
    static const struct feed_adapter on_kafka = {.open_ledger = open_sqlite,
                                                 .open = open_feed,
                                                 .begin = begin,
                                                 .name = name_section,
                                                 .sets_aside = true};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_broker_nothing_is_accepted_and_nothing_said_to_be_missing),
    };
    return feed_suite_run(&on_kafka) +
           cmocka_run_group_tests_name("feed without a broker", tests, NULL, NULL);
}
