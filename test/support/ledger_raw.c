#include "ledger_raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/mem.h"
#include "sync_recorder.h"

#define SLEEPING_MS 3600000

struct ledger *raw_ledger_open(const struct sqlite_ledger_options *o) {
    struct buf why = {0};
    struct ledger *l = NULL;
    struct sqlite_ledger_options options = *o;
    if (options.retention_interval_ms == 0) options.retention_interval_ms = SLEEPING_MS;
    if (sqlite_ledger_open(&options, &l, &why) != ERR_OK) fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
    return l;
}

static sqlite3 *open_raw(const struct harness *h, bool unruly) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2(h->path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    const char *pragmas = unruly
                              ? "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;"
                                "PRAGMA wal_autocheckpoint = 0"
                              : "PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 0";
    assert_int_equal(sqlite3_exec(db, pragmas, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static void run_on(sqlite3 *db, const char *sql) {
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) fail_msg("%s: %s", sql, error);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void run(void *at, const char *sql) {
    run_on(open_raw(at, false), sql);
}

static void run_unruly(void *at, const char *sql) {
    run_on(open_raw(at, true), sql);
}

static int64_t number(void *at, const char *sql) {
    sqlite3 *db = open_raw(at, false);
    sqlite3_stmt *rows = NULL;
    int64_t found = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(rows) == SQLITE_ROW) found = sqlite3_column_int64(rows, 0);
    sqlite3_finalize(rows);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return found;
}

struct tables raw_tables(const struct harness *h) {
    return (struct tables){.run = run, .number = number, .at = (void *)h, .id_prefix = "x"};
}

struct tables raw_tables_unruly(const struct harness *h) {
    struct tables t = raw_tables(h);
    t.run = run_unruly;
    return t;
}

static bool gate_waits(void *arg) {
    (void)arg;
    return sync_gate_waits();
}

void raw_wait_for_sync(struct harness *h) {
    harness_wait(h, gate_waits, NULL);
}

void raw_submit_as_batch_failing(struct harness *h, struct ledger *l, struct test_record *records,
                                 size_t count, int rc) {
    struct event *other = test_event("other", 1);
    struct test_record first;
    sync_gate_close();
    test_put(&first, other, 1);
    assert_int_equal(ledger_submit(l, &first.record), ERR_OK);
    raw_wait_for_sync(h);
    sync_fail_writes(rc, 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ledger_submit(l, &records[i].record), ERR_OK);
    sync_gate_open();
    harness_wait_back(h, &first, 1);
    harness_wait_back(h, records, count);
    sync_fail_writes(0, 0);
    test_record_deinit(&first);
    mem_free(other);
}

void raw_submit_as_batch(struct harness *h, struct ledger *l, struct test_record *records,
                         size_t count) {
    raw_submit_as_batch_failing(h, l, records, count, SQLITE_OK);
}
