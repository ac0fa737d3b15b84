/* What other nodes announce, heard on a thread of its own over a connection of its own. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "hot/redis/blocking.h"
#include "hot/redis/internal.h"

#define STEP_MS 1000
#define BACKOFF_MS_MIN 20
#define BACKOFF_MS_MAX 2000
/* A connection over which nothing comes is asked whether it is still there. */
#define PING_MS 1000
#define SILENCE_MS 3000

struct announcements {
    struct redis_store *store;
    pthread_t thread;
    int wake; /* an eventfd: there is a listener, or it is time to end */
    _Atomic bool ends;
    redisContext *context;
    char identity[HOT_IDENTITY_BYTES]; /* of the server, and the gate's turn when it told it */
    uint64_t status_version;
    bool has_returned; /* there is a connection, of which the listener was not told yet */
    char locks_channel[64];
    bool was_told; /* that there is no connection */
};

static struct hot_listener listener_of(struct redis_store *s) {
    pthread_rwlock_rdlock(&s->lock);
    struct hot_listener listener = s->listener;
    pthread_rwlock_unlock(&s->lock);
    return listener;
}

/* "NODE TYPE:ID seq seq …" */
static void hear_entries(struct redis_store *s, str payload) {
    struct hot_listener listener = listener_of(s);
    str node, tag, number;
    if (!str_split(&payload, ' ', &node) || str_eq(node, str_of(s->node))) return;
    if (!str_split(&payload, ' ', &tag)) return;
    int64_t key = store_find_event_key(s, tag);
    if (key == 0 || listener.changed == NULL) return;
    size_t count = 0;
    uint64_t *seqs = mem_new((payload.len / 2 + 1) * sizeof *seqs);
    while (str_split(&payload, ' ', &number)) {
        int64_t seq = 0;
        if (str_to_i64(number, &seq) && seq > 0) seqs[count++] = (uint64_t)seq;
    }
    if (count > 0) listener.changed(listener.to, key, seqs, count);
    mem_free(seqs);
}

static void hear_events(struct redis_store *s, str node) {
    struct hot_listener listener = listener_of(s);
    if (str_eq(node, str_of(s->node)) || listener.event_changed == NULL) return;
    listener.event_changed(listener.to);
}

static void hear(struct announcements *n, const redisReply *r) {
    if (!str_eq(reply_str(reply_at(r, 0)), STR("message"))) return; /* a pong, say */
    str channel = reply_str(reply_at(r, 1));
    str payload = reply_str(reply_at(r, 2));
    if (str_eq(channel, STR(EVENTS_CHANNEL)))
        hear_events(n->store, payload);
    else if (str_eq(channel, STR(ENTRIES_CHANNEL)))
        hear_entries(n->store, payload);
    else if (str_eq(channel, str_of(n->locks_channel)))
        locks_heard(n->store, payload);
}

/* Something may have been missed while nobody listened. */
static void tell_return(struct announcements *n) {
    struct hot_listener listener = listener_of(n->store);
    if (!n->has_returned || listener.suspect == NULL) return;
    n->has_returned = false;
    listener.suspect(listener.to);
    if (listener.event_changed != NULL) listener.event_changed(listener.to);
}

/* True: it is time to end. Waits for that, and for the connection if there is one. */
static bool wait_ms(struct announcements *n, int64_t ms, bool *readable) {
    struct pollfd fds[2] = {{.fd = n->wake, .events = POLLIN},
                            {.fd = n->context == NULL ? -1 : n->context->fd, .events = POLLIN}};
    if (ms < 0) ms = 0;
    while (poll(fds, 2, (int)ms) < 0 && errno == EINTR) continue;
    if (readable != NULL) *readable = fds[1].revents != 0;
    if (fds[0].revents != 0) {
        uint64_t times;
        ssize_t got = read(n->wake, &times, sizeof times);
        assert(got == sizeof times);
        tell_return(n);
    }
    return n->ends;
}

static bool subscribe(struct announcements *n) {
    redisContext *c = n->context;
    redisAppendCommand(c, "SUBSCRIBE %s %s %s", EVENTS_CHANNEL, ENTRIES_CHANNEL, n->locks_channel);
    for (int i = 0; i < 3; i++) {
        void *reply = NULL;
        if (redisGetReply(c, &reply) != REDIS_OK) return false;
        bool is_done = ((redisReply *)reply)->type == REDIS_REPLY_ARRAY;
        freeReplyObject(reply);
        if (!is_done) return false;
    }
    return true;
}

