/* A connection to Redis that is kept open (link.h): finding the master, sending calls, mapping
 * errors to results, deadlines, and reconnecting. */
#include "hot/redis/link.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/mem.h"
#include "hot/redis/handshake.h"
#include "hot/redis/wire.h"

/* For each step of connecting: asking a Sentinel, and the handshake with the master. */
#define STEP_MS 1000
#define BACKOFF_MS_MIN 20
#define BACKOFF_MS_MAX 2000
/* After TRYAGAIN the call, and those behind it, are sent again after this time. */
#define AGAIN_MS 10
/* After a deadline, to read what the server has sent while this process was paused. */
#define LAST_MOMENT_MS 10

enum link_state {
    LINK_BACKOFF, /* until the next try */
    LINK_ASKS_SENTINEL,
    LINK_HANDSHAKE,
    LINK_UP,
    LINK_CLOSED,
};

/* A name being resolved. It can't be stopped, so it may outlive its link. */
struct lookup {
    uv_getaddrinfo_t request;
    struct link *link; /* NULL: the link does not need it any more */
};

struct link {
    uv_loop_t *loop;
    struct redis_address address;
    struct redis_status *status;
    uint64_t deadline_ms;
    struct lookup *lookup; /* at most one of these two */
    struct wire *wire;
    struct redis_host target; /* of both */
    struct handshake handshake;
    size_t tries;        /* since it was up */
    uv_timer_t pace;     /* the next try, the end of a step, or of a pause after TRYAGAIN */
    uv_timer_t watch;    /* the deadlines of calls */
    struct list sent;    /* calls: answers come in this order */
    struct list waiting; /* calls: to be sent before any other */
    struct call load;
    struct buf scratch;
    uint64_t handshake_version; /* of the status, when the server sent its identity */
    uint64_t complained_ms;
    enum link_state state;
    int open_handles;
    bool paused; /* up, but `waiting` waits for `load` or `pace` */
    bool loading;
    /* As read from the status at `status_version`. */
    bool fits;      /* the open incarnation is that of this connection's server */
    bool suspected; /* the listener was notified about this connection since then */
    uint32_t epoch;
    uint64_t status_version;
};

static void link_give_up(struct link *l, const char *why);
static void link_try_again(struct link *l);
static void link_send_waiting(struct link *l);

static uint64_t link_random_below(uint64_t bound) {
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    (void)got; /* any value will do */
    return random % bound;
}

static struct call *link_first_call(struct list *calls) {
    return list_empty(calls) ? NULL : CONTAINER_OF(calls->next, struct call, place);
}

static void link_move_calls(struct list *to, struct list *from) {
    while (!list_empty(from)) list_move_last(to, from->next);
}

/* ---- calls ---- */

/* A call that was sent before over a connection that broke may have been executed, whatever its
 * result is now. */
static void link_end_call(struct call *c, enum err result, const redisReply *reply) {
    list_remove(&c->place);
    buf_deinit(&c->command);
    if (c->unsure && result != ERR_OK && result != ERR_EVENT_NOT_FOUND) result = ERR_HOT_UNKNOWN;
    c->done(c, result, reply);
}

static void link_read_status(struct link *l, bool is_new) {
    if (!is_new &&
        atomic_load_explicit(&l->status->version, memory_order_acquire) == l->status_version)
        return;
    pthread_mutex_lock(&l->status->lock);
    l->status_version = l->status->version;
    l->epoch = l->status->incarnation.epoch;
    l->fits = l->epoch > 0 && strcmp(l->status->incarnation.identity, l->handshake.identity) == 0;
    pthread_mutex_unlock(&l->status->lock);
    l->suspected = false;
}

static void link_suspect(struct link *l) {
    if (l->suspected) return;
    l->suspected = true;
    if (l->status->suspect != NULL) l->status->suspect(l->status->to);
}

/* Deadlines are in the order of sending, except for the few calls in `waiting`. */
static void link_start_watch(struct link *l);

static void link_write_call(struct link *l, struct call *c) {
    if (c->epoch_at > 0) c->epoch = l->epoch;
    list_move_last(&l->sent, &c->place);
    buf_clear(&l->scratch);
    call_write(c, l->epoch, &l->scratch);
    wire_send(l->wire, buf_str(&l->scratch));
    if (!uv_is_active((uv_handle_t *)&l->watch)) link_start_watch(l);
}

