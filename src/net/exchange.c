/* One request and its answer: takes an exchange from the free list, knows its client and its id,
 * renders the answer and logs it. */
#include "net/exchange.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "net/internal.h"

/* How many exchanges are kept for reuse after a burst. */
#define KEPT_EXCHANGES_MAX 256
/* Failed requests that each worker logs at level info. */
#define FAILURES_PER_SECOND_MAX 10

struct exchange *exchange_take(struct conn *c) {
    struct net_worker *nw = c->net;
    struct exchange *x = nw->free_exchanges;
    if (x == NULL) {
        x = mem_new(sizeof *x);
    } else {
        nw->free_exchanges = x->next_free;
        nw->free_exchange_count--;
    }
    x->conn = c;
    x->net = nw;
    x->fresh = true;
    x->head = false;
    x->retry_after_s = 0;
    x->problem_status = 0;
    x->request_id_len = 0;
    x->user = (str){NULL, 0};
    x->caller = NULL;
    x->present = NULL;
    x->present_data = NULL;
    x->problem = ERR_OK;
    x->has_json_body = false;
    x->path = (str){NULL, 0};
    x->is_kept = false;
    x->is_put_off = false;
    x->was_put_off = false;
    http1_init(&x->parser);
    nw->exchange_count++;
    return x;
}

void exchange_release(struct exchange *x) {
    arena_reset(&x->arena);
    buf_deinit(&x->headers);
    mem_free(x);
}

void exchange_free(struct exchange *x) {
    struct net_worker *nw = x->net;
    assert(nw->exchange_count > 0);
    if (nw->free_exchange_count < KEPT_EXCHANGES_MAX) {
        arena_rewind(&x->arena);
        buf_clear(&x->headers);
        x->next_free = nw->free_exchanges;
        nw->free_exchanges = x;
        nw->free_exchange_count++;
    } else {
        exchange_release(x);
    }
    nw->exchange_count--;
    net_worker_maybe_drained(nw);
}

/* The client's own X-Request-Id if it is harmless, else the worker's prefix and a count. */
static void name_request(struct exchange *x) {
    bool whole = x->parser.phase == HTTP1_WHOLE;
    str given = whole ? http_header(&x->request, STR("X-Request-Id")) : (str){NULL, 0};
    if (given.at != NULL && str_is_name(given, REQUEST_ID_BYTES_MAX)) {
        memcpy(x->request_id, given.at, given.len);
        x->request_id_len = given.len;
        return;
    }
    static const char hex[] = "0123456789abcdef";
    uint64_t seq = ++x->net->request_seq;
    memcpy(x->request_id, x->net->request_prefix, 8);
    for (int i = 15; i >= 8; i--, seq >>= 4) x->request_id[i] = hex[seq & 15];
    x->request_id_len = 16;
}

/* Where several proxies have each added a value, the first is the client's own. */
static bool came_over_tls(const struct exchange *x) {
    if (!address_in(&x->conn->peer, &x->net->net->options.trusted_proxies)) return false;
    if (x->parser.phase != HTTP1_WHOLE) return false;
    str said = http_header(&x->request, STR("X-Forwarded-Proto"));
    str first;
    return str_split(&said, ',', &first) && str_eq_nocase(str_trim(first), STR("https"));
}

bool exchange_secure(const struct exchange *x) {
    return x->secure;
}

void exchange_begin(struct exchange *x) {
    x->started_ns = clock_steady_ns();
    x->head = x->parser.phase > HTTP1_REQUEST_LINE && x->parser.method == HTTP_HEAD;
    x->secure = came_over_tls(x);
    name_request(x);
}

struct address exchange_client(const struct exchange *x) {
    if (x->was_put_off) return x->client;
    if (x->conn == NULL) return (struct address){{0}};
    struct address client = x->conn->peer;
    const struct networks *trusted = &x->net->net->options.trusted_proxies;
    size_t headers = 0;
    str list = {NULL, 0};
    /* Each proxy adds its client at the end, or in a header of its own behind the others: walk back
     * while the proxy is trusted. */
    while (address_in(&client, trusted)) {
        if (list.len == 0)
            list = http_header_from_end(&x->request, STR("X-Forwarded-For"), headers++);
        size_t comma = list.len;
        while (comma > 0 && list.at[comma - 1] != ',') comma--;
        struct address said;
        if (!address_parse_forwarded(str_trim(str_skip(list, comma)), &said)) break;
        client = said;
        list.len = comma == 0 ? 0 : comma - 1;
    }
    return client;
}

