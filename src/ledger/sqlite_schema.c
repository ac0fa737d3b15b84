/*
 * The tables, as numbered migrations. A migration that has shipped is never edited: a change is a
 * new one. Times are integers, milliseconds since 1970, in columns named …_at.
 *
 * A reference is declared as a foreign key only where its child column is the first of an index;
 * elsewhere (reservations, facts, requests, seats.reservation_id) a declared key would make every
 * removal scan the child table. Those references are guarded by the records that write them, and
 * sqlite_check.c checks them.
 */
#include <assert.h>

#include "ledger/sqlite_internal.h"

/* "adm1". `file` and SQLite's tools show it, and it distinguishes a ledger from other databases. */
#define APPLICATION_ID 0x61646d31

/* The checks of tables with many rows compare a column with one word after the other: for IN with
 * three words or more, SQLite fills a temporary table for every row, which costs as much as the
 * row. */
static const char *const first_tables[] = {
    /* An event's version is the id of the audit row that made it, so it grows over all events and
     * over deletions. A deleted event stays until retention has removed what belonged to it.
     * max_per_user_ever is the highest that max_per_user was: for the audit, since what users have
     * stays when the limit is lowered. */
    "CREATE TABLE events("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " type TEXT NOT NULL,"
    " external_id TEXT NOT NULL,"
    " version INTEGER NOT NULL CHECK (version > 0),"
    " title TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN ('DRAFT','OPEN','PAUSED','DRAINING','CLOSED')),"
    " auto_enter INTEGER NOT NULL CHECK (auto_enter IN (0, 1)),"
    " opens_at INTEGER,"
    " starts_at INTEGER,"
    " opened_at INTEGER,"
    " max_waiting INTEGER NOT NULL CHECK (max_waiting >= 0),"
    " max_active INTEGER NOT NULL CHECK (max_active >= 0),"
    " entry_batch_size INTEGER NOT NULL CHECK (entry_batch_size >= 0),"
    " entry_interval_s INTEGER NOT NULL CHECK (entry_interval_s >= 0),"
    " active_ttl_s INTEGER NOT NULL CHECK (active_ttl_s >= 0),"
    " grace_s INTEGER NOT NULL CHECK (grace_s >= 0),"
    " token_ttl_s INTEGER NOT NULL CHECK (token_ttl_s >= 0),"
    " hold_s INTEGER NOT NULL CHECK (hold_s >= 0),"
    " max_per_user INTEGER NOT NULL CHECK (max_per_user >= 0),"
    " max_per_user_ever INTEGER NOT NULL DEFAULT 0,"
    " currency TEXT NOT NULL,"
    " created_at INTEGER NOT NULL,"
    " updated_at INTEGER NOT NULL,"
    " deleted_at INTEGER"
    ") STRICT",
    "CREATE UNIQUE INDEX events_named ON events(type, external_id) WHERE deleted_at IS NULL",

    /* A section that is taken out of its event, or whose event is deleted, notes the audit row that
     * did it and stays for the history until retention removes it. How many of its seats are held
     * and confirmed is counted in the transaction that changes it, so that it is known without
     * reading a million seats whether any is left. */
    "CREATE TABLE sections("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " event_id INTEGER NOT NULL REFERENCES events(id),"
    " code TEXT NOT NULL,"
    " name TEXT NOT NULL,"
    " capacity INTEGER NOT NULL CHECK (capacity BETWEEN 0 AND 1048575),"
    " price INTEGER NOT NULL CHECK (price >= 0),"
    " mode TEXT NOT NULL CHECK (mode IN ('slot','lock','adaptive','seat')),"
    " status TEXT NOT NULL CHECK (status IN ('open','closed','maintenance')),"
    " position INTEGER NOT NULL CHECK (position >= 0),"
    " held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0),"
    " confirmed INTEGER NOT NULL DEFAULT 0 CHECK (confirmed >= 0),"
    " removed_version INTEGER,"
    " CHECK (held + confirmed <= capacity)"
    ") STRICT",
    "CREATE INDEX sections_of ON sections(event_id)",
    "CREATE UNIQUE INDEX sections_named ON sections(event_id, code) WHERE removed_version IS NULL",
    "CREATE INDEX sections_removed ON sections(id) WHERE removed_version IS NOT NULL",

    /* A missing row is AVAILABLE with version 0, in every mode: the one writer needs no row to
     * lock, so a million seats cost nothing until they are sold. */
    "CREATE TABLE seats("
    " section_id INTEGER NOT NULL REFERENCES sections(id),"
    " seat_no INTEGER NOT NULL CHECK (seat_no BETWEEN 1 AND 1048575),"
    " state TEXT NOT NULL CHECK (state = 'AVAILABLE' OR state = 'HELD' OR state = 'CONFIRMED'),"
    " reservation_id BLOB,"
    " version INTEGER NOT NULL CHECK (version >= 0),"
    " fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),"
    " PRIMARY KEY (section_id, seat_no),"
    " CHECK ((state = 'AVAILABLE') = (reservation_id IS NULL))"
    ") STRICT, WITHOUT ROWID",

    /* VOID: undone before any client knew of it; its number is not used again. No index on the
     * user, whose values come in random order: the memory of the server finds a user's entry. */
    "CREATE TABLE queue_entries("
    " event_id INTEGER NOT NULL REFERENCES events(id),"
    " seq INTEGER NOT NULL CHECK (seq > 0),"
    " user_id TEXT NOT NULL,"
    " lane INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 15),"
    " status TEXT NOT NULL CHECK"
    "  (status = 'WAITING' OR status = 'ACTIVE' OR status = 'COMPLETED' OR status = 'LEFT'"
    "   OR status = 'EXPIRED' OR status = 'VOID'),"
    " joined_at INTEGER NOT NULL,"
    " admitted_at INTEGER,"
    " active_expires_at INTEGER,"
    " finished_at INTEGER,"
    " PRIMARY KEY (event_id, seq),"
    " CHECK (status <> 'WAITING' OR (admitted_at IS NULL AND active_expires_at IS NULL)),"
    " CHECK (status <> 'ACTIVE' OR (admitted_at IS NOT NULL AND active_expires_at IS NOT NULL)),"
    " CHECK ((status = 'WAITING' OR status = 'ACTIVE') = (finished_at IS NULL))"
    ") STRICT, WITHOUT ROWID",

    /* The id is a UUIDv7 in its 16 bytes, so rows append. Which seats: seats.reservation_id while
     * it is live, and `seats` (numbers in order, with commas) also after it has ended, when the
     * seats may already belong to another user. */
    "CREATE TABLE reservations("
    " id BLOB PRIMARY KEY CHECK (length(id) = 16),"
    " event_id INTEGER NOT NULL,"
    " section_id INTEGER NOT NULL,"
    " user_id TEXT NOT NULL,"
    " entry_seq INTEGER NOT NULL,"
    " strategy TEXT NOT NULL,"
    " status TEXT NOT NULL CHECK"
    "  (status = 'HELD' OR status = 'CONFIRMED' OR status = 'CANCELLED' OR status = 'EXPIRED'"
    "   OR status = 'VOID'),"
    " seat_count INTEGER NOT NULL CHECK (seat_count > 0 OR status = 'VOID'),"
    " seats TEXT NOT NULL,"
    " price INTEGER NOT NULL CHECK (price >= 0),"
    " currency TEXT NOT NULL,"
    " expires_at INTEGER NOT NULL,"
    " created_at INTEGER NOT NULL,"
    " confirmed_at INTEGER,"
    " ended_at INTEGER,"
    " confirmation_code TEXT,"
    " CHECK (status <> 'HELD' OR confirmed_at IS NULL),"
    " CHECK (status <> 'CONFIRMED' OR confirmed_at IS NOT NULL),"
    " CHECK ((status = 'HELD' OR status = 'CONFIRMED') = (ended_at IS NULL))"
    ") STRICT, WITHOUT ROWID",

    /* Asynchronous requests: either `seats` (numbers with commas) or any `quantity`. */
    "CREATE TABLE requests("
    " id BLOB PRIMARY KEY CHECK (length(id) = 16),"
    " event_id INTEGER NOT NULL,"
    " section_id INTEGER NOT NULL,"
    " user_id TEXT NOT NULL,"
    " entry_seq INTEGER NOT NULL,"
    " quantity INTEGER NOT NULL CHECK (quantity > 0),"
    " seats TEXT,"
    " status TEXT NOT NULL CHECK (status IN ('PENDING','PROCESSING','SUCCESS','FAIL_SOLD_OUT',"
    "  'FAIL_ALREADY_RESERVED','FAIL_CONFLICT','FAIL_NOT_ACTIVE','FAIL_NOT_FOUND','FAIL')),"
    " reservation_id BLOB,"
    " created_at INTEGER NOT NULL,"
    " finished_at INTEGER,"
    " CHECK ((status = 'PENDING' OR status = 'PROCESSING') = (finished_at IS NULL)),"
    " CHECK (status <> 'SUCCESS' OR reservation_id IS NOT NULL)"
    ") STRICT, WITHOUT ROWID",
    "CREATE INDEX requests_open ON requests(id) WHERE status IN ('PENDING','PROCESSING')",

    /* The outbox: written in the effect's own transaction, relayed once and in order, so those that
     * are still to be relayed are the last ones. Its ids come from the epoch: they never come
     * again, whatever retention removes. The reservation's id grows with time, so facts_once
     * appends, more or less, like the table itself. */
    "CREATE TABLE facts("
    " id INTEGER PRIMARY KEY,"
    " kind TEXT NOT NULL CHECK"
    "  (kind = 'HELD' OR kind = 'CONFIRMED' OR kind = 'CANCELLED' OR kind = 'EXPIRED'"
    "   OR kind = 'SOLD_OUT'),"
    " event_id INTEGER NOT NULL,"
    " section_id INTEGER,"
    " reservation_id BLOB,"
    " user_id TEXT,"
    " seat_count INTEGER NOT NULL CHECK (seat_count >= 0),"
    " at INTEGER NOT NULL,"
    " relayed_at INTEGER,"
    " CHECK ((kind = 'SOLD_OUT') = (reservation_id IS NULL))"
    ") STRICT",
    "CREATE UNIQUE INDEX facts_once ON facts(reservation_id, kind)"
    " WHERE reservation_id IS NOT NULL",
    "CREATE INDEX facts_sold_out ON facts(event_id, at) WHERE kind = 'SOLD_OUT'",

    /* The one index on values that clients choose: nothing else can promise that a key is used
     * once. It stays small, for a row lives 24 hours. */
    "CREATE TABLE idempotency("
    " id INTEGER PRIMARY KEY,"
    " user_id TEXT NOT NULL,"
    " route TEXT NOT NULL,"
    " key TEXT NOT NULL,"
    " body_digest BLOB NOT NULL,"
    " status INTEGER NOT NULL CHECK (status BETWEEN 200 AND 299),"
    " response TEXT NOT NULL,"
    " created_at INTEGER NOT NULL"
    ") STRICT",
    "CREATE UNIQUE INDEX idempotency_named ON idempotency(user_id, route, key)",

    "CREATE TABLE audit("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at INTEGER NOT NULL,"
    " actor TEXT NOT NULL,"
    " act TEXT NOT NULL,"
    " subject TEXT NOT NULL,"
    " detail TEXT NOT NULL CHECK (json_valid(detail))"
    ") STRICT",

    /* How often this was opened for writing. A fence begins with it, so nothing lowers it. */
    "CREATE TABLE epochs("
    " name TEXT PRIMARY KEY,"
    " number INTEGER NOT NULL CHECK (number > 0)"
    ") STRICT, WITHOUT ROWID",
    NULL,
};

