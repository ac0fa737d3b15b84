/* Reads everything that Redis has of an event, to compare it with the ledger: the hashes of its
 * entries and of its reservations (documented in lua/queue.lua and lua/seats.lua), page by page, so
 * that other calls need not wait. */
#include <stdlib.h>

#include "hot/redis/internal.h"

#define STEP_MS 10000

struct contents_reader {
    const struct redis_store *store;
    redisContext *context;
    struct redis_event *event; /* held */
    struct event_contents *out;
};

/* ---- one field of a hash ---- */

/* The step of a live entry; false: it has ended. */
static bool contents_read_step(str step, struct contents_entry *e) {
    bool is_waiting = str_eq(step, STR("WAITING"));
    bool is_active = str_eq(step, STR("ACTIVE"));
    bool is_activating = str_eq(step, STR("ACTIVATING"));
    e->pending = is_activating || str_eq(step, STR("ENTERING")) || str_eq(step, STR("ADMITTING"));
    e->status = is_active || is_activating ? ENTRY_ACTIVE : ENTRY_WAITING;
    return is_waiting || is_active || e->pending;
}

static void contents_add_entry(struct contents_reader *s, const redisReply *field,
                               const redisReply *value) {
    struct contents_entry e = {.seq = reply_u64(field)};
    str rest = reply_str(value);
    str step;
    str lane;
    if (!str_split(&rest, ' ', &step) || !contents_read_step(step, &e)) return;
    str_split(&rest, ' ', &lane);
    e.joined_ms = text_next_i64(&rest);
    event_contents_add_entry(s->out, e);
}

/* "5,1-3" are four seats. */
static uint32_t contents_count_seats(str list) {
    uint32_t count = 0;
    str run;
    while (str_split(&list, ',', &run)) {
        int64_t first = 0;
        int64_t last = 0;
        str from;
        str_split(&run, '-', &from);
        if (!str_to_i64(from, &first)) continue;
        if (!str_to_i64(run, &last)) last = first;
        if (last >= first) count += (uint32_t)(last - first + 1);
    }
    return count;
}

static void contents_add_reservation(struct contents_reader *s, const redisReply *field,
                                     const redisReply *value) {
    enum { SECTION, STEP, ENTRY, EXPIRES, KEY, REQUEST, SEATS, WORDS };
    str words[WORDS] = {0};
    str rest = reply_str(value);
    for (size_t i = 0; i < WORDS; i++) str_split(&rest, ' ', &words[i]);
    struct claim_info r = {.seat_count = contents_count_seats(words[SEATS]),
                           .pending = str_eq(words[STEP], STR("P")),
                           .status = str_eq(words[STEP], STR("C")) ? RESERVATION_CONFIRMED
                                                                   : RESERVATION_HELD};
    int64_t entry = 0;
    bool is_whole = uuid_parse(reply_str(field), &r.id) &&
                    str_to_i64(words[SECTION], &r.section_key) &&
                    str_to_i64(words[ENTRY], &entry) && str_to_i64(words[EXPIRES], &r.expires_ms);
    if (!is_whole) return;
    r.entry_seq = (uint64_t)entry;
    event_contents_add_reservation(s->out, r);
}

/* ---- page by page ---- */

static bool contents_read_hash(struct contents_reader *s, const char *family, const char *part,
                               void (*add)(struct contents_reader *s, const redisReply *field,
                                           const redisReply *value)) {
    char cursor[24] = "0";
    do {
        redisReply *page =
            store_check_reply(s->store, s->context,
                              redisCommand(s->context, "HSCAN %s:{%s}%s %s COUNT 1000", family,
                                           s->event->tag, part, cursor));
        const redisReply *fields = reply_at(page, 1);
        for (size_t i = 0; fields != NULL && i + 1 < fields->elements; i += 2)
            add(s, reply_at(fields, i), reply_at(fields, i + 1));
        bool done = page != NULL && str_copy(reply_str(reply_at(page, 0)), cursor, sizeof cursor);
        freeReplyObject(page);
        if (!done) return false;
    } while (strcmp(cursor, "0") != 0);
    return true;
}

