#include "core/reservation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/event.h"

static void every_status_and_strategy_has_its_word(void **state) {
    (void)state;
    static const char *const strategies[] = {
        "slot", "lock", "adaptive", "optimistic", "pessimistic", "distributed-lock", "queue"};
    for (int i = 0; i < 7; i++)
        assert_int_equal(word_index(strategy_words, str_of(strategies[i])), i);
    assert_int_equal(word_index(strategy_words, STR("none")), -1);
    assert_int_equal(word_index(strategy_words, STR("distributed-lock")),
                     STRATEGY_DISTRIBUTED_LOCK);
    assert_int_equal(word_index(reservation_status_words, STR("HELD")), RESERVATION_HELD);
    assert_int_equal(word_index(reservation_status_words, STR("CONFIRMED")), RESERVATION_CONFIRMED);
    assert_int_equal(word_index(reservation_status_words, STR("CANCELLED")), RESERVATION_CANCELLED);
    assert_int_equal(word_index(reservation_status_words, STR("EXPIRED")), RESERVATION_EXPIRED);
    assert_int_equal(word_index(reservation_status_words, STR("VOID")), -1);
}

static void only_held_and_confirmed_are_live(void **state) {
    (void)state;
    assert_true(reservation_is_live(RESERVATION_HELD));
    assert_true(reservation_is_live(RESERVATION_CONFIRMED));
    assert_false(reservation_is_live(RESERVATION_CANCELLED));
    assert_false(reservation_is_live(RESERVATION_EXPIRED));
}

static void a_new_one_is_held_and_has_no_times(void **state) {
    (void)state;
    struct reservation *r = reservation_new(3);
    assert_int_equal(r->status, RESERVATION_HELD);
    assert_int_equal(r->seat_count, 3);
    assert_int_equal(r->confirmed_ms, CLOCK_NONE_MS);
    assert_int_equal(r->ended_ms, CLOCK_NONE_MS);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(r->seats[i], 0);
    mem_free(r);
}

static void codes_are_random_and_have_no_letters_that_look_alike(void **state) {
    (void)state;
    char codes[100][CONFIRMATION_CODE_CHARS + 1];
    bool seen[256] = {false};
    for (int i = 0; i < 100; i++) {
        confirmation_code_new(codes[i]);
        assert_int_equal(strlen(codes[i]), CONFIRMATION_CODE_CHARS);
        for (const char *c = codes[i]; *c != '\0'; c++) {
            assert_true((*c >= 'A' && *c <= 'Z') || (*c >= '2' && *c <= '9'));
            assert_true(*c != 'I' && *c != 'O');
            seen[(unsigned char)*c] = true;
        }
        for (int k = 0; k < i; k++) assert_string_not_equal(codes[i], codes[k]);
    }
    int letters = 0;
    for (int c = 0; c < 256; c++) letters += seen[c];
    assert_int_equal(letters, 32); /* one is missing from 1,000 once in 10^12 times */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_and_strategy_has_its_word),
        cmocka_unit_test(only_held_and_confirmed_are_live),
        cmocka_unit_test(a_new_one_is_held_and_has_no_times),
        cmocka_unit_test(codes_are_random_and_have_no_letters_that_look_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
