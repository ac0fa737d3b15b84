/* The feed's contract on a real Kafka broker; and what only this feed has: dead letters, two nodes
 * that share the partitions, and a broker that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

static struct feed *open_feed(struct ledger *l, size_t workers) {
    static const struct config_pair settings[] = {{"session.timeout.ms", "6000"}, {NULL, NULL}};
    const struct services *s = services_start(SERVICE_KAFKA);
    struct kafka_options options = {.brokers = s->kafka_url + strlen("kafka://"),
                                    .settings = settings,
                                    .partitions = PARTITIONS,
                                    .prefix = prefix};
    struct buf why = {0};
    (void)l;
    struct feed *f = kafka_feed_new(&options, workers, true, &why);
    if (f == NULL) fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
    return f;
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

int main(void) {
    static const struct feed_adapter on_kafka = {
        .open_ledger = open_sqlite, .open = open_feed, .begin = begin, .name = name_section};
    return feed_suite_run(&on_kafka);
}
