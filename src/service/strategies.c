/*
 * How a hold gets its seats, by strategy: the plans below, to compare at a glance, and then the
 * steps of which they are made.
 *
 * A step goes on to the next one, tries the whole plan again, or refuses. However it ends, its
 * locks are given back last: after the commit.
 */
#include "service/strategies.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/metrics_reservation.h"

static hold_step claim_seats, choose_seats, read_versions, write_seats, see_place;
static hold_step lock_section, lock_seats, look_again;

#define PLAN_STEPS_MAX 6

static hold_step *const plans[][PLAN_STEPS_MAX] = {
    /* The hot store decides, in one atomic step; the ledger guards. */
    [STRATEGY_SLOT] = {claim_seats},
    /* The same, one after the other for the whole section. */
    [STRATEGY_LOCK] = {lock_section, claim_seats},
    /* The ledger decides. Nobody is kept out: who was overtaken between read and write finds
     * another version, and tries again. */
    [STRATEGY_OPTIMISTIC] = {choose_seats, read_versions, write_seats, see_place},
    /* The ledger decides, when it is this one's turn to write. */
    [STRATEGY_PESSIMISTIC] = {choose_seats, write_seats, see_place},
    /* The ledger decides, but only one gets that far for each seat; and who comes late, with an
     * older fence than a seat has seen, is refused. */
    [STRATEGY_DISTRIBUTED_LOCK] = {choose_seats, lock_seats, look_again, write_seats, see_place},
};

/* How often a plan is tried. */
#define TRIES_MAX 10
/* Before the second try, and twice as long before each one after it, but for the last ones. */
#define REST_MS_FIRST 1
#define REST_MS_MAX 32
/* How often seats are claimed anew that the ledger turned out to have taken. */
#define CLAIMS_MAX 3

/* ---- from step to step ---- */

static void on_unlocked(struct held_lock *k);

/* One after the other, the last one first; then h->unlocked. */
static void unlock(struct holding *h) {
    if (h->lock_count == 0) {
        h->unlocked(h);
        return;
    }
    struct held_lock *k = &h->locks[--h->lock_count];
    observe_lock_hold((int)h->strategy, (uint64_t)held_lock_held_us(k));
    k->done = on_unlocked;
    lock_client_release(k);
}

static void on_unlocked(struct held_lock *k) {
    unlock(k->caller_data);
}

static void end(struct holding *h) {
    list_remove(&h->choosing);
    hold_end(h);
}

static void decide(struct holding *h, enum err result) {
    h->result = result;
    h->unlocked = end;
    unlock(h);
}

static void refuse(struct holding *h, enum err why) {
    assert(why != ERR_OK);
    decide(h, why);
}

static void go_on(struct holding *h) {
    hold_step *step = *h->next;
    if (step == NULL) {
        decide(h, ERR_OK);
        return;
    }
    h->next++;
    step(h);
}

static void start(struct holding *h) {
    h->tries++;
    h->refused_count = 0;
    h->fences = NULL;
    h->next = plans[h->chosen_strategy];
    go_on(h);
}

static void on_rested(struct retry_delay *r) {
    start(CONTAINER_OF(r, struct holding, rest));
}

static void rest(struct holding *h) {
    int64_t ms_max = (int64_t)REST_MS_FIRST << (h->tries - 1);
    h->rest.done = on_rested;
    lock_client_delay(h->lock_client, &h->rest, ms_max > REST_MS_MAX ? REST_MS_MAX : ms_max);
}

/* Conflict with another request. Seats that we chose are other ones the next time. */
static void try_again(struct holding *h) {
    if (h->tries == TRIES_MAX) {
        refuse(h, ERR_CONFLICT);
        return;
    }
    count_reservation_retry((int)h->strategy);
    h->spread = lock_client_random(h->lock_client) | 1;
    h->unlocked = rest;
    unlock(h);
}

/* By the rule, all who choose in a section at once would be told of the same seats, and all but one
 * in vain. */
static void choose_among_others(struct holding *h) {
    struct list *all = &h->lock_client->choosing;
    for (struct list *at = all->next; at != all && h->spread == 0; at = at->next)
        if (CONTAINER_OF(at, struct holding, choosing)->terms.section_key == h->terms.section_key)
            h->spread = lock_client_random(h->lock_client) | 1;
    list_move_last(all, &h->choosing);
}

