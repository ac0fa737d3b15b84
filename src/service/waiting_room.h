/*
 * waiting_room: the use cases of the queue. An enter takes a place in the hot store, writes it to
 * the ledger, and is answered then; an admission is made in the same order. The end of a place is
 * written to the ledger first and then to the hot store; only expiries begin in the hot store.
 *
 * Each use case is one struct in the caller's memory (the request's arena), which stays until
 * `done` is called, on the caller's worker: later, or before the function returns.
 */
#ifndef ADMITONE_SERVICE_WAITING_ROOM_H
#define ADMITONE_SERVICE_WAITING_ROOM_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/token.h"
#include "port/queue.h"
#include "service/degraded_reads.h"
#include "service/repair.h"

struct waiting_room {
    struct ledger *ledger;
    struct queues *queues;
    struct degraded_reads *degraded_reads; /* NULL: the hot store is private to this process, and
                                              can always be asked */
    /* Called on a worker when entries have become ACTIVE or have ended, and that is durable. With a
     * count of 0: the event has become sold out, or is not any more, which concerns all entries. */
    void (*changed)(void *to, int64_t event_key, const uint64_t *seqs, size_t count);
    void *to;

    struct repair_queue repairs; /* of entries that may have ended in the ledger only */

    /* Private. */
    _Atomic int64_t under_way; /* that belong to no request: admissions, expiries, watches */
    _Atomic size_t ticking;    /* ticks of events that have not ended */
    pthread_mutex_t lock;
    struct task_list unwritten; /* under lock: expiries that the ledger could not take */
};

/* `ledger`, `queues` and `changed` are filled in. Listens to the queues. */
void waiting_room_init(struct waiting_room *w);
/* When nothing is under way. */
void waiting_room_deinit(struct waiting_room *w);
/* Whether records are under way that belong to no request. From any thread. */
bool waiting_room_is_busy(struct waiting_room *w);

/* Takes a place. The caller fills in enter.op.event_key, enter.user and enter.lane. */
struct place_enter {
    struct enter_op enter;         /* after OK: its outs, `place` as it is now */
    const struct audit_note *note; /* written with a new place; NULL: nothing to write */
    void (*done)(struct place_enter *e, enum err result);

    /* Private. */
    struct waiting_room *room;
    struct ledger_enter record;
    struct settle_op settle;
    uint64_t seq;
    bool kept;
    int tries;
    int64_t began_ns; /* of the try */
};
void waiting_room_enter(struct waiting_room *w, struct place_enter *e);

/* A token that names a place: the place must be that of the token's user. */
struct place_proof {
    struct token_box *tokens; /* of the worker; NULL: no token names the place */
    uint64_t user_hash;
};

/* Looks at one place: in the hot store, and in the ledger when the hot store does not have it or
 * can't be asked. The caller fills in look.op.event_key, item.seq, item.seen and proof. Status
 * NONE: it is unknown. TOKEN_INVALID: another user has it than the proof's. */
struct place_look {
    struct look_op look;
    struct look_item item;
    struct place_proof proof;
    char user[USER_ID_BYTES_MAX];
    bool degraded; /* out: the hot store could not be asked, and the seats are unknown */
    void (*done)(struct place_look *l, enum err result);

    /* Private. */
    struct waiting_room *room;
    int64_t began_ns; /* 0: it is not timed */
    union {
        struct ledger_entry_get get;
        struct degraded_look degraded_reads;
    };
};
void waiting_room_look(struct waiting_room *w, struct place_look *l);

/* Looks at many places of one event, which were WAITING at the last look. When the hot store can't
 * be asked, they are searched in the ledger's list of WAITING entries, and the status of one that
 * is not there is NONE. */
struct places_watch {
    struct look_op look;  /* op.event_key, op.now_ms, items and count are the caller's */
    const uint8_t *lanes; /* of the items */
    bool degraded;        /* out: as above */
    void (*done)(struct places_watch *l, enum err result);

    /* Private. */
    struct waiting_room *room;
    struct degraded_scan scan;
};
void waiting_room_watch(struct waiting_room *w, struct places_watch *l);

/* Ends a place, as LEFT or COMPLETED. A place that had ended before keeps its status, and the
 * result is OK, too. With it those of `cancels` that are HELD by the user become CANCELLED in the
 * ledger; the caller brings that to the hot store. */
struct place_end {
    int64_t event_key;
    uint64_t seq;
    enum entry_status final;
    str user;
    const struct uuid *cancels;
    size_t cancel_count;
    bool *cancelled; /* out, one for each */
    void (*done)(struct place_end *e, enum err result);

    /* Private. */
    struct waiting_room *room;
    struct ledger_end record;
    struct end_op end;
    struct repair_waiter repair;
    bool ended;
};
void waiting_room_end(struct waiting_room *w, struct place_end *e);
/* The ledger has made the place COMPLETED: the hot store follows, and streams are notified.
 * e->event_key, seq and done are filled in. */
void waiting_room_completed(struct waiting_room *w, struct place_end *e);

typedef void admission_done(void *to, enum err result, size_t admitted);

/* Expires places whose time is over and admits as many as the rules allow, in one event. `done`
 * (may be NULL) gets how many became ACTIVE, when that is durable. */
void waiting_room_tick(struct waiting_room *w, int64_t event_key, admission_done *done, void *to);
/* Writes and settles admissions that a node left pending. When the ledger does not take them they
 * stay pending. */
void waiting_room_finish_admission(struct waiting_room *w, const struct overdue_op *o,
                                   admission_done *done, void *to);
/* The hot store has expired these entries: writes that to the ledger, then settles it in the hot
 * store. */
void waiting_room_expired(struct waiting_room *w, int64_t event_key, int64_t now_ms,
                          const struct entry_change *entries, size_t count);
/* Writes expiries that the ledger could not accept before, and retries repairs. At every tick,
 * before the ticks of its `events`. False: do not tick events now. Either the ledger cannot write,
 * so that the effects would be undone, or earlier ticks have not ended, so that work would pile up.
 */
bool waiting_room_tick_begin(struct waiting_room *w, size_t events);

#endif
