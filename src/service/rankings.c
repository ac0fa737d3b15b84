#include "service/rankings.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

#define LOOK_MS 500
/* When there is more. Not at once: whoever buys meanwhile would feel it. */
#define MORE_MS 3
/* For so long nothing is asked about events: not in every batch of a rush, but in every look. */
#define TOLD_MS (LOOK_MS / 2)

static void finish_for(struct rankings *r, int64_t ms) {
    if (!r->stopping) ticker_start(&r->ticker, ms);
    atomic_store(&r->busy, false);
}

static void finish(struct rankings *r) {
    finish_for(r, LOOK_MS);
}

/* ---- what was sold ---- */

/* Of a full batch there may be more. */
static void on_counted(struct board_count_op *c) {
    struct rankings *r = CONTAINER_OF(c, struct rankings, count);
    bool has_more = c->result == ERR_OK && c->count == RANKINGS_BATCH_MAX;
    if (c->result == ERR_OK) count(COUNT_RANKINGS_SALES, c->count);
    finish_for(r, has_more ? MORE_MS : LOOK_MS);
}

static void on_read(struct task *task) {
    struct rankings *r = CONTAINER_OF(task, struct rankings, read.record.task);
    if (r->read.record.result != ERR_OK || r->read.count == 0) {
        finish(r);
        return;
    }
    r->count = (struct board_count_op){.epoch = r->epoch,
                                       .now_ms = clock_wall_ms(),
                                       .sales = r->sales,
                                       .count = r->read.count,
                                       .done = on_counted};
    boards_count(r->boards, &r->count);
}

static void read_sales(struct rankings *r) {
    r->read = (struct ledger_sales_read){.record = {.kind = LEDGER_SALES_READ, .task.run = on_read},
                                         .mark = r->begin.mark,
                                         .sales = r->sales,
                                         .max = RANKINGS_BATCH_MAX};
    if (ledger_ask(r->ledger, &r->read.record) != ERR_OK) finish(r);
}

/* ---- what there is to sell ---- */

struct board_event rankings_event(const struct event *e) {
    int64_t opened_ms = event_sale_opens_ms(e);
    return (struct board_event){.event_key = e->key,
                                .capacity = event_capacity(e),
                                .opened_ms =
                                    opened_ms == CLOCK_NONE_MS ? e->created_at_ms : opened_ms};
}

static void forget_told(struct rankings *r) {
    struct board_event *e;
    for (size_t at = 0; (e = map_next(&r->told, &at)) != NULL;) mem_free(e);
    map_deinit(&r->told);
    map_init(&r->told);
}

/* Whether that is news; then it is noted. */
static bool is_news(struct rankings *r, const struct board_event *e) {
    struct board_event *told = map_get(&r->told, map_key(&e->event_key));
    if (told != NULL && told->capacity == e->capacity && told->opened_ms == e->opened_ms)
        return false;
    if (told == NULL) {
        told = mem_new(sizeof *told);
        map_put(&r->told, map_key(&e->event_key), told);
    }
    *told = *e;
    return true;
}

static size_t find_news(struct rankings *r) {
    size_t count = 0;
    const struct event *e;
    catalogue_read_lock(r->catalogue);
    for (size_t at = 0; count < RANKINGS_EVENTS_MAX; at++) {
        if ((e = catalogue_at(r->catalogue, at)) == NULL) break;
        r->events[count] = rankings_event(e);
        if (is_news(r, &r->events[count])) count++;
    }
    catalogue_read_unlock(r->catalogue);
    return count;
}

static void tell_events(struct rankings *r);

static void on_known(struct board_know_op *k) {
    struct rankings *r = CONTAINER_OF(k, struct rankings, know);
    if (k->result == ERR_OK) {
        tell_events(r);
        return;
    }
    forget_told(r);
    finish(r);
}

/* Until there is nothing to be told; then on to the sales. */
static void tell_events(struct rankings *r) {
    size_t count = find_news(r);
    if (count == 0) {
        r->told_ms = clock_steady_ms();
        read_sales(r);
        return;
    }
    r->know = (struct board_know_op){.epoch = r->epoch,
                                     .turn = r->turn,
                                     .now_ms = clock_wall_ms(),
                                     .events = r->events,
                                     .count = count,
                                     .done = on_known};
    boards_know(r->boards, &r->know);
}

/* ---- turns ---- */

/* Whoever counted meanwhile may have told something older. */
static void on_begun(struct board_begin_op *b) {
    struct rankings *r = CONTAINER_OF(b, struct rankings, begin);
    if (b->result != ERR_OK || b->turn == 0) {
        finish(r);
        return;
    }
    bool is_new = b->turn != r->turn || b->epoch != r->epoch;
    if (is_new) forget_told(r);
    r->turn = b->turn;
    r->epoch = b->epoch;
    if (!is_new && clock_steady_ms() - r->told_ms < TOLD_MS)
        read_sales(r);
    else
        tell_events(r);
}

static void look(struct rankings *r) {
    if (atomic_exchange(&r->busy, true)) return;
    r->begin = (struct board_begin_op){.now_ms = clock_wall_ms(), .done = on_begun};
    boards_begin(r->boards, &r->begin);
}

static void on_tick(void *to) {
    look(to);
}

void rankings_init(struct rankings *r, uv_loop_t *loop) {
    map_init(&r->told);
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

void rankings_deinit(struct rankings *r) {
    forget_told(r);
    map_deinit(&r->told);
}
