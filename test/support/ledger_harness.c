#include "ledger_harness.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

static _Thread_local size_t back_count;

void harness_init(struct harness *h) {
    *h = (struct harness){0};
    const char *tmp = getenv("TMPDIR");
    int len = snprintf(h->folder, sizeof h->folder, "%s/admitone-ledger-XXXXXX",
                       tmp == NULL || tmp[0] == '\0' ? "/tmp" : tmp);
    assert_true(len > 0 && (size_t)len < sizeof h->folder);
    assert_non_null(mkdtemp(h->folder));
    snprintf(h->path, sizeof h->path, "%s/ledger.db", h->folder);
    assert_int_equal(uv_loop_init(&h->loop), 0);
    mailbox_init(&h->mailbox, &h->loop);
    mailbox_set_mine(&h->mailbox);
}

static void remove_folder(const char *folder) {
    DIR *d = opendir(folder);
    assert_non_null(d);
    struct dirent *entry;
    while ((entry = readdir(d)) != NULL)
        if (entry->d_name[0] != '.') unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    assert_int_equal(rmdir(folder), 0);
}

void harness_deinit(struct harness *h) {
    mailbox_close(&h->mailbox);
    uv_run(&h->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&h->loop), 0);
    mailbox_deinit(&h->mailbox);
    mailbox_set_mine(NULL);
    remove_folder(h->folder);
}

/* Runs the loop, and waits until something arrives at it, but not for long: the condition may be
 * about another thread, which wakes no loop. */
static void iterate(struct harness *h) {
    if (uv_run(&h->loop, UV_RUN_NOWAIT) == 0) return;
    poll(&(struct pollfd){.fd = uv_backend_fd(&h->loop), .events = POLLIN}, 1, 1);
}

void harness_wait(struct harness *h, bool (*done)(void *arg), void *arg) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)HARNESS_DEADLINE_MS * 1000000;
    while (!done(arg)) {
        if (clock_steady_ns() > deadline_ns) fail_msg("waited longer than the deadline");
        iterate(h);
    }
}

void harness_run_for(struct harness *h, int64_t ms) {
    int64_t until_ns = clock_steady_ns() + ms * 1000000;
    while (clock_steady_ns() < until_ns) iterate(h);
}

static void on_back(struct task *t) {
    struct test_record *r = CONTAINER_OF(t, struct test_record, record.task);
    assert_false(r->back);
    r->back_ns = clock_steady_ns();
    r->back_home = mailbox_mine();
    r->back_order = back_count++;
    r->back = true;
}

static struct audit_note note_of(const char *act) {
    return (struct audit_note){
        .actor = STR("admin"),
        .act = str_of(act),
        .subject = STR("CONCERT/1"),
        .detail = STR("{\"by\":\"test\"}"),
    };
}

void test_put(struct test_record *r, const struct event *wanted, int64_t now_ms) {
    *r = (struct test_record){.put = {
                                  .record = {.kind = LEDGER_EVENT_PUT, .task.run = on_back},
                                  .wanted = wanted,
                                  .now_ms = now_ms,
                                  .note = note_of("event.put"),
                              }};
}

void test_delete(struct test_record *r, const char *type, const char *id, int64_t now_ms) {
    *r = (struct test_record){.del = {
                                  .record = {.kind = LEDGER_EVENT_DELETE, .task.run = on_back},
                                  .type = str_of(type),
                                  .id = str_of(id),
                                  .now_ms = now_ms,
                                  .note = note_of("event.delete"),
                              }};
}

void test_act(struct test_record *r, const char *act, int64_t now_ms) {
    *r = (struct test_record){
        .act = {.record = {.kind = LEDGER_ACT, .task.run = on_back},
                .now_ms = now_ms,
                .note = {STR("ann"), str_of(act), STR("a subject"), STR("{\"n\":1}")}}};
}

void test_page(struct test_record *r, int64_t before, int64_t limit) {
    *r = (struct test_record){.page = {
                                  .record = {.kind = LEDGER_AUDIT_PAGE, .task.run = on_back},
                                  .before = before,
                                  .limit = limit,
                              }};
}

void test_enter(struct test_record *r, int64_t event_key, uint64_t seq, const char *user,
                enum entry_status status) {
    *r = (struct test_record){.enter = {
                                  .record = {.kind = LEDGER_ENTER, .task.run = on_back},
                                  .event_key = event_key,
                                  .seq = seq,
                                  .user = str_of(user),
                                  .lane = (unsigned)(seq % LANES),
                                  .status = status,
                                  .joined_ms = 1000 + (int64_t)seq,
                                  .expires_ms = 5000 + (int64_t)seq,
                              }};
}

