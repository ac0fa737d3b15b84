/* Compares the two implementations of the queue: the same seeded random histories in memory and in
 * a real Redis, step by step, and every answer: outcomes, places, estimates, counts, submitted
 * records and reported expiries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "history.h"
#include "memory_adapter.h"
#include "queue_steps.h"
#include "redis_adapter.h"

#define EVENTS 3
#define SEEDS 2
#define STEPS 2500
/* Memory checks this many entries for silence per tick: with fewer entries both stores end the same
 * ones at once. */
#define SEQ_MOST 4000
#define USERS 150
#define BATCH_MOST 60
#define HEARD_MOST 4096

enum { MEMORY, REDIS, STORES };

/* The history's knowledge of an event. */
struct door {
    struct event event;
    struct section sections[2];
    uint64_t seq; /* the highest that was seen */
    bool removed;
};

static struct store stores[STORES];
static struct door doors[EVENTS];
static struct door *door; /* of this step */
static int64_t now_ms;
static struct heard heard[STORES][HEARD_MOST];
static size_t heard_count[STORES];

static int64_t key(void) {
    return door->event.key;
}

/* Mostly one of the latest, for those are live. */
static uint64_t some_seq(void) {
    if (one_in(30)) return (uint64_t)between(0, INT64_C(1) << 47);
    int64_t last = (int64_t)door->seq;
    int64_t low = one_in(3) || last < 100 ? 0 : last - 100;
    return (uint64_t)between(low, last + 1);
}

/* ---- comparing ---- */

#define SAME(field) CHECK(a->field == b->field)

static void same_place(const struct place *a, const struct place *b) {
    SAME(status);
    SAME(seq);
    SAME(lane);
    SAME(position);
    SAME(waiting);
    SAME(estimate_s);
    SAME(joined_ms);
    SAME(expires_ms);
    SAME(pending);
}

static void same_change(const struct entry_change *a, const struct entry_change *b) {
    SAME(seq);
    SAME(expires_ms);
    SAME(waited_ms);
    SAME(promised_s);
}

static void same_seats(const struct seat_counts *a, const struct seat_counts *b) {
    SAME(available);
    SAME(held);
    SAME(confirmed);
}

static void same_counts(const struct queue_counts *a, const struct queue_counts *b) {
    SAME(waiting);
    SAME(active);
    SAME(entered);
    SAME(rejected);
    SAME(admitted);
    SAME(completed);
    SAME(left);
    SAME(expired);
    SAME(waited_ms);
    SAME(waited_ms_max);
    SAME(rate);
}

static bool is_swept(const struct heard *h) {
    return h->kind == HEARD_EXPIRED && h->entry.expires_ms == 0;
}

static int by_seq(const void *a, const void *b) {
    uint64_t x = ((const struct heard *)a)->entry.seq;
    uint64_t y = ((const struct heard *)b)->entry.seq;
    return (x > y) - (x < y);
}

/* Memory goes through the numbers in rounds, and begins where the last tick has ended. */
static void sort_swept(struct heard *h, size_t count) {
    size_t first = 0;
    while (first < count && !is_swept(&h[first])) first++;
    size_t end = first;
    while (end < count && is_swept(&h[end])) end++;
    if (end > first) qsort(h + first, end - first, sizeof *h, by_seq);
}

/* Submitted records and reported expiries, in the same order. */
static void same_heard(void) {
    for (int s = 0; s < STORES; s++) {
        heard_count[s] = store_heard(&stores[s], heard[s], HEARD_MOST);
        sort_swept(heard[s], heard_count[s]);
    }
    CHECK(heard_count[MEMORY] == heard_count[REDIS]);
    for (size_t i = 0; i < heard_count[MEMORY]; i++) {
        const struct heard *a = &heard[MEMORY][i];
        const struct heard *b = &heard[REDIS][i];
        SAME(kind);
        SAME(event_key);
        SAME(now_ms);
        same_change(&a->entry, &b->entry);
    }
}

/* ---- the steps ---- */

static void submit_fails_at_times(void) {
    bool fails = one_in(10);
    for (int s = 0; s < STORES; s++) stores[s].verdict = fails ? ERR_OVERLOADED : ERR_OK;
}

