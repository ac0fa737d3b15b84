/* The rows of Idempotency-Keys: looked up before a hold, written with it. */
#include "ledger/sqlite_internal.h"

int idempotency_judge(struct db *db, struct idempotency *i, enum err *result, bool *decided) {
    sqlite3_stmt *rows = NULL;
    *decided = false;
    if (i == NULL) return SQLITE_OK;
    i->replayed = false;
    int rc = db_query(db, &rows,
                      "SELECT body_digest, reservation_id FROM idempotency"
                      " WHERE user_id = ?1 AND route = ?2 AND key = ?3",
                      cell_str(i->user), cell_str(i->route), cell_str(i->key));
    if (!db_next(rows, &rc)) return rc;
    str digest = {sqlite3_column_blob(rows, 0), (size_t)sqlite3_column_bytes(rows, 0)};
    *decided = true;
    i->replayed = str_eq(digest, (str){(const char *)i->digest, sizeof i->digest});
    *result = i->replayed ? ERR_OK : ERR_IDEMPOTENCY_MISMATCH;
    if (!column_uuid(rows, 1, &i->reservation)) rc = SQLITE_CORRUPT;
    sqlite3_reset(rows);
    return rc;
}

int idempotency_add(struct db *db, const struct idempotency *i, const struct reservation *r) {
    if (i == NULL) return SQLITE_OK;
    return db_run(db,
                  "INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id,"
                  " created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                  cell_str(i->user), cell_str(i->route), cell_str(i->key),
                  cell_bytes(i->digest, sizeof i->digest), cell_uuid(&r->id),
                  cell_i64(r->created_ms));
}

int idempotency_get(struct db *db, struct ledger_idempotency_get *get) {
    bool decided = false;
    get->record.result = ERR_OK;
    return idempotency_judge(db, get->idempotency, &get->record.result, &decided);
}
