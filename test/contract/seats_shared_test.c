/* The events' seats in Redis, as several nodes share them: lost answers, the keys that remain,
 * announcements to other nodes, and the storage of a large section. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "redis_adapter.h"
#include "seats_steps.h"

#define MILLION 1000000
#define PATIENCE_MS 60000

struct fixture {
    struct seats_test h;
    redisContext *raw; /* as an operator with redis-cli */
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    seats_test_open(&f->h, &redis_adapter);
    f->raw = redisConnect("127.0.0.1", services_start(SERVICE_REDIS)->redis_port);
    assert_non_null(f->raw);
    assert_int_equal(f->raw->err, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    redisFree(f->raw);
    seats_test_close(&f->h);
    mem_free(f);
    return 0;
}

/* The answer as a number, or how many are in it. */
static int64_t ask(struct fixture *f, const char *command) {
    redisReply *r = redisCommand(f->raw, command);
    assert_non_null(r);
    assert_int_not_equal(r->type, REDIS_REPLY_ERROR);
    int64_t number = r->type == REDIS_REPLY_ARRAY ? (int64_t)r->elements : r->integer;
    freeReplyObject(r);
    return number;
}

/* ---- answers that get lost ---- */

struct claiming {
    struct claim_op op;
    enum err verdict;
    int submitted;
    bool done;
    uint32_t seats[4];
};

static enum err submit(struct claim_op *op) {
    struct claiming *c = CONTAINER_OF(op, struct claiming, op);
    c->submitted++;
    return c->verdict;
}

static void on_claimed(struct claim_op *op) {
    CONTAINER_OF(op, struct claiming, op)->done = true;
}

static void ignore(struct call *c, enum err result, const redisReply *reply) {
    (void)c;
    (void)result;
    (void)reply;
}

/* Redis executes the call and does not answer; then the connection breaks. */
static void claim_unheard(struct fixture *f, struct claiming *c, uint64_t ann) {
    static struct call silence;
    silence = (struct call){.done = ignore};
    call_begin_command(&silence);
    call_add(&silence, STR("CLIENT"));
    call_add(&silence, STR("REPLY"));
    call_add(&silence, STR("OFF"));
    link_send(redis_worker_mine()->link, &silence);
    c->op = (struct claim_op){.op = {.event_key = KEY, .now_ms = T0},
                              .request = {.id = id_of(1),
                                          .user = STR("ann"),
                                          .entry_seq = ann,
                                          .section_key = FLOOR,
                                          .count = 3},
                              .seats = c->seats,
                              .submit = submit,
                              .done = on_claimed};
    seats_claim(f->h.s.seats, &c->op);
    int64_t deadline_ms = clock_steady_ms() + PATIENCE_MS;
    while (ask(f, "HLEN claim:{TEST:7}") == 0) {
        assert_true(clock_steady_ms() < deadline_ms);
        uv_run(&redis_loop, UV_RUN_NOWAIT);
    }
    assert_false(c->done);
    ask(f, "CLIENT KILL TYPE normal SKIPME yes");
    store_wait(&f->h.s, &c->done);
}

static void a_repeated_claim_whose_answer_was_lost_reports_what_it_did(void **state) {
    struct fixture *f = *state;
    struct claiming c = {.verdict = ERR_OK};
    claim_unheard(f, &c, seats_test_admit(&f->h, "ann"));
    assert_int_equal(c.op.op.result, ERR_OK);
    assert_int_equal(c.op.outcome, CLAIM_THERE);
    assert_true(c.op.reservation.pending);
    assert_int_equal(number_of(&c.op.reservation.id), 1);
    assert_int_equal(c.op.seat_count, 3);
    assert_int_equal(c.seats[2], 3);
    assert_int_equal(c.submitted, 1);
    assert_true(c.op.op.epoch > 0);
    assert_seats(&f->h.s, FLOOR, 97, 3, 0);
    assert_true(step_settle_claim(&f->h.s, KEY, 1, true));
}

static void
a_claim_that_submit_refuses_is_undone_though_its_answer_was_lost_pitfall_26(void **state) {
    struct fixture *f = *state;
    struct claiming c = {.verdict = ERR_OVERLOADED};
    claim_unheard(f, &c, seats_test_admit(&f->h, "ann"));
    assert_int_equal(c.op.op.result, ERR_OVERLOADED);
    assert_int_equal(c.submitted, 1);
    assert_seats(&f->h.s, FLOOR, 100, 0, 0);
    assert_false(step_settle_claim(&f->h.s, KEY, 1, true));
}

