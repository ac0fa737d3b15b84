/* The use cases of seats on the real ledger and the real hot store: what each strategy does, what
 * it refuses, and what is left when the two stores disagree. After every test they agree. */
#include "service/reservations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "seat_shop.h"
#include "sync_recorder.h"
#include "wall_clock.h"

static const char *map_of(struct shop *s, enum strategy strategy) {
    return house_map(&s->house, shop_section_of(strategy));
}

/* ---- what each strategy does ---- */

static void assert_held(const struct reservation *r, const struct wish *w) {
    assert_int_equal(r->status, RESERVATION_HELD);
    assert_int_equal(r->strategy, w->strategy);
    assert_int_equal(r->entry_seq, w->seq);
    assert_int_equal(r->seat_count, 2);
    assert_int_equal(r->seats[0], 2);
    assert_int_equal(r->seats[1], 4);
    assert_int_equal(r->price, 2 * 150000);
    assert_string_equal(r->currency, "KRW");
    assert_string_equal(r->user, w->user);
    assert_int_equal(r->created_ms, clock_wall_ms());
    assert_int_equal(r->expires_ms, clock_wall_ms() + SHOP_HOLD_MS);
}

static void confirm_twice(struct shop *s, const struct uuid *id) {
    struct reservation *once;
    struct reservation *twice;
    assert_int_equal(house_confirm(&s->house, id, "ann", &once), ERR_OK);
    assert_int_equal(once->status, RESERVATION_CONFIRMED);
    assert_int_equal(strlen(once->confirmation_code), CONFIRMATION_CODE_CHARS);
    int64_t trace = shop_trace(s);
    assert_int_equal(house_confirm(&s->house, id, "ann", &twice), ERR_OK);
    assert_string_equal(twice->confirmation_code, once->confirmation_code);
    assert_int_equal(shop_trace(s), trace);
    mem_free(once);
    mem_free(twice);
}

static void cancel_twice(struct shop *s, const struct uuid *id) {
    assert_int_equal(house_cancel(&s->house, id, "ann", NULL), ERR_OK);
    int64_t trace = shop_trace(s);
    assert_int_equal(house_cancel(&s->house, id, "ann", NULL), ERR_OK);
    assert_int_equal(house_confirm(&s->house, id, "ann", NULL), ERR_RESERVATION_ENDED);
    assert_int_equal(shop_trace(s), trace);
}

static void every_strategy_holds_and_what_is_held_is_confirmed_and_given_back(void **state) {
    struct shop *s = *state;
    FOR_EACH_STRATEGY(strategy) {
        size_t section = shop_section_of(strategy);
        uint64_t ann = house_let_in(&s->house, "ann");
        struct wish w = shop_named(strategy, "ann", ann, SEATS(2, 4));
        struct reservation *r;
        assert_int_equal(house_hold(&s->house, &w, &r), ERR_OK);
        assert_held(r, &w);
        assert_string_equal(house_map(&s->house, section), "AHAHAA");
        house_assert_agreement(&s->house);
        confirm_twice(s, &r->id);
        assert_string_equal(house_map(&s->house, section), "ACACAA");
        assert_int_equal(house_place(&s->house, ann, clock_wall_ms()).status, ENTRY_COMPLETED);
        house_assert_agreement(&s->house);
        cancel_twice(s, &r->id); /* trap 27 */
        assert_string_equal(house_map(&s->house, section), SHOP_FREE);
        house_assert_agreement(&s->house);
        mem_free(r);
    }
}

