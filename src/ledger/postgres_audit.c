/* The audit table: one row per administrative act, and pages of them for the API. */
#include "ledger/postgres_internal.h"

bool pg_audit_add(struct pg *db, const struct audit_note *note, int64_t now_ms, int64_t *id) {
    str detail = note->detail.len > 0 ? note->detail : STR("null");
    return pg_run(db, NULL, "SELECT pg_advisory_xact_lock($1::int, 0)",
                  pg_cell_i64(PG_LOCK_AUDIT)) &&
           pg_number(db, id,
                     "INSERT INTO audit(at, actor, act, subject, detail)"
                     " VALUES ($1, $2, $3, $4, $5) RETURNING id",
                     pg_cell_i64(now_ms), pg_cell_str(note->actor), pg_cell_str(note->act),
                     pg_cell_str(note->subject), pg_cell_str(detail));
}

bool pg_audit_page(struct pg *db, struct ledger_audit_page *page) {
    struct audit_page_writer w;
    struct pg_rows rows = {0};
    audit_page_begin(&w, page);
    bool ok = pg_query(db, &rows,
                       "SELECT id, at, actor, act, subject, detail FROM audit"
                       " WHERE id < $1 ORDER BY id DESC LIMIT $2",
                       pg_cell_i64(page->before > 0 ? page->before : INT64_MAX),
                       pg_cell_i64(w.limit + 1));
    while (ok && pg_next(&rows) &&
           audit_page_add(&w, &(struct audit_row){.id = pg_i64(&rows, 0),
                                                  .at_ms = pg_i64(&rows, 1),
                                                  .actor = pg_str(&rows, 2),
                                                  .act = pg_str(&rows, 3),
                                                  .subject = pg_str(&rows, 4),
                                                  .detail = pg_str(&rows, 5)}))
        continue;
    pg_rows_clear(&rows);
    audit_page_end(&w, ok);
    return ok;
}
