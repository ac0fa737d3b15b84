/* Sections, reservations and users of one event, and each step of a reservation. */
#include "core/claims.h"

#include <assert.h>
#include <sys/random.h>

#include "base/heap.h"
#include "base/index.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pool.h"

/* Up to this many seats are stored in the reservation itself. */
#define SEATS_FEW 4
/* Names of up to this length, which are most, are stored in the user's struct, and compared without
 * another memory access. */
#define NAME_SHORT 16
/* Fewer expiries are not worth tidying up. */
#define EXPIRIES_MIN 1024

/* Only forward. */
enum step {
    STEP_GONE,
    STEP_PENDING, /* HELD; the ledger does not have it yet */
    STEP_HELD,
    STEP_CONFIRMED,
};

/* A live reservation, or the place of one. */
struct row {
    struct uuid id;
    struct claim_key key;
    int64_t expires_ms;
    uint64_t entry_seq;
    union {
        uint32_t few[SEATS_FEW];
        uint32_t *many;
    };
    uint32_t generation; /* how often the place was used */
    uint32_t buyer;
    uint32_t newer; /* of the same buyer; 0: none */
    uint32_t older;
    uint16_t section;
    uint16_t seat_count;
    uint8_t step; /* enum step */
};
static_assert(sizeof(struct row) <= 88, "a reservation is 88 bytes");

/* A user with live reservations. */
struct buyer {
    uint32_t newest; /* first: the pool writes here when it is free */
    uint32_t hash;
    uint32_t seats; /* of all of them */
    uint32_t name_len;
    union {
        char name_short[NAME_SHORT];
        char *name_long;
    };
};
static_assert(sizeof(struct buyer) == 32, "two users in a line of the cache");
static_assert(USER_ID_BYTES_MAX > NAME_SHORT, "long names exist");

/* A section. */
struct claims_section {
    int64_t key;
    struct seat_map *map;
    uint32_t capacity; /* as configured; the map follows when it can */
    uint32_t live;     /* reservations */
    uint16_t number;
    enum section_mode mode;
    enum section_status status;
    int64_t version; /* of the configuration that had it last */
    struct seat_counts counted;
};

struct claims {
    int64_t version;
    struct event_hours hours;
    int64_t hold_ms;
    uint32_t per_user_max;
    struct claims_section **sections; /* NULL where one has gone */
    size_t section_count;
    struct map by_key; /* a section's key, in bytes → its struct claims_section */
    struct seat_counts totals;
    bool ran_out;
    struct pool rows;
    struct pool buyers;
    struct index by_id[INDEX_SHARDS];
    struct index by_user[INDEX_SHARDS];
    uint64_t user_seed;
    struct heap expiries; /* when settled holds are due, by handle; one that has ended is skipped */
    size_t held_count;    /* settled */
    uint32_t refused[SEATS_PER_CALL_MAX];
    size_t refused_count;
};

/* ---- sections ---- */

static bool has_vanished(const struct claims *c, const struct claims_section *s) {
    return s->version != c->version;
}

/* One that takes claims; NULL: there is none. */
static struct claims_section *claims_section_of(const struct claims *c, int64_t section_key) {
    struct claims_section *s = map_get(&c->by_key, map_key(&section_key));
    return s == NULL || has_vanished(c, s) ? NULL : s;
}

/* After every change of a section: the totals follow. */
static void claims_section_count(struct claims *c, struct claims_section *s) {
    struct seat_counts now = {0};
    if (!has_vanished(c, s)) now = seat_map_counts(s->map);
    bool had_any = c->totals.available > 0;
    c->totals.available += now.available - s->counted.available;
    if (had_any && c->totals.available == 0) c->ran_out = true;
    c->totals.held += now.held - s->counted.held;
    c->totals.confirmed += now.confirmed - s->counted.confirmed;
    s->counted = now;
}

