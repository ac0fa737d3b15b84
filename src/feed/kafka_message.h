/*
 * kafka_message: an asynchronous request as a message of a topic: its key, and its value as JSON in
 * a documented schema (docs/operations.md), which other programs may produce too. No I/O; any
 * thread.
 *
 * Our own messages also have the keys of the event, the section and the place; in one of another
 * program they are absent, and the names count.
 */
#ifndef ADMITONE_FEED_KAFKA_MESSAGE_H
#define ADMITONE_FEED_KAFKA_MESSAGE_H

#include "base/buf.h"
#include "core/event.h"
#include "core/request.h"

/* Of the JSON. Another number when a consumer of this one would misunderstand it. */
#define KAFKA_MESSAGE_VERSION 1
/* A longer message is set aside unread. */
#define KAFKA_MESSAGE_BYTES_MAX 65536

/* Requests for the same thing have the same key, and so come into the same partition: one seat,
 * "CONCERT/1/A/17", or a section, "CONCERT/1/A". */
void kafka_message_key(const struct request *r, const struct section_names *names, struct buf *out);
void kafka_message_write(const struct request *r, const struct section_names *names,
                         struct buf *out);

/* The request of a message; mem_free it. NULL: the message is not valid, and `why` says what is
 * wrong. `at_ms` is the message's time. */
struct request *kafka_message_read(str value, int64_t at_ms, struct section_names *names,
                                   struct buf *why);

#endif
