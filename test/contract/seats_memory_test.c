/* The events' seats' contract, in memory. */
#include "memory_adapter.h"
#include "seats_suite.h"

int main(void) {
    return seats_suite_run(&memory_adapter) + seats_ledger_suite_run(&memory_adapter) +
           seats_stock_suite_run(&memory_adapter) + seats_threads_suite_run(&memory_adapter) +
           seats_model_suite_run(&memory_adapter);
}
