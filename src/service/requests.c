/*
 * Asynchronous requests. In the order in which it happens: a request is accepted; the feed delivers
 * it, and it waits until it may be started; its seats are held; its result is written; and it is
 * acknowledged. Then the lookup of requests.
 *
 * Order. The decisions of a partition are in a list until their outcome is known. One that asks for
 * the same as an earlier one in the list is not started before that one's outcome is known, except
 * where the hot store decides in one atomic step (strategy slot): there the order of the calls is
 * the order of the decisions, so many are under way at the same time and share a commit. Of two
 * messages with the same id, the second always waits until the result of the first is written. When
 * a commit fails, those that were under way are tried again in their order; but one that was in
 * another commit may have succeeded before an earlier one.
 *
 * Ids. Where the feed keeps the requests, other programs produce messages too, and one of these may
 * repeat the id of another user's request. So the ledger is asked first whose request has that id,
 * for all messages that were delivered together. If it is another user's, the message is set aside,
 * and nothing is held. If another worker or node decides the other request after that question, the
 * ledger refuses to write the result of this one: then its hold is cancelled.
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
/* A request that fails so often although the stores work becomes a dead letter, if the feed has
 * those. */
#define TRIES_MAX 20
/* Another node may have accepted a request for an event or a section that this node has not heard
 * of yet: it is not said to be missing before the request is so old, or was delivered so long ago.
 * The time in a message of another program may be in the future. */
#define ABSENT_MS 5000

/* Messages about whose ids the ledger is asked together. */
#define CHECK_MAX 256

struct decision {
    struct requests_worker *worker;
    struct feed_message *message;
    int64_t delivered_ns;   /* steady */
    struct list link;       /* in the list of its partition, until the outcome is known */
    struct decision *older; /* with the same id, delivered before; NULL: there is none */
    struct decision *newer;
    bool is_started; /* or its id is being checked */
    bool is_checked; /* its id, or that needs no check */
    bool is_claimed; /* strategy slot: the hot store has been called, and nothing has failed */
    bool is_unknown; /* it is not known whether its hold was written, or undone since */
    struct arena arena;
    struct hold hold;
    struct idempotency key;
    char key_text[UUID_TEXT_BYTES];
    struct ledger_entry_get place; /* of a user whose message does not name it */
    struct request decided;        /* with the result */
    struct ledger_request_decide record;
    struct reservation_action undo; /* of its hold: the id is that of another user's request */
    struct ledger_request_put keep; /* of one that is set aside undecided */
    enum err set_aside;             /* why it becomes a dead letter; OK: it does not */
    int tries;
    struct retry_delay delay;
    void (*again)(struct decision *d); /* what is tried again after the delay */
};

struct requests_check {
    struct ledger_requests_get get;
    struct requests_worker *worker;
    size_t count;
    struct decision *decisions[CHECK_MAX];
    struct uuid ids[CHECK_MAX];
    struct request *found[CHECK_MAX];
};

typedef void decision_step(struct decision *d);
static decision_step decision_check, decision_start, decision_find_place, decision_hold;
static decision_step decision_write, decision_undo;
static void decision_set_aside(struct decision *d, enum err reason);
static void decision_try_again(struct decision *d, decision_step *step, enum err failed);
static enum err decision_find_keys(struct requests_worker *w, struct feed_message *m);
static void requests_on_checked(struct task *task);
static void decision_on_held(struct hold *h, enum err result);
static void decision_on_written(struct task *task);
static void decision_on_place_found(struct task *task);
static void decision_on_undone(struct reservation_action *undo, enum err result);
static void decision_on_kept(struct task *task);
static void decision_end(struct decision *d, enum feed_outcome outcome);

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
    bool is_announced = w->service->hot != NULL && p->feed->ops->nudge != NULL;
    if (p->result == ERR_OK && p->is_new && is_announced) {
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
    if (d->older != NULL) return true;
    for (const struct list *at = all->next; at != &d->link; at = at->next) {
        const struct decision *earlier = CONTAINER_OF(at, struct decision, link);
        const struct request *first = earlier->message->request;
        if (!earlier->is_claimed && decision_asks_for_same(first, d->message->request)) return true;
    }
    return false;
}

