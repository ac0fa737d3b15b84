/* The use cases of the queue, top-down: enter, look, leave, expiry, admission; below each call
 * stand the callbacks that answer it. */
#include "service/waiting_room.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

/* How often a place is taken again after the failure of another request undid it. */
#define ENTER_TRIES 3
#define LOOKS_PER_TIMED 16

static enum err waiting_room_submit_enter(struct enter_op *op);
static enum err waiting_room_submit_admission(struct admit_op *op);
static void waiting_room_on_entered(struct enter_op *op);
static void waiting_room_on_enter_recorded(struct task *task),
    waiting_room_on_entry_read(struct task *task), waiting_room_on_end_recorded(struct task *task),
    waiting_room_on_expiry_recorded(struct task *task),
    waiting_room_on_admission_recorded(struct task *task);
static void waiting_room_on_enter_settled(struct settle_op *s),
    waiting_room_on_expiry_settled(struct settle_op *s),
    waiting_room_on_admission_settled(struct settle_op *s);
static void waiting_room_on_looked(struct look_op *op), waiting_room_on_watched(struct look_op *op);
static void waiting_room_on_degraded_looked(struct degraded_look *degraded_reads, enum err result);
static void waiting_room_on_scanned(struct degraded_scan *scan, enum err result);
static void waiting_room_on_ended(struct end_op *op);
static void waiting_room_on_end_repaired(struct repair_waiter *r);
static void waiting_room_on_admitted(struct admit_op *op);

static void waiting_room_observe_since(enum histogram h, int64_t began_ns) {
    observe(h, (uint64_t)(clock_steady_ns() - began_ns));
}

/* ---- enter ---- */

static void waiting_room_try_enter(struct place_enter *e) {
    e->began_ns = clock_steady_ns();
    e->tries++;
    e->enter.op.now_ms = clock_wall_ms();
    e->enter.submit = waiting_room_submit_enter;
    e->enter.done = waiting_room_on_entered;
    queues_enter(e->room->queues, &e->enter);
}

void waiting_room_enter(struct waiting_room *w, struct place_enter *e) {
    assert(e->enter.user.len > 0 && e->enter.lane < LANES);
    e->room = w;
    e->tries = 0;
    waiting_room_try_enter(e);
}

static enum err waiting_room_submit_enter(struct enter_op *op) {
    struct place_enter *e = CONTAINER_OF(op, struct place_enter, enter);
    const struct place *p = &op->place;
    e->seq = p->seq;
    e->record = (struct ledger_enter){
        .record = {.kind = LEDGER_ENTER, .task.run = waiting_room_on_enter_recorded},
        .event_key = op->op.event_key,
        .seq = p->seq,
        .user = op->user,
        .lane = p->lane,
        .status = p->status,
        .joined_ms = p->joined_ms,
        .expires_ms = p->expires_ms,
        .closes = op->closes,
        .epoch = op->op.epoch,
        .note = op->outcome == ENTER_TAKEN ? e->note : NULL};
    return ledger_submit(e->room->ledger, &e->record.record);
}

static void waiting_room_on_entered(struct enter_op *op) {
    struct place_enter *e = CONTAINER_OF(op, struct place_enter, enter);
    bool is_there = op->outcome == ENTER_TAKEN || op->outcome == ENTER_THERE;
    waiting_room_observe_since(HISTOGRAM_QUEUE_ENTER_SECONDS, e->began_ns);
    if (op->op.result == ERR_OK && is_there && op->place.pending)
        return; /* the record comes back */
    if (op->op.result == ERR_OK && op->outcome == ENTER_FULL) count(COUNT_QUEUE_REJECTIONS, 1);
    e->done(e, op->op.result);
}

static void waiting_room_on_enter_recorded(struct task *task) {
    struct place_enter *e = CONTAINER_OF(task, struct place_enter, record.record.task);
    if (e->record.record.result == ERR_LEDGER_UNKNOWN) {
        e->done(e, ERR_LEDGER_UNKNOWN); /* it stays pending; finish_pending finds out */
        return;
    }
    e->kept = e->record.record.result == ERR_OK;
    e->settle =
        (struct settle_op){.op = {.event_key = e->enter.op.event_key, .now_ms = clock_wall_ms()},
                           .seqs = &e->seq,
                           .kept = &e->kept,
                           .count = 1,
                           .places = &e->enter.place,
                           .done = waiting_room_on_enter_settled};
    queues_settle(e->room->queues, &e->settle);
}

