/* /admin/simulator. A request that changes something is one struct in its arena, which waits for
 * its note in the audit trail, and then acts. */
#include "api/simulator.h"

#include <assert.h>
#include <pthread.h>

#include "api/users.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/reservation.h"
#include "crowd/crowd.h"
#include "crowd/journey.h"
#include "service/acts.h"

/* Waiting users have a stream each, up to this; further ones poll. */
#define STREAMS_MAX 2000
/* A user who has no answer by then tries again. */
#define TIMEOUT_MS 30000

#define ARRIVALS_PER_S_MAX 2000
#define PATIENCE_S_MAX 3600
#define THINK_S_MAX 600

/* The body of a POST, and what is shown of it. */
struct simulation {
    char event[EVENT_PATH_BYTES];
    int64_t users;
    int64_t arrivals_per_s;
    int64_t patience_s;
    int64_t buy_percent;
    int64_t think_s;
    unsigned strategy; /* 0: that of the section; else a strategy, plus 1 */
};

static const struct simulation defaults = {
    .users = 1000, .arrivals_per_s = 50, .patience_s = 120, .buy_percent = 70, .think_s = 5};

struct simulator {
    struct sockaddr_storage server;
    size_t connections_max;
    bool is_limited;

    pthread_mutex_t lock; /* of all below */
    struct simulation settings;
    struct crowd *crowd; /* also when it has ended; NULL: there was none */
    int64_t started_ms;
    bool is_starting; /* a POST waits for its note */
    bool is_leaving;
    bool is_stopped;
};

struct simulator_request {
    struct act act;
    struct simulator *simulator;
    struct exchange *x;
    json_t *body; /* of a PATCH; NULL: none */
    struct simulation wanted;
    struct json_problem problem;
};

/* ---- fields ---- */

#define FIELD(member) offsetof(struct simulation, member)
#define STRATEGY_WORD(symbol, word) STR_INIT(word),

/* null: the strategy of the section. */
static const str strategies[] = {STR_INIT(""), STRATEGY_MAP(STRATEGY_WORD){NULL, 0}};

#define CHANGEABLE_FIELDS                                                                          \
    {"arrivalsPerSecond", JSON_KIND_I64, FIELD(arrivals_per_s), 1, ARRIVALS_PER_S_MAX, 0, 0},      \
        {"patienceSeconds", JSON_KIND_I64, FIELD(patience_s), 1, PATIENCE_S_MAX, 0, 0}, {          \
        "buyPercent", JSON_KIND_I64, FIELD(buy_percent), 0, 100, 0, 0                              \
    }

static const struct json_field start_fields[] = {
    {"event", JSON_KIND_TEXT, FIELD(event), 1, EVENT_PATH_BYTES - 1, 0, 0},
    {"users", JSON_KIND_I64, FIELD(users), 1, CROWD_USERS_MAX, 0, 0},
    CHANGEABLE_FIELDS,
    {"thinkSeconds", JSON_KIND_I64, FIELD(think_s), 0, THINK_S_MAX, 0, 0},
    {"strategy", JSON_KIND_WORD, FIELD(strategy), 0, 0, strategies, 0},
    {0},
};

static const struct json_field change_fields[] = {CHANGEABLE_FIELDS, {0}};

/* ---- the answer ---- */

static bool simulator_runs(const struct simulator *s, struct crowd_numbers *n) {
    *n = (struct crowd_numbers){0};
    if (s->crowd != NULL) crowd_read(s->crowd, n);
    return s->crowd != NULL && !n->has_ended;
}

static void render_users(struct json_out *j, const struct crowd_numbers *n) {
    int64_t total = 0;
    for (int i = 0; i < CROWD_STATES; i++) total += n->users[i];
    json_out_object(j, STR("users"));
    json_out_i64(j, STR("total"), total);
    for (int i = 0; i < CROWD_STATES; i++) json_out_i64(j, crowd_state_words[i], n->users[i]);
    json_out_object_end(j);
}

static void render_text_or_null(struct json_out *j, str key, str text) {
    if (text.len > 0)
        json_out_str(j, key, text);
    else
        json_out_null(j, key);
}

