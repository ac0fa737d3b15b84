#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ledger_client.h"

static const struct ledger_adapter *adapter;

static int set_up(void **state) {
    return ledger_client_set_up(state, adapter, 100, 4);
}

#define LATER_MS 100000

static void read_facts(struct ledger_client *d, struct test_record *r, int64_t now_ms,
                       int64_t older_ms) {
    test_facts_read(r, now_ms, older_ms);
    assert_int_equal(harness_ask(&d->h, d->l, r), ERR_OK);
}

static void relay(struct ledger_client *d, const int64_t *ids, size_t count) {
    struct test_record r;
    test_facts_relayed(&r, ids, count, LATER_MS);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
}

/* The facts that are left are of these reservations, in this order; each of several askers finds
 * the same. */
static void assert_left(struct ledger_client *d, const uint64_t *numbers, size_t count) {
    for (int i = 0; i < 4; i++) {
        struct test_record r;
        read_facts(d, &r, LATER_MS, 0);
        assert_int_equal(r.facts_read.count, count);
        for (size_t n = 0; n < count; n++) {
            struct uuid id = ledger_client_id(numbers[n]);
            assert_memory_equal(&r.facts_read.facts[n].reservation, &id, sizeof id);
        }
    }
}
#define ASSERT_LEFT(d, ...)                                                                        \
    assert_left(d, (const uint64_t[]){__VA_ARGS__},                                                \
                sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static void changes_of_reservations_are_reported_until_they_are_relayed(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    int64_t ids[4];
    assert_left(d, NULL, 0);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 1, "b", 2, 1, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 2, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "b"), ERR_OK);
    ASSERT_LEFT(d, 2, 1, 2, 1);
    read_facts(d, &r, LATER_MS, 0);
    for (size_t i = 0; i < 4; i++) {
        const struct ledger_fact *f = &r.facts_read.facts[i];
        ids[i] = f->id;
        assert_int_equal(f->event_key, d->event->key);
        assert_int_equal(f->section_key, d->event->sections[i % 2].key);
        assert_int_equal(f->strategy, STRATEGY_ADAPTIVE);
        assert_int_equal(f->kind, i < 2 ? RESERVATION_HELD : f->status);
        /* The current state, also with the fact HELD. */
        assert_int_equal(f->status, i % 2 == 0 ? RESERVATION_CONFIRMED : RESERVATION_CANCELLED);
    }
    relay(d, ids, 2);
    ASSERT_LEFT(d, 2, 1);
    relay(d, ids, 3); /* some of them once more */
    ASSERT_LEFT(d, 1);
    relay(d, ids, 4);
    assert_left(d, NULL, 0);
    ledger_client_assert_sound(d);
}

static void
a_fact_that_could_not_be_relayed_is_reported_again_though_later_ones_were_relayed(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    for (uint64_t n = 1; n <= 4; n++)
        assert_int_equal(ledger_client_hold(d, n, (const char[]){(char)('a' + n - 1), 0}, n, 0,
                                            SEATS((uint32_t)n)),
                         ERR_OK);
    read_facts(d, &r, LATER_MS, 0);
    assert_int_equal(r.facts_read.count, 4);
    relay(d, (const int64_t[]){r.facts_read.facts[3].id, r.facts_read.facts[1].id}, 2);
    ASSERT_LEFT(d, 1, 3);
    ledger_client_restart(d);
    ASSERT_LEFT(d, 1, 3);
    assert_int_equal(ledger_client_cancel(d, 2, "b"), ERR_OK);
    ASSERT_LEFT(d, 1, 3, 2);
}

static void a_fact_after_all_were_relayed_is_reported(void **state) {
    struct ledger_client *d = *state;
    for (uint64_t n = 1; n <= 6; n++) {
        struct test_record r;
        assert_int_equal(ledger_client_hold(d, n, "a", 1, 0, SEATS(7)), ERR_OK);
        ASSERT_LEFT(d, n);
        assert_int_equal(ledger_client_cancel(d, n, "a"), ERR_OK);
        ASSERT_LEFT(d, n, n);
        read_facts(d, &r, LATER_MS, 0);
        relay(d, (const int64_t[]){r.facts_read.facts[0].id, r.facts_read.facts[1].id}, 2);
        assert_left(d, NULL, 0);
        if (n == 3) ledger_client_restart(d);
    }
}

