/*
 * record: what the ledgers do with records whatever the database: take back what one was to say,
 * and hand them back to their workers.
 */
#ifndef ADMITONE_LEDGER_RECORD_H
#define ADMITONE_LEDGER_RECORD_H

#include <stdatomic.h>

#include "port/ledger.h"

/* By the kind of a fact. */
enum sale_kind sale_kind_of(str kind);

/* "12,13", as both tables have seats, into the numbers of *r; false unless there are as many as it
 * has room for, in order. */
bool seats_from_text(str text, struct reservation *r);
/* Whether a row that was read holds what a live entry may have. */
bool ledger_entry_ok(const struct ledger_entry *e);
/* The same of a sale. One that does not is logged, and passed over. */
bool sale_check(const struct sale *s);

/* For the log. */
const char *record_name(const struct ledger_record *r);

/* The record's transaction is gone: so is what it was to say. */
void record_undo(struct ledger_record *r);

/* One post per worker; the array is used up. Once posted, a record is no longer ours to look at.
 * `depth` (may be NULL) counts those that are still here. */
void records_hand_back(struct ledger_record **records, size_t left, _Atomic int64_t *depth);

#endif
