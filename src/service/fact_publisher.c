/* Takes the lease; then, in a loop: reads a page of facts, publishes it, moves the watermark.
 * Ticks renew the lease. */
#include "service/fact_publisher.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "service/fact_feed.h"

/* How often the ledger is asked for new facts, when there were none. */
#define READ_MS 250
#define RENEW_MS 1000
#define LEASE_MS 4000

static void publisher_on_leased(struct task *task), publisher_on_released(struct task *task);
static void publisher_on_read(struct task *task);
static void publisher_on_published(struct fact_batch *b);
static void publisher_read(struct fact_publisher *p);
static void publisher_release(struct fact_publisher *p);

/* ---- the lease ---- */

static void publisher_lease(struct fact_publisher *p) {
    int64_t now_ms = clock_steady_ms();
    if (p->lease.is_asking || now_ms - p->lease.asked_ms < RENEW_MS) return;
    p->lease.record = (struct ledger_facts_publish){
        .record = {.kind = LEDGER_FACTS_PUBLISH, .always = true, .task.run = publisher_on_leased},
        .topic = p->sink->topic,
        .node = p->lease.node,
        .lease_ms = LEASE_MS};
    if (sale_is_after(&p->mark, &p->lease.stored)) p->lease.record.published = p->mark;
    p->lease.is_asking = true;
    p->lease.asked_ms = now_ms;
    atomic_fetch_add(&p->under_way, 1);
    if (ledger_submit(p->ledger, &p->lease.record.record) == ERR_OK) return;
    p->lease.is_asking = false; /* at a later tick */
    atomic_fetch_sub(&p->under_way, 1);
}

/* When the ledger cannot be asked, the node goes on: publishing a fact twice does no harm. */
static void publisher_on_leased(struct task *task) {
    struct fact_publisher *p = CONTAINER_OF(task, struct fact_publisher, lease.record.record.task);
    const struct ledger_facts_publish *r = &p->lease.record;
    p->lease.is_asking = false;
    if (r->record.result == ERR_OK) {
        if (r->is_ours != p->lease.is_ours)
            log_info(msg(r->is_ours ? "this node publishes the facts"
                                    : "another node publishes the facts"),
                     kv_str("topic", p->sink->topic));
        p->lease.is_ours = r->is_ours;
        if (sale_is_after(&r->published, &p->lease.stored)) p->lease.stored = r->published;
        if (r->is_ours && sale_is_after(&r->mark, &p->mark)) p->mark = p->lease.stored = r->mark;
        if (!r->is_ours && !p->is_working) atomic_store(&p->oldest_ms, 0);
    }
    if (p->is_stopping)
        publisher_release(p);
    else
        publisher_read(p);
    atomic_fetch_sub(&p->under_way, 1);
}

/* ---- one page ---- */

static void publisher_end(struct fact_publisher *p) {
    p->is_working = false;
    if (!p->lease.is_ours) atomic_store(&p->oldest_ms, 0);
    if (p->is_stopping) publisher_release(p);
}

static void publisher_read(struct fact_publisher *p) {
    if (p->is_working || p->is_stopping || !p->lease.is_ours) return;
    p->page = (struct ledger_facts_page){
        .record = {.kind = LEDGER_FACTS_PAGE, .task.run = publisher_on_read},
        .after = p->mark,
        .max = FACT_PUBLISHER_PAGE,
        .facts = p->facts};
    p->is_working = true;
    atomic_fetch_add(&p->under_way, 1);
    if (ledger_ask(p->ledger, &p->page.record) == ERR_OK) return;
    p->is_working = false; /* at the next tick */
    atomic_fetch_sub(&p->under_way, 1);
}

/* The key is the event, so that its facts are in one partition, in order. */
static void publisher_write(struct fact_publisher *p) {
    size_t ends[2 * FACT_PUBLISHER_PAGE];
    size_t from = 0;
    buf_clear(&p->text);
    for (size_t i = 0; i < p->page.count; i++) {
        struct fact *f = p->facts[i];
        struct json_out j;
        buf_addf(&p->text, "%s/%s", f->event_type, f->event_id);
        ends[2 * i] = p->text.len;
        json_out_init(&j, &p->text);
        fact_to_json(&j, f);
        json_out_done(&j);
        ends[2 * i + 1] = p->text.len;
        mem_free(f);
    }
    /* Now the text does not move any more. */
    for (size_t i = 0; i < p->page.count; i++) {
        const char *text = p->text.bytes;
        p->messages[i].key = (str){text + from, ends[2 * i] - from};
        p->messages[i].value = (str){text + ends[2 * i], ends[2 * i + 1] - ends[2 * i]};
        from = ends[2 * i + 1];
    }
}

