/*
 * users: who asks, as far as it is proven. `users.auth` says whose word counts: the caller's own
 * (trusted), the shop's signature (signed), or a cookie of ours (anonymous). The admin key is
 * believed in every mode.
 *
 * All of it reads the request, so it is called while the handler runs; what comes out is in the
 * exchange's arena and lives until the answer. On the exchange's worker only.
 */
#ifndef ADMITONE_API_USERS_H
#define ADMITONE_API_USERS_H

#include "api/api.h"
#include "api/json_in.h"
#include "core/jwt.h"

struct asker {
    str user;   /* at NULL: nobody */
    int lane;   /* that the assertion grants, 0 to 15; -1: none */
    bool admin; /* sent the admin key */
    bool fresh; /* anonymous: made just now; the answer must set the cookie */
};

/* What stands behind "Authorization: Bearer"; at NULL when there is no such header. */
str users_bearer(const struct exchange *x);
/* Whether the request has the admin key, as 'Authorization: Bearer <key>'. */
bool users_is_admin(const struct api *api, const struct exchange *x);

/* For a request that takes a place. `named`: the userId of its body as user_from_json gave it, at
 * NULL when there is none. False: the problem has been answered. */
bool users_identify(struct api *api, struct exchange *x, str named, struct asker *out);
/* The same, without answering. False: *problem, for users_refuse. */
bool users_know(struct api *api, struct exchange *x, str named, struct asker *out,
                struct json_problem *problem);
void users_refuse(struct exchange *x, const struct json_problem *problem);
/* Whether a browser says that a page of another origin sent it, where browsers' cookies count. */
bool users_come_from_elsewhere(const struct api *api, const struct exchange *x);

/* For a request that comes with an entry token of the user with this token_user_hash: whether it
 * also says who it is, and that is somebody else. OK, or USER_MISMATCH, or ASSERTION_INVALID. What
 * says so is the userId of its body (`named`, at NULL when there is none) or of the query, and in
 * its mode the assertion or the cookie; none is required. */
enum err users_disagree(struct api *api, struct exchange *x, str named, uint64_t user_hash);

/* 1 to 64 bytes of UTF-8 without control characters. */
bool user_name_ok(str name);
/* A user's name in JSON: such a string, or an integer (its decimal text). False: *problem. */
bool user_from_json(struct exchange *x, const json_t *value, str *out,
                    struct json_problem *problem);

/* Sets the cookie of one who is fresh on the answer, any time before that is sent. */
void users_set_cookie(const struct api *api, struct exchange *x, const struct asker *a);

/* The value of the request's first cookie of that name that is good: others of the name may come
 * from whoever else may set cookies for the host. At NULL when there is none. */
str cookie_value(const struct exchange *x, str name, bool (*is_good)(str value));

/* Reads the shop's word: sets user and lane. False: *problem says why it does not hold. */
bool assertion_read(struct jwt_box *box, str text, int64_t now_ms, struct arena *arena,
                    struct asker *out, struct json_problem *problem);

#endif
