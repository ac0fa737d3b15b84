/*
 * users: the user of a request, as far as it is proven. The setting `users.auth` decides what
 * proves it: the request's own userId (trusted), the shop's signature (signed), or a cookie of this
 * server (anonymous). With a key of the shop, userId is accepted in every mode. In the mode
 * `trusted`, the cookie proves the user of a request that names none, and one of this server's own
 * pages gets one, so that the pages work there too.
 *
 * All functions read the request, so they are called while the handler runs; results are in the
 * exchange's arena and live until the answer. On the exchange's worker only.
 */
#ifndef ADMITONE_API_USERS_H
#define ADMITONE_API_USERS_H

#include "api/api.h"
#include "api/json_in.h"
#include "api/keys.h"
#include "core/jwt.h"
#include "core/token.h"

struct requester {
    str user;  /* at NULL: not known */
    int lane;  /* that the assertion grants, 0 to 15; -1: none */
    bool shop; /* sent a key with which it may act for every user */
    bool is_anonymous;
    /* Of an anonymous one: */
    bool fresh;  /* created just now; the answer must set the cookie */
    bool renews; /* the answer sets the cookie again, because another key has signed it */
    unsigned char anonymous[ANONYMOUS_BYTES];
};

/* The text behind "Authorization: Bearer"; at NULL when there is no such header. */
str users_bearer(const struct exchange *x);

/* Looks for a key, 'Authorization: Bearer <key>', before the handler runs. OK, whether or not there
 * is one: users_key. If a key is `required`: ADMIN_KEY_REQUIRED, or TOO_MANY_WRONG_KEYS with the
 * time to wait in x->retry_after_s. */
enum err users_find_key(struct api *api, struct exchange *x, bool required);
/* The key that the request has sent; NULL: none. Until the answer. */
const struct key_holder *users_key(const struct exchange *x);
/* Whether the request has sent a key whose role includes this one. */
bool users_key_allows(const struct exchange *x, enum key_role needed);
/* Whether the request has sent a key with which it may act for every user. */
bool users_is_shop(const struct api *api, const struct exchange *x);
/* Answers a request whose key has a role that does not suffice; `needed` says what would. */
void users_refuse_key(struct exchange *x, const char *needed);

/* For a request that takes a place. `named`: the userId of its body as user_from_json gave it, at
 * NULL when there is none. False: the problem has been answered. */
bool users_identify(struct api *api, struct exchange *x, str named, struct requester *out);
/* The same, without answering. False: *problem, for users_refuse. */
bool users_know(struct api *api, struct exchange *x, str named, struct requester *out,
                struct json_problem *problem);
void users_refuse(struct exchange *x, const struct json_problem *problem);
/* Whether a page of another origin sent the request, where cookies may prove the user. */
bool users_come_from_elsewhere(const struct api *api, const struct exchange *x);

/* For a request with an entry token of the user with this token_user_hash: whether it also names
 * another user. OK, or USER_MISMATCH, or ASSERTION_INVALID. It may name a user by the userId of its
 * body (`named`, at NULL when there is none) or of the query, and in its mode by the assertion or
 * the cookie; none is required. */
enum err users_disagree(struct api *api, struct exchange *x, str named, uint64_t user_hash);

/* 1 to 64 bytes of UTF-8 without control characters. */
bool user_name_ok(str name);
/* A user's name in JSON: such a string, or an integer (its decimal text). False: *problem. */
bool user_from_json(struct exchange *x, const json_t *value, str *out,
                    struct json_problem *problem);

/* Adds the cookie of an anonymous user to the answer, if it is due, any time before that is sent.
 */
void users_set_cookie(struct exchange *x, const struct requester *a);
/* Whether the request has the cookie of an anonymous user, signed by this server. */
bool users_has_credential(const struct exchange *x);

/* The value of the request's first cookie of that name that is good: other servers of the host's
 * domain may set cookies of the same name. At NULL when there is none. */
str cookie_value(const struct exchange *x, str name, bool (*is_good)(void *to, str value),
                 void *to);

/* Reads the shop's assertion: sets user and lane. False: *problem says why it is not valid. */
bool assertion_read(struct jwt_box *box, str text, int64_t now_ms, struct arena *arena,
                    struct requester *out, struct json_problem *problem);

#endif
