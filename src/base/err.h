/*
 * err: everything that can be answered instead of success, in one table: the symbol, the stable
 * code of the API (docs/api.md), the HTTP status and a title for people. Operating failures
 * (disk, overload) and refusals (not found, in use) share it, because both end as a problem
 * document; bugs are assertions, not rows.
 */
#ifndef ADMITONE_BASE_ERR_H
#define ADMITONE_BASE_ERR_H

#include "base/str.h"

#define ERR_MAP(X)                                                                                 \
    X(OK, "ok", 200, "Done")                                                                       \
    X(BAD_REQUEST, "bad_request", 400, "The request is malformed")                                 \
    X(BAD_JSON, "bad_json", 400, "The body is not valid JSON")                                     \
    X(INVALID_PARAMETER, "invalid_parameter", 400, "A query parameter is missing or not valid")    \
    X(UNKNOWN_PERIOD, "unknown_period", 400, "There are no rankings of this period")               \
    X(ADMIN_KEY_REQUIRED, "admin_key_required", 401, "This needs the admin key")                   \
    X(ASSERTION_REQUIRED, "assertion_required", 401,                                               \
      "This needs the shop's word for who the user is")                                            \
    X(ASSERTION_INVALID, "assertion_invalid", 401, "The shop's word for the user does not hold")   \
    X(TOKEN_REQUIRED, "token_required", 401, "This needs an entry token")                          \
    X(TOKEN_INVALID, "token_invalid", 401, "The entry token is not one of ours")                   \
    X(TOKEN_EXPIRED, "token_expired", 401, "The entry token's time is over")                       \
    X(USER_MISMATCH, "user_mismatch", 403, "The user is somebody else")                            \
    X(TOKEN_FOREIGN_EVENT, "token_foreign_event", 403, "The entry token is for another event")     \
    X(NOT_ACTIVE, "not_active", 403, "The user has not been admitted, or the stay is over")        \
    X(NOT_OPEN, "not_open", 403, "The event has not opened yet")                                   \
    X(CLOSED, "closed", 403, "The event takes nobody new")                                         \
    X(LANE_NOT_ALLOWED, "lane_not_allowed", 403, "This lane is not for everybody to choose")       \
    X(FOREIGN_ORIGIN, "foreign_origin", 403, "The request comes from a page of another origin")    \
    X(NOT_YOURS, "not_yours", 403, "The reservation is somebody else's")                           \
    X(NOT_FOUND, "not_found", 404, "There is nothing at this path")                                \
    X(EVENT_NOT_FOUND, "event_not_found", 404, "There is no such event")                           \
    X(SECTION_NOT_FOUND, "section_not_found", 404, "The event has no such section")                \
    X(SEAT_NOT_FOUND, "seat_not_found", 404, "The section has no such seat")                       \
    X(RESERVATION_NOT_FOUND, "reservation_not_found", 404, "There is no such reservation")         \
    X(RANKINGS_OFF, "rankings_off", 404, "The server keeps no rankings")                           \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", 405, "The path does not have this method")         \
    X(REQUEST_TIMEOUT, "request_timeout", 408, "The request did not arrive in time")               \
    X(CONFLICT, "conflict", 409, "Somebody else was faster")                                       \
    X(SEAT_TAKEN, "seat_taken", 409, "A seat is not free")                                         \
    X(SOLD_OUT, "sold_out", 409, "There are not as many free seats")                               \
    X(LIMIT_EXCEEDED, "limit_exceeded", 409, "A user may not have so many seats of this event")    \
    X(LOCK_TIMEOUT, "lock_timeout", 409, "Others had the lock for the whole wait")                 \
    X(LOCK_LOST, "lock_lost", 409, "Somebody else had the lock meanwhile")                         \
    X(RESERVATION_ENDED, "reservation_ended", 409, "The reservation is cancelled")                 \
    X(STRATEGY_NOT_ALLOWED, "strategy_not_allowed", 409,                                           \
      "The section does not have this strategy")                                                   \
    X(SECTION_CLOSED, "section_closed", 409, "The section is closed, or in maintenance")           \
    X(EVENT_IN_USE, "event_in_use", 409, "The event has live reservations")                        \
    X(SECTION_IN_USE, "section_in_use", 409, "The section has live reservations")                  \
    X(WRONG_STATE, "wrong_state", 409, "Its state does not allow this")                            \
    X(HOLD_EXPIRED, "hold_expired", 410, "The hold's time is over; its seats are free again")      \
    X(CONTENT_TOO_LARGE, "content_too_large", 413, "The body is too large")                        \
    X(URI_TOO_LONG, "uri_too_long", 414, "The request line is too long")                           \
    X(UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, "The body must be application/json")  \
    X(EXPECTATION_FAILED, "expectation_failed", 417, "Only Expect: 100-continue is known")         \
    X(INVALID_FIELD, "invalid_field", 422, "A field is missing or not valid")                      \
    X(UNKNOWN_FIELD, "unknown_field", 422, "The body has a field that is not known here")          \
    X(IDEMPOTENCY_MISMATCH, "idempotency_mismatch", 422,                                           \
      "This Idempotency-Key came with another body")                                               \
    X(TOO_MANY_CONNECTIONS, "too_many_connections", 429, "Too many connections from one address")  \
    X(QUEUE_FULL, "queue_full", 429, "The queue is full; try again later")                         \
    X(HEADERS_TOO_LARGE, "headers_too_large", 431, "The header fields are too large")              \
    X(INTERNAL, "internal", 500, "The server failed")                                              \
    X(NOT_IMPLEMENTED, "not_implemented", 501, "The server does not know this method or coding")   \
    X(OVERLOADED, "overloaded", 503, "The server has more work than it can take; try again soon")  \
    X(LEDGER_FULL, "ledger_full", 503, "The ledger's disk is full; nothing was changed")           \
    X(LEDGER_FAILED, "ledger_failed", 503, "The ledger can't write now; nothing was changed")      \
    X(LEDGER_UNKNOWN, "ledger_unknown", 503,                                                       \
      "The ledger did not say in time whether it was written; ask again")                          \
    X(HOT_UNAVAILABLE, "hot_unavailable", 503,                                                     \
      "The store of queues and seats can't be used now; nothing was changed")                      \
    X(HOT_FULL, "hot_full", 503,                                                                   \
      "The store of queues and seats is out of memory; nothing was changed")                       \
    X(HOT_UNKNOWN, "hot_unknown", 503,                                                             \
      "The store of queues and seats did not say in time what it did; ask again")                  \
    X(RECOVERING, "recovering", 503,                                                               \
      "The store of queues and seats is being rebuilt; nothing was changed")                       \
    X(NODE_BEHIND, "node_behind", 503,                                                             \
      "This node may have missed a change of the event; nothing was changed")                      \
    X(STOPPING, "stopping", 503, "The server is stopping")                                         \
    X(VERSION_NOT_SUPPORTED, "version_not_supported", 505, "Only HTTP/1.0 and 1.1 are spoken")

enum err {
#define ERR_ENUM(symbol, code, status, title) ERR_##symbol,
    ERR_MAP(ERR_ENUM)
#undef ERR_ENUM
};

str err_code(enum err e);
int err_status(enum err e);
str err_title(enum err e);
/* What came of a request that is answered with it, for who has no better word. */
const char *err_effect(enum err e);

#endif
