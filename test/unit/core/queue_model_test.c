/*
 * The queue against a model of it: arrays, linear scans, one rule per function. Seeded random
 * histories; every answer of every function is compared, and the promises of DESIGN.md §2 are
 * asserted after every step. A failure names its seed and step; `queue_model SEED [STEPS]`, or
 * QUEUE_MODEL_SEED in the environment, replays that one history.
 */
#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "splitmix.h"

#define USERS 120
#define SEQ_MOST 400000
#define LIVE_MOST USERS
/* Ended entries are known as long as one of so many neighbours lives. */
#define NEIGHBOURS 4096
#define STEPS 25000
#define START_MS INT64_C(1700000000000)

enum pending { SETTLED, ENTER_PENDING, ADMIT_PENDING };

struct model_entry {
    enum entry_status status; /* NONE: never was, or undone */
    enum pending pending;
    int user;
    unsigned lane;
    int64_t joined_ms;
    int64_t expires_ms;
    int64_t seen_ms;
};

struct model {
    struct queue_config config;
    struct model_entry entries[SEQ_MOST]; /* by seq */
    uint64_t live[LIVE_MOST];             /* seqs, in order */
    size_t live_count;
    uint64_t next_seq;
    int64_t grace_from_ms;
    int64_t interval_ms;
    int64_t interval_used;
    double rate;
    int64_t rate_from_ms;
    int64_t rate_admitted;
};

static struct model m;
static struct queue *q;
static int64_t now_ms;
static uint64_t seed;
static int step;
static uint64_t random_state;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, step %d: %s (replay: QUEUE_MODEL_SEED=%llu)",                     \
                     (unsigned long long)seed, step, #condition, (unsigned long long)seed);        \
    } while (0)

/* From `low` to `high`, both included. */
static int64_t between(int64_t low, int64_t high) {
    return low + (int64_t)(next_random(&random_state) % (uint64_t)(high - low + 1));
}

static bool one_in(int64_t n) {
    return between(1, n) == 1;
}

/* Names of many lengths, of which some begin alike. */
static str user_name(int user, char out[80]) {
    int len = snprintf(out, 80, "%s%d", user % 3 == 0 ? "customer-" : "", user);
    while (len < user % 64) out[len++] = 'x';
    return (str){out, (size_t)len};
}

/* ---- the model ---- */

static struct model_entry *live_entry(size_t i) {
    return &m.entries[m.live[i]];
}

static uint64_t model_waiting(void) {
    uint64_t count = 0;
    for (size_t i = 0; i < m.live_count; i++) count += live_entry(i)->status == ENTRY_WAITING;
    return count;
}

static uint64_t model_active(void) {
    uint64_t count = 0;
    for (size_t i = 0; i < m.live_count; i++)
        count += live_entry(i)->status == ENTRY_ACTIVE || live_entry(i)->pending == ADMIT_PENDING;
    return count;
}

static uint64_t model_find(int user) {
    for (size_t i = 0; i < m.live_count; i++)
        if (live_entry(i)->user == user) return m.live[i];
    return 0;
}

static bool is_live(uint64_t seq) {
    for (size_t i = 0; i < m.live_count; i++)
        if (m.live[i] == seq) return true;
    return false;
}

static bool is_known(uint64_t seq) {
    if (seq == 0 || seq >= m.next_seq || m.entries[seq].status == ENTRY_NONE) return false;
    if (seq / NEIGHBOURS == m.next_seq / NEIGHBOURS) return true;
    for (size_t i = 0; i < m.live_count; i++)
        if (m.live[i] / NEIGHBOURS == seq / NEIGHBOURS) return true;
    return false;
}

static void model_add(uint64_t seq, struct model_entry e) {
    CHECK(m.live_count < LIVE_MOST && seq < SEQ_MOST);
    m.entries[seq] = e;
    m.live[m.live_count++] = seq;
}

static void model_end(uint64_t seq, enum entry_status final) {
    size_t kept = 0;
    for (size_t i = 0; i < m.live_count; i++)
        if (m.live[i] != seq) m.live[kept++] = m.live[i];
    CHECK(kept == m.live_count - 1);
    m.live_count = kept;
    m.entries[seq].status = final;
    m.entries[seq].pending = SETTLED;
}

static enum event_state model_state(void) {
    enum event_state state = m.config.state;
    if (m.config.opens_at_ms == CLOCK_NONE_MS) return state;
    if (state == EVENT_DRAFT && now_ms >= m.config.opens_at_ms) return EVENT_OPEN;
    if (state == EVENT_OPEN && now_ms < m.config.opens_at_ms) return EVENT_DRAFT;
    return state;
}

