#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "splitmix.h"

static uint64_t random_state;

static void assert_first(const struct heap *h, int64_t key, uint64_t value) {
    const struct heap_item *first = heap_first(h);
    assert_non_null(first);
    assert_int_equal(first->key, key);
    assert_int_equal(first->value, value);
}

static void an_empty_heap_has_no_first(void **state) {
    (void)state;
    struct heap h = {0};
    assert_null(heap_first(&h));
    heap_push(&h, 5, 1);
    heap_pop(&h);
    assert_null(heap_first(&h));
    heap_deinit(&h);
    assert_null(heap_first(&h));
    heap_deinit(&h);
}

static void the_first_stays_until_it_is_popped(void **state) {
    (void)state;
    struct heap h = {0};
    heap_push(&h, 7, 1);
    heap_push(&h, 3, 2);
    assert_first(&h, 3, 2);
    assert_first(&h, 3, 2);
    heap_push(&h, INT64_MIN, 3);
    assert_first(&h, INT64_MIN, 3);
    heap_push(&h, INT64_MAX, 4);
    heap_pop(&h);
    heap_pop(&h);
    assert_first(&h, 7, 1);
    heap_pop(&h);
    assert_first(&h, INT64_MAX, 4);
    heap_deinit(&h);
}

static void equal_keys_come_in_order_of_their_numbers(void **state) {
    (void)state;
    struct heap h = {0};
    for (uint64_t i = 0; i < 500; i++) heap_push(&h, 1, i * 7919 % 500);
    for (uint64_t i = 0; i < 500; i++) {
        assert_first(&h, 1, i);
        heap_pop(&h);
    }
    heap_deinit(&h);
}

static bool comes_before(struct heap_item a, struct heap_item b) {
    return a.key != b.key ? a.key < b.key : a.value < b.value;
}

static void a_random_history_gives_what_a_simple_model_gives(void **state) {
    (void)state;
    enum { MOST = 400 };
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct heap_item model[MOST];
        size_t count = 0;
        struct heap h = {0};
        random_state = seed;
        for (int operation = 0; operation < 5000; operation++) {
            /* Phases that mostly fill and mostly empty; few keys, so that they meet. */
            uint64_t pushes_of_8 = operation / 700 % 2 == 0 ? 6 : 2;
            if (count < MOST && next_random(&random_state) % 8 < pushes_of_8) {
                model[count] = (struct heap_item){(int64_t)(next_random(&random_state) % 100) - 50,
                                                  next_random(&random_state) % 1000};
                heap_push(&h, model[count].key, model[count].value);
                count++;
            } else if (count > 0) {
                size_t least = 0;
                for (size_t i = 1; i < count; i++)
                    if (comes_before(model[i], model[least])) least = i;
                assert_first(&h, model[least].key, model[least].value);
                heap_pop(&h);
                model[least] = model[--count];
            }
            assert_int_equal(h.count, count);
        }
        heap_deinit(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_heap_has_no_first),
        cmocka_unit_test(the_first_stays_until_it_is_popped),
        cmocka_unit_test(equal_keys_come_in_order_of_their_numbers),
        cmocka_unit_test(a_random_history_gives_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
