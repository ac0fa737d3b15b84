/*
 * The records that confirm, cancel and expire holds. Every change is a compare and set from the
 * status that was read in the same transaction, of the row and of each of its seats by holder and
 * state: so it happens once, and never to the seats of the next holder. Rows that contradict each
 * other fail the record, and the audit finds them.
 */
#include <assert.h>

#include "base/mem.h"
#include "ledger/sqlite_internal.h"

/* Updates the number of seats of the user, and the counts of the section. */
static int count_change(struct db *db, const struct reservation *r, int64_t held,
                        int64_t confirmed) {
    int rc = buyers_change(db->buyers, r->event_key, str_of(r->user),
                           (struct buyer_seats){.live = held + confirmed, .held = held});
    if (rc == SQLITE_OK)
        rc = db_change(db,
                       "UPDATE sections SET held = held + ?2, confirmed = confirmed + ?3"
                       " WHERE id = ?1",
                       cell_i64(r->section_key), cell_i64(held), cell_i64(confirmed));
    return rc;
}

/* Each seat from the reservation's own state; to AVAILABLE, or with the holder to CONFIRMED. A seat
 * remembers the hold that gave it up. */
static int seats_change(struct db *db, const struct reservation *r, bool release) {
    static const char to_free[] =
        "UPDATE seats SET state = 'AVAILABLE', reservation_id = NULL, version = version + 1,"
        " given_up = CASE state WHEN 'HELD' THEN reservation_id END"
        " WHERE section_id = ?1 AND seat_no = ?2 AND reservation_id = ?3 AND state = ?4";
    static const char to_confirmed[] =
        "UPDATE seats SET state = 'CONFIRMED', version = version + 1"
        " WHERE section_id = ?1 AND seat_no = ?2 AND reservation_id = ?3 AND state = ?4";
    int rc = SQLITE_OK;
    for (uint32_t i = 0; rc == SQLITE_OK && i < r->seat_count; i++)
        rc = db_change(db, release ? to_free : to_confirmed, cell_i64(r->section_key),
                       cell_i64(r->seats[i]), cell_uuid(&r->id),
                       cell_str(reservation_status_words[r->status]));
    return rc;
}

/* A live one ends; *r follows. */
static int end_as(struct db *db, struct reservation *r, enum reservation_status final,
                  int64_t now_ms) {
    assert(reservation_is_live(r->status) && !reservation_is_live(final));
    bool held = r->status == RESERVATION_HELD;
    int64_t n = r->seat_count;
    int rc = count_change(db, r, held ? -n : 0, held ? 0 : -n);
    if (rc == SQLITE_OK) rc = seats_change(db, r, true);
    if (rc == SQLITE_OK)
        rc = db_change(db,
                       "UPDATE reservations SET status = ?2, ended_at = ?3"
                       " WHERE id = ?1 AND status = ?4",
                       cell_uuid(&r->id), cell_str(reservation_status_words[final]),
                       cell_i64(now_ms), cell_str(reservation_status_words[r->status]));
    if (rc == SQLITE_OK) rc = fact_add(db, r, final, now_ms);
    r->status = final;
    r->ended_ms = now_ms;
    return rc;
}

/* *out stays NULL unless it is the user's. */
static int sqlite_outcome_read(struct db *db, const struct uuid *id, str user,
                               struct reservation **out, enum err *result) {
    struct reservation *r = NULL;
    int rc = reservation_read(db, id, &r);
    *result = ERR_OK;
    if (r == NULL)
        *result = ERR_RESERVATION_NOT_FOUND;
    else if (!str_eq(str_of(r->user), user))
        *result = ERR_NOT_YOURS;
    if (*result == ERR_OK)
        *out = r;
    else
        mem_free(r);
    return rc;
}

static int write_confirmed(struct db *db, struct reservation *r, const char *code, int64_t now_ms) {
    assert(r->status == RESERVATION_HELD && strlen(code) == CONFIRMATION_CODE_CHARS);
    int64_t n = r->seat_count;
    int rc = count_change(db, r, -n, n);
    if (rc == SQLITE_OK) rc = seats_change(db, r, false);
    if (rc == SQLITE_OK)
        rc = db_change(db,
                       "UPDATE reservations SET status = 'CONFIRMED', confirmed_at = ?2,"
                       " confirmation_code = ?3"
                       " WHERE id = ?1 AND status = 'HELD' AND expires_at > ?2",
                       cell_uuid(&r->id), cell_i64(now_ms), cell_text(code));
    if (rc == SQLITE_OK) rc = fact_add(db, r, RESERVATION_CONFIRMED, now_ms);
    r->status = RESERVATION_CONFIRMED;
    r->confirmed_ms = now_ms;
    memcpy(r->confirmation_code, code, sizeof r->confirmation_code);
    return rc;
}

