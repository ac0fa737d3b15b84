/* The producer of the feed, its replacement, and the question for the topics. */
#include "feed/kafka_sender.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "run/mailbox.h"

/* A request that is not acknowledged by the broker within this time gets 503. */
#define PRODUCE_MS 5000
#define POLL_MS 100
/* How often an unreachable broker is asked for the topic. */
#define PROBE_MS 1000
/* How often a reachable one is asked: the topic may have got more partitions. */
#define REFRESH_MS 30000
/* After the creation of a topic a broker may say for so long that there is none, or no leader. */
#define CREATED_MS 10000
/* Of a dead letter's value; more is cut off, because brokers and producers limit messages. */
#define DEAD_BYTES_MAX 524288
/* At the stop, for dead letters and answers that are still under way. */
#define FLUSH_MS 2000

/* ---- sending ---- */

/* Called by librdkafka on the sender's thread. */
static void sender_on_delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *link) {
    struct feed_sent *sent = m->_private;
    (void)rk;
    sent->partition = m->partition;
    sent->offset = m->offset;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR)
        sent->result = ERR_OK;
    else if (rd_kafka_message_status(m) == RD_KAFKA_MSG_STATUS_NOT_PERSISTED)
        sent->result = ERR_FEED_UNAVAILABLE;
    else
        sent->result = ERR_FEED_UNKNOWN;
    struct kafka_link *l = link;
    if (m->err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT || m->err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
        m->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        atomic_store(&l->is_suspect, true);
    mailbox_post(sent->task.home, &sent->task);
}

static enum err sender_result(rd_kafka_resp_err_t err) {
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) return ERR_OK;
    return err == RD_KAFKA_RESP_ERR__QUEUE_FULL ? ERR_OVERLOADED : ERR_FEED_UNAVAILABLE;
}

enum err kafka_send_request(struct kafka_sender *s, str key, str value, struct feed_sent *sent) {
    if (!atomic_load(&s->link.is_up)) return ERR_FEED_UNAVAILABLE;
    pthread_rwlock_rdlock(&s->lock);
    rd_kafka_resp_err_t err = rd_kafka_producev(
        s->producer, RD_KAFKA_V_TOPIC(s->topic), RD_KAFKA_V_KEY(key.at, key.len),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)value.at, value.len),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(sent), RD_KAFKA_V_END);
    pthread_rwlock_unlock(&s->lock);
    return sender_result(err);
}

enum err kafka_send_dead_letter(struct kafka_sender *s, const rd_kafka_message_t *raw,
                                const char *reason, struct feed_sent *sent) {
    char from[160];
    int from_len = snprintf(from, sizeof from, "%s/%d/%lld", s->topic, (int)raw->partition,
                            (long long)raw->offset);
    size_t len = raw->len < DEAD_BYTES_MAX ? raw->len : DEAD_BYTES_MAX;
    pthread_rwlock_rdlock(&s->lock);
    rd_kafka_resp_err_t err = rd_kafka_producev(
        s->producer, RD_KAFKA_V_TOPIC(s->dead_topic), RD_KAFKA_V_PARTITION(0),
        RD_KAFKA_V_KEY(raw->key, raw->key_len), RD_KAFKA_V_VALUE(raw->payload, len),
        RD_KAFKA_V_HEADER("reason", reason, (ssize_t)strlen(reason)),
        RD_KAFKA_V_HEADER("from", from, (ssize_t)from_len),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(sent), RD_KAFKA_V_END);
    pthread_rwlock_unlock(&s->lock);
    return sender_result(err);
}

/* ---- the producer and the topics ---- */

/* After a fatal error a producer refuses everything, so that a new one is needed. What the old one
 * has is reported as failed before it is destroyed. */
