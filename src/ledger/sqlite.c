/* Opens and closes the SQLite ledger; routes each record to the writer or the readers. */
#include "ledger/sqlite.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/sqlite_internal.h"

struct sqlite_ledger {
    struct ledger port;
    struct sqlite_ledger_options options; /* with the defaults set */
    char *path;
    struct writer writer; /* unused when read_only */
    struct readers readers;
};

static struct sqlite_ledger *sqlite_of(struct ledger *l) {
    return CONTAINER_OF(l, struct sqlite_ledger, port);
}

static enum err sqlite_submit(struct ledger *l, struct ledger_record *r) {
    assert(!sqlite_of(l)->options.read_only);
    return writer_submit(&sqlite_of(l)->writer, r);
}

static enum err sqlite_ask(struct ledger *l, struct ledger_record *r) {
    return readers_ask(&sqlite_of(l)->readers, r);
}

/* Calls that read much use a private connection, for one call. */
static enum err sqlite_open_reader(struct sqlite_ledger *s, struct db *db) {
    struct buf why = {0};
    enum err failed = ERR_OK;
    if (db_open(db, s->path, DB_READ, &why) != SQLITE_OK) {
        log_error(msg("cannot read the whole ledger; the start or audit that needs it fails"),
                  kv_str("error", buf_str(&why)));
        failed = ERR_LEDGER_FAILED;
    }
    buf_deinit(&why);
    return failed;
}

static enum err sqlite_close_reader(struct db *db, int rc) {
    if (rc != SQLITE_OK)
        log_error(msg("cannot read the whole ledger; the start or audit that needs it fails"),
                  kv("error", sqlite3_errstr(rc)));
    db_close(db);
    return rc == SQLITE_OK ? ERR_OK : ERR_LEDGER_FAILED;
}

static enum err sqlite_load(struct ledger *l, const struct ledger_reader *reader) {
    struct db db;
    enum err failed = sqlite_open_reader(sqlite_of(l), &db);
    if (failed != ERR_OK) return failed;
    int rc = db_exec(&db, "BEGIN");
    if (rc == SQLITE_OK && reader->on_event != NULL) rc = events_read(&db, reader);
    if (rc == SQLITE_OK && reader->on_totals != NULL) rc = totals_read(&db, reader);
    if (rc == SQLITE_OK && reader->on_entry != NULL) rc = entries_read(&db, reader);
    if (rc == SQLITE_OK && reader->on_queue != NULL) rc = queues_read(&db, reader);
    if (rc == SQLITE_OK && reader->on_reservation != NULL) rc = reservations_read(&db, reader);
    if (rc == SQLITE_OK && reader->on_sale != NULL) rc = sales_load(&db, reader);
    db_rollback(&db);
    return sqlite_close_reader(&db, rc);
}

static enum err sqlite_check(struct ledger *l, bool server_runs,
                             void (*on_finding)(void *, const struct ledger_finding *), void *to) {
    struct db db;
    enum err failed = sqlite_open_reader(sqlite_of(l), &db);
    if (failed != ERR_OK) return failed;
    return sqlite_close_reader(&db, check_all(&db, server_runs, clock_wall_ms(), on_finding, to));
}

static uint32_t sqlite_epoch(struct ledger *l) {
    return sqlite_of(l)->options.read_only ? 0 : sqlite_of(l)->writer.opening.epoch;
}

static struct ledger_generation sqlite_generation(struct ledger *l) {
    return sqlite_of(l)->writer.opening.generation; /* zeroes when read_only */
}

static void sqlite_health(struct ledger *l, struct ledger_health *out) {
    struct sqlite_ledger *s = sqlite_of(l);
    *out = (struct ledger_health){0};
    if (s->options.read_only) return;
    out->writable = atomic_load(&s->writer.writable);
    out->queue_depth = atomic_load(&s->writer.depth);
    out->open_requests = atomic_load(&s->writer.open_requests);
    out->wal_bytes = wal_bytes_unfolded(&s->writer.wal);
}

static void sqlite_close(struct ledger *l) {
    struct sqlite_ledger *s = sqlite_of(l);
    /* Both doors first, then wait for either. */
    inbox_close(&s->readers.inbox);
    if (!s->options.read_only) writer_stop(&s->writer);
    readers_stop(&s->readers);
    mem_free(s->path);
    mem_free(s);
}

static const struct ledger_ops ops = {
    .submit = sqlite_submit,
    .ask = sqlite_ask,
    .load = sqlite_load,
    .check = sqlite_check,
    .epoch = sqlite_epoch,
    .generation = sqlite_generation,
    .health = sqlite_health,
    .close = sqlite_close,
};

static void sqlite_set_default(int64_t *number, int64_t value) {
    assert(*number >= 0);
    if (*number == 0) *number = value;
}

/* It holds what people bought: a new file is its owner's alone, and SQLite gives its companions
 * the same mode. An existing one is not opened here, for closing it again would drop the locks
 * that this process may have on it. */
static void create_private(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
}

static enum err sqlite_expect_schema(const char *path, struct buf *why) {
    struct db db;
    enum err failed = sqlite_guard_check(path, why);
    if (failed != ERR_OK) return failed;
    if (db_open(&db, path, DB_READ, why) != SQLITE_OK) return ERR_LEDGER_FAILED;
    failed = schema_expect(&db, path, why);
    db_close(&db);
    return failed;
}

enum err sqlite_ledger_open(const struct sqlite_ledger_options *o, struct ledger **out,
                            struct buf *why) {
    struct sqlite_ledger *s = mem_new(sizeof *s);
    s->port.ops = &ops;
    s->options = *o;
    s->options.path = s->path = mem_copy_str(str_of(o->path));
    sqlite_set_default(&s->options.queue_max, 65536);
    sqlite_set_default(&s->options.batch_max, 1024);
    sqlite_set_default(&s->options.asks_max, 65536);
    sqlite_set_default(&s->options.wal_bytes_max, INT64_C(16) << 20);
    sqlite_set_default(&s->options.retention_interval_ms, 2000);
    sqlite_set_default(&s->options.retention_pause_ms, 600000);

    enum err failed = ERR_OK;
    if (o->read_only)
        failed = sqlite_expect_schema(s->path, why);
    else {
        create_private(s->path);
        failed = writer_start(&s->writer, &s->options, why);
    }
    if (failed == ERR_OK) {
        failed = readers_start(&s->readers, &s->options, why);
        if (failed != ERR_OK && !o->read_only) writer_stop(&s->writer);
    }
    if (failed == ERR_OK) {
        *out = &s->port;
        return ERR_OK;
    }
    mem_free(s->path);
    mem_free(s);
    return failed;
}
