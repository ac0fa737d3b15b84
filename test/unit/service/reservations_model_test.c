/*
 * Random histories of reservations on the real ledger and the real hot store, against a model in
 * plain arrays, with which every answer is compared; at intervals also everything that the two
 * stores hold. A failure names its seed and step (history.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "history.h"
#include "seats_model.h"
#include "service_seats.h"
#include "wall_clock.h"

#define SEEDS 3
#define STEPS 1200
#define CAPACITY_MAX 14
#define NAMED_MAX 5
#define ACTIVE_TTL_MS 600000
#define KEYS 3 /* per user: so few that every seed uses one twice, with each of its results */

/* ---- the model: seats_model.h has live reservations; the rest is here ---- */

/* A reservation in any status. Its number in seats_model is its place here, plus 1. */
struct made {
    struct uuid id;
    int user;
    uint64_t entry_seq;
    enum reservation_status status;
    int64_t expires_ms;
    char code[CONFIRMATION_CODE_CHARS + 1];
};

struct used_key {
    bool used;
    size_t made;
    struct hold_spec spec;
    uint32_t seats[NAMED_MAX + 1]; /* of the spec */
};

static struct fixture fixture;
static struct seats_model m;
static struct made made[STEPS];
static size_t made_count;
static struct used_key keys[MODEL_BUYERS][KEYS];
static uint64_t last_seq[MODEL_BUYERS];    /* 0: never was in */
static int64_t stay_ends_ms[MODEL_BUYERS]; /* of an entry that has not ended otherwise; else 0 */
static enum event_state event_state;
/* How often each result came, so that none is never tried. */
static int outcomes[ERR_VERSION_NOT_SUPPORTED + 1];

static const char *user_name(int user) {
    static char names[MODEL_BUYERS][16];
    snprintf(names[user], sizeof names[user], "user%d", user);
    return names[user];
}

static const char *key_name(int key) {
    static char names[KEYS][16];
    snprintf(names[key], sizeof names[key], "key%d", key);
    return names[key];
}

static bool is_active(int user) {
    return stay_ends_ms[user] > m.now_ms;
}

static bool holds_any(int user) {
    return seats_model_taken(&m, -1, user, false) > 0;
}

static void model_end(size_t at, enum reservation_status final) {
    made[at].status = final;
    seats_model_remove(&m, seats_model_find(&m, at + 1));
}

/* ---- comparing all ---- */

static void check_section(int section) {
    char map[FIXTURE_SEATS_MAX + 1];
    snprintf(map, sizeof map, "%s", fixture_map(&fixture, (size_t)section));
    CHECK(strlen(map) == m.sections[section].capacity);
    for (uint32_t seat = 1; seat <= m.sections[section].capacity; seat++) {
        const struct model_reservation *r = seats_model_holder(&m, section, seat);
        CHECK(map[seat - 1] == (r == NULL ? 'A' : r->confirmed ? 'C' : 'H'));
    }
}

static void check_user(int user) {
    struct claim_info live[FIXTURE_SEATS_MAX];
    size_t count = fixture_holds(&fixture, user_name(user), live, FIXTURE_SEATS_MAX);
    size_t expected = 0;
    for (size_t i = 0; i < m.live_count; i++) {
        if (m.live[i].user != user) continue;
        const struct made *r = &made[m.live[i].id - 1];
        size_t at = 0;
        while (at < count && !uuid_eq(&live[at].id, &r->id)) at++;
        CHECK(at < count && live[at].status == r->status);
        CHECK(live[at].expires_ms == r->expires_ms && live[at].entry_seq == r->entry_seq);
        expected++;
    }
    CHECK(count == expected);
}

static void expire(void);

/* Expired holds are ended first, as a server would do. */
static void check_all(void) {
    expire();
    for (int i = 0; i < MODEL_SECTIONS; i++) check_section(i);
    for (int i = 0; i < MODEL_BUYERS; i++) check_user(i);
    fixture_assert_agreement(&fixture);
    for (int i = 0; i < 20 && made_count > 0; i++) {
        const struct made *x = &made[between(0, (int64_t)made_count - 1)];
        struct reservation *r = fixture_find(&fixture, &x->id);
        CHECK(r != NULL && r->status == x->status);
        mem_free(r);
    }
}

