#include "service/shadow.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "run/mailbox.h"

#define GOOD_FOR_MS 1000

/* Who waits for one event. */
struct shadow_queue {
    uint64_t *waiting; /* lane × 2^48 + number, ascending */
    size_t count;
    int64_t read_ms; /* steady; 0: never */
    enum err failed; /* of the last reading */
    bool is_being_read;
    struct task_list waiters; /* for the reading */
};

#define LANE_SHIFT 48

static struct shadow_queue *queue_of(struct shadow *s, int64_t event_key) {
    struct shadow_queue *q = map_get(&s->queues, map_key(&event_key));
    if (q != NULL) return q;
    q = mem_new(sizeof *q);
    map_put(&s->queues, map_key(&event_key), q);
    return q;
}

/* How many stand before it, and itself; where it would be when it is not there. */
static uint64_t position_of(const struct shadow_queue *q, uint64_t order) {
    size_t low = 0;
    size_t high = q->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (q->waiting[middle] < order)
            low = middle + 1;
        else
            high = middle;
    }
    return low + 1;
}

static int64_t estimate_s(struct shadow *s, int64_t event_key, uint64_t position) {
    catalogue_open(s->catalogue);
    const struct event *e = catalogue_find_key(s->catalogue, event_key);
    uint64_t batch = e == NULL ? 1 : (uint64_t)e->queue.entry_batch_size;
    int64_t interval_s = e == NULL ? 0 : e->queue.entry_interval_s;
    catalogue_shut(s->catalogue);
    return (int64_t)((position + batch - 1) / batch) * interval_s;
}

/* The queue has been read. */
static void answer(struct shadow_look *l) {
    struct shadow *s = l->shadow;
    pthread_mutex_lock(&s->lock);
    enum err failed = l->queue->failed;
    l->place.position = position_of(l->queue, (uint64_t)l->place.lane << LANE_SHIFT | l->seq);
    l->place.waiting = l->queue->count;
    pthread_mutex_unlock(&s->lock);
    l->place.estimate_s = estimate_s(s, l->event_key, l->place.position);
    l->done(l, failed);
}

static void on_woken(struct task *task) {
    answer(CONTAINER_OF(task, struct shadow_look, woken));
}

static void queue_read(struct shadow_look *l, enum err failed) {
    struct shadow *s = l->shadow;
    struct shadow_queue *q = l->queue;
    pthread_mutex_lock(&s->lock);
    if (failed == ERR_OK) {
        mem_free(q->waiting);
        q->waiting = l->read.waiting;
        q->count = l->read.count;
        q->read_ms = clock_steady_ms();
    }
    q->failed = failed;
    q->is_being_read = false;
    struct task_list waiters = q->waiters;
    q->waiters = (struct task_list){0};
    pthread_mutex_unlock(&s->lock);
    struct task *task;
    while ((task = task_list_take(&waiters)) != NULL) mailbox_post(task->home, task);
    answer(l);
}

static void on_read(struct task *task) {
    struct shadow_look *l = CONTAINER_OF(task, struct shadow_look, read.record.task);
    queue_read(l, l->read.record.result);
}

/* Reads the queue if that is old; or waits for whoever does. */
static void find_position(struct shadow_look *l) {
    struct shadow *s = l->shadow;
    pthread_mutex_lock(&s->lock);
    struct shadow_queue *q = queue_of(s, l->event_key);
    l->queue = q;
    bool is_good = q->read_ms != 0 && clock_steady_ms() - q->read_ms < GOOD_FOR_MS;
    bool reads = !is_good && !q->is_being_read;
    if (reads) q->is_being_read = true;
    if (!is_good && !reads) {
        l->woken = (struct task){.run = on_woken, .home = mailbox_mine()};
        task_list_add(&q->waiters, &l->woken);
    }
    pthread_mutex_unlock(&s->lock);
    if (is_good) answer(l);
    if (!reads) return;
    l->read = (struct ledger_waiting_read){
        .record = {.kind = LEDGER_WAITING_READ, .task.run = on_read}, .event_key = l->event_key};
    enum err refused = ledger_ask(s->ledger, &l->read.record);
    if (refused != ERR_OK) queue_read(l, refused);
}

static void on_entry_got(struct task *task) {
    struct shadow_look *l = CONTAINER_OF(task, struct shadow_look, get.record.task);
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
        find_position(l);
        return;
    }
    bool is_over = got->status == ENTRY_ACTIVE && got->expires_ms <= l->now_ms;
    if (is_over)
        l->place.status = ENTRY_EXPIRED;
    else if (got->status == ENTRY_ACTIVE)
        l->place.expires_ms = got->expires_ms;
    l->done(l, ERR_OK);
}

void shadow_look(struct shadow *s, struct shadow_look *l) {
    l->shadow = s;
    l->get =
        (struct ledger_entry_get){.record = {.kind = LEDGER_ENTRY_GET, .task.run = on_entry_got},
                                  .event_key = l->event_key,
                                  .seq = l->seq};
    enum err refused = ledger_ask(s->ledger, &l->get.record);
    if (refused != ERR_OK) l->done(l, refused);
}

void shadow_init(struct shadow *s) {
    pthread_mutex_init(&s->lock, NULL);
    map_init(&s->queues);
}

void shadow_deinit(struct shadow *s) {
    size_t at = 0;
    struct shadow_queue *q;
    while ((q = map_next(&s->queues, &at)) != NULL) {
        mem_free(q->waiting);
        mem_free(q);
    }
    map_deinit(&s->queues);
    pthread_mutex_destroy(&s->lock);
}
