/*
 * The feed in Kafka. In the order in which it happens: a request is sent (kafka_sender.h), and its
 * delivery report comes back; the group assigns partitions; a worker takes messages from the queues
 * of its partitions and delivers them; acknowledged ones let the offset move on; those that cannot
 * be decided go to the topic of dead letters.
 */
#include "feed/kafka.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "feed/kafka_lookup.h"
#include "feed/kafka_message.h"
#include "feed/kafka_sender.h"
#include "run/mailbox.h"

#define POLL_MS 100
#define SEEK_MS 1000
/* A message that is older becomes a dead letter. The ledger keeps the key that makes a repetition
 * harmless for a day, so a message that is delivered again after that could be decided twice. */
#define MESSAGE_MS_MAX (INT64_C(24) * 3600 * 1000)
/* How long a partition that another node gets waits for the requests in work here. */
#define REVOKE_MS 3000
/* At the stop, for the group, also for the first assignment of a node that has just joined. */
#define LEAVE_MS 3000
#define REASON_BYTES 160

struct kafka_feed;
struct kafka_partition;

/* A message that was taken from Kafka and is not acknowledged yet. */
struct kafka_delivery {
    struct feed_message message;
    struct section_names names;
    struct kafka_partition *partition;
    uint64_t assignment; /* of the partition, when it was taken */
    size_t slot;         /* in the partition's window */
    rd_kafka_message_t *raw;
    struct feed_sent sent;     /* to the dead letters */
    char reason[REASON_BYTES]; /* why it goes there */
    struct list link;          /* in the worker's list of those to send again */
};

struct kafka_partition {
    struct kafka_feed *feed;
    int number;
    struct task wake; /* for its worker */
    bool is_reading;  /* on its worker */

    /* librdkafka wakes the worker while it has the queue locked, and the worker takes messages from
     * the queue with `lock` held. So a wake-up needs another lock. */
    pthread_mutex_t wake_lock;
    struct mailbox *home; /* of its worker; NULL: none has attached, or it is draining */
    bool is_woken;        /* the task is on its way */

    pthread_mutex_t lock;
    /* Under the lock. */
    rd_kafka_queue_t *queue; /* NULL: it is not assigned to this node */
    bool is_closing;         /* it is being revoked: nothing more is taken */
    uint64_t assignment;     /* grows with each one */
    struct {
        int64_t offset;
        bool is_done;
    } window[FEED_WINDOW]; /* a ring, in the order of the offsets */
    uint64_t first;        /* of the ring, counted from the start; modulo FEED_WINDOW */
    uint64_t end;
    int64_t next_offset; /* all before it are acknowledged; -1: none was taken */
    size_t in_work;      /* delivered and not acknowledged, also of earlier assignments */
};

struct kafka_worker {
    struct kafka_feed *feed;
    struct feed_consumer *consumer;
    struct list unsent; /* struct kafka_delivery: dead letters that could not be sent */
    bool is_draining;
};

struct kafka_feed {
    struct feed port;
    struct kafka_sender sender;
    const char *topic; /* of the sender */
    char group[128];
    rd_kafka_t *consumer; /* NULL: this node only accepts */
    struct kafka_lookup *lookup;
    pthread_t consumer_thread;
    /* Of the consumer's thread. */
    bool has_joined;   /* it had an assignment, perhaps an empty one */
    bool is_left_open; /* it could not be closed */

    _Atomic bool is_stopping;
    _Atomic int64_t in_flight; /* delivered and not acknowledged */
    _Atomic int64_t under_way; /* tasks and dead letters */
    size_t worker_count;
    struct kafka_worker *workers;
    struct kafka_partition partitions[KAFKA_PARTITIONS_MAX];
};

static void kafka_read(struct kafka_partition *p);
static void kafka_on_published(struct task *task);
static void kafka_on_dead_sent(struct task *task);
static void kafka_done(struct kafka_delivery *d);

static struct kafka_feed *kafka_of(struct feed *f) {
    return CONTAINER_OF(f, struct kafka_feed, port);
}

static struct kafka_worker *kafka_worker_of(struct kafka_partition *p) {
    return &p->feed->workers[(size_t)p->number % p->feed->worker_count];
}

/* ---- producing ---- */

