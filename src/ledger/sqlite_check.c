/*
 * The invariants that the ledger alone can show, each as two queries: how many rows it covers, and
 * the violations, one row each, as a text that names it. Every query is a separate snapshot, so
 * that none keeps the WAL of a running server from starting again at its beginning.
 *
 * The table constraints forbid most of these from the start. They are checked all the same, because
 * rows may have been changed by other means.
 */
#include <assert.h>

#include "ledger/sqlite_internal.h"

#define EXAMPLES_MAX 5
/* A running server ends a hold within this after its time. */
#define OVERDUE_MS_MAX 10000

#define LIVE "('HELD','CONFIRMED')"

/* The numbers in a reservation's `seats`; none when the text is not valid. */
#define LISTED                                                                                     \
    "json_each(CASE WHEN json_valid('[' || r.seats || ']') THEN '[' || r.seats || ']'"             \
    " ELSE '[]' END)"

/* As uuid_format writes it, and so as the key of a request is stored. */
#define UUID_TEXT(id)                                                                              \
    "lower(substr(hex(" id "), 1, 8) || '-' || substr(hex(" id "), 9, 4)"                          \
    " || '-' || substr(hex(" id "), 13, 4) || '-' || substr(hex(" id "), 17, 4)"                   \
    " || '-' || substr(hex(" id "), 21))"

/* Values of limits.h inside SQL. */
#define TEXT_OF(x) #x
#define NUMBER(x) TEXT_OF(x)

struct invariant {
    const char *name;
    const char *checked;    /* SQL: one number */
    const char *violations; /* SQL: a text per violation; a second column that is 1 says that the
                               row is not one yet, but overdue */
};

