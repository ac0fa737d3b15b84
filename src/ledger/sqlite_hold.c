/*
 * Holds. There is one writer, so rows do not change between read and write: a hold is checked
 * completely before anything is written, and a refusal has nothing to undo. The writes are guarded
 * all the same: a row that differs from what was read fails the record.
 *
 * A hold changes only the counter of its section, and the holds of a batch are in the same few
 * sections: these rows are read once, and written once, before any other statement uses them.
 */
#include <assert.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"

int held_sections_write(struct db *db, struct held_sections *t) {
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < t->count; i++)
        if (t->sections[i].added > 0)
            rc = db_change(db, "UPDATE sections SET held = held + ?2 WHERE id = ?1",
                           cell_i64(t->sections[i].section_key), cell_i64(t->sections[i].added));
    t->count = 0;
    return rc;
}

/* *out: NULL when the event has no such section. It stays until held_sections_write. */
static int held_sections_find(struct db *db, struct held_sections *t, const struct reservation *r,
                              struct section_change **out) {
    sqlite3_stmt *rows = NULL;
    *out = NULL;
    for (size_t i = 0; *out == NULL && i < t->count; i++)
        if (t->sections[i].section_key == r->section_key) *out = &t->sections[i];
    if (*out != NULL) {
        if ((*out)->event_key != r->event_key) *out = NULL;
        return SQLITE_OK;
    }
    int rc = t->count == HELD_SECTIONS_MAX ? held_sections_write(db, t) : SQLITE_OK;
    if (rc == SQLITE_OK)
        rc = db_query(db, &rows,
                      "SELECT c.capacity, c.held + c.confirmed, e.max_per_user, c.mode = 'seat',"
                      " e.rehold_s * 1000, e.max_holds_per_stay"
                      " FROM sections c JOIN events e ON e.id = c.event_id"
                      " WHERE c.id = ?1 AND c.event_id = ?2 AND c.removed_version IS NULL",
                      cell_i64(r->section_key), cell_i64(r->event_key));
    while (db_next(rows, &rc)) {
        *out = &t->sections[t->count++];
        **out = (struct section_change){.section_key = r->section_key,
                                        .event_key = r->event_key,
                                        .capacity = sqlite3_column_int64(rows, 0),
                                        .taken = sqlite3_column_int64(rows, 1),
                                        .max_per_user = sqlite3_column_int64(rows, 2),
                                        .ledger_decides = sqlite3_column_int(rows, 3) != 0,
                                        .rehold_ms = sqlite3_column_int64(rows, 4),
                                        .max_holds_per_stay = sqlite3_column_int64(rows, 5)};
    }
    return rc;
}

/* Whether the entry lets its user in: ERR_OK, NOT_ACTIVE, HOLD_LIMIT. */
static int judge_entry(struct db *db, const struct reservation *r, int64_t max_holds,
                       enum err *result) {
    int64_t holds = -1;
    int rc = db_number(db, &holds,
                       "SELECT holds FROM queue_entries WHERE event_id = ?1 AND seq = ?2"
                       " AND user_id = ?3 AND status = 'ACTIVE' AND active_expires_at > ?4",
                       cell_i64(r->event_key), cell_i64((int64_t)r->entry_seq), cell_text(r->user),
                       cell_i64(r->created_ms));
    bool is_over = max_holds > 0 && holds >= max_holds;
    *result = holds < 0 ? ERR_NOT_ACTIVE : is_over ? ERR_HOLD_LIMIT : ERR_OK;
    return rc;
}

/* Only where there is a limit: otherwise a hold writes no row of the queue. */
static int count_hold(struct db *db, const struct reservation *r, int64_t max_holds) {
    if (max_holds == 0) return SQLITE_OK;
    return db_change(db,
                     "UPDATE queue_entries SET holds = holds + 1"
                     " WHERE event_id = ?1 AND seq = ?2 AND holds < ?3",
                     cell_i64(r->event_key), cell_i64((int64_t)r->entry_seq), cell_i64(max_holds));
}

struct seat_row {
    enum seat_state state;
    int64_t version;
    int64_t fence;
    struct uuid holder; /* zeroes when AVAILABLE */
    bool is_given_up;   /* the hold that it had last has ended unconfirmed: */
    struct uuid given_up;
};

