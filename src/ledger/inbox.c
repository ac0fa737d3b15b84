/* The bounded queue between the workers and a thread of the ledger. */
#include "ledger/inbox.h"

#include <assert.h>
#include <time.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "run/mailbox.h"

/* Batches of fewer are no load. */
#define GATHER_MIN 8
#define GATHER_NS_MAX INT64_C(2000000)

void inbox_init(struct inbox *in, int64_t records_max) {
    assert(records_max > 0);
    *in = (struct inbox){.records_max = (size_t)records_max, .wake_at = 1};
    pthread_mutex_init(&in->lock, NULL);
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&in->some, &steady);
    pthread_condattr_destroy(&steady);
}

void inbox_deinit(struct inbox *in) {
    assert(in->records.count == 0);
    pthread_cond_destroy(&in->some);
    pthread_mutex_destroy(&in->lock);
}

void inbox_close(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    in->closed = true;
    pthread_cond_broadcast(&in->some);
    pthread_mutex_unlock(&in->lock);
}

enum err inbox_put(struct inbox *in, struct ledger_record *r) {
    assert(mailbox_mine() != NULL && r->task.run != NULL);
    r->task.home = mailbox_mine();
    r->since_ns = clock_steady_ns();
    enum err refused = ERR_OK;
    pthread_mutex_lock(&in->lock);
    if (in->closed)
        refused = ERR_STOPPING;
    else if (in->records.count >= in->records_max && !r->always)
        refused = ERR_OVERLOADED;
    else {
        task_list_add(&in->records, &r->task);
        if (in->records.count >= in->wake_at) pthread_cond_signal(&in->some);
    }
    pthread_mutex_unlock(&in->lock);
    if (refused == ERR_OVERLOADED) count(COUNT_LEDGER_REFUSED_FULL, 1);
    return refused;
}

void inbox_pass(struct inbox *in, struct ledger_record *r) {
    assert(r->task.home != NULL);
    pthread_mutex_lock(&in->lock);
    assert(!in->closed);
    task_list_add(&in->records, &r->task);
    pthread_cond_signal(&in->some);
    pthread_mutex_unlock(&in->lock);
}

/* False when the time has come. */
static bool wait_until(struct inbox *in, int64_t until_ns) {
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    return pthread_cond_timedwait(&in->some, &in->lock, &until) == 0;
}

size_t inbox_take(struct inbox *in, struct ledger_record **out, size_t max, int64_t until_ns,
                  bool *ended) {
    size_t taken = 0;
    pthread_mutex_lock(&in->lock);
    while (in->records.count == 0 && !in->closed)
        if (!wait_until(in, until_ns)) break;
    while (taken < max && in->records.count > 0)
        out[taken++] = (struct ledger_record *)task_list_take(&in->records);
    *ended = in->closed && taken == 0;
    pthread_mutex_unlock(&in->lock);
    return taken;
}

/* Waits until there are `wanted`, the inbox is closed, or `until_ns`. */
static void inbox_gather(struct inbox *in, size_t wanted, int64_t until_ns) {
    pthread_mutex_lock(&in->lock);
    in->wake_at = wanted;
    while (in->records.count < wanted && !in->closed)
        if (!wait_until(in, until_ns)) break;
    in->wake_at = 1;
    pthread_mutex_unlock(&in->lock);
}

size_t inbox_take_batch(struct inbox *in, const struct batch_history *history,
                        struct ledger_record **out, size_t max, int64_t until_ns, bool *ended) {
    size_t wanted = 2 * history->records;
    if (wanted > max) wanted = max;
    if (wanted > in->records_max) wanted = in->records_max;
    inbox_gather(in, 1, until_ns);
    if (history->records >= GATHER_MIN && !inbox_empty(in)) {
        int64_t wait_ns = history->took_ns / 2;
        if (wait_ns > GATHER_NS_MAX) wait_ns = GATHER_NS_MAX;
        inbox_gather(in, wanted, clock_steady_ns() + wait_ns);
    }
    return inbox_take(in, out, max, 0, ended);
}

void batch_history_add(struct batch_history *history, size_t taken, int64_t took_ns) {
    size_t records = history->records - history->records / 4;
    bool is_largest = taken >= records;
    history->records = is_largest ? taken : records;
    history->took_ns = is_largest ? took_ns : history->took_ns - history->took_ns / 4;
}

bool inbox_empty(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    bool empty = in->records.count == 0;
    pthread_mutex_unlock(&in->lock);
    return empty;
}
