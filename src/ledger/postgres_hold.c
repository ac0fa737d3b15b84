/*
 * Holds. They are checked and written by a function of the database (postgres_schema_8.sql),
 * several in one call; the counts of their sections are written at the end of the transaction
 * (postgres_section_counts.c).
 */
#include <assert.h>

#include "base/mem.h"
#include "ledger/postgres_internal.h"

bool pg_result_from(struct pg *db, str word, enum err *out) {
    static const struct {
        str word;
        enum err result;
    } all[] = {
        {STR_INIT("OK"), ERR_OK},
        {STR_INIT("CONFLICT"), ERR_CONFLICT},
        {STR_INIT("SEAT_TAKEN"), ERR_SEAT_TAKEN},
        {STR_INIT("SEAT_GIVEN_UP"), ERR_SEAT_GIVEN_UP},
        {STR_INIT("HOLD_LIMIT"), ERR_HOLD_LIMIT},
        {STR_INIT("LOCK_LOST"), ERR_LOCK_LOST},
        {STR_INIT("NOT_ACTIVE"), ERR_NOT_ACTIVE},
        {STR_INIT("LIMIT_EXCEEDED"), ERR_LIMIT_EXCEEDED},
        {STR_INIT("SECTION_NOT_FOUND"), ERR_SECTION_NOT_FOUND},
        {STR_INIT("STRATEGY_NOT_ALLOWED"), ERR_STRATEGY_NOT_ALLOWED},
        {STR_INIT("IDEMPOTENCY_MISMATCH"), ERR_IDEMPOTENCY_MISMATCH},
        {STR_INIT("RESERVATION_NOT_FOUND"), ERR_RESERVATION_NOT_FOUND},
        {STR_INIT("RESERVATION_ENDED"), ERR_RESERVATION_ENDED},
        {STR_INIT("NOT_YOURS"), ERR_NOT_YOURS},
        {STR_INIT("CANCEL_BY_SHOP"), ERR_CANCEL_BY_SHOP},
        {STR_INIT("HOLD_EXPIRED"), ERR_HOLD_EXPIRED},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!str_eq(all[i].word, word)) continue;
        *out = all[i].result;
        return true;
    }
    return pg_unexpected(db);
}

/* --- sending --- */

enum {
    HOLD_ID,
    HOLD_EVENT,
    HOLD_SECTION,
    HOLD_USER,
    HOLD_ENTRY,
    HOLD_STRATEGY,
    HOLD_SEATS,
    HOLD_PRICE,
    HOLD_CURRENCY,
    HOLD_EXPIRES,
    HOLD_CREATED,
    HOLD_VERSIONS,
    HOLD_FENCES,
    HOLD_KEY_USER,
    HOLD_ROUTE,
    HOLD_KEY,
    HOLD_DIGEST,
    HOLD_NAMED,
    HOLD_ARRAYS,
};

/* "12,13", as the table has seats, or NULL. */
static void add_numbers(struct pg_array *a, const int64_t *numbers, const uint32_t *seats,
                        uint32_t count) {
    struct buf text = {0};
    assert(numbers != NULL || seats != NULL);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) buf_add_char(&text, ',');
        buf_add_i64(&text, seats != NULL ? seats[i] : numbers[i]);
    }
    pg_array_str(a, buf_str(&text));
    buf_deinit(&text);
}

static void add_optional(struct pg_array *a, const int64_t *numbers, uint32_t count) {
    if (numbers == NULL)
        pg_array_null(a, pg_cell_null_text());
    else
        add_numbers(a, numbers, NULL, count);
}

static void add_key(struct pg_array *arrays, const struct idempotency *i) {
    if (i == NULL) {
        for (int a = HOLD_KEY_USER; a <= HOLD_KEY; a++)
            pg_array_null(&arrays[a], pg_cell_null_text());
        pg_array_null(&arrays[HOLD_DIGEST], pg_cell_null_bytes());
        return;
    }
    pg_array_str(&arrays[HOLD_KEY_USER], i->user);
    pg_array_str(&arrays[HOLD_ROUTE], i->route);
    pg_array_str(&arrays[HOLD_KEY], i->key);
    pg_array_bytes(&arrays[HOLD_DIGEST], i->digest, sizeof i->digest);
}

