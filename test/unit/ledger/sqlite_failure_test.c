/* A disk that is full or broken, a record that violates a constraint, a process that dies:
 * acknowledged changes stay, refused ones left nothing, and the ledger recovers by itself. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "ledger_raw.h"
#include "sync_recorder.h"

struct fixture {
    struct harness h;
    struct ledger *l;
};

static int set_up_with(void **state, int64_t wal_bytes_max) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->l = raw_ledger_open(
        &(struct sqlite_ledger_options){.path = f->h.path, .wal_bytes_max = wal_bytes_max});
    *state = f;
    return 0;
}

/* So that no checkpoint runs in between. */
static int set_up(void **state) {
    return set_up_with(state, 0);
}

/* So that there are many checkpoints. */
static int set_up_small_wal(void **state) {
    return set_up_with(state, 128 * 1024);
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    sync_fail_writes(0, 0);
    sync_fail_syncs(0);
    ledger_close(f->l);
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

struct last {
    struct event *e;
    int count;
};

static void on_event(void *to, struct event *e) {
    struct last *last = to;
    mem_free(last->e);
    last->e = e;
    last->count++;
}

/* The event in the ledger has this title, or there is none (NULL). */
static void assert_in_force(struct fixture *f, const char *title) {
    struct last last = {0};
    assert_int_equal(ledger_load(f->l, &(struct ledger_reader){.on_event = on_event, .to = &last}),
                     ERR_OK);
    assert_int_equal(last.count, title == NULL ? 0 : 1);
    if (title != NULL) assert_string_equal(last.e->title, title);
    mem_free(last.e);
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    assert_int_equal(finding->violations, 0);
}

static void assert_sound(struct fixture *f) {
    assert_int_equal(ledger_check(f->l, true, on_finding, NULL), ERR_OK);
}

static bool is_writable(struct fixture *f) {
    struct ledger_health health;
    ledger_health(f->l, &health);
    assert_int_equal(health.queue_depth, 0);
    return health.writable;
}

static enum err put_titled(struct fixture *f, const char *title) {
    struct event *wanted = test_event("1", 3);
    str_copy(str_of(title), wanted->title, sizeof wanted->title);
    struct test_record r;
    test_put(&r, wanted, 1);
    enum err e = harness_submit(&f->h, f->l, &r);
    assert_int_equal(r.put.stored != NULL, e == ERR_OK);
    if (e != ERR_OK) assert_false(r.put.created);
    test_record_deinit(&r);
    mem_free(wanted);
    return e;
}

/* The log goes to a file until it is restored. */
static int divert_log(struct fixture *f) {
    char path[300];
    snprintf(path, sizeof path, "%s/log", f->h.folder);
    int kept = dup(STDERR_FILENO);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    fclose(file);
    return kept;
}

static void restore_log(int kept) {
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
}

static int lines_logged(struct fixture *f, const char *words) {
    char path[300];
    char line[500];
    int lines = 0;
    snprintf(path, sizeof path, "%s/log", f->h.folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) lines += strstr(line, words) != NULL;
    fclose(file);
    return lines;
}

static void full_disk_refuses_and_recovers(void **state) {
    struct fixture *f = *state;
    int kept = divert_log(f);
    assert_int_equal(put_titled(f, "before"), ERR_OK);
    sync_fail_writes(SQLITE_FULL, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(put_titled(f, "while full"), ERR_LEDGER_FULL);
    assert_false(is_writable(f));
    assert_in_force(f, "before");
    struct test_record del;
    test_delete(&del, "CONCERT", "1", 1);
    assert_int_equal(harness_submit(&f->h, f->l, &del), ERR_LEDGER_FULL);
    assert_int_equal(del.del.version, 0);

    sync_fail_writes(0, 0);
    assert_int_equal(put_titled(f, "after"), ERR_OK);
    assert_true(is_writable(f));
    assert_in_force(f, "after");
    restore_log(kept);
    assert_int_equal(lines_logged(f, "cannot write"), 1);
    assert_int_equal(lines_logged(f, "can write again"), 1);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM audit"), 2);
    assert_sound(f);
}

static void disk_that_fills_midway_leaves_nothing_half_done(void **state) {
    struct fixture *f = *state;
    assert_int_equal(put_titled(f, "before"), ERR_OK);
    int refused = 0;
    enum err e = ERR_LEDGER_FULL;
    for (int spared = 1; e != ERR_OK; spared++) {
        sync_fail_writes(SQLITE_FULL, spared);
        e = put_titled(f, "wanted");
        sync_fail_writes(0, 0);
        assert_true(e == ERR_OK || e == ERR_LEDGER_FULL);
        refused += e == ERR_LEDGER_FULL;
        assert_in_force(f, e == ERR_OK ? "wanted" : "before");
        assert_sound(f);
    }
    assert_true(refused >= 3);
}

static void only_the_guilty_record_fails(void **state) {
    struct fixture *f = *state;
    struct event *events[20];
    struct test_record records[20];
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof id, "e%d", i);
        events[i] = test_event(id, 2);
        test_put(&records[i], events[i], 1);
        if (i == 7) records[i].put.note.detail = STR("no JSON");
    }
    uint64_t failures = counter_total(COUNT_LEDGER_BATCH_FAILURES);
    uint64_t written = counter_total(COUNT_LEDGER_RECORDS);
    raw_submit_as_batch(&f->h, f->l, records, 20);
    /* The batch, and the one alone. */
    assert_int_equal(counter_total(COUNT_LEDGER_BATCH_FAILURES) - failures, 2);
    assert_int_equal(counter_total(COUNT_LEDGER_RECORDS) - written, 1 + 19);
    assert_true(is_writable(f));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(records[i].record.result, i == 7 ? ERR_LEDGER_FAILED : ERR_OK);
        assert_int_equal(records[i].put.stored != NULL, i != 7);
        if (i != 7) assert_true(records[i].put.created);
        test_record_deinit(&records[i]);
        mem_free(events[i]);
    }
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM events"), 20);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM audit"), 20);
    assert_sound(f);
}