static const struct invariant invariants[] = {
    {
        "seat_sold_once",
        "SELECT coalesce(sum(seat_count), 0) FROM reservations WHERE status IN " LIVE,
        "SELECT 'section ' || r.section_id || ' seat ' || n.value || ' in ' || count(*)"
        " FROM reservations r, " LISTED " n WHERE r.status IN " LIVE
        " GROUP BY r.section_id, n.value HAVING count(DISTINCT r.id) > 1",
    },
    {
        "taken_seat_has_its_reservation",
        "SELECT count(*) FROM seats WHERE state <> 'AVAILABLE'",
        "SELECT 'section ' || s.section_id || ' seat ' || s.seat_no"
        " FROM seats s LEFT JOIN reservations r ON r.id = s.reservation_id"
        " WHERE s.state IN " LIVE " AND (r.id IS NULL OR r.status <> s.state"
        "  OR r.section_id <> s.section_id"
        "  OR instr(',' || r.seats || ',', ',' || s.seat_no || ',') = 0)",
    },
    {
        /* A listed seat that belongs to another reservation is one of the two above. */
        "reservation_has_its_seats",
        "SELECT count(*) FROM reservations WHERE status IN " LIVE,
        "SELECT 'reservation ' || hex(r.id) FROM reservations r WHERE r.status IN " LIVE
        " AND (r.seat_count <>"
        "   (SELECT count(DISTINCT value) FROM " LISTED ")"
        "  OR EXISTS (SELECT 1 FROM " LISTED " n"
        "   LEFT JOIN seats s ON s.section_id = r.section_id AND s.seat_no = n.value"
        "   WHERE s.state IS NULL OR s.state = 'AVAILABLE'))",
    },
    {
        "available_seat_is_free",
        "SELECT count(*) FROM seats WHERE state = 'AVAILABLE'",
        "SELECT 'section ' || section_id || ' seat ' || seat_no FROM seats"
        " WHERE state = 'AVAILABLE' AND reservation_id NOT NULL",
    },
    {
        /* A free seat's row may lie beyond: the section has shrunk since. */
        "seat_within_capacity",
        "SELECT count(*) FROM seats",
        "SELECT 'section ' || s.section_id || ' seat ' || s.seat_no"
        " FROM seats s JOIN sections c ON c.id = s.section_id"
        " WHERE s.seat_no < 1 OR (s.state IN " LIVE " AND s.seat_no > c.capacity)",
    },
    {
        /* Above the event's limit of today is no violation: it may have been lowered. */
        "user_has_no_more_than_allowed",
        "SELECT count(*) FROM reservations WHERE status IN " LIVE,
        "SELECT 'event ' || r.event_id || ' user ' || r.user_id FROM reservations r"
        " LEFT JOIN events e ON e.id = r.event_id WHERE r.status IN " LIVE
        " GROUP BY r.event_id, r.user_id"
        " HAVING sum(r.seat_count) > coalesce(max(e.max_per_user_ever), " NUMBER(PER_USER_MAX) ")",
    },
    {
        "section_has_what_is_counted",
        "SELECT count(*) FROM sections",
        "SELECT 'section ' || section_id FROM"
        " (SELECT id AS section_id, held, confirmed FROM sections UNION ALL"
        "  SELECT section_id, iif(status = 'HELD', -seat_count, 0),"
        "  iif(status = 'CONFIRMED', -seat_count, 0) FROM reservations WHERE status IN " LIVE ")"
        " GROUP BY section_id HAVING sum(held) <> 0 OR sum(confirmed) <> 0",
    },
    {
        /* An ACTIVE entry past its time is EXPIRED to every reader. */
        "one_live_entry_per_user",
        "SELECT count(*) FROM queue_entries WHERE status IN ('WAITING','ACTIVE')",
        "SELECT 'event ' || event_id || ' user ' || user_id FROM queue_entries"
        " WHERE status = 'WAITING' OR (status = 'ACTIVE' AND active_expires_at > :now_ms)"
        " GROUP BY event_id, user_id HAVING count(*) > 1",
    },
    {
        "entry_has_the_times_of_its_status",
        "SELECT count(*) FROM queue_entries",
        "SELECT 'event ' || event_id || ' entry ' || seq FROM queue_entries"
        " WHERE (status = 'WAITING' AND (admitted_at NOT NULL OR active_expires_at NOT NULL))"
        " OR (status = 'ACTIVE' AND (admitted_at IS NULL OR active_expires_at IS NULL))"
        " OR (status IN ('WAITING','ACTIVE')) <> (finished_at IS NULL)",
    },
    {
        "admission_follows_order",
        "SELECT count(*) FROM queue_entries WHERE admitted_at NOT NULL",
        "SELECT 'event ' || e.event_id || ' entry ' || e.seq || ' overtook ' || w.first"
        " FROM queue_entries e JOIN"
        " (SELECT event_id, lane, min(seq) AS first FROM queue_entries WHERE status = 'WAITING'"
        "  GROUP BY event_id, lane) w ON w.event_id = e.event_id AND w.lane = e.lane"
        " WHERE e.status NOT IN ('WAITING','VOID') AND e.admitted_at NOT NULL"
        "  AND e.seq > w.first",
    },
    {
        "reservation_has_the_times_of_its_status",
        "SELECT count(*) FROM reservations",
        "SELECT 'reservation ' || hex(id) FROM reservations"
        " WHERE (status = 'HELD' AND confirmed_at NOT NULL)"
        " OR (status = 'CONFIRMED' AND confirmed_at IS NULL)"
        " OR (status IN " LIVE ") <> (ended_at IS NULL)",
    },
    {
        "hold_ends_in_time",
        "SELECT count(*) FROM reservations WHERE status = 'HELD'",
        "SELECT 'reservation ' || hex(id),"
        " NOT :server_runs OR expires_at >= :now_ms - " NUMBER(
            OVERDUE_MS_MAX) " FROM reservations WHERE status = 'HELD' AND expires_at < :now_ms",
    },
    {
        "reservation_has_its_facts",
        "SELECT count(*) FROM reservations WHERE status <> 'VOID'",
        "SELECT 'reservation ' || hex(r.id) || ' lacks ' || k.kind FROM reservations r,"
        " (SELECT 'HELD' AS kind UNION ALL SELECT 'CONFIRMED' UNION ALL SELECT 'CANCELLED'"
        "  UNION ALL SELECT 'EXPIRED') k"
        " WHERE r.status <> 'VOID'"
        " AND (k.kind = 'HELD' OR k.kind = r.status"
        "  OR (k.kind = 'CONFIRMED' AND r.confirmed_at NOT NULL))"
        " AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.reservation_id = r.id"
        "  AND f.kind = k.kind)",
    },
    {
        "fact_stands_once",
        "SELECT count(*) FROM facts",
        "SELECT 'reservation ' || hex(reservation_id) || ' ' || kind FROM facts"
        " WHERE reservation_id NOT NULL GROUP BY reservation_id, kind HAVING count(*) > 1",
    },
    {
        /* Boards count facts; the checks above show that each fact is there, once. */
        "boards_count_what_is_live",
        "SELECT count(*) FROM facts WHERE reservation_id NOT NULL AND kind <> 'CONFIRMED'",
        "SELECT 'reservation ' || hex(r.id) || ' ' || r.status || ', fact ' || f.kind || ' of '"
        " || f.seat_count || ' seats' FROM facts f JOIN reservations r ON r.id = f.reservation_id"
        " WHERE f.kind <> 'CONFIRMED' AND (f.seat_count <> r.seat_count"
        "  OR (f.event_id <> r.event_id AND EXISTS (SELECT 1 FROM events e WHERE e.id = "
        "f.event_id))"
        "  OR (f.kind IN ('CANCELLED','EXPIRED') AND f.kind <> r.status"
        "   AND r.status IN ('HELD','CONFIRMED','CANCELLED','EXPIRED')))",
    },
    {
        "word_is_known",
        "SELECT (SELECT count(*) FROM seats) + (SELECT count(*) FROM queue_entries)"
        " + (SELECT count(*) FROM reservations) + (SELECT count(*) FROM facts)",
        "SELECT 'section ' || section_id || ' seat ' || seat_no || ' ' || state FROM seats"
        " WHERE state NOT IN ('AVAILABLE','HELD','CONFIRMED') UNION ALL"
        " SELECT 'event ' || event_id || ' entry ' || seq || ' ' || status FROM queue_entries"
        " WHERE status NOT IN ('WAITING','ACTIVE','COMPLETED','LEFT','EXPIRED','VOID') UNION ALL"
        " SELECT 'reservation ' || hex(id) || ' ' || status FROM reservations"
        " WHERE status NOT IN ('HELD','CONFIRMED','CANCELLED','EXPIRED','VOID') UNION ALL"
        " SELECT 'fact ' || id || ' ' || kind FROM facts"
        " WHERE kind NOT IN ('HELD','CONFIRMED','CANCELLED','EXPIRED','SOLD_OUT')",
    },
    {
        /* References that the tables do not declare. */
        "reference_leads_somewhere",
        "SELECT (SELECT count(*) FROM reservations) + (SELECT count(*) FROM facts)"
        " + (SELECT count(*) FROM requests)",
        "SELECT 'reservation ' || hex(r.id) || ' section ' || r.section_id FROM reservations r"
        " WHERE NOT EXISTS (SELECT 1 FROM sections c WHERE c.id = r.section_id"
        "  AND c.event_id = r.event_id) UNION ALL"
        " SELECT 'request ' || hex(q.id) || ' section ' || q.section_id FROM requests q"
        " WHERE NOT EXISTS (SELECT 1 FROM sections c WHERE c.id = q.section_id"
        "  AND c.event_id = q.event_id) UNION ALL"
        " SELECT 'fact ' || f.id || ' reservation ' || hex(f.reservation_id) FROM facts f"
        " WHERE f.reservation_id NOT NULL AND NOT EXISTS"
        "  (SELECT 1 FROM reservations r WHERE r.id = f.reservation_id) UNION ALL"
        " SELECT 'fact ' || f.id || ' event ' || f.event_id FROM facts f"
        " WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = f.event_id)",
    },
    {
        /* A request that succeeded has its reservation, which retention keeps for a day at least;
         * one for which a hold was made has not failed; an undecided one is in a partition. */
        "request_has_its_result",
        "SELECT count(*) FROM requests",
        "SELECT 'request ' || hex(q.id) || ' reservation ' || hex(q.reservation_id)"
        " FROM requests q LEFT JOIN reservations r ON r.id = q.reservation_id"
        " WHERE q.status = 'SUCCESS' AND (r.user_id <> q.user_id OR r.event_id <> q.event_id"
        "  OR r.section_id <> q.section_id OR r.seat_count <> q.quantity"
        "  OR (r.id IS NULL AND q.finished_at > :now_ms - 86400000 AND EXISTS"
        "   (SELECT 1 FROM sections c WHERE c.id = q.section_id AND c.removed_version IS NULL)))"
        " UNION ALL"
        " SELECT 'request ' || hex(q.id) || ' ' || q.status || ', but was held'"
        " FROM requests q JOIN idempotency i ON i.user_id = q.user_id"
        "  AND i.route = '" REQUEST_ROUTE "' AND i.key = " UUID_TEXT(
            "q.id") " WHERE i.reservation_id <> zeroblob(16)"
                    "  AND q.finished_at NOT NULL AND q.status <> 'SUCCESS' UNION ALL"
                    " SELECT 'request ' || hex(q.id) || ' partition ' || q.partition FROM requests "
                    "q"
                    " WHERE q.finished_at IS NULL AND (q.status <> 'PENDING' OR q.partition < 0"
                    "  OR q.partition >= " NUMBER(REQUEST_PARTITIONS) ")",
    },
    {
        /* A hold that was made for a request is its user's. */
        "request_is_held_by_its_user",
        "SELECT count(*) FROM idempotency WHERE route = '" REQUEST_ROUTE "'",
        "SELECT 'request ' || hex(q.id) || ' reservation ' || hex(r.id) || ' of another user'"
        " FROM requests q JOIN idempotency i ON i.route = '" REQUEST_ROUTE "'"
        "  AND i.key = " UUID_TEXT("q.id") " JOIN reservations r ON r.id = i.reservation_id"
                                           " WHERE i.user_id <> q.user_id AND r.status IN " LIVE,
    },
    {
        "foreign_keys",
        "SELECT (SELECT count(*) FROM sections) + (SELECT count(*) FROM seats)"
        " + (SELECT count(*) FROM queue_entries)",
        "SELECT \"table\" || ' without ' || parent FROM pragma_foreign_key_check",
    },
    {
        "file_is_sound",
        "SELECT page_count FROM pragma_page_count",
        "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    },
};

static int bind_named(sqlite3_stmt *rows, const char *name, int64_t value) {
    int at = sqlite3_bind_parameter_index(rows, name);
    return at == 0 ? SQLITE_OK : sqlite3_bind_int64(rows, at, value);
}

static void take_violation(sqlite3_stmt *rows, struct ledger_finding *f, struct buf *examples) {
    if (sqlite3_column_count(rows) > 1 && sqlite3_column_int(rows, 1) != 0) {
        f->overdue++;
        return;
    }
    if (f->violations++ >= EXAMPLES_MAX) return;
    if (f->violations > 1) buf_add(examples, STR("; "));
    buf_add(examples, column_str(rows, 0));
}

static int sqlite_check_one(struct db *db, const struct invariant *i, bool server_runs,
                            int64_t now_ms, struct ledger_finding *f, struct buf *examples) {
    sqlite3_stmt *rows = NULL;
    int rc = db_number_cells(db, &f->checked, i->checked, NULL, 0);
    if (rc == SQLITE_OK) rc = db_statement(db, i->violations, &rows);
    if (rc == SQLITE_OK) rc = bind_named(rows, ":now_ms", now_ms);
    if (rc == SQLITE_OK) rc = bind_named(rows, ":server_runs", server_runs);
    while (db_next(rows, &rc)) take_violation(rows, f, examples);
    return rc;
}

int check_all(struct db *db, bool server_runs, int64_t now_ms,
              void (*on_finding)(void *, const struct ledger_finding *), void *to) {
    /* So that file_is_sound speaks of the file; what the constraints say has its own rows. */
    int rc = db_exec(db, "PRAGMA ignore_check_constraints = ON");
    struct buf examples = {0};
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof invariants / sizeof *invariants; i++) {
        struct ledger_finding f = {.invariant = str_of(invariants[i].name)};
        buf_clear(&examples);
        rc = sqlite_check_one(db, &invariants[i], server_runs, now_ms, &f, &examples);
        f.examples = buf_str(&examples);
        if (rc == SQLITE_OK) on_finding(to, &f);
    }
    buf_deinit(&examples);
    return rc;
}
