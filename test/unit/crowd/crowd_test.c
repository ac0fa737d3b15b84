#include "crowd/crowd.h"

#include <assert.h>
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "crowd/internal.h"
#include "net/server.h"
#include "net/stream.h"
#include "run/worker.h"

/* Everything happens within this, or the test fails. */
#define PATIENCE_MS 60000
#define STREAMS_MAX 512
#define DELAYS_MAX 4096

/* A server whose delays the test knows. */
static struct fixture {
    struct net_options options;
    struct net *net;
    struct worker worker;
    struct net_worker *net_worker;
    struct net_site site;
    struct sockaddr_storage address;
    atomic_int requests;
    atomic_int gone; /* requests for /leave */
    atomic_int drained;
    atomic_int stall_at; /* the worker sleeps for stall_ms when it has this many requests */
    atomic_int stall_ms;
    atomic_int answer_with; /* a status */

    /* The worker's own. */
    struct stream streams[STREAMS_MAX];
    int stream_count;
    struct delayed {
        uv_timer_t timer;
        struct exchange *x;
    } delayed[DELAYS_MAX];
    int delayed_count;
} fix;

#define DELAY_MS 50

/* ---- the server ---- */

static void on_stream_ended(struct stream *s) {
    (void)s;
}

static void on_delay_over(uv_timer_t *timer) {
    struct delayed *d = timer->data;
    reply_empty(d->x, 204);
    uv_close((uv_handle_t *)&d->timer, NULL);
}

static void delay(struct exchange *x) {
    assert(fix.delayed_count < DELAYS_MAX);
    struct delayed *d = &fix.delayed[fix.delayed_count++];
    d->x = x;
    uv_timer_init(&fix.worker.loop, &d->timer);
    d->timer.data = d;
    /* A timer counts from the beginning of the loop's turn: one millisecond more is enough. */
    uv_timer_start(&d->timer, on_delay_over, DELAY_MS + 1, 0);
}

static void on_request(struct net_site *site, struct exchange *x) {
    (void)site;
    str path = x->request.path;
    int status = atomic_load(&fix.answer_with);
    if (atomic_fetch_add(&fix.requests, 1) + 1 == atomic_load(&fix.stall_at))
        usleep((unsigned)atomic_load(&fix.stall_ms) * 1000);
    if (str_eq(path, STR("/delayed"))) {
        delay(x);
    } else if (str_eq(path, STR("/stream"))) {
        assert(fix.stream_count < STREAMS_MAX);
        struct stream *s = &fix.streams[fix.stream_count++];
        s->ended = on_stream_ended;
        reply_stream(x, s);
        stream_send(s, STR("data: wait\n\n"));
    } else if (str_eq(path, STR("/leave"))) {
        atomic_fetch_add(&fix.gone, 1);
        reply_empty(x, 204);
    } else if (status == 503) {
        reply_problem(x, ERR_OVERLOADED, "%s", "Full.");
    } else if (status == 429) {
        x->retry_after_s = 3600;
        reply_problem(x, ERR_TOO_MANY_REQUESTS, "%s", "Later.");
    } else {
        reply_empty(x, 204);
    }
}

static void on_drained(void *arg) {
    (void)arg;
    atomic_store(&fix.drained, 1);
    worker_stop(&fix.worker);
}

static void drain(struct task *task) {
    (void)task;
    net_worker_drain(fix.net_worker, true, on_drained, NULL);
}

static int set_up(void **state) {
    (void)state;
    int socket;
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&fix.address;
    signal(SIGPIPE, SIG_IGN);
    memset(&fix, 0, sizeof fix);
    fix.options = (struct net_options){.headers_timeout_ms = PATIENCE_MS,
                                       .body_timeout_ms = PATIENCE_MS,
                                       .idle_timeout_ms = PATIENCE_MS,
                                       .write_timeout_ms = PATIENCE_MS,
                                       .max_connections = 1000,
                                       .stream_heartbeat_ms = PATIENCE_MS,
                                       .stream_max_ms = PATIENCE_MS,
                                       .stream_lag_bytes = 65536};
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(net_bind(&fix.address, &socket, 1), 0);
    fix.net = net_new(&fix.options);
    assert_int_equal(worker_init(&fix.worker), 0);
    fix.net_worker = net_worker_new(fix.net, &fix.worker, NULL);
    fix.site.on_request = on_request;
    assert_int_equal(net_worker_listen(fix.net_worker, socket, &fix.site), 0);
    return worker_start(&fix.worker);
}