static void add_hold(struct pg_array *arrays, const struct ledger_hold *hold) {
    const struct reservation *r = hold->wanted;
    assert(r->seat_count > 0 && r->seat_count <= RESERVATION_SEATS_MAX && r->user[0] != '\0');
    assert(r->status == RESERVATION_HELD && r->expires_ms > r->created_ms);
    for (uint32_t i = 0; i < r->seat_count; i++) {
        assert(r->seats[i] > (i == 0 ? 0 : r->seats[i - 1]));
        assert(hold->fences == NULL || hold->fences[i] > 0);
    }
    pg_array_uuid(&arrays[HOLD_ID], &r->id);
    pg_array_i64(&arrays[HOLD_EVENT], r->event_key);
    pg_array_i64(&arrays[HOLD_SECTION], r->section_key);
    pg_array_str(&arrays[HOLD_USER], str_of(r->user));
    pg_array_i64(&arrays[HOLD_ENTRY], (int64_t)r->entry_seq);
    pg_array_str(&arrays[HOLD_STRATEGY], strategy_words[r->strategy]);
    add_numbers(&arrays[HOLD_SEATS], NULL, r->seats, r->seat_count);
    pg_array_i64(&arrays[HOLD_PRICE], r->price);
    pg_array_str(&arrays[HOLD_CURRENCY], str_of(r->currency));
    pg_array_i64(&arrays[HOLD_EXPIRES], r->expires_ms);
    pg_array_i64(&arrays[HOLD_CREATED], r->created_ms);
    add_optional(&arrays[HOLD_VERSIONS], hold->versions, r->seat_count);
    add_optional(&arrays[HOLD_FENCES], hold->fences, r->seat_count);
    add_key(arrays, hold->idempotency);
    pg_array_i64(&arrays[HOLD_NAMED], hold->is_named);
}

/* This is the first lock of a pessimistic hold, so other transactions wait for it at the seats
 * only. */
static size_t pg_lock_seats(struct pg *db, const struct reservation *r) {
    struct pg_array seats = {0};
    for (uint32_t i = 0; i < r->seat_count; i++) pg_array_i64(&seats, r->seats[i]);
    pg_send(db,
            "SELECT 1 FROM unnest($2) AS w(seat_no) CROSS JOIN LATERAL ("
            "  SELECT FROM seats s WHERE s.section_id = $1 AND s.seat_no = w.seat_no"
            "  FOR UPDATE) s",
            pg_cell_i64(r->section_key), pg_cell_array(&seats));
    pg_array_deinit(&seats);
    return 1;
}

static size_t hold_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    struct pg_array arrays[HOLD_ARRAYS] = {0};
    struct pg_cell cells[HOLD_ARRAYS + 1];
    const struct ledger_hold *first = (const struct ledger_hold *)records[0];
    bool pessimistic = wait && count == 1 && first->wanted->strategy == STRATEGY_PESSIMISTIC;
    size_t sent = pessimistic ? pg_lock_seats(db, first->wanted) : 0;
    for (size_t i = 0; i < count; i++) add_hold(arrays, (const struct ledger_hold *)records[i]);
    for (int a = 0; a < HOLD_ARRAYS; a++) cells[a] = pg_cell_array(&arrays[a]);
    cells[HOLD_ARRAYS] = pg_cell_i64(wait);
    pg_send_cells(db,
                  "SELECT place, outcome, held, became, refused, replayed, free_at"
                  " FROM ledger_hold_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,"
                  " $14, $15, $16, $17, $18, $19)",
                  cells, HOLD_ARRAYS + 1);
    for (int a = 0; a < HOLD_ARRAYS; a++) pg_array_deinit(&arrays[a]);
    return sent + 1;
}

/* --- reading --- */

enum { PLACE, OUTCOME, HELD, BECAME, REFUSED, REPLAYED, FREE_AT };

/* False: they can't be some of the seats that were asked for. */
static bool read_refused(struct ledger_hold *hold, str text) {
    str part;
    while (text.len > 0 && str_split(&text, ',', &part)) {
        int64_t seat = 0;
        bool fits = str_to_i64(part, &seat) && seat > 0 && seat <= UINT32_MAX &&
                    hold->refused_count < hold->wanted->seat_count;
        if (!fits) return false;
        hold->refused[hold->refused_count++] = (uint32_t)seat;
    }
    return true;
}

static bool hold_read_one(struct pg *db, const struct pg_rows *rows, struct ledger_hold *hold,
                          bool *blocked) {
    hold->held = false;
    hold->sold_out = false;
    hold->status = RESERVATION_HELD;
    hold->refused_count = 0;
    hold->free_at_ms = pg_i64(rows, FREE_AT);
    hold->record.result = ERR_OK;
    if (hold->idempotency != NULL) hold->idempotency->replayed = false;
    *blocked = str_eq(pg_str(rows, OUTCOME), STR("BLOCKED"));
    if (*blocked) return true;
    int status = word_index(reservation_status_words, pg_str(rows, BECAME));
    bool is_replayed = !pg_is_null(rows, REPLAYED);
    if (!pg_result_from(db, pg_str(rows, OUTCOME), &hold->record.result)) return false;
    if (status < 0 || !read_refused(hold, pg_str(rows, REFUSED)) ||
        (is_replayed &&
         (hold->idempotency == NULL || !pg_uuid(rows, REPLAYED, &hold->idempotency->reservation))))
        return pg_unexpected(db);
    hold->held = pg_bool(rows, HELD);
    hold->status = (enum reservation_status)status;
    if (is_replayed) hold->idempotency->replayed = true;
    return true;
}

