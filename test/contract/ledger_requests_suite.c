/* The ledger's contract for asynchronous requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_client.h"
#include "ledger_tables.h"

#define ACCEPTED_MS 2000
#define DECIDED_MS 2100
#define REQUESTS_MAX 64

static const struct ledger_adapter *adapter;

static int set_up(void **state) {
    return ledger_client_set_up(state, adapter, 100, 4);
}

/* ---- a request by number, for seats of the first section ---- */

/* Ids of requests must not be those of reservations. */
static struct uuid id_of(uint64_t number) {
    return ledger_client_id(1000000 + number);
}

static struct request *wanted(const struct ledger_client *d, uint64_t number, const char *user,
                              const uint32_t *seats) {
    uint32_t named = 0;
    while (seats != NULL && seats[named] != 0) named++;
    struct request *r = request_new(named);
    if (named > 0) memcpy(r->seats, seats, named * sizeof *seats);
    if (named == 0) r->quantity = 2;
    r->id = id_of(number);
    r->event_key = d->event->key;
    r->section_key = d->event->sections[0].key;
    bool fits = str_copy(str_of(user), r->user, sizeof r->user);
    assert_true(fits);
    r->entry_seq = (uint64_t)(user[0] - 'a' + 1);
    r->digest[0] = (unsigned char)number;
    r->created_ms = ACCEPTED_MS;
    r->partition = 3;
    return r;
}

/* The record is the caller's: its outputs can be read. */
static enum err put(struct ledger_client *d, struct test_record *out, const struct request *r) {
    test_request_put(out, r);
    return harness_submit(&d->h, d->l, out);
}

static int64_t accept_one(struct ledger_client *d, uint64_t number, const char *user,
                          const uint32_t *seats, int partition) {
    struct test_record out;
    struct request *r = wanted(d, number, user, seats);
    r->partition = partition;
    assert_int_equal(put(d, &out, r), ERR_OK);
    assert_true(out.request_put.is_new);
    assert_int_equal(out.request_put.status, REQUEST_PENDING);
    mem_free(r);
    return out.request_put.seq;
}

static enum err decide(struct ledger_client *d, struct test_record *out, const struct request *of,
                       enum request_status status, const char *reason, struct uuid reservation) {
    struct request r = *of;
    r.status = status;
    r.reservation = reservation;
    r.finished_ms = DECIDED_MS;
    bool fits = str_copy(str_of(reason), r.reason, sizeof r.reason);
    assert_true(fits);
    test_request_decide(out, &r);
    return harness_submit(&d->h, d->l, out);
}

static void assert_decided(const struct test_record *r, bool here, enum request_status status,
                           const char *reason, struct uuid reservation) {
    assert_int_equal(r->request_decide.decided, here);
    assert_int_equal(r->request_decide.status, status);
    assert_string_equal(r->request_decide.reason, reason);
    assert_memory_equal(&r->request_decide.reservation, &reservation, sizeof reservation);
}

/* Makes a hold for the request, as it is decided: with its key. */
static enum err hold_for(struct ledger_client *d, const struct request *q, uint64_t reservation,
                         const uint32_t *seats, struct idempotency *key) {
    char text[UUID_TEXT_BYTES];
    struct test_record r;
    struct reservation *wanted_hold =
        ledger_client_wanted(d, reservation, q->user, q->entry_seq, 0, seats);
    uuid_format(&q->id, text);
    *key = (struct idempotency){
        .user = str_of(q->user), .route = STR(REQUEST_ROUTE), .key = {text, sizeof text}};
    memcpy(key->digest, q->id.bytes, sizeof q->id.bytes);
    test_hold(&r, wanted_hold);
    r.hold.idempotency = key;
    enum err result = harness_submit(&d->h, d->l, &r);
    key->key = (str){0};
    mem_free(wanted_hold);
    return result;
}

static struct request *find(struct ledger_client *d, uint64_t number) {
    struct uuid id = id_of(number);
    struct request *found = NULL;
    struct test_record r;
    test_requests_get(&r, &id, 1, &found);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    return found;
}

/* The undecided requests of a partition behind `after`, by their numbers. */
static size_t read_open(struct ledger_client *d, int partition, int64_t after, size_t max,
                        struct request **out) {
    struct test_record r;
    test_requests_read(&r, partition, after, out, max);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    return r.requests_read.count;
}

