/*
 * The ledger's contract under concurrent records. Records are submitted without waiting for each
 * other, so they share batches. They are written in the order of submission, so a model, which
 * keeps plain arrays and scans them, knows each answer when the record is submitted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "history.h"
#include "ledger_client.h"
#include "splitmix.h"

static const struct ledger_adapter *adapter;

/* ---- the model ---- */

enum { SECTIONS = 3, CAPACITY = 5, USERS = 5, LIMIT = 4, IDS_MAX = 8000, ENTRIES_MAX = 8000 };

struct model_seat {
    enum seat_state state;
    uint64_t owner; /* a reservation's number */
    int64_t version;
    int64_t fence;
};

struct model_entry {
    int user;
    enum entry_status status;
    int64_t expires_ms;
};

struct model_key {
    char name[24];
    unsigned char digest;
    struct uuid reservation;
};

struct model {
    struct ledger_client d;
    int64_t now_ms;
    struct reservation *reservations[IDS_MAX]; /* by number; from 1 on */
    bool is_void[IDS_MAX];
    uint64_t numbers; /* the next new one */
    struct model_seat seats[SECTIONS][CAPACITY + 1];
    struct model_entry entries[ENTRIES_MAX]; /* by seq; from 1 on */
    uint64_t seqs;
    struct model_key keys[IDS_MAX];
    size_t key_count;
    int64_t outcomes[64]; /* how often each result came, so that none is never tried */
};

/* One record with the memory that it needs, and its expected answer. */
struct step {
    struct test_record r;
    struct reservation *wanted;
    int64_t versions[TEST_SEATS_MAX];
    int64_t fences[TEST_SEATS_MAX];
    struct idempotency key;
    char key_name[24];
    struct uuid ids[TEST_SEATS_MAX];
    uint64_t numbers[TEST_SEATS_MAX];
    bool told[TEST_SEATS_MAX];
    uint64_t seq;
    bool told_ended;
    /* expected: */
    enum err result;
    bool did;
    bool sold_out;
    bool completed;
    bool expired;
    bool ended;
    bool each[TEST_SEATS_MAX];
    uint32_t refused[TEST_SEATS_MAX];
    size_t refused_count;
    enum reservation_status status;
    struct reservation *stored;
    bool replayed;
    struct uuid replayed_id;
};

static const char *const user_names[USERS] = {"ann", "ben", "cy", "dee", "eve"};

static int64_t pick(int64_t below) {
    return between(0, below - 1);
}

static size_t section_of(const struct model *m, const struct reservation *r) {
    size_t i = 0;
    while (m->d.event->sections[i].key != r->section_key) i++;
    return i;
}

static int64_t seats_of(const struct model *m, const char *user, bool held_only) {
    int64_t count = 0;
    for (uint64_t n = 1; n < m->numbers; n++) {
        const struct reservation *r = m->reservations[n];
        if (r == NULL || strcmp(r->user, user) != 0) continue;
        if (held_only ? r->status == RESERVATION_HELD : reservation_is_live(r->status))
            count += r->seat_count;
    }
    return count;
}

static bool nothing_left(const struct model *m) {
    for (size_t s = 0; s < SECTIONS; s++)
        for (uint32_t seat = 1; seat <= CAPACITY; seat++)
            if (m->seats[s][seat].state == SEAT_AVAILABLE) return false;
    return true;
}

static void set_seats(struct model *m, const struct reservation *r, uint64_t number,
                      enum seat_state from, enum seat_state to) {
    for (uint32_t i = 0; i < r->seat_count; i++) {
        struct model_seat *seat = &m->seats[section_of(m, r)][r->seats[i]];
        assert_int_equal(seat->state, from);
        if (from != SEAT_AVAILABLE) assert_int_equal(seat->owner, number);
        seat->state = to;
        seat->owner = number;
        seat->version++;
    }
}

static void model_end(struct model *m, uint64_t number, enum reservation_status final) {
    struct reservation *r = m->reservations[number];
    set_seats(m, r, number, r->status == RESERVATION_HELD ? SEAT_HELD : SEAT_CONFIRMED,
              SEAT_AVAILABLE);
    r->status = final;
    r->ended_ms = m->now_ms;
}

