/* The entries of one waiting room by number and by user, and each step of an entry. */
#include "core/queue.h"

#include <assert.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/index.h"
#include "base/mem.h"
#include "core/order.h"

/* Entries with neighbouring numbers share a chunk. */
#define CHUNK_ENTRIES 4096
#define USER_BYTES_MAX UINT8_MAX
/* Weight of the newest interval in the mean of the admission rate. */
#define RATE_WEIGHT 0.2
/* The longest estimate by the rate, when hardly any entries are admitted: 30 days. */
#define ESTIMATE_BY_RATE_S_MAX 2592000

/* Sweeps come with every tick; when none came for longer, time has jumped. */
#define SWEEP_GAP_MS_MAX 2000

/* Skipped numbers that are worth a gap. */
#define GAP_MIN (UINT64_C(1) << 20)

/* Fewer expiries are not worth tidying up. */
#define EXPIRIES_MIN 1024

/* A mean over fewer stays tells nothing. */
#define STAYS_MIN 20

/* Where an entry is: its status, and what of that the ledger does not have yet. */
enum step {
    STEP_NONE,       /* no such entry */
    STEP_ENTERING,   /* WAITING; its enter is pending */
    STEP_WAITING,    /* WAITING */
    STEP_ADMITTING,  /* shown as WAITING; its admission is pending */
    STEP_ACTIVATING, /* ACTIVE at once; its enter is pending */
    STEP_ACTIVE,
    STEP_COMPLETED,
    STEP_LEFT,
    STEP_EXPIRED,
};

static const enum entry_status step_status[] = {
    [STEP_NONE] = ENTRY_NONE,           [STEP_ENTERING] = ENTRY_WAITING,
    [STEP_WAITING] = ENTRY_WAITING,     [STEP_ADMITTING] = ENTRY_WAITING,
    [STEP_ACTIVATING] = ENTRY_ACTIVE,   [STEP_ACTIVE] = ENTRY_ACTIVE,
    [STEP_COMPLETED] = ENTRY_COMPLETED, [STEP_LEFT] = ENTRY_LEFT,
    [STEP_EXPIRED] = ENTRY_EXPIRED,
};

struct entry {
    int64_t joined_ms;
    union {
        int64_t expires_ms; /* from its admission on */
        int64_t promised_s; /* before: the estimate that it was given; -1: none */
    };
    uint32_t name_at; /* its user's name among the names of the chunk */
    uint32_t hash;    /* of the name */
    uint32_t seen_s;  /* since 1970, rounded up */
    uint8_t name_len;
    uint8_t lane;
    uint8_t step; /* enum step */
    bool has_offer;
};
static_assert(sizeof(struct entry) <= 32, "an entry is 32 bytes");

struct chunk {
    struct entry entries[CHUNK_ENTRIES];
    uint32_t live;
    uint32_t names_len;
    uint32_t names_cap;
    char *names; /* one behind the other, those of ended entries too */
};

/* Numbers that were skipped: a restored ledger goes on far above those that it has. */
struct gap {
    uint64_t begin; /* multiples of CHUNK_ENTRIES; no entry has a number from begin on, below end */
    uint64_t end;
};

struct queue {
    struct queue_config config;
    struct queue_stock stock;
    uint64_t offers; /* open ones */
    uint64_t next_seq;
    /* Chunks, orders and the index are as long as the range of their numbers, so they count without
     * the gaps, by `dense` numbers. Nearly always there is none. */
    struct gap *gaps;
    size_t gap_count;
    size_t gap_room;
    struct chunk **chunks; /* NULL where there are none yet or all have ended */
    uint64_t chunk_first;  /* the number of chunks[0] */
    size_t chunk_cap;
    struct order waiting[LANES];      /* pending ones too */
    uint64_t admit_from[LANES];       /* waiting entries below are being admitted */
    uint64_t admitting_count;         /* whose admission is pending */
    int64_t admitting_ms;             /* the interval out of whose batch they are */
    struct index users[INDEX_SHARDS]; /* the live entry of a user, by user_number */
    uint64_t user_seed;
    struct heap expiries; /* of actives; an item that no longer holds is skipped */
    struct queue_counts counts;
    int64_t grace_from_ms; /* a user counts as seen at this time at the latest */
    bool grace_is_shorter; /* than at the last sweep */
    int64_t swept_ms;      /* when the last sweep was */
    uint64_t sweep_at;     /* the dense number that the next sweep looks at first */
    int64_t interval_ms;   /* when the interval of admission began */
    int64_t interval_used; /* admitted in it */
    int64_t rate_from_ms;  /* start of the time that is not in the mean yet; 0: none */
    int64_t rate_admitted; /* since then */
};

