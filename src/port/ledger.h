/*
 * ledger: the contract of the durable truth. What an adapter promises:
 *
 *  - A record is one domain step. It is written whole or not at all, together with its audit row,
 *    in the order of submission, and its `task.run` is called on the submitting worker only after
 *    the transaction that holds it is on disk (fsync included). Only acts on events, holds of which
 *    the ledger itself decides (optimistic, pessimistic, distributed-lock) and records that
 *    wait for a lock may be written beside the rest, in no order with it.
 *  - A refusal (in use, another request was first) is a result, and changes nothing.
 *  - A failure of the disk or the connection is a result too (ERR_LEDGER_…): nothing of that
 *    record is in the ledger, and later records succeed again when the cause is gone. Only after
 *    LEDGER_UNKNOWN it may be there: the connection broke at the commit, and the server could not
 *    be asked in time whether it committed.
 *  - A record that the hot store decided first (enter, admit, some holds) carries the epoch of the
 *    incarnation that decided. Where several nodes share the hot store, a record of an older
 *    incarnation than the ledger has given out is refused with RECOVERING. Epoch 0 is not checked.
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
#include "core/queue.h"
#include "core/reservation.h"
#include "core/sale.h"
#include "core/seat_map.h"
#include "port/hot.h"

enum ledger_kind {
    /* submitted */
    LEDGER_EVENT_PUT,
    LEDGER_EVENT_DELETE,
    LEDGER_ENTER,
    LEDGER_ENTER_VOID,
    LEDGER_ADMIT,
    LEDGER_END,
    LEDGER_HOLD,
    LEDGER_HOLD_VOID,
    LEDGER_CONFIRM,
    LEDGER_CANCEL,
    LEDGER_EXPIRE,
    LEDGER_FACTS_RELAYED,
    LEDGER_NODE_REPORT,
    LEDGER_NODES_DROP,
    /* asked */
    LEDGER_ENTRY_GET,
    LEDGER_RESERVATION_GET,
    LEDGER_SEATS_READ,
    LEDGER_IDEMPOTENCY_GET,
    LEDGER_EVENTS_READ,
    LEDGER_WAITING_READ,
    LEDGER_FACTS_READ,
    LEDGER_SALES_READ,
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
    /* Taken even when the queue is full: for what the server itself must write, and is bounded. */
    bool always;
    int64_t since_ns; /* the adapter's own: steady, when it was taken */
};

/* What the audit table says of an administrative act. */
struct audit_note {
    str actor;   /* by whom: "admin", "demo" */
    str act;     /* what: "event.put" */
    str subject; /* on what: "CONCERT/1" */
    str detail;  /* JSON: the change as it was asked for */
};

/* Makes the event be exactly `wanted`, and creates it if need be; or, with `edit`, what that makes
 * of the event in force (EVENT_NOT_FOUND when there is none). Refused with SECTION_IN_USE when a
 * section that has live reservations would vanish, shrink below its highest live seat, or change
 * between mode `seat` and the others. */
struct ledger_event_put {
    struct ledger_record record;
    const struct event *wanted;
    /* Changes *e, which may move, or refuses: then its answer is the result. Runs on the ledger's
     * thread inside the transaction, so edits of one event follow each other and none is lost;
     * perhaps more than once. It touches nothing but what belongs to the record. */
    enum err (*edit)(struct ledger_event_put *put, struct event **e);
    str type; /* with `edit`: which event */
    str id;
    int64_t now_ms;
    struct audit_note note;
    struct event *stored;                  /* out, on OK: what is in force now */
    bool created;                          /* out */
    char in_use[SECTION_ID_BYTES_MAX + 1]; /* out: which section refused */
};

/* Refused with EVENT_NOT_FOUND, or EVENT_IN_USE while a reservation is live. */
struct ledger_event_delete {
    struct ledger_record record;
    str type;
    str id;
    int64_t now_ms;
    struct audit_note note;
    int64_t key;     /* out: of the event */
    int64_t version; /* out: higher than any that the event had */
};

