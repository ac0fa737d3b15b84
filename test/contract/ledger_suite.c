#include "ledger_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

static const struct ledger_adapter *adapter;

struct fixture {
    struct harness h;
    struct ledger *l;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->l = adapter->open(&f->h, 0);
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

static void reopen(struct fixture *f, int64_t queue_max) {
    ledger_close(f->l);
    f->l = adapter->open(&f->h, queue_max);
}

/* --- what load gives --- */

struct loaded {
    struct event *events[16];
    size_t count;
};

static void on_event(void *to, struct event *e) {
    struct loaded *all = to;
    assert_true(all->count < 16);
    assert_true(all->count == 0 || all->events[all->count - 1]->key < e->key);
    all->events[all->count++] = e;
}

static void load(struct fixture *f, struct loaded *all) {
    *all = (struct loaded){0};
    assert_int_equal(ledger_load(f->l, &(struct ledger_reader){.on_event = on_event, .to = all}),
                     ERR_OK);
}

static void loaded_free(struct loaded *all) {
    for (size_t i = 0; i < all->count; i++) mem_free(all->events[i]);
}

static void assert_section_equal(const struct section *a, const struct section *b) {
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->capacity, b->capacity);
    assert_int_equal(a->price, b->price);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->status, b->status);
}

static void assert_text_equal(str a, str b) {
    if (!str_eq(a, b)) fail_msg("%.*s is not %.*s", (int)a.len, a.at, (int)b.len, b.at);
}

/* Everything that the submitter decides. */
static void assert_event_equal(const struct event *a, const struct event *b) {
    assert_string_equal(a->type, b->type);
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->title, b->title);
    assert_string_equal(a->currency, b->currency);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->auto_enter, b->auto_enter);
    assert_int_equal(a->opens_at_ms, b->opens_at_ms);
    assert_int_equal(a->closes_at_ms, b->closes_at_ms);
    assert_int_equal(a->starts_at_ms, b->starts_at_ms);
    assert_memory_equal(&a->queue, &b->queue, sizeof a->queue);
    assert_int_equal(a->hold_s, b->hold_s);
    assert_int_equal(a->max_per_user, b->max_per_user);
    assert_int_equal(a->rehold_s, b->rehold_s);
    assert_int_equal(a->max_holds_per_stay, b->max_holds_per_stay);
    assert_int_equal(a->confirm_by, b->confirm_by);
    assert_int_equal(a->cancel_confirmed, b->cancel_confirmed);
    assert_text_equal(a->page, b->page);
    assert_text_equal(a->return_hosts, b->return_hosts);
    assert_text_equal(a->notice, b->notice);
    assert_int_equal(a->section_count, b->section_count);
    for (size_t i = 0; i < a->section_count; i++)
        assert_section_equal(&a->sections[i], &b->sections[i]);
}

/* Everything that the ledger adds. */
static void assert_stored_equal(const struct event *a, const struct event *b) {
    assert_event_equal(a, b);
    assert_int_equal(a->key, b->key);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->opened_at_ms, b->opened_at_ms);
    assert_int_equal(a->created_at_ms, b->created_at_ms);
    assert_int_equal(a->updated_at_ms, b->updated_at_ms);
    for (size_t i = 0; i < a->section_count; i++) {
        assert_int_equal(a->sections[i].key, b->sections[i].key);
        assert_int_equal(a->sections[i].held, b->sections[i].held);
        assert_int_equal(a->sections[i].confirmed, b->sections[i].confirmed);
    }
}

/* --- the tests --- */

static void new_ledger_has_no_events(void **state) {
    struct fixture *f = *state;
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.count, 0);
    struct ledger_health health;
    ledger_health(f->l, &health);
    assert_true(health.writable);
    assert_int_equal(health.queue_depth, 0);
}

static void epochs_grow_with_every_opening(void **state) {
    struct fixture *f = *state;
    uint32_t last = 0;
    for (int i = 0; i < 3; i++) {
        assert_true(ledger_epoch(f->l) > last && ledger_epoch(f->l) <= INT32_MAX);
        last = ledger_epoch(f->l);
        reopen(f, 0);
    }
}