void strategy_run(struct holding *h) {
    assert(h->chosen_strategy != STRATEGY_ADAPTIVE && h->chosen_strategy != STRATEGY_QUEUE);
    list_init(&h->choosing);
    if (h->terms.mode == SECTION_MODE_SEAT && h->named == NULL) choose_among_others(h);
    start(h);
}

/* ---- what is written ---- */

static void fill_in(struct holding *h, const struct uuid *id, int64_t now_ms, int64_t expires_ms) {
    struct reservation *r = &h->reservation;
    r->id = *id;
    r->created_ms = now_ms;
    r->expires_ms = expires_ms;
}

/* `epoch`: of the incarnation of the hot store that decided; 0: the ledger does. */
static enum err submit(struct holding *h, uint32_t epoch, void (*run)(struct task *)) {
    h->record = (struct ledger_hold){
        .record = {.kind = LEDGER_HOLD, .task.run = run},
        .wanted = &h->reservation,
        .versions = h->chosen_strategy == STRATEGY_OPTIMISTIC ? h->read.versions : NULL,
        .fences = h->fences,
        .idempotency = h->idempotency,
        .epoch = epoch,
        .refused = h->refused};
    return ledger_submit(h->service->ledger, &h->record.record);
}

/* The hot store gets the reservation as the ledger has it. */
static void apply(struct holding *h, const struct reservation *r,
                  void (*done)(struct seat_sync_op *)) {
    h->applied = reservation_live(r);
    h->sync =
        (struct seat_sync_op){.op = {.event_key = h->terms.event_key, .now_ms = clock_wall_ms()},
                              .reservations = &h->applied,
                              .count = 1,
                              .done = done};
    seats_sync(h->service->seats, &h->sync);
}

/* It hears of what the ledger has ended. */
static void follow(struct holding *h, const struct uuid *id, enum reservation_status status,
                   void (*done)(struct follow_op *)) {
    h->news = (struct reservation_change){
        .id = *id, .section_key = h->terms.section_key, .status = status};
    h->follow =
        (struct follow_op){.op = {.event_key = h->terms.event_key, .now_ms = clock_wall_ms()},
                           .news = &h->news,
                           .count = 1,
                           .done = done};
    seats_follow(h->service->seats, &h->follow);
}

static void on_applied(struct seat_sync_op *s) {
    go_on(CONTAINER_OF(s, struct holding, sync));
}

/* ---- step: claim in the hot store, write, settle ---- */

static void heal(struct holding *h);

static enum err refusal_of(enum claim_outcome o) {
    switch (o) {
    case CLAIM_NOT_ACTIVE:
        return ERR_NOT_ACTIVE;
    case CLAIM_EVENT_CLOSED:
        return ERR_CLOSED;
    case CLAIM_NO_SECTION:
        return ERR_SECTION_NOT_FOUND;
    case CLAIM_SECTION_CLOSED:
    case CLAIM_SECTION_MAINTENANCE:
        return ERR_SECTION_CLOSED;
    case CLAIM_LIMIT:
        return ERR_LIMIT_EXCEEDED;
    case CLAIM_SOLD_OUT:
    case CLAIM_NOT_ENOUGH:
        return ERR_SOLD_OUT;
    case CLAIM_TAKEN:
        return ERR_SEAT_TAKEN;
    case CLAIM_NO_SUCH_SEAT:
        return ERR_SEAT_NOT_FOUND;
    case CLAIM_THERE:
    case CLAIM_KEY_REUSED:
    case CLAIM_SEATS_TWICE:
    case CLAIM_DONE:
    case CLAIM_LEDGER_DECIDES:
        break;
    }
    return ERR_CONFLICT;
}

/* What the hot store, or the section's configuration since the request came, has against it. */
static void refuse_claim(struct holding *h) {
    const struct claim_op *c = &h->claim;
    enum err why = c->op.result != ERR_OK ? c->op.result : refusal_of(c->outcome);
    if (c->op.result == ERR_OK && (why == ERR_SEAT_TAKEN || why == ERR_SEAT_NOT_FOUND)) {
        h->refused_count = c->seat_count;
        memcpy(h->refused, c->seats, c->seat_count * sizeof *h->refused);
    }
    if (why == ERR_SEAT_TAKEN) count_reservation_conflict((int)h->strategy);
    refuse(h, why);
}

