/* Token buckets of addresses in sets of fixed size (rate_limit.h). */
#include "core/rate_limit.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* Buckets that wait to be shared. Others are noted when something is taken from them again. */
#define DUE_MAX 32

struct bucket {
    struct limit_key key; /* bits 0: free */
    bool is_due;          /* in the list of those to be shared; belongs to this place, not to key */
    int64_t full_ns[LIMIT_KINDS];
    int64_t unshared_ns[LIMIT_KINDS];
    int64_t since_ns[LIMIT_KINDS]; /* when the first of that was taken */
    int64_t reported_ns;           /* of a block: when a refusal was last reported; 0: never */
};

struct rate_table {
    struct limit_rules rules;
    uint64_t seed;
    bool shares;
    size_t sets[LIMIT_SCOPES];
    struct bucket *buckets[LIMIT_SCOPES]; /* RATE_TABLE_SET for each set */
    struct bucket *due[DUE_MAX];
    size_t due_count;
};

/* ---- clients ---- */

static struct limit_key limit_key_of(uint64_t value, unsigned width, unsigned bits) {
    unsigned rest = width - bits;
    return (struct limit_key){.prefix = value >> rest << rest, .bits = (uint8_t)bits};
}

struct limit_client limit_client_v4(const unsigned char a[4]) {
    uint64_t value = (uint64_t)a[0] << 24 | (uint64_t)a[1] << 16 | (uint64_t)a[2] << 8 | a[3];
    return (struct limit_client){.of = {limit_key_of(value, 32, 32), limit_key_of(value, 32, 24)}};
}

struct limit_client limit_client_v6(const unsigned char a[16]) {
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++) value = value << 8 | a[i];
    return (struct limit_client){.of = {limit_key_of(value, 64, 64), limit_key_of(value, 64, 56)}};
}

