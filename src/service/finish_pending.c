/* Finishing the pending operations of one event, in this order: expiries, which the waiting room
 * writes; admissions, likewise; enters; claims. Records that are submitted together share a commit.
 * An operation that the ledger does not accept now stays pending, and is found again. */
#include "service/finish_pending.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"

struct pending_work {
    struct finish_pending *service;
    int64_t event_key;
    struct overdue_op overdue;
    struct settle_op settle;
    struct claim_settle_op claim_settle;
    size_t open; /* records that have not come back, and one for the submitter */
    size_t claims_done;
    uint64_t seqs[OVERDUE_MAX];
    bool kept[OVERDUE_MAX];
    struct enter_voiding {
        struct ledger_enter_void record;
        struct pending_work *of;
    } enters[OVERDUE_MAX];
    struct claim_voiding {
        struct ledger_hold_void record;
        struct pending_work *of;
    } claims[OVERDUE_MAX];
    struct uuid ids[OVERDUE_MAX];
};

static void pending_on_overdue(struct overdue_op *o);
static void pending_on_admitted(void *to, enum err result, size_t admitted);
static void pending_undo_enters(struct pending_work *t),
    pending_undo_claims(struct pending_work *t);
static void pending_on_enter_voided(struct task *task), pending_on_claim_voided(struct task *task);
static void pending_on_enters_settled(struct settle_op *s);
static void pending_on_claims_settled(struct claim_settle_op *s);

static struct hot_op pending_hot_op(const struct pending_work *t) {
    return (struct hot_op){.event_key = t->event_key, .now_ms = clock_wall_ms()};
}

static struct ledger_record pending_record(enum ledger_kind kind, void (*run)(struct task *)) {
    return (struct ledger_record){.kind = kind, .always = true, .task.run = run};
}

void finish_pending_check(struct finish_pending *service, int64_t event_key) {
    /* Not zeroed: most of it is not used. */
    struct pending_work *t = mem_grow(NULL, sizeof *t);
    t->service = service;
    t->event_key = event_key;
    t->overdue.op = pending_hot_op(t);
    t->overdue.older_ms = service->deadline_ms;
    t->overdue.done = pending_on_overdue;
    atomic_fetch_add(&service->under_way, 1);
    queues_overdue(service->room->queues, &t->overdue);
}

bool finish_pending_is_busy(struct finish_pending *t) {
    return atomic_load(&t->under_way) > 0;
}

static void pending_end(struct pending_work *t) {
    struct finish_pending *service = t->service;
    mem_free(t);
    atomic_fetch_sub(&service->under_way, 1);
}

static void pending_log(const struct pending_work *t) {
    const struct overdue_op *o = &t->overdue;
    char name[EVENT_PATH_BYTES] = "";
    catalogue_read_lock(t->service->catalogue);
    const struct event *e = catalogue_find_key(t->service->catalogue, t->event_key);
    if (e != NULL) event_path(str_of(e->type), str_of(e->id), name);
    catalogue_read_unlock(t->service->catalogue);
    log_warn(msg("finishing operations that a node left pending for too long; their users may have "
                 "got no answer"),
             kv("event", name), kv_i64("enters", (int64_t)o->enter_count),
             kv_i64("admissions", (int64_t)o->admission_count),
             kv_i64("claims", (int64_t)o->claim_count),
             kv_i64("expiries", (int64_t)o->expiry_count));
}

static void pending_on_overdue(struct overdue_op *o) {
    struct pending_work *t = CONTAINER_OF(o, struct pending_work, overdue);
    size_t found = o->enter_count + o->admission_count + o->claim_count + o->expiry_count;
    if (o->op.result != ERR_OK || found == 0) {
        pending_end(t);
        return;
    }
    pending_log(t);
    if (o->expiry_count > 0) {
        count(COUNT_HOT_FINISHED_EXPIRIES, o->expiry_count);
        waiting_room_expired(t->service->room, t->event_key, clock_wall_ms(), o->expiries,
                             o->expiry_count);
    }
    if (o->admission_count > 0)
        waiting_room_finish_admission(t->service->room, o, pending_on_admitted, t);
    else
        pending_undo_enters(t);
}

static void pending_on_admitted(void *to, enum err result, size_t admitted) {
    struct pending_work *t = to;
    (void)admitted;
    if (result != ERR_OK) {
        pending_end(t);
        return;
    }
    count(COUNT_HOT_FINISHED_ADMISSIONS, t->overdue.admission_count);
    pending_undo_enters(t);
}

