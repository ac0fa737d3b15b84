#include "service/lock_client.h"

#include <assert.h>
#include <sys/random.h>

#include "base/clock.h"

/* How often those who rest and those who wait are looked at. */
#define REST_TICK_MS 1
#define WATCH_TICK_MS 20
/* A lock is renewed when this part of its lease is over. */
#define RENEW_PART 3

/* As often as what is looked after needs it, and not at all for nothing. A pace that stays is not
 * begun anew: else a busy lock_client would never tick. */
static void set_pace(struct lock_client *d) {
    bool watches = !list_empty(&d->held) || d->waiting > 0;
    int64_t pace_ms = !list_empty(&d->resting) ? REST_TICK_MS : watches ? WATCH_TICK_MS : 0;
    if (pace_ms == d->pace_ms) return;
    d->pace_ms = pace_ms;
    if (pace_ms > 0)
        ticker_start(&d->ticker, pace_ms);
    else
        ticker_stop(&d->ticker);
}

/* ---- locks ---- */

static void on_acquired(struct lock_op *op) {
    struct held_lock *k = CONTAINER_OF(op, struct held_lock, acquire);
    struct lock_client *d = k->lock_client;
    d->waiting--;
    k->acquired_ns = clock_steady_ns();
    if (op->result == ERR_OK && op->outcome == LOCK_ACQUIRED) {
        k->renewed_ms = clock_steady_ms();
        list_move_last(&d->held, &k->link);
    }
    set_pace(d);
    k->done(k);
}

void lock_client_acquire(struct lock_client *d, struct held_lock *k) {
    k->lock_client = d;
    k->renewing = false;
    k->released = false;
    list_init(&k->link);
    k->asked_ns = clock_steady_ns();
    k->acquire.now_ms = clock_steady_ms();
    k->acquire.lease_ms = d->lease_ms;
    k->acquire.done = on_acquired;
    if (d->stopping) k->acquire.wait_ms_max = 0;
    d->waiting++;
    set_pace(d);
    locks_acquire(d->locks, &k->acquire);
}

/* Lost or not: if it was, the ledger has refused what came too late. */
static void on_released(struct lock_hold_op *op) {
    struct held_lock *k = CONTAINER_OF(op, struct held_lock, release);
    k->released = true;
    if (!k->renewing) k->done(k);
}

void lock_client_release(struct held_lock *k) {
    struct lock_client *d = k->lock_client;
    list_remove(&k->link);
    set_pace(d);
    k->release = (struct lock_hold_op){.name = k->acquire.name,
                                       .fence = k->acquire.fence,
                                       .now_ms = clock_steady_ms(),
                                       .done = on_released};
    locks_release(d->locks, &k->release);
}

int64_t held_lock_waited_us(const struct held_lock *k) {
    return (k->acquired_ns - k->asked_ns) / 1000;
}

int64_t held_lock_held_us(const struct held_lock *k) {
    return (clock_steady_ns() - k->acquired_ns) / 1000;
}

static void on_renewed(struct lock_hold_op *op) {
    struct held_lock *k = CONTAINER_OF(op, struct held_lock, renewal);
    k->renewing = false;
    if (k->released) k->done(k);
}

static void renew_held(struct lock_client *d, int64_t now_ms) {
    for (struct list *at = d->held.next; at != &d->held;) {
        struct held_lock *k = CONTAINER_OF(at, struct held_lock, link);
        at = at->next;
        if (k->renewing || now_ms - k->renewed_ms < d->lease_ms / RENEW_PART) continue;
        k->renewing = true;
        k->renewed_ms = now_ms;
        k->renewal = (struct lock_hold_op){.name = k->acquire.name,
                                           .fence = k->acquire.fence,
                                           .now_ms = now_ms,
                                           .lease_ms = d->lease_ms,
                                           .done = on_renewed};
        locks_renew(d->locks, &k->renewal);
    }
}

/* ---- rests ---- */

uint64_t lock_client_random(struct lock_client *d) {
    /* xorshift64: only to keep apart who would meet again. */
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random;
}

void lock_client_delay(struct lock_client *d, struct retry_delay *r, int64_t ms_max) {
    int64_t us = (int64_t)(lock_client_random(d) % (uint64_t)(ms_max * 1000 + 1));
    r->until_ns = clock_steady_ns() + us * 1000;
    list_init(&r->link);
    list_move_last(&d->resting, &r->link);
    set_pace(d);
}

/* Those who are done may rest again at once; they are behind the mark then. */
static void wake_rested(struct lock_client *d) {
    struct list woken;
    list_init(&woken);
    int64_t now_ns = clock_steady_ns();
    for (struct list *at = d->resting.next; at != &d->resting;) {
        struct retry_delay *r = CONTAINER_OF(at, struct retry_delay, link);
        at = at->next;
        if (r->until_ns <= now_ns) list_move_last(&woken, &r->link);
    }
    while (!list_empty(&woken)) {
        struct retry_delay *r = CONTAINER_OF(woken.next, struct retry_delay, link);
        list_remove(&r->link);
        r->done(r);
    }
}

/* ---- start and stop ---- */

static void on_tick(void *to) {
    struct lock_client *d = to;
    int64_t now_ms = clock_steady_ms();
    renew_held(d, now_ms);
    if (!list_empty(&d->held) || d->waiting > 0) locks_tick(d->locks, now_ms);
    wake_rested(d);
    set_pace(d);
}

void lock_client_init(struct lock_client *d, uv_loop_t *loop) {
    assert(d->lease_ms > RENEW_PART);
    list_init(&d->choosing);
    list_init(&d->held);
    list_init(&d->resting);
    ssize_t got = getrandom(&d->random, sizeof d->random, 0);
    assert(got == sizeof d->random);
    d->random |= 1; /* never 0, where xorshift would stay */
    ticker_init(&d->ticker, loop, on_tick, d);
}

void lock_client_drain(struct lock_client *d) {
    d->stopping = true;
    locks_give_up(d->locks);
}

void lock_client_close(struct lock_client *d) {
    assert(list_empty(&d->choosing) && list_empty(&d->held) && list_empty(&d->resting) &&
           d->waiting == 0);
    ticker_close(&d->ticker);
}
