#include "service/take_up.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"

/* One event's: the admissions in one record, then the enters and claims one by one. */
struct taking {
    struct take_up *all;
    int64_t event_key;
    struct overdue_op overdue;
    struct ledger_admit admit;
    struct ledger_enter_void enter;
    struct ledger_hold_void claim;
    struct settle_op settle;
    struct claim_settle_op claim_settle;
    size_t enters_done;
    size_t claims_done;
    bool kept_one;
    uint64_t seqs[ADMIT_MAX];
    bool kept[ADMIT_MAX];
};

static struct hot_op hot_op(const struct taking *t) {
    return (struct hot_op){.event_key = t->event_key, .now_ms = clock_wall_ms()};
}

static void end(struct taking *t) {
    struct take_up *all = t->all;
    mem_free(t);
    atomic_fetch_sub(&all->under_way, 1);
}

/* What the ledger can't be told now is still pending, and told again. */
static void write(struct taking *t, struct ledger_record *r) {
    if (ledger_submit(t->all->room->ledger, r) != ERR_OK) end(t);
}

/* ---- claims ---- */

static void next_claim(struct taking *t);

static void on_claim_settled(struct claim_settle_op *s) {
    struct taking *t = CONTAINER_OF(s, struct taking, claim_settle);
    next_claim(t);
}

static void on_claim_voided(struct task *task) {
    struct taking *t = CONTAINER_OF(task, struct taking, claim.record.task);
    if (t->claim.record.result != ERR_OK) {
        end(t);
        return;
    }
    count(COUNT_HOT_TAKEN_UP_CLAIMS, 1);
    t->kept_one = !t->claim.voided;
    t->claim_settle = (struct claim_settle_op){.op = hot_op(t),
                                               .section_key = t->claim.section_key,
                                               .ids = &t->claim.id,
                                               .kept = &t->kept_one,
                                               .count = 1,
                                               .done = on_claim_settled};
    seats_settle(t->all->seats, &t->claim_settle);
}

static void next_claim(struct taking *t) {
    if (t->claims_done == t->overdue.claim_count) {
        end(t);
        return;
    }
    const struct claim_ref *ref = &t->overdue.claims[t->claims_done++];
    t->claim = (struct ledger_hold_void){
        .record = {.kind = LEDGER_HOLD_VOID, .always = true, .task.run = on_claim_voided},
        .id = ref->id,
        .event_key = t->event_key,
        .section_key = ref->section_key,
        .now_ms = clock_wall_ms()};
    write(t, &t->claim.record);
}

/* ---- enters ---- */

static void next_enter(struct taking *t);

static void on_enter_settled(struct settle_op *s) {
    next_enter(CONTAINER_OF(s, struct taking, settle));
}

static void on_enter_voided(struct task *task) {
    struct taking *t = CONTAINER_OF(task, struct taking, enter.record.task);
    if (t->enter.record.result != ERR_OK) {
        end(t);
        return;
    }
    count(COUNT_HOT_TAKEN_UP_ENTERS, 1);
    t->kept_one = !t->enter.voided;
    t->settle = (struct settle_op){.op = hot_op(t),
                                   .seqs = &t->enter.seq,
                                   .kept = &t->kept_one,
                                   .count = 1,
                                   .done = on_enter_settled};
    queues_settle(t->all->room->queues, &t->settle);
}

static void next_enter(struct taking *t) {
    if (t->enters_done == t->overdue.enter_count) {
        next_claim(t);
        return;
    }
    t->enter = (struct ledger_enter_void){
        .record = {.kind = LEDGER_ENTER_VOID, .always = true, .task.run = on_enter_voided},
        .event_key = t->event_key,
        .seq = t->overdue.enters[t->enters_done++],
        .now_ms = clock_wall_ms()};
    write(t, &t->enter.record);
}

/* ---- admissions ---- */

static void on_admissions_settled(struct settle_op *s) {
    struct taking *t = CONTAINER_OF(s, struct taking, settle);
    struct waiting_room *w = t->all->room;
    size_t admitted = 0;
    for (size_t i = 0; i < t->admit.count; i++) {
        if (t->kept[i])
            t->seqs[admitted++] = t->seqs[i];
        else
            waiting_room_heal(w, t->event_key, t->seqs[i]);
    }
    count(COUNT_QUEUE_ADMISSIONS, admitted);
    if (admitted > 0 && w->changed != NULL) w->changed(w->to, t->event_key, t->seqs, admitted);
    next_enter(t);
}

static void on_admissions_written(struct task *task) {
    struct taking *t = CONTAINER_OF(task, struct taking, admit.record.task);
    if (t->admit.record.result != ERR_OK) {
        end(t);
        return;
    }
    count(COUNT_HOT_TAKEN_UP_ADMISSIONS, t->admit.count);
    t->settle = (struct settle_op){.op = hot_op(t),
                                   .admissions = true,
                                   .seqs = t->seqs,
                                   .kept = t->kept,
                                   .count = t->admit.count,
                                   .done = on_admissions_settled};
    queues_settle(t->all->room->queues, &t->settle);
}

static void finish_admissions(struct taking *t) {
    size_t count_of = t->overdue.admission_count;
    if (count_of == 0) {
        next_enter(t);
        return;
    }
    for (size_t i = 0; i < count_of; i++) t->seqs[i] = t->overdue.admissions[i].seq;
    t->admit = (struct ledger_admit){
        .record = {.kind = LEDGER_ADMIT, .always = true, .task.run = on_admissions_written},
        .event_key = t->event_key,
        .epoch = t->overdue.op.epoch,
        .now_ms = clock_wall_ms(),
        .entries = t->overdue.admissions,
        .count = count_of,
        .kept = t->kept};
    write(t, &t->admit.record);
}

static void on_told(struct overdue_op *o) {
    struct taking *t = CONTAINER_OF(o, struct taking, overdue);
    size_t found = o->enter_count + o->admission_count + o->claim_count;
    if (o->op.result != ERR_OK || found == 0) {
        end(t);
        return;
    }
    log_warn(msg("taking up what was pending for too long"), kv_i64("event", t->event_key),
             kv_i64("enters", (int64_t)o->enter_count),
             kv_i64("admissions", (int64_t)o->admission_count),
             kv_i64("claims", (int64_t)o->claim_count));
    finish_admissions(t);
}

void take_up_look(struct take_up *all, int64_t event_key) {
    /* Not zeroed: most of it is not used. */
    struct taking *t = mem_grow(NULL, sizeof *t);
    t->all = all;
    t->event_key = event_key;
    t->enters_done = 0;
    t->claims_done = 0;
    t->overdue.op = hot_op(t);
    t->overdue.older_ms = all->deadline_ms;
    t->overdue.done = on_told;
    atomic_fetch_add(&all->under_way, 1);
    queues_overdue(all->room->queues, &t->overdue);
}

bool take_up_is_busy(struct take_up *t) {
    return atomic_load(&t->under_way) > 0;
}
