/* The use cases of the queue, on the real ledger and the real hot store, one after another. */
#include "service/waiting_room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "faulty_ledger.h"
#include "service_fixture.h"
#include "sync_recorder.h"

static const struct queue_rules rules = {.max_waiting = 100,
                                         .max_active = 2,
                                         .entry_batch_size = 1000,
                                         .entry_interval_s = 1,
                                         .active_ttl_s = 600,
                                         .grace_s = 300};

struct test_state {
    struct fixture service;
    /* The calls of `changed`. */
    uint64_t changed[64];
    size_t changed_count;
};

static void on_changed(void *to, int64_t event_key, const uint64_t *seqs, size_t count) {
    struct test_state *f = to;
    assert_int_equal(event_key, f->service.key);
    for (size_t i = 0; i < count; i++) {
        assert_true(f->changed_count < 64);
        f->changed[f->changed_count++] = seqs[i];
    }
}

static int set_up(void **state) {
    struct test_state *f = mem_new(sizeof *f);
    fixture_build(&f->service, &rules);
    f->service.room.changed = on_changed;
    f->service.room.to = f;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct test_state *f = *state;
    sync_gate_open();
    sync_fail_syncs(0);
    fixture_tear_down(&f->service);
    mem_free(f);
    return 0;
}

static uint64_t take(struct test_state *f, const char *user, enum entry_status status) {
    struct place_enter e;
    assert_int_equal(fixture_enter(&f->service, user, LANE_DEFAULT, &e), ERR_OK);
    assert_int_equal(e.enter.outcome, ENTER_TAKEN);
    assert_int_equal(e.enter.place.status, status);
    assert_false(e.enter.place.pending);
    return e.enter.place.seq;
}

static int64_t rows(struct test_state *f, const char *status) {
    return raw_number(&f->service.h, "SELECT count(*) FROM queue_entries WHERE status = '%s'",
                      status);
}

static void assert_counts(struct test_state *f, uint64_t waiting, uint64_t active) {
    struct queue_counts c = fixture_counts(&f->service);
    assert_int_equal(c.waiting, waiting);
    assert_int_equal(c.active, active);
}

/* ---- entering ---- */

struct probe {
    struct place_enter e;
    _Atomic bool back;
    enum err result;
    int64_t back_ns;
};

static void on_probe(struct place_enter *e, enum err result) {
    struct probe *p = CONTAINER_OF(e, struct probe, e);
    p->result = result;
    p->back_ns = clock_steady_ns();
    p->back = true;
}

static bool probe_is_back(void *arg) {
    return ((struct probe *)arg)->back;
}

static void probe_prepare(struct test_state *f, struct probe *p, const char *user) {
    *p = (struct probe){
        .e = {.enter = {.op.event_key = f->service.key, .user = str_of(user), .lane = LANE_DEFAULT},
              .done = on_probe}};
}

static void probe_enter(struct test_state *f, struct probe *p, const char *user) {
    probe_prepare(f, p, user);
    waiting_room_enter(&f->service.room, &p->e);
}

static void an_enter_is_answered_only_when_it_is_on_disk(void **state) {
    struct test_state *f = *state;
    struct probe p;
    sync_watch(0, "whoever-enters-first");
    sync_gate_close();
    probe_enter(f, &p, "whoever-enters-first");
    raw_wait_for_sync(&f->service.h);
    harness_run_for(&f->service.h, 100);
    assert_false(p.back);
    assert_counts(f, 0, 1); /* it counts, though */
    assert_true(fixture_place(&f->service, 1, clock_wall_ms()).pending);
    sync_gate_open();
    harness_wait(&f->service.h, probe_is_back, &p);
    assert_int_equal(p.result, ERR_OK);
    assert_int_equal(p.e.enter.outcome, ENTER_TAKEN);
    assert_false(p.e.enter.place.pending);
    assert_true(sync_proven(0, p.back_ns));
    sync_watch(0, NULL);
}

