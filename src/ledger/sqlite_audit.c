/* The audit table: one row per administrative act, and pages of them for the API. */
#include "ledger/sqlite_internal.h"

int audit_add(struct db *db, const struct audit_note *note, int64_t now_ms, int64_t *id) {
    str detail = note->detail.len > 0 ? note->detail : STR("null");
    int rc = db_run(db,
                    "INSERT INTO audit(at, actor, act, subject, detail)"
                    " VALUES (?1, ?2, ?3, ?4, ?5)",
                    cell_i64(now_ms), cell_str(note->actor), cell_str(note->act),
                    cell_str(note->subject), cell_str(detail));
    if (rc == SQLITE_OK) *id = sqlite3_last_insert_rowid(db->handle);
    return rc;
}

int audit_add_act(struct db *db, const struct audit_note *note, int64_t now_ms) {
    int64_t id;
    return note == NULL ? SQLITE_OK : audit_add(db, note, now_ms, &id);
}

int audit_page(struct db *db, struct ledger_audit_page *page) {
    struct audit_page_writer w;
    sqlite3_stmt *rows = NULL;
    audit_page_begin(&w, page);
    int rc = db_query(db, &rows,
                      "SELECT id, at, actor, act, subject, detail FROM audit"
                      " WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
                      cell_i64(page->before > 0 ? page->before : INT64_MAX), cell_i64(w.limit + 1));
    while (db_next(rows, &rc) &&
           audit_page_add(&w, &(struct audit_row){.id = sqlite3_column_int64(rows, 0),
                                                  .at_ms = sqlite3_column_int64(rows, 1),
                                                  .actor = column_str(rows, 2),
                                                  .act = column_str(rows, 3),
                                                  .subject = column_str(rows, 4),
                                                  .detail = column_str(rows, 5)}))
        continue;
    if (rows != NULL) sqlite3_reset(rows);
    audit_page_end(&w, rc == SQLITE_OK);
    return rc;
}
