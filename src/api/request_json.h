/*
 * request_json: an asynchronous request as JSON, and the answer to a client that may not see it.
 */
#ifndef ADMITONE_API_REQUEST_JSON_H
#define ADMITONE_API_REQUEST_JSON_H

#include "api/owner.h"
#include "base/json_out.h"
#include "core/request.h"

/* `ahead`: undecided requests before an undecided one. */
void request_to_json(struct json_out *j, struct api *api, const struct request *r, int64_t ahead);
/* As it is shown: an undecided request with none before it is PROCESSING. */
enum request_status request_shown_status(const struct request *r, int64_t ahead);

/* Whether the owner may see the request (NULL: there is none): OK, REQUEST_NOT_FOUND, NOT_YOURS. */
enum err request_check(struct exchange *x, const struct owner *o, const struct request *r);
void request_refuse(struct exchange *x, enum err e);

#endif
