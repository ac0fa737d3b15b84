#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct {
    enum err e;
    const char *symbol;
    const char *code;
    int status;
    const char *title;
} rows[] = {
#define ROW(symbol, code, status, title) {ERR_##symbol, #symbol, code, status, title},
    ERR_MAP(ROW)
#undef ROW
};

#define ROWS (sizeof rows / sizeof rows[0])

static void each_error_has_its_own_rows_code_status_and_title(void **state) {
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        assert_true(str_eq(err_code(rows[i].e), str_of(rows[i].code)));
        assert_int_equal(err_status(rows[i].e), rows[i].status);
        assert_true(str_eq(err_title(rows[i].e), str_of(rows[i].title)));
    }
}

static void success_is_zero_so_that_an_error_is_true(void **state) {
    (void)state;
    assert_int_equal(ERR_OK, 0);
    assert_int_equal(err_status(ERR_OK), 200);
}

static void a_code_is_its_symbol_in_lower_case_and_used_once(void **state) {
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        assert_true(str_eq_nocase(str_of(rows[i].symbol), err_code(rows[i].e)));
        for (const char *c = rows[i].code; *c != '\0'; c++) assert_false(*c >= 'A' && *c <= 'Z');
        for (size_t k = 0; k < i; k++) assert_string_not_equal(rows[i].code, rows[k].code);
    }
}

static void every_error_answers_with_an_error_status_and_a_plain_title(void **state) {
    (void)state;
    for (size_t i = 1; i < ROWS; i++) {
        assert_in_range(rows[i].status, 400, 599);
        assert_true(err_title(rows[i].e).len > 0);
        assert_true(str_is_text(err_title(rows[i].e)));
    }
}

static void an_unknown_outcome_is_not_reported_as_unchanged(void **state) {
    (void)state;
    assert_string_equal(err_effect(ERR_HOT_UNAVAILABLE), "Nothing was changed.");
    assert_string_not_equal(err_effect(ERR_HOT_UNKNOWN), "Nothing was changed.");
    assert_string_not_equal(err_effect(ERR_LEDGER_UNKNOWN), "Nothing was changed.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_has_its_own_rows_code_status_and_title),
        cmocka_unit_test(success_is_zero_so_that_an_error_is_true),
        cmocka_unit_test(a_code_is_its_symbol_in_lower_case_and_used_once),
        cmocka_unit_test(every_error_answers_with_an_error_status_and_a_plain_title),
        cmocka_unit_test(an_unknown_outcome_is_not_reported_as_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