const str entry_status_words[] = {
#define ENTRY_WORD(symbol) STR_INIT(#symbol),
    ENTRY_STATUS_MAP(ENTRY_WORD)
#undef ENTRY_WORD
        {NULL, 0},
};

/* ---- numbers without gaps ---- */

/* Grows with seq; for a number in a gap, that of the gap's end. */
static uint64_t dense_of(const struct queue *q, uint64_t seq) {
    uint64_t skipped = 0;
    for (size_t i = 0; i < q->gap_count && seq >= q->gaps[i].begin; i++) {
        const struct gap *g = &q->gaps[i];
        if (seq < g->end) return g->begin - skipped;
        skipped += g->end - g->begin;
    }
    return seq - skipped;
}

static uint64_t seq_of(const struct queue *q, uint64_t dense) {
    for (size_t i = 0; i < q->gap_count && dense >= q->gaps[i].begin; i++)
        dense += q->gaps[i].end - q->gaps[i].begin;
    return dense;
}

static bool is_in_gap(const struct queue *q, uint64_t seq) {
    return q->gap_count > 0 && seq_of(q, dense_of(q, seq)) != seq;
}

/* Between the numbers so far and `seq`, which is above them. */
static void gap_add(struct queue *q, uint64_t seq) {
    uint64_t begin = (q->next_seq + CHUNK_ENTRIES - 1) / CHUNK_ENTRIES * CHUNK_ENTRIES;
    uint64_t end = seq / CHUNK_ENTRIES * CHUNK_ENTRIES;
    if (end < begin || end - begin < GAP_MIN) return;
    q->gaps = mem_make_room(q->gaps, q->gap_count, &q->gap_room, sizeof *q->gaps);
    q->gaps[q->gap_count++] = (struct gap){begin, end};
}

/* ---- entries by number ---- */

static struct chunk *chunk_of(const struct queue *q, uint64_t seq) {
    uint64_t at = dense_of(q, seq) / CHUNK_ENTRIES - q->chunk_first; /* huge when it is below */
    return at < q->chunk_cap ? q->chunks[at] : NULL;
}

/* NULL: no such entry is known. */
static struct entry *entry_at(const struct queue *q, uint64_t seq) {
    if (is_in_gap(q, seq)) return NULL;
    struct chunk *c = chunk_of(q, seq);
    if (c == NULL || c->entries[seq % CHUNK_ENTRIES].step == STEP_NONE) return NULL;
    return &c->entries[seq % CHUNK_ENTRIES];
}

static bool entry_waits(const struct entry *e) {
    return step_status[e->step] == ENTRY_WAITING;
}

static bool entry_is_active(const struct entry *e) {
    return step_status[e->step] == ENTRY_ACTIVE;
}

static bool entry_is_live(const struct entry *e) {
    return entry_waits(e) || entry_is_active(e);
}

static str entry_user(const struct queue *q, uint64_t seq, const struct entry *e) {
    return (str){chunk_of(q, seq)->names + e->name_at, e->name_len};
}

/* Numbers only grow, so what has gone at the low end makes room at the high one. */
static void chunks_make_room(struct queue *q, uint64_t number) {
    size_t gone = 0;
    while (gone < q->chunk_cap && q->chunks[gone] == NULL) gone++;
    size_t kept = q->chunk_cap - gone;
    q->chunk_first = kept == 0 ? number : q->chunk_first + gone;
    assert(number >= q->chunk_first);
    size_t cap = q->chunk_cap == 0 ? 16 : q->chunk_cap;
    while (number - q->chunk_first >= cap) cap *= 2;
    struct chunk **chunks = mem_new(cap * sizeof *chunks);
    if (kept > 0) memcpy(chunks, q->chunks + gone, kept * sizeof *chunks);
    mem_free(q->chunks);
    q->chunks = chunks;
    q->chunk_cap = cap;
}

