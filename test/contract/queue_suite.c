/* The contract of the waiting rooms' hot state, step by step. */
#include "queue_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "seats_steps.h"

#define KEY 7
#define OTHER 8

static const struct queue_adapter *adapter;

struct fixture {
    struct store s;
    struct event e; /* KEY */
    struct entry_change admitted[ADMIT_MAX];
    struct heard heard[256];
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    store_open(&f->s, adapter);
    f->e = steps_event(KEY);
    store_configure(&f->s, &f->e);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    store_close(&f->s);
    mem_free(f);
    return 0;
}

static void set_state(struct fixture *f, enum event_state state) {
    f->e.state = state;
    store_configure(&f->s, &f->e);
}

/* user1 and so on wait since T0, with the numbers from `first` on. The event is OPEN then. */
static void fill(struct fixture *f, uint64_t first, int count) {
    set_state(f, EVENT_PAUSED);
    for (int i = 1; i <= count; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        assert_int_equal(step_take_kept(&f->s, KEY, user, T0), first + (uint64_t)i - 1);
    }
    set_state(f, EVENT_OPEN);
    store_heard(&f->s, f->heard, 256);
}

static uint64_t take_in_lane(struct fixture *f, const char *user, unsigned lane) {
    struct entered e = step_enter(&f->s, KEY, str_of(user), lane, T0);
    assert_int_equal(e.outcome, ENTER_TAKEN);
    step_settle_enter(&f->s, KEY, e.place.seq, true);
    return e.place.seq;
}

static enum entry_status status_at(struct fixture *f, uint64_t seq, int64_t now_ms) {
    return step_look(&f->s, KEY, seq, now_ms).status;
}

/* Exactly these entries were reported since the last time. */
static void assert_heard(struct fixture *f, size_t i, enum heard_kind kind, uint64_t seq) {
    assert_int_equal(f->heard[i].kind, kind);
    assert_int_equal(f->heard[i].event_key, KEY);
    assert_int_equal(f->heard[i].entry.seq, seq);
}

/* ---- entering ---- */

static void entering_again_keeps_the_place_pitfall_1(void **state) {
    struct fixture *f = *state;
    fill(f, 1, 3);
    struct entered e = step_enter(&f->s, KEY, STR("user2"), 0, T0 + 5000);
    assert_int_equal(e.result, ERR_OK);
    assert_int_equal(e.outcome, ENTER_THERE);
    assert_int_equal(e.place.seq, 2);
    assert_int_equal(e.place.position, 2);
    assert_int_equal(e.place.lane, LANE_DEFAULT);
    assert_int_equal(e.place.joined_ms, T0);
    assert_int_equal(e.place.waiting, 3);
    assert_int_equal(e.closes, 0);
    assert_false(e.place.pending);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 0); /* the ledger has it long since */
    assert_step_counts(&f->s, KEY, 3, 0);
}

/* From another worker, say: it submits the same record, for it can't know about the first. */
static void entering_again_while_pending_submits_the_same_place_pitfall_1(void **state) {
    struct fixture *f = *state;
    fill(f, 1, 1);
    uint64_t seq = step_take(&f->s, KEY, "ann", T0);
    struct entered e = step_enter(&f->s, KEY, STR("ann"), 0, T0 + 9);
    assert_int_equal(e.outcome, ENTER_THERE);
    assert_true(e.place.pending);
    assert_int_equal(e.place.seq, seq);
    assert_int_equal(e.place.joined_ms, T0);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 2);
    assert_heard(f, 0, HEARD_ENTER, seq);
    assert_heard(f, 1, HEARD_ENTER, seq);
    /* Its refusal does not undo what the first one's record may still keep. */
    f->s.verdict = ERR_OVERLOADED;
    assert_int_equal(step_enter(&f->s, KEY, STR("ann"), 0, T0).result, ERR_OVERLOADED);
    f->s.verdict = ERR_OK;
    assert_step_counts(&f->s, KEY, 2, 0);
    assert_int_equal(step_settle_enter(&f->s, KEY, seq, true).position, 2);
}

static void assert_told(const struct entered *e, uint32_t available, uint32_t held,
                        uint32_t confirmed, bool reserving) {
    assert_int_equal(e->result, ERR_OK);
    assert_int_equal(e->seats.available, available);
    assert_int_equal(e->seats.held, held);
    assert_int_equal(e->seats.confirmed, confirmed);
    assert_int_equal(e->reserving, reserving);
}

static void entering_reports_the_seats_left_and_whether_the_user_holds_some(void **state) {
    struct fixture *f = *state;
    struct section sections[] = {{.key = 1, .id = "A", .capacity = 10},
                                 {.key = 2, .id = "B", .capacity = 5}};
    f->e.sections = sections;
    f->e.section_count = 2;
    f->e.queue.max_active = 2;
    f->e.max_per_user = 10;
    f->e.queue.max_waiting = 1;
    store_configure(&f->s, &f->e);
    struct entered ann = step_enter(&f->s, KEY, STR("ann"), LANE_DEFAULT, T0);
    assert_told(&ann, 15, 0, 0, false);
    step_settle_enter(&f->s, KEY, ann.place.seq, true);
    uint64_t bob = step_take_kept(&f->s, KEY, "bob", T0);
    struct live_reservation hold = {.id.bytes = {1},
                                    .user = STR("ann"),
                                    .entry_seq = ann.place.seq,
                                    .section_key = 2,
                                    .seats = (const uint32_t[]){3, 4},
                                    .seat_count = 2,
                                    .status = RESERVATION_HELD,
                                    .expires_ms = T0 + 300 * SECOND};
    step_sync(&f->s, KEY, &hold, 2, NULL, 0);
    ann = step_enter(&f->s, KEY, STR("ann"), LANE_DEFAULT, T0);
    assert_int_equal(ann.outcome, ENTER_THERE);
    assert_told(&ann, 13, 2, 0, true);
    struct entered other = step_enter(&f->s, KEY, STR("bob"), LANE_DEFAULT, T0);
    assert_int_equal(other.place.seq, bob);
    assert_told(&other, 13, 2, 0, false); /* ACTIVE, but the hold is not his */
    other = step_enter(&f->s, KEY, STR("cat"), LANE_DEFAULT, T0);
    assert_int_equal(other.place.status, ENTRY_WAITING);
    assert_told(&other, 13, 2, 0, false);
    struct entered refused = step_enter(&f->s, KEY, STR("dan"), LANE_DEFAULT, T0);
    assert_int_equal(refused.outcome, ENTER_FULL);
    assert_told(&refused, 13, 2, 0, false);
    step_settle_enter(&f->s, KEY, other.place.seq, false);
    hold.status = RESERVATION_CONFIRMED;
    step_sync(&f->s, KEY, &hold, 2, NULL, 0);
    ann = step_enter(&f->s, KEY, STR("ann"), LANE_DEFAULT, T0);
    assert_told(&ann, 13, 0, 2, false);
    /* The stay is over, the hold is not: it is of the entry before. */
    hold.id.bytes[0] = 2;
    hold.status = RESERVATION_HELD;
    hold.seats = (const uint32_t[]){1, 2};
    step_sync(&f->s, KEY, &hold, 2, NULL, 0);
    int64_t over_ms = ann.place.expires_ms;
    ann = step_enter(&f->s, KEY, STR("ann"), LANE_DEFAULT, over_ms);
    assert_int_equal(ann.outcome, ENTER_TAKEN);
    assert_int_equal(ann.place.status, ENTRY_ACTIVE);
    assert_told(&ann, 11, 2, 2, false);
}