/* The answer shows the place as it is now. A place that is gone was undone because the record of
 * the request that took it failed; the record of this request is in the ledger and must be ended
 * there. A place whose time was over before the disk had it is of no use: a new one is taken. A
 * place that is written exists, also if the hot store cannot confirm it: the answer must not say
 * that nothing was changed. */
static void waiting_room_on_enter_settled(struct settle_op *s) {
    struct place_enter *e = CONTAINER_OF(s, struct place_enter, settle);
    enum err result = e->record.record.result;
    if (result == ERR_OK) result = hot_is_lost(s->op.result) ? ERR_HOT_UNKNOWN : s->op.result;
    enum entry_status status = e->enter.place.status;
    bool undone = result == ERR_CONFLICT ||
                  (result == ERR_OK && (status == ENTRY_NONE || status == ENTRY_EXPIRED));
    if (result == ERR_OK && status == ENTRY_NONE)
        waiting_room_expired(e->room, s->op.event_key, s->op.now_ms,
                             &(struct entry_change){.seq = e->seq}, 1);
    if (!undone) {
        e->done(e, result);
    } else if (e->tries < ENTER_TRIES) {
        waiting_room_try_enter(e);
    } else {
        e->done(e, ERR_OVERLOADED);
    }
}

/* ---- look ---- */

void waiting_room_look(struct waiting_room *w, struct place_look *l) {
    /* A look takes hardly longer than reading the clock twice, so few are timed. */
    static _Thread_local unsigned looks;
    l->began_ns = looks++ % LOOKS_PER_TIMED == 0 ? clock_steady_ns() : 0;
    l->room = w;
    l->degraded = false;
    l->look.op.now_ms = clock_wall_ms();
    l->look.items = &l->item;
    l->look.count = 1;
    l->look.user = l->user;
    l->look.done = waiting_room_on_looked;
    queues_look(w->queues, &l->look);
}

/* Whether the place is that of the token's user. Of a place that has ended, the user may be unknown
 * by now. */
static bool waiting_room_is_proven(const struct place_look *l) {
    enum entry_status status = l->item.place.status;
    if (l->proof.tokens == NULL) return true;
    if (l->look.user_len == 0) return status != ENTRY_WAITING && status != ENTRY_ACTIVE;
    str user = {l->user, l->look.user_len};
    return token_user_hash(l->proof.tokens, user) == l->proof.user_hash;
}

static void waiting_room_end_look(struct place_look *l, enum err result) {
    if (result == ERR_OK && !waiting_room_is_proven(l)) {
        result = ERR_TOKEN_INVALID;
        l->look.user_len = 0;
    }
    l->done(l, result);
}

static void waiting_room_look_degraded(struct place_look *l) {
    l->degraded = true;
    l->degraded_reads = (struct degraded_look){.event_key = l->look.op.event_key,
                                               .seq = l->item.seq,
                                               .now_ms = l->look.op.now_ms,
                                               .user = l->user,
                                               .done = waiting_room_on_degraded_looked};
    degraded_look(l->room->degraded_reads, &l->degraded_reads);
}

static void waiting_room_on_looked(struct look_op *op) {
    struct place_look *l = CONTAINER_OF(op, struct place_look, look);
    if (l->began_ns != 0) waiting_room_observe_since(HISTOGRAM_QUEUE_LOOK_SECONDS, l->began_ns);
    if (l->room->degraded_reads != NULL && hot_is_lost(op->op.result)) {
        waiting_room_look_degraded(l);
        return;
    }
    if (op->op.result != ERR_OK || l->item.place.status != ENTRY_NONE) {
        waiting_room_end_look(l, op->op.result);
        return;
    }
    l->get = (struct ledger_entry_get){
        .record = {.kind = LEDGER_ENTRY_GET, .task.run = waiting_room_on_entry_read},
        .event_key = op->op.event_key,
        .seq = l->item.seq};
    enum err refused = ledger_ask(l->room->ledger, &l->get.record);
    if (refused != ERR_OK) waiting_room_end_look(l, refused);
}

