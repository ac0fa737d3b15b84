/* The records of events: put, delete, and the reading of their rows. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"

#define EVENT_COLUMNS                                                                              \
    "id, version, type, external_id, title, state, auto_enter, opens_at, starts_at, max_waiting,"  \
    " max_active, entry_batch_size, entry_interval_s, active_ttl_s, grace_s, token_ttl_s, hold_s," \
    " max_per_user, currency, created_at, updated_at, opened_at, coalesce(confirm_by, ''),"        \
    " cancel_confirmed, rehold_s, max_holds_per_stay, closes_at, page, return_hosts,"              \
    " notice"

/* --- reading --- */

/* A column fits its field when this program wrote it. A row that does not fit is reported, not
 * trusted. */
static bool sqlite_word_at(sqlite3_stmt *rows, int column, const str *words, int *index) {
    *index = word_index(words, column_str(rows, column));
    return *index >= 0;
}

#define COPY_COLUMN(rows, column, field) str_copy(column_str(rows, column), field, sizeof(field))

/* Its texts are those of the row. */
static bool sqlite_event_from_row(sqlite3_stmt *rows, struct event *e) {
    int state = -1;
    int confirm_by = -1;
    bool fits = COPY_COLUMN(rows, 2, e->type) && COPY_COLUMN(rows, 3, e->id) &&
                COPY_COLUMN(rows, 4, e->title) && COPY_COLUMN(rows, 18, e->currency) &&
                sqlite_word_at(rows, 5, event_state_words, &state) &&
                sqlite_word_at(rows, 22, confirm_by_words, &confirm_by);
    if (!fits) return false;
    e->key = sqlite3_column_int64(rows, 0);
    e->version = sqlite3_column_int64(rows, 1);
    e->state = (enum event_state)state;
    e->auto_enter = sqlite3_column_int(rows, 6) != 0;
    e->opens_at_ms = column_time(rows, 7);
    e->starts_at_ms = column_time(rows, 8);
    e->queue = (struct queue_rules){
        .max_waiting = sqlite3_column_int64(rows, 9),
        .max_active = sqlite3_column_int64(rows, 10),
        .entry_batch_size = sqlite3_column_int64(rows, 11),
        .entry_interval_s = sqlite3_column_int64(rows, 12),
        .active_ttl_s = sqlite3_column_int64(rows, 13),
        .grace_s = sqlite3_column_int64(rows, 14),
        .token_ttl_s = sqlite3_column_int64(rows, 15),
    };
    e->hold_s = sqlite3_column_int64(rows, 16);
    e->max_per_user = sqlite3_column_int64(rows, 17);
    e->created_at_ms = sqlite3_column_int64(rows, 19);
    e->updated_at_ms = sqlite3_column_int64(rows, 20);
    e->opened_at_ms = column_time(rows, 21);
    e->confirm_by = (enum confirm_by)confirm_by;
    e->cancel_confirmed = sqlite3_column_int(rows, 23) != 0;
    e->rehold_s = sqlite3_column_int64(rows, 24);
    e->max_holds_per_stay = sqlite3_column_int64(rows, 25);
    e->closes_at_ms = column_time(rows, 26);
    e->page = column_str(rows, 27);
    e->return_hosts = column_str(rows, 28);
    e->notice = column_str(rows, 29);
    return event_ok(e);
}

static bool sqlite_section_from_row(sqlite3_stmt *rows, struct section *s) {
    int mode = -1;
    int status = -1;
    bool fits = COPY_COLUMN(rows, 1, s->id) && COPY_COLUMN(rows, 2, s->name) &&
                sqlite_word_at(rows, 5, section_mode_words, &mode) &&
                sqlite_word_at(rows, 6, section_status_words, &status);
    if (!fits) return false;
    s->key = sqlite3_column_int64(rows, 0);
    s->capacity = sqlite3_column_int64(rows, 3);
    s->price = sqlite3_column_int64(rows, 4);
    s->mode = (enum section_mode)mode;
    s->status = (enum section_status)status;
    s->held = sqlite3_column_int64(rows, 7);
    s->confirmed = sqlite3_column_int64(rows, 8);
    return section_ok(s);
}