static void claims_section_free(struct claims *c, struct claims_section *s) {
    c->sections[s->number] = NULL;
    map_remove(&c->by_key, map_key(&s->key));
    seat_map_free(s->map);
    mem_free(s);
}

/* After seats were given back: what waited for that. One that vanishes is gone with its last. */
static void claims_section_catch_up(struct claims *c, struct claims_section *s) {
    if (has_vanished(c, s) && s->live == 0) {
        claims_section_count(c, s);
        claims_section_free(c, s);
        return;
    }
    if (seat_map_capacity(s->map) != s->capacity) seat_map_resize(s->map, s->capacity);
    claims_section_count(c, s);
}

static struct claims_section *claims_section_add(struct claims *c, const struct section *section) {
    struct claims_section *s = mem_new(sizeof *s);
    size_t number = 0;
    while (number < c->section_count && c->sections[number] != NULL) number++;
    if (number == c->section_count) {
        c->sections = mem_grow(c->sections, ++c->section_count * sizeof(struct claims_section *));
        assert(c->section_count <= UINT16_MAX);
    }
    c->sections[number] = s;
    s->number = (uint16_t)number;
    s->key = section->key;
    s->map = seat_map_new((uint32_t)section->capacity);
    map_put(&c->by_key, map_key(&s->key), s);
    return s;
}

static void claims_apply_config(struct claims *c, const struct event *e) {
    bool had_any = c->totals.available > 0;
    bool ran_out = c->ran_out;
    c->version = e->version;
    c->hours = event_hours_of(e);
    c->hold_ms = e->hold_s * 1000;
    c->per_user_max = (uint32_t)e->max_per_user;
    assert(c->per_user_max <= PER_USER_MAX);
    for (size_t i = 0; i < e->section_count; i++) {
        const struct section *section = &e->sections[i];
        struct claims_section *s = map_get(&c->by_key, map_key(&section->key));
        if (s == NULL) s = claims_section_add(c, section);
        s->version = e->version;
        s->capacity = (uint32_t)section->capacity;
        s->mode = section->mode;
        s->status = section->status;
    }
    for (size_t i = 0; i < c->section_count; i++) {
        struct claims_section *s = c->sections[i];
        if (s != NULL) claims_section_catch_up(c, s);
    }
    /* Not if there was none only while the sections changed one after the other. */
    c->ran_out = ran_out || (had_any && c->totals.available == 0);
}

struct claims *claims_new(const struct event *e) {
    struct claims *c = mem_new(sizeof *c);
    map_init(&c->by_key);
    pool_init(&c->rows, sizeof(struct row));
    pool_init(&c->buyers, sizeof(struct buyer));
    ssize_t got = getrandom(&c->user_seed, sizeof c->user_seed, 0);
    assert(got == sizeof c->user_seed);
    claims_apply_config(c, e);
    return c;
}

void claims_configure(struct claims *c, const struct event *e) {
    if (e->version > c->version) claims_apply_config(c, e);
}

/* ---- reservations by id, by handle, by user ---- */

static struct row *row_at(const struct claims *c, uint32_t number) {
    return pool_at(&c->rows, number);
}

static struct buyer *buyer_at(const struct claims *c, uint32_t number) {
    return pool_at(&c->buyers, number);
}

static uint32_t *seats_of(struct row *r) {
    return r->seat_count <= SEATS_FEW ? r->few : r->many;
}

/* Ids are random where it counts. */
static uint32_t id_hash(const struct uuid *id) {
    uint32_t hash;
    memcpy(&hash, id->bytes + sizeof id->bytes - sizeof hash, sizeof hash);
    return hash;
}

/* 0: none. */
static uint32_t claim_find(const struct claims *c, const struct uuid *id) {
    uint32_t hash = id_hash(id);
    size_t at = 0;
    uint32_t number;
    while ((number = index_next(&c->by_id[index_shard(hash)], hash, &at)) != INDEX_NONE)
        if (uuid_eq(&row_at(c, number)->id, id)) break;
    return number;
}

