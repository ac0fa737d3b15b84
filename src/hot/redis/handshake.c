/* The first commands on a connection to Redis or to a Sentinel (handshake.h). */
#include "hot/redis/handshake.h"

#include <stdio.h>

#include "hot/redis/link.h"

enum { STEP_AUTH, STEP_SELECT, STEP_NAME, STEP_ROLE, STEP_SERVER, STEP_REPLICATION };

static void handshake_add_command(struct buf *out, const str *parts, size_t count) {
    struct call c = {0};
    call_begin_command(&c);
    for (size_t i = 0; i < count; i++) call_add(&c, parts[i]);
    call_write(&c, 0, out);
    buf_deinit(&c.command);
}

static void handshake_add_step(struct handshake *g, int step, struct buf *out, const str *parts,
                               size_t count) {
    assert(g->count < HANDSHAKE_STEPS_MAX);
    handshake_add_command(out, parts, count);
    g->ends[g->count] = out->len;
    g->steps[g->count++] = step;
}

#define ADD_STEP(g, step, out, ...)                                                                \
    handshake_add_step(g, step, out, (const str[]){__VA_ARGS__},                                   \
                       sizeof((const str[]){__VA_ARGS__}) / sizeof(str))

void handshake_begin(struct handshake *g, const struct redis_address *a, struct buf *out) {
    *g = (struct handshake){0};
    if (a->user[0] != '\0')
        ADD_STEP(g, STEP_AUTH, out, STR("AUTH"), str_of(a->user), str_of(a->password));
    else if (a->password[0] != '\0')
        ADD_STEP(g, STEP_AUTH, out, STR("AUTH"), str_of(a->password));
    if (a->database != 0) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)a->database);
        ADD_STEP(g, STEP_SELECT, out, STR("SELECT"), str_of(number));
    }
    ADD_STEP(g, STEP_NAME, out, STR("CLIENT"), STR("SETNAME"), STR("admitone"));
    ADD_STEP(g, STEP_ROLE, out, STR("ROLE"));
    ADD_STEP(g, STEP_SERVER, out, STR("INFO"), STR("server"));
    ADD_STEP(g, STEP_REPLICATION, out, STR("INFO"), STR("replication"));
}

/* The value of a line "name:value" of INFO. */
static bool handshake_find_info(str info, str name, char *out, size_t size) {
    str line;
    while (str_split(&info, '\n', &line)) {
        if (!str_starts(line, name)) continue;
        str value = str_skip(line, name.len);
        while (value.len > 0 && value.at[value.len - 1] == '\r') value.len--;
        return value.len > 0 && str_copy(value, out, size);
    }
    return false;
}

static bool handshake_check_step(struct handshake *g, int step, const redisReply *r,
                                 struct buf *why) {
    if (step == STEP_ROLE && !str_eq(reply_str(reply_at(r, 0)), STR("master"))) {
        buf_add(why, STR("READONLY it is not a master"));
        return false;
    }
    if (step == STEP_SERVER &&
        !handshake_find_info(reply_str(r), STR("run_id:"), g->run_id, sizeof g->run_id)) {
        buf_add(why, STR("its INFO has no run_id"));
        return false;
    }
    if (step == STEP_REPLICATION &&
        !handshake_find_info(reply_str(r), STR("master_replid:"), g->replication_id,
                             sizeof g->replication_id)) {
        buf_add(why, STR("its INFO has no master_replid"));
        return false;
    }
    return true;
}

enum handshake_answer handshake_read(struct handshake *g, const redisReply *r, struct buf *why) {
    assert(g->answered < g->count);
    int step = g->steps[g->answered++];
    if (r->type == REDIS_REPLY_ERROR) {
        buf_add(why, reply_str(r));
        return HANDSHAKE_REFUSED;
    }
    if (!handshake_check_step(g, step, r, why)) return HANDSHAKE_REFUSED;
    if (g->answered < g->count) return HANDSHAKE_MORE;
    snprintf(g->identity, sizeof g->identity, "%s/%s", g->run_id, g->replication_id);
    return HANDSHAKE_DONE;
}

void sentinel_ask(const struct redis_address *address, struct buf *out) {
    str parts[] = {STR("SENTINEL"), STR("get-master-addr-by-name"), str_of(address->master)};
    handshake_add_command(out, parts, sizeof parts / sizeof parts[0]);
}

bool sentinel_read(const redisReply *r, struct redis_host *master, struct buf *why) {
    if (r->type == REDIS_REPLY_ERROR) {
        buf_add(why, reply_str(r));
        return false;
    }
    str name = reply_str(reply_at(r, 0));
    int64_t port = reply_i64(reply_at(r, 1));
    if (name.len == 0 || port < 1 || port > UINT16_MAX ||
        !str_copy(name, master->name, sizeof master->name)) {
        buf_add(why, STR("the Sentinel does not know the master"));
        return false;
    }
    master->port = (uint16_t)port;
    return true;
}
