/* Reading both stores, comparing them event by event, repairing the differences one after the
 * other, and describing them. */
#include "service/reconcile.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

struct comparison {
    struct reconcile *reconcile;
    int64_t began_ms;
    size_t event_room;
};

/* ---- reading the ledger ---- */

static void reconcile_on_event(void *to, struct event *e) {
    struct comparison *c = to;
    struct reconcile *r = c->reconcile;
    queues_register_event(r->queues, e);
    r->events = mem_make_room(r->events, r->event_count, &c->event_room, sizeof *r->events);
    struct compared_event *next = &r->events[r->event_count++];
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
    struct comparison *c = to;
    struct compared_event *of = reconcile_find_event(c->reconcile, e->event_key);
    if (of == NULL) return;
    event_contents_add_entry(&of->in_ledger, (struct contents_entry){.seq = e->seq,
                                                                     .joined_ms = e->joined_ms,
                                                                     .expires_ms = e->expires_ms,
                                                                     .status = e->status});
}

static void reconcile_on_reservation(void *to, const struct reservation *v) {
    struct comparison *c = to;
    struct compared_event *of = reconcile_find_event(c->reconcile, v->event_key);
    if (of == NULL) return;
    event_contents_add_reservation(&of->in_ledger,
                                   (struct claim_info){.id = v->id,
                                                       .section_key = v->section_key,
                                                       .seat_count = v->seat_count,
                                                       .status = v->status});
}

/* ---- comparing ---- */

static void reconcile_add_difference(struct comparison *c, struct compared_event *e,
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
static void reconcile_compare_entry(struct comparison *c, struct compared_event *e,
                                    const struct contents_entry *there,
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

static struct held_seats reconcile_seats(const struct claim_info *c) {
    if (c == NULL) return (struct held_seats){0};
    return (struct held_seats){.seat_count = c->seat_count, .status = c->status};
}

static void reconcile_compare_reservation(struct comparison *c, struct compared_event *e,
                                          const struct claim_info *there,
                                          const struct claim_info *here) {
    assert(there != NULL || here != NULL);
    const struct claim_info *known = here != NULL ? here : there;
    if (known->pending || uuid_time_ms(&known->id) > c->began_ms - c->reconcile->wait_ms) return;
    struct difference d = {.id = known->id,
                           .section_key = known->section_key,
                           .seats_in_hot = reconcile_seats(here),
                           .seats_in_ledger = reconcile_seats(there)};
    if (d.seats_in_hot.seat_count == d.seats_in_ledger.seat_count &&
        d.seats_in_hot.status == d.seats_in_ledger.status)
        return;
    d.kind = there == NULL  ? DIFFERENCE_RESERVATION_OVER
             : here == NULL ? DIFFERENCE_RESERVATION_MISSING
                            : DIFFERENCE_RESERVATION_STATUS;
    reconcile_add_difference(c, e, d);
}

/* Walks the event's contents in both stores, in their order. */
static void reconcile_compare_contents(struct comparison *c, struct compared_event *e,
                                       const struct event_contents *ledger,
                                       const struct event_contents *hot) {
    for (size_t i = 0, j = 0; i < ledger->entry_count || j < hot->entry_count;) {
        const struct contents_entry *there = i < ledger->entry_count ? &ledger->entries[i] : NULL;
        const struct contents_entry *here = j < hot->entry_count ? &hot->entries[j] : NULL;
        bool is_there = there != NULL && (here == NULL || there->seq <= here->seq);
        bool is_here = here != NULL && (there == NULL || here->seq <= there->seq);
        reconcile_compare_entry(c, e, is_there ? there : NULL, is_here ? here : NULL);
        i += is_there;
        j += is_here;
    }
    for (size_t i = 0, j = 0; i < ledger->reservation_count || j < hot->reservation_count;) {
        const struct claim_info *there =
            i < ledger->reservation_count ? &ledger->reservations[i] : NULL;
        const struct claim_info *here = j < hot->reservation_count ? &hot->reservations[j] : NULL;
        int order = there == NULL  ? 1
                    : here == NULL ? -1
                                   : memcmp(&there->id, &here->id, sizeof there->id);
        reconcile_compare_reservation(c, e, order <= 0 ? there : NULL, order >= 0 ? here : NULL);
        i += order <= 0;
        j += order >= 0;
    }
}

static enum err reconcile_compare_event(struct comparison *c, struct compared_event *e) {
    struct event_contents hot;
    enum err failed = hot_read_event(c->reconcile->hot, e->key, &hot);
    e->is_missing = failed == ERR_EVENT_NOT_FOUND;
    e->ledger_entries = e->in_ledger.entry_count;
    e->ledger_reservations = e->in_ledger.reservation_count;
    if (failed != ERR_OK) return e->is_missing ? ERR_OK : failed;
    e->hot_entries = hot.entry_count;
    e->hot_reservations = hot.reservation_count;
    reconcile_compare_contents(c, e, &e->in_ledger, &hot);
    event_contents_clear(&hot);
    return ERR_OK;
}

enum err reconcile_compare(struct reconcile *r) {
    assert(r->hot != NULL && r->wait_ms > 0);
    struct comparison c = {.reconcile = r, .began_ms = clock_wall_ms()};
    reconcile_clear(r);
    enum err failed =
        ledger_load(r->ledger, &(struct ledger_reader){.on_event = reconcile_on_event,
                                                       .on_entry = reconcile_on_entry,
                                                       .on_reservation = reconcile_on_reservation,
                                                       .to = &c});
    for (size_t i = 0; i < r->event_count; i++) {
        if (failed == ERR_OK) failed = reconcile_compare_event(&c, &r->events[i]);
        event_contents_clear(&r->events[i].in_ledger);
    }
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