static void ask_hot(struct holding *h, const uint32_t *named,
                    enum err (*submit_it)(struct claim_op *), void (*done)(struct claim_op *)) {
    int64_t now_ms = clock_wall_ms();
    h->claim = (struct claim_op){.op = {.event_key = h->terms.event_key, .now_ms = now_ms},
                                 .request = {.id = uuid_new(now_ms),
                                             .user = h->user,
                                             .entry_seq = h->entry_seq,
                                             .section_key = h->terms.section_key,
                                             .count = h->count,
                                             .named = named,
                                             .key = h->key,
                                             .spread = h->spread},
                                 .seats = h->reservation.seats,
                                 .submit = submit_it,
                                 .done = done};
    seats_claim(h->service->seats, &h->claim);
}

/* The hold was made, and has ended before anybody was told: so nobody is, by its key either. */
static void refuse_gone(struct holding *h, bool expired) {
    h->idempotency = NULL;
    refuse(h, expired ? ERR_HOLD_EXPIRED : ERR_NOT_ACTIVE);
}

/* What ended it meanwhile came before there was anything to end. */
static void on_found_applied(struct seat_sync_op *s) {
    see_place(CONTAINER_OF(s, struct holding, sync));
}

/* It was settled, and is not there: undone because the record of a request with the same key
 * failed, or ended already, by its user's leaving. The ledger knows. */
static void on_found_again(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, get.record.task);
    struct reservation *r = h->get.found;
    if (h->get.record.result != ERR_OK)
        refuse(h, h->get.record.result);
    else if (r != NULL && reservation_is_live(r->status))
        apply(h, r, on_found_applied);
    else
        refuse_gone(h, r != NULL && r->status == RESERVATION_EXPIRED);
}

/* What it finds stays until the next one is looked for, or the hold ends. */
static void find(struct holding *h, const struct uuid *id, void (*run)(struct task *)) {
    mem_free(h->get.found);
    h->get = (struct ledger_reservation_get){
        .record = {.kind = LEDGER_RESERVATION_GET, .task.run = run}, .id = *id};
    enum err refused = ledger_ask(h->service->ledger, &h->get.record);
    if (refused != ERR_OK) refuse(h, refused);
}

static void on_settled(struct claim_settle_op *s) {
    struct holding *h = CONTAINER_OF(s, struct holding, settle);
    enum err result = h->record.record.result;
    /* The hold is durable, whether or not the hot store could be told: it hears of it again. */
    bool is_heard = s->op.result == ERR_OK || s->op.result == ERR_EVENT_NOT_FOUND;
    if (!is_heard) h->live = true;
    if (result == ERR_SEAT_TAKEN)
        heal(h);
    else if (result != ERR_OK)
        refuse(h, result);
    else if (h->record.held && !h->live)
        find(h, &h->reservation.id, on_found_again);
    else
        go_on(h);
}

/* A new claim whose key turns out to be used already is given back; one that was there is the very
 * one that the key stands for. */
static void on_claim_written(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, record.record.task);
    if (h->record.record.result == ERR_LEDGER_UNKNOWN) {
        refuse(h, ERR_LEDGER_UNKNOWN); /* it stays pending, until somebody has found out */
        return;
    }
    bool is_ours = h->claim.outcome == CLAIM_THERE || !hold_is_replayed(h);
    h->kept = h->record.record.result == ERR_OK && is_ours;
    h->settle =
        (struct claim_settle_op){.op = {.event_key = h->terms.event_key, .now_ms = clock_wall_ms()},
                                 .section_key = h->terms.section_key,
                                 .ids = &h->reservation.id,
                                 .kept = &h->kept,
                                 .count = 1,
                                 .live = &h->live,
                                 .done = on_settled};
    seats_settle(h->service->seats, &h->settle);
}

/* Whether the seats that the hot store names are what the ledger can be asked for. */
static enum err check_seats(const struct holding *h) {
    const struct claim_op *c = &h->claim;
    uint32_t before = 0;
    for (size_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i] <= before || c->seats[i] > SECTION_CAPACITY_MAX) return ERR_INTERNAL;
        before = c->seats[i];
    }
    /* A claim whose answer was lost is sent again. By then the hot store may have heard that the
     * ledger has given some of its seats to another user. */
    return c->seat_count == h->count ? ERR_OK : ERR_CONFLICT;
}

static enum err submit_claim(struct claim_op *c) {
    struct holding *h = CONTAINER_OF(c, struct holding, claim);
    enum err wrong = check_seats(h);
    if (wrong != ERR_OK) return wrong;
    /* One that is there may have waited for the disk for longer than it lasts. */
    if (c->reservation.expires_ms <= c->op.now_ms) return ERR_HOLD_EXPIRED;
    fill_in(h, &c->reservation.id, c->op.now_ms, c->reservation.expires_ms);
    return submit(h, c->op.epoch, on_claim_written);
}