/* Whether the step's key decides it. */
static bool model_key_decides(struct model *m, struct step *s) {
    for (size_t i = 0; i < m->key_count; i++) {
        if (strcmp(m->keys[i].name, s->key_name) != 0) continue;
        s->replayed = m->keys[i].digest == s->key.digest[0];
        s->result = s->replayed ? ERR_OK : ERR_IDEMPOTENCY_MISMATCH;
        s->replayed_id = m->keys[i].reservation;
        return true;
    }
    return false;
}

static void model_key_add(struct model *m, const struct step *s) {
    if (s->key_name[0] == '\0') return;
    struct model_key *k = &m->keys[m->key_count++];
    memcpy(k->name, s->key_name, sizeof k->name);
    k->reservation = s->wanted->id;
    k->digest = s->key.digest[0];
}

static enum err model_judge_seat(const struct model *m, const struct step *s, uint32_t i) {
    const struct model_seat *seat = &m->seats[section_of(m, s->wanted)][s->wanted->seats[i]];
    if (s->r.hold.fences != NULL && seat->fence > s->fences[i]) return ERR_LOCK_LOST;
    if (s->r.hold.versions != NULL && seat->version != s->versions[i]) return ERR_CONFLICT;
    return seat->state == SEAT_AVAILABLE ? ERR_OK : ERR_SEAT_TAKEN;
}

static enum err model_judge_hold(const struct model *m, struct step *s) {
    static const enum err worst_first[] = {ERR_LOCK_LOST, ERR_CONFLICT, ERR_SEAT_TAKEN};
    const struct reservation *w = s->wanted;
    const struct model_entry *e = &m->entries[w->entry_seq];
    if (!strategy_suits(w->strategy, false)) return ERR_STRATEGY_NOT_ALLOWED; /* mode `slot` */
    if (seats_of(m, w->user, false) + w->seat_count > LIMIT) return ERR_LIMIT_EXCEEDED;
    bool is_active = w->entry_seq < m->seqs && strcmp(user_names[e->user], w->user) == 0 &&
                     e->status == ENTRY_ACTIVE && e->expires_ms > w->created_ms;
    if (!is_active) return ERR_NOT_ACTIVE;
    for (size_t k = 0; k < 3; k++) {
        for (uint32_t i = 0; i < w->seat_count; i++)
            if (model_judge_seat(m, s, i) == worst_first[k])
                s->refused[s->refused_count++] = w->seats[i];
        if (s->refused_count > 0) return worst_first[k];
    }
    return ERR_OK;
}

static void model_hold(struct model *m, struct step *s) {
    struct reservation *w = s->wanted;
    uint64_t number = s->numbers[0];
    const struct reservation *old = m->reservations[number];
    s->status = RESERVATION_HELD;
    if (s->key_name[0] != '\0' && model_key_decides(m, s)) return;
    if (old != NULL || m->is_void[number]) {
        bool same = old != NULL && strcmp(old->user, w->user) == 0 &&
                    old->section_key == w->section_key && old->seat_count == w->seat_count &&
                    memcmp(old->seats, w->seats, w->seat_count * sizeof *w->seats) == 0;
        s->result = same ? ERR_OK : ERR_CONFLICT;
        if (same) s->status = old->status;
        return;
    }
    s->result = model_judge_hold(m, s);
    if (s->result != ERR_OK) return;
    s->did = true;
    m->reservations[number] = test_reservation_copy(w);
    set_seats(m, w, number, SEAT_AVAILABLE, SEAT_HELD);
    for (uint32_t i = 0; i < w->seat_count; i++) {
        struct model_seat *seat = &m->seats[section_of(m, w)][w->seats[i]];
        if (s->r.hold.fences != NULL) seat->fence = s->fences[i];
    }
    s->sold_out = nothing_left(m);
    model_key_add(m, s);
}

