/* The path of a hold, from a request for seats to "held" or "refused", in the order in which it
 * happens: first the plan of each strategy, then the start, the steps of which plans are made, the
 * next try and the end.
 *
 * A step goes on to the next one, has the whole plan tried again, or ends the hold. Whichever it
 * is, the locks are given back only after the commit: the next request that gets the lock must find
 * what this one has written. A callback (hold_on_…) stands below the call that it answers. */
#include "service/hold.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "service/hold_repair.h"
#include "service/reservation_metrics.h"

/* ---- the strategies and their plans ---- */

static hold_step hold_take_locks, hold_claim_seats, hold_choose_seats, hold_check_again;
static hold_step hold_read_versions, hold_write_seats;

#define PLAN_STEPS_MAX 4

static hold_step *const plans[][PLAN_STEPS_MAX] = {
    /* The hot store decides, in one atomic step; the ledger guards. */
    [STRATEGY_SLOT] = {hold_claim_seats},
    /* The same, but one request after the other for the whole section. */
    [STRATEGY_LOCK] = {hold_take_locks, hold_claim_seats},
    /* The ledger decides, and no request waits for another. If another request has changed a seat
     * between read and write, the seat has a new version, and the plan is tried again. */
    [STRATEGY_OPTIMISTIC] = {hold_choose_seats, hold_read_versions, hold_write_seats},
    /* The ledger decides, one write after the other. */
    [STRATEGY_PESSIMISTIC] = {hold_choose_seats, hold_write_seats},
    /* The ledger decides, but for each seat only one request at a time gets that far. A write whose
     * lock was lost has an older fence than the seat has seen, and is refused. */
    [STRATEGY_DISTRIBUTED_LOCK] = {hold_choose_seats, hold_take_locks, hold_check_again,
                                   hold_write_seats},
};

/* How often a plan is tried. */
#define TRIES_MAX 10
/* The delay before the second try; it doubles with each try, up to the maximum. */
#define DELAY_MS_FIRST 1
#define DELAY_MS_MAX 32
/* How often seats are claimed, when the ledger refuses seats that the hot store gave. */
#define CLAIMS_MAX 3

enum strategy strategy_default(enum section_mode mode) {
    static const enum strategy defaults[] = {[SECTION_MODE_SLOT] = STRATEGY_SLOT,
                                             [SECTION_MODE_LOCK] = STRATEGY_LOCK,
                                             [SECTION_MODE_ADAPTIVE] = STRATEGY_ADAPTIVE,
                                             [SECTION_MODE_SEAT] = STRATEGY_OPTIMISTIC};
    return defaults[mode];
}

bool strategy_fits(enum section_mode mode, enum strategy s) {
    if (mode != SECTION_MODE_SEAT) return s == strategy_default(mode);
    return s == STRATEGY_OPTIMISTIC || s == STRATEGY_PESSIMISTIC || s == STRATEGY_DISTRIBUTED_LOCK;
}

enum strategy strategy_now(struct reservations *r, enum section_mode mode, int64_t section_key) {
    if (mode != SECTION_MODE_ADAPTIVE) return strategy_default(mode);
    return adaptive_load_is_hot(&r->load, section_key) ? STRATEGY_SLOT : STRATEGY_LOCK;
}

typedef void hold_task(struct task *task);
static hold_task hold_on_replay_found, hold_on_claim_written, hold_on_claim_found;
static hold_task hold_on_key_found, hold_on_versions_read, hold_on_written, hold_on_given_back;
static hold_task hold_on_first_answer_found;
static hold_step hold_start_plan, hold_try, hold_next_step, hold_lock_next;
static hold_step hold_claim_again, hold_ask_key, hold_seats_are_taken, hold_wait_and_try;
static hold_step hold_on_locks_free, hold_answer;
static enum err hold_submit_claim(struct claim_op *c), hold_submit_nothing(struct claim_op *c);
static void hold_on_crowd_counted(struct look_op *l);
static void hold_on_locked(struct held_lock *k), hold_on_unlocked(struct held_lock *k);
static void hold_on_claimed(struct claim_op *c), hold_on_chosen(struct claim_op *c);
static void hold_on_claim_settled(struct claim_settle_op *s);
static void hold_on_repaired(struct hold *h, enum err result);
static void hold_on_applied(struct seat_sync_op *s);
static void hold_on_place_seen(struct place_look *look, enum err result);
static void hold_on_given_back_followed(struct follow_op *f);
static void hold_on_delay_over(struct retry_delay *d);
static void hold_finish(struct hold *h, enum err result);

