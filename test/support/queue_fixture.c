#include "queue_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"

void queue_fixture_open(struct queue_fixture *r) {
    r->swept_ms = 0;
    r->config = (struct queue_config){
        .version = 1,
        .hours = {.state = EVENT_OPEN, .opens_at_ms = CLOCK_NONE_MS, .closes_at_ms = CLOCK_NONE_MS},
        .rules = {.max_waiting = 100000,
                  .max_active = 100,
                  .entry_batch_size = 50,
                  .entry_interval_s = 1,
                  .active_ttl_s = 600,
                  .grace_s = 300}};
    r->q = queue_new(&r->config);
}

void queue_fixture_configure(struct queue_fixture *r) {
    r->config.version++;
    queue_configure(r->q, &r->config);
}

void queue_fixture_set_state(struct queue_fixture *r, enum event_state state) {
    r->config.hours.state = state;
    queue_fixture_configure(r);
}

void queue_fixture_close(struct queue_fixture *r) {
    queue_free(r->q);
}

uint64_t enter_pending(struct queue_fixture *r, const char *user, unsigned lane, int64_t now_ms) {
    struct place p;
    assert_int_equal(queue_enter(r->q, str_of(user), lane, now_ms, &p), ENTER_TAKEN);
    assert_true(p.pending);
    return p.seq;
}

uint64_t enter(struct queue_fixture *r, const char *user, unsigned lane, int64_t now_ms) {
    uint64_t seq = enter_pending(r, user, lane, now_ms);
    queue_settle_enter(r->q, seq, true);
    return seq;
}

void enter_waiting(struct queue_fixture *r, int count) {
    queue_fixture_set_state(r, EVENT_PAUSED);
    for (int i = 1; i <= count; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        enter(r, user, LANE_DEFAULT, T0);
    }
    queue_fixture_set_state(r, EVENT_OPEN);
}

struct place look(const struct queue_fixture *r, uint64_t seq, int64_t now_ms) {
    struct place p;
    assert_true(queue_look(r->q, seq, now_ms, &p));
    assert_int_equal(p.seq, seq);
    assert_int_equal(p.position, queue_position(r->q, seq));
    if (p.position > 0) assert_int_equal(p.estimate_s, queue_estimate_s(r->q, p.position));
    return p;
}

enum entry_status status_of(const struct queue_fixture *r, uint64_t seq, int64_t now_ms) {
    return look(r, seq, now_ms).status;
}

struct entry_change changes[ADMIT_MAX];

size_t admit_some(struct queue_fixture *r, int64_t now_ms, size_t max) {
    size_t count = queue_admit(r->q, now_ms, changes, max);
    for (size_t i = 0; i < count; i++) queue_settle_admit(r->q, changes[i].seq, true);
    return count;
}

size_t admit(struct queue_fixture *r, int64_t now_ms) {
    return admit_some(r, now_ms, ADMIT_MAX);
}

void tick_until(struct queue_fixture *r, int64_t now_ms) {
    if (r->swept_ms == 0) r->swept_ms = T0;
    for (; r->swept_ms < now_ms; r->swept_ms += SECOND)
        queue_sweep(r->q, r->swept_ms, 0, changes, 0);
    r->swept_ms = now_ms;
}

size_t sweep(struct queue_fixture *r, int64_t now_ms) {
    tick_until(r, now_ms);
    return queue_sweep(r->q, now_ms, 100000, changes, ADMIT_MAX);
}

void assert_counts(const struct queue_fixture *r, uint64_t waiting, uint64_t active) {
    struct queue_counts c = queue_counts(r->q);
    assert_int_equal(c.waiting, waiting);
    assert_int_equal(c.active, active);
}