/* Totals of the entries that retention has removed: see entry_totals.h. */
static const char *const retired_entries[] = {
    "CREATE TABLE retired_entries("
    " event_id INTEGER PRIMARY KEY REFERENCES events(id) ON DELETE CASCADE,"
    " entered INTEGER NOT NULL,"
    " admitted INTEGER NOT NULL,"
    " completed INTEGER NOT NULL,"
    " gone INTEGER NOT NULL,"
    " expired INTEGER NOT NULL,"
    " waited_ms INTEGER NOT NULL,"
    " waited_ms_max INTEGER NOT NULL"
    ") STRICT",
    NULL,
};

/* A key's row names the reservation that the request made, instead of holding the answer as JSON,
 * which began with {"id":"…". (This SQLite has no function that makes bytes of a text.) */
static const char *const idempotency_names_reservation[] = {
    "ALTER TABLE idempotency RENAME TO old_idempotency",
    "DROP INDEX idempotency_named",
    "CREATE TABLE idempotency("
    " id INTEGER PRIMARY KEY,"
    " user_id TEXT NOT NULL,"
    " route TEXT NOT NULL,"
    " key TEXT NOT NULL,"
    " body_digest BLOB NOT NULL,"
    " reservation_id BLOB NOT NULL CHECK (length(reservation_id) = 16),"
    " created_at INTEGER NOT NULL"
    ") STRICT",
    "INSERT INTO idempotency"
    " SELECT i.id, i.user_id, i.route, i.key, i.body_digest, r.id, i.created_at"
    " FROM old_idempotency i JOIN reservations r ON r.created_at = i.created_at"
    "  AND lower(hex(r.id)) = replace(substr(i.response, 8, 36), '-', '')",
    "DROP TABLE old_idempotency",
    "CREATE UNIQUE INDEX idempotency_named ON idempotency(user_id, route, key)",
    NULL,
};

