/* The number of this opening for writing, from which fences and fact ids are made. */
#include "ledger/sqlite_internal.h"

static int sqlite_epoch_write_next(struct db *db, int64_t *number) {
    int rc = db_exec(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK)
        rc = db_number_cells(db, number,
                             "INSERT INTO epochs(name, number) VALUES ('ledger', 1)"
                             " ON CONFLICT DO UPDATE SET number = number + 1 RETURNING number",
                             NULL, 0);
    if (rc == SQLITE_OK && *number <= EPOCH_MAX) rc = db_exec(db, "COMMIT");
    return rc;
}

enum err epoch_begin(struct db *db, const char *path, uint32_t *epoch, struct buf *why) {
    int64_t number = 0;
    int rc = sqlite_epoch_write_next(db, &number);
    if (rc == SQLITE_OK && number <= EPOCH_MAX) {
        *epoch = (uint32_t)number;
        db->last_fact_id = number << EPOCH_COUNT_BITS;
        return ERR_OK;
    }
    if (rc != SQLITE_OK)
        buf_addf(why, "cannot write the next epoch to %s: %s", path, sqlite3_errmsg(db->handle));
    else
        buf_addf(why, "the next epoch of %s would be %lld, and %d is the last", path,
                 (long long)number, EPOCH_MAX);
    db_rollback(db);
    return ERR_LEDGER_FAILED;
}
