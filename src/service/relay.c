#include "service/relay.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

#define LOOK_MS 500
/* Younger ones most likely reach the hot store by themselves. */
#define OLDER_MS 1000

static void look(struct relay *r);
static void next(struct relay *r);

static void finish(struct relay *r) {
    atomic_store(&r->busy, false);
}

/* Those that were told are ticked off; of a full page there may be more. */
static void on_written(struct task *task) {
    struct relay *r = CONTAINER_OF(task, struct relay, written.record.task);
    bool is_written = r->written.record.result == ERR_OK;
    if (is_written) count(COUNT_FACTS_RELAYED, r->written.count);
    bool has_more = r->read.count == FACTS_READ_MAX && r->done == r->read.count;
    finish(r);
    if (is_written && has_more && !r->stopping) look(r);
}

static void tick_off(struct relay *r) {
    if (r->done == 0) {
        finish(r);
        return;
    }
    for (size_t i = 0; i < r->done; i++) r->ids[i] = r->read.facts[i].id;
    r->written = (struct ledger_facts_relayed){
        .record = {.kind = LEDGER_FACTS_RELAYED, .always = true, .task.run = on_written},
        .now_ms = clock_wall_ms(),
        .ids = r->ids,
        .count = r->done};
    if (ledger_submit(r->events->ledger, &r->written.record) != ERR_OK) finish(r);
}

/* A store that can't be told now is told later, from there on. An event, a section or seats that
 * are gone need nothing. */
static void told(struct relay *r, enum err result, size_t changed) {
    if (result != ERR_OK && result != ERR_EVENT_NOT_FOUND && result != ERR_SECTION_NOT_FOUND &&
        result != ERR_SEAT_NOT_FOUND) {
        tick_off(r);
        return;
    }
    count(COUNT_HOT_HEALED_RESERVATIONS, changed);
    r->done += r->taken;
    next(r);
}

static void on_hold_told(struct reservation_repair *repair) {
    told(CONTAINER_OF(repair, struct relay, repair), repair->result, 0);
}

/* Held where the ledger decides: the hot store may not have the seats. Of its end there is a later
 * fact. */
static void tell_held(struct relay *r, const struct ledger_fact *f) {
    r->taken = 1;
    r->repair = (struct reservation_repair){.id = f->reservation,
                                            .event_key = f->event_key,
                                            .section_key = f->section_key,
                                            .live_only = true,
                                            .done = on_hold_told};
    if (repair_reservation(r->events->ledger, r->events->seats, &r->repair) != ERR_OK) tick_off(r);
}

/* A confirmation may have completed its place, and a node that died may have told the hot store of
 * neither. Then a repeated confirmation tells it of the seats only. */
static void on_places_seen(struct look_op *l) {
    struct relay *r = CONTAINER_OF(l, struct relay, look);
    for (size_t i = 0; l->op.result == ERR_OK && i < l->count; i++) {
        enum entry_status status = l->items[i].place.status;
        if (status == ENTRY_ACTIVE || status == ENTRY_WAITING)
            waiting_room_heal(r->room, l->op.event_key, l->items[i].seq);
    }
    told(r, l->op.result, r->changed);
}

static void on_followed(struct follow_op *f) {
    struct relay *r = CONTAINER_OF(f, struct relay, follow);
    size_t confirmed = 0;
    r->changed = 0;
    for (size_t i = 0; f->op.result == ERR_OK && i < f->count; i++) {
        const struct ledger_fact *fact = &r->read.facts[r->done + i];
        if (f->news[i].changed) {
            /* Where this got lost, so did that its place in the queue ended with it, if it did. */
            waiting_room_heal(r->room, f->op.event_key, fact->entry_seq);
            r->changed++;
        } else if (fact->kind == RESERVATION_CONFIRMED) {
            r->places[confirmed++] = (struct look_item){.seq = fact->entry_seq};
        }
    }
    if (confirmed == 0) {
        told(r, f->op.result, r->changed);
        return;
    }
    r->look = (struct look_op){.op = {.event_key = f->op.event_key, .now_ms = clock_wall_ms()},
                               .items = r->places,
                               .count = confirmed,
                               .done = on_places_seen};
    queues_look(r->room->queues, &r->look);
}

/* A hold that the hot store decided itself is settled there, by its node or by whoever takes it up.
 */
static bool is_the_hot_stores(enum strategy s) {
    return !strategy_suits(s, true);
}

static bool is_settled_there(const struct ledger_fact *f) {
    return f->status == RESERVATION_HELD && is_the_hot_stores(f->strategy);
}

/* Where the ledger decides, the hot store may not know the hold at all: nothing that came of it
 * says so, not even that it was confirmed since. */
static bool is_hold_to_tell(const struct ledger_fact *f) {
    return f->kind == RESERVATION_HELD && reservation_is_live(f->status) &&
           !is_the_hot_stores(f->strategy);
}

/* As many as are of one event, one behind the other. */
static void tell_news(struct relay *r) {
    const struct ledger_fact *first = &r->read.facts[r->done];
    size_t n = 0;
    while (r->done + n < r->read.count) {
        const struct ledger_fact *f = first + n;
        if (f->event_key != first->event_key || is_settled_there(f) || is_hold_to_tell(f)) break;
        r->news[n++] = (struct reservation_change){
            .id = f->reservation, .section_key = f->section_key, .status = f->status};
    }
    r->taken = n;
    r->follow = (struct follow_op){.op = {.event_key = first->event_key, .now_ms = clock_wall_ms()},
                                   .news = r->news,
                                   .count = n,
                                   .done = on_followed};
    seats_follow(r->events->seats, &r->follow);
}

static void next(struct relay *r) {
    while (r->done < r->read.count && is_settled_there(&r->read.facts[r->done])) r->done++;
    if (r->done == r->read.count)
        tick_off(r);
    else if (is_hold_to_tell(&r->read.facts[r->done]))
        tell_held(r, &r->read.facts[r->done]);
    else
        tell_news(r);
}

static void on_read(struct task *task) {
    struct relay *r = CONTAINER_OF(task, struct relay, read.record.task);
    r->done = 0;
    if (r->read.record.result == ERR_OK)
        next(r);
    else
        finish(r);
}

static void look(struct relay *r) {
    if (atomic_exchange(&r->busy, true)) return;
    r->read.record = (struct ledger_record){.kind = LEDGER_FACTS_READ, .task.run = on_read};
    r->read.now_ms = clock_wall_ms();
    r->read.older_ms = OLDER_MS;
    if (ledger_ask(r->events->ledger, &r->read.record) != ERR_OK) finish(r);
}

static void on_tick(void *to) {
    look(to);
}

void relay_init(struct relay *r, uv_loop_t *loop) {
    ticker_init(&r->ticker, loop, on_tick, r);
    ticker_start(&r->ticker, LOOK_MS);
}

void relay_stop(struct relay *r) {
    r->stopping = true;
    ticker_close(&r->ticker);
}

bool relay_is_busy(struct relay *r) {
    return atomic_load(&r->busy);
}
