/*
 * Asynchronous requests. There is one writer, which numbers the rows in the order of acceptance. A
 * request that has no name yet gets an id with its number, so that its row is found without an
 * index of ids; the others are in the index `requests_named`.
 *
 * A request is decided by its row in `idempotency` (REQUEST_ROUTE): a hold for it writes that row
 * with the reservation, in its own transaction; a failure writes it with no reservation and with a
 * digest that no hold has. So of a hold and a failure only one succeeds, in whatever order they
 * come.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"

#define COLUMNS                                                                                    \
    "q.id, q.partition, q.seq, q.event_id, q.section_id, q.user_id, q.entry_seq, q.strategy,"      \
    " q.quantity, q.seats, q.body_digest, q.status, q.reason, q.reservation_id, q.created_at,"     \
    " q.finished_at, r.expires_at, q.ahead"
/* Every use joins the request's reservation. */
#define REQUESTS "requests q LEFT JOIN reservations r ON r.id = q.reservation_id"

static struct request *sqlite_request_from_row(sqlite3_stmt *rows) {
    struct request_row row = {
        .partition = sqlite3_column_int64(rows, 1),
        .seq = sqlite3_column_int64(rows, 2),
        .event_key = sqlite3_column_int64(rows, 3),
        .section_key = sqlite3_column_int64(rows, 4),
        .user = column_str(rows, 5),
        .entry_seq = sqlite3_column_int64(rows, 6),
        .strategy = column_str(rows, 7),
        .quantity = sqlite3_column_int64(rows, 8),
        .seats = column_str(rows, 9),
        .digest = {sqlite3_column_blob(rows, 10), (size_t)sqlite3_column_bytes(rows, 10)},
        .status = column_str(rows, 11),
        .reason = column_str(rows, 12),
        .created_ms = sqlite3_column_int64(rows, 14),
        .finished_ms = column_time(rows, 15),
        .hold_expires_ms = column_time(rows, 16),
        .ahead = sqlite3_column_int64(rows, 17),
    };
    column_uuid(rows, 0, &row.id);
    column_uuid(rows, 13, &row.reservation);
    return request_from_row(&row);
}

/* The last 8 bytes of an id of version 7 are 2 bits of the variant and 62 random ones. The number
 * replaces all of these but the last, so that no id can be guessed from another one. */
#define ID_TAIL 8
#define ID_RANDOM_BITS 18
#define ID_SEQ_MAX (INT64_C(1) << 44)

static uint64_t uuid_tail(const struct uuid *id) {
    uint64_t tail = 0;
    for (size_t i = ID_TAIL; i < sizeof id->bytes; i++) tail = tail << 8 | id->bytes[i];
    return tail;
}

static struct uuid request_id_with_seq(struct uuid id, int64_t seq) {
    uint64_t random = uuid_tail(&id) & ((UINT64_C(1) << ID_RANDOM_BITS) - 1);
    uint64_t tail = UINT64_C(1) << 63 | (uint64_t)seq << ID_RANDOM_BITS | random;
    for (size_t i = sizeof id.bytes; i > ID_TAIL; i--, tail >>= 8)
        id.bytes[i - 1] = (unsigned char)tail;
    return id;
}

static int64_t request_seq_of_id(const struct uuid *id) {
    return (int64_t)((uuid_tail(id) & ~(UINT64_C(3) << 62)) >> ID_RANDOM_BITS);
}

static int sqlite_request_take(sqlite3_stmt *rows, int rc, struct request **out) {
    if (!db_next(rows, &rc)) return rc;
    *out = sqlite_request_from_row(rows);
    sqlite3_reset(rows);
    return rc;
}

static int sqlite_request_find(struct db *db, const struct uuid *id, struct request **out) {
    sqlite3_stmt *rows = NULL;
    *out = NULL;
    int rc =
        db_query(db, &rows, "SELECT " COLUMNS " FROM " REQUESTS " WHERE q.seq = ?1 AND q.id = ?2",
                 cell_i64(request_seq_of_id(id)), cell_uuid(id));
    rc = sqlite_request_take(rows, rc, out);
    if (rc != SQLITE_OK || *out != NULL) return rc;
    rc = db_query(db, &rows,
                  "SELECT " COLUMNS " FROM " REQUESTS " WHERE q.id = ?1 AND q.is_named = 1",
                  cell_uuid(id));
    return sqlite_request_take(rows, rc, out);
}