static void the_generation_stays_the_same_when_a_ledger_is_opened_again(void **state) {
    struct fixture *f = *state;
    struct ledger_generation first = ledger_generation(f->l);
    assert_true(first.number != 0 && first.first_seq == 0);
    for (int i = 0; i < 2; i++) {
        reopen(f, 0);
        assert_int_equal(ledger_generation(f->l).number, first.number);
        assert_int_equal(ledger_generation(f->l).first_seq, 0);
    }
}

static void put_stores_every_field_for_good(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 4);
    wanted->state = EVENT_DRAINING;
    wanted->auto_enter = true;
    wanted->rehold_s = 8;
    wanted->max_holds_per_stay = 9;
    wanted->confirm_by = CONFIRM_BY_SHOP;
    wanted->cancel_confirmed = true;
    wanted->opens_at_ms = 1234567890123;
    wanted->closes_at_ms = 2234567890123;
    wanted->starts_at_ms = CLOCK_NONE_MS;
    wanted->queue = (struct queue_rules){1, 2, 3, 4, 5, 6, 7};
    wanted->sections[1].mode = SECTION_MODE_LOCK;
    wanted->sections[2].mode = SECTION_MODE_ADAPTIVE;
    wanted->sections[3].mode = SECTION_MODE_SEAT;
    wanted->sections[1].status = SECTION_CLOSED;
    wanted->sections[2].status = SECTION_MAINTENANCE;
    wanted->sections[3].price = PRICE_MAX;
    wanted->sections[3].capacity = SECTION_CAPACITY_MAX;
    struct test_record r;
    test_put(&r, wanted, 5000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_true(r.put.created);
    const struct event *stored = r.put.stored;
    assert_event_equal(stored, wanted);
    assert_true(stored->key > 0 && stored->version > 0);
    assert_int_equal(stored->created_at_ms, 5000);
    assert_int_equal(stored->updated_at_ms, 5000);
    for (size_t i = 0; i < 4; i++) assert_true(stored->sections[i].key > 0);

    reopen(f, 0);
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.count, 1);
    assert_stored_equal(all.events[0], stored);
    loaded_free(&all);
    test_record_deinit(&r);
    mem_free(wanted);
}

static void put_as(struct fixture *f, const struct event *wanted) {
    struct event *stored = harness_store(&f->h, f->l, wanted);
    assert_event_equal(stored, wanted);
    struct loaded all;
    reopen(f, 0);
    load(f, &all);
    assert_int_equal(all.count, 1);
    assert_stored_equal(all.events[0], stored);
    loaded_free(&all);
    mem_free(stored);
}

/* However many sections there are, with each of which PostgreSQL returns a row. */
static void texts_of_an_event_are_stored_and_removed_again(void **state) {
    struct fixture *f = *state;
    struct buf page = {0};
    buf_add(&page, STR("{\"name\":\"\\\"<script>\\n\xd7\x90\",  \"name\":\""));
    while (page.len < PAGE_BYTES_MAX - 2) buf_add_char(&page, 'x');
    buf_add(&page, STR("\"}"));
    struct event *wanted = test_event("1", 0);
    for (size_t sections = 0; sections < 4; sections++) {
        struct event *before = wanted;
        wanted = test_event("1", sections);
        mem_free(before);
        put_as(f, wanted);
        wanted->page = buf_str(&page);
        wanted->return_hosts = STR("shop.example,10.0.0.1:8443");
        wanted->notice = STR("Two more \"minutes\",\nplease: \xec\x9e\xa0\xec\x8b\x9c");
        put_as(f, wanted);
        wanted->return_hosts = STR("");
        put_as(f, wanted);
        wanted->page = wanted->notice = STR("");
        put_as(f, wanted);
    }
    buf_deinit(&page);
    mem_free(wanted);
}

static void assert_opened(struct fixture *f, struct event *wanted, int64_t now_ms,
                          int64_t opened_ms, int64_t sale_ms) {
    struct test_record r;
    test_put(&r, wanted, now_ms);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.put.stored->opened_at_ms, opened_ms);
    assert_int_equal(event_sale_opens_ms(r.put.stored), sale_ms);
    test_record_deinit(&r);
}

