#include "service/waiting_room.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

/* How often a place is taken anew when somebody else's failure undid it. */
#define ENTER_TRIES 3
#define LOOKS_PER_TIMED 16

static void observe_since(enum histogram h, int64_t began_ns) {
    observe(h, (uint64_t)(clock_steady_ns() - began_ns));
}

/* ---- enter ---- */

static void enter_once(struct room_entering *e);

/* The answer shows the place as it is now. One that is gone was undone because the record of the
 * request that took it failed; ours is in the ledger, where nobody else would ever end it. One
 * whose time was over before the disk had it is of no use: a new one is taken. One that is written
 * is there, also if the hot store can't say so now: nobody is told that nothing was changed. */
static void on_enter_settled(struct settle_op *s) {
    struct room_entering *e = CONTAINER_OF(s, struct room_entering, settle);
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
        enter_once(e);
    } else {
        e->done(e, ERR_OVERLOADED);
    }
}

static void on_enter_recorded(struct task *task) {
    struct room_entering *e = CONTAINER_OF(task, struct room_entering, record.record.task);
    if (e->record.record.result == ERR_LEDGER_UNKNOWN) {
        e->done(e, ERR_LEDGER_UNKNOWN); /* it stays pending, until somebody has found out */
        return;
    }
    e->kept = e->record.record.result == ERR_OK;
    e->settle =
        (struct settle_op){.op = {.event_key = e->enter.op.event_key, .now_ms = clock_wall_ms()},
                           .seqs = &e->seq,
                           .kept = &e->kept,
                           .count = 1,
                           .places = &e->enter.place,
                           .done = on_enter_settled};
    queues_settle(e->room->queues, &e->settle);
}

static enum err submit_enter(struct enter_op *op) {
    struct room_entering *e = CONTAINER_OF(op, struct room_entering, enter);
    const struct place *p = &op->place;
    e->seq = p->seq;
    e->record =
        (struct ledger_enter){.record = {.kind = LEDGER_ENTER, .task.run = on_enter_recorded},
                              .event_key = op->op.event_key,
                              .seq = p->seq,
                              .user = op->user,
                              .lane = p->lane,
                              .status = p->status,
                              .joined_ms = p->joined_ms,
                              .expires_ms = p->expires_ms,
                              .closes = op->closes,
                              .epoch = op->op.epoch};
    return ledger_submit(e->room->ledger, &e->record.record);
}

static void on_entered(struct enter_op *op) {
    struct room_entering *e = CONTAINER_OF(op, struct room_entering, enter);
    bool is_there = op->outcome == ENTER_TAKEN || op->outcome == ENTER_THERE;
    if (op->op.result == ERR_OK && is_there && op->place.pending)
        return; /* the record comes back */
    if (op->op.result == ERR_OK && op->outcome == ENTER_FULL) count(COUNT_QUEUE_REJECTIONS, 1);
    e->done(e, op->op.result);
}

static void enter_once(struct room_entering *e) {
    int64_t began_ns = clock_steady_ns();
    e->tries++;
    e->enter.op.now_ms = clock_wall_ms();
    e->enter.submit = submit_enter;
    e->enter.done = on_entered;
    queues_enter(e->room->queues, &e->enter);
    observe_since(HISTOGRAM_QUEUE_ENTER_SECONDS, began_ns);
}

void waiting_room_enter(struct waiting_room *w, struct room_entering *e) {
    assert(e->enter.user.len > 0 && e->enter.lane < LANES);
    e->room = w;
    e->tries = 0;
    enter_once(e);
}

/* ---- look ---- */

static void on_entry_got(struct task *task) {
    struct room_looking *l = CONTAINER_OF(task, struct room_looking, get.record.task);
    enum err result = l->get.record.result;
    if (result == ERR_OK) {
        /* What the ledger has as live and the hot store does not know is over. */
        bool is_live = l->get.status == ENTRY_WAITING || l->get.status == ENTRY_ACTIVE;
        l->item.place.status = is_live ? ENTRY_EXPIRED : l->get.status;
        l->look.user_len = l->get.user_len;
        memcpy(l->user, l->get.user, l->get.user_len);
    }
    l->done(l, result);
}

static void on_degraded_looked(struct degraded_look *degraded_reads, enum err result) {
    struct room_looking *l = CONTAINER_OF(degraded_reads, struct room_looking, degraded_reads);
    l->item.place = degraded_reads->place;
    l->look.counts = (struct queue_counts){.waiting = degraded_reads->place.waiting};
    l->look.user_len = degraded_reads->user_len;
    l->done(l, result);
}

