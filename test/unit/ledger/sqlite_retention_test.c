/* What has outlived its use goes, what has not stays, and nothing is left without its parent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ledger/sqlite_parts.h"
#include "ledger_raw.h"

#define DAY_MS INT64_C(86400000)

struct fixture {
    struct harness h;
    struct ledger *l;
    struct event *stored; /* CONCERT/1 with sections A and B */
    long long now;
    long long old;    /* 31 days ago */
    long long recent; /* 29 days ago */
};

static void open_keeping(struct fixture *f, int64_t audit_days, int64_t ended_days) {
    f->l = raw_ledger_open(&(struct sqlite_ledger_options){.path = f->h.path,
                                                           .retain_audit_days = audit_days,
                                                           .retain_ended_days = ended_days,
                                                           .retention_interval_ms = 20,
                                                           .retention_rest_ms = 20});
}

/* Seeded while no retention runs. */
static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    struct ledger *l = raw_ledger_open(&(struct sqlite_ledger_options){.path = f->h.path});
    struct event *wanted = test_event("1", 2);
    f->stored = harness_store(&f->h, l, wanted);
    mem_free(wanted);
    ledger_close(l);
    f->now = clock_wall_ms();
    f->old = f->now - 31 * DAY_MS;
    f->recent = f->now - 29 * DAY_MS;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    if (f->l != NULL) ledger_close(f->l);
    mem_free(f->stored);
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

struct expected {
    struct fixture *f;
    const char *sql;
    int64_t number;
};

static bool is_reached(void *arg) {
    struct expected *e = arg;
    return raw_number(&e->f->h, "%s", e->sql) == e->number;
}

static void wait_for(struct fixture *f, const char *sql, int64_t number) {
    harness_wait(&f->h, is_reached, &(struct expected){f, sql, number});
}

/* A whole round has passed when a row that was put in just now, and is due, is gone. */
static void wait_a_round(struct fixture *f) {
    for (int i = 0; i < 2; i++) {
        raw_sql(&f->h,
                "INSERT INTO events SELECT NULL, 'MARK', 'mark', 1, title, state, auto_enter,"
                " opens_at, starts_at, opened_at, max_waiting, max_active, entry_batch_size,"
                " entry_interval_s, active_ttl_s, grace_s, token_ttl_s, hold_s,"
                " max_per_user, max_per_user_ever, currency, 1, 1, 1 FROM events LIMIT 1");
        wait_for(f, "SELECT count(*) FROM events WHERE type = 'MARK'", 0);
    }
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    if (finding->violations > 0)
        fail_msg("%.*s", (int)finding->invariant.len, finding->invariant.at);
}

static void assert_sound(struct fixture *f) {
    assert_int_equal(ledger_check(f->l, false, on_finding, NULL), ERR_OK);
}

static void old_audit_rows_go_but_never_the_newest(void **state) {
    struct fixture *f = *state;
    raw_sql(&f->h,
            "UPDATE audit SET at = %lld;"
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1700)"
            " INSERT INTO audit(at, actor, act, subject, detail)"
            " SELECT %lld, 'a', 'b', 'c', '{}' FROM n",
            f->old, f->old);
    uint64_t retired = counter_total(COUNT_LEDGER_RETIRED_ROWS);
    open_keeping(f, 30, 0);
    wait_for(f, "SELECT count(*) FROM audit", 1);
    wait_a_round(f);
    assert_int_equal(raw_number(&f->h, "SELECT id FROM audit"), 1701);
    assert_true(counter_total(COUNT_LEDGER_RETIRED_ROWS) - retired >= 1700);
    /* The next version is above all that ever were. */
    struct event *wanted = test_event("2", 1);
    struct event *stored = harness_store(&f->h, f->l, wanted);
    assert_int_equal(stored->version, 1702);
    mem_free(stored);
    mem_free(wanted);
}

static void for_ever_means_for_ever(void **state) {
    struct fixture *f = *state;
    raw_sql(&f->h, "UPDATE audit SET at = 1;"
                   "INSERT INTO audit(at, actor, act, subject, detail)"
                   " VALUES (1, 'a', 'b', 'c', '{}')");
    raw_reservation(&f->h, 3, f->stored, &f->stored->sections[0], 1, "CANCELLED");
    raw_sql(&f->h, "UPDATE facts SET relayed_at = 1;"
                   "INSERT INTO queue_entries VALUES (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, 1)");
    open_keeping(f, 0, 0);
    wait_a_round(f);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM audit"), 2);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM reservations"), 1);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM facts"), 2);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM queue_entries"), 1);
}

static void the_highest_number_of_a_queue_is_never_forgotten(void **state) {
    struct fixture *f = *state;
    raw_sql(&f->h,
            "INSERT INTO queue_entries VALUES (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
            " (1, 2, 'b', 8, 'LEFT', 1, NULL, NULL, %lld)",
            f->old, f->old);
    open_keeping(f, 0, 30);
    wait_for(f, "SELECT count(*) FROM queue_entries", 1);
    wait_a_round(f);
    assert_int_equal(raw_number(&f->h, "SELECT seq FROM queue_entries"), 2);
}

