#include "service/catalogue.h"
#include "wall_clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"

static struct event *event_of(const char *id, int64_t version, const char *title) {
    struct event *e = event_new(1);
    str_copy(STR("CONCERT"), e->type, sizeof e->type);
    str_copy(str_of(id), e->id, sizeof e->id);
    str_copy(str_of(title), e->title, sizeof e->title);
    e->version = version;
    e->key = 100 + version;
    return e;
}

/* The title in force, or "" when there is no such event. */
static const char *title_of(struct catalogue *c, const char *id) {
    static char title[EVENT_TITLE_BYTES_MAX + 1];
    catalogue_read_lock(c);
    const struct event *e = catalogue_find(c, STR("CONCERT"), str_of(id));
    str_copy(e == NULL ? STR("") : str_of(e->title), title, sizeof title);
    catalogue_read_unlock(c);
    return title;
}

static void a_change_takes_the_place_of_what_was_there(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new();
    catalogue_install(c, event_of("1", 5, "five"));
    catalogue_install(c, event_of("1", 6, "six"));
    assert_string_equal(title_of(c, "1"), "six");
    assert_int_equal(catalogue_count(c), 1);
    catalogue_install(c, event_of("1", 5, "late"));
    catalogue_install(c, event_of("1", 6, "twice"));
    catalogue_remove(c, STR("CONCERT"), STR("1"), 5); /* late */
    assert_string_equal(title_of(c, "1"), "six");
    catalogue_remove(c, STR("CONCERT"), STR("1"), 7);
    catalogue_remove(c, STR("CONCERT"), STR("1"), 7);
    assert_string_equal(title_of(c, "1"), "");
    assert_int_equal(catalogue_count(c), 0);
    catalogue_install(c, event_of("1", 6, "late"));
    assert_int_equal(catalogue_count(c), 0);
    catalogue_install(c, event_of("1", 8, "again"));
    assert_string_equal(title_of(c, "1"), "again");
    catalogue_free(c);
}

static void removals_are_forgotten_when_no_change_can_come_so_late(void **state) {
    (void)state;
    enum { MANY = 500, MINUTE_MS = 60 * 1000 };
    struct catalogue *c = catalogue_new();
    char id[16];
    wall_clock_set(1800000000000);
    for (int i = 0; i < MANY; i++) {
        int len = snprintf(id, sizeof id, "%d", i);
        catalogue_remove(c, STR("CONCERT"), (str){id, (size_t)len}, 5);
        wall_clock_advance(MINUTE_MS);
    }
    assert_true(catalogue_removals(c) < 150);
    catalogue_install(c, event_of(id, 4, "late"));
    assert_int_equal(catalogue_count(c), 0);
    wall_clock_release();
    catalogue_free(c);
}

static int64_t version_of_key(struct catalogue *c, int64_t key) {
    catalogue_read_lock(c);
    const struct event *e = catalogue_find_key(c, key);
    int64_t version = e == NULL ? 0 : e->version;
    catalogue_read_unlock(c);
    return version;
}

static void an_event_is_found_by_its_key(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new();
    for (int64_t i = 1; i <= 50; i++) {
        char id[8];
        snprintf(id, sizeof id, "%d", (int)i);
        catalogue_install(c, event_of(id, i, "x"));
    }
    for (int64_t i = 1; i <= 50; i++) assert_int_equal(version_of_key(c, 100 + i), i);
    assert_int_equal(version_of_key(c, 100), 0);
    assert_int_equal(version_of_key(c, 151), 0);
    /* A change keeps the key; another event of the name has another. */
    struct event *changed = event_of("7", 60, "changed");
    changed->key = 107;
    catalogue_install(c, changed);
    assert_int_equal(version_of_key(c, 107), 60);
    catalogue_remove(c, STR("CONCERT"), STR("7"), 61);
    assert_int_equal(version_of_key(c, 107), 0);
    catalogue_install(c, event_of("7", 70, "again"));
    assert_int_equal(version_of_key(c, 170), 70);
    assert_int_equal(version_of_key(c, 108), 8);
    catalogue_free(c);
}

/* The section as "EVENT/SECTION version", or "" when no event has it. */
static const char *section_of(struct catalogue *c, int64_t section_key) {
    static char text[EVENT_ID_BYTES_MAX + SECTION_ID_BYTES_MAX + 32];
    const struct section *s = NULL;
    text[0] = '\0';
    catalogue_read_lock(c);
    const struct event *e = catalogue_find_section(c, section_key, &s);
    if (e != NULL) {
        assert_ptr_equal(event_section(e, str_of(s->id)), s);
        assert_int_equal(s->key, section_key);
        snprintf(text, sizeof text, "%s/%s %d", e->id, s->id, (int)e->version);
    }
    catalogue_read_unlock(c);
    return text;
}

static struct event *event_with_sections(const char *id, int64_t version, const int64_t *keys,
                                         size_t count) {
    struct event *plain = event_of(id, version, "x");
    struct event *e = event_new(count);
    struct section *sections = e->sections;
    *e = *plain;
    e->sections = sections;
    e->section_count = count;
    for (size_t i = 0; i < count; i++) {
        sections[i].key = keys[i];
        snprintf(sections[i].id, sizeof sections[i].id, "S%d", (int)keys[i]);
    }
    mem_free(plain);
    return e;
}