static void who_holds_more_stays_active_until_the_last_is_confirmed_trap_11(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    struct uuid first = shop_held(s, shop_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid second = shop_held(s, shop_any(STRATEGY_OPTIMISTIC, "ann", ann, 1));
    struct uuid third = shop_held(s, shop_any(STRATEGY_LOCK, "ann", ann, 1));
    assert_int_equal(house_confirm(&s->house, &first, "ann", NULL), ERR_OK);
    assert_int_equal(house_place(&s->house, ann, clock_wall_ms()).status, ENTRY_ACTIVE);
    assert_int_equal(house_cancel(&s->house, &second, "ann", NULL), ERR_OK); /* keeps the place */
    assert_int_equal(house_place(&s->house, ann, clock_wall_ms()).status, ENTRY_ACTIVE);
    assert_int_equal(house_confirm(&s->house, &third, "ann", NULL), ERR_OK);
    assert_int_equal(house_place(&s->house, ann, clock_wall_ms()).status, ENTRY_COMPLETED);
    assert_int_equal(house_counts(&s->house).active, 0);
}

static void nobody_decides_about_what_is_somebody_elses_trap_25(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    struct uuid id = shop_held(s, shop_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid none = id;
    none.bytes[15] ^= 1;
    int64_t trace = shop_trace(s);
    assert_int_equal(house_confirm(&s->house, &id, "bob", NULL), ERR_NOT_YOURS);
    assert_int_equal(house_cancel(&s->house, &id, "bob", NULL), ERR_NOT_YOURS);
    assert_int_equal(house_confirm(&s->house, &none, "ann", NULL), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(house_cancel(&s->house, &none, "ann", NULL), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(shop_trace(s), trace);
    assert_string_equal(house_map(&s->house, SHOP_SLOT), "HAAAAA");
}

/* ---- what is refused ---- */

/* Nothing changes in either store; the seats that stood in the way are told. */
static void assert_refused(struct shop *s, struct wish w, enum err why,
                           const uint32_t *in_the_way) {
    int64_t trace = shop_trace(s);
    char map[HOUSE_SEATS_MAX + 1];
    snprintf(map, sizeof map, "%s", house_map(&s->house, w.section));
    struct house_hold x;
    house_hold_prepare(&s->house, &x, &w);
    house_hold_start(&s->house, &s->house.desk, &x);
    harness_wait(&s->house.h, house_hold_is_back, &x);
    assert_int_equal(x.result, why);
    size_t told = 0;
    while (in_the_way != NULL && in_the_way[told] != 0) {
        assert_true(told < x.holding.refused_count);
        assert_int_equal(x.holding.refused[told], in_the_way[told]);
        told++;
    }
    if (in_the_way != NULL) assert_int_equal(x.holding.refused_count, told);
    house_hold_end(&x);
    assert_string_equal(house_map(&s->house, w.section), map);
    assert_int_equal(shop_trace(s), trace);
}

static void seats_that_are_taken_are_refused_all_or_none_trap_24(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    FOR_EACH_STRATEGY(strategy) {
        uint64_t bob = house_let_in(&s->house, "bob");
        struct uuid id = shop_held(s, shop_named(strategy, "bob", bob, SEATS(1, 3)));
        struct wish w = shop_named(strategy, "ann", ann, SEATS(1));
        assert_refused(s, w, ERR_SEAT_TAKEN, SEATS(1));
        w.seats = SEATS(1, 2, 3);
        assert_refused(s, w, ERR_SEAT_TAKEN, SEATS(1, 3));
        w.seats = SEATS(2, 7, 9);
        assert_refused(s, w, ERR_SEAT_NOT_FOUND, SEATS(7, 9));
        assert_int_equal(house_confirm(&s->house, &id, "bob", NULL), ERR_OK);
        w.seats = SEATS(2, 3);
        assert_refused(s, w, ERR_SEAT_TAKEN, SEATS(3));
        assert_int_equal(house_cancel(&s->house, &id, "bob", NULL), ERR_OK);
    }
}

static void the_last_seat_is_sold_and_then_none_trap_30(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    uint64_t bob = house_let_in(&s->house, "bob");
    uint64_t cat = house_let_in(&s->house, "cat");
    FOR_EACH_STRATEGY(strategy) {
        struct uuid four = shop_held(s, shop_any(strategy, "ann", ann, 4));
        assert_refused(s, shop_any(strategy, "bob", bob, 3), ERR_SOLD_OUT, NULL);
        struct uuid one = shop_held(s, shop_any(strategy, "bob", bob, 1));
        struct uuid last = shop_held(s, shop_any(strategy, "cat", cat, 1));
        assert_string_equal(map_of(s, strategy), "HHHHHH");
        assert_refused(s, shop_any(strategy, "bob", bob, 1), ERR_SOLD_OUT, NULL);
        assert_int_equal(house_cancel(&s->house, &four, "ann", NULL), ERR_OK);
        assert_int_equal(house_cancel(&s->house, &one, "bob", NULL), ERR_OK);
        assert_int_equal(house_cancel(&s->house, &last, "cat", NULL), ERR_OK);
    }
}

/* Over all sections together, and what is confirmed counts too. */
static void nobody_gets_more_than_one_may_have(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, shop_any(strategy, "ann", ann, SHOP_PER_USER + 1), ERR_LIMIT_EXCEEDED, NULL);
    struct uuid id = shop_held(s, shop_any(STRATEGY_SLOT, "ann", ann, 2));
    shop_held(s, shop_any(STRATEGY_PESSIMISTIC, "ann", ann, 1));
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, shop_any(strategy, "ann", ann, 2), ERR_LIMIT_EXCEEDED, NULL);
    assert_int_equal(house_confirm(&s->house, &id, "ann", NULL), ERR_OK);
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, shop_any(strategy, "ann", ann, 2), ERR_LIMIT_EXCEEDED, NULL);
    shop_held(s, shop_any(STRATEGY_LOCK, "ann", ann, 1)); /* the fourth */
}

static void only_who_is_active_gets_seats(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    uint64_t bob = house_let_in(&s->house, "bob");
    assert_int_equal(house_leave(&s->house, bob), ERR_OK);
    FOR_EACH_STRATEGY(strategy) {
        assert_refused(s, shop_any(strategy, "bob", bob, 1), ERR_NOT_ACTIVE, NULL);
        assert_refused(s, shop_any(strategy, "bob", ann, 1), ERR_NOT_ACTIVE, NULL); /* Ann's */
        assert_refused(s, shop_any(strategy, "ann", 99, 1), ERR_NOT_ACTIVE, NULL);
    }
    wall_clock_advance(86400000); /* the stay is over at that very moment */
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, shop_any(strategy, "ann", ann, 1), ERR_NOT_ACTIVE, NULL);
    house_wait_idle(&s->house);
}

