#include "hot/redis/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct redis_address parsed(const char *url) {
    struct redis_address a;
    struct buf why = {0};
    if (!redis_address_parse(str_of(url), &a, &why)) fail_msg("%s: %s", url, buf_cstr(&why));
    assert_int_equal(why.len, 0);
    buf_deinit(&why);
    return a;
}

/* Refused, and the reason has this in it. */
static void refused(const char *url, const char *reason) {
    struct redis_address a;
    struct buf why = {0};
    if (redis_address_parse(str_of(url), &a, &why)) fail_msg("%s was taken", url);
    if (strstr(buf_cstr(&why), reason) == NULL) fail_msg("%s: %s", url, buf_cstr(&why));
    buf_deinit(&why);
}

static void a_host_is_enough(void **state) {
    (void)state;
    struct redis_address a = parsed("redis://hot.example");
    assert_false(a.sentinel);
    assert_int_equal(a.host_count, 1);
    assert_string_equal(a.hosts[0].name, "hot.example");
    assert_int_equal(a.hosts[0].port, 6379);
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "");
    assert_int_equal(a.database, 0);
    assert_int_equal(parsed("redis://h/").database, 0);
}

static void port_database_user_and_password_are_taken(void **state) {
    (void)state;
    struct redis_address a = parsed("redis://me:p%40s%3as%2F@10.0.0.1:7000/12");
    assert_string_equal(a.user, "me");
    assert_string_equal(a.password, "p@s:s/");
    assert_string_equal(a.hosts[0].name, "10.0.0.1");
    assert_int_equal(a.hosts[0].port, 7000);
    assert_int_equal(a.database, 12);
    a = parsed("redis://:only:password@h");
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "only:password");
}

static void an_ipv6_address_stands_in_brackets(void **state) {
    (void)state;
    struct redis_address a = parsed("redis://[::1]:7000");
    assert_string_equal(a.hosts[0].name, "::1");
    assert_int_equal(a.hosts[0].port, 7000);
    assert_int_equal(parsed("redis://[fe80::1%eth0]/3").database, 3);
    refused("redis://[::1", "brackets");
    refused("redis://::1:7000", "brackets");
    refused("redis://[]", "host is missing");
    refused("redis://[::1]7000", "behind a host");
}

static void sentinels_know_the_master_by_name(void **state) {
    (void)state;
    struct redis_address a =
        parsed("redis+sentinel://:secret@a:26379,[::2]:26380,c:26381/my%20master/2");
    assert_true(a.sentinel);
    assert_int_equal(a.host_count, 3);
    assert_string_equal(a.hosts[1].name, "::2");
    assert_int_equal(a.hosts[2].port, 26381);
    assert_string_equal(a.master, "my master");
    assert_string_equal(a.password, "secret");
    assert_int_equal(a.database, 2);
    assert_int_equal(parsed("redis+sentinel://a:1/m").database, 0);
    refused("redis+sentinel://a:1", "master's name");
    refused("redis+sentinel://a:1/", "master's name");
    refused("redis+sentinel://a/m", "needs a port");
    refused("redis+sentinel://a:1,,b:2/m", "host is missing");
    refused("redis+sentinel:///m", "host is missing");
    refused("redis+sentinel://a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1/m", "more than 8");
}

static void errors_are_reported(void **state) {
    (void)state;
    refused("", "redis://");
    refused("http://h", "redis://");
    refused("redis://", "host is missing");
    refused("redis://a,b", "several are for redis+sentinel");
    refused("redis://h:0", "1 to 65535");
    refused("redis://h:65536", "1 to 65535");
    refused("redis://h:", "1 to 65535");
    refused("redis://h:7x", "1 to 65535");
    refused("redis://h/one", "database");
    refused("redis://h/-1", "database");
    refused("redis://h/1/2", "database");
    refused("redis://h?db=1", "character");
    refused("redis://me@h", "colon");
    refused("redis://me:@h", "no password");
    refused("redis://:a%4@h", "percent-encoded");
    refused("redis://:a%00b@h", "percent-encoded");
}

static void what_is_not_there_yet_is_refused_as_such(void **state) {
    (void)state;
    refused("rediss://h", "hiredis 0.14");
    refused("redis+cluster://h", "not there yet");
}

static void texts_that_are_too_long_are_refused(void **state) {
    (void)state;
    struct buf url = {0};
    buf_add(&url, STR("redis://:"));
    for (int i = 0; i < REDIS_TEXT_BYTES; i++) buf_add_char(&url, 'x');
    buf_add(&url, STR("@h"));
    refused(buf_cstr(&url), "too long");
    buf_clear(&url);
    buf_add(&url, STR("redis://"));
    for (int i = 0; i < REDIS_TEXT_BYTES; i++) buf_add_char(&url, 'x');
    refused(buf_cstr(&url), "too long");
    buf_deinit(&url);
}

static void the_password_is_not_repeated(void **state) {
    (void)state;
    struct redis_address a;
    struct buf why = {0};
    assert_false(redis_address_parse(STR("redis://me:secret@h:x"), &a, &why));
    assert_null(strstr(buf_cstr(&why), "secret"));
    buf_deinit(&why);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_enough),
        cmocka_unit_test(port_database_user_and_password_are_taken),
        cmocka_unit_test(an_ipv6_address_stands_in_brackets),
        cmocka_unit_test(sentinels_know_the_master_by_name),
        cmocka_unit_test(errors_are_reported),
        cmocka_unit_test(what_is_not_there_yet_is_refused_as_such),
        cmocka_unit_test(texts_that_are_too_long_are_refused),
        cmocka_unit_test(the_password_is_not_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
