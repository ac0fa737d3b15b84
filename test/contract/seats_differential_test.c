/* Compares the two implementations of the seats: the same seeded random histories in memory and in
 * a real Redis, and every answer, down to the seats that were chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/list.h"
#include "history.h"
#include "memory_adapter.h"
#include "redis_adapter.h"
#include "seats_steps.h"

#define SEEDS 1
#define STEPS 5000
#define SECTIONS 6
#define USERS 12
#define CAPACITY_MOST 400
#define NAMED_MOST 8
#define GROUP_MOST 120
#define REMEMBERED 400
#define AT_ONCE 4
#define LIVE_MOST 4096

enum { MEMORY, REDIS, BOTH };

/* The state of an id does not matter here: both stores are asked. */
struct remembered {
    uint64_t id;
    int user;
    int section;
};

static struct store stores[BOTH];
static struct heard heard[BOTH][LIVE_MOST];
static struct event event;
static struct section sections[SECTIONS];
static bool exists[SECTIONS];
static uint64_t entries[USERS]; /* the last entry of each */
static uint64_t last_seq;
static struct remembered remembered[REMEMBERED];
static size_t remembered_count;
static uint64_t next_id;
static int64_t now_ms;

static const char *user_name(int user) {
    static char names[USERS][32];
    snprintf(names[user], sizeof names[user], user % 2 == 0 ? "user%d" : "somebody else %d", user);
    return names[user];
}

static int64_t key_of(int section) {
    return FLOOR + section;
}

static void remember(struct remembered r) {
    remembered[remembered_count++ % REMEMBERED] = r;
}

static struct remembered some_reservation(void) {
    size_t count = remembered_count < REMEMBERED ? remembered_count : REMEMBERED;
    if (count == 0 || one_in(20)) return (struct remembered){.id = next_id + 1};
    /* Those of late are more often live. */
    size_t back = (size_t)between(1, one_in(2) && count > 40 ? 40 : (int64_t)count);
    return remembered[(remembered_count - back) % REMEMBERED];
}

/* ---- comparing ---- */

static bool same_info(const struct claim_info *a, const struct claim_info *b) {
    return uuid_eq(&a->id, &b->id) && a->entry_seq == b->entry_seq &&
           a->section_key == b->section_key && a->seat_count == b->seat_count &&
           a->status == b->status && a->pending == b->pending && a->expires_ms == b->expires_ms;
}

static bool same_counts(struct seat_counts a, struct seat_counts b) {
    return a.available == b.available && a.held == b.held && a.confirmed == b.confirmed;
}

static int by_kind_and_entry(const void *left, const void *right) {
    const struct heard *a = left;
    const struct heard *b = right;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return (a->entry.seq > b->entry.seq) - (a->entry.seq < b->entry.seq);
}

/* Submitted records, and reported expiries; the latter in any order. */
static void check_heard(void) {
    size_t count[BOTH];
    for (int i = 0; i < BOTH; i++) {
        count[i] = store_heard(&stores[i], heard[i], LIVE_MOST);
        qsort(heard[i], count[i], sizeof heard[i][0], by_kind_and_entry);
    }
    CHECK(count[MEMORY] == count[REDIS]);
    for (size_t i = 0; i < count[MEMORY]; i++) {
        const struct heard *a = &heard[MEMORY][i];
        const struct heard *b = &heard[REDIS][i];
        CHECK(a->kind == b->kind && a->now_ms == b->now_ms && a->entry.seq == b->entry.seq);
        CHECK(a->entry.expires_ms == b->entry.expires_ms);
    }
}

static void check_counts(void) {
    struct seat_counts totals[BOTH];
    for (int i = 0; i < BOTH; i++) totals[i] = step_totals(&stores[i], KEY);
    CHECK(same_counts(totals[MEMORY], totals[REDIS]));
    for (int section = 0; section < SECTIONS; section++) {
        struct section_counts c[BOTH];
        for (int i = 0; i < BOTH; i++) c[i] = step_section(&stores[i], KEY, key_of(section));
        CHECK((c[MEMORY].capacity > 0) == exists[section]);
        CHECK(c[MEMORY].capacity == c[REDIS].capacity);
        CHECK(same_counts(c[MEMORY].seats, c[REDIS].seats));
    }
}

