#include "service/reservations.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/metrics_reservation.h"
#include "service/strategies.h"

/* Holds that one record expires. */
#define EXPIRE_MAX 64
/* Who leaves is looked after again: what was claimed meanwhile goes too. */
#define LEAVE_ROUNDS 2
/* Most users have no more holds than this; for others there is a second look. */
#define HOLDS_USUAL 8

/* ---- which strategy ---- */

bool strategy_fits(enum section_mode mode, enum strategy s) {
    switch (mode) {
    case SECTION_MODE_SLOT:
        return s == STRATEGY_SLOT;
    case SECTION_MODE_LOCK:
        return s == STRATEGY_LOCK;
    case SECTION_MODE_ADAPTIVE:
        return s == STRATEGY_ADAPTIVE;
    case SECTION_MODE_SEAT:
        break;
    }
    return s == STRATEGY_OPTIMISTIC || s == STRATEGY_PESSIMISTIC || s == STRATEGY_DISTRIBUTED_LOCK;
}

enum strategy strategy_default(enum section_mode mode) {
    switch (mode) {
    case SECTION_MODE_SLOT:
        return STRATEGY_SLOT;
    case SECTION_MODE_LOCK:
        return STRATEGY_LOCK;
    case SECTION_MODE_ADAPTIVE:
        return STRATEGY_ADAPTIVE;
    case SECTION_MODE_SEAT:
        break;
    }
    return STRATEGY_OPTIMISTIC;
}

#define LOADS_MIN 64

struct load {
    struct adaptive adaptive;
    int64_t section_key;
};

/* The load of an adaptive section that has requests under way, or is hot; else NULL. Under the
 * lock. */
static struct adaptive *load_of(struct reservations *r, int64_t section_key) {
    struct load *l = map_get(&r->loads, map_key(&section_key));
    return l == NULL ? NULL : &l->adaptive;
}

static void count_switch(bool was_hot, bool is_hot) {
    if (was_hot != is_hot)
        count(is_hot ? COUNT_ADAPTIVE_SWITCHES_SLOT : COUNT_ADAPTIVE_SWITCHES_LOCK, 1);
}

/* A hot section without further requests has no request whose end could drop its load. All are
 * looked at when there are twice as many as were left the last time. Under the lock. */
static void loads_cool(struct reservations *r) {
    if (r->loads.count <= r->loads_max) return;
    struct map kept;
    map_init(&kept);
    size_t at = 0;
    struct load *l;
    while ((l = map_next(&r->loads, &at)) != NULL) {
        bool was_hot = l->adaptive.hot;
        bool is_hot = adaptive_look(&l->adaptive, &r->adaptive, clock_steady_ms());
        count_switch(was_hot, is_hot);
        if (is_hot || l->adaptive.under_way > 0)
            map_put(&kept, map_key(&l->section_key), l);
        else
            mem_free(l);
    }
    map_deinit(&r->loads);
    r->loads = kept;
    r->loads_max = kept.count < LOADS_MIN ? LOADS_MIN : 2 * kept.count;
}

static void load_begin(struct holding *h, int64_t crowd) {
    struct reservations *r = h->service;
    pthread_mutex_lock(&r->lock);
    struct adaptive *a = load_of(r, h->terms.section_key);
    if (a == NULL) {
        loads_cool(r);
        struct load *l = mem_new(sizeof *l);
        l->section_key = h->terms.section_key;
        map_put(&r->loads, map_key(&l->section_key), l);
        a = &l->adaptive;
    }
    bool was_hot = a->hot;
    bool is_hot = adaptive_begin(a, &r->adaptive, crowd, clock_steady_ms());
    pthread_mutex_unlock(&r->lock);
    count_switch(was_hot, is_hot);
    h->chosen_strategy = is_hot ? STRATEGY_SLOT : STRATEGY_LOCK;
}

