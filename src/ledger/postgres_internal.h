/*
 * postgres_internal: what the files of the PostgreSQL ledger show each other.
 *
 *   postgres.c            opens and closes it; the table of operations
 *   postgres_writer.c     the thread that commits batches
 *   postgres_pool.c       the threads that write `seat` sections, wait for locks, answer questions
 *   postgres_session.c    a thread's connection: reconnecting, retries, a lost COMMIT's outcome
 *   postgres_batch.c      one transaction of several records
 *   postgres_section_counts.c  the counts of sections
 *   postgres_nodes.c      the table of nodes: how far each has followed changes of events
 *   postgres_cluster.c    incarnations of the hot store: epochs, and which node rebuilds it
 *   postgres_epoch.c      the number of an opening, and the generation
 *   postgres_schema.c     migrations; the tables and functions are in postgres_schema_N.sql
 *   postgres_queue.c      the records of queues
 *   postgres_hold.c       the records that make reservations
 *   postgres_outcome.c    the records that confirm and end them
 *   postgres_reservations.c  the rows of reservations
 *   postgres_idempotency.c   looks up the keys of requests
 *   postgres_requests.c   asynchronous requests
 *   postgres_events.c     the records of events
 *   postgres_load.c       all live rows, in one snapshot; the waiting entries of a queue
 *   postgres_facts.c      the rows of facts, and sales
 *   postgres_audit.c      the audit table
 *   postgres_check.c      the invariants, as queries
 *   postgres_retention.c  removes old rows
 *
 * All but postgres_retention.c and postgres_epoch.c is called inside a transaction that the caller
 * began (READ COMMITTED, unless it says otherwise). Functions return whether all went well
 * (postgres_db.h); a refusal is a result in the record, not a failure, and changes nothing.
 *
 * Rows are locked in this order: buyers, reservations, seats, queue entries; the event; sections by
 * id, last, because all holds of an event need them. Code that decides by a section's counts or
 * seats has locked its row (FOR UPDATE), and holds are checked again when they write to it.
 */
#ifndef ADMITONE_LEDGER_POSTGRES_INTERNAL_H
#define ADMITONE_LEDGER_POSTGRES_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "ledger/inbox.h"
#include "ledger/postgres.h"
#include "ledger/postgres_db.h"
#include "ledger/record.h"

/* Advisory locks: the first of two keys; the second is 0, or the event's. */
#define PG_LOCK_MIGRATE 1633971501
#define PG_LOCK_INCARNATION 1633971502
#define PG_LOCK_AUDIT 1633971503
#define PG_LOCK_SOLD_OUT 1633971504
#define PG_LOCK_RETENTION 1633971505
#define PG_LOCK_CLUSTER 1633971506 /* 0: shared by the nodes that run; 1: held while one joins */

/* --- postgres.c --- */

/* For the log: a failure of the connection to the database at that URL. False: the failure is of
 * another kind, and the caller logs it. */
bool pg_note_outage(struct outage *o, const struct pg *db, const char *url);

/* The server of a connection, for the log; empty when it is closed. */
#define PG_SERVER(db)                                                                              \
    kv("host", (db)->handle == NULL ? "" : PQhost((db)->handle)),                                  \
        kv("port", (db)->handle == NULL ? "" : PQport((db)->handle))

/* --- postgres_schema.c --- */

/* Applies the migrations that are missing, under a lock, because several nodes may start at once.
 */
enum err pg_schema_migrate(struct pg *db, int64_t now_ms, struct buf *why);
/* For callers that may not change it: the schema must be this program's. */
enum err pg_schema_expect(struct pg *db, struct buf *why);

/* --- postgres_events.c --- */

/* They lock the event's row, then the rows of its sections in order of id, before they judge. */
bool pg_event_put_apply(struct pg *db, struct ledger_event_put *put);
bool pg_event_delete_apply(struct pg *db, struct ledger_event_delete *del);
/* Calls on_event for every event that is not deleted. */
bool pg_events_load(struct pg *db, const struct ledger_reader *reader);
bool pg_events_read(struct pg *db, struct ledger_events_read *read);

/* --- postgres_load.c --- */

/* Runs in a separate transaction (REPEATABLE READ). */
bool pg_load(struct pg *db, const struct ledger_reader *reader);
bool pg_waiting_read(struct pg *db, struct ledger_waiting_read *read);

