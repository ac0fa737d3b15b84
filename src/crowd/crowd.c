/* The engine: arrivals, sleeps, steps, and the numbers that others read. */
#include "crowd/crowd.h"

#include <assert.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/mem.h"
#include "base/thread.h"
#include "crowd/internal.h"
#include "net/address.h"
#include "run/worker.h"

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* How often timeouts are looked for, and percentiles computed. */
#define CHECK_NS (250 * NS_PER_MS)
/* Percentiles and rates are those of the last one to two windows. */
#define WINDOW_NS (5 * NS_PER_S)
/* How long users have to give their places back. */
#define LEAVE_NS (10 * NS_PER_S)
/* A stream without a byte, heartbeats included, counts as broken. */
#define SILENCE_MS 60000
/* How often a request without an answer is tried. */
#define FAILURES_MAX 5
#define FAILURE_PAUSE_MS 500
/* Users who poll: all of them together ask that often, but each every two seconds at most. */
#define POLLS_PER_S 500
#define POLL_MS_MIN 2000
#define POLL_MS_MAX 60000

struct crowd {
    struct crowd_options options;
    char host[ADDRESS_TEXT_BYTES];
    struct worker worker;
    int timer_fd;

    /* The thread's own. */
    uv_poll_t timer;
    uv_prepare_t prepare;
    struct client *client;
    struct crowd_plan plan;
    struct user **users; /* by number; NULL: not there yet, or ended */
    struct list live;
    struct heap sleeps; /* number and wake, by time */
    int64_t armed_ns;   /* for when the timer is set; 0: it is not */
    int64_t arrived;
    int64_t last_arrival_ns;
    int64_t next_check_ns;
    int64_t leave_until_ns;
    int64_t started_ns;
    uint64_t random;
    int64_t pollers; /* users that sleep until their next poll */
    struct latency all;
    struct latency windows[2]; /* this one, and the one before */
    int64_t window_started_ns;
    int64_t window_requests[2];
    int64_t earlier_ns; /* how long the window before was */
    struct crowd_numbers numbers;

    struct task stop; /* the last one that reaches the thread */
    pthread_mutex_t lock;
    struct crowd_numbers shown; /* under lock: a copy of the numbers */
};

struct crowd_order {
    struct task task;
    struct crowd *crowd;
    struct crowd_plan plan;
};

#define CROWD_STATE_WORD(symbol, word) STR_INIT(word),
const str crowd_state_words[] = {CROWD_STATE_MAP(CROWD_STATE_WORD)};

/* ---- what scenarios ask ---- */

const struct crowd_options *user_options(const struct user *u) {
    return &u->crowd->options;
}

const char *user_host(const struct user *u) {
    return u->crowd->host;
}

int64_t user_buy_percent(const struct user *u) {
    return u->crowd->plan.buy_percent;
}

int64_t user_patience_ms(const struct user *u) {
    int64_t until_ns = u->arrived_ns + u->crowd->plan.patience_ms * NS_PER_MS;
    return (until_ns - clock_steady_ns()) / NS_PER_MS;
}

/* xorshift64* */
uint64_t user_random(struct user *u, uint64_t below) {
    uint64_t x = u->crowd->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    u->crowd->random = x;
    return (x * UINT64_C(0x2545F4914F6CDD1D) >> 32) % below;
}

int64_t user_poll_ms(const struct user *u) {
    int64_t ms = u->crowd->numbers.users[CROWD_WAITING] * 1000 / POLLS_PER_S;
    return ms < POLL_MS_MIN ? POLL_MS_MIN : ms > POLL_MS_MAX ? POLL_MS_MAX : ms;
}

void user_enter_state(struct user *u, enum crowd_state state) {
    u->crowd->numbers.users[u->state]--;
    u->crowd->numbers.users[state]++;
    u->state = state;
}

void user_count_seats(struct user *u, int64_t bought) {
    u->crowd->numbers.seats_bought += bought;
}

/* ---- sleeping ---- */

static void user_wake_at(struct user *u, int64_t at_ns) {
    u->wake++;
    heap_push(&u->crowd->sleeps, at_ns, (uint64_t)u->number << 32 | u->wake);
}

static const struct step *user_step(const struct user *u) {
    return &u->crowd->options.scenario->steps[u->step];
}

/* Whether the end of the patience ends what the user does now: not a purchase. */
static bool user_loses_patience(const struct user *u) {
    return u->state < CROWD_HOLDING && !user_step(u)->is_parting;
}

