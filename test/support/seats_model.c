#include "seats_model.h"

#include <assert.h>
#include <string.h>

struct model_reservation *seats_model_find(struct seats_model *m, uint64_t id) {
    for (size_t i = 0; i < m->live_count; i++)
        if (m->live[i].id == id) return &m->live[i];
    return NULL;
}

struct model_reservation *seats_model_holder(struct seats_model *m, int section, uint32_t seat) {
    for (size_t i = 0; i < m->live_count; i++)
        for (uint32_t s = 0; m->live[i].section == section && s < m->live[i].count; s++)
            if (m->live[i].seats[s] == seat) return &m->live[i];
    return NULL;
}

/* Seats of a section, or of a user; -1: of all. */
uint32_t seats_model_taken(struct seats_model *m, int section, int user, bool confirmed) {
    uint32_t count = 0;
    for (size_t i = 0; i < m->live_count; i++) {
        const struct model_reservation *r = &m->live[i];
        if (section >= 0 && r->section != section) continue;
        if (user >= 0 && r->user != user) continue;
        if (r->confirmed == confirmed) count += r->count;
    }
    return count;
}

/* ---- the rule of core/seat_map.h, step by step ---- */

static uint32_t run_at(struct seats_model *m, int section, const bool *taken, uint32_t first) {
    uint32_t length = 0;
    if (first > 1 && !taken[first - 1]) return 0; /* no run begins here */
    while (first + length <= m->sections[section].capacity && !taken[first + length]) length++;
    return length;
}

static void choose(struct seats_model *m, int section, struct model_reservation *r) {
    bool taken[MODEL_SEATS + 2] = {false};
    for (uint32_t s = 1; s <= m->sections[section].capacity; s++)
        taken[s] = seats_model_holder(m, section, s) != NULL;
    for (uint32_t left = r->count, got = 0; left > 0;) {
        uint32_t best = 0;
        uint32_t best_length = 0;
        int best_rank = 4;
        for (uint32_t first = 1; first <= m->sections[section].capacity; first++) {
            uint32_t length = run_at(m, section, taken, first);
            if (length == 0) continue;
            int rank = length < left ? 3 : length == left + 1 ? 2 : 1;
            bool better = rank != best_rank ? rank < best_rank
                          : rank == 3       ? length > best_length
                                            : length < best_length;
            if (!better) continue;
            best = first;
            best_length = length;
            best_rank = rank;
        }
        assert(best_length > 0);
        for (uint32_t i = 0; i < best_length && left > 0; i++, left--) {
            taken[best + i] = true;
            r->seats[got++] = best + i;
        }
    }
    for (uint32_t i = 1; i < r->count; i++) /* in ascending order */
        for (uint32_t k = i; k > 0 && r->seats[k] < r->seats[k - 1]; k--) {
            uint32_t swap = r->seats[k];
            r->seats[k] = r->seats[k - 1];
            r->seats[k - 1] = swap;
        }
}

/* ---- claiming ---- */

static enum claim_outcome check_named(struct seats_model *m, struct model_reservation *r,
                                      const uint32_t *named, bool may_be_taken) {
    static const enum claim_outcome worst_first[] = {CLAIM_NO_SUCH_SEAT, CLAIM_SEATS_TWICE,
                                                     CLAIM_TAKEN};
    for (int w = 0; w < (may_be_taken ? 2 : 3); w++) {
        uint32_t refused = 0;
        for (uint32_t i = 0; i < r->count; i++) {
            bool exists = named[i] >= 1 && named[i] <= m->sections[r->section].capacity;
            bool twice = false;
            for (uint32_t k = 0; k < i; k++) twice = twice || named[k] == named[i];
            enum claim_outcome here = !exists ? CLAIM_NO_SUCH_SEAT
                                      : twice ? CLAIM_SEATS_TWICE
                                      : seats_model_holder(m, r->section, named[i]) != NULL
                                          ? CLAIM_TAKEN
                                          : CLAIM_DONE;
            if (here == worst_first[w]) r->seats[refused++] = named[i];
        }
        if (refused == 0) continue;
        r->count = refused;
        return worst_first[w];
    }
    memcpy(r->seats, named, r->count * sizeof *named);
    return CLAIM_DONE;
}

