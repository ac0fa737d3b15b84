/*
 * queue_answer: what the queue's paths say of a place, as JSON, and what they need to know of its
 * event for that.
 */
#ifndef ADMITONE_API_QUEUE_ANSWER_H
#define ADMITONE_API_QUEUE_ANSWER_H

#include "api/api.h"
#include "base/json_out.h"
#include "core/token.h"
#include "service/waiting_room.h"

/* A copy, because the answer may be given after the event has changed. */
struct queue_event {
    int64_t key;
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
    struct queue_rules rules;
};

void queue_event_copy(const struct event *e, struct queue_event *out);
/* False: there is no such event. */
bool queue_event_find(struct api *api, str type, str id, struct queue_event *out);
bool queue_event_find_key(struct api *api, int64_t key, struct queue_event *out);

struct queue_answer {
    const struct queue_event *event;
    str token;
    str user; /* empty: not known */
    const struct place *place;
    uint64_t waiting;
    bool reserving;
    int64_t remaining_seats;
    int64_t now_ms;
    int64_t issued_ms;    /* the token */
    bool with_expires_in; /* /queue/token and /queue/status */
    bool degraded;        /* nothing is known of seats */
};

void queue_answer_render(struct api_worker *w, struct json_out *j, const struct queue_answer *a);

/* The token of a place, signed now. `out` has room for TOKEN_TEXT_BYTES. */
str queue_token_sign(struct api_worker *w, const struct queue_event *e, str user,
                     const struct place *p, int64_t now_ms, char *out);

/* The entry token that a request carries; `at` is NULL when it has none. With the event's key also
 * the pages' cookie counts (0: which event is not known yet). Until the handler returns. */
str queue_token_of(struct exchange *x, int64_t event_key);

/* Whether that is meant as one: an Authorization of another form may be the shop's own, or the
 * admin key. While the handler runs. */
bool queue_token_is_sent(const struct exchange *x, str text);

/* Whether the text is a token of ours, of this event (NULL: of any), and still good: OK, or
 * TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_FOREIGN_EVENT, TOKEN_EXPIRED. */
enum err queue_token_judge(struct api_worker *w, str text, const struct queue_event *e,
                           struct token *out);
/* The same, and that whoever else the request says it is from is the token's user. */
enum err queue_token_check(struct api *api, struct exchange *x, str text,
                           const struct queue_event *e, struct token *out);
/* Answers with the problem, and what to do about it. */
void queue_refuse(struct exchange *x, enum err e);

/* One place, asked about with its token. In the request's arena. */
struct place_query {
    struct room_looking room; /* its `done` is the caller's */
    struct exchange *x;
    struct queue_event event;
    str token;
    int64_t issued_ms; /* the token */
    unsigned lane;     /* likewise */
    bool with_expires_in;
};
/* Ready for waiting_room_look; or what queue_token_check says. */
enum err place_query_init(struct place_query *q, struct api *api, struct exchange *x,
                          const struct queue_event *event, str token);
struct queue_answer place_query_answer(const struct place_query *q);

/* Sets the cookie by which the pages, and the gate, know the place. */
void queue_token_set_cookie(struct exchange *x, const struct queue_event *e, str token);

#endif