static void a_young_fact_is_not_reported_yet(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    struct uuid id = ledger_client_id(1);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    read_facts(d, &r, TEST_HELD_MS + 999, 1000);
    assert_int_equal(r.facts_read.count, 0);
    read_facts(d, &r, TEST_HELD_MS + 1000, 1000);
    assert_int_equal(r.facts_read.count, 1);
    assert_memory_equal(&r.facts_read.facts[0].reservation, &id, sizeof id);
    read_facts(d, &r, 2500 + 1000, 1000);
    assert_int_equal(r.facts_read.count, 2);
    /* A fact that is old enough is returned although an earlier one is not. */
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(2)), ERR_OK);
    read_facts(d, &r, TEST_HELD_MS + 1000, 1000);
    assert_int_equal(r.facts_read.count, 2);
}

/* It is of no reservation. */
static void sell_out(struct ledger_client *d) {
    struct event *small = test_event("1", 2);
    small->sections[0].capacity = 1;
    small->sections[1].capacity = 1;
    mem_free(harness_store(&d->h, d->l, small));
    mem_free(small);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 1, SEATS(1)), ERR_OK);
}

static void the_fact_that_all_is_sold_is_not_among_them(void **state) {
    struct ledger_client *d = *state;
    sell_out(d);
    ASSERT_LEFT(d, 1, 2);
}

static void more_facts_than_fit_come_in_batches(void **state) {
    struct ledger_client *d = *state;
    static const size_t most = FACTS_READ_MAX;
    size_t rounds = FACTS_READ_MAX * 5 / 4;
    int64_t ids[FACTS_READ_MAX];
    int64_t last = 0;
    size_t told = 0;
    struct test_record r;
    for (uint64_t n = 1; n <= rounds; n++) {
        assert_int_equal(ledger_client_hold(d, n, "a", 1, 0, SEATS(7)), ERR_OK);
        assert_int_equal(ledger_client_cancel(d, n, "a"), ERR_OK);
    }
    read_facts(d, &r, LATER_MS, 0);
    assert_int_equal(r.facts_read.count, most);
    while (r.facts_read.count > 0) {
        for (size_t i = 0; i < r.facts_read.count; i++) {
            struct uuid id = ledger_client_id(1 + told++ / 2);
            assert_memory_equal(&r.facts_read.facts[i].reservation, &id, sizeof id);
            ids[i] = r.facts_read.facts[i].id;
            assert_true(ids[i] > last);
            last = ids[i];
        }
        relay(d, ids, r.facts_read.count);
        read_facts(d, &r, LATER_MS, 0);
    }
    assert_int_equal(told, 2 * rounds);
}

/* ---- sales ---- */

static size_t read_sales(struct ledger_client *d, struct sale_mark *mark, struct sale *sales,
                         size_t max) {
    struct test_record r;
    test_sales_read(&r, *mark, sales, max);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    *mark = r.sales_read.mark;
    return r.sales_read.count;
}

static void assert_sale(const struct ledger_client *d, const struct sale *s, enum sale_kind kind,
                        int64_t seats, int64_t at_ms) {
    assert_int_equal(s->kind, kind);
    assert_int_equal(s->event_key, d->event->key);
    assert_int_equal(s->seats, seats);
    assert_int_equal(s->at_ms, at_ms);
    if (kind != SALE_SOLD_OUT) assert_int_equal(s->taken_ms, TEST_HELD_MS);
}

static void sales_are_reported_in_order_and_once(void **state) {
    struct ledger_client *d = *state;
    struct sale sales[8];
    struct sale_mark mark = {0};
    assert_int_equal(read_sales(d, &mark, sales, 8), 0);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_true(ledger_client_expire(d, 2, TEST_EXPIRES_MS + 1));
    assert_int_equal(read_sales(d, &mark, sales, 8), 4);
    assert_sale(d, &sales[0], SALE_TAKEN, 2, TEST_HELD_MS);
    assert_sale(d, &sales[1], SALE_TAKEN, 1, TEST_HELD_MS);
    assert_sale(d, &sales[2], SALE_GIVEN_BACK, 2, 2600);
    assert_sale(d, &sales[3], SALE_GIVEN_BACK, 1, TEST_EXPIRES_MS + 1);
    assert_int_equal(read_sales(d, &mark, sales, 8), 0);
    assert_int_equal(ledger_client_hold(d, 3, "c", 3, 0, SEATS(1)), ERR_OK);
    assert_int_equal(read_sales(d, &mark, sales, 8), 1);
    /* Relayed or not, from the beginning it is all there. */
    relay(d, (const int64_t[]){sales[0].mark.id}, 1);
    mark = (struct sale_mark){0};
    assert_int_equal(read_sales(d, &mark, sales, 3), 3);
    assert_sale(d, &sales[2], SALE_GIVEN_BACK, 2, 2600);
    assert_int_equal(read_sales(d, &mark, sales, 3), 2);
    assert_sale(d, &sales[1], SALE_TAKEN, 1, TEST_HELD_MS);
    assert_int_equal(read_sales(d, &mark, sales, 3), 0);
}

