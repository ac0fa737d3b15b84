/* Gathers the figures on the thread of the first who asks, and hands them to all who wait. */
#include "service/stats.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "run/mailbox.h"

static void stats_on_counted(struct event_views *views, enum err result);
static void stats_on_gathered(struct task *task);

/* ---- latencies ---- */

static void stats_sample_take(struct stats_sample *now) {
    /* The operations of the hot store that are measured; all in nanoseconds. */
    static const enum histogram hot[] = {
        HISTOGRAM_QUEUE_ENTER_SECONDS, HISTOGRAM_QUEUE_LOOK_SECONDS, HISTOGRAM_QUEUE_ADMIT_SECONDS,
        HISTOGRAM_SLOT_CLAIM_SECONDS};
    *now = (struct stats_sample){.at_ns = clock_steady_ns()};
    histogram_add_total(HISTOGRAM_REQUEST_SECONDS, &now->requests);
    histogram_add_total(HISTOGRAM_LEDGER_COMMIT_SECONDS, &now->ledger);
    for (size_t i = 0; i < sizeof hot / sizeof hot[0]; i++) histogram_add_total(hot[i], &now->hot);
}

/* What was measured since `before`. `units` of the histogram are a millisecond. */
static struct stats_latency stats_latency_since(const struct histogram_total *now,
                                                const struct histogram_total *before,
                                                double units) {
    struct histogram_total since = *now;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) since.buckets[i] -= before->buckets[i];
    return (struct stats_latency){.count = histogram_count(&since),
                                  .p50_ms = histogram_quantile(&since, 0.50) / units,
                                  .p99_ms = histogram_quantile(&since, 0.99) / units};
}

/* The oldest sample of the window; if all are older, the latest one. */
static const struct stats_sample *stats_window_begin(const struct stats *s, int64_t now_ns) {
    const struct stats_sample *begin = &s->samples[(s->sample_count - 1) % STATS_SAMPLES];
    for (size_t back = 1; back <= STATS_SAMPLES && back <= s->sample_count; back++) {
        const struct stats_sample *one = &s->samples[(s->sample_count - back) % STATS_SAMPLES];
        if (now_ns - one->at_ns > (int64_t)STATS_WINDOW_MS * 1000000) break;
        begin = one;
    }
    return begin;
}

static void stats_add_latencies(struct stats *s, struct stats_figures *f) {
    struct stats_sample now;
    stats_sample_take(&now);
    const struct stats_sample *begin = stats_window_begin(s, now.at_ns);
    f->window_s = (double)(now.at_ns - begin->at_ns) / 1e9;
    f->requests = stats_latency_since(&now.requests, &begin->requests, 1e3);
    f->hot = stats_latency_since(&now.hot, &begin->hot, 1e6);
    f->ledger = stats_latency_since(&now.ledger, &begin->ledger, 1e3);
    s->samples[s->sample_count++ % STATS_SAMPLES] = now;
}

/* ---- gathering ---- */

/* Of two that are equally busy, the one whose name is first stays first. */
static int stats_compare(const void *left, const void *right) {
    const struct stats_event *a = left;
    const struct stats_event *b = right;
    uint64_t users_a = a->queue.waiting + a->queue.active;
    uint64_t users_b = b->queue.waiting + b->queue.active;
    if (users_a != users_b) return users_a > users_b ? -1 : 1;
    int by_type = strcmp(a->event->type, b->event->type);
    return by_type != 0 ? by_type : strcmp(a->event->id, b->event->id);
}

static void stats_add_total(struct stats_totals *t, const struct stats_event *e) {
    t->waiting += e->queue.waiting;
    t->active += e->queue.active;
    t->entered += e->queue.entered;
    t->admitted += e->queue.admitted;
    t->completed += e->queue.completed;
    t->rejected += e->queue.rejected;
    t->available += e->seats.available;
    t->held += e->seats.held;
    t->confirmed += e->seats.confirmed;
}

