/* The maps of the events, by name, key and section, and the removals that are kept. */
#include "service/catalogue.h"

#include <assert.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"

struct catalogue {
    pthread_rwlock_t lock;
    struct map by_path;    /* "TYPE/ID" → event */
    struct map by_key;     /* the key's bytes → event */
    struct map by_section; /* a section's key, in bytes → event */
    struct map removed;    /* "TYPE/ID" → struct removal */
    size_t removed_max;    /* when there are more, old ones are dropped */
    struct event **by_name;
    size_t count;
    size_t cap;
};

/* A change with an older version arrives so much later at the most. */
#define REMOVED_KEPT_MS (10 * 60 * 1000)
#define REMOVED_MIN 64

struct removal {
    int64_t version;
    int64_t at_ms;
    size_t path_len;
    char path[];
};

struct catalogue *catalogue_new(void) {
    struct catalogue *c = mem_new(sizeof *c);
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    /* By default a stream of readers keeps writers waiting for ever. */
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&c->lock, &fair);
    pthread_rwlockattr_destroy(&fair);
    map_init(&c->by_path);
    map_init(&c->by_key);
    map_init(&c->by_section);
    map_init(&c->removed);
    c->removed_max = REMOVED_MIN;
    return c;
}

void catalogue_free(struct catalogue *c) {
    size_t at = 0;
    struct removal *removal;
    while ((removal = map_next(&c->removed, &at)) != NULL) mem_free(removal);
    map_deinit(&c->removed);
    for (size_t i = 0; i < c->count; i++) mem_free(c->by_name[i]);
    mem_free(c->by_name);
    map_deinit(&c->by_path);
    map_deinit(&c->by_key);
    map_deinit(&c->by_section);
    pthread_rwlock_destroy(&c->lock);
    mem_free(c);
}

void catalogue_read_lock(struct catalogue *c) {
    pthread_rwlock_rdlock(&c->lock);
}

void catalogue_read_unlock(struct catalogue *c) {
    pthread_rwlock_unlock(&c->lock);
}

const struct event *catalogue_find(struct catalogue *c, str type, str id) {
    char path[EVENT_PATH_BYTES];
    str key = event_path(type, id, path);
    return key.len == 0 ? NULL : map_get(&c->by_path, key);
}

const struct event *catalogue_find_key(struct catalogue *c, int64_t key) {
    return map_get(&c->by_key, map_key(&key));
}

const struct event *catalogue_find_section(struct catalogue *c, int64_t section_key,
                                           const struct section **section) {
    const struct event *e = map_get(&c->by_section, map_key(&section_key));
    if (e == NULL) return NULL;
    size_t at = 0;
    while (at < e->section_count && e->sections[at].key != section_key) at++;
    assert(at < e->section_count);
    *section = &e->sections[at];
    return e;
}

static int catalogue_compare(const struct event *e, str type, str id) {
    int order = str_compare(str_of(e->type), type);
    return order != 0 ? order : str_compare(str_of(e->id), id);
}

