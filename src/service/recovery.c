/* Callbacks that put what ledger_load reads into the hot store, the catalogue and the boards. */
#include "service/recovery.h"

#include "base/mem.h"
#include "service/rankings.h"

struct recovery {
    struct events *events;
    struct boards *boards; /* NULL: there are none */
    int64_t now_ms;
    uint64_t skip;
    uint64_t first_seq;
};

static void recovery_on_event(void *to, struct event *e) {
    struct recovery *r = to;
    struct board_event selling = rankings_event(e);
    if (r->boards != NULL) boards_restore_event(r->boards, &selling);
    queues_restore_event(r->events->queues, e);
    catalogue_install(r->events->catalogue, e);
}

static void recovery_on_totals(void *to, int64_t event_key, const struct queue_counts *totals) {
    struct recovery *r = to;
    queues_restore_totals(r->events->queues, event_key, totals);
}

static void recovery_on_entry(void *to, const struct ledger_entry *e) {
    struct recovery *r = to;
    queues_restore(r->events->queues, e);
}

static void recovery_on_queue(void *to, int64_t event_key, uint64_t highest_seq) {
    struct recovery *r = to;
    if (highest_seq == 0 && r->first_seq == 0) return; /* as the queue was made */
    uint64_t next_seq = highest_seq + 1 + r->skip;
    if (next_seq < r->first_seq) next_seq = r->first_seq;
    queues_recovered(r->events->queues, event_key, next_seq, r->now_ms);
}

static void recovery_on_reservation(void *to, const struct reservation *reservation) {
    struct recovery *r = to;
    struct live_reservation live = reservation_live(reservation);
    seats_restore(r->events->seats, reservation->event_key, &live);
    if (r->boards == NULL) return;
    struct sale taken = {.kind = SALE_TAKEN,
                         .event_key = reservation->event_key,
                         .seats = reservation->seat_count,
                         .at_ms = reservation->created_ms,
                         .taken_ms = reservation->created_ms};
    boards_restore(r->boards, &taken, r->now_ms);
}

static void recovery_on_sale(void *to, const struct sale *s) {
    struct recovery *r = to;
    if (s->kind == SALE_SOLD_OUT) seats_restore_ran_out(r->events->seats, s->event_key);
    if (r->boards != NULL) boards_restore(r->boards, s, r->now_ms);
}

static void recovery_on_mark(void *to, const struct sale_mark *mark) {
    struct recovery *r = to;
    boards_restored(r->boards, mark, r->now_ms);
}

enum err recovery_run(struct events *ev, int64_t now_ms, uint64_t skip) {
    struct recovery r = {.events = ev,
                         .boards = ev->boards,
                         .now_ms = now_ms,
                         .skip = skip,
                         .first_seq = ledger_generation(ev->ledger).first_seq};
    struct ledger_reader reader = {.on_event = recovery_on_event,
                                   .on_totals = recovery_on_totals,
                                   .on_entry = recovery_on_entry,
                                   .on_queue = recovery_on_queue,
                                   .on_reservation = recovery_on_reservation,
                                   .on_sale = recovery_on_sale,
                                   .to = &r};
    if (r.boards != NULL) reader.on_mark = recovery_on_mark;
    return ledger_load(ev->ledger, &reader);
}

static void recovery_on_event_counted(void *to, struct event *e) {
    int64_t *seats = to;
    *seats += event_capacity(e);
    mem_free(e);
}

enum err recovery_count_seats(struct events *ev, int64_t *seats) {
    *seats = 0;
    return ledger_load(ev->ledger,
                       &(struct ledger_reader){.on_event = recovery_on_event_counted, .to = seats});
}

static void recovery_on_event_met(void *to, struct event *e) {
    struct events *ev = to;
    queues_register_event(ev->queues, e);
    catalogue_install(ev->catalogue, e);
}

enum err recovery_load_events(struct events *ev) {
    return ledger_load(ev->ledger,
                       &(struct ledger_reader){.on_event = recovery_on_event_met, .to = ev});
}
