/*
 * ledger: the contract of the durable store, whose state decides. An adapter promises:
 *
 *  - A record is one domain step. It is written whole or not at all, together with its audit row,
 *    in the order of submission, and its `task.run` is called on the submitting worker only after
 *    the transaction that holds it is on disk (fsync included). Three kinds may be written
 *    concurrently with the rest, in any order: acts of administrators (changes of events among
 *    them), holds that the ledger itself decides (optimistic, pessimistic, distributed-lock), and
 *    records that wait for a lock.
 *  - A refusal (in use, another request was first) is a result, and changes nothing.
 *  - A failure of the disk or the connection is a result too (ERR_LEDGER_…): nothing of that
 *    record is in the ledger, and later records succeed again when the cause is gone. Only after
 *    LEDGER_UNKNOWN it may be there: the connection broke at the commit, and the server could not
 *    be asked in time whether it committed.
 *  - A record that the hot store decided first (enter, admit, some holds) carries the epoch of the
 *    incarnation in which that was decided. Where several nodes share the hot store, a record of an
 *    older incarnation than the ledger has given out is refused with RECOVERING. Epoch 0 is not
 *    checked.
 *  - ledger_submit and ledger_ask take the record or refuse at once (ERR_OVERLOADED) when their
 *    bounded queue is full; then `task.run` is not called. They never block on I/O.
 *
 * Memory: the record belongs to the submitter (its request's arena), which leaves it untouched
 * until task.run; pointers marked *out* are handed over to the submitter.
 */
#ifndef ADMITONE_PORT_LEDGER_H
#define ADMITONE_PORT_LEDGER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/task.h"
#include "core/event.h"
#include "core/fact.h"
#include "core/queue.h"
#include "core/request.h"
#include "core/reservation.h"
#include "core/sale.h"
#include "core/seat_map.h"
#include "port/hot.h"

enum ledger_kind {
    /* submitted */
    LEDGER_EVENT_PUT,
    LEDGER_EVENT_DELETE,
    LEDGER_ACT,
    LEDGER_ENTER,
    LEDGER_ENTER_VOID,
    LEDGER_ADMIT,
    LEDGER_END,
    LEDGER_HOLD,
    LEDGER_HOLD_VOID,
    LEDGER_CONFIRM,
    LEDGER_CANCEL,
    LEDGER_EXPIRE,
    LEDGER_REQUEST_PUT,
    LEDGER_REQUEST_DECIDE,
    LEDGER_REQUEST_LEASE,
    LEDGER_FACTS_RELAYED,
    LEDGER_FACTS_PUBLISH,
    LEDGER_NODE_REPORT,
    LEDGER_NODES_DROP,
    /* asked */
    LEDGER_ENTRY_GET,
    LEDGER_RESERVATION_GET,
    LEDGER_SEATS_READ,
    LEDGER_IDEMPOTENCY_GET,
    LEDGER_REQUESTS_GET,
    LEDGER_REQUESTS_READ,
    LEDGER_REQUESTS_OPEN,
    LEDGER_EVENTS_READ,
    LEDGER_WAITING_READ,
    LEDGER_FACTS_READ,
    LEDGER_SALES_READ,
    LEDGER_FACTS_PAGE,
    LEDGER_NODES_READ,
    LEDGER_AUDIT_PAGE,
};

static inline bool ledger_kind_is_asked(enum ledger_kind kind) {
    return kind >= LEDGER_ENTRY_GET;
}

struct ledger_record {
    struct task task;
    enum ledger_kind kind;
    enum err result; /* out */
    /* Accepted even when the queue is full: for records that the server itself must write. Their
     * number is bounded. */
    bool always;
    int64_t since_ns; /* private to the adapter: steady, when it was accepted */
};

/* The row of the audit table about one administrative act. */
struct audit_note {
    str actor;   /* by whom: the name of a key, or "demo" */
    str act;     /* what: "event.put" */
    str subject; /* on what: "CONCERT/1" */
    str detail;  /* JSON: the change as it was asked for */
};

/* As `if_version`: the event must exist, with any version. */
#define EVENT_VERSION_ANY (-1)