static void stats_gather(struct stats *s) {
    struct stats_figures *f = mem_new(sizeof *f);
    const struct event *e;
    f->of = s;
    f->holders = 1;
    f->views.queues = true;
    f->views.done = stats_on_counted;
    catalogue_read_lock(s->events->catalogue);
    for (size_t at = 0; (e = catalogue_at(s->events->catalogue, at)) != NULL; at++)
        event_views_add(&f->views, &f->arena, e);
    catalogue_read_unlock(s->events->catalogue);
    event_views_count(&f->views, s->events, s->snapshot);
}

static void stats_on_counted(struct event_views *views, enum err result) {
    struct stats_figures *f = CONTAINER_OF(views, struct stats_figures, views);
    struct stats *s = f->of;
    f->now_ms = clock_wall_ms();
    f->degraded = result != ERR_OK;
    f->events = arena_new(&f->arena, (views->count + 1) * sizeof *f->events);
    for (const struct event_view *view = views->first; view != NULL; view = view->next) {
        struct stats_event *e = &f->events[f->event_count++];
        *e = (struct stats_event){view->event, view->queue.counts, view->queue.seats};
        stats_add_total(&f->totals, e);
    }
    qsort(f->events, f->event_count, sizeof *f->events, stats_compare);
    stats_add_latencies(s, f);
    s->render(s->to, f);

    struct task_list readers;
    pthread_mutex_lock(&s->lock);
    struct stats_figures *before = s->latest;
    s->latest = f;
    s->gathering = false;
    readers = s->readers;
    s->readers = (struct task_list){0};
    atomic_fetch_add(&f->holders, readers.count);
    pthread_mutex_unlock(&s->lock);
    if (before != NULL) stats_release(before);
    struct task *task;
    while ((task = task_list_take(&readers)) != NULL) {
        CONTAINER_OF(task, struct stats_read, task)->figures = f;
        mailbox_post(task->home, task);
    }
}

/* ---- reading ---- */

static void stats_answer(struct stats_read *r, struct stats_figures *f) {
    struct stats *s = r->of;
    r->done(r, f); /* `r` may be gone then */
    atomic_fetch_sub(&s->under_way, 1);
}

void stats_read(struct stats *s, struct stats_read *r) {
    int64_t now_ms = clock_steady_ms();
    r->of = s;
    r->task = (struct task){.run = stats_on_gathered, .home = mailbox_mine()};
    atomic_fetch_add(&s->under_way, 1);
    pthread_mutex_lock(&s->lock);
    struct stats_figures *fresh =
        s->gathering || now_ms - s->gathered_ms >= STATS_MS ? NULL : s->latest;
    bool begins = fresh == NULL && !s->gathering;
    if (fresh != NULL) atomic_fetch_add(&fresh->holders, 1);
    if (fresh == NULL) task_list_add(&s->readers, &r->task);
    if (begins) {
        s->gathering = true;
        s->gathered_ms = now_ms;
    }
    pthread_mutex_unlock(&s->lock);
    if (fresh != NULL) stats_answer(r, fresh);
    if (begins) stats_gather(s);
}

static void stats_on_gathered(struct task *task) {
    struct stats_read *r = CONTAINER_OF(task, struct stats_read, task);
    stats_answer(r, r->figures);
}

void stats_release(struct stats_figures *f) {
    if (atomic_fetch_sub(&f->holders, 1) > 1) return;
    buf_deinit(&f->text);
    arena_reset(&f->arena);
    mem_free(f);
}

const struct stats_event *stats_find(const struct stats_figures *f, int64_t event_key) {
    for (size_t i = 0; i < f->event_count; i++)
        if (f->events[i].event->key == event_key) return &f->events[i];
    return NULL;
}

/* ---- start and stop ---- */

void stats_init(struct stats *s) {
    pthread_mutex_init(&s->lock, NULL);
    s->samples[0].at_ns = clock_steady_ns(); /* nothing was measured before */
    s->sample_count = 1;
}

void stats_deinit(struct stats *s) {
    assert(!stats_is_busy(s));
    if (s->latest != NULL) stats_release(s->latest);
    pthread_mutex_destroy(&s->lock);
}

bool stats_is_busy(struct stats *s) {
    return atomic_load(&s->under_way) > 0;
}
