/* Reads the header X-Shop-Confirmation, and compares it with the reservation. */
#include "api/shop_right.h"

#include "api/shop_jwt.h"
#include "api/users.h"
#include "base/clock.h"

#define HEADER "X-Shop-Confirmation"

static const str act_words[] = {
    [SHOP_CONFIRMS] = STR_INIT("confirm"), [SHOP_CANCELS] = STR_INIT("cancel"), {NULL, 0}};

static bool shop_right_invalid(struct json_problem *problem, const char *why) {
    return json_refuse(problem, ERR_CONFIRMATION_INVALID, HEADER ": %s.", why);
}

static bool shop_right_mismatch(struct json_problem *problem, const char *why) {
    return json_refuse(problem, ERR_CONFIRMATION_MISMATCH, HEADER ": %s.", why);
}

static str text_claim(const json_t *claims, const char *name) {
    const json_t *value = json_object_get(claims, name);
    return (str){json_string_value(value), json_string_length(value)};
}

/* `exp` is there, since a confirmation that never ends could be used when the shop has long taken
 * its decision back. */
static bool shop_right_read_claims(const json_t *claims, int64_t now_ms, struct shop_right *out,
                                   struct uuid *reservation, int *act,
                                   struct json_problem *problem) {
    const json_t *exp = json_object_get(claims, "exp");
    const json_t *amount = json_object_get(claims, "amount");
    bool has_act = json_object_get(claims, "action") != NULL;
    bool has_currency = json_object_get(claims, "currency") != NULL;
    str currency = text_claim(claims, "currency");
    if (exp == NULL) return shop_right_invalid(problem, "exp is required");
    if (json_number_value(exp) > (double)now_ms / 1000 + CONFIRMATION_LIFE_S_MAX)
        return shop_right_invalid(problem, "exp must be at most 10 minutes from now");
    if (!uuid_parse(text_claim(claims, "reservation"), reservation))
        return shop_right_invalid(problem, "reservation must be the id of the reservation");
    if (!json_is_integer(amount))
        return shop_right_invalid(problem, "amount must be a whole number, in the currency's "
                                           "minor unit");
    if (has_currency && !event_currency_ok(currency))
        return shop_right_invalid(problem, "currency must be three capital letters");
    *act = has_act ? word_index(act_words, text_claim(claims, "action")) : SHOP_CONFIRMS;
    if (*act < 0) return shop_right_invalid(problem, "action must be \"confirm\" or \"cancel\"");
    out->by_jwt = true;
    out->amount = json_integer_value(amount);
    return !has_currency || str_copy(currency, out->currency, sizeof out->currency);
}

static bool shop_right_read_jwt(const struct exchange *x, const struct uuid *reservation,
                                enum shop_act act, struct shop_right *out,
                                struct json_problem *problem) {
    const struct api_worker *w = exchange_context(x);
    str text = http_header(&x->request, STR(HEADER));
    int64_t now_ms = clock_wall_ms();
    const char *why;
    struct uuid named = {0};
    int named_act = -1;
    if (w->confirmations == NULL)
        return shop_right_invalid(problem, "this server has no shop.key_file to verify it with");
    if (http_header_count(&x->request, STR(HEADER)) > 1)
        return shop_right_invalid(problem, "it was sent twice");
    json_t *claims = shop_jwt_read(w->confirmations, text, now_ms, &why);
    if (claims == NULL) return shop_right_invalid(problem, why);
    bool ok = shop_right_read_claims(claims, now_ms, out, &named, &named_act, problem);
    json_decref(claims);
    if (!ok) return false;
    if (!uuid_eq(&named, reservation))
        return shop_right_mismatch(problem, "it is for another reservation");
    if (named_act != (int)act)
        return shop_right_mismatch(problem, act == SHOP_CONFIRMS
                                                ? "it is for cancelling the reservation"
                                                : "to cancel, its claim action must be \"cancel\"");
    return true;
}

bool shop_right_read(const struct api *api, struct exchange *x, const struct uuid *reservation,
                     enum shop_act act, struct shop_right *out) {
    struct json_problem problem;
    *out = (struct shop_right){.by_key = users_is_shop(api, x)};
    if (http_header(&x->request, STR(HEADER)).at == NULL) return true;
    if (shop_right_read_jwt(x, reservation, act, out, &problem)) return true;
    if (err_status(problem.err) == 401)
        reply_header(x, STR("WWW-Authenticate"), STR("Confirmation realm=\"admitone\""));
    reply_problem(x, problem.err, "%s", problem.detail);
    return false;
}

bool shop_right_fits(const struct shop_right *s, const struct reservation *r,
                     struct json_problem *problem) {
    if (!s->by_jwt) return true;
    bool is_currency = s->currency[0] == '\0' || strcmp(s->currency, r->currency) == 0;
    if (s->amount == r->price && is_currency) return true;
    return json_refuse(problem, ERR_CONFIRMATION_MISMATCH,
                       HEADER ": its amount is not the price of the reservation, %lld %s.",
                       (long long)r->price, r->currency);
}