/* Replaces the event by `wanted`, or creates it; or, with `edit`, applies that function to the
 * event in force (EVENT_NOT_FOUND when there is none). Refused with VERSION_MISMATCH when the event
 * in force is not the one that `if_version` says; with SECTION_IN_USE when a section that has live
 * reservations would vanish, shrink below its highest live seat, or change between mode `seat` and
 * the others; with TOO_MANY_SEATS when the event would grow, and would then have more seats than
 * EVENT_CAPACITY_MAX, or all events together more than `seats_max`. */
struct ledger_event_put {
    struct ledger_record record;
    const struct event *wanted;
    bool keeps_state;   /* with `wanted`: an event that exists keeps its state */
    bool keeps_notice;  /* likewise */
    int64_t if_version; /* 0: whatever the version is */
    int64_t seats_max;  /* 0: no limit */
    /* Changes *e, which it may reallocate, or returns an error, which becomes the result. Runs on
     * the ledger's thread inside the transaction, so edits of one event follow each other and none
     * is lost; perhaps more than once. It may use only memory that belongs to the record. */
    enum err (*edit)(struct ledger_event_put *put, struct event **e);
    str type; /* with `edit`: which event */
    str id;
    int64_t now_ms;
    struct audit_note note;
    struct event *stored;                  /* out, on OK: the event in force now */
    bool created;                          /* out */
    int64_t version_present;               /* out, on VERSION_MISMATCH; 0: there is no event */
    int64_t seats_wanted;                  /* out, on TOO_MANY_SEATS: those of this event */
    int64_t seats_others;                  /* out, likewise: those of all others */
    char in_use[SECTION_ID_BYTES_MAX + 1]; /* out: which section refused */
};

/* Refused with EVENT_NOT_FOUND; with VERSION_MISMATCH when the event has not the version that
 * `if_version` says; with EVENT_IN_USE while a reservation is live. */
struct ledger_event_delete {
    struct ledger_record record;
    str type;
    str id;
    int64_t if_version; /* 0: whatever the version is */
    int64_t now_ms;
    struct audit_note note;
    int64_t key;             /* out: of the event */
    int64_t version;         /* out: higher than any that the event had */
    int64_t version_present; /* out, on VERSION_MISMATCH */
};

/* An act that changes nothing else in the ledger: adds the note to the audit table. */
struct ledger_act {
    struct ledger_record record;
    int64_t now_ms;
    struct audit_note note;
};

/* A new place in an event's queue, WAITING or ACTIVE. Submitting the same entry again is OK and
 * changes nothing. CONFLICT: the number belongs to another entry, or the entry was undone before.
 * `closes` (0: none) is an entry of the same user whose time was over and that ends with this: an
 * ACTIVE row past its time is EXPIRED to every reader anyway. A deleted event still accepts entries
 * (one may have been under way at the deletion); no client sees them. EVENT_NOT_FOUND: retention
 * has removed the deleted event. */
struct ledger_enter {
    struct ledger_record record;
    int64_t event_key;
    uint64_t seq;
    str user;
    unsigned lane;
    enum entry_status status;
    int64_t joined_ms;
    int64_t expires_ms; /* of an ACTIVE one */
    uint64_t closes;
    uint32_t epoch;
    const struct audit_note *note; /* written with the entry; NULL: nothing to write */
};

/* Undoes an enter that no client knows of: if the ledger does not have the entry, a row with the
 * status VOID takes its number, so that a late write of the enter is refused. The result is OK in
 * both cases. */
struct ledger_enter_void {
    struct ledger_record record;
    int64_t event_key;
    uint64_t seq;
    int64_t now_ms;
    bool voided; /* out: the entry is not there and never will be */
};

/* Those of the entries that are WAITING become ACTIVE; `kept` says which are ACTIVE now, until the
 * time that `entries` gives, through this record or through an earlier one with the same content.
 */
struct ledger_admit {
    struct ledger_record record;
    int64_t event_key;
    uint32_t epoch;
    int64_t now_ms;
    const struct entry_change *entries;
    size_t count;
    bool *kept; /* out, one for each */
};

/* Those of the entries that are live end as `final` (COMPLETED: those that are ACTIVE); `ended`
 * says which. A user who leaves gives back the held seats: those of `cancels` that are HELD, in
 * this event and by `user`, become CANCELLED, whether or not the entry was live; `cancelled` says
 * which. */
