#include <assert.h>

#include "ledger/sqlite_internal.h"

int idempotency_judge(struct db *db, struct idempotency *i, enum err *result, bool *decided) {
    sqlite3_stmt *rows = NULL;
    *decided = false;
    if (i == NULL) return SQLITE_OK;
    i->replayed = false;
    i->replayed_status = 0;
    i->replayed_text = (struct buf){0};
    int rc = db_query(db, &rows,
                      "SELECT body_digest, status, response FROM idempotency"
                      " WHERE user_id = ?1 AND route = ?2 AND key = ?3",
                      cell_str(i->user), cell_str(i->route), cell_str(i->key));
    if (!db_next(rows, &rc)) return rc;
    str digest = {sqlite3_column_blob(rows, 0), (size_t)sqlite3_column_bytes(rows, 0)};
    *decided = true;
    i->replayed = str_eq(digest, (str){(const char *)i->digest, sizeof i->digest});
    *result = i->replayed ? ERR_OK : ERR_IDEMPOTENCY_MISMATCH;
    if (i->replayed && !idempotency_status_ok(sqlite3_column_int64(rows, 1))) {
        i->replayed = false;
        rc = SQLITE_CORRUPT;
    }
    if (i->replayed) {
        i->replayed_status = sqlite3_column_int(rows, 1);
        buf_add(&i->replayed_text, column_str(rows, 2));
    }
    sqlite3_reset(rows);
    return rc;
}

int idempotency_add(struct db *db, struct idempotency *i, const struct reservation *r,
                    int64_t now_ms) {
    if (i == NULL) return SQLITE_OK;
    struct buf made = {0};
    if (i->respond != NULL) i->respond(i, r, &made);
    int rc = db_run(db,
                    "INSERT INTO idempotency(user_id, route, key, body_digest, status, response,"
                    " created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    cell_str(i->user), cell_str(i->route), cell_str(i->key),
                    cell_bytes(i->digest, sizeof i->digest), cell_i64(i->status),
                    cell_str(i->respond != NULL ? buf_str(&made) : i->response), cell_i64(now_ms));
    buf_deinit(&made);
    return rc;
}

int idempotency_get(struct db *db, struct ledger_idempotency_get *get) {
    bool decided = false;
    get->record.result = ERR_OK;
    return idempotency_judge(db, get->idempotency, &get->record.result, &decided);
}
