/*
 * Facts that are to be relayed, sales, pages of facts, and the publication of facts. Transactions
 * commit in another order than they take numbers, so no number means that all facts below it are
 * visible: a fact that is not relayed yet has no relayed_at, and a partial index finds these rows.
 */
#include <assert.h>

#include "ledger/postgres_internal.h"

static bool pg_fact_from_row(struct pg *db, const struct pg_rows *rows, struct ledger_fact *fact) {
    int strategy = word_index(strategy_words, pg_str(rows, 5));
    int status = word_index(reservation_status_words, pg_str(rows, 6));
    int kind = word_index(reservation_status_words, pg_str(rows, 7));
    if (!pg_uuid(rows, 1, &fact->reservation) || strategy < 0 || status < 0 || kind < 0)
        return pg_fail(db, PG_CORRUPT, "a fact's reservation has a value that is not allowed");
    fact->id = pg_i64(rows, 0);
    fact->event_key = pg_i64(rows, 2);
    fact->section_key = pg_i64(rows, 3);
    fact->entry_seq = (uint64_t)pg_i64(rows, 4);
    fact->kind = (enum reservation_status)kind;
    fact->strategy = (enum strategy)strategy;
    fact->status = (enum reservation_status)status;
    return true;
}

bool pg_facts_read(struct pg *db, struct ledger_facts_read *read) {
    assert(read->older_ms >= 0);
    struct pg_rows rows = {0};
    read->count = 0;
    bool ok =
        pg_query(db, &rows,
                 "SELECT f.id, r.id, r.event_id, r.section_id, r.entry_seq, r.strategy,"
                 " r.status, f.kind FROM facts f JOIN reservations r ON r.id = f.reservation_id"
                 " WHERE f.relayed_at IS NULL AND f.at <= $1 ORDER BY f.id LIMIT $2",
                 pg_cell_i64(read->now_ms - read->older_ms), pg_cell_i64(FACTS_READ_MAX));
    if (ok && rows.count > FACTS_READ_MAX) ok = pg_unexpected(db);
    while (ok && pg_next(&rows)) ok = pg_fact_from_row(db, &rows, &read->facts[read->count++]);
    pg_rows_clear(&rows);
    return ok;
}

/* Locked rows are skipped: another node is marking them. Should its transaction fail, the fact is
 * relayed again, which does no harm. */
bool pg_facts_relayed_apply(struct pg *db, struct ledger_facts_relayed *relayed) {
    struct pg_array ids = {0};
    relayed->record.result = ERR_OK;
    if (relayed->count == 0) return true;
    for (size_t i = 0; i < relayed->count; i++) pg_array_i64(&ids, relayed->ids[i]);
    bool ok = pg_run(db, NULL,
                     "UPDATE facts SET relayed_at = $2 WHERE id IN (SELECT id FROM facts"
                     " WHERE id = ANY($1) AND relayed_at IS NULL FOR UPDATE SKIP LOCKED)",
                     pg_cell_array(&ids), pg_cell_i64(relayed->now_ms));
    pg_array_deinit(&ids);
    return ok;
}

/* Transactions take their numbers in one order and end in another. All below the lowest that is
 * still under way have ended, so up to there the order of numbers is one in which nothing comes
 * later in between. */
bool pg_sales_read(struct pg *db, struct ledger_sales_read *read) {
    struct pg_rows rows = {0};
    read->count = 0;
    bool ok =
        pg_query(db, &rows,
                 "SELECT f.transaction::text::bigint, f.id, f.kind, f.event_id, f.seat_count, f.at,"
                 " r.created_at FROM facts f LEFT JOIN reservations r ON r.id = f.reservation_id"
                 " WHERE (f.transaction, f.id) > ($1::bigint::text::xid8, $2)"
                 " AND f.transaction < pg_snapshot_xmin(pg_current_snapshot())"
                 " AND f.kind <> 'CONFIRMED' AND (f.kind = 'SOLD_OUT' OR r.id IS NOT NULL)"
                 " ORDER BY f.transaction, f.id LIMIT $3",
                 pg_cell_i64((int64_t)read->mark.transaction), pg_cell_i64(read->mark.id),
                 pg_cell_i64((int64_t)read->max));
    if (ok && rows.count > (int)read->max) ok = pg_unexpected(db);
    while (ok && pg_next(&rows)) {
        struct sale *s = &read->sales[read->count];
        *s = (struct sale){
            .mark = {.transaction = (uint64_t)pg_i64(&rows, 0), .id = pg_i64(&rows, 1)},
            .kind = sale_kind_of(pg_str(&rows, 2)),
            .event_key = pg_i64(&rows, 3),
            .seats = pg_i64(&rows, 4),
            .at_ms = pg_i64(&rows, 5),
            .taken_ms = pg_i64(&rows, 6)};
        read->mark = s->mark;
        if (sale_check(s)) read->count++;
    }
    pg_rows_clear(&rows);
    return ok && pg_sound(db);
}