static void sender_replace(struct kafka_sender *s) {
    struct buf why = {0};
    rd_kafka_t *old = s->producer;
    rd_kafka_t *next =
        kafka_producer_new(&s->options, &s->link, sender_on_delivered, PRODUCE_MS, &why);
    buf_deinit(&why);
    if (next == NULL) return; /* at the next probe */
    pthread_rwlock_wrlock(&s->lock);
    s->producer = next;
    pthread_rwlock_unlock(&s->lock);
    rd_kafka_purge(old, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    while (rd_kafka_outq_len(old) > 0) rd_kafka_poll(old, POLL_MS);
    rd_kafka_destroy(old);
}

/* Asks the broker for the topics, and creates them if they are missing. */
static void sender_probe(struct kafka_sender *s) {
    struct buf why = {0};
    char fatal[256];
    atomic_store(&s->link.is_suspect, false);
    if (rd_kafka_fatal_error(s->producer, fatal, sizeof fatal) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        log_warn(msg("a producer of kafka has failed for good, and is replaced"),
                 kv("error", fatal));
        sender_replace(s);
    }
    bool is_known = atomic_load(&s->partition_count) > 0;
    bool ok = is_known || kafka_create_topics(s->producer, &s->options, PROBE_MS, &why);
    int partitions = ok ? kafka_partition_count(s->producer, s->topic, PROBE_MS) : -1;
    if (ok && partitions <= 0 && !is_known) {
        int64_t now_ms = clock_steady_ms();
        if (s->awaited_ms == 0) s->awaited_ms = now_ms;
        if (now_ms - s->awaited_ms < CREATED_MS) { /* no outage yet */
            buf_deinit(&why);
            return;
        }
    }
    if (!ok || partitions > 0) s->awaited_ms = 0;
    if (partitions == 0) {
        buf_addf(&why, "there is no topic %s", s->topic);
        atomic_store(&s->partition_count, 0); /* created by the next probe */
        if (is_known) atomic_store(&s->link.is_deleted, true);
    }
    if (ok && partitions < 0) buf_add(&why, STR("the broker does not answer"));
    if (partitions > KAFKA_PARTITIONS_MAX)
        buf_addf(&why, "topic %s has more than %d partitions", s->topic, KAFKA_PARTITIONS_MAX);
    if (why.len > 0) {
        kafka_link_lost(&s->link, buf_cstr(&why));
    } else {
        atomic_store(&s->partition_count, partitions);
        kafka_link_back(&s->link);
    }
    buf_deinit(&why);
}

/* Serves delivery reports. While the broker cannot be reached it is asked for the topic; the first
 * answer ends the outage. */
static void *sender_run(void *arg) {
    struct kafka_sender *s = arg;
    int64_t probed_ms = 0;
    while (!atomic_load(&s->is_stopping)) {
        rd_kafka_poll(s->producer, POLL_MS);
        int64_t now_ms = clock_steady_ms();
        bool is_well = atomic_load(&s->link.is_up) && !atomic_load(&s->link.is_suspect);
        if (now_ms - probed_ms < (is_well ? REFRESH_MS : PROBE_MS)) continue;
        probed_ms = now_ms;
        sender_probe(s);
    }
    /* Dead letters and answers to requests may still be under way. */
    rd_kafka_flush(s->producer, FLUSH_MS);
    return NULL;
}

/* ---- start and stop ---- */

bool kafka_sender_init(struct kafka_sender *s, const struct kafka_options *options,
                       struct buf *why) {
    s->options = *options;
    snprintf(s->topic, sizeof s->topic, "%s%s", options->prefix, KAFKA_TOPIC_REQUESTS);
    snprintf(s->dead_topic, sizeof s->dead_topic, "%s%s", options->prefix, KAFKA_TOPIC_DEAD);
    kafka_link_init(&s->link, options->brokers);
    s->producer = kafka_producer_new(&s->options, &s->link, sender_on_delivered, PRODUCE_MS, why);
    if (s->producer == NULL) {
        kafka_link_deinit(&s->link);
        return false;
    }
    pthread_rwlock_init(&s->lock, NULL);
    return true;
}

void kafka_sender_start(struct kafka_sender *s) {
    thread_start(&s->thread, "kafka producer", THREAD_ALONE, sender_run, s);
}

void kafka_sender_stop(struct kafka_sender *s) {
    atomic_store(&s->is_stopping, true);
    pthread_join(s->thread, NULL);
}

void kafka_sender_deinit(struct kafka_sender *s) {
    rd_kafka_destroy(s->producer);
    pthread_rwlock_destroy(&s->lock);
    kafka_link_deinit(&s->link);
}
