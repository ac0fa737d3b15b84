/* Asynchronous requests. They are accepted and decided by functions of the database
 * (postgres_schema_5.sql, postgres_schema_10.sql), several in one call. */
#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger/postgres_internal.h"

enum {
    REQUEST_ID,
    REQUEST_PARTITION,
    REQUEST_EVENT,
    REQUEST_SECTION,
    REQUEST_USER,
    REQUEST_ENTRY,
    REQUEST_STRATEGY,
    REQUEST_QUANTITY,
    REQUEST_SEATS,
    REQUEST_DIGEST,
    REQUEST_CREATED,
    PUT_ARRAYS,
    REQUEST_STATE = PUT_ARRAYS,
    REQUEST_REASON,
    REQUEST_RESERVATION,
    REQUEST_FINISHED,
    REQUEST_FENCE,
    REQUEST_NUMBER,
    DECIDE_ARRAYS,
};

static void add_request(struct pg_array *arrays, const struct request *r) {
    struct buf seats = {0};
    assert(r->user[0] != '\0' && r->quantity > 0);
    pg_array_uuid(&arrays[REQUEST_ID], &r->id);
    pg_array_i64(&arrays[REQUEST_PARTITION], r->partition);
    pg_array_i64(&arrays[REQUEST_EVENT], r->event_key);
    pg_array_i64(&arrays[REQUEST_SECTION], r->section_key);
    pg_array_str(&arrays[REQUEST_USER], str_of(r->user));
    pg_array_i64(&arrays[REQUEST_ENTRY], (int64_t)r->entry_seq);
    pg_array_str(&arrays[REQUEST_STRATEGY], strategy_words[r->strategy]);
    pg_array_i64(&arrays[REQUEST_QUANTITY], r->quantity);
    if (r->seats == NULL) {
        pg_array_null(&arrays[REQUEST_SEATS], pg_cell_null_text());
    } else {
        seats_to_text(r->seats, r->quantity, &seats);
        pg_array_str(&arrays[REQUEST_SEATS], buf_str(&seats));
    }
    pg_array_bytes(&arrays[REQUEST_DIGEST], r->digest, sizeof r->digest);
    pg_array_i64(&arrays[REQUEST_CREATED], r->created_ms);
    buf_deinit(&seats);
}

static void send_requests(struct pg *db, const char *sql, struct pg_array *arrays, size_t count) {
    struct pg_cell cells[DECIDE_ARRAYS] = {0};
    for (size_t a = 0; a < count; a++) cells[a] = pg_cell_array(&arrays[a]);
    pg_send_cells(db, sql, cells, count);
    for (size_t a = 0; a < count; a++) pg_array_deinit(&arrays[a]);
}

/* --- accepting --- */

static size_t request_put_send(struct pg *db, struct ledger_record **records, size_t count,
                               bool wait) {
    (void)wait;
    struct pg_array arrays[PUT_ARRAYS] = {0};
    for (size_t i = 0; i < count; i++) {
        const struct request *r = ((const struct ledger_request_put *)records[i])->wanted;
        assert(r->status == REQUEST_PENDING && r->finished_ms == CLOCK_NONE_MS);
        add_request(arrays, r);
    }
    send_requests(db,
                  "SELECT is_new, number, state, is_same, ahead"
                  " FROM ledger_request_put_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                  arrays, PUT_ARRAYS);
    return 1;
}

static bool request_put_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                             size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)t;
    (void)blocked;
    if (rows->count != (int)count) return pg_unexpected(db);
    for (size_t i = 0; pg_next(rows); i++) {
        struct ledger_request_put *put = (struct ledger_request_put *)records[i];
        if (pg_is_null(rows, 2))
            return pg_fail(db, PG_RACE, "a concurrent transaction accepted the same request");
        int status = word_index(request_status_words, pg_str(rows, 2));
        if (status < 0 || pg_i64(rows, 1) < 0 || pg_i64(rows, 4) < 0) return pg_unexpected(db);
        put->id = put->wanted->id;
        put->is_new = pg_bool(rows, 0);
        put->seq = pg_i64(rows, 1);
        put->ahead = pg_i64(rows, 4);
        put->status = (enum request_status)status;
        put->record.result = pg_bool(rows, 3) ? ERR_OK : ERR_IDEMPOTENCY_MISMATCH;
    }
    return true;
}

