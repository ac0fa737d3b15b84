/*
 * Retention: removes rows of ended entries and reservations, and other rows that are no longer
 * needed. A *round* goes through the tables one after the other, each in the order of its key, in
 * *batches* of bounded work with pauses between. No index serves it, so it costs the hot path
 * nothing.
 *
 * Rows of a deleted event (or of a section that was removed from its event) are removed first, then
 * the section, then the event. If a row of it must stay (a fact that is not relayed or published
 * yet, a locked row), the event is noted as kept and stays for this round; one that was deleted
 * after the round began waits for the next, because the scans may have passed its rows already.
 *
 * One node does this, the one that has PG_LOCK_RETENTION; when the node stops, its connection ends,
 * and another node gets the lock. Locked rows are skipped, and left for later.
 */
#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "ledger/entry_totals.h"
#include "ledger/postgres_internal.h"

#define REMOVED_PER_BATCH_MAX 500
#define EXAMINED_PER_BATCH_MAX 5000
#define DAY_MS (INT64_C(24) * 3600 * 1000)
#define IDEMPOTENCY_DAYS 1
/* While a round is unfinished, a batch comes this many times more often. */
#define UNFINISHED_SPEEDUP 20
/* For one answer. It bounds how long pg_retention_stop takes. */
#define ANSWER_WAIT_MS 3000
#define CONNECT_STEP_MS 50
#define KEPT_MAX 256
/* After this time an enter that was under way when its event was deleted has arrived, and boards
 * have counted the reservations that were given back. */
#define LATE_MS "3600000"

enum age { AGE_AUDIT, AGE_IDEMPOTENCY, AGE_ENDED };

/* `scan` gives the rows behind the key ($1, $2) in the order of the key, at most $3 of them: two
 * columns of key (the second may be NULL), whether the row may go, and its event if that or the
 * section is removed (else NULL). $4 is the time before which what has ended may go, $5 the round's
 * version, $6 the time. `remove` takes arrays of the two columns of key and removes the rows that
 * no transaction has locked (FREE); a row that may go once may always go. Keys are texts. */
struct retained_table {
    const char *first[2]; /* the key before all */
    const char *scan;
    const char *remove;
    enum age age;
    bool in_order; /* of time: the first row that stays ends the scan */
    bool parent;   /* stays while rows of its event do */
};

#define NUMBERS                                                                                    \
    { "-1", "-1" }
#define UUIDS                                                                                      \
    { "00000000-0000-0000-0000-000000000000", "" }

#define GONE_EVENT                                                                                 \
    "(SELECT e.id FROM events e WHERE e.id = t.event_id AND e.deleted_at IS NOT NULL)"
#define GONE_SECTION                                                                               \
    "(SELECT c.event_id FROM sections c"                                                           \
    " WHERE c.id = t.section_id AND c.removed_version IS NOT NULL)"

/* The watermarks of the publishers of facts: a fact above one of them is still to be published. One
 * that has not run for a week is not waited for: the nodes have another feed now. */
#define PUBLISHED                                                                                  \
    "SELECT 1 FROM fact_publications p"                                                            \
    " WHERE p.until > $6 - 604800000 AND (p.transaction, p.fact_id)"

/* Materialized: looked for once, not for each row that might be removed. */
#define FREE(key, from) "WITH free AS MATERIALIZED (SELECT " key " FROM " from " SKIP LOCKED)"
#define FREE_BY(type, table) FREE("id", table " WHERE id = ANY($1::text[]::" type "[]) FOR UPDATE")
#define REMOVE_BY(type, table)                                                                     \
    FREE_BY(type, table)                                                                           \
    " DELETE FROM " table " WHERE id IN (SELECT id FROM free)"

#define FREE_ENTRIES                                                                               \
    FREE("q.event_id, q.seq",                                                                      \
         "unnest($1::text[]::bigint[], $2::text[]::bigint[]) k(event_id, seq)"                     \
         " JOIN queue_entries q ON q.event_id = k.event_id AND q.seq = k.seq"                      \
         " FOR UPDATE OF q")