/* The holder of a seat in the map: the reservation's number, and its generation. Never 0. */
static uint64_t handle_of(const struct claims *c, uint32_t number) {
    return (uint64_t)row_at(c, number)->generation << 32 | number;
}

/* The number of a live reservation; 0: it is gone. */
static uint32_t number_of(const struct claims *c, uint64_t handle) {
    uint32_t number = (uint32_t)handle;
    const struct row *r = row_at(c, number);
    return r->step != STEP_GONE && r->generation == handle >> 32 ? number : 0;
}

static uint32_t user_hash(const struct claims *c, str user) {
    return (uint32_t)str_hash(user, c->user_seed);
}

static str buyer_name(const struct buyer *b) {
    return (str){b->name_len <= NAME_SHORT ? b->name_short : b->name_long, b->name_len};
}

/* 0: the user has none that is live. */
static uint32_t buyer_find(const struct claims *c, str user) {
    uint32_t hash = user_hash(c, user);
    size_t at = 0;
    uint32_t number;
    while ((number = index_next(&c->by_user[index_shard(hash)], hash, &at)) != INDEX_NONE)
        if (str_eq(buyer_name(buyer_at(c, number)), user)) break;
    return number;
}

static uint32_t claims_buyer_add(struct claims *c, str user) {
    uint32_t number = pool_take(&c->buyers);
    uint32_t hash = user_hash(c, user);
    struct buyer *b = buyer_at(c, number);
    *b = (struct buyer){.hash = hash, .name_len = (uint32_t)user.len};
    if (user.len > NAME_SHORT)
        b->name_long = mem_copy_str(user);
    else
        memcpy(b->name_short, user.at, user.len);
    index_add(&c->by_user[index_shard(hash)], hash, number);
    return number;
}

/* The user's newest reservation; `buyer` is the user's number, or 0 before the first. */
static void buyer_join(struct claims *c, uint32_t number, uint32_t buyer, str user) {
    struct row *r = row_at(c, number);
    r->buyer = buyer == 0 ? claims_buyer_add(c, user) : buyer;
    struct buyer *b = buyer_at(c, r->buyer);
    r->newer = 0;
    r->older = b->newest;
    if (b->newest != 0) row_at(c, b->newest)->newer = number;
    b->newest = number;
    b->seats += r->seat_count;
}

static void buyer_part(struct claims *c, const struct row *r) {
    struct buyer *b = buyer_at(c, r->buyer);
    assert(b->seats >= r->seat_count);
    b->seats -= r->seat_count;
    if (r->older != 0) row_at(c, r->older)->newer = r->newer;
    if (r->newer != 0)
        row_at(c, r->newer)->older = r->older;
    else
        b->newest = r->older;
    if (b->newest != 0) return;
    assert(b->seats == 0);
    index_remove(&c->by_user[index_shard(b->hash)], b->hash, r->buyer);
    if (b->name_len > NAME_SHORT) mem_free(b->name_long);
    pool_give(&c->buyers, r->buyer);
}

void claims_free(struct claims *c) {
    for (uint32_t n = 1; n < c->rows.end; n++) {
        struct row *r = row_at(c, n);
        if (r->step == STEP_GONE) continue;
        if (r->seat_count > SEATS_FEW) mem_free(r->many);
        buyer_part(c, r);
    }
    for (size_t i = 0; i < c->section_count; i++)
        if (c->sections[i] != NULL) claims_section_free(c, c->sections[i]);
    mem_free(c->sections);
    map_deinit(&c->by_key);
    pool_deinit(&c->rows);
    pool_deinit(&c->buyers);
    for (size_t shard = 0; shard < INDEX_SHARDS; shard++) {
        index_deinit(&c->by_id[shard]);
        index_deinit(&c->by_user[shard]);
    }
    heap_deinit(&c->expiries);
    mem_free(c);
}

