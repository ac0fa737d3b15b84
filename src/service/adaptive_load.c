/* The records of how busy adaptive sections are: one per section, made by the first request and
 * dropped when the section is idle and calm. The rules by which a section becomes hot are in
 * core/adaptive.c. */
#include "service/adaptive_load.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"

#define SECTIONS_MIN 64

struct section_load {
    struct adaptive adaptive;
    int64_t section_key;
};

void adaptive_load_init(struct adaptive_load *a) {
    pthread_mutex_init(&a->lock, NULL);
    map_init(&a->sections);
    a->sections_max = SECTIONS_MIN;
}

void adaptive_load_deinit(struct adaptive_load *a) {
    size_t at = 0;
    struct section_load *s;
    while ((s = map_next(&a->sections, &at)) != NULL) mem_free(s);
    map_deinit(&a->sections);
    pthread_mutex_destroy(&a->lock);
}

static void adaptive_load_count_switch(bool was_hot, bool is_hot) {
    if (was_hot != is_hot)
        count(is_hot ? COUNT_ADAPTIVE_SWITCHES_SLOT : COUNT_ADAPTIVE_SWITCHES_LOCK, 1);
}

static bool adaptive_load_look(struct adaptive_load *a, struct section_load *s) {
    bool was_hot = s->adaptive.hot;
    bool is_hot = adaptive_look(&s->adaptive, &a->rules, clock_steady_ms());
    adaptive_load_count_switch(was_hot, is_hot);
    return is_hot;
}

/* A hot section that gets no more requests has no request at whose end its record could be dropped.
 * So all records are checked once there are twice as many as the last check left. */
static void adaptive_load_drop_calm(struct adaptive_load *a) {
    if (a->sections.count <= a->sections_max) return;
    struct map kept;
    map_init(&kept);
    size_t at = 0;
    struct section_load *s;
    while ((s = map_next(&a->sections, &at)) != NULL) {
        if (adaptive_load_look(a, s) || s->adaptive.under_way > 0)
            map_put(&kept, map_key(&s->section_key), s);
        else
            mem_free(s);
    }
    map_deinit(&a->sections);
    a->sections = kept;
    a->sections_max = kept.count < SECTIONS_MIN ? SECTIONS_MIN : 2 * kept.count;
}

bool adaptive_load_begin(struct adaptive_load *a, int64_t section_key, int64_t crowd) {
    pthread_mutex_lock(&a->lock);
    struct section_load *s = map_get(&a->sections, map_key(&section_key));
    if (s == NULL) {
        adaptive_load_drop_calm(a);
        s = mem_new(sizeof *s);
        s->section_key = section_key;
        map_put(&a->sections, map_key(&s->section_key), s);
    }
    bool was_hot = s->adaptive.hot;
    bool is_hot = adaptive_begin(&s->adaptive, &a->rules, crowd, clock_steady_ms());
    pthread_mutex_unlock(&a->lock);
    adaptive_load_count_switch(was_hot, is_hot);
    return is_hot;
}

void adaptive_load_waited(struct adaptive_load *a, int64_t section_key, int64_t waited_ms) {
    pthread_mutex_lock(&a->lock);
    struct section_load *s = map_get(&a->sections, map_key(&section_key));
    bool was_hot = s->adaptive.hot;
    adaptive_waited(&s->adaptive, &a->rules, waited_ms, clock_steady_ms());
    adaptive_load_count_switch(was_hot, s->adaptive.hot);
    pthread_mutex_unlock(&a->lock);
}

void adaptive_load_end(struct adaptive_load *a, int64_t section_key) {
    pthread_mutex_lock(&a->lock);
    struct section_load *s = map_get(&a->sections, map_key(&section_key));
    adaptive_end(&s->adaptive);
    if (!s->adaptive.hot && s->adaptive.under_way == 0)
        mem_free(map_remove(&a->sections, map_key(&section_key)));
    pthread_mutex_unlock(&a->lock);
}

bool adaptive_load_is_hot(struct adaptive_load *a, int64_t section_key) {
    pthread_mutex_lock(&a->lock);
    struct section_load *s = map_get(&a->sections, map_key(&section_key));
    bool is_hot = s != NULL && adaptive_load_look(a, s);
    pthread_mutex_unlock(&a->lock);
    return is_hot;
}
