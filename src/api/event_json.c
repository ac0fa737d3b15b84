/* Reads events from JSON by tables of fields, and renders them. */
#include "api/event_json.h"

#include <assert.h>
#include <stdio.h>

#include "api/event_page_json.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/reservation.h"

#define QUEUE(member) offsetof(struct event, queue.member)
#define EVENT(member) offsetof(struct event, member)
#define SECTION(member) offsetof(struct section, member)

/* The usual size of each as JSON, without names. */
#define EVENT_JSON_BYTES 370
#define SECTION_JSON_BYTES 140

#define QUEUE_FIELDS                                                                               \
    {"maxWaiting", JSON_KIND_I64, QUEUE(max_waiting), 0, MAX_WAITING_MAX, 0, 0},                   \
        {"maxActive", JSON_KIND_I64, QUEUE(max_active), 1, MAX_ACTIVE_MAX, 0, 0},                  \
        {"entryBatchSize", JSON_KIND_I64, QUEUE(entry_batch_size), 1, ENTRY_BATCH_MAX, 0, 0},      \
        {"entryIntervalSeconds",                                                                   \
         JSON_KIND_I64,                                                                            \
         QUEUE(entry_interval_s),                                                                  \
         1,                                                                                        \
         ENTRY_INTERVAL_S_MAX,                                                                     \
         0,                                                                                        \
         0},                                                                                       \
        {"activeTtlSeconds", JSON_KIND_I64, QUEUE(active_ttl_s), 1, ACTIVE_TTL_S_MAX, 0, 0},       \
        {"graceSeconds", JSON_KIND_I64, QUEUE(grace_s), 1, GRACE_S_MAX, 0, 0}, {                   \
        "tokenTtlSeconds", JSON_KIND_I64, QUEUE(token_ttl_s), 0, TOKEN_TTL_S_MAX, 0, 0             \
    }

static const struct json_field queue_fields[] = {QUEUE_FIELDS, {0}};

