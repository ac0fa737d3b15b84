/* The events' seats through their port, against a model (seats_model.h): seeded random histories,
 * every answer compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "history.h"
#include "seats_model.h"
#include "seats_steps.h"

#define SEEDS 3
#define STEPS 20000
#define REMOTE_SEEDS 1
#define REMOTE_STEPS 2500
#define NAMED_MOST 6
#define NOBODYS_ENTRY 1000000

static const struct queue_adapter *adapter;
static struct seats_test test;
static struct seats_model m;
static uint64_t next_id;
static uint64_t last_seq; /* of an entry */
/* Who is admitted depends on whether the seats had run out, and on the offers that are open. */
static struct stock {
    bool had_any;
    bool ran_out;
    bool offers[MODEL_BUYERS]; /* of the users' entries */
} stock;

static const char *user_name(int user) {
    static char names[MODEL_BUYERS][16];
    snprintf(names[user], sizeof names[user], "user%d", user);
    return names[user];
}

static int64_t key_of(int section) {
    return FLOOR + section;
}

/* The id of a live reservation, of an ended one, or an unknown one. */
static uint64_t some_id(void) {
    if (m.live_count > 0 && !one_in(6)) return m.live[between(0, (int64_t)m.live_count - 1)].id;
    return (uint64_t)between(1, (int64_t)next_id + 1);
}

/* ---- comparing ---- */

static void check_info(const struct claim_info *i, const struct model_reservation *r) {
    CHECK(number_of(&i->id) == r->id && i->entry_seq == r->entry_seq);
    CHECK(i->section_key == key_of(r->section) && i->seat_count == r->count);
    CHECK((i->status == RESERVATION_CONFIRMED) == r->confirmed && i->pending == r->pending);
    CHECK(i->expires_ms == r->expires_ms);
}

static void check_section(int section) {
    const struct model_section *s = &m.sections[section];
    struct section_counts c = step_section(&test.s, KEY, key_of(section));
    char map[MODEL_SEATS + 2];
    size_t count;
    enum err result = step_render(&test.s, KEY, key_of(section), 1, map, MODEL_SEATS + 1, &count);
    CHECK(result == (s->exists ? ERR_OK : ERR_SECTION_NOT_FOUND));
    if (!s->exists) {
        CHECK(c.capacity == 0);
        return;
    }
    CHECK(c.capacity == s->capacity && count == s->capacity);
    CHECK(c.seats.held == seats_model_taken(&m, section, -1, false));
    CHECK(c.seats.confirmed == seats_model_taken(&m, section, -1, true));
    CHECK(c.seats.available == s->capacity - c.seats.held - c.seats.confirmed);
    for (uint32_t seat = 1; seat <= s->capacity; seat++) {
        const struct model_reservation *r = seats_model_holder(&m, section, seat);
        CHECK(map[seat - 1] == (r == NULL ? 'A' : r->confirmed ? 'C' : 'H'));
    }
}

static void check_user(int user) {
    struct claim_info out[MODEL_LIVE];
    size_t count = step_holds(&test.s, KEY, user_name(user), 0, out, MODEL_LIVE);
    size_t at = 0;
    bool reserving = false;
    for (size_t i = m.live_count; i > 0; i--) {
        const struct model_reservation *r = &m.live[i - 1];
        if (r->user != user) continue;
        CHECK(at < count);
        check_info(&out[at++], r);
        if (!r->pending && !r->confirmed && r->entry_seq == m.entries[user]) reserving = true;
    }
    CHECK(at == count);
    if (m.entries[user] == 0) return;
    struct look_item item = {.seq = m.entries[user]};
    step_look_at(&test.s, KEY, &item, 1, m.now_ms, NULL, NULL);
    CHECK(item.reserving == reserving);
}

static void check_totals(void) {
    struct seat_counts sum = {0};
    struct seat_counts c = step_totals(&test.s, KEY);
    for (int i = 0; i < MODEL_SECTIONS; i++) {
        if (!m.sections[i].exists) continue;
        uint32_t held = seats_model_taken(&m, i, -1, false);
        uint32_t confirmed = seats_model_taken(&m, i, -1, true);
        sum.held += held;
        sum.confirmed += confirmed;
        sum.available += m.sections[i].capacity - held - confirmed;
    }
    CHECK(c.available == sum.available && c.held == sum.held && c.confirmed == sum.confirmed);
}

