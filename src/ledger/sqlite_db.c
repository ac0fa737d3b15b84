/* One connection to SQLite: opening, prepared statements, and the binding of values. */
#include "ledger/sqlite_db.h"

#include <assert.h>
#include <pthread.h>

#include "base/clock.h"

static const char read_pragmas[] = "PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;";

/* The checkpoints are ours (sqlite_wal.c), hence none by SQLite. */
static const char write_pragmas[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                                    "PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON;"
                                    "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768;";

/* SQLite would count its memory under one lock for all connections, and the count is not used.
 * Where SQLite runs already (a test has registered a file system), it goes on counting. */
static void count_no_memory(void) {
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

static int is_wal(struct db *db, bool *yes) {
    sqlite3_stmt *rows = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "PRAGMA journal_mode", -1, &rows, NULL);
    *yes = rc == SQLITE_OK && sqlite3_step(rows) == SQLITE_ROW &&
           str_eq(column_str(rows, 0), STR("wal"));
    sqlite3_finalize(rows);
    return rc;
}

int db_open(struct db *db, const char *path, enum db_use use, struct buf *why) {
    static pthread_once_t configured = PTHREAD_ONCE_INIT;
    pthread_once(&configured, count_no_memory);
    *db = (struct db){0};
    map_init(&db->statements);
    int flags = SQLITE_OPEN_NOMUTEX | (use == DB_WRITE ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                                       : SQLITE_OPEN_READONLY);
    const char *error = NULL;
    bool wal = true;
    int rc = sqlite3_open_v2(path, &db->handle, flags, NULL);
    if (rc != SQLITE_OK) goto done;
    sqlite3_extended_result_codes(db->handle, 1);
    sqlite3_busy_timeout(db->handle, DB_BUSY_TIMEOUT_MS);
    /* SQLite opens for reading what it may not write. */
    if (use == DB_WRITE && sqlite3_db_readonly(db->handle, "main") == 1) {
        error = "it can't be written; check its owner and mode";
        rc = SQLITE_READONLY;
        goto done;
    }
    rc = sqlite3_exec(db->handle, use == DB_WRITE ? write_pragmas : read_pragmas, NULL, NULL, NULL);
    if (rc == SQLITE_OK && use == DB_WRITE) rc = is_wal(db, &wal);
    if (rc == SQLITE_OK && !wal) {
        error = "its file system can't keep a WAL";
        rc = SQLITE_CANTOPEN;
    }
done:
    if (rc != SQLITE_OK) {
        if (error == NULL) error = sqlite3_errmsg(db->handle);
        buf_addf(why, "cannot open %s: %s", path, error);
        db_close(db);
    }
    return rc;
}

void db_close(struct db *db) {
    size_t at = 0;
    sqlite3_stmt *statement = NULL;
    while ((statement = map_next(&db->statements, &at)) != NULL) sqlite3_finalize(statement);
    map_deinit(&db->statements);
    int rc = sqlite3_close(db->handle);
    assert(rc == SQLITE_OK);
    *db = (struct db){0};
}

struct cell cell_time(int64_t ms) {
    return ms == CLOCK_NONE_MS ? (struct cell){.kind = CELL_NULL} : cell_i64(ms);
}

/* A statement whose preparation failed is not kept. */
int db_statement(struct db *db, const char *sql, sqlite3_stmt **out) {
    str key = {(const char *)&sql, sizeof sql};
    *out = map_get(&db->statements, key);
    if (*out == NULL) {
        int rc = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
        if (rc != SQLITE_OK) return rc;
        map_put(&db->statements, key, *out);
    }
    assert(!sqlite3_stmt_busy(*out));
    return SQLITE_OK;
}

static int db_bind(sqlite3_stmt *statement, int at, struct cell cell) {
    switch (cell.kind) {
    case CELL_I64:
        return sqlite3_bind_int64(statement, at, cell.number);
    case CELL_TEXT:
        /* An empty str may have no address, which SQLite would take for NULL. */
        return sqlite3_bind_text64(statement, at, cell.text.len > 0 ? cell.text.at : "",
                                   cell.text.len, SQLITE_STATIC, SQLITE_UTF8);
    case CELL_BYTES:
        return sqlite3_bind_blob64(statement, at, cell.text.at, cell.text.len, SQLITE_STATIC);
    case CELL_NULL:
        break;
    }
    return sqlite3_bind_null(statement, at);
}

int db_query_cells(struct db *db, sqlite3_stmt **rows, const char *sql, const struct cell *cells,
                   size_t count) {
    int rc = db_statement(db, sql, rows);
    if (rc != SQLITE_OK) return rc;
    assert(sqlite3_bind_parameter_count(*rows) == (int)count);
    for (size_t i = 0; rc == SQLITE_OK && i < count; i++) rc = db_bind(*rows, (int)i + 1, cells[i]);
    return rc;
}

bool db_next(sqlite3_stmt *rows, int *rc) {
    if (*rc != SQLITE_OK) return false;
    int step = sqlite3_step(rows);
    if (step == SQLITE_ROW) return true;
    if (step != SQLITE_DONE) *rc = step;
    sqlite3_reset(rows);
    return false;
}

int db_run_cells(struct db *db, const char *sql, const struct cell *cells, size_t count) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query_cells(db, &rows, sql, cells, count);
    bool row = db_next(rows, &rc);
    assert(!row);
    return rc;
}

int db_change_cells(struct db *db, const char *sql, const struct cell *cells, size_t count) {
    int rc = db_run_cells(db, sql, cells, count);
    return rc == SQLITE_OK && sqlite3_changes(db->handle) != 1 ? SQLITE_CORRUPT : rc;
}

int db_exec(struct db *db, const char *sql) {
    return db_run_cells(db, sql, NULL, 0);
}

int db_number_cells(struct db *db, int64_t *out, const char *sql, const struct cell *cells,
                    size_t count) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query_cells(db, &rows, sql, cells, count);
    if (db_next(rows, &rc)) {
        if (sqlite3_column_type(rows, 0) != SQLITE_NULL) *out = sqlite3_column_int64(rows, 0);
        sqlite3_reset(rows);
    }
    return rc;
}

void db_rollback(struct db *db) {
    size_t at = 0;
    sqlite3_stmt *statement = NULL;
    while ((statement = map_next(&db->statements, &at)) != NULL) sqlite3_reset(statement);
    /* SQLite has often rolled back already: then it is in autocommit mode. */
    if (!sqlite3_get_autocommit(db->handle)) db_exec(db, "ROLLBACK");
    assert(sqlite3_get_autocommit(db->handle));
}

str column_str(sqlite3_stmt *rows, int column) {
    const char *text = (const char *)sqlite3_column_text(rows, column);
    return (str){text, (size_t)sqlite3_column_bytes(rows, column)};
}

int64_t column_time(sqlite3_stmt *rows, int column) {
    return sqlite3_column_type(rows, column) == SQLITE_NULL ? CLOCK_NONE_MS
                                                            : sqlite3_column_int64(rows, column);
}

bool column_uuid(sqlite3_stmt *rows, int column, struct uuid *out) {
    *out = (struct uuid){0};
    if (sqlite3_column_bytes(rows, column) != sizeof out->bytes) return false;
    memcpy(out->bytes, sqlite3_column_blob(rows, column), sizeof out->bytes);
    return true;
}