/* Where a step goes, unless on to the next one. Every lock is given back, then `when_free` runs. */
static void hold_unlock(struct hold *h, hold_step *when_free);
/* Every lock is given back, then the hold is answered. OK: it is held, or replayed. */
static void hold_end(struct hold *h, enum err result);
/* Another request has taken or changed the seats: the plan is tried again after a delay. */
static hold_step hold_retry;

/* ---- before the start: the terms; was the key used? ---- */

void hold_terms_copy(struct hold_terms *t, const struct event *e, const struct section *s) {
    *t = (struct hold_terms){.event_key = e->key,
                             .section_key = s->key,
                             .mode = s->mode,
                             .price = s->price,
                             .hold_ms = e->hold_s * 1000};
    event_path(str_of(e->type), str_of(e->id), t->event);
    memcpy(t->section, s->id, sizeof t->section);
    memcpy(t->currency, e->currency, sizeof t->currency);
}

/* Asks the ledger whether the request's key was used; h->key_lookup has the answer. */
static enum err hold_look_up_key(struct hold *h, void (*run)(struct task *)) {
    h->key_lookup = (struct ledger_idempotency_get){
        .record = {.kind = LEDGER_IDEMPOTENCY_GET, .task.run = run}, .idempotency = h->idempotency};
    return ledger_ask(h->service->ledger, &h->key_lookup.record);
}

static bool hold_is_replayed(const struct hold *h) {
    return h->idempotency != NULL && h->idempotency->replayed;
}

void hold_replay(struct reservations *r, struct hold *h) {
    h->service = r;
    enum err refused = hold_look_up_key(h, hold_on_replay_found);
    if (refused != ERR_OK) h->done(h, refused);
}

static void hold_on_replay_found(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, key_lookup.record.task);
    enum err result = h->key_lookup.record.result;
    if (result == ERR_OK && h->idempotency->replayed) {
        count_reservation_attempt((int)h->strategy);
        count_reservation_outcome((int)h->strategy, RESERVATION_OUTCOME_REPLAYED);
    }
    h->done(h, result);
}

/* ---- start ---- */

static struct hot_op hold_hot_op(const struct hold *h) {
    return (struct hot_op){.event_key = h->terms.event_key, .now_ms = clock_wall_ms()};
}

void hold_seats(struct reservations *r, struct lock_client *c, struct hold *h) {
    assert(h->count >= 1 && h->count <= RESERVATION_SEATS_MAX && h->user.len > 0);
    assert(strategy_fits(h->terms.mode, h->strategy));
    h->service = r;
    h->lock_client = c;
    h->plan.chosen_strategy = h->strategy;
    h->plan.tries = 0;
    h->plan.began_ns = clock_steady_ns();
    h->choosing.spread = 0;
    h->refused = arena_new(h->arena, h->count * sizeof *h->refused);
    h->reservation = (struct reservation){.event_key = h->terms.event_key,
                                          .section_key = h->terms.section_key,
                                          .entry_seq = h->entry_seq,
                                          .strategy = h->strategy,
                                          .status = RESERVATION_HELD,
                                          .seat_count = h->count,
                                          .seats = arena_new(h->arena, h->count * sizeof(uint32_t)),
                                          .price = h->terms.price * h->count,
                                          .confirmed_ms = CLOCK_NONE_MS,
                                          .ended_ms = CLOCK_NONE_MS};
    bool fits = str_copy(h->user, h->reservation.user, sizeof h->reservation.user);
    assert(fits);
    memcpy(h->reservation.currency, h->terms.currency, sizeof h->reservation.currency);
    count_reservation_attempt((int)h->strategy);
    if (h->strategy != STRATEGY_ADAPTIVE) {
        hold_start_plan(h);
        return;
    }
    h->leaving.look.look = (struct look_op){.op = hold_hot_op(h), .done = hold_on_crowd_counted};
    queues_look(r->room->queues, &h->leaving.look.look);
}

