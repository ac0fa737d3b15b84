/*
 * Events and their sections. Several nodes may change one event at once: each locks its row first
 * and reads it then, so that changes follow each other and none is lost. When two nodes create the
 * same event, the unique index of names stops the second, which then changes the event that the
 * first created.
 *
 * A version is the number of an audit row, and these become visible in their order (pg_audit_add):
 * hence that row is written late, after what may take long.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/postgres_internal.h"

/* So that no statement is long. */
#define SEATS_PER_STATEMENT 10000
/* How often to try again when events of one name are created and deleted at the same time. */
#define FIND_TRIES_MAX 20

/* --- reading --- */

/* A text may be longer than all the rest, so only the first row of an event has it. */
#define FIRST_ROW_TEXT(column)                                                                     \
    "CASE WHEN row_number() OVER (PARTITION BY e.id ORDER BY c.position) = 1"                      \
    " THEN " column " END"

/* One row for each section, and one with NULLs for an event without any. In the order of the
 * sections' positions. */
#define EVENT_SELECT                                                                               \
    "SELECT e.id, e.version, e.type, e.external_id, e.title, e.state, e.auto_enter, e.opens_at,"   \
    " e.starts_at, e.max_waiting, e.max_active, e.entry_batch_size, e.entry_interval_s,"           \
    " e.active_ttl_s, e.grace_s, e.token_ttl_s, e.hold_s, e.max_per_user, e.currency,"             \
    " e.created_at, e.updated_at, e.opened_at, coalesce(e.confirm_by, ''),"                        \
    " e.cancel_confirmed, e.rehold_s, e.max_holds_per_stay, e.closes_at,"                          \
    " " FIRST_ROW_TEXT("e.page::text") ", " FIRST_ROW_TEXT("e.return_hosts") ", " FIRST_ROW_TEXT(  \
        "e.notice") ","                                                                            \
                    " count(c.id) OVER (PARTITION BY e.id),"                                       \
                    " c.id, c.code, c.name, c.capacity, c.price, c.mode, c.status, c.held, "       \
                    "c.confirmed"                                                                  \
                    " FROM events e LEFT JOIN sections c ON c.event_id = e.id AND "                \
                    "c.removed_version IS NULL"
enum { COLUMN_SECTION_COUNT = 30, COLUMN_SECTION = 31 };

static bool pg_word_at(const struct pg_rows *rows, int column, const str *words, int *index) {
    *index = word_index(words, pg_str(rows, column));
    return *index >= 0;
}

#define COPY_COLUMN(rows, column, field) str_copy(pg_str(rows, column), field, sizeof(field))

/* A column fits its field when this program wrote it. A row that does not fit is reported, not
 * trusted. The event's texts are those of the row. */
static bool pg_event_from_row(const struct pg_rows *rows, struct event *e) {
    int state = -1;
    int confirm_by = -1;
    bool fits = COPY_COLUMN(rows, 2, e->type) && COPY_COLUMN(rows, 3, e->id) &&
                COPY_COLUMN(rows, 4, e->title) && COPY_COLUMN(rows, 18, e->currency) &&
                pg_word_at(rows, 5, event_state_words, &state) &&
                pg_word_at(rows, 22, confirm_by_words, &confirm_by);
    if (!fits) return false;
    e->key = pg_i64(rows, 0);
    e->version = pg_i64(rows, 1);
    e->state = (enum event_state)state;
    e->auto_enter = pg_i64(rows, 6) != 0;
    e->opens_at_ms = pg_time(rows, 7);
    e->starts_at_ms = pg_time(rows, 8);
    e->queue = (struct queue_rules){
        .max_waiting = pg_i64(rows, 9),
        .max_active = pg_i64(rows, 10),
        .entry_batch_size = pg_i64(rows, 11),
        .entry_interval_s = pg_i64(rows, 12),
        .active_ttl_s = pg_i64(rows, 13),
        .grace_s = pg_i64(rows, 14),
        .token_ttl_s = pg_i64(rows, 15),
    };
    e->hold_s = pg_i64(rows, 16);
    e->max_per_user = pg_i64(rows, 17);
    e->created_at_ms = pg_i64(rows, 19);
    e->updated_at_ms = pg_i64(rows, 20);
    e->opened_at_ms = pg_time(rows, 21);
    e->confirm_by = (enum confirm_by)confirm_by;
    e->cancel_confirmed = pg_i64(rows, 23) != 0;
    e->rehold_s = pg_i64(rows, 24);
    e->max_holds_per_stay = pg_i64(rows, 25);
    e->closes_at_ms = pg_time(rows, 26);
    e->page = pg_str(rows, 27);
    e->return_hosts = pg_str(rows, 28);
    e->notice = pg_str(rows, 29);
    return event_ok(e);
}