/* A new place in an event's queue, WAITING or ACTIVE. The same again is OK and changes nothing;
 * CONFLICT when its number is another's, or it was undone already. `closes` (0: none) is an entry
 * of the same user whose time was over and that ends with this: an ACTIVE row past its time is
 * EXPIRED to every reader anyway. A deleted event still takes entries (one may have been under
 * way); no client sees them. */
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
};

/* Undoes an enter that no client knows of: unless the entry is there, its number is taken by a row
 * that is VOID, so that an enter that comes late is refused. OK either way. */
struct ledger_enter_void {
    struct ledger_record record;
    int64_t event_key;
    uint64_t seq;
    int64_t now_ms;
    bool voided; /* out: the entry is not there and never will be */
};

/* Those of the entries that are WAITING become ACTIVE; `kept` says which are so now, until that
 * time, by this record or by one before it that said the same. */
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
 * says which. A user who leaves gives back what is held: those of `cancels` that are HELD, in
 * this event and by `user`, become CANCELLED, whether or not the entry was live; `cancelled`
 * says which. */
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

/* A key that makes a repeated hold have one effect: its row, (user, route, key), is written in the
 * hold's own transaction and names the reservation. The same key and digest again: OK, `replayed`,
 * with that reservation's id, and nothing changes, whatever else the record says. Another digest:
 * IDEMPOTENCY_MISMATCH. A row lasts a day, and then until retention removes it; the reservation is
 * kept as long. */
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
 *                      the strategy is not for that mode (strategy_suits): it has changed since
 *   LIMIT_EXCEEDED     the user would have more live seats of the event than its max_per_user
 *   NOT_ACTIVE         the entry is not the user's, not ACTIVE, or past its time at created_ms
 *   LOCK_LOST          a seat was written under a higher fence than the one it has here
 *   CONFLICT           a seat's version is not the one that was expected
 *   SEAT_TAKEN         a seat is not AVAILABLE, or the section does not have it
 * and for the last three, `refused` tells every seat for which that is so. All seats or none.
 * The same id, user and seats once more is OK and changes nothing; `status` says what has become of
 * it. A hold that leaves the event without a free seat also writes the fact SOLD_OUT.
 */
struct ledger_hold {
    struct ledger_record record;
    const struct reservation *wanted;
    const int64_t *versions; /* NULL, or what each seat's version must be; a new seat's is 0 */
    const int64_t *fences;   /* NULL: written under no lock; or the fence of each seat's lock */
    struct idempotency *idempotency; /* NULL: no key was sent */
    uint32_t epoch;
    bool held;                      /* out: this record did it */
    bool sold_out;                  /* out: and the event had no seat left then */
    enum reservation_status status; /* out, on OK and not replayed */
    uint32_t *refused;              /* out, in order; room for as many as are wanted */
    size_t refused_count;
};

/* Undoes a hold that no client knows of: unless the reservation is there, its id is taken by a row
 * that is VOID, so that a hold that comes late is refused. OK either way. */
struct ledger_hold_void {
    struct ledger_record record;
    struct uuid id;
    int64_t event_key;
    int64_t section_key;
    int64_t now_ms;
    bool voided; /* out: the reservation is not there and never will be */
};

/*
 * HELD becomes CONFIRMED, by its user and before its time; its entry, if it is still ACTIVE,
 * becomes COMPLETED unless the user holds more in the event. On a CONFIRMED one: OK, and nothing
 * changes. Refused with RESERVATION_NOT_FOUND, NOT_YOURS, RESERVATION_ENDED (it is CANCELLED),
 * HOLD_EXPIRED. One that is HELD past its time becomes EXPIRED with that: the one refusal that
 * changes something.
 */
