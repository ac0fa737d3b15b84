#include "postgres_scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ledger_harness.h"
#include "services.h"

/* The first column of the first row, as a text of the caller's; "" when there is none. */
static void run_at(const char *url, const char *sql, char *out, size_t size) {
    PGconn *c = PQconnectdb(url);
    if (PQstatus(c) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(c));
    PGresult *r = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(c));
    snprintf(out, size, "%s", PQntuples(r) > 0 && !PQgetisnull(r, 0, 0) ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    PQfinish(c);
}

static void run(void *at, const char *sql) {
    char none[2];
    run_at(((const struct scratch *)at)->url, sql, none, sizeof none);
}

static int64_t number(void *at, const char *sql) {
    char text[64];
    int64_t found = 0;
    run_at(((const struct scratch *)at)->url, sql, text, sizeof text);
    if (text[0] != '\0') assert_true(str_to_i64(str_of(text), &found));
    return found;
}

struct tables scratch_tables(const struct scratch *s) {
    return (struct tables){
        .run = run, .number = number, .at = (void *)s, .id_prefix = "", .has_buyers = true};
}

static void expect(struct scratch *s, bool ok) {
    if (!ok) fail_msg("%s: %s", s->db.failure.state, s->db.failure.text);
}

static void run_here(void *at, const char *sql) {
    struct scratch *s = at;
    expect(s, pg_exec(&s->db, sql));
}

struct tables scratch_begin_unruly(struct scratch *s) {
    struct tables t = scratch_tables(s);
    t.run = run_here;
    expect(s, pg_exec(&s->db,
                      "BEGIN; DO $$ DECLARE c RECORD; BEGIN"
                      " FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint"
                      "  WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f') LOOP"
                      "  EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname);"
                      " END LOOP; END $$;"
                      "DROP INDEX queue_entries_live; DROP INDEX facts_once"));
    return t;
}

/* The server's URL with another database in it. */
static void url_of(const char *server, const char *database, char *out, size_t size) {
    const char *host = strstr(server, "://");
    assert_non_null(host);
    const char *path = strchr(host + 3, '/');
    assert_non_null(path);
    const char *options = strchr(path, '?');
    int len = snprintf(out, size, "%.*s/%s%s", (int)(path - server), server, database,
                       options == NULL ? "" : options);
    assert_true(len > 0 && (size_t)len < size);
}

void scratch_open(struct scratch *s) {
    static unsigned count_of;
    const struct services *services = services_get(SERVICE_POSTGRES);
    char sql[160];
    char none[2];
    struct buf why = {0};
    *s = (struct scratch){0};
    snprintf(s->name, sizeof s->name, "scratch_%ld_%u", (long)getpid(), ++count_of);
    snprintf(sql, sizeof sql, "CREATE DATABASE %s", s->name);
    run_at(services->postgres_url, sql, none, sizeof none);
    url_of(services->postgres_url, s->name, s->url, sizeof s->url);
    if (!pg_open(&s->db, &(struct pg_settings){.url = s->url, .wait_ms = 20000}, &why) ||
        pg_schema_migrate(&s->db, clock_wall_ms(), &why) != ERR_OK)
        fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
}

void scratch_shut(struct scratch *s) {
    const struct services *services = services_get(SERVICE_POSTGRES);
    char sql[160];
    char none[2];
    pg_close(&s->db);
    snprintf(sql, sizeof sql, "DROP DATABASE %s WITH (FORCE)", s->name);
    run_at(services->postgres_url, sql, none, sizeof none);
}

struct event *scratch_store(struct scratch *s, const struct event *wanted) {
    struct test_record r;
    test_put(&r, wanted, 1000);
    expect(s, pg_exec(&s->db, "BEGIN"));
    expect(s, pg_event_put_apply(&s->db, &r.put));
    expect(s, pg_exec(&s->db, "COMMIT"));
    assert_int_equal(r.record.result, ERR_OK);
    return r.put.stored;
}

void scratch_delete(struct scratch *s, const char *type, const char *id) {
    struct test_record r;
    test_delete(&r, type, id, 5);
    expect(s, pg_exec(&s->db, "BEGIN"));
    expect(s, pg_event_delete_apply(&s->db, &r.del));
    expect(s, pg_exec(&s->db, "COMMIT"));
    assert_int_equal(r.record.result, ERR_OK);
}
