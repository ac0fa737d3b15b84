/* One connection to PostgreSQL: opening, prepared statements, pipelines, and the reading of rows.
 */
#include "ledger/postgres_db.h"

#include <assert.h>
#include <endian.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

/* As in the server's catalogue (pg_type.dat); they never change. */
enum {
    TYPE_BYTEA = 17,
    TYPE_INT8 = 20,
    TYPE_TEXT = 25,
    TYPE_BYTEA_ARRAY = 1001,
    TYPE_TEXT_ARRAY = 1009,
    TYPE_INT8_ARRAY = 1016,
    TYPE_UUID = 2950,
    TYPE_UUID_ARRAY = 2951,
};

#define CELLS_MAX 32
#define CONNECT_WAIT_MS 5000

/* --- failures --- */

bool pg_fail(struct pg *db, const char *state, const char *text) {
    snprintf(db->failure.state, sizeof db->failure.state, "%s", state);
    snprintf(db->failure.text, sizeof db->failure.text, "%s", text);
    /* libpq's texts are of several lines, with tabs, and end with one. */
    size_t len = 0;
    for (const char *c = db->failure.text; *c != '\0'; c++) {
        bool blank = *c == '\n' || *c == '\t' || *c == ' ';
        if (!blank)
            db->failure.text[len++] = *c;
        else if (len > 0 && db->failure.text[len - 1] != ' ')
            db->failure.text[len++] = ' ';
    }
    if (len > 0 && db->failure.text[len - 1] == ' ') len--;
    db->failure.text[len] = '\0';
    return false;
}

bool pg_failed_with(const struct pg *db, const char *state) {
    return strcmp(db->failure.state, state) == 0;
}

bool pg_unexpected(struct pg *db) {
    return pg_fail(db, PG_CORRUPT, "the database answers what it can't");
}

bool pg_sound(struct pg *db) {
    return !db->misread || pg_unexpected(db);
}

bool pg_alive(const struct pg *db) {
    return db->handle != NULL && PQstatus(db->handle) != CONNECTION_BAD;
}

void pg_close(struct pg *db) {
    PQfinish(db->handle);
    map_deinit(&db->prepared);
    mem_free(db->expected);
    struct pg_failure failure = db->failure;
    *db = (struct pg){.wait_ms = db->wait_ms, .failure = failure};
}

static bool pg_lose(struct pg *db, const char *text) {
    pg_fail(db, PG_CONNECTION_LOST, text);
    pg_close(db);
    return false;
}

/* Whether something can be sent. */
static bool is_usable(struct pg *db) {
    if (!pg_alive(db)) return pg_lose(db, "there is no connection");
    return pg_sound(db) || pg_lose(db, db->failure.text);
}

/* The server ends the connection, or is no longer one that can be written to. */
static bool ends_connection(const char *state) {
    return strncmp(state, "08", 2) == 0 || strncmp(state, "57P", 3) == 0 ||
           strcmp(state, PG_READ_ONLY) == 0;
}

static bool note_result(struct pg *db, const PGresult *result) {
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == NULL) return pg_lose(db, PQerrorMessage(db->handle));
    pg_fail(db, state, text == NULL ? "" : text);
    if (ends_connection(state)) pg_close(db);
    return false;
}

/* --- connecting --- */