static int sqlite_seat_from_row(sqlite3_stmt *rows, struct seat_row *out) {
    /* AVAILABLE, HELD, CONFIRMED: the first letter is the state. */
    out->state = (enum seat_state)column_str(rows, 0).at[0];
    out->version = sqlite3_column_int64(rows, 1);
    out->fence = sqlite3_column_int64(rows, 2);
    out->is_given_up = sqlite3_column_type(rows, 4) != SQLITE_NULL;
    if (out->is_given_up && !column_uuid(rows, 4, &out->given_up)) return SQLITE_CORRUPT;
    if (out->state == SEAT_AVAILABLE) return SQLITE_OK;
    return column_uuid(rows, 3, &out->holder) ? SQLITE_OK : SQLITE_CORRUPT;
}

/* A seat without a row was never sold. */
static int seat_read(struct db *db, int64_t section_key, uint32_t seat, struct seat_row *out) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query(db, &rows,
                      "SELECT state, version, fence, reservation_id, given_up FROM seats"
                      " WHERE section_id = ?1 AND seat_no = ?2",
                      cell_i64(section_key), cell_i64(seat));
    *out = (struct seat_row){.state = SEAT_AVAILABLE};
    if (!db_next(rows, &rc)) return rc;
    rc = sqlite_seat_from_row(rows, out);
    sqlite3_reset(rows);
    return rc;
}

/* How bad a refusal is: a list's is that of its worst seat. */
static int refusal_priority(enum err e) {
    return e == ERR_LOCK_LOST       ? 4
           : e == ERR_CONFLICT      ? 3
           : e == ERR_SEAT_TAKEN    ? 2
           : e == ERR_SEAT_GIVEN_UP ? 1
                                    : 0;
}

static enum err judge_seat(const struct ledger_hold *hold, uint32_t i, const struct seat_row *row,
                           int64_t capacity) {
    if (hold->fences != NULL && row->fence > hold->fences[i]) return ERR_LOCK_LOST;
    if (hold->versions != NULL && row->version != hold->versions[i]) return ERR_CONFLICT;
    bool is_there = hold->wanted->seats[i] <= capacity;
    return is_there && row->state == SEAT_AVAILABLE ? ERR_OK : ERR_SEAT_TAKEN;
}

/* Whether the user has held this seat last and gave it up too short a time ago to name it again. */
static int judge_given_up(struct db *db, struct ledger_hold *hold, const struct seat_row *row,
                          int64_t rehold_ms, enum err *refusal) {
    const struct reservation *r = hold->wanted;
    int64_t ended_ms = CLOCK_NONE_MS;
    if (*refusal != ERR_OK || !hold->is_named || rehold_ms == 0 || !row->is_given_up)
        return SQLITE_OK;
    int rc = db_number(db, &ended_ms,
                       "SELECT ended_at FROM reservations WHERE id = ?1 AND user_id = ?2"
                       " AND ended_at > ?3",
                       cell_uuid(&row->given_up), cell_text(r->user),
                       cell_i64(r->created_ms - rehold_ms));
    if (rc != SQLITE_OK || ended_ms == CLOCK_NONE_MS) return rc;
    *refusal = ERR_SEAT_GIVEN_UP;
    if (ended_ms + rehold_ms > hold->free_at_ms) hold->free_at_ms = ended_ms + rehold_ms;
    return rc;
}

static int judge_seats(struct db *db, struct ledger_hold *hold, const struct section_change *s) {
    const struct reservation *r = hold->wanted;
    int rc = SQLITE_OK;
    for (uint32_t i = 0; rc == SQLITE_OK && i < r->seat_count; i++) {
        struct seat_row row;
        assert(r->seats[i] > (i == 0 ? 0 : r->seats[i - 1]));
        assert(hold->fences == NULL || hold->fences[i] > 0);
        rc = seat_read(db, r->section_key, r->seats[i], &row);
        enum err refusal = judge_seat(hold, i, &row, s->capacity);
        if (rc == SQLITE_OK) rc = judge_given_up(db, hold, &row, s->rehold_ms, &refusal);
        if (refusal == ERR_OK || refusal_priority(refusal) < refusal_priority(hold->record.result))
            continue;
        if (refusal != hold->record.result) hold->refused_count = 0;
        hold->record.result = refusal;
        hold->refused[hold->refused_count++] = r->seats[i];
    }
    if (hold->record.result != ERR_SEAT_GIVEN_UP) hold->free_at_ms = 0;
    return rc;
}