static void a_repeated_enter_is_answered_with_the_first(void **state) {
    struct test_state *f = *state;
    struct probe first;
    struct probe second;
    sync_gate_close();
    probe_enter(f, &first, "ann");
    raw_wait_for_sync(&f->service.h);
    probe_enter(f, &second, "ann");
    harness_run_for(&f->service.h, 50);
    assert_false(first.back || second.back);
    sync_gate_open();
    harness_wait(&f->service.h, probe_is_back, &first);
    harness_wait(&f->service.h, probe_is_back, &second);
    assert_int_equal(second.e.enter.outcome, ENTER_THERE);
    assert_int_equal(second.e.enter.place.seq, first.e.enter.place.seq);
    assert_int_equal(second.e.enter.place.expires_ms, first.e.enter.place.expires_ms);
    assert_int_equal(rows(f, "ACTIVE"), 1);
}

static void what_a_full_or_closed_queue_answers_is_written_nowhere(void **state) {
    struct test_state *f = *state;
    struct place_enter e;
    struct queue_rules full = rules;
    full.max_waiting = 0;
    full.max_active = 1;
    fixture_configure(&f->service, EVENT_OPEN, &full);
    take(f, "ann", ENTRY_ACTIVE);
    assert_int_equal(fixture_enter(&f->service, "bob", 8, &e), ERR_OK);
    assert_int_equal(e.enter.outcome, ENTER_FULL);
    fixture_configure(&f->service, EVENT_CLOSED, NULL);
    assert_int_equal(fixture_enter(&f->service, "bob", 8, &e), ERR_OK);
    assert_int_equal(e.enter.outcome, ENTER_CLOSED);
    assert_int_equal(fixture_enter(&f->service, "ann", 8, &e), ERR_OK);
    assert_int_equal(e.enter.outcome, ENTER_THERE);
    f->service.key++;
    assert_int_equal(fixture_enter(&f->service, "ann", 8, &e), ERR_EVENT_NOT_FOUND);
    f->service.key--;
    assert_int_equal(raw_number(&f->service.h, "SELECT count(*) FROM queue_entries"), 1);
}

/* ---- one user on two workers ---- */

#define ROUNDS 200

struct twin {
    struct worker_job job; /* first, so that an job is its twin */
    struct probe p;
};

static void enter_as_twin(struct worker_job *job) {
    waiting_room_enter(&job->fixture->room, &((struct twin *)job)->p.e);
}

static void one_user_on_two_workers_has_one_place_pitfall_7(void **state) {
    struct test_state *f = *state;
    struct queue_rules many = rules;
    many.max_waiting = 2 * ROUNDS;
    fixture_configure(&f->service, EVENT_OPEN, &many);
    fixture_start_workers(&f->service);
    int joined = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char user[24];
        snprintf(user, sizeof user, "user%d", i);
        struct twin twins[2];
        for (int t = 0; t < 2; t++) {
            twins[t] = (struct twin){.job.work = enter_as_twin};
            probe_prepare(f, &twins[t].p, user);
            fixture_send(&f->service, t, &twins[t].job);
        }
        for (int t = 0; t < 2; t++) harness_wait(&f->service.h, probe_is_back, &twins[t].p);
        const struct enter_op *a = &twins[0].p.e.enter;
        const struct enter_op *b = &twins[1].p.e.enter;
        assert_int_equal(twins[0].p.result, ERR_OK);
        assert_int_equal(twins[1].p.result, ERR_OK);
        assert_int_equal(a->place.seq, b->place.seq);
        assert_int_equal(a->place.status, b->place.status);
        assert_int_equal(a->place.position, b->place.position);
        assert_int_equal(a->place.joined_ms, b->place.joined_ms);
        assert_int_equal((a->outcome == ENTER_TAKEN) + (b->outcome == ENTER_TAKEN), 1);
        joined += twins[0].p.e.record.seq != 0 && twins[1].p.e.record.seq != 0;
    }
    assert_true(joined > 0); /* the second came while the first was pending, at least once */
    assert_int_equal(raw_number(&f->service.h, "SELECT count(*) FROM queue_entries"), ROUNDS);
    fixture_stop_workers(&f->service);
    fixture_assert_agreement(&f->service);
}