/* The `options` of the URL, followed by ours. */
static void add_options(struct buf *options, const PQconninfoOption *given,
                        const struct pg_settings *s) {
    for (const PQconninfoOption *o = given; o->keyword != NULL; o++)
        if (strcmp(o->keyword, "options") == 0 && o->val != NULL) buf_addf(options, "%s ", o->val);
    buf_addf(options, "-c lock_timeout=%lld -c statement_timeout=%lld",
             (long long)s->lock_timeout_ms, (long long)s->statement_timeout_ms);
    int64_t idle_ms = s->wait_ms * 2;
    if (!s->reads_much && idle_ms > PG_SILENT_MS) idle_ms = PG_SILENT_MS;
    buf_addf(options,
             " -c idle_in_transaction_session_timeout=%lld -c jit=off"
             " -c default_transaction_isolation=read\\ committed",
             (long long)idle_ms);
    if (s->idle_timeout_ms > 0)
        buf_addf(options, " -c idle_session_timeout=%lld", (long long)s->idle_timeout_ms);
    if (s->read_only) buf_addf(options, " -c default_transaction_read_only=on");
    if (!s->reads_much)
        buf_addf(options, " -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off"
                          " -c enable_mergejoin=off -c random_page_cost=0"
                          " -c plan_cache_mode=force_generic_plan");
}

void pg_open_begin(struct pg *db, const struct pg_settings *s) {
    *db = (struct pg){.wait_ms = s->wait_ms, .writes = s->writes, .failure = db->failure};
    map_init(&db->prepared);
    PQconninfoOption *given = PQconninfoParse(s->url, NULL);
    if (given == NULL) {
        pg_fail(db, PG_CONNECTION_LOST, "its URL is malformed");
        return;
    }
    struct buf options = {0};
    char wait_ms[32];
    add_options(&options, given, s);
    PQconninfoFree(given);
    snprintf(wait_ms, sizeof wait_ms, "%lld", (long long)s->wait_ms);
    /* A server that has vanished without a word is missed after half a minute at the latest. */
    const char *const names[] = {"dbname",           "application_name",
                                 "client_encoding",  "keepalives",
                                 "keepalives_idle",  "keepalives_interval",
                                 "keepalives_count", "tcp_user_timeout",
                                 "options",          NULL};
    const char *const values[] = {s->url,  "admitone",         "UTF8", "1", "10", "5", "3",
                                  wait_ms, buf_cstr(&options), NULL};
    db->handle = PQconnectStartParams(names, values, 1);
    db->opening = POLLOUT;
    buf_deinit(&options);
}

/* Notices of the server are ignored: they are in its own log. */
static void ignore(void *to, const char *text) {
    (void)to;
    (void)text;
}

static bool is_on(const struct pg *db, const char *parameter) {
    const char *value = PQparameterStatus(db->handle, parameter);
    return value != NULL && strcmp(value, "on") == 0;
}

/* From the server's last answer. */
static bool is_writable(struct pg *db) {
    if (is_on(db, "in_hot_standby"))
        return pg_fail(db, PG_READ_ONLY, "the server is read-only: it is a replica");
    if (is_on(db, "default_transaction_read_only"))
        return pg_fail(db, PG_READ_ONLY,
                       "the server is read-only: default_transaction_read_only is on");
    return true;
}

/* Sets what the promises of the ledger depend on, whatever the defaults of the database are. */
static bool settle_in(struct pg *db) {
    if (PQserverVersion(db->handle) < 140000)
        return pg_fail(db, PG_CONNECTION_LOST, "the server is older than PostgreSQL 14");
    const char *encoding = PQparameterStatus(db->handle, "server_encoding");
    if (encoding == NULL || strcmp(encoding, "UTF8") != 0)
        return pg_fail(db, PG_CONNECTION_LOST, "the database's encoding is not UTF8");
    if (db->writes && !is_writable(db)) return false;
    PQsetNoticeProcessor(db->handle, ignore, NULL);
    PQsetnonblocking(db->handle, 1);
    return pg_exec(db, "SELECT set_config('synchronous_commit', 'on', false)"
                       " WHERE current_setting('synchronous_commit') = 'off'");
}

