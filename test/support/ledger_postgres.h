/*
 * ledger_postgres: ledgers on PostgreSQL for tests: each harness has an empty database on the
 * private server of services.h.
 */
#ifndef ADMITONE_TEST_LEDGER_POSTGRES_H
#define ADMITONE_TEST_LEDGER_POSTGRES_H

#include "ledger/postgres.h"
#include "ledger_harness.h"
#include "postgres_scratch.h"

/* The options of the next ledger; a `url` of NULL is that of the harness's database. By default
 * retention is off, because the tests use times of 1970, and deadlines are long. */
extern struct postgres_ledger_options postgres_options;

/* The database of the harness that was last opened for: no test has two. */
struct scratch *postgres_database(void);
struct tables postgres_tables(const struct harness *h);
/* Makes the harness's database, unless it is the last one's. */
void postgres_database_for(struct harness *h);
/* For struct ledger_adapter and ledger_client. Fails the test when it can't be opened. */
struct ledger *postgres_open(struct harness *h, int64_t queue_max);
/* The harness is done with its database: the next one gets it, emptied. Sets the options back. */
void postgres_shut(void);
/* The same, and removes it: at the end, or when more than its rows was changed. */
void postgres_drop(void);

/* The URL with another port in it. */
void postgres_url_with_port(const char *url, int port, char *out, size_t size);

/* Another connection, with an open transaction. */
PGconn *postgres_other(const char *sql);
/* More in that transaction. */
void postgres_other_run(PGconn *c, const char *sql);
/* Commits it, and closes the connection. */
void postgres_other_end(PGconn *c);

#endif