struct ledger_end {
    struct ledger_record record;
    int64_t event_key;
    int64_t now_ms;
    enum entry_status final;
    const uint64_t *seqs;
    size_t count;
    bool *ended; /* out, one for each */
    str user;    /* with `cancels`: whose they are */
    const struct uuid *cancels;
    size_t cancel_count;
    bool *cancelled; /* out, one for each */
};

/* A key by which a repeated request to hold seats has only one effect: its row, (user, route, key),
 * is written in the hold's own transaction and names the reservation. The same key and digest
 * again: OK, `replayed`, with that reservation's id, and nothing changes, whatever the other fields
 * of the record are. Another digest: IDEMPOTENCY_MISMATCH. A row is kept for at least a day, until
 * retention removes it; the reservation is kept as long. */
#define IDEMPOTENCY_DIGEST_BYTES 32
struct idempotency {
    str user; /* of the reservation, too */
    str route;
    str key;
    unsigned char digest[IDEMPOTENCY_DIGEST_BYTES]; /* of the request's body */
    bool replayed;                                  /* out */
    struct uuid reservation;                        /* out, when replayed: which one was made */
};

/*
 * A new reservation, HELD since created_ms. Refused, in this order, with
 *   CONFLICT           the id is another reservation's, or was undone
 *   SECTION_NOT_FOUND  the event has no such section, or no longer
 *   STRATEGY_NOT_ALLOWED
 *                      the section's mode has changed: the strategy does not suit it
 * (strategy_suits) LIMIT_EXCEEDED     the user would have more live seats of the event than its
 * max_per_user NOT_ACTIVE         the entry is not the user's, not ACTIVE, or past its time at
 * created_ms LOCK_LOST          a seat was written under a higher fence than the one it has here
 *   CONFLICT           a seat's version is not the one that was expected
 *   SEAT_TAKEN         a seat is not AVAILABLE, or the section does not have it
 *   SEAT_GIVEN_UP      a seat was named that the user held last and gave up: that hold has ended
 *                      unconfirmed, less than rehold_s of the event ago; free_at_ms says when all
 *                      such seats may be named again
 * For the last four, `refused` lists every seat to which the reason applies. HOLD_LIMIT comes
 * behind NOT_ACTIVE: the entry has made max_holds_per_stay holds. All seats are held, or none.
 * Submitting the same id, user and seats again is OK and changes nothing; `status` is the status
 * that the reservation has now. A hold that leaves the event without a free seat also writes the
 * fact SOLD_OUT.
 */
struct ledger_hold {
    struct ledger_record record;
    const struct reservation *wanted;
    bool is_named;           /* the user has chosen the seats */
    const int64_t *versions; /* NULL, or what each seat's version must be; a new seat's is 0 */
    const int64_t *fences;   /* NULL: written under no lock; or the fence of each seat's lock */
    struct idempotency *idempotency; /* NULL: no key was sent */
    uint32_t epoch;
    bool held;                      /* out: this record made the hold */
    bool sold_out;                  /* out: and took the last free seats of the event */
    enum reservation_status status; /* out, on OK and not replayed */
    uint32_t *refused;              /* out, in order; room for as many as are wanted */
    size_t refused_count;
    int64_t free_at_ms; /* out, with SEAT_GIVEN_UP */
};

/* Undoes a hold that no client knows of: if the ledger does not have the reservation, a row with
 * the status VOID takes its id, so that a late write of the hold is refused. The result is OK in
 * both cases. */
struct ledger_hold_void {
    struct ledger_record record;
    struct uuid id;
    int64_t event_key;
    int64_t section_key;
    int64_t now_ms;
    bool voided; /* out: the reservation is not there and never will be */
};

/*
 * HELD becomes CONFIRMED, if `user` owns it and its time is not over; its entry, if it is still
 * ACTIVE, becomes COMPLETED unless the user holds more in the event. If it is CONFIRMED already:
 * OK, and nothing changes. Refused with RESERVATION_NOT_FOUND, NOT_YOURS, RESERVATION_ENDED (it is
 * CANCELLED), HOLD_EXPIRED. A reservation that is HELD past its time becomes EXPIRED in the same
 * step: no other refusal changes anything.
 */