/* The open incarnation is not this connection's. If it was opened after the handshake, another
 * server may be the master by now, or this one may have got another identity: connecting again
 * finds out. */
static void link_doubt(struct link *l) {
    link_suspect(l);
    if (l->state == LINK_UP && l->handshake_version != l->status_version)
        link_give_up(l, "the open incarnation belongs to another run of the server");
}

/* Over the connection as it is now, or refused. */
static void link_pass(struct link *l, struct call *c) {
    bool is_command = c->epoch_at == 0;
    if (l->state != LINK_CLOSED) link_read_status(l, false);
    if (l->state != LINK_CLOSED && !is_command && l->epoch == 0) {
        link_end_call(c, ERR_RECOVERING, NULL);
    } else if (l->state != LINK_UP) {
        link_end_call(c, ERR_HOT_UNAVAILABLE, NULL);
    } else if (!is_command && !l->fits) {
        link_doubt(l);
        link_end_call(c, ERR_RECOVERING, NULL);
    } else if (c->unsure && c->epoch != l->epoch) {
        link_end_call(c, ERR_HOT_UNKNOWN, NULL);
    } else {
        link_write_call(l, c);
    }
}

void link_send(struct link *l, struct call *c) {
    c->epoch = 0;
    c->unsure = false;
    c->loaded = false;
    c->late = false;
    c->deadline_ms = uv_now(l->loop) + l->deadline_ms;
    list_init(&c->place);
    if (l->paused)
        list_move_last(&l->waiting, &c->place);
    else
        link_pass(l, c);
}

static void link_send_waiting(struct link *l) {
    struct list calls;
    list_init(&calls);
    link_move_calls(&calls, &l->waiting);
    struct call *c;
    while ((c = link_first_call(&calls)) != NULL) {
        if (l->paused)
            list_move_last(&l->waiting, &c->place);
        else
            link_pass(l, c);
    }
}

static void link_cut(struct link *l) {
    if (l->lookup != NULL) l->lookup->link = NULL;
    l->lookup = NULL;
    if (l->wire != NULL) wire_close(l->wire);
    l->wire = NULL;
    l->paused = false;
    uv_timer_stop(&l->pace);
}

/* The connection is lost. Calls that were under way may have been executed; those that may be
 * repeated wait for the next connection. */
static void link_release_calls(struct link *l) {
    uint64_t now = uv_now(l->loop);
    struct list calls;
    list_init(&calls);
    struct call *c;
    for (struct list *at = l->sent.next; at != &l->sent; at = at->next)
        CONTAINER_OF(at, struct call, place)->unsure = true;
    link_move_calls(&calls, &l->sent);
    link_move_calls(&calls, &l->waiting);
    while ((c = link_first_call(&calls)) != NULL) {
        bool may_wait = c->repeats && c->unsure && c->deadline_ms > now;
        if (may_wait && l->state != LINK_CLOSED)
            list_move_last(&l->waiting, &c->place);
        else
            link_end_call(c, ERR_HOT_UNAVAILABLE, NULL);
    }
}

static uint64_t link_backoff_ms(const struct link *l) {
    size_t hosts = l->address.host_count;
    if (l->tries % hosts != 0) return 0; /* the next Sentinel may know */
    uint64_t rounds = l->tries / hosts;
    uint64_t most = BACKOFF_MS_MAX;
    if (rounds <= 7) most = (uint64_t)BACKOFF_MS_MIN << (rounds > 0 ? rounds - 1 : 0);
    if (most > BACKOFF_MS_MAX) most = BACKOFF_MS_MAX;
    return most / 2 + link_random_below(most / 2 + 1);
}

static void link_on_pace(uv_timer_t *timer);

/* Closes the connection, or ends the attempt to connect, and waits before the next attempt. */
static void link_give_up(struct link *l, const char *why) {
    redis_status_unreachable(l->status, &l->target, why);
    link_cut(l);
    l->state = LINK_BACKOFF;
    l->tries++;
    uv_timer_start(&l->pace, link_on_pace, link_backoff_ms(l), 0);
    link_release_calls(l);
}

/* The loop runs timers before it reads sockets: if it was late itself, the answer may be there. */
static bool link_extend_deadline(struct call *c, uint64_t now) {
    if (c->late) return false;
    c->late = true;
    c->deadline_ms = now + LAST_MOMENT_MS;
    return true;
}

