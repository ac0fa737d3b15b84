/* The functions for records and rows that both ledgers share. */
#include "ledger/record.h"

#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/mailbox.h"

const char *record_name(const struct ledger_record *r) {
    static const char *const names[] = {[LEDGER_EVENT_PUT] = "event put",
                                        [LEDGER_EVENT_DELETE] = "event delete",
                                        [LEDGER_ACT] = "act",
                                        [LEDGER_ENTER] = "enter",
                                        [LEDGER_ENTER_VOID] = "undo enter",
                                        [LEDGER_ADMIT] = "admit",
                                        [LEDGER_END] = "end of entries",
                                        [LEDGER_HOLD] = "hold",
                                        [LEDGER_HOLD_VOID] = "undo hold",
                                        [LEDGER_CONFIRM] = "confirm",
                                        [LEDGER_CANCEL] = "cancel",
                                        [LEDGER_EXPIRE] = "expire",
                                        [LEDGER_REQUEST_PUT] = "accept request",
                                        [LEDGER_REQUEST_DECIDE] = "decide request",
                                        [LEDGER_REQUEST_LEASE] = "lease partitions",
                                        [LEDGER_FACTS_RELAYED] = "facts relayed",
                                        [LEDGER_FACTS_PUBLISH] = "publish facts",
                                        [LEDGER_NODE_REPORT] = "node report",
                                        [LEDGER_NODES_DROP] = "drop nodes"};
    bool is_known = (size_t)r->kind < sizeof names / sizeof *names && names[r->kind] != NULL;
    return is_known ? names[r->kind] : "read";
}

static enum err event_put_make(struct ledger_event_put *put, const struct event *old,
                               struct event **planned) {
    if (put->edit == NULL) {
        struct event wanted = *put->wanted;
        if (put->keeps_state && old != NULL) wanted.state = old->state;
        if (put->keeps_notice && old != NULL) wanted.notice = old->notice;
        *planned = event_copy(&wanted);
        return ERR_OK;
    }
    *planned = event_copy(old);
    return put->edit(put, planned);
}

/* `present` is the version of the event in force; 0: there is none. */
static bool event_version_fits(int64_t if_version, int64_t present) {
    if (if_version == 0) return true;
    return present > 0 && (if_version == EVENT_VERSION_ANY || if_version == present);
}

static bool event_put_adds_seats(const struct event *old, const struct event *planned) {
    return event_capacity(planned) > (old == NULL ? 0 : event_capacity(old));
}

enum err event_put_plan(struct ledger_event_put *put, const struct event *old,
                        struct event **planned) {
    *planned = NULL;
    if (put->edit != NULL && old == NULL) return ERR_EVENT_NOT_FOUND;
    int64_t present = old == NULL ? 0 : old->version;
    if (!event_version_fits(put->if_version, present)) {
        put->version_present = present;
        return ERR_VERSION_MISMATCH;
    }
    enum err result = event_put_make(put, old, planned);
    /* An event that has more seats already may change otherwise. */
    if (result == ERR_OK && event_put_adds_seats(old, *planned) &&
        event_capacity(*planned) > EVENT_CAPACITY_MAX) {
        put->seats_wanted = event_capacity(*planned);
        result = ERR_TOO_MANY_SEATS;
    }
    if (result == ERR_OK) return ERR_OK;
    mem_free(*planned);
    *planned = NULL;
    return result;
}

enum err event_delete_judge(struct ledger_event_delete *del, int64_t key, int64_t version,
                            bool live) {
    if (key == 0) return ERR_EVENT_NOT_FOUND;
    if (!event_version_fits(del->if_version, version)) {
        del->version_present = version;
        return ERR_VERSION_MISMATCH;
    }
    return live ? ERR_EVENT_IN_USE : ERR_OK;
}

bool event_put_grows(const struct ledger_event_put *put, const struct event *old,
                     const struct event *planned) {
    return put->seats_max > 0 && event_put_adds_seats(old, planned);
}

enum err event_put_seats(struct ledger_event_put *put, const struct event *planned,
                         int64_t others) {
    put->seats_wanted = event_capacity(planned);
    put->seats_others = others;
    return put->seats_wanted <= put->seats_max - others ? ERR_OK : ERR_TOO_MANY_SEATS;
}

bool seats_from_text(str text, uint32_t *seats, uint32_t count) {
    str part;
    uint32_t n = 0;
    int64_t before = 0;
    while (str_split(&text, ',', &part)) {
        int64_t number = 0;
        if (n == count || !str_to_i64(part, &number)) return false;
        if (number <= before || number > SECTION_CAPACITY_MAX) return false;
        seats[n++] = (uint32_t)number;
        before = number;
    }
    return n == count;
}

