/*
 * Incarnations of the hot store, and the settings that nodes share. The row 'hot' of epochs names
 * the incarnation in force. Every transaction that writes a record of an incarnation locks that row
 * (FOR SHARE), so the node that begins the next one waits until all of these have ended, and none
 * commits later. The node that rebuilds the store holds an advisory lock on a private connection,
 * so the lock ends with the node. The server closes the connection of a node that is silent for
 * PG_SILENT_MS.
 */
#include <assert.h>

#include "base/log.h"
#include "base/mem.h"
#include "ledger/postgres_internal.h"

uint32_t pg_record_epoch(const struct ledger_record *r) {
    switch (r->kind) {
    case LEDGER_ENTER:
        return ((const struct ledger_enter *)r)->epoch;
    case LEDGER_ADMIT:
        return ((const struct ledger_admit *)r)->epoch;
    case LEDGER_HOLD:
        return ((const struct ledger_hold *)r)->epoch;
    default:
        return 0;
    }
}

struct pg_cluster {
    struct pg db;
    struct outage *outage;
    struct pg_settings settings;
    bool joined; /* this process is a node */
};

struct pg_cluster *pg_cluster_new(const struct postgres_ledger_options *o) {
    struct pg_cluster *l = mem_new(sizeof *l);
    l->outage = o->outage;
    l->settings = (struct pg_settings){.url = o->url,
                                       .wait_ms = o->deadline_ms * 2,
                                       .lock_timeout_ms = o->deadline_ms,
                                       .statement_timeout_ms = o->deadline_ms,
                                       .idle_timeout_ms = PG_SILENT_MS,
                                       .read_only = o->read_only};
    return l;
}

void pg_cluster_free(struct pg_cluster *l) {
    pg_close(&l->db);
    mem_free(l);
}

static enum err pg_cluster_failed(struct pg_cluster *l) {
    if (!pg_note_outage(l->outage, &l->db, l->settings.url))
        log_error(msg("cannot read or write the redis epoch in the ledger"),
                  kv("error", l->db.failure.text));
    pg_rollback(&l->db);
    return ERR_LEDGER_FAILED;
}

/* As long as this connection lasts, others know that a node runs. */
static bool share_cluster(struct pg *db) {
    return pg_run(db, NULL, "SELECT pg_advisory_lock_shared($1::int, 0)",
                  pg_cell_i64(PG_LOCK_CLUSTER));
}

static enum err connect(struct pg_cluster *l) {
    if (pg_alive(&l->db)) return ERR_OK;
    struct buf why = {0};
    pg_close(&l->db);
    bool open = pg_open(&l->db, &l->settings, &why);
    if (open && l->joined) share_cluster(&l->db);
    if (!open) pg_note_outage(l->outage, &l->db, l->settings.url);
    buf_deinit(&why);
    return open ? ERR_OK : ERR_LEDGER_FAILED;
}

/* ---- joining ---- */

struct cluster_join {
    const struct cluster_settings *own;
    char secret[64]; /* of the node that started last; empty: there was none */
    char secret_previous[64];
    char time_zone[256];
    char users_auth[16]; /* empty: likewise, or it is of an earlier version */
    char pass_key[64];
    char admin_key[64];
    char users_key[64];
    char shop_key[64];
};

static bool settings_read(struct pg *db, struct cluster_join *j) {
    struct pg_rows rows;
    if (!pg_query_cells(db, &rows, "SELECT name, value FROM cluster", NULL, 0)) return false;
    bool fits = true;
    while (fits && pg_next(&rows)) {
        str name = pg_str(&rows, 0);
        str value = pg_str(&rows, 1);
        if (str_eq(name, STR("secret"))) fits = str_copy(value, j->secret, sizeof j->secret);
        if (str_eq(name, STR("secret_previous")))
            fits = str_copy(value, j->secret_previous, sizeof j->secret_previous);
        if (str_eq(name, STR("time_zone")))
            fits = str_copy(value, j->time_zone, sizeof j->time_zone);
        if (str_eq(name, STR("users_auth")))
            fits = str_copy(value, j->users_auth, sizeof j->users_auth);
        if (str_eq(name, STR("pass_key"))) fits = str_copy(value, j->pass_key, sizeof j->pass_key);
        if (str_eq(name, STR("admin_key")))
            fits = str_copy(value, j->admin_key, sizeof j->admin_key);
        if (str_eq(name, STR("users_key")))
            fits = str_copy(value, j->users_key, sizeof j->users_key);
        if (str_eq(name, STR("shop_key"))) fits = str_copy(value, j->shop_key, sizeof j->shop_key);
    }
    pg_rows_clear(&rows);
    if (!pg_sound(db)) return false;
    return fits || pg_fail(db, PG_CORRUPT, "a setting of the cluster is too long");
}

static bool is_same_key(const char *a, const char *b) {
    return a[0] != '\0' && str_eq(str_of(a), str_of(b));
}

/* Whether a token that this node or the cluster signs is accepted by the other. */
static bool secrets_overlap(const struct cluster_join *j) {
    const struct cluster_settings *own = j->own;
    return is_same_key(own->secret, j->secret) || is_same_key(own->secret, j->secret_previous) ||
           is_same_key(own->secret_previous, j->secret);
}

