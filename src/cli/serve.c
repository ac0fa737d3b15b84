/* `admitone serve`: puts the parts together, runs them, and takes them apart again.
 *
 * Threads: one takes signals; the main one waits until it is to stop; each worker has its loop; the
 * ledger has its own. To stop, the main thread lets every worker drain, waits until all have, stops
 * them, and closes the ledger last, so that requests under way are still written and answered. An
 * alarm, set at the signal, ends the process if that takes too long. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "api/live.h"
#include "api/pages.h"
#include "api/rankings_live.h"
#include "api/request_live.h"
#include "api/simulator.h"
#include "api/stats.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/connection_caps.h"
#include "cli/data_folder.h"
#include "cli/demo.h"
#include "cli/keys_file.h"
#include "cli/nodes.h"
#include "cli/signals.h"
#include "core/sha256.h"
#include "service/admission.h"
#include "service/rankings.h"
#include "service/recovery.h"

/* From the signal: clients have this long to take their answers, then they are cut; and the
 * process ends after the second in any case. */
#define DRAIN_MS 7000
#define STOP_S 9
/* How often it is looked whether the last records are back. */
#define SETTLE_MS 2

static bool logs_json; /* for on_alarm, which may only read plain variables */

struct server;

struct server_worker {
    struct worker worker;
    struct net_worker *net;
    struct admission_share admission;
    struct server *server;
    size_t index;
    struct task attach;          /* main → worker: the first one */
    struct task drain;           /* main → worker: finish what is under way */
    struct task cut_connections; /* main → worker: cut what is left */
    struct task drained;         /* worker → main */
    struct task stop;            /* main → worker: the last one */
};

struct server {
    struct settings settings;
    struct config config;
    int data_lock; /* -1: not taken */
    int ledger_lock;
    struct buf admin_key;
    struct buf admin_key_path;
    struct keys_file keys_file;
    struct buf secret;
    struct buf secret_previous;
    struct buf pass_key;
    struct buf users_key;
    struct buf shop_key;
    struct hot_stores hot;
    struct feed *feed;
    struct fact_sink *fact_sink; /* NULL: facts are not published */
    struct nodes nodes;          /* when the stores are shared */
    struct rankings rankings;
    struct api api;
    struct pages pages;
    struct api_site site;
    struct api_site admin_site;
    struct api_site metrics_site;
    struct server_worker *workers;
    size_t worker_count;
    size_t workers_drained;
    struct connection_caps caps;
    char listening[ADDRESS_TEXT_BYTES];
    char admin_listening[ADDRESS_TEXT_BYTES]; /* empty: the admin paths are there, too */
    char metrics_listening[ADDRESS_TEXT_BYTES];

    uv_loop_t loop; /* the main thread's */
    struct mailbox mailbox;
    struct signals signals;
    uv_timer_t drain_timer;
    uv_timer_t settle_timer; /* from when all workers are drained */
    struct task end_sync;    /* then too, for worker 0 */
    bool workers_run;        /* their threads have been started */
    bool stopping;
    bool making_demo; /* whose records come back to the main thread */
};

/* ---- stopping ---- */

static bool shares(const struct server *s) {
    return s->hot.hot != NULL;
}

static bool ranks(const struct server *s) {
    return s->settings.rankings_enabled;
}

static void on_stop(struct task *task) {
    struct server_worker *sw = CONTAINER_OF(task, struct server_worker, stop);
    if (sw->server->hot.detach != NULL) sw->server->hot.detach(sw->server->hot.stores);
    requests_worker_close(&sw->server->api.workers[sw->index].requests);
    lock_client_close(&sw->server->api.workers[sw->index].lock_client);
    fact_feed_close(&sw->server->api.workers[sw->index].facts);
    worker_stop(&sw->worker);
}

static void on_drained_here(void *arg) {
    struct server_worker *sw = arg;
    mailbox_post(&sw->server->mailbox, &sw->drained);
}