void seats_to_text(const uint32_t *seats, uint32_t count, struct buf *out) {
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) buf_add_char(out, ',');
        buf_add_i64(out, seats[i]);
    }
}

struct request *request_from_row(const struct request_row *row) {
    bool names_seats = row->seats.at != NULL;
    bool fits = row->quantity > 0 && row->quantity <= RESERVATION_SEATS_MAX && row->user.len > 0 &&
                row->user.len <= USER_ID_BYTES_MAX && row->partition >= 0 &&
                row->partition < REQUEST_PARTITIONS && row->ahead >= 0 && row->ahead <= row->seq;
    struct request *r = request_new(fits && names_seats ? (uint32_t)row->quantity : 0);
    int strategy = word_index(strategy_words, row->strategy);
    int status = word_index(request_status_words, row->status);
    fits = fits && strategy >= 0 && status >= 0 && clock_writable(row->created_ms) &&
           clock_writable(row->finished_ms) && row->digest.len == sizeof r->digest &&
           str_copy(row->user, r->user, sizeof r->user) &&
           str_copy(row->reason, r->reason, sizeof r->reason) &&
           (!names_seats || seats_from_text(row->seats, r->seats, r->quantity));
    r->id = row->id;
    r->seq = row->seq;
    bool has_partition = row->partition >= 0 && row->partition < REQUEST_PARTITIONS;
    r->partition = has_partition ? (int)row->partition : 0;
    r->event_key = row->event_key;
    r->section_key = row->section_key;
    r->entry_seq = (uint64_t)row->entry_seq;
    r->status = status >= 0 ? (enum request_status)status : REQUEST_FAIL;
    r->ahead = row->ahead >= 0 && row->ahead <= row->seq ? row->ahead : 0;
    r->reservation = row->reservation;
    r->created_ms = clock_writable(row->created_ms) ? row->created_ms : 0;
    r->finished_ms = clock_writable(row->finished_ms) ? row->finished_ms : CLOCK_NONE_MS;
    r->hold_expires_ms =
        clock_writable(row->hold_expires_ms) ? row->hold_expires_ms : CLOCK_NONE_MS;
    r->quantity = fits ? (uint32_t)row->quantity : 0;
    if (!fits) {
        log_error(msg("the row of an asynchronous request is not valid; the request fails"),
                  kv_i64("requests.seq", row->seq));
        return r;
    }
    r->strategy = (enum strategy)strategy;
    memcpy(r->digest, row->digest.at, sizeof r->digest);
    return r;
}

void requests_open_init(struct ledger_requests_open *open) {
    for (int p = 0; p < REQUEST_PARTITIONS; p++) open->partitions[p] = (struct open_requests){0};
}

void requests_open_add(struct ledger_requests_open *open, int64_t partition, int64_t seq) {
    if (partition < 0 || partition >= REQUEST_PARTITIONS) return; /* `admitone audit` reports it */
    struct open_requests *o = &open->partitions[partition];
    /* The room doubles whenever the count is a power of two. */
    if ((o->count & (o->count - 1)) == 0)
        o->seqs = mem_grow(o->seqs, (o->count == 0 ? 1 : 2 * o->count) * sizeof *o->seqs);
    o->seqs[o->count++] = seq;
}

void requests_open_free(struct ledger_requests_open *open) {
    for (int p = 0; p < REQUEST_PARTITIONS; p++) mem_free(open->partitions[p].seqs);
    requests_open_init(open);
}

/* A page ends early when its facts have so many seats together, so that its size has a bound. */
#define PAGE_SEATS_MAX 20000

static struct fact *fact_from_row(const struct fact_row *row) {
    int kind = word_index(fact_kind_words, row->kind);
    bool has_seats = row->seats.at != NULL;
    bool fits = kind >= 0 && (kind == FACT_SOLD_OUT) == (row->reservation == NULL) &&
                row->at_ms >= 0 && clock_writable(row->at_ms) && row->seat_count >= 0 &&
                row->seat_count <= RESERVATION_SEATS_MAX;
    struct fact *f = fact_new(fits && has_seats ? (uint32_t)row->seat_count : 0);
    fits = fits && str_copy(row->event_type, f->event_type, sizeof f->event_type) &&
           str_copy(row->event_id, f->event_id, sizeof f->event_id) &&
           str_copy(row->section, f->section, sizeof f->section) &&
           str_copy(row->user, f->user, sizeof f->user) &&
           str_copy(row->currency, f->currency, sizeof f->currency) &&
           (!has_seats || seats_from_text(row->seats, f->seats, f->seat_count));
    if (!fits) {
        log_error(msg("left out a fact whose row is not valid; run admitone audit"),
                  kv_i64("facts.id", row->mark.id));
        mem_free(f);
        return NULL;
    }
    f->mark = row->mark;
    f->kind = (enum fact_kind)kind;
    f->at_ms = row->at_ms;
    if (row->reservation != NULL) f->reservation = *row->reservation;
    f->seat_count = (uint32_t)row->seat_count;
    f->price = row->price;
    return f;
}

