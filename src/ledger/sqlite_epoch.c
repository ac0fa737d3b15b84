/*
 * The number of this opening for writing, from which fences and fact ids are made, and the
 * generation (port/ledger.h): whether the file is a restored copy is decided here.
 *
 * A restore is recognised in two ways. The ledger knows which file it is in, so a copy is found to
 * be in another one; and a small file beside it, the mark, tells the last epoch and generation that
 * were opened here, so a copy that was written into the same file is found to be older if its epoch
 * is lower. The epoch grows at each opening only: a copy that was made since the last one has the
 * same epoch. The mark also tells when it was written: a mark that was written at another time is a
 * copy itself, and so is the ledger. What looks the same in all of this, as such a copy in the same
 * file and a snapshot of the whole disk do, is not recognised: `admitone ledger new-generation` is
 * for that.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ledger/generation.h"
#include "ledger/sqlite_internal.h"

#define MARK_BYTES_MAX 80

/* ---- the mark ---- */

struct epoch_mark {
    bool exists;
    bool is_copied;
    int64_t generation;
    int64_t epoch;
};

static void epoch_mark_path(const char *path, const char *ending, struct buf *out) {
    buf_addf(out, "%s.generation%s", path, ending);
}

static int64_t epoch_time_ms(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000 + t->tv_nsec / 1000000;
}

/* One that can't be read counts as none. */
static struct epoch_mark epoch_mark_read(const char *path) {
    struct epoch_mark mark = {0};
    struct buf name = {0};
    struct stat about = {0};
    char text[MARK_BYTES_MAX];
    ssize_t got = -1;
    epoch_mark_path(path, "", &name);
    int file = open(buf_cstr(&name), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &about) == 0) got = read(file, text, sizeof text);
    if (file >= 0) close(file);
    buf_deinit(&name);
    str text_read = {text, got > 0 ? (size_t)got : 0};
    str line;
    str generation;
    str epoch;
    int64_t written_ms = 0;
    mark.exists = str_split(&text_read, '\n', &line) && str_split(&line, ' ', &generation) &&
                  str_split(&line, ' ', &epoch) && str_to_i64(generation, &mark.generation) &&
                  str_to_i64(epoch, &mark.epoch) && str_to_i64(line, &written_ms) &&
                  mark.generation > 0 && mark.epoch > 0 && mark.epoch <= EPOCH_MAX;
    mark.is_copied = mark.exists && epoch_time_ms(&about.st_mtim) != written_ms;
    return mark;
}

