#include "service_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service_seats.h"

/* ---- start and stop ---- */

static void open_up(struct fixture *h) {
    h->ledger = raw_ledger_open(&(struct sqlite_ledger_options){.path = h->h.path});
    h->hot = memory_new();
    h->catalogue = catalogue_new();
    h->events = (struct events){.ledger = h->ledger,
                                .catalogue = h->catalogue,
                                .queues = memory_queues(h->hot),
                                .seats = memory_seats(h->hot)};
    h->room = (struct waiting_room){.ledger = h->ledger,
                                    .queues = memory_queues(h->hot),
                                    .changed = h->room.changed,
                                    .to = h->room.to};
    waiting_room_init(&h->room);
    h->locks = memory_locks_new(ledger_epoch(h->ledger));
    h->reservations = (struct reservations){
        .ledger = h->ledger,
        .seats = memory_seats(h->hot),
        .room = &h->room,
        .lock_wait_ms = 10000,
        .load.rules = {.calm_below = 100, .hot_above = 1000, .wait_ms = 50, .rest_ms = 5000}};
    reservations_init(&h->reservations);
    h->lock_client = (struct lock_client){.locks = memory_locks_port(h->locks), .lease_ms = 3000};
    lock_client_init(&h->lock_client, &h->h.loop);
}

static void shut_down(struct fixture *h) {
    fixture_wait_idle(h);
    lock_client_close(&h->lock_client);
    uv_run(&h->h.loop, UV_RUN_NOWAIT); /* closes its timer */
    ledger_close(h->ledger);
    reservations_deinit(&h->reservations);
    waiting_room_deinit(&h->room);
    catalogue_free(h->catalogue);
    memory_free(h->hot);
    memory_locks_free(h->locks);
}

void fixture_build_event(struct fixture *h, const struct event *wanted) {
    *h = (struct fixture){0};
    harness_init(&h->h);
    open_up(h);
    struct event *stored = harness_store(&h->h, h->ledger, wanted);
    h->key = stored->key;
    mem_free(stored);
    assert_int_equal(recovery_run(&h->events, clock_wall_ms(), 0), ERR_OK);
}

void fixture_build(struct fixture *h, const struct queue_rules *rules) {
    struct event *wanted = test_event("1", 1);
    wanted->queue = *rules;
    fixture_build_event(h, wanted);
    mem_free(wanted);
}

void fixture_recover(struct fixture *h) {
    shut_down(h);
    open_up(h);
    assert_int_equal(recovery_run(&h->events, clock_wall_ms(), 0), ERR_OK);
}

void fixture_tear_down(struct fixture *h) {
    fixture_stop_workers(h);
    shut_down(h);
    harness_deinit(&h->h);
}

static void init_worker(struct fixture *h, int worker) {
    struct worker *w = &h->workers[worker];
    struct lock_client *d = &h->desks[worker];
    assert_int_equal(worker_init(w), 0);
    *d = (struct lock_client){.locks = h->lock_client.locks, .lease_ms = h->lock_client.lease_ms};
    lock_client_init(d, &w->loop);
}

void fixture_start_workers(struct fixture *h) {
    for (int i = 0; i < FIXTURE_WORKERS; i++) {
        init_worker(h, i);
        assert_int_equal(worker_start(&h->workers[i]), 0);
    }
    h->working = true;
}

void fixture_start_ticking_workers(struct fixture *h, int64_t tick_ms) {
    for (int i = 0; i < FIXTURE_WORKERS; i++) {
        init_worker(h, i);
        h->shares[i] = (struct admission_share){.room = &h->room,
                                                .reservations = &h->reservations,
                                                .catalogue = h->catalogue,
                                                .index = 0, /* all of them tick all events */
                                                .count = 1};
        admission_start(&h->shares[i], &h->workers[i], tick_ms);
        assert_int_equal(worker_start(&h->workers[i]), 0);
    }
    h->working = true;
    h->ticking = true;
}

static void run_errand(struct task *t) {
    struct worker_job *e = (struct worker_job *)t;
    e->work(e);
}

void fixture_send(struct fixture *h, int worker, struct worker_job *e) {
    e->fixture = h;
    e->task.run = run_errand;
    mailbox_post(&h->workers[worker].mailbox, &e->task);
}

struct stop {
    struct task task; /* first, so that a task is its stop */
    struct worker *worker;
    struct lock_client *lock_client;
};

static void stop_worker(struct task *t) {
    struct stop *s = (struct stop *)t;
    lock_client_close(s->lock_client);
    worker_stop(s->worker);
}

struct tick_stop {
    struct worker_job job; /* first, so that an job is its stop */
    struct admission_share *share;
};

static void stop_ticking(struct worker_job *job) {
    admission_stop(((struct tick_stop *)job)->share);
    job->done = true;
}

static bool is_done(void *job) {
    return ((struct worker_job *)job)->done;
}

/* Operations that the ticks began continue without ticks. */
static void stop_ticks(struct fixture *h) {
    for (int i = 0; h->ticking && i < FIXTURE_WORKERS; i++) {
        struct tick_stop stop = {.job.work = stop_ticking, .share = &h->shares[i]};
        fixture_send(h, i, &stop.job);
        harness_wait(&h->h, is_done, &stop.job);
    }
    fixture_wait_idle(h);
}

void fixture_stop_workers(struct fixture *h) {
    stop_ticks(h);
    for (int i = 0; h->working && i < FIXTURE_WORKERS; i++) {
        struct stop stop = {
            .task.run = stop_worker, .worker = &h->workers[i], .lock_client = &h->desks[i]};
        mailbox_post(&h->workers[i].mailbox, &stop.task);
        worker_join(&h->workers[i]);
    }
    for (int i = 0; h->ticking && i < FIXTURE_WORKERS; i++) admission_deinit(&h->shares[i]);
    h->working = false;
    h->ticking = false;
}