struct ledger_confirm {
    struct ledger_record record;
    struct uuid id;
    str user;
    int64_t now_ms;
    char code[CONFIRMATION_CODE_CHARS + 1]; /* stored if this record confirms */
    const struct audit_note *note; /* written if this record confirms; NULL: nothing to write */
    bool confirmed;                /* out: this record confirmed it */
    bool completed;                /* out: and its entry became COMPLETED */
    bool expired;                  /* out: this record made it EXPIRED */
    /* out: as it is now; NULL when there is none, or it is not the user's. mem_free when done. */
    struct reservation *stored;
};

/* HELD becomes CANCELLED, if `user` owns it; so does CONFIRMED, with may_end_confirmed. If it is
 * CANCELLED already: OK, and nothing changes. Refused with RESERVATION_NOT_FOUND, NOT_YOURS,
 * CANCEL_BY_SHOP (it is CONFIRMED), HOLD_EXPIRED; a reservation that is HELD past its time becomes
 * EXPIRED in the same step, as in ledger_confirm. */
struct ledger_cancel {
    struct ledger_record record;
    struct uuid id;
    str user;
    int64_t now_ms;
    const struct audit_note *note; /* written if this record cancels it; NULL: nothing to write */
    bool may_end_confirmed;
    bool cancelled;             /* out: this record cancelled it */
    bool expired;               /* out: this record made it EXPIRED */
    struct reservation *stored; /* out: as in ledger_confirm */
};

/* Those of the reservations that are HELD and past their time become EXPIRED; `expired` says which.
 * If one row can't be read, the whole record fails: the caller then submits them one by one. */
struct ledger_expire {
    struct ledger_record record;
    int64_t now_ms;
    const struct uuid *ids;
    size_t count;
    bool *expired; /* out, one for each */
};

/* Accepts an asynchronous request: it is PENDING, after all that its partition has. If a request
 * with this id is there already: OK, and nothing changes, if user and digest are the same;
 * otherwise IDEMPOTENCY_MISMATCH. */
struct ledger_request_put {
    struct ledger_record record;
    const struct request *wanted;
    bool may_rename; /* no client knows the id of `wanted` yet */
    struct uuid id;  /* out, on OK: that of `wanted`, unless it may be another one */
    bool is_new;     /* out, on OK */
    int64_t seq;     /* out, on OK */
    /* Out, on OK: undecided requests before it when it was accepted. Where they are many, those
     * that were decided in the last 200 ms may be counted; it is never too low. */
    int64_t ahead;
    enum request_status status; /* out, on OK: as it is now */
};

/* The route of the row in `idempotency` that decides a request: its key is the request's id. A hold
 * that is made for the request has this key, so it is made once, and never after a failure. */
#define REQUEST_ROUTE "/api/v4/queue"

/* Decides a request, unless it is decided: `wanted` has its status, reason and reservation. If a
 * hold was made for it, it has succeeded, whatever the status in `wanted`. A failure keeps every
 * later hold for the request from being made. A request that the ledger does not have, because it
 * was accepted by another feed, is stored. Such a request has no number (wanted->seq is 0), and its
 * id may be that of another user's request: IDEMPOTENCY_MISMATCH, and nothing changes. */
struct ledger_request_decide {
    struct ledger_record record;
    const struct request *wanted;
    /* 0, or that of the lease of its partition under which it was decided: LOCK_LOST, and nothing
     * changes, when another node has had the lease since. */
    int64_t fence;
    bool decided;                      /* out: this record decided it */
    enum request_status status;        /* out, on OK: as it is now */
    char reason[REQUEST_REASON_BYTES]; /* out, likewise */
    struct uuid reservation;           /* out, likewise */
};

/* Takes, renews and releases the leases by which a node works on the partitions of requests. A
 * lease ends `lease_ms` after this, by the clock of the database, unless it is renewed. The
 * partitions are shared evenly: a node takes no more than its share, and releases what it has above
 * that. Only in a ledger that several nodes share. */
struct ledger_request_lease {
    struct ledger_record record;
    struct uuid node;
    int64_t lease_ms;
    bool stops;                         /* releases all, and takes none */
    bool keeps[REQUEST_PARTITIONS];     /* of those that it has; the others are released */
    int64_t fences[REQUEST_PARTITIONS]; /* out: 0: it does not have the lease */
    int64_t share;                      /* out: as many partitions as it should have */
};

