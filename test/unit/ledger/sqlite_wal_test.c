/* The WAL stays small while the writer is always busy, and shrinks again after a slow reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "ledger_raw.h"

#define WAL_BYTES_MAX (256 * 1024)
#define IN_FLIGHT 32
#define ASKS 4

/* Puts that are submitted again as soon as they come back, and questions likewise. */
struct churn {
    struct harness h;
    struct ledger *l;
    char wal[320];
    struct event *wanted;
    struct test_record puts[IN_FLIGHT];
    struct test_record asks[ASKS];
    int64_t committed;
    int64_t answered;
    int64_t wal_bytes_max; /* the largest seen */
};

static int set_up(void **state) {
    struct churn *c = mem_new(sizeof *c);
    harness_init(&c->h);
    snprintf(c->wal, sizeof c->wal, "%s-wal", c->h.path);
    /* One record per commit: the most commits, and the most for the WAL. */
    c->l = raw_ledger_open(&(struct sqlite_ledger_options){
        .path = c->h.path, .batch_max = 1, .wal_bytes_max = WAL_BYTES_MAX});
    c->wanted = test_event("1", 5);
    *state = c;
    return 0;
}

static int tear_down(void **state) {
    struct churn *c = *state;
    ledger_close(c->l);
    mem_free(c->wanted);
    harness_deinit(&c->h);
    mem_free(c);
    return 0;
}

static void submit(struct churn *c, struct test_record *r) {
    test_put(r, c->wanted, 1);
    assert_int_equal(ledger_submit(c->l, &r->record), ERR_OK);
}

static void ask(struct churn *c, struct test_record *r) {
    test_page(r, 0, 100);
    assert_int_equal(ledger_ask(c->l, &r->record), ERR_OK);
}

static int64_t more_until;

/* One look: whatever is back goes out again. */
static bool churned(void *arg) {
    struct churn *c = arg;
    int64_t bytes = file_bytes(c->wal);
    if (bytes > c->wal_bytes_max) c->wal_bytes_max = bytes;
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (!c->puts[i].back) continue;
        assert_int_equal(c->puts[i].record.result, ERR_OK);
        c->committed++;
        test_record_deinit(&c->puts[i]);
        submit(c, &c->puts[i]);
    }
    for (int i = 0; i < ASKS; i++) {
        if (!c->asks[i].back) continue;
        assert_int_equal(c->asks[i].record.result, ERR_OK);
        c->answered++;
        test_record_deinit(&c->asks[i]);
        ask(c, &c->asks[i]);
    }
    return c->committed >= more_until;
}

static void churn_on(struct churn *c, int64_t commits) {
    for (int i = 0; i < IN_FLIGHT; i++) submit(c, &c->puts[i]);
    for (int i = 0; i < ASKS; i++) ask(c, &c->asks[i]);
    c->wal_bytes_max = 0;
    more_until = c->committed + commits;
    harness_wait(&c->h, churned, c);
    harness_wait_back(&c->h, c->puts, IN_FLIGHT);
    harness_wait_back(&c->h, c->asks, ASKS);
    for (int i = 0; i < IN_FLIGHT; i++) test_record_deinit(&c->puts[i]);
    for (int i = 0; i < ASKS; i++) test_record_deinit(&c->asks[i]);
}

static void wal_stays_small_under_constant_load(void **state) {
    struct churn *c = *state;
    churn_on(c, 3000);
    print_message("%lld commits, %lld answers, WAL at most %lld bytes, %llu checkpoints\n",
                  (long long)c->committed, (long long)c->answered, (long long)c->wal_bytes_max,
                  (unsigned long long)counter_total(COUNT_LEDGER_CHECKPOINTS));
    assert_true(c->answered > 10);
    /* A reader that the machine lets wait delays a reset of the WAL; without any it would grow to
     * more than twenty times the limit (see below: 300 commits are more than two). */
    assert_in_range(c->wal_bytes_max, WAL_BYTES_MAX / 2, WAL_BYTES_MAX * 4);
}

static void lingering_reader_delays_but_does_not_prevent(void **state) {
    struct churn *c = *state;
    churn_on(c, 100);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(c->h.path, &db), SQLITE_OK);
    sqlite3_exec(db, "BEGIN; SELECT count(*) FROM audit", NULL, NULL, NULL);
    churn_on(c, 300);
    assert_true(c->wal_bytes_max > 2 * WAL_BYTES_MAX);
    struct ledger_health health;
    ledger_health(c->l, &health);
    assert_true(health.wal_bytes > WAL_BYTES_MAX);

    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    churn_on(c, 200);
    churn_on(c, 200);
    /* A reader that the machine lets wait delays a reset of the WAL; without any it would grow to
     * more than twenty times the limit (see below: 300 commits are more than two). */
    assert_in_range(c->wal_bytes_max, WAL_BYTES_MAX / 2, WAL_BYTES_MAX * 4);
    ledger_health(c->l, &health);
    assert_in_range(health.wal_bytes, 0, 2 * WAL_BYTES_MAX);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(wal_stays_small_under_constant_load),
        TEST(lingering_reader_delays_but_does_not_prevent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
