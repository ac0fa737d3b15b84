/*
 * ledger_retention_suite: tests of a ledger's retention, for every adapter: rows past their
 * retention are removed, all others stay, and no row is left without its parent. The functions
 * declared here are also used by the tests of one adapter.
 */
#ifndef ADMITONE_TEST_CONTRACT_LEDGER_RETENTION_SUITE_H
#define ADMITONE_TEST_CONTRACT_LEDGER_RETENTION_SUITE_H

#include "ledger_harness.h"
#include "ledger_tables.h"

struct retention_adapter {
    /* Opens the ledger that belongs to the harness's folder, with so much time between two looks,
     * and between two rounds of them. */
    struct ledger *(*open)(struct harness *h, int64_t interval_ms, int64_t audit_days,
                           int64_t ended_days);
    /* Those of the ledger that was opened for the harness before. */
    struct tables (*tables)(const struct harness *h);
};

/* The state of a test. */
struct retained {
    struct harness h;
    struct ledger *l; /* NULL until retained_keep */
    struct tables tables;
    struct event *stored; /* CONCERT/1 with sections A and B */
    long long now;
    long long old;    /* 31 days ago */
    long long recent; /* 29 days ago */
};

/* How many tests failed. */
int ledger_retention_suite_run(const struct retention_adapter *adapter);

/* For tests of one adapter, after the suite. Retention does not run while they insert rows. */
int retained_set_up(void **state);
int retained_tear_down(void **state);
#define RETAINED_TEST(name)                                                                        \
    cmocka_unit_test_setup_teardown(name, retained_set_up, retained_tear_down)

/* From now on retention runs; 0 days are for ever. */
void retained_keep(struct retained *f, int64_t audit_days, int64_t ended_days);
int64_t retained_number(const struct retained *f, const char *sql);
void retained_await(struct retained *f, const char *sql, int64_t number);
void retained_await_a_round(struct retained *f);
/* SQL: how many rows are left that belong to CONCERT/1. */
const char *retained_rows_of_the_event(const struct retained *f);
/* Fails the test for a violation. */
void retained_on_finding(void *to, const struct ledger_finding *finding);
void retained_assert_sound(struct retained *f);

#endif
