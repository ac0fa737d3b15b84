/*
 * postgres_parts: what the files of the PostgreSQL ledger show each other.
 *
 *   postgres.c            opens and closes it; the table of operations
 *   postgres_writer.c     the thread that commits batches
 *   postgres_batch.c      one transaction of several records; also what a lost COMMIT became
 *   postgres_pool.c       the threads that write `seat` sections, wait for locks, answer questions
 *   postgres_life.c       lives of the hot store: epochs, and who fills it
 *   postgres_schema.c     migrations; the tables and functions are in postgres_schema_1.sql
 *   postgres_queue.c      the records of queues
 *   postgres_hold.c       the records that make reservations
 *   postgres_outcome.c    the records that confirm and end them
 *   postgres_reservations.c  their rows, read
 *   postgres_idempotency.c   keys of requests, and their answers
 *   postgres_events.c     the records of events
 *   postgres_load.c       all that lives, in one snapshot; who waits
 *   postgres_facts.c      the outbox
 *   postgres_audit.c      the audit table
 *   postgres_check.c      the invariants, as queries
 *   postgres_retention.c  removes what has outlived its use
 *
 * All but postgres_retention.c is called inside a transaction that somebody else began (READ
 * COMMITTED, unless it says otherwise). Functions return whether all went well (postgres_db.h);
 * a refusal is a result in the record, not a failure, and changes nothing.
 *
 * In which order rows are locked: buyers, reservations, seats, queue entries; the event; sections
 * by id, last, for they are what all want. Whoever judges by what a section counts or by which of
 * its seats are taken has locked its row (FOR UPDATE), and holds are judged again when they write
 * to it.
 */
#ifndef ADMITONE_LEDGER_POSTGRES_PARTS_H
#define ADMITONE_LEDGER_POSTGRES_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "ledger/inbox.h"
#include "ledger/postgres.h"
#include "ledger/postgres_db.h"

/* Advisory locks: the first of two keys; the second is 0, or the event's. */
#define PG_LOCK_MIGRATE 1633971501
#define PG_LOCK_LIFE 1633971502
#define PG_LOCK_AUDIT 1633971503
#define PG_LOCK_SOLD_OUT 1633971504
#define PG_LOCK_RETENTION 1633971505

/* --- postgres_schema.c --- */

/* Applies the migrations that are missing, under a lock, for several nodes may start at once. */
enum err pg_schema_migrate(struct pg *db, int64_t now_ms, struct buf *why);
/* For those who may not change it: the schema must be this program's. */
enum err pg_schema_expect(struct pg *db, struct buf *why);

/* --- postgres_events.c --- */

/* They lock the event's row, then the rows of its sections in order of id, before they judge. */
bool pg_event_put_apply(struct pg *db, struct ledger_event_put *put);
bool pg_event_delete_apply(struct pg *db, struct ledger_event_delete *del);
/* Every event that is not deleted, told to on_event. */
bool pg_events_load(struct pg *db, const struct ledger_reader *reader);
bool pg_events_read(struct pg *db, struct ledger_events_read *read);

/* --- postgres_load.c --- */

/* Begins and ends a transaction of its own (REPEATABLE READ). */
bool pg_load(struct pg *db, const struct ledger_reader *reader);
bool pg_waiting_read(struct pg *db, struct ledger_waiting_read *read);

/* --- postgres_facts.c --- */

bool pg_facts_read(struct pg *db, struct ledger_facts_read *read);
bool pg_facts_relayed_apply(struct pg *db, struct ledger_facts_relayed *relayed);

/* --- postgres_audit.c --- */

/* *id is the row's number, which is also the version of what the act made. Takes PG_LOCK_AUDIT for
 * the rest of the transaction, so that numbers become visible in their order; when whatever else
 * the act locks is locked already. */
bool pg_audit_add(struct pg *db, const struct audit_note *note, int64_t now_ms, int64_t *id);
bool pg_audit_page(struct pg *db, struct ledger_audit_page *page);

/* --- postgres_check.c --- */

/* Begins and ends a transaction of its own (REPEATABLE READ). */
bool pg_check_all(struct pg *db, bool server_runs, int64_t now_ms,
                  void (*on_finding)(void *, const struct ledger_finding *), void *to);

/* --- postgres_retention.c --- */

struct pg_retention;

/* A thread of its own with a connection of its own, which it makes itself and makes anew when it is
 * lost. Of several nodes one does the work at a time (PG_LOCK_RETENTION). */
struct pg_retention *pg_retention_start(const struct postgres_ledger_options *o);
/* Returns soon, whatever it was doing. */
void pg_retention_stop(struct pg_retention *r);

/* --- postgres_queue.c --- */

bool pg_entry_get(struct pg *db, struct ledger_entry_get *get);

/* --- postgres_reservations.c --- */

/* `r` names the table. */
#define PG_RESERVATION_COLUMNS                                                                     \
    "r.id, r.event_id, r.section_id, r.user_id, r.entry_seq, r.strategy, r.status, r.seat_count,"  \
    " r.seats, r.price, r.currency, r.expires_at, r.created_at, r.confirmed_at, r.ended_at,"       \
    " r.confirmation_code"
#define PG_RESERVATION_COLUMN_COUNT 16

/* The columns above, from the column `at` on, of a row that is not VOID. *out is set on success;
 * mem_free frees it. False, and PG_CORRUPT, when the row holds what none may have. */
bool pg_reservation_from_row(struct pg *db, const struct pg_rows *rows, int at,
                             struct reservation **out);
bool pg_reservation_get(struct pg *db, struct ledger_reservation_get *get);

#endif