void load_waited(struct holding *h, int64_t waited_ms) {
    struct reservations *r = h->service;
    pthread_mutex_lock(&r->lock);
    struct adaptive *a = load_of(r, h->terms.section_key);
    bool was_hot = a->hot;
    adaptive_waited(a, &r->adaptive, waited_ms, clock_steady_ms());
    bool is_hot = a->hot;
    pthread_mutex_unlock(&r->lock);
    count_switch(was_hot, is_hot);
}

/* Drops the load once the section is idle and not hot. */
static void load_end(struct holding *h) {
    struct reservations *r = h->service;
    pthread_mutex_lock(&r->lock);
    struct adaptive *a = load_of(r, h->terms.section_key);
    adaptive_end(a);
    if (!a->hot && a->under_way == 0) {
        mem_free(map_remove(&r->loads, map_key(&h->terms.section_key)));
    }
    pthread_mutex_unlock(&r->lock);
}

enum strategy reservations_strategy(struct reservations *r, enum section_mode mode,
                                    int64_t section_key) {
    if (mode != SECTION_MODE_ADAPTIVE) return strategy_default(mode);
    bool was_hot = false;
    bool is_hot = false;
    pthread_mutex_lock(&r->lock);
    struct adaptive *a = load_of(r, section_key);
    if (a != NULL) {
        was_hot = a->hot;
        is_hot = adaptive_look(a, &r->adaptive, clock_steady_ms());
    }
    pthread_mutex_unlock(&r->lock);
    count_switch(was_hot, is_hot);
    return is_hot ? STRATEGY_SLOT : STRATEGY_LOCK;
}

/* ---- hold ---- */

static enum reservation_outcome outcome_of(const struct holding *h, enum err result) {
    switch (result) {
    case ERR_OK:
        return hold_is_replayed(h) ? RESERVATION_OUTCOME_REPLAYED : RESERVATION_OUTCOME_HELD;
    case ERR_SEAT_TAKEN:
        return RESERVATION_OUTCOME_SEAT_TAKEN;
    case ERR_SOLD_OUT:
        return RESERVATION_OUTCOME_SOLD_OUT;
    case ERR_LIMIT_EXCEEDED:
        return RESERVATION_OUTCOME_LIMIT_EXCEEDED;
    case ERR_NOT_ACTIVE:
        return RESERVATION_OUTCOME_NOT_ACTIVE;
    case ERR_CONFLICT:
        return RESERVATION_OUTCOME_CONFLICT;
    case ERR_LOCK_TIMEOUT:
        return RESERVATION_OUTCOME_LOCK_TIMEOUT;
    case ERR_LOCK_LOST:
        return RESERVATION_OUTCOME_LOCK_LOST;
    default:
        return err_status(result) >= 500 ? RESERVATION_OUTCOME_FAILED : RESERVATION_OUTCOME_REFUSED;
    }
}

static void finish(struct holding *h, enum err result) {
    mem_free(h->get.found);
    h->get.found = NULL;
    /* Should the disk have taken longer than the hold lasts, nobody is told that seats are theirs.
     */
    if (result == ERR_OK && !hold_is_replayed(h) && h->reservation.expires_ms <= clock_wall_ms())
        result = ERR_HOLD_EXPIRED;
    count_reservation_outcome((int)h->strategy, outcome_of(h, result));
    if (result == ERR_SOLD_OUT) count(COUNT_RESERVATION_SOLD_OUT_ANSWERS, 1);
    h->done(h, result);
}

enum err hold_ask_key(struct reservations *r, struct holding *h, void (*run)(struct task *)) {
    h->ask = (struct ledger_idempotency_get){
        .record = {.kind = LEDGER_IDEMPOTENCY_GET, .task.run = run}, .idempotency = h->idempotency};
    return ledger_ask(r->ledger, &h->ask.record);
}

static void on_asked_again(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, ask.record.task);
    enum err answer = h->ask.record.result;
    bool is_unused = answer == ERR_OK && !h->idempotency->replayed;
    finish(h, is_unused ? h->result : answer);
}

/* A refusal may be the doing of the first request with the same key, which has just been answered:
 * then its answer is this one's, too. */
