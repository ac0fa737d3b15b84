#include "site_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/live.h"
#include "api/rankings_live.h"

#define TIMEOUT_MS 60000

void site_fixture_open(struct site_fixture *f, int64_t max_connections, int64_t stream_lag_bytes) {
    struct net_options options = {.headers_timeout_ms = TIMEOUT_MS,
                                  .body_timeout_ms = TIMEOUT_MS,
                                  .idle_timeout_ms = TIMEOUT_MS,
                                  .write_timeout_ms = TIMEOUT_MS,
                                  .max_connections = max_connections,
                                  .stream_heartbeat_ms = TIMEOUT_MS,
                                  .stream_max_ms = 10 * TIMEOUT_MS,
                                  .stream_lag_bytes = stream_lag_bytes};
    f->api.events.catalogue = catalogue_new();
    f->api.net = net_new(&options);
    f->api.workers = &f->api_worker;
    f->api.worker_count = 1;
    assert_int_equal(worker_init(&f->worker), 0);
    mailbox_set_mine(&f->worker.mailbox);
    f->api_worker.api = &f->api;
    f->api_worker.live = live_new(&f->api, &f->worker, 0);
    f->api_worker.rankings_live = rankings_live_new(&f->api, &f->worker, 0);
    f->net_worker = net_worker_new(f->api.net, &f->worker, &f->api_worker);
    api_site_init(&f->site, &f->api, SITE_PUBLIC);
    int socket;
    assert_true(endpoint_parse(STR("127.0.0.1:0"), &f->address));
    assert_int_equal(net_bind(&f->address, &socket, 1), 0);
    assert_int_equal(net_worker_listen(f->net_worker, socket, &f->site.net), 0);
}

int site_fixture_get(const struct site_fixture *f, const char *path, int receive_bytes) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    assert_int_equal(connect(fd, (const struct sockaddr *)&f->address, sizeof(struct sockaddr_in)),
                     0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    struct buf request = {0};
    buf_addf(&request, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
    assert_int_equal(write(fd, request.bytes, request.len), request.len);
    buf_deinit(&request);
    return fd;
}

static void site_on_drained(void *arg) {
    ((struct site_fixture *)arg)->drained = true;
}

void site_fixture_drain(struct site_fixture *f) {
    if (f->drained) return;
    rankings_live_close(f->api_worker.rankings_live);
    live_close(f->api_worker.live);
    net_worker_drain(f->net_worker, false, site_on_drained, f);
    while (!f->drained) uv_run(&f->worker.loop, UV_RUN_ONCE);
}

void site_fixture_close(struct site_fixture *f) {
    site_fixture_drain(f);
    worker_stop(&f->worker);
    uv_run(&f->worker.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->worker.loop), 0);
    mailbox_deinit(&f->worker.mailbox);
    net_worker_free(f->net_worker);
    rankings_live_free(f->api_worker.rankings_live);
    live_free(f->api_worker.live);
    net_free(f->api.net);
    catalogue_free(f->api.events.catalogue);
}
