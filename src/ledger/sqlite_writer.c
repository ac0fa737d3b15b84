/*
 * The writer: takes the records that have been submitted, applies them in one transaction, and
 * hands them back after the commit. A batch ends in one of three ways: committed; failed as a
 * whole, when the disk failed; or rolled back and replayed one by one, when a record broke a rule
 * of the tables that it should have been refused for, so that only that one fails.
 */
#include <assert.h>
#include <errno.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "ledger/sqlite_internal.h"
#include "run/mailbox.h"

/* How often a ledger that can't write tries whether it can again. */
#define PROBE_INTERVAL_NS INT64_C(1000000000)
#define PROBE_ROOM_BYTES (512 * 1024)

/* The failure of a transaction, read before the rollback resets it. */
struct failure {
    int rc;
    int system_errno;
    char text[200];
};

static int record_apply(struct db *db, struct held_sections *t, struct ledger_record *r) {
    if (r->kind == LEDGER_HOLD) return hold_apply(db, t, (struct ledger_hold *)r);
    /* These do not use the rows of sections, and often come between holds. */
    bool counts_seats = r->kind != LEDGER_ENTER && r->kind != LEDGER_ADMIT &&
                        r->kind != LEDGER_REQUEST_PUT && r->kind != LEDGER_REQUEST_DECIDE;
    int rc = counts_seats ? held_sections_write(db, t) : SQLITE_OK;
    if (rc != SQLITE_OK) return rc;
    switch (r->kind) {
    case LEDGER_EVENT_PUT:
        ((struct ledger_event_put *)r)->stored = NULL;
        record_undo(r);
        return event_put_apply(db, (struct ledger_event_put *)r);
    case LEDGER_EVENT_DELETE:
        ((struct ledger_event_delete *)r)->version = 0;
        return event_delete_apply(db, (struct ledger_event_delete *)r);
    case LEDGER_ACT:
        return audit_add_act(db, &((struct ledger_act *)r)->note, ((struct ledger_act *)r)->now_ms);
    case LEDGER_ENTER:
        return enter_apply(db, (struct ledger_enter *)r);
    case LEDGER_ENTER_VOID:
        return enter_void_apply(db, (struct ledger_enter_void *)r);
    case LEDGER_ADMIT:
        return admit_apply(db, (struct ledger_admit *)r);
    case LEDGER_END:
        return end_apply(db, (struct ledger_end *)r);
    case LEDGER_HOLD_VOID:
        return hold_void_apply(db, (struct ledger_hold_void *)r);
    case LEDGER_CONFIRM:
        return confirm_apply(db, (struct ledger_confirm *)r);
    case LEDGER_CANCEL:
        return cancel_apply(db, (struct ledger_cancel *)r);
    case LEDGER_EXPIRE:
        return expire_apply(db, (struct ledger_expire *)r);
    case LEDGER_REQUEST_PUT:
        return request_put_apply(db, (struct ledger_request_put *)r);
    case LEDGER_REQUEST_DECIDE:
        return request_decide_apply(db, (struct ledger_request_decide *)r);
    case LEDGER_FACTS_RELAYED:
        return facts_relayed_apply(db, (struct ledger_facts_relayed *)r);
    default:
        assert(false && "a question was submitted");
        return SQLITE_MISUSE;
    }
}

static bool disk_is_full(const struct failure *f) {
    int primary = f->rc & 0xff;
    return primary == SQLITE_FULL ||
           (primary == SQLITE_IOERR && (f->system_errno == ENOSPC || f->system_errno == EDQUOT));
}

/* Whether the next record would meet the same: the disk, the file, another process's lock. */
static bool writer_concerns_all(const struct failure *f) {
    switch (f->rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PROTOCOL:
    case SQLITE_NOMEM:
        return true;
    default:
        return false;
    }
}

/* The smallest durable write. The user_version has no other use, and setting it writes a page even
 * when it stays the same. */
static int write_something(struct db *db) {
    int rc = db_exec(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK) rc = db_exec(db, "PRAGMA user_version = 1");
    if (rc == SQLITE_OK) rc = db_exec(db, "COMMIT");
    if (rc != SQLITE_OK) db_rollback(db);
    return rc;
}

static void writer_count_requests(struct writer *w) {
    int64_t sum = 0;
    for (int p = 0; p < REQUEST_PARTITIONS; p++) sum += w->db.open_requests[p];
    atomic_store_explicit(&w->open_requests, sum, memory_order_relaxed);
}