static void hold_on_crowd_counted(struct look_op *l) {
    struct hold *h = CONTAINER_OF(l, struct hold, leaving.look.look);
    int64_t crowd = l->op.result == ERR_OK ? (int64_t)l->counts.waiting : 0;
    bool is_hot = adaptive_load_begin(&h->service->load, h->terms.section_key, crowd);
    h->plan.chosen_strategy = is_hot ? STRATEGY_SLOT : STRATEGY_LOCK;
    hold_start_plan(h);
}

/* The hot store suggests the first free seats. Of requests that choose in a section at the same
 * time all but one would be refused, so all but the first one ask for seats at random. */
static void hold_start_plan(struct hold *h) {
    assert(h->strategy != STRATEGY_QUEUE && h->plan.chosen_strategy != STRATEGY_ADAPTIVE);
    list_init(&h->choosing.link);
    if (h->terms.mode == SECTION_MODE_SEAT && h->named == NULL) {
        struct list *all = &h->lock_client->choosing;
        for (struct list *at = all->next; at != all && h->choosing.spread == 0; at = at->next) {
            const struct hold *other = CONTAINER_OF(at, struct hold, choosing.link);
            if (other->terms.section_key == h->terms.section_key)
                h->choosing.spread = lock_client_random(h->lock_client) | 1;
        }
        list_move_last(all, &h->choosing.link);
    }
    hold_try(h);
}

static void hold_try(struct hold *h) {
    h->plan.tries++;
    h->refused_count = 0;
    h->locking.fences = NULL;
    h->plan.next = plans[h->plan.chosen_strategy];
    hold_next_step(h);
}

static void hold_next_step(struct hold *h) {
    hold_step *step = *h->plan.next++;
    step(h);
}

/* ---- step: lock the section, or each seat ---- */

static bool hold_locks_section(const struct hold *h) {
    return h->plan.chosen_strategy == STRATEGY_LOCK;
}

static void hold_take_locks(struct hold *h) {
    h->locking.wanted = hold_locks_section(h) ? 1 : h->count;
    if (h->locking.held == NULL)
        h->locking.held = arena_new(h->arena, h->locking.wanted * sizeof *h->locking.held);
    h->locking.fences = arena_new(h->arena, h->count * sizeof *h->locking.fences);
    hold_lock_next(h);
}

/* All requests lock seats in ascending order, so no two wait for each other. */
static void hold_lock_next(struct hold *h) {
    if (h->locking.count == h->locking.wanted) {
        hold_next_step(h);
        return;
    }
    struct held_lock *k = &h->locking.held[h->locking.count];
    int64_t left_ms = h->service->lock_wait_ms - (clock_steady_ns() - h->plan.began_ns) / 1000000;
    char name[LOCK_NAME_BYTES_MAX];
    int len = snprintf(name, sizeof name, hold_locks_section(h) ? "%s/%s" : "%s/%s/%u",
                       h->terms.event, h->terms.section, h->reservation.seats[h->locking.count]);
    k->caller_data = h;
    k->done = hold_on_locked;
    k->acquire.name = arena_copy(h->arena, (str){name, (size_t)len});
    k->acquire.wait_ms_max = left_ms > 0 ? left_ms : 0;
    lock_client_acquire(h->lock_client, k);
}

static void hold_on_locked(struct held_lock *k) {
    struct hold *h = k->caller_data;
    const struct lock_op *got = &k->acquire;
    int64_t waited_us = held_lock_waited_us(k);
    observe_lock_wait((int)h->strategy, (uint64_t)waited_us);
    if (h->strategy == STRATEGY_ADAPTIVE)
        adaptive_load_waited(&h->service->load, h->terms.section_key, waited_us / 1000);
    if (got->result != ERR_OK || got->outcome != LOCK_ACQUIRED) {
        enum err why = h->lock_client->stopping ? ERR_STOPPING : ERR_LOCK_TIMEOUT;
        hold_end(h, got->result != ERR_OK ? got->result : why);
        return;
    }
    size_t first = h->locking.count++;
    size_t last = hold_locks_section(h) ? h->count - 1 : first;
    for (size_t i = first; i <= last; i++) h->locking.fences[i] = (int64_t)got->fence;
    hold_lock_next(h);
}

/* ---- the hot store is asked for seats, to claim or to choose them ---- */

