/* Positions computed from the ledger's list of WAITING entries, and the reading of that list. */
#include "service/degraded_reads.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "run/mailbox.h"

#define GOOD_FOR_MS 1000

/* The WAITING entries of one event. */
struct degraded_queue {
    uint64_t *waiting; /* lane × 2^48 + number, ascending */
    size_t count;
    int64_t read_ms; /* steady; 0: never */
    enum err failed; /* of the last reading */
    bool is_being_read;
    struct task_list waiters; /* for the reading */
};

#define LANE_SHIFT 48

/* The rules by which a wait is estimated. */
struct pace {
    uint64_t batch;
    int64_t interval_s;
};

static void degraded_on_woken(struct task *task), degraded_on_read(struct task *task),
    degraded_on_entry_got(struct task *task);
static void degraded_end_read(struct degraded_read *r, enum err failed);
static void degraded_on_position_known(struct degraded_read *r, enum err result),
    degraded_on_scan_read(struct degraded_read *r, enum err result);

static struct degraded_queue *degraded_queue_of(struct degraded_reads *s, int64_t event_key) {
    struct degraded_queue *q = map_get(&s->queues, map_key(&event_key));
    if (q != NULL) return q;
    q = mem_new(sizeof *q);
    map_put(&s->queues, map_key(&event_key), q);
    return q;
}

static uint64_t degraded_order(unsigned lane, uint64_t seq) {
    return (uint64_t)lane << LANE_SHIFT | seq;
}

