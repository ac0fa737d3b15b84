/*
 * Asynchronous requests. In the order in which it happens: a request is accepted; the feed delivers
 * it, and it waits until it may be started; its seats are held; its result is written; and it is
 * acknowledged. Then the lookup of requests and of their positions.
 *
 * Order. The decisions of a partition are in a list until their outcome is known. One that asks for
 * the same as an earlier one in the list is not started before that one's outcome is known, except
 * where the hot store decides in one atomic step (strategy slot): there the order of the calls is
 * the order of the decisions, so many are under way at the same time and share a commit. When a
 * commit fails, those that were under way are tried again in their order; but one that was in
 * another commit may have succeeded before an earlier one.
 */
#include "service/requests.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "core/sha256.h"
#include "run/mailbox.h"

/* The delay before the second try; it doubles with each try, up to the maximum. */
#define DELAY_MS_FIRST 20
#define DELAY_MS_MAX 2000
/* Another node may have accepted a request for an event or a section that this node has not heard
 * of yet: for so long it is not said to be missing. */
#define ABSENT_MS 5000
/* How old positions may be. */
#define POSITIONS_NS INT64_C(200000000)

struct decision {
    struct requests_worker *worker;
    struct feed_message *message;
    struct list link; /* in the list of its partition, until the outcome is known */
    bool is_started;
    bool is_claimed; /* strategy slot: the hot store has been called, and nothing has failed */
    struct arena arena;
    struct hold hold;
    struct idempotency key;
    char key_text[UUID_TEXT_BYTES];
    struct request decided; /* with the result */
    struct ledger_request_decide record;
    int tries;
    struct retry_delay delay;
    void (*again)(struct decision *d); /* what is tried again after the delay */
};

typedef void decision_step(struct decision *d);
static decision_step decision_start, decision_write;
static void decision_on_held(struct hold *h, enum err result);
static void decision_on_written(struct task *task);
static void decision_end(struct decision *d, bool is_decided);

/* ---- accepting ---- */

struct uuid requests_id_of_key(str user, str route, str key) {
    struct buf text = {0};
    unsigned char digest[SHA256_BYTES];
    buf_add(&text, route);
    buf_add_char(&text, '\n');
    buf_add(&text, user);
    buf_add_char(&text, '\n');
    buf_add(&text, key);
    sha256_of(buf_str(&text), digest);
    buf_deinit(&text);
    return uuid_of_digest(digest);
}

static void requests_on_published(struct feed_publish *p);

void requests_accept(struct requests_worker *w, struct request_acceptance *a) {
    a->worker = w;
    a->publish.done = requests_on_published;
    feed_publish(w->service->feed, &a->publish);
}

/* Announced together: the task runs when all records of the batch that was committed have come
 * back. */
static void news_post(struct requests_worker *w) {
    if (w->news.is_posted) return;
    w->news.is_posted = true;
    atomic_fetch_add(&w->service->in_flight, 1);
    mailbox_post(mailbox_mine(), &w->news.task);
}

static void requests_on_published(struct feed_publish *p) {
    struct request_acceptance *a = CONTAINER_OF(p, struct request_acceptance, publish);
    struct requests_worker *w = a->worker;
    if (p->result == ERR_OK && p->is_new && w->service->hot != NULL) {
        w->news.accepted[p->request->partition] = true;
        news_post(w);
    }
    a->done(a);
}

static void requests_on_news(struct task *task) {
    struct requests_worker *w = CONTAINER_OF(task, struct requests_worker, news.task);
    int64_t partitions[REQUEST_PARTITIONS];
    size_t count_of = 0;
    w->news.is_posted = false;
    for (int p = 0; p < REQUEST_PARTITIONS; p++) {
        if (w->news.accepted[p]) partitions[count_of++] = p;
        w->news.accepted[p] = false;
    }
    if (count_of > 0) hot_announce_accepted(w->service->hot, partitions, count_of);
    if (w->news.decided_count > 0)
        hot_announce_decided(w->service->hot, w->news.decided, w->news.decided_count);
    w->news.decided_count = 0;
    atomic_fetch_sub(&w->service->in_flight, 1);
}

