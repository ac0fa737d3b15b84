#include "ledger_postgres.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"

/* Retention is off, and a machine that stalls for seconds is not a failure of the database. */
#define PATIENT .retention_interval_ms = 3600000, .deadline_ms = HARNESS_DEADLINE_MS

struct postgres_ledger_options postgres_options = {PATIENT};

/* A database is made once, and emptied for the next harness, which takes a tenth of the time. */
static struct {
    struct scratch scratch;
    bool exists;
    char folder[256]; /* of the harness; "": none */
} current;

struct scratch *postgres_database(void) {
    assert_true(current.folder[0] != '\0');
    return &current.scratch;
}

struct tables postgres_tables(const struct harness *h) {
    (void)h;
    return scratch_tables(postgres_database());
}

void postgres_shut(void) {
    current.folder[0] = '\0';
    postgres_options = (struct postgres_ledger_options){PATIENT};
}

void postgres_drop(void) {
    if (current.exists) scratch_shut(&current.scratch);
    current.exists = false;
    postgres_shut();
}

void postgres_database_for(struct harness *h) {
    if (str_eq(str_of(h->folder), str_of(current.folder))) return;
    if (current.exists)
        scratch_sql(&current.scratch,
                    "SET lock_timeout = '20s'; TRUNCATE events, sections, seats, queue_entries, "
                    "retired_entries, nodes,"
                    " reservations, buyers, requests, facts, idempotency, audit, epochs, commits,"
                    " request_consumers, fact_publications RESTART IDENTITY;"
                    "UPDATE request_leases SET node = NULL, until = 0");
    else
        scratch_open(&current.scratch);
    current.exists = true;
    str_copy(str_of(h->folder), current.folder, sizeof current.folder);
}

struct ledger *postgres_open(struct harness *h, int64_t queue_max) {
    struct buf why = {0};
    struct ledger *l = NULL;
    postgres_database_for(h);
    struct postgres_ledger_options o = postgres_options;
    o.queue_max = queue_max;
    if (o.url == NULL) o.url = current.scratch.url;
    /* On a busy machine a connection may take longer than the ledger waits for it. */
    int64_t until_ms = clock_steady_ms() + HARNESS_DEADLINE_MS;
    while (postgres_ledger_open(&o, &l, &why) != ERR_OK) {
        if (clock_steady_ms() > until_ms) fail_msg("%s", buf_cstr(&why));
        buf_clear(&why);
    }
    buf_deinit(&why);
    return l;
}

void postgres_url_with_port(const char *url, int port, char *out, size_t size) {
    const char *path = strchr(strstr(url, "://") + 3, '/');
    const char *colon = path;
    while (*colon != ':') colon--;
    int len = snprintf(out, size, "%.*s:%d%s", (int)(colon - url), url, port, path);
    assert_true(len > 0 && (size_t)len < size);
}

void postgres_other_run(PGconn *c, const char *sql) {
    PGresult *r = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(c));
    PQclear(r);
}

PGconn *postgres_other(const char *sql) {
    PGconn *c = PQconnectdb(postgres_database()->url);
    if (PQstatus(c) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(c));
    postgres_other_run(c, "BEGIN");
    postgres_other_run(c, sql);
    return c;
}

void postgres_other_end(PGconn *c) {
    postgres_other_run(c, "COMMIT");
    PQfinish(c);
}
