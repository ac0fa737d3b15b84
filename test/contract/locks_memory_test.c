/* The named locks' contract, in memory. Every thread is a worker, with a loop and a mailbox. */
#include <assert.h>

#include "hot/memory_locks.h"
#include "locks_suite.h"
#include "run/mailbox.h"

static _Thread_local uv_loop_t loop;
static _Thread_local struct mailbox mailbox;

static struct locks *open_memory(void **fixture, uint32_t epoch) {
    struct memory_locks *m = memory_locks_new(epoch);
    *fixture = m;
    return memory_locks_port(m);
}

static void close_memory(void *fixture) {
    memory_locks_free(fixture);
}

static void thread_begins(void) {
    int failed = uv_loop_init(&loop);
    assert(failed == 0);
    mailbox_init(&mailbox, &loop);
    mailbox_set_mine(&mailbox);
}

static void thread_ends(void) {
    mailbox_close(&mailbox);
    uv_run(&loop, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&loop);
    assert(busy == 0);
    mailbox_deinit(&mailbox);
    mailbox_set_mine(NULL);
}

static void run_callbacks(void) {
    uv_run(&loop, UV_RUN_NOWAIT);
}

int main(void) {
    static const struct locks_adapter memory = {.open = open_memory,
                                                .close = close_memory,
                                                .thread_begins = thread_begins,
                                                .thread_ends = thread_ends,
                                                .run_callbacks = run_callbacks};
    return locks_suite_run(&memory) + locks_model_suite_run(&memory);
}
