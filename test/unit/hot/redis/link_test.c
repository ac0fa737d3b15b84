#include "hot/redis/link.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis_probe.h"
#include "services.h"

#define EPOCH 7
#define DEADLINE_MS 400
#define CALLS_MAX 400
#define WAIT_MS 20000

/* Functions like those of the library, in a separate library. */
static const char functions[] =
    "#!lua name=link_test\n"
    "local function register(name, run)\n"
    "  redis.register_function('" REDIS_LIBRARY "_test_' .. name, run)\n"
    "end\n"
    "register('echo', function(keys, args) return {keys[1], args[1], args[2]} end)\n"
    "register('count', function(keys) return redis.call('INCR', keys[1]) end)\n"
    "register('fail', function(keys, args) return redis.error_reply(args[2]) end)\n"
    "register('tryagain', function(keys, args)\n"
    "  local count = redis.call('INCR', keys[1])\n"
    "  if count < tonumber(args[2]) then return redis.error_reply('TRYAGAIN later') end\n"
    "  return count\n"
    "end)\n";

struct fixture {
    struct redis_address address;
    redisContext *probe;
    uv_loop_t loop;
    struct redis_status status;
    struct link *link; /* NULL: it was closed */
    int suspicions;
};

struct ask {
    struct call call;
    struct fixture *fixture;
    bool is_done;
    enum err result;
    int64_t number;    /* of an integer */
    char texts[3][64]; /* of an array */
    int order;         /* of its end among all, from 1 */
};

static struct ask asks[CALLS_MAX];
static int ended;

static void on_done(struct call *c, enum err result, const redisReply *reply) {
    struct ask *a = CONTAINER_OF(c, struct ask, call);
    assert_false(a->is_done);
    a->is_done = true;
    a->result = result;
    a->order = ++ended;
    a->number = reply_i64(reply);
    for (size_t i = 0; i < 3; i++)
        str_copy(reply_str(reply_at(reply, i)), a->texts[i], sizeof a->texts[i]);
    assert_true(result != ERR_OK || reply != NULL);
    assert_null(c->command.bytes);
}

static void on_suspect(void *to) {
    ((struct fixture *)to)->suspicions++;
}

static struct hot_incarnation incarnation_now(struct fixture *h) {
    struct hot_incarnation incarnation = {.epoch = EPOCH};
    char ids[2][64];
    static const char *const names[] = {"run_id:", "master_replid:"};
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(probe_do(h->probe, "INFO everything")->str, names[i]);
        assert_non_null(at);
        assert_int_equal(sscanf(at + strlen(names[i]), "%63[0-9a-f]", ids[i]), 1);
    }
    snprintf(incarnation.identity, sizeof incarnation.identity, "%s/%s", ids[0], ids[1]);
    return incarnation;
}

/* Only the probe's. */
static void meet_server(struct fixture *h) {
    h->probe = probe_connect(&h->address);
    probe_do(h->probe, "FLUSHALL");
    probe_do(h->probe, "FUNCTION LOAD REPLACE %s", functions);
}

static void open_incarnation(struct fixture *h) {
    struct hot_incarnation incarnation = incarnation_now(h);
    redis_status_open(&h->status, &incarnation);
}

static void start_link(struct fixture *h, const struct redis_address *address) {
    h->link = link_new(&h->loop, address, &h->status, DEADLINE_MS);
}

static void build(struct fixture *h) {
    *h = (struct fixture){0};
    h->address = probe_address(services_start(SERVICE_REDIS)->redis_url);
    meet_server(h);
    assert_int_equal(uv_loop_init(&h->loop), 0);
    redis_status_init(&h->status, &h->address);
    h->status.suspect = on_suspect;
    h->status.to = h;
    ended = 0;
    memset(asks, 0, sizeof asks);
}

static void demolish(struct fixture *h) {
    if (h->link != NULL) link_close(h->link);
    uv_run(&h->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&h->loop), 0);
    redis_status_deinit(&h->status);
    probe_end(h->probe);
    services_start(SERVICE_REDIS);
}

