/* The streams of places, with a store that answers when the test says so. All on one thread. */
#include "api/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/queue_token.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "site_fixture.h"

/* Everything happens within this, or the test fails. */
#define PATIENCE_MS 60000
/* So far from the head, a place is looked at every ten of these, which is much later than that. */
#define PUSH_MS 16000
#define POSITION 20000
#define KEY 1
#define SEQ 20001
#define USER "ann"

/* A store that has one place, and shows it later. */
struct slow_queues {
    struct queues queues;
    struct look_op *asked; /* NULL: nothing is */
    int looks;
};

struct fixture {
    struct slow_queues slow;
    struct site_fixture site;
    bool announced;
    int fd; /* the client's */
    struct buf in;
};

static struct fixture fix;

/* ---- the store ---- */

static void keep(struct queues *q, struct look_op *op) {
    struct slow_queues *slow = CONTAINER_OF(q, struct slow_queues, queues);
    assert_null(slow->asked);
    slow->asked = op;
    slow->looks++;
}

static void do_not_listen(struct queues *q, struct queue_listener listener) {
    (void)q;
    (void)listener;
}

static const struct queue_ops slow_ops = {.look = keep, .listen = do_not_listen};

static void answer(enum err result, enum entry_status status, struct seat_counts seats) {
    struct look_op *op = fix.slow.asked;
    assert_non_null(op);
    assert_int_equal(op->count, 1);
    assert_int_equal(op->items[0].seq, SEQ);
    op->items[0].place = (struct place){.status = status,
                                        .seq = SEQ,
                                        .position = status == ENTRY_WAITING ? POSITION : 0,
                                        .waiting = POSITION};
    op->seats = seats;
    op->counts.waiting = POSITION;
    op->state = EVENT_OPEN;
    op->user_len = 0;
    if (op->user != NULL) {
        memcpy(op->user, USER, strlen(USER));
        op->user_len = strlen(USER);
    }
    op->op.result = result;
    fix.slow.asked = NULL;
    op->done(op);
}

static void show_held(uint32_t held) {
    answer(ERR_OK, ENTRY_WAITING, (struct seat_counts){.held = held, .confirmed = 100 - held});
}

/* ---- the client ---- */

static void run_once(void) {
    uv_run(&fix.site.worker.loop, UV_RUN_NOWAIT);
    if (fix.fd >= 0) {
        ssize_t got = read(fix.fd, buf_reserve(&fix.in, 65536), 65536);
        if (got > 0) fix.in.len += (size_t)got;
    }
    usleep(500);
}

static void await_text(const char *text) {
    int64_t give_up_ms = clock_steady_ms() + PATIENCE_MS;
    while (strstr(buf_cstr(&fix.in), text) == NULL) {
        if (clock_steady_ms() > give_up_ms) fail_msg("no %s in: %s", text, buf_cstr(&fix.in));
        run_once();
    }
}

static void await_looks(int looks) {
    int64_t give_up_ms = clock_steady_ms() + PATIENCE_MS;
    while (fix.slow.looks < looks) {
        if (clock_steady_ms() > give_up_ms) fail_msg("%d looks, not %d", fix.slow.looks, looks);
        run_once();
    }
    assert_int_equal(fix.slow.looks, looks);
}

/* Returns when the place is looked at for the stream's first event. */
static void request_stream(void) {
    struct queue_event event;
    char token[TOKEN_TEXT_BYTES];
    assert_true(queue_event_find_key(&fix.site.api, KEY, NULL, &event));
    struct place place = {.status = ENTRY_WAITING, .seq = SEQ, .lane = LANE_DEFAULT};
    queue_token_sign(&fix.site.api_worker, &event, STR(USER), &place, clock_wall_ms(), token);
    char path[64 + TOKEN_TEXT_BYTES];
    snprintf(path, sizeof path, "/queue/CONCERT/1/subscribe/%.*s", (int)sizeof token, token);
    fix.fd = site_fixture_get(&fix.site, path, 0);
    await_looks(1);
}

static void open_stream(void) {
    request_stream();
    show_held(1);
    await_text("\"heldSeats\":1,");
}

static void on_announced(struct task *task) {
    (void)task;
    fix.announced = true;
}

/* Returns when the worker has read the announcement. */
static void announce(const uint64_t *seqs, size_t count) {
    struct task behind = {.run = on_announced};
    fix.announced = false;
    live_announce(&fix.site.api, KEY, seqs, count);
    mailbox_post(&fix.site.worker.mailbox, &behind);
    while (!fix.announced) run_once();
}

/* ---- set-up ---- */

