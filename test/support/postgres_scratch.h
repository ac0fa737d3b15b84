/*
 * postgres_scratch: a PostgreSQL database of a test's own, with the ledger's tables, on the private
 * server of services.h; and a connection to it for what no record can do, and what none ever
 * should. Rules of the tables can be taken away, to break them on purpose.
 */
#ifndef ADMITONE_TEST_POSTGRES_SCRATCH_H
#define ADMITONE_TEST_POSTGRES_SCRATCH_H

#include "ledger/postgres_parts.h"

struct scratch {
    char name[64];
    char url[320];
    struct pg db; /* which the tables were made with */
};

/* Fails the test when it can't. */
void scratch_open(struct scratch *s);
/* Ends every connection to it, too. */
void scratch_shut(struct scratch *s);

/* Runs SQL on a connection of its own, formatted as printf does. */
void scratch_sql(const struct scratch *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The first column of the first row; 0 when there is none. */
int64_t scratch_number(const struct scratch *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes away every CHECK, foreign key and index that a value could offend; on s->db, so that a
 * transaction there can take it back. */
void scratch_unrule(struct scratch *s);

/* Puts the event as a record does; mem_free frees it. */
struct event *scratch_store(struct scratch *s, const struct event *wanted);
void scratch_delete(struct scratch *s, const char *type, const char *id);

/* A consistent reservation of one seat: HELD, CONFIRMED (live), CANCELLED or EXPIRED (ended). Its
 * id is 16 times the byte `id`; its user is "user". */
void scratch_reservation(const struct scratch *s, unsigned id, const struct event *e,
                         const struct section *section, int64_t seat_no, const char *status);

#endif