/* Turns the loop until it holds. */
#define TURN_UNTIL(h, condition)                                                                   \
    do {                                                                                           \
        int64_t until_ = clock_steady_ms() + WAIT_MS;                                              \
        while (!(condition)) {                                                                     \
            if (clock_steady_ms() > until_) fail_msg("in vain: %s", #condition);                   \
            run_once(h);                                                                           \
        }                                                                                          \
    } while (0)

static void on_wake(uv_timer_t *timer) {
    (void)timer;
}

/* One iteration of the loop, for a millisecond at the most. */
static void run_once(struct fixture *h) {
    uv_timer_t wake;
    uv_timer_init(&h->loop, &wake);
    uv_timer_start(&wake, on_wake, 1, 1);
    uv_run(&h->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&wake, NULL);
    uv_run(&h->loop, UV_RUN_NOWAIT);
}

static void turn_ms(struct fixture *h, int64_t ms) {
    for (int64_t until = clock_steady_ms() + ms; clock_steady_ms() < until;) run_once(h);
}

static struct ask *ask(struct fixture *h, size_t i, const char *function, const char *key,
                       const char *argument, bool repeats) {
    struct ask *a = &asks[i];
    *a = (struct ask){.fixture = h};
    a->call.done = on_done;
    a->call.repeats = repeats;
    call_begin(&a->call, function, 1);
    call_add(&a->call, str_of(key));
    call_add(&a->call, str_of(argument));
    link_send(h->link, &a->call);
    return a;
}

static struct ask *command(struct fixture *h, size_t i, const char *a0, const char *a1,
                           const char *a2) {
    struct ask *a = &asks[i];
    *a = (struct ask){.fixture = h};
    a->call.done = on_done;
    call_begin_command(&a->call);
    call_add(&a->call, str_of(a0));
    if (a1 != NULL) call_add(&a->call, str_of(a1));
    if (a2 != NULL) call_add(&a->call, str_of(a2));
    link_send(h->link, &a->call);
    return a;
}

/* A fixture with an open incarnation and a link that is up. */
static void build_up(struct fixture *h) {
    build(h);
    open_incarnation(h);
    start_link(h, &h->address);
    TURN_UNTIL(h, link_is_up(h->link));
}

static enum err result_of(struct fixture *h, struct ask *a) {
    TURN_UNTIL(h, a->is_done);
    return a->result;
}

static void calls_are_answered_in_order_with_the_epoch_behind_the_keys(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        char text[16];
        snprintf(text, sizeof text, "%zu", i);
        ask(&h, i, "test_echo", "a key", text, false);
    }
    TURN_UNTIL(&h, ended == CALLS_MAX);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        assert_int_equal(asks[i].result, ERR_OK);
        assert_int_equal(asks[i].order, i + 1);
        assert_int_equal(asks[i].call.epoch, EPOCH);
        assert_string_equal(asks[i].texts[0], "a key");
        assert_string_equal(asks[i].texts[1], "7");
        assert_int_equal(strtol(asks[i].texts[2], NULL, 10), i);
    }
    demolish(&h);
}

static void send_fifty(struct fixture *h) {
    for (size_t i = 0; i < 50; i++) ask(h, i, "test_count", "count", "", false);
}

static void fifty_in_timer(uv_timer_t *timer) {
    send_fifty(timer->data);
}

static void fifty_in_prepare(uv_prepare_t *prepare) {
    uv_prepare_stop(prepare);
    send_fifty(prepare->data);
}

static void fifty_in_check(uv_check_t *check) {
    uv_check_stop(check);
    send_fifty(check->data);
}

static void fifty_in_async(uv_async_t *async) {
    send_fifty(async->data);
}

/* How many reads the server needed for the calls of one loop iteration. Asking takes a read, too.
 */