const struct pg_kind pg_kind_request_put = {
    .many = true, .send = request_put_send, .read = request_put_read};

/* --- deciding --- */

static size_t request_decide_send(struct pg *db, struct ledger_record **records, size_t count,
                                  bool wait) {
    (void)wait;
    struct pg_array arrays[DECIDE_ARRAYS] = {0};
    for (size_t i = 0; i < count; i++) {
        const struct request *r = ((const struct ledger_request_decide *)records[i])->wanted;
        assert(request_is_decided(r->status) && r->finished_ms != CLOCK_NONE_MS);
        add_request(arrays, r);
        pg_array_str(&arrays[REQUEST_STATE], request_status_words[r->status]);
        pg_array_str(&arrays[REQUEST_REASON], str_of(r->reason));
        if (r->status == REQUEST_SUCCESS)
            pg_array_uuid(&arrays[REQUEST_RESERVATION], &r->reservation);
        else
            pg_array_null(&arrays[REQUEST_RESERVATION], pg_cell_uuid(&r->reservation));
        pg_array_i64(&arrays[REQUEST_FINISHED], r->finished_ms);
        pg_array_i64(&arrays[REQUEST_FENCE],
                     ((const struct ledger_request_decide *)records[i])->fence);
        pg_array_i64(&arrays[REQUEST_NUMBER], r->seq);
    }
    send_requests(db,
                  "SELECT is_new, state, why, made FROM ledger_request_decide_2($1, $2, $3, $4,"
                  " $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
                  arrays, DECIDE_ARRAYS);
    return 1;
}

static bool request_decide_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                                size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)t;
    (void)blocked;
    if (rows->count != (int)count) return pg_unexpected(db);
    for (size_t i = 0; pg_next(rows); i++) {
        struct ledger_request_decide *decide = (struct ledger_request_decide *)records[i];
        int status = word_index(request_status_words, pg_str(rows, 1));
        bool succeeded = status == REQUEST_SUCCESS;
        decide->reservation = (struct uuid){0};
        if (str_eq(pg_str(rows, 1), STR("LEASE_LOST"))) {
            decide->record.result = ERR_LOCK_LOST;
            continue;
        }
        if (str_eq(pg_str(rows, 1), STR("OTHER_USER"))) {
            decide->record.result = ERR_IDEMPOTENCY_MISMATCH;
            continue;
        }
        if (status < 0 || !request_is_decided((enum request_status)status) ||
            !str_copy(pg_str(rows, 2), decide->reason, sizeof decide->reason) ||
            (succeeded && !pg_uuid(rows, 3, &decide->reservation)))
            return pg_unexpected(db);
        decide->decided = pg_bool(rows, 0);
        decide->status = (enum request_status)status;
        decide->record.result = ERR_OK;
    }
    return true;
}

const struct pg_kind pg_kind_request_decide = {
    .many = true, .send = request_decide_send, .read = request_decide_read};

/* --- leases --- */

bool pg_request_lease_apply(struct pg *db, struct ledger_request_lease *lease) {
    struct pg_rows rows = {0};
    struct pg_array keeps = {0};
    lease->record.result = ERR_OK;
    lease->share = 0;
    for (int p = 0; p < REQUEST_PARTITIONS; p++) {
        lease->fences[p] = 0;
        if (lease->keeps[p]) pg_array_i64(&keeps, p);
    }
    bool ok = pg_query(db, &rows,
                       "SELECT of_partition, of_fence, of_share"
                       " FROM ledger_request_lease_1($1, $2, $3, $4)",
                       pg_cell_uuid(&lease->node), pg_cell_i64(lease->lease_ms),
                       pg_cell_array(&keeps), pg_cell_i64(lease->stops));
    pg_array_deinit(&keeps);
    while (ok && pg_next(&rows)) {
        int64_t partition = pg_i64(&rows, 0);
        lease->share = pg_i64(&rows, 2);
        if (partition < 0 || partition >= REQUEST_PARTITIONS || pg_i64(&rows, 1) <= 0)
            ok = pg_unexpected(db);
        else
            lease->fences[partition] = pg_i64(&rows, 1);
    }
    pg_rows_clear(&rows);
    return ok;
}