/* ---- keys that remain ---- */

static void what_has_ended_leaves_nothing_behind(void **state) {
    struct fixture *f = *state;
    struct store *s = &f->h.s;
    uint64_t ann = seats_test_admit(&f->h, "ann");
    static const uint32_t named[] = {50, 40};
    claim_named(s, 1, "ann", ann, FLOOR, named, 2);
    claim_any(s, 2, "ann", ann, BALCONY, 1);
    claim_any(s, 3, "ann", ann, FLOOR, 1);
    assert_int_equal(ask(f, "ZCARD claim:{TEST:7}:pending"), 3);
    assert_true(step_settle_claim(s, KEY, 1, true));
    assert_false(step_settle_claim(s, KEY, 2, false));
    assert_int_equal(ask(f, "HLEN claim:{TEST:7}"), 2);
    assert_true(step_follow(s, KEY, 1, RESERVATION_CONFIRMED));
    assert_true(step_follow(s, KEY, 3, RESERVATION_CANCELLED));
    assert_int_equal(ask(f, "HLEN section:{TEST:7}:31:slots"), 2);
    assert_int_equal(ask(f, "ZCARD section:{TEST:7}:31:free"), 3);
    assert_true(step_follow(s, KEY, 1, RESERVATION_CANCELLED));
    assert_int_equal(ask(f, "KEYS claim:*"), 0);
    assert_int_equal(ask(f, "KEYS limit:*"), 0);
    assert_int_equal(ask(f, "KEYS section:*:slots"), 0);
    assert_int_equal(ask(f, "ZCARD section:{TEST:7}:31:free"), 1);
    assert_int_equal(ask(f, "ZCARD section:{TEST:7}:31:runs"), 1);
    f->h.e.section_count = 1;
    seats_test_configure(&f->h);
    assert_int_equal(ask(f, "KEYS section:*"), 1 + 4);
    step_remove(s, KEY, f->h.e.version + 1);
    assert_int_equal(ask(f, "KEYS section:*"), 0);
}

/* ---- an event that was made again ---- */

#define NEXT_KEY 9

/* A call of a node that does not know that the event was removed and another one of its name
 * created. */
static void a_request_for_an_event_that_was_recreated_gets_no_seats(void **state) {
    struct fixture *f = *state;
    struct store *s = &f->h.s;
    struct event again = f->h.e;
    uint64_t ann = seats_test_admit(&f->h, "ann");
    step_remove(s, KEY, f->h.e.version + 1);
    snprintf(again.type, sizeof again.type, "TEST");
    snprintf(again.id, sizeof again.id, "%d", KEY);
    again.key = NEXT_KEY;
    again.version += 2;
    step_configure(s, &again);
    uint64_t bob = step_take_kept(s, NEXT_KEY, "bob", T0);
    struct claim_request spec = {
        .id = id_of(1), .user = STR("bob"), .entry_seq = bob, .section_key = FLOOR, .count = 2};
    assert_int_equal(claim_any(s, 1, "ann", ann, FLOOR, 2).result, ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_claim(s, KEY, &spec, T0).result, ERR_EVENT_NOT_FOUND);
    assert_int_equal(ask(f, "KEYS claim:*"), 0);
    assert_int_equal(step_claim(s, NEXT_KEY, &spec, T0).result, ERR_OK);
    char letters[5];
    size_t count;
    assert_int_equal(step_render(s, KEY, FLOOR, 1, letters, 4, &count), ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_render(s, NEXT_KEY, FLOOR, 1, letters, 4, &count), ERR_OK);
    assert_string_equal(letters, "HHAA");
    /* Updates about the old event's reservations do not apply to the new one's. */
    assert_false(step_follow(s, KEY, 1, RESERVATION_CANCELLED));
    assert_int_equal(step_section(s, NEXT_KEY, FLOOR).seats.held, 2);
}

/* ---- announcements to other nodes ---- */

static redisContext *subscriber_new(void) {
    redisContext *to = redisConnect("127.0.0.1", services_start(SERVICE_REDIS)->redis_port);
    assert_non_null(to);
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    redisSetTimeout(to, patience);
    freeReplyObject(redisCommand(to, "SUBSCRIBE " ENTRIES_CHANNEL));
    return to;
}

