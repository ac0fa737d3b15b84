/* Looks at the subscribers' places in batches, and sends those that have changed. */
#include "api/live.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "api/queue_answer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "net/stream.h"
#include "run/ticker.h"

/* Places that are looked at under one lock. */
#define BATCH_MAX 256
/* The pushes of one interval are spread over this many ticks. */
#define TICKS_PER_INTERVAL 16
#define TICK_MS_MIN 10
/* That the user is there is noted this often, or more often where grace is short. */
#define SEEN_MS 30000
/* Tabs and devices of one user; a person does not have more. */
#define STREAMS_PER_ENTRY_MAX 8
#define RETRY_MS_MIN 1000
#define RETRY_MS_SPREAD 4000

/* The further from the head, the rarer the updates. */
static const struct {
    uint64_t positions_below;
    int64_t intervals;
} reaches[] = {{1000, 1}, {10000, 3}, {UINT64_MAX, 10}};
#define REACHES (sizeof reaches / sizeof reaches[0])

/* What is sent again when it changes, beside the position. */
struct shown {
    enum event_state state; /* of the event */
    bool degraded;
    bool admits;
    bool sold_out;
    uint32_t held;   /* seats, while none is available: they may be returned */
    uint32_t notice; /* its number */
};

struct subscriber {
    struct stream stream;
    struct event_subscribers *of_event;
    struct list link;         /* in one of due[], in order of due_ms */
    struct subscriber *older; /* of the same entry */
    uint64_t seq;
    uint64_t position; /* as last sent */
    int64_t due_ms;    /* by the steady clock; so is seen_ms */
    int64_t seen_ms;
    bool busy; /* a caller or a batch has it: when it ends, it is only marked as gone */
    bool gone;
    bool again;         /* there was an announcement during the look: what was read may be older */
    struct shown shown; /* as last sent */
    uint8_t lane;
    uint8_t user_len;
    char token[TOKEN_TEXT_BYTES];
    char user[];
};

/* The subscribers of one event on one worker. */
struct event_subscribers {
    struct live *live;
    struct list link;
    int64_t event_key;
    char event_type[EVENT_TYPE_BYTES_MAX + 1]; /* for the last event, when it is deleted */
    char event_id[EVENT_ID_BYTES_MAX + 1];
    int64_t grace_ms;       /* of the event as last read; so is the notice */
    struct buf notice;      /* no copies of it are kept for each subscriber, only this number */
    uint32_t notice_number; /* grows with each change of the notice */
    struct list due[REACHES];
    struct map by_seq; /* an entry's number → its newest subscriber */
    _Atomic size_t count;
    size_t batches;         /* under way; also the first looks of streams */
    uint64_t announcements; /* so far */
};

/* The first look of a stream. */
struct subscription {
    struct place_query query;
    struct event_subscribers *of_event;
    uint64_t announcements; /* of the event, when it began */
};

struct batch {
    struct places_watch watch;
    struct event_subscribers *of_event;
    struct batch *next;
    struct look_item items[BATCH_MAX];
    uint8_t lanes[BATCH_MAX];
    struct subscriber *subscribers[BATCH_MAX];
};

struct live {
    struct api *api;
    struct worker *worker;
    size_t index; /* among api->workers */
    struct list events;
    pthread_mutex_t lock;
    struct map by_event; /* written under lock: an event's key → event_subscribers */
    struct ticker ticker;
    struct buf text; /* of the event being written */
    uint64_t jitter;
    bool closed;
    _Atomic size_t count; /* subscribers and first looks; other threads skip a worker without */
};

/* ---- subscribers ---- */

static struct event_subscribers *event_subscribers_find(struct live *l, int64_t event_key) {
    return map_get(&l->by_event, map_key(&event_key));
}

static struct event_subscribers *event_subscribers_for(struct live *l,
                                                       const struct queue_event *e) {
    struct event_subscribers *es = event_subscribers_find(l, e->key);
    if (es != NULL) return es;
    es = mem_new(sizeof *es);
    es->live = l;
    es->event_key = e->key;
    memcpy(es->event_type, e->type, sizeof es->event_type);
    memcpy(es->event_id, e->id, sizeof es->event_id);
    es->grace_ms = e->rules.grace_s * 1000;
    map_init(&es->by_seq);
    for (size_t r = 0; r < REACHES; r++) list_init(&es->due[r]);
    list_init(&es->link);
    list_move_last(&l->events, &es->link);
    pthread_mutex_lock(&l->lock);
    map_put(&l->by_event, map_key(&es->event_key), es);
    pthread_mutex_unlock(&l->lock);
    return es;
}

