/* The functions for records and rows that both ledgers share. */
#include "ledger/record.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/mailbox.h"

const char *record_name(const struct ledger_record *r) {
    static const char *const names[] = {[LEDGER_EVENT_PUT] = "event put",
                                        [LEDGER_EVENT_DELETE] = "event delete",
                                        [LEDGER_ENTER] = "enter",
                                        [LEDGER_ENTER_VOID] = "undo enter",
                                        [LEDGER_ADMIT] = "admit",
                                        [LEDGER_END] = "end of entries",
                                        [LEDGER_HOLD] = "hold",
                                        [LEDGER_HOLD_VOID] = "undo hold",
                                        [LEDGER_CONFIRM] = "confirm",
                                        [LEDGER_CANCEL] = "cancel",
                                        [LEDGER_EXPIRE] = "expire",
                                        [LEDGER_FACTS_RELAYED] = "facts relayed",
                                        [LEDGER_NODE_REPORT] = "node report",
                                        [LEDGER_NODES_DROP] = "drop nodes"};
    bool is_known = (size_t)r->kind < sizeof names / sizeof *names && names[r->kind] != NULL;
    return is_known ? names[r->kind] : "read";
}

bool seats_from_text(str text, struct reservation *r) {
    str part;
    uint32_t n = 0;
    int64_t before = 0;
    while (str_split(&text, ',', &part)) {
        int64_t number = 0;
        if (n == r->seat_count || !str_to_i64(part, &number)) return false;
        if (number <= before || number > SECTION_CAPACITY_MAX) return false;
        r->seats[n++] = (uint32_t)number;
        before = number;
    }
    return n == r->seat_count;
}

static void put_undo(struct ledger_event_put *put) {
    mem_free(put->stored);
    put->stored = NULL;
    put->created = false;
    put->in_use[0] = '\0';
}

static void hold_undo(struct ledger_hold *hold) {
    hold->held = false;
    hold->sold_out = false;
    hold->refused_count = 0;
    if (hold->idempotency != NULL) hold->idempotency->replayed = false;
}

static void confirm_undo(struct ledger_confirm *confirm) {
    mem_free(confirm->stored);
    confirm->stored = NULL;
    confirm->confirmed = false;
    confirm->completed = false;
    confirm->expired = false;
}

static void cancel_undo(struct ledger_cancel *cancel) {
    mem_free(cancel->stored);
    cancel->stored = NULL;
    cancel->cancelled = false;
    cancel->expired = false;
}

enum sale_kind sale_kind_of(str kind) {
    if (str_eq(kind, STR("HELD"))) return SALE_TAKEN;
    return str_eq(kind, STR("SOLD_OUT")) ? SALE_SOLD_OUT : SALE_GIVEN_BACK;
}

bool ledger_entry_ok(const struct ledger_entry *e) {
    return (e->status == ENTRY_WAITING || e->status == ENTRY_ACTIVE) && e->seq > 0 &&
           e->seq <= ENTRY_SEQ_MAX && e->lane < LANES && e->user.len > 0 &&
           e->user.len <= USER_ID_BYTES_MAX && e->joined_ms >= 0 &&
           e->joined_ms < ENTRY_TIME_MS_END;
}

bool sale_check(const struct sale *s) {
    bool is_ok = s->at_ms >= 0 && clock_writable(s->at_ms) && s->taken_ms >= 0 &&
                 clock_writable(s->taken_ms) && s->seats >= 0 && s->seats <= SECTION_CAPACITY_MAX;
    if (!is_ok)
        log_error(msg("ignored a fact whose time or number of seats is not valid; rankings do not "
                      "count it"),
                  kv_i64("facts.id", s->mark.id));
    return is_ok;
}

void record_undo(struct ledger_record *r) {
    switch (r->kind) {
    case LEDGER_EVENT_PUT:
        put_undo((struct ledger_event_put *)r);
        break;
    case LEDGER_EVENT_DELETE:
        ((struct ledger_event_delete *)r)->version = 0;
        break;
    case LEDGER_HOLD:
        hold_undo((struct ledger_hold *)r);
        break;
    case LEDGER_HOLD_VOID:
        ((struct ledger_hold_void *)r)->voided = false;
        break;
    case LEDGER_ENTER_VOID:
        ((struct ledger_enter_void *)r)->voided = false;
        break;
    case LEDGER_CONFIRM:
        confirm_undo((struct ledger_confirm *)r);
        break;
    case LEDGER_CANCEL:
        cancel_undo((struct ledger_cancel *)r);
        break;
    default: /* their outputs per item are valid only when the result is OK */
        break;
    }
}

void records_hand_back(struct ledger_record **records, size_t left, _Atomic int64_t *depth) {
    if (depth != NULL) atomic_fetch_sub(depth, (int64_t)left);
    while (left > 0) {
        struct mailbox *home = records[0]->task.home;
        struct task_list same = {0};
        size_t others = 0;
        for (size_t i = 0; i < left; i++) {
            if (records[i]->task.home == home)
                task_list_add(&same, &records[i]->task);
            else
                records[others++] = records[i];
        }
        mailbox_post_all(home, &same);
        left = others;
    }
}
