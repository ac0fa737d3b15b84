/*
 * seats_model: one event's seats and reservations in their simplest form: arrays that are scanned
 * for every question. core/claims.h and every adapter must give the same answers.
 */
#ifndef ADMITONE_TEST_SEATS_MODEL_H
#define ADMITONE_TEST_SEATS_MODEL_H

#include "core/claims.h"

#define MODEL_SECTIONS 3
#define MODEL_SEATS 60
#define MODEL_BUYERS 8
#define MODEL_LIVE 512

struct model_reservation {
    uint64_t id; /* 0: none */
    int user;
    uint64_t entry_seq;
    int section;
    uint32_t seats[MODEL_SEATS];
    uint32_t count;
    struct claim_key key;
    bool pending;
    bool confirmed;
    int64_t expires_ms;
    int64_t due_ms; /* of a settled hold */
};

struct model_section {
    bool exists;
    uint32_t wanted; /* capacity as configured, and as it is */
    uint32_t capacity;
    enum section_mode mode;
    enum section_status status;
};

struct seats_model {
    struct model_section sections[MODEL_SECTIONS];
    struct model_reservation live[MODEL_LIVE]; /* in the order in which they came */
    size_t live_count;
    uint64_t entries[MODEL_BUYERS]; /* the ACTIVE entry of each user; 0: none */
    int64_t limit;
    int64_t hold_ms;
    bool is_closed;
    int64_t now_ms;
};

struct model_reservation *seats_model_find(struct seats_model *m, uint64_t id);
/* The reservation that has the seat; NULL: none. */
struct model_reservation *seats_model_holder(struct seats_model *m, int section, uint32_t seat);
uint32_t seats_model_taken(struct seats_model *m, int section, int user, bool confirmed);

/* Like claims_claim; r has id, user, entry_seq, section, count and key. DONE: it is added, with
 * seats; else `seats` are those that refuse it, those that the rule suggests, or those of *there.
 */
enum claim_outcome seats_model_claim(struct seats_model *m, struct model_reservation *r,
                                     const uint32_t *named, struct model_reservation **there);
void seats_model_remove(struct seats_model *m, struct model_reservation *r);
/* The seat is no longer its holder's. */
void seats_model_lose(struct seats_model *m, struct model_reservation *r, uint32_t seat);
void seats_model_add(struct seats_model *m, const struct model_reservation *r);
/* Sections become as large as they should be, when they can. */
void seats_model_catch_up(struct seats_model *m);
/* The settled hold that is reported next; NULL: none is due. */
struct model_reservation *seats_model_due(struct seats_model *m);

#endif
