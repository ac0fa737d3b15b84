/* The limits on arrival that nodes share (port/limits.h): each node decides by its own counts, adds
 * what was taken from busy buckets to those in Redis, and learns from the reply what all nodes have
 * taken together. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "hot/memory_limits.h"
#include "hot/redis/internal.h"

/* Buckets in one call, so that the calls behind it do not wait long. */
#define SPENDS_MAX 256

/* What one call shares. */
struct limits_batch {
    struct limits_share_op *op;
    struct redis_store *store;
    struct limit_spend spends[SPENDS_MAX];
};

static struct redis_store *limits_store(struct limits *l) {
    return CONTAINER_OF(l, struct redis_store, limits);
}

static struct limit_verdict redis_limits_take(struct limits *l, const struct limit_client *c,
                                              enum limit_kind kind, int64_t units, int64_t now_ns) {
    return limits_take(memory_limits_port(limits_store(l)->local_limits), c, kind, units, now_ns);
}

static void redis_limits_give_back(struct limits *l, const struct limit_client *c,
                                   enum limit_kind kind, int64_t units, int64_t now_ns) {
    limits_give_back(memory_limits_port(limits_store(l)->local_limits), c, kind, units, now_ns);
}

static void limits_end(struct limits_share_op *op, enum err result) {
    op->result = result;
    op->done(op);
}

/* The debts were those when Redis executed the function; the time since then is not subtracted from
 * them, which makes a node wait for that long in addition. */
static void redis_on_spent(struct call *c, enum err result, const redisReply *reply) {
    struct limits_batch *b = call_free(c);
    struct limits_share_op *op = b->op;
    for (size_t i = 0; result == ERR_OK && i < op->count; i++)
        memory_limits_learn(b->store->local_limits, &b->spends[i],
                            reply_i64(reply_at(reply, i)) * 1000, op->now_ns);
    mem_free(b);
    limits_end(op, result);
}

static void limits_add_key(struct call *c, const struct limit_spend *s) {
    char key[64];
    int len = snprintf(key, sizeof key, "admitone:{limits}:%c:%u:%" PRIx64,
                       s->kind == LIMIT_PLACES ? 'p' : 'r', s->key.bits, s->key.prefix);
    call_add(c, (str){key, (size_t)len});
}

/* Not repeated: it would count twice. */
static void redis_limits_share(struct limits *l, struct limits_share_op *op) {
    struct redis_store *s = limits_store(l);
    struct limits_batch *b;
    op->count = 0;
    if (redis_worker_mine() == NULL) { /* the first tick of a worker that is not attached yet */
        limits_end(op, ERR_HOT_UNAVAILABLE);
        return;
    }
    b = mem_new(sizeof *b);
    b->op = op;
    b->store = s;
    op->count = memory_limits_collect(s->local_limits, b->spends, SPENDS_MAX);
    if (op->count == 0) {
        mem_free(b);
        limits_end(op, ERR_OK);
        return;
    }
    struct call *c = call_new(s, b);
    call_begin(c, "limits_spend", op->count);
    for (size_t i = 0; i < op->count; i++) limits_add_key(c, &b->spends[i]);
    call_add_now(c, op->now_ns / 1000000);
    for (size_t i = 0; i < op->count; i++) {
        call_add_i64(c, b->spends[i].spent_ns / 1000);
        call_add_i64(c, (op->now_ns - b->spends[i].since_ns) / 1000);
    }
    call_send_once(c, redis_on_spent);
}

const struct limits_ops redis_limits_ops = {
    .take = redis_limits_take, .give_back = redis_limits_give_back, .share = redis_limits_share};