static void event_subscribers_maybe_free(struct event_subscribers *es) {
    if (es->count > 0 || es->batches > 0) return;
    list_remove(&es->link);
    pthread_mutex_lock(&es->live->lock);
    map_remove(&es->live->by_event, map_key(&es->event_key));
    pthread_mutex_unlock(&es->live->lock);
    map_deinit(&es->by_seq);
    buf_deinit(&es->notice);
    mem_free(es);
}

static str key_of(const uint64_t *seq) {
    return (str){(const char *)seq, sizeof *seq};
}

/* The newest subscriber of the entry; NULL: it has none. */
static struct subscriber *newest_of(const struct event_subscribers *es, uint64_t seq) {
    return map_get(&es->by_seq, key_of(&seq));
}

static void subscriber_add(struct event_subscribers *es, struct subscriber *s) {
    s->of_event = es;
    s->older = map_put(&es->by_seq, key_of(&s->seq), s);
    es->count++;
    atomic_fetch_add(&es->live->count, 1);
}

/* Only this one, and no other of the same user, who may have connected again in the meantime. */
static void subscriber_remove(struct subscriber *s) {
    struct event_subscribers *es = s->of_event;
    struct subscriber *newer = newest_of(es, s->seq);
    if (newer != s) {
        while (newer->older != s) newer = newer->older;
        newer->older = s->older;
    } else if (s->older != NULL) {
        map_put(&es->by_seq, key_of(&s->seq), s->older);
    } else {
        map_remove(&es->by_seq, key_of(&s->seq));
    }
    list_remove(&s->link);
    es->count--;
    atomic_fetch_sub(&es->live->count, 1);
}

static void subscriber_on_ended(struct stream *stream) {
    struct subscriber *s = CONTAINER_OF(stream, struct subscriber, stream);
    struct event_subscribers *es = s->of_event;
    subscriber_remove(s);
    if (s->busy)
        s->gone = true;
    else
        mem_free(s);
    event_subscribers_maybe_free(es);
}

/* Makes room for one more stream of the entry: the oldest goes, also while it is looked at, for
 * else none would where looks take longer than clients to come. */
static void limit_streams(struct event_subscribers *es, uint64_t seq) {
    size_t count_of = 0;
    struct subscriber *oldest = NULL;
    for (struct subscriber *s = newest_of(es, seq); s != NULL; s = s->older) {
        count_of++;
        oldest = s;
    }
    assert(count_of <= STREAMS_PER_ENTRY_MAX);
    if (count_of == STREAMS_PER_ENTRY_MAX) stream_end(&oldest->stream);
}

/* When it is looked at next: well before its user would count as gone, or with the next tick if it
 * was announced during this look. */
static void schedule(struct subscriber *s) {
    struct event_subscribers *es = s->of_event;
    size_t reach = 0;
    while (reach + 1 < REACHES && s->position >= reaches[reach].positions_below) reach++;
    if (s->again) {
        s->again = false;
        s->due_ms = clock_steady_ms();
        list_move_first(&es->due[reach], &s->link);
        return;
    }
    int64_t interval_ms = es->live->api->push_interval_ms * reaches[reach].intervals;
    if (interval_ms > es->grace_ms / 2) interval_ms = es->grace_ms / 2;
    s->due_ms = clock_steady_ms() + interval_ms;
    list_move_last(&es->due[reach], &s->link);
}

/* Those that are being looked at are in no list: they are looked at once more. */
static void make_all_due(struct event_subscribers *es) {
    int64_t now_ms = clock_steady_ms();
    struct subscriber *s;
    for (size_t at = 0; (s = map_next(&es->by_seq, &at)) != NULL;)
        for (; s != NULL; s = s->older) {
            if (s->busy) s->again = true;
            if (s->due_ms > now_ms) s->due_ms = now_ms;
        }
}

/* The event as it is now; false: it is deleted. Every subscriber is due if its notice has changed,
 * and if grace has become shorter: with looks as rare as before its user would count as gone. */
