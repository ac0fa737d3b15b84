/*
 * sync_shim: sync_vfs inside the real program, by LD_PRELOAD. Environment:
 *   SYNC_SHIM_LOG=FILE   appends "<steady ns> wal|db" when a sync has ended; without it the shim
 *                        does nothing at all
 *   SYNC_SHIM_HOLD=FILE  while this file exists, syncs wait
 *   SYNC_SHIM_FAIL=FILE  while this file exists, writes to the database and the WAL fail as on a
 *                        full disk
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sync_vfs.h"

static int log_file = -1;
static const char *hold;
static const char *fail;

static int exists(const char *path) {
    return path != NULL && access(path, F_OK) == 0;
}

static int before_write(void *to, enum sync_file file) {
    (void)to;
    return file != SYNC_FILE_OTHER && exists(fail) ? SQLITE_FULL : SQLITE_OK;
}

static int before_sync(void *to, enum sync_file file) {
    (void)to;
    while (file != SYNC_FILE_OTHER && exists(hold)) usleep(1000);
    return SQLITE_OK;
}

static void after_sync(void *to, enum sync_file file, int64_t begin_ns, int64_t end_ns) {
    (void)to;
    (void)begin_ns;
    if (file == SYNC_FILE_OTHER) return;
    char line[40];
    int len = snprintf(line, sizeof line, "%lld %s\n", (long long)end_ns,
                       file == SYNC_FILE_WAL ? "wal" : "db");
    if (write(log_file, line, (size_t)len) != len) abort();
}

__attribute__((constructor)) static void register_shim(void) {
    static const struct sync_vfs_hooks hooks = {
        .before_write = before_write,
        .before_sync = before_sync,
        .after_sync = after_sync,
    };
    const char *log = getenv("SYNC_SHIM_LOG");
    if (log == NULL) return;
    log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    hold = getenv("SYNC_SHIM_HOLD");
    fail = getenv("SYNC_SHIM_FAIL");
    if (log_file < 0 || sync_vfs_register(&hooks) != SQLITE_OK) abort();
}
