/* The index of undecided requests, on a thread of its own, which may wait for the broker. */
#include "feed/kafka_lookup.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"
#include "feed/kafka_message.h"
#include "run/mailbox.h"

#define ENTRIES_MAX 1000000
/* One question to the broker, and one reading up to the end of the topic. */
#define CALL_MS 2000
#define READ_MS 4000
/* Without a question for this long the index is dropped. */
#define IDLE_MS 30000
/* How often the committed offsets are read while requests are accepted; and at the start, until
 * they are known. */
#define COMMITTED_MS 1000
#define FIRST_MS 50

struct lookup_entry {
    int partition;
    int64_t offset;
    struct request *request;
    struct lookup_entry *next; /* of the same partition, with a higher offset */
};

struct lookup_partition {
    _Atomic int64_t decided;    /* all before this offset are decided */
    int64_t read;               /* the next offset to read */
    int64_t end;                /* of the topic, when it was last asked */
    struct lookup_entry *first; /* in the order of the offsets */
    struct lookup_entry *last;
};

struct kafka_lookup {
    char topic[128];
    rd_kafka_t *consumer;
    struct kafka_link *link;
    const _Atomic int *partition_count;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list looks;         /* struct feed_look, under the lock */
    bool is_stopping;          /* under the lock */
    _Atomic bool has_accepted; /* a position was asked for since the last reading */

    /* Of the thread. */
    bool knows_committed;
    bool is_assigned;
    int assigned; /* partitions */
    bool is_full;
    int64_t asked_ms; /* the last question */
    struct map index; /* id → struct lookup_entry */
    struct lookup_partition partitions[KAFKA_PARTITIONS_MAX];
};

/* ---- from any thread ---- */

void kafka_lookup_decided(struct kafka_lookup *l, int partition, int64_t next_offset) {
    if (partition < 0 || partition >= KAFKA_PARTITIONS_MAX) return;
    _Atomic int64_t *decided = &l->partitions[partition].decided;
    int64_t known = atomic_load(decided);
    while (known < next_offset && !atomic_compare_exchange_weak(decided, &known, next_offset)) {
    }
}

int64_t kafka_lookup_ahead(struct kafka_lookup *l, int partition, int64_t offset) {
    if (partition < 0 || partition >= KAFKA_PARTITIONS_MAX) return 0;
    atomic_store(&l->has_accepted, true);
    int64_t ahead = offset - atomic_load(&l->partitions[partition].decided);
    return ahead > 0 ? ahead : 0;
}

void kafka_lookup_ask(struct kafka_lookup *l, struct feed_look *look) {
    list_init(&look->link);
    pthread_mutex_lock(&l->lock);
    list_move_last(&l->looks, &look->link);
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

/* ---- the index ---- */

static str lookup_key(const struct uuid *id) {
    return (str){(const char *)id->bytes, sizeof id->bytes};
}

/* Of a request that is in the topic twice, the first message counts: it is decided first. */
static void lookup_add(struct kafka_lookup *l, const rd_kafka_message_t *m) {
    struct lookup_partition *p = &l->partitions[m->partition];
    struct section_names names;
    struct buf why = {0};
    p->read = m->offset + 1;
    if (l->index.count >= ENTRIES_MAX) l->is_full = true;
    if (l->is_full || m->offset < atomic_load(&p->decided)) return;
    struct request *r = kafka_message_read((str){m->payload, m->len},
                                           rd_kafka_message_timestamp(m, NULL), &names, &why);
    buf_deinit(&why);
    if (r == NULL || map_get(&l->index, lookup_key(&r->id)) != NULL) {
        mem_free(r);
        return;
    }
    struct lookup_entry *e = mem_new(sizeof *e);
    *e = (struct lookup_entry){.partition = m->partition, .offset = m->offset, .request = r};
    if (p->last == NULL)
        p->first = e;
    else
        p->last->next = e;
    p->last = e;
    map_put(&l->index, lookup_key(&r->id), e);
}

static void lookup_drop_before(struct kafka_lookup *l, struct lookup_partition *p, int64_t offset) {
    while (p->first != NULL && p->first->offset < offset) {
        struct lookup_entry *e = p->first;
        p->first = e->next;
        if (p->first == NULL) p->last = NULL;
        map_remove(&l->index, lookup_key(&e->request->id));
        mem_free(e->request);
        mem_free(e);
    }
}

static void lookup_clear(struct kafka_lookup *l) {
    for (int i = 0; i < KAFKA_PARTITIONS_MAX; i++)
        lookup_drop_before(l, &l->partitions[i], INT64_MAX);
    if (l->is_assigned) rd_kafka_assign(l->consumer, NULL);
    l->is_assigned = false;
    l->is_full = false;
}

/* ---- asking the broker ---- */

static rd_kafka_topic_partition_list_t *lookup_list(const struct kafka_lookup *l, int count) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
    rd_kafka_topic_partition_list_add_range(list, l->topic, 0, count - 1);
    return list;
}