static int64_t reads_until_all_are_done(struct fixture *h) {
    int64_t before = probe_info(h->probe, "total_reads_processed");
    uv_update_time(&h->loop);
    ended = 0;
    int64_t until = clock_steady_ms() + WAIT_MS;
    while (ended < 50 && clock_steady_ms() < until) uv_run(&h->loop, UV_RUN_ONCE);
    assert_int_equal(ended, 50);
    for (size_t i = 0; i < 50; i++) assert_int_equal(asks[i].result, ERR_OK); /* in time */
    return probe_info(h->probe, "total_reads_processed") - before - 1;
}

/* At any point of an iteration; and without another handle that wakes the loop. */
static void calls_of_one_loop_iteration_are_one_write(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    uv_timer_t timer = {.data = &h};
    uv_timer_init(&h.loop, &timer);
    uv_timer_start(&timer, fifty_in_timer, 0, 0);
    assert_int_equal(reads_until_all_are_done(&h), 1);
    uv_prepare_t prepare = {.data = &h};
    uv_prepare_init(&h.loop, &prepare);
    uv_prepare_start(&prepare, fifty_in_prepare);
    assert_int_equal(reads_until_all_are_done(&h), 1);
    uv_check_t check = {.data = &h};
    uv_check_init(&h.loop, &check);
    uv_check_start(&check, fifty_in_check);
    uv_timer_start(&timer, on_wake, 0, 0);
    assert_int_equal(reads_until_all_are_done(&h), 1);
    uv_async_t async = {.data = &h};
    uv_async_init(&h.loop, &async, fifty_in_async);
    uv_async_send(&async);
    assert_int_equal(reads_until_all_are_done(&h), 1);
    assert_int_equal(probe_number(h.probe, "GET count"), 200);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_close((uv_handle_t *)&check, NULL);
    uv_close((uv_handle_t *)&async, NULL);
    demolish(&h);
}

/* More than a socket takes at once. */
static void large_calls_arrive_whole(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    open_incarnation(&h);
    h.link = link_new(&h.loop, &h.address, &h.status, WAIT_MS);
    TURN_UNTIL(&h, link_is_up(h.link));
    enum { BYTES = 8 * 1024 * 1024 };
    struct buf large = {0};
    memset(buf_reserve(&large, BYTES), 'x', BYTES);
    large.len = BYTES;
    asks[0] = (struct ask){.fixture = &h, .call.done = on_done};
    call_begin_command(&asks[0].call);
    call_add(&asks[0].call, STR("SET"));
    call_add(&asks[0].call, STR("large"));
    call_add(&asks[0].call, buf_str(&large));
    link_send(h.link, &asks[0].call);
    struct ask *a = ask(&h, 1, "test_count", "count", "", false);
    assert_int_equal(result_of(&h, a), ERR_OK);
    assert_int_equal(asks[0].result, ERR_OK);
    assert_int_equal(probe_number(h.probe, "STRLEN large"), BYTES);
    buf_deinit(&large);
    demolish(&h);
}

static void calls_pass_only_in_the_open_incarnation(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    start_link(&h, &h.address);
    TURN_UNTIL(&h, link_is_up(h.link));
    int64_t connections = probe_info(h.probe, "total_connections_received");

    assert_int_equal(ask(&h, 0, "test_count", "count", "", false)->result, ERR_RECOVERING);
    assert_int_equal(h.suspicions, 0);
    open_incarnation(&h);
    assert_int_equal(result_of(&h, ask(&h, 4, "test_count", "count", "", false)), ERR_OK);
    assert_int_equal(asks[4].number, 1);
    redis_status_open(&h.status, NULL);
    assert_int_equal(ask(&h, 5, "test_count", "count", "", false)->result, ERR_RECOVERING);
    assert_int_equal(h.suspicions, 0);
    assert_int_equal(probe_info(h.probe, "total_connections_received"), connections);
    demolish(&h);
}

