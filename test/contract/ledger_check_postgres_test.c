/* The violations that the check of a PostgreSQL ledger finds. */
#include <stddef.h>

#include "base/clock.h"
#include "ledger_check_suite.h"
#include "postgres_scratch.h"

static struct scratch scratch;

static void open_scratch(void) {
    scratch_open(&scratch);
}

static void shut_scratch(void) {
    scratch_shut(&scratch);
}

static struct event *store(const struct event *wanted) {
    return scratch_store(&scratch, wanted);
}

static struct tables tables(void) {
    return scratch_tables(&scratch);
}

/* In a transaction that comes to nothing, and the check in it. */
static struct tables unruly(void) {
    return scratch_begin_unruly(&scratch);
}

static void repair(void) {
    pg_rollback(&scratch.db);
}

static bool check(bool server_runs, void (*on_finding)(void *, const struct ledger_finding *),
                  void *to) {
    return pg_check_all(&scratch.db, server_runs, clock_wall_ms(), on_finding, to);
}

static const struct violation violations[] = {
    {"buyer_has_what_is_counted", "UPDATE buyers SET seats = 3", "event 1 user user"},
    {"buyer_has_what_is_counted", "UPDATE buyers SET held = 2", "event 1 user user"},
    {"buyer_has_what_is_counted", "DELETE FROM buyers", "event 1 user user"},
    {"buyer_has_what_is_counted", "INSERT INTO buyers VALUES (1, 'other', 1, 0)",
     "event 1 user other"},
    {"file_is_sound", "ALTER TABLE seats ADD CONSTRAINT high CHECK (seat_no > 0) NOT VALID",
     "constraint high is not validated"},
};

int main(void) {
    return ledger_check_suite_run(&(struct check_adapter){
        .open = open_scratch,
        .shut = shut_scratch,
        .store = store,
        .tables = tables,
        .unruly = unruly,
        .repair = repair,
        .check = check,
        .violations = violations,
        .violation_count = sizeof violations / sizeof *violations,
    });
}
