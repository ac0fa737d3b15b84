/* Finds an event on a board: on most with one question, on a day of what sold out by its rows. */
#include "service/ranking_reads.h"

#include "base/clock.h"
#include "base/list.h"

void ranking_read_top(struct boards *b, struct board_top_op *top) {
    top->now_ms = clock_wall_ms();
    if (top->board.at_ms == CLOCK_NONE_MS)
        top->board.at_ms = top->board.period == NULL ? 0 : top->now_ms;
    boards_top(b, top);
}

static void ranking_on_found(struct board_find_op *f);
static void ranking_on_day(struct board_top_op *top);
static void ranking_read_seats(struct ranking_event *r);

static void ranking_find(struct ranking_event *r, struct board_name board,
                         void (*done)(struct board_find_op *f)) {
    r->find = (struct board_find_op){
        .board = board, .event_key = r->event_key, .now_ms = r->now_ms, .done = done};
    boards_find(r->boards, &r->find);
}

void ranking_read_event(struct boards *b, struct ranking_event *r) {
    r->boards = b;
    r->now_ms = clock_wall_ms();
    if (r->board.kind != BOARD_SOLDOUT || r->board.period == NULL) {
        ranking_find(r, r->board, ranking_on_found);
        return;
    }
    r->top = (struct board_top_op){
        .board = r->board, .rows = r->rows, .max = TOP_MAX, .done = ranking_on_day};
    ranking_read_top(b, &r->top);
}

/* A day of what sold out: an event that is not among its rows has what was sold on that day, from
 * the board of the popular ones, and no rank. */
static void ranking_on_day(struct board_top_op *top) {
    struct ranking_event *r = CONTAINER_OF(top, struct ranking_event, top);
    if (top->result != ERR_OK) {
        r->done(r, top->result);
        return;
    }
    for (size_t i = 0; i < top->count; i++) {
        if (top->rows[i].sales.event_key != r->event_key) continue;
        r->row = top->rows[i];
        ranking_read_seats(r);
        return;
    }
    struct board_name popular = r->board;
    popular.kind = BOARD_POPULAR;
    ranking_find(r, popular, ranking_on_found);
}

static void ranking_on_found(struct board_find_op *f) {
    struct ranking_event *r = CONTAINER_OF(f, struct ranking_event, find);
    if (f->result != ERR_OK) {
        r->done(r, f->result);
        return;
    }
    r->row = f->row;
    if (f->board.kind != r->board.kind) r->row.rank = 0;
    ranking_read_seats(r);
}

static void ranking_on_seats(struct board_find_op *f) {
    struct ranking_event *r = CONTAINER_OF(f, struct ranking_event, find);
    r->seats_sold = f->row.sales.seats;
    r->done(r, f->result);
}

static void ranking_read_seats(struct ranking_event *r) {
    ranking_find(r, (struct board_name){.kind = BOARD_SOLDOUT}, ranking_on_seats);
}
