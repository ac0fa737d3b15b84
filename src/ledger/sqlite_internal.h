/*
 * sqlite_internal: what the files of the SQLite ledger show each other.
 *
 *   sqlite.c            opens and closes it; the table of operations
 *   sqlite_writer.c     the thread that commits batches
 *   sqlite_readers.c    the threads that answer questions
 *   inbox.c             the bounded queue of records for these threads
 *   sqlite_wal.c        checkpoints
 *   sqlite_guard.c      recognises a ledger that has lost its WAL
 *   sqlite_retention.c  removes old rows
 *   sqlite_events.c     the records of events, in SQL
 *   sqlite_queue.c      the records of queues, in SQL
 *   sqlite_hold.c       the records that make reservations, in SQL
 *   sqlite_outcome.c    the records that confirm and end them
 *   sqlite_buyers.c     how many seats each user has
 *   sqlite_reservations.c  the rows of reservations
 *   sqlite_facts.c      the rows of facts
 *   sqlite_idempotency.c   the keys of requests
 *   sqlite_requests.c   asynchronous requests
 *   sqlite_audit.c      the audit table
 *   sqlite_schema.c     the tables
 *   sqlite_epoch.c      the epoch: the number of this start
 *   sqlite_check.c      the invariants, as queries
 */
#ifndef ADMITONE_LEDGER_SQLITE_INTERNAL_H
#define ADMITONE_LEDGER_SQLITE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "ledger/inbox.h"
#include "ledger/record.h"
#include "ledger/sqlite.h"
#include "ledger/sqlite_db.h"

/* --- sqlite_schema.c --- */

/* Before anything is written: the file is new, or a ledger that this program can bring up to date.
 */
enum err schema_accept(struct db *db, const char *path, struct buf *why);
/* Applies the migrations that are missing, each in a separate transaction. */
enum err schema_migrate(struct db *db, const char *path, int64_t now_ms, struct buf *why);
/* For callers that may not change it: the schema must be this program's. */
enum err schema_expect(struct db *db, const char *path, struct buf *why);

/* --- sqlite_epoch.c --- */

struct epoch_opening {
    uint32_t epoch;
    struct ledger_generation generation;
};

/* The next epoch, durable when this returns; the facts of this connection count from it. The next
 * generation too, if it is asked for or the file is found to be a restored copy. */
enum err epoch_begin(struct db *db, const char *path, bool new_generation,
                     struct epoch_opening *out, struct buf *why);

/* --- sqlite_events.c: inside the writer's transaction; SQLITE_OK also when refused --- */

int event_put_apply(struct db *db, struct ledger_event_put *put);
int event_delete_apply(struct db *db, struct ledger_event_delete *del);
/* Every event that is not deleted; inside a transaction. */
int events_read(struct db *db, const struct ledger_reader *reader);
int events_news(struct db *db, struct ledger_events_read *read);

/* --- sqlite_queue.c: likewise --- */

int enter_apply(struct db *db, struct ledger_enter *enter);
int enter_void_apply(struct db *db, struct ledger_enter_void *undo);
int admit_apply(struct db *db, struct ledger_admit *admit);
int end_apply(struct db *db, struct ledger_end *end);
int entry_get(struct db *db, struct ledger_entry_get *get);
int waiting_read(struct db *db, struct ledger_waiting_read *read);
/* Of events that are not deleted: their highest numbers, and every live entry. */
int queues_read(struct db *db, const struct ledger_reader *reader);
int totals_read(struct db *db, const struct ledger_reader *reader);
int entries_read(struct db *db, const struct ledger_reader *reader);

/* --- sqlite_hold.c: likewise --- */

#define HELD_SECTIONS_MAX 16

/* The sections in which holds of the open transaction were made, and how many seats of each: the
 * rows of the sections are updated only by held_sections_write. Zeroes when the transaction begins.
 * A record that reads or changes `sections`, `events` or other rows that a hold depends on calls
 * that first. */
struct held_sections {
    size_t count;
    struct section_change {
        int64_t section_key;
        int64_t event_key;
        int64_t capacity;
        bool ledger_decides; /* it is of mode `seat` */
        int64_t max_per_user;
        int64_t rehold_ms;
        int64_t max_holds_per_stay;
        int64_t taken; /* as its row says */
        int64_t added;
    } sections[HELD_SECTIONS_MAX];
};

int held_sections_write(struct db *db, struct held_sections *t);
int hold_apply(struct db *db, struct held_sections *t, struct ledger_hold *hold);
int hold_void_apply(struct db *db, struct ledger_hold_void *undo);
int seats_read(struct db *db, struct ledger_seats_read *read);