#define RETIRE_FREE_ENTRIES                                                                        \
    ENTRY_TOTALS_RETIRE("(event_id, seq) IN (SELECT event_id, seq FROM free)")

static const struct retained_table tables[] = {
    {
        .first = NUMBERS,
        .scan = "SELECT t.id::text, NULL::text,"
                " t.at < $4 AND t.id < (SELECT max(id) FROM audit), NULL"
                " FROM audit t WHERE t.id > $1::text::bigint ORDER BY t.id LIMIT $3",
        .remove = REMOVE_BY("bigint", "audit"),
        .age = AGE_AUDIT,
        .in_order = true,
    },
    {
        .first = NUMBERS,
        .scan = "SELECT t.id::text, NULL::text, t.created_at < $4, NULL FROM idempotency t"
                " WHERE t.id > $1::text::bigint ORDER BY t.id LIMIT $3",
        .remove = REMOVE_BY("bigint", "idempotency"),
        .age = AGE_IDEMPOTENCY,
        .in_order = true,
    },
    {
        /* The event's highest number stays: the next entry's is counted from it, and an old token
         * must never name a new entry. */
        .first = NUMBERS,
        .scan = "SELECT t.event_id::text, t.seq::text,"
                " (coalesce(t.finished_at < $4, false) AND t.seq <"
                "  (SELECT max(m.seq) FROM queue_entries m WHERE m.event_id = t.event_id))"
                " OR " GONE_EVENT " IS NOT NULL, " GONE_EVENT " FROM queue_entries t"
                " WHERE (t.event_id, t.seq) > ($1::text::bigint, $2::text::bigint)"
                " ORDER BY t.event_id, t.seq LIMIT $3",
        .remove = FREE_ENTRIES ", retired AS (" RETIRE_FREE_ENTRIES ")"
                               " DELETE FROM queue_entries q USING free f"
                               " WHERE q.event_id = f.event_id AND q.seq = f.seq",
        .age = AGE_ENDED,
    },
    {
        /* Its facts go with it, so they must have been relayed and published. A key's row that
         * names it is answered from it, so that goes first. */
        .first = UUIDS,
        .scan = "SELECT t.id::text, NULL::text,"
                " (coalesce(t.ended_at < $4, false)"
                "  OR (coalesce(t.ended_at < $6 - " LATE_MS ", false)"
                "   AND " GONE_SECTION " IS NOT NULL))"
                " AND NOT EXISTS (SELECT 1 FROM facts f"
                "  WHERE f.reservation_id = t.id AND (f.relayed_at IS NULL"
                "   OR EXISTS (" PUBLISHED " < (f.transaction, f.id))))"
                " AND NOT EXISTS (SELECT 1 FROM idempotency i WHERE i.user_id = t.user_id"
                "  AND coalesce(i.reservation_id, substr(i.response, 8, 36)::uuid) = t.id),"
                " " GONE_SECTION " FROM reservations t"
                " WHERE t.id > $1::text::uuid ORDER BY t.id LIMIT $3",
        .remove = FREE(
            "id",
            "reservations WHERE id = ANY($1::text[]::uuid[]) FOR UPDATE") ", its_facts AS (DELETE "
                                                                          "FROM facts WHERE "
                                                                          "reservation_id IN "
                                                                          "(SELECT id FROM free))"
                                                                          " DELETE FROM "
                                                                          "reservations WHERE id "
                                                                          "IN (SELECT id FROM "
                                                                          "free)",
        .age = AGE_ENDED,
    },
    {
        .first = UUIDS,
        .scan = "SELECT t.id::text, NULL::text,"
                " coalesce(t.finished_at < $4, false)"
                " OR (coalesce(t.finished_at < $6 - " LATE_MS ", false)"
                "  AND " GONE_SECTION " IS NOT NULL), " GONE_SECTION " FROM requests t"
                " WHERE t.id > $1::text::uuid ORDER BY t.id LIMIT $3",
        .remove = REMOVE_BY("uuid", "requests"),
        .age = AGE_ENDED,
    },
    {
        /* A reservation's facts stay as long as it does. When an event was last sold out is kept as
         * long as the event, for boards that are counted again; that fact is not relayed. */
        .first = NUMBERS,
        .scan = "SELECT t.id::text, NULL::text, CASE WHEN t.kind = 'SOLD_OUT'"
                " THEN " GONE_EVENT " IS NOT NULL OR (t.at < $4 AND EXISTS (SELECT 1 FROM facts l"
                "  WHERE l.event_id = t.event_id AND l.kind = 'SOLD_OUT' AND l.at > t.at))"
                " ELSE t.relayed_at IS NOT NULL AND (t.at < $4 OR " GONE_EVENT " IS NOT NULL)"
                "  AND NOT EXISTS (SELECT 1 FROM reservations r WHERE r.id = t.reservation_id)"
                " END AND NOT EXISTS (" PUBLISHED " < (t.transaction, t.id)),"
                " " GONE_EVENT " FROM facts t"
                " WHERE t.id > $1::text::bigint ORDER BY t.id LIMIT $3",
        .remove = REMOVE_BY("bigint", "facts"),
        .age = AGE_ENDED,
    },
    {
        /* A user without seats needs no row. */
        .first = {"-1", ""},
        .scan = "SELECT t.event_id::text, t.user_id, t.seats = 0, " GONE_EVENT " FROM buyers t"
                " WHERE (t.event_id, t.user_id) > ($1::text::bigint, $2)"
                " ORDER BY t.event_id, t.user_id LIMIT $3",
        .remove = FREE("b.event_id, b.user_id",
                       "unnest($1::text[]::bigint[], $2::text[]) k(event_id, user_id)"
                       " JOIN buyers b ON b.event_id = k.event_id AND b.user_id = k.user_id"
                       " WHERE b.seats = 0 FOR UPDATE OF b") " DELETE FROM buyers b USING free f"
                                                             " WHERE b.event_id = f.event_id AND "
                                                             "b.user_id = f.user_id",
        .age = AGE_ENDED,
    },
    {
        /* A free seat's row carries its version, so it stays as long as its section. LATERAL, to
         * begin with the few sections, not with all the seats. */
        .first = NUMBERS,
        .scan = "SELECT c.id::text, t.seat_no::text, t.state = 'AVAILABLE', c.event_id"
                " FROM (SELECT id, event_id FROM sections"
                "  WHERE removed_version IS NOT NULL AND id >= $1::text::bigint ORDER BY id) c"
                " CROSS JOIN LATERAL (SELECT seat_no, state FROM seats WHERE section_id = c.id"
                "  AND (c.id > $1::text::bigint OR seat_no > $2::text::bigint)"
                "  ORDER BY seat_no LIMIT $3) t"
                " ORDER BY c.id, t.seat_no LIMIT $3",
        .remove =
            FREE("s.section_id, s.seat_no",
                 "unnest($1::text[]::bigint[], $2::text[]::bigint[]) k(section_id, seat_no)"
                 " JOIN seats s ON s.section_id = k.section_id AND s.seat_no = k.seat_no"
                 " FOR UPDATE OF s") " DELETE FROM seats s USING free f"
                                     " WHERE s.section_id = f.section_id AND s.seat_no = f.seat_no",
        .age = AGE_ENDED,
    },
    {
        .first = NUMBERS,
        .scan = "SELECT t.id::text, NULL::text, t.removed_version <= $5"
                " AND NOT EXISTS (SELECT 1 FROM seats WHERE section_id = t.id), t.event_id"
                " FROM sections t"
                " WHERE t.removed_version IS NOT NULL AND t.id > $1::text::bigint"
                " ORDER BY t.id LIMIT $3",
        .remove = REMOVE_BY("bigint", "sections"),
        .age = AGE_ENDED,
        .parent = true,
    },
    {
        .first = NUMBERS,
        .scan = "SELECT t.id::text, NULL::text, t.deleted_at < $6 - " LATE_MS " AND t.version <= $5"
                " AND NOT EXISTS (SELECT 1 FROM sections WHERE event_id = t.id)"
                " AND NOT EXISTS (SELECT 1 FROM queue_entries WHERE event_id = t.id), t.id"
                " FROM events t"
                " WHERE t.deleted_at IS NOT NULL AND t.id > $1::text::bigint"
                " ORDER BY t.id LIMIT $3",
        .remove = FREE_BY("bigint", "events") ", retired AS (DELETE FROM retired_entries"
                                              "  WHERE event_id IN (SELECT id FROM free))"
                                              " DELETE FROM events"
                                              " WHERE id IN (SELECT id FROM free)",
        .age = AGE_ENDED,
        .parent = true,
    },
};