static void hold_ask_hot(struct hold *h, const uint32_t *named,
                         enum err (*submit)(struct claim_op *), void (*done)(struct claim_op *)) {
    struct hot_op op = hold_hot_op(h);
    h->claiming.op = (struct claim_op){.op = op,
                                       .request = {.id = uuid_new(op.now_ms),
                                                   .user = h->user,
                                                   .entry_seq = h->entry_seq,
                                                   .section_key = h->terms.section_key,
                                                   .count = h->count,
                                                   .named = named,
                                                   .key = h->key,
                                                   .spread = h->choosing.spread},
                                       .seats = h->reservation.seats,
                                       .submit = submit,
                                       .done = done};
    seats_claim(h->service->seats, &h->claiming.op);
}

/* Whether the hot store named seats that the ledger can be asked for. */
static enum err hold_check_seats(const struct hold *h) {
    const struct claim_op *c = &h->claiming.op;
    uint32_t before = 0;
    for (size_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i] <= before || c->seats[i] > SECTION_CAPACITY_MAX) return ERR_INTERNAL;
        before = c->seats[i];
    }
    /* A claim whose answer was lost is sent again. By then the hot store may have been notified
     * that the ledger has given some of its seats to another user. */
    return c->seat_count == h->count ? ERR_OK : ERR_CONFLICT;
}

/* The hot store refuses, or the section was changed after the request came. */
static void hold_refuse_claim(struct hold *h) {
    static const enum err refusals[] = {[CLAIM_NOT_ACTIVE] = ERR_NOT_ACTIVE,
                                        [CLAIM_EVENT_CLOSED] = ERR_CLOSED,
                                        [CLAIM_NO_SECTION] = ERR_SECTION_NOT_FOUND,
                                        [CLAIM_SECTION_CLOSED] = ERR_SECTION_CLOSED,
                                        [CLAIM_SECTION_MAINTENANCE] = ERR_SECTION_CLOSED,
                                        [CLAIM_LIMIT] = ERR_LIMIT_EXCEEDED,
                                        [CLAIM_SOLD_OUT] = ERR_SOLD_OUT,
                                        [CLAIM_NOT_ENOUGH] = ERR_SOLD_OUT,
                                        [CLAIM_TAKEN] = ERR_SEAT_TAKEN,
                                        [CLAIM_NO_SUCH_SEAT] = ERR_SEAT_NOT_FOUND};
    const struct claim_op *c = &h->claiming.op;
    enum err why = c->op.result != ERR_OK ? c->op.result : refusals[c->outcome];
    if (c->op.result == ERR_OK && (why == ERR_SEAT_TAKEN || why == ERR_SEAT_NOT_FOUND)) {
        h->refused_count = c->seat_count;
        memcpy(h->refused, c->seats, c->seat_count * sizeof *h->refused);
    }
    if (why == ERR_SEAT_TAKEN) count_reservation_conflict((int)h->strategy);
    hold_end(h, why == ERR_OK ? ERR_CONFLICT : why);
}

/* Writes the hold to the ledger. `epoch`: of the hot store that decided; 0: the ledger decides. */
static enum err hold_submit(struct hold *h, const struct uuid *id, int64_t now_ms,
                            int64_t expires_ms, uint32_t epoch, void (*run)(struct task *)) {
    bool is_optimistic = h->plan.chosen_strategy == STRATEGY_OPTIMISTIC;
    h->reservation.id = *id;
    h->reservation.created_ms = now_ms;
    h->reservation.expires_ms = expires_ms;
    h->writing.record =
        (struct ledger_hold){.record = {.kind = LEDGER_HOLD, .task.run = run, .always = h->always},
                             .wanted = &h->reservation,
                             .is_named = h->named != NULL,
                             .versions = is_optimistic ? h->choosing.read.versions : NULL,
                             .fences = h->locking.fences,
                             .idempotency = h->idempotency,
                             .epoch = epoch,
                             .refused = h->refused};
    return ledger_submit(h->service->ledger, &h->writing.record.record);
}

/* The seats for which the ledger has refused the hold. */
static void hold_take_refused(struct hold *h) {
    h->refused_count = h->writing.record.refused_count;
    h->free_at_ms = h->writing.record.free_at_ms;
}

/* ---- step: claim in the hot store, write, settle ---- */

static void hold_claim_seats(struct hold *h) {
    h->claiming.began_ns = clock_steady_ns();
    hold_ask_hot(h, h->named, hold_submit_claim, hold_on_claimed);
}

/* Part of the claim's atomic step. The claim may be an earlier one with the same key, which is not
 * durable yet. */
