/* The state of one worker in api/: the keys that sign and verify. */
#include "api/api.h"
#include "core/jwt.h"
#include "core/token.h"

bool api_worker_init(struct api_worker *w, struct api *api) {
    bool signs = api->users_auth == USERS_SIGNED;
    bool confirms = api->shop_key.len > 0;
    *w = (struct api_worker){.api = api};
    w->tokens = token_box_new(api->secret, api->secret_previous);
    w->passes = jwt_box_new(api->pass_key);
    if (signs) w->assertions = jwt_box_new(api->users_key);
    if (confirms) w->confirmations = jwt_box_new(api->shop_key);
    if (w->tokens != NULL && w->passes != NULL && (!signs || w->assertions != NULL) &&
        (!confirms || w->confirmations != NULL))
        return true;
    api_worker_deinit(w);
    return false;
}

void api_worker_deinit(struct api_worker *w) {
    token_box_free(w->tokens);
    jwt_box_free(w->passes);
    jwt_box_free(w->assertions);
    jwt_box_free(w->confirmations);
    *w = (struct api_worker){0};
}