static void idempotency_lasts_a_day(void **state) {
    struct fixture *f = *state;
    raw_sql(&f->h,
            "INSERT INTO idempotency(user_id, route, key, body_digest, status, response,"
            " created_at) VALUES ('u', 'r', 'old', x'00', 201, '{}', %lld),"
            " ('u', 'r', 'young', x'00', 201, '{}', %lld)",
            f->now - 25 * 3600000, f->now - 23 * 3600000);
    open_keeping(f, 0, 0);
    wait_for(f, "SELECT count(*) FROM idempotency", 1);
    wait_a_round(f);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM idempotency WHERE key = 'young'"), 1);
}

static void ended_things_go_and_live_ones_stay(void **state) {
    struct fixture *f = *state;
    const struct section *a = &f->stored->sections[0];
    raw_reservation(&f->h, 1, f->stored, a, 1, "CONFIRMED");
    raw_reservation(&f->h, 2, f->stored, a, 2, "HELD");
    raw_reservation(&f->h, 3, f->stored, a, 3, "CANCELLED");
    raw_reservation(&f->h, 4, f->stored, a, 3, "EXPIRED");
    raw_reservation(&f->h, 5, f->stored, a, 3, "EXPIRED");
    raw_sql(&f->h,
            "UPDATE reservations SET created_at = %lld, ended_at = ended_at + %lld - 2000;"
            "UPDATE reservations SET ended_at = %lld WHERE hex(id) LIKE '05%%';"
            "UPDATE facts SET at = %lld, relayed_at = %lld;"
            "UPDATE facts SET relayed_at = NULL WHERE hex(reservation_id) LIKE '04%%'"
            " AND kind = 'EXPIRED';"
            "INSERT INTO facts(kind, event_id, seat_count, at, relayed_at)"
            " VALUES ('SOLD_OUT', 1, 0, %lld, 1), ('SOLD_OUT', 1, 0, %lld, NULL),"
            " ('SOLD_OUT', 1, 0, %lld, 1)",
            f->old, f->old, f->recent, f->old, f->old, f->old, f->old, f->recent);
    raw_sql(&f->h,
            "INSERT INTO queue_entries VALUES (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
            " (1, 2, 'b', 8, 'COMPLETED', 1, 2, 3, %lld), (1, 3, 'c', 8, 'WAITING', 1, NULL, NULL,"
            " NULL), (1, 4, 'd', 1, 'ACTIVE', 1, 2, 3, NULL)",
            f->old, f->recent);
    raw_sql(&f->h,
            "INSERT INTO requests VALUES"
            " (zeroblob(16), 1, 1, 'a', 1, 1, NULL, 'FAIL', NULL, 1, %lld),"
            " (x'11111111111111111111111111111111', 1, 1, 'a', 1, 1, NULL, 'FAIL', NULL, 1, %lld),"
            " (x'22222222222222222222222222222222', 1, 1, 'a', 1, 1, NULL, 'PENDING', NULL, 1,"
            " NULL)",
            f->old, f->recent);
    /* One that never was, under an id that no late hold will bring any more. */
    raw_sql(&f->h,
            "INSERT INTO reservations VALUES (x'0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A', 1, 1, '', 0, '',"
            " 'VOID', 0, '', 0, '', 1, 1, NULL, %lld, NULL)",
            f->old);
    open_keeping(f, 0, 30);
    wait_for(f, "SELECT count(*) FROM reservations", 4);
    wait_a_round(f);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM reservations"
                                       " WHERE hex(id) LIKE '03%%'"),
                     0);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM facts WHERE reservation_id NOT NULL"
                                       " AND hex(reservation_id) LIKE '03%%'"),
                     0);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM facts WHERE kind = 'SOLD_OUT'"), 2);
    assert_int_equal(raw_number(&f->h, "SELECT sum(seq) FROM queue_entries"), 2 + 3 + 4);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM requests"), 2);
    assert_sound(f);

    /* Once its last fact is relayed, the fourth goes too. */
    raw_sql(&f->h, "UPDATE facts SET relayed_at = 1");
    wait_for(f, "SELECT count(*) FROM reservations", 3);
    assert_sound(f);
}

static void delete_event(struct fixture *f) {
    struct test_record r;
    test_delete(&r, "CONCERT", "1", 5);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
}

static int64_t rows_of_the_event(struct fixture *f) {
    return raw_number(&f->h, "SELECT (SELECT count(*) FROM events WHERE id = 1)"
                             " + (SELECT count(*) FROM sections WHERE event_id = 1)"
                             " + (SELECT count(*) FROM seats WHERE section_id IN (1, 2))"
                             " + (SELECT count(*) FROM queue_entries WHERE event_id = 1)"
                             " + (SELECT count(*) FROM reservations WHERE event_id = 1)"
                             " + (SELECT count(*) FROM requests WHERE event_id = 1)"
                             " + (SELECT count(*) FROM facts WHERE event_id = 1)");
}

static bool nothing_left(void *arg) {
    return rows_of_the_event(arg) == 0;
}

