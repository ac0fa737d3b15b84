/* The waiting rooms' contract, in memory. */
#include "hot/memory.h"
#include "queue_suite.h"

static struct queues *open_memory(void **fixture) {
    struct memory *m = memory_new();
    *fixture = m;
    return memory_queues(m);
}

static void close_memory(void *fixture) {
    memory_free(fixture);
}

int main(void) {
    static const struct queue_adapter memory = {.open = open_memory, .close = close_memory};
    return queue_suite_run(&memory) + queue_threads_suite_run(&memory) +
           queue_model_suite_run(&memory);
}