/* The first table of requests was never used. The writer numbers the rows in the order of
 * acceptance; the id is a UUIDv7, or is computed from an Idempotency-Key. A row without `seats`
 * asks for any. */
static const char *const requests_in_order[] = {
    "DROP TABLE requests",
    "CREATE TABLE requests("
    " seq INTEGER PRIMARY KEY,"
    " id BLOB NOT NULL CHECK (length(id) = 16),"
    " partition INTEGER NOT NULL,"
    " event_id INTEGER NOT NULL,"
    " section_id INTEGER NOT NULL,"
    " user_id TEXT NOT NULL,"
    " entry_seq INTEGER NOT NULL,"
    " strategy TEXT NOT NULL,"
    " quantity INTEGER NOT NULL CHECK (quantity > 0),"
    " seats TEXT,"
    " body_digest BLOB NOT NULL,"
    " ahead INTEGER NOT NULL,"
    " status TEXT NOT NULL,"
    " reason TEXT NOT NULL,"
    " reservation_id BLOB,"
    " created_at INTEGER NOT NULL,"
    " finished_at INTEGER,"
    " CHECK ((status = 'PENDING') = (finished_at IS NULL)),"
    " CHECK ((status = 'SUCCESS') = (reservation_id NOT NULL))"
    ") STRICT",
    "CREATE UNIQUE INDEX requests_named ON requests(id)",
    "CREATE INDEX requests_open ON requests(partition, seq) WHERE finished_at IS NULL",
    NULL,
};