/* Whether the id is there already, which comes before all else: then it is the same hold once more,
 * or another one, or an undone one. */
static int judge_repeated(struct db *db, struct ledger_hold *hold, bool *repeated) {
    const struct reservation *r = hold->wanted;
    struct reservation *old = NULL;
    int64_t found = 0;
    int rc = db_number(db, &found, "SELECT 1 FROM reservations WHERE id = ?1", cell_uuid(&r->id));
    *repeated = found != 0;
    if (rc != SQLITE_OK || !*repeated) return rc;
    rc = reservation_read(db, &r->id, &old);
    if (rc != SQLITE_OK) return rc;
    bool same = old != NULL && old->section_key == r->section_key &&
                str_eq(str_of(old->user), str_of(r->user)) && old->seat_count == r->seat_count &&
                memcmp(old->seats, r->seats, r->seat_count * sizeof *r->seats) == 0;
    hold->record.result = same ? ERR_OK : ERR_CONFLICT;
    hold->refused_count = 0;
    if (same) hold->status = old->status;
    mem_free(old);
    return rc;
}

static int judge_new(struct db *db, struct ledger_hold *hold, const struct section_change *s) {
    const struct reservation *r = hold->wanted;
    if (s == NULL) {
        hold->record.result = ERR_SECTION_NOT_FOUND;
        return SQLITE_OK;
    }
    if (!strategy_suits(r->strategy, s->ledger_decides)) {
        hold->record.result = ERR_STRATEGY_NOT_ALLOWED;
        return SQLITE_OK;
    }
    struct buyer_seats has = buyers_count(db->buyers, r->event_key, str_of(r->user));
    if (has.live + r->seat_count > s->max_per_user) {
        hold->record.result = ERR_LIMIT_EXCEEDED;
        return SQLITE_OK;
    }
    int rc = judge_entry(db, r, s->max_holds_per_stay, &hold->record.result);
    return rc == SQLITE_OK && hold->record.result == ERR_OK ? judge_seats(db, hold, s) : rc;
}

static int sqlite_write_seats(struct db *db, const struct ledger_hold *hold) {
    const struct reservation *r = hold->wanted;
    int rc = SQLITE_OK;
    for (uint32_t i = 0; rc == SQLITE_OK && i < r->seat_count; i++)
        rc = db_change(db,
                       "INSERT INTO seats(section_id, seat_no, state, reservation_id, version,"
                       " fence) VALUES (?1, ?2, 'HELD', ?3, 1, ?4) ON CONFLICT DO UPDATE"
                       " SET state = 'HELD', reservation_id = excluded.reservation_id,"
                       " version = version + 1, fence = max(fence, excluded.fence)"
                       " WHERE state = 'AVAILABLE'"
                       "  AND (excluded.fence = 0 OR fence <= excluded.fence)",
                       cell_i64(r->section_key), cell_i64(r->seats[i]), cell_uuid(&r->id),
                       cell_i64(hold->fences == NULL ? 0 : hold->fences[i]));
    return rc;
}

/* *there: the id was there already, and nothing is written. */
static int write_reservation(struct db *db, const struct reservation *r, bool *there) {
    struct buf seats = {0};
    seats_to_text(r->seats, r->seat_count, &seats);
    int rc = db_run(
        db,
        "INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy,"
        " status, seat_count, seats, price, currency, expires_at, created_at)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'HELD', ?7, ?8, ?9, ?10, ?11, ?12)"
        " ON CONFLICT DO NOTHING",
        cell_uuid(&r->id), cell_i64(r->event_key), cell_i64(r->section_key), cell_text(r->user),
        cell_i64((int64_t)r->entry_seq), cell_str(strategy_words[r->strategy]),
        cell_i64(r->seat_count), cell_str(buf_str(&seats)), cell_i64(r->price),
        cell_text(r->currency), cell_i64(r->expires_ms), cell_i64(r->created_ms));
    *there = rc == SQLITE_OK && sqlite3_changes(db->handle) == 0;
    buf_deinit(&seats);
    return rc;
}