static void user_sleep(struct user *u, int64_t ms) {
    int64_t patience_ms = user_patience_ms(u);
    if (patience_ms < 0) patience_ms = 0;
    if (user_loses_patience(u) && ms > patience_ms) ms = patience_ms + 1;
    u->is_asleep = true;
    user_wake_at(u, clock_steady_ns() + ms * NS_PER_MS);
}

/* ---- steps ---- */

static void user_advance(struct user *u, enum outcome outcome);

static void user_free(struct user *u) {
    struct crowd *c = u->crowd;
    if (u->is_asking) client_cancel(c->client, &u->request);
    list_remove(&u->link);
    c->users[u->number] = NULL;
    mem_free(u);
}

static void user_end(struct user *u) {
    if (u->state < CROWD_BOUGHT) user_enter_state(u, u->end);
    user_free(u);
}

static void user_note_end(struct user *u, enum outcome outcome) {
    if (outcome == OUTCOME_NO) u->end = CROWD_GAVE_UP;
    if (outcome == OUTCOME_REFUSED) u->end = CROWD_REFUSED;
    if (outcome == OUTCOME_FAILED) u->end = CROWD_FAILED;
}

/* When the crowd leaves, a user goes to the parting step, unless the journey ends here anyway. */
static unsigned user_next_step(struct user *u, enum outcome outcome) {
    const struct crowd *c = u->crowd;
    unsigned next = user_step(u)->next[outcome];
    bool is_parting = next == STEP_END || next == c->options.scenario->parting;
    if (!c->numbers.is_leaving || is_parting) return next;
    user_note_end(u, OUTCOME_NO);
    u->delay_ms = 0;
    return c->options.scenario->parting;
}

/* Goes on until an answer or a sleep is awaited, or the user has ended. */
static void user_advance(struct user *u, enum outcome outcome) {
    while (outcome != OUTCOME_PENDING) {
        assert(outcome < OUTCOMES);
        user_note_end(u, outcome);
        unsigned next = user_next_step(u, outcome);
        if (next == STEP_END) {
            user_end(u);
            return;
        }
        u->step = (unsigned char)next;
        int64_t delay_ms = u->delay_ms;
        u->delay_ms = 0;
        if (delay_ms > 0) {
            user_sleep(u, delay_ms);
            return;
        }
        outcome = user_step(u)->begin(u);
    }
}

/* The same step again, after a while. */
static void user_repeat(struct user *u, int64_t delay_ms) {
    user_sleep(u, delay_ms + (int64_t)user_random(u, (uint64_t)delay_ms / 4 + 1));
}

/* No answer, or one that says that the server can't just now. True: the user tries again, or has
 * given up. */
static bool user_handle_failure(struct user *u, const struct answer *a) {
    struct crowd *c = u->crowd;
    bool is_refused = a->status == 429;
    bool is_failed = a->status == 0 || a->status >= 500;
    if (!is_refused && !is_failed) {
        u->failures = 0;
        return false;
    }
    if (user_step(u)->is_parting) return false;
    if (u->failures < FAILURES_MAX) u->failures++;
    bool may_repeat = u->failures < FAILURES_MAX;
    /* As long as the server says when to try again, only the patience ends it. */
    if (user_loses_patience(u))
        may_repeat = (may_repeat || a->retry_after_s > 0) && user_patience_ms(u) > 0;
    if (may_repeat && !c->numbers.is_leaving)
        user_repeat(u, a->retry_after_s > 0 ? a->retry_after_s * 1000 : FAILURE_PAUSE_MS);
    else
        user_advance(u, is_refused ? OUTCOME_REFUSED : OUTCOME_FAILED);
    return true;
}

static void user_on_answer(struct client_request *r, const struct answer *a) {
    struct user *u = CONTAINER_OF(r, struct user, request);
    struct crowd *c = u->crowd;
    int64_t now_ns = clock_steady_ns();
    u->is_asking = false;
    c->numbers.requests++;
    c->window_requests[0]++;
    if (a->status == 0) c->numbers.unanswered++;
    if (!r->is_stream) {
        int64_t us = (now_ns - u->due_ns) / 1000;
        latency_add(&c->all, us);
        latency_add(&c->windows[0], us);
    }
    u->due_ns = now_ns;
    if (r->is_stream && u->heard != OUTCOME_PENDING)
        user_advance(u, u->heard);
    else if (!user_handle_failure(u, a))
        user_advance(u, user_step(u)->answered(u, a));
}

