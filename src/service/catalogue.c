#include "service/catalogue.h"

#include <assert.h>
#include <pthread.h>

#include "base/map.h"
#include "base/mem.h"

struct item {
    int64_t version;
    struct event *event; /* NULL: deleted */
};

struct catalogue {
    pthread_rwlock_t lock;
    struct map items; /* "TYPE/ID" → item */
    size_t count;     /* not deleted */
};

struct catalogue *catalogue_new(void) {
    struct catalogue *c = mem_new(sizeof *c);
    pthread_rwlock_init(&c->lock, NULL);
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
        map_put(&c->items, key, item);
    }
    if (version > item->version) {
        old = item->event;
        c->count += (size_t)(event != NULL) - (size_t)(old != NULL);
        *item = (struct item){.version = version, .event = event};
    }
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