static bool gate_is_open(void) {
    return model_state() == EVENT_OPEN || model_state() == EVENT_DRAINING;
}

static int64_t model_batch_left(void) {
    int64_t length_ms = m.config.rules.entry_interval_s * 1000;
    if (now_ms / length_ms * length_ms > m.interval_ms) {
        m.interval_ms = now_ms / length_ms * length_ms;
        m.interval_used = 0;
    }
    return m.config.rules.entry_batch_size - m.interval_used;
}

static uint64_t model_position(uint64_t seq) {
    const struct model_entry *e = &m.entries[seq];
    uint64_t ahead = 0;
    for (size_t i = 0; i < m.live_count; i++) {
        const struct model_entry *other = live_entry(i);
        ahead += other->status == ENTRY_WAITING &&
                 (other->lane < e->lane || (other->lane == e->lane && m.live[i] < seq));
    }
    return ahead + 1;
}

static int64_t rounded_up(double x) {
    return (int64_t)x + ((double)(int64_t)x < x);
}

static int64_t model_estimate(uint64_t position) {
    const struct queue_rules *r = &m.config.rules;
    double intervals = (double)position / (double)r->entry_batch_size;
    int64_t by_rule_s = rounded_up(intervals) * r->entry_interval_s;
    double exact_s = m.rate > 0 ? (double)position / m.rate : 0;
    int64_t by_rate_s = exact_s > 30 * 86400 ? 30 * 86400 : rounded_up(exact_s);
    return by_rule_s > by_rate_s ? by_rule_s : by_rate_s;
}

static struct place model_place(uint64_t seq) {
    const struct model_entry *e = &m.entries[seq];
    struct place p = {.status = e->status,
                      .seq = seq,
                      .lane = e->lane,
                      .waiting = model_waiting(),
                      .joined_ms = e->joined_ms,
                      .pending = e->pending == ENTER_PENDING};
    if (e->status == ENTRY_WAITING) {
        p.position = model_position(seq);
        p.estimate_s = model_estimate(p.position);
    }
    if (e->status == ENTRY_ACTIVE && e->expires_ms > now_ms) p.expires_ms = e->expires_ms;
    if (e->status == ENTRY_ACTIVE && e->expires_ms <= now_ms) p.status = ENTRY_EXPIRED;
    return p;
}

static void model_seen(uint64_t seq) {
    int64_t seen_ms = (now_ms + 999) / 1000 * 1000; /* a sign of life is good for its second */
    if (is_live(seq) && seen_ms > m.entries[seq].seen_ms) m.entries[seq].seen_ms = seen_ms;
}

static bool model_silent(const struct model_entry *e) {
    int64_t since_ms = e->seen_ms > m.grace_from_ms ? e->seen_ms : m.grace_from_ms;
    return e->status == ENTRY_WAITING && e->pending == SETTLED &&
           now_ms - since_ms > m.config.rules.grace_s * 1000;
}

/* ---- comparing ---- */

static void check_place(const struct place *p, uint64_t seq) {
    struct place e = model_place(seq);
    CHECK(p->status == e.status);
    CHECK(p->seq == seq && p->lane == e.lane);
    CHECK(p->position == e.position);
    CHECK(p->waiting == e.waiting);
    CHECK(p->estimate_s == e.estimate_s);
    CHECK(p->joined_ms == e.joined_ms && p->expires_ms == e.expires_ms);
    CHECK(p->pending == e.pending);
}

static void check_look(uint64_t seq) {
    struct place p;
    char name[80];
    bool known = queue_look(q, seq, now_ms, &p);
    CHECK(known == is_known(seq));
    if (known) check_place(&p, seq);
    bool waits = is_live(seq) && m.entries[seq].status == ENTRY_WAITING;
    CHECK(queue_position(q, seq) == (waits ? model_position(seq) : 0));
    uint64_t position = (uint64_t)between(1, 10000);
    CHECK(queue_estimate_s(q, position) == model_estimate(position));
    str user = is_live(seq) ? user_name(m.entries[seq].user, name) : (str){NULL, 0};
    CHECK(str_eq(queue_user(q, seq), user));
}

/* Some number: of a live entry, of another one, of none. */
static uint64_t some_seq(void) {
    if (m.live_count > 0 && !one_in(4)) return m.live[between(0, (int64_t)m.live_count - 1)];
    if (one_in(20)) return next_random(&random_state);
    return (uint64_t)between(0, (int64_t)m.next_seq + 2);
}