/* ---- when holds end ---- */

/* The hold that is due then; 0: it has ended. */
static uint32_t claim_expiry_of(const struct claims *c, const struct heap_item *item) {
    uint32_t number = number_of(c, item->value);
    return number != 0 && row_at(c, number)->step == STEP_HELD ? number : 0;
}

/* When most items are of holds that ended before their time, those go. */
static void claim_expiry_add(struct claims *c, uint32_t number, int64_t due_ms) {
    if (c->expiries.count >= EXPIRIES_MIN && c->expiries.count / 2 > c->held_count) {
        struct heap old = c->expiries;
        c->expiries = (struct heap){0};
        for (size_t i = 0; i < old.count; i++)
            if (claim_expiry_of(c, &old.items[i]) != 0)
                heap_push(&c->expiries, old.items[i].key, old.items[i].value);
        heap_deinit(&old);
    }
    heap_push(&c->expiries, due_ms, handle_of(c, number));
}

bool claims_needs_tick(const struct claims *c, int64_t now_ms) {
    const struct heap_item *first = heap_first(&c->expiries);
    return first != NULL && first->key <= now_ms;
}

size_t claims_due(struct claims *c, int64_t now_ms, struct claim_ref *out, size_t max) {
    size_t count = 0;
    const struct heap_item *first;
    while (count < max && (first = heap_first(&c->expiries)) != NULL && first->key <= now_ms) {
        uint32_t number = claim_expiry_of(c, first);
        heap_pop(&c->expiries);
        if (number == 0) continue;
        const struct row *r = row_at(c, number);
        out[count++] = (struct claim_ref){r->id, c->sections[r->section]->key};
        claim_expiry_add(c, number, now_ms + DUE_AGAIN_MS);
    }
    return count;
}

/* ---- steps ---- */

static void claim_hold(struct claims *c, uint32_t number) {
    struct row *r = row_at(c, number);
    assert(r->step == STEP_PENDING);
    r->step = STEP_HELD;
    c->held_count++;
    claim_expiry_add(c, number, r->expires_ms);
}

static void claim_confirm(struct claims *c, uint32_t number) {
    struct row *r = row_at(c, number);
    assert(r->step == STEP_HELD);
    struct claims_section *s = c->sections[r->section];
    enum seats_outcome done = seat_map_confirm(s->map, seats_of(r), r->seat_count,
                                               handle_of(c, number), c->refused, &c->refused_count);
    assert(done == SEATS_DONE);
    r->step = STEP_CONFIRMED;
    c->held_count--;
    claims_section_count(c, s);
}

/* Gone; its seats are no longer its own. */
static void claim_forget(struct claims *c, uint32_t number) {
    struct row *r = row_at(c, number);
    assert(r->step != STEP_GONE);
    if (r->step == STEP_HELD) c->held_count--;
    if (r->seat_count > SEATS_FEW) mem_free(r->many);
    r->step = STEP_GONE;
    index_remove(&c->by_id[index_shard(id_hash(&r->id))], id_hash(&r->id), number);
    buyer_part(c, r);
    struct claims_section *s = c->sections[r->section];
    s->live--;
    claims_section_catch_up(c, s);
    pool_give(&c->rows, number);
}

static void claim_end(struct claims *c, uint32_t number) {
    struct row *r = row_at(c, number);
    struct seat_map *map = c->sections[r->section]->map;
    uint64_t holder = handle_of(c, number);
    enum seats_outcome done = r->step == STEP_CONFIRMED
                                  ? seat_map_cancel(map, seats_of(r), r->seat_count, holder,
                                                    c->refused, &c->refused_count)
                                  : seat_map_release(map, seats_of(r), r->seat_count, holder,
                                                     c->refused, &c->refused_count);
    assert(done == SEATS_DONE);
    claim_forget(c, number);
}