static void kafka_publish(struct feed *f, struct feed_publish *p) {
    struct buf key = {0};
    struct buf value = {0};
    p->id = p->request->id;
    p->sent = (struct feed_sent){.task = {.run = kafka_on_published, .home = mailbox_mine()}};
    kafka_message_key(p->request, p->names, &key);
    kafka_message_write(p->request, p->names, &value);
    p->result = kafka_send_request(&kafka_of(f)->sender, buf_str(&key), buf_str(&value), &p->sent);
    buf_deinit(&key);
    buf_deinit(&value);
    if (p->result != ERR_OK) p->done(p);
}

static void kafka_on_published(struct task *task) {
    struct feed_publish *p = CONTAINER_OF(task, struct feed_publish, sent.task);
    struct kafka_feed *k = kafka_of(p->feed);
    p->result = p->sent.result;
    p->is_new = true; /* a message that is there already changes nothing when it is decided */
    p->status = REQUEST_PENDING;
    if (p->result == ERR_OK) {
        count(COUNT_REQUESTS_ACCEPTED, 1);
        p->ahead = kafka_lookup_ahead(k->lookup, p->sent.partition, p->sent.offset);
    }
    p->done(p);
}

/* ---- the assignment of partitions ---- */

/* Called on a thread of librdkafka when messages have come into an empty queue. */
static void kafka_on_messages(rd_kafka_t *rk, void *partition) {
    struct kafka_partition *p = partition;
    (void)rk;
    pthread_mutex_lock(&p->wake_lock);
    if (p->home != NULL && !p->is_woken) {
        p->is_woken = true;
        atomic_fetch_add(&p->feed->under_way, 1);
        mailbox_post(p->home, &p->wake);
    }
    pthread_mutex_unlock(&p->wake_lock);
}

/* NULL: there are more partitions than this program works on. kafka_probe says so. */
static struct kafka_partition *kafka_partition_of(struct kafka_feed *k,
                                                  const rd_kafka_topic_partition_t *of) {
    bool is_known = of->partition >= 0 && of->partition < KAFKA_PARTITIONS_MAX;
    return is_known ? &k->partitions[of->partition] : NULL;
}

static void kafka_assign(struct kafka_feed *k, const rd_kafka_topic_partition_list_t *list) {
    for (int i = 0; i < list->cnt; i++) {
        struct kafka_partition *p = kafka_partition_of(k, &list->elems[i]);
        if (p == NULL) continue;
        rd_kafka_queue_t *queue = rd_kafka_queue_get_partition(k->consumer, k->topic, p->number);
        if (queue == NULL) continue;
        pthread_mutex_lock(&p->lock);
        if (p->queue != NULL) rd_kafka_queue_destroy(p->queue); /* it was assigned twice */
        p->queue = queue;
        p->is_closing = false;
        p->assignment++;
        p->first = p->end = 0;
        p->next_offset = -1;
        pthread_mutex_unlock(&p->lock);
        /* Its messages stay in its own queue, until the worker takes them. */
        rd_kafka_queue_forward(queue, NULL);
        rd_kafka_queue_cb_event_enable(queue, kafka_on_messages, p);
    }
}

static bool kafka_has_work(struct kafka_feed *k, const rd_kafka_topic_partition_list_t *list) {
    bool has_work = false;
    for (int i = 0; i < list->cnt; i++) {
        struct kafka_partition *p = kafka_partition_of(k, &list->elems[i]);
        if (p == NULL) continue;
        pthread_mutex_lock(&p->lock);
        p->is_closing = true;
        if (p->queue != NULL && p->in_work > 0) has_work = true;
        pthread_mutex_unlock(&p->lock);
    }
    return has_work;
}

/* Waits for the requests in work, for a while: those that are not decided by then are delivered to
 * another node again. */
