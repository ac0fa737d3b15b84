#include "ledger_raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sync_recorder.h"

struct ledger *raw_ledger_open(const struct sqlite_ledger_options *o) {
    struct buf why = {0};
    struct ledger *l = NULL;
    if (sqlite_ledger_open(o, &l, &why) != ERR_OK) fail_msg("%s", buf_cstr(&why));
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

static void run(sqlite3 *db, const char *sql) {
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) fail_msg("%s: %s", sql, error);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

void raw_sql(const struct harness *h, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    run(open_raw(h, false), sql);
    sqlite3_free(sql);
}

void raw_sql_unruly(const struct harness *h, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    run(open_raw(h, true), sql);
    sqlite3_free(sql);
}

int64_t raw_number(const struct harness *h, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    sqlite3 *db = open_raw(h, false);
    sqlite3_stmt *rows = NULL;
    int64_t number = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(rows) == SQLITE_ROW) number = sqlite3_column_int64(rows, 0);
    sqlite3_finalize(rows);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    sqlite3_free(sql);
    return number;
}

static void fact(const struct harness *h, const char *id, const struct event *e, const char *kind) {
    raw_sql(h,
            "INSERT INTO facts(kind, event_id, reservation_id, user_id, seat_count, at)"
            " VALUES (%Q, %lld, x'%s', 'user', 1, 1000)",
            kind, (long long)e->key, id);
}

void raw_reservation(const struct harness *h, unsigned id_byte, const struct event *e,
                     const struct section *s, int64_t seat_no, const char *status) {
    char id[33];
    for (int i = 0; i < 16; i++) snprintf(id + 2 * i, 3, "%02x", id_byte & 0xff);
    bool held = strcmp(status, "HELD") == 0;
    bool confirmed = strcmp(status, "CONFIRMED") == 0;
    bool live = held || confirmed;
    raw_sql(h,
            "INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy,"
            " status, seat_count, seats, price, currency, expires_at, created_at, confirmed_at,"
            " ended_at) VALUES (x'%s', %lld, %lld, 'user', 1, 'slot', %Q, 1, '%lld', 1, 'KRW',"
            " %lld, 1000, %s, %s)",
            id, (long long)e->key, (long long)s->key, status, (long long)seat_no,
            (long long)clock_wall_ms() + 600000, confirmed ? "1500" : "NULL",
            live ? "NULL" : "2000");
    fact(h, id, e, "HELD");
    if (!held) fact(h, id, e, status);
    if (!live) return;
    raw_sql(h,
            "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
            " VALUES (%lld, %lld, %Q, x'%s', 1);"
            "UPDATE sections SET held = held + %d, confirmed = confirmed + %d WHERE id = %lld",
            (long long)s->key, (long long)seat_no, status, id, held, confirmed, (long long)s->key);
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
