/* Reads each watched text once a second, and sends new versions to its streams. */
#include "api/watch.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"

/* The events of one interval are spread over this many ticks; a few go at once. */
#define TICKS_PER_INTERVAL 20
#define TICK_EVENTS_MIN 64

struct watcher {
    struct stream stream;
    struct watch *watch;
    struct list link;
    uint64_t version; /* as last sent; 0: never */
    int64_t due_ms;   /* sent nothing before that; by the steady clock */
};

/* ---- sending ---- */

static void watcher_send(struct watcher *w) {
    struct watches *ws = w->watch->of;
    str text = buf_str(&w->watch->text);
    bool is_first = w->version == 0;
    if (is_first) {
        buf_clear(&ws->text);
        buf_addf(&ws->text, "retry: %lld\n", (long long)live_retry_ms(ws->live));
        buf_add(&ws->text, text);
    }
    w->version = w->watch->version;
    count(COUNT_SSE_EVENTS, 1);
    stream_send(&w->stream, is_first ? buf_str(&ws->text) : text); /* it may be gone then */
}

/* Watchers of older versions come first in the list. Each tick takes a part of them, so that other
 * work is done in between. */
static void watch_send_due(struct watch *w) {
    int64_t now_ms = clock_steady_ms();
    size_t left = TICK_EVENTS_MIN + w->count / (TICKS_PER_INTERVAL / 2);
    while (left-- > 0 && !list_empty(&w->watchers)) {
        struct watcher *first = CONTAINER_OF(w->watchers.next, struct watcher, link);
        if (first->version == w->version || first->due_ms > now_ms) return;
        first->due_ms = now_ms + WATCH_INTERVAL_MS;
        list_move_last(&w->watchers, &first->link);
        watcher_send(first);
    }
}

void watch_take(struct watch *w, str text, size_t compared) {
    assert(w->reading && compared <= text.len);
    w->reading = false;
    w->failed = false;
    if (!str_eq((str){text.at, compared}, (str){w->text.bytes, w->compared})) w->version++;
    buf_clear(&w->text);
    buf_add(&w->text, text);
    w->compared = compared;
    watch_send_due(w);
}

void watch_fail(struct watch *w) {
    assert(w->reading);
    w->reading = false;
    w->failed = true;
}

static void watch_serve(struct watch *w) {
    if (list_empty(&w->watchers) || w->reading) return;
    int64_t now_ms = clock_steady_ms();
    if (now_ms - w->read_ms >= WATCH_INTERVAL_MS) {
        w->reading = true;
        w->read_ms = now_ms;
        w->read(w);
    } else if (!w->failed) {
        watch_send_due(w);
    }
}

/* A watch is freed only here: while another one sends, net may end any stream. */
static void watches_on_tick(void *to) {
    struct watches *ws = to;
    bool has_work = false;
    for (struct list *at = ws->all.next; at != &ws->all; at = at->next)
        watch_serve(CONTAINER_OF(at, struct watch, link));
    struct list *next;
    for (struct list *at = ws->all.next; at != &ws->all; at = next) {
        struct watch *w = CONTAINER_OF(at, struct watch, link);
        next = at->next;
        bool is_idle = w->count == 0 && !w->reading;
        if (!is_idle) has_work = true;
        if (is_idle && w->idle != NULL) w->idle(w);
    }
    if (!has_work) ticker_stop(&ws->ticker);
}

/* ---- watchers ---- */

static void watcher_on_ended(struct stream *stream) {
    struct watcher *w = CONTAINER_OF(stream, struct watcher, stream);
    list_remove(&w->link);
    w->watch->count--;
    mem_free(w);
}

/* The stream opens whether or not the text can be read: an EventSource that is refused does not
 * connect again by itself. */
void watch_open(struct watch *w, struct exchange *x) {
    struct watches *ws = w->of;
    struct watcher *one = mem_new(sizeof *one);
    one->stream.ended = watcher_on_ended;
    one->watch = w;
    list_init(&one->link);
    list_move_first(&w->watchers, &one->link);
    w->count++;
    reply_stream(x, &one->stream); /* it may be gone then */
    watch_serve(w);
    if (!ticker_runs(&ws->ticker) && !ws->closed)
        ticker_start(&ws->ticker, WATCH_INTERVAL_MS / TICKS_PER_INTERVAL);
}

/* ---- start and stop ---- */

void watch_init(struct watch *w, struct watches *of) {
    w->of = of;
    w->read_ms = -WATCH_INTERVAL_MS;
    list_init(&w->watchers);
    list_init(&w->link);
    list_move_last(&of->all, &w->link);
}

void watch_deinit(struct watch *w) {
    assert(list_empty(&w->watchers) && !w->reading);
    list_remove(&w->link);
    buf_deinit(&w->text);
}

void watches_init(struct watches *ws, struct live *live, uv_loop_t *loop) {
    *ws = (struct watches){.live = live};
    list_init(&ws->all);
    ticker_init(&ws->ticker, loop, watches_on_tick, ws);
}

void watches_close(struct watches *ws) {
    ws->closed = true;
    ticker_close(&ws->ticker);
}

void watches_deinit(struct watches *ws) {
    struct list *next;
    for (struct list *at = ws->all.next; at != &ws->all; at = next) {
        struct watch *w = CONTAINER_OF(at, struct watch, link);
        next = at->next;
        if (w->idle != NULL) w->idle(w);
    }
    assert(list_empty(&ws->all));
    buf_deinit(&ws->text);
}