static void put_state(struct shop *s, enum event_state state, enum section_status status) {
    struct event *e = house_event(&s->house);
    e->state = state;
    for (size_t i = 0; i < e->section_count; i++) e->sections[i].status = status;
    assert_int_equal(house_put(&s->house, e), ERR_OK);
    mem_free(e);
}

static void nothing_is_sold_where_it_is_closed(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    FOR_EACH_STRATEGY(strategy) {
        struct wish w = shop_any(strategy, "ann", ann, 1);
        put_state(s, EVENT_CLOSED, SECTION_OPEN);
        assert_refused(s, w, ERR_CLOSED, NULL);
        put_state(s, EVENT_OPEN, SECTION_CLOSED);
        assert_refused(s, w, ERR_SECTION_CLOSED, NULL);
        put_state(s, EVENT_OPEN, SECTION_MAINTENANCE);
        assert_refused(s, w, ERR_SECTION_CLOSED, NULL);
        put_state(s, EVENT_PAUSED, SECTION_OPEN); /* nobody new, but who is in may buy */
        assert_int_equal(shop_hold(s, w), ERR_OK);
        assert_int_equal(house_leave(&s->house, ann), ERR_OK);
        put_state(s, EVENT_OPEN, SECTION_OPEN);
        ann = house_let_in(&s->house, "ann");
    }
}

static void put_mode(struct shop *s, size_t section, enum section_mode mode) {
    struct event *e = house_event(&s->house);
    e->sections[section].mode = mode;
    assert_int_equal(house_put(&s->house, e), ERR_OK);
    mem_free(e);
}

/* Between the request's coming in and its turn. */
static void a_request_that_its_section_has_changed_under_is_refused(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    FOR_EACH_STRATEGY(strategy) {
        size_t section = shop_section_of(strategy);
        bool is_seat = section == SHOP_SEAT;
        struct wish w = shop_any(strategy, "ann", ann, 2);
        struct house_hold x;
        house_hold_prepare(&s->house, &x, &w);
        put_mode(s, section, is_seat ? SECTION_MODE_SLOT : SECTION_MODE_SEAT);
        house_hold_start(&s->house, &s->house.desk, &x);
        harness_wait(&s->house.h, house_hold_is_back, &x);
        assert_int_equal(x.result, ERR_STRATEGY_NOT_ALLOWED);
        assert_string_equal(house_map(&s->house, section), SHOP_FREE);
        put_mode(s, section, shop_modes[section]);
        house_hold_end(&x);
    }
    assert_int_equal(shop_trace(s), 0);
}