static int sections_read(struct db *db, struct event *e) {
    sqlite3_stmt *rows = NULL;
    size_t n = 0;
    int rc =
        db_query(db, &rows,
                 "SELECT id, code, name, capacity, price, mode, status, held, confirmed"
                 " FROM sections WHERE event_id = ?1 AND removed_version IS NULL ORDER BY position",
                 cell_i64(e->key));
    while (db_next(rows, &rc)) {
        if (n == e->section_count || !sqlite_section_from_row(rows, &e->sections[n++])) {
            sqlite3_reset(rows);
            return SQLITE_CORRUPT;
        }
    }
    return rc == SQLITE_OK && n != e->section_count ? SQLITE_CORRUPT : rc;
}

/* *out stays NULL when there is no such event. */
static int sqlite_event_read(struct db *db, int64_t key, struct event **out) {
    int64_t sections = 0;
    struct event *e = NULL;
    sqlite3_stmt *rows = NULL;
    int rc = db_number(db, &sections,
                       "SELECT count(*) FROM sections"
                       " WHERE event_id = ?1 AND removed_version IS NULL",
                       cell_i64(key));
    if (rc == SQLITE_OK)
        rc = db_query(db, &rows, "SELECT " EVENT_COLUMNS " FROM events WHERE id = ?1",
                      cell_i64(key));
    if (db_next(rows, &rc)) {
        struct event read = {0};
        if (sqlite_event_from_row(rows, &read))
            e = event_new_like(&read, (size_t)sections);
        else
            rc = SQLITE_CORRUPT;
        sqlite3_reset(rows);
    }
    if (e == NULL) return rc;
    if (rc == SQLITE_OK) rc = sections_read(db, e);
    if (rc == SQLITE_OK)
        *out = e;
    else
        mem_free(e);
    return rc;
}

/* Reads the next of the events that have this version or a later one. */
static int sqlite_event_next(struct db *db, int64_t *key, int64_t version,
                             const struct ledger_reader *reader) {
    int64_t next = 0;
    struct event *e = NULL;
    int rc = db_number(db, &next,
                       "SELECT id FROM events WHERE id > ?1 AND deleted_at IS NULL"
                       " AND version >= ?2 ORDER BY id LIMIT 1",
                       cell_i64(*key), cell_i64(version));
    *key = next;
    if (rc == SQLITE_OK && next > 0) rc = sqlite_event_read(db, next, &e);
    if (rc == SQLITE_CORRUPT)
        log_error(msg("an event's row is not valid (name, time, version, state, limits, texts or "
                      "counts); the events cannot be read"),
                  kv_i64("events.id", next));
    if (rc == SQLITE_OK && e != NULL)
        reader->on_event(reader->to, e);
    else
        mem_free(e);
    return rc;
}

static int sqlite_events_each(struct db *db, int64_t version, const struct ledger_reader *reader) {
    int64_t key = 0;
    int rc;
    do rc = sqlite_event_next(db, &key, version, reader);
    while (rc == SQLITE_OK && key > 0);
    return rc;
}

int events_read(struct db *db, const struct ledger_reader *reader) {
    return sqlite_events_each(db, 0, reader);
}

static int sqlite_list_removed(struct db *db, struct ledger_events_read *read) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query(db, &rows,
                      "SELECT id, version, type, external_id FROM events"
                      " WHERE deleted_at IS NOT NULL AND version >= ?1",
                      cell_i64(read->known_mark));
    while (db_next(rows, &rc)) {
        struct removed_event e = {.key = sqlite3_column_int64(rows, 0),
                                  .version = sqlite3_column_int64(rows, 1)};
        if (!str_copy(column_str(rows, 2), e.type, sizeof e.type) ||
            !str_copy(column_str(rows, 3), e.id, sizeof e.id)) {
            sqlite3_reset(rows);
            return SQLITE_CORRUPT;
        }
        read->removed = mem_grow(read->removed, (read->removed_count + 1) * sizeof e);
        read->removed[read->removed_count++] = e;
    }
    return rc;
}

