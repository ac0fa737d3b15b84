/* One connection: reads requests, has them answered in order, sends the answers, and decides what
 * to wait for next. */
#include "net/internal.h"

#include <assert.h>

#include "base/mem.h"
#include "base/metrics.h"

/* How many bytes a client may send ahead while its request is being answered. */
#define AHEAD_BYTES_MAX READ_BYTES
/* An answer that the socket does not take is kept in pieces, so that a slow reader's memory shrinks
 * as it reads, and its time-out starts again with each. */
#define PIECE_BYTES_MAX 65536
/* How many requests of one connection are answered before other connections are served. */
#define SLICE_REQUESTS_MAX 32

static void conn_process(struct conn *c, char *bytes, size_t len);

/* A piece of an answer or of a stream that the socket did not take. */
struct unsent {
    uv_write_t request;
    struct conn *conn;
    struct unsent *next;
    size_t len;
    bool of_stream;  /* not in net->unsent_bytes */
    bool is_writing; /* libuv has it */
    char bytes[];
};

struct conn *conn_new(struct net_worker *nw, struct net_site *site) {
    struct conn *c = mem_new(sizeof *c);
    c->net = nw;
    c->site = site;
    list_init(&c->link);
    int failed = uv_tcp_init(&nw->worker->loop, &c->tcp);
    assert(failed == 0);
    c->tcp.data = c;
    nw->conn_count++;
    return c;
}

void conn_wait_for(struct conn *c, enum wait wait) {
    assert(wait < WAITS);
    struct net_worker *nw = c->net;
    c->wait = wait;
    c->deadline_ms = (int64_t)uv_now(&nw->worker->loop) + nw->timeouts_ms[wait];
    list_move_last(&nw->waits[wait], &c->link);
}

static void conn_on_closed(uv_handle_t *handle) {
    struct conn *c = handle->data;
    struct net_worker *nw = c->net;
    if (c->counted) {
        peers_leave(nw->net->peers, &c->peer);
        count(COUNT_CONNECTIONS_CLOSED, 1);
    }
    if (c->refused) atomic_fetch_sub(&nw->net->refusing, 1);
    buf_deinit(&c->in);
    mem_free(c);
    nw->conn_count--;
    net_worker_maybe_drained(nw);
}

/* Takes the first piece out of the list, and out of the sums. */
static struct unsent *unsent_take(struct conn *c) {
    struct unsent *u = c->unsent;
    size_t counted = u->of_stream ? 0 : u->len;
    assert(c->unsent_bytes >= u->len && c->net->unsent_bytes >= counted);
    c->unsent = u->next;
    c->unsent_bytes -= u->len;
    c->net->unsent_bytes -= counted;
    return u;
}

/* Frees the pieces at once, but for one that libuv has: unsent_on_written will be called for it. */
static void unsent_drop_all(struct conn *c) {
    while (c->unsent != NULL) {
        struct unsent *u = unsent_take(c);
        if (!u->is_writing) mem_free(u);
    }
}

void conn_close(struct conn *c) {
    if (c->closing) return;
    c->closing = true;
    list_remove(&c->link);
    unsent_drop_all(c);
    struct exchange *x = c->exchange;
    c->exchange = NULL;
    if (x != NULL) {
        if (c->answering) exchange_outlives_request(x);
        x->conn = NULL;
        if (!c->answering) exchange_free(x);
    }
    uv_close((uv_handle_t *)&c->tcp, conn_on_closed);
    if (c->stream != NULL) stream_ended(c);
}

bool conn_has_unread(const struct conn *c) {
    char byte;
    int fd;
    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
           recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Closing with unread input would make the kernel reset the connection, and the client might lose
 * the answer; so where input may be left, only our side is closed and the rest is read away. */
static void conn_finish(struct conn *c) {
    bool input_left = c->lingering || c->in.len > 0 || conn_has_unread(c);
    int fd;
    if (!input_left || c->eof || uv_fileno((const uv_handle_t *)&c->tcp, &fd) != 0) {
        conn_close(c);
        return;
    }
    shutdown(fd, SHUT_WR);
    buf_deinit(&c->in);
    conn_wait_for(c, WAIT_LINGER);
}

static void conn_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out);
static void conn_on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf);

/* Its input must wait: for an answer, for the socket, or for its next slice. */
static bool conn_is_busy(const struct conn *c) {
    return c->answering || c->unsent != NULL || c->wait == WAIT_SLICE;
}

