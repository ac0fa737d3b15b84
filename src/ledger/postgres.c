/* Opens and closes the PostgreSQL ledger; routes each record to the threads that handle it. */
#include "ledger/postgres.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/postgres_internal.h"

/* Changes of events may take long, because a million seats are a million rows, but they consist of
 * short steps, each with this deadline. A change that waits for another one has more time. */
#define ACTS_DEADLINE_MS 5000
#define ACTS_QUEUE_WAIT_MS 60000

struct postgres_ledger {
    struct ledger port;
    struct postgres_ledger_options options; /* with the defaults set */
    struct postgres_ledger_options acts_options;
    struct outage outage;
    char *url;
    struct pg_epoch opening;
    _Atomic int64_t depth; /* submitted and not yet handed back */
    struct pg_pool *readers;
    struct pg_cluster *cluster;
    /* Unused when read_only: */
    struct pg_writer writer;
    struct pg_pool *pool;    /* holds of `seat` sections, and what nodes say of themselves */
    struct pg_pool *waiters; /* records that wait for a lock */
    struct pg_pool *acts;    /* of administrators: one after the other, and beside all else */
    struct pg_retention *retention;
};

static struct postgres_ledger *postgres_of(struct ledger *l) {
    return CONTAINER_OF(l, struct postgres_ledger, port);
}

bool pg_note_outage(struct outage *o, const struct pg *db, const char *url) {
    if (pg_alive(db) || o == NULL) return false;
    struct buf address = {0};
    pg_address(url, &address);
    outage_lost(o, buf_cstr(&address), db->failure.text);
    buf_deinit(&address);
    return true;
}

/* --- submitting --- */

static enum err put_hold(struct postgres_ledger *p, struct ledger_record *r) {
    switch (((const struct ledger_hold *)r)->wanted->strategy) {
    case STRATEGY_OPTIMISTIC:
    case STRATEGY_DISTRIBUTED_LOCK:
        return pg_pool_put(p->pool, r);
    case STRATEGY_PESSIMISTIC:
        return pg_pool_put(p->waiters, r);
    default:
        return pg_writer_put(&p->writer, r);
    }
}

static enum err postgres_put(struct postgres_ledger *p, struct ledger_record *r) {
    switch (r->kind) {
    case LEDGER_HOLD:
        return put_hold(p, r);
    case LEDGER_EVENT_PUT:
    case LEDGER_EVENT_DELETE:
    case LEDGER_ACT:
        return pg_pool_put(p->acts, r);
    case LEDGER_FACTS_RELAYED:
    case LEDGER_FACTS_PUBLISH:
    case LEDGER_NODE_REPORT:
    case LEDGER_REQUEST_LEASE:
    case LEDGER_NODES_DROP:
        return pg_pool_put(p->pool, r);
    default:
        return pg_writer_put(&p->writer, r);
    }
}

static enum err postgres_submit(struct ledger *l, struct ledger_record *r) {
    struct postgres_ledger *p = postgres_of(l);
    assert(!p->options.read_only && !ledger_kind_is_asked(r->kind));
    /* Counted first: it may be handed back before put returns. */
    atomic_fetch_add(&p->depth, 1);
    enum err refused = postgres_put(p, r);
    if (refused != ERR_OK) atomic_fetch_sub(&p->depth, 1);
    return refused;
}

static enum err postgres_ask(struct ledger *l, struct ledger_record *r) {
    assert(ledger_kind_is_asked(r->kind));
    return pg_pool_put(postgres_of(l)->readers, r);
}

/* --- long reads: on a separate connection, for one call --- */

static enum err postgres_open_reader(struct postgres_ledger *p, struct pg *db) {
    struct buf why = {0};
    struct pg_settings s = {.url = p->url, .read_only = true, .reads_much = true};
    enum err failed = ERR_OK;
    if (!pg_open(db, &s, &why)) {
        pg_note_outage(&p->outage, db, p->url);
        failed = ERR_LEDGER_FAILED;
    }
    buf_deinit(&why);
    return failed;
}