/* Starts every decision that may be started. A decision may end, and so change the list, before
 * decision_start returns: then the list is walked again from its beginning. */
static void decisions_start(struct requests_worker *w, int partition) {
    struct list *all = &w->decisions[partition];
    if (w->is_starting[partition]) return;
    w->is_starting[partition] = true;
    for (struct list *at = all->next; at != all;) {
        struct decision *d = CONTAINER_OF(at, struct decision, link);
        at = at->next;
        if (d->is_started || decision_must_wait(d, all)) continue;
        if (d->is_checked)
            decision_start(d);
        else
            decision_check(d);
        at = all->next;
    }
    w->is_starting[partition] = false;
}

static str decision_id(const struct decision *d) {
    const struct uuid *id = &d->message->request->id;
    return (str){(const char *)id->bytes, sizeof id->bytes};
}

static void decision_link_id(struct decision *d) {
    d->older = map_put(&d->worker->by_id, decision_id(d), d);
    if (d->older != NULL) d->older->newer = d;
}

/* Returns the one that has waited for it, if it need not wait for another one. */
static struct decision *decision_unlink_id(struct decision *d) {
    struct map *by_id = &d->worker->by_id;
    if (d->older != NULL) d->older->newer = d->newer;
    if (d->newer != NULL)
        d->newer->older = d->older;
    else if (d->older != NULL)
        map_put(by_id, decision_id(d), d->older);
    else
        map_remove(by_id, decision_id(d));
    return d->older == NULL ? d->newer : NULL;
}

static void requests_on_delivered(struct feed_consumer *consumer, struct feed_message *m) {
    struct requests_worker *w = CONTAINER_OF(consumer, struct requests_worker, consumer);
    struct decision *d = mem_new(sizeof *d);
    d->worker = w;
    d->message = m;
    d->delivered_ns = clock_steady_ns();
    struct request *r = m->request;
    if (m->names != NULL && decision_find_keys(w, m) == ERR_OK && r->quantity > 0)
        r->partition = request_partition(r->section_key, r->seats, r->quantity);
    list_init(&d->link);
    list_move_last(&w->decisions[r->partition], &d->link);
    decision_link_id(d);
    d->is_checked = !w->service->feed->keeps_requests;
    atomic_fetch_add(&w->service->in_flight, 1);
    if (d->is_checked)
        decisions_start(w, r->partition);
    else if (d->older == NULL) /* at once, so that it does not wait for those before it */
        decision_check(d);
}

/* ---- whose request has the id ---- */

static void requests_check_send(struct requests_worker *w) {
    struct requests_check *c = w->check.next;
    w->check.next = NULL;
    if (c == NULL) return;
    c->get = (struct ledger_requests_get){
        .record = {.kind = LEDGER_REQUESTS_GET, .task.run = requests_on_checked},
        .ids = c->ids,
        .count = c->count,
        .found = c->found};
    enum err refused = ledger_ask(w->service->ledger, &c->get.record);
    if (refused == ERR_OK) return;
    c->get.record.result = refused;
    requests_on_checked(&c->get.record.task);
}

/* When all that were delivered together are in it. */
static void requests_on_gathered(struct task *task) {
    struct requests_worker *w = CONTAINER_OF(task, struct requests_worker, check.task);
    w->check.is_posted = false;
    requests_check_send(w);
}

static void decision_check(struct decision *d) {
    struct requests_worker *w = d->worker;
    d->is_started = true;
    if (w->check.next == NULL) w->check.next = mem_new(sizeof *w->check.next);
    struct requests_check *c = w->check.next;
    c->worker = w;
    c->ids[c->count] = d->message->request->id;
    c->decisions[c->count++] = d;
    if (c->count == CHECK_MAX) {
        requests_check_send(w);
    } else if (!w->check.is_posted) {
        w->check.is_posted = true;
        mailbox_post(mailbox_mine(), &w->check.task);
    }
}

/* The request with this id is another user's. */
static void decision_refuse(struct decision *d) {
    bool is_aside = d->worker->service->feed->sets_aside && !d->message->is_dropped;
    d->set_aside = ERR_IDEMPOTENCY_MISMATCH;
    decision_end(d, is_aside ? FEED_SET_ASIDE : FEED_DECIDED);
}