static void answer(struct holding *h) {
    enum err result = h->result;
    bool may_be_repeated = result != ERR_OK && err_status(result) < 500 && h->idempotency != NULL;
    if (!may_be_repeated) {
        finish(h, result);
        return;
    }
    enum err refused = hold_ask_key(h->service, h, on_asked_again);
    if (refused != ERR_OK) finish(h, refused);
}

void hold_end(struct holding *h) {
    if (h->strategy == STRATEGY_ADAPTIVE) load_end(h);
    answer(h);
}

void reservations_refuse(struct reservations *r, struct holding *h, enum err why) {
    assert(why == ERR_SOLD_OUT || why == ERR_SEAT_TAKEN);
    h->service = r;
    h->result = why;
    count_reservation_attempt((int)h->strategy);
    answer(h);
}

static void on_crowd_counted(struct look_op *l) {
    struct holding *h = CONTAINER_OF(l, struct holding, look.look);
    load_begin(h, l->op.result == ERR_OK ? (int64_t)l->counts.waiting : 0);
    strategy_run(h);
}

static void fill_reservation(struct holding *h) {
    struct reservation *r = &h->reservation;
    *r = (struct reservation){.event_key = h->terms.event_key,
                              .section_key = h->terms.section_key,
                              .entry_seq = h->entry_seq,
                              .strategy = h->strategy,
                              .status = RESERVATION_HELD,
                              .seat_count = h->count,
                              .price = h->terms.price * h->count,
                              .confirmed_ms = CLOCK_NONE_MS,
                              .ended_ms = CLOCK_NONE_MS};
    r->seats = arena_new(h->arena, h->count * sizeof *r->seats);
    bool fits = str_copy(h->user, r->user, sizeof r->user);
    assert(fits);
    memcpy(r->currency, h->terms.currency, sizeof r->currency);
}

void reservations_hold(struct reservations *r, struct lock_client *d, struct holding *h) {
    assert(h->count >= 1 && h->count <= RESERVATION_SEATS_MAX && h->user.len > 0);
    assert(strategy_fits(h->terms.mode, h->strategy));
    h->service = r;
    h->lock_client = d;
    h->chosen_strategy = h->strategy;
    h->tries = 0;
    h->spread = 0;
    h->began_ns = clock_steady_ns();
    h->refused = arena_new(h->arena, h->count * sizeof *h->refused);
    fill_reservation(h);
    count_reservation_attempt((int)h->strategy);
    if (h->strategy != STRATEGY_ADAPTIVE) {
        strategy_run(h);
        return;
    }
    h->look.look =
        (struct look_op){.op = {.event_key = h->terms.event_key, .now_ms = clock_wall_ms()},
                         .done = on_crowd_counted};
    queues_look(r->room->queues, &h->look.look);
}

static void on_asked_first(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, ask.record.task);
    enum err result = h->ask.record.result;
    if (result == ERR_OK && h->idempotency->replayed) {
        count_reservation_attempt((int)h->strategy);
        count_reservation_outcome((int)h->strategy, RESERVATION_OUTCOME_REPLAYED);
    }
    h->done(h, result);
}

void reservations_replay(struct reservations *r, struct holding *h) {
    enum err refused = hold_ask_key(r, h, on_asked_first);
    if (refused != ERR_OK) h->done(h, refused);
}

/* ---- confirm, cancel, look up ---- */

static void decided(struct deciding *d) {
    enum err result = d->confirms ? d->confirm.record.result : d->cancel.record.result;
    d->done(d, result);
}

static void on_completed(struct room_ending *e, enum err result) {
    (void)result; /* the ledger has it; where the hot store could not hear it, it is healed */
    decided(CONTAINER_OF(e, struct deciding, end));
}

static void on_followed(struct follow_op *f) {
    struct deciding *d = CONTAINER_OF(f, struct deciding, follow);
    if (!d->confirms || !d->confirm.completed) {
        decided(d);
        return;
    }
    d->end = (struct room_ending){.event_key = d->reservation->event_key,
                                  .seq = d->reservation->entry_seq,
                                  .done = on_completed};
    waiting_room_completed(d->service->room, &d->end);
}

