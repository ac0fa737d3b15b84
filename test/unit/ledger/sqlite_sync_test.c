/*
 * Nothing is answered before it is on disk. The file layer below SQLite records when the bytes of
 * each record were written to the WAL, and when a sync that began after that ended: a record may
 * come back only later. While a sync is delayed, no record comes back.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_raw.h"
#include "sync_recorder.h"

#define WORKERS 3
#define EACH 60

/* One worker and its records, each of which leaves an audit row with a text found nowhere else. */
struct client {
    struct task task;
    struct worker worker;
    struct ledger *l;
    struct event *wanted;
    char needles[EACH][40];
    struct test_record records[EACH];
    size_t first;
    size_t count;
    _Atomic bool submitted;
};

struct fixture {
    struct harness h;
    struct ledger *l;
    struct client clients[WORKERS];
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->l = raw_ledger_open(&(struct sqlite_ledger_options){.path = f->h.path, .batch_max = 16});
    for (int c = 0; c < WORKERS; c++) {
        struct client *client = &f->clients[c];
        client->l = f->l;
        client->wanted = test_event("1", 1);
        for (size_t i = 0; i < EACH; i++) {
            snprintf(client->needles[i], sizeof client->needles[i], "\"needle-%d-%zu-in-the-hay\"",
                     c, i);
            sync_watch((size_t)c * EACH + i, client->needles[i]);
        }
        assert_int_equal(worker_init(&client->worker), 0);
        assert_int_equal(worker_start(&client->worker), 0);
    }
    *state = f;
    return 0;
}

static void stop_worker(struct task *t) {
    worker_stop(&((struct client *)t)->worker);
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    if (f->l != NULL) ledger_close(f->l);
    for (int c = 0; c < WORKERS; c++) {
        struct client *client = &f->clients[c];
        client->task.run = stop_worker;
        mailbox_post(&client->worker.mailbox, &client->task);
        worker_join(&client->worker);
        for (size_t i = 0; i < EACH; i++) {
            sync_watch((size_t)c * EACH + i, NULL);
            test_record_deinit(&client->records[i]);
        }
        mem_free(client->wanted);
    }
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

static void submit_some(struct task *t) {
    struct client *client = (struct client *)t;
    for (size_t i = client->first; i < client->first + client->count; i++) {
        test_put(&client->records[i], client->wanted, 1);
        client->records[i].put.note.detail = str_of(client->needles[i]);
        if (ledger_submit(client->l, &client->records[i].record) != ERR_OK) abort();
    }
    client->submitted = true;
}

static bool all_submitted(void *arg) {
    struct fixture *f = arg;
    for (int c = 0; c < WORKERS; c++)
        if (!f->clients[c].submitted) return false;
    return true;
}

static void submit_everywhere(struct fixture *f, size_t first, size_t count) {
    for (int c = 0; c < WORKERS; c++) {
        struct client *client = &f->clients[c];
        client->first = first;
        client->count = count;
        client->submitted = false;
        client->task.run = submit_some;
        mailbox_post(&client->worker.mailbox, &client->task);
    }
    harness_wait(&f->h, all_submitted, f);
}

/* Reads the workers' records on their own threads, which own `back`. */
struct look {
    struct task task;
    struct client *client;
    size_t back;
    _Atomic bool done;
};

static void look_on_worker(struct task *t) {
    struct look *look = (struct look *)t;
    for (size_t i = 0; i < EACH; i++) look->back += look->client->records[i].back;
    look->done = true;
}

static bool looked(void *arg) {
    return ((struct look *)arg)->done;
}

static size_t count_back(struct fixture *f) {
    size_t back = 0;
    for (int c = 0; c < WORKERS; c++) {
        struct look look = {.task.run = look_on_worker, .client = &f->clients[c]};
        mailbox_post(&f->clients[c].worker.mailbox, &look.task);
        harness_wait(&f->h, looked, &look);
        back += look.back;
    }
    return back;
}

static void wait_all_back(struct fixture *f, size_t each) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)HARNESS_DEADLINE_MS * 1000000;
    while (count_back(f) < WORKERS * each) assert_true(clock_steady_ns() < deadline_ns);
}

