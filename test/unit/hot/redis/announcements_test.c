#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "hot/redis/internal.h"
#include "redis_probe.h"
#include "services.h"

#define KEY 5
#define HEARD_MAX 8

/* The calls of a node's listener. */
struct node {
    struct redis_store *store;
    _Atomic int suspicions;
    _Atomic int event_changes;
    _Atomic int changes;
    pthread_mutex_t lock;
    int64_t event_key; /* under lock, of the last change */
    uint64_t seqs[HEARD_MAX];
    size_t count;
};

static redisContext *probe;

static void on_changed(void *to, int64_t event_key, const uint64_t *seqs, size_t count) {
    struct node *n = to;
    assert_true(count <= HEARD_MAX);
    pthread_mutex_lock(&n->lock);
    n->event_key = event_key;
    n->count = count;
    memcpy(n->seqs, seqs, count * sizeof *seqs);
    n->changes++;
    pthread_mutex_unlock(&n->lock);
}

static void on_event_changed(void *to) {
    ((struct node *)to)->event_changes++;
}

static void on_suspect(void *to) {
    ((struct node *)to)->suspicions++;
}

static bool has_returned(void *of) {
    struct node *n = of;
    return n->suspicions > 0 && n->event_changes > 0;
}

static bool has_heard_entries(void *of) {
    return ((struct node *)of)->changes > 0;
}

static void forget(struct node *n) {
    n->suspicions = n->event_changes = n->changes = 0;
}

static void join(struct node *n) {
    *n = (struct node){0};
    pthread_mutex_init(&n->lock, NULL);
    struct redis_options o = {.address = probe_address(services_start(SERVICE_REDIS)->redis_url)};
    n->store = redis_store_new(&o);
    hot_listen(redis_store_hot(n->store), (struct hot_listener){.changed = on_changed,
                                                                .event_changed = on_event_changed,
                                                                .suspect = on_suspect,
                                                                .to = n});
    struct event e = {.key = KEY, .type = "T", .id = "5"};
    store_register_event(n->store, &e);
}

static bool is_subscribed(void *of) {
    struct node *n = of;
    const redisReply *r = probe_do(probe, "PUBSUB NUMSUB " LOCKS_CHANNEL "%s", n->store->node);
    return reply_i64(reply_at(r, 1)) > 0;
}

static void leave(struct node *n) {
    redis_store_free(n->store);
    pthread_mutex_destroy(&n->lock);
}

static void join_and_listen(struct node *n) {
    join(n);
    probe_wait(is_subscribed, n, "the node listens");
    probe_wait(has_returned, n, "it says so");
    assert_int_equal(n->suspicions, 1);
    forget(n);
}

#define MARK 424242

static bool has_heard_mark(void *of) {
    struct node *n = of;
    pthread_mutex_lock(&n->lock);
    bool has = n->seqs[0] == MARK;
    n->seqs[0] = 0;
    pthread_mutex_unlock(&n->lock);
    return has;
}

/* Waits until all earlier announcements have arrived: they come in order. Counts as one change. */
static void hear_out(struct node *n) {
    probe_do(probe, "PUBLISH " ENTRIES_CHANNEL " %s", "somebody T:5 424242");
    probe_wait(has_heard_mark, n, "an announcement");
}

static void an_announcement_of_one_node_reaches_the_others(void **state) {
    (void)state;
    struct node a, b;
    join_and_listen(&a);
    join_and_listen(&b);
    uv_loop_t loop;
    uv_loop_init(&loop);
    redis_store_attach(a.store, &loop);
    while (!link_is_up(redis_worker_mine()->link)) uv_run(&loop, UV_RUN_ONCE);
    hot_announce(redis_store_hot(a.store)); /* in no incarnation, too */
    while (b.event_changes == 0) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(b.event_changes, 1);
    redis_store_detach(a.store);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    hear_out(&a);
    assert_int_equal(a.event_changes, 0);
    leave(&a);
    leave(&b);
}

static void entries_that_changed_on_another_node_are_reported_with_their_event(void **state) {
    (void)state;
    struct node n;
    join_and_listen(&n);
    probe_do(probe, "PUBLISH " ENTRIES_CHANNEL " %s", "somebody T:5 7 8 9007199254740993");
    probe_wait(has_heard_entries, &n, "the change");
    pthread_mutex_lock(&n.lock);
    assert_int_equal(n.event_key, KEY);
    assert_int_equal(n.count, 3);
    assert_int_equal(n.seqs[0], 7);
    assert_int_equal(n.seqs[1], 8);
    assert_int_equal(n.seqs[2], 9007199254740993);
    pthread_mutex_unlock(&n.lock);
    leave(&n);
}