/* With the values of `r`. *added: false when the id is there already. */
static int sqlite_request_insert(struct db *db, const struct request *r, const struct uuid *id,
                                 bool is_named, bool *added) {
    struct buf seats = {0};
    struct cell listed = {.kind = CELL_NULL};
    struct cell made = {.kind = CELL_NULL};
    assert(r->user[0] != '\0' && r->quantity > 0);
    if (r->seats != NULL) {
        seats_to_text(r->seats, r->quantity, &seats);
        listed = cell_str(buf_str(&seats));
    }
    if (r->status == REQUEST_SUCCESS) made = cell_uuid(&r->reservation);
    int rc = db_run(
        db,
        "INSERT INTO requests(id, partition, event_id, section_id, user_id, entry_seq, strategy,"
        " quantity, seats, body_digest, status, reason, reservation_id, created_at, finished_at,"
        " ahead, seq, is_named)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
        " ON CONFLICT DO NOTHING",
        cell_uuid(id), cell_i64(r->partition), cell_i64(r->event_key), cell_i64(r->section_key),
        cell_text(r->user), cell_i64((int64_t)r->entry_seq), cell_str(strategy_words[r->strategy]),
        cell_i64(r->quantity), listed, cell_bytes(r->digest, sizeof r->digest),
        cell_str(request_status_words[r->status]), cell_text(r->reason), made,
        cell_i64(r->created_ms), cell_time(r->finished_ms),
        cell_i64(db->open_requests[r->partition]), cell_i64(db->last_request_seq + 1),
        cell_i64(is_named));
    *added = rc == SQLITE_OK && sqlite3_changes(db->handle) > 0;
    if (*added) db->last_request_seq++;
    buf_deinit(&seats);
    return rc;
}

int requests_count_open(struct db *db) {
    sqlite3_stmt *rows = NULL;
    int rc = db_number_cells(db, &db->last_request_seq,
                             "SELECT coalesce(max(seq), 0) FROM requests", NULL, 0);
    if (rc != SQLITE_OK) return rc;
    rc = db_query_cells(db, &rows,
                        "SELECT partition, count(*) FROM requests WHERE finished_at IS NULL"
                        " GROUP BY partition",
                        NULL, 0);
    while (db_next(rows, &rc)) {
        int64_t partition = sqlite3_column_int64(rows, 0);
        if (partition >= 0 && partition < REQUEST_PARTITIONS)
            db->open_requests[partition] = sqlite3_column_int64(rows, 1);
    }
    return rc;
}

int request_put_apply(struct db *db, struct ledger_request_put *put) {
    const struct request *r = put->wanted;
    struct request *old = NULL;
    assert(r->status == REQUEST_PENDING && r->finished_ms == CLOCK_NONE_MS);
    assert(r->partition >= 0 && r->partition < REQUEST_PARTITIONS);
    put->record.result = ERR_OK;
    put->status = REQUEST_PENDING;
    put->ahead = db->open_requests[r->partition];
    bool is_renamed = put->may_rename && db->last_request_seq + 1 < ID_SEQ_MAX;
    put->id = is_renamed ? request_id_with_seq(r->id, db->last_request_seq + 1) : r->id;
    int rc = sqlite_request_insert(db, r, &put->id, !is_renamed, &put->is_new);
    put->seq = db->last_request_seq;
    if (put->is_new) db->open_requests[r->partition]++;
    if (rc != SQLITE_OK || put->is_new) return rc;
    rc = sqlite_request_find(db, &put->id, &old);
    if (rc != SQLITE_OK) return rc;
    if (old == NULL) return SQLITE_CORRUPT;
    bool is_same = str_eq(str_of(old->user), str_of(r->user)) &&
                   memcmp(old->digest, r->digest, sizeof r->digest) == 0;
    put->record.result = is_same ? ERR_OK : ERR_IDEMPOTENCY_MISMATCH;
    put->seq = old->seq;
    put->ahead = old->ahead;
    put->status = old->status;
    mem_free(old);
    return rc;
}

/* Writes the row that keeps every later hold for the request from being made. *made: zeroes, or the
 * reservation of a hold that was made before. */
static int sqlite_request_close(struct db *db, const struct request *r, struct uuid *made) {
    static const unsigned char no_digest[REQUEST_DIGEST_BYTES];
    char id[UUID_TEXT_BYTES];
    struct idempotency key = {
        .user = str_of(r->user), .route = STR(REQUEST_ROUTE), .key = {id, sizeof id}};
    enum err result = ERR_OK;
    bool used = false;
    *made = (struct uuid){0};
    uuid_format(&r->id, id);
    memcpy(key.digest, no_digest, sizeof no_digest);
    int rc = idempotency_judge(db, &key, &result, &used);
    if (rc != SQLITE_OK) return rc;
    if (used) {
        *made = key.reservation;
        return rc;
    }
    struct reservation none = {.created_ms = r->finished_ms};
    return idempotency_add(db, &key, &none);
}