static void model_confirm(struct model *m, struct step *s) {
    struct reservation *r = m->reservations[s->numbers[0]];
    if (r == NULL) {
        s->result = ERR_RESERVATION_NOT_FOUND;
        return;
    }
    if (!str_eq(str_of(r->user), s->r.confirm.user)) {
        s->result = ERR_NOT_YOURS;
        return;
    }
    if (r->status == RESERVATION_HELD && r->expires_ms <= m->now_ms) {
        s->expired = true;
        model_end(m, s->numbers[0], RESERVATION_EXPIRED);
    }
    if (r->status == RESERVATION_EXPIRED) s->result = ERR_HOLD_EXPIRED;
    if (r->status == RESERVATION_CANCELLED) s->result = ERR_RESERVATION_ENDED;
    if (r->status == RESERVATION_HELD) {
        struct model_entry *e = &m->entries[r->entry_seq];
        s->did = true;
        set_seats(m, r, s->numbers[0], SEAT_HELD, SEAT_CONFIRMED);
        r->status = RESERVATION_CONFIRMED;
        r->confirmed_ms = m->now_ms;
        memcpy(r->confirmation_code, s->r.confirm.code, sizeof r->confirmation_code);
        s->completed = e->status == ENTRY_ACTIVE && e->expires_ms > m->now_ms &&
                       seats_of(m, r->user, true) == 0;
        if (s->completed) e->status = ENTRY_COMPLETED;
    }
    s->stored = test_reservation_copy(r);
}

static void model_cancel(struct model *m, struct step *s) {
    struct reservation *r = m->reservations[s->numbers[0]];
    if (r == NULL) {
        s->result = ERR_RESERVATION_NOT_FOUND;
        return;
    }
    if (!str_eq(str_of(r->user), s->r.cancel.user)) {
        s->result = ERR_NOT_YOURS;
        return;
    }
    if (r->status == RESERVATION_CONFIRMED && !s->r.cancel.may_end_confirmed) {
        s->result = ERR_CANCEL_BY_SHOP;
        s->stored = test_reservation_copy(r);
        return;
    }
    s->expired = r->status == RESERVATION_HELD && r->expires_ms <= m->now_ms;
    s->did = reservation_is_live(r->status) && !s->expired;
    if (s->expired) model_end(m, s->numbers[0], RESERVATION_EXPIRED);
    if (s->did) model_end(m, s->numbers[0], RESERVATION_CANCELLED);
    if (r->status == RESERVATION_EXPIRED) s->result = ERR_HOLD_EXPIRED;
    s->stored = test_reservation_copy(r);
}

static void model_expire(struct model *m, struct step *s) {
    for (size_t i = 0; i < s->r.expire.count; i++) {
        const struct reservation *r = m->reservations[s->numbers[i]];
        s->each[i] = r != NULL && r->status == RESERVATION_HELD && r->expires_ms <= m->now_ms;
        if (s->each[i]) model_end(m, s->numbers[i], RESERVATION_EXPIRED);
    }
}

static void model_leave(struct model *m, struct step *s) {
    for (size_t i = 0; i < s->r.end.cancel_count; i++) {
        const struct reservation *r = m->reservations[s->numbers[i]];
        s->each[i] =
            r != NULL && r->status == RESERVATION_HELD && str_eq(str_of(r->user), s->r.end.user);
        if (s->each[i]) model_end(m, s->numbers[i], RESERVATION_CANCELLED);
    }
    s->ended = m->entries[s->seq].status == ENTRY_ACTIVE;
    if (s->ended) m->entries[s->seq].status = ENTRY_LEFT;
}

/* ---- random steps ---- */

/* Mostly one of the newest that exist: most holds are refused, and the newest are often live. */
static uint64_t some_number(struct model *m) {
    uint64_t back = (uint64_t)(pick(8) == 0 ? pick(200) : pick(16));
    uint64_t number = back < m->numbers ? m->numbers - back : m->numbers;
    bool must_be_there = pick(4) > 0;
    while (must_be_there && number > 1 && m->reservations[number] == NULL) number--;
    return number;
}

static uint64_t latest_entry(const struct model *m, int user) {
    uint64_t seq = m->seqs - 1;
    while (seq > 0 && m->entries[seq].user != user) seq--;
    return seq;
}

static void choose_key(struct step *s, const char *user) {
    if (pick(4) != 0) return;
    snprintf(s->key_name, sizeof s->key_name, "%.8s %d", user, (int)pick(20));
    s->key = (struct idempotency){
        .user = str_of(user), .route = STR("hold"), .key = str_of(s->key_name)};
    memset(s->key.digest, pick(6) == 0 ? 2 : 1, sizeof s->key.digest);
}