/* ---- the steps ---- */

static void check_claimed(const struct claimed *c, const struct model_reservation *r,
                          enum claim_outcome outcome) {
    bool refused =
        outcome == CLAIM_TAKEN || outcome == CLAIM_SEATS_TWICE || outcome == CLAIM_NO_SUCH_SEAT;
    bool is_there = outcome == CLAIM_DONE || outcome == CLAIM_THERE;
    bool suggests = outcome == CLAIM_LEDGER_DECIDES;
    if (is_there) check_info(&c->r, r);
    CHECK(c->count == (is_there || refused || suggests ? r->count : 0));
    for (size_t i = 0; i < c->count; i++) CHECK(c->seats[i] == r->seats[i]);
}

/* The adapter may choose the seats: as many, ascending and free. */
static void check_spread(const struct claimed *c, const struct model_reservation *r) {
    CHECK(c->count == r->count);
    for (size_t i = 0; i < c->count; i++) {
        CHECK(i == 0 || c->seats[i] > c->seats[i - 1]);
        CHECK(c->seats[i] >= 1 && c->seats[i] <= m.sections[r->section].capacity);
        CHECK(seats_model_holder(&m, r->section, c->seats[i]) == NULL);
    }
}

/* The entry has claimed seats. */
static void use_offer(uint64_t entry_seq) {
    for (int i = 0; i < MODEL_BUYERS; i++)
        if (m.entries[i] == entry_seq) stock.offers[i] = false;
}

static void port_claim(void) {
    uint32_t named[NAMED_MOST];
    int user = (int)between(0, MODEL_BUYERS - 1);
    struct model_reservation r = {.id = next_id++,
                                  .user = user,
                                  .entry_seq =
                                      one_in(20) ? (uint64_t)between(0, 9) : m.entries[user],
                                  .section = (int)between(0, MODEL_SECTIONS - 1),
                                  .count = (uint32_t)between(1, NAMED_MOST)};
    if (one_in(3)) {
        r.key = (struct claim_key){(uint64_t)between(1, 4), one_in(4) ? 2 : 1};
        r.count = one_in(8) ? r.count : (uint32_t)r.key.key;
    }
    bool is_named = one_in(3);
    for (uint32_t i = 0; i < r.count; i++)
        named[i] = (uint32_t)between(one_in(20) ? 0 : 1, one_in(20) ? MODEL_SEATS : 30);
    struct claim_request w = {.id = id_of(r.id),
                              .user = str_of(user_name(user)),
                              .entry_seq = r.entry_seq,
                              .section_key = key_of(r.section),
                              .count = r.count,
                              .named = is_named ? named : NULL,
                              .key = r.key,
                              .spread = one_in(2) ? 0 : history_random()};
    bool fails = one_in(10);
    test.s.verdict = fails ? ERR_OVERLOADED : ERR_OK;
    struct claimed c = step_claim(&test.s, KEY, &w, m.now_ms);
    test.s.verdict = ERR_OK;
    if (c.outcome == CLAIM_DONE) use_offer(r.entry_seq);
    struct model_reservation *there = NULL;
    enum claim_outcome outcome = seats_model_claim(&m, &r, is_named ? named : NULL, &there);
    CHECK(c.outcome == outcome);
    if (outcome == CLAIM_THERE) r = *there;
    if (outcome == CLAIM_LEDGER_DECIDES && !is_named && w.spread != 0)
        check_spread(&c, &r);
    else
        check_claimed(&c, &r, outcome);
    bool submits = (outcome == CLAIM_DONE || outcome == CLAIM_THERE) && r.pending;
    CHECK(store_heard(&test.s, test.heard, 4096) == (submits ? 1 : 0));
    if (submits) CHECK(test.heard[0].entry.seq == r.id && test.heard[0].now_ms == m.now_ms);
    CHECK(c.result == (submits && fails ? ERR_OVERLOADED : ERR_OK));
    if (fails && outcome == CLAIM_DONE) seats_model_remove(&m, seats_model_find(&m, r.id));
}

