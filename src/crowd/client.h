/*
 * client: an HTTP/1.1 client for many users on one loop. It keeps a bounded number of connections
 * to one server alive; a request that finds none free waits in one of two lines, in order. A stream
 * (server-sent events) has a connection for itself, and their number has its own bound.
 *
 * A request is a struct in the memory of its user. It is written when it gets a connection, so that
 * one that waits costs nothing more. `done` is called once for each request, later and never from
 * client_send; the request may be used again from there on. If a connection that was kept alive
 * breaks before the answer begins, the request is sent once more, on a new one: so requests must be
 * harmless to repeat.
 *
 * All functions are called on the loop's thread.
 */
#ifndef ADMITONE_CROWD_CLIENT_H
#define ADMITONE_CROWD_CLIENT_H

#include <netinet/in.h>
#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "crowd/events.h"

struct client_options {
    struct sockaddr_storage server;
    size_t connections_max; /* for requests, at least 1 */
    size_t streams_max;
    int64_t timeout_ms; /* from writing a request to the end of its answer */
    int64_t silence_ms; /* without a byte from a stream; then it counts as broken */
};

struct answer {
    int status;            /* 0: there was no answer, or a malformed one, or none in time */
    int64_t retry_after_s; /* 0: not sent */
    str cookies;           /* "name=value; name=value" */
    str body;              /* all three until `done` returns; of a stream, what was not taken */
};

struct client_connection;

struct client_request {
    bool is_stream;
    bool is_urgent; /* waits in the first line: the second moves on only when that is empty */
    /* Appends the whole request, head and body. */
    void (*write)(struct client_request *r, struct buf *out);
    /* Of a stream: false ends it, and `done` is called then. */
    bool (*on_event)(struct client_request *r, const struct stream_event *e);
    void (*done)(struct client_request *r, const struct answer *a);

    /* Private. */
    struct list link;
    struct client_connection *connection;
    bool was_repeated;
};

struct client;

struct client *client_new(uv_loop_t *loop, const struct client_options *options);
/* Whether one more stream may be opened now. */
bool client_has_stream(const struct client *c);
/* A stream must have client_has_stream. */
void client_send(struct client *c, struct client_request *r);
/* Forgets a request that was sent and is not done; `done` is not called. */
void client_cancel(struct client *c, struct client_request *r);
/* Ends requests and streams whose time is over; to be called a few times a second. */
void client_check(struct client *c);
/* How many connections are open, those of streams included; and how many streams. */
size_t client_connections(const struct client *c);
size_t client_streams(const struct client *c);
/* Closes all connections; no `done` is called any more. The loop must run until they are closed. */
void client_close(struct client *c);
/* After client_close, when the loop has ended. */
void client_free(struct client *c);

#endif
