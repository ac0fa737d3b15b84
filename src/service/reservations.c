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
static void reservations_submit_confirm(struct reservation_action *a);
static void reservations_on_confirmed(struct task *task);
static void reservations_submit_cancel(struct reservation_action *a);
static void reservations_on_cancelled(struct task *task);
static void reservations_follow(struct reservation_action *a, struct reservation *stored,
                                bool changed);
static void reservations_on_followed(struct follow_op *f);
static void reservations_on_completed(struct place_end *e, enum err result);

static void reservations_look_up(struct reservations *r, struct reservation_action *a,
                                 void (*when_found)(struct reservation_action *)) {
    a->service = r;
    a->when_found = when_found;
    a->reservation = NULL;
    a->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = reservations_on_found}, .id = a->id};
    enum err refused = ledger_ask(r->ledger, &a->get.record);
    if (refused != ERR_OK) a->done(a, refused);
}

void reservations_confirm(struct reservations *r, struct reservation_action *a) {
    reservations_look_up(r, a, reservations_submit_confirm);
}

void reservations_cancel(struct reservations *r, struct reservation_action *a) {
    reservations_look_up(r, a, reservations_submit_cancel);
}

void reservations_find(struct reservations *r, struct reservation_action *a) {
    reservations_look_up(r, a, NULL);
}

static void reservations_on_found(struct task *task) {
    struct reservation_action *a = CONTAINER_OF(task, struct reservation_action, get.record.task);
    struct reservation *r = a->get.found;
    enum err result = a->get.record.result;
    if (result == ERR_OK && r == NULL) result = ERR_RESERVATION_NOT_FOUND;
    if (result == ERR_OK) {
        result = a->judge(a, r);
        if (result != ERR_OK) mem_free(r);
    }
    if (result != ERR_OK) {
        a->done(a, result);
        return;
    }
    a->reservation = r;
    if (a->when_found == NULL)
        a->done(a, ERR_OK);
    else
        a->when_found(a);
}

static void reservations_submit_confirm(struct reservation_action *a) {
    a->confirm = (struct ledger_confirm){
        .record = {.kind = LEDGER_CONFIRM, .task.run = reservations_on_confirmed},
        .id = a->id,
        .user = str_of(a->reservation->user),
        .now_ms = clock_wall_ms(),
        .note = a->note};
    confirmation_code_new(a->confirm.code);
    enum err refused = ledger_submit(a->service->ledger, &a->confirm.record);
    if (refused != ERR_OK) a->done(a, refused);
}

static void reservations_on_confirmed(struct task *task) {
    struct reservation_action *a =
        CONTAINER_OF(task, struct reservation_action, confirm.record.task);
    a->result = a->confirm.record.result;
    a->completed = a->confirm.completed;
    if (a->confirm.confirmed) count(COUNT_RESERVATION_CONFIRMS, 1);
    if (a->confirm.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    reservations_follow(a, a->confirm.stored, a->confirm.confirmed || a->confirm.expired);
}

static void reservations_submit_cancel(struct reservation_action *a) {
    a->cancel = (struct ledger_cancel){
        .record = {.kind = LEDGER_CANCEL, .task.run = reservations_on_cancelled},
        .id = a->id,
        .user = str_of(a->reservation->user),
        .now_ms = clock_wall_ms(),
        .note = a->note,
        .may_end_confirmed = a->may_end_confirmed};
    enum err refused = ledger_submit(a->service->ledger, &a->cancel.record);
    if (refused != ERR_OK) a->done(a, refused);
}

static void reservations_on_cancelled(struct task *task) {
    struct reservation_action *a =
        CONTAINER_OF(task, struct reservation_action, cancel.record.task);
    a->result = a->cancel.record.result;
    a->completed = false;
    if (a->cancel.cancelled) count(COUNT_RESERVATION_CANCELS, 1);
    if (a->cancel.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    reservations_follow(a, a->cancel.stored, a->cancel.cancelled || a->cancel.expired);
}

/* `stored`: the reservation as the ledger has it now, or NULL. If it was changed, the hot store
 * follows. Also if its hold has expired before: the node that has ended it may not have told the
 * hot store yet, and the answer says that its seats are free. */
static void reservations_follow(struct reservation_action *a, struct reservation *stored,
                                bool changed) {
    if (stored != NULL) {
        mem_free(a->reservation);
        a->reservation = stored;
    }
    bool has_expired = a->reservation->status == RESERVATION_EXPIRED;
    if (!changed && !has_expired) {
        a->done(a, a->result);
        return;
    }
    a->change = (struct reservation_change){
        .id = a->id, .section_key = a->reservation->section_key, .status = a->reservation->status};
    a->follow = (struct follow_op){
        .op = {.event_key = a->reservation->event_key, .now_ms = clock_wall_ms()},
        .changes = &a->change,
        .count = 1,
        .done = reservations_on_followed};
    seats_follow(a->service->seats, &a->follow);
}

static void reservations_on_followed(struct follow_op *f) {
    struct reservation_action *a = CONTAINER_OF(f, struct reservation_action, follow);
    if (!a->completed) {
        a->done(a, a->result);
        return;
    }
    a->end = (struct place_end){.event_key = a->reservation->event_key,
                                .seq = a->reservation->entry_seq,
                                .done = reservations_on_completed};
    waiting_room_completed(a->service->room, &a->end);
}

/* The ledger has ended the place. A hot store that could not be notified is repaired later. */
static void reservations_on_completed(struct place_end *e, enum err result) {
    struct reservation_action *a = CONTAINER_OF(e, struct reservation_action, end);
    (void)result;
    a->done(a, a->result);
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

/* A reservation that the ledger has ended since then is not listed, as the hot store may not have
 * been notified yet; nor one whose time is over. */
static void reservations_on_listed(struct task *task) {
    struct listing *l = CONTAINER_OF(task, struct listing, get.record.task);
    struct reservation *r = l->get.found;
    if (l->get.record.result != ERR_OK) {
        l->done(l, l->get.record.result);
        return;
    }
    if (r != NULL && reservation_is_live(r->status) && !reservation_is_over(r, clock_wall_ms()))
        l->found[l->count++] = r;
    else
        mem_free(r);
    reservations_list_next(l);
}