/* Under another name first, so that no process reads half of it. */
static bool epoch_mark_write(const char *path, const struct epoch_mark *mark, struct buf *why) {
    char text[MARK_BYTES_MAX];
    struct buf draft = {0};
    struct buf name = {0};
    int64_t now_ms = clock_wall_ms();
    struct timespec now = {.tv_sec = now_ms / 1000, .tv_nsec = (long)(now_ms % 1000) * 1000000};
    int len = snprintf(text, sizeof text, "%lld %lld %lld\n", (long long)mark->generation,
                       (long long)mark->epoch, (long long)now_ms);
    epoch_mark_path(path, ".new", &draft);
    epoch_mark_path(path, "", &name);
    int file = open(buf_cstr(&draft), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = file >= 0 && write(file, text, (size_t)len) == len &&
              futimens(file, (struct timespec[]){now, now}) == 0;
    if (file >= 0) ok = close(file) == 0 && ok;
    ok = ok && rename(buf_cstr(&draft), buf_cstr(&name)) == 0;
    if (!ok) buf_addf(why, "cannot write %s: %s", buf_cstr(&draft), strerror(errno));
    buf_deinit(&draft);
    buf_deinit(&name);
    return ok;
}

/* A number that a copy of the file does not have: when the file was created or, where the file
 * system does not tell, its inode; not 0. 0: unknown. */
static int64_t epoch_file_identity(const char *path) {
    struct statx about;
    if (statx(AT_FDCWD, path, 0, STATX_BTIME | STATX_INO, &about) != 0) return 0;
    int64_t number = (int64_t)(about.stx_ino & INT64_MAX);
    if ((about.stx_mask & STATX_BTIME) != 0)
        number = about.stx_btime.tv_sec * 1000000000 + about.stx_btime.tv_nsec;
    return number > 0 ? number : 1;
}

/* ---- the epoch ---- */

/* The rows of the table. 0: there is none yet. */
struct epoch_rows {
    int64_t epoch;
    int64_t generation;
    int64_t first_seq;
    int64_t file;
};

static int epoch_row_read(struct db *db, const char *name, int64_t *number) {
    *number = 0;
    return db_number(db, number, "SELECT number FROM epochs WHERE name = ?1", cell_text(name));
}

static int epoch_row_write(struct db *db, const char *name, int64_t number) {
    if (number == 0) return SQLITE_OK;
    return db_run(db,
                  "INSERT INTO epochs(name, number) VALUES (?1, ?2)"
                  " ON CONFLICT DO UPDATE SET number = excluded.number",
                  cell_text(name), cell_i64(number));
}

static int epoch_rows_read(struct db *db, struct epoch_rows *r) {
    int rc = epoch_row_read(db, "ledger", &r->epoch);
    if (rc == SQLITE_OK) rc = epoch_row_read(db, "generation", &r->generation);
    if (rc == SQLITE_OK) rc = epoch_row_read(db, "first_seq", &r->first_seq);
    if (rc == SQLITE_OK) rc = epoch_row_read(db, "file", &r->file);
    return rc;
}

static int epoch_rows_write(struct db *db, const struct epoch_rows *r) {
    int rc = epoch_row_write(db, "ledger", r->epoch);
    if (rc == SQLITE_OK) rc = epoch_row_write(db, "generation", r->generation);
    if (rc == SQLITE_OK) rc = epoch_row_write(db, "first_seq", r->first_seq);
    if (rc == SQLITE_OK) rc = epoch_row_write(db, "file", r->file);
    return rc;
}

/* How a restore is recognised; NULL: it is the ledger that was open here last. */
static const char *epoch_restored(const struct epoch_rows *rows, const struct epoch_mark *mark,
                                  int64_t file) {
    if (mark->exists && mark->epoch > rows->epoch) return "it is older than when it was last open";
    if (mark->exists && mark->epoch == rows->epoch && mark->generation != rows->generation)
        return "it is not the one that was last open";
    if (mark->is_copied) return "its folder is a copy";
    if (rows->file != 0 && file != 0 && rows->file != file) return "its file is a copy";
    return NULL;
}

/* What the table has from now on. False, and `why`: it has numbers that leave none. */
static bool epoch_rows_next(struct epoch_rows *rows, const struct epoch_mark *mark, int64_t file,
                            bool restored, struct buf *why) {
    if (!generation_makes_sense(rows->generation, rows->first_seq)) {
        buf_add(why, STR("its generation makes no sense"));
        return false;
    }
    /* Also when it is older: fences and facts of the lost time had the higher one. */
    if (mark->exists && mark->epoch > rows->epoch) rows->epoch = mark->epoch;
    if (rows->epoch >= EPOCH_MAX) {
        buf_addf(why, "its epoch is %lld, and %d is the last", (long long)rows->epoch, EPOCH_MAX);
        return false;
    }
    rows->epoch++;
    rows->file = file;
    if (restored) rows->first_seq = (int64_t)generation_first_seq(clock_wall_ms());
    if (restored || rows->generation == 0)
        rows->generation = generation_random((uint32_t)rows->generation);
    return true;
}

enum err epoch_begin(struct db *db, const char *path, bool new_generation,
                     struct epoch_opening *out, struct buf *why) {
    struct epoch_mark mark = epoch_mark_read(path);
    struct epoch_rows rows = {0};
    struct buf reason = {0};
    int64_t file = epoch_file_identity(path);
    const char *restored = NULL;
    bool ok = true;
    int rc = db_exec(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK) rc = epoch_rows_read(db, &rows);
    if (rc == SQLITE_OK) {
        restored = new_generation ? "an operator asked for it" : epoch_restored(&rows, &mark, file);
        ok = epoch_rows_next(&rows, &mark, file, restored != NULL, &reason);
        if (ok) rc = epoch_rows_write(db, &rows);
    }
    if (ok && rc == SQLITE_OK) rc = db_exec(db, "COMMIT");
    if (rc != SQLITE_OK) buf_add(&reason, str_of(sqlite3_errmsg(db->handle)));
    mark.generation = rows.generation;
    mark.epoch = rows.epoch;
    ok = ok && rc == SQLITE_OK && epoch_mark_write(path, &mark, &reason);
    if (!ok) buf_addf(why, "cannot write the next epoch to %s: %s", path, buf_cstr(&reason));
    buf_deinit(&reason);
    if (!ok) {
        db_rollback(db);
        return ERR_LEDGER_FAILED;
    }
    if (restored != NULL) generation_warn(path, restored);
    out->epoch = (uint32_t)rows.epoch;
    out->generation = (struct ledger_generation){.number = (uint32_t)rows.generation,
                                                 .first_seq = (uint64_t)rows.first_seq};
    db->last_fact_id = rows.epoch << EPOCH_COUNT_BITS;
    return ERR_OK;
}