static void choose_hold(struct model *m, struct step *s) {
    bool again = pick(12) == 0;
    uint64_t number = again ? some_number(m) : m->numbers;
    if (number == m->numbers) m->numbers++;
    s->numbers[0] = number;
    const struct reservation *old = m->reservations[number];
    int user = (int)pick(USERS);
    uint32_t seats[CAPACITY + 1] = {0};
    size_t count = 0;
    uint32_t wanted = (uint32_t)pick(3) + 1;
    for (uint32_t seat = 1; seat <= CAPACITY && count < wanted; seat++)
        if (pick(2) == 0) seats[count++] = seat;
    if (count == 0) seats[0] = CAPACITY;
    uint64_t seq = latest_entry(m, pick(30) == 0 ? (int)pick(USERS) : user);
    if (again && old != NULL && pick(2) == 0) {
        s->wanted = test_reservation_copy(old);
        s->wanted->status = RESERVATION_HELD;
    } else {
        s->wanted = ledger_client_wanted(&m->d, number, user_names[user], seq,
                                         (size_t)pick(SECTIONS), seats);
        s->wanted->created_ms = m->now_ms;
        s->wanted->expires_ms = m->now_ms + 1 + pick(300);
        do s->wanted->strategy = (enum strategy)pick(STRATEGY_QUEUE + 1);
        while (!strategy_suits(s->wanted->strategy, false) &&
               (adapter->writes_beside || pick(8) > 0));
    }
    test_hold(&s->r, s->wanted);
    size_t section = section_of(m, s->wanted);
    for (uint32_t i = 0; i < s->wanted->seat_count; i++)
        s->versions[i] = m->seats[section][s->wanted->seats[i]].version - (pick(12) == 0);
    for (uint32_t i = 0; i < s->wanted->seat_count; i++)
        s->fences[i] = (int64_t)m->numbers + pick(400);
    if (pick(3) == 0) s->r.hold.versions = s->versions;
    if (pick(4) == 0) s->r.hold.fences = s->fences;
    choose_key(s, s->wanted->user);
    if (s->key_name[0] != '\0') s->r.hold.idempotency = &s->key;
    model_hold(m, s);
}

static const char *owner_or_thief(struct model *m, uint64_t number) {
    const struct reservation *r = m->reservations[number];
    return r == NULL || pick(6) == 0 ? user_names[pick(USERS)] : r->user;
}

static void choose_confirm(struct model *m, struct step *s) {
    s->numbers[0] = some_number(m);
    s->ids[0] = ledger_client_id(s->numbers[0]);
    test_confirm(&s->r, s->ids, owner_or_thief(m, s->numbers[0]), m->now_ms);
    model_confirm(m, s);
}

static void choose_cancel(struct model *m, struct step *s) {
    s->numbers[0] = some_number(m);
    s->ids[0] = ledger_client_id(s->numbers[0]);
    test_cancel(&s->r, s->ids, owner_or_thief(m, s->numbers[0]), m->now_ms);
    s->r.cancel.may_end_confirmed = pick(2) == 0;
    model_cancel(m, s);
}

static void choose_expire(struct model *m, struct step *s) {
    size_t count = (size_t)pick(TEST_SEATS_MAX) + 1;
    for (size_t i = 0; i < count; i++) {
        s->numbers[i] = some_number(m);
        s->ids[i] = ledger_client_id(s->numbers[i]);
    }
    test_expire(&s->r, s->ids, count, s->told, m->now_ms);
    model_expire(m, s);
}

static void choose_void(struct model *m, struct step *s) {
    bool is_new = pick(2) == 0;
    uint64_t number = is_new ? m->numbers : some_number(m);
    if (number == m->numbers) m->numbers++;
    s->wanted = ledger_client_wanted(&m->d, number, "x", 1, 0, SEATS(1));
    test_hold_void(&s->r, s->wanted, m->now_ms);
    s->did = m->reservations[number] == NULL;
    if (s->did) m->is_void[number] = true;
}