static struct chunk *chunk_for(struct queue *q, uint64_t seq) {
    uint64_t number = dense_of(q, seq) / CHUNK_ENTRIES;
    if (number - q->chunk_first >= q->chunk_cap) chunks_make_room(q, number);
    struct chunk **c = &q->chunks[number - q->chunk_first];
    if (*c == NULL) *c = mem_new(sizeof **c);
    return *c;
}

static void chunk_free(struct chunk *c) {
    mem_free(c->names);
    mem_free(c);
}

/* Frees the chunk when all have ended and no more will come into it. */
static void chunk_release(struct queue *q, uint64_t seq) {
    uint64_t number = dense_of(q, seq) / CHUNK_ENTRIES;
    uint64_t at = number - q->chunk_first;
    if (at >= q->chunk_cap || q->chunks[at] == NULL || q->chunks[at]->live > 0) return;
    if (number == dense_of(q, q->next_seq) / CHUNK_ENTRIES) return;
    chunk_free(q->chunks[at]);
    q->chunks[at] = NULL;
}

static uint32_t name_add(struct chunk *c, str name) {
    uint32_t len = (uint32_t)name.len;
    if (c->names_cap - c->names_len < len) {
        c->names_cap = c->names_cap < USER_BYTES_MAX * 2 ? USER_BYTES_MAX * 4 : c->names_cap * 2;
        c->names = mem_grow(c->names, c->names_cap);
    }
    uint32_t at = c->names_len;
    memcpy(c->names + at, name.at, len);
    c->names_len += len;
    return at;
}

/* No more names will come. */
static void names_trim(struct chunk *c) {
    c->names_cap = c->names_len;
    c->names = mem_grow(c->names, c->names_cap);
}

/* ---- entries by user ---- */

static uint32_t hash_of(const struct queue *q, str user) {
    return (uint32_t)str_hash(user, q->user_seed);
}

/* An index has 32 bits for an entry, whose own number may have more: numbers that are a multiple of
 * UINT32_MAX apart share one. */
static uint32_t user_number(uint64_t dense) {
    return (uint32_t)(dense % UINT32_MAX) + 1;
}

/* The user's live entry among those that share a number in the index; 0: none of them is. */
static uint64_t user_entry(const struct queue *q, str user, uint32_t hash, uint32_t number) {
    uint64_t low = q->chunk_first * CHUNK_ENTRIES;
    uint64_t high = dense_of(q, q->next_seq);
    uint64_t dense = low + (UINT32_MAX + (uint64_t)number - user_number(low)) % UINT32_MAX;
    for (; dense < high; dense += UINT32_MAX) {
        uint64_t seq = seq_of(q, dense);
        const struct entry *e = entry_at(q, seq);
        if (e != NULL && e->hash == hash && entry_is_live(e) && str_eq(entry_user(q, seq, e), user))
            return seq;
    }
    return 0;
}

static uint64_t queue_find_hashed(const struct queue *q, str user, uint32_t hash) {
    uint64_t seq = 0;
    size_t at = 0;
    uint32_t number;
    while (seq == 0 && (number = index_next(&q->users[index_shard(hash)], hash, &at)) != INDEX_NONE)
        seq = user_entry(q, user, hash, number);
    return seq;
}

uint64_t queue_find(const struct queue *q, str user) {
    return queue_find_hashed(q, user, hash_of(q, user));
}

/* ---- start and stop ---- */

struct queue *queue_new(const struct queue_config *config) {
    struct queue *q = mem_new(sizeof *q);
    q->config = *config;
    q->next_seq = 1;
    ssize_t got = getrandom(&q->user_seed, sizeof q->user_seed, 0);
    assert(got == sizeof q->user_seed);
    return q;
}

void queue_free(struct queue *q) {
    for (size_t c = 0; c < q->chunk_cap; c++)
        if (q->chunks[c] != NULL) chunk_free(q->chunks[c]);
    mem_free(q->chunks);
    mem_free(q->gaps);
    for (int lane = 0; lane < LANES; lane++) order_deinit(&q->waiting[lane]);
    heap_deinit(&q->expiries);
    for (int shard = 0; shard < INDEX_SHARDS; shard++) index_deinit(&q->users[shard]);
    mem_free(q);
}

