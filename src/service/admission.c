#include "service/admission.h"

#include "base/mem.h"

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

static void on_tick(void *to) {
    struct admission_share *s = to;
    gather(s);
    if (s->event_count == 0 || !waiting_room_tick_begin(s->room)) return;
    for (size_t i = 0; i < s->event_count; i++) {
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
