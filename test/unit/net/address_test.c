#include "net/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct address parsed(const char *text) {
    struct address a;
    assert_true(address_parse(str_of(text), &a));
    return a;
}

static void an_address_is_written_as_it_was_read(void **state) {
    (void)state;
    static const char *const texts[] = {"127.0.0.1", "192.0.2.7", "255.255.255.255",
                                        "::1",       "::",        "2001:db8::7"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char out[ADDRESS_TEXT_BYTES];
        struct address a = parsed(texts[i]);
        address_format(&a, out);
        assert_string_equal(out, texts[i]);
    }
}

static void what_is_no_address_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"",    "1.2.3", "1.2.3.4.5", "256.1.1.1",
                                        "::g", "host",  "1.2.3.4 "};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct address a;
        assert_false(address_parse(str_of(texts[i]), &a));
    }
}

static void loopback_is_known_in_both_families(void **state) {
    (void)state;
    struct address yes[] = {parsed("127.0.0.1"), parsed("127.255.0.9"), parsed("::1"),
                            parsed("::ffff:127.0.0.1")};
    struct address no[] = {parsed("128.0.0.1"), parsed("::2"), parsed("192.0.2.1")};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        assert_true(address_is_loopback(&yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) assert_false(address_is_loopback(&no[i]));
}

static void mapped_addresses_are_of_ipv4(void **state) {
    (void)state;
    struct address yes[] = {parsed("127.0.0.1"), parsed("0.0.0.0"), parsed("::ffff:192.0.2.1")};
    struct address no[] = {parsed("::1"), parsed("::fffe:192.0.2.1"), parsed("2001:db8::7")};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) assert_true(address_is_v4(&yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) assert_false(address_is_v4(&no[i]));
}

static void a_proxy_may_add_the_port(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"192.0.2.7", "192.0.2.7"},           {"192.0.2.7:4711", "192.0.2.7"},
        {"::ffff:192.0.2.7", "192.0.2.7"},    {"[::ffff:192.0.2.7]:4711", "192.0.2.7"},
        {"2001:db8::7", "2001:db8::7"},       {"[2001:db8::7]", "2001:db8::7"},
        {"[2001:db8::7]:4711", "2001:db8::7"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct address a;
        struct address wanted = parsed(rows[i][1]);
        assert_true(address_parse_forwarded(str_of(rows[i][0]), &a));
        assert_memory_equal(&a, &wanted, sizeof a);
    }
    static const char *const bad[] = {"",    "unknown", "localhost:80", "192.0.2.7:", "[]",
                                      "[::", "[x]:1",   "_hidden",      "192.0.2:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct address a;
        assert_false(address_parse_forwarded(str_of(bad[i]), &a));
    }
}

static void networks_hold_just_their_addresses(void **state) {
    (void)state;
    struct networks n;
    assert_true(networks_parse(STR("192.0.2.0/25, 2001:db8::/33,198.51.100.7"), &n));
    assert_int_equal(n.count, 3);
    struct address in[] = {parsed("192.0.2.0"), parsed("192.0.2.127"), parsed("2001:db8:7fff::"),
                           parsed("198.51.100.7")};
    struct address out[] = {parsed("192.0.2.128"), parsed("192.0.1.255"), parsed("2001:db8:8000::"),
                            parsed("198.51.100.8"), parsed("::1")};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) assert_true(address_in(&in[i], &n));
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) assert_false(address_in(&out[i], &n));
}

static void zero_bits_is_everybody_of_the_family(void **state) {
    (void)state;
    struct networks n;
    assert_true(networks_parse(STR("0.0.0.0/0"), &n));
    struct address four = parsed("203.0.113.9");
    struct address six = parsed("2001:db8::1");
    assert_true(address_in(&four, &n));
    assert_false(address_in(&six, &n));
}

static void bad_networks_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "192.0.2.0/33", "192.0.2.0/-1", "192.0.2.0/", "x", "192.0.2.0/8/8", ",", "192.0.2.0/2x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct networks n;
        assert_false(networks_parse(str_of(texts[i]), &n));
    }
}

static void an_endpoint_is_written_as_it_was_read(void **state) {
    (void)state;
    static const char *const texts[] = {"127.0.0.1:8080", "[::1]:0", "0.0.0.0:65535"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sockaddr_storage s;
        char out[ADDRESS_TEXT_BYTES];
        assert_true(endpoint_parse(str_of(texts[i]), &s));
        endpoint_format(&s, out);
        assert_string_equal(out, texts[i]);
    }
    static const char *const bad[] = {"",  "8080",  "127.0.0.1",    "127.0.0.1:65536", "::1:80",
                                      ":", "[::1]", "127.0.0.1:-1", "127.0.0.1:x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sockaddr_storage s;
        assert_false(endpoint_parse(str_of(bad[i]), &s));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_written_as_it_was_read),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(loopback_is_known_in_both_families),
        cmocka_unit_test(mapped_addresses_are_of_ipv4),
        cmocka_unit_test(a_proxy_may_add_the_port),
        cmocka_unit_test(networks_hold_just_their_addresses),
        cmocka_unit_test(zero_bits_is_everybody_of_the_family),
        cmocka_unit_test(bad_networks_are_refused),
        cmocka_unit_test(an_endpoint_is_written_as_it_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
