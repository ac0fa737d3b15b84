/* The boards of the memory adapter (memory_boards.h): one board for each span of each period, and
 * the one of sold-out events. */
#include "hot/memory_boards.h"

#include <assert.h>
#include <pthread.h>

#include "base/list.h"
#include "base/mem.h"
#include "hot/board_rows.h"

#define DAY_MS INT64_C(86400000)

/* The board of one span of one period. */
struct popular {
    struct list link;
    const struct period *period;
    struct span span;
    struct board board;
};

struct memory_boards {
    struct boards boards;
    pthread_mutex_t lock;
    struct list popular; /* a few: the spans that are kept, of each period */
    struct soldout soldout;
    struct sale_mark mark;
};

static struct memory_boards *memory_boards_of(struct boards *b) {
    return CONTAINER_OF(b, struct memory_boards, boards);
}

/* ---- the boards of periods ---- */

static int64_t popular_expires_ms(const struct popular *p) {
    return p->span.ends_ms + p->period->kept_s * 1000;
}

static void popular_free(struct popular *p) {
    list_remove(&p->link);
    board_deinit(&p->board);
    mem_free(p);
}

/* NULL: there is none. */
static struct popular *popular_find(struct memory_boards *m, const struct period *period,
                                    int64_t at_ms) {
    for (struct list *at = m->popular.next; at != &m->popular; at = at->next) {
        struct popular *p = CONTAINER_OF(at, struct popular, link);
        if (p->period == period && p->span.begins_ms <= at_ms && at_ms < p->span.ends_ms) return p;
    }
    return NULL;
}

/* Whether the span that contains the time ended long ago, however long it is. This needs no
 * calendar, which would take most of the time when old reservations are restored. */
static bool popular_is_long_over(const struct period *p, int64_t at_ms, int64_t now_ms) {
    int64_t days_max = p->days + INT64_C(31) * p->months + 1;
    return at_ms + days_max * DAY_MS + p->kept_s * 1000 <= now_ms;
}

/* NULL: its time is over. */
static struct popular *popular_for(struct memory_boards *m, const struct period *period,
                                   int64_t at_ms, int64_t now_ms) {
    struct popular *p = popular_find(m, period, at_ms);
    if (p != NULL) return p;
    if (popular_is_long_over(period, at_ms, now_ms)) return NULL;
    struct popular new = {.period = period, .span = period_span(period, at_ms)};
    if (popular_expires_ms(&new) <= now_ms) return NULL;
    p = mem_new(sizeof *p);
    *p = new;
    board_init(&p->board);
    list_init(&p->link);
    list_move_last(&m->popular, &p->link);
    return p;
}

static void popular_expire(struct memory_boards *m, int64_t now_ms) {
    for (struct list *at = m->popular.next; at != &m->popular;) {
        struct popular *p = CONTAINER_OF(at, struct popular, link);
        at = at->next;
        if (popular_expires_ms(p) <= now_ms) popular_free(p);
    }
}

/* ---- counting ---- */

static void memory_begin_counting(struct boards *b, struct board_begin_op *op) {
    struct memory_boards *m = memory_boards_of(b);
    pthread_mutex_lock(&m->lock);
    op->mark = m->mark;
    pthread_mutex_unlock(&m->lock);
    op->lease = 1; /* there is no other node */
    op->result = ERR_OK;
    op->done(op);
}

static void memory_boards_add(struct memory_boards *m, const struct sale *s, int64_t now_ms) {
    soldout_add(&m->soldout, s);
    for (size_t i = 0; s->kind != SALE_SOLD_OUT && i < period_count; i++) {
        struct popular *p = popular_for(m, &periods[i], s->taken_ms, now_ms);
        if (p != NULL) board_add(&p->board, s);
    }
}

static void memory_boards_expire(struct memory_boards *m, int64_t now_ms) {
    popular_expire(m, now_ms);
    soldout_advance(&m->soldout, now_ms);
}

static void memory_count_sales(struct boards *b, struct board_count_op *op) {
    struct memory_boards *m = memory_boards_of(b);
    pthread_mutex_lock(&m->lock);
    memory_boards_expire(m, op->now_ms);
    for (size_t i = 0; i < op->count; i++) {
        const struct sale *s = &op->sales[i];
        if (!sale_is_after(&s->mark, &m->mark)) continue;
        m->mark = s->mark;
        memory_boards_add(m, s, op->now_ms);
    }
    pthread_mutex_unlock(&m->lock);
    op->result = ERR_OK;
    op->done(op);
}

static void memory_boards_set_event(struct memory_boards *m, const struct board_event *e) {
    soldout_set_event(&m->soldout, e->event_key, e->capacity, e->opened_ms);
}

static void memory_set_events(struct boards *b, struct board_events_op *op) {
    struct memory_boards *m = memory_boards_of(b);
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < op->count; i++) memory_boards_set_event(m, &op->events[i]);
    pthread_mutex_unlock(&m->lock);
    op->result = ERR_OK;
    op->done(op);
}

/* ---- looking ---- */

static size_t memory_top_popular(struct memory_boards *m, const struct board_name *name,
                                 struct board_row *rows, size_t max) {
    struct board_sales top[TOP_MAX];
    struct popular *p = popular_find(m, name->period, name->at_ms);
    size_t count = p == NULL ? 0 : board_top(&p->board, top, max);
    for (size_t i = 0; i < count; i++) rows[i] = board_row_of_sales(i + 1, &top[i]);
    return count;
}

