#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "hot/redis/internal.h"
#include "queue_steps.h"
#include "redis_probe.h"
#include "services.h"

#define KEY 5
#define WAIT_MS 20000

struct fixture {
    redisContext *probe;
    struct redis_store *store;
    struct hot *hot;
    struct event event;
    uv_loop_t loop;
    bool is_attached;
};

static _Atomic int suspicions;

static void on_suspect(void *to) {
    (void)to;
    suspicions++;
}

static struct redis_store *store_at(const char *url) {
    struct redis_options o = {.address = probe_address(url), .deadline_ms = 500};
    struct redis_store *s = redis_store_new(&o);
    hot_listen(redis_store_hot(s), (struct hot_listener){.suspect = on_suspect});
    return s;
}

static void connect_probe(struct fixture *h) {
    struct redis_address address = probe_address(services_start(SERVICE_REDIS)->redis_url);
    h->probe = probe_connect(&address);
}

static void build(struct fixture *h) {
    suspicions = 0;
    *h = (struct fixture){.event = steps_event(KEY)};
    str_copy(STR("T"), h->event.type, sizeof h->event.type);
    str_copy(STR("5"), h->event.id, sizeof h->event.id);
    connect_probe(h);
    probe_do(h->probe, "FLUSHALL");
    probe_do(h->probe, "FUNCTION FLUSH");
    h->store = store_at(services_start(SERVICE_REDIS)->redis_url);
    h->hot = redis_store_hot(h->store);
}

static void demolish(struct fixture *h) {
    if (h->is_attached) {
        redis_store_detach(h->store);
        uv_run(&h->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&h->loop), 0);
    }
    redis_store_free(h->store);
    probe_end(h->probe);
}

/* The same, with a separate store, which the caller frees. */
static struct fixture neighbour(const struct fixture *h, const char *url) {
    struct fixture other = *h;
    other.store = store_at(url);
    other.hot = redis_store_hot(other.store);
    return other;
}

static int set_up(void **state) {
    static struct fixture fixture;
    build(&fixture);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state) {
    demolish(*state);
    return 0;
}

static struct hot_incarnation look(struct fixture *h) {
    struct hot_incarnation incarnation;
    assert_int_equal(hot_incarnation_read(h->hot, &incarnation), ERR_OK);
    return incarnation;
}

static void restore(struct fixture *h, uint64_t seq) {
    char user[24];
    struct ledger_entry e = {.event_key = KEY, .seq = seq, .status = ENTRY_WAITING};
    snprintf(user, sizeof user, "user%llu", (unsigned long long)seq);
    e.user = str_of(user);
    queues_restore(redis_store_queues(h->store), &e);
}

/* Begins to rebuild the store with one event and that many waiting entries. */
static struct hot_incarnation begin_incarnation(struct fixture *h, uint32_t epoch,
                                                uint64_t entries) {
    struct queues *q = redis_store_queues(h->store);
    struct hot_incarnation incarnation = look(h);
    incarnation.epoch = epoch;
    assert_int_equal(hot_rebuild_begin(h->hot, &incarnation), ERR_OK);
    queues_restore_event(q, &h->event);
    for (uint64_t seq = 1; seq <= entries; seq++) restore(h, seq);
    queues_recovered(q, KEY, entries + 1, 1000);
    return incarnation;
}

static struct hot_incarnation have_incarnation(struct fixture *h, uint32_t epoch,
                                               uint64_t entries) {
    struct hot_incarnation incarnation = begin_incarnation(h, epoch, entries);
    assert_int_equal(look(h).epoch, 0);
    assert_int_equal(hot_rebuild_end(h->hot), ERR_OK);
    assert_int_equal(look(h).epoch, epoch);
    return incarnation;
}

static void assert_no_incarnation_begins(struct fixture *h) {
    assert_int_equal(hot_rebuild_end(h->hot), ERR_HOT_UNAVAILABLE);
    assert_int_equal(look(h).epoch, 0);
}

static int64_t waiting(struct fixture *h) {
    return probe_number(h->probe, "ZCARD queue:{T:5}:waiting");
}

static void a_store_that_was_never_rebuilt_has_no_incarnation(void **state) {
    struct fixture *h = *state;
    struct hot_incarnation incarnation = look(h);
    assert_int_equal(incarnation.epoch, 0);
    assert_int_equal(strlen(incarnation.identity), 81);
    assert_int_equal(incarnation.identity[40], '/');
}

