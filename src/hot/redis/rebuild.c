/* Incarnations of Redis (port/hot.h): which one it is in, and rebuilding it for a new one. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "hot/memory_boards.h"
#include "hot/redis/blocking.h"
#include "hot/redis/internal.h"

/* The name of the latest rebuild. A node that stalls during a rebuild may be overtaken by another
 * node, and must not damage what that one has written: a rebuild writes only while this is its own
 * name. */
#define REBUILD_KEY "admitone:{hot}:rebuild"
/* The names that the two keys had up to version 6 of the library. A rebuild deletes them, so that a
 * node of such a version stops a rebuild that it has begun. */
#define FORMER_KEYS "admitone:{hot}:life admitone:{hot}:filling"
/* The name of the ledger that Redis was rebuilt from, or is being rebuilt from. Only nodes of this
 * ledger rebuild it again: two clusters on one Redis would overwrite each other for ever. */
#define LEDGER_KEY "admitone:{hot}:ledger"
/* Time-outs to connect and for each answer; a rebuild sends large commands. */
#define LOOK_MS 1000
#define REBUILD_MS 10000
/* Limits of one transaction: commands, and their bytes. */
#define QUEUED_MAX 256
#define QUEUED_BYTES_MAX (256 * 1024)

struct rebuild {
    const struct redis_store *store;
    redisContext *context; /* NULL: it has failed */
    struct hot_incarnation incarnation;
    char name[HOT_REBUILD_BYTES]; /* until rebuild_start, the name of the previous rebuild */
    size_t queued;
    size_t queued_bytes;
    struct buf scratch;
};

static struct redis_store *hot_store(struct hot *h) {
    return CONTAINER_OF(h, struct redis_store, hot);
}

static void redis_listen(struct hot *h, struct hot_listener listener) {
    struct redis_store *s = hot_store(h);
    pthread_rwlock_wrlock(&s->lock);
    s->listener = listener;
    pthread_rwlock_unlock(&s->lock);
    s->status.suspect = listener.suspect;
    s->status.to = listener.to;
    announcements_wake(s->announcements);
}

redisContext *store_connect(struct redis_store *s, int64_t step_ms,
                            char identity[HOT_IDENTITY_BYTES]) {
    struct buf why = {0};
    redisContext *c = blocking_connect(&s->options.address, step_ms, identity, &why);
    if (c == NULL && redis_status_refused(&s->status, buf_str(&why)) == HOT_STATE_OK)
        redis_status_lost(&s->status);
    if (c == NULL)
        redis_status_unreachable(&s->status, &s->options.address.hosts[0], buf_cstr(&why));
    buf_deinit(&why);
    return c;
}

redisReply *store_check_reply(const struct redis_store *s, redisContext *c, redisReply *reply) {
    if (reply != NULL && reply->type != REDIS_REPLY_ERROR) return reply;
    if (reply == NULL && atomic_load(&s->status.outage.is_lost)) return NULL; /* logged already */
    log_error(msg("redis returned an unexpected error; the operation is tried again"),
              kv("address", s->status.address),
              kv_str("error", reply == NULL ? str_of(c->errstr) : reply_str(reply)));
    freeReplyObject(reply);
    return NULL;
}

static bool rebuild_succeeds(struct rebuild *f, void *reply) {
    redisReply *r = store_check_reply(f->store, f->context, reply);
    freeReplyObject(r);
    return r != NULL;
}

/* Calls a function that Redis refuses whenever it refuses new data. If it does not have the
 * function yet, the answer says nothing about its state. */
static void hot_probe_state(struct redis_store *s, redisContext *c) {
    redisReply *r = redisCommand(c, "FCALL " REDIS_LIBRARY "_probe 0");
    if (r != NULL && r->type != REDIS_REPLY_ERROR)
        redis_status_accepted(&s->status);
    else if (r != NULL)
        redis_status_refused(&s->status, reply_str(r));
    freeReplyObject(r);
}

static enum hot_state redis_state(struct hot *h) {
    return (enum hot_state)atomic_load(&hot_store(h)->status.state);
}

