/*
 * Many clients buy, on real workers, the real ledger and the real hot store: all strategies at
 * once, several requests of one user at once, holds that expire, an event that changes. The result
 * is checked at the end, by the ledger's own history: no seat ever had two owners, no user ever had
 * more than allowed, every answer is true; and both stores have the same state.
 * RESERVATIONS_CROWD_SEED sets the requests of the clients, though not the order in which threads
 * run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service/leave.h"
#include "service_seats.h"
#include "splitmix.h"
#include "sync_recorder.h"

#define CLIENTS 24
#define USERS 8 /* so that each is there three times, on different workers */
#define CROWD_MS 3000
#define TICK_MS 10
#define PER_USER 4
#define CAPACITY 14
#define TOLD_MAX 1000
#define KEYS_MAX 4096

enum { SLOT_OR_LOCK, ADAPTIVE, SEAT, SECTIONS };

struct crowd;

/* The client's last answer about a reservation that it made. */
struct told {
    struct uuid id;
    bool confirmed;
    bool cancelled;
    bool expired;
};

struct client {
    struct worker_job job; /* first, so that an job is its client */
    struct crowd *crowd;
    int number;
    uint64_t random;
    char user[16];
    uint64_t seq; /* of the last place that it was given; 0: none */
    uint32_t seats[4];
    char key[16]; /* of the request under way; empty: none */
    unsigned key_number;
    struct told told[TOLD_MAX];
    size_t told_count;
    struct arena arena;
    union {
        struct place_enter enter;
        struct fixture_hold hold;
        struct reservation_action action;
        struct place_leave leave;
    };
};

struct crowd {
    struct fixture fixture;
    struct client clients[CLIENTS];
    uint64_t seed;
    _Atomic bool stop;
    _Atomic int gone;
    _Atomic int wrong; /* threads of the test can't fail it themselves */
    _Atomic int last_wrong;
    _Atomic int results[ERR_VERSION_NOT_SUPPORTED + 1]; /* of holds */
    _Atomic int replays;
    _Atomic unsigned key_turns[USERS];
    bool may_fail; /* the ledger does, now and then */
    pthread_mutex_t lock;
    struct uuid answered[USERS][KEYS_MAX]; /* under lock: by what a key was answered first */
};

static void next_turn(struct client *c) {
    fixture_send(&c->crowd->fixture, c->number % FIXTURE_WORKERS, &c->job);
}

static void expect(struct client *c, bool right, enum err result) {
    if (right || (c->crowd->may_fail && err_status(result) == 503)) return;
    c->crowd->wrong++;
    c->crowd->last_wrong = (int)result;
}

static uint64_t dice(struct client *c, uint64_t sides) {
    return next_random(&c->random) % sides;
}

/* ---- enter ---- */

static void on_entered(struct place_enter *e, enum err result) {
    struct client *c = CONTAINER_OF(e, struct client, enter);
    expect(c, result == ERR_OK, result);
    if (result == ERR_OK) c->seq = e->enter.place.seq;
    next_turn(c);
}

static void enter(struct client *c) {
    c->enter = (struct place_enter){.enter = {.op.event_key = c->crowd->fixture.key,
                                              .user = str_of(c->user),
                                              .lane = LANE_DEFAULT},
                                    .done = on_entered};
    waiting_room_enter(&c->crowd->fixture.room, &c->enter);
}

/* ---- hold ---- */

static bool may_be_answered(enum err result) {
    switch (result) {
    case ERR_OK:
    case ERR_NOT_ACTIVE:
    case ERR_LIMIT_EXCEEDED:
    case ERR_SOLD_OUT:
    case ERR_SEAT_TAKEN:
    case ERR_SEAT_NOT_FOUND: /* the section has shrunk */
    case ERR_SECTION_CLOSED:
    case ERR_CONFLICT:
    case ERR_LOCK_TIMEOUT:
    case ERR_LOCK_LOST:
    case ERR_HOLD_EXPIRED: /* on a busy machine it may wait for the disk for longer than it lasts */
        return true;
    default:
        return false;
    }
}

/* All requests with the key are answered with one reservation. */
static void compare_answers(struct client *c, const struct uuid *made) {
    struct crowd *x = c->crowd;
    struct uuid *first = &x->answered[c->number % USERS][c->key_number];
    static const struct uuid none;
    struct uuid id = made != NULL ? *made : c->hold.idempotency.reservation;
    pthread_mutex_lock(&x->lock);
    if (uuid_eq(first, &none)) *first = id;
    expect(c, uuid_eq(first, &id), ERR_OK);
    pthread_mutex_unlock(&x->lock);
}