/* A version is the number of an act. So the mark is the lowest number that the next act can have:
 * events with this version or a later one have changed since. The last act is never removed. */
int events_news(struct db *db, struct ledger_events_read *read) {
    events_read_begin(read);
    int rc = db_exec(db, "BEGIN");
    if (rc == SQLITE_OK)
        rc =
            db_number_cells(db, &read->mark, "SELECT 1 + coalesce(max(id), 0) FROM audit", NULL, 0);
    bool is_news = read->mark != read->known_mark;
    if (rc == SQLITE_OK && is_news)
        rc = sqlite_events_each(db, read->known_mark,
                                &(struct ledger_reader){.on_event = events_read_add, .to = read});
    if (rc == SQLITE_OK && is_news) rc = sqlite_list_removed(db, read);
    if (rc == SQLITE_OK) rc = db_exec(db, "COMMIT");
    if (rc != SQLITE_OK) events_read_free(read);
    return rc;
}

/* --- writing --- */

static int event_find(struct db *db, str type, str id, int64_t *key) {
    *key = 0;
    return db_number(db, key,
                     "SELECT id FROM events"
                     " WHERE type = ?1 AND external_id = ?2 AND deleted_at IS NULL",
                     cell_str(type), cell_str(id));
}

/* 0 when no seat of the section is held or sold. */
static int highest_live_seat(struct db *db, int64_t section_key, int64_t *seat_no) {
    *seat_no = 0;
    return db_number(db, seat_no,
                     "SELECT seat_no FROM seats WHERE section_id = ?1 AND state <> 'AVAILABLE'"
                     " ORDER BY seat_no DESC LIMIT 1",
                     cell_i64(section_key));
}

/* Whether the change from `old` to `new` (NULL: it vanishes) takes away a seat that a user has. */
static int section_refuses(struct db *db, const struct section *old, const struct section *new,
                           bool *refuses) {
    *refuses = false;
    bool seat_mode_changes =
        new != NULL && (old->mode == SECTION_MODE_SEAT) != (new->mode == SECTION_MODE_SEAT);
    int64_t room = new == NULL || seat_mode_changes ? 0 : new->capacity;
    if (room >= old->capacity || old->held + old->confirmed == 0) return SQLITE_OK;
    int64_t highest = 0;
    int rc = highest_live_seat(db, old->key, &highest);
    *refuses = highest > room;
    return rc;
}

/* ERR_SECTION_IN_USE or ERR_OK in the record's result; nothing is written. */
static int sqlite_put_judge(struct db *db, struct ledger_event_put *put, const struct event *old,
                            const struct event *wanted) {
    for (size_t i = 0; old != NULL && i < old->section_count; i++) {
        const struct section *s = &old->sections[i];
        bool refuses = false;
        int rc = section_refuses(db, s, event_section(wanted, str_of(s->id)), &refuses);
        if (rc != SQLITE_OK) return rc;
        if (refuses) {
            put->record.result = ERR_SECTION_IN_USE;
            memcpy(put->in_use, s->id, sizeof put->in_use);
            return SQLITE_OK;
        }
    }
    return SQLITE_OK;
}

/* The same for ERR_TOO_MANY_SEATS. */
static int sqlite_put_judge_seats(struct db *db, struct ledger_event_put *put,
                                  const struct event *old, const struct event *planned) {
    int64_t others = 0;
    if (!event_put_grows(put, old, planned)) return SQLITE_OK;
    int rc = db_number(db, &others,
                       "SELECT coalesce(sum(capacity), 0) FROM sections"
                       " WHERE removed_version IS NULL AND event_id <> ?1",
                       cell_i64(old == NULL ? 0 : old->key));
    if (rc == SQLITE_OK) put->record.result = event_put_seats(put, planned, others);
    return rc;
}

