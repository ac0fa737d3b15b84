/* What sells fastest, and what is popular. Boards know events by their keys; what they are called
 * is the catalogue's. One that was deleted a moment ago is left out. */
#include "api/rankings.h"

#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"

struct ranking_query {
    struct board_top_op top;
    struct board_find_op find;
    struct board_find_op of_all_time; /* how many seats are left */
    struct exchange *x;
    struct api *api;
    struct event *event;     /* of one event's answer; in the arena */
    struct board_name board; /* of the answer */
    struct board_row rows[TOP_MAX];
};

/* ---- reading ---- */

bool rankings_are_kept(const struct api *api, struct exchange *x) {
    if (api->boards != NULL) return true;
    reply_problem(x, ERR_RANKINGS_OFF, "%s", "The setting rankings.enabled is false.");
    return false;
}

/* False: the problem has been answered. */
static bool read_date(struct exchange *x, int64_t *at_ms, bool *is_given) {
    bool bad;
    str text = query_value(x, STR("date"), &bad);
    *is_given = bad || text.at != NULL;
    if (!*is_given || (!bad && period_day_parse(text, at_ms))) return true;
    reply_problem(x, ERR_INVALID_PARAMETER, "%s", "date must be a date such as 2026-12-25.");
    return false;
}

const struct period *ranking_period(struct exchange *x, str word) {
    const struct period *p = period_find(word);
    if (p != NULL) return p;
    struct buf known = {0};
    buf_add(&known, STR("soldout"));
    for (size_t i = 0; i < period_count; i++) {
        buf_add(&known, STR(", "));
        buf_add(&known, periods[i].word);
    }
    reply_problem(x, ERR_UNKNOWN_PERIOD, "Known values: %s.", buf_cstr(&known));
    buf_deinit(&known);
    return NULL;
}

static struct ranking_query *query_new(struct api *api, struct exchange *x) {
    struct ranking_query *q = arena_new(&x->arena, sizeof *q);
    q->api = api;
    q->x = x;
    return q;
}

/* ---- rendering ---- */

