#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ledger_suite.h"

static const struct ledger_adapter *adapter;

struct fixture {
    struct harness h;
    struct ledger *l;
    struct event *event; /* CONCERT/1 */
};

static struct event *store(struct fixture *f, const char *id) {
    struct event *wanted = test_event(id, 2);
    struct event *stored = harness_store(&f->h, f->l, wanted);
    mem_free(wanted);
    return stored;
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->l = adapter->open(&f->h, 0);
    f->event = store(f, "1");
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ledger_close(f->l);
    mem_free(f->event);
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

static enum err enter(struct fixture *f, int64_t event_key, uint64_t seq, const char *user) {
    struct test_record r;
    test_enter(&r, event_key, seq, user, ENTRY_WAITING);
    return harness_submit(&f->h, f->l, &r);
}

static enum entry_status status_of(struct fixture *f, uint64_t seq) {
    struct test_record r;
    test_get(&r, f->event->key, seq);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    return r.get.status;
}

static void end(struct fixture *f, uint64_t seq, enum entry_status final) {
    struct test_record r;
    bool ended;
    test_end(&r, f->event->key, final, &seq, 1, &ended);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_true(ended);
}

/* ---- enters that are undone ---- */

static bool enter_void(struct fixture *f, uint64_t seq) {
    struct test_record r;
    test_enter_void(&r, f->event->key, seq);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    return r.enter_void.voided;
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    if (finding->violations > 0)
        fail_msg("%.*s", (int)finding->invariant.len, finding->invariant.at);
}

static void an_enter_that_was_undone_is_refused_however_late_it_comes(void **state) {
    struct fixture *f = *state;
    assert_true(enter_void(f, 7));
    assert_int_equal(enter(f, f->event->key, 7, "a"), ERR_CONFLICT);
    assert_true(enter_void(f, 7)); /* by a second node */
    assert_int_equal(enter(f, f->event->key, 7, "a"), ERR_CONFLICT);
    assert_int_equal(status_of(f, 7), ENTRY_NONE);
    /* The user is free to enter again. */
    assert_int_equal(enter(f, f->event->key, 8, "a"), ERR_OK);
    assert_int_equal(status_of(f, 8), ENTRY_WAITING);
    assert_int_equal(ledger_check(f->l, false, on_finding, NULL), ERR_OK);
}

static void an_entry_that_is_there_is_not_undone(void **state) {
    struct fixture *f = *state;
    assert_int_equal(enter(f, f->event->key, 1, "a"), ERR_OK);
    assert_false(enter_void(f, 1));
    assert_false(enter_void(f, 1));
    assert_int_equal(status_of(f, 1), ENTRY_WAITING);
    assert_int_equal(enter(f, f->event->key, 1, "a"), ERR_OK);
    /* An ended entry is not undone either, because its end was answered. */
    end(f, 1, ENTRY_LEFT);
    assert_false(enter_void(f, 1));
    assert_int_equal(status_of(f, 1), ENTRY_LEFT);
}

static void an_undone_number_is_not_admitted_and_not_ended(void **state) {
    struct fixture *f = *state;
    const struct entry_change change = {.seq = 3, .expires_ms = 9000};
    static const uint64_t seq = 3;
    struct test_record r;
    bool out = true;
    assert_true(enter_void(f, 3));
    test_admit(&r, f->event->key, &change, 1, &out);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_false(out);
    test_end(&r, f->event->key, ENTRY_EXPIRED, &seq, 1, &out);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_false(out);
}

static void on_queue(void *to, int64_t event_key, uint64_t highest_seq) {
    (void)event_key;
    *(uint64_t *)to = highest_seq;
}

static void an_undone_number_is_never_given_again(void **state) {
    struct fixture *f = *state;
    uint64_t highest = 0;
    assert_int_equal(enter(f, f->event->key, 1, "a"), ERR_OK);
    assert_true(enter_void(f, 5));
    assert_int_equal(
        ledger_load(f->l, &(struct ledger_reader){.on_queue = on_queue, .to = &highest}), ERR_OK);
    assert_int_equal(highest, 5);
}

/* ---- admissions that are finished by another node ---- */

static bool admit(struct fixture *f, uint64_t seq, int64_t expires_ms) {
    const struct entry_change change = {.seq = seq, .expires_ms = expires_ms};
    struct test_record r;
    bool kept;
    test_admit(&r, f->event->key, &change, 1, &kept);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    return kept;
}

static void the_same_admission_once_more_is_kept(void **state) {
    struct fixture *f = *state;
    assert_int_equal(enter(f, f->event->key, 1, "a"), ERR_OK);
    assert_int_equal(enter(f, f->event->key, 2, "b"), ERR_OK);
    assert_true(admit(f, 1, 9000));
    assert_true(admit(f, 1, 9000));
    assert_false(admit(f, 1, 9001)); /* another one, which came too late */
    assert_true(admit(f, 1, 9000));
    assert_false(admit(f, 3, 9000));
    struct test_record r;
    test_get(&r, f->event->key, 1);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.get.status, ENTRY_ACTIVE);
    assert_int_equal(r.get.expires_ms, 9000);
    assert_int_equal(r.get.lane, 1);
    assert_int_equal(r.get.joined_ms, 1001);
    assert_int_equal(status_of(f, 2), ENTRY_WAITING);
    /* An entry that was ended since stays ended. */
    end(f, 1, ENTRY_LEFT);
    assert_false(admit(f, 1, 9000));
    assert_int_equal(status_of(f, 1), ENTRY_LEFT);
}

