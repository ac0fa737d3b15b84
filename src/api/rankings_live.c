/* Reads each watched board once a second, and sends the new versions to its watchers. */
#include "api/rankings_live.h"

#include <assert.h>

#include "api/live.h"
#include "api/rankings.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "net/stream.h"
#include "run/ticker.h"

/* A board is read, and a stream is sent an event, this often at the most. */
#define INTERVAL_MS 1000
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

/* One board, and its watchers on one worker. */
struct watch {
    struct rankings_live *of;
    const struct period *period; /* NULL: what sells fastest */
    /* In order of version, and so of due_ms: a watcher that is sent the board becomes the last. */
    struct list watchers;
    size_t count;
    struct board_top_op top;
    struct board_row rows[TOP_DEFAULT];
    bool looking;
    int64_t looked_ms; /* when that began; by the steady clock */
    uint64_t version;  /* one more with each change */
    struct buf text;   /* the event of it */
    size_t board_len;  /* of the text without the time at its end */
};

struct rankings_live {
    struct api *api;
    struct live *live;
    struct ticker ticker;
    struct buf text; /* of the event being written */
    bool closed;
    size_t watch_count;
    struct watch watches[]; /* one for each of `periods`; then what sells fastest */
};

/* ---- sending ---- */

static void watcher_send(struct watcher *w) {
    struct rankings_live *r = w->watch->of;
    str text = buf_str(&w->watch->text);
    bool is_first = w->version == 0;
    if (is_first) {
        buf_clear(&r->text);
        buf_addf(&r->text, "retry: %lld\n", (long long)live_retry_ms(r->live));
        buf_add(&r->text, text);
    }
    w->version = w->watch->version;
    count(COUNT_SSE_EVENTS, 1);
    stream_send(&w->stream, is_first ? buf_str(&r->text) : text); /* it may be gone then */
}

/* Watchers of older versions come first in the list. Each tick takes a part of them, so that other
 * work is done in between. */
static void watch_send_due(struct watch *w) {
    int64_t now_ms = clock_steady_ms();
    size_t left = TICK_EVENTS_MIN + w->count / (TICKS_PER_INTERVAL / 2);
    while (left-- > 0 && !list_empty(&w->watchers)) {
        struct watcher *first = CONTAINER_OF(w->watchers.next, struct watcher, link);
        if (first->version == w->version || first->due_ms > now_ms) return;
        first->due_ms = now_ms + INTERVAL_MS;
        list_move_last(&w->watchers, &first->link);
        watcher_send(first);
    }
}

/* Renders the event. The time comes last in it: it alone makes no new version. */
static void watch_render(struct watch *w) {
    struct rankings_live *r = w->of;
    buf_clear(&r->text);
    buf_add(&r->text, STR("event: ranking\ndata: "));
    size_t board_len = ranking_render(r->api, &r->text, &w->top);
    buf_addf(&r->text, "\nid: %lld\n\n", (long long)w->top.now_ms);
    if (!str_eq((str){r->text.bytes, board_len}, (str){w->text.bytes, w->board_len})) w->version++;
    w->board_len = board_len;
    struct buf before = w->text;
    w->text = r->text;
    r->text = before;
}

static void watch_on_read(struct board_top_op *top) {
    struct watch *w = CONTAINER_OF(top, struct watch, top);
    w->looking = false;
    if (top->result != ERR_OK) return; /* later, then */
    watch_render(w);
    watch_send_due(w);
}

/* The board of the current period: when that ends, the next one is shown. */
static void watch_read(struct watch *w) {
    w->looking = true;
    w->looked_ms = clock_steady_ms();
    w->top = (struct board_top_op){.board = {.kind = w->period ? BOARD_POPULAR : BOARD_SOLDOUT,
                                             .period = w->period,
                                             .at_ms = CLOCK_NONE_MS},
                                   .rows = w->rows,
                                   .max = TOP_DEFAULT,
                                   .done = watch_on_read};
    ranking_read_top(w->of->api->boards, &w->top);
}

static void watch_serve(struct watch *w) {
    if (list_empty(&w->watchers) || w->looking) return;
    if (clock_steady_ms() - w->looked_ms >= INTERVAL_MS)
        watch_read(w);
    else if (w->top.result == ERR_OK)
        watch_send_due(w);
}

static void rankings_live_on_tick(void *to) {
    struct rankings_live *r = to;
    size_t watchers = 0;
    for (size_t i = 0; i < r->watch_count; i++) {
        watch_serve(&r->watches[i]);
        watchers += r->watches[i].count;
    }
    if (watchers == 0) ticker_stop(&r->ticker);
}

/* ---- watchers ---- */

static void watcher_on_ended(struct stream *stream) {
    struct watcher *w = CONTAINER_OF(stream, struct watcher, stream);
    list_remove(&w->link);
    w->watch->count--;
    mem_free(w);
}

/* NULL: the problem has been answered. */
static struct watch *read_watch(struct rankings_live *r, struct exchange *x) {
    bool bad;
    str word = query_value(x, STR("board"), &bad);
    if (!bad && (word.at == NULL || str_eq(word, STR("soldout")))) return &r->watches[period_count];
    const struct period *period = ranking_period(x, word);
    return period == NULL ? NULL : &r->watches[period - periods];
}

/* The stream opens whether or not the store can be asked: an EventSource that is refused does not
 * connect again by itself. */
void rankings_get_stream(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    if (!rankings_are_kept(api, x)) return;
    struct api_worker *worker = exchange_context(x);
    struct rankings_live *r = worker->rankings_live;
    struct watch *watch = read_watch(r, x);
    if (watch == NULL) return;
    struct watcher *w = mem_new(sizeof *w);
    w->stream.ended = watcher_on_ended;
    w->watch = watch;
    list_init(&w->link);
    list_move_first(&watch->watchers, &w->link);
    watch->count++;
    reply_stream(x, &w->stream); /* it may be gone then */
    watch_serve(watch);
    if (watch->count > 0 && !ticker_runs(&r->ticker) && !r->closed)
        ticker_start(&r->ticker, INTERVAL_MS / TICKS_PER_INTERVAL);
}

/* ---- start and stop ---- */

struct rankings_live *rankings_live_new(struct api *api, struct worker *w, size_t index) {
    size_t watch_count = period_count + 1;
    struct rankings_live *r = mem_new(sizeof *r + watch_count * sizeof *r->watches);
    r->api = api;
    r->live = api->workers[index].live;
    r->watch_count = watch_count;
    for (size_t i = 0; i < watch_count; i++) {
        struct watch *watch = &r->watches[i];
        watch->of = r;
        watch->period = i < period_count ? &periods[i] : NULL;
        watch->looked_ms = -INTERVAL_MS;
        list_init(&watch->watchers);
    }
    ticker_init(&r->ticker, &w->loop, rankings_live_on_tick, r);
    return r;
}

void rankings_live_close(struct rankings_live *r) {
    r->closed = true;
    ticker_close(&r->ticker);
}

void rankings_live_free(struct rankings_live *r) {
    for (size_t i = 0; i < r->watch_count; i++) {
        assert(list_empty(&r->watches[i].watchers) && !r->watches[i].looking);
        buf_deinit(&r->watches[i].text);
    }
    buf_deinit(&r->text);
    mem_free(r);
}
