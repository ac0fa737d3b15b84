/* /admin/events and /admin/audit. Each change is one struct that lives in the request's arena from
 * the handler to the answer. */
#include <assert.h>
#include <stdio.h>

#include "api/event_json.h"
#include "api/users.h"
#include "base/list.h"
#include "base/mem.h"

#define AUDIT_PAGE_MAX 1000

struct event_request {
    struct event_change change; /* one of these */
    struct event_removal removal;
    struct exchange *x;
    json_t *body;
    struct event *wanted; /* for a put */
    str section;          /* for a section's patch */
    struct json_problem problem;
};

str admin_event_subject(struct exchange *x, str type, str id) {
    char path[EVENT_PATH_BYTES];
    return arena_copy(&x->arena, event_path(type, id, path));
}

struct audit_note admin_note(struct exchange *x, const char *verb, str subject) {
    return (struct audit_note){
        .actor = str_of(users_key(x)->name),
        .act = str_of(verb),
        .subject = subject,
        .detail = x->request.body.len == 0 ? STR("{}") : arena_copy(&x->arena, x->request.body)};
}

/* ---- versions ---- */

bool admin_if_match(struct exchange *x, int64_t *version) {
    str etag = str_trim(http_header(&x->request, STR("If-Match")));
    *version = 0;
    if (etag.at == NULL) return true;
    if (str_eq(etag, STR("*"))) {
        *version = EVENT_VERSION_ANY;
        return true;
    }
    /* A proxy that compresses answers makes their ETags weak. */
    if (str_starts(etag, STR("W/"))) etag = str_skip(etag, 2);
    bool is_quoted = etag.len > 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"';
    if (is_quoted && str_to_i64((str){etag.at + 1, etag.len - 2}, version) && *version > 0)
        return true;
    reply_problem(x, ERR_BAD_REQUEST, "%s",
                  "If-Match must be the ETag of one answer with the event, as in \"7\", or *.");
    return false;
}

void admin_version_mismatch(struct exchange *x, int64_t sent, int64_t present) {
    struct buf text = {0};
    bool names_one = sent != EVENT_VERSION_ANY;
    if (names_one)
        buf_add_i64(&text, sent);
    else
        buf_add(&text, STR("null"));
    size_t sent_len = text.len;
    if (present > 0)
        buf_add_i64(&text, present);
    else
        buf_add(&text, STR("null"));
    str both = buf_str(&text);
    struct problem_member members[] = {{STR("sentVersion"), {both.at, sent_len}},
                                       {STR("presentVersion"), str_skip(both, sent_len)}};
    if (present > 0)
        reply_problem_with(x, ERR_VERSION_MISMATCH, members, 2,
                           "The event has version %lld, and the request was made for version "
                           "%lld: read the event again, and repeat the change.",
                           (long long)present, (long long)sent);
    else
        reply_problem_with(x, ERR_VERSION_MISMATCH, members, 2, "%s",
                           "There is no such event, so it has no version. To create it, leave out "
                           "version and If-Match.");
    buf_deinit(&text);
}

void admin_etag(struct exchange *x, int64_t version) {
    char etag[24];
    int len = snprintf(etag, sizeof etag, "\"%lld\"", (long long)version);
    reply_header(x, STR("ETag"), (str){etag, (size_t)len});
}

/* ---- events ---- */

static struct event_request *event_request_new(struct exchange *x, const char *verb,
                                               const str *captures) {
    struct event_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->change.put.type = arena_copy(&x->arena, captures[0]);
    q->change.put.id = arena_copy(&x->arena, captures[1]);
    q->change.put.note = admin_note(x, verb, admin_event_subject(x, captures[0], captures[1]));
    return q;
}

static void event_request_refuse_seats(struct event_request *q) {
    const struct ledger_event_put *put = &q->change.put;
    if (put->seats_wanted > EVENT_CAPACITY_MAX)
        reply_problem(q->x, ERR_TOO_MANY_SEATS,
                      "The event would have %lld seats; one event can have %d.",
                      (long long)put->seats_wanted, EVENT_CAPACITY_MAX);
    else
        reply_problem(q->x, ERR_TOO_MANY_SEATS,
                      "The event would have %lld seats, and all other events have %lld: together "
                      "more than limits.seats, which is %lld.",
                      (long long)put->seats_wanted, (long long)put->seats_others,
                      (long long)put->seats_max);
}

