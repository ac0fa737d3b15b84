#include "service/rankings.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/metrics.h"

#define LOOK_MS 500

/* ---- what there is to sell ---- */

static void on_known(struct board_know_op *k) {
    (void)k; /* it is said again with the next look */
}

static int64_t opened_ms(const struct event *e) {
    int64_t ms = event_sale_opens_ms(e);
    return ms == CLOCK_NONE_MS ? e->created_at_ms : ms;
}

/* All of them, for events change at any time, and are few. */
static void tell_events(struct rankings *r) {
    const struct event *e;
    catalogue_open(r->catalogue);
    for (size_t at = 0; (e = catalogue_at(r->catalogue, at)) != NULL; at++) {
        struct board_know_op know = {.event_key = e->key,
                                     .capacity = event_capacity(e),
                                     .opened_ms = opened_ms(e),
                                     .done = on_known};
        boards_know(r->boards, &know);
    }
    catalogue_shut(r->catalogue);
}

/* ---- the start ---- */

struct loading {
    struct rankings *rankings;
    int64_t now_ms;
};

static void on_sale(void *to, const struct sale *s) {
    struct loading *l = to;
    boards_restore(l->rankings->boards, s, l->now_ms);
}

static void on_mark(void *to, const struct sale_mark *mark) {
    struct loading *l = to;
    boards_restored(l->rankings->boards, mark);
}

enum err rankings_load(struct rankings *r, int64_t now_ms) {
    struct loading l = {.rankings = r, .now_ms = now_ms};
    tell_events(r);
    return ledger_load(r->ledger,
                       &(struct ledger_reader){.on_sale = on_sale, .on_mark = on_mark, .to = &l});
}

/* ---- what was sold ---- */

static void look(struct rankings *r);

static void finish(struct rankings *r) {
    atomic_store(&r->busy, false);
}

/* Of a full batch there may be more. */
static void on_counted(struct board_count_op *c) {
    struct rankings *r = CONTAINER_OF(c, struct rankings, count);
    bool has_more = c->result == ERR_OK && c->count == RANKINGS_BATCH_MAX && !r->stopping;
    if (c->result == ERR_OK) count(COUNT_RANKINGS_SALES, c->count);
    finish(r);
    if (has_more) look(r);
}

static void on_read(struct task *task) {
    struct rankings *r = CONTAINER_OF(task, struct rankings, read.record.task);
    if (r->read.record.result != ERR_OK || r->read.count == 0) {
        finish(r);
        return;
    }
    r->count = (struct board_count_op){
        .now_ms = clock_wall_ms(), .sales = r->sales, .count = r->read.count, .done = on_counted};
    boards_count(r->boards, &r->count);
}

static void on_begun(struct board_begin_op *b) {
    struct rankings *r = CONTAINER_OF(b, struct rankings, begin);
    if (b->result != ERR_OK || !b->is_ours) {
        finish(r);
        return;
    }
    r->read = (struct ledger_sales_read){.record = {.kind = LEDGER_SALES_READ, .task.run = on_read},
                                         .mark = b->mark,
                                         .sales = r->sales,
                                         .max = RANKINGS_BATCH_MAX};
    if (ledger_ask(r->ledger, &r->read.record) != ERR_OK) finish(r);
}

static void look(struct rankings *r) {
    if (atomic_exchange(&r->busy, true)) return;
    r->begin = (struct board_begin_op){.now_ms = clock_wall_ms(), .done = on_begun};
    boards_begin(r->boards, &r->begin);
}

static void on_tick(void *to) {
    struct rankings *r = to;
    tell_events(r);
    look(r);
}

void rankings_init(struct rankings *r, uv_loop_t *loop) {
    ticker_init(&r->ticker, loop, on_tick, r);
    ticker_start(&r->ticker, LOOK_MS);
}

void rankings_stop(struct rankings *r) {
    r->stopping = true;
    ticker_close(&r->ticker);
}

bool rankings_is_busy(struct rankings *r) {
    return atomic_load(&r->busy);
}