/* By an act, or because its time had come; whatever is done to it later. */
static void it_is_remembered_when_a_sale_first_opened(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    wanted->state = EVENT_DRAFT;
    wanted->opens_at_ms = CLOCK_NONE_MS;
    wanted->closes_at_ms = CLOCK_NONE_MS;
    assert_opened(f, wanted, 1000, CLOCK_NONE_MS, CLOCK_NONE_MS);
    wanted->state = EVENT_OPEN;
    assert_opened(f, wanted, 2000, 2000, 2000);
    wanted->state = EVENT_PAUSED;
    assert_opened(f, wanted, 3000, 2000, 2000);
    wanted->state = EVENT_OPEN;
    wanted->opens_at_ms = 3500;
    assert_opened(f, wanted, 4000, 2000, 2000);
    reopen(f, 0);
    assert_opened(f, wanted, 5000, 2000, 2000);
    mem_free(wanted);

    wanted = test_event("2", 1);
    wanted->opens_at_ms = 5000;
    assert_opened(f, wanted, 1000, CLOCK_NONE_MS, 5000);
    wanted->opens_at_ms = 6000;
    assert_opened(f, wanted, 2000, CLOCK_NONE_MS, 6000);
    assert_opened(f, wanted, 7000, 6000, 6000);
    wanted->opens_at_ms = 9000;
    assert_opened(f, wanted, 8000, 6000, 6000);
    mem_free(wanted);
}

static void second_put_changes_and_keeps_keys(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    struct event *first = harness_store(&f->h, f->l, wanted);
    str_copy(STR("Another title"), wanted->title, sizeof wanted->title);
    wanted->sections[1].capacity = 7;
    struct test_record r;
    test_put(&r, wanted, 9000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_false(r.put.created);
    assert_event_equal(r.put.stored, wanted);
    assert_int_equal(r.put.stored->key, first->key);
    assert_true(r.put.stored->version > first->version);
    assert_int_equal(r.put.stored->created_at_ms, 1000);
    assert_int_equal(r.put.stored->updated_at_ms, 9000);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(r.put.stored->sections[i].key, first->sections[i].key);
    test_record_deinit(&r);
    mem_free(first);
    mem_free(wanted);
}

static void sections_are_known_by_their_id(void **state) {
    struct fixture *f = *state;
    struct event *three = test_event("1", 3);
    struct event *first = harness_store(&f->h, f->l, three);

    /* C, A: B vanishes, the order changes. */
    struct event *two = test_event("1", 2);
    two->sections[0] = three->sections[2];
    two->sections[1] = three->sections[0];
    struct event *second = harness_store(&f->h, f->l, two);
    assert_event_equal(second, two);
    assert_int_equal(second->sections[0].key, first->sections[2].key);
    assert_int_equal(second->sections[1].key, first->sections[0].key);

    /* B comes back as another section. */
    struct event *third = harness_store(&f->h, f->l, three);
    assert_int_equal(third->sections[0].key, first->sections[0].key);
    assert_int_not_equal(third->sections[1].key, first->sections[1].key);
    assert_true(third->sections[1].key > first->sections[2].key);
    mem_free(third);
    mem_free(second);
    mem_free(two);
    mem_free(first);
    mem_free(three);
}

static enum err raise_price(struct ledger_event_put *put, struct event **e) {
    (void)put;
    (*e)->sections[0].price++;
    return ERR_OK;
}

static enum err refuse_edit(struct ledger_event_put *put, struct event **e) {
    (void)put;
    (*e)->sections[0].price = 1;
    return ERR_SECTION_NOT_FOUND;
}

static void test_edit(struct test_record *r,
                      enum err (*edit)(struct ledger_event_put *, struct event **)) {
    test_put(r, NULL, 5);
    r->put.edit = edit;
    r->put.type = STR("CONCERT");
    r->put.id = STR("1");
}

static void edits_at_the_same_time_all_count(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    struct event *first = harness_store(&f->h, f->l, wanted);
    struct test_record edits[20];
    for (size_t i = 0; i < 20; i++) {
        test_edit(&edits[i], raise_price);
        assert_int_equal(ledger_submit(f->l, &edits[i].record), ERR_OK);
    }
    harness_wait_back(&f->h, edits, 20);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(edits[i].record.result, ERR_OK);
        assert_false(edits[i].put.created);
        assert_int_equal(edits[i].put.stored->key, first->key);
        assert_int_equal(edits[i].put.stored->sections[0].price,
                         first->sections[0].price + (int64_t)i + 1);
        assert_int_equal(edits[i].put.stored->sections[1].price, first->sections[1].price);
        test_record_deinit(&edits[i]);
    }
    mem_free(first);
    mem_free(wanted);
}

