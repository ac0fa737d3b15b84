/*
 * The queue against a model of it (queue_model.h). Seeded random histories; every answer of every
 * function is compared, and the promises of DESIGN.md §2 are asserted after every step. A failure
 * names its seed and step; `queue_model SEED [STEPS]`, or QUEUE_MODEL_SEED in the environment,
 * replays that one history.
 */
#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "queue_model.h"
#define REPLAY "QUEUE_MODEL_SEED"
#include "random_history.h"

/* Ended entries are known as long as one of so many neighbours lives. */
#define NEIGHBOURS 4096
#define STEPS 25000
#define START_MS INT64_C(1700000000000)

static struct model m;
static struct queue *q;

static bool is_live(uint64_t seq) {
    return model_is_live(&m, seq);
}

static bool is_known(uint64_t seq) {
    if (seq == 0 || seq >= m.next_seq || m.entries[seq].status == ENTRY_NONE) return false;
    if (seq / NEIGHBOURS == m.next_seq / NEIGHBOURS) return true;
    for (size_t i = 0; i < m.live_count; i++)
        if (m.live[i] / NEIGHBOURS == seq / NEIGHBOURS) return true;
    return false;
}

/* ---- comparing ---- */

static void check_place(const struct place *p, uint64_t seq) {
    struct place e = model_place(&m, seq);
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
    bool known = queue_look(q, seq, m.now_ms, &p);
    CHECK(known == is_known(seq));
    if (known) check_place(&p, seq);
    bool waits = is_live(seq) && m.entries[seq].status == ENTRY_WAITING;
    CHECK(queue_position(q, seq) == (waits ? model_position(&m, seq) : 0));
    uint64_t position = (uint64_t)between(1, 10000);
    CHECK(queue_estimate_s(q, position) == model_estimate(&m, position));
    str user = known ? model_user_name(m.entries[seq].user, name) : (str){NULL, 0};
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
    for (int user = 0; user < MODEL_USERS; user++)
        CHECK(queue_find(q, model_user_name(user, name)) == model_find(&m, user));
}

/* ---- the steps ---- */

static void step_enter(void) {
    char name[80];
    int user = (int)between(0, MODEL_USERS - 1);
    unsigned lane = one_in(3) ? (unsigned)between(0, LANES - 1) : LANE_DEFAULT;
    uint64_t seq;
    enum enter_outcome expected = model_enter(&m, user, lane, &seq);
    struct place p;
    CHECK(queue_enter(q, model_user_name(user, name), lane, m.now_ms, &p) == expected);
    if (seq != 0) check_place(&p, seq);
}

static void settle_enter(uint64_t seq) {
    bool kept = !one_in(6);
    queue_settle_enter(q, seq, kept);
    model_settle_enter(&m, seq, kept);
}

static void settle_admit(uint64_t seq) {
    bool kept = !one_in(6);
    queue_settle_admit(q, seq, kept);
    model_settle_admit(&m, seq, kept);
}