/* Seats that are taken by event 1's reservations, and how many these are, by loading and then by
 * what comes behind the mark. */
struct sum {
    struct sale_mark mark;
    int64_t reservations;
    int64_t seats;
    int64_t sold_out_ms;
};

static void on_sale(void *to, const struct sale *s) {
    struct sum *sum = to;
    int64_t sign = s->kind == SALE_TAKEN ? 1 : -1;
    if (s->kind == SALE_SOLD_OUT) {
        sum->sold_out_ms = s->at_ms;
        return;
    }
    assert_int_equal(s->taken_ms, TEST_HELD_MS);
    sum->reservations += sign;
    sum->seats += sign * s->seats;
}

static void on_mark(void *to, const struct sale_mark *mark) {
    ((struct sum *)to)->mark = *mark;
}

static void on_live(void *to, const struct reservation *r) {
    on_sale(to, &(struct sale){.seats = (int64_t)r->seat_count, .taken_ms = r->created_ms});
}

static struct sum load_sales_up_to(struct ledger_client *d, const struct sale_mark *mark) {
    struct sum sum = {0};
    struct ledger_reader reader = {.on_reservation = on_live,
                                   .on_sale = on_sale,
                                   .on_mark = on_mark,
                                   .mark = mark,
                                   .to = &sum};
    assert_int_equal(ledger_load(d->l, &reader), ERR_OK);
    return sum;
}

static struct sum load_sales(struct ledger_client *d) {
    return load_sales_up_to(d, NULL);
}

static void a_load_returns_the_sales_up_to_the_watermark(void **state) {
    struct ledger_client *d = *state;
    struct sale sales[8];
    struct sum sum = load_sales(d);
    assert_int_equal(sum.reservations, 0);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "c", 3, 1, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 2, "b"), ERR_OK);
    size_t n = read_sales(d, &sum.mark, sales, 8);
    for (size_t i = 0; i < n; i++) on_sale(&sum, &sales[i]);
    struct sum again = load_sales(d);
    assert_int_equal(sum.reservations, 2);
    assert_int_equal(sum.seats, 3);
    assert_int_equal(again.reservations, 2);
    assert_int_equal(again.seats, 3);
    assert_int_equal(again.sold_out_ms, 0);
    assert_int_equal(read_sales(d, &again.mark, sales, 8), 0);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    struct sum before = load_sales_up_to(d, &again.mark);
    assert_int_equal(before.reservations, 2);
    assert_int_equal(before.seats, 3);
    assert_memory_equal(&before.mark, &again.mark, sizeof before.mark);
    assert_int_equal(load_sales_up_to(d, &(struct sale_mark){0}).reservations, 0);
    assert_int_equal(load_sales(d).reservations, 1);
    assert_int_equal(read_sales(d, &again.mark, sales, 8), 1);
    assert_sale(d, &sales[0], SALE_GIVEN_BACK, 2, 2600);
}

static void that_all_was_sold_is_loaded(void **state) {
    struct ledger_client *d = *state;
    sell_out(d);
    struct sum sum = load_sales(d);
    assert_int_equal(sum.seats, 2);
    assert_int_equal(sum.sold_out_ms, TEST_HELD_MS);
}

static void sold_out_is_reported_after_the_hold_that_sold_the_last_seat(void **state) {
    struct ledger_client *d = *state;
    struct sale sales[8];
    struct sale_mark mark = {0};
    sell_out(d);
    assert_int_equal(read_sales(d, &mark, sales, 8), 3);
    assert_sale(d, &sales[0], SALE_TAKEN, 1, TEST_HELD_MS);
    assert_sale(d, &sales[1], SALE_TAKEN, 1, TEST_HELD_MS);
    assert_sale(d, &sales[2], SALE_SOLD_OUT, 0, TEST_HELD_MS);
}

