#include "hot/redis/link.h"

#include <netdb.h>
#include <stdatomic.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/mem.h"
#include "hot/redis/handshake.h"
#include "hot/redis/wire.h"

/* For each step towards the master: to ask a Sentinel, to be let in by the master. */
#define STEP_MS 1000
#define BACKOFF_MS_MIN 20
#define BACKOFF_MS_MAX 2000
/* A call that was told TRYAGAIN, and those behind it, are sent again after this time. */
#define AGAIN_MS 10
/* Behind its deadline, for what the server has said while this process stood still. */
#define LAST_MOMENT_MS 10

enum link_state {
    LINK_BACKOFF,       /* until the pace lets it try again */
    LINK_ASKS_SENTINEL, /* a Sentinel */
    LINK_HANDSHAKE,
    LINK_UP,
    LINK_CLOSED,
};

/* A name being resolved. It can't be stopped, so it may outlive its link. */
struct lookup {
    uv_getaddrinfo_t request;
    struct link *link; /* NULL: nobody waits for it */
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
    uint64_t handshake_version; /* of the gate, in which the connection told its identity */
    uint64_t complained_ms;
    enum link_state state;
    int open_handles;
    bool paused; /* up, but what is waiting waits for `load` or `pace` */
    bool loading;
    /* What the gate said at its `turn`. */
    bool fits;      /* the incarnation that is open is that of this connection */
    bool suspected; /* it was said in this turn, about this connection */
    uint32_t epoch;
    uint64_t status_version;
};

static void give_up(struct link *l, const char *why);
static void try_again(struct link *l);
static void send_waiting(struct link *l);

static uint64_t random_below(uint64_t bound) {
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    (void)got; /* whatever it is */
    return random % bound;
}

static struct call *first_call(struct list *calls) {
    return list_empty(calls) ? NULL : CONTAINER_OF(calls->next, struct call, place);
}

static void move_all(struct list *to, struct list *from) {
    while (!list_empty(from)) list_move_last(to, from->next);
}

/* Calls. */