static void on_held(struct fixture_hold *h) {
    struct client *c = CONTAINER_OF(h, struct client, hold);
    bool is_replayed = h->result == ERR_OK && h->idempotency.replayed;
    const struct uuid *made = h->result == ERR_OK && !is_replayed ? &h->hold.reservation.id : NULL;
    c->crowd->results[h->result]++;
    c->crowd->replays += is_replayed;
    expect(c, may_be_answered(h->result), h->result);
    if (h->result == ERR_OK && c->key[0] != '\0') compare_answers(c, made);
    if (h->result == ERR_NOT_ACTIVE) c->seq = 0;
    if (made != NULL) c->told[c->told_count++] = (struct told){.id = *made};
    fixture_hold_end(h);
    next_turn(c);
}

/* A key is always used with the same request. */
static void choose_by(struct hold_spec *w, uint64_t *random, uint32_t *seats) {
    w->section = next_random(random) % SECTIONS;
    w->quantity = (uint32_t)(next_random(random) % 3 + 1);
    if (next_random(random) % 2 == 0) return;
    uint32_t first = (uint32_t)(next_random(random) % (CAPACITY - 2)) + 1;
    uint32_t apart = (uint32_t)(next_random(random) % 2) + 1;
    for (uint32_t i = 0; i < w->quantity; i++) seats[i] = first + i * apart;
    seats[w->quantity] = 0;
    w->seats = seats;
}

static enum strategy strategy_for(struct client *c, enum section_mode mode) {
    if (mode != SECTION_MODE_SEAT) return strategy_default(mode);
    return (enum strategy)(STRATEGY_OPTIMISTIC + dice(c, 3));
}

static void hold(struct client *c) {
    struct fixture *fixture = &c->crowd->fixture;
    struct hold_spec w = {.user = c->user, .seq = c->seq};
    uint64_t random = c->random;
    c->key[0] = '\0';
    if (dice(c, 3) == 0) {
        int user = c->number % USERS;
        c->key_number = c->crowd->key_turns[user]++ / 3 % KEYS_MAX; /* three in a row the same */
        random = c->crowd->seed + c->key_number;
        snprintf(c->key, sizeof c->key, "key%u", c->key_number);
        w.key = c->key;
        w.body = 1;
    }
    choose_by(&w, &random, c->seats);
    fixture_hold_prepare(fixture, &c->hold, &w);
    c->hold.hold.strategy = strategy_for(c, c->hold.hold.terms.mode);
    c->hold.done = on_held;
    fixture_hold_start(fixture, &fixture->desks[c->number % FIXTURE_WORKERS], &c->hold);
}

/* ---- confirm, cancel, leave ---- */

static enum err judge_user(struct reservation_action *d, const struct reservation *r) {
    const char *user = CONTAINER_OF(d, struct client, action)->user;
    return strcmp(user, r->user) == 0 ? ERR_OK : ERR_NOT_YOURS;
}

static struct told *told_of(struct client *c, const struct uuid *id) {
    size_t at = c->told_count - 1;
    while (!uuid_eq(&c->told[at].id, id)) at--;
    return &c->told[at];
}

static void on_confirmed(struct reservation_action *d, enum err result) {
    struct client *c = CONTAINER_OF(d, struct client, action);
    struct told *t = told_of(c, &d->id);
    bool was_ended = t->cancelled || t->expired;
    expect(c,
           (result == ERR_OK && !was_ended) || (result == ERR_HOLD_EXPIRED && !t->confirmed) ||
               result == ERR_RESERVATION_ENDED,
           result);
    if (result == ERR_OK) t->confirmed = true;
    if (result == ERR_HOLD_EXPIRED) t->expired = true;
    mem_free(d->reservation);
    next_turn(c);
}

static void on_cancelled(struct reservation_action *d, enum err result) {
    struct client *c = CONTAINER_OF(d, struct client, action);
    struct told *t = told_of(c, &d->id);
    expect(c, (result == ERR_OK && !t->expired) || (result == ERR_HOLD_EXPIRED && !t->confirmed),
           result);
    if (result == ERR_OK) t->cancelled = true;
    if (result == ERR_HOLD_EXPIRED) t->expired = true;
    mem_free(d->reservation);
    next_turn(c);
}

