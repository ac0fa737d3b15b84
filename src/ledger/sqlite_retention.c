/*
 * Retention: removes rows of ended entries and reservations, and other rows that are no longer
 * needed. A *round* goes through the tables one after the other, each in the order of its key, in
 * *batches* of bounded work between two batches of records. No index serves it, so it costs the hot
 * path nothing; a scan that finds nothing reads a few thousand rows per batch.
 *
 * Rows of a deleted event (or of a section that was removed from its event) are removed first, then
 * the section, then the event. If a row of it must stay (a fact not yet relayed), the event is
 * noted as kept and stays for this round; one that was deleted after the round began waits for the
 * next, because the scans may have passed its rows already.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "ledger/entry_totals.h"
#include "ledger/sqlite_internal.h"

#define REMOVED_PER_BATCH_MAX 500
#define EXAMINED_PER_BATCH_MAX 5000
#define DAY_MS (INT64_C(24) * 3600 * 1000)
#define IDEMPOTENCY_DAYS 1
/* While records wait, a batch comes this many times more rarely. */
#define BUSY_INTERVALS 30
/* While no record waits and a round is unfinished, a batch comes this many times more often. */
#define UNFINISHED_SPEEDUP 20
/* After this time boards have counted the reservations that were given back. */
#define LATE_MS "3600000"

enum age { AGE_AUDIT, AGE_IDEMPOTENCY, AGE_ENDED };

/* `scan` gives the rows behind the key (?1, ?2) in the order of the key, at most ?3 of them: two
 * columns of key (the second may be NULL), whether the row may go, and its event if that or the
 * section is removed (else NULL). ?4 is the time before which what has ended may go, ?5 the round's
 * version, ?6 the time. `remove`, `also` and `count` take the key. */
struct retained_table {
    const char *scan;
    const char *count; /* before that, or NULL: counts the row that is removed */
    const char *also;  /* first, or NULL */
    const char *remove;
    enum age age;
    bool in_order; /* of time: the first row that stays ends the scan */
    bool parent;   /* stays while rows of its event do */
};

#define GONE_EVENT "(SELECT e.id FROM events e WHERE e.id = t.event_id AND e.deleted_at NOT NULL)"
#define GONE_SECTION                                                                               \
    "(SELECT c.event_id FROM sections c WHERE c.id = t.section_id AND c.removed_version NOT NULL)"

