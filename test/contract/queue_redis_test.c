/* The waiting rooms' contract, in a real Redis. */
#include "redis_adapter.h"

int main(void) {
    return queue_suite_run(&redis_adapter) + queue_threads_suite_run(&redis_adapter) +
           queue_model_suite_run(&redis_adapter);
}