static void check_render(int section, uint32_t first, size_t max) {
    static char maps[BOTH][CAPACITY_MOST + 2];
    size_t count[BOTH];
    enum err result[BOTH];
    for (int i = 0; i < BOTH; i++)
        result[i] = step_render(&stores[i], KEY, key_of(section), first, maps[i], max, &count[i]);
    CHECK(result[MEMORY] == result[REDIS]);
    CHECK(count[MEMORY] == count[REDIS]);
    CHECK(memcmp(maps[MEMORY], maps[REDIS], count[MEMORY]) == 0);
}

static void check_holds(int user, uint64_t entry_seq, size_t max) {
    static struct claim_info holds[BOTH][LIVE_MOST];
    size_t count[BOTH];
    for (int i = 0; i < BOTH; i++)
        count[i] = step_holds(&stores[i], KEY, user_name(user), entry_seq, holds[i], max);
    CHECK(count[MEMORY] == count[REDIS]);
    for (size_t i = 0; i < count[MEMORY] && i < max; i++)
        CHECK(same_info(&holds[MEMORY][i], &holds[REDIS][i]));
}

static void check_entry(int user) {
    struct look_item item[BOTH];
    for (int i = 0; i < BOTH; i++) {
        item[i] = (struct look_item){.seq = entries[user]};
        step_look_at(&stores[i], KEY, &item[i], 1, now_ms, NULL, NULL);
    }
    CHECK(item[MEMORY].place.status == item[REDIS].place.status);
    CHECK(item[MEMORY].reserving == item[REDIS].reserving);
}

static void check_everything(void) {
    check_counts();
    for (int section = 0; section < SECTIONS; section++)
        check_render(section, 1, CAPACITY_MOST + 1);
    for (int user = 0; user < USERS; user++) {
        check_holds(user, 0, LIVE_MOST);
        if (entries[user] != 0) check_entry(user);
    }
}

/* ---- users ---- */

static void comes(int user) {
    struct entered e[BOTH];
    for (int i = 0; i < BOTH; i++)
        e[i] = step_enter(&stores[i], KEY, str_of(user_name(user)), LANE_DEFAULT, now_ms);
    CHECK(e[MEMORY].result == ERR_OK && e[REDIS].result == ERR_OK);
    CHECK(e[MEMORY].outcome == e[REDIS].outcome);
    CHECK(e[MEMORY].reserving == e[REDIS].reserving);
    CHECK(same_counts(e[MEMORY].seats, e[REDIS].seats));
    if (e[MEMORY].outcome == ENTER_TAKEN) {
        CHECK(e[MEMORY].place.seq == e[REDIS].place.seq);
        entries[user] = last_seq = e[MEMORY].place.seq;
        bool kept = !one_in(10);
        bool settled = !one_in(10);
        for (int i = 0; i < BOTH && settled; i++)
            step_settle_enter(&stores[i], KEY, entries[user], kept);
    }
    check_heard();
}

static void goes(int user) {
    bool ended[BOTH];
    for (int i = 0; i < BOTH; i++) ended[i] = step_end(&stores[i], KEY, entries[user], ENTRY_LEFT);
    CHECK(ended[MEMORY] == ended[REDIS]);
}

static void users_turn(void) {
    int user = (int)between(0, USERS - 1);
    if (entries[user] != 0 && one_in(5))
        goes(user);
    else
        comes(user);
}

/* ---- claims ---- */

static uint32_t some_seat(int section) {
    if (one_in(40)) return (uint32_t)between(0, CAPACITY_MOST + 5);
    return (uint32_t)between(1, sections[section].capacity);
}

/* Neighbours, or anywhere; now and then one is named twice. */
static uint32_t name_seats(int section, uint32_t *named) {
    uint32_t count = (uint32_t)between(1, NAMED_MOST);
    uint32_t first = some_seat(section);
    bool adjacent = one_in(2);
    for (uint32_t i = 0; i < count; i++) named[i] = adjacent ? first + i : some_seat(section);
    return count;
}

