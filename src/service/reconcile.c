/* Reading both stores, comparing them event by event, repairing the differences one after the
 * other, and describing them. */
#include "service/reconcile.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

struct ledger_place {
    int64_t event_key;
    uint64_t seq;
    int64_t expires_ms;
    enum entry_status status;
};

struct ledger_seats {
    int64_t event_key;
    int64_t section_key;
    struct uuid id;
    struct held_seats held;
};

/* The ledger, as it was at one moment. */
struct ledger_snapshot {
    struct reconcile *reconcile;
    int64_t began_ms;
    size_t event_room;
    struct ledger_place *entries; /* in order of event and number */
    size_t entry_count;
    size_t entry_room;
    struct ledger_seats *reservations; /* in order of event and id */
    size_t reservation_count;
    size_t reservation_room;
};

/* Grows the array when it is full; the next item. */
#define NEXT_OF(array, count, room)                                                                \
    (array = reconcile_grow(array, count, &(room), sizeof *(array)), &(array)[(count)++])

static void *reconcile_grow(void *array, size_t count, size_t *room, size_t item_size) {
    if (count < *room) return array;
    *room = *room == 0 ? 64 : *room * 2;
    return mem_grow(array, *room * item_size);
}

/* ---- reading the ledger ---- */

static void reconcile_on_event(void *to, struct event *e) {
    struct ledger_snapshot *c = to;
    struct reconcile *r = c->reconcile;
    queues_register_event(r->queues, e);
    struct compared_event *next = NEXT_OF(r->events, r->event_count, c->event_room);
    *next = (struct compared_event){.key = e->key};
    event_path(str_of(e->type), str_of(e->id), next->name);
    mem_free(e);
}

static int reconcile_by_key(const void *a, const void *b) {
    int64_t left = ((const struct compared_event *)a)->key;
    int64_t right = ((const struct compared_event *)b)->key;
    return left < right ? -1 : left > right;
}

static struct compared_event *reconcile_find_event(const struct reconcile *r, int64_t key) {
    struct compared_event wanted = {.key = key};
    if (r->event_count == 0) return NULL;
    return bsearch(&wanted, r->events, r->event_count, sizeof *r->events, reconcile_by_key);
}

static void reconcile_on_entry(void *to, const struct ledger_entry *e) {
    struct ledger_snapshot *c = to;
    *NEXT_OF(c->entries, c->entry_count, c->entry_room) = (struct ledger_place){
        .event_key = e->event_key, .seq = e->seq, .expires_ms = e->expires_ms, .status = e->status};
}

static void reconcile_on_reservation(void *to, const struct reservation *r) {
    struct ledger_snapshot *c = to;
    *NEXT_OF(c->reservations, c->reservation_count, c->reservation_room) =
        (struct ledger_seats){.event_key = r->event_key,
                              .section_key = r->section_key,
                              .id = r->id,
                              .held = {.seat_count = r->seat_count, .status = r->status}};
}

static int reconcile_by_event_and_id(const void *a, const void *b) {
    const struct ledger_seats *left = a;
    const struct ledger_seats *right = b;
    if (left->event_key != right->event_key) return left->event_key < right->event_key ? -1 : 1;
    return memcmp(&left->id, &right->id, sizeof left->id);
}

/* ---- comparing ---- */

static void reconcile_add_difference(struct ledger_snapshot *c, struct compared_event *e,
                                     struct difference d) {
    struct reconcile *r = c->reconcile;
    e->differences++;
    if (r->difference_count == DIFFERENCES_MAX) {
        r->left_out++;
        return;
    }
    if (r->differences == NULL) r->differences = mem_new(DIFFERENCES_MAX * sizeof d);
    d.event_key = e->key;
    r->differences[r->difference_count++] = d;
}

/* Either may be NULL: the entry is not live in that store. */
static void reconcile_compare_entry(struct ledger_snapshot *c, struct compared_event *e,
                                    const struct ledger_place *there,
                                    const struct contents_entry *here) {
    assert(there != NULL || here != NULL);
    /* cppcheck-suppress nullPointerRedundantCheck */
    uint64_t seq = there != NULL ? there->seq : here->seq;
    if (here != NULL && here->pending) return;
    /* A younger entry may have become durable after the ledger was read. */
    if (there == NULL && here->joined_ms > c->began_ms - c->reconcile->wait_ms) return;
    struct difference d = {.seq = seq,
                           .entry_in_hot = here == NULL ? ENTRY_NONE : here->status,
                           .entry_in_ledger = there == NULL ? ENTRY_NONE : there->status};
    if (d.entry_in_hot == d.entry_in_ledger) return;
    d.kind = there == NULL  ? DIFFERENCE_ENTRY_OVER
             : here == NULL ? DIFFERENCE_ENTRY_MISSING
                            : DIFFERENCE_ENTRY_STATUS;
    /* Past its time an entry is over; its expiry may be on its way to the ledger. */
    if (here == NULL && there->status == ENTRY_ACTIVE && there->expires_ms <= c->began_ms) {
        if (there->expires_ms > c->began_ms - c->reconcile->wait_ms) return;
        d.kind = DIFFERENCE_ENTRY_LATE;
    }
    reconcile_add_difference(c, e, d);
}