#define TABLES (sizeof tables / sizeof *tables)

/* The last row that was looked at. A text is at most a user's name. */
struct cursor {
    char key[2][USER_ID_BYTES_MAX + 1];
};

struct pg_retention {
    struct pg_settings settings;
    char *url;
    int64_t audit_days;
    int64_t ended_days;
    int64_t interval_ns;
    int64_t pause_ns; /* after a round that removed nothing */
    pthread_t thread;
    struct outage *outage;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping; /* under lock */
    /* The thread's own: */
    struct pg db;
    bool is_ours; /* the connection has PG_LOCK_RETENTION */
    bool failing; /* so that a failure is logged once */
    size_t table; /* which table this round is at */
    struct cursor cursor;
    uint64_t round_removed;
    int64_t round_version;  /* removals up to this audit id have had a whole round */
    int64_t kept[KEPT_MAX]; /* events removed, of which rows must still stay */
    size_t kept_count;
};

/* --- one batch --- */

/* Rows that ended before this time may be removed. */
static int64_t pg_retention_before_ms(const struct pg_retention *r, enum age age) {
    int64_t days = age == AGE_AUDIT         ? r->audit_days
                   : age == AGE_IDEMPOTENCY ? IDEMPOTENCY_DAYS
                                            : r->ended_days;
    return days == 0 ? INT64_MIN : clock_wall_ms() - days * DAY_MS;
}