uint64_t limit_key_hash(const struct limit_key *key, uint64_t seed) {
    uint64_t h = (key->prefix ^ seed) + key->bits * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

/* ---- rules ---- */

/* The capacities of an address and of its block take the same time to become full. */
static void limit_rule_set(struct limit_rule of[LIMIT_SCOPES], int64_t unit_ns, int64_t burst_units,
                           int64_t factor) {
    if (unit_ns == 0) return;
    of[LIMIT_ADDRESS] = (struct limit_rule){unit_ns, unit_ns * burst_units};
    of[LIMIT_BLOCK] =
        (struct limit_rule){unit_ns / factor, unit_ns / factor * (burst_units * factor)};
}

struct limit_rules limit_rules_of(const struct limit_settings *s) {
    struct limit_rules r = {0};
    assert(s->block_factor > 0);
    int64_t place_ns = s->places_per_minute == 0 ? 0 : INT64_C(60000000000) / s->places_per_minute;
    int64_t request_ns =
        s->requests_per_second == 0 ? 0 : INT64_C(1000000000) / s->requests_per_second;
    limit_rule_set(r.of[LIMIT_PLACES], place_ns, s->places_burst, s->block_factor);
    limit_rule_set(r.of[LIMIT_REQUESTS], request_ns / LIMIT_REQUEST_UNITS,
                   s->requests_burst * LIMIT_REQUEST_UNITS, s->block_factor);
    return r;
}

bool limit_rules_any(const struct limit_rules *r) {
    return r->of[LIMIT_PLACES][LIMIT_ADDRESS].cost_ns > 0 ||
           r->of[LIMIT_REQUESTS][LIMIT_ADDRESS].cost_ns > 0;
}

/* ---- the table ---- */

struct rate_table *rate_table_new(const struct limit_rules *rules, size_t address_sets,
                                  size_t block_sets, uint64_t seed, bool shares) {
    struct rate_table *t = mem_new(sizeof *t);
    t->rules = *rules;
    t->seed = seed;
    t->shares = shares;
    t->sets[LIMIT_ADDRESS] = address_sets;
    t->sets[LIMIT_BLOCK] = block_sets;
    for (int s = 0; s < LIMIT_SCOPES; s++)
        t->buckets[s] = mem_new(t->sets[s] * RATE_TABLE_SET * sizeof *t->buckets[s]);
    return t;
}

void rate_table_free(struct rate_table *t) {
    for (int s = 0; s < LIMIT_SCOPES; s++) mem_free(t->buckets[s]);
    mem_free(t);
}

static struct bucket *bucket_set(const struct rate_table *t, enum limit_scope scope,
                                 const struct limit_key *key) {
    size_t set = limit_key_hash(key, t->seed) % t->sets[scope];
    return t->buckets[scope] + set * RATE_TABLE_SET;
}

static bool bucket_has_key(const struct bucket *b, const struct limit_key *key) {
    return b->key.prefix == key->prefix && b->key.bits == key->bits;
}

static struct bucket *bucket_find(const struct rate_table *t, enum limit_scope scope,
                                  const struct limit_key *key) {
    struct bucket *set = bucket_set(t, scope, key);
    for (size_t i = 0; i < RATE_TABLE_SET; i++)
        if (bucket_has_key(&set[i], key)) return &set[i];
    return NULL;
}

/* When the last of its kinds is full; a free bucket comes first. */
static int64_t bucket_full_ns(const struct bucket *b) {
    if (b->key.bits == 0) return INT64_MIN;
    int64_t last = b->full_ns[0];
    for (int k = 1; k < LIMIT_KINDS; k++)
        if (b->full_ns[k] > last) last = b->full_ns[k];
    return last;
}

static struct bucket *bucket_make(const struct rate_table *t, enum limit_scope scope,
                                  const struct limit_key *key) {
    struct bucket *set = bucket_set(t, scope, key);
    struct bucket *soonest = &set[0];
    for (size_t i = 1; i < RATE_TABLE_SET; i++)
        if (bucket_full_ns(&set[i]) < bucket_full_ns(soonest)) soonest = &set[i];
    *soonest = (struct bucket){.key = *key, .is_due = soonest->is_due};
    return soonest;
}

static int64_t bucket_debt_ns(const struct bucket *b, enum limit_kind kind, int64_t now_ns) {
    if (b == NULL || b->full_ns[kind] <= now_ns) return 0;
    return b->full_ns[kind] - now_ns;
}

static void bucket_note_due(struct rate_table *t, struct bucket *b, enum limit_kind kind,
                            const struct limit_rule *rule) {
    if (!t->shares || b->is_due || t->due_count == DUE_MAX) return;
    if (b->unshared_ns[kind] < rule->capacity_ns / LIMIT_SHARE_PART) return;
    b->is_due = true;
    t->due[t->due_count++] = b;
}

static void bucket_charge(struct rate_table *t, struct bucket *b, enum limit_kind kind,
                          const struct limit_rule *rule, int64_t units, int64_t now_ns) {
    int64_t cost_ns = units * rule->cost_ns;
    b->full_ns[kind] = now_ns + bucket_debt_ns(b, kind, now_ns) + cost_ns;
    if (b->unshared_ns[kind] <= 0) b->since_ns[kind] = now_ns;
    b->unshared_ns[kind] += cost_ns;
    bucket_note_due(t, b, kind, rule);
}

static struct limit_verdict bucket_refuse(struct bucket *block, int64_t wait_ns,
                                          enum limit_scope by, int64_t now_ns) {
    struct limit_verdict v = {.wait_ns = wait_ns, .by = by, .begins = true};
    if (block == NULL) return v;
    v.begins = block->reported_ns == 0 || now_ns - block->reported_ns >= LIMIT_REPORT_NS;
    if (v.begins) block->reported_ns = now_ns;
    return v;
}

struct limit_verdict rate_table_take(struct rate_table *t, const struct limit_client *c,
                                     enum limit_kind kind, int64_t units, int64_t now_ns) {
    struct bucket *found[LIMIT_SCOPES];
    int64_t wait_ns = 0;
    enum limit_scope by = LIMIT_ADDRESS;
    const struct limit_rule *rules = t->rules.of[kind];
    assert(units > 0 && c->of[LIMIT_ADDRESS].bits > 0);
    if (rules[LIMIT_ADDRESS].cost_ns == 0) return (struct limit_verdict){0};
    for (int s = 0; s < LIMIT_SCOPES; s++) {
        found[s] = bucket_find(t, (enum limit_scope)s, &c->of[s]);
        int64_t over_ns = bucket_debt_ns(found[s], kind, now_ns) + units * rules[s].cost_ns -
                          rules[s].capacity_ns;
        if (over_ns <= wait_ns) continue;
        wait_ns = over_ns;
        by = (enum limit_scope)s;
    }
    if (wait_ns > 0) return bucket_refuse(found[LIMIT_BLOCK], wait_ns, by, now_ns);
    for (int s = 0; s < LIMIT_SCOPES; s++) {
        if (found[s] == NULL) found[s] = bucket_make(t, (enum limit_scope)s, &c->of[s]);
        bucket_charge(t, found[s], kind, &rules[s], units, now_ns);
    }
    return (struct limit_verdict){0};
}

void rate_table_give_back(struct rate_table *t, const struct limit_client *c, enum limit_kind kind,
                          int64_t units, int64_t now_ns) {
    for (int s = 0; s < LIMIT_SCOPES; s++) {
        struct bucket *b = bucket_find(t, (enum limit_scope)s, &c->of[s]);
        if (b == NULL) continue; /* it was forgotten */
        int64_t debt_ns = bucket_debt_ns(b, kind, now_ns);
        int64_t back_ns = units * t->rules.of[kind][s].cost_ns;
        if (back_ns > debt_ns) back_ns = debt_ns; /* the rest was given back by time */
        b->full_ns[kind] -= back_ns;
        b->unshared_ns[kind] -= back_ns;
    }
}

/* ---- sharing ---- */

size_t rate_table_collect(struct rate_table *t, struct limit_spend *out, size_t max) {
    size_t count = 0;
    while (t->due_count > 0 && count + LIMIT_KINDS <= max) {
        struct bucket *b = t->due[--t->due_count];
        b->is_due = false;
        for (int k = 0; k < LIMIT_KINDS; k++) {
            if (b->unshared_ns[k] == 0) continue;
            out[count++] =
                (struct limit_spend){b->key, (enum limit_kind)k, b->unshared_ns[k], b->since_ns[k]};
            b->unshared_ns[k] = 0;
        }
    }
    return count;
}

/* What this node has taken in the meantime is not part of the debt yet. A debt never becomes less
 * than this node's own: the store may have lost some. */
void rate_table_learn(struct rate_table *t, const struct limit_key *key, enum limit_kind kind,
                      int64_t debt_ns, int64_t now_ns) {
    enum limit_scope scope = key->bits == 32 || key->bits == 64 ? LIMIT_ADDRESS : LIMIT_BLOCK;
    struct bucket *b = bucket_find(t, scope, key);
    if (b == NULL) return;
    if (debt_ns > LIMIT_DEBT_NS_MAX) debt_ns = LIMIT_DEBT_NS_MAX;
    int64_t full_ns = now_ns + debt_ns + b->unshared_ns[kind];
    if (full_ns > b->full_ns[kind]) b->full_ns[kind] = full_ns;
}
