/* The use cases of reservations that exist: confirm, cancel, look up, list. A callback stands below
 * the call that it answers. */
#include "service/reservations.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

void reservations_init(struct reservations *r) {
    adaptive_load_init(&r->load);
}

void reservations_deinit(struct reservations *r) {
    assert(!reservations_is_busy(r));
    adaptive_load_deinit(&r->load);
}

bool reservations_is_busy(struct reservations *r) {
    return atomic_load(&r->under_way) > 0;
}

/* ---- confirm, cancel, look up ---- */

static void reservations_on_found(struct task *task);
static void reservations_submit_confirm(struct deciding *d);
static void reservations_on_confirmed(struct task *task);
static void reservations_submit_cancel(struct deciding *d);
static void reservations_on_cancelled(struct task *task);
static void reservations_follow(struct deciding *d, struct reservation *stored, bool changed);
static void reservations_on_followed(struct follow_op *f);
static void reservations_on_completed(struct room_ending *e, enum err result);

static void reservations_look_up(struct reservations *r, struct deciding *d,
                                 void (*when_found)(struct deciding *)) {
    d->service = r;
    d->when_found = when_found;
    d->reservation = NULL;
    d->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = reservations_on_found}, .id = d->id};
    enum err refused = ledger_ask(r->ledger, &d->get.record);
    if (refused != ERR_OK) d->done(d, refused);
}

void reservations_confirm(struct reservations *r, struct deciding *d) {
    reservations_look_up(r, d, reservations_submit_confirm);
}

void reservations_cancel(struct reservations *r, struct deciding *d) {
    reservations_look_up(r, d, reservations_submit_cancel);
}

void reservations_find(struct reservations *r, struct deciding *d) {
    reservations_look_up(r, d, NULL);
}

static void reservations_on_found(struct task *task) {
    struct deciding *d = CONTAINER_OF(task, struct deciding, get.record.task);
    struct reservation *r = d->get.found;
    enum err result = d->get.record.result;
    if (result == ERR_OK && r == NULL) result = ERR_RESERVATION_NOT_FOUND;
    if (result == ERR_OK && !d->is_theirs(d, r)) {
        result = ERR_NOT_YOURS;
        mem_free(r);
    }
    if (result != ERR_OK) {
        d->done(d, result);
        return;
    }
    d->reservation = r;
    if (d->when_found == NULL)
        d->done(d, ERR_OK);
    else
        d->when_found(d);
}

static void reservations_submit_confirm(struct deciding *d) {
    d->confirm = (struct ledger_confirm){
        .record = {.kind = LEDGER_CONFIRM, .task.run = reservations_on_confirmed},
        .id = d->id,
        .user = str_of(d->reservation->user),
        .now_ms = clock_wall_ms()};
    confirmation_code_new(d->confirm.code);
    enum err refused = ledger_submit(d->service->ledger, &d->confirm.record);
    if (refused != ERR_OK) d->done(d, refused);
}