/* ---- steps ---- */

static bool has_all_seats(int user) {
    uint32_t seats = 0;
    for (size_t i = 0; i < m.live_count; i++)
        if (m.live[i].user == user) seats += m.live[i].count;
    return seats > 0 && seats >= m.limit;
}

static void enter(void) {
    int user = (int)between(0, MODEL_BUYERS - 1);
    struct place_enter e;
    CHECK(fixture_enter(&fixture, user_name(user), LANE_DEFAULT, &e) == ERR_OK);
    if (is_active(user)) {
        CHECK(e.enter.outcome == ENTER_THERE && e.enter.place.seq == last_seq[user]);
    } else if (event_state != EVENT_OPEN) {
        CHECK(e.enter.outcome == (has_all_seats(user) ? ENTER_LIMIT : ENTER_CLOSED));
    } else if (has_all_seats(user)) {
        CHECK(e.enter.outcome == ENTER_LIMIT);
    } else {
        CHECK(e.enter.outcome == ENTER_TAKEN && e.enter.place.seq > last_seq[user]);
        CHECK(e.enter.place.status == ENTRY_ACTIVE);
        last_seq[user] = e.enter.place.seq;
        stay_ends_ms[user] = m.now_ms + ACTIVE_TTL_MS;
    }
}

static enum strategy some_strategy(enum section_mode mode) {
    if (mode != SECTION_MODE_SEAT) return strategy_default(mode);
    return (enum strategy)between(STRATEGY_OPTIMISTIC, STRATEGY_DISTRIBUTED_LOCK);
}

/* Ascending, each once, now and then one that does not exist. */
static void some_seats(uint32_t *seats) {
    int count = 0;
    int64_t wanted = between(1, NAMED_MAX);
    for (uint32_t seat = (uint32_t)between(1, 8); seat <= CAPACITY_MAX + 1 && count < wanted;
         seat += (uint32_t)between(1, 3))
        seats[count++] = seat;
    seats[count] = 0;
}

static struct hold_spec random_hold_spec(int user, uint32_t *seats) {
    int section = (int)between(0, MODEL_SECTIONS - 1);
    struct hold_spec w = {.user = user_name(user),
                          .seq = last_seq[one_in(30) ? between(0, MODEL_BUYERS - 1) : user],
                          .section = (size_t)section,
                          .strategy = some_strategy(m.sections[section].mode),
                          .quantity = (uint32_t)between(1, NAMED_MAX)};
    some_seats(seats);
    if (one_in(2)) w.seats = seats;
    return w;
}

static enum err err_of(enum claim_outcome o) {
    switch (o) {
    case CLAIM_NOT_ACTIVE:
        return ERR_NOT_ACTIVE;
    case CLAIM_EVENT_CLOSED:
        return ERR_CLOSED;
    case CLAIM_SECTION_CLOSED:
    case CLAIM_SECTION_MAINTENANCE:
        return ERR_SECTION_CLOSED;
    case CLAIM_LIMIT:
        return ERR_LIMIT_EXCEEDED;
    case CLAIM_SOLD_OUT:
    case CLAIM_NOT_ENOUGH:
        return ERR_SOLD_OUT;
    case CLAIM_TAKEN:
        return ERR_SEAT_TAKEN;
    case CLAIM_NO_SUCH_SEAT:
        return ERR_SEAT_NOT_FOUND;
    default:
        return ERR_OK;
    }
}

/* Where the ledger decides: the named seats that are taken, in r->seats. */
static bool find_taken(struct model_reservation *r) {
    uint32_t taken = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (seats_model_holder(&m, r->section, r->seats[i]) != NULL)
            r->seats[taken++] = r->seats[i];
    if (taken > 0) r->count = taken;
    return taken > 0;
}

