/* A worker's tick: asks which events have something to do, and starts it for each of its share. */
#include "service/admission.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service/hold_expiry.h"

#define PENDING_CHECK_MS 1000

static void admission_on_event(struct ticks_op *t, int64_t event_key);
static void admission_on_events_known(struct ticks_op *t);

static void admission_on_tick(void *to) {
    struct admission_share *s = to;
    if (s->asks || !waiting_room_tick_begin(s->room, catalogue_count(s->catalogue))) return;
    s->asks = true;
    s->event_count = 0;
    s->ticks = (struct ticks_op){
        .now_ms = clock_wall_ms(), .event = admission_on_event, .done = admission_on_events_known};
    queues_ticks(s->room->queues, &s->ticks);
}

static void admission_on_event(struct ticks_op *t, int64_t event_key) {
    struct admission_share *s = CONTAINER_OF(t, struct admission_share, ticks);
    if ((size_t)event_key % s->count != s->index) return;
    s->keys = mem_make_room(s->keys, s->event_count, &s->event_cap, sizeof *s->keys);
    s->keys[s->event_count++] = event_key;
}

/* Whether it is time to look for operations that other nodes left pending. */
static bool admission_is_check_due(struct admission_share *s) {
    int64_t now_ms = clock_steady_ms();
    if (s->finish_pending == NULL || now_ms - s->pending_checked_ms < PENDING_CHECK_MS)
        return false;
    s->pending_checked_ms = now_ms;
    return true;
}

static void admission_on_events_known(struct ticks_op *t) {
    struct admission_share *s = CONTAINER_OF(t, struct admission_share, ticks);
    s->asks = false;
    if (t->result != ERR_OK || s->stopped || s->event_count == 0) return;
    bool is_time = admission_is_check_due(s);
    for (size_t i = 0; i < s->event_count; i++) {
        if (is_time) finish_pending_check(s->finish_pending, s->keys[i]);
        waiting_room_tick(s->room, s->keys[i], NULL, NULL);
        hold_expiry_tick(s->reservations, s->keys[i]);
    }
}

void admission_start(struct admission_share *s, struct worker *w, int64_t tick_ms) {
    ticker_init(&s->ticker, &w->loop, admission_on_tick, s);
    ticker_start(&s->ticker, tick_ms);
}

void admission_stop(struct admission_share *s) {
    s->stopped = true;
    ticker_close(&s->ticker);
}

void admission_deinit(struct admission_share *s) {
    mem_free(s->keys);
}
