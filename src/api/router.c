/* Finds the handler of a request by its method and path, and checks its key and CORS. */
#include <assert.h>

#include "api/arrival.h"
#include "api/freshness.h"
#include "api/plain_page.h"
#include "api/queue_answer.h"
#include "api/users.h"
#include "base/clock.h"

#define SEGMENTS_MAX 10

/* What a path does with a key that is sent as 'Authorization: Bearer <key>'. */
enum route_key {
    KEYLESS,       /* ignores it */
    SHOWS_DRAFTS,  /* for everyone; with the role read, operate or own also about drafts */
    USER_OR_SHOP,  /* for users; with a key of the shop, for every user */
    NEEDS_READ,    /* for keys with the role read, operate or own */
    NEEDS_OPERATE, /* operate or own */
    NEEDS_OWN,     /* own */
};

struct route {
    enum http_method method;
    enum route_key key;
    const char *pattern; /* "/events/{type}/{id}" */
    api_handler *handle;
};

static const struct route routes[] = {
    {HTTP_GET, KEYLESS, "/queue/{type}/{id}/status", queue_get_status},
    {HTTP_POST, USER_OR_SHOP, "/queue/{type}/{id}/enter", queue_post_enter},
    {HTTP_GET, KEYLESS, "/queue/{type}/{id}/subscribe/{token}", queue_get_subscribe},
    {HTTP_DELETE, KEYLESS, "/queue/{type}/{id}/leave", queue_delete_leave},
    {HTTP_POST, USER_OR_SHOP, "/queue/token", queue_post_token},
    {HTTP_GET, KEYLESS, "/queue/status", queue_get_own_status},
    {HTTP_GET, KEYLESS, "/gate/{type}/{id}", queue_get_gate},
    {HTTP_POST, USER_OR_SHOP, "/reservations", reservations_post},
    {HTTP_GET, USER_OR_SHOP, "/reservations", reservations_get_own},
    {HTTP_GET, USER_OR_SHOP, "/reservations/{id}", reservation_get_one},
    {HTTP_POST, USER_OR_SHOP, "/reservations/{id}/confirm", reservation_confirm},
    {HTTP_POST, USER_OR_SHOP, "/reservations/{id}/cancel", reservation_cancel},
    {HTTP_POST, USER_OR_SHOP, "/api/v1/optimistic", optimistic_post},
    {HTTP_POST, USER_OR_SHOP, "/api/v2/pessimistic", pessimistic_post},
    {HTTP_POST, USER_OR_SHOP, "/api/v3/distributed-lock", distributed_lock_post},
    {HTTP_POST, USER_OR_SHOP, "/api/v4/queue", request_post},
    {HTTP_GET, USER_OR_SHOP, "/api/v4/status/{id}", request_get_status},
    {HTTP_GET, USER_OR_SHOP, "/api/v4/subscribe/{id}", request_get_subscribe},
    {HTTP_GET, SHOWS_DRAFTS, "/events", events_list},
    {HTTP_GET, SHOWS_DRAFTS, "/events/{type}/{id}", events_get},
    {HTTP_GET, SHOWS_DRAFTS, "/events/{type}/{id}/sections/{section}/seats", seats_get},
    {HTTP_GET, KEYLESS, "/rankings/soldout", rankings_get_soldout},
    {HTTP_GET, SHOWS_DRAFTS, "/rankings/soldout/{type}/{id}", rankings_get_soldout_one},
    {HTTP_GET, KEYLESS, "/rankings/stream", rankings_get_stream},
    {HTTP_GET, KEYLESS, "/rankings/{period}", rankings_get_popular},
    {HTTP_GET, SHOWS_DRAFTS, "/rankings/{period}/{type}/{id}", rankings_get_popular_one},
    {HTTP_GET, KEYLESS, "/concerts/ranking", rankings_get_soldout},
    {HTTP_GET, NEEDS_READ, "/admin/events/{type}/{id}", admin_event_get},
    {HTTP_PUT, NEEDS_OWN, "/admin/events/{type}/{id}", admin_event_put},
    {HTTP_PATCH, NEEDS_OWN, "/admin/events/{type}/{id}", admin_event_patch},
    {HTTP_DELETE, NEEDS_OWN, "/admin/events/{type}/{id}", admin_event_delete},
    {HTTP_PATCH, NEEDS_OPERATE, "/admin/events/{type}/{id}/sections/{section}",
     admin_section_patch},
    {HTTP_GET, NEEDS_READ, "/admin/queue/{type}/{id}", admin_queue_get},
    {HTTP_PATCH, NEEDS_OPERATE, "/admin/queue/{type}/{id}", admin_queue_patch},
    {HTTP_GET, NEEDS_READ, "/admin/queue/{type}/{id}/status", admin_queue_get},
    {HTTP_PATCH, NEEDS_OPERATE, "/admin/queue/{type}/{id}/status", admin_queue_patch},
    {HTTP_POST, NEEDS_OPERATE, "/admin/queue/{type}/{id}/activate", admin_queue_activate},
    {HTTP_POST, NEEDS_OPERATE, "/admin/queue/{type}/{id}/pause", admin_queue_pause},
    {HTTP_POST, NEEDS_OPERATE, "/admin/queue/{type}/{id}/resume", admin_queue_resume},
    {HTTP_POST, NEEDS_OPERATE, "/admin/queue/{type}/{id}/process", admin_queue_process},
    {HTTP_POST, NEEDS_OPERATE, "/admin/queue/{type}/{id}/drain", admin_queue_drain},
    {HTTP_POST, NEEDS_OPERATE, "/admin/queue/{type}/{id}/deactivate", admin_queue_deactivate},
    {HTTP_GET, NEEDS_READ, "/admin/simulator", admin_simulator_get},
    {HTTP_POST, NEEDS_OPERATE, "/admin/simulator", admin_simulator_post},
    {HTTP_PATCH, NEEDS_OPERATE, "/admin/simulator", admin_simulator_patch},
    {HTTP_DELETE, NEEDS_OPERATE, "/admin/simulator", admin_simulator_delete},
    {HTTP_GET, NEEDS_READ, "/admin/stats", admin_stats},
    {HTTP_GET, NEEDS_READ, "/admin/stats/stream", admin_stats_stream},
    {HTTP_GET, NEEDS_READ, "/admin/key", admin_key_get},
    {HTTP_GET, NEEDS_READ, "/admin/audit", admin_audit},
    {HTTP_GET, NEEDS_READ, "/admin/facts", admin_facts},
    {HTTP_GET, KEYLESS, "/health", system_health},
    {HTTP_GET, KEYLESS, "/ready", system_ready},
    {HTTP_GET, SHOWS_DRAFTS, "/metrics", system_metrics},
    {HTTP_GET, KEYLESS, "/openapi.json", system_openapi},
    {HTTP_GET, KEYLESS, "/", page_get_home},
    {HTTP_GET, KEYLESS, "/e/{type}/{id}", page_get_event},
    {HTTP_POST, KEYLESS, "/e/{type}/{id}", page_post_event},
    {HTTP_GET, KEYLESS, "/admin", page_get_admin},
    {HTTP_GET, KEYLESS, "/assets/{name}", page_get_asset},
};

