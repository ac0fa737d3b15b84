/*
 * kafka_admin: the feed in Kafka as an operator sees it (port/feed_admin.h): the offsets of the
 * topic of requests and of the group of the nodes, and the topic of dead letters.
 *
 * Kafka cannot delete a single message. A dead letter is marked as handled by another message in
 * its topic, with the header `handled` and the letter's offset; the messages before the first open
 * letter are deleted, with their marks. A mark is behind its letter, so it is never deleted before
 * it.
 */
#ifndef ADMITONE_FEED_KAFKA_ADMIN_H
#define ADMITONE_FEED_KAFKA_ADMIN_H

#include "feed/kafka_client.h"
#include "port/feed_admin.h"

/* The options are copied, the texts in them must live as long as it. NULL: `why`. The brokers are
 * not asked yet. */
struct feed_admin *kafka_admin_new(const struct kafka_options *options, struct buf *why);

#endif
