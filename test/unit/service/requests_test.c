/* Asynchronous requests of which the ledger does not say whether the hold was written. */
#include "service/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "feed/local.h"
#include "seats_fixture.h"

#define FAILS_UNTIL_TOLD 1000000

struct client {
    struct seats_fixture *s;
    struct requests service;
    struct requests_worker worker;
    struct request_acceptance acceptance;
    bool is_accepted;
    bool is_decided;
    struct requests_look look;
    struct request *found;
    int64_t ahead;
    bool is_looked;
    struct claim_info claim; /* the user's */
};

static void on_decided(void *to, const struct uuid *ids, size_t count) {
    (void)ids;
    (void)count;
    ((struct client *)to)->is_decided = true;
}

static void begin(struct client *c, struct seats_fixture *s) {
    struct fixture *f = &s->fixture;
    *c = (struct client){.s = s};
    seats_fixture_make_faulty(s);
    c->service = (struct requests){.feed = local_feed_new(f->ledger, 1, false),
                                   .ledger = f->ledger,
                                   .events = &f->events,
                                   .reservations = &f->reservations,
                                   .decides = true,
                                   .decided = on_decided,
                                   .to = c};
    c->worker = (struct requests_worker){.service = &c->service, .lock_client = &f->lock_client};
    requests_worker_init(&c->worker, &f->h.loop);
    requests_worker_start(&c->worker);
}

static bool is_quiet(void *arg) {
    return !requests_is_busy(&((struct client *)arg)->service);
}

static void end(struct client *c) {
    requests_worker_drain(&c->worker);
    harness_wait(&c->s->fixture.h, is_quiet, c);
    requests_worker_close(&c->worker);
    feed_close(c->service.feed);
}

static void on_accepted(struct request_acceptance *a) {
    CONTAINER_OF(a, struct client, acceptance)->is_accepted = true;
}

static bool is_accepted(void *arg) {
    return ((struct client *)arg)->is_accepted;
}

static struct uuid accept_request(struct client *c, const char *user, uint64_t seq) {
    struct fixture *f = &c->s->fixture;
    struct event *e = fixture_event(f);
    struct section_names names = {"CONCERT", "1", "A"};
    struct request r = {.id = uuid_new(clock_wall_ms()),
                        .event_key = e->key,
                        .section_key = e->sections[FIXTURE_SLOT].key,
                        .entry_seq = seq,
                        .strategy = STRATEGY_QUEUE,
                        .quantity = 1,
                        .created_ms = clock_wall_ms(),
                        .finished_ms = CLOCK_NONE_MS};
    assert_true(str_copy(str_of(user), r.user, sizeof r.user));
    mem_free(e);
    c->acceptance = (struct request_acceptance){
        .publish = {.request = &r, .names = &names, .may_rename = true}, .done = on_accepted};
    requests_accept(&c->worker, &c->acceptance);
    harness_wait(&f->h, is_accepted, c);
    assert_int_equal(c->acceptance.publish.result, ERR_OK);
    return c->acceptance.publish.id;
}

static void on_looked(struct requests_look *l, enum err result) {
    assert_int_equal(result, ERR_OK);
    CONTAINER_OF(l, struct client, look)->is_looked = true;
}

static bool is_looked(void *arg) {
    return ((struct client *)arg)->is_looked;
}

static bool is_decided(void *arg) {
    return ((struct client *)arg)->is_decided;
}

/* The request when it is decided; mem_free frees it. */
static const struct request *decided(struct client *c, const struct uuid *id) {
    harness_wait(&c->s->fixture.h, is_decided, c);
    c->look = (struct requests_look){
        .ids = id, .count = 1, .found = &c->found, .ahead = &c->ahead, .done = on_looked};
    requests_look(&c->worker, &c->look);
    harness_wait(&c->s->fixture.h, is_looked, c);
    assert_non_null(c->found);
    return c->found;
}

/* The user's claim is in the hot store, and its record was answered. */
static bool has_failed(void *arg) {
    struct client *c = arg;
    return c->s->faulty.fails < FAILS_UNTIL_TOLD &&
           fixture_holds(&c->s->fixture, "ann", &c->claim, 1) == 1;
}

/* As service/finish_pending does, when it finds a claim that stays pending. */
static void undo_claim(struct client *c) {
    struct fixture *f = &c->s->fixture;
    struct event *e = fixture_event(f);
    struct reservation of = {
        .id = c->claim.id, .event_key = e->key, .section_key = e->sections[FIXTURE_SLOT].key};
    struct test_record r;
    mem_free(e);
    test_hold_void(&r, &of, clock_wall_ms());
    assert_int_equal(harness_submit(&f->h, f->ledger, &r), ERR_OK);
    assert_true(r.undo.voided);
}

static void a_request_whose_claim_was_undone_is_decided_by_another_claim(void **state) {
    struct seats_fixture *s = *state;
    static struct client c; /* it is closed after the test */
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    begin(&c, s);
    s->faulty.why = ERR_LEDGER_UNKNOWN;
    s->faulty.fails = FAILS_UNTIL_TOLD;
    struct uuid id = accept_request(&c, "ann", ann);
    harness_wait(&s->fixture.h, has_failed, &c);
    assert_true(c.claim.pending);
    undo_claim(&c);
    s->faulty.fails = 0;
    assert_string_equal(decided(&c, &id)->reason, "");
    assert_int_equal(c.found->status, REQUEST_SUCCESS);
    assert_false(uuid_eq(&c.found->reservation, &c.claim.id));
    mem_free(c.found);
    end(&c);
}

static void a_request_whose_claim_was_not_written_is_decided_by_the_same_claim(void **state) {
    struct seats_fixture *s = *state;
    static struct client c; /* it is closed after the test */
    uint64_t ann = fixture_admit(&s->fixture, "ann");
    begin(&c, s);
    s->faulty.why = ERR_LEDGER_UNKNOWN;
    s->faulty.fails = FAILS_UNTIL_TOLD;
    struct uuid id = accept_request(&c, "ann", ann);
    harness_wait(&s->fixture.h, has_failed, &c);
    s->faulty.fails = 0;
    assert_int_equal(decided(&c, &id)->status, REQUEST_SUCCESS);
    assert_true(uuid_eq(&c.found->reservation, &c.claim.id));
    mem_free(c.found);
    end(&c);
}

int main(void) {
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, seats_fixture_set_up, seats_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_request_whose_claim_was_undone_is_decided_by_another_claim),
        TEST(a_request_whose_claim_was_not_written_is_decided_by_the_same_claim),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