static int tear_down(void **state) {
    (void)state;
    static struct task task;
    task = (struct task){.run = drain};
    mailbox_post(&fix.worker.mailbox, &task);
    worker_join(&fix.worker);
    net_worker_free(fix.net_worker);
    net_free(fix.net);
    return 0;
}

/* ---- scenarios ---- */

static void write_to(struct client_request *r, struct buf *out, const char *path) {
    const struct user *u = CONTAINER_OF(r, struct user, request);
    buf_addf(out, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, user_host(u));
}

static void write_probe(struct client_request *r, struct buf *out) {
    write_to(r, out, "/");
}

static void write_delayed(struct client_request *r, struct buf *out) {
    write_to(r, out, "/delayed");
}

static void write_stream(struct client_request *r, struct buf *out) {
    write_to(r, out, "/stream");
}

static void write_leave(struct client_request *r, struct buf *out) {
    write_to(r, out, "/leave");
}

static enum outcome begin_probe(struct user *u) {
    return user_ask(u, write_probe);
}

static enum outcome begin_delayed(struct user *u) {
    return user_ask(u, write_delayed);
}

static bool on_event(struct client_request *r, const struct stream_event *e) {
    struct user *u = CONTAINER_OF(r, struct user, request);
    assert(str_eq(e->data, STR("wait")));
    if (u->state == CROWD_ARRIVING) user_enter_state(u, CROWD_WAITING);
    return true;
}

/* A user who finds no stream asks by requests, each of which makes it wait. */
static enum outcome begin_wait(struct user *u) {
    if (user_listen(u, write_stream, on_event)) return OUTCOME_PENDING;
    return user_ask(u, write_probe);
}

static enum outcome answered_wait(struct user *u, const struct answer *a) {
    if (a->status != 204) return OUTCOME_FAILED;
    if (u->state == CROWD_ARRIVING) user_enter_state(u, CROWD_WAITING);
    u->delay_ms = 20;
    return OUTCOME_WAIT;
}

static enum outcome begin_leave(struct user *u) {
    return user_ask(u, write_leave);
}

static enum outcome answered(struct user *u, const struct answer *a) {
    (void)u;
    return a->status == 204 ? OUTCOME_OK : OUTCOME_FAILED;
}

#define ALWAYS(step)                                                                               \
    { step, step, step, step, step, step }

static const struct step probe_steps[] = {
    {.name = "probe", .begin = begin_probe, .answered = answered, .next = ALWAYS(STEP_END)}};
static const struct step delayed_steps[] = {
    {.name = "delayed", .begin = begin_delayed, .answered = answered, .next = ALWAYS(STEP_END)}};
static const struct step wait_steps[] = {
    {.name = "wait",
     .begin = begin_wait,
     .answered = answered_wait,
     .next = {[OUTCOME_WAIT] = 0, [OUTCOME_NO] = 1, [OUTCOME_FAILED] = 1, [OUTCOME_REFUSED] = 1}},
    {.name = "leave",
     .begin = begin_leave,
     .answered = answered,
     .is_parting = true,
     .next = ALWAYS(STEP_END)}};

static const struct scenario probe = {.name = "probe", .steps = probe_steps, .parting = STEP_END};
static const struct scenario delayed = {
    .name = "delayed", .steps = delayed_steps, .parting = STEP_END};
static const struct scenario waiting = {.name = "wait", .steps = wait_steps, .parting = 1};

/* ---- a crowd ---- */

static struct crowd *start(const struct scenario *scenario, int64_t users, int64_t per_s,
                           int64_t patience_ms) {
    struct crowd_options o = {
        .scenario = scenario,
        .server = fix.address,
        .users = users,
        .plan = {.arrivals_per_s = per_s, .patience_ms = patience_ms, .buy_percent = 100},
        .connections_max = 4,
        .streams_max = 8,
        .timeout_ms = PATIENCE_MS};
    struct crowd *c = crowd_start(&o);
    assert_non_null(c);
    return c;
}

/* All users are somewhere, at any time. */
static struct crowd_numbers look(struct crowd *c, int64_t users) {
    struct crowd_numbers n;
    int64_t sum = 0;
    crowd_read(c, &n);
    for (int i = 0; i < CROWD_STATES; i++) {
        assert_true(n.users[i] >= 0);
        sum += n.users[i];
    }
    assert_int_equal(sum, users);
    assert_true(n.streams <= 8 && n.connections <= n.streams + 4);
    return n;
}