static bool connect_once(struct announcements *n) {
    struct buf why = {0};
    n->status_version = n->store->status.version;
    n->context = blocking_connect(&n->store->options.address, STEP_MS, n->identity, &why);
    bool done = n->context != NULL && subscribe(n);
    if (n->context == NULL)
        redis_host_lost(&n->store->status.outage, &n->store->options.address.hosts[0],
                        buf_cstr(&why));
    else if (!done && !n->was_told)
        log_warn(msg("cannot subscribe to announcements of other nodes; streams update at the next "
                     "tick"),
                 kv("why", n->context->errstr));
    if (done && n->was_told) log_info(msg("subscribed to announcements of other nodes again"));
    n->was_told = !done && (n->was_told || n->context != NULL);
    if (!done && n->context != NULL) {
        redisFree(n->context);
        n->context = NULL;
    }
    buf_deinit(&why);
    return done;
}

/* Everything that is there already. False: the connection is broken. */
static bool hear_all(struct announcements *n) {
    if (redisBufferRead(n->context) != REDIS_OK) return false;
    for (;;) {
        void *reply = NULL;
        if (redisGetReplyFromReader(n->context, &reply) != REDIS_OK) return false;
        if (reply == NULL) return true;
        hear(n, reply);
        freeReplyObject(reply);
    }
}

static bool ping(redisContext *c) {
    int done = 0;
    redisAppendCommand(c, "PING");
    while (!done)
        if (redisBufferWrite(c, &done) != REDIS_OK) return false;
    return true;
}

/* A incarnation was opened since, on another run of the server: this one may not be the master any
 * more.
 */
static bool is_outdated(struct announcements *n) {
    if (n->store->status.version == n->status_version) return false;
    struct hot_incarnation incarnation = redis_status_incarnation(&n->store->status);
    return incarnation.epoch > 0 && strcmp(incarnation.identity, n->identity) != 0;
}

/* Until the connection breaks, or is silent for too long. True: it is time to end. */
static bool listen_on(struct announcements *n) {
    int64_t heard_ms = clock_steady_ms();
    int64_t pinged_ms = heard_ms;
    for (;;) {
        bool readable = false;
        if (wait_ms(n, pinged_ms + PING_MS - clock_steady_ms(), &readable)) return true;
        int64_t now = clock_steady_ms();
        if (readable) {
            if (!hear_all(n)) return false;
            heard_ms = now;
        } else if (now - heard_ms >= SILENCE_MS) {
            return false;
        }
        if (now - pinged_ms >= PING_MS) {
            if (is_outdated(n) || !ping(n->context)) return false;
            pinged_ms = now;
        }
    }
}

/* Nodes that lost the same server don't come back all at once. */
static int64_t with_jitter(int64_t most_ms) {
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    (void)got; /* whatever it is */
    return most_ms / 2 + (int64_t)(random % (uint64_t)(most_ms / 2 + 1));
}

static void *run(void *data) {
    struct announcements *n = data;
    int64_t backoff_ms = BACKOFF_MS_MIN;
    bool ends = false;
    while (!ends) {
        if (connect_once(n)) {
            backoff_ms = BACKOFF_MS_MIN;
            n->has_returned = true;
            tell_return(n);
            ends = listen_on(n);
            n->has_returned = false;
            redisFree(n->context);
            n->context = NULL;
        }
        if (!ends) ends = wait_ms(n, with_jitter(backoff_ms), NULL);
        backoff_ms = backoff_ms * 2 > BACKOFF_MS_MAX ? BACKOFF_MS_MAX : backoff_ms * 2;
    }
    return NULL;
}

struct announcements *announcements_new(struct redis_store *s) {
    struct announcements *n = mem_new(sizeof *n);
    n->store = s;
    snprintf(n->locks_channel, sizeof n->locks_channel, LOCKS_CHANNEL "%s", s->node);
    n->wake = eventfd(0, EFD_CLOEXEC);
    assert(n->wake >= 0);
    int failed = thread_start(&n->thread, "redis listener", THREAD_ALONE, run, n);
    assert(failed == 0);
    return n;
}

void announcements_wake(struct announcements *n) {
    uint64_t one = 1;
    ssize_t written = write(n->wake, &one, sizeof one);
    assert(written == sizeof one);
}

void announcements_free(struct announcements *n) {
    n->ends = true;
    announcements_wake(n);
    pthread_join(n->thread, NULL);
    close(n->wake);
    mem_free(n);
}
