/* The use cases of seats on the real ledger and the real hot store: what each strategy does, what
 * it refuses, and how a difference between the two stores is handled. After every test they agree.
 */
#include "service/reservations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "seats_fixture.h"
#include "service/reservation_metrics.h"
#include "sync_recorder.h"
#include "wall_clock.h"

static const char *map_of(struct seats_fixture *s, enum strategy strategy) {
    return fixture_map(&s->fixture, seats_fixture_section_of(strategy));
}

/* ---- what each strategy does ---- */

static void assert_held(const struct reservation *r, const struct hold_spec *w) {
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
    assert_int_equal(r->expires_ms, clock_wall_ms() + FIXTURE_HOLD_MS);
}

static void confirm_twice(struct seats_fixture *s, const struct uuid *id) {
    struct reservation *once;
    struct reservation *twice;
    assert_int_equal(fixture_confirm(&s->fixture, id, "ann", &once), ERR_OK);
    assert_int_equal(once->status, RESERVATION_CONFIRMED);
    assert_int_equal(strlen(once->confirmation_code), CONFIRMATION_CODE_CHARS);
    int64_t trace = seats_fixture_trace(s);
    assert_int_equal(fixture_confirm(&s->fixture, id, "ann", &twice), ERR_OK);
    assert_string_equal(twice->confirmation_code, once->confirmation_code);
    assert_int_equal(seats_fixture_trace(s), trace);
    mem_free(once);
    mem_free(twice);
}

static void cancel_twice(struct seats_fixture *s, const struct uuid *id) {
    assert_int_equal(fixture_cancel(&s->fixture, id, "ann", NULL), ERR_OK);
    int64_t trace = seats_fixture_trace(s);
    assert_int_equal(fixture_cancel(&s->fixture, id, "ann", NULL), ERR_OK);
    assert_int_equal(fixture_confirm(&s->fixture, id, "ann", NULL), ERR_RESERVATION_ENDED);
    assert_int_equal(seats_fixture_trace(s), trace);
}

static void every_strategy_holds_confirms_and_releases(void **state) {
    struct seats_fixture *s = *state;
    FOR_EACH_STRATEGY(strategy) {
        size_t section = seats_fixture_section_of(strategy);
        uint64_t ann = fixture_admit(&s->fixture, "ann");
        struct hold_spec w = seats_fixture_named(strategy, "ann", ann, SEATS(2, 4));
        struct reservation *r;
        assert_int_equal(fixture_hold(&s->fixture, &w, &r), ERR_OK);
        assert_held(r, &w);
        assert_string_equal(fixture_map(&s->fixture, section), "AHAHAA");
        fixture_assert_agreement(&s->fixture);
        confirm_twice(s, &r->id);
        assert_string_equal(fixture_map(&s->fixture, section), "ACACAA");
        assert_int_equal(fixture_place(&s->fixture, ann, clock_wall_ms()).status, ENTRY_COMPLETED);
        fixture_assert_agreement(&s->fixture);
        cancel_twice(s, &r->id); /* pitfall 27 */
        assert_string_equal(fixture_map(&s->fixture, section), FIXTURE_FREE);
        fixture_assert_agreement(&s->fixture);
        mem_free(r);
    }
}

static void
a_user_with_several_holds_stays_active_until_the_last_is_confirmed_pitfall_11(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct uuid first = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid second =
        seats_fixture_held(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 1));
    struct uuid third = seats_fixture_held(s, seats_fixture_any(STRATEGY_LOCK, "ann", ann, 1));
    assert_int_equal(fixture_confirm(&s->fixture, &first, "ann", NULL), ERR_OK);
    assert_int_equal(fixture_place(&s->fixture, ann, clock_wall_ms()).status, ENTRY_ACTIVE);
    assert_int_equal(fixture_cancel(&s->fixture, &second, "ann", NULL),
                     ERR_OK); /* keeps the place */
    assert_int_equal(fixture_place(&s->fixture, ann, clock_wall_ms()).status, ENTRY_ACTIVE);
    assert_int_equal(fixture_confirm(&s->fixture, &third, "ann", NULL), ERR_OK);
    assert_int_equal(fixture_place(&s->fixture, ann, clock_wall_ms()).status, ENTRY_COMPLETED);
    assert_int_equal(fixture_counts(&s->fixture).active, 0);
}