static void waiting_room_on_entry_read(struct task *task) {
    struct place_look *l = CONTAINER_OF(task, struct place_look, get.record.task);
    enum err result = l->get.record.result;
    if (result == ERR_OK) {
        /* A place that is live in the ledger and unknown to the hot store is over. */
        bool is_live = l->get.status == ENTRY_WAITING || l->get.status == ENTRY_ACTIVE;
        l->item.place.status = is_live ? ENTRY_EXPIRED : l->get.status;
        l->look.user_len = l->get.user_len;
        memcpy(l->user, l->get.user, l->get.user_len);
    }
    waiting_room_end_look(l, result);
}

static void waiting_room_on_degraded_looked(struct degraded_look *degraded_reads, enum err result) {
    struct place_look *l = CONTAINER_OF(degraded_reads, struct place_look, degraded_reads);
    l->item.place = degraded_reads->place;
    l->look.counts = (struct queue_counts){.waiting = degraded_reads->place.waiting};
    l->look.user_len = degraded_reads->user_len;
    waiting_room_end_look(l, result);
}

void waiting_room_watch(struct waiting_room *w, struct places_watch *l) {
    l->room = w;
    l->degraded = false;
    l->look.done = waiting_room_on_watched;
    atomic_fetch_add(&w->under_way, 1);
    queues_look(w->queues, &l->look);
}

/* The room is busy until then: a ledger read must not come back after the room was closed. */
static void waiting_room_end_watch(struct places_watch *l, enum err result) {
    struct waiting_room *w = l->room;
    l->done(l, result);
    atomic_fetch_sub(&w->under_way, 1);
}

static void waiting_room_on_watched(struct look_op *op) {
    struct places_watch *l = CONTAINER_OF(op, struct places_watch, look);
    if (l->room->degraded_reads == NULL || !hot_is_lost(op->op.result)) {
        waiting_room_end_watch(l, op->op.result);
        return;
    }
    l->degraded = true;
    l->scan = (struct degraded_scan){.event_key = op->op.event_key,
                                     .items = op->items,
                                     .lanes = l->lanes,
                                     .count = op->count,
                                     .done = waiting_room_on_scanned};
    degraded_scan(l->room->degraded_reads, &l->scan);
}

static void waiting_room_on_scanned(struct degraded_scan *scan, enum err result) {
    struct places_watch *l = CONTAINER_OF(scan, struct places_watch, scan);
    l->look.counts = (struct queue_counts){.waiting = scan->waiting};
    waiting_room_end_watch(l, result);
}

/* ---- leave, complete ---- */

void waiting_room_end(struct waiting_room *w, struct place_end *e) {
    assert(e->final == ENTRY_LEFT || e->final == ENTRY_COMPLETED);
    e->room = w;
    e->record = (struct ledger_end){
        .record = {.kind = LEDGER_END, .task.run = waiting_room_on_end_recorded},
        .event_key = e->event_key,
        .now_ms = clock_wall_ms(),
        .final = e->final,
        .seqs = &e->seq,
        .count = 1,
        .ended = &e->ended,
        .user = e->user,
        .cancels = e->cancels,
        .cancel_count = e->cancel_count,
        .cancelled = e->cancelled};
    enum err refused = ledger_submit(w->ledger, &e->record.record);
    if (refused != ERR_OK) e->done(e, refused);
}

static void waiting_room_count_end(const struct place_end *e) {
    count(e->final == ENTRY_LEFT ? COUNT_QUEUE_LEAVES : COUNT_QUEUE_COMPLETIONS, 1);
}

static void waiting_room_end_in_hot(struct place_end *e) {
    e->end = (struct end_op){.op = {.event_key = e->event_key, .now_ms = clock_wall_ms()},
                             .seq = e->seq,
                             .final = e->final,
                             .done = waiting_room_on_ended};
    queues_end(e->room->queues, &e->end);
}

/* When the entry had ended in the ledger before, the hot store may not have followed: the node that
 * wrote it died, or does not know that it was written. */
static void waiting_room_on_end_recorded(struct task *task) {
    struct place_end *e = CONTAINER_OF(task, struct place_end, record.record.task);
    enum err result = e->record.record.result;
    if (result == ERR_OK && e->ended) {
        waiting_room_count_end(e);
        waiting_room_end_in_hot(e);
        return;
    }
    if (result != ERR_OK || e->final != ENTRY_LEFT) {
        e->done(e, result);
        return;
    }
    e->repair = (struct repair_waiter){
        .event_key = e->event_key, .seq = e->seq, .done = waiting_room_on_end_repaired};
    repair_queue_add_then(&e->room->repairs, &e->repair);
}

