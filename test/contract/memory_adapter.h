/*
 * memory_adapter: the hot store in memory, for the contract suites of queues and seats.
 */
#ifndef ADMITONE_TEST_CONTRACT_MEMORY_ADAPTER_H
#define ADMITONE_TEST_CONTRACT_MEMORY_ADAPTER_H

#include "hot/memory.h"
#include "queue_suite.h"

static inline struct queues *open_memory(void **fixture) {
    struct memory *m = memory_new();
    *fixture = m;
    return memory_queues(m);
}

static inline struct seats *seats_of_memory(void *fixture) {
    return memory_seats(fixture);
}

static inline void close_memory(void *fixture) {
    memory_free(fixture);
}

static const struct queue_adapter memory_adapter = {
    .open = open_memory, .seats = seats_of_memory, .close = close_memory};

#endif
