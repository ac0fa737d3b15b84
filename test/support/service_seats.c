#include "service_seats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service/hold_expiry.h"
#include "service/leave.h"

static bool flag_is_set(void *flag) {
    return *(bool *)flag;
}

/* ---- the event and its people ---- */

struct event *fixture_event(struct fixture *h) {
    catalogue_read_lock(h->catalogue);
    struct event *e = event_copy(catalogue_find_key(h->catalogue, h->key));
    catalogue_read_unlock(h->catalogue);
    return e;
}

struct putting {
    struct event_change change;
    bool back;
    enum err result;
};

static void on_put(struct event_change *c, enum err result) {
    struct putting *p = CONTAINER_OF(c, struct putting, change);
    p->result = result;
    p->back = true;
}

enum err fixture_put(struct fixture *h, const struct event *wanted) {
    struct putting p = {
        .change = {.put = {.wanted = wanted, .note.detail = STR("{}")}, .done = on_put}};
    events_change(&h->events, &p.change);
    harness_wait(&h->h, flag_is_set, &p.back);
    mem_free(p.change.put.stored);
    return p.result;
}

uint64_t fixture_admit(struct fixture *h, const char *user) {
    struct place_enter e;
    assert_int_equal(fixture_enter(h, user, LANE_DEFAULT, &e), ERR_OK);
    assert_int_equal(e.enter.place.status, ENTRY_ACTIVE);
    return e.enter.place.seq;
}

/* ---- hold ---- */

static void fill_terms(struct fixture *h, size_t section, struct hold_terms *t) {
    catalogue_read_lock(h->catalogue);
    const struct event *e = catalogue_find_key(h->catalogue, h->key);
    assert_true(section < e->section_count);
    hold_terms_copy(t, e, &e->sections[section]);
    catalogue_read_unlock(h->catalogue);
}

static void fill_seats(struct fixture_hold *x, const struct hold_spec *w) {
    struct hold *g = &x->hold;
    g->count = w->quantity;
    if (w->seats == NULL) return;
    g->count = 0;
    while (w->seats[g->count] != 0) g->count++;
    uint32_t *copy = arena_new(&x->arena, g->count * sizeof *copy);
    memcpy(copy, w->seats, g->count * sizeof *copy);
    g->named = copy;
}

bool fixture_hold_replays(const struct fixture_hold *x, const struct uuid *id) {
    return x->result == ERR_OK && x->idempotency.replayed &&
           uuid_eq(&x->idempotency.reservation, id);
}

static void fill_key(struct fixture_hold *x, const struct hold_spec *w) {
    if (w->key == NULL) return;
    struct idempotency *i = &x->idempotency;
    *i = (struct idempotency){.user = str_of(w->user), .route = STR("hold"), .key = str_of(w->key)};
    memset(i->digest, w->body, sizeof i->digest);
    x->hold.idempotency = i;
    x->hold.key = (struct claim_key){.key = str_hash(i->key, 1) | 1, .request = w->body};
}

static void on_held(struct hold *g, enum err result) {
    struct fixture_hold *x = CONTAINER_OF(g, struct fixture_hold, hold);
    x->result = result;
    x->back = true;
    if (x->done != NULL) x->done(x);
}

void fixture_hold_prepare(struct fixture *h, struct fixture_hold *x, const struct hold_spec *w) {
    *x = (struct fixture_hold){.hold = {.user = str_of(w->user),
                                        .entry_seq = w->seq,
                                        .strategy = w->strategy,
                                        .done = on_held}};
    x->hold.arena = &x->arena;
    fill_terms(h, w->section, &x->hold.terms);
    fill_seats(x, w);
    fill_key(x, w);
}

void fixture_hold_start(struct fixture *h, struct lock_client *d, struct fixture_hold *x) {
    hold_seats(&h->reservations, d, &x->hold);
}

bool fixture_hold_is_back(void *hold) {
    return ((struct fixture_hold *)hold)->back;
}