/* --- asked --- */

#define COLUMNS                                                                                    \
    "q.id, q.partition, q.seq, q.event_id, q.section_id, q.user_id, q.entry_seq, q.strategy,"      \
    " q.quantity, q.seats, q.body_digest, q.status, q.reason, q.reservation_id, q.created_at,"     \
    " q.finished_at, r.expires_at, q.ahead"
/* Every use joins the request's reservation. */
#define REQUESTS "requests q LEFT JOIN reservations r ON r.id = q.reservation_id"

static struct request *pg_request_from_row(const struct pg_rows *rows) {
    struct request_row row = {
        .partition = pg_i64(rows, 1),
        .seq = pg_i64(rows, 2),
        .event_key = pg_i64(rows, 3),
        .section_key = pg_i64(rows, 4),
        .user = pg_str(rows, 5),
        .entry_seq = pg_i64(rows, 6),
        .strategy = pg_str(rows, 7),
        .quantity = pg_i64(rows, 8),
        .digest = pg_str(rows, 10),
        .status = pg_str(rows, 11),
        .reason = pg_str(rows, 12),
        .created_ms = pg_i64(rows, 14),
        .finished_ms = pg_time(rows, 15),
        .hold_expires_ms = pg_time(rows, 16),
        .ahead = pg_i64(rows, 17),
    };
    if (!pg_is_null(rows, 9)) row.seats = pg_str(rows, 9);
    pg_uuid(rows, 0, &row.id);
    if (!pg_is_null(rows, 13)) pg_uuid(rows, 13, &row.reservation);
    return request_from_row(&row);
}

bool pg_requests_get(struct pg *db, struct ledger_requests_get *get) {
    struct pg_rows rows = {0};
    struct pg_array ids = {0};
    for (size_t i = 0; i < get->count; i++) {
        get->found[i] = NULL;
        pg_array_uuid(&ids, &get->ids[i]);
    }
    bool ok =
        get->count == 0 || pg_query(db, &rows,
                                    "SELECT " COLUMNS " FROM unnest($1) WITH ORDINALITY AS a(id, n)"
                                    " LEFT JOIN (" REQUESTS ") ON q.id = a.id ORDER BY a.n",
                                    pg_cell_array(&ids));
    pg_array_deinit(&ids);
    if (ok && get->count > 0 && rows.count != (int)get->count) ok = pg_unexpected(db);
    for (size_t i = 0; ok && get->count > 0 && pg_next(&rows); i++)
        if (!pg_is_null(&rows, 0)) get->found[i] = pg_request_from_row(&rows);
    pg_rows_clear(&rows);
    return ok;
}

bool pg_requests_read(struct pg *db, struct ledger_requests_read *read) {
    struct pg_rows rows = {0};
    read->count = 0;
    bool ok = pg_query(db, &rows,
                       "SELECT " COLUMNS " FROM " REQUESTS " WHERE q.partition = $1 AND q.seq > $2"
                       " AND q.finished_at IS NULL ORDER BY q.seq LIMIT $3",
                       pg_cell_i64(read->partition), pg_cell_i64(read->after_seq),
                       pg_cell_i64((int64_t)read->max));
    if (ok && rows.count > (int)read->max) ok = pg_unexpected(db);
    while (ok && pg_next(&rows)) read->requests[read->count++] = pg_request_from_row(&rows);
    pg_rows_clear(&rows);
    return ok;
}

bool pg_requests_open(struct pg *db, struct ledger_requests_open *open) {
    struct pg_rows rows = {0};
    requests_open_init(open);
    bool ok = pg_query_cells(db, &rows,
                             "SELECT partition, seq FROM requests"
                             " WHERE finished_at IS NULL AND seq IS NOT NULL"
                             " ORDER BY partition, seq",
                             NULL, 0);
    while (ok && pg_next(&rows)) requests_open_add(open, pg_i64(&rows, 0), pg_i64(&rows, 1));
    pg_rows_clear(&rows);
    return ok;
}