static void publisher_on_read(struct task *task) {
    struct fact_publisher *p = CONTAINER_OF(task, struct fact_publisher, page.record.task);
    bool ok = p->page.record.result == ERR_OK;
    if (ok && p->page.count > 0) {
        atomic_store(&p->oldest_ms, p->facts[0]->at_ms);
        publisher_write(p);
    }
    if (ok && p->page.count > 0 && !p->is_stopping) {
        p->batch = (struct fact_batch){
            .messages = p->messages, .count = p->page.count, .done = publisher_on_published};
        fact_sink_publish(p->sink, &p->batch);
        return;
    }
    if (ok && p->page.count == 0) {
        p->mark = p->page.mark; /* facts that could not be read are not read again */
        atomic_store(&p->oldest_ms, 0);
    }
    publisher_end(p);
    atomic_fetch_sub(&p->under_way, 1);
}

/* A batch that failed is read and published again, from the next tick on. */
static void publisher_on_published(struct fact_batch *b) {
    struct fact_publisher *p = CONTAINER_OF(b, struct fact_publisher, batch);
    if (b->result == ERR_OK) {
        count(COUNT_FACTS_PUBLISHED, b->count);
        /* While it was under way, another node may have had the lease, and come further. */
        if (sale_is_after(&p->page.mark, &p->mark)) p->mark = p->page.mark;
    }
    publisher_end(p);
    if (b->result == ERR_OK) publisher_read(p); /* there may be more */
    atomic_fetch_sub(&p->under_way, 1);
}

/* ---- start and stop ---- */

static void publisher_on_tick(void *to) {
    struct fact_publisher *p = to;
    publisher_lease(p);
    publisher_read(p);
}

void fact_publisher_init(struct fact_publisher *p, uv_loop_t *loop) {
    assert(p->ledger != NULL && p->sink != NULL);
    p->lease.node = uuid_new(clock_wall_ms());
    p->lease.asked_ms = clock_steady_ms() - RENEW_MS;
    ticker_init(&p->ticker, loop, publisher_on_tick, p);
    ticker_start(&p->ticker, READ_MS);
}

void fact_publisher_stop(struct fact_publisher *p) {
    p->is_stopping = true;
    ticker_close(&p->ticker);
    fact_sink_stop(p->sink);
    atomic_fetch_add(&p->under_way, 1);
    publisher_release(p);
}

/* When nothing else is under way. If it fails, the lease ends by itself, and the next node
 * publishes some facts again. */
static void publisher_release(struct fact_publisher *p) {
    if (p->is_working || p->lease.is_asking) return;
    if (!p->lease.is_ours && !sale_is_after(&p->mark, &p->lease.stored)) {
        atomic_fetch_sub(&p->under_way, 1);
        return;
    }
    p->lease.record = (struct ledger_facts_publish){
        .record = {.kind = LEDGER_FACTS_PUBLISH, .always = true, .task.run = publisher_on_released},
        .topic = p->sink->topic,
        .node = p->lease.node,
        .stops = true,
        .published = p->mark};
    p->lease.is_asking = true;
    if (ledger_submit(p->ledger, &p->lease.record.record) != ERR_OK)
        atomic_fetch_sub(&p->under_way, 1);
}

static void publisher_on_released(struct task *task) {
    struct fact_publisher *p = CONTAINER_OF(task, struct fact_publisher, lease.record.record.task);
    atomic_fetch_sub(&p->under_way, 1);
}

bool fact_publisher_is_busy(struct fact_publisher *p) {
    return atomic_load(&p->under_way) > 0;
}

int64_t fact_publisher_lag_ms(struct fact_publisher *p) {
    int64_t oldest_ms = atomic_load(&p->oldest_ms);
    int64_t lag_ms = oldest_ms == 0 ? 0 : clock_wall_ms() - oldest_ms;
    return lag_ms > 0 ? lag_ms : 0;
}

void fact_publisher_deinit(struct fact_publisher *p) {
    buf_deinit(&p->text);
}