/* Whether it was announced, since the last call, that the event's stock has changed. */
static bool has_heard_of_stock(struct fixture *f, redisContext *to) {
    bool has_heard = false;
    bool is_last = false;
    ask(f, "PUBLISH " ENTRIES_CHANNEL " last");
    while (!is_last) {
        void *reply = NULL;
        assert_int_equal(redisGetReply(to, &reply), REDIS_OK);
        str message = reply_str(reply_at(reply, 2));
        has_heard |= str_eq(message, STR("- TEST:7 all"));
        is_last = str_eq(message, STR("last"));
        freeReplyObject(reply);
    }
    return has_heard;
}

static void sync_seats(struct fixture *f, unsigned char id, enum reservation_status status,
                       uint32_t first, size_t count) {
    const uint32_t seats[] = {first, first + 1};
    struct live_reservation r = {.id = id_of(id),
                                 .section_key = FLOOR,
                                 .entry_seq = 99,
                                 .status = status,
                                 .expires_ms = T0 + HOLD_MS,
                                 .user = STR("ann"),
                                 .seats = seats,
                                 .seat_count = count};
    assert_int_equal(step_sync(&f->h.s, KEY, &r, FLOOR, NULL, 0), 1);
}

/* As when the node that wrote a hold and its confirmation died before Redis had them. */
static void seats_that_follow_the_ledger_announce_that_the_event_is_sold_out_too(void **state) {
    struct fixture *f = *state;
    static const uint32_t second = 2;
    redisContext *to = subscriber_new();
    f->h.e.section_count = 1;
    f->h.sections[0].capacity = 2;
    seats_test_configure(&f->h);
    assert_false(has_heard_of_stock(f, to));
    sync_seats(f, 1, RESERVATION_CONFIRMED, 1, 1);
    assert_false(has_heard_of_stock(f, to));
    sync_seats(f, 2, RESERVATION_CONFIRMED, 2, 1);
    assert_true(has_heard_of_stock(f, to));
    assert_int_equal(step_sync(&f->h.s, KEY, NULL, FLOOR, &second, 1), 1);
    assert_true(has_heard_of_stock(f, to));
    sync_seats(f, 3, RESERVATION_HELD, 2, 1);
    assert_false(has_heard_of_stock(f, to));
    sync_seats(f, 4, RESERVATION_CONFIRMED, 1, 2); /* whoever has them */
    assert_true(has_heard_of_stock(f, to));
    sync_seats(f, 5, RESERVATION_HELD, 1, 1);
    assert_true(has_heard_of_stock(f, to));
    assert_seats(&f->h.s, FLOOR, 0, 1, 1);
    redisFree(to);
}

/* ---- a large section ---- */

static void a_million_seats_are_a_few_keys_and_shown_at_once(void **state) {
    struct fixture *f = *state;
    struct store *s = &f->h.s;
    uint64_t ann = seats_test_admit(&f->h, "ann");
    f->h.sections[0].capacity = MILLION;
    seats_test_configure(&f->h);
    static const uint32_t ends[] = {1, 500000, MILLION};
    assert_int_equal(claim_named(s, 1, "ann", ann, FLOOR, ends, 3).outcome, CLAIM_DONE);
    assert_int_equal(claim_any(s, 2, "ann", ann, FLOOR, 1).seats[0], 2);
    assert_int_equal(ask(f, "ZCARD section:{TEST:7}:31:free"), 2);
    char *map = mem_new(MILLION + 1);
    size_t count;
    assert_int_equal(step_render(s, KEY, FLOOR, 1, map, MILLION, &count), ERR_OK);
    assert_int_equal(count, MILLION);
    size_t held = 0;
    for (size_t i = 0; i < count; i++) held += map[i] == 'H';
    assert_int_equal(held, 4);
    assert_true(map[0] == 'H' && map[1] == 'H' && map[499999] == 'H' && map[MILLION - 1] == 'H');
    assert_int_equal(step_render(s, KEY, FLOOR, 499999, map, 3, &count), ERR_OK);
    assert_string_equal(map, "AHA");
    mem_free(map);
    assert_seats(s, FLOOR, MILLION - 4, 4, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_repeated_claim_whose_answer_was_lost_reports_what_it_did),
        TEST(a_claim_that_submit_refuses_is_undone_though_its_answer_was_lost_pitfall_26),
        TEST(what_has_ended_leaves_nothing_behind),
        TEST(a_request_for_an_event_that_was_recreated_gets_no_seats),
        TEST(seats_that_follow_the_ledger_announce_that_the_event_is_sold_out_too),
        TEST(a_million_seats_are_a_few_keys_and_shown_at_once),
    };
#undef TEST
    return cmocka_run_group_tests_name("seats in Redis, shared", tests, NULL, NULL);
}