enum pg_opening pg_open_step(struct pg *db, int64_t ms) {
    if (db->handle == NULL) return PG_UNOPENED;
    if (PQstatus(db->handle) == CONNECTION_BAD) {
        pg_lose(db, PQerrorMessage(db->handle));
        return PG_UNOPENED;
    }
    struct pollfd fd = {.fd = PQsocket(db->handle), .events = db->opening};
    if (poll(&fd, 1, (int)ms) <= 0) return PG_OPENING;
    switch (PQconnectPoll(db->handle)) {
    case PGRES_POLLING_READING:
        db->opening = POLLIN;
        return PG_OPENING;
    case PGRES_POLLING_WRITING:
        db->opening = POLLOUT;
        return PG_OPENING;
    case PGRES_POLLING_OK:
        if (settle_in(db)) return PG_OPENED;
        pg_close(db);
        return PG_UNOPENED;
    default:
        pg_lose(db, PQerrorMessage(db->handle));
        return PG_UNOPENED;
    }
}

void pg_address(const char *url, struct buf *out) {
    PQconninfoOption *given = PQconninfoParse(url, NULL);
    if (given == NULL) return;
    for (const PQconninfoOption *o = given; o->keyword != NULL; o++) {
        bool tells = strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "port") == 0 ||
                     strcmp(o->keyword, "dbname") == 0 || strcmp(o->keyword, "user") == 0;
        if (!tells || o->val == NULL) continue;
        buf_addf(out, "%s%s=%s", out->len > 0 ? " " : "", o->keyword, o->val);
    }
    PQconninfoFree(given);
}

bool pg_open(struct pg *db, const struct pg_settings *s, struct buf *why) {
    int64_t wait_ms = s->wait_ms > 0 ? s->wait_ms : CONNECT_WAIT_MS;
    int64_t until_ms = clock_steady_ms() + wait_ms;
    enum pg_opening now = PG_OPENING;
    *db = (struct pg){0};
    pg_open_begin(db, s);
    while (now == PG_OPENING) {
        int64_t left_ms = until_ms - clock_steady_ms();
        if (left_ms <= 0) {
            pg_lose(db, "the server did not answer in time");
            break;
        }
        now = pg_open_step(db, left_ms);
    }
    if (now == PG_OPENED) return true;
    buf_addf(why, "cannot connect to PostgreSQL (");
    struct buf whereto = {0};
    pg_address(s->url, &whereto);
    buf_add(why, buf_str(&whereto));
    buf_deinit(&whereto);
    buf_addf(why, "): %s", db->failure.text);
    return false;
}

/* --- cells --- */

struct pg_cell pg_cell_i64(int64_t number) {
    return (struct pg_cell){.type = TYPE_INT8, .number = number};
}

static struct pg_cell pg_cell_null_i64(void) {
    return (struct pg_cell){.type = TYPE_INT8, .is_null = true};
}

struct pg_cell pg_cell_time(int64_t ms) {
    return ms == CLOCK_NONE_MS ? pg_cell_null_i64() : pg_cell_i64(ms);
}

struct pg_cell pg_cell_str(str text) {
    return (struct pg_cell){.type = TYPE_TEXT, .bytes = text};
}

struct pg_cell pg_cell_text(const char *zero_terminated) {
    return pg_cell_str(str_of(zero_terminated));
}

struct pg_cell pg_cell_null_text(void) {
    return (struct pg_cell){.type = TYPE_TEXT, .is_null = true};
}

struct pg_cell pg_cell_bytes(const void *bytes, size_t len) {
    return (struct pg_cell){.type = TYPE_BYTEA, .bytes = {bytes, len}};
}

struct pg_cell pg_cell_null_bytes(void) {
    return (struct pg_cell){.type = TYPE_BYTEA, .is_null = true};
}

struct pg_cell pg_cell_uuid(const struct uuid *id) {
    return (struct pg_cell){.type = TYPE_UUID,
                            .bytes = {(const char *)id->bytes, sizeof id->bytes}};
}

/* --- arrays: a head of five numbers, then each element's length and bytes --- */

static void add_i32(struct buf *b, int32_t number) {
    uint32_t big = htobe32((uint32_t)number);
    buf_append(b, &big, sizeof big);
}