static void a_section_is_found_by_its_key_as_long_as_its_event_has_it(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new();
    catalogue_install(c, event_with_sections("1", 1, (const int64_t[]){11, 12, 13}, 3));
    catalogue_install(c, event_with_sections("2", 2, (const int64_t[]){21, 22}, 2));
    assert_string_equal(section_of(c, 11), "1/S11 1");
    assert_string_equal(section_of(c, 13), "1/S13 1");
    assert_string_equal(section_of(c, 22), "2/S22 2");
    assert_string_equal(section_of(c, 14), "");
    assert_string_equal(section_of(c, 1), "");
    /* A change: 12 goes, 14 comes, and 13 stands elsewhere. */
    catalogue_install(c, event_with_sections("1", 3, (const int64_t[]){13, 11, 14}, 3));
    assert_string_equal(section_of(c, 12), "");
    assert_string_equal(section_of(c, 11), "1/S11 3");
    assert_string_equal(section_of(c, 13), "1/S13 3");
    assert_string_equal(section_of(c, 14), "1/S14 3");
    catalogue_remove(c, STR("CONCERT"), STR("1"), 4);
    for (int64_t key = 11; key <= 14; key++) assert_string_equal(section_of(c, key), "");
    assert_string_equal(section_of(c, 21), "2/S21 2");
    catalogue_free(c);
}

static void events_stand_in_the_order_of_their_names(void **state) {
    (void)state;
    static const char *const ids[] = {"b", "a", "ab", "c", "aa", "B", "10", "9"};
    static const char *const ordered[] = {"10", "9", "B", "a", "aa", "ab", "b", "c"};
    struct catalogue *c = catalogue_new();
    for (size_t i = 0; i < 8; i++) catalogue_install(c, event_of(ids[i], (int64_t)i + 1, "x"));
    catalogue_read_lock(c);
    for (size_t i = 0; i < 8; i++) {
        assert_string_equal(catalogue_at(c, i)->id, ordered[i]);
        assert_int_equal(catalogue_after(c, STR("CONCERT"), str_of(ordered[i])), i + 1);
    }
    assert_null(catalogue_at(c, 8));
    assert_int_equal(catalogue_after(c, STR("CONCERT"), STR("")), 0);
    assert_int_equal(catalogue_after(c, STR("CONCERT"), STR("abc")), 6);
    assert_int_equal(catalogue_after(c, STR("A"), STR("z")), 0);
    assert_int_equal(catalogue_after(c, STR("D"), STR("a")), 8);
    catalogue_read_unlock(c);
    catalogue_remove(c, STR("CONCERT"), STR("aa"), 9);
    catalogue_read_lock(c);
    assert_string_equal(catalogue_at(c, 4)->id, "ab");
    assert_null(catalogue_at(c, 7));
    catalogue_read_unlock(c);
    catalogue_free(c);
}

static void names_that_could_be_no_event_are_not_found(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new();
    catalogue_read_lock(c);
    assert_null(catalogue_find(c, STR(""), STR("1")));
    assert_null(catalogue_find(c, STR("A/B"), STR("1")));
    assert_null(catalogue_find(c, STR("CONCERT"), STR("..")));
    catalogue_read_unlock(c);
    catalogue_free(c);
}

#define CHANGES 2000

struct race {
    struct catalogue *c;
    _Atomic bool over;
};

static void *read_all_the_time(void *arg) {
    struct race *race = arg;
    while (!atomic_load(&race->over)) {
        size_t at = 0;
        const struct event *e;
        catalogue_read_lock(race->c);
        while ((e = catalogue_at(race->c, at++)) != NULL) assert_string_equal(e->title, "steady");
        catalogue_read_unlock(race->c);
    }
    return NULL;
}

static void readers_see_whole_events_while_others_change_them(void **state) {
    (void)state;
    struct race race = {.c = catalogue_new()};
    pthread_t readers[2];
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_all_the_time, &race), 0);
    for (int64_t version = 1; version <= CHANGES; version++) {
        char id[8];
        snprintf(id, sizeof id, "%d", (int)(version % 7));
        if (version % 5 == 0)
            catalogue_remove(race.c, STR("CONCERT"), str_of(id), version);
        else
            catalogue_install(race.c, event_of(id, version, "steady"));
    }
    atomic_store(&race.over, true);
    for (size_t i = 0; i < 2; i++) pthread_join(readers[i], NULL);
    catalogue_free(race.c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_takes_the_place_of_what_was_there),
        cmocka_unit_test(removals_are_forgotten_when_no_change_can_come_so_late),
        cmocka_unit_test(an_event_is_found_by_its_key),
        cmocka_unit_test(a_section_is_found_by_its_key_as_long_as_its_event_has_it),
        cmocka_unit_test(events_stand_in_the_order_of_their_names),
        cmocka_unit_test(names_that_could_be_no_event_are_not_found),
        cmocka_unit_test(readers_see_whole_events_while_others_change_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
