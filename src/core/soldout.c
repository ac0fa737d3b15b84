/* The pace of each event, and the orders by it. */
#include "core/soldout.h"

#include <assert.h>

#include "base/mem.h"
#include "core/period.h"

/* Above every pace: there are never so many seats. */
#define SOLD_OUT_SCORE (INT64_C(1) << 60)
#define SHARES 1000

struct row {
    struct soldout_sales sales;
    bool is_known;
    struct ranked place;       /* among all events */
    struct ranked day_place;   /* on the board of the day */
    int64_t day_ms;            /* which day's board that is; 0: none */
    int64_t step;              /* the last that it counts */
    int32_t steps[PACE_STEPS]; /* seats by step, the last PACE_STEPS of them */
};

struct day {
    int64_t begins_ms;
    int64_t gone_ms; /* when it is forgotten */
    struct ranking order;
};

void soldout_init(struct soldout *s) {
    *s = (struct soldout){0};
    map_init(&s->events);
    map_init(&s->days);
    ranking_init(&s->order);
}

static void day_free(struct day *d) {
    ranking_deinit(&d->order);
    mem_free(d);
}

void soldout_deinit(struct soldout *s) {
    struct row *r;
    struct day *d;
    for (size_t at = 0; (r = map_next(&s->events, &at)) != NULL;) mem_free(r);
    for (size_t at = 0; (d = map_next(&s->days, &at)) != NULL;) day_free(d);
    map_deinit(&s->events);
    map_deinit(&s->days);
    ranking_deinit(&s->order);
}

static struct row *row_of(struct soldout *s, int64_t event_key) {
    struct row *r = map_get(&s->events, map_key(&event_key));
    if (r != NULL) return r;
    r = mem_new(sizeof *r);
    r->sales.event_key = event_key;
    map_put(&s->events, map_key(&event_key), r);
    return r;
}

bool soldout_is_sold_out(const struct soldout_sales *s) {
    return s->sold_out_ms != 0 && s->capacity > 0 && s->seats >= s->capacity;
}

/* NULL: it is over. */
static struct day *day_of(struct soldout *s, int64_t at_ms) {
    const struct period *daily = period_find(STR("daily"));
    struct span span = period_span(daily, at_ms);
    struct day *d = map_get(&s->days, map_key(&span.begins_ms));
    int64_t gone_ms = span.ends_ms + daily->kept_s * 1000;
    if (d != NULL || gone_ms <= s->now_ms) return d;
    d = mem_new(sizeof *d);
    d->begins_ms = span.begins_ms;
    d->gone_ms = gone_ms;
    ranking_init(&d->order);
    map_put(&s->days, map_key(&span.begins_ms), d);
    return d;
}

static void soldout_place_on_day(struct soldout *s, struct row *r, bool is_sold_out,
                                 int64_t score) {
    const struct soldout_sales *e = &r->sales;
    struct day *d = is_sold_out ? day_of(s, e->sold_out_ms) : NULL;
    struct day *before = map_get(&s->days, map_key(&r->day_ms));
    if (before != d) {
        if (before != NULL) ranking_remove(&before->order, &r->day_place);
        r->day_place = (struct ranked){0}; /* the board that it stood on may be gone */
    }
    r->day_ms = d == NULL ? 0 : d->begins_ms;
    if (d != NULL)
        ranking_set(&d->order, &r->day_place, (struct ranked){e->event_key, score, e->sold_out_ms});
}

static void soldout_place(struct soldout *s, struct row *r) {
    const struct soldout_sales *e = &r->sales;
    int64_t took_ms = e->sold_out_ms - e->opened_ms;
    int64_t score = SOLD_OUT_SCORE - (took_ms > 0 ? took_ms : 0);
    bool is_shown = r->is_known && e->reservations > 0;
    bool is_sold_out = is_shown && soldout_is_sold_out(e);
    soldout_place_on_day(s, r, is_sold_out, score);
    if (!is_shown) {
        ranking_remove(&s->order, &r->place);
        return;
    }
    struct ranked to = {e->event_key, score, e->sold_out_ms};
    if (!is_sold_out) {
        int64_t share = e->capacity > 0 ? e->seats * SHARES / e->capacity : 0;
        to.score = e->pace * (SHARES + 1) + share;
        to.since = e->since_ms;
    }
    ranking_set(&s->order, &r->place, to);
}

/* ---- pace ---- */

static size_t pace_slot(int64_t step) {
    return (size_t)(step % PACE_STEPS);
}