void test_enter_void(struct test_record *r, int64_t event_key, uint64_t seq) {
    *r = (struct test_record){.enter_void = {
                                  .record = {.kind = LEDGER_ENTER_VOID, .task.run = on_back},
                                  .event_key = event_key,
                                  .seq = seq,
                                  .now_ms = 2000,
                              }};
}

void test_admit(struct test_record *r, int64_t event_key, const struct entry_change *entries,
                size_t count, bool *kept) {
    *r = (struct test_record){.admit = {
                                  .record = {.kind = LEDGER_ADMIT, .task.run = on_back},
                                  .event_key = event_key,
                                  .now_ms = 2000,
                                  .entries = entries,
                                  .count = count,
                                  .kept = kept,
                              }};
}

void test_end(struct test_record *r, int64_t event_key, enum entry_status final,
              const uint64_t *seqs, size_t count, bool *ended) {
    *r = (struct test_record){.end = {
                                  .record = {.kind = LEDGER_END, .task.run = on_back},
                                  .event_key = event_key,
                                  .now_ms = 3000,
                                  .final = final,
                                  .seqs = seqs,
                                  .count = count,
                                  .ended = ended,
                              }};
}

void test_get(struct test_record *r, int64_t event_key, uint64_t seq) {
    *r = (struct test_record){.get = {
                                  .record = {.kind = LEDGER_ENTRY_GET, .task.run = on_back},
                                  .event_key = event_key,
                                  .seq = seq,
                              }};
}

void test_hold(struct test_record *r, const struct reservation *wanted) {
    assert_true(wanted->seat_count <= TEST_SEATS_MAX);
    *r = (struct test_record){.hold = {
                                  .record = {.kind = LEDGER_HOLD, .task.run = on_back},
                                  .wanted = wanted,
                                  .refused = r->refused,
                              }};
}

void test_hold_void(struct test_record *r, const struct reservation *of, int64_t now_ms) {
    *r = (struct test_record){.undo = {
                                  .record = {.kind = LEDGER_HOLD_VOID, .task.run = on_back},
                                  .id = of->id,
                                  .event_key = of->event_key,
                                  .section_key = of->section_key,
                                  .now_ms = now_ms,
                              }};
}

void test_confirm(struct test_record *r, const struct uuid *id, const char *user, int64_t now_ms) {
    *r = (struct test_record){.confirm = {
                                  .record = {.kind = LEDGER_CONFIRM, .task.run = on_back},
                                  .id = *id,
                                  .user = str_of(user),
                                  .now_ms = now_ms,
                              }};
    snprintf(r->confirm.code, sizeof r->confirm.code, "CODE%06u",
             (unsigned)((uint64_t)now_ms % 1000000));
}

void test_cancel(struct test_record *r, const struct uuid *id, const char *user, int64_t now_ms) {
    *r = (struct test_record){.cancel = {
                                  .record = {.kind = LEDGER_CANCEL, .task.run = on_back},
                                  .id = *id,
                                  .user = str_of(user),
                                  .now_ms = now_ms,
                                  .may_end_confirmed = true,
                              }};
}

void test_expire(struct test_record *r, const struct uuid *ids, size_t count, bool *expired,
                 int64_t now_ms) {
    *r = (struct test_record){.expire = {
                                  .record = {.kind = LEDGER_EXPIRE, .task.run = on_back},
                                  .now_ms = now_ms,
                                  .ids = ids,
                                  .count = count,
                                  .expired = expired,
                              }};
}

void test_reservation_get(struct test_record *r, const struct uuid *id) {
    *r = (struct test_record){
        .reservation_get = {.record = {.kind = LEDGER_RESERVATION_GET, .task.run = on_back},
                            .id = *id}};
}

void test_seats_read(struct test_record *r, int64_t section_key, const uint32_t *seats,
                     size_t count, enum seat_state *states, int64_t *versions,
                     struct uuid *holders) {
    *r = (struct test_record){.seats_read = {
                                  .record = {.kind = LEDGER_SEATS_READ, .task.run = on_back},
                                  .section_key = section_key,
                                  .seats = seats,
                                  .count = count,
                                  .states = states,
                                  .versions = versions,
                                  .holders = holders,
                              }};
}