/* The ledger answers about most of what is pending, in any order, or about one entry. */
static void step_settle(void) {
    uint64_t all[MODEL_LIVE_MOST];
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

/* Nobody who could have been admitted was overtaken in the lane. */
static void check_no_inversion(uint64_t seq) {
    for (size_t i = 0; i < m.live_count && m.live[i] < seq; i++) {
        const struct model_entry *e = model_live(&m, i);
        CHECK(e->lane != m.entries[seq].lane || e->status != ENTRY_WAITING ||
              e->pending == ADMIT_PENDING); /* in the same step */
    }
}

static void step_admit(void) {
    static struct entry_change out[ADMIT_MAX];
    size_t max = one_in(3) ? (size_t)between(0, 5) : ADMIT_MAX;
    model_rate_update(&m);
    bool begins = model_may_begin(&m);
    if (begins) model_may_admit(&m);
    size_t count = queue_admit(q, m.now_ms, out, max);
    CHECK(begins || count == 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(i < max && model_may_admit(&m));
        CHECK(out[i].seq == model_next(&m));
        struct entry_change e = model_admit(&m, out[i].seq);
        CHECK(out[i].expires_ms == e.expires_ms && out[i].waited_ms == e.waited_ms);
        CHECK(out[i].promised_s == e.promised_s);
        check_no_inversion(e.seq);
    }
    CHECK(!begins || count == max || !model_may_admit(&m) || model_next(&m) == 0);
}

static void step_purge(void) {
    struct entry_change out[MODEL_LIVE_MOST];
    size_t max = one_in(4) ? (size_t)between(0, 3) : MODEL_LIVE_MOST;
    size_t count = queue_purge(q, m.now_ms, out, max);
    for (size_t i = 0; i < count; i++) {
        uint64_t first = model_overdue(&m);
        CHECK(out[i].seq == first && out[i].expires_ms == m.entries[first].expires_ms);
        model_end(&m, first, ENTRY_EXPIRED);
    }
    CHECK(count == max || model_overdue(&m) == 0);
}

static void step_sweep(void) {
    struct entry_change out[MODEL_LIVE_MOST];
    bool all = one_in(2);
    size_t max = one_in(4) ? (size_t)between(0, 3) : MODEL_LIVE_MOST;
    size_t budget = all ? SIZE_MAX : (size_t)between(0, 3000);
    model_sweep_begins(&m);
    size_t silent = 0;
    for (size_t i = 0; i < m.live_count; i++) silent += model_is_silent(&m, model_live(&m, i));
    size_t count = queue_sweep(q, m.now_ms, budget, out, max);
    CHECK(count <= max && count <= budget && count <= silent);
    if (all) CHECK(count == (silent < max ? silent : max));
    for (size_t i = 0; i < count; i++) {
        CHECK(is_live(out[i].seq) && model_is_silent(&m, &m.entries[out[i].seq]));
        CHECK(out[i].waited_ms == m.now_ms - m.entries[out[i].seq].joined_ms);
        model_end(&m, out[i].seq, ENTRY_EXPIRED);
    }
}

static void step_end(void) {
    uint64_t seq = some_seq();
    enum entry_status final = (enum entry_status)between(ENTRY_COMPLETED, ENTRY_EXPIRED);
    CHECK(queue_end(q, seq, final) == model_end(&m, seq, final));
}

static void step_seen(void) {
    for (size_t i = 0; i < m.live_count; i++) {
        if (one_in(3)) continue;
        queue_seen(q, m.live[i], m.now_ms);
        model_seen(&m, m.live[i]);
    }
    uint64_t seq = some_seq();
    queue_seen(q, seq, m.now_ms);
    model_seen(&m, seq);
}

static struct queue_config some_config(void) {
    static const enum event_state states[] = {EVENT_OPEN,   EVENT_OPEN,   EVENT_OPEN,
                                              EVENT_OPEN,   EVENT_PAUSED, EVENT_DRAINING,
                                              EVENT_CLOSED, EVENT_DRAFT};
    struct queue_config c = {.version = m.config.version + between(-1, 3),
                             .state = states[between(0, 7)],
                             .opens_at_ms =
                                 one_in(4) ? m.now_ms + between(-3000, 3000) : CLOCK_NONE_MS,
                             .rules = {.max_waiting = one_in(8) ? 0 : between(1, MODEL_USERS),
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
    model_configure(&m, &c);
}

/* The process dies and comes back. */
static void step_restart(void) {
    char name[80];
    queue_free(q);
    q = queue_new(&m.config);
    model_restart(&m);
    for (size_t i = 0; i < m.live_count; i++) {
        const struct model_entry *e = model_live(&m, i);
        queue_restore(q, m.live[i], model_user_name(e->user, name), e->lane, e->status,
                      e->joined_ms, e->expires_ms);
    }
    queue_skip_to(q, m.next_seq);
    queue_grace_anew(q, m.now_ms);
}

static void step_skip(void) {
    uint64_t to = m.next_seq + (uint64_t)between(0, 3000) - 10;
    if (m.next_seq < 100 || to > MODEL_SEQ_MOST - 2 * STEPS) return;
    queue_skip_to(q, to);
    if (to > m.next_seq) m.next_seq = to;
}

static void step_clock(void) {
    if (one_in(50)) {
        m.now_ms += between(5000, 60000);
    } else if (one_in(20)) {
        m.now_ms -= between(0, 1500); /* clocks are set, too */
    } else {
        m.now_ms += between(0, 700);
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
        queue_grace_anew(q, m.now_ms);
        model_grace_anew(&m);
    } else
        step_clock();
}

static void check_totals(const struct queue_counts *c) {
    CHECK(c->entered == m.totals.entered && c->rejected == m.totals.rejected);
    CHECK(c->admitted == m.totals.admitted && c->completed == m.totals.completed);
    CHECK(c->left == m.totals.left && c->expired == m.totals.expired);
    CHECK(c->waited_ms == m.totals.waited_ms && c->waited_ms_max == m.totals.waited_ms_max);
    CHECK(c->rate == m.totals.rate);
}

static void run_history(uint64_t the_seed, int steps) {
    seed = the_seed;
    random_state = seed;
    m = (struct model){.next_seq = 1, .now_ms = START_MS + between(0, 10000)};
    m.config = some_config();
    m.config.version = 1;
    m.config.state = EVENT_OPEN;
    q = queue_new(&m.config);
    for (step = 0; step < steps; step++) {
        int64_t waiting = (int64_t)model_waiting(&m);
        int64_t active = (int64_t)model_active(&m);
        one_step();
        struct queue_counts c = queue_counts(q);
        CHECK(c.waiting == model_waiting(&m) && c.active == model_active(&m));
        /* Over a cap only by what was over it before: a cap that was lowered. */
        const struct queue_rules *r = &m.config.rules;
        CHECK((int64_t)c.waiting <= (waiting > r->max_waiting ? waiting : r->max_waiting));
        CHECK((int64_t)c.active <= (active > r->max_active ? active : r->max_active));
        check_totals(&c);
        CHECK(queue_state(q, m.now_ms) == model_state(&m));
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
    const char *wanted = argc > 1 ? argv[1] : getenv(REPLAY);
    if (wanted != NULL) seed_wanted = strtoull(wanted, NULL, 10);
    if (argc > 2) steps_wanted = (int)strtol(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
