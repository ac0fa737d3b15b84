/*
 * postgres: the ledger in a PostgreSQL database, which several nodes share. A batch writer commits
 * submitted records, a small pool writes the holds of `seat` sections concurrently, waiters wait
 * for locked rows, readers answer questions. Each thread has a private connection, so a row that is
 * locked for long delays only the records that need it.
 *
 * The contract is port/ledger.h. ledger_submit and ledger_ask are called on threads that have a
 * mailbox; everything else on any thread. A lost connection is opened again, with growing backoff;
 * until then submitted records are answered with LEDGER_FAILED at once.
 */
#ifndef ADMITONE_LEDGER_POSTGRES_H
#define ADMITONE_LEDGER_POSTGRES_H

#include "base/outage.h"
#include "port/ledger.h"

/* 0 means the default, which is given after each field; for the days it means for ever. */
struct postgres_ledger_options {
    const char *url;     /* of libpq: postgres://role:password@host:port/database?… */
    bool read_only;      /* nothing is changed or submitted: load, ask and check only */
    bool new_generation; /* begins one (ledger_generation) */
    int64_t queue_max;   /* records that wait for the writer: 65,536 */
    int64_t batch_max;   /* records in one commit: 1,024 */
    int64_t asks_max;    /* questions that wait for a reader: 65,536 */
    int64_t deadline_ms; /* a record is answered after no longer than this, or soon after: 5,000 */
    int64_t queue_wait_ms; /* records that wait for locks, and administrative acts: also in the
                              queue. As above */
    int64_t pessimistic_wait_ms;   /* how long a pessimistic hold waits for a row: 10,000 */
    struct outage *outage;         /* private to the ledger; a given value is ignored */
    int64_t retain_audit_days;     /* how long audit rows stay */
    int64_t retain_ended_days;     /* how long reservations, entries, requests stay */
    int64_t retention_interval_ms; /* between two searches for older rows: 2,000 */
    int64_t retention_pause_ms;    /* after a round that removed nothing: 600,000 */
};

/* Connects, and brings the schema up to date; several nodes may do so at once. `why` gets a line
 * for people on failure, which names host, database and role, but never the password. */
enum err postgres_ledger_open(const struct postgres_ledger_options *o, struct ledger **out,
                              struct buf *why);

#endif
