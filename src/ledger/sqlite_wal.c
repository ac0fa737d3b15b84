/*
 * The WAL grows with every commit and restarts at its beginning only when all of it is in the
 * database file and no connection reads from it. Checkpoints beside a busy writer copy nearly
 * everything, but the writer is always a few frames ahead, so the WAL would never restart. Hence
 * two parts: a side thread copies most of it, without delaying the writer; above the limit the
 * writer copies the last frames itself, between two transactions, waits a moment for readers to
 * finish, and its next commit writes from the beginning again.
 */
#include <assert.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "ledger/sqlite_internal.h"

#define FRAME_HEADER_BYTES 24
/* How long the writer waits for connections that still read from the WAL. A question takes a few
 * ms; only `admitone audit` may take longer, and then the WAL grows until it is done. Many short
 * attempts: within one, SQLite waits for every reader of a slot, also for those that came later and
 * do not need the old frames, and would wait for ever if they overlap. */
#define RESTART_ATTEMPTS 20
#define RESTART_ATTEMPT_MS 5

/* After each commit on the writer's connection: how many frames the WAL now has. */
static int on_commit(void *arg, sqlite3 *handle, const char *schema, int frames) {
    struct wal *wal = arg;
    (void)handle;
    (void)schema;
    if (frames < atomic_load(&wal->frames)) {
        atomic_store(&wal->folded, 0);
        wal->frames_retry = wal->frames_max;
    }
    atomic_store(&wal->frames, frames);
    return SQLITE_OK;
}

/* One line when it begins to fail and one when it works again. */
static void note_outcome(struct wal *wal, sqlite3 *handle, int rc) {
    bool fails = rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY;
    bool failed = atomic_exchange(&wal->failing, fails);
    if (fails && !failed)
        log_error(msg("WAL checkpoint failed; the WAL file grows until one succeeds"),
                  kv("error", sqlite3_errmsg(handle)));
    else if (failed && !fails)
        log_info(msg("WAL checkpoints succeed again"));
}

static int fold(struct wal *wal, sqlite3 *handle, int mode) {
    int frames = 0;
    int folded = 0;
    pthread_mutex_lock(&wal->checkpoint);
    int rc = sqlite3_wal_checkpoint_v2(handle, NULL, mode, &frames, &folded);
    sqlite_guard_note(&wal->guard);
    pthread_mutex_unlock(&wal->checkpoint);
    /* The writer may have restarted it since: then none of its frames is known to be folded. */
    if (folded >= 0) atomic_store(&wal->folded, folded <= atomic_load(&wal->frames) ? folded : 0);
    count(COUNT_LEDGER_CHECKPOINTS, 1);
    note_outcome(wal, handle, rc);
    return rc;
}

static void *run_side(void *arg) {
    struct wal *wal = arg;
    pthread_mutex_lock(&wal->lock);
    while (!wal->stopping) {
        if (!wal->wanted) {
            pthread_cond_wait(&wal->wake, &wal->lock);
            continue;
        }
        wal->wanted = false;
        pthread_mutex_unlock(&wal->lock);
        fold(wal, wal->db.handle, SQLITE_CHECKPOINT_PASSIVE);
        pthread_mutex_lock(&wal->lock);
    }
    pthread_mutex_unlock(&wal->lock);
    return NULL;
}

static void wake_side(struct wal *wal) {
    pthread_mutex_lock(&wal->lock);
    wal->wanted = true;
    pthread_cond_signal(&wal->wake);
    pthread_mutex_unlock(&wal->lock);
}

/* On the writer's thread: folds the last frames, so that its next commit restarts the WAL. */
static void restart(struct wal *wal, int64_t frames) {
    sqlite3 *handle = wal->writer_db->handle;
    sqlite3_busy_timeout(handle, RESTART_ATTEMPT_MS);
    int rc = SQLITE_BUSY;
    for (int i = 0; i < RESTART_ATTEMPTS && (rc & 0xff) == SQLITE_BUSY; i++)
        rc = fold(wal, handle, SQLITE_CHECKPOINT_RESTART);
    sqlite3_busy_timeout(handle, DB_BUSY_TIMEOUT_MS);
    /* Should a reader have kept it, then not again after every batch. */
    wal->frames_retry = frames + wal->frames_max / 4 + 1;
}