static void assert_open(struct ledger_client *d, int partition, int64_t after, size_t max,
                        const uint64_t *numbers) {
    struct request *found[REQUESTS_MAX];
    size_t count = read_open(d, partition, after, max, found);
    for (size_t i = 0; i < count; i++) {
        struct uuid id = id_of(numbers[i]);
        assert_memory_equal(&found[i]->id, &id, sizeof id);
        assert_int_equal(found[i]->status, REQUEST_PENDING);
        mem_free(found[i]);
    }
    assert_int_equal(numbers[count], 0);
}
#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__, 0})

static const struct uuid none;

/* ---- the tests ---- */

static void a_request_is_read_as_it_was_accepted(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    struct request *named = wanted(d, 1, "a", SEATS(3, 7));
    struct request *any = wanted(d, 2, "b", NULL);
    any->strategy = STRATEGY_PESSIMISTIC;
    assert_int_equal(put(d, &out, named), ERR_OK);
    int64_t seq = out.request_put.seq;
    assert_int_equal(put(d, &out, any), ERR_OK);
    assert_true(out.request_put.seq > seq);
    ledger_client_restart(d);

    struct request *r = find(d, 1);
    assert_non_null(r);
    assert_int_equal(r->seq, seq);
    assert_int_equal(r->partition, 3);
    assert_int_equal(r->event_key, named->event_key);
    assert_int_equal(r->section_key, named->section_key);
    assert_string_equal(r->user, "a");
    assert_int_equal(r->entry_seq, 1);
    assert_int_equal(r->strategy, STRATEGY_QUEUE);
    assert_int_equal(r->quantity, 2);
    assert_memory_equal(r->seats, SEATS(3, 7), 2 * sizeof *r->seats);
    assert_memory_equal(r->digest, named->digest, sizeof r->digest);
    assert_int_equal(r->status, REQUEST_PENDING);
    assert_int_equal(r->created_ms, ACCEPTED_MS);
    assert_int_equal(r->finished_ms, CLOCK_NONE_MS);
    mem_free(r);
    r = find(d, 2);
    assert_non_null(r);
    assert_null(r->seats);
    assert_int_equal(r->quantity, 2);
    assert_int_equal(r->strategy, STRATEGY_PESSIMISTIC);
    mem_free(r);
    assert_null(find(d, 3));
    mem_free(named);
    mem_free(any);
    ledger_client_assert_sound(d);
}

/* A request whose row is not valid has no quantity: it fails. */
static void a_position_of_a_row_that_no_request_can_have_is_refused(void **state) {
    static const char *const wrong[] = {"-1", "-9223372036854775807", "9223372036854775807"};
    struct ledger_client *d = *state;
    accept_one(d, 1, "a", SEATS(3), 3);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tables_sql(adapter->tables(&d->h), "UPDATE requests SET ahead = %s", wrong[i]);
        struct request *r = find(d, 1);
        assert_non_null(r);
        assert_int_equal(r->ahead, 0);
        assert_int_equal(r->quantity, 0);
        mem_free(r);
    }
    tables_sql(adapter->tables(&d->h), "UPDATE requests SET ahead = 0");
    struct request *r = find(d, 1);
    assert_int_equal(r->quantity, 1);
    mem_free(r);
    ledger_client_assert_sound(d);
}

/* Another feed may deliver a message that repeats the id of another user's request. */
static void a_request_is_not_decided_for_another_user(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    accept_one(d, 1, "a", SEATS(3), 3);
    struct request *theirs = wanted(d, 1, "b", SEATS(4));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(decide(d, &out, theirs, REQUEST_SUCCESS, "", id_of(900)),
                         ERR_IDEMPOTENCY_MISMATCH);
        assert_int_equal(decide(d, &out, theirs, REQUEST_FAIL, "closed", none),
                         ERR_IDEMPOTENCY_MISMATCH);
        assert_false(out.request_decide.decided);
        struct request *found = find(d, 1);
        assert_string_equal(found->user, "a");
        assert_int_equal(found->status, i == 0 ? REQUEST_PENDING : REQUEST_FAIL_SOLD_OUT);
        if (i == 0)
            assert_int_equal(decide(d, &out, found, REQUEST_FAIL_SOLD_OUT, "sold_out", none),
                             ERR_OK);
        mem_free(found);
    }
    mem_free(theirs);
    ledger_client_assert_sound(d);
}

