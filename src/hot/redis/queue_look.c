/* Looks at places in Redis (queues_look): all looks at one event in one iteration of a worker's
 * loop share one call of the functions `look` or `look_seen` (lua/queue.lua). */
#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "hot/redis/internal.h"

/* Limits of one call: items, and operations that share it. */
#define LOOK_ITEMS_MAX 256
#define LOOK_PARTS_MAX 64

/* An operation, whose items may be divided among several calls. */
struct look_progress {
    struct look_op *op;
    size_t open; /* parts that have no answer yet */
};

struct look_part {
    struct look_progress *of;
    size_t first; /* of the operation's items */
    size_t count;
};

struct look_call {
    struct call call;
    struct list place; /* in its queue_worker, until it is sent */
    int64_t now_ms;
    bool seen; /* also records for some items that their users were seen */
    size_t item_count;
    size_t part_count;
    struct look_part parts[LOOK_PARTS_MAX];
};

struct queue_worker {
    struct redis_worker *worker;
    struct list gathered; /* calls to send before the loop waits */
    uv_prepare_t flush;   /* active while there are any */
    bool closed;
};

/* ---- replies ---- */

static void look_part_end(struct look_progress *l, enum err result, uint32_t epoch) {
    struct look_op *op = l->op;
    if (result != ERR_OK) op->op.result = result;
    op->op.epoch = epoch;
    if (--l->open > 0) return;
    mem_free(l);
    op->done(op);
}

struct queue_counts redis_read_queue_counts(const redisReply *r) {
    const redisReply *rate = reply_at(r, 10);
    return (struct queue_counts){
        .waiting = reply_u64(reply_at(r, 0)),
        .active = reply_u64(reply_at(r, 1)),
        .entered = reply_u64(reply_at(r, 2)),
        .rejected = reply_u64(reply_at(r, 3)),
        .admitted = reply_u64(reply_at(r, 4)),
        .completed = reply_u64(reply_at(r, 5)),
        .left = reply_u64(reply_at(r, 6)),
        .expired = reply_u64(reply_at(r, 7)),
        .waited_ms = reply_u64(reply_at(r, 8)),
        .waited_ms_max = reply_u64(reply_at(r, 9)),
        .rate = reply_str(rate).len == 0 ? 0 : strtod(rate->str, NULL),
    };
}

static void look_read_counts(const redisReply *r, struct look_op *op) {
    op->counts = redis_read_queue_counts(r);
    int state = word_index(event_state_words, reply_str(reply_at(r, 11)));
    op->state = state < 0 ? EVENT_CLOSED : (enum event_state)state;
    op->seats = redis_read_seat_counts(reply_at(r, 12), 0);
    op->has_stock = reply_i64(reply_at(r, 14)) != 0;
}

static void look_read_user(const redisReply *r, struct look_op *op) {
    str user = reply_str(r);
    if (user.len == 0 || user.len > USER_ID_BYTES_MAX) return;
    memcpy(op->user, user.at, user.len);
    op->user_len = user.len;
}

static void look_read_part(const redisReply *reply, const struct look_part *p, size_t at) {
    struct look_op *op = p->of->op;
    const redisReply *places = reply_at(reply, 13);
    look_read_counts(reply, op);
    for (size_t i = 0; i < p->count; i++) {
        struct look_item *item = &op->items[p->first + i];
        const redisReply *r = reply_at(places, at + i);
        queue_read_place(r, item->seq, &item->place);
        if (item->place.status == ENTRY_WAITING) item->place.waiting = op->counts.waiting;
        item->reserving = reply_i64(reply_at(r, 8)) != 0;
        if (op->user != NULL && p->first + i == 0) look_read_user(reply_at(r, 9), op);
    }
}

static void redis_on_looked(struct call *call, enum err result, const redisReply *reply) {
    struct look_call *c = CONTAINER_OF(call, struct look_call, call);
    size_t at = 0;
    for (size_t i = 0; i < c->part_count; i++) {
        const struct look_part *p = &c->parts[i];
        if (result == ERR_OK) look_read_part(reply, p, at);
        at += p->count;
        look_part_end(p->of, result, call->epoch);
    }
    redis_event_release(call->event);
    mem_free(c);
}

/* ---- gathering and sending ---- */

/* Takes the first out of the list; NULL: the list is empty. */
static struct look_call *look_call_take(struct list *calls) {
    if (list_empty(calls)) return NULL;
    struct look_call *c = CONTAINER_OF(calls->next, struct look_call, place);
    list_remove(&c->place);
    return c;
}

/* A look that is answered at once, because there is no connection, may start the next one; that is
 * sent in the next iteration. */
