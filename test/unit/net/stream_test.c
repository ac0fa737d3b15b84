#include "net/stream.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/metrics.h"
#include "net/internal.h"

/* Everything happens within this, or the test fails. */
#define PATIENCE_MS 60000
#define STREAMS_MAX 4

/* A worker that serves streams to the test, which asks it over sockets and steers it by tasks. */
struct fixture {
    struct net_options options;
    struct net *net;
    struct worker worker;
    struct net_worker *net_worker;
    struct net_site site;
    struct sockaddr_storage address;
    uv_sem_t task_done;
    atomic_int drained;
    int context;

    /* The worker's own, but for the counts. */
    struct stream streams[STREAMS_MAX];
    int stream_count;
    struct exchange *held; /* a request for /later, and its later answer */
    struct stream *held_stream;
    atomic_int asked; /* requests whose handler has returned */
    atomic_int ended[STREAMS_MAX];
    int ends_other; /* -1, or which stream ends when stream 0 does */
};

static struct fixture fix;

/* More than a full socket takes at once. */
static char large_part[512 * 1024];

static void on_ended(struct stream *s) {
    int which = (int)(s - fix.streams);
    assert(s->conn == NULL);
    atomic_fetch_add(&fix.ended[which], 1);
    if (which == 0 && fix.ends_other > 0) stream_end(&fix.streams[fix.ends_other]);
}

static struct stream *next_stream(void) {
    int which = fix.stream_count++;
    assert(which < STREAMS_MAX);
    fix.streams[which].ended = on_ended;
    return &fix.streams[which];
}

static void answer(struct net_site *site, struct exchange *x) {
    assert(site == &fix.site && exchange_context(x) == &fix.context);
    str path = x->request.path;
    if (str_eq(path, STR("/later"))) {
        fix.held = x;
        fix.held_stream = next_stream();
    } else if (str_eq(path, STR("/plain"))) {
        buf_add(reply_start(x, 200), STR("plain"));
        reply_send(x, STR("text/plain"));
    } else if (str_eq(path, STR("/problem"))) {
        const struct problem_member more[] = {{STR_INIT("position"), STR_INIT("7")},
                                              {STR_INIT("seats"), STR_INIT("[1,2]")}};
        x->retry_after_s = 17;
        reply_problem_with(x, ERR_NOT_FOUND, more, 2, "%s", "No.");
    } else if (str_eq(path, STR("/overloaded"))) {
        reply_problem(x, ERR_OVERLOADED, "%s", "Full.");
    } else {
        struct stream *s = next_stream();
        reply_header(x, STR("Access-Control-Allow-Origin"), STR("*"));
        reply_stream(x, s);
        if (str_eq(path, STR("/greeted"))) {
            stream_send(s, STR("data: one\n\n"));
            stream_send(s, STR("data: two\n\n"));
        } else if (str_eq(path, STR("/brief"))) {
            stream_send(s, STR("data: only\n\n"));
            stream_end(s);
        } else if (str_eq(path, STR("/large"))) {
            stream_send(s, (str){large_part, sizeof large_part});
        }
    }
}

static void on_request(struct net_site *site, struct exchange *x) {
    answer(site, x);
    atomic_fetch_add(&fix.asked, 1);
}

/* ---- steering the worker ---- */

struct order {
    struct task task;
    void (*act)(void *);
    void *arg;
};

static void run_order(struct task *task) {
    struct order *o = CONTAINER_OF(task, struct order, task);
    o->act(o->arg);
    uv_sem_post(&fix.task_done);
}

/* Runs it on the worker; returns when it is done. */
static void on_worker(void (*act)(void *), void *arg) {
    struct order o = {.task.run = run_order, .act = act, .arg = arg};
    mailbox_post(&fix.worker.mailbox, &o.task);
    uv_sem_wait(&fix.task_done);
}

struct parts {
    str bytes;
    int count;
};

static void send_parts(void *arg) {
    const struct parts *p = arg;
    for (int i = 0; i < p->count; i++) stream_send(&fix.streams[0], p->bytes);
}

static void send_text(const char *text) {
    on_worker(send_parts, &(struct parts){str_of(text), 1});
}