static void an_enter_that_may_take_no_place_finds_the_one_that_is_there(void **state) {
    struct fixture *f = *state;
    uint64_t ann = step_take_kept(&f->s, KEY, "ann", T0);
    struct queue_counts before = step_counts(&f->s, KEY);
    struct entered e = step_enter_only_there(&f->s, KEY, STR("bob"), T0);
    assert_int_equal(e.result, ERR_OK);
    assert_int_equal(e.outcome, ENTER_NONE);
    struct queue_counts after = step_counts(&f->s, KEY);
    assert_memory_equal(&before, &after, sizeof before);
    e = step_enter_only_there(&f->s, KEY, STR("ann"), T0);
    assert_int_equal(e.outcome, ENTER_THERE);
    assert_int_equal(e.place.seq, ann);
    assert_int_equal(e.place.status, ENTRY_ACTIVE);
    /* Her stay is over: the place is none any more. */
    e = step_enter_only_there(&f->s, KEY, STR("ann"), e.place.expires_ms);
    assert_int_equal(e.outcome, ENTER_NONE);
    e = step_enter(&f->s, KEY, STR("ann"), LANE_DEFAULT, T0 + 601 * SECOND);
    assert_int_equal(e.outcome, ENTER_TAKEN);
}

static void places_follow_numbers_not_names_or_clocks_pitfall_2(void **state) {
    struct fixture *f = *state;
    set_state(f, EVENT_PAUSED);
    /* The same millisecond, names that sort otherwise, then a clock that steps back. */
    uint64_t nine = step_take_kept(&f->s, KEY, "user9", T0);
    uint64_t ten = step_take_kept(&f->s, KEY, "user10", T0);
    uint64_t late = step_take_kept(&f->s, KEY, "user0", T0 - 60 * SECOND);
    assert_true(nine < ten && ten < late);
    assert_int_equal(step_look(&f->s, KEY, nine, T0).position, 1);
    assert_int_equal(step_look(&f->s, KEY, ten, T0).position, 2);
    assert_int_equal(step_look(&f->s, KEY, late, T0).position, 3);
    set_state(f, EVENT_OPEN);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 3);
    assert_int_equal(f->admitted[0].seq, nine);
    assert_int_equal(f->admitted[1].seq, ten);
    assert_int_equal(f->admitted[2].seq, late);
}

static void the_caps_hold_with_what_is_pending_pitfall_4(void **state) {
    struct fixture *f = *state;
    f->e.queue.max_active = 1;
    f->e.queue.max_waiting = 2;
    store_configure(&f->s, &f->e);
    step_take(&f->s, KEY, "active", T0);
    step_take(&f->s, KEY, "first", T0);
    uint64_t second = step_take(&f->s, KEY, "second", T0);
    assert_int_equal(step_enter(&f->s, KEY, STR("third"), 8, T0).outcome, ENTER_FULL);
    assert_step_counts(&f->s, KEY, 2, 1);
    assert_int_equal(step_settle_enter(&f->s, KEY, second, false).status, ENTRY_NONE);
    step_take(&f->s, KEY, "third", T0);
    assert_int_equal(step_enter(&f->s, KEY, STR("fourth"), 8, T0).outcome, ENTER_FULL);
    assert_int_equal(step_counts(&f->s, KEY).rejected, 2);
}

static void a_user_who_is_active_at_once_has_an_expiry_at_once_pitfall_5(void **state) {
    struct fixture *f = *state;
    struct entered e = step_enter(&f->s, KEY, STR("ann"), 8, T0);
    assert_int_equal(e.place.status, ENTRY_ACTIVE);
    assert_int_equal(e.place.position, 0);
    assert_int_equal(e.place.expires_ms, T0 + 600 * SECOND);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 1);
    assert_int_equal(f->heard[0].entry.expires_ms, T0 + 600 * SECOND);
    struct place p = step_settle_enter(&f->s, KEY, e.place.seq, true);
    assert_int_equal(p.status, ENTRY_ACTIVE);
    assert_false(p.pending);
    int64_t last_ms = T0 + 600 * SECOND - 1;
    p = step_look(&f->s, KEY, e.place.seq, last_ms);
    assert_int_equal(p.status, ENTRY_ACTIVE);
    assert_int_equal(p.expires_ms, last_ms + 1);
    assert_int_equal(status_at(f, e.place.seq, last_ms + 1), ENTRY_EXPIRED);
}