static void choose_leave(struct model *m, struct step *s) {
    int user = (int)pick(USERS);
    s->seq = latest_entry(m, user);
    size_t count = 0;
    for (uint64_t n = m->numbers - 1; n > 0 && count < TEST_SEATS_MAX - 2; n--) {
        const struct reservation *r = m->reservations[n];
        if (r == NULL || r->status != RESERVATION_HELD) continue;
        if (strcmp(r->user, user_names[user]) == 0) s->numbers[count++] = n;
    }
    while (count < TEST_SEATS_MAX) s->numbers[count++] = some_number(m);
    for (size_t i = 0; i < count; i++) s->ids[i] = ledger_client_id(s->numbers[i]);
    test_end(&s->r, m->d.event->key, ENTRY_LEFT, &s->seq, 1, &s->told_ended);
    s->r.end.now_ms = m->now_ms;
    s->r.end.user = str_of(user_names[user]);
    s->r.end.cancels = s->ids;
    s->r.end.cancel_count = count;
    s->r.end.cancelled = s->told;
    model_leave(m, s);
}

/* Whoever has no live place takes one. */
static void choose_enter(struct model *m, struct step *s) {
    int user = (int)pick(USERS);
    uint64_t before = latest_entry(m, user);
    struct model_entry *old = &m->entries[before];
    bool is_live = before > 0 && old->status == ENTRY_ACTIVE && old->expires_ms > m->now_ms;
    if (is_live) {
        choose_expire(m, s);
        return;
    }
    s->seq = m->seqs++;
    m->entries[s->seq] = (struct model_entry){user, ENTRY_ACTIVE, m->now_ms + 400 + pick(800)};
    test_enter(&s->r, m->d.event->key, s->seq, user_names[user], ENTRY_ACTIVE);
    s->r.enter.joined_ms = m->now_ms;
    s->r.enter.expires_ms = m->entries[s->seq].expires_ms;
    if (before > 0 && old->status == ENTRY_ACTIVE) {
        s->r.enter.closes = before;
        old->status = ENTRY_EXPIRED;
    }
}

static void choose_step(struct model *m, struct step *s) {
    *s = (struct step){.result = ERR_OK};
    m->now_ms += pick(12);
    int64_t dice = pick(100);
    if (dice < 45)
        choose_hold(m, s);
    else if (dice < 62)
        choose_confirm(m, s);
    else if (dice < 74)
        choose_cancel(m, s);
    else if (dice < 82)
        choose_expire(m, s);
    else if (dice < 85)
        choose_void(m, s);
    else if (dice < 88)
        choose_leave(m, s);
    else
        choose_enter(m, s);
    m->outcomes[s->result]++;
}

/* ---- comparing ---- */

static void assert_stored(struct reservation *told, const struct reservation *expected) {
    assert_int_equal(told != NULL, expected != NULL);
    if (told != NULL) ledger_client_assert_equal(told, expected);
}

static void assert_step(struct step *s) {
    const struct test_record *r = &s->r;
    assert_int_equal(r->record.result, s->result);
    switch (r->record.kind) {
    case LEDGER_HOLD:
        assert_int_equal(r->hold.held, s->did);
        assert_int_equal(r->hold.sold_out, s->sold_out);
        assert_int_equal(r->hold.refused_count, s->refused_count);
        for (size_t i = 0; i < s->refused_count; i++)
            assert_int_equal(r->hold.refused[i], s->refused[i]);
        if (s->result == ERR_OK) assert_int_equal(r->hold.status, s->status);
        break;
    case LEDGER_CONFIRM:
        assert_int_equal(r->confirm.confirmed, s->did);
        assert_int_equal(r->confirm.completed, s->completed);
        assert_int_equal(r->confirm.expired, s->expired);
        assert_stored(r->confirm.stored, s->stored);
        break;
    case LEDGER_CANCEL:
        assert_int_equal(r->cancel.cancelled, s->did);
        assert_int_equal(r->cancel.expired, s->expired);
        assert_stored(r->cancel.stored, s->stored);
        break;
    case LEDGER_HOLD_VOID:
        assert_int_equal(r->undo.voided, s->did);
        break;
    case LEDGER_EXPIRE:
        assert_memory_equal(s->told, s->each, r->expire.count);
        break;
    case LEDGER_END:
        assert_memory_equal(s->told, s->each, r->end.cancel_count);
        assert_int_equal(s->told_ended, s->ended);
        break;
    default:
        break;
    }
    assert_int_equal(s->key.replayed, s->replayed);
    if (s->replayed) assert_true(uuid_eq(&s->key.reservation, &s->replayed_id));
}

