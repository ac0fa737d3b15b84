/* Opening: several nodes at once, and the error messages when it fails. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

static int set_up(void **state) {
    struct harness *h = mem_new(sizeof *h);
    harness_init(h);
    postgres_database_for(h);
    *state = h;
    return 0;
}

static int tear_down(void **state) {
    postgres_drop();
    harness_deinit(*state);
    mem_free(*state);
    return 0;
}

static void forget_everything(void) {
    scratch_sql(postgres_database(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
}

struct opening {
    pthread_t thread;
    struct ledger *l;
    struct buf why;
};

static void *open_beside(void *arg) {
    struct opening *o = arg;
    struct postgres_ledger_options options = postgres_options;
    options.url = postgres_database()->url;
    postgres_ledger_open(&options, &o->l, &o->why);
    return NULL;
}

static int64_t count_migrations(void) {
    return scratch_number(postgres_database(), "SELECT count(*) FROM schema_version");
}

static void nodes_may_start_at_once(void **state) {
    (void)state;
    enum { NODES = 6 };
    struct opening nodes[NODES] = {0};
    struct opening alone = {0};
    forget_everything();
    open_beside(&alone);
    assert_non_null(alone.l);
    ledger_close(alone.l);
    int64_t migrations = count_migrations();
    forget_everything();
    for (int i = 0; i < NODES; i++)
        assert_int_equal(pthread_create(&nodes[i].thread, NULL, open_beside, &nodes[i]), 0);
    for (int i = 0; i < NODES; i++) pthread_join(nodes[i].thread, NULL);
    for (int i = 0; i < NODES; i++)
        if (nodes[i].l == NULL) fail_msg("%s", buf_cstr(&nodes[i].why));
    assert_int_equal(count_migrations(), migrations);
    bool seen[NODES + 1] = {0};
    for (int i = 0; i < NODES; i++) {
        uint32_t epoch = ledger_epoch(nodes[i].l);
        assert_in_range(epoch, 1, NODES);
        assert_false(seen[epoch]);
        seen[epoch] = true;
        ledger_close(nodes[i].l);
    }
}

static void refused(const char *url, bool read_only, struct buf *why) {
    struct ledger *l = NULL;
    struct postgres_ledger_options o = {.url = url, .read_only = read_only, .deadline_ms = 2000};
    buf_clear(why);
    assert_int_equal(postgres_ledger_open(&o, &l, why), ERR_LEDGER_FAILED);
    assert_null(l);
}

static void assert_says(struct buf *why, const char *word) {
    if (strstr(buf_cstr(why), word) == NULL) fail_msg("no \"%s\" in: %s", word, buf_cstr(why));
}

static void every_error_is_reported_without_the_password(void **state) {
    (void)state;
    struct buf why = {0};
    char url[400];
    refused("postgres://someone:s3cret@127.0.0.1:1/tickets", false, &why);
    assert_says(&why, "host=127.0.0.1");
    assert_says(&why, "port=1");
    assert_says(&why, "dbname=tickets");
    assert_says(&why, "user=someone");
    assert_says(&why, "refused");
    assert_null(strstr(buf_cstr(&why), "s3cret"));
    refused("postgres://someone:s3cret%zz@127.0.0.1:1/tickets", false, &why);
    assert_says(&why, "malformed");
    assert_null(strstr(buf_cstr(&why), "s3cret"));
    snprintf(url, sizeof url, "%s_not", postgres_database()->url);
    refused(url, false, &why);
    assert_says(&why, "does not exist");
    buf_deinit(&why);
}

static void schema_of_a_newer_program_is_left_alone(void **state) {
    (void)state;
    struct buf why = {0};
    scratch_sql(postgres_database(), "INSERT INTO schema_version VALUES (999, 1)");
    refused(postgres_database()->url, false, &why);
    assert_says(&why, "999");
    refused(postgres_database()->url, true, &why);
    assert_says(&why, "999");
    buf_deinit(&why);
}

static void a_reader_creates_no_tables(void **state) {
    struct harness *h = *state;
    struct buf why = {0};
    forget_everything();
    refused(postgres_database()->url, true, &why);
    assert_says(&why, "start its server once");
    buf_deinit(&why);
    assert_int_equal(scratch_number(postgres_database(),
                                    "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"),
                     0);
    ledger_close(postgres_open(h, 0));
    postgres_options.read_only = true;
    struct ledger *l = postgres_open(h, 0);
    assert_int_equal(ledger_epoch(l), 0);
    assert_int_equal(ledger_load(l, &(struct ledger_reader){0}), ERR_OK);
    ledger_close(l);
}

/* Nodes of the version before schema 4 store the answer, whose first member is the id. They refuse
 * a row whose status is 204, so none of them answers a row that has no answer. */