static void expired_actives_make_room_for_a_user_who_enters_pitfall_6(void **state) {
    struct fixture *f = *state;
    f->e.queue.max_active = 2;
    f->e.queue.max_waiting = 0;
    store_configure(&f->s, &f->e);
    uint64_t ann = step_take_kept(&f->s, KEY, "ann", T0);
    uint64_t bob = step_take_kept(&f->s, KEY, "bob", T0 + 1);
    int64_t over_ms = T0 + 600 * SECOND;
    assert_int_equal(step_enter(&f->s, KEY, STR("cat"), 8, over_ms - 1).outcome, ENTER_FULL);
    store_heard(&f->s, f->heard, 256);
    struct entered e = step_enter(&f->s, KEY, STR("cat"), 8, over_ms);
    assert_int_equal(e.outcome, ENTER_TAKEN);
    assert_int_equal(e.place.status, ENTRY_ACTIVE);
    assert_int_equal(e.closes, 0); /* that was another user's */
    /* The ledger gets the end before the next entry. */
    assert_int_equal(store_heard(&f->s, f->heard, 256), 2);
    assert_heard(f, 0, HEARD_EXPIRED, ann);
    assert_int_equal(f->heard[0].entry.expires_ms, over_ms);
    assert_int_equal(f->heard[0].now_ms, over_ms);
    assert_heard(f, 1, HEARD_ENTER, e.place.seq);
    assert_int_equal(status_at(f, bob, over_ms), ENTRY_ACTIVE);
    assert_int_equal(step_enter(&f->s, KEY, STR("dan"), 8, over_ms).outcome, ENTER_FULL);
}

static void expired_actives_make_room_for_a_user_who_is_admitted_pitfall_6(void **state) {
    struct fixture *f = *state;
    f->e.queue.max_active = 1;
    f->e.queue.grace_s = 86400;
    store_configure(&f->s, &f->e);
    uint64_t ann = step_take_kept(&f->s, KEY, "ann", T0);
    uint64_t bob = step_take_kept(&f->s, KEY, "bob", T0);
    int64_t over_ms = T0 + 600 * SECOND;
    assert_int_equal(step_admit(&f->s, KEY, over_ms - 1, f->admitted), 0);
    store_heard(&f->s, f->heard, 256);
    assert_int_equal(step_admit(&f->s, KEY, over_ms, f->admitted), 1);
    assert_int_equal(f->admitted[0].seq, bob);
    assert_int_equal(f->admitted[0].expires_ms, over_ms + 600 * SECOND);
    assert_int_equal(f->admitted[0].waited_ms, 600 * SECOND);
    assert_int_equal(f->admitted[0].promised_s, 1);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 2);
    assert_heard(f, 0, HEARD_EXPIRED, ann);
    assert_heard(f, 1, HEARD_ADMIT, bob);
    assert_step_counts(&f->s, KEY, 1, 1); /* pending: in both */
}

/* More than an adapter may report at once. */
static void all_expired_entries_are_reported_however_many_there_are_pitfall_6(void **state) {
    struct fixture *f = *state;
    enum { MANY = 700 };
    f->e.queue.max_active = MANY;
    f->e.queue.entry_batch_size = MANY;
    store_configure(&f->s, &f->e);
    for (int i = 0; i < MANY; i++) {
        char user[16];
        snprintf(user, sizeof user, "user%d", i);
        step_take_kept(&f->s, KEY, user, T0);
    }
    struct heard *heard = mem_new((MANY + 1) * sizeof *heard);
    store_heard(&f->s, heard, MANY);
    uint64_t seq = step_take(&f->s, KEY, "late", T0 + 600 * SECOND);
    assert_int_equal(store_heard(&f->s, heard, MANY + 1), MANY + 1);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(heard[i].kind, HEARD_EXPIRED);
        assert_int_equal(heard[i].entry.seq, i + 1);
    }
    assert_int_equal(heard[MANY].entry.seq, seq);
    assert_step_counts(&f->s, KEY, 0, 1);
    mem_free(heard);
}

static void
entering_again_after_expiry_gives_a_new_place_and_closes_the_old_pitfall_7(void **state) {
    struct fixture *f = *state;
    uint64_t first = step_take_kept(&f->s, KEY, "ann", T0);
    struct entered e = step_enter(&f->s, KEY, STR("ann"), 8, T0 + 600 * SECOND - 1);
    assert_int_equal(e.outcome, ENTER_THERE);
    e = step_enter(&f->s, KEY, STR("ann"), 8, T0 + 600 * SECOND);
    assert_int_equal(e.outcome, ENTER_TAKEN);
    assert_true(e.place.seq > first);
    assert_int_equal(e.closes, first);
    assert_int_equal(status_at(f, first, T0), ENTRY_EXPIRED);
    assert_step_counts(&f->s, KEY, 0, 1);
    /* A user who left has nothing to close. */
    assert_true(step_end(&f->s, KEY, e.place.seq, ENTRY_LEFT));
    assert_int_equal(step_enter(&f->s, KEY, STR("ann"), 8, T0).closes, 0);
}

static void a_user_is_active_per_event_pitfall_9(void **state) {
    struct fixture *f = *state;
    struct event other = steps_event(OTHER);
    store_configure(&f->s, &other);
    uint64_t here = step_take_kept(&f->s, KEY, "ann", T0);
    assert_int_equal(step_enter(&f->s, OTHER, STR("ann"), 8, T0).outcome, ENTER_TAKEN);
    assert_step_counts(&f->s, KEY, 0, 1);
    assert_step_counts(&f->s, OTHER, 0, 1);
    assert_true(step_end(&f->s, KEY, here, ENTRY_COMPLETED));
    assert_step_counts(&f->s, KEY, 0, 0);
    assert_step_counts(&f->s, OTHER, 0, 1);
}

