#include "seat_shop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sync_recorder.h"
#include "wall_clock.h"

const enum section_mode shop_modes[SHOP_SECTIONS] = {[SHOP_SLOT] = SECTION_MODE_SLOT,
                                                     [SHOP_LOCK] = SECTION_MODE_LOCK,
                                                     [SHOP_ADAPTIVE] = SECTION_MODE_ADAPTIVE,
                                                     [SHOP_SEAT] = SECTION_MODE_SEAT};

int shop_set_up(void **state) {
    struct shop *s = mem_new(sizeof *s);
    wall_clock_set(clock_wall_ms());
    struct event *e = test_event("1", SHOP_SECTIONS);
    e->queue = (struct queue_rules){.max_waiting = 100,
                                    .max_active = 1000,
                                    .entry_batch_size = 100000,
                                    .entry_interval_s = 1,
                                    .active_ttl_s = 86400,
                                    .grace_s = 300};
    e->hold_s = SHOP_HOLD_MS / 1000;
    e->max_per_user = SHOP_PER_USER;
    for (size_t i = 0; i < SHOP_SECTIONS; i++) {
        e->sections[i].capacity = SHOP_SEATS;
        e->sections[i].mode = shop_modes[i];
    }
    house_build_event(&s->house, e);
    mem_free(e);
    *state = s;
    return 0;
}

int shop_tear_down(void **state) {
    struct shop *s = *state;
    sync_gate_open();
    sync_fail_syncs(0);
    house_wait_idle(&s->house);
    house_assert_agreement(&s->house);
    house_tear_down(&s->house);
    wall_clock_release();
    mem_free(s);
    return 0;
}

void shop_make_faulty(struct shop *s) {
    faulty_ledger_init(&s->faulty, s->house.ledger, 0);
    s->house.reservations.ledger = &s->faulty.ledger;
    s->house.room.ledger = &s->faulty.ledger;
}

size_t shop_section_of(enum strategy s) {
    for (size_t i = 0; i < SHOP_SECTIONS; i++)
        if (strategy_fits(shop_modes[i], s)) return i;
    fail_msg("no section has the strategy");
    return 0;
}

int64_t shop_trace(struct shop *s) {
    return raw_number(&s->house.h,
                      "SELECT (SELECT count(*) FROM reservations) * 1000000"
                      " + (SELECT count(*) FROM facts) * 10000"
                      " + (SELECT coalesce(sum(version), 0) FROM seats) * 100"
                      " + (SELECT coalesce(sum(seat_count * iif(status = 'HELD', 2, 1)), 0)"
                      "    FROM reservations WHERE status IN ('HELD', 'CONFIRMED'))"
                      " + (SELECT sum(held + confirmed) FROM sections)"
                      " + (SELECT count(*) FROM idempotency)");
}

int64_t shop_rows(struct shop *s, const char *status) {
    return raw_number(&s->house.h, "SELECT count(*) FROM reservations WHERE status = '%s'", status);
}

struct wish shop_named(enum strategy s, const char *user, uint64_t seq, const uint32_t *seats) {
    return (struct wish){
        .user = user, .seq = seq, .section = shop_section_of(s), .strategy = s, .seats = seats};
}

struct wish shop_any(enum strategy s, const char *user, uint64_t seq, uint32_t quantity) {
    return (struct wish){.user = user,
                         .seq = seq,
                         .section = shop_section_of(s),
                         .strategy = s,
                         .quantity = quantity};
}

enum err shop_hold(struct shop *s, struct wish w) {
    return house_hold(&s->house, &w, NULL);
}

struct uuid shop_held(struct shop *s, struct wish w) {
    return house_held(&s->house, &w);
}
