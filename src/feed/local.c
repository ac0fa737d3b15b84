/*
 * The feed in the ledger. Each partition belongs to one worker, which reads its undecided requests
 * in pages and delivers them. A page is read when requests were published since the last one, and
 * when enough of those that were delivered are acknowledged. A read that failed is tried again at
 * the next tick.
 *
 * Leases are taken and renewed by the first worker. A new lease has a new fence: then the partition
 * is read from its first undecided request on.
 *
 * Positions come from a list of the numbers of all undecided requests, which is read when they are
 * asked for, and kept for a moment. All workers use the same list, and each list is read when the
 * one before it is there, so the position of a request only falls.
 */
#include "feed/local.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "run/mailbox.h"

/* Of leases. A node does not work on a partition for longer than this after it has asked for the
 * lease; the ledger keeps other nodes from it for at least as long. */
#define LEASE_MS 4000
#define RENEW_MS 1000
/* Where nodes share the ledger, a lost announcement delays a request by this. */
#define POLL_MS 1000
/* How old positions may be, and how often they are read for metrics while there is work. */
#define POSITIONS_NS INT64_C(200000000)
#define COUNT_NS INT64_C(5000000000)

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
    int64_t read_seq;          /* requests up to this one have been read */
    int64_t read_fence;        /* under this lease */
    _Atomic size_t delivered;  /* and not acknowledged */
    _Atomic int64_t undecided; /* when positions were last read */
    int64_t polled_ms;
    /* Of the lease; written by the first worker. */
    _Atomic int64_t fence;    /* 0: another node may have it */
    _Atomic int64_t until_ns; /* steady */
    _Atomic bool is_released; /* nothing more is delivered, so that another node can take it */
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
    bool is_shared;
    struct {
        struct ledger_request_lease record;
        struct uuid node;
        bool is_asking;
        struct ledger_request_lease release;
        _Atomic bool is_released;
        int64_t asked_ns; /* steady, the last time */
    } lease;
    struct {
        pthread_mutex_t lock;             /* of all below */
        struct ledger_requests_open open; /* all undecided requests, between these times */
        int64_t began_ns;
        int64_t ended_ns;
        struct ledger_requests_open next; /* being read, since next_began_ns */
        int64_t next_began_ns;
        bool is_reading;
        struct list waiting; /* struct feed_look, of all workers */
    } positions;
    _Atomic bool is_counted;   /* nothing has changed since positions were read */
    _Atomic size_t draining;   /* workers */
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
        .wanted = p->request,
        .may_rename = p->may_rename};
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
    p->id = p->result == ERR_OK ? put->id : p->request->id;
    p->is_new = put->is_new;
    p->ahead = put->ahead;
    p->status = put->status;
    if (p->result == ERR_OK && p->is_new) count(COUNT_REQUESTS_ACCEPTED, 1);
    atomic_store(&local_of(p->feed)->is_counted, false);
    bool may_be_there = p->result == ERR_OK || p->result == ERR_FEED_UNKNOWN;
    if (may_be_there) local_wake(&local_of(p->feed)->partitions[p->request->partition]);
    p->done(p);
}

/* ---- leases ---- */

static void local_on_leased(struct task *task);
static void local_on_released(struct task *task);

static bool local_has_lease(const struct local_partition *p) {
    if (!p->feed->is_shared) return true;
    return atomic_load(&p->fence) != 0 && !atomic_load(&p->is_released) &&
           clock_steady_ns() < atomic_load(&p->until_ns);
}

/* Asks for leases, unless that is under way. A partition that is to be released is kept until all
 * that was delivered of it is acknowledged. */
static void local_ask_lease(struct local_feed *l) {
    struct ledger_request_lease *r = &l->lease.record;
    if (l->lease.is_asking) return;
    *r = (struct ledger_request_lease){
        .record = {.kind = LEDGER_REQUEST_LEASE, .task.run = local_on_leased, .always = true},
        .node = l->lease.node,
        .lease_ms = LEASE_MS};
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        struct local_partition *p = &l->partitions[i];
        bool is_done = atomic_load(&p->is_released) && atomic_load(&p->delivered) == 0;
        r->keeps[i] = atomic_load(&p->fence) != 0 && !is_done;
    }
    l->lease.is_asking = true;
    l->lease.asked_ns = clock_steady_ns();
    atomic_fetch_add(&l->under_way, 1);
    if (ledger_submit(l->ledger, &r->record) == ERR_OK) return;
    atomic_fetch_sub(&l->under_way, 1);
    l->lease.is_asking = false; /* at the next tick */
}

