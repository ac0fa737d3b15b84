/* Blocking connections to the master (blocking.h). */
#include "hot/redis/blocking.h"

#include "hot/redis/handshake.h"

static redisContext *blocking_connect_host(const struct redis_host *host, int64_t step_ms,
                                           struct buf *why) {
    struct timeval step = {.tv_sec = step_ms / 1000, .tv_usec = step_ms % 1000 * 1000};
    redisContext *c = redisConnectWithTimeout(host->name, host->port, step);
    if (c != NULL && c->err == 0 && redisSetTimeout(c, step) == REDIS_OK) return c;
    buf_add(why, c == NULL ? STR("no memory") : str_of(c->errstr));
    if (c != NULL) redisFree(c);
    return NULL;
}

/* NULL: it did not answer. */
static redisReply *blocking_next_reply(redisContext *c, struct buf *why) {
    void *reply = NULL;
    if (redisGetReply(c, &reply) == REDIS_OK) return reply;
    buf_add(why, str_of(c->errstr));
    return NULL;
}

static bool blocking_handshake(redisContext *c, const struct redis_address *address,
                               struct handshake *g, struct buf *why) {
    struct buf commands = {0};
    handshake_begin(g, address, &commands);
    redisAppendFormattedCommand(c, commands.bytes, commands.len);
    buf_deinit(&commands);
    enum handshake_answer answer = HANDSHAKE_MORE;
    while (answer == HANDSHAKE_MORE) {
        redisReply *reply = blocking_next_reply(c, why);
        if (reply == NULL) return false;
        answer = handshake_read(g, reply, why);
        freeReplyObject(reply);
    }
    return answer == HANDSHAKE_DONE;
}

static redisContext *blocking_connect_master(const struct redis_address *address,
                                             const struct redis_host *master, int64_t step_ms,
                                             char identity[HOT_IDENTITY_BYTES], struct buf *why) {
    redisContext *c = blocking_connect_host(master, step_ms, why);
    if (c == NULL) return NULL;
    struct handshake g;
    if (blocking_handshake(c, address, &g, why)) {
        memcpy(identity, g.identity, HOT_IDENTITY_BYTES);
        return c;
    }
    redisFree(c);
    return NULL;
}

static bool blocking_ask_sentinel(const struct redis_address *address,
                                  const struct redis_host *sentinel, int64_t step_ms,
                                  struct redis_host *master, struct buf *why) {
    redisContext *c = blocking_connect_host(sentinel, step_ms, why);
    if (c == NULL) return false;
    struct buf question = {0};
    sentinel_ask(address, &question);
    redisAppendFormattedCommand(c, question.bytes, question.len);
    buf_deinit(&question);
    redisReply *reply = blocking_next_reply(c, why);
    bool knows = reply != NULL && sentinel_read(reply, master, why);
    freeReplyObject(reply);
    redisFree(c);
    return knows;
}

redisContext *blocking_connect(const struct redis_address *address, int64_t step_ms,
                               char identity[HOT_IDENTITY_BYTES], struct buf *why) {
    if (!address->sentinel)
        return blocking_connect_master(address, &address->hosts[0], step_ms, identity, why);
    for (size_t i = 0; i < address->host_count; i++) {
        buf_clear(why);
        struct redis_host master;
        if (!blocking_ask_sentinel(address, &address->hosts[i], step_ms, &master, why)) continue;
        redisContext *c = blocking_connect_master(address, &master, step_ms, identity, why);
        if (c != NULL) return c;
    }
    return NULL;
}