static void step_deinit(struct step *s) {
    test_record_deinit(&s->r);
    mem_free(s->wanted);
    mem_free(s->stored);
}

static void read_section(struct model *m, size_t section, enum seat_state *states,
                         int64_t *versions) {
    uint32_t seats[CAPACITY];
    struct uuid holders[CAPACITY];
    struct test_record r;
    for (uint32_t i = 0; i < CAPACITY; i++) seats[i] = i + 1;
    test_seats_read(&r, m->d.event->sections[section].key, seats, CAPACITY, states, versions,
                    holders);
    assert_int_equal(harness_ask(&m->d.h, m->d.l, &r), ERR_OK);
}

static void assert_all_equal(struct model *m) {
    struct ledger_client_loaded all;
    size_t live = 0;
    ledger_client_load(&m->d, &all);
    for (uint64_t n = 1; n < m->numbers; n++) {
        const struct reservation *r = m->reservations[n];
        if (r == NULL || !reservation_is_live(r->status)) continue;
        assert_true(live < all.count);
        ledger_client_assert_equal(all.reservations[live++], r);
    }
    assert_int_equal(live, all.count);
    for (size_t s = 0; s < SECTIONS; s++) {
        int64_t held = 0;
        int64_t confirmed = 0;
        enum seat_state states[CAPACITY];
        int64_t versions[CAPACITY];
        read_section(m, s, states, versions);
        for (uint32_t seat = 1; seat <= CAPACITY; seat++) {
            assert_int_equal(states[seat - 1], m->seats[s][seat].state);
            assert_int_equal(versions[seat - 1], m->seats[s][seat].version);
            held += m->seats[s][seat].state == SEAT_HELD;
            confirmed += m->seats[s][seat].state == SEAT_CONFIRMED;
        }
        assert_int_equal(all.event->sections[s].held, held);
        assert_int_equal(all.event->sections[s].confirmed, confirmed);
    }
    ledger_client_loaded_free(&all);
}

static void assert_histories_equal(struct model *m) {
    for (uint64_t n = 1; n < m->numbers; n++) {
        struct reservation *got = ledger_client_get(&m->d, n);
        assert_stored(got, m->reservations[n]);
        mem_free(got);
    }
    for (uint64_t seq = 1; seq < m->seqs; seq++)
        assert_int_equal(ledger_client_entry(&m->d, seq), m->entries[seq].status);
}

enum { BURST_MAX = 120, BURSTS = 60 };

static struct model *model;

static void begin_history(void) {
    struct model *m = model = mem_new(sizeof *m);
    ledger_client_open(&m->d, adapter->open, SECTIONS, CAPACITY);
    m->now_ms = 1000;
    m->numbers = 1;
    m->seqs = 1;
    for (size_t s = 0; s < SECTIONS; s++)
        for (uint32_t seat = 1; seat <= CAPACITY; seat++) m->seats[s][seat].state = SEAT_AVAILABLE;
}

/* Records that are submitted together, so that the ledger writes several in a batch. */
static void burst(void) {
    static struct step steps[BURST_MAX];
    struct model *m = model;
    size_t count = (size_t)pick(BURST_MAX) + 1;
    for (size_t i = 0; i < count; i++) {
        choose_step(m, &steps[i]);
        assert_int_equal(ledger_submit(m->d.l, &steps[i].r.record), ERR_OK);
    }
    for (size_t i = 0; i < count; i++) harness_wait_back(&m->d.h, &steps[i].r, 1);
    for (size_t i = 0; i < count; i++) assert_step(&steps[i]);
    for (size_t i = 0; i < count; i++) step_deinit(&steps[i]);
    if (history_step() % 10 == 9) ledger_client_restart(&m->d);
    assert_all_equal(m);
}

