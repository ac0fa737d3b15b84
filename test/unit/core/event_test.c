#include "core/event.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

static struct event *example(void) {
    struct event *e = event_new(2);
    e->key = 7;
    e->version = 3;
    str_copy(STR("CONCERT"), e->type, sizeof e->type);
    str_copy(STR("1"), e->id, sizeof e->id);
    str_copy(STR("A night"), e->title, sizeof e->title);
    str_copy(STR("KRW"), e->currency, sizeof e->currency);
    e->state = EVENT_PAUSED;
    e->auto_enter = true;
    e->opens_at_ms = CLOCK_NONE_MS;
    e->closes_at_ms = CLOCK_NONE_MS;
    e->starts_at_ms = 5;
    e->queue = (struct queue_rules){.max_waiting = 10, .token_ttl_s = 20};
    e->hold_s = 300;
    e->max_per_user = 4;
    str_copy(STR("A"), e->sections[0].id, sizeof e->sections[0].id);
    e->sections[0].capacity = 100;
    e->sections[0].mode = SECTION_MODE_SEAT;
    str_copy(STR("B"), e->sections[1].id, sizeof e->sections[1].id);
    e->sections[1].price = PRICE_MAX;
    e->sections[1].status = SECTION_MAINTENANCE;
    return e;
}

static void assert_text(str text, const char *expected) {
    if (!str_eq(text, str_of(expected))) fail_msg("%.*s", (int)text.len, text.at);
}

static void a_new_event_is_zeroed_with_all_its_sections(void **state) {
    (void)state;
    for (size_t n = 0; n <= EVENT_SECTIONS_MAX; n += 50) {
        struct event *e = event_new(n);
        assert_int_equal(e->section_count, n);
        assert_int_equal(e->key, 0);
        assert_int_equal(e->state, EVENT_DRAFT);
        static const struct section zero;
        for (size_t i = 0; i < n; i++) assert_memory_equal(&e->sections[i], &zero, sizeof zero);
        assert_int_equal((uintptr_t)e->sections % _Alignof(struct section), 0);
        mem_free(e);
    }
}

static void a_copy_is_equal_and_shares_nothing_with_the_original(void **state) {
    (void)state;
    struct event *e = example();
    struct event *copy = event_copy(e);
    assert_ptr_not_equal(copy, e);
    assert_ptr_equal(copy->sections, (struct section *)(copy + 1));
    assert_int_equal(copy->key, 7);
    assert_int_equal(copy->version, 3);
    assert_string_equal(copy->type, "CONCERT");
    assert_string_equal(copy->title, "A night");
    assert_string_equal(copy->currency, "KRW");
    assert_int_equal(copy->state, EVENT_PAUSED);
    assert_true(copy->auto_enter);
    assert_true(copy->opens_at_ms == CLOCK_NONE_MS);
    assert_true(copy->closes_at_ms == CLOCK_NONE_MS);
    assert_int_equal(copy->queue.max_waiting, 10);
    assert_int_equal(copy->queue.token_ttl_s, 20);
    assert_int_equal(copy->section_count, 2);
    assert_memory_equal(copy->sections, e->sections, 2 * sizeof *e->sections);

    copy->sections[1].capacity = 99;
    copy->title[0] = 'X';
    assert_int_equal(e->sections[1].capacity, 0);
    assert_string_equal(e->title, "A night");
    /* Under ASan this sees a copy that still looks into the original. */
    mem_free(e);
    assert_string_equal(copy->sections[0].id, "A");
    assert_int_equal(copy->sections[0].mode, SECTION_MODE_SEAT);
    mem_free(copy);
}

static void the_texts_of_a_copy_are_its_own(void **state) {
    (void)state;
    struct event *e = example();
    char page[] = "{\"name\":\"A\"}";
    char hosts[] = "a.example,b.example";
    char notice[] = "Soon";
    e->page = str_of(page);
    e->return_hosts = str_of(hosts);
    e->notice = str_of(notice);
    struct event *copy = event_copy(e);
    struct event *other = event_new_like(e, 3);
    assert_int_equal(event_bytes(copy), event_bytes(e));
    struct event bare = event_without_texts(copy);
    struct event *small = event_copy(&bare);
    assert_int_equal(event_bytes(e) - event_bytes(small),
                     strlen(page) + strlen(hosts) + strlen(notice));
    assert_string_equal(small->sections[1].id, "B");
    assert_int_equal(small->page.len + small->return_hosts.len + small->notice.len, 0);
    mem_free(e);
    memset(page, '?', sizeof page - 1);
    memset(hosts, '?', sizeof hosts - 1);
    memset(notice, '?', sizeof notice - 1);
    struct event *again = event_copy(copy);
    mem_free(copy);
    for (int i = 0; i < 2; i++) {
        const struct event *of = i == 0 ? other : again;
        assert_text(of->page, "{\"name\":\"A\"}");
        assert_text(of->return_hosts, "a.example,b.example");
        assert_text(of->notice, "Soon");
        assert_string_equal(of->title, "A night");
    }
    assert_int_equal(other->section_count, 3);
    assert_string_equal(other->sections[0].id, "");
    assert_string_equal(again->sections[0].id, "A");
    mem_free(other);
    mem_free(again);
    mem_free(small);
}