static void keep_path_and_client(struct exchange *x) {
    x->path = arena_copy(&x->arena, x->request.path);
    x->client = exchange_client(x);
    x->is_kept = true;
}

void exchange_outlives_request(struct exchange *x) {
    if (x->is_kept || !log_enabled(LOG_INFO) || x->parser.phase != HTTP1_WHOLE) return;
    keep_path_and_client(x);
}

void exchange_put_off(struct exchange *x) {
    assert(x->conn != NULL && x->parser.phase == HTTP1_WHOLE);
    x->site = x->conn->site;
    keep_path_and_client(x);
    str block = arena_copy(&x->arena, (str){x->request.block, x->parser.used});
    x->request = http1_request(&x->parser, block.at);
    x->is_put_off = true;
}

void exchange_resume(struct exchange *x) {
    assert(x->is_put_off);
    x->is_put_off = false;
    x->was_put_off = true;
    x->site->on_request(x->site, x);
}

bool exchange_was_put_off(const struct exchange *x) {
    return x->was_put_off;
}

bool exchange_is_abandoned(const struct exchange *x) {
    return x->conn == NULL || x->conn->eof;
}

void exchange_restart_clock(struct exchange *x) {
    x->started_ns = clock_steady_ns();
}

void *exchange_context(const struct exchange *x) {
    return x->net->context;
}

void reply_header(struct exchange *x, str name, str value) {
    buf_add(&x->headers, name);
    buf_add(&x->headers, STR(": "));
    buf_add(&x->headers, value);
    buf_add(&x->headers, STR("\r\n"));
}

void reply_header_lines(struct exchange *x, str lines) {
    buf_add(&x->headers, lines);
}

void reply_drop_header(struct exchange *x, str name) {
    struct buf kept = {0};
    str rest = buf_str(&x->headers);
    str line;
    while (rest.len > 0 && str_split(&rest, '\n', &line)) {
        str value = line;
        str key;
        if (str_split(&value, ':', &key) && str_eq_nocase(key, name)) continue;
        buf_add(&kept, line);
        buf_add_char(&kept, '\n');
    }
    buf_deinit(&x->headers);
    x->headers = kept;
}

struct buf *reply_start(struct exchange *x, int status) {
    x->status = status;
    buf_clear(&x->net->body);
    return &x->net->body;
}