enum outcome user_ask(struct user *u, void (*write)(struct client_request *r, struct buf *out)) {
    u->request.is_stream = false;
    /* Those who have a place would otherwise stand still while a crowd arrives. */
    u->request.is_urgent = u->state != CROWD_ARRIVING;
    u->request.write = write;
    u->request.done = user_on_answer;
    u->is_asking = true;
    client_send(u->crowd->client, &u->request);
    return OUTCOME_PENDING;
}

bool user_listen(struct user *u, void (*write)(struct client_request *r, struct buf *out),
                 bool (*on_event)(struct client_request *r, const struct stream_event *e)) {
    if (!client_has_stream(u->crowd->client)) return false;
    u->request.is_stream = true;
    u->request.write = write;
    u->request.on_event = on_event;
    u->request.done = user_on_answer;
    u->is_asking = true;
    u->heard = OUTCOME_PENDING;
    client_send(u->crowd->client, &u->request);
    user_wake_at(u, clock_steady_ns() + user_patience_ms(u) * NS_PER_MS);
    return true;
}

/* ---- time ---- */

/* The timer of a user is due. While a stream is open, the timer stands for the end of the patience;
 * if crowd_change has extended the patience, the timer is set again. */
static void user_wake(struct user *u, int64_t due_ns) {
    if (u->is_asleep) {
        bool gives_up = user_loses_patience(u) && user_patience_ms(u) <= 0;
        u->is_asleep = false;
        u->due_ns = due_ns;
        user_advance(u, gives_up ? OUTCOME_NO : user_step(u)->begin(u));
    } else if (u->is_asking && u->request.is_stream) {
        if (user_patience_ms(u) > 0) {
            user_wake_at(u, clock_steady_ns() + (user_patience_ms(u) + 1) * NS_PER_MS);
            return;
        }
        client_cancel(u->crowd->client, &u->request);
        u->is_asking = false;
        user_advance(u, OUTCOME_NO);
    }
}

static void crowd_wake_users(struct crowd *c, int64_t now_ns) {
    const struct heap_item *first;
    while ((first = heap_first(&c->sleeps)) != NULL && first->key <= now_ns) {
        int64_t due_ns = first->key;
        struct user *u = c->users[first->value >> 32];
        bool is_current = u != NULL && u->wake == (uint32_t)first->value;
        heap_pop(&c->sleeps);
        if (is_current) user_wake(u, due_ns);
    }
}

static void crowd_add_user(struct crowd *c, int64_t due_ns) {
    struct user *u = mem_new(sizeof *u);
    u->crowd = c;
    u->number = (uint32_t)c->arrived++;
    u->arrived_ns = due_ns;
    u->due_ns = due_ns;
    u->end = CROWD_BOUGHT;
    list_init(&u->link);
    list_init(&u->request.link);
    list_move_last(&c->live, &u->link);
    c->users[u->number] = u;
    user_advance(u, user_step(u)->begin(u));
}

static bool crowd_expects_users(const struct crowd *c) {
    return c->arrived < c->options.users && !c->numbers.is_leaving;
}

static int64_t next_arrival_ns(const struct crowd *c) {
    return c->last_arrival_ns + NS_PER_S / c->plan.arrivals_per_s;
}

static void crowd_let_arrive(struct crowd *c, int64_t now_ns) {
    while (crowd_expects_users(c) && next_arrival_ns(c) <= now_ns) {
        c->last_arrival_ns = next_arrival_ns(c);
        crowd_add_user(c, c->last_arrival_ns);
    }
}

static void crowd_update_rates(struct crowd *c, int64_t now_ns) {
    struct crowd_numbers *n = &c->numbers;
    const struct latency *of = &c->all;
    struct latency recent;
    int64_t over_ns = now_ns - c->started_ns;
    int64_t requests = n->requests;
    if (!n->has_ended) {
        recent = c->windows[0];
        latency_merge(&recent, &c->windows[1]);
        of = &recent;
        over_ns = now_ns - c->window_started_ns + c->earlier_ns;
        requests = c->window_requests[0] + c->window_requests[1];
    }
    n->p50_us = latency_at(of, 50);
    n->p99_us = latency_at(of, 99);
    n->requests_per_s = over_ns > 0 ? (double)requests * 1e9 / (double)over_ns : 0;
}

static void crowd_turn_window(struct crowd *c, int64_t now_ns) {
    c->windows[1] = c->windows[0];
    latency_clear(&c->windows[0]);
    c->window_requests[1] = c->window_requests[0];
    c->window_requests[0] = 0;
    c->earlier_ns = now_ns - c->window_started_ns;
    c->window_started_ns = now_ns;
}

/* The client is closed first: otherwise each connection that becomes free would be given to one of
 * the users who are dropped next. */
