#include "service/repair.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

static void next(struct repair *m);

static struct difference *difference(struct repair *m) {
    return &m->reconcile->differences[m->at];
}

static struct hot_op hot_op(struct repair *m) {
    return (struct hot_op){.event_key = difference(m)->event_key, .now_ms = clock_wall_ms()};
}

static void close_one(struct repair *m, enum difference_end end, enum err error) {
    struct difference *d = difference(m);
    d->end = end;
    d->error = error;
    if (end != DIFFERENCE_GONE)
        count((enum counter)(COUNT_RECONCILE_ENTRIES_OVER + (unsigned)d->kind), 1);
    if (end == DIFFERENCE_REPAIRED) count(COUNT_RECONCILE_REPAIRS, 1);
    mem_free(m->get.found);
    m->get.found = NULL;
    m->at++;
}

static void finish(struct repair *m, enum difference_end end) {
    close_one(m, end, ERR_OK);
    next(m);
}

/* Whether it goes on. What is about an event that was removed meanwhile is gone with it. */
static bool goes_on(struct repair *m, enum err result) {
    if (result == ERR_OK) return true;
    close_one(m, result == ERR_EVENT_NOT_FOUND ? DIFFERENCE_GONE : DIFFERENCE_FAILED, result);
    next(m);
    return false;
}

/* ---- entries ---- */

static enum err ask_entry(struct repair *m);

static void ask_entry_again(struct repair *m) {
    m->is_set_right = true;
    goes_on(m, ask_entry(m));
}

static void on_hot_ended(struct end_op *op) {
    struct repair *m = CONTAINER_OF(op, struct repair, hot_end);
    if (!goes_on(m, op->op.result)) return;
    finish(m, op->ended || m->is_set_right ? DIFFERENCE_REPAIRED : DIFFERENCE_GONE);
}

/* Only who is ACTIVE here completes; it is over all the same. */
static enum entry_status end_for(struct repair *m, enum entry_status status) {
    if (status == ENTRY_EXPIRED || status == ENTRY_NONE) return ENTRY_EXPIRED;
    bool completes = status == ENTRY_COMPLETED && difference(m)->entry_in_hot == ENTRY_ACTIVE;
    return completes ? ENTRY_COMPLETED : ENTRY_LEFT;
}

static void end_in_hot(struct repair *m, enum entry_status status) {
    m->hot_end = (struct end_op){.op = hot_op(m),
                                 .seq = difference(m)->seq,
                                 .final = end_for(m, status),
                                 .done = on_hot_ended};
    queues_end(m->reconcile->queues, &m->hot_end);
}

static void on_ledger_ended(struct task *task) {
    struct repair *m = CONTAINER_OF(task, struct repair, ledger_end.record.task);
    if (goes_on(m, m->ledger_end.record.result)) ask_entry_again(m);
}

static void end_in_ledger(struct repair *m) {
    m->ledger_end = (struct ledger_end){
        .record = {.kind = LEDGER_END, .always = true, .task.run = on_ledger_ended},
        .event_key = difference(m)->event_key,
        .now_ms = clock_wall_ms(),
        .final = ENTRY_EXPIRED,
        .seqs = &difference(m)->seq,
        .count = 1,
        .ended = &m->ended};
    goes_on(m, ledger_submit(m->reconcile->ledger, &m->ledger_end.record));
}

static void on_entry_synced(struct entry_sync_op *s) {
    struct repair *m = CONTAINER_OF(s, struct repair, entry_sync);
    if (!goes_on(m, s->op.result)) return;
    if (s->outcome == ENTRY_SYNC_DONE)
        ask_entry_again(m);
    else if (s->outcome == ENTRY_SYNC_EXPIRED)
        end_in_ledger(m);
    else
        finish(m, DIFFERENCE_GONE);
}

static void sync_entry(struct repair *m) {
    m->entry = (struct ledger_entry){.event_key = m->entry_get.event_key,
                                     .seq = m->entry_get.seq,
                                     .user = {m->entry_get.user, m->entry_get.user_len},
                                     .lane = m->entry_get.lane,
                                     .status = m->entry_get.status,
                                     .joined_ms = m->entry_get.joined_ms,
                                     .expires_ms = m->entry_get.expires_ms};
    m->entry_sync = (struct entry_sync_op){.op = hot_op(m),
                                           .entry = &m->entry,
                                           .seen = difference(m)->entry_in_hot,
                                           .done = on_entry_synced};
    queues_sync(m->reconcile->queues, &m->entry_sync);
}

static void on_entry_found(struct task *task) {
    struct repair *m = CONTAINER_OF(task, struct repair, entry_get.record.task);
    const struct ledger_entry_get *e = &m->entry_get;
    if (!goes_on(m, e->record.result)) return;
    bool is_live = e->status == ENTRY_WAITING || e->status == ENTRY_ACTIVE;
    int64_t now_ms = clock_wall_ms();
    bool is_over = e->status == ENTRY_ACTIVE && e->expires_ms <= now_ms;
    bool is_late = is_over && e->expires_ms <= now_ms - m->reconcile->wait_ms;
    if (!is_live)
        end_in_hot(m, e->status);
    else if (m->is_set_right)
        finish(m, DIFFERENCE_REPAIRED);
    else if (is_late)
        end_in_ledger(m);
    else if (is_over)
        finish(m, DIFFERENCE_GONE); /* that it is over is on its way */
    else
        sync_entry(m);
}