static enum err hold_submit_claim(struct claim_op *c) {
    struct hold *h = CONTAINER_OF(c, struct hold, claiming.op);
    enum err wrong = hold_check_seats(h);
    if (wrong != ERR_OK) return wrong;
    if (c->reservation.expires_ms <= c->op.now_ms) return ERR_HOLD_EXPIRED;
    return hold_submit(h, &c->reservation.id, c->op.now_ms, c->reservation.expires_ms, c->op.epoch,
                       hold_on_claim_written);
}

static void hold_on_claimed(struct claim_op *c) {
    struct hold *h = CONTAINER_OF(c, struct hold, claiming.op);
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    observe(HISTOGRAM_SLOT_CLAIM_SECONDS, (uint64_t)(clock_steady_ns() - h->claiming.began_ns));
    if (c->op.result == ERR_OK && is_there && c->reservation.pending)
        return; /* it is submitted: hold_on_claim_written goes on */
    if (c->op.result == ERR_OK && (is_there || c->outcome == CLAIM_KEY_REUSED))
        hold_unlock(h, hold_ask_key);
    else if (c->op.result == ERR_OK && c->outcome == CLAIM_LEDGER_DECIDES)
        hold_end(h, ERR_STRATEGY_NOT_ALLOWED); /* the section's mode was changed */
    else if (c->op.result == ERR_CONFLICT)
        hold_claim_again(h); /* it lost seats, and was given back */
    else
        hold_refuse_claim(h);
}

/* A new claim whose key turns out to be used already is given back. One that was there before is
 * the reservation that was made with the key. */
static void hold_on_claim_written(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, writing.record.record.task);
    if (h->writing.record.record.result == ERR_LEDGER_UNKNOWN) {
        hold_end(h, ERR_LEDGER_UNKNOWN); /* it stays pending until service/finish_pending asks */
        return;
    }
    bool is_ours = h->claiming.op.outcome == CLAIM_THERE || !hold_is_replayed(h);
    h->claiming.kept = h->writing.record.record.result == ERR_OK && is_ours;
    h->claiming.settle = (struct claim_settle_op){.op = hold_hot_op(h),
                                                  .section_key = h->terms.section_key,
                                                  .ids = &h->reservation.id,
                                                  .kept = &h->claiming.kept,
                                                  .count = 1,
                                                  .live = &h->claiming.live,
                                                  .done = hold_on_claim_settled};
    seats_settle(h->service->seats, &h->claiming.settle);
}

static void hold_on_claim_settled(struct claim_settle_op *s) {
    struct hold *h = CONTAINER_OF(s, struct hold, claiming.settle);
    enum err result = h->writing.record.record.result;
    /* If the hot store can't be reached, the hold is durable all the same, and the hot store is
     * notified again later. */
    bool is_notified = s->op.result == ERR_OK || s->op.result == ERR_EVENT_NOT_FOUND;
    if (!is_notified) h->claiming.live = true;
    if (result == ERR_SEAT_GIVEN_UP) hold_take_refused(h);
    if (result == ERR_SEAT_TAKEN) {
        hold_repair(h, hold_on_repaired);
    } else if (result == ERR_OK && h->writing.record.held && !h->claiming.live) {
        /* The claim was undone because the record of a request with the same key failed; or it has
         * ended already, because its user left. The ledger knows which. */
        h->claiming.get = (struct ledger_reservation_get){
            .record = {.kind = LEDGER_RESERVATION_GET, .task.run = hold_on_claim_found},
            .id = h->reservation.id};
        enum err refused = ledger_ask(h->service->ledger, &h->claiming.get.record);
        if (refused != ERR_OK) hold_end(h, refused);
    } else {
        hold_end(h, result);
    }
}

static void hold_on_repaired(struct hold *h, enum err result) {
    if (result == ERR_OK)
        hold_claim_again(h);
    else
        hold_end(h, result);
}

static void hold_claim_again(struct hold *h) {
    if (h->plan.tries >= CLAIMS_MAX) {
        hold_end(h, ERR_CONFLICT);
        return;
    }
    count_reservation_retry((int)h->strategy);
    hold_unlock(h, hold_try);
}

/* The hot store has a reservation of the user with this key. The ledger knows what that means: the
 * answer that was given, or that the key is so old that it is free again. */