static void an_edit_may_refuse_and_needs_an_event(void **state) {
    struct fixture *f = *state;
    struct test_record r;
    test_edit(&r, raise_price);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_EVENT_NOT_FOUND);
    assert_null(r.put.stored);

    struct event *wanted = test_event("1", 1);
    struct event *first = harness_store(&f->h, f->l, wanted);
    test_edit(&r, refuse_edit);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_SECTION_NOT_FOUND);
    assert_null(r.put.stored);
    struct loaded all = {0};
    load(f, &all);
    assert_int_equal(all.count, 1);
    assert_stored_equal(all.events[0], first);
    loaded_free(&all);
    mem_free(first);
    mem_free(wanted);
}

static void an_event_of_another_version_is_not_deleted(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *first = harness_store(&f->h, f->l, wanted);
    struct event *second = harness_store(&f->h, f->l, wanted);
    struct test_record r;
    struct loaded all;
    test_delete(&r, "CONCERT", "1", 2000);
    r.del.if_version = first->version;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_VERSION_MISMATCH);
    assert_int_equal(r.del.version_present, second->version);
    assert_int_equal(r.del.version, 0);
    load(f, &all);
    assert_int_equal(all.count, 1);
    loaded_free(&all);
    test_delete(&r, "CONCERT", "1", 3000);
    r.del.if_version = second->version;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    test_delete(&r, "CONCERT", "1", 4000);
    r.del.if_version = EVENT_VERSION_ANY;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_EVENT_NOT_FOUND);
    mem_free(wanted);
    mem_free(first);
    mem_free(second);
}

static void deleted_event_is_gone_and_its_key_with_it(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *first = harness_store(&f->h, f->l, wanted);
    struct test_record r;
    test_delete(&r, "CONCERT", "1", 2000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_true(r.del.version > first->version);
    int64_t deleted_version = r.del.version;

    struct loaded all;
    load(f, &all);
    assert_int_equal(all.count, 0);
    test_delete(&r, "CONCERT", "1", 3000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_EVENT_NOT_FOUND);
    assert_int_equal(r.del.version, 0);

    reopen(f, 0);
    test_put(&r, wanted, 4000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    assert_true(r.put.created);
    assert_true(r.put.stored->key > first->key);
    assert_true(r.put.stored->version > deleted_version);
    assert_true(r.put.stored->sections[0].key > first->sections[0].key);
    assert_int_equal(r.put.stored->created_at_ms, 4000);
    test_record_deinit(&r);
    mem_free(first);
    mem_free(wanted);
}

static void a_put_may_name_the_version_that_it_changes(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct test_record r;
    const int64_t absent[] = {EVENT_VERSION_ANY, 1};
    for (int i = 0; i < 2; i++) {
        test_put(&r, wanted, 1000);
        r.put.if_version = absent[i];
        assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_VERSION_MISMATCH);
        assert_int_equal(r.put.version_present, 0);
        assert_null(r.put.stored);
    }
    wanted->state = EVENT_PAUSED;
    wanted->notice = STR("Soon");
    struct event *first = harness_store(&f->h, f->l, wanted);

    wanted->state = EVENT_OPEN;
    wanted->notice = STR("");
    test_put(&r, wanted, 2000);
    r.put.if_version = first->version + 1;
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_VERSION_MISMATCH);
    assert_int_equal(r.put.version_present, first->version);
    assert_null(r.put.stored);

    const str kept = STR("Soon");
    const int64_t present[] = {first->version, EVENT_VERSION_ANY, 0};
    for (int i = 0; i < 3; i++) {
        test_put(&r, wanted, 3000);
        r.put.if_version = present[i];
        r.put.keeps_state = true;
        r.put.keeps_notice = true;
        assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
        assert_int_equal(r.put.stored->state, EVENT_PAUSED);
        assert_text_equal(r.put.stored->notice, kept);
        assert_false(r.put.created);
        test_record_deinit(&r);
    }
    mem_free(first);
    mem_free(wanted);
}