void wal_upkeep(struct wal *wal) {
    assert(sqlite3_get_autocommit(wal->writer_db->handle));
    int64_t frames = atomic_load(&wal->frames);
    if (frames >= wal->frames_retry)
        restart(wal, frames);
    else if (frames - atomic_load(&wal->folded) >= wal->frames_side)
        wake_side(wal);
}

/* A WAL that a slow reader made large is truncated when it restarts. */
static int limit_file(struct db *db, int64_t bytes) {
    struct buf sql = {0};
    buf_addf(&sql, "PRAGMA journal_size_limit = %lld", (long long)bytes);
    int rc = sqlite3_exec(db->handle, buf_cstr(&sql), NULL, NULL, NULL);
    buf_deinit(&sql);
    return rc;
}

enum err wal_start(struct wal *wal, const char *path, struct db *writer_db, int64_t wal_bytes_max,
                   struct buf *why) {
    *wal = (struct wal){.writer_db = writer_db, .guard.mark = -1};
    int64_t page_bytes = 4096;
    if (db_number_cells(writer_db, &page_bytes, "PRAGMA page_size", NULL, 0) != SQLITE_OK ||
        limit_file(writer_db, wal_bytes_max) != SQLITE_OK) {
        buf_addf(why, "cannot set up %s: %s", path, sqlite3_errmsg(writer_db->handle));
        return ERR_LEDGER_FAILED;
    }
    if (db_open(&wal->db, path, DB_WRITE, why) != SQLITE_OK) return ERR_LEDGER_FAILED;
    wal->frame_bytes = page_bytes + FRAME_HEADER_BYTES;
    wal->frames_max = wal_bytes_max / wal->frame_bytes + 1;
    wal->frames_side = wal->frames_max / 8 + 1;
    wal->frames_retry = wal->frames_max;
    pthread_mutex_init(&wal->lock, NULL);
    pthread_mutex_init(&wal->checkpoint, NULL);
    pthread_cond_init(&wal->wake, NULL);
    sqlite3_wal_hook(writer_db->handle, on_commit, wal);
    sqlite_guard_begin(&wal->guard, path);
    if (thread_start(&wal->thread, "checkpointer", THREAD_ALONE, run_side, wal) == 0) return ERR_OK;
    buf_addf(why, "cannot start the checkpoint thread for %s", path);
    sqlite_guard_end(&wal->guard);
    db_close(&wal->db);
    return ERR_LEDGER_FAILED;
}

void wal_stop(struct wal *wal) {
    pthread_mutex_lock(&wal->lock);
    wal->stopping = true;
    pthread_cond_signal(&wal->wake);
    pthread_mutex_unlock(&wal->lock);
    pthread_join(wal->thread, NULL);
    sqlite_guard_end(&wal->guard);
    db_close(&wal->db);
    pthread_cond_destroy(&wal->wake);
    pthread_mutex_destroy(&wal->checkpoint);
    pthread_mutex_destroy(&wal->lock);
}

void wal_finish(struct db *db) {
    sqlite3_busy_timeout(db->handle, RESTART_ATTEMPT_MS); /* a long audit must not hold up a stop */
    int rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    /* Not lost: what is in the WAL is durable, and the next start reads it. */
    if (rc != SQLITE_OK)
        log_warn(msg("the WAL could not be checkpointed at the end; the next start does it"),
                 kv("error", sqlite3_errmsg(db->handle)));
}

int64_t wal_bytes_unfolded(struct wal *wal) {
    int64_t frames = atomic_load(&wal->frames) - atomic_load(&wal->folded);
    return frames > 0 ? frames * wal->frame_bytes : 0;
}