void queue_configure(struct queue *q, const struct queue_config *config) {
    if (config->version <= q->config.version) return;
    if (config->rules.grace_s < q->config.rules.grace_s) q->grace_is_shorter = true;
    q->config = *config;
}

enum event_state queue_state(const struct queue *q, int64_t now_ms) {
    return event_state_at(&q->config.hours, now_ms);
}

/* ---- seats ---- */

void queue_set_stock(struct queue *q, const struct queue_stock *stock) {
    q->stock = *stock;
}

/* How many may be admitted for the seats that are left. */
static uint64_t stock_left(const struct queue *q) {
    const struct queue_stock *s = &q->stock;
    if (s->seats == 0) return UINT64_MAX;
    if (s->available > 0 && !s->ran_out) return UINT64_MAX;
    return s->available > q->offers ? s->available - q->offers : 0;
}

bool queue_has_stock(const struct queue *q) {
    return stock_left(q) > 0;
}

/* The entry is being admitted. */
static void offer_open(struct queue *q, struct entry *e) {
    e->has_offer = q->stock.seats > 0 && q->stock.ran_out;
    if (e->has_offer) q->offers++;
}

static void offer_close(struct queue *q, struct entry *e) {
    if (e->has_offer) q->offers--;
    e->has_offer = false;
}

void queue_use_offer(struct queue *q, uint64_t seq) {
    struct entry *e = entry_at(q, seq);
    if (e != NULL) offer_close(q, e);
}

int64_t queue_seats_ahead(uint64_t ahead, uint64_t confirmed, uint64_t stays_ended) {
    if (stays_ended < STAYS_MIN) return -1;
    return (int64_t)((ahead * confirmed + stays_ended - 1) / stays_ended);
}

/* Waiting users are being admitted, as far as there is room. */
static bool is_admitting(const struct queue *q, int64_t now_ms) {
    enum event_state state = queue_state(q, now_ms);
    return state == EVENT_OPEN || state == EVENT_DRAINING;
}

/* ---- how fast ---- */

/* The interval that the time is in, by its beginning. */
static int64_t interval_of(const struct queue *q, int64_t now_ms) {
    return now_ms - now_ms % (q->config.rules.entry_interval_s * 1000);
}

/* How many may still be admitted in the interval that `now_ms` is in. */
static int64_t batch_left(struct queue *q, int64_t now_ms) {
    int64_t length_ms = q->config.rules.entry_interval_s * 1000;
    int64_t interval_ms = interval_of(q, now_ms);
    /* The clocks of threads differ by a moment, so the interval before this one is ignored; but a
     * clock that was set back must not stop admission until it has caught up. */
    if (interval_ms > q->interval_ms || interval_ms < q->interval_ms - length_ms) {
        q->interval_ms = interval_ms;
        q->interval_used = 0;
    }
    int64_t left = q->config.rules.entry_batch_size - q->interval_used;
    return left > 0 ? left : 0;
}

static int64_t active_left(const struct queue *q) {
    int64_t left = q->config.rules.max_active - (int64_t)q->counts.active;
    return left > 0 ? left : 0;
}

/* Once per interval: adds what was admitted in it to the mean. Time in which no user waits or none
 * may be admitted says nothing about the rate. */
static void rate_update(struct queue *q, int64_t now_ms) {
    bool idle = q->counts.waiting == 0 || !is_admitting(q, now_ms) || stock_left(q) == 0;
    int64_t passed_ms = now_ms - q->rate_from_ms; /* below 0: the clock was set back */
    if (!idle && q->rate_from_ms != 0 && passed_ms >= 0) {
        if (passed_ms < q->config.rules.entry_interval_s * 1000) return;
        double now = (double)q->rate_admitted * 1000 / (double)passed_ms;
        q->counts.rate =
            q->counts.rate == 0 ? now : q->counts.rate + RATE_WEIGHT * (now - q->counts.rate);
    }
    q->rate_from_ms = now_ms;
    q->rate_admitted = 0;
}

int64_t queue_estimate_s(const struct queue *q, uint64_t position) {
    const struct queue_rules *r = &q->config.rules;
    uint64_t batch = (uint64_t)r->entry_batch_size;
    int64_t by_rule = (int64_t)((position + batch - 1) / batch) * r->entry_interval_s;
    if (q->counts.rate <= 0) return by_rule;
    double exact = (double)position / q->counts.rate;
    if (exact > ESTIMATE_BY_RATE_S_MAX) exact = ESTIMATE_BY_RATE_S_MAX;
    int64_t by_rate = (int64_t)exact;
    if ((double)by_rate < exact) by_rate++;
    return by_rate > by_rule ? by_rate : by_rule;
}

