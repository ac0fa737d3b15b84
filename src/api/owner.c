/* Who asks for a reservation or an asynchronous request that exists. */
#include "api/owner.h"

bool owner_of(struct api *api, struct exchange *x, str named, struct owner *out) {
    struct api_worker *w = exchange_context(x);
    struct requester requester;
    *out = (struct owner){.is_shop = users_is_shop(api, x)};
    str text = queue_token_of(x, 0);
    if (!out->is_shop && queue_token_is_sent(x, text)) {
        struct queue_event event;
        enum err refused = queue_token_read(w, text, &out->token);
        if (refused == ERR_OK) {
            bool exists = queue_event_find_key(api, out->token.event_key, NULL, &event);
            refused = queue_token_judge(w, text, exists ? &event : NULL, &out->token);
        }
        if (refused == ERR_OK) refused = users_disagree(api, x, named, out->token.user_hash);
        out->user_hash = out->token.user_hash;
        if (refused != ERR_OK) queue_refuse(x, refused);
        return refused == ERR_OK;
    }
    if (out->is_shop && named.at == NULL) return true;
    if (api->users_auth == USERS_TRUSTED && named.at == NULL && !users_has_credential(x)) {
        queue_refuse(x, ERR_TOKEN_REQUIRED);
        return false;
    }
    if (!users_identify(api, x, named, &requester)) return false;
    if (requester.fresh)
        queue_refuse(x, ERR_TOKEN_REQUIRED); /* a new anonymous user, who has no reservations */
    out->user = requester.user;
    return !requester.fresh;
}

bool owner_is(struct exchange *x, const struct owner *o, str user) {
    const struct api_worker *w = exchange_context(x);
    if (o->user.at != NULL) return str_eq(o->user, user);
    return o->is_shop || token_user_hash(w->tokens, user) == o->user_hash;
}

bool owner_query_named(struct exchange *x, str *named) {
    bool bad;
    *named = query_value(x, STR("userId"), &bad);
    if (!bad && (named->at == NULL || user_name_ok(*named))) return true;
    reply_problem(x, ERR_INVALID_PARAMETER, "userId must be 1 to %d bytes of text.",
                  USER_ID_BYTES_MAX);
    return false;
}