static void an_event_without_sections_can_be_copied(void **state) {
    (void)state;
    struct event *e = event_new(0);
    struct event *copy = event_copy(e);
    assert_int_equal(copy->section_count, 0);
    assert_null(event_section(copy, STR("A")));
    mem_free(e);
    mem_free(copy);
}

static void a_section_is_found_by_its_whole_id(void **state) {
    (void)state;
    struct event *e = example();
    assert_ptr_equal(event_section(e, STR("A")), &e->sections[0]);
    assert_ptr_equal(event_section(e, STR("B")), &e->sections[1]);
    assert_null(event_section(e, STR("a")));
    assert_null(event_section(e, STR("AB")));
    assert_null(event_section(e, STR("")));
    assert_null(event_section(e, (str){NULL, 0}));
    mem_free(e);
}

static void a_name_is_letters_digits_underscore_dash_and_dot_only(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        char name[] = {'x', (char)c, 'y'};
        bool expected = c != 0 && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789_-.",
                                         c) != NULL;
        if (event_name_ok((str){name, 3}, 3) != expected) fail_msg("byte %d", c);
        if (event_name_ok((str){name, 2}, 3) != expected) fail_msg("byte %d at the end", c);
        if (c != '.' && event_name_ok((str){name + 1, 1}, 3) != expected) fail_msg("byte %d", c);
    }
}

static void a_name_has_at_least_one_byte_and_at_most_the_limit(void **state) {
    (void)state;
    assert_false(event_name_ok(STR(""), 5));
    assert_false(event_name_ok((str){NULL, 0}, 5));
    assert_true(event_name_ok(STR("a"), 5));
    assert_true(event_name_ok(STR("abcde"), 5));
    assert_false(event_name_ok(STR("abcdef"), 5));
}

static void a_name_of_one_or_two_dots_would_be_rewritten_in_a_path(void **state) {
    (void)state;
    assert_false(event_name_ok(STR("."), 5));
    assert_false(event_name_ok(STR(".."), 5));
    assert_true(event_name_ok(STR(".a"), 5));
    assert_true(event_name_ok(STR("..."), 5));
}

static void a_currency_is_three_capitals(void **state) {
    (void)state;
    assert_true(event_currency_ok(STR("KRW")));
    assert_true(event_currency_ok(STR("AZZ")));
    assert_false(event_currency_ok(STR("KR")));
    assert_false(event_currency_ok(STR("KRWX")));
    assert_false(event_currency_ok(STR("krw")));
    assert_false(event_currency_ok(STR("KR1")));
    assert_false(event_currency_ok(STR("@RW")));
    assert_false(event_currency_ok(STR("KR[")));
    assert_false(event_currency_ok(STR("")));
    assert_false(event_currency_ok((str){NULL, 0}));
}

static void a_path_is_type_slash_id_up_to_their_limits(void **state) {
    (void)state;
    char out[EVENT_PATH_BYTES];
    assert_true(str_eq(event_path(STR("CONCERT"), STR("1"), out), STR("CONCERT/1")));
    assert_string_equal(out, "CONCERT/1");

    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
    memset(type, 't', sizeof type);
    memset(id, 'i', sizeof id);
    str longest = event_path((str){type, EVENT_TYPE_BYTES_MAX}, (str){id, EVENT_ID_BYTES_MAX}, out);
    assert_int_equal(longest.len, EVENT_PATH_BYTES - 1);
    assert_int_equal(strlen(out), EVENT_PATH_BYTES - 1);
    assert_int_equal(out[EVENT_TYPE_BYTES_MAX], '/');

    assert_int_equal(event_path((str){type, sizeof type}, STR("1"), out).len, 0);
    assert_int_equal(event_path(STR("CONCERT"), (str){id, sizeof id}, out).len, 0);
    assert_int_equal(event_path(STR(""), STR("1"), out).len, 0);
    assert_int_equal(event_path(STR("CONCERT"), STR(""), out).len, 0);
    assert_int_equal(event_path(STR("CON/CERT"), STR("1"), out).len, 0);
    assert_int_equal(event_path(STR("CONCERT"), STR(".."), out).len, 0);
}

