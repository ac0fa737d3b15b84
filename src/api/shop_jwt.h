/*
 * shop_jwt: reads JWTs that the shop has signed: assertions of users, and confirmations of
 * reservations. What their claims mean is the caller's.
 */
#ifndef ADMITONE_API_SHOP_JWT_H
#define ADMITONE_API_SHOP_JWT_H

#include <jansson.h>

#include "core/jwt.h"

/* Its claims, an object; json_decref them. NULL unless it was signed with the key of the box by
 * HS256, needs no extension, and is valid now by `exp` and `nbf`, as far as it has them; *why is
 * the end of a sentence that begins with the header's name and a colon. */
json_t *shop_jwt_read(struct jwt_box *box, str text, int64_t now_ms, const char **why);

#endif