/* A conflicting INSERT would use up a number (AUTOINCREMENT), hence two statements. */
static int event_write(struct db *db, const struct event *e, int64_t *key, int64_t version,
                       int64_t opened_ms, int64_t now_ms) {
    static const char insert[] =
        "INSERT INTO events(type, external_id, version, title, state, auto_enter, opens_at,"
        " starts_at, max_waiting, max_active, entry_batch_size, entry_interval_s, active_ttl_s,"
        " grace_s, token_ttl_s, hold_s, max_per_user, currency, created_at, updated_at, id,"
        " max_per_user_ever, opened_at, confirm_by, cancel_confirmed, rehold_s,"
        " max_holds_per_stay, closes_at, page, return_hosts, notice)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
        " ?19, ?19, ?20, ?17, ?21, nullif(?22, ''), ?23, ?24, ?25, ?26, nullif(?27, ''), ?28,"
        " nullif(?29, ''))";
    static const char update[] =
        "UPDATE events SET type = ?1, external_id = ?2, version = ?3, title = ?4, state = ?5,"
        " auto_enter = ?6, opens_at = ?7, starts_at = ?8, max_waiting = ?9, max_active = ?10,"
        " entry_batch_size = ?11, entry_interval_s = ?12, active_ttl_s = ?13, grace_s = ?14,"
        " token_ttl_s = ?15, hold_s = ?16, max_per_user = ?17, currency = ?18, updated_at = ?19,"
        " max_per_user_ever = max(max_per_user_ever, ?17), opened_at = ?21,"
        " confirm_by = nullif(?22, ''), cancel_confirmed = ?23, rehold_s = ?24,"
        " max_holds_per_stay = ?25, closes_at = ?26, page = nullif(?27, ''), return_hosts = ?28,"
        " notice = nullif(?29, '') WHERE id = ?20";
    const struct queue_rules *q = &e->queue;
    bool is_new = *key == 0;
    int rc = db_run(
        db, is_new ? insert : update, cell_text(e->type), cell_text(e->id), cell_i64(version),
        cell_text(e->title), cell_str(event_state_words[e->state]), cell_i64(e->auto_enter),
        cell_time(e->opens_at_ms), cell_time(e->starts_at_ms), cell_i64(q->max_waiting),
        cell_i64(q->max_active), cell_i64(q->entry_batch_size), cell_i64(q->entry_interval_s),
        cell_i64(q->active_ttl_s), cell_i64(q->grace_s), cell_i64(q->token_ttl_s),
        cell_i64(e->hold_s), cell_i64(e->max_per_user), cell_text(e->currency), cell_i64(now_ms),
        is_new ? (struct cell){.kind = CELL_NULL} : cell_i64(*key), cell_time(opened_ms),
        cell_str(confirm_by_words[e->confirm_by]), cell_i64(e->cancel_confirmed),
        cell_i64(e->rehold_s), cell_i64(e->max_holds_per_stay), cell_time(e->closes_at_ms),
        cell_str(e->page), cell_str(e->return_hosts), cell_str(e->notice));
    if (rc == SQLITE_OK && is_new) *key = sqlite3_last_insert_rowid(db->handle);
    return rc;
}

static int section_write(struct db *db, int64_t event_key, const struct section *s,
                         const struct section *old, int64_t position) {
    if (old == NULL)
        return db_run(db,
                      "INSERT INTO sections(event_id, code, name, capacity, price, mode, status,"
                      " position) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                      cell_i64(event_key), cell_text(s->id), cell_text(s->name),
                      cell_i64(s->capacity), cell_i64(s->price),
                      cell_str(section_mode_words[s->mode]),
                      cell_str(section_status_words[s->status]), cell_i64(position));
    return db_run(db,
                  "UPDATE sections SET name = ?2, capacity = ?3, price = ?4, mode = ?5,"
                  " status = ?6, position = ?7 WHERE id = ?1",
                  cell_i64(old->key), cell_text(s->name), cell_i64(s->capacity), cell_i64(s->price),
                  cell_str(section_mode_words[s->mode]), cell_str(section_status_words[s->status]),
                  cell_i64(position));
}