struct path {
    str segments[SEGMENTS_MAX];
    size_t count;
};

/* Cuts the path at '/', then decodes each part, so an encoded '/' stays inside its part. */
static enum err split_path(struct exchange *x, struct path *out) {
    str rest = str_skip(x->request.path, 1);
    str part;
    out->count = 0;
    while (str_split(&rest, '/', &part)) {
        if (out->count == SEGMENTS_MAX) return ERR_NOT_FOUND;
        if (part.len > 0 && memchr(part.at, '%', part.len) != NULL) {
            char *decoded = arena_new(&x->arena, part.len);
            int64_t len = http_percent_decode(part, decoded, false);
            if (len < 0 || !str_is_text((str){decoded, (size_t)len})) return ERR_BAD_REQUEST;
            part = (str){decoded, (size_t)len};
        }
        out->segments[out->count++] = part;
    }
    return ERR_OK;
}

/* A path contains no zero byte, so a comparison ends at the end of the pattern; and it ends at the
 * pattern's next '/', which a decoded part may contain but never matches. */
static bool matches(const char *pattern, const struct path *path, str *captures) {
    size_t at = 0;
    size_t captured = 0;
    for (const char *p = pattern; *p == '/'; at++) {
        p++;
        if (at == path->count) return false;
        str part = path->segments[at];
        if (*p == '{') {
            assert(captured < ROUTE_CAPTURES_MAX);
            if (part.len == 0) return false;
            captures[captured++] = part;
            while (*p != '\0' && *p != '/') p++;
        } else {
            size_t same = 0;
            while (same < part.len && p[same] == part.at[same] && p[same] != '/') same++;
            p += same;
            if (same < part.len || (*p != '\0' && *p != '/')) return false;
        }
    }
    return at == path->count;
}

