/* The waiting rooms' contract, in memory. */
#include "memory_adapter.h"

int main(void) {
    return queue_suite_run(&memory_adapter) + queue_threads_suite_run(&memory_adapter) +
           queue_model_suite_run(&memory_adapter);
}
