/* Leaving the queue: look up the user of the place, ask the hot store for the user's holds, end the
 * place and cancel the holds in one record of the ledger, and have the hot store follow. A callback
 * stands below the call that it answers. */
#include "service/leave.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/metrics.h"

/* The holds are asked for a second time after the place has ended: a hold that was claimed in
 * between is cancelled too. */
#define ROUNDS 2
/* Most users have no more holds than this; for the others the question is repeated. */
#define HOLDS_USUAL 8

static void leave_on_user_found(struct place_look *look, enum err result);
static void leave_round(struct place_leave *l);
static void leave_ask_holds(struct place_leave *l, size_t room);
static void leave_on_holds(struct holds_op *h);
static void leave_on_ended(struct place_end *e, enum err result);
static void leave_on_followed(struct follow_op *f);

void leave_place(struct reservations *r, struct place_leave *l) {
    l->service = r;
    l->rounds = 0;
    l->look = (struct place_look){.look.op.event_key = l->event_key,
                                  .item.seq = l->seq,
                                  .proof = l->proof,
                                  .done = leave_on_user_found};
    waiting_room_look(r->room, &l->look);
}

static void leave_on_user_found(struct place_look *look, enum err result) {
    struct place_leave *l = CONTAINER_OF(look, struct place_leave, look);
    if (result != ERR_OK || look->look.user_len == 0)
        l->done(l, result); /* no user has the place: it ended long ago */
    else
        leave_round(l);
}

static void leave_round(struct place_leave *l) {
    if (l->rounds++ == ROUNDS)
        l->done(l, ERR_OK);
    else
        leave_ask_holds(l, HOLDS_USUAL);
}

static void leave_ask_holds(struct place_leave *l, size_t room) {
    l->ids = arena_new(l->arena, room * sizeof *l->ids);
    l->cancelled = arena_new(l->arena, room * sizeof *l->cancelled);
    l->changes = arena_new(l->arena, room * sizeof *l->changes);
    l->holds = (struct holds_op){.op = {.event_key = l->event_key, .now_ms = clock_wall_ms()},
                                 .user = {l->look.user, l->look.look.user_len},
                                 .entry_seq = l->seq,
                                 .max = room,
                                 .done = leave_on_holds};
    l->holds.reservations = arena_new(l->arena, room * sizeof *l->holds.reservations);
    seats_holds(l->service->seats, &l->holds);
}

static void leave_on_holds(struct holds_op *h) {
    struct place_leave *l = CONTAINER_OF(h, struct place_leave, holds);
    size_t held = 0;
    size_t known = h->op.result == ERR_OK ? h->count : 0;
    /* If the hot store can't say which holds there are, the place is not ended without them. But
     * an event that the hot store does not know may be in the ledger; and in the second round the
     * place has ended already. */
    bool is_lost = h->op.result != ERR_OK && h->op.result != ERR_EVENT_NOT_FOUND;
    if (is_lost && l->rounds == 1) {
        l->done(l, h->op.result);
        return;
    }
    if (known > h->max) {
        leave_ask_holds(l, known);
        return;
    }
    for (size_t i = 0; i < known; i++)
        if (h->reservations[i].status == RESERVATION_HELD) {
            l->ids[held] = h->reservations[i].id;
            l->changes[held++] =
                (struct reservation_change){.id = h->reservations[i].id,
                                            .section_key = h->reservations[i].section_key,
                                            .status = RESERVATION_CANCELLED};
        }
    if (l->rounds > 1 && held == 0) {
        l->done(l, ERR_OK);
        return;
    }
    l->end = (struct place_end){.event_key = l->event_key,
                                .seq = l->seq,
                                .final = ENTRY_LEFT,
                                .user = {l->look.user, l->look.look.user_len},
                                .cancels = l->ids,
                                .cancel_count = held,
                                .cancelled = l->cancelled,
                                .done = leave_on_ended};
    waiting_room_end(l->service->room, &l->end);
}

static void leave_on_ended(struct place_end *e, enum err result) {
    struct place_leave *l = CONTAINER_OF(e, struct place_leave, end);
    if (result != ERR_OK) {
        l->done(l, result);
        return;
    }
    size_t changes = 0;
    for (size_t i = 0; i < e->cancel_count; i++)
        if (l->cancelled[i]) l->changes[changes++] = l->changes[i];
    count(COUNT_RESERVATION_CANCELS, changes);
    l->follow = (struct follow_op){.op = {.event_key = l->event_key, .now_ms = clock_wall_ms()},
                                   .changes = l->changes,
                                   .count = changes,
                                   .done = leave_on_followed};
    seats_follow(l->service->seats, &l->follow);
}

static void leave_on_followed(struct follow_op *f) {
    leave_round(CONTAINER_OF(f, struct place_leave, follow));
}