static void a_request_that_is_sent_again_is_accepted_once(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    struct request *r = wanted(d, 1, "a", SEATS(3));
    int64_t seq = accept_one(d, 1, "a", SEATS(3), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put(d, &out, r), ERR_OK);
        assert_false(out.request_put.is_new);
        assert_int_equal(out.request_put.seq, seq);
    }
    r->digest[5]++;
    assert_int_equal(put(d, &out, r), ERR_IDEMPOTENCY_MISMATCH);
    r->digest[5]--;
    r->user[0] = 'b';
    assert_int_equal(put(d, &out, r), ERR_IDEMPOTENCY_MISMATCH);
    r->user[0] = 'a';
    assert_open(d, 3, 0, REQUESTS_MAX, NUMBERS(1));
    assert_int_equal(decide(d, &out, r, REQUEST_FAIL_SOLD_OUT, "sold_out", none), ERR_OK);
    assert_int_equal(put(d, &out, r), ERR_OK);
    assert_int_equal(out.request_put.status, REQUEST_FAIL_SOLD_OUT);
    assert_open(d, 3, 0, REQUESTS_MAX, NUMBERS(0));
    mem_free(r);
}

/* Nobody knows the id of a request before it is accepted, unless it has an Idempotency-Key. */
static void a_request_that_may_be_renamed_is_found_under_its_new_id(void **state) {
    struct ledger_client *d = *state;
    enum { COUNT = 5 };
    struct test_record out;
    struct uuid ids[COUNT];
    int64_t seqs[COUNT];
    struct request *found[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        struct request *r = wanted(d, i + 1, "a", SEATS(3));
        r->id = uuid_new(ACCEPTED_MS);
        test_request_put(&out, r);
        out.request_put.may_rename = i % 2 == 0;
        assert_int_equal(harness_submit(&d->h, d->l, &out), ERR_OK);
        assert_true(out.request_put.is_new);
        ids[i] = out.request_put.id;
        seqs[i] = out.request_put.seq;
        char text[UUID_TEXT_BYTES];
        struct uuid parsed;
        uuid_format(&ids[i], text);
        assert_true(uuid_parse((str){text, sizeof text}, &parsed));
        assert_int_equal(uuid_time_ms(&ids[i]), ACCEPTED_MS);
        if (i % 2 != 0) assert_true(uuid_eq(&ids[i], &r->id));
        mem_free(r);
    }
    ledger_client_restart(d);
    test_requests_get(&out, ids, COUNT, found);
    assert_int_equal(harness_ask(&d->h, d->l, &out), ERR_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_non_null(found[i]);
        assert_memory_equal(&found[i]->id, &ids[i], sizeof ids[i]);
        assert_int_equal(found[i]->seq, seqs[i]);
        assert_int_equal(decide(d, &out, found[i], REQUEST_FAIL, "closed", none), ERR_OK);
        assert_true(out.request_decide.decided);
        mem_free(found[i]);
        /* An id that differs in one random bit is another one. */
        struct uuid other = ids[i];
        other.bytes[15] ^= 1;
        test_requests_get(&out, &other, 1, found);
        assert_int_equal(harness_ask(&d->h, d->l, &out), ERR_OK);
        assert_null(found[0]);
    }
    test_requests_get(&out, ids, COUNT, found);
    assert_int_equal(harness_ask(&d->h, d->l, &out), ERR_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(found[i]->status, REQUEST_FAIL);
        mem_free(found[i]);
    }
    assert_open(d, 3, 0, REQUESTS_MAX, NUMBERS(0));
    ledger_client_assert_sound(d);
}

/* Many in one batch, some of them several times. */
static void requests_of_one_batch_are_in_the_order_of_submission(void **state) {
    struct ledger_client *d = *state;
    enum { COUNT = 40 };
    static struct test_record records[COUNT + 1];
    struct request *requests[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        requests[i] = wanted(d, COUNT - i, "a", SEATS(3)); /* ids do not decide */
        requests[i]->partition = (int)(i % 2);
        test_request_put(&records[i], requests[i]);
    }
    test_request_put(&records[COUNT], requests[7]);
    for (size_t i = 0; i <= COUNT; i++)
        assert_int_equal(ledger_submit(d->l, &records[i].record), ERR_OK);
    harness_wait_back(&d->h, records, COUNT + 1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(records[i].record.result, ERR_OK);
        assert_true(records[i].request_put.is_new);
        assert_int_equal(records[i].request_put.ahead, i / 2);
        if (i >= 2) assert_true(records[i].request_put.seq > records[i - 2].request_put.seq);
    }
    assert_int_equal(records[COUNT].record.result, ERR_OK);
    assert_false(records[COUNT].request_put.is_new);
    assert_int_equal(records[COUNT].request_put.seq, records[7].request_put.seq);
    for (int p = 0; p < 2; p++) {
        struct request *found[REQUESTS_MAX];
        assert_int_equal(read_open(d, p, 0, REQUESTS_MAX, found), COUNT / 2);
        for (size_t i = 0; i < COUNT / 2; i++) {
            assert_memory_equal(&found[i]->id, &requests[2 * i + (size_t)p]->id,
                                sizeof found[i]->id);
            mem_free(found[i]);
        }
    }
    for (size_t i = 0; i < COUNT; i++) mem_free(requests[i]);
}

