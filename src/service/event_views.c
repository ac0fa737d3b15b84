/* Copies events, asks the hot store for the counts of each at once, and waits for the last answer.
 */
#include "service/event_views.h"

#include "base/clock.h"
#include "base/list.h"

void event_views_add(struct event_views *v, struct arena *a, const struct event *e) {
    struct event_view *view = arena_new(a, sizeof *view);
    view->of = v;
    struct event copied = v->texts ? *e : event_without_texts(e);
    view->event = event_copy_to(arena_new(a, event_bytes(&copied)), &copied);
    if (v->last == NULL)
        v->first = view;
    else
        v->last->next = view;
    v->last = view;
    v->count++;
    if (!v->seats) return;
    view->seats.sections = arena_new(a, e->section_count * sizeof *view->seats.sections);
    view->seats.max = e->section_count;
}

static void event_views_drop_deleted(struct event_views *v) {
    struct event_view **at = &v->first;
    while (*at != NULL) {
        if ((*at)->seats.op.result == ERR_EVENT_NOT_FOUND ||
            (*at)->queue.op.result == ERR_EVENT_NOT_FOUND) {
            *at = (*at)->next;
            v->count--;
        } else {
            at = &(*at)->next;
        }
    }
}

static void event_views_answered(struct event_views *v) {
    if (--v->left > 0) return;
    event_views_drop_deleted(v);
    v->done(v, v->failed);
}

/* Both have the sections in the same order, unless the event was changed. */
static const struct section_counts *event_views_section(const struct section_counts *sections,
                                                        size_t count, int64_t section_key,
                                                        size_t probably_at) {
    for (size_t i = 0; i < count; i++) {
        const struct section_counts *counts = &sections[(probably_at + i) % count];
        if (counts->section_key == section_key) return counts;
    }
    return NULL;
}

/* A section that the hot store does not know (any more) stays as the catalogue has it. */
static void event_view_take_seats(struct event *e, const struct section_counts *sections,
                                  size_t count) {
    for (size_t i = 0; i < e->section_count; i++) {
        struct section *s = &e->sections[i];
        const struct section_counts *counts = event_views_section(sections, count, s->key, i);
        if (counts == NULL) continue;
        s->held = counts->seats.held;
        s->confirmed = counts->seats.confirmed;
    }
}

static void event_view_on_seats(struct seat_count_op *c) {
    struct event_view *view = CONTAINER_OF(c, struct event_view, seats);
    if (c->op.result == ERR_OK)
        event_view_take_seats(view->event, c->sections, c->count < c->max ? c->count : c->max);
    else if (c->op.result != ERR_EVENT_NOT_FOUND)
        view->of->failed = c->op.result;
    event_views_answered(view->of);
}

static void event_view_on_queue(struct look_op *look) {
    event_views_answered(CONTAINER_OF(look, struct event_view, queue)->of);
}

struct seat_counts event_seats(const struct event *e) {
    struct seat_counts seats = {0};
    for (size_t i = 0; i < e->section_count; i++) {
        const struct section *s = &e->sections[i];
        seats.available += (uint32_t)section_available(s);
        seats.held += (uint32_t)s->held;
        seats.confirmed += (uint32_t)s->confirmed;
    }
    return seats;
}

static void event_views_on_snapshot(struct snapshot_read *r, enum err result) {
    struct event_views *v = CONTAINER_OF(r, struct event_views, read);
    snapshot_lock(v->snapshot);
    for (struct event_view *view = v->first; view != NULL; view = view->next) {
        const struct snapshot_row *row = snapshot_find(v->snapshot, view->event->key);
        view->queue.op.result = result;
        if (row != NULL) {
            event_view_take_seats(view->event, row->sections, row->section_count);
            view->queue.counts = row->queue;
        }
        view->queue.seats = event_seats(view->event);
    }
    snapshot_unlock(v->snapshot);
    v->done(v, result);
}

void event_views_count(struct event_views *v, struct events *ev, struct snapshot *snapshot) {
    if (snapshot != NULL) {
        v->snapshot = snapshot;
        v->read.done = event_views_on_snapshot;
        snapshot_read(snapshot, &v->read);
        return;
    }
    struct hot_op op = {.now_ms = clock_wall_ms()};
    v->left = v->count * ((size_t)v->seats + v->queues) + 1;
    for (struct event_view *view = v->first; view != NULL; view = view->next) {
        op.event_key = view->event->key;
        if (v->queues) {
            view->queue = (struct look_op){.op = op, .done = event_view_on_queue};
            queues_look(ev->queues, &view->queue);
        }
        if (v->seats) {
            view->seats.op = op;
            view->seats.done = event_view_on_seats;
            seats_count(ev->seats, &view->seats);
        }
    }
    event_views_answered(v);
}
