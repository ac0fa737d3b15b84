#include "net/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct address from(const char *text) {
    struct address a;
    assert_true(address_parse(str_of(text), &a));
    return a;
}

static struct peers *with(int64_t total, int64_t per_address) {
    struct networks proxies;
    assert_true(networks_parse(STR("198.51.100.0/24"), &proxies));
    return peers_new(total, per_address, &proxies);
}

static void the_cap_in_all_counts_everybody(void **state) {
    (void)state;
    struct peers *p = with(3, 0);
    struct address a = from("127.0.0.1");
    struct address b = from("192.0.2.1");
    assert_int_equal(peers_enter(p, &a), ERR_OK);
    assert_int_equal(peers_enter(p, &b), ERR_OK);
    assert_int_equal(peers_enter(p, &b), ERR_OK);
    assert_int_equal(peers_enter(p, &a), ERR_OVERLOADED);
    assert_int_equal(peers_total(p), 3);
    peers_leave(p, &b);
    assert_int_equal(peers_enter(p, &a), ERR_OK);
    peers_leave(p, &a);
    peers_leave(p, &a);
    peers_leave(p, &b);
    peers_free(p);
}

static void the_cap_per_address_spares_loopback_and_proxies(void **state) {
    (void)state;
    struct peers *p = with(100, 2);
    struct address client = from("192.0.2.1");
    struct address other = from("192.0.2.2");
    struct address proxy = from("198.51.100.9");
    struct address local = from("127.0.0.1");
    for (int i = 0; i < 2; i++) assert_int_equal(peers_enter(p, &client), ERR_OK);
    assert_int_equal(peers_enter(p, &client), ERR_TOO_MANY_CONNECTIONS);
    assert_int_equal(peers_enter(p, &other), ERR_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(peers_enter(p, &proxy), ERR_OK);
        assert_int_equal(peers_enter(p, &local), ERR_OK);
    }
    /* A refused connection does not count. */
    assert_int_equal(peers_total(p), 23);
    peers_leave(p, &client);
    assert_int_equal(peers_enter(p, &client), ERR_OK);
    for (int i = 0; i < 2; i++) peers_leave(p, &client);
    peers_leave(p, &other);
    for (int i = 0; i < 10; i++) {
        peers_leave(p, &proxy);
        peers_leave(p, &local);
    }
    peers_free(p); /* asserts that all counts are zero */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cap_in_all_counts_everybody),
        cmocka_unit_test(the_cap_per_address_spares_loopback_and_proxies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
