/*
 * The feed in the ledger. Each partition belongs to one worker, which reads its undecided requests
 * in pages and delivers them. A page is read when requests were published since the last one, and
 * when enough of those that were delivered are acknowledged. A read that failed is tried again at
 * the next tick.
 */
#include "feed/local.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "run/mailbox.h"

struct local_feed;
struct local_worker;

struct local_message {
    struct feed_message message;
    struct local_partition *partition;
};

struct local_partition {
    struct local_feed *feed;
    struct local_worker *worker; /* NULL: none has attached */
    int number;
    int64_t read_seq; /* requests up to this one have been read */
    size_t delivered; /* and not acknowledged */
    bool is_reading;
    bool has_more; /* requests that were not read yet, or may have */
    struct ledger_requests_read read;
    struct request *page[FEED_WINDOW];
    struct task wake;             /* for its worker */
    _Atomic bool is_woken;        /* the task is on its way */
    struct mailbox *_Atomic home; /* of its worker; NULL: no worker has attached */
};

struct local_worker {
    struct feed_consumer *consumer;
    bool is_draining;
};

struct local_feed {
    struct feed port;
    struct ledger *ledger;
    size_t worker_count;
    struct local_worker *workers;
    struct local_partition partitions[REQUEST_PARTITIONS];
    _Atomic int64_t under_way; /* reads, and tasks that wake a partition */
};

static struct local_feed *local_of(struct feed *f) {
    return CONTAINER_OF(f, struct local_feed, port);
}

/* ---- publishing ---- */

static void local_on_published(struct task *task);

static void local_publish(struct feed *f, struct feed_publish *p) {
    p->put = (struct ledger_request_put){
        .record = {.kind = LEDGER_REQUEST_PUT, .task.run = local_on_published},
        .wanted = p->request};
    p->result = ledger_submit(local_of(f)->ledger, &p->put.record);
    if (p->result != ERR_OK) p->done(p);
}

static void local_wake(struct local_partition *p) {
    struct mailbox *home = atomic_load(&p->home);
    if (home == NULL || atomic_exchange(&p->is_woken, true)) return;
    atomic_fetch_add(&p->feed->under_way, 1);
    mailbox_post(home, &p->wake);
}

static void local_on_published(struct task *task) {
    struct feed_publish *p = CONTAINER_OF(task, struct feed_publish, put.record.task);
    const struct ledger_request_put *put = &p->put;
    p->result = put->record.result == ERR_LEDGER_UNKNOWN ? ERR_FEED_UNKNOWN : put->record.result;
    p->is_new = put->is_new;
    p->ahead = put->ahead;
    p->status = put->status;
    if (p->result == ERR_OK && p->is_new) count(COUNT_REQUESTS_ACCEPTED, 1);
    bool may_be_there = p->result == ERR_OK || p->result == ERR_FEED_UNKNOWN;
    if (may_be_there) local_wake(&local_of(p->feed)->partitions[p->request->partition]);
    p->done(p);
}

/* ---- reading and delivering ---- */

static void local_on_read(struct task *task);

static void local_read(struct local_partition *p) {
    if (p->is_reading || !p->has_more || p->worker == NULL || p->worker->is_draining) return;
    if (p->delivered > FEED_WINDOW / 2) return;
    p->read = (struct ledger_requests_read){
        .record = {.kind = LEDGER_REQUESTS_READ, .task.run = local_on_read},
        .partition = p->number,
        .after_seq = p->read_seq,
        .max = FEED_WINDOW - p->delivered,
        .requests = p->page};
    p->is_reading = true;
    p->has_more = false;
    atomic_fetch_add(&p->feed->under_way, 1);
    if (ledger_ask(p->feed->ledger, &p->read.record) == ERR_OK) return;
    atomic_fetch_sub(&p->feed->under_way, 1);
    p->is_reading = false;
    p->has_more = true; /* at the next tick */
}

