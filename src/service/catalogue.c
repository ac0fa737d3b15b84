#include "service/catalogue.h"

#include <assert.h>
#include <pthread.h>

#include "base/map.h"
#include "base/mem.h"

struct item {
    int64_t version;
    struct event *event; /* NULL: deleted */
    char path[EVENT_PATH_BYTES];
};

struct catalogue {
    pthread_rwlock_t lock;
    struct map items; /* "TYPE/ID" → item */
    size_t count;     /* not deleted */
    size_t swept_at;  /* how many deleted ones there may be before they are looked through */
    int64_t newest;   /* version */
    int64_t in_flight_max;
};

#define SWEPT_AT_MIN 1024

struct catalogue *catalogue_new(int64_t in_flight_max) {
    struct catalogue *c = mem_new(sizeof *c);
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    /* By default a stream of readers keeps writers out for ever. */
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&c->lock, &fair);
    pthread_rwlockattr_destroy(&fair);
    c->swept_at = SWEPT_AT_MIN;
    c->in_flight_max = in_flight_max;
    map_init(&c->items);
    return c;
}

void catalogue_free(struct catalogue *c) {
    size_t at = 0;
    struct item *item;
    while ((item = map_next(&c->items, &at)) != NULL) {
        mem_free(item->event);
        mem_free(item);
    }
    map_deinit(&c->items);
    pthread_rwlock_destroy(&c->lock);
    mem_free(c);
}

void catalogue_open(struct catalogue *c) {
    pthread_rwlock_rdlock(&c->lock);
}

void catalogue_shut(struct catalogue *c) {
    pthread_rwlock_unlock(&c->lock);
}

const struct event *catalogue_find(struct catalogue *c, str type, str id) {
    char path[EVENT_PATH_BYTES];
    str key = event_path(type, id, path);
    if (key.len == 0) return NULL;
    const struct item *item = map_get(&c->items, key);
    return item == NULL ? NULL : item->event;
}

const struct event *catalogue_next(struct catalogue *c, size_t *at) {
    const struct item *item;
    while ((item = map_next(&c->items, at)) != NULL)
        if (item->event != NULL) return item->event;
    return NULL;
}

/* Every version is an act of its own, so what is older than the newest by more than may be in
 * flight has nobody left that could revive it. */
static void forget_deleted(struct catalogue *c) {
    struct map kept;
    map_init(&kept);
    size_t at = 0;
    struct item *item;
    while ((item = map_next(&c->items, &at)) != NULL) {
        if (item->event == NULL && item->version < c->newest - c->in_flight_max)
            mem_free(item);
        else
            map_put(&kept, str_of(item->path), item);
    }
    map_deinit(&c->items);
    c->items = kept;
    c->swept_at = (c->items.count - c->count) * 2;
    if (c->swept_at < SWEPT_AT_MIN) c->swept_at = SWEPT_AT_MIN;
}

/* `event` NULL: deleted. Takes the event over, also when it is too old. */
static void change(struct catalogue *c, str type, str id, int64_t version, struct event *event) {
    char path[EVENT_PATH_BYTES];
    str key = event_path(type, id, path);
    assert(key.len > 0 && version > 0);
    struct event *old = event;
    pthread_rwlock_wrlock(&c->lock);
    struct item *item = map_get(&c->items, key);
    if (item == NULL) {
        item = mem_new(sizeof *item);
        str_copy(key, item->path, sizeof item->path);
        map_put(&c->items, key, item);
    }
    if (version > item->version) {
        old = item->event;
        c->count += (size_t)(event != NULL) - (size_t)(old != NULL);
        item->version = version;
        item->event = event;
    }
    if (version > c->newest) c->newest = version;
    if (c->items.count - c->count > c->swept_at) forget_deleted(c);
    pthread_rwlock_unlock(&c->lock);
    mem_free(old);
}

void catalogue_install(struct catalogue *c, struct event *e) {
    change(c, str_of(e->type), str_of(e->id), e->version, e);
}

void catalogue_remove(struct catalogue *c, str type, str id, int64_t version) {
    change(c, type, id, version, NULL);
}

size_t catalogue_count(struct catalogue *c) {
    catalogue_open(c);
    size_t n = c->count;
    catalogue_shut(c);
    return n;
}

size_t catalogue_remembered(struct catalogue *c) {
    catalogue_open(c);
    size_t n = c->items.count;
    catalogue_shut(c);
    return n;
}