static void port_settle(void) {
    uint64_t id = some_id();
    bool kept = !one_in(5);
    struct model_reservation *r = seats_model_find(&m, id);
    bool live = step_settle_claim(&test.s, KEY, id, kept);
    CHECK(live == (r != NULL && (kept || !r->pending)));
    if (r == NULL || !r->pending) return;
    r->pending = false;
    r->due_ms = r->expires_ms;
    if (!kept) seats_model_remove(&m, r);
}

static void port_follow(void) {
    uint64_t id = some_id();
    enum reservation_status status =
        one_in(2) ? RESERVATION_CONFIRMED
                  : (enum reservation_status)between(RESERVATION_CANCELLED, RESERVATION_EXPIRED);
    struct model_reservation *r = seats_model_find(&m, id);
    bool changes = r != NULL && (!r->confirmed || status == RESERVATION_CANCELLED);
    CHECK(step_follow(&test.s, KEY, id, status) == changes);
    if (!changes) return;
    if (status == RESERVATION_CONFIRMED) {
        r->confirmed = true;
        r->pending = false;
    } else {
        seats_model_remove(&m, r);
    }
}

static void port_free_seats(void) {
    int section = (int)between(0, MODEL_SECTIONS - 1);
    uint32_t seat = (uint32_t)between(0, 40);
    struct model_reservation *r = seats_model_holder(&m, section, seat);
    bool changes = m.sections[section].exists && r != NULL && !r->pending;
    CHECK(step_sync(&test.s, KEY, NULL, key_of(section), &seat, 1) == (changes ? 1 : 0));
    if (changes) seats_model_lose(&m, r, seat);
    seats_model_catch_up(&m);
}

/* A known reservation or a new one; its seats may belong to others. */
static void port_apply(void) {
    struct model_reservation r = {.id = one_in(2) ? some_id() : next_id++,
                                  .user = (int)between(0, MODEL_BUYERS - 1),
                                  .section = (int)between(0, MODEL_SECTIONS - 1),
                                  .confirmed = one_in(2),
                                  .expires_ms = m.now_ms + between(-5000, 20000)};
    struct model_reservation *known = seats_model_find(&m, r.id);
    if (known != NULL) {
        r.user = known->user;
        r.section = known->section;
    }
    r.entry_seq = one_in(2) ? m.entries[r.user] : NOBODYS_ENTRY + (uint64_t)between(1, 50);
    uint32_t seats[4];
    uint32_t count = (uint32_t)between(1, 4);
    uint32_t first = (uint32_t)between(1, 40);
    for (uint32_t i = 0; i < count; i++) seats[i] = first + i * 2;
    struct live_reservation row = {.id = id_of(r.id),
                                   .user = str_of(user_name(r.user)),
                                   .entry_seq = r.entry_seq,
                                   .section_key = key_of(r.section),
                                   .seats = seats,
                                   .seat_count = count,
                                   .status = r.confirmed ? RESERVATION_CONFIRMED : RESERVATION_HELD,
                                   .expires_ms = r.expires_ms};
    if (r.id >= next_id) next_id = r.id + 1;
    size_t changed = step_sync(&test.s, KEY, &row, 0, NULL, 0);
    if (!m.sections[r.section].exists) {
        CHECK(changed == 0);
        return;
    }
    if (known != NULL) {
        r.key = known->key;
        r.confirmed = r.confirmed || known->confirmed;
        seats_model_remove(&m, known);
    }
    r.due_ms = r.expires_ms;
    seats_model_add(&m, &r);
    for (uint32_t i = 0; i < count; i++) {
        if (seats[i] > m.sections[r.section].capacity) continue;
        struct model_reservation *other = seats_model_holder(&m, r.section, seats[i]);
        struct model_reservation *mine = seats_model_find(&m, r.id);
        mine->seats[mine->count++] = seats[i];
        if (other != NULL) seats_model_lose(&m, other, seats[i]);
    }
    struct model_reservation *mine = seats_model_find(&m, r.id);
    CHECK(changed == (mine->count > 0 ? 1 : 0));
    if (changed > 0) use_offer(r.entry_seq);
    if (mine->count == 0) seats_model_remove(&m, mine);
    seats_model_catch_up(&m);
}