static const struct json_field queue_patch_fields[] = {
    QUEUE_FIELDS,
    {"notice", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {0},
};

/* Members that GET shows beside the settings may be sent back in a PUT; they are ignored, except
 * `version`, which the handler reads (admin.c). */
static const struct json_field event_fields[] = {
    {"title", JSON_KIND_TEXT, EVENT(title), 1, EVENT_TITLE_BYTES_MAX, 0, 0},
    {"state", JSON_KIND_WORD, EVENT(state), 0, 0, event_state_words, 0},
    {"opensAt", JSON_KIND_TIME, EVENT(opens_at_ms), 0, 0, 0, 0},
    {"closesAt", JSON_KIND_TIME, EVENT(closes_at_ms), 0, 0, 0, 0},
    {"startsAt", JSON_KIND_TIME, EVENT(starts_at_ms), 0, 0, 0, 0},
    {"autoEnter", JSON_KIND_BOOL, EVENT(auto_enter), 0, 0, 0, 0},
    {"queue", JSON_KIND_OBJECT, 0, 0, 0, 0, queue_fields},
    {"holdSeconds", JSON_KIND_I64, EVENT(hold_s), 1, HOLD_S_MAX, 0, 0},
    {"maxPerUser", JSON_KIND_I64, EVENT(max_per_user), 1, PER_USER_MAX, 0, 0},
    {"reholdSeconds", JSON_KIND_I64, EVENT(rehold_s), 0, REHOLD_S_MAX, 0, 0},
    {"maxHoldsPerStay", JSON_KIND_I64, EVENT(max_holds_per_stay), 0, HOLDS_PER_STAY_MAX, 0, 0},
    {"confirmBy", JSON_KIND_WORD, EVENT(confirm_by), 0, 0, confirm_by_words, 0},
    {"cancelConfirmed", JSON_KIND_BOOL, EVENT(cancel_confirmed), 0, 0, 0, 0},
    {"currency", JSON_KIND_MONEY, EVENT(currency), 0, 0, 0, 0},
    {"page", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"returnHosts", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"notice", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"sections", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"eventType", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"eventId", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"version", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"createdAt", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"updatedAt", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"serverTime", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"graceSeconds", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {0},
};

static const struct json_field section_fields[] = {
    {"id", JSON_KIND_NAME, SECTION(id), 1, SECTION_ID_BYTES_MAX, 0, 0},
    {"name", JSON_KIND_TEXT, SECTION(name), 1, SECTION_NAME_BYTES_MAX, 0, 0},
    {"capacity", JSON_KIND_I64, SECTION(capacity), 1, SECTION_CAPACITY_MAX, 0, 0},
    {"price", JSON_KIND_I64, SECTION(price), 0, PRICE_MAX, 0, 0},
    {"mode", JSON_KIND_WORD, SECTION(mode), 0, 0, section_mode_words, 0},
    {"status", JSON_KIND_WORD, SECTION(status), 0, 0, section_status_words, 0},
    {"available", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"held", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"confirmed", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {"strategy", JSON_KIND_SHOWN, 0, 0, 0, 0, 0},
    {0},
};

static bool section_from_json(const json_t *json, size_t index, struct section *s,
                              struct json_problem *problem) {
    char where[32];
    snprintf(where, sizeof where, "sections[%zu]", index);
    if (!json_is_object(json))
        return json_refuse(problem, ERR_INVALID_FIELD, "%s must be an object.", where);
    snprintf(where, sizeof where, "sections[%zu].", index);
    if (!json_read(json, section_fields, s, where, problem)) return false;
    if (s->id[0] == '\0' || s->capacity == 0)
        return json_refuse(problem, ERR_INVALID_FIELD, "%s%s is required.", where,
                           s->id[0] == '\0' ? "id" : "capacity");
    if (s->name[0] == '\0') str_copy(str_of(s->id), s->name, sizeof s->name);
    return true;
}

/* A new event with the configuration of `old` and the sections of the JSON array. */
static struct event *with_sections(const struct event *old, const json_t *array,
                                   struct json_problem *problem) {
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count > EVENT_SECTIONS_MAX) {
        json_refuse(problem, ERR_INVALID_FIELD, "sections must be an array of 0 to %d objects.",
                    EVENT_SECTIONS_MAX);
        return NULL;
    }
    struct event *e = event_new_like(old, count);
    struct section *sections = e->sections;
    e->section_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!section_from_json(json_array_get(array, i), i, &sections[i], problem)) goto refused;
        if (event_section(e, str_of(sections[i].id)) != NULL) {
            json_refuse(problem, ERR_INVALID_FIELD, "sections[%zu].id: \"%s\" is used twice.", i,
                        sections[i].id);
            goto refused;
        }
        e->section_count++;
    }
    return e;

refused:
    mem_free(e);
    return NULL;
}

static bool hours_ok(const struct event *e, struct json_problem *problem) {
    bool is_ordered = e->opens_at_ms == CLOCK_NONE_MS || e->closes_at_ms == CLOCK_NONE_MS ||
                      e->opens_at_ms < e->closes_at_ms;
    return is_ordered ||
           json_refuse(problem, ERR_INVALID_FIELD, "%s", "closesAt must be later than opensAt.");
}