static void undecided_requests_are_read_in_pages_and_in_order(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    int64_t seqs[6];
    for (uint64_t n = 1; n <= 5; n++) seqs[n] = accept_one(d, n, "a", SEATS(3), 3);
    accept_one(d, 6, "a", SEATS(3), 4);
    assert_open(d, 3, 0, 2, NUMBERS(1, 2));
    assert_open(d, 3, seqs[2], 2, NUMBERS(3, 4));
    assert_open(d, 3, seqs[4], 2, NUMBERS(5));
    assert_open(d, 4, 0, 2, NUMBERS(6));
    struct request *third = find(d, 3);
    assert_int_equal(decide(d, &out, third, REQUEST_FAIL, "closed", none), ERR_OK);
    mem_free(third);
    ledger_client_restart(d);
    assert_open(d, 3, 0, REQUESTS_MAX, NUMBERS(1, 2, 4, 5));
    struct request *last = wanted(d, 7, "a", SEATS(3));
    assert_int_equal(put(d, &out, last), ERR_OK);
    assert_true(out.request_put.seq > seqs[5]);
    assert_int_equal(out.request_put.ahead, 4);
    mem_free(last);

    struct test_record open;
    test_requests_open(&open);
    assert_int_equal(harness_ask(&d->h, d->l, &open), ERR_OK);
    const struct open_requests *of = open.requests_open.partitions;
    assert_int_equal(of[3].count, 5);
    assert_int_equal(of[3].seqs[0], seqs[1]);
    assert_int_equal(of[3].seqs[2], seqs[4]);
    assert_int_equal(of[4].count, 1);
    assert_int_equal(of[0].count, 0);
    test_record_deinit(&open);
}

static void a_request_is_decided_once(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    accept_one(d, 1, "a", SEATS(3), 3);
    struct request *r = find(d, 1);
    assert_int_equal(decide(d, &out, r, REQUEST_FAIL_ALREADY_RESERVED, "seat_taken", none), ERR_OK);
    assert_decided(&out, true, REQUEST_FAIL_ALREADY_RESERVED, "seat_taken", none);
    assert_int_equal(decide(d, &out, r, REQUEST_FAIL_SOLD_OUT, "sold_out", none), ERR_OK);
    assert_decided(&out, false, REQUEST_FAIL_ALREADY_RESERVED, "seat_taken", none);
    mem_free(r);
    r = find(d, 1);
    assert_int_equal(r->status, REQUEST_FAIL_ALREADY_RESERVED);
    assert_string_equal(r->reason, "seat_taken");
    assert_int_equal(r->finished_ms, DECIDED_MS);
    mem_free(r);
    assert_open(d, 3, 0, REQUESTS_MAX, NUMBERS(0));
    ledger_client_assert_sound(d);
}

static void no_hold_is_made_for_a_request_that_has_failed(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    struct idempotency key;
    accept_one(d, 1, "a", SEATS(3), 3);
    struct request *r = find(d, 1);
    assert_int_equal(decide(d, &out, r, REQUEST_FAIL_CONFLICT, "conflict", none), ERR_OK);
    assert_int_equal(hold_for(d, r, 1, SEATS(3), &key), ERR_IDEMPOTENCY_MISMATCH);
    assert_int_equal(ledger_client_seat(d, 0, 3, NULL), SEAT_AVAILABLE);
    mem_free(r);
    ledger_client_assert_sound(d);
}