bool claims_settle(struct claims *c, const struct uuid *id, bool kept) {
    uint32_t number = claim_find(c, id);
    if (number == 0) return false;
    if (row_at(c, number)->step != STEP_PENDING) return true;
    if (kept)
        claim_hold(c, number);
    else
        claim_end(c, number);
    return kept;
}

bool claims_follow(struct claims *c, const struct uuid *id, enum reservation_status status) {
    assert(status != RESERVATION_HELD);
    uint32_t number = claim_find(c, id);
    if (number == 0) return false;
    enum step step = row_at(c, number)->step;
    /* A cancellation may overtake the confirmation before it; an expiry has none before it. */
    if (step == STEP_CONFIRMED && status != RESERVATION_CANCELLED) return false;
    if (status != RESERVATION_CONFIRMED) {
        claim_end(c, number);
        return true;
    }
    if (step == STEP_PENDING)
        claim_hold(c, number); /* the ledger had it, though it was not settled */
    claim_confirm(c, number);
    return true;
}

/* ---- claiming ---- */

static struct claim_info info_of(const struct claims *c, const struct row *r) {
    return (struct claim_info){.id = r->id,
                               .entry_seq = r->entry_seq,
                               .section_key = c->sections[r->section]->key,
                               .seat_count = r->seat_count,
                               .status = r->step == STEP_CONFIRMED ? RESERVATION_CONFIRMED
                                                                   : RESERVATION_HELD,
                               .pending = r->step == STEP_PENDING,
                               .expires_ms = r->expires_ms};
}

/* A new one, pending and without seats yet; it is found when it has joined its buyer. */
static uint32_t row_new(struct claims *c, const struct uuid *id, const struct claims_section *s) {
    uint32_t number = pool_take(&c->rows);
    struct row *r = row_at(c, number);
    *r = (struct row){
        .id = *id, .generation = r->generation + 1, .section = s->number, .step = STEP_PENDING};
    return number;
}

static void row_set_seats(struct row *r, const uint32_t *seats, size_t count) {
    assert(r->seat_count == 0 && count >= 1 && count <= SEATS_PER_CALL_MAX);
    r->seat_count = (uint16_t)count;
    if (count > SEATS_FEW) r->many = mem_grow(NULL, count * sizeof *seats);
    memcpy(seats_of(r), seats, count * sizeof *seats);
}

/* The reservation that has this key; NULL: the user has none. */
static struct row *row_by_key(const struct claims *c, const struct buyer *b, uint64_t key) {
    struct row *r = NULL;
    for (uint32_t n = b->newest; n != 0; n = r->older) {
        r = row_at(c, n);
        if (r->key.key == key) return r;
    }
    return NULL;
}

/* The reason to refuse the request, whatever seats are free; DONE: there is none. */
static enum claim_outcome claim_refusal(const struct claims *c, const struct claims_section *s,
                                        const struct claim_request *w, uint32_t has,
                                        int64_t now_ms) {
    enum event_state state = event_state_at(&c->hours, now_ms);
    if (!w->is_active) return CLAIM_NOT_ACTIVE;
    if (!event_state_sells(state)) return CLAIM_EVENT_CLOSED;
    if (s == NULL) return CLAIM_NO_SECTION;
    if (!section_status_sells(s->status))
        return s->status == SECTION_CLOSED ? CLAIM_SECTION_CLOSED : CLAIM_SECTION_MAINTENANCE;
    if (has >= c->per_user_max || w->count > c->per_user_max - has) return CLAIM_LIMIT;
    return s->mode == SECTION_MODE_SEAT ? CLAIM_LEDGER_DECIDES : CLAIM_DONE;
}