static enum err ask_entry(struct repair *m) {
    m->entry_get =
        (struct ledger_entry_get){.record = {.kind = LEDGER_ENTRY_GET, .task.run = on_entry_found},
                                  .event_key = difference(m)->event_key,
                                  .seq = difference(m)->seq};
    return ledger_ask(m->reconcile->ledger, &m->entry_get.record);
}

/* ---- reservations ---- */

static enum err ask_reservation(struct repair *m);

static void on_seats_synced(struct seat_sync_op *s) {
    struct repair *m = CONTAINER_OF(s, struct repair, seat_sync);
    if (!goes_on(m, s->op.result)) return;
    if (s->changed == 0) {
        goes_on(m, ERR_SEAT_NOT_FOUND);
        return;
    }
    m->is_set_right = true;
    goes_on(m, ask_reservation(m));
}

static void sync_seats(struct repair *m) {
    m->live = reservation_live(m->get.found);
    m->seat_sync = (struct seat_sync_op){
        .op = hot_op(m), .reservations = &m->live, .count = 1, .done = on_seats_synced};
    seats_sync(m->reconcile->seats, &m->seat_sync);
}

static void on_followed(struct follow_op *f) {
    struct repair *m = CONTAINER_OF(f, struct repair, follow);
    if (!goes_on(m, f->op.result)) return;
    if (m->goes_back)
        sync_seats(m);
    else
        finish(m, m->news.changed || m->is_set_right ? DIFFERENCE_REPAIRED : DIFFERENCE_GONE);
}

/* Whether the ledger has CANCELLED or EXPIRED it: the former ends it whatever it is here. */
static void take_away(struct repair *m) {
    m->news = (struct reservation_change){.id = difference(m)->id,
                                          .section_key = difference(m)->section_key,
                                          .status = RESERVATION_CANCELLED};
    m->follow =
        (struct follow_op){.op = hot_op(m), .news = &m->news, .count = 1, .done = on_followed};
    seats_follow(m->reconcile->seats, &m->follow);
}

static bool same_held(struct held_seats a, struct held_seats b) {
    return a.seat_count == b.seat_count && (a.seat_count == 0 || a.status == b.status);
}

/* As the hot store has it; pending: it is not to be touched. */
static struct held_seats held_here(const struct repair *m, bool *pending) {
    size_t known = m->holds.count < PER_USER_MAX ? m->holds.count : PER_USER_MAX;
    *pending = false;
    for (size_t i = 0; i < known; i++) {
        const struct claim_info *c = &m->found[i];
        if (!uuid_eq(&c->id, &m->get.id)) continue;
        *pending = c->pending;
        return (struct held_seats){.seat_count = c->seat_count, .status = c->status};
    }
    return (struct held_seats){0};
}

static void on_holds(struct holds_op *h) {
    struct repair *m = CONTAINER_OF(h, struct repair, holds);
    if (!goes_on(m, h->op.result)) return;
    bool pending;
    struct held_seats here = held_here(m, &pending);
    struct held_seats there = {m->get.found->seat_count, m->get.found->status};
    if (pending || same_held(here, there) || !same_held(here, difference(m)->seats_in_hot)) {
        finish(m, DIFFERENCE_GONE);
        return;
    }
    m->goes_back = here.seat_count > 0 && here.status == RESERVATION_CONFIRMED &&
                   there.status == RESERVATION_HELD;
    if (m->goes_back)
        take_away(m);
    else
        sync_seats(m);
}

static void look_at_holds(struct repair *m) {
    m->holds = (struct holds_op){.op = hot_op(m),
                                 .user = str_of(m->get.found->user),
                                 .reservations = m->found,
                                 .max = PER_USER_MAX,
                                 .done = on_holds};
    seats_holds(m->reconcile->seats, &m->holds);
}

static void on_reservation_found(struct task *task) {
    struct repair *m = CONTAINER_OF(task, struct repair, get.record.task);
    if (!goes_on(m, m->get.record.result)) return;
    m->goes_back = false;
    if (m->get.found == NULL || !reservation_is_live(m->get.found->status))
        take_away(m);
    else if (m->is_set_right)
        finish(m, DIFFERENCE_REPAIRED);
    else
        look_at_holds(m);
}

static enum err ask_reservation(struct repair *m) {
    mem_free(m->get.found);
    m->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = on_reservation_found},
        .id = difference(m)->id};
    return ledger_ask(m->reconcile->ledger, &m->get.record);
}

/* ---- one after the other ---- */

static void next(struct repair *m) {
    while (m->at < m->reconcile->difference_count && !atomic_load(&m->stopping)) {
        m->is_set_right = false;
        enum err refused = difference(m)->seq != 0 ? ask_entry(m) : ask_reservation(m);
        if (refused == ERR_OK) return; /* it comes back */
        close_one(m, DIFFERENCE_FAILED, refused);
    }
    m->done(m);
}

void repair_all(struct repair *m) {
    assert(m->at == 0 && m->done != NULL);
    next(m);
}
