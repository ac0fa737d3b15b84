#include "ledger_tables.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"

static bool is_id(const char *at) {
    return at[0] == '{' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]) &&
           at[3] == '}';
}

static void add_with_ids(struct buf *sql, const char *id_prefix, const char *text) {
    for (const char *at = text; *at != '\0'; at++) {
        if (!is_id(at)) {
            buf_add_char(sql, *at);
            continue;
        }
        buf_addf(sql, "%s'", id_prefix);
        for (int i = 0; i < 16; i++) buf_append(sql, at + 1, 2);
        buf_add_char(sql, '\'');
        at += 3;
    }
}

static void format_sql(struct buf *sql, struct tables t, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    assert_true(len >= 0);
    char *text = test_malloc((size_t)len + 1);
    vsnprintf(text, (size_t)len + 1, format, args);
    add_with_ids(sql, t.id_prefix, text);
    test_free(text);
}

void tables_sql(struct tables t, const char *format, ...) {
    struct buf sql = {0};
    va_list args;
    va_start(args, format);
    format_sql(&sql, t, format, args);
    va_end(args);
    t.run(t.at, buf_cstr(&sql));
    buf_deinit(&sql);
}

int64_t tables_number(struct tables t, const char *format, ...) {
    struct buf sql = {0};
    va_list args;
    va_start(args, format);
    format_sql(&sql, t, format, args);
    va_end(args);
    int64_t number = t.number(t.at, buf_cstr(&sql));
    buf_deinit(&sql);
    return number;
}

void tables_insert(struct tables t, int first, int last, const char *rows) {
    tables_sql(t,
               "WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
               " INSERT INTO %s FROM n",
               first, last, rows);
}

static void fact(struct tables t, unsigned id, const struct event *e, const char *kind) {
    tables_sql(t,
               "INSERT INTO facts(kind, event_id, reservation_id, user_id, seat_count, at)"
               " VALUES ('%s', %lld, {%02x}, 'user', 1, 1000)",
               kind, (long long)e->key, id);
}

void tables_reservation(struct tables t, unsigned id, const struct event *e,
                        const struct section *s, int64_t seat_no, const char *status) {
    long long section = s->key;
    long long seat = seat_no;
    bool held = strcmp(status, "HELD") == 0;
    bool confirmed = strcmp(status, "CONFIRMED") == 0;
    bool live = held || confirmed;
    id &= 0xff;
    tables_sql(t,
               "INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy,"
               " status, seat_count, seats, price, currency, expires_at, created_at, confirmed_at,"
               " ended_at) VALUES ({%02x}, %lld, %lld, 'user', 1, 'slot', '%s', 1, '%lld', 1,"
               " 'KRW', %lld, 1000, %s, %s)",
               id, (long long)e->key, section, status, seat, (long long)clock_wall_ms() + 600000,
               confirmed ? "1500" : "NULL", live ? "NULL" : "2000");
    fact(t, id, e, "HELD");
    if (!held) fact(t, id, e, status);
    if (!live) return;
    tables_sql(t,
               "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
               " VALUES (%lld, %lld, '%s', {%02x}, 1) ON CONFLICT (section_id, seat_no) DO UPDATE"
               " SET state = excluded.state, reservation_id = excluded.reservation_id;"
               "UPDATE sections SET held = held + %d, confirmed = confirmed + %d WHERE id = %lld",
               section, seat, status, id, held, confirmed, section);
    if (!t.has_buyers) return;
    tables_sql(t,
               "INSERT INTO buyers AS b VALUES (%lld, 'user', 1, %d)"
               " ON CONFLICT (event_id, user_id) DO UPDATE"
               " SET seats = b.seats + 1, held = b.held + excluded.held",
               (long long)e->key, held);
}