static enum claim_outcome claim_outcome_of(enum seats_outcome seats) {
    switch (seats) {
    case SEATS_DONE:
        return CLAIM_DONE;
    case SEATS_SOLD_OUT:
        return CLAIM_SOLD_OUT;
    case SEATS_NOT_ENOUGH:
        return CLAIM_NOT_ENOUGH;
    case SEATS_TWICE:
        return CLAIM_SEATS_TWICE;
    case SEATS_OUT_OF_RANGE:
        return CLAIM_NO_SUCH_SEAT;
    case SEATS_TAKEN:
    case SEATS_OTHER_STATE:
    case SEATS_NOT_THEIRS:
        break;
    }
    return CLAIM_TAKEN;
}

/* Fills `seats` with the seats that were found, or that are the reason of a refusal. */
static void tell_seats(const struct claims *c, const struct claim_request *w,
                       enum seats_outcome found, uint32_t *seats, size_t *seat_count) {
    if (w->named == NULL) {
        *seat_count = found == SEATS_DONE ? w->count : 0;
        return;
    }
    *seat_count = found == SEATS_DONE ? w->count : c->refused_count;
    memcpy(seats, found == SEATS_DONE ? w->named : c->refused, *seat_count * sizeof *seats);
}

static enum claim_outcome take_seats(struct claims *c, struct claims_section *s,
                                     const struct claim_request *w, uint64_t holder,
                                     uint32_t *seats, size_t *seat_count) {
    enum seats_outcome taken =
        w->named == NULL
            ? seat_map_claim_any(s->map, w->count, holder, seats)
            : seat_map_claim(s->map, w->named, w->count, holder, c->refused, &c->refused_count);
    tell_seats(c, w, taken, seats, seat_count);
    return claim_outcome_of(taken);
}

static enum claim_outcome suggest_seats(struct claims *c, struct claims_section *s,
                                        const struct claim_request *w, uint32_t *seats,
                                        size_t *seat_count) {
    enum seats_outcome found =
        w->named == NULL
            ? seat_map_suggest(s->map, w->count, w->spread, seats)
            : seat_map_check(s->map, w->named, w->count, c->refused, &c->refused_count);
    tell_seats(c, w, found, seats, seat_count);
    return found == SEATS_DONE ? CLAIM_LEDGER_DECIDES : claim_outcome_of(found);
}

/* The reservation that the request has made already: by its id, and else by its key. NULL: none. */
static struct row *row_there(const struct claims *c, const struct claim_request *w,
                             uint32_t buyer) {
    uint32_t number = claim_find(c, &w->id);
    if (number != 0) return row_at(c, number);
    return buyer == 0 || w->key.key == 0 ? NULL : row_by_key(c, buyer_at(c, buyer), w->key.key);
}

static enum claim_outcome claim_there(const struct claims *c, const struct claim_request *w,
                                      uint32_t buyer, struct row *r, struct claim_info *out,
                                      uint32_t *seats, size_t *seat_count) {
    /* By its id it is the very same, though it may have lost seats since. */
    bool is_same = uuid_eq(&r->id, &w->id)
                       ? r->buyer == buyer && r->seat_count <= w->count
                       : r->key.request == w->key.request && r->seat_count == w->count;
    if (!is_same) return CLAIM_KEY_REUSED;
    *out = info_of(c, r);
    *seat_count = r->seat_count;
    memcpy(seats, seats_of(r), r->seat_count * sizeof *seats);
    return CLAIM_THERE;
}

