/* Rebuilding the boards in Redis. The ledger lists all sales; they are counted in memory, and then
 * the count of each event on each board is written. */
#include "hot/memory_boards.h"
#include "hot/redis/internal.h"

/* Events in one command. */
#define ROWS_MAX 256

static struct redis_store *board_rebuild_store(struct boards *b) {
    return CONTAINER_OF(b, struct redis_store, boards);
}

/* The boards in memory, made with the first sale. */
static struct boards *board_rebuild_port(struct boards *b) {
    struct redis_store *s = board_rebuild_store(b);
    if (s->board_rebuild == NULL) s->board_rebuild = memory_boards_new();
    return memory_boards_port(s->board_rebuild);
}

void redis_restore_board_event(struct boards *b, const struct board_event *e) {
    boards_restore_event(board_rebuild_port(b), e);
}

void redis_restore_sale(struct boards *b, const struct sale *s, int64_t now_ms) {
    boards_restore(board_rebuild_port(b), s, now_ms);
}

/* ---- writing the counts ---- */

struct board_writer {
    const struct sale_mark *mark;
    int64_t now_ms;
    struct call call; /* to which rows are added */
    size_t rows;
};

static void board_writer_flush(struct board_writer *w) {
    if (w->rows > 0) rebuild_add(&w->call);
    w->rows = 0;
}

static void board_writer_on_board_sales(void *to, const struct period *p, const struct span *s,
                                        const struct board_sales *t) {
    struct board_writer *w = to;
    if (w->rows++ == 0) {
        board_begin(&w->call, "board_restore", p, s, w->now_ms);
        board_add_mark(&w->call, w->mark);
    }
    call_add_i64(&w->call, t->event_key);
    call_add_i64(&w->call, t->reservations);
    call_add_i64(&w->call, t->seats);
    call_add_i64(&w->call, t->since_ms);
    if (w->rows == ROWS_MAX) board_writer_flush(w);
}

static void board_writer_on_board_end(void *to) {
    board_writer_flush(to);
}

static void board_writer_add_sold_out(struct board_writer *w, const struct soldout_sales *s) {
    struct call day = {.store = w->call.store};
    struct span span = period_span(period_find(STR("daily")), s->sold_out_ms);
    soldout_day_begin(&day, "soldout_day_add", &span, w->now_ms);
    call_add_i64(&day, s->event_key);
    call_add_i64(&day, s->sold_out_ms);
    rebuild_add(&day);
}

static void board_writer_begin_soldout(struct board_writer *w) {
    soldout_begin(&w->call, "soldout_restore", w->now_ms);
    board_add_mark(&w->call, w->mark);
}

/* In the format of sales_text of lua/boards.lua, then its steps. */
static void board_writer_on_soldout_sales(void *to, const struct soldout_row *r) {
    struct board_writer *w = to;
    const struct soldout_sales *s = &r->sales;
    struct buf text = {0};
    if (w->rows++ == 0) board_writer_begin_soldout(w);
    call_add_i64(&w->call, s->event_key);
    buf_addf(&text, "%d %lld %lld %lld %lld %lld %lld 0", r->is_known, (long long)s->capacity,
             (long long)s->opened_ms, (long long)s->reservations, (long long)s->seats,
             (long long)s->since_ms, (long long)s->sold_out_ms);
    call_add(&w->call, buf_str(&text));
    board_add_steps(&w->call, r->steps, r->step_count);
    buf_deinit(&text);
    if (s->sold_out_ms != 0) board_writer_add_sold_out(w, s);
    if (w->rows == ROWS_MAX) board_writer_flush(w);
}

/* The board of all time exists even when there was no sale. */
void redis_boards_restored(struct boards *b, const struct sale_mark *mark, int64_t now_ms) {
    struct redis_store *s = board_rebuild_store(b);
    struct board_writer w = {.mark = mark, .now_ms = now_ms, .call.store = s};
    board_rebuild_port(b);
    memory_boards_read(s->board_rebuild, &(struct memory_boards_reader){
                                             .on_board_sales = board_writer_on_board_sales,
                                             .on_board_end = board_writer_on_board_end,
                                             .on_soldout_sales = board_writer_on_soldout_sales,
                                             .to = &w});
    board_writer_flush(&w);
    board_writer_begin_soldout(&w);
    rebuild_add(&w.call);
    memory_boards_free(s->board_rebuild);
    s->board_rebuild = NULL;
}
