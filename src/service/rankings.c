/* One round: take the lease of the boards, send them changed events, read sales, count them. */
#include "service/rankings.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

#define READ_MS 500
/* When there is more. Not at once, because holds would become slower. */
#define MORE_MS 3
/* For this time the events of the boards are not checked again: so they are checked for each read,
 * not for each batch. */
#define SENT_MS (READ_MS / 2)

static void rankings_on_begun(struct board_begin_op *b);
static void rankings_read_sales(struct rankings *r), rankings_forget_events(struct rankings *r),
    rankings_send_events(struct rankings *r);
static void rankings_on_events_sent(struct board_events_op *k);
static void rankings_on_read(struct task *task);
static void rankings_on_counted(struct board_count_op *c);

static void rankings_end_for(struct rankings *r, int64_t ms) {
    if (!r->stopping) ticker_start(&r->ticker, ms);
    atomic_store(&r->busy, false);
}

static void rankings_end(struct rankings *r) {
    rankings_end_for(r, READ_MS);
}

static void rankings_begin(struct rankings *r) {
    if (atomic_exchange(&r->busy, true)) return;
    r->begin = (struct board_begin_op){.now_ms = clock_wall_ms(), .done = rankings_on_begun};
    boards_begin(r->boards, &r->begin);
}

/* With a new lease all events are sent again: another node may have sent older ones. */
static void rankings_on_begun(struct board_begin_op *b) {
    struct rankings *r = CONTAINER_OF(b, struct rankings, begin);
    if (b->result != ERR_OK || b->lease == 0) {
        rankings_end(r);
        return;
    }
    bool is_new = b->lease != r->lease || b->epoch != r->epoch;
    if (is_new) rankings_forget_events(r);
    r->lease = b->lease;
    r->epoch = b->epoch;
    if (!is_new && clock_steady_ms() - r->sent_ms < SENT_MS)
        rankings_read_sales(r);
    else
        rankings_send_events(r);
}

/* ---- sending events to the boards ---- */

struct board_event rankings_event(const struct event *e) {
    int64_t opened_ms = event_sale_opens_ms(e);
    return (struct board_event){.event_key = e->key,
                                .capacity = event_capacity(e),
                                .opened_ms =
                                    opened_ms == CLOCK_NONE_MS ? e->created_at_ms : opened_ms};
}

static void rankings_forget_events(struct rankings *r) {
    struct board_event *e;
    for (size_t at = 0; (e = map_next(&r->sent, &at)) != NULL;) mem_free(e);
    map_deinit(&r->sent);
    map_init(&r->sent);
}

/* Whether the boards do not have this yet; then it is noted. */
static bool rankings_note_event(struct rankings *r, const struct board_event *e) {
    struct board_event *sent = map_get(&r->sent, map_key(&e->event_key));
    if (sent != NULL && sent->capacity == e->capacity && sent->opened_ms == e->opened_ms)
        return false;
    if (sent == NULL) {
        sent = mem_new(sizeof *sent);
        map_put(&r->sent, map_key(&e->event_key), sent);
    }
    *sent = *e;
    return true;
}

static size_t rankings_find_changed(struct rankings *r) {
    size_t count = 0;
    const struct event *e;
    catalogue_read_lock(r->catalogue);
    for (size_t at = 0; count < RANKINGS_EVENTS_MAX; at++) {
        if ((e = catalogue_at(r->catalogue, at)) == NULL) break;
        r->events[count] = rankings_event(e);
        if (rankings_note_event(r, &r->events[count])) count++;
    }
    catalogue_read_unlock(r->catalogue);
    return count;
}

/* Until the boards have all events; then the sales are read. */
static void rankings_send_events(struct rankings *r) {
    size_t count = rankings_find_changed(r);
    if (count == 0) {
        r->sent_ms = clock_steady_ms();
        rankings_read_sales(r);
        return;
    }
    r->know = (struct board_events_op){.epoch = r->epoch,
                                       .lease = r->lease,
                                       .now_ms = clock_wall_ms(),
                                       .events = r->events,
                                       .count = count,
                                       .done = rankings_on_events_sent};
    boards_set_events(r->boards, &r->know);
}

static void rankings_on_events_sent(struct board_events_op *k) {
    struct rankings *r = CONTAINER_OF(k, struct rankings, know);
    if (k->result == ERR_OK) {
        rankings_send_events(r);
        return;
    }
    rankings_forget_events(r);
    rankings_end(r);
}

/* ---- counting sales ---- */

static void rankings_read_sales(struct rankings *r) {
    r->read = (struct ledger_sales_read){
        .record = {.kind = LEDGER_SALES_READ, .task.run = rankings_on_read},
        .mark = r->begin.mark,
        .sales = r->sales,
        .max = RANKINGS_BATCH_MAX};
    if (ledger_ask(r->ledger, &r->read.record) != ERR_OK) rankings_end(r);
}

static void rankings_on_read(struct task *task) {
    struct rankings *r = CONTAINER_OF(task, struct rankings, read.record.task);
    if (r->read.record.result != ERR_OK || r->read.count == 0) {
        rankings_end(r);
        return;
    }
    r->count = (struct board_count_op){.epoch = r->epoch,
                                       .now_ms = clock_wall_ms(),
                                       .sales = r->sales,
                                       .count = r->read.count,
                                       .done = rankings_on_counted};
    boards_count(r->boards, &r->count);
}

/* After a full batch there may be more. */
static void rankings_on_counted(struct board_count_op *c) {
    struct rankings *r = CONTAINER_OF(c, struct rankings, count);
    bool has_more = c->result == ERR_OK && c->count == RANKINGS_BATCH_MAX;
    if (c->result == ERR_OK) count(COUNT_RANKINGS_SALES, c->count);
    rankings_end_for(r, has_more ? MORE_MS : READ_MS);
}

/* ---- start and stop ---- */

static void rankings_on_tick(void *to) {
    rankings_begin(to);
}

void rankings_init(struct rankings *r, uv_loop_t *loop) {
    map_init(&r->sent);
    ticker_init(&r->ticker, loop, rankings_on_tick, r);
    ticker_start(&r->ticker, READ_MS);
}

void rankings_stop(struct rankings *r) {
    r->stopping = true;
    ticker_close(&r->ticker);
}

bool rankings_is_busy(struct rankings *r) {
    return atomic_load(&r->busy);
}

void rankings_deinit(struct rankings *r) {
    rankings_forget_events(r);
    map_deinit(&r->sent);
}
