/*
 * ledger_harness: code that tests of a ledger share. The test's own thread is a worker (a loop and
 * a mailbox); records are submitted on it and waited for with a deadline. Data is in a temporary
 * folder under $TMPDIR, which is removed with the harness.
 */
#ifndef ADMITONE_TEST_LEDGER_HARNESS_H
#define ADMITONE_TEST_LEDGER_HARNESS_H

#include "port/ledger.h"
#include "run/worker.h"

#define HARNESS_DEADLINE_MS 60000

struct harness {
    uv_loop_t loop;
    struct mailbox mailbox;
    char folder[256];
    char path[300]; /* of a ledger file in it */
};

void harness_init(struct harness *h);
void harness_deinit(struct harness *h);

/* Turns the loop until done(arg); fails the test after HARNESS_DEADLINE_MS. */
void harness_wait(struct harness *h, bool (*done)(void *arg), void *arg);
/* Turns the loop for a while, for what must not happen. */
void harness_run_for(struct harness *h, int64_t ms);

/* How many seats a hold of the tests has at the most. */
#define TEST_SEATS_MAX 8

/* A record of the test's, with room for the largest kind. `back` is set by its task. */
struct test_record {
    union {
        struct ledger_record record;
        struct ledger_event_put put;
        struct ledger_event_delete del;
        struct ledger_act act;
        struct ledger_audit_page page;
        struct ledger_enter enter;
        struct ledger_enter_void enter_void;
        struct ledger_admit admit;
        struct ledger_end end;
        struct ledger_entry_get get;
        struct ledger_hold hold;
        struct ledger_hold_void undo;
        struct ledger_confirm confirm;
        struct ledger_cancel cancel;
        struct ledger_expire expire;
        struct ledger_request_put request_put;
        struct ledger_request_decide request_decide;
        struct ledger_request_lease request_lease;
        struct ledger_requests_get requests_get;
        struct ledger_requests_read requests_read;
        struct ledger_requests_open requests_open;
        struct ledger_reservation_get reservation_get;
        struct ledger_seats_read seats_read;
        struct ledger_idempotency_get idempotency_get;
        struct ledger_events_read events_read;
        struct ledger_waiting_read waiting_read;
        struct ledger_facts_read facts_read;
        struct ledger_facts_relayed facts_relayed;
        struct ledger_facts_publish facts_publish;
        struct ledger_sales_read sales_read;
        struct ledger_facts_page facts_page;
        struct ledger_node_report node_report;
        struct ledger_nodes_drop nodes_drop;
        struct ledger_nodes_read nodes_read;
    };
    uint32_t refused[TEST_SEATS_MAX]; /* of a hold */
    bool back;
    int64_t back_ns;           /* steady: when the task ran */
    struct mailbox *back_home; /* on whose thread */
    size_t back_order;         /* how many of this thread's came before it */
};

/* `wanted` must live until the record is back. */
void test_put(struct test_record *r, const struct event *wanted, int64_t now_ms);
void test_delete(struct test_record *r, const char *type, const char *id, int64_t now_ms);
/* By "ann", on "a subject". */
void test_act(struct test_record *r, const char *act, int64_t now_ms);
void test_page(struct test_record *r, int64_t before, int64_t limit);
/* Lane, times and expiry follow from the number. */
void test_enter(struct test_record *r, int64_t event_key, uint64_t seq, const char *user,
                enum entry_status status);
void test_enter_void(struct test_record *r, int64_t event_key, uint64_t seq);
void test_admit(struct test_record *r, int64_t event_key, const struct entry_change *entries,
                size_t count, bool *kept);
void test_end(struct test_record *r, int64_t event_key, enum entry_status final,
              const uint64_t *seqs, size_t count, bool *ended);
void test_hold(struct test_record *r, const struct reservation *wanted);
void test_hold_void(struct test_record *r, const struct reservation *of, int64_t now_ms);
/* The code is CODE followed by the last digits of the time. */
void test_confirm(struct test_record *r, const struct uuid *id, const char *user, int64_t now_ms);
void test_cancel(struct test_record *r, const struct uuid *id, const char *user, int64_t now_ms);
void test_expire(struct test_record *r, const struct uuid *ids, size_t count, bool *expired,
                 int64_t now_ms);
void test_request_put(struct test_record *r, const struct request *wanted);
void test_request_decide(struct test_record *r, const struct request *wanted);
void test_request_lease(struct test_record *r, const struct uuid *node, int64_t lease_ms);
void test_facts_relayed(struct test_record *r, const int64_t *ids, size_t count, int64_t now_ms);
void test_facts_publish(struct test_record *r, const struct uuid *node, int64_t lease_ms,
                        struct sale_mark published);
/* Its name is "a node". */
void test_node_report(struct test_record *r, const struct uuid *node, bool registers,
                      int64_t applied);
void test_nodes_drop(struct test_record *r, int64_t version);
/* Asked, not submitted. */
void test_get(struct test_record *r, int64_t event_key, uint64_t seq);
void test_reservation_get(struct test_record *r, const struct uuid *id);
void test_seats_read(struct test_record *r, int64_t section_key, const uint32_t *seats,
                     size_t count, enum seat_state *states, int64_t *versions,
                     struct uuid *holders);
void test_idempotency_get(struct test_record *r, struct idempotency *i);
void test_events_read(struct test_record *r, int64_t known_mark);
void test_waiting_read(struct test_record *r, int64_t event_key);
void test_requests_get(struct test_record *r, const struct uuid *ids, size_t count,
                       struct request **found);
void test_requests_read(struct test_record *r, int partition, int64_t after_seq,
                        struct request **requests, size_t max);
void test_requests_open(struct test_record *r);
void test_facts_read(struct test_record *r, int64_t now_ms, int64_t older_ms);
void test_sales_read(struct test_record *r, struct sale_mark mark, struct sale *sales, size_t max);
void test_facts_page(struct test_record *r, struct sale_mark after, struct fact **facts,
                     size_t max);
void test_nodes_read(struct test_record *r);
/* Frees the results that belong to the caller. */
void test_record_deinit(struct test_record *r);

/* Submits (or asks) and waits until it is back; its result. */
enum err harness_submit(struct harness *h, struct ledger *l, struct test_record *r);
enum err harness_ask(struct harness *h, struct ledger *l, struct test_record *r);
void harness_wait_back(struct harness *h, struct test_record *records, size_t count);

/* One put, all of it: fails the test unless it is stored. The caller frees it with mem_free. */
struct event *harness_store(struct harness *h, struct ledger *l, const struct event *wanted);

/* An event CONCERT/id with sections "A", "B", …, of 100 seats each; mem_free frees it. */
struct event *test_event(const char *id, size_t section_count);
/* mem_free frees it. */
struct reservation *test_reservation_copy(const struct reservation *r);

/* How many bytes the file has; 0 when there is none. */
int64_t file_bytes(const char *path);

#endif
