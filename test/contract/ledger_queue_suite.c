/* The ledger's contract for queues. */
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

/* ---- queues in load ---- */

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
    t->queue_keys[t->queue_count] = event_key;
    t->highest[t->queue_count++] = highest_seq;
}

static void on_entry(void *to, const struct ledger_entry *e) {
    struct told *t = to;
    assert_true(t->entry_count < 16);
    assert_int_equal(t->queue_count, 0); /* queues come after the last entry */
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
    store(f, "3"); /* nobody has entered */
    struct told t;
    load(f, &t);
    assert_int_equal(t.queue_count, 3);
    assert_int_equal(t.highest[2], 0);
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

static void only_a_waiting_user_is_admitted(void **state) {
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

/* Pitfall 15: LEFT does not overwrite COMPLETED. */
static void an_ended_entry_does_not_change(void **state) {
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

/* From two workers, for a user who entered twice at once. */
static void the_same_enter_once_more_changes_nothing(void **state) {
    struct fixture *f = *state;
    const struct entry_change first = {.seq = 1, .expires_ms = 9001};
    static const uint64_t seq = 1;
    struct test_record r;
    struct told t;
    bool out;
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    test_admit(&r, f->key, &first, 1, &out);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    enter(f, f->key, 1, "a", ENTRY_WAITING); /* later than its admission */
    load(f, &t);
    assert_int_equal(t.entry_count, 1);
    assert_entry(&t, 0, 1, "a", ENTRY_ACTIVE, 9001);
    test_end(&r, f->key, ENTRY_LEFT, &seq, 1, &out);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    enter(f, f->key, 1, "a", ENTRY_WAITING); /* and than its end */
    load(f, &t);
    assert_int_equal(t.entry_count, 0);
    assert_int_equal(t.highest[0], 1);
}

/* Somebody undoes an entry that is or is not there: a VOID row under its number. */
static void void_entry(struct fixture *f, int seq) {
    tables_sql(adapter->tables(&f->h),
               "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at,"
               " finished_at) VALUES (%lld, %d, 'a', 8, 'VOID', 1000, 2000)"
               " ON CONFLICT (event_id, seq) DO UPDATE SET status = 'VOID', finished_at = 2000",
               (long long)f->key, seq);
}

static void an_enter_that_another_node_undid_is_refused_even_when_it_comes_late(void **state) {
    struct fixture *f = *state;
    struct test_record r;
    struct told t;
    void_entry(f, 1);
    test_enter(&r, f->key, 1, "a", ENTRY_WAITING);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_CONFLICT);
    enter(f, f->key, 2, "a", ENTRY_WAITING);
    void_entry(f, 2);
    test_enter(&r, f->key, 2, "a", ENTRY_WAITING);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_CONFLICT);
    test_get(&r, f->key, 1);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.get.status, ENTRY_NONE);
    load(f, &t);
    assert_int_equal(t.entry_count, 0);
    assert_int_equal(t.highest[0], 2);
}

/* A refused enter closes nothing either. */
static void a_refused_enter_leaves_the_older_place_alone(void **state) {
    struct fixture *f = *state;
    struct test_record r;
    struct told t;
    enter(f, f->key, 1, "a", ENTRY_ACTIVE);
    enter(f, f->key, 2, "b", ENTRY_WAITING);
    test_enter(&r, f->key, 2, "a", ENTRY_WAITING);
    r.enter.closes = 1;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_CONFLICT);
    load(f, &t);
    assert_int_equal(t.entry_count, 2);
    assert_entry(&t, 0, 1, "a", ENTRY_ACTIVE, 5001);
}

/* Retention has removed the event while the enter was under way. */
static void an_enter_without_an_event_is_refused(void **state) {
    struct fixture *f = *state;
    struct test_record r;
    struct told t;
    int64_t removed = store(f, "2");
    test_delete(&r, "CONCERT", "2", 2000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    tables_sql(adapter->tables(&f->h),
               "DELETE FROM sections WHERE event_id = %lld; DELETE FROM events WHERE id = %lld",
               (long long)removed, (long long)removed);
    test_enter(&r, removed, 1, "a", ENTRY_WAITING);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_EVENT_NOT_FOUND);
    test_enter(&r, removed, 2, "b", ENTRY_ACTIVE);
    r.enter.closes = 1;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_EVENT_NOT_FOUND);
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    load(f, &t);
    assert_int_equal(t.entry_count, 1);
    assert_entry(&t, 0, 1, "a", ENTRY_WAITING, 0);
}

