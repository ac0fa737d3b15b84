#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include "splitmix.h"

#define MANY (3 * POOL_CHUNK)

struct item {
    uint32_t link;
    uint32_t generation;
    uint64_t owner;
};

static void what_is_given_back_is_taken_again_with_what_it_had(void **state) {
    (void)state;
    struct pool p;
    pool_init(&p, sizeof(struct item));
    uint32_t first = pool_take(&p);
    struct item *item = pool_at(&p, first);
    assert_int_not_equal(first, 0);
    assert_int_equal(item->generation, 0);
    item->generation = 7;
    uint32_t second = pool_take(&p);
    assert_int_not_equal(second, first);
    pool_give(&p, first);
    assert_int_equal(pool_take(&p), first);
    assert_int_equal(item->generation, 7);
    pool_deinit(&p);
}

static void no_item_has_two_owners_and_none_moves(void **state) {
    (void)state;
    static uint32_t taken[MANY];
    static struct item *items[MANY];
    size_t count = 0;
    uint64_t random = 1;
    struct pool p;
    pool_init(&p, sizeof(struct item));
    for (uint64_t step = 1; step < 100000; step++) {
        if (count < MANY && next_random(&random) % 5 < 3) {
            taken[count] = pool_take(&p);
            items[count] = pool_at(&p, taken[count]);
            items[count]->owner = taken[count];
            count++;
        } else if (count > 0) {
            size_t i = next_random(&random) % count;
            assert_ptr_equal(pool_at(&p, taken[i]), items[i]);
            assert_int_equal(items[i]->owner, taken[i]);
            items[i]->owner = 0;
            pool_give(&p, taken[i]);
            taken[i] = taken[--count];
            items[i] = items[count];
        }
    }
    assert_true(p.end <= MANY + 1); /* numbers are used again */
    pool_deinit(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_given_back_is_taken_again_with_what_it_had),
        cmocka_unit_test(no_item_has_two_owners_and_none_moves),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
