/* What has outlived its use goes, what has not stays, and nothing is left without its parent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ledger_harness.h"
#include "postgres_scratch.h"

#define DAY_MS INT64_C(86400000)

struct fixture {
    struct scratch s;
    struct pg_retention *retention;
    struct event *stored; /* CONCERT/1 with sections A and B */
    long long now;
    long long old;    /* 31 days ago */
    long long recent; /* 29 days ago */
};

static struct pg_retention *start_keeping(struct fixture *f, int64_t audit_days,
                                          int64_t ended_days) {
    return pg_retention_start(&(struct postgres_ledger_options){.url = f->s.url,
                                                                .retain_audit_days = audit_days,
                                                                .retain_ended_days = ended_days,
                                                                .retention_interval_ms = 20,
                                                                .retention_rest_ms = 20});
}

static void keep(struct fixture *f, int64_t audit_days, int64_t ended_days) {
    f->retention = start_keeping(f, audit_days, ended_days);
}

/* Seeded while no retention runs. */
static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    scratch_open(&f->s);
    struct event *wanted = test_event("1", 2);
    f->stored = scratch_store(&f->s, wanted);
    mem_free(wanted);
    f->now = clock_wall_ms();
    f->old = f->now - 31 * DAY_MS;
    f->recent = f->now - 29 * DAY_MS;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    pg_retention_stop(f->retention);
    mem_free(f->stored);
    scratch_shut(&f->s);
    mem_free(f);
    return 0;
}

static void wait_for(struct fixture *f, const char *sql, int64_t number) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)HARNESS_DEADLINE_MS * 1000000;
    while (scratch_number(&f->s, "%s", sql) != number) {
        if (clock_steady_ns() > deadline_ns)
            fail_msg("%s is %lld", sql, (long long)scratch_number(&f->s, "%s", sql));
        usleep(10000);
    }
}

/* A whole round has passed when a row that was put in just now, and is due, is gone. */
static void wait_a_round(struct fixture *f) {
    for (int i = 0; i < 2; i++) {
        scratch_sql(&f->s,
                    "INSERT INTO events(type, external_id, version, title, state, auto_enter,"
                    " max_waiting, max_active, entry_batch_size, entry_interval_s, active_ttl_s,"
                    " grace_s, token_ttl_s, hold_s, max_per_user, currency, created_at,"
                    " updated_at, deleted_at) VALUES ('MARK', 'mark', 1, '', 'OPEN', 0, 0, 0, 0,"
                    " 0, 0, 0, 0, 0, 0, '', 1, 1, 1)");
        wait_for(f, "SELECT count(*) FROM events WHERE type = 'MARK'", 0);
    }
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    if (finding->violations > 0)
        fail_msg("%.*s: %.*s", (int)finding->invariant.len, finding->invariant.at,
                 (int)finding->examples.len, finding->examples.at);
}

static void assert_sound(struct fixture *f) {
    assert_true(pg_check_all(&f->s.db, false, f->now, on_finding, NULL));
}

static int64_t number(struct fixture *f, const char *sql) {
    return scratch_number(&f->s, "%s", sql);
}

