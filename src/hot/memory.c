/* The memory adapter: creates it, and adds, changes, removes and locks its events. */
#include "hot/memory_internal.h"

#include "base/mem.h"

static void memory_report_stock(const struct memory *m, struct memory_event *r) {
    struct seat_counts seats = claims_totals(r->claims);
    bool sold_out = seat_counts_sold_out(&seats);
    if (sold_out == r->sold_out) return;
    r->sold_out = sold_out;
    if (m->listener.stock_changed != NULL) m->listener.stock_changed(m->listener.to, r->event_key);
}

void memory_event_unlock(struct memory *m, struct memory_event *r) {
    if (r->queue != NULL) memory_report_stock(m, r);
    pthread_mutex_unlock(&r->lock);
    pthread_rwlock_unlock(&m->lock);
}

struct memory_event *memory_event_begin(struct memory *m, struct hot_op *op) {
    struct memory_event *r = memory_event_lock(m, op->event_key);
    op->result = r == NULL ? ERR_EVENT_NOT_FOUND : ERR_OK;
    return r;
}

static struct queue_config memory_queue_config(const struct event *e) {
    return (struct queue_config){
        .version = e->version, .hours = event_hours_of(e), .rules = e->queue};
}

static void memory_event_create(struct memory_event *r, const struct event *e) {
    struct queue_config config = memory_queue_config(e);
    r->version = e->version;
    r->opens_at_ms = e->opens_at_ms;
    r->queue = queue_new(&config);
    r->claims = claims_new(e);
}

static void memory_event_destroy(struct memory_event *r) {
    if (r->queue == NULL) return;
    queue_free(r->queue);
    claims_free(r->claims);
    r->queue = NULL;
}

static struct memory_event *memory_event_new(const struct event *e) {
    struct memory_event *r = mem_new(sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    r->event_key = e->key;
    memory_event_create(r, e);
    return r;
}

static void memory_event_free(struct memory_event *r) {
    memory_event_destroy(r);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* The event is locked. */
static void memory_event_configure(struct memory_event *r, const struct event *e) {
    if (e->version <= r->version) return;
    if (r->queue == NULL) {
        memory_event_create(r, e);
        return;
    }
    struct queue_config config = memory_queue_config(e);
    queue_configure(r->queue, &config);
    claims_configure(r->claims, e);
    r->version = e->version;
    r->opens_at_ms = e->opens_at_ms;
}

/* The event, locked, even if it was removed; NULL when there never was one. */
static struct memory_event *memory_event_lock_any(struct memory *m, int64_t event_key) {
    pthread_rwlock_rdlock(&m->lock);
    struct memory_event *r = map_get(&m->events, map_key(&event_key));
    if (r != NULL)
        pthread_mutex_lock(&r->lock);
    else
        pthread_rwlock_unlock(&m->lock);
    return r;
}

struct memory_event *memory_event_lock(struct memory *m, int64_t event_key) {
    struct memory_event *r = memory_event_lock_any(m, event_key);
    if (r == NULL || r->queue != NULL) return r;
    memory_event_unlock(m, r);
    return NULL;
}

/* A new event is made outside of the lock, because a million seats take some time; when two threads
 * make the same event, the first that is put into the map is kept. */
void memory_configure(struct memory *m, const struct event *e) {
    struct memory_event *r = memory_event_lock_any(m, e->key);
    if (r != NULL) {
        memory_event_configure(r, e);
        memory_event_unlock(m, r);
        return;
    }
    struct memory_event *made = memory_event_new(e);
    pthread_rwlock_wrlock(&m->lock);
    r = map_get(&m->events, map_key(&e->key));
    if (r == NULL)
        map_put(&m->events, map_key(&e->key), made);
    else
        memory_event_configure(r, e); /* no other thread has an event locked now */
    pthread_rwlock_unlock(&m->lock);
    if (r != NULL) memory_event_free(made);
}

/* The record stays with its version, so that a change of the event that arrives late is ignored. */
void memory_remove(struct memory *m, int64_t event_key, int64_t version) {
    struct memory_event *r = memory_event_lock_any(m, event_key);
    if (r == NULL) return;
    if (r->version <= version) {
        memory_event_destroy(r);
        r->version = version;
    }
    memory_event_unlock(m, r);
}

struct memory *memory_new(void) {
    struct memory *m = mem_new(sizeof *m);
    m->queues.ops = &memory_queue_ops;
    m->seats.ops = &memory_seats_ops;
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&m->lock, &fair);
    pthread_rwlockattr_destroy(&fair);
    map_init(&m->events);
    return m;
}

void memory_free(struct memory *m) {
    size_t at = 0;
    struct memory_event *r;
    while ((r = map_next(&m->events, &at)) != NULL) memory_event_free(r);
    map_deinit(&m->events);
    pthread_rwlock_destroy(&m->lock);
    mem_free(m);
}

struct queues *memory_queues(struct memory *m) {
    return &m->queues;
}

struct seats *memory_seats(struct memory *m) {
    return &m->seats;
}
