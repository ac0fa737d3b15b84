#include "queue_model.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"

str model_user_name(int user, char out[80]) {
    int len = snprintf(out, 80, "%s%d", user % 3 == 0 ? "customer-" : "", user);
    while (len < user % 64) out[len++] = 'x';
    return (str){out, (size_t)len};
}

/* ---- state ---- */

struct model_entry *model_live(struct model *m, size_t i) {
    return &m->entries[m->live[i]];
}

uint64_t model_waiting(struct model *m) {
    uint64_t count = 0;
    for (size_t i = 0; i < m->live_count; i++) count += model_live(m, i)->status == ENTRY_WAITING;
    return count;
}

uint64_t model_active(struct model *m) {
    uint64_t count = 0;
    for (size_t i = 0; i < m->live_count; i++) {
        const struct model_entry *e = model_live(m, i);
        count += e->status == ENTRY_ACTIVE || e->pending == ADMIT_PENDING;
    }
    return count;
}

uint64_t model_find(struct model *m, int user) {
    for (size_t i = 0; i < m->live_count; i++)
        if (model_live(m, i)->user == user) return m->live[i];
    return 0;
}

bool model_is_live(const struct model *m, uint64_t seq) {
    for (size_t i = 0; i < m->live_count; i++)
        if (m->live[i] == seq) return true;
    return false;
}

enum event_state model_state(const struct model *m) {
    const struct event_hours *h = &m->config.hours;
    bool has_opening = h->opens_at_ms != CLOCK_NONE_MS;
    if (h->state == EVENT_CLOSED) return EVENT_CLOSED;
    if (has_opening && m->now_ms < h->opens_at_ms) return EVENT_DRAFT;
    if (!has_opening && h->state == EVENT_DRAFT) return EVENT_DRAFT;
    if (model_is_over(m)) return EVENT_CLOSED;
    return h->state == EVENT_DRAFT ? EVENT_OPEN : h->state;
}

bool model_is_over(const struct model *m) {
    int64_t closes_at_ms = m->config.hours.closes_at_ms;
    return closes_at_ms != CLOCK_NONE_MS && closes_at_ms <= m->now_ms;
}

bool model_gate_is_open(const struct model *m) {
    return model_state(m) == EVENT_OPEN || model_state(m) == EVENT_DRAINING;
}

int64_t model_batch_left(struct model *m) {
    int64_t length_ms = m->config.rules.entry_interval_s * 1000;
    int64_t began_ms = m->now_ms / length_ms * length_ms;
    if (began_ms > m->interval_ms || began_ms + length_ms < m->interval_ms) {
        m->interval_ms = began_ms;
        m->interval_used = 0;
    }
    return m->config.rules.entry_batch_size - m->interval_used;
}

uint64_t model_position(struct model *m, uint64_t seq) {
    const struct model_entry *e = &m->entries[seq];
    uint64_t ahead = 0;
    for (size_t i = 0; i < m->live_count; i++) {
        const struct model_entry *other = model_live(m, i);
        ahead += other->status == ENTRY_WAITING &&
                 (other->lane < e->lane || (other->lane == e->lane && m->live[i] < seq));
    }
    return ahead + 1;
}

static int64_t rounded_up(double x) {
    return (int64_t)x + ((double)(int64_t)x < x);
}

int64_t model_estimate(const struct model *m, uint64_t position) {
    const struct queue_rules *r = &m->config.rules;
    double intervals = (double)position / (double)r->entry_batch_size;
    int64_t by_rule_s = rounded_up(intervals) * r->entry_interval_s;
    double exact_s = m->totals.rate > 0 ? (double)position / m->totals.rate : 0;
    int64_t by_rate_s = exact_s > 30 * 86400 ? 30 * 86400 : rounded_up(exact_s);
    return by_rule_s > by_rate_s ? by_rule_s : by_rate_s;
}

struct place model_place(struct model *m, uint64_t seq) {
    const struct model_entry *e = &m->entries[seq];
    struct place p = {.status = e->status,
                      .seq = seq,
                      .lane = e->lane,
                      .waiting = model_waiting(m),
                      .joined_ms = e->joined_ms,
                      .pending = e->pending == ENTER_PENDING};
    if (e->status == ENTRY_WAITING) {
        p.position = model_position(m, seq);
        p.estimate_s = model_estimate(m, p.position);
    }
    if (e->status == ENTRY_ACTIVE && e->expires_ms > m->now_ms) p.expires_ms = e->expires_ms;
    if (e->status == ENTRY_ACTIVE && e->expires_ms <= m->now_ms) p.status = ENTRY_EXPIRED;
    return p;
}

bool model_is_swept(const struct model *m, const struct model_entry *e) {
    if (e->status != ENTRY_WAITING || e->pending != SETTLED) return false;
    if (model_state(m) == EVENT_CLOSED) return model_is_over(m);
    int64_t since_ms = e->seen_ms > m->grace_from_ms ? e->seen_ms : m->grace_from_ms;
    return model_gate_is_open(m) && m->now_ms - since_ms > m->config.rules.grace_s * 1000;
}