static enum claim_outcome refusal(struct seats_model *m, const struct model_reservation *r) {
    const struct model_section *s = &m->sections[r->section];
    if (r->entry_seq == 0 || r->entry_seq != m->entries[r->user]) return CLAIM_NOT_ACTIVE;
    if (m->is_closed) return CLAIM_EVENT_CLOSED;
    if (!s->exists) return CLAIM_NO_SECTION;
    if (s->status == SECTION_CLOSED) return CLAIM_SECTION_CLOSED;
    if (s->status == SECTION_MAINTENANCE) return CLAIM_SECTION_MAINTENANCE;
    int64_t has =
        seats_model_taken(m, -1, r->user, false) + seats_model_taken(m, -1, r->user, true);
    if (has + r->count > m->limit) return CLAIM_LIMIT;
    return s->mode == SECTION_MODE_SEAT ? CLAIM_LEDGER_DECIDES : CLAIM_DONE;
}

enum claim_outcome seats_model_claim(struct seats_model *m, struct model_reservation *r,
                                     const uint32_t *named, struct model_reservation **there) {
    for (size_t i = 0; r->key.key != 0 && i < m->live_count; i++) {
        *there = &m->live[i];
        if ((*there)->user != r->user || (*there)->key.key != r->key.key) continue;
        bool same = (*there)->key.request == r->key.request && (*there)->count == r->count;
        return same ? CLAIM_THERE : CLAIM_KEY_REUSED;
    }
    enum claim_outcome outcome = refusal(m, r);
    bool only_suggests = outcome == CLAIM_LEDGER_DECIDES;
    if (outcome != CLAIM_DONE && !only_suggests) return outcome;
    outcome = CLAIM_DONE;
    uint32_t free = m->sections[r->section].capacity - seats_model_taken(m, r->section, -1, false) -
                    seats_model_taken(m, r->section, -1, true);
    if (named != NULL)
        outcome = check_named(m, r, named, only_suggests);
    else if (free < r->count)
        outcome = free == 0 ? CLAIM_SOLD_OUT : CLAIM_NOT_ENOUGH;
    else
        choose(m, r->section, r);
    if (outcome != CLAIM_DONE) return outcome;
    if (only_suggests) return CLAIM_LEDGER_DECIDES;
    r->pending = true;
    r->expires_ms = m->now_ms + m->hold_ms;
    seats_model_add(m, r);
    return CLAIM_DONE;
}

/* ---- changes ---- */

void seats_model_catch_up(struct seats_model *m) {
    for (int i = 0; i < MODEL_SECTIONS; i++) {
        struct model_section *s = &m->sections[i];
        bool can = true;
        for (uint32_t seat = s->wanted + 1; seat <= s->capacity; seat++)
            can = can && seats_model_holder(m, i, seat) == NULL;
        if (can) s->capacity = s->wanted;
    }
}

void seats_model_add(struct seats_model *m, const struct model_reservation *r) {
    assert(m->live_count < MODEL_LIVE);
    m->live[m->live_count++] = *r;
}

void seats_model_remove(struct seats_model *m, struct model_reservation *r) {
    size_t at = (size_t)(r - m->live);
    memmove(r, r + 1, (m->live_count - at - 1) * sizeof *r);
    m->live_count--;
    seats_model_catch_up(m);
}

void seats_model_lose(struct seats_model *m, struct model_reservation *r, uint32_t seat) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->seats[i] != seat) r->seats[left++] = r->seats[i];
    assert(left + 1 == r->count);
    r->count = left;
    if (left == 0) seats_model_remove(m, r);
}

struct model_reservation *seats_model_due(struct seats_model *m) {
    struct model_reservation *first = NULL;
    for (size_t i = 0; i < m->live_count; i++) {
        struct model_reservation *r = &m->live[i];
        if (r->pending || r->confirmed || r->due_ms > m->now_ms) continue;
        if (first == NULL || r->due_ms < first->due_ms) first = r;
    }
    return first;
}
