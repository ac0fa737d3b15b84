/* The ledger's contract, on SQLite. */
#include "ledger_raw.h"
#include "ledger_suite.h"

static struct ledger *open_sqlite(struct harness *h, int64_t queue_max) {
    return raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .queue_max = queue_max});
}

int main(void) {
    static const struct ledger_adapter sqlite = {.open = open_sqlite, .tables = raw_tables};
    return ledger_suite_run(&sqlite) + ledger_queue_suite_run(&sqlite) +
           ledger_hold_suite_run(&sqlite) + ledger_reservation_suite_run(&sqlite) +
           ledger_nodes_suite_run(&sqlite) + ledger_facts_suite_run(&sqlite) +
           ledger_requests_suite_run(&sqlite) + ledger_reservation_model_suite_run(&sqlite);
}