static bool lookup_read_committed(struct kafka_lookup *l, int count) {
    rd_kafka_topic_partition_list_t *list = lookup_list(l, count);
    bool ok = rd_kafka_committed(l->consumer, list, CALL_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; ok && i < list->cnt; i++)
        if (list->elems[i].offset >= 0)
            kafka_lookup_decided(l, list->elems[i].partition, list->elems[i].offset);
    rd_kafka_topic_partition_list_destroy(list);
    if (ok) l->knows_committed = true;
    return ok;
}

/* The offsets of RD_KAFKA_OFFSET_BEGINNING or RD_KAFKA_OFFSET_END now. These are times of the
 * protocol, too. rd_kafka_query_watermark_offsets would wait for socket.timeout.ms when the broker
 * is away. */
static rd_kafka_topic_partition_list_t *lookup_offsets(struct kafka_lookup *l, int count,
                                                       int64_t at) {
    rd_kafka_topic_partition_list_t *list = lookup_list(l, count);
    for (int i = 0; i < list->cnt; i++) list->elems[i].offset = at;
    bool ok = rd_kafka_offsets_for_times(l->consumer, list, CALL_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; ok && i < list->cnt; i++)
        ok = list->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR && list->elems[i].offset >= 0;
    if (ok) return list;
    rd_kafka_topic_partition_list_destroy(list);
    return NULL;
}

/* Where the topic begins and ends now. If it ends before what is decided, it was deleted and
 * created again: then all of it is read. */
static bool lookup_read_ends(struct kafka_lookup *l, int count) {
    /* Read before the broker is asked: workers raise these offsets while the call waits, and one
     * that they raised past the end that the broker returns would look like a deleted topic. */
    int64_t decided[KAFKA_PARTITIONS_MAX];
    for (int i = 0; i < count; i++) decided[i] = atomic_load(&l->partitions[i].decided);
    rd_kafka_topic_partition_list_t *end = lookup_offsets(l, count, RD_KAFKA_OFFSET_END);
    if (end == NULL) return false;
    bool is_recreated = false;
    for (int i = 0; i < end->cnt; i++) {
        struct lookup_partition *p = &l->partitions[end->elems[i].partition];
        p->end = end->elems[i].offset;
        if (p->end >= decided[end->elems[i].partition]) continue;
        atomic_store(&p->decided, 0);
        is_recreated = true;
    }
    if (is_recreated) lookup_clear(l);
    rd_kafka_topic_partition_list_destroy(end);
    rd_kafka_topic_partition_list_t *begin = lookup_offsets(l, count, RD_KAFKA_OFFSET_BEGINNING);
    if (begin == NULL) return false;
    /* The broker has deleted the messages before. */
    for (int i = 0; i < begin->cnt; i++)
        kafka_lookup_decided(l, begin->elems[i].partition, begin->elems[i].offset);
    rd_kafka_topic_partition_list_destroy(begin);
    return true;
}

/* Reads from where the partitions are decided on. Again when the topic has got more partitions, and
 * when some requests did not fit into the index. */
static bool lookup_assign(struct kafka_lookup *l, int count) {
    if (l->is_assigned && l->assigned == count && !l->is_full) return true;
    lookup_clear(l);
    rd_kafka_topic_partition_list_t *list = lookup_list(l, count);
    for (int i = 0; i < list->cnt; i++) {
        struct lookup_partition *p = &l->partitions[list->elems[i].partition];
        p->read = atomic_load(&p->decided);
        list->elems[i].offset = p->read;
    }
    l->is_assigned = rd_kafka_assign(l->consumer, list) == RD_KAFKA_RESP_ERR_NO_ERROR;
    l->assigned = count;
    rd_kafka_topic_partition_list_destroy(list);
    return l->is_assigned;
}

static bool lookup_is_read(const struct kafka_lookup *l, int count) {
    for (int i = 0; i < count; i++)
        if (l->partitions[i].read < l->partitions[i].end) return false;
    return true;
}

/* Reads on to the end. */
static bool lookup_read(struct kafka_lookup *l, int count) {
    int64_t until_ms = clock_steady_ms() + READ_MS;
    while (!lookup_is_read(l, count)) {
        int64_t left_ms = until_ms - clock_steady_ms();
        if (left_ms <= 0) return false;
        rd_kafka_message_t *m = rd_kafka_consumer_poll(l->consumer, (int)left_ms);
        if (m == NULL) continue;
        bool is_known = m->partition >= 0 && m->partition < count;
        if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR && is_known) lookup_add(l, m);
        /* The last records of a partition may be no messages: ends of transactions. */
        if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF && is_known &&
            m->offset > l->partitions[m->partition].read)
            l->partitions[m->partition].read = m->offset;
        rd_kafka_message_destroy(m);
    }
    return true;
}

