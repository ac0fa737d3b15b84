/* The streams of boards, with a store that answers when the test says so. All on one thread. */
#include "api/rankings_live.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/rankings.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "site_fixture.h"
#include "wall_clock.h"

/* Everything happens within this, or the test fails. */
#define PATIENCE_MS 60000
#define SECOND_MS 1000
#define CLIENTS_MAX 200
#define EVENTS TOP_DEFAULT

/* A store that has one board, and shows it later. */
struct slow_boards {
    struct boards boards;
    struct board_top_op *asked; /* NULL: nothing is */
    int looks;
    int64_t looked_ms; /* by the steady clock, when it was last asked */
    bool is_hurried;   /* it was asked again too soon, or while it was asked */
};

struct client {
    int fd;
    struct buf in;
    bool is_deaf; /* reads nothing */
    bool is_over; /* the server has closed */
};

struct fixture {
    struct slow_boards slow;
    struct site_fixture site;
    struct client clients[CLIENTS_MAX];
    size_t client_count;
};

static struct fixture fix;

/* ---- the store ---- */

static void keep(struct boards *b, struct board_top_op *op) {
    struct slow_boards *slow = CONTAINER_OF(b, struct slow_boards, boards);
    int64_t now_ms = clock_steady_ms();
    if (slow->looks > 0 && now_ms - slow->looked_ms < SECOND_MS / 2) slow->is_hurried = true;
    slow->looks++;
    slow->looked_ms = now_ms;
    if (slow->asked == NULL) {
        slow->asked = op;
        return;
    }
    slow->is_hurried = true;
    op->result = ERR_HOT_UNAVAILABLE;
    op->done(op);
}

static const struct boards_ops slow_ops = {.top = keep};

/* Shows `count` events, each with these reservations. */
static void show(size_t events, int64_t reservations) {
    struct board_top_op *op = fix.slow.asked;
    assert_non_null(op);
    for (size_t i = 0; i < events; i++)
        op->rows[i] = (struct board_row){
            .rank = i + 1, .sales = {.event_key = (int64_t)i + 1, .reservations = reservations}};
    op->count = events;
    op->result = ERR_OK;
    fix.slow.asked = NULL;
    op->done(op);
}

static void refuse(void) {
    struct board_top_op *op = fix.slow.asked;
    assert_non_null(op);
    op->result = ERR_HOT_UNAVAILABLE;
    fix.slow.asked = NULL;
    op->done(op);
}

/* ---- the clients ---- */

