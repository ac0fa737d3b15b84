/*
 * ledger_load: reads everything that is live, in one snapshot. There may be millions of entries, so
 * they are read through a cursor, some thousands at a time.
 */
#include <assert.h>

#include "base/mem.h"
#include "ledger/entry_totals.h"
#include "ledger/postgres_internal.h"

static bool queues_load(struct pg *db, const struct ledger_reader *reader) {
    struct pg_rows rows = {0};
    /* The highest number is the last row of the event in the index: one index lookup per event,
     * instead of reading every entry. */
    if (!pg_query_cells(db, &rows,
                        "SELECT e.id, coalesce(q.seq, 0) FROM events e LEFT JOIN LATERAL"
                        " (SELECT seq FROM queue_entries WHERE event_id = e.id"
                        "  ORDER BY seq DESC LIMIT 1) q ON true"
                        " WHERE e.deleted_at IS NULL ORDER BY e.id",
                        NULL, 0))
        return false;
    while (pg_next(&rows))
        reader->on_queue(reader->to, pg_i64(&rows, 0), (uint64_t)pg_i64(&rows, 1));
    return true;
}

static bool totals_load(struct pg *db, const struct ledger_reader *reader) {
    struct pg_rows rows = {0};
    if (!pg_query_cells(db, &rows, ENTRY_TOTALS_READ, NULL, 0)) return false;
    while (pg_next(&rows))
        reader->on_totals(reader->to, pg_i64(&rows, 0),
                          &(struct queue_counts){.entered = (uint64_t)pg_i64(&rows, 1),
                                                 .admitted = (uint64_t)pg_i64(&rows, 2),
                                                 .completed = (uint64_t)pg_i64(&rows, 3),
                                                 .left = (uint64_t)pg_i64(&rows, 4),
                                                 .expired = (uint64_t)pg_i64(&rows, 5),
                                                 .waited_ms = (uint64_t)pg_i64(&rows, 6),
                                                 .waited_ms_max = (uint64_t)pg_i64(&rows, 7)});
    return true;
}

static bool entry_tell(struct pg *db, const struct pg_rows *rows,
                       const struct ledger_reader *reader) {
    struct ledger_entry e = {.event_key = pg_i64(rows, 0),
                             .seq = (uint64_t)pg_i64(rows, 1),
                             .user = pg_str(rows, 2),
                             .lane = (unsigned)pg_i64(rows, 3),
                             .joined_ms = pg_i64(rows, 5),
                             .expires_ms = pg_i64(rows, 6)};
    int status = word_index(entry_status_words, pg_str(rows, 4));
    e.status = status < 0 ? ENTRY_NONE : (enum entry_status)status;
    if (!ledger_entry_ok(&e))
        return pg_fail(db, PG_CORRUPT, "an entry's row has a value that is not allowed");
    reader->on_entry(reader->to, &e);
    return true;
}

static bool reservation_tell(struct pg *db, const struct pg_rows *rows,
                             const struct ledger_reader *reader) {
    struct reservation *r = NULL;
    if (!pg_reservation_from_row(db, rows, 0, &r)) return false;
    bool is_live = reservation_is_live(r->status);
    if (is_live) reader->on_reservation(reader->to, r);
    mem_free(r);
    return is_live || pg_unexpected(db);
}

/* Passes every row of the cursor to `tell`. */
static bool cursor_tell(struct pg *db, const char *declare, const char *fetch,
                        bool (*tell)(struct pg *, const struct pg_rows *,
                                     const struct ledger_reader *),
                        const struct ledger_reader *reader) {
    bool ok = pg_exec(db, declare);
    bool more = true;
    while (ok && more) {
        struct pg_rows rows = {0};
        ok = pg_query_cells(db, &rows, fetch, NULL, 0);
        more = rows.count > 0;
        while (ok && pg_next(&rows)) ok = tell(db, &rows, reader);
        pg_rows_clear(&rows);
    }
    return ok;
}

static bool entries_load(struct pg *db, const struct ledger_reader *reader) {
    return cursor_tell(db,
                       "DECLARE live_entries NO SCROLL CURSOR FOR"
                       " SELECT q.event_id, q.seq, q.user_id, q.lane, q.status, q.joined_at,"
                       " q.active_expires_at FROM queue_entries q"
                       " JOIN events e ON e.id = q.event_id"
                       " WHERE e.deleted_at IS NULL AND q.status IN ('WAITING','ACTIVE')"
                       " ORDER BY q.event_id, q.seq",
                       "FETCH 5000 FROM live_entries", entry_tell, reader);
}