/* When the list is full, everything counts as kept. */
static bool pg_retention_is_kept(const struct pg_retention *r, int64_t event_key) {
    if (r->kept_count == KEPT_MAX) return true;
    for (size_t i = 0; i < r->kept_count; i++)
        if (r->kept[i] == event_key) return true;
    return false;
}

static void pg_retention_keep(struct pg_retention *r, int64_t event_key) {
    if (!pg_retention_is_kept(r, event_key)) r->kept[r->kept_count++] = event_key;
}

/* False: the key is longer than any that we write. */
static bool cursor_set(struct cursor *c, str first, str second) {
    return str_copy(first, c->key[0], sizeof c->key[0]) &&
           str_copy(second, c->key[1], sizeof c->key[1]);
}

static void pg_retention_table_begin(struct pg_retention *r, size_t table) {
    r->table = table;
    bool fits = table == TABLES || cursor_set(&r->cursor, str_of(tables[table].first[0]),
                                              str_of(tables[table].first[1]));
    assert(fits);
}

/* How many rows one batch may still examine and remove, and how many it has removed. */
struct batch {
    int64_t examine;
    int64_t remove;
    uint64_t removed;
};

/* Rows that may go, and the removed events that they are of. */
struct removable_rows {
    struct pg_array keys[2];
    int64_t events[REMOVED_PER_BATCH_MAX];
    size_t count;
};

static void pg_retention_choose(struct removable_rows *c, const struct pg_rows *rows) {
    pg_array_str(&c->keys[0], pg_str(rows, 0));
    pg_array_str(&c->keys[1], pg_str(rows, 1));
    c->events[c->count++] = pg_i64(rows, 3);
}