/* Reads on, unless the client is too far ahead of its answers. */
static void conn_update_reading(struct conn *c) {
    bool wanted = !c->eof && (c->in.len < AHEAD_BYTES_MAX || !conn_is_busy(c));
    if (wanted == c->reading) return;
    c->reading = wanted;
    if (!wanted)
        uv_read_stop((uv_stream_t *)&c->tcp);
    else if (uv_read_start((uv_stream_t *)&c->tcp, conn_on_alloc, conn_on_read) != 0)
        conn_close(c);
}

static enum wait conn_socket_wait(const struct conn *c) {
    return c->stream != NULL ? WAIT_STREAM_WRITE : WAIT_WRITE;
}

/* At the end of a slice: decides what the connection waits for next. `more`: whole requests may
 * still be in its input. */
static void conn_choose_wait(struct conn *c, bool more) {
    if (c->closing) return;
    if (c->stream != NULL) {
        buf_deinit(&c->in); /* requests behind a stream */
        if (stream_lags(c)) {
            count(COUNT_SSE_DROPPED, 1);
            conn_close(c);
            return;
        }
    }
    if (c->unsent != NULL) {
        if (c->wait != conn_socket_wait(c)) conn_wait_for(c, conn_socket_wait(c));
    } else if (c->answering) {
        conn_wait_for(c, WAIT_ANSWER);
    } else if (c->stream != NULL) {
        conn_wait_for(c, WAIT_STREAM);
    } else if (c->last || (c->eof && !more)) {
        conn_finish(c);
    } else if (more) {
        conn_wait_for(c, WAIT_SLICE);
        net_worker_schedule_slices(c->net);
    } else if (c->exchange == NULL) {
        conn_wait_for(c, WAIT_IDLE);
    } else {
        /* The time-out of a request starts with its first byte, and again with its body. */
        enum wait wait = c->exchange->parser.phase < HTTP1_BODY ? WAIT_HEADERS : WAIT_BODY;
        if (c->wait != wait || c->exchange->fresh) conn_wait_for(c, wait);
        c->exchange->fresh = false;
    }
    if (!c->closing) conn_update_reading(c);
}

static void unsent_write(struct conn *c);

static void unsent_on_written(uv_write_t *request, int failed) {
    struct unsent *u = CONTAINER_OF(request, struct unsent, request);
    struct conn *c = u->conn;
    if (!c->closing) unsent_take(c);
    mem_free(u);
    if (c->closing) return;
    if (failed != 0) {
        conn_close(c);
        return;
    }
    /* The client reads: the time-out of the next piece starts. */
    conn_wait_for(c, conn_socket_wait(c));
    if (c->unsent != NULL)
        unsent_write(c);
    else
        conn_process(c, NULL, 0);
}

/* Gives the first piece to libuv. */
static void unsent_write(struct conn *c) {
    struct unsent *u = c->unsent;
    uv_buf_t bytes = uv_buf_init(u->bytes, (unsigned)u->len);
    int failed = uv_write(&u->request, (uv_stream_t *)&c->tcp, &bytes, 1, unsent_on_written);
    u->is_writing = failed == 0;
    if (failed != 0) conn_close(c);
}

static void unsent_keep(struct conn *c, str piece) {
    assert(piece.len > 0 && piece.len <= PIECE_BYTES_MAX);
    struct unsent *u = mem_grow(NULL, sizeof *u + piece.len);
    *u = (struct unsent){.conn = c, .len = piece.len, .of_stream = c->stream != NULL};
    memcpy(u->bytes, piece.at, piece.len);
    if (c->unsent == NULL)
        c->unsent = u;
    else
        c->last_unsent->next = u;
    c->last_unsent = u;
    c->unsent_bytes += u->len;
    if (!u->of_stream) c->net->unsent_bytes += u->len;
}

/* The connection whose client has read nothing for the longest time, other than `newest`; NULL:
 * there is none. */
static struct conn *slowest_reader(struct net_worker *nw, const struct conn *newest) {
    const struct list *unread = &nw->waits[WAIT_WRITE];
    for (struct list *at = unread->next; at != unread; at = at->next) {
        struct conn *c = CONTAINER_OF(at, struct conn, link);
        if (c != newest && c->unsent != NULL) return c;
    }
    return NULL;
}

/* Clients that read nothing must not take all memory: the slowest readers are closed. */
static void unsent_bound(struct conn *newest) {
    struct net_worker *nw = newest->net;
    struct conn *slowest;
    while (nw->unsent_bytes > UNSENT_BYTES_MAX && (slowest = slowest_reader(nw, newest)) != NULL) {
        count(COUNT_CONNECTIONS_DROPPED, 1);
        conn_close(slowest);
    }
}