static enum err put_seats(struct fixture *f, const char *id, int64_t seats, int64_t seats_max) {
    struct event *wanted = test_event(id, 1);
    struct test_record r;
    wanted->sections[0].capacity = seats;
    test_put(&r, wanted, 1000);
    r.put.seats_max = seats_max;
    enum err result = harness_submit(&f->h, f->l, &r);
    if (result == ERR_TOO_MANY_SEATS) {
        assert_int_equal(r.put.seats_wanted, seats);
        assert_null(r.put.stored);
        assert_false(r.put.created);
    }
    test_record_deinit(&r);
    mem_free(wanted);
    return result;
}

static void seats_of_all_events_together_are_limited(void **state) {
    struct fixture *f = *state;
    struct loaded all;
    assert_int_equal(put_seats(f, "1", 60, 100), ERR_OK);
    assert_int_equal(put_seats(f, "2", 41, 100), ERR_TOO_MANY_SEATS);
    load(f, &all);
    assert_int_equal(all.count, 1);
    loaded_free(&all);
    assert_int_equal(put_seats(f, "2", 40, 100), ERR_OK);
    assert_int_equal(put_seats(f, "1", 61, 100), ERR_TOO_MANY_SEATS);
    /* Above the limit, which is lower now, an event may change without growing. */
    assert_int_equal(put_seats(f, "1", 60, 50), ERR_OK);
    assert_int_equal(put_seats(f, "1", 59, 50), ERR_OK);
    assert_int_equal(put_seats(f, "1", 60, 99), ERR_TOO_MANY_SEATS);
    assert_int_equal(put_seats(f, "1", 60, 0), ERR_OK);
}

static void expect_in_use(struct fixture *f, const struct event *wanted, const char *section) {
    struct test_record r;
    test_put(&r, wanted, 2000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_SECTION_IN_USE);
    assert_null(r.put.stored);
    assert_string_equal(r.put.in_use, section);
}

/* A live reservation of one seat, beside the open ledger. */
static void take_seat(struct fixture *f, const struct event *e, const struct section *s,
                      int64_t seat_no, const char *status) {
    tables_reservation(adapter->tables(&f->h), (unsigned)seat_no, e, s, seat_no, status);
}

static void taken_seats_are_counted_and_protected(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    wanted->sections[1].mode = SECTION_MODE_SEAT;
    struct event *stored = harness_store(&f->h, f->l, wanted);
    take_seat(f, stored, &stored->sections[0], 40, "CONFIRMED");
    take_seat(f, stored, &stored->sections[1], 7, "HELD");
    take_seat(f, stored, &stored->sections[1], 9, "HELD");

    struct event *only_a = test_event("1", 1);
    expect_in_use(f, only_a, "B");
    wanted->sections[0].capacity = 39;
    expect_in_use(f, wanted, "A");
    wanted->sections[0].capacity = 100;
    wanted->sections[0].mode = SECTION_MODE_SEAT;
    expect_in_use(f, wanted, "A");
    wanted->sections[0].mode = SECTION_MODE_ADAPTIVE;
    wanted->sections[1].mode = SECTION_MODE_SLOT;
    expect_in_use(f, wanted, "B");
    wanted->sections[1].mode = SECTION_MODE_SEAT;
    struct test_record r;
    test_delete(&r, "CONCERT", "1", 2000);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_EVENT_IN_USE);

    /* The smallest possible capacities, and another mode that the hot store decides: allowed. */
    wanted->sections[0].capacity = 40;
    wanted->sections[1].capacity = 9;
    struct event *changed = harness_store(&f->h, f->l, wanted);
    assert_int_equal(changed->sections[0].mode, SECTION_MODE_ADAPTIVE);
    assert_int_equal(changed->sections[0].confirmed, 1);
    assert_int_equal(changed->sections[0].held, 0);
    assert_int_equal(changed->sections[1].confirmed, 0);
    assert_int_equal(changed->sections[1].held, 2);
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.count, 1);
    assert_stored_equal(all.events[0], changed);
    loaded_free(&all);
    mem_free(changed);
    mem_free(only_a);
    mem_free(stored);
    mem_free(wanted);
}