/* The hot store follows what the ledger has changed. */
static void follow(struct deciding *d, bool changed) {
    if (!changed) {
        decided(d);
        return;
    }
    d->news = (struct reservation_change){
        .id = d->id, .section_key = d->reservation->section_key, .status = d->reservation->status};
    d->follow = (struct follow_op){
        .op = {.event_key = d->reservation->event_key, .now_ms = clock_wall_ms()},
        .news = &d->news,
        .count = 1,
        .done = on_followed};
    seats_follow(d->service->seats, &d->follow);
}

/* What the ledger says of it now takes the place of what was read before. */
static void take_stored(struct deciding *d, struct reservation *stored) {
    if (stored == NULL) return;
    mem_free(d->reservation);
    d->reservation = stored;
}

static void on_confirmed(struct task *task) {
    struct deciding *d = CONTAINER_OF(task, struct deciding, confirm.record.task);
    take_stored(d, d->confirm.stored);
    if (d->confirm.confirmed) count(COUNT_RESERVATION_CONFIRMS, 1);
    if (d->confirm.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    follow(d, d->confirm.confirmed || d->confirm.expired);
}

static void on_cancelled(struct task *task) {
    struct deciding *d = CONTAINER_OF(task, struct deciding, cancel.record.task);
    take_stored(d, d->cancel.stored);
    if (d->cancel.cancelled) count(COUNT_RESERVATION_CANCELS, 1);
    if (d->cancel.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    follow(d, d->cancel.cancelled || d->cancel.expired);
}

static void submit_confirm(struct deciding *d) {
    d->confirms = true;
    d->confirm =
        (struct ledger_confirm){.record = {.kind = LEDGER_CONFIRM, .task.run = on_confirmed},
                                .id = d->id,
                                .user = str_of(d->reservation->user),
                                .now_ms = clock_wall_ms()};
    confirmation_code_new(d->confirm.code);
    enum err refused = ledger_submit(d->service->ledger, &d->confirm.record);
    if (refused != ERR_OK) d->done(d, refused);
}

static void submit_cancel(struct deciding *d) {
    d->cancel = (struct ledger_cancel){.record = {.kind = LEDGER_CANCEL, .task.run = on_cancelled},
                                       .id = d->id,
                                       .user = str_of(d->reservation->user),
                                       .now_ms = clock_wall_ms()};
    enum err refused = ledger_submit(d->service->ledger, &d->cancel.record);
    if (refused != ERR_OK) d->done(d, refused);
}

static void on_found(struct task *task) {
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
    d->go_on(d);
}

static void find_first(struct reservations *r, struct deciding *d,
                       void (*go_on)(struct deciding *)) {
    d->service = r;
    d->go_on = go_on;
    d->reservation = NULL;
    d->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = on_found}, .id = d->id};
    enum err refused = ledger_ask(r->ledger, &d->get.record);
    if (refused != ERR_OK) d->done(d, refused);
}

void reservations_confirm(struct reservations *r, struct deciding *d) {
    find_first(r, d, submit_confirm);
}

void reservations_cancel(struct reservations *r, struct deciding *d) {
    find_first(r, d, submit_cancel);
}

static void show(struct deciding *d) {
    d->done(d, ERR_OK);
}

void reservations_find(struct reservations *r, struct deciding *d) {
    find_first(r, d, show);
}

/* ---- list ---- */

static void read_next(struct listing *l);

/* What has ended since is not listed. */
static void on_read(struct task *task) {
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
    read_next(l);
}

static void read_next(struct listing *l) {
    while (l->live_at < l->live_count && l->live[l->live_at].pending) l->live_at++;
    if (l->live_at == l->live_count) {
        l->done(l, ERR_OK);
        return;
    }
    l->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = on_read},
        .id = l->live[l->live_at++].id};
    enum err refused = ledger_ask(l->service->ledger, &l->get.record);
    if (refused != ERR_OK) l->done(l, refused);
}

