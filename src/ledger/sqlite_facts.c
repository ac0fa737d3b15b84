/*
 * Facts that are to be relayed, sales, and pages of facts. Facts that are not relayed yet are
 * mostly the newest rows, so there is no index for them, which would make every hold slower: each
 * reader remembers the number up to which all are relayed. There is one writer, and numbers only
 * grow, so later facts are always after that mark; a reader begins without a mark, and reads the
 * whole table once.
 */
#include <assert.h>

#include "ledger/sqlite_internal.h"

static int sqlite_fact_from_row(sqlite3_stmt *rows, struct ledger_fact *fact) {
    int strategy = word_index(strategy_words, column_str(rows, 6));
    int status = word_index(reservation_status_words, column_str(rows, 7));
    int kind = word_index(reservation_status_words, column_str(rows, 8));
    if (!column_uuid(rows, 2, &fact->reservation) || strategy < 0 || status < 0 || kind < 0)
        return SQLITE_CORRUPT;
    fact->id = sqlite3_column_int64(rows, 0);
    fact->event_key = sqlite3_column_int64(rows, 3);
    fact->section_key = sqlite3_column_int64(rows, 4);
    fact->entry_seq = (uint64_t)sqlite3_column_int64(rows, 5);
    fact->kind = (enum reservation_status)kind;
    fact->strategy = (enum strategy)strategy;
    fact->status = (enum reservation_status)status;
    return SQLITE_OK;
}

/* *first: the first that was not relayed, whatever its age; 0 when there is none. */
static int unrelayed_read(struct db *db, struct ledger_facts_read *read, int64_t *first) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query(db, &rows,
                      "SELECT f.id, f.at, f.reservation_id, r.event_id, r.section_id,"
                      " r.entry_seq, r.strategy, r.status, f.kind"
                      " FROM facts f CROSS JOIN reservations r ON r.id = f.reservation_id"
                      " WHERE f.id > ?1 AND f.relayed_at IS NULL ORDER BY f.id",
                      cell_i64(db->facts_through));
    while (read->count < FACTS_READ_MAX && db_next(rows, &rc)) {
        if (*first == 0) *first = sqlite3_column_int64(rows, 0);
        if (read->now_ms - sqlite3_column_int64(rows, 1) < read->older_ms) continue;
        rc = sqlite_fact_from_row(rows, &read->facts[read->count++]);
        if (rc != SQLITE_OK) break;
    }
    if (rows != NULL) sqlite3_reset(rows);
    return rc;
}

int facts_read(struct db *db, struct ledger_facts_read *read) {
    assert(read->older_ms >= 0);
    int64_t last = 0;
    int64_t first = 0;
    read->count = 0;
    /* Asked before: one that comes between the two is behind the mark then. */
    int rc = db_number_cells(db, &last, "SELECT max(id) FROM facts", NULL, 0);
    if (rc == SQLITE_OK) rc = unrelayed_read(db, read, &first);
    if (rc != SQLITE_OK) return rc;
    int64_t through = first > 0 ? first - 1 : last;
    if (through > db->facts_through) db->facts_through = through;
    return rc;
}

struct cell fact_relayed(const struct db *db, int64_t at_ms) {
    return db->no_relay ? cell_i64(at_ms) : (struct cell){.kind = CELL_NULL};
}

int sold_out_add(struct db *db, int64_t event_key, int64_t at_ms) {
    int64_t id = ++db->last_fact_id;
    return db_run(db,
                  "INSERT INTO facts(kind, event_id, seat_count, at, id, relayed_at)"
                  " SELECT 'SOLD_OUT', ?1, 0, ?2, ?3, ?2"
                  " WHERE NOT EXISTS (SELECT 1 FROM sections WHERE event_id = ?1"
                  "  AND removed_version IS NULL AND held + confirmed < capacity)",
                  cell_i64(event_key), cell_i64(at_ms), cell_i64(id));
}

int facts_relayed_apply(struct db *db, struct ledger_facts_relayed *relayed) {
    int rc = SQLITE_OK;
    relayed->record.result = ERR_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < relayed->count; i++)
        rc = db_run(db, "UPDATE facts SET relayed_at = ?2 WHERE id = ?1 AND relayed_at IS NULL",
                    cell_i64(relayed->ids[i]), cell_i64(relayed->now_ms));
    return rc;
}

