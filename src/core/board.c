/* The counts of a board, and their order. */
#include "core/board.h"

#include <assert.h>

#include "base/mem.h"

/* An event on a board. */
struct counted_event {
    struct board_sales sales; /* first: board.h shows the map's values as these */
    struct ranked place;
};

void board_init(struct board *b) {
    *b = (struct board){0};
    map_init(&b->sales);
    ranking_init(&b->order);
}

void board_deinit(struct board *b) {
    struct board_sales *t;
    for (size_t at = 0; (t = map_next(&b->sales, &at)) != NULL;) mem_free(t);
    map_deinit(&b->sales);
    ranking_deinit(&b->order);
}

static struct counted_event *board_event_of(struct board *b, int64_t event_key) {
    struct counted_event *e = map_get(&b->sales, map_key(&event_key));
    if (e != NULL) return e;
    e = mem_new(sizeof *e);
    e->sales.event_key = event_key;
    map_put(&b->sales, map_key(&event_key), e);
    return e;
}

void board_add(struct board *b, const struct sale *s) {
    if (s->kind == SALE_SOLD_OUT) return;
    struct counted_event *e = board_event_of(b, s->event_key);
    struct board_sales *t = &e->sales;
    int64_t sign = s->kind == SALE_TAKEN ? 1 : -1;
    t->reservations += sign;
    t->seats += sign * s->seats;
    if (sign > 0 && s->taken_ms > t->since_ms) t->since_ms = s->taken_ms;
    if (t->reservations > 0)
        ranking_set(&b->order, &e->place,
                    (struct ranked){t->event_key, t->reservations, t->since_ms});
    else
        ranking_remove(&b->order, &e->place);
}

size_t board_find(const struct board *b, int64_t event_key, struct board_sales *out) {
    const struct counted_event *e = map_get(&b->sales, map_key(&event_key));
    if (e == NULL || e->place.member == 0) return 0;
    *out = e->sales;
    return ranking_rank(&b->order, &e->place);
}

size_t board_top(const struct board *b, struct board_sales *out, size_t max) {
    struct ranked top[TOP_MAX];
    assert(max <= TOP_MAX);
    size_t count = ranking_top(&b->order, top, max);
    for (size_t i = 0; i < count; i++)
        out[i] = *(const struct board_sales *)map_get(&b->sales, map_key(&top[i].member));
    return count;
}