static void hold_ask_key(struct hold *h) {
    enum err refused = hold_look_up_key(h, hold_on_key_found);
    if (refused != ERR_OK) hold_end(h, refused);
}

static void hold_on_key_found(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, key_lookup.record.task);
    enum err result = h->key_lookup.record.result;
    if (result != ERR_OK || h->idempotency->replayed) {
        hold_end(h, result);
        return;
    }
    h->key = (struct claim_key){0};
    hold_try(h);
}

/* The hot store gets the reservation as the ledger has it. */
static void hold_apply(struct hold *h, const struct reservation *r) {
    h->writing.live = reservation_live(r);
    h->writing.sync = (struct seat_sync_op){.op = hold_hot_op(h),
                                            .reservations = &h->writing.live,
                                            .count = 1,
                                            .done = hold_on_applied};
    seats_sync(h->service->seats, &h->writing.sync);
}

/* The hold was made, and has ended before it was answered. So the request is refused, and its key
 * is not looked up. */
static void hold_end_as_gone(struct hold *h, bool expired) {
    h->idempotency = NULL;
    hold_end(h, expired ? ERR_HOLD_EXPIRED : ERR_NOT_ACTIVE);
}

static void hold_on_claim_found(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, claiming.get.record.task);
    const struct reservation *r = h->claiming.get.found;
    if (h->claiming.get.record.result != ERR_OK)
        hold_end(h, h->claiming.get.record.result);
    else if (r != NULL && reservation_is_live(r->status))
        hold_apply(h, r);
    else
        hold_end_as_gone(h, r != NULL && r->status == RESERVATION_EXPIRED);
}

/* ---- step: choose seats, where the ledger decides ---- */

static void hold_choose_seats(struct hold *h) {
    hold_ask_hot(h, h->named, hold_submit_nothing, hold_on_chosen);
}

/* The section's mode was changed after the request came: the claim is given back. */
static enum err hold_submit_nothing(struct claim_op *c) {
    (void)c;
    return ERR_STRATEGY_NOT_ALLOWED;
}

static void hold_on_chosen(struct claim_op *c) {
    struct hold *h = CONTAINER_OF(c, struct hold, claiming.op);
    bool is_chosen = c->op.result == ERR_OK && c->outcome == CLAIM_LEDGER_DECIDES;
    if (is_chosen) c->op.result = hold_check_seats(h);
    if (is_chosen && c->op.result == ERR_OK)
        hold_next_step(h);
    else
        hold_refuse_claim(h);
}

/* After the wait for locks: whether the seats may still be sold to this user. */
static void hold_check_again(struct hold *h) {
    memcpy(h->refused, h->reservation.seats, h->count * sizeof *h->refused);
    hold_ask_hot(h, h->refused, hold_submit_nothing, hold_on_chosen);
}

/* ---- step: read the versions of the seats ---- */

static void hold_read_versions(struct hold *h) {
    struct ledger_seats_read *r = &h->choosing.read;
    if (r->states == NULL) {
        r->states = arena_new(h->arena, h->count * sizeof *r->states);
        r->versions = arena_new(h->arena, h->count * sizeof *r->versions);
        r->holders = arena_new(h->arena, h->count * sizeof *r->holders);
    }
    r->record =
        (struct ledger_record){.kind = LEDGER_SEATS_READ, .task.run = hold_on_versions_read};
    r->section_key = h->terms.section_key;
    r->seats = h->reservation.seats;
    r->count = h->count;
    enum err refused = ledger_ask(h->service->ledger, &r->record);
    if (refused != ERR_OK) hold_end(h, refused);
}

static void hold_on_versions_read(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, choosing.read.record.task);
    if (h->choosing.read.record.result != ERR_OK) {
        hold_end(h, h->choosing.read.record.result);
        return;
    }
    for (size_t i = 0; i < h->count; i++)
        if (h->choosing.read.states[i] != SEAT_AVAILABLE)
            h->refused[h->refused_count++] = h->reservation.seats[i];
    if (h->refused_count > 0)
        hold_seats_are_taken(h);
    else
        hold_next_step(h);
}

/* In place of seats that the user did not name, others are chosen. */
static void hold_seats_are_taken(struct hold *h) {
    count_reservation_conflict((int)h->strategy);
    if (h->named != NULL)
        hold_end(h, ERR_SEAT_TAKEN);
    else
        hold_retry(h);
}

/* ---- step: write, where the ledger decides; tell the hot store; is the user still there? ---- */