/* The expected result; *r has the seats, or those that refuse it. */
static enum err model_hold(int user, const struct hold_spec *w, struct model_reservation *r) {
    *r = (struct model_reservation){.id = made_count + 1,
                                    .user = user,
                                    .entry_seq = w->seq,
                                    .section = (int)w->section,
                                    .count = w->seats == NULL ? w->quantity : 0};
    while (w->seats != NULL && w->seats[r->count] != 0) r->count++;
    for (int i = 0; i < MODEL_BUYERS; i++) m.entries[i] = is_active(i) ? last_seq[i] : 0;
    struct model_reservation *there = NULL;
    enum claim_outcome o = seats_model_claim(&m, r, w->seats, &there);
    if (o == CLAIM_LEDGER_DECIDES && find_taken(r)) return ERR_SEAT_TAKEN;
    if (o == CLAIM_LEDGER_DECIDES) seats_model_add(&m, r);
    return err_of(o);
}

static void check_held(const struct reservation *r, const struct hold_spec *w,
                       const struct model_reservation *expected) {
    CHECK(r->seat_count == expected->count && r->entry_seq == w->seq);
    CHECK(memcmp(r->seats, expected->seats, r->seat_count * sizeof *r->seats) == 0);
    CHECK(r->strategy == w->strategy && r->status == RESERVATION_HELD);
    CHECK(r->created_ms == m.now_ms && r->expires_ms == m.now_ms + m.hold_ms);
    struct model_reservation *live = seats_model_find(&m, expected->id);
    live->pending = false;
    live->expires_ms = r->expires_ms;
    made[made_count++] = (struct made){.id = r->id,
                                       .user = expected->user,
                                       .entry_seq = w->seq,
                                       .status = RESERVATION_HELD,
                                       .expires_ms = r->expires_ms};
}

static void check_refused(const struct hold *g, enum err result,
                          const struct model_reservation *expected) {
    if (result != ERR_SEAT_TAKEN && result != ERR_SEAT_NOT_FOUND) return;
    CHECK(g->refused_count == expected->count);
    CHECK(memcmp(g->refused, expected->seats, g->refused_count * sizeof *g->refused) == 0);
}

/* A request with an unused key is like one without, and then the key is used. */
static void run_hold(int user, const struct hold_spec *w, struct used_key *key) {
    struct fixture_hold x;
    fixture_hold_prepare(&fixture, &x, w);
    fixture_hold_start(&fixture, &fixture.lock_client, &x);
    harness_wait(&fixture.h, fixture_hold_is_back, &x);
    outcomes[x.result]++;
    if (key != NULL && key->used) {
        bool same = key->spec.body == w->body;
        CHECK(same ? fixture_hold_replays(&x, &made[key->made].id)
                   : x.result == ERR_IDEMPOTENCY_MISMATCH);
    } else {
        struct model_reservation expected;
        enum err result = model_hold(user, w, &expected);
        CHECK(x.result == result && !x.idempotency.replayed);
        check_refused(&x.hold, result, &expected);
        if (key != NULL && result == ERR_OK) {
            key->used = true;
            key->made = made_count;
            key->spec = *w;
            if (w->seats != NULL) key->spec.seats = key->seats;
        }
        if (result == ERR_OK) check_held(&x.hold.reservation, w, &expected);
    }
    fixture_hold_end(&x);
}

static void hold(void) {
    int user = (int)between(0, MODEL_BUYERS - 1);
    uint32_t seats[NAMED_MAX + 1];
    struct hold_spec w = random_hold_spec(user, seats);
    if (!one_in(4)) {
        run_hold(user, &w, NULL);
        return;
    }
    int number = (int)between(0, KEYS - 1);
    struct used_key *key = &keys[user][number];
    w.key = key_name(number);
    w.body = 1;
    if (key->used && one_in(4)) {
        w.body = 2; /* another request */
    } else if (key->used) {
        if (!strategy_fits(m.sections[key->spec.section].mode, key->spec.strategy)) return;
        w = key->spec;
    } else {
        memcpy(key->seats, seats, sizeof seats);
    }
    run_hold(user, &w, key);
}

/* Mostly one of the newest, so that it is often live; STEPS: there is none. */
static size_t some_made(void) {
    if (made_count == 0 || one_in(40)) return STEPS;
    int64_t back = one_in(4) ? between(1, (int64_t)made_count) : between(1, 12);
    return back > (int64_t)made_count ? 0 : made_count - (size_t)back;
}

/* The refusals that come before all others. */
static enum err model_asked(size_t at, int user) {
    if (at == STEPS) return ERR_RESERVATION_NOT_FOUND;
    return made[at].user == user ? ERR_OK : ERR_NOT_YOURS;
}