/* Once: the server may have got another identity, or may not be the master any more. */
static void an_incarnation_of_another_run_makes_the_client_look_for_the_master_again(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    int64_t connections = probe_info(h.probe, "total_connections_received");
    struct hot_incarnation other = {.epoch = 3, .identity = "somebody/else"};
    redis_status_open(&h.status, &other);
    assert_int_equal(ask(&h, 1, "test_count", "count", "", false)->result, ERR_RECOVERING);
    assert_int_equal(h.suspicions, 1);
    assert_false(link_is_up(h.link));
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(h.suspicions, 2); /* of the new connection */
    assert_int_equal(ask(&h, 2, "test_count", "count", "", true)->result, ERR_RECOVERING);
    assert_int_equal(ask(&h, 3, "test_count", "count", "", true)->result, ERR_RECOVERING);
    assert_int_equal(h.suspicions, 2);
    assert_int_equal(probe_info(h.probe, "total_connections_received"), connections + 1);
    demolish(&h);
}

/* The replication id changes when the first replica connects; an incarnation was begun before. */
static void a_server_with_a_new_identity_is_asked_for_it(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    probe_do(h.probe, "REPLICAOF 127.0.0.1 1");
    probe_do(h.probe, "REPLICAOF NO ONE");
    open_incarnation(&h);
    assert_int_equal(ask(&h, 0, "test_count", "count", "", false)->result, ERR_RECOVERING);
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(result_of(&h, ask(&h, 1, "test_count", "count", "", false)), ERR_OK);
    demolish(&h);
}

static void a_new_connection_to_another_run_is_suspect_at_once(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    struct hot_incarnation other = {.epoch = 3, .identity = "somebody/else"};
    redis_status_open(&h.status, &other);
    start_link(&h, &h.address);
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(h.suspicions, 1);
    demolish(&h);
}

static void errors_are_distinguished(void **state) {
    (void)state;
    static const struct {
        const char *error;
        enum err result;
        enum hot_state state;
    } cases[] = {
        {"GONE the event was removed", ERR_EVENT_NOT_FOUND, HOT_STATE_OK},
        {"LOADING Redis is loading", ERR_HOT_UNAVAILABLE, HOT_STATE_OK},
        {"OOM command not allowed", ERR_HOT_FULL, HOT_STATE_OOM},
        {"BUSY Redis is busy", ERR_HOT_UNAVAILABLE, HOT_STATE_OOM},
        {"MISCONF errors writing", ERR_HOT_UNAVAILABLE, HOT_STATE_MISCONF},
        {"NOREPLICAS not enough", ERR_HOT_UNAVAILABLE, HOT_STATE_NOREPLICAS},
        {"WRONGTYPE of key", ERR_INTERNAL, HOT_STATE_NOREPLICAS},
    };
    struct fixture h;
    build_up(&h);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ask *a = ask(&h, i, "test_fail", "k", cases[i].error, false);
        if (result_of(&h, a) != cases[i].result) fail_msg("%s: %d", cases[i].error, a->result);
        assert_int_equal(h.status.state, cases[i].state);
    }
    /* Something was refused since it was last asked: it is asked once more. */
    redis_status_accepted(&h.status);
    assert_int_equal(h.status.state, HOT_STATE_NOREPLICAS);
    redis_status_accepted(&h.status);
    assert_int_equal(h.status.state, HOT_STATE_OK);
    assert_int_equal(h.suspicions, 0);
    struct ask *a = ask(&h, 10, "test_fail", "k", "EPOCH another incarnation", false);
    struct ask *b = ask(&h, 11, "test_fail", "k", "NOEVENT not known", false);
    assert_int_equal(result_of(&h, b), ERR_RECOVERING);
    assert_int_equal(a->result, ERR_RECOVERING);
    assert_int_equal(h.suspicions, 1);
    assert_true(link_is_up(h.link));
    demolish(&h);
}