static bool remove_chosen(struct pg_retention *r, struct removable_rows *c, struct batch *batch) {
    int64_t changed = 0;
    if (c->count == 0) return true;
    if (!pg_run(&r->db, &changed, tables[r->table].remove, pg_cell_array(&c->keys[0]),
                pg_cell_array(&c->keys[1])))
        return false;
    batch->removed += (uint64_t)changed;
    for (size_t i = 0; (size_t)changed < c->count && i < c->count; i++)
        if (c->events[i] != 0) pg_retention_keep(r, c->events[i]);
    return true;
}

/* Examines the rows in order, as many as the batch may; *ended when that was all of the table. */
static bool pg_retention_examine(struct pg_retention *r, struct pg_rows *rows, struct batch *batch,
                                 struct removable_rows *c, bool *ended) {
    const struct retained_table *s = &tables[r->table];
    while (pg_next(rows)) {
        int64_t gone_event = pg_i64(rows, 3);
        bool goes = pg_bool(rows, 2) && !(s->parent && pg_retention_is_kept(r, gone_event));
        batch->examine--;
        if (goes) {
            pg_retention_choose(c, rows);
            batch->remove--;
        } else if (s->in_order) {
            break;
        } else if (gone_event != 0) {
            pg_retention_keep(r, gone_event);
        }
        if (batch->examine > 0 && batch->remove > 0) continue;
        *ended = false;
        return cursor_set(&r->cursor, pg_str(rows, 0), pg_str(rows, 1)) || pg_unexpected(&r->db);
    }
    return true;
}

/* Sweeps on in the current table; *ended when it is through with it. */
static bool pg_retention_scan(struct pg_retention *r, struct batch *batch, bool *ended) {
    const struct retained_table *s = &tables[r->table];
    struct pg_rows rows = {0};
    struct removable_rows chosen = {.count = 0};
    *ended = true;
    bool ok = pg_query(&r->db, &rows, s->scan, pg_cell_text(r->cursor.key[0]),
                       pg_cell_text(r->cursor.key[1]), pg_cell_i64(batch->examine),
                       pg_cell_i64(pg_retention_before_ms(r, s->age)),
                       pg_cell_i64(r->round_version), pg_cell_i64(clock_wall_ms()));
    if (ok) ok = pg_retention_examine(r, &rows, batch, &chosen, ended);
    pg_rows_clear(&rows);
    if (ok) ok = remove_chosen(r, &chosen, batch);
    for (int i = 0; i < 2; i++) pg_array_deinit(&chosen.keys[i]);
    return ok;
}

static bool pg_retention_begin_round(struct pg_retention *r) {
    r->kept_count = 0;
    r->round_removed = 0;
    r->round_version = 1;
    pg_retention_table_begin(r, 0);
    return pg_number_cells(&r->db, &r->round_version, "SELECT max(id) FROM audit", NULL, 0);
}

/* One bounded batch: removes a few hundred rows at most, in one transaction. */
static bool pg_retention_batch(struct pg_retention *r) {
    struct batch batch = {.examine = EXAMINED_PER_BATCH_MAX, .remove = REMOVED_PER_BATCH_MAX};
    bool ended = true;
    bool ok = pg_exec(&r->db, "BEGIN");
    if (ok && r->table == TABLES) ok = pg_retention_begin_round(r);
    while (ok && ended && r->table < TABLES) {
        ok = pg_retention_scan(r, &batch, &ended);
        if (ok && ended) pg_retention_table_begin(r, r->table + 1);
    }
    if (ok) ok = pg_exec(&r->db, "COMMIT");
    if (ok) count(COUNT_LEDGER_RETIRED_ROWS, batch.removed);
    r->round_removed += batch.removed;
    return ok;
}

/* --- the thread --- */

static bool is_stopping(struct pg_retention *r) {
    pthread_mutex_lock(&r->lock);
    bool stopping = r->stopping;
    pthread_mutex_unlock(&r->lock);
    return stopping;
}

