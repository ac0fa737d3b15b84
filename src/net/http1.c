/* The parser: one function per part of a request, each given only whole lines. */
#include "net/http1.h"

#include <assert.h>

/* Offsets into a head are 16 bits wide. */
static_assert(2 + REQUEST_LINE_BYTES_MAX + HEADERS_BYTES_MAX <= UINT16_MAX, "a span must fit");

/* The parts of a request in which a byte may stand. */
enum {
    TOKEN = 1,      /* a method, a field name */
    TARGET = 2,     /* a request target; '%' needs a further look */
    HOST = 4,       /* a host and port, unreserved, sub-delims and what brackets an address */
    VALUE = 8,      /* a field value */
    EXTENSION = 16, /* behind the ';' of a chunk size */
};

/* The table below is worked out by the compiler from these rules. */
#define ALNUM(c)                                                                                   \
    (((c) >= '0' && (c) <= '9') || ((c) >= 'A' && (c) <= 'Z') || ((c) >= 'a' && (c) <= 'z'))
#define VISIBLE(c) ((c) > ' ' && (c) < 0x7f)
#define IS_TOKEN(c)                                                                                \
    (ALNUM(c) || (c) == '!' || (c) == '#' || (c) == '$' || (c) == '%' || (c) == '&' ||             \
     (c) == '\'' || (c) == '*' || (c) == '+' || (c) == '-' || (c) == '.' || (c) == '^' ||          \
     (c) == '_' || (c) == '`' || (c) == '|' || (c) == '~')
#define IS_TARGET(c)                                                                               \
    (VISIBLE(c) && (c) != '"' && (c) != '<' && (c) != '>' && (c) != '#' && (c) != '\\')
#define IS_HOST(c)                                                                                 \
    (ALNUM(c) || (c) == '-' || (c) == '.' || (c) == '_' || (c) == '~' || (c) == '!' ||             \
     (c) == '$' || (c) == '&' || (c) == '\'' || (c) == '(' || (c) == ')' || (c) == '*' ||          \
     (c) == '+' || (c) == ',' || (c) == ';' || (c) == '=' || (c) == ':' || (c) == '[' ||           \
     (c) == ']' || (c) == '%')
#define IS_EXTENSION(c) (VISIBLE(c) || (c) == ' ' || (c) >= 0x80)
#define IS_VALUE(c) (IS_EXTENSION(c) || (c) == '\t')

#define CLASS(c)                                                                                   \
    (IS_TOKEN(c) ? TOKEN : 0) | (IS_TARGET(c) ? TARGET : 0) | (IS_HOST(c) ? HOST : 0) |            \
        (IS_VALUE(c) ? VALUE : 0) | (IS_EXTENSION(c) ? EXTENSION : 0)
#define CLASS_4(c) CLASS(c), CLASS((c) + 1), CLASS((c) + 2), CLASS((c) + 3)
#define CLASS_16(c) CLASS_4(c), CLASS_4((c) + 4), CLASS_4((c) + 8), CLASS_4((c) + 12)
#define CLASS_64(c) CLASS_16(c), CLASS_16((c) + 16), CLASS_16((c) + 32), CLASS_16((c) + 48)

static const unsigned char classes[256] = {CLASS_64(0), CLASS_64(64), CLASS_64(128), CLASS_64(192)};

static const str method_names[] = {
#define METHOD_NAME(symbol) STR_INIT(#symbol),
    HTTP_METHOD_MAP(METHOD_NAME)
#undef METHOD_NAME
};

/* The fields that the parser itself obeys. */
enum field {
    FIELD_OTHER,
    FIELD_HOST,
    FIELD_CONTENT_LENGTH,
    FIELD_TRANSFER_ENCODING,
    FIELD_CONNECTION,
    FIELD_EXPECT,
};

static bool is(char c, unsigned class) {
    return (classes[(unsigned char)c] & class) != 0;
}

/* How many bytes at the start of s are of the class. */
static size_t http1_count_of(str s, unsigned class) {
    size_t n = 0;
    while (n < s.len && is(s.at[n], class)) n++;
    return n;
}

