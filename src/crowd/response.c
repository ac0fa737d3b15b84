/* The parser of responses: line by line, but for the data of bodies. */
#include "crowd/response.h"

/* Of all cookies together. */
#define COOKIES_BYTES_MAX 2048

void response_reset(struct response *r) {
    buf_clear(&r->cookies);
    buf_clear(&r->body);
    buf_clear(&r->line);
    *r = (struct response){.cookies = r->cookies,
                           .body = r->body,
                           .line = r->line,
                           .head_left = RESPONSE_HEAD_BYTES_MAX,
                           .left = -1};
}

void response_deinit(struct response *r) {
    buf_deinit(&r->cookies);
    buf_deinit(&r->body);
    buf_deinit(&r->line);
}

bool response_has_head(const struct response *r) {
    return r->phase > RESPONSE_FIELDS && r->phase != RESPONSE_REFUSED;
}

static enum response_step response_fail(struct response *r) {
    r->phase = RESPONSE_REFUSED;
    return RESPONSE_FAIL;
}

/* ---- lines ---- */

/* DONE: r->line is a whole line, without its end. */
static enum response_step next_line(struct response *r, str *in, size_t max) {
    const char *lf = in->len == 0 ? NULL : memchr(in->at, '\n', in->len);
    size_t taken = lf == NULL ? in->len : (size_t)(lf - in->at) + 1;
    if (r->line.len + taken > max || taken > r->head_left) return response_fail(r);
    buf_append(&r->line, in->at, taken);
    r->head_left -= taken;
    *in = str_skip(*in, taken);
    if (lf == NULL) return RESPONSE_MORE;
    size_t len = r->line.len;
    if (len < 2 || r->line.bytes[len - 2] != '\r') return response_fail(r);
    r->line.len = len - 2;
    /* A CR or a zero byte inside a line means different things to different readers. */
    bool is_clean = memchr(r->line.bytes, '\r', r->line.len) == NULL &&
                    memchr(r->line.bytes, '\0', r->line.len) == NULL;
    return is_clean ? RESPONSE_DONE : response_fail(r);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK"; the reason may be empty. */
static bool read_status_line(struct response *r) {
    str line = buf_str(&r->line);
    size_t least = sizeof "HTTP/1.1 200" - 1;
    if (line.len < least || !str_starts(line, STR("HTTP/1.")) || line.at[8] != ' ') return false;
    if (line.at[7] != '0' && line.at[7] != '1') return false;
    if (line.len > least && line.at[least] != ' ') return false;
    const char *code = line.at + 9;
    if (!is_digit(code[0]) || !is_digit(code[1]) || !is_digit(code[2])) return false;
    r->status = (code[0] - '0') * 100 + (code[1] - '0') * 10 + (code[2] - '0');
    r->keep_alive = line.at[7] == '1';
    return r->status >= 100 && r->status <= 599 && r->status != 101;
}

/* ---- fields ---- */

static bool is_name_byte(char c) {
    return c > ' ' && c < 0x7f && strchr("\"(),/:;<=>?@[\\]{}", c) == NULL;
}

/* "name: value", no space before the colon, and no line that continues the one before. */
static bool split_field(str line, str *name, str *value) {
    *value = line;
    if (!str_split(value, ':', name) || value->at == NULL || name->len == 0) return false;
    for (size_t i = 0; i < name->len; i++)
        if (!is_name_byte(name->at[i])) return false;
    *value = str_trim(*value);
    return true;
}

static bool read_content_length(struct response *r, str value) {
    int64_t length;
    for (size_t i = 0; i < value.len; i++)
        if (!is_digit(value.at[i])) return false;
    if (!str_to_i64(value, &length) || (r->left >= 0 && r->left != length)) return false;
    r->left = length;
    return length <= RESPONSE_BODY_BYTES_MAX;
}

static void keep_cookie(struct response *r, str value) {
    str pair;
    str_split(&value, ';', &pair);
    pair = str_trim(pair);
    if (pair.len == 0 || r->cookies.len + pair.len + 2 > COOKIES_BYTES_MAX) return;
    if (r->cookies.len > 0) buf_add(&r->cookies, STR("; "));
    buf_add(&r->cookies, pair);
}

static bool read_field(struct response *r, str name, str value) {
    if (str_eq_nocase(name, STR("Content-Length"))) return read_content_length(r, value);
    if (str_eq_nocase(name, STR("Transfer-Encoding"))) {
        bool is_first = !r->is_chunked;
        r->is_chunked = true;
        return is_first && str_eq_nocase(value, STR("chunked"));
    }
    if (str_eq_nocase(name, STR("Connection"))) {
        str option;
        while (str_split(&value, ',', &option))
            r->says_close = r->says_close || str_eq_nocase(str_trim(option), STR("close"));
    } else if (str_eq_nocase(name, STR("Content-Type"))) {
        str type;
        str_split(&value, ';', &type);
        r->is_events = str_eq_nocase(str_trim(type), STR("text/event-stream"));
    } else if (str_eq_nocase(name, STR("Retry-After"))) {
        int64_t seconds;
        if (str_to_i64(value, &seconds) && seconds > 0) /* a date is not read */
            r->retry_after_s = seconds < RESPONSE_RETRY_S_MAX ? seconds : RESPONSE_RETRY_S_MAX;
    } else if (str_eq_nocase(name, STR("Set-Cookie"))) {
        keep_cookie(r, value);
    }
    return true;
}

/* The head is whole: how does the response go on? */
static bool end_head(struct response *r) {
    if (r->status < 200) { /* "100 Continue" and the like stand before the response */
        response_reset(r);
        return true;
    }
    if (r->is_chunked && (r->left >= 0 || !r->keep_alive)) return false;
    bool has_body = r->status != 204 && r->status != 304;
    if (!has_body || r->left == 0)
        r->phase = RESPONSE_WHOLE;
    else if (r->is_chunked)
        r->phase = RESPONSE_CHUNK_SIZE;
    else
        r->phase = r->left > 0 ? RESPONSE_BODY_LENGTH : RESPONSE_BODY_TO_CLOSE;
    r->keep_alive = r->keep_alive && !r->says_close && r->phase != RESPONSE_BODY_TO_CLOSE;
    return true;
}

static bool read_head_line(struct response *r) {
    str name;
    str value;
    if (r->phase == RESPONSE_STATUS_LINE) {
        r->phase = RESPONSE_FIELDS;
        return read_status_line(r);
    }
    if (r->line.len == 0) return end_head(r);
    return split_field(buf_str(&r->line), &name, &value) && read_field(r, name, value);
}

/* ---- bodies ---- */

static enum response_step add_body(struct response *r, str *in, size_t len) {
    if (r->body.len + len > RESPONSE_BODY_BYTES_MAX) return response_fail(r);
    buf_append(&r->body, in->at, len);
    *in = str_skip(*in, len);
    return RESPONSE_DONE;
}

/* The data that is there, of a length that is known. */
static enum response_step take_data(struct response *r, str *in, enum response_phase then) {
    size_t len = in->len < (size_t)r->left ? in->len : (size_t)r->left;
    r->left -= (int64_t)len;
    enum response_step step = add_body(r, in, len);
    if (step != RESPONSE_DONE) return step;
    if (r->left > 0) return RESPONSE_MORE;
    r->phase = then;
    return RESPONSE_DONE;
}

/* -1 for what is no digit. */
static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool read_chunk_size(struct response *r) {
    str line = buf_str(&r->line);
    size_t i = 0;
    r->left = 0;
    for (int digit; i < line.len && (digit = hex_value(line.at[i])) >= 0; i++) {
        r->left = r->left * 16 + digit;
        if (r->left > RESPONSE_BODY_BYTES_MAX) return false;
    }
    if (i == 0 || (i < line.len && line.at[i] != ';')) return false;
    r->phase = r->left > 0 ? RESPONSE_CHUNK_DATA : RESPONSE_TRAILERS;
    return true;
}

/* A line between chunks is part of no head: it has its own limit. Trailers share the head's. */
static bool read_chunk_line(struct response *r) {
    if (r->phase == RESPONSE_CHUNK_SIZE) return read_chunk_size(r);
    if (r->phase == RESPONSE_CHUNK_DATA_END) {
        r->phase = RESPONSE_CHUNK_SIZE;
        return r->line.len == 0;
    }
    str name;
    str value;
    if (r->line.len > 0) return split_field(buf_str(&r->line), &name, &value);
    r->phase = RESPONSE_WHOLE;
    return true;
}

static enum response_step take_line(struct response *r, str *in) {
    bool is_chunk_line = r->phase == RESPONSE_CHUNK_SIZE || r->phase == RESPONSE_CHUNK_DATA_END;
    size_t head_left = r->head_left;
    if (is_chunk_line) r->head_left = SIZE_MAX;
    enum response_step step =
        next_line(r, in, is_chunk_line ? RESPONSE_CHUNK_LINE_BYTES_MAX : RESPONSE_HEAD_BYTES_MAX);
    if (is_chunk_line) r->head_left = head_left;
    if (step != RESPONSE_DONE) return step;
    bool ok = r->phase <= RESPONSE_FIELDS ? read_head_line(r) : read_chunk_line(r);
    buf_clear(&r->line);
    return ok ? RESPONSE_DONE : response_fail(r);
}

/* DONE: this part is done, go on with the next. */
static enum response_step response_advance(struct response *r, str *in) {
    switch (r->phase) {
    case RESPONSE_BODY_LENGTH:
        return take_data(r, in, RESPONSE_WHOLE);
    case RESPONSE_CHUNK_DATA:
        return take_data(r, in, RESPONSE_CHUNK_DATA_END);
    case RESPONSE_BODY_TO_CLOSE:
        return add_body(r, in, in->len);
    default:
        return take_line(r, in);
    }
}

enum response_step response_feed(struct response *r, str *in) {
    if (r->phase == RESPONSE_REFUSED) return RESPONSE_FAIL;
    while (r->phase != RESPONSE_WHOLE) {
        if (in->len == 0) return RESPONSE_MORE;
        enum response_step step = response_advance(r, in);
        if (step != RESPONSE_DONE) return step;
    }
    return RESPONSE_DONE;
}

enum response_step response_close(struct response *r) {
    if (r->phase == RESPONSE_BODY_TO_CLOSE) r->phase = RESPONSE_WHOLE;
    return r->phase == RESPONSE_WHOLE ? RESPONSE_DONE : response_fail(r);
}