static void whole_batch_fails_with_the_disk(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    struct test_record records[20];
    for (int i = 0; i < 20; i++) test_put(&records[i], wanted, 1);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    raw_submit_as_batch(&f->h, f->l, records, 20);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(records[i].record.result, ERR_LEDGER_FAILED);
        assert_null(records[i].put.stored);
    }
    assert_false(is_writable(f));
    sync_fail_syncs(0);
    assert_in_force(f, NULL);
    assert_int_equal(put_titled(f, "after"), ERR_OK);
    assert_in_force(f, "after");
    assert_sound(f);
    mem_free(wanted);
}

static void copy_file(const char *from, const char *to) {
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    char bytes[4096];
    size_t n;
    while ((n = fread(bytes, 1, sizeof bytes, in)) > 0)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* The files as a process that died now would leave them. */
static int64_t audit_rows_after_a_crash(struct fixture *f) {
    struct harness crashed = f->h;
    char from[400];
    char to[400];
    snprintf(crashed.path, sizeof crashed.path, "%s/crashed.db", f->h.folder);
    static const char *const suffixes[] = {"", "-wal"};
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s%s", f->h.path, suffixes[i]);
        snprintf(to, sizeof to, "%s%s", crashed.path, suffixes[i]);
        copy_file(from, to);
    }
    return raw_number(&crashed, "SELECT count(*) FROM audit");
}

static void failed_commit_does_not_come_back_after_a_crash(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++) assert_int_equal(put_titled(f, "before"), ERR_OK);
    assert_int_equal(audit_rows_after_a_crash(f), 3);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    assert_int_equal(put_titled(f, "failed"), ERR_LEDGER_FAILED);
    assert_int_equal(audit_rows_after_a_crash(f), 3);
    assert_in_force(f, "before");
}

static void any_sequence_of_failures_keeps_the_last_acknowledged(void **state) {
    struct fixture *f = *state;
    unsigned seed = 20261225;
    int kept = divert_log(f);
    char acknowledged[20] = "";
    int failed = 0;
    for (int i = 0; i < 400; i++) {
        int fault = rand_r(&seed) % 6;
        if (fault == 0) sync_fail_writes(SQLITE_FULL, rand_r(&seed) % 12);
        if (fault == 1) sync_fail_writes(SQLITE_IOERR_WRITE, rand_r(&seed) % 12);
        if (fault == 2) sync_fail_syncs(SQLITE_IOERR_FSYNC);
        char title[20];
        snprintf(title, sizeof title, "title %d", i);
        enum err e = put_titled(f, title);
        sync_fail_writes(0, 0);
        sync_fail_syncs(0);
        if (e == ERR_OK) memcpy(acknowledged, title, sizeof acknowledged);
        failed += e != ERR_OK;
        assert_in_force(f, acknowledged[0] == '\0' ? NULL : acknowledged);
    }
    restore_log(kept);
    assert_true(failed > 50 && failed < 350);
    assert_sound(f);
}

