#include "api/event_view.h"

#include "base/clock.h"
#include "base/list.h"

static void drop_deleted(struct event_views *v) {
    struct event_view **at = &v->first;
    while (*at != NULL) {
        if ((*at)->counting.op.result == ERR_EVENT_NOT_FOUND) {
            *at = (*at)->next;
            v->count--;
        } else {
            at = &(*at)->next;
        }
    }
}

static void answered(struct event_views *v) {
    if (--v->left > 0) return;
    drop_deleted(v);
    v->done(v, v->failed);
}

/* Both have the sections in the same order, but after changes. */
static const struct section_counts *counts_of(const struct section_counts *sections, size_t count,
                                              int64_t section_key, size_t probably_at) {
    for (size_t i = 0; i < count; i++) {
        const struct section_counts *counts = &sections[(probably_at + i) % count];
        if (counts->section_key == section_key) return counts;
    }
    return NULL;
}

/* A section that the hot store does not know (any more) stays as the catalogue has it. */
static void take_counts(struct event *e, const struct section_counts *sections, size_t count) {
    for (size_t i = 0; i < e->section_count; i++) {
        const struct section_counts *counts = counts_of(sections, count, e->sections[i].key, i);
        if (counts == NULL) continue;
        e->sections[i].held = counts->seats.held;
        e->sections[i].confirmed = counts->seats.confirmed;
    }
}

static void on_counted(struct seat_count_op *c) {
    struct event_view *view = CONTAINER_OF(c, struct event_view, counting);
    bool is_told = c->op.result == ERR_OK;
    if (is_told) take_counts(view->event, c->sections, c->count < c->max ? c->count : c->max);
    if (!is_told && c->op.result != ERR_EVENT_NOT_FOUND) view->of->failed = c->op.result;
    answered(view->of);
}

void event_views_add(struct event_views *v, struct arena *a, const struct event *e) {
    struct event_view *view = arena_new(a, sizeof *view);
    view->of = v;
    view->event = event_copy_to(arena_new(a, event_bytes(e)), e);
    view->counting.op.event_key = e->key;
    view->counting.sections = arena_new(a, e->section_count * sizeof *view->counting.sections);
    view->counting.max = e->section_count;
    view->counting.done = on_counted;
    if (v->last == NULL)
        v->first = view;
    else
        v->last->next = view;
    v->last = view;
    v->count++;
}

void event_views_count(struct event_views *v, struct seats *seats) {
    int64_t now_ms = clock_wall_ms();
    v->left = v->count + 1;
    for (struct event_view *view = v->first; view != NULL; view = view->next) {
        view->counting.op.now_ms = now_ms;
        seats_count(seats, &view->counting);
    }
    answered(v);
}

static void on_snapshot(struct snapshot_read *r, enum err result) {
    struct event_views *v = CONTAINER_OF(r, struct event_views, read);
    snapshot_open(v->snapshot);
    for (struct event_view *view = v->first; view != NULL; view = view->next) {
        const struct snapshot_row *row = snapshot_find(v->snapshot, view->event->key);
        if (row == NULL) continue;
        take_counts(view->event, row->sections, row->section_count);
        view->waiting = row->waiting;
        view->active = row->active;
    }
    snapshot_shut(v->snapshot);
    v->done(v, result);
}

void event_views_count_many(struct event_views *v, struct snapshot *s, struct seats *seats) {
    if (s == NULL) {
        event_views_count(v, seats);
        return;
    }
    v->snapshot = s;
    v->read.done = on_snapshot;
    snapshot_read(s, &v->read);
}