/* Of those in the hot store, one of the user's has this key. What that means the ledger knows:
 * which answer it was given, or that a key so old is free again. */
static void on_key_asked(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, ask.record.task);
    enum err answer = h->ask.record.result;
    bool is_unused = answer == ERR_OK && !h->idempotency->replayed;
    if (is_unused) {
        h->key = (struct claim_key){0};
        start(h);
    } else {
        decide(h, answer);
    }
}

static void ask_key(struct holding *h) {
    enum err refused = hold_ask_key(h->service, h, on_key_asked);
    if (refused != ERR_OK) refuse(h, refused);
}

static void claim_again(struct holding *h) {
    if (h->tries >= CLAIMS_MAX) {
        refuse(h, ERR_CONFLICT);
        return;
    }
    count_reservation_retry((int)h->strategy);
    h->unlocked = start;
    unlock(h);
}

static void on_claimed(struct claim_op *c) {
    struct holding *h = CONTAINER_OF(c, struct holding, claim);
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    if (c->op.result == ERR_OK && is_there && c->reservation.pending)
        return; /* the record comes back */
    if (c->op.result == ERR_OK && (is_there || c->outcome == CLAIM_KEY_REUSED)) {
        h->unlocked = ask_key;
        unlock(h);
    } else if (c->op.result == ERR_OK && c->outcome == CLAIM_LEDGER_DECIDES) {
        refuse(h, ERR_STRATEGY_NOT_ALLOWED); /* since a moment ago */
    } else if (c->op.result == ERR_CONFLICT) {
        claim_again(h); /* it lost seats, and was given back */
    } else {
        refuse_claim(h);
    }
}

static void claim_seats(struct holding *h) {
    int64_t began_ns = clock_steady_ns();
    ask_hot(h, h->named, submit_claim, on_claimed);
    observe(HISTOGRAM_SLOT_CLAIM_SECONDS, (uint64_t)(clock_steady_ns() - began_ns));
}

/* ---- when the ledger had seats that the hot store thought free ---- */

static void on_healed(struct seat_sync_op *s) {
    claim_again(CONTAINER_OF(s, struct holding, sync));
}

/* Those that are free in the ledger come last, in one step. */
static void heal_free(struct holding *h) {
    size_t free_count = 0;
    for (size_t i = 0; i < h->read.count; i++)
        if (h->read.states[i] == SEAT_AVAILABLE) h->refused[free_count++] = h->refused[i];
    h->sync =
        (struct seat_sync_op){.op = {.event_key = h->terms.event_key, .now_ms = clock_wall_ms()},
                              .section_key = h->terms.section_key,
                              .available = h->refused,
                              .available_count = free_count,
                              .done = on_healed};
    seats_sync(h->service->seats, &h->sync);
}

static void heal_next(struct holding *h);

static void on_holder_followed(struct follow_op *f) {
    heal_next(CONTAINER_OF(f, struct holding, follow));
}

/* It may have ended between the look and the applying; then that is the news. */
static void on_holder_found_again(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, get.record.task);
    const struct reservation *r = h->get.found;
    if (h->get.record.result != ERR_OK)
        refuse(h, h->get.record.result);
    else if (r == NULL || reservation_is_live(r->status))
        heal_next(h);
    else
        follow(h, &r->id, r->status, on_holder_followed);
}

static void on_holder_applied(struct seat_sync_op *s) {
    struct holding *h = CONTAINER_OF(s, struct holding, sync);
    find(h, &h->read.holders[h->healed - 1], on_holder_found_again);
}

static void on_holder_found(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, get.record.task);
    struct reservation *r = h->get.found;
    if (h->get.record.result != ERR_OK)
        refuse(h, h->get.record.result);
    else if (r != NULL && reservation_is_live(r->status))
        apply(h, r, on_holder_applied);
    else
        heal_next(h);
}

/* The reservation that has the next of the seats, unless it has one of those before. */
static void heal_next(struct holding *h) {
    while (h->healed < h->read.count) {
        size_t at = h->healed++;
        const struct uuid *holder = &h->read.holders[at];
        bool is_done = h->read.states[at] == SEAT_AVAILABLE;
        for (size_t i = 0; i < at && !is_done; i++) is_done = uuid_eq(&h->read.holders[i], holder);
        if (is_done) continue;
        find(h, holder, on_holder_found);
        return;
    }
    heal_free(h);
}

