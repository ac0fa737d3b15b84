/* What operators and machines ask about the server itself. */
#include <stdio.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"
#include "base/metrics.h"

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
    struct ledger_health ledger;
    ledger_health(api->events.ledger, &ledger);
    bool stopping = atomic_load(&api->stopping);
    bool ready = ledger.writable && !stopping;
    if (!ready) reply_header(x, STR("Retry-After"), STR("1"));
    struct json_out j;
    json_out_init(&j, reply_start(x, ready ? 200 : 503));
    json_out_object(&j, STR(""));
    json_out_bool(&j, STR("ready"), ready);
    json_out_str(&j, STR("ledger"), ledger.writable ? STR("ok") : STR("failing"));
    json_out_bool(&j, STR("stopping"), stopping);
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}

static void gauge(struct buf *out, const char *name, const char *help, int64_t value) {
    metrics_head(out, name, "gauge", help);
    metrics_value(out, name, "", value);
}

/* What every queue holds now, asked of all of them at once. */
struct survey {
    struct exchange *x;
    struct api *api;
    size_t asked;
    size_t left; /* to be answered, and one for whoever asks */
    struct survey_row {
        struct look_op look;
        struct survey *survey;
        char event[EVENT_PATH_BYTES];
    } rows[];
};

static void gauge_per_event(struct buf *out, const char *name, const char *help,
                            const struct survey *s, size_t member) {
    if (s->asked == 0) return;
    metrics_head(out, name, "gauge", help);
    for (size_t i = 0; i < s->asked; i++) {
        const struct survey_row *row = &s->rows[i];
        char labels[EVENT_PATH_BYTES + 16];
        if (row->look.op.result != ERR_OK) continue; /* deleted meanwhile */
        snprintf(labels, sizeof labels, "event=\"%s\"", row->event);
        const uint64_t *value = (const void *)((const char *)&row->look.counts + member);
        metrics_value(out, name, labels, (int64_t)*value);
    }
}

static void answer_metrics(struct survey *s) {
    struct api *api = s->api;
    struct ledger_health ledger;
    ledger_health(api->events.ledger, &ledger);
    struct buf *out = reply_start(s->x, 200);
    metrics_render(out);
    gauge(out, "admitone_connections", "Connections open now", net_connections(api->net));
    gauge(out, "admitone_events", "Events that exist", (int64_t)s->asked);
    gauge_per_event(out, "admitone_queue_waiting", "Entries that wait", s,
                    offsetof(struct queue_counts, waiting));
    gauge_per_event(out, "admitone_queue_active", "Entries that are active", s,
                    offsetof(struct queue_counts, active));
    gauge(out, "admitone_sse_streams", "Streams open now",
          (int64_t)(counter_total(COUNT_SSE_OPENED) - counter_total(COUNT_SSE_CLOSED)));
    gauge(out, "admitone_ledger_queue_depth", "Records that wait for their commit",
          ledger.queue_depth);
    gauge(out, "admitone_ledger_wal_bytes", "Bytes of the write-ahead log not folded in yet",
          ledger.wal_bytes);
    gauge(out, "admitone_ledger_writable", "1 unless the last batch failed", ledger.writable);
    gauge(out, "admitone_start_time_seconds", "When the server started", api->started_ms / 1000);
    metrics_head(out, "admitone_build_info", "gauge", "The version that runs");
    metrics_value(out, "admitone_build_info", "version=\"" ADMITONE_VERSION "\"", 1);
    reply_send(s->x, STR("text/plain; version=0.0.4"));
}

static void survey_answered(struct survey *s) {
    if (--s->left == 0) answer_metrics(s);
}

static void on_counted(struct look_op *look) {
    survey_answered(CONTAINER_OF(look, struct survey_row, look)->survey);
}

void system_metrics(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct catalogue *catalogue = api->events.catalogue;
    const struct event *e;
    size_t events = catalogue_count(catalogue);
    struct survey *s = arena_new(&x->arena, sizeof *s + events * sizeof s->rows[0]);
    s->x = x;
    s->api = api;
    catalogue_open(catalogue);
    while (s->asked < events && (e = catalogue_at(catalogue, s->asked)) != NULL) {
        struct survey_row *row = &s->rows[s->asked++];
        row->survey = s;
        row->look.op.event_key = e->key;
        row->look.op.now_ms = clock_wall_ms();
        row->look.done = on_counted;
        event_path(str_of(e->type), str_of(e->id), row->event);
    }
    catalogue_shut(catalogue);
    s->left = s->asked + 1;
    for (size_t i = 0; i < s->asked; i++) queues_look(api->events.queues, &s->rows[i].look);
    survey_answered(s);
}

void system_openapi(struct api *api, struct exchange *x, const str *captures) {
    (void)api;
    (void)captures;
    buf_add(reply_start(x, 200), str_of(openapi_json));
    reply_send(x, STR("application/json"));
}