static void sqlite_request_decided(struct ledger_request_decide *decide, const struct request *r) {
    decide->status = r->status;
    memcpy(decide->reason, r->reason, sizeof decide->reason);
    decide->reservation = r->reservation;
}

int request_decide_apply(struct db *db, struct ledger_request_decide *decide) {
    struct request now = *decide->wanted;
    struct request *old = NULL;
    assert(request_is_decided(now.status) && now.finished_ms != CLOCK_NONE_MS);
    decide->record.result = ERR_OK;
    decide->decided = false;
    int rc = sqlite_request_find(db, &now.id, &old);
    if (rc != SQLITE_OK) return rc;
    if (old != NULL && now.seq == 0 && !str_eq(str_of(old->user), str_of(now.user))) {
        decide->record.result = ERR_IDEMPOTENCY_MISMATCH;
        mem_free(old);
        return rc;
    }
    if (old != NULL && request_is_decided(old->status)) {
        sqlite_request_decided(decide, old);
        mem_free(old);
        return rc;
    }
    if (now.status != REQUEST_SUCCESS) {
        struct uuid made;
        rc = sqlite_request_close(db, &now, &made);
        if (rc == SQLITE_OK && !uuid_eq(&made, &(struct uuid){0})) {
            now.status = REQUEST_SUCCESS;
            now.reason[0] = '\0';
            now.reservation = made;
        }
    }
    struct cell made = now.status == REQUEST_SUCCESS ? cell_uuid(&now.reservation)
                                                     : (struct cell){.kind = CELL_NULL};
    if (rc == SQLITE_OK && old != NULL)
        rc = db_change(db,
                       "UPDATE requests SET status = ?2, reason = ?3, reservation_id = ?4,"
                       " finished_at = ?5 WHERE seq = ?1 AND finished_at IS NULL",
                       cell_i64(old->seq), cell_str(request_status_words[now.status]),
                       cell_text(now.reason), made, cell_i64(now.finished_ms));
    bool added = true;
    if (rc == SQLITE_OK && old != NULL) db->open_requests[old->partition]--;
    if (rc == SQLITE_OK && old == NULL) rc = sqlite_request_insert(db, &now, &now.id, true, &added);
    mem_free(old);
    if (rc != SQLITE_OK) return rc;
    decide->decided = true;
    sqlite_request_decided(decide, &now);
    return added ? rc : SQLITE_CORRUPT;
}

int requests_get(struct db *db, struct ledger_requests_get *get) {
    int rc = SQLITE_OK;
    for (size_t i = 0; i < get->count; i++) get->found[i] = NULL;
    for (size_t i = 0; rc == SQLITE_OK && i < get->count; i++)
        rc = sqlite_request_find(db, &get->ids[i], &get->found[i]);
    for (size_t i = 0; rc != SQLITE_OK && i < get->count; i++) {
        mem_free(get->found[i]);
        get->found[i] = NULL;
    }
    return rc;
}

int requests_read(struct db *db, struct ledger_requests_read *read) {
    sqlite3_stmt *rows = NULL;
    read->count = 0;
    int rc = db_query(db, &rows,
                      "SELECT " COLUMNS " FROM " REQUESTS " WHERE q.partition = ?1 AND q.seq > ?2"
                      " AND q.finished_at IS NULL ORDER BY q.seq LIMIT ?3",
                      cell_i64(read->partition), cell_i64(read->after_seq),
                      cell_i64((int64_t)read->max));
    while (db_next(rows, &rc)) read->requests[read->count++] = sqlite_request_from_row(rows);
    for (; rc != SQLITE_OK && read->count > 0; read->count--)
        mem_free(read->requests[read->count - 1]);
    return rc;
}

int requests_open(struct db *db, struct ledger_requests_open *open) {
    sqlite3_stmt *rows = NULL;
    requests_open_init(open);
    int rc = db_query_cells(db, &rows,
                            "SELECT partition, seq FROM requests WHERE finished_at IS NULL"
                            " ORDER BY partition, seq",
                            NULL, 0);
    while (db_next(rows, &rc))
        requests_open_add(open, sqlite3_column_int64(rows, 0), sqlite3_column_int64(rows, 1));
    if (rc != SQLITE_OK) requests_open_free(open);
    return rc;
}