static int64_t count_sold_out(struct ledger_client *d) {
    struct sale sales[16];
    struct sale_mark mark = {0};
    size_t n = read_sales(d, &mark, sales, 16);
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += sales[i].kind == SALE_SOLD_OUT;
    return count;
}

static void store_with(struct ledger_client *d, int64_t first, int64_t second) {
    struct event *e = test_event("1", second > 0 ? 2 : 1);
    e->sections[0].capacity = first;
    if (second > 0) e->sections[1].capacity = second;
    mem_free(harness_store(&d->h, d->l, e));
    mem_free(e);
}

static void removing_the_seats_that_are_left_sells_out(void **state) {
    struct ledger_client *d = *state;
    store_with(d, 2, 3);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    store_with(d, 1, 3);
    assert_int_equal(count_sold_out(d), 0);
    store_with(d, 1, 0);
    assert_int_equal(count_sold_out(d), 1);
    store_with(d, 1, 0); /* no fact is added */
    assert_int_equal(count_sold_out(d), 1);
    store_with(d, 5, 0);
    assert_int_equal(count_sold_out(d), 1);
    store_with(d, 1, 0);
    assert_int_equal(count_sold_out(d), 2);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    store_with(d, 1, 4);
    store_with(d, 1, 0); /* there are no reservations */
    assert_int_equal(count_sold_out(d), 2);
}

/* ---- pages ---- */

#define PAGE_MAX 16

/* Facts that were read, in order; facts_free frees them. */
struct facts {
    struct fact *all[PAGE_MAX];
    size_t count;
    struct sale_mark mark;
};

/* Reads one page after f->mark, and adds it. */
static size_t read_page(struct ledger_client *d, struct facts *f, size_t max) {
    struct test_record r;
    assert_true(f->count + max <= PAGE_MAX);
    test_facts_page(&r, f->mark, f->all + f->count, max);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    assert_true(r.facts_page.count <= max);
    for (size_t i = 0; i < r.facts_page.count; i++) {
        const struct sale_mark *mark = &f->all[f->count++]->mark;
        assert_true(sale_is_after(mark, &f->mark));
        f->mark = *mark;
    }
    assert_memory_equal(&r.facts_page.mark, &f->mark, sizeof f->mark);
    return r.facts_page.count;
}

static void facts_free(struct facts *f) {
    for (size_t i = 0; i < f->count; i++) mem_free(f->all[i]);
    *f = (struct facts){0};
}

static void assert_fact(const struct fact *f, enum fact_kind kind, uint64_t number,
                        const char *user, const char *section, int64_t at_ms) {
    struct uuid id = ledger_client_id(number);
    assert_int_equal(f->kind, kind);
    assert_memory_equal(&f->reservation, &id, sizeof id);
    assert_string_equal(f->user, user);
    assert_string_equal(f->event_type, "CONCERT");
    assert_string_equal(f->event_id, "1");
    assert_string_equal(f->section, section);
    assert_int_equal(f->at_ms, at_ms);
}

static void assert_sold_out(const struct fact *f) {
    assert_int_equal(f->kind, FACT_SOLD_OUT);
    assert_string_equal(f->event_type, "CONCERT");
    assert_string_equal(f->event_id, "1");
    assert_string_equal(f->section, "");
    assert_string_equal(f->user, "");
    assert_int_equal(f->seat_count, 0);
    assert_null(f->seats);
}

static void a_page_has_the_facts_of_every_kind_in_order(void **state) {
    struct ledger_client *d = *state;
    struct facts f = {0};
    assert_int_equal(read_page(d, &f, 8), 0);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(4, 7)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 1, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_true(ledger_client_expire(d, 2, TEST_EXPIRES_MS + 1));
    assert_int_equal(read_page(d, &f, 8), 5);
    assert_fact(f.all[0], FACT_HELD, 1, "a", "A", TEST_HELD_MS);
    assert_fact(f.all[1], FACT_HELD, 2, "b", "B", TEST_HELD_MS);
    assert_fact(f.all[2], FACT_CONFIRMED, 1, "a", "A", 2500);
    assert_fact(f.all[3], FACT_CANCELLED, 1, "a", "A", 2600);
    assert_fact(f.all[4], FACT_EXPIRED, 2, "b", "B", TEST_EXPIRES_MS + 1);
    struct reservation *r = ledger_client_get(d, 1);
    for (size_t i = 0; i < 4; i += 2) {
        assert_int_equal(f.all[i]->seat_count, 2);
        assert_int_equal(f.all[i]->seats[0], 4);
        assert_int_equal(f.all[i]->seats[1], 7);
        assert_int_equal(f.all[i]->price, r->price);
        assert_string_equal(f.all[i]->currency, r->currency);
    }
    mem_free(r);
    assert_int_equal(read_page(d, &f, 8), 0);
    facts_free(&f);
}