static void array_add(struct pg_array *a, Oid type, const void *bytes, size_t len) {
    assert(a->type == 0 || a->type == type);
    if (a->type == 0) {
        a->type = type;
        add_i32(&a->bytes, 1); /* dimensions */
        add_i32(&a->bytes, 1); /* there may be NULLs */
        add_i32(&a->bytes, (int32_t)type);
        add_i32(&a->bytes, 0); /* how many: pg_cell_array knows */
        add_i32(&a->bytes, 1); /* the first one's index */
    }
    add_i32(&a->bytes, bytes == NULL ? -1 : (int32_t)len);
    if (bytes != NULL) buf_append(&a->bytes, bytes, len);
    a->count++;
}

void pg_array_i64(struct pg_array *a, int64_t number) {
    uint64_t big = htobe64((uint64_t)number);
    array_add(a, TYPE_INT8, &big, sizeof big);
}

/* An empty str may have no address, which would be NULL. */
void pg_array_str(struct pg_array *a, str text) {
    array_add(a, TYPE_TEXT, text.at == NULL ? "" : text.at, text.len);
}

void pg_array_bytes(struct pg_array *a, const void *bytes, size_t len) {
    array_add(a, TYPE_BYTEA, bytes, len);
}

void pg_array_uuid(struct pg_array *a, const struct uuid *id) {
    array_add(a, TYPE_UUID, id->bytes, sizeof id->bytes);
}

void pg_array_null(struct pg_array *a, struct pg_cell like) {
    array_add(a, like.type, NULL, 0);
}

void pg_array_deinit(struct pg_array *a) {
    buf_deinit(&a->bytes);
    *a = (struct pg_array){0};
}

static Oid array_of(Oid type) {
    return type == TYPE_INT8   ? TYPE_INT8_ARRAY
           : type == TYPE_TEXT ? TYPE_TEXT_ARRAY
           : type == TYPE_UUID ? TYPE_UUID_ARRAY
                               : TYPE_BYTEA_ARRAY;
}

struct pg_cell pg_cell_array(struct pg_array *a) {
    static const unsigned char empty[12] = {[11] = TYPE_INT8};
    if (a->count == 0)
        return (struct pg_cell){.type = TYPE_INT8_ARRAY, .bytes = {(const char *)empty, 12}};
    uint32_t big = htobe32((uint32_t)a->count);
    memcpy(a->bytes.bytes + 3 * sizeof big, &big, sizeof big);
    return (struct pg_cell){.type = array_of(a->type), .bytes = buf_str(&a->bytes)};
}

/* --- waiting --- */

static int wait_left_ms(const struct pg *db, int64_t since_ns) {
    int64_t until_ns = db->wait_ms > 0 ? since_ns + db->wait_ms * 1000000 : INT64_MAX;
    if (db->until_ns > 0 && db->until_ns < until_ns) until_ns = db->until_ns;
    if (until_ns == INT64_MAX) return -1;
    int64_t left_ms = (until_ns - clock_steady_ns() + 999999) / 1000000;
    return left_ms < 0 ? 0 : (int)left_ms;
}

/* Until PQgetResult has something to say at once. */
static bool await(struct pg *db) {
    int64_t since_ns = clock_steady_ns();
    for (;;) {
        int unsent = PQflush(db->handle);
        if (unsent < 0) return pg_lose(db, PQerrorMessage(db->handle));
        if (!PQisBusy(db->handle)) return true;
        struct pollfd fd = {.fd = PQsocket(db->handle),
                            .events = (short)(unsent > 0 ? POLLIN | POLLOUT : POLLIN)};
        int left_ms = wait_left_ms(db, since_ns);
        if (left_ms == 0 || poll(&fd, 1, left_ms) == 0)
            return pg_lose(db, "the server did not answer in time");
        if (PQconsumeInput(db->handle) == 0) return pg_lose(db, PQerrorMessage(db->handle));
    }
}

/* It was not requested, and would never end. */
static bool is_copy(const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
}