/* One of several records: when it is refused, it counts as come back. */
static void pending_submit(struct pending_work *t, struct ledger_record *r) {
    enum err refused = ledger_submit(t->service->room->ledger, r);
    if (refused == ERR_OK) return;
    r->result = refused;
    t->open--;
}

/* ---- enters ---- */

static void pending_enter_done(struct pending_work *t) {
    if (--t->open > 0) return;
    size_t settled = 0;
    for (size_t i = 0; i < t->overdue.enter_count; i++) {
        const struct ledger_enter_void *v = &t->enters[i].record;
        if (v->record.result != ERR_OK) continue;
        t->seqs[settled] = v->seq;
        t->kept[settled++] = !v->voided;
    }
    if (settled == 0) {
        pending_undo_claims(t);
        return;
    }
    count(COUNT_HOT_FINISHED_ENTERS, settled);
    t->settle = (struct settle_op){.op = pending_hot_op(t),
                                   .seqs = t->seqs,
                                   .kept = t->kept,
                                   .count = settled,
                                   .done = pending_on_enters_settled};
    queues_settle(t->service->room->queues, &t->settle);
}

static void pending_undo_enters(struct pending_work *t) {
    t->open = t->overdue.enter_count + 1;
    for (size_t i = 0; i < t->overdue.enter_count; i++) {
        struct enter_voiding *v = &t->enters[i];
        v->of = t;
        v->record = (struct ledger_enter_void){
            .record = pending_record(LEDGER_ENTER_VOID, pending_on_enter_voided),
            .event_key = t->event_key,
            .seq = t->overdue.enters[i],
            .now_ms = clock_wall_ms()};
        pending_submit(t, &v->record.record);
    }
    pending_enter_done(t);
}

static void pending_on_enter_voided(struct task *task) {
    pending_enter_done(CONTAINER_OF(task, struct enter_voiding, record.record.task)->of);
}

static void pending_on_enters_settled(struct settle_op *s) {
    pending_undo_claims(CONTAINER_OF(s, struct pending_work, settle));
}

/* ---- claims ---- */

static int pending_by_section(const void *a, const void *b) {
    int64_t left = ((const struct claim_ref *)a)->section_key;
    int64_t right = ((const struct claim_ref *)b)->section_key;
    return left < right ? -1 : left > right;
}

/* Those of one section are settled together. */
static void pending_settle_claims(struct pending_work *t) {
    size_t settled = 0;
    int64_t section_key = 0;
    for (; t->claims_done < t->overdue.claim_count; t->claims_done++) {
        const struct ledger_hold_void *v = &t->claims[t->claims_done].record;
        if (v->record.result != ERR_OK) continue;
        if (settled > 0 && v->section_key != section_key) break;
        section_key = v->section_key;
        t->ids[settled] = v->id;
        t->kept[settled++] = !v->voided;
    }
    if (settled == 0) {
        pending_end(t);
        return;
    }
    count(COUNT_HOT_FINISHED_CLAIMS, settled);
    t->claim_settle = (struct claim_settle_op){.op = pending_hot_op(t),
                                               .section_key = section_key,
                                               .ids = t->ids,
                                               .kept = t->kept,
                                               .count = settled,
                                               .done = pending_on_claims_settled};
    seats_settle(t->service->seats, &t->claim_settle);
}

static void pending_on_claims_settled(struct claim_settle_op *s) {
    pending_settle_claims(CONTAINER_OF(s, struct pending_work, claim_settle));
}

static void pending_claim_done(struct pending_work *t) {
    if (--t->open == 0) pending_settle_claims(t);
}

static void pending_undo_claims(struct pending_work *t) {
    size_t count_of = t->overdue.claim_count;
    if (count_of > 0)
        qsort(t->overdue.claims, count_of, sizeof *t->overdue.claims, pending_by_section);
    t->claims_done = 0;
    t->open = count_of + 1;
    for (size_t i = 0; i < count_of; i++) {
        struct claim_voiding *v = &t->claims[i];
        v->of = t;
        v->record = (struct ledger_hold_void){
            .record = pending_record(LEDGER_HOLD_VOID, pending_on_claim_voided),
            .id = t->overdue.claims[i].id,
            .event_key = t->event_key,
            .section_key = t->overdue.claims[i].section_key,
            .now_ms = clock_wall_ms()};
        pending_submit(t, &v->record.record);
    }
    pending_claim_done(t);
}

static void pending_on_claim_voided(struct task *task) {
    pending_claim_done(CONTAINER_OF(task, struct claim_voiding, record.record.task)->of);
}
