/* What operators and machines ask about the server itself. */
#include "api/api.h"
#include "base/clock.h"
#include "base/json_out.h"
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

void system_metrics(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct ledger_health ledger;
    ledger_health(api->events.ledger, &ledger);
    struct buf *out = reply_start(x, 200);
    metrics_render(out);
    gauge(out, "admitone_connections", "Connections open now", net_connections(api->net));
    gauge(out, "admitone_events", "Events that exist",
          (int64_t)catalogue_count(api->events.catalogue));
    gauge(out, "admitone_ledger_queue_depth", "Records that wait for their commit",
          ledger.queue_depth);
    gauge(out, "admitone_ledger_wal_bytes", "Bytes of the write-ahead log not folded in yet",
          ledger.wal_bytes);
    gauge(out, "admitone_ledger_writable", "1 unless the last batch failed", ledger.writable);
    gauge(out, "admitone_start_time_seconds", "When the server started", api->started_ms / 1000);
    metrics_head(out, "admitone_build_info", "gauge", "The version that runs");
    metrics_value(out, "admitone_build_info", "version=\"" ADMITONE_VERSION "\"", 1);
    reply_send(x, STR("text/plain; version=0.0.4"));
}

void system_openapi(struct api *api, struct exchange *x, const str *captures) {
    (void)api;
    (void)captures;
    buf_add(reply_start(x, 200), str_of(openapi_json));
    reply_send(x, STR("application/json"));
}