static void ask_events(struct listing *l);

/* An event that was deleted meanwhile has none. */
static void on_live_told(struct holds_op *h) {
    struct listing *l = CONTAINER_OF(h, struct listing, holds);
    bool is_there = h->op.result == ERR_OK;
    if (is_there) l->live_count += h->count < h->max ? h->count : h->max;
    l->failed = is_there || h->op.result == ERR_EVENT_NOT_FOUND ? ERR_OK : h->op.result;
    l->waits = false;
    if (!l->asks) ask_events(l);
}

/* One after the other; a store that answers at once is asked in a loop, not ever deeper. */
static void ask_events(struct listing *l) {
    l->asks = true;
    while (!l->waits && l->failed == ERR_OK && l->event_at < l->event_count &&
           l->live_count < l->max) {
        l->holds = (struct holds_op){
            .op = {.event_key = l->event_keys[l->event_at++], .now_ms = clock_wall_ms()},
            .user = l->user,
            .reservations = l->live + l->live_count,
            .max = l->max - l->live_count,
            .done = on_live_told};
        l->waits = true;
        seats_holds(l->service->seats, &l->holds);
    }
    l->asks = false;
    if (l->waits) return;
    if (l->failed == ERR_OK)
        read_next(l);
    else
        l->done(l, l->failed);
}

void reservations_list(struct reservations *r, struct listing *l) {
    l->service = r;
    l->found = arena_new(l->arena, l->max * sizeof(struct reservation *));
    l->live = arena_new(l->arena, l->max * sizeof *l->live);
    ask_events(l);
}

/* ---- leave ---- */

static void leave_round(struct leaving *l);

static void on_leave_followed(struct follow_op *f) {
    struct leaving *l = CONTAINER_OF(f, struct leaving, follow);
    leave_round(l);
}

static void on_left(struct room_ending *e, enum err result) {
    struct leaving *l = CONTAINER_OF(e, struct leaving, end);
    if (result != ERR_OK) {
        l->done(l, result);
        return;
    }
    size_t told = 0;
    for (size_t i = 0; i < e->cancel_count; i++)
        if (l->cancelled[i])
            l->news[told++] = (struct reservation_change){
                .id = l->ids[i], .section_key = l->sections[i], .status = RESERVATION_CANCELLED};
    count(COUNT_RESERVATION_CANCELS, told);
    l->follow = (struct follow_op){.op = {.event_key = l->event_key, .now_ms = clock_wall_ms()},
                                   .news = l->news,
                                   .count = told,
                                   .done = on_leave_followed};
    seats_follow(l->service->seats, &l->follow);
}

static void ask_holds(struct leaving *l, size_t room);

static void on_holds_told(struct holds_op *h) {
    struct leaving *l = CONTAINER_OF(h, struct leaving, holds);
    size_t held = 0;
    size_t known = h->op.result == ERR_OK ? h->count : 0;
    /* What is to be cancelled can't be told: nobody leaves without it. But the ledger says whether
     * the event is gone; and who has left already has left. */
    bool is_lost = h->op.result != ERR_OK && h->op.result != ERR_EVENT_NOT_FOUND;
    if (is_lost && l->rounds == 1) {
        l->done(l, h->op.result);
        return;
    }
    if (known > h->max) {
        ask_holds(l, known);
        return;
    }
    for (size_t i = 0; i < known; i++)
        if (h->reservations[i].status == RESERVATION_HELD) {
            l->ids[held] = h->reservations[i].id;
            l->sections[held++] = h->reservations[i].section_key;
        }
    if (l->rounds > 1 && held == 0) {
        l->done(l, ERR_OK);
        return;
    }
    l->end = (struct room_ending){.event_key = l->event_key,
                                  .seq = l->seq,
                                  .final = ENTRY_LEFT,
                                  .user = {l->look.user, l->look.look.user_len},
                                  .cancels = l->ids,
                                  .cancel_count = held,
                                  .cancelled = l->cancelled,
                                  .done = on_left};
    waiting_room_end(l->service->room, &l->end);
}

