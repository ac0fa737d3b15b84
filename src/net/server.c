/* The listening sockets, and what the connections of a worker share: deadlines, slices, draining.
 */
#include "net/server.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "net/internal.h"

#define BACKLOG 4096
#define DEADLINE_TICK_MS 100
#define LINGER_MS 2000
#define NEVER_MS (INT64_MAX / 4)
#define WARN_EVERY_MS 1000
/* How many bytes of answers the kernel may buffer per connection beyond the client's window; the
 * rest stays with us, where it is bounded (UNSENT_BYTES_MAX). Otherwise it would take up to 4 MB
 * for a client that does not read. */
#define KERNEL_UNSENT_BYTES_MAX 65536

/* A connection that is refused is answered with the reason, which takes a while and an open file.
 * In a flood only a limited number is answered, so that the process has files to work with; the
 * rest are closed without an answer. */
#define REFUSING_MAX 128

struct net *net_new(const struct net_options *options) {
    struct net *n = mem_new(sizeof *n);
    n->options = *options;
    n->peers = peers_new(options->max_connections, options->max_connections_per_address,
                         &options->trusted_proxies);
    return n;
}

void net_free(struct net *n) {
    peers_free(n->peers);
    mem_free(n);
}

int64_t net_connections(const struct net *n) {
    return peers_total(n->peers);
}

static int bind_one(struct sockaddr_storage *address, int *out) {
    socklen_t size =
        address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int on = 1;
    int unsent_max = KERNEL_UNSENT_BYTES_MAX;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    /* Accepted sockets inherit it; where the kernel does not know it, they work without. */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof unsent_max);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &size) != 0) {
        int failed = errno;
        close(fd);
        return failed;
    }
    *out = fd;
    return 0;
}

/* SO_REUSEPORT would let two servers of one user share the port by accident; so another server that
 * listens there already is found by a bind without it. */
static int check_free(struct sockaddr_storage address) {
    socklen_t size =
        address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int on = 1;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int failed = bind(fd, (struct sockaddr *)&address, size) != 0 ? errno : 0;
    close(fd);
    return failed;
}

int net_bind(struct sockaddr_storage *address, int *sockets, size_t count) {
    int failed = check_free(*address);
    size_t opened = 0;
    while (failed == 0 && opened < count) {
        failed = bind_one(address, &sockets[opened]);
        if (failed == 0) opened++;
    }
    while (failed != 0 && opened > 0) close(sockets[--opened]);
    return failed;
}

/* The socket is accepted: count it, then let it talk or tell it why not. */
static void admit_connection(struct listener *l, struct conn *c) {
    struct sockaddr_storage peer;
    int size = sizeof peer;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&peer, &size) != 0) {
        conn_close(c); /* gone already */
        return;
    }
    c->peer = address_of(&peer);
    enum err refusal = peers_enter(l->net->net->peers, &c->peer);
    c->counted = refusal == ERR_OK;
    if (c->counted)
        count(COUNT_CONNECTIONS_ACCEPTED, 1);
    else
        count(refusal == ERR_OVERLOADED ? COUNT_CONNECTIONS_REFUSED_TOTAL
                                        : COUNT_CONNECTIONS_REFUSED_ADDRESS,
              1);
    if (refusal != ERR_OK) {
        c->refused = true;
        if (atomic_fetch_add(&l->net->net->refusing, 1) >= REFUSING_MAX) {
            conn_close(c);
            return;
        }
    }
    conn_start(c, refusal);
}

/* It may fail again at once and for long (no files left), so it is logged once a second. */
static void warn_accept(struct net_worker *nw, int failed) {
    int64_t now_ms = (int64_t)uv_hrtime() / 1000000;
    if (nw->accept_warned_ms != 0 && now_ms - nw->accept_warned_ms < WARN_EVERY_MS) return;
    nw->accept_warned_ms = now_ms;
    log_warn(msg("accept failed"), kv("error", uv_strerror(failed)));
}

static void on_connection(uv_stream_t *server, int failed) {
    struct listener *l = server->data;
    if (failed != 0) {
        warn_accept(l->net, failed);
        return;
    }
    struct conn *c = conn_new(l->net, l->site);
    if (uv_accept(server, (uv_stream_t *)&c->tcp) != 0)
        conn_close(c);
    else
        admit_connection(l, c);
}

/* Connections that the kernel has already accepted would be reset when the socket closes. */
static void accept_rest(struct listener *l) {
    int listening;
    if (uv_fileno((const uv_handle_t *)&l->tcp, &listening) != 0) return;
    int fd;
    while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = conn_new(l->net, l->site);
        if (uv_tcp_open(&c->tcp, fd) != 0) {
            close(fd);
            conn_close(c);
        } else {
            admit_connection(l, c);
        }
    }
}

/* While three quarters of all connections are taken, new ones that send nothing are closed as early
 * as those that send their headers slowly. Returns by how much earlier. */
static int64_t first_byte_shortened_ms(const struct net *n) {
    const struct net_options *o = &n->options;
    bool is_scarce = net_connections(n) * 4 >= o->max_connections * 3;
    return is_scarce && o->idle_timeout_ms > o->headers_timeout_ms
               ? o->idle_timeout_ms - o->headers_timeout_ms
               : 0;
}

static void on_deadline_tick(uv_timer_t *timer) {
    struct net_worker *nw = timer->data;
    for (int wait = 0; wait < WAITS; wait++) {
        struct list *l = &nw->waits[wait];
        int64_t now_ms = (int64_t)uv_now(&nw->worker->loop);
        if (wait == WAIT_FIRST_BYTE) now_ms += first_byte_shortened_ms(nw->net);
        while (!list_empty(l)) {
            struct conn *c = CONTAINER_OF(l->next, struct conn, link);
            assert(!c->closing && (int)c->wait == wait);
            if (c->deadline_ms > now_ms) break;
            conn_on_deadline(c);
        }
    }
}

