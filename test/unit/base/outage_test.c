/* How often an outage is logged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/outage.h"

enum { MINUTE_MS = 60000, LINES_BYTES = 8192 };

/* The log lines that are written in between. */
static FILE *caught;
static int stderr_before;

static void catch_log(void) {
    caught = tmpfile();
    assert_non_null(caught);
    fflush(stderr);
    stderr_before = dup(STDERR_FILENO);
    dup2(fileno(caught), STDERR_FILENO);
}

static const char *caught_log(void) {
    static char text[LINES_BYTES];
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    rewind(caught);
    text[fread(text, 1, sizeof text - 1, caught)] = '\0';
    fclose(caught);
    return text;
}

static int count_of(const char *text, const char *word) {
    int count = 0;
    while ((text = strstr(text, word)) != NULL) {
        count++;
        text += strlen(word);
    }
    return count;
}

static void an_outage_is_logged_once_and_its_end_once(void **state) {
    (void)state;
    struct outage o;
    outage_init(&o, "store", "nothing works");
    catch_log();
    assert_false(outage_back(&o));
    for (int i = 0; i < 100; i++) outage_lost(&o, "here:1", "refused");
    assert_true(outage_back(&o));
    assert_false(outage_back(&o));
    const char *log = caught_log();
    assert_int_equal(count_of(log, "\n"), 2);
    assert_int_equal(count_of(log,
                              "msg=\"a dependency is unavailable\" dependency=store address=here:1"
                              " seconds=0 error=refused meaning=\"nothing works\""),
                     1);
    assert_int_equal(
        count_of(log, "msg=\"a dependency is available again\" dependency=store address=here:1"),
        1);
    outage_deinit(&o);
}

static void an_outage_that_lasts_is_logged_every_minute(void **state) {
    (void)state;
    struct outage o;
    outage_init(&o, "store", "nothing works");
    catch_log();
    outage_lost(&o, "here:1", "refused");
    for (int i = 0; i < 3; i++) {
        o.since_ms -= MINUTE_MS;
        o.told_ms -= MINUTE_MS;
        for (int times = 0; times < 10; times++) outage_lost(&o, "here:1", "refused");
    }
    const char *log = caught_log();
    assert_int_equal(count_of(log, "\n"), 4);
    assert_int_equal(count_of(log, "is still unavailable"), 3);
    assert_int_equal(count_of(log, "seconds=180"), 1);
    outage_deinit(&o);
}

static void repeated_short_outages_are_logged_once(void **state) {
    (void)state;
    struct outage o;
    outage_init(&o, "store", "nothing works");
    catch_log();
    for (int i = 0; i < 50; i++) {
        outage_lost(&o, "here:1", "refused");
        outage_back(&o);
    }
    /* Unless it lasts then, or has been calm since. */
    outage_lost(&o, "here:1", "refused");
    o.since_ms -= 10000;
    o.back_ms -= 10000;
    outage_lost(&o, "here:1", "refused");
    outage_back(&o);
    o.back_ms -= 10000;
    outage_lost(&o, "here:1", "refused");
    const char *log = caught_log();
    assert_int_equal(count_of(log, "is unavailable"), 3);
    assert_int_equal(count_of(log, "is available again"), 2);
    assert_int_equal(count_of(log, "\n"), 5);
    outage_deinit(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_outage_is_logged_once_and_its_end_once),
        cmocka_unit_test(an_outage_that_lasts_is_logged_every_minute),
        cmocka_unit_test(repeated_short_outages_are_logged_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