static void reconcile_compare_reservation(struct ledger_snapshot *c, struct compared_event *e,
                                          const struct ledger_seats *there,
                                          const struct claim_info *here) {
    assert(there != NULL || here != NULL);
    struct difference d = {0};
    if (here != NULL) {
        if (here->pending) return;
        d.id = here->id;
        d.section_key = here->section_key;
    } else {
        d.id = there->id;
        d.section_key = there->section_key;
    }
    if (uuid_time_ms(&d.id) > c->began_ms - c->reconcile->wait_ms) return;
    if (there != NULL) d.seats_in_ledger = there->held;
    if (here != NULL)
        d.seats_in_hot =
            (struct held_seats){.seat_count = here->seat_count, .status = here->status};
    if (d.seats_in_hot.seat_count == d.seats_in_ledger.seat_count &&
        d.seats_in_hot.status == d.seats_in_ledger.status)
        return;
    d.kind = there == NULL  ? DIFFERENCE_RESERVATION_OVER
             : here == NULL ? DIFFERENCE_RESERVATION_MISSING
                            : DIFFERENCE_RESERVATION_STATUS;
    reconcile_add_difference(c, e, d);
}

/* Walks what the ledger and the hot store have of one event, both in order. */
static enum err reconcile_compare_event(struct ledger_snapshot *c, struct compared_event *e,
                                        const struct ledger_place *entry,
                                        const struct ledger_seats *seats) {
    struct event_contents hot;
    enum err failed = hot_read_event(c->reconcile->hot, e->key, &hot);
    e->is_missing = failed == ERR_EVENT_NOT_FOUND;
    if (failed != ERR_OK) return e->is_missing ? ERR_OK : failed;
    e->hot_entries = hot.entry_count;
    e->hot_reservations = hot.reservation_count;
    for (size_t i = 0, j = 0; i < e->ledger_entries || j < hot.entry_count;) {
        bool is_there =
            i < e->ledger_entries && (j == hot.entry_count || entry[i].seq <= hot.entries[j].seq);
        bool is_here = j < hot.entry_count && (!is_there || entry[i].seq == hot.entries[j].seq);
        reconcile_compare_entry(c, e, is_there ? &entry[i++] : NULL,
                                is_here ? &hot.entries[j++] : NULL);
    }
    for (size_t i = 0, j = 0; i < e->ledger_reservations || j < hot.reservation_count;) {
        int order = i == e->ledger_reservations ? 1
                    : j == hot.reservation_count
                        ? -1
                        : memcmp(&seats[i].id, &hot.reservations[j].id, sizeof seats->id);
        reconcile_compare_reservation(c, e, order <= 0 ? &seats[i++] : NULL,
                                      order >= 0 ? &hot.reservations[j++] : NULL);
    }
    mem_free(hot.entries);
    mem_free(hot.reservations);
    return ERR_OK;
}

/* Entries may belong to an event that was removed; a live reservation keeps its event. */
static enum err reconcile_compare_events(struct ledger_snapshot *c) {
    struct reconcile *r = c->reconcile;
    size_t entry = 0;
    size_t seats = 0;
    enum err failed = ERR_OK;
    for (size_t i = 0; i < r->event_count && failed == ERR_OK; i++) {
        struct compared_event *e = &r->events[i];
        while (entry < c->entry_count && c->entries[entry].event_key < e->key) entry++;
        while (seats < c->reservation_count && c->reservations[seats].event_key < e->key) seats++;
        size_t first_entry = entry;
        size_t first_seats = seats;
        while (entry < c->entry_count && c->entries[entry].event_key == e->key) entry++;
        while (seats < c->reservation_count && c->reservations[seats].event_key == e->key) seats++;
        e->ledger_entries = entry - first_entry;
        e->ledger_reservations = seats - first_seats;
        failed =
            reconcile_compare_event(c, e, c->entries + first_entry, c->reservations + first_seats);
    }
    return failed;
}

enum err reconcile_compare(struct reconcile *r) {
    assert(r->hot != NULL && r->wait_ms > 0);
    struct ledger_snapshot c = {.reconcile = r, .began_ms = clock_wall_ms()};
    reconcile_clear(r);
    enum err failed =
        ledger_load(r->ledger, &(struct ledger_reader){.on_event = reconcile_on_event,
                                                       .on_entry = reconcile_on_entry,
                                                       .on_reservation = reconcile_on_reservation,
                                                       .to = &c});
    if (failed == ERR_OK) {
        if (r->event_count > 0)
            qsort(r->events, r->event_count, sizeof *r->events, reconcile_by_key);
        if (c.reservation_count > 0)
            qsort(c.reservations, c.reservation_count, sizeof *c.reservations,
                  reconcile_by_event_and_id);
        failed = reconcile_compare_events(&c);
    }
    mem_free(c.entries);
    mem_free(c.reservations);
    return failed;
}

