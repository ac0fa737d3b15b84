/* /rankings: the events that sell fastest, and the popular ones. Boards have the keys of events,
 * the catalogue has their names and titles; an event that was deleted a moment ago, or is a draft
 * again, is left out. */
#include "api/rankings.h"

#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"

struct top_request {
    struct board_top_op top;
    struct exchange *x;
    struct api *api;
    struct board_row rows[TOP_MAX];
};

struct event_rank_request {
    struct ranking_event ranking;
    struct exchange *x;
    struct event *event; /* in the arena */
};

/* ---- reading ---- */

bool rankings_are_kept(const struct api *api, struct exchange *x) {
    if (api->boards != NULL) return true;
    reply_problem(x, ERR_RANKINGS_OFF, "%s", "The server's setting rankings.enabled is false.");
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

/* ---- rendering ---- */

static double share_of(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void ranking_add_soldout(struct json_out *j, const struct board_row *row, bool of_all_time) {
    const struct soldout_sales *s = &row->sales;
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

static void ranking_add_row(struct json_out *j, const struct board_name *board,
                            const struct board_row *row, const struct event *e) {
    const struct soldout_sales *s = &row->sales;
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
    if (board->kind == BOARD_SOLDOUT) ranking_add_soldout(j, row, board->period == NULL);
}

static void ranking_add_board(struct json_out *j, const struct board_name *board) {
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
    ranking_add_board(&j, &top->board);
    json_out_array(&j, STR("rankings"));
    catalogue_read_lock(catalogue);
    for (size_t i = 0; i < top->count; i++) {
        const struct board_row *row = &top->rows[i];
        const struct event *e = catalogue_find_key(catalogue, row->sales.event_key);
        if (e == NULL || !event_is_public(e, top->now_ms)) continue;
        json_out_object(&j, STR(""));
        ranking_add_row(&j, &top->board, row, e);
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

static void top_on_read(struct board_top_op *top);

static void show_board(struct api *api, struct exchange *x, struct board_name board) {
    struct top_request *q = arena_new(&x->arena, sizeof *q);
    int64_t top_n = 0;
    if (!query_i64(x, STR("topN"), 1, TOP_MAX, TOP_DEFAULT, &top_n)) return;
    q->api = api;
    q->x = x;
    q->top = (struct board_top_op){
        .board = board, .rows = q->rows, .max = (size_t)top_n, .done = top_on_read};
    ranking_read_top(api->boards, &q->top);
}

static void top_on_read(struct board_top_op *top) {
    struct top_request *q = CONTAINER_OF(top, struct top_request, top);
    if (top->result != ERR_OK) {
        reply_problem(q->x, top->result, "%s", "The rankings cannot be read now. Try again.");
        return;
    }
    ranking_render(q->api, reply_start(q->x, 200), top);
    reply_send(q->x, STR("application/json"));
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
    if (rankings_are_kept(api, x) && read_soldout_board(x, &board)) show_board(api, x, board);
}

void rankings_get_popular(struct api *api, struct exchange *x, const str *captures) {
    if (!rankings_are_kept(api, x)) return;
    struct board_name board = {
        .kind = BOARD_POPULAR, .period = ranking_period(x, captures[0]), .at_ms = clock_wall_ms()};
    bool has_date = false;
    if (board.period == NULL || !read_date(x, &board.at_ms, &has_date)) return;
    show_board(api, x, board);
}

/* ---- one event ---- */

static void event_rank_on_read(struct ranking_event *r, enum err result);

static void show_event(struct api *api, struct exchange *x, struct board_name board, str type,
                       str id) {
    struct event_rank_request *q = arena_new(&x->arena, sizeof *q);
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, type, id);
    if (e != NULL && api_shows(x, e)) {
        struct event copied = event_without_texts(e);
        q->event = event_copy_to(arena_new(&x->arena, event_bytes(&copied)), &copied);
    }
    catalogue_read_unlock(api->events.catalogue);
    if (q->event == NULL) {
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
        return;
    }
    q->x = x;
    q->ranking.board = board;
    q->ranking.event_key = q->event->key;
    q->ranking.done = event_rank_on_read;
    ranking_read_event(api->boards, &q->ranking);
}

static void event_rank_on_read(struct ranking_event *r, enum err result) {
    struct event_rank_request *q = CONTAINER_OF(r, struct event_rank_request, ranking);
    if (result != ERR_OK) {
        reply_problem(q->x, result, "%s", "The rankings cannot be read now. Try again.");
        return;
    }
    int64_t capacity = event_capacity(q->event);
    struct json_out j;
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    ranking_add_board(&j, &r->board);
    ranking_add_row(&j, &r->board, &r->row, q->event);
    if (r->board.kind == BOARD_POPULAR) json_out_i64(&j, STR("score"), r->row.sales.reservations);
    json_out_i64(&j, STR("seatsLeft"), capacity > r->seats_sold ? capacity - r->seats_sold : 0);
    json_out_time(&j, STR("serverTime"), r->now_ms);
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

void rankings_get_soldout_one(struct api *api, struct exchange *x, const str *captures) {
    struct board_name board;
    if (rankings_are_kept(api, x) && read_soldout_board(x, &board))
        show_event(api, x, board, captures[0], captures[1]);
}

void rankings_get_popular_one(struct api *api, struct exchange *x, const str *captures) {
    if (!rankings_are_kept(api, x)) return;
    struct board_name board = {
        .kind = BOARD_POPULAR, .period = ranking_period(x, captures[0]), .at_ms = clock_wall_ms()};
    bool has_date = false;
    if (board.period == NULL || !read_date(x, &board.at_ms, &has_date)) return;
    show_event(api, x, board, captures[1], captures[2]);
}