/* ---- what other nodes have changed ---- */

static void assert_unchanged(struct fixture *f, int64_t mark) {
    for (int i = 0; i < 3; i++) {
        struct test_record r;
        test_events_read(&r, mark);
        assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
        assert_int_equal(r.events_read.mark, mark);
        assert_int_equal(r.events_read.count, 0);
        assert_int_equal(r.events_read.removed_count, 0);
        test_record_deinit(&r);
    }
}

/* There are changes, of that many events and removed events; applies them. */
static void learn(struct fixture *f, struct test_record *r, int64_t *mark, size_t count,
                  size_t removed) {
    test_events_read(r, *mark);
    assert_int_equal(harness_ask(&f->h, f->l, r), ERR_OK);
    assert_true(r->events_read.mark != 0 && r->events_read.mark != *mark);
    assert_int_equal(r->events_read.count, count);
    assert_int_equal(r->events_read.removed_count, removed);
    *mark = r->events_read.mark;
}

static const struct event *told_of(const struct test_record *r, const char *id) {
    for (size_t i = 0; i < r->events_read.count; i++)
        if (strcmp(r->events_read.events[i]->id, id) == 0) return r->events_read.events[i];
    return NULL;
}

static void a_change_is_reported_to_a_node_that_does_not_know_it(void **state) {
    struct fixture *f = *state;
    int64_t mark = 0;
    struct test_record r;
    learn(f, &r, &mark, 1, 0);
    const struct event *first = told_of(&r, "1");
    assert_int_equal(first->key, f->event->key);
    assert_int_equal(first->version, f->event->version);
    assert_string_equal(first->title, f->event->title);
    assert_int_equal(first->section_count, 2);
    assert_int_equal(first->sections[1].key, f->event->sections[1].key);
    assert_int_equal(first->sections[1].capacity, f->event->sections[1].capacity);
    test_record_deinit(&r);
    assert_unchanged(f, mark);

    struct event *changed = store(f, "1");
    learn(f, &r, &mark, 1, 0);
    assert_int_equal(told_of(&r, "1")->version, changed->version);
    test_record_deinit(&r);
    assert_unchanged(f, mark);
    mem_free(changed);

    struct event *second = store(f, "2");
    learn(f, &r, &mark, 1, 0); /* the other one is known already */
    assert_int_equal(told_of(&r, "2")->key, second->key);
    test_record_deinit(&r);
    assert_unchanged(f, mark);
    mem_free(second);
}

