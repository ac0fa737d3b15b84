/*
 * The invariants that the ledger alone can show, under the names that sqlite_check.c gives them:
 * each is two queries: the number of rows that it covers, and the violations, one row each, as a
 * text that names the violation. Every query is one statement, so it sees one snapshot while the
 * cluster keeps working, and no snapshot is kept open for long.
 *
 * The table constraints forbid most of these from the start. They are checked all the same, because
 * rows may have been changed by other means.
 */
#include <assert.h>

#include "ledger/postgres_internal.h"

/* A running server ends a hold within this after its time. */
#define OVERDUE_MS_MAX 10000

#define LIVE "('HELD','CONFIRMED')"

/* As the other ledger writes them: 32 digits. */
#define HEX(id) "upper(replace(" id "::text, '-', ''))"

/* The numbers in a reservation's `seats`; none when the text is not valid. */
#define LISTED                                                                                     \
    "unnest(CASE WHEN r.seats ~ '^[0-9]{1,9}(,[0-9]{1,9})*$'"                                      \
    " THEN string_to_array(r.seats, ',')::bigint[] ELSE '{}' END)"

/* Values of limits.h inside SQL. */
#define TEXT_OF(x) #x
#define NUMBER(x) TEXT_OF(x)

struct invariant {
    const char *name;
    const char *checked;    /* SQL: one number */
    const char *violations; /* SQL: a text per violation, and whether the row is not one yet, but
                               overdue; `given` has now_ms and server_runs */
};

/* Both queries become one, which counts here what it need not send. */
#define BEGIN_CHECK                                                                                \
    "WITH given AS (SELECT $1::bigint AS now_ms, $2::bigint <> 0 AS server_runs),"                 \
    " violation(example, overdue) AS ("
#define END_CHECK                                                                                  \
    ") SELECT count(*) FILTER (WHERE NOT overdue), count(*) FILTER (WHERE overdue),"               \
    " (SELECT string_agg(example, '; ') FROM (SELECT example FROM violation WHERE NOT overdue"     \
    "  ORDER BY example COLLATE \"C\" LIMIT 5) few) FROM violation"
#define VIOLATIONS(sql) BEGIN_CHECK sql END_CHECK