static void own_or_malformed_announcements_are_ignored(void **state) {
    (void)state;
    static const char *const payloads[] = {"",
                                           " ",
                                           "somebody",
                                           "somebody T:5",
                                           "somebody T:5 ",
                                           "somebody T:5 x -1",
                                           "somebody T:9 7"};
    struct node n;
    join_and_listen(&n);
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++)
        probe_do(probe, "PUBLISH " ENTRIES_CHANNEL " %s", payloads[i]);
    char own[64];
    snprintf(own, sizeof own, "%s T:5 7", n.store->node);
    probe_do(probe, "PUBLISH " ENTRIES_CHANNEL " %s", own);
    probe_do(probe, "PUBLISH " EVENTS_CHANNEL " %s", n.store->node);
    hear_out(&n);
    assert_int_equal(n.changes, 1);
    assert_int_equal(n.event_changes, 0);
    leave(&n);
}

static void after_a_lost_connection_it_subscribes_again_and_reports_it(void **state) {
    (void)state;
    struct node n;
    join_and_listen(&n);
    probe_do(probe, "CLIENT KILL TYPE pubsub");
    probe_wait(has_returned, &n, "the return");
    assert_int_equal(n.suspicions, 1);
    hear_out(&n);
    services_kill_redis();
    forget(&n);
    redisFree(probe);
    struct redis_address address = probe_address(services_start(SERVICE_REDIS)->redis_url);
    probe = probe_connect(&address);
    probe_wait(has_returned, &n, "the return to another run");
    hear_out(&n);
    leave(&n);
}

/* A connection that is silent is asked; one that does not answer is left. */
static void a_server_that_stands_still_is_noticed(void **state) {
    (void)state;
    struct node n;
    join_and_listen(&n);
    int64_t connections = probe_info(probe, "total_connections_received");
    pid_t server = services_start(SERVICE_REDIS)->redis_pid;
    kill(server, SIGSTOP);
    usleep(5000 * 1000); /* longer than the silence that is borne */
    kill(server, SIGCONT);
    probe_wait(has_returned, &n, "the return");
    assert_true(probe_info(probe, "total_connections_received") > connections);
    leave(&n);
}

/* Once: this server may not be the master any more, though it goes on. */
static void an_incarnation_of_another_run_makes_the_client_look_for_the_master_again(void **state) {
    (void)state;
    struct node n;
    join_and_listen(&n);
    struct hot_incarnation other = {.epoch = 3, .identity = "somebody/else"};
    hot_open(redis_store_hot(n.store), &other);
    probe_wait(has_returned, &n, "the return");
    usleep(2500 * 1000);
    hear_out(&n);
    assert_int_equal(n.suspicions, 1);
    leave(&n);
}

static void a_quiet_connection_is_kept(void **state) {
    (void)state;
    struct node n;
    join_and_listen(&n);
    usleep(4500 * 1000);
    assert_int_equal(n.suspicions, 0);
    hear_out(&n);
    leave(&n);
}

static void it_ends_at_once(void **state) {
    (void)state;
    struct node n;
    join_and_listen(&n);
    leave(&n);
    join_and_listen(&n);
    pid_t server = services_start(SERVICE_REDIS)->redis_pid;
    kill(server, SIGSTOP);
    leave(&n); /* while Redis is stopped: it must not wait for it */
    kill(server, SIGCONT);
    services_stop(SERVICE_REDIS);
    struct redis_options o = {.address.host_count = 1,
                              .address.hosts = {{.name = "127.0.0.1", .port = 1}}};
    n.store = redis_store_new(&o);
    usleep(100 * 1000); /* between two tries, most likely */
    redis_store_free(n.store);
}

static int begin_test(void **state) {
    (void)state;
    struct redis_address address = probe_address(services_start(SERVICE_REDIS)->redis_url);
    probe = probe_connect(&address);
    probe_do(probe, "FLUSHALL");
    return 0;
}

static int end_test(void **state) {
    (void)state;
    probe_end(probe);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)

int main(void) {
    log_setup((enum log_level)(LOG_ERROR + 1), LOG_LOGFMT); /* failures are made on purpose */
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        TEST(an_announcement_of_one_node_reaches_the_others),
        TEST(entries_that_changed_on_another_node_are_reported_with_their_event),
        TEST(own_or_malformed_announcements_are_ignored),
        TEST(after_a_lost_connection_it_subscribes_again_and_reports_it),
        TEST(a_server_that_stands_still_is_noticed),
        TEST(an_incarnation_of_another_run_makes_the_client_look_for_the_master_again),
        TEST(a_quiet_connection_is_kept),
        TEST(it_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
