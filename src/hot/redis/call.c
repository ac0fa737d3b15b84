/* What is sent, what comes back, and which life that counts in: of link.h, all but the link. */
#include <stdio.h>
#include <stdlib.h>

#include "hot/redis/link.h"

void gate_init(struct gate *g) {
    *g = (struct gate){0};
    pthread_mutex_init(&g->lock, NULL);
}

void gate_deinit(struct gate *g) {
    pthread_mutex_destroy(&g->lock);
}

void gate_set(struct gate *g, const struct hot_life *life) {
    assert(life == NULL || life->epoch > 0);
    pthread_mutex_lock(&g->lock);
    g->life = life == NULL ? (struct hot_life){0} : *life;
    g->turn++;
    pthread_mutex_unlock(&g->lock);
}

struct hot_life gate_look(struct gate *g) {
    pthread_mutex_lock(&g->lock);
    struct hot_life life = g->life;
    pthread_mutex_unlock(&g->lock);
    return life;
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