static bool pg_section_from_row(const struct pg_rows *rows, struct section *s) {
    const int at = COLUMN_SECTION;
    int mode = -1;
    int status = -1;
    bool fits = COPY_COLUMN(rows, at + 1, s->id) && COPY_COLUMN(rows, at + 2, s->name) &&
                pg_word_at(rows, at + 5, section_mode_words, &mode) &&
                pg_word_at(rows, at + 6, section_status_words, &status);
    if (!fits) return false;
    s->key = pg_i64(rows, at);
    s->capacity = pg_i64(rows, at + 3);
    s->price = pg_i64(rows, at + 4);
    s->mode = (enum section_mode)mode;
    s->status = (enum section_status)status;
    s->held = pg_i64(rows, at + 7);
    s->confirmed = pg_i64(rows, at + 8);
    return section_ok(s);
}

static bool pg_event_invalid(struct pg *db, int64_t key) {
    log_error(
        msg("an event's row is not valid (name, time, version, state, limits, texts or counts); "
            "the events cannot be read"),
        kv_i64("events.id", key));
    return pg_fail(db, PG_CORRUPT, "an event's row is not valid");
}

/* The event of the row that pg_next stepped to, and its sections from the rows behind it. */
static bool event_take(struct pg *db, struct pg_rows *rows, struct event **out) {
    int64_t key = pg_i64(rows, 0);
    int64_t sections = pg_i64(rows, COLUMN_SECTION_COUNT);
    if (sections < 0 || sections > rows->count) return pg_event_invalid(db, key);
    struct event read = {0};
    if (!pg_event_from_row(rows, &read)) return pg_event_invalid(db, key);
    struct event *e = event_new_like(&read, (size_t)sections);
    bool fits = true;
    for (size_t i = 0; fits && i < e->section_count; i++)
        fits = (i == 0 || pg_next(rows)) && pg_section_from_row(rows, &e->sections[i]);
    if (fits) {
        *out = e;
        return true;
    }
    mem_free(e);
    return pg_event_invalid(db, key);
}

/* *out stays NULL when there is no such event. */
static bool pg_event_read(struct pg *db, int64_t key, struct event **out) {
    struct pg_rows rows = {0};
    if (!pg_query(db, &rows, EVENT_SELECT " WHERE e.id = $1 ORDER BY c.position", pg_cell_i64(key)))
        return false;
    bool ok = true;
    if (pg_next(&rows)) ok = event_take(db, &rows, out);
    pg_rows_clear(&rows);
    return ok;
}

/* Reads the events that have this version or a later one. */
static bool pg_events_each(struct pg *db, int64_t version, const struct ledger_reader *reader) {
    struct pg_rows rows = {0};
    bool ok = pg_query(db, &rows,
                       EVENT_SELECT " WHERE e.deleted_at IS NULL AND e.version >= $1"
                                    " ORDER BY e.id, c.position",
                       pg_cell_i64(version));
    while (ok && pg_next(&rows)) {
        struct event *e = NULL;
        ok = event_take(db, &rows, &e);
        if (ok) reader->on_event(reader->to, e);
    }
    pg_rows_clear(&rows);
    return ok;
}