static bool facts_page_add_row(struct ledger_facts_page *page, const struct pg_rows *rows) {
    struct uuid reservation;
    bool has_one = pg_uuid(rows, 7, &reservation);
    return facts_page_add(
        page, &(struct fact_row){
                  .mark = {.transaction = (uint64_t)pg_i64(rows, 0), .id = pg_i64(rows, 1)},
                  .kind = pg_str(rows, 2),
                  .at_ms = pg_i64(rows, 3),
                  .event_type = pg_str(rows, 4),
                  .event_id = pg_str(rows, 5),
                  .section = pg_str(rows, 6),
                  .reservation = has_one ? &reservation : NULL,
                  .user = pg_str(rows, 8),
                  .seat_count = pg_i64(rows, 9),
                  .seats = pg_is_null(rows, 10) ? (str){NULL, 0} : pg_str(rows, 10),
                  .price = pg_i64(rows, 11),
                  .currency = pg_str(rows, 12)});
}

/* In the order of transactions, as sales. */
bool pg_facts_page(struct pg *db, struct ledger_facts_page *page) {
    struct pg_rows rows = {0};
    facts_page_begin(page);
    bool ok = pg_query(
        db, &rows,
        "SELECT f.transaction::text::bigint, f.id, f.kind, f.at, e.type, e.external_id, c.code,"
        " f.reservation_id, f.user_id, f.seat_count, r.seats, r.price, r.currency FROM facts f"
        " LEFT JOIN events e ON e.id = f.event_id LEFT JOIN sections c ON c.id = f.section_id"
        " LEFT JOIN reservations r ON r.id = f.reservation_id"
        " WHERE (f.transaction, f.id) > ($1::bigint::text::xid8, $2)"
        " AND f.transaction < pg_snapshot_xmin(pg_current_snapshot())"
        " ORDER BY f.transaction, f.id LIMIT $3",
        pg_cell_i64((int64_t)page->after.transaction), pg_cell_i64(page->after.id),
        pg_cell_i64((int64_t)page->max));
    if (ok && rows.count > (int)page->max) ok = pg_unexpected(db);
    while (ok && pg_next(&rows) && facts_page_add_row(page, &rows)) continue;
    pg_rows_clear(&rows);
    ok = ok && pg_sound(db);
    if (!ok) facts_page_free(page);
    return ok;
}

/* ---- publication ---- */

#define NOW_MS "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

/* A node that was stalled, and has lost the lease, may have an older watermark than the next one.
 */
static bool pg_facts_raise_mark(struct pg *db, const struct ledger_facts_publish *publish) {
    if (!sale_is_after(&publish->published, &(struct sale_mark){0})) return true;
    return pg_run(db, NULL,
                  "UPDATE fact_publications SET transaction = $2::bigint::text::xid8, fact_id = $3"
                  " WHERE topic = $1"
                  " AND (transaction, fact_id) < ($2::bigint::text::xid8, $3::bigint)",
                  pg_cell_str(publish->topic), pg_cell_i64((int64_t)publish->published.transaction),
                  pg_cell_i64(publish->published.id));
}

/* `until` stays as the time when a node last published, for retention. */
static bool pg_facts_release(struct pg *db, const struct ledger_facts_publish *publish) {
    return pg_run(db, NULL,
                  "UPDATE fact_publications SET node = NULL, until = " NOW_MS
                  " WHERE topic = $1 AND node = $2",
                  pg_cell_str(publish->topic), pg_cell_uuid(&publish->node));
}

static bool pg_facts_lease(struct pg *db, struct ledger_facts_publish *publish) {
    struct pg_rows rows = {0};
    bool ok = pg_query(db, &rows,
                       "INSERT INTO fact_publications AS p(topic, node, until)"
                       " VALUES ($1, $2, " NOW_MS " + $3) ON CONFLICT (topic)"
                       " DO UPDATE SET node = excluded.node, until = excluded.until"
                       " WHERE p.node IS NULL OR p.node = excluded.node OR p.until < " NOW_MS
                       " RETURNING transaction::text::bigint, fact_id",
                       pg_cell_str(publish->topic), pg_cell_uuid(&publish->node),
                       pg_cell_i64(publish->lease_ms));
    publish->is_ours = ok && pg_next(&rows);
    if (publish->is_ours)
        publish->mark =
            (struct sale_mark){.transaction = (uint64_t)pg_i64(&rows, 0), .id = pg_i64(&rows, 1)};
    pg_rows_clear(&rows);
    return ok;
}

bool pg_facts_publish_apply(struct pg *db, struct ledger_facts_publish *publish) {
    publish->record.result = ERR_OK;
    publish->is_ours = false;
    publish->mark = (struct sale_mark){0};
    return pg_facts_raise_mark(db, publish) &&
           (publish->stops ? pg_facts_release(db, publish) : pg_facts_lease(db, publish));
}