/* Asked, not submitted: one entry, also one that has ended. NONE: the ledger does not have it, or
 * no longer. */
struct ledger_entry_get {
    struct ledger_record record;
    int64_t event_key;
    uint64_t seq; /* out, if it is asked for by user */
    str live_of;  /* `at` not NULL: the live entry of this user, instead of the one with `seq` */
    enum entry_status status;     /* out */
    char user[USER_ID_BYTES_MAX]; /* out */
    size_t user_len;
    unsigned lane;      /* out */
    int64_t joined_ms;  /* out */
    int64_t expires_ms; /* out: of one that is ACTIVE */
};

/* Asked, not submitted: one reservation, also one that has ended. */
struct ledger_reservation_get {
    struct ledger_record record;
    struct uuid id;
    struct reservation *found; /* out: NULL when there is none; mem_free when done */
};

/* Asked, not submitted: seats of one section, as of one moment. */
struct ledger_seats_read {
    struct ledger_record record;
    int64_t section_key;
    const uint32_t *seats;
    size_t count;
    enum seat_state *states; /* out, one for each */
    int64_t *versions;       /* out, one for each; 0: never sold */
    /* out, one for each: of the reservation that has it; zeroes when AVAILABLE */
    struct uuid *holders;
};

/* Asked, not submitted: whether the key was used. Its result, `replayed` and `reservation` are as
 * if it came with a record; OK and not replayed: it was not used. */
struct ledger_idempotency_get {
    struct ledger_record record;
    struct idempotency *idempotency;
};

/* Asked, not submitted: requests by their ids, also decided ones. */
struct ledger_requests_get {
    struct ledger_record record;
    const struct uuid *ids;
    size_t count;
    struct request **found; /* out, one for each; NULL: there is none. mem_free each. */
};

/* Asked, not submitted: the undecided requests of a partition after `after_seq`, in their order. */
struct ledger_requests_read {
    struct ledger_record record;
    int partition;
    int64_t after_seq;
    size_t max;
    struct request **requests; /* out: room for `max`; mem_free each */
    size_t count;              /* out */
};

/* Asked, not submitted: the numbers of all undecided requests. */
struct ledger_requests_open {
    struct ledger_record record;
    struct open_requests {
        int64_t *seqs; /* ascending; mem_free when done */
        size_t count;
    } partitions[REQUEST_PARTITIONS]; /* out */
};

/* A deleted event. */
struct removed_event {
    int64_t key;
    int64_t version; /* higher than any that the event had */
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
};

/* Asked, not submitted: every event, and every deleted one that the ledger still has, that has
 * changed since `known_mark` was returned. */
struct ledger_events_read {
    struct ledger_record record;
    int64_t known_mark;    /* 0: never asked before */
    int64_t mark;          /* out: grows with any change; never 0. Equal to known_mark: no change */
    struct event **events; /* out: mem_free each, and the array */
    size_t count;
    struct removed_event *removed; /* out: mem_free when done */
    size_t removed_count;
    struct uuid node;     /* as in ledger_node_report */
    int64_t node_applied; /* out: what that node has reported; 0: it is not in the table */
    int64_t node_count;   /* out: nodes in the table */
    bool may_lag;         /* out: it was read from a replica, which may not have the latest acts */
};

/* The next three are about the table of nodes, which says how far each node has followed the
 * changes of events (service/event_sync.h). Only in a ledger that several nodes share. */

#define LEDGER_NODE_NAME_BYTES 128

/* A node says that it has applied all changes before a mark (of ledger_events_read); or, with
 * `registers`, enters itself into the table. */
struct ledger_node_report {
    struct ledger_record record;
    struct uuid node; /* another one each time it registers */
    bool registers;
    str name; /* for people; when it registers */
    int64_t applied;
    bool was_there; /* out, unless it registers: it has been in the table since it registered */
};

/* Removes the nodes that have not applied the change with this version from the table. */
struct ledger_nodes_drop {
    struct ledger_record record;
    int64_t version;
    int64_t count;                     /* out: of removed nodes */
    char name[LEDGER_NODE_NAME_BYTES]; /* out: of one of them */
};

