/* The paths about the server itself: /health, /ready, /metrics, /openapi.json. */
#include <stdio.h>

#include "api/api.h"
#include "base/json_out.h"
#include "base/list.h"
#include "base/metrics.h"
#include "net/stream.h"
#include "service/event_views.h"
#include "service/health.h"
#include "service/reservation_metrics.h"

extern const char openapi_json[];

void system_health(struct api *api, struct exchange *x, const str *captures) {
    (void)api;
    (void)captures;
    struct json_out j;
    json_out_init(&j, reply_start(x, 200));
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("status"), STR("ok"));
    json_out_str(&j, STR("version"), STR(ADMITONE_VERSION));
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}

/* Ready: new work may be sent here. A balancer takes a node out while this is 503. */
void system_ready(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct health h = health_read(&api->events, api->rebuilder);
    bool stopping = atomic_load(&api->stopping);
    bool ready = h.ready && !stopping;
    struct feed_stats feed;
    requests_stats(&api->requests, &feed);
    if (!ready) reply_header(x, STR("Retry-After"), STR("1"));
    struct json_out j;
    json_out_init(&j, reply_start(x, ready ? 200 : 503));
    json_out_object(&j, STR(""));
    json_out_bool(&j, STR("ready"), ready);
    json_out_str(&j, STR("ledger"), health_ledger_word(&h));
    json_out_str(&j, STR("hot"), health_hot_word(&h));
    json_out_str(&j, STR("events"), h.events_are_late ? STR("behind") : STR("ok"));
    /* Every node sees the same Kafka, and everything but asynchronous requests goes on without it.
     */
    json_out_str(&j, STR("feed"), feed.is_available ? STR("ok") : STR("unavailable"));
    json_out_bool(&j, STR("stopping"), stopping);
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}

/* ---- metrics ---- */

static void gauge(struct buf *out, const char *name, const char *help, int64_t value) {
    metrics_head(out, name, "gauge", help);
    metrics_value(out, name, "", value);
}

static void gauge_hot_state(struct buf *out, enum hot_state now) {
    static const char name[] = "admitone_hot_state";
    metrics_head(out, name, "gauge", "1 for the state that the hot store is in");
    for (int state = 0; state < HOT_STATES; state++) {
        char label[32];
        snprintf(label, sizeof label, "state=\"%s\"", hot_state_words[state].at);
        metrics_value(out, name, label, (enum hot_state)state == now);
    }
}

static void gauge_feed(struct buf *out, struct api *api, const struct ledger_health *ledger) {
    static const char name[] = "admitone_request_lag";
    struct feed_stats feed;
    requests_stats(&api->requests, &feed);
    gauge(out, "admitone_requests_undecided", "Asynchronous requests that are not decided yet",
          requests_undecided(&feed, ledger));
    gauge(out, "admitone_requests_in_flight", "Asynchronous requests that this node is deciding",
          feed.in_flight);
    gauge(out, "admitone_feed_available", "1 if asynchronous requests can be accepted",
          feed.is_available);
    if (feed.lag_count == 0) return;
    metrics_head(out, name, "gauge", "Undecided requests by partition of the feed");
    for (size_t i = 0; i < feed.lag_count; i++) {
        char label[32];
        snprintf(label, sizeof label, "partition=\"%d\"", feed.lags[i].partition);
        metrics_value(out, name, label, feed.lags[i].lag);
    }
}

struct metrics_request {
    struct event_views views; /* of all events that are shown */
    struct exchange *x;
    struct api *api;
    bool knows_seats;
};

#define EVENT_LABEL_BYTES (EVENT_PATH_BYTES + 16)
#define SEAT_LABELS_BYTES (EVENT_LABEL_BYTES + SECTION_ID_BYTES_MAX + 48)

/* event="CONCERT/1" */
static void event_label(const struct event *e, char out[EVENT_LABEL_BYTES]) {
    snprintf(out, EVENT_LABEL_BYTES, "event=\"%s/%s\"", e->type, e->id);
}

static void gauge_per_event(struct buf *out, const char *name, const char *help,
                            const struct metrics_request *q, size_t member) {
    if (q->views.count == 0) return;
    metrics_head(out, name, "gauge", help);
    for (const struct event_view *view = q->views.first; view != NULL; view = view->next) {
        char label[EVENT_LABEL_BYTES];
        if (view->queue.op.result != ERR_OK) continue;
        event_label(view->event, label);
        const uint64_t *value = (const void *)((const char *)&view->queue.counts + member);
        metrics_value(out, name, label, (int64_t)*value);
    }
}

static void metrics_add_seats(struct buf *out, const struct event *e, const struct section *s) {
    const struct {
        const char *state;
        int64_t count;
    } rows[] = {
        {"available", section_available(s)}, {"held", s->held}, {"confirmed", s->confirmed}};
    char label[EVENT_LABEL_BYTES];
    char labels[SEAT_LABELS_BYTES];
    event_label(e, label);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(labels, sizeof labels, "%s,section=\"%s\",state=\"%s\"", label, s->id,
                 rows[i].state);
        metrics_value(out, "admitone_seats", labels, rows[i].count);
    }
}

