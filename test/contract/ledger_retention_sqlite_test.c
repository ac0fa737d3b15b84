/* Retention of an SQLite ledger, also of each of its steps alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "ledger/sqlite_internal.h"
#include "ledger_raw.h"
#include "ledger_retention_suite.h"

static struct ledger *open_keeping(struct harness *h, int64_t interval_ms, int64_t audit_days,
                                   int64_t ended_days) {
    return raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path,
                                                           .retain_audit_days = audit_days,
                                                           .retain_ended_days = ended_days,
                                                           .retention_interval_ms = interval_ms,
                                                           .retention_pause_ms = interval_ms});
}

static int64_t rows_left(const struct retained *f) {
    return retained_number(f, retained_rows_of_the_event(f));
}

/* Each step of retention alone: the sweeps have passed the reservation and many facts when their
 * event is deleted, so this round must leave the event, and the next removes all. */
static void event_deleted_during_a_round_waits_for_the_next(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[0], 3, "CANCELLED");
    tables_insert(f->tables, 1, 6000,
                  "facts(kind, event_id, seat_count, at) SELECT 'SOLD_OUT', 1, 0, 1");
    tables_sql(f->tables, "UPDATE facts SET relayed_at = 1");
    struct buf why = {0};
    struct db db;
    struct retention r;
    assert_int_equal(db_open(&db, f->h.path, DB_WRITE, &why), SQLITE_OK);
    retention_init(&r, &(struct sqlite_ledger_options){.retention_interval_ms = 20});
    retention_step(&r, &db);
    assert_int_equal(rows_left(f), 1 + 2 + 1 + 6002);
    tables_sql(f->tables, "INSERT INTO audit(at, actor, act, subject, detail)"
                          " VALUES (1, 'a', 'b', 'c', '{}');"
                          "UPDATE events SET deleted_at = 1, version = 2;"
                          "UPDATE sections SET removed_version = 2");
    int turns = 0;
    while (rows_left(f) > 0) {
        assert_true(turns++ < 100);
        int64_t before = rows_left(f);
        retention_step(&r, &db);
        /* A reservation takes its facts with it. */
        assert_in_range(before - rows_left(f), 0, 500 + 4);
        assert_int_equal(check_all(&db, false, f->now, retained_on_finding, NULL), SQLITE_OK);
    }
    assert_true(turns > 10);
    retention_deinit(&r);
    db_close(&db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RETAINED_TEST(event_deleted_during_a_round_waits_for_the_next),
    };
    int failed = ledger_retention_suite_run(
        &(struct retention_adapter){.open = open_keeping, .tables = raw_tables});
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