static void look_degraded(struct room_looking *l) {
    l->degraded = true;
    l->degraded_reads = (struct degraded_look){.event_key = l->look.op.event_key,
                                               .seq = l->item.seq,
                                               .now_ms = l->look.op.now_ms,
                                               .user = l->user,
                                               .done = on_degraded_looked};
    degraded_look(l->room->degraded_reads, &l->degraded_reads);
}

static void on_looked(struct look_op *op) {
    struct room_looking *l = CONTAINER_OF(op, struct room_looking, look);
    if (l->room->degraded_reads != NULL && hot_is_lost(op->op.result)) {
        look_degraded(l);
        return;
    }
    if (op->op.result != ERR_OK || l->item.place.status != ENTRY_NONE) {
        l->done(l, op->op.result);
        return;
    }
    l->get =
        (struct ledger_entry_get){.record = {.kind = LEDGER_ENTRY_GET, .task.run = on_entry_got},
                                  .event_key = op->op.event_key,
                                  .seq = l->item.seq};
    enum err refused = ledger_ask(l->room->ledger, &l->get.record);
    if (refused != ERR_OK) l->done(l, refused);
}

void waiting_room_look(struct waiting_room *w, struct room_looking *l) {
    /* A look takes hardly longer than two looks at the clock, so few are timed. */
    static _Thread_local unsigned looks;
    bool is_timed = looks++ % LOOKS_PER_TIMED == 0;
    int64_t began_ns = is_timed ? clock_steady_ns() : 0;
    l->room = w;
    l->degraded = false;
    l->look.op.now_ms = clock_wall_ms();
    l->look.items = &l->item;
    l->look.count = 1;
    l->look.user = l->user;
    l->look.done = on_looked;
    queues_look(w->queues, &l->look);
    if (is_timed) observe_since(HISTOGRAM_QUEUE_LOOK_SECONDS, began_ns);
}

/* The room is busy until then: a watch that ended in the ledger after the room had closed would
 * find nothing there. */
static void watch_end(struct room_watching *l, enum err result) {
    struct waiting_room *w = l->room;
    l->done(l, result);
    atomic_fetch_sub(&w->under_way, 1);
}

static void on_scanned(struct degraded_scan *scan, enum err result) {
    struct room_watching *l = CONTAINER_OF(scan, struct room_watching, scan);
    l->look.counts = (struct queue_counts){.waiting = scan->waiting};
    watch_end(l, result);
}

static void on_watched(struct look_op *op) {
    struct room_watching *l = CONTAINER_OF(op, struct room_watching, look);
    if (l->room->degraded_reads == NULL || !hot_is_lost(op->op.result)) {
        watch_end(l, op->op.result);
        return;
    }
    l->degraded = true;
    l->scan = (struct degraded_scan){.event_key = op->op.event_key,
                                     .items = op->items,
                                     .lanes = l->lanes,
                                     .count = op->count,
                                     .done = on_scanned};
    degraded_scan(l->room->degraded_reads, &l->scan);
}

void waiting_room_watch(struct waiting_room *w, struct room_watching *l) {
    l->room = w;
    l->degraded = false;
    l->look.done = on_watched;
    atomic_fetch_add(&w->under_way, 1);
    queues_look(w->queues, &l->look);
}

void waiting_room_heal(struct waiting_room *w, int64_t event_key, uint64_t seq) {
    repair_queue_add(&w->repairs, event_key, seq, false);
}

/* ---- leave, complete ---- */

static void on_ended(struct end_op *op) {
    struct room_ending *e = CONTAINER_OF(op, struct room_ending, end);
    struct waiting_room *w = e->room;
    if (op->ended && w->changed != NULL) w->changed(w->to, e->event_key, &e->seq, 1);
    if (hot_is_lost(op->op.result))
        repair_queue_add_unsent(&w->repairs, e->event_key, e->seq, e->final);
    e->done(e, ERR_OK);
}

static void count_end(const struct room_ending *e) {
    count(e->final == ENTRY_LEFT ? COUNT_QUEUE_LEAVES : COUNT_QUEUE_COMPLETIONS, 1);
}

static void end_in_hot(struct room_ending *e) {
    e->end = (struct end_op){.op = {.event_key = e->event_key, .now_ms = clock_wall_ms()},
                             .seq = e->seq,
                             .final = e->final,
                             .done = on_ended};
    queues_end(e->room->queues, &e->end);
}

