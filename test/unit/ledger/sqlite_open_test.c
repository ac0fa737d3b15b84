/* Opening: new files, old files, files of other programs, and reading beside a running server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_raw.h"

static int set_up(void **state) {
    struct harness *h = mem_new(sizeof *h);
    harness_init(h);
    *state = h;
    return 0;
}

static int tear_down(void **state) {
    harness_deinit(*state);
    mem_free(*state);
    return 0;
}

static void create(struct harness *h) {
    ledger_close(raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path}));
}

/* It can't be opened, and the reason given has these words. */
static void expect_refused(const struct sqlite_ledger_options *o, const char *words) {
    struct buf why = {0};
    struct ledger *l = NULL;
    assert_int_equal(sqlite_ledger_open(o, &l, &why), ERR_LEDGER_FAILED);
    assert_null(l);
    if (strstr(buf_cstr(&why), words) == NULL) fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
}

static void count_event(void *to, struct event *e) {
    (*(int *)to)++;
    mem_free(e);
}

static void new_file_is_its_owners_alone(void **state) {
    struct harness *h = *state;
    create(h);
    struct stat st;
    assert_int_equal(stat(h->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(raw_number(h, "SELECT max(number) FROM schema_version"), 8);
}

static void clean_close_leaves_no_wal(void **state) {
    struct harness *h = *state;
    create(h);
    char wal[320];
    snprintf(wal, sizeof wal, "%s-wal", h->path);
    assert_int_equal(file_bytes(wal), 0);
}

static void every_table_of_the_design_is_there(void **state) {
    struct harness *h = *state;
    create(h);
    static const char *const tables[] = {
        "events", "sections",    "seats", "queue_entries",  "reservations", "requests",
        "facts",  "idempotency", "audit", "schema_version", "epochs",       "retired_entries"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        assert_int_equal(raw_number(h,
                                    "SELECT count(*) FROM pragma_table_list WHERE name = '%s'"
                                    " AND strict",
                                    tables[i]),
                         1);
}

static void opening_again_applies_no_migration_twice(void **state) {
    struct harness *h = *state;
    create(h);
    raw_sql(h, "UPDATE schema_version SET applied_at = 42");
    create(h);
    assert_int_equal(raw_number(h, "SELECT count(*) FROM schema_version"), 8);
    assert_int_equal(raw_number(h, "SELECT max(applied_at) FROM schema_version"), 42);
}

/* A file of schema 6, in which every request is in the index of ids. */
static void requests_of_an_older_schema_are_found(void **state) {
    struct harness *h = *state;
    create(h);
    raw_sql(h, "DROP INDEX requests_named; ALTER TABLE requests DROP COLUMN is_named;"
               "CREATE UNIQUE INDEX requests_named ON requests(id);"
               "ALTER TABLE events DROP COLUMN page; ALTER TABLE events DROP COLUMN return_hosts;"
               "ALTER TABLE events DROP COLUMN notice;"
               "DELETE FROM schema_version WHERE number > 6;"
               "INSERT INTO requests VALUES (7, x'01890a5dac96774bbcceb302099a8057', 3, 1, 1, 'a',"
               " 1, 'queue', 2, NULL, zeroblob(32), 0, 'PENDING', '', NULL, 1000, NULL)");
    struct ledger *l = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path});
    struct uuid id;
    struct request *found = NULL;
    struct test_record r;
    assert_true(uuid_parse(STR("01890a5d-ac96-774b-bcce-b302099a8057"), &id));
    test_requests_get(&r, &id, 1, &found);
    assert_int_equal(harness_ask(h, l, &r), ERR_OK);
    assert_non_null(found);
    assert_int_equal(found->seq, 7);
    test_request_put(&r, found);
    assert_int_equal(harness_submit(h, l, &r), ERR_OK);
    assert_false(r.request_put.is_new);
    mem_free(found);
    ledger_close(l);
}

static uint32_t epoch_of(struct harness *h, bool read_only) {
    struct ledger *l =
        raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path, .read_only = read_only});
    uint32_t epoch = ledger_epoch(l);
    ledger_close(l);
    return epoch;
}

static void each_opening_has_the_next_epoch(void **state) {
    struct harness *h = *state;
    for (uint32_t i = 1; i <= 5; i++) assert_int_equal(epoch_of(h, false), i);
    assert_int_equal(raw_number(h, "SELECT number FROM epochs WHERE name = 'ledger'"), 5);
}

static void a_reader_does_not_change_the_epoch(void **state) {
    struct harness *h = *state;
    struct ledger *server = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path});
    assert_int_equal(epoch_of(h, true), 0);
    assert_int_equal(ledger_epoch(server), 1);
    ledger_close(server);
    assert_int_equal(epoch_of(h, true), 0);
    assert_int_equal(raw_number(h, "SELECT number FROM epochs WHERE name = 'ledger'"), 1);
    assert_int_equal(epoch_of(h, false), 2);
}