/* The row's steps become those up to `step`. */
static void row_advance(struct row *r, int64_t step) {
    for (int i = 0; i < PACE_STEPS && r->step < step; i++) {
        int32_t *gone = &r->steps[pace_slot(++r->step)];
        r->sales.pace -= *gone;
        *gone = 0;
    }
    if (r->step < step) r->step = step; /* all of them are empty by now */
}

/* Where it was counted it is taken back, if that is not too long ago. Clocks differ a little: what
 * was made in a step that has not come yet counts in this one. */
static void row_pace(struct row *r, int64_t taken_ms, int64_t seats) {
    int64_t step = taken_ms / PACE_STEP_MS;
    if (step > r->step) step = r->step;
    if (step <= r->step - PACE_STEPS) return;
    r->steps[pace_slot(step)] += (int32_t)seats;
    r->sales.pace += seats;
}

static void days_advance(struct soldout *s) {
    size_t at = 0;
    struct day *d;
    while ((d = map_next(&s->days, &at)) != NULL) {
        if (d->gone_ms > s->now_ms) continue;
        map_remove(&s->days, map_key(&d->begins_ms));
        day_free(d);
        at = 0; /* what is behind it has moved */
    }
}

void soldout_advance(struct soldout *s, int64_t now_ms) {
    int64_t step = now_ms / PACE_STEP_MS;
    if (step <= s->step) return;
    s->step = step;
    s->now_ms = now_ms;
    days_advance(s);
    struct row *r;
    for (size_t at = 0; (r = map_next(&s->events, &at)) != NULL;) {
        int64_t before = r->sales.pace;
        row_advance(r, step);
        if (r->sales.pace != before) soldout_place(s, r);
    }
}

/* ---- counting ---- */

void soldout_set_event(struct soldout *s, int64_t event_key, int64_t capacity, int64_t opened_ms) {
    struct row *r = row_of(s, event_key);
    r->is_known = true;
    r->sales.capacity = capacity;
    r->sales.opened_ms = opened_ms;
    soldout_place(s, r);
}

void soldout_add(struct soldout *s, const struct sale *sale) {
    struct row *r = row_of(s, sale->event_key);
    struct soldout_sales *e = &r->sales;
    row_advance(r, s->step);
    if (sale->kind == SALE_SOLD_OUT) {
        if (sale->at_ms > e->sold_out_ms) e->sold_out_ms = sale->at_ms;
    } else {
        int64_t sign = sale->kind == SALE_TAKEN ? 1 : -1;
        e->reservations += sign;
        e->seats += sign * sale->seats;
        if (sign > 0 && sale->taken_ms > e->since_ms) e->since_ms = sale->taken_ms;
        row_pace(r, sale->taken_ms, sign * sale->seats);
    }
    soldout_place(s, r);
}

bool soldout_next(const struct soldout *s, size_t *at, struct soldout_row *out) {
    const struct row *r = map_next(&s->events, at);
    if (r == NULL) return false;
    *out = (struct soldout_row){.sales = r->sales, .is_known = r->is_known};
    for (int64_t step = r->step; step > r->step - PACE_STEPS && step > 0; step--) {
        int64_t seats = r->steps[pace_slot(step)];
        if (seats != 0) out->steps[out->step_count++] = (struct pace_step){step, seats};
    }
    return true;
}

/* ---- looking ---- */

static const struct soldout_sales *soldout_sales_of(const struct soldout *s, int64_t event_key) {
    const struct row *r = map_get(&s->events, map_key(&event_key));
    return &r->sales;
}

size_t soldout_find(const struct soldout *s, int64_t event_key, struct soldout_sales *out) {
    const struct row *r = map_get(&s->events, map_key(&event_key));
    if (r == NULL || r->place.member == 0) return 0;
    *out = r->sales;
    return ranking_rank(&s->order, &r->place);
}

static size_t top_of(const struct soldout *s, const struct ranking *order,
                     struct soldout_sales *out, size_t max) {
    struct ranked top[TOP_MAX];
    assert(max <= TOP_MAX);
    size_t count = ranking_top(order, top, max);
    for (size_t i = 0; i < count; i++) out[i] = *soldout_sales_of(s, top[i].member);
    return count;
}

size_t soldout_top(const struct soldout *s, struct soldout_sales *out, size_t max) {
    return top_of(s, &s->order, out, max);
}

size_t soldout_day_top(const struct soldout *s, int64_t at_ms, struct soldout_sales *out,
                       size_t max) {
    struct span span = period_span(period_find(STR("daily")), at_ms);
    const struct day *d = map_get(&s->days, map_key(&span.begins_ms));
    return d == NULL ? 0 : top_of(s, &d->order, out, max);
}
