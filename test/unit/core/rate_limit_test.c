#include "core/rate_limit.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)
#define T0 (1000 * SECOND)

static struct limit_client at(const char *text) {
    unsigned char bytes[16];
    if (inet_pton(AF_INET, text, bytes) == 1) return limit_client_v4(bytes);
    assert_int_equal(inet_pton(AF_INET6, text, bytes), 1);
    return limit_client_v6(bytes);
}

static struct rate_table *table_of(struct limit_settings s) {
    if (s.block_factor == 0) s.block_factor = 4;
    struct limit_rules rules = limit_rules_of(&s);
    return rate_table_new(&rules, 64, 64, 42, true);
}

/* One place a second, three at once. */
static int begin(void **state) {
    *state = table_of((struct limit_settings){.places_per_minute = 60,
                                              .places_burst = 3,
                                              .requests_per_second = 10,
                                              .requests_burst = 2});
    return 0;
}

static int end(void **state) {
    rate_table_free(*state);
    return 0;
}

static struct limit_verdict take(struct rate_table *t, const char *from, enum limit_kind kind,
                                 int64_t units, int64_t now_ns) {
    struct limit_client c = at(from);
    return rate_table_take(t, &c, kind, units, now_ns);
}

static int64_t place(struct rate_table *t, const char *from, int64_t now_ns) {
    return take(t, from, LIMIT_PLACES, 1, now_ns).wait_ns;
}

static void a_burst_is_let_in_and_then_the_rate_and_the_wait_is_exact(void **state) {
    struct rate_table *t = *state;
    for (int i = 0; i < 3; i++) assert_int_equal(place(t, "192.0.2.1", T0), 0);
    assert_int_equal(place(t, "192.0.2.1", T0), SECOND);
    assert_int_equal(place(t, "192.0.2.1", T0 + SECOND - 1), 1);
    assert_int_equal(place(t, "192.0.2.1", T0 + SECOND), 0);
    assert_int_equal(place(t, "192.0.2.1", T0 + SECOND), SECOND);
    int64_t in = 0;
    for (int64_t now_ns = T0 + SECOND; now_ns < T0 + 61 * SECOND; now_ns += SECOND / 7)
        in += place(t, "192.0.2.1", now_ns) == 0;
    assert_int_equal(in, 59); /* which begins with an empty bucket */
    for (int i = 0; i < 3; i++) assert_int_equal(place(t, "192.0.2.1", T0 + 1000 * SECOND), 0);
    assert_int_not_equal(place(t, "192.0.2.1", T0 + 1000 * SECOND), 0);
}

static void addresses_of_a_block_share_its_bucket(void **state) {
    struct rate_table *t = *state;
    char from[32];
    for (int i = 0; i < 12; i++) {
        snprintf(from, sizeof from, "192.0.2.%d", i);
        assert_int_equal(place(t, from, T0), 0);
    }
    struct limit_verdict v = take(t, "192.0.2.99", LIMIT_PLACES, 1, T0);
    assert_int_equal(v.wait_ns, SECOND / 4);
    assert_int_equal(v.by, LIMIT_BLOCK);
    assert_int_equal(place(t, "192.0.3.1", T0), 0);
    assert_int_equal(place(t, "192.0.2.99", T0 + SECOND / 4), 0);
}

static void a_client_with_ipv6_is_its_64_and_its_block_the_56(void **state) {
    struct rate_table *t = *state;
    const char *const same[] = {"2001:db8::1", "2001:db8::2", "2001:db8::ffff:ffff:ffff:ffff"};
    for (int i = 0; i < 3; i++) assert_int_equal(place(t, same[i], T0), 0);
    assert_int_equal(take(t, "2001:db8::3", LIMIT_PLACES, 1, T0).by, LIMIT_ADDRESS);
    for (int i = 1; i <= 9; i++) {
        char from[32];
        snprintf(from, sizeof from, "2001:db8:0:%x::1", i * 28);
        assert_int_equal(place(t, from, T0), 0);
    }
    assert_int_equal(take(t, "2001:db8:0:1::1", LIMIT_PLACES, 1, T0).by, LIMIT_BLOCK);
    assert_int_equal(place(t, "2001:db8:0:100::1", T0), 0);
}

/* 0.1.2.3 as a number is also the beginning of an address of IPv6. */
static void families_do_not_share_buckets(void **state) {
    struct rate_table *t = *state;
    for (int i = 0; i < 3; i++) assert_int_equal(place(t, "0.1.2.3", T0), 0);
    assert_int_not_equal(place(t, "0.1.2.3", T0), 0);
    assert_int_equal(place(t, "0:0:1:203::", T0), 0);
}

