#include "service/admission.h"

#include "base/clock.h"
#include "base/mem.h"

#define TAKE_UP_MS 1000

static void gather(struct admission_share *s) {
    s->event_count = 0;
    catalogue_open(s->catalogue);
    const struct event *e;
    for (size_t at = 0; (e = catalogue_at(s->catalogue, at)) != NULL; at++) {
        if ((size_t)e->key % s->count != s->index) continue;
        if (s->event_count == s->event_cap) {
            s->event_cap = s->event_cap == 0 ? 16 : s->event_cap * 2;
            s->keys = mem_grow(s->keys, s->event_cap * sizeof *s->keys);
        }
        s->keys[s->event_count++] = e->key;
    }
    catalogue_shut(s->catalogue);
}

/* Whether it is time to look for what other nodes left undone. */
static bool takes_up(struct admission_share *s) {
    int64_t now_ms = clock_steady_ms();
    if (s->take_up == NULL || now_ms - s->taken_up_ms < TAKE_UP_MS) return false;
    s->taken_up_ms = now_ms;
    return true;
}

static void on_tick(void *to) {
    struct admission_share *s = to;
    gather(s);
    if (s->event_count == 0 || !waiting_room_tick_begin(s->room, s->event_count * s->count)) return;
    bool is_time = takes_up(s);
    for (size_t i = 0; i < s->event_count; i++) {
        if (is_time) take_up_look(s->take_up, s->keys[i]);
        waiting_room_tick(s->room, s->keys[i], NULL, NULL);
        reservations_tick(s->reservations, s->keys[i]);
    }
}

void admission_start(struct admission_share *s, struct worker *w, int64_t tick_ms) {
    ticker_init(&s->ticker, &w->loop, on_tick, s);
    ticker_start(&s->ticker, tick_ms);
}

void admission_stop(struct admission_share *s) {
    ticker_close(&s->ticker);
}

void admission_deinit(struct admission_share *s) {
    mem_free(s->keys);
}