static void an_incarnation_begins_when_everything_is_loaded(void **state) {
    struct fixture *h = *state;
    struct hot_incarnation incarnation = have_incarnation(h, 4, 1000);
    assert_string_equal(look(h).identity, incarnation.identity);
    assert_int_equal(waiting(h), 1000);
    assert_int_equal(probe_number(h->probe, "HGET queue:{T:5}:meta epoch"), 4);

    have_incarnation(h, 5, 3);
    assert_int_equal(waiting(h), 3);
}

static void only_what_is_ours_is_forgotten(void **state) {
    static const char *const foreign[] = {
        "queue",   "queues:{T:1}", "my:queue:{T:1}:meta", "lock:T",
        "section", "limits:{T:1}", "admitone:{x}",        "popularity:{daily:20260101}"};
    static const char *const families[] = {"queue", "section", "limit",       "lock",
                                           "claim", "ranking", "performance", "popularity:ranking"};
    struct fixture *h = *state;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        probe_do(h->probe, "SET %s here", foreign[i]);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (int n = 0; n < 700; n++) probe_do(h->probe, "SET %s:{T:%d}:any x", families[i], n);
    probe_do(h->probe, "SELECT 1");
    probe_do(h->probe, "SET queue:{T:1}:meta elsewhere");
    have_incarnation(h, 4, 0);
    assert_int_equal(probe_number(h->probe, "DBSIZE"), 1);
    probe_do(h->probe, "SELECT 0");
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_int_equal(probe_number(h->probe, "EXISTS %s", foreign[i]), 1);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        assert_int_equal(probe_do(h->probe, "KEYS %s:{*}:any", families[i])->elements, 0);
}

static void another_run_of_the_store_is_not_rebuilt(void **state) {
    struct fixture *h = *state;
    probe_do(h->probe, "SET queue:{T:1}:meta here");
    struct hot_incarnation other = {.epoch = 3, .identity = "somebody/else"};
    assert_int_equal(hot_rebuild_begin(h->hot, &other), ERR_RECOVERING);
    assert_int_equal(probe_number(h->probe, "EXISTS queue:{T:1}:meta"), 1);
}

static void one_command_that_fails_fails_the_rebuild(void **state) {
    struct fixture *h = *state;
    have_incarnation(h, 4, 0);
    begin_incarnation(h, 5, 600);
    probe_do(h->probe, "DEL queue:{T:5}:user");
    probe_do(h->probe, "SET queue:{T:5}:user wrong");
    restore(h, 900);
    assert_no_incarnation_begins(h);
}

static void a_server_that_dies_fails_the_rebuild(void **state) {
    struct fixture *h = *state;
    begin_incarnation(h, 4, 300);
    services_kill_redis();
    for (int i = 0; i < 1000; i++) restore(h, 900);
    assert_int_equal(hot_rebuild_end(h->hot), ERR_HOT_UNAVAILABLE);
    struct hot_incarnation incarnation;
    assert_int_equal(hot_incarnation_read(h->hot, &incarnation), ERR_HOT_UNAVAILABLE);
}

/* Between the look at it and the rebuild: the node tries again. */
static void a_server_that_is_gone_is_not_rebuilt(void **state) {
    struct fixture *h = *state;
    struct hot_incarnation incarnation = look(h);
    incarnation.epoch = 4;
    services_kill_redis();
    assert_int_equal(hot_rebuild_begin(h->hot, &incarnation), ERR_HOT_UNAVAILABLE);
}

static void an_abandoned_rebuild_is_started_again(void **state) {
    struct fixture *h = *state;
    begin_incarnation(h, 4, 300);
    have_incarnation(h, 5, 2);
    assert_int_equal(waiting(h), 2);
    begin_incarnation(h, 6, 300); /* and left at the end of the store, too */
}

/* With the event and its end these are as many commands as are sent at once: then nothing is on its
 * way, and the next thing that is sent finds out. */
#define SENT_ALREADY 254
static const uint64_t entry_counts[] = {10, SENT_ALREADY};