void requests_nudge(struct requests *r, const int64_t *partitions, size_t count_of) {
    for (size_t i = 0; i < count_of; i++) feed_nudge(r->feed, (int)partitions[i]);
}

/* ---- the order of decisions ---- */

static bool decision_asks_for_same(const struct request *a, const struct request *b) {
    bool one_seat_a = a->seats != NULL && a->quantity == 1;
    bool one_seat_b = b->seats != NULL && b->quantity == 1;
    if (a->section_key != b->section_key || one_seat_a != one_seat_b) return false;
    return !one_seat_a || a->seats[0] == b->seats[0];
}

/* Whether an earlier one must be decided first. */
static bool decision_must_wait(const struct decision *d, const struct list *all) {
    for (const struct list *at = all->next; at != &d->link; at = at->next) {
        const struct decision *earlier = CONTAINER_OF(at, struct decision, link);
        if (!earlier->is_claimed &&
            decision_asks_for_same(earlier->message->request, d->message->request))
            return true;
    }
    return false;
}

/* Starts every decision that may be started. A decision may end, and so change the list, before
 * decision_start returns: then the list is walked again from its beginning. */
static void decisions_start(struct requests_worker *w, int partition) {
    struct list *all = &w->decisions[partition];
    if (w->is_starting) return;
    w->is_starting = true;
    for (struct list *at = all->next; at != all;) {
        struct decision *d = CONTAINER_OF(at, struct decision, link);
        at = at->next;
        if (d->is_started || decision_must_wait(d, all)) continue;
        decision_start(d);
        at = all->next;
    }
    w->is_starting = false;
}

static void requests_on_delivered(struct feed_consumer *consumer, struct feed_message *m) {
    struct requests_worker *w = CONTAINER_OF(consumer, struct requests_worker, consumer);
    struct decision *d = mem_new(sizeof *d);
    d->worker = w;
    d->message = m;
    list_init(&d->link);
    list_move_last(&w->decisions[m->request->partition], &d->link);
    atomic_fetch_add(&w->service->in_flight, 1);
    decisions_start(w, m->request->partition);
}

/* ---- trying again ---- */

static void decision_on_delay_over(struct retry_delay *delay) {
    struct decision *d = CONTAINER_OF(delay, struct decision, delay);
    if (d->worker->is_draining) {
        decision_end(d, false);
    } else if (d->again == decision_start) {
        d->is_started = false; /* an earlier one may have to be started first */
        decisions_start(d->worker, d->message->request->partition);
    } else {
        d->again(d);
    }
}

static void decision_try_again(struct decision *d, decision_step *step) {
    if (d->worker->is_draining) {
        decision_end(d, false);
        return;
    }
    int64_t ms_max = DELAY_MS_FIRST;
    for (int i = 0; i < d->tries && ms_max < DELAY_MS_MAX; i++) ms_max *= 2;
    d->tries++;
    d->is_claimed = false;
    d->again = step;
    d->delay.done = decision_on_delay_over;
    count(COUNT_REQUEST_RETRIES, 1);
    lock_client_delay(d->worker->lock_client, &d->delay, ms_max);
}

/* ---- the hold ---- */

/* On what terms the section sells now. OK, or why nothing can be held. */
static enum err decision_read_terms(struct decision *d) {
    const struct request *r = d->message->request;
    struct catalogue *c = d->worker->service->events->catalogue;
    const struct section *section = NULL;
    catalogue_read_lock(c);
    const struct event *e = catalogue_find_key(c, r->event_key);
    if (e != NULL) catalogue_find_section(c, r->section_key, &section);
    if (section != NULL) hold_terms_copy(&d->hold.terms, e, section);
    catalogue_read_unlock(c);
    if (e == NULL) return ERR_EVENT_NOT_FOUND;
    return section == NULL ? ERR_SECTION_NOT_FOUND : ERR_OK;
}

