/* Corrects one entry or one reservation of the hot store to its state in the ledger; and the queue
 * of entries that are corrected in the background. */
#include "service/repair.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

/* At most this many ends of entries are sent again by one tick. */
#define RETRIES_MAX 16

static struct hot_op repair_hot_op(int64_t event_key) {
    return (struct hot_op){.event_key = event_key, .now_ms = clock_wall_ms()};
}

/* ---- one entry ---- */

static void repair_on_entry_asked(struct task *task);

static enum err repair_ask_entry(struct entry_repair *r) {
    r->get = (struct ledger_entry_get){
        .record = {.kind = LEDGER_ENTRY_GET, .task.run = repair_on_entry_asked},
        .event_key = r->event_key,
        .seq = r->seq};
    return ledger_ask(r->ledger, &r->get.record);
}

enum err repair_entry(struct ledger *l, struct queues *q, struct entry_repair *r) {
    r->ledger = l;
    r->queues = q;
    r->status = ENTRY_NONE;
    r->changed = false;
    return repair_ask_entry(r);
}

static void repair_end_entry(struct entry_repair *r, enum err result) {
    r->result = result;
    r->done(r);
}

static void repair_on_hot_ended(struct end_op *op);

static void repair_end_in_hot(struct entry_repair *r, enum entry_status final) {
    r->hot_end = (struct end_op){.op = repair_hot_op(r->event_key),
                                 .seq = r->seq,
                                 .final = final,
                                 .done = repair_on_hot_ended};
    queues_end(r->queues, &r->hot_end);
}

/* Only an entry that is ACTIVE in the hot store can complete there. It is over in any case. */
static void repair_on_hot_ended(struct end_op *op) {
    struct entry_repair *r = CONTAINER_OF(op, struct entry_repair, hot_end);
    if (op->op.result == ERR_OK && !op->ended && op->final == ENTRY_COMPLETED) {
        repair_end_in_hot(r, ENTRY_LEFT);
        return;
    }
    r->changed = r->changed || op->ended;
    repair_end_entry(r, op->op.result);
}

static void repair_ask_entry_again(struct entry_repair *r) {
    r->changed = true;
    enum err refused = repair_ask_entry(r);
    if (refused != ERR_OK) repair_end_entry(r, refused);
}

static void repair_on_ledger_ended(struct task *task) {
    struct entry_repair *r = CONTAINER_OF(task, struct entry_repair, ledger_end.record.task);
    if (r->ledger_end.record.result == ERR_OK)
        repair_ask_entry_again(r);
    else
        repair_end_entry(r, r->ledger_end.record.result);
}

static void repair_end_in_ledger(struct entry_repair *r) {
    r->ledger_end = (struct ledger_end){
        .record = {.kind = LEDGER_END, .always = true, .task.run = repair_on_ledger_ended},
        .event_key = r->event_key,
        .now_ms = clock_wall_ms(),
        .final = ENTRY_EXPIRED,
        .seqs = &r->seq,
        .count = 1,
        .ended = &r->ended};
    enum err refused = ledger_submit(r->ledger, &r->ledger_end.record);
    if (refused != ERR_OK) repair_end_entry(r, refused);
}

static void repair_on_entry_put_back(struct entry_sync_op *s) {
    struct entry_repair *r = CONTAINER_OF(s, struct entry_repair, sync);
    if (s->op.result == ERR_OK && s->outcome == ENTRY_SYNC_DONE)
        repair_ask_entry_again(r);
    else if (s->op.result == ERR_OK && s->outcome == ENTRY_SYNC_EXPIRED)
        repair_end_in_ledger(r);
    else
        repair_end_entry(r, s->op.result);
}

static void repair_put_entry_back(struct entry_repair *r) {
    const struct ledger_entry_get *e = &r->get;
    r->entry = (struct ledger_entry){.event_key = e->event_key,
                                     .seq = e->seq,
                                     .user = {e->user, e->user_len},
                                     .lane = e->lane,
                                     .status = e->status,
                                     .joined_ms = e->joined_ms,
                                     .expires_ms = e->expires_ms};
    r->sync = (struct entry_sync_op){.op = repair_hot_op(r->event_key),
                                     .entry = &r->entry,
                                     .seen = r->seen,
                                     .done = repair_on_entry_put_back};
    queues_sync(r->queues, &r->sync);
}

static void repair_on_entry_asked(struct task *task) {
    struct entry_repair *r = CONTAINER_OF(task, struct entry_repair, get.record.task);
    const struct ledger_entry_get *e = &r->get;
    if (e->record.result != ERR_OK) {
        repair_end_entry(r, e->record.result);
        return;
    }
    r->status = e->status == ENTRY_NONE ? ENTRY_EXPIRED : e->status;
    bool is_live = r->status == ENTRY_WAITING || r->status == ENTRY_ACTIVE;
    int64_t over_ms = r->status == ENTRY_ACTIVE ? clock_wall_ms() - e->expires_ms : -1;
    bool puts_back = r->puts_back && !r->changed;
    if (!is_live)
        repair_end_in_hot(r, r->status);
    else if (puts_back && over_ms < 0)
        repair_put_entry_back(r);
    else if (puts_back && over_ms >= r->late_ms)
        repair_end_in_ledger(r);
    else /* of an entry whose time has just ended, the end is on its way to the ledger */
        repair_end_entry(r, ERR_OK);
}