/* ---- what ends ---- */

static void give_back(struct model *m, int64_t interval_ms) {
    if (interval_ms == m->interval_ms && m->interval_used > 0) m->interval_used--;
}

static void end(struct model *m, uint64_t seq, enum entry_status final) {
    const struct model_entry *e = &m->entries[seq];
    int64_t length_ms = m->config.rules.entry_interval_s * 1000;
    if (e->pending == ADMIT_PENDING) give_back(m, m->admitting_ms);
    if (e->pending == ENTER_PENDING && e->status == ENTRY_ACTIVE && final == ENTRY_NONE)
        give_back(m, e->joined_ms / length_ms * length_ms);
    size_t kept = 0;
    for (size_t i = 0; i < m->live_count; i++)
        if (m->live[i] != seq) m->live[kept++] = m->live[i];
    assert(kept == m->live_count - 1);
    m->live_count = kept;
    m->entries[seq].status = final;
    m->entries[seq].pending = SETTLED;
    m->totals.completed += final == ENTRY_COMPLETED;
    m->totals.left += final == ENTRY_LEFT;
    m->totals.expired += final == ENTRY_EXPIRED;
}

bool model_end(struct model *m, uint64_t seq, enum entry_status final) {
    bool is_known = seq < m->next_seq;
    if (is_known && m->entries[seq].status == ENTRY_EXPIRED) m->entries[seq].status = final;
    if (!model_is_live(m, seq)) return false;
    const struct model_entry *e = &m->entries[seq];
    if (final == ENTRY_COMPLETED) {
        /* Only ACTIVE entries: pending ones are in the ledger by then. */
        if (e->status == ENTRY_ACTIVE) model_settle_enter(m, seq, true);
        model_settle_admit(m, seq, true);
        if (e->status != ENTRY_ACTIVE) return false;
    }
    end(m, seq, final);
    return true;
}

uint64_t model_overdue(struct model *m) {
    uint64_t first = 0;
    for (size_t i = 0; i < m->live_count; i++) {
        const struct model_entry *e = model_live(m, i);
        if (e->status != ENTRY_ACTIVE || e->expires_ms > m->now_ms) continue;
        if (first == 0 || e->expires_ms < m->entries[first].expires_ms) first = m->live[i];
    }
    return first;
}

void model_seen(struct model *m, uint64_t seq) {
    int64_t seen_ms =
        (m->now_ms + 999) / 1000 * 1000; /* a sign of incarnation is good for its second */
    if (model_is_live(m, seq) && seen_ms > m->entries[seq].seen_ms)
        m->entries[seq].seen_ms = seen_ms;
}

void model_grace_anew(struct model *m) {
    if (m->now_ms > m->grace_from_ms) m->grace_from_ms = m->now_ms;
}

void model_sweep_begins(struct model *m) {
    bool slept = m->now_ms - m->swept_ms > 2000;
    if (!model_gate_is_open(m) || slept || m->grace_is_shorter) model_grace_anew(m);
    if (slept) m->rate_from_ms = 0;
    m->grace_is_shorter = false;
    m->swept_ms = m->now_ms;
}

/* ---- enter ---- */

static enum enter_outcome outcome_of(struct model *m, bool at_once) {
    enum event_state state = model_state(m);
    if (state == EVENT_DRAFT) return ENTER_NOT_OPEN;
    if (state == EVENT_DRAINING || state == EVENT_CLOSED) return ENTER_CLOSED;
    bool full = (int64_t)model_waiting(m) >= m->config.rules.max_waiting;
    return !at_once && full ? ENTER_FULL : ENTER_TAKEN;
}

static void add(struct model *m, int user, unsigned lane, bool at_once) {
    uint64_t seq = m->next_seq++;
    assert(m->live_count < MODEL_LIVE_MOST && seq < MODEL_SEQ_MOST);
    m->live[m->live_count++] = seq;
    m->entries[seq] = (struct model_entry){.status = at_once ? ENTRY_ACTIVE : ENTRY_WAITING,
                                           .pending = ENTER_PENDING,
                                           .user = user,
                                           .lane = lane,
                                           .joined_ms = m->now_ms};
    if (at_once) {
        m->entries[seq].expires_ms = m->now_ms + m->config.rules.active_ttl_s * 1000;
        m->interval_used++;
    }
    m->entries[seq].promised_s = model_place(m, seq).estimate_s;
    model_seen(m, seq);
}

