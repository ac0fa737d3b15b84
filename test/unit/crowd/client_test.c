#include "crowd/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

/* Everything happens within this, or the test fails. */
#define PATIENCE_MS 60000

#define EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

/* A server on the loop of the client. The path of the request says how it answers. */
struct peer {
    uv_tcp_t tcp;
    uv_timer_t timer;
    struct buf in;
    struct buf out; /* not sent yet; a byte at a time */
    bool closes;    /* when it is */
    bool is_closed;
    int answered;
};

static uv_loop_t loop;
static uv_tcp_t listener;
static uv_timer_t deadline;
static struct client *client;
static struct peer *peers[64];
static int peer_count;
static int open_peers;
static int open_peers_most;
static int requests_seen;

/* ---- the server ---- */

static void peer_on_timer_closed(uv_handle_t *handle) {
    struct peer *p = handle->data;
    buf_deinit(&p->in);
    buf_deinit(&p->out);
    for (int i = 0; i < peer_count; i++)
        if (peers[i] == p) peers[i] = NULL;
    mem_free(p);
}

static void peer_on_closed(uv_handle_t *handle) {
    struct peer *p = handle->data;
    open_peers--;
    uv_close((uv_handle_t *)&p->timer, peer_on_timer_closed);
}

static void peer_close(struct peer *p) {
    if (p->is_closed) return;
    p->is_closed = true;
    uv_close((uv_handle_t *)&p->tcp, peer_on_closed);
}

static void peer_say(struct peer *p, str text) {
    uv_buf_t part = uv_buf_init((char *)(uintptr_t)text.at, (unsigned)text.len);
    assert_int_equal(uv_try_write((uv_stream_t *)&p->tcp, &part, 1), (int)text.len);
}

static void peer_on_timer(uv_timer_t *timer) {
    struct peer *p = timer->data;
    if (p->is_closed) return;
    if (p->out.len > 0) {
        peer_say(p, (str){p->out.bytes, 1});
        buf_consume(&p->out, 1);
    }
    if (p->out.len == 0) {
        uv_timer_stop(timer);
        if (p->closes) peer_close(p);
    }
}

/* Byte by byte, a loop's turn apart. */
static void peer_drip(struct peer *p, str text) {
    buf_add(&p->out, text);
    uv_timer_start(&p->timer, peer_on_timer, 0, 1);
}