/* The last result of the statements that were sent, or the first that failed; NULL: the connection
 * is lost. */
static PGresult *await_last(struct pg *db) {
    PGresult *last = NULL;
    for (;;) {
        if (!await(db)) {
            PQclear(last);
            return NULL;
        }
        PGresult *next = PQgetResult(db->handle);
        if (next == NULL) return last;
        if (last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR) {
            PQclear(next);
            continue;
        }
        PQclear(last);
        last = next;
        if (is_copy(last)) {
            PQclear(last);
            pg_lose(db, "the server wants to copy");
            return NULL;
        }
    }
}

static bool is_good(const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Takes the result over. */
static bool take_result(struct pg *db, PGresult *result, struct pg_rows *rows) {
    if (rows != NULL) *rows = (struct pg_rows){0};
    if (result == NULL) return false;
    bool good = is_good(result);
    if (!good) note_result(db, result);
    if (good && rows != NULL)
        *rows = (struct pg_rows){
            .result = result, .at = -1, .count = PQntuples(result), .misread = &db->misread};
    else
        PQclear(result);
    return good;
}

bool pg_exec(struct pg *db, const char *sql) {
    if (!is_usable(db)) return false;
    if (PQsendQuery(db->handle, sql) == 0) return pg_lose(db, PQerrorMessage(db->handle));
    return take_result(db, await_last(db), NULL);
}

bool pg_look(struct pg *db) {
    if (!pg_alive(db)) return false;
    struct pollfd fd = {.fd = PQsocket(db->handle), .events = POLLIN};
    if (poll(&fd, 1, 0) <= 0) return true;
    return PQconsumeInput(db->handle) != 0 || pg_lose(db, PQerrorMessage(db->handle));
}

bool pg_look_writable(struct pg *db) {
    db->until_ns = 0; /* that of the last transaction */
    if (!pg_exec(db, "SELECT 1")) return false;
    if (!db->writes || is_writable(db)) return true;
    pg_close(db);
    return false;
}

void pg_rollback(struct pg *db) {
    struct pg_failure failure = db->failure;
    if (!pg_alive(db))
        pg_close(db);
    else if (PQtransactionStatus(db->handle) != PQTRANS_IDLE)
        pg_exec(db, "ROLLBACK");
    db->failure = failure;
}

/* --- statements --- */

struct parameters {
    Oid types[CELLS_MAX];
    const char *values[CELLS_MAX];
    int lengths[CELLS_MAX];
    int formats[CELLS_MAX];
    uint64_t numbers[CELLS_MAX];
};

static void pg_bind(struct parameters *p, const struct pg_cell *cells, size_t count) {
    assert(count <= CELLS_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct pg_cell *c = &cells[i];
        p->types[i] = c->type;
        p->formats[i] = 1;
        p->values[i] = NULL;
        p->lengths[i] = 0;
        if (c->is_null) continue;
        if (c->type == TYPE_INT8) {
            p->numbers[i] = htobe64((uint64_t)c->number);
            p->values[i] = (const char *)&p->numbers[i];
            p->lengths[i] = sizeof p->numbers[i];
        } else {
            p->values[i] = c->bytes.at == NULL ? "" : c->bytes.at;
            p->lengths[i] = (int)c->bytes.len;
        }
    }
}

/* A statement's name on the server, and its key in `prepared`: its text's address. */
struct statement_name {
    char text[24];
};

static struct statement_name pg_statement_name(const char *sql) {
    struct statement_name name;
    snprintf(name.text, sizeof name.text, "s%zx", (size_t)sql);
    return name;
}

static str pg_statement_key(const char *const *sql) {
    return (str){(const char *)sql, sizeof *sql};
}

/* Sends the preparation of a statement. Its answer must come before the statement's. */
static bool pg_send_prepare(struct pg *db, const char *sql, const struct parameters *p,
                            size_t count) {
    struct statement_name name = pg_statement_name(sql);
    if (PQsendPrepare(db->handle, name.text, sql, (int)count, p->types) == 0)
        return pg_lose(db, PQerrorMessage(db->handle));
    map_put(&db->prepared, pg_statement_key(&sql), (char *)sql);
    return true;
}

static bool pg_is_prepared(const struct pg *db, const char *sql) {
    return map_get(&db->prepared, pg_statement_key(&sql)) != NULL;
}

/* The answer to a preparation, which may have failed: then it is sent again next time. */
static bool pg_take_prepared(struct pg *db, const char *sql, bool ok) {
    if (!ok && db->handle != NULL) map_remove(&db->prepared, pg_statement_key(&sql));
    return ok;
}

static bool pg_prepare(struct pg *db, const char *sql, const struct parameters *p, size_t count) {
    if (pg_is_prepared(db, sql)) return true;
    return pg_send_prepare(db, sql, p, count) &&
           pg_take_prepared(db, sql, take_result(db, await_last(db), NULL));
}

static bool send_statement(struct pg *db, const char *sql, const struct parameters *p,
                           size_t count) {
    int sent = PQsendQueryPrepared(db->handle, pg_statement_name(sql).text, (int)count, p->values,
                                   p->lengths, p->formats, 1);
    return sent == 1 || pg_lose(db, PQerrorMessage(db->handle));
}

bool pg_query_cells(struct pg *db, struct pg_rows *rows, const char *sql,
                    const struct pg_cell *cells, size_t count) {
    struct parameters p;
    *rows = (struct pg_rows){0};
    if (!is_usable(db)) return false;
    assert(PQpipelineStatus(db->handle) == PQ_PIPELINE_OFF);
    pg_bind(&p, cells, count);
    return pg_prepare(db, sql, &p, count) && send_statement(db, sql, &p, count) &&
           take_result(db, await_last(db), rows);
}

bool pg_run_cells(struct pg *db, int64_t *changed, const char *sql, const struct pg_cell *cells,
                  size_t count) {
    struct pg_rows rows;
    if (!pg_query_cells(db, &rows, sql, cells, count)) return false;
    int64_t number = 0;
    str_to_i64(str_of(PQcmdTuples(rows.result)), &number);
    if (changed != NULL) *changed = number;
    pg_rows_clear(&rows);
    return true;
}

bool pg_change_cells(struct pg *db, const char *sql, const struct pg_cell *cells, size_t count) {
    int64_t changed = 0;
    if (!pg_run_cells(db, &changed, sql, cells, count)) return false;
    return changed == 1 || pg_fail(db, PG_CORRUPT, "a row is not as it must be");
}

bool pg_number_cells(struct pg *db, int64_t *out, const char *sql, const struct pg_cell *cells,
                     size_t count) {
    struct pg_rows rows;
    if (!pg_query_cells(db, &rows, sql, cells, count)) return false;
    if (pg_next(&rows) && !pg_is_null(&rows, 0)) *out = pg_i64(&rows, 0);
    pg_rows_clear(&rows);
    return pg_sound(db);
}

/* --- rows --- */

bool pg_next(struct pg_rows *rows) {
    if (rows->result == NULL) return false;
    if (++rows->at < rows->count) return true;
    pg_rows_clear(rows);
    return false;
}

void pg_rows_clear(struct pg_rows *rows) {
    PQclear(rows->result);
    *rows = (struct pg_rows){0};
}

bool pg_is_null(const struct pg_rows *rows, int column) {
    return PQgetisnull(rows->result, rows->at, column) != 0;
}

str pg_str(const struct pg_rows *rows, int column) {
    return (str){PQgetvalue(rows->result, rows->at, column),
                 (size_t)PQgetlength(rows->result, rows->at, column)};
}

int64_t pg_i64(const struct pg_rows *rows, int column) {
    str s = pg_str(rows, column);
    if (s.len != 0 && s.len != 1 && s.len != 2 && s.len != 4 && s.len != 8) {
        *rows->misread = true;
        return 0;
    }
    uint64_t number = s.len > 1 && (s.at[0] & 0x80) != 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < s.len; i++) number = number << 8 | (unsigned char)s.at[i];
    return (int64_t)number;
}