/* The hold's time decides, whichever request comes first. */
static bool model_is_over(size_t at) {
    struct made *x = &made[at];
    if (x->status == RESERVATION_HELD && x->expires_ms <= m.now_ms)
        model_end(at, RESERVATION_EXPIRED);
    return x->status == RESERVATION_EXPIRED;
}

static enum err model_confirm(size_t at) {
    struct made *x = &made[at];
    if (model_is_over(at)) return ERR_HOLD_EXPIRED;
    if (x->status == RESERVATION_CANCELLED) return ERR_RESERVATION_ENDED;
    if (x->status == RESERVATION_CONFIRMED) return ERR_OK;
    x->status = RESERVATION_CONFIRMED;
    seats_model_find(&m, at + 1)->confirmed = true;
    bool is_the_stay = x->entry_seq == last_seq[x->user] && is_active(x->user);
    if (is_the_stay && !holds_any(x->user)) stay_ends_ms[x->user] = 0;
    return ERR_OK;
}

static enum err model_cancel(size_t at) {
    if (model_is_over(at)) return ERR_HOLD_EXPIRED;
    if (reservation_is_live(made[at].status)) model_end(at, RESERVATION_CANCELLED);
    return ERR_OK;
}

static void decide(bool confirms) {
    size_t at = some_made();
    struct uuid id = at == STEPS ? uuid_new(m.now_ms) : made[at].id;
    int user = at == STEPS || one_in(20) ? (int)between(0, MODEL_BUYERS - 1) : made[at].user;
    struct reservation *r = NULL;
    enum err result =
        (confirms ? fixture_confirm : fixture_cancel)(&fixture, &id, user_name(user), &r);
    outcomes[result]++;
    enum err expected = model_asked(at, user);
    if (expected == ERR_OK) {
        expected = confirms ? model_confirm(at) : model_cancel(at);
        CHECK(r != NULL && r->status == made[at].status);
        if (made[at].code[0] != '\0') CHECK(strcmp(made[at].code, r->confirmation_code) == 0);
        memcpy(made[at].code, r->confirmation_code, sizeof made[at].code);
    }
    CHECK(result == expected);
    mem_free(r);
}

static void leave(void) {
    int user = (int)between(0, MODEL_BUYERS - 1);
    if (last_seq[user] == 0) return;
    CHECK(fixture_leave(&fixture, last_seq[user]) == ERR_OK);
    for (size_t i = 0; i < made_count; i++)
        if (made[i].user == user && made[i].entry_seq == last_seq[user] &&
            made[i].status == RESERVATION_HELD)
            model_end(i, RESERVATION_CANCELLED);
    stay_ends_ms[user] = 0;
}

static void expire(void) {
    fixture_expire(&fixture);
    for (size_t i = 0; i < made_count; i++)
        if (made[i].status == RESERVATION_HELD && made[i].expires_ms <= m.now_ms)
            model_end(i, RESERVATION_EXPIRED);
}

static void pass_time(void) {
    int64_t ms = one_in(8) ? between(0, 2 * m.hold_ms) : between(0, 5000);
    m.now_ms += ms;
    wall_clock_advance(ms);
}

/* Whether the section can be changed so, with its live reservations. */
static bool may_become(int section, const struct section *wanted) {
    bool was_seat = m.sections[section].mode == SECTION_MODE_SEAT;
    bool changes = was_seat != (wanted->mode == SECTION_MODE_SEAT);
    for (uint32_t seat = 1; seat <= m.sections[section].capacity; seat++)
        if (seats_model_holder(&m, section, seat) != NULL && (changes || seat > wanted->capacity))
            return false;
    return true;
}

static void change_section(struct section *s) {
    s->capacity = between(4, CAPACITY_MAX);
    s->status = one_in(5) ? (enum section_status)between(SECTION_CLOSED, SECTION_MAINTENANCE)
                          : SECTION_OPEN;
    if (one_in(2)) s->mode = (enum section_mode)between(SECTION_MODE_SLOT, SECTION_MODE_SEAT);
}