void fixture_hold_end(struct fixture_hold *x) {
    arena_reset(&x->arena);
}

enum err fixture_hold(struct fixture *h, const struct hold_spec *w, struct reservation **out) {
    struct fixture_hold x;
    fixture_hold_prepare(h, &x, w);
    fixture_hold_start(h, &h->lock_client, &x);
    harness_wait(&h->h, fixture_hold_is_back, &x);
    bool is_new = x.result == ERR_OK && !x.idempotency.replayed;
    if (out != NULL) *out = is_new ? test_reservation_copy(&x.hold.reservation) : NULL;
    fixture_hold_end(&x);
    return x.result;
}

struct uuid fixture_held(struct fixture *h, const struct hold_spec *w) {
    struct reservation *r = NULL;
    assert_int_equal(fixture_hold(h, w, &r), ERR_OK);
    struct uuid id = r->id;
    mem_free(r);
    return id;
}

/* ---- and after ---- */

struct decision {
    struct reservation_action d;
    const char *user; /* NULL: any user */
    bool back;
    enum err result;
};

static enum err judge_user(struct reservation_action *d, const struct reservation *r) {
    const char *user = CONTAINER_OF(d, struct decision, d)->user;
    return user == NULL || strcmp(user, r->user) == 0 ? ERR_OK : ERR_NOT_YOURS;
}

static void on_decided(struct reservation_action *d, enum err result) {
    struct decision *x = CONTAINER_OF(d, struct decision, d);
    x->result = result;
    x->back = true;
}

static enum err decide(struct fixture *h,
                       void (*how)(struct reservations *, struct reservation_action *),
                       const struct uuid *id, const char *user, struct reservation **out) {
    struct decision x = {
        .d = {.id = *id, .judge = judge_user, .may_end_confirmed = true, .done = on_decided},
        .user = user};
    how(&h->reservations, &x.d);
    harness_wait(&h->h, flag_is_set, &x.back);
    if (out != NULL)
        *out = x.d.reservation;
    else
        mem_free(x.d.reservation);
    return x.result;
}

enum err fixture_confirm(struct fixture *h, const struct uuid *id, const char *user,
                         struct reservation **out) {
    return decide(h, reservations_confirm, id, user, out);
}

enum err fixture_cancel(struct fixture *h, const struct uuid *id, const char *user,
                        struct reservation **out) {
    return decide(h, reservations_cancel, id, user, out);
}

struct reservation *fixture_find(struct fixture *h, const struct uuid *id) {
    struct reservation *found = NULL;
    enum err result = decide(h, reservations_find, id, NULL, &found);
    assert_true(result == ERR_OK || result == ERR_RESERVATION_NOT_FOUND);
    return found;
}

struct departure {
    struct place_leave l;
    bool back;
    enum err result;
};

static void on_left(struct place_leave *l, enum err result) {
    struct departure *x = CONTAINER_OF(l, struct departure, l);
    x->result = result;
    x->back = true;
}

enum err fixture_leave(struct fixture *h, uint64_t seq) {
    struct arena arena = {0};
    struct departure x = {.l = {.event_key = h->key, .seq = seq, .arena = &arena, .done = on_left}};
    leave_place(&h->reservations, &x.l);
    harness_wait(&h->h, flag_is_set, &x.back);
    arena_reset(&arena);
    return x.result;
}

void fixture_expire(struct fixture *h) {
    hold_expiry_tick(&h->reservations, h->key);
    fixture_wait_idle(h);
}

/* ---- the seats ---- */

static int64_t section_key(struct fixture *h, size_t section) {
    struct event *e = fixture_event(h);
    assert_true(section < e->section_count);
    int64_t key = e->sections[section].key;
    mem_free(e);
    return key;
}

static void on_rendered(struct render_op *r) {
    assert_int_equal(r->op.result, ERR_OK);
}

