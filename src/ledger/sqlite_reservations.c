/*
 * Reads the rows of reservations. A row has its seats as a text, so that a reservation is one row
 * whatever its size, and still lists its seats when they belong to another reservation.
 */
#include <assert.h>

#include "base/log.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"

#define COLUMNS                                                                                    \
    "r.id, r.event_id, r.section_id, r.user_id, r.entry_seq, r.strategy, r.status, r.seat_count,"  \
    " r.seats, r.price, r.currency, r.expires_at, r.created_at, r.confirmed_at, r.ended_at,"       \
    " r.confirmation_code"
enum { COLUMN_SEAT_COUNT = 7 };

struct cell cell_uuid(const struct uuid *id) {
    return cell_bytes(id->bytes, sizeof id->bytes);
}

/* A row fits when this program wrote it; one that does not is reported, not trusted. *r has room
 * for the seats that the row counts. */
static bool sqlite_reservation_fill(sqlite3_stmt *rows, struct reservation *r) {
    if (!column_uuid(rows, 0, &r->id)) return false;
    int strategy = word_index(strategy_words, column_str(rows, 5));
    int status = word_index(reservation_status_words, column_str(rows, 6));
    bool fits = strategy >= 0 && status >= 0 &&
                seats_from_text(column_str(rows, 8), r->seats, r->seat_count) &&
                str_copy(column_str(rows, 3), r->user, sizeof r->user) &&
                str_copy(column_str(rows, 10), r->currency, sizeof r->currency) &&
                str_copy(column_str(rows, 15), r->confirmation_code, sizeof r->confirmation_code);
    if (!fits) return false;
    r->event_key = sqlite3_column_int64(rows, 1);
    r->section_key = sqlite3_column_int64(rows, 2);
    r->entry_seq = (uint64_t)sqlite3_column_int64(rows, 4);
    r->strategy = (enum strategy)strategy;
    r->status = (enum reservation_status)status;
    r->price = sqlite3_column_int64(rows, 9);
    r->expires_ms = sqlite3_column_int64(rows, 11);
    r->created_ms = sqlite3_column_int64(rows, 12);
    r->confirmed_ms = column_time(rows, 13);
    r->ended_ms = column_time(rows, 14);
    return reservation_times_ok(r);
}

static int sqlite_reservation_invalid(void) {
    log_error(msg("a reservation's row is not valid and cannot be read; run admitone audit"));
    return SQLITE_CORRUPT;
}

int reservation_read(struct db *db, const struct uuid *id, struct reservation **out) {
    sqlite3_stmt *rows = NULL;
    struct reservation *r = NULL;
    int rc = db_query(db, &rows,
                      "SELECT " COLUMNS " FROM reservations r WHERE r.id = ?1"
                      " AND r.status <> 'VOID'",
                      cell_uuid(id));
    if (!db_next(rows, &rc)) return rc;
    int64_t seats = sqlite3_column_int64(rows, COLUMN_SEAT_COUNT);
    if (seats > 0 && seats <= RESERVATION_SEATS_MAX) r = reservation_new((uint32_t)seats);
    if (r == NULL || !sqlite_reservation_fill(rows, r)) rc = sqlite_reservation_invalid();
    sqlite3_reset(rows);
    if (rc == SQLITE_OK)
        *out = r;
    else
        mem_free(r);
    return rc;
}

int reservation_get(struct db *db, struct ledger_reservation_get *get) {
    get->found = NULL;
    return reservation_read(db, &get->id, &get->found);
}

int reservations_read(struct db *db, const struct ledger_reader *reader) {
    sqlite3_stmt *rows = NULL;
    struct reservation *r = reservation_new(RESERVATION_SEATS_MAX);
    int rc = db_query_cells(db, &rows,
                            "SELECT " COLUMNS " FROM reservations r"
                            " WHERE r.status = 'HELD' OR r.status = 'CONFIRMED' ORDER BY r.id",
                            NULL, 0);
    while (db_next(rows, &rc)) {
        int64_t seats = sqlite3_column_int64(rows, COLUMN_SEAT_COUNT);
        if (seats < 1 || seats > RESERVATION_SEATS_MAX) rc = sqlite_reservation_invalid();
        r->seat_count = (uint32_t)seats;
        if (rc == SQLITE_OK && !sqlite_reservation_fill(rows, r)) rc = sqlite_reservation_invalid();
        if (rc != SQLITE_OK) break;
        reader->on_reservation(reader->to, r);
    }
    if (rows != NULL) sqlite3_reset(rows);
    mem_free(r);
    return rc;
}

int fact_add(struct db *db, const struct reservation *r, enum reservation_status kind,
             int64_t now_ms) {
    int64_t id = ++db->last_fact_id;
    return db_run(db,
                  "INSERT INTO facts(kind, event_id, section_id, reservation_id, user_id,"
                  " seat_count, at, id, relayed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                  cell_str(reservation_status_words[kind]), cell_i64(r->event_key),
                  cell_i64(r->section_key), cell_uuid(&r->id), cell_text(r->user),
                  cell_i64(r->seat_count), cell_i64(now_ms), cell_i64(id),
                  fact_relayed(db, now_ms));
}