static void decision_on_own_id(struct decision *d) {
    d->is_checked = true;
    d->is_started = false; /* it may be started now */
}

static void requests_on_checked(struct task *task) {
    struct requests_check *c = CONTAINER_OF(task, struct requests_check, get.record.task);
    struct requests_worker *w = c->worker;
    enum err failed = c->get.record.result;
    bool may_start[REQUEST_PARTITIONS] = {false};
    for (size_t i = 0; i < c->count; i++) {
        struct decision *d = c->decisions[i];
        struct request *first = failed == ERR_OK ? c->found[i] : NULL;
        const struct request *r = d->message->request;
        may_start[r->partition] = true;
        if (failed != ERR_OK)
            decision_try_again(d, decision_check, failed);
        else if (first != NULL && !str_eq(str_of(first->user), str_of(r->user)))
            decision_refuse(d);
        else if (w->is_draining)
            decision_end(d, FEED_UNDECIDED);
        else
            decision_on_own_id(d);
        mem_free(first);
    }
    mem_free(c);
    for (int p = 0; p < REQUEST_PARTITIONS; p++)
        if (may_start[p]) decisions_start(w, p);
}

/* ---- trying again ---- */

static void decision_on_delay_over(struct retry_delay *delay) {
    struct decision *d = CONTAINER_OF(delay, struct decision, delay);
    if (d->worker->is_draining) {
        decision_end(d, FEED_UNDECIDED);
    } else if (d->again == decision_start) {
        d->is_started = false; /* an earlier one may have to be started first */
        decisions_start(d->worker, d->message->request->partition);
    } else {
        d->again(d);
    }
}

static bool decision_stores_work(const struct requests *service) {
    struct ledger_health ledger;
    ledger_health(service->ledger, &ledger);
    bool hot_works = service->hot == NULL || hot_state(service->hot) == HOT_STATE_OK;
    return ledger.writable && hot_works && events_are_current(service->events);
}

