/* Writes HTML. Every text is escaped where it is written. */
#include "api/plain_view.h"

#include <stdio.h>

#include "base/clock.h"

/* A page loads itself again after a tenth of the estimate, in these limits. */
#define RELOAD_S_MIN 3
#define RELOAD_S_MAX 30
#define RELOAD_S_CLOSED 60
#define RELOAD_S_UNAVAILABLE 10
/* More than that are not offered at once. */
#define QUANTITY_MAX 10

struct value {
    const char *name; /* of the placeholder */
    str text;
};

#define NUMBER_BYTES 32

static str number(int64_t n, char out[NUMBER_BYTES]) {
    int len = snprintf(out, NUMBER_BYTES, "%lld", (long long)n);
    return (str){out, (size_t)len};
}

/* ---- texts ---- */

static str text_of(const struct plain_view *v, const char *key) {
    str text = page_text(&v->set->texts, v->language, str_of(key));
    return text.at != NULL ? text : str_of(key);
}

static const struct value *find_value(const struct value *values, size_t count, str name) {
    for (size_t i = 0; i < count; i++)
        if (str_eq(str_of(values[i].name), name)) return &values[i];
    return NULL;
}

/* The text with its {placeholders} filled in. */
static void add_filled(const struct plain_view *v, struct buf *out, const char *key,
                       const struct value *values, size_t count) {
    str rest = text_of(v, key);
    while (rest.len > 0) {
        str before;
        str_split(&rest, '{', &before);
        html_escape(out, before);
        if (rest.at == NULL) break;
        str name;
        str behind = rest;
        str_split(&behind, '}', &name);
        const struct value *value = find_value(values, count, name);
        if (behind.at == NULL || value == NULL) {
            buf_add_char(out, '{');
            continue;
        }
        html_escape(out, value->text);
        rest = behind;
    }
}

static void add_text(const struct plain_view *v, struct buf *out, const char *key) {
    add_filled(v, out, key, NULL, 0);
}

/* A paragraph, with at most one placeholder. */
static void add_line_with(const struct plain_view *v, struct buf *out, const char *key,
                          const char *name, str value) {
    buf_add(out, STR("<p>"));
    add_filled(v, out, key, &(struct value){name, value}, 1);
    buf_add(out, STR("</p>\n"));
}

static void add_line(const struct plain_view *v, struct buf *out, const char *key) {
    add_line_with(v, out, key, "", STR(""));
}

static void add_number_line(const struct plain_view *v, struct buf *out, const char *key,
                            const char *name, int64_t n) {
    char text[NUMBER_BYTES];
    add_line_with(v, out, key, name, number(n, text));
}

static void add_notice(const struct plain_view *v, struct buf *out, const char *key) {
    buf_add(out, STR("<p class=\"notice\">"));
    add_text(v, out, key);
    buf_add(out, STR("</p>\n"));
}

/* "2026-12-25 10:00 UTC": the server does not know the time zone of the browser. */
static str time_text(int64_t ms, char out[CLOCK_TEXT_BYTES]) {
    if (!clock_writable(ms) || ms == CLOCK_NONE_MS) return STR("?");
    clock_format(ms, out);
    out[10] = ' ';
    memcpy(out + 16, " UTC", 5);
    return (str){out, 20};
}

/* Minor units of the currency (ISO 4217): most have two decimals. */
static void add_price(struct buf *out, int64_t price, const char *currency) {
    static const char none[] = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF";
    static const char three[] = "BHD IQD JOD KWD LYD OMR TND";
    char digits[NUMBER_BYTES];
    int decimals = strstr(none, currency) != NULL ? 0 : strstr(three, currency) != NULL ? 3 : 2;
    int64_t unit = decimals == 0 ? 1 : decimals == 2 ? 100 : 1000;
    str whole = number(price / unit, digits);
    for (size_t i = 0; i < whole.len; i++) {
        if (i > 0 && (whole.len - i) % 3 == 0) buf_add_char(out, ',');
        buf_add_char(out, whole.at[i]);
    }
    if (decimals > 0) buf_addf(out, ".%0*lld", decimals, (long long)(price % unit));
    buf_addf(out, " %s", currency);
}

/* ---- the frame ---- */