static struct section_counts render(struct fixture *h, int64_t key, char *letters, size_t room) {
    struct render_op r = {.op.event_key = h->key,
                          .section_key = key,
                          .first = 1,
                          .letters = letters,
                          .max = room - 1,
                          .done = on_rendered};
    seats_render(memory_seats(h->hot), &r);
    letters[r.count] = '\0';
    return r.counts;
}

const char *fixture_map(struct fixture *h, size_t section) {
    static char letters[FIXTURE_SEATS_MAX + 1];
    render(h, section_key(h, section), letters, sizeof letters);
    return letters;
}

void fixture_assert_seats(struct fixture *h, size_t section, int64_t held, int64_t confirmed) {
    int64_t key = section_key(h, section);
    char letters[2];
    struct section_counts hot = render(h, key, letters, sizeof letters);
    assert_int_equal(hot.seats.held, held);
    assert_int_equal(hot.seats.confirmed, confirmed);
    static const char sql[] = "SELECT count(*) FROM seats WHERE section_id = %lld AND state = '%s'";
    assert_int_equal(raw_number(&h->h, sql, (long long)key, "HELD"), held);
    assert_int_equal(raw_number(&h->h, sql, (long long)key, "CONFIRMED"), confirmed);
}

static void on_told(struct holds_op *o) {
    assert_int_equal(o->op.result, ERR_OK);
}

size_t fixture_holds(struct fixture *h, const char *user, struct claim_info *out, size_t max) {
    struct holds_op o = {.op.event_key = h->key,
                         .user = str_of(user),
                         .reservations = out,
                         .max = max,
                         .done = on_told};
    seats_holds(memory_seats(h->hot), &o);
    return o.count;
}

/* The expected seat maps, by the ledger. */
struct expected {
    struct fixture *fixture;
    const struct event *event;
    char (*maps)[FIXTURE_SEATS_MAX + 1]; /* one for each section */
};

static char *map_of(struct expected *x, int64_t key) {
    size_t i = 0;
    while (i < x->event->section_count && x->event->sections[i].key != key) i++;
    assert_true(i < x->event->section_count);
    return x->maps[i];
}

static void on_reservation(void *to, const struct reservation *r) {
    struct expected *x = to;
    if (r->event_key != x->fixture->key) return;
    char *map = map_of(x, r->section_key);
    for (uint32_t i = 0; i < r->seat_count; i++) {
        assert_int_equal(map[r->seats[i] - 1], 'A');
        map[r->seats[i] - 1] = r->status == RESERVATION_HELD ? 'H' : 'C';
    }
    struct claim_info live[FIXTURE_SEATS_MAX];
    size_t count = fixture_holds(x->fixture, r->user, live, FIXTURE_SEATS_MAX);
    size_t at = 0;
    while (at < count && !uuid_eq(&live[at].id, &r->id)) at++;
    assert_true(at < count);
    assert_int_equal(live[at].status, r->status);
    assert_int_equal(live[at].seat_count, r->seat_count);
    assert_int_equal(live[at].entry_seq, r->entry_seq);
    assert_int_equal(live[at].expires_ms, r->expires_ms);
    assert_false(live[at].pending);
}

void fixture_assert_same_seats(struct fixture *h) {
    struct event *e = fixture_event(h);
    struct expected x = {.fixture = h, .event = e};
    x.maps = mem_new(e->section_count * sizeof *x.maps);
    for (size_t i = 0; i < e->section_count; i++) {
        assert_true(e->sections[i].capacity <= FIXTURE_SEATS_MAX);
        memset(x.maps[i], 'A', (size_t)e->sections[i].capacity);
    }
    struct ledger_reader reader = {.on_reservation = on_reservation, .to = &x};
    assert_int_equal(ledger_load(h->ledger, &reader), ERR_OK);
    for (size_t i = 0; i < e->section_count; i++) assert_string_equal(fixture_map(h, i), x.maps[i]);
    mem_free(x.maps);
    mem_free(e);
}
