/* The recount behind `admitone audit`: asks every board, then adds up the ledger. */
#include "service/recount.h"

#include "base/list.h"
#include "base/mem.h"

#define EXAMPLES_MAX 5

struct recounted_board {
    const struct period *period; /* NULL: of all time */
    struct span span;
};

struct recounted_event {
    int64_t key;
    char path[EVENT_PATH_BYTES];
    struct recounted_row *rows;
};

/* An event on a board: as it is counted there, and as it should be. */
struct recounted_row {
    struct sale_mark mark;
    int64_t reservations;
    int64_t seats;
    int64_t live_reservations;
    int64_t live_seats;
};

static void recount_on_answered(struct board_find_op *f);

/* ---- events and boards to compare ---- */

static void recount_add_board(struct recount *r, struct recounted_board board) {
    r->of = mem_grow(r->of, (r->board_count + 1) * sizeof *r->of);
    r->of[r->board_count++] = board;
}

static void recount_add_boards(struct recount *r) {
    recount_add_board(r, (struct recounted_board){0});
    for (size_t i = 0; i < period_count; i++) {
        struct span s = period_span(&periods[i], r->now_ms);
        while (s.ends_ms + periods[i].kept_s * 1000 > r->now_ms) {
            recount_add_board(r, (struct recounted_board){.period = &periods[i], .span = s});
            s = period_span(&periods[i], s.begins_ms - 1);
        }
    }
}

static void recount_on_event(void *to, struct event *e) {
    struct recount *r = to;
    r->events = mem_grow(r->events, (r->event_count + 1) * sizeof *r->events);
    struct recounted_event *of = &r->events[r->event_count++];
    of->key = e->key;
    event_path(str_of(e->type), str_of(e->id), of->path);
    mem_free(e);
}

enum err recount_begin(struct recount *r) {
    map_init(&r->by_key);
    recount_add_boards(r);
    enum err failed =
        ledger_load(r->ledger, &(struct ledger_reader){.on_event = recount_on_event, .to = r});
    r->rows = mem_new((r->event_count * r->board_count + 1) * sizeof *r->rows);
    for (size_t i = 0; i < r->event_count; i++) {
        r->events[i].rows = r->rows + i * r->board_count;
        map_put(&r->by_key, map_key(&r->events[i].key), &r->events[i]);
    }
    return failed;
}

/* ---- reading the boards ---- */

static void recount_ask(struct recount *r) {
    if (r->next == r->event_count * r->board_count) {
        r->done(r);
        return;
    }
    const struct recounted_board *b = &r->of[r->next % r->board_count];
    r->find =
        (struct board_find_op){.board = {.kind = b->period == NULL ? BOARD_SOLDOUT : BOARD_POPULAR,
                                         .period = b->period,
                                         .at_ms = b->span.begins_ms},
                               .event_key = r->events[r->next / r->board_count].key,
                               .now_ms = r->now_ms,
                               .done = recount_on_answered};
    boards_find(r->boards, &r->find);
}

void recount_look(struct recount *r) {
    r->next = 0;
    r->find.result = ERR_OK;
    recount_ask(r);
}

/* The first board is that of all time; no other board has an earlier watermark. */
static void recount_on_answered(struct board_find_op *f) {
    struct recount *r = CONTAINER_OF(f, struct recount, find);
    if (f->result != ERR_OK) {
        r->done(r);
        return;
    }
    if (r->next == 0) r->all = f->mark;
    struct recounted_row *row = &r->rows[r->next++];
    row->mark = sale_is_after(&f->mark, &r->all) ? f->mark : r->all;
    row->reservations = f->row.sales.reservations;
    row->seats = f->row.sales.seats;
    recount_ask(r);
}

/* ---- adding up the ledger ---- */

static bool recount_covers(const struct recounted_board *b, int64_t taken_ms) {
    return b->period == NULL || (b->span.begins_ms <= taken_ms && taken_ms < b->span.ends_ms);
}

static void recount_on_reservation(void *to, const struct reservation *v) {
    struct recount *r = to;
    struct recounted_event *e = map_get(&r->by_key, map_key(&v->event_key));
    for (size_t i = 0; e != NULL && i < r->board_count; i++) {
        if (!recount_covers(&r->of[i], v->created_ms)) continue;
        e->rows[i].live_reservations++;
        e->rows[i].live_seats += v->seat_count;
    }
}

/* A sale after a row's watermark is not in that row: the ledger gives it with the sign reversed. */
static void recount_on_sale(void *to, const struct sale *s) {
    struct recount *r = to;
    struct recounted_event *e = map_get(&r->by_key, map_key(&s->event_key));
    if (s->kind == SALE_SOLD_OUT) return;
    r->uncounted++;
    int64_t sign = s->kind == SALE_TAKEN ? 1 : -1;
    for (size_t i = 0; e != NULL && i < r->board_count; i++) {
        struct recounted_row *row = &e->rows[i];
        if (!recount_covers(&r->of[i], s->taken_ms) || !sale_is_after(&s->mark, &row->mark))
            continue;
        row->live_reservations += sign;
        row->live_seats += sign * s->seats;
    }
}

static void recount_report(struct recount *r, const struct recounted_event *e, size_t board) {
    const struct recounted_row *row = &e->rows[board];
    const struct recounted_board *b = &r->of[board];
    if (r->violations++ >= EXAMPLES_MAX) return;
    if (r->examples.len > 0) buf_add(&r->examples, STR("; "));
    buf_addf(&r->examples, "%s %s: %lld reservations and %lld seats on the board, %lld and %lld",
             b->period == NULL ? "soldout" : b->span.name, e->path, (long long)row->reservations,
             (long long)row->seats, (long long)row->live_reservations, (long long)row->live_seats);
}

/* An event with a sum below zero, for a moment, is not on its board. */
static void recount_compare(struct recount *r, const struct recounted_event *e, size_t board) {
    struct recounted_row *row = &e->rows[board];
    if (row->live_reservations <= 0) row->live_reservations = row->live_seats = 0;
    r->checked++;
    if (row->reservations != row->live_reservations || row->seats != row->live_seats)
        recount_report(r, e, board);
}

enum err recount_end(struct recount *r) {
    enum err failed =
        ledger_load(r->ledger, &(struct ledger_reader){.on_reservation = recount_on_reservation,
                                                       .on_sale = recount_on_sale,
                                                       .mark = &r->all,
                                                       .to = r});
    for (size_t i = 0; failed == ERR_OK && i < r->event_count; i++)
        for (size_t b = 0; b < r->board_count; b++) recount_compare(r, &r->events[i], b);
    return failed;
}

void recount_clear(struct recount *r) {
    mem_free(r->of);
    mem_free(r->events);
    mem_free(r->rows);
    map_deinit(&r->by_key);
    buf_deinit(&r->examples);
}
