/*
 * kafka_sender: the producer of the feed in Kafka. It sends requests and dead letters, creates the
 * topics, and knows whether the broker can be reached.
 *
 * Sending: any thread. A thread of its own serves the delivery reports, and asks the broker for the
 * topic, often while it cannot be reached. A producer that has failed for good is replaced.
 */
#ifndef ADMITONE_FEED_KAFKA_SENDER_H
#define ADMITONE_FEED_KAFKA_SENDER_H

#include <pthread.h>

#include "feed/kafka_client.h"
#include "port/feed.h"

struct kafka_sender {
    struct kafka_options options;
    struct kafka_link link;
    char topic[128];
    char dead_topic[128];
    _Atomic int partition_count; /* of the topic of requests; 0: not known yet */

    /* Private. */
    pthread_rwlock_t lock; /* for writing: to replace the producer */
    rd_kafka_t *producer;
    pthread_t thread;
    int64_t awaited_ms; /* of the thread, steady: the topics were created, and the brokers may not
                         * know them yet; 0: they do, or did */
    _Atomic bool is_stopping;
};

/* The options are copied, the texts in them must live as long as it. False: `why`, and there is
 * nothing to free. */
bool kafka_sender_init(struct kafka_sender *s, const struct kafka_options *options,
                       struct buf *why);
void kafka_sender_start(struct kafka_sender *s);
/* Waits for what is under way, for a while. */
void kafka_sender_stop(struct kafka_sender *s);
void kafka_sender_deinit(struct kafka_sender *s);

/* On OK sent->task is posted to its home when the broker has acknowledged the message, or it has
 * failed; until then `sent` stays where it is. */
enum err kafka_send_request(struct kafka_sender *s, str key, str value, struct feed_sent *sent);
/* A copy of the message as it is, unless it is huge; headers say why, and where it was. */
enum err kafka_send_dead_letter(struct kafka_sender *s, const rd_kafka_message_t *raw,
                                const char *reason, struct feed_sent *sent);

#endif
