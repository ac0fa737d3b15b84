/*
 * err: all errors that can be answered, in one table: the symbol, the stable code of the API
 * (docs/api.md), the HTTP status and a title for people. Operating failures (disk, overload) and
 * refusals (not found, in use) share it, because both end as a problem document; bugs are
 * assertions, not rows.
 */
#ifndef ADMITONE_BASE_ERR_H
#define ADMITONE_BASE_ERR_H

#include "base/str.h"

#define ERR_MAP(X)                                                                                 \
    X(OK, "ok", 200, "Done")                                                                       \
    X(BAD_REQUEST, "bad_request", 400, "The request is malformed")                                 \
    X(BAD_JSON, "bad_json", 400, "The body is not valid JSON")                                     \
    X(INVALID_PARAMETER, "invalid_parameter", 400, "A query parameter is missing or not valid")    \
    X(UNKNOWN_PERIOD, "unknown_period", 400, "Unknown ranking period")                             \
    X(ADMIN_KEY_REQUIRED, "admin_key_required", 401, "Admin key required")                         \
    X(ASSERTION_REQUIRED, "assertion_required", 401, "User assertion required")                    \
    X(ASSERTION_INVALID, "assertion_invalid", 401, "Invalid user assertion")                       \
    X(CONFIRMATION_INVALID, "confirmation_invalid", 401, "Invalid confirmation of the shop")       \
    X(TOKEN_REQUIRED, "token_required", 401, "Entry token required")                               \
    X(TOKEN_INVALID, "token_invalid", 401, "Invalid entry token")                                  \
    X(TOKEN_EXPIRED, "token_expired", 401, "The entry token has expired")                          \
    X(USER_MISMATCH, "user_mismatch", 403, "The request names two different users")                \
    X(TOKEN_FOREIGN_EVENT, "token_foreign_event", 403, "The entry token is for another event")     \
    X(NOT_ACTIVE, "not_active", 403, "The user is not admitted")                                   \
    X(HOLD_LIMIT, "hold_limit", 403, "Limit of holds per stay reached")                            \
    X(NOT_OPEN, "not_open", 403, "The event has not opened yet")                                   \
    X(CLOSED, "closed", 403, "The event is closed")                                                \
    X(LANE_NOT_ALLOWED, "lane_not_allowed", 403, "Choosing a lane is not allowed")                 \
    X(FOREIGN_ORIGIN, "foreign_origin", 403, "Request from a page of another origin")              \
    X(KEY_NOT_ALLOWED, "key_not_allowed", 403, "The key's role does not allow this")               \
    X(NOT_YOURS, "not_yours", 403, "It belongs to another user")                                   \
    X(CONFIRM_BY_SHOP, "confirm_by_shop", 403, "Only the shop may confirm")                        \
    X(CANCEL_BY_SHOP, "cancel_by_shop", 403, "Only the shop may cancel what is confirmed")         \
    X(CONFIRMATION_MISMATCH, "confirmation_mismatch", 403,                                         \
      "The shop's confirmation is for something else")                                             \
    X(NOT_FOUND, "not_found", 404, "Unknown path")                                                 \
    X(EVENT_NOT_FOUND, "event_not_found", 404, "There is no such event")                           \
    X(SECTION_NOT_FOUND, "section_not_found", 404, "The event has no such section")                \
    X(SEAT_NOT_FOUND, "seat_not_found", 404, "The section has no such seat")                       \
    X(RESERVATION_NOT_FOUND, "reservation_not_found", 404, "There is no such reservation")         \
    X(REQUEST_NOT_FOUND, "request_not_found", 404, "There is no such asynchronous request")        \
    X(SIMULATOR_OFF, "simulator_off", 404, "This server has no crowd simulator")                   \
    X(RANKINGS_OFF, "rankings_off", 404, "Rankings are switched off")                              \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", 405, "Method not allowed for this path")           \
    X(REQUEST_TIMEOUT, "request_timeout", 408, "The request did not arrive in time")               \
    X(CONFLICT, "conflict", 409, "Conflict with another request")                                  \
    X(SEAT_TAKEN, "seat_taken", 409, "A seat is already taken")                                    \
    X(SEAT_GIVEN_UP, "seat_given_up", 409, "The user has just given up a seat")                    \
    X(SOLD_OUT, "sold_out", 409, "Not enough free seats")                                          \
    X(LIMIT_EXCEEDED, "limit_exceeded", 409, "Limit of seats per user exceeded")                   \
    X(LOCK_TIMEOUT, "lock_timeout", 409, "Timed out waiting for the lock")                         \
    X(LOCK_LOST, "lock_lost", 409, "The lock expired before the write")                            \
    X(REQUEST_DROPPED, "request_dropped", 409, "An operator has dropped the request")              \
    X(RESERVATION_ENDED, "reservation_ended", 409, "The reservation is cancelled")                 \
    X(STRATEGY_NOT_ALLOWED, "strategy_not_allowed", 409, "Strategy not allowed in this section")   \
    X(SECTION_CLOSED, "section_closed", 409, "The section is closed or in maintenance")            \
    X(EVENT_IN_USE, "event_in_use", 409, "The event has live reservations")                        \
    X(SECTION_IN_USE, "section_in_use", 409, "The section has live reservations")                  \
    X(WRONG_STATE, "wrong_state", 409, "The event's state does not allow this")                    \
    X(SIMULATOR_RUNNING, "simulator_running", 409, "A simulation is already running")              \
    X(SIMULATOR_IDLE, "simulator_idle", 409, "No simulation is running")                           \
    X(SIMULATOR_SIGNED, "simulator_signed", 409, "Virtual users have no signature of the shop")    \
    X(HOLD_EXPIRED, "hold_expired", 410, "The hold has expired; its seats are free again")         \
    X(VERSION_MISMATCH, "version_mismatch", 412, "The event has another version")                  \
    X(CONTENT_TOO_LARGE, "content_too_large", 413, "The body is too large")                        \
    X(URI_TOO_LONG, "uri_too_long", 414, "The request line is too long")                           \
    X(UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, "The body must be application/json")  \
    X(EXPECTATION_FAILED, "expectation_failed", 417, "Only Expect: 100-continue is supported")     \
    X(INVALID_FIELD, "invalid_field", 422, "A field is missing or not valid")                      \
    X(UNKNOWN_FIELD, "unknown_field", 422, "Unknown field in the body")                            \
    X(TOO_MANY_SEATS, "too_many_seats", 422, "Too many seats in one event, or in all together")    \
    X(IDEMPOTENCY_MISMATCH, "idempotency_mismatch", 422,                                           \
      "The Idempotency-Key was used with another body")                                            \
    X(TOO_MANY_CONNECTIONS, "too_many_connections", 429, "Too many connections from one address")  \
    X(TOO_MANY_WRONG_KEYS, "too_many_wrong_keys", 429, "Too many wrong keys from one address")     \
    X(TOO_MANY_PLACES, "too_many_places", 429, "Too many new places for one network address")      \
    X(TOO_MANY_REQUESTS, "too_many_requests", 429, "Too many requests from one network address")   \
    X(QUEUE_FULL, "queue_full", 429, "The queue is full; try again later")                         \
    X(HEADERS_TOO_LARGE, "headers_too_large", 431, "The header fields are too large")              \
    X(INTERNAL, "internal", 500, "Internal error of the server")                                   \
    X(NOT_IMPLEMENTED, "not_implemented", 501, "Method or transfer coding not supported")          \
    X(OVERLOADED, "overloaded", 503, "The server is overloaded; try again soon")                   \
    X(LEDGER_FULL, "ledger_full", 503, "The disk of the ledger is full; nothing was changed")      \
    X(LEDGER_FAILED, "ledger_failed", 503, "The ledger cannot be used now; nothing was changed")   \
    X(LEDGER_UNKNOWN, "ledger_unknown", 503,                                                       \
      "The ledger did not answer in time; the request may have taken effect: send it again")       \
    X(HOT_UNAVAILABLE, "hot_unavailable", 503, "Redis cannot be used now; nothing was changed")    \
    X(HOT_FULL, "hot_full", 503, "Redis is out of memory; nothing was changed")                    \
    X(HOT_UNKNOWN, "hot_unknown", 503,                                                             \
      "Redis did not answer in time; the request may have taken effect: send it again")            \
    X(RECOVERING, "recovering", 503, "Redis is being rebuilt; nothing was changed")                \
    X(FEED_UNAVAILABLE, "feed_unavailable", 503, "Kafka cannot be used now; nothing was changed")  \
    X(FEED_UNKNOWN, "feed_unknown", 503,                                                           \
      "The feed did not answer in time; the request may still be decided")                         \
    X(NODE_BEHIND, "node_behind", 503,                                                             \
      "This node may have missed a change of the event; nothing was changed")                      \
    X(STOPPING, "stopping", 503, "The server is stopping")                                         \
    X(VERSION_NOT_SUPPORTED, "version_not_supported", 505,                                         \
      "Only HTTP/1.0 and HTTP/1.1 are supported")

enum err {
#define ERR_ENUM(symbol, code, status, title) ERR_##symbol,
    ERR_MAP(ERR_ENUM)
#undef ERR_ENUM
};

str err_code(enum err e);
/* INTERNAL: no error has this code. */
enum err err_of_code(str code);
int err_status(enum err e);
str err_title(enum err e);
/* A sentence for the detail of a problem: whether the request has changed anything. */
const char *err_effect(enum err e);

#endif