static void check_everybody(void) {
    char name[80];
    for (size_t i = 0; i < m.live_count; i++) check_look(m.live[i]);
    for (int user = 0; user < USERS; user++)
        CHECK(queue_find(q, user_name(user, name)) == model_find(user));
}

/* ---- the steps ---- */

static void step_enter(void) {
    char name[80];
    int user = (int)between(0, USERS - 1);
    unsigned lane = one_in(3) ? (unsigned)between(0, LANES - 1) : LANE_DEFAULT;
    uint64_t there = model_find(user);
    if (there != 0 && model_place(there).status == ENTRY_EXPIRED) {
        model_end(there, ENTRY_EXPIRED);
        there = 0;
    }
    enum event_state state = model_state();
    bool at_once = state == EVENT_OPEN && model_waiting() == 0 &&
                   (int64_t)model_active() < m.config.rules.max_active && there == 0 &&
                   model_batch_left() > 0;
    enum enter_outcome expected = ENTER_TAKEN;
    if (there != 0)
        expected = ENTER_THERE;
    else if (state == EVENT_DRAFT)
        expected = ENTER_NOT_OPEN;
    else if (state == EVENT_DRAINING || state == EVENT_CLOSED)
        expected = ENTER_CLOSED;
    else if (!at_once && (int64_t)model_waiting() >= m.config.rules.max_waiting)
        expected = ENTER_FULL;

    struct place p;
    CHECK(queue_enter(q, user_name(user, name), lane, now_ms, &p) == expected);
    if (expected == ENTER_THERE) check_place(&p, there);
    if (expected != ENTER_TAKEN) return;
    struct model_entry e = {.status = at_once ? ENTRY_ACTIVE : ENTRY_WAITING,
                            .pending = ENTER_PENDING,
                            .user = user,
                            .lane = lane,
                            .joined_ms = now_ms};
    if (at_once) {
        e.expires_ms = now_ms + m.config.rules.active_ttl_s * 1000;
        m.interval_used++;
    }
    model_add(m.next_seq, e);
    model_seen(m.next_seq);
    check_place(&p, m.next_seq++);
}

static void settle_enter(uint64_t seq) {
    bool kept = !one_in(6);
    queue_settle_enter(q, seq, kept);
    if (!is_live(seq) || m.entries[seq].pending != ENTER_PENDING) return;
    if (kept)
        m.entries[seq].pending = SETTLED;
    else
        model_end(seq, ENTRY_NONE);
}

static void settle_admit(uint64_t seq) {
    bool kept = !one_in(6);
    queue_settle_admit(q, seq, kept);
    if (!is_live(seq) || m.entries[seq].pending != ADMIT_PENDING) return;
    m.entries[seq].pending = SETTLED;
    if (kept) m.entries[seq].status = ENTRY_ACTIVE;
}

/* The ledger answers about most of what is pending, in any order, or about one entry. */
static void step_settle(void) {
    uint64_t all[LIVE_MOST];
    size_t count = m.live_count;
    for (size_t i = 0; i < count; i++) all[i] = m.live[i];
    if (one_in(3)) {
        all[0] = some_seq();
        count = 1;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = count == 1 ? 0 : (i * 7 + (size_t)step) % count;
        if (count > 1 && one_in(8)) continue;
        settle_enter(all[at]);
        settle_admit(all[at]);
    }
}

static void model_rate_update(void) {
    if (model_waiting() > 0 && gate_is_open() && m.rate_from_ms != 0) {
        int64_t passed_ms = now_ms - m.rate_from_ms;
        if (passed_ms < m.config.rules.entry_interval_s * 1000) return;
        double observed = (double)m.rate_admitted * 1000 / (double)passed_ms;
        m.rate = m.rate == 0 ? observed : m.rate + 0.2 * (observed - m.rate);
    }
    m.rate_from_ms = now_ms;
    m.rate_admitted = 0;
}

/* The one who is next: of the lowest lane whose first who is not under way is settled. */
static uint64_t model_next(void) {
    for (unsigned lane = 0; lane < LANES; lane++)
        for (size_t i = 0; i < m.live_count; i++) {
            const struct model_entry *e = live_entry(i);
            if (e->lane != lane || e->status != ENTRY_WAITING) continue;
            if (e->pending == SETTLED) return m.live[i];
            if (e->pending == ENTER_PENDING) break;
        }
    return 0;
}

/* Nobody who could have been admitted was overtaken in the lane. */
static void check_no_inversion(uint64_t seq) {
    for (size_t i = 0; i < m.live_count && m.live[i] < seq; i++) {
        const struct model_entry *e = live_entry(i);
        CHECK(e->lane != m.entries[seq].lane || e->status != ENTRY_WAITING ||
              e->pending == ADMIT_PENDING);
    }
}