/* ---- a ledger that fails ---- */

static void a_place_that_the_ledger_could_not_take_is_undone(void **state) {
    struct test_state *f = *state;
    struct place_enter e;
    take(f, "ann", ENTRY_ACTIVE);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    assert_int_equal(fixture_enter(&f->service, "bob", 8, &e), ERR_LEDGER_FAILED);
    assert_counts(f, 0, 1);
    assert_int_equal(fixture_place(&f->service, 2, clock_wall_ms()).status, ENTRY_NONE);
    sync_fail_syncs(0);
    uint64_t seq = take(f, "bob", ENTRY_ACTIVE);
    assert_true(seq > 2);
    assert_counts(f, 0, 2);
    assert_int_equal(rows(f, "ACTIVE"), 2);
    fixture_assert_agreement(&f->service);
}

/* Ann enters twice: the first record fails, the second one, of the same place, is written. */
static void enter_twice_of_which_the_first_fails(struct test_state *f, struct faulty_ledger *x,
                                                 struct probe twice[2]) {
    faulty_ledger_init(x, f->service.ledger, 1);
    f->service.room.ledger = &x->ledger;
    sync_gate_close();
    probe_enter(f, &twice[0], "ann");
    probe_enter(f, &twice[1], "ann");
    harness_wait(&f->service.h, probe_is_back, &twice[0]);
    assert_int_equal(twice[0].result, ERR_LEDGER_FAILED);
    assert_counts(f, 0, 0);
}

static void a_request_that_joined_a_failed_place_takes_another(void **state) {
    struct test_state *f = *state;
    struct faulty_ledger x;
    struct probe twice[2];
    enter_twice_of_which_the_first_fails(f, &x, twice);
    sync_gate_open();
    harness_wait(&f->service.h, probe_is_back, &twice[1]);
    assert_int_equal(twice[1].result, ERR_OK);
    assert_int_equal(twice[1].e.enter.place.seq, 2);
    assert_int_equal(twice[1].e.enter.place.status, ENTRY_ACTIVE);
    fixture_wait_idle(&f->service);
    assert_int_equal(rows(f, "EXPIRED"), 1); /* the row of the first place */
    fixture_assert_agreement(&f->service);
}

static void a_row_of_an_undone_place_ends_though_its_user_has_got_another(void **state) {
    struct test_state *f = *state;
    struct faulty_ledger x;
    struct probe twice[2];
    struct probe third;
    enter_twice_of_which_the_first_fails(f, &x, twice);
    probe_enter(f, &third, "ann");
    sync_gate_open();
    harness_wait(&f->service.h, probe_is_back, &twice[1]);
    harness_wait(&f->service.h, probe_is_back, &third);
    assert_int_equal(third.e.enter.place.seq, 2);
    assert_int_equal(twice[1].e.enter.place.seq, 2);
    fixture_wait_idle(&f->service);
    fixture_assert_agreement(&f->service);
}

static void a_row_of_an_undone_place_ends_though_entering_is_closed(void **state) {
    struct test_state *f = *state;
    struct faulty_ledger x;
    struct probe twice[2];
    enter_twice_of_which_the_first_fails(f, &x, twice);
    fixture_configure(&f->service, EVENT_CLOSED, NULL);
    sync_gate_open();
    harness_wait(&f->service.h, probe_is_back, &twice[1]);
    assert_int_equal(twice[1].e.enter.outcome, ENTER_CLOSED);
    fixture_wait_idle(&f->service);
    fixture_assert_agreement(&f->service);
}