bool pg_events_load(struct pg *db, const struct ledger_reader *reader) {
    return pg_events_each(db, 0, reader);
}

static bool pg_list_removed(struct pg *db, struct ledger_events_read *read) {
    struct pg_rows rows = {0};
    bool ok = pg_query(db, &rows,
                       "SELECT id, version, type, external_id FROM events"
                       " WHERE deleted_at IS NOT NULL AND version >= $1 ORDER BY id",
                       pg_cell_i64(read->known_mark));
    if (!ok) return false;
    read->removed = mem_new((size_t)(rows.count + 1) * sizeof *read->removed);
    while (pg_next(&rows)) {
        struct removed_event *e = &read->removed[read->removed_count];
        e->key = pg_i64(&rows, 0);
        e->version = pg_i64(&rows, 1);
        bool fits = COPY_COLUMN(&rows, 2, e->type) && COPY_COLUMN(&rows, 3, e->id) &&
                    e->version > 0 && event_name_ok(str_of(e->type), EVENT_TYPE_BYTES_MAX) &&
                    event_name_ok(str_of(e->id), EVENT_ID_BYTES_MAX);
        if (fits)
            read->removed_count++;
        else
            log_error(msg("ignored a deleted event whose name or version is not valid"),
                      kv_i64("events.id", e->key));
    }
    pg_rows_clear(&rows);
    return pg_sound(db);
}

/* A version is the number of an act, and these become visible in their order (pg_audit_add). So the
 * mark is the lowest number that the next act can have: events with this version or a later one
 * have changed since. The last act is never removed. The mark is read first, so a change between
 * the two reads is returned now and again. */
bool pg_events_read(struct pg *db, struct ledger_events_read *read) {
    events_read_begin(read);
    int64_t is_replica = 0;
    bool ok =
        pg_number_cells(db, &is_replica, "SELECT pg_is_in_recovery()", NULL, 0) &&
        pg_number_cells(db, &read->mark, "SELECT 1 + coalesce(max(id), 0) FROM audit", NULL, 0);
    read->may_lag = is_replica != 0;
    ok = ok && pg_node_applied(db, read);
    if (!ok || read->mark == read->known_mark) return ok;
    struct ledger_reader list = {.on_event = events_read_add, .to = read};
    ok = pg_events_each(db, read->known_mark, &list) && pg_list_removed(db, read);
    if (!ok) events_read_free(read);
    return ok;
}

/* --- judging --- */

/* Locks the event of that name; *key is 0 when there is none. */
static bool event_lock(struct pg *db, str type, str id, int64_t *key) {
    *key = 0;
    return pg_number(db, key,
                     "SELECT id FROM events WHERE type = $1 AND external_id = $2"
                     " AND deleted_at IS NULL FOR NO KEY UPDATE",
                     pg_cell_str(type), pg_cell_str(id));
}

/* Locks the sections that are in force, in the order in which all transactions do. */
static bool sections_lock(struct pg *db, int64_t event_key) {
    return pg_run(db, NULL,
                  "SELECT id FROM sections WHERE event_id = $1 AND removed_version IS NULL"
                  " ORDER BY id FOR UPDATE",
                  pg_cell_i64(event_key));
}

/* How many of its seats the section still has as they are, after the change from `old` to `new`
 * (NULL: it vanishes). */
static int64_t room_left(const struct section *old, const struct section *new) {
    bool seat_mode_changes =
        new != NULL && (old->mode == SECTION_MODE_SEAT) != (new->mode == SECTION_MODE_SEAT);
    return new == NULL || seat_mode_changes ? 0 : new->capacity;
}