/* All of these or none. */
static bool writer_transact(struct writer *w, struct ledger_record **records, size_t count_of,
                            struct failure *f) {
    size_t applied = 0;
    bool committing = false;
    struct held_sections counts = {0};
    int64_t open_before[REQUEST_PARTITIONS];
    memcpy(open_before, w->db.open_requests, sizeof open_before);
    int rc = db_exec(&w->db, "BEGIN IMMEDIATE");
    while (rc == SQLITE_OK && applied < count_of)
        rc = record_apply(&w->db, &counts, records[applied++]);
    if (rc == SQLITE_OK) rc = held_sections_write(&w->db, &counts);
    if (rc == SQLITE_OK) {
        committing = true;
        rc = db_exec(&w->db, "COMMIT");
    }
    if (rc == SQLITE_OK) {
        buyers_commit(&w->buyers);
        writer_count_requests(w);
        return true;
    }

    *f = (struct failure){.rc = rc, .system_errno = sqlite3_system_errno(w->db.handle)};
    /* SQLite has no message for a row that our own code has found corrupt. */
    bool is_current = sqlite3_extended_errcode(w->db.handle) == rc;
    str error = str_of(is_current ? sqlite3_errmsg(w->db.handle) : sqlite3_errstr(rc));
    if (error.len >= sizeof f->text) error.len = sizeof f->text - 1;
    str_copy(error, f->text, sizeof f->text);
    db_rollback(&w->db);
    buyers_rollback(&w->buyers);
    memcpy(w->db.open_requests, open_before, sizeof open_before);
    for (size_t i = 0; i < applied; i++) record_undo(records[i]);
    /* A commit whose fsync failed has left whole frames at the WAL's end. No connection sees them
     * now, but if the process died before the next commit, recovery would take them for committed,
     * though the submitters were answered that nothing was changed. Any write overwrites the first
     * of them and so ends the chain; if that fails too, the disk keeps no promise at all. */
    if (committing && (rc & 0xff) == SQLITE_IOERR) write_something(&w->db);
    count(COUNT_LEDGER_BATCH_FAILURES, 1);
    return false;
}

/* One line when writing begins to fail, and one when it works again. */
static void writer_note_writable(struct writer *w, bool writable, const struct failure *f) {
    bool before = atomic_exchange(&w->writable, writable);
    if (before && !writable)
        log_error(msg("the ledger cannot write; changes are refused with 503 until it can"),
                  kv("error", f->text), kv_i64("code", f->rc), kv_i64("errno", f->system_errno));
    else if (!before && writable)
        log_info(msg("the ledger can write again"));
}

static void writer_fail_all(struct writer *w, struct ledger_record **records, size_t count_of,
                            const struct failure *f) {
    writer_note_writable(w, false, f);
    for (size_t i = 0; i < count_of; i++)
        records[i]->result = disk_is_full(f) ? ERR_LEDGER_FULL : ERR_LEDGER_FAILED;
}

static void replay_singly(struct writer *w, struct ledger_record **records, size_t count_of) {
    struct failure f;
    for (size_t i = 0; i < count_of; i++) {
        if (writer_transact(w, &records[i], 1, &f)) {
            writer_note_writable(w, true, NULL);
            count(COUNT_LEDGER_RECORDS, 1);
        } else if (writer_concerns_all(&f)) {
            writer_fail_all(w, records + i, count_of - i, &f);
            return;
        } else {
            records[i]->result = ERR_LEDGER_FAILED;
            log_error(msg("a record could not be written; its request is answered with 503"),
                      kv("record", record_name(records[i])), kv("error", f.text),
                      kv_i64("code", f.rc));
        }
    }
}

static void writer_write_batch(struct writer *w, struct ledger_record **records, size_t count_of) {
    struct failure f;
    int64_t began_ns = clock_steady_ns();
    if (writer_transact(w, records, count_of, &f)) {
        writer_note_writable(w, true, NULL);
        count(COUNT_LEDGER_RECORDS, count_of);
        observe(HISTOGRAM_LEDGER_BATCH_RECORDS, count_of);
        observe(HISTOGRAM_LEDGER_COMMIT_SECONDS, (uint64_t)(clock_steady_ns() - began_ns) / 1000);
    } else if (writer_concerns_all(&f)) {
        writer_fail_all(w, records, count_of, &f);
    } else {
        replay_singly(w, records, count_of);
    }
}

/* A ledger that can't write may get no records, so it finds out by itself when it can again. One
 * page often fits on a disk that is full for everything else, so there must be some room too. */
