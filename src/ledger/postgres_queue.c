/* The records of queues: enter, admit, end, and the lookup of one entry. */
#include <assert.h>

#include "ledger/postgres_internal.h"

/* --- enter --- */

static size_t enter_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)wait;
    struct pg_array events = {0}, seqs = {0}, users = {0}, lanes = {0};
    struct pg_array statuses = {0}, joined = {0}, expires = {0};
    for (size_t i = 0; i < count; i++) {
        const struct ledger_enter *e = (const struct ledger_enter *)records[i];
        assert(e->status == ENTRY_WAITING || e->status == ENTRY_ACTIVE);
        pg_array_i64(&events, e->event_key);
        pg_array_i64(&seqs, (int64_t)e->seq);
        pg_array_str(&users, e->user);
        pg_array_i64(&lanes, e->lane);
        pg_array_str(&statuses, entry_status_words[e->status]);
        pg_array_i64(&joined, e->joined_ms);
        pg_array_i64(&expires, e->expires_ms);
    }
    pg_send(db, "SELECT is_there FROM ledger_enter_1($1, $2, $3, $4, $5, $6, $7)",
            pg_cell_array(&events), pg_cell_array(&seqs), pg_cell_array(&users),
            pg_cell_array(&lanes), pg_cell_array(&statuses), pg_cell_array(&joined),
            pg_cell_array(&expires));
    pg_array_deinit(&events);
    pg_array_deinit(&seqs);
    pg_array_deinit(&users);
    pg_array_deinit(&lanes);
    pg_array_deinit(&statuses);
    pg_array_deinit(&joined);
    pg_array_deinit(&expires);
    return 1;
}

static bool enter_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                       size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)t;
    (void)blocked;
    if (rows->count != (int)count) return pg_unexpected(db);
    for (size_t i = 0; pg_next(rows); i++)
        records[i]->result = pg_bool(rows, 0) ? ERR_OK : ERR_CONFLICT;
    return true;
}

const struct pg_kind pg_kind_enter = {.many = true, .send = enter_send, .read = enter_read};

static size_t enter_void_send(struct pg *db, struct ledger_record **records, size_t count,
                              bool wait) {
    (void)count;
    (void)wait;
    const struct ledger_enter_void *undo = (const struct ledger_enter_void *)records[0];
    pg_send(db, "SELECT ledger_enter_void_1($1, $2, $3)", pg_cell_i64(undo->event_key),
            pg_cell_i64((int64_t)undo->seq), pg_cell_i64(undo->now_ms));
    return 1;
}

static bool enter_void_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                            size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)db;
    (void)count;
    (void)t;
    (void)blocked;
    struct ledger_enter_void *undo = (struct ledger_enter_void *)records[0];
    undo->record.result = ERR_OK;
    undo->voided = pg_next(rows) && pg_bool(rows, 0);
    return true;
}

const struct pg_kind pg_kind_enter_void = {.send = enter_void_send, .read = enter_void_read};

/* --- admit --- */

static size_t admit_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)count;
    (void)wait;
    const struct ledger_admit *admit = (const struct ledger_admit *)records[0];
    struct pg_array seqs = {0};
    struct pg_array expires = {0};
    for (size_t i = 0; i < admit->count; i++) {
        pg_array_i64(&seqs, (int64_t)admit->entries[i].seq);
        pg_array_i64(&expires, admit->entries[i].expires_ms);
    }
    pg_send(db, "SELECT kept FROM ledger_admit_1($1, $2, $3, $4)", pg_cell_i64(admit->event_key),
            pg_cell_array(&seqs), pg_cell_array(&expires), pg_cell_i64(admit->now_ms));
    pg_array_deinit(&seqs);
    pg_array_deinit(&expires);
    return 1;
}

static bool admit_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                       size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)count;
    (void)t;
    (void)blocked;
    struct ledger_admit *admit = (struct ledger_admit *)records[0];
    if (rows->count != (int)admit->count) return pg_unexpected(db);
    admit->record.result = ERR_OK;
    for (size_t i = 0; i < admit->count; i++) admit->kept[i] = pg_next(rows) && pg_bool(rows, 0);
    return true;
}

const struct pg_kind pg_kind_admit = {.send = admit_send, .read = admit_read};