/* Not empty, and all of one class. */
static bool made_of(str s, unsigned class) {
    return s.len > 0 && http1_count_of(s, class) == s.len;
}

/* -1 for what is no digit. */
static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The byte that the escape at the start of s stands for; -1 when it is none. */
static int escaped_byte(str s) {
    assert(s.len > 0 && s.at[0] == '%');
    if (s.len < 3) return -1;
    int high = hex_digit(s.at[1]);
    int low = hex_digit(s.at[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static struct http1_span span_of(const char *block, str s) {
    assert(s.at >= block && (size_t)(s.at - block) + s.len <= UINT16_MAX);
    return (struct http1_span){(uint16_t)(s.at - block), (uint16_t)s.len};
}

static str str_at(const char *block, struct http1_span span) {
    return (str){block + span.at, span.len};
}

static enum http1_step http1_fail(struct http1 *p, enum err e) {
    assert(e != ERR_OK && p->error == ERR_OK);
    p->error = e;
    return HTTP1_FAIL;
}

/*
 * Here and in all that follow, HTTP1_DONE means: this piece is done, go on with the next.
 *
 * Takes the line under way, without its end, if that lies within `max` bytes. Bytes beyond that are
 * not read even if they have arrived, so that the result is the same for a client that sends
 * slowly.
 */
static enum http1_step next_line(struct http1 *p, const char *block, size_t len, uint32_t max,
                                 enum err too_long, str *line) {
    size_t limit = (size_t)p->line + max;
    size_t end = len < limit ? len : limit;
    assert(p->used == p->line && p->line <= p->scanned && p->scanned <= end);
    const char *lf = p->scanned == end ? NULL : memchr(block + p->scanned, '\n', end - p->scanned);
    if (lf == NULL) {
        p->scanned = (uint32_t)end;
        return end == limit ? http1_fail(p, too_long) : HTTP1_MORE;
    }
    *line = (str){block + p->line, (size_t)(lf - block) - p->line};
    p->scanned = (uint32_t)(lf - block) + 1;
    if (line->len == 0 || lf[-1] != '\r') return http1_fail(p, ERR_BAD_REQUEST);
    line->len--;
    p->line = p->used = p->scanned;
    assert(p->line <= len);
    return HTTP1_DONE;
}

static enum err read_version(struct http1 *p, str version) {
    assert(version.len == 8);
    bool well_formed = str_starts(version, STR("HTTP/")) && version.at[5] >= '0' &&
                       version.at[5] <= '9' && version.at[6] == '.' && version.at[7] >= '0' &&
                       version.at[7] <= '9';
    if (!well_formed) return ERR_BAD_REQUEST;
    if (version.at[5] != '1' || version.at[7] > '1') return ERR_VERSION_NOT_SUPPORTED;
    p->http10 = version.at[7] == '0';
    p->keep_alive = !p->http10;
    return ERR_OK;
}

static enum err read_method(struct http1 *p, str method) {
    assert(method.len > 0);
    for (int m = 0; m < HTTP_METHODS; m++)
        if (str_eq(method, method_names[m])) {
            p->method = (enum http_method)m;
            return ERR_OK;
        }
    return ERR_NOT_IMPLEMENTED;
}

static bool target_ok(str target) {
    for (size_t i = 0; i < target.len; i++) {
        if (!is(target.at[i], TARGET)) return false;
        /* %00 ends names where others do not expect it. */
        if (target.at[i] == '%' && escaped_byte(str_skip(target, i)) <= 0) return false;
    }
    return target.len > 0;
}

static bool starts_nocase(str s, str prefix) {
    return s.len >= prefix.len && str_eq_nocase((str){s.at, prefix.len}, prefix);
}

/* Cuts "http://authority" off a target in absolute form; false when it is none. */
static bool skip_authority(str *target) {
    str rest;
    if (starts_nocase(*target, STR("http://")))
        rest = str_skip(*target, sizeof "http://" - 1);
    else if (starts_nocase(*target, STR("https://")))
        rest = str_skip(*target, sizeof "https://" - 1);
    else
        return false;
    size_t authority = http1_count_of(rest, HOST);
    *target = str_skip(rest, authority);
    return authority > 0 && (target->len == 0 || target->at[0] == '/' || target->at[0] == '?');
}

static enum err read_target(struct http1 *p, const char *block, str target) {
    if (!target_ok(target)) return ERR_BAD_REQUEST;
    if (str_eq(target, STR("*"))) {
        p->path = span_of(block, target);
        return p->method == HTTP_OPTIONS ? ERR_OK : ERR_BAD_REQUEST;
    }
    /* An absolute form without a path means "/": there is one before every authority, and the
     * path stays a view into the block. */
    str path = target;
    if (target.at[0] != '/' && !skip_authority(&path)) return ERR_BAD_REQUEST;
    const char *slash = memchr(target.at, '/', target.len);
    assert(slash != NULL);

    const char *mark = path.len == 0 ? NULL : memchr(path.at, '?', path.len);
    if (mark != NULL) {
        p->query = span_of(block, str_skip(path, (size_t)(mark - path.at) + 1));
        path.len = (size_t)(mark - path.at);
    }
    if (path.len == 0) path = (str){slash, 1};
    assert(path.at[0] == '/');
    p->path = span_of(block, path);
    return ERR_OK;
}

static enum err read_request_line(struct http1 *p, const char *block, str line) {
    /* Spaces that are not one behind the method and one before the version end up in the
     * target, where none may be. */
    const char *space = line.len == 0 ? NULL : memchr(line.at, ' ', line.len);
    if (space == NULL) return ERR_BAD_REQUEST;
    str method = {line.at, (size_t)(space - line.at)};
    str target = str_skip(line, method.len + 1);
    size_t tail = sizeof " HTTP/1.1" - 1;
    if (target.len <= tail || target.at[target.len - tail] != ' ') return ERR_BAD_REQUEST;
    target.len -= tail;
    if (!made_of(method, TOKEN)) return ERR_BAD_REQUEST;

    /* The version comes first: another one has other rules for the rest ("PRI * HTTP/2.0"), as
     * have other methods for the target ("CONNECT host:443"). */
    enum err e = read_version(p, (str){target.at + target.len + 1, tail - 1});
    if (e == ERR_OK) e = read_method(p, method);
    if (e == ERR_OK) e = read_target(p, block, target);
    return e;
}

static enum http1_step request_line(struct http1 *p, const char *block, size_t len) {
    str line;
    enum http1_step step =
        next_line(p, block, len, REQUEST_LINE_BYTES_MAX, ERR_URI_TOO_LONG, &line);
    if (step != HTTP1_DONE) return step;
    /* Some clients end a body with a line end that no length counted. */
    if (line.len == 0 && line.at == block) return HTTP1_DONE;

    enum err e = read_request_line(p, block, line);
    if (e != ERR_OK) return http1_fail(p, e);
    p->phase = HTTP1_HEADERS;
    return HTTP1_DONE;
}

static enum field field_of(str name) {
    switch (name.len) {
    case sizeof "Host" - 1:
        return str_eq_nocase(name, STR("Host")) ? FIELD_HOST : FIELD_OTHER;
    case sizeof "Expect" - 1:
        return str_eq_nocase(name, STR("Expect")) ? FIELD_EXPECT : FIELD_OTHER;
    case sizeof "Connection" - 1:
        return str_eq_nocase(name, STR("Connection")) ? FIELD_CONNECTION : FIELD_OTHER;
    case sizeof "Content-Length" - 1:
        return str_eq_nocase(name, STR("Content-Length")) ? FIELD_CONTENT_LENGTH : FIELD_OTHER;
    case sizeof "Transfer-Encoding" - 1:
        return str_eq_nocase(name, STR("Transfer-Encoding")) ? FIELD_TRANSFER_ENCODING
                                                             : FIELD_OTHER;
    default:
        return FIELD_OTHER;
    }
}

static enum err read_host(struct http1 *p, str value) {
    if (p->has_host || !made_of(value, HOST)) return ERR_BAD_REQUEST;
    p->has_host = true;
    return ERR_OK;
}

static enum err read_content_length(struct http1 *p, str value) {
    int64_t length;
    if (p->has_length || p->chunked) return ERR_BAD_REQUEST;
    /* A minus sign makes no number here, not even of 0. */
    if (!str_to_i64(value, &length) || value.at[0] == '-') return ERR_BAD_REQUEST;
    assert(length >= 0);
    p->has_length = true;
    /* Judged when the head is whole, so that one with worse faults is called bad, not large. */
    p->body_left = length > BODY_BYTES_MAX ? BODY_BYTES_MAX + 1 : (uint32_t)length;
    return ERR_OK;
}

static enum err read_transfer_encoding(struct http1 *p, str value) {
    if (p->http10 || p->has_length || p->chunked) return ERR_BAD_REQUEST;
    if (!str_eq_nocase(value, STR("chunked"))) return ERR_NOT_IMPLEMENTED;
    p->chunked = true;
    return ERR_OK;
}

static void read_connection(struct http1 *p, str value) {
    str option;
    while (str_split(&value, ',', &option)) {
        option = str_trim(option);
        if (str_eq_nocase(option, STR("close"))) p->close = true;
        if (str_eq_nocase(option, STR("keep-alive"))) p->keep_alive = true;
    }
}

static enum err http1_read_field(struct http1 *p, enum field field, str value) {
    switch (field) {
    case FIELD_HOST:
        return read_host(p, value);
    case FIELD_CONTENT_LENGTH:
        return read_content_length(p, value);
    case FIELD_TRANSFER_ENCODING:
        return read_transfer_encoding(p, value);
    case FIELD_CONNECTION:
        read_connection(p, value);
        return ERR_OK;
    case FIELD_EXPECT:
        /* HTTP/1.0 clients don't wait, and would take a 100 for the answer. */
        if (!p->http10) p->expect_continue = true;
        return str_eq_nocase(value, STR("100-continue")) ? ERR_OK : ERR_EXPECTATION_FAILED;
    case FIELD_OTHER:
        return ERR_OK;
    }
    assert(false);
    return ERR_INTERNAL;
}

/* A header or trailer line in its two parts; both are empty at the end of the section. */
static enum http1_step field_line(struct http1 *p, const char *block, size_t len, str *name,
                                  str *value) {
    str line = {NULL, 0};
    enum http1_step step = next_line(p, block, len, p->headers_left, ERR_HEADERS_TOO_LARGE, &line);
    if (step != HTTP1_DONE) return step;
    assert(p->headers_left >= line.len + 2);
    p->headers_left -= (uint32_t)line.len + 2;
    *name = *value = (str){line.at, 0};
    if (line.len == 0) return HTTP1_DONE;

    if (p->header_count + p->trailer_count >= HTTP1_HEADERS_MAX)
        return http1_fail(p, ERR_HEADERS_TOO_LARGE);
    /* Refuses a folded line too: it starts with white space, which is no name. */
    name->len = http1_count_of(line, TOKEN);
    if (name->len == 0 || name->len == line.len || line.at[name->len] != ':')
        return http1_fail(p, ERR_BAD_REQUEST);
    *value = str_trim(str_skip(line, name->len + 1));
    if (http1_count_of(*value, VALUE) != value->len) return http1_fail(p, ERR_BAD_REQUEST);
    return HTTP1_DONE;
}

static enum http1_step head_end(struct http1 *p, size_t len) {
    assert(p->line == p->used && !(p->chunked && p->has_length));
    if (!p->http10 && !p->has_host) return http1_fail(p, ERR_BAD_REQUEST);
    if (p->body_left > BODY_BYTES_MAX) return http1_fail(p, ERR_CONTENT_TOO_LARGE);
    p->keep_alive = p->keep_alive && !p->close;
    p->body = p->used;
    p->phase = p->chunked ? HTTP1_CHUNK_SIZE : p->body_left > 0 ? HTTP1_BODY : HTTP1_WHOLE;
    bool waits = p->expect_continue && p->phase != HTTP1_WHOLE && p->used == len;
    return waits ? HTTP1_CONTINUE : HTTP1_DONE;
}

static enum http1_step headers(struct http1 *p, const char *block, size_t len) {
    str name;
    str value;
    enum http1_step step = field_line(p, block, len, &name, &value);
    if (step != HTTP1_DONE) return step;
    if (name.len == 0) return head_end(p, len);

    assert(p->header_count < HTTP1_HEADERS_MAX);
    p->headers[p->header_count].name = span_of(block, name);
    p->headers[p->header_count].value = span_of(block, value);
    p->header_count++;
    enum err e = http1_read_field(p, field_of(name), value);
    return e == ERR_OK ? HTTP1_DONE : http1_fail(p, e);
}

static enum http1_step trailers(struct http1 *p, const char *block, size_t len) {
    str name;
    str value;
    enum http1_step step = field_line(p, block, len, &name, &value);
    if (step != HTTP1_DONE) return step;
    if (name.len == 0) {
        p->phase = HTTP1_WHOLE;
        return HTTP1_DONE;
    }
    /* A trailer comes too late to decide about framing; a proxy that obeyed it would see another
     * request. */
    if (field_of(name) != FIELD_OTHER) return http1_fail(p, ERR_BAD_REQUEST);
    p->trailer_count++;
    return HTTP1_DONE;
}

/* The data that is there, of the body or a chunk, moved up to what was joined before. */
static enum http1_step data(struct http1 *p, char *block, size_t len) {
    assert(p->body_left > 0 && p->used <= len && p->body + p->body_len <= p->used);
    size_t there = len - p->used;
    uint32_t taken = there < p->body_left ? (uint32_t)there : p->body_left;
    uint32_t to = p->body + p->body_len;
    if (to != p->used && taken > 0) memmove(block + to, block + p->used, taken);
    p->body_len += taken;
    p->body_left -= taken;
    p->used += taken;
    p->line = p->scanned = p->used;
    assert(p->body_len <= BODY_BYTES_MAX);
    if (p->body_left > 0) return HTTP1_MORE;
    p->phase = p->chunked ? HTTP1_CHUNK_END : HTTP1_WHOLE;
    return HTTP1_DONE;
}

/* False when the line is malformed. A size that is too large stops growing beyond the limit. */
static bool read_chunk_size(str line, uint32_t *size) {
    size_t i = 0;
    *size = 0;
    for (int digit; i < line.len && (digit = hex_digit(line.at[i])) >= 0; i++) {
        *size = *size * 16 + (uint32_t)digit;
        if (*size > BODY_BYTES_MAX) *size = BODY_BYTES_MAX + 1;
    }
    assert(*size <= BODY_BYTES_MAX + 1);
    if (i == 0) return false;
    str rest = str_skip(line, i);
    return rest.len == 0 || (rest.at[0] == ';' && made_of(rest, EXTENSION));
}

static enum http1_step chunk_size(struct http1 *p, const char *block, size_t len) {
    /* Room for the line end behind the data is set aside with the line. */
    const uint32_t line_end = 2;
    uint32_t left = p->chunk_lines_left < line_end ? 0 : p->chunk_lines_left - line_end;
    bool last_lines = left < CHUNK_LINE_BYTES_MAX;
    str line;
    enum http1_step step = next_line(p, block, len, last_lines ? left : CHUNK_LINE_BYTES_MAX,
                                     last_lines ? ERR_CONTENT_TOO_LARGE : ERR_BAD_REQUEST, &line);
    if (step != HTTP1_DONE) return step;
    assert(left >= line.len + line_end);
    p->chunk_lines_left = left - (uint32_t)line.len - line_end;

    uint32_t size;
    if (!read_chunk_size(line, &size)) return http1_fail(p, ERR_BAD_REQUEST);
    if (size > BODY_BYTES_MAX - p->body_len) return http1_fail(p, ERR_CONTENT_TOO_LARGE);
    p->body_left = size;
    p->phase = size > 0 ? HTTP1_CHUNK_DATA : HTTP1_TRAILERS;
    return HTTP1_DONE;
}

static enum http1_step chunk_end(struct http1 *p, const char *block, size_t len) {
    str line;
    enum http1_step step = next_line(p, block, len, 2, ERR_BAD_REQUEST, &line);
    if (step != HTTP1_DONE) return step;
    assert(line.len == 0 && p->body_left == 0);
    p->phase = HTTP1_CHUNK_SIZE;
    return HTTP1_DONE;
}

static enum http1_step advance(struct http1 *p, char *block, size_t len) {
    switch (p->phase) {
    case HTTP1_REQUEST_LINE:
        return request_line(p, block, len);
    case HTTP1_HEADERS:
        return headers(p, block, len);
    case HTTP1_BODY:
    case HTTP1_CHUNK_DATA:
        return data(p, block, len);
    case HTTP1_CHUNK_SIZE:
        return chunk_size(p, block, len);
    case HTTP1_CHUNK_END:
        return chunk_end(p, block, len);
    case HTTP1_TRAILERS:
        return trailers(p, block, len);
    case HTTP1_WHOLE:
        return HTTP1_DONE;
    }
    assert(false);
    return HTTP1_FAIL;
}

/* Leaves the table of headers as it is: header_count says how much of it counts. */
void http1_init(struct http1 *p) {
    memset(p, 0, offsetof(struct http1, headers));
    p->headers_left = HEADERS_BYTES_MAX;
    p->chunk_lines_left = CHUNK_LINES_BYTES_MAX;
    assert(p->phase == HTTP1_REQUEST_LINE && p->error == ERR_OK);
}

enum http1_step http1_feed(struct http1 *p, char *block, size_t len) {
    assert(len <= UINT32_MAX && len >= p->scanned);
    if (p->error != ERR_OK) return HTTP1_FAIL;
    while (p->phase != HTTP1_WHOLE) {
        enum http1_step step = advance(p, block, len);
        if (step == HTTP1_DONE) continue;
        assert(step == HTTP1_FAIL || len < HTTP1_BLOCK_BYTES_MAX);
        return step;
    }
    assert(p->used <= len && p->used <= HTTP1_BLOCK_BYTES_MAX);
    assert(p->body + p->body_len <= p->used);
    return HTTP1_DONE;
}

struct http_request http1_request(const struct http1 *p, const char *block) {
    assert(p->phase == HTTP1_WHOLE && p->error == ERR_OK);
    return (struct http_request){
        .method = p->method,
        .keep_alive = p->keep_alive,
        .path = str_at(block, p->path),
        .query = str_at(block, p->query),
        .body = {block + p->body, p->body_len},
        .head = p,
        .block = block,
    };
}

str http_header(const struct http_request *r, str name) {
    assert(name.len > 0 && r->head->header_count <= HTTP1_HEADERS_MAX);
    for (size_t i = 0; i < r->head->header_count; i++)
        if (str_eq_nocase(str_at(r->block, r->head->headers[i].name), name))
            return str_at(r->block, r->head->headers[i].value);
    return (str){NULL, 0};
}

str http_header_from_end(const struct http_request *r, str name, size_t behind) {
    for (size_t i = r->head->header_count; i > 0; i--) {
        if (!str_eq_nocase(str_at(r->block, r->head->headers[i - 1].name), name)) continue;
        if (behind == 0) return str_at(r->block, r->head->headers[i - 1].value);
        behind--;
    }
    return (str){NULL, 0};
}

size_t http_header_count(const struct http_request *r, str name) {
    size_t count = 0;
    for (size_t i = 0; i < r->head->header_count; i++)
        if (str_eq_nocase(str_at(r->block, r->head->headers[i].name), name)) count++;
    return count;
}

int64_t http_percent_decode(str text, char *out, bool plus) {
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        int c = (unsigned char)text.at[i];
        if (c == '%') {
            c = escaped_byte(str_skip(text, i));
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c < ' ' || c == 0x7f) return -1;
        out[len++] = (char)c;
    }
    assert(len <= text.len);
    return (int64_t)len;
}

str http_method_name(enum http_method m) {
    assert(m >= 0 && m < HTTP_METHODS);
    return method_names[m];
}