static void refusal_leaves_nothing_behind(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    struct event *stored = harness_store(&f->h, f->l, wanted);
    take_seat(f, stored, &stored->sections[1], 50, "HELD");
    wanted->sections[0].capacity = 5;
    wanted->sections[1].capacity = 5;
    str_copy(STR("Not this"), wanted->title, sizeof wanted->title);
    expect_in_use(f, wanted, "B");
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.count, 1);
    assert_string_equal(all.events[0]->title, stored->title);
    assert_int_equal(all.events[0]->version, stored->version);
    assert_int_equal(all.events[0]->sections[0].capacity, 100);
    loaded_free(&all);
    struct test_record page;
    test_page(&page, 0, 10);
    assert_int_equal(harness_ask(&f->h, f->l, &page), ERR_OK);
    assert_null(strstr(buf_cstr(&page.page.json), "},{"));
    test_record_deinit(&page);
    mem_free(stored);
    mem_free(wanted);
}

static void the_audit_log_is_read_newest_first_in_pages(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct test_record r;
    for (int i = 0; i < 5; i++) {
        char detail[20];
        snprintf(detail, sizeof detail, "{\"n\":%d}", i);
        test_put(&r, wanted, 1767225600000 + i);
        r.put.note.subject = STR("CONCERT/\"1\"");
        r.put.note.detail = str_of(detail);
        assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
        test_record_deinit(&r);
    }
    test_page(&r, 0, 2);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_string_equal(
        buf_cstr(&r.page.json),
        "[{\"id\":5,\"at\":\"2026-01-01T00:00:00.004Z\",\"actor\":\"admin\",\"act\":\"event.put\","
        "\"subject\":\"CONCERT/\\\"1\\\"\",\"detail\":{\"n\":4}},"
        "{\"id\":4,\"at\":\"2026-01-01T00:00:00.003Z\",\"actor\":\"admin\",\"act\":\"event.put\","
        "\"subject\":\"CONCERT/\\\"1\\\"\",\"detail\":{\"n\":3}}]");
    assert_int_equal(r.page.next, 4);
    test_record_deinit(&r);

    test_page(&r, 4, 3);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_int_equal(r.page.next, 0);
    assert_non_null(strstr(buf_cstr(&r.page.json), "\"id\":1,"));
    test_record_deinit(&r);
    test_page(&r, 1, 3);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    assert_string_equal(buf_cstr(&r.page.json), "[]");
    assert_int_equal(r.page.next, 0);
    test_record_deinit(&r);
    mem_free(wanted);
}

/* The next change of an event gets a higher version than the act. */
static void an_act_is_in_the_audit_log_and_changes_no_event(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct test_record put;
    struct test_record r;
    test_put(&put, wanted, 1767225600000);
    assert_int_equal(harness_submit(&f->h, f->l, &put), ERR_OK);
    int64_t version = put.put.stored->version;
    test_record_deinit(&put);
    test_act(&r, "simulator.start", 1767225600001);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
    test_page(&r, 0, 1);
    assert_int_equal(harness_ask(&f->h, f->l, &r), ERR_OK);
    char expected[200];
    snprintf(expected, sizeof expected,
             "[{\"id\":%lld,\"at\":\"2026-01-01T00:00:00.001Z\",\"actor\":\"ann\","
             "\"act\":\"simulator.start\",\"subject\":\"a subject\",\"detail\":{\"n\":1}}]",
             (long long)version + 1);
    assert_string_equal(buf_cstr(&r.page.json), expected);
    test_record_deinit(&r);
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.events[0]->version, version);
    loaded_free(&all);
    test_put(&put, wanted, 1767225600002);
    assert_int_equal(harness_submit(&f->h, f->l, &put), ERR_OK);
    assert_int_equal(put.put.stored->version, version + 2);
    test_record_deinit(&put);
    mem_free(wanted);
}