bool pg_bool(const struct pg_rows *rows, int column) {
    return pg_i64(rows, column) != 0;
}

int64_t pg_time(const struct pg_rows *rows, int column) {
    return pg_is_null(rows, column) ? CLOCK_NONE_MS : pg_i64(rows, column);
}

bool pg_uuid(const struct pg_rows *rows, int column, struct uuid *out) {
    str s = pg_str(rows, column);
    if (s.len != sizeof out->bytes) return false;
    memcpy(out->bytes, s.at, s.len);
    return true;
}

/* --- the pipeline --- */

static void expect(struct pg *db, const char *what) {
    db->expected =
        mem_make_room(db->expected, db->expected_count, &db->expected_cap, sizeof *db->expected);
    db->expected[db->expected_count++] = what;
}

void pg_pipeline(struct pg *db) {
    if (!is_usable(db)) return;
    if (PQenterPipelineMode(db->handle) == 0) {
        pg_lose(db, PQerrorMessage(db->handle));
        return;
    }
    db->expected_first = 0;
    db->expected_count = 0;
    db->failure.state[0] = '\0';
}

void pg_send_cells(struct pg *db, const char *sql, const struct pg_cell *cells, size_t count) {
    struct parameters p;
    if (db->handle == NULL) return;
    pg_bind(&p, cells, count);
    if (!pg_is_prepared(db, sql)) {
        if (!pg_send_prepare(db, sql, &p, count)) return;
        expect(db, sql);
    }
    if (send_statement(db, sql, &p, count)) expect(db, NULL);
}

