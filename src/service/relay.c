/* The relay: reads facts from the ledger, sends each to the hot store in the order of the facts,
 * and marks those in the ledger that have arrived. */
#include "service/relay.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/metrics.h"

#define READ_MS 500
/* Younger facts most likely reach the hot store by the node that made them. */
#define OLDER_MS 1000

static void relay_on_read(struct task *task), relay_on_marked(struct task *task);
static void relay_on_followed(struct follow_op *f), relay_on_entries_seen(struct look_op *l);
static void relay_on_hold_sent(struct reservation_repair *repair);
static void relay_send_next(struct relay *r);

static void relay_end(struct relay *r) {
    atomic_store(&r->busy, false);
}

static void relay_read(struct relay *r) {
    if (atomic_exchange(&r->busy, true)) return;
    r->read.record = (struct ledger_record){.kind = LEDGER_FACTS_READ, .task.run = relay_on_read};
    r->read.now_ms = clock_wall_ms();
    r->read.older_ms = OLDER_MS;
    if (ledger_ask(r->events->ledger, &r->read.record) != ERR_OK) relay_end(r);
}

static void relay_on_read(struct task *task) {
    struct relay *r = CONTAINER_OF(task, struct relay, read.record.task);
    r->done = 0;
    if (r->read.record.result == ERR_OK)
        relay_send_next(r);
    else
        relay_end(r);
}

static void relay_mark_sent(struct relay *r) {
    if (r->done == 0) {
        relay_end(r);
        return;
    }
    for (size_t i = 0; i < r->done; i++) r->ids[i] = r->read.facts[i].id;
    r->written = (struct ledger_facts_relayed){
        .record = {.kind = LEDGER_FACTS_RELAYED, .always = true, .task.run = relay_on_marked},
        .now_ms = clock_wall_ms(),
        .ids = r->ids,
        .count = r->done};
    if (ledger_submit(r->events->ledger, &r->written.record) != ERR_OK) relay_end(r);
}

/* After a full page there may be more. */
static void relay_on_marked(struct task *task) {
    struct relay *r = CONTAINER_OF(task, struct relay, written.record.task);
    bool is_written = r->written.record.result == ERR_OK;
    if (is_written) count(COUNT_FACTS_RELAYED, r->written.count);
    bool has_more = r->read.count == FACTS_READ_MAX && r->done == r->read.count;
    relay_end(r);
    if (is_written && has_more && !r->stopping) relay_read(r);
}

/* The `taken` facts have reached the hot store. When they have not, the next read begins with them.
 * An event, a section or seats that are gone need nothing. */
static void relay_sent(struct relay *r, enum err result, size_t changed) {
    if (result != ERR_OK && result != ERR_EVENT_NOT_FOUND && result != ERR_SECTION_NOT_FOUND &&
        result != ERR_SEAT_NOT_FOUND) {
        relay_mark_sent(r);
        return;
    }
    count(COUNT_HOT_HEALED_RESERVATIONS, changed);
    r->done += r->taken;
    relay_send_next(r);
}

/* ---- one fact, or as many as one call takes ---- */

static bool relay_hot_decides(enum strategy s) {
    return !strategy_suits(s, true);
}

/* A hold that the hot store decided is settled there, by its node or by finish_pending. */
static bool relay_is_settled(const struct ledger_fact *f) {
    return f->status == RESERVATION_HELD && relay_hot_decides(f->strategy);
}

/* Where the ledger decides, the hot store may not know the hold at all, and no later fact says
 * which seats it has. */
static bool relay_is_hold(const struct ledger_fact *f) {
    return f->kind == RESERVATION_HELD && reservation_is_live(f->status) &&
           !relay_hot_decides(f->strategy);
}