/* Sends the bytes; those that the socket does not take are copied and sent when it does. */
static void conn_send_bytes(struct conn *c, str bytes) {
    if (bytes.len == 0 || c->closing) return;
    uv_stream_t *stream = (uv_stream_t *)&c->tcp;
    uv_buf_t all = uv_buf_init((char *)bytes.at, (unsigned)bytes.len);
    bool is_first = c->unsent == NULL;
    int sent = is_first ? uv_try_write(stream, &all, 1) : UV_EAGAIN;
    if (sent < 0 && sent != UV_EAGAIN) {
        conn_close(c);
        return;
    }
    str rest = str_skip(bytes, sent < 0 ? 0 : (size_t)sent);
    if (rest.len == 0) return;
    while (rest.len > 0) {
        str piece = {rest.at, rest.len < PIECE_BYTES_MAX ? rest.len : PIECE_BYTES_MAX};
        unsent_keep(c, piece);
        rest = str_skip(rest, piece.len);
    }
    if (is_first) unsent_write(c);
    if (!c->closing) unsent_bound(c);
}

static const char *conn_refusal_detail(enum err e) {
    switch (e) {
    case ERR_OVERLOADED:
        return "The server has as many connections as it allows. Try again.";
    case ERR_TOO_MANY_CONNECTIONS:
        return "Reuse connections, or close those that are not needed.";
    case ERR_REQUEST_TIMEOUT:
        return "Send the whole request without long pauses.";
    default:
        return "The request does not follow HTTP/1.1, or exceeds a limit of the server.";
    }
}

/* Gives the request to its handler, or answers one that could not be read or was refused. */
static void conn_dispatch(struct conn *c, struct exchange *x, enum http1_step step,
                          const char *block) {
    assert(c->exchange == x && !c->answering);
    c->answering = true;
    if (step == HTTP1_FAIL) {
        /* Where this request ends and the next one begins is not known. */
        c->last = true;
        c->lingering = true;
        exchange_begin(x);
        reply_problem(x, x->parser.error, "%s", conn_refusal_detail(x->parser.error));
        return;
    }
    x->request = http1_request(&x->parser, block);
    exchange_begin(x);
    if (!x->request.keep_alive) c->last = true;
    c->site->on_request(c->site, x);
    /* If it was answered, x is gone. If not, its views into the input are stale from here on. */
    if (!c->closing && c->answering) {
        exchange_outlives_request(x);
        if (!x->is_put_off) x->request = (struct http_request){.method = x->request.method};
    }
}

/* Works through whole requests in the bytes; returns how many bytes are done with. *more: it
 * stopped only because the slice is over. */
static size_t conn_work_through(struct conn *c, char *bytes, size_t len, bool *more) {
    size_t done = 0;
    int requests = 0;
    *more = false;
    while (done < len && !c->answering && !c->last && !c->closing) {
        if (requests++ == SLICE_REQUESTS_MAX || c->out->len >= AHEAD_BYTES_MAX) {
            *more = true;
            break;
        }
        if (c->exchange == NULL) c->exchange = exchange_take(c);
        struct exchange *x = c->exchange;
        enum http1_step step = http1_feed(&x->parser, bytes + done, len - done);
        if (step == HTTP1_MORE) break;
        if (step == HTTP1_CONTINUE) {
            buf_add(c->out, STR("HTTP/1.1 100 Continue\r\n\r\n"));
            break;
        }
        size_t used = step == HTTP1_DONE ? x->parser.used : len - done;
        conn_dispatch(c, x, step, bytes + done);
        done += used;
    }
    return done;
}

/* One slice of a connection: `bytes` is new input in the worker's buffer, or NULL when the input
 * so far is all in c->in. Answers are gathered and sent at its end. A handler of one connection may
 * answer another, so slices can nest; each gathers its own answers. */
static void conn_process(struct conn *c, char *bytes, size_t len) {
    struct net_worker *nw = c->net;
    assert(c->out == NULL && !c->closing && c->unsent == NULL);
    struct buf nested = {0};
    bool outermost = !nw->in_slice;
    struct buf *out = outermost ? &nw->out : &nested;
    bool more;
    nw->in_slice = true;
    buf_clear(out);
    c->out = out;
    if (bytes == NULL) {
        buf_consume(&c->in, conn_work_through(c, c->in.bytes, c->in.len, &more));
    } else {
        size_t done = conn_work_through(c, bytes, len, &more);
        buf_append(&c->in, bytes + done, len - done);
    }
    c->out = NULL;
    conn_send_bytes(c, buf_str(out));
    if (outermost) nw->in_slice = false;
    if (out->cap > KEPT_BYTES_MAX) buf_deinit(out);
    buf_deinit(&nested);
    if (c->closing) return;
    if (c->in.len == 0) buf_deinit(&c->in);
    conn_choose_wait(c, more);
}