void test_idempotency_get(struct test_record *r, struct idempotency *i) {
    *r = (struct test_record){
        .idempotency_get = {.record = {.kind = LEDGER_IDEMPOTENCY_GET, .task.run = on_back},
                            .idempotency = i}};
}

void test_facts_relayed(struct test_record *r, const int64_t *ids, size_t count, int64_t now_ms) {
    *r = (struct test_record){.facts_relayed = {
                                  .record = {.kind = LEDGER_FACTS_RELAYED, .task.run = on_back},
                                  .now_ms = now_ms,
                                  .ids = ids,
                                  .count = count,
                              }};
}

void test_facts_publish(struct test_record *r, const struct uuid *node, int64_t lease_ms,
                        struct sale_mark published) {
    *r = (struct test_record){.facts_publish = {
                                  .record = {.kind = LEDGER_FACTS_PUBLISH, .task.run = on_back},
                                  .topic = STR("facts"),
                                  .node = *node,
                                  .lease_ms = lease_ms,
                                  .published = published,
                              }};
}

void test_events_read(struct test_record *r, int64_t known_mark) {
    *r = (struct test_record){.events_read = {
                                  .record = {.kind = LEDGER_EVENTS_READ, .task.run = on_back},
                                  .known_mark = known_mark,
                              }};
}

void test_waiting_read(struct test_record *r, int64_t event_key) {
    *r = (struct test_record){.waiting_read = {
                                  .record = {.kind = LEDGER_WAITING_READ, .task.run = on_back},
                                  .event_key = event_key,
                              }};
}

void test_facts_read(struct test_record *r, int64_t now_ms, int64_t older_ms) {
    *r = (struct test_record){.facts_read = {
                                  .record = {.kind = LEDGER_FACTS_READ, .task.run = on_back},
                                  .now_ms = now_ms,
                                  .older_ms = older_ms,
                              }};
}

void test_sales_read(struct test_record *r, struct sale_mark mark, struct sale *sales, size_t max) {
    *r = (struct test_record){.sales_read = {
                                  .record = {.kind = LEDGER_SALES_READ, .task.run = on_back},
                                  .mark = mark,
                                  .sales = sales,
                                  .max = max,
                              }};
}

void test_facts_page(struct test_record *r, struct sale_mark after, struct fact **facts,
                     size_t max) {
    *r = (struct test_record){.facts_page = {
                                  .record = {.kind = LEDGER_FACTS_PAGE, .task.run = on_back},
                                  .after = after,
                                  .facts = facts,
                                  .max = max,
                              }};
}

void test_node_report(struct test_record *r, const struct uuid *node, bool registers,
                      int64_t applied) {
    *r = (struct test_record){.node_report = {
                                  .record = {.kind = LEDGER_NODE_REPORT, .task.run = on_back},
                                  .node = *node,
                                  .registers = registers,
                                  .name = STR("a node"),
                                  .applied = applied,
                              }};
}

void test_nodes_drop(struct test_record *r, int64_t version) {
    *r = (struct test_record){.nodes_drop = {
                                  .record = {.kind = LEDGER_NODES_DROP, .task.run = on_back},
                                  .version = version,
                              }};
}

void test_nodes_read(struct test_record *r) {
    *r = (struct test_record){
        .nodes_read = {.record = {.kind = LEDGER_NODES_READ, .task.run = on_back}}};
}

void test_request_put(struct test_record *r, const struct request *wanted) {
    *r = (struct test_record){
        .request_put = {.record = {.kind = LEDGER_REQUEST_PUT, .task.run = on_back},
                        .wanted = wanted}};
}

void test_request_decide(struct test_record *r, const struct request *wanted) {
    *r = (struct test_record){
        .request_decide = {.record = {.kind = LEDGER_REQUEST_DECIDE, .task.run = on_back},
                           .wanted = wanted}};
}

void test_request_lease(struct test_record *r, const struct uuid *node, int64_t lease_ms) {
    *r = (struct test_record){
        .request_lease = {.record = {.kind = LEDGER_REQUEST_LEASE, .task.run = on_back},
                          .node = *node,
                          .lease_ms = lease_ms}};
}

void test_requests_get(struct test_record *r, const struct uuid *ids, size_t count,
                       struct request **found) {
    *r = (struct test_record){
        .requests_get = {.record = {.kind = LEDGER_REQUESTS_GET, .task.run = on_back},
                         .ids = ids,
                         .count = count,
                         .found = found}};
}

