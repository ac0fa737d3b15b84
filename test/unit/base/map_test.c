#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "splitmix.h"

static uint64_t random_state;

static int values[8];

static void an_empty_map_finds_and_removes_nothing(void **state) {
    (void)state;
    struct map m;
    map_init(&m);
    size_t at = 0;
    assert_null(map_get(&m, STR("a")));
    assert_null(map_remove(&m, STR("a")));
    assert_null(map_next(&m, &at));
    map_deinit(&m);
    assert_null(map_get(&m, STR("a")));
    map_deinit(&m);
}

static void put_returns_what_it_replaces_and_remove_what_it_took(void **state) {
    (void)state;
    struct map m;
    map_init(&m);
    assert_null(map_put(&m, STR("a"), &values[0]));
    assert_ptr_equal(map_put(&m, STR("a"), &values[1]), &values[0]);
    assert_int_equal(m.count, 1);
    assert_ptr_equal(map_get(&m, STR("a")), &values[1]);
    assert_ptr_equal(map_remove(&m, STR("a")), &values[1]);
    assert_null(map_remove(&m, STR("a")));
    assert_null(map_get(&m, STR("a")));
    assert_int_equal(m.count, 0);
    map_deinit(&m);
}

static void keys_are_all_their_bytes_and_copied(void **state) {
    (void)state;
    struct map m;
    map_init(&m);
    char key[] = "abcdefgh1";
    map_put(&m, STR(key), &values[0]);
    key[8] = '2';
    map_put(&m, STR(key), &values[1]);
    map_put(&m, STR(""), &values[2]);
    map_put(&m, STR("\0"), &values[3]);
    map_put(&m, STR("\0\0"), &values[4]);
    map_put(&m, STR("abcdefgh"), &values[5]);
    assert_int_equal(m.count, 6);
    assert_ptr_equal(map_get(&m, STR("abcdefgh1")), &values[0]);
    assert_ptr_equal(map_get(&m, STR("abcdefgh2")), &values[1]);
    assert_ptr_equal(map_get(&m, (str){NULL, 0}), &values[2]);
    assert_ptr_equal(map_get(&m, STR("\0")), &values[3]);
    assert_ptr_equal(map_get(&m, STR("\0\0")), &values[4]);
    assert_ptr_equal(map_get(&m, STR("abcdefgh")), &values[5]);
    assert_null(map_get(&m, STR("abcdefg")));
    map_deinit(&m);
}

static void next_visits_every_value_once(void **state) {
    (void)state;
    enum { MANY = 1000 };
    static int many[MANY];
    int seen[MANY] = {0};
    struct map m;
    map_init(&m);
    for (int i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        map_put(&m, str_of(key), &many[i]);
    }
    size_t at = 0;
    for (int *value; (value = map_next(&m, &at)) != NULL;) seen[value - many]++;
    for (int i = 0; i < MANY; i++) assert_int_equal(seen[i], 1);
    assert_null(map_next(&m, &at));
    map_deinit(&m);
}

static void two_maps_hash_the_same_keys_differently(void **state) {
    (void)state;
    struct map a;
    struct map b;
    map_init(&a);
    map_init(&b);
    assert_int_not_equal(a.seed, b.seed);
    for (int i = 0; i < 500; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        map_put(&a, str_of(key), (char *)values + i % 8);
        map_put(&b, str_of(key), (char *)values + i % 8);
    }
    assert_int_equal(a.index.cap, b.index.cap);
    assert_memory_not_equal(a.index.slots, b.index.slots, a.index.cap * sizeof *a.index.slots);
    map_deinit(&a);
    map_deinit(&b);
}

/* The first eight bytes of a key as the map mixes them. Should the map hash otherwise some day, the
 * keys below are merely two keys. */