static void reservations_on_confirmed(struct task *task) {
    struct deciding *d = CONTAINER_OF(task, struct deciding, confirm.record.task);
    d->result = d->confirm.record.result;
    d->completed = d->confirm.completed;
    if (d->confirm.confirmed) count(COUNT_RESERVATION_CONFIRMS, 1);
    if (d->confirm.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    reservations_follow(d, d->confirm.stored, d->confirm.confirmed || d->confirm.expired);
}

static void reservations_submit_cancel(struct deciding *d) {
    d->cancel = (struct ledger_cancel){
        .record = {.kind = LEDGER_CANCEL, .task.run = reservations_on_cancelled},
        .id = d->id,
        .user = str_of(d->reservation->user),
        .now_ms = clock_wall_ms()};
    enum err refused = ledger_submit(d->service->ledger, &d->cancel.record);
    if (refused != ERR_OK) d->done(d, refused);
}

static void reservations_on_cancelled(struct task *task) {
    struct deciding *d = CONTAINER_OF(task, struct deciding, cancel.record.task);
    d->result = d->cancel.record.result;
    d->completed = false;
    if (d->cancel.cancelled) count(COUNT_RESERVATION_CANCELS, 1);
    if (d->cancel.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    reservations_follow(d, d->cancel.stored, d->cancel.cancelled || d->cancel.expired);
}

/* `stored`: the reservation as the ledger has it now, or NULL. If it was changed, the hot store
 * follows. */
static void reservations_follow(struct deciding *d, struct reservation *stored, bool changed) {
    if (stored != NULL) {
        mem_free(d->reservation);
        d->reservation = stored;
    }
    if (!changed) {
        d->done(d, d->result);
        return;
    }
    d->change = (struct reservation_change){
        .id = d->id, .section_key = d->reservation->section_key, .status = d->reservation->status};
    d->follow = (struct follow_op){
        .op = {.event_key = d->reservation->event_key, .now_ms = clock_wall_ms()},
        .changes = &d->change,
        .count = 1,
        .done = reservations_on_followed};
    seats_follow(d->service->seats, &d->follow);
}

static void reservations_on_followed(struct follow_op *f) {
    struct deciding *d = CONTAINER_OF(f, struct deciding, follow);
    if (!d->completed) {
        d->done(d, d->result);
        return;
    }
    d->end = (struct room_ending){.event_key = d->reservation->event_key,
                                  .seq = d->reservation->entry_seq,
                                  .done = reservations_on_completed};
    waiting_room_completed(d->service->room, &d->end);
}

/* The ledger has ended the place. A hot store that could not be notified is repaired later. */
static void reservations_on_completed(struct room_ending *e, enum err result) {
    struct deciding *d = CONTAINER_OF(e, struct deciding, end);
    (void)result;
    d->done(d, d->result);
}

/* ---- list ---- */

static void reservations_list_events(struct listing *l);
static void reservations_on_live(struct holds_op *h);
static void reservations_list_next(struct listing *l);
static void reservations_on_listed(struct task *task);

void reservations_list(struct reservations *r, struct listing *l) {
    l->service = r;
    l->found = arena_new(l->arena, l->max * sizeof(struct reservation *));
    l->live = arena_new(l->arena, l->max * sizeof *l->live);
    reservations_list_events(l);
}

/* One after the other. A store that answers before it returns is asked in a loop, so that the stack
 * does not grow with the number of events. */
static void reservations_list_events(struct listing *l) {
    l->asks = true;
    while (!l->waits && l->failed == ERR_OK && l->event_at < l->event_count &&
           l->live_count < l->max) {
        l->holds = (struct holds_op){
            .op = {.event_key = l->event_keys[l->event_at++], .now_ms = clock_wall_ms()},
            .user = l->user,
            .reservations = l->live + l->live_count,
            .max = l->max - l->live_count,
            .done = reservations_on_live};
        l->waits = true;
        seats_holds(l->service->seats, &l->holds);
    }
    l->asks = false;
    if (l->waits) return;
    if (l->failed == ERR_OK)
        reservations_list_next(l);
    else
        l->done(l, l->failed);
}

/* An event that was deleted in the meantime has no reservations. */
static void reservations_on_live(struct holds_op *h) {
    struct listing *l = CONTAINER_OF(h, struct listing, holds);
    bool is_there = h->op.result == ERR_OK;
    if (is_there) l->live_count += h->count < h->max ? h->count : h->max;
    l->failed = is_there || h->op.result == ERR_EVENT_NOT_FOUND ? ERR_OK : h->op.result;
    l->waits = false;
    if (!l->asks) reservations_list_events(l);
}

static void reservations_list_next(struct listing *l) {
    while (l->live_at < l->live_count && l->live[l->live_at].pending) l->live_at++;
    if (l->live_at == l->live_count) {
        l->done(l, ERR_OK);
        return;
    }
    l->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = reservations_on_listed},
        .id = l->live[l->live_at++].id};
    enum err refused = ledger_ask(l->service->ledger, &l->get.record);
    if (refused != ERR_OK) l->done(l, refused);
}

/* A reservation that the ledger has ended since then is not listed: the hot store may not have been
 * notified yet. */
static void reservations_on_listed(struct task *task) {
    struct listing *l = CONTAINER_OF(task, struct listing, get.record.task);
    struct reservation *r = l->get.found;
    if (l->get.record.result != ERR_OK) {
        l->done(l, l->get.record.result);
        return;
    }
    if (r != NULL && reservation_is_live(r->status))
        l->found[l->count++] = r;
    else
        mem_free(r);
    reservations_list_next(l);
}
