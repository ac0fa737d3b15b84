/* Reads and renders each watched board. */
#include "api/rankings_live.h"

#include "api/rankings.h"
#include "api/watch.h"
#include "base/clock.h"
#include "base/mem.h"

/* One board, and its streams on one worker. */
struct board_watch {
    struct watch watch;
    struct api *api;
    const struct period *period; /* NULL: what sells fastest */
    struct board_top_op top;
    struct board_row rows[TOP_DEFAULT];
};

struct rankings_live {
    struct watches watches;
    size_t board_count;
    struct board_watch boards[]; /* one for each of `periods`; then what sells fastest */
};

static void board_watch_on_read(struct board_top_op *top);

/* The board of the current period: when that ends, the next one is shown. */
static void board_watch_read(struct watch *w) {
    struct board_watch *b = CONTAINER_OF(w, struct board_watch, watch);
    b->top = (struct board_top_op){.board = {.kind = b->period ? BOARD_POPULAR : BOARD_SOLDOUT,
                                             .period = b->period,
                                             .at_ms = CLOCK_NONE_MS},
                                   .rows = b->rows,
                                   .max = TOP_DEFAULT,
                                   .done = board_watch_on_read};
    ranking_read_top(b->api->boards, &b->top);
}

/* The time comes last in the event: it alone makes no new version. */
static void board_watch_on_read(struct board_top_op *top) {
    struct board_watch *b = CONTAINER_OF(top, struct board_watch, top);
    if (top->result != ERR_OK) {
        watch_fail(&b->watch);
        return;
    }
    struct buf text = {0};
    buf_add(&text, STR("event: ranking\ndata: "));
    size_t board_len = ranking_render(b->api, &text, top);
    buf_addf(&text, "\nid: %lld\n\n", (long long)top->now_ms);
    watch_take(&b->watch, buf_str(&text), board_len);
    buf_deinit(&text);
}

/* NULL: the problem has been answered. */
static struct board_watch *read_board(struct rankings_live *r, struct exchange *x) {
    bool bad;
    str word = query_value(x, STR("board"), &bad);
    if (!bad && (word.at == NULL || str_eq(word, STR("soldout")))) return &r->boards[period_count];
    const struct period *period = ranking_period(x, word);
    return period == NULL ? NULL : &r->boards[period - periods];
}

void rankings_get_stream(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    if (!rankings_are_kept(api, x)) return;
    struct api_worker *worker = exchange_context(x);
    struct board_watch *board = read_board(worker->rankings_live, x);
    if (board != NULL) watch_open(&board->watch, x);
}

/* ---- start and stop ---- */

struct rankings_live *rankings_live_new(struct api *api, struct worker *w, size_t index) {
    size_t board_count = period_count + 1;
    struct rankings_live *r = mem_new(sizeof *r + board_count * sizeof *r->boards);
    watches_init(&r->watches, api->workers[index].live, &w->loop);
    r->board_count = board_count;
    for (size_t i = 0; i < board_count; i++) {
        struct board_watch *b = &r->boards[i];
        b->watch.read = board_watch_read;
        b->api = api;
        b->period = i < period_count ? &periods[i] : NULL;
        watch_init(&b->watch, &r->watches);
    }
    return r;
}

void rankings_live_close(struct rankings_live *r) {
    watches_close(&r->watches);
}

void rankings_live_free(struct rankings_live *r) {
    for (size_t i = 0; i < r->board_count; i++) watch_deinit(&r->boards[i].watch);
    watches_deinit(&r->watches);
    mem_free(r);
}