static void waiting_room_on_ended(struct end_op *op) {
    struct place_end *e = CONTAINER_OF(op, struct place_end, end);
    struct waiting_room *w = e->room;
    if (op->ended && w->changed != NULL) w->changed(w->to, e->event_key, &e->seq, 1);
    if (hot_is_lost(op->op.result))
        repair_queue_add_unsent(&w->repairs, e->event_key, e->seq, e->final);
    e->done(e, ERR_OK);
}

static void waiting_room_on_end_repaired(struct repair_waiter *r) {
    struct place_end *e = CONTAINER_OF(r, struct place_end, repair);
    e->done(e, ERR_OK);
}

void waiting_room_completed(struct waiting_room *w, struct place_end *e) {
    e->room = w;
    e->final = ENTRY_COMPLETED;
    waiting_room_count_end(e);
    waiting_room_end_in_hot(e);
}

/* ---- expiry: entries that the hot store has ended are ended in the ledger ---- */

struct expiry {
    struct ledger_end record;
    struct settle_op settle;
    struct waiting_room *room;
    bool *ended;
    uint64_t seqs[];
};

static void waiting_room_on_expired(void *to, int64_t event_key, int64_t now_ms,
                                    const struct entry_change *entries, size_t count_of) {
    for (size_t i = 0; i < count_of; i++)
        count(entries[i].expires_ms != 0 ? COUNT_QUEUE_EXPIRIES_ACTIVE : COUNT_QUEUE_EXPIRIES_GRACE,
              1);
    waiting_room_expired(to, event_key, now_ms, entries, count_of);
}

static void waiting_room_on_stock_changed(void *to, int64_t event_key) {
    struct waiting_room *w = to;
    if (w->changed != NULL) w->changed(w->to, event_key, NULL, 0);
}

static void waiting_room_submit_expiry(struct expiry *x) {
    struct waiting_room *w = x->room;
    atomic_fetch_add(&w->under_way, 1);
    x->record.record.task.run = waiting_room_on_expiry_recorded;
    /* Once the ledger has taken the record, it must not be touched. */
    enum err refused = ledger_submit(w->ledger, &x->record.record);
    if (refused == ERR_OK) return;
    x->record.record.result = refused;
    waiting_room_on_expiry_recorded(&x->record.record.task);
}

void waiting_room_expired(struct waiting_room *w, int64_t event_key, int64_t now_ms,
                          const struct entry_change *entries, size_t count_of) {
    struct expiry *x = mem_new(sizeof *x + count_of * sizeof x->seqs[0]);
    x->room = w;
    x->ended = mem_new(count_of * sizeof *x->ended);
    for (size_t i = 0; i < count_of; i++) x->seqs[i] = entries[i].seq;
    x->record = (struct ledger_end){.record = {.kind = LEDGER_END, .always = true},
                                    .event_key = event_key,
                                    .now_ms = now_ms,
                                    .final = ENTRY_EXPIRED,
                                    .seqs = x->seqs,
                                    .count = count_of,
                                    .ended = x->ended};
    waiting_room_submit_expiry(x);
}

static void waiting_room_on_expiry_recorded(struct task *task) {
    struct expiry *x = CONTAINER_OF(task, struct expiry, record.record.task);
    struct waiting_room *w = x->room;
    if (x->record.record.result != ERR_OK) {
        pthread_mutex_lock(&w->lock);
        task_list_add(&w->unwritten, task);
        pthread_mutex_unlock(&w->lock);
        atomic_fetch_sub(&w->under_way, 1);
        return;
    }
    x->settle =
        (struct settle_op){.op = {.event_key = x->record.event_key, .now_ms = clock_wall_ms()},
                           .expiries = true,
                           .seqs = x->seqs,
                           .count = x->record.count,
                           .done = waiting_room_on_expiry_settled};
    queues_settle(w->queues, &x->settle);
}

static void waiting_room_free_expiry(struct expiry *x) {
    mem_free(x->ended);
    mem_free(x);
}

