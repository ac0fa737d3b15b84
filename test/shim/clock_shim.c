/*
 * clock_shim: lets a test set the time of day of a process, by LD_PRELOAD. Environment:
 *   CLOCK_SHIM_OFFSET=FILE  8 bytes, a signed number in the machine's byte order: the milliseconds
 *                           that are added to the time of day; without the variable none
 * The file is mapped, so a change takes effect at once, in every process that uses it. The steady
 * clock is not changed. Built without sanitizers, because it is also loaded into Redis.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t none;
static const _Atomic int64_t *offset_ms = &none;

/* Not by dlsym: a sanitizer asks for the time before dlsym can be used. */
static int ask(clockid_t clock, struct timespec *out) {
    return (int)syscall(SYS_clock_gettime, clock, out);
}

static void shift(struct timespec *t) {
    int64_t ms = atomic_load_explicit(offset_ms, memory_order_relaxed);
    int64_t ns = t->tv_nsec + ms % 1000 * 1000000;
    t->tv_sec += ms / 1000 + (ns >= 1000000000) - (ns < 0);
    t->tv_nsec = ns + ((ns < 0) - (ns >= 1000000000)) * 1000000000L;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = ask(clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(out);
    return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec t;
    (void)zone; /* an obsolete argument */
    int result = clock_gettime(CLOCK_REALTIME, &t);
    if (result == 0) *out = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
    return result;
}

time_t time(time_t *out) {
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
    if (out != NULL) *out = t.tv_sec;
    return t.tv_sec;
}

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("CLOCK_SHIM_OFFSET");
    if (path == NULL) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *at = mmap(NULL, sizeof *offset_ms, PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || at == MAP_FAILED) abort();
    offset_ms = at;
    close(file);
}
