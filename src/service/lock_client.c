/* The locks and retry delays of one worker's requests, and the timer that renews the locks and ends
 * the delays. The locks themselves are in the hot store (port/locks.h). */
#include "service/lock_client.h"

#include <assert.h>
#include <sys/random.h>

#include "base/clock.h"

/* How often the timer ticks while requests are delayed, and while locks are held or waited for. */
#define DELAY_TICK_MS 1
#define LOCK_TICK_MS 20
/* A lock is renewed when this part of its lease is over. */
#define RENEW_PART 3

/* A pace that stays the same is not set again: that would restart the timer, and a busy lock_client
 * would never tick. */
static void lock_client_set_pace(struct lock_client *c) {
    bool has_locks = !list_empty(&c->held) || c->waiting > 0;
    int64_t pace_ms = !list_empty(&c->delayed) ? DELAY_TICK_MS : has_locks ? LOCK_TICK_MS : 0;
    if (pace_ms == c->pace_ms) return;
    c->pace_ms = pace_ms;
    if (pace_ms > 0)
        ticker_start(&c->ticker, pace_ms);
    else
        ticker_stop(&c->ticker);
}

/* ---- locks ---- */

static void lock_client_on_acquired(struct lock_op *op);
static void lock_client_on_released(struct lock_hold_op *op);
static void lock_client_on_renewed(struct lock_hold_op *op);

void lock_client_acquire(struct lock_client *c, struct held_lock *k) {
    k->client = c;
    k->renewing = false;
    k->released = false;
    list_init(&k->link);
    k->asked_ns = clock_steady_ns();
    k->acquire.now_ms = clock_steady_ms();
    k->acquire.lease_ms = c->lease_ms;
    k->acquire.done = lock_client_on_acquired;
    if (c->stopping) k->acquire.wait_ms_max = 0;
    c->waiting++;
    lock_client_set_pace(c);
    locks_acquire(c->locks, &k->acquire);
}

static void lock_client_on_acquired(struct lock_op *op) {
    struct held_lock *k = CONTAINER_OF(op, struct held_lock, acquire);
    struct lock_client *c = k->client;
    c->waiting--;
    k->acquired_ns = clock_steady_ns();
    if (op->result == ERR_OK && op->outcome == LOCK_ACQUIRED) {
        k->renewed_ms = clock_steady_ms();
        list_move_last(&c->held, &k->link);
    }
    lock_client_set_pace(c);
    k->done(k);
}

void lock_client_release(struct held_lock *k) {
    list_remove(&k->link);
    lock_client_set_pace(k->client);
    k->release = (struct lock_hold_op){.name = k->acquire.name,
                                       .fence = k->acquire.fence,
                                       .now_ms = clock_steady_ms(),
                                       .done = lock_client_on_released};
    locks_release(k->client->locks, &k->release);
}

/* Whether the lock was lost does not matter: then the ledger has refused the late write. */
static void lock_client_on_released(struct lock_hold_op *op) {
    struct held_lock *k = CONTAINER_OF(op, struct held_lock, release);
    k->released = true;
    if (!k->renewing) k->done(k);
}

static void lock_client_renew(struct lock_client *c, int64_t now_ms) {
    for (struct list *at = c->held.next; at != &c->held;) {
        struct held_lock *k = CONTAINER_OF(at, struct held_lock, link);
        at = at->next;
        if (k->renewing || now_ms - k->renewed_ms < c->lease_ms / RENEW_PART) continue;
        k->renewing = true;
        k->renewed_ms = now_ms;
        k->renewal = (struct lock_hold_op){.name = k->acquire.name,
                                           .fence = k->acquire.fence,
                                           .now_ms = now_ms,
                                           .lease_ms = c->lease_ms,
                                           .done = lock_client_on_renewed};
        locks_renew(c->locks, &k->renewal);
    }
}

static void lock_client_on_renewed(struct lock_hold_op *op) {
    struct held_lock *k = CONTAINER_OF(op, struct held_lock, renewal);
    k->renewing = false;
    if (k->released) k->done(k);
}

int64_t held_lock_waited_us(const struct held_lock *k) {
    return (k->acquired_ns - k->asked_ns) / 1000;
}

int64_t held_lock_held_us(const struct held_lock *k) {
    return (clock_steady_ns() - k->acquired_ns) / 1000;
}

/* ---- delays ---- */

uint64_t lock_client_random(struct lock_client *c) {
    /* xorshift64: only to keep requests apart that would meet again. */
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

void lock_client_delay(struct lock_client *c, struct retry_delay *r, int64_t ms_max) {
    int64_t us = (int64_t)(lock_client_random(c) % (uint64_t)(ms_max * 1000 + 1));
    r->until_ns = clock_steady_ns() + us * 1000;
    list_init(&r->link);
    list_move_last(&c->delayed, &r->link);
    lock_client_set_pace(c);
}

/* A request may be delayed again by its `done`; it then waits for the next tick. */
static void lock_client_end_delays(struct lock_client *c) {
    struct list over;
    list_init(&over);
    int64_t now_ns = clock_steady_ns();
    for (struct list *at = c->delayed.next; at != &c->delayed;) {
        struct retry_delay *r = CONTAINER_OF(at, struct retry_delay, link);
        at = at->next;
        if (r->until_ns <= now_ns) list_move_last(&over, &r->link);
    }
    while (!list_empty(&over)) {
        struct retry_delay *r = CONTAINER_OF(over.next, struct retry_delay, link);
        list_remove(&r->link);
        r->done(r);
    }
}

/* ---- start and stop ---- */

static void lock_client_on_tick(void *to) {
    struct lock_client *c = to;
    int64_t now_ms = clock_steady_ms();
    lock_client_renew(c, now_ms);
    if (!list_empty(&c->held) || c->waiting > 0) locks_tick(c->locks, now_ms);
    lock_client_end_delays(c);
    lock_client_set_pace(c);
}

void lock_client_init(struct lock_client *c, uv_loop_t *loop) {
    assert(c->lease_ms > RENEW_PART);
    list_init(&c->choosing);
    list_init(&c->held);
    list_init(&c->delayed);
    ssize_t got = getrandom(&c->random, sizeof c->random, 0);
    assert(got == sizeof c->random);
    c->random |= 1; /* never 0, where xorshift would stay */
    ticker_init(&c->ticker, loop, lock_client_on_tick, c);
}

void lock_client_drain(struct lock_client *c) {
    c->stopping = true;
    locks_give_up(c->locks);
}

void lock_client_close(struct lock_client *c) {
    assert(list_empty(&c->choosing) && list_empty(&c->held) && list_empty(&c->delayed) &&
           c->waiting == 0);
    ticker_close(&c->ticker);
}