/* The result does not matter: an expiry that is not settled is overdue, and is written again. An
 * entry that had ended in the ledger before may have another final status there, and the hot store
 * follows. */
static void waiting_room_on_expiry_settled(struct settle_op *s) {
    struct expiry *x = CONTAINER_OF(s, struct expiry, settle);
    struct waiting_room *w = x->room;
    size_t ended = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (x->ended[i])
            x->seqs[ended++] = x->seqs[i];
        else
            repair_queue_add(&w->repairs, s->op.event_key, x->seqs[i], true);
    }
    if (ended > 0 && w->changed != NULL) w->changed(w->to, s->op.event_key, x->seqs, ended);
    waiting_room_free_expiry(x);
    atomic_fetch_sub(&w->under_way, 1);
}

/* ---- admission ---- */

struct admission {
    struct admit_op admit;
    struct ledger_admit record;
    struct settle_op settle;
    struct waiting_room *room;
    admission_done *done;
    void *to;
    bool is_tick;     /* else it finishes an admission that was pending for too long */
    int64_t began_ns; /* of the tick */
    struct entry_change entries[ADMIT_MAX];
    uint64_t seqs[ADMIT_MAX];
    bool kept[ADMIT_MAX];
};

/* One step admits ADMIT_MAX at the most; if it admitted that many, there may be room for more. */
static void waiting_room_end_admission(struct admission *a, enum err result, size_t admitted) {
    struct waiting_room *w = a->room;
    bool is_tick = a->is_tick;
    if (a->done != NULL)
        a->done(a->to, result, admitted);
    else if (admitted == ADMIT_MAX)
        waiting_room_tick(w, a->admit.op.event_key, NULL, NULL);
    mem_free(a);
    if (is_tick) atomic_fetch_sub(&w->ticking, 1);
    atomic_fetch_sub(&w->under_way, 1);
}

static struct admission *waiting_room_new_admission(struct waiting_room *w, int64_t event_key,
                                                    admission_done *done, void *to) {
    /* Not zeroed: most of it is not used. */
    struct admission *a = mem_grow(NULL, sizeof *a);
    a->room = w;
    a->done = done;
    a->to = to;
    a->admit = (struct admit_op){.op = {.event_key = event_key, .now_ms = clock_wall_ms()},
                                 .entries = a->entries,
                                 .submit = waiting_room_submit_admission,
                                 .done = waiting_room_on_admitted};
    atomic_fetch_add(&w->under_way, 1);
    return a;
}

void waiting_room_tick(struct waiting_room *w, int64_t event_key, admission_done *done, void *to) {
    struct admission *a = waiting_room_new_admission(w, event_key, done, to);
    a->is_tick = true;
    a->began_ns = clock_steady_ns();
    atomic_fetch_add(&w->ticking, 1);
    queues_admit(w->queues, &a->admit);
}

void waiting_room_finish_admission(struct waiting_room *w, const struct overdue_op *o,
                                   admission_done *done, void *to) {
    struct admission *a = waiting_room_new_admission(w, o->op.event_key, done, to);
    a->is_tick = false;
    a->admit.op.epoch = o->op.epoch;
    a->admit.count = o->admission_count;
    memcpy(a->entries, o->admissions, o->admission_count * sizeof a->entries[0]);
    enum err refused = waiting_room_submit_admission(&a->admit);
    if (refused != ERR_OK) waiting_room_end_admission(a, refused, 0);
}

static enum err waiting_room_submit_admission(struct admit_op *op) {
    struct admission *a = CONTAINER_OF(op, struct admission, admit);
    for (size_t i = 0; i < op->count; i++) a->seqs[i] = op->entries[i].seq;
    a->record = (struct ledger_admit){.record = {.kind = LEDGER_ADMIT,
                                                 .always = true,
                                                 .task.run = waiting_room_on_admission_recorded},
                                      .event_key = op->op.event_key,
                                      .epoch = op->op.epoch,
                                      .now_ms = op->op.now_ms,
                                      .entries = op->entries,
                                      .count = op->count,
                                      .kept = a->kept};
    return ledger_submit(a->room->ledger, &a->record.record);
}

