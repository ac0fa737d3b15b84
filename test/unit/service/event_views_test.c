/* Events with their counts, with a hot store that answers when the test says so. */
#include "service/event_views.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/mem.h"

#define ASKED_MAX 8

/* A hot store that only counts, later. */
struct slow_seats {
    struct seats seats;
    struct seat_count_op *asked[ASKED_MAX];
    size_t count;
};

static void keep(struct seats *s, struct seat_count_op *c) {
    struct slow_seats *slow = CONTAINER_OF(s, struct slow_seats, seats);
    assert_true(slow->count < ASKED_MAX);
    slow->asked[slow->count++] = c;
}

static const struct seats_ops slow_ops = {.count = keep};

static void answer(struct slow_seats *slow, size_t i, enum err result,
                   const struct section_counts *counts, size_t count) {
    struct seat_count_op *c = slow->asked[i];
    c->op.result = result;
    c->count = count;
    for (size_t k = 0; k < count && k < c->max; k++) c->sections[k] = counts[k];
    c->done(c);
}

struct fixture {
    struct arena arena;
    struct slow_seats slow;
    struct events events;
    struct event_views views;
    int done;
    enum err result;
};

static void on_done(struct event_views *v, enum err result) {
    struct fixture *f = CONTAINER_OF(v, struct fixture, views);
    f->done++;
    f->result = result;
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    f->slow.seats.ops = &slow_ops;
    f->events.seats = &f->slow.seats;
    f->views.seats = true;
    f->views.done = on_done;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    arena_reset(&f->arena);
    mem_free(f);
    return 0;
}

/* With sections of the keys 10 × key + 1 and so on, of 100 seats, of which by the catalogue 5 are
 * held. The event itself is removed when the counts arrive. */
static void add(struct fixture *f, int64_t key, size_t sections) {
    struct event *e = event_new(sections);
    e->key = key;
    snprintf(e->id, sizeof e->id, "%d", (int)key);
    for (size_t i = 0; i < sections; i++)
        e->sections[i] =
            (struct section){.key = key * 10 + 1 + (int64_t)i, .capacity = 100, .held = 5};
    event_views_add(&f->views, &f->arena, e);
    memset(e->sections, 0xff, sections * sizeof *e->sections);
    mem_free(e);
}

static struct section_counts counts(int64_t section_key, uint32_t held, uint32_t confirmed) {
    return (struct section_counts){section_key, 100, {100 - held - confirmed, held, confirmed}};
}

static void assert_section(const struct event_view *view, size_t i, int64_t held,
                           int64_t confirmed) {
    assert_int_equal(view->event->sections[i].held, held);
    assert_int_equal(view->event->sections[i].confirmed, confirmed);
}

static void sections_have_the_counts_of_the_hot_store_in_whatever_order_they_come(void **state) {
    struct fixture *f = *state;
    add(f, 1, 3);
    event_views_count(&f->views, &f->events, NULL);
    assert_int_equal(f->done, 0);
    assert_int_equal(f->slow.asked[0]->op.event_key, 1);
    assert_true(f->slow.asked[0]->op.now_ms > 0);
    struct section_counts told[] = {counts(13, 3, 30), counts(11, 1, 10), counts(12, 2, 20)};
    answer(&f->slow, 0, ERR_OK, told, 3);
    assert_int_equal(f->done, 1);
    assert_int_equal(f->result, ERR_OK);
    for (size_t i = 0; i < 3; i++)
        assert_section(f->views.first, i, (int64_t)i + 1, ((int64_t)i + 1) * 10);
}

static void a_section_that_the_hot_store_does_not_report_stays_as_it_was(void **state) {
    struct fixture *f = *state;
    add(f, 1, 2);
    add(f, 2, 2);
    add(f, 3, 1);
    event_views_count(&f->views, &f->events, NULL);
    struct section_counts others[] = {counts(12, 7, 0), counts(19, 1, 1), counts(18, 1, 1)};
    answer(&f->slow, 0, ERR_OK, others, 3); /* more than there is room for */
    answer(&f->slow, 1, ERR_OK, others, 1);
    answer(&f->slow, 2, ERR_OK, NULL, 0);
    const struct event_view *view = f->views.first;
    assert_section(view, 0, 5, 0);
    assert_section(view, 1, 7, 0);
    assert_section(view->next, 0, 5, 0);
    assert_section(view->next, 1, 5, 0);
    assert_section(view->next->next, 0, 5, 0);
}

static void many_are_asked_at_once_and_done_comes_with_the_last_answer(void **state) {
    struct fixture *f = *state;
    for (int64_t key = 1; key <= 4; key++) add(f, key, 1);
    event_views_count(&f->views, &f->events, NULL);
    assert_int_equal(f->slow.count, 4);
    static const size_t order[] = {2, 0, 3, 1};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(f->done, 0);
        struct section_counts told = counts((int64_t)order[i] * 10 + 11, (uint32_t)order[i], 0);
        answer(&f->slow, order[i], ERR_OK, &told, 1);
    }
    assert_int_equal(f->done, 1);
    assert_int_equal(f->views.count, 4);
    int64_t key = 1;
    for (const struct event_view *v = f->views.first; v != NULL; v = v->next, key++) {
        assert_int_equal(v->event->key, key);
        assert_section(v, 0, key - 1, 0);
    }
    assert_int_equal(key, 5);
}

static void events_deleted_in_the_meantime_are_left_out(void **state) {
    struct fixture *f = *state;
    for (int64_t key = 1; key <= 4; key++) add(f, key, 1);
    event_views_count(&f->views, &f->events, NULL);
    for (size_t i = 0; i < 4; i++)
        answer(&f->slow, i, i == 2 ? ERR_OK : ERR_EVENT_NOT_FOUND, NULL, 0);
    assert_int_equal(f->result, ERR_OK);
    assert_int_equal(f->views.count, 1);
    assert_int_equal(f->views.first->event->key, 3);
    assert_null(f->views.first->next);
}

static void a_failure_of_the_store_is_reported(void **state) {
    struct fixture *f = *state;
    for (int64_t key = 1; key <= 3; key++) add(f, key, 1);
    event_views_count(&f->views, &f->events, NULL);
    answer(&f->slow, 0, ERR_OK, NULL, 0);
    answer(&f->slow, 1, ERR_OVERLOADED, NULL, 0);
    assert_int_equal(f->done, 0);
    answer(&f->slow, 2, ERR_OK, NULL, 0);
    assert_int_equal(f->done, 1);
    assert_int_equal(f->result, ERR_OVERLOADED);
}

static void nothing_to_count_is_done_at_once(void **state) {
    struct fixture *f = *state;
    event_views_count(&f->views, &f->events, NULL);
    assert_int_equal(f->done, 1);
    assert_int_equal(f->result, ERR_OK);
    assert_null(f->views.first);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(sections_have_the_counts_of_the_hot_store_in_whatever_order_they_come),
        TEST(a_section_that_the_hot_store_does_not_report_stays_as_it_was),
        TEST(many_are_asked_at_once_and_done_comes_with_the_last_answer),
        TEST(events_deleted_in_the_meantime_are_left_out),
        TEST(a_failure_of_the_store_is_reported),
        TEST(nothing_to_count_is_done_at_once),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