static void kinds_are_counted_apart_and_a_read_is_a_tenth_of_a_request(void **state) {
    struct rate_table *t = *state;
    for (int i = 0; i < 3; i++) place(t, "192.0.2.1", T0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(take(t, "192.0.2.1", LIMIT_REQUESTS, LIMIT_READ_UNITS, T0).wait_ns, 0);
    assert_int_equal(take(t, "192.0.2.1", LIMIT_REQUESTS, LIMIT_READ_UNITS, T0).wait_ns,
                     SECOND / 100);
    assert_int_equal(take(t, "192.0.2.1", LIMIT_REQUESTS, LIMIT_REQUEST_UNITS, T0).wait_ns,
                     SECOND / 10);
}

static void what_is_given_back_can_be_taken_again_and_no_more_than_that(void **state) {
    struct rate_table *t = *state;
    struct limit_client c = at("192.0.2.1");
    for (int i = 0; i < 3; i++) place(t, "192.0.2.1", T0);
    rate_table_give_back(t, &c, LIMIT_PLACES, 1, T0);
    assert_int_equal(place(t, "192.0.2.1", T0), 0);
    assert_int_equal(place(t, "192.0.2.1", T0), SECOND);
    rate_table_give_back(t, &c, LIMIT_PLACES, 3, T0 + 3600 * SECOND);
    for (int i = 0; i < 3; i++) assert_int_equal(place(t, "192.0.2.1", T0 + 3600 * SECOND), 0);
    assert_int_not_equal(place(t, "192.0.2.1", T0 + 3600 * SECOND), 0);
}

static void zero_is_no_limit_of_that_kind(void **state) {
    (void)state;
    struct rate_table *t = table_of(
        (struct limit_settings){.places_burst = 1, .requests_per_second = 1, .requests_burst = 1});
    for (int i = 0; i < 1000; i++) assert_int_equal(place(t, "192.0.2.1", T0), 0);
    take(t, "192.0.2.1", LIMIT_REQUESTS, LIMIT_REQUEST_UNITS, T0);
    assert_int_not_equal(take(t, "192.0.2.1", LIMIT_REQUESTS, 1, T0).wait_ns, 0);
    rate_table_free(t);
    struct limit_settings off = {.block_factor = 1};
    struct limit_rules rules = limit_rules_of(&off);
    assert_false(limit_rules_any(&rules));
}

static void the_largest_settings_do_not_overflow(void **state) {
    (void)state;
    struct rate_table *t = table_of((struct limit_settings){.places_per_minute = 1,
                                                            .places_burst = 1000000,
                                                            .requests_per_second = 100000,
                                                            .requests_burst = 1000000,
                                                            .block_factor = 256});
    int64_t in = 0;
    while (place(t, "192.0.2.1", T0) == 0) in++;
    assert_int_equal(in, 1000000);
    assert_int_equal(place(t, "192.0.2.1", T0), 60 * SECOND);
    assert_int_equal(take(t, "192.0.2.1", LIMIT_REQUESTS, LIMIT_REQUEST_UNITS, T0).wait_ns, 0);
    rate_table_free(t);
}

static void a_refused_block_is_reported_once_a_minute(void **state) {
    struct rate_table *t = *state;
    for (int i = 0; i < 3; i++) place(t, "192.0.2.1", T0);
    for (int i = 0; i < 3; i++) place(t, "192.0.2.2", T0);
    assert_true(take(t, "192.0.2.1", LIMIT_PLACES, 1, T0).begins);
    assert_false(take(t, "192.0.2.1", LIMIT_PLACES, 1, T0).begins);
    assert_false(take(t, "192.0.2.2", LIMIT_PLACES, 1, T0).begins);
    for (int i = 0; i < 3; i++) place(t, "192.0.2.1", T0 + LIMIT_REPORT_NS);
    assert_true(take(t, "192.0.2.1", LIMIT_PLACES, 1, T0 + LIMIT_REPORT_NS).begins);
}

/* 1,000,000 addresses of as many blocks, in a table for 512 of each. */
static void a_flood_of_addresses_does_not_free_those_that_are_refused(void **state) {
    struct rate_table *t = *state;
    for (int i = 0; i < 3; i++) assert_int_equal(place(t, "192.0.2.1", T0), 0);
    for (uint32_t i = 0; i < 1000000; i++) {
        unsigned char bytes[16] = {0x20, 1, 0xd, 0xb8};
        memcpy(bytes + 4, &i, 3);
        struct limit_client c = limit_client_v6(bytes);
        assert_int_equal(rate_table_take(t, &c, LIMIT_PLACES, 1, T0).wait_ns, 0);
    }
    assert_int_equal(place(t, "192.0.2.1", T0), SECOND);
}

/* ---- sharing ---- */

static struct limit_spend spends[1000];

static void what_is_taken_is_shared_when_it_is_a_part_of_the_capacity(void **state) {
    (void)state;
    struct rate_table *t = table_of(
        (struct limit_settings){.places_per_minute = 60, .places_burst = 32, .block_factor = 1});
    for (int i = 0; i < 3; i++) place(t, "192.0.2.1", T0);
    assert_int_equal(rate_table_collect(t, spends, 1000), 0);
    place(t, "192.0.2.1", T0 + 500 * SECOND); /* however long ago the others were taken */
    assert_int_equal(rate_table_collect(t, spends, 1), 0); /* no room */
    assert_int_equal(rate_table_collect(t, spends, 1000), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spends[i].kind, LIMIT_PLACES);
        assert_int_equal(spends[i].spent_ns, 4 * SECOND);
    }
    assert_int_not_equal(spends[0].key.bits, spends[1].key.bits);
    assert_int_equal(rate_table_collect(t, spends, 1000), 0);
    rate_table_free(t);
}