static void port_due(void) {
    uint64_t out[8];
    size_t max = (size_t)between(1, 8);
    size_t count = step_due(&test.s, KEY, m.now_ms, out, max);
    for (size_t i = 0; i < count; i++) {
        /* Holds that end at the same time may be reported in any order. */
        struct model_reservation *first = seats_model_due(&m);
        struct model_reservation *told = seats_model_find(&m, out[i]);
        CHECK(first != NULL && told != NULL && !told->pending && !told->confirmed);
        CHECK(told->due_ms == first->due_ms);
        told->due_ms = m.now_ms + DUE_AGAIN_MS;
    }
    CHECK(count == max || seats_model_due(&m) == NULL);
}

/* ---- who is admitted when the seats run out ---- */

/* After every change of seats. */
static void note_stock(void) {
    bool has_any = step_totals(&test.s, KEY).available > 0;
    if (stock.had_any && !has_any) stock.ran_out = true;
    stock.had_any = has_any;
}

static bool is_admitted_at_once(void) {
    struct seat_counts c = step_totals(&test.s, KEY);
    uint32_t offers = 0;
    for (int i = 0; i < MODEL_BUYERS; i++) offers += stock.offers[i];
    if (c.available + c.held + c.confirmed == 0) return true;
    return c.available > (stock.ran_out ? offers : 0);
}

static bool has_all_seats(int user) {
    uint32_t seats = 0;
    for (size_t i = 0; i < m.live_count; i++)
        if (m.live[i].user == user) seats += m.live[i].count;
    return seats > 0 && seats >= m.limit;
}

static void leave(int user) {
    CHECK(step_end(&test.s, KEY, m.entries[user], ENTRY_LEFT));
    m.entries[user] = 0;
    stock.offers[user] = false;
}

static void port_turns(void) {
    int user = (int)between(0, MODEL_BUYERS - 1);
    if (m.entries[user] != 0 && one_in(6)) leave(user);
    if (m.entries[user] != 0 || m.is_closed) return;
    bool is_active = is_admitted_at_once();
    struct entered e = step_enter(&test.s, KEY, str_of(user_name(user)), LANE_DEFAULT, m.now_ms);
    CHECK(e.result == ERR_OK && e.outcome == (has_all_seats(user) ? ENTER_LIMIT : ENTER_TAKEN));
    if (e.outcome == ENTER_TAKEN) {
        CHECK(e.place.status == (is_active ? ENTRY_ACTIVE : ENTRY_WAITING));
        CHECK(is_active || !e.has_stock);
        step_settle_enter(&test.s, KEY, e.place.seq, true);
        m.entries[user] = last_seq = e.place.seq;
        stock.offers[user] = is_active && stock.ran_out && seat_counts_sum(&e.seats) > 0;
        if (!is_active) leave(user);
    }
    store_heard(&test.s, test.heard, 4096);
}

/* ---- configurations and restarts ---- */

static void set_configuration(void) {
    size_t count = 0;
    for (int i = 0; i < MODEL_SECTIONS; i++) {
        const struct model_section *s = &m.sections[i];
        if (!s->exists) continue;
        test.sections[count++] = (struct section){
            .key = key_of(i), .capacity = s->wanted, .mode = s->mode, .status = s->status};
    }
    test.e.section_count = count;
    test.e.max_per_user = m.limit;
    test.e.hold_s = m.hold_ms / 1000;
    test.e.state = m.is_closed ? EVENT_CLOSED : EVENT_OPEN;
}

static void tell_configuration(void) {
    set_configuration();
    seats_test_configure(&test);
    note_stock();
}

static void port_configure(void) {
    static const enum section_mode modes[] = {SECTION_MODE_SLOT, SECTION_MODE_LOCK,
                                              SECTION_MODE_ADAPTIVE, SECTION_MODE_SLOT,
                                              SECTION_MODE_SEAT};
    struct model_section *s = &m.sections[between(0, MODEL_SECTIONS - 1)];
    s->wanted = (uint32_t)between(1, MODEL_SEATS);
    s->mode = modes[between(0, 4)];
    s->status = one_in(5) ? (enum section_status)between(0, 2) : SECTION_OPEN;
    m.limit = between(1, 30);
    m.hold_ms = between(1, 20) * 1000;
    m.is_closed = one_in(10);
    tell_configuration();
    seats_model_catch_up(&m);
    /* One without reservations may go and come back. */
    for (int i = 0; i < MODEL_SECTIONS; i++) {
        s = &m.sections[i];
        bool is_free =
            seats_model_taken(&m, i, -1, false) + seats_model_taken(&m, i, -1, true) == 0;
        if (!is_free || !one_in(4)) continue;
        s->exists = !s->exists;
        s->capacity = s->wanted;
        tell_configuration();
    }
}