/* The child writes until it is killed, and reports each acknowledged version. */
static _Noreturn void child_writes(struct harness *h, int tell) {
    struct ledger *l = raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .wal_bytes_max = 128 * 1024});
    struct event *wanted = test_event("1", 3);
    for (;;) {
        struct test_record r;
        test_put(&r, wanted, 1);
        if (harness_submit(h, l, &r) != ERR_OK) _exit(1);
        int64_t version = r.put.stored->version;
        if (write(tell, &version, sizeof version) != sizeof version) _exit(2);
        test_record_deinit(&r);
    }
}

static void acknowledged_records_survive_a_kill(void **state) {
    (void)state;
    struct harness h;
    harness_init(&h);
    int64_t told = 0;
    for (int round = 0; round < 3; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) child_writes(&h, ends[1]);
        close(ends[1]);
        int64_t version = 0;
        int64_t enough = told + 100;
        while (read(ends[0], &version, sizeof version) == sizeof version) {
            assert_true(version > told);
            told = version;
            if (told == enough) kill(child, SIGKILL);
        }
        close(ends[0]);
        assert_true(told >= enough);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        /* One more may have been committed and not reported. */
        int64_t highest = raw_number(&h, "SELECT version FROM events");
        assert_in_range(highest, told, told + 1);
        assert_int_equal(raw_number(&h, "SELECT count(*) FROM audit"), highest);
        told = highest;
    }
    harness_deinit(&h);
}

/* The child opens the ledger, reports its epoch, and does nothing more until it is killed. */
static _Noreturn void child_opens(struct harness *h, int tell) {
    uint32_t epoch =
        ledger_epoch(raw_ledger_open(&(struct sqlite_ledger_options){.path = h->path}));
    if (write(tell, &epoch, sizeof epoch) != sizeof epoch) _exit(1);
    for (;;) pause();
}

static void an_epoch_is_not_given_again_after_a_kill(void **state) {
    (void)state;
    struct harness h;
    harness_init(&h);
    for (uint32_t round = 1; round <= 3; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) child_opens(&h, ends[1]);
        close(ends[1]);
        uint32_t epoch = 0;
        assert_int_equal(read(ends[0], &epoch, sizeof epoch), sizeof epoch);
        close(ends[0]);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(epoch, round);
    }
    harness_deinit(&h);
}

static void expect_no_epoch(struct fixture *f) {
    struct buf why = {0};
    struct ledger *l = NULL;
    assert_int_equal(
        sqlite_ledger_open(&(struct sqlite_ledger_options){.path = f->h.path}, &l, &why),
        ERR_LEDGER_FAILED);
    assert_null(l);
    if (strstr(buf_cstr(&why), "cannot write the next epoch to ") == NULL)
        fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
}

/* A failed sync fails the opening: so it was asked for, and waited for. The reader keeps the WAL
 * there, for the header of a new one is synced in any case. */
static void nothing_opens_before_its_epoch_is_on_disk(void **state) {
    struct fixture *f = *state;
    uint32_t before = ledger_epoch(f->l);
    sqlite3 *reader = NULL;
    assert_int_equal(sqlite3_open(f->h.path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM events", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(put_titled(f, "before"), ERR_OK);
    ledger_close(f->l);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    expect_no_epoch(f);
    sync_fail_syncs(0);
    sync_fail_writes(SQLITE_FULL, 0);
    expect_no_epoch(f);
    sync_fail_writes(0, 0);
    f->l = raw_ledger_open(&(struct sqlite_ledger_options){.path = f->h.path});
    assert_true(ledger_epoch(f->l) > before);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
}

int main(void) {
    sync_recorder_register();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        /* First, while this process has no other threads to fork. */
        cmocka_unit_test(acknowledged_records_survive_a_kill),
        cmocka_unit_test(an_epoch_is_not_given_again_after_a_kill),
        TEST(full_disk_refuses_and_recovers),
        TEST(disk_that_fills_midway_leaves_nothing_half_done),
        TEST(only_the_guilty_record_fails),
        TEST(whole_batch_fails_with_the_disk),
        TEST(nothing_opens_before_its_epoch_is_on_disk),
        TEST(failed_commit_does_not_come_back_after_a_crash),
        cmocka_unit_test_setup_teardown(any_sequence_of_failures_keeps_the_last_acknowledged,
                                        set_up_small_wal, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