static void completion_leave_and_expiry_free_the_place_at_once_pitfalls_11_and_12(void **state) {
    struct fixture *f = *state;
    static const enum entry_status ends[] = {ENTRY_COMPLETED, ENTRY_LEFT, ENTRY_EXPIRED};
    f->e.queue.max_waiting = 1;
    f->e.queue.max_active = 1;
    store_configure(&f->s, &f->e);
    for (int i = 0; i < 30; i++) {
        uint64_t active = step_take_kept(&f->s, KEY, "active", T0 + i * SECOND);
        uint64_t waiting = step_take_kept(&f->s, KEY, "waiting", T0 + i * SECOND);
        assert_step_counts(&f->s, KEY, 1, 1);
        assert_true(step_end(&f->s, KEY, active, ends[i % 3]));
        assert_int_equal(status_at(f, active, T0), ends[i % 3]);
        assert_step_counts(&f->s, KEY, 1, 0);
        assert_true(step_end(&f->s, KEY, waiting, ENTRY_LEFT));
        assert_step_counts(&f->s, KEY, 0, 0);
    }
    struct queue_counts c = step_counts(&f->s, KEY);
    assert_int_equal(c.entered, 60);
    assert_int_equal(c.admitted, 30);
    assert_int_equal(c.completed, 10);
    assert_int_equal(c.left, 40);
    assert_int_equal(c.expired, 10);
}

/* ---- ends and configurations ---- */

static void an_ended_entry_does_not_change_pitfall_15(void **state) {
    struct fixture *f = *state;
    static const enum entry_status ends[] = {ENTRY_COMPLETED, ENTRY_LEFT, ENTRY_EXPIRED};
    uint64_t seq = step_take_kept(&f->s, KEY, "ann", T0);
    assert_true(step_end(&f->s, KEY, seq, ENTRY_COMPLETED));
    for (int i = 0; i < 3; i++) assert_false(step_end(&f->s, KEY, seq, ends[i]));
    step_settle_enter(&f->s, KEY, seq, false);
    step_settle_admit(&f->s, KEY, seq, true);
    assert_int_equal(status_at(f, seq, T0), ENTRY_COMPLETED);
    char user[USER_ID_BYTES_MAX];
    size_t len = step_look_user(&f->s, KEY, seq, T0, user);
    assert_true(str_eq((str){user, len}, STR("ann"))); /* still known */
    assert_int_equal(step_counts(&f->s, KEY).left, 0);
}

static void only_an_admitted_user_completes(void **state) {
    struct fixture *f = *state;
    fill(f, 1, 2);
    assert_false(step_end(&f->s, KEY, 1, ENTRY_COMPLETED));
    assert_int_equal(status_at(f, 1, T0), ENTRY_WAITING);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 2);
    step_settle_admit(&f->s, KEY, 2, true);
    assert_true(step_end(&f->s, KEY, 2, ENTRY_COMPLETED));
    /* The ledger had the admission and then the completion; the update of the latter came first. */
    assert_true(step_end(&f->s, KEY, 1, ENTRY_COMPLETED));
    assert_int_equal(step_settle_admit(&f->s, KEY, 1, true).status, ENTRY_COMPLETED);
    assert_step_counts(&f->s, KEY, 0, 0);
    assert_int_equal(step_counts(&f->s, KEY).admitted, 2);
}

static void a_new_configuration_is_taken_and_an_older_one_is_not_pitfall_15(void **state) {
    struct fixture *f = *state;
    f->e.version = 6;
    f->e.queue.max_active = 2;
    store_configure(&f->s, &f->e);
    struct event stale = f->e;
    stale.queue.max_active = 1;
    stale.state = EVENT_CLOSED;
    stale.opens_at_ms = T0 - 5;
    step_configure(&f->s, &stale); /* the same version */
    stale.version = 6;
    step_configure(&f->s, &stale);
    step_take_kept(&f->s, KEY, "ann", T0);
    struct entered e = step_enter(&f->s, KEY, STR("bob"), 8, T0);
    assert_int_equal(e.place.status, ENTRY_ACTIVE);
    assert_int_equal(e.opens_at_ms, CLOCK_NONE_MS);
    step_take_kept(&f->s, KEY, "cat", T0);
    f->e.queue.max_active = 3;
    f->e.queue.active_ttl_s = 5;
    store_configure(&f->s, &f->e);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 1);
    assert_int_equal(f->admitted[0].expires_ms, T0 + 5 * SECOND);
}

static void an_estimate_is_rounded_up_never_to_nothing_pitfall_15(void **state) {
    struct fixture *f = *state;
    static const int64_t estimates_s[] = {0, 7, 7, 14, 14, 21};
    f->e.queue.entry_interval_s = 7;
    f->e.queue.entry_batch_size = 2;
    fill(f, 1, 5);
    for (uint64_t seq = 1; seq <= 5; seq++) {
        struct place p = step_look(&f->s, KEY, seq, T0);
        assert_int_equal(p.position, seq);
        assert_int_equal(p.waiting, 5);
        assert_int_equal(p.estimate_s, estimates_s[seq]);
    }
}

static void each_state_allows_entering_and_admission_as_documented(void **state) {
    struct fixture *f = *state;
    static const struct {
        enum event_state state;
        enum enter_outcome enter;
        size_t admitted;
    } table[] = {{EVENT_DRAFT, ENTER_NOT_OPEN, 0},
                 {EVENT_OPEN, ENTER_TAKEN, 2},
                 {EVENT_PAUSED, ENTER_TAKEN, 0},
                 {EVENT_DRAINING, ENTER_CLOSED, 2},
                 {EVENT_CLOSED, ENTER_CLOSED, 0}};
    for (int64_t i = 0; i < 5; i++) {
        struct event e = steps_event(20 + i);
        enum event_state now;
        e.state = EVENT_PAUSED;
        store_configure(&f->s, &e);
        step_take_kept(&f->s, e.key, "ann", T0);
        step_take_kept(&f->s, e.key, "bob", T0);
        e.state = table[i].state;
        store_configure(&f->s, &e);
        assert_int_equal(step_look_at(&f->s, e.key, NULL, 0, T0, NULL, &now), ERR_OK);
        assert_int_equal(now, table[i].state);
        assert_int_equal(step_enter(&f->s, e.key, STR("new"), 8, T0).outcome, table[i].enter);
        /* Existing entries stay, whatever the state is. */
        assert_int_equal(step_enter(&f->s, e.key, STR("ann"), 8, T0).outcome, ENTER_THERE);
        assert_int_equal(step_admit(&f->s, e.key, T0, f->admitted), table[i].admitted);
    }
}