static enum err redis_read_incarnation(struct hot *h, struct hot_incarnation *out) {
    *out = (struct hot_incarnation){0};
    redisContext *c = store_connect(hot_store(h), LOOK_MS, out->identity);
    if (c == NULL) return ERR_HOT_UNAVAILABLE;
    redisReply *r = store_check_reply(hot_store(h), c,
                                      redisCommand(c, "HMGET " INCARNATION_KEY " epoch identity"));
    if (r != NULL && str_eq(reply_str(reply_at(r, 1)), str_of(out->identity)))
        out->epoch = (uint32_t)reply_u64(reply_at(r, 0));
    bool is_read = r != NULL;
    freeReplyObject(r);
    r = is_read ? store_check_reply(hot_store(h), c, redisCommand(c, "GET " REBUILD_KEY)) : NULL;
    is_read = r != NULL && str_copy(reply_str(r), out->last_rebuild, sizeof out->last_rebuild);
    freeReplyObject(r);
    r = is_read ? store_check_reply(hot_store(h), c, redisCommand(c, "GET " LEDGER_KEY)) : NULL;
    is_read = r != NULL && str_copy(reply_str(r), out->ledger, sizeof out->ledger);
    freeReplyObject(r);
    if (is_read) hot_probe_state(hot_store(h), c);
    redisFree(c);
    return is_read ? ERR_OK : ERR_HOT_UNAVAILABLE;
}

/* The commands up to rebuild_commit are executed as one transaction, or not at all if another
 * rebuild has begun by then. */
static bool rebuild_guard(struct rebuild *f) {
    redisContext *c = f->context;
    if (!rebuild_succeeds(f, redisCommand(c, "WATCH " REBUILD_KEY))) return false;
    redisReply *r = store_check_reply(f->store, c, redisCommand(c, "GET " REBUILD_KEY));
    bool is_ours = r != NULL && str_eq(reply_str(r), str_of(f->name));
    if (r != NULL && !is_ours)
        log_warn(msg("another node has begun to rebuild redis; this node stops its own rebuild"),
                 kv("address", f->store->status.address));
    freeReplyObject(r);
    return is_ours && rebuild_succeeds(f, redisCommand(c, "MULTI"));
}

static bool rebuild_check_replies(const struct rebuild *f, const redisReply *replies) {
    for (size_t i = 0; i < replies->elements; i++) {
        if (replies->element[i]->type != REDIS_REPLY_ERROR) continue;
        log_error(msg("redis refused a command of the rebuild; the rebuild starts again"),
                  kv("address", f->store->status.address),
                  kv_str("error", reply_str(replies->element[i])));
        return false;
    }
    return true;
}

/* `queued`: how many commands were sent since rebuild_guard. */
static bool rebuild_commit(struct rebuild *f, size_t queued) {
    redisContext *c = f->context;
    redisAppendCommand(c, "EXEC");
    bool done = true;
    for (size_t i = 0; i < queued && done; i++) {
        void *reply = NULL;
        redisGetReply(c, &reply);
        done = rebuild_succeeds(f, reply);
    }
    if (!done) return false;
    void *reply = NULL;
    redisGetReply(c, &reply);
    redisReply *replies = store_check_reply(f->store, c, reply);
    done =
        replies != NULL && replies->type == REDIS_REPLY_ARRAY && rebuild_check_replies(f, replies);
    freeReplyObject(replies);
    return done;
}

/* Makes this rebuild the latest one. From now on Redis is in no incarnation. */
static bool rebuild_start(struct rebuild *f, const char *node) {
    redisContext *c = f->context;
    if (!rebuild_succeeds(f, redisCommand(c, "FUNCTION LOAD REPLACE %s", admitone_lua)))
        return false;
    if (!rebuild_guard(f)) return false;
    snprintf(f->name, sizeof f->name, "%u:%s:%lld", f->incarnation.epoch, node,
             (long long)clock_steady_ns());
    redisAppendCommand(c, "SET " REBUILD_KEY " %s", f->name);
    redisAppendCommand(c, "SET " LEDGER_KEY " %s", f->incarnation.ledger);
    redisAppendCommand(c, "DEL " INCARNATION_KEY " " FORMER_KEYS);
    return rebuild_commit(f, 3);
}