/* confirm_by is NULL if the event does not set it. seats.given_up is the hold that ended last on
 * the seat, if it ended unconfirmed. queue_entries.holds is counted only while the event limits it.
 */
static const char *const rights_of_users[] = {
    "ALTER TABLE events ADD COLUMN confirm_by TEXT"
    " CHECK (confirm_by IS NULL OR confirm_by IN ('shop','user'))",
    "ALTER TABLE events ADD COLUMN cancel_confirmed INTEGER NOT NULL DEFAULT 0"
    " CHECK (cancel_confirmed IN (0, 1))",
    "ALTER TABLE events ADD COLUMN rehold_s INTEGER NOT NULL DEFAULT 60 CHECK (rehold_s >= 0)",
    "ALTER TABLE events ADD COLUMN max_holds_per_stay INTEGER NOT NULL DEFAULT 0"
    " CHECK (max_holds_per_stay >= 0)",
    "ALTER TABLE seats ADD COLUMN given_up BLOB CHECK (given_up IS NULL OR length(given_up) = 16)",
    "ALTER TABLE queue_entries ADD COLUMN holds INTEGER NOT NULL DEFAULT 0 CHECK (holds >= 0)",
    NULL,
};

static const char *const closing_times[] = {
    "ALTER TABLE events ADD COLUMN closes_at INTEGER",
    NULL,
};

/* Only requests that were named by others need the index of ids: the ids that the ledger gives
 * itself contain the row's number. */
static const char *const requests_named_by_others[] = {
    "ALTER TABLE requests ADD COLUMN is_named INTEGER NOT NULL DEFAULT 1"
    " CHECK (is_named IN (0, 1))",
    "DROP INDEX requests_named",
    "CREATE UNIQUE INDEX requests_named ON requests(id) WHERE is_named = 1",
    NULL,
};

/* What the waiting room shows and where it sends its users: NULL, '', NULL if the event sets none.
 * The hosts are separated by commas. */
static const char *const waiting_rooms[] = {
    "ALTER TABLE events ADD COLUMN page TEXT CHECK (page IS NULL OR json_valid(page))",
    "ALTER TABLE events ADD COLUMN return_hosts TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE events ADD COLUMN notice TEXT",
    NULL,
};

static const struct {
    int64_t number;
    const char *const *statements; /* NULL ends them */
} migrations[] = {
    {1, first_tables},
    {2, retired_entries},
    {3, idempotency_names_reservation},
    {4, requests_in_order},
    {5, rights_of_users},
    {6, closing_times},
    {7, requests_named_by_others},
    {8, waiting_rooms},
};

