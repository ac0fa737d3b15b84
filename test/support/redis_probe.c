#include "redis_probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hot/redis/link.h"

#define WAIT_MS 10000

static redisReply *kept;

struct redis_address probe_address(const char *url) {
    struct redis_address a;
    struct buf why = {0};
    if (!redis_address_parse(str_of(url), &a, &why)) fail_msg("%s: %s", url, buf_cstr(&why));
    buf_deinit(&why);
    return a;
}

redisContext *probe_connect(const struct redis_address *address) {
    redisContext *c = redisConnect(address->hosts[0].name, address->hosts[0].port);
    assert_non_null(c);
    if (c->err != 0) fail_msg("the probe: %s", c->errstr);
    return c;
}

static const redisReply *ask(redisContext *c, const char *format, va_list arguments) {
    if (kept != NULL) freeReplyObject(kept);
    kept = redisvCommand(c, format, arguments);
    if (kept == NULL) fail_msg("%s: %s", format, c->errstr);
    if (kept->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", format, kept->str);
    return kept;
}

const redisReply *probe_do(redisContext *c, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const redisReply *reply = ask(c, format, arguments);
    va_end(arguments);
    return reply;
}

int64_t probe_number(redisContext *c, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const redisReply *reply = ask(c, format, arguments);
    va_end(arguments);
    return reply_i64(reply);
}

int64_t probe_info(redisContext *c, const char *name) {
    const char *at = strstr(probe_do(c, "INFO everything")->str, name);
    if (at == NULL || at[strlen(name)] != ':') fail_msg("INFO has no %s", name);
    return strtoll(at + strlen(name) + 1, NULL, 10);
}

void probe_end(redisContext *c) {
    if (kept != NULL) freeReplyObject(kept);
    kept = NULL;
    redisFree(c);
}

void probe_wait(bool (*holds)(void *of), void *of, const char *what) {
    int64_t until = clock_steady_ms() + WAIT_MS;
    while (!holds(of)) {
        if (clock_steady_ms() > until) fail_msg("in vain: %s", what);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}