/* The purchase is done when the user holds nothing else; then the place in the queue is given
 * back. */
static int complete_entry(struct db *db, const struct reservation *r, int64_t now_ms, bool *did) {
    *did = false;
    if (buyers_count(db->buyers, r->event_key, str_of(r->user)).held > 0) return SQLITE_OK;
    int rc = db_run(db,
                    "UPDATE queue_entries SET status = 'COMPLETED', finished_at = ?3"
                    " WHERE event_id = ?1 AND seq = ?2 AND status = 'ACTIVE'"
                    "  AND active_expires_at > ?3",
                    cell_i64(r->event_key), cell_i64((int64_t)r->entry_seq), cell_i64(now_ms));
    *did = sqlite3_changes(db->handle) > 0;
    return rc;
}

static int confirm_own(struct db *db, struct ledger_confirm *c) {
    struct reservation *r = c->stored;
    if (r->status == RESERVATION_EXPIRED || reservation_is_over(r, c->now_ms)) {
        c->record.result = ERR_HOLD_EXPIRED;
        c->expired = r->status == RESERVATION_HELD;
        return c->expired ? end_as(db, r, RESERVATION_EXPIRED, c->now_ms) : SQLITE_OK;
    }
    if (r->status == RESERVATION_CANCELLED) {
        c->record.result = ERR_RESERVATION_ENDED;
        return SQLITE_OK;
    }
    if (r->status == RESERVATION_CONFIRMED) return SQLITE_OK;
    c->confirmed = true;
    int rc = write_confirmed(db, r, c->code, c->now_ms);
    if (rc == SQLITE_OK) rc = complete_entry(db, r, c->now_ms, &c->completed);
    if (rc == SQLITE_OK) rc = audit_add_act(db, c->note, c->now_ms);
    return rc;
}

int confirm_apply(struct db *db, struct ledger_confirm *confirm) {
    confirm->confirmed = false;
    confirm->completed = false;
    confirm->expired = false;
    confirm->stored = NULL;
    int rc = sqlite_outcome_read(db, &confirm->id, confirm->user, &confirm->stored,
                                 &confirm->record.result);
    if (rc == SQLITE_OK && confirm->stored != NULL) rc = confirm_own(db, confirm);
    return rc;
}

int cancel_apply(struct db *db, struct ledger_cancel *cancel) {
    cancel->cancelled = false;
    cancel->expired = false;
    cancel->stored = NULL;
    int rc =
        sqlite_outcome_read(db, &cancel->id, cancel->user, &cancel->stored, &cancel->record.result);
    if (rc != SQLITE_OK || cancel->stored == NULL) return rc;
    struct reservation *r = cancel->stored;
    cancel->expired = reservation_is_over(r, cancel->now_ms);
    if (cancel->expired || r->status == RESERVATION_EXPIRED)
        cancel->record.result = ERR_HOLD_EXPIRED;
    if (cancel->expired) return end_as(db, r, RESERVATION_EXPIRED, cancel->now_ms);
    if (!reservation_is_live(r->status)) return rc;
    if (r->status == RESERVATION_CONFIRMED && !cancel->may_end_confirmed) {
        cancel->record.result = ERR_CANCEL_BY_SHOP;
        return rc;
    }
    cancel->cancelled = true;
    rc = end_as(db, r, RESERVATION_CANCELLED, cancel->now_ms);
    if (rc == SQLITE_OK) rc = audit_add_act(db, cancel->note, cancel->now_ms);
    return rc;
}

int expire_apply(struct db *db, struct ledger_expire *expire) {
    int rc = SQLITE_OK;
    expire->record.result = ERR_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < expire->count; i++) {
        struct reservation *r = NULL;
        rc = reservation_read(db, &expire->ids[i], &r);
        expire->expired[i] = r != NULL && reservation_is_over(r, expire->now_ms);
        if (expire->expired[i]) rc = end_as(db, r, RESERVATION_EXPIRED, expire->now_ms);
        mem_free(r);
    }
    return rc;
}

int end_cancels_apply(struct db *db, struct ledger_end *end) {
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < end->cancel_count; i++) {
        struct reservation *r = NULL;
        rc = reservation_read(db, &end->cancels[i], &r);
        end->cancelled[i] = r != NULL && r->status == RESERVATION_HELD &&
                            r->event_key == end->event_key && str_eq(str_of(r->user), end->user);
        if (end->cancelled[i]) rc = end_as(db, r, RESERVATION_CANCELLED, end->now_ms);
        mem_free(r);
    }
    return rc;
}