static bool takes_away(const struct event *old, const struct event *wanted) {
    for (size_t i = 0; i < old->section_count; i++) {
        const struct section *s = &old->sections[i];
        if (room_left(s, event_section(wanted, str_of(s->id))) < s->capacity) return true;
    }
    return false;
}

/* Whether a seat with a higher number than `room` is held or sold. The section's counts mostly show
 * that none is, without a look at its seats. */
static bool is_taken_beyond(struct pg *db, int64_t section_key, int64_t room, bool *is_taken) {
    int64_t found = 0;
    bool ok = pg_number(db, &found,
                        "SELECT 1 FROM sections c WHERE c.id = $1 AND c.held + c.confirmed > 0"
                        " AND EXISTS (SELECT 1 FROM seats s WHERE s.section_id = c.id"
                        "  AND s.seat_no > $2 AND s.state <> 'AVAILABLE')",
                        pg_cell_i64(section_key), pg_cell_i64(room));
    *is_taken = found != 0;
    return ok;
}

/* ERR_SECTION_IN_USE or ERR_OK in the record's result; nothing is written. */
static bool pg_put_judge(struct pg *db, struct ledger_event_put *put, const struct event *old,
                         const struct event *wanted) {
    /* A change that takes nothing away needs no judging, and need not keep the sections locked. */
    if (old == NULL || !takes_away(old, wanted)) return true;
    if (!sections_lock(db, old->key)) return false;
    for (size_t i = 0; i < old->section_count; i++) {
        const struct section *s = &old->sections[i];
        int64_t room = room_left(s, event_section(wanted, str_of(s->id)));
        bool is_taken = false;
        if (room >= s->capacity) continue;
        if (!is_taken_beyond(db, s->key, room, &is_taken)) return false;
        if (!is_taken) continue;
        put->record.result = ERR_SECTION_IN_USE;
        memcpy(put->in_use, s->id, sizeof put->in_use);
        return true;
    }
    return true;
}

/* ERR_TOO_MANY_SEATS or ERR_OK in the record's result. It is final in a transaction that has
 * PG_LOCK_AUDIT, as changes of events are committed one after the other from there on. */
static bool pg_put_judge_seats(struct pg *db, struct ledger_event_put *put, const struct event *old,
                               const struct event *planned, int64_t key) {
    int64_t others = 0;
    if (!event_put_grows(put, old, planned)) return true;
    bool ok = pg_number(db, &others,
                        "SELECT coalesce(sum(capacity), 0)::bigint FROM sections"
                        " WHERE removed_version IS NULL AND event_id <> $1",
                        pg_cell_i64(key));
    if (ok) put->record.result = event_put_seats(put, planned, others);
    return ok;
}

/* --- writing --- */

#define EVENT_CELLS(e, q, version, now_ms)                                                         \
    pg_cell_text((e)->type), pg_cell_text((e)->id), pg_cell_i64(version),                          \
        pg_cell_text((e)->title), pg_cell_str(event_state_words[(e)->state]),                      \
        pg_cell_i64((e)->auto_enter), pg_cell_time((e)->opens_at_ms),                              \
        pg_cell_time((e)->starts_at_ms), pg_cell_i64((q)->max_waiting),                            \
        pg_cell_i64((q)->max_active), pg_cell_i64((q)->entry_batch_size),                          \
        pg_cell_i64((q)->entry_interval_s), pg_cell_i64((q)->active_ttl_s),                        \
        pg_cell_i64((q)->grace_s), pg_cell_i64((q)->token_ttl_s), pg_cell_i64((e)->hold_s),        \
        pg_cell_i64((e)->max_per_user), pg_cell_text((e)->currency), pg_cell_i64(now_ms),          \
        pg_cell_str(confirm_by_words[(e)->confirm_by]), pg_cell_i64((e)->cancel_confirmed),        \
        pg_cell_i64((e)->rehold_s), pg_cell_i64((e)->max_holds_per_stay),                          \
        pg_cell_time((e)->closes_at_ms), pg_cell_str((e)->page), pg_cell_str((e)->return_hosts),   \
        pg_cell_str((e)->notice)

