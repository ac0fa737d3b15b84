/* Words, limits and states of events and their sections. */
#include "core/event.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/event_page.h"
#include "core/seat_id.h"

const str event_state_words[] = {
#define STATE_WORD(symbol) STR_INIT(#symbol),
    EVENT_STATE_MAP(STATE_WORD)
#undef STATE_WORD
        {NULL, 0},
};

#define WORD(symbol, word) STR_INIT(word),
const str section_mode_words[] = {SECTION_MODE_MAP(WORD){NULL, 0}};
const str section_status_words[] = {SECTION_STATUS_MAP(WORD){NULL, 0}};
const str confirm_by_words[] = {CONFIRM_BY_MAP(WORD){NULL, 0}};
#undef WORD

int word_index(const str *words, str word) {
    for (int i = 0; words[i].at != NULL; i++)
        if (str_eq(words[i], word)) return i;
    return -1;
}

struct event_hours event_hours_of(const struct event *e) {
    return (struct event_hours){e->state, e->opens_at_ms, e->closes_at_ms};
}

bool event_is_over(const struct event_hours *h, int64_t now_ms) {
    return h->closes_at_ms != CLOCK_NONE_MS && now_ms >= h->closes_at_ms;
}

enum event_state event_state_at(const struct event_hours *h, int64_t now_ms) {
    enum event_state state = h->state;
    bool opens_by_itself = h->opens_at_ms != CLOCK_NONE_MS && state != EVENT_CLOSED;
    if (opens_by_itself && now_ms < h->opens_at_ms) state = EVENT_DRAFT;
    if (opens_by_itself && now_ms >= h->opens_at_ms && state == EVENT_DRAFT) state = EVENT_OPEN;
    return state != EVENT_DRAFT && event_is_over(h, now_ms) ? EVENT_CLOSED : state;
}

enum event_state event_effective_state(const struct event *e, int64_t now_ms) {
    struct event_hours hours = event_hours_of(e);
    return event_state_at(&hours, now_ms);
}

enum confirm_by confirm_by_resolve(enum confirm_by set, bool users_are_trusted) {
    if (set != CONFIRM_BY_UNSET) return set;
    return users_are_trusted ? CONFIRM_BY_USER : CONFIRM_BY_SHOP;
}

bool event_is_public(const struct event *e, int64_t now_ms) {
    return e->state != EVENT_DRAFT || event_effective_state(e, now_ms) != EVENT_DRAFT;
}

static bool is_open_at(const struct event *e, int64_t now_ms) {
    return event_effective_state(e, now_ms) == EVENT_OPEN;
}

int64_t event_opened_ms(const struct event *before, const struct event *after, int64_t now_ms) {
    if (before != NULL && before->opened_at_ms != CLOCK_NONE_MS) return before->opened_at_ms;
    /* No act opened it: its time had come. */
    if (before != NULL && is_open_at(before, now_ms)) return before->opens_at_ms;
    return is_open_at(after, now_ms) ? now_ms : CLOCK_NONE_MS;
}

int64_t event_sale_opens_ms(const struct event *e) {
    return e->opened_at_ms != CLOCK_NONE_MS ? e->opened_at_ms : e->opens_at_ms;
}

static size_t bytes_with_sections(const struct event *e, size_t section_count) {
    return sizeof *e + section_count * sizeof *e->sections + e->page.len + e->return_hosts.len +
           e->notice.len;
}

/* Returns where the next text goes. */
static char *place_text(str *text, char *at) {
    if (text->len > 0) memcpy(at, text->at, text->len);
    text->at = at;
    return at + text->len;
}

/* All of `like` but its sections. */
static struct event *event_lay_out(void *memory, const struct event *like, size_t section_count) {
    struct event *e = memory;
    *e = *like;
    e->section_count = section_count;
    e->sections = (struct section *)(e + 1);
    char *at = (char *)(e->sections + section_count);
    at = place_text(&e->page, at);
    at = place_text(&e->return_hosts, at);
    place_text(&e->notice, at);
    return e;
}

struct event *event_new_like(const struct event *like, size_t section_count) {
    return event_lay_out(mem_new(bytes_with_sections(like, section_count)), like, section_count);
}

struct event *event_new(size_t section_count) {
    return event_new_like(&(struct event){0}, section_count);
}

size_t event_bytes(const struct event *e) {
    return bytes_with_sections(e, e->section_count);
}