static void warn_of_key(const char *setting, const char *own, const char *other) {
    if (other[0] == '\0' || str_eq(str_of(own), str_of(other))) return;
    log_warn(msg("a key is not that of the node which started last; nodes should differ only while "
                 "the key is being replaced"),
             kv("setting", setting));
}

static bool is_same_zone(const struct cluster_join *j) {
    return j->own->time_zone[0] == '\0' || j->time_zone[0] == '\0' ||
           str_eq(str_of(j->own->time_zone), str_of(j->time_zone));
}

/* False, and `why`: not beside the nodes that run. */
static bool settings_agree(const struct cluster_join *j, struct buf *why) {
    if (j->secret[0] != '\0' && !secrets_overlap(j)) {
        buf_add(why, STR("secret_file is not that of the nodes that run: they would refuse this "
                         "node's entry tokens. Use the same file, or name the other key with "
                         "secret_previous_file; to end all tokens at once, stop all nodes first"));
        return false;
    }
    if (!is_same_zone(j)) {
        buf_addf(why,
                 "rankings.time_zone is %s, and %s at the nodes that run: they would count sales "
                 "in other days. To change it, stop all nodes first",
                 j->own->time_zone, j->time_zone);
        return false;
    }
    if (j->users_auth[0] != '\0' && !str_eq(str_of(j->own->users_auth), str_of(j->users_auth))) {
        buf_addf(why,
                 "users.auth is %s, and %s at the nodes that run: they would identify users, and "
                 "decide who may confirm, in other ways. To change it, stop all nodes first",
                 j->own->users_auth, j->users_auth);
        return false;
    }
    return true;
}