/* *key stays 0 when another node was first. It has a version when its audit row is written. */
static bool event_insert(struct pg *db, const struct event *e, int64_t now_ms, int64_t *key) {
    return pg_number(
        db, key,
        "INSERT INTO events(type, external_id, version, title, state, auto_enter, opens_at,"
        " starts_at, max_waiting, max_active, entry_batch_size, entry_interval_s, active_ttl_s,"
        " grace_s, token_ttl_s, hold_s, max_per_user, currency, created_at, updated_at,"
        " max_per_user_ever, confirm_by, cancel_confirmed, rehold_s, max_holds_per_stay,"
        " closes_at, page, return_hosts, notice)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"
        " $19, $19, $17, nullif($20, ''), $21, $22, $23, $24, nullif($25, '')::json, $26,"
        " nullif($27, ''))"
        " ON CONFLICT (type, external_id) WHERE deleted_at IS NULL DO NOTHING RETURNING id",
        EVENT_CELLS(e, &e->queue, 1, now_ms));
}

static bool event_update(struct pg *db, const struct event *e, int64_t key, int64_t version,
                         int64_t opened_ms, int64_t now_ms) {
    return pg_change(
        db,
        "UPDATE events SET type = $1, external_id = $2, version = $3, title = $4, state = $5,"
        " auto_enter = $6, opens_at = $7, starts_at = $8, max_waiting = $9, max_active = $10,"
        " entry_batch_size = $11, entry_interval_s = $12, active_ttl_s = $13, grace_s = $14,"
        " token_ttl_s = $15, hold_s = $16, max_per_user = $17, currency = $18, updated_at = $19,"
        " max_per_user_ever = greatest(max_per_user_ever, $17), confirm_by = nullif($20, ''),"
        " cancel_confirmed = $21, rehold_s = $22, max_holds_per_stay = $23, closes_at = $24,"
        " page = nullif($25, '')::json, return_hosts = $26, notice = nullif($27, ''),"
        " opened_at = $29 WHERE id = $28",
        EVENT_CELLS(e, &e->queue, version, now_ms), pg_cell_i64(key), pg_cell_time(opened_ms));
}

static const struct section *section_in(const struct event *e, const struct section *s) {
    return e == NULL ? NULL : event_section(e, str_of(s->id));
}

static bool section_insert(struct pg *db, int64_t event_key, const struct section *s,
                           int64_t position, int64_t *key) {
    return pg_number(db, key,
                     "INSERT INTO sections(event_id, code, name, capacity, price, mode, status,"
                     " position) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id",
                     pg_cell_i64(event_key), pg_cell_text(s->id), pg_cell_text(s->name),
                     pg_cell_i64(s->capacity), pg_cell_i64(s->price),
                     pg_cell_str(section_mode_words[s->mode]),
                     pg_cell_str(section_status_words[s->status]), pg_cell_i64(position));
}

/* Extends the deadline, so that a long operation is not given up while it makes progress: every
 * step has the time of one answer. */
static void pg_extend_deadline(struct pg *db) {
    int64_t until_ns = clock_steady_ns() + db->wait_ms * 1000000;
    if (db->until_ns > 0 && db->until_ns < until_ns) db->until_ns = until_ns;
}

/* Rows for the seats from the number `after` on. Some may be there from an earlier time. */
static bool seats_insert(struct pg *db, int64_t section_key, int64_t after, int64_t last) {
    bool ok = true;
    while (ok && after < last) {
        int64_t until = last - after > SEATS_PER_STATEMENT ? after + SEATS_PER_STATEMENT : last;
        ok = pg_run(db, NULL,
                    "INSERT INTO seats(section_id, seat_no, state, version)"
                    " SELECT $1, n, 'AVAILABLE', 0 FROM generate_series($2, $3) n"
                    " ON CONFLICT DO NOTHING",
                    pg_cell_i64(section_key), pg_cell_i64(after + 1), pg_cell_i64(until));
        after = until;
        pg_extend_deadline(db);
    }
    return ok;
}

