/* The thread that waits for signals. */
#include "cli/signals.h"

#include <assert.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

static const struct {
    const char *name;
    int number;
    bool stops;
} handled[] = {
    {"SIGTERM", SIGTERM, true},  {"SIGINT", SIGINT, true},    {"SIGHUP", SIGHUP, false},
    {"SIGUSR1", SIGUSR1, false}, {"SIGUSR2", SIGUSR2, false},
};
#define HANDLED_COUNT (sizeof handled / sizeof handled[0])

static void ask_to_stop(struct signals *s, const char *name) {
    if (!atomic_load(&s->serving)) {
        log_info(msg("stopping before the start was complete"), kv("signal", name));
        _exit(0);
    }
    log_info(msg("stopping"), kv("signal", name));
    atomic_fetch_add(&s->asked, 1);
    uv_async_send(&s->wake);
}

static void signals_take(struct signals *s, int number) {
    for (size_t i = 0; i < HANDLED_COUNT; i++) {
        if (handled[i].number != number) continue;
        if (handled[i].stops)
            ask_to_stop(s, handled[i].name);
        else
            log_info(msg("ignoring a signal that has no effect"), kv("signal", handled[i].name));
    }
}

static void fill_set(sigset_t *set) {
    sigemptyset(set);
    for (size_t i = 0; i < HANDLED_COUNT; i++) sigaddset(set, handled[i].number);
}

static void *signals_run(void *arg) {
    struct signals *s = arg;
    sigset_t set;
    fill_set(&set);
    for (;;) {
        int number = 0;
        int failed = sigwait(&set, &number);
        assert(failed == 0);
        if (atomic_load(&s->ended)) return NULL;
        signals_take(s, number);
    }
}

bool signals_start(struct signals *s) {
    sigset_t set;
    fill_set(&set);
    /* Threads inherit this: no other one ever gets them. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return thread_start(&s->thread, "signals", THREAD_ALONE, signals_run, s) == 0;
}

static void signals_on_wake(uv_async_t *wake) {
    struct signals *s = wake->data;
    for (int asked = atomic_exchange(&s->asked, 0); asked > 0; asked--) s->on_stop(s->to);
}

void signals_serve(struct signals *s, uv_loop_t *loop, void (*on_stop)(void *to), void *to) {
    s->on_stop = on_stop;
    s->to = to;
    s->wake.data = s;
    uv_async_init(loop, &s->wake, signals_on_wake);
    atomic_store(&s->serving, true);
}

void signals_end(struct signals *s) {
    atomic_store(&s->ended, true);
    pthread_kill(s->thread, SIGUSR1); /* wakes it, no more: it sees that it has ended */
    pthread_join(s->thread, NULL);
    uv_close((uv_handle_t *)&s->wake, NULL);
}
