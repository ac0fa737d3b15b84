/*
 * event: what is sold, as it is configured. Pure data and its rules; no I/O, no clock.
 *
 * An event is one block of memory (event_new): the struct, then its sections, then its texts. Once
 * it is in the catalogue it is never written again; a change makes a new one with a higher version.
 */
#ifndef ADMITONE_CORE_EVENT_H
#define ADMITONE_CORE_EVENT_H

#include "base/str.h"
#include "core/limits.h"

/* X(symbol): the words of JSON, SQL and the docs. */
#define EVENT_STATE_MAP(X) X(DRAFT) X(OPEN) X(PAUSED) X(DRAINING) X(CLOSED)
/* X(symbol, word) */
#define SECTION_MODE_MAP(X) X(SLOT, "slot") X(LOCK, "lock") X(ADAPTIVE, "adaptive") X(SEAT, "seat")
#define SECTION_STATUS_MAP(X) X(OPEN, "open") X(CLOSED, "closed") X(MAINTENANCE, "maintenance")
/* UNSET: confirm_by_resolve decides. */
#define CONFIRM_BY_MAP(X) X(UNSET, "") X(SHOP, "shop") X(USER, "user")

enum event_state {
#define STATE_ENUM(symbol) EVENT_##symbol,
    EVENT_STATE_MAP(STATE_ENUM)
#undef STATE_ENUM
};
enum section_mode {
#define MODE_ENUM(symbol, word) SECTION_MODE_##symbol,
    SECTION_MODE_MAP(MODE_ENUM)
#undef MODE_ENUM
};
enum section_status {
#define STATUS_ENUM(symbol, word) SECTION_##symbol,
    SECTION_STATUS_MAP(STATUS_ENUM)
#undef STATUS_ENUM
};
enum confirm_by {
#define CONFIRM_ENUM(symbol, word) CONFIRM_BY_##symbol,
    CONFIRM_BY_MAP(CONFIRM_ENUM)
#undef CONFIRM_ENUM
};

/* Each word list ends with an entry whose `at` is NULL. */
extern const str event_state_words[];
extern const str section_mode_words[];
extern const str section_status_words[];
extern const str confirm_by_words[];

/* The index of the word in such a list, or -1. */
int word_index(const str *words, str word);

struct section {
    int64_t key; /* the ledger's number for it; 0 until it is stored */
    char id[SECTION_ID_BYTES_MAX + 1];
    char name[SECTION_NAME_BYTES_MAX + 1];
    int64_t capacity;
    int64_t price; /* per seat, in the currency's minor unit */
    enum section_mode mode;
    enum section_status status;
    int64_t held; /* seats by state, as last read from the ledger; the rest is available */
    int64_t confirmed;
};

struct queue_rules {
    int64_t max_waiting;
    int64_t max_active;
    int64_t entry_batch_size;
    int64_t entry_interval_s;
    int64_t active_ttl_s;
    int64_t grace_s;
    int64_t token_ttl_s; /* 0: as long as the entry */
};

struct event {
    int64_t key; /* the ledger's number for it; a deleted event's is never used again */
    int64_t version;
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
    char title[EVENT_TITLE_BYTES_MAX + 1];
    char currency[4];
    enum event_state state;
    bool auto_enter;
    int64_t opens_at_ms; /* CLOCK_NONE_MS: no time */
    int64_t closes_at_ms;
    int64_t starts_at_ms;
    int64_t opened_at_ms; /* when it first was OPEN, as of the last change; or no time */
    int64_t created_at_ms;
    int64_t updated_at_ms;
    struct queue_rules queue;
    int64_t hold_s;
    int64_t max_per_user;
    int64_t rehold_s;           /* 0: seats that were given up may be named again at once */
    int64_t max_holds_per_stay; /* 0: no limit */
    enum confirm_by confirm_by; /* who may confirm */
    bool cancel_confirmed;      /* users may cancel their own CONFIRMED reservations */
    size_t section_count;
    struct section *sections; /* behind the struct, in its own block */
    /* The texts, behind the sections. Empty: not set. */
    str page;         /* how the waiting room looks: a JSON object */
    str return_hosts; /* sites to which it may send users, separated by commas: "a.example,b:8443"
                       */
    str notice;       /* shown to all who wait */
};