static void no_user_confirms_or_cancels_the_reservation_of_another_pitfall_25(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct uuid id = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid none = id;
    none.bytes[15] ^= 1;
    int64_t trace = seats_fixture_trace(s);
    assert_int_equal(fixture_confirm(&s->fixture, &id, "bob", NULL), ERR_NOT_YOURS);
    assert_int_equal(fixture_cancel(&s->fixture, &id, "bob", NULL), ERR_NOT_YOURS);
    assert_int_equal(fixture_confirm(&s->fixture, &none, "ann", NULL), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(fixture_cancel(&s->fixture, &none, "ann", NULL), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(seats_fixture_trace(s), trace);
    assert_string_equal(fixture_map(&s->fixture, FIXTURE_SLOT), "HAAAAA");
}

/* ---- refusals ---- */

/* Neither store changes; the seats that caused the refusal are returned. */
static void assert_refused(struct seats_fixture *s, struct hold_spec w, enum err why,
                           const uint32_t *in_the_way) {
    int64_t trace = seats_fixture_trace(s);
    char map[FIXTURE_SEATS_MAX + 1];
    snprintf(map, sizeof map, "%s", fixture_map(&s->fixture, w.section));
    struct fixture_hold x;
    fixture_hold_prepare(&s->fixture, &x, &w);
    fixture_hold_start(&s->fixture, &s->fixture.lock_client, &x);
    harness_wait(&s->fixture.h, fixture_hold_is_back, &x);
    assert_int_equal(x.result, why);
    size_t told = 0;
    while (in_the_way != NULL && in_the_way[told] != 0) {
        assert_true(told < x.hold.refused_count);
        assert_int_equal(x.hold.refused[told], in_the_way[told]);
        told++;
    }
    if (in_the_way != NULL) assert_int_equal(x.hold.refused_count, told);
    fixture_hold_end(&x);
    assert_string_equal(fixture_map(&s->fixture, w.section), map);
    assert_int_equal(seats_fixture_trace(s), trace);
}

static void seats_that_are_taken_are_refused_all_or_none_pitfall_24(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy) {
        uint64_t bob = fixture_admit(&s->fixture, "bob");
        struct uuid id =
            seats_fixture_held(s, seats_fixture_named(strategy, "bob", bob, SEATS(1, 3)));
        struct hold_spec w = seats_fixture_named(strategy, "ann", ann, SEATS(1));
        assert_refused(s, w, ERR_SEAT_TAKEN, SEATS(1));
        w.seats = SEATS(1, 2, 3);
        assert_refused(s, w, ERR_SEAT_TAKEN, SEATS(1, 3));
        w.seats = SEATS(2, 7, 9);
        assert_refused(s, w, ERR_SEAT_NOT_FOUND, SEATS(7, 9));
        assert_int_equal(fixture_confirm(&s->fixture, &id, "bob", NULL), ERR_OK);
        w.seats = SEATS(2, 3);
        assert_refused(s, w, ERR_SEAT_TAKEN, SEATS(3));
        assert_int_equal(fixture_cancel(&s->fixture, &id, "bob", NULL), ERR_OK);
    }
}

static void the_last_seat_is_sold_and_then_none_pitfall_30(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    uint64_t cat = fixture_admit(&s->fixture, "cat");
    FOR_EACH_STRATEGY(strategy) {
        struct uuid four = seats_fixture_held(s, seats_fixture_any(strategy, "ann", ann, 4));
        assert_refused(s, seats_fixture_any(strategy, "bob", bob, 3), ERR_SOLD_OUT, NULL);
        struct uuid one = seats_fixture_held(s, seats_fixture_any(strategy, "bob", bob, 1));
        struct uuid last = seats_fixture_held(s, seats_fixture_any(strategy, "cat", cat, 1));
        assert_string_equal(map_of(s, strategy), "HHHHHH");
        assert_refused(s, seats_fixture_any(strategy, "bob", bob, 1), ERR_SOLD_OUT, NULL);
        assert_int_equal(fixture_cancel(&s->fixture, &four, "ann", NULL), ERR_OK);
        assert_int_equal(fixture_cancel(&s->fixture, &one, "bob", NULL), ERR_OK);
        assert_int_equal(fixture_cancel(&s->fixture, &last, "cat", NULL), ERR_OK);
    }
}

/* Over all sections together; CONFIRMED seats count too. */
static void no_user_gets_more_than_the_limit(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, seats_fixture_any(strategy, "ann", ann, FIXTURE_PER_USER + 1),
                   ERR_LIMIT_EXCEEDED, NULL);
    struct uuid id = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 2));
    seats_fixture_held(s, seats_fixture_any(STRATEGY_PESSIMISTIC, "ann", ann, 1));
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, seats_fixture_any(strategy, "ann", ann, 2), ERR_LIMIT_EXCEEDED, NULL);
    assert_int_equal(fixture_confirm(&s->fixture, &id, "ann", NULL), ERR_OK);
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, seats_fixture_any(strategy, "ann", ann, 2), ERR_LIMIT_EXCEEDED, NULL);
    seats_fixture_held(s, seats_fixture_any(STRATEGY_LOCK, "ann", ann, 1)); /* the fourth */
}