/* Asked, not submitted: how far all nodes have got. */
struct ledger_nodes_read {
    struct ledger_record record;
    int64_t lowest; /* out: the lowest mark that a node has reported; INT64_MAX: there is no node */
};

/* Asked, not submitted: the waiting entries of an event's queue, in the order of admission. */
struct ledger_waiting_read {
    struct ledger_record record;
    int64_t event_key;
    uint64_t *waiting; /* out: lane × 2^48 + number, ascending; mem_free when done */
    size_t count;
};

/* A change of a reservation that became durable, and the reservation's status now, which may be a
 * later one. */
struct ledger_fact {
    int64_t id;
    struct uuid reservation;
    int64_t event_key;
    int64_t section_key;
    uint64_t entry_seq;             /* of the place in the queue that it was made from */
    enum reservation_status kind;   /* what it became then */
    enum strategy strategy;         /* of the reservation */
    enum reservation_status status; /* of the reservation, now */
};

#define FACTS_READ_MAX 256

/* Asked, not submitted: facts about reservations that were not relayed yet, the oldest first, each
 * at least `older_ms` old at now_ms. */
struct ledger_facts_read {
    struct ledger_record record;
    int64_t now_ms;
    int64_t older_ms;
    struct ledger_fact facts[FACTS_READ_MAX]; /* out */
    size_t count;
};

/* Marks facts as relayed: the hot store has them. Doing so again is OK. */
struct ledger_facts_relayed {
    struct ledger_record record;
    int64_t now_ms;
    const int64_t *ids;
    size_t count;
};

/* Asked, not submitted: the sales after the watermark, in order. While a transaction is open, sales
 * that come after it in this order are not returned, so that no sale can appear before a watermark
 * that was returned. A reservation that retention has removed is left out: it was taken and given
 * back long ago. */
struct ledger_sales_read {
    struct ledger_record record;
    struct sale_mark mark; /* out too: that of the last sale that is returned */
    struct sale *sales;    /* out: room for `max` */
    size_t max;
    size_t count; /* out */
};

#define FACTS_PAGE_MAX 1000

/* Asked, not submitted: all facts after a mark, of every kind, in the order of their marks. As with
 * sales, facts that come after an open transaction in this order are not returned yet. A page may
 * end before `max`, when its reservations have many seats; only an empty one says that there is
 * nothing more. A fact that cannot be read is logged and left out. INVALID_PARAMETER: `after` is a
 * mark of another kind of ledger. */
struct ledger_facts_page {
    struct ledger_record record;
    struct sale_mark after;
    size_t max;            /* at most FACTS_PAGE_MAX */
    struct fact **facts;   /* out: room for `max`; mem_free each */
    size_t count;          /* out */
    struct sale_mark mark; /* out: of the last fact that was read; `after` when there was none */
    size_t seat_count;     /* private to the adapter: of its facts */
};

/* The publication of facts to a topic that other systems read. One node at a time does this: takes
 * or renews the lease, which ends `lease_ms` after this, by the clock of the database. Also raises
 * the watermark to `published`, whether or not the node has the lease. Retention keeps the facts
 * after the watermark. Only in a ledger that several nodes share. */
struct ledger_facts_publish {
    struct ledger_record record;
    str topic;
    struct uuid node;
    int64_t lease_ms;
    bool stops;                 /* releases the lease, and does not take it */
    struct sale_mark published; /* all facts up to this one are in the topic; zeroed: not known */
    bool is_ours;               /* out: the node has the lease */
    struct sale_mark mark;      /* out, if it has: the watermark; zeroed: before all facts */
};

/* Asked, not submitted: rows of the audit table, newest first; perhaps fewer than `limit`, when
 * they are large. */
struct ledger_audit_page {
    struct ledger_record record;
    int64_t before; /* only rows with a lower id; 0: from the newest */
    int64_t limit;
    struct buf json; /* out: a JSON array; buf_deinit when done */
    int64_t next;    /* out: `before` of the next page; 0: there is none */
};

/* One invariant, checked. `examples` names a few of the violations. */
struct ledger_finding {
    str invariant;
    int64_t checked;
    int64_t violations;
    int64_t overdue; /* holds past their time that have not been ended yet */
    str examples;
};

