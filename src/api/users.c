/* Finds the user of a request: by userId, by the shop's signed assertion, or by the cookie that has
 * an anonymous user's credential. */
#include "api/users.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <sys/random.h>

#include "api/shop_jwt.h"
#include "base/base64url.h"
#include "base/clock.h"
#include "core/limits.h"
#include "core/queue.h"
#include "core/token.h"
#include "core/uuid.h"

/* An anonymous user's id: random, so that it can't be guessed, with a prefix that ids of a shop's
 * users do not have by chance. */
#define ANONYMOUS_PREFIX "anon-"
#define ANONYMOUS_CHARS (sizeof ANONYMOUS_PREFIX - 1 + BASE64URL_CHARS(ANONYMOUS_BYTES))

#define COOKIE_NAME "admitone_user"
static const char cookie_attributes[] = "; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000";

str users_bearer(const struct exchange *x) {
    str given = http_header(&x->request, STR("Authorization"));
    str scheme = {given.at, given.len < 7 ? given.len : 7};
    if (!str_eq_nocase(scheme, STR("Bearer "))) return (str){NULL, 0};
    return str_trim(str_skip(given, 7));
}

/* ---- keys ---- */

/* Where no key is required, a text that is none is ignored: it may be the shop's own. */
enum err users_find_key(struct api *api, struct exchange *x, bool required) {
    if (exchange_was_put_off(x)) return ERR_OK; /* it was found, or ignored, the first time */
    str text = users_bearer(x);
    bool is_candidate = keys_is_candidate(api->keys, text);
    if (text.len == 0 || (!required && !is_candidate))
        return required ? ERR_ADMIN_KEY_REQUIRED : ERR_OK;
    struct token token;
    const struct api_worker *w = exchange_context(x);
    struct address client = exchange_client(x);
    struct key_holder *holder = arena_new(&x->arena, sizeof *holder);
    bool counts = !token_verify(w->tokens, text, &token); /* a token is no attempt at a key */
    enum err refused = keys_find(api->keys, text, &client, counts, holder, &x->retry_after_s);
    if (refused == ERR_OK) x->caller = holder;
    if (required) return refused;
    x->retry_after_s = 0;
    return ERR_OK;
}

const struct key_holder *users_key(const struct exchange *x) {
    return x->caller;
}

bool users_key_allows(const struct exchange *x, enum key_role needed) {
    const struct key_holder *key = users_key(x);
    return key != NULL && key_role_includes(key->role, needed);
}

bool users_is_shop(const struct api *api, const struct exchange *x) {
    (void)api;
    return users_key_allows(x, KEY_ROLE_SHOP);
}