#define MANY 300

static void records_are_written_and_handed_back_in_order(void **state) {
    struct fixture *f = *state;
    struct test_record *records = mem_new(MANY * sizeof *records);
    struct event *wanted[MANY];
    for (int i = 0; i < MANY; i++) {
        wanted[i] = test_event("1", 1);
        snprintf(wanted[i]->title, sizeof wanted[i]->title, "%d", i);
        test_put(&records[i], wanted[i], i);
        assert_int_equal(ledger_submit(f->l, &records[i].record), ERR_OK);
    }
    harness_wait_back(&f->h, records, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(records[i].record.result, ERR_OK);
        assert_int_equal(records[i].put.created, i == 0);
        assert_string_equal(records[i].put.stored->title, wanted[i]->title);
        if (i == 0) continue;
        assert_true(records[i].put.stored->version > records[i - 1].put.stored->version);
        assert_true(records[i].back_order > records[i - 1].back_order);
    }
    for (int i = 0; i < MANY; i++) {
        test_record_deinit(&records[i]);
        mem_free(wanted[i]);
    }
    mem_free(records);
}

static void full_queue_refuses_at_once(void **state) {
    struct fixture *f = *state;
    reopen(f, 1);
    struct test_record *records = mem_new(MANY * sizeof *records);
    struct event *wanted = test_event("1", 1);
    size_t taken = 0;
    size_t refused = 0;
    for (int i = 0; i < MANY; i++) {
        test_put(&records[taken], wanted, i);
        enum err e = ledger_submit(f->l, &records[taken].record);
        assert_true(e == ERR_OK || e == ERR_OVERLOADED);
        if (e == ERR_OK)
            taken++;
        else
            refused++;
    }
    assert_true(taken > 0 && refused > 0);
    harness_wait_back(&f->h, records, taken);
    struct ledger_health health;
    ledger_health(f->l, &health);
    assert_int_equal(health.queue_depth, 0);
    int64_t last_version = 0;
    for (size_t i = 0; i < taken; i++) {
        assert_int_equal(records[i].record.result, ERR_OK);
        last_version = records[i].put.stored->version;
        test_record_deinit(&records[i]);
    }
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.events[0]->version, last_version);
    loaded_free(&all);
    mem_free(wanted);
    mem_free(records);
}

static void close_writes_and_hands_back_everything(void **state) {
    struct fixture *f = *state;
    struct test_record *records = mem_new(MANY * sizeof *records);
    struct event *wanted = test_event("1", 1);
    for (int i = 0; i < MANY; i++) {
        if (i % 10 == 9)
            test_page(&records[i], 0, 5);
        else
            test_put(&records[i], wanted, i);
        enum err e = i % 10 == 9 ? ledger_ask(f->l, &records[i].record)
                                 : ledger_submit(f->l, &records[i].record);
        assert_int_equal(e, ERR_OK);
    }
    ledger_close(f->l);
    f->l = NULL;
    harness_wait_back(&f->h, records, MANY);
    int64_t last_version = 0;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(records[i].record.result, ERR_OK);
        if (i % 10 != 9) last_version = records[i].put.stored->version;
        test_record_deinit(&records[i]);
    }
    f->l = adapter->open(&f->h, 0);
    struct loaded all;
    load(f, &all);
    assert_int_equal(all.events[0]->version, last_version);
    loaded_free(&all);
    mem_free(wanted);
    mem_free(records);
}