static void only_an_active_user_gets_seats(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    assert_int_equal(fixture_leave(&s->fixture, bob), ERR_OK);
    FOR_EACH_STRATEGY(strategy) {
        assert_refused(s, seats_fixture_any(strategy, "bob", bob, 1), ERR_NOT_ACTIVE, NULL);
        assert_refused(s, seats_fixture_any(strategy, "bob", ann, 1), ERR_NOT_ACTIVE,
                       NULL); /* Ann's */
        assert_refused(s, seats_fixture_any(strategy, "ann", 99, 1), ERR_NOT_ACTIVE, NULL);
    }
    wall_clock_advance(86400000); /* the stay is over at that very moment */
    FOR_EACH_STRATEGY(strategy)
    assert_refused(s, seats_fixture_any(strategy, "ann", ann, 1), ERR_NOT_ACTIVE, NULL);
    fixture_wait_idle(&s->fixture);
}

static void put_state(struct seats_fixture *s, enum event_state state, enum section_status status) {
    struct event *e = fixture_event(&s->fixture);
    e->state = state;
    for (size_t i = 0; i < e->section_count; i++) e->sections[i].status = status;
    assert_int_equal(fixture_put(&s->fixture, e), ERR_OK);
    mem_free(e);
}

static void nothing_is_sold_where_it_is_closed(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy) {
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 1);
        put_state(s, EVENT_CLOSED, SECTION_OPEN);
        assert_refused(s, w, ERR_CLOSED, NULL);
        put_state(s, EVENT_OPEN, SECTION_CLOSED);
        assert_refused(s, w, ERR_SECTION_CLOSED, NULL);
        put_state(s, EVENT_OPEN, SECTION_MAINTENANCE);
        assert_refused(s, w, ERR_SECTION_CLOSED, NULL);
        put_state(s, EVENT_PAUSED, SECTION_OPEN); /* no new users, but ACTIVE ones may buy */
        assert_int_equal(seats_fixture_hold(s, w), ERR_OK);
        assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OK);
        put_state(s, EVENT_OPEN, SECTION_OPEN);
        ann = fixture_admit(&s->fixture, "ann");
    }
}

static void put_mode(struct seats_fixture *s, size_t section, enum section_mode mode) {
    struct event *e = fixture_event(&s->fixture);
    e->sections[section].mode = mode;
    assert_int_equal(fixture_put(&s->fixture, e), ERR_OK);
    mem_free(e);
}

/* The event changes while the request waits. */
static void a_request_that_its_section_has_changed_under_is_refused(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy) {
        size_t section = seats_fixture_section_of(strategy);
        bool is_seat = section == FIXTURE_SEAT;
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 2);
        struct fixture_hold x;
        fixture_hold_prepare(&s->fixture, &x, &w);
        put_mode(s, section, is_seat ? SECTION_MODE_SLOT : SECTION_MODE_SEAT);
        fixture_hold_start(&s->fixture, &s->fixture.lock_client, &x);
        harness_wait(&s->fixture.h, fixture_hold_is_back, &x);
        assert_int_equal(x.result, ERR_STRATEGY_NOT_ALLOWED);
        assert_string_equal(fixture_map(&s->fixture, section), FIXTURE_FREE);
        put_mode(s, section, seats_fixture_modes[section]);
        fixture_hold_end(&x);
    }
    assert_int_equal(seats_fixture_trace(s), 0);
}

