/*
 * The threads of C11 by those of POSIX, under ThreadSanitizer only. librdkafka uses the former,
 * which TSan of gcc 12 does not know: it crashes in a thread that it did not see begin. In glibc
 * both have the same locks and conditions.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "mtx_t is a pthread_mutex_t");
static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "cnd_t is a pthread_cond_t");
static_assert(sizeof(thrd_t) == sizeof(pthread_t), "thrd_t is a pthread_t");

#if defined(__SANITIZE_THREAD__)

static int result_of(int error) {
    if (error == 0) return thrd_success;
    return error == ETIMEDOUT ? thrd_timedout : thrd_error;
}

struct beginning {
    thrd_start_t run;
    void *arg;
};

static void *begin(void *arg) {
    struct beginning b = *(struct beginning *)arg;
    free(arg);
    return (void *)(intptr_t)b.run(b.arg);
}

int thrd_create(thrd_t *thread, thrd_start_t run, void *arg) {
    struct beginning *b = malloc(sizeof *b);
    if (b == NULL) return thrd_nomem;
    *b = (struct beginning){run, arg};
    int error = pthread_create(thread, NULL, begin, b);
    if (error != 0) free(b);
    return result_of(error);
}

int thrd_join(thrd_t thread, int *result) {
    void *returned = NULL;
    int error = pthread_join(thread, &returned);
    if (result != NULL) *result = (int)(intptr_t)returned;
    return result_of(error);
}

int mtx_init(mtx_t *m, int type) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if ((type & mtx_recursive) != 0)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    int error = pthread_mutex_init((pthread_mutex_t *)m, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return result_of(error);
}

int mtx_lock(mtx_t *m) {
    return result_of(pthread_mutex_lock((pthread_mutex_t *)m));
}

int mtx_unlock(mtx_t *m) {
    return result_of(pthread_mutex_unlock((pthread_mutex_t *)m));
}

void mtx_destroy(mtx_t *m) {
    pthread_mutex_destroy((pthread_mutex_t *)m);
}

int cnd_init(cnd_t *c) {
    return result_of(pthread_cond_init((pthread_cond_t *)c, NULL));
}

int cnd_signal(cnd_t *c) {
    return result_of(pthread_cond_signal((pthread_cond_t *)c));
}

int cnd_broadcast(cnd_t *c) {
    return result_of(pthread_cond_broadcast((pthread_cond_t *)c));
}

int cnd_wait(cnd_t *c, mtx_t *m) {
    return result_of(pthread_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m));
}

int cnd_timedwait(cnd_t *c, mtx_t *m, const struct timespec *until) {
    return result_of(pthread_cond_timedwait((pthread_cond_t *)c, (pthread_mutex_t *)m, until));
}

void cnd_destroy(cnd_t *c) {
    pthread_cond_destroy((pthread_cond_t *)c);
}

#endif