static void an_admission_that_the_ledger_could_not_take_is_undone(void **state) {
    struct test_state *f = *state;
    size_t admitted;
    fixture_configure(&f->service, EVENT_PAUSED, NULL);
    uint64_t ann = take(f, "ann", ENTRY_WAITING);
    uint64_t bob = take(f, "bob", ENTRY_WAITING);
    uint64_t cat = take(f, "cat", ENTRY_WAITING);
    fixture_configure(&f->service, EVENT_OPEN, NULL);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    assert_int_equal(fixture_tick(&f->service, &admitted), ERR_LEDGER_FAILED);
    assert_int_equal(admitted, 0);
    assert_int_equal(f->changed_count, 0);
    assert_counts(f, 3, 0);
    assert_false(waiting_room_tick_begin(&f->service.room, 1)); /* no use */
    sync_fail_syncs(0);
    fixture_wait_writable(&f->service);
    assert_true(waiting_room_tick_begin(&f->service.room, 1));
    assert_int_equal(fixture_tick(&f->service, &admitted), ERR_OK);
    assert_int_equal(admitted, 2);
    assert_int_equal(f->changed_count, 2);
    assert_int_equal(f->changed[0], ann);
    assert_int_equal(f->changed[1], bob);
    assert_int_equal(fixture_place(&f->service, cat, clock_wall_ms()).position, 1);
    fixture_assert_agreement(&f->service);
}

/* An ACTIVE row, as a crash may leave it: its time is over. */
static void leave_overdue_row(struct test_state *f, const char *user) {
    raw_sql(&f->service.h,
            "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at,"
            " admitted_at, active_expires_at) SELECT %lld, coalesce(max(seq), 0) + 1, '%s', 8,"
            " 'ACTIVE', 1000, 1000, 2000 FROM queue_entries",
            (long long)f->service.key, user);
}

static void expiries_are_written_again_after_a_failure_pitfall_6(void **state) {
    struct test_state *f = *state;
    leave_overdue_row(f, "ann");
    leave_overdue_row(f, "bob");
    fixture_recover(&f->service);
    assert_counts(f, 0, 2);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    fixture_tick(&f->service, NULL);
    fixture_wait_idle(&f->service);
    assert_counts(f, 0, 0); /* for all readers they are over */
    assert_int_equal(rows(f, "ACTIVE"), 2);
    assert_int_equal(f->changed_count, 0); /* nothing was reported that is not durable */
    sync_fail_syncs(0);
    fixture_wait_writable(&f->service);
    assert_true(waiting_room_tick_begin(&f->service.room, 1));
    fixture_wait_idle(&f->service);
    assert_int_equal(rows(f, "EXPIRED"), 2);
    assert_int_equal(f->changed_count, 2);
    assert_true(waiting_room_tick_begin(&f->service.room, 1));
    assert_false(waiting_room_is_busy(&f->service.room)); /* and only once */
}

/* Also when the record of the expiry itself came to nothing. */
static void entering_again_after_expiry_closes_the_old_row(void **state) {
    struct test_state *f = *state;
    leave_overdue_row(f, "ann");
    fixture_recover(&f->service);
    struct faulty_ledger x;
    faulty_ledger_init(&x, f->service.ledger, 1);
    f->service.room.ledger = &x.ledger;
    uint64_t seq = take(f, "ann", ENTRY_ACTIVE);
    assert_int_equal(x.fails, 0);
    assert_int_equal(seq, 2);
    assert_int_equal(rows(f, "EXPIRED"), 1);
    fixture_wait_idle(&f->service);
    fixture_assert_agreement(&f->service);
}

/* ---- ending, looking ---- */