static void event_request_refuse(struct event_request *q, enum err result) {
    json_decref(q->body);
    mem_free(q->wanted);
    switch (result) {
    case ERR_VERSION_MISMATCH:
        admin_version_mismatch(q->x, q->change.put.if_version, q->change.put.version_present);
        return;
    case ERR_EVENT_NOT_FOUND:
        reply_problem(q->x, result, "%s", "PUT /admin/events/{type}/{id} creates the event.");
        return;
    case ERR_SECTION_NOT_FOUND:
        reply_problem(q->x, result, "The event has no section \"%.*s\".", (int)q->section.len,
                      q->section.at);
        return;
    case ERR_TOO_MANY_SEATS:
        event_request_refuse_seats(q);
        return;
    case ERR_SECTION_IN_USE:
        reply_problem(
            q->x, result,
            "Section \"%s\" has live reservations: it cannot be removed, shrink below its "
            "highest live seat, or change between mode seat and the other modes.",
            q->change.put.in_use);
        return;
    case ERR_EVENT_IN_USE:
        reply_problem(q->x, result, "%s",
                      "The event has live reservations: cancel them, or set its state to CLOSED.");
        return;
    default:
        if (q->problem.err == result && result != ERR_OK)
            reply_problem(q->x, result, "%s", q->problem.detail);
        else
            reply_problem(q->x, result, "%s", err_effect(result));
    }
}

static void event_request_on_changed(struct event_change *change, enum err result) {
    struct event_request *q = CONTAINER_OF(change, struct event_request, change);
    if (result != ERR_OK) {
        event_request_refuse(q, result);
        return;
    }
    struct event *stored = change->put.stored;
    const struct api_worker *w = exchange_context(q->x);
    struct json_out j;
    admin_etag(q->x, stored->version);
    json_out_init(&j, reply_start(q->x, change->put.created ? 201 : 200));
    event_to_json(&j, STR(""), stored, EVENT_JSON_ADMIN, w->api);
    json_out_done(&j);
    mem_free(stored);
    mem_free(q->wanted);
    json_decref(q->body);
    reply_send(q->x, STR("application/json"));
}

/* Reads the body, and from it or from If-Match the version that the event must have. NULL: the
 * problem has been answered. */
static struct event_request *event_request_read(struct exchange *x, const char *verb,
                                                const str *captures) {
    int64_t if_match;
    if (!admin_if_match(x, &if_match)) return NULL;
    json_t *body = json_body(x);
    if (body == NULL) return NULL;
    const json_t *named = json_object_get(body, "version");
    int64_t version = named == NULL ? if_match : json_integer_value(named);
    struct event_request *q = event_request_new(x, verb, captures);
    q->body = body;
    q->change.put.if_version = version;
    q->change.done = event_request_on_changed;
    if (named != NULL && version <= 0)
        json_refuse(&q->problem, ERR_INVALID_FIELD, "%s",
                    "version must be that of the event, as an answer showed it: a whole number "
                    "from 1.");
    else if (if_match > 0 && version != if_match)
        json_refuse(&q->problem, ERR_INVALID_FIELD,
                    "version is %lld, but If-Match says %lld: send one of them, or the same.",
                    (long long)version, (long long)if_match);
    if (q->problem.err == ERR_OK) return q;
    event_request_refuse(q, q->problem.err);
    return NULL;
}

void admin_event_put(struct api *api, struct exchange *x, const str *captures) {
    struct event_request *q = event_request_read(x, "event.put", captures);
    if (q == NULL) return;
    q->wanted = event_from_json(q->body, &api->defaults, captures[0], captures[1], &q->problem);
    q->change.put.wanted = q->wanted;
    q->change.put.keeps_state = json_object_get(q->body, "state") == NULL;
    q->change.put.keeps_notice = json_object_get(q->body, "notice") == NULL;
    if (q->wanted == NULL)
        event_request_refuse(q, q->problem.err);
    else
        events_change(&api->events, &q->change);
}

/* The two edits run on the ledger's thread, which has the request until it is done. */

static enum err edit_event(struct ledger_event_put *put, struct event **e) {
    struct event_request *q = CONTAINER_OF(put, struct event_request, change.put);
    return event_patch_json(e, q->body, &q->problem) ? ERR_OK : q->problem.err;
}

static enum err edit_section(struct ledger_event_put *put, struct event **e) {
    struct event_request *q = CONTAINER_OF(put, struct event_request, change.put);
    const struct section *found = event_section(*e, q->section);
    if (found == NULL) return ERR_SECTION_NOT_FOUND;
    struct section *changed = &(*e)->sections[found - (*e)->sections];
    return section_patch_json(changed, q->body, &q->problem) ? ERR_OK : q->problem.err;
}