enum claim_outcome claims_claim(struct claims *c, const struct claim_request *w, int64_t now_ms,
                                struct claim_info *out, uint32_t *seats, size_t *seat_count) {
    assert(w->count >= 1 && w->user.len > 0);
    *seat_count = 0;
    uint32_t buyer = buyer_find(c, w->user);
    struct row *r = row_there(c, w, buyer);
    if (r != NULL) return claim_there(c, w, buyer, r, out, seats, seat_count);
    struct claims_section *s = claims_section_of(c, w->section_key);
    uint32_t has = buyer == 0 ? 0 : buyer_at(c, buyer)->seats;
    enum claim_outcome outcome = claim_refusal(c, s, w, has, now_ms);
    if (outcome == CLAIM_LEDGER_DECIDES) return suggest_seats(c, s, w, seats, seat_count);
    if (outcome != CLAIM_DONE) return outcome;

    uint32_t number = row_new(c, &w->id, s);
    r = row_at(c, number);
    outcome = take_seats(c, s, w, handle_of(c, number), seats, seat_count);
    if (outcome != CLAIM_DONE) {
        r->step = STEP_GONE;
        pool_give(&c->rows, number);
        return outcome;
    }
    row_set_seats(r, seats, *seat_count);
    r->key = w->key;
    r->entry_seq = w->entry_seq;
    r->expires_ms = now_ms + c->hold_ms;
    index_add(&c->by_id[index_shard(id_hash(&r->id))], id_hash(&r->id), number);
    buyer_join(c, number, buyer, w->user);
    s->live++;
    claims_section_count(c, s);
    *out = info_of(c, r);
    return CLAIM_DONE;
}

/* ---- from the ledger ---- */

/* The seat is no longer its; without any it is gone. The map is the caller's. */
static void claim_lose(struct claims *c, uint32_t number, uint32_t seat) {
    struct row *r = row_at(c, number);
    uint32_t left[SEATS_PER_CALL_MAX];
    size_t count = 0;
    for (size_t i = 0; i < r->seat_count; i++)
        if (seats_of(r)[i] != seat) left[count++] = seats_of(r)[i];
    assert(count + 1 == r->seat_count);
    if (count == 0) {
        claim_forget(c, number);
        return;
    }
    if (r->seat_count > SEATS_FEW) mem_free(r->many);
    r->seat_count = 0;
    row_set_seats(r, left, count);
    buyer_at(c, r->buyer)->seats--;
}

/* The live reservation that has the seat; 0: none. */
static uint32_t holder_of(const struct claims *c, const struct claims_section *s, uint32_t seat) {
    enum seat_state state;
    uint64_t handle;
    if (!seat_map_look(s->map, seat, &state, &handle) || handle == 0) return 0;
    uint32_t number = number_of(c, handle);
    assert(number != 0);
    return number;
}

bool claims_free_seat(struct claims *c, int64_t section_key, uint32_t seat) {
    struct claims_section *s = claims_section_of(c, section_key);
    uint32_t number = s == NULL ? 0 : holder_of(c, s, seat);
    if (number == 0 || row_at(c, number)->step == STEP_PENDING) return false;
    seat_map_sync(s->map, seat, SEAT_AVAILABLE, 0);
    claim_lose(c, number, seat);
    claims_section_catch_up(c, s);
    return true;
}

/* Gives the seats that exist to the new reservation, even if others have them. */
static size_t seize_seats(struct claims *c, struct claims_section *s, uint32_t number,
                          const struct live_reservation *r, enum seat_state state,
                          uint32_t *seats) {
    size_t count = 0;
    for (size_t i = 0; i < r->seat_count; i++) {
        uint32_t other = holder_of(c, s, r->seats[i]);
        if (other == number) continue; /* named twice */
        if (!seat_map_sync(s->map, r->seats[i], state, handle_of(c, number))) continue;
        if (other != 0) claim_lose(c, other, r->seats[i]);
        seats[count++] = r->seats[i];
    }
    return count;
}