/* What was sent before over a connection that broke may have been done, whatever is said now. */
static void finish(struct call *c, enum err result, const redisReply *reply) {
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

static void suspect(struct link *l) {
    if (l->suspected) return;
    l->suspected = true;
    if (l->status->suspect != NULL) l->status->suspect(l->status->to);
}

/* Deadlines come in the order of sending, but for the few calls that wait. */
static void watch(struct link *l);

static void write_call(struct link *l, struct call *c) {
    if (c->epoch_at > 0) c->epoch = l->epoch;
    list_move_last(&l->sent, &c->place);
    buf_clear(&l->scratch);
    call_write(c, l->epoch, &l->scratch);
    wire_send(l->wire, buf_str(&l->scratch));
    if (!uv_is_active((uv_handle_t *)&l->watch)) watch(l);
}

/* The incarnation that is open is not this connection's. If it was opened since the server told its
 * identity, somebody else may be the master by now, or the server may have got another one: to be
 * found out by connecting anew. */
static void doubt(struct link *l) {
    suspect(l);
    if (l->state == LINK_UP && l->handshake_version != l->status_version)
        give_up(l, "the incarnation that is open is of another run");
}

/* Over the connection as it is now, or refused. */
static void pass(struct link *l, struct call *c) {
    bool is_command = c->epoch_at == 0;
    if (l->state != LINK_CLOSED) link_read_status(l, false);
    if (l->state != LINK_CLOSED && !is_command && l->epoch == 0) {
        finish(c, ERR_RECOVERING, NULL);
    } else if (l->state != LINK_UP) {
        finish(c, ERR_HOT_UNAVAILABLE, NULL);
    } else if (!is_command && !l->fits) {
        doubt(l);
        finish(c, ERR_RECOVERING, NULL);
    } else if (c->unsure && c->epoch != l->epoch) {
        finish(c, ERR_HOT_UNKNOWN, NULL);
    } else {
        write_call(l, c);
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
        pass(l, c);
}

static void send_waiting(struct link *l) {
    struct list calls;
    list_init(&calls);
    move_all(&calls, &l->waiting);
    struct call *c;
    while ((c = first_call(&calls)) != NULL) {
        if (l->paused)
            list_move_last(&l->waiting, &c->place);
        else
            pass(l, c);
    }
}

/* The connection is gone, or given up. What was under way is unsure from now on; what may be asked
 * twice waits for the next connection. */
static void cut(struct link *l) {
    if (l->lookup != NULL) l->lookup->link = NULL;
    l->lookup = NULL;
    if (l->wire != NULL) wire_close(l->wire);
    l->wire = NULL;
    l->paused = false;
    uv_timer_stop(&l->pace);
}

static void release_calls(struct link *l) {
    uint64_t now = uv_now(l->loop);
    struct list calls;
    list_init(&calls);
    struct call *c;
    for (struct list *at = l->sent.next; at != &l->sent; at = at->next)
        CONTAINER_OF(at, struct call, place)->unsure = true;
    move_all(&calls, &l->sent);
    move_all(&calls, &l->waiting);
    while ((c = first_call(&calls)) != NULL) {
        bool may_wait = c->repeats && c->unsure && c->deadline_ms > now;
        if (may_wait && l->state != LINK_CLOSED)
            list_move_last(&l->waiting, &c->place);
        else
            finish(c, ERR_HOT_UNAVAILABLE, NULL);
    }
}

static uint64_t backoff_ms(const struct link *l) {
    size_t hosts = l->address.host_count;
    if (l->tries % hosts != 0) return 0; /* the next Sentinel may know */
    uint64_t rounds = l->tries / hosts;
    uint64_t most = BACKOFF_MS_MAX;
    if (rounds <= 7) most = (uint64_t)BACKOFF_MS_MIN << (rounds > 0 ? rounds - 1 : 0);
    if (most > BACKOFF_MS_MAX) most = BACKOFF_MS_MAX;
    return most / 2 + random_below(most / 2 + 1);
}

static void on_pace(uv_timer_t *timer);

/* Gives this try up, or the connection; and rests before the next. */
static void give_up(struct link *l, const char *why) {
    redis_host_lost(&l->status->outage, &l->target, why);
    cut(l);
    l->state = LINK_BACKOFF;
    l->tries++;
    uv_timer_start(&l->pace, on_pace, backoff_ms(l), 0);
    release_calls(l);
}

/* Timers come before what can be read: where this loop was late itself, the answer may be there. */
static bool gets_a_last_moment(struct call *c, uint64_t now) {
    if (c->late) return false;
    c->late = true;
    c->deadline_ms = now + LAST_MOMENT_MS;
    return true;
}

/* At the latest of a call's deadline nobody waits for the answer any more. An answer that late
 * means that the connection is as good as broken. */
static void on_watch(uv_timer_t *timer) {
    struct link *l = timer->data;
    uint64_t now = uv_now(l->loop);
    struct list late;
    list_init(&late);
    for (struct list *at = l->waiting.next, *next; at != &l->waiting; at = next) {
        next = at->next;
        if (CONTAINER_OF(at, struct call, place)->deadline_ms <= now) list_move_last(&late, at);
    }
    struct call *c = first_call(&l->sent);
    if (c != NULL && c->deadline_ms <= now && !gets_a_last_moment(c, now))
        give_up(l, "no answer in time");
    while ((c = first_call(&late)) != NULL) finish(c, ERR_HOT_UNAVAILABLE, NULL);
    if (l->state != LINK_CLOSED) watch(l);
}

static void watch(struct link *l) {
    uint64_t next = UINT64_MAX;
    struct call *c = first_call(&l->sent);
    if (c != NULL) next = c->deadline_ms;
    for (struct list *at = l->waiting.next; at != &l->waiting; at = at->next) {
        c = CONTAINER_OF(at, struct call, place);
        if (c->deadline_ms < next) next = c->deadline_ms;
    }
    uint64_t now = uv_now(l->loop);
    if (next == UINT64_MAX)
        uv_timer_stop(&l->watch);
    else
        uv_timer_start(&l->watch, on_watch, next > now ? next - now : 0, 0);
}

/* Answers. */

static void complain(struct link *l, str error) {
    uint64_t now = uv_now(l->loop);
    if (l->complained_ms != 0 && now - l->complained_ms < 1000) return;
    l->complained_ms = now;
    log_error(msg("redis returned an error"), kv_str("error", error));
}

static void hold_back(struct link *l, struct call *c) {
    list_move_last(&l->waiting, &c->place);
    l->paused = true;
    if (!uv_is_active((uv_handle_t *)&l->watch)) watch(l);
}

static void judge(struct link *l, struct call *c, str error);

/* The library could not be loaded. */
static void refuse_waiting(struct link *l, str error) {
    struct list calls;
    list_init(&calls);
    move_all(&calls, &l->waiting);
    struct call *c;
    while ((c = first_call(&calls)) != NULL) judge(l, c, error);
}

static void on_loaded(struct call *load, enum err result, const redisReply *reply) {
    struct link *l = CONTAINER_OF(load, struct link, load);
    l->loading = false;
    if (l->state != LINK_UP) return; /* who waited for it was told */
    str error = reply_str(reply);
    bool is_there = result == ERR_OK || memmem(error.at, error.len, "already exists", 14) != NULL;
    l->paused = false;
    if (is_there)
        send_waiting(l);
    else
        refuse_waiting(l, error);
}

static void load_library(struct link *l) {
    if (l->loading) return;
    l->loading = true;
    bool was_paused = l->paused;
    l->paused = false;
    call_begin_command(&l->load);
    call_add(&l->load, STR("FUNCTION"));
    call_add(&l->load, STR("LOAD"));
    call_add(&l->load, str_of(admitone_lua));
    l->load.done = on_loaded;
    link_send(l, &l->load);
    l->paused = was_paused;
}

static bool is_any(str error, const str *codes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (str_starts(error, codes[i])) return true;
    return false;
}

#define IS_ANY(error, ...)                                                                         \
    is_any(error, (const str[]){__VA_ARGS__}, sizeof((const str[]){__VA_ARGS__}) / sizeof(str))

static void on_disowned(struct call *c, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    mem_free(c);
}

/* What was lost of this incarnation can't be found again: it ends, and whoever looks after the
 * store fills it for another one. */
static void disown(struct link *l) {
    struct call *c = mem_new(sizeof *c);
    c->done = on_disowned;
    call_begin(c, "disown", 1);
    call_add(c, STR(INCARNATION_KEY));
    link_send(l, c);
}

/* Errors of the server, and of the functions (lua/common.lua). */
static void judge(struct link *l, struct call *c, str error) {
    if (IS_ANY(error, STR("EPOCH"), STR("NOEVENT"))) {
        link_read_status(l, false);
        bool is_ours = c->epoch == l->epoch; /* else another incarnation was opened meanwhile */
        if (is_ours && c->expects && str_starts(error, STR("NOEVENT"))) disown(l);
        if (is_ours) suspect(l);
        finish(c, ERR_RECOVERING, NULL);
    } else if (str_starts(error, STR("GONE"))) {
        finish(c, ERR_EVENT_NOT_FOUND, NULL);
    } else if (str_starts(error, STR("ERR Function not found")) && !c->loaded) {
        c->loaded = true;
        load_library(l);
        hold_back(l, c);
    } else if (str_starts(error, STR("TRYAGAIN"))) {
        if (!l->paused) uv_timer_start(&l->pace, on_pace, AGAIN_MS, 0);
        hold_back(l, c);
    } else if (IS_ANY(error, STR("READONLY"), STR("MASTERDOWN"))) {
        redis_status_refused(l->status, error);
        finish(c, ERR_HOT_UNAVAILABLE, NULL);
        if (l->state == LINK_UP) give_up(l, "it is no longer the master");
    } else if (redis_status_refused(l->status, error) != HOT_STATE_OK) {
        finish(c, str_starts(error, STR("OOM")) ? ERR_HOT_FULL : ERR_HOT_UNAVAILABLE, NULL);
    } else if (IS_ANY(error, STR("LOADING"), STR("BUSY"))) {
        finish(c, ERR_HOT_UNAVAILABLE, NULL);
    } else {
        complain(l, error);
        finish(c, ERR_INTERNAL, NULL);
    }
}

static void answered(struct link *l, const redisReply *reply) {
    struct call *c = first_call(&l->sent);
    if (c == NULL) {
        give_up(l, "it answers what was not asked");
        return;
    }
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    if (!is_error)
        finish(c, ERR_OK, reply);
    else if (c->epoch_at == 0)
        finish(c, ERR_INTERNAL, reply);
    else
        judge(l, c, reply_str(reply));
}

/* The way to the master. */

static void on_up(struct link *l) {
    uv_timer_stop(&l->pace);
    l->state = LINK_UP;
    l->tries = 0;
    outage_back(&l->status->outage);
    link_read_status(l, true);
    l->handshake_version = l->status_version;
    if (l->epoch > 0 && !l->fits) suspect(l);
    send_waiting(l);
}

static void on_connected(void *to) {
    struct link *l = to;
    buf_clear(&l->scratch);
    if (l->state == LINK_ASKS_SENTINEL) {
        sentinel_ask(&l->address, &l->scratch);
        wire_send(l->wire, buf_str(&l->scratch));
        return;
    }
    /* hiredis expects one answer for each thing that is sent. */
    handshake_begin(&l->handshake, &l->address, &l->scratch);
    size_t from = 0;
    for (size_t i = 0; i < l->handshake.count; i++) {
        size_t end = l->handshake.ends[i];
        wire_send(l->wire, (str){l->scratch.bytes + from, end - from});
        from = end;
    }
}

static void reach(struct link *l, enum link_state state, const struct redis_host *host);

static void on_replied(void *to, const redisReply *reply) {
    struct link *l = to;
    if (l->state == LINK_UP) {
        answered(l, reply);
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
        give_up(l, buf_cstr(&why));
    } else if (answer == HANDSHAKE_DONE && l->state == LINK_ASKS_SENTINEL) {
        cut(l);
        reach(l, LINK_HANDSHAKE, &master);
    } else if (answer == HANDSHAKE_DONE) {
        on_up(l);
    }
    buf_deinit(&why);
}

static void on_lost(void *to, const char *why) {
    struct link *l = to;
    l->wire = NULL;
    give_up(l, why);
}

static void connect_to(struct link *l, const struct addrinfo *found) {
    size_t count = 0;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) count++;
    size_t skip = count == 0 ? 0 : l->tries / l->address.host_count % count;
    while (skip-- > 0) found = found->ai_next;
    char ip[NI_MAXHOST];
    if (found == NULL || getnameinfo(found->ai_addr, found->ai_addrlen, ip, sizeof ip, NULL, 0,
                                     NI_NUMERICHOST) != 0) {
        give_up(l, "the name has no address");
        return;
    }
    struct wire_listener listener = {
        .connected = on_connected, .replied = on_replied, .lost = on_lost, .to = l};
    struct buf why = {0};
    l->wire = wire_open(l->loop, ip, l->target.port, listener, &why);
    if (l->wire == NULL) give_up(l, buf_cstr(&why));
    buf_deinit(&why);
}

static void on_resolved(uv_getaddrinfo_t *request, int failed, struct addrinfo *found) {
    struct lookup *lookup = request->data;
    struct link *l = lookup->link;
    mem_free(lookup);
    if (l != NULL) {
        l->lookup = NULL;
        if (failed != 0)
            give_up(l, uv_strerror(failed));
        else
            connect_to(l, found);
    }
    uv_freeaddrinfo(found);
}

static void reach(struct link *l, enum link_state state, const struct redis_host *host) {
    l->state = state;
    l->target = *host;
    uv_timer_start(&l->pace, on_pace, STEP_MS, 0);
    struct lookup *lookup = mem_new(sizeof *lookup);
    lookup->link = l;
    lookup->request.data = lookup;
    l->lookup = lookup;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int failed = uv_getaddrinfo(l->loop, &lookup->request, on_resolved, host->name, NULL, &hints);
    if (failed == 0) return;
    l->lookup = NULL;
    mem_free(lookup);
    give_up(l, uv_strerror(failed));
}

static void try_again(struct link *l) {
    const struct redis_host *host = &l->address.hosts[l->tries % l->address.host_count];
    reach(l, l->address.sentinel ? LINK_ASKS_SENTINEL : LINK_HANDSHAKE, host);
}

static void on_pace(uv_timer_t *timer) {
    struct link *l = timer->data;
    if (l->state == LINK_BACKOFF) {
        try_again(l);
    } else if (l->state == LINK_UP) {
        l->paused = false;
        send_waiting(l);
    } else {
        give_up(l, l->wire == NULL ? "its name is not resolved in time" : "no answer in time");
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
    try_again(l);
    return l;
}

static void on_closed(uv_handle_t *handle) {
    struct link *l = handle->data;
    if (--l->open_handles > 0) return;
    buf_deinit(&l->scratch);
    mem_free(l);
}

void link_close(struct link *l) {
    assert(l->state != LINK_CLOSED);
    cut(l);
    l->state = LINK_CLOSED;
    release_calls(l);
    uv_close((uv_handle_t *)&l->pace, on_closed);
    uv_close((uv_handle_t *)&l->watch, on_closed);
}

bool link_is_up(const struct link *l) {
    return l->state == LINK_UP;
}