static enum err lookup_update(struct kafka_lookup *l) {
    int count = atomic_load(l->partition_count);
    if (count == 0 || !atomic_load(&l->link->is_up)) return ERR_FEED_UNAVAILABLE;
    bool ok = lookup_read_committed(l, count) && lookup_read_ends(l, count) &&
              lookup_assign(l, count) && lookup_read(l, count);
    if (!ok) return ERR_FEED_UNAVAILABLE;
    for (int i = 0; i < count; i++)
        lookup_drop_before(l, &l->partitions[i], atomic_load(&l->partitions[i].decided));
    return l->is_full ? ERR_OVERLOADED : ERR_OK;
}

/* ---- answering ---- */

static void lookup_on_answered(struct task *task) {
    struct feed_look *look = CONTAINER_OF(task, struct feed_look, task);
    look->done(look, look->result);
}

static void lookup_answer(const struct kafka_lookup *l, struct feed_look *look) {
    for (size_t i = 0; i < look->count; i++) {
        const struct lookup_entry *e = map_get(&l->index, lookup_key(&look->ids[i]));
        look->ahead[i] = 0;
        if (look->found[i] != NULL || e == NULL) continue;
        int64_t ahead = e->offset - atomic_load(&l->partitions[e->partition].decided);
        look->found[i] = request_copy(e->request);
        look->ahead[i] = ahead > 0 ? ahead : 0;
        look->found[i]->ahead = look->ahead[i]; /* for the answer to a repeated request */
    }
}

static void lookup_answer_all(struct kafka_lookup *l, struct list *looks) {
    enum err result = lookup_update(l);
    l->asked_ms = clock_steady_ms();
    while (!list_empty(looks)) {
        struct feed_look *look = CONTAINER_OF(looks->next, struct feed_look, link);
        list_remove(&look->link);
        if (result == ERR_OK) lookup_answer(l, look);
        look->result = result;
        look->task.run = lookup_on_answered;
        mailbox_post(look->task.home, &look->task);
    }
}

/* Waits for questions. False: it is to stop. */
static bool lookup_wait(struct kafka_lookup *l, struct list *looks) {
    struct timespec until = clock_steady_in(l->knows_committed ? COMMITTED_MS : FIRST_MS);
    pthread_mutex_lock(&l->lock);
    while (list_empty(&l->looks) && !l->is_stopping)
        if (pthread_cond_timedwait(&l->wake, &l->lock, &until) != 0) break;
    while (!list_empty(&l->looks)) list_move_last(looks, l->looks.next);
    bool goes_on = !l->is_stopping || !list_empty(looks);
    pthread_mutex_unlock(&l->lock);
    return goes_on;
}

static void *lookup_run(void *arg) {
    struct kafka_lookup *l = arg;
    struct list looks;
    list_init(&looks);
    while (lookup_wait(l, &looks)) {
        int count = atomic_load(l->partition_count);
        if (!list_empty(&looks))
            lookup_answer_all(l, &looks);
        else if (count > 0 && (atomic_exchange(&l->has_accepted, false) || !l->knows_committed))
            lookup_read_committed(l, count);
        if (l->is_assigned && clock_steady_ms() - l->asked_ms > IDLE_MS) lookup_clear(l);
    }
    return NULL;
}

/* ---- start and stop ---- */

struct kafka_lookup *kafka_lookup_new(const struct kafka_options *options, struct kafka_link *link,
                                      const _Atomic int *partition_count, struct buf *why) {
    struct kafka_lookup *l = mem_new(sizeof *l);
    char group[128];
    snprintf(l->topic, sizeof l->topic, "%s%s", options->prefix, KAFKA_TOPIC_REQUESTS);
    snprintf(group, sizeof group, "%s%s", options->prefix, KAFKA_GROUP);
    /* It reads the offsets of the group, and is no member of it: it assigns partitions itself. */
    const struct config_pair own[] = {{"group.id", group},
                                      {"enable.auto.commit", "false"},
                                      {"enable.auto.offset.store", "false"},
                                      {"auto.offset.reset", "earliest"},
                                      {"enable.partition.eof", "true"},
                                      {"queued.max.messages.kbytes", "4096"},
                                      {"fetch.wait.max.ms", "100"},
                                      {NULL, NULL}};
    l->link = link;
    l->partition_count = partition_count;
    l->consumer = kafka_consumer_new(options, link, own, NULL, why);
    if (l->consumer == NULL) {
        mem_free(l);
        return NULL;
    }
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&l->wake, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&l->lock, NULL);
    list_init(&l->looks);
    map_init(&l->index);
    thread_start(&l->thread, "kafka lookup", THREAD_ALONE, lookup_run, l);
    return l;
}

void kafka_lookup_free(struct kafka_lookup *l) {
    pthread_mutex_lock(&l->lock);
    l->is_stopping = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    lookup_clear(l);
    rd_kafka_consumer_close(l->consumer);
    kafka_consumer_free(l->consumer, l->link);
    map_deinit(&l->index);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}