static void on_taken_read(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, read.record.task);
    h->healed = 0;
    if (h->read.record.result == ERR_OK)
        heal_next(h);
    else
        refuse(h, h->read.record.result);
}

static void read_seats(struct holding *h, const uint32_t *seats, size_t count_of,
                       void (*run)(struct task *)) {
    struct ledger_seats_read *r = &h->read;
    if (r->states == NULL) {
        r->states = arena_new(h->arena, h->count * sizeof *r->states);
        r->versions = arena_new(h->arena, h->count * sizeof *r->versions);
        r->holders = arena_new(h->arena, h->count * sizeof *r->holders);
    }
    r->record = (struct ledger_record){.kind = LEDGER_SEATS_READ, .task.run = run};
    r->section_key = h->terms.section_key;
    r->seats = seats;
    r->count = count_of;
    enum err refused = ledger_ask(h->service->ledger, &r->record);
    if (refused != ERR_OK) refuse(h, refused);
}

static void heal(struct holding *h) {
    count(COUNT_RESERVATION_GUARD_REFUSALS, h->record.refused_count);
    log_warn(
        msg("the hot store offered seats that are taken in the ledger; correcting the hot store"),
        kv("event", h->terms.event), kv("section", h->terms.section),
        kv_i64("seats", (int64_t)h->record.refused_count));
    read_seats(h, h->refused, h->record.refused_count, on_taken_read);
}

/* ---- step: choose, where the ledger decides ---- */

static void on_chosen(struct claim_op *c) {
    struct holding *h = CONTAINER_OF(c, struct holding, claim);
    bool is_chosen = c->op.result == ERR_OK && c->outcome == CLAIM_LEDGER_DECIDES;
    if (is_chosen) c->op.result = check_seats(h);
    if (is_chosen && c->op.result == ERR_OK)
        go_on(h);
    else
        refuse_claim(h);
}

/* The section has changed its mode since the request came: what was claimed is given back. */
static enum err submit_nothing(struct claim_op *c) {
    (void)c;
    return ERR_STRATEGY_NOT_ALLOWED;
}

static void choose_seats(struct holding *h) {
    ask_hot(h, h->named, submit_nothing, on_chosen);
}

/* After a wait: whether they may still be sold, to this user. */
static void look_again(struct holding *h) {
    memcpy(h->refused, h->reservation.seats, h->count * sizeof *h->refused);
    ask_hot(h, h->refused, submit_nothing, on_chosen);
}

/* ---- step: read the versions ---- */

/* Named seats that are taken are so; for seats that we chose there are others. */
static void seats_are_taken(struct holding *h) {
    count_reservation_conflict((int)h->strategy);
    if (h->named != NULL)
        refuse(h, ERR_SEAT_TAKEN);
    else
        try_again(h);
}

static void on_versions_read(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, read.record.task);
    if (h->read.record.result != ERR_OK) {
        refuse(h, h->read.record.result);
        return;
    }
    for (size_t i = 0; i < h->count; i++)
        if (h->read.states[i] != SEAT_AVAILABLE)
            h->refused[h->refused_count++] = h->reservation.seats[i];
    if (h->refused_count > 0)
        seats_are_taken(h);
    else
        go_on(h);
}

static void read_versions(struct holding *h) {
    read_seats(h, h->reservation.seats, h->count, on_versions_read);
}

/* ---- step: lock the section, or each seat ---- */

static void on_locked(struct held_lock *k);

/* The next lock, until there are `wanted`; all in one order, so nobody waits in a circle. */
static void lock_next(struct holding *h) {
    if (h->lock_count == h->lock_wanted) {
        go_on(h);
        return;
    }
    struct held_lock *k = &h->locks[h->lock_count];
    bool is_section = h->chosen_strategy == STRATEGY_LOCK;
    int64_t waited_ms = (clock_steady_ns() - h->began_ns) / 1000000;
    char name[LOCK_NAME_BYTES_MAX];
    int len = snprintf(name, sizeof name, is_section ? "%s/%s" : "%s/%s/%u", h->terms.event,
                       h->terms.section, h->reservation.seats[h->lock_count]);
    k->caller_data = h;
    k->done = on_locked;
    k->acquire.name = arena_copy(h->arena, (str){name, (size_t)len});
    k->acquire.wait_ms_max =
        waited_ms < h->service->lock_wait_ms ? h->service->lock_wait_ms - waited_ms : 0;
    lock_client_acquire(h->lock_client, k);
}

