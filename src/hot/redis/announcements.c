/* Announcements of other nodes, received on a separate thread over a separate connection. */
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
#include "core/request.h"
#include "hot/redis/blocking.h"
#include "hot/redis/internal.h"

#define STEP_MS 1000
#define BACKOFF_MS_MIN 20
#define BACKOFF_MS_MAX 2000
/* When nothing is received, the connection is checked with PING. */
#define PING_MS 1000
#define SILENCE_MS 3000
#define CHANNELS 5

struct announcements {
    struct redis_store *store;
    pthread_t thread;
    int wake; /* an eventfd: there is a listener, or it is time to end */
    _Atomic bool ends;
    redisContext *context;
    char identity[HOT_IDENTITY_BYTES]; /* of the server, and the version of the status then */
    uint64_t status_version;
    bool has_returned; /* there is a new connection, and the listener was not notified yet */
    char locks_channel[64];
    bool is_logged; /* that subscribing fails */
};

static struct hot_listener announcements_listener(struct redis_store *s) {
    pthread_rwlock_rdlock(&s->lock);
    struct hot_listener listener = s->listener;
    pthread_rwlock_unlock(&s->lock);
    return listener;
}

/* "NODE TYPE:ID seq seq …", or "- TYPE:ID all" for all entries of the event: "-" is no node, so
 * every node gets that one. */
static void announcements_on_entries(struct redis_store *s, str payload) {
    struct hot_listener listener = announcements_listener(s);
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
    bool is_all = count == 0 && str_eq(node, STR("-"));
    if (count > 0 || is_all) listener.changed(listener.to, key, seqs, count);
    mem_free(seqs);
}

static void announcements_on_event(struct redis_store *s, str node) {
    struct hot_listener listener = announcements_listener(s);
    if (str_eq(node, str_of(s->node)) || listener.event_changed == NULL) return;
    listener.event_changed(listener.to);
}

/* "NODE partition partition …" */
static void announcements_on_accepted(struct redis_store *s, str payload) {
    struct hot_listener listener = announcements_listener(s);
    int64_t partitions[REQUEST_PARTITIONS];
    size_t count = 0;
    str node, number;
    if (!str_split(&payload, ' ', &node) || str_eq(node, str_of(s->node))) return;
    while (count < REQUEST_PARTITIONS && str_split(&payload, ' ', &number)) {
        bool fits = str_to_i64(number, &partitions[count]) && partitions[count] >= 0 &&
                    partitions[count] < REQUEST_PARTITIONS;
        if (fits) count++;
    }
    if (count > 0 && listener.requests_accepted != NULL)
        listener.requests_accepted(listener.to, partitions, count);
}

/* "NODE id id …" */
static void announcements_on_decided(struct redis_store *s, str payload) {
    struct hot_listener listener = announcements_listener(s);
    str node, id;
    if (!str_split(&payload, ' ', &node) || str_eq(node, str_of(s->node))) return;
    size_t count = 0;
    struct uuid *ids = mem_new((payload.len / (UUID_TEXT_BYTES + 1) + 1) * sizeof *ids);
    while (str_split(&payload, ' ', &id))
        if (uuid_parse(id, &ids[count])) count++;
    if (count > 0 && listener.requests_decided != NULL)
        listener.requests_decided(listener.to, ids, count);
    mem_free(ids);
}

static void announcements_on_message(struct announcements *n, const redisReply *r) {
    if (!str_eq(reply_str(reply_at(r, 0)), STR("message"))) return; /* a pong, say */
    str channel = reply_str(reply_at(r, 1));
    str payload = reply_str(reply_at(r, 2));
    if (str_eq(channel, STR(EVENTS_CHANNEL)))
        announcements_on_event(n->store, payload);
    else if (str_eq(channel, STR(ENTRIES_CHANNEL)))
        announcements_on_entries(n->store, payload);
    else if (str_eq(channel, STR(ACCEPTED_CHANNEL)))
        announcements_on_accepted(n->store, payload);
    else if (str_eq(channel, STR(DECIDED_CHANNEL)))
        announcements_on_decided(n->store, payload);
    else if (str_eq(channel, str_of(n->locks_channel)))
        locks_on_announcement(n->store, payload);
}

/* Announcements may have been missed while there was no connection. */
static void announcements_report_return(struct announcements *n) {
    struct hot_listener listener = announcements_listener(n->store);
    if (!n->has_returned || listener.suspect == NULL) return;
    n->has_returned = false;
    listener.suspect(listener.to);
    if (listener.event_changed != NULL) listener.event_changed(listener.to);
}

