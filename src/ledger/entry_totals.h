/*
 * entry_totals: SQL that counts what has become of the entries of a queue, the same for every
 * database. Entries that are still in queue_entries are counted there; those that retention removes
 * are added to retired_entries in the same transaction, so no total ever falls. VOID entries were
 * undone before any client got them, and are not counted.
 */
#ifndef ADMITONE_LEDGER_ENTRY_TOTALS_H
#define ADMITONE_LEDGER_ENTRY_TOTALS_H

#define ENTRY_TOTALS_COLUMNS                                                                       \
    "event_id, entered, admitted, completed, gone, expired, waited_ms, waited_ms_max"

/* One row for each event of those queue_entries for which `where` holds. */
#define ENTRY_TOTALS_OF(where)                                                                     \
    "SELECT event_id, count(*) AS entered, count(admitted_at) AS admitted,"                        \
    " count(CASE WHEN status = 'COMPLETED' THEN 1 END) AS completed,"                              \
    " count(CASE WHEN status = 'LEFT' THEN 1 END) AS gone,"                                        \
    " count(CASE WHEN status = 'EXPIRED' THEN 1 END) AS expired,"                                  \
    " coalesce(CAST(sum(CASE WHEN admitted_at > joined_at THEN admitted_at - joined_at END)"       \
    "  AS BIGINT), 0) AS waited_ms,"                                                               \
    " coalesce(max(CASE WHEN admitted_at > joined_at THEN admitted_at - joined_at END), 0)"        \
    "  AS waited_ms_max"                                                                           \
    " FROM queue_entries WHERE status <> 'VOID' AND " where " GROUP BY event_id"

/* Of every event that has had any: in order of events, the columns as above. */
#define ENTRY_TOTALS_READ                                                                          \
    "SELECT e.id, CAST(sum(entered) AS BIGINT), CAST(sum(admitted) AS BIGINT),"                    \
    " CAST(sum(completed) AS BIGINT), CAST(sum(gone) AS BIGINT), CAST(sum(expired) AS BIGINT),"    \
    " CAST(sum(waited_ms) AS BIGINT), max(waited_ms_max)"                                          \
    " FROM events e JOIN (" ENTRY_TOTALS_OF(                                                       \
        "true") " UNION ALL SELECT " ENTRY_TOTALS_COLUMNS                                          \
                "  FROM retired_entries) t ON t.event_id = e.id"                                   \
                " WHERE e.deleted_at IS NULL GROUP BY e.id ORDER BY e.id"

/* Before the rows for which `where` holds are removed. */
#define ENTRY_TOTALS_RETIRE(where)                                                                 \
    "INSERT INTO retired_entries(" ENTRY_TOTALS_COLUMNS ") " ENTRY_TOTALS_OF(                      \
        where) " ON CONFLICT (event_id) DO UPDATE SET"                                             \
               " entered = retired_entries.entered + excluded.entered,"                            \
               " admitted = retired_entries.admitted + excluded.admitted,"                         \
               " completed = retired_entries.completed + excluded.completed,"                      \
               " gone = retired_entries.gone + excluded.gone,"                                     \
               " expired = retired_entries.expired + excluded.expired,"                            \
               " waited_ms = retired_entries.waited_ms + excluded.waited_ms,"                      \
               " waited_ms_max = CASE WHEN retired_entries.waited_ms_max > excluded.waited_ms_max" \
               "  THEN retired_entries.waited_ms_max ELSE excluded.waited_ms_max END"

#endif
