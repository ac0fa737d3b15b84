/*
 * record: functions for records that both ledgers share: resetting the outputs of a record, and
 * handing records back to their workers.
 */
#ifndef ADMITONE_LEDGER_RECORD_H
#define ADMITONE_LEDGER_RECORD_H

#include <stdatomic.h>

#include "base/json_out.h"
#include "port/ledger.h"

/* What the put makes of the event in force; `old` is NULL when there is none. On OK *planned is a
 * new event, which mem_free frees; otherwise this is the record's refusal. */
enum err event_put_plan(struct ledger_event_put *put, const struct event *old,
                        struct event **planned);
/* Whether the event may be deleted: `key` and `version` are those of the event in force (0: there
 * is none), and `live` says whether it has a live reservation. */
enum err event_delete_judge(struct ledger_event_delete *del, int64_t key, int64_t version,
                            bool live);
/* Whether the planned event adds seats and their number is limited, so that event_put_seats must be
 * asked: with the number of seats that all other events have, in the step that writes the event. */
bool event_put_grows(const struct ledger_event_put *put, const struct event *old,
                     const struct event *planned);
/* TOO_MANY_SEATS or OK. */
enum err event_put_seats(struct ledger_event_put *put, const struct event *planned, int64_t others);

/* By the kind of a fact. */
enum sale_kind sale_kind_of(str kind);

/* "12,13", as both tables have seats; false unless there are `count` numbers, in order. */
bool seats_from_text(str text, uint32_t *seats, uint32_t count);
void seats_to_text(const uint32_t *seats, uint32_t count, struct buf *out);

/* A row of `requests`, as it was read. */
struct request_row {
    struct uuid id;
    int64_t partition;
    int64_t seq;
    int64_t event_key;
    int64_t section_key;
    str user;
    int64_t entry_seq;
    str strategy;
    int64_t quantity;
    str seats; /* `at` NULL: any */
    str digest;
    int64_t ahead;
    str status;
    str reason;
    struct uuid reservation;
    int64_t created_ms;
    int64_t finished_ms;     /* CLOCK_NONE_MS: undecided */
    int64_t hold_expires_ms; /* of the reservation; CLOCK_NONE_MS: there is none */
};

/* mem_free frees it. A row that this program cannot have written is logged, and becomes a request
 * with the quantity 0, so that it can be decided as failed. */
struct request *request_from_row(const struct request_row *row);
/* Whether the values of a row that was read are allowed for a live entry. */
bool ledger_entry_ok(const struct ledger_entry *e);
/* The same for a sale. If not, it is logged, and the caller skips it. */
bool sale_check(const struct sale *s);

/* A row of `facts`, and the rows of its event, section and reservation, as far as they are there.
 */
struct fact_row {
    struct sale_mark mark;
    str kind;
    int64_t at_ms;
    str event_type;
    str event_id;
    str section;
    const struct uuid *reservation; /* NULL: none */
    str user;
    int64_t seat_count;
    str seats; /* `at` NULL: the reservation is not there */
    int64_t price;
    str currency;
};

/* A page is begun, gets a row, and has failed. A row that this program cannot have written is
 * logged and left out. False: the page is full. */
void facts_page_begin(struct ledger_facts_page *page);
bool facts_page_add(struct ledger_facts_page *page, const struct fact_row *row);
void facts_page_free(struct ledger_facts_page *page);

/* The outputs of ledger_events_read: they are emptied, get an event (for ledger_reader), and the
 * read has failed. */
void events_read_begin(struct ledger_events_read *read);
void events_read_add(void *read, struct event *e);
void events_read_free(struct ledger_events_read *read);

/* A row of `audit`, as it was read. */
struct audit_row {
    int64_t id;
    int64_t at_ms;
    str actor;
    str act;
    str subject;
    str detail; /* JSON */
};

/* Writes the outputs of ledger_audit_page. */
struct audit_page_writer {
    struct ledger_audit_page *page;
    struct json_out json;
    int64_t limit; /* of rows; reading one more shows whether there is a next page */
    int64_t count;
    int64_t last; /* the id of the last row */
};

void audit_page_begin(struct audit_page_writer *w, struct ledger_audit_page *page);
/* False: the page is full. */
bool audit_page_add(struct audit_page_writer *w, const struct audit_row *row);
/* Unless `ok`, the read has failed, and the page is freed. */
void audit_page_end(struct audit_page_writer *w, bool ok);

/* Fills the outputs of ledger_requests_open; rows come in order of partition and number. */
void requests_open_init(struct ledger_requests_open *open);
void requests_open_add(struct ledger_requests_open *open, int64_t partition, int64_t seq);
/* When the read has failed. */
void requests_open_free(struct ledger_requests_open *open);

/* For the log. */
const char *record_name(const struct ledger_record *r);

/* The record's transaction was rolled back: resets the outputs of the record. */
void record_undo(struct ledger_record *r);

/* Hands the records back to their workers, with one post per worker; the array is overwritten.
 * After that the caller must not read the records. `depth` (may be NULL) counts the records that
 * have not been handed back. */
void records_hand_back(struct ledger_record **records, size_t left, _Atomic int64_t *depth);

#endif