struct ledger_confirm {
    struct ledger_record record;
    struct uuid id;
    str user;
    int64_t now_ms;
    char code[CONFIRMATION_CODE_CHARS + 1]; /* for the one that this confirms */
    bool confirmed;                         /* out: this record did it */
    bool completed;                         /* out: and its entry became COMPLETED */
    bool expired;                           /* out: this record made it EXPIRED */
    /* out: as it is now; NULL when there is none, or it is not the user's. mem_free when done. */
    struct reservation *stored;
};

/* HELD or CONFIRMED becomes CANCELLED, by its user. On a CANCELLED one: OK, and nothing changes.
 * Refused with RESERVATION_NOT_FOUND, NOT_YOURS, HOLD_EXPIRED; one that is HELD past its time
 * becomes EXPIRED with that, as in ledger_confirm. */
struct ledger_cancel {
    struct ledger_record record;
    struct uuid id;
    str user;
    int64_t now_ms;
    bool cancelled;             /* out: this record did it */
    bool expired;               /* out: this record made it EXPIRED */
    struct reservation *stored; /* out: as in ledger_confirm */
};

/* Those of the reservations that are HELD and past their time become EXPIRED; `expired` says which.
 * One row that can't be read fails them all: the caller asks again singly. */
struct ledger_expire {
    struct ledger_record record;
    int64_t now_ms;
    const struct uuid *ids;
    size_t count;
    bool *expired; /* out, one for each */
};

/* Asked, not submitted: one entry, also one that has ended. NONE when the ledger does not know it,
 * or no longer. */
struct ledger_entry_get {
    struct ledger_record record;
    int64_t event_key;
    uint64_t seq;
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

/* Where an event was deleted. */
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
    int64_t mark;          /* out: a higher one after any change; never 0. The same: that is all */
    struct event **events; /* out: mem_free each, and the array */
    size_t count;
    struct removed_event *removed; /* out: mem_free when done */
    size_t removed_count;
    struct uuid node;     /* as in ledger_node_report */
    int64_t node_applied; /* out: what that node has reported; 0: it is not in the table */
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
    bool was_there; /* out, unless it registers: it is in the table, and was all the while */
};