/* The node stalled, and another node has rebuilt Redis for another incarnation. */
static void a_rebuild_that_was_overtaken_spoils_nothing(void **state) {
    struct fixture *h = *state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture other = neighbour(h, services_start(SERVICE_REDIS)->redis_url);
        begin_incarnation(h, 4, entry_counts[i]);
        begin_incarnation(&other, 5, 600);
        assert_no_incarnation_begins(h);
        assert_int_equal(hot_rebuild_end(other.hot), ERR_OK);
        assert_int_equal(look(h).epoch, 5);
        assert_int_equal(waiting(h), 600);
        redis_store_free(other.store);
        demolish(h);
        build(h);
    }
}

/* The node stalled before it began, and another node has rebuilt Redis, or has begun to. */
static void a_rebuild_that_begins_too_late_spoils_nothing(void **state) {
    (void)state;
    for (int is_filled = 0; is_filled < 2; is_filled++) {
        struct fixture h, other;
        build(&h);
        struct hot_incarnation late = look(&h);
        late.epoch = 4;
        other = h;
        other.store = store_at(services_start(SERVICE_REDIS)->redis_url);
        other.hot = redis_store_hot(other.store);
        begin_incarnation(&other, 5, 600);
        if (is_filled) assert_int_equal(hot_rebuild_end(other.hot), ERR_OK);
        assert_int_equal(hot_rebuild_begin(h.hot, &late), ERR_HOT_UNAVAILABLE);
        if (!is_filled) assert_int_equal(hot_rebuild_end(other.hot), ERR_OK);
        assert_int_equal(look(&h).epoch, 5);
        assert_int_equal(probe_number(h.probe, "ZCARD queue:{T:5}:waiting"), 600);
        begin_incarnation(&h, 6, 1); /* knowing of it */
        assert_int_equal(hot_rebuild_end(h.hot), ERR_OK);
        redis_store_free(other.store);
        demolish(&h);
    }
}

static void a_store_that_is_flushed_during_a_rebuild_begins_no_incarnation(void **state) {
    struct fixture *h = *state;
    for (size_t i = 0; i < 2; i++) {
        begin_incarnation(h, 4, entry_counts[i]);
        probe_do(h->probe, "FLUSHALL");
        assert_no_incarnation_begins(h);
        demolish(h);
        build(h);
    }
}

/* This happens when the ledger is a new one. */
static void an_incarnation_may_have_a_lower_epoch_than_the_last(void **state) {
    struct fixture *h = *state;
    have_incarnation(h, 4, 1);
    have_incarnation(h, 1, 0);
}

static void another_run_or_a_copy_of_another_has_no_incarnation(void **state) {
    struct fixture *h = *state;
    struct hot_incarnation first = have_incarnation(h, 4, 0);
    services_kill_redis();
    redisFree(h->probe);
    connect_probe(h);
    assert_int_equal(look(h).epoch, 0);
    assert_string_not_equal(look(h).identity, first.identity);
    /* A snapshot or a promoted replica has the incarnation of another run. */
    probe_do(h->probe, "HSET admitone:{hot}:incarnation epoch 4 identity %s", first.identity);
    assert_int_equal(look(h).epoch, 0);
}

/* Redis as a node of version 6 of the library leaves it: its keys have other names. */
static void a_store_of_an_older_version_is_rebuilt(void **state) {
    struct fixture *h = *state;
    probe_do(h->probe, "HSET admitone:{hot}:life epoch 4 identity %s", look(h).identity);
    probe_do(h->probe, "SET admitone:{hot}:filling 4:node:1");
    probe_do(h->probe, "HSET queue:{OLD:1}:meta epoch 4");
    assert_int_equal(look(h).epoch, 0);
    assert_string_equal(look(h).last_rebuild, "");
    have_incarnation(h, 5, 3);
    assert_int_equal(waiting(h), 3);
    assert_int_equal(
        probe_number(h->probe,
                     "EXISTS admitone:{hot}:life admitone:{hot}:filling queue:{OLD:1}:meta"),
        0);
}

struct look_call {
    struct look_op op;
    bool is_done;
};

static void on_looked(struct look_op *l) {
    CONTAINER_OF(l, struct look_call, op)->is_done = true;
}