static size_t memory_top_soldout(struct memory_boards *m, struct board_row *rows, size_t max) {
    struct soldout_sales top[TOP_MAX];
    size_t count = soldout_top(&m->soldout, top, max);
    for (size_t i = 0; i < count; i++) rows[i] = board_row_of_soldout(i + 1, &top[i]);
    return count;
}

/* The events that were sold out on the day, with their sales of the day; then the others that sold.
 */
static size_t memory_top_day(struct memory_boards *m, const struct board_name *name,
                             struct board_row *rows, size_t max) {
    struct soldout_sales out[TOP_MAX];
    struct board_row others[TOP_MAX];
    size_t count = soldout_day_top(&m->soldout, name->at_ms, out, max);
    struct popular *p = popular_find(m, name->period, name->at_ms);
    for (size_t i = 0; i < count; i++) {
        struct board_sales t = {0};
        if (p != NULL) board_find(&p->board, out[i].event_key, &t);
        rows[i] = board_row_of_day(i + 1, &out[i], &t);
    }
    return board_rows_append(rows, count, max, others,
                             memory_top_popular(m, name, others, TOP_MAX));
}

static void memory_top(struct boards *b, struct board_top_op *op) {
    struct memory_boards *m = memory_boards_of(b);
    assert(op->max <= TOP_MAX);
    pthread_mutex_lock(&m->lock);
    memory_boards_expire(m, op->now_ms);
    if (op->board.kind == BOARD_POPULAR)
        op->count = memory_top_popular(m, &op->board, op->rows, op->max);
    else if (op->board.period != NULL)
        op->count = memory_top_day(m, &op->board, op->rows, op->max);
    else
        op->count = memory_top_soldout(m, op->rows, op->max);
    pthread_mutex_unlock(&m->lock);
    op->result = ERR_OK;
    op->done(op);
}

static void memory_find_row(struct boards *b, struct board_find_op *op) {
    struct memory_boards *m = memory_boards_of(b);
    pthread_mutex_lock(&m->lock);
    op->mark = m->mark;
    memory_boards_expire(m, op->now_ms);
    if (op->board.kind == BOARD_POPULAR) {
        struct board_sales t = {0};
        struct popular *p = popular_find(m, op->board.period, op->board.at_ms);
        size_t rank = p == NULL ? 0 : board_find(&p->board, op->event_key, &t);
        op->row = board_row_of_sales(rank, &t);
    } else {
        struct soldout_sales found = {0};
        size_t rank = soldout_find(&m->soldout, op->event_key, &found);
        op->row = board_row_of_soldout(rank, &found);
    }
    pthread_mutex_unlock(&m->lock);
    op->result = ERR_OK;
    op->done(op);
}

/* ---- start and stop ---- */

static void memory_restore_board_event(struct boards *b, const struct board_event *e) {
    struct memory_boards *m = memory_boards_of(b);
    pthread_mutex_lock(&m->lock);
    memory_boards_set_event(m, e);
    pthread_mutex_unlock(&m->lock);
}

static void memory_restore_sale(struct boards *b, const struct sale *s, int64_t now_ms) {
    struct memory_boards *m = memory_boards_of(b);
    pthread_mutex_lock(&m->lock);
    memory_boards_expire(m, now_ms);
    memory_boards_add(m, s, now_ms);
    pthread_mutex_unlock(&m->lock);
}

static void memory_boards_restored(struct boards *b, const struct sale_mark *mark, int64_t now_ms) {
    struct memory_boards *m = memory_boards_of(b);
    (void)now_ms;
    pthread_mutex_lock(&m->lock);
    m->mark = *mark;
    pthread_mutex_unlock(&m->lock);
}

void memory_boards_read(struct memory_boards *m, const struct memory_boards_reader *r) {
    pthread_mutex_lock(&m->lock);
    for (struct list *at = m->popular.next; at != &m->popular; at = at->next) {
        const struct popular *p = CONTAINER_OF(at, struct popular, link);
        const struct board_sales *t;
        for (size_t i = 0; (t = map_next(&p->board.sales, &i)) != NULL;)
            r->on_board_sales(r->to, p->period, &p->span, t);
        r->on_board_end(r->to);
    }
    struct soldout_row row;
    for (size_t i = 0; soldout_next(&m->soldout, &i, &row);) r->on_soldout_sales(r->to, &row);
    pthread_mutex_unlock(&m->lock);
}

static const struct boards_ops memory_boards_ops = {
    .begin = memory_begin_counting,
    .count = memory_count_sales,
    .set_events = memory_set_events,
    .top = memory_top,
    .find = memory_find_row,
    .restore_event = memory_restore_board_event,
    .restore = memory_restore_sale,
    .restored = memory_boards_restored,
};

struct memory_boards *memory_boards_new(void) {
    struct memory_boards *m = mem_new(sizeof *m);
    m->boards.ops = &memory_boards_ops;
    pthread_mutex_init(&m->lock, NULL);
    list_init(&m->popular);
    soldout_init(&m->soldout);
    return m;
}

void memory_boards_free(struct memory_boards *m) {
    while (m->popular.next != &m->popular)
        popular_free(CONTAINER_OF(m->popular.next, struct popular, link));
    soldout_deinit(&m->soldout);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

struct boards *memory_boards_port(struct memory_boards *m) {
    return &m->boards;
}