static void peer_answer(struct peer *p, str path) {
    requests_seen++;
    if (str_eq(path, STR("/plain"))) {
        peer_say(
            p, STR("HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nContent-Length: 5\r\n\r\nhello"));
    } else if (str_eq(path, STR("/slow"))) {
        peer_drip(p, STR(EMPTY));
    } else if (str_eq(path, STR("/chunked"))) {
        peer_drip(p, STR("HTTP/1.1 429 X\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"));
    } else if (str_eq(path, STR("/until-close"))) {
        p->closes = true;
        peer_drip(p, STR("HTTP/1.1 200 OK\r\n\r\nhello"));
    } else if (str_eq(path, STR("/once"))) { /* the connection is good for one answer */
        if (p->answered > 0)
            peer_close(p);
        else
            peer_say(p, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
    } else if (str_eq(path, STR("/garbage"))) {
        peer_say(p, STR("HELLO\r\n\r\n"));
    } else if (str_eq(path, STR("/more"))) {
        peer_say(p, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" EMPTY));
    } else if (str_eq(path, STR("/cut"))) {
        p->closes = true;
        peer_drip(p, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"));
    } else if (str_eq(path, STR("/events"))) {
        p->closes = true;
        peer_drip(p, STR("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                         "Connection: close\r\n\r\ndata: 1\n\n: hb\n\nevent: x\ndata: 2\n\n"));
    }
    /* "/never" gets no answer. */
    p->answered++;
}

static void peer_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct peer *p = handle->data;
    *buf = uv_buf_init(buf_reserve(&p->in, suggested), (unsigned)suggested);
}

static void peer_on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf) {
    struct peer *p = stream->data;
    (void)buf;
    if (len < 0) {
        peer_close(p);
        return;
    }
    p->in.len += (size_t)len;
    const char *end = memmem(p->in.bytes, p->in.len, "\r\n\r\n", 4);
    if (end == NULL) return;
    str line = buf_str(&p->in);
    str method;
    str path;
    str_split(&line, ' ', &method);
    str_split(&line, ' ', &path);
    char copy[64];
    str_copy(path, copy, sizeof copy);
    buf_consume(&p->in, (size_t)(end - p->in.bytes) + 4);
    peer_answer(p, str_of(copy));
}

static void on_connection(uv_stream_t *server, int status) {
    assert_int_equal(status, 0);
    struct peer *p = mem_new(sizeof *p);
    uv_tcp_init(&loop, &p->tcp);
    uv_timer_init(&loop, &p->timer);
    p->tcp.data = p;
    p->timer.data = p;
    assert_int_equal(uv_accept(server, (uv_stream_t *)&p->tcp), 0);
    uv_read_start((uv_stream_t *)&p->tcp, peer_alloc, peer_on_read);
    assert_true(peer_count < 64);
    peers[peer_count++] = p;
    open_peers++;
    if (open_peers > open_peers_most) open_peers_most = open_peers;
}

/* ---- the requests ---- */

struct ask {
    struct client_request request;
    const char *path;
    int done;
    int status;
    int64_t retry_after_s;
    char body[32];
    char cookies[32];
    int events;
    int events_wanted;
    struct ask *then; /* sent when this one is done */
};

static void ask_write(struct client_request *r, struct buf *out) {
    const struct ask *a = CONTAINER_OF(r, struct ask, request);
    buf_addf(out, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", a->path);
}

static void ask_done(struct client_request *r, const struct answer *answer) {
    struct ask *a = CONTAINER_OF(r, struct ask, request);
    a->done++;
    a->status = answer->status;
    a->retry_after_s = answer->retry_after_s;
    str_copy(answer->body, a->body, sizeof a->body);
    str_copy(answer->cookies, a->cookies, sizeof a->cookies);
    if (a->then != NULL) client_send(client, &a->then->request);
}

static bool ask_on_event(struct client_request *r, const struct stream_event *e) {
    struct ask *a = CONTAINER_OF(r, struct ask, request);
    a->events++;
    assert_int_equal(e->data.at[0], '0' + a->events);
    return a->events < a->events_wanted;
}

static struct ask ask_of(const char *path) {
    return (struct ask){.request = {.write = ask_write, .done = ask_done}, .path = path};
}

static struct ask listen_to(const char *path, int events) {
    struct ask a = ask_of(path);
    a.request.is_stream = true;
    a.request.on_event = ask_on_event;
    a.events_wanted = events;
    return a;
}

/* Runs the loop until it is so. */
#define UNTIL(condition)                                                                           \
    for (int64_t until_ms = clock_steady_ms() + PATIENCE_MS; !(condition);) {                      \
        if (clock_steady_ms() > until_ms) fail_msg("did not happen: %s", #condition);              \
        uv_run(&loop, UV_RUN_ONCE);                                                                \
    }

static void send_and_wait(struct ask *a) {
    int before = a->done;
    client_send(client, &a->request);
    UNTIL(a->done > before);
}

/* ---- before and after each test ---- */

static void on_deadline(uv_timer_t *timer) {
    (void)timer; /* it only wakes the loop, so that UNTIL looks at the time */
}

static struct sockaddr_storage listen_anywhere(void) {
    struct sockaddr_storage address = {0};
    int len = sizeof address;
    struct sockaddr_in any;
    uv_ip4_addr("127.0.0.1", 0, &any);
    uv_tcp_init(&loop, &listener);
    assert_int_equal(uv_tcp_bind(&listener, (const struct sockaddr *)&any, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&listener, 64, on_connection), 0);
    assert_int_equal(uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &len), 0);
    return address;
}

static void begin_with(struct client_options options) {
    uv_loop_init(&loop);
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, on_deadline, 20, 20);
    peer_count = open_peers = open_peers_most = requests_seen = 0;
    options.server = listen_anywhere();
    client = client_new(&loop, &options);
}

static int begin(void **state) {
    (void)state;
    begin_with((struct client_options){.connections_max = 2,
                                       .streams_max = 2,
                                       .timeout_ms = PATIENCE_MS,
                                       .silence_ms = PATIENCE_MS});
    return 0;
}

static int end(void **state) {
    (void)state;
    client_close(client);
    uv_close((uv_handle_t *)&listener, NULL);
    uv_close((uv_handle_t *)&deadline, NULL);
    for (int i = 0; i < peer_count; i++)
        if (peers[i] != NULL) peer_close(peers[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    client_free(client);
    return uv_loop_close(&loop);
}

/* ---- the tests ---- */

static void answers_arrive_whole(void **state) {
    (void)state;
    struct ask plain = ask_of("/plain");
    send_and_wait(&plain);
    assert_int_equal(plain.status, 200);
    assert_string_equal(plain.body, "hello");
    assert_string_equal(plain.cookies, "a=1");
    struct ask chunked = ask_of("/chunked");
    send_and_wait(&chunked);
    assert_int_equal(chunked.status, 429);
    assert_int_equal(chunked.retry_after_s, 7);
    assert_string_equal(chunked.body, "hello");
    assert_string_equal(chunked.cookies, "");
    struct ask closing = ask_of("/until-close");
    send_and_wait(&closing);
    assert_int_equal(closing.status, 200);
    assert_string_equal(closing.body, "hello");
    assert_int_equal(peer_count, 1);
}

static void a_connection_is_used_again(void **state) {
    (void)state;
    struct ask a = ask_of("/plain");
    for (int i = 0; i < 20; i++) send_and_wait(&a);
    assert_int_equal(peer_count, 1);
    assert_int_equal(requests_seen, 20);
}

static void requests_beyond_the_limit_wait_in_order(void **state) {
    (void)state;
    struct ask all[20];
    for (int i = 0; i < 20; i++) {
        all[i] = ask_of("/slow");
        client_send(client, &all[i].request);
    }
    for (int i = 0; i < 20; i++) {
        UNTIL(all[i].done > 0);
        assert_int_equal(all[i].status, 200);
        assert_true(i + 2 >= 20 || all[i + 2].done == 0);
    }
    assert_int_equal(open_peers_most, 2);
}

static void urgent_requests_do_not_wait_for_the_others(void **state) {
    (void)state;
    struct ask all[10];
    for (int i = 0; i < 10; i++) {
        all[i] = ask_of("/slow");
        all[i].request.is_urgent = i >= 8;
        client_send(client, &all[i].request);
    }
    UNTIL(all[8].done > 0 && all[9].done > 0);
    for (int i = 4; i < 8; i++) assert_int_equal(all[i].done, 0);
    UNTIL(all[7].done > 0);
}

static void a_request_is_repeated_when_a_kept_connection_breaks(void **state) {
    (void)state;
    struct ask a = ask_of("/once");
    for (int i = 1; i <= 3; i++) {
        send_and_wait(&a);
        assert_int_equal(a.status, 200);
        assert_int_equal(a.done, i);
    }
    assert_int_equal(peer_count, 3);
    assert_int_equal(requests_seen, 5);
}

static void a_malformed_or_cut_answer_fails_once(void **state) {
    (void)state;
    static const char *const paths[] = {"/garbage", "/cut"};
    for (int i = 0; i < 2; i++) {
        struct ask good = ask_of("/plain");
        send_and_wait(&good);
        struct ask a = ask_of(paths[i]);
        int before = requests_seen;
        send_and_wait(&a);
        assert_int_equal(a.status, 0);
        assert_int_equal(requests_seen, before + 1);
    }
}

static void a_connection_that_answers_unasked_is_not_used_again(void **state) {
    (void)state;
    struct ask a = ask_of("/more");
    send_and_wait(&a);
    assert_int_equal(a.status, 200);
    send_and_wait(&a);
    assert_int_equal(a.status, 200);
    assert_int_equal(peer_count, 2);
}

static void a_server_that_is_not_there_fails(void **state) {
    (void)state;
    struct sockaddr_storage address;
    int len = sizeof address;
    uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &len);
    struct client_options options = {
        .server = address, .connections_max = 1, .timeout_ms = 1, .silence_ms = 1};
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&options.server;
    v4->sin_port = htons(1);
    struct client *other = client_new(&loop, &options);
    struct ask a = ask_of("/plain");
    client_send(other, &a.request);
    assert_int_equal(a.done, 0);
    UNTIL(a.done > 0);
    assert_int_equal(a.status, 0);
    client_close(other);
    uv_run(&loop, UV_RUN_NOWAIT);
    client_free(other);
}

/* All fail, those that wait for a connection too, and it works again when there are files. */
static void requests_fail_when_no_file_is_left(void **state) {
    (void)state;
    struct rlimit files;
    struct ask asks[5];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    rlim_t usual = files.rlim_cur;
    int lowest_free = dup(STDIN_FILENO);
    close(lowest_free);
    files.rlim_cur = (rlim_t)lowest_free;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    for (int i = 0; i < 5; i++) {
        asks[i] = ask_of("/plain");
        client_send(client, &asks[i].request);
        assert_int_equal(asks[i].done, 0);
    }
    for (int i = 0; i < 5; i++) {
        UNTIL(asks[i].done > 0);
        assert_int_equal(asks[i].status, 0);
    }
    files.rlim_cur = usual;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    send_and_wait(&asks[0]);
    assert_int_equal(asks[0].status, 200);
}

static void a_late_answer_fails_and_is_not_awaited(void **state) {
    (void)state;
    end(state);
    begin_with((struct client_options){
        .connections_max = 1, .streams_max = 1, .timeout_ms = 50, .silence_ms = 50});
    struct ask first = ask_of("/never");
    struct ask second = ask_of("/never");
    client_send(client, &first.request);
    client_send(client, &second.request);
    while (first.done + second.done < 2) {
        uv_run(&loop, UV_RUN_ONCE);
        client_check(client);
    }
    assert_int_equal(first.status, 0);
    assert_int_equal(second.status, 0);
    assert_int_equal(requests_seen, 2);
    struct ask silent = listen_to("/never", 1);
    client_send(client, &silent.request);
    while (silent.done == 0) {
        uv_run(&loop, UV_RUN_ONCE);
        client_check(client);
    }
    assert_int_equal(silent.status, 0);
}

static void a_stream_gives_its_events(void **state) {
    (void)state;
    struct ask all = listen_to("/events", 9);
    send_and_wait(&all);
    assert_int_equal(all.events, 2);
    assert_int_equal(all.status, 200);
    struct ask one = listen_to("/events", 1);
    send_and_wait(&one);
    assert_int_equal(one.events, 1);
    UNTIL(open_peers == 0);
}

static void streams_have_a_limit_of_their_own(void **state) {
    (void)state;
    struct ask streams[2] = {listen_to("/never", 1), listen_to("/never", 1)};
    for (int i = 0; i < 2; i++) {
        assert_true(client_has_stream(client));
        client_send(client, &streams[i].request);
    }
    assert_false(client_has_stream(client));
    struct ask a = ask_of("/plain");
    send_and_wait(&a);
    assert_int_equal(client_streams(client), 2);
    assert_int_equal(client_connections(client), 3);
    client_cancel(client, &streams[0].request);
    assert_true(client_has_stream(client));
    UNTIL(open_peers == 2);
    assert_int_equal(streams[0].done, 0);
}

static void done_is_not_called_after_cancel(void **state) {
    (void)state;
    struct ask asks[4];
    for (int i = 0; i < 4; i++) {
        asks[i] = ask_of(i < 2 ? "/never" : "/plain");
        client_send(client, &asks[i].request);
    }
    client_cancel(client, &asks[2].request); /* waits for a connection */
    client_cancel(client, &asks[0].request); /* has one */
    UNTIL(asks[3].done > 0);
    assert_int_equal(asks[3].status, 200);
    assert_int_equal(asks[0].done + asks[1].done + asks[2].done, 0);
    client_cancel(client, &asks[1].request);
}

static void done_may_send_the_next_request(void **state) {
    (void)state;
    struct ask chain[5];
    for (int i = 0; i < 5; i++) {
        chain[i] = ask_of(i % 2 == 0 ? "/plain" : "/garbage");
        chain[i].then = i == 4 ? NULL : &chain[i + 1];
    }
    client_send(client, &chain[0].request);
    UNTIL(chain[4].done > 0);
    for (int i = 0; i < 5; i++) assert_int_equal(chain[i].status, i % 2 == 0 ? 200 : 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(answers_arrive_whole),
        TEST(a_connection_is_used_again),
        TEST(requests_beyond_the_limit_wait_in_order),
        TEST(urgent_requests_do_not_wait_for_the_others),
        TEST(a_request_is_repeated_when_a_kept_connection_breaks),
        TEST(a_malformed_or_cut_answer_fails_once),
        TEST(a_connection_that_answers_unasked_is_not_used_again),
        TEST(a_server_that_is_not_there_fails),
        TEST(requests_fail_when_no_file_is_left),
        TEST(a_late_answer_fails_and_is_not_awaited),
        TEST(a_stream_gives_its_events),
        TEST(streams_have_a_limit_of_their_own),
        TEST(done_is_not_called_after_cancel),
        TEST(done_may_send_the_next_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