static void relay_send_hold(struct relay *r, const struct ledger_fact *f) {
    r->taken = 1;
    r->repair = (struct reservation_repair){.id = f->reservation,
                                            .event_key = f->event_key,
                                            .section_key = f->section_key,
                                            .live_only = true, /* its end has a separate fact */
                                            .done = relay_on_hold_sent};
    if (repair_reservation(r->events->ledger, r->events->seats, &r->repair) != ERR_OK)
        relay_mark_sent(r);
}

static void relay_on_hold_sent(struct reservation_repair *repair) {
    relay_sent(CONTAINER_OF(repair, struct relay, repair), repair->result, 0);
}

/* The facts of one event that follow each other, in one call. */
static void relay_send_changes(struct relay *r) {
    const struct ledger_fact *first = &r->read.facts[r->done];
    size_t n = 0;
    while (r->done + n < r->read.count) {
        const struct ledger_fact *f = first + n;
        if (f->event_key != first->event_key || relay_is_settled(f) || relay_is_hold(f)) break;
        r->news[n++] = (struct reservation_change){
            .id = f->reservation, .section_key = f->section_key, .status = f->status};
    }
    r->taken = n;
    r->follow = (struct follow_op){.op = {.event_key = first->event_key, .now_ms = clock_wall_ms()},
                                   .changes = r->news,
                                   .count = n,
                                   .done = relay_on_followed};
    seats_follow(r->events->seats, &r->follow);
}

/* Where a change of a reservation was lost, so was the end of its entry, if that ended with it. A
 * confirmation may have completed its entry also when the seats are as they should be: a repeated
 * confirmation sends only the seats. */
static void relay_on_followed(struct follow_op *f) {
    struct relay *r = CONTAINER_OF(f, struct relay, follow);
    size_t confirmed = 0;
    r->changed = 0;
    for (size_t i = 0; f->op.result == ERR_OK && i < f->count; i++) {
        const struct ledger_fact *fact = &r->read.facts[r->done + i];
        if (f->changes[i].changed) {
            repair_queue_add(&r->room->repairs, f->op.event_key, fact->entry_seq, false);
            r->changed++;
        } else if (fact->kind == RESERVATION_CONFIRMED) {
            r->places[confirmed++] = (struct look_item){.seq = fact->entry_seq};
        }
    }
    if (confirmed == 0) {
        relay_sent(r, f->op.result, r->changed);
        return;
    }
    r->look = (struct look_op){.op = {.event_key = f->op.event_key, .now_ms = clock_wall_ms()},
                               .items = r->places,
                               .count = confirmed,
                               .done = relay_on_entries_seen};
    queues_look(r->room->queues, &r->look);
}

static void relay_on_entries_seen(struct look_op *l) {
    struct relay *r = CONTAINER_OF(l, struct relay, look);
    for (size_t i = 0; l->op.result == ERR_OK && i < l->count; i++) {
        enum entry_status status = l->items[i].place.status;
        if (status == ENTRY_ACTIVE || status == ENTRY_WAITING)
            repair_queue_add(&r->room->repairs, l->op.event_key, l->items[i].seq, false);
    }
    relay_sent(r, l->op.result, r->changed);
}

static void relay_send_next(struct relay *r) {
    while (r->done < r->read.count && relay_is_settled(&r->read.facts[r->done])) r->done++;
    if (r->done == r->read.count)
        relay_mark_sent(r);
    else if (relay_is_hold(&r->read.facts[r->done]))
        relay_send_hold(r, &r->read.facts[r->done]);
    else
        relay_send_changes(r);
}

/* ---- start and stop ---- */

static void relay_on_tick(void *to) {
    relay_read(to);
}

void relay_init(struct relay *r, uv_loop_t *loop) {
    ticker_init(&r->ticker, loop, relay_on_tick, r);
    ticker_start(&r->ticker, READ_MS);
}

void relay_stop(struct relay *r) {
    r->stopping = true;
    ticker_close(&r->ticker);
}

bool relay_is_busy(struct relay *r) {
    return atomic_load(&r->busy);
}