/* event="CONCERT/1",section="A" */
static void section_labels(const struct event *e, const struct section *s,
                           char out[SEAT_LABELS_BYTES]) {
    char label[EVENT_LABEL_BYTES];
    event_label(e, label);
    snprintf(out, SEAT_LABELS_BYTES, "%s,section=\"%s\"", label, s->id);
}

static void add_seat_use(struct buf *out, const struct event *e, const struct section *s) {
    char labels[SEAT_LABELS_BYTES];
    section_labels(e, s, labels);
    metrics_ratio(out, "admitone_seat_use_ratio", labels,
                  (double)(s->held + s->confirmed) / (double)s->capacity);
}

static void gauge_per_section(struct buf *out, const char *name, const char *help,
                              const struct metrics_request *q,
                              void (*add)(struct buf *out, const struct event *e,
                                          const struct section *section)) {
    if (q->views.count == 0 || !q->knows_seats) return;
    metrics_head(out, name, "gauge", help);
    for (const struct event_view *view = q->views.first; view != NULL; view = view->next) {
        const struct event *e = view->event;
        for (size_t k = 0; k < e->section_count; k++) add(out, e, &e->sections[k]);
    }
}

/* Which strategy each adaptive section uses now. Nothing if there is no such section. */
static void gauge_adaptive(struct buf *out, const struct metrics_request *q) {
    static const char name[] = "admitone_adaptive_hot";
    bool has_head = false;
    for (const struct event_view *view = q->views.first; view != NULL; view = view->next) {
        const struct event *e = view->event;
        for (size_t k = 0; k < e->section_count; k++) {
            const struct section *section = &e->sections[k];
            if (section->mode != SECTION_MODE_ADAPTIVE) continue;
            if (!has_head) metrics_head(out, name, "gauge", "1: the section uses slot, 0: lock");
            has_head = true;
            char labels[SEAT_LABELS_BYTES];
            section_labels(e, section, labels);
            enum strategy choice = strategy_now(&q->api->reservations, section->mode, section->key);
            metrics_value(out, name, labels, choice == STRATEGY_SLOT);
        }
    }
}

static void metrics_on_counted(struct event_views *views, enum err result) {
    struct metrics_request *q = CONTAINER_OF(views, struct metrics_request, views);
    struct api *api = q->api;
    struct health health = health_read(&api->events, api->rebuilder);
    struct buf *out = reply_start(q->x, 200);
    q->knows_seats = result == ERR_OK;
    /* Before the counters: strategy_now may find that a section has cooled down, and count that. */
    gauge_adaptive(out, q);
    metrics_render(out);
    reservation_metrics_render(out);
    gauge(out, "admitone_connections", "Connections open now", net_connections(api->net));
    gauge(out, "admitone_events", "Events that exist, of those that the request may see",
          (int64_t)q->views.count);
    gauge_per_event(out, "admitone_queue_waiting", "Entries that wait", q,
                    offsetof(struct queue_counts, waiting));
    gauge_per_event(out, "admitone_queue_active", "Entries that are active", q,
                    offsetof(struct queue_counts, active));
    gauge_per_section(out, "admitone_seats", "Seats by state", q, metrics_add_seats);
    gauge_per_section(out, "admitone_seat_use_ratio", "Share of the seats that are held or sold", q,
                      add_seat_use);
    gauge(out, "admitone_sse_streams", "Streams open now", streams_open());
    gauge(out, "admitone_ledger_queue_depth", "Records waiting for their commit",
          health.ledger.queue_depth);
    gauge_feed(out, api, &health.ledger);
    gauge(out, "admitone_facts_unpublished_seconds",
          "Age of the oldest fact that this node has still to publish",
          api->fact_publisher == NULL ? 0 : fact_publisher_lag_ms(api->fact_publisher) / 1000);
    gauge(out, "admitone_ledger_wal_bytes",
          "Bytes of the write-ahead log that are not checkpointed yet", health.ledger.wal_bytes);
    gauge(out, "admitone_ledger_writable", "1 unless the last batch failed",
          health.ledger.writable);
    gauge_hot_state(out, health.hot);
    gauge(out, "admitone_start_time_seconds", "When the server started", api->started_ms / 1000);
    metrics_head(out, "admitone_build_info", "gauge", "Version of the running program");
    metrics_value(out, "admitone_build_info", "version=\"" ADMITONE_VERSION "\"", 1);
    reply_send(q->x, STR("text/plain; version=0.0.4"));
}

void system_metrics(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct catalogue *catalogue = api->events.catalogue;
    struct metrics_request *q = arena_new(&x->arena, sizeof *q);
    const struct event *e;
    q->x = x;
    q->api = api;
    q->views.seats = true;
    q->views.queues = true;
    q->views.done = metrics_on_counted;
    catalogue_read_lock(catalogue);
    for (size_t at = 0; (e = catalogue_at(catalogue, at)) != NULL; at++)
        if (api_shows(x, e)) event_views_add(&q->views, &x->arena, e);
    catalogue_read_unlock(catalogue);
    event_views_count(&q->views, &api->events, api->snapshot);
}

void system_openapi(struct api *api, struct exchange *x, const str *captures) {
    (void)api;
    (void)captures;
    buf_add(reply_start(x, 200), str_of(openapi_json));
    reply_send(x, STR("application/json"));
}