/* Waits for the connection, if there is one. True: the thread must end. */
static bool announcements_wait(struct announcements *n, int64_t ms, bool *readable) {
    struct pollfd fds[2] = {{.fd = n->wake, .events = POLLIN},
                            {.fd = n->context == NULL ? -1 : n->context->fd, .events = POLLIN}};
    if (ms < 0) ms = 0;
    while (poll(fds, 2, (int)ms) < 0 && errno == EINTR) continue;
    if (readable != NULL) *readable = fds[1].revents != 0;
    if (fds[0].revents != 0) {
        uint64_t times;
        ssize_t got = read(n->wake, &times, sizeof times);
        assert(got == sizeof times);
        announcements_report_return(n);
    }
    return n->ends;
}

static bool announcements_subscribe(struct announcements *n) {
    redisContext *c = n->context;
    redisAppendCommand(c, "SUBSCRIBE %s %s %s %s %s", EVENTS_CHANNEL, ENTRIES_CHANNEL,
                       n->locks_channel, ACCEPTED_CHANNEL, DECIDED_CHANNEL);
    for (int i = 0; i < CHANNELS; i++) {
        void *reply = NULL;
        if (redisGetReply(c, &reply) != REDIS_OK) return false;
        bool is_done = ((redisReply *)reply)->type == REDIS_REPLY_ARRAY;
        freeReplyObject(reply);
        if (!is_done) return false;
    }
    return true;
}

static bool announcements_connect(struct announcements *n) {
    struct buf why = {0};
    n->status_version = n->store->status.version;
    n->context = blocking_connect(&n->store->options.address, STEP_MS, n->identity, &why);
    bool done = n->context != NULL && announcements_subscribe(n);
    if (n->context == NULL)
        redis_status_unreachable(&n->store->status, &n->store->options.address.hosts[0],
                                 buf_cstr(&why));
    else if (!done && !n->is_logged)
        log_warn(msg("cannot subscribe to announcements of other nodes; streams update at the next "
                     "tick"),
                 kv("address", n->store->status.address), kv("error", n->context->errstr));
    if (done && n->is_logged)
        log_info(msg("subscribed to announcements of other nodes again"),
                 kv("address", n->store->status.address));
    n->is_logged = !done && (n->is_logged || n->context != NULL);
    if (!done && n->context != NULL) {
        redisFree(n->context);
        n->context = NULL;
    }
    buf_deinit(&why);
    return done;
}

/* Reads everything that has arrived. False: the connection is broken. */
static bool announcements_read(struct announcements *n) {
    if (redisBufferRead(n->context) != REDIS_OK) return false;
    for (;;) {
        void *reply = NULL;
        if (redisGetReplyFromReader(n->context, &reply) != REDIS_OK) return false;
        if (reply == NULL) return true;
        announcements_on_message(n, reply);
        freeReplyObject(reply);
    }
}

static bool announcements_ping(redisContext *c) {
    int done = 0;
    redisAppendCommand(c, "PING");
    while (!done)
        if (redisBufferWrite(c, &done) != REDIS_OK) return false;
    return true;
}

/* An incarnation was opened since, on another run of the server: this server may not be the master
 * any more. */
static bool announcements_are_outdated(struct announcements *n) {
    if (n->store->status.version == n->status_version) return false;
    struct hot_incarnation incarnation = redis_status_incarnation(&n->store->status);
    return incarnation.epoch > 0 && strcmp(incarnation.identity, n->identity) != 0;
}

/* Until the connection breaks, or nothing is received for too long. True: the thread must end. */
static bool announcements_receive(struct announcements *n) {
    int64_t received_ms = clock_steady_ms();
    int64_t pinged_ms = received_ms;
    for (;;) {
        bool readable = false;
        if (announcements_wait(n, pinged_ms + PING_MS - clock_steady_ms(), &readable)) return true;
        int64_t now = clock_steady_ms();
        if (readable) {
            if (!announcements_read(n)) return false;
            received_ms = now;
        } else if (now - received_ms >= SILENCE_MS) {
            return false;
        }
        if (now - pinged_ms >= PING_MS) {
            if (announcements_are_outdated(n) || !announcements_ping(n->context)) return false;
            pinged_ms = now;
        }
    }
}

/* So that nodes that lost the same server don't connect all at once. */
static int64_t announcements_jitter(int64_t most_ms) {
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    (void)got; /* any value will do */
    return most_ms / 2 + (int64_t)(random % (uint64_t)(most_ms / 2 + 1));
}

static void *announcements_run(void *data) {
    struct announcements *n = data;
    int64_t backoff_ms = BACKOFF_MS_MIN;
    bool ends = false;
    while (!ends) {
        if (announcements_connect(n)) {
            backoff_ms = BACKOFF_MS_MIN;
            n->has_returned = true;
            announcements_report_return(n);
            ends = announcements_receive(n);
            n->has_returned = false;
            redisFree(n->context);
            n->context = NULL;
        }
        if (!ends) ends = announcements_wait(n, announcements_jitter(backoff_ms), NULL);
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
    int failed = thread_start(&n->thread, "redis listener", THREAD_ALONE, announcements_run, n);
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