/* There is one writer: numbers come in the order of commits. */
int sales_read(struct db *db, struct ledger_sales_read *read) {
    sqlite3_stmt *rows = NULL;
    read->count = 0;
    int rc = db_query(db, &rows,
                      "SELECT f.id, f.kind, f.event_id, f.seat_count, f.at, r.created_at"
                      " FROM facts f LEFT JOIN reservations r ON r.id = f.reservation_id"
                      " WHERE f.id > ?1 AND f.kind <> 'CONFIRMED'"
                      " AND (f.kind = 'SOLD_OUT' OR r.id NOT NULL) ORDER BY f.id LIMIT ?2",
                      cell_i64(read->mark.id), cell_i64((int64_t)read->max));
    while (db_next(rows, &rc)) {
        struct sale *s = &read->sales[read->count];
        *s = (struct sale){.mark = {.id = sqlite3_column_int64(rows, 0)},
                           .kind = sale_kind_of(column_str(rows, 1)),
                           .event_key = sqlite3_column_int64(rows, 2),
                           .seats = sqlite3_column_int64(rows, 3),
                           .at_ms = sqlite3_column_int64(rows, 4),
                           .taken_ms = sqlite3_column_int64(rows, 5)};
        read->mark = s->mark;
        if (sale_check(s)) read->count++;
    }
    if (rows != NULL) sqlite3_reset(rows);
    return rc;
}

static bool facts_page_add_row(struct ledger_facts_page *page, sqlite3_stmt *rows) {
    struct uuid reservation;
    bool has_one = column_uuid(rows, 6, &reservation);
    return facts_page_add(page, &(struct fact_row){.mark = {.id = sqlite3_column_int64(rows, 0)},
                                                   .kind = column_str(rows, 1),
                                                   .at_ms = sqlite3_column_int64(rows, 2),
                                                   .event_type = column_str(rows, 3),
                                                   .event_id = column_str(rows, 4),
                                                   .section = column_str(rows, 5),
                                                   .reservation = has_one ? &reservation : NULL,
                                                   .user = column_str(rows, 7),
                                                   .seat_count = sqlite3_column_int64(rows, 8),
                                                   .seats = column_str(rows, 9),
                                                   .price = sqlite3_column_int64(rows, 10),
                                                   .currency = column_str(rows, 11)});
}

/* In the order of numbers, as sales. */
int facts_page(struct db *db, struct ledger_facts_page *page) {
    sqlite3_stmt *rows = NULL;
    facts_page_begin(page);
    if (page->after.transaction != 0) {
        page->record.result = ERR_INVALID_PARAMETER;
        return SQLITE_OK;
    }
    int rc = db_query(db, &rows,
                      "SELECT f.id, f.kind, f.at, e.type, e.external_id, c.code, f.reservation_id,"
                      " f.user_id, f.seat_count, r.seats, r.price, r.currency FROM facts f"
                      " LEFT JOIN events e ON e.id = f.event_id"
                      " LEFT JOIN sections c ON c.id = f.section_id"
                      " LEFT JOIN reservations r ON r.id = f.reservation_id"
                      " WHERE f.id > ?1 ORDER BY f.id LIMIT ?2",
                      cell_i64(page->after.id), cell_i64((int64_t)page->max));
    while (db_next(rows, &rc) && facts_page_add_row(page, rows)) continue;
    if (rows != NULL) sqlite3_reset(rows);
    if (rc != SQLITE_OK) facts_page_free(page);
    return rc;
}

int sales_load(struct db *db, const struct ledger_reader *reader) {
    sqlite3_stmt *rows = NULL;
    struct sale_mark mark = {0};
    int rc = SQLITE_OK;
    if (reader->mark != NULL)
        mark = *reader->mark;
    else
        rc = db_number_cells(db, &mark.id, "SELECT coalesce(max(id), 0) FROM facts", NULL, 0);
    if (rc == SQLITE_OK)
        rc = db_query(db, &rows,
                      "SELECT f.id, CASE f.kind WHEN 'HELD' THEN 'CANCELLED' ELSE 'HELD' END,"
                      " f.event_id, f.seat_count, r.created_at"
                      " FROM facts f JOIN reservations r ON r.id = f.reservation_id"
                      " WHERE f.id > ?1 AND f.kind <> 'CONFIRMED'"
                      " UNION ALL SELECT 0, 'SOLD_OUT', event_id, 0, max(at) FROM facts"
                      " WHERE kind = 'SOLD_OUT' GROUP BY event_id",
                      cell_i64(mark.id));
    while (db_next(rows, &rc)) {
        int64_t at_ms = sqlite3_column_int64(rows, 4);
        struct sale s = {.mark = {.id = sqlite3_column_int64(rows, 0)},
                         .kind = sale_kind_of(column_str(rows, 1)),
                         .event_key = sqlite3_column_int64(rows, 2),
                         .seats = sqlite3_column_int64(rows, 3),
                         .at_ms = at_ms,
                         .taken_ms = at_ms};
        if (sale_check(&s)) reader->on_sale(reader->to, &s);
    }
    if (rows != NULL) sqlite3_reset(rows);
    if (rc == SQLITE_OK && reader->on_mark != NULL) reader->on_mark(reader->to, &mark);
    return rc;
}
