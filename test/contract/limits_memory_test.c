/* The contract of the limits on arrival, in memory. */
#include "hot/memory_limits.h"
#include "limits_suite.h"

static struct limits *open_memory(void **fixture, const struct limit_rules *rules) {
    struct memory_limits *m = memory_limits_new(rules, false);
    *fixture = m;
    return memory_limits_port(m);
}

static void close_memory(void *fixture) {
    memory_limits_free(fixture);
}

static void run_callbacks(void *fixture) {
    (void)fixture;
}

int main(void) {
    static const struct limits_adapter memory = {
        .open = open_memory, .close = close_memory, .run_callbacks = run_callbacks};
    return limits_suite_run(&memory);
}