/* One of its last few. */
static void decide(struct client *c, bool confirms) {
    size_t back = dice(c, 4) + 1;
    size_t at = back > c->told_count ? 0 : c->told_count - back;
    c->action = (struct reservation_action){.id = c->told[at].id,
                                            .judge = judge_user,
                                            .may_end_confirmed = true,
                                            .done = confirms ? on_confirmed : on_cancelled};
    (confirms ? reservations_confirm : reservations_cancel)(&c->crowd->fixture.reservations,
                                                            &c->action);
}

static void on_left(struct place_leave *l, enum err result) {
    struct client *c = CONTAINER_OF(l, struct client, leave);
    expect(c, result == ERR_OK, result);
    if (result == ERR_OK) c->seq = 0;
    arena_reset(&c->arena);
    next_turn(c);
}

static void leave(struct client *c) {
    c->leave = (struct place_leave){
        .event_key = c->crowd->fixture.key, .seq = c->seq, .arena = &c->arena, .done = on_left};
    leave_place(&c->crowd->fixture.reservations, &c->leave);
}

static void act(struct worker_job *job) {
    struct client *c = (struct client *)job;
    if (c->crowd->stop || c->told_count == TOLD_MAX) {
        c->crowd->gone++;
        return;
    }
    uint64_t chance = dice(c, 100);
    if (c->seq == 0)
        enter(c);
    else if (chance < 55 || c->told_count == 0)
        hold(c);
    else if (chance < 65)
        decide(c, true);
    else if (chance < 95)
        decide(c, false);
    else
        leave(c);
}

/* ---- the crowd ---- */

static struct event *crowded_event(void) {
    static const enum section_mode modes[SECTIONS] = {SECTION_MODE_SLOT, SECTION_MODE_ADAPTIVE,
                                                      SECTION_MODE_SEAT};
    struct event *e = test_event("1", SECTIONS);
    e->queue = (struct queue_rules){.max_waiting = 100,
                                    .max_active = 100,
                                    .entry_batch_size = 100000,
                                    .entry_interval_s = 1,
                                    .active_ttl_s = 2,
                                    .grace_s = 300};
    e->hold_s = 1;
    e->max_per_user = PER_USER;
    for (int i = 0; i < SECTIONS; i++) {
        e->sections[i].capacity = CAPACITY;
        e->sections[i].mode = modes[i];
    }
    return e;
}

static void crowd_open(struct crowd *x, bool may_fail) {
    const char *wanted = getenv("RESERVATIONS_CROWD_SEED");
    x->seed = wanted != NULL ? strtoull(wanted, NULL, 10) : (uint64_t)clock_wall_ms();
    x->may_fail = may_fail;
    pthread_mutex_init(&x->lock, NULL);
    struct event *e = crowded_event();
    fixture_build_event(&x->fixture, e);
    mem_free(e);
    x->fixture.reservations.load.rules =
        (struct adaptive_rules){.calm_below = 2, .hot_above = 5, .wait_ms = 5, .rest_ms = 20};
    fixture_start_ticking_workers(&x->fixture, TICK_MS);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &x->clients[i];
        *c = (struct client){.crowd = x, .number = i, .random = x->seed + (uint64_t)i};
        snprintf(c->user, sizeof c->user, "user%d", i % USERS);
        c->job.work = act;
        next_turn(c);
    }
}

/* The event changes while it sells; a change that is refused because of taken seats has no effect.
 */
static void change_event(struct crowd *x, int turn) {
    struct event *e = fixture_event(&x->fixture);
    e->sections[SLOT_OR_LOCK].mode = turn % 4 < 2 ? SECTION_MODE_SLOT : SECTION_MODE_LOCK;
    e->sections[SLOT_OR_LOCK].status = turn % 8 == 7 ? SECTION_CLOSED : SECTION_OPEN;
    e->sections[ADAPTIVE].capacity = turn % 3 == 0 ? CAPACITY - 4 : CAPACITY;
    e->sections[SEAT].capacity = turn % 5 == 0 ? CAPACITY - 4 : CAPACITY;
    enum err result = fixture_put(&x->fixture, e);
    assert_true(result == ERR_OK || result == ERR_SECTION_IN_USE ||
                (x->may_fail && err_status(result) == 503));
    mem_free(e);
}

