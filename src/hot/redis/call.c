/* What is sent, what comes back, and which incarnation that counts in: of link.h, all but the link.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "hot/redis/link.h"

void redis_status_init(struct redis_status *g) {
    *g = (struct redis_status){0};
    outage_init(
        &g->outage, "redis",
        "entering and reserving are refused; holds can be confirmed and cancelled, positions are "
        "estimates");
    pthread_mutex_init(&g->lock, NULL);
}

void redis_status_deinit(struct redis_status *g) {
    outage_deinit(&g->outage);
    pthread_mutex_destroy(&g->lock);
}

void redis_host_lost(struct outage *o, const struct redis_host *host, const char *why) {
    char address[REDIS_TEXT_BYTES + 16];
    snprintf(address, sizeof address, "%s:%u", host->name, host->port);
    outage_lost(o, address, why);
}

void redis_status_open(struct redis_status *g, const struct hot_incarnation *incarnation) {
    assert(incarnation == NULL || incarnation->epoch > 0);
    pthread_mutex_lock(&g->lock);
    g->incarnation = incarnation == NULL ? (struct hot_incarnation){0} : *incarnation;
    g->version++;
    pthread_mutex_unlock(&g->lock);
}

struct hot_incarnation redis_status_incarnation(struct redis_status *g) {
    pthread_mutex_lock(&g->lock);
    struct hot_incarnation incarnation = g->incarnation;
    pthread_mutex_unlock(&g->lock);
    return incarnation;
}

static const struct {
    const char *code; /* that errors of Redis begin with */
    const char *word;
    const char *meaning;
} states[] = {
#define STATE_ROW(symbol, word, meaning) [HOT_STATE_##symbol] = {#symbol, word, meaning},
    HOT_STATE_MAP(STATE_ROW)
#undef STATE_ROW
};

static void state_set(struct redis_status *g, enum hot_state state) {
    if (atomic_exchange(&g->state, (int)state) == (int)state) return;
    if (state == HOT_STATE_OK)
        log_info(msg("redis accepts writes again"));
    else
        log_warn(msg("redis refuses writes"), kv("state", states[state].word),
                 kv("meaning", states[state].meaning));
}

enum hot_state redis_status_refused(struct redis_status *g, str error) {
    enum hot_state state = HOT_STATE_OK + 1;
    while (state < HOT_STATES && !str_starts(error, str_of(states[state].code))) state++;
    if (state == HOT_STATES) return HOT_STATE_OK;
    atomic_store(&g->refused, true);
    state_set(g, state);
    return state;
}

void redis_status_accepted(struct redis_status *g) {
    if (!atomic_exchange(&g->refused, false)) state_set(g, HOT_STATE_OK);
}

bool redis_status_allows_updates(struct redis_status *g) {
    int state = atomic_load_explicit(&g->state, memory_order_relaxed);
    return state == HOT_STATE_OK || state == HOT_STATE_OOM;
}

void redis_status_lost(struct redis_status *g) {
    atomic_store(&g->state, HOT_STATE_OK);
}

/* Room for what most calls have, so that they don't grow bit by bit. */
#define COMMAND_BYTES 512

static void begin(struct call *c, size_t keys) {
    assert(c->command.len == 0);
    c->expects = false;
    buf_reserve(&c->command, COMMAND_BYTES);
    c->arguments = 0;
    c->keys_left = keys;
    c->epoch_at = 0;
}

static void add_bulk(struct buf *b, str text) {
    buf_add_char(b, '$');
    buf_add_i64(b, (int64_t)text.len);
    buf_add(b, STR("\r\n"));
    buf_add(b, text);
    buf_add(b, STR("\r\n"));
}

static void add_part(struct call *c, str text) {
    add_bulk(&c->command, text);
    c->arguments++;
}

void call_begin(struct call *c, const char *function, size_t keys) {
    begin(c, keys);
    char name[128];
    int len = snprintf(name, sizeof name, REDIS_LIBRARY "_%s", function);
    assert(len > 0 && (size_t)len < sizeof name);
    add_part(c, STR("FCALL"));
    add_part(c, (str){name, (size_t)len});
    char number[24];
    len = snprintf(number, sizeof number, "%zu", keys);
    add_part(c, (str){number, (size_t)len});
    if (keys == 0) c->epoch_at = c->command.len;
}

void call_begin_command(struct call *c) {
    begin(c, 0);
}

void call_add(struct call *c, str text) {
    add_part(c, text);
    if (c->keys_left > 0 && --c->keys_left == 0) c->epoch_at = c->command.len;
}

void call_add_i64(struct call *c, int64_t number) {
    char text[24];
    int len = snprintf(text, sizeof text, "%lld", (long long)number);
    call_add(c, (str){text, (size_t)len});
}

void call_add_u64(struct call *c, uint64_t number) {
    char text[24];
    int len = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    call_add(c, (str){text, (size_t)len});
}

void call_write(const struct call *c, uint32_t epoch, struct buf *out) {
    assert(c->keys_left == 0 && c->arguments > 0);
    str command = buf_str(&c->command);
    buf_reserve(out, command.len + 64);
    buf_add_char(out, '*');
    buf_add_i64(out, (int64_t)c->arguments + (c->epoch_at > 0));
    buf_add(out, STR("\r\n"));
    if (c->epoch_at > 0) {
        char text[16];
        int len = snprintf(text, sizeof text, "%u", epoch);
        buf_add(out, (str){command.at, c->epoch_at});
        add_bulk(out, (str){text, (size_t)len});
    }
    buf_add(out, str_skip(command, c->epoch_at));
    buf_cstr(out); /* wire_send asks for it */
}

int64_t reply_i64(const redisReply *r) {
    if (r == NULL) return 0;
    if (r->type == REDIS_REPLY_INTEGER) return r->integer;
    int64_t number = 0;
    return str_to_i64(reply_str(r), &number) ? number : 0;
}

uint64_t reply_u64(const redisReply *r) {
    if (r == NULL) return 0;
    if (r->type == REDIS_REPLY_INTEGER) return r->integer < 0 ? 0 : (uint64_t)r->integer;
    str text = reply_str(r);
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned)(text.at[i] - '0');
        if (digit > 9) return 0;
        if (__builtin_mul_overflow(number, 10, &number)) return 0;
        if (__builtin_add_overflow(number, digit, &number)) return 0;
    }
    return number;
}

str reply_str(const redisReply *r) {
    if (r == NULL) return (str){0};
    bool is_text = r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS ||
                   r->type == REDIS_REPLY_ERROR;
    return is_text ? (str){r->str, r->len} : (str){0};
}

int64_t text_next_i64(str *rest) {
    str part = {0};
    int64_t number = 0;
    str_split(rest, ' ', &part);
    return str_to_i64(part, &number) ? number : 0;
}

const redisReply *reply_at(const redisReply *r, size_t i) {
    if (r == NULL || r->type != REDIS_REPLY_ARRAY || i >= r->elements) return NULL;
    return r->element[i];
}
