/* Building, sending and ending calls, and reading their replies (call.h). */
#include "hot/redis/call.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "hot/redis/internal.h"

/* Enough for most calls, so that they need not be enlarged several times. */
#define COMMAND_BYTES 512
#define KEY_BYTES (EVENT_PATH_BYTES + 128)

struct call *call_new(struct redis_store *s, void *op) {
    struct call *c = mem_new(sizeof *c);
    c->store = s;
    c->op = op;
    return c;
}

struct call *call_new_for_event(struct redis_store *s, struct hot_op *op) {
    struct call *c = call_new(s, op);
    call_set_event(c, s, op->event_key);
    return c;
}

/* Stands for every event that this node does not know. */
static struct redis_event unknown_event = {.holds = 1};

void call_set_event(struct call *c, struct redis_store *s, int64_t event_key) {
    c->store = s;
    c->event = store_find_event(s, event_key);
    if (c->event != NULL) return;
    c->event = &unknown_event;
    redis_event_hold(c->event);
}

bool call_event_is_unknown(const struct call *c) {
    return c->event == &unknown_event;
}

/* ---- building the command ---- */

static void call_clear(struct call *c, size_t keys) {
    assert(c->command.len == 0);
    c->requires_event = false;
    buf_reserve(&c->command, COMMAND_BYTES);
    c->arguments = 0;
    c->keys_left = keys;
    c->epoch_at = 0;
}

static void call_write_bulk(struct buf *b, str text) {
    buf_add_char(b, '$');
    buf_add_i64(b, (int64_t)text.len);
    buf_add(b, STR("\r\n"));
    buf_add(b, text);
    buf_add(b, STR("\r\n"));
}

static void call_add_part(struct call *c, str text) {
    call_write_bulk(&c->command, text);
    c->arguments++;
}

void call_begin(struct call *c, const char *function, size_t keys) {
    call_clear(c, keys);
    char name[128];
    int len = snprintf(name, sizeof name, REDIS_LIBRARY "_%s", function);
    assert(len > 0 && (size_t)len < sizeof name);
    call_add_part(c, STR("FCALL"));
    call_add_part(c, (str){name, (size_t)len});
    char number[24];
    len = snprintf(number, sizeof number, "%zu", keys);
    call_add_part(c, (str){number, (size_t)len});
    if (keys == 0) c->epoch_at = c->command.len;
}

void call_begin_command(struct call *c) {
    call_clear(c, 0);
}

void call_add(struct call *c, str text) {
    call_add_part(c, text);
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

void call_add_key(struct call *c, const char *family, const struct redis_event *e,
                  const char *part) {
    char key[KEY_BYTES];
    c->requires_event = atomic_load(&e->in_redis);
    int len = snprintf(key, sizeof key, "%s:{%s}%s%s", family, e->tag, part == NULL ? "" : ":",
                       part == NULL ? "" : part);
    assert(len > 0 && (size_t)len < sizeof key);
    call_add(c, (str){key, (size_t)len});
}

void call_add_section_key(struct call *c, int64_t section_key, const char *part) {
    char key[KEY_BYTES];
    int len = snprintf(key, sizeof key, "section:{%s}:%lld:%s", c->event->tag,
                       (long long)section_key, part);
    assert(len > 0 && (size_t)len < sizeof key);
    call_add(c, (str){key, (size_t)len});
}

void call_add_event(struct call *c) {
    call_add_i64(c, c->event->key);
}

void call_add_now(struct call *c, int64_t now_ms) {
    call_add_i64(c, c->store->options.redis_clock ? 0 : now_ms);
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
        call_write_bulk(out, (str){text, (size_t)len});
    }
    buf_add(out, str_skip(command, c->epoch_at));
    buf_cstr(out); /* wire_send needs the '\0' */
}

/* ---- sending, and the end ---- */

static void call_pass_to_link(struct call *c, bool repeats, call_done *done) {
    c->repeats = repeats;
    c->done = done;
    if (!call_event_is_unknown(c)) {
        link_send(redis_worker_mine()->link, c);
        return;
    }
    buf_deinit(&c->command);
    done(c, ERR_EVENT_NOT_FOUND, NULL);
}

void call_send(struct call *c, call_done *done) {
    call_pass_to_link(c, true, done);
}

void call_send_once(struct call *c, call_done *done) {
    call_pass_to_link(c, false, done);
}

void call_note_result(struct call *c, enum err result) {
    struct hot_op *op = c->op;
    op->result = result;
    op->epoch = c->epoch;
}

void *call_free(struct call *c) {
    void *op = c->op;
    if (c->event != NULL) redis_event_release(c->event);
    mem_free(c);
    return op;
}

void *call_end(struct call *c, enum err result) {
    call_note_result(c, result);
    return call_free(c);
}

void call_ignore(struct call *c, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    call_free(c);
}

/* ---- reading replies ---- */

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