static void watch(struct crowd *x) {
    int64_t until_ns = clock_steady_ns() + CROWD_MS * INT64_C(1000000);
    for (int turn = 0; clock_steady_ns() < until_ns; turn++) {
        if (x->may_fail) sync_fail_syncs(turn % 4 == 3 ? SQLITE_IOERR_FSYNC : 0);
        change_event(x, turn);
        harness_run_for(&x->fixture.h, 30);
    }
    sync_fail_syncs(0);
    fixture_wait_writable(&x->fixture);
}

static bool everybody_is_gone(void *arg) {
    return ((struct crowd *)arg)->gone == CLIENTS;
}

static void crowd_disperse(struct crowd *x) {
    x->stop = true;
    harness_wait(&x->fixture.h, everybody_is_gone, x);
    fixture_stop_workers(&x->fixture);
    if (x->wrong > 0)
        fail_msg("%d wrong answers, the last with %s (RESERVATIONS_CROWD_SEED=%llu)", x->wrong,
                 err_code((enum err)x->last_wrong).at, (unsigned long long)x->seed);
}

/* ---- what must hold ---- */

/* Facts are numbered in the order in which they were committed. */
static void assert_no_seat_was_in_two_hands(struct fixture *h) {
    assert_int_equal(
        raw_number(
            &h->h,
            "WITH thread_args AS (SELECT r.section_id AS section, n.value AS seat, b.id AS begins,"
            "  coalesce(e.id, 9223372036854775807) AS ends"
            "  FROM reservations r, json_each('[' || r.seats || ']') n"
            "  JOIN facts b ON b.reservation_id = r.id AND b.kind = 'HELD'"
            "  LEFT JOIN facts e ON e.reservation_id = r.id"
            "   AND e.kind IN ('CANCELLED', 'EXPIRED'))"
            " SELECT count(*) FROM (SELECT begins, max(ends) OVER (PARTITION BY section, seat"
            "  ORDER BY begins ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before"
            "  FROM thread_args) WHERE before > begins"),
        0);
}

static void assert_nobody_had_too_many(struct fixture *h) {
    int64_t most = raw_number(
        &h->h, "SELECT max(total) FROM (SELECT sum(CASE kind WHEN 'HELD' THEN seat_count"
               " WHEN 'CONFIRMED' THEN 0 ELSE -seat_count END) OVER (PARTITION BY user_id"
               " ORDER BY id) AS total FROM facts WHERE kind <> 'SOLD_OUT')");
    assert_int_equal(most, PER_USER); /* and some user had as many as that */
}

static void assert_told_the_truth(struct crowd *x, const struct told *t) {
    struct reservation *r = fixture_find(&x->fixture, &t->id);
    assert_non_null(r);
    if (t->cancelled)
        assert_int_equal(r->status, RESERVATION_CANCELLED);
    else if (t->expired)
        assert_int_equal(r->status, RESERVATION_EXPIRED);
    else if (t->confirmed)
        assert_int_equal(r->status, RESERVATION_CONFIRMED);
    mem_free(r);
}

static void assert_all_is_well(struct crowd *x) {
    fixture_expire(&x->fixture);
    fixture_assert_agreement(&x->fixture);
    assert_no_seat_was_in_two_hands(&x->fixture);
    assert_nobody_had_too_many(&x->fixture);
    for (int i = 0; i < CLIENTS; i++)
        for (size_t k = 0; k < x->clients[i].told_count; k++)
            assert_told_the_truth(x, &x->clients[i].told[k]);
    fixture_recover(&x->fixture);
    fixture_assert_agreement(&x->fixture);
}

static void run_crowd(bool may_fail) {
    struct crowd *x = mem_new(sizeof *x);
    crowd_open(x, may_fail);
    watch(x);
    crowd_disperse(x);
    assert_all_is_well(x);
    static const enum err met[] = {ERR_OK, ERR_LIMIT_EXCEEDED, ERR_SEAT_TAKEN};
    for (size_t i = 0; i < sizeof met / sizeof *met; i++) assert_true(x->results[met[i]] > 0);
    assert_true(x->replays > 0);
    if (may_fail) assert_true(x->results[ERR_LEDGER_FAILED] > 0);
    fixture_tear_down(&x->fixture);
    pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

static void many_buyers_never_get_a_seat_twice(void **state) {
    (void)state;
    run_crowd(false);
}

static void many_buyers_on_a_ledger_with_random_failures_lose_no_seat(void **state) {
    (void)state;
    run_crowd(true);
}

int main(void) {
    sync_recorder_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_buyers_never_get_a_seat_twice),
        cmocka_unit_test(many_buyers_on_a_ledger_with_random_failures_lose_no_seat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