struct ledger_health {
    bool writable;         /* the last batch did not fail for disk or connection */
    bool read_only;        /* why it is not writable: the database server takes no writes */
    int64_t queue_depth;   /* records submitted and not yet committed */
    int64_t wal_bytes;     /* of the WAL, not checkpointed yet; 0 where there is no WAL */
    int64_t open_requests; /* undecided; 0 where they are not counted */
};

/* A live entry, as the ledger has it. */
struct ledger_entry {
    int64_t event_key;
    uint64_t seq;
    str user; /* valid during the call */
    unsigned lane;
    enum entry_status status;
    int64_t joined_ms;
    int64_t expires_ms;
};

/* The functions that ledger_load calls, in this order: on_event for every event, in order of its
 * key; on_totals for every event with a queue; on_entry for every live entry, in order of event and
 * number; on_queue for every event; on_reservation for every live reservation, in
 * order of its id; on_sale; on_mark. A function that is NULL is not called, and what is only needed
 * for it is not read. */
struct ledger_reader {
    void (*on_event)(void *to, struct event *e); /* handed over */
    /* entered, admitted, completed, left, expired and the waits; the rest is 0. Counts all rows. */
    void (*on_totals)(void *to, int64_t event_key, const struct queue_counts *totals);
    void (*on_entry)(void *to, const struct ledger_entry *e);
    void (*on_queue)(void *to, int64_t event_key, uint64_t highest_seq); /* ever given out, or 0 */
    void (*on_reservation)(void *to, const struct reservation *r);       /* valid during the call */
    /* For boards: the live reservations plus these sales add up to what was sold up to a watermark,
     * after which ledger_sales_read continues. A change after the watermark is passed on with the
     * opposite kind, and with its own mark. For boards and seats: one SALE_SOLD_OUT for every event
     * that had no seat left once. on_mark is called only together with on_sale. */
    void (*on_sale)(void *to, const struct sale *s);
    void (*on_mark)(void *to, const struct sale_mark *mark);
    const struct sale_mark *mark; /* NULL: the latest possible one */
    void *to;
};

struct ledger;

/* Settings in which the nodes of a cluster must agree. */
struct cluster_settings {
    const char *secret;          /* fingerprint of the key that signs entry tokens */
    const char *secret_previous; /* of the other one that is accepted; empty: none */
    const char *time_zone;       /* of rankings; empty: this node has none */
    const char *users_auth;      /* how users are identified */
    /* Fingerprints of the other keys; empty: none. A difference is logged and not refused, because
     * keys are replaced node by node. */
    const char *pass_key;
    const char *admin_key;
    const char *users_key;
    const char *shop_key;
};

/* A ledger has a random number from when it is created, which entry tokens carry. A restore from a
 * backup begins the next generation: then places of the time between the backup and the restore are
 * unknown, and their tokens must not be taken for those of other users. */
struct ledger_generation {
    uint32_t number;
    uint64_t first_seq; /* queues give out no lower sequence number; 0: it was never restored */
};

struct ledger_ops {
    enum err (*submit)(struct ledger *l, struct ledger_record *r);
    enum err (*ask)(struct ledger *l, struct ledger_record *r);
    enum err (*load)(struct ledger *l, const struct ledger_reader *reader);
    enum err (*check)(struct ledger *l, bool server_runs,
                      void (*on_finding)(void *to, const struct ledger_finding *f), void *to);
    uint32_t (*epoch)(struct ledger *l);
    struct ledger_generation (*generation)(struct ledger *l);
    enum err (*join)(struct ledger *l, const struct cluster_settings *own, struct buf *why);
    void (*leave)(struct ledger *l, const struct uuid *node);
    enum err (*incarnation)(struct ledger *l, struct hot_incarnation *out);
    enum err (*rebuild_begin)(struct ledger *l, const struct hot_incarnation *before,
                              uint32_t *epoch, bool *is_ours);
    enum err (*rebuild_renew)(struct ledger *l);
    enum err (*rebuild_end)(struct ledger *l, const struct hot_incarnation *incarnation);
    void (*health)(struct ledger *l, struct ledger_health *out);
    void (*close)(struct ledger *l);
};

struct ledger {
    const struct ledger_ops *ops;
};