static void ask_holds(struct leaving *l, size_t room) {
    l->ids = arena_new(l->arena, room * sizeof *l->ids);
    l->sections = arena_new(l->arena, room * sizeof *l->sections);
    l->cancelled = arena_new(l->arena, room * sizeof *l->cancelled);
    l->news = arena_new(l->arena, room * sizeof *l->news);
    l->holds = (struct holds_op){.op = {.event_key = l->event_key, .now_ms = clock_wall_ms()},
                                 .user = {l->look.user, l->look.look.user_len},
                                 .entry_seq = l->seq,
                                 .max = room,
                                 .done = on_holds_told};
    l->holds.reservations = arena_new(l->arena, room * sizeof *l->holds.reservations);
    seats_holds(l->service->seats, &l->holds);
}

static void leave_round(struct leaving *l) {
    if (l->rounds++ == LEAVE_ROUNDS)
        l->done(l, ERR_OK);
    else
        ask_holds(l, HOLDS_USUAL);
}

static void on_leaver_found(struct room_looking *look, enum err result) {
    struct leaving *l = CONTAINER_OF(look, struct leaving, look);
    if (result != ERR_OK || look->look.user_len == 0)
        l->done(l, result); /* nobody's place: it is over, and was so before */
    else
        leave_round(l);
}

void reservations_leave(struct reservations *r, struct leaving *l) {
    l->service = r;
    l->rounds = 0;
    l->look = (struct room_looking){
        .look.op.event_key = l->event_key, .item.seq = l->seq, .done = on_leaver_found};
    waiting_room_look(r->room, &l->look);
}

/* ---- expire ---- */

struct expiring {
    struct reservations *service;
    int64_t event_key;
    struct due_op due;
    struct ledger_expire record;
    struct follow_op follow;
    struct ledger_reservation_get get;
    size_t at; /* of those that the ledger has otherwise */
    struct claim_ref refs[EXPIRE_MAX];
    struct uuid ids[EXPIRE_MAX];
    bool expired[EXPIRE_MAX];
    struct reservation_change news[EXPIRE_MAX];
};

static void expire_end(struct expiring *x) {
    struct reservations *r = x->service;
    bool more = x->due.count == EXPIRE_MAX;
    int64_t event_key = x->event_key;
    mem_free(x);
    if (more) reservations_tick(r, event_key);
    atomic_fetch_sub(&r->under_way, 1);
}

static struct expiring *expire_new(struct reservations *r, int64_t event_key) {
    /* Not zeroed: most of it is not used. */
    struct expiring *x = mem_grow(NULL, sizeof *x);
    x->service = r;
    x->event_key = event_key;
    x->due.count = 0;
    atomic_fetch_add(&r->under_way, 1);
    return x;
}

static void expire_follow(struct expiring *x, size_t told, void (*done)(struct follow_op *)) {
    x->follow = (struct follow_op){.op = {.event_key = x->event_key, .now_ms = clock_wall_ms()},
                                   .news = x->news,
                                   .count = told,
                                   .done = done};
    seats_follow(x->service->seats, &x->follow);
}

static void ask_others(struct expiring *x);

static void on_other_followed(struct follow_op *f) {
    ask_others(CONTAINER_OF(f, struct expiring, follow));
}

static void on_other_found(struct task *task) {
    struct expiring *x = CONTAINER_OF(task, struct expiring, get.record.task);
    struct reservation *r = x->get.found;
    /* What the ledger does not have at all is nobody's. */
    enum reservation_status status = r == NULL ? RESERVATION_EXPIRED : r->status;
    bool is_known = x->get.record.result == ERR_OK && status != RESERVATION_HELD;
    x->news[0] = (struct reservation_change){
        .id = x->get.id, .section_key = x->refs[x->at - 1].section_key, .status = status};
    /* Its place in the queue may have ended with it, and that was lost as well. */
    if (r != NULL && is_known) waiting_room_heal(x->service->room, x->event_key, r->entry_seq);
    mem_free(r);
    if (is_known)
        expire_follow(x, 1, on_other_followed);
    else
        ask_others(x);
}