/* Deletes the keys of one page of SCAN. */
static bool rebuild_unlink_page(struct rebuild *f, const redisReply *keys) {
    if (keys == NULL || keys->elements == 0) return true;
    if (!rebuild_guard(f)) return false;
    struct call unlink = {0};
    call_begin_command(&unlink);
    call_add(&unlink, STR("UNLINK"));
    for (size_t i = 0; i < keys->elements; i++) call_add(&unlink, reply_str(reply_at(keys, i)));
    buf_clear(&f->scratch);
    call_write(&unlink, 0, &f->scratch);
    buf_deinit(&unlink.command);
    redisAppendFormattedCommand(f->context, f->scratch.bytes, f->scratch.len);
    return rebuild_commit(f, 1);
}

static bool rebuild_erase(struct rebuild *f, const char *pattern) {
    redisContext *c = f->context;
    char cursor[24] = "0";
    do {
        redisReply *page = store_check_reply(
            f->store, c, redisCommand(c, "SCAN %s MATCH %s COUNT 1000", cursor, pattern));
        bool done = page != NULL && rebuild_unlink_page(f, reply_at(page, 1)) &&
                    str_copy(reply_str(reply_at(page, 0)), cursor, sizeof cursor);
        freeReplyObject(page);
        if (!done) return false;
    } while (strcmp(cursor, "0") != 0);
    return true;
}

/* First the events' meta hash, without which no function changes an event: calls that nodes of an
 * older incarnation still send must not leave data behind. */
