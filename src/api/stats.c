/* Renders the figures, for an answer or for the streams. */
#include "api/stats.h"

#include "api/event_json.h"
#include "api/freshness.h"
#include "api/live.h"
#include "api/watch.h"
#include "base/mem.h"
#include "service/event_sync.h"
#include "service/health.h"

/* Of all events, those with the most users are listed. */
#define STATS_EVENTS_MAX 100

/* ---- rendering ---- */

static void seats_to_json(struct json_out *j, uint64_t available, uint64_t held,
                          uint64_t confirmed) {
    json_out_object(j, STR("seats"));
    json_out_i64(j, STR("available"), (int64_t)available);
    json_out_i64(j, STR("held"), (int64_t)held);
    json_out_i64(j, STR("confirmed"), (int64_t)confirmed);
    json_out_object_end(j);
}

static void stats_add_event(struct json_out *j, struct api *api, const struct stats_event *s,
                            int64_t now_ms) {
    const struct event *e = s->event;
    const struct queue_counts *c = &s->queue;
    json_out_object(j, STR(""));
    json_out_str(j, STR("eventType"), str_of(e->type));
    json_out_str(j, STR("eventId"), str_of(e->id));
    json_out_str(j, STR("title"), str_of(e->title));
    json_out_str(j, STR("state"), event_state_words[e->state]);
    json_out_str(j, STR("eventState"), event_state_words[event_effective_state(e, now_ms)]);
    queue_counts_to_json(j, c);
    json_out_f64(j, STR("successRate"),
                 c->entered == 0 ? 0 : (double)c->completed / (double)c->entered);
    seats_to_json(j, s->seats.available, s->seats.held, s->seats.confirmed);
    json_out_i64(j, STR("sseStreams"), (int64_t)live_streams(api, e->key));
    json_out_object_end(j);
}

static void stats_add_totals(struct json_out *j, const struct stats_totals *t) {
    json_out_object(j, STR("totals"));
    json_out_i64(j, STR("waiting"), (int64_t)t->waiting);
    json_out_i64(j, STR("active"), (int64_t)t->active);
    json_out_i64(j, STR("entered"), (int64_t)t->entered);
    json_out_i64(j, STR("admitted"), (int64_t)t->admitted);
    json_out_i64(j, STR("completed"), (int64_t)t->completed);
    json_out_i64(j, STR("rejected"), (int64_t)t->rejected);
    seats_to_json(j, t->available, t->held, t->confirmed);
    json_out_object_end(j);
}

static void stats_add_latency(struct json_out *j, str name, const struct stats_latency *l,
                              double window_s) {
    json_out_object(j, name);
    json_out_f64(j, STR("perSecond"), window_s > 0 ? (double)l->count / window_s : 0);
    if (l->count == 0) {
        json_out_null(j, STR("p50Ms"));
        json_out_null(j, STR("p99Ms"));
    } else {
        json_out_f64(j, STR("p50Ms"), l->p50_ms);
        json_out_f64(j, STR("p99Ms"), l->p99_ms);
    }
    json_out_object_end(j);
}

/* What follows the events. */
static void stats_add_rest(struct json_out *j, struct api *api, const struct stats_figures *f) {
    struct health health = health_read(&api->events, api->rebuilder);
    struct feed_stats feed;
    requests_stats(&api->requests, &feed);
    stats_add_totals(j, &f->totals);
    json_out_bool(j, STR("degraded"), f->degraded);
    json_out_str(j, STR("hot"), health_hot_word(&health));
    json_out_str(j, STR("ledger"), health_ledger_word(&health));
    json_out_i64(j, STR("nodes"),
                 api->events.sync == NULL ? 1 : event_sync_nodes(api->events.sync));
    json_out_i64(j, STR("undecidedRequests"), requests_undecided(&feed, &health.ledger));
    json_out_i64(j, STR("connections"), net_connections(api->net));
    json_out_i64(j, STR("sseStreams"), streams_open());
    json_out_object(j, STR("latency"));
    json_out_f64(j, STR("windowSeconds"), f->window_s);
    stats_add_latency(j, STR("requests"), &f->requests, f->window_s);
    stats_add_latency(j, STR("hot"), &f->hot, f->window_s);
    stats_add_latency(j, STR("ledger"), &f->ledger, f->window_s);
    json_out_object_end(j);
    json_out_time(j, STR("serverTime"), f->now_ms);
}

static void stats_to_json(struct buf *to, struct api *api, const struct stats_figures *f,
                          const struct stats_event *events, size_t shown, size_t event_count) {
    struct json_out j;
    json_out_init(&j, to);
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("events"));
    for (size_t i = 0; i < shown; i++) stats_add_event(&j, api, &events[i], f->now_ms);
    json_out_array_end(&j);
    json_out_i64(&j, STR("eventCount"), (int64_t)event_count);
    json_out_bool(&j, STR("truncated"), shown < event_count);
    stats_add_rest(&j, api, f);
    json_out_object_end(&j);
    json_out_done(&j);
}

void stats_render(void *to, struct stats_figures *f) {
    size_t shown = f->event_count < STATS_EVENTS_MAX ? f->event_count : STATS_EVENTS_MAX;
    stats_to_json(&f->text, to, f, f->events, shown, f->event_count);
}

