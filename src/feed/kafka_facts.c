/* A thread takes a batch, produces its messages, and waits until all are acknowledged. */
#include "feed/kafka_facts.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/thread.h"
#include "run/mailbox.h"

#define POLL_MS 50
/* How long the broker is asked for the topic before a batch. */
#define TOPIC_MS 1000
/* At the stop, for a batch that is under way. */
#define STOP_MS 1000
#define REASON_BYTES 160

struct kafka_facts {
    struct fact_sink port;
    struct kafka_options options;
    char topic[128];
    pthread_t thread;
    _Atomic int64_t stop_ms; /* steady: when a batch is given up; 0: it is not stopping */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct fact_batch *next; /* under the lock */
    bool is_closing;         /* under the lock */

    /* Used by the thread only. */
    struct outage outage;
    rd_kafka_t *producer; /* NULL: a new one is made for the next batch */
    bool has_topic;       /* the producer has seen that the topic exists */
    size_t undelivered;   /* messages of the batch */
    bool has_failed;      /* a message of the batch has */
    char reason[REASON_BYTES];
};

/* Called by librdkafka in rd_kafka_poll. */
static void kafka_facts_on_delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *link) {
    struct kafka_facts *k = m->_private;
    (void)rk;
    (void)link;
    assert(k->undelivered > 0);
    k->undelivered--;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR || k->has_failed) return;
    k->has_failed = true;
    snprintf(k->reason, sizeof k->reason, "%s", rd_kafka_err2str(m->err));
}

static void kafka_facts_drop_producer(struct kafka_facts *k) {
    if (k->producer != NULL) rd_kafka_destroy(k->producer);
    k->producer = NULL;
    k->has_topic = false;
}

/* Messages for a topic that does not exist would fail, some of them perhaps just before it is
 * created: so the first batch of a producer waits for the topic. */
static bool kafka_facts_be_ready(struct kafka_facts *k) {
    struct buf why = {0};
    if (k->producer == NULL)
        k->producer = kafka_gapless_producer_new(&k->options, kafka_facts_on_delivered, &why);
    if (k->producer != NULL && !k->has_topic)
        k->has_topic = kafka_partition_count(k->producer, k->topic, TOPIC_MS) > 0;
    if (!k->has_topic)
        snprintf(k->reason, sizeof k->reason, "%s",
                 k->producer == NULL ? buf_cstr(&why) : "the broker does not know the topic");
    buf_deinit(&why);
    return k->has_topic;
}

static bool kafka_facts_gives_up(struct kafka_facts *k) {
    int64_t stop_ms = atomic_load(&k->stop_ms);
    return stop_ms != 0 && clock_steady_ms() >= stop_ms;
}

/* False: the message was refused. When the queue of librdkafka is full, this waits. */
static bool kafka_facts_produce(struct kafka_facts *k, const struct fact_message *m) {
    rd_kafka_resp_err_t err;
    do {
        err = rd_kafka_producev(
            k->producer, RD_KAFKA_V_TOPIC(k->topic), RD_KAFKA_V_KEY(m->key.at, m->key.len),
            RD_KAFKA_V_VALUE((void *)(uintptr_t)m->value.at, m->value.len),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(k), RD_KAFKA_V_END);
        if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL) rd_kafka_poll(k->producer, POLL_MS);
    } while (err == RD_KAFKA_RESP_ERR__QUEUE_FULL && !k->has_failed && !kafka_facts_gives_up(k));
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        k->undelivered++;
    else if (!k->has_failed)
        snprintf(k->reason, sizeof k->reason, "%s", rd_kafka_err2str(err));
    return err == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Whether all messages are in the topic. If not, the producer is dropped with those that it still
 * has, so that none of them comes after the same batch is published again. */
static bool kafka_facts_send(struct kafka_facts *k, const struct fact_batch *b) {
    k->undelivered = 0;
    k->has_failed = false;
    k->reason[0] = '\0';
    if (!kafka_facts_be_ready(k)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < b->count; i++) ok = kafka_facts_produce(k, &b->messages[i]);
    while (ok && k->undelivered > 0 && !k->has_failed && !kafka_facts_gives_up(k))
        rd_kafka_poll(k->producer, POLL_MS);
    ok = ok && !k->has_failed && k->undelivered == 0;
    if (!ok) kafka_facts_drop_producer(k);
    return ok;
}

/* NULL: the sink is closed. */
static struct fact_batch *kafka_facts_take(struct kafka_facts *k) {
    pthread_mutex_lock(&k->lock);
    while (k->next == NULL && !k->is_closing) pthread_cond_wait(&k->wake, &k->lock);
    struct fact_batch *b = k->next;
    k->next = NULL;
    pthread_mutex_unlock(&k->lock);
    return b;
}

static void *kafka_facts_run(void *arg) {
    struct kafka_facts *k = arg;
    struct fact_batch *b;
    while ((b = kafka_facts_take(k)) != NULL) {
        bool ok = kafka_facts_send(k, b);
        if (ok)
            outage_back(&k->outage);
        else if (k->reason[0] != '\0') /* empty: it was given up because of the stop */
            outage_lost(&k->outage, k->options.brokers, k->reason);
        b->result = ok ? ERR_OK : ERR_FEED_UNAVAILABLE;
        mailbox_post(b->task.home, &b->task);
    }
    kafka_facts_drop_producer(k);
    return NULL;
}

static struct kafka_facts *kafka_facts_of(struct fact_sink *s) {
    return CONTAINER_OF(s, struct kafka_facts, port);
}

static void kafka_facts_on_sent(struct task *task) {
    struct fact_batch *b = CONTAINER_OF(task, struct fact_batch, task);
    b->done(b);
}

static void kafka_facts_publish(struct fact_sink *s, struct fact_batch *b) {
    struct kafka_facts *k = kafka_facts_of(s);
    b->task = (struct task){.run = kafka_facts_on_sent, .home = mailbox_mine()};
    pthread_mutex_lock(&k->lock);
    assert(k->next == NULL && !k->is_closing);
    k->next = b;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

static void kafka_facts_stop(struct fact_sink *s) {
    atomic_store(&kafka_facts_of(s)->stop_ms, clock_steady_ms() + STOP_MS);
}

static void kafka_facts_close(struct fact_sink *s) {
    struct kafka_facts *k = kafka_facts_of(s);
    pthread_mutex_lock(&k->lock);
    k->is_closing = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    outage_deinit(&k->outage);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
    mem_free(k);
}

struct fact_sink *kafka_facts_new(const struct kafka_options *options, struct buf *why) {
    static const struct fact_sink_ops ops = {
        .publish = kafka_facts_publish, .stop = kafka_facts_stop, .close = kafka_facts_close};
    rd_kafka_t *producer = kafka_gapless_producer_new(options, kafka_facts_on_delivered, why);
    if (producer == NULL) return NULL;
    struct kafka_facts *k = mem_new(sizeof *k);
    k->producer = producer;
    k->options = *options;
    snprintf(k->topic, sizeof k->topic, "%s%s", options->prefix, KAFKA_TOPIC_FACTS);
    k->port = (struct fact_sink){.ops = &ops, .topic = str_of(k->topic)};
    outage_init(&k->outage, "kafka topic of facts",
                "facts are published when it is back; the sale goes on");
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->wake, NULL);
    thread_start(&k->thread, "kafka facts", THREAD_ALONE, kafka_facts_run, k);
    return &k->port;
}