static void a_removed_element_is_not_found(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy) {
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 1);
        struct fixture_hold x;
        fixture_hold_prepare(&s->fixture, &x, &w);
        x.hold.terms.section_key += 1000;
        fixture_hold_start(&s->fixture, &s->fixture.lock_client, &x);
        harness_wait(&s->fixture.h, fixture_hold_is_back, &x);
        assert_int_equal(x.result, ERR_SECTION_NOT_FOUND);
        fixture_hold_end(&x);
        fixture_hold_prepare(&s->fixture, &x, &w);
        x.hold.terms.event_key++;
        fixture_hold_start(&s->fixture, &s->fixture.lock_client, &x);
        harness_wait(&s->fixture.h, fixture_hold_is_back, &x);
        assert_int_equal(x.result, ERR_EVENT_NOT_FOUND);
        fixture_hold_end(&x);
    }
    assert_int_equal(seats_fixture_trace(s), 0);
}

/* ---- many at once ---- */

#define RIVALS 30

struct backlog {
    struct seats_fixture *fixture;
    int64_t records;
};

static bool has_piled_up(void *arg) {
    struct backlog *b = arg;
    struct ledger_health health;
    ledger_health(b->fixture->fixture.ledger, &health);
    return health.queue_depth >= b->records;
}

/* Without a lock, all of them have written before the first one is on disk. */
static void one_of_thirty_requests_for_one_seat_gets_it_pitfall_21(void **state) {
    struct seats_fixture *s = *state;
    struct fixture_hold *rivals = mem_new(RIVALS * sizeof *rivals);
    char users[RIVALS][16];
    uint64_t seqs[RIVALS];
    for (int i = 0; i < RIVALS; i++) {
        snprintf(users[i], sizeof users[i], "user%d", i);
        seqs[i] = fixture_admit(&s->fixture, users[i]);
    }
    FOR_EACH_STRATEGY(strategy) {
        bool is_optimistic = strategy == STRATEGY_OPTIMISTIC;
        uint64_t conflicts = counter_total(COUNT_RESERVATION_CONFLICTS + STRATEGY_OPTIMISTIC);
        sync_gate_close();
        for (int i = 0; i < RIVALS; i++) {
            struct hold_spec w = seats_fixture_named(strategy, users[i], seqs[i], SEATS(2));
            fixture_hold_prepare(&s->fixture, &rivals[i], &w);
            fixture_hold_start(&s->fixture, &s->fixture.lock_client, &rivals[i]);
        }
        struct backlog all = {s, is_optimistic ? RIVALS : 1};
        harness_wait(&s->fixture.h, has_piled_up, &all);
        sync_gate_open();
        int winner = -1;
        for (int i = 0; i < RIVALS; i++) {
            harness_wait(&s->fixture.h, fixture_hold_is_back, &rivals[i]);
            if (rivals[i].result == ERR_OK && winner < 0)
                winner = i;
            else
                assert_int_equal(rivals[i].result, ERR_SEAT_TAKEN);
            fixture_hold_end(&rivals[i]);
        }
        assert_true(winner >= 0);
        fixture_assert_seats(&s->fixture, seats_fixture_section_of(strategy), 1, 0);
        assert_int_equal(seats_fixture_rows(s, "HELD"), 1);
        assert_int_equal(fixture_leave(&s->fixture, seqs[winner]), ERR_OK);
        seqs[winner] = fixture_admit(&s->fixture, users[winner]);
        if (is_optimistic)
            assert_true(counter_total(COUNT_RESERVATION_CONFLICTS + STRATEGY_OPTIMISTIC) -
                            conflicts >=
                        RIVALS - 1);
    }
    mem_free(rivals);
}

#define TRIES 10

