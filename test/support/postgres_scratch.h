/*
 * postgres_scratch: a temporary PostgreSQL database with the ledger's tables, on the private server
 * of services.h, for other connections (ledger_tables.h). Constraints of the tables can be removed,
 * to violate them on purpose.
 */
#ifndef ADMITONE_TEST_POSTGRES_SCRATCH_H
#define ADMITONE_TEST_POSTGRES_SCRATCH_H

#include "ledger/postgres_internal.h"
#include "ledger_tables.h"

struct scratch {
    char name[64];
    char url[320];
    struct pg db; /* which the tables were made with */
};

/* Fails the test when it can't. */
void scratch_open(struct scratch *s);
/* Ends every connection to it, too. */
void scratch_shut(struct scratch *s);

/* Each call opens a connection. */
struct tables scratch_tables(const struct scratch *s);
#define scratch_sql(s, ...) tables_sql(scratch_tables(s), __VA_ARGS__)
#define scratch_number(s, ...) tables_number(scratch_tables(s), __VA_ARGS__)
/* Begins a transaction on s->db, without every CHECK, foreign key and index that a value could
 * offend; SQL is run in it. A ROLLBACK takes it all back. */
struct tables scratch_begin_unruly(struct scratch *s);

/* Puts the event as a record does; mem_free frees it. */
struct event *scratch_store(struct scratch *s, const struct event *wanted);
void scratch_delete(struct scratch *s, const char *type, const char *id);

#endif