static bool reservations_load(struct pg *db, const struct ledger_reader *reader) {
    return cursor_tell(db,
                       "DECLARE live_reservations NO SCROLL CURSOR FOR"
                       " SELECT " PG_RESERVATION_COLUMNS " FROM reservations r"
                       " WHERE r.status IN ('HELD','CONFIRMED') ORDER BY r.id",
                       "FETCH 5000 FROM live_reservations", reservation_tell, reader);
}

static bool sale_tell(struct pg *db, const struct pg_rows *rows,
                      const struct ledger_reader *reader) {
    int64_t at_ms = pg_i64(rows, 5);
    struct sale s = {.mark = {.transaction = (uint64_t)pg_i64(rows, 0), .id = pg_i64(rows, 1)},
                     .kind = sale_kind_of(pg_str(rows, 2)),
                     .event_key = pg_i64(rows, 3),
                     .seats = pg_i64(rows, 4),
                     .at_ms = at_ms,
                     .taken_ms = at_ms};
    if (sale_check(&s)) reader->on_sale(reader->to, &s);
    return pg_sound(db);
}

/* The latest possible watermark: all transactions below the lowest open one have ended, so no fact
 * can appear below it any more. */
static bool mark_find(struct pg *db, struct sale_mark *mark) {
    int64_t lowest = 0;
    bool ok = pg_number_cells(
        db, &lowest, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", NULL, 0);
    *mark = (struct sale_mark){.transaction = (uint64_t)(lowest - 1), .id = INT64_MAX};
    return ok;
}

/* The live reservations have been passed on, in their state now. Changes after the watermark will
 * be read again by pg_sales_read, so they are reversed here. */
static bool sales_load(struct pg *db, const struct ledger_reader *reader) {
    struct pg_rows rows = {0};
    struct sale_mark mark = {0};
    bool ok = true;
    if (reader->mark != NULL)
        mark = *reader->mark;
    else
        ok = mark_find(db, &mark);
    ok = ok && pg_query(db, &rows,
                        "SELECT f.transaction::text::bigint, f.id,"
                        " CASE f.kind WHEN 'HELD' THEN 'CANCELLED' ELSE 'HELD' END,"
                        " f.event_id, f.seat_count, r.created_at"
                        " FROM facts f JOIN reservations r ON r.id = f.reservation_id"
                        " WHERE (f.transaction, f.id) > ($1::bigint::text::xid8, $2)"
                        " AND f.kind <> 'CONFIRMED'"
                        " UNION ALL SELECT 0, 0, 'SOLD_OUT', event_id, 0, max(at) FROM facts"
                        " WHERE kind = 'SOLD_OUT' GROUP BY event_id",
                        pg_cell_i64((int64_t)mark.transaction), pg_cell_i64(mark.id));
    while (ok && pg_next(&rows)) ok = sale_tell(db, &rows, reader);
    pg_rows_clear(&rows);
    if (ok && reader->on_mark != NULL) reader->on_mark(reader->to, &mark);
    return ok;
}

bool pg_load(struct pg *db, const struct ledger_reader *reader) {
    bool ok = pg_exec(db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    if (ok && reader->on_event != NULL) ok = pg_events_load(db, reader);
    if (ok && reader->on_totals != NULL) ok = totals_load(db, reader);
    if (ok && reader->on_entry != NULL) ok = entries_load(db, reader);
    if (ok && reader->on_queue != NULL) ok = queues_load(db, reader);
    if (ok && reader->on_reservation != NULL) ok = reservations_load(db, reader);
    if (ok && reader->on_sale != NULL) ok = sales_load(db, reader);
    if (ok) return pg_exec(db, "COMMIT");
    pg_rollback(db);
    return false;
}

bool pg_waiting_read(struct pg *db, struct ledger_waiting_read *read) {
    struct pg_rows rows = {0};
    read->waiting = NULL;
    read->count = 0;
    if (!pg_query(db, &rows,
                  "SELECT lane::bigint * 281474976710656 + seq AS place FROM queue_entries"
                  " WHERE event_id = $1 AND status = 'WAITING' ORDER BY place",
                  pg_cell_i64(read->event_key)))
        return false;
    read->waiting = mem_new((size_t)(rows.count + 1) * sizeof *read->waiting);
    while (pg_next(&rows)) read->waiting[read->count++] = (uint64_t)pg_i64(&rows, 0);
    return true;
}