static struct claim_request random_hold_spec(int user, int section, const uint32_t *named,
                                             uint32_t count) {
    struct claim_request w = {.id = id_of(next_id),
                              .user = str_of(user_name(user)),
                              .entry_seq = one_in(30) ? entries[(user + 1) % USERS] : entries[user],
                              .section_key = key_of(section),
                              .count = count,
                              .named = named,
                              .spread = one_in(3) ? 0 : history_random()};
    if (one_in(4)) w.key = (struct claim_key){(uint64_t)between(1, 6) << 60 | 1, one_in(5) ? 2 : 1};
    if (w.key.key != 0 && !one_in(6) && named == NULL) w.count = 2;
    return w;
}

static enum claim_outcome claim_both(const struct claim_request *w, enum err verdict) {
    static struct claimed c[BOTH];
    for (int i = 0; i < BOTH; i++) {
        stores[i].verdict = verdict;
        c[i] = step_claim(&stores[i], KEY, w, now_ms);
        stores[i].verdict = ERR_OK;
    }
    CHECK(c[MEMORY].result == c[REDIS].result);
    CHECK(c[MEMORY].outcome == c[REDIS].outcome);
    CHECK(c[MEMORY].count == c[REDIS].count);
    for (size_t i = 0; i < c[MEMORY].count; i++) CHECK(c[MEMORY].seats[i] == c[REDIS].seats[i]);
    if (c[MEMORY].outcome == CLAIM_DONE || c[MEMORY].outcome == CLAIM_THERE)
        CHECK(same_info(&c[MEMORY].r, &c[REDIS].r));
    check_heard();
    return c[MEMORY].outcome;
}

static void claims(void) {
    uint32_t named[NAMED_MOST];
    int user = (int)between(0, USERS - 1);
    int section = (int)between(0, SECTIONS - 1);
    bool is_named = one_in(3);
    uint32_t count = is_named    ? name_seats(section, named)
                     : one_in(8) ? (uint32_t)between(1, GROUP_MOST)
                                 : (uint32_t)between(1, 6);
    struct claim_request w = random_hold_spec(user, section, is_named ? named : NULL, count);
    if (claim_both(&w, one_in(15) ? ERR_OVERLOADED : ERR_OK) == CLAIM_DONE)
        remember((struct remembered){next_id, user, section});
    next_id++;
}

/* The same reservation again, as after a lost answer; or that of another user. */
static void claims_again(void) {
    struct remembered r = some_reservation();
    int user = one_in(10) ? (int)between(0, USERS - 1) : r.user;
    struct claim_request w =
        random_hold_spec(user, r.section, NULL, (uint32_t)between(1, GROUP_MOST));
    w.id = id_of(r.id);
    w.key = (struct claim_key){0};
    claim_both(&w, ERR_OK);
    if (r.id > next_id) next_id = r.id;
}

/* ---- what the ledger says ---- */

struct settling {
    struct claim_settle_op op;
    bool done;
};

static void on_settled(struct claim_settle_op *op) {
    CONTAINER_OF(op, struct settling, op)->done = true;
}

/* Several of one section. */
static void settles(void) {
    struct uuid ids[AT_ONCE];
    bool kept[AT_ONCE];
    bool live[BOTH][AT_ONCE] = {{false}};
    size_t count = 0;
    struct remembered first = some_reservation();
    for (int i = 0; i < AT_ONCE; i++) {
        struct remembered r = i == 0 ? first : some_reservation();
        if (r.section != first.section) continue;
        ids[count] = id_of(r.id);
        kept[count++] = !one_in(4);
    }
    for (int i = 0; i < BOTH; i++) {
        struct settling s = {.op = {.op = {.event_key = KEY, .now_ms = now_ms},
                                    .section_key = key_of(first.section),
                                    .ids = ids,
                                    .kept = kept,
                                    .count = count,
                                    .live = live[i],
                                    .done = on_settled}};
        seats_settle(stores[i].seats, &s.op);
        store_wait(&stores[i], &s.done);
        CHECK(s.op.op.result == ERR_OK);
    }
    CHECK(memcmp(live[MEMORY], live[REDIS], sizeof live[MEMORY]) == 0);
}

struct following {
    struct follow_op op;
    bool done;
};

static void on_followed(struct follow_op *op) {
    CONTAINER_OF(op, struct following, op)->done = true;
}