/* An event that is not among the figures has just been created: nothing was counted yet. */
static void stats_render_one(struct buf *to, struct api *api, const struct stats_figures *f,
                             int64_t event_key) {
    const struct stats_event *found = stats_find(f, event_key);
    struct stats_event one = {0};
    struct event *copy = NULL;
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find_key(api->events.catalogue, event_key);
    if (e != NULL && found == NULL) {
        copy = event_copy(e);
        one = (struct stats_event){.event = copy, .seats = event_seats(copy)};
        found = &one;
    }
    bool exists = e != NULL;
    catalogue_read_unlock(api->events.catalogue);
    stats_to_json(to, api, f, found, exists, exists);
    mem_free(copy);
}

/* ---- the answer ---- */

struct stats_request {
    struct stats_read read;
    struct api *api;
    struct exchange *x;
    int64_t event_key; /* 0: of all */
};

/* The key of the event that the request names; 0: it names none. False: the request has been
 * answered, or continues later. */
static bool read_event(struct api *api, struct exchange *x, int64_t *key) {
    bool bad;
    char path[EVENT_PATH_BYTES];
    str type = {NULL, 0};
    str id = query_value(x, STR("event"), &bad);
    *key = 0;
    if (!bad && id.at == NULL) return true;
    if (bad || !str_split(&id, '/', &type) || id.at == NULL ||
        event_path(type, id, path).len == 0) {
        reply_problem(x, ERR_INVALID_PARAMETER, "%s",
                      "event must be the type and the id of an event, as in CONCERT/1.");
        return false;
    }
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, type, id);
    if (e != NULL) *key = e->key;
    catalogue_read_unlock(api->events.catalogue);
    if (*key != 0) return true;
    if (fresh_absence(api, x, str_of(path)))
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
    return false;
}

static void stats_request_on_read(struct stats_read *read, struct stats_figures *f) {
    struct stats_request *q = CONTAINER_OF(read, struct stats_request, read);
    struct buf *out = reply_start(q->x, 200);
    if (q->event_key == 0)
        buf_add(out, buf_str(&f->text));
    else
        stats_render_one(out, q->api, f, q->event_key);
    stats_release(f);
    reply_send(q->x, STR("application/json"));
}

void admin_stats(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    int64_t key;
    if (!read_event(api, x, &key)) return;
    struct stats_request *q = arena_new(&x->arena, sizeof *q);
    q->read.done = stats_request_on_read;
    q->api = api;
    q->x = x;
    q->event_key = key;
    stats_read(&api->stats, &q->read);
}

/* ---- the streams ---- */

/* The streams of one event, or of all, on one worker. */
struct stats_watch {
    struct watch watch;
    struct stats_read read;
    struct api *api;
    int64_t event_key; /* 0: of all */
};

struct stats_live {
    struct watches watches;
    struct api *api;
};

static void stats_watch_on_read(struct stats_read *read, struct stats_figures *f) {
    struct stats_watch *w = CONTAINER_OF(read, struct stats_watch, read);
    struct buf text = {0};
    buf_add(&text, STR("event: stats\ndata: "));
    if (w->event_key == 0)
        buf_add(&text, buf_str(&f->text));
    else
        stats_render_one(&text, w->api, f, w->event_key);
    buf_add(&text, STR("\n\n"));
    stats_release(f);
    watch_take(&w->watch, buf_str(&text), text.len);
    buf_deinit(&text);
}

static void stats_watch_read(struct watch *watch) {
    struct stats_watch *w = CONTAINER_OF(watch, struct stats_watch, watch);
    w->read.done = stats_watch_on_read;
    stats_read(&w->api->stats, &w->read);
}

static void stats_watch_free(struct watch *watch) {
    watch_deinit(watch);
    mem_free(CONTAINER_OF(watch, struct stats_watch, watch));
}

/* The watch of that event, or of all: a new one if it has no streams yet. */
static struct stats_watch *stats_watch_of(struct stats_live *l, int64_t event_key) {
    for (struct list *at = l->watches.all.next; at != &l->watches.all; at = at->next) {
        struct stats_watch *w = CONTAINER_OF(at, struct stats_watch, watch.link);
        if (w->event_key == event_key) return w;
    }
    struct stats_watch *w = mem_new(sizeof *w);
    w->watch.read = stats_watch_read;
    w->watch.idle = stats_watch_free;
    w->api = l->api;
    w->event_key = event_key;
    watch_init(&w->watch, &l->watches);
    return w;
}

void admin_stats_stream(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    int64_t key;
    if (!read_event(api, x, &key)) return;
    struct api_worker *worker = exchange_context(x);
    watch_open(&stats_watch_of(worker->stats_live, key)->watch, x);
}

struct stats_live *stats_live_new(struct api *api, struct worker *w, size_t index) {
    struct stats_live *l = mem_new(sizeof *l);
    l->api = api;
    watches_init(&l->watches, api->workers[index].live, &w->loop);
    return l;
}

void stats_live_close(struct stats_live *l) {
    watches_close(&l->watches);
}

void stats_live_free(struct stats_live *l) {
    watches_deinit(&l->watches);
    mem_free(l);
}
