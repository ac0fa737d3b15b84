/*
 * The records that confirm, cancel and expire holds. A function of the database decides and writes
 * (postgres_schema_2.sql, postgres_schema_8.sql): every change is a compare and set from the status
 * that was read under lock, of the row and of each of its seats by holder and state, so it happens
 * once, and never to the seats of the next holder.
 */
#include <assert.h>

#include "ledger/postgres_internal.h"

/* Columns of ledger_outcome_1 and ledger_cancel_held_1; the reservation's are behind them. */
enum { OUTCOME, BECAME, COMPLETED, OF_SECTION, HELD_BY, CONFIRMED_BY, RESERVATION };

static void send_outcome(struct pg *db, const char *act, const struct uuid *ids, size_t count,
                         str user, int64_t now_ms, const char *code, bool wait) {
    struct pg_array all = {0};
    for (size_t i = 0; i < count; i++) pg_array_uuid(&all, &ids[i]);
    pg_send(db, "SELECT * FROM ledger_outcome_1($1, $2, $3, 0, $4, $5, $6)", pg_cell_text(act),
            pg_cell_array(&all), pg_cell_str(user), pg_cell_i64(now_ms), pg_cell_text(code),
            pg_cell_i64(wait));
    pg_array_deinit(&all);
}

static bool is_blocked(const struct pg_rows *rows) {
    return str_eq(pg_str(rows, OUTCOME), STR("BLOCKED"));
}

static bool became(const struct pg_rows *rows, enum reservation_status status) {
    return str_eq(pg_str(rows, BECAME), reservation_status_words[status]);
}

static void pg_outcome_count(struct pg_section_counts *t, const struct pg_rows *rows) {
    if (!pg_is_null(rows, BECAME))
        pg_section_counts_add(t, pg_i64(rows, OF_SECTION), pg_i64(rows, HELD_BY),
                              pg_i64(rows, CONFIRMED_BY), NULL);
}

/* The part of the answer that confirm and cancel have in common. */
static bool pg_outcome_read(struct pg *db, struct pg_rows *rows, struct ledger_record *r,
                            struct reservation **stored, struct pg_section_counts *t,
                            bool *blocked) {
    *stored = NULL;
    if (!pg_next(rows)) return pg_unexpected(db);
    *blocked = is_blocked(rows);
    if (*blocked) return true;
    pg_outcome_count(t, rows);
    if (!pg_result_from(db, pg_str(rows, OUTCOME), &r->result)) return false;
    return pg_is_null(rows, RESERVATION) || pg_reservation_from_row(db, rows, RESERVATION, stored);
}

/* --- confirm --- */

static size_t confirm_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)count;
    const struct ledger_confirm *c = (const struct ledger_confirm *)records[0];
    assert(strlen(c->code) == CONFIRMATION_CODE_CHARS);
    send_outcome(db, "CONFIRM", &c->id, 1, c->user, c->now_ms, c->code, wait);
    return 1;
}

static bool confirm_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                         size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)count;
    struct ledger_confirm *c = (struct ledger_confirm *)records[0];
    c->confirmed = false;
    c->completed = false;
    c->expired = false;
    if (!pg_outcome_read(db, rows, &c->record, &c->stored, t, blocked)) return false;
    if (*blocked) return true;
    c->confirmed = became(rows, RESERVATION_CONFIRMED);
    c->expired = became(rows, RESERVATION_EXPIRED);
    c->completed = pg_bool(rows, COMPLETED);
    return true;
}

const struct pg_kind pg_kind_confirm = {.send = confirm_send, .read = confirm_read};

/* --- cancel --- */

static size_t cancel_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)count;
    const struct ledger_cancel *c = (const struct ledger_cancel *)records[0];
    if (c->may_end_confirmed)
        send_outcome(db, "CANCEL", &c->id, 1, c->user, c->now_ms, "", wait);
    else
        pg_send(db, "SELECT * FROM ledger_cancel_held_1($1, $2, $3, $4)", pg_cell_uuid(&c->id),
                pg_cell_str(c->user), pg_cell_i64(c->now_ms), pg_cell_i64(wait));
    return 1;
}

static bool cancel_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                        size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)count;
    struct ledger_cancel *c = (struct ledger_cancel *)records[0];
    c->cancelled = false;
    c->expired = false;
    if (!pg_outcome_read(db, rows, &c->record, &c->stored, t, blocked)) return false;
    if (*blocked) return true;
    c->cancelled = became(rows, RESERVATION_CANCELLED);
    c->expired = became(rows, RESERVATION_EXPIRED);
    return true;
}

const struct pg_kind pg_kind_cancel = {.send = cancel_send, .read = cancel_read};

/* --- expire --- */

static size_t expire_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)count;
    const struct ledger_expire *e = (const struct ledger_expire *)records[0];
    assert(e->count > 0);
    send_outcome(db, "EXPIRE", e->ids, e->count, STR(""), e->now_ms, "", wait);
    return 1;
}

static bool expire_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                        size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)count;
    struct ledger_expire *e = (struct ledger_expire *)records[0];
    e->record.result = ERR_OK;
    for (size_t i = 0; i < e->count; i++) {
        if (!pg_next(rows)) return pg_unexpected(db);
        *blocked = is_blocked(rows);
        if (*blocked) return true;
        e->expired[i] = became(rows, RESERVATION_EXPIRED);
        pg_outcome_count(t, rows);
    }
    return true;
}

const struct pg_kind pg_kind_expire = {.send = expire_send, .read = expire_read};
