#include "service/catalogue.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct event *event_of(const char *id, int64_t version, const char *title) {
    struct event *e = event_new(1);
    str_copy(STR("CONCERT"), e->type, sizeof e->type);
    str_copy(str_of(id), e->id, sizeof e->id);
    str_copy(str_of(title), e->title, sizeof e->title);
    e->version = version;
    return e;
}

/* The title in force, or "" when there is no such event. */
static const char *title_of(struct catalogue *c, const char *id) {
    static char title[EVENT_TITLE_BYTES_MAX + 1];
    catalogue_open(c);
    const struct event *e = catalogue_find(c, STR("CONCERT"), str_of(id));
    str_copy(e == NULL ? STR("") : str_of(e->title), title, sizeof title);
    catalogue_shut(c);
    return title;
}

static void the_newest_version_wins_in_any_order(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new(1000);
    catalogue_install(c, event_of("1", 5, "five"));
    catalogue_install(c, event_of("1", 4, "four"));
    assert_string_equal(title_of(c, "1"), "five");
    catalogue_install(c, event_of("1", 6, "six"));
    assert_string_equal(title_of(c, "1"), "six");
    assert_int_equal(catalogue_count(c), 1);
    catalogue_free(c);
}

static void a_late_put_does_not_revive_a_deleted_event(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new(1000);
    catalogue_install(c, event_of("1", 1, "first"));
    catalogue_remove(c, STR("CONCERT"), STR("1"), 3);
    catalogue_install(c, event_of("1", 2, "late"));
    assert_string_equal(title_of(c, "1"), "");
    assert_int_equal(catalogue_count(c), 0);
    catalogue_install(c, event_of("1", 4, "again"));
    assert_string_equal(title_of(c, "1"), "again");
    catalogue_remove(c, STR("CONCERT"), STR("1"), 3);
    assert_string_equal(title_of(c, "1"), "again");
    catalogue_free(c);
}

static void names_that_could_be_no_event_are_not_found(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new(1000);
    catalogue_open(c);
    assert_null(catalogue_find(c, STR(""), STR("1")));
    assert_null(catalogue_find(c, STR("A/B"), STR("1")));
    assert_null(catalogue_find(c, STR("CONCERT"), STR("..")));
    catalogue_shut(c);
    catalogue_free(c);
}

/* Events that come and go for ever must not leave something behind for ever. */
static void long_deleted_events_are_forgotten(void **state) {
    (void)state;
    struct catalogue *c = catalogue_new(1000);
    catalogue_install(c, event_of("stays", 1, "stays"));
    int64_t version = 2;
    for (int i = 0; i < 20000; i++) {
        char id[16];
        snprintf(id, sizeof id, "e%d", i);
        catalogue_install(c, event_of(id, version, "short-lived"));
        catalogue_remove(c, STR("CONCERT"), str_of(id), version + 1);
        version += 2;
    }
    assert_true(catalogue_remembered(c) < 4000);
    assert_string_equal(title_of(c, "stays"), "stays");
    /* One that may still be in flight does not come back. */
    catalogue_install(c, event_of("e19999", version - 2, "late"));
    assert_string_equal(title_of(c, "e19999"), "");
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
        catalogue_open(race->c);
        while ((e = catalogue_next(race->c, &at)) != NULL) assert_string_equal(e->title, "steady");
        catalogue_shut(race->c);
    }
    return NULL;
}

static void readers_see_whole_events_while_others_change_them(void **state) {
    (void)state;
    struct race race = {.c = catalogue_new(1000)};
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
        cmocka_unit_test(the_newest_version_wins_in_any_order),
        cmocka_unit_test(a_late_put_does_not_revive_a_deleted_event),
        cmocka_unit_test(names_that_could_be_no_event_are_not_found),
        cmocka_unit_test(long_deleted_events_are_forgotten),
        cmocka_unit_test(readers_see_whole_events_while_others_change_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