static void step_admit(void) {
    static struct entry_change out[ADMIT_MAX];
    size_t max = one_in(3) ? (size_t)between(0, 5) : ADMIT_MAX;
    model_rate_update();
    if (gate_is_open()) model_batch_left(); /* an interval that has been seen has begun */
    size_t count = queue_admit(q, now_ms, out, max);
    for (size_t i = 0; i < count; i++) {
        CHECK(gate_is_open() && i < max);
        CHECK(model_batch_left() > 0);
        CHECK((int64_t)model_active() < m.config.rules.max_active);
        uint64_t seq = model_next();
        CHECK(out[i].seq == seq);
        struct model_entry *e = &m.entries[seq];
        e->pending = ADMIT_PENDING;
        e->expires_ms = now_ms + m.config.rules.active_ttl_s * 1000;
        CHECK(out[i].expires_ms == e->expires_ms && out[i].waited_ms == now_ms - e->joined_ms);
        m.interval_used++;
        m.rate_admitted++;
        check_no_inversion(seq);
    }
    bool more = gate_is_open() && count < max && model_batch_left() > 0 &&
                (int64_t)model_active() < m.config.rules.max_active && model_next() != 0;
    CHECK(!more);
}

static void step_purge(void) {
    struct entry_change out[LIVE_MOST];
    size_t max = one_in(4) ? (size_t)between(0, 3) : LIVE_MOST;
    size_t count = queue_purge(q, now_ms, out, max);
    for (size_t n = 0; n <= count; n++) {
        uint64_t first = 0;
        for (size_t i = 0; i < m.live_count; i++) {
            const struct model_entry *e = live_entry(i);
            if (e->status != ENTRY_ACTIVE || e->expires_ms > now_ms) continue;
            if (first == 0 || e->expires_ms < m.entries[first].expires_ms) first = m.live[i];
        }
        if (n == count) {
            CHECK(count == max || first == 0);
            break;
        }
        CHECK(out[n].seq == first && out[n].expires_ms == m.entries[first].expires_ms);
        model_end(first, ENTRY_EXPIRED);
    }
}

static void step_sweep(void) {
    struct entry_change out[LIVE_MOST];
    bool all = one_in(2);
    size_t max = one_in(4) ? (size_t)between(0, 3) : LIVE_MOST;
    size_t budget = all ? SIZE_MAX : (size_t)between(0, 3000);
    if (!gate_is_open() && now_ms > m.grace_from_ms) m.grace_from_ms = now_ms;
    size_t silent = 0;
    for (size_t i = 0; i < m.live_count; i++) silent += model_silent(live_entry(i));
    size_t count = queue_sweep(q, now_ms, budget, out, max);
    CHECK(count <= max && count <= budget && count <= silent);
    if (all) CHECK(count == (silent < max ? silent : max));
    for (size_t i = 0; i < count; i++) {
        CHECK(is_live(out[i].seq) && model_silent(&m.entries[out[i].seq]));
        CHECK(out[i].waited_ms == now_ms - m.entries[out[i].seq].joined_ms);
        model_end(out[i].seq, ENTRY_EXPIRED);
    }
}

static void step_end(void) {
    uint64_t seq = some_seq();
    enum entry_status final = (enum entry_status)between(ENTRY_COMPLETED, ENTRY_EXPIRED);
    bool live = is_live(seq);
    CHECK(queue_end(q, seq, final) == live);
    if (live) model_end(seq, final);
}

static void step_seen(void) {
    for (size_t i = 0; i < m.live_count; i++) {
        if (one_in(3)) continue;
        queue_seen(q, m.live[i], now_ms);
        model_seen(m.live[i]);
    }
    uint64_t seq = some_seq();
    queue_seen(q, seq, now_ms);
    model_seen(seq);
}

static struct queue_config some_config(void) {
    static const enum event_state states[] = {EVENT_OPEN,   EVENT_OPEN,   EVENT_OPEN,
                                              EVENT_OPEN,   EVENT_PAUSED, EVENT_DRAINING,
                                              EVENT_CLOSED, EVENT_DRAFT};
    struct queue_config c = {.version = m.config.version + between(-1, 3),
                             .state = states[between(0, 7)],
                             .opens_at_ms =
                                 one_in(4) ? now_ms + between(-3000, 3000) : CLOCK_NONE_MS,
                             .rules = {.max_waiting = one_in(8) ? 0 : between(1, USERS),
                                       .max_active = between(1, 30),
                                       .entry_batch_size = between(1, 10),
                                       .entry_interval_s = one_in(2) ? 1 : between(1, 10),
                                       .active_ttl_s = between(1, 30),
                                       .grace_s = between(1, 30)}};
    return c;
}

