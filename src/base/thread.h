/*
 * thread: starts threads with names, which ps, top and perf show.
 */
#ifndef ADMITONE_BASE_THREAD_H
#define ADMITONE_BASE_THREAD_H

#include <pthread.h>

/* For the only thread of its name. */
#define THREAD_ALONE (-1)

/* As pthread_create, with a name: "ledger", or with a number "worker 0". The kernel keeps 15
 * characters. 0, or an errno. */
int thread_start(pthread_t *thread, const char *name, int number, void *(*run)(void *), void *arg);

/* Names a thread that was not started by thread_start. */
void thread_set_name(pthread_t thread, const char *name, int number);

#endif
