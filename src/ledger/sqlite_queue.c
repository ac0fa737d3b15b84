/* The records of queues: enter, admit, end, and the reading of entries. */
#include <assert.h>

#include "base/mem.h"
#include "ledger/entry_totals.h"
#include "ledger/sqlite_internal.h"

/* Only an admitted entry completes. */
static const char end_live[] =
    "UPDATE queue_entries SET status = ?3, finished_at = ?4 WHERE event_id = ?1 AND seq = ?2"
    " AND (status = 'ACTIVE' OR (status = 'WAITING' AND ?3 <> 'COMPLETED'))";

static int end_one(struct db *db, int64_t event_key, uint64_t seq, enum entry_status final,
                   int64_t now_ms) {
    return db_run(db, end_live, cell_i64(event_key), cell_i64((int64_t)seq),
                  cell_str(entry_status_words[final]), cell_i64(now_ms));
}

/* No row was inserted: the event is gone, or the number is there already, of the same entry, of
 * another one, or of an undone one. */
static int check_refused(struct db *db, struct ledger_enter *enter) {
    sqlite3_stmt *row = NULL;
    int rc = db_query(db, &row,
                      "SELECT user_id FROM queue_entries"
                      " WHERE event_id = ?1 AND seq = ?2 AND status <> 'VOID'",
                      cell_i64(enter->event_key), cell_i64((int64_t)enter->seq));
    bool same = false;
    while (db_next(row, &rc)) same = str_eq(column_str(row, 0), enter->user);
    if (rc != SQLITE_OK || same) return rc;
    int64_t exists = 0;
    rc = db_number(db, &exists, "SELECT 1 FROM events WHERE id = ?1", cell_i64(enter->event_key));
    enter->record.result = exists == 0 ? ERR_EVENT_NOT_FOUND : ERR_CONFLICT;
    return rc;
}

int enter_apply(struct db *db, struct ledger_enter *enter) {
    assert(enter->status == ENTRY_WAITING || enter->status == ENTRY_ACTIVE);
    bool active = enter->status == ENTRY_ACTIVE;
    struct cell none = {.kind = CELL_NULL};
    enter->record.result = ERR_OK;
    int rc =
        db_run(db,
               "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at,"
               " admitted_at, active_expires_at)"
               " SELECT id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM events WHERE id = ?1"
               " ON CONFLICT DO NOTHING",
               cell_i64(enter->event_key), cell_i64((int64_t)enter->seq), cell_str(enter->user),
               cell_i64(enter->lane), cell_str(entry_status_words[enter->status]),
               cell_i64(enter->joined_ms), active ? cell_i64(enter->joined_ms) : none,
               active ? cell_i64(enter->expires_ms) : none);
    if (rc == SQLITE_OK && sqlite3_changes(db->handle) == 0) return check_refused(db, enter);
    if (rc == SQLITE_OK && enter->closes > 0)
        rc = end_one(db, enter->event_key, enter->closes, ENTRY_EXPIRED, enter->joined_ms);
    if (rc == SQLITE_OK) rc = audit_add_act(db, enter->note, enter->joined_ms);
    return rc;
}

int enter_void_apply(struct db *db, struct ledger_enter_void *undo) {
    int64_t there = 0;
    undo->record.result = ERR_OK;
    int rc =
        db_run(db,
               "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at,"
               " finished_at) SELECT id, ?2, '', 0, 'VOID', ?3, ?3 FROM events WHERE id = ?1"
               " ON CONFLICT DO NOTHING",
               cell_i64(undo->event_key), cell_i64((int64_t)undo->seq), cell_i64(undo->now_ms));
    if (rc == SQLITE_OK)
        rc = db_number(db, &there,
                       "SELECT 1 FROM queue_entries"
                       " WHERE event_id = ?1 AND seq = ?2 AND status <> 'VOID'",
                       cell_i64(undo->event_key), cell_i64((int64_t)undo->seq));
    undo->voided = there == 0;
    return rc;
}

int admit_apply(struct db *db, struct ledger_admit *admit) {
    int rc = SQLITE_OK;
    admit->record.result = ERR_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < admit->count; i++) {
        const struct entry_change *e = &admit->entries[i];
        rc = db_run(db,
                    "UPDATE queue_entries SET status = 'ACTIVE',"
                    " admitted_at = coalesce(admitted_at, ?3), active_expires_at = ?4"
                    " WHERE event_id = ?1 AND seq = ?2 AND (status = 'WAITING'"
                    " OR (status = 'ACTIVE' AND active_expires_at = ?4))",
                    cell_i64(admit->event_key), cell_i64((int64_t)e->seq), cell_i64(admit->now_ms),
                    cell_i64(e->expires_ms));
        admit->kept[i] = sqlite3_changes(db->handle) > 0;
    }
    return rc;
}

int end_apply(struct db *db, struct ledger_end *end) {
    assert(end->final != ENTRY_WAITING && end->final != ENTRY_ACTIVE && end->final != ENTRY_NONE);
    end->record.result = ERR_OK;
    int rc = end_cancels_apply(db, end);
    for (size_t i = 0; rc == SQLITE_OK && i < end->count; i++) {
        rc = end_one(db, end->event_key, end->seqs[i], end->final, end->now_ms);
        end->ended[i] = sqlite3_changes(db->handle) > 0;
    }
    return rc;
}