static void keys_of_older_nodes_are_answered(void **state) {
    (void)state;
    struct ledger_client d;
    struct idempotency key = {.user = STR("a"), .route = STR("r"), .key = STR("k")};
    struct test_record r;
    ledger_client_open(&d, postgres_open, 1, 5);
    ledger_client_enter(&d, 1, "a");
    for (uint64_t i = 1; i <= 2; i++) {
        struct reservation *wanted = ledger_client_wanted(&d, i, "a", 1, 0, SEATS((uint32_t)i));
        test_hold(&r, wanted);
        r.hold.idempotency = &key;
        assert_int_equal(harness_submit(&d.h, d.l, &r), ERR_OK);
        assert_int_equal(key.replayed, i > 1);
        mem_free(wanted);
        assert_int_equal(scratch_number(postgres_database(), "SELECT sum(status) FROM idempotency"),
                         i == 1 ? 204 : 201);
        scratch_sql(postgres_database(),
                    "UPDATE idempotency SET response = format('{\"id\":\"%%s\",\"seats\":[1]}',"
                    " reservation_id), reservation_id = NULL, status = 201 WHERE status = 204");
    }
    struct uuid first = ledger_client_id(1);
    assert_true(uuid_eq(&key.reservation, &first));
    key.replayed = false;
    test_idempotency_get(&r, &key);
    assert_int_equal(harness_ask(&d.h, d.l, &r), ERR_OK);
    assert_true(key.replayed && uuid_eq(&key.reservation, &first));
    ledger_client_shut(&d);
    postgres_drop();
}

/* A number that depends on all rows and sequences; without the values that no two databases share.
 */
static int64_t contents(void) {
    return scratch_number(
        postgres_database(),
        "SELECT ('x' || left(md5(string_agg(line, '' ORDER BY line)), 15))::bit(60)::bigint FROM ("
        " SELECT query_to_xml(CASE relname WHEN 'cluster' THEN 'SELECT name FROM cluster'"
        "   WHEN 'schema_version' THEN 'SELECT number FROM schema_version ORDER BY number'"
        "   ELSE format('SELECT * FROM %%I ORDER BY 1', relname) END, true, false, relname)::text"
        "  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        " UNION ALL SELECT format('%%s %%s', sequencename, last_value) FROM pg_sequences"
        ") AS every(line)");
}

/* What the migrations insert is still there, and nothing else. */
static void an_emptied_database_is_like_a_new_one(void **state) {
    (void)state;
    struct ledger_client d;
    ledger_client_open(&d, postgres_open, 1, 5);
    int64_t with_event = contents();
    ledger_client_enter(&d, 1, "a");
    scratch_sql(postgres_database(), "UPDATE request_partitions SET last_seq = 7;"
                                     "UPDATE request_leases SET fence = 1, until = 5;"
                                     "INSERT INTO cluster VALUES ('another', '1')");
    assert_true(contents() != with_event);
    ledger_client_shut(&d);
    int64_t found[2];
    for (int i = 0; i < 2; i++) {
        struct harness h;
        harness_init(&h);
        postgres_database_for(&h); /* the first time that of the client, emptied */
        found[i] = contents();
        postgres_drop();
        harness_deinit(&h);
    }
    assert_int_equal(found[0], found[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_may_start_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_error_is_reported_without_the_password, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(schema_of_a_newer_program_is_left_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reader_creates_no_tables, set_up, tear_down),
        cmocka_unit_test(keys_of_older_nodes_are_answered),
        cmocka_unit_test(an_emptied_database_is_like_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
