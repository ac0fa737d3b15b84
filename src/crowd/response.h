/*
 * response: a strict, incremental parser for HTTP/1.0 and 1.1 responses, for clients. It gives the
 * same result however the bytes are split. Its memory is bounded: by RESPONSE_HEAD_BYTES_MAX for
 * the head (and the lines of chunks and trailers), and by RESPONSE_BODY_BYTES_MAX for the body.
 *
 * Of the head it keeps the status, the cookies and Retry-After. The body is collected in `body`.
 * The reader of a stream takes events from there while more arrives, so of a stream only an event
 * that is not whole counts towards the limit. The owner of the struct owns its memory.
 *
 * A response that breaks the rules of RFC 9112, or leaves open where it ends, is refused.
 */
#ifndef ADMITONE_CROWD_RESPONSE_H
#define ADMITONE_CROWD_RESPONSE_H

#include "base/buf.h"

#define RESPONSE_HEAD_BYTES_MAX 16384
#define RESPONSE_BODY_BYTES_MAX (256 * 1024)
/* One line of a chunk's size. */
#define RESPONSE_CHUNK_LINE_BYTES_MAX 256
/* Retry-After above this is taken as this. */
#define RESPONSE_RETRY_S_MAX 3600

enum response_step {
    RESPONSE_MORE, /* feed again when there are more bytes */
    RESPONSE_DONE, /* it is whole */
    RESPONSE_FAIL, /* malformed, or too large */
};

enum response_phase {
    RESPONSE_STATUS_LINE,
    RESPONSE_FIELDS,
    RESPONSE_BODY_LENGTH,   /* Content-Length */
    RESPONSE_BODY_TO_CLOSE, /* until the connection is closed */
    RESPONSE_CHUNK_SIZE,    /* and below: chunked */
    RESPONSE_CHUNK_DATA,
    RESPONSE_CHUNK_DATA_END,
    RESPONSE_TRAILERS,
    RESPONSE_WHOLE,
    RESPONSE_REFUSED,
};

struct response {
    enum response_phase phase;
    int status; /* 0 until the status line has arrived */
    bool keep_alive;
    bool is_events;        /* text/event-stream */
    int64_t retry_after_s; /* 0: not sent */
    struct buf cookies;    /* "name=value; name=value", of Set-Cookie */
    struct buf body;

    /* Private. */
    struct buf line; /* not whole yet */
    size_t head_left;
    int64_t left; /* of the body or the chunk; -1: no Content-Length was sent */
    bool is_chunked;
    bool says_close;
};

/* For the next response; keeps the memory. `r` was zeroed before the first time. */
void response_reset(struct response *r);
void response_deinit(struct response *r);

/* Takes bytes from the beginning of *in; what is left after DONE does not belong to it. */
enum response_step response_feed(struct response *r, str *in);
/* The connection was closed: DONE if that is how the response ends, else FAIL. */
enum response_step response_close(struct response *r);
/* Whether the head has arrived. */
bool response_has_head(const struct response *r);

#endif
