/*
 * sync_vfs: SQLite's own file layer with hooks around writes and syncs. Once registered it is the
 * default, so every database that is opened later uses it. Depends only on SQLite, because it is
 * also loaded into the real program (test/shim).
 */
#ifndef ADMITONE_TEST_SYNC_VFS_H
#define ADMITONE_TEST_SYNC_VFS_H

#include <sqlite3.h>
#include <stdint.h>

enum sync_file { SYNC_FILE_DB, SYNC_FILE_WAL, SYNC_FILE_OTHER };

/* Called on the thread that writes or syncs. If `before…` does not return SQLITE_OK, its result is
 * the operation's, which is not executed. Times are of CLOCK_MONOTONIC. */
struct sync_vfs_hooks {
    int (*before_write)(void *to, enum sync_file file);
    void (*after_write)(void *to, enum sync_file file, const void *bytes, int count,
                        int64_t end_ns);
    int (*before_sync)(void *to, enum sync_file file);
    void (*after_sync)(void *to, enum sync_file file, int64_t begin_ns, int64_t end_ns);
    void *to;
};

/* Once per process; `hooks` lives as long as any database is open. 0, or SQLite's error. */
int sync_vfs_register(const struct sync_vfs_hooks *hooks);

int64_t sync_vfs_now_ns(void);

#endif