static void decision_try_again(struct decision *d, decision_step *step, enum err failed) {
    struct requests *service = d->worker->service;
    if (d->worker->is_draining) {
        decision_end(d, FEED_UNDECIDED);
        return;
    }
    if (d->tries >= TRIES_MAX && service->feed->sets_aside && decision_stores_work(service)) {
        decision_set_aside(d, failed);
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

/* ---- dead letters ---- */

/* Keeps the request in the ledger, undecided, so that it can be looked up until an operator has the
 * message delivered again or drops it. */
static void decision_set_aside(struct decision *d, enum err reason) {
    const struct request *r = d->message->request;
    d->set_aside = reason;
    d->keep = (struct ledger_request_put){
        .record = {.kind = LEDGER_REQUEST_PUT, .task.run = decision_on_kept, .always = true},
        .wanted = r};
    bool has_row = r->event_key != 0 && r->quantity > 0;
    if (!has_row || ledger_submit(d->worker->service->ledger, &d->keep.record) != ERR_OK)
        decision_end(d, FEED_SET_ASIDE);
}

static void decision_on_kept(struct task *task) {
    struct decision *d = CONTAINER_OF(task, struct decision, keep.record.task);
    decision_end(d, FEED_SET_ASIDE);
}

/* ---- the hold ---- */

/* The keys for the names in a message of another program. OK, or what does not exist now. */
static enum err decision_find_keys(struct requests_worker *w, struct feed_message *m) {
    struct request *r = m->request;
    struct catalogue *c = w->service->events->catalogue;
    if (m->names == NULL || r->event_key != 0) return ERR_OK;
    catalogue_read_lock(c);
    const struct event *e = catalogue_find(c, str_of(m->names->type), str_of(m->names->id));
    const struct section *s = e == NULL ? NULL : event_section(e, str_of(m->names->section));
    enum err missing = e == NULL ? ERR_EVENT_NOT_FOUND : s == NULL ? ERR_SECTION_NOT_FOUND : ERR_OK;
    if (s != NULL) {
        r->event_key = e->key;
        r->section_key = s->key;
    }
    catalogue_read_unlock(c);
    return missing;
}

/* On what terms the section sells now. OK, or why nothing can be held. */
static enum err decision_read_terms(struct decision *d) {
    const struct request *r = d->message->request;
    struct catalogue *c = d->worker->service->events->catalogue;
    const struct section *section = NULL;
    enum err missing = decision_find_keys(d->worker, d->message);
    if (missing != ERR_OK) return missing;
    catalogue_read_lock(c);
    const struct event *e = catalogue_find_key(c, r->event_key);
    if (e != NULL && catalogue_find_section(c, r->section_key, &section) != e) section = NULL;
    if (section != NULL) hold_terms_copy(&d->hold.terms, e, section);
    catalogue_read_unlock(c);
    if (e == NULL) return ERR_EVENT_NOT_FOUND;
    return section == NULL ? ERR_SECTION_NOT_FOUND : ERR_OK;
}

static bool is_absence(enum err e) {
    return e == ERR_EVENT_NOT_FOUND || e == ERR_SECTION_NOT_FOUND;
}

/* Whether this node may not have heard yet of what it asks for. */
static bool decision_is_early(const struct decision *d) {
    int64_t here_ms = (clock_steady_ns() - d->delivered_ns) / 1000000;
    return d->worker->service->events->sync != NULL && here_ms < ABSENT_MS &&
           clock_wall_ms() - d->message->request->created_ms < ABSENT_MS;
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
    if (is_absence(result) && w->service->feed->sets_aside) d->set_aside = result;
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
        decision_try_again(d, decision_start, ERR_NODE_BEHIND);
        return;
    }
    *h = (struct hold){.arena = &d->arena};
    arena_rewind(&d->arena);
    enum err refused = r->quantity == 0 ? ERR_INTERNAL : decision_read_terms(d);
    if (is_absence(refused) && decision_is_early(d)) {
        decision_try_again(d, decision_start, refused);
        return;
    }
    bool has_row = r->event_key != 0;
    if (d->message->is_dropped && !has_row)
        decision_end(d, FEED_DECIDED); /* it has no row, so no lookup finds it */
    else if (d->message->is_dropped)
        decision_decide(d, ERR_REQUEST_DROPPED);
    else if (refused != ERR_OK && !has_row && service->feed->sets_aside)
        decision_set_aside(d, refused);
    else if (refused != ERR_OK)
        decision_decide(d, refused);
    else if (r->entry_seq == 0)
        decision_find_place(d);
    else
        decision_hold(d);
}

/* A message of another program names the user, and not the user's place. */
static void decision_find_place(struct decision *d) {
    const struct request *r = d->message->request;
    d->place = (struct ledger_entry_get){
        .record = {.kind = LEDGER_ENTRY_GET, .task.run = decision_on_place_found},
        .event_key = r->event_key,
        .live_of = str_of(r->user)};
    enum err refused = ledger_ask(d->worker->service->ledger, &d->place.record);
    if (refused != ERR_OK) decision_try_again(d, decision_start, refused);
}

static void decision_on_place_found(struct task *task) {
    struct decision *d = CONTAINER_OF(task, struct decision, place.record.task);
    if (d->place.record.result != ERR_OK) {
        decision_try_again(d, decision_start, d->place.record.result);
    } else if (d->place.status == ENTRY_NONE) {
        decision_decide(d, ERR_NOT_ACTIVE);
    } else {
        d->message->request->entry_seq = d->place.seq;
        decision_hold(d);
    }
}

static void decision_hold(struct decision *d) {
    struct requests *service = d->worker->service;
    const struct request *r = d->message->request;
    struct hold *h = &d->hold;
    assert(r != NULL);
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
    if (result == ERR_LEDGER_UNKNOWN) d->is_unknown = true;
    if (result == ERR_CONFLICT && d->is_unknown) {
        /* The claim was undone while it was written again. Another try makes another claim. */
        d->is_unknown = false;
        is_undecided = true;
    }
    if (result == ERR_IDEMPOTENCY_MISMATCH && d->worker->service->feed->keeps_requests)
        decision_end(d, FEED_DECIDED); /* another message with this id decides it */
    else if (is_undecided || (result != ERR_OK && d->worker->is_draining))
        decision_try_again(d, decision_start, result);
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
    if (refused != ERR_OK) decision_try_again(d, decision_write, refused);
}

static void decision_on_written(struct task *task) {
    struct decision *d = CONTAINER_OF(task, struct decision, record.record.task);
    struct requests_worker *w = d->worker;
    struct requests *service = w->service;
    enum err failed = d->record.record.result;
    if (failed == ERR_LOCK_LOST) {
        decision_end(d, FEED_UNDECIDED); /* another node has the partition, and decides it */
        return;
    }
    if (failed == ERR_IDEMPOTENCY_MISMATCH) {
        decision_undo(d);
        return;
    }
    if (failed != ERR_OK) {
        decision_try_again(d, decision_write, failed);
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
    /* The last: a server that stops waits for it. */
    decision_end(d, d->set_aside != ERR_OK ? FEED_SET_ASIDE : FEED_DECIDED);
}

/* The request with this id is another user's, and has got its result while this one was decided: no
 * one knows of this hold. */
static enum err decision_may_undo(struct reservation_action *undo, const struct reservation *r) {
    const struct decision *d = CONTAINER_OF(undo, struct decision, undo);
    return str_eq(str_of(r->user), str_of(d->decided.user)) ? ERR_OK : ERR_NOT_YOURS;
}

static void decision_undo(struct decision *d) {
    if (d->decided.status != REQUEST_SUCCESS) {
        decision_refuse(d);
        return;
    }
    d->undo = (struct reservation_action){
        .id = d->decided.reservation, .judge = decision_may_undo, .done = decision_on_undone};
    reservations_cancel(d->worker->service->reservations, &d->undo);
}

static void decision_on_undone(struct reservation_action *undo, enum err result) {
    struct decision *d = CONTAINER_OF(undo, struct decision, undo);
    mem_free(undo->reservation);
    if (err_status(result) >= 500)
        decision_try_again(d, decision_undo, result);
    else
        decision_refuse(d); /* also if the hold has ended, or was confirmed */
}

static void decision_end(struct decision *d, enum feed_outcome outcome) {
    struct requests_worker *w = d->worker;
    int partition = d->message->request->partition;
    const struct decision *next = decision_unlink_id(d);
    int next_partition = next == NULL ? partition : next->message->request->partition;
    list_remove(&d->link);
    arena_reset(&d->arena);
    if (outcome == FEED_SET_ASIDE) count(COUNT_REQUESTS_DEAD, 1);
    feed_acknowledge(w->service->feed, d->message, outcome, d->set_aside);
    mem_free(d);
    if (!w->is_draining) { /* others may wait for it */
        decisions_start(w, partition);
        if (next_partition != partition) decisions_start(w, next_partition);
    }
    atomic_fetch_sub(&w->service->in_flight, 1);
}

/* ---- start and stop ---- */

static void requests_on_tick(void *to) {
    struct requests_worker *w = to;
    feed_tick(w->service->feed, w->number);
}

void requests_worker_init(struct requests_worker *w, uv_loop_t *loop) {
    for (int p = 0; p < REQUEST_PARTITIONS; p++) list_init(&w->decisions[p]);
    map_init(&w->by_id);
    w->check.task.run = requests_on_gathered;
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
            if (!d->is_started) decision_end(d, FEED_UNDECIDED);
        }
    }
}

