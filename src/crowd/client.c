/* Connections are in one of three lists: those that carry no request, those that do, in the order
 * in which these were written, and those of streams, in the order of their last byte. As each list
 * has one timeout, only its beginning is looked at for what is late. */
#include "crowd/client.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "crowd/response.h"

#define READ_BYTES (64 * 1024)

struct client {
    uv_loop_t *loop;
    struct client_options options;
    struct list idle;
    struct list busy;
    struct list streams;
    struct list urgent;   /* requests without a connection */
    struct list waiting;  /* those that are not urgent */
    size_t request_count; /* connections in idle or busy */
    size_t stream_count;
    size_t open; /* not closed yet */
    bool is_closing;
    char *scratch;   /* READ_BYTES; read here and parsed at once */
    struct buf body; /* of the answer that `done` is called with */
    struct buf cookies;
};

struct client_connection {
    uv_tcp_t tcp;
    uv_connect_t connecting;
    uv_write_t writing;
    struct client *client;
    struct list link;
    struct client_request *request; /* NULL: idle, or closing */
    struct response response;
    struct buf out;   /* the request; part of it may have been written */
    int64_t since_ms; /* steady: request written, or last byte of a stream */
    bool is_stream;
    bool is_connected;
    bool is_closing;
    bool is_writing;
    bool was_used;  /* has had an answer before */
    bool has_heard; /* a byte of this answer */
};

static void connection_begin(struct client_connection *k, struct client_request *r);
static void connection_write(struct client_connection *k);

/* ---- closing ---- */

static void connection_on_closed(uv_handle_t *handle) {
    struct client_connection *k = handle->data;
    k->client->open--;
    response_deinit(&k->response);
    buf_deinit(&k->out);
    mem_free(k);
}

/* The request, if there is one, has been taken out before. */
static void connection_close(struct client_connection *k) {
    assert(k->request == NULL);
    if (k->is_closing) return;
    k->is_closing = true;
    list_remove(&k->link);
    if (k->is_stream)
        k->client->stream_count--;
    else
        k->client->request_count--;
    uv_close((uv_handle_t *)&k->tcp, connection_on_closed);
}

static struct client_request *connection_take_request(struct client_connection *k) {
    struct client_request *r = k->request;
    k->request = NULL;
    if (r != NULL) r->connection = NULL;
    return r;
}

/* ---- opening ---- */

static void client_give_next(struct client *c);

/* The request gets no answer; or, on a connection that was kept alive and may have been closed
 * before the request arrived, another try. */
static void connection_fail(struct client_connection *k) {
    struct client *c = k->client;
    struct client_request *r = connection_take_request(k);
    bool may_repeat = k->was_used && !k->has_heard && !k->is_stream;
    connection_close(k);
    if (r == NULL) return;
    if (may_repeat && !r->was_repeated) {
        r->was_repeated = true;
        list_move_first(&c->urgent, &r->link);
        client_give_next(c);
        return;
    }
    client_give_next(c);
    r->done(r, &(struct answer){0});
}

static void connection_on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf);

static void connection_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct client_connection *k = handle->data;
    (void)suggested;
    *buf = uv_buf_init(k->client->scratch, READ_BYTES);
}

static void connection_on_connected(uv_connect_t *connecting, int status) {
    struct client_connection *k = connecting->data;
    if (k->is_closing) return;
    if (status != 0 ||
        uv_read_start((uv_stream_t *)&k->tcp, connection_alloc, connection_on_read) != 0) {
        connection_fail(k);
        return;
    }
    k->is_connected = true;
    connection_write(k);
}

/* The connection could not even be begun. `done` is called when its handle is closed, because
 * client_send promises not to call it. */
static void connection_on_no_connection(uv_handle_t *handle) {
    struct client_connection *k = handle->data;
    struct client_request *r = connection_take_request(k);
    bool is_reported = !k->client->is_closing && r != NULL;
    struct client *c = k->client;
    connection_on_closed(handle);
    client_give_next(c);
    if (is_reported) r->done(r, &(struct answer){0});
}

