/* Finds the user of a request: by userId, by the shop's signed assertion, or by cookie. */
#include "api/users.h"

#include <assert.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/base64url.h"
#include "base/clock.h"
#include "core/limits.h"
#include "core/queue.h"
#include "core/token.h"

/* An anonymous user's id: random, so that it can't be guessed, with a prefix that ids of a shop's
 * users do not have by chance. */
#define ANONYMOUS_PREFIX "anon-"
#define ANONYMOUS_RANDOM_BYTES 16
#define ANONYMOUS_CHARS (sizeof ANONYMOUS_PREFIX - 1 + BASE64URL_CHARS(ANONYMOUS_RANDOM_BYTES))

#define COOKIE_NAME "admitone_user"
static const char cookie_attributes[] = "; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000";

str users_bearer(const struct exchange *x) {
    str given = http_header(&x->request, STR("Authorization"));
    str scheme = {given.at, given.len < 7 ? given.len : 7};
    if (!str_eq_nocase(scheme, STR("Bearer "))) return (str){NULL, 0};
    return str_trim(str_skip(given, 7));
}

bool users_is_admin(const struct api *api, const struct exchange *x) {
    return str_eq_secret(users_bearer(x), api->admin_key);
}

/* ---- names ---- */

bool user_name_ok(str name) {
    return name.len > 0 && name.len <= USER_ID_BYTES_MAX && str_is_text(name);
}

static bool user_read(struct arena *arena, const json_t *value, str *out) {
    if (json_is_integer(value)) {
        char text[24];
        int len = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        *out = arena_copy(arena, (str){text, (size_t)len});
        return true;
    }
    str text = {json_string_value(value), json_string_length(value)};
    if (!json_is_string(value) || !user_name_ok(text)) return false;
    *out = arena_copy(arena, text);
    return true;
}

bool user_from_json(struct exchange *x, const json_t *value, str *out,
                    struct json_problem *problem) {
    if (user_read(&x->arena, value, out)) return true;
    return json_refuse(problem, ERR_INVALID_FIELD,
                       "userId must be a string of 1 to %d bytes without control characters, or a "
                       "whole number.",
                       USER_ID_BYTES_MAX);
}

/* ---- signed ---- */

static bool invalid(struct json_problem *problem, const char *why) {
    return json_refuse(problem, ERR_ASSERTION_INVALID, "X-User-Assertion: %s.", why);
}

static bool header_is_ours(const json_t *header) {
    const char *algorithm = json_string_value(json_object_get(header, "alg"));
    /* "crit" lists extensions that a reader must understand; this one understands none. */
    return algorithm != NULL && strcmp(algorithm, "HS256") == 0 &&
           json_object_get(header, "crit") == NULL;
}

static bool read_claims(const json_t *claims, int64_t now_ms, struct arena *arena,
                        struct requester *out, struct json_problem *problem) {
    const json_t *exp = json_object_get(claims, "exp");
    const json_t *nbf = json_object_get(claims, "nbf");
    const json_t *lane = json_object_get(claims, "lane");
    double now_s = (double)now_ms / 1000;
    if (!json_is_object(claims)) return invalid(problem, "its claims are not a JSON object");
    if (exp != NULL && !json_is_number(exp)) return invalid(problem, "exp must be a number");
    if (exp != NULL && json_number_value(exp) <= now_s) return invalid(problem, "it has expired");
    if (nbf != NULL && !json_is_number(nbf)) return invalid(problem, "nbf must be a number");
    if (nbf != NULL && json_number_value(nbf) > now_s)
        return invalid(problem, "it is not valid yet");
    json_int_t lane_number = json_integer_value(lane);
    if (lane != NULL && (!json_is_integer(lane) || lane_number < 0 || lane_number >= LANES))
        return invalid(problem, "lane must be a whole number from 0 to 15");
    if (!user_read(arena, json_object_get(claims, "sub"), &out->user))
        return invalid(problem, "sub must be a string of 1 to 64 bytes without control characters, "
                                "or a whole number");
    out->lane = lane == NULL ? -1 : (int)lane_number;
    return true;
}

static json_t *parse(const struct buf *text) {
    return json_loadb(text->len == 0 ? "" : text->bytes, text->len, JSON_REJECT_DUPLICATES, NULL);
}