void requests_worker_close(struct requests_worker *w) {
    ticker_close(&w->ticker);
    map_deinit(&w->by_id);
}

bool requests_is_busy(struct requests *r) {
    return atomic_load(&r->in_flight) > 0 || feed_is_busy(r->feed);
}

void requests_stats(struct requests *r, struct feed_stats *out) {
    feed_stats(r->feed, out);
}

int64_t requests_undecided(const struct feed_stats *feed, const struct ledger_health *ledger) {
    int64_t lag = 0;
    for (size_t i = 0; i < feed->lag_count; i++) lag += feed->lags[i].lag;
    return ledger->open_requests > lag ? ledger->open_requests : lag;
}

/* ---- looking up ---- */

static void requests_on_got(struct task *task);
static void requests_on_looked_in_feed(struct feed_look *l, enum err result);
static void requests_on_missing_got(struct task *task);
static void requests_look_end(struct requests_look *l, enum err result);

void requests_look(struct requests_worker *w, struct requests_look *l) {
    l->worker = w;
    l->asked_ns = clock_steady_ns();
    for (size_t i = 0; i < l->count; i++) l->found[i] = NULL;
    atomic_fetch_add(&w->service->in_flight, 1);
    l->get = (struct ledger_requests_get){
        .record = {.kind = LEDGER_REQUESTS_GET, .task.run = requests_on_got},
        .ids = l->ids,
        .count = l->count,
        .found = l->found};
    enum err refused = ledger_ask(w->service->ledger, &l->get.record);
    if (refused != ERR_OK) requests_look_end(l, refused);
}