/* Under the lock. */
static void simulator_render(const struct simulator *s, struct json_out *j) {
    struct crowd_numbers n;
    const struct simulation *of = &s->settings;
    bool runs = simulator_runs(s, &n);
    json_out_object(j, STR(""));
    json_out_bool(j, STR("running"), runs);
    json_out_bool(j, STR("stopping"), runs && s->is_leaving);
    render_text_or_null(j, STR("event"), str_of(of->event));
    json_out_i64(j, STR("arrivalsPerSecond"), of->arrivals_per_s);
    json_out_i64(j, STR("patienceSeconds"), of->patience_s);
    json_out_i64(j, STR("buyPercent"), of->buy_percent);
    json_out_i64(j, STR("thinkSeconds"), of->think_s);
    render_text_or_null(j, STR("strategy"), strategies[of->strategy]);
    render_users(j, &n);
    json_out_i64(j, STR("seatsBought"), n.seats_bought);
    json_out_i64(j, STR("requests"), n.requests);
    json_out_i64(j, STR("unanswered"), n.unanswered);
    json_out_f64(j, STR("requestsPerSecond"), n.requests_per_s);
    json_out_object(j, STR("latency"));
    json_out_f64(j, STR("p50Ms"), (double)n.p50_us / 1000);
    json_out_f64(j, STR("p99Ms"), (double)n.p99_us / 1000);
    json_out_object_end(j);
    json_out_i64(j, STR("connections"), (int64_t)n.connections);
    json_out_i64(j, STR("streams"), (int64_t)n.streams);
    json_out_bool(j, STR("limited"), s->is_limited);
    json_out_time(j, STR("startedAt"), s->started_ms);
    json_out_object_end(j);
}

static void simulator_show(struct simulator *s, struct exchange *x, int status) {
    struct json_out j;
    json_out_init(&j, reply_start(x, status));
    pthread_mutex_lock(&s->lock);
    simulator_render(s, &j);
    pthread_mutex_unlock(&s->lock);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}

/* False: the problem has been answered. */
static bool simulator_is_here(const struct api *api, struct exchange *x) {
    if (api->simulator != NULL) return true;
    reply_problem(x, ERR_SIMULATOR_OFF, "%s",
                  "Virtual users come only to servers that were started with --demo.");
    return false;
}

void admin_simulator_get(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    if (simulator_is_here(api, x)) simulator_show(api->simulator, x, 200);
}

/* ---- what all changes have in common ---- */

static struct simulator_request *simulator_request_new(struct api *api, struct exchange *x) {
    struct simulator_request *q = arena_new(&x->arena, sizeof *q);
    q->simulator = api->simulator;
    q->x = x;
    return q;
}

static void simulator_request_refuse(struct simulator_request *q, enum err refused) {
    json_decref(q->body);
    if (q->problem.err == refused)
        reply_problem(q->x, refused, "%s", q->problem.detail);
    else
        reply_problem(q->x, refused, "%s", err_effect(refused));
}

static bool simulator_is_idle(struct json_problem *problem, const char *why) {
    return json_refuse(problem, ERR_SIMULATOR_IDLE, "%s", why);
}

static void simulator_note(struct api *api, struct simulator_request *q, const char *verb,
                           const char *event, void (*done)(struct act *a, enum err result)) {
    q->act.done = done;
    q->act.record.note = admin_note(q->x, verb, arena_copy(&q->x->arena, str_of(event)));
    acts_note(api->events.ledger, &q->act);
}

/* ---- start ---- */

/* False: *problem. */
static bool check_sections(const struct event *e, unsigned strategy, struct json_problem *problem) {
    if (e->section_count == 0)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "event: %s/%s has no sections, so nothing can be bought.", e->type,
                           e->id);
    if (strategy == 0 || strategy - 1 == STRATEGY_QUEUE) return true;
    for (size_t i = 0; i < e->section_count; i++)
        if (strategy_fits(e->sections[i].mode, (enum strategy)(strategy - 1))) return true;
    return json_refuse(problem, ERR_STRATEGY_NOT_ALLOWED,
                       "No section of %s/%s allows the strategy %s.", e->type, e->id,
                       strategies[strategy].at);
}

static bool check_event(const struct api *api, const struct simulation *wanted,
                        struct json_problem *problem) {
    str id = str_of(wanted->event);
    str type;
    if (!str_split(&id, '/', &type) || !event_name_ok(type, EVENT_TYPE_BYTES_MAX) ||
        !event_name_ok(id, EVENT_ID_BYTES_MAX))
        return json_refuse(problem, ERR_INVALID_FIELD, "%s",
                           "event is required: the type and id of an event, as in \"CONCERT/1\".");
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, type, id);
    bool ok;
    if (e == NULL)
        ok = json_refuse(problem, ERR_EVENT_NOT_FOUND, "%s",
                         "GET /events lists the events that exist.");
    else if (confirm_by_resolve(e->confirm_by, api->users_auth == USERS_TRUSTED) != CONFIRM_BY_USER)
        ok = json_refuse(problem, ERR_CONFIRM_BY_SHOP,
                         "Virtual users buy as users do: PATCH confirmBy of %s to \"user\".",
                         wanted->event);
    else
        ok = check_sections(e, wanted->strategy, problem);
    catalogue_read_unlock(api->events.catalogue);
    return ok;
}