static void old_audit_rows_go_but_never_the_newest(void **state) {
    struct fixture *f = *state;
    scratch_sql(&f->s,
                "UPDATE audit SET at = %lld;"
                "INSERT INTO audit(at, actor, act, subject, detail)"
                " SELECT %lld, 'a', 'b', 'c', '{}' FROM generate_series(1, 1700)",
                f->old, f->old);
    uint64_t retired = counter_total(COUNT_LEDGER_RETIRED_ROWS);
    keep(f, 30, 0);
    wait_for(f, "SELECT count(*) FROM audit", 1);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT id FROM audit"), 1701);
    assert_true(counter_total(COUNT_LEDGER_RETIRED_ROWS) - retired >= 1700);
    /* The next version is above all that ever were. */
    struct event *wanted = test_event("2", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    assert_int_equal(stored->version, 1702);
    mem_free(stored);
    mem_free(wanted);
}

static void for_ever_means_for_ever(void **state) {
    struct fixture *f = *state;
    tables_reservation(scratch_tables(&f->s), 3, f->stored, &f->stored->sections[0], 1,
                       "CANCELLED");
    scratch_sql(&f->s, "UPDATE audit SET at = 1;"
                       "INSERT INTO audit(at, actor, act, subject, detail)"
                       " VALUES (1, 'a', 'b', 'c', '{}');"
                       "UPDATE facts SET relayed_at = 1;"
                       "INSERT INTO queue_entries VALUES"
                       " (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, 1)");
    keep(f, 0, 0);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT count(*) FROM audit"), 2);
    assert_int_equal(number(f, "SELECT count(*) FROM reservations"), 1);
    assert_int_equal(number(f, "SELECT count(*) FROM facts"), 2);
    assert_int_equal(number(f, "SELECT count(*) FROM queue_entries"), 1);
}

static void the_highest_number_of_a_queue_is_never_forgotten(void **state) {
    struct fixture *f = *state;
    scratch_sql(&f->s,
                "INSERT INTO queue_entries VALUES (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
                " (1, 2, 'b', 8, 'LEFT', 1, NULL, NULL, %lld)",
                f->old, f->old);
    keep(f, 0, 30);
    wait_for(f, "SELECT count(*) FROM queue_entries", 1);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT seq FROM queue_entries"), 2);
}

static void idempotency_lasts_a_day(void **state) {
    struct fixture *f = *state;
    scratch_sql(&f->s,
                "INSERT INTO idempotency(user_id, route, key, body_digest, status, response,"
                " created_at) VALUES ('u', 'r', 'old', '', 201, '{}', %lld),"
                " ('u', 'r', 'young', '', 201, '{}', %lld)",
                f->now - 25 * 3600000, f->now - 23 * 3600000);
    keep(f, 0, 0);
    wait_for(f, "SELECT count(*) FROM idempotency", 1);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT count(*) FROM idempotency WHERE key = 'young'"), 1);
}

static void seed_reservations(struct fixture *f) {
    const struct section *a = &f->stored->sections[0];
    tables_reservation(scratch_tables(&f->s), 1, f->stored, a, 1, "CONFIRMED");
    tables_reservation(scratch_tables(&f->s), 2, f->stored, a, 2, "HELD");
    tables_reservation(scratch_tables(&f->s), 3, f->stored, a, 3, "CANCELLED");
    tables_reservation(scratch_tables(&f->s), 4, f->stored, a, 3, "EXPIRED");
    tables_reservation(scratch_tables(&f->s), 5, f->stored, a, 3, "EXPIRED");
    scratch_sql(&f->s,
                "UPDATE reservations SET created_at = %lld, ended_at = ended_at + %lld - 2000;"
                "UPDATE reservations SET ended_at = %lld WHERE id::text LIKE '05%%';"
                "UPDATE facts SET at = %lld, relayed_at = %lld;"
                "UPDATE facts SET relayed_at = NULL WHERE reservation_id::text LIKE '04%%'"
                " AND kind = 'EXPIRED';"
                "INSERT INTO facts(kind, event_id, seat_count, at, relayed_at)"
                " VALUES ('SOLD_OUT', 1, 0, %lld, 1), ('SOLD_OUT', 1, 0, %lld, NULL),"
                " ('SOLD_OUT', 1, 0, %lld, 1)",
                f->old, f->old, f->recent, f->old, f->old, f->old, f->old, f->recent);
    /* One that never was, under an id that no late hold will bring any more. */
    scratch_sql(&f->s,
                "INSERT INTO reservations VALUES ('0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A', 1, 1, '', 0,"
                " '', 'VOID', 0, '', 0, '', 1, 1, NULL, %lld, NULL)",
                f->old);
}

static void seed_queue_and_requests(struct fixture *f) {
    scratch_sql(&f->s,
                "INSERT INTO queue_entries VALUES (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
                " (1, 2, 'b', 8, 'COMPLETED', 1, 2, 3, %lld),"
                " (1, 3, 'c', 8, 'WAITING', 1, NULL, NULL, NULL),"
                " (1, 4, 'd', 1, 'ACTIVE', 1, 2, 3, NULL)",
                f->old, f->recent);
    scratch_sql(&f->s,
                "INSERT INTO requests VALUES"
                " ('00000000000000000000000000000001', 1, 1, 'a', 1, 1, NULL, 'FAIL', NULL, 1,"
                "  %lld),"
                " ('11111111111111111111111111111111', 1, 1, 'a', 1, 1, NULL, 'FAIL', NULL, 1,"
                "  %lld),"
                " ('22222222222222222222222222222222', 1, 1, 'a', 1, 1, NULL, 'PENDING', NULL, 1,"
                "  NULL)",
                f->old, f->recent);
    scratch_sql(&f->s, "INSERT INTO buyers VALUES (1, 'nobody', 0, 0)");
}

static void ended_things_go_and_live_ones_stay(void **state) {
    struct fixture *f = *state;
    seed_reservations(f);
    seed_queue_and_requests(f);
    keep(f, 0, 30);
    wait_for(f, "SELECT count(*) FROM reservations", 4);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT count(*) FROM reservations WHERE id::text LIKE '03%'"), 0);
    assert_int_equal(number(f, "SELECT count(*) FROM facts WHERE reservation_id::text LIKE '03%'"),
                     0);
    assert_int_equal(number(f, "SELECT count(*) FROM facts WHERE kind = 'SOLD_OUT'"), 2);
    assert_int_equal(number(f, "SELECT sum(seq) FROM queue_entries"), 2 + 3 + 4);
    assert_int_equal(number(f, "SELECT count(*) FROM requests"), 2);
    assert_int_equal(number(f, "SELECT count(*) FROM buyers"), 1);
    assert_sound(f);

    /* Once its last fact is relayed, the fourth goes too. */
    scratch_sql(&f->s, "UPDATE facts SET relayed_at = 1");
    wait_for(f, "SELECT count(*) FROM reservations", 3);
    assert_sound(f);
}

static const char rows_of_the_event[] = "SELECT (SELECT count(*) FROM events WHERE id = 1)"
                                        " + (SELECT count(*) FROM sections WHERE event_id = 1)"
                                        " + (SELECT count(*) FROM seats WHERE section_id IN (1, 2))"
                                        " + (SELECT count(*) FROM queue_entries WHERE event_id = 1)"
                                        " + (SELECT count(*) FROM reservations WHERE event_id = 1)"
                                        " + (SELECT count(*) FROM requests WHERE event_id = 1)"
                                        " + (SELECT count(*) FROM buyers WHERE event_id = 1)"
                                        " + (SELECT count(*) FROM facts WHERE event_id = 1)";

static void everything_of_a_deleted_event_goes(void **state) {
    struct fixture *f = *state;
    tables_reservation(scratch_tables(&f->s), 3, f->stored, &f->stored->sections[0], 3,
                       "CANCELLED");
    scratch_sql(&f->s, "UPDATE facts SET relayed_at = 1;"
                       "INSERT INTO queue_entries SELECT 1, i, 'u' || i, 8, 'WAITING', 1, NULL,"
                       " NULL, NULL FROM generate_series(1, 1200) i;"
                       "INSERT INTO seats SELECT 1 + i %% 2, i, 'AVAILABLE', NULL, 2, 0"
                       " FROM generate_series(1, 700) i;"
                       "INSERT INTO buyers SELECT 1, 'u' || i, 0, 0"
                       " FROM generate_series(1, 700) i;"
                       "INSERT INTO reservations VALUES ('00000000000000000000000000000001', 1, 1,"
                       " '', 0, '', 'VOID', 0, '', 0, '', 1, 1, NULL, 1, NULL);"
                       "INSERT INTO requests VALUES ('00000000000000000000000000000001', 1, 1, 'a',"
                       " 1, 1, NULL, 'FAIL', NULL, 1, 2)");
    keep(f, 0, 0);
    struct event *other = test_event("other", 1);
    mem_free(scratch_store(&f->s, other));
    scratch_delete(&f->s, "CONCERT", "1");
    wait_for(f, rows_of_the_event, 0);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), 1);
    assert_int_equal(number(f, "SELECT count(*) FROM sections"), 1);
    assert_sound(f);
    mem_free(other);
}