static void restore_reservations(void) {
    for (size_t i = 0; i < m.live_count; i++) {
        struct model_reservation *r = &m.live[i];
        struct live_reservation row = {.id = id_of(r->id),
                                       .user = str_of(user_name(r->user)),
                                       .entry_seq = r->entry_seq,
                                       .section_key = key_of(r->section),
                                       .seats = r->seats,
                                       .seat_count = r->count,
                                       .status =
                                           r->confirmed ? RESERVATION_CONFIRMED : RESERVATION_HELD,
                                       .expires_ms = r->expires_ms};
        r->key = (struct claim_key){0};
        r->due_ms = r->expires_ms;
        step_restore_reservation(&test.s, KEY, &row);
    }
}

/* The process dies, and pending claims are lost. */
static void port_restart(void) {
    for (size_t i = m.live_count; i > 0; i--)
        if (m.live[i - 1].pending) seats_model_remove(&m, &m.live[i - 1]);
    for (int i = 0; i < MODEL_SECTIONS; i++) m.sections[i].capacity = m.sections[i].wanted;
    for (size_t i = 0; i < m.live_count; i++) /* the ledger would not have let it shrink below */
        for (uint32_t s = 0; s < m.live[i].count; s++) {
            struct model_section *section = &m.sections[m.live[i].section];
            if (m.live[i].seats[s] > section->wanted) section->wanted = m.live[i].seats[s];
            section->capacity = section->wanted;
        }
    seats_test_close(&test);
    seats_test_open(&test, adapter);
    test.e.queue.active_ttl_s = INT64_C(86400) * 3650;
    step_remove(&test.s, KEY, test.e.version++);
    set_configuration();
    store_rebuild_begins(&test.s);
    step_restore_event(&test.s, &test.e);
    queues_recovered(test.s.queues, KEY, last_seq + 1, m.now_ms);
    restore_reservations();
    bool ran_out = stock.ran_out && !one_in(4); /* a pending claim may have taken the last seat */
    if (ran_out) seats_restore_ran_out(test.s.seats, KEY);
    store_rebuild_ends(&test.s);
    memset(m.entries, 0, sizeof m.entries);
    stock = (struct stock){.had_any = test.e.section_count > 0, .ran_out = ran_out};
}

static void pass_time(void) {
    m.now_ms += between(0, 2000);
}

static void begin_history(void) {
    next_id = 1;
    last_seq = 0;
    m = (struct seats_model){.limit = 6, .hold_ms = 10000, .now_ms = T0};
    for (int i = 0; i < MODEL_SECTIONS; i++)
        m.sections[i] = (struct model_section){.exists = true, .wanted = 30, .capacity = 30};
    seats_test_open(&test, adapter);
    test.e.queue.active_ttl_s = INT64_C(86400) * 3650;
    step_remove(&test.s, KEY, test.e.version);
    stock = (struct stock){0};
    tell_configuration();
}

static void check_some(void) {
    note_stock();
    check_totals();
    CHECK(step_has_stock(&test.s, KEY) == is_admitted_at_once());
    check_section((int)between(0, MODEL_SECTIONS - 1));
    check_user((int)between(0, MODEL_BUYERS - 1));
}

static void end_history(void) {
    seats_test_close(&test);
}

static void random_histories_give_what_a_simple_model_gives(void **state) {
    (void)state;
    static const struct history_act acts[] = {
        {400, port_claim},
        {200, port_settle},
        {90, port_follow},
        {30, port_free_seats},
        {40, port_apply},
        {60, port_due},
        {50, port_turns},
        {10, port_configure},
        {1, port_restart},
        {119, pass_time},
        {0},
    };
    history_run(&(struct history){.seeds = adapter->remote ? REMOTE_SEEDS : SEEDS,
                                  .steps = adapter->remote ? REMOTE_STEPS : STEPS,
                                  .acts = acts,
                                  .begin = begin_history,
                                  .check = check_some,
                                  .check_every = 1,
                                  .end = end_history});
}

int seats_model_suite_run(const struct queue_adapter *of) {
    adapter = of;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests_name("seats contract: random histories", tests, NULL, NULL);
}