static void leaving_is_written_to_the_ledger_before_the_place_is_removed_pitfall_13(void **state) {
    struct test_state *f = *state;
    uint64_t ann = take(f, "ann", ENTRY_ACTIVE);
    take(f, "bob", ENTRY_ACTIVE);
    uint64_t cat = take(f, "cat", ENTRY_WAITING);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    assert_int_equal(fixture_end(&f->service, ann, ENTRY_LEFT), ERR_LEDGER_FAILED);
    assert_counts(f, 1, 2);
    sync_fail_syncs(0);
    assert_int_equal(fixture_end(&f->service, ann, ENTRY_LEFT), ERR_OK);
    assert_counts(f, 1, 1);
    assert_int_equal(fixture_end(&f->service, ann, ENTRY_LEFT), ERR_OK); /* once more is no harm */
    assert_int_equal(fixture_end(&f->service, cat, ENTRY_COMPLETED), ERR_OK);
    assert_counts(f, 1, 1); /* only ACTIVE entries complete */
    assert_int_equal(f->changed_count, 1);
    assert_int_equal(f->changed[0], ann);
    assert_int_equal(rows(f, "LEFT"), 1);
    assert_int_equal(rows(f, "WAITING"), 1);
    fixture_assert_agreement(&f->service);
}

/* The node that wrote it died before it updated the hot store, and the user repeats the request. */
static void an_entry_that_left_in_the_ledger_only_leaves_the_hot_store_too(void **state) {
    struct test_state *f = *state;
    uint64_t ann = take(f, "ann", ENTRY_ACTIVE);
    raw_sql(&f->service.h, "UPDATE queue_entries SET status = 'LEFT', finished_at = 1");
    assert_counts(f, 0, 1);
    assert_int_equal(fixture_end(&f->service, ann, ENTRY_LEFT), ERR_OK);
    assert_counts(f, 0, 0);
    assert_true(take(f, "ann", ENTRY_ACTIVE) != ann);
    fixture_assert_agreement(&f->service);
}

static void what_the_hot_store_has_forgotten_the_ledger_knows(void **state) {
    struct test_state *f = *state;
    struct place_look l;
    uint64_t ann = take(f, "ann", ENTRY_ACTIVE);
    uint64_t bob = take(f, "bob", ENTRY_ACTIVE);
    assert_int_equal(fixture_end(&f->service, ann, ENTRY_COMPLETED), ERR_OK);
    for (int restarted = 0; restarted < 2; restarted++) {
        assert_int_equal(fixture_look(&f->service, ann, &l), ERR_OK);
        assert_int_equal(l.item.place.status, ENTRY_COMPLETED);
        assert_true(str_eq((str){l.user, l.look.user_len}, STR("ann")));
        assert_int_equal(fixture_look(&f->service, bob, &l), ERR_OK);
        assert_int_equal(l.item.place.status, ENTRY_ACTIVE);
        assert_true(str_eq((str){l.user, l.look.user_len}, STR("bob")));
        assert_int_equal(fixture_look(&f->service, 99, &l), ERR_OK);
        assert_int_equal(l.item.place.status, ENTRY_NONE);
        assert_int_equal(l.look.user_len, 0);
        fixture_recover(&f->service);
    }
    /* A row that is live, of which the hot store knows nothing, is over. */
    leave_overdue_row(f, "ghost");
    assert_int_equal(fixture_look(&f->service, 3, &l), ERR_OK);
    assert_int_equal(l.item.place.status, ENTRY_EXPIRED);
}

/* ---- recovery, and the events behind it ---- */

static void of_two_rows_of_a_user_the_older_expires_at_the_start_pitfall_14(void **state) {
    struct test_state *f = *state;
    fixture_configure(&f->service, EVENT_PAUSED, NULL);
    take(f, "ann", ENTRY_WAITING);
    take(f, "bob", ENTRY_WAITING);
    raw_sql(&f->service.h,
            "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at)"
            " VALUES (%lld, 3, 'ann', 8, 'WAITING', 1000)",
            (long long)f->service.key);
    fixture_recover(&f->service);
    fixture_wait_idle(&f->service);
    assert_int_equal(rows(f, "EXPIRED"), 1);
    assert_int_equal(fixture_place(&f->service, 2, 0).position, 1);
    assert_int_equal(fixture_place(&f->service, 3, 0).position, 2);
    fixture_assert_agreement(&f->service);
}