/* Ends calls whose deadline has passed. When a sent call has no answer by then, the connection is
 * treated as broken. */
static void link_on_watch(uv_timer_t *timer) {
    struct link *l = timer->data;
    uint64_t now = uv_now(l->loop);
    struct list late;
    list_init(&late);
    for (struct list *at = l->waiting.next, *next; at != &l->waiting; at = next) {
        next = at->next;
        if (CONTAINER_OF(at, struct call, place)->deadline_ms <= now) list_move_last(&late, at);
    }
    struct call *c = link_first_call(&l->sent);
    if (c != NULL && c->deadline_ms <= now && !link_extend_deadline(c, now))
        link_give_up(l, "no answer in time");
    while ((c = link_first_call(&late)) != NULL) link_end_call(c, ERR_HOT_UNAVAILABLE, NULL);
    if (l->state != LINK_CLOSED) link_start_watch(l);
}

static void link_start_watch(struct link *l) {
    uint64_t next = UINT64_MAX;
    struct call *c = link_first_call(&l->sent);
    if (c != NULL) next = c->deadline_ms;
    for (struct list *at = l->waiting.next; at != &l->waiting; at = at->next) {
        c = CONTAINER_OF(at, struct call, place);
        if (c->deadline_ms < next) next = c->deadline_ms;
    }
    uint64_t now = uv_now(l->loop);
    if (next == UINT64_MAX)
        uv_timer_stop(&l->watch);
    else
        uv_timer_start(&l->watch, link_on_watch, next > now ? next - now : 0, 0);
}

/* ---- answers ---- */

static void link_log_error(struct link *l, str error) {
    uint64_t now = uv_now(l->loop);
    if (l->complained_ms != 0 && now - l->complained_ms < 1000) return;
    l->complained_ms = now;
    log_error(msg("redis returned an unexpected error; the request fails"),
              kv("address", l->status->address), kv_str("error", error));
}

static void link_hold_back(struct link *l, struct call *c) {
    list_move_last(&l->waiting, &c->place);
    l->paused = true;
    if (!uv_is_active((uv_handle_t *)&l->watch)) link_start_watch(l);
}

static void link_on_error(struct link *l, struct call *c, str error);

/* The library could not be loaded. */
static void link_refuse_waiting(struct link *l, str error) {
    struct list calls;
    list_init(&calls);
    link_move_calls(&calls, &l->waiting);
    struct call *c;
    while ((c = link_first_call(&calls)) != NULL) link_on_error(l, c, error);
}

static void link_on_loaded(struct call *load, enum err result, const redisReply *reply) {
    struct link *l = CONTAINER_OF(load, struct link, load);
    l->loading = false;
    if (l->state != LINK_UP) return; /* the waiting calls were ended */
    str error = reply_str(reply);
    bool is_there = result == ERR_OK || memmem(error.at, error.len, "already exists", 14) != NULL;
    l->paused = false;
    if (is_there)
        link_send_waiting(l);
    else
        link_refuse_waiting(l, error);
}

static void link_load_library(struct link *l) {
    if (l->loading) return;
    l->loading = true;
    bool was_paused = l->paused;
    l->paused = false;
    call_begin_command(&l->load);
    call_add(&l->load, STR("FUNCTION"));
    call_add(&l->load, STR("LOAD"));
    call_add(&l->load, str_of(admitone_lua));
    l->load.done = link_on_loaded;
    link_send(l, &l->load);
    l->paused = was_paused;
}

static bool link_error_is_any(str error, const str *codes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (str_starts(error, codes[i])) return true;
    return false;
}

#define IS_ANY(error, ...)                                                                         \
    link_error_is_any(error, (const str[]){__VA_ARGS__},                                           \
                      sizeof((const str[]){__VA_ARGS__}) / sizeof(str))

/* Redis has lost data of this incarnation. Ends the incarnation, so that the rebuilder of a node
 * rebuilds Redis for a new one. */
static void link_disown(struct link *l) {
    struct call *c = call_new(NULL, NULL);
    c->done = call_ignore;
    call_begin(c, "disown", 1);
    call_add(c, STR(INCARNATION_KEY));
    link_send(l, c);
}

