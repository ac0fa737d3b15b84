/*
 * server: HTTP on workers. Each worker has its own listening sockets (SO_REUSEPORT), its own
 * connections and its own scratch memory; they share only the connection caps.
 *
 * A connection costs one small struct while it is idle. Its input is read into a buffer of the
 * worker and parsed there; only the beginning of a request that is not whole yet is copied to
 * memory of the connection. An answer is written at once; only bytes that the socket does not take
 * are kept, and further requests wait until they have been sent. The bytes that all connections of
 * a worker keep are bounded: beyond, connections whose clients have read nothing for the longest
 * time are closed. Every connection is in exactly one list, named after what it waits for, in order
 * of deadlines.
 */
#ifndef ADMITONE_NET_SERVER_H
#define ADMITONE_NET_SERVER_H

#include "net/exchange.h"
#include "run/worker.h"

struct net_options {
    int64_t headers_timeout_ms; /* from the request's first byte */
    int64_t body_timeout_ms;
    /* Between requests and before the first one. A new connection that has sent nothing has only
     * headers_timeout_ms while connections are scarce. */
    int64_t idle_timeout_ms;
    int64_t write_timeout_ms; /* a client that does not take its answer */
    int64_t max_connections;
    int64_t max_connections_per_address; /* 0: no cap */
    struct networks trusted_proxies;
    /* For streams; all three must be set where there are any. */
    int64_t stream_heartbeat_ms; /* without an event; then a comment is sent */
    int64_t stream_max_ms;       /* then it ends, and the client connects again */
    int64_t stream_lag_bytes;    /* unsent; a reader that lags more is dropped */
};

/* The handler of all requests of a listener. */
struct net_site {
    void (*on_request)(struct net_site *site, struct exchange *x);
};

struct net;
struct net_worker;

struct net *net_new(const struct net_options *options);
void net_free(struct net *n);
int64_t net_connections(const struct net *n);

/* Opens `count` sockets that share one address. Port 0 takes a free one, which is then in
 * *address. 0, or an errno. */
int net_bind(struct sockaddr_storage *address, int *sockets, size_t count);

/* Before the worker starts. `context`: for handlers (exchange_context). */
struct net_worker *net_worker_new(struct net *n, struct worker *w, void *context);
/* Before the worker starts; takes the socket. 0, or a libuv error. */
int net_worker_listen(struct net_worker *nw, int socket, struct net_site *site);

/* On the worker's thread: accepts nothing more, answers what is under way, ends streams, closes
 * what is idle, and calls `done` when no connection and no exchange is left. With `at_once`, what
 * is under way is cut; exchanges still end by themselves. May be called again, with `at_once`. */
void net_worker_drain(struct net_worker *nw, bool at_once, void (*done)(void *), void *arg);
/* After `done` and after the worker was joined. */
void net_worker_free(struct net_worker *nw);

#endif