/* --- postgres_facts.c --- */

bool pg_facts_read(struct pg *db, struct ledger_facts_read *read);
bool pg_sales_read(struct pg *db, struct ledger_sales_read *read);
bool pg_facts_page(struct pg *db, struct ledger_facts_page *page);
bool pg_facts_relayed_apply(struct pg *db, struct ledger_facts_relayed *relayed);
bool pg_facts_publish_apply(struct pg *db, struct ledger_facts_publish *publish);

/* --- postgres_nodes.c --- */

bool pg_node_report_apply(struct pg *db, struct ledger_node_report *report);
bool pg_nodes_drop_apply(struct pg *db, struct ledger_nodes_drop *drop);
bool pg_nodes_read(struct pg *db, struct ledger_nodes_read *read);
/* Its node_applied and node_count. */
bool pg_node_applied(struct pg *db, struct ledger_events_read *read);
bool pg_node_leave(struct pg *db, const struct uuid *node);

/* --- postgres_audit.c --- */

/* *id is the row's number, which is also the version of the event that the change has made. Takes
 * PG_LOCK_AUDIT for the rest of the transaction, so that numbers become visible in order; it is
 * called when the change has taken all its other locks. */
bool pg_audit_add(struct pg *db, const struct audit_note *note, int64_t now_ms, int64_t *id);
bool pg_act_apply(struct pg *db, struct ledger_act *act);
/* The notes of those records that have confirmed or cancelled a reservation. Takes PG_LOCK_AUDIT in
 * shared mode, so that transactions with notes do not wait for each other, and a row of
 * pg_audit_add is still visible before every later one. */
bool pg_audit_add_acts(struct pg *db, struct ledger_record *const *records, size_t count);
bool pg_audit_page(struct pg *db, struct ledger_audit_page *page);

/* --- postgres_check.c --- */

/* Outside of a transaction: each invariant is a separate statement. */
bool pg_check_all(struct pg *db, bool server_runs, int64_t now_ms,
                  void (*on_finding)(void *, const struct ledger_finding *), void *to);

/* --- postgres_retention.c --- */

struct pg_retention;

/* Starts a thread with a private connection, which it opens itself, and opens again when it is
 * lost. One node does the work at a time (PG_LOCK_RETENTION). */
struct pg_retention *pg_retention_start(const struct postgres_ledger_options *o);
/* Returns soon, whatever it was doing. */
void pg_retention_stop(struct pg_retention *r);

/* --- postgres_section_counts.c --- */

struct pg_section_counts_change;
struct pg_section_count;

/* The changes of the sections' counts by one transaction, in order. Zeroed: none. */
struct pg_section_counts {
    struct pg_section_counts_change *changes;
    size_t count;
    size_t cap;
};

/* `hold` is NULL unless this took seats. */
void pg_section_counts_add(struct pg_section_counts *t, int64_t section_key, int64_t held,
                           int64_t confirmed, struct ledger_hold *hold);
/* Updates the rows of the sections, and sets `sold_out` of the holds. */
bool pg_section_counts_write(struct pg *db, struct pg_section_counts *t);
void pg_section_counts_deinit(struct pg_section_counts *t);

/* --- records that are written in batches: postgres_queue.c, postgres_hold.c,
 * postgres_outcome.c, postgres_requests.c --- */

/* How a kind of record is written. `send` puts statements for `count` records (1, unless it takes
 * `many`) on their way, and returns how many statements that were; `read` is given the answer to
 * the last of them, and sets the records' outputs. Where `wait` is false, rows that others have
 * locked are not waited for: then the record is `blocked`, and nothing of it was done. */
struct pg_kind {
    bool many;
    size_t (*send)(struct pg *db, struct ledger_record **records, size_t count, bool wait);
    bool (*read)(struct pg *db, struct pg_rows *rows, struct ledger_record **records, size_t count,
                 struct pg_section_counts *t, bool *blocked);
};

extern const struct pg_kind pg_kind_enter;
extern const struct pg_kind pg_kind_enter_void;
extern const struct pg_kind pg_kind_admit;
extern const struct pg_kind pg_kind_end;
extern const struct pg_kind pg_kind_hold;
extern const struct pg_kind pg_kind_hold_void;
extern const struct pg_kind pg_kind_confirm;
extern const struct pg_kind pg_kind_cancel;
extern const struct pg_kind pg_kind_expire;
extern const struct pg_kind pg_kind_request_put;
extern const struct pg_kind pg_kind_request_decide;