static void on_locked(struct held_lock *k) {
    struct holding *h = k->caller_data;
    const struct lock_op *got = &k->acquire;
    observe_lock_wait((int)h->strategy, (uint64_t)held_lock_waited_us(k));
    if (h->strategy == STRATEGY_ADAPTIVE) load_waited(h, held_lock_waited_us(k) / 1000);
    if (got->result != ERR_OK || got->outcome != LOCK_ACQUIRED) {
        enum err why = h->lock_client->stopping ? ERR_STOPPING : ERR_LOCK_TIMEOUT;
        refuse(h, got->result != ERR_OK ? got->result : why);
        return;
    }
    bool is_section = h->chosen_strategy == STRATEGY_LOCK;
    size_t first = is_section ? 0 : h->lock_count;
    size_t end_at = is_section ? h->count : first + 1;
    for (size_t i = first; i < end_at; i++) h->fences[i] = (int64_t)got->fence;
    h->lock_count++;
    lock_next(h);
}

static void lock(struct holding *h, size_t wanted) {
    if (h->locks == NULL) h->locks = arena_new(h->arena, wanted * sizeof *h->locks);
    h->fences = arena_new(h->arena, h->count * sizeof *h->fences);
    h->lock_wanted = wanted;
    lock_next(h);
}

static void lock_section(struct holding *h) {
    lock(h, 1);
}

static void lock_seats(struct holding *h) {
    lock(h, h->count);
}

/* ---- step: write, where the ledger decides ---- */

static void on_written(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, record.record.task);
    enum err result = h->record.record.result;
    h->refused_count = h->record.refused_count;
    if (result == ERR_OK && h->record.held) {
        apply(h, &h->reservation, on_applied);
    } else if (result == ERR_OK) {
        go_on(h); /* replayed */
    } else if (result == ERR_CONFLICT) {
        count_reservation_conflict((int)h->strategy);
        try_again(h);
    } else if (result == ERR_SEAT_TAKEN) {
        seats_are_taken(h);
    } else {
        refuse(h, result);
    }
}

static void write_seats(struct holding *h) {
    int64_t now_ms = clock_wall_ms();
    struct uuid id = uuid_new(now_ms);
    fill_in(h, &id, now_ms, now_ms + h->terms.hold_ms);
    enum err refused = submit(h, 0, on_written);
    if (refused != ERR_OK) refuse(h, refused);
}

/* ---- step: see whether the user is still there ---- */

static void on_given_back(struct follow_op *f) {
    struct holding *h = CONTAINER_OF(f, struct holding, follow);
    refuse_gone(h, h->news.status == RESERVATION_EXPIRED);
}

/* The seats go back, also if somebody else was faster to give them back. */
static void on_back_written(struct task *task) {
    struct holding *h = CONTAINER_OF(task, struct holding, cancel.record.task);
    enum err result = h->cancel.record.result;
    mem_free(h->cancel.stored);
    if (h->cancel.cancelled) count(COUNT_RESERVATION_CANCELS, 1);
    if (h->cancel.expired) count(COUNT_RESERVATION_EXPIRIES, 1);
    if (result == ERR_OK)
        follow(h, &h->reservation.id, RESERVATION_CANCELLED, on_given_back);
    else if (result == ERR_HOLD_EXPIRED)
        follow(h, &h->reservation.id, RESERVATION_EXPIRED, on_given_back);
    else
        refuse(h, result);
}

static void on_place_seen(struct room_looking *look, enum err result) {
    struct holding *h = CONTAINER_OF(look, struct holding, look);
    if (result != ERR_OK || look->item.place.status != ENTRY_LEFT) {
        go_on(h);
        return;
    }
    h->cancel =
        (struct ledger_cancel){.record = {.kind = LEDGER_CANCEL, .task.run = on_back_written},
                               .id = h->reservation.id,
                               .user = h->user,
                               .now_ms = clock_wall_ms()};
    enum err refused = ledger_submit(h->service->ledger, &h->cancel.record);
    if (refused != ERR_OK) refuse(h, refused);
}

/* Who leaves gives back what the hot store knows to be held. Of this hold it has known only since
 * the commit: if the user left meanwhile, it is given back here. */
static void see_place(struct holding *h) {
    if (hold_is_replayed(h)) {
        go_on(h);
        return;
    }
    h->look = (struct room_looking){
        .look.op.event_key = h->terms.event_key, .item.seq = h->entry_seq, .done = on_place_seen};
    waiting_room_look(h->service->room, &h->look);
}