static void follows(void) {
    struct reservation_change changes[BOTH][AT_ONCE];
    size_t count = (size_t)between(1, AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        struct remembered r = some_reservation();
        enum reservation_status status = one_in(2)   ? RESERVATION_CONFIRMED
                                         : one_in(2) ? RESERVATION_CANCELLED
                                                     : RESERVATION_EXPIRED;
        changes[MEMORY][i] = (struct reservation_change){
            .id = id_of(r.id), .section_key = key_of(r.section), .status = status};
        changes[REDIS][i] = changes[MEMORY][i];
    }
    for (int i = 0; i < BOTH; i++) {
        struct following f = {.op = {.op = {.event_key = KEY, .now_ms = now_ms},
                                     .changes = changes[i],
                                     .count = count,
                                     .done = on_followed}};
        seats_follow(stores[i].seats, &f.op);
        store_wait(&stores[i], &f.done);
        CHECK(f.op.op.result == ERR_OK);
    }
    for (size_t i = 0; i < count; i++)
        CHECK(changes[MEMORY][i].changed == changes[REDIS][i].changed);
}

struct syncing {
    struct seat_sync_op op;
    bool done;
};

static void on_synced(struct seat_sync_op *op) {
    CONTAINER_OF(op, struct syncing, op)->done = true;
}

/* A reservation that is live, ended or new; its seats may belong to others. */
static struct live_reservation some_live(uint32_t *seats) {
    struct remembered r = some_reservation();
    if (one_in(3)) {
        r = (struct remembered){next_id++, (int)between(0, USERS - 1),
                                (int)between(0, SECTIONS - 1)};
    } else if (r.id > next_id) {
        next_id = r.id + 1;
    }
    remember(r);
    struct uuid id = id_of(r.id);
    for (int i = 0; i < BOTH; i++) store_note_section(&stores[i], &id, key_of(r.section));
    return (struct live_reservation){.id = id,
                                     .user = str_of(user_name(r.user)),
                                     .entry_seq = entries[r.user],
                                     .section_key = key_of(r.section),
                                     .seats = seats,
                                     .seat_count = name_seats(r.section, seats),
                                     .status = one_in(3) ? RESERVATION_CONFIRMED : RESERVATION_HELD,
                                     .expires_ms = now_ms + between(-5000, 60000)};
}

static void syncs(void) {
    uint32_t seats[AT_ONCE][NAMED_MOST];
    struct live_reservation live[AT_ONCE];
    uint32_t available[NAMED_MOST];
    int section = (int)between(0, SECTIONS - 1);
    size_t count = (size_t)between(0, one_in(2) ? 1 : AT_ONCE);
    size_t available_count = one_in(2) ? 0 : name_seats(section, available);
    size_t changed[BOTH];
    for (size_t i = 0; i < count; i++) live[i] = some_live(seats[i]);
    for (int i = 0; i < BOTH; i++) {
        struct syncing y = {.op = {.op = {.event_key = KEY, .now_ms = now_ms},
                                   .reservations = live,
                                   .count = count,
                                   .section_key = key_of(section),
                                   .available = available,
                                   .available_count = available_count,
                                   .done = on_synced}};
        seats_sync(stores[i].seats, &y.op);
        store_wait(&stores[i], &y.done);
        CHECK(y.op.op.result == ERR_OK);
        changed[i] = y.op.changed;
    }
    CHECK(changed[MEMORY] == changed[REDIS]);
    check_render(section, 1, CAPACITY_MOST + 1);
}