static void a_server_that_becomes_read_only_is_left(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    int64_t connections = probe_info(h.probe, "total_connections_received");
    struct ask *a = ask(&h, 0, "test_fail", "k", "READONLY You can't write", false);
    assert_int_equal(result_of(&h, a), ERR_HOT_UNAVAILABLE);
    assert_false(link_is_up(h.link));
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(probe_info(h.probe, "total_connections_received"), connections + 1);
    assert_int_equal(result_of(&h, ask(&h, 1, "test_count", "count", "", false)), ERR_OK);
    demolish(&h);
}

static void try_again_is_tried_again_until_the_deadline(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    struct ask *a = ask(&h, 0, "test_tryagain", "tries", "4", false);
    assert_int_equal(result_of(&h, a), ERR_OK);
    assert_int_equal(a->number, 4);
    int64_t start = clock_steady_ms();
    a = ask(&h, 1, "test_tryagain", "tries", "1000000", false);
    enum err late = result_of(&h, a);
    assert_in_range(clock_steady_ms() - start, DEADLINE_MS - 10, INT64_MAX);
    /* On a busy machine the last try may not be answered by then: then it is not known what it did,
     * and the connection is given up. */
    assert_true(late == ERR_HOT_UNAVAILABLE || late == ERR_HOT_UNKNOWN);
    assert_int_equal(link_is_up(h.link), late == ERR_HOT_UNAVAILABLE);
    demolish(&h);
}

static int64_t links_client_id(struct fixture *h) {
    const char *at = strstr(probe_do(h->probe, "CLIENT LIST")->str, "name=admitone");
    assert_non_null(at);
    const char *list = probe_do(h->probe, "CLIENT LIST")->str;
    at = strstr(list, "name=admitone");
    while (at > list && at[-1] != '\n') at--;
    return strtoll(at + strlen("id="), NULL, 10);
}

/* The server reads the calls and does not do them; then the connection is cut. */
static void calls_under_way_when_the_connection_breaks_are_repeated_or_unknown(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    probe_do(h.probe, "CLIENT PAUSE 10000 WRITE");
    struct ask *once = ask(&h, 0, "test_count", "once", "", false);
    struct ask *first = ask(&h, 1, "test_count", "again", "", true);
    struct ask *second = ask(&h, 2, "test_count", "again", "", true);
    turn_ms(&h, 20);
    assert_int_equal(ended, 0);
    probe_do(h.probe, "CLIENT KILL ID %lld", (long long)links_client_id(&h));
    probe_do(h.probe, "CLIENT UNPAUSE");
    assert_int_equal(result_of(&h, once), ERR_HOT_UNKNOWN);
    assert_int_equal(result_of(&h, second), ERR_OK);
    assert_int_equal(first->result, ERR_OK);
    assert_int_equal(first->number, 1);
    assert_int_equal(second->number, 2);
    assert_int_equal(probe_number(h.probe, "EXISTS once"), 0);
    demolish(&h);
}

static void the_outcome_of_a_call_of_another_incarnation_is_unknown(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    probe_do(h.probe, "CLIENT PAUSE 10000 WRITE");
    struct ask *a = ask(&h, 0, "test_count", "again", "", true);
    turn_ms(&h, 20);
    struct hot_incarnation next = incarnation_now(&h);
    next.epoch = EPOCH + 1;
    redis_status_open(&h.status, &next);
    probe_do(h.probe, "CLIENT KILL ID %lld", (long long)links_client_id(&h));
    probe_do(h.probe, "CLIENT UNPAUSE");
    assert_int_equal(result_of(&h, a), ERR_HOT_UNKNOWN);
    assert_int_equal(probe_number(h.probe, "EXISTS again"), 0);
    assert_int_equal(result_of(&h, ask(&h, 1, "test_echo", "k", "", false)), ERR_OK);
    assert_string_equal(asks[1].texts[1], "8");
    demolish(&h);
}