/* Maps errors of the server, and of the functions (lua/common.lua), to results. */
static void link_on_error(struct link *l, struct call *c, str error) {
    if (IS_ANY(error, STR("EPOCH"), STR("NOEVENT"))) {
        link_read_status(l, false);
        bool is_ours = c->epoch == l->epoch; /* else another incarnation was opened since */
        if (is_ours && c->requires_event && str_starts(error, STR("NOEVENT"))) link_disown(l);
        if (is_ours) link_suspect(l);
        link_end_call(c, ERR_RECOVERING, NULL);
    } else if (str_starts(error, STR("GONE"))) {
        link_end_call(c, ERR_EVENT_NOT_FOUND, NULL);
    } else if (str_starts(error, STR("ERR Function not found")) && !c->loaded) {
        c->loaded = true;
        link_load_library(l);
        link_hold_back(l, c);
    } else if (str_starts(error, STR("TRYAGAIN"))) {
        if (!l->paused) uv_timer_start(&l->pace, link_on_pace, AGAIN_MS, 0);
        link_hold_back(l, c);
    } else if (IS_ANY(error, STR("READONLY"), STR("MASTERDOWN"))) {
        redis_status_refused(l->status, error);
        link_end_call(c, ERR_HOT_UNAVAILABLE, NULL);
        if (l->state == LINK_UP) link_give_up(l, "it is no longer the master");
    } else if (redis_status_refused(l->status, error) != HOT_STATE_OK) {
        link_end_call(c, str_starts(error, STR("OOM")) ? ERR_HOT_FULL : ERR_HOT_UNAVAILABLE, NULL);
    } else if (IS_ANY(error, STR("LOADING"), STR("BUSY"))) {
        link_end_call(c, ERR_HOT_UNAVAILABLE, NULL);
    } else {
        link_log_error(l, error);
        link_end_call(c, ERR_INTERNAL, NULL);
    }
}

static void link_on_answer(struct link *l, const redisReply *reply) {
    struct call *c = link_first_call(&l->sent);
    if (c == NULL) {
        link_give_up(l, "it sent a reply without a call");
        return;
    }
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    if (!is_error)
        link_end_call(c, ERR_OK, reply);
    else if (c->epoch_at == 0)
        link_end_call(c, ERR_INTERNAL, reply);
    else
        link_on_error(l, c, reply_str(reply));
}

/* ---- connecting to the master ---- */

static void link_on_up(struct link *l) {
    uv_timer_stop(&l->pace);
    l->state = LINK_UP;
    l->tries = 0;
    outage_back(&l->status->outage);
    link_read_status(l, true);
    l->handshake_version = l->status_version;
    if (l->epoch > 0 && !l->fits) link_suspect(l);
    link_send_waiting(l);
}

static void link_on_connected(void *to) {
    struct link *l = to;
    buf_clear(&l->scratch);
    if (l->state == LINK_ASKS_SENTINEL) {
        sentinel_ask(&l->address, &l->scratch);
        wire_send(l->wire, buf_str(&l->scratch));
        return;
    }
    /* hiredis expects one reply for each command that is sent. */
    handshake_begin(&l->handshake, &l->address, &l->scratch);
    size_t from = 0;
    for (size_t i = 0; i < l->handshake.count; i++) {
        size_t end = l->handshake.ends[i];
        wire_send(l->wire, (str){l->scratch.bytes + from, end - from});
        from = end;
    }
}

static void link_connect_to_host(struct link *l, enum link_state state,
                                 const struct redis_host *host);

static void link_on_replied(void *to, const redisReply *reply) {
    struct link *l = to;
    if (l->state == LINK_UP) {
        link_on_answer(l, reply);
        return;
    }
    struct buf why = {0};
    struct redis_host master = {0};
    enum handshake_answer answer = HANDSHAKE_DONE;
    if (l->state == LINK_HANDSHAKE)
        answer = handshake_read(&l->handshake, reply, &why);
    else if (!sentinel_read(reply, &master, &why))
        answer = HANDSHAKE_REFUSED;
    if (answer == HANDSHAKE_REFUSED) {
        redis_status_refused(l->status, buf_str(&why));
        link_give_up(l, buf_cstr(&why));
    } else if (answer == HANDSHAKE_DONE && l->state == LINK_ASKS_SENTINEL) {
        link_cut(l);
        link_connect_to_host(l, LINK_HANDSHAKE, &master);
    } else if (answer == HANDSHAKE_DONE) {
        link_on_up(l);
    }
    buf_deinit(&why);
}

