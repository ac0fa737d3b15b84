/*
 * owner: the user who asks for something that already exists, a reservation or an asynchronous
 * request, as far as it is proven.
 */
#ifndef ADMITONE_API_OWNER_H
#define ADMITONE_API_OWNER_H

#include "api/queue_token.h"
#include "api/users.h"

struct owner {
    bool is_shop;       /* may act for every user */
    str user;           /* `at` is NULL: only user_hash is known */
    uint64_t user_hash; /* of the user, from the token */
    struct token token; /* set when `user` is not known */
};

/* An entry token proves its user, also when the place has ended. Without one, the user is proven as
 * for entering the queue. `named`: the userId of the request. False: the problem has been answered.
 */
bool owner_of(struct api *api, struct exchange *x, str named, struct owner *out);
/* Whether it is this user, or the shop. */
bool owner_is(struct exchange *x, const struct owner *o, str user);
/* The userId of the query. False: the problem has been answered. */
bool owner_query_named(struct exchange *x, str *named);

#endif
