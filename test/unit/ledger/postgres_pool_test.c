/* A row that another session keeps locked delays only the records that need it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

/* Much longer than a record takes that does not wait, and much shorter than the locks are kept. */
/* Less than a lock is waited for here, and more than anything else takes on a busy machine. */
#define FAST_MS 8000

/* Section 0 is of mode `slot`, section 1 of mode `seat`. */
static void open_client(struct ledger_client *d, int64_t wait_ms) {
    postgres_options.pessimistic_wait_ms = wait_ms;
    ledger_client_open(d, postgres_open, 2, 20);
    struct event *wanted = event_copy(d->event);
    wanted->sections[1].mode = SECTION_MODE_SEAT;
    wanted->max_per_user = 20;
    mem_free(d->event);
    d->event = harness_store(&d->h, d->l, wanted);
    mem_free(wanted);
}

static void shut_client(struct ledger_client *d) {
    ledger_client_assert_sound(d);
    ledger_client_shut(d);
    postgres_shut();
}

static PGconn *lock_seat(const struct ledger_client *d, size_t section, int seat) {
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT FROM seats WHERE section_id = %lld AND seat_no = %d FOR UPDATE",
             (long long)d->event->sections[section].key, seat);
    return postgres_other(sql);
}

struct hold {
    struct reservation *wanted;
    struct test_record r;
};

static void submit_hold(struct ledger_client *d, struct hold *h, uint64_t number, const char *user,
                        uint64_t seq, size_t section, enum strategy strategy,
                        const uint32_t *seats) {
    h->wanted = ledger_client_wanted(d, number, user, seq, section, seats);
    h->wanted->strategy = strategy;
    test_hold(&h->r, h->wanted);
    assert_int_equal(ledger_submit(d->l, &h->r.record), ERR_OK);
}

static enum err end_hold(struct ledger_client *d, struct hold *h) {
    harness_wait_back(&d->h, &h->r, 1);
    mem_free(h->wanted);
    return h->r.record.result;
}

/* Others of the same event, and of a section one of whose seats is locked: the first. */
static void assert_others_are_fast(struct ledger_client *d, uint64_t first_seq) {
    for (uint32_t seat = 2; seat <= 20; seat++) {
        char user[16];
        uint64_t seq = first_seq + seat;
        snprintf(user, sizeof user, "other%d", (int)seat);
        int64_t began_ms = clock_steady_ms();
        ledger_client_enter(d, seq, user);
        assert_int_equal(ledger_client_hold(d, seq, user, seq, 0, SEATS(seat)), ERR_OK);
        assert_in_range(clock_steady_ms() - began_ms, 0, FAST_MS);
    }
}