bool assertion_read(struct jwt_box *box, str text, int64_t now_ms, struct arena *arena,
                    struct requester *out, struct json_problem *problem) {
    struct buf header_text = {0};
    struct buf claims_text = {0};
    json_t *header = NULL;
    json_t *claims = NULL;
    bool ok = false;
    if (!jwt_verify(box, text, &header_text, &claims_text)) {
        invalid(problem, "it is not a JWT signed with the shop's key");
        goto done;
    }
    header = parse(&header_text);
    claims = parse(&claims_text);
    ok = header_is_ours(header) ? read_claims(claims, now_ms, arena, out, problem)
                                : invalid(problem, "its header must have alg HS256, and no crit");
done:
    json_decref(header);
    json_decref(claims);
    buf_deinit(&header_text);
    buf_deinit(&claims_text);
    return ok;
}

static str assertion_of(const struct exchange *x) {
    return http_header(&x->request, STR("X-User-Assertion"));
}

static bool read_assertion(struct exchange *x, struct requester *out,
                           struct json_problem *problem) {
    const struct api_worker *w = exchange_context(x);
    if (assertion_of(x).len == 0)
        return json_refuse(
            problem, ERR_ASSERTION_REQUIRED,
            "Send a JWT signed by the shop, with the user as 'sub', in X-User-Assertion.");
    if (http_header_count(&x->request, STR("X-User-Assertion")) > 1)
        return invalid(problem, "it was sent twice");
    return assertion_read(w->assertions, assertion_of(x), clock_wall_ms(), &x->arena, out, problem);
}

/* ---- anonymous ---- */

str cookie_value(const struct exchange *x, str name, bool (*is_good)(str value)) {
    str rest = http_header(&x->request, STR("Cookie"));
    str pair;
    while (str_split(&rest, ';', &pair)) {
        str key;
        pair = str_trim(pair);
        if (!str_split(&pair, '=', &key) || pair.at == NULL || !str_eq(key, name)) continue;
        if (is_good(pair)) return pair;
    }
    return (str){NULL, 0};
}

static bool is_anonymous_user(str value) {
    char random[ANONYMOUS_RANDOM_BYTES];
    str prefix = STR(ANONYMOUS_PREFIX);
    return value.len == ANONYMOUS_CHARS && str_starts(value, prefix) &&
           base64url_decode(str_skip(value, prefix.len), random);
}

/* The cookie's user; at NULL when there is no cookie of the right form. */
static str anonymous_user(const struct exchange *x) {
    return cookie_value(x, STR(COOKIE_NAME), is_anonymous_user);
}

static str new_anonymous_user(struct arena *arena) {
    unsigned char random[ANONYMOUS_RANDOM_BYTES];
    char text[ANONYMOUS_CHARS];
    size_t prefix_len = sizeof ANONYMOUS_PREFIX - 1;
    ssize_t got = getrandom(random, sizeof random, 0);
    assert(got == sizeof random); /* so few bytes are never delivered in part */
    memcpy(text, ANONYMOUS_PREFIX, prefix_len);
    base64url_encode(random, sizeof random, text + prefix_len);
    return arena_copy(arena, (str){text, sizeof text});
}

void users_set_cookie(const struct api *api, struct exchange *x, const struct requester *a) {
    if (!a->fresh) return;
    assert(api->users_auth == USERS_ANONYMOUS);
    struct buf cookie = {0};
    buf_add(&cookie, STR(COOKIE_NAME "="));
    buf_add(&cookie, a->user);
    buf_add(&cookie, STR(cookie_attributes));
    if (exchange_secure(x)) buf_add(&cookie, STR("; Secure"));
    reply_header(x, STR("Set-Cookie"), buf_str(&cookie));
    buf_deinit(&cookie);
}

/* ---- the user of a request ---- */

void users_refuse(struct exchange *x, const struct json_problem *problem) {
    if (err_status(problem->err) == 401)
        reply_header(x, STR("WWW-Authenticate"), STR("Assertion realm=\"admitone\""));
    reply_problem(x, problem->err, "%s", problem->detail);
}

static bool mismatch(struct json_problem *problem, const char *why) {
    return json_refuse(problem, ERR_USER_MISMATCH, "%s", why);
}