static void kafka_unassign(struct kafka_feed *k, const rd_kafka_topic_partition_list_t *list,
                           bool is_lost) {
    int64_t until_ms = clock_steady_ms() + REVOKE_MS;
    while (kafka_has_work(k, list) && !is_lost && clock_steady_ms() < until_ms) usleep(2000);
    rd_kafka_topic_partition_list_t *done = rd_kafka_topic_partition_list_new(list->cnt);
    for (int i = 0; i < list->cnt; i++) {
        struct kafka_partition *p = kafka_partition_of(k, &list->elems[i]);
        if (p == NULL) continue;
        pthread_mutex_lock(&p->lock);
        rd_kafka_queue_t *queue = p->queue;
        p->queue = NULL;
        p->assignment++;
        p->first = p->end = 0;
        if (p->next_offset >= 0)
            rd_kafka_topic_partition_list_add(done, k->topic, p->number)->offset = p->next_offset;
        pthread_mutex_unlock(&p->lock);
        if (queue == NULL) continue;
        rd_kafka_queue_cb_event_enable(queue, NULL, NULL);
        rd_kafka_queue_destroy(queue);
    }
    /* A node that stops does not wait for a broker that may be away; closing sends the commit. */
    bool is_stopping = atomic_load(&k->is_stopping);
    if (done->cnt > 0 && !is_lost) rd_kafka_commit(k->consumer, done, is_stopping);
    rd_kafka_topic_partition_list_destroy(done);
}

/* Called by librdkafka on the consumer's thread. */
static void kafka_on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                               rd_kafka_topic_partition_list_t *list, void *link) {
    assert(link != NULL);
    struct kafka_feed *k = CONTAINER_OF(link, struct kafka_feed, sender.link);
    rd_kafka_error_t *failed;
    if (err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        kafka_assign(k, list);
        failed = rd_kafka_incremental_assign(rk, list);
        k->has_joined = true;
        if (list->cnt > 0)
            log_info(msg("kafka assigned partitions of requests to this node"),
                     kv_i64("partitions", list->cnt));
    } else {
        kafka_unassign(k, list, rd_kafka_assignment_lost(rk) != 0);
        failed = rd_kafka_incremental_unassign(rk, list);
        if (list->cnt > 0)
            log_info(msg("kafka took partitions of requests from this node"),
                     kv_i64("partitions", list->cnt));
    }
    if (failed == NULL) return;
    log_error(msg("kafka refused a change of the assignment"),
              kv("error", rd_kafka_error_string(failed)));
    rd_kafka_error_destroy(failed);
}

static void kafka_poll_group(struct kafka_feed *k) {
    rd_kafka_message_t *m = rd_kafka_consumer_poll(k->consumer, POLL_MS);
    if (m == NULL) return;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        /* It came before its queue was separated: it is read again there. */
        rd_kafka_topic_partition_list_t *back = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(back, k->topic, m->partition)->offset = m->offset;
        rd_kafka_error_t *failed = rd_kafka_seek_partitions(k->consumer, back, SEEK_MS);
        if (failed != NULL) rd_kafka_error_destroy(failed);
        rd_kafka_topic_partition_list_destroy(back);
    }
    rd_kafka_message_destroy(m);
}

static bool kafka_is_member(struct kafka_feed *k) {
    char *id = rd_kafka_memberid(k->consumer);
    bool is_member = id != NULL && id[0] != '\0';
    if (id != NULL) rd_kafka_mem_free(k->consumer, id);
    return is_member;
}

/* False: it is not closed by then. rd_kafka_consumer_close would wait for a broker that is away for
 * session.timeout.ms, which is longer than a server may take to stop. */
static bool kafka_close_consumer(struct kafka_feed *k, int64_t until_ms) {
    rd_kafka_queue_t *queue = rd_kafka_queue_new(k->consumer);
    rd_kafka_error_t *failed = rd_kafka_consumer_close_queue(k->consumer, queue);
    bool is_closing = failed == NULL;
    if (failed != NULL) rd_kafka_error_destroy(failed);
    /* Calls kafka_on_rebalance. */
    while (is_closing && rd_kafka_consumer_closed(k->consumer) == 0 && clock_steady_ms() < until_ms)
        rd_kafka_queue_poll_callback(queue, POLL_MS);
    rd_kafka_queue_destroy(queue);
    return rd_kafka_consumer_closed(k->consumer) != 0;
}

/* Leaves the group. librdkafka before 2.3 aborts the process when a consumer is closed that has
 * joined the group and has not got its first assignment (its issue 4312), so that is waited for. If
 * it does not come, because the group waits for another node, or if the broker is away, the
 * consumer is left as it is: the process ends, and the group finds that out after
 * session.timeout.ms. */