static void pages_follow_each_other_over_a_restart_and_repeat_nothing(void **state) {
    struct ledger_client *d = *state;
    struct facts f = {0};
    for (uint64_t n = 1; n <= 5; n++) {
        assert_int_equal(ledger_client_hold(d, n, "a", 1, 0, SEATS(7)), ERR_OK);
        assert_int_equal(ledger_client_cancel(d, n, "a"), ERR_OK);
        if (n == 2) assert_int_equal(read_page(d, &f, 3), 3);
        if (n == 3) ledger_client_restart(d);
    }
    assert_int_equal(read_page(d, &f, 3), 3);
    assert_int_equal(read_page(d, &f, 3), 3);
    assert_int_equal(read_page(d, &f, 3), 1);
    assert_int_equal(read_page(d, &f, 3), 0);
    for (size_t i = 0; i < 10; i++)
        assert_fact(f.all[i], i % 2 == 0 ? FACT_HELD : FACT_CANCELLED, 1 + i / 2, "a", "A",
                    i % 2 == 0 ? TEST_HELD_MS : 2600);
    facts_free(&f);
}

static void a_page_has_facts_whether_they_were_relayed_or_not(void **state) {
    struct ledger_client *d = *state;
    struct facts f = {0};
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(read_page(d, &f, 1), 1);
    relay(d, &f.mark.id, 1);
    facts_free(&f);
    assert_int_equal(read_page(d, &f, 8), 2);
    assert_fact(f.all[0], FACT_HELD, 1, "a", "A", TEST_HELD_MS);
    assert_fact(f.all[1], FACT_CONFIRMED, 1, "a", "A", 2500);
    facts_free(&f);
}

static void a_page_has_sold_out_after_the_hold_that_sold_the_last_seat(void **state) {
    struct ledger_client *d = *state;
    struct facts f = {0};
    sell_out(d);
    assert_int_equal(read_page(d, &f, 8), 3);
    assert_fact(f.all[0], FACT_HELD, 1, "a", "A", TEST_HELD_MS);
    assert_fact(f.all[1], FACT_HELD, 2, "b", "B", TEST_HELD_MS);
    assert_sold_out(f.all[2]);
    facts_free(&f);
}

static void the_facts_of_a_deleted_event_have_its_name(void **state) {
    struct ledger_client *d = *state;
    struct facts f = {0};
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    test_delete(&r, "CONCERT", "1", 3000);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_int_equal(read_page(d, &f, 8), 2);
    assert_fact(f.all[0], FACT_HELD, 1, "a", "A", TEST_HELD_MS);
    assert_fact(f.all[1], FACT_CANCELLED, 1, "a", "A", 2600);
    facts_free(&f);
}

int ledger_facts_suite_run(const struct ledger_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, ledger_client_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(changes_of_reservations_are_reported_until_they_are_relayed),
        TEST(a_fact_that_could_not_be_relayed_is_reported_again_though_later_ones_were_relayed),
        TEST(a_fact_after_all_were_relayed_is_reported),
        TEST(a_young_fact_is_not_reported_yet),
        TEST(the_fact_that_all_is_sold_is_not_among_them),
        TEST(more_facts_than_fit_come_in_batches),
        TEST(sales_are_reported_in_order_and_once),
        TEST(sold_out_is_reported_after_the_hold_that_sold_the_last_seat),
        TEST(removing_the_seats_that_are_left_sells_out),
        TEST(a_load_returns_the_sales_up_to_the_watermark),
        TEST(that_all_was_sold_is_loaded),
        TEST(a_page_has_the_facts_of_every_kind_in_order),
        TEST(pages_follow_each_other_over_a_restart_and_repeat_nothing),
        TEST(a_page_has_facts_whether_they_were_relayed_or_not),
        TEST(a_page_has_sold_out_after_the_hold_that_sold_the_last_seat),
        TEST(the_facts_of_a_deleted_event_have_its_name),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract: facts", tests, NULL, NULL);
}
