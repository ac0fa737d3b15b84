/* Partitions of asynchronous requests, and how the result of a hold becomes a status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/request.h"

static void every_refusal_is_a_failure_with_a_code_that_fits(void **state) {
    (void)state;
    static const struct {
        enum err result;
        enum request_status status;
    } rows[] = {
        {ERR_OK, REQUEST_SUCCESS},
        {ERR_SOLD_OUT, REQUEST_FAIL_SOLD_OUT},
        {ERR_SEAT_TAKEN, REQUEST_FAIL_ALREADY_RESERVED},
        {ERR_CONFLICT, REQUEST_FAIL_CONFLICT},
        {ERR_LOCK_TIMEOUT, REQUEST_FAIL_CONFLICT},
        {ERR_LOCK_LOST, REQUEST_FAIL_CONFLICT},
        {ERR_NOT_ACTIVE, REQUEST_FAIL_NOT_ACTIVE},
        {ERR_EVENT_NOT_FOUND, REQUEST_FAIL_NOT_FOUND},
        {ERR_SECTION_NOT_FOUND, REQUEST_FAIL_NOT_FOUND},
        {ERR_SEAT_NOT_FOUND, REQUEST_FAIL_NOT_FOUND},
        {ERR_CLOSED, REQUEST_FAIL},
        {ERR_LIMIT_EXCEEDED, REQUEST_FAIL},
        {ERR_SECTION_CLOSED, REQUEST_FAIL},
        {ERR_HOLD_EXPIRED, REQUEST_FAIL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(request_status_of(rows[i].result), rows[i].status);
#define ASSERT_CODE_FITS(symbol, code, status, title)                                              \
    assert_true(sizeof(code) <= REQUEST_REASON_BYTES);                                             \
    assert_int_equal(err_of_code(STR(code)), ERR_##symbol);
    ERR_MAP(ASSERT_CODE_FITS)
#undef ASSERT_CODE_FITS
    assert_int_equal(err_of_code(STR("no code")), ERR_INTERNAL);
}

static void only_results_are_decided(void **state) {
    (void)state;
    for (int s = 0; request_status_words[s].at != NULL; s++) {
        bool is_open = s == REQUEST_PENDING || s == REQUEST_PROCESSING;
        assert_int_equal(request_is_decided((enum request_status)s), !is_open);
    }
}

static void requests_for_the_same_are_in_one_partition_and_others_are_spread(void **state) {
    (void)state;
    bool of_sections[REQUEST_PARTITIONS] = {0};
    bool of_seats[REQUEST_PARTITIONS] = {0};
    for (int64_t section = 1; section <= 200; section++) {
        int any = request_partition(section, NULL, 1);
        assert_in_range(any, 0, REQUEST_PARTITIONS - 1);
        of_sections[any] = true;
        /* Several seats, and any, go by the section; one seat by itself. */
        assert_int_equal(request_partition(section, NULL, 7), any);
        assert_int_equal(request_partition(section, (const uint32_t[]){1, 2}, 2), any);
        uint32_t seat = (uint32_t)section;
        int one = request_partition(1, &seat, 1);
        assert_int_equal(request_partition(1, &seat, 1), one);
        of_seats[one] = true;
    }
    for (int p = 0; p < REQUEST_PARTITIONS; p++) assert_true(of_sections[p] && of_seats[p]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_is_a_failure_with_a_code_that_fits),
        cmocka_unit_test(only_results_are_decided),
        cmocka_unit_test(requests_for_the_same_are_in_one_partition_and_others_are_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