void plain_view_add_url(const struct plain_view *v, struct buf *out) {
    buf_addf(out, "/e/%.*s/%.*s?view=plain", (int)v->type.len, v->type.at, (int)v->id.len,
             v->id.at);
    if (v->return_query.len == 0) return;
    buf_add(out, STR("&rd="));
    buf_add(out, v->return_query);
}

static void add_escaped_url(const struct plain_view *v, str more, struct buf *out) {
    struct buf url = {0};
    plain_view_add_url(v, &url);
    buf_add(&url, more);
    html_escape(out, buf_str(&url));
    buf_deinit(&url);
}

static void add_head(const struct plain_view *v, struct buf *out) {
    buf_add(out, STR("<!doctype html>\n<html lang=\""));
    html_escape(out, v->set->texts.codes[v->language]);
    buf_add(out, STR("\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"));
    buf_add(out, STR("<title>"));
    if (v->event != NULL) {
        html_escape(out, str_of(v->event->title));
        buf_add(out, STR(" · "));
    }
    html_escape(out, v->set->name);
    buf_add(out,
            STR("</title>\n<link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\""));
    page_set_add_asset_url(v->set, STR("app.css"), out);
    buf_add(out, STR("\">\n</head>\n<body>\n<main class=\"plain\">\n<h1 dir=\"auto\">"));
    if (v->event != NULL)
        html_escape(out, str_of(v->event->title));
    else
        html_escape(out, v->set->name);
    buf_add(out, STR("</h1>\n"));
}

/* With links to the same page in the other languages. */
static void add_foot(const struct plain_view *v, struct buf *out) {
    const struct page_texts *texts = &v->set->texts;
    if (v->event != NULL && texts->count > 1) {
        buf_add(out, STR("<p>"));
        for (size_t i = 0; i < texts->count; i++) {
            struct buf lang = {0};
            if (i == v->language) continue;
            buf_addf(&lang, "&lang=%s", texts->codes[i].at);
            buf_add(out, STR("<a hreflang=\""));
            html_escape(out, texts->codes[i]);
            buf_add(out, STR("\" href=\""));
            add_escaped_url(v, buf_str(&lang), out);
            buf_add(out, STR("\">"));
            html_escape(out, page_texts_name(texts, i));
            buf_add(out, STR("</a> "));
            buf_deinit(&lang);
        }
        buf_add(out, STR("</p>\n"));
    }
    buf_add(out, STR("</main>\n</body>\n</html>\n"));
}

/* ---- forms ---- */

static void add_form(const struct plain_view *v, struct buf *out, const char *action) {
    buf_add(out, STR("<form method=\"post\" action=\""));
    add_escaped_url(v, STR(""), out);
    buf_addf(out, "\">\n<input type=\"hidden\" name=\"action\" value=\"%s\">\n", action);
}

static void add_button(const struct plain_view *v, struct buf *out, const char *key) {
    buf_add(out, STR("<button>"));
    add_text(v, out, key);
    buf_add(out, STR("</button>\n</form>\n"));
}

static void add_action(const struct plain_view *v, struct buf *out, const char *action,
                       const char *key) {
    add_form(v, out, action);
    add_button(v, out, key);
}

static void add_section_option(const struct plain_view *v, struct buf *out,
                               const struct section *s) {
    char count[NUMBER_BYTES];
    struct buf price = {0};
    add_price(&price, s->price, v->event->currency);
    struct value values[] = {{"name", str_of(s->name)},
                             {"price", buf_str(&price)},
                             {"count", number(section_available(s), count)}};
    buf_addf(out, "<option value=\"%s\">", s->id);
    add_filled(v, out, "plain.hold.option", values, 3);
    buf_add(out, STR("</option>\n"));
    buf_deinit(&price);
}

/* A section from which seats can be held now. */
static bool is_offered(const struct section *s) {
    return section_status_sells(s->status) && section_available(s) > 0;
}