void pg_sync(struct pg *db) {
    if (db->handle != NULL && PQpipelineSync(db->handle) == 0)
        pg_lose(db, PQerrorMessage(db->handle));
}

/* The result of the next one that was sent, whichever it is, and the NULL behind it. */
static PGresult *await_next(struct pg *db) {
    if (db->handle == NULL || !await(db)) return NULL;
    PGresult *result = PQgetResult(db->handle);
    if (result == NULL) {
        pg_lose(db, "the server's answers are out of step");
        return NULL;
    }
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) return result;
    if (await(db)) {
        PGresult *end = PQgetResult(db->handle);
        if (end == NULL) return result;
        PQclear(end);
        pg_lose(db, "the server's answers are out of step");
    }
    PQclear(result);
    return NULL;
}

static bool receive_one(struct pg *db, PGresult *result, struct pg_rows *rows) {
    if (result != NULL && PQresultStatus(result) == PGRES_PIPELINE_ABORTED) {
        PQclear(result);
        return false;
    }
    return take_result(db, result, rows);
}

bool pg_receive(struct pg *db, struct pg_rows *rows) {
    *rows = (struct pg_rows){0};
    while (db->handle != NULL) {
        assert(db->expected_first < db->expected_count);
        const char *prepared = db->expected[db->expected_first++];
        PGresult *result = await_next(db);
        if (prepared == NULL) return receive_one(db, result, rows);
        pg_take_prepared(db, prepared, receive_one(db, result, NULL));
    }
    return false;
}

bool pg_pipeline_end(struct pg *db) {
    struct pg_rows rest;
    while (db->handle != NULL && db->expected_first < db->expected_count) {
        pg_receive(db, &rest);
        pg_rows_clear(&rest);
    }
    PGresult *sync = await_next(db);
    if (sync == NULL) return false;
    bool in_step = PQresultStatus(sync) == PGRES_PIPELINE_SYNC;
    PQclear(sync);
    if (!in_step || PQexitPipelineMode(db->handle) == 0)
        return pg_lose(db, "the server's answers are out of step");
    return db->failure.state[0] == '\0';
}
