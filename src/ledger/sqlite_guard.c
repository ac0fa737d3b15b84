/*
 * Recognises a ledger that has lost its WAL. The last changes are in the WAL only, and SQLite opens
 * a database without one as if nothing were missing: seats would be sold twice.
 *
 * While the ledger is open there is a file next to it, LEDGER.open, with the ledger's inode and the
 * time of its last change by this program. It is removed before a clean close. If it is there at
 * the start, names this file and the time that the file has, then the WAL must be there too. If the
 * file has changed since, another program has opened it, and SQLite has copied the WAL into it; or
 * it is a restored copy. Either is accepted with a warning.
 *
 * The file is a help and no promise: where it cannot be written, the server runs without it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"

/* A WAL without a frame is as good as none. */
#define WAL_HEADER_BYTES 32
/* Two numbers of 20 digits, the words and the line end. */
#define MARK_BYTES 80

/* What the file says of the ledger. */
struct guard_mark {
    uint64_t inode;
    int64_t changed_ns;
};

static bool guard_look(const char *path, struct guard_mark *mark) {
    struct stat about;
    if (stat(path, &about) != 0) return false;
    mark->inode = about.st_ino;
    mark->changed_ns = (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
    return true;
}

static bool guard_read(const char *mark_path, struct guard_mark *mark) {
    char text[MARK_BYTES + 1] = "";
    int fd = open(mark_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, text, MARK_BYTES);
    close(fd);
    return got > 0 &&
           sscanf(text, "inode %" SCNu64 " changed %" SCNd64, &mark->inode, &mark->changed_ns) == 2;
}

static bool guard_has_wal(const char *path) {
    struct buf wal = {0};
    struct stat about;
    buf_addf(&wal, "%s-wal", path);
    bool has = stat(buf_cstr(&wal), &about) == 0 && about.st_size > WAL_HEADER_BYTES;
    buf_deinit(&wal);
    return has;
}

static enum err guard_judge(const char *path, const char *mark_path, struct buf *why) {
    struct guard_mark mark;
    struct guard_mark now;
    if (!guard_read(mark_path, &mark) || !guard_look(path, &now)) return ERR_OK;
    if (mark.inode == now.inode && guard_has_wal(path)) return ERR_OK;
    if (mark.inode == now.inode && mark.changed_ns == now.changed_ns) {
        buf_addf(why,
                 "the ledger %s was not closed cleanly, and its write-ahead log %s-wal, which has "
                 "the last changes, is missing or empty. Put that file back. If it is lost, "
                 "restore a backup; or remove %s to start without changes that clients were told "
                 "of",
                 path, path, mark_path);
        return ERR_LEDGER_FAILED;
    }
    if (mark.inode == now.inode)
        log_warn(msg("the ledger was not closed cleanly, and another program changed it since"),
                 kv("ledger", path));
    else
        log_warn(msg("the ledger was not closed cleanly, and another file has replaced it since; "
                     "if that is a backup, later changes are gone"),
                 kv("ledger", path));
    return ERR_OK;
}

/* Where links lead to: SQLite keeps the WAL there. */
static char *guard_real_path(const char *path) {
    char *real = realpath(path, NULL);
    if (real == NULL) return NULL;
    char *copy = mem_copy_str(str_of(real));
    free(real);
    return copy;
}

static void guard_mark_path(const char *path, struct buf *out) {
    buf_addf(out, "%s.open", path);
}

enum err sqlite_guard_check(const char *path, struct buf *why) {
    char *real = guard_real_path(path);
    struct buf mark_path = {0};
    if (real == NULL) return ERR_OK; /* it is new, or opening it says what is wrong */
    guard_mark_path(real, &mark_path);
    enum err failed = guard_judge(real, buf_cstr(&mark_path), why);
    buf_deinit(&mark_path);
    mem_free(real);
    return failed;
}

void sqlite_guard_begin(struct sqlite_guard *g, const char *path) {
    struct buf mark_path = {0};
    g->path = guard_real_path(path);
    if (g->path != NULL) {
        guard_mark_path(g->path, &mark_path);
        g->mark = open(buf_cstr(&mark_path), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        buf_deinit(&mark_path);
    }
    if (g->path == NULL || g->mark < 0)
        log_warn(msg("cannot note that the ledger is open; a lost WAL would not be recognised"),
                 kv("ledger", path));
    sqlite_guard_note(g);
}

void sqlite_guard_note(struct sqlite_guard *g) {
    struct guard_mark mark;
    char text[MARK_BYTES];
    if (g->path == NULL || g->mark < 0 || !guard_look(g->path, &mark)) return;
    /* Always of the same length, and in one write. */
    int len = snprintf(text, sizeof text, "inode %020" PRIu64 " changed %020" PRId64 "\n",
                       mark.inode, mark.changed_ns);
    ssize_t ignored = pwrite(g->mark, text, (size_t)len, 0);
    (void)ignored;
}

void sqlite_guard_end(struct sqlite_guard *g) {
    if (g->path != NULL && g->mark >= 0) {
        struct buf mark_path = {0};
        guard_mark_path(g->path, &mark_path);
        unlink(buf_cstr(&mark_path));
        close(g->mark);
        buf_deinit(&mark_path);
    }
    mem_free(g->path);
    *g = (struct sqlite_guard){.mark = -1};
}
