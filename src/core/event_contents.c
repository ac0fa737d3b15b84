/* Filling and freeing the two arrays of an event's contents. */
#include "core/event_contents.h"

#include "base/mem.h"

void event_contents_add_entry(struct event_contents *c, struct contents_entry e) {
    c->entries = mem_make_room(c->entries, c->entry_count, &c->entry_room, sizeof e);
    c->entries[c->entry_count++] = e;
}

void event_contents_add_reservation(struct event_contents *c, struct claim_info r) {
    c->reservations =
        mem_make_room(c->reservations, c->reservation_count, &c->reservation_room, sizeof r);
    c->reservations[c->reservation_count++] = r;
}

void event_contents_clear(struct event_contents *c) {
    mem_free(c->entries);
    mem_free(c->reservations);
    *c = (struct event_contents){0};
}
