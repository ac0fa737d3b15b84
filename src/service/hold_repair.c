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
    size_t at;       /* the next of the seats whose holder is looked up */
    bool is_applied; /* the holder that is under way, to the hot store */
    struct ledger_reservation_get get;
    struct live_reservation live;
    struct seat_sync_op sync;
    struct reservation_change change;
    struct follow_op follow;
};

typedef void hold_repair_step(struct hold_repair *p);
static hold_repair_step hold_repair_next_holder, hold_repair_find_holder;
static void hold_repair_on_read(struct task *task), hold_repair_on_found(struct task *task);
static void hold_repair_on_applied(struct seat_sync_op *s);
static void hold_repair_on_followed(struct follow_op *f);
static void hold_repair_on_freed(struct seat_sync_op *s);

static void hold_repair_end(struct hold_repair *p, enum err result) {
    mem_free(p->get.found);
    p->done(p->hold, result);
}

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
    if (refused != ERR_OK) hold_repair_end(p, refused);
}

static void hold_repair_on_read(struct task *task) {
    struct hold_repair *p = CONTAINER_OF(task, struct hold_repair, read.record.task);
    if (p->read.record.result == ERR_OK)
        hold_repair_next_holder(p);
    else
        hold_repair_end(p, p->read.record.result);
}

static struct hot_op hold_repair_op(const struct hold_repair *p) {
    return (struct hot_op){.event_key = p->hold->terms.event_key, .now_ms = clock_wall_ms()};
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
        p->is_applied = false;
        hold_repair_find_holder(p);
        return;
    }
    uint32_t *seats = p->hold->refused;
    size_t free_count = 0;
    for (size_t i = 0; i < p->read.count; i++)
        if (p->read.states[i] == SEAT_AVAILABLE) seats[free_count++] = seats[i];
    p->sync = (struct seat_sync_op){.op = hold_repair_op(p),
                                    .section_key = p->read.section_key,
                                    .available = seats,
                                    .available_count = free_count,
                                    .done = hold_repair_on_freed};
    seats_sync(p->hold->service->seats, &p->sync);
}

static void hold_repair_on_freed(struct seat_sync_op *s) {
    hold_repair_end(CONTAINER_OF(s, struct hold_repair, sync), ERR_OK);
}

static void hold_repair_find_holder(struct hold_repair *p) {
    mem_free(p->get.found);
    p->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = hold_repair_on_found},
        .id = p->read.holders[p->at - 1]};
    enum err refused = ledger_ask(p->hold->service->ledger, &p->get.record);
    if (refused != ERR_OK) hold_repair_end(p, refused);
}

/* A live reservation is applied, and then looked up again: should it have ended in between, the hot
 * store follows that. */
static void hold_repair_on_found(struct task *task) {
    struct hold_repair *p = CONTAINER_OF(task, struct hold_repair, get.record.task);
    const struct reservation *r = p->get.found;
    bool is_live = r != NULL && reservation_is_live(r->status);
    if (p->get.record.result != ERR_OK) {
        hold_repair_end(p, p->get.record.result);
    } else if (is_live && !p->is_applied) {
        p->live = reservation_live(r);
        p->sync = (struct seat_sync_op){.op = hold_repair_op(p),
                                        .reservations = &p->live,
                                        .count = 1,
                                        .done = hold_repair_on_applied};
        seats_sync(p->hold->service->seats, &p->sync);
    } else if (r != NULL && !is_live && p->is_applied) {
        p->change = (struct reservation_change){
            .id = r->id, .section_key = p->read.section_key, .status = r->status};
        p->follow = (struct follow_op){.op = hold_repair_op(p),
                                       .news = &p->change,
                                       .count = 1,
                                       .done = hold_repair_on_followed};
        seats_follow(p->hold->service->seats, &p->follow);
    } else {
        hold_repair_next_holder(p);
    }
}

static void hold_repair_on_applied(struct seat_sync_op *s) {
    struct hold_repair *p = CONTAINER_OF(s, struct hold_repair, sync);
    p->is_applied = true;
    hold_repair_find_holder(p);
}

static void hold_repair_on_followed(struct follow_op *f) {
    hold_repair_next_holder(CONTAINER_OF(f, struct hold_repair, follow));
}
