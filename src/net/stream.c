/* Answers without an end: opening, sending, heartbeats, and the end of a stream. */
#include "net/stream.h"

#include <assert.h>
#include <netinet/tcp.h>
#include <sys/random.h>

#include "base/metrics.h"
#include "net/internal.h"

static_assert(sizeof(struct stream) <= 32, "there are many streams");
static_assert(sizeof(struct conn) + sizeof(struct stream) <= 512, "an idle stream is small");

static int64_t now_ms(const struct conn *c) {
    return (int64_t)uv_now(&c->net->worker->loop);
}

/* A large kernel buffer would hide that a reader lags; and a peer that vanished is noticed by the
 * heartbeats that it does not acknowledge. A socket that refuses these options still works. */
static void tune_socket(struct conn *c, const struct net_options *options) {
    int bytes = (int)options->stream_lag_bytes;
    uv_send_buffer_size((uv_handle_t *)&c->tcp, &bytes);
    unsigned unacknowledged_ms = 2 * (unsigned)options->stream_heartbeat_ms;
    int fd;
    if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

static int64_t stream_duration_ms(const struct net_options *options) {
    uint32_t random;
    ssize_t got = getrandom(&random, sizeof random, 0);
    assert(got == sizeof random);
    return options->stream_max_ms - random % (options->stream_max_ms / 10 + 1);
}

static void open_on(struct conn *c, struct stream *s) {
    const struct net_options *options = &c->net->net->options;
    assert(options->stream_heartbeat_ms > 0 && options->stream_max_ms > 0);
    assert(options->stream_lag_bytes > 0 && options->stream_lag_bytes <= INT32_MAX);
    assert(c->stream == NULL);
    tune_socket(c, options);
    s->conn = c;
    s->ends_ms = now_ms(c) + stream_duration_ms(options);
    c->stream = s;
    count(COUNT_SSE_OPENED, 1);
}

void reply_stream(struct exchange *x, struct stream *s) {
    bool opens = x->conn != NULL && !x->conn->eof && !x->head && !x->net->draining;
    s->conn = NULL;
    /* Before the head is written: `ended` may answer others, in the same buffer. */
    if (opens)
        open_on(x->conn, s);
    else
        s->ended(s);
    struct conn *c = x->conn;
    x->status = 200;
    reply_note(x);
    if (c != NULL) {
        c->last = true;
        reply_header(x, STR("Cache-Control"), STR("no-store"));
        reply_header(x, STR("X-Accel-Buffering"), STR("no"));
        reply_head(x, conn_out(c), STR("text/event-stream"), -1);
    }
    exchange_free(x);
    if (c != NULL) conn_answered(c);
}

void stream_ended(struct conn *c) {
    struct stream *s = c->stream;
    assert(s->conn == c);
    c->stream = NULL;
    s->conn = NULL;
    count(COUNT_SSE_CLOSED, 1);
    s->ended(s);
}

bool stream_lags(const struct conn *c) {
    return c->unsent_bytes > (size_t)c->net->net->options.stream_lag_bytes;
}

void stream_beat(struct conn *c) {
    stream_send(c->stream, STR(": hb\n\n"));
}

void stream_send(struct stream *s, str bytes) {
    struct conn *c = s->conn;
    if (c == NULL || bytes.len == 0) return;
    conn_send(c, bytes);
    /* It may have ended there, and then `s` is not ours. */
    if (c->stream != NULL && now_ms(c) >= s->ends_ms) stream_end(s);
}

void stream_end(struct stream *s) {
    struct conn *c = s->conn;
    if (c == NULL) return;
    stream_ended(c);
    conn_end(c);
}

int64_t streams_open(void) {
    /* `closed` is read first: otherwise a stream that opens and closes between the two reads would
     * make the result negative. */
    uint64_t closed = counter_total(COUNT_SSE_CLOSED);
    return (int64_t)(counter_total(COUNT_SSE_OPENED) - closed);
}