static bool allows_every_origin(const struct api *api) {
    return str_eq(api->cors_origins, STR("*"));
}

bool api_allows_origin(const struct api *api, str origin) {
    if (allows_every_origin(api)) return true;
    str rest = api->cors_origins;
    str one;
    while (str_split(&rest, ',', &one))
        if (one.len > 0 && str_eq(str_trim(one), origin)) return true;
    return false;
}

bool api_shows(const struct exchange *x, const struct event *e) {
    return event_is_public(e, clock_wall_ms()) || users_key_allows(x, KEY_ROLE_READ);
}

/* Headers that let a browser's page of another origin read the answer. */
static bool add_cors(const struct api *api, struct exchange *x) {
    if (api->cors_origins.len == 0) return false;
    /* Also without an Origin: a cache must not use that answer for a request that has one. */
    reply_header(x, STR("Vary"), STR("Origin"));
    str origin = http_header(&x->request, STR("Origin"));
    if (origin.len == 0 || !api_allows_origin(api, origin)) return false;
    reply_header(x, STR("Access-Control-Allow-Origin"), origin);
    reply_header(
        x, STR("Access-Control-Expose-Headers"),
        STR("ETag, Idempotency-Replayed, Location, Retry-After, X-Queue-Token, X-Request-Id"));
    /* Cookies and their answers only for pages that are named one by one. */
    if (!allows_every_origin(api))
        reply_header(x, STR("Access-Control-Allow-Credentials"), STR("true"));
    return true;
}

static void add_allow(struct exchange *x, unsigned methods, bool cors) {
    char list[80] = "OPTIONS";
    size_t len = strlen(list);
    for (int m = 0; m < HTTP_METHODS; m++) {
        if ((methods & 1U << m) == 0) continue;
        str name = http_method_name((enum http_method)m);
        assert(len + 2 + name.len < sizeof list);
        memcpy(list + len, ", ", 2);
        memcpy(list + len + 2, name.at, name.len);
        len += 2 + name.len;
    }
    reply_header(x, STR("Allow"), (str){list, len});
    if (!cors) return;
    reply_header(x, STR("Access-Control-Allow-Methods"), (str){list, len});
    reply_header(x, STR("Access-Control-Allow-Headers"),
                 STR("Authorization, Content-Type, Idempotency-Key, If-Match, Last-Event-ID, "
                     "X-Queue-Token, X-Request-Id, X-Shop-Confirmation, X-User-Assertion"));
    reply_header(x, STR("Access-Control-Max-Age"), STR("600"));
}

/* Whether this node knows the event that the path names, unless the request creates it. False: the
 * handler must not run now. */