static str reason_of(int status) {
    static const struct {
        int status;
        str reason;
    } rows[] = {
        {200, STR_INIT("OK")},
        {201, STR_INIT("Created")},
        {202, STR_INIT("Accepted")},
        {204, STR_INIT("No Content")},
        {303, STR_INIT("See Other")},
        {304, STR_INIT("Not Modified")},
        {400, STR_INIT("Bad Request")},
        {401, STR_INIT("Unauthorized")},
        {403, STR_INIT("Forbidden")},
        {404, STR_INIT("Not Found")},
        {405, STR_INIT("Method Not Allowed")},
        {408, STR_INIT("Request Timeout")},
        {409, STR_INIT("Conflict")},
        {410, STR_INIT("Gone")},
        {412, STR_INIT("Precondition Failed")},
        {413, STR_INIT("Content Too Large")},
        {414, STR_INIT("URI Too Long")},
        {415, STR_INIT("Unsupported Media Type")},
        {417, STR_INIT("Expectation Failed")},
        {422, STR_INIT("Unprocessable Content")},
        {429, STR_INIT("Too Many Requests")},
        {431, STR_INIT("Request Header Fields Too Large")},
        {500, STR_INIT("Internal Server Error")},
        {501, STR_INIT("Not Implemented")},
        {503, STR_INIT("Service Unavailable")},
        {505, STR_INIT("HTTP Version Not Supported")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status) return rows[i].reason;
    return STR("Unknown");
}

/* Formatted once a second: every answer has it. */
static str date_now(struct net_worker *nw) {
    int64_t now_s = clock_wall_ms() / 1000;
    if (now_s != nw->date_s) {
        time_t t = (time_t)now_s;
        struct tm tm;
        gmtime_r(&t, &tm);
        size_t len = strftime(nw->date, sizeof nw->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        assert(len == sizeof nw->date - 1);
        nw->date_s = now_s;
    }
    return (str){nw->date, sizeof nw->date - 1};
}

void reply_head(struct exchange *x, struct buf *out, str content_type, int64_t length) {
    bool bodiless = x->status == 204 || x->status == 304;
    assert(!bodiless || length == 0);
    assert(length >= 0 || x->conn->last);
    buf_add(out, STR("HTTP/1.1 "));
    buf_add_i64(out, x->status);
    buf_add_char(out, ' ');
    buf_add(out, reason_of(x->status));
    buf_add(out, STR("\r\nDate: "));
    buf_add(out, date_now(x->net));
    buf_add(out, STR("\r\nX-Request-Id: "));
    buf_append(out, x->request_id, x->request_id_len);
    if (!bodiless) {
        buf_add(out, STR("\r\nContent-Type: "));
        buf_add(out, content_type);
    }
    if (!bodiless && length >= 0) {
        buf_add(out, STR("\r\nContent-Length: "));
        buf_add_i64(out, length);
    }
    buf_add(out, STR("\r\n"));
    buf_add(out, buf_str(&x->headers));
    if (x->conn->last)
        buf_add(out, STR("Connection: close\r\n"));
    else if (x->parser.http10) /* which expects a close unless the answer says otherwise */
        buf_add(out, STR("Connection: keep-alive\r\n"));
    buf_add(out, STR("\r\n"));
}

static void reply_render(struct exchange *x, struct buf *out, str content_type, str body) {
    buf_reserve(out, 512 + body.len);
    reply_head(x, out, content_type, (int64_t)body.len);
    if (!x->head) buf_add(out, body);
}

/* When every request fails, the log must not be flooded: after FAILURES_PER_SECOND_MAX lines, the
 * rest of the second is counted, and the next line says how many were left out. */
static bool may_log_failure(struct net_worker *nw) {
    int64_t now_s = clock_steady_ms() / 1000;
    if (now_s != nw->logged_s) {
        nw->logged_s = now_s;
        nw->logged_count = 0;
    }
    bool may = nw->logged_count < FAILURES_PER_SECOND_MAX;
    nw->logged_count++;
    if (!may) nw->omitted_count++;
    return may;
}

/* The line of the access log. Input that never became a request is logged at debug only. */
static void log_answer(struct exchange *x, int64_t took_us) {
    bool is_whole = x->parser.phase == HTTP1_WHOLE;
    enum log_level level = is_whole && x->status >= 500 ? LOG_INFO : LOG_DEBUG;
    if (!log_enabled(level)) return;
    if (!log_enabled(LOG_DEBUG) && !may_log_failure(x->net)) return;
    char client[ADDRESS_TEXT_BYTES];
    struct address from = x->client;
    if (!x->is_kept) from = is_whole ? exchange_client(x) : x->conn->peer;
    address_format(&from, client);
    bool has_method = x->parser.phase > HTTP1_REQUEST_LINE;
    const struct log_field fields[] = {
        msg("request"),
        kv_str("method", has_method ? http_method_name(x->parser.method) : STR("")),
        kv_path("path", x->is_kept || !is_whole ? x->path : x->request.path),
        kv_i64("status", x->status),
        kv_i64("duration_us", took_us),
        kv_str("user", x->user),
        kv("client", client),
        kv_str("request_id", (str){x->request_id, x->request_id_len}),
        kv_i64("omitted", x->net->omitted_count),
    };
    size_t count_of = sizeof fields / sizeof fields[0];
    log_write(level, fields, x->net->omitted_count > 0 ? count_of : count_of - 1);
    x->net->omitted_count = 0;
}

void reply_note(struct exchange *x) {
    static const enum counter by_class[] = {COUNT_HTTP_2XX, COUNT_HTTP_3XX, COUNT_HTTP_4XX,
                                            COUNT_HTTP_5XX};
    assert(x->status >= 200 && x->status < 600);
    count(by_class[x->status / 100 - 2], 1);
    int64_t took_us = (clock_steady_ns() - x->started_ns) / 1000;
    observe(HISTOGRAM_REQUEST_SECONDS, (uint64_t)took_us);
    log_answer(x, took_us);
}

/* JSON ends with a line end, so that a terminal's prompt does not stand behind it. */
static void end_line(struct buf *body, str content_type) {
    str json = STR("json");
    bool is_json = content_type.len >= json.len &&
                   str_eq(str_skip(content_type, content_type.len - json.len), json);
    if (is_json && body->len > 0 && body->bytes[body->len - 1] != '\n') buf_add_char(body, '\n');
}

static void reply_with(struct exchange *x, str content_type, str body) {
    struct conn *c = x->conn;
    reply_note(x);
    if (c != NULL) {
        /* HTTP/1.0 and "Connection: close" have set it already; a server that stops does here. */
        if (x->net->draining) c->last = true;
        reply_render(x, conn_out(c), content_type, body);
    }
    if (x->net->body.cap > KEPT_BYTES_MAX) buf_deinit(&x->net->body);
    /* First the exchange: the connection's next request may start inside conn_answered. */
    exchange_free(x);
    if (c != NULL) conn_answered(c);
}

void reply_send(struct exchange *x, str content_type) {
    void (*present)(struct exchange * x, int status) = x->present;
    if (present != NULL) {
        x->present = NULL;
        present(x, x->status);
        return;
    }
    end_line(&x->net->body, content_type);
    reply_with(x, content_type, buf_str(&x->net->body));
}

void reply_bytes(struct exchange *x, int status, str content_type, str body) {
    x->status = status;
    reply_with(x, content_type, body);
}

void reply_empty(struct exchange *x, int status) {
    reply_start(x, status);
    reply_send(x, STR("text/plain"));
}

static void say_when_to_retry(struct exchange *x, int status) {
    int64_t seconds = x->retry_after_s;
    if (seconds == 0 && (status == 503 || status == 429)) seconds = 1;
    if (seconds == 0) return;
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)seconds);
    reply_header(x, STR("Retry-After"), str_of(text));
}

