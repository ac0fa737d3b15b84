/*
 * kafka_client: what all uses of librdkafka in this program have in common: the brokers and the
 * settings, the names of the topics, their creation, and the log of an outage.
 *
 * Any thread. Its strings must live as long as it.
 */
#ifndef ADMITONE_FEED_KAFKA_CLIENT_H
#define ADMITONE_FEED_KAFKA_CLIENT_H

#include <librdkafka/rdkafka.h>

#include "base/config.h"
#include "base/outage.h"

#define KAFKA_TOPIC_REQUESTS "ticket-reservation-events"
#define KAFKA_TOPIC_DEAD "ticket-reservation-events.dlq"
#define KAFKA_TOPIC_FACTS "reservation-facts"
#define KAFKA_GROUP "ticket-group"
#define KAFKA_PARTITIONS_MAX 256

struct kafka_options {
    const char *brokers;                /* "host:9092,host:9092" */
    const struct config_pair *settings; /* of librdkafka, as they are */
    int64_t partitions;                 /* of topics that are created */
    /* Before the names of topics and group: tests share a broker. "" otherwise. */
    const char *prefix;
};

/* Whether the brokers can be reached. It is the opaque pointer of the callbacks of librdkafka. */
struct kafka_link {
    const char *brokers;
    _Atomic bool is_up;
    _Atomic bool is_suspect; /* something has failed: ask the broker whether it is up */
    _Atomic bool is_deleted; /* the topic of requests was, while it was used */
    struct outage outage;
    /* NULL, or called with each failure of a connection, instead of the log of outages: by a
     * command, which reports it itself. */
    void (*reported)(struct kafka_link *l, const char *reason);
};

void kafka_link_init(struct kafka_link *l, const char *brokers);
void kafka_link_deinit(struct kafka_link *l);
void kafka_link_lost(struct kafka_link *l, const char *why);
void kafka_link_back(struct kafka_link *l);

/* A producer that writes each message once and in order, with acks=all. NULL: `why`. */
rd_kafka_t *kafka_producer_new(const struct kafka_options *o, struct kafka_link *link,
                               void (*delivered)(rd_kafka_t *rk, const rd_kafka_message_t *m,
                                                 void *link),
                               int64_t deadline_ms, struct buf *why);

/* A producer that stops at the first message that fails, for good: a later message of the same
 * partition is never written without the earlier ones. Messages do not time out. NULL: `why`. */
rd_kafka_t *kafka_gapless_producer_new(const struct kafka_options *o,
                                       void (*delivered)(rd_kafka_t *rk,
                                                         const rd_kafka_message_t *m, void *link),
                                       struct buf *why);

/* A consumer with these settings of ours. NULL: `why`. */
rd_kafka_t *kafka_consumer_new(const struct kafka_options *o, struct kafka_link *link,
                               const struct config_pair *own,
                               void (*rebalanced)(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                                                  rd_kafka_topic_partition_list_t *partitions,
                                                  void *link),
                               struct buf *why);

/* Closed or not. Where the topic was deleted, rd_kafka_destroy of librdkafka 2.0 would wait for its
 * partitions for ever: then the consumer is left as it is, because the process ends. */
void kafka_consumer_free(rd_kafka_t *consumer, const struct kafka_link *link);

/* The name with the prefix. */
const char *kafka_name(const struct kafka_options *o, const char *name, struct buf *out);

/* Creates the topics that do not exist: waits for the broker for up to `timeout_ms`. False: `why`.
 */
bool kafka_create_topics(rd_kafka_t *rk, const struct kafka_options *o, int timeout_ms,
                         struct buf *why);

/* How many partitions the topic has; 0: there is no such topic; -1: the broker does not answer
 * within the time, or does not say. */
int kafka_partition_count(rd_kafka_t *rk, const char *topic, int timeout_ms);

#endif
