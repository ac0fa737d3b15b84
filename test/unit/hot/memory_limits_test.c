/* The tables of the limits on arrival: their memory, and many threads. */
#include "hot/memory_limits.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define T0 INT64_C(1000000000000)
#define FLOOD 1000000
#define THREADS 4
#define BURST 20000
/* Far less than a record for each address would need; the machine may use some. */
#define GROWTH_MAX (4 << 20)

static struct memory_limits *limits_of(int64_t burst, bool shares) {
    struct limit_settings s = {.places_per_minute = 1, .places_burst = burst, .block_factor = 1};
    struct limit_rules rules = limit_rules_of(&s);
    return memory_limits_new(&rules, shares);
}

static int64_t resident_bytes(void) {
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %lld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static struct limit_client client_number(uint32_t i) {
    unsigned char bytes[16] = {0x20, 1};
    bytes[4] = (unsigned char)(i >> 16);
    bytes[5] = (unsigned char)(i >> 8);
    bytes[6] = (unsigned char)i;
    return limit_client_v6(bytes);
}

static void flood(struct limits *l, uint32_t first) {
    for (uint32_t i = first; i < first + FLOOD; i++) {
        struct limit_client c = client_number(i);
        assert_int_equal(limits_take(l, &c, LIMIT_PLACES, 1, T0).wait_ns, 0);
    }
}

/* A million addresses use all of the table, and a million others need nothing more. */
static void memory_is_bounded_under_a_million_addresses(void **state) {
    (void)state;
    struct memory_limits *m = limits_of(2, true);
    struct limits *l = memory_limits_port(m);
    unsigned char bytes[4] = {192, 0, 2, 1};
    struct limit_client refused = limit_client_v4(bytes);
    for (int i = 0; i < 2; i++)
        assert_int_equal(limits_take(l, &refused, LIMIT_PLACES, 1, T0).wait_ns, 0);
    flood(l, 0);
    int64_t before = resident_bytes();
    flood(l, FLOOD);
    assert_true(resident_bytes() - before < GROWTH_MAX);
    assert_int_not_equal(limits_take(l, &refused, LIMIT_PLACES, 1, T0).wait_ns, 0);
    memory_limits_free(m);
}

static void a_table_with_room_forgets_no_address(void **state) {
    (void)state;
    struct memory_limits *m = limits_of(1, false);
    struct limits *l = memory_limits_port(m);
    for (uint32_t i = 0; i < 5000; i++) {
        struct limit_client c = client_number(i);
        assert_int_equal(limits_take(l, &c, LIMIT_PLACES, 1, T0).wait_ns, 0);
    }
    for (uint32_t i = 0; i < 5000; i++) {
        struct limit_client c = client_number(i);
        assert_int_not_equal(limits_take(l, &c, LIMIT_PLACES, 1, T0).wait_ns, 0);
    }
    memory_limits_free(m);
}

struct crowd {
    struct memory_limits *limits;
    _Atomic int64_t taken;
};

static void *take_all(void *arg) {
    struct crowd *c = arg;
    unsigned char bytes[4] = {192, 0, 2, 1};
    struct limit_client client = limit_client_v4(bytes);
    struct limits *l = memory_limits_port(c->limits);
    for (int i = 0; i < BURST; i++) {
        if (limits_take(l, &client, LIMIT_PLACES, 1, T0).wait_ns > 0) continue;
        if (i % 16 == 0)
            limits_give_back(l, &client, LIMIT_PLACES, 1, T0);
        else
            atomic_fetch_add(&c->taken, 1);
    }
    return NULL;
}

static void threads_together_take_as_much_as_there_is(void **state) {
    (void)state;
    struct crowd c = {.limits = limits_of(BURST, true)};
    pthread_t threads[THREADS];
    struct limit_spend spends[512];
    int64_t shared = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_all, &c), 0);
    for (int i = 0; i < 1000; i++) {
        size_t count = memory_limits_collect(c.limits, spends, 512);
        for (size_t k = 0; k < count; k++)
            if (spends[k].key.bits == 32) shared += spends[k].spent_ns;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    take_all(&c); /* what was given back last */
    assert_int_equal(c.taken, BURST);
    size_t count = memory_limits_collect(c.limits, spends, 512);
    for (size_t k = 0; k < count; k++)
        if (spends[k].key.bits == 32) shared += spends[k].spent_ns;
    int64_t all = BURST * INT64_C(60000000000);
    assert_true(shared <= all && shared > all - all / LIMIT_SHARE_PART);
    memory_limits_free(c.limits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_bounded_under_a_million_addresses),
        cmocka_unit_test(a_table_with_room_forgets_no_address),
        cmocka_unit_test(threads_together_take_as_much_as_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