static void hold_write_seats(struct hold *h) {
    int64_t now_ms = clock_wall_ms();
    struct uuid id = uuid_new(now_ms);
    enum err refused = hold_submit(h, &id, now_ms, now_ms + h->terms.hold_ms, 0, hold_on_written);
    if (refused != ERR_OK) hold_end(h, refused);
}

static void hold_on_written(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, writing.record.record.task);
    enum err result = h->writing.record.record.result;
    hold_take_refused(h);
    if (result == ERR_OK && h->writing.record.held) {
        hold_apply(h, &h->reservation);
    } else if (result == ERR_CONFLICT) {
        count_reservation_conflict((int)h->strategy);
        hold_retry(h);
    } else if (result == ERR_SEAT_TAKEN) {
        hold_seats_are_taken(h);
    } else {
        hold_end(h, result); /* OK: replayed */
    }
}

/* When users leave, the holds that the hot store knows of are given back. It has known of this one
 * only since the commit: if the user left before that, it is given back here. */
static void hold_on_applied(struct seat_sync_op *s) {
    struct hold *h = CONTAINER_OF(s, struct hold, writing.sync);
    h->leaving.look = (struct place_look){.look.op.event_key = h->terms.event_key,
                                          .item.seq = h->entry_seq,
                                          .done = hold_on_place_seen};
    waiting_room_look(h->service->room, &h->leaving.look);
}

static void hold_on_place_seen(struct place_look *look, enum err result) {
    struct hold *h = CONTAINER_OF(look, struct hold, leaving.look);
    if (result != ERR_OK || look->item.place.status != ENTRY_LEFT) {
        hold_end(h, ERR_OK);
        return;
    }
    h->leaving.cancel =
        (struct ledger_cancel){.record = {.kind = LEDGER_CANCEL, .task.run = hold_on_given_back},
                               .id = h->reservation.id,
                               .user = h->user,
                               .now_ms = clock_wall_ms()};
    enum err refused = ledger_submit(h->service->ledger, &h->leaving.cancel.record);
    if (refused != ERR_OK) hold_end(h, refused);
}

/* The hot store follows, also if another request has given the seats back already. */
static void hold_on_given_back(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, leaving.cancel.record.task);
    struct ledger_cancel *cancel = &h->leaving.cancel;
    bool is_expired = cancel->record.result == ERR_HOLD_EXPIRED;
    mem_free(cancel->stored);
    if (cancel->cancelled) count(COUNT_RESERVATION_CANCELS, 1);
    if (cancel->expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    if (cancel->record.result != ERR_OK && !is_expired) {
        bool is_confirmed = cancel->record.result == ERR_CANCEL_BY_SHOP; /* by another request */
        hold_end(h, is_confirmed ? ERR_OK : cancel->record.result);
        return;
    }
    h->leaving.change = (struct reservation_change){.id = h->reservation.id,
                                                    .section_key = h->terms.section_key,
                                                    .status = is_expired ? RESERVATION_EXPIRED
                                                                         : RESERVATION_CANCELLED};
    h->leaving.follow = (struct follow_op){.op = hold_hot_op(h),
                                           .changes = &h->leaving.change,
                                           .count = 1,
                                           .done = hold_on_given_back_followed};
    seats_follow(h->service->seats, &h->leaving.follow);
}

static void hold_on_given_back_followed(struct follow_op *f) {
    struct hold *h = CONTAINER_OF(f, struct hold, leaving.follow);
    hold_end_as_gone(h, h->leaving.change.status == RESERVATION_EXPIRED);
}

/* ---- the locks are given back ---- */

/* One after the other, the last one first. */
static void hold_unlock(struct hold *h, hold_step *when_free) {
    if (h->locking.count == 0) {
        when_free(h);
        return;
    }
    struct held_lock *k = &h->locking.held[--h->locking.count];
    observe_lock_hold((int)h->strategy, (uint64_t)held_lock_held_us(k));
    h->locking.when_free = when_free;
    k->done = hold_on_unlocked;
    lock_client_release(k);
}

static void hold_on_unlocked(struct held_lock *k) {
    struct hold *h = k->caller_data;
    hold_unlock(h, h->locking.when_free);
}

/* ---- try again ---- */

