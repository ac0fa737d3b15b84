/*
 * kafka: the feed in Apache Kafka (port/feed.h). A request is a message of the topic
 * ticket-reservation-events; its key is what it asks for, so requests for the same seat or section
 * are in one partition, in the order of their acceptance. The nodes are one consumer group, which
 * shares the partitions among them. The offset of a partition is committed when all requests before
 * it are decided, so a request that was not decided is delivered again. A message that cannot be
 * decided is copied to the topic of dead letters, with the reason in a header.
 *
 * Undecided requests are only in Kafka; the ledger gets a row when a request is decided.
 *
 * Threads: one serves the producer, one the consumer group, one the lookups (kafka_lookup.h).
 * Messages are taken from a partition's queue, without waiting, on the worker to which the
 * partition belongs.
 */
#ifndef ADMITONE_FEED_KAFKA_H
#define ADMITONE_FEED_KAFKA_H

#include "feed/kafka_client.h"
#include "port/feed.h"

/* The options are copied, the texts in them must live as long as the feed. NULL: `why`. The broker
 * need not be reachable. `consumes`: false for a node that only accepts requests. */
struct feed *kafka_feed_new(const struct kafka_options *options, size_t workers, bool consumes,
                            struct buf *why);

#endif