static void a_locked_row_delays_only_the_records_that_need_it(void **state) {
    (void)state;
    struct ledger_client d;
    open_client(&d, 10000);
    ledger_client_enter(&d, 1, "a");
    ledger_client_enter(&d, 2, "b");
    ledger_client_enter(&d, 3, "c");
    assert_int_equal(ledger_client_hold(&d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(&d, 2, "a", 1, 1, SEATS(7)), ERR_OK);

    /* One seat of either section, and everything that needs it: each strategy, a confirmation, an
     * expiry, a user who leaves. */
    PGconn *slot = lock_seat(&d, 0, 1);
    PGconn *seat = lock_seat(&d, 1, 7);
    PGconn *free = lock_seat(&d, 1, 8);
    struct hold pessimistic, optimistic;
    struct test_record confirm, expire, leave;
    struct uuid ids[2] = {ledger_client_id(1), ledger_client_id(2)};
    bool expired, ended, cancelled;
    uint64_t seq = 1;
    uint64_t failures = counter_total(COUNT_LEDGER_BATCH_FAILURES);
    submit_hold(&d, &pessimistic, 3, "b", 2, 1, STRATEGY_PESSIMISTIC, SEATS(8));
    submit_hold(&d, &optimistic, 4, "c", 3, 1, STRATEGY_OPTIMISTIC, SEATS(8));
    test_confirm(&confirm, &ids[0], "a", 2500);
    test_expire(&expire, &ids[1], 1, &expired, 3500);
    test_end(&leave, d.event->key, ENTRY_LEFT, &seq, 1, &ended);
    leave.end.user = STR("a");
    leave.end.cancels = ids;
    leave.end.cancel_count = 1;
    leave.end.cancelled = &cancelled;
    assert_int_equal(ledger_submit(d.l, &confirm.record), ERR_OK);
    assert_int_equal(ledger_submit(d.l, &expire.record), ERR_OK);
    assert_int_equal(ledger_submit(d.l, &leave.record), ERR_OK);

    assert_others_are_fast(&d, 10);
    /* The writer saw that they are locked, and did not try: only the optimist did, for a moment. */
    assert_in_range(counter_total(COUNT_LEDGER_BATCH_FAILURES) - failures, 0, 1);
    assert_false(pessimistic.r.back || optimistic.r.back || confirm.back || expire.back ||
                 leave.back);

    postgres_other_end(slot);
    postgres_other_end(seat);
    postgres_other_end(free);
    enum err first = end_hold(&d, &pessimistic);
    enum err second = end_hold(&d, &optimistic);
    assert_true((first == ERR_OK && second == ERR_SEAT_TAKEN) ||
                (first == ERR_SEAT_TAKEN && second == ERR_OK));
    harness_wait_back(&d.h, &confirm, 1);
    harness_wait_back(&d.h, &expire, 1);
    harness_wait_back(&d.h, &leave, 1);
    assert_int_equal(expire.record.result, ERR_OK);
    assert_true(expired);
    /* Whichever of the two came first. */
    assert_int_equal(leave.record.result, ERR_OK);
    assert_true(confirm.confirm.confirmed != cancelled);
    test_record_deinit(&confirm);
    shut_client(&d);
}

static void pessimistic_waits_and_then_holds(void **state) {
    (void)state;
    struct ledger_client d;
    open_client(&d, 20000);
    ledger_client_enter(&d, 1, "a");
    PGconn *other = lock_seat(&d, 1, 5);
    struct hold h;
    submit_hold(&d, &h, 1, "a", 1, 1, STRATEGY_PESSIMISTIC, SEATS(4, 5));
    harness_run_for(&d.h, 400);
    assert_false(h.r.back);
    postgres_other_end(other);
    assert_int_equal(end_hold(&d, &h), ERR_OK);
    ledger_client_assert_counts(&d, 1, 2, 0);
    shut_client(&d);
}

static void pessimistic_does_not_wait_for_ever(void **state) {
    (void)state;
    enum { WAIT_MS = 600, HOLDS = 3 * PG_WAITER_THREADS };
    struct ledger_client d;
    open_client(&d, WAIT_MS);
    PGconn *other = lock_seat(&d, 1, 5);
    struct hold h[HOLDS];
    char users[HOLDS][16];
    int64_t began_ms = clock_steady_ms();
    for (uint64_t i = 0; i < HOLDS; i++) {
        snprintf(users[i], sizeof users[i], "user%d", (int)i);
        ledger_client_enter(&d, i + 1, users[i]);
    }
    int64_t submitted_ms = clock_steady_ms();
    for (uint64_t i = 0; i < HOLDS; i++)
        submit_hold(&d, &h[i], i + 1, users[i], i + 1, 1, STRATEGY_PESSIMISTIC, SEATS(5));
    /* Also those for whom there was no thread. */
    for (size_t i = 0; i < HOLDS; i++) {
        assert_int_equal(end_hold(&d, &h[i]), ERR_LOCK_TIMEOUT);
        assert_in_range(clock_steady_ms() - began_ms, WAIT_MS / 2, INT64_MAX);
        assert_false(h[i].r.hold.held);
    }
    assert_in_range(clock_steady_ms() - submitted_ms, WAIT_MS / 2, HARNESS_DEADLINE_MS);
    postgres_other_end(other);
    assert_int_equal(ledger_client_seat(&d, 1, 5, NULL), SEAT_AVAILABLE);
    shut_client(&d);
}

static bool somebody_waits(void *arg) {
    (void)arg;
    return scratch_number(postgres_database(), "SELECT count(*) FROM pg_stat_activity"
                                               " WHERE datname = current_database()"
                                               " AND wait_event_type = 'Lock'") > 0;
}

/* The hold has the first seat and waits for the second; another session has the second and waits
 * for the first. The server ends one of them. Returns whether it was the hold, which then got its
 * seats by a retry. */
static bool replays_deadlock(struct ledger_client *d, uint32_t first) {
    PGconn *other = lock_seat(d, 1, (int)first + 1);
    struct hold h;
    submit_hold(d, &h, first, "a", 1, 1, STRATEGY_PESSIMISTIC, SEATS(first, first + 1));
    harness_wait(&d->h, somebody_waits, NULL);
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT FROM seats WHERE section_id = %lld AND seat_no = %d FOR UPDATE",
             (long long)d->event->sections[1].key, (int)first);
    PGresult *r = PQexec(other, sql);
    bool was_hold = PQresultStatus(r) == PGRES_TUPLES_OK;
    PQclear(r);
    if (was_hold) assert_false(h.r.back);
    postgres_other_end(other);
    assert_int_equal(end_hold(d, &h), ERR_OK);
    return was_hold;
}