static void probe(struct writer *w) {
    struct statvfs disk;
    const char *path = sqlite3_db_filename(w->db.handle, "main");
    if (statvfs(path, &disk) == 0 && disk.f_bavail * disk.f_frsize < PROBE_ROOM_BYTES) return;
    if (write_something(&w->db) == SQLITE_OK) writer_note_writable(w, true, NULL);
}

static void *writer_run(void *arg) {
    struct writer *w = arg;
    bool ended = false;
    struct batch_history history = {0};
    while (!ended) {
        bool failing = !atomic_load(&w->writable);
        int64_t until_ns = w->retention.due_idle_ns;
        if (failing) until_ns = clock_steady_ns() + PROBE_INTERVAL_NS;
        size_t taken =
            inbox_take_batch(&w->inbox, &history, w->batch, w->batch_max, until_ns, &ended);
        int64_t began_ns = clock_steady_ns();
        if (taken > 0) {
            writer_write_batch(w, w->batch, taken);
            batch_history_add(&history, taken, clock_steady_ns() - began_ns);
            records_hand_back(w->batch, taken, &w->depth);
        } else if (failing && !ended) {
            probe(w);
        }
        wal_upkeep(&w->wal);
        int64_t due_ns =
            inbox_empty(&w->inbox) ? w->retention.due_idle_ns : w->retention.due_busy_ns;
        if (!ended && clock_steady_ns() >= due_ns) retention_step(&w->retention, &w->db);
    }
    return NULL;
}

static void writer_release(struct writer *w) {
    wal_stop(&w->wal);
    retention_deinit(&w->retention);
    wal_finish(&w->db);
    db_close(&w->db);
    buyers_deinit(&w->buyers);
    inbox_deinit(&w->inbox);
    mem_free(w->batch);
}

static enum err count_live_rows(struct writer *w, const char *path, struct buf *why) {
    w->db.buyers = &w->buyers;
    int rc = buyers_load(&w->buyers, &w->db);
    if (rc == SQLITE_OK) rc = requests_count_open(&w->db);
    if (rc == SQLITE_OK) return ERR_OK;
    buf_addf(why, "cannot count the live reservations in %s: %s; admitone audit tells more", path,
             sqlite3_errstr(rc));
    return ERR_LEDGER_FAILED;
}

enum err writer_start(struct writer *w, const struct sqlite_ledger_options *o, struct buf *why) {
    /* The file is checked before anything is written: another program's database stays as it is. */
    enum err failed = sqlite_guard_check(o->path, why);
    if (failed != ERR_OK) return failed;
    if (db_open(&w->db, o->path, DB_READ, why) != SQLITE_OK) return ERR_LEDGER_FAILED;
    failed = schema_accept(&w->db, o->path, why);
    db_close(&w->db);
    if (failed != ERR_OK) return failed;
    if (db_open(&w->db, o->path, DB_WRITE, why) != SQLITE_OK) return ERR_LEDGER_FAILED;
    w->db.no_relay = o->no_relay;
    buyers_init(&w->buyers);
    failed = schema_migrate(&w->db, o->path, clock_wall_ms(), why);
    if (failed == ERR_OK) failed = count_live_rows(w, o->path, why);
    if (failed == ERR_OK)
        failed = epoch_begin(&w->db, o->path, o->new_generation, &w->opening, why);
    if (failed == ERR_OK) failed = wal_start(&w->wal, o->path, &w->db, o->wal_bytes_max, why);
    if (failed != ERR_OK) {
        buyers_deinit(&w->buyers);
        db_close(&w->db);
        return failed;
    }
    writer_count_requests(w);
    inbox_init(&w->inbox, o->queue_max);
    retention_init(&w->retention, o);
    w->batch_max = (size_t)o->batch_max;
    w->batch = mem_new(w->batch_max * sizeof *w->batch);
    atomic_store(&w->writable, true);
    if (thread_start(&w->thread, "ledger", THREAD_ALONE, writer_run, w) == 0) return ERR_OK;
    buf_addf(why, "cannot start the writer's thread for %s", o->path);
    writer_release(w);
    return ERR_LEDGER_FAILED;
}

void writer_stop(struct writer *w) {
    inbox_close(&w->inbox);
    pthread_join(w->thread, NULL);
    assert(atomic_load(&w->depth) == 0);
    writer_release(w);
}

enum err writer_submit(struct writer *w, struct ledger_record *r) {
    assert(!ledger_kind_is_asked(r->kind));
    /* Counted first: the writer may hand it back before inbox_put returns. */
    atomic_fetch_add(&w->depth, 1);
    enum err refused = inbox_put(&w->inbox, r);
    if (refused != ERR_OK) atomic_fetch_sub(&w->depth, 1);
    return refused;
}