/* The section has just become full. So there was a seat left before, and the event is sold out from
 * now on if its other sections are full too. */
static int sqlite_write_sold_out(struct db *db, struct ledger_hold *hold) {
    int rc = sold_out_add(db, hold->wanted->event_key, hold->wanted->created_ms);
    hold->sold_out = sqlite3_changes(db->handle) > 0;
    return rc;
}

static int write_rest(struct db *db, struct held_sections *t, struct section_change *s,
                      struct ledger_hold *hold) {
    const struct reservation *r = hold->wanted;
    int rc = buyers_change(db->buyers, r->event_key, str_of(r->user),
                           (struct buyer_seats){.live = r->seat_count, .held = r->seat_count});
    if (rc == SQLITE_OK) rc = sqlite_write_seats(db, hold);
    if (rc == SQLITE_OK) rc = count_hold(db, r, s->max_holds_per_stay);
    if (rc == SQLITE_OK) rc = fact_add(db, r, RESERVATION_HELD, r->created_ms);
    if (rc == SQLITE_OK) rc = idempotency_add(db, hold->idempotency, r);
    if (rc != SQLITE_OK) return rc;
    hold->held = true;
    s->added += r->seat_count;
    if (s->taken + s->added < s->capacity) return rc;
    rc = held_sections_write(db, t);
    return rc == SQLITE_OK ? sqlite_write_sold_out(db, hold) : rc;
}

/* Whether the id is new is seldom looked up: the insertion of its row shows it, before anything
 * else is written. It is looked up before a refusal, because the seats that refuse the hold may be
 * its own. */
int hold_apply(struct db *db, struct held_sections *t, struct ledger_hold *hold) {
    const struct reservation *r = hold->wanted;
    assert(r->seat_count > 0 && r->seat_count <= RESERVATION_SEATS_MAX && r->user[0] != '\0');
    assert(r->status == RESERVATION_HELD && r->expires_ms > r->created_ms);
    struct section_change *s = NULL;
    bool decided = false;
    bool there = false;
    hold->record.result = ERR_OK;
    hold->held = false;
    hold->sold_out = false;
    hold->status = RESERVATION_HELD;
    hold->refused_count = 0;
    hold->free_at_ms = 0;
    int rc = idempotency_judge(db, hold->idempotency, &hold->record.result, &decided);
    if (rc != SQLITE_OK || decided) return rc;
    rc = held_sections_find(db, t, r, &s);
    if (rc == SQLITE_OK) rc = judge_new(db, hold, s);
    if (rc == SQLITE_OK && hold->record.result == ERR_OK) rc = write_reservation(db, r, &there);
    if (rc != SQLITE_OK) return rc;
    if (there || hold->record.result != ERR_OK) return judge_repeated(db, hold, &there);
    return write_rest(db, t, s, hold);
}

int hold_void_apply(struct db *db, struct ledger_hold_void *undo) {
    int64_t there = 0;
    undo->record.result = ERR_OK;
    /* Where the section has gone, a late hold finds none. */
    int rc = db_run(db,
                    "INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq,"
                    " strategy, status, seat_count, seats, price, currency, expires_at, created_at,"
                    " ended_at) SELECT ?1, ?2, ?3, '', 0, '', 'VOID', 0, '', 0, '', ?4, ?4, ?4"
                    " FROM sections WHERE id = ?3 AND event_id = ?2 ON CONFLICT DO NOTHING",
                    cell_uuid(&undo->id), cell_i64(undo->event_key), cell_i64(undo->section_key),
                    cell_i64(undo->now_ms));
    if (rc == SQLITE_OK)
        rc = db_number(db, &there, "SELECT 1 FROM reservations WHERE id = ?1 AND status <> 'VOID'",
                       cell_uuid(&undo->id));
    undo->voided = there == 0;
    return rc;
}

int seats_read(struct db *db, struct ledger_seats_read *read) {
    int rc = db_exec(db, "BEGIN");
    for (size_t i = 0; rc == SQLITE_OK && i < read->count; i++) {
        struct seat_row row;
        rc = seat_read(db, read->section_key, read->seats[i], &row);
        read->states[i] = row.state;
        read->versions[i] = row.version;
        read->holders[i] = row.holder;
    }
    if (rc == SQLITE_OK) rc = db_exec(db, "COMMIT");
    return rc;
}