static void requests_look_end(struct requests_look *l, enum err result) {
    atomic_fetch_sub(&l->worker->service->in_flight, 1);
    l->done(l, result);
}

/* The results that are known are found all the same. */
static void requests_look_fail(struct requests_look *l, enum err result) {
    for (size_t i = 0; i < l->count; i++) {
        struct request *r = l->found[i];
        if (r == NULL || request_is_decided(r->status)) continue;
        mem_free(r);
        l->found[i] = NULL;
    }
    requests_look_end(l, result);
}

/* Whether the feed has to be asked: for the position of an undecided request, or for one that the
 * ledger does not have. */
static bool requests_look_is_done(const struct requests_look *l) {
    bool is_done = true;
    for (size_t i = 0; i < l->count; i++) {
        const struct request *r = l->found[i];
        bool may_be_in_feed = r == NULL && l->worker->service->feed->keeps_requests;
        if (may_be_in_feed || (r != NULL && !request_is_decided(r->status))) is_done = false;
        l->ahead[i] = 0;
    }
    return is_done || l->skips_feed;
}

static void requests_on_got(struct task *task) {
    struct requests_look *l = CONTAINER_OF(task, struct requests_look, get.record.task);
    if (l->get.record.result != ERR_OK) {
        requests_look_end(l, l->get.record.result);
        return;
    }
    if (requests_look_is_done(l)) {
        requests_look_end(l, ERR_OK);
        return;
    }
    l->in_feed = (struct feed_look){.ids = l->ids,
                                    .count = l->count,
                                    .found = l->found,
                                    .asked_ns = l->asked_ns,
                                    .ahead = l->ahead,
                                    .done = requests_on_looked_in_feed};
    feed_look(l->worker->service->feed, &l->in_feed);
}

/* A request that the feed keeps may have been decided after the ledger was asked and before the
 * feed was: then the ledger has it now. */
static void requests_on_looked_in_feed(struct feed_look *in_feed, enum err result) {
    struct requests_look *l = CONTAINER_OF(in_feed, struct requests_look, in_feed);
    size_t missing = 0;
    if (result != ERR_OK) {
        requests_look_fail(l, result);
        return;
    }
    for (size_t i = 0; i < l->count; i++) missing += l->found[i] == NULL;
    if (missing == 0 || !l->worker->service->feed->keeps_requests) {
        requests_look_end(l, ERR_OK);
        return;
    }
    l->missing.ids = mem_new(missing * sizeof *l->missing.ids);
    l->missing.found = mem_new(missing * sizeof(struct request *));
    l->missing.count = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->found[i] == NULL) l->missing.ids[l->missing.count++] = l->ids[i];
    l->get = (struct ledger_requests_get){
        .record = {.kind = LEDGER_REQUESTS_GET, .task.run = requests_on_missing_got},
        .ids = l->missing.ids,
        .count = l->missing.count,
        .found = l->missing.found};
    enum err refused = ledger_ask(l->worker->service->ledger, &l->get.record);
    if (refused == ERR_OK) return;
    l->get.record.result = refused;
    requests_on_missing_got(&l->get.record.task);
}

static void requests_on_missing_got(struct task *task) {
    struct requests_look *l = CONTAINER_OF(task, struct requests_look, get.record.task);
    enum err result = l->get.record.result;
    size_t next = 0;
    for (size_t i = 0; result == ERR_OK && i < l->count; i++)
        if (l->found[i] == NULL) l->found[i] = l->missing.found[next++];
    mem_free(l->missing.ids);
    mem_free(l->missing.found);
    if (result == ERR_OK)
        requests_look_end(l, ERR_OK);
    else
        requests_look_fail(l, result);
}
