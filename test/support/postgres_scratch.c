#include "postgres_scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ledger_harness.h"
#include "services.h"

static PGconn *raw_connect(const char *url) {
    PGconn *c = PQconnectdb(url);
    if (PQstatus(c) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(c));
    return c;
}

/* The first column of the first row, as a text of the caller's; "" when there is none. */
static void raw_run(const char *url, const char *sql, char *out, size_t size) {
    PGconn *c = raw_connect(url);
    PGresult *r = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(c));
    snprintf(out, size, "%s", PQntuples(r) > 0 && !PQgetisnull(r, 0, 0) ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    PQfinish(c);
}

static void format_sql(struct buf *sql, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    assert_true(len >= 0);
    char *text = test_malloc((size_t)len + 1);
    vsnprintf(text, (size_t)len + 1, format, args);
    buf_add(sql, (str){text, (size_t)len});
    test_free(text);
}

void scratch_sql(const struct scratch *s, const char *format, ...) {
    char none[2];
    struct buf sql = {0};
    va_list args;
    va_start(args, format);
    format_sql(&sql, format, args);
    va_end(args);
    raw_run(s->url, buf_cstr(&sql), none, sizeof none);
    buf_deinit(&sql);
}

int64_t scratch_number(const struct scratch *s, const char *format, ...) {
    char text[64];
    int64_t number = 0;
    struct buf sql = {0};
    va_list args;
    va_start(args, format);
    format_sql(&sql, format, args);
    va_end(args);
    raw_run(s->url, buf_cstr(&sql), text, sizeof text);
    buf_deinit(&sql);
    if (text[0] != '\0') assert_true(str_to_i64(str_of(text), &number));
    return number;
}

static void expect(struct scratch *s, bool ok) {
    if (!ok) fail_msg("%s: %s", s->db.failure.state, s->db.failure.text);
}

void scratch_unrule(struct scratch *s) {
    expect(s, pg_exec(&s->db,
                      "DO $$ DECLARE c RECORD; BEGIN"
                      " FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint"
                      "  WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f') LOOP"
                      "  EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname);"
                      " END LOOP; END $$;"
                      "DROP INDEX queue_entries_live; DROP INDEX facts_once"));
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
    const struct services *services = services_start(SERVICE_POSTGRES);
    char sql[160];
    char none[2];
    struct buf why = {0};
    *s = (struct scratch){0};
    snprintf(s->name, sizeof s->name, "scratch_%ld_%u", (long)getpid(), ++count_of);
    snprintf(sql, sizeof sql, "CREATE DATABASE %s", s->name);
    raw_run(services->postgres_url, sql, none, sizeof none);
    url_of(services->postgres_url, s->name, s->url, sizeof s->url);
    if (!pg_open(&s->db, &(struct pg_settings){.url = s->url, .wait_ms = 20000}, &why) ||
        pg_schema_migrate(&s->db, clock_wall_ms(), &why) != ERR_OK)
        fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
}

void scratch_shut(struct scratch *s) {
    const struct services *services = services_start(SERVICE_POSTGRES);
    char sql[160];
    char none[2];
    pg_close(&s->db);
    snprintf(sql, sizeof sql, "DROP DATABASE %s WITH (FORCE)", s->name);
    raw_run(services->postgres_url, sql, none, sizeof none);
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

static void fact(const struct scratch *s, const char *id, const struct event *e, const char *kind) {
    scratch_sql(s,
                "INSERT INTO facts(kind, event_id, reservation_id, user_id, seat_count, at)"
                " VALUES ('%s', %lld, '%s', 'user', 1, 1000)",
                kind, (long long)e->key, id);
}

void scratch_reservation(const struct scratch *s, unsigned id_byte, const struct event *e,
                         const struct section *section, int64_t seat_no, const char *status) {
    char id[33];
    for (int i = 0; i < 16; i++) snprintf(id + 2 * i, 3, "%02x", id_byte & 0xff);
    bool held = strcmp(status, "HELD") == 0;
    bool confirmed = strcmp(status, "CONFIRMED") == 0;
    bool live = held || confirmed;
    scratch_sql(s,
                "INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy,"
                " status, seat_count, seats, price, currency, expires_at, created_at,"
                " confirmed_at, ended_at) VALUES ('%s', %lld, %lld, 'user', 1, 'slot', '%s', 1,"
                " '%lld', 1, 'KRW', %lld, 1000, %s, %s)",
                id, (long long)e->key, (long long)section->key, status, (long long)seat_no,
                (long long)clock_wall_ms() + 600000, confirmed ? "1500" : "NULL",
                live ? "NULL" : "2000");
    fact(s, id, e, "HELD");
    if (!held) fact(s, id, e, status);
    if (!live) return;
    scratch_sql(s,
                "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
                " VALUES (%lld, %lld, '%s', '%s', 1) ON CONFLICT (section_id, seat_no) DO UPDATE"
                " SET state = excluded.state, reservation_id = excluded.reservation_id;"
                "UPDATE sections SET held = held + %d, confirmed = confirmed + %d WHERE id = %lld;"
                "INSERT INTO buyers AS b VALUES (%lld, 'user', 1, %d)"
                " ON CONFLICT (event_id, user_id) DO UPDATE"
                " SET seats = b.seats + 1, held = b.held + excluded.held",
                (long long)section->key, (long long)seat_no, status, id, held, confirmed,
                (long long)section->key, (long long)e->key, held);
}
