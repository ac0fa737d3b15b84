/*
 * exchange: one request and its one answer, as handlers see them.
 *
 * A handler is called on the connection's worker with a whole request, and answers exactly once,
 * at once or later, on the same worker: reply_start, write the body, reply_send; or
 * reply_problem; or reply_stream (net/stream.h). After that the exchange is gone. `request` is
 * valid only until the handler returns: what is needed later is copied into the arena, which lives
 * until the answer. The client may have gone before that: answering then is harmless and still
 * required.
 */
#ifndef ADMITONE_NET_EXCHANGE_H
#define ADMITONE_NET_EXCHANGE_H

#include "base/buf.h"
#include "base/err.h"
#include "net/address.h"
#include "net/http1.h"
#include "run/arena.h"

#define REQUEST_ID_BYTES_MAX 64

struct conn;
struct net_site;
struct net_worker;

struct exchange {
    struct http_request request;
    struct arena arena;
    int64_t retry_after_s; /* for a problem's Retry-After; 0: 1 second where trying again helps */
    int problem_status;    /* of a problem, where it is not the usual one of the error; else 0 */
    str user; /* for the log, as soon as the handler knows it; valid until the answer */
    /* For the site: what it has found out about the caller, in the arena; NULL at first. */
    const void *caller;
    /* NULL, or called once instead of sending an answer (but for reply_bytes), to send it in
     * another form: a page for a person, say, where the handler writes JSON. `status` is that of
     * the answer. */
    void (*present)(struct exchange *x, int status);
    void *present_data;
    enum err problem;   /* of the answer, when it is a problem; else OK */
    bool has_json_body; /* the handler has replaced the body by JSON */

    /* Below: private to net/. */
    struct conn *conn; /* NULL once the client has gone */
    struct net_worker *net;
    struct exchange *next_free;
    struct buf headers; /* extra ones of the answer, rendered */
    str path;           /* for the log; of an exchange that outlives its handler, in the arena */
    struct address client;
    bool is_kept;     /* path and client have been copied, and outlive the request's bytes */
    bool is_put_off;  /* exchange_put_off: the request is in the arena */
    bool was_put_off; /* exchange_was_put_off */
    struct net_site *site;
    int status;
    bool fresh;  /* its clock has not been started */
    bool head;   /* HEAD: no body in the answer */
    bool secure; /* exchange_secure */
    int64_t started_ns;
    size_t request_id_len;
    char request_id[REQUEST_ID_BYTES_MAX];
    struct http1 parser;
};

/* The client's address: the peer's, or the one that trusted proxies name in X-Forwarded-For. While
 * the handler runs. */
struct address exchange_client(const struct exchange *x);
/* Whether the client's side is TLS, as a trusted proxy says in X-Forwarded-Proto. */
bool exchange_secure(const struct exchange *x);

/* The handler returns without an answer, and exchange_resume calls it again, on the same worker,
 * with the same request. Headers that the handler has added to the answer stay. */
void exchange_put_off(struct exchange *x);
void exchange_resume(struct exchange *x);
/* Whether the handler is called again, by exchange_resume. */
bool exchange_was_put_off(const struct exchange *x);

/* For an answer that waits until there is something to send (a long poll): whether the client has
 * gone, or has closed its side of the connection, which usually means the same. */
bool exchange_is_abandoned(const struct exchange *x);
/* The answer begins now: the wait before is not counted in the durations of requests. */
void exchange_restart_clock(struct exchange *x);

/* The `context` of its worker: as given to net_worker_new. */
void *exchange_context(const struct exchange *x);

/* Adds a header to the answer; any time before reply_send. */
void reply_header(struct exchange *x, str name, str value);
/* Adds headers that are rendered already, each with its line end. */
void reply_header_lines(struct exchange *x, str lines);

/* Takes a header off the answer again. */
void reply_drop_header(struct exchange *x, str name);

/* The buffer to write the body into, until reply_send. */
struct buf *reply_start(struct exchange *x, int status);
void reply_send(struct exchange *x, str content_type);

/* The same for a body that exists already; it is copied. */
void reply_bytes(struct exchange *x, int status, str content_type, str body);

/* No body: 204 and the like. */
void reply_empty(struct exchange *x, int status);

/* A problem document (RFC 9457); with Retry-After when trying again makes sense. */
void reply_problem(struct exchange *x, enum err e, const char *detail_format, ...)
    __attribute__((format(printf, 3, 4)));

struct problem_member {
    str key;
    str value; /* JSON text */
};

/* The same with further members behind the usual ones. */
void reply_problem_with(struct exchange *x, enum err e, const struct problem_member *members,
                        size_t count, const char *detail_format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