static void link_on_lost(void *to, const char *why) {
    struct link *l = to;
    l->wire = NULL;
    link_give_up(l, why);
}

static void link_connect_to_ip(struct link *l, const char *ip) {
    struct wire_listener listener = {
        .connected = link_on_connected, .replied = link_on_replied, .lost = link_on_lost, .to = l};
    struct buf why = {0};
    l->wire = wire_open(l->loop, ip, l->target.port, listener, &why);
    if (l->wire == NULL) link_give_up(l, buf_cstr(&why));
    buf_deinit(&why);
}

static void link_connect_to_one(struct link *l, const struct addrinfo *found) {
    size_t count = 0;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) count++;
    size_t skip = count == 0 ? 0 : l->tries / l->address.host_count % count;
    while (skip-- > 0) found = found->ai_next;
    char ip[NI_MAXHOST];
    if (found == NULL || getnameinfo(found->ai_addr, found->ai_addrlen, ip, sizeof ip, NULL, 0,
                                     NI_NUMERICHOST) != 0) {
        link_give_up(l, "the name has no address");
        return;
    }
    link_connect_to_ip(l, ip);
}

static void link_on_resolved(uv_getaddrinfo_t *request, int failed, struct addrinfo *found) {
    struct lookup *lookup = request->data;
    struct link *l = lookup->link;
    mem_free(lookup);
    if (l != NULL) {
        l->lookup = NULL;
        if (failed != 0)
            link_give_up(l, uv_strerror(failed));
        else
            link_connect_to_one(l, found);
    }
    uv_freeaddrinfo(found);
}

static void link_connect_to_host(struct link *l, enum link_state state,
                                 const struct redis_host *host) {
    l->state = state;
    l->target = *host;
    uv_timer_start(&l->pace, link_on_pace, STEP_MS, 0);
    unsigned char ip[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host->name, ip) == 1 || inet_pton(AF_INET6, host->name, ip) == 1) {
        link_connect_to_ip(l, host->name); /* a name is resolved by a thread, which may be late */
        return;
    }
    struct lookup *lookup = mem_new(sizeof *lookup);
    lookup->link = l;
    lookup->request.data = lookup;
    l->lookup = lookup;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int failed =
        uv_getaddrinfo(l->loop, &lookup->request, link_on_resolved, host->name, NULL, &hints);
    if (failed == 0) return;
    l->lookup = NULL;
    mem_free(lookup);
    link_give_up(l, uv_strerror(failed));
}

static void link_try_again(struct link *l) {
    const struct redis_host *host = &l->address.hosts[l->tries % l->address.host_count];
    link_connect_to_host(l, l->address.sentinel ? LINK_ASKS_SENTINEL : LINK_HANDSHAKE, host);
}

static void link_on_pace(uv_timer_t *timer) {
    struct link *l = timer->data;
    if (l->state == LINK_BACKOFF) {
        link_try_again(l);
    } else if (l->state == LINK_UP) {
        l->paused = false;
        link_send_waiting(l);
    } else {
        link_give_up(l, l->wire == NULL ? "its name is not resolved in time" : "no answer in time");
    }
}

struct link *link_new(uv_loop_t *loop, const struct redis_address *address,
                      struct redis_status *status, int64_t deadline_ms) {
    assert(address->host_count > 0 && deadline_ms > 0);
    struct link *l = mem_new(sizeof *l);
    l->loop = loop;
    l->address = *address;
    l->status = status;
    l->deadline_ms = (uint64_t)deadline_ms;
    l->status_version = UINT64_MAX;
    list_init(&l->sent);
    list_init(&l->waiting);
    uv_timer_init(loop, &l->pace);
    uv_timer_init(loop, &l->watch);
    l->pace.data = l->watch.data = l;
    l->open_handles = 2;
    link_try_again(l);
    return l;
}

static void link_on_closed(uv_handle_t *handle) {
    struct link *l = handle->data;
    if (--l->open_handles > 0) return;
    buf_deinit(&l->scratch);
    mem_free(l);
}

void link_close(struct link *l) {
    assert(l->state != LINK_CLOSED);
    link_cut(l);
    l->state = LINK_CLOSED;
    link_release_calls(l);
    uv_close((uv_handle_t *)&l->pace, link_on_closed);
    uv_close((uv_handle_t *)&l->watch, link_on_closed);
}

bool link_is_up(const struct link *l) {
    return l->state == LINK_UP;
}