static void step_configure(void) {
    struct queue_config c = some_config();
    queue_configure(q, &c);
    if (c.version > m.config.version) m.config = c;
}

/* The process dies and comes back: what was pending is gone, or was never admitted. */
static void step_restart(void) {
    char name[80];
    queue_free(q);
    q = queue_new(&m.config);
    for (uint64_t seq = 0; seq < m.next_seq; seq++)
        if (!is_live(seq)) m.entries[seq].status = ENTRY_NONE;
    for (size_t i = 0; i < m.live_count;) {
        uint64_t seq = m.live[i];
        struct model_entry *e = &m.entries[seq];
        if (e->pending == ENTER_PENDING) {
            model_end(seq, ENTRY_NONE);
            continue;
        }
        e->pending = SETTLED;
        e->seen_ms = 0;
        queue_restore(q, seq, user_name(e->user, name), e->lane, e->status, e->joined_ms,
                      e->expires_ms);
        i++;
    }
    queue_skip_to(q, m.next_seq);
    queue_grace_anew(q, now_ms);
    m.grace_from_ms = now_ms;
    m.interval_ms = m.interval_used = 0;
    m.rate = 0;
    m.rate_from_ms = m.rate_admitted = 0;
}

static void step_skip(void) {
    uint64_t to = m.next_seq + (uint64_t)between(0, 3000) - 10;
    if (m.next_seq < 100 || to > SEQ_MOST - 2 * STEPS) return;
    queue_skip_to(q, to);
    if (to > m.next_seq) m.next_seq = to;
}

static void step_clock(void) {
    if (one_in(50)) {
        now_ms += between(5000, 60000);
    } else if (one_in(20)) {
        now_ms -= between(0, 1500); /* clocks are set, too */
    } else {
        now_ms += between(0, 700);
    }
}

static void one_step(void) {
    int64_t dice = between(0, 999);
    if (dice < 350)
        step_enter();
    else if (dice < 520)
        step_settle();
    else if (dice < 640)
        step_admit();
    else if (dice < 690)
        step_purge();
    else if (dice < 710)
        step_sweep();
    else if (dice < 780)
        step_end();
    else if (dice < 820)
        step_seen();
    else if (dice < 830)
        step_configure();
    else if (dice < 833)
        step_skip();
    else if (dice < 834)
        step_restart();
    else if (dice < 836) {
        queue_grace_anew(q, now_ms);
        if (now_ms > m.grace_from_ms) m.grace_from_ms = now_ms;
    } else
        step_clock();
}

static void run_history(uint64_t the_seed, int steps) {
    seed = the_seed;
    random_state = seed;
    now_ms = START_MS + between(0, 10000);
    m = (struct model){.next_seq = 1};
    m.config = some_config();
    m.config.version = 1;
    m.config.state = EVENT_OPEN;
    q = queue_new(&m.config);
    for (step = 0; step < steps; step++) {
        int64_t waiting = (int64_t)model_waiting();
        int64_t active = (int64_t)model_active();
        one_step();
        struct queue_counts c = queue_counts(q);
        CHECK(c.waiting == model_waiting() && c.active == model_active());
        /* Over a cap only by what was over it before: a cap that was lowered. */
        const struct queue_rules *r = &m.config.rules;
        CHECK((int64_t)c.waiting <= (waiting > r->max_waiting ? waiting : r->max_waiting));
        CHECK((int64_t)c.active <= (active > r->max_active ? active : r->max_active));
        CHECK(queue_rate(q) == m.rate);
        CHECK(queue_state(q, now_ms) == model_state());
        for (int i = 0; i < 3; i++) check_look(some_seq());
        if (step % 50 == 0) check_everybody();
    }
    queue_free(q);
}

static int steps_wanted = STEPS;
static uint64_t seed_wanted;

static void random_histories_give_what_a_simple_model_gives(void **state) {
    (void)state;
    if (seed_wanted != 0) {
        run_history(seed_wanted, steps_wanted);
        return;
    }
    for (uint64_t s = 1; s <= 8; s++) run_history(s, STEPS);
    run_history((uint64_t)clock_wall_ms(), STEPS);
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : getenv("QUEUE_MODEL_SEED");
    if (wanted != NULL) seed_wanted = strtoull(wanted, NULL, 10);
    if (argc > 2) steps_wanted = (int)strtol(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
