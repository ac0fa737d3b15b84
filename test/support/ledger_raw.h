/*
 * ledger_raw: an SQLite ledger seen by a second connection (ledger_tables.h). Rules of the tables
 * can be switched off, to break them on purpose.
 */
#ifndef ADMITONE_TEST_LEDGER_RAW_H
#define ADMITONE_TEST_LEDGER_RAW_H

#include <sqlite3.h>

#include "ledger/sqlite.h"
#include "ledger_harness.h"
#include "ledger_tables.h"

/* Fails the test when it can't be opened. Unless its interval is given, retention sleeps: the times
 * of tests are those of 1970, so whatever a test that takes long has written would be too old. */
struct ledger *raw_ledger_open(const struct sqlite_ledger_options *o);

/* Each call opens a connection. */
struct tables raw_tables(const struct harness *h);
/* The same without CHECK and foreign keys. */
struct tables raw_tables_unruly(const struct harness *h);
#define raw_sql(h, ...) tables_sql(raw_tables(h), __VA_ARGS__)
#define raw_sql_unruly(h, ...) tables_sql(raw_tables_unruly(h), __VA_ARGS__)
#define raw_number(h, ...) tables_number(raw_tables(h), __VA_ARGS__)

/* Until a sync waits at the gate of the sync_recorder. */
void raw_wait_for_sync(struct harness *h);
/* All of these in one batch, by holding up the one before it, which puts CONCERT/other. The ledger
 * must write through the sync_recorder. Returns when they are back. */
void raw_submit_as_batch(struct harness *h, struct ledger *l, struct test_record *records,
                         size_t count);
/* The same, where no write of this batch succeeds but fails with this SQLite code. */
void raw_submit_as_batch_failing(struct harness *h, struct ledger *l, struct test_record *records,
                                 size_t count, int rc);

#endif