static int sections_write(struct db *db, const struct event *wanted, const struct event *old,
                          int64_t event_key, int64_t version) {
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && old != NULL && i < old->section_count; i++) {
        if (event_section(wanted, str_of(old->sections[i].id)) != NULL) continue;
        rc = db_run(db, "UPDATE sections SET removed_version = ?2 WHERE id = ?1",
                    cell_i64(old->sections[i].key), cell_i64(version));
    }
    for (size_t i = 0; rc == SQLITE_OK && i < wanted->section_count; i++) {
        const struct section *s = &wanted->sections[i];
        const struct section *before = old == NULL ? NULL : event_section(old, str_of(s->id));
        rc = section_write(db, event_key, s, before, (int64_t)i);
    }
    return rc;
}

static int sqlite_put_write(struct db *db, struct ledger_event_put *put, const struct event *old,
                            const struct event *wanted) {
    int64_t key = old == NULL ? 0 : old->key;
    int64_t version = 0;
    put->created = old == NULL;
    int rc = audit_add(db, &put->note, put->now_ms, &version);
    int64_t opened_ms = event_opened_ms(old, wanted, put->now_ms);
    if (rc == SQLITE_OK) rc = event_write(db, wanted, &key, version, opened_ms, put->now_ms);
    if (rc == SQLITE_OK) rc = sections_write(db, wanted, old, key, version);
    if (rc == SQLITE_OK) rc = sqlite_event_read(db, key, &put->stored);
    if (rc == SQLITE_OK && put->stored == NULL) rc = SQLITE_CORRUPT;
    if (rc == SQLITE_OK && event_sells_out(old, put->stored))
        rc = sold_out_add(db, key, put->now_ms);
    return rc;
}

int event_put_apply(struct db *db, struct ledger_event_put *put) {
    bool edits = put->edit != NULL;
    struct event *old = NULL;
    struct event *planned = NULL;
    int64_t key = 0;
    int rc = event_find(db, edits ? put->type : str_of(put->wanted->type),
                        edits ? put->id : str_of(put->wanted->id), &key);
    if (rc == SQLITE_OK && key > 0) rc = sqlite_event_read(db, key, &old);
    if (rc != SQLITE_OK) return rc;
    put->record.result = event_put_plan(put, old, &planned);
    if (put->record.result == ERR_OK) rc = sqlite_put_judge(db, put, old, planned);
    if (rc == SQLITE_OK && put->record.result == ERR_OK)
        rc = sqlite_put_judge_seats(db, put, old, planned);
    if (rc == SQLITE_OK && put->record.result == ERR_OK)
        rc = sqlite_put_write(db, put, old, planned);
    mem_free(planned);
    mem_free(old);
    return rc;
}

/* 0 when there is no such event. */
static int sqlite_event_version(struct db *db, int64_t key, int64_t *version) {
    *version = 0;
    return db_number(db, version, "SELECT version FROM events WHERE id = ?1", cell_i64(key));
}

static int sqlite_event_live(struct db *db, int64_t key, bool *live) {
    int64_t found = 0;
    int rc =
        db_number(db, &found, "SELECT 1 FROM sections WHERE event_id = ?1 AND held + confirmed > 0",
                  cell_i64(key));
    *live = found != 0;
    return rc;
}

int event_delete_apply(struct db *db, struct ledger_event_delete *del) {
    int64_t key = 0;
    int64_t version = 0;
    bool live = false;
    int rc = event_find(db, del->type, del->id, &key);
    if (rc == SQLITE_OK) rc = sqlite_event_version(db, key, &version);
    if (rc == SQLITE_OK) rc = sqlite_event_live(db, key, &live);
    del->record.result = event_delete_judge(del, key, version, live);
    if (rc != SQLITE_OK || del->record.result != ERR_OK) return rc;

    rc = audit_add(db, &del->note, del->now_ms, &version);
    if (rc == SQLITE_OK)
        rc = db_run(db,
                    "UPDATE events SET deleted_at = ?2, updated_at = ?2, version = ?3"
                    " WHERE id = ?1",
                    cell_i64(key), cell_i64(del->now_ms), cell_i64(version));
    if (rc == SQLITE_OK)
        rc = db_run(db,
                    "UPDATE sections SET removed_version = ?2"
                    " WHERE event_id = ?1 AND removed_version IS NULL",
                    cell_i64(key), cell_i64(version));
    del->key = key;
    del->version = version;
    return rc;
}
