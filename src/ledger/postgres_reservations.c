/*
 * Reads the rows of reservations. A row has its seats as a text, so that a reservation is one row
 * whatever its size, and still lists its seats when they belong to another reservation.
 */
#include "base/mem.h"
#include "ledger/postgres_internal.h"

/* A row fits when this program wrote it; one that does not is reported, not trusted. *r has room
 * for the seats that the row counts. */
static bool pg_reservation_fill(const struct pg_rows *rows, int at, struct reservation *r) {
    int strategy = word_index(strategy_words, pg_str(rows, at + 5));
    int status = word_index(reservation_status_words, pg_str(rows, at + 6));
    bool fits = pg_uuid(rows, at, &r->id) && strategy >= 0 && status >= 0 &&
                seats_from_text(pg_str(rows, at + 8), r->seats, r->seat_count) &&
                str_copy(pg_str(rows, at + 3), r->user, sizeof r->user) &&
                str_copy(pg_str(rows, at + 10), r->currency, sizeof r->currency) &&
                str_copy(pg_str(rows, at + 15), r->confirmation_code, sizeof r->confirmation_code);
    if (!fits) return false;
    r->event_key = pg_i64(rows, at + 1);
    r->section_key = pg_i64(rows, at + 2);
    r->entry_seq = (uint64_t)pg_i64(rows, at + 4);
    r->strategy = (enum strategy)strategy;
    r->status = (enum reservation_status)status;
    r->price = pg_i64(rows, at + 9);
    r->expires_ms = pg_i64(rows, at + 11);
    r->created_ms = pg_i64(rows, at + 12);
    r->confirmed_ms = pg_time(rows, at + 13);
    r->ended_ms = pg_time(rows, at + 14);
    return reservation_times_ok(r);
}

bool pg_reservation_from_row(struct pg *db, const struct pg_rows *rows, int at,
                             struct reservation **out) {
    int64_t seats = pg_i64(rows, at + 7);
    struct reservation *r = NULL;
    if (seats > 0 && seats <= RESERVATION_SEATS_MAX) r = reservation_new((uint32_t)seats);
    if (r != NULL && pg_reservation_fill(rows, at, r)) {
        *out = r;
        return true;
    }
    mem_free(r);
    return pg_fail(db, PG_CORRUPT, "a reservation's row is not valid; run admitone audit");
}

bool pg_reservation_get(struct pg *db, struct ledger_reservation_get *get) {
    struct pg_rows rows;
    get->found = NULL;
    if (!pg_query(db, &rows,
                  "SELECT " PG_RESERVATION_COLUMNS
                  " FROM reservations r WHERE r.id = $1 AND r.status <> 'VOID'",
                  pg_cell_uuid(&get->id)))
        return false;
    bool ok = true;
    if (pg_next(&rows)) ok = pg_reservation_from_row(db, &rows, 0, &get->found);
    pg_rows_clear(&rows);
    return ok;
}
