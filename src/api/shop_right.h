/*
 * shop_right: the right of the shop to confirm a reservation, or to cancel a CONFIRMED one. A
 * request has it by a key of the shop, or by the header X-Shop-Confirmation: a short-lived JWT that
 * the shop has signed for one reservation and its price, and that the user's browser may carry.
 */
#ifndef ADMITONE_API_SHOP_RIGHT_H
#define ADMITONE_API_SHOP_RIGHT_H

#include "api/api.h"
#include "api/json_in.h"
#include "core/reservation.h"

enum shop_act { SHOP_CONFIRMS, SHOP_CANCELS };

struct shop_right {
    bool by_key;
    bool by_jwt;      /* for this reservation and act, but its price is not compared yet */
    int64_t amount;   /* with by_jwt */
    char currency[4]; /* likewise; empty: any */
};

/* Reads the right that the request has to this act. While the handler runs. False: a confirmation
 * was sent that is not valid or is for something else; the problem has been answered. */
bool shop_right_read(const struct api *api, struct exchange *x, const struct uuid *reservation,
                     enum shop_act act, struct shop_right *out);
/* Whether the confirmation, if there is one, is for the price of the reservation. False: *problem.
 */
bool shop_right_fits(const struct shop_right *s, const struct reservation *r,
                     struct json_problem *problem);
static inline bool shop_right_is_given(const struct shop_right *s) {
    return s->by_key || s->by_jwt;
}

#endif