static void all_that_is_due_is_shared_even_if_much_is_at_once(void **state) {
    struct rate_table *t = *state;
    int64_t shared = 0;
    char from[32];
    for (int i = 0; i < 100; i++) {
        snprintf(from, sizeof from, "192.0.%d.1", i);
        place(t, from, T0);
    }
    for (int i = 0; i < 100; i++) {
        snprintf(from, sizeof from, "192.0.%d.1", i);
        place(t, from, T0);
        size_t count = rate_table_collect(t, spends, 1000);
        for (size_t k = 0; k < count; k++)
            if (spends[k].key.bits == 32) shared += spends[k].spent_ns;
    }
    assert_int_equal(shared, 200 * SECOND);
}

static void a_debt_of_all_nodes_counts_with_what_was_taken_since(void **state) {
    struct rate_table *t = *state;
    struct limit_client c = at("192.0.2.1");
    const struct limit_key *key = &c.of[LIMIT_ADDRESS];
    place(t, "192.0.2.1", T0);
    rate_table_collect(t, spends, 1000);
    place(t, "192.0.2.1", T0);
    rate_table_learn(t, key, LIMIT_PLACES, 4 * SECOND, T0);  /* ours, and three of others */
    assert_int_equal(place(t, "192.0.2.1", T0), 3 * SECOND); /* 4 + 1 + 1 - 3 */
    rate_table_learn(t, key, LIMIT_PLACES, 0, T0);           /* lost there: not forgotten here */
    assert_int_equal(place(t, "192.0.2.1", T0), 3 * SECOND);
    rate_table_learn(t, key, LIMIT_PLACES, INT64_MAX, T0);
    assert_true(place(t, "192.0.2.1", T0) <= LIMIT_DEBT_NS_MAX);
    struct limit_client unknown = at("198.51.100.1");
    rate_table_learn(t, &unknown.of[LIMIT_ADDRESS], LIMIT_PLACES, 9 * SECOND, T0);
    assert_int_equal(place(t, "198.51.100.1", T0), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_burst_is_let_in_and_then_the_rate_and_the_wait_is_exact),
        TEST(addresses_of_a_block_share_its_bucket),
        TEST(a_client_with_ipv6_is_its_64_and_its_block_the_56),
        TEST(families_do_not_share_buckets),
        TEST(kinds_are_counted_apart_and_a_read_is_a_tenth_of_a_request),
        TEST(what_is_given_back_can_be_taken_again_and_no_more_than_that),
        TEST(zero_is_no_limit_of_that_kind),
        TEST(the_largest_settings_do_not_overflow),
        TEST(a_refused_block_is_reported_once_a_minute),
        TEST(a_flood_of_addresses_does_not_free_those_that_are_refused),
        TEST(what_is_taken_is_shared_when_it_is_a_part_of_the_capacity),
        TEST(all_that_is_due_is_shared_even_if_much_is_at_once),
        TEST(a_debt_of_all_nodes_counts_with_what_was_taken_since),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