/* However many of the highest have ended. */
static void a_number_is_not_given_again_after_a_restart(void **state) {
    struct test_state *f = *state;
    struct place_enter e;
    for (int i = 0; i < 8; i++)
        assert_int_equal(fixture_end(&f->service, take(f, "ann", ENTRY_ACTIVE), ENTRY_LEFT),
                         ERR_OK);
    fixture_recover(&f->service);
    assert_int_equal(fixture_enter(&f->service, "bob", LANE_DEFAULT, &e), ERR_OK);
    assert_int_equal(e.enter.place.seq, 9);
    fixture_assert_agreement(&f->service);
}

struct change_probe {
    struct event_change c;
    bool back;
};

static void on_change(struct event_change *c, enum err result) {
    assert_int_equal(result, ERR_OK);
    CONTAINER_OF(c, struct change_probe, c)->back = true;
}

struct removal_probe {
    struct event_removal r;
    bool back;
};

static void on_removal(struct event_removal *r, enum err result) {
    assert_int_equal(result, ERR_OK);
    CONTAINER_OF(r, struct removal_probe, r)->back = true;
}

static bool flag_is_set(void *arg) {
    return *(bool *)arg;
}

static void the_queue_follows_its_event_before_a_change_is_answered(void **state) {
    struct test_state *f = *state;
    struct place_enter e;
    struct event *wanted = test_event("1", 1);
    wanted->state = EVENT_CLOSED;
    struct change_probe change = {.c = {.put.wanted = wanted, .done = on_change}};
    change.c.put.note.detail = STR("{}");
    events_change(&f->service.events, &change.c);
    harness_wait(&f->service.h, flag_is_set, &change.back);
    assert_int_equal(fixture_enter(&f->service, "ann", 8, &e), ERR_OK);
    assert_int_equal(e.enter.outcome, ENTER_CLOSED);
    mem_free(change.c.put.stored);
    mem_free(wanted);

    struct removal_probe removal = {
        .r = {.remove = {.type = STR("CONCERT"), .id = STR("1")}, .done = on_removal}};
    removal.r.remove.note.detail = STR("{}");
    events_delete(&f->service.events, &removal.r);
    harness_wait(&f->service.h, flag_is_set, &removal.back);
    assert_int_equal(fixture_enter(&f->service, "ann", 8, &e), ERR_EVENT_NOT_FOUND);
}

int main(void) {
    sync_recorder_register();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_enter_is_answered_only_when_it_is_on_disk),
        TEST(a_repeated_enter_is_answered_with_the_first),
        TEST(what_a_full_or_closed_queue_answers_is_written_nowhere),
        TEST(one_user_on_two_workers_has_one_place_pitfall_7),
        TEST(a_place_that_the_ledger_could_not_take_is_undone),
        TEST(a_request_that_joined_a_failed_place_takes_another),
        TEST(a_row_of_an_undone_place_ends_though_its_user_has_got_another),
        TEST(a_row_of_an_undone_place_ends_though_entering_is_closed),
        TEST(an_admission_that_the_ledger_could_not_take_is_undone),
        TEST(expiries_are_written_again_after_a_failure_pitfall_6),
        TEST(entering_again_after_expiry_closes_the_old_row),
        TEST(leaving_is_written_to_the_ledger_before_the_place_is_removed_pitfall_13),
        TEST(an_entry_that_left_in_the_ledger_only_leaves_the_hot_store_too),
        TEST(what_the_hot_store_has_forgotten_the_ledger_knows),
        TEST(of_two_rows_of_a_user_the_older_expires_at_the_start_pitfall_14),
        TEST(a_number_is_not_given_again_after_a_restart),
        TEST(the_queue_follows_its_event_before_a_change_is_answered),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