struct event *event_from_json(const json_t *body, const struct event_defaults *defaults, str type,
                              str id, struct json_problem *problem) {
    struct event plain = {.state = EVENT_OPEN,
                          .opens_at_ms = CLOCK_NONE_MS,
                          .closes_at_ms = CLOCK_NONE_MS,
                          .starts_at_ms = CLOCK_NONE_MS,
                          .queue = defaults->queue,
                          .hold_s = defaults->hold_s,
                          .max_per_user = defaults->max_per_user,
                          .rehold_s = REHOLD_S_DEFAULT};
    memcpy(plain.currency, defaults->currency, sizeof plain.currency);
    if (!event_name_ok(type, EVENT_TYPE_BYTES_MAX) || !event_name_ok(id, EVENT_ID_BYTES_MAX)) {
        json_refuse(problem, ERR_INVALID_FIELD,
                    "An event's type is 1 to %d, its id 1 to %d letters, digits, '_', '-' or '.'.",
                    EVENT_TYPE_BYTES_MAX, EVENT_ID_BYTES_MAX);
        return NULL;
    }
    str_copy(type, plain.type, sizeof plain.type);
    str_copy(id, plain.id, sizeof plain.id);
    if (!json_read(body, event_fields, &plain, "", problem) || !hours_ok(&plain, problem))
        return NULL;
    if (plain.title[0] == '\0') {
        json_refuse(problem, ERR_INVALID_FIELD, "%s", "title is required.");
        return NULL;
    }
    struct event *e = with_sections(&plain, json_object_get(body, "sections"), problem);
    if (e == NULL || event_texts_from_json(&e, body, problem)) return e;
    mem_free(e);
    return NULL;
}

bool event_patch_json(struct event **e, const json_t *body, struct json_problem *problem) {
    if (!json_read(body, event_fields, *e, "", problem) || !hours_ok(*e, problem)) return false;
    if (!event_texts_from_json(e, body, problem)) return false;
    json_t *sections = json_object_get(body, "sections");
    if (sections == NULL) return true;
    struct event *changed = with_sections(*e, sections, problem);
    if (changed == NULL) return false;
    mem_free(*e);
    *e = changed;
    return true;
}

bool section_patch_json(struct section *s, const json_t *body, struct json_problem *problem) {
    struct section before = *s;
    if (!json_read(body, section_fields, s, "", problem)) return false;
    if (strcmp(before.id, s->id) != 0)
        return json_refuse(problem, ERR_INVALID_FIELD, "%s", "id cannot be changed.");
    return true;
}

static void section_to_json(struct json_out *j, const struct section *s,
                            struct reservations *reservations) {
    enum strategy strategy = strategy_now(reservations, s->mode, s->key);
    json_out_object(j, STR(""));
    json_out_str(j, STR("id"), str_of(s->id));
    json_out_str(j, STR("name"), str_of(s->name));
    json_out_i64(j, STR("capacity"), s->capacity);
    json_out_i64(j, STR("available"), section_available(s));
    json_out_i64(j, STR("held"), s->held);
    json_out_i64(j, STR("confirmed"), s->confirmed);
    json_out_i64(j, STR("price"), s->price);
    json_out_str(j, STR("mode"), section_mode_words[s->mode]);
    json_out_str(j, STR("strategy"), strategy_words[strategy]);
    json_out_str(j, STR("status"), section_status_words[s->status]);
    json_out_object_end(j);
}

size_t event_json_bytes(const struct event *e) {
    size_t bytes = EVENT_JSON_BYTES + strlen(e->title);
    for (size_t i = 0; i < e->section_count; i++)
        bytes += SECTION_JSON_BYTES + strlen(e->sections[i].id) + strlen(e->sections[i].name);
    return bytes;
}

void queue_rules_to_json(struct json_out *j, str key, const struct queue_rules *q) {
    json_out_object(j, key);
    json_out_i64(j, STR("maxWaiting"), q->max_waiting);
    json_out_i64(j, STR("maxActive"), q->max_active);
    json_out_i64(j, STR("entryBatchSize"), q->entry_batch_size);
    json_out_i64(j, STR("entryIntervalSeconds"), q->entry_interval_s);
    json_out_i64(j, STR("activeTtlSeconds"), q->active_ttl_s);
    json_out_i64(j, STR("graceSeconds"), q->grace_s);
    json_out_i64(j, STR("tokenTtlSeconds"), q->token_ttl_s);
    json_out_object_end(j);
}