static void everything_of_a_deleted_event_goes(void **state) {
    struct fixture *f = *state;
    raw_reservation(&f->h, 3, f->stored, &f->stored->sections[0], 3, "CANCELLED");
    raw_sql(&f->h, "UPDATE facts SET relayed_at = 1;"
                   "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)"
                   " INSERT INTO queue_entries SELECT 1, i, 'u' || i, 8, 'WAITING', 1, NULL, NULL,"
                   " NULL FROM n;"
                   "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)"
                   " INSERT INTO seats SELECT 1 + i %% 2, i, 'AVAILABLE', NULL, 2, 0 FROM n;"
                   "INSERT INTO reservations VALUES (zeroblob(16), 1, 1, '', 0, '', 'VOID', 0, '',"
                   " 0, '', 1, 1, NULL, 1, NULL);"
                   "INSERT INTO requests VALUES"
                   " (zeroblob(16), 1, 1, 'a', 1, 1, NULL, 'FAIL', NULL, 1, 2)");
    open_keeping(f, 0, 0);
    struct event *other = test_event("other", 1);
    mem_free(harness_store(&f->h, f->l, other));
    delete_event(f);
    harness_wait(&f->h, nothing_left, f);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM events"), 1);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM sections"), 1);
    assert_sound(f);
    mem_free(other);
}

static void deleted_event_waits_for_its_facts_to_be_relayed(void **state) {
    struct fixture *f = *state;
    raw_reservation(&f->h, 3, f->stored, &f->stored->sections[0], 3, "CANCELLED");
    open_keeping(f, 0, 0);
    delete_event(f);
    wait_a_round(f);
    assert_int_equal(rows_of_the_event(f), 1 + 2 + 1 + 2);
    assert_sound(f);
    raw_sql(&f->h, "UPDATE facts SET relayed_at = 1");
    harness_wait(&f->h, nothing_left, f);
    assert_sound(f);
}

static void section_taken_out_goes_with_its_history(void **state) {
    struct fixture *f = *state;
    raw_reservation(&f->h, 3, f->stored, &f->stored->sections[1], 3, "CANCELLED");
    raw_sql(&f->h, "UPDATE facts SET relayed_at = 1;"
                   "INSERT INTO seats VALUES (1, 1, 'AVAILABLE', NULL, 2, 0),"
                   " (2, 3, 'AVAILABLE', NULL, 2, 0)");
    open_keeping(f, 0, 0);
    struct event *only_a = test_event("1", 1);
    mem_free(harness_store(&f->h, f->l, only_a));
    wait_for(f, "SELECT count(*) FROM sections", 1);
    wait_a_round(f);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM seats"), 1);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM reservations"), 0);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM events"), 1);
    assert_sound(f);
    mem_free(only_a);
}

/* The parts alone, turn by turn: the sweeps have passed the reservation and many facts when their
 * event is deleted, so this round must leave the event, and the next removes all. */
static void event_deleted_during_a_round_waits_for_the_next(void **state) {
    struct fixture *f = *state;
    raw_reservation(&f->h, 3, f->stored, &f->stored->sections[0], 3, "CANCELLED");
    raw_sql(&f->h, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)"
                   " INSERT INTO facts(kind, event_id, seat_count, at)"
                   " SELECT 'SOLD_OUT', 1, 0, 1 FROM n;"
                   "UPDATE facts SET relayed_at = 1");
    struct buf why = {0};
    struct db db;
    struct retention r;
    assert_int_equal(db_open(&db, f->h.path, DB_WRITE, &why), SQLITE_OK);
    retention_init(&r, &(struct sqlite_ledger_options){.retention_interval_ms = 20});
    retention_turn(&r, &db);
    assert_int_equal(rows_of_the_event(f), 1 + 2 + 1 + 6002);
    raw_sql(&f->h, "INSERT INTO audit(at, actor, act, subject, detail)"
                   " VALUES (1, 'a', 'b', 'c', '{}');"
                   "UPDATE events SET deleted_at = 1, version = 2;"
                   "UPDATE sections SET removed_version = 2");
    int turns = 0;
    while (rows_of_the_event(f) > 0) {
        assert_true(turns++ < 100);
        int64_t before = rows_of_the_event(f);
        retention_turn(&r, &db);
        /* A reservation takes its facts with it. */
        assert_in_range(before - rows_of_the_event(f), 0, 500 + 4);
        assert_int_equal(check_all(&db, false, f->now, on_finding, NULL), SQLITE_OK);
    }
    assert_true(turns > 10);
    retention_deinit(&r);
    db_close(&db);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(old_audit_rows_go_but_never_the_newest),
        TEST(for_ever_means_for_ever),
        TEST(the_highest_number_of_a_queue_is_never_forgotten),
        TEST(idempotency_lasts_a_day),
        TEST(ended_things_go_and_live_ones_stay),
        TEST(everything_of_a_deleted_event_goes),
        TEST(deleted_event_waits_for_its_facts_to_be_relayed),
        TEST(section_taken_out_goes_with_its_history),
        TEST(event_deleted_during_a_round_waits_for_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