static void delete_event(struct fixture *f, const char *id, struct ledger_event_delete *out) {
    struct test_record r;
    test_delete(&r, "CONCERT", id, 5000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    *out = r.del;
}

static void assert_removed(const struct test_record *r, const char *id,
                           const struct ledger_event_delete *del) {
    for (size_t i = 0; i < r->events_read.removed_count; i++) {
        const struct removed_event *e = &r->events_read.removed[i];
        if (strcmp(e->id, id) != 0) continue;
        assert_string_equal(e->type, "CONCERT");
        assert_int_equal(e->key, del->key);
        assert_int_equal(e->version, del->version);
        return;
    }
    fail_msg("CONCERT/%s is not told of", id);
}

static void a_deletion_is_reported_whatever_came_after_it(void **state) {
    struct fixture *f = *state;
    int64_t mark = 0;
    struct test_record r;
    struct ledger_event_delete deleted[2];
    struct event *second = store(f, "2");
    learn(f, &r, &mark, 2, 0);
    test_record_deinit(&r);
    delete_event(f, "2", &deleted[0]);
    assert_int_equal(deleted[0].key, second->key);
    assert_true(deleted[0].version > second->version);
    mem_free(second);
    learn(f, &r, &mark, 0, 1);
    assert_removed(&r, "2", &deleted[0]);
    test_record_deinit(&r);
    assert_unchanged(f, mark);

    /* As many as before, but others. */
    delete_event(f, "1", &deleted[1]);
    mem_free(store(f, "3"));
    learn(f, &r, &mark, 1, 1);
    assert_non_null(told_of(&r, "3"));
    assert_removed(&r, "1", &deleted[1]);
    test_record_deinit(&r);
    assert_unchanged(f, mark);

    /* A first read returns all. */
    mark = 0;
    learn(f, &r, &mark, 1, 2);
    assert_removed(&r, "2", &deleted[0]);
    test_record_deinit(&r);
}

/* Two changes whose counts together hide that a deleted event was dropped between them. */
static void a_change_is_reported_though_a_deleted_event_was_forgotten(void **state) {
    struct fixture *f = *state;
    int64_t mark = 0;
    struct test_record r;
    struct ledger_event_delete deleted;
    assert_int_equal(f->event->version, 1);
    mem_free(store(f, "2"));
    delete_event(f, "2", &deleted);
    assert_int_equal(deleted.version, 3);
    learn(f, &r, &mark, 1, 1);
    test_record_deinit(&r);
    /* Retention is done with it. */
    tables_sql(adapter->tables(&f->h),
               "DELETE FROM sections WHERE event_id = %lld; DELETE FROM events WHERE id = %lld",
               (long long)deleted.key, (long long)deleted.key);
    assert_unchanged(f, mark);
    struct event *changed = store(f, "1");
    assert_int_equal(changed->version, 1 + deleted.version);
    learn(f, &r, &mark, 1, 0);
    assert_int_equal(told_of(&r, "1")->version, changed->version);
    test_record_deinit(&r);
    mem_free(changed);
}

/* ---- waiting entries ---- */

static void enter_lane(struct fixture *f, int64_t event_key, uint64_t seq, unsigned lane,
                       enum entry_status status) {
    char user[24];
    struct test_record r;
    snprintf(user, sizeof user, "user%llu", (unsigned long long)seq);
    test_enter(&r, event_key, seq, user, status);
    r.enter.lane = lane;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
}

static void waiting_users_are_listed_in_the_order_of_admission(void **state) {
    struct fixture *f = *state;
    static const uint64_t lane = UINT64_C(1) << 48;
    struct event *other = store(f, "2");
    struct test_record r;
    test_waiting_read(&r, f->event->key);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.waiting_read.count, 0);
    test_record_deinit(&r);

    enter_lane(f, f->event->key, 1, 8, ENTRY_WAITING);
    enter_lane(f, f->event->key, 2, 8, ENTRY_ACTIVE);
    enter_lane(f, f->event->key, 3, 15, ENTRY_WAITING);
    enter_lane(f, f->event->key, 4, 0, ENTRY_WAITING);
    enter_lane(f, f->event->key, 5, 8, ENTRY_WAITING);
    enter_lane(f, f->event->key, 6, 8, ENTRY_WAITING);
    enter_lane(f, f->event->key, 300, 2, ENTRY_WAITING);
    enter_lane(f, f->event->key, 20, 2, ENTRY_WAITING); /* commits come in any order */
    enter_lane(f, other->key, 9, 2, ENTRY_WAITING);
    assert_true(enter_void(f, 7));
    end(f, 5, ENTRY_LEFT);
    test_waiting_read(&r, f->event->key);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    const uint64_t expected[] = {
        4, 2 * lane + 20, 2 * lane + 300, 8 * lane + 1, 8 * lane + 6, 15 * lane + 3};
    assert_int_equal(r.waiting_read.count, sizeof expected / sizeof *expected);
    assert_memory_equal(r.waiting_read.waiting, expected, sizeof expected);
    test_record_deinit(&r);
    mem_free(other);
}

int ledger_nodes_suite_run(const struct ledger_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_enter_that_was_undone_is_refused_however_late_it_comes),
        TEST(an_entry_that_is_there_is_not_undone),
        TEST(an_undone_number_is_not_admitted_and_not_ended),
        TEST(an_undone_number_is_never_given_again),
        TEST(the_same_admission_once_more_is_kept),
        TEST(a_change_is_reported_to_a_node_that_does_not_know_it),
        TEST(a_deletion_is_reported_whatever_came_after_it),
        TEST(a_change_is_reported_though_a_deleted_event_was_forgotten),
        TEST(waiting_users_are_listed_in_the_order_of_admission),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract: nodes", tests, NULL, NULL);
}
