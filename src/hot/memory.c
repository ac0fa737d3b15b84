#include "hot/memory_internal.h"

#include "base/mem.h"

void room_leave(struct memory *m, struct room *r) {
    pthread_mutex_unlock(&r->lock);
    pthread_rwlock_unlock(&m->lock);
}

struct room *room_begin(struct memory *m, struct hot_op *op) {
    struct room *r = room_enter(m, op->event_key);
    op->result = r == NULL ? ERR_EVENT_NOT_FOUND : ERR_OK;
    return r;
}

static struct queue_config config_of(const struct event *e) {
    return (struct queue_config){
        .version = e->version, .state = e->state, .opens_at_ms = e->opens_at_ms, .rules = e->queue};
}

static void room_furnish(struct room *r, const struct event *e) {
    struct queue_config config = config_of(e);
    r->version = e->version;
    r->opens_at_ms = e->opens_at_ms;
    r->queue = queue_new(&config);
    r->claims = claims_new(e);
}

static void room_empty(struct room *r) {
    if (r->queue == NULL) return;
    queue_free(r->queue);
    claims_free(r->claims);
    r->queue = NULL;
}

static struct room *room_new(const struct event *e) {
    struct room *r = mem_new(sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    r->event_key = e->key;
    room_furnish(r, e);
    return r;
}

static void room_free(struct room *r) {
    room_empty(r);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* In the room. */
static void room_configure(struct room *r, const struct event *e) {
    if (e->version <= r->version) return;
    if (r->queue == NULL) {
        room_furnish(r, e);
        return;
    }
    struct queue_config config = config_of(e);
    queue_configure(r->queue, &config);
    claims_configure(r->claims, e);
    r->version = e->version;
    r->opens_at_ms = e->opens_at_ms;
}

/* The event's room, locked, be it empty; NULL when there never was one. */
static struct room *room_open(struct memory *m, int64_t event_key) {
    pthread_rwlock_rdlock(&m->lock);
    struct room *r = map_get(&m->rooms, map_key(&event_key));
    if (r != NULL)
        pthread_mutex_lock(&r->lock);
    else
        pthread_rwlock_unlock(&m->lock);
    return r;
}

struct room *room_enter(struct memory *m, int64_t event_key) {
    struct room *r = room_open(m, event_key);
    if (r == NULL || r->queue != NULL) return r;
    room_leave(m, r);
    return NULL;
}

/* A room is made outside of the lock, for one with a million seats takes its time; should two come
 * with the same new event, the one that is put first is the room. */
void memory_configure(struct memory *m, const struct event *e) {
    struct room *r = room_open(m, e->key);
    if (r != NULL) {
        room_configure(r, e);
        room_leave(m, r);
        return;
    }
    struct room *made = room_new(e);
    pthread_rwlock_wrlock(&m->lock);
    r = map_get(&m->rooms, map_key(&e->key));
    if (r == NULL)
        map_put(&m->rooms, map_key(&e->key), made);
    else
        room_configure(r, e); /* nobody else is in a room meanwhile */
    pthread_rwlock_unlock(&m->lock);
    if (r != NULL) room_free(made);
}

/* The empty room stays, and with it the version: news of the event that comes late finds it. */
void memory_remove(struct memory *m, int64_t event_key, int64_t version) {
    struct room *r = room_open(m, event_key);
    if (r == NULL) return;
    if (r->version <= version) {
        room_empty(r);
        r->version = version;
    }
    room_leave(m, r);
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
    map_init(&m->rooms);
    return m;
}

void memory_free(struct memory *m) {
    size_t at = 0;
    struct room *r;
    while ((r = map_next(&m->rooms, &at)) != NULL) room_free(r);
    map_deinit(&m->rooms);
    pthread_rwlock_destroy(&m->lock);
    mem_free(m);
}

struct queues *memory_queues(struct memory *m) {
    return &m->queues;
}

struct seats *memory_seats(struct memory *m) {
    return &m->seats;
}