#define MIGRATIONS (sizeof migrations / sizeof *migrations)

static int64_t sqlite_schema_known(void) {
    return migrations[MIGRATIONS - 1].number;
}

/* *number: 0 in a new file, -1 in another program's database. */
static int sqlite_schema_read(struct db *db, int64_t *number) {
    int64_t tables = 0;
    int64_t versions = 0;
    int64_t application = 0;
    int rc = db_number_cells(db, &tables, "SELECT count(*) FROM sqlite_schema", NULL, 0);
    if (rc == SQLITE_OK) rc = db_number_cells(db, &application, "PRAGMA application_id", NULL, 0);
    if (rc == SQLITE_OK)
        rc = db_number_cells(db, &versions,
                             "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'",
                             NULL, 0);
    *number = tables == 0 ? 0 : -1;
    if (rc != SQLITE_OK || versions == 0 || application != APPLICATION_ID) return rc;
    *number = 0;
    return db_number_cells(db, number, "SELECT max(number) FROM schema_version", NULL, 0);
}

static int create_version_table(struct db *db) {
    _Static_assert(APPLICATION_ID == 1633971505, "as written below");
    return sqlite3_exec(db->handle,
                        "PRAGMA application_id = 1633971505;"
                        "CREATE TABLE IF NOT EXISTS schema_version("
                        " number INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT;",
                        NULL, NULL, NULL);
}

static int sqlite_schema_apply(struct db *db, size_t i, int64_t now_ms) {
    int rc = db_exec(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK && i == 0) rc = create_version_table(db);
    for (const char *const *sql = migrations[i].statements; rc == SQLITE_OK && *sql != NULL; sql++)
        rc = sqlite3_exec(db->handle, *sql, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = db_run(db, "INSERT INTO schema_version(number, applied_at) VALUES (?1, ?2)",
                    cell_i64(migrations[i].number), cell_i64(now_ms));
    if (rc == SQLITE_OK) rc = db_exec(db, "COMMIT");
    return rc;
}

static enum err unreadable(struct db *db, const char *path, struct buf *why) {
    buf_addf(why, "cannot read %s: %s", path, sqlite3_errmsg(db->handle));
    return ERR_LEDGER_FAILED;
}

/* Why a file with this schema cannot be used at all. */
static enum err schema_refused(int64_t number, const char *path, struct buf *why) {
    if (number < 0) {
        buf_addf(why, "%s is a database, but not a ledger of admitone", path);
        return ERR_LEDGER_FAILED;
    }
    if (number > sqlite_schema_known()) {
        buf_addf(why, "the ledger has schema %lld, this program knows %lld: use a newer admitone",
                 (long long)number, (long long)sqlite_schema_known());
        return ERR_LEDGER_FAILED;
    }
    return ERR_OK;
}

enum err schema_accept(struct db *db, const char *path, struct buf *why) {
    int64_t number = 0;
    if (sqlite_schema_read(db, &number) != SQLITE_OK) return unreadable(db, path, why);
    return schema_refused(number, path, why);
}

enum err schema_migrate(struct db *db, const char *path, int64_t now_ms, struct buf *why) {
    int64_t number = 0;
    if (sqlite_schema_read(db, &number) != SQLITE_OK) return unreadable(db, path, why);
    assert(number >= 0 && number <= sqlite_schema_known());
    for (size_t i = 0; i < MIGRATIONS; i++) {
        assert(i == 0 || migrations[i].number > migrations[i - 1].number);
        if (migrations[i].number <= number) continue;
        if (sqlite_schema_apply(db, i, now_ms) != SQLITE_OK) {
            buf_addf(why, "cannot bring %s to schema %lld: %s", path,
                     (long long)migrations[i].number, sqlite3_errmsg(db->handle));
            db_rollback(db);
            return ERR_LEDGER_FAILED;
        }
    }
    return ERR_OK;
}

enum err schema_expect(struct db *db, const char *path, struct buf *why) {
    int64_t number = 0;
    if (sqlite_schema_read(db, &number) != SQLITE_OK) return unreadable(db, path, why);
    enum err refused = schema_refused(number, path, why);
    if (refused == ERR_OK && number < sqlite_schema_known()) {
        buf_addf(why, "the ledger has schema %lld, this program needs %lld: start its server once",
                 (long long)number, (long long)sqlite_schema_known());
        refused = ERR_LEDGER_FAILED;
    }
    return refused;
}