static const struct retained_table tables[] = {
    {
        .scan = "SELECT id, NULL, at < ?4 AND id < (SELECT max(id) FROM audit), NULL FROM audit"
                " WHERE id > ?1 ORDER BY id LIMIT ?3",
        .remove = "DELETE FROM audit WHERE id = ?1",
        .age = AGE_AUDIT,
        .in_order = true,
    },
    {
        .scan = "SELECT id, NULL, created_at < ?4, NULL FROM idempotency"
                " WHERE id > ?1 ORDER BY id LIMIT ?3",
        .remove = "DELETE FROM idempotency WHERE id = ?1",
        .age = AGE_IDEMPOTENCY,
        .in_order = true,
    },
    {
        /* The event's highest number stays: the next entry's is counted from it, and an old token
         * must never name a new entry. */
        .scan = "SELECT t.event_id, t.seq,"
                " (coalesce(t.finished_at < ?4, 0) AND t.seq <"
                "  (SELECT max(m.seq) FROM queue_entries m WHERE m.event_id = t.event_id))"
                " OR " GONE_EVENT " NOT NULL, " GONE_EVENT " FROM queue_entries t"
                " WHERE (t.event_id, t.seq) > (?1, ?2)"
                " ORDER BY t.event_id, t.seq LIMIT ?3",
        .count = ENTRY_TOTALS_RETIRE("event_id = ?1 AND seq = ?2"),
        .remove = "DELETE FROM queue_entries WHERE event_id = ?1 AND seq = ?2",
        .age = AGE_ENDED,
    },
    {
        /* Its facts go with it, so they must have been relayed. A key's row that names it is
         * answered from it, so that goes first. */
        .scan = "SELECT t.id, NULL,"
                " (coalesce(t.ended_at < ?4, 0)"
                "  OR (coalesce(t.ended_at < ?6 - " LATE_MS ", 0) AND " GONE_SECTION " NOT NULL))"
                " AND NOT EXISTS (SELECT 1 FROM facts f"
                "  WHERE f.reservation_id = t.id AND f.relayed_at IS NULL)"
                " AND NOT EXISTS (SELECT 1 FROM idempotency i"
                "  WHERE i.user_id = t.user_id AND i.reservation_id = t.id), " GONE_SECTION
                " FROM reservations t"
                " WHERE t.id > ?1 ORDER BY t.id LIMIT ?3",
        .also = "DELETE FROM facts WHERE reservation_id = ?1",
        .remove = "DELETE FROM reservations WHERE id = ?1",
        .age = AGE_ENDED,
    },
    {
        .scan = "SELECT t.seq, NULL,"
                " coalesce(t.finished_at < ?4, 0)"
                " OR (coalesce(t.finished_at < ?6 - " LATE_MS ", 0)"
                "  AND " GONE_SECTION " NOT NULL), " GONE_SECTION " FROM requests t"
                " WHERE t.seq > ?1 ORDER BY t.seq LIMIT ?3",
        .remove = "DELETE FROM requests WHERE seq = ?1",
        .age = AGE_ENDED,
    },
    {
        /* A reservation's facts stay as long as it does. When an event was last sold out is kept as
         * long as the event, for boards that are counted again; that fact is not relayed. */
        .scan = "SELECT t.id, NULL, CASE WHEN t.kind = 'SOLD_OUT'"
                " THEN " GONE_EVENT " NOT NULL OR (t.at < ?4 AND EXISTS (SELECT 1 FROM facts l"
                "  WHERE l.event_id = t.event_id AND l.kind = 'SOLD_OUT' AND l.at > t.at))"
                " ELSE t.relayed_at NOT NULL AND (t.at < ?4 OR " GONE_EVENT " NOT NULL)"
                "  AND NOT EXISTS (SELECT 1 FROM reservations r WHERE r.id = t.reservation_id)"
                " END, " GONE_EVENT " FROM facts t"
                " WHERE t.id > ?1 ORDER BY t.id LIMIT ?3",
        .remove = "DELETE FROM facts WHERE id = ?1",
        .age = AGE_ENDED,
    },
    {
        /* A free seat's row carries its version, so it stays as long as its section. The join is
         * crossed to begin with the few sections, not with all the seats. */
        .scan = "SELECT c.id, t.seat_no, t.state = 'AVAILABLE', c.event_id"
                " FROM sections c INDEXED BY sections_removed CROSS JOIN seats t"
                " ON t.section_id = c.id"
                " WHERE c.removed_version NOT NULL AND c.id >= ?1 AND (c.id > ?1 OR t.seat_no > ?2)"
                " ORDER BY c.id, t.seat_no LIMIT ?3",
        .remove = "DELETE FROM seats WHERE section_id = ?1 AND seat_no = ?2",
        .age = AGE_ENDED,
    },
    {
        .scan = "SELECT t.id, NULL, t.removed_version <= ?5"
                " AND NOT EXISTS (SELECT 1 FROM seats WHERE section_id = t.id), t.event_id"
                " FROM sections t INDEXED BY sections_removed"
                " WHERE t.removed_version NOT NULL AND t.id > ?1"
                " ORDER BY t.id LIMIT ?3",
        .remove = "DELETE FROM sections WHERE id = ?1",
        .age = AGE_ENDED,
        .parent = true,
    },
    {
        .scan = "SELECT t.id, NULL, t.deleted_at NOT NULL AND t.version <= ?5"
                " AND NOT EXISTS (SELECT 1 FROM sections WHERE event_id = t.id)"
                " AND NOT EXISTS (SELECT 1 FROM queue_entries WHERE event_id = t.id), t.id"
                " FROM events t"
                " WHERE t.id > ?1 ORDER BY t.id LIMIT ?3",
        .remove = "DELETE FROM events WHERE id = ?1",
        .age = AGE_ENDED,
        .parent = true,
    },
};