static void enter(void) {
    char user[64];
    snprintf(user, sizeof user, "user %d of many", (int)between(1, USERS));
    unsigned lane = one_in(3) ? (unsigned)between(0, LANES - 1) : LANE_DEFAULT;
    struct entered entered[STORES];
    submit_fails_at_times();
    for (int s = 0; s < STORES; s++)
        entered[s] = step_enter(&stores[s], key(), str_of(user), lane, now_ms);
    const struct entered *a = &entered[MEMORY];
    const struct entered *b = &entered[REDIS];
    SAME(result);
    same_heard();
    if (a->result == ERR_EVENT_NOT_FOUND) return;
    SAME(outcome);
    SAME(closes);
    SAME(opens_at_ms);
    SAME(reserving);
    if (a->outcome == ENTER_THERE) SAME(stays_ended);
    same_seats(&a->seats, &b->seats);
    if (a->outcome != ENTER_TAKEN && a->outcome != ENTER_THERE) return;
    same_place(&a->place, &b->place);
    if (a->place.seq > door->seq) door->seq = a->place.seq;
}

/* Most of the latest, or one; in any order. */
static void settle(void) {
    uint64_t seqs[BATCH_MOST];
    bool kept[BATCH_MOST];
    struct place places[STORES][BATCH_MOST];
    enum err results[STORES];
    bool admissions = one_in(2);
    bool with_places = !one_in(4);
    size_t count = one_in(3) ? 1 : (size_t)between(0, BATCH_MOST);
    for (size_t i = 0; i < count; i++) {
        seqs[i] = some_seq();
        kept[i] = !one_in(6);
    }
    for (int s = 0; s < STORES; s++)
        results[s] = step_settle(&stores[s], key(), admissions, seqs, kept, count, now_ms,
                                 with_places ? places[s] : NULL);
    CHECK(results[MEMORY] == results[REDIS]);
    if (results[MEMORY] != ERR_OK || !with_places) return;
    for (size_t i = 0; i < count; i++) same_place(&places[MEMORY][i], &places[REDIS][i]);
}

/* All that an admission has moved, as the ledger does. */
static void settle_admitted(const struct entry_change *admitted, size_t count) {
    static uint64_t seqs[ADMIT_MAX];
    static bool kept[ADMIT_MAX];
    for (size_t i = 0; i < count; i++) {
        seqs[i] = admitted[i].seq;
        kept[i] = !one_in(6);
    }
    for (int s = 0; s < STORES; s++)
        step_settle(&stores[s], key(), true, seqs, kept, count, now_ms, NULL);
}

static void admit(void) {
    static struct entry_change out[STORES][ADMIT_MAX];
    size_t counts[STORES];
    enum err results[STORES];
    submit_fails_at_times();
    for (int s = 0; s < STORES; s++)
        results[s] = step_admit_result(&stores[s], key(), now_ms, out[s], &counts[s]);
    CHECK(results[MEMORY] == results[REDIS] && counts[MEMORY] == counts[REDIS]);
    for (size_t i = 0; i < counts[MEMORY]; i++) same_change(&out[MEMORY][i], &out[REDIS][i]);
    same_heard();
    if (results[MEMORY] == ERR_OK && !one_in(4)) settle_admitted(out[MEMORY], counts[MEMORY]);
}

static void look(void) {
    struct look_item items[STORES][BATCH_MOST];
    struct queue_counts counts[STORES] = {0};
    enum event_state states[STORES] = {EVENT_DRAFT, EVENT_DRAFT};
    enum err results[STORES];
    size_t count = (size_t)between(0, BATCH_MOST);
    for (size_t i = 0; i < count; i++)
        items[MEMORY][i] = (struct look_item){.seq = some_seq(), .seen = one_in(3)};
    memcpy(items[REDIS], items[MEMORY], sizeof items[MEMORY]);
    for (int s = 0; s < STORES; s++)
        results[s] =
            step_look_at(&stores[s], key(), items[s], count, now_ms, &counts[s], &states[s]);
    CHECK(results[MEMORY] == results[REDIS]);
    if (results[MEMORY] != ERR_OK) return;
    CHECK(states[MEMORY] == states[REDIS]);
    same_counts(&counts[MEMORY], &counts[REDIS]);
    for (size_t i = 0; i < count; i++) {
        same_place(&items[MEMORY][i].place, &items[REDIS][i].place);
        CHECK(items[MEMORY][i].reserving == items[REDIS][i].reserving);
    }
}

static void look_at_user(void) {
    char users[STORES][USER_ID_BYTES_MAX];
    size_t lengths[STORES];
    uint64_t seq = some_seq();
    for (int s = 0; s < STORES; s++)
        lengths[s] = step_look_user(&stores[s], key(), seq, now_ms, users[s]);
    CHECK(str_eq((str){users[MEMORY], lengths[MEMORY]}, (str){users[REDIS], lengths[REDIS]}));
}