static void read_some(struct client *c) {
    ssize_t got = read(c->fd, buf_reserve(&c->in, 65536), 65536);
    if (got > 0)
        c->in.len += (size_t)got;
    else
        c->is_over = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static void run_once(void) {
    uv_run(&fix.site.worker.loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < fix.client_count; i++) {
        struct client *c = &fix.clients[i];
        if (c->fd >= 0 && !c->is_deaf && !c->is_over) read_some(c);
    }
    usleep(500);
}

static void run_for(int64_t ms) {
    for (int64_t end_ms = clock_steady_ms() + ms; clock_steady_ms() < end_ms;) run_once();
}

static struct client *dial(const char *board, int receive_bytes) {
    assert_true(fix.client_count < CLIENTS_MAX);
    struct client *c = &fix.clients[fix.client_count++];
    char path[64];
    snprintf(path, sizeof path, "/rankings/stream?board=%s", board);
    c->fd = site_fixture_get(&fix.site, path, receive_bytes);
    return c;
}

static void hang_up(struct client *c) {
    close(c->fd);
    c->fd = -1;
}

static void await_text(struct client *c, const char *text) {
    int64_t give_up_ms = clock_steady_ms() + PATIENCE_MS;
    while (strstr(buf_cstr(&c->in), text) == NULL) {
        if (c->is_over || clock_steady_ms() > give_up_ms)
            fail_msg("no %s in: %s", text, buf_cstr(&c->in));
        run_once();
    }
}

static struct client *open_stream(const char *board) {
    struct client *c = dial(board, 0);
    await_text(c, "Content-Type: text/event-stream\r\n");
    await_text(c, "\r\n\r\n");
    return c;
}

static void await_looks(int looks) {
    int64_t give_up_ms = clock_steady_ms() + PATIENCE_MS;
    while (fix.slow.looks < looks) {
        if (clock_steady_ms() > give_up_ms) fail_msg("%d looks, not %d", fix.slow.looks, looks);
        run_once();
    }
    assert_int_equal(fix.slow.looks, looks);
}

static int events_of(struct client *c) {
    int n = 0;
    for (const char *at = buf_cstr(&c->in); (at = strstr(at, "event: ranking\n")) != NULL; at++)
        n++;
    return n;
}

static int64_t open_streams(void) {
    return (int64_t)(counter_total(COUNT_SSE_OPENED) - counter_total(COUNT_SSE_CLOSED));
}

/* ---- set-up ---- */

/* Quotes, which are two bytes each when they are sent. */
static void install_events(struct catalogue *catalogue) {
    for (int64_t key = 1; key <= EVENTS; key++) {
        struct event *e = event_new(1);
        str_copy(STR("CONCERT"), e->type, sizeof e->type);
        snprintf(e->id, sizeof e->id, "%lld", (long long)key);
        memset(e->title, '"', EVENT_TITLE_BYTES_MAX);
        e->key = key;
        e->state = EVENT_OPEN;
        e->version = 1;
        catalogue_install(catalogue, e);
    }
}

static int set_up(void **state) {
    (void)state;
    memset(&fix, 0, sizeof fix);
    fix.slow.boards.ops = &slow_ops;
    fix.site.api.boards = &fix.slow.boards;
    site_fixture_open(&fix.site, CLIENTS_MAX, 1024);
    install_events(fix.site.api.events.catalogue);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    site_fixture_drain(&fix.site);
    if (fix.slow.asked != NULL) refuse(); /* an answer that was long under way */
    site_fixture_close(&fix.site);
    for (size_t i = 0; i < fix.client_count; i++) {
        if (fix.clients[i].fd >= 0) close(fix.clients[i].fd);
        buf_deinit(&fix.clients[i].in);
    }
    wall_clock_release();
    assert_int_equal(open_streams(), 0);
    assert_false(fix.slow.is_hurried);
    return 0;
}

/* ---- the tests ---- */

/* Waits until all subscribers have got that many reservations. On a busy machine this may take more
 * than a second; until then the store gives the same answers. */
static void await_all_shown(int64_t reservations, const char *text) {
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        int64_t give_up_ms = clock_steady_ms() + PATIENCE_MS;
        while (strstr(buf_cstr(&fix.clients[i].in), text) == NULL) {
            if (clock_steady_ms() > give_up_ms) fail_msg("client %zu did not hear %s", i, text);
            if (fix.slow.asked != NULL) show(1, reservations);
            run_once();
        }
    }
}

/* That looks are a second apart is seen by the store. */
static void one_read_a_second_serves_all_and_none_is_made_without_a_reader(void **state) {
    (void)state;
    for (size_t i = 0; i < CLIENTS_MAX; i++) open_stream("soldout");
    await_looks(1);
    await_all_shown(5, "\"reservationCount\":5,");
    for (size_t i = 0; i < CLIENTS_MAX; i++) await_text(&fix.clients[i], "\nretry: ");
    await_looks(fix.slow.looks + (fix.slow.asked == NULL));
    await_all_shown(6, "\"reservationCount\":6,");
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        assert_int_equal(events_of(&fix.clients[i]), 2);
        hang_up(&fix.clients[i]);
    }
    while (open_streams() > 0) run_once();
    int looks = fix.slow.looks;
    run_for(SECOND_MS + 500);
    assert_int_equal(fix.slow.looks, looks);
}