/* No two crowds: from here on, until the note is written or the start has failed. */
static bool simulator_reserve(struct simulator *s, struct json_problem *problem) {
    struct crowd_numbers n;
    pthread_mutex_lock(&s->lock);
    bool is_free = !s->is_stopped && !s->is_starting && !simulator_runs(s, &n);
    if (s->is_stopped)
        json_refuse(problem, ERR_STOPPING, "%s", err_effect(ERR_STOPPING));
    else if (!is_free)
        json_refuse(problem, ERR_SIMULATOR_RUNNING, "%s",
                    s->is_leaving ? "It is about to end: try again in a few seconds."
                                  : "DELETE /admin/simulator ends it, PATCH changes it.");
    if (is_free) s->is_starting = true;
    pthread_mutex_unlock(&s->lock);
    return is_free;
}

static struct crowd_plan plan_of(const struct simulation *of) {
    return (struct crowd_plan){.arrivals_per_s = of->arrivals_per_s,
                               .patience_ms = of->patience_s * 1000,
                               .buy_percent = of->buy_percent};
}

/* Under the lock. NULL: no thread or file is left. */
static struct crowd *simulator_make_crowd(const struct simulator *s,
                                          const struct simulation *wanted) {
    size_t for_requests = s->connections_max / 8;
    if (for_requests == 0) for_requests = 1;
    size_t for_streams = s->connections_max - for_requests;
    struct crowd_options o = {.scenario = &scenario_journey,
                              .server = s->server,
                              .users = wanted->users,
                              .think_ms = wanted->think_s * 1000,
                              .plan = plan_of(wanted),
                              .connections_max = for_requests,
                              .streams_max = for_streams < STREAMS_MAX ? for_streams : STREAMS_MAX,
                              .timeout_ms = TIMEOUT_MS};
    str_copy(str_of(wanted->event), o.event, sizeof o.event);
    str_copy(strategies[wanted->strategy], o.strategy, sizeof o.strategy);
    return crowd_start(&o);
}

static enum err simulator_begin(struct simulator *s, const struct simulation *wanted) {
    enum err result = ERR_OK;
    pthread_mutex_lock(&s->lock);
    struct crowd *before = s->crowd;
    struct crowd *crowd = s->is_stopped ? NULL : simulator_make_crowd(s, wanted);
    s->is_starting = false;
    if (crowd != NULL) {
        s->crowd = crowd;
        s->settings = *wanted;
        s->started_ms = clock_wall_ms();
        s->is_leaving = false;
    } else {
        before = NULL;
        result = s->is_stopped ? ERR_STOPPING : ERR_OVERLOADED;
    }
    pthread_mutex_unlock(&s->lock);
    if (before != NULL) crowd_free(before); /* it has ended: this takes no time */
    return result;
}

static void simulator_on_start_noted(struct act *a, enum err result) {
    struct simulator_request *q = CONTAINER_OF(a, struct simulator_request, act);
    struct simulator *s = q->simulator;
    if (result == ERR_OK) {
        result = simulator_begin(s, &q->wanted);
    } else {
        pthread_mutex_lock(&s->lock);
        s->is_starting = false;
        pthread_mutex_unlock(&s->lock);
    }
    if (result == ERR_OK) {
        log_info(msg("virtual users arrive"), kv("event", q->wanted.event),
                 kv_i64("users", q->wanted.users));
        simulator_show(s, q->x, 201);
    } else {
        simulator_request_refuse(q, result);
    }
}

void admin_simulator_post(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    if (!simulator_is_here(api, x)) return;
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct simulator_request *q = simulator_request_new(api, x);
    q->wanted = defaults;
    bool ok = json_read(body, start_fields, &q->wanted, "", &q->problem) &&
              check_event(api, &q->wanted, &q->problem);
    json_decref(body);
    if (ok && api->users_auth == USERS_SIGNED)
        ok = json_refuse(&q->problem, ERR_SIMULATOR_SIGNED, "%s",
                         "Virtual users are anonymous, and with users.auth = signed only users "
                         "that the shop has signed may enter. Start the server with "
                         "--users-auth anonymous.");
    if (ok && simulator_reserve(q->simulator, &q->problem))
        simulator_note(api, q, "simulator.start", q->wanted.event, simulator_on_start_noted);
    else
        simulator_request_refuse(q, q->problem.err);
}

/* ---- change ---- */

/* Whether there is a crowd that can be changed or ended; *event is the one that it came for. */
static bool simulator_is_active(struct simulator *s, char event[EVENT_PATH_BYTES],
                                struct json_problem *problem) {
    struct crowd_numbers n;
    pthread_mutex_lock(&s->lock);
    bool runs = simulator_runs(s, &n) && !s->is_leaving;
    memcpy(event, s->settings.event, EVENT_PATH_BYTES);
    pthread_mutex_unlock(&s->lock);
    return runs || simulator_is_idle(problem, "POST /admin/simulator starts a simulation.");
}

