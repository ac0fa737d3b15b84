/*
 * http1: a strict, incremental parser for HTTP/1.0 and 1.1 requests. It never looks beyond the
 * bytes it is given, allocates nothing, and gives the same result however the bytes are split.
 *
 * The caller keeps the bytes of one request in one block and feeds the whole block, which may
 * have grown or moved, again and again until the parser is done; the parser remembers how far it
 * came, so every byte is looked at once. It works line by line: a line is judged only when its
 * end has arrived. Chunked bodies are joined inside the block. Offsets become strs only when the
 * request is whole (http1_request), and are valid as long as the block stays where it is.
 *
 * A refused request has one enum err (p->error). Where it ends is then unknown, so the caller
 * answers and closes the connection. Strictness follows RFC 9112; where that leaves a choice, the
 * stricter one is taken, because the others allow request smuggling (docs/decisions/0003).
 */
#ifndef ADMITONE_NET_HTTP1_H
#define ADMITONE_NET_HTTP1_H

#include "base/err.h"
#include "base/str.h"

/* Limits of one request. Line ends count; trailers count as headers, in both limits. */
#define REQUEST_LINE_BYTES_MAX 8192
#define HEADERS_BYTES_MAX 16384
#define BODY_BYTES_MAX 65536
#define HTTP1_HEADERS_MAX 64

/* Chunks cost more than their data, and the data may come in chunks of one byte: the line of one
 * chunk, and the lines of all chunks together with the line ends behind their data. */
#define CHUNK_LINE_BYTES_MAX 256
#define CHUNK_LINES_BYTES_MAX 65536

/* No request is longer, and a parser that wants more bytes has been given fewer than this: a caller
 * that feeds whatever arrives needs no other limit. The 2 are an empty line that may stand before a
 * request. */
#define HTTP1_BLOCK_BYTES_MAX                                                                      \
    (2 + REQUEST_LINE_BYTES_MAX + HEADERS_BYTES_MAX + BODY_BYTES_MAX + CHUNK_LINES_BYTES_MAX)

/* X(symbol): the methods that exist here; any other is 501. */
#define HTTP_METHOD_MAP(X) X(GET) X(HEAD) X(POST) X(PUT) X(PATCH) X(DELETE) X(OPTIONS)

enum http_method {
#define METHOD_ENUM(symbol) HTTP_##symbol,
    HTTP_METHOD_MAP(METHOD_ENUM)
#undef METHOD_ENUM
        HTTP_METHODS
};

/* "GET", as it stands in a request line. */
str http_method_name(enum http_method m);

enum http1_step {
    HTTP1_MORE,     /* feed again when there are more bytes */
    HTTP1_CONTINUE, /* as MORE, and the client waits for "100 Continue" before it sends a body;
                     * at most once, and not when the body did not wait */
    HTTP1_DONE,     /* the request is whole; p->used bytes of the block were its own */
    HTTP1_FAIL,     /* p->error says why */
};

/* The part of a request that the parser waits for; deadlines depend on it. */
enum http1_phase {
    HTTP1_REQUEST_LINE,
    HTTP1_HEADERS,
    HTTP1_BODY,       /* Content-Length */
    HTTP1_CHUNK_SIZE, /* and below: chunked */
    HTTP1_CHUNK_DATA,
    HTTP1_CHUNK_END,
    HTTP1_TRAILERS,
    HTTP1_WHOLE,
};

/* A part of the block. A head is shorter than 64 KiB by its limits. */
struct http1_span {
    uint16_t at;
    uint16_t len;
};

struct http1 {
    enum http1_phase phase;
    enum err error;
    enum http_method method;
    bool http10;
    bool keep_alive;
    bool close; /* asked for; "keep-alive" beside it does not count */
    bool expect_continue;
    bool has_host;
    bool has_length;
    bool chunked;
    uint16_t header_count;
    uint16_t trailer_count;
    uint32_t scanned;          /* looked for a line end up to here */
    uint32_t line;             /* where the line under way starts */
    uint32_t headers_left;     /* bytes that header and trailer lines may still take */
    uint32_t chunk_lines_left; /* the same for the lines of chunks */
    uint32_t used;             /* bytes of the block that belong to this request so far */
    uint32_t body;             /* where the body starts */
    uint32_t body_len;         /* how much of it is joined */
    uint32_t body_left;        /* of the body or the chunk, still to come */
    struct http1_span path;
    struct http1_span query;
    struct {
        struct http1_span name;
        struct http1_span value;
    } headers[HTTP1_HEADERS_MAX];
};

/* A whole request, as views into the block. */
struct http_request {
    enum http_method method;
    bool keep_alive;
    str path;  /* as sent, percent-encoding and all; starts with '/', or is "*" (OPTIONS) */
    str query; /* behind '?', as sent; empty when there is none */
    str body;
    const struct http1 *head;
    const char *block;
};

void http1_init(struct http1 *p);

/* `block` holds all bytes since the request's first; it is written to when a body is chunked. Bytes
 * of a next request may follow. After DONE or FAIL it returns the same again. */
enum http1_step http1_feed(struct http1 *p, char *block, size_t len);

/* After HTTP1_DONE. */
struct http_request http1_request(const struct http1 *p, const char *block);

/* The value of the first header of that name (any case), without the white space around it;
 * `at` is NULL when there is none. */
str http_header(const struct http_request *r, str name);
/* The header of that name which comes last but `behind` others; `at` is NULL when there is none. */
str http_header_from_end(const struct http_request *r, str name, size_t behind);

/* How many headers of that name there are. */
size_t http_header_count(const struct http_request *r, str name);

/* Decodes percent-encoding into `out`, which has room for text.len bytes; the decoded length, or
 * -1 on a bad escape or a control byte. `plus` reads '+' as a space (query values). */
int64_t http_percent_decode(str text, char *out, bool plus);

#endif