/* At the stop: when nothing is delivered any more, other nodes can take over at once. Any worker
 * may be the last. If this fails, the leases end by themselves. */
static void local_release_all(struct local_feed *l) {
    struct ledger_request_lease *r = &l->lease.release;
    if (!l->is_shared || atomic_load(&l->draining) < l->worker_count) return;
    for (int i = 0; i < REQUEST_PARTITIONS; i++)
        if (atomic_load(&l->partitions[i].delivered) > 0) return;
    if (atomic_exchange(&l->lease.is_released, true)) return;
    *r = (struct ledger_request_lease){
        .record = {.kind = LEDGER_REQUEST_LEASE, .task.run = local_on_released, .always = true},
        .node = l->lease.node,
        .lease_ms = LEASE_MS,
        .stops = true};
    atomic_fetch_add(&l->under_way, 1);
    if (ledger_submit(l->ledger, &r->record) != ERR_OK) atomic_fetch_sub(&l->under_way, 1);
}

static void local_on_released(struct task *task) {
    struct local_feed *l = CONTAINER_OF(task, struct local_feed, lease.release.record.task);
    atomic_fetch_sub(&l->under_way, 1);
}

/* Those above the share are given to other nodes, the highest first. */
static void local_release_surplus(struct local_feed *l, int64_t has) {
    for (int i = REQUEST_PARTITIONS - 1; i >= 0 && has > l->lease.record.share; i--) {
        if (l->lease.record.fences[i] == 0) continue;
        atomic_store(&l->partitions[i].is_released, true);
        has--;
    }
}

static void local_on_leased(struct task *task) {
    struct local_feed *l = CONTAINER_OF(task, struct local_feed, lease.record.record.task);
    const struct ledger_request_lease *r = &l->lease.record;
    int64_t has = 0;
    atomic_fetch_sub(&l->under_way, 1);
    l->lease.is_asking = false;
    if (r->record.result != ERR_OK) return; /* at the next tick; until then the leases run on */
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        struct local_partition *p = &l->partitions[i];
        int64_t before = atomic_load(&p->fence);
        if (r->fences[i] != before) atomic_store(&p->is_released, false);
        atomic_store(&p->until_ns, l->lease.asked_ns + LEASE_MS * INT64_C(1000000));
        atomic_store(&p->fence, r->fences[i]);
        if (r->fences[i] != 0 && r->fences[i] != before) local_wake(p);
        if (r->fences[i] != 0) has++;
    }
    local_release_surplus(l, has);
}

/* ---- reading and delivering ---- */

static void local_on_read(struct task *task);