static void what_was_taken_out_meanwhile_is_not_found(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    FOR_EACH_STRATEGY(strategy) {
        struct wish w = shop_any(strategy, "ann", ann, 1);
        struct house_hold x;
        house_hold_prepare(&s->house, &x, &w);
        x.holding.terms.section_key += 1000;
        house_hold_start(&s->house, &s->house.desk, &x);
        harness_wait(&s->house.h, house_hold_is_back, &x);
        assert_int_equal(x.result, ERR_SECTION_NOT_FOUND);
        house_hold_end(&x);
        house_hold_prepare(&s->house, &x, &w);
        x.holding.terms.event_key++;
        house_hold_start(&s->house, &s->house.desk, &x);
        harness_wait(&s->house.h, house_hold_is_back, &x);
        assert_int_equal(x.result, ERR_EVENT_NOT_FOUND);
        house_hold_end(&x);
    }
    assert_int_equal(shop_trace(s), 0);
}

/* ---- many at once ---- */

#define RIVALS 30

struct backlog {
    struct shop *shop;
    int64_t records;
};

static bool has_piled_up(void *arg) {
    struct backlog *b = arg;
    struct ledger_health health;
    ledger_health(b->shop->house.ledger, &health);
    return health.queue_depth >= b->records;
}

/* Where nobody is kept out, all of them have written before the first one is on disk. */
static void of_thirty_who_want_one_seat_one_gets_it_trap_21(void **state) {
    struct shop *s = *state;
    struct house_hold *rivals = mem_new(RIVALS * sizeof *rivals);
    char users[RIVALS][16];
    uint64_t seqs[RIVALS];
    for (int i = 0; i < RIVALS; i++) {
        snprintf(users[i], sizeof users[i], "user%d", i);
        seqs[i] = house_let_in(&s->house, users[i]);
    }
    FOR_EACH_STRATEGY(strategy) {
        bool is_optimistic = strategy == STRATEGY_OPTIMISTIC;
        uint64_t conflicts = counter_total(COUNT_RESERVATION_CONFLICTS_OPTIMISTIC);
        sync_gate_close();
        for (int i = 0; i < RIVALS; i++) {
            struct wish w = shop_named(strategy, users[i], seqs[i], SEATS(2));
            house_hold_prepare(&s->house, &rivals[i], &w);
            house_hold_start(&s->house, &s->house.desk, &rivals[i]);
        }
        struct backlog all = {s, is_optimistic ? RIVALS : 1};
        harness_wait(&s->house.h, has_piled_up, &all);
        sync_gate_open();
        int winner = -1;
        for (int i = 0; i < RIVALS; i++) {
            harness_wait(&s->house.h, house_hold_is_back, &rivals[i]);
            if (rivals[i].result == ERR_OK && winner < 0)
                winner = i;
            else
                assert_int_equal(rivals[i].result, ERR_SEAT_TAKEN);
            house_hold_end(&rivals[i]);
        }
        assert_true(winner >= 0);
        house_assert_seats(&s->house, shop_section_of(strategy), 1, 0);
        assert_int_equal(shop_rows(s, "HELD"), 1);
        assert_int_equal(house_leave(&s->house, seqs[winner]), ERR_OK);
        seqs[winner] = house_let_in(&s->house, users[winner]);
        if (is_optimistic)
            assert_true(counter_total(COUNT_RESERVATION_CONFLICTS_OPTIMISTIC) - conflicts >=
                        RIVALS - 1);
    }
    mem_free(rivals);
}

#define TRIES 10

static void who_is_overtaken_again_and_again_is_refused_in_the_end_trap_21(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    shop_make_faulty(s);
    s->faulty.why = ERR_CONFLICT;
    s->faulty.fails = TRIES + 1;
    assert_refused(s, shop_any(STRATEGY_OPTIMISTIC, "ann", ann, 2), ERR_CONFLICT, NULL);
    assert_int_equal(s->faulty.fails, 1); /* it was tried so often, and not once more */
    s->faulty.fails = TRIES - 1;
    assert_int_equal(shop_hold(s, shop_any(STRATEGY_OPTIMISTIC, "ann", ann, 2)), ERR_OK);
    house_assert_seats(&s->house, SHOP_SEAT, 2, 0);
}

