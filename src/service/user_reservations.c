/* Asks the hot store in which events a user has reservations, and lists those of each. */
#include "service/user_reservations.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"

static void user_on_event(struct buyer_op *b, int64_t event_key);
static void user_on_events(struct buyer_op *b);

void user_reservations_list(struct events *ev, struct reservations *r,
                            struct user_reservations *u) {
    u->events = ev;
    u->service = r;
    u->buyer = (struct buyer_op){.user = u->listing.user,
                                 .now_ms = clock_wall_ms(),
                                 .event = user_on_event,
                                 .done = user_on_events};
    seats_buyer(ev->seats, &u->buyer);
}

static void user_on_event(struct buyer_op *b, int64_t event_key) {
    struct user_reservations *u = CONTAINER_OF(b, struct user_reservations, buyer);
    if (u->event_count == u->event_cap) {
        const int64_t *before = u->event_keys;
        u->event_cap = u->event_cap == 0 ? 8 : u->event_cap * 2;
        u->event_keys = arena_new(u->listing.arena, u->event_cap * sizeof *u->event_keys);
        if (before != NULL) memcpy(u->event_keys, before, u->event_count * sizeof *u->event_keys);
    }
    u->event_keys[u->event_count++] = event_key;
}

static int event_order(const void *a, const void *b) {
    const struct event *left = *(const struct event *const *)a;
    const struct event *right = *(const struct event *const *)b;
    int order = strcmp(left->type, right->type);
    return order != 0 ? order : strcmp(left->id, right->id);
}

/* Without events that have been deleted since then. */
static void user_sort_events(struct user_reservations *u) {
    struct catalogue *c = u->events->catalogue;
    const struct event **events =
        arena_new(u->listing.arena, (u->event_count + 1) * sizeof(struct event *));
    size_t count = 0;
    catalogue_read_lock(c);
    for (size_t i = 0; i < u->event_count; i++) {
        const struct event *e = catalogue_find_key(c, u->event_keys[i]);
        if (e != NULL) events[count++] = e;
    }
    qsort(events, count, sizeof(struct event *), event_order);
    for (size_t i = 0; i < count; i++) u->event_keys[i] = events[i]->key;
    catalogue_read_unlock(c);
    u->event_count = count;
}

static void user_on_events(struct buyer_op *b) {
    struct user_reservations *u = CONTAINER_OF(b, struct user_reservations, buyer);
    if (b->result != ERR_OK) {
        u->listing.done(&u->listing, b->result);
        return;
    }
    user_sort_events(u);
    u->listing.event_keys = u->event_keys;
    u->listing.event_count = u->event_count;
    reservations_list(u->service, &u->listing);
}
