/*
 * stats: the counts of all events, and how fast this node answers, for the admin API. They are
 * gathered when they are asked for, and at most once a second, however many ask: so they may be
 * STATS_MS old. Where nodes share the hot store, the counts are those of the whole cluster, from
 * the snapshot.
 *
 * The functions may be called on any worker's thread, unless stated otherwise.
 */
#ifndef ADMITONE_SERVICE_STATS_H
#define ADMITONE_SERVICE_STATS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/metrics.h"
#include "service/event_views.h"

#define STATS_MS 1000
/* Latencies are those of about the last ten seconds: of as many gatherings. */
#define STATS_WINDOW_MS 10000
#define STATS_SAMPLES 16

struct stats_event {
    const struct event *event;
    struct queue_counts queue;
    struct seat_counts seats;
};

struct stats_totals {
    uint64_t waiting;
    uint64_t active;
    uint64_t entered;
    uint64_t admitted;
    uint64_t completed;
    uint64_t rejected;
    uint64_t available;
    uint64_t held;
    uint64_t confirmed;
};

struct stats_latency {
    uint64_t count; /* 0: nothing was measured, and the others are 0 */
    double p50_ms;
    double p99_ms;
};

/* Never written after they have been gathered. */
struct stats_figures {
    int64_t now_ms;
    bool degraded; /* the hot store can't be asked: the counts are the last known ones */
    struct stats_event *events; /* with the most waiting and active users first */
    size_t event_count;
    struct stats_totals totals;
    double window_s; /* since when the latencies were measured */
    struct stats_latency requests;
    struct stats_latency hot;
    struct stats_latency ledger;
    struct buf text; /* by `render` */

    /* Private. */
    _Atomic size_t holders;
    struct arena arena;
    struct event_views views;
    struct stats *of;
};

struct stats_sample {
    int64_t at_ns; /* steady */
    struct histogram_total requests;
    struct histogram_total hot;
    struct histogram_total ledger;
};

struct stats {
    struct events *events;
    struct snapshot *snapshot; /* NULL: the hot store is this process's own */
    /* Writes `text`, once for all who read the figures. */
    void (*render)(void *to, struct stats_figures *f);
    void *to;

    /* Private. */
    _Atomic int64_t under_way;
    pthread_mutex_t lock;
    struct stats_figures *latest; /* under lock, as the rest; NULL: there are none yet */
    int64_t gathered_ms;          /* steady, when that began */
    bool gathering;
    struct task_list readers;                   /* that wait for it */
    struct stats_sample samples[STATS_SAMPLES]; /* only the thread that gathers uses them */
    size_t sample_count;                        /* ever taken; the ring has the last ones */
};

struct stats_read {
    /* On the caller's thread, before the function returns or later. The figures are the caller's
     * until stats_release. */
    void (*done)(struct stats_read *r, struct stats_figures *f);

    /* Private. */
    struct stats *of;
    struct task task;
    struct stats_figures *figures;
};

/* `events`, `render` and `to` are filled in; `snapshot` before the first read. */
void stats_init(struct stats *s);
/* When nothing is under way. */
void stats_deinit(struct stats *s);
/* Whether a read has not been answered yet. From any thread. */
bool stats_is_busy(struct stats *s);

void stats_read(struct stats *s, struct stats_read *r);
void stats_release(struct stats_figures *f);

/* NULL: it is not among them. */
const struct stats_event *stats_find(const struct stats_figures *f, int64_t event_key);

#endif