static void epochs_end_before_a_fence_would_overflow(void **state) {
    struct harness *h = *state;
    create(h);
    raw_sql(h, "UPDATE epochs SET number = 8388606 WHERE name = 'ledger'");
    assert_int_equal(epoch_of(h, false), EPOCH_MAX);
    for (int i = 0; i < 2; i++)
        expect_refused(&(struct sqlite_ledger_options){.path = h->path},
                       "its epoch is 8388607, and 8388607 is the last");
    assert_int_equal(raw_number(h, "SELECT number FROM epochs WHERE name = 'ledger'"), EPOCH_MAX);
    raw_sql(h, "UPDATE epochs SET number = 9223372036854775807 WHERE name = 'ledger'");
    expect_refused(&(struct sqlite_ledger_options){.path = h->path}, "and 8388607 is the last");
    assert_int_equal(epoch_of(h, true), 0);
}

static struct ledger_generation generation_of(struct harness *h, bool new_generation) {
    struct ledger *l = raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .new_generation = new_generation});
    struct ledger_generation generation = ledger_generation(l);
    ledger_close(l);
    return generation;
}

static void a_generation_begins_when_it_is_asked_for(void **state) {
    struct harness *h = *state;
    struct ledger_generation first = generation_of(h, false);
    struct ledger_generation second = generation_of(h, true);
    assert_true(first.number != 0 && second.number != 0 && first.number != second.number);
    assert_int_equal(first.first_seq, 0);
    assert_true(second.first_seq > UINT64_C(1) << 40 && second.first_seq < UINT64_C(1) << 48);
    struct ledger_generation third = generation_of(h, false);
    assert_true(third.number == second.number && third.first_seq == second.first_seq);
}

static void a_generation_that_makes_no_sense_is_refused(void **state) {
    struct harness *h = *state;
    create(h);
    static const struct {
        const char *broken;
        const char *repaired;
    } rows[] = {
        {"UPDATE epochs SET number = number + 4294967296 WHERE name = 'generation'",
         "UPDATE epochs SET number = number - 4294967296 WHERE name = 'generation'"},
        {"INSERT INTO epochs VALUES ('first_seq', 281474976710656)",
         "UPDATE epochs SET number = 7 WHERE name = 'first_seq'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        raw_sql(h, "%s", rows[i].broken);
        expect_refused(&(struct sqlite_ledger_options){.path = h->path},
                       "its generation makes no sense");
        raw_sql(h, "%s", rows[i].repaired);
    }
    assert_int_equal(generation_of(h, false).first_seq, 7);
}

static void newer_schema_is_refused_and_untouched(void **state) {
    struct harness *h = *state;
    create(h);
    raw_sql(h, "INSERT INTO schema_version VALUES (9, 1)");
    const char *words = "the ledger has schema 9, this program knows 8: use a newer admitone";
    expect_refused(&(struct sqlite_ledger_options){.path = h->path}, words);
    expect_refused(&(struct sqlite_ledger_options){.path = h->path, .read_only = true}, words);
    assert_int_equal(raw_number(h, "SELECT max(number) FROM schema_version"), 9);
}

static void a_migration_that_stopped_halfway_is_repeated(void **state) {
    struct harness *h = *state;
    create(h);
    /* The file of a program that died before its first migration was committed. */
    raw_sql(h, "DELETE FROM schema_version");
    expect_refused(&(struct sqlite_ledger_options){.path = h->path}, "schema 1");
    assert_int_equal(raw_number(h, "SELECT count(*) FROM schema_version"), 0);
}

static void create_foreign(struct harness *h) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(h->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE recipes(name)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void foreign_database_is_refused(void **state) {
    struct harness *h = *state;
    create_foreign(h);
    expect_refused(&(struct sqlite_ledger_options){.path = h->path}, "not a ledger of admitone");
    assert_int_equal(raw_number(h, "SELECT count(*) FROM sqlite_schema"), 1);
}

/* SQLite's header says in bytes 18 and 19 whether the file keeps a WAL: opening must not set it. */
static void foreign_database_stays_as_it_was(void **state) {
    struct harness *h = *state;
    create_foreign(h);
    char header[2][100];
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(h->path, "re");
        assert_non_null(file);
        assert_int_equal(fread(header[i], 1, sizeof header[i], file), sizeof header[i]);
        fclose(file);
        if (i == 0)
            expect_refused(&(struct sqlite_ledger_options){.path = h->path}, "not a ledger");
    }
    assert_memory_equal(header[0], header[1], sizeof header[0]);
}

/* Any content that another program wrote into the file is reported, and no assertion fails on it
 * later. */
static void rows_that_make_no_sense_are_reported(void **state) {
    struct harness *h = *state;
    static const char *const edits[] = {
        "UPDATE events SET starts_at = 9223372036854775",
        "UPDATE events SET type = 'a b'",
        "UPDATE events SET version = 0",
        "UPDATE events SET state = 'NONSENSE'",
        "UPDATE sections SET capacity = 1",
    };
    struct ledger *l = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path});
    struct event *wanted = test_event("1", 1);
    struct event *stored = harness_store(h, l, wanted);
    ledger_close(l);
    tables_reservation(raw_tables(h), 1, stored, &stored->sections[0], 3, "HELD");
    tables_reservation(raw_tables(h), 2, stored, &stored->sections[0], 4, "HELD");
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char copy[320];
        snprintf(copy, sizeof copy, "%s.kept", h->path);
        raw_sql(h, "VACUUM INTO '%s'", copy);
        raw_sql_unruly(h, "%s", edits[i]);
        int events = 0;
        l = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path, .read_only = true});
        if (ledger_load(l, &(struct ledger_reader){.on_event = count_event, .to = &events}) !=
            ERR_LEDGER_FAILED)
            fail_msg("%s", edits[i]);
        assert_int_equal(events, 0);
        ledger_close(l);
        assert_int_equal(rename(copy, h->path), 0);
    }
    mem_free(stored);
    mem_free(wanted);
}

