/* The waiting rooms' contract, in memory. */
#include "hot/memory.h"
#include "queue_suite.h"

static struct queues *open_memory(void **fixture) {
    struct memory *m = memory_new();
    *fixture = m;
    return memory_queues(m);
}

static struct seats *seats_of(void *fixture) {
    return memory_seats(fixture);
}

static void close_memory(void *fixture) {
    memory_free(fixture);
}

int main(void) {
    static const struct queue_adapter memory = {
        .open = open_memory, .seats = seats_of, .close = close_memory};
    return queue_suite_run(&memory) + queue_threads_suite_run(&memory) +
           queue_model_suite_run(&memory);
}
