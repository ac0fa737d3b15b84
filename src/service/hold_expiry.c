/* The expiry of holds: ask the hot store which are due, expire them in the ledger, have the hot
 * store follow, and repair those that the ledger did not expire. A callback stands below the call
 * that it answers. */
#include "service/hold_expiry.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"

/* Holds that one record expires. */
#define EXPIRE_MAX 64

struct hold_expiry {
    struct reservations *service;
    int64_t event_key;
    struct due_op due;
    struct claim_ref refs[EXPIRE_MAX]; /* the due ones */
    struct uuid ids[EXPIRE_MAX];
    bool expired[EXPIRE_MAX];
    struct ledger_expire record;
    size_t at;                        /* the next of those that the ledger has not expired */
    struct reservation_repair repair; /* of the one before `at` */
    struct reservation_change changes[EXPIRE_MAX];
    struct follow_op follow;
};

static struct hold_expiry *hold_expiry_new(struct reservations *r, int64_t event_key) {
    /* Not zeroed: most of it is not used. */
    struct hold_expiry *x = mem_grow(NULL, sizeof *x);
    x->service = r;
    x->event_key = event_key;
    x->due.count = 0;
    atomic_fetch_add(&r->under_way, 1);
    return x;
}

/* When as many were due as fit, there may be more. */
static void hold_expiry_end(struct hold_expiry *x) {
    struct reservations *r = x->service;
    bool more = x->due.count == EXPIRE_MAX;
    int64_t event_key = x->event_key;
    mem_free(x);
    if (more) hold_expiry_tick(r, event_key);
    atomic_fetch_sub(&r->under_way, 1);
}

static void hold_expiry_on_due(struct due_op *d);
static void hold_expiry_submit(struct hold_expiry *x, size_t n);
static void hold_expiry_on_written(struct task *task);
static void hold_expiry_singly(struct hold_expiry *x);
static void hold_expiry_on_followed(struct follow_op *f);
static void hold_expiry_repair_others(struct hold_expiry *x);
static void hold_expiry_on_other_repaired(struct reservation_repair *r);

void hold_expiry_tick(struct reservations *r, int64_t event_key) {
    struct hold_expiry *x = hold_expiry_new(r, event_key);
    x->due = (struct due_op){.op = {.event_key = event_key, .now_ms = clock_wall_ms()},
                             .refs = x->refs,
                             .max = EXPIRE_MAX,
                             .done = hold_expiry_on_due};
    seats_due(r->seats, &x->due);
}

static void hold_expiry_on_due(struct due_op *d) {
    struct hold_expiry *x = CONTAINER_OF(d, struct hold_expiry, due);
    if (d->op.result == ERR_OK && d->count > 0)
        hold_expiry_submit(x, d->count);
    else
        hold_expiry_end(x);
}

static void hold_expiry_submit(struct hold_expiry *x, size_t n) {
    for (size_t i = 0; i < n; i++) x->ids[i] = x->refs[i].id;
    x->record = (struct ledger_expire){
        .record = {.kind = LEDGER_EXPIRE, .always = true, .task.run = hold_expiry_on_written},
        .now_ms = clock_wall_ms(),
        .ids = x->ids,
        .count = n,
        .expired = x->expired};
    if (ledger_submit(x->service->ledger, &x->record.record) != ERR_OK) hold_expiry_end(x);
}

static void hold_expiry_on_written(struct task *task) {
    struct hold_expiry *x = CONTAINER_OF(task, struct hold_expiry, record.record.task);
    if (x->record.record.result != ERR_OK) {
        hold_expiry_singly(x);
        return;
    }
    size_t changes = 0;
    for (size_t i = 0; i < x->record.count; i++)
        if (x->expired[i])
            x->changes[changes++] =
                (struct reservation_change){.id = x->ids[i],
                                            .section_key = x->refs[i].section_key,
                                            .status = RESERVATION_EXPIRED};
    count(COUNT_RESERVATION_EXPIRIES, changes);
    x->at = 0;
    x->follow = (struct follow_op){.op = {.event_key = x->event_key, .now_ms = clock_wall_ms()},
                                   .changes = x->changes,
                                   .count = changes,
                                   .done = hold_expiry_on_followed};
    seats_follow(x->service->seats, &x->follow);
}

/* One row that can't be written must not keep the others: each is tried by itself. The hot store
 * reports those that still fail as due again after a while. */
static void hold_expiry_singly(struct hold_expiry *x) {
    struct ledger_health health;
    ledger_health(x->service->ledger, &health);
    for (size_t i = 0; health.writable && x->record.count > 1 && i < x->record.count; i++) {
        struct hold_expiry *one = hold_expiry_new(x->service, x->event_key);
        one->refs[0] = x->refs[i];
        hold_expiry_submit(one, 1);
    }
    x->due.count = 0;
    hold_expiry_end(x);
}

static void hold_expiry_on_followed(struct follow_op *f) {
    hold_expiry_repair_others(CONTAINER_OF(f, struct hold_expiry, follow));
}

/* Holds that are due in the hot store and were not HELD in the ledger: the notification of their
 * end was lost, or comes soon. Following it twice does no harm. */
static void hold_expiry_repair_others(struct hold_expiry *x) {
    while (x->at < x->record.count && x->expired[x->at]) x->at++;
    if (x->at == x->record.count) {
        hold_expiry_end(x);
        return;
    }
    const struct claim_ref *other = &x->refs[x->at++];
    x->repair = (struct reservation_repair){.id = other->id,
                                            .event_key = x->event_key,
                                            .section_key = other->section_key,
                                            .done = hold_expiry_on_other_repaired};
    if (repair_reservation(x->service->ledger, x->service->seats, &x->repair) != ERR_OK)
        hold_expiry_end(x);
}

/* Its place in the queue may have ended with it, and that notification was lost as well. */
static void hold_expiry_on_other_repaired(struct reservation_repair *r) {
    struct hold_expiry *x = CONTAINER_OF(r, struct hold_expiry, repair);
    if (r->found != NULL && r->found->status != RESERVATION_HELD)
        repair_queue_add(&x->service->room->repairs, x->event_key, r->found->entry_seq, false);
    hold_expiry_repair_others(x);
}
