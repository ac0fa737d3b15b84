/* The audit table: one row per administrative act, and pages of them for the API. */
#include <assert.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "ledger/sqlite_internal.h"

/* A page is rendered in memory, so it has a bound whatever was asked for. */
#define PAGE_ROWS_MAX 1000
/* A page ends early when it has grown to this: one that does not read it costs no more. */
#define PAGE_BYTES_MAX (256 * 1024)

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

static void sqlite_audit_render(struct json_out *j, sqlite3_stmt *rows) {
    json_out_object(j, STR(""));
    json_out_i64(j, STR("id"), sqlite3_column_int64(rows, 0));
    json_out_time(j, STR("at"), sqlite3_column_int64(rows, 1));
    json_out_str(j, STR("actor"), column_str(rows, 2));
    json_out_str(j, STR("act"), column_str(rows, 3));
    json_out_str(j, STR("subject"), column_str(rows, 4));
    json_out_raw(j, STR("detail"), column_str(rows, 5));
    json_out_object_end(j);
}

int audit_page(struct db *db, struct ledger_audit_page *page) {
    assert(page->limit > 0);
    int64_t limit = page->limit < PAGE_ROWS_MAX ? page->limit : PAGE_ROWS_MAX;
    struct json_out j;
    json_out_init(&j, &page->json);
    json_out_array(&j, STR(""));
    /* One row more than asked for shows whether there is a next page. */
    sqlite3_stmt *rows = NULL;
    int rc = db_query(db, &rows,
                      "SELECT id, at, actor, act, subject, detail FROM audit"
                      " WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
                      cell_i64(page->before > 0 ? page->before : INT64_MAX), cell_i64(limit + 1));
    int64_t last = 0;
    for (int64_t n = 0; db_next(rows, &rc); n++) {
        if (n == limit || page->json.len >= PAGE_BYTES_MAX) {
            page->next = last;
            sqlite3_reset(rows);
            break;
        }
        last = sqlite3_column_int64(rows, 0);
        sqlite_audit_render(&j, rows);
    }
    json_out_array_end(&j);
    json_out_done(&j);
    return rc;
}