/* A long `admitone audit` beside a server that is stopped. */
static void reader_does_not_hold_up_a_close(void **state) {
    struct harness *h = *state;
    struct ledger *l = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path});
    sqlite3 *reader = NULL;
    assert_int_equal(sqlite3_open(h->path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM events", NULL, NULL, NULL),
                     SQLITE_OK);
    struct event *wanted = test_event("1", 1);
    mem_free(harness_store(h, l, wanted));
    mem_free(wanted);
    ledger_close(l); /* while the reader goes on */
    sqlite3_close(reader);
    assert_int_equal(raw_number(h, "SELECT count(*) FROM events"), 1);
}

static void file_that_is_no_database_is_refused(void **state) {
    struct harness *h = *state;
    FILE *f = fopen(h->path, "w");
    for (int i = 0; i < 1000; i++) fputs("this is a letter to my aunt\n", f);
    fclose(f);
    expect_refused(&(struct sqlite_ledger_options){.path = h->path}, "file is not a database");
}

static void missing_folder_is_refused(void **state) {
    struct harness *h = *state;
    char path[400];
    snprintf(path, sizeof path, "%s/nowhere/ledger.db", h->folder);
    expect_refused(&(struct sqlite_ledger_options){.path = path}, "cannot open ");
    expect_refused(&(struct sqlite_ledger_options){.path = h->path, .read_only = true},
                   "cannot open ");
    assert_int_equal(file_bytes(h->path), 0);
}

static void reader_sees_what_a_running_server_commits(void **state) {
    struct harness *h = *state;
    struct ledger *server = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path});
    struct ledger *reader =
        raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path, .read_only = true});
    struct event *wanted = test_event("1", 1);
    mem_free(harness_store(h, server, wanted));
    int events = 0;
    assert_int_equal(
        ledger_load(reader, &(struct ledger_reader){.on_event = count_event, .to = &events}),
        ERR_OK);
    assert_int_equal(events, 1);
    struct test_record page;
    test_page(&page, 0, 10);
    assert_int_equal(harness_ask(h, reader, &page), ERR_OK);
    assert_non_null(strstr(buf_cstr(&page.page.json), "event.put"));
    test_record_deinit(&page);
    struct ledger_health health;
    ledger_health(reader, &health);
    assert_false(health.writable);
    ledger_close(reader);
    ledger_close(server);

    /* Also when no server runs. */
    reader = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path, .read_only = true});
    assert_int_equal(
        ledger_load(reader, &(struct ledger_reader){.on_event = count_event, .to = &events}),
        ERR_OK);
    assert_int_equal(events, 2);
    ledger_close(reader);
    mem_free(wanted);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(new_file_is_its_owners_alone),
        TEST(clean_close_leaves_no_wal),
        TEST(every_table_of_the_design_is_there),
        TEST(opening_again_applies_no_migration_twice),
        TEST(requests_of_an_older_schema_are_found),
        TEST(each_opening_has_the_next_epoch),
        TEST(a_reader_does_not_change_the_epoch),
        TEST(epochs_end_before_a_fence_would_overflow),
        TEST(a_generation_begins_when_it_is_asked_for),
        TEST(a_generation_that_makes_no_sense_is_refused),
        TEST(newer_schema_is_refused_and_untouched),
        TEST(a_migration_that_stopped_halfway_is_repeated),
        TEST(foreign_database_is_refused),
        TEST(foreign_database_stays_as_it_was),
        TEST(rows_that_make_no_sense_are_reported),
        TEST(reader_does_not_hold_up_a_close),
        TEST(file_that_is_no_database_is_refused),
        TEST(missing_folder_is_refused),
        TEST(reader_sees_what_a_running_server_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