static void end(void) {
    uint64_t seq = some_seq();
    enum entry_status final = (enum entry_status)between(ENTRY_COMPLETED, ENTRY_EXPIRED);
    bool ended[STORES];
    for (int s = 0; s < STORES; s++) ended[s] = step_end(&stores[s], key(), seq, final);
    CHECK(ended[MEMORY] == ended[REDIS]);
}

static void make_rules(struct event *e) {
    static const enum event_state states[] = {EVENT_OPEN,   EVENT_OPEN,   EVENT_OPEN,
                                              EVENT_OPEN,   EVENT_PAUSED, EVENT_DRAINING,
                                              EVENT_CLOSED, EVENT_DRAFT};
    e->state = states[between(0, 7)];
    e->opens_at_ms = one_in(4) ? now_ms + between(-3000, 3000) : CLOCK_NONE_MS;
    e->closes_at_ms = one_in(8) ? now_ms + between(-3000, 3000) : CLOCK_NONE_MS;
    e->queue = (struct queue_rules){.max_waiting = one_in(8) ? 0 : between(1, USERS),
                                    .max_active = between(1, 30),
                                    .entry_batch_size = between(1, 10),
                                    .entry_interval_s = one_in(2) ? 1 : between(1, 10),
                                    .active_ttl_s = between(1, 30),
                                    .grace_s = between(1, 30)};
}

/* Also with versions that are not newer. */
static void configure(void) {
    struct event e = door->event;
    e.version += between(-1, 2);
    make_rules(&e);
    for (int s = 0; s < STORES; s++) step_configure(&stores[s], &e);
    if (e.version > door->event.version && !door->removed) door->event = e;
}

/* From then on all versions of it are old. */
static void remove_sale(void) {
    int64_t version = door->event.version + between(-1, 2);
    for (int s = 0; s < STORES; s++) step_remove(&stores[s], key(), version);
    if (version < door->event.version) return;
    door->removed = true;
    door->event.version = version - 2;
}

static void pass_time(void) {
    if (one_in(50))
        now_ms += between(5000, 60000);
    else if (one_in(20))
        now_ms -= between(0, 1500); /* clocks are set, too */
    else if (one_in(5))
        now_ms += SECOND - now_ms % SECOND; /* what begins and ends does so there, or is seen */
    else
        now_ms += between(0, 700);
}

/* Most acts are about one event, which is chosen for each. */
static void choose_door(void) {
    door = &doors[between(0, EVENTS - 1)];
}

static void enter_if_room(void) {
    if (door->seq < SEQ_MOST)
        enter();
    else
        settle();
}

/* Late, so that there is something to remove. */
static void remove_late(void) {
    if (history_step() > STEPS / 2)
        remove_sale();
    else
        pass_time();
}

static void begin_sale(int i) {
    door = &doors[i];
    *door = (struct door){.event = {.key = 40 + i, .version = 1},
                          .sections = {{.key = 10 * i + 1, .id = "A", .capacity = 20 + i},
                                       {.key = 10 * i + 2, .id = "B", .capacity = 7}}};
    door->event.sections = door->sections;
    door->event.section_count = 2;
    make_rules(&door->event);
    door->event.state = EVENT_OPEN;
    for (int s = 0; s < STORES; s++) step_configure(&stores[s], &door->event);
}

static void begin_history(void) {
    now_ms = T0;
    store_open(&stores[MEMORY], &memory_adapter);
    store_open(&stores[REDIS], &redis_adapter);
    for (int i = 0; i < EVENTS; i++) begin_sale(i);
    choose_door();
}

static void check_counts(void) {
    choose_door();
    if (!one_in(3)) return;
    struct queue_counts a = step_counts(&stores[MEMORY], key());
    struct queue_counts b = step_counts(&stores[REDIS], key());
    same_counts(&a, &b);
    choose_door();
}

static void end_history(void) {
    store_close(&stores[REDIS]);
    store_close(&stores[MEMORY]);
}

static void memory_and_redis_give_the_same_answers_step_by_step(void **state) {
    (void)state;
    static const struct history_act acts[] = {
        {350, enter_if_room}, {150, settle}, {120, admit},    {80, look},
        {20, look_at_user},   {80, end},     {15, configure}, {1, remove_late},
        {184, pass_time},     {0},
    };
    history_run(&(struct history){.seeds = SEEDS,
                                  .steps = STEPS,
                                  .acts = acts,
                                  .begin = begin_history,
                                  .check = check_counts,
                                  .check_every = 1,
                                  .end = end_history});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_redis_give_the_same_answers_step_by_step),
    };
    return cmocka_run_group_tests_name("queue: memory and Redis", tests, NULL, NULL);
}
