/* The ledger's contract under concurrent records, against a model, on PostgreSQL. */
#include "ledger_postgres.h"
#include "ledger_suite.h"

int main(void) {
    static const struct ledger_adapter postgres = {.open = postgres_open, .writes_beside = true};
    int failed = ledger_reservation_model_suite_run(&postgres);
    postgres_drop();
    return failed;
}