static bool is_absence(enum err e) {
    return e == ERR_EVENT_NOT_FOUND || e == ERR_SECTION_NOT_FOUND;
}

/* The outcome is known: the next ones of the partition may start. */
static void decision_decide(struct decision *d, enum err result) {
    struct requests_worker *w = d->worker;
    const struct request *r = d->message->request;
    d->decided = *r;
    d->decided.status = request_status_of(result);
    d->decided.finished_ms = clock_wall_ms();
    if (result == ERR_OK) {
        bool is_replayed = d->key.replayed;
        d->decided.reservation = is_replayed ? d->key.reservation : d->hold.reservation.id;
    } else {
        bool fits = str_copy(err_code(result), d->decided.reason, sizeof d->decided.reason);
        assert(fits);
    }
    /* The row of one that cannot be read is decided all the same. */
    if (d->decided.quantity == 0) d->decided.quantity = 1;
    if (d->decided.user[0] == '\0') d->decided.user[0] = '?';
    int partition = r->partition;
    d->tries = 0;
    list_remove(&d->link);
    decision_write(d);
    decisions_start(w, partition);
}

static void decision_start(struct decision *d) {
    struct requests *service = d->worker->service;
    const struct request *r = d->message->request;
    struct hold *h = &d->hold;
    d->is_started = true;
    if (!events_are_current(service->events)) {
        decision_try_again(d, decision_start);
        return;
    }
    *h = (struct hold){.arena = &d->arena};
    arena_rewind(&d->arena);
    enum err refused = r->quantity == 0 ? ERR_INTERNAL : decision_read_terms(d);
    if (is_absence(refused) && service->events->sync != NULL &&
        clock_wall_ms() - r->created_ms < ABSENT_MS) {
        decision_try_again(d, decision_start);
        return;
    }
    if (refused != ERR_OK) {
        decision_decide(d, refused);
        return;
    }
    uuid_format(&r->id, d->key_text);
    d->key = (struct idempotency){.user = str_of(r->user),
                                  .route = STR(REQUEST_ROUTE),
                                  .key = {d->key_text, sizeof d->key_text}};
    memcpy(d->key.digest, r->digest, sizeof d->key.digest);
    d->key.digest[0] |= 1; /* never that of a failure, which is all zeroes */
    h->user = str_of(r->user);
    h->entry_seq = r->entry_seq;
    h->count = r->quantity;
    h->named = r->seats;
    h->strategy =
        strategy_fits(h->terms.mode, r->strategy) ? r->strategy : strategy_default(h->terms.mode);
    h->idempotency = &d->key;
    memcpy(&h->key.key, r->id.bytes + 8, sizeof h->key.key);
    memcpy(&h->key.request, r->digest, sizeof h->key.request);
    h->always = true; /* bounded by FEED_WINDOW */
    h->done = decision_on_held;
    d->is_claimed = h->strategy == STRATEGY_SLOT;
    hold_seats(service->reservations, d->worker->lock_client, h);
}

/* Waits for locks end when the server stops: only a success counts then. The section's mode may
 * have changed since it was read: then the strategy is chosen again. */
static void decision_on_held(struct hold *h, enum err result) {
    struct decision *d = CONTAINER_OF(h, struct decision, hold);
    bool is_undecided = err_status(result) >= 500 || result == ERR_STRATEGY_NOT_ALLOWED;
    if (is_undecided || (result != ERR_OK && d->worker->is_draining))
        decision_try_again(d, decision_start);
    else
        decision_decide(d, result);
}

/* ---- the result ---- */

static void decision_write(struct decision *d) {
    d->record = (struct ledger_request_decide){
        .record = {.kind = LEDGER_REQUEST_DECIDE, .task.run = decision_on_written, .always = true},
        .wanted = &d->decided,
        .fence = d->message->fence};
    enum err refused = ledger_submit(d->worker->service->ledger, &d->record.record);
    if (refused != ERR_OK) decision_try_again(d, decision_write);
}