/* --- end --- */

static size_t end_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)count;
    const struct ledger_end *end = (const struct ledger_end *)records[0];
    assert(end->final != ENTRY_WAITING && end->final != ENTRY_ACTIVE && end->final != ENTRY_NONE);
    struct pg_array seqs = {0};
    struct pg_array cancels = {0};
    for (size_t i = 0; i < end->count; i++) pg_array_i64(&seqs, (int64_t)end->seqs[i]);
    for (size_t i = 0; i < end->cancel_count; i++) pg_array_uuid(&cancels, &end->cancels[i]);
    if (end->cancel_count == 0)
        pg_send(db, "SELECT 'ENDED', place, 0::bigint, 0::bigint FROM ledger_end_1($1, $2, $3, $4)",
                pg_cell_i64(end->event_key), pg_cell_array(&seqs),
                pg_cell_str(entry_status_words[end->final]), pg_cell_i64(end->now_ms));
    else
        pg_send(db,
                "SELECT did, place, of_section, held_by"
                " FROM ledger_leave_1($1, $2, $3, $4, $5, $6, $7)",
                pg_cell_i64(end->event_key), pg_cell_array(&seqs),
                pg_cell_str(entry_status_words[end->final]), pg_cell_i64(end->now_ms),
                pg_cell_str(end->user), pg_cell_array(&cancels), pg_cell_i64(wait));
    pg_array_deinit(&seqs);
    pg_array_deinit(&cancels);
    return 1;
}

static bool end_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                     size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)count;
    struct ledger_end *end = (struct ledger_end *)records[0];
    end->record.result = ERR_OK;
    for (size_t i = 0; i < end->count; i++) end->ended[i] = false;
    for (size_t i = 0; i < end->cancel_count; i++) end->cancelled[i] = false;
    while (pg_next(rows)) {
        str did = pg_str(rows, 0);
        size_t at = (size_t)pg_i64(rows, 1) - 1;
        if (str_eq(did, STR("BLOCKED"))) {
            *blocked = true;
        } else if (str_eq(did, STR("ENDED")) && at < end->count) {
            end->ended[at] = true;
        } else if (str_eq(did, STR("CANCELLED")) && at < end->cancel_count) {
            end->cancelled[at] = pg_i64(rows, 2) > 0;
            if (end->cancelled[at])
                pg_section_counts_add(t, pg_i64(rows, 2), pg_i64(rows, 3), 0, NULL);
        } else {
            return pg_unexpected(db);
        }
    }
    return true;
}

const struct pg_kind pg_kind_end = {.send = end_send, .read = end_read};

/* --- asked --- */

#define ENTRY_GET                                                                                  \
    "SELECT status, user_id, lane, joined_at, active_expires_at, seq FROM queue_entries"           \
    " WHERE event_id = $1"

bool pg_entry_get(struct pg *db, struct ledger_entry_get *get) {
    struct pg_rows row;
    get->status = ENTRY_NONE;
    get->user_len = 0;
    bool ok =
        get->live_of.at == NULL
            ? pg_query(db, &row, ENTRY_GET " AND seq = $2 AND status <> 'VOID'",
                       pg_cell_i64(get->event_key), pg_cell_i64((int64_t)get->seq))
            : pg_query(db, &row, ENTRY_GET " AND user_id = $2 AND status IN ('WAITING', 'ACTIVE')",
                       pg_cell_i64(get->event_key), pg_cell_str(get->live_of));
    if (!ok) return false;
    if (!pg_next(&row)) return true;
    int status = word_index(entry_status_words, pg_str(&row, 0));
    str user = pg_str(&row, 1);
    bool fits = status >= 0 && user.len <= sizeof get->user;
    if (fits) {
        get->status = (enum entry_status)status;
        memcpy(get->user, user.at, user.len);
        get->user_len = user.len;
        get->lane = (unsigned)pg_i64(&row, 2);
        get->joined_ms = pg_i64(&row, 3);
        get->expires_ms = pg_i64(&row, 4);
        get->seq = (uint64_t)pg_i64(&row, 5);
    }
    pg_rows_clear(&row);
    return fits || pg_fail(db, PG_CORRUPT, "an entry's row has a value that is not allowed");
}
