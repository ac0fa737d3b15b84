/* Starting of threads. */
#include "base/thread.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define NAME_CHARS_MAX 15

void thread_set_name(pthread_t thread, const char *name, int number) {
    char whole[64];
    assert(strlen(name) > 0 && strlen(name) <= NAME_CHARS_MAX);
    if (number == THREAD_ALONE)
        snprintf(whole, sizeof whole, "%s", name);
    else
        snprintf(whole, sizeof whole, "%s %d", name, number);
    whole[NAME_CHARS_MAX] = '\0';
    /* Fails when the thread has ended already, which is fine. */
    pthread_setname_np(thread, whole);
}

int thread_start(pthread_t *thread, const char *name, int number, void *(*run)(void *), void *arg) {
    int failed = pthread_create(thread, NULL, run, arg);
    if (failed == 0) thread_set_name(*thread, name, number);
    return failed;
}