static bool identify_named(struct exchange *x, str named, struct requester *out,
                           struct json_problem *problem) {
    if (named.at == NULL)
        return json_refuse(problem, ERR_INVALID_FIELD, "userId is required: %s.",
                           out->admin ? "the admin key does not name a user"
                                      : "it names the user that the request is for");
    out->user = arena_copy(&x->arena, named);
    return true;
}

static bool identify_signed(struct exchange *x, str named, struct requester *out,
                            struct json_problem *problem) {
    if (!read_assertion(x, out, problem)) return false;
    if (named.at == NULL || str_eq(named, out->user)) return true;
    return mismatch(problem, "userId differs from the claim sub of X-User-Assertion.");
}

/* A page of another site can make a browser send a form, and the answer's cookie would take the
 * place of the user's own. Browsers say where such a request comes from. */
bool users_come_from_elsewhere(const struct api *api, const struct exchange *x) {
    if (api->users_auth != USERS_ANONYMOUS) return false;
    str origin = http_header(&x->request, STR("Origin"));
    if (origin.at == NULL || api_allows_origin(api, origin)) return false;
    str host = http_header(&x->request, STR("Host"));
    str scheme;
    str rest = origin;
    return !str_split(&rest, ':', &scheme) || !str_starts(rest, STR("//")) ||
           !str_eq_nocase(str_skip(rest, 2), host);
}

static bool identify_anonymous(const struct api *api, struct exchange *x, str named,
                               struct requester *out, struct json_problem *problem) {
    if (users_come_from_elsewhere(api, x))
        return json_refuse(problem, ERR_FOREIGN_ORIGIN,
                           "The page's origin is not in cors.origins.");
    str known = anonymous_user(x);
    if (named.at != NULL && !(known.at != NULL && str_eq(named, known)))
        return mismatch(problem, "userId is not the user of the cookie " COOKIE_NAME ".");
    out->fresh = known.at == NULL;
    out->user = out->fresh ? new_anonymous_user(&x->arena) : arena_copy(&x->arena, known);
    return true;
}

static bool users_identify_by_mode(const struct api *api, struct exchange *x, str named,
                                   struct requester *out, struct json_problem *problem) {
    if (out->admin) return identify_named(x, named, out, problem);
    switch (api->users_auth) {
    case USERS_TRUSTED:
        return identify_named(x, named, out, problem);
    case USERS_SIGNED:
        return identify_signed(x, named, out, problem);
    case USERS_ANONYMOUS:
        return identify_anonymous(api, x, named, out, problem);
    }
    assert(false && "no such mode");
    return false;
}

bool users_know(struct api *api, struct exchange *x, str named, struct requester *out,
                struct json_problem *problem) {
    assert(named.at == NULL || user_name_ok(named));
    *out = (struct requester){.lane = -1, .admin = users_is_admin(api, x)};
    bool known = users_identify_by_mode(api, x, named, out, problem);
    if (known) x->user = out->user;
    return known;
}

bool users_identify(struct api *api, struct exchange *x, str named, struct requester *out) {
    struct json_problem problem;
    bool known = users_know(api, x, named, out, &problem);
    if (!known) users_refuse(x, &problem);
    return known;
}

/* Whether the user is the token's, or none was named. */
static bool is_token_user(const struct exchange *x, str user, uint64_t user_hash) {
    const struct api_worker *w = exchange_context(x);
    return user.at == NULL || token_user_hash(w->tokens, user) == user_hash;
}

enum err users_disagree(struct api *api, struct exchange *x, str named, uint64_t user_hash) {
    bool bad;
    str asked = query_value(x, STR("userId"), &bad);
    if (bad || !is_token_user(x, asked, user_hash) || !is_token_user(x, named, user_hash))
        return ERR_USER_MISMATCH;
    str proven = {NULL, 0};
    if (api->users_auth == USERS_SIGNED && assertion_of(x).len > 0) {
        struct json_problem problem;
        struct requester requester = {.lane = -1};
        if (!read_assertion(x, &requester, &problem)) return problem.err;
        proven = requester.user;
    }
    if (api->users_auth == USERS_ANONYMOUS) proven = anonymous_user(x);
    return is_token_user(x, proven, user_hash) ? ERR_OK : ERR_USER_MISMATCH;
}
