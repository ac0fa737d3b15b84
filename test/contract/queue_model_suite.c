/* The waiting rooms through their port, against a model of each (queue_model.h): seeded random
 * histories over two events, every answer compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "history.h"
#include "queue_model.h"
#include "queue_steps.h"

#define EVENTS 2
#define SEEDS 3
#define STEPS 30000
#define REMOTE_SEEDS 1
#define REMOTE_STEPS 2500
#define HEARD_MOST 4096
/* After this many ticks, all silent entries have been ended. */
#define SWEEPS_MOST 64

static const struct queue_adapter *adapter;
static struct store store;
static struct model models[EVENTS];
static int unswept[EVENTS]; /* ticks in a row that left an entry which a sweep should end */
static struct model *m;     /* the event of this step */
static int64_t key;
static struct heard heard[HEARD_MOST];
static size_t heard_count;

/* Some number: of a live entry, of another one, of none. */
static uint64_t some_seq(void) {
    if (m->live_count > 0 && !one_in(4)) return m->live[between(0, (int64_t)m->live_count - 1)];
    if (one_in(20)) return (uint64_t)between(0, INT64_C(1) << 40);
    return (uint64_t)between(0, (int64_t)m->next_seq + 2);
}

/* ---- comparing ---- */

/* The results of look and settle. A store need not know ended entries. */
static void check_seen(const struct place *p, uint64_t seq) {
    CHECK(p->seq == seq);
    if (!model_is_live(m, seq)) {
        bool was = seq < m->next_seq && m->entries[seq].status != ENTRY_NONE;
        CHECK(p->status == ENTRY_NONE || (was && p->status == m->entries[seq].status));
        CHECK(p->position == 0);
        return;
    }
    struct place e = model_place(m, seq);
    CHECK(p->status == e.status && p->position == e.position);
    CHECK(p->waiting == e.waiting && p->estimate_s == e.estimate_s);
    CHECK(p->expires_ms == e.expires_ms);
}

static void check_whole(const struct place *p, uint64_t seq) {
    struct place e = model_place(m, seq);
    check_seen(p, seq);
    CHECK(p->lane == e.lane && p->joined_ms == e.joined_ms && p->pending == e.pending);
}

static void check_counts(const struct queue_counts *c) {
    const struct queue_counts *t = &m->totals;
    CHECK(c->waiting == model_waiting(m) && c->active == model_active(m));
    CHECK(c->entered == t->entered && c->rejected == t->rejected && c->admitted == t->admitted);
    CHECK(c->completed == t->completed && c->left == t->left && c->expired == t->expired);
    CHECK(c->waited_ms == t->waited_ms && c->waited_ms_max == t->waited_ms_max);
    CHECK(c->rate == t->rate);
}

/* Checks the next report; *at counts those that were checked. */
static void check_next_heard(size_t *at, enum heard_kind kind, uint64_t seq) {
    CHECK(*at < heard_count);
    const struct heard *h = &heard[(*at)++];
    CHECK(h->kind == kind && h->event_key == key && h->now_ms == m->now_ms);
    CHECK(h->entry.seq == seq);
}

/* Every entry whose time was over has been reported, in order. */
static void follow_purge(size_t *at) {
    uint64_t seq;
    while ((seq = model_overdue(m)) != 0) {
        check_next_heard(at, HEARD_EXPIRED, seq);
        CHECK(heard[*at - 1].entry.expires_ms == m->entries[seq].expires_ms);
        model_end(m, seq, ENTRY_EXPIRED);
    }
}

/* Every entry that a sweep ended was silent, or the event is over; and none of these stays for
 * long.
 */
static void follow_sweep(size_t *at) {
    model_sweep_begins(m);
    while (*at < heard_count && heard[*at].kind == HEARD_EXPIRED) {
        uint64_t seq = heard[*at].entry.seq;
        CHECK(model_is_live(m, seq));
        CHECK(model_is_swept(m, &m->entries[seq]));
        check_next_heard(at, HEARD_EXPIRED, seq);
        CHECK(heard[*at - 1].entry.expires_ms == 0);
        model_end(m, seq, ENTRY_EXPIRED);
    }
    bool is_left = false;
    for (size_t i = 0; i < m->live_count; i++)
        is_left = is_left || model_is_swept(m, model_live(m, i));
    int *ticks = &unswept[m - models];
    *ticks = is_left ? *ticks + 1 : 0;
    CHECK(*ticks < SWEEPS_MOST);
}

/* ---- the steps ---- */

static bool submit_fails(void) {
    bool fails = one_in(10);
    store.verdict = fails ? ERR_OVERLOADED : ERR_OK;
    return fails;
}