static void decision_on_written(struct task *task) {
    struct decision *d = CONTAINER_OF(task, struct decision, record.record.task);
    struct requests_worker *w = d->worker;
    struct requests *service = w->service;
    if (d->record.record.result == ERR_LOCK_LOST) {
        decision_end(d, false); /* another node has the partition, and decides it */
        return;
    }
    if (d->record.record.result != ERR_OK) {
        decision_try_again(d, decision_write);
        return;
    }
    struct uuid id = d->decided.id;
    if (d->record.decided) {
        int64_t accepted_ms = d->decided.created_ms;
        int64_t took_ms = d->decided.finished_ms - accepted_ms;
        count(COUNT_REQUESTS_SUCCESS + (unsigned)(d->record.status - REQUEST_SUCCESS), 1);
        observe(HISTOGRAM_REQUEST_DECIDED_SECONDS, took_ms > 0 ? (uint64_t)took_ms : 0);
    }
    if (service->hot != NULL && w->news.decided_count < ANNOUNCED_MAX) {
        w->news.decided[w->news.decided_count++] = id;
        news_post(w);
    }
    service->decided(service->to, &id, 1);
    decision_end(d, true); /* the last: a server that stops waits for it */
}

/* Not decided: the request stays in the feed. */
static void decision_end(struct decision *d, bool is_decided) {
    struct requests *service = d->worker->service;
    list_remove(&d->link);
    arena_reset(&d->arena);
    feed_acknowledge(service->feed, d->message, is_decided);
    mem_free(d);
    atomic_fetch_sub(&service->in_flight, 1);
}

/* ---- start and stop ---- */

static void requests_on_tick(void *to) {
    struct requests_worker *w = to;
    feed_tick(w->service->feed, w->number);
}

void requests_worker_init(struct requests_worker *w, uv_loop_t *loop) {
    for (int p = 0; p < REQUEST_PARTITIONS; p++) list_init(&w->decisions[p]);
    list_init(&w->positions.waiting);
    w->news.task.run = requests_on_news;
    ticker_init(&w->ticker, loop, requests_on_tick, w);
    w->consumer.deliver = requests_on_delivered;
}

void requests_worker_start(struct requests_worker *w) {
    if (!w->service->decides) return;
    ticker_start(&w->ticker, FEED_TICK_MS);
    feed_attach(w->service->feed, w->number, &w->consumer);
}

/* Decisions that were not started yet are dropped; the others end by themselves. */
void requests_worker_drain(struct requests_worker *w) {
    w->is_draining = true;
    ticker_stop(&w->ticker);
    if (w->service->decides) feed_drain(w->service->feed, w->number);
    for (int p = 0; p < REQUEST_PARTITIONS; p++) {
        struct list *all = &w->decisions[p];
        for (struct list *at = all->next; at != all;) {
            struct decision *d = CONTAINER_OF(at, struct decision, link);
            at = at->next;
            if (!d->is_started) decision_end(d, false);
        }
    }
}

void requests_worker_close(struct requests_worker *w) {
    ticker_close(&w->ticker);
    for (int p = 0; p < REQUEST_PARTITIONS; p++) mem_free(w->positions.open.partitions[p].seqs);
}

bool requests_is_busy(struct requests *r) {
    return atomic_load(&r->in_flight) > 0 || feed_is_busy(r->feed);
}

/* ---- looking up ---- */

static void requests_on_got(struct task *task);
static void requests_look_end(struct requests_look *l, enum err result);
static void positions_on_read(struct task *task);

void requests_look(struct requests_worker *w, struct requests_look *l) {
    l->worker = w;
    list_init(&l->link);
    atomic_fetch_add(&w->service->in_flight, 1);
    l->get = (struct ledger_requests_get){
        .record = {.kind = LEDGER_REQUESTS_GET, .task.run = requests_on_got},
        .ids = l->ids,
        .count = l->count,
        .found = l->found};
    enum err refused = ledger_ask(w->service->ledger, &l->get.record);
    if (refused != ERR_OK) requests_look_end(l, refused);
}