/* --- sqlite_buyers.c: the writer's own --- */

struct buyer_change;

/* How many seats each user has in each event, including the changes of the open transaction. */
struct buyers {
    struct map all; /* of struct buyer: each has seats, or changes in the open transaction */
    struct buyer_change *changes; /* of the open transaction */
    size_t change_count;
    size_t change_cap;
};

struct buyer_seats {
    int64_t live; /* HELD or CONFIRMED */
    int64_t held; /* of these */
};

void buyers_init(struct buyers *b);
void buyers_deinit(struct buyers *b);
/* Counts the live reservations of the file; `b` is empty before. SQLITE_CORRUPT when a row is not
 * valid. */
int buyers_load(struct buyers *b, struct db *db);
struct buyer_seats buyers_count(const struct buyers *b, int64_t event_key, str user);
/* SQLITE_CORRUPT, and no change, when the user would have fewer than 0 seats. */
int buyers_change(struct buyers *b, int64_t event_key, str user, struct buyer_seats by);
/* Keeps or undoes the changes of the transaction; one of the two is called at the end of every
 * transaction. */
void buyers_commit(struct buyers *b);
void buyers_rollback(struct buyers *b);

/* --- sqlite_outcome.c: likewise --- */

int confirm_apply(struct db *db, struct ledger_confirm *confirm);
int cancel_apply(struct db *db, struct ledger_cancel *cancel);
int expire_apply(struct db *db, struct ledger_expire *expire);
/* Cancels the holds of a user who leaves; sqlite_queue.c ends the entry. */
int end_cancels_apply(struct db *db, struct ledger_end *end);

/* --- sqlite_reservations.c --- */

struct cell cell_uuid(const struct uuid *id);
/* *out stays NULL when there is no such reservation, or it is VOID; mem_free frees it. */
int reservation_read(struct db *db, const struct uuid *id, struct reservation **out);
int reservation_get(struct db *db, struct ledger_reservation_get *get);
/* Every live one. */
int reservations_read(struct db *db, const struct ledger_reader *reader);
/* Adds a row to the table of facts: the reservation got the status `kind` at the time `now_ms`. */
int fact_add(struct db *db, const struct reservation *r, enum reservation_status kind,
             int64_t now_ms);

/* --- sqlite_facts.c --- */

int facts_read(struct db *db, struct ledger_facts_read *read);
int sales_read(struct db *db, struct ledger_sales_read *read);
int facts_page(struct db *db, struct ledger_facts_page *page);
int sales_load(struct db *db, const struct ledger_reader *reader);
/* A fact that the event is sold out since then, if no seat of it is left. It is not relayed. */
int sold_out_add(struct db *db, int64_t event_key, int64_t at_ms);
/* When a new fact counts as relayed: at once, or not yet. */
struct cell fact_relayed(const struct db *db, int64_t at_ms);
int facts_relayed_apply(struct db *db, struct ledger_facts_relayed *relayed);

/* --- sqlite_idempotency.c --- */

/* *decided: the key was used before. Then *result is OK, and `i` names the reservation, or
 * IDEMPOTENCY_MISMATCH. `i` may be NULL. */
int idempotency_judge(struct db *db, struct idempotency *i, enum err *result, bool *decided);
/* `i` may be NULL. */
int idempotency_add(struct db *db, const struct idempotency *i, const struct reservation *r);
int idempotency_get(struct db *db, struct ledger_idempotency_get *get);

/* --- sqlite_requests.c: the first two inside the writer's transaction --- */

/* Counts the undecided requests of the file, and finds the last number. */
int requests_count_open(struct db *db);
int request_put_apply(struct db *db, struct ledger_request_put *put);
int request_decide_apply(struct db *db, struct ledger_request_decide *decide);
int requests_get(struct db *db, struct ledger_requests_get *get);
int requests_read(struct db *db, struct ledger_requests_read *read);
int requests_open(struct db *db, struct ledger_requests_open *open);

/* --- sqlite_audit.c --- */

/* *id is the row's number, which is also the version of the event that the change has made. */
int audit_add(struct db *db, const struct audit_note *note, int64_t now_ms, int64_t *id);
/* For an act that is not a version of an event. NULL: adds nothing. */
int audit_add_act(struct db *db, const struct audit_note *note, int64_t now_ms);
int audit_page(struct db *db, struct ledger_audit_page *page);