static void a_reader_within_the_same_second_gets_the_known_state_at_once(void **state) {
    (void)state;
    struct client *first = open_stream("weekly");
    await_looks(1);
    show(1, 5);
    await_text(first, "\"reservationCount\":5,");
    run_for(SECOND_MS / 2);
    struct client *second = open_stream("weekly");
    /* Before the next look is answered. */
    await_text(second, "\"reservationCount\":5,");
    int64_t told_ms = clock_steady_ms();
    /* The next look comes before its own second is over. */
    await_looks(2);
    show(1, 6);
    await_text(first, "\"reservationCount\":6,");
    await_text(second, "\"reservationCount\":6,");
    assert_true(clock_steady_ms() - told_ms >= SECOND_MS / 2);
    assert_int_equal(events_of(second), 2);
}

static void a_store_that_fails_is_asked_again_and_they_stay(void **state) {
    (void)state;
    struct client *c = open_stream("daily");
    await_looks(1);
    refuse();
    struct client *later = open_stream("daily");
    await_looks(2);
    refuse();
    assert_int_equal(events_of(c) + events_of(later), 0);
    await_looks(3);
    show(2, 5);
    await_text(c, "\"reservationCount\":5,");
    await_text(later, "\"reservationCount\":5,");
    await_looks(4);
    refuse();
    await_looks(5);
    show(2, 5);
    run_for(100);
    assert_int_equal(events_of(c), 1);
    assert_int_equal(open_streams(), 2);
}

static void when_the_day_ends_the_next_one_is_shown(void **state) {
    (void)state;
    wall_clock_set(INT64_C(1798761599000)); /* 2026-12-31T23:59:59Z */
    struct client *c = open_stream("daily");
    await_looks(1);
    assert_string_equal(period_span(fix.slow.asked->board.period, fix.slow.asked->board.at_ms).name,
                        "20261231");
    show(1, 5);
    await_text(c, "\"period\":\"daily\",\"date\":\"2026-12-31\"");
    wall_clock_advance(1000);
    await_looks(2);
    assert_string_equal(period_span(fix.slow.asked->board.period, fix.slow.asked->board.at_ms).name,
                        "20270101");
    show(0, 0);
    await_text(c, "\"date\":\"2027-01-01\"");
    await_text(
        c, "\"rankings\":[],\"serverTime\":\"2027-01-01T00:00:00.000Z\"}\nid: 1798761600000\n\n");
    wall_clock_advance(1000);
    await_looks(3);
    show(0, 0);
    run_for(100);
    assert_int_equal(events_of(c), 2); /* the time alone is no change */
}

static void a_client_that_disconnects_during_a_read_does_no_harm(void **state) {
    (void)state;
    struct client *gone = open_stream("monthly");
    struct client *stays = open_stream("monthly");
    await_looks(1);
    hang_up(gone);
    while (open_streams() > 1) run_once();
    show(1, 5);
    await_text(stays, "\"reservationCount\":5,");
    await_looks(2);
    site_fixture_drain(&fix.site);
    run_once();
    assert_true(stays->is_over);
    show(1, 6); /* to no subscriber */
}

/* One whole board is more than a reader may lag: that alone is no reason to cut it. */
static void a_reader_that_lags_is_cut_and_the_others_are_not(void **state) {
    (void)state;
    int64_t dropped = (int64_t)counter_total(COUNT_SSE_DROPPED);
    struct client *reads = open_stream("soldout");
    struct client *deaf = dial("soldout", 1);
    deaf->is_deaf = true;
    while (open_streams() < 2) run_once();
    int looks = 0;
    while (open_streams() == 2) {
        await_looks(++looks);
        show(EVENTS, looks);
        run_once();
        assert_true(looks < 10);
    }
    char last[40];
    snprintf(last, sizeof last, "\"reservationCount\":%d,", looks);
    await_text(reads, last);
    assert_int_equal(events_of(reads), looks);
    assert_int_equal(counter_total(COUNT_SSE_DROPPED) - (uint64_t)dropped, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(one_read_a_second_serves_all_and_none_is_made_without_a_reader),
        TEST(a_reader_within_the_same_second_gets_the_known_state_at_once),
        TEST(a_store_that_fails_is_asked_again_and_they_stay),
        TEST(when_the_day_ends_the_next_one_is_shown),
        TEST(a_client_that_disconnects_during_a_read_does_no_harm),
        TEST(a_reader_that_lags_is_cut_and_the_others_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
