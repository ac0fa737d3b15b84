/* The configuration of producers and consumers, and the creation of topics. */
#include "feed/kafka_client.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#define ERROR_BYTES 512
/* Replicas of a topic as the broker's default.replication.factor says. */
#define REPLICAS_DEFAULT (-1)

/* librdkafka logs every failed connection; an outage is logged once, by base/outage. */
static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text) {
    (void)rk;
    (void)level;
    log_debug(msg("librdkafka"), kv("facility", facility), kv("text", text));
}

void kafka_link_init(struct kafka_link *l, const char *brokers) {
    l->brokers = brokers;
    l->reported = NULL;
    atomic_store(&l->is_up, false);
    outage_init(&l->outage, "kafka",
                "asynchronous requests get 503 and none is decided; everything else goes on");
}

void kafka_link_deinit(struct kafka_link *l) {
    outage_deinit(&l->outage);
}

void kafka_link_lost(struct kafka_link *l, const char *why) {
    atomic_store(&l->is_up, false);
    outage_lost(&l->outage, l->brokers, why);
}

void kafka_link_back(struct kafka_link *l) {
    outage_back(&l->outage);
    atomic_store(&l->is_up, true);
}

static void on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque) {
    struct kafka_link *link = opaque;
    bool is_all = err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
    log_debug(msg("librdkafka reports an error"), kv_i64("code", err), kv("reason", reason));
    if (link == NULL) return;
    /* A consumer's report comes when it is polled, perhaps when the outage is over. */
    bool is_serious = is_all || err == RD_KAFKA_RESP_ERR__FATAL;
    if (is_serious && rd_kafka_type(rk) == RD_KAFKA_PRODUCER) atomic_store(&link->is_suspect, true);
    if (link->reported != NULL && !is_all) link->reported(link, reason);
}

static bool conf_set(rd_kafka_conf_t *conf, const struct config_pair *settings, struct buf *why) {
    char text[ERROR_BYTES];
    for (; settings->name != NULL; settings++) {
        if (rd_kafka_conf_set(conf, settings->name, settings->value, text, sizeof text) ==
            RD_KAFKA_CONF_OK)
            continue;
        buf_addf(why, "kafka.%s: %s", settings->name, text);
        return false;
    }
    return true;
}

/* Our own settings first, so that the user's win. NULL: `why`. */
static rd_kafka_conf_t *conf_new(const struct kafka_options *o, const struct config_pair *own,
                                 struct kafka_link *link, struct buf *why) {
    struct config_pair common[] = {
        {"bootstrap.servers", o->brokers},     {"client.id", "admitone"},
        {"reconnect.backoff.max.ms", "1000"},  {"socket.nagle.disable", "true"},
        {"allow.auto.create.topics", "false"}, {NULL, NULL}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, on_log);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_opaque(conf, link);
    if (conf_set(conf, common, why) && conf_set(conf, own, why) && conf_set(conf, o->settings, why))
        return conf;
    rd_kafka_conf_destroy(conf);
    return NULL;
}

static rd_kafka_t *client_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, struct buf *why) {
    char text[ERROR_BYTES];
    if (conf == NULL) return NULL;
    rd_kafka_t *rk = rd_kafka_new(type, conf, text, sizeof text);
    if (rk != NULL) return rk;
    rd_kafka_conf_destroy(conf);
    buf_addf(why, "kafka: %s", text);
    return NULL;
}

rd_kafka_t *kafka_producer_new(const struct kafka_options *o, struct kafka_link *link,
                               void (*delivered)(rd_kafka_t *rk, const rd_kafka_message_t *m,
                                                 void *link),
                               int64_t deadline_ms, struct buf *why) {
    char deadline[24];
    snprintf(deadline, sizeof deadline, "%lld", (long long)deadline_ms);
    struct config_pair own[] = {{"enable.idempotence", "true"},
                                {"acks", "all"},
                                {"partitioner", "murmur2_random"}, /* as Java's default */
                                {"linger.ms", "1"},
                                {"message.timeout.ms", deadline},
                                {NULL, NULL}};
    rd_kafka_conf_t *conf = conf_new(o, own, link, why);
    if (conf != NULL) rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    return client_new(RD_KAFKA_PRODUCER, conf, why);
}

rd_kafka_t *kafka_gapless_producer_new(const struct kafka_options *o,
                                       void (*delivered)(rd_kafka_t *rk,
                                                         const rd_kafka_message_t *m, void *link),
                                       struct buf *why) {
    static const struct config_pair own[] = {
        {"partitioner", "murmur2_random"}, {"linger.ms", "1"}, {NULL, NULL}};
    /* The order depends on these, so the user's are not taken. */
    static const struct config_pair fixed[] = {{"enable.idempotence", "true"},
                                               {"enable.gapless.guarantee", "true"},
                                               {"acks", "all"},
                                               {"message.timeout.ms", "0"},
                                               {NULL, NULL}};
    rd_kafka_conf_t *conf = conf_new(o, own, NULL, why);
    if (conf == NULL) return NULL;
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    if (!conf_set(conf, fixed, why)) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return client_new(RD_KAFKA_PRODUCER, conf, why);
}