static void add_hold_form(const struct plain_view *v, struct buf *out) {
    const struct event *e = v->event;
    size_t offered = 0;
    for (size_t i = 0; i < e->section_count; i++) offered += is_offered(&e->sections[i]);
    buf_add(out, STR("<section class=\"card\">\n<h2>"));
    add_text(v, out, "plain.hold.title");
    buf_add(out, STR("</h2>\n"));
    if (offered == 0) {
        add_line(v, out, "plain.allTaken");
        buf_add(out, STR("</section>\n"));
        return;
    }
    add_form(v, out, "hold");
    buf_add(out, STR("<p><label>"));
    add_text(v, out, "plain.hold.section");
    buf_add(out, STR(" <select name=\"section\">\n"));
    for (size_t i = 0; i < e->section_count; i++)
        if (is_offered(&e->sections[i])) add_section_option(v, out, &e->sections[i]);
    buf_add(out, STR("</select></label></p>\n<p><label>"));
    add_text(v, out, "plain.hold.quantity");
    buf_add(out, STR(" <select name=\"quantity\">\n"));
    for (int64_t n = 1; n <= e->max_per_user && n <= QUANTITY_MAX; n++)
        buf_addf(out, "<option>%lld</option>\n", (long long)n);
    buf_add(out, STR("</select></label></p>\n"));
    add_button(v, out, "plain.hold.button");
    buf_add(out, STR("</section>\n"));
}

/* ---- reservations ---- */

static void add_reservation_action(const struct plain_view *v, struct buf *out,
                                   const struct reservation *r, const char *action,
                                   const char *key) {
    char id[UUID_TEXT_BYTES];
    uuid_format(&r->id, id);
    add_form(v, out, action);
    buf_addf(out, "<input type=\"hidden\" name=\"reservation\" value=\"%.*s\">\n", UUID_TEXT_BYTES,
             id);
    add_button(v, out, key);
}

static const struct section *find_section(const struct event *e, int64_t key) {
    for (size_t i = 0; i < e->section_count; i++)
        if (e->sections[i].key == key) return &e->sections[i];
    return NULL;
}

static void add_reservation(const struct plain_view *v, struct buf *out,
                            const struct reservation *r) {
    bool is_held = r->status == RESERVATION_HELD;
    const struct section *section = find_section(v->event, r->section_key);
    char count[NUMBER_BYTES];
    char until[CLOCK_TEXT_BYTES];
    struct buf seats = {0};
    struct buf price = {0};
    for (uint32_t i = 0; i < r->seat_count; i++)
        buf_addf(&seats, i == 0 ? "%u" : ", %u", r->seats[i]);
    add_price(&price, r->price, r->currency);
    struct value values[] = {{"count", number((int64_t)r->seat_count, count)},
                             {"seats", buf_str(&seats)},
                             {"section", section == NULL ? STR("") : str_of(section->name)},
                             {"price", buf_str(&price)},
                             {"time", time_text(r->expires_ms, until)},
                             {"code", str_of(r->confirmation_code)}};
    buf_add(out, STR("<div class=\"card\">\n<p>"));
    add_filled(v, out, is_held ? "plain.reservation.held" : "plain.reservation.confirmed", values,
               sizeof values / sizeof values[0]);
    buf_add(out, STR("</p>\n"));
    if (is_held && v->may_confirm)
        add_reservation_action(v, out, r, "confirm", "plain.reservation.confirm");
    if (is_held || v->event->cancel_confirmed)
        add_reservation_action(v, out, r, "cancel", "plain.reservation.cancel");
    buf_add(out, STR("</div>\n"));
    buf_deinit(&seats);
    buf_deinit(&price);
}

static void add_reservations(const struct plain_view *v, struct buf *out) {
    if (v->reservation_count == 0) return;
    buf_add(out, STR("<h2>"));
    add_text(v, out, "plain.reservations");
    buf_add(out, STR("</h2>\n"));
    for (size_t i = 0; i < v->reservation_count; i++) add_reservation(v, out, v->reservations[i]);
}

/* ---- the states of a place ---- */

static bool is_sold_out(const struct plain_view *v) {
    return !v->degraded && seat_counts_sold_out(&v->seats);
}

static void add_state(const struct plain_view *v, struct buf *out) {
    if (v->notice.len > 0) {
        buf_add(out, STR("<p class=\"notice\" dir=\"auto\">"));
        html_escape(out, v->notice);
        buf_add(out, STR("</p>\n"));
    }
    if (v->state == EVENT_PAUSED) add_notice(v, out, "plain.paused");
    if (v->state == EVENT_CLOSED) add_notice(v, out, "plain.closed");
    if (v->degraded) add_notice(v, out, "plain.degraded");
    if (is_sold_out(v))
        add_notice(v, out, "plain.soldOut");
    else if (!v->degraded && seat_counts_sum(&v->seats) > 0 && v->seats.available == 0)
        add_notice(v, out, "plain.allTaken");
}

