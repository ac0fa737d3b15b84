/*
 * ledger_postgres: ledgers on PostgreSQL for tests: each harness has an empty database on the
 * private server of services.h.
 */
#ifndef ADMITONE_TEST_LEDGER_POSTGRES_H
#define ADMITONE_TEST_LEDGER_POSTGRES_H

#include "ledger/postgres.h"
#include "ledger_harness.h"
#include "postgres_scratch.h"

/* What the next ledger is opened with; a `url` of NULL is that of the harness's database. By
 * default retention sleeps, for the times of tests are those of 1970, and deadlines are long. */
extern struct postgres_ledger_options postgres_options;

/* The database of the harness that was last opened for: no test has two. */
struct scratch *postgres_database(void);
struct tables postgres_tables(const struct harness *h);
/* Makes the harness's database, unless it is the last one's. */
void postgres_database_for(struct harness *h);
/* For struct ledger_adapter and desk_open. Fails the test when it can't be opened. */
struct ledger *postgres_open(struct harness *h, int64_t queue_max);
/* The harness is done with its database: the next one gets it, emptied. Sets the options back. */
void postgres_shut(void);
/* The same, and removes it: at the end, or when more than its rows was changed. */
void postgres_drop(void);

/* The URL with another port in it. */
void postgres_url_with_port(const char *url, int port, char *out, size_t size);

/* A connection of somebody else's, who has a transaction open. */
PGconn *postgres_other(const char *sql);
/* More in that transaction. */
void postgres_other_run(PGconn *c, const char *sql);
/* Commits it, and closes the connection. */
void postgres_other_end(PGconn *c);

#endif