static void client_open(struct client *c, struct client_request *r) {
    struct client_connection *k = mem_new(sizeof *k);
    k->client = c;
    k->is_stream = r->is_stream;
    list_init(&k->link);
    int failed = uv_tcp_init(c->loop, &k->tcp);
    assert(failed == 0); /* it opens no socket */
    k->tcp.data = k;
    k->connecting.data = k;
    k->writing.data = k;
    c->open++;
    if (k->is_stream)
        c->stream_count++;
    else
        c->request_count++;
    connection_begin(k, r);
    failed = uv_tcp_connect(&k->connecting, &k->tcp, (const struct sockaddr *)&c->options.server,
                            connection_on_connected);
    if (failed == 0) return;
    /* No socket is left, say. */
    k->is_closing = true;
    list_remove(&k->link);
    if (k->is_stream)
        c->stream_count--;
    else
        c->request_count--;
    uv_close((uv_handle_t *)&k->tcp, connection_on_no_connection);
}

/* ---- writing ---- */

static void connection_on_written(uv_write_t *writing, int status) {
    struct client_connection *k = writing->data;
    k->is_writing = false;
    if (k->is_closing) return;
    if (status != 0 && k->request != NULL) connection_fail(k);
}

static void connection_write(struct client_connection *k) {
    uv_tcp_nodelay(&k->tcp, 1);
    uv_buf_t part = uv_buf_init(k->out.bytes, (unsigned)k->out.len);
    int done = uv_try_write((uv_stream_t *)&k->tcp, &part, 1);
    size_t written = done > 0 ? (size_t)done : 0;
    if (written == k->out.len) return;
    part = uv_buf_init(k->out.bytes + written, (unsigned)(k->out.len - written));
    k->is_writing = true;
    /* A failure comes back as a read that fails, or by the timeout. */
    if (uv_write(&k->writing, (uv_stream_t *)&k->tcp, &part, 1, connection_on_written) != 0)
        k->is_writing = false;
}

/* Gives the connection a request, which is written when it is connected. */
static void connection_begin(struct client_connection *k, struct client_request *r) {
    struct client *c = k->client;
    assert(k->request == NULL && !k->is_writing);
    k->request = r;
    r->connection = k;
    k->has_heard = false;
    k->since_ms = clock_steady_ms();
    response_reset(&k->response);
    buf_clear(&k->out);
    r->write(r, &k->out);
    list_move_last(k->is_stream ? &c->streams : &c->busy, &k->link);
    if (k->is_connected) connection_write(k);
}

static bool client_has_room(const struct client *c) {
    return !list_empty(&c->idle) || c->request_count < c->options.connections_max;
}

static void client_give(struct client *c, struct client_request *r) {
    if (list_empty(&c->idle) || r->is_stream)
        client_open(c, r);
    else
        connection_begin(CONTAINER_OF(c->idle.prev, struct client_connection, link), r);
}

/* The request that waits for the longest time gets the connection that has become free. */
static void client_give_next(struct client *c) {
    while (!c->is_closing && client_has_room(c)) {
        struct list *line = list_empty(&c->urgent) ? &c->waiting : &c->urgent;
        if (list_empty(line)) return;
        struct client_request *r = CONTAINER_OF(line->next, struct client_request, link);
        list_remove(&r->link);
        client_give(c, r);
    }
}

/* ---- reading ---- */

/* The answer is whole. Its texts move to the client, as the connection may get the next request
 * before `done` returns. */
static void connection_end(struct client_connection *k, bool may_stay) {
    struct client *c = k->client;
    struct response *from = &k->response;
    struct buf body = c->body;
    struct buf cookies = c->cookies;
    c->body = from->body;
    c->cookies = from->cookies;
    from->body = body;
    from->cookies = cookies;
    struct answer a = {.status = from->status,
                       .retry_after_s = from->retry_after_s,
                       .cookies = buf_str(&c->cookies),
                       .body = buf_str(&c->body)};
    struct client_request *r = connection_take_request(k);
    if (may_stay && from->keep_alive && !k->is_stream && !k->is_writing) {
        k->was_used = true;
        list_move_last(&c->idle, &k->link);
    } else {
        connection_close(k);
    }
    client_give_next(c);
    r->done(r, &a);
}

