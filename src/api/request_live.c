/* Shows asynchronous requests, and sends their changes to streams: due subscribers are looked up in
 * batches, and those whose request has changed are sent it. */
#include "api/request_live.h"

#include <assert.h>

#include "api/live.h"
#include "api/request_json.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "net/stream.h"
#include "run/ticker.h"

/* Requests that are looked up together. */
#define BATCH_MAX 256
#define TICKS_PER_INTERVAL 8
#define TICK_MS_MIN 10
/* Tabs and devices of one user; a person does not have more. */
#define STREAMS_PER_REQUEST_MAX 8

/* The more requests are ahead, the rarer the updates. */
static const struct {
    int64_t ahead_below;
    int64_t intervals;
} reaches[] = {{1000, 1}, {10000, 3}, {INT64_MAX, 10}};
#define REACHES (sizeof reaches / sizeof reaches[0])

struct request_subscriber {
    struct stream stream;
    struct request_live *live;
    struct list link;                 /* in `announced`, or in one of due[], in order of due_ms */
    struct request_subscriber *older; /* of the same request */
    struct uuid id;
    int64_t ahead; /* as last sent */
    int64_t due_ms;
    bool busy; /* a caller or a batch has it: when it ends, it is only marked as gone */
    bool gone;
    bool again; /* it was announced while it was looked up */
};

struct request_batch {
    struct requests_look look;
    struct request_live *live;
    struct request_subscriber *subscribers[BATCH_MAX];
    struct uuid ids[BATCH_MAX];
    struct request *found[BATCH_MAX];
    int64_t ahead[BATCH_MAX];
};

struct request_live {
    struct api *api;
    struct worker *worker;
    size_t index; /* among api->workers */
    struct list announced;
    struct list due[REACHES];
    struct map by_id; /* a request's id → its newest subscriber */
    struct ticker ticker;
    struct buf text; /* of the event being written */
    bool looking;    /* a batch is under way */
    bool closed;
    _Atomic size_t count; /* read by other threads, to skip announcements without subscribers */
};

static void on_status_looked(struct requests_look *l, enum err result);
static void on_stream_looked(struct requests_look *l, enum err result);
static void batch_on_looked(struct requests_look *l, enum err result);

/* ---- one request: its status, or the first event of a stream ---- */

struct request_query {
    struct requests_look look;
    struct exchange *x;
    struct api *api;
    struct owner owner;
    struct uuid id;
    struct request *found;
    int64_t ahead;
};

/* `knows_result`: the client has the result, so no event will follow. */
static void request_query_begin(struct api *api, struct exchange *x, str id, bool knows_result,
                                void (*done)(struct requests_look *l, enum err result)) {
    struct api_worker *w = exchange_context(x);
    struct request_query *q = arena_new(&x->arena, sizeof *q);
    str named;
    q->x = x;
    q->api = api;
    if (!owner_query_named(x, &named) || !owner_of(api, x, named, &q->owner)) return;
    if (!uuid_parse(id, &q->id)) {
        request_refuse(x, ERR_REQUEST_NOT_FOUND);
        return;
    }
    if (knows_result) {
        reply_empty(x, 204);
        return;
    }
    q->look = (struct requests_look){
        .ids = &q->id, .count = 1, .found = &q->found, .ahead = &q->ahead, .done = done};
    requests_look(&w->requests, &q->look);
}

void request_get_status(struct api *api, struct exchange *x, const str *captures) {
    request_query_begin(api, x, captures[0], false, on_status_looked);
}

static void on_status_looked(struct requests_look *l, enum err result) {
    struct request_query *q = CONTAINER_OF(l, struct request_query, look);
    struct exchange *x = q->x;
    struct request *r = q->found; /* `q` is freed with the answer */
    if (result == ERR_OK) result = request_check(x, &q->owner, r);
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    if (result == ERR_OK) {
        struct json_out j;
        json_out_init(&j, reply_start(x, 200));
        request_to_json(&j, q->api, r, q->ahead);
        json_out_done(&j);
        reply_send(x, STR("application/json"));
    } else {
        request_refuse(x, result);
    }
    mem_free(r);
}

/* ---- subscribers ---- */

static str id_key(const struct uuid *id) {
    return (str){(const char *)id->bytes, sizeof id->bytes};
}

static void request_subscriber_remove(struct request_subscriber *s) {
    struct request_live *l = s->live;
    struct request_subscriber *newer = map_get(&l->by_id, id_key(&s->id));
    if (newer != s) {
        while (newer->older != s) newer = newer->older;
        newer->older = s->older;
    } else if (s->older != NULL) {
        map_put(&l->by_id, id_key(&s->id), s->older);
    } else {
        map_remove(&l->by_id, id_key(&s->id));
    }
    list_remove(&s->link);
    atomic_fetch_sub(&l->count, 1);
}