static void assert_words(const str *words, const char *const *expected) {
    int n = 0;
    for (; expected[n] != NULL; n++) {
        assert_true(str_eq(words[n], str_of(expected[n])));
        assert_int_equal(word_index(words, str_of(expected[n])), n);
    }
    assert_null(words[n].at);
}

static void each_state_mode_and_status_has_its_word_and_back(void **state) {
    (void)state;
    static const char *const states[] = {"DRAFT", "OPEN", "PAUSED", "DRAINING", "CLOSED", NULL};
    static const char *const modes[] = {"slot", "lock", "adaptive", "seat", NULL};
    static const char *const statuses[] = {"open", "closed", "maintenance", NULL};
    assert_words(event_state_words, states);
    assert_words(section_mode_words, modes);
    assert_words(section_status_words, statuses);
    assert_int_equal(word_index(event_state_words, STR("CLOSED")), EVENT_CLOSED);
    assert_int_equal(word_index(section_mode_words, STR("seat")), SECTION_MODE_SEAT);
    assert_int_equal(word_index(section_status_words, STR("closed")), SECTION_CLOSED);
}

static void an_unknown_word_has_no_index(void **state) {
    (void)state;
    assert_int_equal(word_index(event_state_words, STR("open")), -1);
    assert_int_equal(word_index(event_state_words, STR("OPE")), -1);
    assert_int_equal(word_index(event_state_words, STR("OPENED")), -1);
    assert_int_equal(word_index(section_mode_words, STR("")), -1);
    assert_int_equal(word_index(section_mode_words, (str){NULL, 0}), -1);
}

static void a_draft_is_hidden_until_it_opens_and_an_announced_event_is_not(void **state) {
    (void)state;
    struct event *e = example();
    for (int s = EVENT_DRAFT; s <= EVENT_CLOSED; s++) {
        e->state = (enum event_state)s;
        e->opens_at_ms = CLOCK_NONE_MS;
        assert_int_equal(event_is_public(e, 1000), s != EVENT_DRAFT);
        e->opens_at_ms = 1000;
        assert_int_equal(event_is_public(e, 999), s != EVENT_DRAFT);
        assert_true(event_is_public(e, 1000));
    }
    mem_free(e);
}

static void an_event_closes_by_itself_unless_it_is_a_draft(void **state) {
    (void)state;
    for (int s = EVENT_DRAFT; s <= EVENT_CLOSED; s++) {
        struct event_hours h = {(enum event_state)s, CLOCK_NONE_MS, 2000};
        assert_int_equal(event_state_at(&h, 1999), s);
        assert_false(event_is_over(&h, 1999));
        assert_int_equal(event_state_at(&h, 2000), s == EVENT_DRAFT ? EVENT_DRAFT : EVENT_CLOSED);
        assert_true(event_is_over(&h, 2000));
        h.opens_at_ms = 1000;
        enum event_state before = s == EVENT_CLOSED ? EVENT_CLOSED : EVENT_DRAFT;
        assert_int_equal(event_state_at(&h, 999), before);
        assert_int_equal(event_state_at(&h, 1000), s == EVENT_DRAFT ? EVENT_OPEN : s);
        assert_int_equal(event_state_at(&h, 2000), EVENT_CLOSED);
        h.closes_at_ms = CLOCK_NONE_MS;
        assert_int_equal(event_state_at(&h, INT64_MAX), s == EVENT_DRAFT ? EVENT_OPEN : s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_event_is_zeroed_with_all_its_sections),
        cmocka_unit_test(a_copy_is_equal_and_shares_nothing_with_the_original),
        cmocka_unit_test(the_texts_of_a_copy_are_its_own),
        cmocka_unit_test(an_event_without_sections_can_be_copied),
        cmocka_unit_test(a_section_is_found_by_its_whole_id),
        cmocka_unit_test(a_name_is_letters_digits_underscore_dash_and_dot_only),
        cmocka_unit_test(a_name_has_at_least_one_byte_and_at_most_the_limit),
        cmocka_unit_test(a_name_of_one_or_two_dots_would_be_rewritten_in_a_path),
        cmocka_unit_test(a_currency_is_three_capitals),
        cmocka_unit_test(a_path_is_type_slash_id_up_to_their_limits),
        cmocka_unit_test(each_state_mode_and_status_has_its_word_and_back),
        cmocka_unit_test(an_unknown_word_has_no_index),
        cmocka_unit_test(a_draft_is_hidden_until_it_opens_and_an_announced_event_is_not),
        cmocka_unit_test(an_event_closes_by_itself_unless_it_is_a_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