struct event *event_copy_to(void *memory, const struct event *e) {
    struct event *copy = event_lay_out(memory, e, e->section_count);
    if (e->section_count > 0)
        memcpy(copy->sections, e->sections, e->section_count * sizeof *e->sections);
    return copy;
}

struct event event_without_texts(const struct event *e) {
    struct event bare = *e;
    bare.page = bare.return_hosts = bare.notice = STR("");
    return bare;
}

struct event *event_copy(const struct event *e) {
    return event_copy_to(mem_new(event_bytes(e)), e);
}

int64_t event_capacity(const struct event *e) {
    int64_t capacity = 0;
    for (size_t i = 0; i < e->section_count; i++) capacity += e->sections[i].capacity;
    return capacity;
}

static bool is_sold_out(const struct event *e) {
    int64_t taken = 0;
    for (size_t i = 0; i < e->section_count; i++)
        taken += e->sections[i].held + e->sections[i].confirmed;
    return taken > 0 && taken >= event_capacity(e);
}

bool event_sells_out(const struct event *before, const struct event *after) {
    return before != NULL && !is_sold_out(before) && is_sold_out(after);
}

const struct section *event_section(const struct event *e, str id) {
    for (size_t i = 0; i < e->section_count; i++)
        if (str_eq(str_of(e->sections[i].id), id)) return &e->sections[i];
    return NULL;
}

static bool is_within(int64_t value, int64_t max) {
    return value >= 0 && value <= max;
}

static bool rules_ok(const struct queue_rules *q) {
    return is_within(q->max_waiting, MAX_WAITING_MAX) && is_within(q->max_active, MAX_ACTIVE_MAX) &&
           is_within(q->entry_batch_size, ENTRY_BATCH_MAX) &&
           is_within(q->entry_interval_s, ENTRY_INTERVAL_S_MAX) &&
           is_within(q->active_ttl_s, ACTIVE_TTL_S_MAX) && is_within(q->grace_s, GRACE_S_MAX) &&
           is_within(q->token_ttl_s, TOKEN_TTL_S_MAX);
}

bool event_ok(const struct event *e) {
    return e->version > 0 && is_within(e->max_per_user, PER_USER_MAX) &&
           is_within(e->hold_s, HOLD_S_MAX) && is_within(e->rehold_s, REHOLD_S_MAX) &&
           is_within(e->max_holds_per_stay, HOLDS_PER_STAY_MAX) && rules_ok(&e->queue) &&
           event_name_ok(str_of(e->type), EVENT_TYPE_BYTES_MAX) &&
           event_name_ok(str_of(e->id), EVENT_ID_BYTES_MAX) && clock_writable(e->opens_at_ms) &&
           clock_writable(e->closes_at_ms) && clock_writable(e->starts_at_ms) &&
           clock_writable(e->created_at_ms) && clock_writable(e->updated_at_ms) &&
           clock_writable(e->opened_at_ms) && e->page.len <= PAGE_BYTES_MAX &&
           return_hosts_ok(e->return_hosts) && prose_ok(e->notice, NOTICE_CHARS_MAX);
}

bool section_ok(const struct section *s) {
    return is_within(s->price, PRICE_MAX) && s->key > 0 && s->key <= SEAT_ID_SECTION_KEY_MAX &&
           s->capacity > 0 && s->capacity <= SECTION_CAPACITY_MAX && s->held >= 0 &&
           s->confirmed >= 0 && s->held <= s->capacity && s->confirmed <= s->capacity - s->held;
}

int64_t section_available(const struct section *s) {
    int64_t taken = s->held + s->confirmed;
    return taken < s->capacity ? s->capacity - taken : 0;
}

bool event_name_ok(str name, size_t bytes_max) {
    /* A path of dots alone is rewritten by browsers and proxies. */
    return str_is_name(name, bytes_max) && !str_eq(name, STR(".")) && !str_eq(name, STR(".."));
}

bool event_currency_ok(str currency) {
    if (currency.len != 3) return false;
    for (size_t i = 0; i < 3; i++)
        if (currency.at[i] < 'A' || currency.at[i] > 'Z') return false;
    return true;
}

str event_path(str type, str id, char out[EVENT_PATH_BYTES]) {
    if (!event_name_ok(type, EVENT_TYPE_BYTES_MAX) || !event_name_ok(id, EVENT_ID_BYTES_MAX))
        return (str){out, 0};
    memcpy(out, type.at, type.len);
    out[type.len] = '/';
    memcpy(out + type.len + 1, id.at, id.len);
    out[type.len + 1 + id.len] = '\0';
    return (str){out, type.len + 1 + id.len};
}