/* Inserts new sections, and new seats of sections of mode `seat`. No other transaction can use
 * these rows yet: the section is new, or the seats are beyond its old capacity. */
static bool parts_insert(struct pg *db, const struct event *wanted, const struct event *old,
                         int64_t event_key) {
    bool ok = true;
    for (size_t i = 0; ok && i < wanted->section_count; i++) {
        const struct section *s = &wanted->sections[i];
        const struct section *before = section_in(old, s);
        int64_t key = before == NULL ? 0 : before->key;
        bool had_rows = before != NULL && before->mode == SECTION_MODE_SEAT;
        if (before == NULL) ok = section_insert(db, event_key, s, (int64_t)i, &key);
        if (ok && s->mode == SECTION_MODE_SEAT)
            ok = seats_insert(db, key, had_rows ? before->capacity : 0, s->capacity);
    }
    return ok;
}

static bool section_update(struct pg *db, int64_t key, const struct section *s, int64_t position) {
    return pg_change(db,
                     "UPDATE sections SET name = $2, capacity = $3, price = $4, mode = $5,"
                     " status = $6, position = $7 WHERE id = $1",
                     pg_cell_i64(key), pg_cell_text(s->name), pg_cell_i64(s->capacity),
                     pg_cell_i64(s->price), pg_cell_str(section_mode_words[s->mode]),
                     pg_cell_str(section_status_words[s->status]), pg_cell_i64(position));
}

/* Existing sections: they change, or are taken out. */
static bool sections_update(struct pg *db, const struct event *wanted, const struct event *old,
                            int64_t version) {
    bool ok = true;
    for (size_t i = 0; ok && old != NULL && i < old->section_count; i++) {
        if (section_in(wanted, &old->sections[i]) != NULL) continue;
        ok = pg_change(db, "UPDATE sections SET removed_version = $2 WHERE id = $1",
                       pg_cell_i64(old->sections[i].key), pg_cell_i64(version));
    }
    for (size_t i = 0; ok && i < wanted->section_count; i++) {
        const struct section *before = section_in(old, &wanted->sections[i]);
        if (before != NULL) ok = section_update(db, before->key, &wanted->sections[i], (int64_t)i);
    }
    return ok;
}

/* The sections are locked: no transaction takes or gives back a seat. */
static bool sold_out_add(struct pg *db, int64_t key, int64_t at_ms) {
    return pg_change(db,
                     "INSERT INTO facts(kind, event_id, seat_count, at, relayed_at)"
                     " VALUES ('SOLD_OUT', $1, 0, $2, $2)",
                     pg_cell_i64(key), pg_cell_i64(at_ms));
}

static bool pg_put_write(struct pg *db, struct ledger_event_put *put, const struct event *old,
                         const struct event *wanted, int64_t key) {
    int64_t version = 0;
    int64_t opened_ms = event_opened_ms(old, wanted, put->now_ms);
    bool ok = parts_insert(db, wanted, old, key) && sections_lock(db, key) &&
              pg_audit_add(db, &put->note, put->now_ms, &version) &&
              pg_put_judge_seats(db, put, old, wanted, key);
    if (!ok || put->record.result != ERR_OK) return ok;
    ok = event_update(db, wanted, key, version, opened_ms, put->now_ms) &&
         sections_update(db, wanted, old, version) && pg_event_read(db, key, &put->stored);
    if (ok && put->stored == NULL) ok = pg_unexpected(db);
    if (ok && event_sells_out(old, put->stored)) ok = sold_out_add(db, key, put->now_ms);
    return ok;
}

/* Locks the event, which is read then into *old, and plans what becomes of it; a new event is
 * inserted, and *old stays NULL. */