static void a_scheduled_event_opens_by_the_clock_and_says_when(void **state) {
    struct fixture *f = *state;
    enum event_state now;
    f->e.opens_at_ms = T0 + SECOND;
    store_configure(&f->s, &f->e);
    struct entered e = step_enter(&f->s, KEY, STR("ann"), 8, T0 + SECOND - 1);
    assert_int_equal(e.outcome, ENTER_NOT_OPEN);
    assert_int_equal(e.opens_at_ms, T0 + SECOND);
    step_look_at(&f->s, KEY, NULL, 0, T0, NULL, &now);
    assert_int_equal(now, EVENT_DRAFT);
    assert_int_equal(step_enter(&f->s, KEY, STR("ann"), 8, T0 + SECOND).outcome, ENTER_TAKEN);
}

/* ---- looking ---- */

static void unknown_is_no_number_and_the_first_come_is_first_pitfall_18(void **state) {
    struct fixture *f = *state;
    static const uint64_t unknown[] = {0, 6, 4096, UINT64_C(1) << 40};
    char user[USER_ID_BYTES_MAX];
    fill(f, 1, 5);
    for (size_t i = 0; i < 4; i++) {
        struct place p = step_look(&f->s, KEY, unknown[i], T0);
        assert_int_equal(p.status, ENTRY_NONE);
        assert_int_equal(p.position, 0);
        assert_int_equal(step_look_user(&f->s, KEY, unknown[i], T0, user), 0);
        assert_false(step_end(&f->s, KEY, unknown[i], ENTRY_LEFT));
        assert_int_equal(step_settle_enter(&f->s, KEY, unknown[i], true).status, ENTRY_NONE);
        assert_int_equal(step_settle_admit(&f->s, KEY, unknown[i], true).status, ENTRY_NONE);
    }
    assert_step_counts(&f->s, KEY, 5, 0);
    f->e.queue.entry_batch_size = 1;
    store_configure(&f->s, &f->e);
    for (uint64_t seq = 1; seq <= 5; seq++) {
        assert_int_equal(step_admit_kept(&f->s, KEY, T0 + (int64_t)seq * SECOND, f->admitted), 1);
        assert_int_equal(f->admitted[0].seq, seq);
    }
}

static void many_places_are_looked_at_in_one_step_and_none_is_fine(void **state) {
    struct fixture *f = *state;
    struct queue_counts c;
    enum event_state now;
    struct look_item items[6] = {{.seq = 4}, {.seq = 1}, {.seq = 99},
                                 {.seq = 2}, {.seq = 3}, {.seq = 4}};
    uint64_t active = step_take_kept(&f->s, KEY, "active", T0);
    assert_int_equal(active, 1);
    fill(f, 2, 3);
    assert_true(step_end(&f->s, KEY, 2, ENTRY_LEFT));
    assert_int_equal(step_look_at(&f->s, KEY, items, 6, T0, &c, &now), ERR_OK);
    assert_int_equal(items[0].place.position, 2);
    assert_int_equal(items[0].place.waiting, 2);
    assert_int_equal(items[1].place.status, ENTRY_ACTIVE);
    assert_int_equal(items[2].place.status, ENTRY_NONE);
    assert_int_equal(items[3].place.status, ENTRY_LEFT);
    assert_int_equal(items[4].place.position, 1);
    assert_int_equal(items[4].place.estimate_s, 1);
    assert_int_equal(items[5].place.position, 2);
    assert_int_equal(c.waiting, 2);
    assert_int_equal(c.active, 1);
    assert_int_equal(now, EVENT_OPEN);
    c = (struct queue_counts){0};
    assert_int_equal(step_look_at(&f->s, KEY, NULL, 0, T0, &c, &now), ERR_OK);
    assert_int_equal(c.waiting, 2);
}

static void a_place_reports_a_user_name_of_maximum_length(void **state) {
    struct fixture *f = *state;
    char longest[USER_ID_BYTES_MAX];
    char user[USER_ID_BYTES_MAX];
    memset(longest, 'x', sizeof longest);
    str name = {longest, sizeof longest};
    uint64_t seq = step_enter(&f->s, KEY, name, 8, T0).place.seq;
    step_settle_enter(&f->s, KEY, seq, true);
    assert_int_equal(step_look_user(&f->s, KEY, seq, T0, user), sizeof longest);
    assert_true(str_eq((str){user, sizeof user}, name));
    assert_int_equal(step_enter(&f->s, KEY, name, 8, T0).outcome, ENTER_THERE);
    name.len--;
    assert_int_equal(step_enter(&f->s, KEY, name, 8, T0).outcome, ENTER_TAKEN);
}

/* ---- admitting ---- */

static void lower_lanes_go_first_and_each_is_in_order(void **state) {
    struct fixture *f = *state;
    set_state(f, EVENT_PAUSED);
    uint64_t a = take_in_lane(f, "a", 8);
    uint64_t b = take_in_lane(f, "b", 3);
    uint64_t c = take_in_lane(f, "c", 15);
    uint64_t d = take_in_lane(f, "d", 8);
    uint64_t e = take_in_lane(f, "e", 3);
    const uint64_t order[] = {b, e, a, d, c};
    set_state(f, EVENT_OPEN);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(step_look(&f->s, KEY, order[i], T0).position, i + 1);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 5);
    for (size_t i = 0; i < 5; i++) assert_int_equal(f->admitted[i].seq, order[i]);
}

static void a_pending_enter_delays_its_own_lane_only(void **state) {
    struct fixture *f = *state;
    set_state(f, EVENT_PAUSED);
    uint64_t first = take_in_lane(f, "first", 8);
    uint64_t pending = step_take(&f->s, KEY, "pending", T0);
    uint64_t behind = take_in_lane(f, "behind", 8);
    uint64_t other = take_in_lane(f, "other", 9);
    set_state(f, EVENT_OPEN);
    assert_int_equal(step_admit_kept(&f->s, KEY, T0, f->admitted), 2);
    assert_int_equal(f->admitted[0].seq, first);
    assert_int_equal(f->admitted[1].seq, other);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 0);
    step_settle_enter(&f->s, KEY, pending, true);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 2);
    assert_int_equal(f->admitted[0].seq, pending);
    assert_int_equal(f->admitted[1].seq, behind);
}