static void end_first(void *arg) {
    (void)arg;
    stream_end(&fix.streams[0]);
}

/* Until the socket is full, and then more parts than a byte counts. Sets how many bytes. */
static void fill(void *arg) {
    size_t *sent = arg;
    struct stream *s = &fix.streams[0];
    str part = {large_part, 2000};
    for (*sent = 0; s->conn->unsent == 0; *sent += part.len) stream_send(s, part);
    for (int i = 0; i < 300; i++, *sent += part.len) stream_send(s, part);
}

static void fill_and_end(void *arg) {
    fill(arg);
    stream_end(&fix.streams[0]);
}

static void stream_held(void *arg) {
    (void)arg;
    reply_stream(fix.held, fix.held_stream);
    stream_send(fix.held_stream, STR("data: late\n\n"));
}

static void assert_no_input_kept(void *arg) {
    (void)arg;
    assert(fix.streams[0].conn->in.cap == 0);
}

static void on_drained(void *arg) {
    (void)arg;
    atomic_store(&fix.drained, 1);
}

static void drain(void *at_once) {
    net_worker_drain(fix.net_worker, at_once != NULL, on_drained, NULL);
}

static void stop(void *arg) {
    (void)arg;
    worker_stop(&fix.worker);
}

static void await(const char *what, const atomic_int *value, int wanted) {
    int64_t give_up_ns = clock_steady_ns() + PATIENCE_MS * INT64_C(1000000);
    while (atomic_load(value) != wanted) {
        if (clock_steady_ns() > give_up_ns) fail_msg("%s: %d", what, atomic_load(value));
        usleep(1000);
    }
}

/* ---- the client ---- */

static int dial(int receive_bytes) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    assert_int_equal(connect(fd, (struct sockaddr *)&fix.address, sizeof(struct sockaddr_in)), 0);
    return fd;
}

static void say(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: test\r\n\r\n"

static int get(const char *request) {
    int fd = dial(0);
    say(fd, request);
    return fd;
}

/* Adds what comes next to `in`; false at the server's orderly close. */
static bool take(int fd, struct buf *in) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, PATIENCE_MS) != 1) fail_msg("nothing came behind: %s", buf_cstr(in));
    ssize_t got = read(fd, buf_reserve(in, 65536), 65536);
    if (got < 0) fail_msg("cut off behind: %s", buf_cstr(in));
    in->len += (size_t)got;
    return got > 0;
}

static void take_until(int fd, struct buf *in, const char *text) {
    while (strstr(buf_cstr(in), text) == NULL)
        if (!take(fd, in)) fail_msg("closed before %s: %s", text, buf_cstr(in));
}

/* Everything up to the server's close. */
static void take_all(int fd, struct buf *in) {
    while (take(fd, in)) {
    }
    close(fd);
}