/* For writes. On a worker's thread. */
static inline enum err ledger_submit(struct ledger *l, struct ledger_record *r) {
    return l->ops->submit(l, r);
}

/* For questions, which are answered concurrently with writes. On a worker's thread. */
static inline enum err ledger_ask(struct ledger *l, struct ledger_record *r) {
    return l->ops->ask(l, r);
}

/* Reads everything that is live, in one snapshot, and passes it on as it is read: there may be
 * millions of entries. Recovery, reconciling and the recount of boards all read the ledger with
 * this function. Blocks. */
static inline enum err ledger_load(struct ledger *l, const struct ledger_reader *reader) {
    return l->ops->load(l, reader);
}

/* Checks the invariants of docs/architecture.md that the ledger alone can show. Blocks. While
 * `server_runs`, a hold long past its time is a violation; else it is only overdue. */
static inline enum err ledger_check(struct ledger *l, bool server_runs,
                                    void (*on_finding)(void *, const struct ledger_finding *),
                                    void *to) {
    return l->ops->check(l, server_runs, on_finding, to);
}

/* A number that grows each time a ledger is opened for writing; fences of locks contain it. 1 to
 * EPOCH_MAX; 0 in a ledger that is only read. From any thread. */
static inline uint32_t ledger_epoch(struct ledger *l) {
    return l->ops->epoch(l);
}

/* The generation in which the ledger was opened for writing; zeroes in one that is only read. From
 * any thread. */
static inline struct ledger_generation ledger_generation(struct ledger *l) {
    if (l->ops->generation == NULL) return (struct ledger_generation){0};
    return l->ops->generation(l);
}

/* Makes this process a node of the cluster until it ends. CONFLICT, with the reason in `why`: its
 * settings contradict those of the running nodes. If no node runs, its settings become the
 * cluster's. Blocks; does nothing in a ledger that belongs to one process. */
static inline enum err ledger_join(struct ledger *l, const struct cluster_settings *own,
                                   struct buf *why) {
    return l->ops->join == NULL ? ERR_OK : l->ops->join(l, own, why);
}

/* The node (of ledger_node_report) stops, so other nodes no longer wait for its reports. Blocks for
 * a moment; does nothing when the ledger cannot be reached or belongs to one process. */
static inline void ledger_leave(struct ledger *l, const struct uuid *node) {
    if (l->ops->leave != NULL) l->ops->leave(l, node);
}

/* Where several nodes share the hot store: the incarnation in which it should be, and the name of
 * the ledger. An empty identity: a node is rebuilding it, or died doing so. This function and the
 * next three block; one thread at a time may call them, and only in a ledger that nodes share. */
static inline enum err ledger_incarnation(struct ledger *l, struct hot_incarnation *out) {
    return l->ops->incarnation(l, out);
}

/* Begins the next incarnation, unless `before` is no longer the last one, or another node is
 * rebuilding the store right now: then *is_ours is false. Returns when all records of earlier
 * incarnations have ended, and no more of them are accepted. The rebuild belongs to this node until
 * ledger_rebuild_end, or until this node stops or is silent for about ten seconds. */
static inline enum err ledger_rebuild_begin(struct ledger *l, const struct hot_incarnation *before,
                                            uint32_t *epoch, bool *is_ours) {
    return l->ops->rebuild_begin(l, before, epoch, is_ours);
}

/* Keeps the rebuild for this node. Fails when it no longer belongs to this node, or when that is
 * unknown. If another node has begun one, the store and ledger_rebuild_end refuse what this node
 * still writes. */
static inline enum err ledger_rebuild_renew(struct ledger *l) {
    return l->ops->rebuild_renew(l);
}

/* The store is rebuilt; or, with an empty identity, it could not be. RECOVERING: another
 * incarnation has begun since. */
static inline enum err ledger_rebuild_end(struct ledger *l,
                                          const struct hot_incarnation *incarnation) {
    return l->ops->rebuild_end(l, incarnation);
}

/* From any thread. */
static inline void ledger_health(struct ledger *l, struct ledger_health *out) {
    l->ops->health(l, out);
}

/* Writes the submitted records, hands back every record, and frees the adapter. Workers that still
 * have records there must run until it returns. */
static inline void ledger_close(struct ledger *l) {
    l->ops->close(l);
}

#endif