void facts_page_begin(struct ledger_facts_page *page) {
    assert(page->max > 0 && page->max <= FACTS_PAGE_MAX);
    page->count = 0;
    page->seat_count = 0;
    page->mark = page->after;
}

bool facts_page_add(struct ledger_facts_page *page, const struct fact_row *row) {
    struct fact *f = fact_from_row(row);
    page->mark = row->mark;
    if (f == NULL) return true;
    page->facts[page->count++] = f;
    page->seat_count += f->seat_count;
    return page->count < page->max && page->seat_count < PAGE_SEATS_MAX;
}

void facts_page_free(struct ledger_facts_page *page) {
    for (size_t i = 0; i < page->count; i++) mem_free(page->facts[i]);
    facts_page_begin(page);
}

/* A page of audit rows is rendered in memory, so it has a bound whatever was asked for. */
#define AUDIT_ROWS_MAX 1000
/* A page ends early when it has grown to this. */
#define AUDIT_BYTES_MAX (256 * 1024)

void events_read_begin(struct ledger_events_read *read) {
    read->mark = 0;
    read->events = NULL;
    read->count = 0;
    read->removed = NULL;
    read->removed_count = 0;
}

void events_read_add(void *to, struct event *e) {
    struct ledger_events_read *read = to;
    read->events = mem_grow(read->events, (read->count + 1) * sizeof(struct event *));
    read->events[read->count++] = e;
}

void events_read_free(struct ledger_events_read *read) {
    for (size_t i = 0; i < read->count; i++) mem_free(read->events[i]);
    mem_free(read->events);
    mem_free(read->removed);
    events_read_begin(read);
}

void audit_page_begin(struct audit_page_writer *w, struct ledger_audit_page *page) {
    assert(page->limit > 0);
    page->json = (struct buf){0};
    page->next = 0;
    *w = (struct audit_page_writer){.page = page, .limit = page->limit};
    if (w->limit > AUDIT_ROWS_MAX) w->limit = AUDIT_ROWS_MAX;
    json_out_init(&w->json, &page->json);
    json_out_array(&w->json, STR(""));
}

bool audit_page_add(struct audit_page_writer *w, const struct audit_row *row) {
    if (w->count++ == w->limit || w->page->json.len >= AUDIT_BYTES_MAX) {
        w->page->next = w->last;
        return false;
    }
    w->last = row->id;
    json_out_object(&w->json, STR(""));
    json_out_i64(&w->json, STR("id"), row->id);
    json_out_time(&w->json, STR("at"), row->at_ms);
    json_out_str(&w->json, STR("actor"), row->actor);
    json_out_str(&w->json, STR("act"), row->act);
    json_out_str(&w->json, STR("subject"), row->subject);
    json_out_raw(&w->json, STR("detail"), row->detail);
    json_out_object_end(&w->json);
    return true;
}

void audit_page_end(struct audit_page_writer *w, bool ok) {
    json_out_array_end(&w->json);
    json_out_done(&w->json);
    if (!ok) buf_deinit(&w->page->json);
}

static void put_undo(struct ledger_event_put *put) {
    mem_free(put->stored);
    put->stored = NULL;
    put->created = false;
    put->version_present = 0;
    put->seats_wanted = 0;
    put->seats_others = 0;
    put->in_use[0] = '\0';
}

static void hold_undo(struct ledger_hold *hold) {
    hold->held = false;
    hold->sold_out = false;
    hold->refused_count = 0;
    hold->free_at_ms = 0;
    if (hold->idempotency != NULL) hold->idempotency->replayed = false;
}

static void request_decide_undo(struct ledger_request_decide *decide) {
    decide->decided = false;
    decide->reason[0] = '\0';
    decide->reservation = (struct uuid){0};
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
    case LEDGER_REQUEST_PUT:
        ((struct ledger_request_put *)r)->is_new = false;
        break;
    case LEDGER_REQUEST_DECIDE:
        request_decide_undo((struct ledger_request_decide *)r);
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
