/* The limits on arrival in memory: core/rate_limit in tables, each under its lock. */
#include "hot/memory_limits.h"

#include <assert.h>
#include <pthread.h>
#include <sys/random.h>

#include "base/list.h"
#include "base/mem.h"

#define TABLES 64

struct limits_table {
    pthread_mutex_t lock;
    struct rate_table *buckets; /* under lock */
};

struct memory_limits {
    struct limits limits;
    uint64_t seed; /* random, so that no client can choose addresses of one set */
    size_t next;   /* the table that is collected first */
    struct limits_table tables[TABLES];
};

static struct memory_limits *memory_of_limits(struct limits *l) {
    return CONTAINER_OF(l, struct memory_limits, limits);
}

/* By the block, so that an address and its block are in one table. */
static struct limits_table *limits_table_of(struct memory_limits *m, struct limit_key key) {
    if (key.bits == 32) key = (struct limit_key){key.prefix & ~UINT64_C(0xff), 24};
    if (key.bits == 64) key = (struct limit_key){key.prefix & ~UINT64_C(0xff), 56};
    return &m->tables[limit_key_hash(&key, ~m->seed) % TABLES];
}

static struct limit_verdict memory_limits_take(struct limits *l, const struct limit_client *c,
                                               enum limit_kind kind, int64_t units,
                                               int64_t now_ns) {
    struct limits_table *t = limits_table_of(memory_of_limits(l), c->of[LIMIT_BLOCK]);
    pthread_mutex_lock(&t->lock);
    struct limit_verdict v = rate_table_take(t->buckets, c, kind, units, now_ns);
    pthread_mutex_unlock(&t->lock);
    return v;
}

static void memory_limits_give_back(struct limits *l, const struct limit_client *c,
                                    enum limit_kind kind, int64_t units, int64_t now_ns) {
    struct limits_table *t = limits_table_of(memory_of_limits(l), c->of[LIMIT_BLOCK]);
    pthread_mutex_lock(&t->lock);
    rate_table_give_back(t->buckets, c, kind, units, now_ns);
    pthread_mutex_unlock(&t->lock);
}

/* There is no other node. */
static void memory_limits_share(struct limits *l, struct limits_share_op *s) {
    (void)l;
    s->result = ERR_OK;
    s->count = 0;
    s->done(s);
}

static const struct limits_ops memory_limits_ops = {
    .take = memory_limits_take, .give_back = memory_limits_give_back, .share = memory_limits_share};

struct memory_limits *memory_limits_new(const struct limit_rules *rules, bool shares) {
    struct memory_limits *m = mem_new(sizeof *m);
    m->limits.ops = &memory_limits_ops;
    ssize_t got = getrandom(&m->seed, sizeof m->seed, 0);
    assert(got == sizeof m->seed);
    for (size_t i = 0; i < TABLES; i++) {
        pthread_mutex_init(&m->tables[i].lock, NULL);
        m->tables[i].buckets =
            rate_table_new(rules, MEMORY_LIMITS_ADDRESSES / TABLES / RATE_TABLE_SET,
                           MEMORY_LIMITS_BLOCKS / TABLES / RATE_TABLE_SET, m->seed, shares);
    }
    return m;
}

void memory_limits_free(struct memory_limits *m) {
    if (m == NULL) return;
    for (size_t i = 0; i < TABLES; i++) {
        rate_table_free(m->tables[i].buckets);
        pthread_mutex_destroy(&m->tables[i].lock);
    }
    mem_free(m);
}

struct limits *memory_limits_port(struct memory_limits *m) {
    return &m->limits;
}

/* Begins with another table each time, so that none is passed over for long. */
size_t memory_limits_collect(struct memory_limits *m, struct limit_spend *out, size_t max) {
    size_t count = 0;
    for (size_t i = 0; i < TABLES; i++) {
        struct limits_table *t = &m->tables[(m->next + i) % TABLES];
        pthread_mutex_lock(&t->lock);
        count += rate_table_collect(t->buckets, out + count, max - count);
        pthread_mutex_unlock(&t->lock);
    }
    m->next = (m->next + 1) % TABLES;
    return count;
}

void memory_limits_learn(struct memory_limits *m, const struct limit_spend *s, int64_t debt_ns,
                         int64_t now_ns) {
    struct limits_table *t = limits_table_of(m, s->key);
    pthread_mutex_lock(&t->lock);
    rate_table_learn(t->buckets, &s->key, s->kind, debt_ns, now_ns);
    pthread_mutex_unlock(&t->lock);
}