/* ---- looking ---- */

/* Asks the orders alone, which stay in the cache; an entry of ten million mostly does not. */
uint64_t queue_position(const struct queue *q, uint64_t seq) {
    uint64_t ahead = 0;
    uint64_t dense = dense_of(q, seq);
    if (is_in_gap(q, seq)) return 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        const struct order *o = &q->waiting[lane];
        if (order_has(o, dense)) return ahead + order_rank(o, dense) + 1;
        ahead += o->count;
    }
    return 0;
}

bool queue_look(const struct queue *q, uint64_t seq, int64_t now_ms, struct place *out) {
    const struct entry *e = entry_at(q, seq);
    if (e == NULL) return false;
    *out = (struct place){.status = step_status[e->step],
                          .seq = seq,
                          .lane = e->lane,
                          .waiting = q->counts.waiting,
                          .joined_ms = e->joined_ms,
                          .pending = e->step == STEP_ENTERING || e->step == STEP_ACTIVATING};
    if (entry_waits(e)) {
        out->position = queue_position(q, seq);
        out->estimate_s = queue_estimate_s(q, out->position);
    } else if (entry_is_active(e)) {
        if (e->expires_ms > now_ms)
            out->expires_ms = e->expires_ms;
        else
            out->status = ENTRY_EXPIRED;
    }
    return true;
}

str queue_user(const struct queue *q, uint64_t seq) {
    const struct entry *e = entry_at(q, seq);
    return e == NULL ? (str){NULL, 0} : entry_user(q, seq, e);
}

struct queue_counts queue_counts(const struct queue *q) {
    return q->counts;
}

/* ---- ending ---- */

/* An entry that is not admitted after all leaves its share of the batch to the next. */
static void give_back_share(struct queue *q, int64_t interval_ms) {
    if (interval_ms == q->interval_ms && q->interval_used > 0) q->interval_used--;
}

/* Takes the entry out of everything that counts it; its user may enter again. */
static void entry_drop(struct queue *q, uint64_t seq, struct entry *e, enum step final) {
    assert(entry_is_live(e));
    if (entry_waits(e)) {
        order_remove(&q->waiting[e->lane], dense_of(q, seq));
        q->counts.waiting--;
    }
    offer_close(q, e);
    if (entry_is_active(e) || e->step == STEP_ADMITTING) q->counts.active--;
    if (e->step == STEP_ADMITTING) {
        q->admitting_count--;
        give_back_share(q, q->admitting_ms);
    }
    if (e->step == STEP_ACTIVATING && final == STEP_NONE)
        give_back_share(q, interval_of(q, e->joined_ms));
    if (final == STEP_COMPLETED) q->counts.completed++;
    if (final == STEP_LEFT) q->counts.left++;
    if (final == STEP_EXPIRED) q->counts.expired++;
    index_remove(&q->users[index_shard(e->hash)], e->hash, user_number(dense_of(q, seq)));
    e->step = (uint8_t) final;
    assert(!entry_is_live(e));
    chunk_of(q, seq)->live--;
    chunk_release(q, seq);
}

static enum step final_step(enum entry_status final) {
    if (final == ENTRY_COMPLETED) return STEP_COMPLETED;
    return final == ENTRY_LEFT ? STEP_LEFT : STEP_EXPIRED;
}

bool queue_end(struct queue *q, uint64_t seq, enum entry_status final) {
    assert(final == ENTRY_COMPLETED || final == ENTRY_LEFT || final == ENTRY_EXPIRED);
    struct entry *e = entry_at(q, seq);
    if (e == NULL) return false;
    if (e->step == STEP_EXPIRED) e->step = (uint8_t)final_step(final);
    if (!entry_is_live(e)) return false;
    if (final == ENTRY_COMPLETED) {
        /* The ledger completes only entries that are ACTIVE there: so it has what is pending here,
         * though that has not been settled yet. */
        if (e->step == STEP_ACTIVATING) queue_settle_enter(q, seq, true);
        queue_settle_admit(q, seq, true);
        if (e->step != STEP_ACTIVE) return false;
    }
    entry_drop(q, seq, e, final_step(final));
    return true;
}

