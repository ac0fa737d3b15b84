/*
 * kafka_lookup: finds undecided requests in Kafka by their ids. Kafka itself has no index, so this
 * keeps one while it is asked: it reads the topic from the committed offsets to the end, and each
 * question first reads on to where the end is then. So a request whose acceptance was answered is
 * found, on any node. The index is dropped when it was not used for a while.
 *
 * It also knows how far the partitions are decided, for positions. Any thread.
 */
#ifndef ADMITONE_FEED_KAFKA_LOOKUP_H
#define ADMITONE_FEED_KAFKA_LOOKUP_H

#include <stdatomic.h>

#include "feed/kafka_client.h"
#include "port/feed.h"

struct kafka_lookup;

/* Starts its thread. `partition_count`: of the topic; 0: not known yet. NULL: `why`. */
struct kafka_lookup *kafka_lookup_new(const struct kafka_options *options, struct kafka_link *link,
                                      const _Atomic int *partition_count, struct buf *why);
/* When nothing is asked any more. */
void kafka_lookup_free(struct kafka_lookup *l);

/* look->task.home is filled in; look->done is called there, later. FEED_UNAVAILABLE: Kafka does not
 * answer. OVERLOADED: there are more undecided requests than the index has room for. */
void kafka_lookup_ask(struct kafka_lookup *l, struct feed_look *look);

/* How many undecided requests are before that offset, as far as is known: up to a second old. */
int64_t kafka_lookup_ahead(struct kafka_lookup *l, int partition, int64_t offset);

/* This node has decided all requests before that offset. */
void kafka_lookup_decided(struct kafka_lookup *l, int partition, int64_t next_offset);

#endif
