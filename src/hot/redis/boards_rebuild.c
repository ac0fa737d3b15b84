/* What boards have when the store is being filled. The ledger tells all that is sold, one after the
 * other; that is counted in memory, and written as what each board has of each event. */
#include "hot/memory_boards.h"
#include "hot/redis/internal.h"

/* So many events go into one command. */
#define ROWS_MAX 256

static struct redis_store *store_of(struct boards *b) {
    return CONTAINER_OF(b, struct redis_store, boards);
}

static struct boards *gathered_of(struct boards *b) {
    struct redis_store *s = store_of(b);
    if (s->gathered == NULL) s->gathered = memory_boards_new();
    return memory_boards_port(s->gathered);
}

void boards_gather_event(struct boards *b, const struct board_event *e) {
    boards_restore_event(gathered_of(b), e);
}

void boards_gather(struct boards *b, const struct sale *s, int64_t now_ms) {
    boards_restore(gathered_of(b), s, now_ms);
}

/* ---- writing it ---- */

/* The command that rows are added to. */
struct writing {
    struct redis_store *store;
    const struct sale_mark *mark;
    int64_t now_ms;
    struct call call;
    size_t rows;
};

static void write_out(struct writing *w) {
    if (w->rows > 0) rebuild_add(w->store, &w->call);
    w->rows = 0;
}

static void on_tally(void *to, const struct period *p, const struct span *s,
                     const struct tally *t) {
    struct writing *w = to;
    if (w->rows++ == 0) {
        board_begin(&w->call, w->store, "board_restore", p, s, w->now_ms);
        call_add_mark(&w->call, w->mark);
    }
    call_add_i64(&w->call, t->event_key);
    call_add_i64(&w->call, t->reservations);
    call_add_i64(&w->call, t->seats);
    call_add_i64(&w->call, t->since_ms);
    if (w->rows == ROWS_MAX) write_out(w);
}

static void on_board_end(void *to) {
    write_out(to);
}

static void write_sold_out(struct writing *w, const struct selling *s) {
    struct call day = {0};
    struct span span = period_span(period_find(STR("daily")), s->sold_out_ms);
    soldout_day_begin(&day, w->store, "soldout_day_add", &span, w->now_ms);
    call_add_i64(&day, s->event_key);
    call_add_i64(&day, s->sold_out_ms);
    rebuild_add(w->store, &day);
}

static void begin_soldout(struct writing *w) {
    soldout_begin(&w->call, w->store, "soldout_restore", w->now_ms);
    call_add_mark(&w->call, w->mark);
}

/* As selling_text of lua/boards.lua has it, and its steps. */
static void on_selling(void *to, const struct soldout_row *r) {
    struct writing *w = to;
    const struct selling *s = &r->selling;
    struct buf text = {0};
    if (w->rows++ == 0) begin_soldout(w);
    call_add_i64(&w->call, s->event_key);
    buf_addf(&text, "%d %lld %lld %lld %lld %lld %lld 0", r->is_known, (long long)s->capacity,
             (long long)s->opened_ms, (long long)s->reservations, (long long)s->seats,
             (long long)s->since_ms, (long long)s->sold_out_ms);
    call_add(&w->call, buf_str(&text));
    call_add_steps(&w->call, r->steps, r->step_count);
    buf_deinit(&text);
    if (s->sold_out_ms != 0) write_sold_out(w, s);
    if (w->rows == ROWS_MAX) write_out(w);
}

/* The board of all time is there even when nothing was ever sold. */
void boards_gathered(struct boards *b, const struct sale_mark *mark, int64_t now_ms) {
    struct redis_store *s = store_of(b);
    struct writing w = {.store = s, .mark = mark, .now_ms = now_ms};
    gathered_of(b);
    memory_boards_tell(s->gathered, &(struct memory_boards_reader){.on_tally = on_tally,
                                                                   .on_board_end = on_board_end,
                                                                   .on_selling = on_selling,
                                                                   .to = &w});
    write_out(&w);
    begin_soldout(&w);
    rebuild_add(s, &w.call);
    memory_boards_free(s->gathered);
    s->gathered = NULL;
}