/* The active whose time the item is about; NULL when it has ended. */
static struct entry *queue_expiry_of(const struct queue *q, const struct heap_item *item) {
    struct entry *e = entry_at(q, item->value);
    return e != NULL && entry_is_active(e) ? e : NULL;
}

/* Adds an expiry. When most items are of entries that ended before their time, those go. */
static void queue_expiry_add(struct queue *q, int64_t expires_ms, uint64_t seq) {
    if (q->expiries.count >= EXPIRIES_MIN && q->expiries.count / 2 > q->counts.active) {
        struct heap old = q->expiries;
        q->expiries = (struct heap){0};
        for (size_t i = 0; i < old.count; i++)
            if (queue_expiry_of(q, &old.items[i]) != NULL)
                heap_push(&q->expiries, old.items[i].key, old.items[i].value);
        heap_deinit(&old);
    }
    heap_push(&q->expiries, expires_ms, seq);
}

size_t queue_purge(struct queue *q, int64_t now_ms, struct entry_change *out, size_t max) {
    size_t ended = 0;
    const struct heap_item *first;
    while (ended < max && (first = heap_first(&q->expiries)) != NULL && first->key <= now_ms) {
        struct entry *e = queue_expiry_of(q, first);
        if (e != NULL) {
            out[ended++] = (struct entry_change){.seq = first->value, .expires_ms = first->key};
            entry_drop(q, first->value, e, STEP_EXPIRED);
        }
        heap_pop(&q->expiries);
    }
    return ended;
}

bool queue_needs_tick(const struct queue *q, int64_t now_ms) {
    const struct heap_item *first = heap_first(&q->expiries);
    return q->counts.waiting > 0 || (first != NULL && first->key <= now_ms);
}

static bool entry_is_silent(const struct queue *q, const struct entry *e, int64_t now_ms) {
    int64_t seen_ms = (int64_t)e->seen_s * 1000;
    if (seen_ms < q->grace_from_ms) seen_ms = q->grace_from_ms;
    return now_ms - seen_ms > q->config.rules.grace_s * 1000;
}

size_t queue_sweep(struct queue *q, int64_t now_ms, size_t budget, struct entry_change *out,
                   size_t max) {
    bool runs = is_admitting(q, now_ms);
    /* No user was seen while the process stood still, or the clock was set forward. */
    bool slept = now_ms - q->swept_ms > SWEEP_GAP_MS_MAX;
    /* And a user who polls every ten minutes, as it was asked to, is not silent after one. */
    if (!runs || slept || q->grace_is_shorter) queue_restart_grace(q, now_ms);
    if (slept) q->rate_from_ms = 0; /* no user waited in that time */
    q->grace_is_shorter = false;
    q->swept_ms = now_ms;
    bool is_over =
        queue_state(q, now_ms) == EVENT_CLOSED && event_is_over(&q->config.hours, now_ms);
    if (!runs && !is_over) return 0;
    uint64_t low = q->chunk_first * CHUNK_ENTRIES;
    uint64_t high = dense_of(q, q->next_seq);
    if (budget > high - low) budget = (size_t)(high - low); /* all, once */
    size_t ended = 0;
    for (; budget > 0 && ended < max && q->counts.waiting > 0; budget--) {
        if (q->sweep_at < low || q->sweep_at >= high) q->sweep_at = low;
        uint64_t seq = seq_of(q, q->sweep_at);
        bool gone = chunk_of(q, seq) == NULL;
        q->sweep_at += gone ? CHUNK_ENTRIES - q->sweep_at % CHUNK_ENTRIES : 1;
        struct entry *e = entry_at(q, seq);
        if (e == NULL || e->step != STEP_WAITING) continue;
        if (!is_over && !entry_is_silent(q, e, now_ms)) continue;
        out[ended++] = (struct entry_change){.seq = seq, .waited_ms = now_ms - e->joined_ms};
        entry_drop(q, seq, e, STEP_EXPIRED);
    }
    return ended;
}

void queue_restart_grace(struct queue *q, int64_t now_ms) {
    if (now_ms > q->grace_from_ms) q->grace_from_ms = now_ms;
}