static void deadlock_is_replayed(void **state) {
    (void)state;
    struct ledger_client d;
    open_client(&d, 30000);
    ledger_client_enter(&d, 1, "a");
    uint32_t seat = 1;
    /* Each session checks for a deadlock once, after waiting for a second: so the hold is ended,
     * unless its second was over when the other one came. */
    while (!replays_deadlock(&d, seat)) {
        seat += 2;
        assert_true(seat < 20);
    }
    shut_client(&d);
}

static void blocked_record_leaves_its_batch(void **state) {
    (void)state;
    enum { ENTERS = 40 };
    struct ledger_client d;
    open_client(&d, 10000);
    struct test_record r;
    test_enter(&r, d.event->key, 1, "a", ENTRY_WAITING);
    assert_int_equal(harness_submit(&d.h, d.l, &r), ERR_OK);
    PGconn *other = postgres_other("SELECT FROM queue_entries WHERE seq = 1 FOR UPDATE");
    struct test_record enters[ENTERS];
    struct test_record admit;
    char users[ENTERS][16];
    struct entry_change change = {.seq = 1, .expires_ms = 9000};
    bool kept = false;
    for (uint64_t i = 0; i < ENTERS; i++) {
        snprintf(users[i], sizeof users[i], "user%d", (int)i);
        test_enter(&enters[i], d.event->key, i + 2, users[i], ENTRY_WAITING);
    }
    test_admit(&admit, d.event->key, &change, 1, &kept);
    for (size_t i = 0; i < ENTERS; i++) {
        if (i == ENTERS / 2) assert_int_equal(ledger_submit(d.l, &admit.record), ERR_OK);
        assert_int_equal(ledger_submit(d.l, &enters[i].record), ERR_OK);
    }
    harness_wait_back(&d.h, enters, ENTERS);
    for (size_t i = 0; i < ENTERS; i++) assert_int_equal(enters[i].record.result, ERR_OK);
    assert_false(admit.back);
    postgres_other_end(other);
    harness_wait_back(&d.h, &admit, 1);
    assert_int_equal(admit.record.result, ERR_OK);
    assert_true(kept);
    shut_client(&d);
}

static void locked_section_leaves_the_queue_alone(void **state) {
    (void)state;
    struct ledger_client d;
    open_client(&d, 10000);
    ledger_client_enter(&d, 1, "a");
    PGconn *other = postgres_other("SELECT FROM sections FOR UPDATE");
    struct hold h;
    submit_hold(&d, &h, 1, "a", 1, 0, STRATEGY_SLOT, SEATS(1, 2));
    for (uint64_t i = 2; i < 12; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", (int)i);
        int64_t began_ms = clock_steady_ms();
        ledger_client_enter(&d, i, user);
        assert_in_range(clock_steady_ms() - began_ms, 0, FAST_MS);
    }
    assert_false(h.r.back);
    postgres_other_end(other);
    assert_int_equal(end_hold(&d, &h), ERR_OK);
    ledger_client_assert_counts(&d, 0, 2, 0);
    shut_client(&d);
}

static void wait_for_a_waiter(void) {
    int64_t deadline_ms = clock_steady_ms() + HARNESS_DEADLINE_MS;
    while (scratch_number(postgres_database(), "SELECT count(*) FROM pg_locks WHERE NOT granted") ==
           0) {
        if (clock_steady_ms() > deadline_ms) fail_msg("nobody waits");
        usleep(1000);
    }
}

/* The hold has its seats, uncommitted, when the section's mode changes. */
static void a_hold_under_way_when_the_mode_changes_is_judged_by_the_new_one(void **state) {
    (void)state;
    static const struct {
        enum strategy strategy;
        const char *changes;
    } all[] = {{STRATEGY_SLOT, "UPDATE sections SET mode = 'seat' WHERE code = 'A'"},
               {STRATEGY_OPTIMISTIC, "UPDATE sections SET mode = 'slot' WHERE code = 'B'"}};
    for (size_t section = 0; section < 2; section++) {
        struct ledger_client d;
        open_client(&d, 10000);
        ledger_client_enter(&d, 1, "a");
        struct hold h;
        PGconn *other = postgres_other(all[section].changes);
        submit_hold(&d, &h, 1, "a", 1, section, all[section].strategy, SEATS(1, 2));
        wait_for_a_waiter();
        postgres_other_end(other);
        assert_int_equal(end_hold(&d, &h), ERR_STRATEGY_NOT_ALLOWED);
        ledger_client_assert_counts(&d, section, 0, 0);
        shut_client(&d);
    }
}