static void only_an_active_entry_completes(void **state) {
    struct fixture *f = *state;
    static const uint64_t seqs[] = {1, 2};
    struct test_record r;
    struct told t;
    bool ended[2];
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    enter(f, f->key, 2, "b", ENTRY_ACTIVE);
    test_end(&r, f->key, ENTRY_COMPLETED, seqs, 2, ended);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_false(ended[0]);
    assert_true(ended[1]);
    load(f, &t);
    assert_int_equal(t.entry_count, 1);
    assert_entry(&t, 0, 1, "a", ENTRY_WAITING, 0);
}

static void assert_got(struct fixture *f, uint64_t seq, const char *user,
                       enum entry_status status) {
    struct test_record r;
    test_get(&r, f->key, seq);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.get.status, status);
    assert_true(str_eq((str){r.get.user, r.get.user_len}, str_of(user)));
}

static void an_entry_can_be_asked_for_also_when_it_has_ended(void **state) {
    struct fixture *f = *state;
    static const enum entry_status finals[] = {ENTRY_COMPLETED, ENTRY_LEFT, ENTRY_EXPIRED};
    static const uint64_t seqs[] = {3, 4, 5};
    char longest[USER_ID_BYTES_MAX + 1] = {0};
    struct test_record r;
    bool ended;
    memset(longest, 'x', USER_ID_BYTES_MAX);
    enter(f, f->key, 1, "a", ENTRY_WAITING);
    enter(f, f->key, 2, longest, ENTRY_ACTIVE);
    for (size_t i = 0; i < 3; i++) {
        enter(f, f->key, seqs[i], "c", ENTRY_ACTIVE);
        test_end(&r, f->key, finals[i], &seqs[i], 1, &ended);
        assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    }
    assert_got(f, 1, "a", ENTRY_WAITING);
    assert_got(f, 2, longest, ENTRY_ACTIVE);
    for (size_t i = 0; i < 3; i++) assert_got(f, seqs[i], "c", finals[i]);
    test_get(&r, f->key, 6);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.get.status, ENTRY_NONE);
    test_get(&r, f->key + 1, 1);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.get.status, ENTRY_NONE);
}

/* Expiries and admissions, which the hot store has made already. */
static void what_the_server_must_write_is_taken_though_the_queue_is_full(void **state) {
    struct fixture *f = *state;
    enum { MANY = 400 };
    ledger_close(f->l);
    f->l = adapter->open(&f->h, 1);
    struct test_record *records = mem_new(MANY * sizeof *records);
    size_t taken = 0;
    size_t refused = 0;
    for (uint64_t seq = 1; seq <= MANY; seq++) {
        test_enter(&records[taken], f->key, seq, "a", ENTRY_ACTIVE);
        records[taken].record.always = refused > 0 && seq % 2 == 0;
        enum err e = ledger_submit(f->l, &records[taken].record);
        if (e == ERR_OK) {
            taken++;
        } else {
            assert_int_equal(e, ERR_OVERLOADED);
            assert_false(records[taken].record.always);
            refused++;
        }
    }
    assert_true(refused > 0 && taken > MANY / 4);
    harness_wait_back(&f->h, records, taken);
    for (size_t i = 0; i < taken; i++) assert_int_equal(records[i].record.result, ERR_OK);
    mem_free(records);
}

static void the_queue_of_a_deleted_event_is_not_reported(void **state) {
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
        TEST(only_a_waiting_user_is_admitted),
        TEST(an_ended_entry_does_not_change),
        TEST(a_new_place_closes_the_one_whose_time_was_over),
        TEST(the_same_enter_once_more_changes_nothing),
        TEST(an_enter_that_another_node_undid_is_refused_even_when_it_comes_late),
        TEST(a_refused_enter_leaves_the_older_place_alone),
        TEST(an_enter_without_an_event_is_refused),
        TEST(only_an_active_entry_completes),
        TEST(an_entry_can_be_asked_for_also_when_it_has_ended),
        TEST(what_the_server_must_write_is_taken_though_the_queue_is_full),
        TEST(the_queue_of_a_deleted_event_is_not_reported),
        TEST(a_queue_kept_by_the_records_passes_every_check),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract: queues", tests, NULL, NULL);
}