/* When an event opens and closes, and the state that it was set to. */
struct event_hours {
    enum event_state state;
    int64_t opens_at_ms; /* CLOCK_NONE_MS: no time */
    int64_t closes_at_ms;
};
struct event_hours event_hours_of(const struct event *e);
/* From closesAt on. Then no user will be admitted any more, so those who wait lose their places. */
bool event_is_over(const struct event_hours *h, int64_t now_ms);
/* The effective state: before opensAt every state but CLOSED counts as DRAFT; after opensAt, DRAFT
 * counts as OPEN; from closesAt on every state but DRAFT counts as CLOSED. */
enum event_state event_state_at(const struct event_hours *h, int64_t now_ms);
enum event_state event_effective_state(const struct event *e, int64_t now_ms);

/* SHOP or USER. An event that does not set it is confirmed by users where `users_are_trusted`:
 * there the shop's own servers send all requests. */
enum confirm_by confirm_by_resolve(enum confirm_by set, bool users_are_trusted);

/* Whether waiting users are admitted in that effective state. */
static inline bool event_state_admits(enum event_state effective) {
    return effective == EVENT_OPEN || effective == EVENT_DRAINING;
}
/* Whether seats are sold in that effective state, or in a section of that status. */
static inline bool event_state_sells(enum event_state effective) {
    return effective != EVENT_CLOSED && effective != EVENT_DRAFT;
}
static inline bool section_status_sells(enum section_status s) {
    return s == SECTION_OPEN;
}

/* Whether the public sees the event: not as long as it is a DRAFT. One that was set to OPEN with a
 * later opensAt is announced: it is seen, and sells nothing yet. */
bool event_is_public(const struct event *e, int64_t now_ms);

/* The opened_at_ms of `after`, which a change has made of `before` (NULL: the event is new). */
int64_t event_opened_ms(const struct event *before, const struct event *after, int64_t now_ms);
/* When its sale opened, or will open at opensAt; CLOCK_NONE_MS: not known. */
int64_t event_sale_opens_ms(const struct event *e);

/* Zeroed, with room for that many sections; mem_free frees it. */
struct event *event_new(size_t section_count);
/* The same with everything but the sections of `like`, whose texts may be anywhere. */
struct event *event_new_like(const struct event *like, size_t section_count);
struct event *event_copy(const struct event *e);
/* Copies into memory of the caller: event_bytes(e) bytes, aligned for any type. */
size_t event_bytes(const struct event *e);
struct event *event_copy_to(void *memory, const struct event *e);
/* For copies that need no texts, which may be longer than all the rest. Shares its sections. */
struct event event_without_texts(const struct event *e);

/* Seats of all sections. */
int64_t event_capacity(const struct event *e);
/* Whether a change of the event removes its last free seats; `before` may be NULL. */
bool event_sells_out(const struct event *before, const struct event *after);
const struct section *event_section(const struct event *e, str id);
/* Whether all values are within their limits: for rows that are read from a database. */
bool event_ok(const struct event *e);
bool section_ok(const struct section *s);
/* How many seats are left. For a moment more may be taken than a section that has just shrunk has
 * room for: then none. */
int64_t section_available(const struct section *s);

/* The names of a section and of its event. Empty: it was deleted. */
struct section_names {
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
    char section[SECTION_ID_BYTES_MAX + 1];
};

/* Letters, digits, '_', '-', '.': what may stand in a path, a Redis key and a metric's label. */
bool event_name_ok(str name, size_t bytes_max);
bool event_currency_ok(str currency);

/* "TYPE/ID", the one key of an event in maps. */
#define EVENT_PATH_BYTES (EVENT_TYPE_BYTES_MAX + 1 + EVENT_ID_BYTES_MAX + 1)
/* Empty when the two together could not be an event's name. */
str event_path(str type, str id, char out[EVENT_PATH_BYTES]);

#endif
