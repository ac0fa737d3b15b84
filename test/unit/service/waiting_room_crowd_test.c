/* Many clients in the waiting room, on real workers, the real ledger and the real hot store: the
 * limits and the order hold at any concurrency, and both stores end with the same state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service_fixture.h"
#include "splitmix.h"
#include "sync_recorder.h"

/* ---- 64 clients with random requests ---- */

#define CLIENTS 64
#define USERS 48 /* so that some are there twice, on two workers */
#define CROWD_MS 3000
#define TICK_MS 10

static const struct queue_rules crowded = {.max_waiting = 20,
                                           .max_active = 8,
                                           .entry_batch_size = 1000,
                                           .entry_interval_s = 1,
                                           .active_ttl_s = 1,
                                           .grace_s = 1};

struct crowd;

struct client {
    struct worker_job job; /* first, so that an job is its client */
    struct crowd *crowd;
    int worker;
    uint64_t random;
    char user[32];
    uint64_t seq; /* of the last place that it was given; 0: none */
    struct place_enter enter;
    struct place_end end;
    struct place_look look;
};

struct crowd {
    struct fixture fixture;
    struct client clients[CLIENTS];
    _Atomic bool stop;
    _Atomic int gone;
    _Atomic int wrong; /* threads of the test can't fail it themselves */
    _Atomic int failures;
    _Atomic int taken;
    _Atomic int there;
    _Atomic int full;
    _Atomic int completed;
    bool may_fail; /* the ledger does, now and then */
};

/* Through the mailbox, for some answers come before the question returns. */
static void next_turn(struct client *c) {
    fixture_send(&c->crowd->fixture, c->worker, &c->job);
}

static void expect(struct client *c, bool right) {
    if (!right) c->crowd->wrong++;
}

static void expect_result(struct client *c, enum err result) {
    if (result != ERR_OK) c->crowd->failures++;
    expect(c, result == ERR_OK || c->crowd->may_fail);
}

static void on_entered(struct place_enter *e, enum err result) {
    struct client *c = CONTAINER_OF(e, struct client, enter);
    expect_result(c, result);
    bool is_there = e->enter.outcome == ENTER_TAKEN || e->enter.outcome == ENTER_THERE;
    if (result == ERR_OK && is_there) {
        expect(c, !e->enter.place.pending && e->enter.place.status != ENTRY_NONE);
        expect(c, e->enter.place.position <= (uint64_t)crowded.max_waiting);
        c->seq = e->enter.place.seq;
        if (e->enter.outcome == ENTER_TAKEN)
            c->crowd->taken++;
        else
            c->crowd->there++;
    } else if (result == ERR_OK) {
        expect(c, e->enter.outcome == ENTER_FULL);
        c->crowd->full++;
    }
    next_turn(c);
}

static void on_ended(struct place_end *e, enum err result) {
    struct client *c = CONTAINER_OF(e, struct client, end);
    expect_result(c, result);
    if (result == ERR_OK && e->ended && e->final == ENTRY_COMPLETED) c->crowd->completed++;
    next_turn(c);
}

static void on_looked(struct place_look *l, enum err result) {
    struct client *c = CONTAINER_OF(l, struct client, look);
    expect_result(c, result);
    expect(c, result != ERR_OK || l->item.place.status != ENTRY_NONE);
    next_turn(c);
}

/* Somebody else comes; the place that is left behind expires. */
static void walk_away(struct client *c) {
    snprintf(c->user, sizeof c->user, "user%d-%u", (int)(c - c->crowd->clients),
             (unsigned)next_random(&c->random) % 1000);
    c->seq = 0;
}

static void act(struct worker_job *job) {
    struct client *c = (struct client *)job;
    struct waiting_room *w = &c->crowd->fixture.room;
    int64_t key = c->crowd->fixture.key;
    if (c->crowd->stop) {
        c->crowd->gone++;
        return;
    }
    if (c->seq != 0 && next_random(&c->random) % 500 == 0) walk_away(c);
    uint64_t dice = next_random(&c->random) % 100;
    if (c->seq == 0 || dice < 40) {
        c->enter = (struct place_enter){
            .enter = {.op.event_key = key, .user = str_of(c->user), .lane = dice % 2 ? 8 : 3},
            .done = on_entered};
        waiting_room_enter(w, &c->enter);
    } else if (dice < 80) {
        c->look = (struct place_look){
            .look.op.event_key = key, .item = {.seq = c->seq, .seen = true}, .done = on_looked};
        waiting_room_look(w, &c->look);
    } else {
        /* Some complete though they wait, or have ended long since. */
        c->end = (struct place_end){.event_key = key,
                                    .seq = c->seq,
                                    .final = dice < 92 ? ENTRY_COMPLETED : ENTRY_LEFT,
                                    .done = on_ended};
        waiting_room_end(w, &c->end);
    }
}