static void deleted_event_waits_for_its_facts_to_be_relayed(void **state) {
    struct fixture *f = *state;
    tables_reservation(scratch_tables(&f->s), 3, f->stored, &f->stored->sections[0], 3,
                       "CANCELLED");
    keep(f, 0, 0);
    scratch_delete(&f->s, "CONCERT", "1");
    wait_a_round(f);
    assert_int_equal(number(f, rows_of_the_event), 1 + 2 + 1 + 2);
    assert_sound(f);
    scratch_sql(&f->s, "UPDATE facts SET relayed_at = 1");
    wait_for(f, rows_of_the_event, 0);
    assert_sound(f);
}

/* An enter may be under way, which finds the event only while its row is there. */
static void an_event_that_was_deleted_just_now_stays_for_a_while(void **state) {
    struct fixture *f = *state;
    scratch_delete(&f->s, "CONCERT", "1");
    scratch_sql(&f->s, "UPDATE events SET deleted_at = %lld", f->now - 60000);
    keep(f, 0, 0);
    wait_for(f, "SELECT count(*) FROM sections", 0);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), 1);
    scratch_sql(&f->s, "UPDATE events SET deleted_at = %lld", f->now - 7200000);
    wait_for(f, "SELECT count(*) FROM events", 0);
}

static void section_taken_out_goes_with_its_history(void **state) {
    struct fixture *f = *state;
    tables_reservation(scratch_tables(&f->s), 3, f->stored, &f->stored->sections[1], 3,
                       "CANCELLED");
    scratch_sql(&f->s, "UPDATE facts SET relayed_at = 1;"
                       "INSERT INTO seats VALUES (1, 1, 'AVAILABLE', NULL, 2, 0),"
                       " (2, 3, 'AVAILABLE', NULL, 2, 0)");
    keep(f, 0, 0);
    struct event *only_a = test_event("1", 1);
    mem_free(scratch_store(&f->s, only_a));
    wait_for(f, "SELECT count(*) FROM sections", 1);
    wait_a_round(f);
    assert_int_equal(number(f, "SELECT count(*) FROM seats"), 1);
    assert_int_equal(number(f, "SELECT count(*) FROM reservations"), 0);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), 1);
    assert_sound(f);
    mem_free(only_a);
}