void test_requests_read(struct test_record *r, int partition, int64_t after_seq,
                        struct request **requests, size_t max) {
    *r = (struct test_record){
        .requests_read = {.record = {.kind = LEDGER_REQUESTS_READ, .task.run = on_back},
                          .partition = partition,
                          .after_seq = after_seq,
                          .max = max,
                          .requests = requests}};
}

void test_requests_open(struct test_record *r) {
    *r = (struct test_record){
        .requests_open = {.record = {.kind = LEDGER_REQUESTS_OPEN, .task.run = on_back}}};
}

void test_record_deinit(struct test_record *r) {
    if (r->record.kind == LEDGER_EVENT_PUT) mem_free(r->put.stored);
    if (r->record.kind == LEDGER_CONFIRM) mem_free(r->confirm.stored);
    if (r->record.kind == LEDGER_CANCEL) mem_free(r->cancel.stored);
    if (r->record.kind == LEDGER_RESERVATION_GET) mem_free(r->reservation_get.found);
    if (r->record.kind == LEDGER_AUDIT_PAGE) buf_deinit(&r->page.json);
    if (r->record.kind == LEDGER_WAITING_READ) mem_free(r->waiting_read.waiting);
    for (int p = 0; r->record.kind == LEDGER_REQUESTS_OPEN && p < REQUEST_PARTITIONS; p++)
        mem_free(r->requests_open.partitions[p].seqs);
    if (r->record.kind == LEDGER_EVENTS_READ) {
        for (size_t i = 0; i < r->events_read.count; i++) mem_free(r->events_read.events[i]);
        mem_free(r->events_read.events);
        mem_free(r->events_read.removed);
    }
}

struct several {
    struct test_record *records;
    size_t count;
};

static bool all_back(void *arg) {
    struct several *s = arg;
    for (size_t i = 0; i < s->count; i++)
        if (!s->records[i].back) return false;
    return true;
}

void harness_wait_back(struct harness *h, struct test_record *records, size_t count) {
    harness_wait(h, all_back, &(struct several){records, count});
}

enum err harness_submit(struct harness *h, struct ledger *l, struct test_record *r) {
    assert_int_equal(ledger_submit(l, &r->record), ERR_OK);
    harness_wait_back(h, r, 1);
    return r->record.result;
}

enum err harness_ask(struct harness *h, struct ledger *l, struct test_record *r) {
    assert_int_equal(ledger_ask(l, &r->record), ERR_OK);
    harness_wait_back(h, r, 1);
    return r->record.result;
}

struct event *harness_store(struct harness *h, struct ledger *l, const struct event *wanted) {
    struct test_record r;
    test_put(&r, wanted, 1000);
    assert_int_equal(harness_submit(h, l, &r), ERR_OK);
    assert_non_null(r.put.stored);
    return r.put.stored;
}

struct event *test_event(const char *id, size_t section_count) {
    struct event *e = event_new(section_count);
    str_copy(STR("CONCERT"), e->type, sizeof e->type);
    str_copy(str_of(id), e->id, sizeof e->id);
    str_copy(STR("Winter tour \xc3\xa9\xe2\x98\x83"), e->title, sizeof e->title);
    str_copy(STR("KRW"), e->currency, sizeof e->currency);
    e->state = EVENT_OPEN;
    e->opens_at_ms = CLOCK_NONE_MS;
    e->closes_at_ms = CLOCK_NONE_MS;
    e->starts_at_ms = INT64_C(1798192800000);
    e->queue = (struct queue_rules){1000000, 100, 50, 1, 600, 300, 0};
    e->hold_s = 300;
    e->max_per_user = 4;
    for (size_t i = 0; i < section_count; i++) {
        struct section *s = &e->sections[i];
        snprintf(s->id, sizeof s->id, "%c", (char)('A' + (int)i));
        snprintf(s->name, sizeof s->name, "Floor %c", (char)('A' + (int)i));
        s->capacity = 100;
        s->price = 150000;
    }
    return e;
}

int64_t file_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

struct reservation *test_reservation_copy(const struct reservation *r) {
    struct reservation *copy = reservation_new(r->seat_count);
    uint32_t *seats = copy->seats;
    *copy = *r;
    copy->seats = seats;
    if (r->seat_count > 0) memcpy(seats, r->seats, r->seat_count * sizeof *seats);
    return copy;
}
