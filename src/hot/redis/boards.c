/* The boards' side of the Redis adapter: lua/boards.lua says which keys they have, and what the
 * functions' arguments and replies are. Every board is on its own: a batch of sales is told to each
 * that it concerns, and to the one of all time last, whose mark says how far all of them are. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "hot/board_rows.h"
#include "hot/redis/internal.h"

/* Those that were sold out on a day are looked at so many at a time. */
#define ROWS_MAX 256

static struct redis_store *store_of(struct boards *b) {
    return CONTAINER_OF(b, struct redis_store, boards);
}

/* ---- keys and arguments ---- */

static void add_keyf(struct call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_keyf(struct call *c, const char *format, ...) {
    char key[96];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(key, sizeof key, format, args);
    va_end(args);
    assert(len > 0 && (size_t)len < sizeof key);
    call_add(c, (str){key, (size_t)len});
}

void call_add_mark(struct call *c, const struct sale_mark *mark) {
    char text[48];
    int len = snprintf(text, sizeof text, "%llu %lld", (unsigned long long)mark->transaction,
                       (long long)mark->id);
    call_add(c, (str){text, (size_t)len});
}

void call_add_steps(struct call *c, const struct pace_step *steps, size_t count) {
    struct buf text = {0};
    for (size_t i = 0; i < count; i++)
        buf_addf(&text, "%lld=%lld ", (long long)steps[i].step, (long long)steps[i].seats);
    call_add(c, buf_str(&text));
    buf_deinit(&text);
}

static struct sale_mark mark_of(const redisReply *r) {
    str text = reply_str(r);
    uint64_t transaction = (uint64_t)text_next_i64(&text);
    return (struct sale_mark){.transaction = transaction, .id = text_next_i64(&text)};
}

static int64_t gone_ms(const struct period *p, const struct span *s) {
    return s->ends_ms + p->kept_s * 1000;
}

void board_begin(struct call *c, const struct redis_store *s, const char *function,
                 const struct period *p, const struct span *span, int64_t now_ms) {
    call_begin(c, function, 2);
    add_keyf(c, "popularity:ranking:{%s:%s}", p->word.at, span->name);
    add_keyf(c, "performance:{%s:%s}:info", p->word.at, span->name);
    call_add_now(c, s, now_ms);
    call_add_i64(c, gone_ms(p, span));
}

void soldout_begin(struct call *c, const struct redis_store *s, const char *function,
                   int64_t now_ms) {
    call_begin(c, function, 4);
    call_add(c, STR("ranking:{soldout}"));
    call_add(c, STR("performance:{soldout}:info"));
    call_add(c, STR("performance:{soldout}:pace"));
    call_add(c, STR("performance:{soldout}:paced"));
    c->expects = true; /* it is there in every incarnation */
    call_add_now(c, s, now_ms);
}

void soldout_day_begin(struct call *c, const struct redis_store *s, const char *function,
                       const struct span *day, int64_t now_ms) {
    call_begin(c, function, 1);
    add_keyf(c, "ranking:{soldout:%s}", day->name);
    call_add_now(c, s, now_ms);
    call_add_i64(c, gone_ms(period_find(STR("daily")), day));
}

static void send_call(struct call *c,
                      void (*done)(struct call *c, enum err result, const redisReply *reply)) {
    c->done = done;
    c->repeats = true; /* marks see to it */
    link_send(redis_worker_mine()->link, c);
}

/* ---- replies ---- */

/* Of a look nobody needs to know whether it was done. */
static enum err looked(enum err result) {
    return result == ERR_HOT_UNKNOWN ? ERR_HOT_UNAVAILABLE : result;
}

static struct tally tally_of(int64_t event_key, str text) {
    struct tally t = {.event_key = event_key};
    t.reservations = text_next_i64(&text);
    t.seats = text_next_i64(&text);
    t.since_ms = text_next_i64(&text);
    return t;
}

static struct selling selling_of(int64_t event_key, str text) {
    struct selling s = {.event_key = event_key};
    text_next_i64(&text); /* whether it is known: it is not shown if not */
    s.capacity = text_next_i64(&text);
    s.opened_ms = text_next_i64(&text);
    s.reservations = text_next_i64(&text);
    s.seats = text_next_i64(&text);
    s.since_ms = text_next_i64(&text);
    s.sold_out_ms = text_next_i64(&text);
    s.pace = text_next_i64(&text);
    return s;
}

/* The rows of a top: an event's key and its text in turn. */
static size_t read_popular(const redisReply *top, struct board_row *rows, size_t max) {
    size_t count = 0;
    for (; count < max && reply_at(top, 2 * count) != NULL; count++) {
        struct tally t =
            tally_of(reply_i64(reply_at(top, 2 * count)), reply_str(reply_at(top, 2 * count + 1)));
        rows[count] = board_row_of_tally(count + 1, &t);
    }
    return count;
}

static size_t read_soldout(const redisReply *top, struct board_row *rows, size_t max) {
    size_t count = 0;
    for (; count < max && reply_at(top, 2 * count) != NULL; count++) {
        struct selling s = selling_of(reply_i64(reply_at(top, 2 * count)),
                                      reply_str(reply_at(top, 2 * count + 1)));
        rows[count] = board_row_of_selling(count + 1, &s);
    }
    return count;
}

/* ---- turns, and what there is to sell ---- */

struct beginning {
    struct call call;
    struct board_begin_op *op;
};

static void on_begun(struct call *c, enum err result, const redisReply *reply) {
    struct beginning *b = CONTAINER_OF(c, struct beginning, call);
    struct board_begin_op *op = b->op;
    op->result = result;
    op->lease = reply_i64(reply_at(reply, 0));
    op->mark = mark_of(reply_at(reply, 1));
    op->epoch = c->epoch;
    mem_free(b);
    op->done(op);
}

static void redis_begin(struct boards *boards, struct board_begin_op *op) {
    struct redis_store *s = store_of(boards);
    struct beginning *b = mem_new(sizeof *b);
    b->op = op;
    soldout_begin(&b->call, s, "soldout_begin", op->now_ms);
    call_add(&b->call, str_of(s->node));
    send_call(&b->call, on_begun);
}

struct knowing {
    struct call call;
    struct board_events_op *op;
};

static void on_known(struct call *c, enum err result, const redisReply *reply) {
    struct knowing *k = CONTAINER_OF(c, struct knowing, call);
    struct board_events_op *op = k->op;
    op->result = result == ERR_OK && reply_i64(reply) == 0 ? ERR_RECOVERING : result;
    mem_free(k);
    op->done(op);
}

static void redis_set_events(struct boards *boards, struct board_events_op *op) {
    struct knowing *k = mem_new(sizeof *k);
    k->op = op;
    soldout_begin(&k->call, store_of(boards), "soldout_know", op->now_ms);
    call_add_u64(&k->call, op->epoch);
    call_add_i64(&k->call, op->lease);
    for (size_t i = 0; i < op->count; i++) {
        call_add_i64(&k->call, op->events[i].event_key);
        call_add_i64(&k->call, op->events[i].capacity);
        call_add_i64(&k->call, op->events[i].opened_ms);
    }
    send_call(&k->call, on_known);
}

/* ---- counting ---- */

/* What a batch tells of one event, in sum. */
struct batch_sum {
    int64_t event_key;
    int64_t reservations;
    int64_t seats;
    int64_t since_ms;
    int64_t sold_out_ms;
    struct pace_step *steps;
    size_t step_count;
};

enum portion_kind { OF_PERIOD, OF_DAY, OF_ALL_TIME };

/* What one board is told of the batch: the sums of it. One that has had some of it already, for
 * whoever told it that did not get to the end, says up to where, and is told the sums of the rest.
 */
struct portion {
    struct call call;
    struct list link;
    struct counting *counting;
    enum portion_kind kind;
    const struct period *period; /* of a period or a day */
    struct span span;
    struct sale_mark first;
    struct sale_mark last;
    struct batch_sum *sums;
    size_t sum_count;
};

struct counting {
    struct redis_store *store;
    struct board_count_op *op;
    struct list portions;
    struct portion *all_time; /* told last: then the mark of all moves */
    size_t under_way;
    enum err failed; /* OK so far */
};

/* ---- summing ---- */

static void add_step(struct batch_sum *sum, int64_t step, int64_t seats) {
    size_t i = 0;
    while (i < sum->step_count && sum->steps[i].step != step) i++;
    if (i == sum->step_count) {
        sum->steps = mem_grow(sum->steps, (i + 1) * sizeof *sum->steps);
        sum->steps[sum->step_count++] = (struct pace_step){.step = step};
    }
    sum->steps[i].seats += seats;
}

static struct batch_sum *sum_of(struct portion *p, int64_t event_key) {
    for (size_t i = 0; i < p->sum_count; i++)
        if (p->sums[i].event_key == event_key) return &p->sums[i];
    p->sums = mem_grow(p->sums, (p->sum_count + 1) * sizeof *p->sums);
    p->sums[p->sum_count] = (struct batch_sum){.event_key = event_key};
    return &p->sums[p->sum_count++];
}

static void portion_add(struct portion *p, const struct sale *s) {
    if (p->sum_count == 0) p->first = s->mark;
    p->last = s->mark;
    struct batch_sum *sum = sum_of(p, s->event_key);
    if (s->kind == SALE_SOLD_OUT) {
        if (s->at_ms > sum->sold_out_ms) sum->sold_out_ms = s->at_ms;
        return;
    }
    int64_t sign = s->kind == SALE_TAKEN ? 1 : -1;
    sum->reservations += sign;
    sum->seats += sign * s->seats;
    if (sign > 0 && s->taken_ms > sum->since_ms) sum->since_ms = s->taken_ms;
    if (p->kind == OF_ALL_TIME) add_step(sum, s->taken_ms / PACE_STEP_MS, sign * s->seats);
}

static bool portion_has(const struct portion *p, const struct sale *s) {
    if (p->kind == OF_ALL_TIME) return true;
    bool is_sold_out = s->kind == SALE_SOLD_OUT;
    int64_t at_ms = is_sold_out ? s->at_ms : s->taken_ms;
    return is_sold_out == (p->kind == OF_DAY) && p->span.begins_ms <= at_ms &&
           at_ms < p->span.ends_ms;
}

static struct portion *portion_new(struct counting *n, enum portion_kind kind,
                                   const struct period *period, int64_t at_ms) {
    struct portion *p = mem_new(sizeof *p);
    p->counting = n;
    p->kind = kind;
    p->period = period;
    if (period != NULL) p->span = period_span(period, at_ms);
    list_init(&p->link);
    return p;
}

static void sums_clear(struct portion *p) {
    for (size_t i = 0; i < p->sum_count; i++) mem_free(p->sums[i].steps);
    p->sum_count = 0;
}

static void portion_free(struct portion *p) {
    sums_clear(p);
    mem_free(p->sums);
    mem_free(p);
}

/* To the board of that stretch, which is looked for among those that have something. */
static void add_to(struct counting *n, enum portion_kind kind, const struct period *period,
                   const struct sale *s) {
    for (struct list *at = n->portions.next; at != &n->portions; at = at->next) {
        struct portion *p = CONTAINER_OF(at, struct portion, link);
        if (p->kind != kind || p->period != period || !portion_has(p, s)) continue;
        portion_add(p, s);
        return;
    }
    int64_t at_ms = kind == OF_DAY ? s->at_ms : s->taken_ms;
    struct portion *p = portion_new(n, kind, period, at_ms);
    list_move_last(&n->portions, &p->link);
    portion_add(p, s);
}

static void divide(struct counting *n, const struct sale *s) {
    portion_add(n->all_time, s);
    if (s->kind == SALE_SOLD_OUT) {
        add_to(n, OF_DAY, period_find(STR("daily")), s);
        return;
    }
    for (size_t i = 0; i < period_count; i++) add_to(n, OF_PERIOD, &periods[i], s);
}

/* ---- telling ---- */

static void add_tally(struct call *c, const struct batch_sum *sum) {
    call_add_i64(c, sum->event_key);
    call_add_i64(c, sum->reservations);
    call_add_i64(c, sum->seats);
    call_add_i64(c, sum->since_ms);
}

static void add_sold_out(struct call *c, const struct batch_sum *sum) {
    call_add_i64(c, sum->event_key);
    call_add_i64(c, sum->sold_out_ms);
}

static void add_selling(struct call *c, const struct batch_sum *sum) {
    add_tally(c, sum);
    call_add_i64(c, sum->sold_out_ms);
    call_add_steps(c, sum->steps, sum->step_count);
}

static void begin_telling(struct portion *p) {
    const struct counting *n = p->counting;
    int64_t now_ms = n->op->now_ms;
    if (p->kind == OF_DAY) {
        soldout_day_begin(&p->call, n->store, "soldout_day_add", &p->span, now_ms);
        return;
    }
    if (p->kind == OF_PERIOD)
        board_begin(&p->call, n->store, "board_add", p->period, &p->span, now_ms);
    else
        soldout_begin(&p->call, n->store, "soldout_add", now_ms);
    call_add_u64(&p->call, n->op->epoch);
    call_add_mark(&p->call, &p->first);
    call_add_mark(&p->call, &p->last);
}

static void tell_next(struct counting *n);

static void on_told(struct portion *p, enum err result) {
    struct counting *n = p->counting;
    portion_free(p);
    if (result != ERR_OK) n->failed = result;
    n->under_way--;
    tell_next(n);
}

/* What is left of it behind the mark. */
static void sum_up_behind(struct portion *p, const struct sale_mark *had) {
    const struct board_count_op *op = p->counting->op;
    sums_clear(p);
    for (size_t i = 0; i < op->count; i++) {
        const struct sale *s = &op->sales[i];
        if (portion_has(p, s) && sale_is_after(&s->mark, had)) portion_add(p, s);
    }
}

static void send_sums(struct portion *p);

static void on_sums_told(struct call *c, enum err result, const redisReply *reply) {
    struct portion *p = CONTAINER_OF(c, struct portion, call);
    if (result == ERR_OK && reply_str(reply).len > 0) {
        struct sale_mark had = mark_of(reply);
        sum_up_behind(p, &had);
        if (p->sum_count > 0) {
            send_sums(p);
            return;
        }
    }
    on_told(p, result);
}

static void send_sums(struct portion *p) {
    static void (*const add[])(struct call * c, const struct batch_sum *sum) = {
        [OF_PERIOD] = add_tally, [OF_DAY] = add_sold_out, [OF_ALL_TIME] = add_selling};
    begin_telling(p);
    for (size_t i = 0; i < p->sum_count; i++) add[p->kind](&p->call, &p->sums[i]);
    send_call(&p->call, on_sums_told);
}

static void tell(struct portion *p) {
    p->counting->under_way++;
    send_sums(p);
}

/* When all are done, the board of all time; and then the caller. */
static void tell_next(struct counting *n) {
    struct portion *last = n->all_time;
    if (n->under_way > 0) return;
    n->all_time = NULL;
    if (last != NULL && n->failed == ERR_OK) {
        tell(last);
        return;
    }
    if (last != NULL) portion_free(last);
    struct board_count_op *op = n->op;
    op->result = n->failed;
    mem_free(n);
    op->done(op);
}

static void redis_count(struct boards *boards, struct board_count_op *op) {
    struct counting *n = mem_new(sizeof *n);
    *n = (struct counting){.store = store_of(boards), .op = op, .under_way = 1};
    list_init(&n->portions);
    n->all_time = portion_new(n, OF_ALL_TIME, NULL, 0);
    for (size_t i = 0; i < op->count; i++) divide(n, &op->sales[i]);
    while (!list_empty(&n->portions)) {
        struct portion *p = CONTAINER_OF(n->portions.next, struct portion, link);
        list_remove(&p->link);
        tell(p);
    }
    n->under_way--; /* all are sent */
    tell_next(n);
}

/* ---- a board ---- */

struct top_look {
    struct call call;
    struct redis_store *store;
    struct board_top_op *op;
    struct span span;
    /* Of a day: who was sold out on it, as far as they have been looked at; in the end those that
     * are shown. */
    int64_t *keys;
    size_t key_count;
    size_t looked_at;
    struct selling *out;
    size_t out_count;
};

static void top_done(struct top_look *l, enum err result) {
    struct board_top_op *op = l->op;
    op->result = looked(result);
    mem_free(l->keys);
    mem_free(l->out);
    mem_free(l);
    op->done(op);
}

static void on_soldout(struct call *c, enum err result, const redisReply *reply) {
    struct top_look *l = CONTAINER_OF(c, struct top_look, call);
    l->op->count = read_soldout(reply, l->op->rows, l->op->max);
    top_done(l, result);
}

static void on_popular(struct call *c, enum err result, const redisReply *reply) {
    struct top_look *l = CONTAINER_OF(c, struct top_look, call);
    l->op->count = read_popular(reply_at(reply, 0), l->op->rows, l->op->max);
    top_done(l, result);
}

/* ---- a day: who was sold out, then what sold besides ---- */

static int by_speed(const void *a, const void *b) {
    const struct selling *x = a;
    const struct selling *y = b;
    int64_t x_ms = x->sold_out_ms - x->opened_ms;
    int64_t y_ms = y->sold_out_ms - y->opened_ms;
    if (x_ms < 0) x_ms = 0;
    if (y_ms < 0) y_ms = 0;
    if (x_ms != y_ms) return x_ms < y_ms ? -1 : 1;
    return x->sold_out_ms < y->sold_out_ms ? -1 : x->sold_out_ms > y->sold_out_ms;
}

static void on_day_popular(struct call *c, enum err result, const redisReply *reply) {
    struct top_look *l = CONTAINER_OF(c, struct top_look, call);
    struct board_top_op *op = l->op;
    struct board_row others[TOP_MAX];
    const redisReply *tallies = reply_at(reply, 1);
    for (size_t i = 0; i < l->out_count; i++) {
        struct tally t = tally_of(l->out[i].event_key, reply_str(reply_at(tallies, i)));
        op->rows[i] = board_row_of_day(i + 1, &l->out[i], &t);
    }
    size_t other_count = read_popular(reply_at(reply, 0), others, TOP_MAX);
    op->count = board_rows_append(op->rows, l->out_count, op->max, others, other_count);
    top_done(l, result);
}

static void look_at_popular(struct top_look *l) {
    qsort(l->out, l->out_count, sizeof *l->out, by_speed);
    if (l->out_count > l->op->max) l->out_count = l->op->max;
    board_begin(&l->call, l->store, "board_top", period_find(STR("daily")), &l->span,
                l->op->now_ms);
    call_add_i64(&l->call, TOP_MAX);
    for (size_t i = 0; i < l->out_count; i++) call_add_i64(&l->call, l->out[i].event_key);
    send_call(&l->call, on_day_popular);
}

static void look_at_rows(struct top_look *l);

/* One that was sold out since then, or is not any more, is not of this day. */
static void on_rows(struct call *c, enum err result, const redisReply *reply) {
    struct top_look *l = CONTAINER_OF(c, struct top_look, call);
    if (result != ERR_OK) {
        top_done(l, result);
        return;
    }
    const redisReply *row;
    for (size_t i = 0; (row = reply_at(reply, i)) != NULL && l->looked_at < l->key_count; i++) {
        struct selling s = selling_of(l->keys[l->looked_at++], reply_str(row));
        if (selling_is_sold_out(&s) && s.sold_out_ms >= l->span.begins_ms &&
            s.sold_out_ms < l->span.ends_ms)
            l->out[l->out_count++] = s;
    }
    look_at_rows(l);
}

static void look_at_rows(struct top_look *l) {
    if (l->looked_at == l->key_count) {
        look_at_popular(l);
        return;
    }
    soldout_begin(&l->call, l->store, "soldout_rows", l->op->now_ms);
    for (size_t i = l->looked_at; i < l->key_count && i < l->looked_at + ROWS_MAX; i++)
        call_add_i64(&l->call, l->keys[i]);
    send_call(&l->call, on_rows);
}

static void on_day(struct call *c, enum err result, const redisReply *reply) {
    struct top_look *l = CONTAINER_OF(c, struct top_look, call);
    if (result != ERR_OK) {
        top_done(l, result);
        return;
    }
    l->keys = mem_new((reply->elements + 1) * sizeof *l->keys);
    l->out = mem_new((reply->elements + 1) * sizeof *l->out);
    while (l->key_count < reply->elements) {
        l->keys[l->key_count] = reply_i64(reply_at(reply, l->key_count));
        l->key_count++;
    }
    look_at_rows(l);
}

static void redis_top(struct boards *boards, struct board_top_op *op) {
    assert(op->max <= TOP_MAX && (op->board.kind != BOARD_POPULAR || op->board.period != NULL));
    struct top_look *l = mem_new(sizeof *l);
    l->store = store_of(boards);
    l->op = op;
    op->count = 0;
    if (op->board.period != NULL) l->span = period_span(op->board.period, op->board.at_ms);
    if (op->board.kind == BOARD_POPULAR) {
        board_begin(&l->call, l->store, "board_top", op->board.period, &l->span, op->now_ms);
        call_add_u64(&l->call, op->max);
        send_call(&l->call, on_popular);
    } else if (op->board.period == NULL) {
        soldout_begin(&l->call, l->store, "soldout_top", op->now_ms);
        call_add_u64(&l->call, op->max);
        send_call(&l->call, on_soldout);
    } else {
        soldout_day_begin(&l->call, l->store, "soldout_day", &l->span, op->now_ms);
        send_call(&l->call, on_day);
    }
}

/* ---- one event ---- */

struct find_look {
    struct call call;
    struct board_find_op *op;
};

static void on_found(struct call *c, enum err result, const redisReply *reply) {
    struct find_look *l = CONTAINER_OF(c, struct find_look, call);
    struct board_find_op *op = l->op;
    size_t rank = (size_t)reply_u64(reply_at(reply, 0));
    int64_t event_key = rank > 0 ? op->event_key : 0;
    struct tally t = tally_of(event_key, reply_str(reply_at(reply, 1)));
    struct selling s = selling_of(event_key, reply_str(reply_at(reply, 1)));
    op->row = op->board.kind == BOARD_POPULAR ? board_row_of_tally(rank, &t)
                                              : board_row_of_selling(rank, &s);
    op->mark = mark_of(reply_at(reply, 2));
    op->result = looked(result);
    mem_free(l);
    op->done(op);
}

static void redis_find(struct boards *boards, struct board_find_op *op) {
    struct redis_store *s = store_of(boards);
    struct find_look *l = mem_new(sizeof *l);
    l->op = op;
    if (op->board.kind == BOARD_POPULAR) {
        struct span span = period_span(op->board.period, op->board.at_ms);
        board_begin(&l->call, s, "board_find", op->board.period, &span, op->now_ms);
    } else {
        soldout_begin(&l->call, s, "soldout_find", op->now_ms);
    }
    call_add_i64(&l->call, op->event_key);
    send_call(&l->call, on_found);
}

const struct boards_ops redis_boards_ops = {
    .begin = redis_begin,
    .count = redis_count,
    .set_events = redis_set_events,
    .top = redis_top,
    .find = redis_find,
    .restore_event = boards_gather_event,
    .restore = boards_gather,
    .restored = boards_gathered,
};