/* A redelivery sees the seat of its own hold as taken; that is no failure. */
static void a_request_for_which_a_hold_was_made_cannot_fail(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    struct idempotency key;
    struct uuid held = ledger_client_id(1);
    accept_one(d, 1, "a", SEATS(3), 3);
    struct request *r = find(d, 1);
    assert_int_equal(hold_for(d, r, 1, SEATS(3), &key), ERR_OK);
    assert_int_equal(hold_for(d, r, 2, SEATS(3), &key), ERR_OK);
    assert_true(key.replayed);
    assert_memory_equal(&key.reservation, &held, sizeof held);
    assert_int_equal(decide(d, &out, r, REQUEST_FAIL_ALREADY_RESERVED, "seat_taken", none), ERR_OK);
    assert_decided(&out, true, REQUEST_SUCCESS, "", held);
    assert_int_equal(decide(d, &out, r, REQUEST_SUCCESS, "", held), ERR_OK);
    assert_decided(&out, false, REQUEST_SUCCESS, "", held);
    mem_free(r);
    r = find(d, 1);
    assert_int_equal(r->status, REQUEST_SUCCESS);
    assert_memory_equal(&r->reservation, &held, sizeof held);
    mem_free(r);
    ledger_client_assert_sound(d);
}

static void a_request_that_was_accepted_elsewhere_is_stored_when_it_is_decided(void **state) {
    struct ledger_client *d = *state;
    struct test_record out;
    struct idempotency key;
    struct uuid held = ledger_client_id(1);
    struct request *good = wanted(d, 1, "a", SEATS(3));
    struct request *bad = wanted(d, 2, "b", NULL);
    assert_int_equal(hold_for(d, good, 1, SEATS(3), &key), ERR_OK);
    assert_int_equal(decide(d, &out, good, REQUEST_SUCCESS, "", held), ERR_OK);
    assert_decided(&out, true, REQUEST_SUCCESS, "", held);
    assert_int_equal(decide(d, &out, bad, REQUEST_FAIL_NOT_ACTIVE, "not_active", none), ERR_OK);
    assert_decided(&out, true, REQUEST_FAIL_NOT_ACTIVE, "not_active", none);
    assert_int_equal(decide(d, &out, bad, REQUEST_FAIL_SOLD_OUT, "sold_out", none), ERR_OK);
    assert_decided(&out, false, REQUEST_FAIL_NOT_ACTIVE, "not_active", none);
    mem_free(good);
    mem_free(bad);
    struct request *r = find(d, 2);
    assert_int_equal(r->status, REQUEST_FAIL_NOT_ACTIVE);
    assert_int_equal(r->quantity, 2);
    mem_free(r);
    ledger_client_assert_sound(d);
}

/* A feed that has read up to the old number would never see the new request. */
static void a_number_is_not_used_again_when_its_row_is_removed(void **state) {
    struct ledger_client *d = *state;
    accept_one(d, 1, "a", SEATS(3), 3);
    int64_t last = accept_one(d, 2, "a", SEATS(4), 3);
    tables_sql(adapter->tables(&d->h), "DELETE FROM requests");
    assert_true(accept_one(d, 3, "b", SEATS(5), 3) > last);
    assert_open(d, 3, last, REQUESTS_MAX, NUMBERS(3));
}

int ledger_requests_suite_run(const struct ledger_adapter *a) {
    adapter = a;
#define WITH_EVENT(test) cmocka_unit_test_setup_teardown(test, set_up, ledger_client_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_EVENT(a_request_is_read_as_it_was_accepted),
        WITH_EVENT(a_position_of_a_row_that_no_request_can_have_is_refused),
        WITH_EVENT(a_request_is_not_decided_for_another_user),
        WITH_EVENT(a_request_that_is_sent_again_is_accepted_once),
        WITH_EVENT(a_request_that_may_be_renamed_is_found_under_its_new_id),
        WITH_EVENT(requests_of_one_batch_are_in_the_order_of_submission),
        WITH_EVENT(undecided_requests_are_read_in_pages_and_in_order),
        WITH_EVENT(a_request_is_decided_once),
        WITH_EVENT(no_hold_is_made_for_a_request_that_has_failed),
        WITH_EVENT(a_request_for_which_a_hold_was_made_cannot_fail),
        WITH_EVENT(a_request_that_was_accepted_elsewhere_is_stored_when_it_is_decided),
        WITH_EVENT(a_number_is_not_used_again_when_its_row_is_removed),
    };
#undef WITH_EVENT
    return cmocka_run_group_tests_name("ledger contract: requests", tests, NULL, NULL);
}