static void a_request_that_loses_every_retry_is_refused_pitfall_21(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    seats_fixture_make_faulty(s);
    s->faulty.why = ERR_CONFLICT;
    s->faulty.fails = TRIES + 1;
    assert_refused(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 2), ERR_CONFLICT, NULL);
    assert_int_equal(s->faulty.fails, 1); /* it was tried so often, and not once more */
    s->faulty.fails = TRIES - 1;
    assert_int_equal(seats_fixture_hold(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 2)),
                     ERR_OK);
    fixture_assert_seats(&s->fixture, FIXTURE_SEAT, 2, 0);
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
static void assert_listed(struct seats_fixture *s, size_t max, const struct uuid *ids,
                          size_t count) {
    int64_t events[] = {s->fixture.key + 1000, s->fixture.key}; /* one that is not there any more */
    struct shown x = {.l = {.event_keys = events,
                            .event_count = 2,
                            .user = STR("ann"),
                            .max = max,
                            .done = on_listed}};
    x.l.arena = &x.arena;
    reservations_list(&s->fixture.reservations, &x.l);
    harness_wait(&s->fixture.h, is_listed, &x);
    assert_int_equal(x.l.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(uuid_eq(&x.l.found[i]->id, &ids[i]));
        assert_true(reservation_is_live(x.l.found[i]->status));
        mem_free(x.l.found[i]);
    }
    arena_reset(&x.arena);
}

static void a_list_shows_what_is_live_and_durable_pitfall_32(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    assert_listed(s, 10, NULL, 0);
    seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "bob", bob, 1));
    struct uuid cancelled = seats_fixture_held(s, seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1));
    struct uuid confirmed =
        seats_fixture_held(s, seats_fixture_any(STRATEGY_OPTIMISTIC, "ann", ann, 1));
    struct uuid newest = seats_fixture_held(s, seats_fixture_any(STRATEGY_LOCK, "ann", ann, 1));
    assert_int_equal(fixture_cancel(&s->fixture, &cancelled, "ann", NULL), ERR_OK);
    assert_int_equal(fixture_confirm(&s->fixture, &confirmed, "ann", NULL), ERR_OK);
    const struct uuid live[] = {newest, confirmed};
    assert_listed(s, 10, live, 2);
    assert_listed(s, 1, live, 1);

    struct hold_spec w = seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1);
    struct fixture_hold pending;
    sync_gate_close();
    fixture_hold_prepare(&s->fixture, &pending, &w);
    fixture_hold_start(&s->fixture, &s->fixture.lock_client, &pending);
    assert_listed(s, 10, live, 2);
    sync_gate_open();
    harness_wait(&s->fixture.h, fixture_hold_is_back, &pending);
    fixture_hold_end(&pending);
    wall_clock_advance(FIXTURE_HOLD_MS);
    fixture_expire(&s->fixture);
    assert_listed(s, 10, &confirmed, 1);
}

/* ---- when the two stores disagree ---- */

static void synced(struct seat_sync_op *y) {
    assert_int_equal(y->op.result, ERR_OK);
}

static int64_t section_key(struct seats_fixture *s, size_t section) {
    struct event *e = fixture_event(&s->fixture);
    int64_t key = e->sections[section].key;
    mem_free(e);
    return key;
}

/* The hot store thinks that the seat is free. */
static void forget_seat(struct seats_fixture *s, size_t section, uint32_t seat) {
    struct seat_sync_op y = {.op.event_key = s->fixture.key,
                             .section_key = section_key(s, section),
                             .available = &seat,
                             .available_count = 1,
                             .done = synced};
    seats_sync(memory_seats(s->fixture.hot), &y);
    assert_int_equal(y.changed, 1);
}

/* The hot store thinks that a ghost holds the seat. */
static struct uuid imagine_hold(struct seats_fixture *s, size_t section, uint32_t seat) {
    struct live_reservation ghost = {.id = uuid_new(clock_wall_ms()),
                                     .user = STR("ghost"),
                                     .entry_seq = 99,
                                     .section_key = section_key(s, section),
                                     .seats = &seat,
                                     .seat_count = 1,
                                     .status = RESERVATION_HELD,
                                     .expires_ms = clock_wall_ms() + FIXTURE_HOLD_MS};
    struct seat_sync_op y = {
        .op.event_key = s->fixture.key, .reservations = &ghost, .count = 1, .done = synced};
    seats_sync(memory_seats(s->fixture.hot), &y);
    assert_int_equal(y.changed, 1);
    return ghost.id;
}

static bool hot_decides(enum strategy s) {
    return seats_fixture_section_of(s) != FIXTURE_SEAT;
}