/* --- sqlite_check.c --- */

int check_all(struct db *db, bool server_runs, int64_t now_ms,
              void (*on_finding)(void *, const struct ledger_finding *), void *to);

/* --- sqlite_guard.c --- */

struct sqlite_guard {
    char *path; /* of the ledger; NULL: there is no guard */
    int mark;   /* the open file LEDGER.open; -1: it cannot be written */
};

/* Before the ledger is opened, to read or to write. LEDGER_FAILED: it has lost its WAL. */
enum err sqlite_guard_check(const char *path, struct buf *why);
/* When the WAL has a frame. */
void sqlite_guard_begin(struct sqlite_guard *g, const char *path);
/* After a checkpoint, which changes the database file. One thread at a time. */
void sqlite_guard_note(struct sqlite_guard *g);
/* Before the last checkpoint of a clean close. */
void sqlite_guard_end(struct sqlite_guard *g);

/* --- sqlite_wal.c --- */

struct wal {
    struct db db; /* the side thread's */
    struct db *writer_db;
    struct sqlite_guard guard; /* begun by wal_start, ended by wal_stop */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool wanted;                /* under lock */
    bool stopping;              /* under lock */
    pthread_mutex_t checkpoint; /* held while a checkpoint runs */
    int64_t frame_bytes;
    int64_t frames_side;    /* not checkpointed: from here on the side thread checkpoints */
    int64_t frames_max;     /* in the WAL: from here on the writer checkpoints and restarts it */
    int64_t frames_retry;   /* the writer's: not again before the WAL has this many */
    _Atomic int64_t frames; /* in the WAL since it was last restarted */
    _Atomic int64_t folded; /* of these, how many are in the database file too */
    _Atomic bool failing;   /* so that a failure is logged once */
};

/* Before the writer's thread starts; `writer_db` is its connection, which has written to the WAL.
 */
enum err wal_start(struct wal *wal, const char *path, struct db *writer_db, int64_t wal_bytes_max,
                   struct buf *why);
/* The writer calls this between two transactions. */
void wal_upkeep(struct wal *wal);
void wal_stop(struct wal *wal);
/* The last checkpoint: copies all frames to the database file and empties the WAL. When the side
 * thread has stopped. */
void wal_finish(struct db *db);
int64_t wal_bytes_unfolded(struct wal *wal);

/* --- sqlite_retention.c --- */

#define RETENTION_KEPT_MAX 256

struct retention {
    int64_t audit_days;
    int64_t ended_days;
    int64_t interval_ns;
    int64_t pause_ns;    /* after a round that removed nothing */
    int64_t due_idle_ns; /* steady: when the next batch may run if no record waits for the writer */
    int64_t due_busy_ns; /* the same if records wait */
    size_t table;        /* which table this round is at */
    sqlite3_value *cursor[2]; /* the last row that was looked at; NULL: none yet */
    uint64_t round_removed;
    int64_t round_version;            /* removals up to this audit id have had a whole round */
    int64_t kept[RETENTION_KEPT_MAX]; /* events removed, of which rows must still stay */
    size_t kept_count;
};

void retention_init(struct retention *r, const struct sqlite_ledger_options *o);
void retention_deinit(struct retention *r);
/* One bounded batch: removes a few hundred rows at most, in one transaction. */
void retention_step(struct retention *r, struct db *db);

/* --- sqlite_writer.c --- */

struct writer {
    struct db db;
    struct buyers buyers; /* which the connection knows */
    struct epoch_opening opening;
    struct inbox inbox;
    pthread_t thread;
    struct wal wal;
    struct retention retention;
    struct ledger_record **batch;
    size_t batch_max;
    _Atomic int64_t depth;         /* submitted and not yet handed back */
    _Atomic int64_t open_requests; /* undecided, as committed */
    _Atomic bool writable;
};

enum err writer_start(struct writer *w, const struct sqlite_ledger_options *o, struct buf *why);
/* Writes all records, hands them back, and closes. */
void writer_stop(struct writer *w);
enum err writer_submit(struct writer *w, struct ledger_record *r);

/* --- sqlite_readers.c --- */

#define READERS 2

struct reader {
    struct db db;
    struct inbox *inbox;
    pthread_t thread;
};

struct readers {
    struct inbox inbox;
    struct reader each[READERS];
};

enum err readers_start(struct readers *rs, const struct sqlite_ledger_options *o, struct buf *why);
void readers_stop(struct readers *rs);
enum err readers_ask(struct readers *rs, struct ledger_record *r);

#endif
