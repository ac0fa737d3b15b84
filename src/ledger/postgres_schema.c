/*
 * The tables, as numbered migrations. A migration that has shipped is never edited: a change is a
 * new one.
 */
#include <assert.h>

#include "ledger/postgres_internal.h"

/* src/ledger/postgres_schema_….sql: tables, functions. */
extern const char postgres_schema_1_sql[];
extern const char postgres_schema_2_sql[];
extern const char postgres_schema_3_sql[];
extern const char postgres_schema_4_sql[];
extern const char postgres_schema_5_sql[];
extern const char postgres_schema_6_sql[];
extern const char postgres_schema_7_sql[];
extern const char postgres_schema_8_sql[];
extern const char postgres_schema_9_sql[];
extern const char postgres_schema_10_sql[];
extern const char postgres_schema_11_sql[];

static const struct {
    int64_t number;
    const char *sql;
} migrations[] = {
    {1, postgres_schema_1_sql},   {2, postgres_schema_2_sql},   {3, postgres_schema_3_sql},
    {4, postgres_schema_4_sql},   {5, postgres_schema_5_sql},   {6, postgres_schema_6_sql},
    {7, postgres_schema_7_sql},   {8, postgres_schema_8_sql},   {9, postgres_schema_9_sql},
    {10, postgres_schema_10_sql}, {11, postgres_schema_11_sql},
};

#define MIGRATIONS (sizeof migrations / sizeof *migrations)

static int64_t pg_schema_known(void) {
    return migrations[MIGRATIONS - 1].number;
}

static enum err pg_schema_failed(struct pg *db, const char *what, struct buf *why) {
    buf_addf(why, "cannot %s: %s", what, db->failure.text);
    pg_rollback(db);
    return ERR_LEDGER_FAILED;
}

/* *number: 0 where there is none yet. */
static bool pg_schema_read(struct pg *db, int64_t *number) {
    int64_t there = 0;
    *number = 0;
    bool ok =
        pg_number_cells(db, &there, "SELECT to_regclass('schema_version') IS NOT NULL", NULL, 0);
    if (!ok || there == 0) return ok;
    return pg_number_cells(db, number, "SELECT max(number) FROM schema_version", NULL, 0);
}

static enum err too_new(int64_t number, struct buf *why) {
    buf_addf(why, "the ledger has schema %lld, this program knows %lld: use a newer admitone",
             (long long)number, (long long)pg_schema_known());
    return ERR_LEDGER_FAILED;
}

static bool pg_schema_apply(struct pg *db, size_t i, int64_t now_ms) {
    return pg_exec(db, migrations[i].sql) &&
           pg_run(db, NULL, "INSERT INTO schema_version(number, applied_at) VALUES ($1, $2)",
                  pg_cell_i64(migrations[i].number), pg_cell_i64(now_ms));
}

/* A second node waits for the first, and then finds nothing to do. */
static bool migrate_begin(struct pg *db) {
    return pg_exec(db, "BEGIN; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0") &&
           pg_run(db, NULL, "SELECT pg_advisory_xact_lock($1::int, 0)",
                  pg_cell_i64(PG_LOCK_MIGRATE)) &&
           pg_exec(db, "CREATE TABLE IF NOT EXISTS schema_version("
                       " number BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)");
}

enum err pg_schema_migrate(struct pg *db, int64_t now_ms, struct buf *why) {
    int64_t number = 0;
    if (!pg_schema_read(db, &number)) return pg_schema_failed(db, "read the ledger's schema", why);
    if (number == pg_schema_known()) return ERR_OK;
    if (!migrate_begin(db) || !pg_schema_read(db, &number))
        return pg_schema_failed(db, "lock the ledger's schema", why);
    for (size_t i = 0; i < MIGRATIONS; i++) {
        assert(i == 0 || migrations[i].number > migrations[i - 1].number);
        if (migrations[i].number <= number) continue;
        if (!pg_schema_apply(db, i, now_ms))
            return pg_schema_failed(db, "bring the ledger's schema up to date", why);
    }
    if (!pg_exec(db, "COMMIT"))
        return pg_schema_failed(db, "bring the ledger's schema up to date", why);
    return number > pg_schema_known() ? too_new(number, why) : ERR_OK;
}

enum err pg_schema_expect(struct pg *db, struct buf *why) {
    int64_t number = 0;
    if (!pg_schema_read(db, &number)) return pg_schema_failed(db, "read the ledger's schema", why);
    if (number > pg_schema_known()) return too_new(number, why);
    if (number == pg_schema_known()) return ERR_OK;
    buf_addf(why, "the ledger has schema %lld, this program needs %lld: start its server once",
             (long long)number, (long long)pg_schema_known());
    return ERR_LEDGER_FAILED;
}