static bool event_lock_or_create(struct pg *db, struct ledger_event_put *put, int64_t *key,
                                 struct event **old, struct event **planned) {
    bool edits = put->edit != NULL;
    str type = edits ? put->type : str_of(put->wanted->type);
    str id = edits ? put->id : str_of(put->wanted->id);
    for (int i = 0; i < FIND_TRIES_MAX; i++) {
        if (!event_lock(db, type, id, key)) return false;
        if (*key > 0 && !pg_event_read(db, *key, old)) return false;
        put->record.result = event_put_plan(put, *old, planned);
        if (put->record.result != ERR_OK || *old != NULL) return true;
        if (!event_insert(db, *planned, put->now_ms, key)) return false;
        if (*key > 0) {
            put->created = true;
            return true;
        }
        mem_free(*planned);
        *planned = NULL;
    }
    return pg_fail(db, PG_RACE, "an event comes and goes");
}

bool pg_event_put_apply(struct pg *db, struct ledger_event_put *put) {
    struct event *old = NULL;
    struct event *planned = NULL;
    int64_t key = 0;
    bool ok =
        pg_exec(db, "SAVEPOINT event_put") && event_lock_or_create(db, put, &key, &old, &planned);
    if (ok && put->record.result == ERR_OK) ok = pg_put_judge(db, put, old, planned);
    if (ok && put->record.result == ERR_OK)
        ok = pg_put_judge_seats(db, put, old, planned, key); /* before many rows are written */
    if (ok && put->record.result == ERR_OK) ok = pg_put_write(db, put, old, planned, key);
    if (ok && put->record.result == ERR_TOO_MANY_SEATS) {
        ok = pg_exec(db, "ROLLBACK TO SAVEPOINT event_put");
        put->created = false;
    }
    mem_free(planned);
    mem_free(old);
    return ok;
}

/* --- deleting --- */

/* 0 when there is no such event. Its row is locked already, so the version is final. */
static bool pg_event_version(struct pg *db, int64_t key, int64_t *version) {
    *version = 0;
    return pg_number(db, version, "SELECT version FROM events WHERE id = $1", pg_cell_i64(key));
}

static bool pg_event_live(struct pg *db, int64_t key, bool *live) {
    int64_t found = 0;
    bool ok = pg_number(db, &found,
                        "SELECT 1 FROM sections WHERE event_id = $1 AND held + confirmed > 0"
                        " LIMIT 1",
                        pg_cell_i64(key));
    *live = found != 0;
    return ok;
}

static bool delete_write(struct pg *db, struct ledger_event_delete *del, int64_t key) {
    int64_t version = 0;
    bool ok = pg_audit_add(db, &del->note, del->now_ms, &version) &&
              pg_change(db,
                        "UPDATE events SET deleted_at = $2, updated_at = $2, version = $3"
                        " WHERE id = $1",
                        pg_cell_i64(key), pg_cell_i64(del->now_ms), pg_cell_i64(version)) &&
              pg_run(db, NULL,
                     "UPDATE sections SET removed_version = $2"
                     " WHERE event_id = $1 AND removed_version IS NULL",
                     pg_cell_i64(key), pg_cell_i64(version));
    del->key = key;
    del->version = version;
    return ok;
}

bool pg_event_delete_apply(struct pg *db, struct ledger_event_delete *del) {
    int64_t key = 0;
    int64_t version = 0;
    bool live = false;
    del->key = 0;
    del->version = 0;
    bool ok = event_lock(db, del->type, del->id, &key);
    if (ok && key > 0)
        ok = pg_event_version(db, key, &version) && sections_lock(db, key) &&
             pg_event_live(db, key, &live);
    del->record.result = event_delete_judge(del, key, version, live);
    if (!ok || del->record.result != ERR_OK) return ok;
    return delete_write(db, del, key);
}