void fixture_configure(struct fixture *h, enum event_state state, const struct queue_rules *rules) {
    struct event *e = fixture_event(h);
    e->version++;
    e->state = state;
    if (rules != NULL) e->queue = *rules;
    queues_restore_event(memory_queues(h->hot), e);
    catalogue_install(h->catalogue, e);
}

/* ---- the use cases, one at a time ---- */

struct waiting {
    bool back;
    enum err result;
    size_t admitted;
};

static bool is_back(void *arg) {
    return ((struct waiting *)arg)->back;
}

struct fixture_entering {
    struct place_enter e;
    struct waiting w;
};

static void on_entered(struct place_enter *e, enum err result) {
    CONTAINER_OF(e, struct fixture_entering, e)->w = (struct waiting){true, result, 0};
}

enum err fixture_enter(struct fixture *h, const char *user, unsigned lane,
                       struct place_enter *out) {
    struct fixture_entering e = {
        .e = {.enter = {.op.event_key = h->key, .user = str_of(user), .lane = lane},
              .done = on_entered}};
    waiting_room_enter(&h->room, &e.e);
    harness_wait(&h->h, is_back, &e.w);
    if (out != NULL) *out = e.e;
    return e.w.result;
}

struct fixture_ending {
    struct place_end e;
    struct waiting w;
};

static void on_ended(struct place_end *e, enum err result) {
    CONTAINER_OF(e, struct fixture_ending, e)->w = (struct waiting){true, result, 0};
}

enum err fixture_end(struct fixture *h, uint64_t seq, enum entry_status final) {
    struct fixture_ending e = {
        .e = {.event_key = h->key, .seq = seq, .final = final, .done = on_ended}};
    waiting_room_end(&h->room, &e.e);
    harness_wait(&h->h, is_back, &e.w);
    return e.w.result;
}

struct fixture_looking {
    struct place_look l;
    struct waiting w;
};

static void on_looked(struct place_look *l, enum err result) {
    CONTAINER_OF(l, struct fixture_looking, l)->w = (struct waiting){true, result, 0};
}

enum err fixture_look(struct fixture *h, uint64_t seq, struct place_look *out) {
    struct fixture_looking l = {
        .l = {.look.op.event_key = h->key, .item.seq = seq, .done = on_looked}};
    waiting_room_look(&h->room, &l.l);
    harness_wait(&h->h, is_back, &l.w);
    *out = l.l;
    return l.w.result;
}

static void on_ticked(void *to, enum err result, size_t admitted) {
    *(struct waiting *)to = (struct waiting){true, result, admitted};
}

enum err fixture_tick(struct fixture *h, size_t *admitted) {
    struct waiting w = {0};
    waiting_room_tick(&h->room, h->key, on_ticked, &w);
    harness_wait(&h->h, is_back, &w);
    if (admitted != NULL) *admitted = w.admitted;
    return w.result;
}

static bool is_idle(void *arg) {
    struct fixture *h = arg;
    return !waiting_room_is_busy(&h->room) && !reservations_is_busy(&h->reservations);
}

void fixture_wait_idle(struct fixture *h) {
    harness_wait(&h->h, is_idle, h);
}

static bool is_writable(void *arg) {
    struct ledger_health health;
    ledger_health(((struct fixture *)arg)->ledger, &health);
    return health.writable;
}

void fixture_wait_writable(struct fixture *h) {
    harness_wait(&h->h, is_writable, h);
}

/* ---- the hot store ---- */

static void no_more(struct look_op *l) {
    (void)l;
}

struct place fixture_place(struct fixture *h, uint64_t seq, int64_t now_ms) {
    struct look_item item = {.seq = seq};
    struct look_op l = {
        .op = {.event_key = h->key, .now_ms = now_ms}, .items = &item, .count = 1, .done = no_more};
    queues_look(memory_queues(h->hot), &l);
    return item.place;
}

struct queue_counts fixture_counts(struct fixture *h) {
    struct look_op l = {.op.event_key = h->key, .done = no_more};
    queues_look(memory_queues(h->hot), &l);
    return l.counts;
}

/* ---- both ---- */

struct agreement {
    struct fixture *fixture;
    uint64_t live;
    uint64_t waiting;
};

static void on_entry(void *to, const struct ledger_entry *e) {
    struct agreement *a = to;
    /* At time 0 no entry is over its time, so this reads the stored status. */
    struct place p = fixture_place(a->fixture, e->seq, 0);
    assert_int_equal(p.status, e->status);
    if (e->status == ENTRY_ACTIVE) assert_int_equal(p.expires_ms, e->expires_ms);
    assert_false(p.pending);
    a->live++;
    a->waiting += e->status == ENTRY_WAITING;
}

static void on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    if (finding->violations > 0)
        fail_msg("%.*s: %.*s", (int)finding->invariant.len, finding->invariant.at,
                 (int)finding->examples.len, finding->examples.at);
}

void fixture_assert_agreement(struct fixture *h) {
    struct agreement a = {.fixture = h};
    struct ledger_reader reader = {.on_entry = on_entry, .to = &a};
    assert_int_equal(ledger_load(h->ledger, &reader), ERR_OK);
    struct queue_counts c = fixture_counts(h);
    assert_int_equal(a.waiting, c.waiting);
    assert_int_equal(a.live, c.waiting + c.active);
    fixture_assert_same_seats(h);
    assert_int_equal(ledger_check(h->ledger, true, on_finding, NULL), ERR_OK);
}