static int contents_compare_seq(const void *a, const void *b) {
    uint64_t left = ((const struct contents_entry *)a)->seq;
    uint64_t right = ((const struct contents_entry *)b)->seq;
    return left < right ? -1 : left > right;
}

static int contents_compare_id(const void *a, const void *b) {
    return memcmp(&((const struct claim_info *)a)->id, &((const struct claim_info *)b)->id,
                  sizeof(struct uuid));
}

/* Sorts, and keeps the first of those that two pages contain. Returns how many are left. */
static size_t contents_sort(void *array, size_t count, size_t item_size,
                            int (*order)(const void *, const void *)) {
    if (count == 0) return 0;
    qsort(array, count, item_size, order);
    char *items = array;
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        if (order(items + (kept - 1) * item_size, items + i * item_size) == 0) continue;
        memmove(items + kept * item_size, items + i * item_size, item_size);
        kept++;
    }
    return kept;
}

/* A field as a number; 0 when there is none. False: Redis did not answer. */
static bool contents_read_number(struct contents_reader *s, uint64_t *out, redisReply *reply) {
    redisReply *r = store_check_reply(s->store, s->context, reply);
    *out = reply_u64(r);
    freeReplyObject(r);
    return r != NULL;
}

/* Whether Redis is in this incarnation, and has the event. */
static enum err contents_check(struct contents_reader *s, uint32_t epoch) {
    redisContext *c = s->context;
    uint64_t current = 0;
    uint64_t event_epoch = 0;
    uint64_t key = 0;
    uint64_t deleted = 0;
    const char *tag = s->event->tag;
    if (!contents_read_number(s, &current, redisCommand(c, "HGET " INCARNATION_KEY " epoch")) ||
        !contents_read_number(s, &event_epoch,
                              redisCommand(c, "HGET queue:{%s}:meta epoch", tag)) ||
        !contents_read_number(s, &key, redisCommand(c, "HGET queue:{%s}:meta key", tag)) ||
        !contents_read_number(s, &deleted, redisCommand(c, "HGET queue:{%s}:meta deleted", tag)))
        return ERR_HOT_UNAVAILABLE;
    if (current != epoch) return ERR_RECOVERING;
    bool is_there = event_epoch == epoch && key == (uint64_t)s->event->key && deleted == 0;
    return is_there ? ERR_OK : ERR_EVENT_NOT_FOUND;
}

static enum err contents_read_all(struct contents_reader *s, uint32_t epoch) {
    if (!contents_read_hash(s, "queue", ":entry", contents_add_entry) ||
        !contents_read_hash(s, "claim", "", contents_add_reservation))
        return ERR_HOT_UNAVAILABLE;
    struct event_contents *out = s->out;
    out->entry_count =
        contents_sort(out->entries, out->entry_count, sizeof *out->entries, contents_compare_seq);
    out->reservation_count = contents_sort(out->reservations, out->reservation_count,
                                           sizeof *out->reservations, contents_compare_id);
    return contents_check(s, epoch);
}

static enum err contents_read_event(struct redis_store *store, struct redis_event *event,
                                    struct event_contents *out) {
    struct contents_reader s = {.store = store, .event = event, .out = out};
    struct hot_incarnation incarnation = redis_status_incarnation(&store->status);
    if (incarnation.epoch == 0) return ERR_RECOVERING;
    char identity[HOT_IDENTITY_BYTES];
    s.context = store_connect(store, STEP_MS, identity);
    if (s.context == NULL) return ERR_HOT_UNAVAILABLE;
    enum err result = strcmp(identity, incarnation.identity) != 0
                          ? ERR_RECOVERING
                          : contents_check(&s, incarnation.epoch);
    if (result == ERR_OK) result = contents_read_all(&s, incarnation.epoch);
    redisFree(s.context);
    if (result != ERR_OK) event_contents_clear(out);
    return result;
}

enum err redis_read_event(struct hot *h, int64_t event_key, struct event_contents *out) {
    struct redis_store *store = CONTAINER_OF(h, struct redis_store, hot);
    struct redis_event *event = store_find_event(store, event_key);
    *out = (struct event_contents){0};
    if (event == NULL) return ERR_EVENT_NOT_FOUND;
    enum err result = contents_read_event(store, event, out);
    redis_event_release(event);
    return result;
}