/* False when it is time to stop. */
static bool pg_retention_wait(struct pg_retention *r, int64_t ns) {
    int64_t until_ns = clock_steady_ns() + ns;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int woken = 0;
    pthread_mutex_lock(&r->lock);
    while (!r->stopping && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&r->wake, &r->lock, &until);
    bool stopping = r->stopping;
    pthread_mutex_unlock(&r->lock);
    return !stopping;
}

/* A new round begins with every connection, because the progress that was noted may be out of date.
 */
static bool be_connected(struct pg_retention *r) {
    if (pg_alive(&r->db)) return true;
    enum pg_opening now = PG_OPENING;
    int64_t until_ns = clock_steady_ns() + ANSWER_WAIT_MS * INT64_C(1000000);
    r->is_ours = false;
    r->table = TABLES;
    pg_open_begin(&r->db, &r->settings);
    while (now == PG_OPENING && clock_steady_ns() < until_ns && !is_stopping(r))
        now = pg_open_step(&r->db, CONNECT_STEP_MS);
    if (now == PG_OPENED) return true;
    pg_close(&r->db);
    return false;
}

/* Whether this node is the one. */
static bool take_lock(struct pg_retention *r) {
    int64_t taken = 0;
    if (r->is_ours) return true;
    if (!pg_number(&r->db, &taken, "SELECT pg_try_advisory_lock($1::int, 0)",
                   pg_cell_i64(PG_LOCK_RETENTION)))
        return false;
    r->is_ours = taken != 0;
    return true;
}

static bool work(struct pg_retention *r) {
    bool ok = be_connected(r) && take_lock(r);
    if (ok && r->is_ours) ok = pg_retention_batch(r);
    if (ok) {
        r->failing = false;
        return true;
    }
    if (!is_stopping(r) && !pg_note_outage(r->outage, &r->db, r->url) && !r->failing)
        log_warn(msg("retention failed; old rows stay until it succeeds"), PG_SERVER(&r->db),
                 kv("error", r->db.failure.text));
    r->failing = true;
    pg_rollback(&r->db);
    r->table = TABLES;
    return false;
}

/* Where a whole round found nothing to remove, there will be little for a while. */
static int64_t pause_ns(const struct pg_retention *r, bool ok) {
    if (!ok || !r->is_ours) return r->interval_ns;
    if (r->table < TABLES) return r->interval_ns / UNFINISHED_SPEEDUP;
    return r->round_removed > 0 ? r->interval_ns : r->pause_ns;
}

static void *run_retention(void *arg) {
    struct pg_retention *r = arg;
    int64_t ns = r->interval_ns;
    while (pg_retention_wait(r, ns)) {
        bool ok = work(r);
        ns = pause_ns(r, ok);
    }
    pg_close(&r->db);
    return NULL;
}

static void pg_retention_release(struct pg_retention *r) {
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->url);
    mem_free(r);
}

struct pg_retention *pg_retention_start(const struct postgres_ledger_options *o) {
    struct pg_retention *r = mem_new(sizeof *r);
    r->url = mem_copy_str(str_of(o->url));
    r->settings = (struct pg_settings){.url = r->url,
                                       .wait_ms = ANSWER_WAIT_MS,
                                       .lock_timeout_ms = ANSWER_WAIT_MS / 2,
                                       .statement_timeout_ms = ANSWER_WAIT_MS};
    r->outage = o->outage;
    r->audit_days = o->retain_audit_days;
    r->ended_days = o->retain_ended_days;
    r->interval_ns = o->retention_interval_ms * 1000000;
    r->pause_ns = o->retention_pause_ms * 1000000;
    r->table = TABLES;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &steady);
    pthread_condattr_destroy(&steady);
    if (thread_start(&r->thread, "retention", THREAD_ALONE, run_retention, r) == 0) return r;
    log_error(msg("cannot start the retention thread; old rows are not removed"));
    pg_retention_release(r);
    return NULL;
}

void pg_retention_stop(struct pg_retention *r) {
    if (r == NULL) return;
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pg_retention_release(r);
}
