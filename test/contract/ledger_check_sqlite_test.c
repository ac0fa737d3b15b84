/* The violations that the check of an SQLite ledger finds. */
#include <stddef.h>

#include "ledger_check_suite.h"
#include "ledger_raw.h"

static struct harness harness;
static struct ledger *ledger;

static void open_ledger(void) {
    harness_init(&harness);
    ledger = raw_ledger_open(&(struct sqlite_ledger_options){.path = harness.path});
}

static void shut_ledger(void) {
    ledger_close(ledger);
    harness_deinit(&harness);
}

static struct event *store(const struct event *wanted) {
    return harness_store(&harness, ledger, wanted);
}

static struct tables tables(void) {
    return raw_tables(&harness);
}

/* No pragma switches a unique index off. */
static struct tables unruly(void) {
    raw_sql(&harness, "DROP INDEX facts_once");
    return raw_tables_unruly(&harness);
}

static bool check(bool server_runs, void (*on_finding)(void *, const struct ledger_finding *),
                  void *to) {
    return ledger_check(ledger, server_runs, on_finding, to) == ERR_OK;
}

static const struct violation violations[] = {
    {"file_is_sound",
     "PRAGMA writable_schema = ON;"
     "UPDATE sqlite_schema SET sql = replace(sql, 'removed_version', 'id')"
     " WHERE name = 'sections_removed'",
     "sections_removed"},
};

int main(void) {
    return ledger_check_suite_run(&(struct check_adapter){
        .open = open_ledger,
        .shut = shut_ledger,
        .store = store,
        .tables = tables,
        .unruly = unruly,
        .check = check,
        /* Past its time, so it counts as EXPIRED, and the user has entered again. */
        .seed = "UPDATE queue_entries SET status = 'ACTIVE', finished_at = NULL WHERE seq = 7",
        .violations = violations,
        .violation_count = sizeof violations / sizeof *violations,
    });
}