static void hold_retry(struct hold *h) {
    if (h->plan.tries == TRIES_MAX) {
        hold_end(h, ERR_CONFLICT);
        return;
    }
    count_reservation_retry((int)h->strategy);
    h->choosing.spread = lock_client_random(h->lock_client) | 1;
    hold_unlock(h, hold_wait_and_try);
}

static void hold_wait_and_try(struct hold *h) {
    int64_t ms_max = (int64_t)DELAY_MS_FIRST << (h->plan.tries - 1);
    h->plan.delay.done = hold_on_delay_over;
    lock_client_delay(h->lock_client, &h->plan.delay,
                      ms_max > DELAY_MS_MAX ? DELAY_MS_MAX : ms_max);
}

static void hold_on_delay_over(struct retry_delay *d) {
    hold_try(CONTAINER_OF(d, struct hold, plan.delay));
}

/* ---- end: held or refused ---- */

static void hold_end(struct hold *h, enum err result) {
    h->plan.result = result;
    hold_unlock(h, hold_on_locks_free);
}

static void hold_on_locks_free(struct hold *h) {
    list_remove(&h->choosing.link);
    if (h->strategy == STRATEGY_ADAPTIVE)
        adaptive_load_end(&h->service->load, h->terms.section_key);
    hold_answer(h);
}

void hold_refuse(struct reservations *r, struct hold *h, enum err why) {
    assert(why == ERR_SOLD_OUT || why == ERR_SEAT_TAKEN || why == ERR_LIMIT_EXCEEDED);
    h->service = r;
    h->plan.result = why;
    count_reservation_attempt((int)h->strategy);
    hold_answer(h);
}

/* The first request with the same key may have taken the seats that stood in the way, and may have
 * been answered in the meantime. Then this request gets the same answer. */
static void hold_answer(struct hold *h) {
    enum err result = h->plan.result;
    bool may_be_repeated = result != ERR_OK && err_status(result) < 500 && h->idempotency != NULL;
    if (!may_be_repeated) {
        hold_finish(h, result);
        return;
    }
    enum err refused = hold_look_up_key(h, hold_on_first_answer_found);
    if (refused != ERR_OK) hold_finish(h, refused);
}

static void hold_on_first_answer_found(struct task *task) {
    struct hold *h = CONTAINER_OF(task, struct hold, key_lookup.record.task);
    enum err result = h->key_lookup.record.result;
    bool is_unused = result == ERR_OK && !h->idempotency->replayed;
    hold_finish(h, is_unused ? h->plan.result : result);
}

/* For the metrics. */
static enum reservation_outcome hold_outcome(const struct hold *h, enum err result) {
    static const struct {
        enum err result;
        enum reservation_outcome outcome;
    } refusals[] = {
        {ERR_SEAT_TAKEN, RESERVATION_OUTCOME_SEAT_TAKEN},
        {ERR_SOLD_OUT, RESERVATION_OUTCOME_SOLD_OUT},
        {ERR_LIMIT_EXCEEDED, RESERVATION_OUTCOME_LIMIT_EXCEEDED},
        {ERR_NOT_ACTIVE, RESERVATION_OUTCOME_NOT_ACTIVE},
        {ERR_CONFLICT, RESERVATION_OUTCOME_CONFLICT},
        {ERR_LOCK_TIMEOUT, RESERVATION_OUTCOME_LOCK_TIMEOUT},
        {ERR_LOCK_LOST, RESERVATION_OUTCOME_LOCK_LOST},
    };
    if (result == ERR_OK)
        return hold_is_replayed(h) ? RESERVATION_OUTCOME_REPLAYED : RESERVATION_OUTCOME_HELD;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].result == result) return refusals[i].outcome;
    return err_status(result) >= 500 ? RESERVATION_OUTCOME_FAILED : RESERVATION_OUTCOME_REFUSED;
}

static void hold_finish(struct hold *h, enum err result) {
    mem_free(h->claiming.get.found);
    h->claiming.get.found = NULL;
    /* The disk may have taken longer than the hold lasts. */
    if (result == ERR_OK && !hold_is_replayed(h) && h->reservation.expires_ms <= clock_wall_ms())
        result = ERR_HOLD_EXPIRED;
    count_reservation_outcome((int)h->strategy, hold_outcome(h, result));
    if (result == ERR_SOLD_OUT) count(COUNT_RESERVATION_SOLD_OUT_ANSWERS, 1);
    h->done(h, result);
}
