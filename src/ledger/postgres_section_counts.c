/*
 * The counts of sections. All holds of an event write to the rows of its sections, so these are
 * locked last and for no longer than a commit takes: each transaction notes what it did to seats,
 * and writes the sums in the end, in order of id, so that no two wait for each other.
 *
 * Whether a hold sold the last seat follows from the counts as they were before, by going through
 * the changes again in their order.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ledger/postgres_internal.h"

struct pg_section_counts_change {
    int64_t section_key;
    int64_t held;
    int64_t confirmed;
    struct ledger_hold *hold;
};

/* One section, for all changes. */
struct pg_section_count {
    int64_t key;
    int64_t held;
    int64_t confirmed;
    int64_t highest;   /* seat that was taken */
    int64_t by_ledger; /* holds that need mode `seat`, and those that need another one */
    int64_t by_hot;
    int64_t capacity;
    int64_t taken; /* before the transaction, then change by change */
    bool removed;
};

struct counts {
    struct pg_section_count *all; /* in order of key */
    size_t count;
};

void pg_section_counts_add(struct pg_section_counts *t, int64_t section_key, int64_t held,
                           int64_t confirmed, struct ledger_hold *hold) {
    t->changes = mem_make_room(t->changes, t->count, &t->cap, sizeof *t->changes);
    t->changes[t->count++] = (struct pg_section_counts_change){section_key, held, confirmed, hold};
}

void pg_section_counts_deinit(struct pg_section_counts *t) {
    mem_free(t->changes);
    *t = (struct pg_section_counts){0};
}

static int pg_section_counts_by_key(const void *a, const void *b) {
    int64_t x = ((const struct pg_section_count *)a)->key;
    int64_t y = ((const struct pg_section_count *)b)->key;
    return (x > y) - (x < y);
}

/* One for each section, without the numbers. */
static struct counts pg_section_counts_of(const struct pg_section_counts *t) {
    struct counts c = {.all = mem_new(t->count * sizeof *c.all)};
    for (size_t i = 0; i < t->count; i++) c.all[i].key = t->changes[i].section_key;
    qsort(c.all, t->count, sizeof *c.all, pg_section_counts_by_key);
    for (size_t i = 0; i < t->count; i++)
        if (c.count == 0 || c.all[c.count - 1].key != c.all[i].key) c.all[c.count++] = c.all[i];
    return c;
}

static struct pg_section_count *count_find(const struct counts *c, int64_t key) {
    struct pg_section_count wanted = {.key = key};
    return bsearch(&wanted, c->all, c->count, sizeof *c->all, pg_section_counts_by_key);
}

static void add_up(const struct pg_section_counts *t, struct counts *c) {
    for (size_t i = 0; i < t->count; i++) {
        const struct pg_section_counts_change *change = &t->changes[i];
        struct pg_section_count *s = count_find(c, change->section_key);
        s->held += change->held;
        s->confirmed += change->confirmed;
        if (change->hold == NULL) continue;
        const struct reservation *r = change->hold->wanted;
        if (r->seats[r->seat_count - 1] > s->highest) s->highest = r->seats[r->seat_count - 1];
        s->by_ledger += !strategy_suits(r->strategy, false);
        s->by_hot += !strategy_suits(r->strategy, true);
    }
}

static bool write_counts(struct pg *db, struct counts *c) {
    struct pg_array keys = {0}, held = {0}, confirmed = {0}, highest = {0};
    struct pg_array by_ledger = {0}, by_hot = {0};
    struct pg_rows rows;
    for (size_t i = 0; i < c->count; i++) {
        pg_array_i64(&keys, c->all[i].key);
        pg_array_i64(&held, c->all[i].held);
        pg_array_i64(&confirmed, c->all[i].confirmed);
        pg_array_i64(&highest, c->all[i].highest);
        pg_array_i64(&by_ledger, c->all[i].by_ledger);
        pg_array_i64(&by_hot, c->all[i].by_hot);
    }
    bool ok = pg_query(db, &rows,
                       "SELECT capacity, taken_before, is_removed"
                       " FROM ledger_tally_1($1, $2, $3, $4, $5, $6)",
                       pg_cell_array(&keys), pg_cell_array(&held), pg_cell_array(&confirmed),
                       pg_cell_array(&highest), pg_cell_array(&by_ledger), pg_cell_array(&by_hot));
    pg_array_deinit(&keys);
    pg_array_deinit(&held);
    pg_array_deinit(&confirmed);
    pg_array_deinit(&highest);
    pg_array_deinit(&by_ledger);
    pg_array_deinit(&by_hot);
    if (ok && rows.count != (int)c->count) ok = pg_unexpected(db);
    for (size_t i = 0; ok && i < c->count && pg_next(&rows); i++) {
        c->all[i].capacity = pg_i64(&rows, 0);
        c->all[i].taken = pg_i64(&rows, 1);
        c->all[i].removed = pg_bool(&rows, 2);
    }
    pg_rows_clear(&rows);
    return ok;
}

/* The sections that this transaction changed count here as they were at that moment, the others as
 * they are. A transaction that sells out another section of the event at the same time waits here,
 * and then sees this one. */
static bool pg_write_sold_out(struct pg *db, const struct counts *c, struct ledger_hold *hold) {
    const struct reservation *r = hold->wanted;
    struct pg_array free = {0};
    struct pg_array touched = {0};
    int64_t changed = 0;
    for (size_t i = 0; i < c->count; i++) {
        pg_array_i64(&touched, c->all[i].key);
        if (!c->all[i].removed && c->all[i].taken < c->all[i].capacity)
            pg_array_i64(&free, c->all[i].key);
    }
    bool ok = pg_run(db, NULL, "SELECT pg_advisory_xact_lock($1::int, ($2 % 2147483647)::int)",
                     pg_cell_i64(PG_LOCK_SOLD_OUT), pg_cell_i64(r->event_key)) &&
              pg_run(db, &changed,
                     "INSERT INTO facts(kind, event_id, seat_count, at, relayed_at)"
                     " SELECT 'SOLD_OUT', $1, 0, $2, $2 WHERE NOT EXISTS ("
                     "  SELECT FROM sections c WHERE c.event_id = $1 AND c.removed_version IS NULL"
                     "  AND (c.id = ANY($3) OR (c.id <> ALL($4) AND c.held + c.confirmed"
                     "   < c.capacity)))",
                     pg_cell_i64(r->event_key), pg_cell_i64(r->created_ms), pg_cell_array(&free),
                     pg_cell_array(&touched));
    hold->sold_out = changed > 0;
    pg_array_deinit(&free);
    pg_array_deinit(&touched);
    return ok;
}

static bool find_sold_out(struct pg *db, const struct pg_section_counts *t, struct counts *c) {
    bool ok = true;
    for (size_t i = 0; ok && i < t->count; i++) {
        const struct pg_section_counts_change *change = &t->changes[i];
        struct pg_section_count *s = count_find(c, change->section_key);
        s->taken += change->held + change->confirmed;
        if (change->hold != NULL && s->taken >= s->capacity)
            ok = pg_write_sold_out(db, c, change->hold);
    }
    return ok;
}

bool pg_section_counts_write(struct pg *db, struct pg_section_counts *t) {
    if (t->count == 0) return true;
    struct counts c = pg_section_counts_of(t);
    add_up(t, &c);
    bool ok = write_counts(db, &c) && find_sold_out(db, t, &c);
    mem_free(c.all);
    return ok;
}
