/*
 * postgres_db: one connection and its prepared statements. Used by one thread at a time.
 *
 * Functions return whether all went well. If not, `failure` says why; the code that runs the
 * transaction decides whether one record or the connection caused it. No wait is longer than
 * `wait_ms`: the connection to a server that does not answer by then is closed.
 *
 * A statement is found by the address of its text and lives as long as the connection, so the SQL
 * stands beside the code that runs it, in a static array or a literal. Parameters are $1, $2, …,
 * and their types are those of the cells of the first call: bigint, text, bytea, uuid, or arrays of
 * these. Results come in binary: a column that pg_i64 reads is bigint, integer, smallint or
 * boolean, never numeric (so sum() is cast).
 */
#ifndef ADMITONE_LEDGER_POSTGRES_DB_H
#define ADMITONE_LEDGER_POSTGRES_DB_H

#include <libpq-fe.h>

#include "base/buf.h"
#include "base/map.h"
#include "core/uuid.h"

/* SQLSTATEs that the code checks for. The last two are raised by our functions: a concurrent
 * transaction has changed rows that the decision was based on, so the record is tried again; and
 * rows that contradict each other. */
#define PG_LOCK_TIMEOUT "55P03"
#define PG_UNIQUE "23505"
#define PG_INVALID "22023"
#define PG_DISK_FULL "53100"
#define PG_CANCELED "57014"
#define PG_CONNECTION_LOST "08006"
#define PG_READ_ONLY "25006"
#define PG_RACE "AD001"
#define PG_CORRUPT "AD002"

struct pg_failure {
    char state[6]; /* SQLSTATE; empty: none */
    char text[200];
};

struct pg {
    PGconn *handle;   /* NULL: never connected, or given up */
    short opening;    /* while it is opened: what poll is to wait for */
    int64_t wait_ms;  /* for one answer */
    bool writes;      /* pg_settings */
    int64_t until_ns; /* steady: no answer is waited for longer than until then; 0: no such time */
    bool misread;     /* a value was not of the type that it must have: see pg_sound */
    struct pg_failure failure;
    struct map prepared; /* address of each SQL text → the text */
    /* Requests of the pipeline that are not answered yet: NULL for the execution of a statement;
     * for its preparation, its SQL text. */
    const char **expected;
    size_t expected_cap;
    size_t expected_first;
    size_t expected_count;
};

/* After this silence of a node, the server closes its connections: the one on which it rebuilds the
 * hot store, and those whose transactions hold locks that other nodes need. */
#define PG_SILENT_MS 10000

/* The options of a connection, which depend on its purpose. */
struct pg_settings {
    const char *url;
    int64_t wait_ms;              /* for one answer; 0: as long as it takes */
    int64_t lock_timeout_ms;      /* 0: none */
    int64_t statement_timeout_ms; /* 0: none */
    int64_t idle_timeout_ms;      /* silent for longer, the server ends it; 0: never */
    bool read_only;
    bool writes; /* refuses to connect to a server that does not accept writes */
    /* Reads much at a time, so the planner is free. Else every statement touches a few rows by
     * their keys, and no plan that was made when a table was empty may do otherwise later. */
    bool reads_much;
};

/* `why` gets a line for people on failure, and nothing is left open. */
bool pg_open(struct pg *db, const struct pg_settings *s, struct buf *why);
void pg_close(struct pg *db);
/* Whether it has a connection that is not known to be broken. */
bool pg_alive(const struct pg *db);
/* Checks whether the server has closed the connection. Between two statements. */
bool pg_look(struct pg *db);
/* Closes a connection that writes when the server has become read-only: then false. Asks the
 * server, whose answer shows it. Between two statements. */
bool pg_look_writable(struct pg *db);

/* The same in small steps, for a thread that has other work between them: pg_open_begin, then
 * pg_open_step until it is done. A step waits for `ms` at the most. */
enum pg_opening { PG_OPENING, PG_OPENED, PG_UNOPENED };
void pg_open_begin(struct pg *db, const struct pg_settings *s);
enum pg_opening pg_open_step(struct pg *db, int64_t ms);

/* "host=… port=… dbname=… user=…", as far as the URL names them, and never its password. */
void pg_address(const char *url, struct buf *out);

/* Notes a failure of our own: false. */
bool pg_fail(struct pg *db, const char *state, const char *text);
bool pg_failed_with(const struct pg *db, const char *state);
/* Notes that the database answered what none of our tables and functions can: false. */
bool pg_unexpected(struct pg *db);
/* Whether every number that was read was one. If not, it was read as 0, nothing more is done with
 * the connection, so that no transaction commits by it, and the failure says why. To be
 * called after every read outside of a transaction. */
bool pg_sound(struct pg *db);

/* --- values on their way into a statement --- */

/* Texts and bytes must live until the statement has been sent. */
struct pg_cell {
    Oid type;
    bool is_null;
    int64_t number;
    str bytes;
};