#define ENTRY_GET                                                                                  \
    "SELECT status, user_id, lane, joined_at, active_expires_at, seq"                              \
    " FROM queue_entries WHERE event_id = ?1"

/* By user there is no index: all entries of the event are read. */
int entry_get(struct db *db, struct ledger_entry_get *get) {
    sqlite3_stmt *row = NULL;
    int rc =
        get->live_of.at == NULL
            ? db_query(db, &row, ENTRY_GET " AND seq = ?2 AND status <> 'VOID'",
                       cell_i64(get->event_key), cell_i64((int64_t)get->seq))
            : db_query(db, &row, ENTRY_GET " AND user_id = ?2 AND status IN ('WAITING', 'ACTIVE')",
                       cell_i64(get->event_key), cell_str(get->live_of));
    get->status = ENTRY_NONE;
    get->user_len = 0;
    while (db_next(row, &rc)) {
        int status = word_index(entry_status_words, column_str(row, 0));
        str user = column_str(row, 1);
        if (status < 0 || user.len > sizeof get->user) rc = SQLITE_CORRUPT;
        if (rc != SQLITE_OK) break;
        get->status = (enum entry_status)status;
        memcpy(get->user, user.at, user.len);
        get->user_len = user.len;
        get->lane = (unsigned)sqlite3_column_int(row, 2);
        get->joined_ms = sqlite3_column_int64(row, 3);
        get->expires_ms = sqlite3_column_int64(row, 4);
        get->seq = (uint64_t)sqlite3_column_int64(row, 5);
    }
    sqlite3_reset(row);
    return rc;
}

int waiting_read(struct db *db, struct ledger_waiting_read *read) {
    sqlite3_stmt *rows = NULL;
    size_t room = 0;
    read->waiting = NULL;
    read->count = 0;
    int rc = db_query(db, &rows,
                      "SELECT lane * 281474976710656 + seq AS place FROM queue_entries"
                      " WHERE event_id = ?1 AND status = 'WAITING' ORDER BY place",
                      cell_i64(read->event_key));
    while (db_next(rows, &rc)) {
        read->waiting = mem_make_room(read->waiting, read->count, &room, sizeof *read->waiting);
        read->waiting[read->count++] = (uint64_t)sqlite3_column_int64(rows, 0);
    }
    if (rc == SQLITE_OK) return rc;
    mem_free(read->waiting);
    read->waiting = NULL;
    read->count = 0;
    return rc;
}

int queues_read(struct db *db, const struct ledger_reader *reader) {
    sqlite3_stmt *rows = NULL;
    /* The highest number is the last of its key: one look per event, not per entry. */
    int rc = db_query_cells(db, &rows,
                            "SELECT id, coalesce((SELECT max(seq) FROM queue_entries"
                            " WHERE event_id = e.id), 0) FROM events e"
                            " WHERE deleted_at IS NULL ORDER BY id",
                            NULL, 0);
    while (db_next(rows, &rc))
        reader->on_queue(reader->to, sqlite3_column_int64(rows, 0),
                         (uint64_t)sqlite3_column_int64(rows, 1));
    return rc;
}

int totals_read(struct db *db, const struct ledger_reader *reader) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query_cells(db, &rows, ENTRY_TOTALS_READ, NULL, 0);
    while (db_next(rows, &rc))
        reader->on_totals(
            reader->to, sqlite3_column_int64(rows, 0),
            &(struct queue_counts){.entered = (uint64_t)sqlite3_column_int64(rows, 1),
                                   .admitted = (uint64_t)sqlite3_column_int64(rows, 2),
                                   .completed = (uint64_t)sqlite3_column_int64(rows, 3),
                                   .left = (uint64_t)sqlite3_column_int64(rows, 4),
                                   .expired = (uint64_t)sqlite3_column_int64(rows, 5),
                                   .waited_ms = (uint64_t)sqlite3_column_int64(rows, 6),
                                   .waited_ms_max = (uint64_t)sqlite3_column_int64(rows, 7)});
    return rc;
}

int entries_read(struct db *db, const struct ledger_reader *reader) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query_cells(db, &rows,
                            "SELECT q.event_id, q.seq, q.user_id, q.lane, q.status, q.joined_at,"
                            " q.active_expires_at FROM events e"
                            " CROSS JOIN queue_entries q ON q.event_id = e.id"
                            " WHERE e.deleted_at IS NULL AND q.status IN ('WAITING', 'ACTIVE')"
                            " ORDER BY e.id, q.seq",
                            NULL, 0);
    while (db_next(rows, &rc)) {
        struct ledger_entry e = {.event_key = sqlite3_column_int64(rows, 0),
                                 .seq = (uint64_t)sqlite3_column_int64(rows, 1),
                                 .user = column_str(rows, 2),
                                 .lane = (unsigned)sqlite3_column_int(rows, 3),
                                 .joined_ms = sqlite3_column_int64(rows, 5),
                                 .expires_ms = sqlite3_column_int64(rows, 6)};
        int status = word_index(entry_status_words, column_str(rows, 4));
        e.status = status < 0 ? ENTRY_NONE : (enum entry_status)status;
        if (!ledger_entry_ok(&e)) {
            sqlite3_reset(rows);
            return SQLITE_CORRUPT;
        }
        reader->on_entry(reader->to, &e);
    }
    return rc;
}