/* Nodes that have not applied the change with this version go out of the table. */
struct ledger_nodes_drop {
    struct ledger_record record;
    int64_t version;
    int64_t count;                     /* out: of those that went */
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

/* These facts have reached whom they concern. The same once more is OK. */
struct ledger_facts_relayed {
    struct ledger_record record;
    int64_t now_ms;
    const int64_t *ids;
    size_t count;
};

/* Asked, not submitted: sales behind the watermark, in order. An open transaction holds back what
 * is behind it, so that no sale ever comes before a watermark that was returned. A reservation that
 * retention has removed is left out: it was taken and given back long ago. */
struct ledger_sales_read {
    struct ledger_record record;
    struct sale_mark mark; /* out too: that of the last sale that is returned */
    struct sale *sales;    /* out: room for `max` */
    size_t max;
    size_t count; /* out */
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
    bool writable;       /* the last batch did not fail for disk or connection */
    bool read_only;      /* why it is not writable: the database server takes no writes */
    int64_t queue_depth; /* records submitted and not yet committed */
    int64_t wal_bytes;   /* what a checkpoint has not folded in yet; 0 where there is no WAL */
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

/* What ledger_load calls, in this order: for every event; then for every event with a queue its
 * highest number, and what has become of all its entries; then the live entries of all, in order of
 * event and number; then every live reservation, in order of its id. A function that is NULL is not
 * called. */
struct ledger_reader {
    void (*on_event)(void *to, struct event *e); /* handed over */
    void (*on_queue)(void *to, int64_t event_key, uint64_t highest_seq);
    /* entered, admitted, completed, left, expired and the waits; the rest is 0. Counts all rows. */
    void (*on_totals)(void *to, int64_t event_key, const struct queue_counts *totals);
    void (*on_entry)(void *to, const struct ledger_entry *e);
    void (*on_reservation)(void *to, const struct reservation *r); /* valid during the call */
    /* What boards begin with: the live reservations and these are, in sum, what was sold up to a
     * watermark, behind which sales_read goes on. Changes behind it are passed on reversed, with
     * its watermark. Both or none. */
    void (*on_sale)(void *to, const struct sale *s);
    void (*on_mark)(void *to, const struct sale_mark *mark);
    const struct sale_mark *mark; /* NULL: one as late as can be */
    void *to;
};

struct ledger;

/* Settings in which the nodes of a cluster must agree. */
struct cluster_settings {
    const char *secret;          /* fingerprint of the key that signs entry tokens */
    const char *secret_previous; /* of the other one that is accepted; empty: none */
    const char *time_zone;       /* of rankings; empty: this node keeps none */
    /* Fingerprints of the other keys; empty: none. One that differs is logged, and no reason to
     * refuse: they are exchanged node by node. */
    const char *pass_key;
    const char *admin_key;
    const char *users_key;
};

struct ledger_ops {
    enum err (*submit)(struct ledger *l, struct ledger_record *r);
    enum err (*ask)(struct ledger *l, struct ledger_record *r);
    enum err (*load)(struct ledger *l, const struct ledger_reader *reader);
    enum err (*check)(struct ledger *l, bool server_runs,
                      void (*on_finding)(void *to, const struct ledger_finding *f), void *to);
    uint32_t (*epoch)(struct ledger *l);
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

/* For reads, which go beside the writer. On a worker's thread. */
static inline enum err ledger_ask(struct ledger *l, struct ledger_record *r) {
    return l->ops->ask(l, r);
}

/* All that lives, in one snapshot. Blocks: for the start. */
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

/* A number that is higher each time a ledger is opened for writing: locks and their fences are of
 * one such time. 1 to EPOCH_MAX; 0 in a ledger that is only read. From any thread. */
static inline uint32_t ledger_epoch(struct ledger *l) {
    return l->ops->epoch(l);
}

/* This process is one of the cluster's nodes from now on, until it ends. CONFLICT, and `why`: its
 * settings don't go together with those of the nodes that run. Where none runs, its settings are
 * the cluster's. Blocks; NULL in a ledger that is one process's own. */
static inline enum err ledger_join(struct ledger *l, const struct cluster_settings *own,
                                   struct buf *why) {
    return l->ops->join == NULL ? ERR_OK : l->ops->join(l, own, why);
}

/* The node (of ledger_node_report) stops, so other nodes no longer wait for its reports. Blocks for
 * a moment; does nothing when the ledger cannot be reached or belongs to one process. */
static inline void ledger_leave(struct ledger *l, const struct uuid *node) {
    if (l->ops->leave != NULL) l->ops->leave(l, node);
}

/* Where several nodes share the hot store: in which incarnation it should be, and the ledger's
 * name. An empty identity: a node is rebuilding it, or died doing so. These four block, one at a
 * time; NULL in a ledger of one process. */
static inline enum err ledger_incarnation(struct ledger *l, struct hot_incarnation *out) {
    return l->ops->incarnation(l, out);
}

/* Begins the next incarnation, unless `before` is no longer the last one, or another node is
 * rebuilding the store right now: then it is not ours. Returns when all records of the incarnations
 * before have ended, and no more of them are taken. The rebuild is this node's until rebuild_end,
 * or until this node stops, or is silent for some ten seconds. */
static inline enum err ledger_rebuild_begin(struct ledger *l, const struct hot_incarnation *before,
                                            uint32_t *epoch, bool *is_ours) {
    return l->ops->rebuild_begin(l, before, epoch, is_ours);
}

/* The rebuild goes on. Fails when it is no longer this node's, or that is not known: then the store
 * and rebuild_end refuse what this node still writes. */
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

/* Writes what was submitted, hands back every record, and frees the adapter. Workers that
 * still have records there must run until it returns. */
static inline void ledger_close(struct ledger *l) {
    l->ops->close(l);
}

#endif
