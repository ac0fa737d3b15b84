/*
 * stream: an answer without an end, for server-sent events.
 *
 * reply_stream answers an exchange with the head of one; from then on its connection belongs to
 * the stream, until either side ends it. Between events it costs this struct and its connection,
 * no buffer. Net keeps it alive: it sends a comment after stream_heartbeat_ms without an event,
 * notices at once when the client closes, and ends it properly when it is stream_max_ms old (less a
 * random tenth, so that clients that connected together do not connect again together; late by at
 * most one heartbeat).
 *
 * All on the connection's worker. The struct is the caller's memory, and net's until `ended` is
 * called: exactly once, also from inside the functions below. After that net does not touch it.
 */
#ifndef ADMITONE_NET_STREAM_H
#define ADMITONE_NET_STREAM_H

#include "net/exchange.h"

struct stream {
    /* May free the struct, and may send to or end other streams. */
    void (*ended)(struct stream *s);

    /* Below: private to net/. */
    struct conn *conn; /* NULL once it has ended */
    int64_t ends_ms;   /* by the loop's clock */
};

/* 200, text/event-stream, and what reply_header has added; then the exchange is gone. Where there
 * is no client to stream to (it has gone or will not stay, HEAD, a server that stops) only the head
 * is sent, and `ended` is called before this returns. */
void reply_stream(struct exchange *x, struct stream *s);

/* Sends the bytes at once; those that the socket does not take are kept, up to stream_lag_bytes: a
 * reader that lags more is disconnected. Does nothing if the stream has ended. */
void stream_send(struct stream *s, str bytes);

/* How many streams this process has now. From any thread. */
int64_t streams_open(void);

/* Calls `ended`, and closes the connection when all that was sent has gone out, for which it has
 * the write time-out. */
void stream_end(struct stream *s);

#endif