/* ---- looking up ---- */

struct shown {
    struct listing l;
    struct arena arena;
    bool back;
};

static void on_listed(struct listing *l, enum err result) {
    assert_int_equal(result, ERR_OK);
    CONTAINER_OF(l, struct shown, l)->back = true;
}

static bool is_listed(void *list) {
    return ((struct shown *)list)->back;
}

/* Those of Ann that are listed are these, in this order. */
static void assert_listed(struct shop *s, size_t max, const struct uuid *ids, size_t count) {
    int64_t events[] = {s->house.key + 1000, s->house.key}; /* one that is not there any more */
    struct shown x = {.l = {.event_keys = events,
                            .event_count = 2,
                            .user = STR("ann"),
                            .max = max,
                            .done = on_listed}};
    x.l.arena = &x.arena;
    reservations_list(&s->house.reservations, &x.l);
    harness_wait(&s->house.h, is_listed, &x);
    assert_int_equal(x.l.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(uuid_eq(&x.l.found[i]->id, &ids[i]));
        assert_true(reservation_is_live(x.l.found[i]->status));
        mem_free(x.l.found[i]);
    }
    arena_reset(&x.arena);
}

static void a_list_shows_what_is_live_and_durable_trap_32(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    uint64_t bob = house_let_in(&s->house, "bob");
    assert_listed(s, 10, NULL, 0);
    shop_held(s, shop_any(STRATEGY_SLOT, "bob", bob, 1));
    struct uuid cancelled = shop_held(s, shop_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid confirmed = shop_held(s, shop_any(STRATEGY_OPTIMISTIC, "ann", ann, 1));
    struct uuid newest = shop_held(s, shop_any(STRATEGY_LOCK, "ann", ann, 1));
    assert_int_equal(house_cancel(&s->house, &cancelled, "ann", NULL), ERR_OK);
    assert_int_equal(house_confirm(&s->house, &confirmed, "ann", NULL), ERR_OK);
    const struct uuid live[] = {newest, confirmed};
    assert_listed(s, 10, live, 2);
    assert_listed(s, 1, live, 1);

    struct wish w = shop_any(STRATEGY_SLOT, "ann", ann, 1);
    struct house_hold pending;
    sync_gate_close();
    house_hold_prepare(&s->house, &pending, &w);
    house_hold_start(&s->house, &s->house.desk, &pending);
    assert_listed(s, 10, live, 2);
    sync_gate_open();
    harness_wait(&s->house.h, house_hold_is_back, &pending);
    house_hold_end(&pending);
    wall_clock_advance(SHOP_HOLD_MS);
    house_expire(&s->house);
    assert_listed(s, 10, &confirmed, 1);
}

/* ---- when the two stores disagree ---- */

static void synced(struct seat_sync_op *y) {
    assert_int_equal(y->op.result, ERR_OK);
}

static int64_t section_key(struct shop *s, size_t section) {
    struct event *e = house_event(&s->house);
    int64_t key = e->sections[section].key;
    mem_free(e);
    return key;
}

/* The hot store thinks that the seat is free. */
static void forget_seat(struct shop *s, size_t section, uint32_t seat) {
    struct seat_sync_op y = {.op.event_key = s->house.key,
                             .section_key = section_key(s, section),
                             .available = &seat,
                             .available_count = 1,
                             .done = synced};
    seats_sync(memory_seats(s->house.hot), &y);
    assert_int_equal(y.changed, 1);
}

/* The hot store thinks that a ghost holds the seat. */
static struct uuid imagine_hold(struct shop *s, size_t section, uint32_t seat) {
    struct live_reservation ghost = {.id = uuid_new(clock_wall_ms()),
                                     .user = STR("ghost"),
                                     .entry_seq = 99,
                                     .section_key = section_key(s, section),
                                     .seats = &seat,
                                     .seat_count = 1,
                                     .status = RESERVATION_HELD,
                                     .expires_ms = clock_wall_ms() + SHOP_HOLD_MS};
    struct seat_sync_op y = {
        .op.event_key = s->house.key, .reservations = &ghost, .count = 1, .done = synced};
    seats_sync(memory_seats(s->house.hot), &y);
    assert_int_equal(y.changed, 1);
    return ghost.id;
}

static bool hot_decides(enum strategy s) {
    return shop_section_of(s) != SHOP_SEAT;
}

/* Bob has two seats of which the hot store knows nothing. */
static struct uuid hold_unseen(struct shop *s, enum strategy strategy, uint64_t bob) {
    struct uuid id = shop_held(s, shop_named(strategy, "bob", bob, SEATS(1, 2)));
    forget_seat(s, shop_section_of(strategy), 1);
    forget_seat(s, shop_section_of(strategy), 2);
    assert_string_equal(map_of(s, strategy), SHOP_FREE);
    return id;
}

static void a_seat_that_only_the_ledger_knows_as_taken_is_not_sold_twice(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    uint64_t bob = house_let_in(&s->house, "bob");
    FOR_EACH_STRATEGY(strategy) {
        struct uuid bobs = hold_unseen(s, strategy, bob);
        uint64_t refusals = counter_total(COUNT_RESERVATION_GUARD_REFUSALS);
        assert_int_equal(shop_hold(s, shop_named(strategy, "ann", ann, SEATS(2, 3))),
                         ERR_SEAT_TAKEN);
        if (hot_decides(strategy)) {
            assert_string_equal(map_of(s, strategy), "HHAAAA"); /* both of Bob's */
            assert_int_equal(counter_total(COUNT_RESERVATION_GUARD_REFUSALS), refusals + 1);
            house_assert_agreement(&s->house);
        }
        assert_int_equal(house_cancel(&s->house, &bobs, "bob", NULL), ERR_OK);
        house_assert_agreement(&s->house);
    }
}

static void who_wants_any_seats_gets_others_than_those_the_ledger_has_taken(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    uint64_t bob = house_let_in(&s->house, "bob");
    for (enum strategy strategy = STRATEGY_SLOT; strategy <= STRATEGY_ADAPTIVE; strategy++) {
        struct uuid bobs = hold_unseen(s, strategy, bob);
        uint64_t refusals = counter_total(COUNT_RESERVATION_GUARD_REFUSALS);
        struct uuid anns = shop_held(s, shop_any(strategy, "ann", ann, 2));
        assert_string_equal(map_of(s, strategy), "HHHHAA");
        assert_int_equal(counter_total(COUNT_RESERVATION_GUARD_REFUSALS), refusals + 2);
        house_assert_agreement(&s->house);
        assert_int_equal(house_cancel(&s->house, &anns, "ann", NULL), ERR_OK);
        assert_int_equal(house_cancel(&s->house, &bobs, "bob", NULL), ERR_OK);
    }
}

/* What can't be put right: a seat whose holder the ledger does not have. */
static void
a_claim_that_the_ledger_never_takes_is_a_conflict_after_three_tries_trap_21(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    for (enum strategy strategy = STRATEGY_SLOT; strategy <= STRATEGY_ADAPTIVE; strategy++) {
        size_t section = shop_section_of(strategy);
        long long key = (long long)section_key(s, section);
        raw_sql_unruly(&s->house.h,
                       "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
                       " VALUES (%lld, 3, 'HELD', x'00112233445566778899aabbccddeeff', 1)",
                       key);
        uint64_t refusals = counter_total(COUNT_RESERVATION_GUARD_REFUSALS);
        assert_refused(s, shop_named(strategy, "ann", ann, SEATS(3)), ERR_CONFLICT, NULL);
        assert_int_equal(counter_total(COUNT_RESERVATION_GUARD_REFUSALS), refusals + 3);
        raw_sql_unruly(&s->house.h, "DELETE FROM seats WHERE section_id = %lld", key);
        assert_int_equal(shop_hold(s, shop_named(strategy, "ann", ann, SEATS(3))), ERR_OK);
    }
}

/* Where the ledger decides it sells the seat, and the hot store follows. Elsewhere the ghost has it
 * until its time is over. */
static void a_seat_that_only_the_hot_store_has_as_taken_is_not_lost_trap_26(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    imagine_hold(s, SHOP_SEAT, 1);
    imagine_hold(s, SHOP_SEAT, 2);
    imagine_hold(s, SHOP_SEAT, 3);
    shop_held(s, shop_named(STRATEGY_OPTIMISTIC, "ann", ann, SEATS(1)));
    shop_held(s, shop_named(STRATEGY_PESSIMISTIC, "ann", ann, SEATS(2)));
    shop_held(s, shop_named(STRATEGY_DISTRIBUTED_LOCK, "ann", ann, SEATS(3)));
    house_assert_agreement(&s->house);
    for (enum shop_section i = SHOP_SLOT; i <= SHOP_ADAPTIVE; i++) imagine_hold(s, i, 5);
    assert_refused(s, shop_named(STRATEGY_SLOT, "ann", ann, SEATS(5)), ERR_SEAT_TAKEN, SEATS(5));
    wall_clock_advance(SHOP_HOLD_MS);
    house_expire(&s->house);
    house_assert_agreement(&s->house);
    assert_int_equal(shop_hold(s, shop_named(STRATEGY_SLOT, "ann", ann, SEATS(5))), ERR_OK);
}

/* ---- idempotency ---- */

#define TWINS 20

static void requests_with_one_key_have_one_effect_trap_34(void **state) {
    struct shop *s = *state;
    static const char *const keys[] = {"k0", "k1", "k2", "k3", "k4", "k5"};
    uint64_t ann = house_let_in(&s->house, "ann");
    struct house_hold *twins = mem_new(TWINS * sizeof *twins);
    FOR_EACH_STRATEGY(strategy) {
        struct wish w = shop_any(strategy, "ann", ann, 1);
        w.key = keys[strategy];
        int replayed = 0;
        for (int i = 0; i < TWINS; i++) {
            house_hold_prepare(&s->house, &twins[i], &w);
            house_hold_start(&s->house, &s->house.desk, &twins[i]);
        }
        struct claim_info made;
        for (int i = 0; i < TWINS; i++) harness_wait(&s->house.h, house_hold_is_back, &twins[i]);
        assert_int_equal(house_holds(&s->house, "ann", &made, 1), 1);
        for (int i = 0; i < TWINS; i++) {
            assert_int_equal(twins[i].result, ERR_OK);
            replayed += house_hold_replays(&twins[i], &made.id);
            house_hold_end(&twins[i]);
        }
        assert_int_equal(replayed, TWINS - 1);
        int64_t trace = shop_trace(s);
        w.body = 1; /* another one */
        assert_int_equal(shop_hold(s, w), ERR_IDEMPOTENCY_MISMATCH);
        assert_int_equal(shop_trace(s), trace);
        const char *first_taken = strchr(map_of(s, strategy), 'H'); /* and the only one */
        assert_true(first_taken != NULL && strchr(first_taken + 1, 'H') == NULL);
        assert_int_equal(house_leave(&s->house, ann), ERR_OK);
        ann = house_let_in(&s->house, "ann");
    }
    mem_free(twins);
}

/* Also when what it made has ended, when there is no room for more, and after a restart. */
static void a_key_that_was_used_is_answered_as_it_was(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    FOR_EACH_STRATEGY(strategy) {
        char key[16];
        snprintf(key, sizeof key, "key %d", (int)strategy);
        struct wish w = shop_any(strategy, "ann", ann, SHOP_PER_USER);
        w.key = key;
        struct uuid id = shop_held(s, w);
        int64_t trace = shop_trace(s);
        assert_int_equal(shop_hold(s, w), ERR_OK); /* though it is the limit */
        assert_int_equal(shop_trace(s), trace);
        assert_int_equal(house_cancel(&s->house, &id, "ann", NULL), ERR_OK);
        trace = shop_trace(s);
        assert_int_equal(shop_hold(s, w), ERR_OK);
        house_recover(&s->house);
        assert_int_equal(shop_hold(s, w), ERR_OK);
        assert_int_equal(shop_trace(s), trace);
        assert_string_equal(map_of(s, strategy), SHOP_FREE);
    }
}

static enum err replay(struct shop *s, const struct wish *w, bool *replayed) {
    struct house_hold x;
    house_hold_prepare(&s->house, &x, w);
    reservations_replay(&s->house.reservations, &x.holding);
    harness_wait(&s->house.h, house_hold_is_back, &x);
    *replayed = x.idempotency.replayed;
    house_hold_end(&x);
    return x.result;
}

static void a_key_can_be_asked_about_before_anything_else(void **state) {
    struct shop *s = *state;
    uint64_t ann = house_let_in(&s->house, "ann");
    struct wish w = shop_any(STRATEGY_SLOT, "ann", ann, 1);
    bool replayed;
    w.key = "key";
    assert_int_equal(replay(s, &w, &replayed), ERR_OK);
    assert_false(replayed);
    shop_held(s, w);
    assert_int_equal(replay(s, &w, &replayed), ERR_OK);
    assert_true(replayed);
    w.body++;
    assert_int_equal(replay(s, &w, &replayed), ERR_IDEMPOTENCY_MISMATCH);
    assert_false(replayed);
    w.user = "bob"; /* whose key it is not */
    assert_int_equal(replay(s, &w, &replayed), ERR_OK);
    assert_false(replayed);
}

/* ---- recovery ---- */

static void after_a_restart_everything_is_as_the_ledger_has_it_trap_31(void **state) {
    struct shop *s = *state;
    struct uuid ids[SHOP_STRATEGIES];
    static const char *const users[] = {"ann", "bob", "cat", "dee", "eve", "fay"};
    FOR_EACH_STRATEGY(strategy) {
        const char *user = users[strategy];
        uint64_t seq = house_let_in(&s->house, user);
        ids[strategy] = shop_held(s, shop_any(strategy, user, seq, 1));
        struct uuid confirmed = shop_held(s, shop_any(strategy, user, seq, 1));
        assert_int_equal(house_confirm(&s->house, &confirmed, user, NULL), ERR_OK);
    }
    house_assert_agreement(&s->house);
    house_recover(&s->house);
    house_assert_agreement(&s->house);
    FOR_EACH_STRATEGY(strategy) {
        const char *user = users[strategy];
        uint64_t seq = house_let_in(&s->house, user);
        assert_refused(s, shop_any(strategy, user, seq, 3), ERR_LIMIT_EXCEEDED, NULL);
        if (strategy % 2 == 0)
            assert_int_equal(house_confirm(&s->house, &ids[strategy], user, NULL), ERR_OK);
    }
    wall_clock_advance(SHOP_HOLD_MS);
    house_recover(&s->house);
    house_expire(&s->house);
    house_assert_agreement(&s->house);
    assert_int_equal(shop_rows(s, "EXPIRED"), SHOP_STRATEGIES / 2);
}

int main(void) {
    sync_recorder_register();
#define TEST(name) cmocka_unit_test_setup_teardown(name, shop_set_up, shop_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_strategy_holds_and_what_is_held_is_confirmed_and_given_back),
        TEST(who_holds_more_stays_active_until_the_last_is_confirmed_trap_11),
        TEST(nobody_decides_about_what_is_somebody_elses_trap_25),
        TEST(seats_that_are_taken_are_refused_all_or_none_trap_24),
        TEST(the_last_seat_is_sold_and_then_none_trap_30),
        TEST(nobody_gets_more_than_one_may_have),
        TEST(only_who_is_active_gets_seats),
        TEST(nothing_is_sold_where_it_is_closed),
        TEST(a_request_that_its_section_has_changed_under_is_refused),
        TEST(what_was_taken_out_meanwhile_is_not_found),
        TEST(of_thirty_who_want_one_seat_one_gets_it_trap_21),
        TEST(who_is_overtaken_again_and_again_is_refused_in_the_end_trap_21),
        TEST(a_list_shows_what_is_live_and_durable_trap_32),
        TEST(a_seat_that_only_the_ledger_knows_as_taken_is_not_sold_twice),
        TEST(who_wants_any_seats_gets_others_than_those_the_ledger_has_taken),
        TEST(a_claim_that_the_ledger_never_takes_is_a_conflict_after_three_tries_trap_21),
        TEST(a_seat_that_only_the_hot_store_has_as_taken_is_not_lost_trap_26),
        TEST(requests_with_one_key_have_one_effect_trap_34),
        TEST(a_key_that_was_used_is_answered_as_it_was),
        TEST(a_key_can_be_asked_about_before_anything_else),
        TEST(after_a_restart_everything_is_as_the_ledger_has_it_trap_31),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