static void kafka_leave_group(struct kafka_feed *k) {
    int64_t until_ms = clock_steady_ms() + LEAVE_MS;
    while (!k->has_joined && kafka_is_member(k) && clock_steady_ms() < until_ms)
        kafka_poll_group(k);
    bool can_close = k->has_joined || !kafka_is_member(k);
    k->is_left_open = !can_close || !kafka_close_consumer(k, until_ms);
    if (!k->is_left_open) return;
    for (int i = 0; i < KAFKA_PARTITIONS_MAX; i++) {
        struct kafka_partition *p = &k->partitions[i];
        pthread_mutex_lock(&p->lock);
        rd_kafka_queue_t *queue = p->queue;
        p->queue = NULL;
        pthread_mutex_unlock(&p->lock);
        if (queue == NULL) continue;
        rd_kafka_queue_cb_event_enable(queue, NULL, NULL);
        rd_kafka_queue_destroy(queue); /* this handle only */
    }
}

/* Polls for the sake of the group: the messages are in the queues of the partitions. */
static void *kafka_run_consumer(void *arg) {
    struct kafka_feed *k = arg;
    while (atomic_load(&k->sender.partition_count) == 0 && !atomic_load(&k->is_stopping))
        usleep(10000);
    if (atomic_load(&k->is_stopping)) return NULL; /* it has not joined the group */
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, k->topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t err = rd_kafka_subscribe(k->consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_error(msg("cannot subscribe to the topic of requests; none is decided on this node"),
                  kv("topic", k->topic), kv("error", rd_kafka_err2str(err)));
    while (!atomic_load(&k->is_stopping)) kafka_poll_group(k);
    kafka_leave_group(k);
    return NULL;
}

/* ---- delivering ---- */

static void kafka_set_aside(struct kafka_delivery *d);

/* An operator has dropped the message: `admitone feed dlq drop` produces it again with a header. */
static bool kafka_is_dropped(const rd_kafka_message_t *raw) {
    rd_kafka_headers_t *headers = NULL;
    const void *value;
    size_t len;
    return rd_kafka_message_headers(raw, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
           rd_kafka_header_get_last(headers, "drop", &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void kafka_deliver(struct kafka_delivery *d) {
    struct kafka_worker *w = kafka_worker_of(d->partition);
    const rd_kafka_message_t *raw = d->raw;
    struct buf why = {0};
    int64_t at_ms = rd_kafka_message_timestamp(raw, NULL);
    atomic_fetch_add(&d->partition->feed->in_flight, 1);
    if (at_ms >= 0 && clock_wall_ms() - at_ms > MESSAGE_MS_MAX)
        buf_add(&why, STR("older than a day"));
    else
        d->message.request =
            kafka_message_read((str){raw->payload, raw->len}, at_ms, &d->names, &why);
    if (d->message.request == NULL) {
        str_copy(buf_str(&why), d->reason, sizeof d->reason);
        count(COUNT_REQUESTS_DEAD, 1);
        kafka_set_aside(d);
    } else {
        if (d->message.request->event_key == 0) d->message.names = &d->names;
        d->message.is_dropped = kafka_is_dropped(raw);
        w->consumer->deliver(w->consumer, &d->message);
    }
    buf_deinit(&why);
}

/* Takes what the window has room for. `taken` has room for FEED_WINDOW. */
static size_t kafka_take(struct kafka_partition *p, struct kafka_delivery **taken) {
    rd_kafka_message_t *raw[FEED_WINDOW];
    size_t count_of = 0;
    pthread_mutex_lock(&p->lock);
    size_t used = (size_t)(p->end - p->first);
    ssize_t got = 0;
    if (p->queue != NULL && !p->is_closing && used <= FEED_WINDOW / 2)
        got = rd_kafka_consume_batch_queue(p->queue, 0, raw, FEED_WINDOW - used);
    for (ssize_t i = 0; i < got; i++) {
        if (raw[i]->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            log_debug(msg("kafka reports an error of a partition"), kv_i64("partition", p->number),
                      kv("error", rd_kafka_message_errstr(raw[i])));
            rd_kafka_message_destroy(raw[i]);
            continue;
        }
        struct kafka_delivery *d = mem_new(sizeof *d);
        d->partition = p;
        d->assignment = p->assignment;
        d->slot = (size_t)(p->end++ % FEED_WINDOW);
        d->raw = raw[i];
        list_init(&d->link);
        if (p->next_offset < 0) p->next_offset = raw[i]->offset;
        p->window[d->slot].offset = raw[i]->offset;
        p->window[d->slot].is_done = false;
        taken[count_of++] = d;
    }
    p->in_work += count_of;
    pthread_mutex_unlock(&p->lock);
    return count_of;
}

/* On the partition's worker. Called while messages are delivered, too, when one is acknowledged at
 * once: then those that were taken before are delivered first. */
static void kafka_read(struct kafka_partition *p) {
    struct kafka_delivery *taken[FEED_WINDOW];
    struct kafka_worker *w = kafka_worker_of(p);
    if (w->consumer == NULL || w->is_draining || p->is_reading) return;
    p->is_reading = true;
    for (size_t count_of = 1; count_of > 0;) {
        count_of = kafka_take(p, taken);
        for (size_t i = 0; i < count_of; i++) kafka_deliver(taken[i]);
    }
    p->is_reading = false;
}

static void kafka_on_woken(struct task *task) {
    struct kafka_partition *p = CONTAINER_OF(task, struct kafka_partition, wake);
    pthread_mutex_lock(&p->wake_lock);
    p->is_woken = false;
    pthread_mutex_unlock(&p->wake_lock);
    kafka_read(p);
    atomic_fetch_sub(&p->feed->under_way, 1);
}

/* ---- acknowledging ---- */

/* The offset to commit is the first one that is not done. It is committed at an interval. */
static void kafka_advance(struct kafka_partition *p, const struct kafka_delivery *d) {
    int64_t before = p->next_offset;
    if (d->assignment != p->assignment) return; /* the partition was revoked */
    p->window[d->slot].is_done = true;
    for (; p->first < p->end && p->window[p->first % FEED_WINDOW].is_done; p->first++)
        p->next_offset = p->window[p->first % FEED_WINDOW].offset + 1;
    if (p->next_offset == before) return;
    kafka_lookup_decided(p->feed->lookup, p->number, p->next_offset);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, p->feed->topic, p->number)->offset = p->next_offset;
    rd_kafka_offsets_store(p->feed->consumer, list);
    rd_kafka_topic_partition_list_destroy(list);
}

static void kafka_free(struct kafka_delivery *d) {
    struct kafka_partition *p = d->partition;
    struct kafka_feed *k = p->feed;
    pthread_mutex_lock(&p->lock);
    assert(p->in_work > 0);
    p->in_work--;
    pthread_mutex_unlock(&p->lock);
    list_remove(&d->link);
    rd_kafka_message_destroy(d->raw);
    mem_free(d->message.request);
    mem_free(d);
    atomic_fetch_sub(&k->in_flight, 1);
}

static void kafka_done(struct kafka_delivery *d) {
    struct kafka_partition *p = d->partition;
    pthread_mutex_lock(&p->lock);
    kafka_advance(p, d);
    pthread_mutex_unlock(&p->lock);
    kafka_free(d);
    kafka_read(p);
}

/* One that stays undecided keeps its slot: the offset does not move past it. */
static void kafka_acknowledge(struct feed *f, struct feed_message *m, enum feed_outcome outcome,
                              enum err reason) {
    struct kafka_delivery *d = CONTAINER_OF(m, struct kafka_delivery, message);
    (void)f;
    if (outcome == FEED_SET_ASIDE) {
        snprintf(d->reason, sizeof d->reason, "%s", err_code(reason).at);
        kafka_set_aside(d);
    } else if (outcome == FEED_DECIDED) {
        kafka_done(d);
    } else {
        kafka_free(d);
    }
}

/* ---- dead letters ---- */

/* The message counts as done when its copy is acknowledged. */
static void kafka_set_aside(struct kafka_delivery *d) {
    struct kafka_feed *k = d->partition->feed;
    struct kafka_worker *w = kafka_worker_of(d->partition);
    d->sent = (struct feed_sent){.task = {.run = kafka_on_dead_sent, .home = mailbox_mine()}};
    atomic_fetch_add(&k->under_way, 1);
    if (kafka_send_dead_letter(&k->sender, d->raw, d->reason, &d->sent) == ERR_OK) return;
    atomic_fetch_sub(&k->under_way, 1);
    if (w->is_draining)
        kafka_free(d);
    else
        list_move_last(&w->unsent, &d->link); /* at the next tick */
}

static void kafka_on_dead_sent(struct task *task) {
    struct kafka_delivery *d = CONTAINER_OF(task, struct kafka_delivery, sent.task);
    struct kafka_worker *w = kafka_worker_of(d->partition);
    struct kafka_feed *k = d->partition->feed;
    if (d->sent.result == ERR_OK) {
        log_warn(msg("moved a message to the topic of dead letters; 'admitone feed dlq list' shows "
                     "it"),
                 kv("topic", k->sender.dead_topic), kv("reason", d->reason));
        kafka_done(d);
    } else if (w->is_draining) {
        kafka_free(d);
    } else {
        list_move_last(&w->unsent, &d->link);
    }
    atomic_fetch_sub(&k->under_way, 1);
}

/* ---- the workers ---- */

static void kafka_tick(struct feed *f, size_t worker) {
    struct kafka_feed *k = kafka_of(f);
    struct kafka_worker *w = &k->workers[worker];
    struct list unsent;
    list_init(&unsent);
    while (!list_empty(&w->unsent)) list_move_last(&unsent, w->unsent.next);
    while (!list_empty(&unsent)) {
        struct kafka_delivery *d = CONTAINER_OF(unsent.next, struct kafka_delivery, link);
        list_remove(&d->link);
        kafka_set_aside(d);
    }
    for (size_t i = worker; i < KAFKA_PARTITIONS_MAX; i += k->worker_count)
        kafka_read(&k->partitions[i]);
}

static void kafka_attach(struct feed *f, size_t worker, struct feed_consumer *consumer) {
    struct kafka_feed *k = kafka_of(f);
    assert(worker < k->worker_count && k->workers[worker].consumer == NULL);
    k->workers[worker].consumer = consumer;
    for (size_t i = worker; i < KAFKA_PARTITIONS_MAX; i += k->worker_count) {
        struct kafka_partition *p = &k->partitions[i];
        pthread_mutex_lock(&p->wake_lock);
        p->home = mailbox_mine();
        pthread_mutex_unlock(&p->wake_lock);
        kafka_read(p);
    }
}

static void kafka_drain(struct feed *f, size_t worker) {
    struct kafka_feed *k = kafka_of(f);
    struct kafka_worker *w = &k->workers[worker];
    w->is_draining = true;
    for (size_t i = worker; i < KAFKA_PARTITIONS_MAX; i += k->worker_count) {
        struct kafka_partition *p = &k->partitions[i];
        pthread_mutex_lock(&p->wake_lock);
        p->home = NULL;
        pthread_mutex_unlock(&p->wake_lock);
    }
    while (!list_empty(&w->unsent))
        kafka_free(CONTAINER_OF(w->unsent.next, struct kafka_delivery, link));
}

static void kafka_look(struct feed *f, struct feed_look *l) {
    l->task.home = mailbox_mine();
    kafka_lookup_ask(kafka_of(f)->lookup, l);
}

static void kafka_stats(struct feed *f, struct feed_stats *out) {
    struct kafka_feed *k = kafka_of(f);
    *out = (struct feed_stats){.is_available = atomic_load(&k->sender.link.is_up),
                               .in_flight = atomic_load(&k->in_flight)};
    for (int i = 0; i < KAFKA_PARTITIONS_MAX && k->consumer != NULL; i++) {
        struct kafka_partition *p = &k->partitions[i];
        pthread_mutex_lock(&p->lock);
        bool is_ours = p->queue != NULL;
        int64_t next = p->next_offset;
        pthread_mutex_unlock(&p->lock);
        int64_t low = 0;
        int64_t high = 0;
        if (!is_ours || next < 0 ||
            rd_kafka_get_watermark_offsets(k->consumer, k->topic, i, &low, &high) !=
                RD_KAFKA_RESP_ERR_NO_ERROR)
            continue;
        out->lags[out->lag_count++] = (struct feed_lag){i, high > next ? high - next : 0};
    }
}

static bool kafka_is_busy(struct feed *f) {
    return atomic_load(&kafka_of(f)->under_way) > 0;
}

/* ---- start and stop ---- */

static void kafka_feed_free(struct kafka_feed *k) {
    if (k->lookup != NULL) kafka_lookup_free(k->lookup);
    if (k->consumer != NULL && !k->is_left_open) kafka_consumer_free(k->consumer, &k->sender.link);
    kafka_sender_deinit(&k->sender);
    for (int i = 0; i < KAFKA_PARTITIONS_MAX; i++) {
        pthread_mutex_destroy(&k->partitions[i].wake_lock);
        pthread_mutex_destroy(&k->partitions[i].lock);
    }
    mem_free(k->workers);
    mem_free(k);
}

static void kafka_close(struct feed *f) {
    struct kafka_feed *k = kafka_of(f);
    atomic_store(&k->is_stopping, true);
    if (k->consumer != NULL) pthread_join(k->consumer_thread, NULL);
    kafka_sender_stop(&k->sender);
    kafka_feed_free(k);
}

static bool kafka_open(struct kafka_feed *k, bool consumes, struct buf *why) {
    /* 45 s, the default of session.timeout.ms, is long for users who wait. */
    const struct config_pair of_group[] = {{"group.id", k->group},
                                           {"partition.assignment.strategy", "cooperative-sticky"},
                                           {"session.timeout.ms", "10000"},
                                           {"auto.offset.reset", "earliest"},
                                           {"enable.auto.commit", "true"},
                                           {"auto.commit.interval.ms", "500"},
                                           {"enable.auto.offset.store", "false"},
                                           {"queued.max.messages.kbytes", "1024"},
                                           {"fetch.wait.max.ms", "100"},
                                           /* When it sees new partitions, or a new topic. */
                                           {"topic.metadata.refresh.interval.ms", "10000"},
                                           {NULL, NULL}};
    struct kafka_sender *sender = &k->sender;
    if (consumes) {
        k->consumer =
            kafka_consumer_new(&sender->options, &sender->link, of_group, kafka_on_rebalance, why);
        if (k->consumer == NULL) return false;
    }
    k->lookup = kafka_lookup_new(&sender->options, &sender->link, &sender->partition_count, why);
    return k->lookup != NULL;
}

struct feed *kafka_feed_new(const struct kafka_options *options, size_t workers, bool consumes,
                            struct buf *why) {
    static const struct feed_ops ops = {.publish = kafka_publish,
                                        .attach = kafka_attach,
                                        .tick = kafka_tick,
                                        .acknowledge = kafka_acknowledge,
                                        .look = kafka_look,
                                        .drain = kafka_drain,
                                        .stats = kafka_stats,
                                        .is_busy = kafka_is_busy,
                                        .close = kafka_close};
    struct kafka_feed *k = mem_new(sizeof *k);
    k->port = (struct feed){.ops = &ops, .keeps_requests = true, .sets_aside = true};
    if (!kafka_sender_init(&k->sender, options, why)) {
        mem_free(k);
        return NULL;
    }
    k->topic = k->sender.topic;
    snprintf(k->group, sizeof k->group, "%s%s", options->prefix, KAFKA_GROUP);
    k->worker_count = workers;
    k->workers = mem_new(workers * sizeof *k->workers);
    for (size_t i = 0; i < workers; i++) {
        k->workers[i].feed = k;
        list_init(&k->workers[i].unsent);
    }
    for (int i = 0; i < KAFKA_PARTITIONS_MAX; i++) {
        k->partitions[i].feed = k;
        k->partitions[i].number = i;
        k->partitions[i].wake.run = kafka_on_woken;
        pthread_mutex_init(&k->partitions[i].wake_lock, NULL);
        pthread_mutex_init(&k->partitions[i].lock, NULL);
    }
    if (!kafka_open(k, consumes, why)) {
        kafka_feed_free(k);
        return NULL;
    }
    kafka_sender_start(&k->sender);
    if (consumes)
        thread_start(&k->consumer_thread, "kafka consumer", THREAD_ALONE, kafka_run_consumer, k);
    return &k->port;
}
