/* The checks that all JWTs of the shop have in common. */
#include "api/shop_jwt.h"

#include <string.h>

static bool header_is_ours(const json_t *header) {
    const char *algorithm = json_string_value(json_object_get(header, "alg"));
    /* "crit" lists extensions that a reader must understand; this one understands none. */
    return algorithm != NULL && strcmp(algorithm, "HS256") == 0 &&
           json_object_get(header, "crit") == NULL;
}

/* NULL: they are valid. */
static const char *claims_refused(const json_t *claims, int64_t now_ms) {
    const json_t *exp = json_object_get(claims, "exp");
    const json_t *nbf = json_object_get(claims, "nbf");
    double now_s = (double)now_ms / 1000;
    if (!json_is_object(claims)) return "its claims are not a JSON object";
    if (exp != NULL && !json_is_number(exp)) return "exp must be a number";
    if (exp != NULL && json_number_value(exp) <= now_s) return "it has expired";
    if (nbf != NULL && !json_is_number(nbf)) return "nbf must be a number";
    if (nbf != NULL && json_number_value(nbf) > now_s) return "it is not valid yet";
    return NULL;
}

static json_t *parse(const struct buf *text) {
    return json_loadb(text->len == 0 ? "" : text->bytes, text->len, JSON_REJECT_DUPLICATES, NULL);
}

json_t *shop_jwt_read(struct jwt_box *box, str text, int64_t now_ms, const char **why) {
    struct buf header_text = {0};
    struct buf claims_text = {0};
    json_t *claims = NULL;
    *why = "it is not a JWT signed with the shop's key";
    if (jwt_verify(box, text, &header_text, &claims_text)) {
        json_t *header = parse(&header_text);
        claims = parse(&claims_text);
        *why = header_is_ours(header) ? claims_refused(claims, now_ms)
                                      : "its header must have alg HS256, and no crit";
        json_decref(header);
    }
    buf_deinit(&header_text);
    buf_deinit(&claims_text);
    if (*why == NULL) return claims;
    json_decref(claims);
    return NULL;
}