static bool knows_event(const struct route *r, struct api *api, struct exchange *x,
                        const str *captures) {
    if (api->events.sync == NULL) return true;
    const char *named = strstr(r->pattern, "{type}/{id}");
    if (named == NULL || r->method == HTTP_PUT) return true;
    size_t at = 0; /* how many other parts are captured before it */
    for (const char *p = r->pattern; p < named; p++) at += *p == '{';
    struct queue_event event;
    char path[EVENT_PATH_BYTES];
    str name = event_path(captures[at], captures[at + 1], path);
    return name.len == 0 || queue_event_find(api, captures[at], captures[at + 1], NULL, &event) ||
           fresh_absence(api, x, name);
}

static bool needs_key(const struct route *r) {
    return r->key >= NEEDS_READ;
}

static void refuse_keyless(struct exchange *x, enum err refused) {
    if (refused == ERR_ADMIN_KEY_REQUIRED)
        reply_header(x, STR("WWW-Authenticate"), STR("Bearer realm=\"admitone admin\""));
    reply_problem(x, refused, "%s",
                  refused == ERR_ADMIN_KEY_REQUIRED
                      ? "Send a key as 'Authorization: Bearer <key>'. The log line \"listening\" "
                        "names the file that contains the admin key."
                      : "This address has sent wrong keys, so no key is accepted from it now. Send "
                        "the right one again after the time in Retry-After.");
}

/* ---- the limits on arrival ---- */

/* What a request without a key takes from the limit of requests. A gateway asks /gate for every
 * page view of its clients, and a balancer asks /health and /ready, which cost nothing. /metrics
 * has lines for each section of each event: with 1,000 events it takes 10 ms. */
static int64_t route_units(const struct route *r) {
    if (r->handle == queue_get_gate || r->handle == system_health || r->handle == system_ready)
        return 0;
    bool is_read = r->method == HTTP_GET && !needs_key(r) && r->handle != system_metrics;
    return is_read ? LIMIT_READ_UNITS : LIMIT_REQUEST_UNITS;
}

/* Whether a request without a key may be processed now. False: the problem has been answered. Where
 * keys are ignored, they are looked for only now, so that the other requests cost no more. */
static bool may_arrive(const struct route *r, struct api *api, struct exchange *x) {
    int64_t units = route_units(r);
    if (api->arrivals.limits == NULL || units == 0 || users_key(x) != NULL ||
        exchange_was_put_off(x))
        return true;
    struct limit_client client = arrival_client(api, x);
    struct limit_verdict v = arrivals_take(&api->arrivals, &client, LIMIT_REQUESTS, units);
    if (v.wait_ns == 0) return true;
    if (r->key == KEYLESS && users_find_key(api, x, false) == ERR_OK && users_key(x) != NULL)
        return true;
    arrival_refuse(x, &client, LIMIT_REQUESTS, &v);
    return false;
}

/* ---- keys ---- */

/* Finds the request's key, and whether its role suffices. False: the problem has been answered. */
static bool check_key(const struct route *r, struct api *api, struct exchange *x) {
    static const struct {
        enum key_role role;
        const char *needed;
    } rows[] = {[USER_OR_SHOP] = {KEY_ROLE_SHOP, "Here a key needs the role shop or own"},
                [NEEDS_READ] = {KEY_ROLE_READ, "This path needs read, operate or own"},
                [NEEDS_OPERATE] = {KEY_ROLE_OPERATE, "This path needs operate or own"},
                [NEEDS_OWN] = {KEY_ROLE_OWN, "This path needs own"}};
    if (r->key == KEYLESS) return true;
    enum err refused = users_find_key(api, x, needs_key(r));
    if (refused != ERR_OK) {
        int64_t wait_s = x->retry_after_s;
        if (!may_arrive(r, api, x)) return false;
        x->retry_after_s = wait_s;
        refuse_keyless(x, refused);
        return false;
    }
    assert(users_key(x) != NULL || !needs_key(r));
    if (users_key(x) == NULL || r->key == SHOWS_DRAFTS) return true;
    if (users_key_allows(x, rows[r->key].role)) return true;
    users_refuse_key(x, rows[r->key].needed);
    return false;
}