static bool simulator_change(struct simulator *s, const json_t *body,
                             struct json_problem *problem) {
    struct crowd_numbers n;
    struct simulation wanted;
    pthread_mutex_lock(&s->lock);
    bool runs = simulator_runs(s, &n) && !s->is_leaving;
    wanted = s->settings;
    bool ok = runs && json_read(body, change_fields, &wanted, "", problem);
    if (ok) {
        struct crowd_plan plan = plan_of(&wanted);
        s->settings = wanted;
        crowd_change(s->crowd, &plan);
    }
    pthread_mutex_unlock(&s->lock);
    return ok || simulator_is_idle(problem, "The simulation has just ended.");
}

static void simulator_on_change_noted(struct act *a, enum err result) {
    struct simulator_request *q = CONTAINER_OF(a, struct simulator_request, act);
    if (result == ERR_OK && !simulator_change(q->simulator, q->body, &q->problem))
        result = q->problem.err;
    if (result != ERR_OK) {
        simulator_request_refuse(q, result);
        return;
    }
    json_decref(q->body);
    simulator_show(q->simulator, q->x, 200);
}

void admin_simulator_patch(struct api *api, struct exchange *x, const str *captures) {
    char event[EVENT_PATH_BYTES];
    (void)captures;
    if (!simulator_is_here(api, x)) return;
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct simulator_request *q = simulator_request_new(api, x);
    q->body = body;
    if (json_read(body, change_fields, &q->wanted, "", &q->problem) &&
        simulator_is_active(q->simulator, event, &q->problem))
        simulator_note(api, q, "simulator.change", event, simulator_on_change_noted);
    else
        simulator_request_refuse(q, q->problem.err);
}

/* ---- end ---- */

static void simulator_on_end_noted(struct act *a, enum err result) {
    struct simulator_request *q = CONTAINER_OF(a, struct simulator_request, act);
    struct simulator *s = q->simulator;
    if (result != ERR_OK) {
        simulator_request_refuse(q, result);
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (s->crowd != NULL && !s->is_stopped) crowd_leave(s->crowd);
    s->is_leaving = true;
    pthread_mutex_unlock(&s->lock);
    simulator_show(s, q->x, 200);
}

void admin_simulator_delete(struct api *api, struct exchange *x, const str *captures) {
    char event[EVENT_PATH_BYTES];
    struct json_problem problem;
    (void)captures;
    if (!simulator_is_here(api, x)) return;
    struct simulator_request *q = simulator_request_new(api, x);
    if (simulator_is_active(q->simulator, event, &problem))
        simulator_note(api, q, "simulator.end", event, simulator_on_end_noted);
    else
        simulator_show(q->simulator, x, 200);
}

/* ---- the process ---- */

static void take_loopback_for_any(struct sockaddr_storage *a) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)a;
    if (a->ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY))
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (a->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
        v6->sin6_addr = in6addr_loopback;
}

/* As arrival_client decides for requests without a key; from the server to itself, both ends have
 * one address. */
static bool is_limited(const struct api *api, const struct sockaddr_storage *server) {
    struct address a = address_of(server);
    return api->arrivals.limits != NULL && !address_in(&a, &api->limits_exempt) &&
           !address_in(&a, &api->trusted_proxies);
}

/* The cap for one address does not apply to loopback and trusted proxies. */
static size_t simulator_connections_max(const struct simulator_options *o, const struct api *api,
                                        const struct sockaddr_storage *server) {
    struct address a = address_of(server);
    size_t cap = o->connections_per_address_max / 2;
    if (o->connections_per_address_max == 0 || address_is_loopback(&a) ||
        address_in(&a, &api->trusted_proxies) || o->connections_max < cap)
        return o->connections_max;
    return cap < 2 ? 2 : cap;
}

struct simulator *simulator_new(const struct simulator_options *o, const struct api *api) {
    struct simulator *s = mem_new(sizeof *s);
    bool parsed = endpoint_parse(str_of(o->listening), &s->server);
    assert(parsed && o->connections_max >= 2);
    take_loopback_for_any(&s->server);
    s->connections_max = simulator_connections_max(o, api, &s->server);
    s->is_limited = is_limited(api, &s->server);
    s->settings = defaults;
    s->started_ms = CLOCK_NONE_MS;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void simulator_stop(struct simulator *s) {
    pthread_mutex_lock(&s->lock);
    struct crowd *crowd = s->crowd;
    s->crowd = NULL;
    s->is_stopped = true;
    pthread_mutex_unlock(&s->lock);
    if (crowd != NULL) crowd_free(crowd);
}

void simulator_free(struct simulator *s) {
    assert(s->crowd == NULL);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}