static void a_leaver_is_not_admitted_pitfall_3(void **state) {
    struct fixture *f = *state;
    fill(f, 1, 3);
    assert_true(step_end(&f->s, KEY, 1, ENTRY_LEFT));
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 2);
    assert_int_equal(f->admitted[0].seq, 2);
    /* Also an entry that leaves while its admission is pending, however that is settled. */
    assert_true(step_end(&f->s, KEY, 2, ENTRY_LEFT));
    assert_int_equal(step_settle_admit(&f->s, KEY, 2, true).status, ENTRY_LEFT);
    assert_int_equal(step_settle_admit(&f->s, KEY, 3, true).status, ENTRY_ACTIVE);
    assert_step_counts(&f->s, KEY, 0, 1);
}

static void at_most_a_batch_per_interval_and_immediate_ones_count(void **state) {
    struct fixture *f = *state;
    f->e.queue.entry_batch_size = 3;
    store_configure(&f->s, &f->e);
    step_take_kept(&f->s, KEY, "at once", T0);
    fill(f, 2, 6);
    assert_int_equal(step_admit_kept(&f->s, KEY, T0, f->admitted), 2);
    assert_int_equal(step_admit_kept(&f->s, KEY, T0 + SECOND - 1, f->admitted), 0);
    assert_int_equal(step_admit_kept(&f->s, KEY, T0 + SECOND, f->admitted), 3);
    f->e.queue.max_active = 6;
    store_configure(&f->s, &f->e);
    assert_int_equal(step_admit_kept(&f->s, KEY, T0 + 2 * SECOND, f->admitted), 0);
    assert_step_counts(&f->s, KEY, 1, 6);
}

/* ---- pending ---- */

static void an_enter_that_submit_refuses_leaves_nothing(void **state) {
    struct fixture *f = *state;
    fill(f, 1, 2);
    f->s.verdict = ERR_OVERLOADED;
    struct entered e = step_enter(&f->s, KEY, STR("ann"), 8, T0);
    assert_int_equal(e.result, ERR_OVERLOADED);
    assert_int_equal(e.outcome, ENTER_TAKEN);
    assert_int_equal(status_at(f, e.place.seq, T0), ENTRY_NONE);
    assert_step_counts(&f->s, KEY, 2, 0);
    size_t count;
    enum err refused = step_admit_result(&f->s, KEY, T0, f->admitted, &count);
    assert_int_equal(refused, ERR_OVERLOADED);
    assert_step_counts(&f->s, KEY, 2, 0);
    assert_int_equal(step_look(&f->s, KEY, 1, T0).position, 1);
    f->s.verdict = ERR_OK;
    uint64_t again = step_take(&f->s, KEY, "ann", T0);
    assert_true(again > e.place.seq);
    assert_int_equal(step_admit(&f->s, KEY, T0 + SECOND, f->admitted), 2);
    assert_int_equal(f->admitted[0].seq, 1);
    assert_int_equal(f->admitted[1].seq, 2);
}

static void settling_keeps_or_undoes_and_twice_is_harmless(void **state) {
    struct fixture *f = *state;
    set_state(f, EVENT_PAUSED);
    uint64_t seqs[] = {step_take(&f->s, KEY, "a", T0), step_take(&f->s, KEY, "b", T0),
                       step_take(&f->s, KEY, "c", T0), 77};
    static const bool kept[] = {true, false, true, true};
    static const bool wrong[] = {false, true, false, true};
    struct place p[4];
    assert_int_equal(step_settle(&f->s, KEY, false, seqs, kept, 4, T0, p), ERR_OK);
    assert_int_equal(p[0].status, ENTRY_WAITING);
    assert_false(p[0].pending);
    assert_int_equal(p[0].position, 1);
    assert_int_equal(p[1].status, ENTRY_NONE);
    assert_int_equal(p[2].status, ENTRY_WAITING);
    assert_int_equal(p[2].position, 2);
    assert_int_equal(p[3].status, ENTRY_NONE);
    assert_int_equal(step_settle(&f->s, KEY, false, seqs, wrong, 4, T0, NULL), ERR_OK);
    assert_step_counts(&f->s, KEY, 2, 0);
    assert_int_equal(step_counts(&f->s, KEY).entered, 2);
    assert_int_equal(step_settle(&f->s, KEY, false, NULL, NULL, 0, T0, NULL), ERR_OK);
}

static void a_pending_admission_is_not_seen_and_undone_has_its_old_place(void **state) {
    struct fixture *f = *state;
    fill(f, 1, 3);
    assert_int_equal(step_admit(&f->s, KEY, T0, f->admitted), 3);
    assert_int_equal(step_look(&f->s, KEY, 2, T0).position, 2);
    assert_step_counts(&f->s, KEY, 3, 3);
    assert_int_equal(step_settle_admit(&f->s, KEY, 1, true).status, ENTRY_ACTIVE);
    assert_int_equal(step_settle_admit(&f->s, KEY, 1, false).status, ENTRY_ACTIVE);
    struct place p = step_settle_admit(&f->s, KEY, 2, false);
    assert_int_equal(p.status, ENTRY_WAITING);
    assert_int_equal(p.position, 1);
    assert_int_equal(step_settle_admit(&f->s, KEY, 2, true).status, ENTRY_WAITING);
    assert_step_counts(&f->s, KEY, 2, 2);
    /* The third is still pending, and no later entry may overtake it, because it may be refused. */
    assert_int_equal(step_admit(&f->s, KEY, T0 + SECOND, f->admitted), 0);
    step_settle_admit(&f->s, KEY, 3, true);
    assert_int_equal(step_admit(&f->s, KEY, T0 + SECOND, f->admitted), 1);
    assert_int_equal(f->admitted[0].seq, 2);
}

/* ---- grace ---- */

