/* The part of the ledger's contract that keeps queues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ledger_suite.h"

static const struct ledger_adapter *adapter;

struct fixture {
    struct harness h;
    struct ledger *l;
    int64_t key; /* of CONCERT/1 */
};

static int64_t store(struct fixture *f, const char *id) {
    struct event *wanted = test_event(id, 1);
    struct event *stored = harness_store(&f->h, f->l, wanted);
    int64_t key = stored->key;
    mem_free(stored);
    mem_free(wanted);
    return key;
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->l = adapter->open(&f->h, 0);
    f->key = store(f, "1");
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ledger_close(f->l);
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

/* ---- what load tells of queues ---- */

struct told {
    struct ledger_entry entries[16];
    char users[16][16];
    size_t entry_count;
    int64_t queue_keys[8];
    uint64_t highest[8];
    size_t queue_count;
};

static void on_queue(void *to, int64_t event_key, uint64_t highest_seq) {
    struct told *t = to;
    assert_int_equal(t->entry_count, 0); /* queues come first */
    t->queue_keys[t->queue_count] = event_key;
    t->highest[t->queue_count++] = highest_seq;
}

static void on_entry(void *to, const struct ledger_entry *e) {
    struct told *t = to;
    assert_true(t->entry_count < 16);
    t->entries[t->entry_count] = *e;
    str_copy(e->user, t->users[t->entry_count], sizeof t->users[0]);
    t->entry_count++;
}

static void load(struct fixture *f, struct told *t) {
    *t = (struct told){0};
    ledger_close(f->l);
    f->l = adapter->open(&f->h, 0);
    struct ledger_reader reader = {.on_queue = on_queue, .on_entry = on_entry, .to = t};
    assert_int_equal(ledger_load(f->l, &reader), ERR_OK);
}

static void assert_entry(const struct told *t, size_t i, uint64_t seq, const char *user,
                         enum entry_status status, int64_t expires_ms) {
    assert_true(i < t->entry_count);
    assert_int_equal(t->entries[i].seq, seq);
    assert_string_equal(t->users[i], user);
    assert_int_equal(t->entries[i].lane, seq % LANES);
    assert_int_equal(t->entries[i].status, status);
    assert_int_equal(t->entries[i].joined_ms, 1000 + (int64_t)seq);
    assert_int_equal(t->entries[i].expires_ms, expires_ms);
}

static void enter(struct fixture *f, int64_t key, uint64_t seq, const char *user,
                  enum entry_status status) {
    struct test_record r;
    test_enter(&r, key, seq, user, status);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
}

/* ---- the contract ---- */

static void entries_are_there_after_a_restart_in_order(void **state) {
    struct fixture *f = *state;
    int64_t other = store(f, "2");
    enter(f, f->key, 2, "b", ENTRY_WAITING);
    enter(f, other, 7, "x", ENTRY_WAITING);
    enter(f, f->key, 1, "a", ENTRY_ACTIVE);
    enter(f, f->key, 3, "c", ENTRY_WAITING);
    struct told t;
    load(f, &t);
    assert_int_equal(t.queue_count, 2);
    assert_int_equal(t.queue_keys[0], f->key);
    assert_int_equal(t.highest[0], 3);
    assert_int_equal(t.highest[1], 7);
    assert_int_equal(t.entry_count, 4);
    assert_entry(&t, 0, 1, "a", ENTRY_ACTIVE, 5001);
    assert_entry(&t, 1, 2, "b", ENTRY_WAITING, 0);
    assert_entry(&t, 2, 3, "c", ENTRY_WAITING, 0);
    assert_entry(&t, 3, 7, "x", ENTRY_WAITING, 0);
    assert_int_equal(t.entries[3].event_key, other);
}

static void a_number_is_taken_once(void **state) {
    struct fixture *f = *state;
    struct test_record again;
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    test_enter(&again, f->key, 1, "thief", ENTRY_WAITING);
    assert_int_equal(harness_submit(&f->h, f->l, &again), ERR_CONFLICT);
    struct told t;
    load(f, &t);
    assert_int_equal(t.entry_count, 1);
    assert_entry(&t, 0, 1, "a", ENTRY_WAITING, 0);
}

static void only_who_waits_is_admitted(void **state) {
    struct fixture *f = *state;
    static const uint64_t left[] = {3};
    const struct entry_change wanted[] = {{.seq = 1, .expires_ms = 9001},
                                          {.seq = 2, .expires_ms = 9002},
                                          {.seq = 3, .expires_ms = 9003},
                                          {.seq = 4, .expires_ms = 9004}};
    struct test_record r;
    bool ended[1];
    bool kept[4];
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    enter(f, f->key, 2, "b", ENTRY_ACTIVE);
    enter(f, f->key, 3, "c", ENTRY_WAITING);
    test_end(&r, f->key, ENTRY_LEFT, left, 1, ended);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    test_admit(&r, f->key, wanted, 4, kept);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_true(kept[0]);
    assert_false(kept[1]); /* active already */
    assert_false(kept[2]); /* left */
    assert_false(kept[3]); /* never was */
    struct told t;
    load(f, &t);
    assert_int_equal(t.entry_count, 2);
    assert_entry(&t, 0, 1, "a", ENTRY_ACTIVE, 9001);
    assert_entry(&t, 1, 2, "b", ENTRY_ACTIVE, 5002);
    /* An ended entry's number is not forgotten. */
    assert_int_equal(t.highest[0], 3);
}

/* Trap 15: LEFT does not overwrite COMPLETED. */
static void what_has_ended_stays_as_it_ended(void **state) {
    struct fixture *f = *state;
    static const uint64_t seqs[] = {1, 2, 9};
    struct test_record r;
    bool ended[3];
    enter(f, f->key, 1, "a", ENTRY_ACTIVE);
    enter(f, f->key, 2, "b", ENTRY_WAITING);
    test_end(&r, f->key, ENTRY_COMPLETED, seqs, 1, ended);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_true(ended[0]);
    test_end(&r, f->key, ENTRY_LEFT, seqs, 3, ended);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_false(ended[0]);
    assert_true(ended[1]);
    assert_false(ended[2]);
    struct told t;
    load(f, &t);
    assert_int_equal(t.entry_count, 0);
}

static void a_new_place_closes_the_one_whose_time_was_over(void **state) {
    struct fixture *f = *state;
    struct test_record r;
    enter(f, f->key, 1, "a", ENTRY_ACTIVE);
    test_enter(&r, f->key, 2, "a", ENTRY_WAITING);
    r.enter.closes = 1;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    struct told t;
    load(f, &t);
    assert_int_equal(t.entry_count, 1);
    assert_entry(&t, 0, 2, "a", ENTRY_WAITING, 0);
}

static void a_deleted_events_queue_is_not_told_of(void **state) {
    struct fixture *f = *state;
    struct test_record r;
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    test_delete(&r, "CONCERT", "1", 5);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    struct told t;
    load(f, &t);
    assert_int_equal(t.entry_count, 0);
    assert_int_equal(t.queue_count, 0);
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    if (finding->violations > 0)
        fail_msg("%.*s", (int)finding->invariant.len, finding->invariant.at);
}

static void a_queue_kept_by_the_records_passes_every_check(void **state) {
    struct fixture *f = *state;
    const struct entry_change first = {.seq = 1, .expires_ms = 9001};
    static const uint64_t seq = 2;
    struct test_record r;
    bool out;
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    enter(f, f->key, 2, "b", ENTRY_ACTIVE);
    enter(f, f->key, 3, "c", ENTRY_WAITING);
    test_admit(&r, f->key, &first, 1, &out);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    test_end(&r, f->key, ENTRY_EXPIRED, &seq, 1, &out);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(ledger_check(f->l, false, on_finding, NULL), ERR_OK);
}

int ledger_queue_suite_run(const struct ledger_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(entries_are_there_after_a_restart_in_order),
        TEST(a_number_is_taken_once),
        TEST(only_who_waits_is_admitted),
        TEST(what_has_ended_stays_as_it_ended),
        TEST(a_new_place_closes_the_one_whose_time_was_over),
        TEST(a_deleted_events_queue_is_not_told_of),
        TEST(a_queue_kept_by_the_records_passes_every_check),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract: queues", tests, NULL, NULL);
}
