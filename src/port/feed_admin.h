/*
 * feed_admin: what an operator asks of a feed outside the ledger, and does with its dead letters
 * (`admitone feed`). The nodes need not run.
 *
 * A dead letter is open until it is handled: produced again, or dropped. An adapter promises that a
 * letter is marked as handled only after that; a crash between the two leaves it open, and handling
 * it again changes nothing, because a request is decided once, by its id.
 *
 * Every call waits for the feed; false: it could not be asked, and `why` says what to do. One
 * thread. The structs belong to the caller, and what is in them is freed by the functions below.
 */
#ifndef ADMITONE_PORT_FEED_ADMIN_H
#define ADMITONE_PORT_FEED_ADMIN_H

#include "base/buf.h"
#include "base/mem.h"

struct feed_broker {
    char *address;
    bool has_failed; /* it did not answer for a partition that it leads */
};

/* A node that decides requests. */
struct feed_member {
    char *id;
    char *host;
    int partition_count;
};

struct feed_partition {
    int number;
    bool is_known;     /* false: no broker answers for it, and the numbers below are 0 */
    int64_t end;       /* the offset of the next request */
    int64_t committed; /* all before this offset are decided; -1: none is */
    int64_t lag;       /* undecided requests */
    int member;        /* the index of the node that works on it; -1: none */
};

struct feed_status {
    struct feed_broker *brokers;
    size_t broker_count;
    struct feed_partition *partitions;
    size_t partition_count;
    struct feed_member *members;
    size_t member_count;
    char *members_unknown; /* NULL, or why the members are not known */
    size_t dead_letters;   /* open ones */
};

struct dead_letter {
    int64_t id;    /* its offset in the topic of dead letters */
    int64_t at_ms; /* when it was set aside */
    char *reason;
    char *from;       /* "topic/partition/offset" */
    char *request_id; /* NULL: the value cannot be read as a request */
    char *value;      /* its beginning: any bytes */
    size_t value_len;
    size_t value_bytes; /* of the whole value */
};

struct dead_letters {
    struct dead_letter *open; /* in the order of their ids */
    size_t count;
    size_t left_out; /* open ones after those */
};

/* How the handling of a dead letter ended. */
enum dead_letter_end {
    DEAD_LETTER_PRODUCED,   /* it is in the feed again */
    DEAD_LETTER_MARKED,     /* dropped, and not a request: there is nothing to decide */
    DEAD_LETTER_WAS_CLOSED, /* it had been handled before */
    DEAD_LETTER_ABSENT,     /* there is none with this id */
};

#define DEAD_LETTERS_ALL (-1)

struct dead_letter_handling {
    int64_t id; /* or DEAD_LETTERS_ALL: every open one */
    bool drops; /* its request fails; otherwise it is delivered as if it had just been accepted */
    void (*done)(void *to, int64_t id, enum dead_letter_end end); /* for each one */
    void *to;
    struct buf note; /* out: what could not be tidied up; it does no harm. buf_deinit it. */
};

struct feed_admin {
    const struct feed_admin_ops *ops;
    const char *place; /* for messages: the brokers */
    const char *topic; /* of the requests */
    const char *group; /* of the nodes */
};

struct feed_admin_ops {
    bool (*status)(struct feed_admin *a, struct feed_status *out, struct buf *why);
    bool (*list)(struct feed_admin *a, struct dead_letters *out, struct buf *why);
    bool (*handle)(struct feed_admin *a, struct dead_letter_handling *h, struct buf *why);
    void (*close)(struct feed_admin *a);
};

static inline bool feed_admin_status(struct feed_admin *a, struct feed_status *out,
                                     struct buf *why) {
    return a->ops->status(a, out, why);
}

static inline bool feed_admin_list(struct feed_admin *a, struct dead_letters *out,
                                   struct buf *why) {
    return a->ops->list(a, out, why);
}

/* False: `why`; those for which `done` was called are handled all the same. */
static inline bool feed_admin_handle(struct feed_admin *a, struct dead_letter_handling *h,
                                     struct buf *why) {
    return a->ops->handle(a, h, why);
}

static inline void feed_admin_close(struct feed_admin *a) {
    a->ops->close(a);
}

static inline void feed_status_clear(struct feed_status *s) {
    for (size_t i = 0; i < s->broker_count; i++) mem_free(s->brokers[i].address);
    for (size_t i = 0; i < s->member_count; i++) {
        mem_free(s->members[i].id);
        mem_free(s->members[i].host);
    }
    mem_free(s->brokers);
    mem_free(s->partitions);
    mem_free(s->members);
    mem_free(s->members_unknown);
    *s = (struct feed_status){0};
}

static inline void dead_letter_clear(struct dead_letter *l) {
    mem_free(l->reason);
    mem_free(l->from);
    mem_free(l->request_id);
    mem_free(l->value);
}

static inline void dead_letters_clear(struct dead_letters *l) {
    for (size_t i = 0; i < l->count; i++) dead_letter_clear(&l->open[i]);
    mem_free(l->open);
    *l = (struct dead_letters){0};
}

#endif