/* The result that a function of the database has returned, as an enum err. */
bool pg_result_from(struct pg *db, str word, enum err *out);

/* --- postgres_queue.c --- */

bool pg_entry_get(struct pg *db, struct ledger_entry_get *get);

/* --- postgres_hold.c --- */

bool pg_seats_read(struct pg *db, struct ledger_seats_read *read);

/* --- postgres_reservations.c --- */

/* `r` names the table. */
#define PG_RESERVATION_COLUMNS                                                                     \
    "r.id, r.event_id, r.section_id, r.user_id, r.entry_seq, r.strategy, r.status, r.seat_count,"  \
    " r.seats, r.price, r.currency, r.expires_at, r.created_at, r.confirmed_at, r.ended_at,"       \
    " r.confirmation_code"

/* The columns above, from the column `at` on, of a row that is not VOID. *out is set on success;
 * mem_free frees it. False, and PG_CORRUPT, when the row has a value that is not allowed. */
bool pg_reservation_from_row(struct pg *db, const struct pg_rows *rows, int at,
                             struct reservation **out);
bool pg_reservation_get(struct pg *db, struct ledger_reservation_get *get);

/* --- postgres_idempotency.c --- */

bool pg_idempotency_get(struct pg *db, struct ledger_idempotency_get *get);

/* --- postgres_requests.c --- */

bool pg_request_lease_apply(struct pg *db, struct ledger_request_lease *lease);
bool pg_requests_get(struct pg *db, struct ledger_requests_get *get);
bool pg_requests_read(struct pg *db, struct ledger_requests_read *read);
bool pg_requests_open(struct pg *db, struct ledger_requests_open *open);

/* --- postgres_batch.c: one transaction --- */

/* How it ended. LOST: the connection broke before the commit, so nothing of it is there. UNKNOWN:
 * it broke at the commit. */
enum pg_end { PG_COMMITTED, PG_FAILED, PG_LOST, PG_UNKNOWN };

struct pg_batch {
    struct ledger_record **records;
    size_t count;
    bool *blocked; /* out, one for each: to be tried by a thread that may wait */
    bool wait;
    /* out, when FAILED: the records that caused it; all of them where that is not known */
    size_t culprit;
    size_t culprit_count;
    bool at_section_counts;  /* and it failed at the sections' counts, or behind them */
    int64_t lock_timeout_ms; /* 0: as the connection has it */
    int64_t begin_ms;        /* the first answer must come within this; 0: as any other */
    /* Identify the transaction, to find out whether it was committed when the answer to its commit
     * is lost: the session and number that it writes, and the number that the server gave it. */
    struct uuid session;
    int64_t number;
    char transaction[24]; /* out */
};

enum pg_end pg_transact(struct pg *db, struct pg_batch *b);
/* Whether the record may change the sections' counts. */
bool pg_record_counts(const struct ledger_record *r);

/* --- postgres_session.c: a thread's connection, and how it gets records written on it --- */

struct pg_session {
    struct pg db;
    struct pg_settings settings;
    struct outage *outage;
    struct uuid id; /* under which its transactions are found */
    int64_t number; /* of the last one */
    int64_t deadline_ms;
    int64_t queue_wait_ms; /* how long a record may have waited, in the queue and for locks */
    int64_t answered_ns;   /* steady: when the server last answered */
    bool was_used;
    bool opening;
    int64_t opening_until_ns;
    int64_t retry_ns;  /* steady: when it may be opened again */
    int64_t pause_ms;  /* how long the last pause was */
    bool wait;         /* for locks, for as long as a record may wait */
    bool wait_briefly; /* or for as long as lock_timeout_ms */
    int64_t pessimistic_wait_ms;
    struct inbox *waiters;  /* where records go that are blocked; NULL: they are answered */
    void (*idle)(void *to); /* called now and then while a commit is asked after; may be NULL */
    void *to;
    bool *blocked; /* room for a batch */
    bool failing;  /* the last write failed for a reason that would fail the next one too */
};

