/* The correction of the hot store after the ledger has refused seats that the hot store had given:
 * read the seats in the ledger, apply each reservation that has some of them, free the others. */
#include "service/hold_repair.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"

struct hold_repair {
    struct hold *hold;
    void (*done)(struct hold *h, enum err result);
    struct ledger_seats_read read;
    size_t at; /* the next of the seats whose holder is repaired */
    struct reservation_repair holder;
    struct seat_sync_op sync;
};

static void hold_repair_on_read(struct task *task);
static void hold_repair_next_holder(struct hold_repair *p);
static void hold_repair_on_holder_repaired(struct reservation_repair *r);
static void hold_repair_on_freed(struct seat_sync_op *s);

void hold_repair(struct hold *h, void (*done)(struct hold *h, enum err result)) {
    size_t seat_count = h->writing.record.refused_count;
    count(COUNT_RESERVATION_GUARD_REFUSALS, seat_count);
    log_warn(
        msg("the hot store offered seats that are taken in the ledger; correcting the hot store"),
        kv("event", h->terms.event), kv("section", h->terms.section),
        kv_i64("seats", (int64_t)seat_count));
    struct hold_repair *p = arena_new(h->arena, sizeof *p);
    p->hold = h;
    p->done = done;
    p->read = (struct ledger_seats_read){
        .record = {.kind = LEDGER_SEATS_READ, .task.run = hold_repair_on_read},
        .section_key = h->terms.section_key,
        .seats = h->refused,
        .count = seat_count,
        .states = arena_new(h->arena, seat_count * sizeof(enum seat_state)),
        .versions = arena_new(h->arena, seat_count * sizeof(int64_t)),
        .holders = arena_new(h->arena, seat_count * sizeof(struct uuid))};
    enum err refused = ledger_ask(h->service->ledger, &p->read.record);
    if (refused != ERR_OK) p->done(p->hold, refused);
}

static void hold_repair_on_read(struct task *task) {
    struct hold_repair *p = CONTAINER_OF(task, struct hold_repair, read.record.task);
    if (p->read.record.result == ERR_OK)
        hold_repair_next_holder(p);
    else
        p->done(p->hold, p->read.record.result);
}

/* The reservation that has the next of the seats, unless it also has an earlier one. After the last
 * of them, the seats that are free in the ledger are freed in one step. */
static void hold_repair_next_holder(struct hold_repair *p) {
    while (p->at < p->read.count) {
        size_t at = p->at++;
        const struct uuid *holders = p->read.holders;
        bool is_done = p->read.states[at] == SEAT_AVAILABLE;
        for (size_t i = 0; i < at && !is_done; i++) is_done = uuid_eq(&holders[i], &holders[at]);
        if (is_done) continue;
        const struct hold *h = p->hold;
        p->holder = (struct reservation_repair){.id = holders[at],
                                                .event_key = h->terms.event_key,
                                                .section_key = h->terms.section_key,
                                                .done = hold_repair_on_holder_repaired};
        enum err refused = repair_reservation(h->service->ledger, h->service->seats, &p->holder);
        if (refused != ERR_OK) p->done(p->hold, refused);
        return;
    }
    uint32_t *seats = p->hold->refused;
    size_t free_count = 0;
    for (size_t i = 0; i < p->read.count; i++)
        if (p->read.states[i] == SEAT_AVAILABLE) seats[free_count++] = seats[i];
    p->sync = (struct seat_sync_op){
        .op = {.event_key = p->hold->terms.event_key, .now_ms = clock_wall_ms()},
        .section_key = p->read.section_key,
        .available = seats,
        .available_count = free_count,
        .done = hold_repair_on_freed};
    seats_sync(p->hold->service->seats, &p->sync);
}

/* When the hot store can't be reached, the next claim finds that out. */
static void hold_repair_on_holder_repaired(struct reservation_repair *r) {
    struct hold_repair *p = CONTAINER_OF(r, struct hold_repair, holder);
    if (r->get.record.result == ERR_OK)
        hold_repair_next_holder(p);
    else
        p->done(p->hold, r->result);
}

static void hold_repair_on_freed(struct seat_sync_op *s) {
    struct hold_repair *p = CONTAINER_OF(s, struct hold_repair, sync);
    p->done(p->hold, ERR_OK);
}