/* ---- one reservation ---- */

static void repair_on_reservation_asked(struct task *task);

static enum err repair_ask_reservation(struct reservation_repair *r) {
    mem_free(r->get.found);
    r->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = repair_on_reservation_asked},
        .id = r->id};
    return ledger_ask(r->ledger, &r->get.record);
}

enum err repair_reservation(struct ledger *l, struct seats *s, struct reservation_repair *r) {
    r->ledger = l;
    r->seats = s;
    r->changed = false;
    r->goes_back = false;
    r->get.found = NULL;
    return repair_ask_reservation(r);
}

static void repair_end_reservation(struct reservation_repair *r, enum err result) {
    struct reservation *found = r->get.found;
    r->get.found = NULL;
    r->result = result;
    r->found = found;
    r->done(r); /* it may free r, or use it again */
    mem_free(found);
}

static void repair_on_seats_given(struct seat_sync_op *s) {
    struct reservation_repair *r = CONTAINER_OF(s, struct reservation_repair, sync);
    enum err failed = s->op.result;
    if (failed == ERR_OK && s->changed == 0) failed = ERR_SEAT_NOT_FOUND;
    r->changed = failed == ERR_OK;
    bool asks_again = r->changed && !r->live_only;
    if (asks_again) failed = repair_ask_reservation(r);
    if (failed != ERR_OK || !asks_again) repair_end_reservation(r, failed);
}

static void repair_give_seats(struct reservation_repair *r) {
    r->goes_back = false;
    r->live = reservation_live(r->get.found);
    r->sync = (struct seat_sync_op){.op = repair_hot_op(r->event_key),
                                    .reservations = &r->live,
                                    .count = 1,
                                    .done = repair_on_seats_given};
    seats_sync(r->seats, &r->sync);
}

static void repair_on_seats_taken(struct follow_op *f) {
    struct reservation_repair *r = CONTAINER_OF(f, struct reservation_repair, follow);
    if (f->op.result == ERR_OK && r->goes_back) {
        repair_give_seats(r);
        return;
    }
    r->changed = r->changed || (f->op.result == ERR_OK && r->change.changed);
    repair_end_reservation(r, f->op.result);
}

/* As CANCELLED also if the ledger has it as EXPIRED: that ends it whatever the hot store has. */
static void repair_take_seats(struct reservation_repair *r) {
    r->change = (struct reservation_change){
        .id = r->id, .section_key = r->section_key, .status = RESERVATION_CANCELLED};
    r->follow = (struct follow_op){.op = repair_hot_op(r->event_key),
                                   .changes = &r->change,
                                   .count = 1,
                                   .done = repair_on_seats_taken};
    seats_follow(r->seats, &r->follow);
}

static bool repair_same_seats(struct held_seats a, struct held_seats b) {
    return a.seat_count == b.seat_count && (a.seat_count == 0 || a.status == b.status);
}

/* As the hot store has it now. A pending one must not be touched. */
static struct held_seats repair_hot_seats(const struct reservation_repair *r, bool *pending) {
    size_t known = r->holds.count < r->holds.max ? r->holds.count : r->holds.max;
    *pending = false;
    for (size_t i = 0; i < known; i++) {
        const struct claim_info *c = &r->holds_found[i];
        if (!uuid_eq(&c->id, &r->id)) continue;
        *pending = c->pending;
        return (struct held_seats){.seat_count = c->seat_count, .status = c->status};
    }
    return (struct held_seats){0};
}

static void repair_on_holds_read(struct holds_op *h) {
    struct reservation_repair *r = CONTAINER_OF(h, struct reservation_repair, holds);
    bool pending;
    struct held_seats here = repair_hot_seats(r, &pending);
    struct held_seats there = {r->get.found->seat_count, r->get.found->status};
    mem_free(r->holds_found);
    r->goes_back = here.seat_count > 0 && here.status == RESERVATION_CONFIRMED &&
                   there.status == RESERVATION_HELD;
    if (h->op.result != ERR_OK || pending || repair_same_seats(here, there) ||
        !repair_same_seats(here, *r->seen))
        repair_end_reservation(r, h->op.result);
    else if (r->goes_back)
        repair_take_seats(r);
    else
        repair_give_seats(r);
}

/* Each reservation has a seat at least, so PER_USER_MAX are all. */
static void repair_read_holds(struct reservation_repair *r) {
    r->holds_found = mem_new(PER_USER_MAX * sizeof *r->holds_found);
    r->holds = (struct holds_op){.op = repair_hot_op(r->event_key),
                                 .user = str_of(r->get.found->user),
                                 .reservations = r->holds_found,
                                 .max = PER_USER_MAX,
                                 .done = repair_on_holds_read};
    seats_holds(r->seats, &r->holds);
}