static void on_drain(struct task *task) {
    struct server_worker *sw = CONTAINER_OF(task, struct server_worker, drain);
    admission_stop(&sw->admission);
    if (shares(sw->server) && sw->index == 0) nodes_stop_on(&sw->server->nodes);
    if (ranks(sw->server) && sw->index == 0) rankings_stop(&sw->server->rankings);
    requests_worker_drain(&sw->server->api.workers[sw->index].requests);
    lock_client_drain(&sw->server->api.workers[sw->index].lock_client);
    request_live_close(sw->server->api.workers[sw->index].request_live);
    live_close(sw->server->api.workers[sw->index].live);
    rankings_live_close(sw->server->api.workers[sw->index].rankings_live);
    stats_live_close(sw->server->api.workers[sw->index].stats_live);
    net_worker_drain(sw->net, false, on_drained_here, sw);
    /* After that, so that these answers close their connections. */
    fact_feed_drain(&sw->server->api.workers[sw->index].facts);
}

static void on_cut_connections(struct task *task) {
    struct server_worker *sw = CONTAINER_OF(task, struct server_worker, cut_connections);
    net_worker_drain(sw->net, true, on_drained_here, sw);
}

static void close_main_loop(struct server *s) {
    if (s->hot.detach != NULL) s->hot.detach(s->hot.stores);
    signals_end(&s->signals);
    keys_file_stop(&s->keys_file);
    uv_close((uv_handle_t *)&s->drain_timer, NULL);
    uv_close((uv_handle_t *)&s->settle_timer, NULL);
    mailbox_close(&s->mailbox);
}

/* Admissions and expiries belong to no request: their records must come home to the workers too. */
static void on_settle_timer(uv_timer_t *timer) {
    struct server *s = timer->data;
    if (requests_is_busy(&s->api.requests)) return; /* the first: its ends begin others */
    if (waiting_room_is_busy(&s->api.room) || reservations_is_busy(&s->api.reservations)) return;
    if (stats_is_busy(&s->api.stats)) return;
    if (shares(s) && nodes_are_busy(&s->nodes)) return;
    if (ranks(s) && rankings_is_busy(&s->rankings)) return;
    for (size_t i = 0; i < s->worker_count; i++)
        mailbox_post(&s->workers[i].worker.mailbox, &s->workers[i].stop);
    close_main_loop(s);
}

static void on_end_sync(struct task *task) {
    nodes_end_sync(&CONTAINER_OF(task, struct server, end_sync)->nodes);
}

static void maybe_end(struct server *s) {
    if (s->workers_drained < s->worker_count || s->making_demo) return;
    if (shares(s)) {
        s->end_sync.run = on_end_sync;
        mailbox_post(&s->workers[0].worker.mailbox, &s->end_sync);
    }
    uv_timer_start(&s->settle_timer, on_settle_timer, 0, SETTLE_MS);
}

static void on_drained(struct task *task) {
    struct server_worker *sw = CONTAINER_OF(task, struct server_worker, drained);
    sw->server->workers_drained++;
    maybe_end(sw->server);
}

static void cut_connections(struct server *s) {
    uv_timer_stop(&s->drain_timer);
    for (size_t i = 0; i < s->worker_count; i++)
        if (s->workers[i].cut_connections.run == NULL) {
            s->workers[i].cut_connections.run = on_cut_connections;
            mailbox_post(&s->workers[i].worker.mailbox, &s->workers[i].cut_connections);
        }
}

static void on_drain_timer(uv_timer_t *timer) {
    log_warn(msg("closing connections that did not finish before the stop deadline"),
             kv_i64("after_ms", DRAIN_MS));
    cut_connections(timer->data);
}

/* A signal, because whatever is stuck may be the main thread, in the ledger's close. */
static void on_alarm(int number) {
    static const char logfmt[] = "level=error msg=\"could not stop in time: something is stuck\"\n";
    static const char json[] =
        "{\"level\":\"error\",\"msg\":\"could not stop in time: something is stuck\"}\n";
    (void)number;
    ssize_t ignored = logs_json ? write(STDERR_FILENO, json, sizeof json - 1)
                                : write(STDERR_FILENO, logfmt, sizeof logfmt - 1);
    (void)ignored;
    _exit(1);
}

static void on_stop_signal(void *to) {
    struct server *s = to;
    if (s->stopping) {
        cut_connections(s); /* a second signal: do not wait for clients */
        return;
    }
    s->stopping = true;
    atomic_store(&s->api.stopping, true);
    uv_timer_start(&s->drain_timer, on_drain_timer, DRAIN_MS, 0);
    signal(SIGALRM, on_alarm);
    alarm(STOP_S);
    if (s->api.simulator != NULL) simulator_stop(s->api.simulator);
    if (shares(s)) nodes_stop_listening(&s->nodes);
    for (size_t i = 0; i < s->worker_count; i++)
        mailbox_post(&s->workers[i].worker.mailbox, &s->workers[i].drain);
}

