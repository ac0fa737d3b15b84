/* The ledger's contract, on PostgreSQL; the part with a model is a separate program. */
#include "ledger_postgres.h"
#include "ledger_suite.h"

int main(void) {
    static const struct ledger_adapter postgres = {
        .open = postgres_open, .tables = postgres_tables, .writes_beside = true};
    int failed = ledger_suite_run(&postgres) + ledger_queue_suite_run(&postgres) +
                 ledger_hold_suite_run(&postgres) + ledger_reservation_suite_run(&postgres) +
                 ledger_nodes_suite_run(&postgres) + ledger_facts_suite_run(&postgres) +
                 ledger_requests_suite_run(&postgres);
    postgres_drop();
    return failed;
}
