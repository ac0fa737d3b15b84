#include "sync_vfs.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

/* Ours, followed by the real one in the same block: SQLite allocates szOsFile bytes. */
struct shim_file {
    sqlite3_file base;
    enum sync_file kind;
    _Alignas(sqlite3_int64) unsigned char real[]; /* as SQLite aligns */
};

static sqlite3_vfs *real_vfs;
static sqlite3_vfs shim_vfs;
static const struct sync_vfs_hooks *hooks;

int64_t sync_vfs_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static sqlite3_file *real_of(sqlite3_file *f) {
    return (sqlite3_file *)(void *)((struct shim_file *)(void *)f)->real;
}

static enum sync_file kind_of(sqlite3_file *f) {
    return ((struct shim_file *)(void *)f)->kind;
}

static int shim_close(sqlite3_file *f) {
    return real_of(f)->pMethods->xClose(real_of(f));
}

static int shim_read(sqlite3_file *f, void *out, int count, sqlite3_int64 at) {
    return real_of(f)->pMethods->xRead(real_of(f), out, count, at);
}

static int shim_write(sqlite3_file *f, const void *bytes, int count, sqlite3_int64 at) {
    int rc = hooks->before_write == NULL ? SQLITE_OK : hooks->before_write(hooks->to, kind_of(f));
    if (rc == SQLITE_OK) rc = real_of(f)->pMethods->xWrite(real_of(f), bytes, count, at);
    if (rc == SQLITE_OK && hooks->after_write != NULL)
        hooks->after_write(hooks->to, kind_of(f), bytes, count, sync_vfs_now_ns());
    return rc;
}

static int shim_truncate(sqlite3_file *f, sqlite3_int64 size) {
    return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int shim_sync(sqlite3_file *f, int flags) {
    int rc = hooks->before_sync == NULL ? SQLITE_OK : hooks->before_sync(hooks->to, kind_of(f));
    int64_t begin_ns = sync_vfs_now_ns();
    if (rc == SQLITE_OK) rc = real_of(f)->pMethods->xSync(real_of(f), flags);
    if (rc == SQLITE_OK && hooks->after_sync != NULL)
        hooks->after_sync(hooks->to, kind_of(f), begin_ns, sync_vfs_now_ns());
    return rc;
}

static int shim_size(sqlite3_file *f, sqlite3_int64 *size) {
    return real_of(f)->pMethods->xFileSize(real_of(f), size);
}

static int shim_lock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int shim_unlock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int shim_check_lock(sqlite3_file *f, int *out) {
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}

static int shim_control(sqlite3_file *f, int op, void *arg) {
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int shim_sector(sqlite3_file *f) {
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int shim_device(sqlite3_file *f) {
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int shim_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out) {
    return real_of(f)->pMethods->xShmMap(real_of(f), page, size, extend, out);
}

static int shim_shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}

static void shim_shm_barrier(sqlite3_file *f) {
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int shim_shm_unmap(sqlite3_file *f, int remove) {
    return real_of(f)->pMethods->xShmUnmap(real_of(f), remove);
}

/* Version 2: no memory mapping, so that every byte goes through shim_write. */
static const sqlite3_io_methods shim_methods = {
    .iVersion = 2,
    .xClose = shim_close,
    .xRead = shim_read,
    .xWrite = shim_write,
    .xTruncate = shim_truncate,
    .xSync = shim_sync,
    .xFileSize = shim_size,
    .xLock = shim_lock,
    .xUnlock = shim_unlock,
    .xCheckReservedLock = shim_check_lock,
    .xFileControl = shim_control,
    .xSectorSize = shim_sector,
    .xDeviceCharacteristics = shim_device,
    .xShmMap = shim_shm_map,
    .xShmLock = shim_shm_lock,
    .xShmBarrier = shim_shm_barrier,
    .xShmUnmap = shim_shm_unmap,
};

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                     int *flags_out) {
    (void)vfs;
    struct shim_file *file = (struct shim_file *)(void *)f;
    file->base.pMethods = NULL;
    file->kind = (flags & SQLITE_OPEN_WAL)       ? SYNC_FILE_WAL
                 : (flags & SQLITE_OPEN_MAIN_DB) ? SYNC_FILE_DB
                                                 : SYNC_FILE_OTHER;
    int rc = real_vfs->xOpen(real_vfs, name, real_of(f), flags, flags_out);
    if (real_of(f)->pMethods != NULL) file->base.pMethods = &shim_methods;
    return rc;
}

int sync_vfs_register(const struct sync_vfs_hooks *h) {
    assert(real_vfs == NULL);
    hooks = h;
    int rc = sqlite3_initialize();
    if (rc != SQLITE_OK) return rc;
    real_vfs = sqlite3_vfs_find(NULL);
    /* The rest of the layer works through the copied pAppData as it does for the original. */
    shim_vfs = *real_vfs;
    shim_vfs.pNext = NULL;
    shim_vfs.zName = "sync";
    shim_vfs.szOsFile = (int)sizeof(struct shim_file) + real_vfs->szOsFile;
    shim_vfs.xOpen = shim_open;
    return sqlite3_vfs_register(&shim_vfs, 1);
}