void queue_seen(struct queue *q, uint64_t seq, int64_t now_ms) {
    struct entry *e = entry_at(q, seq);
    if (e == NULL) return;
    uint32_t now_s = (uint32_t)((now_ms + 999) / 1000);
    if (now_s > e->seen_s) e->seen_s = now_s;
}

/* ---- entering ---- */

static void place_entry(struct queue *q, uint64_t seq, str user, uint32_t hash, unsigned lane,
                        enum step step, int64_t joined_ms, int64_t expires_ms) {
    assert(lane < LANES && user.len > 0 && user.len <= USER_BYTES_MAX);
    struct chunk *c = chunk_for(q, seq);
    struct entry *e = &c->entries[seq % CHUNK_ENTRIES];
    assert(e->step == STEP_NONE);
    *e = (struct entry){.joined_ms = joined_ms,
                        .expires_ms = expires_ms, /* or no promise yet */
                        .name_at = name_add(c, user),
                        .name_len = (uint8_t)user.len,
                        .hash = hash,
                        .lane = (uint8_t)lane,
                        .step = (uint8_t)step};
    c->live++;
    if (seq % CHUNK_ENTRIES == CHUNK_ENTRIES - 1) names_trim(c);
    index_add(&q->users[index_shard(hash)], hash, user_number(dense_of(q, seq)));
    if (entry_waits(e)) {
        order_add(&q->waiting[lane], dense_of(q, seq));
        q->counts.waiting++;
    } else {
        q->counts.active++;
        queue_expiry_add(q, expires_ms, seq);
    }
}

enum enter_outcome queue_enter(struct queue *q, str user, unsigned lane, int64_t now_ms,
                               struct place *out) {
    uint32_t hash = hash_of(q, user);
    uint64_t seq = queue_find_hashed(q, user, hash);
    if (seq != 0) {
        queue_look(q, seq, now_ms, out);
        if (out->status != ENTRY_EXPIRED) return ENTER_THERE;
        entry_drop(q, seq, entry_at(q, seq),
                   STEP_EXPIRED); /* its time is over, though it has not been purged yet */
    }
    enum event_state state = queue_state(q, now_ms);
    if (state == EVENT_DRAFT) return ENTER_NOT_OPEN;
    if (state == EVENT_DRAINING || state == EVENT_CLOSED) return ENTER_CLOSED;
    bool at_once = state == EVENT_OPEN && q->counts.waiting == 0 && stock_left(q) > 0 &&
                   active_left(q) > 0 && batch_left(q, now_ms) > 0;
    if (!at_once && q->counts.waiting >= (uint64_t)q->config.rules.max_waiting) {
        q->counts.rejected++;
        return ENTER_FULL;
    }

    seq = q->next_seq++;
    int64_t expires_ms = at_once ? now_ms + q->config.rules.active_ttl_s * 1000 : 0;
    place_entry(q, seq, user, hash, lane, at_once ? STEP_ACTIVATING : STEP_ENTERING, now_ms,
                expires_ms);
    if (at_once) {
        q->interval_used++;
        offer_open(q, entry_at(q, seq));
    }
    queue_seen(q, seq, now_ms);
    queue_look(q, seq, now_ms, out);
    if (!at_once) entry_at(q, seq)->promised_s = out->estimate_s;
    return ENTER_TAKEN;
}

void queue_settle_enter(struct queue *q, uint64_t seq, bool kept) {
    struct entry *e = entry_at(q, seq);
    if (e == NULL || (e->step != STEP_ENTERING && e->step != STEP_ACTIVATING)) return;
    if (!kept) {
        entry_drop(q, seq, e, STEP_NONE);
        return;
    }
    q->counts.entered++;
    if (e->step == STEP_ACTIVATING) q->counts.admitted++;
    e->step = e->step == STEP_ENTERING ? STEP_WAITING : STEP_ACTIVE;
}

/* ---- admitting ---- */

/* The first entry of the lane that is not being admitted yet; NULL at a pending enter or the end.
 */
static struct entry *next_to_admit(struct queue *q, unsigned lane, uint64_t *seq) {
    uint64_t dense;
    while (order_next(&q->waiting[lane], dense_of(q, q->admit_from[lane]), &dense)) {
        *seq = seq_of(q, dense);
        struct entry *e = entry_at(q, *seq);
        if (e->step == STEP_ENTERING) return NULL;
        q->admit_from[lane] = *seq + 1;
        if (e->step == STEP_WAITING) return e;
    }
    return NULL;
}