/* Bob has two seats of which the hot store knows nothing. */
static struct uuid hold_unseen(struct seats_fixture *s, enum strategy strategy, uint64_t bob) {
    struct uuid id = seats_fixture_held(s, seats_fixture_named(strategy, "bob", bob, SEATS(1, 2)));
    forget_seat(s, seats_fixture_section_of(strategy), 1);
    forget_seat(s, seats_fixture_section_of(strategy), 2);
    assert_string_equal(map_of(s, strategy), FIXTURE_FREE);
    return id;
}

static void a_seat_that_only_the_ledger_knows_as_taken_is_not_sold_twice(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    FOR_EACH_STRATEGY(strategy) {
        struct uuid bobs = hold_unseen(s, strategy, bob);
        uint64_t refusals = counter_total(COUNT_RESERVATION_GUARD_REFUSALS);
        assert_int_equal(
            seats_fixture_hold(s, seats_fixture_named(strategy, "ann", ann, SEATS(2, 3))),
            ERR_SEAT_TAKEN);
        if (hot_decides(strategy)) {
            assert_string_equal(map_of(s, strategy), "HHAAAA"); /* both of Bob's */
            assert_int_equal(counter_total(COUNT_RESERVATION_GUARD_REFUSALS), refusals + 1);
            fixture_assert_agreement(&s->fixture);
        }
        assert_int_equal(fixture_cancel(&s->fixture, &bobs, "bob", NULL), ERR_OK);
        fixture_assert_agreement(&s->fixture);
    }
}

static void a_request_for_any_seats_gets_others_than_those_the_ledger_has_taken(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    uint64_t bob = fixture_admit(&s->fixture, "bob");
    for (enum strategy strategy = STRATEGY_SLOT; strategy <= STRATEGY_ADAPTIVE; strategy++) {
        struct uuid bobs = hold_unseen(s, strategy, bob);
        uint64_t refusals = counter_total(COUNT_RESERVATION_GUARD_REFUSALS);
        struct uuid anns = seats_fixture_held(s, seats_fixture_any(strategy, "ann", ann, 2));
        assert_string_equal(map_of(s, strategy), "HHHHAA");
        assert_int_equal(counter_total(COUNT_RESERVATION_GUARD_REFUSALS), refusals + 2);
        fixture_assert_agreement(&s->fixture);
        assert_int_equal(fixture_cancel(&s->fixture, &anns, "ann", NULL), ERR_OK);
        assert_int_equal(fixture_cancel(&s->fixture, &bobs, "bob", NULL), ERR_OK);
    }
}

/* A difference that can't be repaired: a seat whose holder the ledger does not have. */
static void
a_claim_that_the_ledger_never_takes_is_a_conflict_after_three_tries_pitfall_21(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    for (enum strategy strategy = STRATEGY_SLOT; strategy <= STRATEGY_ADAPTIVE; strategy++) {
        size_t section = seats_fixture_section_of(strategy);
        long long key = (long long)section_key(s, section);
        raw_sql_unruly(&s->fixture.h,
                       "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
                       " VALUES (%lld, 3, 'HELD', x'00112233445566778899aabbccddeeff', 1)",
                       key);
        uint64_t refusals = counter_total(COUNT_RESERVATION_GUARD_REFUSALS);
        assert_refused(s, seats_fixture_named(strategy, "ann", ann, SEATS(3)), ERR_CONFLICT, NULL);
        assert_int_equal(counter_total(COUNT_RESERVATION_GUARD_REFUSALS), refusals + 3);
        raw_sql_unruly(&s->fixture.h, "DELETE FROM seats WHERE section_id = %lld", key);
        assert_int_equal(seats_fixture_hold(s, seats_fixture_named(strategy, "ann", ann, SEATS(3))),
                         ERR_OK);
    }
}

/* Where the ledger decides it sells the seat, and the hot store is updated. Elsewhere the unknown
 * holder keeps it until its time is over. */