#define TABLES (sizeof tables / sizeof *tables)

void retention_init(struct retention *r, const struct sqlite_ledger_options *o) {
    *r = (struct retention){
        .audit_days = o->retain_audit_days,
        .ended_days = o->retain_ended_days,
        .interval_ns = o->retention_interval_ms * 1000000,
        .pause_ns = o->retention_pause_ms * 1000000,
        .table = TABLES,
    };
    r->due_idle_ns = clock_steady_ns() + r->interval_ns;
    r->due_busy_ns = r->due_idle_ns;
}

static void forget_cursor(struct retention *r) {
    for (int i = 0; i < 2; i++) {
        sqlite3_value_free(r->cursor[i]);
        r->cursor[i] = NULL;
    }
}

void retention_deinit(struct retention *r) {
    forget_cursor(r);
}

/* Rows that ended before this time may be removed. */
static int64_t retention_before_ms(const struct retention *r, enum age age) {
    int64_t days = age == AGE_AUDIT         ? r->audit_days
                   : age == AGE_IDEMPOTENCY ? IDEMPOTENCY_DAYS
                                            : r->ended_days;
    return days == 0 ? INT64_MIN : clock_wall_ms() - days * DAY_MS;
}

/* When the list is full, everything counts as kept. */
static bool retention_is_kept(const struct retention *r, int64_t event_key) {
    if (r->kept_count == RETENTION_KEPT_MAX) return true;
    for (size_t i = 0; i < r->kept_count; i++)
        if (r->kept[i] == event_key) return true;
    return false;
}

static void retention_keep(struct retention *r, int64_t event_key) {
    if (!retention_is_kept(r, event_key)) r->kept[r->kept_count++] = event_key;
}

/* Binds what the statement has a place for. */
static int bind_i64(sqlite3_stmt *statement, int at, int64_t value) {
    if (at > sqlite3_bind_parameter_count(statement)) return SQLITE_OK;
    return sqlite3_bind_int64(statement, at, value);
}

static int bind_key(sqlite3_stmt *statement, int at, const sqlite3_value *value) {
    if (at > sqlite3_bind_parameter_count(statement)) return SQLITE_OK;
    return sqlite3_bind_value(statement, at, value);
}

static int scan_open(struct retention *r, struct db *db, int64_t rows_max, sqlite3_stmt **rows) {
    const struct retained_table *s = &tables[r->table];
    int rc = db_statement(db, s->scan, rows);
    for (int i = 0; rc == SQLITE_OK && i < 2; i++) {
        /* Before the first row: SQLite sorts numbers before texts and blobs. */
        rc = r->cursor[i] == NULL ? bind_i64(*rows, i + 1, INT64_MIN)
                                  : bind_key(*rows, i + 1, r->cursor[i]);
    }
    if (rc == SQLITE_OK) rc = bind_i64(*rows, 3, rows_max);
    if (rc == SQLITE_OK) rc = bind_i64(*rows, 4, retention_before_ms(r, s->age));
    if (rc == SQLITE_OK) rc = bind_i64(*rows, 5, r->round_version);
    if (rc == SQLITE_OK) rc = bind_i64(*rows, 6, clock_wall_ms());
    return rc;
}

/* How many rows one batch may still examine and remove, and how many it has removed. */
struct batch {
    int64_t examine;
    int64_t remove;
    uint64_t removed;
};

static int run_by_key(struct db *db, const char *sql, sqlite3_stmt *key, struct batch *batch) {
    sqlite3_stmt *rows = NULL;
    int rc = db_statement(db, sql, &rows);
    for (int i = 0; rc == SQLITE_OK && i < 2; i++)
        rc = bind_key(rows, i + 1, sqlite3_column_value(key, i));
    bool row = db_next(rows, &rc);
    assert(!row);
    if (rc == SQLITE_OK) batch->removed += (uint64_t)sqlite3_changes(db->handle);
    return rc;
}