static const char *body_of(struct buf *in) {
    const char *end = strstr(buf_cstr(in), "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

static void assert_has(struct buf *in, const char *text) {
    if (strstr(buf_cstr(in), text) == NULL) fail_msg("no %s in: %s", text, buf_cstr(in));
}

/* ---- set-up ---- */

static int64_t opened_before;
static int64_t closed_before;
static int64_t dropped_before;

static int64_t counted(enum counter c) {
    return (int64_t)counter_total(c);
}

static void start(struct net_options options) {
    memset(&fix, 0, sizeof fix);
    options.headers_timeout_ms = options.body_timeout_ms = options.idle_timeout_ms = 60000;
    options.max_connections = 100;
    if (options.write_timeout_ms == 0) options.write_timeout_ms = 60000;
    if (options.stream_heartbeat_ms == 0) options.stream_heartbeat_ms = 60000;
    if (options.stream_max_ms == 0) options.stream_max_ms = 600000;
    if (options.stream_lag_bytes == 0) options.stream_lag_bytes = 16384;
    fix.options = options;
    fix.ends_other = -1;
    opened_before = counted(COUNT_SSE_OPENED);
    closed_before = counted(COUNT_SSE_CLOSED);
    dropped_before = counted(COUNT_SSE_DROPPED);
    assert_int_equal(uv_sem_init(&fix.task_done, 0), 0);
    fix.net = net_new(&fix.options);
    assert_int_equal(worker_init(&fix.worker), 0);
    fix.net_worker = net_worker_new(fix.net, &fix.worker, &fix.context);
    fix.site.on_request = on_request;
    int socket;
    assert_true(endpoint_parse(STR("127.0.0.1:0"), &fix.address));
    assert_int_equal(net_bind(&fix.address, &socket, 1), 0);
    assert_int_equal(net_worker_listen(fix.net_worker, socket, &fix.site), 0);
    assert_int_equal(worker_start(&fix.worker), 0);
}

/* Stops the worker, whatever its state; then everything that was opened is closed, and `ended` was
 * called once for each stream. */
static void finish(int opened, int dropped) {
    on_worker(drain, &fix);
    await("drained", &fix.drained, 1);
    on_worker(stop, NULL);
    worker_join(&fix.worker);
    net_worker_free(fix.net_worker);
    net_free(fix.net);
    uv_sem_destroy(&fix.task_done);
    for (int i = 0; i < STREAMS_MAX; i++)
        assert_int_equal(atomic_load(&fix.ended[i]), i < fix.stream_count ? 1 : 0);
    assert_int_equal(counted(COUNT_SSE_OPENED) - opened_before, opened);
    assert_int_equal(counted(COUNT_SSE_CLOSED) - closed_before, opened);
    assert_int_equal(counted(COUNT_SSE_DROPPED) - dropped_before, dropped);
}

/* ---- the tests ---- */

static void the_head_says_what_it_is_and_has_no_length(void **state) {
    (void)state;
    start((struct net_options){0});
    int64_t answers_before = counted(COUNT_HTTP_2XX);
    struct buf in = {0};
    int fd = get("GET /stream HTTP/1.1\r\nHost: test\r\nX-Request-Id: mine\r\n\r\n");
    take_until(fd, &in, "\r\n\r\n");
    assert_int_equal(strncmp(buf_cstr(&in), "HTTP/1.1 200 OK\r\nDate: ", 23), 0);
    assert_has(&in, "\r\nX-Request-Id: mine\r\n");
    assert_has(&in, "\r\nContent-Type: text/event-stream\r\n");
    assert_has(&in, "\r\nCache-Control: no-store\r\n");
    assert_has(&in, "\r\nX-Accel-Buffering: no\r\n");
    assert_has(&in, "\r\nConnection: close\r\n");
    assert_has(&in, "\r\nAccess-Control-Allow-Origin: *\r\n");
    assert_null(strstr(buf_cstr(&in), "Content-Length"));
    assert_string_equal(body_of(&in), "");
    assert_int_equal(counted(COUNT_HTTP_2XX) - answers_before, 1);
    assert_int_equal(atomic_load(&fix.ended[0]), 0);
    close(fd);
    buf_deinit(&in);
    finish(1, 0);
}

static void bytes_come_in_the_order_of_sending(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get(GET("/plain") GET("/greeted"));
    take_until(fd, &in, "two\n\n");
    assert_has(&in, "\r\n\r\nplainHTTP/1.1 200 OK\r\n");
    assert_has(&in, "\r\n\r\ndata: one\n\ndata: two\n\n");
    in.len = 0;
    for (int i = 0; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d\n", i);
        send_text(text);
    }
    take_until(fd, &in, "99\n");
    const char *at = buf_cstr(&in);
    for (int i = 0; i < 100; i++) {
        char text[16];
        int len = snprintf(text, sizeof text, "%d\n", i);
        assert_int_equal(strncmp(at, text, (size_t)len), 0);
        at += len;
    }
    close(fd);
    buf_deinit(&in);
    finish(1, 0);
}

static void an_answer_that_comes_later_can_be_a_stream(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get(GET("/later") GET("/plain"));
    await("asked", &fix.asked, 1);
    on_worker(stream_held, NULL);
    take_until(fd, &in, "late\n\n");
    send_text("data: more\n\n");
    take_until(fd, &in, "more\n\n");
    on_worker(end_first, NULL);
    take_all(fd, &in);
    assert_string_equal(body_of(&in), "data: late\n\ndata: more\n\n");
    buf_deinit(&in);
    finish(1, 0);
}

static void a_stream_for_a_client_that_has_gone_is_ended(void **state) {
    (void)state;
    start((struct net_options){0});
    int fd = get(GET("/later"));
    await("asked", &fix.asked, 1);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    int64_t give_up_ns = clock_steady_ns() + PATIENCE_MS * INT64_C(1000000);
    while (net_connections(fix.net) > 0 && clock_steady_ns() < give_up_ns) usleep(1000);
    assert_int_equal(net_connections(fix.net), 0);
    on_worker(stream_held, NULL);
    assert_int_equal(atomic_load(&fix.ended[0]), 1);
    finish(0, 0);
}

static void a_client_that_will_not_stay_gets_the_head_only(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get(GET("/later"));
    await("asked", &fix.asked, 1);
    shutdown(fd, SHUT_WR);
    /* A second connection's answer: by then the worker has seen the first one's end. */
    struct buf other = {0};
    int second = get("GET /plain HTTP/1.0\r\n\r\n");
    take_all(second, &other);
    on_worker(stream_held, NULL);
    take_all(fd, &in);
    assert_has(&in, "text/event-stream");
    assert_string_equal(body_of(&in), "");
    buf_deinit(&in);
    buf_deinit(&other);
    finish(0, 0);
}

static void silence_is_filled_with_heartbeats(void **state) {
    (void)state;
    start((struct net_options){.stream_heartbeat_ms = 200});
    struct buf in = {0};
    int64_t start_ns = clock_steady_ns();
    int fd = get(GET("/greeted"));
    take_until(fd, &in, ": hb\n\n: hb\n\n: hb\n\n");
    assert_true(clock_steady_ns() - start_ns >= 3 * INT64_C(200000000));
    assert_string_equal(body_of(&in), "data: one\n\ndata: two\n\n: hb\n\n: hb\n\n: hb\n\n");
    close(fd);
    buf_deinit(&in);
    finish(1, 0);
}

static void a_stream_with_recent_output_needs_no_heartbeat(void **state) {
    (void)state;
    start((struct net_options){.stream_heartbeat_ms = 1000});
    struct buf in = {0};
    int fd = get(GET("/stream"));
    take_until(fd, &in, "\r\n\r\n");
    int64_t start_ns = clock_steady_ns();
    while (clock_steady_ns() - start_ns < INT64_C(1500000000)) {
        send_text("x");
        usleep(20000);
    }
    send_text("end");
    take_until(fd, &in, "end");
    assert_null(strstr(buf_cstr(&in), "hb"));
    close(fd);
    buf_deinit(&in);
    finish(1, 0);
}

static void a_stream_has_its_time(void **state) {
    (void)state;
    start((struct net_options){.stream_heartbeat_ms = 100, .stream_max_ms = 1000});
    struct buf in = {0};
    int64_t start_ns = clock_steady_ns();
    int fd = get(GET("/greeted"));
    take_all(fd, &in); /* in order, not cut */
    int64_t lived_ns = clock_steady_ns() - start_ns;
    assert_true(lived_ns >= INT64_C(900000000));
    await("ended", &fix.ended[0], 1);
    buf_deinit(&in);
    finish(1, 0);
}

static void a_time_shorter_than_a_heartbeat_counts_too(void **state) {
    (void)state;
    start((struct net_options){.stream_max_ms = 300});
    struct buf in = {0};
    int fd = get(GET("/stream"));
    take_all(fd, &in);
    buf_deinit(&in);
    finish(1, 0);
}

struct lives {
    int64_t ms[STREAMS_MAX];
};

static void measure_lives(void *arg) {
    struct lives *lives = arg;
    int64_t now_ms = (int64_t)uv_now(&fix.worker.loop);
    for (int i = 0; i < STREAMS_MAX; i++) lives->ms[i] = fix.streams[i].ends_ms - now_ms;
}

static void streams_that_begin_together_end_at_different_times(void **state) {
    (void)state;
    start((struct net_options){.stream_max_ms = 1000000000});
    int fds[STREAMS_MAX];
    for (int i = 0; i < STREAMS_MAX; i++) fds[i] = get(GET("/stream"));
    await("asked", &fix.asked, STREAMS_MAX);
    struct lives lives;
    on_worker(measure_lives, &lives);
    for (int i = 0; i < STREAMS_MAX; i++) {
        assert_in_range(lives.ms[i], 900000000 - PATIENCE_MS, 1000000000);
        if (i > 0) assert_true(llabs(lives.ms[i] - lives.ms[i - 1]) > PATIENCE_MS / 10);
        close(fds[i]);
    }
    finish(STREAMS_MAX, 0);
}

static void a_client_that_closes_ends_it_at_once(void **state) {
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        start((struct net_options){0});
        struct buf in = {0};
        int fd = get(GET("/greeted"));
        take_until(fd, &in, "two\n\n");
        struct linger linger = {.l_onoff = reset, .l_linger = 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        close(fd);
        await("ended", &fix.ended[0], 1);
        send_text("to nobody"); /* harmless while the struct is there */
        on_worker(end_first, NULL);
        buf_deinit(&in);
        finish(1, 0);
    }
}

static void a_close_is_seen_also_behind_a_full_socket(void **state) {
    (void)state;
    start((struct net_options){.stream_lag_bytes = 1 << 20});
    int fd = dial(4096);
    say(fd, GET("/stream"));
    await("asked", &fix.asked, 1);
    size_t sent;
    on_worker(fill, &sent);
    /* More than is kept of what others send ahead. */
    for (int i = 0; i < 5000; i++) say(fd, GET("/plain"));
    shutdown(fd, SHUT_WR);
    await("ended", &fix.ended[0], 1);
    close(fd);
    finish(1, 0);
}

static void a_reader_that_lags_is_dropped(void **state) {
    (void)state;
    start((struct net_options){.stream_lag_bytes = 16384});
    int fd = dial(4096);
    say(fd, GET("/stream"));
    await("asked", &fix.asked, 1);
    char kilobyte[1024];
    memset(kilobyte, 'x', sizeof kilobyte);
    struct parts part = {(str){kilobyte, sizeof kilobyte}, 1};
    /* The buffers of a small receiver, the kernel and the server; not megabytes. */
    int sent = 0;
    while (atomic_load(&fix.ended[0]) == 0 && sent < 256) {
        on_worker(send_parts, &part);
        sent++;
    }
    assert_int_equal(atomic_load(&fix.ended[0]), 1);
    assert_true(sent > 16);
    close(fd);
    finish(1, 1);
}

static void too_much_output_in_the_iteration_that_began_the_stream_is_dropped_too(void **state) {
    (void)state;
    start((struct net_options){0});
    int fd = dial(4096);
    say(fd, GET("/large"));
    await("ended", &fix.ended[0], 1);
    close(fd);
    finish(1, 1);
}

static void a_reader_within_its_lag_gets_everything(void **state) {
    (void)state;
    start((struct net_options){.stream_lag_bytes = 1 << 20});
    struct buf in = {0};
    int fd = dial(4096);
    say(fd, GET("/stream"));
    await("asked", &fix.asked, 1);
    size_t sent;
    on_worker(fill, &sent);
    assert_int_equal(atomic_load(&fix.ended[0]), 0);
    send_text("end");
    take_until(fd, &in, "end");
    assert_int_equal(strlen(body_of(&in)), sent + 3);
    /* The stream continues. */
    send_text("more");
    take_until(fd, &in, "more");
    close(fd);
    buf_deinit(&in);
    finish(1, 0);
}

static void a_reader_that_takes_nothing_has_the_write_timeout(void **state) {
    (void)state;
    start((struct net_options){.stream_lag_bytes = 1 << 20, .write_timeout_ms = 500});
    int64_t timeouts_before = counted(COUNT_TIMEOUT_WRITE);
    int fd = dial(4096);
    say(fd, GET("/stream"));
    await("asked", &fix.asked, 1);
    size_t sent;
    on_worker(fill, &sent);
    /* That more is sent is no reason to wait longer. */
    int64_t give_up_ns = clock_steady_ns() + PATIENCE_MS * INT64_C(1000000);
    while (atomic_load(&fix.ended[0]) == 0 && clock_steady_ns() < give_up_ns) {
        send_text("x");
        usleep(20000);
    }
    assert_int_equal(counted(COUNT_TIMEOUT_WRITE) - timeouts_before, 1);
    close(fd);
    finish(1, 0);
}

static void an_end_lets_everything_go_out_first(void **state) {
    (void)state;
    start((struct net_options){.stream_lag_bytes = 1 << 20});
    struct buf in = {0};
    int fd = dial(4096);
    say(fd, GET("/stream"));
    await("asked", &fix.asked, 1);
    size_t sent;
    on_worker(fill_and_end, &sent);
    assert_int_equal(atomic_load(&fix.ended[0]), 1);
    take_all(fd, &in);
    assert_int_equal(strlen(body_of(&in)), sent);
    buf_deinit(&in);
    finish(1, 0);
}

static void a_stream_may_end_in_the_iteration_that_began_it(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get(GET("/brief") GET("/plain"));
    take_all(fd, &in);
    assert_string_equal(body_of(&in), "data: only\n\n");
    buf_deinit(&in);
    finish(1, 0);
}

static void head_gets_the_head_only(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get("HEAD /greeted HTTP/1.1\r\nHost: test\r\n\r\n");
    take_all(fd, &in);
    assert_has(&in, "\r\nContent-Type: text/event-stream\r\n");
    assert_string_equal(body_of(&in), "");
    buf_deinit(&in);
    finish(0, 0);
}

static void requests_behind_a_stream_are_never_answered(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get(GET("/stream") GET("/plain"));
    take_until(fd, &in, "\r\n\r\n");
    /* More than the limit for requests that are sent ahead: if it were kept, the end would not be
     * noticed. */
    for (int i = 0; i < 20000; i++) say(fd, GET("/plain"));
    send_text("end");
    take_until(fd, &in, "end");
    assert_string_equal(body_of(&in), "end");
    on_worker(assert_no_input_kept, NULL);
    close(fd);
    await("ended", &fix.ended[0], 1);
    buf_deinit(&in);
    finish(1, 0);
}

static void a_server_that_stops_ends_streams_in_order(void **state) {
    (void)state;
    start((struct net_options){.stream_lag_bytes = 1 << 20});
    struct buf in[3] = {{0}, {0}, {0}};
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = i == 0 ? dial(4096) : dial(0);
        say(fds[i], GET("/greeted"));
        await("asked", &fix.asked, i + 1);
    }
    int later = get(GET("/later"));
    await("asked", &fix.asked, 4);
    size_t sent;
    on_worker(fill, &sent);
    on_worker(drain, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(atomic_load(&fix.ended[i]), 1);
    assert_int_equal(atomic_load(&fix.drained), 0); /* the first has not got everything */
    for (int i = 0; i < 3; i++) {
        take_all(fds[i], &in[i]);
        assert_int_equal(strncmp(body_of(&in[i]), "data: one\n\ndata: two\n\n", 22), 0);
        assert_int_equal(strlen(body_of(&in[i])), i == 0 ? 22 + sent : 22);
        buf_deinit(&in[i]);
    }
    /* One that would begin now has no future either. */
    struct buf rest = {0};
    on_worker(stream_held, NULL);
    assert_int_equal(atomic_load(&fix.ended[3]), 1);
    take_all(later, &rest);
    assert_string_equal(body_of(&rest), "");
    buf_deinit(&rest);
    finish(3, 0);
}

static void a_stream_that_ends_may_end_another(void **state) {
    (void)state;
    /* Neighbours in the list that a stopping server walks. */
    for (int at_once = 0; at_once < 2; at_once++) {
        start((struct net_options){0});
        int fds[3];
        struct buf in = {0};
        for (int i = 0; i < 3; i++) {
            fds[i] = get(GET("/stream"));
            await("asked", &fix.asked, i + 1);
            take_until(fds[i], &in, "\r\n\r\n");
            in.len = 0;
        }
        fix.ends_other = 1;
        on_worker(drain, at_once ? &fix : NULL);
        for (int i = 0; i < 3; i++) assert_int_equal(atomic_load(&fix.ended[i]), 1);
        await("drained", &fix.drained, 1);
        for (int i = 0; i < 3; i++) close(fds[i]);
        buf_deinit(&in);
        finish(3, 0);
    }
}

static void a_problem_may_have_more_members_and_say_when_to_retry(void **state) {
    (void)state;
    start((struct net_options){0});
    struct buf in = {0};
    int fd = get(GET("/problem"));
    take_until(fd, &in, "}");
    assert_has(&in, "HTTP/1.1 404 Not Found\r\n");
    assert_has(&in, "\r\nRetry-After: 17\r\n");
    assert_has(&in, "\"detail\":\"No.\"");
    assert_has(&in, ",\"position\":7,\"seats\":[1,2]}");
    /* The next one, in the same memory, has nothing of it. */
    in.len = 0;
    say(fd, GET("/overloaded"));
    take_until(fd, &in, "}");
    assert_has(&in, "HTTP/1.1 503 Service Unavailable\r\n");
    assert_has(&in, "\r\nRetry-After: 1\r\n");
    assert_null(strstr(buf_cstr(&in), "position"));
    close(fd);
    buf_deinit(&in);
    finish(0, 0);
}

static void *open_and_close(void *stops) {
    while (!atomic_load((atomic_bool *)stops)) {
        count(COUNT_SSE_OPENED, 1);
        count(COUNT_SSE_CLOSED, 1);
    }
    return NULL;
}

static void streams_that_come_and_go_are_never_fewer_than_none(void **state) {
    (void)state;
    atomic_bool stops = false;
    pthread_t thread;
    int64_t least = 0;
    assert_int_equal(pthread_create(&thread, NULL, open_and_close, &stops), 0);
    for (int i = 0; i < 100000; i++) {
        int64_t now = streams_open();
        if (now < least) least = now;
    }
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
    assert_int_equal(least, 0);
    assert_int_equal(streams_open(), 0);
}

int main(void) {
    memset(large_part, 'x', sizeof large_part);
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_says_what_it_is_and_has_no_length),
        cmocka_unit_test(bytes_come_in_the_order_of_sending),
        cmocka_unit_test(an_answer_that_comes_later_can_be_a_stream),
        cmocka_unit_test(a_stream_for_a_client_that_has_gone_is_ended),
        cmocka_unit_test(a_client_that_will_not_stay_gets_the_head_only),
        cmocka_unit_test(silence_is_filled_with_heartbeats),
        cmocka_unit_test(a_stream_with_recent_output_needs_no_heartbeat),
        cmocka_unit_test(a_stream_has_its_time),
        cmocka_unit_test(a_time_shorter_than_a_heartbeat_counts_too),
        cmocka_unit_test(streams_that_begin_together_end_at_different_times),
        cmocka_unit_test(a_client_that_closes_ends_it_at_once),
        cmocka_unit_test(a_close_is_seen_also_behind_a_full_socket),
        cmocka_unit_test(a_reader_that_lags_is_dropped),
        cmocka_unit_test(too_much_output_in_the_iteration_that_began_the_stream_is_dropped_too),
        cmocka_unit_test(a_reader_within_its_lag_gets_everything),
        cmocka_unit_test(a_reader_that_takes_nothing_has_the_write_timeout),
        cmocka_unit_test(an_end_lets_everything_go_out_first),
        cmocka_unit_test(a_stream_may_end_in_the_iteration_that_began_it),
        cmocka_unit_test(head_gets_the_head_only),
        cmocka_unit_test(requests_behind_a_stream_are_never_answered),
        cmocka_unit_test(a_server_that_stops_ends_streams_in_order),
        cmocka_unit_test(a_stream_that_ends_may_end_another),
        cmocka_unit_test(a_problem_may_have_more_members_and_say_when_to_retry),
        cmocka_unit_test(streams_that_come_and_go_are_never_fewer_than_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
