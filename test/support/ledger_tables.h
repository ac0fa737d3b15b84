/*
 * ledger_tables: reads and changes a ledger's tables, in either database, on separate connections:
 * for changes that no record makes. SQL is formatted as by printf, and {07} in it stands for the id
 * whose 16 bytes are all 07. A failure fails the test.
 */
#ifndef ADMITONE_TEST_LEDGER_TABLES_H
#define ADMITONE_TEST_LEDGER_TABLES_H

#include "core/event.h"

/* raw_tables (ledger_raw.h) and scratch_tables (postgres_scratch.h) make it. */
struct tables {
    void (*run)(void *at, const char *sql);
    /* The first column of the first row; 0 when there is none. */
    int64_t (*number)(void *at, const char *sql);
    void *at;
    const char *id_prefix; /* of an id's digits in quotes */
    bool has_buyers;       /* what users have is counted in a table, too */
};

void tables_sql(struct tables t, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t tables_number(struct tables t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* INSERT INTO `rows`, which SELECT with an i of each number from first to last. */
void tables_insert(struct tables t, int first, int last, const char *rows);

/* A consistent reservation of one seat: HELD, CONFIRMED (live), CANCELLED or EXPIRED (ended). Its
 * id is 16 times the byte `id`; its user is "user". An SQLite ledger that is open does not count it
 * for the user's limit: no record may change it before the next start. */
void tables_reservation(struct tables t, unsigned id, const struct event *e,
                        const struct section *s, int64_t seat_no, const char *status);

#endif