/* The number of the first event that is not before the name; with `behind`, that is after it. */
static size_t catalogue_search(const struct catalogue *c, str type, str id, bool behind) {
    size_t low = 0;
    size_t high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = catalogue_compare(c->by_name[middle], type, id);
        if (order < 0 || (behind && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t catalogue_after(struct catalogue *c, str type, str id) {
    return catalogue_search(c, type, id, true);
}

const struct event *catalogue_at(struct catalogue *c, size_t number) {
    return number < c->count ? c->by_name[number] : NULL;
}

/* The event is found by its key and its sections' keys, or no longer. */
static void catalogue_add_keys(struct catalogue *c, struct event *e) {
    map_put(&c->by_key, map_key(&e->key), e);
    for (size_t i = 0; i < e->section_count; i++)
        map_put(&c->by_section, map_key(&e->sections[i].key), e);
}

static void catalogue_remove_keys(struct catalogue *c, const struct event *e) {
    map_remove(&c->by_key, map_key(&e->key));
    for (size_t i = 0; i < e->section_count; i++)
        map_remove(&c->by_section, map_key(&e->sections[i].key));
}

static bool catalogue_is_newer(const struct catalogue *c, str path, int64_t version) {
    const struct event *e = map_get(&c->by_path, path);
    const struct removal *removed = map_get(&c->removed, path);
    return (e == NULL || e->version < version) && (removed == NULL || removed->version < version);
}

void catalogue_install(struct catalogue *c, struct event *e) {
    str type = str_of(e->type);
    str id = str_of(e->id);
    char path[EVENT_PATH_BYTES];
    str key = event_path(type, id, path);
    assert(key.len > 0);
    pthread_rwlock_wrlock(&c->lock);
    if (!catalogue_is_newer(c, key, e->version)) {
        pthread_rwlock_unlock(&c->lock);
        mem_free(e);
        return;
    }
    size_t at = catalogue_search(c, type, id, false);
    struct event *old = map_put(&c->by_path, key, e);
    assert(old == NULL || old == c->by_name[at]);
    if (old != NULL) catalogue_remove_keys(c, old);
    catalogue_add_keys(c, e);
    if (old == NULL) {
        c->by_name = mem_make_room(c->by_name, c->count, &c->cap, sizeof *c->by_name);
        memmove(c->by_name + at + 1, c->by_name + at, (c->count - at) * sizeof *c->by_name);
        c->count++;
    }
    c->by_name[at] = e;
    pthread_rwlock_unlock(&c->lock);
    mem_free(old);
}

/* Drops old removals. All are checked when there are twice as many as were left the last time. */
static void catalogue_forget_removals(struct catalogue *c, int64_t now_ms) {
    if (c->removed.count <= c->removed_max) return;
    struct map kept;
    map_init(&kept);
    size_t at = 0;
    struct removal *r;
    while ((r = map_next(&c->removed, &at)) != NULL) {
        if (now_ms - r->at_ms < REMOVED_KEPT_MS)
            map_put(&kept, (str){r->path, r->path_len}, r);
        else
            mem_free(r);
    }
    map_deinit(&c->removed);
    c->removed = kept;
    c->removed_max = kept.count < REMOVED_MIN ? REMOVED_MIN : 2 * kept.count;
}

static void catalogue_note_removal(struct catalogue *c, str path, int64_t version) {
    struct removal *removed = map_get(&c->removed, path);
    int64_t now_ms = clock_wall_ms();
    if (removed == NULL) {
        catalogue_forget_removals(c, now_ms);
        removed = mem_new(sizeof *removed + path.len);
        removed->path_len = path.len;
        memcpy(removed->path, path.at, path.len);
        map_put(&c->removed, path, removed);
    }
    removed->at_ms = now_ms;
    if (version > removed->version) removed->version = version;
}

void catalogue_remove(struct catalogue *c, str type, str id, int64_t version) {
    char path[EVENT_PATH_BYTES];
    str key = event_path(type, id, path);
    assert(key.len > 0);
    pthread_rwlock_wrlock(&c->lock);
    struct event *old = catalogue_is_newer(c, key, version) ? map_remove(&c->by_path, key) : NULL;
    catalogue_note_removal(c, key, version);
    if (old != NULL) {
        size_t at = catalogue_search(c, type, id, false);
        assert(c->by_name[at] == old);
        catalogue_remove_keys(c, old);
        c->count--;
        memmove(c->by_name + at, c->by_name + at + 1, (c->count - at) * sizeof *c->by_name);
    }
    pthread_rwlock_unlock(&c->lock);
    mem_free(old);
}

size_t catalogue_removals(struct catalogue *c) {
    catalogue_read_lock(c);
    size_t n = c->removed.count;
    catalogue_read_unlock(c);
    return n;
}

size_t catalogue_count(struct catalogue *c) {
    catalogue_read_lock(c);
    size_t n = c->count;
    catalogue_read_unlock(c);
    return n;
}