/* False: the stream is over, or its request was cancelled. */
static bool connection_take_events(struct client_connection *k) {
    struct stream_event e;
    size_t at = 0;
    while (events_take(&k->response.body, &at, &e)) {
        if (!k->request->on_event(k->request, &e)) return false;
        if (k->request == NULL) return false;
    }
    if (at > 0) buf_consume(&k->response.body, at);
    return true;
}

static void connection_on_bytes(struct client_connection *k, str in) {
    k->has_heard = true;
    if (k->is_stream) {
        k->since_ms = clock_steady_ms();
        list_move_last(&k->client->streams, &k->link);
    }
    enum response_step step = response_feed(&k->response, &in);
    bool is_streaming = k->is_stream && response_has_head(&k->response) &&
                        k->response.status == 200 && k->response.is_events;
    if (step != RESPONSE_FAIL && is_streaming && !connection_take_events(k)) {
        if (k->request != NULL) connection_end(k, false);
        return;
    }
    if (step == RESPONSE_FAIL)
        connection_fail(k);
    else if (step == RESPONSE_DONE)
        connection_end(k, in.len == 0); /* bytes behind it answer nothing */
}

static void connection_on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf) {
    struct client_connection *k = stream->data;
    if (k->is_closing || len == 0) return;
    if (k->request == NULL) { /* idle: closed by the server, or bytes that answer nothing */
        connection_close(k);
        return;
    }
    if (len > 0)
        connection_on_bytes(k, (str){buf->base, (size_t)len});
    else if (len == UV_EOF && response_has_head(&k->response) &&
             response_close(&k->response) == RESPONSE_DONE)
        connection_end(k, false);
    else
        connection_fail(k);
}

/* ---- the interface ---- */

struct client *client_new(uv_loop_t *loop, const struct client_options *options) {
    assert(options->connections_max > 0 && options->timeout_ms > 0 && options->silence_ms > 0);
    struct client *c = mem_new(sizeof *c);
    c->loop = loop;
    c->options = *options;
    c->scratch = mem_new(READ_BYTES);
    list_init(&c->idle);
    list_init(&c->busy);
    list_init(&c->streams);
    list_init(&c->urgent);
    list_init(&c->waiting);
    return c;
}

bool client_has_stream(const struct client *c) {
    return c->stream_count < c->options.streams_max;
}

void client_send(struct client *c, struct client_request *r) {
    assert(!c->is_closing && (!r->is_stream || client_has_stream(c)));
    r->was_repeated = false;
    r->connection = NULL;
    list_init(&r->link);
    if (r->is_stream || client_has_room(c))
        client_give(c, r);
    else
        list_move_last(r->is_urgent ? &c->urgent : &c->waiting, &r->link);
}

void client_cancel(struct client *c, struct client_request *r) {
    struct client_connection *k = r->connection;
    list_remove(&r->link);
    if (k == NULL) return;
    connection_take_request(k);
    if (k->is_closing) return; /* its failure was about to be reported */
    connection_close(k);
    client_give_next(c);
}

static void client_check_list(struct list *of, int64_t before_ms) {
    while (!list_empty(of)) {
        struct client_connection *k = CONTAINER_OF(of->next, struct client_connection, link);
        if (k->since_ms > before_ms) return;
        k->has_heard = true; /* no other try: the server was slow */
        connection_fail(k);
    }
}

void client_check(struct client *c) {
    int64_t now_ms = clock_steady_ms();
    client_check_list(&c->busy, now_ms - c->options.timeout_ms);
    client_check_list(&c->streams, now_ms - c->options.silence_ms);
}

size_t client_connections(const struct client *c) {
    return c->request_count + c->stream_count;
}

size_t client_streams(const struct client *c) {
    return c->stream_count;
}

static void client_close_list(struct list *of) {
    while (!list_empty(of)) {
        struct client_connection *k = CONTAINER_OF(of->next, struct client_connection, link);
        connection_take_request(k);
        connection_close(k);
    }
}

void client_close(struct client *c) {
    c->is_closing = true;
    client_close_list(&c->idle);
    client_close_list(&c->busy);
    client_close_list(&c->streams);
}

void client_free(struct client *c) {
    assert(c->open == 0);
    buf_deinit(&c->body);
    buf_deinit(&c->cookies);
    mem_free(c->scratch);
    mem_free(c);
}