static double share_of(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void add_soldout(struct json_out *j, const struct board_row *row, bool of_all_time) {
    const struct selling *s = &row->selling;
    if (row->is_sold_out) {
        int64_t took_ms = s->sold_out_ms - s->opened_ms;
        json_out_time(j, STR("soldOutAt"), s->sold_out_ms);
        json_out_f64(j, STR("secondsToSellOut"), (double)(took_ms > 0 ? took_ms : 0) / 1000);
        json_out_null(j, STR("seatsPerMinute"));
        return;
    }
    json_out_null(j, STR("soldOutAt"));
    json_out_null(j, STR("secondsToSellOut"));
    if (of_all_time)
        json_out_f64(j, STR("seatsPerMinute"), (double)(s->pace > 0 ? s->pace : 0) / PACE_MINUTES);
    else
        json_out_null(j, STR("seatsPerMinute"));
}

static void add_row(struct json_out *j, const struct board_name *board, const struct board_row *row,
                    const struct event *e) {
    const struct selling *s = &row->selling;
    int64_t capacity = event_capacity(e);
    if (row->rank > 0)
        json_out_i64(j, STR("rank"), (int64_t)row->rank);
    else
        json_out_null(j, STR("rank"));
    json_out_str(j, STR("eventType"), str_of(e->type));
    json_out_str(j, STR("eventId"), str_of(e->id));
    json_out_str(j, STR("title"), str_of(e->title));
    json_out_time(j, STR("startsAt"), e->starts_at_ms);
    json_out_i64(j, STR("reservationCount"), s->reservations);
    json_out_i64(j, STR("seatsSold"), s->seats);
    json_out_i64(j, STR("capacity"), capacity);
    json_out_f64(j, STR("shareSold"), share_of(s->seats, capacity));
    if (board->kind == BOARD_SOLDOUT) add_soldout(j, row, board->period == NULL);
}

static void add_board(struct json_out *j, const struct board_name *board) {
    json_out_str(j, STR("board"),
                 board->kind == BOARD_SOLDOUT ? STR("soldout") : STR("popularity"));
    if (board->period == NULL) {
        json_out_null(j, STR("period"));
        json_out_null(j, STR("date"));
        return;
    }
    char day[PERIOD_DAY_BYTES];
    struct span span = period_span(board->period, board->at_ms);
    period_day_format(board->at_ms, day);
    json_out_str(j, STR("period"), board->period->word);
    json_out_str(j, STR("date"), str_of(day));
    json_out_time(j, STR("from"), span.begins_ms);
    json_out_time(j, STR("to"), span.ends_ms);
}

size_t ranking_render(struct api *api, struct buf *to, const struct board_top_op *top) {
    struct catalogue *catalogue = api->events.catalogue;
    struct json_out j;
    json_out_init(&j, to);
    json_out_object(&j, STR(""));
    add_board(&j, &top->board);
    json_out_array(&j, STR("rankings"));
    catalogue_read_lock(catalogue);
    for (size_t i = 0; i < top->count; i++) {
        const struct board_row *row = &top->rows[i];
        const struct event *e = catalogue_find_key(catalogue, row->selling.event_key);
        if (e == NULL) continue;
        json_out_object(&j, STR(""));
        add_row(&j, &top->board, row, e);
        json_out_object_end(&j);
    }
    catalogue_read_unlock(catalogue);
    json_out_array_end(&j);
    size_t board_len = to->len;
    json_out_time(&j, STR("serverTime"), top->now_ms);
    json_out_object_end(&j);
    json_out_done(&j);
    return board_len;
}

/* ---- a board ---- */

static void on_top(struct board_top_op *top) {
    struct ranking_query *q = CONTAINER_OF(top, struct ranking_query, top);
    if (top->result != ERR_OK) {
        reply_problem(q->x, top->result, "%s", "Try again in a moment.");
        return;
    }
    ranking_render(q->api, reply_start(q->x, 200), top);
    reply_send(q->x, STR("application/json"));
}

static void ask_top(struct ranking_query *q, size_t max, void (*done)(struct board_top_op *top)) {
    q->top = (struct board_top_op){
        .board = q->board, .now_ms = clock_wall_ms(), .rows = q->rows, .max = max, .done = done};
    boards_top(q->api->boards, &q->top);
}

static void show_board(struct ranking_query *q, struct board_name board) {
    int64_t top_n = 0;
    if (!query_i64(q->x, STR("topN"), 1, TOP_MAX, TOP_DEFAULT, &top_n)) return;
    q->board = board;
    ask_top(q, (size_t)top_n, on_top);
}

/* Of the day that is asked for, or of all time. False: the problem has been answered. */
static bool read_soldout_board(struct exchange *x, struct board_name *out) {
    bool has_date = false;
    *out = (struct board_name){.kind = BOARD_SOLDOUT};
    if (!read_date(x, &out->at_ms, &has_date)) return false;
    if (has_date) out->period = period_find(STR("daily"));
    return true;
}

void rankings_get_soldout(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct board_name board;
    if (rankings_are_kept(api, x) && read_soldout_board(x, &board))
        show_board(query_new(api, x), board);
}

void rankings_get_popular(struct api *api, struct exchange *x, const str *captures) {
    if (!rankings_are_kept(api, x)) return;
    struct board_name board = {
        .kind = BOARD_POPULAR, .period = ranking_period(x, captures[0]), .at_ms = clock_wall_ms()};
    bool has_date = false;
    if (board.period == NULL || !read_date(x, &board.at_ms, &has_date)) return;
    show_board(query_new(api, x), board);
}

/* ---- one event ---- */

static void answer_one(struct ranking_query *q) {
    const struct board_find_op *f = &q->find;
    const struct selling *all = &q->of_all_time.row.selling;
    int64_t capacity = event_capacity(q->event);
    struct json_out j;
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    add_board(&j, &q->board);
    add_row(&j, &q->board, &f->row, q->event);
    if (q->board.kind == BOARD_POPULAR) json_out_i64(&j, STR("score"), f->row.selling.reservations);
    json_out_i64(&j, STR("seatsLeft"), capacity > all->seats ? capacity - all->seats : 0);
    json_out_time(&j, STR("serverTime"), f->now_ms);
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

static void on_found_all(struct board_find_op *f) {
    struct ranking_query *q = CONTAINER_OF(f, struct ranking_query, of_all_time);
    if (f->result != ERR_OK)
        reply_problem(q->x, f->result, "%s", "Try again in a moment.");
    else
        answer_one(q);
}

static void find_of_all_time(struct ranking_query *q) {
    q->of_all_time = (struct board_find_op){.board = {.kind = BOARD_SOLDOUT},
                                            .event_key = q->find.event_key,
                                            .now_ms = q->find.now_ms,
                                            .done = on_found_all};
    boards_find(q->api->boards, &q->of_all_time);
}

static void on_found(struct board_find_op *f) {
    struct ranking_query *q = CONTAINER_OF(f, struct ranking_query, find);
    if (f->result != ERR_OK) {
        reply_problem(q->x, f->result, "%s", "Try again in a moment.");
        return;
    }
    if (f->board.kind != q->board.kind) f->row.rank = 0;
    find_of_all_time(q);
}

/* A day of what sells fastest is looked up among those that it shows; of any other event it is told
 * what was sold on that day. */
static void on_day_shown(struct board_top_op *top) {
    struct ranking_query *q = CONTAINER_OF(top, struct ranking_query, top);
    if (top->result != ERR_OK) {
        reply_problem(q->x, top->result, "%s", "Try again in a moment.");
        return;
    }
    for (size_t i = 0; i < top->count; i++) {
        if (top->rows[i].selling.event_key != q->find.event_key) continue;
        q->find.row = top->rows[i];
        find_of_all_time(q);
        return;
    }
    q->find.board.kind = BOARD_POPULAR;
    boards_find(q->api->boards, &q->find);
}

static void show_one(struct api *api, struct exchange *x, struct board_name board, str type,
                     str id) {
    struct ranking_query *q = query_new(api, x);
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, type, id);
    if (e != NULL) q->event = event_copy_to(arena_new(&x->arena, event_bytes(e)), e);
    catalogue_read_unlock(api->events.catalogue);
    if (q->event == NULL) {
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
        return;
    }
    q->find = (struct board_find_op){
        .board = board, .event_key = q->event->key, .now_ms = clock_wall_ms(), .done = on_found};
    q->board = board;
    if (board.kind == BOARD_SOLDOUT && board.period != NULL)
        ask_top(q, TOP_MAX, on_day_shown);
    else
        boards_find(api->boards, &q->find);
}

void rankings_get_soldout_one(struct api *api, struct exchange *x, const str *captures) {
    struct board_name board;
    if (rankings_are_kept(api, x) && read_soldout_board(x, &board))
        show_one(api, x, board, captures[0], captures[1]);
}

void rankings_get_popular_one(struct api *api, struct exchange *x, const str *captures) {
    if (!rankings_are_kept(api, x)) return;
    struct board_name board = {
        .kind = BOARD_POPULAR, .period = ranking_period(x, captures[0]), .at_ms = clock_wall_ms()};
    bool has_date = false;
    if (board.period == NULL || !read_date(x, &board.at_ms, &has_date)) return;
    show_one(api, x, board, captures[1], captures[2]);
}