static void crowd_drop_users(struct crowd *c) {
    client_close(c->client);
    while (!list_empty(&c->live)) {
        struct user *u = CONTAINER_OF(c->live.next, struct user, link);
        if (u->end == CROWD_BOUGHT) u->end = CROWD_GAVE_UP;
        user_end(u);
    }
}

static void crowd_check(struct crowd *c, int64_t now_ns) {
    c->next_check_ns = now_ns + CHECK_NS;
    client_check(c->client);
    if (c->numbers.is_leaving && now_ns >= c->leave_until_ns) crowd_drop_users(c);
    if (now_ns - c->window_started_ns >= WINDOW_NS) crowd_turn_window(c, now_ns);
    crowd_update_rates(c, now_ns);
}

static void crowd_on_timer(uv_poll_t *timer, int status, int events) {
    struct crowd *c = timer->data;
    uint64_t times;
    (void)status;
    (void)events;
    ssize_t got = read(c->timer_fd, &times, sizeof times);
    if (got > 0) c->armed_ns = 0;
    int64_t now_ns = clock_steady_ns();
    if (c->numbers.has_ended) return;
    crowd_let_arrive(c, now_ns);
    crowd_wake_users(c, now_ns);
    if (now_ns >= c->next_check_ns) crowd_check(c, now_ns);
}

/* ---- before each wait of the loop ---- */

static void crowd_arm(struct crowd *c) {
    int64_t due_ns = c->next_check_ns;
    const struct heap_item *first = heap_first(&c->sleeps);
    if (first != NULL && first->key < due_ns) due_ns = first->key;
    if (crowd_expects_users(c) && next_arrival_ns(c) < due_ns) due_ns = next_arrival_ns(c);
    if (due_ns == c->armed_ns) return;
    c->armed_ns = due_ns;
    struct itimerspec at = {
        .it_value = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S}};
    int failed = timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    assert(failed == 0);
}

static void crowd_show(struct crowd *c) {
    c->numbers.connections = client_connections(c->client);
    c->numbers.streams = client_streams(c->client);
    pthread_mutex_lock(&c->lock);
    c->shown = c->numbers;
    pthread_mutex_unlock(&c->lock);
}

static void crowd_on_prepare(uv_prepare_t *prepare) {
    struct crowd *c = prepare->data;
    if (!c->numbers.has_ended && !crowd_expects_users(c) && list_empty(&c->live)) {
        c->numbers.has_ended = true;
        client_close(c->client);
        crowd_update_rates(c, clock_steady_ns());
        uv_poll_stop(&c->timer);
    }
    if (!c->numbers.has_ended) crowd_arm(c);
    crowd_show(c);
}

/* ---- orders from other threads ---- */

/* Those who wait look at the new patience. */
static void crowd_wake_impatient(struct crowd *c) {
    for (struct list *l = c->live.next; l != &c->live; l = l->next) {
        struct user *u = CONTAINER_OF(l, struct user, link);
        bool listens = u->is_asking && u->request.is_stream;
        bool gives_up = user_loses_patience(u) && user_patience_ms(u) <= 0;
        if (listens || (u->is_asleep && gives_up)) user_wake_at(u, clock_steady_ns());
    }
}

static void crowd_on_change(struct task *task) {
    struct crowd_order *o = CONTAINER_OF(task, struct crowd_order, task);
    struct crowd *c = o->crowd;
    c->plan = o->plan;
    /* A slower rate before must not make users of the time before due now. */
    int64_t earliest_ns = clock_steady_ns() - NS_PER_S / c->plan.arrivals_per_s;
    if (c->last_arrival_ns < earliest_ns) c->last_arrival_ns = earliest_ns;
    crowd_wake_impatient(c);
    mem_free(o);
}

/* Users who await an answer leave when it has arrived: it may give them a place or seats. */
static void crowd_on_leave(struct task *task) {
    struct crowd_order *o = CONTAINER_OF(task, struct crowd_order, task);
    struct crowd *c = o->crowd;
    mem_free(o);
    if (c->numbers.is_leaving) return;
    c->numbers.is_leaving = true;
    c->leave_until_ns = clock_steady_ns() + LEAVE_NS;
    for (struct list *l = c->live.next, *next; l != &c->live; l = next) {
        struct user *u = CONTAINER_OF(l, struct user, link);
        next = l->next;
        bool listens = u->is_asking && u->request.is_stream;
        if (user_step(u)->is_parting || (!u->is_asleep && !listens)) continue;
        if (listens) client_cancel(c->client, &u->request);
        u->is_asking = false;
        u->is_asleep = false;
        u->wake++;
        user_advance(u, OUTCOME_NO);
    }
}