static int remove_row(struct db *db, const struct retained_table *s, sqlite3_stmt *key,
                      struct batch *batch) {
    struct batch uncounted = {0};
    batch->remove--;
    int rc = SQLITE_OK;
    if (s->count != NULL) rc = run_by_key(db, s->count, key, &uncounted);
    if (rc == SQLITE_OK && s->also != NULL) rc = run_by_key(db, s->also, key, batch);
    if (rc == SQLITE_OK) rc = run_by_key(db, s->remove, key, batch);
    return rc;
}

static void remember_cursor(struct retention *r, sqlite3_stmt *rows) {
    forget_cursor(r);
    for (int i = 0; i < 2; i++) r->cursor[i] = sqlite3_value_dup(sqlite3_column_value(rows, i));
}

/* Sweeps on in the current table; *ended when it is through with it. */
static int retention_scan(struct retention *r, struct db *db, struct batch *batch, bool *ended) {
    const struct retained_table *s = &tables[r->table];
    sqlite3_stmt *rows = NULL;
    int rc = scan_open(r, db, batch->examine, &rows);
    *ended = true;
    while (db_next(rows, &rc)) {
        int64_t gone_event = sqlite3_column_int64(rows, 3);
        bool goes =
            sqlite3_column_int(rows, 2) != 0 && !(s->parent && retention_is_kept(r, gone_event));
        batch->examine--;
        if (goes)
            rc = remove_row(db, s, rows, batch);
        else if (s->in_order)
            break;
        else if (gone_event != 0)
            retention_keep(r, gone_event);
        if (batch->examine > 0 && batch->remove > 0) continue;
        remember_cursor(r, rows);
        *ended = false;
        break;
    }
    if (rows != NULL) sqlite3_reset(rows);
    return rc;
}

static int retention_begin_round(struct retention *r, struct db *db) {
    r->table = 0;
    r->kept_count = 0;
    r->round_removed = 0;
    r->round_version = 1;
    forget_cursor(r);
    return db_number_cells(db, &r->round_version, "SELECT max(id) FROM audit", NULL, 0);
}

static int retention_batch(struct retention *r, struct db *db) {
    struct batch batch = {.examine = EXAMINED_PER_BATCH_MAX, .remove = REMOVED_PER_BATCH_MAX};
    bool ended = true;
    int rc = db_exec(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK && r->table == TABLES) rc = retention_begin_round(r, db);
    while (rc == SQLITE_OK && ended && r->table < TABLES) {
        rc = retention_scan(r, db, &batch, &ended);
        if (rc != SQLITE_OK || !ended) break;
        r->table++;
        forget_cursor(r);
    }
    /* Costs no fsync when nothing was removed. */
    if (rc == SQLITE_OK) rc = db_exec(db, "COMMIT");
    if (rc == SQLITE_OK) count(COUNT_LEDGER_RETIRED_ROWS, batch.removed);
    r->round_removed += batch.removed;
    return rc;
}

void retention_step(struct retention *r, struct db *db) {
    int rc = retention_batch(r, db);
    if (rc != SQLITE_OK) {
        log_warn(msg("retention failed; old rows stay until it succeeds"),
                 kv("error", sqlite3_errmsg(db->handle)));
        db_rollback(db);
        r->table = TABLES;
    }
    int64_t now_ns = clock_steady_ns();
    if (r->table < TABLES) {
        r->due_idle_ns = now_ns + r->interval_ns / UNFINISHED_SPEEDUP;
        r->due_busy_ns = now_ns + r->interval_ns * BUSY_INTERVALS;
    } else {
        /* Where a whole round found nothing to remove, there will be little for a while. */
        r->due_idle_ns = now_ns + (r->round_removed > 0 ? r->interval_ns : r->pause_ns);
        r->due_busy_ns = r->due_idle_ns + r->interval_ns * BUSY_INTERVALS;
    }
}
