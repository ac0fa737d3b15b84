/* /admin/facts: a page of facts after a cursor; with `wait`, the answer comes when there is one. */
#include "api/api.h"
#include "base/list.h"
#include "base/mem.h"

#define LIMIT_DEFAULT 100

struct facts_request {
    struct fact_read read;
    struct exchange *x;
};

static bool facts_request_is_abandoned(const struct fact_read *read);
static void facts_request_on_read(struct fact_read *read, enum err result);

static bool read_cursor(struct exchange *x, struct sale_mark *after) {
    bool bad;
    str text = query_value(x, STR("after"), &bad);
    *after = (struct sale_mark){0};
    if (!bad && (text.at == NULL || fact_cursor_parse(text, after))) return true;
    reply_problem(
        x, ERR_INVALID_PARAMETER, "%s",
        "after must be the 'next' of an earlier answer; leave it out for the first page.");
    return false;
}

void admin_facts(struct api *api, struct exchange *x, const str *captures) {
    (void)api;
    (void)captures;
    struct api_worker *w = exchange_context(x);
    struct facts_request *q = arena_new(&x->arena, sizeof *q);
    int64_t limit;
    int64_t wait_s;
    if (!read_cursor(x, &q->read.page.after) ||
        !query_i64(x, STR("limit"), 1, FACTS_PAGE_MAX, LIMIT_DEFAULT, &limit) ||
        !query_i64(x, STR("wait"), 0, FACT_WAIT_MS_MAX / 1000, 0, &wait_s))
        return;
    q->x = x;
    q->read.page.max = (size_t)limit;
    q->read.page.facts = arena_new(&x->arena, (size_t)limit * sizeof *q->read.page.facts);
    q->read.wait_ms = wait_s * 1000;
    q->read.is_abandoned = facts_request_is_abandoned;
    q->read.done = facts_request_on_read;
    fact_feed_read(&w->facts, &q->read);
}

static bool facts_request_is_abandoned(const struct fact_read *read) {
    const struct facts_request *q = CONTAINER_OF(read, struct facts_request, read);
    return exchange_is_abandoned(q->x);
}

static void facts_request_refuse(struct facts_request *q, enum err result) {
    if (result == ERR_INVALID_PARAMETER)
        reply_problem(q->x, result, "%s", "after is a cursor of another ledger.");
    else
        reply_problem(q->x, result, "%s",
                      result == ERR_OVERLOADED
                          ? "Too many requests wait for the ledger or for facts. Try again soon."
                          : "The facts cannot be read now. Try again.");
}

static void facts_request_on_read(struct fact_read *read, enum err result) {
    struct facts_request *q = CONTAINER_OF(read, struct facts_request, read);
    const struct ledger_facts_page *page = &read->page;
    char cursor[FACT_CURSOR_BYTES];
    struct json_out j;
    if (read->has_waited) exchange_restart_clock(q->x);
    if (result != ERR_OK) {
        facts_request_refuse(q, result);
        return;
    }
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("facts"));
    for (size_t i = 0; i < page->count; i++) {
        fact_to_json(&j, page->facts[i]);
        mem_free(page->facts[i]);
    }
    json_out_array_end(&j);
    json_out_str(&j, STR("next"), fact_cursor_format(&page->mark, cursor));
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}