/* One worker's part: submits its records on its own thread. */
struct load_task {
    struct task task;
    struct worker worker;
    struct ledger *l;
    struct event *wanted;
    struct test_record records[50];
    _Atomic bool submitted;
};

static void submit_all(struct task *t) {
    struct load_task *load_of = (struct load_task *)t;
    for (int i = 0; i < 50; i++) {
        test_put(&load_of->records[i], load_of->wanted, i);
        assert_int_equal(ledger_submit(load_of->l, &load_of->records[i].record), ERR_OK);
    }
    load_of->submitted = true;
}

static void stop_worker(struct task *t) {
    worker_stop(&((struct load_task *)t)->worker);
}

static void records_come_back_on_their_own_worker(void **state) {
    struct fixture *f = *state;
    struct load_task *loads = mem_new(3 * sizeof *loads);
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "w%d", i);
        loads[i].l = f->l;
        loads[i].wanted = test_event(id, 2);
        loads[i].task.run = submit_all;
        assert_int_equal(worker_init(&loads[i].worker), 0);
        assert_int_equal(worker_start(&loads[i].worker), 0);
        mailbox_post(&loads[i].worker.mailbox, &loads[i].task);
    }
    for (int i = 0; i < 3; i++)
        while (!loads[i].submitted) harness_run_for(&f->h, 1);
    /* Whatever was submitted has been posted when close returns, and before the stop. */
    ledger_close(f->l);
    f->l = NULL;
    for (int i = 0; i < 3; i++) {
        loads[i].task.run = stop_worker;
        mailbox_post(&loads[i].worker.mailbox, &loads[i].task);
        worker_join(&loads[i].worker);
        for (int n = 0; n < 50; n++) {
            struct test_record *r = &loads[i].records[n];
            assert_true(r->back);
            assert_int_equal(r->record.result, ERR_OK);
            assert_ptr_equal(r->back_home, &loads[i].worker.mailbox);
            assert_int_equal(r->back_order, n);
            test_record_deinit(r);
        }
        mem_free(loads[i].wanted);
    }
    mem_free(loads);
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (*(int *)to)++;
    assert_int_equal(finding->violations, 0);
    assert_int_equal(finding->overdue, 0);
}

static void sound_ledger_has_no_violations(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    struct event *stored = harness_store(&f->h, f->l, wanted);
    take_seat(f, stored, &stored->sections[0], 40, "CONFIRMED");
    take_seat(f, stored, &stored->sections[1], 41, "HELD");
    int findings = 0;
    assert_int_equal(ledger_check(f->l, true, on_finding, &findings), ERR_OK);
    assert_true(findings >= 10);
    mem_free(stored);
    mem_free(wanted);
}

int ledger_suite_run(const struct ledger_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(new_ledger_has_no_events),
        TEST(epochs_grow_with_every_opening),
        TEST(the_generation_stays_the_same_when_a_ledger_is_opened_again),
        TEST(put_stores_every_field_for_good),
        TEST(texts_of_an_event_are_stored_and_removed_again),
        TEST(it_is_remembered_when_a_sale_first_opened),
        TEST(second_put_changes_and_keeps_keys),
        TEST(sections_are_known_by_their_id),
        TEST(edits_at_the_same_time_all_count),
        TEST(an_edit_may_refuse_and_needs_an_event),
        TEST(an_event_of_another_version_is_not_deleted),
        TEST(deleted_event_is_gone_and_its_key_with_it),
        TEST(a_put_may_name_the_version_that_it_changes),
        TEST(seats_of_all_events_together_are_limited),
        TEST(taken_seats_are_counted_and_protected),
        TEST(refusal_leaves_nothing_behind),
        TEST(the_audit_log_is_read_newest_first_in_pages),
        TEST(an_act_is_in_the_audit_log_and_changes_no_event),
        TEST(records_are_written_and_handed_back_in_order),
        TEST(full_queue_refuses_at_once),
        TEST(close_writes_and_hands_back_everything),
        TEST(records_come_back_on_their_own_worker),
        TEST(sound_ledger_has_no_violations),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract", tests, NULL, NULL);
}