static enum err postgres_close_reader(struct postgres_ledger *p, struct pg *db, bool ok) {
    ok = ok && pg_sound(db);
    if (!ok && !pg_note_outage(&p->outage, db, p->url))
        log_error(
            msg("cannot read the whole ledger; the start, rebuild or audit that needs it fails"),
            PG_SERVER(db), kv("error", db->failure.text));
    pg_close(db);
    return ok ? ERR_OK : ERR_LEDGER_FAILED;
}

static enum err postgres_load(struct ledger *l, const struct ledger_reader *reader) {
    struct pg db;
    enum err failed = postgres_open_reader(postgres_of(l), &db);
    if (failed != ERR_OK) return failed;
    return postgres_close_reader(postgres_of(l), &db, pg_load(&db, reader));
}

static enum err postgres_check(struct ledger *l, bool server_runs,
                               void (*on_finding)(void *, const struct ledger_finding *),
                               void *to) {
    struct pg db;
    enum err failed = postgres_open_reader(postgres_of(l), &db);
    if (failed != ERR_OK) return failed;
    return postgres_close_reader(postgres_of(l), &db,
                                 pg_check_all(&db, server_runs, clock_wall_ms(), on_finding, to));
}

/* --- the rest of the table --- */

static uint32_t postgres_epoch(struct ledger *l) {
    return postgres_of(l)->opening.epoch;
}

static struct ledger_generation postgres_generation(struct ledger *l) {
    return postgres_of(l)->opening.generation; /* zeroes when read_only */
}

static enum err postgres_join(struct ledger *l, const struct cluster_settings *own,
                              struct buf *why) {
    return pg_join(postgres_of(l)->cluster, own, why);
}

static void postgres_leave(struct ledger *l, const struct uuid *node) {
    pg_leave(postgres_of(l)->cluster, node);
}

static enum err incarnation(struct ledger *l, struct hot_incarnation *out) {
    return pg_incarnation(postgres_of(l)->cluster, out);
}

static enum err rebuild_begin(struct ledger *l, const struct hot_incarnation *before,
                              uint32_t *number, bool *is_ours) {
    return pg_rebuild_begin(postgres_of(l)->cluster, before, number, is_ours);
}

static enum err rebuild_renew(struct ledger *l) {
    return pg_rebuild_renew(postgres_of(l)->cluster);
}

static enum err rebuild_end(struct ledger *l, const struct hot_incarnation *ended) {
    return pg_rebuild_end(postgres_of(l)->cluster, ended);
}

static void postgres_health(struct ledger *l, struct ledger_health *out) {
    struct postgres_ledger *p = postgres_of(l);
    *out = (struct ledger_health){0};
    if (p->options.read_only) return;
    out->writable = atomic_load(&p->writer.writable);
    out->read_only = atomic_load(&p->writer.read_only);
    out->queue_depth = atomic_load(&p->depth);
}

static void postgres_release(struct postgres_ledger *p) {
    outage_deinit(&p->outage);
    mem_free(p->url);
    mem_free(p);
}

static void postgres_close(struct ledger *l) {
    struct postgres_ledger *p = postgres_of(l);
    if (!p->options.read_only) {
        if (p->retention != NULL) pg_retention_stop(p->retention);
        /* The waiters last: the others pass records on to them. */
        pg_writer_stop(&p->writer);
        pg_pool_stop(p->pool);
        pg_pool_stop(p->acts);
        pg_pool_stop(p->waiters);
        assert(atomic_load(&p->depth) == 0);
    }
    pg_pool_stop(p->readers);
    pg_cluster_free(p->cluster);
    postgres_release(p);
}

static const struct ledger_ops ops = {
    .submit = postgres_submit,
    .ask = postgres_ask,
    .load = postgres_load,
    .check = postgres_check,
    .epoch = postgres_epoch,
    .generation = postgres_generation,
    .join = postgres_join,
    .leave = postgres_leave,
    .incarnation = incarnation,
    .rebuild_begin = rebuild_begin,
    .rebuild_renew = rebuild_renew,
    .rebuild_end = rebuild_end,
    .health = postgres_health,
    .close = postgres_close,
};