static void crowd_open(struct crowd *x, bool may_fail) {
    fixture_build(&x->fixture, &crowded);
    x->may_fail = may_fail;
    fixture_start_ticking_workers(&x->fixture, TICK_MS);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &x->clients[i];
        *c = (struct client){
            .crowd = x, .worker = i * FIXTURE_WORKERS / CLIENTS, .random = (uint64_t)i + 1};
        snprintf(c->user, sizeof c->user, "user%d", i % USERS);
        c->job.work = act;
        next_turn(c);
    }
}

static bool everybody_is_gone(void *arg) {
    return ((struct crowd *)arg)->gone == CLIENTS;
}

/* All clients have left, nothing is under way, and no worker is busy. */
static void crowd_disperse(struct crowd *x) {
    x->stop = true;
    harness_wait(&x->fixture.h, everybody_is_gone, x);
    fixture_stop_workers(&x->fixture);
    assert_int_equal(x->wrong, 0);
}

/* Looks as fast as possible. */
static void watch_caps(struct crowd *x, int64_t ms) {
    int64_t until_ns = clock_steady_ns() + ms * 1000000;
    while (clock_steady_ns() < until_ns) {
        struct queue_counts c = fixture_counts(&x->fixture);
        assert_true(c.waiting <= (uint64_t)crowded.max_waiting);
        assert_true(c.active <= (uint64_t)crowded.max_active);
        harness_run_for(&x->fixture.h, 0);
        usleep(100);
    }
}

struct seen_queue {
    uint64_t seqs[64];
    struct place places[64];
    size_t count;
    struct fixture *fixture;
};

static void on_entry(void *to, const struct ledger_entry *e) {
    struct seen_queue *q = to;
    assert_true(q->count < 64);
    q->seqs[q->count] = e->seq;
    q->places[q->count++] = fixture_place(q->fixture, e->seq, 0);
}

static void note_queue(struct fixture *h, struct seen_queue *q) {
    *q = (struct seen_queue){.fixture = h};
    struct ledger_reader reader = {.on_entry = on_entry, .to = q};
    assert_int_equal(ledger_load(h->ledger, &reader), ERR_OK);
}

/* After a restart every user has the same place. */
static void assert_recovers(struct crowd *x) {
    struct seen_queue before;
    struct seen_queue after;
    note_queue(&x->fixture, &before);
    int64_t highest = raw_number(&x->fixture.h, "SELECT max(seq) FROM queue_entries");
    fixture_recover(&x->fixture);
    fixture_assert_agreement(&x->fixture);
    note_queue(&x->fixture, &after);
    assert_int_equal(after.count, before.count);
    for (size_t i = 0; i < after.count; i++) {
        assert_int_equal(after.seqs[i], before.seqs[i]);
        assert_int_equal(after.places[i].status, before.places[i].status);
        assert_int_equal(after.places[i].position, before.places[i].position);
        assert_int_equal(after.places[i].expires_ms, before.places[i].expires_ms);
    }
    struct place_enter e;
    fixture_configure(&x->fixture, EVENT_OPEN,
                      &(struct queue_rules){1000, 1000, 1000, 1, 600, 300, 0});
    assert_int_equal(fixture_enter(&x->fixture, "newcomer", 8, &e), ERR_OK);
    assert_true((int64_t)e.enter.place.seq > highest);
}

static void many_users_exceed_no_limit_and_both_stores_agree_pitfalls_4_and_13(void **state) {
    (void)state;
    struct crowd *x = mem_new(sizeof *x);
    crowd_open(x, false);
    watch_caps(x, CROWD_MS);
    crowd_disperse(x);
    struct queue_counts c = fixture_counts(&x->fixture);
    assert_true(x->taken > 100 && x->there > 100 && x->full > 0 && x->completed > 0);
    assert_true(c.left > 0 && c.expired > 0 && c.admitted > 0 && c.completed > 0);
    assert_int_equal(c.entered, x->taken);
    fixture_assert_agreement(&x->fixture);
    assert_recovers(x);
    fixture_tear_down(&x->fixture);
    mem_free(x);
}

static void many_users_on_a_ledger_with_random_failures_leave_no_partial_state(void **state) {
    (void)state;
    struct crowd *x = mem_new(sizeof *x);
    crowd_open(x, true);
    for (int i = 0; i < 4; i++) {
        watch_caps(x, 200);
        sync_fail_syncs(SQLITE_IOERR_FSYNC);
        watch_caps(x, 50);
        sync_fail_syncs(0);
        fixture_wait_writable(&x->fixture);
    }
    watch_caps(x, 200);
    crowd_disperse(x);
    assert_true(x->failures > 0 && x->taken > 100);
    /* The remaining records are written. */
    fixture_wait_writable(&x->fixture);
    assert_true(waiting_room_tick_begin(&x->fixture.room, 1));
    fixture_wait_idle(&x->fixture);
    fixture_assert_agreement(&x->fixture);
    assert_recovers(x);
    fixture_tear_down(&x->fixture);
    mem_free(x);
}