static void request_subscriber_on_ended(struct stream *stream) {
    struct request_subscriber *s = CONTAINER_OF(stream, struct request_subscriber, stream);
    request_subscriber_remove(s);
    if (s->busy)
        s->gone = true;
    else
        mem_free(s);
}

static struct request_subscriber *request_subscriber_new(struct request_live *l,
                                                         const struct uuid *id) {
    size_t count_of = 0;
    struct request_subscriber *oldest = NULL;
    for (struct request_subscriber *s = map_get(&l->by_id, id_key(id)); s != NULL; s = s->older) {
        count_of++;
        oldest = s;
    }
    if (count_of == STREAMS_PER_REQUEST_MAX) stream_end(&oldest->stream);
    struct request_subscriber *s = mem_new(sizeof *s);
    s->stream.ended = request_subscriber_on_ended;
    s->live = l;
    s->id = *id;
    list_init(&s->link);
    s->older = map_put(&l->by_id, id_key(id), s);
    atomic_fetch_add(&l->count, 1);
    return s;
}

static void request_subscriber_schedule(struct request_subscriber *s) {
    struct request_live *l = s->live;
    size_t reach = 0;
    while (reach + 1 < REACHES && s->ahead >= reaches[reach].ahead_below) reach++;
    s->due_ms = clock_steady_ms() + l->api->push_interval_ms * reaches[reach].intervals;
    list_move_last(&l->due[reach], &s->link);
}

/* ---- sending ---- */

/* A client that connects again sends the last id: it shows whether it knows the result. */
static void add_request_event(struct request_live *l, const struct request *r, int64_t ahead) {
    char id[UUID_TEXT_BYTES];
    struct json_out j;
    uuid_format(&r->id, id);
    buf_add(&l->text, STR("event: RESERVATION_STATUS\nid: "));
    buf_add(&l->text, (str){id, sizeof id});
    buf_add_char(&l->text, ':');
    buf_add(&l->text, request_status_words[request_shown_status(r, ahead)]);
    buf_add(&l->text, STR("\ndata: "));
    json_out_init(&j, &l->text);
    request_to_json(&j, l->api, r, ahead);
    json_out_done(&j);
    buf_add(&l->text, STR("\n\n"));
}

/* Sends l->text. `is_last`: it has the result, so the stream ends. */
static void request_subscriber_send(struct request_subscriber *s, bool is_last) {
    count(COUNT_SSE_EVENTS, 1);
    bool was_busy = s->busy;
    s->busy = true;
    stream_send(&s->stream, buf_str(&s->live->text));
    if (!s->gone && is_last) stream_end(&s->stream);
    s->busy = was_busy;
    if (s->gone && !was_busy) mem_free(s);
}

static void request_subscriber_tell(struct request_subscriber *s, const struct request *r,
                                    int64_t ahead) {
    struct request_live *l = s->live;
    bool is_decided = request_is_decided(r->status);
    bool has_changed = is_decided || ahead != s->ahead;
    s->ahead = ahead;
    if (!is_decided) request_subscriber_schedule(s);
    if (s->again) list_move_last(&l->announced, &s->link);
    s->again = false;
    if (!has_changed) return;
    buf_clear(&l->text);
    add_request_event(l, r, ahead);
    request_subscriber_send(s, is_decided);
}

/* ---- looking ---- */

/* `b` is NULL: the first one of a new batch. */
static struct request_batch *batch_take(struct request_batch *b, struct request_subscriber *s) {
    if (b == NULL) b = mem_new(sizeof *b);
    size_t at = b->look.count++;
    assert(!s->busy && at < BATCH_MAX);
    s->busy = true;
    list_remove(&s->link);
    b->subscribers[at] = s;
    b->ids[at] = s->id;
    return b;
}

/* Looks up to a batch of the subscribers that are due, the announced ones first. While a batch is
 * under way others gather for the next. */
static void request_live_look(struct request_live *l) {
    if (l->looking) return;
    struct request_batch *b = NULL;
    int64_t now_ms = clock_steady_ms();
    for (size_t i = 0; i <= REACHES; i++) {
        struct list *from = i == 0 ? &l->announced : &l->due[i - 1];
        while (!list_empty(from) && (b == NULL || b->look.count < BATCH_MAX)) {
            struct request_subscriber *s =
                CONTAINER_OF(from->next, struct request_subscriber, link);
            if (i > 0 && s->due_ms > now_ms) break;
            b = batch_take(b, s);
        }
    }
    if (b == NULL) return;
    l->looking = true;
    b->live = l;
    b->look.ids = b->ids;
    b->look.found = b->found;
    b->look.ahead = b->ahead;
    b->look.done = batch_on_looked;
    requests_look(&l->api->workers[l->index].requests, &b->look);
}

