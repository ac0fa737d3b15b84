/* The seats' side of the memory adapter (port/seats.h): each operation is one step of core/claims.h
 * under the event's lock. */
#include "hot/memory_internal.h"

static struct memory *memory_of_seats(struct seats *s) {
    return CONTAINER_OF(s, struct memory, seats);
}

static bool memory_user_is_active(const struct memory_event *r, const struct claim_request *w,
                                  int64_t now_ms) {
    struct place p;
    return queue_look(r->queue, w->entry_seq, now_ms, &p) && p.status == ENTRY_ACTIVE &&
           !p.pending && str_eq(queue_user(r->queue, w->entry_seq), w->user);
}

static void memory_claim_locked(struct memory_event *r, struct claim_op *c) {
    c->request.is_active = memory_user_is_active(r, &c->request, c->op.now_ms);
    c->outcome = claims_claim(r->claims, &c->request, c->op.now_ms, &c->reservation, c->seats,
                              &c->seat_count);
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    if (is_there && c->reservation.pending) c->op.result = c->submit(c);
    if (c->outcome == CLAIM_DONE) queue_use_offer(r->queue, c->request.entry_seq);
    if (c->op.result != ERR_OK && c->outcome == CLAIM_DONE)
        claims_settle(r->claims, &c->reservation.id, false);
}

static void memory_claim(struct seats *s, struct claim_op *c) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &c->op);
    if (r != NULL) {
        memory_event_purge(m, r, c->op.now_ms);
        memory_claim_locked(r, c);
        memory_event_unlock(m, r);
    }
    c->done(c);
}

static void memory_settle_claims(struct seats *s, struct claim_settle_op *t) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &t->op);
    for (size_t i = 0; r != NULL && i < t->count; i++) {
        bool live = claims_settle(r->claims, &t->ids[i], t->kept[i]);
        if (t->live != NULL) t->live[i] = live;
    }
    if (r != NULL) memory_event_unlock(m, r);
    t->done(t);
}

static void memory_follow(struct seats *s, struct follow_op *f) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &f->op);
    for (size_t i = 0; r != NULL && i < f->count; i++)
        f->changes[i].changed = claims_follow(r->claims, &f->changes[i].id, f->changes[i].status);
    if (r != NULL) memory_event_unlock(m, r);
    f->done(f);
}

static void memory_sync_seats(struct seats *s, struct seat_sync_op *y) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &y->op);
    y->changed = 0;
    for (size_t i = 0; r != NULL && i < y->available_count; i++)
        if (claims_free_seat(r->claims, y->section_key, y->available[i])) y->changed++;
    for (size_t i = 0; r != NULL && i < y->count; i++) {
        if (!claims_apply(r->claims, &y->reservations[i])) continue;
        queue_use_offer(r->queue, y->reservations[i].entry_seq);
        y->changed++;
    }
    if (r != NULL) memory_event_unlock(m, r);
    y->done(y);
}

static void memory_due(struct seats *s, struct due_op *d) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &d->op);
    d->count = 0;
    if (r != NULL) {
        d->count = claims_due(r->claims, d->op.now_ms, d->refs, d->max);
        memory_event_unlock(m, r);
    }
    d->done(d);
}

static void memory_holds(struct seats *s, struct holds_op *h) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &h->op);
    h->count = 0;
    if (r != NULL) {
        h->count = claims_of(r->claims, h->user, h->entry_seq, h->reservations, h->max);
        memory_event_unlock(m, r);
    }
    h->done(h);
}

static void memory_buyer(struct seats *s, struct buyer_op *b) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r;
    pthread_rwlock_rdlock(&m->lock);
    for (size_t at = 0; (r = map_next(&m->events, &at)) != NULL;) {
        pthread_mutex_lock(&r->lock);
        bool has_any = r->queue != NULL && claims_of(r->claims, b->user, 0, NULL, 0) > 0;
        pthread_mutex_unlock(&r->lock);
        if (has_any) b->event(b, r->event_key);
    }
    pthread_rwlock_unlock(&m->lock);
    b->result = ERR_OK;
    b->done(b);
}

static void memory_count_seats(struct seats *s, struct seat_count_op *c) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &c->op);
    c->count = 0;
    if (r != NULL) {
        c->count = claims_sections(r->claims, c->sections, c->max);
        c->totals = claims_totals(r->claims);
        memory_event_unlock(m, r);
    }
    c->done(c);
}

static void memory_render(struct seats *s, struct render_op *d) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_begin(m, &d->op);
    d->count = 0;
    if (r != NULL) {
        if (!claims_render(r->claims, d->section_key, d->first, d->letters, d->max, &d->count,
                           &d->counts))
            d->op.result = ERR_SECTION_NOT_FOUND;
        memory_event_unlock(m, r);
    }
    d->done(d);
}

static void memory_restore_reservation(struct seats *s, int64_t event_key,
                                       const struct live_reservation *reservation) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_lock(m, event_key);
    if (r == NULL) return; /* the event was deleted */
    claims_apply(r->claims, reservation);
    memory_event_unlock(m, r);
}

static void memory_restore_ran_out(struct seats *s, int64_t event_key) {
    struct memory *m = memory_of_seats(s);
    struct memory_event *r = memory_event_lock(m, event_key);
    if (r == NULL) return; /* the event was deleted */
    claims_restore_ran_out(r->claims);
    memory_event_unlock(m, r);
}

const struct seats_ops memory_seats_ops = {.claim = memory_claim,
                                           .settle = memory_settle_claims,
                                           .follow = memory_follow,
                                           .sync = memory_sync_seats,
                                           .due = memory_due,
                                           .holds = memory_holds,
                                           .buyer = memory_buyer,
                                           .count = memory_count_seats,
                                           .render = memory_render,
                                           .restore = memory_restore_reservation,
                                           .restore_ran_out = memory_restore_ran_out};