/* The server executes the call and does not answer. */
static void at_the_deadline_the_connection_is_given_up(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    command(&h, 0, "CLIENT", "REPLY", "OFF");
    turn_ms(&h, DEADLINE_MS / 4);
    struct ask *late = ask(&h, 1, "test_count", "late", "", true);
    turn_ms(&h, DEADLINE_MS / 4);
    struct ask *again = ask(&h, 2, "test_count", "again", "", true);
    struct ask *once = ask(&h, 3, "test_count", "once", "", false);
    assert_int_equal(result_of(&h, &asks[0]), ERR_HOT_UNKNOWN);
    assert_int_equal(result_of(&h, once), ERR_HOT_UNKNOWN);
    assert_int_equal(result_of(&h, again), ERR_OK);
    assert_int_equal(again->number, 2);
    assert_int_equal(result_of(&h, late), ERR_OK);
    assert_int_equal(probe_number(h.probe, "GET once"), 1);
    demolish(&h);
}

static void a_server_that_stands_still_is_noticed_by_the_deadline(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    pid_t server = services_start(SERVICE_REDIS)->redis_pid;
    kill(server, SIGSTOP);
    run_once(&h);
    int64_t start = clock_steady_ms();
    struct ask *once = ask(&h, 0, "test_count", "once", "", false);
    struct ask *again = ask(&h, 1, "test_count", "again", "", true);
    assert_int_equal(result_of(&h, once), ERR_HOT_UNKNOWN);
    assert_int_equal(result_of(&h, again), ERR_HOT_UNKNOWN);
    int64_t took = clock_steady_ms() - start;
    assert_in_range(took, DEADLINE_MS - 10, DEADLINE_MS + 1000);
    assert_false(link_is_up(h.link));
    assert_int_equal(ask(&h, 2, "test_count", "once", "", false)->result, ERR_HOT_UNAVAILABLE);
    kill(server, SIGCONT);
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(result_of(&h, ask(&h, 3, "test_echo", "k", "", false)), ERR_OK);
    demolish(&h);
}

/* The deadline is over when this process looks again; the answers were there in time. */
static void an_answer_that_came_while_this_process_stood_still_is_read(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    pid_t server = services_start(SERVICE_REDIS)->redis_pid;
    kill(server, SIGSTOP); /* so that no answer is read when they are written */
    for (size_t i = 0; i < CALLS_MAX; i++) ask(&h, i, "test_count", "count", "", i % 2 == 0);
    run_once(&h);
    kill(server, SIGCONT);
    int64_t until = clock_steady_ms() + WAIT_MS;
    while (probe_number(h.probe, "GET count") < CALLS_MAX) assert_true(clock_steady_ms() < until);
    /* Redis may have sent this answer before those of the calls that it executed just before; the
     * next one it has not. */
    probe_number(h.probe, "GET count");
    uv_sleep(DEADLINE_MS * 2);
    TURN_UNTIL(&h, ended == CALLS_MAX);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        assert_int_equal(asks[i].result, ERR_OK);
        assert_int_equal(asks[i].number, i + 1);
    }
    assert_true(link_is_up(h.link));
    demolish(&h);
}

static void another_run_of_the_server_is_another_incarnation(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    pid_t server = services_start(SERVICE_REDIS)->redis_pid;
    kill(server, SIGSTOP);
    struct ask *once = ask(&h, 0, "test_count", "once", "", false);
    struct ask *again = ask(&h, 1, "test_count", "again", "", true);
    turn_ms(&h, 20);
    kill(server, SIGKILL);
    assert_int_equal(result_of(&h, once), ERR_HOT_UNKNOWN);
    assert_int_equal(ask(&h, 2, "test_count", "k", "", true)->result, ERR_HOT_UNAVAILABLE);
    redisFree(h.probe);
    services_start(SERVICE_REDIS);
    meet_server(&h);
    assert_int_equal(result_of(&h, again), ERR_HOT_UNKNOWN);
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(h.suspicions, 1);
    assert_int_equal(ask(&h, 3, "test_count", "k", "", false)->result, ERR_RECOVERING);
    assert_int_equal(h.suspicions, 1);
    assert_int_equal(probe_number(h.probe, "EXISTS again"), 0);
    open_incarnation(&h);
    assert_int_equal(result_of(&h, ask(&h, 4, "test_count", "k", "", false)), ERR_OK);
    demolish(&h);
}