/* ---- starting ---- */

/* One process owns a data folder, and one a ledger, wherever it is. */
static bool own_stores(struct server *s, struct buf *why) {
    const char *data = s->settings.data;
    struct buf path = {0};
    struct buf pid_path = {0};
    struct buf what = {0};
    buf_addf(&pid_path, "%s/lock", data);
    buf_addf(&what, "the data folder %s", data);
    bool ok = data_folder_make(data, why) &&
              lock_take(data, buf_cstr(&pid_path), buf_cstr(&what), &s->data_lock, why);
    if (ok && !settings_is_cluster(&s->settings)) {
        buf_clear(&pid_path);
        buf_clear(&what);
        cli_ledger_path(&s->settings, &path);
        buf_addf(&pid_path, "%s.lock", buf_cstr(&path));
        buf_addf(&what, "the ledger %s", s->settings.ledger);
        ok = lock_take(buf_cstr(&path), buf_cstr(&pid_path), buf_cstr(&what), &s->ledger_lock, why);
    }
    buf_deinit(&path);
    buf_deinit(&pid_path);
    buf_deinit(&what);
    return ok;
}

/* From the file that was given; else, if `own_name` is given, from that file in the data folder. */
static bool serve_read_key(const struct settings *set, const char *given, const char *own_name,
                           struct buf *path, struct buf *key, struct buf *why) {
    bool own = given[0] == '\0';
    if (own && own_name == NULL) return true;
    buf_clear(path);
    if (own)
        buf_addf(path, "%s/%s", set->data, own_name);
    else
        buf_add(path, str_of(given));
    return key_file_read(buf_cstr(path), own, key, why);
}

/* A key that has leaked in one place must not open another; and a node that verifies passes, say,
 * could sign entry tokens. */
static bool keys_differ(struct server *s, struct buf *why) {
    const struct {
        const char *setting;
        const struct buf *key;
    } rows[] = {{"secret_file", &s->secret},       {"secret_previous_file", &s->secret_previous},
                {"pass_key_file", &s->pass_key},   {"admin_key_file", &s->admin_key},
                {"users.key_file", &s->users_key}, {"shop.key_file", &s->shop_key}};
    size_t count = sizeof rows / sizeof rows[0];
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) {
            if (rows[i].key->len == 0 || !str_eq(buf_str(rows[i].key), buf_str(rows[j].key)))
                continue;
            buf_addf(why,
                     "%s and %s have the same key; each needs one that is used for nothing else",
                     rows[i].setting, rows[j].setting);
            return false;
        }
    /* The file of named keys, which is read later and again at each change, has none of them. */
    struct key_ring *ring = &s->keys_file.server_keys;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].key->len == 0) continue;
        struct key *key = &ring->keys[ring->count++];
        str_copy(str_of(rows[i].setting), key->name, sizeof key->name);
        sha256_of(buf_str(rows[i].key), key->digest);
    }
    return true;
}

static bool read_keys(struct server *s, struct buf *why) {
    const struct settings *set = &s->settings;
    struct buf path = {0};
    bool ok =
        serve_read_key(set, set->admin_key_file, "admin.key", &s->admin_key_path, &s->admin_key,
                       why) &&
        serve_read_key(set, set->secret_file, "secret", &path, &s->secret, why) &&
        serve_read_key(set, set->secret_previous_file, NULL, &path, &s->secret_previous, why) &&
        serve_read_key(set, set->pass_key_file, "pass.key", &path, &s->pass_key, why) &&
        serve_read_key(set, set->users_key_file, NULL, &path, &s->users_key, why) &&
        serve_read_key(set, set->shop_key_file, NULL, &path, &s->shop_key, why) &&
        keys_differ(s, why);
    buf_deinit(&path);
    if (!ok) return false;
    s->api.keys = keys_new(buf_str(&s->admin_key));
    return keys_file_open(&s->keys_file, set, s->api.keys, why);
}

#define FINGERPRINT_BYTES 17