/* Nobody is waited for, and what the locked row belongs to stays with it. */
static void a_locked_row_and_its_parents_are_left_for_later(void **state) {
    struct fixture *f = *state;
    scratch_sql(&f->s, "INSERT INTO reservations SELECT ('0' || i || repeat('0', 30))::uuid, 1, 1,"
                       " '', 0, '', 'VOID', 0, '', 0, '', 1, 1, NULL, 1, NULL"
                       " FROM generate_series(3, 4) i");
    scratch_delete(&f->s, "CONCERT", "1");
    assert_true(pg_exec(&f->s.db, "BEGIN; SELECT FROM reservations WHERE id::text LIKE '03%'"
                                  " FOR UPDATE"));
    keep(f, 0, 0);
    wait_for(f, "SELECT count(*) FROM reservations", 1);
    wait_a_round(f);
    assert_int_equal(number(f, rows_of_the_event), 1 + 2 + 1);
    assert_true(pg_exec(&f->s.db, "ROLLBACK"));
    wait_for(f, rows_of_the_event, 0);
    assert_sound(f);
}

static void of_several_nodes_one_works_and_another_takes_over(void **state) {
    struct fixture *f = *state;
    static const char workers[] =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND classid = 1633971505 AND database ="
        "  (SELECT oid FROM pg_database WHERE datname = current_database())";
    /* A node that has the lock, and rests. */
    assert_true(pg_exec(&f->s.db, "SELECT pg_advisory_lock(1633971505, 0)"));
    scratch_delete(&f->s, "CONCERT", "1");
    keep(f, 0, 30);
    usleep(300000);
    assert_int_equal(number(f, rows_of_the_event), 1 + 2);
    /* It goes. */
    assert_true(pg_exec(&f->s.db, "SELECT pg_advisory_unlock(1633971505, 0)"));
    wait_for(f, rows_of_the_event, 0);
    assert_int_equal(number(f, workers), 1);
}

/* Its connection is cut again and again. */
static void a_lost_connection_is_made_anew(void **state) {
    struct fixture *f = *state;
    keep(f, 0, 30);
    for (int i = 0; i < 3; i++) {
        wait_a_round(f);
        scratch_sql(&f->s, "SELECT pg_terminate_backend(pid) FROM pg_locks"
                           " WHERE locktype = 'advisory' AND classid = 1633971505");
    }
    wait_a_round(f);
}

static void it_stops_soon_though_nobody_answers(void **state) {
    struct fixture *f = *state;
    struct pg_retention *r = pg_retention_start(&(struct postgres_ledger_options){
        .url = "postgres://nobody@192.0.2.1:9/none",
        .retention_interval_ms = 1,
        .retention_rest_ms = 1,
    });
    usleep(100000);
    int64_t began_ns = clock_steady_ns();
    pg_retention_stop(r);
    assert_true(clock_steady_ns() - began_ns < INT64_C(3000000000));
    keep(f, 0, 30);
}

int main(void) {
    _Static_assert(PG_LOCK_RETENTION == 1633971505, "as written above");
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(old_audit_rows_go_but_never_the_newest),
        TEST(for_ever_means_for_ever),
        TEST(the_highest_number_of_a_queue_is_never_forgotten),
        TEST(idempotency_lasts_a_day),
        TEST(ended_things_go_and_live_ones_stay),
        TEST(everything_of_a_deleted_event_goes),
        TEST(deleted_event_waits_for_its_facts_to_be_relayed),
        TEST(an_event_that_was_deleted_just_now_stays_for_a_while),
        TEST(section_taken_out_goes_with_its_history),
        TEST(a_locked_row_and_its_parents_are_left_for_later),
        TEST(of_several_nodes_one_works_and_another_takes_over),
        TEST(a_lost_connection_is_made_anew),
        TEST(it_stops_soon_though_nobody_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
