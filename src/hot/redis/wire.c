#include "hot/redis/wire.h"

#include <hiredis/async.h>

#include "base/mem.h"

struct wire {
    redisAsyncContext *context; /* NULL: hiredis has freed it, or is about to */
    struct wire_listener listener;
    uv_poll_t poll;
    int events;      /* polled for */
    uv_idle_t hurry; /* while something is to be written: the loop must not wait */
    uv_check_t flush;
    int open_handles;
    bool connected;
    bool busy;    /* hiredis is at work and may call back */
    bool writing; /* and that is writing */
    bool closed;  /* nobody listens any more */
    char why[sizeof((redisContext *)0)->errstr];
};

static void on_poll(uv_poll_t *poll, int status, int events);

static void poll_for(struct wire *w, int events) {
    if (events == w->events) return;
    w->events = events;
    if (events == 0)
        uv_poll_stop(&w->poll);
    else
        uv_poll_start(&w->poll, events, on_poll);
}

static void on_closed(uv_handle_t *handle) {
    struct wire *w = handle->data;
    if (--w->open_handles == 0) mem_free(w);
}

/* Before and behind whatever lets hiredis work: closing waits for the end of it. */
static void begin_work(struct wire *w) {
    assert(!w->busy);
    w->busy = true;
}

static void end_work(struct wire *w) {
    w->busy = false;
    if (w->closed && w->context != NULL) redisAsyncFree(w->context);
    if (w->closed || w->context != NULL) return;
    w->closed = true;
    w->listener.lost(w->listener.to, w->why);
}

static void write_out(struct wire *w) {
    w->writing = true;
    redisAsyncHandleWrite(w->context);
    w->writing = false;
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct wire *w = poll->data;
    begin_work(w);
    /* After an error libuv polls no more. Reading finds out what it was. */
    if (status < 0 || (events & UV_READABLE) != 0) redisAsyncHandleRead(w->context);
    if (w->context != NULL && (events & UV_WRITABLE) != 0) write_out(w);
    if (w->context != NULL && status < 0) {
        str_copy(str_of(uv_strerror(status)), w->why, sizeof w->why);
        redisAsyncFree(w->context);
    }
    end_work(w);
}

static void on_hurry(uv_idle_t *hurry) {
    (void)hurry; /* that it is there is enough: the loop polls without waiting */
}

static void on_flush(uv_check_t *flush) {
    struct wire *w = flush->data;
    uv_idle_stop(&w->hurry);
    uv_check_stop(&w->flush);
    begin_work(w);
    write_out(w);
    end_work(w);
}

static void add_read(void *data) {
    struct wire *w = data;
    poll_for(w, w->events | UV_READABLE);
}

static void del_read(void *data) {
    struct wire *w = data;
    poll_for(w, w->events & ~UV_READABLE);
}

/* Of a socket that is not connected yet, or that did not take everything, the system tells when it
 * can be written to. */
static void add_write(void *data) {
    struct wire *w = data;
    if (!w->connected || w->writing) {
        poll_for(w, w->events | UV_WRITABLE);
        return;
    }
    uv_idle_start(&w->hurry, on_hurry);
    uv_check_start(&w->flush, on_flush);
}

static void del_write(void *data) {
    struct wire *w = data;
    poll_for(w, w->events & ~UV_WRITABLE);
}

/* hiredis closes the socket next: now is the time to stop polling it. */
static void clean_up(void *data) {
    struct wire *w = data;
    if (w->context == NULL) return;
    if (w->context->err != 0) str_copy(str_of(w->context->errstr), w->why, sizeof w->why);
    w->context = NULL;
    uv_close((uv_handle_t *)&w->poll, on_closed);
    uv_close((uv_handle_t *)&w->hurry, on_closed);
    uv_close((uv_handle_t *)&w->flush, on_closed);
}

static void on_connect(const redisAsyncContext *context, int status) {
    struct wire *w = context->data;
    if (status != REDIS_OK || w->closed) return; /* clean_up comes next, or the end of the work */
    w->connected = true;
    w->listener.connected(w->listener.to);
}

static void on_reply(redisAsyncContext *context, void *reply, void *data) {
    struct wire *w = data;
    (void)context;
    if (reply == NULL || w->closed) return; /* no answer: it is over, which is told otherwise */
    w->listener.replied(w->listener.to, reply);
}

static void attach(struct wire *w, uv_loop_t *loop) {
    uv_idle_init(loop, &w->hurry);
    uv_check_init(loop, &w->flush);
    w->poll.data = w->hurry.data = w->flush.data = w;
    w->open_handles = 3;
    redisAsyncContext *context = w->context;
    context->data = w;
    context->ev.data = w;
    context->ev.addRead = add_read;
    context->ev.delRead = del_read;
    context->ev.addWrite = add_write;
    context->ev.delWrite = del_write;
    context->ev.cleanup = clean_up;
    redisAsyncSetConnectCallback(context, on_connect); /* and polls, for the connection */
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
    attach(w, loop);
    return w;
}

void wire_close(struct wire *w) {
    assert(!w->closed);
    w->closed = true;
    if (!w->busy) redisAsyncFree(w->context);
}

void wire_send(struct wire *w, str command) {
    assert(w->connected && !w->closed);
    /* It fails only when hiredis has noticed the end of the connection, which will be heard of. */
    redisAsyncFormattedCommand(w->context, on_reply, w, command.at, command.len);
}