static void install_event(struct catalogue *catalogue, int64_t version, const char *notice) {
    struct event *e = event_new_like(&(struct event){.notice = str_of(notice)}, 1);
    str_copy(STR("CONCERT"), e->type, sizeof e->type);
    str_copy(STR("1"), e->id, sizeof e->id);
    e->key = KEY;
    e->state = EVENT_OPEN;
    e->opens_at_ms = CLOCK_NONE_MS;
    e->closes_at_ms = CLOCK_NONE_MS;
    e->version = version;
    e->queue.grace_s = 86400;
    catalogue_install(catalogue, e);
}

static int set_up(void **state) {
    (void)state;
    memset(&fix, 0, sizeof fix);
    fix.fd = -1;
    struct api *api = &fix.site.api;
    fix.slow.queues.ops = &slow_ops;
    api->room.queues = &fix.slow.queues;
    waiting_room_init(&api->room);
    api->push_interval_ms = PUSH_MS;
    fix.site.api_worker.tokens = token_box_new(STR("0123456789abcdef0123456789abcdef"), STR(""));
    site_fixture_open(&fix.site, 10, 65536);
    install_event(api->events.catalogue, 1, "");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    site_fixture_drain(&fix.site);
    if (fix.slow.asked != NULL) show_held(0); /* the place of a stream that has ended */
    site_fixture_close(&fix.site);
    token_box_free(fix.site.api_worker.tokens);
    waiting_room_deinit(&fix.site.api.room);
    close(fix.fd);
    buf_deinit(&fix.in);
    return 0;
}

/* ---- the tests ---- */

static void all_are_looked_at_again_when_it_sells_out_during_a_look(void **state) {
    (void)state;
    open_stream();
    announce(NULL, 0);
    await_looks(2);
    announce(NULL, 0);
    assert_int_equal(fix.slow.looks, 2);
    show_held(1); /* read before the last sale */
    await_looks(3);
    show_held(0);
    await_text("\"soldOut\":true,");
}

static void a_place_that_ends_during_a_look_is_looked_at_again(void **state) {
    (void)state;
    static const uint64_t seq = SEQ;
    open_stream();
    announce(&seq, 1);
    await_looks(2);
    announce(&seq, 1);
    assert_int_equal(fix.slow.looks, 2);
    show_held(1);
    await_looks(3);
    answer(ERR_OK, ENTRY_EXPIRED, (struct seat_counts){.confirmed = 100});
    await_text("\"status\":\"EXPIRED\",");
}

static void a_stream_that_is_opened_while_it_sells_out_is_looked_at_again(void **state) {
    (void)state;
    request_stream();
    announce(NULL, 0);
    assert_int_equal(fix.slow.looks, 1);
    show_held(1); /* read before the last sale */
    await_text("\"heldSeats\":1,");
    await_looks(2);
    show_held(0);
    await_text("\"soldOut\":true,");
}

static void a_stream_that_is_opened_while_its_place_ends_is_looked_at_again(void **state) {
    (void)state;
    static const uint64_t seq = SEQ;
    request_stream();
    announce(&seq, 1);
    assert_int_equal(fix.slow.looks, 1);
    show_held(1);
    await_looks(2);
    answer(ERR_OK, ENTRY_EXPIRED, (struct seat_counts){.confirmed = 100});
    await_text("\"status\":\"EXPIRED\",");
}

static void a_stream_that_is_refused_leaves_nothing_behind(void **state) {
    (void)state;
    request_stream();
    announce(NULL, 0);
    answer(ERR_HOT_UNAVAILABLE, ENTRY_NONE, (struct seat_counts){0});
    await_text("HTTP/1.1 503 ");
}

/* Else the place would be looked at after ten intervals, when the test has given up. */
static void a_new_notice_is_sent_at_the_next_tick(void **state) {
    (void)state;
    open_stream();
    assert_non_null(strstr(buf_cstr(&fix.in), "\"notice\":null,"));
    install_event(fix.site.api.events.catalogue, 2, "Two \"more\"\nminutes");
    await_looks(2);
    show_held(1);
    await_text("\"notice\":\"Two \\\"more\\\"\\nminutes\",");
    install_event(fix.site.api.events.catalogue, 3, "");
    await_looks(3);
    buf_clear(&fix.in);
    show_held(1);
    await_text("\"notice\":null,");
}

static void a_notice_that_changes_during_a_look_is_sent(void **state) {
    (void)state;
    open_stream();
    announce(NULL, 0);
    await_looks(2);
    install_event(fix.site.api.events.catalogue, 2, "Soon");
    show_held(1);
    await_text("\"notice\":\"Soon\",");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_are_looked_at_again_when_it_sells_out_during_a_look,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_place_that_ends_during_a_look_is_looked_at_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_stream_that_is_opened_while_it_sells_out_is_looked_at_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_stream_that_is_opened_while_its_place_ends_is_looked_at_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_that_is_refused_leaves_nothing_behind, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_new_notice_is_sent_at_the_next_tick, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_notice_that_changes_during_a_look_is_sent, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