static void send_problem(struct exchange *x, enum err e, const struct problem_member *members,
                         size_t count, const char *detail_format, va_list args) {
    char detail[512];
    vsnprintf(detail, sizeof detail, detail_format, args);
    str shown = str_cut(str_of(detail), sizeof detail - 4); /* no half character at its end */

    int status = x->problem_status != 0 ? x->problem_status : err_status(e);
    x->problem = e;
    say_when_to_retry(x, status);
    char type[64];
    char instance[REQUEST_ID_BYTES_MAX + 32];
    str code = err_code(e);
    snprintf(type, sizeof type, "urn:admitone:problem:%s", code.at);
    snprintf(instance, sizeof instance, "urn:admitone:request:%.*s", (int)x->request_id_len,
             x->request_id);

    struct json_out json;
    json_out_init(&json, reply_start(x, status));
    json_out_object(&json, STR(""));
    json_out_str(&json, STR("type"), str_of(type));
    json_out_str(&json, STR("title"), err_title(e));
    json_out_i64(&json, STR("status"), status);
    json_out_str(&json, STR("detail"), shown);
    json_out_str(&json, STR("code"), code);
    json_out_str(&json, STR("instance"), str_of(instance));
    for (size_t i = 0; i < count; i++) json_out_raw(&json, members[i].key, members[i].value);
    json_out_object_end(&json);
    json_out_done(&json);
    reply_send(x, STR("application/problem+json"));
}

void reply_problem(struct exchange *x, enum err e, const char *detail_format, ...) {
    va_list args;
    va_start(args, detail_format);
    send_problem(x, e, NULL, 0, detail_format, args);
    va_end(args);
}

void reply_problem_with(struct exchange *x, enum err e, const struct problem_member *members,
                        size_t count, const char *detail_format, ...) {
    va_list args;
    va_start(args, detail_format);
    send_problem(x, e, members, count, detail_format, args);
    va_end(args);
}