static bool follow_event(struct event_subscribers *es, struct queue_event *out) {
    struct catalogue *catalogue = es->live->api->events.catalogue;
    int64_t grace_ms = es->grace_ms;
    bool notice_changes = false;
    catalogue_read_lock(catalogue);
    const struct event *e = catalogue_find_key(catalogue, es->event_key);
    if (e != NULL) {
        queue_event_copy(e, NULL, out);
        notice_changes = !str_eq(buf_str(&es->notice), e->notice);
        if (notice_changes) {
            buf_clear(&es->notice);
            buf_add(&es->notice, e->notice);
        }
    }
    catalogue_read_unlock(catalogue);
    if (e == NULL) return false;
    out->notice = buf_str(&es->notice);
    es->grace_ms = out->rules.grace_s * 1000;
    if (notice_changes) es->notice_number++;
    if (notice_changes || es->grace_ms < grace_ms) make_all_due(es);
    return true;
}

/* ---- sending ---- */

/* A client that connects again sends the last id: it shows whether it knows how the place ended. */
static void live_add_id(struct buf *to, const struct place *p) {
    buf_add_i64(to, (int64_t)p->seq);
    buf_add_char(to, '-');
    if (p->status == ENTRY_WAITING)
        buf_add_i64(to, (int64_t)p->position);
    else
        buf_add(to, entry_status_words[p->status]);
}

/* The text of one event; behind what is in `to` already. */
static void add_event(struct api_worker *w, struct buf *to, const struct queue_answer *answer) {
    struct json_out j;
    buf_add(to, STR("event: queue-status\nid: "));
    live_add_id(to, answer->place);
    buf_add(to, STR("\ndata: "));
    json_out_init(&j, to);
    queue_answer_render(w, &j, answer);
    json_out_done(&j);
    buf_add(to, STR("\n\n"));
}

/* Sends l->text. `is_last`: the place no longer waits, so the stream ends. */
static void send_text(struct live *l, struct subscriber *s, bool is_last) {
    count(COUNT_SSE_EVENTS, 1);
    bool was_busy = s->busy;
    s->busy = true;
    stream_send(&s->stream, buf_str(&l->text));
    if (!s->gone && is_last) stream_end(&s->stream);
    s->busy = was_busy;
    if (s->gone && !was_busy) mem_free(s);
}

static struct shown shown_of(const struct event_subscribers *es, const struct queue_answer *a) {
    return (struct shown){.state = queue_event_state(a->event, a->now_ms),
                          .degraded = a->degraded,
                          .admits = queue_answer_admits(a),
                          .sold_out = seat_counts_sold_out(&a->seats),
                          .held = a->seats.available == 0 ? a->seats.held : 0,
                          .notice = es->notice_number};
}

static bool shown_eq(const struct shown *a, const struct shown *b) {
    return a->state == b->state && a->degraded == b->degraded && a->admits == b->admits &&
           a->sold_out == b->sold_out && a->held == b->held && a->notice == b->notice;
}

static void subscriber_tell(struct batch *b, struct subscriber *s, const struct queue_event *event,
                            const struct look_item *item) {
    struct live *l = b->of_event->live;
    const struct place *place = &item->place;
    if (place->status == ENTRY_NONE) {
        /* It has ended, or is ACTIVE; which is not known here. When the client connects again, the
         * ledger is asked. */
        stream_end(&s->stream);
        return;
    }
    bool waits = place->status == ENTRY_WAITING;
    struct queue_answer answer = {.event = event,
                                  .token = {s->token, TOKEN_TEXT_BYTES},
                                  .user = {s->user, s->user_len},
                                  .place = place,
                                  .waiting = b->watch.look.counts.waiting,
                                  .reserving = item->reserving,
                                  .seats = b->watch.look.seats,
                                  .has_stock = b->watch.look.has_stock,
                                  .stays_ended = queue_stays_ended(&b->watch.look.counts),
                                  .degraded = b->watch.degraded,
                                  .now_ms = b->watch.look.op.now_ms};
    struct shown shown = shown_of(b->of_event, &answer);
    if (waits && place->position == s->position && shown_eq(&shown, &s->shown)) {
        schedule(s);
        return;
    }
    s->position = place->position;
    s->shown = shown;
    if (waits) schedule(s);
    buf_clear(&l->text);
    add_event(&l->api->workers[l->index], &l->text, &answer);
    send_text(l, s, !waits);
}

