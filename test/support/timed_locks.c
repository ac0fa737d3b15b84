#include "timed_locks.h"

#include <assert.h>

#include "base/list.h"

static struct timed_locks *timed_of(struct locks *l) {
    return CONTAINER_OF(l, struct timed_locks, locks);
}

static void acquire(struct locks *l, struct lock_op *op) {
    struct timed_locks *t = timed_of(l);
    op->now_ms = t->now_ms;
    locks_acquire(t->real, op);
}

static void renew_now(struct timed_locks *t, struct lock_hold_op *op) {
    op->now_ms = t->now_ms;
    locks_renew(t->real, op);
}

static void renew(struct locks *l, struct lock_hold_op *op) {
    struct timed_locks *t = timed_of(l);
    t->renewals++;
    if (!t->is_late) {
        renew_now(t, op);
        return;
    }
    assert(t->unanswered == NULL);
    t->unanswered = op;
}

static void release(struct locks *l, struct lock_hold_op *op) {
    struct timed_locks *t = timed_of(l);
    op->now_ms = t->now_ms;
    locks_release(t->real, op);
}

static void tick(struct locks *l, int64_t now_ms) {
    struct timed_locks *t = timed_of(l);
    (void)now_ms;
    locks_tick(t->real, t->now_ms);
}

static void give_up(struct locks *l) {
    locks_give_up(timed_of(l)->real);
}

static const struct locks_ops timed_ops = {
    .acquire = acquire, .renew = renew, .release = release, .tick = tick, .give_up = give_up};

void timed_locks_init(struct timed_locks *t, struct locks *real) {
    *t = (struct timed_locks){.locks.ops = &timed_ops, .real = real};
}

struct patience {
    const struct timed_locks *locks;
    int renewals;
};

static bool has_renewed(void *arg) {
    const struct patience *p = arg;
    return p->locks->renewals >= p->renewals;
}

void timed_locks_wait_for_renewals(struct timed_locks *t, struct harness *h, int more) {
    struct patience p = {t, t->renewals + more};
    harness_wait(h, has_renewed, &p);
}

void timed_locks_answer(struct timed_locks *t) {
    struct lock_hold_op *op = t->unanswered;
    assert(op != NULL);
    t->unanswered = NULL;
    renew_now(t, op);
}
