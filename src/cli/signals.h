/*
 * signals: a thread that takes the signals of operators, from the first moment of the process to
 * its last, whatever the other threads wait for.
 *
 * SIGTERM and SIGINT stop the server: in order once it answers requests; before that at once, with
 * status 0, because no request has been answered yet. SIGHUP, SIGUSR1 and SIGUSR2 are logged and
 * ignored.
 */
#ifndef ADMITONE_CLI_SIGNALS_H
#define ADMITONE_CLI_SIGNALS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

struct signals {
    pthread_t thread;
    uv_async_t wake;
    void (*on_stop)(void *to);
    void *to;
    atomic_bool serving;
    atomic_bool ended;
    _Atomic int asked; /* how many calls of on_stop are due */
};

/* Before any other thread is started. False: no thread could be started. */
bool signals_start(struct signals *s);

/* On the loop's thread: from now on `on_stop` is called there for every SIGTERM and SIGINT. */
void signals_serve(struct signals *s, uv_loop_t *loop, void (*on_stop)(void *to), void *to);

/* On the loop's thread, after signals_serve. Signals that come later have no effect. */
void signals_end(struct signals *s);

#endif