/* Shows whether two keys are the same, without showing the keys. */
static void fingerprint_of(str key, char out[FINGERPRINT_BYTES]) {
    out[0] = '\0';
    if (key.len == 0) return;
    unsigned char digest[SHA256_BYTES];
    struct buf text = {0};
    buf_add(&text, STR("admitone key fingerprint\n"));
    buf_add(&text, key);
    sha256_of(buf_str(&text), digest);
    buf_deinit(&text);
    for (size_t i = 0; i < FINGERPRINT_BYTES / 2; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static enum users_auth users_auth_of(const struct settings *set) {
    /* settings_check has seen that auto is safe. */
    if (set->users_auth == USERS_AUTH_WORD_AUTO) return USERS_TRUSTED;
    return (enum users_auth)(set->users_auth - 1);
}

static bool make_pages(struct server *s, struct buf *why) {
    const struct settings *set = &s->settings;
    struct page_options options = {.web_dir = set->web_dir,
                                   .texts = set->page_texts,
                                   .language = set->page_language,
                                   .name = set->page_name,
                                   .accent = set->page_accent,
                                   .logo = set->page_logo};
    s->api.pages = &s->pages;
    return pages_init(&s->pages, &options, why);
}

/* Refused when this node's settings don't go together with those of the nodes that run. */
static bool join_cluster(struct server *s, struct buf *why) {
    static const char *const auth_words[] = {
        [USERS_TRUSTED] = "trusted", [USERS_SIGNED] = "signed", [USERS_ANONYMOUS] = "anonymous"};
    char secret[FINGERPRINT_BYTES];
    char previous[FINGERPRINT_BYTES];
    char pass[FINGERPRINT_BYTES];
    char admin[FINGERPRINT_BYTES];
    char users[FINGERPRINT_BYTES];
    char shop[FINGERPRINT_BYTES];
    fingerprint_of(buf_str(&s->secret), secret);
    fingerprint_of(buf_str(&s->secret_previous), previous);
    fingerprint_of(buf_str(&s->pass_key), pass);
    fingerprint_of(buf_str(&s->admin_key), admin);
    fingerprint_of(buf_str(&s->users_key), users);
    fingerprint_of(buf_str(&s->shop_key), shop);
    struct cluster_settings own = {.secret = secret,
                                   .secret_previous = previous,
                                   .pass_key = pass,
                                   .admin_key = admin,
                                   .users_key = users,
                                   .shop_key = shop,
                                   .time_zone = ranks(s) ? s->settings.rankings_time_zone : "",
                                   .users_auth = auth_words[users_auth_of(&s->settings)]};
    return ledger_join(s->api.events.ledger, &own, why) == ERR_OK;
}

static void fill_api(struct server *s) {
    const struct settings *set = &s->settings;
    struct api *api = &s->api;
    api->events.catalogue = catalogue_new();
    api->events.hot = s->hot.hot;
    api->events.queues = s->hot.queues;
    api->events.seats = s->hot.seats;
    api->events.seats_max = set->limits_seats;
    clock_zone_set(set->rankings_time_zone);
    api->boards = ranks(s) ? s->hot.boards : NULL;
    /* A store that is shared is filled whole: other nodes may keep rankings. */
    api->events.boards = ranks(s) || shares(s) ? s->hot.boards : NULL;
    s->rankings = (struct rankings){
        .ledger = api->events.ledger, .boards = s->hot.boards, .catalogue = api->events.catalogue};
    api->default_event = str_of(set->queue_default_event);
    api->push_interval_ms = set->push_interval_ms;
    api->room = (struct waiting_room){
        .ledger = api->events.ledger, .queues = s->hot.queues, .changed = live_announce, .to = api};
    waiting_room_init(&api->room);
    api->reservations = (struct reservations){.ledger = api->events.ledger,
                                              .seats = s->hot.seats,
                                              .room = &api->room,
                                              .lock_wait_ms = set->lock_wait_ms,
                                              .load.rules = {.calm_below = set->adaptive_calm_below,
                                                             .hot_above = set->adaptive_hot_above,
                                                             .wait_ms = set->adaptive_wait_ms,
                                                             .rest_ms = set->adaptive_rest_ms}};
    reservations_init(&api->reservations);
    api->requests = (struct requests){.feed = s->feed,
                                      .ledger = api->events.ledger,
                                      .hot = s->hot.hot,
                                      .events = &api->events,
                                      .reservations = &api->reservations,
                                      .decides = set->feed_consume,
                                      .decided = request_live_announce,
                                      .to = api};
    api->started_ms = clock_wall_ms();
    api->cors_origins = str_of(set->cors_origins);
    api->generation = ledger_generation(api->events.ledger).number;
    api->secret = buf_str(&s->secret);
    api->secret_previous = buf_str(&s->secret_previous);
    api->pass_key = buf_str(&s->pass_key);
    api->users_auth = users_auth_of(set);
    api->users_key = buf_str(&s->users_key);
    api->shop_key = buf_str(&s->shop_key);
    api->defaults =
        (struct event_defaults){.queue = {.max_waiting = set->queue_max_waiting,
                                          .max_active = set->queue_max_active,
                                          .entry_batch_size = set->queue_entry_batch_size,
                                          .entry_interval_s = set->queue_entry_interval_seconds,
                                          .active_ttl_s = set->queue_active_ttl_seconds,
                                          .grace_s = set->queue_grace_seconds,
                                          .token_ttl_s = set->queue_token_ttl_seconds},
                                .hold_s = set->reservation_hold_seconds,
                                .max_per_user = set->reservation_max_per_user};
    str_copy(str_of(set->reservation_currency), api->defaults.currency,
             sizeof api->defaults.currency);
    struct net_options net = {.headers_timeout_ms = set->net_headers_timeout_ms,
                              .body_timeout_ms = set->net_body_timeout_ms,
                              .idle_timeout_ms = set->net_idle_timeout_ms,
                              .write_timeout_ms = set->net_write_timeout_ms,
                              .max_connections = s->caps.clients,
                              .max_connections_per_address = set->net_max_connections_per_address,
                              .stream_heartbeat_ms = set->sse_heartbeat_seconds * 1000,
                              .stream_max_ms = set->sse_max_seconds * 1000,
                              .stream_lag_bytes = set->sse_lag_bytes};
    networks_parse(str_of(set->net_trusted_proxies), &net.trusted_proxies);
    api->arrivals.limits = s->hot.limits;
    api->trusted_proxies = net.trusted_proxies;
    networks_parse(str_of(set->limits_exempt), &api->limits_exempt);
    api->net = net_new(&net);
    api->stats = (struct stats){.events = &api->events, .render = stats_render, .to = api};
    stats_init(&api->stats);
    if (shares(s)) nodes_init(&s->nodes, api, s->fact_sink, set);
    api->stats.snapshot = api->snapshot;
}

/* One socket per worker on the address, each handed to its worker. */
static bool serve_listen_on(struct server *s, const char *where, const char *flag,
                            struct api_site *site, char text[ADDRESS_TEXT_BYTES], struct buf *why) {
    struct sockaddr_storage address;
    int *sockets = mem_new(s->worker_count * sizeof *sockets);
    bool parsed = endpoint_parse(str_of(where), &address);
    assert(parsed);
    int failed = net_bind(&address, sockets, s->worker_count);
    if (failed != 0) {
        buf_addf(why, "cannot listen on %s: %s", where, strerror(failed));
        if (failed == EADDRINUSE)
            buf_addf(why, "; stop what listens there, or choose another with %s", flag);
        mem_free(sockets);
        return false;
    }
    for (size_t i = 0; i < s->worker_count && failed == 0; i++)
        failed = net_worker_listen(s->workers[i].net, sockets[i], &site->net);
    mem_free(sockets);
    if (failed != 0) buf_addf(why, "cannot listen on %s: %s", where, uv_strerror(failed));
    endpoint_format(&address, text);
    return failed == 0;
}

static void on_attach(struct task *task) {
    struct server_worker *sw = CONTAINER_OF(task, struct server_worker, attach);
    struct server *s = sw->server;
    if (s->hot.attach != NULL) s->hot.attach(s->hot.stores, &sw->worker.loop);
    requests_worker_start(&s->api.workers[sw->index].requests);
}

/* Creates everything that a worker needs, and does not start it. */
static bool make_worker(struct server *s, size_t index, struct buf *why) {
    struct server_worker *sw = &s->workers[index];
    struct api_worker *aw = &s->api.workers[index];
    sw->server = s;
    sw->index = index;
    sw->drain.run = on_drain;
    sw->drained.run = on_drained;
    sw->stop.run = on_stop;
    int failed = worker_init(&sw->worker);
    if (failed != 0) {
        buf_addf(why, "cannot start a worker: %s", uv_strerror(failed));
        return false;
    }
    if (!api_worker_init(aw, &s->api)) {
        buf_add(why, STR("libcrypto has no HMAC-SHA-256"));
        return false;
    }
    aw->live = live_new(&s->api, &sw->worker, index);
    aw->rankings_live = rankings_live_new(&s->api, &sw->worker, index);
    aw->stats_live = stats_live_new(&s->api, &sw->worker, index);
    aw->lock_client =
        (struct lock_client){.locks = s->hot.locks, .lease_ms = s->settings.lock_lease_ms};
    lock_client_init(&aw->lock_client, &sw->worker.loop);
    aw->facts = (struct fact_feed){.ledger = s->api.events.ledger};
    fact_feed_init(&aw->facts, &sw->worker.loop);
    aw->request_live = request_live_new(&s->api, &sw->worker, index);
    aw->requests = (struct requests_worker){
        .service = &s->api.requests, .lock_client = &aw->lock_client, .number = index};
    requests_worker_init(&aw->requests, &sw->worker.loop);
    sw->net = net_worker_new(s->api.net, &sw->worker, aw);
    sw->admission =
        (struct admission_share){.room = &s->api.room,
                                 .reservations = &s->api.reservations,
                                 .catalogue = s->api.events.catalogue,
                                 .finish_pending = shares(s) ? &s->nodes.finish_pending : NULL,
                                 .index = index,
                                 .count = s->worker_count};
    admission_start(&sw->admission, &sw->worker, s->settings.queue_tick_ms);
    if (shares(s) && index == 0) nodes_start_on(&s->nodes, &sw->worker);
    if (ranks(s) && index == 0) rankings_init(&s->rankings, &sw->worker.loop);
    sw->attach.run = on_attach;
    mailbox_post(&sw->worker.mailbox, &sw->attach);
    return true;
}

static bool serve_listen(struct server *s, struct buf *why) {
    const struct settings *set = &s->settings;
    bool own_admin = set->admin_listen[0] != '\0';
    bool own_metrics = set->metrics_listen[0] != '\0';
    unsigned everywhere = SITE_PUBLIC | (own_metrics ? 0 : SITE_METRICS);
    api_site_init(&s->site, &s->api, everywhere | (own_admin ? 0 : SITE_ADMIN));
    api_site_init(&s->admin_site, &s->api, everywhere | SITE_ADMIN);
    api_site_init(&s->metrics_site, &s->api, SITE_METRICS);
    return serve_listen_on(s, set->listen, "--listen", &s->site, s->listening, why) &&
           (!own_admin || serve_listen_on(s, set->admin_listen, "--admin-listen", &s->admin_site,
                                          s->admin_listening, why)) &&
           (!own_metrics || serve_listen_on(s, set->metrics_listen, "--metrics-listen",
                                            &s->metrics_site, s->metrics_listening, why));
}

/* Virtual users come to the public listener. */
static void make_simulator(struct server *s) {
    struct simulator_options o = {.listening = s->listening,
                                  .connections_max = (size_t)s->caps.virtual,
                                  .connections_per_address_max =
                                      (size_t)s->settings.net_max_connections_per_address};
    s->api.simulator = simulator_new(&o, &s->api);
}

static bool start_workers(struct server *s, struct buf *why) {
    for (size_t i = 0; i < s->worker_count; i++)
        if (!make_worker(s, i, why)) return false;
    if (!serve_listen(s, why)) return false;
    if (shares(s)) nodes_set_name(&s->nodes, s->listening);
    if (s->settings.demo) make_simulator(s);
    s->workers_run = true;
    for (size_t i = 0; i < s->worker_count; i++) {
        int failed = worker_start(&s->workers[i].worker);
        if (failed != 0) {
            buf_addf(why, "cannot start a worker's thread: %s", uv_strerror(failed));
            return false;
        }
        thread_set_name(s->workers[i].worker.thread, "worker", (int)i);
    }
    if (shares(s) && !nodes_start(&s->nodes, why)) return false;
    signals_serve(&s->signals, &s->loop, on_stop_signal, s);
    if (s->admin_listening[0] != '\0')
        log_info(msg("listening for the admin"), kv("addr", s->admin_listening));
    if (s->metrics_listening[0] != '\0')
        log_info(msg("listening for metrics"), kv("addr", s->metrics_listening));
    /* The last line of the start: scripts wait for it. */
    log_info(msg("listening"), kv("addr", s->listening),
             kv_i64("workers", (int64_t)s->worker_count),
             kv_i64("events", (int64_t)catalogue_count(s->api.events.catalogue)),
             kv("admin_key", buf_cstr(&s->admin_key_path)));
    return true;
}

static void on_demo_ready(void *arg, enum err result) {
    struct server *s = arg;
    struct buf tour = {0};
    struct buf url = {0};
    struct buf admin_url = {0};
    bool own_admin = s->admin_listening[0] != '\0';
    s->making_demo = false;
    if (s->stopping) {
        maybe_end(s);
        return;
    }
    if (result != ERR_OK) {
        log_error(msg("could not create the demo events"), kv_str("error", err_title(result)));
        return;
    }
    buf_addf(&url, "http://%s", s->listening);
    buf_addf(&admin_url, "http://%s", own_admin ? s->admin_listening : s->listening);
    demo_tour(&tour, &(struct demo_site){.url = buf_cstr(&url),
                                         .admin_url = buf_cstr(&admin_url),
                                         .admin_key_path = buf_cstr(&s->admin_key_path),
                                         .auth = s->api.users_auth});
    cli_print(&tour);
    buf_deinit(&url);
    buf_deinit(&admin_url);
    buf_deinit(&tour);
}

static void start_main_loop(struct server *s) {
    uv_loop_init(&s->loop);
    mailbox_init(&s->mailbox, &s->loop);
    mailbox_set_mine(&s->mailbox);
    uv_timer_init(&s->loop, &s->drain_timer);
    uv_timer_init(&s->loop, &s->settle_timer);
    s->drain_timer.data = s;
    s->settle_timer.data = s;
    keys_file_follow(&s->keys_file, &s->loop);
    if (s->hot.attach != NULL) s->hot.attach(s->hot.stores, &s->loop); /* for the demo's events */
}

/* Whether the hot store can be filled from the ledger. Memory that the machine does not have would
 * end the process at each start; so this ends it before, and says why. Redis has its seats
 * already. */
static bool seats_fit(struct server *s, struct buf *why) {
    int64_t seats;
    int64_t max = s->settings.limits_seats;
    if (recovery_count_seats(&s->api.events, &seats) != ERR_OK) return false;
    if (seats <= max) return true;
    if (shares(s)) {
        log_warn(msg("the events have more seats than limits.seats; no event can get more"),
                 kv_i64("seats", seats), kv_i64("limits_seats", max));
        return true;
    }
    int64_t megabytes = seats * 12 / 1000000 + 1;
    buf_addf(why,
             "the events have %lld seats together, more than limits.seats, which is %lld; each "
             "takes 12 bytes of memory. If there is enough (%lld MB), start with --limits-seats "
             "%lld, and make the events smaller or delete them",
             (long long)seats, (long long)max, (long long)megabytes, (long long)seats);
    return false;
}

/* Everything up to the point where the server answers requests. On false the process ends; the
 * caller needs to release only the lock, which would keep other processes out, and the ledger,
 * which could lose data. */
static bool serve_start(struct server *s, const struct adapters *adapters, struct buf *why) {
    s->worker_count =
        s->settings.workers > 0 ? (size_t)s->settings.workers : (size_t)uv_available_parallelism();
    if (!connection_caps_find(&s->settings, s->worker_count, &s->caps, why)) return false;
    if (!make_pages(s, why) || !own_stores(s, why) || !read_keys(s, why)) return false;
    if (!adapters->open_ledger(&s->settings, false, &s->api.events.ledger, why)) return false;
    if (!join_cluster(s, why)) return false;
    uint32_t epoch = ledger_epoch(s->api.events.ledger);
    if (!adapters->open_hot(&s->settings, epoch, &s->hot, why)) return false;
    if (!adapters->open_feed(&s->settings, s->api.events.ledger, s->worker_count, &s->feed, why))
        return false;
    if (!adapters->open_fact_sink(&s->settings, &s->fact_sink, why)) return false;
    fill_api(s);
    start_main_loop(s);
    int64_t now_ms = clock_wall_ms();
    bool fits = seats_fit(s, why);
    if (!fits && why->len > 0) return false;
    if (!fits || (!shares(s) && recovery_run(&s->api.events, now_ms, 0) != ERR_OK)) {
        struct buf name = {0};
        cli_ledger_name(&s->settings, &name);
        buf_addf(why, "cannot read the events and queues from %s: the log line above says why",
                 buf_cstr(&name));
        buf_deinit(&name);
        return false;
    }
    s->workers = mem_new(s->worker_count * sizeof *s->workers);
    s->api.workers = mem_new(s->worker_count * sizeof *s->api.workers);
    s->api.worker_count = s->worker_count;
    return start_workers(s, why);
}

static void run_until_stopped(struct server *s) {
    s->making_demo = s->settings.demo;
    if (s->making_demo) demo_create(&s->api.events, on_demo_ready, s);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < s->worker_count; i++) worker_join(&s->workers[i].worker);
    if (shares(s)) nodes_stop(&s->nodes);
    s->hot.close(s->hot.stores);
    for (size_t i = 0; i < s->worker_count; i++) {
        net_worker_free(s->workers[i].net);
        admission_deinit(&s->workers[i].admission);
        rankings_live_free(s->api.workers[i].rankings_live);
        stats_live_free(s->api.workers[i].stats_live);
        request_live_free(s->api.workers[i].request_live);
        live_free(s->api.workers[i].live);
        api_worker_deinit(&s->api.workers[i]);
    }
    int busy = uv_loop_close(&s->loop);
    assert(busy == 0);
    mailbox_deinit(&s->mailbox);
    net_free(s->api.net);
    feed_close(s->feed);
    if (s->fact_sink != NULL) fact_sink_close(s->fact_sink);
    ledger_close(s->api.events.ledger);
    if (s->api.simulator != NULL) simulator_free(s->api.simulator);
    if (ranks(s)) rankings_deinit(&s->rankings);
    reservations_deinit(&s->api.reservations);
    waiting_room_deinit(&s->api.room);
    stats_deinit(&s->api.stats);
    if (shares(s)) nodes_deinit(&s->nodes);
    catalogue_free(s->api.events.catalogue);
    mem_free(s->api.workers);
    mem_free(s->workers);
    alarm(0);
    log_info(msg("stopped"));
}

static void free_server(struct server *s) {
    if (s->data_lock >= 0) close(s->data_lock);
    if (s->ledger_lock >= 0) close(s->ledger_lock);
    pages_deinit(&s->pages);
    keys_free(s->api.keys);
    keys_file_deinit(&s->keys_file);
    buf_deinit(&s->admin_key);
    buf_deinit(&s->admin_key_path);
    buf_deinit(&s->secret);
    buf_deinit(&s->secret_previous);
    buf_deinit(&s->pass_key);
    buf_deinit(&s->users_key);
    buf_deinit(&s->shop_key);
    config_deinit(&s->config);
    mem_free(s);
}

static void log_warning(str warning) {
    log_warn(msg("environment variable ignored"), kv_str("reason", warning));
}

int cli_serve(char *const *args, const struct adapters *adapters) {
    struct server *s = mem_new(sizeof *s);
    struct buf why = {0};
    char **own_args = cli_copy_args(args);
    bool print_config = cli_take_word(own_args, "--print-config");
    bool ok = cli_settings(&s->config, &s->settings, own_args);
    mem_free(own_args);
    s->data_lock = -1;
    s->ledger_lock = -1;
    if (ok && !print_config && !settings_check_server(&s->settings, &why)) {
        cli_complain(&why);
        ok = false;
    }
    if (!ok || print_config) {
        struct buf text = {0};
        if (ok) {
            cli_warn(&s->config, cli_print_warning);
            config_print(&s->config, &text);
        }
        cli_print(&text);
        buf_deinit(&text);
        buf_deinit(&why);
        free_server(s);
        return ok ? 0 : 2;
    }
    logs_json = s->settings.log_format == LOG_JSON;
    log_setup((enum log_level)s->settings.log_level, (enum log_format)s->settings.log_format);
    cli_warn(&s->config, log_warning);
    signal(SIGPIPE, SIG_IGN);
    if (!signals_start(&s->signals)) buf_add(&why, STR("cannot start a thread for signals"));
    if (why.len > 0 || !serve_start(s, adapters, &why)) {
        cli_complain(&why);
        /* The process ends here. Workers that run already may use the ledger. */
        if (s->api.events.ledger != NULL && !s->workers_run) ledger_close(s->api.events.ledger);
        _exit(1);
    }
    run_until_stopped(s);
    free_server(s);
    buf_deinit(&why);
    return 0;
}
