#include "run/arena.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>

#include <cmocka.h>

static void memory_is_zeroed_and_aligned_for_anything(void **state) {
    (void)state;
    struct arena a = {0};
    for (size_t size = 0; size < 3000; size += 7) {
        unsigned char *p = arena_new(&a, size);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
    }
    arena_reset(&a);
}

static void blocks_do_not_overlap_whatever_their_sizes(void **state) {
    (void)state;
    enum { BLOCKS = 2000 };
    static unsigned char *blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    struct arena a = {0};
    for (size_t i = 0; i < BLOCKS; i++) {
        /* Mostly small, now and then around a chunk's size and far beyond it. */
        sizes[i] = i % 97 == 0 ? 20000 : i % 31 == 0 ? 3980 + i % 40 : i % 61;
        blocks[i] = arena_new(&a, sizes[i]);
        memset(blocks[i], (int)(i % 251), sizes[i]);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(blocks[i][k], i % 251);
    arena_reset(&a);
}

static void a_chunk_is_used_to_its_last_byte(void **state) {
    (void)state;
    struct arena a = {0};
    arena_new(&a, 16);
    struct arena_chunk *first = a.newest;
    for (int i = 1; i < ARENA_CHUNK_BYTES / 16; i++) memset(arena_new(&a, 16), 0xff, 16);
    assert_ptr_equal(a.newest, first);
    arena_new(&a, 1);
    assert_ptr_not_equal(a.newest, first);
    arena_reset(&a);
}

static void a_copy_is_terminated_and_independent_of_its_source(void **state) {
    (void)state;
    struct arena a = {0};
    char source[] = "abc\0def";
    str copy = arena_copy(&a, STR(source));
    memset(source, 'x', sizeof source);
    assert_int_equal(copy.len, 7);
    assert_memory_equal(copy.at, "abc\0def", 8);
    /* One that fills its last unit of alignment keeps its terminator too. */
    str full = arena_copy(&a, STR("0123456789abcdef"));
    memset(arena_new(&a, 16), 0xff, 16);
    assert_string_equal(full.at, "0123456789abcdef");
    str empty = arena_copy(&a, (str){NULL, 0});
    assert_int_equal(empty.len, 0);
    assert_string_equal(empty.at, "");
    arena_reset(&a);
}

static void a_reset_frees_everything_and_the_arena_serves_again(void **state) {
    (void)state;
    struct arena a = {0};
    arena_reset(&a);
    assert_null(a.newest);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) arena_new(&a, 100);
        arena_reset(&a);
        assert_null(a.newest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned_for_anything),
        cmocka_unit_test(blocks_do_not_overlap_whatever_their_sizes),
        cmocka_unit_test(a_chunk_is_used_to_its_last_byte),
        cmocka_unit_test(a_copy_is_terminated_and_independent_of_its_source),
        cmocka_unit_test(a_reset_frees_everything_and_the_arena_serves_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
