/*
 * internal: declarations that the files of net/ share: a worker's state, and one connection. Only
 * net/ includes this.
 */
#ifndef ADMITONE_NET_INTERNAL_H
#define ADMITONE_NET_INTERNAL_H

#include <stdatomic.h>

#include "base/list.h"
#include "net/peers.h"
#include "net/server.h"
#include "net/stream.h"

/* The reasons for which a connection waits. Each has its own time-out, so its list is in order of
 * deadlines. */
enum wait {
    WAIT_FIRST_BYTE, /* of a new connection: clients open some in advance */
    WAIT_HEADERS,
    WAIT_BODY,
    WAIT_IDLE,
    WAIT_ANSWER, /* a handler works on the request; it has no deadline here */
    WAIT_SLICE,  /* it has more requests than one slice allows; other connections come first */
    WAIT_WRITE,  /* the socket accepts no more bytes; the deadline counts from the last that it did
                  */
    WAIT_STREAM_WRITE, /* the same for a stream */
    WAIT_STREAM,       /* an endless answer, between events, until its next heartbeat */
    WAIT_LINGER,       /* answered and shut down; further input of the client is discarded */
    WAITS
};

struct net {
    struct net_options options;
    struct peers *peers;
    _Atomic int refusing; /* connections that only get the reason of their refusal */
};

struct listener {
    uv_tcp_t tcp;
    struct net_worker *net;
    struct net_site *site;
    struct listener *next;
    bool open;
};

/* More than any request line and headers, so that one read usually is one request. */
#define READ_BYTES 65536

/* The most memory per worker for answers that clients have not read yet; streams do not count. */
#define UNSENT_BYTES_MAX (16 * 1024 * 1024)

/* A scratch buffer of a worker that has grown larger than this is freed after the answer. */
#define KEPT_BYTES_MAX (256 * 1024)

struct net_worker {
    struct net *net;
    struct worker *worker;
    void *context;
    struct listener *listeners;
    struct list waits[WAITS];
    int64_t timeouts_ms[WAITS];
    uv_timer_t deadlines;
    uv_idle_t slices; /* runs while a connection is in WAIT_SLICE */
    bool draining;
    void (*drained)(void *);
    void *drained_arg;
    size_t conn_count;     /* until libuv has closed the handle */
    size_t exchange_count; /* under way */
    size_t unsent_bytes;   /* of all connections that are no streams */

    struct exchange *free_exchanges;
    size_t free_exchange_count;
    bool in_slice;
    struct buf out;   /* answers of the slice under way, sent at its end */
    struct buf aside; /* an answer that is given outside of its connection's slice */
    struct buf body;  /* of the answer being written */
    int64_t accept_warned_ms;
    int64_t date_s;   /* the second that `date` shows */
    char date[30];    /* "Sun, 06 Nov 1994 08:49:37 GMT" */
    int64_t logged_s; /* the second in which failed requests were last logged, and how many */
    int64_t logged_count;
    int64_t omitted_count; /* that were not logged since then */
    uint64_t request_seq;
    char request_prefix[9];
    char read_bytes[READ_BYTES];
};

struct conn {
    uv_tcp_t tcp;
    struct net_worker *net;
    struct net_site *site;
    struct list link;
    int64_t deadline_ms;
    struct exchange *exchange; /* being read or answered */
    struct stream *stream;     /* the answer that does not end; nothing behind it is answered */
    struct buf in;             /* bytes of requests that are not answered yet */
    struct buf *out;           /* during its slice: where its answers are gathered */
    struct address peer;
    enum wait wait;
    /* Pieces of answers or of its stream that the socket has not taken all of. The first is libuv's
     * until it is written. While there are any, no further request is processed. */
    struct unsent *unsent;
    struct unsent *last_unsent;
    size_t unsent_bytes; /* of them */
    bool counted;        /* in peers */
    bool refused;        /* in net->refusing */
    bool reading;
    bool answering; /* the handler has the exchange */
    bool last;      /* close after the answer under way */
    bool lingering; /* the input may be invalid: shut down, read the rest, then close */
    bool eof;
    bool closing;
};

/* conn.c */
struct conn *conn_new(struct net_worker *nw, struct net_site *site);
/* The socket is open: starts reading, or refuses with `refusal`. */
void conn_start(struct conn *c, enum err refusal);
void conn_close(struct conn *c);
void conn_wait_for(struct conn *c, enum wait wait);
/* The buffer for the answer to c->exchange. */
struct buf *conn_out(struct conn *c);
/* The answer has been rendered there. */
void conn_answered(struct conn *c);
/* More of its stream, behind the bytes that are not sent yet. */
void conn_send(struct conn *c, str bytes);
/* No further answer follows: it closes when all is sent. */
void conn_end(struct conn *c);
void conn_on_deadline(struct conn *c);
/* The next slice of a connection that is in WAIT_SLICE. */
void conn_on_slice(struct conn *c);
/* Whether the socket has bytes that were not read yet. */
bool conn_has_unread(const struct conn *c);

/* server.c */
void net_worker_maybe_drained(struct net_worker *nw);
/* A connection is in WAIT_SLICE. */
void net_worker_schedule_slices(struct net_worker *nw);

/* exchange.c */
struct exchange *exchange_take(struct conn *c);
void exchange_begin(struct exchange *x);
/* The request's bytes are about to be reused before it is answered: copies what will be logged. */
void exchange_outlives_request(struct exchange *x);
/* It was answered: kept for another request, or released. */
void exchange_free(struct exchange *x);
/* Frees its memory. */
void exchange_release(struct exchange *x);
/* Writes the answer's head. `length` is the body's; -1: the end of the connection is its end. */
void reply_head(struct exchange *x, struct buf *out, str content_type, int64_t length);
/* Counts and logs the answer, which is about to be sent. */
void reply_note(struct exchange *x);

/* stream.c */
/* Its connection is closed, or about to be: detaches the stream from it and calls `ended`. */
void stream_ended(struct conn *c);
/* More is unsent than a reader may lag. */
bool stream_lags(const struct conn *c);
/* Nothing was sent for the time of a heartbeat. */
void stream_beat(struct conn *c);

#endif
