/* What SQLite does for one asynchronous request does not depend on how many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"
#include "ledger_harness.h"

#define FEW 200
#define MANY (2 * FEW)

/* Steps of SQLite's virtual machine since the last call, in all statements of the connection. */
static int64_t db_steps(struct db *db) {
    int64_t sum = 0;
    sqlite3_stmt *s = NULL;
    while ((s = sqlite3_next_stmt(db->handle, s)) != NULL)
        sum += sqlite3_stmt_status(s, SQLITE_STMTSTATUS_VM_STEP, 1);
    return sum;
}

struct steps {
    int64_t accept;
    int64_t find;
    int64_t decide;
    int64_t audit;
};

static struct request wanted(void) {
    struct request r = {.id = uuid_new(1000),
                        .event_key = 1,
                        .section_key = 1,
                        .entry_seq = 1,
                        .user = "a",
                        .strategy = STRATEGY_QUEUE,
                        .quantity = 1,
                        .created_ms = 1000,
                        .finished_ms = CLOCK_NONE_MS};
    return r;
}

/* Every second one has a name of its own, as with an Idempotency-Key. */
static void accept_all(struct db *db, struct uuid *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct request r = wanted();
        struct ledger_request_put put = {.wanted = &r, .may_rename = i % 2 == 0};
        assert_int_equal(request_put_apply(db, &put), SQLITE_OK);
        assert_true(put.is_new);
        ids[i] = put.id;
    }
}

static void find_all(struct db *db, const struct uuid *ids, size_t count) {
    struct request *found[MANY];
    struct ledger_requests_get get = {.ids = ids, .count = count, .found = found};
    assert_int_equal(requests_get(db, &get), SQLITE_OK);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(found[i]);
        mem_free(found[i]);
    }
}

static void decide_all(struct db *db, const struct uuid *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct request r = wanted();
        r.id = ids[i];
        r.status = REQUEST_FAIL_SOLD_OUT;
        r.finished_ms = 2000;
        assert_true(str_copy(STR("sold_out"), r.reason, sizeof r.reason));
        struct ledger_request_decide decide = {.wanted = &r};
        assert_int_equal(request_decide_apply(db, &decide), SQLITE_OK);
        assert_true(decide.decided);
    }
}

/* As holds for as many other requests, whose rows retention has removed. */
static void add_keys_of_holds(struct db *db, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char id[UUID_TEXT_BYTES];
        struct uuid of = uuid_new(1000);
        struct reservation made = {.id = uuid_new(1000), .created_ms = 1000};
        uuid_format(&of, id);
        struct idempotency key = {
            .user = STR("a"), .route = STR(REQUEST_ROUTE), .key = {id, sizeof id}};
        assert_int_equal(idempotency_add(db, &key, &made), SQLITE_OK);
    }
}

static void ignore_finding(void *to, const struct ledger_finding *f) {
    (void)to;
    (void)f;
}

static struct steps work_with(size_t count) {
    struct harness h;
    struct db db;
    struct buf why = {0};
    struct uuid ids[MANY];
    struct steps steps;
    harness_init(&h);
    assert_int_equal(db_open(&db, h.path, DB_WRITE, &why), SQLITE_OK);
    assert_int_equal(schema_migrate(&db, h.path, 1000, &why), ERR_OK);
    db_steps(&db);
    accept_all(&db, ids, count);
    steps.accept = db_steps(&db);
    find_all(&db, ids, count);
    steps.find = db_steps(&db);
    decide_all(&db, ids, count);
    steps.decide = db_steps(&db);
    add_keys_of_holds(&db, count);
    db_steps(&db);
    assert_int_equal(check_all(&db, false, 3000, ignore_finding, NULL), SQLITE_OK);
    steps.audit = db_steps(&db);
    db_close(&db);
    harness_deinit(&h);
    return steps;
}

/* Twice as much for twice as many; four times would mean that each is compared with all. */
static void assert_in_proportion(const char *what, int64_t few, int64_t many) {
    if (few > 0 && many < 3 * few) return;
    fail_msg("%s: %lld steps for %d, %lld for %d", what, (long long)few, FEW, (long long)many,
             MANY);
}

static void the_steps_for_one_request_do_not_depend_on_the_others(void **state) {
    (void)state;
    struct steps few = work_with(FEW);
    struct steps many = work_with(MANY);
    assert_in_proportion("accepting", few.accept, many.accept);
    assert_in_proportion("finding", few.find, many.find);
    assert_in_proportion("deciding", few.decide, many.decide);
    assert_in_proportion("auditing", few.audit, many.audit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steps_for_one_request_do_not_depend_on_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
