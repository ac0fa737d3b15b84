#include "cut_proxy.h"

#include <assert.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

enum { LINKS_MAX = 256, TURN_MS = 5 };

struct link {
    int client;
    int server;
};

/* One thread for all connections. */
struct cut_proxy {
    int listener;
    int port;
    int server_port;
    pthread_t thread;
    _Atomic int now;
    _Atomic int then;
    _Atomic bool has_cut;
    _Atomic bool stopping;
    struct link links[LINKS_MAX];
    size_t count;
};

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void link_close(struct cut_proxy *p, size_t i) {
    close(p->links[i].client);
    close(p->links[i].server);
    p->links[i] = p->links[--p->count];
}

static void accept_one(struct cut_proxy *p) {
    struct sockaddr_in address = loopback(p->server_port);
    int client = accept(p->listener, NULL, NULL);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open = client >= 0 && p->count < LINKS_MAX && atomic_load(&p->now) != CUT_REFUSED &&
                connect(server, (struct sockaddr *)&address, sizeof address) == 0;
    if (open) {
        p->links[p->count++] = (struct link){client, server};
        return;
    }
    close(server);
    if (client >= 0) close(client);
}

/* A message that contains only this simple query, as the ledger sends it. */
static bool is_commit(const char *bytes, ssize_t len) {
    return memmem(bytes, (size_t)len, "COMMIT", sizeof "COMMIT") != NULL;
}

static bool is_question(const char *bytes, ssize_t len) {
    return memmem(bytes, (size_t)len, "pg_xact_status", strlen("pg_xact_status")) != NULL;
}

/* Whether the connection goes on. */
static bool forward(struct cut_proxy *p, int from, int to, bool from_client) {
    char bytes[65536];
    ssize_t len = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (len <= 0) return false;
    int now = atomic_load(&p->now);
    if (now == CUT_AT_QUESTION && from_client && is_question(bytes, len)) {
        atomic_store(&p->now, CUT_SILENT);
        return true;
    }
    bool cuts = from_client && is_commit(bytes, len) &&
                (now == CUT_BEFORE_COMMIT || now == CUT_AFTER_COMMIT);
    if (cuts && now == CUT_BEFORE_COMMIT) {
        atomic_store(&p->now, atomic_load(&p->then));
        atomic_store(&p->has_cut, true);
        return false;
    }
    for (ssize_t sent = 0; sent < len;) {
        ssize_t n = send(to, bytes + sent, (size_t)(len - sent), MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += n;
    }
    if (!cuts) return true;
    /* Its answer has come when there is something to read; it stays unread. */
    poll(&(struct pollfd){.fd = to, .events = POLLIN}, 1, 5000);
    atomic_store(&p->now, atomic_load(&p->then));
    atomic_store(&p->has_cut, true);
    return false;
}

static void turn_link(struct cut_proxy *p, size_t i, short client_events, short server_events) {
    struct link l = p->links[i];
    if (client_events != 0 && !forward(p, l.client, l.server, true))
        link_close(p, i);
    else if (server_events != 0 && !forward(p, l.server, l.client, false))
        link_close(p, i);
}

static void run_once(struct cut_proxy *p) {
    struct pollfd fds[1 + 2 * LINKS_MAX];
    size_t count = p->count;
    fds[0] = (struct pollfd){.fd = p->listener, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        fds[1 + 2 * i] = (struct pollfd){.fd = p->links[i].client, .events = POLLIN};
        fds[2 + 2 * i] = (struct pollfd){.fd = p->links[i].server, .events = POLLIN};
    }
    poll(fds, 1 + 2 * count, TURN_MS);
    int now = atomic_load(&p->now);
    if (now == CUT_REFUSED)
        while (p->count > 0) link_close(p, 0);
    if (now == CUT_SILENT) return;
    /* From the last to the first: the last takes the place of one that is closed. */
    if (now != CUT_REFUSED)
        for (size_t i = count; i-- > 0;)
            turn_link(p, i, fds[1 + 2 * i].revents, fds[2 + 2 * i].revents);
    if (fds[0].revents != 0) accept_one(p);
}

static void *run(void *arg) {
    struct cut_proxy *p = arg;
    while (!atomic_load(&p->stopping)) run_once(p);
    while (p->count > 0) link_close(p, 0);
    return NULL;
}

struct cut_proxy *cut_proxy_start(int server_port) {
    struct cut_proxy *p = mem_new(sizeof *p);
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    p->server_port = server_port;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = bind(p->listener, (struct sockaddr *)&address, sizeof address);
    failed |= listen(p->listener, 64);
    failed |= getsockname(p->listener, (struct sockaddr *)&address, &len);
    failed |= pthread_create(&p->thread, NULL, run, p);
    assert(failed == 0);
    p->port = ntohs(address.sin_port);
    return p;
}

int cut_proxy_port(const struct cut_proxy *p) {
    return p->port;
}

void cut_proxy_set(struct cut_proxy *p, enum cut now, enum cut then) {
    atomic_store(&p->has_cut, false);
    atomic_store(&p->then, (int)then);
    atomic_store(&p->now, (int)now);
}

bool cut_proxy_has_cut(struct cut_proxy *p) {
    return atomic_load(&p->has_cut);
}

void cut_proxy_stop(struct cut_proxy *p) {
    atomic_store(&p->stopping, true);
    pthread_join(p->thread, NULL);
    close(p->listener);
    mem_free(p);
}
