/* One connection of hiredis on a libuv loop (wire.h). */
#include "hot/redis/wire.h"

#include <hiredis/async.h>

#include "base/mem.h"

struct wire {
    redisAsyncContext *context; /* NULL: hiredis has freed it, or is about to */
    struct wire_listener listener;
    uv_poll_t poll;
    int events;     /* polled for */
    uv_idle_t idle; /* active while there is something to write: the loop must not wait */
    uv_check_t flush;
    int open_handles;
    bool connected;
    bool busy;    /* hiredis is being called and may call back */
    bool writing; /* in wire_write */
    bool closed;  /* the listener is not called any more */
    char why[sizeof((redisContext *)0)->errstr];
};

static void wire_on_poll(uv_poll_t *poll, int status, int events);

static void wire_poll_for(struct wire *w, int events) {
    if (events == w->events) return;
    w->events = events;
    if (events == 0)
        uv_poll_stop(&w->poll);
    else
        uv_poll_start(&w->poll, events, wire_on_poll);
}

static void wire_on_closed(uv_handle_t *handle) {
    struct wire *w = handle->data;
    if (--w->open_handles == 0) mem_free(w);
}

/* Around every call of hiredis: wire_close waits for the end of it. */
static void wire_begin_work(struct wire *w) {
    assert(!w->busy);
    w->busy = true;
}

static void wire_end_work(struct wire *w) {
    w->busy = false;
    if (w->closed && w->context != NULL) redisAsyncFree(w->context);
    if (w->closed || w->context != NULL) return;
    w->closed = true;
    w->listener.lost(w->listener.to, w->why);
}

static void wire_write(struct wire *w) {
    w->writing = true;
    redisAsyncHandleWrite(w->context);
    w->writing = false;
}

static void wire_on_poll(uv_poll_t *poll, int status, int events) {
    struct wire *w = poll->data;
    wire_begin_work(w);
    /* After an error libuv does not poll any more. Reading finds the cause. */
    if (status < 0 || (events & UV_READABLE) != 0) redisAsyncHandleRead(w->context);
    if (w->context != NULL && (events & UV_WRITABLE) != 0) wire_write(w);
    if (w->context != NULL && status < 0) {
        str_copy(str_of(uv_strerror(status)), w->why, sizeof w->why);
        redisAsyncFree(w->context);
    }
    wire_end_work(w);
}

static void wire_on_idle(uv_idle_t *idle) {
    (void)idle; /* an active idle handle makes the loop poll without waiting */
}

static void wire_on_flush(uv_check_t *flush) {
    struct wire *w = flush->data;
    uv_idle_stop(&w->idle);
    uv_check_stop(&w->flush);
    wire_begin_work(w);
    wire_write(w);
    wire_end_work(w);
}

static void wire_add_read(void *data) {
    struct wire *w = data;
    wire_poll_for(w, w->events | UV_READABLE);
}

static void wire_del_read(void *data) {
    struct wire *w = data;
    wire_poll_for(w, w->events & ~UV_READABLE);
}

/* A socket that is not connected yet, or has not taken everything, is polled until it is writable;
 * else the data is written at the end of this iteration. */
static void wire_add_write(void *data) {
    struct wire *w = data;
    if (!w->connected || w->writing) {
        wire_poll_for(w, w->events | UV_WRITABLE);
        return;
    }
    uv_idle_start(&w->idle, wire_on_idle);
    uv_check_start(&w->flush, wire_on_flush);
}

static void wire_del_write(void *data) {
    struct wire *w = data;
    wire_poll_for(w, w->events & ~UV_WRITABLE);
}

/* hiredis closes the socket next: polling must stop now. */
static void wire_clean_up(void *data) {
    struct wire *w = data;
    if (w->context == NULL) return;
    if (w->context->err != 0) str_copy(str_of(w->context->errstr), w->why, sizeof w->why);
    w->context = NULL;
    uv_close((uv_handle_t *)&w->poll, wire_on_closed);
    uv_close((uv_handle_t *)&w->idle, wire_on_closed);
    uv_close((uv_handle_t *)&w->flush, wire_on_closed);
}

static void wire_on_connect(const redisAsyncContext *context, int status) {
    struct wire *w = context->data;
    if (status != REDIS_OK || w->closed) return; /* wire_clean_up or wire_end_work comes next */
    w->connected = true;
    w->listener.connected(w->listener.to);
}

static void wire_on_reply(redisAsyncContext *context, void *reply, void *data) {
    struct wire *w = data;
    (void)context;
    if (reply == NULL || w->closed)
        return; /* no reply: the connection broke, and `lost` is called */
    w->listener.replied(w->listener.to, reply);
}

static void wire_attach(struct wire *w, uv_loop_t *loop) {
    uv_idle_init(loop, &w->idle);
    uv_check_init(loop, &w->flush);
    w->poll.data = w->idle.data = w->flush.data = w;
    w->open_handles = 3;
    redisAsyncContext *context = w->context;
    context->data = w;
    context->ev.data = w;
    context->ev.addRead = wire_add_read;
    context->ev.delRead = wire_del_read;
    context->ev.addWrite = wire_add_write;
    context->ev.delWrite = wire_del_write;
    context->ev.cleanup = wire_clean_up;
    redisAsyncSetConnectCallback(
        context, wire_on_connect); /* which also begins to poll for the connection */
}

struct wire *wire_open(uv_loop_t *loop, const char *ip, uint16_t port,
                       struct wire_listener listener, struct buf *why) {
    redisAsyncContext *context = redisAsyncConnect(ip, port);
    if (context == NULL || context->err != 0) {
        buf_add(why, context == NULL ? STR("no memory") : str_of(context->errstr));
        if (context != NULL) redisAsyncFree(context);
        return NULL;
    }
    struct wire *w = mem_new(sizeof *w);
    w->listener = listener;
    w->context = context;
    int failed = uv_poll_init(loop, &w->poll, context->c.fd);
    if (failed != 0) {
        buf_add(why, str_of(uv_strerror(failed)));
        redisAsyncFree(context);
        mem_free(w);
        return NULL;
    }
    wire_attach(w, loop);
    return w;
}

void wire_close(struct wire *w) {
    assert(!w->closed);
    w->closed = true;
    if (!w->busy) redisAsyncFree(w->context);
}

void wire_send(struct wire *w, str command) {
    assert(w->connected && !w->closed);
    /* Fails only when hiredis has noticed that the connection broke; then `lost` is called. */
    redisAsyncFormattedCommand(w->context, wire_on_reply, w, command.at, command.len);
}