enum enter_outcome model_enter(struct model *m, int user, unsigned lane, uint64_t *seq) {
    *seq = model_find(m, user);
    if (*seq != 0 && model_place(m, *seq).status != ENTRY_EXPIRED) return ENTER_THERE;
    if (*seq != 0) end(m, *seq, ENTRY_EXPIRED);
    bool at_once = model_state(m) == EVENT_OPEN && model_waiting(m) == 0 &&
                   (int64_t)model_active(m) < m->config.rules.max_active && model_batch_left(m) > 0;
    enum enter_outcome outcome = outcome_of(m, at_once);
    m->totals.rejected += outcome == ENTER_FULL;
    *seq = 0;
    if (outcome != ENTER_TAKEN) return outcome;
    *seq = m->next_seq;
    add(m, user, lane, at_once);
    return ENTER_TAKEN;
}

void model_settle_enter(struct model *m, uint64_t seq, bool kept) {
    if (!model_is_live(m, seq) || m->entries[seq].pending != ENTER_PENDING) return;
    if (!kept) {
        end(m, seq, ENTRY_NONE);
        return;
    }
    m->entries[seq].pending = SETTLED;
    m->totals.entered++;
    m->totals.admitted += m->entries[seq].status == ENTRY_ACTIVE;
}

/* ---- admission ---- */

void model_settle_admit(struct model *m, uint64_t seq, bool kept) {
    if (!model_is_live(m, seq) || m->entries[seq].pending != ADMIT_PENDING) return;
    m->entries[seq].pending = SETTLED;
    m->entries[seq].promised_s = -1;
    if (kept)
        m->entries[seq].status = ENTRY_ACTIVE;
    else
        give_back(m, m->admitting_ms);
    m->totals.admitted += kept;
}

void model_rate_update(struct model *m) {
    int64_t passed_ms = m->now_ms - m->rate_from_ms;
    if (model_waiting(m) > 0 && model_gate_is_open(m) && m->rate_from_ms != 0 && passed_ms >= 0) {
        if (passed_ms < m->config.rules.entry_interval_s * 1000) return;
        double observed = (double)m->rate_admitted * 1000 / (double)passed_ms;
        double before = m->totals.rate;
        m->totals.rate = before == 0 ? observed : before + 0.2 * (observed - before);
    }
    m->rate_from_ms = m->now_ms;
    m->rate_admitted = 0;
}

uint64_t model_next(struct model *m) {
    for (unsigned lane = 0; lane < LANES; lane++)
        for (size_t i = 0; i < m->live_count; i++) {
            const struct model_entry *e = model_live(m, i);
            if (e->lane != lane || e->status != ENTRY_WAITING) continue;
            if (e->pending == SETTLED) return m->live[i];
            if (e->pending == ENTER_PENDING) break;
        }
    return 0;
}

bool model_may_begin(struct model *m) {
    for (size_t i = 0; i < m->live_count; i++)
        if (model_live(m, i)->pending == ADMIT_PENDING) return false;
    return true;
}

bool model_may_admit(struct model *m) {
    /* An interval that has been seen has begun. */
    return model_gate_is_open(m) && model_batch_left(m) > 0 &&
           (int64_t)model_active(m) < m->config.rules.max_active;
}

struct entry_change model_admit(struct model *m, uint64_t seq) {
    struct model_entry *e = &m->entries[seq];
    int64_t waited_ms = m->now_ms > e->joined_ms ? m->now_ms - e->joined_ms : 0;
    e->pending = ADMIT_PENDING;
    e->expires_ms = m->now_ms + m->config.rules.active_ttl_s * 1000;
    m->interval_used++;
    m->admitting_ms = m->interval_ms;
    m->rate_admitted++;
    m->totals.waited_ms += (uint64_t)waited_ms;
    if ((uint64_t)waited_ms > m->totals.waited_ms_max)
        m->totals.waited_ms_max = (uint64_t)waited_ms;
    return (struct entry_change){.seq = seq,
                                 .expires_ms = e->expires_ms,
                                 .waited_ms = waited_ms,
                                 .promised_s = e->promised_s};
}

/* ---- the rest ---- */

void model_configure(struct model *m, const struct queue_config *c) {
    if (c->version <= m->config.version) return;
    if (c->rules.grace_s < m->config.rules.grace_s) m->grace_is_shorter = true;
    m->config = *c;
}

void model_restart(struct model *m) {
    for (uint64_t seq = 0; seq < m->next_seq; seq++)
        if (!model_is_live(m, seq)) m->entries[seq].status = ENTRY_NONE;
    for (size_t i = 0; i < m->live_count;) {
        struct model_entry *e = model_live(m, i);
        if (e->pending == ENTER_PENDING) {
            end(m, m->live[i], ENTRY_NONE);
            continue;
        }
        e->pending = SETTLED;
        e->promised_s = -1;
        e->seen_ms = 0;
        i++;
    }
    m->grace_from_ms = m->now_ms;
    m->grace_is_shorter = false;
    m->swept_ms = 0;
    m->interval_ms = m->interval_used = 0;
    m->totals = (struct queue_counts){0};
    m->rate_from_ms = m->rate_admitted = 0;
}