void admin_event_patch(struct api *api, struct exchange *x, const str *captures) {
    struct event_request *q = event_request_read(x, "event.patch", captures);
    if (q == NULL) return;
    q->change.put.edit = edit_event;
    events_change(&api->events, &q->change);
}

/* "CONCERT/1/sections/A" */
static str section_subject(struct exchange *x, str event, str section) {
    str between = STR("/sections/");
    size_t len = event.len + between.len + section.len;
    char *text = arena_new(&x->arena, len);
    if (event.len > 0) memcpy(text, event.at, event.len);
    memcpy(text + event.len, between.at, between.len);
    memcpy(text + event.len + between.len, section.at, section.len);
    return (str){text, len};
}

/* A key with the role `operate` may open and close a section, and change nothing else of it. */
static bool section_patch_is_allowed(struct exchange *x, const json_t *body) {
    size_t allowed = 0;
    if (json_object_get(body, "status") != NULL) allowed++;
    if (json_object_get(body, "version") != NULL) allowed++;
    bool only_status = json_object_size(body) == allowed;
    return only_status || users_key_allows(x, KEY_ROLE_OWN);
}

void admin_section_patch(struct api *api, struct exchange *x, const str *captures) {
    struct event_request *q = event_request_read(x, "section.patch", captures);
    if (q == NULL) return;
    if (!section_patch_is_allowed(x, q->body)) {
        json_decref(q->body);
        users_refuse_key(x, "Of a section, it may change the status only; the rest needs own");
        return;
    }
    q->section = arena_copy(&x->arena, captures[2]);
    q->change.put.note.subject = section_subject(x, q->change.put.note.subject, q->section);
    q->change.put.edit = edit_section;
    events_change(&api->events, &q->change);
}

static void event_request_on_removed(struct event_removal *removal, enum err result) {
    struct event_request *q = CONTAINER_OF(removal, struct event_request, removal);
    if (result == ERR_OK)
        reply_empty(q->x, 204);
    else if (result == ERR_VERSION_MISMATCH)
        admin_version_mismatch(q->x, removal->remove.if_version, removal->remove.version_present);
    else
        event_request_refuse(q, result);
}

void admin_event_delete(struct api *api, struct exchange *x, const str *captures) {
    int64_t if_version;
    if (!admin_if_match(x, &if_version)) return;
    struct event_request *q = event_request_new(x, "event.delete", captures);
    q->removal.remove.if_version = if_version;
    q->removal.done = event_request_on_removed;
    q->removal.remove.type = q->change.put.type;
    q->removal.remove.id = q->change.put.id;
    q->removal.remove.note = q->change.put.note;
    q->removal.remove.note.detail = STR("{}");
    events_delete(&api->events, &q->removal);
}

/* ---- the audit trail ---- */

struct audit_request {
    struct audit_read read;
    struct exchange *x;
};

static void audit_on_read(struct audit_read *a, enum err result);

void admin_audit(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct audit_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->read.done = audit_on_read;
    if (!query_i64(x, STR("limit"), 1, AUDIT_PAGE_MAX, 100, &q->read.page.limit)) return;
    if (!query_i64(x, STR("before"), 1, INT64_MAX, 0, &q->read.page.before)) return;
    events_read_audit(&api->events, &q->read);
}

static void audit_on_read(struct audit_read *a, enum err result) {
    struct audit_request *q = CONTAINER_OF(a, struct audit_request, read);
    struct ledger_audit_page *page = &a->page;
    if (result != ERR_OK) {
        reply_problem(q->x, result, "%s", "The audit trail cannot be read now. Try again.");
        return;
    }
    struct json_out j;
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_raw(&j, STR("audit"), buf_str(&page->json));
    if (page->next > 0)
        json_out_i64(&j, STR("next"), page->next);
    else
        json_out_null(&j, STR("next"));
    json_out_object_end(&j);
    json_out_done(&j);
    buf_deinit(&page->json);
    reply_send(q->x, STR("application/json"));
}

/* ---- the key ---- */

/* For programs that offer only what the key allows. */
void admin_key_get(struct api *api, struct exchange *x, const str *captures) {
    (void)api;
    (void)captures;
    const struct key_holder *key = users_key(x);
    struct json_out j;
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    json_out_init(&j, reply_start(x, 200));
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("name"), str_of(key->name));
    json_out_str(&j, STR("role"), key_role_words[key->role]);
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}