static void it_logs_in_and_takes_its_database(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    open_incarnation(&h);
    probe_do(h.probe, "ACL SETUSER shop on >se@cret ~* &* +@all");
    probe_do(h.probe, "CONFIG SET requirepass general");
    struct redis_address a = h.address;
    str_copy(STR("shop"), a.user, sizeof a.user);
    str_copy(STR("wrong"), a.password, sizeof a.password);
    a.database = 3;
    start_link(&h, &a);
    turn_ms(&h, 200);
    assert_false(link_is_up(h.link));
    link_close(h.link);
    str_copy(STR("se@cret"), a.password, sizeof a.password);
    start_link(&h, &a);
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(result_of(&h, ask(&h, 0, "test_count", "here", "", false)), ERR_OK);
    link_close(h.link);
    a.user[0] = '\0';
    str_copy(STR("general"), a.password, sizeof a.password);
    start_link(&h, &a);
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(result_of(&h, ask(&h, 1, "test_count", "here", "", false)), ERR_OK);
    probe_do(h.probe, "CONFIG SET requirepass %s", "");
    probe_do(h.probe, "ACL DELUSER shop");
    probe_do(h.probe, "SELECT 3");
    assert_int_equal(probe_number(h.probe, "GET here"), 2);
    demolish(&h);
}

static void a_replica_is_not_talked_to(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    open_incarnation(&h);
    probe_do(h.probe, "REPLICAOF 127.0.0.1 1");
    start_link(&h, &h.address);
    turn_ms(&h, 200);
    assert_false(link_is_up(h.link));
    assert_int_equal(ask(&h, 0, "test_count", "k", "", false)->result, ERR_HOT_UNAVAILABLE);
    probe_do(h.probe, "REPLICAOF NO ONE");
    TURN_UNTIL(&h, link_is_up(h.link));
    demolish(&h);
}

static void a_server_that_is_not_there_yet_is_found_later(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    open_incarnation(&h);
    services_stop(SERVICE_REDIS);
    redisFree(h.probe);
    start_link(&h, &h.address);
    turn_ms(&h, 200);
    assert_int_equal(ask(&h, 0, "test_count", "k", "", true)->result, ERR_HOT_UNAVAILABLE);
    services_start(SERVICE_REDIS);
    meet_server(&h);
    TURN_UNTIL(&h, link_is_up(h.link));
    demolish(&h);
}

static void names_are_resolved(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    open_incarnation(&h);
    struct redis_address a = h.address;
    str_copy(STR("no-such-host.invalid"), a.hosts[0].name, sizeof a.hosts[0].name);
    start_link(&h, &a);
    turn_ms(&h, 50);
    assert_false(link_is_up(h.link));
    link_close(h.link);
    str_copy(STR("localhost"), a.hosts[0].name, sizeof a.hosts[0].name);
    start_link(&h, &a);
    TURN_UNTIL(&h, link_is_up(h.link));
    demolish(&h);
}

static void a_link_can_be_closed_at_any_time(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    for (int turns = 0; turns < 12; turns++) {
        struct link *another = link_new(&h.loop, &h.address, &h.status, DEADLINE_MS);
        for (int i = 0; i < turns; i++) uv_run(&h.loop, UV_RUN_NOWAIT);
        link_close(another);
    }
    for (size_t i = 0; i < 50; i++) ask(&h, i, "test_count", "k", "", i % 2 == 0);
    link_close(h.link);
    h.link = NULL;
    assert_int_equal(ended, 50);
    for (size_t i = 0; i < 50; i++) assert_int_equal(asks[i].result, ERR_HOT_UNKNOWN);
    demolish(&h);
}