static struct entry_change admit_one(struct queue *q, uint64_t seq, struct entry *e,
                                     int64_t now_ms) {
    /* A clock that was set back is no negative wait. */
    int64_t waited_ms = now_ms > e->joined_ms ? now_ms - e->joined_ms : 0;
    struct entry_change change = {.seq = seq,
                                  .expires_ms = now_ms + q->config.rules.active_ttl_s * 1000,
                                  .waited_ms = waited_ms,
                                  .promised_s = e->promised_s};
    e->step = STEP_ADMITTING;
    e->expires_ms = change.expires_ms;
    offer_open(q, e);
    q->counts.waited_ms += (uint64_t)waited_ms;
    if ((uint64_t)waited_ms > q->counts.waited_ms_max)
        q->counts.waited_ms_max = (uint64_t)waited_ms;
    return change;
}

size_t queue_admit(struct queue *q, int64_t now_ms, struct entry_change *out, size_t max) {
    rate_update(q, now_ms);
    if (!is_admitting(q, now_ms)) return 0;
    /* Should the ledger refuse those, entries admitted after them would have overtaken them. */
    if (q->admitting_count > 0) return 0;
    int64_t left = batch_left(q, now_ms);
    if (left > active_left(q)) left = active_left(q);
    if (left > ADMIT_MAX) left = ADMIT_MAX;
    if ((uint64_t)left > stock_left(q)) left = (int64_t)stock_left(q);
    if ((uint64_t)left < max) max = (size_t)left;
    size_t admitted = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        uint64_t seq;
        struct entry *e;
        while (admitted < max && (e = next_to_admit(q, lane, &seq)) != NULL) {
            out[admitted++] = admit_one(q, seq, e, now_ms);
        }
    }
    q->counts.active += admitted;
    q->admitting_count = admitted;
    q->admitting_ms = q->interval_ms;
    q->interval_used += (int64_t)admitted;
    q->rate_admitted += (int64_t)admitted;
    return admitted;
}

void queue_settle_admit(struct queue *q, uint64_t seq, bool kept) {
    struct entry *e = entry_at(q, seq);
    if (e == NULL || e->step != STEP_ADMITTING) return;
    q->admitting_count--;
    if (kept) {
        e->step = STEP_ACTIVE;
        order_remove(&q->waiting[e->lane], dense_of(q, seq));
        q->counts.waiting--;
        q->counts.admitted++;
        queue_expiry_add(q, e->expires_ms, seq);
    } else {
        offer_close(q, e);
        e->step = STEP_WAITING;
        e->promised_s = -1;
        give_back_share(q, q->admitting_ms);
        if (seq < q->admit_from[e->lane]) q->admit_from[e->lane] = seq;
        q->counts.active--;
    }
}

/* ---- recovery ---- */

void queue_restore(struct queue *q, uint64_t seq, str user, unsigned lane, enum entry_status status,
                   int64_t joined_ms, int64_t expires_ms) {
    assert(status == ENTRY_WAITING || status == ENTRY_ACTIVE);
    assert(seq >= q->next_seq && queue_find(q, user) == 0);
    bool is_waiting = status == ENTRY_WAITING;
    queue_skip_to(q, seq);
    place_entry(q, seq, user, hash_of(q, user), lane, is_waiting ? STEP_WAITING : STEP_ACTIVE,
                joined_ms, is_waiting ? -1 : expires_ms);
    queue_skip_to(q, seq + 1);
}

void queue_restore_totals(struct queue *q, const struct queue_counts *totals) {
    struct queue_counts *c = &q->counts;
    c->entered = totals->entered;
    c->admitted = totals->admitted;
    c->completed = totals->completed;
    c->left = totals->left;
    c->expired = totals->expired;
    c->waited_ms = totals->waited_ms;
    c->waited_ms_max = totals->waited_ms_max;
}

void queue_skip_to(struct queue *q, uint64_t seq) {
    if (seq <= q->next_seq) return;
    uint64_t before = q->next_seq;
    gap_add(q, seq);
    q->next_seq = seq;
    chunk_release(q, before);
}