static void local_deliver(struct local_partition *p, struct request *r) {
    struct local_message *m = mem_new(sizeof *m);
    m->message.request = r;
    m->partition = p;
    p->delivered++;
    p->read_seq = r->seq;
    p->worker->consumer->deliver(p->worker->consumer, &m->message);
}

static void local_on_read(struct task *task) {
    struct local_partition *p = CONTAINER_OF(task, struct local_partition, read.record.task);
    size_t count = p->read.count;
    atomic_fetch_sub(&p->feed->under_way, 1);
    if (p->read.record.result != ERR_OK) {
        p->is_reading = false;
        p->has_more = true; /* at the next tick */
        return;
    }
    if (count == p->read.max) p->has_more = true;
    for (size_t i = 0; i < count; i++) {
        if (p->worker->is_draining)
            mem_free(p->page[i]);
        else
            local_deliver(p, p->page[i]);
    }
    p->is_reading = false;
    local_read(p);
}

static void local_on_woken(struct task *task) {
    struct local_partition *p = CONTAINER_OF(task, struct local_partition, wake);
    atomic_store(&p->is_woken, false);
    atomic_fetch_sub(&p->feed->under_way, 1);
    p->has_more = true;
    local_read(p);
}

/* Called while a page is delivered, too: then the page is delivered first. */
static void local_acknowledge(struct feed *f, struct feed_message *message, bool is_decided) {
    struct local_message *m = CONTAINER_OF(message, struct local_message, message);
    struct local_partition *p = m->partition;
    (void)f;
    (void)is_decided; /* its row shows it */
    assert(p->delivered > 0);
    p->delivered--;
    mem_free(message->request);
    mem_free(m);
    local_read(p);
}

/* ---- the workers ---- */

static void local_tick(struct feed *f, size_t worker) {
    struct local_feed *l = local_of(f);
    for (size_t i = worker; i < REQUEST_PARTITIONS; i += l->worker_count)
        local_read(&l->partitions[i]);
}

/* At the start there may be requests that were accepted before. */
static void local_attach(struct feed *f, size_t worker, struct feed_consumer *consumer) {
    struct local_feed *l = local_of(f);
    struct local_worker *w = &l->workers[worker];
    assert(worker < l->worker_count && w->consumer == NULL);
    w->consumer = consumer;
    for (size_t i = worker; i < REQUEST_PARTITIONS; i += l->worker_count) {
        struct local_partition *p = &l->partitions[i];
        p->worker = w;
        p->has_more = true;
        atomic_store(&p->home, mailbox_mine());
        local_read(p);
    }
}

static void local_drain(struct feed *f, size_t worker) {
    struct local_feed *l = local_of(f);
    l->workers[worker].is_draining = true;
    for (size_t i = worker; i < REQUEST_PARTITIONS; i += l->worker_count)
        atomic_store(&l->partitions[i].home, NULL);
}

static bool local_is_busy(struct feed *f) {
    return atomic_load(&local_of(f)->under_way) > 0;
}

static void local_close(struct feed *f) {
    struct local_feed *l = local_of(f);
    mem_free(l->workers);
    mem_free(l);
}

struct feed *local_feed_new(struct ledger *ledger, size_t workers) {
    static const struct feed_ops ops = {.publish = local_publish,
                                        .attach = local_attach,
                                        .acknowledge = local_acknowledge,
                                        .tick = local_tick,
                                        .drain = local_drain,
                                        .is_busy = local_is_busy,
                                        .close = local_close};
    struct local_feed *l = mem_new(sizeof *l);
    l->port.ops = &ops;
    l->ledger = ledger;
    l->worker_count = workers;
    l->workers = mem_new(workers * sizeof *l->workers);
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        l->partitions[i].feed = l;
        l->partitions[i].number = i;
        l->partitions[i].wake.run = local_on_woken;
    }
    return &l->port;
}