/* The last event of a stream whose queue is gone. */
static void subscriber_tell_deleted(const struct event_subscribers *es, struct subscriber *s) {
    struct live *l = es->live;
    struct json_out j;
    buf_clear(&l->text);
    buf_add(&l->text, STR("event: event-deleted\ndata: "));
    json_out_init(&j, &l->text);
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("eventType"), str_of(es->event_type));
    json_out_str(&j, STR("eventId"), str_of(es->event_id));
    json_out_time(&j, STR("serverTime"), clock_wall_ms());
    json_out_object_end(&j);
    json_out_done(&j);
    buf_add(&l->text, STR("\n\n"));
    send_text(l, s, true);
}

static void batch_on_watched(struct places_watch *watch, enum err result) {
    struct batch *b = CONTAINER_OF(watch, struct batch, watch);
    struct event_subscribers *es = b->of_event;
    struct queue_event event;
    bool exists = follow_event(es, &event) && result != ERR_EVENT_NOT_FOUND;
    for (size_t i = 0; i < watch->look.count; i++) {
        struct subscriber *s = b->subscribers[i];
        s->busy = false;
        if (s->gone)
            mem_free(s);
        else if (exists && result == ERR_OK)
            subscriber_tell(b, s, &event, &b->items[i]);
        else if (exists)
            schedule(s); /* neither store can be asked now: later, then */
        else
            subscriber_tell_deleted(es, s);
    }
    es->batches--;
    event_subscribers_maybe_free(es);
    mem_free(b);
}

static struct batch *batch_new(struct event_subscribers *es) {
    struct batch *b = mem_grow(NULL, sizeof *b); /* not zeroed: seldom full */
    b->of_event = es;
    es->batches++;
    b->next = NULL;
    b->watch = (struct places_watch){
        .look = {.op = {.event_key = es->event_key, .now_ms = clock_wall_ms()}, .items = b->items},
        .lanes = b->lanes,
        .done = batch_on_watched};
    return b;
}

static void batch_add(struct batch *b, struct subscriber *s) {
    size_t at = b->watch.look.count++;
    assert(!s->busy && at < BATCH_MAX);
    int64_t now_ms = clock_steady_ms();
    int64_t every_ms = b->of_event->grace_ms / 2 < SEEN_MS ? b->of_event->grace_ms / 2 : SEEN_MS;
    bool note = now_ms - s->seen_ms >= every_ms;
    if (note) s->seen_ms = now_ms;
    s->busy = true;
    list_remove(&s->link);
    b->items[at] = (struct look_item){.seq = s->seq, .seen = note};
    b->lanes[at] = s->lane;
    b->subscribers[at] = s;
}

static void batch_run(struct batch *b) {
    waiting_room_watch(&b->of_event->live->api->room, &b->watch);
}

/* Up to a batch of the subscribers that are due; false when there are none. */
static bool push_due(struct event_subscribers *es, int64_t now_ms) {
    struct batch *b = NULL;
    for (size_t reach = 0; reach < REACHES; reach++) {
        while (!list_empty(&es->due[reach])) {
            struct subscriber *s = CONTAINER_OF(es->due[reach].next, struct subscriber, link);
            if (s->due_ms > now_ms || (b != NULL && b->watch.look.count == BATCH_MAX)) break;
            if (b == NULL) b = batch_new(es);
            batch_add(b, s);
        }
    }
    if (b != NULL) batch_run(b);
    return b != NULL;
}

/* Each tick takes a part of them, so that other work is done in between. */
static void live_on_tick(void *to) {
    struct live *l = to;
    size_t batches = 1 + atomic_load(&l->count) / BATCH_MAX * 2 / TICKS_PER_INTERVAL;
    struct queue_event event;
    struct list *next;
    for (struct list *at = l->events.next; at != &l->events; at = next) {
        struct event_subscribers *es = CONTAINER_OF(at, struct event_subscribers, link);
        next = at->next;
        es->batches++; /* stays while it is worked on */
        follow_event(es, &event);
        int64_t now_ms = clock_steady_ms();
        for (size_t i = 0; i < batches && push_due(es, now_ms); i++) continue;
        es->batches--;
        event_subscribers_maybe_free(es);
    }
    if (list_empty(&l->events)) ticker_stop(&l->ticker);
}