/* Before the opening the page says when that is. */
static void add_entrance(const struct plain_view *v, struct buf *out) {
    char opens[CLOCK_TEXT_BYTES];
    int64_t opens_ms = v->event->opens_at_ms;
    if (v->state == EVENT_DRAFT) {
        if (opens_ms == CLOCK_NONE_MS)
            add_line(v, out, "plain.notOpen");
        else
            add_line_with(v, out, "plain.opensAt", "time", time_text(opens_ms, opens));
        return;
    }
    if (v->state == EVENT_DRAINING) add_notice(v, out, "plain.draining");
    if (v->state == EVENT_CLOSED || v->state == EVENT_DRAINING || is_sold_out(v)) return;
    add_action(v, out, "enter", v->has_place ? "plain.again" : "plain.enter");
    add_line(v, out, "plain.enterHint");
}

static void add_waiting(const struct plain_view *v, struct buf *out) {
    const struct place *p = &v->place;
    int64_t grace_min = v->event->queue.grace_s / 60;
    buf_add(out, STR("<div class=\"card\">\n"));
    add_number_line(v, out, "plain.place", "position", (int64_t)p->position);
    if (p->position > 1)
        add_number_line(v, out, "plain.ahead", "count", (int64_t)p->position - 1);
    else
        add_line(v, out, "plain.next");
    if (v->admits && p->estimate_s >= 60)
        add_number_line(v, out, "plain.estimate.minutes", "minutes", (p->estimate_s + 59) / 60);
    else if (v->admits)
        add_line(v, out, "plain.estimate.soon");
    if (!v->degraded && seat_counts_sum(&v->seats) > 0)
        add_number_line(v, out, "plain.seatsLeft", "count", v->seats.available);
    buf_add(out, STR("</div>\n"));
    if (grace_min > 0)
        add_number_line(v, out, "plain.keep", "minutes", grace_min);
    else
        add_line(v, out, "plain.keepOpen");
    add_action(v, out, "leave", "plain.leave");
}

static void add_active(const struct plain_view *v, struct buf *out) {
    char until[CLOCK_TEXT_BYTES];
    char minutes[NUMBER_BYTES];
    int64_t left_ms = v->place.expires_ms - v->now_ms;
    struct value values[] = {{"time", time_text(v->place.expires_ms, until)},
                             {"minutes", number(left_ms > 0 ? left_ms / 60000 : 0, minutes)}};
    buf_add(out, STR("<div class=\"card\">\n<h2>"));
    add_text(v, out, "plain.active");
    buf_add(out, STR("</h2>\n<p>"));
    add_filled(v, out, "plain.activeUntil", values, 2);
    buf_add(out, STR("</p>\n"));
    if (v->return_url.len > 0) {
        buf_add(out, STR("<p><a rel=\"noreferrer\" href=\""));
        html_escape(out, v->return_url);
        buf_add(out, STR("\">"));
        add_text(v, out, "plain.continue");
        buf_add(out, STR("</a></p>\n"));
    }
    buf_add(out, STR("</div>\n"));
    add_reservations(v, out); /* what is held comes first: its time runs */
    add_hold_form(v, out);
    add_action(v, out, "leave", "plain.leaveActive");
}

static void add_ended(const struct plain_view *v, struct buf *out) {
    static const char *const keys[] = {[ENTRY_COMPLETED] = "plain.completed",
                                       [ENTRY_LEFT] = "plain.left",
                                       [ENTRY_EXPIRED] = "plain.expired",
                                       [ENTRY_NONE] = "plain.expired"};
    add_notice(v, out, keys[v->place.status]);
    add_reservations(v, out);
    add_entrance(v, out);
}

/* When the stay or a hold ends: not before that, because there is a form to fill in. */
static int64_t active_reload_s(const struct plain_view *v) {
    int64_t until_ms = v->place.expires_ms;
    for (size_t i = 0; i < v->reservation_count; i++) {
        const struct reservation *r = v->reservations[i];
        if (r->status == RESERVATION_HELD && r->expires_ms < until_ms) until_ms = r->expires_ms;
    }
    return until_ms > v->now_ms ? (until_ms - v->now_ms) / 1000 + 1 : 1;
}