static void on_end_repaired(struct repair_waiter *r) {
    struct room_ending *e = CONTAINER_OF(r, struct room_ending, repair);
    e->done(e, ERR_OK);
}

/* Who leaves is not live in the ledger then. If that was so before, the hot store may not have
 * heard of it: whoever wrote it died, or was not told that it was written. */
static void on_end_recorded(struct task *task) {
    struct room_ending *e = CONTAINER_OF(task, struct room_ending, record.record.task);
    enum err result = e->record.record.result;
    if (result == ERR_OK && e->ended) {
        count_end(e);
        end_in_hot(e);
        return;
    }
    if (result != ERR_OK || e->final != ENTRY_LEFT) {
        e->done(e, result);
        return;
    }
    e->repair =
        (struct repair_waiter){.event_key = e->event_key, .seq = e->seq, .done = on_end_repaired};
    repair_queue_add_then(&e->room->repairs, &e->repair);
}

void waiting_room_completed(struct waiting_room *w, struct room_ending *e) {
    e->room = w;
    e->final = ENTRY_COMPLETED;
    count_end(e);
    end_in_hot(e);
}

void waiting_room_end(struct waiting_room *w, struct room_ending *e) {
    assert(e->final == ENTRY_LEFT || e->final == ENTRY_COMPLETED);
    e->room = w;
    e->record = (struct ledger_end){.record = {.kind = LEDGER_END, .task.run = on_end_recorded},
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

/* ---- expiry: the hot store has ended them, the ledger follows ---- */

struct expiry {
    struct ledger_end record;
    struct settle_op settle;
    struct waiting_room *room;
    bool *ended;
    uint64_t seqs[];
};

static void expiry_free(struct expiry *x) {
    mem_free(x->ended);
    mem_free(x);
}

/* Whatever became of that: an expiry that is not settled is overdue, and written once more. What
 * was over in the ledger before may be so otherwise, and the hot store follows. */
static void on_expiry_settled(struct settle_op *s) {
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
    expiry_free(x);
    atomic_fetch_sub(&w->under_way, 1);
}

static void on_expiry_recorded(struct task *task) {
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
                           .done = on_expiry_settled};
    queues_settle(w->queues, &x->settle);
}

static void expiry_submit(struct expiry *x) {
    struct waiting_room *w = x->room;
    atomic_fetch_add(&w->under_way, 1);
    x->record.record.task.run = on_expiry_recorded;
    /* Once it is taken, the record is the ledger's. */
    enum err refused = ledger_submit(w->ledger, &x->record.record);
    if (refused == ERR_OK) return;
    x->record.record.result = refused;
    on_expiry_recorded(&x->record.record.task);
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
    expiry_submit(x);
}

static void on_expired(void *to, int64_t event_key, int64_t now_ms,
                       const struct entry_change *entries, size_t count_of) {
    for (size_t i = 0; i < count_of; i++)
        count(entries[i].expires_ms != 0 ? COUNT_QUEUE_EXPIRIES_ACTIVE : COUNT_QUEUE_EXPIRIES_GRACE,
              1);
    waiting_room_expired(to, event_key, now_ms, entries, count_of);
}

/* ---- admission ---- */

struct admission {
    struct admit_op admit;
    struct ledger_admit record;
    struct settle_op settle;
    struct waiting_room *room;
    void (*done)(void *to, enum err result, size_t admitted);
    void *to;
    struct entry_change entries[ADMIT_MAX];
    uint64_t seqs[ADMIT_MAX];
    bool kept[ADMIT_MAX];
};

/* One step takes ADMIT_MAX at the most; where that many went in there may be room for more. */
static void admission_end(struct admission *a, enum err result, size_t admitted) {
    struct waiting_room *w = a->room;
    if (a->done != NULL)
        a->done(a->to, result, admitted);
    else if (admitted == ADMIT_MAX)
        waiting_room_tick(w, a->admit.op.event_key, NULL, NULL);
    mem_free(a);
    atomic_fetch_sub(&w->ticking, 1);
    atomic_fetch_sub(&w->under_way, 1);
}

static void observe_admitted(const struct entry_change *e) {
    observe(HISTOGRAM_QUEUE_WAIT_SECONDS, (uint64_t)e->waited_ms);
    if (e->promised_s < 0) return;
    int64_t off_ms = e->waited_ms - e->promised_s * 1000;
    observe(HISTOGRAM_QUEUE_ESTIMATE_ERROR_SECONDS, (uint64_t)(off_ms < 0 ? -off_ms : off_ms));
}

static void on_admission_settled(struct settle_op *s) {
    struct admission *a = CONTAINER_OF(s, struct admission, settle);
    struct waiting_room *w = a->room;
    size_t admitted = 0;
    bool is_written = a->record.record.result == ERR_OK;
    for (size_t i = 0; i < a->admit.count; i++) {
        if (!a->kept[i] && is_written)
            repair_queue_add(&w->repairs, a->admit.op.event_key, a->entries[i].seq, false);
        if (!a->kept[i]) continue;
        observe_admitted(&a->entries[i]);
        a->seqs[admitted++] = a->entries[i].seq;
    }
    count(COUNT_QUEUE_ADMISSIONS, admitted);
    if (admitted > 0 && w->changed != NULL)
        w->changed(w->to, a->admit.op.event_key, a->seqs, admitted);
    admission_end(a, a->record.record.result, admitted);
}

static void on_admission_recorded(struct task *task) {
    struct admission *a = CONTAINER_OF(task, struct admission, record.record.task);
    if (a->record.record.result == ERR_LEDGER_UNKNOWN) {
        admission_end(a, ERR_LEDGER_UNKNOWN, 0); /* pending, until somebody has found out */
        return;
    }
    if (a->record.record.result != ERR_OK) memset(a->kept, 0, sizeof a->kept);
    a->settle =
        (struct settle_op){.op = {.event_key = a->admit.op.event_key, .now_ms = clock_wall_ms()},
                           .admissions = true,
                           .seqs = a->seqs,
                           .kept = a->kept,
                           .count = a->admit.count,
                           .done = on_admission_settled};
    queues_settle(a->room->queues, &a->settle);
}

static enum err submit_admission(struct admit_op *op) {
    struct admission *a = CONTAINER_OF(op, struct admission, admit);
    for (size_t i = 0; i < op->count; i++) a->seqs[i] = op->entries[i].seq;
    a->record = (struct ledger_admit){
        .record = {.kind = LEDGER_ADMIT, .always = true, .task.run = on_admission_recorded},
        .event_key = op->op.event_key,
        .epoch = op->op.epoch,
        .now_ms = op->op.now_ms,
        .entries = op->entries,
        .count = op->count,
        .kept = a->kept};
    return ledger_submit(a->room->ledger, &a->record.record);
}

static void on_admitted(struct admit_op *op) {
    struct admission *a = CONTAINER_OF(op, struct admission, admit);
    if (op->op.result == ERR_OK && op->count > 0) return; /* the record comes back */
    admission_end(a, op->op.result, 0);
}

void waiting_room_tick(struct waiting_room *w, int64_t event_key,
                       void (*done)(void *to, enum err result, size_t admitted), void *to) {
    int64_t began_ns = clock_steady_ns();
    /* Not zeroed: most of it is not used. */
    struct admission *a = mem_grow(NULL, sizeof *a);
    a->room = w;
    a->done = done;
    a->to = to;
    a->admit = (struct admit_op){.op = {.event_key = event_key, .now_ms = clock_wall_ms()},
                                 .entries = a->entries,
                                 .submit = submit_admission,
                                 .done = on_admitted};
    atomic_fetch_add(&w->under_way, 1);
    atomic_fetch_add(&w->ticking, 1);
    queues_admit(w->queues, &a->admit);
    observe_since(HISTOGRAM_QUEUE_ADMIT_SECONDS, began_ns);
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
        expiry_submit(CONTAINER_OF(task, struct expiry, record.record.task));
    repair_queue_retry(&w->repairs);
    return atomic_load(&w->ticking) <= events;
}

/* ---- start and stop ---- */

void waiting_room_init(struct waiting_room *w) {
    pthread_mutex_init(&w->lock, NULL);
    w->repairs = (struct repair_queue){
        .ledger = w->ledger, .queues = w->queues, .changed = w->changed, .to = w->to};
    repair_queue_init(&w->repairs);
    queues_listen(w->queues, (struct queue_listener){.expired = on_expired, .to = w});
}

void waiting_room_deinit(struct waiting_room *w) {
    assert(!waiting_room_is_busy(w));
    struct task *task;
    while ((task = task_list_take(&w->unwritten)) != NULL)
        expiry_free(CONTAINER_OF(task, struct expiry, record.record.task));
    repair_queue_deinit(&w->repairs);
    pthread_mutex_destroy(&w->lock);
}

bool waiting_room_is_busy(struct waiting_room *w) {
    return atomic_load(&w->under_way) > 0 || repair_queue_is_busy(&w->repairs);
}