/* On an error there is nothing to free. */
static void requests_look_end(struct requests_look *l, enum err result) {
    atomic_fetch_sub(&l->worker->service->in_flight, 1);
    l->done(l, result);
}

static void requests_look_fail(struct requests_look *l, enum err result) {
    for (size_t i = 0; i < l->count; i++) mem_free(l->found[i]);
    requests_look_end(l, result);
}

/* How many undecided requests are before it; -1: it is not among them. */
static int64_t positions_find(const struct requests_worker *w, const struct request *r) {
    const struct open_requests *open = &w->positions.open.partitions[r->partition];
    size_t low = 0;
    size_t high = open->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (open->seqs[middle] < r->seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < open->count && open->seqs[low] == r->seq ? (int64_t)low : -1;
}

/* Answers the look if the positions that are known suffice. A request that is not among the
 * undecided ones was accepted after these were read, or was decided since it was looked up. */
static bool requests_look_answer(struct requests_look *l) {
    const struct requests_worker *w = l->worker;
    bool is_newer = w->positions.began_ns >= l->got_ns;
    bool is_recent = is_newer || l->got_ns - w->positions.began_ns < POSITIONS_NS;
    for (size_t i = 0; i < l->count; i++) {
        const struct request *r = l->found[i];
        l->ahead[i] = 0;
        if (r == NULL || request_is_decided(r->status)) continue;
        int64_t ahead = is_recent ? positions_find(w, r) : -1;
        if (ahead < 0 && !is_newer) return false;
        if (ahead > 0) l->ahead[i] = ahead;
    }
    requests_look_end(l, ERR_OK);
    return true;
}

/* Fails every look that waits for it, if it can't be read. */
static void positions_read(struct requests_worker *w) {
    if (w->positions.is_reading || list_empty(&w->positions.waiting)) return;
    w->positions.is_reading = true;
    w->positions.next_began_ns = clock_steady_ns();
    w->positions.next.record =
        (struct ledger_record){.kind = LEDGER_REQUESTS_OPEN, .task.run = positions_on_read};
    enum err refused = ledger_ask(w->service->ledger, &w->positions.next.record);
    if (refused == ERR_OK) return;
    w->positions.next.record.result = refused;
    positions_on_read(&w->positions.next.record.task);
}

static void requests_on_got(struct task *task) {
    struct requests_look *l = CONTAINER_OF(task, struct requests_look, get.record.task);
    if (l->get.record.result != ERR_OK) {
        requests_look_end(l, l->get.record.result);
        return;
    }
    l->got_ns = clock_steady_ns();
    if (requests_look_answer(l)) return;
    struct requests_worker *w = l->worker;
    list_move_last(&w->positions.waiting, &l->link);
    positions_read(w);
}

static void positions_on_read(struct task *task) {
    struct requests_worker *w =
        CONTAINER_OF(task, struct requests_worker, positions.next.record.task);
    enum err result = w->positions.next.record.result;
    w->positions.is_reading = false;
    if (result == ERR_OK) {
        for (int p = 0; p < REQUEST_PARTITIONS; p++) {
            mem_free(w->positions.open.partitions[p].seqs);
            w->positions.open.partitions[p] = w->positions.next.partitions[p];
        }
        w->positions.began_ns = w->positions.next_began_ns;
    }
    /* Looks that come while these are answered wait for the next read. */
    struct list waiting;
    list_init(&waiting);
    while (!list_empty(&w->positions.waiting)) list_move_last(&waiting, w->positions.waiting.next);
    while (!list_empty(&waiting)) {
        struct requests_look *l = CONTAINER_OF(waiting.next, struct requests_look, link);
        list_remove(&l->link);
        if (result != ERR_OK)
            requests_look_fail(l, result);
        else if (!requests_look_answer(l))
            list_move_last(&w->positions.waiting, &l->link);
    }
    positions_read(w);
}