/* Due in the hot store, and not to be expired in the ledger: news of it was lost on the way, or
 * comes soon. Hearing it twice does no harm. */
static void ask_others(struct expiring *x) {
    while (x->at < x->record.count && x->expired[x->at]) x->at++;
    if (x->at == x->record.count) {
        expire_end(x);
        return;
    }
    x->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = on_other_found},
        .id = x->ids[x->at++]};
    if (ledger_ask(x->service->ledger, &x->get.record) != ERR_OK) expire_end(x);
}

static void on_expired_followed(struct follow_op *f) {
    struct expiring *x = CONTAINER_OF(f, struct expiring, follow);
    x->at = 0;
    ask_others(x);
}

static void expire_submit(struct expiring *x, size_t n);

/* One that can't be written does not keep the others: each is tried by itself. What still fails is
 * due again after a while. */
static void expire_singly(struct expiring *x) {
    struct ledger_health health;
    ledger_health(x->service->ledger, &health);
    for (size_t i = 0; health.writable && x->record.count > 1 && i < x->record.count; i++) {
        struct expiring *one = expire_new(x->service, x->event_key);
        one->refs[0] = x->refs[i];
        expire_submit(one, 1);
    }
    x->due.count = 0;
    expire_end(x);
}

static void on_expire_written(struct task *task) {
    struct expiring *x = CONTAINER_OF(task, struct expiring, record.record.task);
    if (x->record.record.result != ERR_OK) {
        expire_singly(x);
        return;
    }
    size_t told = 0;
    for (size_t i = 0; i < x->record.count; i++)
        if (x->expired[i])
            x->news[told++] = (struct reservation_change){.id = x->ids[i],
                                                          .section_key = x->refs[i].section_key,
                                                          .status = RESERVATION_EXPIRED};
    count(COUNT_RESERVATION_EXPIRIES, told);
    expire_follow(x, told, on_expired_followed);
}

static void expire_submit(struct expiring *x, size_t n) {
    for (size_t i = 0; i < n; i++) x->ids[i] = x->refs[i].id;
    x->record = (struct ledger_expire){
        .record = {.kind = LEDGER_EXPIRE, .always = true, .task.run = on_expire_written},
        .now_ms = clock_wall_ms(),
        .ids = x->ids,
        .count = n,
        .expired = x->expired};
    if (ledger_submit(x->service->ledger, &x->record.record) != ERR_OK) expire_end(x);
}

static void on_due_told(struct due_op *d) {
    struct expiring *x = CONTAINER_OF(d, struct expiring, due);
    if (d->op.result == ERR_OK && d->count > 0)
        expire_submit(x, d->count);
    else
        expire_end(x);
}

void reservations_tick(struct reservations *r, int64_t event_key) {
    struct expiring *x = expire_new(r, event_key);
    x->due = (struct due_op){.op = {.event_key = event_key, .now_ms = clock_wall_ms()},
                             .refs = x->refs,
                             .max = EXPIRE_MAX,
                             .done = on_due_told};
    seats_due(r->seats, &x->due);
}

/* ---- start and stop ---- */

void reservations_init(struct reservations *r) {
    pthread_mutex_init(&r->lock, NULL);
    map_init(&r->loads);
    r->loads_max = LOADS_MIN;
}

void reservations_deinit(struct reservations *r) {
    assert(!reservations_is_busy(r));
    size_t at = 0;
    struct load *l;
    while ((l = map_next(&r->loads, &at)) != NULL) mem_free(l);
    map_deinit(&r->loads);
    pthread_mutex_destroy(&r->lock);
}

bool reservations_is_busy(struct reservations *r) {
    return atomic_load(&r->under_way) > 0;
}