static void a_seat_that_only_the_hot_store_has_as_taken_is_not_lost_pitfall_26(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    imagine_hold(s, FIXTURE_SEAT, 1);
    imagine_hold(s, FIXTURE_SEAT, 2);
    imagine_hold(s, FIXTURE_SEAT, 3);
    seats_fixture_held(s, seats_fixture_named(STRATEGY_OPTIMISTIC, "ann", ann, SEATS(1)));
    seats_fixture_held(s, seats_fixture_named(STRATEGY_PESSIMISTIC, "ann", ann, SEATS(2)));
    seats_fixture_held(s, seats_fixture_named(STRATEGY_DISTRIBUTED_LOCK, "ann", ann, SEATS(3)));
    fixture_assert_agreement(&s->fixture);
    for (enum fixture_section i = FIXTURE_SLOT; i <= FIXTURE_ADAPTIVE; i++) imagine_hold(s, i, 5);
    assert_refused(s, seats_fixture_named(STRATEGY_SLOT, "ann", ann, SEATS(5)), ERR_SEAT_TAKEN,
                   SEATS(5));
    wall_clock_advance(FIXTURE_HOLD_MS);
    fixture_expire(&s->fixture);
    fixture_assert_agreement(&s->fixture);
    assert_int_equal(
        seats_fixture_hold(s, seats_fixture_named(STRATEGY_SLOT, "ann", ann, SEATS(5))), ERR_OK);
}

/* ---- idempotency ---- */

#define TWINS 20

static void requests_with_one_key_have_one_effect(void **state) {
    struct seats_fixture *s = *state;
    static const char *const keys[] = {"k0", "k1", "k2", "k3", "k4", "k5"};
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct fixture_hold *twins = mem_new(TWINS * sizeof *twins);
    FOR_EACH_STRATEGY(strategy) {
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, 1);
        w.key = keys[strategy];
        int replayed = 0;
        for (int i = 0; i < TWINS; i++) {
            fixture_hold_prepare(&s->fixture, &twins[i], &w);
            fixture_hold_start(&s->fixture, &s->fixture.lock_client, &twins[i]);
        }
        struct claim_info made;
        for (int i = 0; i < TWINS; i++)
            harness_wait(&s->fixture.h, fixture_hold_is_back, &twins[i]);
        assert_int_equal(fixture_holds(&s->fixture, "ann", &made, 1), 1);
        for (int i = 0; i < TWINS; i++) {
            assert_int_equal(twins[i].result, ERR_OK);
            replayed += fixture_hold_replays(&twins[i], &made.id);
            fixture_hold_end(&twins[i]);
        }
        assert_int_equal(replayed, TWINS - 1);
        int64_t trace = seats_fixture_trace(s);
        w.body = 1; /* another one */
        assert_int_equal(seats_fixture_hold(s, w), ERR_IDEMPOTENCY_MISMATCH);
        assert_int_equal(seats_fixture_trace(s), trace);
        const char *first_taken = strchr(map_of(s, strategy), 'H'); /* and the only one */
        assert_true(first_taken != NULL && strchr(first_taken + 1, 'H') == NULL);
        assert_int_equal(fixture_leave(&s->fixture, ann), ERR_OK);
        ann = fixture_admit(&s->fixture, "ann");
    }
    mem_free(twins);
}

/* Also when the reservation has ended, when all seats are taken, and after a restart. */
static void a_key_that_was_used_is_answered_as_it_was(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    FOR_EACH_STRATEGY(strategy) {
        char key[16];
        snprintf(key, sizeof key, "key %d", (int)strategy);
        struct hold_spec w = seats_fixture_any(strategy, "ann", ann, FIXTURE_PER_USER);
        w.key = key;
        struct uuid id = seats_fixture_held(s, w);
        int64_t trace = seats_fixture_trace(s);
        assert_int_equal(seats_fixture_hold(s, w), ERR_OK); /* though it is the limit */
        assert_int_equal(seats_fixture_trace(s), trace);
        assert_int_equal(fixture_cancel(&s->fixture, &id, "ann", NULL), ERR_OK);
        trace = seats_fixture_trace(s);
        assert_int_equal(seats_fixture_hold(s, w), ERR_OK);
        fixture_recover(&s->fixture);
        assert_int_equal(seats_fixture_hold(s, w), ERR_OK);
        assert_int_equal(seats_fixture_trace(s), trace);
        assert_string_equal(map_of(s, strategy), FIXTURE_FREE);
    }
}