/* ---- announcements ---- */

struct announcement {
    _Atomic size_t readers;
    int64_t event_key;
    size_t count;
    const uint64_t *seqs; /* behind the messages */
    struct message {
        struct task task;
        struct announcement *of;
        struct live *to;
    } messages[];
};

/* First all of them, then the looks: a subscriber may end as it is sent its position. */
static void look_at_once(struct event_subscribers *es, const uint64_t *seqs, size_t count_of) {
    struct batch *batches = NULL;
    for (size_t i = 0; i < count_of; i++) {
        for (struct subscriber *s = newest_of(es, seqs[i]); s != NULL; s = s->older) {
            if (s->busy) s->again = true;
            if (s->busy) continue;
            if (batches == NULL || batches->watch.look.count == BATCH_MAX) {
                struct batch *b = batch_new(es);
                b->next = batches;
                batches = b;
            }
            batch_add(batches, s);
        }
    }
    while (batches != NULL) {
        struct batch *b = batches;
        batches = b->next;
        batch_run(b);
    }
}

static void live_on_announced(struct task *task) {
    struct message *m = CONTAINER_OF(task, struct message, task);
    struct announcement *n = m->of;
    struct event_subscribers *es = event_subscribers_find(m->to, n->event_key);
    if (es != NULL) es->announcements++;
    if (es != NULL && n->count == 0) make_all_due(es);
    if (es != NULL && n->count > 0) look_at_once(es, n->seqs, n->count);
    if (atomic_fetch_sub(&n->readers, 1) == 1) mem_free(n);
}

void live_announce(void *to, int64_t event_key, const uint64_t *seqs, size_t count_of) {
    struct api *api = to;
    size_t readers = 0;
    for (size_t i = 0; i < api->worker_count; i++)
        if (atomic_load(&api->workers[i].live->count) > 0) readers++;
    if (readers == 0) return;
    size_t messages_size = api->worker_count * sizeof(struct message);
    struct announcement *n = mem_new(sizeof *n + messages_size + count_of * sizeof *seqs);
    uint64_t *own = (uint64_t *)(void *)((char *)n->messages + messages_size);
    if (count_of > 0) memcpy(own, seqs, count_of * sizeof *seqs);
    n->event_key = event_key;
    n->seqs = own;
    n->count = count_of;
    /* Counted as a reader of every worker until the last message is posted, however fast they read.
     */
    atomic_store(&n->readers, api->worker_count);
    for (size_t i = 0; i < api->worker_count; i++) {
        struct live *l = api->workers[i].live;
        n->messages[i] = (struct message){.task.run = live_on_announced, .of = n, .to = l};
        if (atomic_load(&l->count) > 0)
            mailbox_post(&l->worker->mailbox, &n->messages[i].task);
        else if (atomic_fetch_sub(&n->readers, 1) == 1)
            mem_free(n);
    }
}

/* ---- counting ---- */

size_t live_streams(struct api *api, int64_t event_key) {
    size_t streams = 0;
    for (size_t i = 0; i < api->worker_count; i++) {
        struct live *l = api->workers[i].live;
        pthread_mutex_lock(&l->lock);
        struct event_subscribers *es = event_subscribers_find(l, event_key);
        if (es != NULL) streams += atomic_load(&es->count);
        pthread_mutex_unlock(&l->lock);
    }
    return streams;
}

/* ---- subscribing ---- */

/* Whether the client knows how its place ended: then no event will follow. */
static bool knows_the_end(const struct exchange *x, uint64_t seq) {
    str rest = http_header(&x->request, STR("Last-Event-ID"));
    str number;
    int64_t said;
    if (!str_split(&rest, '-', &number) || !str_to_i64(number, &said) || said != (int64_t)seq)
        return false;
    int status = word_index(entry_status_words, rest);
    return status >= 0 && status != ENTRY_WAITING;
}

int64_t live_retry_ms(struct live *l) {
    l->jitter = l->jitter * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return RETRY_MS_MIN + (int64_t)(l->jitter >> 33) % RETRY_MS_SPREAD;
}