rd_kafka_t *kafka_consumer_new(const struct kafka_options *o, struct kafka_link *link,
                               const struct config_pair *own,
                               void (*rebalanced)(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                                                  rd_kafka_topic_partition_list_t *partitions,
                                                  void *link),
                               struct buf *why) {
    rd_kafka_conf_t *conf = conf_new(o, own, link, why);
    if (conf != NULL && rebalanced != NULL) rd_kafka_conf_set_rebalance_cb(conf, rebalanced);
    rd_kafka_t *rk = client_new(RD_KAFKA_CONSUMER, conf, why);
    if (rk != NULL) rd_kafka_poll_set_consumer(rk);
    return rk;
}

void kafka_consumer_free(rd_kafka_t *consumer, const struct kafka_link *link) {
    if (!atomic_load(&link->is_deleted)) rd_kafka_destroy(consumer);
}

const char *kafka_name(const struct kafka_options *o, const char *name, struct buf *out) {
    buf_clear(out);
    buf_addf(out, "%s%s", o->prefix, name);
    return buf_cstr(out);
}

static rd_kafka_NewTopic_t *topic_new(const struct kafka_options *o, const char *name,
                                      int partitions) {
    struct buf full = {0};
    rd_kafka_NewTopic_t *topic =
        rd_kafka_NewTopic_new(kafka_name(o, name, &full), partitions, REPLICAS_DEFAULT, NULL, 0);
    buf_deinit(&full);
    return topic;
}

/* A dead letter waits for an operator for as long as it takes; handled ones are deleted by the
 * command that handles them. */
static rd_kafka_NewTopic_t *dead_topic_new(const struct kafka_options *o) {
    rd_kafka_NewTopic_t *topic = topic_new(o, KAFKA_TOPIC_DEAD, 1);
    rd_kafka_NewTopic_set_config(topic, "retention.ms", "-1");
    rd_kafka_NewTopic_set_config(topic, "retention.bytes", "-1");
    return topic;
}

/* False: `why` has the first topic that could not be created and does not exist. */
static bool topics_exist(rd_kafka_event_t *event, struct buf *why) {
    const rd_kafka_CreateTopics_result_t *result = rd_kafka_event_CreateTopics_result(event);
    size_t count = 0;
    if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR || result == NULL) {
        buf_add(why, str_of(rd_kafka_event_error_string(event)));
        return false;
    }
    const rd_kafka_topic_result_t **topics = rd_kafka_CreateTopics_result_topics(result, &count);
    for (size_t i = 0; i < count; i++) {
        rd_kafka_resp_err_t err = rd_kafka_topic_result_error(topics[i]);
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR || err == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
            continue;
        buf_addf(why, "topic %s: %s", rd_kafka_topic_result_name(topics[i]), rd_kafka_err2str(err));
        return false;
    }
    return true;
}

static bool topic_exists(rd_kafka_t *rk, const struct kafka_options *o, const char *name,
                         int timeout_ms) {
    struct buf full = {0};
    bool exists = kafka_partition_count(rk, kafka_name(o, name, &full), timeout_ms) > 0;
    buf_deinit(&full);
    return exists;
}

bool kafka_create_topics(rd_kafka_t *rk, const struct kafka_options *o, int timeout_ms,
                         struct buf *why) {
    int partitions = (int)o->partitions;
    /* To create a topic that exists may need rights that a node does not have. */
    if (topic_exists(rk, o, KAFKA_TOPIC_REQUESTS, timeout_ms) &&
        topic_exists(rk, o, KAFKA_TOPIC_FACTS, timeout_ms) &&
        topic_exists(rk, o, KAFKA_TOPIC_DEAD, timeout_ms))
        return true;
    rd_kafka_NewTopic_t *topics[] = {topic_new(o, KAFKA_TOPIC_REQUESTS, partitions),
                                     topic_new(o, KAFKA_TOPIC_FACTS, partitions),
                                     dead_topic_new(o)};
    size_t count = sizeof topics / sizeof topics[0];
    char text[ERROR_BYTES];
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, text, sizeof text);
    rd_kafka_AdminOptions_set_operation_timeout(options, timeout_ms, text, sizeof text);
    rd_kafka_CreateTopics(rk, topics, count, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, timeout_ms + 1000);
    bool ok = event != NULL && topics_exist(event, why);
    if (event == NULL) buf_add(why, STR("the broker did not answer in time"));
    if (event != NULL) rd_kafka_event_destroy(event);
    rd_kafka_NewTopic_destroy_array(topics, count);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
    return ok;
}

int kafka_partition_count(rd_kafka_t *rk, const char *topic, int timeout_ms) {
    const struct rd_kafka_metadata *metadata = NULL;
    int count = -1;
    rd_kafka_topic_t *t = rd_kafka_topic_new(rk, topic, NULL);
    if (t == NULL) return -1;
    if (rd_kafka_metadata(rk, 0, t, &metadata, timeout_ms) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        bool is_there =
            metadata->topic_cnt == 1 && metadata->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR;
        bool is_missing = metadata->topic_cnt == 1 &&
                          metadata->topics[0].err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        if (is_there) count = metadata->topics[0].partition_cnt;
        if (is_missing) count = 0;
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(t);
    return count;
}
