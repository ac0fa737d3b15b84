/* Retention of a PostgreSQL ledger, with other nodes and locked rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ledger_postgres.h"
#include "ledger_retention_suite.h"

static struct ledger *open_keeping(struct harness *h, int64_t interval_ms, int64_t audit_days,
                                   int64_t ended_days) {
    postgres_options = (struct postgres_ledger_options){.retain_audit_days = audit_days,
                                                        .retain_ended_days = ended_days,
                                                        .retention_interval_ms = interval_ms,
                                                        .retention_pause_ms = interval_ms};
    return postgres_open(h, 0);
}

/* An enter may be under way, which finds the event only while its row is there. */
static void an_event_that_was_deleted_just_now_stays_for_a_while(void **state) {
    struct retained *f = *state;
    scratch_delete(postgres_database(), "CONCERT", "1");
    tables_sql(f->tables, "UPDATE events SET deleted_at = %lld", f->now - 60000);
    retained_keep(f, 0, 0);
    retained_await(f, "SELECT count(*) FROM sections", 0);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM events"), 1);
    tables_sql(f->tables, "UPDATE events SET deleted_at = %lld", f->now - 7200000);
    retained_await(f, "SELECT count(*) FROM events", 0);
}

/* Nobody is waited for, and what the locked row belongs to stays with it. */
static void a_locked_row_and_its_parents_are_left_for_later(void **state) {
    struct retained *f = *state;
    tables_sql(f->tables,
               "INSERT INTO reservations SELECT ('0' || i || repeat('0', 30))::uuid, 1, 1,"
               " '', 0, '', 'VOID', 0, '', 0, '', 1, 1, NULL, 1, NULL"
               " FROM generate_series(3, 4) i");
    scratch_delete(postgres_database(), "CONCERT", "1");
    assert_true(pg_exec(&postgres_database()->db,
                        "BEGIN; SELECT FROM reservations WHERE id::text LIKE '03%' FOR UPDATE"));
    retained_keep(f, 0, 0);
    retained_await(f, "SELECT count(*) FROM reservations", 1);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, retained_rows_of_the_event(f)), 1 + 2 + 1);
    assert_true(pg_exec(&postgres_database()->db, "ROLLBACK"));
    retained_await(f, retained_rows_of_the_event(f), 0);
    retained_assert_sound(f);
}

/* A reservation of the event that ended long ago, with its fact, and the fact SOLD_OUT. */
static void add_old_facts(struct retained *f) {
    tables_sql(f->tables,
               "INSERT INTO reservations SELECT ('0' || 3 || repeat('0', 30))::uuid, 1, 1,"
               " 'a', 0, 'slot', 'CANCELLED', 1, '1', 0, 'KRW', 1, 1, NULL, 1, NULL");
    tables_sql(f->tables,
               "INSERT INTO facts(kind, event_id, section_id, reservation_id, user_id, seat_count,"
               " at, relayed_at, transaction) VALUES"
               " ('CANCELLED', 1, 1, ('03' || repeat('0', 30))::uuid, 'a', 1, 1, 1, '50'),"
               " ('SOLD_OUT', 1, NULL, NULL, NULL, 0, 1, NULL, '60')");
}

/* With the watermark below, between and above these two facts. */
static void facts_that_were_not_published_yet_stay(void **state) {
    struct retained *f = *state;
    add_old_facts(f);
    tables_sql(f->tables,
               "INSERT INTO fact_publications(topic, transaction, fact_id, until)"
               " VALUES ('facts', '49', 9, %lld)",
               f->now);
    scratch_delete(postgres_database(), "CONCERT", "1");
    retained_keep(f, 0, 0);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM facts"), 2);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM reservations"), 1);
    tables_sql(f->tables, "UPDATE fact_publications SET transaction = '50'");
    retained_await(f, "SELECT count(*) FROM reservations", 0);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM facts"), 1);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM events"), 1);
    tables_sql(f->tables, "UPDATE fact_publications SET transaction = '61'");
    retained_await(f, retained_rows_of_the_event(f), 0);
}

static void a_publisher_that_has_not_run_for_a_week_is_not_waited_for(void **state) {
    struct retained *f = *state;
    add_old_facts(f);
    tables_sql(f->tables, "INSERT INTO fact_publications(topic, until) VALUES ('facts', %lld)",
               f->now - 8LL * 24 * 3600 * 1000);
    scratch_delete(postgres_database(), "CONCERT", "1");
    retained_keep(f, 0, 0);
    retained_await(f, retained_rows_of_the_event(f), 0);
}

static void of_several_nodes_one_works_and_another_takes_over(void **state) {
    struct retained *f = *state;
    static const char workers[] =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND classid = 1633971505 AND database ="
        "  (SELECT oid FROM pg_database WHERE datname = current_database())";
    /* A node that has the lock, and rests. */
    assert_true(pg_exec(&postgres_database()->db, "SELECT pg_advisory_lock(1633971505, 0)"));
    scratch_delete(postgres_database(), "CONCERT", "1");
    retained_keep(f, 0, 30);
    usleep(300000);
    assert_int_equal(retained_number(f, retained_rows_of_the_event(f)), 1 + 2);
    /* It goes. */
    assert_true(pg_exec(&postgres_database()->db, "SELECT pg_advisory_unlock(1633971505, 0)"));
    retained_await(f, retained_rows_of_the_event(f), 0);
    assert_int_equal(retained_number(f, workers), 1);
}

/* Its connection is cut again and again. */
static void a_lost_connection_is_opened_again(void **state) {
    struct retained *f = *state;
    retained_keep(f, 0, 30);
    for (int i = 0; i < 3; i++) {
        retained_await_a_round(f);
        tables_sql(f->tables, "SELECT pg_terminate_backend(pid) FROM pg_locks"
                              " WHERE locktype = 'advisory' AND classid = 1633971505");
    }
    retained_await_a_round(f);
}

static void it_stops_soon_though_no_server_answers(void **state) {
    (void)state;
    struct pg_retention *r = pg_retention_start(&(struct postgres_ledger_options){
        .url = "postgres://nobody@192.0.2.1:9/none",
        .retention_interval_ms = 1,
        .retention_pause_ms = 1,
    });
    usleep(100000);
    pg_retention_stop(r);
}

int main(void) {
    _Static_assert(PG_LOCK_RETENTION == 1633971505, "as written above");
    const struct CMUnitTest tests[] = {
        RETAINED_TEST(an_event_that_was_deleted_just_now_stays_for_a_while),
        RETAINED_TEST(a_locked_row_and_its_parents_are_left_for_later),
        RETAINED_TEST(facts_that_were_not_published_yet_stay),
        RETAINED_TEST(a_publisher_that_has_not_run_for_a_week_is_not_waited_for),
        RETAINED_TEST(of_several_nodes_one_works_and_another_takes_over),
        RETAINED_TEST(a_lost_connection_is_opened_again),
        cmocka_unit_test(it_stops_soon_though_no_server_answers),
    };
    int failed = ledger_retention_suite_run(
        &(struct retention_adapter){.open = open_keeping, .tables = postgres_tables});
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