void reconcile_clear(struct reconcile *r) {
    mem_free(r->events);
    mem_free(r->differences);
    r->events = NULL;
    r->event_count = 0;
    r->differences = NULL;
    r->difference_count = 0;
    r->left_out = 0;
}

/* ---- repairing ---- */

static void reconcile_repair_next(struct reconcile_repair *repair);

static void reconcile_close(struct reconcile_repair *repair, enum err result, bool changed) {
    struct difference *d = &repair->reconcile->differences[repair->at++];
    bool is_gone = result == ERR_EVENT_NOT_FOUND || (result == ERR_OK && !changed);
    d->error = result;
    d->end = is_gone ? DIFFERENCE_GONE : result == ERR_OK ? DIFFERENCE_REPAIRED : DIFFERENCE_FAILED;
    if (!is_gone) count((enum counter)(COUNT_RECONCILE_ENTRIES_OVER + (unsigned)d->kind), 1);
    if (d->end == DIFFERENCE_REPAIRED) count(COUNT_RECONCILE_REPAIRS, 1);
}

static void reconcile_on_entry_repaired(struct entry_repair *r) {
    struct reconcile_repair *repair = CONTAINER_OF(r, struct reconcile_repair, entry);
    reconcile_close(repair, r->result, r->changed);
    reconcile_repair_next(repair);
}

static void reconcile_on_reservation_repaired(struct reservation_repair *r) {
    struct reconcile_repair *repair = CONTAINER_OF(r, struct reconcile_repair, reservation);
    reconcile_close(repair, r->result, r->changed);
    reconcile_repair_next(repair);
}

static enum err reconcile_repair_one(struct reconcile_repair *repair, const struct difference *d) {
    const struct reconcile *r = repair->reconcile;
    if (d->seq != 0) {
        repair->entry = (struct entry_repair){.event_key = d->event_key,
                                              .seq = d->seq,
                                              .puts_back = true,
                                              .seen = d->entry_in_hot,
                                              .late_ms = r->wait_ms,
                                              .done = reconcile_on_entry_repaired};
        return repair_entry(r->ledger, r->queues, &repair->entry);
    }
    repair->reservation = (struct reservation_repair){.id = d->id,
                                                      .event_key = d->event_key,
                                                      .section_key = d->section_key,
                                                      .seen = &d->seats_in_hot,
                                                      .done = reconcile_on_reservation_repaired};
    return repair_reservation(r->ledger, r->seats, &repair->reservation);
}

static void reconcile_repair_next(struct reconcile_repair *repair) {
    while (repair->at < repair->reconcile->difference_count && !atomic_load(&repair->stopping)) {
        enum err refused =
            reconcile_repair_one(repair, &repair->reconcile->differences[repair->at]);
        if (refused == ERR_OK) return; /* it comes back */
        reconcile_close(repair, refused, false);
    }
    repair->done(repair);
}

void reconcile_repair(struct reconcile_repair *repair) {
    assert(repair->at == 0 && repair->done != NULL);
    reconcile_repair_next(repair);
}

/* ---- for people ---- */

static void reconcile_describe_seats(const struct held_seats *s, const char *where,
                                     struct buf *out) {
    str status = reservation_status_words[s->status];
    if (s->seat_count == 0)
        buf_addf(out, "not live in the %s", where);
    else
        buf_addf(out, "%.*s with %u seat%s in the %s", (int)status.len, status.at, s->seat_count,
                 s->seat_count == 1 ? "" : "s", where);
}

static void reconcile_describe_entry(enum entry_status status, const char *where, struct buf *out) {
    if (status == ENTRY_NONE)
        buf_addf(out, "not live in the %s", where);
    else
        buf_addf(out, "%.*s in the %s", (int)entry_status_words[status].len,
                 entry_status_words[status].at, where);
}

void difference_describe(const struct reconcile *r, const struct difference *d, struct buf *out) {
    const struct compared_event *e = reconcile_find_event(r, d->event_key);
    buf_addf(out, "%s, ", e->name);
    if (d->seq != 0) {
        buf_addf(out, "entry %llu: ", (unsigned long long)d->seq);
        reconcile_describe_entry(d->entry_in_ledger, "ledger", out);
        if (d->kind == DIFFERENCE_ENTRY_LATE) buf_add(out, STR(", long past its time"));
        buf_add(out, STR(", "));
        reconcile_describe_entry(d->entry_in_hot, "hot store", out);
        return;
    }
    char id[UUID_TEXT_BYTES];
    uuid_format(&d->id, id);
    buf_addf(out, "reservation %.*s: ", UUID_TEXT_BYTES, id);
    reconcile_describe_seats(&d->seats_in_ledger, "ledger", out);
    buf_add(out, STR(", "));
    reconcile_describe_seats(&d->seats_in_hot, "hot store", out);
}