void conn_on_slice(struct conn *c) {
    assert(c->wait == WAIT_SLICE && !c->answering);
    conn_process(c, NULL, 0);
}

struct buf *conn_out(struct conn *c) {
    if (c->out != NULL) return c->out;
    buf_clear(&c->net->aside);
    return &c->net->aside;
}

void conn_answered(struct conn *c) {
    assert(c->answering);
    c->answering = false;
    c->exchange = NULL;
    if (c->out != NULL) return; /* sent at the end of the slice, with the other answers */
    conn_send_bytes(c, buf_str(&c->net->aside));
    if (c->net->aside.cap > KEPT_BYTES_MAX) buf_deinit(&c->net->aside);
    if (c->closing) return;
    if (c->unsent != NULL)
        conn_choose_wait(c, false);
    else
        conn_process(c, NULL, 0);
}

void conn_send(struct conn *c, str bytes) {
    assert(c->stream != NULL);
    if (c->out != NULL) {
        buf_add(c->out, bytes); /* behind its head, at the end of the slice that began it */
        return;
    }
    conn_send_bytes(c, bytes);
    conn_choose_wait(c, false);
}

void conn_end(struct conn *c) {
    assert(c->last && c->stream == NULL);
    if (c->out == NULL) conn_choose_wait(c, false);
}

static void conn_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    (void)suggested;
    struct conn *c = handle->data;
    if (c->in.len == 0 || c->wait == WAIT_LINGER) {
        *out = uv_buf_init(c->net->read_bytes, sizeof c->net->read_bytes);
    } else {
        char *room = buf_reserve(&c->in, 4096);
        *out = uv_buf_init(room, (unsigned)(c->in.cap - c->in.len));
    }
}

static void conn_on_eof(struct conn *c) {
    c->eof = true;
    conn_update_reading(c);
    /* A client may close its side after its request and still read the answer; but not of an answer
     * without an end. */
    if (c->stream != NULL || !conn_is_busy(c)) conn_close(c);
}

static void conn_on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf) {
    struct conn *c = stream->data;
    if (got == 0 || c->closing) return;
    if (got == UV_EOF) {
        conn_on_eof(c);
        return;
    }
    if (got < 0) {
        conn_close(c);
        return;
    }
    if (c->wait == WAIT_LINGER || c->stream != NULL) return;
    bool shared = buf->base == c->net->read_bytes;
    if (!shared) c->in.len += (size_t)got;
    if (conn_is_busy(c)) {
        /* Keep it for later, up to the limit. */
        if (shared) buf_append(&c->in, buf->base, (size_t)got);
        conn_update_reading(c);
        return;
    }
    conn_process(c, shared ? buf->base : NULL, (size_t)got);
}

void conn_start(struct conn *c, enum err refusal) {
    uv_tcp_nodelay(&c->tcp, 1);
    conn_wait_for(c, WAIT_FIRST_BYTE);
    if (refusal != ERR_OK) {
        c->exchange = exchange_take(c);
        c->exchange->parser.error = refusal;
        conn_dispatch(c, c->exchange, HTTP1_FAIL, NULL);
        if (c->closing) return;
    }
    conn_update_reading(c);
}

void conn_on_deadline(struct conn *c) {
    static const enum counter counters[WAITS] = {
        [WAIT_FIRST_BYTE] = COUNT_TIMEOUT_IDLE, [WAIT_HEADERS] = COUNT_TIMEOUT_HEADERS,
        [WAIT_BODY] = COUNT_TIMEOUT_BODY,       [WAIT_IDLE] = COUNT_TIMEOUT_IDLE,
        [WAIT_WRITE] = COUNT_TIMEOUT_WRITE,     [WAIT_STREAM_WRITE] = COUNT_TIMEOUT_WRITE,
    };
    if (c->wait == WAIT_STREAM) {
        stream_beat(c);
        return;
    }
    if (c->wait != WAIT_LINGER) count(counters[c->wait], 1);
    /* A client that has begun a request is answered 408; an idle connection is just closed. */
    if (c->exchange != NULL && (c->wait == WAIT_HEADERS || c->wait == WAIT_BODY)) {
        c->exchange->parser.error = ERR_REQUEST_TIMEOUT;
        conn_dispatch(c, c->exchange, HTTP1_FAIL, NULL);
    } else {
        conn_close(c);
    }
}