/* Once per iteration of the loop, after all new input: the next connection that waits for a slice.
 */
static void net_on_slices(uv_idle_t *idle) {
    struct net_worker *nw = idle->data;
    struct list *waiting = &nw->waits[WAIT_SLICE];
    if (!list_empty(waiting)) conn_on_slice(CONTAINER_OF(waiting->next, struct conn, link));
    if (list_empty(waiting)) uv_idle_stop(idle);
}

void net_worker_schedule_slices(struct net_worker *nw) {
    uv_idle_start(&nw->slices, net_on_slices);
}

struct net_worker *net_worker_new(struct net *n, struct worker *w, void *context) {
    struct net_worker *nw = mem_new(sizeof *nw);
    nw->net = n;
    nw->worker = w;
    nw->context = context;
    for (int i = 0; i < WAITS; i++) list_init(&nw->waits[i]);
    nw->timeouts_ms[WAIT_FIRST_BYTE] = n->options.idle_timeout_ms;
    nw->timeouts_ms[WAIT_HEADERS] = n->options.headers_timeout_ms;
    nw->timeouts_ms[WAIT_BODY] = n->options.body_timeout_ms;
    nw->timeouts_ms[WAIT_IDLE] = n->options.idle_timeout_ms;
    nw->timeouts_ms[WAIT_ANSWER] = NEVER_MS;
    nw->timeouts_ms[WAIT_SLICE] = NEVER_MS;
    nw->timeouts_ms[WAIT_WRITE] = n->options.write_timeout_ms;
    nw->timeouts_ms[WAIT_STREAM_WRITE] = n->options.write_timeout_ms;
    /* A stream's end is looked for at each heartbeat, so that one list is enough. */
    nw->timeouts_ms[WAIT_STREAM] = n->options.stream_heartbeat_ms < n->options.stream_max_ms
                                       ? n->options.stream_heartbeat_ms
                                       : n->options.stream_max_ms;
    nw->timeouts_ms[WAIT_LINGER] = LINGER_MS;
    uv_idle_init(&w->loop, &nw->slices);
    nw->slices.data = nw;
    uint32_t random;
    ssize_t got = getrandom(&random, sizeof random, 0);
    assert(got == sizeof random);
    snprintf(nw->request_prefix, sizeof nw->request_prefix, "%08x", random);
    uv_timer_init(&w->loop, &nw->deadlines);
    nw->deadlines.data = nw;
    uv_timer_start(&nw->deadlines, on_deadline_tick, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
    return nw;
}

int net_worker_listen(struct net_worker *nw, int socket, struct net_site *site) {
    struct listener *l = mem_new(sizeof *l);
    l->net = nw;
    l->site = site;
    l->next = nw->listeners;
    l->open = true;
    nw->listeners = l;
    int failed = uv_tcp_init(&nw->worker->loop, &l->tcp);
    l->tcp.data = l;
    if (failed == 0) failed = uv_tcp_open(&l->tcp, socket);
    if (failed == 0) failed = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection);
    return failed;
}

void net_worker_maybe_drained(struct net_worker *nw) {
    if (!nw->draining || nw->conn_count > 0 || nw->exchange_count > 0 || nw->drained == NULL)
        return;
    void (*drained)(void *) = nw->drained;
    nw->drained = NULL;
    uv_close((uv_handle_t *)&nw->deadlines, NULL);
    uv_close((uv_handle_t *)&nw->slices, NULL);
    drained(nw->drained_arg);
}

/* No request is under way, and the socket has no input that was not read yet. */
static bool conn_is_silent(const struct conn *c) {
    return c->exchange == NULL && c->unsent == NULL && c->in.len == 0 && !conn_has_unread(c);
}

/* The client of a stream or of an idle connection connects again, to another node. */
static void drain_conn(struct conn *c, bool at_once) {
    if (c->stream != NULL && !at_once)
        stream_end(c->stream);
    else if (at_once || conn_is_silent(c))
        conn_close(c);
}

/* The end of one stream may end others in the same list: an extra link keeps the place. */
static void drain_list(struct list *l, bool at_once) {
    struct list place;
    list_init(&place);
    for (struct list *at = l->next; at != l; at = place.next) {
        list_move_last(at->next, &place); /* right behind it */
        drain_conn(CONTAINER_OF(at, struct conn, link), at_once);
    }
    list_remove(&place);
}

void net_worker_drain(struct net_worker *nw, bool at_once, void (*done)(void *), void *arg) {
    if (!nw->draining) {
        nw->draining = true;
        nw->drained = done;
        nw->drained_arg = arg;
        for (struct listener *l = nw->listeners; l != NULL; l = l->next) {
            if (!l->open) continue;
            l->open = false;
            accept_rest(l);
            uv_close((uv_handle_t *)&l->tcp, NULL);
        }
    }
    for (int wait = 0; wait < WAITS; wait++) drain_list(&nw->waits[wait], at_once);
    net_worker_maybe_drained(nw);
}

void net_worker_free(struct net_worker *nw) {
    assert(nw->conn_count == 0 && nw->exchange_count == 0);
    while (nw->listeners != NULL) {
        struct listener *next = nw->listeners->next;
        mem_free(nw->listeners);
        nw->listeners = next;
    }
    while (nw->free_exchanges != NULL) {
        struct exchange *next = nw->free_exchanges->next_free;
        exchange_release(nw->free_exchanges);
        nw->free_exchanges = next;
    }
    buf_deinit(&nw->out);
    buf_deinit(&nw->aside);
    buf_deinit(&nw->body);
    mem_free(nw);
}