static void port_enter(void) {
    char name[80];
    int user = (int)between(0, MODEL_USERS - 1);
    unsigned lane = one_in(3) ? (unsigned)between(0, LANES - 1) : LANE_DEFAULT;
    bool fails = submit_fails();
    struct entered e = step_enter(&store, key, model_user_name(user, name), lane, m->now_ms);
    heard_count = store_heard(&store, heard, HEARD_MOST);
    size_t at = 0;
    uint64_t before = model_find(m, user);
    follow_purge(&at);
    uint64_t seq;
    enum enter_outcome expected = model_enter(m, user, lane, &seq);
    CHECK(e.outcome == expected);
    CHECK(e.closes == (expected == ENTER_TAKEN ? before : 0));
    CHECK(e.opens_at_ms == m->config.hours.opens_at_ms);
    bool pending = seq != 0 && m->entries[seq].pending == ENTER_PENDING;
    if (seq != 0) check_whole(&e.place, seq);
    if (pending) check_next_heard(&at, HEARD_ENTER, seq);
    CHECK(at == heard_count);
    CHECK(e.result == (pending && fails ? ERR_OVERLOADED : ERR_OK));
    if (expected == ENTER_THERE) model_seen(m, seq);
    if (expected == ENTER_TAKEN && fails) model_settle_enter(m, seq, false);
}

/* The ledger answers most of the pending operations in any order, or one. */
static void port_settle(void) {
    uint64_t seqs[MODEL_LIVE_MOST];
    bool kept[MODEL_LIVE_MOST] = {0};
    struct place places[MODEL_LIVE_MOST];
    bool admissions = one_in(2);
    size_t count = 0;
    for (size_t i = 0; i < m->live_count; i++)
        if (!one_in(8)) seqs[count++] = m->live[(i * 7 + (size_t)history_step()) % m->live_count];
    if (one_in(3)) {
        seqs[0] = some_seq();
        count = 1;
    }
    for (size_t i = 0; i < count; i++) kept[i] = !one_in(6);
    step_settle(&store, key, admissions, seqs, kept, count, m->now_ms, places);
    for (size_t i = 0; i < count; i++) {
        if (admissions)
            model_settle_admit(m, seqs[i], kept[i]);
        else
            model_settle_enter(m, seqs[i], kept[i]);
        check_seen(&places[i], seqs[i]);
    }
}

static void port_admit(void) {
    static struct entry_change out[ADMIT_MAX];
    bool fails = submit_fails();
    size_t count;
    enum err result = step_admit_result(&store, key, m->now_ms, out, &count);
    heard_count = store_heard(&store, heard, HEARD_MOST);
    size_t at = 0;
    follow_purge(&at);
    follow_sweep(&at);
    model_rate_update(m);
    size_t admitted = 0;
    uint64_t seq;
    bool begins = model_may_begin(m);
    while (begins && model_may_admit(m) && (seq = model_next(m)) != 0) {
        CHECK(admitted < count);
        struct entry_change e = model_admit(m, seq);
        check_next_heard(&at, HEARD_ADMIT, seq);
        const struct entry_change *o = &out[admitted++];
        CHECK(o->seq == seq && o->expires_ms == e.expires_ms);
        CHECK(o->waited_ms == e.waited_ms && o->promised_s == e.promised_s);
    }
    CHECK(admitted == count && at == heard_count);
    CHECK(result == (fails && count > 0 ? ERR_OVERLOADED : ERR_OK));
    for (size_t i = 0; fails && i < count; i++) model_settle_admit(m, out[i].seq, false);
}

static void port_look(void) {
    struct look_item items[20];
    struct queue_counts counts;
    enum event_state state;
    size_t count = (size_t)between(0, 20);
    for (size_t i = 0; i < count; i++)
        items[i] = (struct look_item){.seq = some_seq(), .seen = one_in(2)};
    CHECK(step_look_at(&store, key, items, count, m->now_ms, &counts, &state) == ERR_OK);
    CHECK(state == model_state(m));
    check_counts(&counts);
    for (size_t i = 0; i < count; i++) {
        check_seen(&items[i].place, items[i].seq);
        if (items[i].seen) model_seen(m, items[i].seq);
    }
    char user[USER_ID_BYTES_MAX];
    char name[80];
    uint64_t seq = some_seq();
    str said = {user, step_look_user(&store, key, seq, m->now_ms, user)};
    bool was = seq > 0 && seq < m->next_seq && m->entries[seq].status != ENTRY_NONE;
    CHECK(said.len > 0 || !model_is_live(m, seq));
    if (said.len > 0) CHECK(was && str_eq(said, model_user_name(m->entries[seq].user, name)));
}

static void port_end(void) {
    uint64_t seq = some_seq();
    enum entry_status final = (enum entry_status)between(ENTRY_COMPLETED, ENTRY_EXPIRED);
    CHECK(step_end(&store, key, seq, final) == model_end(m, seq, final));
}

