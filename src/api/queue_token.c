/* Reads, judges and signs entry tokens, and answers requests whose token is not accepted. */
#include "api/queue_token.h"

#include <stdio.h>

#include "api/users.h"
#include "base/clock.h"

#define COOKIE_NAME_BYTES 48
#define COOKIE_S 86400

void queue_event_copy(const struct event *e, struct arena *a, struct queue_event *out) {
    *out = (struct queue_event){.key = e->key, .rules = e->queue, .hours = event_hours_of(e)};
    memcpy(out->type, e->type, sizeof out->type);
    memcpy(out->id, e->id, sizeof out->id);
    if (a != NULL && e->notice.len > 0) out->notice = arena_copy(a, e->notice);
}

enum event_state queue_event_state(const struct queue_event *e, int64_t now_ms) {
    return event_state_at(&e->hours, now_ms);
}

bool queue_event_find(struct api *api, str type, str id, struct arena *a, struct queue_event *out) {
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, type, id);
    if (e != NULL) queue_event_copy(e, a, out);
    catalogue_read_unlock(api->events.catalogue);
    return e != NULL;
}

bool queue_event_find_key(struct api *api, int64_t key, struct arena *a, struct queue_event *out) {
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find_key(api->events.catalogue, key);
    if (e != NULL) queue_event_copy(e, a, out);
    catalogue_read_unlock(api->events.catalogue);
    return e != NULL;
}

str queue_token_sign(struct api_worker *w, const struct queue_event *e, str user,
                     const struct place *p, int64_t now_ms, char *out) {
    /* One that does not end is the same however often it is asked for. */
    struct token t = {.generation = w->api->generation,
                      .event_key = e->key,
                      .seq = p->seq,
                      .lane = p->lane,
                      .user_hash = token_user_hash(w->tokens, user),
                      .issued_ms = e->rules.token_ttl_s == 0 ? p->joined_ms : now_ms,
                      .ttl_s = e->rules.token_ttl_s};
    token_sign(w->tokens, &t, out);
    return (str){out, TOKEN_TEXT_BYTES};
}

static str cookie_name(int64_t event_key, char out[COOKIE_NAME_BYTES]) {
    int len = snprintf(out, COOKIE_NAME_BYTES, "admitone_entry_%lld", (long long)event_key);
    return (str){out, (size_t)len};
}

static bool has_form_of_token(void *to, str text) {
    (void)to;
    return text.len == TOKEN_TEXT_BYTES;
}

str queue_token_of(struct exchange *x, int64_t event_key) {
    str own = http_header(&x->request, STR("X-Queue-Token"));
    if (own.at != NULL) return own;
    bool bad;
    str asked = query_value(x, STR("token"), &bad);
    if (asked.at != NULL) return asked;
    /* Behind a gate, the Authorization may be the shop's own. */
    str bearer = users_bearer(x);
    if (bearer.len == TOKEN_TEXT_BYTES || event_key == 0) return bearer;
    char name[COOKIE_NAME_BYTES];
    str cookie = cookie_value(x, cookie_name(event_key, name), has_form_of_token, NULL);
    return cookie.at != NULL ? cookie : bearer;
}

bool queue_token_is_sent(const struct exchange *x, str text) {
    bool is_bearer = text.at != NULL && text.at == users_bearer(x).at;
    return text.at != NULL && (!is_bearer || has_form_of_token(NULL, text));
}

enum err queue_token_read(struct api_worker *w, str text, struct token *out) {
    if (text.at == NULL) return ERR_TOKEN_REQUIRED;
    if (!token_verify(w->tokens, text, out)) return ERR_TOKEN_INVALID;
    return out->generation == w->api->generation ? ERR_OK : ERR_TOKEN_INVALID;
}

enum err queue_token_judge(struct api_worker *w, str text, const struct queue_event *e,
                           struct token *out) {
    enum err refused = queue_token_read(w, text, out);
    if (refused != ERR_OK) return refused;
    if (e != NULL && out->event_key != e->key) return ERR_TOKEN_FOREIGN_EVENT;
    int64_t ttl_ms = (e != NULL ? e->rules.token_ttl_s : out->ttl_s) * 1000;
    if (ttl_ms > 0 && clock_wall_ms() - out->issued_ms >= ttl_ms) return ERR_TOKEN_EXPIRED;
    return ERR_OK;
}

enum err queue_token_check(struct api *api, struct exchange *x, str text,
                           const struct queue_event *e, struct token *out) {
    enum err refused = queue_token_judge(exchange_context(x), text, e, out);
    return refused == ERR_OK ? users_disagree(api, x, (str){NULL, 0}, out->user_hash) : refused;
}

void queue_refuse(struct exchange *x, enum err e) {
    bool has_key = users_key(x) != NULL;
    if (e == ERR_TOKEN_INVALID && has_key) e = ERR_TOKEN_REQUIRED;
    const char *what_to_do = err_effect(e);
    if (e == ERR_EVENT_NOT_FOUND) what_to_do = "GET /events lists the events that exist.";
    if (e == ERR_TOKEN_REQUIRED)
        what_to_do = "Enter the queue to get one, then send it as 'Authorization: Bearer <token>' "
                     "or X-Queue-Token.";
    if (e == ERR_TOKEN_REQUIRED && has_key)
        what_to_do =
            "A key was sent where an entry token is needed: enter the queue for the user and send "
            "that token.";
    if (e == ERR_TOKEN_INVALID)
        what_to_do =
            "The token was not issued by this server, was altered, its key is no longer in use, or "
            "the server's data was restored from a backup: enter the queue again.";
    if (e == ERR_TOKEN_EXPIRED)
        what_to_do = "Enter again: the place is kept, and the answer has a new token.";
    if (e == ERR_TOKEN_FOREIGN_EVENT) what_to_do = "The token is for the queue of another event.";
    if (e == ERR_USER_MISMATCH) what_to_do = "The token belongs to another user.";
    if (e == ERR_FOREIGN_ORIGIN) what_to_do = "The page's origin is not in cors.origins.";
    if (e == ERR_ASSERTION_INVALID)
        what_to_do = "X-User-Assertion must be a JWT of the shop: HS256, with sub, not expired.";
    if (err_status(e) == 401)
        reply_header(x, STR("WWW-Authenticate"), STR("Bearer realm=\"admitone queue\""));
    reply_problem(x, e, "%s", what_to_do);
}

void queue_token_set_cookie(struct exchange *x, const struct queue_event *e, str token) {
    char name[COOKIE_NAME_BYTES];
    char text[256];
    cookie_name(e->key, name);
    int len =
        snprintf(text, sizeof text, "%s=%.*s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%d%s", name,
                 (int)token.len, token.at, COOKIE_S, exchange_secure(x) ? "; Secure" : "");
    reply_header(x, STR("Set-Cookie"), (str){text, (size_t)len});
}