#define UNTIL(c, all, n, condition)                                                                \
    for (int64_t until_ms = clock_steady_ms() + PATIENCE_MS;;) {                                   \
        n = look(c, all);                                                                          \
        if (condition) break;                                                                      \
        if (clock_steady_ms() > until_ms) fail_msg("did not happen: %s", #condition);              \
        usleep(2000);                                                                              \
    }

static int open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

/* ---- the tests ---- */

static void every_user_comes_and_ends(void **state) {
    (void)state;
    struct crowd_numbers n;
    int files = open_files();
    struct crowd *c = start(&probe, 500, 2000, 10000);
    UNTIL(c, 500, n, n.has_ended);
    assert_int_equal(n.users[CROWD_BOUGHT], 500);
    assert_int_equal(n.requests, 500);
    assert_int_equal(n.unanswered, 0);
    assert_int_equal(n.connections, 0);
    assert_int_equal(atomic_load(&fix.requests), 500);
    assert_int_equal(crowd_latency(c)->count, 500);
    crowd_free(c);
    assert_true(open_files() <= files + 4); /* the server may not have closed its sides yet */
}

/* Not faster than the rate: that would take no time here. */
static void arrivals_keep_to_the_rate(void **state) {
    (void)state;
    struct crowd_numbers n;
    int64_t began_ns = clock_steady_ns();
    struct crowd *c = start(&probe, 100, 100, 10000);
    UNTIL(c, 100, n, n.has_ended);
    assert_true(clock_steady_ns() - began_ns >= INT64_C(1000000000));
    crowd_free(c);
}

static void a_known_delay_is_measured(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct crowd *c = start(&delayed, 60, 60, 10000);
    UNTIL(c, 60, n, n.has_ended);
    assert_true(n.p50_us >= DELAY_MS * 1000);
    assert_true(latency_at(crowd_latency(c), 1) >= DELAY_MS * 1000);
    crowd_free(c);
}

/* With 4 connections a closed loop would see 4 slow requests in 600: 0.7 %. But a third of all were
 * due while the server stood still. */
static void a_stall_shows_in_the_latencies_of_all_who_were_due(void **state) {
    (void)state;
    struct crowd_numbers n;
    atomic_store(&fix.stall_at, 200);
    atomic_store(&fix.stall_ms, 1000);
    struct crowd *c = start(&probe, 600, 200, 10000);
    UNTIL(c, 600, n, n.has_ended);
    assert_int_equal(n.users[CROWD_BOUGHT], 600);
    const struct latency *l = crowd_latency(c);
    assert_true(n.p99_us >= 900000);
    assert_true(l->max_us >= 1000000);
    /* They fall due evenly in that second: a sixth waits for half of it, at least. */
    assert_true(latency_at(l, 100 - 100.0 / 6 + 2) >= 400000);
    crowd_free(c);
}

/* With more users than connections, the wait for a connection counts. */
static void the_wait_for_a_connection_counts(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct crowd *c = start(&delayed, 40, 2000, 10000);
    UNTIL(c, 40, n, n.has_ended);
    /* 40 at once over 4 connections: ten rounds. */
    assert_true(crowd_latency(c)->max_us >= 9 * DELAY_MS * 1000);
    crowd_free(c);
}

static void patience_ends_the_waiting(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct crowd *c = start(&waiting, 20, 2000, 300);
    UNTIL(c, 20, n, n.has_ended);
    assert_int_equal(n.users[CROWD_GAVE_UP], 20);
    assert_int_equal(atomic_load(&fix.gone), 20);
    assert_int_equal(n.streams, 0);
    crowd_free(c);
}

static void users_beyond_the_streams_poll(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct crowd *c = start(&waiting, 20, 2000, PATIENCE_MS);
    UNTIL(c, 20, n, n.users[CROWD_WAITING] == 20 && n.streams == 8 && n.requests > 24);
    crowd_free(c);
}

static void a_change_is_in_force_at_once(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct crowd *c = start(&waiting, 30, 1, PATIENCE_MS);
    crowd_change(c, &(struct crowd_plan){.arrivals_per_s = 2000, .patience_ms = PATIENCE_MS});
    UNTIL(c, 30, n, n.users[CROWD_WAITING] == 30);
    crowd_change(c, &(struct crowd_plan){.arrivals_per_s = 1, .patience_ms = 1});
    UNTIL(c, 30, n, n.has_ended);
    assert_int_equal(n.users[CROWD_GAVE_UP], 30);
    crowd_free(c);
}

static void all_leave_when_they_are_asked_to(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct crowd *c = start(&waiting, 1000, 100, PATIENCE_MS);
    UNTIL(c, 1000, n, n.users[CROWD_WAITING] >= 12);
    crowd_leave(c);
    crowd_leave(c);
    UNTIL(c, 1000, n, n.has_ended);
    assert_true(n.is_leaving);
    assert_int_equal(n.users[CROWD_WAITING], 0);
    assert_true(n.users[CROWD_GAVE_UP] >= 12);
    assert_int_equal(atomic_load(&fix.gone), n.users[CROWD_GAVE_UP]);
    assert_int_equal(n.users[CROWD_GAVE_UP] + n.users[CROWD_ARRIVING], 1000);
    /* Orders that come too late do nothing. */
    crowd_change(c, &(struct crowd_plan){.arrivals_per_s = 5, .patience_ms = 5});
    crowd_leave(c);
    crowd_free(c);
}

/* Also while they arrive, wait for a connection, sleep and listen. */
static void a_crowd_can_be_freed_at_any_time(void **state) {
    (void)state;
    int files = open_files();
    for (unsigned i = 0; i < 20; i++) {
        struct crowd *c = start(i % 2 == 0 ? &waiting : &delayed, 200, 2000, PATIENCE_MS);
        usleep(i * 2000);
        if (i % 3 == 0) crowd_leave(c);
        crowd_free(c);
    }
    for (int64_t until_ms = clock_steady_ms() + PATIENCE_MS; open_files() > files;) {
        assert_true(clock_steady_ms() < until_ms);
        usleep(5000);
    }
}

/* They are many, and all but four have no connection yet: none of them gets one. */
static void users_who_are_dropped_open_no_connections(void **state) {
    (void)state;
    struct crowd_numbers n;
    uint64_t before = counter_total(COUNT_CONNECTIONS_ACCEPTED);
    struct crowd *c = start(&delayed, 2000, 2000, PATIENCE_MS);
    UNTIL(c, 2000, n, n.requests >= 4);
    crowd_free(c);
    struct crowd *next = start(&probe, 1, 2000, PATIENCE_MS);
    UNTIL(next, 1, n, n.has_ended); /* so all connections of the first one have been accepted */
    crowd_free(next);
    assert_true(counter_total(COUNT_CONNECTIONS_ACCEPTED) - before <= 4 + 1);
}

static void a_server_that_fails_is_asked_again_and_not_for_ever(void **state) {
    (void)state;
    struct crowd_numbers n;
    atomic_store(&fix.answer_with, 503);
    struct crowd *c = start(&probe, 3, 2000, 4000);
    UNTIL(c, 3, n, n.has_ended);
    assert_int_equal(n.users[CROWD_FAILED] + n.users[CROWD_GAVE_UP], 3);
    assert_true(n.requests > 3);
    crowd_free(c);
    atomic_store(&fix.answer_with, 429);
    c = start(&probe, 3, 2000, 500);
    UNTIL(c, 3, n, n.has_ended);
    assert_int_equal(n.users[CROWD_GAVE_UP], 3);
    assert_int_equal(n.requests, 3); /* which said: in an hour */
    crowd_free(c);
}

static void without_a_server_all_fail(void **state) {
    (void)state;
    struct crowd_numbers n;
    struct sockaddr_storage address = fix.address;
    ((struct sockaddr_in *)(void *)&fix.address)->sin_port = htons(1);
    struct crowd *c = start(&probe, 5, 2000, 600);
    fix.address = address;
    UNTIL(c, 5, n, n.has_ended);
    assert_int_equal(n.users[CROWD_FAILED] + n.users[CROWD_GAVE_UP], 5);
    assert_int_equal(n.unanswered, n.requests);
    crowd_free(c);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_user_comes_and_ends),
        TEST(arrivals_keep_to_the_rate),
        TEST(a_known_delay_is_measured),
        TEST(a_stall_shows_in_the_latencies_of_all_who_were_due),
        TEST(the_wait_for_a_connection_counts),
        TEST(patience_ends_the_waiting),
        TEST(users_beyond_the_streams_poll),
        TEST(a_change_is_in_force_at_once),
        TEST(all_leave_when_they_are_asked_to),
        TEST(a_crowd_can_be_freed_at_any_time),
        TEST(users_who_are_dropped_open_no_connections),
        TEST(a_server_that_fails_is_asked_again_and_not_for_ever),
        TEST(without_a_server_all_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