/* One row per hold, in any order: holds that were written together come first. They are counted in
 * the order of submission, in which the hold that sold the last seat is the last one. */
static bool hold_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                      size_t count, struct pg_section_counts *t, bool *blocked) {
    if (rows->count != (int)count) return pg_unexpected(db);
    for (size_t i = 0; i < count; i++) records[i]->result = ERR_INTERNAL; /* it had no row yet */
    while (pg_next(rows)) {
        size_t at = (size_t)pg_i64(rows, PLACE) - 1;
        if (at >= count || records[at]->result != ERR_INTERNAL) return pg_unexpected(db);
        if (!hold_read_one(db, rows, (struct ledger_hold *)records[at], &blocked[at])) return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct ledger_hold *hold = (struct ledger_hold *)records[i];
        const struct reservation *r = hold->wanted;
        if (hold->held) pg_section_counts_add(t, r->section_key, r->seat_count, 0, hold);
    }
    return true;
}

const struct pg_kind pg_kind_hold = {.many = true, .send = hold_send, .read = hold_read};

/* --- undoing --- */

static size_t void_send(struct pg *db, struct ledger_record **records, size_t count, bool wait) {
    (void)count;
    (void)wait;
    const struct ledger_hold_void *undo = (const struct ledger_hold_void *)records[0];
    pg_send(db, "SELECT ledger_hold_void_1($1, $2, $3, $4)", pg_cell_uuid(&undo->id),
            pg_cell_i64(undo->event_key), pg_cell_i64(undo->section_key),
            pg_cell_i64(undo->now_ms));
    return 1;
}

static bool void_read(struct pg *db, struct pg_rows *rows, struct ledger_record **records,
                      size_t count, struct pg_section_counts *t, bool *blocked) {
    (void)db;
    (void)count;
    (void)t;
    (void)blocked;
    struct ledger_hold_void *undo = (struct ledger_hold_void *)records[0];
    undo->record.result = ERR_OK;
    undo->voided = pg_next(rows) && pg_bool(rows, 0);
    return true;
}

const struct pg_kind pg_kind_hold_void = {.send = void_send, .read = void_read};

/* --- asked --- */

static bool pg_seat_from_row(const struct pg_rows *rows, struct ledger_seats_read *read, size_t i) {
    /* AVAILABLE, HELD, CONFIRMED: the first letter is the state. */
    str state = pg_str(rows, 0);
    read->states[i] = state.len == 0 ? SEAT_AVAILABLE : (enum seat_state)state.at[0];
    read->versions[i] = pg_i64(rows, 1);
    read->holders[i] = (struct uuid){0};
    if (read->states[i] == SEAT_AVAILABLE) return true;
    return (read->states[i] == SEAT_HELD || read->states[i] == SEAT_CONFIRMED) &&
           pg_uuid(rows, 2, &read->holders[i]);
}

/* One statement sees one moment. */
bool pg_seats_read(struct pg *db, struct ledger_seats_read *read) {
    struct pg_rows rows;
    struct pg_array seats = {0};
    for (size_t i = 0; i < read->count; i++) pg_array_i64(&seats, read->seats[i]);
    bool ok = pg_query(db, &rows,
                       "SELECT s.state, s.version, s.reservation_id"
                       " FROM unnest($2) WITH ORDINALITY AS w(seat_no, n)"
                       " LEFT JOIN LATERAL (SELECT t.* FROM seats t"
                       "  WHERE t.section_id = $1 AND t.seat_no = w.seat_no OFFSET 0) s ON true"
                       " ORDER BY w.n",
                       pg_cell_i64(read->section_key), pg_cell_array(&seats));
    pg_array_deinit(&seats);
    bool fits = rows.count == (int)read->count;
    for (size_t i = 0; fits && i < read->count && pg_next(&rows); i++)
        fits = pg_seat_from_row(&rows, read, i) && fits;
    pg_rows_clear(&rows);
    if (!ok) return false;
    return fits || pg_fail(db, PG_CORRUPT, "a seat's row has a value that is not allowed");
}