static void close_when_done(struct call *c, enum err result, const redisReply *reply) {
    struct ask *a = CONTAINER_OF(c, struct ask, call);
    struct fixture *h = a->fixture;
    on_done(c, result, reply);
    if (h->link == NULL) return;
    link_close(h->link);
    h->link = NULL;
}

/* Also from within an answer, with more answers behind it. */
static void a_link_can_be_closed_by_an_answer(void **state) {
    (void)state;
    struct fixture h;
    build_up(&h);
    for (size_t i = 0; i < 20; i++) {
        ask(&h, i, "test_count", "k", "", false);
        if (i == 5) asks[i].call.done = close_when_done;
    }
    TURN_UNTIL(&h, ended == 20);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(asks[i].result, i <= 5 ? ERR_OK : ERR_HOT_UNKNOWN);
    demolish(&h);
}

static void a_fail_over_is_followed(void **state) {
    (void)state;
    struct fixture h;
    build(&h);
    const struct services *s = services_start(SERVICE_SENTINEL);
    struct redis_address sentinels = probe_address(s->sentinel_url);
    redisContext *other = h.probe;
    start_link(&h, &sentinels);
    TURN_UNTIL(&h, link_is_up(h.link));
    struct hot_incarnation incarnation = {.epoch = EPOCH, .identity = "of the first master"};
    redis_status_open(&h.status, &incarnation);
    kill(s->sentinel_master_pid, SIGKILL);
    TURN_UNTIL(&h, !link_is_up(h.link));
    TURN_UNTIL(&h, link_is_up(h.link));
    assert_int_equal(ask(&h, 0, "test_count", "k", "", false)->result, ERR_RECOVERING);
    struct ask *role = command(&h, 1, "ROLE", NULL, NULL);
    assert_int_equal(result_of(&h, role), ERR_OK);
    assert_string_equal(role->texts[0], "master");
    assert_true(h.suspicions >= 1);
    h.probe = other;
    demolish(&h);
    services_stop(SERVICE_SENTINEL);
}

int main(void) {
    log_setup(LOG_ERROR, LOG_LOGFMT);
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_answered_in_order_with_the_epoch_behind_the_keys),
        cmocka_unit_test(calls_of_one_loop_iteration_are_one_write),
        cmocka_unit_test(large_calls_arrive_whole),
        cmocka_unit_test(calls_pass_only_in_the_open_incarnation),
        cmocka_unit_test(an_incarnation_of_another_run_makes_the_client_look_for_the_master_again),
        cmocka_unit_test(a_server_with_a_new_identity_is_asked_for_it),
        cmocka_unit_test(a_new_connection_to_another_run_is_suspect_at_once),
        cmocka_unit_test(errors_are_distinguished),
        cmocka_unit_test(a_server_that_becomes_read_only_is_left),
        cmocka_unit_test(try_again_is_tried_again_until_the_deadline),
        cmocka_unit_test(calls_under_way_when_the_connection_breaks_are_repeated_or_unknown),
        cmocka_unit_test(the_outcome_of_a_call_of_another_incarnation_is_unknown),
        cmocka_unit_test(at_the_deadline_the_connection_is_given_up),
        cmocka_unit_test(a_server_that_stands_still_is_noticed_by_the_deadline),
        cmocka_unit_test(an_answer_that_came_while_this_process_stood_still_is_read),
        cmocka_unit_test(another_run_of_the_server_is_another_incarnation),
        cmocka_unit_test(it_logs_in_and_takes_its_database),
        cmocka_unit_test(a_replica_is_not_talked_to),
        cmocka_unit_test(a_server_that_is_not_there_yet_is_found_later),
        cmocka_unit_test(names_are_resolved),
        cmocka_unit_test(a_link_can_be_closed_at_any_time),
        cmocka_unit_test(a_link_can_be_closed_by_an_answer),
        cmocka_unit_test(a_fail_over_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