static void model_put(const struct event *e) {
    event_state = e->state;
    m.is_closed = e->state == EVENT_CLOSED;
    m.limit = e->max_per_user;
    m.hold_ms = e->hold_s * 1000;
    for (int i = 0; i < MODEL_SECTIONS; i++) {
        const struct section *s = &e->sections[i];
        m.sections[i] = (struct model_section){.exists = true,
                                               .wanted = (uint32_t)s->capacity,
                                               .capacity = (uint32_t)s->capacity,
                                               .mode = s->mode,
                                               .status = s->status};
    }
}

static void change_event(void) {
    struct event *e = fixture_event(&fixture);
    static const enum event_state states[] = {EVENT_OPEN, EVENT_OPEN, EVENT_OPEN, EVENT_DRAINING,
                                              EVENT_CLOSED};
    e->state = states[between(0, 4)];
    e->max_per_user = between(1, 8);
    e->hold_s = between(5, 60);
    int section = (int)between(0, MODEL_SECTIONS - 1);
    change_section(&e->sections[section]);
    bool may = may_become(section, &e->sections[section]);
    enum err result = fixture_put(&fixture, e);
    outcomes[result]++;
    CHECK(result == (may ? ERR_OK : ERR_SECTION_IN_USE));
    if (may) model_put(e);
    mem_free(e);
}

static void confirm(void) {
    decide(true);
}

static void cancel(void) {
    decide(false);
}

static void recover(void) {
    fixture_recover(&fixture);
}

/* ---- histories ---- */

static struct event *first_event(void) {
    struct event *e = test_event("1", MODEL_SECTIONS);
    e->queue = (struct queue_rules){.max_waiting = 100,
                                    .max_active = 1000,
                                    .entry_batch_size = 100000,
                                    .entry_interval_s = 1,
                                    .active_ttl_s = ACTIVE_TTL_MS / 1000,
                                    .grace_s = 300};
    e->hold_s = 30;
    for (int i = 0; i < MODEL_SECTIONS; i++) {
        e->sections[i].capacity = CAPACITY_MAX;
        e->sections[i].mode = (enum section_mode)(i + 1);
    }
    return e;
}

static void begin_history(void) {
    m = (struct seats_model){.now_ms = clock_wall_ms()};
    made_count = 0;
    memset(keys, 0, sizeof keys);
    memset(last_seq, 0, sizeof last_seq);
    memset(stay_ends_ms, 0, sizeof stay_ends_ms);
    wall_clock_set(m.now_ms);
    struct event *e = first_event();
    fixture_build_event(&fixture, e);
    model_put(e);
    mem_free(e);
}

static void check_now_and_then(void) {
    fixture_wait_idle(&fixture);
    if (history_step() % 40 == 39) check_all();
}

static void end_history(void) {
    fixture_recover(&fixture);
    check_all();
    fixture_tear_down(&fixture);
    wall_clock_release();
}

/* Whether each result that a user can cause has been seen. */
static bool saw_all_results(void) {
    static const enum err tried[] = {ERR_OK,
                                     ERR_NOT_ACTIVE,
                                     ERR_CLOSED,
                                     ERR_SECTION_CLOSED,
                                     ERR_SEAT_TAKEN,
                                     ERR_SOLD_OUT,
                                     ERR_LIMIT_EXCEEDED,
                                     ERR_SEAT_NOT_FOUND,
                                     ERR_HOLD_EXPIRED,
                                     ERR_SECTION_IN_USE,
                                     ERR_NOT_YOURS,
                                     ERR_RESERVATION_NOT_FOUND,
                                     ERR_RESERVATION_ENDED,
                                     ERR_IDEMPOTENCY_MISMATCH};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        if (outcomes[tried[i]] == 0) return false;
    return true;
}

static void random_histories_give_what_a_simple_model_gives(void **state) {
    (void)state;
    static const struct history_act acts[] = {
        {18, enter},     {36, hold},  {14, confirm},     {10, cancel}, {4, leave},
        {10, pass_time}, {3, expire}, {4, change_event}, {1, recover}, {0},
    };
    history_run(&(struct history){.seeds = SEEDS,
                                  .steps = STEPS,
                                  .acts = acts,
                                  .begin = begin_history,
                                  .check = check_now_and_then,
                                  .check_every = 1,
                                  .end = end_history,
                                  .is_covered = saw_all_results});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