static void waiting_room_on_admitted(struct admit_op *op) {
    struct admission *a = CONTAINER_OF(op, struct admission, admit);
    waiting_room_observe_since(HISTOGRAM_QUEUE_ADMIT_SECONDS, a->began_ns);
    if (op->op.result == ERR_OK && op->count > 0) return; /* the record comes back */
    waiting_room_end_admission(a, op->op.result, 0);
}

static void waiting_room_on_admission_recorded(struct task *task) {
    struct admission *a = CONTAINER_OF(task, struct admission, record.record.task);
    enum err result = a->record.record.result;
    if (result == ERR_LEDGER_UNKNOWN || (result != ERR_OK && !a->is_tick)) {
        waiting_room_end_admission(a, result, 0); /* it stays pending; finish_pending finds out */
        return;
    }
    if (result != ERR_OK) memset(a->kept, 0, sizeof a->kept);
    a->settle =
        (struct settle_op){.op = {.event_key = a->admit.op.event_key, .now_ms = clock_wall_ms()},
                           .admissions = true,
                           .seqs = a->seqs,
                           .kept = a->kept,
                           .count = a->admit.count,
                           .done = waiting_room_on_admission_settled};
    queues_settle(a->room->queues, &a->settle);
}

static void waiting_room_observe_admitted(const struct entry_change *e) {
    observe(HISTOGRAM_QUEUE_WAIT_SECONDS, (uint64_t)e->waited_ms);
    if (e->promised_s < 0) return;
    int64_t off_ms = e->waited_ms - e->promised_s * 1000;
    observe(HISTOGRAM_QUEUE_ESTIMATE_ERROR_SECONDS, (uint64_t)(off_ms < 0 ? -off_ms : off_ms));
}

static void waiting_room_on_admission_settled(struct settle_op *s) {
    struct admission *a = CONTAINER_OF(s, struct admission, settle);
    struct waiting_room *w = a->room;
    size_t admitted = 0;
    bool is_written = a->record.record.result == ERR_OK;
    for (size_t i = 0; i < a->admit.count; i++) {
        if (!a->kept[i] && is_written)
            repair_queue_add(&w->repairs, a->admit.op.event_key, a->entries[i].seq, false);
        if (!a->kept[i]) continue;
        if (a->is_tick) waiting_room_observe_admitted(&a->entries[i]);
        a->seqs[admitted++] = a->entries[i].seq;
    }
    count(COUNT_QUEUE_ADMISSIONS, admitted);
    if (admitted > 0 && w->changed != NULL)
        w->changed(w->to, a->admit.op.event_key, a->seqs, admitted);
    waiting_room_end_admission(a, a->record.record.result, admitted);
}

bool waiting_room_tick_begin(struct waiting_room *w, size_t events) {
    struct ledger_health health;
    ledger_health(w->ledger, &health);
    if (!health.writable) return false;
    pthread_mutex_lock(&w->lock);
    struct task_list again = w->unwritten;
    w->unwritten = (struct task_list){0};
    pthread_mutex_unlock(&w->lock);
    struct task *task;
    while ((task = task_list_take(&again)) != NULL)
        waiting_room_submit_expiry(CONTAINER_OF(task, struct expiry, record.record.task));
    repair_queue_retry(&w->repairs);
    return atomic_load(&w->ticking) <= events;
}

/* ---- start and stop ---- */

void waiting_room_init(struct waiting_room *w) {
    pthread_mutex_init(&w->lock, NULL);
    w->repairs = (struct repair_queue){
        .ledger = w->ledger, .queues = w->queues, .changed = w->changed, .to = w->to};
    repair_queue_init(&w->repairs);
    queues_listen(w->queues, (struct queue_listener){.expired = waiting_room_on_expired,
                                                     .stock_changed = waiting_room_on_stock_changed,
                                                     .to = w});
}

void waiting_room_deinit(struct waiting_room *w) {
    assert(!waiting_room_is_busy(w));
    struct task *task;
    while ((task = task_list_take(&w->unwritten)) != NULL)
        waiting_room_free_expiry(CONTAINER_OF(task, struct expiry, record.record.task));
    repair_queue_deinit(&w->repairs);
    pthread_mutex_destroy(&w->lock);
}

bool waiting_room_is_busy(struct waiting_room *w) {
    return atomic_load(&w->under_way) > 0 || repair_queue_is_busy(&w->repairs);
}