static struct subscriber *subscriber_new(const struct event_subscribers *es,
                                         const struct place_query *q,
                                         const struct queue_answer *answer) {
    size_t user_len = q->room.look.user_len;
    struct subscriber *s = mem_new(sizeof *s + user_len);
    s->stream.ended = subscriber_on_ended;
    s->seq = q->room.item.seq;
    s->lane = (uint8_t)q->lane;
    s->position = q->room.item.place.position;
    s->shown = shown_of(es, answer);
    s->seen_ms = clock_steady_ms();
    s->user_len = (uint8_t)user_len;
    memcpy(s->token, q->token.at, TOKEN_TEXT_BYTES);
    memcpy(s->user, q->room.user, user_len);
    list_init(&s->link);
    return s;
}

static void subscription_add(struct subscription *sub, struct live *l) {
    struct place_query *q = &sub->query;
    struct api_worker *w = exchange_context(q->x);
    struct queue_answer answer = place_query_answer(q);
    struct event_subscribers *es = sub->of_event;
    follow_event(es, &q->event);
    bool waits = answer.place->status == ENTRY_WAITING;
    buf_clear(&l->text);
    buf_addf(&l->text, "retry: %lld\n", (long long)live_retry_ms(l));
    add_event(w, &l->text, &answer);
    struct subscriber *s = subscriber_new(es, q, &answer);
    limit_streams(es, s->seq);
    subscriber_add(es, s);
    s->again = es->announcements != sub->announcements;
    schedule(s);
    s->busy = true; /* the client may have gone */
    reply_stream(q->x, &s->stream);
    if (!s->gone) send_text(l, s, !waits);
    s->busy = false;
    if (s->gone) mem_free(s);
    if (!ticker_runs(&l->ticker) && !l->closed) {
        int64_t tick_ms = l->api->push_interval_ms / TICKS_PER_INTERVAL;
        ticker_start(&l->ticker, tick_ms > TICK_MS_MIN ? tick_ms : TICK_MS_MIN);
    }
}

static void on_subscribed(struct place_look *room, enum err result) {
    struct place_query *q = CONTAINER_OF(room, struct place_query, room);
    struct subscription *sub = CONTAINER_OF(q, struct subscription, query);
    struct event_subscribers *es = sub->of_event; /* `sub` is freed with the answer */
    struct live *l = es->live;
    if (result == ERR_OK)
        subscription_add(sub, l);
    else
        queue_refuse(q->x, result);
    atomic_fetch_sub(&l->count, 1);
    es->batches--;
    event_subscribers_maybe_free(es);
}

/* What is announced from now on may be newer than what the look reads. */
static void subscription_look(struct subscription *sub, struct live *l) {
    struct event_subscribers *es = event_subscribers_for(l, &sub->query.event);
    atomic_fetch_add(&l->count, 1);
    es->batches++;
    sub->of_event = es;
    sub->announcements = es->announcements;
    sub->query.room.done = on_subscribed;
    waiting_room_look(&l->api->room, &sub->query.room);
}

void queue_get_subscribe(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    struct subscription *sub = arena_new(&x->arena, sizeof *sub);
    struct place_query *q = &sub->query;
    const struct api_worker *w = exchange_context(x);
    enum err refused = ERR_EVENT_NOT_FOUND;
    if (queue_event_find(api, captures[0], captures[1], NULL, &event))
        refused = place_query_init(q, api, x, &event, captures[2]);
    if (refused != ERR_OK) {
        queue_refuse(x, refused);
    } else if (knows_the_end(x, q->room.item.seq)) {
        reply_empty(x, 204);
    } else {
        subscription_look(sub, w->live);
    }
}

/* ---- start and stop ---- */

struct live *live_new(struct api *api, struct worker *w, size_t index) {
    struct live *l = mem_new(sizeof *l);
    l->api = api;
    l->worker = w;
    l->index = index;
    l->jitter = (uint64_t)clock_steady_ns() + index;
    list_init(&l->events);
    pthread_mutex_init(&l->lock, NULL);
    map_init(&l->by_event);
    ticker_init(&l->ticker, &w->loop, live_on_tick, l);
    return l;
}

void live_close(struct live *l) {
    l->closed = true;
    ticker_close(&l->ticker);
}

void live_free(struct live *l) {
    assert(list_empty(&l->events));
    map_deinit(&l->by_event);
    pthread_mutex_destroy(&l->lock);
    buf_deinit(&l->text);
    mem_free(l);
}