static enum err result_of_look(struct fixture *h) {
    struct look_call l = {.op = {.op = {.event_key = KEY, .now_ms = 1000}, .done = on_looked}};
    queues_look(redis_store_queues(h->store), &l.op);
    while (!l.is_done) uv_run(&h->loop, UV_RUN_NOWAIT); /* it may be done before it waits */
    return l.op.op.result;
}

static void attach(struct fixture *h) {
    assert_int_equal(uv_loop_init(&h->loop), 0);
    redis_store_attach(h->store, &h->loop);
    h->is_attached = true;
    int64_t until = clock_steady_ms() + WAIT_MS;
    while (!link_is_up(redis_worker_mine()->link)) {
        assert_true(clock_steady_ms() < until);
        uv_run(&h->loop, UV_RUN_ONCE);
    }
}

static void attach_in_open_incarnation(struct fixture *h) {
    struct hot_incarnation incarnation = have_incarnation(h, 4, 10);
    hot_open(h->hot, &incarnation);
    attach(h);
}

static void operations_count_while_an_incarnation_is_open(void **state) {
    struct fixture *h = *state;
    struct hot_incarnation incarnation = have_incarnation(h, 4, 10);
    attach(h);
    assert_int_equal(result_of_look(h), ERR_RECOVERING);
    hot_open(h->hot, &incarnation);
    assert_int_equal(result_of_look(h), ERR_OK);
    hot_close(h->hot);
    assert_int_equal(result_of_look(h), ERR_RECOVERING);
}

static void functions_that_were_flushed_are_loaded_again(void **state) {
    struct fixture *h = *state;
    attach_in_open_incarnation(h);
    for (int i = 0; i < 3; i++) {
        probe_do(h->probe, "FUNCTION FLUSH");
        assert_int_equal(result_of_look(h), ERR_OK);
        assert_int_equal(probe_do(h->probe, "FUNCTION LIST")->elements, 1);
    }
}

/* Pitfall 31: no operation creates the missing data; it reports the loss, and Redis is rebuilt. */
static void a_store_that_was_flushed_is_suspect(void **state) {
    struct fixture *h = *state;
    attach_in_open_incarnation(h);
    assert_int_equal(result_of_look(h), ERR_OK);
    int64_t until = clock_steady_ms() + WAIT_MS; /* wait for the report of the new connection */
    while (suspicions == 0) assert_true(clock_steady_ms() < until);
    int before = suspicions;
    probe_do(h->probe, "FLUSHALL");
    assert_int_equal(result_of_look(h), ERR_RECOVERING);
    assert_int_equal(suspicions, before + 1);
    assert_int_equal(probe_number(h->probe, "DBSIZE"), 0);
    assert_int_equal(look(h).epoch, 0);
}

static void incarnations_are_watched_through_sentinels(void **state) {
    struct fixture other = neighbour(*state, services_start(SERVICE_SENTINEL)->sentinel_url);
    assert_int_equal(look(&other).epoch, 0);
    have_incarnation(&other, 9, 0);
    redis_store_free(other.store);
    services_stop(SERVICE_SENTINEL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    log_setup((enum log_level)(LOG_ERROR + 1), LOG_LOGFMT); /* failures are made on purpose */
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        TEST(a_store_that_was_never_rebuilt_has_no_incarnation),
        TEST(an_incarnation_begins_when_everything_is_loaded),
        TEST(only_what_is_ours_is_forgotten),
        TEST(another_run_of_the_store_is_not_rebuilt),
        TEST(one_command_that_fails_fails_the_rebuild),
        TEST(a_server_that_dies_fails_the_rebuild),
        TEST(a_server_that_is_gone_is_not_rebuilt),
        TEST(an_abandoned_rebuild_is_started_again),
        TEST(a_rebuild_that_was_overtaken_spoils_nothing),
        TEST(a_rebuild_that_begins_too_late_spoils_nothing),
        TEST(a_store_that_is_flushed_during_a_rebuild_begins_no_incarnation),
        TEST(an_incarnation_may_have_a_lower_epoch_than_the_last),
        TEST(another_run_or_a_copy_of_another_has_no_incarnation),
        TEST(a_store_of_an_older_version_is_rebuilt),
        TEST(operations_count_while_an_incarnation_is_open),
        TEST(functions_that_were_flushed_are_loaded_again),
        TEST(a_store_that_was_flushed_is_suspect),
        TEST(incarnations_are_watched_through_sentinels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
