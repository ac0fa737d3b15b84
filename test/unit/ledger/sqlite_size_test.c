/* The cost of an event with a million seats, and of many small commits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ledger_raw.h"

struct fixture {
    struct harness h;
    struct ledger *l;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->l = raw_ledger_open(&(struct sqlite_ledger_options){.path = f->h.path});
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    if (f->l != NULL) ledger_close(f->l);
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

static void million_seats_cost_one_row(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    wanted->sections[0].capacity = SECTION_CAPACITY_MAX;
    wanted->sections[0].mode = SECTION_MODE_SEAT;
    struct event *stored = harness_store(&f->h, f->l, wanted);
    assert_int_equal(raw_number(&f->h, "SELECT count(*) FROM seats"), 0);
    mem_free(stored);
    mem_free(wanted);
}

#define CLIENTS 4
#define IN_FLIGHT 64

/* A worker that submits a record again as soon as it is back. */
struct client {
    struct task task;
    struct worker worker;
    struct ledger *l;
    struct event *wanted;
    struct slot {
        struct ledger_event_put put;
        struct client *client;
    } slots[IN_FLIGHT];
    int64_t left;
    int out;
    _Atomic bool done;
};

static void submit(struct slot *s);

static void on_back(struct task *t) {
    struct slot *s = (struct slot *)t;
    if (s->put.record.result != ERR_OK) abort();
    mem_free(s->put.stored);
    s->client->out--;
    if (s->client->left > 0)
        submit(s);
    else if (s->client->out == 0)
        s->client->done = true;
}

static void submit(struct slot *s) {
    s->put = (struct ledger_event_put){
        .record = {.kind = LEDGER_EVENT_PUT, .task.run = on_back},
        .wanted = s->client->wanted,
        .now_ms = 1,
        .note = {STR("admin"), STR("event.put"), STR("CONCERT/1"), STR("{}")},
    };
    s->client->left--;
    s->client->out++;
    if (ledger_submit(s->client->l, &s->put.record) != ERR_OK) abort();
}

static void start(struct task *t) {
    struct client *c = (struct client *)t;
    for (int i = 0; i < IN_FLIGHT; i++) {
        c->slots[i].client = c;
        submit(&c->slots[i]);
    }
}

static void stop(struct task *t) {
    worker_stop(&((struct client *)t)->worker);
}

static bool all_done(void *arg) {
    struct client *clients = arg;
    for (int i = 0; i < CLIENTS; i++)
        if (!clients[i].done) return false;
    return true;
}

static void four_workers_share_commits(void **state) {
    struct fixture *f = *state;
    struct client *clients = mem_new(CLIENTS * sizeof *clients);
    uint64_t checkpoints = counter_total(COUNT_LEDGER_CHECKPOINTS);
    for (int i = 0; i < CLIENTS; i++) {
        char id[16];
        snprintf(id, sizeof id, "c%d", i);
        clients[i].l = f->l;
        clients[i].left = 2500;
        clients[i].wanted = test_event(id, 1);
        clients[i].task.run = start;
        assert_int_equal(worker_init(&clients[i].worker), 0);
        assert_int_equal(worker_start(&clients[i].worker), 0);
    }
    int64_t began_ns = clock_steady_ns();
    for (int i = 0; i < CLIENTS; i++) mailbox_post(&clients[i].worker.mailbox, &clients[i].task);
    harness_wait(&f->h, all_done, clients);
    double took_s = (double)(clock_steady_ns() - began_ns) / 1e9;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].task.run = stop;
        mailbox_post(&clients[i].worker.mailbox, &clients[i].task);
        worker_join(&clients[i].worker);
        mem_free(clients[i].wanted);
    }
    int64_t audited = raw_number(&f->h, "SELECT count(*) FROM audit");
    assert_int_equal(audited, CLIENTS * 2500);
    struct buf text = {0};
    metrics_render(&text);
    const char *batches = strstr(buf_cstr(&text), "admitone_ledger_batch_records_count");
    assert_non_null(batches);
    double count = strtod(strchr(batches, ' '), NULL);
    print_message("%d puts from %d workers: %.0f records/s, %.1f records per batch, "
                  "%.2f ms per batch, %llu checkpoints\n",
                  CLIENTS * 2500, CLIENTS, CLIENTS * 2500 / took_s, CLIENTS * 2500 / count,
                  took_s * 1000 / count,
                  (unsigned long long)(counter_total(COUNT_LEDGER_CHECKPOINTS) - checkpoints));
    assert_true(CLIENTS * 2500 / count > 4);
    buf_deinit(&text);
    mem_free(clients);
}

/* Fills a section with as many taken seats; by SQL alone, so not quite consistent. */
static void sell_all(struct fixture *f, int64_t seats) {
    raw_sql_unruly(&f->h,
                   "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %lld)"
                   " INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
                   " SELECT 1, i, 'CONFIRMED', zeroblob(16), 1 FROM n;"
                   "UPDATE sections SET confirmed = %lld WHERE id = 1",
                   (long long)seats, (long long)seats);
}

static void changing_a_sold_out_event_is_bearable(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    wanted->sections[0].capacity = 200000;
    mem_free(harness_store(&f->h, f->l, wanted));
    sell_all(f, 200000);
    int64_t began_ns = clock_steady_ns();
    struct event *stored = harness_store(&f->h, f->l, wanted);
    int64_t took_us = (clock_steady_ns() - began_ns) / 1000;
    print_message("changing an event of 200,000 sold seats: %lld us\n", (long long)took_us);
    assert_int_equal(stored->sections[0].confirmed, 200000);
    mem_free(stored);
    mem_free(wanted);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(million_seats_cost_one_row),
        TEST(four_workers_share_commits),
        TEST(changing_a_sold_out_event_is_bearable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
