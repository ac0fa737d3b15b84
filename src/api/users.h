/*
 * users: the user of a request, as far as it is proven. The setting `users.auth` decides what
 * proves it: the request's own userId (trusted), the shop's signature (signed), or a cookie of this
 * server (anonymous). With the admin key, userId is accepted in every mode.
 *
 * All functions read the request, so they are called while the handler runs; results are in the
 * exchange's arena and live until the answer. On the exchange's worker only.
 */
#ifndef ADMITONE_API_USERS_H
#define ADMITONE_API_USERS_H

#include "api/api.h"
#include "api/json_in.h"
#include "core/jwt.h"

struct requester {
    str user;   /* at NULL: not known */
    int lane;   /* that the assertion grants, 0 to 15; -1: none */
    bool admin; /* sent the admin key */
    bool fresh; /* anonymous: created just now; the answer must set the cookie */
};

/* The text behind "Authorization: Bearer"; at NULL when there is no such header. */
str users_bearer(const struct exchange *x);
/* Whether the request has the admin key, as 'Authorization: Bearer <key>'. */
bool users_is_admin(const struct api *api, const struct exchange *x);

/* For a request that takes a place. `named`: the userId of its body as user_from_json gave it, at
 * NULL when there is none. False: the problem has been answered. */
bool users_identify(struct api *api, struct exchange *x, str named, struct requester *out);
/* The same, without answering. False: *problem, for users_refuse. */
bool users_know(struct api *api, struct exchange *x, str named, struct requester *out,
                struct json_problem *problem);
void users_refuse(struct exchange *x, const struct json_problem *problem);
/* Whether a page of another origin sent the request, where cookies prove the user. */
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

/* Adds the cookie of a fresh user to the answer, any time before that is sent. */
void users_set_cookie(const struct api *api, struct exchange *x, const struct requester *a);

/* The value of the request's first cookie of that name that is good: other servers of the host's
 * domain may set cookies of the same name. At NULL when there is none. */
str cookie_value(const struct exchange *x, str name, bool (*is_good)(str value));

/* Reads the shop's assertion: sets user and lane. False: *problem says why it is not valid. */
bool assertion_read(struct jwt_box *box, str text, int64_t now_ms, struct arena *arena,
                    struct requester *out, struct json_problem *problem);

#endif
