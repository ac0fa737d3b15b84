/*
 * sqlite_db: one connection and its prepared statements. Used by one thread at a time.
 *
 * Functions return SQLite's result codes (extended), SQLITE_OK when all went well: whether a
 * failure is one record's fault or the disk's is decided where the transaction is. A statement is
 * found by the address of its text and lives as long as the connection, so the SQL stands beside
 * the code that runs it, in a static array or a literal.
 */
#ifndef ADMITONE_LEDGER_SQLITE_DB_H
#define ADMITONE_LEDGER_SQLITE_DB_H

#include <sqlite3.h>

#include "base/buf.h"
#include "base/map.h"
#include "core/request.h"

/* How long a connection waits for another process that has the file locked. Inside this process
 * only the restart of the WAL waits for a lock, with a separate limit. */
#define DB_BUSY_TIMEOUT_MS 5000

struct buyers;

struct db {
    sqlite3 *handle;
    struct map statements; /* address of the SQL text → sqlite3_stmt */
    /* Used by the writer only: */
    int64_t last_fact_id;
    bool no_relay; /* facts count as relayed when they are written */
    struct buyers *buyers;
    int64_t last_request_seq; /* in memory, so that no number is used again when rows are removed */
    int64_t open_requests[REQUEST_PARTITIONS]; /* undecided, with those of the open transaction */
    /* Used by a reader only: every fact up to this number has been relayed. */
    int64_t facts_through;
};

enum db_use { DB_WRITE, DB_READ };

/* `why` gets a line for people on failure, and nothing is left open. */
int db_open(struct db *db, const char *path, enum db_use use, struct buf *why);
void db_close(struct db *db);

/* A value on its way into a statement. Texts and bytes must live until the statement has run. */
struct cell {
    enum { CELL_NULL, CELL_I64, CELL_TEXT, CELL_BYTES } kind;
    int64_t number;
    str text;
};

static inline struct cell cell_i64(int64_t number) {
    return (struct cell){.kind = CELL_I64, .number = number};
}

static inline struct cell cell_str(str text) {
    return (struct cell){.kind = CELL_TEXT, .text = text};
}

static inline struct cell cell_text(const char *zero_terminated) {
    return cell_str(str_of(zero_terminated));
}

static inline struct cell cell_bytes(const void *bytes, size_t len) {
    return (struct cell){.kind = CELL_BYTES, .text = {bytes, len}};
}

/* CLOCK_NONE_MS is NULL in the table. */
struct cell cell_time(int64_t ms);

/* The prepared statement, for callers that bind values themselves. */
int db_statement(struct db *db, const char *sql, sqlite3_stmt **out);

/* Binds the cells to ?1, ?2, … and leaves the statement ready for db_next. */
#define db_query(db, rows, sql, ...)                                                               \
    db_query_cells(db, rows, sql, (const struct cell[]){__VA_ARGS__},                              \
                   sizeof((const struct cell[]){__VA_ARGS__}) / sizeof(struct cell))
/* The same for a statement that returns no rows: runs it. */
#define db_run(db, sql, ...)                                                                       \
    db_run_cells(db, sql, (const struct cell[]){__VA_ARGS__},                                      \
                 sizeof((const struct cell[]){__VA_ARGS__}) / sizeof(struct cell))

/* The same for one that changes exactly one row of a sound file: SQLITE_CORRUPT if it does not. */
#define db_change(db, sql, ...)                                                                    \
    db_change_cells(db, sql, (const struct cell[]){__VA_ARGS__},                                   \
                    sizeof((const struct cell[]){__VA_ARGS__}) / sizeof(struct cell))

int db_query_cells(struct db *db, sqlite3_stmt **rows, const char *sql, const struct cell *cells,
                   size_t count);
int db_run_cells(struct db *db, const char *sql, const struct cell *cells, size_t count);
int db_change_cells(struct db *db, const char *sql, const struct cell *cells, size_t count);
/* A statement without cells and rows: BEGIN, COMMIT. */
int db_exec(struct db *db, const char *sql);

/* Steps to the next row: `while (db_next(rows, &rc)) …`. False at the end and on failure, and the
 * statement is reset then; a caller that stops earlier calls sqlite3_reset. */
bool db_next(sqlite3_stmt *rows, int *rc);

/* The first column of the first row; *out stays as it is when there is none or it is NULL. */
#define db_number(db, out, sql, ...)                                                               \
    db_number_cells(db, out, sql, (const struct cell[]){__VA_ARGS__},                              \
                    sizeof((const struct cell[]){__VA_ARGS__}) / sizeof(struct cell))
int db_number_cells(struct db *db, int64_t *out, const char *sql, const struct cell *cells,
                    size_t count);

/* Ends the transaction, if one is open, without effect. */
void db_rollback(struct db *db);

/* Valid until the next step. */
str column_str(sqlite3_stmt *rows, int column);
int64_t column_time(sqlite3_stmt *rows, int column);
/* False, and zeroes: the column has no id. */
bool column_uuid(sqlite3_stmt *rows, int column, struct uuid *out);

#endif