static bool rebuild_erase_all(struct rebuild *f) {
    static const char *const patterns[] = {
        "queue:{*}:meta",        "queue:{*",       "section:{*", "limit:{*", "lock:{*", "claim:{*",
        "popularity:ranking:{*", "performance:{*", "ranking:{*",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (!rebuild_erase(f, patterns[i])) return false;
    if (!rebuild_guard(f)) return false;
    redisAppendCommand(f->context, "UNLINK " TICKS_KEY " " TICKED_KEY " " BUYERS_KEY);
    return rebuild_commit(f, 1);
}

void rebuild_free(struct rebuild *f) {
    if (f == NULL) return;
    if (f->context != NULL) redisFree(f->context);
    buf_deinit(&f->scratch);
    mem_free(f);
}

static enum err redis_rebuild_begin(struct hot *h, const struct hot_incarnation *incarnation) {
    assert(incarnation->epoch > 0);
    struct redis_store *s = hot_store(h);
    rebuild_free(s->rebuild);
    s->rebuild = NULL;
    if (s->board_rebuild != NULL) memory_boards_free(s->board_rebuild);
    s->board_rebuild = NULL;
    char identity[HOT_IDENTITY_BYTES];
    redisContext *c = store_connect(s, REBUILD_MS, identity);
    if (c == NULL) return ERR_HOT_UNAVAILABLE;
    struct rebuild *f = mem_new(sizeof *f);
    f->store = s;
    f->context = c;
    f->incarnation = *incarnation;
    memcpy(f->name, incarnation->last_rebuild, sizeof f->name);
    enum err result = ERR_OK;
    if (strcmp(identity, incarnation->identity) != 0)
        result = ERR_RECOVERING;
    else if (!rebuild_start(f, s->node) || !rebuild_erase_all(f))
        result = ERR_HOT_UNAVAILABLE;
    if (result == ERR_OK)
        s->rebuild = f;
    else
        rebuild_free(f);
    return result;
}

/* A failed rebuild has no connection. */
static void rebuild_fail(struct rebuild *f) {
    redisFree(f->context);
    f->context = NULL;
}

static void rebuild_flush(struct rebuild *f) {
    if (f->context != NULL && f->queued > 0 && !rebuild_commit(f, f->queued)) rebuild_fail(f);
    f->queued = 0;
    f->queued_bytes = 0;
}

void rebuild_add(struct call *c) {
    struct rebuild *f = call_event_is_unknown(c) ? NULL : c->store->rebuild;
    if (f != NULL && f->context != NULL && f->queued == 0 && !rebuild_guard(f)) rebuild_fail(f);
    if (f != NULL && f->context != NULL) {
        buf_clear(&f->scratch);
        call_write(c, f->incarnation.epoch, &f->scratch);
        redisAppendFormattedCommand(f->context, f->scratch.bytes, f->scratch.len);
        f->queued++;
        f->queued_bytes += f->scratch.len;
        if (f->queued >= QUEUED_MAX || f->queued_bytes >= QUEUED_BYTES_MAX) rebuild_flush(f);
    }
    buf_deinit(&c->command);
    if (c->event != NULL) redis_event_release(c->event);
    c->event = NULL;
}

static bool rebuild_begin_incarnation(struct rebuild *f) {
    if (f->context == NULL || !rebuild_guard(f)) return false;
    redisAppendCommand(f->context, "ZADD " TICKS_KEY " +inf -");
    redisAppendCommand(f->context, "HSET " INCARNATION_KEY " epoch %u identity %s",
                       f->incarnation.epoch, f->incarnation.identity);
    return rebuild_commit(f, 2);
}

static enum err redis_rebuild_end(struct hot *h) {
    struct redis_store *s = hot_store(h);
    struct rebuild *f = s->rebuild;
    assert(f != NULL);
    rebuild_flush(f);
    bool done = rebuild_begin_incarnation(f);
    rebuild_free(f);
    s->rebuild = NULL;
    return done ? ERR_OK : ERR_HOT_UNAVAILABLE;
}

static void redis_open(struct hot *h, const struct hot_incarnation *incarnation) {
    redis_status_open(&hot_store(h)->status, incarnation);
}

static void redis_shut(struct hot *h) {
    redis_status_open(&hot_store(h)->status, NULL);
}

static void redis_announce(struct hot *h) {
    struct redis_worker *w = redis_worker_mine();
    assert(w != NULL && w->store == hot_store(h));
    struct call *c = call_new(w->store, NULL);
    call_begin_command(c);
    call_add(c, STR("PUBLISH"));
    call_add(c, STR(EVENTS_CHANNEL));
    call_add(c, str_of(w->store->node));
    call_send_once(c, call_ignore);
}

/* "NODE item item …" */
static void redis_publish_list(struct hot *h, str channel, struct buf *list) {
    struct redis_worker *w = redis_worker_mine();
    assert(w != NULL && w->store == hot_store(h));
    struct call *c = call_new(w->store, NULL);
    call_begin_command(c);
    call_add(c, STR("PUBLISH"));
    call_add(c, channel);
    call_add(c, buf_str(list));
    call_send_once(c, call_ignore);
    buf_deinit(list);
}

static void redis_announce_accepted(struct hot *h, const int64_t *partitions, size_t count) {
    struct buf list = {0};
    buf_add(&list, str_of(hot_store(h)->node));
    for (size_t i = 0; i < count; i++) buf_addf(&list, " %lld", (long long)partitions[i]);
    redis_publish_list(h, STR(ACCEPTED_CHANNEL), &list);
}

static void redis_announce_decided(struct hot *h, const struct uuid *ids, size_t count) {
    struct buf list = {0};
    char text[UUID_TEXT_BYTES];
    buf_add(&list, str_of(hot_store(h)->node));
    for (size_t i = 0; i < count; i++) {
        uuid_format(&ids[i], text);
        buf_add_char(&list, ' ');
        buf_add(&list, (str){text, sizeof text});
    }
    redis_publish_list(h, STR(DECIDED_CHANNEL), &list);
}

/* The lease is a key that expires, so that another node continues the work if this node dies. */
static enum err redis_lease(struct hot *h, const char *what, int64_t for_ms, bool *is_ours) {
    struct redis_store *s = hot_store(h);
    char identity[HOT_IDENTITY_BYTES];
    *is_ours = false;
    redisContext *c = store_connect(s, LOOK_MS, identity);
    if (c == NULL) return ERR_HOT_UNAVAILABLE;
    redisReply *r = store_check_reply(s, c,
                                      redisCommand(c, "SET admitone:{hot}:lease:%s %s NX PX %lld",
                                                   what, s->node, (long long)for_ms));
    *is_ours = r != NULL && r->type == REDIS_REPLY_STATUS;
    enum err result = r == NULL ? ERR_HOT_UNAVAILABLE : ERR_OK;
    freeReplyObject(r);
    redisFree(c);
    return result;
}

const struct hot_ops redis_hot_ops = {
    .listen = redis_listen,
    .read_incarnation = redis_read_incarnation,
    .state = redis_state,
    .rebuild = redis_rebuild_begin,
    .rebuilt = redis_rebuild_end,
    .open = redis_open,
    .shut = redis_shut,
    .announce = redis_announce,
    .announce_accepted = redis_announce_accepted,
    .announce_decided = redis_announce_decided,
    .counts = redis_count_events,
    .contents = redis_read_event,
    .lease = redis_lease,
};