/* Ticks are regular; after a long gap without ticks no entry counts as silent. */
static void tick_between(struct fixture *f, int64_t from_ms, int64_t to_ms) {
    for (int64_t now_ms = from_ms; now_ms < to_ms; now_ms += SECOND)
        assert_int_equal(step_admit(&f->s, KEY, now_ms, f->admitted), 0);
}

static void the_silent_expire_and_the_seen_do_not(void **state) {
    struct fixture *f = *state;
    f->e.queue.max_active = 1;
    store_configure(&f->s, &f->e);
    step_take_kept(&f->s, KEY, "active", T0);
    fill(f, 2, 3);
    struct look_item items[] = {{.seq = 3, .seen = true}, {.seq = 2}};
    step_look_at(&f->s, KEY, items, 2, T0 + 200 * SECOND, NULL, NULL);
    /* Entering again is a sign of presence, too. */
    step_enter(&f->s, KEY, STR("user3"), 8, T0 + 100 * SECOND);
    int64_t over_ms = T0 + 300 * SECOND;
    tick_between(f, T0, over_ms);
    assert_int_equal(step_admit(&f->s, KEY, over_ms, f->admitted), 0);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 0);
    step_admit(&f->s, KEY, over_ms + 1, f->admitted);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 1);
    assert_heard(f, 0, HEARD_EXPIRED, 2);
    assert_int_equal(f->heard[0].entry.expires_ms, 0);
    assert_int_equal(f->heard[0].entry.waited_ms, 300 * SECOND + 1);
    assert_int_equal(status_at(f, 2, over_ms + 1), ENTRY_EXPIRED);
    assert_int_equal(step_look(&f->s, KEY, 3, T0).position, 1);
    tick_between(f, over_ms, T0 + 401 * SECOND);
    step_admit(&f->s, KEY, T0 + 401 * SECOND, f->admitted);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 1);
    assert_heard(f, 0, HEARD_EXPIRED, 4);
    tick_between(f, T0 + 401 * SECOND, T0 + 501 * SECOND);
    step_admit(&f->s, KEY, T0 + 501 * SECOND, f->admitted);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 1);
    assert_heard(f, 0, HEARD_EXPIRED, 3);
    assert_step_counts(&f->s, KEY, 0, 1);
}

/* ---- recovery, and events that come and go ---- */

static void restore(struct fixture *f, uint64_t seq, const char *user, unsigned lane,
                    enum entry_status status) {
    queues_restore(f->s.queues,
                   &(struct ledger_entry){.event_key = KEY,
                                          .seq = seq,
                                          .user = str_of(user),
                                          .lane = lane,
                                          .status = status,
                                          .joined_ms = T0 + (int64_t)seq,
                                          .expires_ms = status == ENTRY_ACTIVE ? T0 + 5000 : 0});
}

static void a_queue_is_restored_in_order_and_its_numbers_go_on(void **state) {
    struct fixture *f = *state;
    int64_t now_ms = T0 + 1000 * SECOND;
    store_rebuild_begins(&f->s);
    step_restore_event(&f->s, &f->e);
    restore(f, 10, "a", 8, ENTRY_WAITING);
    restore(f, 11, "b", 8, ENTRY_ACTIVE);
    restore(f, 50, "c", 0, ENTRY_WAITING);
    restore(f, 900, "d", 8, ENTRY_WAITING);
    queues_recovered(f->s.queues, KEY, 910, now_ms);
    store_rebuild_ends(&f->s);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 0);
    assert_step_counts(&f->s, KEY, 3, 1);
    assert_int_equal(step_look(&f->s, KEY, 50, T0).position, 1);
    assert_int_equal(step_look(&f->s, KEY, 10, T0).position, 2);
    assert_int_equal(step_look(&f->s, KEY, 900, T0).position, 3);
    assert_int_equal(step_look(&f->s, KEY, 11, T0).expires_ms, T0 + 5000);
    struct entered e = step_enter(&f->s, KEY, STR("a"), 8, now_ms);
    assert_int_equal(e.outcome, ENTER_THERE);
    assert_int_equal(e.place.seq, 10);
    assert_int_equal(e.place.joined_ms, T0 + 10);
    assert_false(e.place.pending);
    assert_int_equal(step_take_kept(&f->s, KEY, "e", now_ms), 910);
    /* Entries were not silent while the server was down; but b's time is over. */
    store_heard(&f->s, f->heard, 256);
    assert_int_equal(step_admit(&f->s, KEY, now_ms + 300 * SECOND, f->admitted), 4);
    assert_int_equal(f->admitted[0].seq, 50);
    assert_int_equal(f->admitted[0].promised_s, -1);
    assert_int_equal(f->admitted[1].seq, 10);
    assert_int_equal(f->admitted[2].seq, 900);
    assert_int_equal(f->admitted[3].seq, 910);
}

static void totals_are_restored_and_go_on(void **state) {
    struct fixture *f = *state;
    store_rebuild_begins(&f->s);
    step_restore_event(&f->s, &f->e);
    queues_restore_totals(f->s.queues, KEY,
                          &(struct queue_counts){.entered = 1000,
                                                 .admitted = 600,
                                                 .completed = 500,
                                                 .left = 300,
                                                 .expired = 198,
                                                 .waited_ms = 5000000000,
                                                 .waited_ms_max = 70000});
    restore(f, 999, "a", 8, ENTRY_WAITING);
    restore(f, 1000, "a", 8, ENTRY_WAITING); /* so the older one has expired */
    queues_recovered(f->s.queues, KEY, 1001, T0);
    store_rebuild_ends(&f->s);
    struct queue_counts c = step_counts(&f->s, KEY);
    assert_int_equal(c.waiting, 1);
    assert_int_equal(c.expired, 199);
    step_take_kept(&f->s, KEY, "b", T0);
    assert_true(step_end(&f->s, KEY, 1000, ENTRY_LEFT));
    c = step_counts(&f->s, KEY);
    assert_int_equal(c.entered, 1001);
    assert_int_equal(c.admitted, 600);
    assert_int_equal(c.completed, 500);
    assert_int_equal(c.left, 301);
    assert_int_equal(c.expired, 199);
    assert_int_equal(c.waited_ms, 5000000000);
    assert_int_equal(c.waited_ms_max, 70000);
}