/* Whether people see the answers. */
static bool is_page(const struct route *r) {
    return r->handle == page_get_home || r->handle == page_get_event ||
           r->handle == page_post_event || r->handle == page_get_admin;
}

static void run_route(const struct route *r, struct api *api, struct exchange *x,
                      const str *captures) {
    if (is_page(r)) x->present = plain_page_present;
    if (check_key(r, api, x) && may_arrive(r, api, x) && knows_event(r, api, x, captures))
        r->handle(api, x, captures);
}

static bool site_serves(const struct api_site *site, const struct route *r) {
    if (needs_key(r) || r->handle == page_get_admin) return (site->serves & SITE_ADMIN) != 0;
    if (r->handle == system_metrics) return (site->serves & SITE_METRICS) != 0;
    return (site->serves & SITE_PUBLIC) != 0;
}

static void on_request(struct net_site *net_site, struct exchange *x) {
    struct api_site *site = (struct api_site *)net_site;
    struct api *api = site->api;
    bool cors = !exchange_was_put_off(x) && add_cors(api, x);
    struct path path;
    enum err bad = split_path(x, &path);
    if (bad != ERR_OK) {
        reply_problem(x, bad, "%s",
                      "The path contains an invalid percent-encoding or control character.");
        return;
    }
    enum http_method method = x->request.method == HTTP_HEAD ? HTTP_GET : x->request.method;
    unsigned methods = 0;
    str captures[ROUTE_CAPTURES_MAX] = {{0}};
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route *r = &routes[i];
        if (!site_serves(site, r)) continue;
        if (!matches(r->pattern, &path, captures)) continue;
        if (r->method == method) {
            run_route(r, api, x, captures);
            return;
        }
        methods |= 1U << r->method;
        if (r->method == HTTP_GET) methods |= 1U << HTTP_HEAD;
    }
    if (methods == 0 && !(method == HTTP_OPTIONS && str_eq(x->request.path, STR("*")))) {
        reply_problem(x, ERR_NOT_FOUND, "%s", "GET /openapi.json lists the paths that exist.");
        return;
    }
    add_allow(x, methods, cors);
    if (method == HTTP_OPTIONS)
        reply_empty(x, 204);
    else
        reply_problem(x, ERR_METHOD_NOT_ALLOWED, "%s",
                      "The header Allow lists the methods of this path.");
}

void api_site_init(struct api_site *site, struct api *api, unsigned serves) {
    assert(serves != 0);
    *site = (struct api_site){.net = {.on_request = on_request}, .api = api, .serves = serves};
}

str query_value(struct exchange *x, str name, bool *bad) {
    return param_value(x, x->request.query, name, bad);
}

str param_value(struct exchange *x, str params, str name, bool *bad) {
    str rest = params;
    str pair;
    *bad = false;
    while (rest.len > 0 && str_split(&rest, '&', &pair)) {
        str key;
        if (!str_split(&pair, '=', &key) || !str_eq(key, name)) continue;
        if (pair.at == NULL) return (str){"", 0};
        char *decoded = arena_new(&x->arena, pair.len + 1);
        int64_t len = http_percent_decode(pair, decoded, true);
        *bad = len < 0 || !str_is_text((str){decoded, (size_t)len});
        return *bad ? (str){NULL, 0} : (str){decoded, (size_t)len};
    }
    return (str){NULL, 0};
}

bool query_i64(struct exchange *x, str name, int64_t min, int64_t max, int64_t otherwise,
               int64_t *out) {
    bool bad;
    str text = query_value(x, name, &bad);
    *out = otherwise;
    if (!bad && text.at == NULL) return true;
    if (!bad && str_to_i64(text, out) && *out >= min && *out <= max) return true;
    reply_problem(x, ERR_INVALID_PARAMETER, "%.*s must be a whole number from %lld to %lld.",
                  (int)name.len, name.at, (long long)min, (long long)max);
    return false;
}