static uint64_t mixed(uint64_t seed, uint64_t len, uint64_t word) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(seed ^ len ^ word ^ 0x9e3779b97f4a7c15U) * 0xd6e8feb86659fd93U;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static void keys_of_equal_hash_are_still_two_keys(void **state) {
    (void)state;
    struct map m;
    map_init(&m);
    uint64_t a[2] = {1, 0};
    uint64_t b[2] = {2, mixed(m.seed, sizeof a, 1) ^ mixed(m.seed, sizeof b, 2)};
    str key_a = {(char *)a, sizeof a};
    str key_b = {(char *)b, sizeof b};
    map_put(&m, key_a, &values[0]);
    assert_null(map_get(&m, key_b));
    assert_null(map_put(&m, key_b, &values[1]));
    assert_ptr_equal(map_get(&m, key_a), &values[0]);
    assert_ptr_equal(map_remove(&m, key_a), &values[0]);
    assert_ptr_equal(map_get(&m, key_b), &values[1]);
    map_deinit(&m);
}

/* The model: one place per possible key. Few keys, so that they meet often. */
#define KEYS_MAX 3000

struct model {
    void *value[KEYS_MAX];
    size_t count;
};

/* Keys of lengths 1 to 23, several of which share their first eight bytes. */
static str key_of(size_t n, char out[24]) {
    size_t len = (size_t)snprintf(out, 24, "%s%zu", n % 3 == 0 ? "CONCERT/" : "", n);
    while (len < n % 23 + 1) out[len++] = 'x';
    return (str){out, len};
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, %zu keys, operation %d: %s", (unsigned long long)seed, keys,      \
                     operation, #condition);                                                       \
    } while (0)

static void run_history(uint64_t seed, size_t keys, int operations) {
    static struct model model;
    static char targets[KEYS_MAX];
    model = (struct model){0};
    random_state = seed;
    struct map m;
    map_init(&m);
    m.seed = next_random(&random_state); /* the history is the same whenever it is run */
    for (int operation = 0; operation < operations; operation++) {
        /* Phases that mostly fill and mostly empty, so that the map is full and sparse in turn. */
        uint64_t puts_of_8 = operation / 5000 % 2 == 0 ? 5 : 2;
        size_t n = next_random(&random_state) % keys;
        uint64_t dice = next_random(&random_state) % 8;
        char text[24];
        str key = key_of(n, text);
        if (dice < puts_of_8) {
            void *value = &targets[next_random(&random_state) % KEYS_MAX];
            CHECK(map_put(&m, key, value) == model.value[n]);
            model.count += model.value[n] == NULL;
            model.value[n] = value;
        } else if (dice < 7) {
            CHECK(map_remove(&m, key) == model.value[n]);
            model.count -= model.value[n] != NULL;
            model.value[n] = NULL;
        } else {
            CHECK(map_get(&m, key) == model.value[n]);
        }
        CHECK(m.count == model.count);
        CHECK(m.index.count == m.count && m.count <= m.cap);
        if (operation % 500 != 0) continue;
        for (size_t i = 0; i < keys; i++) CHECK(map_get(&m, key_of(i, text)) == model.value[i]);
        size_t visited = 0;
        size_t at = 0;
        while (map_next(&m, &at) != NULL) visited++;
        CHECK(visited == model.count);
    }
    int operation = operations;
    for (size_t i = 0; i < keys; i++) {
        char text[24];
        CHECK(map_remove(&m, key_of(i, text)) == model.value[i]);
    }
    CHECK(m.count == 0);
    map_deinit(&m);
}

static void a_random_history_gives_what_a_simple_model_gives(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        run_history(seed, 10, 10000);
        run_history(seed, 100, 20000);
        run_history(seed, KEYS_MAX, 40000);
    }
    run_history((uint64_t)clock_wall_ms(), 300, 40000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_and_removes_nothing),
        cmocka_unit_test(put_returns_what_it_replaces_and_remove_what_it_took),
        cmocka_unit_test(keys_are_all_their_bytes_and_copied),
        cmocka_unit_test(keys_of_equal_hash_are_still_two_keys),
        cmocka_unit_test(next_visits_every_value_once),
        cmocka_unit_test(two_maps_hash_the_same_keys_differently),
        cmocka_unit_test(a_random_history_gives_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
