/* /admin/events and /admin/audit. Each change is one struct that lives in the request's arena from
 * the handler to the answer. */
#include <assert.h>

#include "api/event_json.h"
#include "base/list.h"
#include "base/mem.h"

#define AUDIT_PAGE_MAX 1000

struct act {
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

static struct act *act_new(struct exchange *x, const char *verb, const str *captures) {
    struct act *act = arena_new(&x->arena, sizeof *act);
    act->x = x;
    act->change.put.type = arena_copy(&x->arena, captures[0]);
    act->change.put.id = arena_copy(&x->arena, captures[1]);
    act->change.put.note = admin_note(x, verb, captures[0], captures[1]);
    return act;
}

static void act_refuse(struct act *act, enum err result) {
    json_decref(act->body);
    mem_free(act->wanted);
    switch (result) {
    case ERR_EVENT_NOT_FOUND:
        reply_problem(act->x, result, "%s", "PUT /admin/events/{type}/{id} creates the event.");
        return;
    case ERR_SECTION_NOT_FOUND:
        reply_problem(act->x, result, "The event has no section \"%.*s\".", (int)act->section.len,
                      act->section.at);
        return;
    case ERR_SECTION_IN_USE:
        reply_problem(
            act->x, result,
            "Section \"%s\" has live reservations: it cannot be removed, shrink below its "
            "highest live seat, or change between mode seat and the other modes.",
            act->change.put.in_use);
        return;
    case ERR_EVENT_IN_USE:
        reply_problem(act->x, result, "%s",
                      "The event has live reservations: cancel them, or set its state to CLOSED.");
        return;
    default:
        if (act->problem.err == result && result != ERR_OK)
            reply_problem(act->x, result, "%s", act->problem.detail);
        else
            reply_problem(act->x, result, "%s", err_effect(result));
    }
}

static void act_on_changed(struct event_change *change, enum err result) {
    struct act *act = CONTAINER_OF(change, struct act, change);
    if (result != ERR_OK) {
        act_refuse(act, result);
        return;
    }
    struct event *stored = change->put.stored;
    const struct api_worker *w = exchange_context(act->x);
    struct json_out j;
    json_out_init(&j, reply_start(act->x, change->put.created ? 201 : 200));
    event_to_json(&j, STR(""), stored, true, &w->api->reservations);
    json_out_done(&j);
    mem_free(stored);
    mem_free(act->wanted);
    json_decref(act->body);
    reply_send(act->x, STR("application/json"));
}

void admin_event_put(struct api *api, struct exchange *x, const str *captures) {
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct act *act = act_new(x, "event.put", captures);
    act->body = body;
    act->change.done = act_on_changed;
    act->wanted = event_from_json(body, &api->defaults, captures[0], captures[1], &act->problem);
    act->change.put.wanted = act->wanted;
    if (act->wanted == NULL)
        act_refuse(act, act->problem.err);
    else
        events_change(&api->events, &act->change);
}

/* The two edits run on the ledger's thread, which has the act until it is done. */

static enum err edit_event(struct ledger_event_put *put, struct event **e) {
    struct act *act = CONTAINER_OF(put, struct act, change.put);
    return event_patch_json(e, act->body, &act->problem) ? ERR_OK : act->problem.err;
}

static enum err edit_section(struct ledger_event_put *put, struct event **e) {
    struct act *act = CONTAINER_OF(put, struct act, change.put);
    const struct section *found = event_section(*e, act->section);
    if (found == NULL) return ERR_SECTION_NOT_FOUND;
    struct section *changed = &(*e)->sections[found - (*e)->sections];
    return section_patch_json(changed, act->body, &act->problem) ? ERR_OK : act->problem.err;
}

void admin_event_patch(struct api *api, struct exchange *x, const str *captures) {
    json_t *body = json_body(x);
    if (body == NULL) return;
    struct act *act = act_new(x, "event.patch", captures);
    act->body = body;
    act->change.put.edit = edit_event;
    act->change.done = act_on_changed;
    events_change(&api->events, &act->change);
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
    struct act *act = act_new(x, "section.patch", captures);
    act->body = body;
    act->section = arena_copy(&x->arena, captures[2]);
    act->change.put.note.subject = section_subject(x, act->change.put.note.subject, act->section);
    act->change.put.edit = edit_section;
    act->change.done = act_on_changed;
    events_change(&api->events, &act->change);
}

static void act_on_removed(struct event_removal *removal, enum err result) {
    struct act *act = CONTAINER_OF(removal, struct act, removal);
    if (result == ERR_OK)
        reply_empty(act->x, 204);
    else
        act_refuse(act, result);
}

void admin_event_delete(struct api *api, struct exchange *x, const str *captures) {
    struct act *act = act_new(x, "event.delete", captures);
    act->removal.done = act_on_removed;
    act->removal.remove.type = act->change.put.type;
    act->removal.remove.id = act->change.put.id;
    act->removal.remove.note = act->change.put.note;
    act->removal.remove.note.detail = STR("{}");
    events_delete(&api->events, &act->removal);
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
