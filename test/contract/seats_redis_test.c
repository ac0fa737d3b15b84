/* The events' seats' contract, in a real Redis. */
#include "redis_adapter.h"
#include "seats_suite.h"

int main(void) {
    return seats_suite_run(&redis_adapter) + seats_ledger_suite_run(&redis_adapter) +
           seats_stock_suite_run(&redis_adapter) + seats_threads_suite_run(&redis_adapter) +
           seats_model_suite_run(&redis_adapter);
}