int64_t plain_view_reload_s(const struct plain_view *v) {
    if (v->event == NULL) return 0;
    if (v->has_place && v->place.status == ENTRY_ACTIVE) return active_reload_s(v);
    if (v->has_place && v->place.status != ENTRY_WAITING) return 0;
    if (!v->has_place && v->state == EVENT_DRAFT) {
        if (v->event->opens_at_ms == CLOCK_NONE_MS) return RELOAD_S_CLOSED;
        int64_t left_s = (v->event->opens_at_ms - v->now_ms) / 1000 + 1;
        return left_s > RELOAD_S_CLOSED ? RELOAD_S_CLOSED : left_s < 1 ? 1 : left_s;
    }
    if (!v->has_place) return 0;
    int64_t seconds = v->admits ? v->place.estimate_s / 10 : RELOAD_S_MAX;
    int64_t most = v->event->queue.grace_s / 3; /* a page that reloads keeps the place */
    if (seconds < RELOAD_S_MIN) seconds = RELOAD_S_MIN;
    if (seconds > RELOAD_S_MAX) seconds = RELOAD_S_MAX;
    if (seconds > most) seconds = most;
    return seconds < 1 ? 1 : seconds;
}

void plain_view_add(const struct plain_view *v, struct buf *out) {
    add_head(v, out);
    if (v->event == NULL) {
        add_notice(v, out, "plain.notFound");
        add_foot(v, out);
        return;
    }
    add_state(v, out);
    if (!v->has_place)
        add_entrance(v, out);
    else if (v->place.status == ENTRY_WAITING)
        add_waiting(v, out);
    else if (v->place.status == ENTRY_ACTIVE)
        add_active(v, out);
    else
        add_ended(v, out);
    add_foot(v, out);
}

/* ---- problems ---- */

static const char *problem_key(enum err problem) {
    static const struct {
        enum err problem;
        const char *key;
    } rows[] = {
        {ERR_QUEUE_FULL, "plain.problem.full"},
        {ERR_NOT_OPEN, "plain.notOpen"},
        {ERR_CLOSED, "plain.draining"},
        {ERR_EVENT_NOT_FOUND, "plain.notFound"},
        {ERR_FOREIGN_ORIGIN, "plain.problem.origin"},
        {ERR_TOO_MANY_PLACES, "plain.problem.tooMany"},
        {ERR_TOO_MANY_REQUESTS, "plain.problem.tooMany"},
        {ERR_TOKEN_REQUIRED, "plain.problem.noPlace"},
        {ERR_TOKEN_INVALID, "plain.problem.noPlace"},
        {ERR_TOKEN_EXPIRED, "plain.problem.noPlace"},
        {ERR_NOT_ACTIVE, "plain.problem.notActive"},
        {ERR_SOLD_OUT, "plain.problem.taken"},
        {ERR_SEAT_TAKEN, "plain.problem.taken"},
        {ERR_CONFLICT, "plain.problem.taken"},
        {ERR_SECTION_CLOSED, "plain.problem.taken"},
        {ERR_LIMIT_EXCEEDED, "plain.problem.limit"},
        {ERR_HOLD_LIMIT, "plain.problem.limit"},
        {ERR_HOLD_EXPIRED, "plain.problem.holdExpired"},
        {ERR_RESERVATION_ENDED, "plain.problem.holdExpired"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].problem == problem) return rows[i].key;
    return err_status(problem) >= 500 ? "plain.problem.unavailable" : "plain.problem.other";
}

/* A page that waits must go on loading itself after a problem that passes, or its user would count
 * as gone. To load it again sends no form: it is a GET. */
int64_t plain_view_problem_reload_s(enum err problem) {
    bool passes = err_status(problem) >= 500 || problem == ERR_TOO_MANY_REQUESTS;
    return passes ? RELOAD_S_UNAVAILABLE : 0;
}

void plain_view_add_problem(const struct plain_view *v, enum err problem, struct buf *out) {
    add_head(v, out);
    add_notice(v, out, problem_key(problem));
    if (v->type.len > 0) {
        buf_add(out, STR("<p><a href=\""));
        add_escaped_url(v, STR(""), out);
        buf_add(out, STR("\">"));
        add_text(v, out, "plain.back");
        buf_add(out, STR("</a></p>\n"));
    }
    add_foot(v, out);
}