/* --- opening --- */

static void postgres_set_default(int64_t *number, int64_t value) {
    assert(*number >= 0);
    if (*number == 0) *number = value;
}

static void set_options(struct postgres_ledger *p, const struct postgres_ledger_options *o) {
    outage_init(&p->outage, "postgresql",
                "nothing can be entered, reserved, confirmed or cancelled; positions are shown");
    p->options = *o;
    p->options.outage = &p->outage;
    p->options.url = p->url = mem_copy_str(str_of(o->url));
    postgres_set_default(&p->options.queue_max, 65536);
    postgres_set_default(&p->options.batch_max, 1024);
    postgres_set_default(&p->options.asks_max, 65536);
    postgres_set_default(&p->options.deadline_ms, 5000);
    postgres_set_default(&p->options.pessimistic_wait_ms, 10000);
    postgres_set_default(&p->options.retention_interval_ms, 2000);
    postgres_set_default(&p->options.retention_pause_ms, 600000);
    postgres_set_default(&p->options.queue_wait_ms, p->options.deadline_ms);
    p->acts_options = p->options;
    p->acts_options.deadline_ms = ACTS_DEADLINE_MS;
    p->acts_options.pessimistic_wait_ms = ACTS_DEADLINE_MS; /* no holds are among them */
    p->acts_options.queue_wait_ms = ACTS_QUEUE_WAIT_MS;
}

/* While another node brings the schema up to date, this one waits, however long that takes. */
static enum err postgres_prepare(struct postgres_ledger *p, struct pg *db, struct buf *why) {
    int64_t wait_ms = db->wait_ms;
    db->wait_ms = 0;
    enum err failed = pg_schema_migrate(db, clock_wall_ms(), why);
    db->wait_ms = wait_ms;
    return failed == ERR_OK ? pg_epoch_begin(db, &p->options, &p->opening, why) : failed;
}

static enum err start_writing(struct postgres_ledger *p, struct buf *why) {
    const struct postgres_ledger_options *o = &p->options;
    struct pg_session *s = &p->writer.session;
    pg_session_init(s, o, false, o->batch_max);
    enum err failed = pg_open(&s->db, &s->settings, why) ? ERR_OK : ERR_LEDGER_FAILED;
    if (failed == ERR_OK) failed = postgres_prepare(p, &s->db, why);
    if (failed != ERR_OK) {
        pg_session_deinit(s);
        return failed;
    }
    p->waiters = pg_pool_start("ledger wait", o, PG_WAITER_THREADS, NULL, &p->depth);
    p->pool = pg_pool_start("ledger pool", o, PG_POOL_THREADS, p->waiters, &p->depth);
    p->acts = pg_pool_start("ledger acts", &p->acts_options, 1, NULL, &p->depth);
    pg_writer_start(&p->writer, o, p->waiters, &p->depth);
    p->retention = pg_retention_start(o);
    return ERR_OK;
}

static enum err postgres_expect_schema(struct postgres_ledger *p, struct buf *why) {
    struct pg db;
    struct pg_settings s = {.url = p->url, .wait_ms = p->options.deadline_ms, .read_only = true};
    if (!pg_open(&db, &s, why)) return ERR_LEDGER_FAILED;
    enum err failed = pg_schema_expect(&db, why);
    pg_close(&db);
    return failed;
}

enum err postgres_ledger_open(const struct postgres_ledger_options *o, struct ledger **out,
                              struct buf *why) {
    struct postgres_ledger *p = mem_new(sizeof *p);
    p->port.ops = &ops;
    set_options(p, o);
    enum err failed = o->read_only ? postgres_expect_schema(p, why) : start_writing(p, why);
    if (failed != ERR_OK) {
        postgres_release(p);
        return failed;
    }
    p->readers = pg_readers_start(&p->options);
    p->cluster = pg_cluster_new(&p->options);
    *out = &p->port;
    return ERR_OK;
}