void queue_counts_to_json(struct json_out *j, const struct queue_counts *c) {
    json_out_i64(j, STR("waiting"), (int64_t)c->waiting);
    json_out_i64(j, STR("active"), (int64_t)c->active);
    json_out_i64(j, STR("entered"), (int64_t)c->entered);
    json_out_i64(j, STR("admitted"), (int64_t)c->admitted);
    json_out_i64(j, STR("completed"), (int64_t)c->completed);
    json_out_i64(j, STR("left"), (int64_t)c->left);
    json_out_i64(j, STR("expired"), (int64_t)c->expired);
    json_out_i64(j, STR("rejected"), (int64_t)c->rejected);
    json_out_f64(j, STR("admissionsPerSecond"), c->rate);
    json_out_f64(j, STR("avgWaitSeconds"),
                 c->admitted == 0 ? 0 : (double)c->waited_ms / 1000 / (double)c->admitted);
    json_out_f64(j, STR("maxWaitSeconds"), (double)c->waited_ms_max / 1000);
}

/* An admin sees the setting, which is null if it is not set; others see what it means. */
static void confirm_by_to_json(struct json_out *j, const struct event *e, bool admin,
                               const struct api *api) {
    enum confirm_by by = e->confirm_by;
    if (!admin) by = confirm_by_resolve(by, api->users_auth == USERS_TRUSTED);
    if (by == CONFIRM_BY_UNSET)
        json_out_null(j, STR("confirmBy"));
    else
        json_out_str(j, STR("confirmBy"), confirm_by_words[by]);
}

void event_to_json(struct json_out *j, str key, const struct event *e, enum event_json_kind kind,
                   struct api *api) {
    bool admin = kind == EVENT_JSON_ADMIN;
    json_out_object(j, key);
    json_out_str(j, STR("eventType"), str_of(e->type));
    json_out_str(j, STR("eventId"), str_of(e->id));
    json_out_str(j, STR("title"), str_of(e->title));
    json_out_str(j, STR("state"), event_state_words[e->state]);
    json_out_time(j, STR("opensAt"), e->opens_at_ms);
    json_out_time(j, STR("closesAt"), e->closes_at_ms);
    json_out_time(j, STR("startsAt"), e->starts_at_ms);
    json_out_bool(j, STR("autoEnter"), e->auto_enter);
    if (admin)
        queue_rules_to_json(j, STR("queue"), &e->queue);
    else
        json_out_i64(j, STR("graceSeconds"), e->queue.grace_s);
    json_out_i64(j, STR("holdSeconds"), e->hold_s);
    json_out_i64(j, STR("maxPerUser"), e->max_per_user);
    json_out_i64(j, STR("reholdSeconds"), e->rehold_s);
    json_out_i64(j, STR("maxHoldsPerStay"), e->max_holds_per_stay);
    confirm_by_to_json(j, e, admin, api);
    json_out_bool(j, STR("cancelConfirmed"), e->cancel_confirmed);
    json_out_str(j, STR("currency"), str_of(e->currency));
    if (kind != EVENT_JSON_LISTED) event_texts_to_json(j, e);
    json_out_array(j, STR("sections"));
    for (size_t i = 0; i < e->section_count; i++)
        section_to_json(j, &e->sections[i], &api->reservations);
    json_out_array_end(j);
    if (admin) {
        json_out_i64(j, STR("version"), e->version);
        json_out_time(j, STR("createdAt"), e->created_at_ms);
        json_out_time(j, STR("updatedAt"), e->updated_at_ms);
    }
    json_out_time(j, STR("serverTime"), clock_wall_ms());
    json_out_object_end(j);
}

bool queue_patch_json(struct event **e, const json_t *body, struct json_problem *problem) {
    return json_read(body, queue_patch_fields, *e, "", problem) &&
           event_texts_from_json(e, body, problem);
}
