/*
 * queue_token: the entry token that a request carries: where it is sent, whether it is valid for
 * the event's queue, and the answer when it is not.
 */
#ifndef ADMITONE_API_QUEUE_TOKEN_H
#define ADMITONE_API_QUEUE_TOKEN_H

#include "api/api.h"
#include "core/token.h"
#include "service/waiting_room.h"

/* A copy, because the answer may be given after the event has changed. */
struct queue_event {
    str notice; /* empty: none */
    int64_t key;
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
    struct queue_rules rules;
    struct event_hours hours;
};

/* The notice is copied to the arena, in which it lives as long as an answer may need it. NULL: for
 * a request whose answer does not show it; then it is empty. */
void queue_event_copy(const struct event *e, struct arena *a, struct queue_event *out);
/* The state in force at that time. */
enum event_state queue_event_state(const struct queue_event *e, int64_t now_ms);
/* False: there is no such event. */
bool queue_event_find(struct api *api, str type, str id, struct arena *a, struct queue_event *out);
bool queue_event_find_key(struct api *api, int64_t key, struct arena *a, struct queue_event *out);

/* The token of a place, signed now. `out` has room for TOKEN_TEXT_BYTES. */
str queue_token_sign(struct api_worker *w, const struct queue_event *e, str user,
                     const struct place *p, int64_t now_ms, char *out);

/* The entry token that a request carries; `at` is NULL when it has none. With the event's key also
 * the pages' cookie counts (0: which event is not known yet). Until the handler returns. */
str queue_token_of(struct exchange *x, int64_t event_key);

/* Whether the text is an entry token at all: an Authorization header of another form may be one of
 * the shop, or a key. While the handler runs. */
bool queue_token_is_sent(const struct exchange *x, str text);

/* Whether the text is a token of this server and this generation of the ledger: OK, or
 * TOKEN_REQUIRED, TOKEN_INVALID. */
enum err queue_token_read(struct api_worker *w, str text, struct token *out);
/* The same; and whether it is of this event, and not expired: TOKEN_FOREIGN_EVENT, TOKEN_EXPIRED.
 * NULL: its event is gone; then it lasts as long as the event's rules said when it was signed. */
enum err queue_token_judge(struct api_worker *w, str text, const struct queue_event *e,
                           struct token *out);
/* The same; and USER_MISMATCH if the request names another user than the token's. */
enum err queue_token_check(struct api *api, struct exchange *x, str text,
                           const struct queue_event *e, struct token *out);
/* Answers with the problem, and what to do about it. */
void queue_refuse(struct exchange *x, enum err e);

/* Sets the cookie by which the pages, and the gate, know the place. */
void queue_token_set_cookie(struct exchange *x, const struct queue_event *e, str token);

#endif
