/*
 * api: the HTTP interface: finds the handler of a request, checks the user, reads JSON, calls
 * services and renders their answers. It knows no socket and no store.
 *
 * One struct api serves all workers; after the start only `stopping` is written.
 */
#ifndef ADMITONE_API_API_H
#define ADMITONE_API_API_H

#include <stdatomic.h>

#include "net/server.h"
#include "service/arrivals.h"
#include "service/events.h"
#include "service/fact_feed.h"
#include "service/fact_publisher.h"
#include "service/hold.h"
#include "service/rebuilder.h"
#include "service/requests.h"
#include "service/snapshot.h"
#include "service/stats.h"

#define ROUTE_CAPTURES_MAX 4

/* Values of a new event for fields that are missing in its JSON. */
struct event_defaults {
    struct queue_rules queue;
    int64_t hold_s;
    int64_t max_per_user;
    char currency[4];
};

/* How a request proves its user: api/users.h. */
enum users_auth { USERS_TRUSTED, USERS_SIGNED, USERS_ANONYMOUS };

struct api_worker;
struct keys;
struct pages;
struct simulator;

struct api {
    struct events events;
    struct waiting_room room;
    struct reservations reservations;
    struct requests requests;
    struct boards *boards;       /* NULL: rankings are off */
    struct rebuilder *rebuilder; /* NULL: the hot store is this process's own */
    struct snapshot *snapshot;   /* likewise */
    struct stats stats;
    struct fact_publisher *fact_publisher; /* NULL: facts are not published */
    struct pages *pages;
    struct api_worker *workers;
    size_t worker_count;
    str default_event; /* "TYPE/ID", for requests that name no event; empty: the only public one */
    int64_t push_interval_ms;
    struct net *net;
    struct arrivals arrivals;
    struct networks limits_exempt;
    struct networks trusted_proxies;
    struct event_defaults defaults;
    struct keys *keys;
    struct simulator *simulator; /* NULL: this is no demo server */
    uint32_t generation;         /* of the ledger */
    str secret;                  /* signs entry tokens */
    str secret_previous;         /* verifies them too; empty: there is none */
    str pass_key;                /* signs admission passes */
    enum users_auth users_auth;
    str users_key;    /* of the shop: verifies assertions, for USERS_SIGNED */
    str shop_key;     /* of the shop: verifies its confirmations; empty: none are accepted */
    str cors_origins; /* "*", or a list with commas */
    int64_t started_ms;
    _Atomic bool stopping;
};

struct live;
struct rankings_live;
struct stats_live;
struct request_live;
struct token_box;
struct jwt_box;

/* The state of one worker; exchange_context returns it. */
struct api_worker {
    struct api *api;
    struct token_box *tokens;
    struct jwt_box *passes;              /* signs admission passes */
    struct jwt_box *assertions;          /* verifies assertions; NULL unless users.auth is signed */
    struct jwt_box *confirmations;       /* verifies the shop's; NULL without shop.key_file */
    struct live *live;                   /* its streams; freed by the code that created them */
    struct rankings_live *rankings_live; /* likewise */
    struct stats_live *stats_live;       /* likewise */
    struct request_live *request_live;   /* likewise */
    struct lock_client lock_client;      /* its reservations; likewise */
    struct requests_worker requests;     /* likewise */
    struct fact_feed facts;              /* likewise */
};

/* The keys of `api` are set. False: libcrypto lacks an algorithm. */
bool api_worker_init(struct api_worker *w, struct api *api);
void api_worker_deinit(struct api_worker *w);

/* The paths of a listener: a separate listener takes the admin paths, or /metrics, off the public
 * one. */
#define SITE_PUBLIC 1U
#define SITE_ADMIN 2U
#define SITE_METRICS 4U

struct api_site {
    struct net_site net; /* first */
    struct api *api;
    unsigned serves; /* SITE_… */
};

void api_site_init(struct api_site *site, struct api *api, unsigned serves);

/* `captures`: the path's variable parts, decoded, valid until the handler returns. */
typedef void api_handler(struct api *api, struct exchange *x, const str *captures);

/* The handlers, by file. */
api_handler queue_post_enter, queue_get_status, queue_delete_leave;      /* queue.c */
api_handler queue_post_token, queue_get_own_status, queue_get_gate;      /* queue.c */
api_handler reservations_post, optimistic_post, pessimistic_post;        /* hold.c */
api_handler distributed_lock_post, request_post;                         /* hold.c */
api_handler request_get_status, request_get_subscribe;                   /* request_live.c */
api_handler reservations_get_own, reservation_get_one;                   /* reservation.c */
api_handler reservation_confirm, reservation_cancel;                     /* reservation.c */
api_handler queue_get_subscribe;                                         /* live.c */
api_handler admin_queue_get, admin_queue_patch, admin_queue_activate;    /* admin_queue.c */
api_handler admin_queue_pause, admin_queue_resume, admin_queue_process;  /* admin_queue.c */
api_handler admin_queue_drain, admin_queue_deactivate;                   /* admin_queue.c */
api_handler events_list, events_get;                                     /* events.c */
api_handler rankings_get_soldout, rankings_get_soldout_one;              /* rankings.c */
api_handler rankings_get_popular, rankings_get_popular_one;              /* rankings.c */
api_handler rankings_get_stream;                                         /* rankings_live.c */
api_handler seats_get;                                                   /* seats.c */
api_handler admin_event_put, admin_event_get, admin_event_patch;         /* admin.c */
api_handler admin_event_delete, admin_section_patch, admin_audit;        /* admin.c */
api_handler admin_key_get;                                               /* admin.c */
api_handler admin_facts;                                                 /* admin_facts.c */
api_handler page_get_home, page_get_event, page_get_admin;               /* pages.c */
api_handler page_get_asset, page_post_event;                             /* pages.c */
api_handler admin_simulator_get, admin_simulator_post;                   /* simulator.c */
api_handler admin_simulator_patch, admin_simulator_delete;               /* simulator.c */
api_handler admin_stats, admin_stats_stream;                             /* stats.c */
api_handler system_health, system_ready, system_metrics, system_openapi; /* system.c */

/* Whether cors.origins contains the origin. */
bool api_allows_origin(const struct api *api, str origin);

/* Whether the request may see the event: the public does not see drafts, keys that may read do. */
bool api_shows(const struct exchange *x, const struct event *e);

/* A change by the request's key, for the audit table, with the body as it was sent; in the arena.
 */
struct audit_note admin_note(struct exchange *x, const char *verb, str subject);
/* The subject of a change of an event, "CONCERT/1"; in the arena. */
str admin_event_subject(struct exchange *x, str type, str id);

/* The version that the event must have, from the header If-Match: 0 without one. False: the problem
 * has been answered. */
bool admin_if_match(struct exchange *x, int64_t *version);
/* Answers a change that was refused with VERSION_MISMATCH. */
void admin_version_mismatch(struct exchange *x, int64_t sent, int64_t present);
/* Adds the ETag of an event to the answer. */
void admin_etag(struct exchange *x, int64_t version);

/* The value of a query parameter, decoded into the arena; `at` is NULL when it is absent, and
 * *bad is set when it can't be decoded. */
str query_value(struct exchange *x, str name, bool *bad);
/* The same in the body of a form, or in another text of that form. */
str param_value(struct exchange *x, str params, str name, bool *bad);
/* A whole number in a range; `otherwise` when it is absent. False: the problem has been answered.
 */
bool query_i64(struct exchange *x, str name, int64_t min, int64_t max, int64_t otherwise,
               int64_t *out);

#endif
