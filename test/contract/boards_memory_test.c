/* The boards' contract, in memory. */
#include "boards_suite.h"
#include "hot/memory_boards.h"

static struct boards *open_memory(void **fixture) {
    struct memory_boards *m = memory_boards_new();
    *fixture = m;
    return memory_boards_port(m);
}

static void close_memory(void *fixture) {
    memory_boards_free(fixture);
}

int main(void) {
    static const struct boards_adapter memory = {.open = open_memory, .close = close_memory};
    return boards_suite_run(&memory);
}
