/*
 * fact_sink: the contract of a topic to which facts are published, so that other systems can follow
 * the sale. An adapter promises:
 *
 *  - A batch is OK when all its messages are durable in the topic. After any other result some of
 *    them may be there, too; the caller publishes the batch again.
 *  - Messages with the same key are in the topic in the order of the batch, without gaps: when one
 *    is not written, no later one of the batch is. So if a fact is there, the facts before it are.
 *
 * One batch at a time. The calls are made on one worker's thread.
 */
#ifndef ADMITONE_PORT_FACT_SINK_H
#define ADMITONE_PORT_FACT_SINK_H

#include "base/err.h"
#include "base/str.h"
#include "base/task.h"

struct fact_message {
    str key;
    str value;
};

/* It and its messages belong to the caller, who leaves them untouched until `done`. */
struct fact_batch {
    const struct fact_message *messages;
    size_t count;
    /* Later, on the caller's worker. */
    void (*done)(struct fact_batch *b);
    enum err result; /* out: OK or FEED_UNAVAILABLE */

    /* Private to the adapter. */
    struct task task;
};

struct fact_sink {
    const struct fact_sink_ops *ops;
    str topic; /* its name */
};

struct fact_sink_ops {
    void (*publish)(struct fact_sink *s, struct fact_batch *b);
    void (*stop)(struct fact_sink *s);
    void (*close)(struct fact_sink *s);
};

/* While the topic cannot be reached, the batch waits. */
static inline void fact_sink_publish(struct fact_sink *s, struct fact_batch *b) {
    s->ops->publish(s, b);
}

/* The batch that is under way ends soon, and none follows. */
static inline void fact_sink_stop(struct fact_sink *s) {
    s->ops->stop(s);
}

/* When no batch is under way. From any thread. */
static inline void fact_sink_close(struct fact_sink *s) {
    s->ops->close(s);
}

#endif