/* How many wait before it. */
static size_t degraded_count_before(const struct degraded_queue *q, uint64_t order) {
    size_t low = 0;
    size_t high = q->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (q->waiting[middle] < order)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct pace degraded_pace(struct degraded_reads *s, int64_t event_key) {
    catalogue_read_lock(s->catalogue);
    const struct event *e = catalogue_find_key(s->catalogue, event_key);
    struct pace pace = {.batch = e == NULL ? 1 : (uint64_t)e->queue.entry_batch_size,
                        .interval_s = e == NULL ? 0 : e->queue.entry_interval_s};
    catalogue_read_unlock(s->catalogue);
    return pace;
}

static int64_t degraded_estimate_s(const struct pace *p, uint64_t position) {
    return (int64_t)((position + p->batch - 1) / p->batch) * p->interval_s;
}

/* ---- reading who waits ---- */

/* Reads the list if it is old, or waits for another request that reads it. */
static void degraded_read_waiting(struct degraded_reads *s, struct degraded_read *r) {
    r->degraded_reads = s;
    pthread_mutex_lock(&s->lock);
    struct degraded_queue *q = degraded_queue_of(s, r->event_key);
    r->queue = q;
    bool is_good = q->read_ms != 0 && clock_steady_ms() - q->read_ms < GOOD_FOR_MS;
    bool reads = !is_good && !q->is_being_read;
    if (reads) q->is_being_read = true;
    if (!is_good && !reads) {
        r->woken = (struct task){.run = degraded_on_woken, .home = mailbox_mine()};
        task_list_add(&q->waiters, &r->woken);
    }
    pthread_mutex_unlock(&s->lock);
    if (is_good) r->done(r, ERR_OK);
    if (!reads) return;
    r->read = (struct ledger_waiting_read){
        .record = {.kind = LEDGER_WAITING_READ, .task.run = degraded_on_read},
        .event_key = r->event_key};
    enum err refused = ledger_ask(s->ledger, &r->read.record);
    if (refused != ERR_OK) degraded_end_read(r, refused);
}

static void degraded_end_read(struct degraded_read *r, enum err failed) {
    struct degraded_reads *s = r->degraded_reads;
    struct degraded_queue *q = r->queue;
    pthread_mutex_lock(&s->lock);
    if (failed == ERR_OK) {
        mem_free(q->waiting);
        q->waiting = r->read.waiting;
        q->count = r->read.count;
        q->read_ms = clock_steady_ms();
    }
    q->failed = failed;
    q->is_being_read = false;
    struct task_list waiters = q->waiters;
    q->waiters = (struct task_list){0};
    pthread_mutex_unlock(&s->lock);
    struct task *task;
    while ((task = task_list_take(&waiters)) != NULL) mailbox_post(task->home, task);
    r->done(r, failed);
}

static void degraded_on_read(struct task *task) {
    struct degraded_read *r = CONTAINER_OF(task, struct degraded_read, read.record.task);
    degraded_end_read(r, r->read.record.result);
}

static void degraded_on_woken(struct task *task) {
    struct degraded_read *r = CONTAINER_OF(task, struct degraded_read, woken);
    pthread_mutex_lock(&r->degraded_reads->lock);
    enum err failed = r->queue->failed;
    pthread_mutex_unlock(&r->degraded_reads->lock);
    r->done(r, failed);
}

/* ---- one place ---- */

void degraded_look(struct degraded_reads *s, struct degraded_look *l) {
    l->degraded_reads = s;
    l->get = (struct ledger_entry_get){
        .record = {.kind = LEDGER_ENTRY_GET, .task.run = degraded_on_entry_got},
        .event_key = l->event_key,
        .seq = l->seq};
    enum err refused = ledger_ask(s->ledger, &l->get.record);
    if (refused != ERR_OK) l->done(l, refused);
}

static void degraded_on_entry_got(struct task *task) {
    struct degraded_look *l = CONTAINER_OF(task, struct degraded_look, get.record.task);
    const struct ledger_entry_get *got = &l->get;
    if (got->record.result != ERR_OK) {
        l->done(l, got->record.result);
        return;
    }
    l->place = (struct place){.status = got->status, .seq = l->seq, .lane = got->lane};
    l->user_len = got->user_len;
    memcpy(l->user, got->user, got->user_len);
    l->place.joined_ms = got->joined_ms;
    if (got->status == ENTRY_WAITING) {
        l->read =
            (struct degraded_read){.event_key = l->event_key, .done = degraded_on_position_known};
        degraded_read_waiting(l->degraded_reads, &l->read);
        return;
    }
    bool is_over = got->status == ENTRY_ACTIVE && got->expires_ms <= l->now_ms;
    if (is_over)
        l->place.status = ENTRY_EXPIRED;
    else if (got->status == ENTRY_ACTIVE)
        l->place.expires_ms = got->expires_ms;
    l->done(l, ERR_OK);
}

static void degraded_on_position_known(struct degraded_read *r, enum err result) {
    struct degraded_look *l = CONTAINER_OF(r, struct degraded_look, read);
    struct degraded_reads *s = l->degraded_reads;
    struct pace pace = degraded_pace(s, l->event_key);
    pthread_mutex_lock(&s->lock);
    l->place.position = degraded_count_before(r->queue, degraded_order(l->place.lane, l->seq)) + 1;
    l->place.waiting = r->queue->count;
    pthread_mutex_unlock(&s->lock);
    l->place.estimate_s = degraded_estimate_s(&pace, l->place.position);
    l->done(l, result);
}

/* ---- many places ---- */

void degraded_scan(struct degraded_reads *s, struct degraded_scan *c) {
    c->degraded_reads = s;
    c->read = (struct degraded_read){.event_key = c->event_key, .done = degraded_on_scan_read};
    degraded_read_waiting(s, &c->read);
}

static void degraded_on_scan_read(struct degraded_read *r, enum err result) {
    struct degraded_scan *c = CONTAINER_OF(r, struct degraded_scan, read);
    struct degraded_reads *s = c->degraded_reads;
    struct pace pace = degraded_pace(s, c->event_key);
    pthread_mutex_lock(&s->lock);
    const struct degraded_queue *q = r->queue;
    c->waiting = q->count;
    for (size_t i = 0; i < c->count; i++) {
        struct look_item *item = &c->items[i];
        uint64_t order = degraded_order(c->lanes[i], item->seq);
        size_t before = degraded_count_before(q, order);
        bool waits = before < q->count && q->waiting[before] == order;
        item->reserving = false;
        item->place =
            (struct place){.status = waits ? ENTRY_WAITING : ENTRY_NONE,
                           .seq = item->seq,
                           .position = waits ? before + 1 : 0,
                           .waiting = q->count,
                           .estimate_s = waits ? degraded_estimate_s(&pace, before + 1) : 0};
    }
    pthread_mutex_unlock(&s->lock);
    c->done(c, result);
}

/* ---- start and stop ---- */

void degraded_init(struct degraded_reads *s) {
    pthread_mutex_init(&s->lock, NULL);
    map_init(&s->queues);
}

void degraded_deinit(struct degraded_reads *s) {
    size_t at = 0;
    struct degraded_queue *q;
    while ((q = map_next(&s->queues, &at)) != NULL) {
        mem_free(q->waiting);
        mem_free(q);
    }
    map_deinit(&s->queues);
    pthread_mutex_destroy(&s->lock);
}
