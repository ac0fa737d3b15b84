/* The boards' side of the Redis adapter (port/boards.h): each operation is one or more calls of
 * functions of lua/boards.lua, which documents keys, arguments and replies. Every board is updated
 * separately: the sums of a batch of sales are sent to each board that they concern, and to the
 * board of all time last. Its watermark is the one up to which all boards are complete. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "hot/board_rows.h"
#include "hot/redis/internal.h"

/* How many events of a day are read at a time. */
#define ROWS_MAX 256

static struct redis_store *boards_store(struct boards *b) {
    return CONTAINER_OF(b, struct redis_store, boards);
}

/* ---- keys and arguments ---- */

static void board_add_keyf(struct call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void board_add_keyf(struct call *c, const char *format, ...) {
    char key[96];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(key, sizeof key, format, args);
    va_end(args);
    assert(len > 0 && (size_t)len < sizeof key);
    call_add(c, (str){key, (size_t)len});
}

void board_add_mark(struct call *c, const struct sale_mark *mark) {
    char text[48];
    int len = snprintf(text, sizeof text, "%llu %lld", (unsigned long long)mark->transaction,
                       (long long)mark->id);
    call_add(c, (str){text, (size_t)len});
}

void board_add_steps(struct call *c, const struct pace_step *steps, size_t count) {
    struct buf text = {0};
    for (size_t i = 0; i < count; i++)
        buf_addf(&text, "%lld=%lld ", (long long)steps[i].step, (long long)steps[i].seats);
    call_add(c, buf_str(&text));
    buf_deinit(&text);
}

static struct sale_mark board_read_mark(const redisReply *r) {
    str text = reply_str(r);
    uint64_t transaction = (uint64_t)text_next_i64(&text);
    return (struct sale_mark){.transaction = transaction, .id = text_next_i64(&text)};
}

static int64_t board_expires_ms(const struct period *p, const struct span *s) {
    return s->ends_ms + p->kept_s * 1000;
}

void board_begin(struct call *c, const char *function, const struct period *p,
                 const struct span *span, int64_t now_ms) {
    call_begin(c, function, 2);
    board_add_keyf(c, "popularity:ranking:{%s:%s}", p->word.at, span->name);
    board_add_keyf(c, "performance:{%s:%s}:info", p->word.at, span->name);
    call_add_now(c, now_ms);
    call_add_i64(c, board_expires_ms(p, span));
}

void soldout_begin(struct call *c, const char *function, int64_t now_ms) {
    call_begin(c, function, 4);
    call_add(c, STR("ranking:{soldout}"));
    call_add(c, STR("performance:{soldout}:info"));
    call_add(c, STR("performance:{soldout}:pace"));
    call_add(c, STR("performance:{soldout}:paced"));
    c->requires_event = true; /* this board exists in every incarnation */
    call_add_now(c, now_ms);
}

void soldout_day_begin(struct call *c, const char *function, const struct span *day,
                       int64_t now_ms) {
    call_begin(c, function, 1);
    board_add_keyf(c, "ranking:{soldout:%s}", day->name);
    call_add_now(c, now_ms);
    call_add_i64(c, board_expires_ms(period_find(STR("daily")), day));
}

/* ---- replies ---- */

/* A read that may or may not have been executed was simply not answered. */
static enum err board_read_result(enum err result) {
    return result == ERR_HOT_UNKNOWN ? ERR_HOT_UNAVAILABLE : result;
}

static struct board_sales board_read_sales(int64_t event_key, str text) {
    struct board_sales t = {.event_key = event_key};
    t.reservations = text_next_i64(&text);
    t.seats = text_next_i64(&text);
    t.since_ms = text_next_i64(&text);
    return t;
}

static struct soldout_sales board_read_soldout_sales(int64_t event_key, str text) {
    struct soldout_sales s = {.event_key = event_key};
    text_next_i64(&text); /* whether its capacity is known: if not, it is not shown */
    s.capacity = text_next_i64(&text);
    s.opened_ms = text_next_i64(&text);
    s.reservations = text_next_i64(&text);
    s.seats = text_next_i64(&text);
    s.since_ms = text_next_i64(&text);
    s.sold_out_ms = text_next_i64(&text);
    s.pace = text_next_i64(&text);
    return s;
}

/* The best rows of a board: alternately an event's key and its text. */
static size_t board_read_popular(const redisReply *top, struct board_row *rows, size_t max) {
    size_t count = 0;
    for (; count < max && reply_at(top, 2 * count) != NULL; count++) {
        struct board_sales t = board_read_sales(reply_i64(reply_at(top, 2 * count)),
                                                reply_str(reply_at(top, 2 * count + 1)));
        rows[count] = board_row_of_sales(count + 1, &t);
    }
    return count;
}

static size_t board_read_soldout(const redisReply *top, struct board_row *rows, size_t max) {
    size_t count = 0;
    for (; count < max && reply_at(top, 2 * count) != NULL; count++) {
        struct soldout_sales s = board_read_soldout_sales(reply_i64(reply_at(top, 2 * count)),
                                                          reply_str(reply_at(top, 2 * count + 1)));
        rows[count] = board_row_of_soldout(count + 1, &s);
    }
    return count;
}

/* ---- the lease to count, and the events that sell ---- */

static void redis_on_counting_begun(struct call *c, enum err result, const redisReply *reply) {
    struct board_begin_op *op = c->op;
    op->result = result;
    op->lease = reply_i64(reply_at(reply, 0));
    op->mark = board_read_mark(reply_at(reply, 1));
    op->epoch = c->epoch;
    call_free(c);
    op->done(op);
}

static void redis_begin_counting(struct boards *b, struct board_begin_op *op) {
    struct call *c = call_new(boards_store(b), op);
    soldout_begin(c, "soldout_begin", op->now_ms);
    call_add(c, str_of(c->store->node));
    call_send(c, redis_on_counting_begun);
}

static void redis_on_events_set(struct call *c, enum err result, const redisReply *reply) {
    struct board_events_op *op = call_free(c);
    op->result = result == ERR_OK && reply_i64(reply) == 0 ? ERR_RECOVERING : result;
    op->done(op);
}

static void redis_set_events(struct boards *b, struct board_events_op *op) {
    struct call *c = call_new(boards_store(b), op);
    soldout_begin(c, "soldout_set_events", op->now_ms);
    call_add_u64(c, op->epoch);
    call_add_i64(c, op->lease);
    for (size_t i = 0; i < op->count; i++) {
        call_add_i64(c, op->events[i].event_key);
        call_add_i64(c, op->events[i].capacity);
        call_add_i64(c, op->events[i].opened_ms);
    }
    call_send(c, redis_on_events_set);
}

/* ---- counting ---- */

/* The sales of one event in a batch, added up. */
struct event_sum {
    int64_t event_key;
    int64_t reservations;
    int64_t seats;
    int64_t since_ms;
    int64_t sold_out_ms;
    struct pace_step *steps;
    size_t step_count;
};

enum board_sums_kind { OF_PERIOD, OF_DAY, OF_ALL_TIME };

/* The sums of the batch for one board. If the board has some of the sales already, because a node
 * did not finish the same batch, it answers with its watermark and is sent the sums of the rest. */
struct board_sums {
    struct call call;
    struct list link;
    struct board_counting *counting;
    enum board_sums_kind kind;
    const struct period *period; /* of a period or a day */
    struct span span;
    struct sale_mark first;
    struct sale_mark last;
    struct event_sum *sums;
    size_t sum_count;
};

struct board_counting {
    struct redis_store *store;
    struct board_count_op *op;
    struct list sums;            /* until they are sent: struct board_sums */
    struct board_sums *all_time; /* sent last: then the watermark of all boards moves */
    size_t under_way;
    enum err failed; /* OK so far */
};

/* ---- adding up ---- */

static void event_sum_add_step(struct event_sum *sum, int64_t step, int64_t seats) {
    size_t i = 0;
    while (i < sum->step_count && sum->steps[i].step != step) i++;
    if (i == sum->step_count) {
        sum->steps = mem_grow(sum->steps, (i + 1) * sizeof *sum->steps);
        sum->steps[sum->step_count++] = (struct pace_step){.step = step};
    }
    sum->steps[i].seats += seats;
}

static struct event_sum *board_sums_event(struct board_sums *p, int64_t event_key) {
    for (size_t i = 0; i < p->sum_count; i++)
        if (p->sums[i].event_key == event_key) return &p->sums[i];
    p->sums = mem_grow(p->sums, (p->sum_count + 1) * sizeof *p->sums);
    p->sums[p->sum_count] = (struct event_sum){.event_key = event_key};
    return &p->sums[p->sum_count++];
}

static void board_sums_add(struct board_sums *p, const struct sale *s) {
    if (p->sum_count == 0) p->first = s->mark;
    p->last = s->mark;
    struct event_sum *sum = board_sums_event(p, s->event_key);
    if (s->kind == SALE_SOLD_OUT) {
        if (s->at_ms > sum->sold_out_ms) sum->sold_out_ms = s->at_ms;
        return;
    }
    int64_t sign = s->kind == SALE_TAKEN ? 1 : -1;
    sum->reservations += sign;
    sum->seats += sign * s->seats;
    if (sign > 0 && s->taken_ms > sum->since_ms) sum->since_ms = s->taken_ms;
    if (p->kind == OF_ALL_TIME)
        event_sum_add_step(sum, s->taken_ms / PACE_STEP_MS, sign * s->seats);
}

static bool board_sums_concern(const struct board_sums *p, const struct sale *s) {
    if (p->kind == OF_ALL_TIME) return true;
    bool is_sold_out = s->kind == SALE_SOLD_OUT;
    int64_t at_ms = is_sold_out ? s->at_ms : s->taken_ms;
    return is_sold_out == (p->kind == OF_DAY) && p->span.begins_ms <= at_ms &&
           at_ms < p->span.ends_ms;
}

static struct board_sums *board_sums_new(struct board_counting *n, enum board_sums_kind kind,
                                         const struct period *period, int64_t at_ms) {
    struct board_sums *p = mem_new(sizeof *p);
    p->call.store = n->store;
    p->counting = n;
    p->kind = kind;
    p->period = period;
    if (period != NULL) p->span = period_span(period, at_ms);
    list_init(&p->link);
    return p;
}

static void board_sums_clear(struct board_sums *p) {
    for (size_t i = 0; i < p->sum_count; i++) mem_free(p->sums[i].steps);
    p->sum_count = 0;
}

static void board_sums_free(struct board_sums *p) {
    board_sums_clear(p);
    mem_free(p->sums);
    mem_free(p);
}

/* Adds the sale to the sums for the board of its span. */
static void board_counting_add_to(struct board_counting *n, enum board_sums_kind kind,
                                  const struct period *period, const struct sale *s) {
    for (struct list *at = n->sums.next; at != &n->sums; at = at->next) {
        struct board_sums *p = CONTAINER_OF(at, struct board_sums, link);
        if (p->kind != kind || p->period != period || !board_sums_concern(p, s)) continue;
        board_sums_add(p, s);
        return;
    }
    int64_t at_ms = kind == OF_DAY ? s->at_ms : s->taken_ms;
    struct board_sums *p = board_sums_new(n, kind, period, at_ms);
    list_move_last(&n->sums, &p->link);
    board_sums_add(p, s);
}

static void board_counting_add(struct board_counting *n, const struct sale *s) {
    board_sums_add(n->all_time, s);
    if (s->kind == SALE_SOLD_OUT) {
        board_counting_add_to(n, OF_DAY, period_find(STR("daily")), s);
        return;
    }
    for (size_t i = 0; i < period_count; i++) board_counting_add_to(n, OF_PERIOD, &periods[i], s);
}

/* ---- sending the sums ---- */

static void event_sum_add_board_to(struct call *c, const struct event_sum *sum) {
    call_add_i64(c, sum->event_key);
    call_add_i64(c, sum->reservations);
    call_add_i64(c, sum->seats);
    call_add_i64(c, sum->since_ms);
}

static void event_sum_add_sold_out_to(struct call *c, const struct event_sum *sum) {
    call_add_i64(c, sum->event_key);
    call_add_i64(c, sum->sold_out_ms);
}

static void event_sum_add_soldout_to(struct call *c, const struct event_sum *sum) {
    event_sum_add_board_to(c, sum);
    call_add_i64(c, sum->sold_out_ms);
    board_add_steps(c, sum->steps, sum->step_count);
}

static void board_sums_begin(struct board_sums *p) {
    const struct board_count_op *op = p->counting->op;
    if (p->kind == OF_DAY) {
        soldout_day_begin(&p->call, "soldout_day_add", &p->span, op->now_ms);
        return;
    }
    if (p->kind == OF_PERIOD)
        board_begin(&p->call, "board_add", p->period, &p->span, op->now_ms);
    else
        soldout_begin(&p->call, "soldout_add", op->now_ms);
    call_add_u64(&p->call, op->epoch);
    board_add_mark(&p->call, &p->first);
    board_add_mark(&p->call, &p->last);
}

static void board_counting_continue(struct board_counting *n);
static void board_sums_send(struct board_sums *p);

/* Only the sales after the watermark. */
static void board_sums_add_after(struct board_sums *p, const struct sale_mark *mark) {
    const struct board_count_op *op = p->counting->op;
    board_sums_clear(p);
    for (size_t i = 0; i < op->count; i++) {
        const struct sale *s = &op->sales[i];
        if (board_sums_concern(p, s) && sale_is_after(&s->mark, mark)) board_sums_add(p, s);
    }
}

static void redis_on_sums_sent(struct call *c, enum err result, const redisReply *reply) {
    struct board_sums *p = CONTAINER_OF(c, struct board_sums, call);
    struct board_counting *n = p->counting;
    if (result == ERR_OK && reply_str(reply).len > 0) {
        struct sale_mark mark = board_read_mark(reply);
        board_sums_add_after(p, &mark);
        if (p->sum_count > 0) {
            board_sums_send(p);
            return;
        }
    }
    board_sums_free(p);
    if (result != ERR_OK) n->failed = result;
    n->under_way--;
    board_counting_continue(n);
}

static void board_sums_send(struct board_sums *p) {
    static void (*const add[])(struct call * c, const struct event_sum *sum) = {
        [OF_PERIOD] = event_sum_add_board_to,
        [OF_DAY] = event_sum_add_sold_out_to,
        [OF_ALL_TIME] = event_sum_add_soldout_to};
    board_sums_begin(p);
    for (size_t i = 0; i < p->sum_count; i++) add[p->kind](&p->call, &p->sums[i]);
    call_send(&p->call, redis_on_sums_sent);
}

/* When all other boards have their sums, sends those of the board of all time; then ends. */
static void board_counting_continue(struct board_counting *n) {
    struct board_sums *last = n->all_time;
    if (n->under_way > 0) return;
    n->all_time = NULL;
    if (last != NULL && n->failed == ERR_OK) {
        n->under_way++;
        board_sums_send(last);
        return;
    }
    if (last != NULL) board_sums_free(last);
    struct board_count_op *op = n->op;
    op->result = n->failed;
    mem_free(n);
    op->done(op);
}

static void redis_count_sales(struct boards *b, struct board_count_op *op) {
    struct board_counting *n = mem_new(sizeof *n);
    *n = (struct board_counting){.store = boards_store(b), .op = op, .under_way = 1};
    list_init(&n->sums);
    n->all_time = board_sums_new(n, OF_ALL_TIME, NULL, 0);
    for (size_t i = 0; i < op->count; i++) board_counting_add(n, &op->sales[i]);
    while (!list_empty(&n->sums)) {
        struct board_sums *p = CONTAINER_OF(n->sums.next, struct board_sums, link);
        list_remove(&p->link);
        n->under_way++;
        board_sums_send(p);
    }
    n->under_way--; /* all are sent */
    board_counting_continue(n);
}

/* ---- the best rows of a board ---- */

static void redis_on_top_soldout(struct call *c, enum err result, const redisReply *reply) {
    struct board_top_op *op = call_free(c);
    op->count = board_read_soldout(reply, op->rows, op->max);
    op->result = board_read_result(result);
    op->done(op);
}

static void redis_on_top_popular(struct call *c, enum err result, const redisReply *reply) {
    struct board_top_op *op = call_free(c);
    op->count = board_read_popular(reply_at(reply, 0), op->rows, op->max);
    op->result = board_read_result(result);
    op->done(op);
}

/* ---- a day: the events that were sold out on it, then the others that sold ---- */

struct day_look {
    struct call call;
    struct board_top_op *op;
    struct span span;
    int64_t *keys; /* of events that may have been sold out on the day */
    size_t key_count;
    size_t looked_at;
    struct soldout_sales *out; /* those that were; in the end those that are shown */
    size_t out_count;
};

static void day_look_end(struct day_look *l, enum err result) {
    struct board_top_op *op = l->op;
    op->result = board_read_result(result);
    mem_free(l->keys);
    mem_free(l->out);
    mem_free(l);
    op->done(op);
}

static int sales_compare_speed(const void *a, const void *b) {
    const struct soldout_sales *x = a;
    const struct soldout_sales *y = b;
    int64_t x_ms = x->sold_out_ms - x->opened_ms;
    int64_t y_ms = y->sold_out_ms - y->opened_ms;
    if (x_ms < 0) x_ms = 0;
    if (y_ms < 0) y_ms = 0;
    if (x_ms != y_ms) return x_ms < y_ms ? -1 : 1;
    return x->sold_out_ms < y->sold_out_ms ? -1 : x->sold_out_ms > y->sold_out_ms;
}

static void day_look_on_popular(struct call *c, enum err result, const redisReply *reply) {
    struct day_look *l = CONTAINER_OF(c, struct day_look, call);
    struct board_top_op *op = l->op;
    struct board_row others[TOP_MAX];
    const redisReply *sales = reply_at(reply, 1);
    for (size_t i = 0; i < l->out_count; i++) {
        struct board_sales t = board_read_sales(l->out[i].event_key, reply_str(reply_at(sales, i)));
        op->rows[i] = board_row_of_day(i + 1, &l->out[i], &t);
    }
    size_t other_count = board_read_popular(reply_at(reply, 0), others, TOP_MAX);
    op->count = board_rows_append(op->rows, l->out_count, op->max, others, other_count);
    day_look_end(l, result);
}

static void day_look_popular(struct day_look *l) {
    qsort(l->out, l->out_count, sizeof *l->out, sales_compare_speed);
    if (l->out_count > l->op->max) l->out_count = l->op->max;
    board_begin(&l->call, "board_top", period_find(STR("daily")), &l->span, l->op->now_ms);
    call_add_i64(&l->call, TOP_MAX);
    for (size_t i = 0; i < l->out_count; i++) call_add_i64(&l->call, l->out[i].event_key);
    call_send(&l->call, day_look_on_popular);
}

static void day_look_rows(struct day_look *l);

/* Skips events that are not sold out any more, or were sold out again on another day. */
static void day_look_on_rows(struct call *c, enum err result, const redisReply *reply) {
    struct day_look *l = CONTAINER_OF(c, struct day_look, call);
    if (result != ERR_OK) {
        day_look_end(l, result);
        return;
    }
    const redisReply *row;
    for (size_t i = 0; (row = reply_at(reply, i)) != NULL && l->looked_at < l->key_count; i++) {
        struct soldout_sales s = board_read_soldout_sales(l->keys[l->looked_at++], reply_str(row));
        if (soldout_is_sold_out(&s) && s.sold_out_ms >= l->span.begins_ms &&
            s.sold_out_ms < l->span.ends_ms)
            l->out[l->out_count++] = s;
    }
    day_look_rows(l);
}

static void day_look_rows(struct day_look *l) {
    if (l->looked_at == l->key_count) {
        day_look_popular(l);
        return;
    }
    soldout_begin(&l->call, "soldout_rows", l->op->now_ms);
    for (size_t i = l->looked_at; i < l->key_count && i < l->looked_at + ROWS_MAX; i++)
        call_add_i64(&l->call, l->keys[i]);
    call_send(&l->call, day_look_on_rows);
}

static void day_look_on_events(struct call *c, enum err result, const redisReply *reply) {
    struct day_look *l = CONTAINER_OF(c, struct day_look, call);
    if (result != ERR_OK) {
        day_look_end(l, result);
        return;
    }
    l->keys = mem_new((reply->elements + 1) * sizeof *l->keys);
    l->out = mem_new((reply->elements + 1) * sizeof *l->out);
    while (l->key_count < reply->elements) {
        l->keys[l->key_count] = reply_i64(reply_at(reply, l->key_count));
        l->key_count++;
    }
    day_look_rows(l);
}

static void redis_top(struct boards *b, struct board_top_op *op) {
    assert(op->max <= TOP_MAX && (op->board.kind != BOARD_POPULAR || op->board.period != NULL));
    struct redis_store *s = boards_store(b);
    op->count = 0;
    if (op->board.kind == BOARD_SOLDOUT && op->board.period != NULL) {
        struct day_look *l = mem_new(sizeof *l);
        l->call.store = s;
        l->op = op;
        l->span = period_span(op->board.period, op->board.at_ms);
        soldout_day_begin(&l->call, "soldout_day", &l->span, op->now_ms);
        call_send(&l->call, day_look_on_events);
        return;
    }
    bool is_popular = op->board.kind == BOARD_POPULAR;
    struct call *c = call_new(s, op);
    if (is_popular) {
        struct span span = period_span(op->board.period, op->board.at_ms);
        board_begin(c, "board_top", op->board.period, &span, op->now_ms);
    } else {
        soldout_begin(c, "soldout_top", op->now_ms);
    }
    call_add_u64(c, op->max);
    call_send(c, is_popular ? redis_on_top_popular : redis_on_top_soldout);
}

/* ---- the row of one event ---- */

static void redis_on_row_found(struct call *c, enum err result, const redisReply *reply) {
    struct board_find_op *op = call_free(c);
    size_t rank = (size_t)reply_u64(reply_at(reply, 0));
    int64_t event_key = rank > 0 ? op->event_key : 0;
    struct board_sales t = board_read_sales(event_key, reply_str(reply_at(reply, 1)));
    struct soldout_sales s = board_read_soldout_sales(event_key, reply_str(reply_at(reply, 1)));
    op->row = op->board.kind == BOARD_POPULAR ? board_row_of_sales(rank, &t)
                                              : board_row_of_soldout(rank, &s);
    op->mark = board_read_mark(reply_at(reply, 2));
    op->result = board_read_result(result);
    op->done(op);
}

static void redis_find_row(struct boards *b, struct board_find_op *op) {
    struct call *c = call_new(boards_store(b), op);
    if (op->board.kind == BOARD_POPULAR) {
        struct span span = period_span(op->board.period, op->board.at_ms);
        board_begin(c, "board_find", op->board.period, &span, op->now_ms);
    } else {
        soldout_begin(c, "soldout_find", op->now_ms);
    }
    call_add_i64(c, op->event_key);
    call_send(c, redis_on_row_found);
}

const struct boards_ops redis_boards_ops = {
    .begin = redis_begin_counting,
    .count = redis_count_sales,
    .set_events = redis_set_events,
    .top = redis_top,
    .find = redis_find_row,
    .restore_event = redis_restore_board_event,
    .restore = redis_restore_sale,
    .restored = redis_boards_restored,
};