static void batch_on_looked(struct requests_look *look, enum err result) {
    struct request_batch *b = CONTAINER_OF(look, struct request_batch, look);
    struct request_live *l = b->live;
    for (size_t i = 0; i < look->count; i++) {
        struct request_subscriber *s = b->subscribers[i];
        struct request *r = b->found[i];
        s->busy = false;
        if (s->gone)
            mem_free(s);
        else if (r != NULL)
            request_subscriber_tell(s, r, b->ahead[i]);
        else if (result == ERR_OK)
            stream_end(&s->stream); /* removed by retention: the client is answered 404 */
        else
            request_subscriber_schedule(s); /* the ledger or the feed does not answer now */
        mem_free(r);
    }
    mem_free(b);
    l->looking = false;
    if (!list_empty(&l->announced)) request_live_look(l);
}

static void request_live_on_tick(void *to) {
    struct request_live *l = to;
    request_live_look(l);
    if (atomic_load(&l->count) == 0) ticker_stop(&l->ticker);
}

/* ---- announcements ---- */

struct request_message {
    struct task task;
    struct request_live *to;
    size_t count;
    struct uuid ids[];
};

static void request_live_on_announced(struct task *task) {
    struct request_message *m = CONTAINER_OF(task, struct request_message, task);
    struct request_live *l = m->to;
    for (size_t i = 0; i < m->count; i++)
        for (struct request_subscriber *s = map_get(&l->by_id, id_key(&m->ids[i])); s != NULL;
             s = s->older) {
            if (s->busy)
                s->again = true;
            else
                list_move_last(&l->announced, &s->link);
        }
    mem_free(m);
    request_live_look(l);
}

void request_live_announce(void *to, const struct uuid *ids, size_t count_of) {
    struct api *api = to;
    for (size_t i = 0; i < api->worker_count; i++) {
        struct request_live *l = api->workers[i].request_live;
        if (atomic_load(&l->count) == 0) continue;
        struct request_message *m = mem_new(sizeof *m + count_of * sizeof *ids);
        m->task.run = request_live_on_announced;
        m->to = l;
        m->count = count_of;
        memcpy(m->ids, ids, count_of * sizeof *ids);
        mailbox_post(&l->worker->mailbox, &m->task);
    }
}

/* ---- subscribing ---- */

/* Whether the last event that the client received has the result. */
static bool knows_the_result(const struct exchange *x, str id) {
    str rest = http_header(&x->request, STR("Last-Event-ID"));
    str known;
    if (!str_split(&rest, ':', &known) || !str_eq(known, id)) return false;
    int status = word_index(request_status_words, rest);
    return status >= 0 && request_is_decided((enum request_status)status);
}

void request_get_subscribe(struct api *api, struct exchange *x, const str *captures) {
    bool knows = knows_the_result(x, captures[0]);
    request_query_begin(api, x, captures[0], knows, on_stream_looked);
}

static void on_stream_looked(struct requests_look *look, enum err result) {
    struct request_query *q = CONTAINER_OF(look, struct request_query, look);
    struct api_worker *w = exchange_context(q->x);
    struct request_live *l = w->request_live;
    struct request *r = q->found;
    if (result == ERR_OK) result = request_check(q->x, &q->owner, r);
    if (result != ERR_OK) {
        request_refuse(q->x, result);
        mem_free(r);
        return;
    }
    struct request_subscriber *s = request_subscriber_new(l, &r->id);
    bool is_decided = request_is_decided(r->status);
    s->ahead = q->ahead;
    request_subscriber_schedule(s);
    s->busy = true; /* the client may have gone */
    reply_stream(q->x, &s->stream);
    if (!s->gone) {
        buf_clear(&l->text);
        buf_addf(&l->text, "retry: %lld\n", (long long)live_retry_ms(w->live));
        add_request_event(l, r, s->ahead);
        request_subscriber_send(s, is_decided);
    }
    s->busy = false;
    /* It may have been decided after it was looked up, and before it was announced to this stream:
     * so it is looked up once more. */
    if (s->gone)
        mem_free(s);
    else
        list_move_last(&l->announced, &s->link);
    request_live_look(l);
    mem_free(r);
    if (!ticker_runs(&l->ticker) && !l->closed) {
        int64_t tick_ms = l->api->push_interval_ms / TICKS_PER_INTERVAL;
        ticker_start(&l->ticker, tick_ms > TICK_MS_MIN ? tick_ms : TICK_MS_MIN);
    }
}

/* ---- start and stop ---- */

struct request_live *request_live_new(struct api *api, struct worker *w, size_t index) {
    struct request_live *l = mem_new(sizeof *l);
    l->api = api;
    l->worker = w;
    l->index = index;
    list_init(&l->announced);
    for (size_t i = 0; i < REACHES; i++) list_init(&l->due[i]);
    map_init(&l->by_id);
    ticker_init(&l->ticker, &w->loop, request_live_on_tick, l);
    return l;
}

void request_live_close(struct request_live *l) {
    l->closed = true;
    ticker_close(&l->ticker);
}

void request_live_free(struct request_live *l) {
    assert(atomic_load(&l->count) == 0);
    map_deinit(&l->by_id);
    buf_deinit(&l->text);
    mem_free(l);
}
