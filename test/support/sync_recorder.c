#include "sync_recorder.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "sync_vfs.h"

struct watched {
    const char *text;
    int64_t written_ns; /* 0: not yet */
    int64_t synced_ns;  /* end of the first sync that began after that; 0: not yet */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool closed;
    int waiting;
    int fail_writes;
    int spared;
    int fail_syncs;
    size_t syncs;
    struct watched watched[SYNC_NEEDLES_MAX];
} recorder = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static int before_write(void *to, enum sync_file file) {
    (void)to;
    pthread_mutex_lock(&recorder.lock);
    int rc = file == SYNC_FILE_OTHER ? SQLITE_OK : recorder.fail_writes;
    if (rc != SQLITE_OK && recorder.spared > 0) {
        recorder.spared--;
        rc = SQLITE_OK;
    }
    pthread_mutex_unlock(&recorder.lock);
    return rc;
}

static void after_write(void *to, enum sync_file file, const void *bytes, int count,
                        int64_t end_ns) {
    (void)to;
    if (file != SYNC_FILE_WAL) return;
    pthread_mutex_lock(&recorder.lock);
    for (size_t i = 0; i < SYNC_NEEDLES_MAX; i++) {
        struct watched *w = &recorder.watched[i];
        if (w->text == NULL || w->written_ns != 0) continue;
        if (memmem(bytes, (size_t)count, w->text, strlen(w->text)) != NULL) w->written_ns = end_ns;
    }
    pthread_mutex_unlock(&recorder.lock);
}

static int before_sync(void *to, enum sync_file file) {
    (void)to;
    if (file != SYNC_FILE_WAL) return SQLITE_OK;
    pthread_mutex_lock(&recorder.lock);
    recorder.waiting++;
    while (recorder.closed) pthread_cond_wait(&recorder.opened, &recorder.lock);
    recorder.waiting--;
    int rc = recorder.fail_syncs;
    pthread_mutex_unlock(&recorder.lock);
    return rc;
}

static void after_sync(void *to, enum sync_file file, int64_t begin_ns, int64_t end_ns) {
    (void)to;
    if (file != SYNC_FILE_WAL) return;
    pthread_mutex_lock(&recorder.lock);
    recorder.syncs++;
    for (size_t i = 0; i < SYNC_NEEDLES_MAX; i++) {
        struct watched *w = &recorder.watched[i];
        if (w->written_ns != 0 && w->synced_ns == 0 && w->written_ns <= begin_ns)
            w->synced_ns = end_ns;
    }
    pthread_mutex_unlock(&recorder.lock);
}

void sync_recorder_register(void) {
    static const struct sync_vfs_hooks hooks = {
        .before_write = before_write,
        .after_write = after_write,
        .before_sync = before_sync,
        .after_sync = after_sync,
    };
    int rc = sync_vfs_register(&hooks);
    assert(rc == SQLITE_OK);
}

void sync_gate_close(void) {
    pthread_mutex_lock(&recorder.lock);
    recorder.closed = true;
    pthread_mutex_unlock(&recorder.lock);
}

void sync_gate_open(void) {
    pthread_mutex_lock(&recorder.lock);
    recorder.closed = false;
    pthread_cond_broadcast(&recorder.opened);
    pthread_mutex_unlock(&recorder.lock);
}

bool sync_gate_waits(void) {
    pthread_mutex_lock(&recorder.lock);
    bool waits = recorder.waiting > 0;
    pthread_mutex_unlock(&recorder.lock);
    return waits;
}

void sync_fail_writes(int rc, int spared) {
    pthread_mutex_lock(&recorder.lock);
    recorder.fail_writes = rc;
    recorder.spared = spared;
    pthread_mutex_unlock(&recorder.lock);
}

void sync_fail_syncs(int rc) {
    pthread_mutex_lock(&recorder.lock);
    recorder.fail_syncs = rc;
    pthread_mutex_unlock(&recorder.lock);
}

void sync_watch(size_t needle, const char *text) {
    assert(needle < SYNC_NEEDLES_MAX);
    pthread_mutex_lock(&recorder.lock);
    recorder.watched[needle] = (struct watched){.text = text};
    pthread_mutex_unlock(&recorder.lock);
}

bool sync_proven(size_t needle, int64_t steady_ns) {
    assert(needle < SYNC_NEEDLES_MAX);
    pthread_mutex_lock(&recorder.lock);
    struct watched w = recorder.watched[needle];
    pthread_mutex_unlock(&recorder.lock);
    return w.synced_ns != 0 && w.synced_ns <= steady_ns;
}

size_t sync_count(void) {
    pthread_mutex_lock(&recorder.lock);
    size_t syncs = recorder.syncs;
    pthread_mutex_unlock(&recorder.lock);
    return syncs;
}