static void end_history(void) {
    static const enum err tried[] = {
        ERR_OK,           ERR_CONFLICT,          ERR_SEAT_TAKEN,          ERR_LIMIT_EXCEEDED,
        ERR_LOCK_LOST,    ERR_RESERVATION_ENDED, ERR_NOT_YOURS,           ERR_RESERVATION_NOT_FOUND,
        ERR_HOLD_EXPIRED, ERR_NOT_ACTIVE,        ERR_IDEMPOTENCY_MISMATCH};
    struct model *m = model;
    assert_histories_equal(m);
    ledger_client_assert_sound(&m->d);
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        if (m->outcomes[tried[i]] == 0) fail_msg("never tried: %d", (int)tried[i]);
    ledger_client_shut(&m->d);
    for (uint64_t n = 1; n < m->numbers; n++) mem_free(m->reservations[n]);
    mem_free(m);
}

static void random_histories_agree_with_the_model(void **state) {
    (void)state;
    static const struct history_act acts[] = {{1, burst}, {0}};
    history_run(&(struct history){
        .seeds = 1, .steps = BURSTS, .acts = acts, .begin = begin_history, .end = end_history});
}

/* ---- races ---- */

enum { RACERS = 40, ROUNDS = 30, ACTS = 8 };

/* One seat, one hold, and concurrent records about it. */
struct race {
    char user[24];
    char next_user[24];
    struct reservation *wanted;
    struct reservation *next; /* of another user, who wants the same seat */
    struct test_record enters[2];
    struct test_record hold;
    struct test_record acts[ACTS];
    struct test_record lasts[2]; /* so that the seat is free for the next round */
    bool expired[ACTS];
};

static void race_prepare(struct ledger_client *d, struct race *r, int round, uint32_t seat) {
    uint64_t base = (uint64_t)round * RACERS * 2 + seat * 2;
    *r = (struct race){0};
    snprintf(r->user, sizeof r->user, "r%d-%u", round, seat);
    snprintf(r->next_user, sizeof r->next_user, "n%d-%u", round, seat);
    test_enter(&r->enters[0], d->event->key, base, r->user, ENTRY_ACTIVE);
    test_enter(&r->enters[1], d->event->key, base + 1, r->next_user, ENTRY_ACTIVE);
    r->wanted = ledger_client_wanted(d, base, r->user, base, 0, SEATS(seat));
    r->next = ledger_client_wanted(d, base + 1, r->next_user, base + 1, 0, SEATS(seat));
    for (int i = 0; i < 2; i++) r->enters[i].enter.expires_ms = 100000;
    test_hold(&r->hold, r->wanted);
    const struct uuid *id = &r->wanted->id;
    test_confirm(&r->acts[0], id, r->user, 2500);
    test_confirm(&r->acts[1], id, r->user, 3000); /* too late, if it is still held */
    test_cancel(&r->acts[2], id, r->user, 2600);
    test_expire(&r->acts[3], id, 1, &r->expired[3], 3000);
    test_expire(&r->acts[4], id, 1, &r->expired[4], 3001);
    test_hold(&r->acts[5], r->next);
    test_hold(&r->acts[6], r->wanted);
    test_cancel(&r->acts[7], id, r->user, 2700);
    r->acts[7].cancel.may_end_confirmed = false;
}

static void submit(struct ledger_client *d, struct test_record *r) {
    assert_int_equal(ledger_submit(d->l, &r->record), ERR_OK);
}

/* Every act of every race, in any order. Some are left out, so that each may be the last. */
static void submit_shuffled(struct ledger_client *d, struct race *races, uint64_t *random) {
    struct test_record *all[RACERS * ACTS];
    size_t count = 0;
    for (size_t i = 0; i < RACERS; i++) {
        for (size_t k = 0; k < ACTS; k++) {
            if (next_random(random) % 2 == 0)
                races[i].acts[k].back = true; /* left out: it changes nothing */
            else
                all[count++] = &races[i].acts[k];
        }
    }
    for (size_t i = count; i > 1; i--) {
        size_t k = (size_t)(next_random(random) % i);
        struct test_record *swapped = all[i - 1];
        all[i - 1] = all[k];
        all[k] = swapped;
    }
    for (size_t i = 0; i < count; i++) submit(d, all[i]);
}