static void of_two_restored_entries_of_a_user_the_older_has_expired(void **state) {
    struct fixture *f = *state;
    store_rebuild_begins(&f->s);
    step_restore_event(&f->s, &f->e);
    restore(f, 3, "ann", 8, ENTRY_WAITING);
    restore(f, 4, "bob", 8, ENTRY_WAITING);
    restore(f, 5, "ann", 8, ENTRY_WAITING);
    queues_recovered(f->s.queues, KEY, 6, T0);
    /* For an event that was deleted: nothing, and no damage. */
    queues_restore(f->s.queues,
                   &(struct ledger_entry){
                       .event_key = OTHER, .seq = 1, .user = STR("ann"), .status = ENTRY_WAITING});
    queues_recovered(f->s.queues, OTHER, 2, T0);
    store_rebuild_ends(&f->s);
    assert_int_equal(status_at(f, 3, T0), ENTRY_EXPIRED);
    assert_int_equal(step_look(&f->s, KEY, 4, T0).position, 1);
    assert_int_equal(step_enter(&f->s, KEY, STR("ann"), 8, T0).place.seq, 5);
    /* A store that is restored asynchronously reports it with the next step. */
    assert_int_equal(store_heard(&f->s, f->heard, 256), 1);
    assert_heard(f, 0, HEARD_EXPIRED, 3);
    step_enter(&f->s, KEY, STR("bob"), 8, T0);
    assert_int_equal(store_heard(&f->s, f->heard, 256), 0); /* once */
    assert_step_counts(&f->s, KEY, 2, 0);
}

static void an_event_that_is_not_there_is_not_found(void **state) {
    struct fixture *f = *state;
    size_t count = 1;
    bool kept = true;
    uint64_t seq = 1;
    assert_int_equal(step_enter(&f->s, OTHER, STR("ann"), 8, T0).result, ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_admit_result(&f->s, OTHER, T0, f->admitted, &count), ERR_EVENT_NOT_FOUND);
    assert_int_equal(count, 0);
    assert_int_equal(step_settle(&f->s, OTHER, false, &seq, &kept, 1, T0, NULL),
                     ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_look_at(&f->s, OTHER, NULL, 0, T0, NULL, NULL), ERR_EVENT_NOT_FOUND);
    assert_false(step_end(&f->s, OTHER, 1, ENTRY_LEFT));
    assert_int_equal(store_heard(&f->s, f->heard, 256), 0);
}

static void a_removed_event_is_gone_with_its_queue(void **state) {
    struct fixture *f = *state;
    uint64_t seq = step_take(&f->s, KEY, "ann", T0);
    struct event other = steps_event(OTHER);
    store_configure(&f->s, &other);
    step_take_kept(&f->s, OTHER, "ann", T0);
    step_remove(&f->s, KEY, f->e.version + 1);
    step_remove(&f->s, KEY, f->e.version + 1);
    step_configure(&f->s, &f->e); /* an older version */
    bool kept = true;
    assert_int_equal(step_settle(&f->s, KEY, false, &seq, &kept, 1, T0, NULL), ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_enter(&f->s, KEY, STR("ann"), 8, T0).result, ERR_EVENT_NOT_FOUND);
    assert_step_counts(&f->s, OTHER, 0, 1);
}

int queue_suite_run(const struct queue_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(entering_again_keeps_the_place_pitfall_1),
        TEST(entering_again_while_pending_submits_the_same_place_pitfall_1),
        TEST(entering_reports_the_seats_left_and_whether_the_user_holds_some),
        TEST(an_enter_that_may_take_no_place_finds_the_one_that_is_there),
        TEST(places_follow_numbers_not_names_or_clocks_pitfall_2),
        TEST(the_caps_hold_with_what_is_pending_pitfall_4),
        TEST(a_user_who_is_active_at_once_has_an_expiry_at_once_pitfall_5),
        TEST(expired_actives_make_room_for_a_user_who_enters_pitfall_6),
        TEST(expired_actives_make_room_for_a_user_who_is_admitted_pitfall_6),
        TEST(all_expired_entries_are_reported_however_many_there_are_pitfall_6),
        TEST(entering_again_after_expiry_gives_a_new_place_and_closes_the_old_pitfall_7),
        TEST(a_user_is_active_per_event_pitfall_9),
        TEST(completion_leave_and_expiry_free_the_place_at_once_pitfalls_11_and_12),
        TEST(an_ended_entry_does_not_change_pitfall_15),
        TEST(only_an_admitted_user_completes),
        TEST(a_new_configuration_is_taken_and_an_older_one_is_not_pitfall_15),
        TEST(an_estimate_is_rounded_up_never_to_nothing_pitfall_15),
        TEST(each_state_allows_entering_and_admission_as_documented),
        TEST(a_scheduled_event_opens_by_the_clock_and_says_when),
        TEST(unknown_is_no_number_and_the_first_come_is_first_pitfall_18),
        TEST(many_places_are_looked_at_in_one_step_and_none_is_fine),
        TEST(a_place_reports_a_user_name_of_maximum_length),
        TEST(lower_lanes_go_first_and_each_is_in_order),
        TEST(a_pending_enter_delays_its_own_lane_only),
        TEST(a_leaver_is_not_admitted_pitfall_3),
        TEST(at_most_a_batch_per_interval_and_immediate_ones_count),
        TEST(an_enter_that_submit_refuses_leaves_nothing),
        TEST(settling_keeps_or_undoes_and_twice_is_harmless),
        TEST(a_pending_admission_is_not_seen_and_undone_has_its_old_place),
        TEST(the_silent_expire_and_the_seen_do_not),
        TEST(a_queue_is_restored_in_order_and_its_numbers_go_on),
        TEST(totals_are_restored_and_go_on),
        TEST(of_two_restored_entries_of_a_user_the_older_has_expired),
        TEST(an_event_that_is_not_there_is_not_found),
        TEST(a_removed_event_is_gone_with_its_queue),
    };
#undef TEST
    return cmocka_run_group_tests_name("queue contract", tests, NULL, NULL);
}
