/*
 * ledger_raw: an SQLite ledger seen by a second connection: what no record can do (yet), and what
 * none ever should. Rules of the tables can be switched off, to break them on purpose.
 */
#ifndef ADMITONE_TEST_LEDGER_RAW_H
#define ADMITONE_TEST_LEDGER_RAW_H

#include <sqlite3.h>

#include "ledger/sqlite.h"
#include "ledger_harness.h"

/* Fails the test when it can't be opened. */
struct ledger *raw_ledger_open(const struct sqlite_ledger_options *o);

/* Runs SQL on a connection of its own, formatted as sqlite3_mprintf does. */
void raw_sql(const struct harness *h, const char *format, ...);
/* The same without CHECK and foreign keys. */
void raw_sql_unruly(const struct harness *h, const char *format, ...);
/* The first column of the first row; 0 when there is none. */
int64_t raw_number(const struct harness *h, const char *format, ...);

/* A consistent reservation of one seat: HELD, CONFIRMED (live), CANCELLED or EXPIRED (ended). Its
 * id is 16 times the byte `id`; its user is "user". A ledger that is open does not count it for the
 * user's limit: no record may change it before the next start. */
void raw_reservation(const struct harness *h, unsigned id, const struct event *e,
                     const struct section *s, int64_t seat_no, const char *status);

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