static int by_number(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* All of them: of those that end at the same time any may be first. */
static void check_due(void) {
    static uint64_t due[BOTH][LIVE_MOST];
    size_t count[BOTH];
    for (int i = 0; i < BOTH; i++) {
        count[i] = step_due(&stores[i], KEY, now_ms, due[i], LIVE_MOST);
        qsort(due[i], count[i], sizeof due[i][0], by_number);
    }
    CHECK(count[MEMORY] == count[REDIS] && count[MEMORY] < LIVE_MOST);
    CHECK(memcmp(due[MEMORY], due[REDIS], count[MEMORY] * sizeof due[MEMORY][0]) == 0);
}

/* Sometimes exactly when they are reported again. */
static void falls_due(void) {
    check_due();
    if (!one_in(3)) return;
    now_ms += DUE_AGAIN_MS;
    check_due();
}

/* ---- what the administrator says ---- */

static void tell_configuration(void) {
    struct section configured[SECTIONS];
    event.section_count = 0;
    for (int i = 0; i < SECTIONS; i++)
        if (exists[i]) configured[event.section_count++] = sections[i];
    event.sections = configured;
    event.version++;
    for (int i = 0; i < BOTH; i++) step_configure(&stores[i], &event);
}

static void change_section(int i) {
    static const enum section_mode modes[] = {SECTION_MODE_SLOT, SECTION_MODE_SLOT,
                                              SECTION_MODE_LOCK, SECTION_MODE_ADAPTIVE,
                                              SECTION_MODE_SEAT, SECTION_MODE_SEAT};
    sections[i].key = key_of(i);
    snprintf(sections[i].id, sizeof sections[i].id, "S%d", i);
    if (one_in(2)) sections[i].capacity = between(1, one_in(2) ? 30 : CAPACITY_MOST);
    if (one_in(3)) sections[i].mode = modes[between(0, 5)];
    sections[i].status = one_in(6) ? (enum section_status)between(0, 2) : SECTION_OPEN;
    if (one_in(4)) exists[i] = !exists[i];
}

static void reconfigures(void) {
    change_section((int)between(0, SECTIONS - 1));
    if (one_in(3)) event.max_per_user = one_in(3) ? between(1, 20) : between(100, PER_USER_MAX);
    if (one_in(4)) event.hold_s = between(1, 60);
    event.state = one_in(12) ? (enum event_state)between(EVENT_DRAFT, EVENT_CLOSED) : EVENT_OPEN;
    event.opens_at_ms = one_in(8) ? now_ms + between(-1000, 5000) : CLOCK_NONE_MS;
    event.closes_at_ms = one_in(16) ? now_ms + between(-1000, 5000) : CLOCK_NONE_MS;
    tell_configuration();
}

/* It goes with all that is in it, and comes back with nothing. In Redis its numbers go on. */
static void removes(void) {
    event.version++;
    for (int i = 0; i < BOTH; i++) step_remove(&stores[i], KEY, event.version);
    memset(entries, 0, sizeof entries);
    remembered_count = 0;
    tell_configuration();
    queues_recovered(stores[MEMORY].queues, KEY, last_seq + 1, now_ms);
    for (int user = 0; user < USERS; user++) comes(user);
}

/* ---- histories ---- */

static void looks(void) {
    int section = (int)between(0, SECTIONS - 1);
    int user = (int)between(0, USERS - 1);
    check_render(section, some_seat(section), (size_t)between(0, CAPACITY_MOST));
    check_holds(user, one_in(2) ? 0 : entries[user], (size_t)between(0, 8));
    if (entries[user] != 0) check_entry(user);
}

static void check_everything_at_times(void) {
    if (history_step() % 50 == 0) check_everything();
    now_ms += between(0, 400);
}

static void begin_history(void) {
    next_id = 1;
    last_seq = 0;
    now_ms = T0;
    remembered_count = 0;
    memset(entries, 0, sizeof entries);
    event = steps_event(KEY);
    event.queue.active_ttl_s = 600;
    event.hold_s = 30;
    event.max_per_user = 100;
    for (int i = 0; i < SECTIONS; i++) {
        sections[i] = (struct section){.capacity = i % 2 == 0 ? 20 : 200};
        exists[i] = true;
        change_section(i);
    }
    store_open(&stores[MEMORY], &memory_adapter);
    store_open(&stores[REDIS], &redis_adapter);
    tell_configuration();
}

static void end_history(void) {
    check_everything();
    for (int i = 0; i < BOTH; i++) store_close(&stores[i]);
}

static void memory_and_redis_give_the_same_answers(void **state) {
    (void)state;
    static const struct history_act acts[] = {
        {640, claims},
        {80, claims_again},
        {240, settles},
        {200, follows},
        {120, syncs},
        {80, falls_due},
        {96, users_turn},
        {64, looks},
        {79, reconfigures},
        {1, removes},
        {0},
    };
    history_run(&(struct history){.seeds = SEEDS,
                                  .steps = STEPS,
                                  .acts = acts,
                                  .begin = begin_history,
                                  .check = check_everything_at_times,
                                  .check_every = 1,
                                  .end = end_history});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_redis_give_the_same_answers),
    };
    return cmocka_run_group_tests_name("seats: memory and Redis", tests, NULL, NULL);
}
