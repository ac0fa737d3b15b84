/* /admin/events and /admin/audit. Each change is one struct that lives in the request's arena from
 * the handler to the answer. */
#include <assert.h>

#include "api/event_json.h"
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

struct audit_note admin_note(struct exchange *x, const char *verb, str type, str id) {
    char path[EVENT_PATH_BYTES];
    return (struct audit_note){
        .actor = STR("admin"),
        .act = str_of(verb),
        .subject = arena_copy(&x->arena, event_path(type, id, path)),
        .detail = x->request.body.len == 0 ? STR("{}") : arena_copy(&x->arena, x->request.body)};
}

static struct event_request *event_request_new(struct exchange *x, const char *verb,
                                               const str *captures) {
    struct event_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->change.put.type = arena_copy(&x->arena, captures[0]);
    q->change.put.id = arena_copy(&x->arena, captures[1]);
    q->change.put.note = admin_note(x, verb, captures[0], captures[1]);
    return q;
}

static void event_request_refuse(struct event_request *q, enum err result) {
    json_decref(q->body);
    mem_free(q->wanted);
    switch (result) {
    case ERR_EVENT_NOT_FOUND:
        reply_problem(q->x, result, "%s", "PUT /admin/events/{type}/{id} creates the event.");
        return;
    case ERR_SECTION_NOT_FOUND:
        reply_problem(q->x, result, "The event has no section \"%.*s\".", (int)q->section.len,
                      q->section.at);
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
    json_out_init(&j, reply_start(q->x, change->put.created ? 201 : 200));
    event_to_json(&j, STR(""), stored, true, &w->api->reservations);
    json_out_done(&j);
    mem_free(stored);
    mem_free(q->wanted);
    json_decref(q->body);
    reply_send(q->x, STR("application/json"));
}

void admin_event_put(struct api *api, struct exchange *x, const str *captures) {
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct event_request *q = event_request_new(x, "event.put", captures);
    q->body = body;
    q->change.done = event_request_on_changed;
    q->wanted = event_from_json(body, &api->defaults, captures[0], captures[1], &q->problem);
    q->change.put.wanted = q->wanted;
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
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct event_request *q = event_request_new(x, "event.patch", captures);
    q->body = body;
    q->change.put.edit = edit_event;
    q->change.done = event_request_on_changed;
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

void admin_section_patch(struct api *api, struct exchange *x, const str *captures) {
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct event_request *q = event_request_new(x, "section.patch", captures);
    q->body = body;
    q->section = arena_copy(&x->arena, captures[2]);
    q->change.put.note.subject = section_subject(x, q->change.put.note.subject, q->section);
    q->change.put.edit = edit_section;
    q->change.done = event_request_on_changed;
    events_change(&api->events, &q->change);
}

static void event_request_on_removed(struct event_removal *removal, enum err result) {
    struct event_request *q = CONTAINER_OF(removal, struct event_request, removal);
    if (result == ERR_OK)
        reply_empty(q->x, 204);
    else
        event_request_refuse(q, result);
}

void admin_event_delete(struct api *api, struct exchange *x, const str *captures) {
    struct event_request *q = event_request_new(x, "event.delete", captures);
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
