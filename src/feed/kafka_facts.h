/*
 * kafka_facts: publishes facts to the Kafka topic reservation-facts (port/fact_sink.h).
 *
 * Order without gaps. librdkafka keeps the order of the messages of a partition, but when one fails
 * for good, it goes on with the next one. So the producer of facts is separate from that of
 * requests: its messages never time out, it stops at the first error (enable.gapless.guarantee),
 * and after a batch that was not delivered as a whole it is replaced by a new one.
 *
 * Threads: one thread produces a batch and waits for the broker's acknowledgements. The result goes
 * to the mailbox of the worker that published it.
 */
#ifndef ADMITONE_FEED_KAFKA_FACTS_H
#define ADMITONE_FEED_KAFKA_FACTS_H

#include "feed/kafka_client.h"
#include "port/fact_sink.h"

/* The options are copied, the texts in them must live as long as the sink. The feed of requests
 * creates the topic. NULL: `why`. The broker need not be reachable. */
struct fact_sink *kafka_facts_new(const struct kafka_options *options, struct buf *why);

#endif