static void assert_one_end(struct ledger_client *d, struct race *r, uint32_t seat, int counts[4]) {
    int confirmed = r->acts[0].confirm.confirmed + r->acts[1].confirm.confirmed;
    int cancelled = r->acts[2].cancel.cancelled + r->acts[7].cancel.cancelled;
    int expired = r->expired[3] + r->expired[4] + r->acts[1].confirm.expired;
    bool next = r->acts[5].hold.held;
    assert_false(r->acts[0].confirm.expired);
    assert_false(r->acts[1].confirm.confirmed);
    assert_false(r->acts[6].hold.held);
    assert_true(confirmed <= 1 && cancelled + expired <= 1);
    if (expired) assert_int_equal(confirmed, 0);
    if (r->acts[7].cancel.cancelled) assert_int_equal(confirmed, 0);
    struct reservation *got;
    struct test_record get;
    test_reservation_get(&get, &r->wanted->id);
    assert_int_equal(harness_ask(&d->h, d->l, &get), ERR_OK);
    got = get.reservation_get.found;
    enum reservation_status status = cancelled   ? RESERVATION_CANCELLED
                                     : expired   ? RESERVATION_EXPIRED
                                     : confirmed ? RESERVATION_CONFIRMED
                                                 : RESERVATION_HELD;
    assert_int_equal(got->status, status);
    mem_free(got);
    if (next) assert_int_equal(cancelled + expired, 1);
    /* The next holder keeps the seat, whatever arrives late. */
    enum seat_state state = next                              ? SEAT_HELD
                            : !reservation_is_live(status)    ? SEAT_AVAILABLE
                            : status == RESERVATION_CONFIRMED ? SEAT_CONFIRMED
                                                              : SEAT_HELD;
    assert_int_equal(ledger_client_seat(d, 0, seat, NULL), state);
    counts[status]++;
}

static void race_submit_last(struct ledger_client *d, struct race *r) {
    test_cancel(&r->lasts[0], &r->wanted->id, r->user, 2900);
    test_cancel(&r->lasts[1], &r->next->id, r->next_user, 2900);
    for (int i = 0; i < 2; i++) submit(d, &r->lasts[i]);
}

static void race_end(struct ledger_client *d, struct race *r) {
    harness_wait_back(&d->h, r->lasts, 2);
    for (int i = 0; i < 2; i++) test_record_deinit(&r->lasts[i]);
    for (size_t k = 0; k < ACTS; k++) test_record_deinit(&r->acts[k]);
    mem_free(r->wanted);
    mem_free(r->next);
}

/* Pitfalls 25 to 29 and 33, thousands of times. */
static void expiry_confirmation_and_cancellation_race_to_one_end(void **state) {
    (void)state;
    struct ledger_client d;
    ledger_client_open(&d, adapter->open, 1, RACERS);
    struct race *races = mem_new(RACERS * sizeof *races);
    uint64_t random = 20261225;
    int counts[4] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < RACERS; i++) {
            race_prepare(&d, &races[i], round, i + 1);
            for (int k = 0; k < 2; k++) submit(&d, &races[i].enters[k]);
            submit(&d, &races[i].hold);
        }
        submit_shuffled(&d, races, &random);
        for (size_t i = 0; i < RACERS; i++) {
            harness_wait_back(&d.h, &races[i].hold, 1);
            harness_wait_back(&d.h, races[i].acts, ACTS);
            assert_true(races[i].hold.hold.held);
        }
        for (uint32_t i = 0; i < RACERS; i++) assert_one_end(&d, &races[i], i + 1, counts);
        for (size_t i = 0; i < RACERS; i++) race_submit_last(&d, &races[i]);
        for (size_t i = 0; i < RACERS; i++) race_end(&d, &races[i]);
        ledger_client_assert_counts(&d, 0, 0, 0);
    }
    /* Each end came first often enough to mean something. */
    for (int i = 0; i < 4; i++) assert_true(counts[i] > RACERS * ROUNDS / 200);
    ledger_client_assert_sound(&d);
    mem_free(races);
    ledger_client_shut(&d);
}

int ledger_reservation_model_suite_run(const struct ledger_adapter *of) {
    adapter = of;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_agree_with_the_model),
        cmocka_unit_test(expiry_confirmation_and_cancellation_race_to_one_end),
    };
    return cmocka_run_group_tests_name("ledger contract: reservations at once", tests, NULL, NULL);
}