static void repair_on_reservation_asked(struct task *task) {
    struct reservation_repair *r = CONTAINER_OF(task, struct reservation_repair, get.record.task);
    enum err failed = r->get.record.result;
    bool is_live =
        failed == ERR_OK && r->get.found != NULL && reservation_is_live(r->get.found->status);
    if (failed != ERR_OK || (is_live ? r->changed : r->live_only))
        repair_end_reservation(r, failed);
    else if (!is_live)
        repair_take_seats(r);
    else if (r->seen != NULL)
        repair_read_holds(r);
    else
        repair_give_seats(r);
}

/* ---- entries that are repaired in the background ---- */

struct queued_repair {
    struct entry_repair repair;
    struct repair_queue *queue;
    struct repair_waiter *waiter; /* NULL: none */
    bool announces;
};

static void repair_queue_on_done(struct entry_repair *repair);

static struct queued_repair *repair_queue_new(struct repair_queue *q, int64_t event_key,
                                              uint64_t seq) {
    struct queued_repair *r = mem_new(sizeof *r);
    r->queue = q;
    r->repair = (struct entry_repair){.event_key = event_key,
                                      .seq = seq,
                                      .done = repair_queue_on_done,
                                      .ledger = q->ledger,
                                      .queues = q->queues};
    atomic_fetch_add(&q->under_way, 1);
    return r;
}

static void repair_queue_begin(struct queued_repair *r) {
    enum err refused = repair_entry(r->queue->ledger, r->queue->queues, &r->repair);
    if (refused != ERR_OK) repair_end_entry(&r->repair, refused);
}

void repair_queue_add(struct repair_queue *q, int64_t event_key, uint64_t seq, bool announces) {
    struct queued_repair *r = repair_queue_new(q, event_key, seq);
    r->announces = announces;
    repair_queue_begin(r);
}

void repair_queue_add_then(struct repair_queue *q, struct repair_waiter *w) {
    struct queued_repair *r = repair_queue_new(q, w->event_key, w->seq);
    r->waiter = w;
    repair_queue_begin(r);
}

static void repair_queue_keep(struct queued_repair *r) {
    pthread_mutex_lock(&r->queue->lock);
    task_list_add(&r->queue->unsent, &r->repair.get.record.task);
    pthread_mutex_unlock(&r->queue->lock);
}

static void repair_queue_on_done(struct entry_repair *repair) {
    struct queued_repair *r = CONTAINER_OF(repair, struct queued_repair, repair);
    struct repair_queue *q = r->queue;
    bool is_over = repair->status != ENTRY_NONE && repair->status != ENTRY_WAITING &&
                   repair->status != ENTRY_ACTIVE;
    bool is_unsent = is_over && hot_is_lost(repair->result);
    bool is_announced = repair->changed || (r->announces && is_over && !is_unsent);
    if (repair->changed) count(COUNT_HOT_HEALED_ENTRIES, 1);
    if (is_announced && q->changed != NULL) q->changed(q->to, repair->event_key, &repair->seq, 1);
    if (r->waiter != NULL) {
        r->waiter->status = repair->status;
        r->waiter->done(r->waiter);
        r->waiter = NULL;
    }
    if (is_unsent)
        repair_queue_keep(r);
    else
        mem_free(r);
    atomic_fetch_sub(&q->under_way, 1);
}

void repair_queue_add_unsent(struct repair_queue *q, int64_t event_key, uint64_t seq,
                             enum entry_status final) {
    struct queued_repair *r = repair_queue_new(q, event_key, seq);
    r->repair.status = final;
    repair_queue_keep(r);
    atomic_fetch_sub(&q->under_way, 1);
}

static struct queued_repair *repair_queue_take(struct repair_queue *q) {
    pthread_mutex_lock(&q->lock);
    struct task *task = task_list_take(&q->unsent);
    pthread_mutex_unlock(&q->lock);
    return task == NULL ? NULL : CONTAINER_OF(task, struct queued_repair, repair.get.record.task);
}

/* A few at a time: while the hot store cannot be reached, they all come back. */
void repair_queue_retry(struct repair_queue *q) {
    struct queued_repair *r;
    for (int i = 0; i < RETRIES_MAX && (r = repair_queue_take(q)) != NULL; i++) {
        atomic_fetch_add(&q->under_way, 1);
        repair_end_in_hot(&r->repair, r->repair.status);
    }
}

void repair_queue_init(struct repair_queue *q) {
    pthread_mutex_init(&q->lock, NULL);
}

void repair_queue_deinit(struct repair_queue *q) {
    struct queued_repair *r;
    while ((r = repair_queue_take(q)) != NULL) mem_free(r);
    pthread_mutex_destroy(&q->lock);
}

bool repair_queue_is_busy(struct repair_queue *q) {
    return atomic_load(&q->under_way) > 0;
}