static enum err replay(struct seats_fixture *s, const struct hold_spec *w, bool *replayed) {
    struct fixture_hold x;
    fixture_hold_prepare(&s->fixture, &x, w);
    hold_replay(&s->fixture.reservations, &x.hold);
    harness_wait(&s->fixture.h, fixture_hold_is_back, &x);
    *replayed = x.idempotency.replayed;
    fixture_hold_end(&x);
    return x.result;
}

static void a_key_can_be_asked_about_before_anything_else(void **state) {
    struct seats_fixture *s = *state;
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    struct hold_spec w = seats_fixture_any(STRATEGY_SLOT, "ann", ann, 1);
    bool replayed;
    w.key = "key";
    assert_int_equal(replay(s, &w, &replayed), ERR_OK);
    assert_false(replayed);
    seats_fixture_held(s, w);
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

static void after_a_restart_everything_is_as_the_ledger_has_it_pitfall_31(void **state) {
    struct seats_fixture *s = *state;
    struct uuid ids[FIXTURE_STRATEGIES];
    static const char *const users[] = {"ann", "bob", "cat", "dee", "eve", "fay"};
    FOR_EACH_STRATEGY(strategy) {
        const char *user = users[strategy];
        uint64_t seq = fixture_admit(&s->fixture, user);
        ids[strategy] = seats_fixture_held(s, seats_fixture_any(strategy, user, seq, 1));
        struct uuid confirmed = seats_fixture_held(s, seats_fixture_any(strategy, user, seq, 1));
        assert_int_equal(fixture_confirm(&s->fixture, &confirmed, user, NULL), ERR_OK);
    }
    fixture_assert_agreement(&s->fixture);
    fixture_recover(&s->fixture);
    fixture_assert_agreement(&s->fixture);
    FOR_EACH_STRATEGY(strategy) {
        const char *user = users[strategy];
        uint64_t seq = fixture_admit(&s->fixture, user);
        assert_refused(s, seats_fixture_any(strategy, user, seq, 3), ERR_LIMIT_EXCEEDED, NULL);
        if (strategy % 2 == 0)
            assert_int_equal(fixture_confirm(&s->fixture, &ids[strategy], user, NULL), ERR_OK);
    }
    wall_clock_advance(FIXTURE_HOLD_MS);
    fixture_recover(&s->fixture);
    fixture_expire(&s->fixture);
    fixture_assert_agreement(&s->fixture);
    assert_int_equal(seats_fixture_rows(s, "EXPIRED"), FIXTURE_STRATEGIES / 2);
}

int main(void) {
    sync_recorder_register();
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, seats_fixture_set_up, seats_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_strategy_holds_confirms_and_releases),
        TEST(a_user_with_several_holds_stays_active_until_the_last_is_confirmed_pitfall_11),
        TEST(no_user_confirms_or_cancels_the_reservation_of_another_pitfall_25),
        TEST(seats_that_are_taken_are_refused_all_or_none_pitfall_24),
        TEST(the_last_seat_is_sold_and_then_none_pitfall_30),
        TEST(no_user_gets_more_than_the_limit),
        TEST(only_an_active_user_gets_seats),
        TEST(nothing_is_sold_where_it_is_closed),
        TEST(a_request_that_its_section_has_changed_under_is_refused),
        TEST(a_removed_element_is_not_found),
        TEST(one_of_thirty_requests_for_one_seat_gets_it_pitfall_21),
        TEST(a_request_that_loses_every_retry_is_refused_pitfall_21),
        TEST(a_list_shows_what_is_live_and_durable_pitfall_32),
        TEST(a_seat_that_only_the_ledger_knows_as_taken_is_not_sold_twice),
        TEST(a_request_for_any_seats_gets_others_than_those_the_ledger_has_taken),
        TEST(a_claim_that_the_ledger_never_takes_is_a_conflict_after_three_tries_pitfall_21),
        TEST(a_seat_that_only_the_hot_store_has_as_taken_is_not_lost_pitfall_26),
        TEST(requests_with_one_key_have_one_effect),
        TEST(a_key_that_was_used_is_answered_as_it_was),
        TEST(a_key_can_be_asked_about_before_anything_else),
        TEST(after_a_restart_everything_is_as_the_ledger_has_it_pitfall_31),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