static void look_on_flush(uv_prepare_t *flush) {
    struct queue_worker *w = flush->data;
    struct list calls;
    struct look_call *c;
    list_init(&calls);
    while (!list_empty(&w->gathered)) list_move_last(&calls, w->gathered.next);
    uv_prepare_stop(flush);
    while ((c = look_call_take(&calls)) != NULL) call_send(&c->call, redis_on_looked);
}

/* A gathered call for the same event that has room, or a new one. */
static struct look_call *look_call_for(struct queue_worker *w, struct redis_event *e,
                                       int64_t now_ms, bool seen) {
    for (struct list *at = w->gathered.prev; at != &w->gathered; at = at->prev) {
        struct look_call *c = CONTAINER_OF(at, struct look_call, place);
        bool has_room = c->item_count < LOOK_ITEMS_MAX && c->part_count < LOOK_PARTS_MAX;
        bool is_alike = c->call.event == e && c->now_ms == now_ms && c->seen == seen;
        if (is_alike && has_room) return c;
    }
    struct look_call *c = mem_new(sizeof *c);
    redis_event_hold(e);
    c->call.store = w->worker->store;
    c->call.event = e;
    c->now_ms = now_ms;
    c->seen = seen;
    queue_begin(&c->call, seen ? "look_seen" : "look", now_ms);
    list_init(&c->place);
    list_move_last(&w->gathered, &c->place);
    return c;
}

/* Adds as many of the operation's items as the call has room for. Returns the first that is left.
 */
static size_t look_call_add(struct look_call *c, struct look_progress *l, size_t first) {
    static const str wants[] = {STR_INIT("-"), STR_INIT("s"), STR_INIT("u"), STR_INIT("su")};
    const struct look_op *op = l->op;
    size_t count = op->count - first;
    if (count > LOOK_ITEMS_MAX - c->item_count) count = LOOK_ITEMS_MAX - c->item_count;
    c->parts[c->part_count++] = (struct look_part){l, first, count};
    c->item_count += count;
    l->open++;
    for (size_t i = first; i < first + count; i++) {
        bool wants_user = op->user != NULL && i == 0;
        call_add_u64(&c->call, op->items[i].seq);
        call_add(&c->call, wants[(c->seen && op->items[i].seen) + 2 * wants_user]);
    }
    return first + count;
}

static void look_gather(struct queue_worker *w, struct redis_event *e, struct look_op *op) {
    struct look_progress *l = mem_new(sizeof *l);
    l->op = op;
    /* With Redis's clock, all looks of an iteration have the same time. */
    int64_t now_ms = w->worker->store->options.redis_clock ? 0 : op->op.now_ms;
    bool seen = false;
    for (size_t i = 0; i < op->count && !seen; i++) seen = op->items[i].seen;
    seen = seen && redis_status_allows_updates(&w->worker->store->status);
    size_t at = 0;
    do at = look_call_add(look_call_for(w, e, now_ms, seen), l, at);
    while (at < op->count);
    if (!uv_is_active((uv_handle_t *)&w->flush)) uv_prepare_start(&w->flush, look_on_flush);
}

void redis_look(struct queues *q, struct look_op *op) {
    struct queue_worker *w = redis_worker_mine()->queue;
    struct redis_event *e =
        store_find_event(CONTAINER_OF(q, struct redis_store, queues), op->op.event_key);
    op->user_len = 0;
    op->op.epoch = 0;
    op->op.result = e == NULL ? ERR_EVENT_NOT_FOUND : ERR_OK;
    if (e != NULL && w->closed) op->op.result = ERR_HOT_UNAVAILABLE;
    bool is_gathered = op->op.result == ERR_OK;
    if (is_gathered) look_gather(w, e, op);
    if (e != NULL) redis_event_release(e);
    if (!is_gathered) op->done(op);
}

/* ---- start and stop ---- */

struct queue_worker *queue_worker_new(struct redis_worker *of, uv_loop_t *loop) {
    struct queue_worker *w = mem_new(sizeof *w);
    w->worker = of;
    list_init(&w->gathered);
    uv_prepare_init(loop, &w->flush);
    w->flush.data = w;
    return w;
}

static void queue_worker_on_closed(uv_handle_t *handle) {
    mem_free(handle->data);
}

void queue_worker_close(struct queue_worker *w) {
    struct look_call *c;
    w->closed = true;
    while ((c = look_call_take(&w->gathered)) != NULL) {
        buf_deinit(&c->call.command);
        redis_on_looked(&c->call, ERR_HOT_UNAVAILABLE, NULL);
    }
    uv_close((uv_handle_t *)&w->flush, queue_worker_on_closed);
}
