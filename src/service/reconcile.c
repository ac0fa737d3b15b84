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
struct comparing {
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

/* Where the next item goes. */
#define NEXT_OF(array, count, room)                                                                \
    (array = room_for_next(array, count, &(room), sizeof *(array)), &(array)[(count)++])

static void *room_for_next(void *array, size_t count, size_t *room, size_t item_size) {
    if (count < *room) return array;
    *room = *room == 0 ? 64 : *room * 2;
    return mem_grow(array, *room * item_size);
}

/* ---- reading the ledger ---- */

static void on_event(void *to, struct event *e) {
    struct comparing *c = to;
    struct reconcile *r = c->reconcile;
    queues_meet(r->queues, e);
    struct compared_event *next = NEXT_OF(r->events, r->event_count, c->event_room);
    *next = (struct compared_event){.key = e->key};
    event_path(str_of(e->type), str_of(e->id), next->name);
    mem_free(e);
}

static int by_key(const void *a, const void *b) {
    int64_t left = ((const struct compared_event *)a)->key;
    int64_t right = ((const struct compared_event *)b)->key;
    return left < right ? -1 : left > right;
}

static struct compared_event *find_event(const struct reconcile *r, int64_t key) {
    struct compared_event wanted = {.key = key};
    if (r->event_count == 0) return NULL;
    return bsearch(&wanted, r->events, r->event_count, sizeof *r->events, by_key);
}

static void on_entry(void *to, const struct ledger_entry *e) {
    struct comparing *c = to;
    *NEXT_OF(c->entries, c->entry_count, c->entry_room) = (struct ledger_place){
        .event_key = e->event_key, .seq = e->seq, .expires_ms = e->expires_ms, .status = e->status};
}

static void on_reservation(void *to, const struct reservation *r) {
    struct comparing *c = to;
    *NEXT_OF(c->reservations, c->reservation_count, c->reservation_room) =
        (struct ledger_seats){.event_key = r->event_key,
                              .section_key = r->section_key,
                              .id = r->id,
                              .held = {.seat_count = r->seat_count, .status = r->status}};
}

static int by_event_and_id(const void *a, const void *b) {
    const struct ledger_seats *left = a;
    const struct ledger_seats *right = b;
    if (left->event_key != right->event_key) return left->event_key < right->event_key ? -1 : 1;
    return memcmp(&left->id, &right->id, sizeof left->id);
}

static enum err read_ledger(struct comparing *c) {
    return ledger_load(
        c->reconcile->ledger,
        &(struct ledger_reader){
            .on_event = on_event, .on_entry = on_entry, .on_reservation = on_reservation, .to = c});
}

/* ---- comparing ---- */

static void note(struct comparing *c, struct compared_event *e, struct difference d) {
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

/* Either may be NULL: it is not live there. */
static void compare_entry(struct comparing *c, struct compared_event *e,
                          const struct ledger_place *there, const struct contents_entry *here) {
    assert(there != NULL || here != NULL);
    /* cppcheck-suppress nullPointerRedundantCheck */
    uint64_t seq = there != NULL ? there->seq : here->seq;
    if (here != NULL && here->pending) return;
    /* A younger one may have become durable after the ledger was read. */
    if (there == NULL && here->joined_ms > c->began_ms - c->reconcile->wait_ms) return;
    struct difference d = {.seq = seq,
                           .entry_in_hot = here == NULL ? ENTRY_NONE : here->status,
                           .entry_in_ledger = there == NULL ? ENTRY_NONE : there->status};
    if (d.entry_in_hot == d.entry_in_ledger) return;
    d.kind = there == NULL  ? DIFFERENCE_ENTRY_OVER
             : here == NULL ? DIFFERENCE_ENTRY_MISSING
                            : DIFFERENCE_ENTRY_STATUS;
    /* Past its time it is over to everybody; that may be on its way to the ledger. */
    if (here == NULL && there->status == ENTRY_ACTIVE && there->expires_ms <= c->began_ms) {
        if (there->expires_ms > c->began_ms - c->reconcile->wait_ms) return;
        d.kind = DIFFERENCE_ENTRY_LATE;
    }
    note(c, e, d);
}

static void compare_entries(struct comparing *c, struct compared_event *e,
                            const struct ledger_place *there,
                            const struct event_contents *contents) {
    const struct ledger_place *there_end = there + e->ledger_entries;
    const struct contents_entry *here = contents->entries;
    const struct contents_entry *here_end = here + contents->entry_count;
    while (there < there_end || here < here_end) {
        bool is_there = there < there_end && (here == here_end || there->seq <= here->seq);
        bool is_here = here < here_end && (there == there_end || here->seq <= there->seq);
        compare_entry(c, e, is_there ? there : NULL, is_here ? here : NULL);
        if (is_there) there++;
        if (is_here) here++;
    }
}

static void compare_reservation(struct comparing *c, struct compared_event *e,
                                const struct ledger_seats *there, const struct claim_info *here) {
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
    note(c, e, d);
}

static void compare_reservations(struct comparing *c, struct compared_event *e,
                                 const struct ledger_seats *there,
                                 const struct event_contents *contents) {
    const struct ledger_seats *there_end = there + e->ledger_reservations;
    const struct claim_info *here = contents->reservations;
    const struct claim_info *here_end = here + contents->reservation_count;
    while (there < there_end || here < here_end) {
        int order = there == there_end ? 1
                    : here == here_end ? -1
                                       : memcmp(&there->id, &here->id, sizeof there->id);
        compare_reservation(c, e, order <= 0 ? there : NULL, order >= 0 ? here : NULL);
        if (order <= 0) there++;
        if (order >= 0) here++;
    }
}

static enum err compare_event(struct comparing *c, struct compared_event *e,
                              const struct ledger_place *entries,
                              const struct ledger_seats *reservations) {
    struct event_contents contents;
    enum err failed = hot_read_event(c->reconcile->hot, e->key, &contents);
    e->is_missing = failed == ERR_EVENT_NOT_FOUND;
    if (failed != ERR_OK) return e->is_missing ? ERR_OK : failed;
    e->hot_entries = contents.entry_count;
    e->hot_reservations = contents.reservation_count;
    compare_entries(c, e, entries, &contents);
    compare_reservations(c, e, reservations, &contents);
    mem_free(contents.entries);
    mem_free(contents.reservations);
    return ERR_OK;
}

static enum err compare_events(struct comparing *c) {
    struct reconcile *r = c->reconcile;
    size_t entry = 0;
    size_t reservation = 0;
    enum err failed = ERR_OK;
    for (size_t i = 0; i < r->event_count && failed == ERR_OK; i++) {
        struct compared_event *e = &r->events[i];
        /* A live reservation keeps its event from being removed; a place does not. */
        while (entry < c->entry_count && c->entries[entry].event_key < e->key) entry++;
        while (reservation < c->reservation_count &&
               c->reservations[reservation].event_key < e->key)
            reservation++;
        size_t first_entry = entry;
        size_t first_reservation = reservation;
        while (entry < c->entry_count && c->entries[entry].event_key == e->key) entry++;
        while (reservation < c->reservation_count &&
               c->reservations[reservation].event_key == e->key)
            reservation++;
        e->ledger_entries = entry - first_entry;
        e->ledger_reservations = reservation - first_reservation;
        failed = compare_event(c, e, c->entries + first_entry, c->reservations + first_reservation);
    }
    return failed;
}

enum err reconcile_compare(struct reconcile *r) {
    assert(r->hot != NULL && r->wait_ms > 0);
    struct comparing c = {.reconcile = r, .began_ms = clock_wall_ms()};
    reconcile_clear(r);
    enum err failed = read_ledger(&c);
    if (failed == ERR_OK) {
        if (r->event_count > 0) qsort(r->events, r->event_count, sizeof *r->events, by_key);
        if (c.reservation_count > 0)
            qsort(c.reservations, c.reservation_count, sizeof *c.reservations, by_event_and_id);
        failed = compare_events(&c);
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

static void reconcile_repair_next(struct reconcile_repair *m);

static void reconcile_close(struct reconcile_repair *m, enum err result, bool changed) {
    struct difference *d = &m->reconcile->differences[m->at++];
    bool is_gone = result == ERR_EVENT_NOT_FOUND || (result == ERR_OK && !changed);
    d->error = result;
    d->end = is_gone ? DIFFERENCE_GONE : result == ERR_OK ? DIFFERENCE_REPAIRED : DIFFERENCE_FAILED;
    if (!is_gone) count((enum counter)(COUNT_RECONCILE_ENTRIES_OVER + (unsigned)d->kind), 1);
    if (d->end == DIFFERENCE_REPAIRED) count(COUNT_RECONCILE_REPAIRS, 1);
}

static void reconcile_on_entry_repaired(struct entry_repair *r) {
    struct reconcile_repair *m = CONTAINER_OF(r, struct reconcile_repair, entry);
    reconcile_close(m, r->result, r->changed);
    reconcile_repair_next(m);
}

static void reconcile_on_reservation_repaired(struct reservation_repair *r) {
    struct reconcile_repair *m = CONTAINER_OF(r, struct reconcile_repair, reservation);
    reconcile_close(m, r->result, r->changed);
    reconcile_repair_next(m);
}

static enum err reconcile_repair_one(struct reconcile_repair *m, const struct difference *d) {
    const struct reconcile *r = m->reconcile;
    if (d->seq != 0) {
        m->entry = (struct entry_repair){.event_key = d->event_key,
                                         .seq = d->seq,
                                         .puts_back = true,
                                         .seen = d->entry_in_hot,
                                         .late_ms = r->wait_ms,
                                         .done = reconcile_on_entry_repaired};
        return repair_entry(r->ledger, r->queues, &m->entry);
    }
    m->reservation = (struct reservation_repair){.id = d->id,
                                                 .event_key = d->event_key,
                                                 .section_key = d->section_key,
                                                 .seen = &d->seats_in_hot,
                                                 .done = reconcile_on_reservation_repaired};
    return repair_reservation(r->ledger, r->seats, &m->reservation);
}

static void reconcile_repair_next(struct reconcile_repair *m) {
    while (m->at < m->reconcile->difference_count && !atomic_load(&m->stopping)) {
        enum err refused = reconcile_repair_one(m, &m->reconcile->differences[m->at]);
        if (refused == ERR_OK) return; /* it comes back */
        reconcile_close(m, refused, false);
    }
    m->done(m);
}

void reconcile_repair(struct reconcile_repair *m) {
    assert(m->at == 0 && m->done != NULL);
    reconcile_repair_next(m);
}

/* ---- for people ---- */

static void describe_seats(const struct held_seats *s, const char *where, struct buf *out) {
    str status = reservation_status_words[s->status];
    if (s->seat_count == 0)
        buf_addf(out, "not live in the %s", where);
    else
        buf_addf(out, "%.*s with %u seat%s in the %s", (int)status.len, status.at, s->seat_count,
                 s->seat_count == 1 ? "" : "s", where);
}

static void describe_entry(enum entry_status status, const char *where, struct buf *out) {
    if (status == ENTRY_NONE)
        buf_addf(out, "not live in the %s", where);
    else
        buf_addf(out, "%.*s in the %s", (int)entry_status_words[status].len,
                 entry_status_words[status].at, where);
}

void difference_describe(const struct reconcile *r, const struct difference *d, struct buf *out) {
    const struct compared_event *e = find_event(r, d->event_key);
    buf_addf(out, "%s, ", e->name);
    if (d->seq != 0) {
        buf_addf(out, "entry %llu: ", (unsigned long long)d->seq);
        describe_entry(d->entry_in_ledger, "ledger", out);
        if (d->kind == DIFFERENCE_ENTRY_LATE) buf_add(out, STR(", long past its time"));
        buf_add(out, STR(", "));
        describe_entry(d->entry_in_hot, "hot store", out);
        return;
    }
    char id[UUID_TEXT_BYTES];
    uuid_format(&d->id, id);
    buf_addf(out, "reservation %.*s: ", UUID_TEXT_BYTES, id);
    describe_seats(&d->seats_in_ledger, "ledger", out);
    buf_add(out, STR(", "));
    describe_seats(&d->seats_in_hot, "hot store", out);
}