static void assert_all_proven(struct fixture *f, size_t first, size_t count) {
    wait_all_back(f, first + count);
    for (int c = 0; c < WORKERS; c++) {
        for (size_t i = first; i < first + count; i++) {
            struct test_record *r = &f->clients[c].records[i];
            assert_int_equal(r->record.result, ERR_OK);
            assert_true(sync_proven((size_t)c * EACH + i, r->back_ns));
        }
    }
}

static bool gate_waits(void *arg) {
    (void)arg;
    return sync_gate_waits();
}

static void answers_come_after_the_sync_of_their_bytes(void **state) {
    struct fixture *f = *state;
    for (size_t first = 0; first < EACH; first += 20) {
        submit_everywhere(f, first, 20);
        assert_all_proven(f, first, 20);
    }
}

static void held_sync_holds_every_answer(void **state) {
    struct fixture *f = *state;
    sync_gate_close();
    submit_everywhere(f, 0, 10);
    harness_wait(&f->h, gate_waits, NULL);
    harness_run_for(&f->h, 200);
    assert_int_equal(count_back(f), 0);
    struct ledger_health health;
    ledger_health(f->l, &health);
    assert_int_equal(health.queue_depth, WORKERS * 10);
    int64_t opened_ns = clock_steady_ns();
    sync_gate_open();
    assert_all_proven(f, 0, 10);
    for (int c = 0; c < WORKERS; c++)
        for (size_t i = 0; i < 10; i++) assert_true(f->clients[c].records[i].back_ns > opened_ns);
}

static void many_records_share_a_sync(void **state) {
    struct fixture *f = *state;
    sync_gate_close();
    submit_everywhere(f, 0, 1);
    harness_wait(&f->h, gate_waits, NULL);
    submit_everywhere(f, 1, 16);
    size_t before = sync_count();
    sync_gate_open();
    assert_all_proven(f, 0, 17);
    /* 51 records in batches of at most 16: the one that was held, and four at most. Each new WAL
     * has its header synced too. */
    assert_in_range(sync_count() - before, 2, 7);
}

static void *close_it(void *arg) {
    ledger_close(arg);
    return NULL;
}

static void closing_refuses_what_is_new_and_finishes_what_is_not(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("2", 1);
    struct test_record accepted;
    struct test_record page;
    struct test_record late[100];
    sync_gate_close();
    test_put(&accepted, wanted, 1);
    assert_int_equal(ledger_submit(f->l, &accepted.record), ERR_OK);
    harness_wait(&f->h, gate_waits, NULL);
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_it, f->l), 0);
    size_t taken = 0;
    enum err e = ERR_OK;
    while (e == ERR_OK && taken < 100) {
        test_put(&late[taken], wanted, 1);
        e = ledger_submit(f->l, &late[taken].record);
        if (e == ERR_OK) {
            taken++;
            harness_run_for(&f->h, 5);
        }
    }
    assert_int_equal(e, ERR_STOPPING);
    test_page(&page, 0, 1);
    assert_int_equal(ledger_ask(f->l, &page.record), ERR_STOPPING);
    sync_gate_open();
    pthread_join(closer, NULL);
    f->l = NULL;
    harness_wait_back(&f->h, &accepted, 1);
    harness_wait_back(&f->h, late, taken);
    assert_int_equal(accepted.record.result, ERR_OK);
    test_record_deinit(&accepted);
    for (size_t i = 0; i < taken; i++) {
        assert_int_equal(late[i].record.result, ERR_OK);
        test_record_deinit(&late[i]);
    }
    mem_free(wanted);
}

int main(void) {
    sync_recorder_register();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(answers_come_after_the_sync_of_their_bytes),
        TEST(held_sync_holds_every_answer),
        TEST(many_records_share_a_sync),
        TEST(closing_refuses_what_is_new_and_finishes_what_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
