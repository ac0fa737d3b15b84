/*
 * sqlite: the ledger in one SQLite file. One writer thread commits batches (WAL, fsync before any
 * answer), two reader threads answer questions concurrently, one thread checkpoints the WAL.
 *
 * The contract is port/ledger.h. ledger_submit and ledger_ask are called on threads that have a
 * mailbox; everything else on any thread. The file belongs to this process alone as far as writing
 * goes; other processes may read it (read_only), also while it runs.
 */
#ifndef ADMITONE_LEDGER_SQLITE_H
#define ADMITONE_LEDGER_SQLITE_H

#include "port/ledger.h"

/* 0 means the default, which is given after each field; for the days it means for ever. */
struct sqlite_ledger_options {
    const char *path;
    bool read_only;      /* nothing is changed or submitted: load, ask and check only */
    bool new_generation; /* begins one (ledger_generation) */
    bool no_relay;     /* there is no relay: a fact need not be relayed before it may be removed */
    int64_t queue_max; /* records that wait for the writer: 65,536 */
    int64_t batch_max; /* records in one commit: 1,024 */
    int64_t asks_max;  /* questions that wait for a reader: 65,536 */
    int64_t wal_bytes_max;     /* above this the writer itself checkpoints the WAL: 16 MiB */
    int64_t retain_audit_days; /* how long audit rows stay */
    int64_t retain_ended_days; /* how long reservations, entries, requests stay after their end */
    int64_t retention_interval_ms; /* between two searches for older rows: 2,000 */
    int64_t retention_pause_ms;    /* after a round that removed nothing: 600,000 */
};

/* Creates the file or brings its schema up to date, and makes the next epoch durable. `why` gets a
 * line for people on failure. */
enum err sqlite_ledger_open(const struct sqlite_ledger_options *o, struct ledger **out,
                            struct buf *why);

#endif