/* ---- ten thousand in a row ---- */

#define ENTRANTS 10000
#define LANE_FIRST 2

struct entrant {
    struct place_enter e;
    char user[16];
    struct row *row;
};

struct row {
    struct fixture fixture;
    struct entrant entrants[ENTRANTS];
    _Atomic int entered;
    _Atomic int wrong;
    uint64_t admitted[ENTRANTS]; /* in the order in which they were reported */
    size_t admitted_count;
    uint8_t lanes[ENTRANTS + 1]; /* by seq */
};

static void on_entrant(struct place_enter *e, enum err result) {
    struct row *r = CONTAINER_OF(e, struct entrant, e)->row;
    bool right = result == ERR_OK && e->enter.outcome == ENTER_TAKEN && !e->enter.place.pending &&
                 e->enter.place.status == ENTRY_WAITING && e->enter.place.seq <= ENTRANTS;
    if (right)
        r->lanes[e->enter.place.seq] = (uint8_t)e->enter.place.lane;
    else
        r->wrong++;
    r->entered++;
}

struct share {
    struct worker_job job; /* first, so that an job is its share */
    int index;
};

static void enter_share(struct worker_job *job) {
    struct share *s = (struct share *)job;
    struct row *r = CONTAINER_OF(job->fixture, struct row, fixture);
    for (int i = s->index; i < ENTRANTS; i += FIXTURE_WORKERS) {
        struct entrant *n = &r->entrants[i];
        n->row = r;
        snprintf(n->user, sizeof n->user, "user%d", i);
        n->e = (struct place_enter){.enter = {.op.event_key = job->fixture->key,
                                              .user = str_of(n->user),
                                              .lane = i % 3 == 0 ? LANE_FIRST : LANE_DEFAULT},
                                    .done = on_entrant};
        waiting_room_enter(&job->fixture->room, &n->e);
    }
}

static bool all_have_entered(void *arg) {
    return ((struct row *)arg)->entered == ENTRANTS;
}

static void on_row_changed(void *to, int64_t event_key, const uint64_t *seqs, size_t count) {
    struct row *r = to;
    (void)event_key;
    for (size_t i = 0; i < count; i++) {
        assert_true(r->admitted_count < ENTRANTS);
        r->admitted[r->admitted_count++] = seqs[i];
    }
}

static bool all_are_admitted(void *arg) {
    return ((struct row *)arg)->admitted_count == ENTRANTS;
}

static void enter_all(struct row *r) {
    struct share shares[FIXTURE_WORKERS];
    fixture_start_workers(&r->fixture);
    for (int i = 0; i < FIXTURE_WORKERS; i++) {
        shares[i] = (struct share){.job.work = enter_share, .index = i};
        fixture_send(&r->fixture, i, &shares[i].job);
    }
    harness_wait(&r->fixture.h, all_have_entered, r);
    fixture_stop_workers(&r->fixture);
    assert_int_equal(r->wrong, 0);
}

static void ten_thousand_of_two_lanes_are_admitted_without_an_inversion_pitfall_2(void **state) {
    (void)state;
    static const struct queue_rules wide = {.max_waiting = ENTRANTS,
                                            .max_active = ENTRANTS,
                                            .entry_batch_size = ENTRANTS,
                                            .entry_interval_s = 1,
                                            .active_ttl_s = 600,
                                            .grace_s = 300};
    struct row *r = mem_new(sizeof *r);
    fixture_build(&r->fixture, &wide);
    r->fixture.room.changed = on_row_changed;
    r->fixture.room.to = r;
    fixture_configure(&r->fixture, EVENT_PAUSED, NULL);
    enter_all(r);
    fixture_configure(&r->fixture, EVENT_OPEN, NULL);
    waiting_room_tick(&r->fixture.room, r->fixture.key, NULL, NULL); /* goes on by itself */
    harness_wait(&r->fixture.h, all_are_admitted, r);
    size_t inversions = 0;
    for (size_t i = 1; i < ENTRANTS; i++) {
        uint64_t a = r->admitted[i - 1];
        uint64_t b = r->admitted[i];
        inversions += r->lanes[a] > r->lanes[b] || (r->lanes[a] == r->lanes[b] && a >= b);
    }
    assert_int_equal(inversions, 0);
    assert_int_equal(r->lanes[r->admitted[0]], LANE_FIRST);
    fixture_wait_idle(&r->fixture);
    fixture_assert_agreement(&r->fixture);
    fixture_tear_down(&r->fixture);
    mem_free(r);
}

int main(void) {
    sync_recorder_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_users_exceed_no_limit_and_both_stores_agree_pitfalls_4_and_13),
        cmocka_unit_test(many_users_on_a_ledger_with_random_failures_leave_no_partial_state),
        cmocka_unit_test(ten_thousand_of_two_lanes_are_admitted_without_an_inversion_pitfall_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