struct pg_cell pg_cell_i64(int64_t number);
/* CLOCK_NONE_MS is NULL in the table. */
struct pg_cell pg_cell_time(int64_t ms);
struct pg_cell pg_cell_str(str text);
struct pg_cell pg_cell_text(const char *zero_terminated);
struct pg_cell pg_cell_bytes(const void *bytes, size_t len);
struct pg_cell pg_cell_uuid(const struct uuid *id);
struct pg_cell pg_cell_null_text(void);
struct pg_cell pg_cell_null_bytes(void);

/* One-dimensional, for unnest. Zeroed is empty; pg_array_deinit when done. */
struct pg_array {
    struct buf bytes;
    Oid type; /* of its elements; set by what is added first */
    int32_t count;
};

void pg_array_i64(struct pg_array *a, int64_t number);
void pg_array_str(struct pg_array *a, str text);
void pg_array_bytes(struct pg_array *a, const void *bytes, size_t len);
void pg_array_uuid(struct pg_array *a, const struct uuid *id);
/* An element that is NULL, of the type of that cell. */
void pg_array_null(struct pg_array *a, struct pg_cell like);
void pg_array_deinit(struct pg_array *a);
/* `a` must not change until the statement has been sent. One that is empty is of bigint. */
struct pg_cell pg_cell_array(struct pg_array *a);

/* --- statements --- */

/* Rows of a result. Zeroed is none. */
struct pg_rows {
    PGresult *result;
    int at;    /* the row that the columns are of */
    int count; /* of rows */
    bool *misread;
};

/* pg_query: waits for all rows. A caller that stops before pg_next returned false calls
 * pg_rows_clear. pg_run: for a statement whose rows are not read; *changed (or NULL) is how many it
 * changed. pg_change: for one that changes exactly one row of a sound database: PG_CORRUPT if it
 * does not. pg_number: the first column of the first row; *out stays as it is when there is none,
 * or NULL. */
#define PG_CELLS(...)                                                                              \
    (const struct pg_cell[]){__VA_ARGS__},                                                         \
        sizeof((const struct pg_cell[]){__VA_ARGS__}) / sizeof(struct pg_cell)
#define pg_query(db, rows, sql, ...) pg_query_cells(db, rows, sql, PG_CELLS(__VA_ARGS__))
#define pg_run(db, changed, sql, ...) pg_run_cells(db, changed, sql, PG_CELLS(__VA_ARGS__))
#define pg_change(db, sql, ...) pg_change_cells(db, sql, PG_CELLS(__VA_ARGS__))
#define pg_number(db, out, sql, ...) pg_number_cells(db, out, sql, PG_CELLS(__VA_ARGS__))

bool pg_query_cells(struct pg *db, struct pg_rows *rows, const char *sql,
                    const struct pg_cell *cells, size_t count);
bool pg_run_cells(struct pg *db, int64_t *changed, const char *sql, const struct pg_cell *cells,
                  size_t count);
bool pg_change_cells(struct pg *db, const char *sql, const struct pg_cell *cells, size_t count);
bool pg_number_cells(struct pg *db, int64_t *out, const char *sql, const struct pg_cell *cells,
                     size_t count);
/* Statements without cells and rows, several with semicolons between: BEGIN, COMMIT, migrations.
 * Not prepared. */
bool pg_exec(struct pg *db, const char *sql);

/* Steps to the next row: `while (pg_next(&rows)) …`. Clears it at the end. */
bool pg_next(struct pg_rows *rows);
void pg_rows_clear(struct pg_rows *rows);

/* Ends the transaction, if one is open, without effect. The failure stays as it is. */
void pg_rollback(struct pg *db);

/* Values of the row that pg_next stepped to. Views are valid until the next step. */
bool pg_is_null(const struct pg_rows *rows, int column);
int64_t pg_i64(const struct pg_rows *rows, int column); /* NULL: 0; no number: 0, and misread */
bool pg_bool(const struct pg_rows *rows, int column);   /* NULL: false */
str pg_str(const struct pg_rows *rows, int column);     /* text or bytea; NULL: empty */
int64_t pg_time(const struct pg_rows *rows, int column);
bool pg_uuid(const struct pg_rows *rows, int column, struct uuid *out); /* false: it is none */

/* --- many statements in one round trip --- */

/* pg_send puts a statement on its way without waiting; after the last, pg_sync. Then the answers
 * are received in the order of sending: every one of them, also after a failure, which is that of
 * the first that failed. Nothing else is run between pg_pipeline and pg_pipeline_end. */
void pg_pipeline(struct pg *db);
#define pg_send(db, sql, ...) pg_send_cells(db, sql, PG_CELLS(__VA_ARGS__))
void pg_send_cells(struct pg *db, const char *sql, const struct pg_cell *cells, size_t count);
void pg_sync(struct pg *db);
bool pg_receive(struct pg *db, struct pg_rows *rows);
bool pg_pipeline_end(struct pg *db);

#endif