/* Not connected yet. The options must live as long as it. */
void pg_session_init(struct pg_session *s, const struct postgres_ledger_options *o, bool wait,
                     int64_t batch_max);
void pg_session_deinit(struct pg_session *s);
/* Continues to connect, for `ms` at the most. Returns whether there is a connection. */
bool pg_session_up(struct pg_session *s, int64_t ms);
/* Before something is done with it: waits for a moment, should it have broken; but the first time,
 * when nothing is known to be wrong, as for any answer. False: its failure says why. */
bool pg_session_ready(struct pg_session *s);
/* How long its next answer may take: less than others on the first try over a connection that has
 * been idle, which may be dead without this node having noticed. */
int64_t pg_session_first_ms(const struct pg_session *s, int tries);
/* Writes the records, with as many tries as that takes. Moves those that are done to the front and
 * returns their number; the others were passed on to the waiters. */
size_t pg_session_write(struct pg_session *s, struct ledger_record **records, size_t count);
/* Tests whether the ledger can write: while it can't, it gets no records whose success would show
 * that it can again. */
bool pg_session_probe(struct pg_session *s);

/* --- postgres_pool.c --- */

#define PG_POOL_THREADS 4
#define PG_WAITER_THREADS 8
#define PG_READER_THREADS 2

struct pg_pool;

/* Threads that take records from one inbox, one at a time, each on a private connection, which is
 * opened when it is first needed. Blocked records go to `waiters`; NULL: these threads wait
 * themselves. `name` is that of the threads. The options must live as long as it. */
struct pg_pool *pg_pool_start(const char *name, const struct postgres_ledger_options *o,
                              int threads, struct pg_pool *waiters, _Atomic int64_t *depth);
/* The same for questions. */
struct pg_pool *pg_readers_start(const struct postgres_ledger_options *o);
enum err pg_pool_put(struct pg_pool *l, struct ledger_record *r);
struct inbox *pg_pool_inbox(struct pg_pool *l);
/* Closes it, and waits until all that it has is answered. */
void pg_pool_stop(struct pg_pool *l);

/* --- postgres_writer.c --- */

struct pg_writer {
    struct pg_session session;
    struct inbox inbox;
    pthread_t thread;
    struct ledger_record **batch;
    size_t batch_max;
    _Atomic int64_t *depth; /* submitted and not yet handed back, here or elsewhere */
    _Atomic bool writable;
    bool is_logged;         /* that it is not, for another reason than an outage */
    _Atomic bool read_only; /* why it is not: the server says that it is a replica, or so */
};

/* The session is connected already. The options must live as long as it. */
void pg_writer_start(struct pg_writer *w, const struct postgres_ledger_options *o,
                     struct pg_pool *waiters, _Atomic int64_t *depth);
enum err pg_writer_put(struct pg_writer *w, struct ledger_record *r);
/* Writes all records and hands them back, or passes them on. */
void pg_writer_stop(struct pg_writer *w);

/* --- postgres_epoch.c --- */

struct pg_epoch {
    uint32_t epoch;
    struct ledger_generation generation;
};

/* The number of this opening, durable when this returns; and the next generation, if it is asked
 * for or the database is found to be filled from a dump. Not inside a transaction. */
enum err pg_epoch_begin(struct pg *db, const struct postgres_ledger_options *o,
                        struct pg_epoch *out, struct buf *why);

/* --- postgres_cluster.c --- */

/* Whether the record belongs to an incarnation, and its epoch. */
uint32_t pg_record_epoch(const struct ledger_record *r);

struct pg_cluster;

struct pg_cluster *pg_cluster_new(const struct postgres_ledger_options *o);
void pg_cluster_free(struct pg_cluster *l);
enum err pg_join(struct pg_cluster *l, const struct cluster_settings *own, struct buf *why);
void pg_leave(struct pg_cluster *l, const struct uuid *node);
enum err pg_incarnation(struct pg_cluster *l, struct hot_incarnation *out);
enum err pg_rebuild_begin(struct pg_cluster *l, const struct hot_incarnation *before,
                          uint32_t *epoch, bool *is_ours);
enum err pg_rebuild_renew(struct pg_cluster *l);
enum err pg_rebuild_end(struct pg_cluster *l, const struct hot_incarnation *incarnation);

#endif