static bool setting_write(struct pg *db, const char *name, const char *value) {
    return pg_run(db, NULL,
                  "INSERT INTO cluster(name, value) VALUES ($1, $2)"
                  " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                  pg_cell_text(name), pg_cell_text(value));
}

static bool settings_write(struct pg *db, const struct cluster_join *j) {
    const struct cluster_settings *own = j->own;
    /* Boards of another zone have other days: redis was rebuilt from the ledger. */
    if (!is_same_zone(j) && !pg_exec(db, "UPDATE epochs SET identity = '' WHERE name = 'hot'"))
        return false;
    return setting_write(db, "secret", own->secret) &&
           setting_write(db, "secret_previous", own->secret_previous) &&
           setting_write(db, "pass_key", own->pass_key) &&
           setting_write(db, "admin_key", own->admin_key) &&
           setting_write(db, "users_key", own->users_key) &&
           setting_write(db, "shop_key", own->shop_key) &&
           setting_write(db, "users_auth", own->users_auth) &&
           (own->time_zone[0] == '\0' || setting_write(db, "time_zone", own->time_zone));
}

static enum err join_failed(struct pg *db, struct buf *why) {
    buf_addf(why, "cannot compare the settings with those of other nodes: %s", db->failure.text);
    pg_rollback(db);
    return ERR_LEDGER_FAILED;
}

enum err pg_join(struct pg_cluster *l, const struct cluster_settings *own, struct buf *why) {
    struct cluster_join j = {.own = own};
    struct pg *db = &l->db;
    int64_t is_alone = 0;
    if (connect(l) != ERR_OK) {
        buf_add(why, STR("cannot compare the settings with those of other nodes"));
        return ERR_LEDGER_FAILED;
    }
    if (!pg_exec(db, "BEGIN") ||
        !pg_run(db, NULL, "SELECT pg_advisory_xact_lock($1::int, 1)",
                pg_cell_i64(PG_LOCK_CLUSTER)) ||
        !pg_number(db, &is_alone, "SELECT pg_try_advisory_lock($1::int, 0)",
                   pg_cell_i64(PG_LOCK_CLUSTER)) ||
        !settings_read(db, &j))
        return join_failed(db, why);
    if (is_alone == 0 && !settings_agree(&j, why)) {
        pg_rollback(db);
        return ERR_CONFLICT;
    }
    if (!settings_write(db, &j) || !share_cluster(db) ||
        (is_alone != 0 && !pg_run(db, NULL, "SELECT pg_advisory_unlock($1::int, 0)",
                                  pg_cell_i64(PG_LOCK_CLUSTER))) ||
        !pg_exec(db, "COMMIT"))
        return join_failed(db, why);
    l->joined = true;
    if (is_alone == 0) {
        warn_of_key("pass_key_file", own->pass_key, j.pass_key);
        warn_of_key("admin_key_file", own->admin_key, j.admin_key);
        warn_of_key("users.key_file", own->users_key, j.users_key);
        warn_of_key("shop.key_file", own->shop_key, j.shop_key);
    }
    return ERR_OK;
}

void pg_leave(struct pg_cluster *l, const struct uuid *node) {
    if (pg_alive(&l->db)) pg_node_leave(&l->db, node);
}

/* ---- incarnations of the hot store ---- */

/* A incarnation that was never begun has epoch 0 and no identity. */
static bool incarnation_read(struct pg *db, const char *sql, struct hot_incarnation *out) {
    struct pg_rows rows;
    *out = (struct hot_incarnation){0};
    if (!pg_query_cells(db, &rows, sql, NULL, 0)) return false;
    bool fits = true;
    if (pg_next(&rows)) {
        out->epoch = (uint32_t)pg_i64(&rows, 0);
        fits = str_copy(pg_str(&rows, 1), out->identity, sizeof out->identity) &&
               str_copy(pg_str(&rows, 2), out->ledger, sizeof out->ledger);
    }
    pg_rows_clear(&rows);
    if (!pg_sound(db)) return false;
    return fits || pg_fail(db, PG_CORRUPT, "the hot store's identity is too long");
}

enum err pg_incarnation(struct pg_cluster *l, struct hot_incarnation *out) {
    /* An idle connection may have been lost without a word: then the second try has a new one. */
    for (int tries = 0; tries < 2; tries++) {
        enum err e = connect(l);
        if (e != ERR_OK) return e;
        if (incarnation_read(&l->db,
                             "SELECT coalesce((SELECT number FROM epochs WHERE name = 'hot'), 0),"
                             " coalesce((SELECT identity FROM epochs WHERE name = 'hot'), ''),"
                             " coalesce((SELECT value FROM cluster WHERE name = 'ledger'), '')",
                             out))
            return ERR_OK;
        if (pg_alive(&l->db)) break;
    }
    return pg_cluster_failed(l);
}

static bool try_lock(struct pg *db, bool *ours) {
    int64_t got = 0;
    bool ok = pg_number(db, &got, "SELECT pg_try_advisory_lock($1::int, 0)",
                        pg_cell_i64(PG_LOCK_INCARNATION));
    *ours = got != 0;
    return ok;
}

static bool pg_cluster_unlock(struct pg *db) {
    return pg_run(db, NULL, "SELECT pg_advisory_unlock($1::int, 0)",
                  pg_cell_i64(PG_LOCK_INCARNATION));
}

static bool is_same(const struct hot_incarnation *a, const struct hot_incarnation *b) {
    return a->epoch == b->epoch && str_eq(str_of(a->identity), str_of(b->identity));
}

/* *epoch stays 0 when `before` is no longer the last one. */
static bool pg_epoch_write_next(struct pg *db, const struct hot_incarnation *before,
                                int64_t *epoch) {
    struct hot_incarnation last;
    if (!pg_exec(db, "BEGIN") ||
        !incarnation_read(
            db, "SELECT number, identity, '' FROM epochs WHERE name = 'hot' FOR UPDATE", &last))
        return false;
    if (!is_same(&last, before)) return pg_exec(db, "ROLLBACK");
    if (before->epoch >= EPOCH_MAX) return pg_fail(db, PG_CORRUPT, "there are no more epochs");
    return pg_number_cells(db, epoch,
                           "INSERT INTO epochs(name, number) VALUES ('hot', 1)"
                           " ON CONFLICT (name) DO UPDATE"
                           " SET number = epochs.number + 1, identity = '' RETURNING number",
                           NULL, 0) &&
           pg_exec(db, "COMMIT");
}

enum err pg_rebuild_begin(struct pg_cluster *l, const struct hot_incarnation *before,
                          uint32_t *epoch, bool *is_ours) {
    int64_t number = 0;
    struct hot_incarnation last;
    *is_ours = false;
    enum err e = pg_incarnation(l, &last);
    if (e != ERR_OK || !is_same(&last, before)) return e;
    if (!try_lock(&l->db, is_ours)) return pg_cluster_failed(l);
    if (!*is_ours) return ERR_OK;
    *is_ours = false;
    if (!pg_epoch_write_next(&l->db, before, &number)) {
        e = pg_cluster_failed(l);
        if (pg_alive(&l->db)) pg_cluster_unlock(&l->db);
        return e;
    }
    *is_ours = number == (int64_t)before->epoch + 1;
    *epoch = (uint32_t)number;
    if (!*is_ours && !pg_cluster_unlock(&l->db)) return pg_cluster_failed(l);
    return ERR_OK;
}

enum err pg_rebuild_renew(struct pg_cluster *l) {
    if (!pg_alive(&l->db)) return ERR_LEDGER_FAILED;
    return pg_exec(&l->db, "SELECT 1") ? ERR_OK : ERR_LEDGER_FAILED;
}

enum err pg_rebuild_end(struct pg_cluster *l, const struct hot_incarnation *incarnation) {
    int64_t changed = 0;
    enum err e = connect(l);
    if (e != ERR_OK) return e;
    if (!pg_run(&l->db, &changed,
                "UPDATE epochs SET identity = $2 WHERE name = 'hot' AND number = $1",
                pg_cell_i64(incarnation->epoch), pg_cell_text(incarnation->identity)) ||
        !pg_cluster_unlock(&l->db)) {
        e = pg_cluster_failed(l);
        pg_close(
            &l->db); /* closing releases the lock, so that another node may rebuild the store */
        return e;
    }
    return changed == 1 ? ERR_OK : ERR_RECOVERING;
}
