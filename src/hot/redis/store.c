/* Opens and closes the Redis adapter, attaches workers, and keeps the events that this node knows.
 */
#include "hot/redis/store.h"

#include <stdio.h>
#include <sys/random.h>

#include "base/mem.h"
#include "hot/memory_boards.h"
#include "hot/memory_limits.h"
#include "hot/redis/internal.h"

#define DEADLINE_MS 2000

static _Thread_local struct redis_worker *mine;

struct redis_worker *redis_worker_mine(void) {
    return mine;
}

static void store_name_node(char out[17]) {
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    assert(got == sizeof random);
    snprintf(out, 17, "%016llx", (unsigned long long)random);
}

struct redis_store *redis_store_new(const struct redis_options *o) {
    struct redis_store *s = mem_new(sizeof *s);
    s->hot.ops = &redis_hot_ops;
    s->queues.ops = &redis_queue_ops;
    s->seats.ops = &redis_seats_ops;
    s->locks.ops = &redis_locks_ops;
    s->boards.ops = &redis_boards_ops;
    s->limits.ops = &redis_limits_ops;
    if (limit_rules_any(&o->limits)) s->local_limits = memory_limits_new(&o->limits, true);
    s->options = *o;
    if (s->options.deadline_ms == 0) s->options.deadline_ms = DEADLINE_MS;
    redis_status_init(&s->status, &s->options.address);
    store_name_node(s->node);
    pthread_rwlock_init(&s->lock, NULL);
    map_init(&s->by_key);
    map_init(&s->by_tag);
    s->announcements = announcements_new(s);
    return s;
}

void redis_store_free(struct redis_store *s) {
    announcements_free(s->announcements);
    rebuild_free(s->rebuild);
    if (s->board_rebuild != NULL) memory_boards_free(s->board_rebuild);
    size_t at = 0;
    struct redis_event *e;
    while ((e = map_next(&s->by_key, &at)) != NULL) redis_event_release(e);
    map_deinit(&s->by_key);
    map_deinit(&s->by_tag);
    pthread_rwlock_destroy(&s->lock);
    redis_status_deinit(&s->status);
    memory_limits_free(s->local_limits);
    mem_free(s);
}

void redis_store_attach(struct redis_store *s, uv_loop_t *loop) {
    assert(mine == NULL);
    mine = mem_new(sizeof *mine);
    mine->store = s;
    mine->link = link_new(loop, &s->options.address, &s->status, s->options.deadline_ms);
    mine->queue = queue_worker_new(mine, loop);
    mine->locks = locks_worker_new(mine, loop);
}

void redis_store_detach(struct redis_store *s) {
    assert(mine != NULL && mine->store == s);
    queue_worker_close(mine->queue);
    locks_worker_close(mine->locks);
    link_close(mine->link);
    mem_free(mine);
    mine = NULL;
}

struct hot *redis_store_hot(struct redis_store *s) {
    return &s->hot;
}

struct queues *redis_store_queues(struct redis_store *s) {
    return &s->queues;
}

struct seats *redis_store_seats(struct redis_store *s) {
    return &s->seats;
}

struct locks *redis_store_locks(struct redis_store *s) {
    return &s->locks;
}

struct boards *redis_store_boards(struct redis_store *s) {
    return &s->boards;
}

struct limits *redis_store_limits(struct redis_store *s) {
    return s->local_limits == NULL ? NULL : &s->limits;
}

void section_set_add(struct section_set *s, int64_t key) {
    for (size_t i = 0; i < s->count; i++)
        if (s->keys[i] == key) return;
    s->keys = mem_grow(s->keys, (s->count + 1) * sizeof *s->keys);
    s->keys[s->count++] = key;
}

static struct redis_event *store_add_event(struct redis_store *s, const struct event *event) {
    struct redis_event *e = mem_new(sizeof *e);
    atomic_init(&e->holds, 1);
    e->key = event->key;
    int len = snprintf(e->tag, sizeof e->tag, "%s:%s", event->type, event->id);
    assert(len > 0 && (size_t)len < sizeof e->tag);
    map_put(&s->by_key, map_key(&e->key), e);
    /* An event that was removed may have had the same name: the newer one has it. */
    struct redis_event *other = map_get(&s->by_tag, str_of(e->tag));
    if (other == NULL || other->key < e->key) map_put(&s->by_tag, str_of(e->tag), e);
    return e;
}

void store_register_event(struct redis_store *s, const struct event *event) {
    pthread_rwlock_wrlock(&s->lock);
    struct redis_event *e = map_get(&s->by_key, map_key(&event->key));
    if (e == NULL) e = store_add_event(s, event);
    for (size_t i = 0; i < event->section_count; i++)
        section_set_add(&e->sections, event->sections[i].key);
    pthread_rwlock_unlock(&s->lock);
}

void store_set_in_redis(struct redis_store *s, int64_t event_key) {
    pthread_rwlock_rdlock(&s->lock);
    struct redis_event *e = map_get(&s->by_key, map_key(&event_key));
    if (e != NULL) atomic_store(&e->in_redis, true);
    pthread_rwlock_unlock(&s->lock);
}

struct section_set store_copy_sections(struct redis_store *s, const struct redis_event *e) {
    struct section_set out = {0};
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < e->sections.count; i++) section_set_add(&out, e->sections.keys[i]);
    pthread_rwlock_unlock(&s->lock);
    return out;
}

struct redis_event *store_find_event(struct redis_store *s, int64_t event_key) {
    pthread_rwlock_rdlock(&s->lock);
    struct redis_event *e = map_get(&s->by_key, map_key(&event_key));
    if (e != NULL) redis_event_hold(e);
    pthread_rwlock_unlock(&s->lock);
    return e;
}

void redis_event_hold(struct redis_event *e) {
    atomic_fetch_add_explicit(&e->holds, 1, memory_order_relaxed);
}

void redis_event_release(struct redis_event *e) {
    if (atomic_fetch_sub(&e->holds, 1) > 1) return;
    mem_free(e->sections.keys);
    mem_free(e);
}

void store_remove_event(struct redis_store *s, int64_t event_key) {
    pthread_rwlock_wrlock(&s->lock);
    struct redis_event *e = map_remove(&s->by_key, map_key(&event_key));
    if (e != NULL && map_get(&s->by_tag, str_of(e->tag)) == e)
        map_remove(&s->by_tag, str_of(e->tag));
    pthread_rwlock_unlock(&s->lock);
    if (e != NULL) redis_event_release(e);
}

int64_t store_find_event_key(struct redis_store *s, str tag) {
    pthread_rwlock_rdlock(&s->lock);
    const struct redis_event *e = map_get(&s->by_tag, tag);
    int64_t key = e == NULL ? 0 : e->key;
    pthread_rwlock_unlock(&s->lock);
    return key;
}