/* A time near now, at one in that many calls. */
static int64_t time_or_none(int64_t n) {
    return one_in(n) ? m->now_ms + between(-3000, 3000) : CLOCK_NONE_MS;
}

static struct queue_config some_config(void) {
    static const enum event_state states[] = {EVENT_OPEN,   EVENT_OPEN,   EVENT_OPEN,
                                              EVENT_OPEN,   EVENT_PAUSED, EVENT_DRAINING,
                                              EVENT_CLOSED, EVENT_DRAFT};
    return (struct queue_config){.version = m->config.version + between(-1, 3),
                                 .hours = {.state = states[between(0, 7)],
                                           .opens_at_ms = time_or_none(4),
                                           .closes_at_ms = time_or_none(8)},
                                 .rules = {.max_waiting = one_in(8) ? 0 : between(1, MODEL_USERS),
                                           .max_active = between(1, 30),
                                           .entry_batch_size = between(1, 10),
                                           .entry_interval_s = one_in(2) ? 1 : between(1, 10),
                                           .active_ttl_s = between(1, 30),
                                           .grace_s = between(1, 30)}};
}

static struct event event_with(const struct queue_config *c) {
    return (struct event){.key = key,
                          .version = c->version,
                          .state = c->hours.state,
                          .opens_at_ms = c->hours.opens_at_ms,
                          .closes_at_ms = c->hours.closes_at_ms,
                          .queue = c->rules};
}

static void configure(const struct queue_config *c) {
    struct event e = event_with(c);
    step_configure(&store, &e);
}

static void port_configure(void) {
    struct queue_config c = some_config();
    configure(&c);
    model_configure(m, &c);
}

static void choose(int event) {
    m = &models[event];
    key = 40 + event;
}

static void restore_event(void) {
    char name[80];
    struct event event = event_with(&m->config);
    step_restore_event(&store, &event);
    model_restart(m);
    for (size_t i = 0; i < m->live_count; i++) {
        const struct model_entry *e = model_live(m, i);
        queues_restore(store.queues, &(struct ledger_entry){.event_key = key,
                                                            .seq = m->live[i],
                                                            .user = model_user_name(e->user, name),
                                                            .lane = e->lane,
                                                            .status = e->status,
                                                            .joined_ms = e->joined_ms,
                                                            .expires_ms = e->expires_ms});
    }
    uint64_t skipped = one_in(2) ? 0 : (uint64_t)between(0, 500);
    m->next_seq += skipped;
    queues_recovered(store.queues, key, m->next_seq, m->now_ms);
}

/* The process dies and comes back. */
static void port_restart(void) {
    store_close(&store);
    store_open(&store, adapter);
    store_rebuild_begins(&store);
    for (int i = 0; i < EVENTS; i++) {
        choose(i);
        restore_event();
    }
    store_rebuild_ends(&store);
}

static void pass_time(void) {
    int64_t now_ms = models[0].now_ms;
    if (one_in(50))
        now_ms += between(5000, 60000);
    else if (one_in(20))
        now_ms -= between(0, 1500); /* clocks are set, too */
    else
        now_ms += between(0, 700);
    for (int i = 0; i < EVENTS; i++) models[i].now_ms = now_ms;
}

static void begin_history(void) {
    store_open(&store, adapter);
    for (int i = 0; i < EVENTS; i++) {
        choose(i);
        unswept[i] = 0;
        *m = (struct model){.next_seq = 1, .now_ms = T0};
        m->config = some_config();
        m->config.version = 1;
        m->config.hours.state = EVENT_OPEN;
        configure(&m->config);
    }
}

/* Also of an event that the step was not about. The next step is about this one. */
static void check_some_event(void) {
    choose((int)between(0, EVENTS - 1));
    struct queue_counts counts = step_counts(&store, key);
    check_counts(&counts);
    choose((int)between(0, EVENTS - 1));
}

static void end_history(void) {
    store_close(&store);
}

static void random_histories_give_what_a_simple_model_gives(void **state) {
    (void)state;
    static const struct history_act acts[] = {
        {380, port_enter}, {170, port_settle}, {110, port_admit},
        {60, port_look},   {80, port_end},     {12, port_configure},
        {1, port_restart}, {187, pass_time},   {0},
    };
    history_run(&(struct history){.seeds = adapter->remote ? REMOTE_SEEDS : SEEDS,
                                  .steps = adapter->remote ? REMOTE_STEPS : STEPS,
                                  .acts = acts,
                                  .begin = begin_history,
                                  .check = check_some_event,
                                  .check_every = 1,
                                  .end = end_history});
}

int queue_model_suite_run(const struct queue_adapter *of) {
    adapter = of;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests_name("queue contract: random histories", tests, NULL, NULL);
}