/* Another node has written that they leave, and its commit is under way. */
static void a_user_who_is_leaving_holds_nothing(void **state) {
    (void)state;
    static const enum strategy strategies[] = {STRATEGY_SLOT, STRATEGY_OPTIMISTIC};
    for (size_t section = 0; section < 2; section++) {
        struct ledger_client d;
        open_client(&d, 10000);
        ledger_client_enter(&d, 1, "a");
        struct hold h;
        PGconn *other = postgres_other("UPDATE queue_entries SET status = 'LEFT', finished_at = 1");
        submit_hold(&d, &h, 1, "a", 1, section, strategies[section], SEATS(1, 2));
        wait_for_a_waiter();
        postgres_other_end(other);
        assert_int_equal(end_hold(&d, &h), ERR_NOT_ACTIVE);
        ledger_client_assert_counts(&d, section, 0, 0);
        shut_client(&d);
    }
}

/* The hold waits for the first seat, which is locked. The transaction that has locked it makes the
 * second one's row, which the hold's statement can't see, for it began before. */
static void seat_whose_row_is_made_while_a_hold_waits_for_another_is_judged_again(void **state) {
    (void)state;
    struct ledger_client d;
    open_client(&d, 10000);
    ledger_client_enter(&d, 1, "a");
    ledger_client_enter(&d, 2, "b");
    assert_int_equal(ledger_client_hold(&d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_cancel(&d, 1, "a"), ERR_OK);
    PGconn *other = lock_seat(&d, 0, 1);
    char sql[160];
    snprintf(sql, sizeof sql,
             "INSERT INTO seats(section_id, seat_no, state, version) VALUES (%lld, 2,"
             " 'AVAILABLE', 2)",
             (long long)d.event->sections[0].key);
    postgres_other_run(other, sql);
    struct hold h;
    submit_hold(&d, &h, 2, "b", 2, 0, STRATEGY_SLOT, SEATS(1, 2));
    wait_for_a_waiter();
    postgres_other_end(other);
    assert_int_equal(end_hold(&d, &h), ERR_OK);
    assert_true(h.r.hold.held);
    ledger_client_assert_counts(&d, 0, 2, 0);
    shut_client(&d);
}

static void optimists_conflict_for_real(void **state) {
    (void)state;
    enum { HOLDS = 16 };
    struct ledger_client d;
    open_client(&d, 10000);
    static const int64_t version = 0;
    struct hold h[HOLDS];
    char users[HOLDS][16];
    for (uint64_t i = 0; i < HOLDS; i++) {
        snprintf(users[i], sizeof users[i], "user%d", (int)i);
        ledger_client_enter(&d, i + 1, users[i]);
    }
    for (uint64_t i = 0; i < HOLDS; i++) {
        h[i].wanted = ledger_client_wanted(&d, i + 1, users[i], i + 1, 1, SEATS(5));
        h[i].wanted->strategy = STRATEGY_OPTIMISTIC;
        test_hold(&h[i].r, h[i].wanted);
        h[i].r.hold.versions = &version;
        assert_int_equal(ledger_submit(d.l, &h[i].r.record), ERR_OK);
    }
    int won = 0;
    int lost = 0;
    for (size_t i = 0; i < HOLDS; i++) {
        enum err e = end_hold(&d, &h[i]);
        won += e == ERR_OK;
        lost += e == ERR_CONFLICT;
    }
    assert_int_equal(won, 1);
    assert_int_equal(lost, HOLDS - 1);
    shut_client(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_locked_row_delays_only_the_records_that_need_it),
        cmocka_unit_test(pessimistic_waits_and_then_holds),
        cmocka_unit_test(pessimistic_does_not_wait_for_ever),
        cmocka_unit_test(deadlock_is_replayed),
        cmocka_unit_test(blocked_record_leaves_its_batch),
        cmocka_unit_test(locked_section_leaves_the_queue_alone),
        cmocka_unit_test(a_hold_under_way_when_the_mode_changes_is_judged_by_the_new_one),
        cmocka_unit_test(a_user_who_is_leaving_holds_nothing),
        cmocka_unit_test(seat_whose_row_is_made_while_a_hold_waits_for_another_is_judged_again),
        cmocka_unit_test(optimists_conflict_for_real),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