static const struct invariant invariants[] = {
    {
        "seat_sold_once",
        "SELECT coalesce(sum(seat_count), 0)::bigint FROM reservations WHERE status IN " LIVE,
        VIOLATIONS("SELECT 'section ' || r.section_id || ' seat ' || n || ' in ' || count(*), false"
                   " FROM reservations r, " LISTED " n WHERE r.status IN " LIVE
                   " GROUP BY r.section_id, n HAVING count(DISTINCT r.id) > 1"),
    },
    {
        "taken_seat_has_its_reservation",
        "SELECT count(*) FROM seats WHERE state <> 'AVAILABLE'",
        VIOLATIONS("SELECT 'section ' || s.section_id || ' seat ' || s.seat_no, false"
                   " FROM seats s LEFT JOIN reservations r ON r.id = s.reservation_id"
                   " WHERE s.state IN " LIVE " AND (r.id IS NULL OR r.status <> s.state"
                   "  OR r.section_id <> s.section_id"
                   "  OR strpos(',' || r.seats || ',', ',' || s.seat_no || ',') = 0)"),
    },
    {
        /* A listed seat that belongs to another reservation is one of the two above. */
        "reservation_has_its_seats",
        "SELECT count(*) FROM reservations WHERE status IN " LIVE,
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "r.id") ", false FROM reservations r"
                    " WHERE r.status IN " LIVE " AND (r.seat_count <>"
                    "   (SELECT count(DISTINCT n) FROM " LISTED " n)"
                    "  OR EXISTS (SELECT 1 FROM " LISTED " n"
                    "   LEFT JOIN seats s ON s.section_id = r.section_id AND s.seat_no = n"
                    "   WHERE s.state IS NULL OR s.state = 'AVAILABLE'))"),
    },
    {
        "available_seat_is_free",
        "SELECT count(*) FROM seats WHERE state = 'AVAILABLE'",
        VIOLATIONS("SELECT 'section ' || section_id || ' seat ' || seat_no, false FROM seats"
                   " WHERE state = 'AVAILABLE' AND reservation_id IS NOT NULL"),
    },
    {
        /* A free seat's row may lie beyond: the section has shrunk since. */
        "seat_within_capacity",
        "SELECT count(*) FROM seats",
        VIOLATIONS("SELECT 'section ' || s.section_id || ' seat ' || s.seat_no, false"
                   " FROM seats s JOIN sections c ON c.id = s.section_id"
                   " WHERE s.seat_no < 1 OR (s.state IN " LIVE " AND s.seat_no > c.capacity)"),
    },
    {
        /* Above the event's limit of today is no violation: it may have been lowered. */
        "user_has_no_more_than_allowed",
        "SELECT count(*) FROM reservations WHERE status IN " LIVE,
        VIOLATIONS("SELECT 'event ' || r.event_id || ' user ' || r.user_id, false"
                   " FROM reservations r LEFT JOIN events e ON e.id = r.event_id"
                   " WHERE r.status IN " LIVE " GROUP BY r.event_id, r.user_id"
                   " HAVING sum(r.seat_count) >"
                   "  coalesce(max(e.max_per_user_ever), " NUMBER(PER_USER_MAX) ")"),
    },
    {
        "section_has_what_is_counted",
        "SELECT count(*) FROM sections",
        VIOLATIONS("SELECT 'section ' || section_id, false FROM"
                   " (SELECT id AS section_id, held, confirmed FROM sections UNION ALL"
                   "  SELECT section_id, CASE status WHEN 'HELD' THEN -seat_count ELSE 0 END,"
                   "  CASE status WHEN 'CONFIRMED' THEN -seat_count ELSE 0 END"
                   "  FROM reservations WHERE status IN " LIVE ") counted"
                   " GROUP BY section_id HAVING sum(held) <> 0 OR sum(confirmed) <> 0"),
    },
    {
        "buyer_has_what_is_counted",
        "SELECT (SELECT count(*) FROM buyers)"
        " + (SELECT count(*) FROM reservations WHERE status IN " LIVE ")",
        VIOLATIONS("SELECT 'event ' || event_id || ' user ' || user_id, false FROM"
                   " (SELECT event_id, user_id, seats, held FROM buyers UNION ALL"
                   "  SELECT event_id, user_id, -seat_count,"
                   "  CASE status WHEN 'HELD' THEN -seat_count ELSE 0 END"
                   "  FROM reservations WHERE status IN " LIVE ") counted"
                   " GROUP BY event_id, user_id HAVING sum(seats) <> 0 OR sum(held) <> 0"),
    },
    {
        /* An ACTIVE entry past its time is EXPIRED to every reader. */
        "one_live_entry_per_user",
        "SELECT count(*) FROM queue_entries WHERE status IN ('WAITING','ACTIVE')",
        VIOLATIONS("SELECT 'event ' || event_id || ' user ' || user_id, false"
                   " FROM queue_entries, given"
                   " WHERE status = 'WAITING' OR (status = 'ACTIVE' AND active_expires_at > now_ms)"
                   " GROUP BY event_id, user_id HAVING count(*) > 1"),
    },
    {
        "entry_has_the_times_of_its_status",
        "SELECT count(*) FROM queue_entries",
        VIOLATIONS("SELECT 'event ' || event_id || ' entry ' || seq, false FROM queue_entries"
                   " WHERE (status = 'WAITING'"
                   "  AND (admitted_at IS NOT NULL OR active_expires_at IS NOT NULL))"
                   " OR (status = 'ACTIVE' AND (admitted_at IS NULL OR active_expires_at IS NULL))"
                   " OR (status IN ('WAITING','ACTIVE')) <> (finished_at IS NULL)"),
    },
    {
        "admission_follows_order",
        "SELECT count(*) FROM queue_entries WHERE admitted_at IS NOT NULL",
        VIOLATIONS("SELECT 'event ' || e.event_id || ' entry ' || e.seq || ' overtook ' || w.first,"
                   " false FROM queue_entries e JOIN"
                   " (SELECT event_id, lane, min(seq) AS first FROM queue_entries"
                   "  WHERE status = 'WAITING' GROUP BY event_id, lane) w"
                   " ON w.event_id = e.event_id AND w.lane = e.lane"
                   " WHERE e.status NOT IN ('WAITING','VOID') AND e.admitted_at IS NOT NULL"
                   "  AND e.seq > w.first"),
    },
    {
        "reservation_has_the_times_of_its_status",
        "SELECT count(*) FROM reservations",
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "id") ", false FROM reservations"
                  " WHERE (status = 'HELD' AND confirmed_at IS NOT NULL)"
                  " OR (status = 'CONFIRMED' AND confirmed_at IS NULL)"
                  " OR (status IN " LIVE ") <> (ended_at IS NULL)"),
    },
    {
        "hold_ends_in_time",
        "SELECT count(*) FROM reservations WHERE status = 'HELD'",
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "id") ","
                  " NOT server_runs OR expires_at >= now_ms - " NUMBER(
                      OVERDUE_MS_MAX) " FROM reservations, given WHERE status = 'HELD' AND "
                                      "expires_at < now_ms"),
    },
    {
        "reservation_has_its_facts",
        "SELECT count(*) FROM reservations WHERE status <> 'VOID'",
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "r.id") " || ' lacks ' || k.kind, false"
                    " FROM reservations r,"
                    " (VALUES ('HELD'), ('CONFIRMED'), ('CANCELLED'), ('EXPIRED')) k(kind)"
                    " WHERE r.status <> 'VOID'"
                    " AND (k.kind = 'HELD' OR k.kind = r.status"
                    "  OR (k.kind = 'CONFIRMED' AND r.confirmed_at IS NOT NULL))"
                    " AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.reservation_id = r.id"
                    "  AND f.kind = k.kind)"),
    },
    {
        "fact_stands_once",
        "SELECT count(*) FROM facts",
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "reservation_id") " || ' ' || kind, false"
                              " FROM facts WHERE reservation_id IS NOT NULL"
                              " GROUP BY reservation_id, kind HAVING count(*) > 1"),
    },
    {
        /* Boards count facts; the checks above show that each fact is there, once. */
        "boards_count_what_is_live",
        "SELECT count(*) FROM facts WHERE reservation_id IS NOT NULL AND kind <> 'CONFIRMED'",
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "r.id") " || ' ' || r.status || ', fact ' || f.kind || ' of '"
                    " || f.seat_count || ' seats', false"
                    " FROM facts f JOIN reservations r ON r.id = f.reservation_id"
                    " WHERE f.kind <> 'CONFIRMED' AND (f.seat_count <> r.seat_count"
                    "  OR (f.event_id <> r.event_id"
                    "   AND EXISTS (SELECT 1 FROM events e WHERE e.id = f.event_id))"
                    "  OR (f.kind IN ('CANCELLED','EXPIRED') AND f.kind <> r.status"
                    "   AND r.status IN ('HELD','CONFIRMED','CANCELLED','EXPIRED')))"),
    },
    {
        "word_is_known",
        "SELECT (SELECT count(*) FROM seats) + (SELECT count(*) FROM queue_entries)"
        " + (SELECT count(*) FROM reservations) + (SELECT count(*) FROM facts)",
        VIOLATIONS(
            "SELECT 'section ' || section_id || ' seat ' || seat_no || ' ' || state, false"
            " FROM seats WHERE state NOT IN ('AVAILABLE','HELD','CONFIRMED') UNION ALL"
            " SELECT 'event ' || event_id || ' entry ' || seq || ' ' || status, false"
            " FROM queue_entries WHERE status NOT IN"
            "  ('WAITING','ACTIVE','COMPLETED','LEFT','EXPIRED','VOID') UNION ALL"
            " SELECT 'reservation ' || " HEX(
                "id") " || ' ' || status, false"
                      " FROM reservations WHERE status NOT IN"
                      "  ('HELD','CONFIRMED','CANCELLED','EXPIRED','VOID') UNION ALL"
                      " SELECT 'fact ' || id || ' ' || kind, false FROM facts"
                      " WHERE kind NOT IN ('HELD','CONFIRMED','CANCELLED','EXPIRED','SOLD_OUT')"),
    },
    {
        /* References that the tables do not declare. While a request is only in another feed (it
         * has no seq), its deleted event may be removed. */
        "reference_leads_somewhere",
        "SELECT (SELECT count(*) FROM reservations) + (SELECT count(*) FROM facts)"
        " + (SELECT count(*) FROM requests)",
        VIOLATIONS("SELECT 'reservation ' || " HEX(
            "r.id") " || ' section ' || r.section_id, false"
                    " FROM reservations r WHERE NOT EXISTS (SELECT 1 FROM sections c"
                    "  WHERE c.id = r.section_id AND c.event_id = r.event_id) UNION ALL"
                    " SELECT 'request ' || " HEX(
                        "q.id") " || ' section ' || q.section_id, false"
                                " FROM requests q WHERE NOT EXISTS (SELECT 1 FROM sections c"
                                "  WHERE c.id = q.section_id AND c.event_id = q.event_id)"
                                "  AND NOT (q.seq IS NULL AND q.status = 'FAIL_NOT_FOUND')"
                                " UNION ALL"
                                " SELECT 'fact ' || f.id || ' reservation ' || " HEX(
                                    "f.reservation_id") ", false"
                                                        " FROM facts f WHERE f.reservation_id IS "
                                                        "NOT NULL AND NOT EXISTS"
                                                        "  (SELECT 1 FROM reservations r WHERE "
                                                        "r.id = f.reservation_id) UNION ALL"
                                                        " SELECT 'fact ' || f.id || ' event ' || "
                                                        "f.event_id, false FROM facts f"
                                                        " WHERE NOT EXISTS (SELECT 1 FROM events e "
                                                        "WHERE e.id = f.event_id)"),
    },
    {
        /* As in sqlite_check.c. */
        "request_has_its_result",
        "SELECT count(*) FROM requests",
        VIOLATIONS("SELECT 'request ' || " HEX("q.id") " || ' reservation ' || " HEX(
            "q.reservation_id") ", false"
                                " FROM requests q LEFT JOIN reservations r ON r.id = "
                                "q.reservation_id"
                                " WHERE q.status = 'SUCCESS' AND (r.user_id <> q.user_id OR "
                                "r.event_id <> q.event_id"
                                "  OR r.section_id <> q.section_id OR r.seat_count <> q.quantity"
                                "  OR (r.id IS NULL AND q.finished_at > (SELECT now_ms FROM given) "
                                "- 86400000"
                                "   AND EXISTS (SELECT 1 FROM sections c"
                                "    WHERE c.id = q.section_id AND c.removed_version IS NULL))) "
                                "UNION ALL"
                                " SELECT 'request ' || " HEX(
                                    "q.id") " || ' ' || q.status || ', but was held', false"
                                            " FROM idempotency i JOIN requests q ON q.id::text = "
                                            "i.key"
                                            " WHERE i.route = '" REQUEST_ROUTE "'"
                                            "  AND i.reservation_id <> "
                                            "'00000000-0000-0000-0000-000000000000'"
                                            "  AND q.finished_at IS NOT NULL AND q.status <> "
                                            "'SUCCESS' UNION ALL"
                                            " SELECT 'request ' || " HEX(
                                                "q.id") " || ' partition ' || q.partition, false"
                                                        " FROM requests q WHERE q.finished_at IS "
                                                        "NULL AND (q.status <> 'PENDING'"
                                                        "  OR q.partition < 0 OR q.partition "
                                                        ">= " NUMBER(REQUEST_PARTITIONS) ")"),
    },
    {
        "request_is_held_by_its_user",
        "SELECT count(*) FROM idempotency WHERE route = '" REQUEST_ROUTE "'",
        VIOLATIONS("SELECT 'request ' || " HEX("q.id") " || ' reservation ' || " HEX(
            "r.id") " || ' of another user', false"
                    " FROM requests q JOIN idempotency i ON i.route = '" REQUEST_ROUTE "'"
                    "  AND i.key = q.id::text JOIN reservations r ON r.id = i.reservation_id"
                    " WHERE i.user_id <> q.user_id AND r.status IN " LIVE),
    },
    {
        "foreign_keys",
        "SELECT (SELECT count(*) FROM sections) + (SELECT count(*) FROM seats)"
        " + (SELECT count(*) FROM queue_entries)",
        VIOLATIONS("SELECT 'sections without events', false FROM sections c"
                   " WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = c.event_id) UNION ALL"
                   " SELECT 'seats without sections', false FROM seats s"
                   " WHERE NOT EXISTS (SELECT 1 FROM sections c WHERE c.id = s.section_id)"
                   " UNION ALL"
                   " SELECT 'queue_entries without events', false FROM queue_entries q"
                   " WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = q.event_id)"),
    },
    {
        /* Problems that PostgreSQL itself has noted: constraints that are not validated, indexes
         * that are not valid, and pages with a wrong checksum. */
        "file_is_sound",
        "SELECT coalesce(sum(pg_relation_size(oid)), 0)::bigint"
        " / current_setting('block_size')::bigint FROM pg_class"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i')",
        VIOLATIONS("SELECT 'constraint ' || conname || ' is not validated', false"
                   " FROM pg_constraint WHERE connamespace = current_schema()::regnamespace"
                   "  AND NOT convalidated UNION ALL"
                   " SELECT 'index ' || c.relname || ' is not valid', false"
                   " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
                   " WHERE c.relnamespace = current_schema()::regnamespace"
                   "  AND NOT (i.indisvalid AND i.indisready) UNION ALL"
                   " SELECT checksum_failures || ' pages with a wrong checksum', false"
                   " FROM pg_stat_database"
                   " WHERE datname = current_database() AND checksum_failures > 0"),
    },
};

static bool pg_check_one(struct pg *db, const struct invariant *i, bool server_runs, int64_t now_ms,
                         struct ledger_finding *f, struct buf *examples) {
    struct pg_rows rows = {0};
    if (!pg_number_cells(db, &f->checked, i->checked, NULL, 0) ||
        !pg_query(db, &rows, i->violations, pg_cell_i64(now_ms), pg_cell_i64(server_runs)))
        return false;
    while (pg_next(&rows)) {
        f->violations = pg_i64(&rows, 0);
        f->overdue = pg_i64(&rows, 1);
        buf_add(examples, pg_str(&rows, 2));
    }
    return true;
}

bool pg_check_all(struct pg *db, bool server_runs, int64_t now_ms,
                  void (*on_finding)(void *, const struct ledger_finding *), void *to) {
    struct buf examples = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof invariants / sizeof *invariants; i++) {
        struct ledger_finding f = {.invariant = str_of(invariants[i].name)};
        buf_clear(&examples);
        ok = pg_check_one(db, &invariants[i], server_runs, now_ms, &f, &examples);
        f.examples = buf_str(&examples);
        if (ok) on_finding(to, &f);
    }
    buf_deinit(&examples);
    return ok;
}