bool claims_apply(struct claims *c, const struct live_reservation *r) {
    assert(r->status == RESERVATION_HELD || r->status == RESERVATION_CONFIRMED);
    assert(r->seat_count >= 1 && r->seat_count <= SEATS_PER_CALL_MAX);
    struct claims_section *s = claims_section_of(c, r->section_key);
    if (s == NULL) return false;
    bool is_confirmed = r->status == RESERVATION_CONFIRMED;
    struct claim_key key = {0};
    uint32_t known = claim_find(c, &r->id);
    if (known != 0) {
        /* It becomes what the ledger says, but never goes a step back. */
        key = row_at(c, known)->key;
        is_confirmed = is_confirmed || row_at(c, known)->step == STEP_CONFIRMED;
        claim_end(c, known);
    }
    uint32_t seats[SEATS_PER_CALL_MAX];
    uint32_t number = row_new(c, &r->id, s);
    size_t count = seize_seats(c, s, number, r, is_confirmed ? SEAT_CONFIRMED : SEAT_HELD, seats);
    struct row *row = row_at(c, number);
    if (count == 0) {
        row->step = STEP_GONE;
        pool_give(&c->rows, number);
        return false;
    }
    row_set_seats(row, seats, count);
    row->key = key;
    row->entry_seq = r->entry_seq;
    row->expires_ms = r->expires_ms;
    index_add(&c->by_id[index_shard(id_hash(&row->id))], id_hash(&row->id), number);
    buyer_join(c, number, buyer_find(c, r->user), r->user);
    s->live++;
    if (is_confirmed)
        row->step = STEP_CONFIRMED;
    else
        claim_hold(c, number);
    claims_section_catch_up(c, s);
    return true;
}

/* ---- looks ---- */

size_t claims_of(const struct claims *c, str user, uint64_t entry_seq, struct claim_info *out,
                 size_t max) {
    size_t count = 0;
    uint32_t buyer = buyer_find(c, user);
    uint32_t older = 0;
    for (uint32_t n = buyer == 0 ? 0 : buyer_at(c, buyer)->newest; n != 0; n = older) {
        const struct row *r = row_at(c, n);
        older = r->older;
        if (entry_seq != 0 && r->entry_seq != entry_seq) continue;
        if (count < max) out[count] = info_of(c, r);
        count++;
    }
    return count;
}

bool claims_is_reserving(const struct claims *c, str user, uint64_t entry_seq) {
    uint32_t buyer = buyer_find(c, user);
    const struct row *r = NULL;
    for (uint32_t n = buyer == 0 ? 0 : buyer_at(c, buyer)->newest; n != 0; n = r->older) {
        r = row_at(c, n);
        if (r->step == STEP_HELD && r->entry_seq == entry_seq) return true;
    }
    return false;
}

static struct section_counts claims_section_counts(const struct claims_section *s) {
    return (struct section_counts){s->key, seat_map_capacity(s->map), s->counted};
}

size_t claims_sections(const struct claims *c, struct section_counts *out, size_t max) {
    size_t count = 0;
    for (size_t i = 0; i < c->section_count; i++) {
        const struct claims_section *s = c->sections[i];
        if (s == NULL || has_vanished(c, s)) continue;
        if (count < max) out[count] = claims_section_counts(s);
        count++;
    }
    return count;
}

struct seat_counts claims_totals(const struct claims *c) {
    return c->totals;
}

bool claims_ran_out(const struct claims *c) {
    return c->ran_out;
}

void claims_restore_ran_out(struct claims *c) {
    c->ran_out = true;
}

bool claims_has_all(const struct claims *c, str user) {
    uint32_t buyer = buyer_find(c, user);
    return buyer != 0 && buyer_at(c, buyer)->seats >= c->per_user_max;
}

bool claims_is_sold(const struct claims *c, int64_t section_key) {
    const struct claims_section *s = claims_section_of(c, section_key);
    return s != NULL && s->counted.available == 0 && s->counted.held == 0;
}

bool claims_render(const struct claims *c, int64_t section_key, uint32_t first, char *out,
                   size_t max, size_t *count, struct section_counts *counts) {
    const struct claims_section *s = claims_section_of(c, section_key);
    if (s == NULL) return false;
    *count = seat_map_render(s->map, first, out, max);
    if (counts != NULL) *counts = claims_section_counts(s);
    return true;
}
