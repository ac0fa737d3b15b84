/*
 * record: functions for records that both ledgers share: resetting the outputs of a record, and
 * handing records back to their workers.
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
/* Whether the values of a row that was read are allowed for a live entry. */
bool ledger_entry_ok(const struct ledger_entry *e);
/* The same for a sale. If not, it is logged, and the caller skips it. */
bool sale_check(const struct sale *s);

/* For the log. */
const char *record_name(const struct ledger_record *r);

/* The record's transaction was rolled back: resets the outputs of the record. */
void record_undo(struct ledger_record *r);

/* Hands the records back to their workers, with one post per worker; the array is overwritten.
 * After that the caller must not read the records. `depth` (may be NULL) counts the records that
 * have not been handed back. */
void records_hand_back(struct ledger_record **records, size_t left, _Atomic int64_t *depth);

#endif