static void local_read(struct local_partition *p) {
    if (p->is_reading || p->worker == NULL || p->worker->is_draining) return;
    int64_t fence = atomic_load(&p->fence);
    if (fence != p->read_fence && fence != 0) {
        p->read_fence = fence;
        p->read_seq = 0;
        p->has_more = true;
    }
    if (!p->has_more || !local_has_lease(p) || p->delivered > FEED_WINDOW / 2) return;
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
    m->message.fence = p->read_fence;
    m->partition = p;
    p->delivered++;
    p->read_seq = r->seq;
    atomic_store(&p->feed->is_counted, false);
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
    bool is_ours =
        local_has_lease(p) && (!p->feed->is_shared || atomic_load(&p->fence) == p->read_fence);
    for (size_t i = 0; i < count; i++) {
        if (p->worker->is_draining || !is_ours)
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
static void local_acknowledge(struct feed *f, struct feed_message *message,
                              enum feed_outcome outcome, enum err reason) {
    struct local_message *m = CONTAINER_OF(message, struct local_message, message);
    struct local_partition *p = m->partition;
    (void)f;
    (void)reason;
    assert(outcome != FEED_SET_ASIDE); /* the others need no write: the row has the result */
    assert(p->delivered > 0);
    p->delivered--;
    atomic_store(&p->feed->is_counted, false);
    mem_free(message->request);
    mem_free(m);
    local_read(p);
    local_release_all(p->feed);
}

/* ---- positions ---- */

static void positions_on_read(struct task *task);
static void local_on_positions(struct task *task);

/* How many undecided requests are before it; -1: it is not among them. */
static int64_t positions_find(const struct local_feed *f, const struct request *r) {
    const struct open_requests *open = &f->positions.open.partitions[r->partition];
    size_t low = 0;
    size_t high = open->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (open->seqs[middle] < r->seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < open->count && open->seqs[low] == r->seq ? (int64_t)low : -1;
}

/* Fills in the positions if the list that is there suffices. An undecided request that is not in it
 * was either accepted after the list was read, or decided since the ledger was asked for it. It is
 * the first if the list was read before the ledger was asked: then the request was accepted a
 * moment ago, and its position is that of its acceptance. Clients look at a request as soon as it
 * is accepted, and the list must not be read for each of them. The position of the acceptance is
 * never lower than the one of a list that is read later. */
static bool positions_suffice(const struct local_feed *f, struct feed_look *l) {
    bool is_newer = f->positions.began_ns >= l->began_ns;
    bool is_older = f->positions.ended_ns <= l->asked_ns;
    bool is_recent = is_newer || l->began_ns - f->positions.began_ns < POSITIONS_NS;
    for (size_t i = 0; i < l->count; i++) {
        const struct request *r = l->found[i];
        l->ahead[i] = 0;
        if (r == NULL || request_is_decided(r->status)) continue;
        int64_t ahead = is_recent ? positions_find(f, r) : -1;
        if (ahead < 0 && is_recent && is_older) ahead = r->ahead;
        if (ahead < 0 && !is_newer) return false;
        if (ahead > 0) l->ahead[i] = ahead;
    }
    return true;
}

/* When is_reading was set. Fails every look that waits, if the list can't be read. */
static void positions_read(struct local_feed *f) {
    struct ledger_requests_open *next = &f->positions.next;
    f->positions.next_began_ns = clock_steady_ns();
    atomic_fetch_add(&f->under_way, 1);
    next->record =
        (struct ledger_record){.kind = LEDGER_REQUESTS_OPEN, .task.run = positions_on_read};
    enum err refused = ledger_ask(f->ledger, &next->record);
    if (refused == ERR_OK) return;
    next->record.result = refused;
    positions_on_read(&next->record.task);
}

/* Answers it, or has it wait for the next list. */
static void local_look_on(struct local_feed *f, struct feed_look *l) {
    pthread_mutex_lock(&f->positions.lock);
    bool is_answered = positions_suffice(f, l);
    bool begins = !is_answered && !f->positions.is_reading;
    if (!is_answered) list_move_last(&f->positions.waiting, &l->link);
    if (begins) f->positions.is_reading = true;
    pthread_mutex_unlock(&f->positions.lock);
    if (is_answered) l->done(l, ERR_OK);
    if (begins) positions_read(f);
}

static void local_look(struct feed *f, struct feed_look *l) {
    l->began_ns = clock_steady_ns();
    l->task = (struct task){.run = local_on_positions, .home = mailbox_mine()};
    list_init(&l->link);
    local_look_on(local_of(f), l);
}

/* Takes the list that was read in place of the one before it. */
static void positions_take(struct local_feed *f) {
    for (int p = 0; p < REQUEST_PARTITIONS; p++) {
        struct open_requests *open = &f->positions.open.partitions[p];
        mem_free(open->seqs);
        *open = f->positions.next.partitions[p];
        atomic_store(&f->partitions[p].undecided, (int64_t)open->count);
    }
    f->positions.began_ns = f->positions.next_began_ns;
    f->positions.ended_ns = clock_steady_ns();
}

/* On the worker that has asked for the list; the looks are answered on theirs. One that began when
 * the list was being read may have to wait for the next one. */
static void positions_on_read(struct task *task) {
    struct local_feed *f = CONTAINER_OF(task, struct local_feed, positions.next.record.task);
    enum err result = f->positions.next.record.result;
    struct list waiting;
    list_init(&waiting);
    pthread_mutex_lock(&f->positions.lock);
    if (result == ERR_OK) positions_take(f);
    while (!list_empty(&f->positions.waiting)) list_move_last(&waiting, f->positions.waiting.next);
    f->positions.is_reading = false;
    pthread_mutex_unlock(&f->positions.lock);
    while (!list_empty(&waiting)) {
        struct feed_look *l = CONTAINER_OF(waiting.next, struct feed_look, link);
        list_remove(&l->link);
        l->result = result;
        mailbox_post(l->task.home, &l->task);
    }
    atomic_fetch_sub(&f->under_way, 1);
}

static void local_on_positions(struct task *task) {
    struct feed_look *l = CONTAINER_OF(task, struct feed_look, task);
    if (l->result == ERR_OK)
        local_look_on(local_of(l->feed), l);
    else
        l->done(l, l->result);
}

/* For the metrics, while there is work. */
static void local_count(struct local_feed *l) {
    pthread_mutex_lock(&l->positions.lock);
    bool is_old = clock_steady_ns() - l->positions.began_ns >= COUNT_NS;
    bool begins = is_old && !l->positions.is_reading && !l->workers[0].is_draining &&
                  !atomic_exchange(&l->is_counted, true);
    if (begins) l->positions.is_reading = true;
    pthread_mutex_unlock(&l->positions.lock);
    if (begins) positions_read(l);
}

/* ---- the workers ---- */

static void local_tick(struct feed *f, size_t worker) {
    struct local_feed *l = local_of(f);
    int64_t now_ms = clock_steady_ms();
    bool renews = l->is_shared && worker == 0 &&
                  clock_steady_ns() - l->lease.asked_ns >= RENEW_MS * INT64_C(1000000);
    if (renews) local_ask_lease(l);
    if (worker == 0) local_count(l);
    for (size_t i = worker; i < REQUEST_PARTITIONS; i += l->worker_count) {
        struct local_partition *p = &l->partitions[i];
        if (l->is_shared && now_ms - p->polled_ms >= POLL_MS) {
            p->polled_ms = now_ms;
            p->has_more = true;
        }
        local_read(p);
    }
}

static void local_nudge(struct feed *f, int partition) {
    local_wake(&local_of(f)->partitions[partition]);
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
    if (l->is_shared && worker == 0) local_ask_lease(l);
}

static void local_drain(struct feed *f, size_t worker) {
    struct local_feed *l = local_of(f);
    l->workers[worker].is_draining = true;
    for (size_t i = worker; i < REQUEST_PARTITIONS; i += l->worker_count)
        atomic_store(&l->partitions[i].home, NULL);
    atomic_fetch_add(&l->draining, 1);
    local_release_all(l);
}

static void local_stats(struct feed *f, struct feed_stats *out) {
    struct local_feed *l = local_of(f);
    *out = (struct feed_stats){.is_available = true};
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        struct local_partition *p = &l->partitions[i];
        out->in_flight += (int64_t)atomic_load(&p->delivered);
        out->lags[out->lag_count++] = (struct feed_lag){i, atomic_load(&p->undecided)};
    }
}

static bool local_is_busy(struct feed *f) {
    return atomic_load(&local_of(f)->under_way) > 0;
}

static void local_close(struct feed *f) {
    struct local_feed *l = local_of(f);
    for (int p = 0; p < REQUEST_PARTITIONS; p++) mem_free(l->positions.open.partitions[p].seqs);
    pthread_mutex_destroy(&l->positions.lock);
    mem_free(l->workers);
    mem_free(l);
}

struct feed *local_feed_new(struct ledger *ledger, size_t workers, bool is_shared) {
    static const struct feed_ops ops = {.publish = local_publish,
                                        .attach = local_attach,
                                        .acknowledge = local_acknowledge,
                                        .tick = local_tick,
                                        .look = local_look,
                                        .nudge = local_nudge,
                                        .drain = local_drain,
                                        .stats = local_stats,
                                        .is_busy = local_is_busy,
                                        .close = local_close};
    struct local_feed *l = mem_new(sizeof *l);
    l->port.ops = &ops;
    l->ledger = ledger;
    l->is_shared = is_shared;
    l->lease.node = uuid_new(clock_wall_ms());
    l->worker_count = workers;
    l->workers = mem_new(workers * sizeof *l->workers);
    pthread_mutex_init(&l->positions.lock, NULL);
    list_init(&l->positions.waiting);
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        l->partitions[i].feed = l;
        l->partitions[i].number = i;
        l->partitions[i].wake.run = local_on_woken;
    }
    return &l->port;
}
