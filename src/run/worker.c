/* A thread with a loop and a mailbox. */
#include "run/worker.h"

static void run_loop(void *arg) {
    struct worker *w = arg;
    mailbox_set_mine(&w->mailbox);
    uv_run(&w->loop, UV_RUN_DEFAULT);
}

int worker_init(struct worker *w) {
    int failed = uv_loop_init(&w->loop);
    if (failed == 0) mailbox_init(&w->mailbox, &w->loop);
    return failed;
}

int worker_start(struct worker *w) {
    return uv_thread_create(&w->thread, run_loop, w);
}

void worker_stop(struct worker *w) {
    assert(mailbox_mine() == &w->mailbox);
    mailbox_close(&w->mailbox);
}

void worker_join(struct worker *w) {
    uv_thread_join(&w->thread);
    int busy = uv_loop_close(&w->loop);
    assert(busy == 0);
    mailbox_deinit(&w->mailbox);
}