static void crowd_on_stop(struct task *task) {
    struct crowd *c = CONTAINER_OF(task, struct crowd, stop);
    crowd_drop_users(c);
    uv_close((uv_handle_t *)&c->timer, NULL);
    uv_close((uv_handle_t *)&c->prepare, NULL);
    worker_stop(&c->worker);
}

/* ---- the interface ---- */

static void crowd_deinit(struct crowd *c) {
    close(c->timer_fd);
    heap_deinit(&c->sleeps);
    mem_free(c->users);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* On the caller's thread, before the crowd's one runs. */
static void crowd_prepare(struct crowd *c) {
    struct client_options client = {.server = c->options.server,
                                    .connections_max = c->options.connections_max,
                                    .streams_max = c->options.streams_max,
                                    .timeout_ms = c->options.timeout_ms,
                                    .silence_ms = SILENCE_MS};
    c->client = client_new(&c->worker.loop, &client);
    uv_poll_init(&c->worker.loop, &c->timer, c->timer_fd);
    c->timer.data = c;
    uv_poll_start(&c->timer, UV_READABLE, crowd_on_timer);
    uv_prepare_init(&c->worker.loop, &c->prepare);
    c->prepare.data = c;
    uv_prepare_start(&c->prepare, crowd_on_prepare);
    c->started_ns = clock_steady_ns();
    c->window_started_ns = c->started_ns;
    c->last_arrival_ns = c->started_ns;
    c->next_check_ns = c->started_ns + CHECK_NS;
    c->numbers.users[CROWD_ARRIVING] = c->options.users;
    c->shown = c->numbers;
}

struct crowd *crowd_start(const struct crowd_options *options) {
    assert(options->users > 0 && options->users <= CROWD_USERS_MAX);
    assert(options->plan.arrivals_per_s > 0 && options->connections_max > 0);
    struct crowd *c = mem_new(sizeof *c);
    c->options = *options;
    c->plan = options->plan;
    endpoint_format(&options->server, c->host);
    list_init(&c->live);
    pthread_mutex_init(&c->lock, NULL);
    c->users = mem_new((size_t)options->users * sizeof(struct user *));
    ssize_t got = getrandom(&c->random, sizeof c->random, 0);
    assert(got == sizeof c->random);
    c->random |= 1; /* xorshift never leaves 0 */
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (c->timer_fd < 0 || worker_init(&c->worker) != 0) {
        if (c->timer_fd >= 0) close(c->timer_fd);
        c->timer_fd = -1;
        mem_free(c->users);
        pthread_mutex_destroy(&c->lock);
        mem_free(c);
        return NULL;
    }
    crowd_prepare(c);
    c->stop.run = crowd_on_stop;
    if (worker_start(&c->worker) == 0) {
        thread_set_name(c->worker.thread, "crowd", THREAD_ALONE);
        return c;
    }
    /* Its loop runs here, once, to close what is on it. */
    struct mailbox *mine = mailbox_mine();
    mailbox_set_mine(&c->worker.mailbox);
    crowd_on_stop(&c->stop);
    uv_run(&c->worker.loop, UV_RUN_DEFAULT);
    mailbox_set_mine(mine);
    uv_loop_close(&c->worker.loop);
    mailbox_deinit(&c->worker.mailbox);
    client_free(c->client);
    crowd_deinit(c);
    return NULL;
}

static void crowd_order(struct crowd *c, void (*run)(struct task *),
                        const struct crowd_plan *plan) {
    struct crowd_order *o = mem_new(sizeof *o);
    o->task.run = run;
    o->crowd = c;
    if (plan != NULL) o->plan = *plan;
    mailbox_post(&c->worker.mailbox, &o->task);
}

void crowd_change(struct crowd *c, const struct crowd_plan *plan) {
    assert(plan->arrivals_per_s > 0);
    crowd_order(c, crowd_on_change, plan);
}

void crowd_leave(struct crowd *c) {
    crowd_order(c, crowd_on_leave, NULL);
}

void crowd_read(struct crowd *c, struct crowd_numbers *out) {
    pthread_mutex_lock(&c->lock);
    *out = c->shown;
    pthread_mutex_unlock(&c->lock);
}

const struct latency *crowd_latency(const struct crowd *c) {
    return &c->all;
}

void crowd_free(struct crowd *c) {
    mailbox_post(&c->worker.mailbox, &c->stop);
    worker_join(&c->worker);
    client_free(c->client);
    crowd_deinit(c);
}