void users_refuse_key(struct exchange *x, const char *needed) {
    const struct key_holder *key = users_key(x);
    reply_problem(x, ERR_KEY_NOT_ALLOWED, "The key \"%s\" has the role %s. %s.", key->name,
                  key_role_words[key->role].at, needed);
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

static bool read_claims(const json_t *claims, struct arena *arena, struct requester *out,
                        struct json_problem *problem) {
    const json_t *lane = json_object_get(claims, "lane");
    json_int_t lane_number = json_integer_value(lane);
    if (lane != NULL && (!json_is_integer(lane) || lane_number < 0 || lane_number >= LANES))
        return invalid(problem, "lane must be a whole number from 0 to 15");
    if (!user_read(arena, json_object_get(claims, "sub"), &out->user))
        return invalid(problem, "sub must be a string of 1 to 64 bytes without control characters, "
                                "or a whole number");
    out->lane = lane == NULL ? -1 : (int)lane_number;
    return true;
}

bool assertion_read(struct jwt_box *box, str text, int64_t now_ms, struct arena *arena,
                    struct requester *out, struct json_problem *problem) {
    const char *why;
    json_t *claims = shop_jwt_read(box, text, now_ms, &why);
    bool ok = claims != NULL ? read_claims(claims, arena, out, problem) : invalid(problem, why);
    json_decref(claims);
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

str cookie_value(const struct exchange *x, str name, bool (*is_good)(void *to, str value),
                 void *to) {
    str rest = http_header(&x->request, STR("Cookie"));
    str pair;
    while (str_split(&rest, ';', &pair)) {
        str key;
        pair = str_trim(pair);
        if (!str_split(&pair, '=', &key) || pair.at == NULL || !str_eq(key, name)) continue;
        if (is_good(to, pair)) return pair;
    }
    return (str){NULL, 0};
}

struct credential {
    struct token_box *tokens;
    unsigned char user[ANONYMOUS_BYTES];
    bool is_old; /* signed with the previous key */
};

static bool is_credential(void *to, str value) {
    struct credential *c = to;
    return credential_verify(c->tokens, value, c->user, &c->is_old);
}

/* The credential of the request's cookie. False: it has none that this server has signed. */
static bool read_credential(const struct exchange *x, struct credential *out) {
    const struct api_worker *w = exchange_context(x);
    *out = (struct credential){.tokens = w->tokens};
    return cookie_value(x, STR(COOKIE_NAME), is_credential, out).at != NULL;
}

bool users_has_credential(const struct exchange *x) {
    struct credential c;
    return read_credential(x, &c);
}

static str anonymous_id(struct arena *arena, const unsigned char user[ANONYMOUS_BYTES]) {
    char text[ANONYMOUS_CHARS];
    size_t prefix_len = sizeof ANONYMOUS_PREFIX - 1;
    memcpy(text, ANONYMOUS_PREFIX, prefix_len);
    base64url_encode(user, ANONYMOUS_BYTES, text + prefix_len);
    return arena_copy(arena, (str){text, sizeof text});
}

/* Whether the text is a UUID of a version that consists of random bits (4, 7), so that no other
 * client can have the same one. */
static bool is_random_uuid(str text) {
    if (text.len != UUID_TEXT_BYTES) return false;
    for (size_t i = 0; i < text.len; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (is_dash ? text.at[i] != '-' : !isxdigit((unsigned char)text.at[i])) return false;
    }
    return text.at[14] == '4' || text.at[14] == '7';
}

/* A new user. If the answer to a request, and the cookie with it, is lost, and the request is sent
 * again with its Idempotency-Key, it must be from the same user: so the key decides who that is, if
 * it can't be guessed. */
static void new_anonymous_user(const struct exchange *x, unsigned char user[ANONYMOUS_BYTES]) {
    const struct api_worker *w = exchange_context(x);
    str key = http_header(&x->request, STR("Idempotency-Key"));
    if (is_random_uuid(key)) {
        credential_user_of_key(w->tokens, key, user);
    } else {
        ssize_t got = getrandom(user, ANONYMOUS_BYTES, 0);
        assert(got == ANONYMOUS_BYTES); /* so few bytes are never delivered in part */
    }
}

void users_set_cookie(struct exchange *x, const struct requester *a) {
    if (!a->fresh && !a->renews) return;
    const struct api_worker *w = exchange_context(x);
    char credential[CREDENTIAL_TEXT_BYTES];
    struct buf cookie = {0};
    credential_sign(w->tokens, a->anonymous, credential);
    buf_add(&cookie, STR(COOKIE_NAME "="));
    buf_add(&cookie, (str){credential, sizeof credential});
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
                           out->shop ? "the key does not name a user"
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

/* Whether the origin is that of this server, as far as the request can tell. */
static bool is_own_origin(const struct exchange *x, str origin) {
    str host = http_header(&x->request, STR("Host"));
    str scheme;
    str rest = origin;
    return str_split(&rest, ':', &scheme) && str_starts(rest, STR("//")) &&
           str_eq_nocase(str_skip(rest, 2), host);
}

/* No page can write this header. Not all browsers send it, and only to https and localhost. */
static bool says_same_origin(const struct exchange *x) {
    return str_eq(http_header(&x->request, STR("Sec-Fetch-Site")), STR("same-origin"));
}

/* Whether one of this server's pages sent the request, in a browser. */
static bool is_from_own_page(const struct exchange *x) {
    str origin = http_header(&x->request, STR("Origin"));
    bool is_told = http_header(&x->request, STR("Sec-Fetch-Site")).at != NULL;
    return is_told ? says_same_origin(x) : origin.at != NULL && is_own_origin(x, origin);
}

/* A page of another site can make a browser send a form: with the user's cookies, and those of the
 * answer would take the place of the user's own. Browsers say where such a request comes from. */
bool users_come_from_elsewhere(const struct api *api, const struct exchange *x) {
    bool has_cookies = http_header(&x->request, STR("Cookie")).at != NULL;
    if (api->users_auth != USERS_ANONYMOUS && !has_cookies) return false;
    str origin = http_header(&x->request, STR("Origin"));
    return origin.at != NULL && !says_same_origin(x) && !api_allows_origin(api, origin) &&
           !is_own_origin(x, origin);
}

static bool identify_anonymous(const struct api *api, struct exchange *x, str named,
                               struct requester *out, struct json_problem *problem) {
    if (users_come_from_elsewhere(api, x))
        return json_refuse(problem, ERR_FOREIGN_ORIGIN,
                           "The page's origin is not in cors.origins.");
    struct credential c;
    out->is_anonymous = true;
    out->fresh = !read_credential(x, &c);
    out->renews = c.is_old;
    if (out->fresh) new_anonymous_user(x, c.user);
    memcpy(out->anonymous, c.user, sizeof out->anonymous);
    out->user = anonymous_id(&x->arena, c.user);
    if (named.at == NULL || (!out->fresh && str_eq(named, out->user))) return true;
    return mismatch(problem, "userId is not the user of the cookie " COOKIE_NAME ".");
}

/* Its pages name no user; a shop's back end, which has neither a page nor a cookie, must. */
static bool identify_trusted(const struct api *api, struct exchange *x, str named,
                             struct requester *out, struct json_problem *problem) {
    bool is_browser = named.at == NULL && (is_from_own_page(x) || users_has_credential(x));
    return is_browser ? identify_anonymous(api, x, named, out, problem)
                      : identify_named(x, named, out, problem);
}

static bool users_identify_by_mode(const struct api *api, struct exchange *x, str named,
                                   struct requester *out, struct json_problem *problem) {
    if (out->shop) return identify_named(x, named, out, problem);
    switch (api->users_auth) {
    case USERS_TRUSTED:
        return identify_trusted(api, x, named, out, problem);
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
    *out = (struct requester){.lane = -1, .shop = users_is_shop(api, x)};
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
    struct credential c;
    if (api->users_auth == USERS_ANONYMOUS && read_credential(x, &c))
        proven = anonymous_id(&x->arena, c.user);
    return is_token_user(x, proven, user_hash) ? ERR_OK : ERR_USER_MISMATCH;
}
